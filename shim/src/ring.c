/* A ring: two rings of bytes in memory that the worker maps, too; its side,
 * internal/pool/worker/ring.go, says how the page is used and how one waits. What
 * the page says is the worker's, and not believed. */
#define _GNU_SOURCE
#include "path.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, TO_WORKER = 0, TO_PROGRAM = 256, WRITTEN = 0, ROOM = 4, ENDS = 8, SEEN = 12, FEW_AT = 16, FEW = 48, READ = 128, WAITS = 192, PROCESSOR = 196 };
enum { AWAKE, ASLEEP, LISTENS };
enum { SPIN = 20000, KEEP = 1000000, MOST_SKIP = 1024, TRY = 64, MOST_SIZE = 64 << 20, LOOKS = 100 }; /* nanoseconds, waits, bytes; LOOKS: between two of the clock */
#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#define F_SEAL_SHRINK 2
#endif

static uint32_t *word(const yp_path *c, int way, int which) { return (uint32_t *)(void *)(c->ring.page + way + which); }
static uint32_t load(const uint32_t *w) { return __atomic_load_n(w, __ATOMIC_SEQ_CST); }
static void store(uint32_t *w, uint32_t v) { __atomic_store_n(w, v, __ATOMIC_SEQ_CST); }
static void note(uint32_t *w, uint32_t v) { __atomic_store_n(w, v, __ATOMIC_RELAXED); } /* before a store */
static bool swap(uint32_t *w, uint32_t was) { return __atomic_compare_exchange_n(w, &was, AWAKE, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); }
static uint32_t least(size_t a, size_t b) { return (uint32_t)(a < b ? a : b); }

static void wait_for(uint32_t *w, uint32_t seen, int64_t most) {
  struct timespec t = {most / 1000000000, most % 1000000000};
  syscall(SYS_futex, w, FUTEX_WAIT, seen, &t, NULL, 0);
}

static void wake(uint32_t *w) { syscall(SYS_futex, w, FUTEX_WAKE, 1, NULL, NULL, 0); }

static int64_t clock_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void relax(void) {
#if defined __x86_64__ || defined __i386__
  __builtin_ia32_pause();
#endif
}

static bool spin(yp_path *c, const uint32_t *w, uint32_t seen) {
  int here = sched_getcpu();
  uint32_t *processor = word(c, TO_PROGRAM, PROCESSOR);
  if (load(processor) != (uint32_t)here + 1) store(processor, (uint32_t)here + 1);
  if (c->ring.skip > 0) {
    c->ring.skip--;
    return false;
  }
  if (!__atomic_load_n(&c->ring.met, __ATOMIC_RELAXED) && ++c->ring.asleep % TRY) return false;
  if (here < 0 || load(word(c, TO_WORKER, PROCESSOR)) == (uint32_t)here + 1) return false;
  int64_t end = 0;
  do
    for (int i = 0; i < LOOKS; i++, relax())
      if (load(w) != seen) {
        c->ring.back = 1;
        return true;
      }
  while (end ? clock_now() < end : (end = clock_now() + SPIN) > 0);
  c->ring.skip = c->ring.back;
  if (c->ring.back < MOST_SKIP) c->ring.back *= 2;
  return false;
}

/* await returns when there may be something to read; false: the worker has ended. */
static bool await(yp_path *c) {
  uint32_t *w = word(c, TO_PROGRAM, WRITTEN), *waits = word(c, TO_PROGRAM, WAITS), seen = c->ring.read;
  if (spin(c, w, seen)) return true;
  for (int64_t end = clock_now() + KEEP, left = KEEP; left > 0 && load(w) == seen; left = end - clock_now()) {
    store(waits, ASLEEP);
    if (load(w) == seen) wait_for(w, seen, left);
  }
  bool there = true;
  while (load(w) == seen) {
    uint8_t bells[64];
    store(waits, LISTENS);
    if (load(w) != seen) break;
    if (yp_poll(c, POLLIN, -1) < 0 || !(there = yp_socket.receive(c, bells, sizeof bells) > 0)) break;
  }
  store(waits, AWAKE);
  return there || load(w) != seen;
}

