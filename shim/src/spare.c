/* Memory of what was mapped is kept for a while for what is mapped next: pages that are new cost more than what comes into them. */
#include "pool.h"
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

enum { SPARES = 8, LEAST = 64 << 10, LASTS = 1000 /* milliseconds */ };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  void *at;
  size_t size;
} spares[SPARES]; /* the oldest first */
static int n;
static size_t bytes, most;
static int64_t used;

void yp_spare_in_child(void) { pthread_mutex_init(&lock, NULL); }

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static size_t limit(const char *path) {
  char text[32];
  int f = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t k = f < 0 ? 0 : read(f, text, sizeof text - 1);
  if (f >= 0) close(f);
  text[k < 0 ? 0 : k] = 0;
  const size_t v = strtoull(text, NULL, 10); /* "max" is none */
  return v ? v : SIZE_MAX;
}

/* may_keep is a part of what the machine has, or the container. */
static size_t may_keep(void) {
  size_t all = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
  const size_t of[] = {limit("/sys/fs/cgroup/memory.max"), limit("/sys/fs/cgroup/memory/memory.limit_in_bytes")};
  for (int i = 0; i < 2; i++) all = of[i] < all ? of[i] : all;
  return all / 16 + 1;
}

static void *take(int i) {
  void *p = spares[i].at;
  bytes -= spares[i].size;
  memmove(spares + i, spares + i + 1, (size_t)(n - i - 1) * sizeof *spares);
  __atomic_store_n(&n, n - 1, __ATOMIC_RELAXED);
  return p;
}

static void drop(void) {
  while (n) free(take(n - 1));
}

void *yp_room(size_t *size) {
  void *p = NULL;
  if (*size >= LEAST) {
    int best = -1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++)
      if (spares[i].size >= *size && spares[i].size / 2 <= *size && (best < 0 || spares[i].size < spares[best].size)) best = i;
    if (best >= 0) {
      *size = spares[best].size;
      p = take(best);
    }
    pthread_mutex_unlock(&lock);
  }
  if (p || !posix_memalign(&p, 128, *size)) return p;
  pthread_mutex_lock(&lock);
  drop();
  pthread_mutex_unlock(&lock);
  return posix_memalign(&p, 128, *size) ? NULL : p;
}

void yp_spare(void *at, size_t size) {
  if (size >= LEAST) {
    pthread_mutex_lock(&lock);
    if (!most) most = may_keep();
    if (size <= most) {
      while (n == SPARES || bytes + size > most) free(take(0));
      spares[n].at = at, spares[n].size = size;
      bytes += size, used = now(), at = NULL;
      __atomic_store_n(&n, n + 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&lock);
  }
  free(at);
}

void yp_spare_look(void) {
  if (!__atomic_load_n(&n, __ATOMIC_RELAXED)) return;
  pthread_mutex_lock(&lock);
  if (now() - used > LASTS) drop();
  pthread_mutex_unlock(&lock);
}
