/* A program of CUDA that knows nothing of the pool, for tests: it says the same
 * natively and where a worker makes its calls.
 *
 *   cudaremote COMMAND [ARGUMENT...] */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t ptr;
typedef void *handle;
extern int cuInit(unsigned), cuDeviceGet(int *, int), cuDeviceGetName(char *, int, int), cuDeviceGetAttribute(int *, int, int), cuDeviceTotalMem_v2(size_t *, int), cuDriverGetVersion(int *);
extern int cuDevicePrimaryCtxRetain(handle *, int), cuDevicePrimaryCtxRelease_v2(int), cuDevicePrimaryCtxGetState(int, unsigned *, int *);
extern int cuCtxCreate_v2(handle *, unsigned, int), cuCtxDestroy_v2(handle), cuCtxSetCurrent(handle), cuCtxGetCurrent(handle *), cuCtxPushCurrent_v2(handle), cuCtxPopCurrent_v2(handle *), cuCtxSynchronize(void);
extern int cuCtxGetStreamPriorityRange(int *, int *), cuCtxGetLimit(size_t *, int), cuCtxSetLimit(int, size_t), cuCtxGetFlags(unsigned *);
extern int cuModuleLoad(handle *, const char *), cuModuleLoadData(handle *, const void *), cuModuleLoadDataEx(handle *, const void *, unsigned, int *, void **), cuModuleLoadFatBinary(handle *, const void *);
extern int cuModuleUnload(handle), cuModuleGetFunction(handle *, handle, const char *), cuFuncGetAttribute(int *, int, handle), cuFuncSetAttribute(handle, int, int), cuFuncGetModule(handle *, handle), cuFuncGetName(const char **, handle);
extern int cuLibraryLoadData(handle *, const void *, int *, void **, unsigned, int *, void **, unsigned), cuLibraryGetKernel(handle *, handle, const char *), cuKernelGetFunction(handle *, handle), cuLibraryUnload(handle);
extern int cuLinkCreate_v2(unsigned, int *, void **, handle *), cuLinkAddData_v2(handle, int, void *, size_t, const char *, unsigned, int *, void **), cuLinkComplete(handle, void **, size_t *), cuLinkDestroy(handle);
extern int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *, handle, int, size_t);
extern int cuLaunchKernel(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **), cuLaunchKernelEx(const void *, handle, void **, void **);
extern int cuLaunchCooperativeKernel(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **);
extern int cuMemAlloc_v2(ptr *, size_t), cuMemAllocPitch_v2(ptr *, size_t *, size_t, size_t, unsigned), cuMemFree_v2(ptr), cuMemGetInfo_v2(size_t *, size_t *), cuMemAllocAsync(ptr *, size_t, handle), cuMemFreeAsync(ptr, handle);
extern int cuMemGetAddressRange_v2(ptr *, size_t *, ptr), cuMemAllocHost_v2(void **, size_t), cuMemFreeHost(void *);
extern int cuMemcpyHtoD_v2(ptr, const void *, size_t), cuMemcpyDtoH_v2(void *, ptr, size_t), cuMemcpyDtoD_v2(ptr, ptr, size_t), cuMemcpy(ptr, ptr, size_t), cuMemcpyAsync(ptr, ptr, size_t, handle);
extern int cuMemcpyHtoDAsync_v2(ptr, const void *, size_t, handle), cuMemcpyDtoHAsync_v2(void *, ptr, size_t, handle), cuMemcpy2D_v2(const void *), cuMemcpy2DAsync_v2(const void *, handle), cuMemcpy3D_v2(const void *);
extern int cuMemcpyHtoA_v2(handle, size_t, const void *, size_t), cuMemcpyAtoH_v2(void *, handle, size_t, size_t), cuArrayCreate_v2(handle *, const void *), cuArrayDestroy(handle);
extern int cuMemsetD8_v2(ptr, unsigned char, size_t), cuMemsetD16_v2(ptr, unsigned short, size_t), cuMemsetD32_v2(ptr, unsigned, size_t), cuMemsetD32Async(ptr, unsigned, size_t, handle), cuMemsetD2D32_v2(ptr, size_t, unsigned, size_t, size_t);
extern int cuMemCreate(uint64_t *, size_t, const void *, unsigned long long), cuMemRelease(uint64_t), cuMemAddressReserve(ptr *, size_t, size_t, ptr, unsigned long long), cuMemAddressFree(ptr, size_t);
extern int cuMemMap(ptr, size_t, size_t, uint64_t, unsigned long long), cuMemUnmap(ptr, size_t), cuMemSetAccess(ptr, size_t, const void *, size_t), cuMemGetAllocationGranularity(size_t *, const void *, int);
extern int cuDeviceGetDefaultMemPool(handle *, int), cuMemPoolSetAttribute(handle, int, void *), cuMemPoolGetAttribute(handle, int, void *), cuMemPoolTrimTo(handle, size_t);
extern int cuStreamCreate(handle *, unsigned), cuStreamCreateWithPriority(handle *, unsigned, int), cuStreamGetPriority(handle, int *), cuStreamGetFlags(handle, unsigned *), cuStreamGetCtx(handle, handle *), cuStreamDestroy_v2(handle);
extern int cuStreamSynchronize(handle), cuStreamQuery(handle), cuStreamWaitEvent(handle, handle, unsigned), cuStreamBeginCapture_v2(handle, int), cuStreamEndCapture(handle, handle *), cuStreamIsCapturing(handle, int *);
extern int cuThreadExchangeStreamCaptureMode(int *);
extern int cuEventCreate(handle *, unsigned), cuEventRecord(handle, handle), cuEventQuery(handle), cuEventSynchronize(handle), cuEventElapsedTime(float *, handle, handle), cuEventDestroy_v2(handle);
extern int cuGraphInstantiateWithFlags(handle *, handle, unsigned long long), cuGraphLaunch(handle, handle), cuGraphDestroy(handle), cuGraphExecDestroy(handle), cuGraphGetNodes(handle, handle *, size_t *);

extern int cuTexObjectCreate(uint64_t *, const void *, const void *, const void *), cuTexObjectDestroy(uint64_t), cuSurfObjectCreate(uint64_t *, const void *), cuSurfObjectDestroy(uint64_t);
extern int cuTensorMapEncodeTiled(void *, int, unsigned, void *, const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *, int, int, int, int), cuTensorMapReplaceAddress(void *, void *);
extern int cuTensorMapEncodeIm2col(void *, int, unsigned, void *, const uint64_t *, const uint64_t *, const int *, const int *, unsigned, unsigned, const uint32_t *, int, int, int, int);

enum { N = 1 << 12, MIB = 1 << 20 };
static const char code[] = "fake: add spin wait saxpy fill sum odd wild crash texels";
static handle context;

