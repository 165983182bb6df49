/* A program that uses shared virtual memory, of the coarse-grained kind, as tests
 * run it natively and in the pool:
 *
 *   same             computes in many ways, and prints what came of it
 *   fill MiB [wait]  makes regions of 1 MiB until one fails, prints how many there were, and how
 *                    many more there are after half were freed; waits for a line before that
 *   walk [MiB]       computes until a line is typed, checks every step, and prints how many there
 *                    were and the longest of them in milliseconds
 *   taken            makes regions where it has something already, and prints how many were there
 *   cards            prints whether it is offered, and by a context over all devices
 *
 * With "all" as last argument its context is over all devices, which take turns.
 */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef struct node {
  cl_ulong value;
  struct node *next;
} node;

static cl_context context;
static cl_command_queue queue, queues[4];
static cl_device_id devices[4];
static cl_uint count;
static cl_program program;
static volatile int told;

static const char *source = "typedef struct node { ulong value; global struct node *next; } node;\n"
                            "kernel void follow(global node *p, uint add) { for (; p; p = p->next) p->value = p->value * 3 + add; }\n"
                            "kernel void point(global node *p, global char *where, ulong n) { p->next = (global node *)(where + n); }\n"
                            "kernel void advance(global uint *x, uint round) { size_t i = get_global_id(0); x[i] = x[i] * 1664525u + 1013904223u + round; }\n";

static void must(cl_int e, const char *what) {
  if (e == CL_SUCCESS) return;
  printf("failed %s %d\n", what, e);
  exit(1);
}

static void right(int ok, const char *what) {
  if (ok) return;
  printf("wrong %s\n", what);
  exit(1);
}

static uint64_t sum(const void *p, size_t n) {
  const uint8_t *b = p;
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < n; i++) h = (h ^ b[i]) * 1099511628211u;
  return h;
}

static void start(int all) {
  cl_platform_id platform;
  cl_int e;
  must(clGetPlatformIDs(1, &platform, NULL), "platform");
  must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 4, devices, &count), "device");
  if (!all) count = 1;
  context = clCreateContext(NULL, count, devices, NULL, NULL, &e);
  must(e, "context");
  for (cl_uint i = 0; i < count; i++) queues[i] = clCreateCommandQueue(context, devices[i], 0, &e), must(e, "queue");
  queue = queues[0];
  program = clCreateProgramWithSource(context, 1, &source, NULL, &e);
  must(e, "program");
  must(clBuildProgram(program, 0, NULL, "", NULL, NULL), "build");
}

static cl_kernel kernel(const char *name) {
  cl_int e;
  cl_kernel k = clCreateKernel(program, name, &e);
  must(e, name);
  return k;
}

static void *svm(size_t n) {
  void *p = clSVMAlloc(context, CL_MEM_READ_WRITE, n, 0);
  right(p != NULL, "memory");
  return p;
}

/* turn goes on at the next device. */
static void turn(void) {
  static cl_uint at;
  if (count == 1) return;
  must(clFinish(queue), "finish");
  queue = queues[++at % count];
}

static void map(void *p, size_t n, cl_map_flags how) { turn(), must(clEnqueueSVMMap(queue, CL_TRUE, how, p, n, 0, NULL, NULL), "map"); }
static void unmap(void *p) { must(clEnqueueSVMUnmap(queue, p, 0, NULL, NULL), "unmap"); }
static void run(cl_kernel k, size_t at, size_t n) { turn(), must(clEnqueueNDRangeKernel(queue, k, 1, at ? &at : NULL, &n, NULL, 0, NULL, NULL), "run"); }

static void point_to(cl_kernel k, cl_uint i, const void *p) { must(clSetKernelArgSVMPointer(k, i, p), "pointer"); }
static void value(cl_kernel k, cl_uint i, size_t n, const void *v) { must(clSetKernelArg(k, i, n, v), "argument"); }

static void type(const char *what, cl_event e) {
  cl_command_type t = 0;
  must(clWaitForEvents(1, &e), what);
  must(clGetEventInfo(e, CL_EVENT_COMMAND_TYPE, sizeof t, &t, NULL), "type");
  printf("%s is %x\n", what, t);
  must(clReleaseEvent(e), "release");
}

