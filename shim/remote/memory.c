/* What the library knows of addresses: the device's memory, and the program's own
 * that the driver would have made or pinned. By that it tells where a copy goes,
 * and sends what is right without waiting. */
#include "remote.h"
#include <sys/mman.h>
#include <unistd.h>

#define READY \
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED
#define WANTS(what) \
  if (!(what)) return CUDA_ERROR_INVALID_VALUE
#define CURRENT \
  if (!yr_current()) return CUDA_ERROR_INVALID_CONTEXT

static struct {
  pthread_mutex_t lock;
  range *all; /* by address, none over another */
  size_t n, room;
  uint64_t ids;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* after returns the first range that begins after an address. The caller has the lock. */
static size_t after(uint64_t at) {
  size_t low = 0, high = known.n;
  while (low < high) {
    size_t mid = (low + high) / 2;
    if (known.all[mid].at <= at) low = mid + 1;
    else high = mid;
  }
  return low;
}

/* The program's own memory shall not be where the device's is: who asks what an
 * address is knows it by that. Small pieces are left, as mappings are few. */
static void inner(const range *r, void **p, size_t *n) {
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = (r->at + page - 1) & ~(page - 1), end = (r->at + r->size) & ~(page - 1);
  *p = (void *)(uintptr_t)at, *n = end - at;
}

static bool hold(const range *r) {
  enum { LARGE = 1 << 20 };
#ifdef MAP_FIXED_NOREPLACE
  void *want;
  size_t n;
  if (r->what == YR_HOST || r->size < LARGE) return false;
  inner(r, &want, &n);
  void *p = mmap(want, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (p == want) return true;
  if (p != MAP_FAILED) munmap(p, n); /* of a kernel that does not know the flag */
#else
  (void)r;
#endif
  return false;
}

static void let_go(const range *r) {
  void *p;
  size_t n;
  inner(r, &p, &n);
  if (r->held) munmap(p, n);
}

void yr_know(uint64_t at, uint64_t size, int what, unsigned flags) {
  range r = {at, size ? size : 1, what, flags, 0, yr_current(), false};
  r.held = hold(&r);
  pthread_mutex_lock(&known.lock);
  size_t i = after(at), from = i && known.all[i - 1].at + known.all[i - 1].size > at ? i - 1 : i, to = from;
  while (to < known.n && known.all[to].at < at + r.size) to++; /* of what is gone without our knowing */
  if (known.n - (to - from) == known.room) {
    size_t room = known.room * 2 + 64;
    range *all = realloc(known.all, room * sizeof *all);
    if (!all) { /* it is as if it were not ours: slower, not wrong */
      pthread_mutex_unlock(&known.lock);
      return;
    }
    known.all = all, known.room = room;
  }
  memmove(known.all + from + 1, known.all + to, (known.n - to) * sizeof r);
  known.n = known.n - (to - from) + 1;
  r.id = ++known.ids;
  known.all[from] = r;
  pthread_mutex_unlock(&known.lock);
}

bool yr_find(uint64_t at, range *r) {
  pthread_mutex_lock(&known.lock);
  size_t i = after(at);
  bool in = i && at - known.all[i - 1].at < known.all[i - 1].size;
  if (in) *r = known.all[i - 1];
  pthread_mutex_unlock(&known.lock);
  return in;
}

bool yr_forget(uint64_t at, int what, range *r) {
  range own;
  pthread_mutex_lock(&known.lock);
  size_t i = after(at);
  bool is = i && known.all[i - 1].at == at && known.all[i - 1].what == what;
  if (is) {
    own = known.all[i - 1];
    memmove(known.all + i - 1, known.all + i, (known.n - i) * sizeof own);
    known.n--;
  }
  pthread_mutex_unlock(&known.lock);
  if (is && r) *r = own;
  return is;
}

bool yr_on_device(uint64_t at, uint64_t n) {
  range r;
  return yr_find(at, &r) && r.what != YR_HOST && n <= r.size - (at - r.at);
}

void yr_forget_all(CUctx context) {
  pthread_mutex_lock(&known.lock);
  size_t kept = 0;
  for (size_t i = 0; i < known.n; i++)
    if (context && (known.all[i].what == YR_HOST || known.all[i].context != context)) known.all[kept++] = known.all[i];
    else let_go(known.all + i);
  known.n = kept;
  pthread_mutex_unlock(&known.lock);
}

/* --- the device's memory --- */

static CUresult made(CUresult r, const CUdeviceptr *p, uint64_t n, int what) {
  if (!r && *p) yr_know(*p, n, what, 0);
  return r;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) { return made(yr_cuMemAlloc_v2(p, n), p, n, YR_DEVICE); }
EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *p, size_t *pitch, size_t w, size_t h, unsigned element) {
  CUresult r = yr_cuMemAllocPitch_v2(p, pitch, w, h, element);
  return r ? r : made(r, p, *pitch * h, YR_DEVICE);
}
EXPORT CUresult cuMemAllocAsync(CUdeviceptr *p, size_t n, CUstream s) { return made(yr_cuMemAllocAsync(p, n, s), p, n, YR_DEVICE); }
EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *p, size_t n, CUstream s) { return cuMemAllocAsync(p, n, yr_own(s)); }
EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t n, CUpool pool, CUstream s) { return made(yr_cuMemAllocFromPoolAsync(p, n, pool, s), p, n, YR_DEVICE); }
EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *p, size_t n, CUpool pool, CUstream s) { return cuMemAllocFromPoolAsync(p, n, pool, yr_own(s)); }

