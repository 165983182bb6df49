/* The connection as programs of CUDA use it, the driver and its one device, and
 * contexts. */
#define YR_STUBS
#include "remote.h"
#include "../src/own.h"
#include <signal.h>
#include <time.h>
#include <unistd.h>

/* --- the connection --- */

enum { BUS = 64, NAME = 256 };
static struct {
  pthread_mutex_t lock;
  bool tried, ready;
  CUresult result;
  int version, major, minor;
  unsigned char uuid[16];
  char luid[8];
  unsigned mask, has_luid;
  char name[NAME], bus[BUS];
} driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum { DEPTH = 64 };
static _Thread_local struct {
  uint64_t number;
  int depth;
  CUctx stack[DEPTH];
} mine;
static pthread_key_t ends;

bool yr_ready(void) { return __atomic_load_n(&driver.ready, __ATOMIC_ACQUIRE); }
yp_node *yr_node(void) { return yp_node_at(0); }

static CUresult of_status(int status) { return status < 0 ? CUDA_ERROR_DEVICE_UNAVAILABLE : status; } /* below 0: the worker is gone */

void yr_begin(int op) {
  static uint64_t threads;
  if (!mine.number) {
    mine.number = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
    pthread_setspecific(ends, &mine);
  }
  yp_begin(yr_node(), op);
  yp_word(mine.number);
}

CUresult yr_sync(answer *a) { return of_status(yp_sync(a)); }

/* What is posted shall not wait long: it is sent at once if nothing was sent just
 * before, else by a thread that looks now and then while there is something. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t some;
  bool runs;
  int asleep;      /* the thread */
  uint64_t posted; /* how often something was */
  int64_t sent;    /* when it was last */
} late = {.lock = PTHREAD_MUTEX_INITIALIZER, .some = PTHREAD_COND_INITIALIZER};
enum { SOON = 100 * 1000, QUIET = 50 }; /* nanoseconds; how often it looks in vain before it sleeps */

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void *send_late(void *none) {
  uint64_t seen = 0;
  for (int vain = 0;;) {
    uint64_t posted = __atomic_load_n(&late.posted, __ATOMIC_ACQUIRE);
    if (posted != seen) {
      yp_flush(yr_node());
      seen = posted, vain = 0;
    } else if (++vain > QUIET) {
      pthread_mutex_lock(&late.lock);
      __atomic_store_n(&late.asleep, 1, __ATOMIC_SEQ_CST);
      while (__atomic_load_n(&late.posted, __ATOMIC_SEQ_CST) == seen) pthread_cond_wait(&late.some, &late.lock);
      __atomic_store_n(&late.asleep, 0, __ATOMIC_SEQ_CST);
      pthread_mutex_unlock(&late.lock);
      vain = 0;
    }
    nanosleep(&(struct timespec){0, 2 * SOON}, NULL);
  }
  return none;
}

static void start_late(void) {
  pthread_t t;
  pthread_attr_t attr;
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_BLOCK, &all, &before); /* signals are for the program's threads */
  late.runs = !pthread_create(&t, &attr, send_late, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attr);
}

static CUresult posted(void) {
  int64_t t = now();
  if (t - __atomic_load_n(&late.sent, __ATOMIC_RELAXED) > SOON || !late.runs) {
    __atomic_store_n(&late.sent, t, __ATOMIC_RELAXED);
    yp_flush(yr_node());
    return CUDA_SUCCESS;
  }
  __atomic_add_fetch(&late.posted, 1, __ATOMIC_SEQ_CST);
  if (!__atomic_load_n(&late.asleep, __ATOMIC_SEQ_CST)) return CUDA_SUCCESS;
  pthread_mutex_lock(&late.lock);
  pthread_cond_signal(&late.some);
  pthread_mutex_unlock(&late.lock);
  return CUDA_SUCCESS;
}

CUresult yr_end(void) {
  CUresult r = of_status(yp_end());
  return r ? r : posted();
}

