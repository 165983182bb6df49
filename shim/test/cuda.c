/* A program of CUDA that knows nothing of the pool, for tests and figures. It
 * finds the driver's functions in one of three ways, as programs do: linked,
 * by dlsym, or by cuGetProcAddress. It runs on a driver and on the stand-in.
 *
 *   cuda WAY COMMAND [NUMBER...] */
#define _GNU_SOURCE
#include "kernels.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FUNCTIONS(F)                                                                                                                   \
  F(cuInit, cuInit, (unsigned))                                                                                                        \
  F(cuDeviceGetCount, cuDeviceGetCount, (int *))                                                                                       \
  F(cuDeviceGet, cuDeviceGet, (int *, int))                                                                                            \
  F(cuDeviceGetName, cuDeviceGetName, (char *, int, int))                                                                              \
  F(cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_t *, int))                                                                            \
  F(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, (char *, int, int))                                                                      \
  F(cuCtxCreate, cuCtxCreate_v2, (void **, unsigned, int))                                                                             \
  F(cuCtxDestroy, cuCtxDestroy_v2, (void *))                                                                                           \
  F(cuCtxSetCurrent, cuCtxSetCurrent, (void *))                                                                                        \
  F(cuCtxSetLimit, cuCtxSetLimit, (int, size_t))                                                                                       \
  F(cuCtxSynchronize, cuCtxSynchronize, (void))                                                                                        \
  F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (void **, int))                                                                \
  F(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (int))                                                                    \
  F(cuMemAlloc, cuMemAlloc_v2, (uint64_t *, size_t))                                                                                   \
  F(cuMemAllocManaged, cuMemAllocManaged, (uint64_t *, size_t, unsigned))                                                              \
  F(cuMemAllocPitch, cuMemAllocPitch_v2, (uint64_t *, size_t *, size_t, size_t, unsigned))                                             \
  F(cuMemAllocAsync, cuMemAllocAsync, (uint64_t *, size_t, void *))                                                                    \
  F(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, (uint64_t *, size_t, void *, void *))                                            \
  F(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, (void **, int))                                                              \
  F(cuMemPoolSetAttribute, cuMemPoolSetAttribute, (void *, int, void *))                                                               \
  F(cuMemPoolGetAttribute, cuMemPoolGetAttribute, (void *, int, void *))                                                               \
  F(cuMemAllocHost, cuMemAllocHost_v2, (void **, size_t))                                                                              \
  F(cuMemAddressReserve, cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, unsigned long long))                              \
  F(cuMemAddressFree, cuMemAddressFree, (uint64_t, size_t))                                                                            \
  F(cuMemSetAccess, cuMemSetAccess, (uint64_t, size_t, const void *, size_t))                                                          \
  F(cuMemFree, cuMemFree_v2, (uint64_t))                                                                                               \
  F(cuMemFreeAsync, cuMemFreeAsync, (uint64_t, void *))                                                                                \
  F(cuMemCreate, cuMemCreate, (uint64_t *, size_t, const void *, unsigned long long))                                                  \
  F(cuMemRelease, cuMemRelease, (uint64_t))                                                                                            \
  F(cuMemMap, cuMemMap, (uint64_t, size_t, size_t, uint64_t, unsigned long long))                                                      \
  F(cuMemUnmap, cuMemUnmap, (uint64_t, size_t))                                                                                        \
  F(cuArray3DCreate, cuArray3DCreate_v2, (void **, const void *))                                                                      \
  F(cuArrayDestroy, cuArrayDestroy, (void *))                                                                                          \
  F(cuMemGetInfo, cuMemGetInfo_v2, (size_t *, size_t *))                                                                               \
  F(cuMemcpyHtoD, cuMemcpyHtoD_v2, (uint64_t, const void *, size_t))                                                                   \
  F(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *, uint64_t, size_t))                                                                         \
  F(cuModuleLoadDataEx, cuModuleLoadDataEx, (void **, const void *, unsigned, int *, void **))                                                                       \
  F(cuModuleGetFunction, cuModuleGetFunction, (void **, void *, const char *))                                                         \
  F(cuLaunchKernel, cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)) \
  F(cuStreamCreate, cuStreamCreate, (void **, unsigned))                                                                               \
  F(cuStreamBeginCapture, cuStreamBeginCapture_v2, (void *, int))                                                                      \
  F(cuStreamEndCapture, cuStreamEndCapture, (void *, void **))                                                                         \
  F(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, (void **, void *, unsigned long long))                                   \
  F(cuGetExportTable, cuGetExportTable, (const void **, const void *))                                                                 \
  F(cuMemsetD2D32, cuMemsetD2D32_v2, (uint64_t, size_t, unsigned, size_t, size_t))                                                     \
  F(cuGraphLaunch, cuGraphLaunch, (void *, void *))                                                                                    \
  F(cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync, (uint64_t *, size_t *, size_t, const void *, size_t *, size_t, unsigned long long, void *)) \
  F(cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync, (uint64_t, uint64_t, size_t, const void *, void *))                      \
  F(cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync, (const void *, unsigned long long, void *))                          \
  F(cuMemBatchDecompressAsync, cuMemBatchDecompressAsync, (void *, size_t, unsigned, size_t *, void *))                                 \
  F(cuMemPoolCreate, cuMemPoolCreate, (void **, const void *))                                                                         \
  F(cuMemPoolDestroy, cuMemPoolDestroy, (void *))                                                                                      \
  F(cuMemGetDefaultMemPool, cuMemGetDefaultMemPool, (void **, const void *, int))                                                      \
  F(cuMemExportToShareableHandle, cuMemExportToShareableHandle, (void *, uint64_t, int, unsigned long long))                           \
  F(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, (uint64_t *, void *, int))                                         \
  F(cuDeviceGetDevResource, cuDeviceGetDevResource, (int, void *, int))                                                                \
  F(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, (void **, void *, unsigned))                                                 \
  F(cuGreenCtxCreate, cuGreenCtxCreate, (void **, void *, int, unsigned))                                                              \
  F(cuCtxFromGreenCtx, cuCtxFromGreenCtx, (void **, void *))                                                                           \
  F(cuGreenCtxDestroy, cuGreenCtxDestroy, (void *))                                                                                    \
  F(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, (void **, void *, unsigned, int))                                                  \
  F(cuMemcpyPeerAsync, cuMemcpyPeerAsync, (uint64_t, void *, uint64_t, void *, size_t, void *))                                        \
  F(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice, (void *, unsigned, unsigned))                          \
  F(cuNobodyKnows, cuNobodyKnows, (int))