static void must(int r, const char *what) {
  if (!r) return;
  printf("%s: error %d\n", what, r);
  fflush(stdout);
  _exit(1);
}
#define MUST(call) must(call, #call)
#define SAY(call) printf("%d %s\n", call, #call)

static void begin(void) {
  int d;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&d, 0));
  MUST(cuDevicePrimaryCtxRetain(&context, d));
  MUST(cuCtxSetCurrent(context));
}

static handle function(const void *image, const char *name) {
  handle m, f;
  MUST(cuModuleLoadData(&m, image));
  MUST(cuModuleGetFunction(&f, m, name));
  return f;
}

static ptr alloc(size_t n) {
  ptr p;
  MUST(cuMemAlloc_v2(&p, n));
  return p;
}

static uint64_t sum_of(ptr p, uint32_t n, handle s) { /* by the kernel */
  static __thread handle f;
  if (!f) f = function(code, "sum");
  ptr to = alloc(8);
  uint64_t sum;
  MUST(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, (void *[]){&to, &p, &n}, NULL));
  MUST(cuMemcpyDtoHAsync_v2(&sum, to, 8, s));
  MUST(cuStreamSynchronize(s));
  MUST(cuMemFree_v2(to));
  return sum;
}

static void fill(handle f, ptr p, uint32_t v, uint32_t n, handle s) { MUST(cuLaunchKernel(f, 4, 1, 1, 64, 1, 1, 0, s, (void *[]){&p, &v, &n}, NULL)); }

static char *whole(const char *path, size_t *n) {
  FILE *f = fopen(path, "r");
  char *text = malloc(1 << 20);
  *n = f ? fread(text, 1, 1 << 20, f) : 0;
  if (f) fclose(f);
  return realloc(text, *n); /* what reads beyond is seen */
}

static void compute(const char *elf) {
  size_t n;
  char *image = whole(elf, &n);
  handle m, f, o;
  ptr x = alloc(N * 4), y = alloc(N * 4);
  uint32_t count = N, v = 7;
  float a = 0.5f, *out = malloc(N * 4);
  for (int i = 0; i < N; i++) out[i] = (float)i;
  MUST(cuMemcpyHtoD_v2(x, out, N * 4));
  MUST(cuMemsetD32_v2(y, 0, N));
  const void *images[] = {image, code};
  for (int k = 0; k < 2; k++) {
    f = function(images[k], "saxpy");
    struct { ptr y, x; float a; uint32_t n; } packed = {y, x, a, count};
    size_t size = sizeof packed;
    void *extra[] = {(void *)1, &packed, (void *)2, &size, NULL};
    MUST(cuLaunchKernel(f, 4, 1, 1, 64, 1, 1, 0, NULL, (void *[]){&y, &x, &a, &count}, NULL));
    MUST(cuLaunchKernel(f, 4, 1, 1, 64, 1, 1, 0, NULL, NULL, extra));
    MUST(cuLaunchCooperativeKernel(f, 4, 1, 1, 64, 1, 1, 0, NULL, (void *[]){&y, &x, &a, &count}));
    struct { unsigned grid[3], block[3], shared; handle s; const void *features; unsigned n; } config = {{1, 1, 1}, {1, 1, 1}, 0, NULL, NULL, 0};
    MUST(cuLaunchKernelEx(&config, f, (void *[]){&y, &x, &a, &count}, NULL));
    MUST(cuMemcpyDtoH_v2(out, y, N * 4));
    printf("saxpy %g %g %g\n", out[0], out[1], out[N - 1]);
    handle odd = function(images[k], "odd");
    uint8_t small = 3;
    uint16_t less = 41;
    MUST(cuLaunchKernel(odd, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&small, &x, &less, &count}, NULL));
    printf("odd %llu\n", (unsigned long long)sum_of(x, N, NULL));
    MUST(cuMemcpyHtoD_v2(x, out, N * 4));
  }
  MUST(cuModuleLoad(&m, elf));
  MUST(cuModuleGetFunction(&f, m, "fill"));
  MUST(cuFuncGetModule(&o, f));
  const char *name;
  int most;
  MUST(cuFuncGetName(&name, f));
  MUST(cuFuncGetAttribute(&most, 0, f));
  printf("%s, of its module %d, %d threads\n", name, o == m, most);
  fill(f, x, v, N, NULL);
  printf("sum %llu\n", (unsigned long long)sum_of(x, N, NULL));
  handle lib, kernel;
  MUST(cuLibraryLoadData(&lib, image, NULL, NULL, 0, NULL, NULL, 0));
  MUST(cuLibraryGetKernel(&kernel, lib, "fill"));
  fill(kernel, x, 8, N, NULL);
  MUST(cuKernelGetFunction(&f, kernel));
  fill(f, x + N * 2, 9, N / 2, NULL);
  printf("sum %llu\n", (unsigned long long)sum_of(x, N, NULL));
  MUST(cuLibraryUnload(lib));
  MUST(cuModuleUnload(m));
  int blocks;
  MUST(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function(code, "add"), 256, 0));
  printf("blocks %d\n", blocks);
  struct { uint32_t magic; uint16_t version, head; uint64_t size; } fat = {0xBA55ED50, 1, 16, n + 64};
  struct { uint16_t kind, version; uint32_t head; uint64_t size; char more[48]; } entry = {2, 0x101, 64, n, {0}};
  char *fatbin = malloc(sizeof fat + sizeof entry + n);
  memcpy(fatbin, &fat, sizeof fat), memcpy(fatbin + sizeof fat, &entry, sizeof entry), memcpy(fatbin + sizeof fat + sizeof entry, image, n);
  struct { int magic, version; const void *data; void *none; } wrapper = {0x466243B1, 1, fatbin, NULL};
  for (int k = 0; k < 2; k++) {
    MUST(cuModuleLoadFatBinary(&m, k ? (void *)&wrapper : fatbin));
    MUST(cuModuleGetFunction(&f, m, "fill"));
    fill(f, x, 10, N, NULL);
    printf("fat sum %llu\n", (unsigned long long)sum_of(x, N, NULL));
  }
}

typedef struct { size_t x, y; int type; const void *host; ptr device; handle array; size_t pitch; } end2;
typedef struct { size_t x, y, z, lod; int type; const void *host; ptr device; handle array; void *none; size_t pitch, height; } end3;