CUresult yr_post(void) {
  yp_post(false);
  return posted();
}

CUresult yr_send(uint64_t handle, int kind) {
  bool right = (handle & 0xFF) == (uint64_t)kind && handle >> 8;
  return right ? yr_post() : yr_sync(NULL);
}

uint64_t yr_out(const answer *a, size_t i) {
  uint64_t w = 0;
  if (i == 0) return a->a;
  if (i == 1) return a->b;
  if ((i - 1) * 8 <= a->size) memcpy(&w, a->data + (i - 2) * 8, 8);
  return w;
}

void yr_bytes(const answer *a, void *to, size_t n) {
  memset(to, 0, n);
  if (a->data) memcpy(to, a->data, n < a->size ? n : a->size);
}

static void thread_ends(void *none) {
  (void)none;
  if (!yr_ready()) return;
  yr_begin(OP_ends);
  yr_post();
}

/* What the parent made is not the child's, as with the driver itself. */
static void in_child(void) {
  memset(&driver, 0, sizeof driver);
  pthread_mutex_init(&driver.lock, NULL);
  memset(&late, 0, sizeof late);
  pthread_mutex_init(&late.lock, NULL), pthread_cond_init(&late.some, NULL);
  memset(&mine, 0, sizeof mine);
  yr_forget_all(NULL);
}

static void first(void) {
  pthread_key_create(&ends, thread_ends);
  yp_at_fork(NULL, NULL, in_child);
  yp_nodes();
}

/* yr_connect connects, once, and learns what the device is. */
CUresult yr_connect(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, first);
  pthread_mutex_lock(&driver.lock);
  if (!driver.tried) {
    driver.tried = true;
    driver.result = yp_connect(yr_node()) ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
    if (!driver.result) {
      answer a = {.land = NULL};
      yr_begin(OP_begin);
      driver.result = yr_sync(&a);
      enum { FACTS = 16 + 8 + 8 + NAME + BUS };
      if (!driver.result && a.size == FACTS) {
        driver.version = (int)a.a, driver.major = (int)(a.b >> 32), driver.minor = (int)(a.b & 0xFFFFFFFF);
        memcpy(driver.uuid, a.data, 16), memcpy(driver.luid, a.data + 16, 8), memcpy(&driver.mask, a.data + 24, 4), memcpy(&driver.has_luid, a.data + 28, 4);
        memcpy(driver.name, a.data + 32, NAME - 1), memcpy(driver.bus, a.data + 32 + NAME, BUS - 1);
        start_late();
      } else if (!driver.result) {
        driver.result = CUDA_ERROR_NO_DEVICE;
      }
      free(a.data);
    }
  }
  CUresult r = driver.result;
  pthread_mutex_unlock(&driver.lock);
  return r;
}

/* --- the driver and the device --- */

EXPORT CUresult cuInit(unsigned flags) {
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = yr_connect();
  if (!r) __atomic_store_n(&driver.ready, true, __ATOMIC_RELEASE);
  return r;
}

EXPORT CUresult cuDriverGetVersion(int *v) {
  if (!v) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = yr_connect();
  *v = driver.version;
  return r;
}

#define READY \
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED
#define WANTS(what) \
  if (!(what)) return CUDA_ERROR_INVALID_VALUE
#define OURS(d) \
  if (d) return CUDA_ERROR_INVALID_DEVICE

EXPORT CUresult cuDeviceGetCount(int *n) {
  READY;
  WANTS(n);
  *n = 1;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *d, int ordinal) {
  READY;
  WANTS(d);
  OURS(ordinal);
  *d = 0;
  return CUDA_SUCCESS;
}

static CUresult give_text(char *to, int room, const char *text) {
  WANTS(to && room > 0);
  snprintf(to, (size_t)room, "%s", text);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int room, CUdevice d) {
  READY;
  OURS(d);
  return give_text(name, room, driver.name);
}