#define DECLARE(name, symbol, args) extern int symbol args;
#define POINTER(name, symbol, args) int(*name) args;
FUNCTIONS(DECLARE)
#pragma weak cuNobodyKnows           /* only the stand-in has it */
#pragma weak cuLaunchCooperativeKernelMultiDevice /* until CUDA 12 */
#pragma weak cuMemPrefetchBatchAsync /* of CUDA 13 */
#pragma weak cuMemBatchDecompressAsync
#pragma weak cuMemcpyWithAttributesAsync
#pragma weak cuMemcpy3DWithAttributesAsync
#pragma weak cuMemGetDefaultMemPool
/* of CUDA 12.4 */
#pragma weak cuDeviceGetDevResource
#pragma weak cuDevResourceGenerateDesc
#pragma weak cuGreenCtxCreate
#pragma weak cuCtxFromGreenCtx
#pragma weak cuGreenCtxDestroy
#pragma weak cuGreenCtxStreamCreate
static struct {
  FUNCTIONS(POINTER)
} cu;

static void find(const char *way) {
  void *lib = dlopen("libcuda.so.1", RTLD_NOW);
  int (*proc)(const char *, void **, int, uint64_t, int *) = NULL;
  if (lib) *(void **)&proc = dlsym(lib, "cuGetProcAddress_v2");
  if (!lib || !proc) exit(3);
  if (!strcmp(way, "proc-first")) { /* as programs did before the second version */
    int (*before)(const char *, void **, int, uint64_t);
    void *f = NULL;
    *(void **)&before = dlsym(lib, "cuGetProcAddress");
    if (before("cuGetProcAddress", &f, 12000, 0)) exit(3);
    *(void **)&proc = f;
  }
  if (!strcmp(way, "proc-old")) { /* a form with sizes of 32 bits is the driver's own */
    void *f = NULL;
    if (proc("cuMemGetInfo", &f, 3010, 0, NULL) || !f || f == dlsym(lib, "cuMemGetInfo_v2")) exit(3);
  }
#define LINKED(name, symbol, args) cu.name = symbol;
#define SYMBOL(name, symbol, args) *(void **)&cu.name = dlsym(lib, #symbol);
/* Of a version that has the function with these parameters. */
#define PROC(name, symbol, args) proc(#name, (void **)&cu.name, strcmp(#name, "cuCtxCreate") ? 12040 : 11030, !strcmp(way, "proc-own") ? 2 : 0, NULL);
  if (!strcmp(way, "linked")) {
    FUNCTIONS(LINKED)
  } else if (!strcmp(way, "dlsym")) {
    FUNCTIONS(SYMBOL)
  } else {
    FUNCTIONS(PROC)
  }
}

enum { MIB = 1 << 20 };

static void must(int r, const char *what) {
  if (!r) return;
  printf("%s: error %d\n", what, r);
  exit(1);
}