/* lists: what points from one region to others, and the kernel's pointers, are the program's. */
static void lists(void) {
  enum { REGIONS = 6, NODES = 40 };
  const size_t sizes[REGIONS] = {16, 4096, 4112, 100000, 1 << 20, 64};
  char *at[REGIONS];
  node *all[NODES];
  cl_kernel follow = kernel("follow"), point = kernel("point");
  for (int i = 0; i < REGIONS; i++) at[i] = svm(sizes[i]), map(at[i], sizes[i], CL_MAP_WRITE_INVALIDATE_REGION), memset(at[i], i, sizes[i]);
  int n = 0;
  for (int i = 0; n < NODES; i++) {
    size_t where = (size_t)i / REGIONS * 3200;
    if (where + sizeof(node) <= sizes[i % REGIONS]) all[n++] = (node *)(void *)(at[i % REGIONS] + where);
  }
  for (int i = 0; i < n; i++) *all[i] = (node){(cl_ulong)i * 1000003, i + 1 < n ? all[i + 1] : NULL};
  for (int i = 0; i < REGIONS; i++) unmap(at[i]);
  must(clSetKernelExecInfo(follow, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof at, at), "reached");
  for (cl_uint round = 0; round < 3; round++) {
    point_to(follow, 0, all[round]), value(follow, 1, sizeof round, &round); /* also inside of a region */
    run(follow, 0, 1);
  }
  uint64_t h = 0;
  for (int i = 0; i < REGIONS; i++) map(at[i], sizes[i], CL_MAP_READ | CL_MAP_WRITE);
  for (int i = 0; i < n; i++) h = h * 31 + all[i]->value;
  printf("lists %016llx\n", (unsigned long long)h);
  for (int i = 0; i < REGIONS; i++) unmap(at[i]);
  const cl_ulong far = 99990;
  point_to(point, 0, all[7]), point_to(point, 1, at[3]), value(point, 2, sizeof far, &far);
  run(point, 0, 1);
  map(all[7], sizeof(node), CL_MAP_READ);
  printf("points %td bytes from the region\n", (char *)all[7]->next - at[3]);
  unmap(all[7]);
  must(clFinish(queue), "finish");
  for (int i = 0; i < REGIONS; i++) clSVMFree(context, at[i]);
  must(clReleaseKernel(follow), "release"), must(clReleaseKernel(point), "release");
}

/* copies: from where to where may be the program's or shared. */
static void copies(void) {
  enum { N = 200000 };
  uint8_t *in = malloc(N), *out = calloc(1, N), *more = calloc(1, N), *a = svm(N), *b = svm(N);
  for (size_t i = 0; i < N; i++) in[i] = (uint8_t)(i * 7 + i / 256);
  cl_event e[8];
  must(clEnqueueSVMMemcpy(queue, CL_FALSE, a, in, N, 0, NULL, &e[0]), "in");
  must(clEnqueueSVMMemcpy(queue, CL_FALSE, b, a, N, 1, e, &e[1]), "across");
  must(clEnqueueSVMMemFill(queue, b + 64, "\1\2\3\4", 4, 64, 0, NULL, &e[2]), "fill");
  must(clEnqueueSVMMemFill(queue, b + 1024, "0123456789abcdef", 16, 160, 1, &e[1], NULL), "fill");
  must(clEnqueueSVMMemcpy(queue, CL_FALSE, a + 11, b + 1000, 100000, 0, NULL, NULL), "part");
  must(clEnqueueSVMMemcpy(queue, CL_FALSE, out, b, N, 0, NULL, NULL), "out");
  must(clEnqueueSVMMemcpy(queue, CL_FALSE, more, out, N, 0, NULL, &e[3]), "not shared at all");
  const void *list[] = {a, b + 4096};
  const size_t sizes[] = {0, 100};
  must(clEnqueueSVMMigrateMem(queue, 2, list, sizes, 0, 0, NULL, &e[4]), "migrate");
  must(clEnqueueSVMMap(queue, CL_FALSE, CL_MAP_READ | CL_MAP_WRITE, a + 5, 70000, 1, &e[3], &e[5]), "map");
  type("in", e[0]), type("across", e[1]), type("fill", e[2]), type("not shared", e[3]), type("migrate", e[4]), type("map", e[5]);
  printf("copies %016llx %016llx %d\n", (unsigned long long)sum(out, N), (unsigned long long)sum(a + 5, 70000), memcmp(out, more, N));
  a[6] ^= 0x55;
  must(clEnqueueSVMUnmap(queue, a + 5, 0, NULL, &e[6]), "unmap");
  type("unmap", e[6]);
  must(clEnqueueSVMMemcpy(queue, CL_TRUE, in, a, N, 0, NULL, NULL), "out");
  printf("changed %016llx\n", (unsigned long long)sum(in, N));
  must(clEnqueueSVMMemcpy(queue, CL_TRUE, out, in, N, 0, NULL, NULL), "blocking");
  must(clEnqueueSVMMemcpy(queue, CL_TRUE, b, a, N / 2, 0, NULL, NULL), "blocking");
  printf("blocking %d\n", memcmp(out, in, N));
  clSVMFree(context, a), clSVMFree(context, b), clSVMFree(context, NULL);
  free(in), free(out), free(more);
}

