/* A program of CUDA that knows nothing of the pool, for tests and figures. It
 * finds the driver's functions in one of three ways, as programs do: linked,
 * by dlsym, or by cuGetProcAddress.
 *
 *   cuda WAY COMMAND [NUMBER...] */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
  F(cuCtxSynchronize, cuCtxSynchronize, (void))                                                                                        \
  F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (void **, int))                                                                \
  F(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (int))                                                                    \
  F(cuMemAlloc, cuMemAlloc_v2, (uint64_t *, size_t))                                                                                   \
  F(cuMemAllocManaged, cuMemAllocManaged, (uint64_t *, size_t, unsigned))                                                              \
  F(cuMemAllocPitch, cuMemAllocPitch_v2, (uint64_t *, size_t *, size_t, size_t, unsigned))                                             \
  F(cuMemAllocAsync, cuMemAllocAsync, (uint64_t *, size_t, void *))                                                                    \
  F(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, (uint64_t *, size_t, void *, void *))                                            \
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
  F(cuModuleLoadData, cuModuleLoadData, (void **, const void *))                                                                       \
  F(cuModuleGetFunction, cuModuleGetFunction, (void **, void *, const char *))                                                         \
  F(cuLaunchKernel, cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)) \
  F(cuGraphLaunch, cuGraphLaunch, (void *, void *))                                                                                    \
  F(cuNobodyKnows, cuNobodyKnows, (int))

#define DECLARE(name, symbol, args) extern int symbol args;
#define POINTER(name, symbol, args) int(*name) args;
FUNCTIONS(DECLARE)
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
#define LINKED(name, symbol, args) cu.name = symbol;
#define SYMBOL(name, symbol, args) *(void **)&cu.name = dlsym(lib, #symbol);
#define PROC(name, symbol, args) proc(#name, (void **)&cu.name, 12040, !strcmp(way, "proc-own") ? 2 : 0, NULL);
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
  void *module, *f;
  must(cu.cuModuleLoadData(&module, ""), "cuModuleLoadData");
  must(cu.cuModuleGetFunction(&f, module, name), "cuModuleGetFunction");
  return f;
}

static int launch(void *f, unsigned n, void *argument) { return cu.cuLaunchKernel(f, n / 256, 1, 1, 256, 1, 1, 0, NULL, (void *[]){argument}, NULL); }

/* fill takes MiB after MiB until there are none. */
static void fill(void) {
  enum { MOST = 1 << 14 };
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
  void *a;
  must(cu.cuMemAllocManaged(&p, 3 * MIB, 1), "managed");
  printf("managed %ld\n", used());
  cu.cuMemFree(p);
  must(cu.cuMemAllocPitch(&p, &pitch, 4000, 1024, 4), "pitch");
  printf("pitch %ld\n", used());
  cu.cuMemFree(p);
  must(cu.cuMemAllocAsync(&p, 5 * MIB, NULL), "async");
  printf("async %ld\n", used());
  cu.cuMemFreeAsync(p, NULL);
  must(cu.cuMemAllocFromPoolAsync(&p, 6 * MIB, NULL, NULL), "pool");
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
  must(cu.cuMemMap(1 << 30, 4 * MIB, 0, handle, 0), "map");
  must(cu.cuMemRelease(handle), "release");
  printf("mapped %ld\n", used());
  must(cu.cuMemUnmap(1 << 30, 4 * MIB), "unmap");
  printf("none %ld\n", used());
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  const char *what = argv[2];
  uint64_t number = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
  double last = argc > 4 ? atof(argv[4]) : 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!strcmp(what, "env")) /* what the program sets counts for nothing */
    for (int i = 0; i < 3; i++) unsetenv((const char *[]){"YUNHE_POOL_ADDRESS", "YUNHE_POOL_TASK", "YUNHE_POOL_TOKEN"}[i]), setenv("YUNHE_POOL_MEMORY", "4096MiB", 1);
  find(argv[1]);
  must(cu.cuInit(0), "cuInit");
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
    void *other;
    int second;
    printf("devices %d, %s at %s, %zu MiB, %zu of %zu free, other %d %d, unknown %d\n", n, name, bus, all / MIB, left / MIB, total / MIB, cu.cuDeviceGet(&second, 1), cu.cuCtxCreate(&other, 0, !device), cu.cuNobodyKnows(41));
  } else if (!strcmp(what, "fill") || !strcmp(what, "env")) {
    fill();
  } else if (!strcmp(what, "kinds")) {
    kinds();
  } else if (!strcmp(what, "contexts")) {
    uint64_t p;
    must(cu.cuMemAlloc(&p, 8 * MIB), "cuMemAlloc");
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
    void *spin = function("spin");
    uint64_t k = 0;
    double begun = seconds();
    for (int half = 0; seconds() < begun + last; k++) {
      if (!half && seconds() >= begun + last / 2) half = printf("half %llu\n", (unsigned long long)k);
      must(*what == 's' ? launch(spin, 256, &number) : cu.cuGraphLaunch((void *)(uintptr_t)number, NULL), "cuLaunchKernel");
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
    volatile uint32_t go = 0;
    volatile uint32_t *at = &go;
    must(cu.cuMemAlloc(&p, MIB), "cuMemAlloc");
    must(launch(function("wait"), 256, &at), "cuLaunchKernel");
    usleep(number * 1000);
    must(launch(function("add"), 256, &p), "cuLaunchKernel");
    go = 1;
    must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    printf("went on\n");
  } else if (!strcmp(what, "fork")) { /* a child that computes nothing lives on */
    uint64_t p;
    must(cu.cuMemAlloc(&p, number * MIB), "cuMemAlloc");
    char c;
    if (!fork()) return read(0, &c, 1) < 0;
    printf("forked\n");
    pause();
  } else if (!strcmp(what, "crash")) {
    uint64_t p;
    must(cu.cuMemAlloc(&p, number * MIB), "cuMemAlloc");
    abort();
  }
  return 0;
}
