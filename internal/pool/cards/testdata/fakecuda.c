/* fakecuda plays a driver of CUDA for tests: two cards that are not there. Memory
 * is the machine's, kernels are three: "add" adds 1 to words, "spin" takes the
 * microseconds it is given, "wait" waits for a word of the program's. What is given to streams is done in one order, by a
 * thread. Of structures only what is used is declared. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { OK, INVALID, NOMEM, UNINITIALIZED, BAD_DEVICE = 101, BAD_CONTEXT = 201, NOT_FOUND = 500, NOT_READY = 600 };
enum { CARDS = 2 };
static const char *const places[CARDS] = {"0000:17:00.0", "0000:65:00.0"};
static const size_t size = 8ULL << 30;

typedef struct context {
  int card, uses;
} context;
typedef struct op {
  struct op *next;
  uint32_t *words;
  uint64_t n, micros;
  volatile uint32_t *flag;
} op;
typedef struct {
  uint64_t after;
} event;
typedef struct memory {
  struct memory *next;
  void *at;
  size_t n;
  context *of;
} memory;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static op *first, **last = &first;
static uint64_t given, done;
static memory *memories;
static context primary[CARDS] = {{0, 0}, {1, 0}};
static bool begun;
static _Thread_local context *now;

static void *compute(void *none) {
  (void)none;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (!first) pthread_cond_wait(&changed, &lock);
    op *o = first;
    pthread_mutex_unlock(&lock);
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    for (uint64_t i = 0; i < o->n; i++) o->words[i]++;
    while (o->flag && !*o->flag) sched_yield();
    uint64_t at = (uint64_t)t.tv_nsec + o->micros * 1000;
    t.tv_sec += (time_t)(at / 1000000000), t.tv_nsec = (long)(at % 1000000000);
    while (o->micros && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
    pthread_mutex_lock(&lock);
    if (!(first = o->next)) last = &first;
    free(o);
    done++;
    pthread_cond_broadcast(&changed);
  }
  return NULL;
}

static int give(uint32_t *words, uint64_t n, uint64_t micros, volatile uint32_t *flag) {
  static bool runs;
  op *o = calloc(1, sizeof *o);
  if (!now || !o) return BAD_CONTEXT;
  *o = (op){NULL, words, n, micros, flag};
  pthread_mutex_lock(&lock);
  if (!runs) {
    pthread_t t;
    runs = !pthread_create(&t, NULL, compute, NULL);
  }
  *last = o, last = &o->next;
  given++;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return OK;
}

static int wait_for(uint64_t n) {
  pthread_mutex_lock(&lock);
  while (done < n) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
  return OK;
}

int cuInit(unsigned flags) { return flags ? INVALID : (begun = true, OK); }
int cuDriverGetVersion(int *v) { return *v = 12040, OK; }
int cuDeviceGetCount(int *n) { return begun ? (*n = CARDS, OK) : UNINITIALIZED; }
int cuDeviceGet(int *d, int i) { return !begun ? UNINITIALIZED : i < 0 || i >= CARDS ? BAD_DEVICE : (*d = i, OK); }
int cuDeviceGetName(char *name, int n, int d) { return snprintf(name, (size_t)n, d ? "FAKE H100" : "FAKE H200"), OK; }
int cuDeviceGetAttribute(int *v, int what, int d) { return (void)d, *v = what == 16 ? 132 : 0, OK; }
int cuDeviceTotalMem_v2(size_t *n, int d) { return (void)d, *n = size, OK; }
int cuDeviceGetUuid(unsigned char *id, int d) { return memset(id, d + 1, 16), OK; }
int cuDeviceGetPCIBusId(char *to, int n, int d) { return snprintf(to, (size_t)n, "%s", places[d]), OK; }
int cuDeviceGetByPCIBusId(int *d, const char *at) {
  for (*d = 0; *d < CARDS; ++*d)
    if (!strcmp(places[*d], at)) return OK;
  return BAD_DEVICE;
}

int cuCtxGetCurrent(context **c) { return *c = now, OK; }
int cuCtxSetCurrent(context *c) { return now = c, OK; }
int cuCtxCreate_v2(context **c, unsigned flags, int d) { return (void)flags, *c = now = calloc(1, sizeof **c), now->card = d, OK; }
int cuDevicePrimaryCtxRetain(context **c, int d) { return *c = primary + d, primary[d].uses++, OK; }
int cuDevicePrimaryCtxGetState(int d, unsigned *flags, int *on) { return *flags = 0, *on = primary[d].uses > 0, OK; }

static int drop(context *c, void *at) {
  int r = INVALID;
  pthread_mutex_lock(&lock);
  for (memory **m = &memories; *m;) {
    memory *x = *m;
    if (c ? x->of != c : x->at != at) {
      m = &x->next;
      continue;
    }
    munmap(x->at, x->n);
    *m = x->next;
    free(x);
    r = OK;
  }
  pthread_mutex_unlock(&lock);
  return r;
}

int cuCtxSynchronize(void) { return wait_for(given); }
int cuCtxDestroy_v2(context *c) { return wait_for(given), drop(c, NULL), now = NULL, OK; }
int cuDevicePrimaryCtxRelease_v2(int d) { return --primary[d].uses ? OK : (wait_for(given), drop(primary + d, NULL), OK); }

static int make(void **to, size_t n) {
  memory *m = calloc(1, sizeof *m);
  if (!now || !m) return BAD_CONTEXT;
  if (!n || n > size || (m->at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) == MAP_FAILED) return free(m), n ? NOMEM : INVALID;
  m->n = n, m->of = now;
  pthread_mutex_lock(&lock);
  m->next = memories, memories = m;
  pthread_mutex_unlock(&lock);
  return *to = m->at, OK;
}

int cuMemAlloc_v2(void **p, size_t n) { return make(p, n); }
int cuMemAllocManaged(void **p, size_t n, unsigned flags) { return (void)flags, make(p, n); }
int cuMemAllocAsync(void **p, size_t n, void *s) { return (void)s, make(p, n); }
int cuMemAllocAsync_ptsz(void **p, size_t n, void *s) { return (void)s, make(p, n); }
int cuMemAllocFromPoolAsync(void **p, size_t n, void *pool, void *s) { return (void)pool, (void)s, make(p, n); }
int cuMemAllocPitch_v2(void **p, size_t *pitch, size_t w, size_t h, unsigned element) { return (void)element, *pitch = (w + 511) / 512 * 512, make(p, *pitch * h); }
int cuMemFree_v2(void *p) { return drop(NULL, p); }
int cuMemFreeAsync(void *p, void *s) { return (void)s, drop(NULL, p); }
int cuMemGetInfo_v2(size_t *left, size_t *total) { return *left = *total = size, OK; }
typedef struct {
  size_t w, h, d;
  int format;
  unsigned channels, flags;
} array;
int cuArray3DCreate_v2(void **a, const array *how) { return make(a, how->w * (how->h ? how->h : 1) * (how->d ? how->d : 1) * how->channels * 4); }
int cuArrayDestroy(void *a) { return drop(NULL, a); }
int cuMemCreate(uint64_t *handle, size_t n, const void *how, unsigned long long flags) { return (void)how, (void)flags, make((void **)handle, n); }
int cuMemRelease(uint64_t handle) { return (void)handle, OK; } /* what is mapped stays */
int cuMemMap(uint64_t p, size_t n, size_t offset, uint64_t handle, unsigned long long flags) { return (void)p, (void)n, (void)offset, (void)handle, (void)flags, OK; }
int cuMemUnmap(uint64_t p, size_t n) { return (void)p, (void)n, OK; }