EXPORT CUresult cuDeviceGetPCIBusId(char *bus, int room, CUdevice d) {
  READY;
  OURS(d);
  return give_text(bus, room, driver.bus);
}

/* cuDeviceGetByPCIBusId takes what sscanf reads: the domain may be missing. */
EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *d, const char *bus) {
  READY;
  WANTS(d && bus);
  unsigned x[4] = {0}, y[4] = {0};
  if (sscanf(bus, "%x:%x:%x.%x", x, x + 1, x + 2, x + 3) < 3 && (x[0] = 0, sscanf(bus, "%x:%x.%x", x + 1, x + 2, x + 3) < 2)) return CUDA_ERROR_INVALID_VALUE;
  if (sscanf(driver.bus, "%x:%x:%x.%x", y, y + 1, y + 2, y + 3) < 3 || memcmp(x, y, sizeof x)) return CUDA_ERROR_INVALID_DEVICE;
  *d = 0;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(void *uuid, CUdevice d) {
  READY;
  WANTS(uuid);
  OURS(d);
  memcpy(uuid, driver.uuid, sizeof driver.uuid);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetUuid_v2(void *uuid, CUdevice d) { return cuDeviceGetUuid(uuid, d); }

EXPORT CUresult cuDeviceGetLuid(char *luid, unsigned *mask, CUdevice d) {
  READY;
  WANTS(luid && mask);
  OURS(d);
  if (!driver.has_luid) return CUDA_ERROR_NOT_SUPPORTED;
  memcpy(luid, driver.luid, sizeof driver.luid);
  *mask = driver.mask;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice d) {
  READY;
  WANTS(major && minor);
  OURS(d);
  *major = driver.major, *minor = driver.minor;
  return CUDA_SUCCESS;
}

/* An attribute does not change, and programs ask for them again and again. What
 * needs the program's memory to be the device's is not there. */
EXPORT CUresult cuDeviceGetAttribute(int *value, int what, CUdevice d) {
  static const unsigned char missing[] = {
      19 /* host memory that is mapped */, 83 /* managed memory */, 88, 89, 91, 100, 101, 96 /* cooperative over devices */, 98, 110, 116, 117, 118 /* others that write here, and are flushed */,
      103, 104, 105, 119, 124, 128 /* handles to share memory by */, 112, 121 /* arrays that are mapped */, 114 /* semaphores of others */, 125 /* events between processes */, 129, 132 /* multicast */};
  enum { MOST = 256 };
  static uint64_t known[MOST]; /* above 32 bits: it is */
  READY;
  WANTS(value);
  OURS(d);
  for (size_t i = 0; i < sizeof missing; i++)
    if (missing[i] == what) return *value = 0, CUDA_SUCCESS;
  uint64_t k = what >= 0 && what < MOST ? __atomic_load_n(known + what, __ATOMIC_RELAXED) : 0;
  if (k) return *value = (int)(k & 0xFFFFFFFF), CUDA_SUCCESS;
  CUresult r = yr_cuDeviceGetAttribute(value, what, d);
  if (!r && what >= 0 && what < MOST) __atomic_store_n(known + what, 1ULL << 32 | (uint32_t)*value, __ATOMIC_RELAXED);
  return r;
}

/* There is one device: no other is its peer. */
EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b) {
  READY;
  WANTS(can);
  OURS(a || b);
  *can = 0;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetP2PAttribute(int *value, int what, CUdevice a, CUdevice b) {
  (void)what, (void)a, (void)b;
  READY;
  WANTS(value);
  return CUDA_ERROR_INVALID_DEVICE; /* both are the same, or are not there */
}
EXPORT CUresult cuCtxEnablePeerAccess(CUctx c, unsigned flags) {
  READY;
  WANTS(!flags);
  return c ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : CUDA_ERROR_INVALID_CONTEXT;
}
EXPORT CUresult cuCtxDisablePeerAccess(CUctx c) {
  enum { NOT_ENABLED = 705 };
  READY;
  return c ? NOT_ENABLED : CUDA_ERROR_INVALID_CONTEXT;
}

/* --- contexts: what is current is known here, and set at the worker's thread --- */

CUctx yr_current(void) { return mine.depth ? mine.stack[mine.depth - 1] : NULL; }

static void push(CUctx c) {
  if (mine.depth < DEPTH) mine.stack[mine.depth++] = c;
}

EXPORT CUresult cuCtxCreate_v2(CUctx *c, unsigned flags, CUdevice d) {
  CUresult r = yr_cuCtxCreate_v2(c, flags, d);
  if (!r) push(*c);
  return r;
}
EXPORT CUresult cuCtxCreate_v3(CUctx *c, void *params, int n, unsigned flags, CUdevice d) { return params || n ? CUDA_ERROR_NOT_SUPPORTED : cuCtxCreate_v2(c, flags, d); }
EXPORT CUresult cuCtxCreate_v4(CUctx *c, void *params, unsigned flags, CUdevice d) { return params ? CUDA_ERROR_NOT_SUPPORTED : cuCtxCreate_v2(c, flags, d); }

EXPORT CUresult cuCtxDestroy_v2(CUctx c) {
  CUresult r = yr_cuCtxDestroy_v2(c);
  if (r) return r;
  if (yr_current() == c) mine.depth--;
  yr_forget_all(c);
  return r;
}

EXPORT CUresult cuCtxDetach(CUctx c) { return cuCtxDestroy_v2(c); } /* nothing is attached to one */

EXPORT CUresult cuCtxPushCurrent_v2(CUctx c) {
  if (mine.depth == DEPTH) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult r = yr_cuCtxPushCurrent_v2(c);
  if (!r) push(c);
  return r;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUctx *c) {
  CUctx was = yr_current();
  CUresult r = yr_cuCtxPopCurrent_v2(NULL);
  if (r) return r;
  if (mine.depth) mine.depth--;
  if (c) *c = was;
  return r;
}

EXPORT CUresult cuCtxSetCurrent(CUctx c) {
  READY;
  if (c == yr_current()) return CUDA_SUCCESS;
  CUresult r = yr_cuCtxSetCurrent((uint64_t)(uintptr_t)c);
  if (r) return r;
  if (mine.depth) mine.depth--;
  if (c) push(c);
  return r;
}

EXPORT CUresult cuCtxGetCurrent(CUctx *c) {
  READY;
  WANTS(c);
  *c = yr_current();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *d) {
  READY;
  WANTS(d);
  if (!yr_current()) return CUDA_ERROR_INVALID_CONTEXT;
  *d = 0;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetDevice_v2(CUdevice *d, CUctx c) { return c ? (d ? *d = 0, CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE) : cuCtxGetDevice(d); }

static CUctx primary;

EXPORT CUresult cuDevicePrimaryCtxRetain(CUctx *c, CUdevice d) {
  CUresult r = yr_cuDevicePrimaryCtxRetain(c, d);
  if (!r) __atomic_store_n(&primary, *c, __ATOMIC_RELAXED);
  return r;
}

/* primary_gone forgets the memory of the primary context when its last use has ended. */
static CUresult primary_gone(CUresult r) {
  unsigned flags;
  int active = 1;
  if (!r && !cuDevicePrimaryCtxGetState(0, &flags, &active) && !active) yr_forget_all(__atomic_load_n(&primary, __ATOMIC_RELAXED));
  return r;
}
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) { return primary_gone(yr_cuDevicePrimaryCtxRelease_v2(d)); }
EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice d) { return cuDevicePrimaryCtxRelease_v2(d); }
EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice d) { return primary_gone(yr_cuDevicePrimaryCtxReset_v2(d)); }
EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice d) { return cuDevicePrimaryCtxReset_v2(d); }
EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice d, unsigned flags) { return cuDevicePrimaryCtxSetFlags_v2(d, flags); }