static long used(void) {
  size_t left, total;
  must(cu.cuMemGetInfo(&left, &total), "cuMemGetInfo");
  return (long)((total - left) / MIB);
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *function(const char *name) {
  enum { ERRORS = 5, ERRORS_SIZE };
  static char said[4096];
  void *module, *f;
  int r = cu.cuModuleLoadDataEx(&module, kernels, 2, (int[]){ERRORS, ERRORS_SIZE}, (void *[]){said, (void *)sizeof said});
  if (r) printf("%s\n", said);
  must(r, "cuModuleLoadDataEx");
  must(cu.cuModuleGetFunction(&f, module, name), "cuModuleGetFunction");
  return f;
}

static int launch(void *f, unsigned n, void *argument) { return cu.cuLaunchKernel(f, n / 256, 1, 1, 256, 1, 1, 0, NULL, (void *[]){argument}, NULL); }

/* fill takes MiB after MiB until there are none. */
static void fill(void) {
  enum { MOST = 1 << 17 };
  static uint64_t all[MOST];
  int n = 0, r = 0;
  while (n < MOST && !(r = cu.cuMemAlloc(all + n, MIB))) n++;
  printf("filled %d, error %d\n", n, r);
  must(cu.cuMemFree(all[0]), "cuMemFree");
  r = cu.cuMemAlloc(all, MIB);
  printf("again %d %d\n", r, cu.cuMemAlloc(all + n, MIB));
}

/* kinds makes memory of each kind, and says what it counted. */
static void kinds(void) {
  uint64_t p, handle;
  size_t pitch;
  void *a, *pool;
  int device;
  must(cu.cuMemAllocManaged(&p, 3 * MIB, 1), "managed");
  printf("managed %ld\n", used());
  cu.cuMemFree(p);
  must(cu.cuMemAllocPitch(&p, &pitch, 4000, 1024, 4), "pitch");
  printf("pitch %ld\n", used());
  cu.cuMemFree(p);
  must(cu.cuMemAllocAsync(&p, 5 * MIB, NULL), "async");
  printf("async %ld\n", used());
  cu.cuMemFreeAsync(p, NULL);
  must(cu.cuDeviceGet(&device, 0), "cuDeviceGet");
  must(cu.cuDeviceGetDefaultMemPool(&pool, device), "cuDeviceGetDefaultMemPool");
  must(cu.cuMemAllocFromPoolAsync(&p, 6 * MIB, pool, NULL), "pool");
  printf("pool %ld\n", used());
  cu.cuMemFree(p);
  struct {
    size_t w, h, d;
    int format;
    unsigned channels, flags;
  } how = {1024, 1024, 2, 0x20, 1, 0};
  must(cu.cuArray3DCreate(&a, &how), "array");
  printf("array %ld\n", used());
  cu.cuArrayDestroy(a);
  struct {
    int type, handles, location, id;
    char more[64];
  } where = {1, 0, 1, 1, {0}};
  cu.cuDeviceGet(&where.id, 0);
  must(cu.cuMemCreate(&handle, 4 * MIB, &where, 0), "create");
  must(cu.cuMemAddressReserve(&p, 4 * MIB, 0, 0, 0), "reserve");
  must(cu.cuMemMap(p, 4 * MIB, 0, handle, 0), "map");
  must(cu.cuMemRelease(handle), "release");
  must(cu.cuMemSetAccess(p, 4 * MIB, (int[]){1, where.id, 3}, 1), "access");
  printf("mapped %ld\n", used());
  must(cu.cuMemUnmap(p, 4 * MIB), "unmap");
  must(cu.cuMemAddressFree(p, 4 * MIB), "reserved");
  must(cu.cuCtxSetLimit(2, 15 * MIB), "heap"); /* 8 MiB of it are every context's */
  printf("heap %ld\n", used());
  must(cu.cuCtxSetLimit(2, 8 * MIB), "heap");
  printf("none %ld\n", used());
}

/* pools makes memory from pools of each place, and says what it counted. */
static void pools(int device) {
  struct {
    int type, handles, location, id;
    char more[72];
  } how = {1, 0, 0, 0, {0}};
  uint64_t p;
  void *pool;
  for (int place = 1; place <= 3; place++) {
    how.location = place, how.id = place == 1 ? device : 0;
    must(cu.cuMemPoolCreate(&pool, &how), "cuMemPoolCreate");
    must(cu.cuMemAllocFromPoolAsync(&p, 6 * MIB, pool, NULL), "cuMemAllocFromPoolAsync");
    printf("place %d: %ld", place, used());
    must(cu.cuMemFreeAsync(p, NULL), "cuMemFreeAsync");
    printf(", %ld\n", used());
    must(cu.cuMemPoolDestroy(pool), "cuMemPoolDestroy");
  }
  if (!cu.cuMemGetDefaultMemPool) return;
  must(cu.cuMemGetDefaultMemPool(&pool, (int[]){2, 0}, 1), "cuMemGetDefaultMemPool");
  must(cu.cuMemAllocFromPoolAsync(&p, 6 * MIB, pool, NULL), "cuMemAllocFromPoolAsync");
  printf("the host's own: %ld\n", used());
}

/* imports maps memory that it has exported and released, of the device and of the host. */
static void imports(int device) {
  struct {
    int type, handles, location, id;
    char more[64];
  } how = {1, 1, 0, 0, {0}};
  uint64_t handle, p;
  int fd;
  for (int place = 1; place <= 2; place++) {
    how.location = place, how.id = place == 1 ? device : 0;
    must(cu.cuMemCreate(&handle, 6 * MIB, &how, 0), "cuMemCreate");
    must(cu.cuMemExportToShareableHandle(&fd, handle, 1, 0), "cuMemExportToShareableHandle");
    printf("place %d: %ld", place, used());
    must(cu.cuMemRelease(handle), "cuMemRelease");
    must(cu.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, 1), "cuMemImportFromShareableHandle");
    must(cu.cuMemAddressReserve(&p, 12 * MIB, 0, 0, 0), "cuMemAddressReserve");
    must(cu.cuMemMap(p, 6 * MIB, 0, handle, 0), "cuMemMap");
    printf(", %ld", used());
    must(cu.cuMemMap(p + 6 * MIB, 6 * MIB, 0, handle, 0), "cuMemMap again");
    must(cu.cuMemRelease(handle), "cuMemRelease");
    printf(", %ld", used());
    must(cu.cuMemUnmap(p, 6 * MIB), "cuMemUnmap");
    must(cu.cuMemUnmap(p + 6 * MIB, 6 * MIB), "cuMemUnmap");
    printf(", %ld\n", used());
    close(fd);
  }
}

/* greens computes in green contexts, one after the other, for so many microseconds each: in
 * their own default streams, or in streams of theirs while the primary one is current. */