/* buffers: shared memory is a buffer's, too, and what kernels write to one is in the other. */
static void buffers(void) {
  enum { N = 64 << 10 };
  cl_uint *p = svm(N), round = 3;
  cl_int e;
  map(p, N, CL_MAP_WRITE);
  for (cl_uint i = 0; i < N / sizeof *p; i++) p[i] = i;
  unmap(p);
  cl_mem m = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, N, p, &e);
  must(e, "buffer");
  cl_buffer_region half = {N / 2, N / 4};
  cl_mem part = clCreateSubBuffer(m, 0, CL_BUFFER_CREATE_TYPE_REGION, &half, &e), plain = clCreateBuffer(context, 0, N, NULL, &e);
  must(e, "part");
  cl_bool uses = 7, does_not = 7;
  void *host = NULL;
  cl_mem whole = m;
  must(clGetMemObjectInfo(m, CL_MEM_USES_SVM_POINTER, sizeof uses, &uses, NULL), "info"), must(clGetMemObjectInfo(plain, CL_MEM_USES_SVM_POINTER, sizeof uses, &does_not, NULL), "info");
  must(clGetMemObjectInfo(m, CL_MEM_HOST_PTR, sizeof host, &host, NULL), "info"), must(clGetMemObjectInfo(m, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof whole, &whole, NULL), "info");
  printf("uses %u %u, host %d, of %d\n", uses, does_not, host == p, whole == NULL);
  cl_kernel advance = kernel("advance");
  value(advance, 0, sizeof m, &m), value(advance, 1, sizeof round, &round), run(advance, 0, N / sizeof *p);
  value(advance, 0, sizeof part, &part), run(advance, 0, N / 4 / sizeof *p);
  point_to(advance, 0, p + 100), run(advance, 0, 1000);
  cl_uint *q = clEnqueueMapBuffer(queue, m, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, N, 0, NULL, NULL, &e);
  must(e, "map");
  printf("mapped there %d, %016llx\n", q == p, (unsigned long long)sum(p, N));
  q[17] = 4;
  must(clEnqueueUnmapMemObject(queue, m, q, 0, NULL, NULL), "unmap");
  must(clEnqueueFillBuffer(queue, part, "\7", 1, 0, 128, 0, NULL, NULL), "fill");
  map(p, N, CL_MAP_READ);
  printf("buffers %016llx\n", (unsigned long long)sum(p, N));
  unmap(p);
  must(clReleaseMemObject(part), "release"), must(clReleaseMemObject(m), "release"), must(clReleaseMemObject(plain), "release"), must(clReleaseKernel(advance), "release");
  must(clFinish(queue), "finish");
  clSVMFree(context, p);
}

static void CL_CALLBACK freed(cl_command_queue q, cl_uint n, void *list[], void *data) {
  for (cl_uint i = 0; i < n; i++) clSVMFree(context, list[i]);
  printf("freed %u of queue %d: %s\n", n, q == queue, (char *)data);
}