int cuMemcpyHtoD_v2(void *to, const void *from, size_t n) { return wait_for(given), memcpy(to, from, n), OK; }
int cuMemcpyDtoH_v2(void *to, const void *from, size_t n) { return wait_for(given), memcpy(to, from, n), OK; }
int cuModuleLoadData(void **m, const void *image) { return (void)image, *m = (void *)1, OK; }
int cuModuleGetFunction(void **f, void *m, const char *name) { return (void)m, *f = (void *)(uintptr_t)(!strcmp(name, "add") ? 1 : !strcmp(name, "spin") ? 2 : !strcmp(name, "wait") ? 3 : 0), *f ? OK : NOT_FOUND; }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *s, void **params, void **extra) {
  (void)gy, (void)gz, (void)by, (void)bz, (void)shared, (void)s, (void)extra;
  if (f == (void *)1) return give(*(uint32_t **)params[0], (uint64_t)gx * bx, 0, NULL);
  if (f == (void *)3) return give(NULL, 0, 0, *(volatile uint32_t **)params[0]);
  return give(NULL, 0, *(uint64_t *)params[0], NULL);
}
int cuLaunchKernel_ptsz(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *s, void **params, void **extra) {
  return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, params, extra);
}
int cuGraphLaunch(void *g, void *s) { return (void)s, give(NULL, 0, (uintptr_t)g, NULL); } /* a graph is how long it takes */