static void copies(void) {
  enum { W = 100, H = 50, D = 3, BIG = 80 << 20 };
  size_t pitch;
  ptr p = alloc(N * 4), q = alloc(N * 4), r;
  uint32_t *v = malloc(N * 4), *w = calloc(N, 4);
  handle s, array;
  for (int i = 0; i < N; i++) v[i] = (uint32_t)i * 3;
  MUST(cuStreamCreate(&s, 1));
  MUST(cuMemcpyHtoDAsync_v2(p, v, N * 4, s));
  MUST(cuMemcpyAsync(q, p, N * 4, s));
  MUST(cuMemcpyDtoHAsync_v2(w, q, N * 4, s));
  MUST(cuStreamSynchronize(s));
  printf("async %u %u %u\n", w[0], w[5], w[N - 1]);
  MUST(cuMemcpy((ptr)(uintptr_t)w, p, 4 * 10));
  MUST(cuMemcpyDtoD_v2(q, p + 400, 400));
  MUST(cuMemcpyDtoH_v2(w, q, 400));
  printf("within %u %u\n", w[0], w[99]);
  MUST(cuMemsetD8_v2(p, 1, 8)), MUST(cuMemsetD16_v2(p + 8, 2, 4)), MUST(cuMemsetD32Async(p + 16, 3, 4, s));
  MUST(cuStreamSynchronize(s));
  MUST(cuMemcpyDtoH_v2(w, p, 32));
  printf("set %x %x %x\n", w[1], w[2], w[7]);
  MUST(cuMemAllocPitch_v2(&r, &pitch, W, H, 4));
  uint8_t *rows = malloc(W * H * D), *back = calloc(1, 2 * W * H * D);
  for (int i = 0; i < W * H * D; i++) rows[i] = (uint8_t)(i * 7);
  struct { end2 from, to; size_t w, h; } c = {{0, 0, 1, rows, 0, NULL, W}, {0, 0, 2, NULL, r, NULL, pitch}, W, H};
  MUST(cuMemcpy2D_v2(&c));
  struct { end2 from, to; size_t w, h; } d = {{10, 5, 2, NULL, r, NULL, pitch}, {3, 1, 1, back, 0, NULL, 2 * W}, 20, 4};
  MUST(cuMemcpy2DAsync_v2(&d, s));
  MUST(cuStreamSynchronize(s));
  unsigned sum = 0;
  for (int i = 0; i < 2 * W * H; i++) sum = sum * 31 + back[i];
  printf("rows %u, pitch %zu\n", sum, pitch);
  ptr cube = alloc(W * H * D);
  struct { end3 from, to; size_t w, h, d; } e = {{0, 0, 0, 0, 1, rows, 0, NULL, NULL, W, H}, {0, 0, 0, 0, 2, NULL, cube, NULL, NULL, W, H}, W, H, D};
  MUST(cuMemcpy3D_v2(&e));
  struct { end3 from, to; size_t w, h, d; } f = {{4, 2, 1, 0, 2, NULL, cube, NULL, NULL, W, H}, {0, 1, 0, 0, 1, back, 0, NULL, NULL, 64, 30}, 50, 20, 2};
  MUST(cuMemcpy3D_v2(&f));
  for (int i = 0; i < 2 * W * H * D; i++) sum = sum * 31 + back[i];
  printf("cube %u\n", sum);
  struct { size_t w, h; int format; unsigned channels; } how = {64, 8, 0x20, 1};
  MUST(cuArrayCreate_v2(&array, &how));
  MUST(cuMemcpyHtoA_v2(array, 16, v, 128));
  MUST(cuMemcpyAtoH_v2(w, array, 20, 64));
  printf("array %u %u\n", w[0], w[15]);
  struct { end2 from, to; size_t w, h; } g = {{8, 1, 1, rows, 0, NULL, W}, {4, 2, 3, NULL, 0, array, 0}, 40, 5};
  MUST(cuMemcpy2D_v2(&g));
  memset(back, 0, W * H);
  struct { end2 from, to; size_t w, h; } k = {{4, 3, 3, NULL, 0, array, 0}, {0, 0, 4, NULL, (ptr)(uintptr_t)back, NULL, 40}, 40, 3};
  MUST(cuMemcpy2D_v2(&k));
  for (int i = 0; i < 200; i++) sum = sum * 31 + back[i];
  printf("through an array %u\n", sum);
  MUST(cuArrayDestroy(array));
  MUST(cuMemsetD2D32_v2(r, pitch, 5, 10, 10));
  printf("sum %llu\n", (unsigned long long)sum_of(r, 200, NULL));
  ptr large = alloc(BIG);
  uint8_t *here = malloc(BIG), *there = calloc(1, BIG);
  for (size_t i = 0; i < BIG; i++) here[i] = (uint8_t)(i * 2654435761u >> 13);
  MUST(cuMemcpyHtoDAsync_v2(large, here, BIG, s));
  MUST(cuMemcpyDtoHAsync_v2(there, large, BIG, s));
  MUST(cuStreamSynchronize(s));
  printf("large %d\n", memcmp(here, there, BIG));
  memset(there, 0, BIG);
  MUST(cuMemcpyDtoH_v2(there, large, BIG));
  printf("large %d\n", memcmp(here, there, BIG));
  enum { PART = 4 << 20, PARTS = 100 };
  uint8_t *parts = calloc(PARTS, PART);
  for (int i = 0; i < PARTS; i++) { /* far more than is held at once, and nothing waits */
    MUST(cuMemcpyHtoDAsync_v2(large, here + i * 1000, PART, s));
    MUST(cuMemcpyDtoHAsync_v2(parts + (size_t)i * PART, large, PART, s));
    cuMemcpyDtoHAsync_v2(parts, 99, 8, s); /* which fails each time */
  }
  MUST(cuStreamSynchronize(s));
  int wrong_ = 0;
  for (int i = 0; i < PARTS; i++) wrong_ += memcmp(parts + (size_t)i * PART, here + i * 1000, PART) != 0;
  printf("parts %d\n", wrong_);
  free(parts);
  MUST(cuMemcpyHtoD_v2(large, here, BIG));
  memset(there, 0, BIG);
  struct { end2 from, to; size_t w, h; } row = {{0, 0, 2, NULL, large, NULL, 0}, {0, 0, 1, there, 0, NULL, 0}, BIG, 1};
  MUST(cuMemcpy2DAsync_v2(&row, s));
  MUST(cuStreamSynchronize(s));
  printf("a row %d\n", memcmp(here, there, BIG));
  memset(there, 0, BIG);
  struct { end2 from, to; size_t w, h; } half = {{5, 0, 1, here, 0, NULL, 1 << 20}, {0, 0, 2, NULL, large, NULL, 1 << 20}, (1 << 20) - 5, 79};
  MUST(cuMemcpy2D_v2(&half));
  MUST(cuMemcpyDtoH_v2(there, large, BIG));
  printf("rows %d %d\n", memcmp(here + 5, there, (1 << 20) - 5), memcmp(here + 5 + 78 * (1 << 20), there + 78 * (1 << 20), (1 << 20) - 5));
}