static void frees(void) {
  cl_event e, own;
  cl_int bad, status = 77;
  void *some[] = {svm(100), svm(50000)}, *alone = svm(1 << 20), *late = svm(64);
  must(clEnqueueSVMFree(queue, 2, some, freed, "by a callback", 0, NULL, &e), "free");
  type("free", e);
  must(clEnqueueSVMFree(queue, 1, &alone, NULL, NULL, 0, NULL, &e), "free");
  must(clFinish(queue), "finish");
  must(clGetEventInfo(e, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL), "status");
  own = clCreateUserEvent(context, &bad);
  must(bad, "event");
  must(clEnqueueSVMFree(queue, 1, &late, freed, "when it may", 1, &own, NULL), "free");
  printf("the second %d, before the third\n", status);
  must(clSetUserEventStatus(own, CL_COMPLETE), "set");
  must(clFinish(queue), "finish");
  puts("all");
  must(clReleaseEvent(e), "release"), must(clReleaseEvent(own), "release");
}

static void fill(size_t mib, int waits) {
  void **all = calloc(mib, sizeof *all);
  size_t n = 0, more = 0;
  while (n < mib && (all[n] = clSVMAlloc(context, CL_MEM_READ_WRITE, 1 << 20, 0))) n++;
  printf("regions %zu\n", n), fflush(stdout);
  if (waits) getchar();
  for (size_t i = 0; i < n / 2; i++) clSVMFree(context, all[i]);
  while (more < mib && clSVMAlloc(context, CL_MEM_READ_WRITE, 1 << 20, 0)) more++;
  printf("more %zu\n", more);
}

static void *listens(void *p) {
  getchar();
  told = 1;
  return p;
}

static void walk(size_t mib) {
  enum { REGIONS = 4, WINDOW = 8192, NODES = 500, HELD = 100000 };
  size_t n = (mib << 20) / REGIONS / sizeof(cl_uint);
  cl_uint *at[REGIONS], *mirror[REGIONS];
  cl_ulong values[NODES];
  node *first[REGIONS]; /* at the end of each */
  for (int r = 0; r < REGIONS; r++) {
    at[r] = svm(n * sizeof(cl_uint) + NODES * sizeof(node)), mirror[r] = malloc(n * sizeof(cl_uint)), first[r] = (node *)(void *)(at[r] + n);
    map(at[r], n * sizeof(cl_uint) + NODES * sizeof(node), CL_MAP_WRITE_INVALIDATE_REGION);
  }
  for (int r = 0; r < REGIONS; r++) {
    for (size_t i = 0; i < n; i++) at[r][i] = mirror[r][i] = (cl_uint)(i * 2654435761u) + (cl_uint)r;
    for (int i = 0; i < NODES; i++) first[r][i] = (node){values[i] = (cl_ulong)i, NULL};
  }
  for (int i = 0; i < NODES; i++) first[i % REGIONS][i].next = i + 1 < NODES ? &first[(i + 1) % REGIONS][i + 1] : NULL;
  for (int r = 0; r < REGIONS; r++) unmap(at[r]);
  uint8_t *held = svm(HELD);
  map(held, HELD, CL_MAP_WRITE_INVALIDATE_REGION), memset(held, 1, HELD);
  cl_kernel follow = kernel("follow"), advance = kernel("advance");
  cl_int e;
  cl_mem of = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, n * sizeof(cl_uint), at[3], &e);
  must(e, "buffer");
  must(clSetKernelExecInfo(follow, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof at, at), "reached");
  point_to(follow, 0, first[0]);
  pthread_t t;
  pthread_create(&t, NULL, listens, NULL);
  double longest = 0;
  cl_uint round = 0;
  puts("walking"), fflush(stdout);
  for (; !told; round++) {
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    int r = (int)round % REGIONS;
    size_t from = (size_t)round * WINDOW % n / WINDOW * WINDOW, size = from + WINDOW <= n ? WINDOW : n - from;
    if (r == 3) value(advance, 0, sizeof of, &of);
    else point_to(advance, 0, at[r]);
    value(advance, 1, sizeof round, &round), value(follow, 1, sizeof round, &round);
    run(advance, from, size), run(follow, 0, 1);
    for (size_t i = from; i < from + size; i++) mirror[r][i] = mirror[r][i] * 1664525u + 1013904223u + round;
    for (int i = 0; i < NODES; i++) values[i] = values[i] * 3 + round;
    map(at[r] + from, size * sizeof(cl_uint), CL_MAP_READ | CL_MAP_WRITE);
    right(!memcmp(at[r] + from, mirror[r] + from, size * sizeof(cl_uint)), "window");
    at[r][from + round % size] = mirror[r][from + round % size] = round;
    unmap(at[r] + from);
    int k = (int)round % NODES;
    node one;
    must(clEnqueueSVMMemcpy(queue, CL_TRUE, &one, &first[k % REGIONS][k], sizeof one, 0, NULL, NULL), "read");
    right(one.value == values[k] && one.next == (k + 1 < NODES ? &first[(k + 1) % REGIONS][k + 1] : NULL), "node");
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double took = (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) / 1e9;
    if (took > longest) longest = took;
  }
  memset(held + HELD / 2, 2, HELD / 2), unmap(held);
  uint8_t back[HELD];
  must(clEnqueueSVMMemcpy(queue, CL_TRUE, back, held, HELD, 0, NULL, NULL), "read");
  right(back[0] == 1 && back[HELD / 2] == 2 && back[HELD - 1] == 2, "what was mapped");
  for (int r = 0; r < REGIONS; r++) {
    map(at[r], n * sizeof(cl_uint), CL_MAP_READ);
    right(!memcmp(at[r], mirror[r], n * sizeof(cl_uint)), "all");
    unmap(at[r]);
  }
  printf("walked %u steps, the longest %.1f ms\n", round, longest * 1e3);
}