static ssize_t ring_receive(yp_path *c, uint8_t *p, size_t n) {
  uint32_t written, there, *read = word(c, TO_PROGRAM, READ), *room = word(c, TO_PROGRAM, ROOM);
  while (!(there = (written = load(word(c, TO_PROGRAM, WRITTEN))) - c->ring.read))
    if (!await(c)) return 0;
  if (there > c->ring.size) return -1;
  size_t done = 0;
  if (there <= FEW && load(word(c, TO_PROGRAM, ENDS)) == written) {
    done = least(n, there);
    memcpy(p, c->ring.page + TO_PROGRAM + FEW_AT + FEW - there, done);
    c->ring.read += (uint32_t)done, there = 0;
  }
  while (done < n && there > 0) { /* once more where it begins anew */
    size_t at = c->ring.read & (c->ring.size - 1);
    uint32_t k = least(least(n - done, there), c->ring.size - at);
    memcpy(p + done, c->ring.page + PAGE + c->ring.size + at, k);
    done += k, there -= k, c->ring.read += k;
  }
  store(read, c->ring.read);
  if (load(room) == ASLEEP && swap(room, ASLEEP)) wake(read);
  return (ssize_t)done;
}

static void publish(yp_path *c) {
  uint32_t *waits = word(c, TO_WORKER, WAITS);
  note(word(c, TO_WORKER, SEEN), load(word(c, TO_PROGRAM, READ)));
  store(word(c, TO_WORKER, WRITTEN), c->ring.written);
  uint32_t how = load(waits);
  __atomic_store_n(&c->ring.met, how == AWAKE, __ATOMIC_RELAXED); /* who reads may be another thread */
  if (how == AWAKE || !swap(waits, how)) return;
  if (how == ASLEEP) wake(word(c, TO_WORKER, WRITTEN));
  else if (how == LISTENS) send(yp_sock(c), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL); /* one that is full, or has ended, wakes, too */
}

/* await_room: as the worker's. */
static bool await_room(yp_path *c) {
  uint32_t *w = word(c, TO_WORKER, READ), *room = word(c, TO_WORKER, ROOM), seen = c->ring.written - (uint32_t)c->ring.size;
  bool there = true;
  publish(c);
  for (int64_t most = KEEP; there; most = most < 16 * KEEP ? 2 * most : most) {
    store(room, ASLEEP);
    if (load(w) != seen) break;
    wait_for(w, seen, most);
    if (load(w) != seen) break;
    there = yp_poll(c, POLLRDHUP, 0) <= 0;
    if (there && c->stuck) there = c->stuck(c->of);
  }
  store(room, AWAKE);
  return there;
}

static bool ring_send(yp_path *c, const uint8_t *p, size_t n, const uint8_t *q, size_t m) {
  if (n + m <= FEW && load(word(c, TO_PROGRAM, SEEN)) == c->ring.written) {
    uint8_t *few = c->ring.page + TO_WORKER + FEW_AT + FEW;
    memcpy(few - n - m, p, n);
    if (m) memcpy(few - m, q, m);
    note(word(c, TO_WORKER, ENDS), c->ring.written + (uint32_t)(n + m));
  }
  for (int i = 0; i < 2; i++, p = q, n = m)
    while (n > 0) {
      uint32_t there = c->ring.written - c->ring.taken;
      if (n > c->ring.size - there) { /* the worker's word is not looked at while there is room in any case */
        c->ring.taken = load(word(c, TO_WORKER, READ));
        if ((there = c->ring.written - c->ring.taken) > c->ring.size) return false;
        if (there == c->ring.size) {
          if (!await_room(c)) return false;
          continue;
        }
      }
      size_t at = c->ring.written & (c->ring.size - 1);
      uint32_t k = least(least(n, c->ring.size - there), least(c->ring.size - at, c->ring.size / 4)); /* the worker reads a part meanwhile */
      memcpy(c->ring.page + PAGE + at, p, k);
      p += k, n -= k, c->ring.written += k;
      if (n > 0) publish(c);
    }
  publish(c);
  return true;
}

static bool ring_ready(yp_path *c) {
  return load(word(c, TO_PROGRAM, WRITTEN)) != c->ring.read || yp_poll(c, POLLRDHUP, 0) > 0;
}

const yp_manner yp_ring = {ring_send, ring_receive, ring_ready};

/* yp_ring_open maps a ring that the worker has made, if it is one. */
bool yp_ring_open(yp_path *c, int fd, uint64_t size) {
  int seals = fd < 0 ? -1 : fcntl(fd, F_GET_SEALS);
  if (size < PAGE || size > MOST_SIZE || size & (size - 1) || seals < 0 || !(seals & F_SEAL_SHRINK) || lseek(fd, 0, SEEK_END) < (off_t)(PAGE + 2 * size)) return false;
  void *page = mmap(NULL, PAGE + 2 * size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) return false;
  c->ring.page = page, c->ring.size = size, c->ring.back = 1;
  return true;
}

void yp_ring_close(yp_path *c) {
  if (c->ring.page) munmap(c->ring.page, PAGE + 2 * c->ring.size);
  c->ring.page = NULL;
}