static void wrong(void) {
  handle none = NULL, bad = (handle)(uintptr_t)0x123456, m = NULL, f = NULL, s, e, g, c, add;
  int v;
  size_t n;
  ptr p, q;
  float ms;
  SAY(cuDeviceGet(&v, 0));
  SAY(cuCtxSynchronize());
  SAY(cuInit(1));
  begin();
  SAY(cuInit(0));
  SAY(cuDeviceGet(NULL, 0)), SAY(cuDeviceGet(&v, -1)), SAY(cuDeviceGet(&v, 99));
  SAY(cuDeviceGetName(NULL, 5, 0)), SAY(cuDeviceGetAttribute(NULL, 1, 0)), SAY(cuDeviceGetAttribute(&v, 9999, 0)), SAY(cuDeviceTotalMem_v2(NULL, 0)), SAY(cuDeviceTotalMem_v2(&n, 77));
  SAY(cuDriverGetVersion(NULL)), SAY(cuCtxGetCurrent(NULL)), SAY(cuCtxSetCurrent(bad)), SAY(cuCtxPushCurrent_v2(bad)), SAY(cuCtxDestroy_v2(bad)), SAY(cuCtxCreate_v2(NULL, 0, 0)), SAY(cuCtxCreate_v2(&c, 0, 50));
  SAY(cuCtxGetLimit(NULL, 0)), SAY(cuCtxGetLimit(&n, 77)), SAY(cuCtxSetLimit(77, 5)), SAY(cuCtxSetLimit(2, 9 << 20));
  SAY(cuModuleLoadData(NULL, code)), SAY(cuModuleLoadData(&m, NULL)), SAY(cuModuleLoadData(&m, "rubbish")), SAY(cuModuleLoad(&m, "/nonexistent")), SAY(cuModuleLoad(&m, NULL)), SAY(cuModuleUnload(bad)), SAY(cuModuleUnload(none));
  MUST(cuModuleLoadData(&m, code));
  SAY(cuModuleGetFunction(&f, m, "nobody")), SAY(cuModuleGetFunction(NULL, m, "add")), SAY(cuModuleGetFunction(&f, bad, "add")), SAY(cuModuleGetFunction(&f, none, "add")), SAY(cuModuleGetFunction(&f, m, NULL));
  MUST(cuModuleGetFunction(&add, m, "add"));
  SAY(cuFuncGetAttribute(&v, 99, add)), SAY(cuFuncGetAttribute(&v, 0, bad)), SAY(cuFuncSetAttribute(add, 0, 1));
  SAY(cuMemAlloc_v2(NULL, 5)), SAY(cuMemAlloc_v2(&p, 0)), SAY(cuMemAlloc_v2(&p, (size_t)1 << 60)), SAY(cuMemFree_v2(0x1234)), SAY(cuMemFree_v2(1));
  MUST(cuMemAlloc_v2(&p, 4096));
  SAY(cuMemFree_v2(p + 16)), SAY(cuMemGetAddressRange_v2(&q, &n, 77)), SAY(cuMemGetInfo_v2(NULL, &n));
  char text[64] = {0};
  SAY(cuMemcpyHtoD_v2(p, NULL, 8)), SAY(cuMemcpyHtoD_v2(77, text, 8)), SAY(cuMemcpyHtoD_v2(p + 4090, text, 8)), SAY(cuMemcpyDtoH_v2(text, 77, 8)), SAY(cuMemcpyDtoH_v2(NULL, p, 8)), SAY(cuMemcpyDtoD_v2(p, 77, 8));
  SAY(cuMemcpyHtoDAsync_v2(p, text, 8, bad)), SAY(cuMemcpyDtoHAsync_v2(text, p, 8, bad)), SAY(cuMemcpyHtoDAsync_v2(99, text, 8, NULL)), SAY(cuMemcpyDtoHAsync_v2(text, 99, 8, NULL)), SAY(cuMemcpy2D_v2(NULL));
  SAY(cuMemsetD8_v2(77, 1, 5)), SAY(cuMemsetD32_v2(p, 1, 5000)), SAY(cuMemsetD32Async(p, 1, 1, bad));
  SAY(cuLaunchKernel(bad, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&p}, NULL)), SAY(cuLaunchKernel(none, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&p}, NULL));
  SAY(cuLaunchKernel(add, 0, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&p}, NULL)), SAY(cuLaunchKernel(add, 1, 1, 1, 2000, 1, 1, 0, NULL, (void *[]){&p}, NULL)), SAY(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, bad, (void *[]){&p}, NULL));
  SAY(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)), SAY(cuLaunchKernelEx(NULL, add, (void *[]){&p}, NULL)), SAY(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&p}, (void *[]){NULL}));
  SAY(cuLaunchKernel(m, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&p}, NULL));
  SAY(cuStreamCreate(NULL, 0)), SAY(cuStreamCreate(&s, 99)), SAY(cuStreamDestroy_v2(bad)), SAY(cuStreamDestroy_v2(none)), SAY(cuStreamSynchronize(bad)), SAY(cuStreamQuery(bad)), SAY(cuStreamGetFlags(bad, (unsigned *)&v)), SAY(cuStreamGetPriority(NULL, NULL));
  MUST(cuStreamCreate(&s, 0));
  SAY(cuStreamEndCapture(s, &g)), SAY(cuStreamBeginCapture_v2(NULL, 0)), SAY(cuStreamBeginCapture_v2(s, 9)), SAY(cuStreamIsCapturing(bad, &v));
  SAY(cuEventCreate(NULL, 0)), SAY(cuEventCreate(&e, 99)), SAY(cuEventRecord(bad, NULL)), SAY(cuEventQuery(bad)), SAY(cuEventSynchronize(none)), SAY(cuEventDestroy_v2(none)), SAY(cuEventElapsedTime(&ms, bad, bad)), SAY(cuStreamWaitEvent(s, bad, 0));
  MUST(cuEventCreate(&e, 0));
  SAY(cuEventRecord(e, bad)), SAY(cuEventElapsedTime(NULL, e, e)), SAY(cuStreamWaitEvent(s, e, 7));
  SAY(cuGraphInstantiateWithFlags(&g, bad, 0)), SAY(cuGraphLaunch(bad, s)), SAY(cuGraphDestroy(bad));
  MUST(cuCtxPopCurrent_v2(&c));
  SAY(cuCtxPopCurrent_v2(&c)), SAY(cuMemAlloc_v2(&q, 5)), SAY(cuStreamCreate(&g, 0)), SAY(cuCtxSynchronize());
  MUST(cuCtxSetCurrent(context));
  printf("still %d\n", cuCtxSynchronize());
}