EXPORT CUresult cuMemFree_v2(CUdeviceptr p) {
  range r;
  READY;
  if (!yr_current() || !yr_forget(p, YR_DEVICE, &r)) return yr_cuMemFree_v2(p);
  let_go(&r);
  yr_begin(OP_MemFree_v2);
  yp_word(p);
  return yr_post();
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s) {
  range r;
  READY;
  bool ours = yr_forget(p, YR_DEVICE, &r);
  if (ours) let_go(&r);
  yr_begin(OP_MemFreeAsync);
  yp_word(p);
  yp_word((uint64_t)(uintptr_t)s);
  return ours && (uintptr_t)s <= yr_per_thread ? yr_post() : yr_sync(NULL);
}
EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream s) { return cuMemFreeAsync(p, yr_own(s)); }

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *p, size_t n, size_t alignment, CUdeviceptr want, uint64_t flags) {
  return made(yr_cuMemAddressReserve(p, n, alignment, want, flags), p, n, YR_RESERVED);
}
EXPORT CUresult cuMemAddressFree(CUdeviceptr p, size_t n) {
  range r;
  CUresult bad = yr_cuMemAddressFree(p, n);
  if (!bad && yr_forget(p, YR_RESERVED, &r)) let_go(&r);
  return bad;
}
EXPORT CUresult cuMemCreate(uint64_t *handle, size_t n, const void *how, uint64_t flags) { return yr_cuMemCreate(handle, n, how, flags); }

static CUresult set_access(int of, uint64_t at, uint64_t n, const void *list, size_t count) {
  enum { ROW = 12, MOST = 64 };
  READY;
  WANTS(list && count && count <= MOST);
  yr_begin(OP_access);
  yp_word((uint64_t)of);
  yp_word(at);
  yp_word(n);
  yp_bytes(list, count * ROW);
  return yr_sync(NULL);
}
EXPORT CUresult cuMemSetAccess(CUdeviceptr p, size_t n, const void *list, size_t count) { return set_access(0, p, n, list, count); }
EXPORT CUresult cuMemPoolSetAccess(CUpool pool, const void *list, size_t count) { return set_access(1, (uint64_t)(uintptr_t)pool, 0, list, count); }

/* Of a pool's attributes the first three are int, the others uint64_t. */
enum { WIDE = 4 };
EXPORT CUresult cuMemPoolSetAttribute(CUpool pool, int what, const void *value) {
  uint64_t v = 0;
  WANTS(value);
  memcpy(&v, value, what < WIDE ? 4 : 8);
  return yr_cuMemPoolSetAttribute(pool, what, &v);
}
EXPORT CUresult cuMemPoolGetAttribute(CUpool pool, int what, void *value) {
  uint64_t v = 0;
  WANTS(value);
  CUresult r = yr_cuMemPoolGetAttribute(pool, what, &v);
  if (!r) memcpy(value, &v, what < WIDE ? 4 : 8);
  return r;
}

EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *p, size_t *n, CUmodule m, const char *name) {
  CUdeviceptr at = 0;
  size_t size = 0;
  WANTS(p || n);
  CUresult r = made(yr_cuModuleGetGlobal_v2(&at, &size, m, name), &at, size, YR_GLOBAL);
  if (!r && p) *p = at;
  if (!r && n) *n = size;
  return r;
}
EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *p, size_t *n, CUlibrary l, const char *name) {
  CUdeviceptr at = 0;
  size_t size = 0;
  WANTS(p || n);
  CUresult r = made(yr_cuLibraryGetGlobal(&at, &size, l, name), &at, size, YR_GLOBAL);
  if (!r && p) *p = at;
  if (!r && n) *n = size;
  return r;
}

/* --- the program's memory, which here is nothing but that --- */

enum { REGISTERED = 1U << 31 };

