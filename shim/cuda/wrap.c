/* The functions of the driver that go through the library. Signatures are those
 * of the driver's interface; of structures only what is read is declared. */
#include "cuda.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Copies that are smaller are let through: they cost less than a turn. */
enum { BIG = 64 << 10 };

static _Thread_local int inside; /* the driver may call its own functions by their names */

#define EXPORT __attribute__((visibility("default")))
#define REAL(f) ((__typeof__(&f))__atomic_load_n(&real_##f, __ATOMIC_ACQUIRE))
/* WRAP declares a function. Its body calls the driver's by REAL. */
#define WRAP(f, ...)     \
  static void *real_##f; \
  EXPORT CUresult f(__VA_ARGS__)
#define NEEDS(f)                      \
  yc_resolve();                       \
  if (!REAL(f)) return CUDA_ERROR_NOT_SUPPORTED
/* CALL calls the driver's function. */
#define CALL(r, f, ...)     \
  do {                      \
    inside++;               \
    r = REAL(f)(__VA_ARGS__); \
    inside--;               \
  } while (0)
#define PASS(f, ...) \
  if (inside) return REAL(f)(__VA_ARGS__)

/* --- what there is --- */

static CUdevice device = -1;

/* our_device finds the slice's device, wherever the program's environment has the driver put it. */
static CUresult our_device(CUdevice *to) {
  if (!yc_connect()) return CUDA_ERROR_NO_DEVICE;
  if (__atomic_load_n(&device, __ATOMIC_ACQUIRE) < 0) {
    CUresult (*by_bus)(CUdevice *, const char *);
    CUdevice d;
    *(void **)&by_bus = yc_driver("cuDeviceGetByPCIBusId");
    if (!by_bus || by_bus(&d, yc_bus())) return CUDA_ERROR_NO_DEVICE;
    __atomic_store_n(&device, d, __ATOMIC_RELEASE);
  }
  *to = device;
  return CUDA_SUCCESS;
}