static pthread_barrier_t together;

static void *work(void *number) {
  uint32_t n = (uint32_t)(uintptr_t)number, count = 1000;
  handle s, e, c;
  if (cuCtxGetCurrent(&c) || c) return NULL; /* none is another thread's */
  MUST(cuCtxSetCurrent(context));
  handle f = function(code, "fill"), add = function(code, "add");
  MUST(cuStreamCreate(&s, 1));
  MUST(cuEventCreate(&e, 0));
  ptr p = alloc(4096 * 4);
  pthread_barrier_wait(&together);
  uint64_t all = 0;
  for (int i = 0; i < 50; i++) {
    fill(f, p, n, count, s);
    for (int k = 0; k < 5; k++) MUST(cuLaunchKernel(add, 4, 1, 1, 250, 1, 1, 0, s, (void *[]){&p}, NULL));
    MUST(cuEventRecord(e, s));
    MUST(i % 2 ? cuEventSynchronize(e) : cuStreamSynchronize(s));
    all += sum_of(p, count, s);
  }
  MUST(cuMemFree_v2(p));
  MUST(cuEventDestroy_v2(e));
  MUST(cuStreamDestroy_v2(s));
  return (void *)(uintptr_t)all;
}

static void threads(int n) {
  pthread_t t[64];
  pthread_barrier_init(&together, NULL, (unsigned)n);
  for (int i = 0; i < n; i++) pthread_create(t + i, NULL, work, (void *)(uintptr_t)i);
  for (int i = 0; i < n; i++) {
    void *all;
    pthread_join(t[i], &all);
    printf("%d: %llu\n", i, (unsigned long long)(uintptr_t)all);
  }
}

static void streams(void) {
  int least, greatest, priority, status;
  unsigned flags;
  handle s[3], e[3], c, g, x, fillf = function(code, "fill"), spin = function(code, "spin");
  ptr p = alloc(N * 4);
  uint64_t micros = 20000;
  float ms;
  MUST(cuCtxGetStreamPriorityRange(&least, &greatest));
  MUST(cuStreamCreateWithPriority(s, 1, greatest));
  MUST(cuStreamGetPriority(s[0], &priority)), MUST(cuStreamGetFlags(s[0], &flags)), MUST(cuStreamGetCtx(s[0], &c));
  printf("priorities %d %d, %d, flags %u, context %d\n", least, greatest, priority, flags, c == context);
  for (int i = 0; i < 3; i++) MUST(cuEventCreate(e + i, i == 2 ? 2 : 0));
  MUST(cuEventRecord(e[0], s[0]));
  MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, s[0], (void *[]){&micros}, NULL));
  MUST(cuEventRecord(e[1], s[0]));
  int ready = cuEventQuery(e[1]), asked = cuStreamQuery(s[0]);
  MUST(cuStreamWaitEvent(NULL, e[1], 0));
  MUST(cuEventSynchronize(e[1]));
  MUST(cuEventElapsedTime(&ms, e[0], e[1]));
  printf("ready %d %d then %d %d, %s, untimed %d\n", ready, asked, cuEventQuery(e[1]), cuStreamQuery(s[0]), ms > 15 && ms < 2000 ? "20 ms" : "another time", cuEventElapsedTime(&ms, e[0], e[2]));
  MUST(cuStreamCreate(s + 1, 1));
  MUST(cuStreamBeginCapture_v2(s[1], 0));
  MUST(cuStreamIsCapturing(s[1], &status));
  fill(fillf, p, 5, N, s[1]);
  MUST(cuMemsetD32Async(p, 1, 100, s[1]));
  MUST(cuStreamEndCapture(s[1], &g));
  size_t nodes = 0;
  MUST(cuGraphGetNodes(g, NULL, &nodes));
  MUST(cuMemsetD32_v2(p, 0, N));
  uint64_t before = sum_of(p, N, NULL);
  MUST(cuGraphInstantiateWithFlags(&x, g, 0));
  MUST(cuGraphDestroy(g));
  for (int i = 0; i < 3; i++) MUST(cuGraphLaunch(x, s[1]));
  MUST(cuStreamSynchronize(s[1]));
  printf("captures %d, %zu nodes, %llu then %llu\n", status, nodes, (unsigned long long)before, (unsigned long long)sum_of(p, N, NULL));
  MUST(cuGraphExecDestroy(x));
  int mode = 2;
  MUST(cuThreadExchangeStreamCaptureMode(&mode));
  printf("mode %d\n", mode);
  MUST(cuCtxCreate_v2(&c, 0, 0));
  handle now, was;
  MUST(cuCtxGetCurrent(&now));
  ptr other = alloc(MIB);
  MUST(cuMemsetD8_v2(other, 1, MIB));
  MUST(cuCtxPushCurrent_v2(context));
  MUST(cuCtxPopCurrent_v2(&was));
  printf("contexts %d %d\n", now == c, was == context);
  uint8_t last[16] = {0};
  MUST(cuMemcpyDtoHAsync_v2(last, other + MIB - 16, 16, NULL));
  MUST(cuCtxDestroy_v2(c));
  printf("copied first %d %d\n", last[0], last[15]);
  MUST(cuCtxGetCurrent(&now));
  printf("afterwards %d, %d\n", now == context, cuCtxSynchronize());
}

static uint32_t texel(handle f, uint64_t t, uint32_t i) {
  static ptr to;
  if (!to) to = alloc(400);
  uint32_t n = 100, got[100];
  MUST(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&t, &to, &n}, NULL));
  MUST(cuMemcpyDtoH_v2(got, to, sizeof got));
  return got[i];
}