int cuStreamCreate(void **s, unsigned flags) { return (void)flags, *s = malloc(1), OK; }
int cuStreamSynchronize(void *s) { return (void)s, wait_for(given); }
int cuStreamIsCapturing(void *s, int *status) { return (void)s, *status = 0, OK; }
int cuThreadExchangeStreamCaptureMode(int *mode) { return *mode = 0, OK; }
int cuEventCreate(event **e, unsigned flags) { return (void)flags, *e = calloc(1, sizeof **e), OK; }
int cuEventRecord(event *e, void *s) { return (void)s, pthread_mutex_lock(&lock), e->after = given, pthread_mutex_unlock(&lock), OK; }
int cuEventSynchronize(event *e) { return wait_for(e->after); }
int cuEventQuery(event *e) {
  pthread_mutex_lock(&lock);
  bool is = done >= e->after;
  pthread_mutex_unlock(&lock);
  return is ? OK : NOT_READY;
}

/* What the pool's library does not know. */
int cuNobodyKnows(int x) { return x + 1; }

int cuGetProcAddress_v2(const char *name, void **f, int version, uint64_t flags, int *status);
int cuGetProcAddress(const char *name, void **f, int version, uint64_t flags) {
  static const struct {
    const char *name;
    void *f, *own;
  } all[] = {
#define F(f) {#f, (void *)f, (void *)f}
#define F2(f) {#f, (void *)f##_v2, (void *)f##_v2}
#define FS(f) {#f, (void *)f, (void *)f##_ptsz}
      F(cuInit), F(cuDriverGetVersion), F(cuDeviceGetCount), F(cuDeviceGet), F(cuDeviceGetName), F(cuDeviceGetAttribute), F2(cuDeviceTotalMem), F(cuDeviceGetUuid), F(cuDeviceGetPCIBusId),
      F(cuDeviceGetByPCIBusId), F(cuCtxGetCurrent), F(cuCtxSetCurrent), F2(cuCtxCreate), F(cuDevicePrimaryCtxRetain), F(cuDevicePrimaryCtxGetState), F(cuCtxSynchronize), F2(cuCtxDestroy),
      F2(cuDevicePrimaryCtxRelease), F2(cuMemAlloc), F(cuMemAllocManaged), FS(cuMemAllocAsync), F(cuMemAllocFromPoolAsync), F2(cuMemAllocPitch), F2(cuMemFree), F(cuMemFreeAsync), F2(cuMemGetInfo),
      F2(cuArray3DCreate), F(cuArrayDestroy), F(cuMemCreate), F(cuMemRelease), F(cuMemMap), F(cuMemUnmap), F2(cuMemcpyHtoD), F2(cuMemcpyDtoH), F(cuModuleLoadData), F(cuModuleGetFunction),
      FS(cuLaunchKernel), F(cuGraphLaunch), F(cuStreamCreate), F(cuStreamSynchronize), F(cuStreamIsCapturing), F(cuThreadExchangeStreamCaptureMode), F(cuEventCreate), F(cuEventRecord),
      F(cuEventSynchronize), F(cuEventQuery), F(cuNobodyKnows), F(cuGetProcAddress)};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (!strcmp(all[i].name, name)) return *f = flags & 2 ? all[i].own : all[i].f, *f == (void *)cuGetProcAddress && version >= 12000 ? *f = (void *)cuGetProcAddress_v2, OK : OK;
  return *f = NULL, NOT_FOUND;
}
int cuGetProcAddress_v2(const char *name, void **f, int version, uint64_t flags, int *status) {
  int r = cuGetProcAddress(name, f, version, flags);
  if (status) *status = r ? 1 : 0;
  return r;
}