static CUresult only_ours(CUdevice d) {
  CUdevice ours;
  CUresult r = our_device(&ours);
  return r ? r : d == ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

WRAP(cuInit, unsigned flags) {
  NEEDS(cuInit);
  CUresult r;
  PASS(cuInit, flags);
  yc_show();
  CALL(r, cuInit, flags);
  yc_shown(!r);
  if (r) return r;
  return yc_connect() ? r : CUDA_ERROR_NO_DEVICE;
}

WRAP(cuDeviceGetCount, int *n) {
  NEEDS(cuDeviceGetCount);
  PASS(cuDeviceGetCount, n);
  CUresult r;
  CUdevice d;
  CALL(r, cuDeviceGetCount, n);
  if (!r) *n = our_device(&d) ? 0 : 1;
  return r;
}

WRAP(cuDeviceGet, CUdevice *d, int ordinal) {
  NEEDS(cuDeviceGet);
  PASS(cuDeviceGet, d, ordinal);
  CUresult r;
  CALL(r, cuDeviceGet, d, 0);
  return r ? r : ordinal ? CUDA_ERROR_INVALID_DEVICE : our_device(d);
}

WRAP(cuDeviceTotalMem_v2, size_t *bytes, CUdevice d) {
  NEEDS(cuDeviceTotalMem_v2);
  PASS(cuDeviceTotalMem_v2, bytes, d);
  uint64_t limit, used;
  CUresult r;
  CALL(r, cuDeviceTotalMem_v2, bytes, d);
  if (r) return r;
  if (!yc_memory(&limit, &used)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  *bytes = limit;
  return r;
}

WRAP(cuMemGetInfo_v2, size_t *free_, size_t *total) {
  NEEDS(cuMemGetInfo_v2);
  PASS(cuMemGetInfo_v2, free_, total);
  uint64_t limit, used;
  CUresult r;
  CALL(r, cuMemGetInfo_v2, free_, total);
  if (r) return r;
  if (!yc_memory(&limit, &used)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  uint64_t left = limit > used ? limit - used : 0;
  if (free_ && (*free_ > left || yc_pages())) *free_ = left; /* what others have makes room */
  if (total) *total = limit; /* the driver, too, takes no place for what is not wanted */
  return r;
}

#define CONTEXT(f, args, d, ...)                       \
  WRAP(f, __VA_ARGS__) {                               \
    NEEDS(f);                                          \
    CUresult r = inside ? CUDA_SUCCESS : only_ours(d); \
    if (!r) CALL(r, f, args);                          \
    return r;                                          \
  }
#define A(...) __VA_ARGS__
CONTEXT(cuCtxCreate, A(c, flags, d), d, CUcontext *c, unsigned flags, CUdevice d)
CONTEXT(cuCtxCreate_v2, A(c, flags, d), d, CUcontext *c, unsigned flags, CUdevice d)
CONTEXT(cuCtxCreate_v3, A(c, params, n, flags, d), d, CUcontext *c, void *params, int n, unsigned flags, CUdevice d)
CONTEXT(cuCtxCreate_v4, A(c, params, flags, d), d, CUcontext *c, void *params, unsigned flags, CUdevice d)
CONTEXT(cuDevicePrimaryCtxRetain, A(c, d), d, CUcontext *c, CUdevice d)

/* --- memory --- */

enum kind { POINTER, ARRAY, MIPMAPS, HANDLE, MAPPING, HEAP, HOST_POOL };

/* What the program has of the device's memory. That of a context ends with it. */
typedef struct held {
  struct held *next;
  enum kind kind;
  uint64_t key, bytes;
  CUcontext context;
  int uses;    /* of a handle: its owners and mappings */
  bool pages;  /* the driver may move it to the host */
  uint64_t of; /* of a mapping: its handle */
  bool imported; /* a handle, of as many bytes as were mapped of it */
} held;

enum { BUCKETS = 4096 };
static held *buckets[BUCKETS];
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER, limits = PTHREAD_MUTEX_INITIALIZER;

/* yc_alone is called in a child of fork: threads that had locks are its parent's. */
void yc_alone(void) {
  pthread_mutex_init(&table, NULL);
  pthread_mutex_init(&limits, NULL);
}

static held **find(enum kind kind, uint64_t key) {
  held **h = buckets + (key * 0x9E3779B97F4A7C15u >> 52);
  while (*h && ((*h)->kind != kind || (*h)->key != key)) h = &(*h)->next;
  return h;
}

static void keep(held *h) {
  held **at = buckets + (h->key * 0x9E3779B97F4A7C15u >> 52);
  h->next = *at;
  *at = h;
}

static CUcontext current(void) {
  CUresult (*get)(CUcontext *);
  CUcontext c = NULL;
  *(void **)&get = yc_driver("cuCtxGetCurrent");
  if (get) get(&c);
  return c;
}

/* made keeps what was allocated of memory that was taken, or gives that back. */
static CUresult made(CUresult r, held *h, enum kind kind, uint64_t key, uint64_t bytes, bool contextual) {
  if (r) {
    yc_give(bytes);
    free(h);
    return r;
  }
  *h = (held){.kind = kind, .key = key, .bytes = bytes, .context = contextual ? current() : NULL, .uses = 1, .pages = h->pages};
  pthread_mutex_lock(&table);
  keep(h);
  pthread_mutex_unlock(&table);
  return r;
}

/* take asks for memory, and makes room to remember it; NULL: there is none. */
static held *take(uint64_t bytes) {
  held *h = malloc(sizeof *h);
  if (!h || !yc_take(bytes)) {
    free(h);
    return NULL;
  }
  h->pages = false;
  return h;
}

/* lift forgets something before it is freed: its address may be another's a moment later. */
static held *lift(enum kind kind, uint64_t key) {
  pthread_mutex_lock(&table);
  held **at = find(kind, key), *h = *at;
  if (h) *at = h->next;
  pthread_mutex_unlock(&table);
  return h;
}

/* freed gives back what was lifted, or keeps it if it was not freed. */
static CUresult freed(CUresult r, held *h) {
  if (h && r) {
    pthread_mutex_lock(&table);
    keep(h);
    pthread_mutex_unlock(&table);
  } else if (h) {
    yc_give(h->bytes);
    free(h);
  }
  return r;
}

/* What memory is moved to the card by: others may hold kernels that wait for the program. */
typedef struct fetcher {
  struct fetcher *next;
  CUcontext context;
  CUstream stream;
  bool used;
} fetcher;
static fetcher *fetchers;

/* context_gone gives back what ended with a context, or what has it now has another. */
static void context_gone(CUcontext c, CUcontext other) {
  uint64_t bytes = 0;
  yc_forget(c);
  pthread_mutex_lock(&table);
  for (fetcher **at = &fetchers; *at;) {
    fetcher *f = *at;
    if (f->context == c) *at = f->next, free(f);
    else at = &f->next;
  }
  for (int i = 0; i < BUCKETS; i++)
    for (held **at = buckets + i; *at;) {
      held *h = *at;
      if (h->context != c || other) {
        if (h->context == c) h->context = other;
        at = &h->next;
        continue;
      }
      bytes += h->bytes;
      *at = h->next;
      free(h);
    }
  pthread_mutex_unlock(&table);
  yc_give(bytes);
}

/* What memory shall be, and where: how the driver's descriptions of it, and of pools, begin. */
typedef struct {
  int type, handles, location, id;
} physical;

static bool at_host(const physical *how) {
  enum { PINNED = 1, HOST = 2, NUMA = 3, OWN_NUMA = 4 };
  return how->type == PINNED && (how->location == HOST || how->location == NUMA || how->location == OWN_NUMA);
}

/* pool_is remembers that a pool is of the host's memory, which does not count. */
static void pool_is(CUmemoryPool pool, bool host) {
  held *new = host ? malloc(sizeof *new) : NULL, *old;
  if (new) *new = (held){.kind = HOST_POOL, .key = (uintptr_t)pool};
  pthread_mutex_lock(&table);
  held **at = find(HOST_POOL, (uintptr_t)pool);
  if ((old = *at)) *at = old->next;
  if (new) keep(new);
  pthread_mutex_unlock(&table);
  free(old);
}

static bool of_host(CUmemoryPool pool) {
  pthread_mutex_lock(&table);
  bool is = *find(HOST_POOL, (uintptr_t)pool);
  pthread_mutex_unlock(&table);
  return is;
}

WRAP(cuMemPoolCreate, CUmemoryPool *pool, const physical *how) {
  NEEDS(cuMemPoolCreate);
  PASS(cuMemPoolCreate, pool, how);
  CUresult r;
  CALL(r, cuMemPoolCreate, pool, how);
  if (!r) pool_is(*pool, at_host(how));
  return r;
}

/* Of CUDA 13: the pool of a place. */
#define POOL_OF(f)                                                                          \
  WRAP(f, CUmemoryPool *pool, const int where[2], int type) {                               \
    NEEDS(f);                                                                               \
    PASS(f, pool, where, type);                                                             \
    CUresult r;                                                                             \
    CALL(r, f, pool, where, type);                                                          \
    if (!r) pool_is(*pool, at_host(&(physical){.type = type, .location = where[0]}));       \
    return r;                                                                               \
  }
POOL_OF(cuMemGetDefaultMemPool)
POOL_OF(cuMemGetMemPool)

/* ALLOCATION is of a function that makes so many bytes at *p; WHERE says whether they are the device's. */
#define ALLOCATION(f, count, args, ...) WHERE(f, true, count, A(args), __VA_ARGS__)
#define WHERE(f, counts, count, args, ...)                            \
  WRAP(f, __VA_ARGS__) {                                              \
    NEEDS(f);                                                         \
    if (inside || !(counts)) return REAL(f)(args);                    \
    uint64_t bytes = count;                                           \
    held *h = take(bytes);                                            \
    if (!h) return CUDA_ERROR_OUT_OF_MEMORY;                          \
    CUresult r;                                                       \
    CALL(r, f, args);                                                 \
    return made(r, h, POINTER, r ? 0 : *p, bytes, true);              \
  }
#define FREE(f, kind, args, ...)                  \
  WRAP(f, __VA_ARGS__) {                          \
    NEEDS(f);                                     \
    PASS(f, args);                                \
    held *h = lift(kind, (uint64_t)p);            \
    CUresult r;                                   \
    CALL(r, f, args);                             \
    return freed(r, h);                           \
  }
ALLOCATION(cuMemAllocManaged, n, A(p, n, flags), CUdeviceptr *p, size_t n, unsigned flags)
ALLOCATION(cuMemAllocAsync, n, A(p, n, s), CUdeviceptr *p, size_t n, CUstream s)
ALLOCATION(cuMemAllocAsync_ptsz, n, A(p, n, s), CUdeviceptr *p, size_t n, CUstream s)
WHERE(cuMemAllocFromPoolAsync, !of_host(pool), n, A(p, n, pool, s), CUdeviceptr *p, size_t n, CUmemoryPool pool, CUstream s)
WHERE(cuMemAllocFromPoolAsync_ptsz, !of_host(pool), n, A(p, n, pool, s), CUdeviceptr *p, size_t n, CUmemoryPool pool, CUstream s)
FREE(cuMemPoolDestroy, HOST_POOL, A(p), CUmemoryPool p)
FREE(cuMemFree_v2, POINTER, A(p), CUdeviceptr p)
FREE(cuMemFreeAsync, POINTER, A(p, s), CUdeviceptr p, CUstream s)
FREE(cuMemFreeAsync_ptsz, POINTER, A(p, s), CUdeviceptr p, CUstream s)

/* managed makes memory that the driver moves to the host when others need the room. */
static CUresult managed(CUdeviceptr *p, size_t n, held *h) {
  enum { EVERYWHERE = 1 };
  CUresult (*make)(CUdeviceptr *, size_t, unsigned), r;
  *(void **)&make = yc_driver("cuMemAllocManaged");
  if (!make) return CUDA_ERROR_NOT_SUPPORTED;
  h->pages = true;
  inside++;
  r = make(p, n, EVERYWHERE);
  inside--;
  return r;
}

WRAP(cuMemAlloc_v2, CUdeviceptr *p, size_t n) {
  NEEDS(cuMemAlloc_v2);
  PASS(cuMemAlloc_v2, p, n);
  held *h = take(n);
  if (!h) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult r;
  if (yc_pages()) r = managed(p, n, h);
  else CALL(r, cuMemAlloc_v2, p, n);
  return made(r, h, POINTER, r ? 0 : *p, n, true);
}

static CUresult managed_rows(CUdeviceptr *p, size_t *pitch, size_t width, size_t height, unsigned element, held *h) {
  enum { PITCH = 512 }; /* no device asks for more */
  if (!pitch || !width || !height || (element != 4 && element != 8 && element != 16)) return CUDA_ERROR_INVALID_VALUE;
  size_t row = (width + PITCH - 1) / PITCH * PITCH;
  if (row < width || row > SIZE_MAX / height) return CUDA_ERROR_OUT_OF_MEMORY;
  *pitch = row;
  return managed(p, row * height, h);
}

static CUstream fetches(CUcontext context, CUresult (*make)(CUstream *, unsigned)) {
  enum { NON_BLOCKING = 1 };
  fetcher *f = fetchers;
  while (f && f->context != context) f = f->next;
  if (!f && (f = calloc(1, sizeof *f))) {
    f->context = context;
    if (make(&f->stream, NON_BLOCKING)) return free(f), NULL; /* then kernels fetch what they come to */
    f->next = fetchers, fetchers = f;
  }
  if (!f) return NULL;
  f->used = true;
  return f->stream;
}

void yc_fetch(void) {
  CUresult (*enter)(CUcontext), (*make)(CUstream *, unsigned), (*fetch)(CUdeviceptr, size_t, CUdevice, CUstream), (*wait)(CUstream);
  *(void **)&enter = yc_driver("cuCtxSetCurrent"), *(void **)&make = yc_driver("cuStreamCreate");
  *(void **)&fetch = yc_driver("cuMemPrefetchAsync"), *(void **)&wait = yc_driver("cuStreamSynchronize");
  if (!enter || !make || !fetch || !wait) return;
  inside++;
  pthread_mutex_lock(&table); /* nothing is freed */
  for (int i = 0; i < BUCKETS; i++)
    for (held *h = buckets[i]; h; h = h->next) {
      if (!h->pages || enter(h->context)) continue;
      CUstream s = fetches(h->context, make);
      if (s) fetch(h->key, h->bytes, device, s); /* or kernels do */
    }
  pthread_mutex_unlock(&table);
  for (fetcher *f = fetchers; f; f = f->next) /* which change where contexts end only */
    if (f->used && !enter(f->context)) wait(f->stream), f->used = false;
  inside--;
}

/* A pitch is known when the memory is there: what it adds is taken then. */
WRAP(cuMemAllocPitch_v2, CUdeviceptr *p, size_t *pitch, size_t width, size_t height, unsigned element) {
  NEEDS(cuMemAllocPitch_v2);
  PASS(cuMemAllocPitch_v2, p, pitch, width, height, element);
  uint64_t bytes = (uint64_t)width * height;
  held *h = take(bytes);
  if (!h) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult r;
  if (yc_pages()) r = managed_rows(p, pitch, width, height, element, h);
  else CALL(r, cuMemAllocPitch_v2, p, pitch, width, height, element);
  uint64_t whole = r ? bytes : (uint64_t)*pitch * height;
  if (whole > bytes && !yc_take(whole - bytes)) {
    CUresult (*release)(CUdeviceptr);
    *(void **)&release = yc_driver("cuMemFree_v2");
    if (release) release(*p);
    whole = bytes, r = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return made(r, h, POINTER, r ? 0 : *p, whole, true);
}

/* Of a function of the first version, whose sizes have 32 bits. */
#define REFUSED(f, args, ...)                                       \
  WRAP(f, __VA_ARGS__) {                                            \
    NEEDS(f);                                                       \
    PASS(f, args);                                                  \
    return CUDA_ERROR_NOT_SUPPORTED; /* no memory that nobody counts */ \
  }
REFUSED(cuMemAlloc, A(p, n), unsigned *p, unsigned n)
REFUSED(cuMemAllocPitch, A(p, pitch, width, height, element), unsigned *p, unsigned *pitch, unsigned width, unsigned height, unsigned element)
REFUSED(cuArrayCreate, A(a, how), CUarray *a, const void *how)
REFUSED(cuArray3DCreate, A(a, how), CUarray *a, const void *how)

typedef struct {
  size_t width, height;
  int format;
  unsigned channels;
} array2;
typedef struct {
  size_t width, height, depth;
  int format;
  unsigned channels, flags;
} array3;

static uint64_t texel(int format) {
  switch (format) {
  case 1: case 8: return 1;
  case 2: case 9: case 16: return 2;
  default: return 4; /* 32 bits, and the packed ones, of which none has more for a channel */
  }
}

static uint64_t array_bytes(const array3 *a, unsigned levels) {
  enum { SPARSE = 0x40, DEFERRED = 0x80, LAYERED = 1 };
  uint64_t all = 0;
  if (a->flags & (SPARSE | DEFERRED)) return 0; /* memory is made and mapped by itself */
  for (unsigned i = 0; i < (levels ? levels : 1) && i < 64; i++) {
    uint64_t w = a->width >> i, h = a->height >> i, d = a->flags & LAYERED ? a->depth : a->depth >> i;
    all += (w ? w : 1) * (h ? h : 1) * (d ? d : 1) * a->channels * texel(a->format);
  }
  return all;
}

#define ARRAY_MADE(f, what, count, args, ...)               \
  WRAP(f, __VA_ARGS__) {                                    \
    NEEDS(f);                                               \
    PASS(f, args);                                          \
    if (!how || !a) return CUDA_ERROR_INVALID_VALUE;        \
    uint64_t bytes = count;                                 \
    held *h = take(bytes);                                  \
    if (!h) return CUDA_ERROR_OUT_OF_MEMORY;                \
    CUresult r;                                             \
    CALL(r, f, args);                                       \
    return made(r, h, what, r ? 0 : (uintptr_t)*a, bytes, true); \
  }
ARRAY_MADE(cuArrayCreate_v2, ARRAY, array_bytes(&((array3){how->width, how->height, 0, how->format, how->channels, 0}), 1), A(a, how), CUarray *a, const array2 *how)
ARRAY_MADE(cuArray3DCreate_v2, ARRAY, array_bytes(how, 1), A(a, how), CUarray *a, const array3 *how)
ARRAY_MADE(cuMipmappedArrayCreate, MIPMAPS, array_bytes(how, levels), A(a, how, levels), CUarray *a, const array3 *how, unsigned levels)
FREE(cuArrayDestroy, ARRAY, A(p), CUarray p)
FREE(cuMipmappedArrayDestroy, MIPMAPS, A(p), CUarray p)

/* What kernels allocate from is the device's memory, and counts from what every context
 * has on. */
WRAP(cuCtxSetLimit, int what, size_t n) {
  NEEDS(cuCtxSetLimit);
  PASS(cuCtxSetLimit, what, n);
  enum { KERNELS_HEAP = 2, USUAL = 8 << 20 };
  CUcontext context = current();
  CUresult r;
  if (what != KERNELS_HEAP || !context) {
    CALL(r, cuCtxSetLimit, what, n);
    return r;
  }
  uint64_t want = n > USUAL ? n - USUAL : 0;
  pthread_mutex_lock(&limits);
  held *h = lift(HEAP, (uintptr_t)context);
  if (!h && (h = calloc(1, sizeof *h))) *h = (held){.kind = HEAP, .key = (uintptr_t)context, .context = context};
  uint64_t more = h && want > h->bytes ? want - h->bytes : 0;
  if (!h || (more && !yc_take(more))) r = CUDA_ERROR_OUT_OF_MEMORY;
  else {
    CALL(r, cuCtxSetLimit, what, n);
    yc_give(r ? more : want < h->bytes ? h->bytes - want : 0);
    if (!r) h->bytes = want;
  }
  if (h) {
    pthread_mutex_lock(&table);
    keep(h);
    pthread_mutex_unlock(&table);
  }
  pthread_mutex_unlock(&limits);
  return r;
}

/* Memory that is mapped by the program: it is there while it has owners or mappings. */
WRAP(cuMemCreate, uint64_t *handle, size_t n, const physical *how, unsigned long long flags) {
  NEEDS(cuMemCreate);
  PASS(cuMemCreate, handle, n, how, flags);
  enum { ON_DEVICE = 1 };
  CUresult r;
  if (!how || at_host(how)) {
    CALL(r, cuMemCreate, handle, n, how, flags);
    return r;
  }
  if (how->location == ON_DEVICE && (r = only_ours(how->id))) return r; /* later drivers have places of a device */
  held *h = take(n);
  if (!h) return CUDA_ERROR_OUT_OF_MEMORY;
  CALL(r, cuMemCreate, handle, n, how, flags);
  return made(r, h, HANDLE, r ? 0 : *handle, n, false);
}

/* Memory that comes from a process (also from this one) may be there for longer than what it
 * was exported by. So it counts for who imports it, too, until that is released and unmapped.
 * How much it is, is known when it is mapped, which nothing can be done with it before. */
WRAP(cuMemImportFromShareableHandle, uint64_t *handle, void *from, int type) {
  NEEDS(cuMemImportFromShareableHandle);
  PASS(cuMemImportFromShareableHandle, handle, from, type);
  CUresult (*what)(void *, uint64_t), r;
  union {
    physical is;
    char room[128];
  } how = {.is = {0}};
  held *new = calloc(1, sizeof *new);
  if (!new) return CUDA_ERROR_OUT_OF_MEMORY;
  *(void **)&what = yc_driver("cuMemGetAllocationPropertiesFromHandle");
  pthread_mutex_lock(&table);
  CALL(r, cuMemImportFromShareableHandle, handle, from, type);
  held *h = r ? NULL : *find(HANDLE, *handle);
  if (h) h->uses++; /* the driver gave one that is there */
  else if (!r && (!what || what(&how, *handle) || !at_host(&how.is))) {
    *new = (held){.kind = HANDLE, .key = *handle, .uses = 1, .imported = true};
    keep(new);
    new = NULL;
  }
  pthread_mutex_unlock(&table);
  free(new);
  return r;
}

/* unuse counts one owner or mapping less; the table is locked. It returns what is to be given back. */
static uint64_t unuse(uint64_t handle) {
  held **at = find(HANDLE, handle), *h = *at;
  if (!h || --h->uses) return 0;
  uint64_t bytes = h->bytes;
  *at = h->next;
  free(h);
  return bytes;
}

WRAP(cuMemRelease, uint64_t handle) {
  NEEDS(cuMemRelease);
  PASS(cuMemRelease, handle);
  CUresult r;
  pthread_mutex_lock(&table); /* a handle may be another's a moment later */
  CALL(r, cuMemRelease, handle);
  uint64_t bytes = r ? 0 : unuse(handle);
  pthread_mutex_unlock(&table);
  yc_give(bytes);
  return r;
}

WRAP(cuMemRetainAllocationHandle, uint64_t *handle, void *at) {
  NEEDS(cuMemRetainAllocationHandle);
  PASS(cuMemRetainAllocationHandle, handle, at);
  CUresult r;
  pthread_mutex_lock(&table);
  CALL(r, cuMemRetainAllocationHandle, handle, at);
  held *h = r ? NULL : *find(HANDLE, *handle);
  if (h) h->uses++;
  pthread_mutex_unlock(&table);
  return r;
}

WRAP(cuMemMap, CUdeviceptr p, size_t n, size_t offset, uint64_t handle, unsigned long long flags) {
  NEEDS(cuMemMap);
  PASS(cuMemMap, p, n, offset, handle, flags);
  held *m = malloc(sizeof *m);
  if (!m) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult r;
  pthread_mutex_lock(&table);
  held *h = *find(HANDLE, handle);
  uint64_t end = (uint64_t)offset + n, more = h && h->imported && end > h->bytes ? end - h->bytes : 0;
  pthread_mutex_unlock(&table); /* who waits for the node may not have it */
  if (more && !yc_take(more)) {
    free(m);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  pthread_mutex_lock(&table);
  CALL(r, cuMemMap, p, n, offset, handle, flags);
  h = r ? NULL : *find(HANDLE, handle);
  if (h) {
    h->uses++, h->bytes += more, more = 0;
    *m = (held){.kind = MAPPING, .key = p, .of = handle};
    keep(m);
  } else free(m);
  pthread_mutex_unlock(&table);
  yc_give(more);
  return r;
}

WRAP(cuMemUnmap, CUdeviceptr p, size_t n) {
  NEEDS(cuMemUnmap);
  PASS(cuMemUnmap, p, n);
  CUresult r;
  uint64_t bytes = 0;
  pthread_mutex_lock(&table);
  CALL(r, cuMemUnmap, p, n);
  for (int i = 0; !r && i < BUCKETS; i++)
    for (held **at = buckets + i; *at;) {
      held *m = *at;
      if (m->kind != MAPPING || m->key < p || m->key - p >= n) {
        at = &m->next;
        continue;
      }
      *at = m->next;
      bytes += unuse(m->of);
      free(m);
      at = buckets + i; /* the handle may have been in it */
    }
  pthread_mutex_unlock(&table);
  yc_give(bytes);
  return r;
}

/* --- contexts that end --- */

#define CONTEXT_ENDS(f)                  \
  WRAP(f, CUcontext context) {           \
    NEEDS(f);                            \
    PASS(f, context);                    \
    CUresult r;                          \
    yc_hold();                           \
    CALL(r, f, context);                 \
    if (!r) context_gone(context, NULL); \
    yc_go_on();                          \
    return r;                            \
  }
CONTEXT_ENDS(cuCtxDestroy)
CONTEXT_ENDS(cuCtxDestroy_v2)

static bool active(CUdevice d) {
  CUresult (*state)(CUdevice, unsigned *, int *);
  unsigned flags;
  int on = 0;
  *(void **)&state = yc_driver("cuDevicePrimaryCtxGetState");
  return state && !state(d, &flags, &on) && on;
}

/* primary_of is a device's primary context, which is held for a moment to know it. */
static CUcontext primary_of(CUdevice d) {
  CUresult (*retain)(CUcontext *, CUdevice), (*release)(CUdevice);
  CUcontext c = NULL;
  *(void **)&retain = yc_driver("cuDevicePrimaryCtxRetain"), *(void **)&release = yc_driver("cuDevicePrimaryCtxRelease_v2");
  if (active(d) && retain && release && !retain(&c, d)) release(d);
  return c;
}

#define PRIMARY_ENDS(f)                                 \
  WRAP(f, CUdevice d) {                                 \
    NEEDS(f);                                           \
    PASS(f, d);                                         \
    CUcontext context = primary_of(d);                  \
    CUresult r;                                         \
    yc_hold();                                          \
    CALL(r, f, d);                                      \
    if (!r && context && !active(d)) context_gone(context, NULL); \
    yc_go_on();                                         \
    return r;                                           \
  }
PRIMARY_ENDS(cuDevicePrimaryCtxRelease)
PRIMARY_ENDS(cuDevicePrimaryCtxRelease_v2)
PRIMARY_ENDS(cuDevicePrimaryCtxReset)
PRIMARY_ENDS(cuDevicePrimaryCtxReset_v2)

/* What a program makes while a green context is current is the primary's, which that holds
 * until it is destroyed; its address may be another's then. */
WRAP(cuGreenCtxDestroy, void *green) {
  NEEDS(cuGreenCtxDestroy);
  PASS(cuGreenCtxDestroy, green);
  CUresult (*as)(CUcontext *, void *), r;
  CUcontext context = NULL, primary = primary_of(device);
  *(void **)&as = yc_driver("cuCtxFromGreenCtx");
  if (!as || as(&context, green)) context = NULL;
  yc_hold();
  CALL(r, cuGreenCtxDestroy, green);
  if (!r && context && primary) context_gone(context, primary);
  if (!r && primary && !active(device)) context_gone(primary, NULL);
  yc_go_on();
  return r;
}

/* --- work --- */

/* GIVES is of a function that gives a stream work, if it is enough to ask for a turn. WORK is
 * one that copies or fills, of which some are done when they return; LAUNCH is no such. */
#define GIVES(f, copies, s, enough, args, ...)                            \
  WRAP(f, __VA_ARGS__) {                                                  \
    NEEDS(f);                                                             \
    CUresult r;                                                           \
    if (inside || !(enough)) return REAL(f)(args);                        \
    if (!yc_begin(s, copies)) return CUDA_ERROR_DEVICE_UNAVAILABLE;       \
    CALL(r, f, args);                                                     \
    yc_end(s, copies);                                                    \
    return r;                                                             \
  }
#define WORK(f, s, enough, args, ...) GIVES(f, true, s, enough, A(args), __VA_ARGS__)
#define LAUNCH(f, s, args, ...) GIVES(f, false, s, true, A(args), __VA_ARGS__)
#define LEGACY ((CUstream)0)
#define PER_THREAD ((CUstream)2)
#define OWN(s) ((s) ? (s) : PER_THREAD)
/* Both forms of a function: its default stream is the device's, or the thread's. */
#define STREAM_WORK(f, suffix, enough, args, ...) \
  WORK(f, s, enough, A(args), __VA_ARGS__)        \
  WORK(f##suffix, OWN(s), enough, A(args), __VA_ARGS__)
#define STREAM_LAUNCH(f, suffix, args, ...) \
  LAUNCH(f, s, A(args), __VA_ARGS__)        \
  LAUNCH(f##suffix, OWN(s), A(args), __VA_ARGS__)
#define DEFAULT_WORK(f, suffix, enough, args, ...) \
  WORK(f, LEGACY, enough, A(args), __VA_ARGS__)    \
  WORK(f##suffix, PER_THREAD, enough, A(args), __VA_ARGS__)

typedef struct {
  unsigned grid[3], block[3], shared;
  CUstream stream;
} launch;
#define OF(c) ((c) ? (c)->stream : LEGACY)
#define GRID unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s

STREAM_LAUNCH(cuLaunchKernel, _ptsz, A(f, gx, gy, gz, bx, by, bz, shared, s, params, extra), CUfunction f, GRID, void **params, void **extra)
STREAM_LAUNCH(cuLaunchCooperativeKernel, _ptsz, A(f, gx, gy, gz, bx, by, bz, shared, s, params), CUfunction f, GRID, void **params)
LAUNCH(cuLaunchKernelEx, OF(c), A(c, f, params, extra), const launch *c, CUfunction f, void **params, void **extra)
LAUNCH(cuLaunchKernelEx_ptsz, OWN(OF(c)), A(c, f, params, extra), const launch *c, CUfunction f, void **params, void **extra)
LAUNCH(cuLaunchCooperativeKernelMultiDevice, LEGACY, A(list, n, flags), void *list, unsigned n, unsigned flags)
STREAM_LAUNCH(cuGraphLaunch, _ptsz, A(g, s), CUgraphExec g, CUstream s)
LAUNCH(cuLaunch, LEGACY, A(f), CUfunction f)
LAUNCH(cuLaunchGrid, LEGACY, A(f, w, h), CUfunction f, int w, int h)
LAUNCH(cuLaunchGridAsync, s, A(f, w, h, s), CUfunction f, int w, int h, CUstream s)

DEFAULT_WORK(cuMemcpy, _ptds, n >= BIG, A(to, from, n), CUdeviceptr to, CUdeviceptr from, size_t n)
DEFAULT_WORK(cuMemcpyHtoD_v2, _ptds, n >= BIG, A(to, from, n), CUdeviceptr to, const void *from, size_t n)
DEFAULT_WORK(cuMemcpyDtoH_v2, _ptds, n >= BIG, A(to, from, n), void *to, CUdeviceptr from, size_t n)
DEFAULT_WORK(cuMemcpyDtoD_v2, _ptds, n >= BIG, A(to, from, n), CUdeviceptr to, CUdeviceptr from, size_t n)
STREAM_WORK(cuMemcpyAsync, _ptsz, n >= BIG, A(to, from, n, s), CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s)
STREAM_WORK(cuMemcpyHtoDAsync_v2, _ptsz, n >= BIG, A(to, from, n, s), CUdeviceptr to, const void *from, size_t n, CUstream s)
STREAM_WORK(cuMemcpyDtoHAsync_v2, _ptsz, n >= BIG, A(to, from, n, s), void *to, CUdeviceptr from, size_t n, CUstream s)
STREAM_WORK(cuMemcpyDtoDAsync_v2, _ptsz, n >= BIG, A(to, from, n, s), CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s)
DEFAULT_WORK(cuMemcpy2D_v2, _ptds, true, A(how), const void *how)
DEFAULT_WORK(cuMemcpy2DUnaligned_v2, _ptds, true, A(how), const void *how)
DEFAULT_WORK(cuMemcpy3D_v2, _ptds, true, A(how), const void *how)
STREAM_WORK(cuMemcpy2DAsync_v2, _ptsz, true, A(how, s), const void *how, CUstream s)
STREAM_WORK(cuMemcpy3DAsync_v2, _ptsz, true, A(how, s), const void *how, CUstream s)
DEFAULT_WORK(cuMemcpyPeer, _ptds, n >= BIG, A(to, a, from, b, n), CUdeviceptr to, CUcontext a, CUdeviceptr from, CUcontext b, size_t n)
STREAM_WORK(cuMemcpyPeerAsync, _ptsz, n >= BIG, A(to, a, from, b, n, s), CUdeviceptr to, CUcontext a, CUdeviceptr from, CUcontext b, size_t n, CUstream s)
DEFAULT_WORK(cuMemcpy3DPeer, _ptds, true, A(how), const void *how)
STREAM_WORK(cuMemcpy3DPeerAsync, _ptsz, true, A(how, s), const void *how, CUstream s)
DEFAULT_WORK(cuMemcpyHtoA_v2, _ptds, n >= BIG, A(to, at, from, n), CUarray to, size_t at, const void *from, size_t n)
DEFAULT_WORK(cuMemcpyAtoH_v2, _ptds, n >= BIG, A(to, from, at, n), void *to, CUarray from, size_t at, size_t n)
DEFAULT_WORK(cuMemcpyDtoA_v2, _ptds, n >= BIG, A(to, at, from, n), CUarray to, size_t at, CUdeviceptr from, size_t n)
DEFAULT_WORK(cuMemcpyAtoD_v2, _ptds, n >= BIG, A(to, from, at, n), CUdeviceptr to, CUarray from, size_t at, size_t n)
DEFAULT_WORK(cuMemcpyAtoA_v2, _ptds, n >= BIG, A(to, into, from, at, n), CUarray to, size_t into, CUarray from, size_t at, size_t n)
STREAM_WORK(cuMemcpyHtoAAsync_v2, _ptsz, n >= BIG, A(to, at, from, n, s), CUarray to, size_t at, const void *from, size_t n, CUstream s)
STREAM_WORK(cuMemcpyAtoHAsync_v2, _ptsz, n >= BIG, A(to, from, at, n, s), void *to, CUarray from, size_t at, size_t n, CUstream s)
#define LISTS const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes, size_t n, const void *how, const size_t *of, size_t hows
STREAM_WORK(cuMemcpyBatchAsync, _ptsz, true, A(to, from, sizes, n, how, of, hows, bad, s), LISTS, size_t *bad, CUstream s)
STREAM_WORK(cuMemcpyBatchAsync_v2, _ptsz, true, A(to, from, sizes, n, how, of, hows, s), LISTS, CUstream s)
STREAM_WORK(cuMemcpy3DBatchAsync, _ptsz, true, A(n, how, bad, flags, s), size_t n, const void *how, size_t *bad, unsigned long long flags, CUstream s)
STREAM_WORK(cuMemcpy3DBatchAsync_v2, _ptsz, true, A(n, how, flags, s), size_t n, const void *how, unsigned long long flags, CUstream s)
STREAM_WORK(cuMemcpyWithAttributesAsync, _ptsz, n >= BIG, A(to, from, n, how, s), CUdeviceptr to, CUdeviceptr from, size_t n, const void *how, CUstream s)
STREAM_WORK(cuMemcpy3DWithAttributesAsync, _ptsz, true, A(how, flags, s), const void *how, unsigned long long flags, CUstream s)
typedef struct {
  int type, id;
} location;
STREAM_WORK(cuMemPrefetchAsync, _ptsz, n >= BIG, A(p, n, where, s), CUdeviceptr p, size_t n, CUdevice where, CUstream s)
STREAM_WORK(cuMemPrefetchAsync_v2, _ptsz, n >= BIG, A(p, n, where, flags, s), CUdeviceptr p, size_t n, location where, unsigned flags, CUstream s)
#define RANGES CUdeviceptr *p, size_t *sizes, size_t n
STREAM_WORK(cuMemPrefetchBatchAsync, _ptsz, true, A(p, sizes, n, where, of, wheres, flags, s), RANGES, location *where, size_t *of, size_t wheres, unsigned long long flags, CUstream s)
STREAM_WORK(cuMemDiscardAndPrefetchBatchAsync, _ptsz, true, A(p, sizes, n, where, of, wheres, flags, s), RANGES, location *where, size_t *of, size_t wheres, unsigned long long flags, CUstream s)
STREAM_WORK(cuMemBatchDecompressAsync, _ptsz, true, A(list, n, flags, bad, s), void *list, size_t n, unsigned flags, size_t *bad, CUstream s)
DEFAULT_WORK(cuMemsetD8_v2, _ptds, n >= BIG, A(to, v, n), CUdeviceptr to, unsigned char v, size_t n)
DEFAULT_WORK(cuMemsetD16_v2, _ptds, n >= BIG / 2, A(to, v, n), CUdeviceptr to, unsigned short v, size_t n)
DEFAULT_WORK(cuMemsetD32_v2, _ptds, n >= BIG / 4, A(to, v, n), CUdeviceptr to, unsigned v, size_t n)
#define ROWS(bits, type)                                                                                                             \
  DEFAULT_WORK(cuMemsetD2D##bits##_v2, _ptds, true, A(to, pitch, v, w, h), CUdeviceptr to, size_t pitch, type v, size_t w, size_t h) \
  STREAM_WORK(cuMemsetD2D##bits##Async, _ptsz, true, A(to, pitch, v, w, h, s), CUdeviceptr to, size_t pitch, type v, size_t w, size_t h, CUstream s)
ROWS(8, unsigned char)
ROWS(16, unsigned short)
ROWS(32, unsigned)
STREAM_WORK(cuMemsetD8Async, _ptsz, n >= BIG, A(to, v, n, s), CUdeviceptr to, unsigned char v, size_t n, CUstream s)
STREAM_WORK(cuMemsetD16Async, _ptsz, n >= BIG / 2, A(to, v, n, s), CUdeviceptr to, unsigned short v, size_t n, CUstream s)
STREAM_WORK(cuMemsetD32Async, _ptsz, n >= BIG / 4, A(to, v, n, s), CUdeviceptr to, unsigned v, size_t n, CUstream s)

/* --- how functions are found --- */

WRAP(cuGetProcAddress, const char *name, void **f, int version, uint64_t flags) {
  NEEDS(cuGetProcAddress);
  CUresult r;
  CALL(r, cuGetProcAddress, name, f, version, flags);
  return inside ? r : yc_proc_address(r, name, f, version, flags);
}

WRAP(cuGetProcAddress_v2, const char *name, void **f, int version, uint64_t flags, int *status) {
  NEEDS(cuGetProcAddress_v2);
  CUresult r;
  CALL(r, cuGetProcAddress_v2, name, f, version, flags, status);
  return inside ? r : yc_proc_address(r, name, f, version, flags);
}

/* A pool keeps what programs have freed up to a threshold, and that is counted no
 * more: so it keeps nothing beyond the next wait for the device. */
WRAP(cuMemPoolSetAttribute, CUmemoryPool pool, int what, void *value) {
  NEEDS(cuMemPoolSetAttribute);
  enum { THRESHOLD = 4 };
  uint64_t none = 0;
  return REAL(cuMemPoolSetAttribute)(pool, what, what == THRESHOLD && value ? &none : value);
}

#define ROW(f, base, own) {#f, base, (void *)f, &real_##f, own}
#define PLAIN(f) ROW(f, #f, false)
#define V2(f) ROW(f##_v2, #f, false)
#define STREAMS(f) ROW(f, #f, false), ROW(f##_ptsz, #f, true)
#define STREAMS2(f) ROW(f##_v2, #f, false), ROW(f##_v2_ptsz, #f, true)
#define DEFAULTS2(f) ROW(f##_v2, #f, false), ROW(f##_v2_ptds, #f, true)
/* Of those whose first forms are not the last, only the address says which is meant. */
#define EXACT(f) ROW(f, "", false)
#define EXACTS(f) ROW(f, "", false), ROW(f##_ptsz, "", true)

const yc_row yc_rows[] = {
    PLAIN(cuInit), PLAIN(cuDeviceGetCount), PLAIN(cuDeviceGet), V2(cuDeviceTotalMem), V2(cuMemGetInfo),
    EXACT(cuCtxCreate), EXACT(cuCtxCreate_v2), EXACT(cuCtxCreate_v3), EXACT(cuCtxCreate_v4), PLAIN(cuDevicePrimaryCtxRetain),
    V2(cuMemAlloc), EXACT(cuMemAlloc), V2(cuMemAllocPitch), EXACT(cuMemAllocPitch), PLAIN(cuMemAllocManaged), STREAMS(cuMemAllocAsync), STREAMS(cuMemAllocFromPoolAsync),
    V2(cuMemFree), STREAMS(cuMemFreeAsync),
    V2(cuArrayCreate), EXACT(cuArrayCreate), V2(cuArray3DCreate), EXACT(cuArray3DCreate), PLAIN(cuMipmappedArrayCreate), PLAIN(cuArrayDestroy), PLAIN(cuMipmappedArrayDestroy),
    PLAIN(cuCtxSetLimit), PLAIN(cuMemCreate), PLAIN(cuMemRelease), PLAIN(cuMemRetainAllocationHandle), PLAIN(cuMemImportFromShareableHandle), PLAIN(cuMemMap), PLAIN(cuMemUnmap),
    V2(cuCtxDestroy), EXACT(cuCtxDestroy), V2(cuDevicePrimaryCtxRelease), EXACT(cuDevicePrimaryCtxRelease), V2(cuDevicePrimaryCtxReset), EXACT(cuDevicePrimaryCtxReset), PLAIN(cuGreenCtxDestroy),
    STREAMS(cuLaunchKernel), STREAMS(cuLaunchCooperativeKernel), STREAMS(cuLaunchKernelEx), PLAIN(cuLaunchCooperativeKernelMultiDevice), STREAMS(cuGraphLaunch),
    PLAIN(cuLaunch), PLAIN(cuLaunchGrid), PLAIN(cuLaunchGridAsync),
    PLAIN(cuMemcpy), ROW(cuMemcpy_ptds, "cuMemcpy", true), DEFAULTS2(cuMemcpyHtoD), DEFAULTS2(cuMemcpyDtoH), DEFAULTS2(cuMemcpyDtoD),
    STREAMS(cuMemcpyAsync), STREAMS2(cuMemcpyHtoDAsync), STREAMS2(cuMemcpyDtoHAsync), STREAMS2(cuMemcpyDtoDAsync),
    DEFAULTS2(cuMemcpy2D), DEFAULTS2(cuMemcpy2DUnaligned), DEFAULTS2(cuMemcpy3D), STREAMS2(cuMemcpy2DAsync), STREAMS2(cuMemcpy3DAsync),
    DEFAULTS2(cuMemsetD8), DEFAULTS2(cuMemsetD16), DEFAULTS2(cuMemsetD32), STREAMS(cuMemsetD8Async), STREAMS(cuMemsetD16Async), STREAMS(cuMemsetD32Async),
    DEFAULTS2(cuMemsetD2D8), DEFAULTS2(cuMemsetD2D16), DEFAULTS2(cuMemsetD2D32), STREAMS(cuMemsetD2D8Async), STREAMS(cuMemsetD2D16Async), STREAMS(cuMemsetD2D32Async),
    PLAIN(cuMemcpyPeer), ROW(cuMemcpyPeer_ptds, "cuMemcpyPeer", true), STREAMS(cuMemcpyPeerAsync), PLAIN(cuMemcpy3DPeer), ROW(cuMemcpy3DPeer_ptds, "cuMemcpy3DPeer", true), STREAMS(cuMemcpy3DPeerAsync),
    DEFAULTS2(cuMemcpyHtoA), DEFAULTS2(cuMemcpyAtoH), DEFAULTS2(cuMemcpyDtoA), DEFAULTS2(cuMemcpyAtoD), DEFAULTS2(cuMemcpyAtoA), STREAMS2(cuMemcpyHtoAAsync), STREAMS2(cuMemcpyAtoHAsync),
    EXACTS(cuMemcpyBatchAsync), EXACTS(cuMemcpyBatchAsync_v2), EXACTS(cuMemcpy3DBatchAsync), EXACTS(cuMemcpy3DBatchAsync_v2), STREAMS(cuMemcpyWithAttributesAsync), STREAMS(cuMemcpy3DWithAttributesAsync), EXACTS(cuMemPrefetchAsync), EXACTS(cuMemPrefetchAsync_v2), STREAMS(cuMemPrefetchBatchAsync), STREAMS(cuMemDiscardAndPrefetchBatchAsync), STREAMS(cuMemBatchDecompressAsync),
    PLAIN(cuMemPoolCreate), PLAIN(cuMemPoolDestroy), PLAIN(cuMemGetDefaultMemPool), PLAIN(cuMemGetMemPool), PLAIN(cuMemPoolSetAttribute), EXACT(cuGetProcAddress), EXACT(cuGetProcAddress_v2),
};
const size_t yc_rows_n = sizeof yc_rows / sizeof *yc_rows;
