/* The functions of the driver that go through the library. Signatures are those
 * of the driver's interface; of structures only what is read is declared. */
#include "wrap.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

_Thread_local int yc_inside;

/* --- what there is --- */

static CUresult only_ours(CUdevice d) {
  if (!yc_connect()) return CUDA_ERROR_NO_DEVICE;
  return yc_of_device(d) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
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
  CALL(r, cuDeviceGetCount, n);
  if (r) return r;
  const int most = yc_connect() ? yc_count() : 0;
  for (*n = 0; *n < most && yc_device(yc_at(*n)) >= 0; ++*n) {}
  return r;
}

WRAP(cuDeviceGet, CUdevice *d, int ordinal) {
  NEEDS(cuDeviceGet);
  PASS(cuDeviceGet, d, ordinal);
  CUresult r;
  CALL(r, cuDeviceGet, d, 0);
  if (r) return r;
  if (!yc_connect()) return CUDA_ERROR_NO_DEVICE;
  yc_card *card = yc_at(ordinal);
  *d = card ? yc_device(card) : -1;
  return *d >= 0 ? r : card ? CUDA_ERROR_NO_DEVICE : CUDA_ERROR_INVALID_DEVICE;
}

WRAP(cuDeviceTotalMem_v2, size_t *bytes, CUdevice d) {
  NEEDS(cuDeviceTotalMem_v2);
  PASS(cuDeviceTotalMem_v2, bytes, d);
  uint64_t limit, used;
  CUresult r;
  CALL(r, cuDeviceTotalMem_v2, bytes, d);
  if (r || (r = only_ours(d))) return r;
  if (!yc_memory(yc_of_device(d), &limit, &used)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
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
  yc_card *card = yc_here();
  if (!yc_memory(card, &limit, &used)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  uint64_t left = limit > used ? limit - used : 0;
  if (free_ && (*free_ > left || yc_pages(card))) *free_ = left; /* what others have makes room */
  if (total) *total = limit; /* the driver, too, takes no place for what is not wanted */
  return r;
}

#define CONTEXT(f, args, d, ...)                       \
  WRAP(f, __VA_ARGS__) {                               \
    NEEDS(f);                                          \
    CUresult r = yc_inside ? CUDA_SUCCESS : only_ours(d); \
    if (!r) CALL(r, f, args);                          \
    if (!r && !yc_inside) yc_learn(*c, d, false);      \
    return r;                                          \
  }
CONTEXT(cuCtxCreate, A(c, flags, d), d, CUcontext *c, unsigned flags, CUdevice d)
CONTEXT(cuCtxCreate_v2, A(c, flags, d), d, CUcontext *c, unsigned flags, CUdevice d)
CONTEXT(cuCtxCreate_v3, A(c, params, n, flags, d), d, CUcontext *c, void *params, int n, unsigned flags, CUdevice d)
CONTEXT(cuCtxCreate_v4, A(c, params, flags, d), d, CUcontext *c, void *params, unsigned flags, CUdevice d)
CONTEXT(cuDevicePrimaryCtxRetain, A(c, d), d, CUcontext *c, CUdevice d)

/* --- memory --- */

enum kind { POINTER, ARRAY, MIPMAPS, HANDLE, MAPPING, HEAP, POOL };

/* What the program has of the device's memory. That of a context ends with it. */
typedef struct held {
  struct held *next;
  enum kind kind;
  uint64_t key, bytes;
  yc_card *card; /* whose memory it is; of a pool of the host's: NULL */
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

/* made keeps what was allocated of memory that was taken, which ends with a context, or gives that back. */
static CUresult made(CUresult r, held *h, enum kind kind, uint64_t key, uint64_t bytes, CUcontext context) {
  if (r) {
    yc_give(h->card, bytes);
    free(h);
    return r;
  }
  *h = (held){.kind = kind, .key = key, .bytes = bytes, .card = h->card, .context = context, .uses = 1, .pages = h->pages};
  pthread_mutex_lock(&table);
  keep(h);
  pthread_mutex_unlock(&table);
  return r;
}

/* take asks for memory of a card, and makes room to remember it; NULL: there is none. */
static held *take(yc_card *card, uint64_t bytes) {
  held *h = malloc(sizeof *h);
  if (!h || !yc_take(card, bytes)) {
    free(h);
    return NULL;
  }
  h->card = card, h->pages = false;
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
    yc_give(h->card, h->bytes);
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
static fetcher *fetchers[YC_CARDS]; /* of each card; its lock is held by who changes them or waits for them */

/* give_all gives back what was taken from the table. */
static void give_all(held *gone) {
  for (held *next; gone; gone = next) {
    next = gone->next;
    yc_give(gone->card, gone->bytes);
    free(gone);
  }
}

/* context_gone gives back what ended with a context of a card, or what has it now has another. */
static void context_gone(yc_card *card, CUcontext c, CUcontext other) {
  held *gone = NULL;
  yc_forget(card, c);
  pthread_mutex_lock(&table);
  for (fetcher **at = fetchers + yc_number(card); *at;) {
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
      *at = h->next;
      h->next = gone, gone = h;
    }
  pthread_mutex_unlock(&table);
  give_all(gone);
}

/* What memory shall be, and where: how the driver's descriptions of it, and of pools, begin. */
typedef struct {
  int type, handles, location, id;
} physical;

static bool at_host(const physical *how) {
  enum { PINNED = 1, HOST = 2, NUMA = 3, OWN_NUMA = 4 };
  return how->type == PINNED && (how->location == HOST || how->location == NUMA || how->location == OWN_NUMA);
}

/* place_of is the card that memory of this description is of; NULL: the host's. */
static yc_card *place_of(const physical *how) {
  enum { ON_DEVICE = 1 };
  if (at_host(how)) return NULL;
  yc_card *card = how->location == ON_DEVICE ? yc_of_device(how->id) : NULL; /* later drivers have places of a device */
  return card ? card : yc_here();
}

/* pool_is remembers whose memory a pool is of. */
static void pool_is(CUmemoryPool pool, yc_card *card) {
  held *new = malloc(sizeof *new), *old;
  if (new) *new = (held){.kind = POOL, .key = (uintptr_t)pool, .card = card};
  pthread_mutex_lock(&table);
  held **at = find(POOL, (uintptr_t)pool);
  if ((old = *at)) *at = old->next;
  if (new) keep(new);
  pthread_mutex_unlock(&table);
  free(old);
}

/* pool_of is the card whose memory a pool is of; NULL: it is the host's, which does not count. */
static yc_card *pool_of(CUmemoryPool pool, CUstream s) {
  pthread_mutex_lock(&table);
  held *h = *find(POOL, (uintptr_t)pool);
  yc_card *card = h ? h->card : NULL;
  pthread_mutex_unlock(&table);
  return h ? card : yc_of_stream(s);
}

WRAP(cuMemPoolCreate, CUmemoryPool *pool, const physical *how) {
  NEEDS(cuMemPoolCreate);
  PASS(cuMemPoolCreate, pool, how);
  CUresult r;
  CALL(r, cuMemPoolCreate, pool, how);
  if (!r) pool_is(*pool, place_of(how));
  return r;
}

#define POOL_OF(f, place, args, ...)    \
  WRAP(f, CUmemoryPool *pool, __VA_ARGS__) { \
    NEEDS(f);                           \
    PASS(f, pool, args);                \
    CUresult r;                         \
    CALL(r, f, pool, args);             \
    if (!r) pool_is(*pool, place);      \
    return r;                           \
  }
POOL_OF(cuDeviceGetDefaultMemPool, place_of(&(physical){.location = 1, .id = d}), A(d), CUdevice d)
POOL_OF(cuDeviceGetMemPool, place_of(&(physical){.location = 1, .id = d}), A(d), CUdevice d)
/* Of CUDA 13: the pool of a place. */
#define POOL_AT(f) POOL_OF(f, place_of(&(physical){type, 0, where[0], where[1]}), A(where, type), const int where[2], int type)
POOL_AT(cuMemGetDefaultMemPool)
POOL_AT(cuMemGetMemPool)

/* context_on is a stream's context, if it is of a card: what a stream allocates ends with it. */
static CUcontext context_on(yc_card *card, CUstream s) {
  CUcontext c = yc_context_of(s);
  return yc_of_context(c) == card ? c : NULL;
}

/* ALLOCATION is of a function that makes so many bytes at *p; whose says which card's they are,
 * NULL: none's, and with which context they end. */
#define ALLOCATION(f, whose, with, count, args, ...)                  \
  WRAP(f, __VA_ARGS__) {                                              \
    NEEDS(f);                                                         \
    PASS(f, args);                                                    \
    yc_card *card = whose;                                            \
    CUresult r;                                                       \
    uint64_t bytes = count;                                           \
    held *h = card ? take(card, bytes) : NULL;                        \
    if (card && !h) return CUDA_ERROR_OUT_OF_MEMORY;                  \
    CALL(r, f, args);                                                 \
    return h ? made(r, h, POINTER, r ? 0 : *p, bytes, with) : r;      \
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
ALLOCATION(cuMemAllocManaged, yc_here(), current(), n, A(p, n, flags), CUdeviceptr *p, size_t n, unsigned flags)
ALLOCATION(cuMemAllocAsync, yc_of_stream(s), context_on(card, s), n, A(p, n, s), CUdeviceptr *p, size_t n, CUstream s)
ALLOCATION(cuMemAllocAsync_ptsz, yc_of_stream(s), context_on(card, s), n, A(p, n, s), CUdeviceptr *p, size_t n, CUstream s)
ALLOCATION(cuMemAllocFromPoolAsync, pool_of(pool, s), context_on(card, s), n, A(p, n, pool, s), CUdeviceptr *p, size_t n, CUmemoryPool pool, CUstream s)
ALLOCATION(cuMemAllocFromPoolAsync_ptsz, pool_of(pool, s), context_on(card, s), n, A(p, n, pool, s), CUdeviceptr *p, size_t n, CUmemoryPool pool, CUstream s)
FREE(cuMemPoolDestroy, POOL, A(p), CUmemoryPool p)
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
  yc_inside++;
  r = make(p, n, EVERYWHERE);
  yc_inside--;
  return r;
}

WRAP(cuMemAlloc_v2, CUdeviceptr *p, size_t n) {
  NEEDS(cuMemAlloc_v2);
  PASS(cuMemAlloc_v2, p, n);
  held *h = take(yc_here(), n);
  if (!h) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult r;
  if (yc_pages(h->card)) r = managed(p, n, h);
  else CALL(r, cuMemAlloc_v2, p, n);
  return made(r, h, POINTER, r ? 0 : *p, n, current());
}

static CUresult managed_rows(CUdeviceptr *p, size_t *pitch, size_t width, size_t height, unsigned element, held *h) {
  enum { PITCH = 512 }; /* no device asks for more */
  if (!pitch || !width || !height || (element != 4 && element != 8 && element != 16)) return CUDA_ERROR_INVALID_VALUE;
  size_t row = (width + PITCH - 1) / PITCH * PITCH;
  if (row < width || row > SIZE_MAX / height) return CUDA_ERROR_OUT_OF_MEMORY;
  *pitch = row;
  return managed(p, row * height, h);
}

static CUstream fetches(yc_card *card, CUcontext context, CUresult (*make)(CUstream *, unsigned)) {
  enum { NON_BLOCKING = 1 };
  fetcher **all = fetchers + yc_number(card), *f = *all;
  while (f && f->context != context) f = f->next;
  if (!f && (f = calloc(1, sizeof *f))) {
    f->context = context;
    if (make(&f->stream, NON_BLOCKING)) return free(f), NULL; /* then kernels fetch what they come to */
    f->next = *all, *all = f;
  }
  if (!f) return NULL;
  f->used = true;
  return f->stream;
}

void yc_fetch(yc_card *card) {
  CUresult (*enter)(CUcontext), (*make)(CUstream *, unsigned), (*fetch)(CUdeviceptr, size_t, CUdevice, CUstream), (*wait)(CUstream);
  *(void **)&enter = yc_driver("cuCtxSetCurrent"), *(void **)&make = yc_driver("cuStreamCreate");
  *(void **)&fetch = yc_driver("cuMemPrefetchAsync"), *(void **)&wait = yc_driver("cuStreamSynchronize");
  if (!enter || !make || !fetch || !wait) return;
  yc_inside++;
  pthread_mutex_lock(&table); /* nothing is freed */
  for (int i = 0; i < BUCKETS; i++)
    for (held *h = buckets[i]; h; h = h->next) {
      if (!h->pages || h->card != card || enter(h->context)) continue;
      CUstream s = fetches(card, h->context, make);
      if (s) fetch(h->key, h->bytes, yc_device(card), s); /* or kernels do */
    }
  pthread_mutex_unlock(&table);
  for (fetcher *f = fetchers[yc_number(card)]; f; f = f->next)
    if (f->used && !enter(f->context)) wait(f->stream), f->used = false;
  yc_inside--;
}

/* A pitch is known when the memory is there: what it adds is taken then. */
WRAP(cuMemAllocPitch_v2, CUdeviceptr *p, size_t *pitch, size_t width, size_t height, unsigned element) {
  NEEDS(cuMemAllocPitch_v2);
  PASS(cuMemAllocPitch_v2, p, pitch, width, height, element);
  uint64_t bytes = (uint64_t)width * height;
  held *h = take(yc_here(), bytes);
  if (!h) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult r;
  if (yc_pages(h->card)) r = managed_rows(p, pitch, width, height, element, h);
  else CALL(r, cuMemAllocPitch_v2, p, pitch, width, height, element);
  uint64_t whole = r ? bytes : (uint64_t)*pitch * height;
  if (whole > bytes && !yc_take(h->card, whole - bytes)) {
    CUresult (*release)(CUdeviceptr);
    *(void **)&release = yc_driver("cuMemFree_v2");
    if (release) release(*p);
    whole = bytes, r = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return made(r, h, POINTER, r ? 0 : *p, whole, current());
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
    held *h = take(yc_here(), bytes);                       \
    if (!h) return CUDA_ERROR_OUT_OF_MEMORY;                \
    CUresult r;                                             \
    CALL(r, f, args);                                       \
    return made(r, h, what, r ? 0 : (uintptr_t)*a, bytes, current()); \
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
  if (!h && (h = calloc(1, sizeof *h))) *h = (held){.kind = HEAP, .key = (uintptr_t)context, .card = yc_here(), .context = context};
  uint64_t more = h && want > h->bytes ? want - h->bytes : 0;
  if (!h || (more && !yc_take(h->card, more))) r = CUDA_ERROR_OUT_OF_MEMORY;
  else {
    CALL(r, cuCtxSetLimit, what, n);
    yc_give(h->card, r ? more : want < h->bytes ? h->bytes - want : 0);
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
  if (how->location == ON_DEVICE && (r = only_ours(how->id))) return r;
  held *h = take(place_of(how), n);
  if (!h) return CUDA_ERROR_OUT_OF_MEMORY;
  CALL(r, cuMemCreate, handle, n, how, flags);
  return made(r, h, HANDLE, r ? 0 : *handle, n, NULL);
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
    *new = (held){.kind = HANDLE, .key = *handle, .card = place_of(&how.is), .uses = 1, .imported = true};
    keep(new);
    new = NULL;
  }
  pthread_mutex_unlock(&table);
  free(new);
  return r;
}

/* unuse counts one owner or mapping less; the table is locked. What is to be given back then is put to what is gone. */
static void unuse(uint64_t handle, held **gone) {
  held **at = find(HANDLE, handle), *h = *at;
  if (!h || --h->uses) return;
  *at = h->next;
  h->next = *gone, *gone = h;
}

WRAP(cuMemRelease, uint64_t handle) {
  NEEDS(cuMemRelease);
  PASS(cuMemRelease, handle);
  CUresult r;
  pthread_mutex_lock(&table); /* a handle may be another's a moment later */
  CALL(r, cuMemRelease, handle);
  held *gone = NULL;
  if (!r) unuse(handle, &gone);
  pthread_mutex_unlock(&table);
  give_all(gone);
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
  yc_card *card = h ? h->card : NULL;
  pthread_mutex_unlock(&table); /* who waits for the node may not have it */
  if (more && !yc_take(card, more)) {
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
  if (more) yc_give(card, more);
  return r;
}

WRAP(cuMemUnmap, CUdeviceptr p, size_t n) {
  NEEDS(cuMemUnmap);
  PASS(cuMemUnmap, p, n);
  CUresult r;
  held *gone = NULL;
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
      unuse(m->of, &gone);
      free(m);
      at = buckets + i; /* the handle may have been in it */
    }
  pthread_mutex_unlock(&table);
  give_all(gone);
  return r;
}

/* --- contexts that end --- */

#define CONTEXT_ENDS(f)                  \
  WRAP(f, CUcontext context) {           \
    NEEDS(f);                            \
    PASS(f, context);                    \
    yc_card *card = yc_of_context(context);    \
    CUresult r;                                \
    yc_hold(card);                             \
    CALL(r, f, context);                       \
    if (!r) context_gone(card, context, NULL); \
    yc_go_on(card);                            \
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
    yc_card *card = yc_of_context(context);             \
    CUresult r;                                         \
    yc_hold(card);                                      \
    CALL(r, f, d);                                      \
    if (!r && context && !active(d)) context_gone(card, context, NULL); \
    yc_go_on(card);                                     \
    return r;                                           \
  }
PRIMARY_ENDS(cuDevicePrimaryCtxRelease)
PRIMARY_ENDS(cuDevicePrimaryCtxRelease_v2)
PRIMARY_ENDS(cuDevicePrimaryCtxReset)
PRIMARY_ENDS(cuDevicePrimaryCtxReset_v2)

/* What a program makes while a green context is current is the primary's, which that holds
 * until it is destroyed; its address may be another's then. */
WRAP(cuGreenCtxCreate, void **green, void *what, CUdevice d, unsigned flags) {
  NEEDS(cuGreenCtxCreate);
  PASS(cuGreenCtxCreate, green, what, d, flags);
  CUresult (*as)(CUcontext *, void *), r = only_ours(d);
  CUcontext context;
  if (!r) CALL(r, cuGreenCtxCreate, green, what, d, flags);
  *(void **)&as = yc_driver("cuCtxFromGreenCtx");
  if (!r && as && !as(&context, *green)) yc_learn(context, d, true);
  return r;
}

WRAP(cuGreenCtxDestroy, void *green) {
  NEEDS(cuGreenCtxDestroy);
  PASS(cuGreenCtxDestroy, green);
  CUresult (*as)(CUcontext *, void *), r;
  CUcontext context = NULL;
  *(void **)&as = yc_driver("cuCtxFromGreenCtx");
  if (!as || as(&context, green)) context = NULL;
  yc_card *card = yc_of_context(context);
  const CUdevice device = yc_device(card);
  CUcontext primary = primary_of(device);
  yc_hold(card);
  CALL(r, cuGreenCtxDestroy, green);
  if (!r && context && primary) context_gone(card, context, primary);
  if (!r && primary && !active(device)) context_gone(card, primary, NULL);
  yc_go_on(card);
  return r;
}

/* --- how functions are found --- */

WRAP(cuGetProcAddress, const char *name, void **f, int version, uint64_t flags) {
  NEEDS(cuGetProcAddress);
  CUresult r;
  CALL(r, cuGetProcAddress, name, f, version, flags);
  return yc_inside ? r : yc_proc_address(r, name, f, version, flags);
}

WRAP(cuGetProcAddress_v2, const char *name, void **f, int version, uint64_t flags, int *status) {
  NEEDS(cuGetProcAddress_v2);
  CUresult r;
  CALL(r, cuGetProcAddress_v2, name, f, version, flags, status);
  return yc_inside ? r : yc_proc_address(r, name, f, version, flags);
}

/* A pool keeps what programs have freed up to a threshold, and that is counted no
 * more: so it keeps nothing beyond the next wait for the device. */
WRAP(cuMemPoolSetAttribute, CUmemoryPool pool, int what, void *value) {
  NEEDS(cuMemPoolSetAttribute);
  enum { THRESHOLD = 4 };
  uint64_t none = 0;
  return REAL(cuMemPoolSetAttribute)(pool, what, what == THRESHOLD && value ? &none : value);
}

const yc_row yc_rows[] = {
    PLAIN(cuInit), PLAIN(cuDeviceGetCount), PLAIN(cuDeviceGet), V2(cuDeviceTotalMem), V2(cuMemGetInfo),
    EXACT(cuCtxCreate), EXACT(cuCtxCreate_v2), EXACT(cuCtxCreate_v3), EXACT(cuCtxCreate_v4), PLAIN(cuDevicePrimaryCtxRetain),
    V2(cuMemAlloc), EXACT(cuMemAlloc), V2(cuMemAllocPitch), EXACT(cuMemAllocPitch), PLAIN(cuMemAllocManaged), STREAMS(cuMemAllocAsync), STREAMS(cuMemAllocFromPoolAsync),
    V2(cuMemFree), STREAMS(cuMemFreeAsync),
    V2(cuArrayCreate), EXACT(cuArrayCreate), V2(cuArray3DCreate), EXACT(cuArray3DCreate), PLAIN(cuMipmappedArrayCreate), PLAIN(cuArrayDestroy), PLAIN(cuMipmappedArrayDestroy),
    PLAIN(cuCtxSetLimit), PLAIN(cuMemCreate), PLAIN(cuMemRelease), PLAIN(cuMemRetainAllocationHandle), PLAIN(cuMemImportFromShareableHandle), PLAIN(cuMemMap), PLAIN(cuMemUnmap),
    V2(cuCtxDestroy), EXACT(cuCtxDestroy), V2(cuDevicePrimaryCtxRelease), EXACT(cuDevicePrimaryCtxRelease), V2(cuDevicePrimaryCtxReset), EXACT(cuDevicePrimaryCtxReset), PLAIN(cuGreenCtxCreate), PLAIN(cuGreenCtxDestroy),
    PLAIN(cuMemPoolCreate), PLAIN(cuMemPoolDestroy), PLAIN(cuDeviceGetDefaultMemPool), PLAIN(cuDeviceGetMemPool), PLAIN(cuMemGetDefaultMemPool), PLAIN(cuMemGetMemPool), PLAIN(cuMemPoolSetAttribute), EXACT(cuGetProcAddress), EXACT(cuGetProcAddress_v2),
};
const size_t yc_rows_n = sizeof yc_rows / sizeof *yc_rows;