EXPORT CUresult cuMemHostAlloc(void **p, size_t n, unsigned flags) {
  READY;
  WANTS(p && n && flags < 8);
  CURRENT;
  if (posix_memalign(p, (size_t)sysconf(_SC_PAGESIZE), n)) return CUDA_ERROR_OUT_OF_MEMORY;
  yr_know((uint64_t)(uintptr_t)*p, n, YR_HOST, flags);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemAllocHost_v2(void **p, size_t n) { return cuMemHostAlloc(p, n, 0); }

EXPORT CUresult cuMemFreeHost(void *p) {
  range r;
  READY;
  WANTS(p && yr_find((uint64_t)(uintptr_t)p, &r) && !(r.flags & REGISTERED) && yr_forget((uint64_t)(uintptr_t)p, YR_HOST, NULL));
  free(p);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostRegister_v2(void *p, size_t n, unsigned flags) {
  range r;
  READY;
  WANTS(p && n && flags < 16);
  CURRENT;
  if (yr_find((uint64_t)(uintptr_t)p, &r) || yr_find((uint64_t)(uintptr_t)p + n - 1, &r)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  yr_know((uint64_t)(uintptr_t)p, n, YR_HOST, flags | REGISTERED);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemHostRegister(void *p, size_t n, unsigned flags) { return cuMemHostRegister_v2(p, n, flags); }

EXPORT CUresult cuMemHostUnregister(void *p) {
  range r;
  READY;
  WANTS(p);
  if (!yr_find((uint64_t)(uintptr_t)p, &r) || !(r.flags & REGISTERED) || !yr_forget((uint64_t)(uintptr_t)p, YR_HOST, NULL)) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  return CUDA_SUCCESS;
}

/* Kernels cannot reach it: CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY says so. */
EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *to, void *p, unsigned flags) {
  range r;
  READY;
  WANTS(to && !flags && yr_find((uint64_t)(uintptr_t)p, &r) && r.what == YR_HOST);
  return CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult cuMemHostGetFlags(unsigned *flags, void *p) {
  range r;
  READY;
  WANTS(flags && yr_find((uint64_t)(uintptr_t)p, &r) && r.what == YR_HOST && !(r.flags & REGISTERED));
  *flags = r.flags;
  return CUDA_SUCCESS;
}

/* --- what an address is --- */

enum { A_CONTEXT = 1, A_TYPE, A_DEVICE_POINTER, A_HOST_POINTER, A_SYNC = 6, A_ID, A_MANAGED, A_ORDINAL, A_LEGACY_IPC, A_START, A_SIZE, A_MAPPED, A_HANDLES, A_RDMA, A_ACCESS, A_POOL };

static CUresult attribute(void *to, int what, uint64_t p, const range *r) {
  unsigned type = r->what == YR_HOST ? 1 : 2, on = 1;
  int none = 0, all = 3;
  uint64_t zero = 0;
#define TELL(value) return memcpy(to, &(value), sizeof(value)), CUDA_SUCCESS
  switch (what) {
  case A_CONTEXT: TELL(r->context);
  case A_TYPE: TELL(type);
  case A_DEVICE_POINTER:
    if (r->what == YR_HOST) return CUDA_ERROR_INVALID_VALUE;
    TELL(p);
  case A_HOST_POINTER:
    if (r->what != YR_HOST) return CUDA_ERROR_INVALID_VALUE;
    TELL(p);
  case A_ID: TELL(r->id);
  case A_START: TELL(r->at);
  case A_SIZE: TELL(r->size);
  case A_MAPPED: TELL(on);
  case A_ORDINAL: case A_MANAGED: case A_SYNC: case A_LEGACY_IPC: case A_RDMA: TELL(none);
  case A_HANDLES: case A_POOL: TELL(zero);
  case A_ACCESS: TELL(all);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuPointerGetAttribute(void *to, int what, CUdeviceptr p) {
  range r;
  READY;
  WANTS(to && yr_find(p, &r));
  CURRENT;
  return attribute(to, what, p, &r);
}

EXPORT CUresult cuPointerGetAttributes(unsigned n, const int *what, void **to, CUdeviceptr p) {
  range r;
  READY;
  WANTS(n && what && to);
  bool is = yr_find(p, &r);
  for (unsigned i = 0; i < n; i++) {
    const int nowhere = -2;
    static const unsigned char bytes[A_POOL + 1] = {[A_CONTEXT] = 8, [A_TYPE] = 4, [A_DEVICE_POINTER] = 8, [A_HOST_POINTER] = 8, [A_SYNC] = 4, [A_ID] = 8, [A_MANAGED] = 4, [A_ORDINAL] = 4,
                                                    [A_LEGACY_IPC] = 4, [A_START] = 8, [A_SIZE] = 8, [A_MAPPED] = 4, [A_HANDLES] = 8, [A_RDMA] = 4, [A_ACCESS] = 4, [A_POOL] = 8};
    WANTS(what[i] > 0 && what[i] <= A_POOL && bytes[what[i]] && to[i]);
    if (is && !attribute(to[i], what[i], p, &r)) continue;
    memset(to[i], 0, bytes[what[i]]);
    if (!is && what[i] == A_ORDINAL) memcpy(to[i], &nowhere, sizeof nowhere);
  }
  return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerSetAttribute(const void *value, int what, CUdeviceptr p) {
  range r;
  READY;
  WANTS(value && what == A_SYNC && yr_find(p, &r));
  return CUDA_SUCCESS; /* copies that are waited for are waited for */
}