static void taken(void) {
  enum { N = 40 };
  const size_t page = 4096, size = 300 << 10;
  void *was[N];
  int there = 0, again = 0;
  for (int i = 0; i < N; i++) was[i] = svm(size);
  for (int i = 0; i < N; i++) clSVMFree(context, was[i]);
  must(clFinish(queue), "finish");
  for (int i = 0; i < N; i++) /* where they were is taken now */
    if (mmap((void *)((uintptr_t)was[i] & ~(page - 1)), page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED) again++;
  cl_kernel advance = kernel("advance");
  for (cl_uint i = 0; i < N / 2; i++) {
    cl_uint *p = svm(size);
    map(p, size, CL_MAP_WRITE), memset(p, 0, size), unmap(p);
    point_to(advance, 0, p), value(advance, 1, sizeof i, &i), run(advance, 0, 100);
    map(p, size, CL_MAP_READ);
    there += p[99] == 1013904223u + i && p[100] == 0;
    unmap(p);
  }
  printf("taken %d, there %d\n", again, there);
}

static void cards(void) {
  cl_device_svm_capabilities has = 77;
  cl_int e;
  cl_platform_id platform;
  must(clGetPlatformIDs(1, &platform, NULL), "platform"), must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 4, devices, &count), "device");
  must(clGetDeviceInfo(devices[0], CL_DEVICE_SVM_CAPABILITIES, sizeof has, &has, NULL), "info");
  cl_context all = clCreateContext(NULL, count, devices, NULL, NULL, &e);
  must(e, "context");
  cl_command_queue q = clCreateCommandQueue(all, devices[0], 0, &e);
  must(e, "queue");
  char here[8];
  void *p = clSVMAlloc(all, CL_MEM_READ_WRITE, 64, 0);
  printf("cards %u, offers %llu, made %d, copies %d\n", count, (unsigned long long)has, p != NULL, clEnqueueSVMMemcpy(q, CL_TRUE, here, here + 4, 4, 0, NULL, NULL));
}

int main(int n, char **args) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  int all = n > 2 && !strcmp(args[n - 1], "all");
  start(all);
  n -= all;
  const char *what = n > 1 ? args[1] : "same";
  size_t much = n > 2 ? strtoul(args[2], NULL, 10) : 8;
  if (!strcmp(what, "same")) lists(), copies(), buffers(), frees();
  if (!strcmp(what, "fill")) fill(much, n > 3);
  if (!strcmp(what, "walk")) walk(much);
  if (!strcmp(what, "taken")) taken();
  if (!strcmp(what, "cards")) cards();
  return 0;
}