static void textures(void) {
  enum { W = 64, H = 1 };
  struct { size_t w, h; int format; unsigned channels; } shape = {W, H, 3, 1};
  struct { int type; union { handle array; struct { ptr at; int format; unsigned channels; size_t n; } linear; int reserved[32]; } of; unsigned flags; } of = {0};
  struct { int modes[3], filter; unsigned flags, anisotropy; int mipmaps; float levels[3]; uint32_t border[4]; int reserved[12]; } how = {.border = {1234}};
  struct { int format; size_t w, h, d; unsigned some[4], reserved[16]; } view = {.w = 8, .h = 1};
  uint32_t data[W * H], in[100];
  uint64_t t, s, none;
  handle a, f = function(code, "texels");
  for (uint32_t i = 0; i < W * H; i++) data[i] = 7 * i;
  MUST(cuArrayCreate_v2(&a, &shape));
  for (size_t y = 0; y < H; y++) MUST(cuMemcpyHtoA_v2(a, y * W * 4, data + y * W, W * 4));
  of.of.array = a;
  MUST(cuTexObjectCreate(&t, &of, &how, NULL));
  printf("array %u %u, border %u\n", texel(f, t, 0), texel(f, t, 15), texel(f, t, 99));
  SAY(cuSurfObjectDestroy(t));
  MUST(cuTexObjectDestroy(t));
  SAY(cuTexObjectDestroy(t));
  MUST(cuTexObjectCreate(&t, &of, &how, &view));
  printf("a view of it %u %u\n", texel(f, t, 7), texel(f, t, 8));
  MUST(cuSurfObjectCreate(&s, &of));
  printf("surface %u\n", texel(f, s, 9));
  MUST(cuSurfObjectDestroy(s)), MUST(cuTexObjectDestroy(t)), MUST(cuArrayDestroy(a));
  SAY(cuTexObjectCreate(&none, &of, &how, NULL)); /* of an array that is no more */
  for (uint32_t i = 0; i < 100; i++) in[i] = 1000 + i;
  ptr p = alloc(400);
  MUST(cuMemcpyHtoD_v2(p, in, sizeof in));
  of.type = 2, of.of.linear.at = p, of.of.linear.format = 3, of.of.linear.channels = 1, of.of.linear.n = 200;
  MUST(cuTexObjectCreate(&t, &of, &how, NULL));
  printf("memory %u, border %u\n", texel(f, t, 49), texel(f, t, 50));
  MUST(cuTexObjectDestroy(t));
  SAY(cuSurfObjectCreate(&none, &of)), SAY(cuTexObjectCreate(NULL, &of, &how, NULL)), SAY(cuTexObjectCreate(&none, NULL, &how, NULL)), SAY(cuTexObjectCreate(&none, &of, NULL, NULL));
  of.type = 9;
  SAY(cuTexObjectCreate(&none, &of, &how, NULL));
  uint64_t map[17 + 8], sizes[5] = {64, 32, 8, 4, 2}, strides[4] = {256, 8192, 65536, 262144}, *m = (uint64_t *)(((uintptr_t)map + 63) / 64 * 64);
  uint32_t box[5] = {16, 8, 4, 2, 1}, steps[5] = {1, 1, 1, 1, 1};
  int low[3] = {-1, -1, 0}, high[3] = {1, 1, 0};
  for (unsigned rank = 1; rank <= 5; rank++) {
    MUST(cuTensorMapEncodeTiled(m, 7, rank, (void *)p, sizes, rank > 1 ? strides : NULL, box, steps, 0, 1, 2, 0));
    printf("map of %u: %d %llx\n", rank, m[0] == p, (unsigned long long)m[1]);
    if (rank < 3) continue;
    MUST(cuTensorMapEncodeIm2col(m, 7, rank, (void *)p, sizes, strides, low, high, 32, 64, steps, 0, 1, 2, 0));
    printf("of columns: %d %llx\n", m[0] == p, (unsigned long long)m[1]);
  }
  MUST(cuTensorMapReplaceAddress(m, (void *)(p + 64)));
  printf("elsewhere %d %llx\n", m[0] == p + 64, (unsigned long long)m[1]);
  SAY(cuTensorMapEncodeTiled(m, 7, 0, (void *)p, sizes, strides, box, steps, 0, 1, 2, 0)), SAY(cuTensorMapEncodeTiled(m, 7, 6, (void *)p, sizes, strides, box, steps, 0, 1, 2, 0));
  SAY(cuTensorMapEncodeTiled((char *)m + 8, 7, 1, (void *)p, sizes, strides, box, steps, 0, 1, 2, 0)), SAY(cuTensorMapEncodeTiled(m, 77, 1, (void *)p, sizes, strides, box, steps, 0, 1, 2, 0));
}

static void memory(void) {
  struct { int type, handles, location, id; char more[16]; } how = {1, 0, 1, 0, {0}};
  struct { int location, id, flags; } access = {1, 0, 3};
  size_t unit;
  uint64_t h, threshold = 1 << 20, got = 0;
  ptr p, a, base;
  handle pool, s;
  MUST(cuMemGetAllocationGranularity(&unit, &how, 0));
  MUST(cuMemAddressReserve(&p, 4 * unit, 0, 0, 0));
  MUST(cuMemCreate(&h, unit, &how, 0));
  MUST(cuMemMap(p, unit, 0, h, 0));
  MUST(cuMemSetAccess(p, unit, &access, 1));
  MUST(cuMemRelease(h));
  MUST(cuMemsetD32_v2(p, 3, 1000));
  printf("mapped %zu, sum %llu\n", unit, (unsigned long long)sum_of(p, 1000, NULL));
  MUST(cuMemUnmap(p, unit));
  MUST(cuMemAddressFree(p, 4 * unit));
  MUST(cuDeviceGetDefaultMemPool(&pool, 0));
  MUST(cuMemPoolSetAttribute(pool, 4, &threshold)), MUST(cuMemPoolGetAttribute(pool, 4, &got)), MUST(cuMemPoolTrimTo(pool, 0)); /* a slice's pool keeps less */
  MUST(cuStreamCreate(&s, 0));
  MUST(cuMemAllocAsync(&a, 4000, s));
  MUST(cuMemsetD32Async(a, 2, 1000, s));
  printf("threshold %d, sum %llu\n", got <= threshold, (unsigned long long)sum_of(a, 1000, s));
  size_t n;
  MUST(cuMemGetAddressRange_v2(&base, &n, a + 100));
  printf("range %d %zu\n", base == a, n);
  MUST(cuMemFreeAsync(a, s));
  void *host;
  MUST(cuMemAllocHost_v2(&host, 4096));
  memset(host, 1, 4096);
  ptr d = alloc(4096);
  MUST(cuMemcpyHtoDAsync_v2(d, host, 4096, s));
  MUST(cuStreamSynchronize(s));
  printf("host %llu\n", (unsigned long long)sum_of(d, 1024, NULL));
  MUST(cuMemFreeHost(host));
}

static void jit(void) {
  char log[64] = "", errors[64] = "";
  int options[] = {3, 4, 5, 6};
  void *values[] = {log, (void *)sizeof log, errors, (void *)sizeof errors};
  handle m, l;
  int r = cuModuleLoadDataEx(&m, code, 4, options, values);
  printf("%d %s %d\n", r, log, (int)(uintptr_t)values[1]);
  values[1] = values[3] = (void *)sizeof log;
  r = cuModuleLoadDataEx(&m, "fake: wrong", 4, options, values);
  printf("%d %s %d\n", r, errors, (int)(uintptr_t)values[3]);
  void *linked;
  size_t n;
  MUST(cuLinkCreate_v2(0, NULL, NULL, &l));
  MUST(cuLinkAddData_v2(l, 1, "fake: saxpy ", 13, "a", 0, NULL, NULL));
  MUST(cuLinkAddData_v2(l, 1, "fill", 5, "b", 0, NULL, NULL));
  MUST(cuLinkComplete(l, &linked, &n));
  printf("linked %zu %s\n", n, (char *)linked);
  function(linked, "fill");
  MUST(cuLinkDestroy(l));
}