static void greens(int device, void *primary, uint64_t micros, int own) {
  static uint64_t resource[64];
  void *what, *green, *context, *f = function("spin"), *s;
  uint64_t p;
  must(cu.cuDeviceGetDevResource(device, resource, 1), "cuDeviceGetDevResource");
  must(cu.cuDevResourceGenerateDesc(&what, resource, 1), "cuDevResourceGenerateDesc");
  for (int i = 0; i < 2; i++) {
    must(cu.cuGreenCtxCreate(&green, what, device, 1), "cuGreenCtxCreate");
    must(cu.cuCtxFromGreenCtx(&context, green), "cuCtxFromGreenCtx");
    must(cu.cuGreenCtxStreamCreate(&s, green, 1, 0), "cuGreenCtxStreamCreate");
    if (own) must(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent"), s = NULL;
    must(cu.cuMemAlloc(&p, MIB), "cuMemAlloc");
    must(cu.cuLaunchKernel(f, 1, 1, 1, 256, 1, 1, 0, s, (void *[]){&micros}, NULL), "cuLaunchKernel");
    must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    must(cu.cuCtxSetCurrent(primary), "cuCtxSetCurrent");
    usleep(50000); /* the turn is given back */
    must(cu.cuGreenCtxDestroy(green), "cuGreenCtxDestroy");
  }
  printf("it has %ld", used());
  must(cu.cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
  must(cu.cuCtxCreate(&context, 0, device), "cuCtxCreate");
  printf(", then %ld\n", used());
}

/* unpack has a few bytes decompressed, of LZ4. */
static void unpack(void) {
  uint64_t p;
  char packed[] = "\x50hello", got[6] = "";
  must(cu.cuMemAlloc(&p, 4096), "cuMemAlloc");
  must(cu.cuMemcpyHtoD(p, packed, 6), "cuMemcpyHtoD");
  struct {
    size_t from_n, to_n;
    uint64_t got, from, to;
    int how;
    char more[20];
  } part = {6, 2048, 0, p, p + 2048, 4, {0}};
  must(cu.cuMemBatchDecompressAsync(&part, 1, 0, NULL, NULL), "cuMemBatchDecompressAsync");
  must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  must(cu.cuMemcpyDtoH(got, p + 2048, 5), "cuMemcpyDtoH");
  usleep(100000); /* the turn is given back */
  printf("%s\n", got);
}

enum { MOST_CARDS = 16 };

/* shows says where the cards are that the program sees, in their order, and makes a context on each. */
static int shows(void *contexts[MOST_CARDS]) {
  int n, d;
  char bus[64];
  must(cu.cuDeviceGetCount(&n), "cuDeviceGetCount");
  for (int i = 0; i < n; i++) {
    must(cu.cuDeviceGet(&d, i), "cuDeviceGet"), must(cu.cuDeviceGetPCIBusId(bus, sizeof bus, d), "cuDeviceGetPCIBusId");
    must(cu.cuDevicePrimaryCtxRetain(contexts + i, d), "cuDevicePrimaryCtxRetain");
    printf("%s%s", i ? " " : "", bus);
  }
  printf(", then %d\n", cu.cuDeviceGet(&d, n));
  return n;
}

/* cards has memory of each kind on each card, computes on each and on all at once, and copies from one to the next. */
static void cards(uint64_t micros) {
  enum { WORDS = 256 };
  void *contexts[MOST_CARDS], *pool, *adds[MOST_CARDS], *streams[MOST_CARDS], *green;
  uint64_t words[MOST_CARDS], p, pooled, handle;
  static uint64_t resource[64];
  uint32_t got[WORDS];
  const int n = shows(contexts);
  for (int i = 0; i < n; i++) {
    int d;
    size_t all, left, total;
    must(cu.cuDeviceGet(&d, i), "cuDeviceGet"), must(cu.cuCtxSetCurrent(contexts[i]), "cuCtxSetCurrent");
    must(cu.cuMemAlloc(words + i, MIB), "cuMemAlloc"), must(cu.cuStreamCreate(streams + i, 1), "cuStreamCreate");
    must(cu.cuMemcpyHtoD(words[i], (uint32_t[WORDS]){0}, sizeof got), "cuMemcpyHtoD");
    adds[i] = function("add");
    uint64_t time = micros * (unsigned)(i + 1);
    must(launch(function("spin"), 256, &time), "cuLaunchKernel"), must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    must(cu.cuDeviceTotalMem(&all, d), "cuDeviceTotalMem"), must(cu.cuMemGetInfo(&left, &total), "cuMemGetInfo");
    printf("card %d has %zu MiB, %zu of %zu free", i, all / MIB, left / MIB, total / MIB);
    /* What says where it is, is there, whichever card is current. */
    must(cu.cuCtxSetCurrent(contexts[(i + 1) % n]), "cuCtxSetCurrent");
    must(cu.cuMemAllocAsync(&p, 2 * MIB, streams[i]), "cuMemAllocAsync");
    must(cu.cuDeviceGetDefaultMemPool(&pool, d), "cuDeviceGetDefaultMemPool");
    must(cu.cuMemAllocFromPoolAsync(&pooled, 3 * MIB, pool, NULL), "cuMemAllocFromPoolAsync");
    struct {
      int type, handles, location, id;
      char more[64];
    } how = {1, 0, 1, d, {0}};
    must(cu.cuMemCreate(&handle, 4 * MIB, &how, 0), "cuMemCreate");
    must(cu.cuCtxSetCurrent(contexts[i]), "cuCtxSetCurrent");
    printf(", then it uses %ld", used());
    must(cu.cuMemRelease(handle), "cuMemRelease");
    printf(", %ld", used());
    if (cu.cuGreenCtxCreate) {
      must(cu.cuDeviceGetDevResource(d, resource, 1), "cuDeviceGetDevResource"), must(cu.cuDevResourceGenerateDesc(&pool, resource, 1), "cuDevResourceGenerateDesc");
      must(cu.cuGreenCtxCreate(&green, pool, d, 1), "cuGreenCtxCreate"), must(cu.cuCtxFromGreenCtx(&pool, green), "cuCtxFromGreenCtx");
      must(cu.cuCtxSetCurrent(pool), "cuCtxSetCurrent"), must(cu.cuMemAlloc(&p, 5 * MIB), "cuMemAlloc");
      printf(", %ld", used());
      must(cu.cuCtxSetCurrent(contexts[i]), "cuCtxSetCurrent"), must(cu.cuGreenCtxDestroy(green), "cuGreenCtxDestroy");
    }
    printf("\n");
    must(cu.cuMemFreeAsync(pooled, NULL), "cuMemFreeAsync"); /* a pool's memory is no context's */
  }
  struct {
    void *f;
    unsigned grid[3], block[3], shared;
    void *stream, **params;
  } all[MOST_CARDS];
  void *params[MOST_CARDS][1];
  for (int i = 0; i < n; i++) {
    params[i][0] = words + i;
    all[i] = (__typeof__(*all)){adds[i], {1, 1, 1}, {WORDS, 1, 1}, 0, streams[i], params[i]};
  }
  if (cu.cuLaunchCooperativeKernelMultiDevice) must(cu.cuLaunchCooperativeKernelMultiDevice(all, (unsigned)n, 0), "cuLaunchCooperativeKernelMultiDevice");
  for (int i = 0; i < n; i++) { /* and 1 more */
    must(cu.cuCtxSetCurrent(contexts[i]), "cuCtxSetCurrent");
    if (!cu.cuLaunchCooperativeKernelMultiDevice) must(cu.cuLaunchKernel(adds[i], 1, 1, 1, WORDS, 1, 1, 0, streams[i], params[i], NULL), "cuLaunchKernel");
    must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    if (i) must(cu.cuMemcpyPeerAsync(words[i], contexts[i], words[i - 1], contexts[i - 1], MIB, streams[i]), "cuMemcpyPeerAsync");
    must(cu.cuLaunchKernel(adds[i], 1, 1, 1, WORDS, 1, 1, 0, streams[i], params[i], NULL), "cuLaunchKernel");
    must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  }
  must(cu.cuMemcpyDtoH(got, words[n - 1], sizeof got), "cuMemcpyDtoH");
  printf("sum %u\n", got[0] + got[WORDS - 1]);
  for (int i = 0; i < n; i++) {
    void *other;
    int d;
    must(cu.cuDeviceGet(&d, i), "cuDeviceGet"), must(cu.cuDevicePrimaryCtxRelease(d), "cuDevicePrimaryCtxRelease");
    must(cu.cuCtxCreate(&other, 0, d), "cuCtxCreate");
    printf("%sat the end %ld", i ? ", " : "", used());
  }
  printf("\n");
}

typedef struct {
  void *context, *stream;
  uint64_t micros;
} given;

static void *gives(void *to) {
  given *g = to;
  must(cu.cuCtxSetCurrent(g->context), "cuCtxSetCurrent");
  must(cu.cuLaunchKernel(function("spin"), 1, 1, 1, 256, 1, 1, 0, g->stream, (void *[]){&g->micros}, NULL), "cuLaunchKernel");
  must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  return NULL;
}

/* lends has another thread give work to a stream of a green context of the second card, which is
 * current here. */
static void lends(uint64_t micros) {
  static uint64_t resource[64];
  void *contexts[MOST_CARDS], *what, *green, *context, *s;
  uint64_t p;
  int d;
  pthread_t t;
  if (shows(contexts) < 2) exit(1);
  must(cu.cuDeviceGet(&d, 1), "cuDeviceGet"), must(cu.cuCtxSetCurrent(contexts[1]), "cuCtxSetCurrent");
  must(cu.cuDeviceGetDevResource(d, resource, 1), "cuDeviceGetDevResource"), must(cu.cuDevResourceGenerateDesc(&what, resource, 1), "cuDevResourceGenerateDesc");
  must(cu.cuGreenCtxCreate(&green, what, d, 1), "cuGreenCtxCreate"), must(cu.cuCtxFromGreenCtx(&context, green), "cuCtxFromGreenCtx");
  must(cu.cuGreenCtxStreamCreate(&s, green, 1, 0), "cuGreenCtxStreamCreate"), must(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  given to = {contexts[1], s, micros};
  if (pthread_create(&t, NULL, gives, &to)) exit(1);
  pthread_join(t, NULL);
  usleep(50000); /* the turn is given back, and the green context is this thread's still */
  must(cu.cuMemAllocAsync(&p, MIB, s), "cuMemAllocAsync"), must(cu.cuCtxSetCurrent(contexts[0]), "cuCtxSetCurrent");
  printf("the first has %ld", used());
  must(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent, which the library has not kept");
  printf(", the second %ld\n", used());
}

static void *ends_one(void *context) {
  must(cu.cuCtxDestroy(context), "cuCtxDestroy");
  return NULL;
}

/* apart_ends ends a context on the first card while a kernel there waits for one on the second. */
static void apart_ends(void) {
  void *contexts[MOST_CARDS], *other;
  uint64_t word;
  int d;
  pthread_t t;
  if (shows(contexts) < 2) exit(1);
  must(cu.cuDeviceGet(&d, 0), "cuDeviceGet"), must(cu.cuCtxSetCurrent(contexts[1]), "cuCtxSetCurrent");
  must(cu.cuMemAllocManaged(&word, MIB, 1), "cuMemAllocManaged");
  must(cu.cuCtxCreate(&other, 0, d), "cuCtxCreate"), must(launch(function("wait"), 256, &word), "cuLaunchKernel");
  if (pthread_create(&t, NULL, ends_one, other)) exit(1);
  usleep(100000);
  must(cu.cuCtxSetCurrent(contexts[1]), "cuCtxSetCurrent");
  must(launch(function("add"), 256, &word), "cuLaunchKernel"), must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  pthread_join(t, NULL);
  printf("ended\n");
}

static pthread_barrier_t asks;

static void *on_first(void *context) {
  uint64_t none = 0;
  must(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  printf("asks\n");
  pthread_barrier_wait(&asks);
  must(launch(function("spin"), 256, &none), "cuLaunchKernel"), must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  printf("first\n");
  return NULL;
}

/* apart computes on the first card, which another program has, and meanwhile on the second. */
static void apart(void) {
  void *contexts[MOST_CARDS];
  uint64_t none = 0;
  pthread_t t;
  shows(contexts);
  if (pthread_barrier_init(&asks, NULL, 2) || pthread_create(&t, NULL, on_first, contexts[0])) exit(1);
  must(cu.cuCtxSetCurrent(contexts[1]), "cuCtxSetCurrent");
  pthread_barrier_wait(&asks);
  usleep(100000); /* until it has asked for its turn, or else it is shown less */
  must(launch(function("spin"), 256, &none), "cuLaunchKernel"), must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  printf("second\n");
  pthread_join(t, NULL);
}

/* gang has a kernel on one card that waits for one on another, as collectives do. */
static void gang(uint64_t first) {
  void *contexts[MOST_CARDS];
  uint64_t word;
  char c;
  const int n = shows(contexts);
  must(cu.cuCtxSetCurrent(contexts[first]), "cuCtxSetCurrent");
  must(cu.cuMemAllocManaged(&word, MIB, 1), "cuMemAllocManaged");
  must(launch(function("wait"), 256, &word), "cuLaunchKernel");
  printf("waits\n");
  if (read(0, &c, 1) < 0) exit(1);
  must(cu.cuCtxSetCurrent(contexts[(first + 1) % (unsigned)n]), "cuCtxSetCurrent");
  must(launch(function("add"), 256, &word), "cuLaunchKernel"), must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  must(cu.cuCtxSetCurrent(contexts[first]), "cuCtxSetCurrent"), must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  printf("ended\n");
}

/* table calls a function of a table that is not documented; the number of the
 * stand-in's table begins with its first byte, and no driver has it. */
static void table(void) {
  const struct { size_t size; int (*f)(int); } *all;
  unsigned char id[16] = {0x6e};
  int r = cu.cuGetExportTable((const void **)&all, id);
  printf("table %d", r);
  printf(r ? "\n" : ", %d\n", r ? 0 : all->f(21));
}

/* kept is how much a pool keeps that it was told to. */
static void kept(int device) {
  void *pool;
  uint64_t all = 1ULL << 40, got = 1;
  must(cu.cuDeviceGetDefaultMemPool(&pool, device), "cuDeviceGetDefaultMemPool");
  must(cu.cuMemPoolSetAttribute(pool, 4, &all), "cuMemPoolSetAttribute");
  must(cu.cuMemPoolGetAttribute(pool, 4, &got), "cuMemPoolGetAttribute");
  printf("kept %llu\n", (unsigned long long)got);
}

/* paged has so much memory, in sections of 256 MiB, and computes in each of them, round by
 * round, for so long; its input ends a pause before that. */
static void paged(uint64_t mib, double last) {
  enum { N = 1 << 16, SECTION = 256, MOST = 4096 };
  static uint32_t v[N];
  static uint64_t all[MOST];
  size_t left, total, pitch;
  uint64_t n = mib / SECTION, row;
  void *add = function("add");
  must(cu.cuMemAllocPitch(&row, &pitch, 1000, 16, 4), "cuMemAllocPitch");
  if (pitch < 1000 || pitch % 4) printf("pitch %zu\n", pitch);
  must(cu.cuMemFree(row), "cuMemFree");
  for (uint64_t i = 0; i < n; i++) {
    must(cu.cuMemAlloc(all + i, SECTION * (size_t)MIB), "cuMemAlloc");
    must(cu.cuMemcpyHtoD(all[i], v, sizeof v), "cuMemcpyHtoD");
  }
  must(cu.cuMemGetInfo(&left, &total), "cuMemGetInfo");
  printf("has %ld of %ld, %ld free\n", used(), (long)(total / MIB), (long)(left / MIB));
  char c;
  if (read(0, &c, 1) != 1) exit(1);
  double begun = seconds();
  uint32_t rounds = 0;
  for (; seconds() < begun + last; rounds++) {
    for (uint64_t i = 0; i < n; i++) must(launch(add, N, all + i), "cuLaunchKernel");
    if (rounds % 8 == 7) must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  }
  for (uint64_t i = 0; i < n; i++) {
    must(cu.cuMemcpyDtoH(v, all[i], sizeof v), "cuMemcpyDtoH");
    for (int j = 0; j < N; j++)
      if (v[j] != rounds) exit(printf("section %d is wrong: %u instead of %u\n", (int)i, v[j], rounds));
    must(cu.cuMemFree(all[i]), "cuMemFree");
  }
  printf("%s, %ld left\n", rounds ? "right" : "nothing", used());
}

/* launches is a thread that computes, and can be canceled. */
static void *launches(void *context) {
  uint64_t micros = 500;
  must(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  void *f = function("spin");
  for (;;) {
    must(launch(f, 256, &micros), "cuLaunchKernel");
    pthread_testcancel();
  }
  return NULL;
}

/* canceled has threads wait for their turn, among others, and cancels them there. */
static void canceled(void *context) {
  enum { N = 8 };
  pthread_t t[N];
  void *result;
  int n = 0;
  for (int i = 0; i < N; i++) pthread_create(t + i, NULL, launches, context);
  usleep(200000);
  for (int i = 0; i < N; i++) pthread_cancel(t[i]);
  for (int i = 0; i < N; i++) pthread_join(t[i], &result), n += result == PTHREAD_CANCELED;
  uint64_t none = 0, p;
  must(launch(function("spin"), 256, &none), "cuLaunchKernel");
  must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  must(cu.cuMemAlloc(&p, MIB), "cuMemAlloc");
  printf("canceled %d\n", n);
}

static void nothing(int none) { (void)none; }

/* maps is a thread that maps memory, again and again. */
static void *maps(void *context) {
  struct {
    int type, handles, location, id;
    char more[64];
  } where = {1, 0, 1, 0, {0}};
  uint64_t p, handle;
  must(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  must(cu.cuMemCreate(&handle, 2 * MIB, &where, 0), "create");
  must(cu.cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0), "reserve");
  for (;;) {
    must(cu.cuMemMap(p, 2 * MIB, 0, handle, 0), "map");
    must(cu.cuMemUnmap(p, 2 * MIB), "unmap");
  }
  return NULL;
}

/* forks has children while another thread maps memory, which free what is their parent's. */
static void forks(void *context) {
  enum { N = 300 };
  pthread_t t;
  int n = 0, status;
  pthread_create(&t, NULL, maps, context);
  for (int i = 0; i < N; i++) {
    pid_t child = fork();
    if (!child) alarm(10), _exit(!cu.cuMemFree(77));
    if (waitpid(child, &status, 0) != child || status) break;
    n++;
  }
  printf("children %d\n", n);
}

/* interrupts has a signal interrupt the program all the time, also where it waits. */
static void interrupts(void) {
  struct sigaction a = {.sa_handler = nothing};
  sigaction(SIGALRM, &a, NULL);
  setitimer(ITIMER_REAL, &(struct itimerval){{0, 50}, {0, 50}}, NULL);
}

static void *stream;

/* captured is a graph of one kernel. While it is captured nothing may look at events
 * that has not said that it means no harm, whatever the device has to do. */
static void *captured(void *f, uint64_t micros) {
  void *graph, *exec;
  uint64_t busy = 20000;
  must(launch(f, 256, &busy), "cuLaunchKernel");
  must(cu.cuStreamCreate(&stream, 1), "cuStreamCreate");
  must(cu.cuStreamBeginCapture(stream, 0), "cuStreamBeginCapture");
  must(cu.cuLaunchKernel(f, 1, 1, 1, 256, 1, 1, 0, stream, (void *[]){&micros}, NULL), "cuLaunchKernel");
  usleep(50000);
  must(cu.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  must(cu.cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
  return exec;
}

/* captures has a graph made of so many kernels, none of which is computed. */
static void captures(uint64_t n) {
  void *graph, *f = function("spin");
  uint64_t none = 0;
  must(cu.cuStreamCreate(&stream, 1), "cuStreamCreate");
  must(cu.cuStreamBeginCapture(stream, 0), "cuStreamBeginCapture");
  for (uint64_t i = 0; i < n; i++) must(cu.cuLaunchKernel(f, 1, 1, 1, 256, 1, 1, 0, stream, (void *[]){&none}, NULL), "cuLaunchKernel");
  must(cu.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  printf("captured\n");
}

/* rate waits for a line, and then computes for so many seconds; it prints how many
 * kernels of so many rounds that were, with blocks for each of a large device's processors. */
static void rate(uint64_t rounds, double last) {
  enum { BLOCKS = 528, AHEAD = 8 };
  void *work = function("work");
  uint64_t k = 0;
  char c;
  for (int i = 0; i < 20; i++) must(launch(work, BLOCKS * 256, &rounds), "cuLaunchKernel");
  must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  printf("ready\n");
  if (read(0, &c, 1) != 1) exit(1);
  double begun = seconds(), t = begun;
  for (; t < begun + last; k++) {
    must(launch(work, BLOCKS * 256, &rounds), "cuLaunchKernel");
    if (k % AHEAD == AHEAD - 1) must(cu.cuCtxSynchronize(), "cuCtxSynchronize"), t = seconds();
  }
  must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  printf("did %llu in %.3f\n", (unsigned long long)k, seconds() - begun);
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  const char *what = argv[2];
  uint64_t number = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
  double last = argc > 4 ? atof(argv[4]) : 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!strcmp(what, "env")) /* what the program sets counts for nothing */
    for (int i = 0; i < 3; i++) unsetenv((const char *[]){"YUNHE_POOL_ADDRESS", "YUNHE_POOL_TASK", "YUNHE_POOL_TOKEN"}[i]), setenv("YUNHE_POOL_MEMORY", "4096MiB", 1);
  if (!strcmp(what, "visible")) setenv("CUDA_VISIBLE_DEVICES", "0", 1), what = "listed"; /* as scripts do */
  if (!strcmp(what, "unset")) unsetenv("CUDA_VISIBLE_DEVICES"), what = "listed";
  if (!strcmp(what, "hidden")) setenv("CUDA_VISIBLE_DEVICES", argc > 3 ? argv[3] : "", 1), what = "info";
  find(argv[1]);
  if (!strcmp(what, "interrupted")) interrupts(), what = "fill";
  must(cu.cuInit(0), "cuInit");
  if (!strcmp(what, "cards")) return cards(number), usleep(50000), 0; /* turns are given back */
  if (!strcmp(what, "apart")) return apart(), 0;
  if (!strcmp(what, "gang")) return gang(number), 0;
  if (!strcmp(what, "lends")) return lends(number), usleep(50000), 0;
  if (!strcmp(what, "apart-ends")) return apart_ends(), 0;
  if (!strcmp(what, "shows")) return shows((void *[MOST_CARDS]){0}), 0;
  int n, device;
  void *context;
  must(cu.cuDeviceGetCount(&n), "cuDeviceGetCount");
  must(cu.cuDeviceGet(&device, 0), "cuDeviceGet");
  must(cu.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  must(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  if (!strcmp(what, "info")) {
    char name[64], bus[64];
    size_t all, left, total;
    cu.cuDeviceGetName(name, sizeof name, device), cu.cuDeviceGetPCIBusId(bus, sizeof bus, device);
    must(cu.cuDeviceTotalMem(&all, device), "cuDeviceTotalMem");
    must(cu.cuMemGetInfo(&left, &total), "cuMemGetInfo");
    must(cu.cuMemGetInfo(&left, NULL), "cuMemGetInfo of what is free"), must(cu.cuMemGetInfo(NULL, &total), "cuMemGetInfo of all");
    void *other;
    int second;
    printf("devices %d, %s at %s, %zu MiB, %zu of %zu free, other %d %d, unknown %d\n", n, name, bus, all / MIB, left / MIB, total / MIB, cu.cuDeviceGet(&second, 1), cu.cuCtxCreate(&other, 0, !device), cu.cuNobodyKnows ? cu.cuNobodyKnows(41) : 0);
  } else if (!strcmp(what, "listed")) { /* it sees one device, and its list as it was, as those that it starts do */
    char bus[64];
    must(cu.cuInit(0), "cuInit again"), cu.cuDeviceGetPCIBusId(bus, sizeof bus, device);
    printf("devices %d, at %s, listed %s, ", n, bus, getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "nowhere");
    fflush(stdout);
    if (system("echo \"to others ${CUDA_VISIBLE_DEVICES-nowhere}\"")) return 1;
  } else if (!strcmp(what, "table")) {
    table();
  } else if (!strcmp(what, "canceled")) {
    canceled(context);
  } else if (!strcmp(what, "forks")) {
    forks(context);
  } else if (!strcmp(what, "kept")) {
    kept(device);
  } else if (!strcmp(what, "captures")) {
    captures(number);
  } else if (!strcmp(what, "long")) { /* a kernel of so many microseconds, which has begun at the first line */
    must(launch(function("spin"), 256, &number), "cuLaunchKernel");
    printf("began\n");
    must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    printf("ended\n");
  } else if (!strcmp(what, "rate")) {
    rate(number, last);
  } else if (!strcmp(what, "wild")) { /* a kernel with an address that is none, and a call after it */
    int r = launch(function("wild"), 256, NULL);
    if (!r) r = cu.cuCtxSynchronize();
    uint64_t p;
    printf("wild %d, then %d\n", r, cu.cuMemAlloc(&p, MIB));
  } else if (!strcmp(what, "fill") || !strcmp(what, "env")) {
    fill();
  } else if (!strcmp(what, "kinds")) {
    kinds();
  } else if (!strcmp(what, "batch")) { /* memory that is fetched, and nothing else */
    uint64_t p;
    must(cu.cuMemAllocManaged(&p, MIB, 1), "cuMemAllocManaged");
    must(cu.cuMemPrefetchBatchAsync(&p, (size_t[]){MIB}, 1, (int[]){1, device}, (size_t[]){0}, 1, 0, NULL), "cuMemPrefetchBatchAsync");
    must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    usleep(100000); /* the turn is given back */
  } else if (!strcmp(what, "row") || !strcmp(what, "box")) { /* a copy that says how it may be done, and nothing else */
    struct {
      int type;
      uint64_t at;
      size_t row, height;
      int where[2];
    } end = {1, 0, 0, 0, {1, device}};
    struct {
      __typeof__(end) from, to;
      size_t w, h, d;
      unsigned order, flags;
    } box = {end, end, MIB, 1, 1, 1, 0};
    must(cu.cuMemAlloc(&box.from.at, MIB), "cuMemAlloc"), must(cu.cuMemAlloc(&box.to.at, MIB), "cuMemAlloc");
    if (*what == 'r') must(cu.cuMemcpyWithAttributesAsync(box.to.at, box.from.at, MIB, (int[16]){1}, NULL), "cuMemcpyWithAttributesAsync");
    else must(cu.cuMemcpy3DWithAttributesAsync(&box, 0, NULL), "cuMemcpy3DWithAttributesAsync");
    must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    usleep(100000); /* as above */
  } else if (!strcmp(what, "pools")) {
    pools(device);
  } else if (!strcmp(what, "imports")) {
    imports(device);
  } else if (!strcmp(what, "greens")) {
    greens(device, context, number, last > 0);
  } else if (!strcmp(what, "unpack")) { /* memory that is decompressed, and nothing else */
    unpack();
  } else if (!strcmp(what, "paged")) {
    paged(number, last);
  } else if (!strcmp(what, "contexts")) {
    uint64_t p;
    must(cu.cuMemAlloc(&p, 5 * MIB), "cuMemAlloc"), must(cu.cuCtxSetLimit(2, 11 * MIB), "cuCtxSetLimit");
    long before = used();
    must(cu.cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
    must(cu.cuCtxCreate(&context, 0, device), "cuCtxCreate");
    printf("%ld then %ld\n", before, used());
  } else if (!strcmp(what, "hold")) { /* until somebody closes its input */
    uint64_t p;
    printf("holds %d\n", cu.cuMemAlloc(&p, number * MIB));
    char c;
    while (read(0, &c, 1) > 0) {
      if (c == 'u') printf("uses %ld\n", used());
      if (c == 'm') printf("more %d\n", cu.cuMemAlloc(&p, MIB));
    }
  } else if (!strcmp(what, "add")) {
    enum { N = 1 << 16 };
    static uint32_t v[N];
    uint64_t p;
    void *add = function("add");
    must(cu.cuMemAlloc(&p, sizeof v), "cuMemAlloc");
    must(cu.cuMemcpyHtoD(p, v, sizeof v), "cuMemcpyHtoD");
    for (uint64_t i = 0; i < number; i++) must(launch(add, N, &p), "cuLaunchKernel");
    must(cu.cuMemcpyDtoH(v, p, sizeof v), "cuMemcpyDtoH");
    uint64_t sum = 0;
    for (int i = 0; i < N; i++) sum += v[i];
    printf("sum %llu\n", (unsigned long long)sum);
  } else if (!strcmp(what, "spin") || !strcmp(what, "graph")) { /* kernels of so many microseconds, for so long; the number of them */
    void *spin = function("spin"), *graph = *what == 'g' ? captured(spin, number) : NULL;
    uint64_t k = 0;
    double begun = seconds();
    for (int half = 0; seconds() < begun + last; k++) {
      if (!half && seconds() >= begun + last / 2) half = printf("half %llu\n", (unsigned long long)k);
      must(*what == 's' ? launch(spin, 256, &number) : cu.cuGraphLaunch(graph, stream), "cuLaunchKernel");
      if (k % 8 == 7) must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    }
    must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    printf("kernels %llu\n", (unsigned long long)k);
  } else if (!strcmp(what, "costs")) { /* microseconds of a call */
    enum { N = 20000 };
    uint64_t p, none = 0;
    void *spin = function("spin");
    for (int i = 0; i < 100; i++) must(launch(spin, 256, &none), "cuLaunchKernel");
    must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    double t = seconds(), in = 0;
    for (int i = 0; i < N; i++) {
      must(launch(spin, 256, &none), "cuLaunchKernel");
      if (i % 64 == 63) {
        in += seconds() - t;
        must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
        t = seconds();
      }
    }
    printf("launch_us %.3f\n", 1e6 * in / N);
    t = seconds();
    for (int i = 0; i < N / 10; i++) must(cu.cuMemAlloc(&p, MIB), "cuMemAlloc"), must(cu.cuMemFree(p), "cuMemFree");
    printf("memory_us %.3f\n", 1e6 * (seconds() - t) / (N / 10));
  } else if (!strcmp(what, "waits")) { /* a kernel that ends when the program has launched another, long after its turn */
    uint64_t p;
    void *both; /* the program's memory that the device reaches at the same address */
    must(cu.cuMemAllocHost(&both, 4096), "cuMemAllocHost");
    volatile uint32_t *at = both;
    *at = 0;
    must(cu.cuMemAlloc(&p, MIB), "cuMemAlloc");
    must(launch(function("wait"), 256, &at), "cuLaunchKernel");
    usleep(number * 1000);
    must(launch(function("add"), 256, &p), "cuLaunchKernel");
    *at = 1;
    must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    printf("went on\n");
  } else if (!strcmp(what, "fork")) { /* a child that computes nothing lives on */
    uint64_t p;
    must(cu.cuMemAlloc(&p, number * MIB), "cuMemAlloc");
    char c;
    if (!fork()) return read(0, &c, 1) < 0;
    printf("forked\n");
    pause();
  } else if (!strcmp(what, "exec")) { /* its process runs another program; a driver's files stay open */
    uint64_t p;
    must(cu.cuMemAlloc(&p, number * MIB), "cuMemAlloc");
    execl("/proc/self/exe", argv[0], argv[1], "fill", NULL);
    return 1;
  } else if (!strcmp(what, "crash")) {
    uint64_t p;
    must(cu.cuMemAlloc(&p, number * MIB), "cuMemAlloc");
    abort();
  }
  return 0;
}