static void late(void) { /* what goes wrong later is told later, for good */
  handle wild = function(code, "wild");
  ptr p = alloc(64);
  printf("launched %d\n", cuLaunchKernel(wild, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  printf("then %d", cuCtxSynchronize());
  char text[8];
  printf(" %d", cuMemcpyDtoH_v2(text, p, 8));
  printf(" %d", cuMemAlloc_v2(&p, 64));
  printf(" %d\n", cuCtxSynchronize());
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  const char *what = argv[1];
  double number = argc > 2 ? atof(argv[2]) : 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!strcmp(what, "wrong")) return wrong(), 0;
  if (!strcmp(what, "open")) { /* the driver by its whole name */
    void *lib = dlopen(argv[2], RTLD_NOW);
    int (*init)(unsigned) = NULL;
    if (lib) *(void **)&init = dlsym(lib, "cuInit");
    printf("%s\n", !init ? "nothing" : init(0) ? "no driver" : init == cuInit ? "the same driver" : "another driver");
    return 0;
  }
  begin();
  if (!strcmp(what, "compute")) compute(argv[2]);
  else if (!strcmp(what, "copies")) copies();
  else if (!strcmp(what, "threads")) threads((int)number);
  else if (!strcmp(what, "streams")) streams();
  else if (!strcmp(what, "memory")) memory();
  else if (!strcmp(what, "textures")) textures();
  else if (!strcmp(what, "jit")) jit();
  else if (!strcmp(what, "late")) late();
  else if (!strcmp(what, "proc")) { /* functions in the form that a version has */
    void *lib = dlopen("libcuda.so.1", RTLD_NOW), *f;
    int (*proc)(const char *, void **, int, uint64_t, int *), status;
    *(void **)&proc = dlsym(lib, "cuGetProcAddress_v2");
    static const struct { const char *name, *symbol; int version; uint64_t flags; } all[] = {
        {"cuMemAlloc", "cuMemAlloc_v2", 12040, 0}, {"cuMemAlloc", "cuMemAlloc", 2000, 0}, {"cuMemAllocAsync", "", 11010, 0}, {"cuLinkCreate", "cuLinkCreate", 6000, 0}, {"cuStreamWaitValue32", "cuStreamWaitValue32_ptsz", 11060, 3}, {"cuCtxCreate", "cuCtxCreate_v2", 11000, 0}, {"cuCtxCreate", "cuCtxCreate_v3", 12000, 0}, {"cuLaunchKernel", "cuLaunchKernel_ptsz", 12000, 2},
        {"cuMemcpyHtoD", "cuMemcpyHtoD_v2_ptds", 12000, 2}, {"cuGraphInstantiate", "cuGraphInstantiate_v2", 12000, 0}, {"cuGraphInstantiate", "cuGraphInstantiate_v2", 11000, 0}, {"cuNobody", "", 12000, 0},
        {"cuGetProcAddress", "cuGetProcAddress_v2", 12000, 0}, {"cuGetProcAddress", "cuGetProcAddress", 11040, 0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
      int r = proc(all[i].name, &f, all[i].version, all[i].flags, &status);
      void *want = *all[i].symbol ? dlsym(lib, all[i].symbol) : NULL;
      printf("%s %d: %d %d %s\n", all[i].name, all[i].version, r, status, f == want ? "right" : "wrong");
    }
    int (*table)(const void **, const void *);
    const void *t;
    *(void **)&table = dlsym(lib, "cuGetExportTable");
    printf("table %d\n", table(&t, "0123456789abcdef"));
    int (*peer)(int *, int, int), (*managed)(ptr *, size_t, unsigned), (*register_)(void *, size_t, unsigned), (*unregister)(void *), (*attribute)(void *, int, ptr), (*host)(handle, void (*)(void *), void *), can;
    *(void **)&peer = dlsym(lib, "cuDeviceCanAccessPeer"), *(void **)&managed = dlsym(lib, "cuMemAllocManaged"), *(void **)&register_ = dlsym(lib, "cuMemHostRegister_v2"), *(void **)&unregister = dlsym(lib, "cuMemHostUnregister");
    *(void **)&attribute = dlsym(lib, "cuPointerGetAttribute"), *(void **)&host = dlsym(lib, "cuLaunchHostFunc");
    ptr p = alloc(5000), start;
    static char page[8192];
    unsigned type, host_type;
    size_t n;
    printf("peer %d %d, managed %d\n", peer(&can, 0, 0), can, managed(&start, 5, 1));
    int r[8], i = 0; /* one after the other */
    r[i++] = register_(page, sizeof page, 0), r[i++] = register_(page + 8, 8, 0), r[i++] = attribute(&host_type, 2, (ptr)(uintptr_t)page);
    r[i++] = unregister(page), r[i++] = unregister(page), r[i++] = attribute(&type, 2, (ptr)(uintptr_t)page);
    printf("registered %d %d, %d %u\nunregistered %d %d %d\n", r[0], r[1], r[2], host_type, r[3], r[4], r[5]);
    i = 0, r[i++] = attribute(&type, 2, p + 10), r[i++] = attribute(&start, 11, p + 10), r[i++] = attribute(&n, 12, p);
    printf("pointer %d %u, %d %d, %d %zu\n", r[0], type, r[1], start == p, r[2], n);
    printf("called %d", host(NULL, (void (*)(void *))(uintptr_t)puts, " by the stream"));
    printf(" %d\n", host(NULL, NULL, NULL));
    int (*launch)(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **), (*out)(void *, ptr, size_t), (*finish)(handle);
    MUST(proc("cuLaunchKernel", (void **)&launch, 12000, 2, NULL)), MUST(proc("cuMemcpyDtoH", (void **)&out, 12000, 2, NULL)), MUST(proc("cuStreamSynchronize", (void **)&finish, 12000, 2, NULL));
    uint32_t v = 40, count = 10, got[10];
    MUST(launch(function(code, "fill"), 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&p, &v, &count}, NULL)), MUST(finish(NULL)), MUST(out(got, p, sizeof got));
    printf("its own stream %u %u\n", got[0], got[9]);
    int (*shape)(handle, int, int, int), (*room)(handle, unsigned), (*setv)(handle, int, void *, unsigned), (*seti)(handle, int, unsigned), (*grid)(handle, int, int); /* as before CUDA 4 */
    *(void **)&shape = dlsym(lib, "cuFuncSetBlockShape"), *(void **)&room = dlsym(lib, "cuParamSetSize"), *(void **)&setv = dlsym(lib, "cuParamSetv"), *(void **)&seti = dlsym(lib, "cuParamSeti");
    *(void **)&grid = dlsym(lib, "cuLaunchGrid");
    handle fill = function(code, "fill");
    printf("before: no shape %d, ", grid(fill, 1, 1));
    printf("wrong %d %d %d %d %d, ", shape(fill, 1, 0, 1), room(fill, 4097), setv(fill, 4090, &v, 8), setv(fill, -1, &v, 4), shape(NULL, 1, 1, 1));
    MUST(shape(fill, 1, 1, 1)), MUST(setv(fill, 0, &p, sizeof p)), MUST(seti(fill, 8, 70)), MUST(seti(fill, 12, 10)), MUST(room(fill, 16)), MUST(grid(fill, 1, 1)), MUST(out(got, p, sizeof got));
    printf("right %u %u\n", got[0], got[9]);
    int (*create)(handle *, unsigned, int), (*detach)(handle), (*current)(handle *);
    *(void **)&create = dlsym(lib, "cuCtxCreate_v2"), *(void **)&detach = dlsym(lib, "cuCtxDetach"), *(void **)&current = dlsym(lib, "cuCtxGetCurrent");
    handle own, now;
    MUST(create(&own, 0, 0)), MUST(detach(own)), MUST(current(&now));
    printf("detached, and as before %d, again %d\n", now == context, detach(own));
    int device;
    char attributes[3] = {16, 75, 83};
    for (i = 0; i < 3; i++) MUST(cuDeviceGetAttribute(&device, attributes[i], 0)), printf("attribute %d: %d\n", attributes[i], device);
  } else if (!strcmp(what, "fill") || !strcmp(what, "hold")) { /* MiB after MiB; then, of hold, until its input is closed */
    ptr p[4096];
    int n = 0, r = 0, most = *what == 'h' ? (int)number : 4096;
    while (n < most && !(r = cuMemAlloc_v2(p + n, MIB))) n++;
    printf("filled %d, error %d\n", n, r);
    char c;
    while (*what == 'h' && read(0, &c, 1) > 0) {
      size_t left, all;
      if (c == 'u') printf("free %d\n", cuMemGetInfo_v2(&left, &all) ? -1 : (int)(left / MIB));
      if (c == 'm') printf("more %d\n", cuMemAlloc_v2(p, MIB));
      if (c == 'h') printf("heap %d\n", cuCtxSetLimit(2, 10 * MIB));
      if (c == 's') printf("synchronized %d\n", cuCtxSynchronize());
    }
    if (*what == 'f') MUST(cuMemFree_v2(p[0])), printf("again %d\n", cuMemAlloc_v2(p, MIB));
  } else if (!strcmp(what, "spin")) { /* kernels of so many microseconds, for so long */
    handle f = function(code, "spin");
    uint64_t micros = (uint64_t)number, k = 0;
    double end = seconds() + (argc > 3 ? atof(argv[3]) : 1);
    for (; seconds() < end; k++) {
      MUST(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&micros}, NULL));
      if (k % 8 == 7) MUST(cuCtxSynchronize());
    }
    MUST(cuCtxSynchronize());
    printf("kernels %llu\n", (unsigned long long)k);
  } else if (!strcmp(what, "loads")) { /* kernels one after the other, each for the first time; the first takes so many microseconds */
    uint64_t micros = (uint64_t)number;
    ptr p = alloc(400);
    MUST(cuLaunchKernel(function(code, "spin"), 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&micros}, NULL));
    fill(function(code, "fill"), p, 249, 100, NULL);
    printf("sum %llu\n", (unsigned long long)sum_of(p, 100, NULL));
  } else if (!strcmp(what, "soon")) { /* a kernel runs though nothing is waited for */
    handle f = function(code, "spin"), e;
    uint64_t micros = 5000;
    int ran = 0;
    MUST(cuEventCreate(&e, 0));
    for (int i = 0; i < 10; i++) {
      for (int k = 0; k < 3; k++) MUST(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&micros}, NULL));
      MUST(cuEventRecord(e, NULL));
      usleep(100000);
      ran += !cuEventQuery(e); /* it would not be, if they had been sent just now */
      MUST(cuCtxSynchronize());
    }
    printf("%s\n", ran >= 8 ? "ran" : "did not run"); /* the machine does other things */
  } else if (!strcmp(what, "fork")) { /* a child that starts anew */
    ptr p = alloc(MIB);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
      printf("in the child %d", cuMemAlloc_v2(&p, MIB));
      begin();
      printf(", then %llu\n", (unsigned long long)(fill(function(code, "fill"), alloc(400), 1, 100, NULL), 0));
      fflush(stdout);
      _exit(cuCtxSynchronize());
    }
    int status;
    waitpid(child, &status, 0);
    MUST(cuMemsetD32_v2(p, 1, 100));
    printf("the child %d, the parent %llu\n", status, (unsigned long long)sum_of(p, 100, NULL));
  } else if (!strcmp(what, "crash")) {
    handle f = function(code, "crash");
    printf("launched %d\n", cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    printf("then %d\n", cuCtxSynchronize());
  } else if (!strcmp(what, "costs")) {
    enum { TIMES = 20000 };
    handle f = function(code, "spin");
    uint64_t none = 0;
    ptr p;
    double in = 0, t;
    char *buffer = malloc(64 << 20);
    memset(buffer, 1, 64 << 20);
    for (int i = 0; i < TIMES; i++) {
      t = seconds();
      MUST(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&none}, NULL));
      in += seconds() - t;
      if (i % 64 == 63) MUST(cuCtxSynchronize());
    }
    printf("launch_us %.3f\n", 1e6 * in / TIMES);
    t = seconds();
    for (int i = 0; i < 2000; i++) MUST(cuCtxSynchronize());
    printf("synchronize_us %.3f\n", 1e6 * (seconds() - t) / 2000);
    t = seconds();
    for (int i = 0; i < 2000; i++) MUST(cuMemAlloc_v2(&p, MIB)), MUST(cuMemFree_v2(p));
    printf("memory_us %.3f\n", 1e6 * (seconds() - t) / 2000);
    p = alloc(64 << 20);
    for (int k = 0; k < 2; k++) {
      t = seconds();
      for (int i = 0; i < 4; i++) MUST(k ? cuMemcpyDtoH_v2(buffer, p, 64 << 20) : cuMemcpyHtoD_v2(p, buffer, 64 << 20));
      printf("%s_gbps %.2f\n", k ? "read" : "write", 4 * 64.0 / 1024 / (seconds() - t) * 1.073741824);
    }
  }
  return 0;
}
