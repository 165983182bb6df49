/* A program of OpenCL that the tests move while it runs. The first argument says what it does:
 *
 *   tells     prints all that OpenCL tells of programs and kernels that were made in many ways; once
 *             more for each line that is typed, of kernels that it makes anew, too
 *   gates [MiB]  over and over: has commands and threads wait for events that it does not set until a
 *             line is typed, while it computes beside them, and checks all that comes of it; so much
 *             other memory it has, too
 *   copies    for each line that is typed writes, computes on, reads and maps 4 MiB in many ways, checks
 *             them, and prints how many bytes went over sockets; the line keeps: it has a buffer mapped from
 *             then on until the next
 *   between   a thread waits for a queue that computes, and comes by another command meanwhile, which
 *             waits for an event that is set when a line is typed
 *   fails     a thread waits for a read that fails, as one of two events does that it waits for; the
 *             other is set when a line is typed; prints what became of it, and of what came after it
 */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static cl_context context;
static cl_device_id device;
static cl_command_queue queue;

static void must(cl_int e, const char *what) {
  if (e == CL_SUCCESS) return;
  printf("failed %s %d\n", what, e);
  exit(1);
}

static void start(cl_command_queue_properties how) {
  cl_platform_id platform;
  cl_int e;
  must(clGetPlatformIDs(1, &platform, NULL), "platform");
  must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
  context = clCreateContext(NULL, 1, &device, NULL, NULL, &e);
  must(e, "context");
  queue = clCreateCommandQueue(context, device, how, &e);
  must(e, "queue");
}

static const char *source = "#warning this is said of it\n"
                            "typedef struct { int a; float4 b; } pair;\n"
                            "kernel __attribute__((reqd_work_group_size(4, 2, 1))) void fixed(global const int *restrict a, global volatile float *b, constant char *c, local int *d, pair e) { b[0] = a[0] + c[0] + e.a; d[0] = 1; }\n"
                            "kernel __attribute__((work_group_size_hint(8, 1, 1))) __attribute__((vec_type_hint(float4))) void hinted(read_only image2d_t in, write_only image3d_t out, sampler_t how, uchar4 u) { (void)in; (void)out; (void)how; (void)u; }\n"
                            "kernel void plain(global uint *o, const uint n, const ulong m) { o[get_global_id(0)] = n + (uint)m; }\n"
                            "kernel void none(void) {}\n";

static void show(const char *of, unsigned what, unsigned which, cl_int e, const uint8_t *p, size_t n) {
  printf("%s %x %u: %d", of, what, which, e);
  for (size_t i = 0; !e && i < n; i++)
    if (p[i] >= ' ' && p[i] < 127 && p[i] != '\\') putchar(p[i]);
    else printf("\\%02x", p[i]);
  putchar('\n');
}

enum { MOST = 1 << 16 };
static uint8_t got[MOST];

static void kernel_tells(const char *of, cl_kernel k) {
  char name[200], text[400];
  size_t n = 0;
  cl_uint args = 0;
  must(clGetKernelInfo(k, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL), "name");
  must(clGetKernelInfo(k, CL_KERNEL_NUM_ARGS, sizeof args, &args, NULL), "arguments");
  snprintf(text, sizeof text, "%s %s", of, name);
  for (cl_kernel_info i = CL_KERNEL_FUNCTION_NAME; i <= CL_KERNEL_ATTRIBUTES; i++) {
    if (i == CL_KERNEL_CONTEXT || i == CL_KERNEL_PROGRAM || i == CL_KERNEL_REFERENCE_COUNT) continue;
    cl_int e = clGetKernelInfo(k, i, MOST, got, &n);
    show(text, i, 0, e, got, n);
  }
  for (cl_uint a = 0; a < args; a++)
    for (cl_kernel_arg_info i = CL_KERNEL_ARG_ADDRESS_QUALIFIER; i <= CL_KERNEL_ARG_NAME; i++) {
      cl_int e = clGetKernelArgInfo(k, a, i, MOST, got, &n);
      show(text, i, a, e, got, n);
    }
  for (cl_kernel_work_group_info i = CL_KERNEL_WORK_GROUP_SIZE; i <= CL_KERNEL_PRIVATE_MEM_SIZE; i++) {
    cl_int e = clGetKernelWorkGroupInfo(k, device, i, MOST, got, &n);
    show(text, i, 0, e, got, n);
  }
}

static void program_tells(const char *of, cl_program p, cl_kernel *kernels, cl_uint there) {
  size_t n = 0, size = 0;
  for (cl_program_info i = CL_PROGRAM_NUM_DEVICES; i <= CL_PROGRAM_KERNEL_NAMES; i++) {
    if (i == CL_PROGRAM_DEVICES || i == CL_PROGRAM_BINARY_SIZES || i == CL_PROGRAM_BINARIES) continue;
    cl_int e = clGetProgramInfo(p, i, MOST, got, &n);
    show(of, i, 0, e, got, n);
  }
  cl_int e = clGetProgramInfo(p, CL_PROGRAM_IL, MOST, got, &n);
  show(of, CL_PROGRAM_IL, 0, e, got, n);
  e = clGetProgramInfo(p, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL);
  printf("%s has a binary: %d %d\n", of, e, size > 0);
  for (cl_program_build_info i = CL_PROGRAM_BUILD_STATUS; i <= CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE; i++) {
    e = clGetProgramBuildInfo(p, device, i, MOST, got, &n);
    show(of, i, 0, e, got, n);
  }
  for (cl_uint i = 0; i < there; i++) kernel_tells(of, kernels[i]);
  char again[64];
  snprintf(again, sizeof again, "%s, anew", of);
  cl_kernel anew[8];
  cl_uint made = 0;
  if (clCreateKernelsInProgram(p, 8, anew, &made)) return;
  for (cl_uint i = 0; i < made; i++) kernel_tells(again, anew[i]), must(clReleaseKernel(anew[i]), "release");
}

static cl_program of_source(const char *text) {
  cl_int e;
  cl_program p = clCreateProgramWithSource(context, 1, &text, NULL, &e);
  must(e, "program");
  return p;
}

static void tells(void) {
  enum { WAYS = 9 };
  static const char *const ways[WAYS] = {"without options", "empty options", "options", "information", "not built", "not buildable", "compiled", "linked", "of a binary"};
  static const char *const options[] = {NULL, "", "-DX=1 -cl-std=CL1.2", "-cl-kernel-arg-info"};
  cl_program p[WAYS];
  cl_kernel kernels[WAYS][8];
  cl_uint there[WAYS] = {0};
  cl_int e;
  for (int i = 0; i < 4; i++) must(clBuildProgram(p[i] = of_source(source), 1, &device, options[i], NULL, NULL), "build");
  p[4] = of_source(source);
  if (!clBuildProgram(p[5] = of_source("kernel void k(global int *a) { this is wrong }"), 1, &device, "-DY", NULL, NULL)) puts("built what is wrong");
  must(clCompileProgram(p[6] = of_source(source), 1, &device, "-DZ", 0, NULL, NULL, NULL, NULL), "compile");
  p[7] = clLinkProgram(context, 1, &device, NULL, 1, &p[6], NULL, NULL, &e);
  must(e, "link");
  size_t size = 0;
  must(clGetProgramInfo(p[2], CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL), "size");
  unsigned char *binary = malloc(size);
  must(clGetProgramInfo(p[2], CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL), "binary");
  p[8] = clCreateProgramWithBinary(context, 1, &device, &size, (const unsigned char **)&binary, NULL, &e);
  must(e, "program of a binary");
  must(clBuildProgram(p[8], 1, &device, "", NULL, NULL), "build");
  for (int i = 0; i < WAYS; i++)
    if (clCreateKernelsInProgram(p[i], 8, kernels[i], &there[i])) there[i] = 0;
  do {
    for (int i = 0; i < WAYS; i++) program_tells(ways[i], p[i], kernels[i], there[i]);
    cl_program again = clLinkProgram(context, 1, &device, NULL, 1, &p[6], NULL, NULL, &e);
    printf("linked again %d\n", e);
    if (again) program_tells("linked again", again, NULL, 0), must(clReleaseProgram(again), "release");
    puts("told");
  } while (getchar() == '\n');
}

static void right(bool ok, const char *what, int round) {
  if (ok) return;
  printf("wrong %s in round %d\n", what, round);
  exit(1);
}

static const char *steps = "kernel void advance(global uint *x, uint by, global const uint *add) { size_t i = get_global_id(0); x[i] = x[i] * 1664525u + 1013904223u + by + add[i & 15]; }\n";
enum { N = 16384, BYTES = N * sizeof(cl_uint) }; /* enough to be shared where that can be */
static cl_program program;
static cl_uint adds[16];

static void advance(cl_uint *x, cl_uint by) {
  for (size_t i = 0; i < N; i++) x[i] = x[i] * 1664525u + 1013904223u + by + adds[i & 15];
}

static cl_mem buffer(size_t n, void *host) {
  cl_int e;
  cl_mem m = clCreateBuffer(context, CL_MEM_READ_WRITE | (host ? CL_MEM_COPY_HOST_PTR : 0), n, host, &e);
  must(e, "buffer");
  return m;
}

static cl_kernel kernel(cl_mem x, cl_mem add, cl_uint by) {
  cl_int e;
  cl_kernel k = clCreateKernel(program, "advance", &e);
  must(e, "kernel");
  must(clSetKernelArg(k, 0, sizeof x, &x), "argument"), must(clSetKernelArg(k, 1, sizeof by, &by), "argument"), must(clSetKernelArg(k, 2, sizeof add, &add), "argument");
  return k;
}

static cl_event ran(cl_command_queue q, cl_kernel k, cl_uint n, const cl_event *waits) {
  cl_event e;
  size_t all = N;
  must(clEnqueueNDRangeKernel(q, k, 1, NULL, &all, NULL, n, waits, &e), "run");
  return e;
}

static cl_event user(void) {
  cl_int e;
  cl_event u = clCreateUserEvent(context, &e);
  must(e, "user event");
  return u;
}

static cl_int status(cl_event e) {
  cl_int s = 99;
  must(clGetEventInfo(e, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof s, &s, NULL), "status");
  return s;
}

/* beside computes all the time in a queue of its own. */
static volatile bool over;
static void *beside(void *p) {
  static cl_uint x[N], got[N];
  cl_int e;
  cl_command_queue q = clCreateCommandQueue(context, device, 0, &e);
  must(e, "queue");
  cl_mem m = buffer(BYTES, x), add = buffer(sizeof adds, adds);
  int round = 0;
  for (; !over; round++) {
    cl_kernel k = kernel(m, add, (cl_uint)round);
    cl_event done = ran(q, k, 0, NULL);
    must(clReleaseKernel(k), "release");
    if (round % 3) must(clFinish(q), "finish beside");
    must(clEnqueueReadBuffer(q, m, CL_TRUE, 0, BYTES, got, 1, &done, NULL), "read beside");
    clReleaseEvent(done);
    advance(x, (cl_uint)round);
    right(!memcmp(x, got, BYTES), "beside", round);
  }
  clReleaseMemObject(m), clReleaseMemObject(add), clReleaseCommandQueue(q);
  return p;
}

/* A thread that waits for what does not end yet. */
typedef struct {
  pthread_t thread;
  enum { FINISHES, WAITS, READS } how;
  cl_command_queue queue;
  cl_event event;
  cl_mem mem;
  cl_uint *to;
  cl_int status;
  volatile bool done;
} waiter;

static void *waiting(void *p) {
  waiter *w = p;
  if (w->how == FINISHES) w->status = clFinish(w->queue);
  else if (w->how == WAITS) w->status = clWaitForEvents(1, &w->event);
  else w->status = clEnqueueReadBuffer(w->queue, w->mem, CL_TRUE, 0, BYTES, w->to, 0, NULL, NULL);
  w->done = true;
  return NULL;
}

static int called;
static void CL_CALLBACK calls(cl_event e, cl_int s, void *p) {
  (void)e;
  __atomic_fetch_add(&called, s == CL_COMPLETE ? 1 : 1000, __ATOMIC_SEQ_CST);
  __atomic_fetch_add((int *)p, 1, __ATOMIC_SEQ_CST);
}

static void one_round(int round, cl_command_queue loose) {
  static cl_uint x[N], y[N], z[N], got[N], got2[N], got3[N], in[N];
  int told = 0;
  called = 0;
  for (cl_uint i = 0; i < N; i++) x[i] = i * 7 + (cl_uint)round, y[i] = i, z[i] = ~i, in[i] = i ^ (cl_uint)round;
  cl_mem mx = buffer(BYTES, x), my = buffer(BYTES, y), mz = buffer(BYTES, z), add = buffer(sizeof adds, adds), passing = buffer(BYTES, NULL);
  cl_event first = user(), second = user(), third = user();
  /* in order: a kernel whose arguments change and which is released, a write, copies by memory that is released, a read */
  cl_kernel k = kernel(mx, add, 5);
  cl_event step = ran(queue, k, 1, &first), wrote, copied, read, marked;
  cl_uint by = 6;
  must(clSetKernelArg(k, 1, sizeof by, &by), "argument");
  clReleaseEvent(ran(queue, k, 0, NULL));
  must(clReleaseKernel(k), "release");
  must(clEnqueueWriteBuffer(queue, my, CL_FALSE, 0, BYTES / 2, in, 0, NULL, &wrote), "write");
  must(clEnqueueCopyBuffer(queue, mx, passing, 0, 0, BYTES, 0, NULL, NULL), "copy");
  must(clEnqueueCopyBuffer(queue, passing, mz, 0, BYTES / 2, BYTES / 2, 0, NULL, &copied), "copy");
  must(clReleaseMemObject(passing), "release");
  must(clEnqueueReadBuffer(queue, mz, CL_FALSE, 0, BYTES, got, 0, NULL, &read), "read");
  must(clEnqueueBarrierWithWaitList(queue, 0, NULL, NULL), "barrier");
  must(clEnqueueMarkerWithWaitList(queue, 0, NULL, &marked), "marker");
  must(clSetEventCallback(read, CL_COMPLETE, calls, &told), "callback"), must(clSetEventCallback(step, CL_COMPLETE, calls, &told), "callback");
  /* out of order: what waits for nothing runs, what waits for the others does not, nor what comes behind a barrier */
  cl_uint pattern = (cl_uint)round + 1;
  cl_mem now = buffer(BYTES, NULL), then = buffer(BYTES, NULL), last = buffer(BYTES, NULL);
  cl_event now_done, then_done, last_done, both[2] = {second, read};
  must(clEnqueueFillBuffer(loose, then, &pattern, sizeof pattern, 0, BYTES, 2, both, &then_done), "fill");
  must(clEnqueueFillBuffer(loose, now, &pattern, sizeof pattern, 0, BYTES, 0, NULL, &now_done), "fill");
  must(clWaitForEvents(1, &now_done), "wait for what waits for nothing");
  must(clEnqueueBarrier(loose), "barrier");
  must(clEnqueueCopyBuffer(loose, then, last, 0, 0, BYTES, 0, NULL, &last_done), "copy behind a barrier");
  cl_event never_done, failing;
  cl_mem kept = buffer(BYTES, x);
  must(clEnqueueFillBuffer(loose, kept, &pattern, sizeof pattern, 0, BYTES, 1, &third, &never_done), "fill");
  must(clEnqueueReadBuffer(loose, last, CL_FALSE, 0, BYTES, got3, 1, &last_done, &failing), "read");
  clReleaseEvent(last_done);
  waiter w[] = {{.how = FINISHES, .queue = queue}, {.how = WAITS, .event = read}, {.how = READS, .queue = queue, .mem = mx, .to = got2}, {.how = FINISHES, .queue = loose}, {.how = WAITS, .event = never_done}, {.how = WAITS, .event = first}};
  enum { WAITERS = sizeof w / sizeof *w };
  for (int i = 0; i < WAITERS; i++) pthread_create(&w[i].thread, NULL, waiting, &w[i]);
  usleep(20000);
  puts("held");
  if (getchar() != '\n') exit(0);
  for (int i = 0; i < WAITERS; i++) right(!w[i].done, "a call that waits has ended", round);
  right(status(step) > CL_RUNNING && status(read) > CL_RUNNING && status(then_done) > CL_RUNNING && status(now_done) == CL_COMPLETE, "status before", round);
  right(status(first) == CL_SUBMITTED && !called, "nothing is set", round);
  must(clSetUserEventStatus(second, CL_COMPLETE), "set"), clReleaseEvent(second);
  right(status(then_done) > CL_RUNNING, "one of two", round);
  puts("held");
  if (getchar() != '\n') exit(0);
  must(clSetUserEventStatus(third, -7), "set to an error"), clReleaseEvent(third);
  must(clSetUserEventStatus(first, CL_COMPLETE), "set");
  for (int i = 0; i < WAITERS; i++) pthread_join(w[i].thread, NULL);
  for (int i = 0; i < WAITERS; i++) right(i == 4 ? w[i].status < 0 : w[i].status == CL_SUCCESS, "what a call says", round * 10 + i);
  clReleaseEvent(first);
  must(clWaitForEvents(1, &failing), "wait for what came behind a barrier");
  right(status(never_done) < 0 && status(read) == CL_COMPLETE && status(marked) == CL_COMPLETE && status(wrote) == CL_COMPLETE, "status after", round);
  advance(x, 5), advance(x, 6);
  memcpy(y, in, BYTES / 2), memcpy(z + N / 2, x, BYTES / 2);
  right(!memcmp(got, z, BYTES), "what was read", round);
  right(!memcmp(got2, x, BYTES), "what was waited for", round);
  for (int i = 0; i < N; i++) right(got3[i] == pattern, "what came behind a barrier", round);
  must(clEnqueueReadBuffer(queue, my, CL_TRUE, 0, BYTES, got, 0, NULL, NULL), "read");
  right(!memcmp(got, y, BYTES), "what was written", round);
  must(clEnqueueReadBuffer(loose, kept, CL_TRUE, 0, BYTES, got, 0, NULL, NULL), "read");
  for (cl_uint i = 0; i < N; i++) right(got[i] == i * 7 + (cl_uint)round, "what waited for an error", round);
  cl_ulong t[4] = {0};
  for (cl_uint i = 0; i < 4; i++) must(clGetEventProfilingInfo(step, CL_PROFILING_COMMAND_QUEUED + i, sizeof *t, &t[i], NULL), "times");
  right(t[0] && t[0] <= t[1] && t[1] <= t[2] && t[2] <= t[3], "times", round);
  for (int i = 0; i < 1000 && __atomic_load_n(&told, __ATOMIC_SEQ_CST) < 2; i++) usleep(1000);
  right(called == 2, "callbacks", round);
  clReleaseEvent(step), clReleaseEvent(wrote), clReleaseEvent(copied), clReleaseEvent(read), clReleaseEvent(marked), clReleaseEvent(now_done), clReleaseEvent(then_done), clReleaseEvent(never_done), clReleaseEvent(failing);
  clReleaseMemObject(mx), clReleaseMemObject(my), clReleaseMemObject(mz), clReleaseMemObject(add), clReleaseMemObject(now), clReleaseMemObject(then), clReleaseMemObject(last), clReleaseMemObject(kept);
}

static void gates(size_t mib) {
  cl_int e;
  cl_mem more[mib + 1];
  cl_uint *seen = malloc(1 << 20);
  pthread_t t;
  for (cl_uint i = 0; i < 16; i++) adds[i] = i * 77;
  program = of_source(steps);
  must(clBuildProgram(program, 1, &device, "", NULL, NULL), "build");
  cl_command_queue loose = clCreateCommandQueue(context, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &e);
  must(e, "queue without order");
  for (size_t i = 0; i < mib; i++) {
    memset(seen, (int)i + 1, 1 << 20);
    more[i] = buffer(1 << 20, seen);
  }
  pthread_create(&t, NULL, beside, NULL);
  int round = 0;
  for (; !over; round++) {
    one_round(round, loose);
    puts("set");
    over = getchar() != '\n';
  }
  pthread_join(t, NULL);
  for (size_t i = 0; i < mib; i++) {
    must(clEnqueueReadBuffer(queue, more[i], CL_TRUE, 0, 1 << 20, seen, 0, NULL, NULL), "read");
    for (int k = 0; k < 1 << 18; k++) right(seen[k] == (i + 1) * 0x01010101, "other memory", (int)i);
  }
  printf("gates %d\n", round);
}

/* copies: memory that is there all the time, and a part of it, memory that is made each time, and shared virtual memory. */
enum { MANY = 1 << 20, MUCH = MANY * sizeof(cl_uint) };
static cl_uint state[MANY], seen[MANY];

static void changes(cl_mem m, cl_mem add, cl_uint by, const char *what) {
  cl_int e;
  size_t all = MANY;
  for (cl_uint i = 0; i < MANY; i++) state[i] = i * by;
  must(clEnqueueWriteBuffer(queue, m, CL_TRUE, 0, MUCH, state, 0, NULL, NULL), "write");
  cl_kernel k = kernel(m, add, by);
  must(clEnqueueNDRangeKernel(queue, k, 1, NULL, &all, NULL, 0, NULL, NULL), "run");
  must(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, MUCH, seen, 0, NULL, NULL), "read");
  for (size_t i = 0; i < MANY; i++) state[i] = state[i] * 1664525u + 1013904223u + by + adds[i & 15];
  right(!memcmp(state, seen, MUCH), what, (int)by);
  cl_uint *p = clEnqueueMapBuffer(queue, m, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, MUCH, 0, NULL, NULL, &e);
  must(e, "map");
  right(!memcmp(state, p, MUCH), "what is mapped", (int)by);
  p[MANY / 2] = by;
  must(clEnqueueUnmapMemObject(queue, m, p, 0, NULL, NULL), "unmap");
  must(clEnqueueReadBuffer(queue, m, CL_TRUE, MUCH / 2, sizeof *p, seen, 0, NULL, NULL), "read");
  right(seen[0] == by, "what was written where it was mapped", (int)by);
  must(clReleaseKernel(k), "release");
}

static void copies(void) {
  cl_int e;
  long (*bytes)(void);
  *(void **)&bytes = dlsym(RTLD_DEFAULT, "bytes_passed");
  program = of_source(steps);
  must(clBuildProgram(program, 1, &device, "", NULL, NULL), "build");
  for (cl_uint i = 0; i < 16; i++) adds[i] = i * 3;
  cl_mem large = buffer(2 * MUCH, NULL), add = buffer(sizeof adds, adds), kept = buffer(MUCH, NULL);
  cl_buffer_region half = {MUCH, MUCH};
  cl_mem part = clCreateSubBuffer(large, 0, CL_BUFFER_CREATE_TYPE_REGION, &half, &e);
  must(e, "part");
  cl_uint *own = clSVMAlloc(context, CL_MEM_READ_WRITE, MUCH, 0), *lent = NULL;
  cl_device_svm_capabilities svm = 0;
  must(clGetDeviceInfo(device, CL_DEVICE_SVM_CAPABILITIES, sizeof svm, &svm, NULL), "capabilities");
  right(own || !svm, "shared virtual memory", 0);
  char line[16] = "";
  for (cl_uint by = 3; by == 3 || fgets(line, sizeof line, stdin); by += 2) {
    if (lent) { /* since the line before */
      for (cl_uint i = 0; i < MANY; i++) lent[i] += i;
      must(clEnqueueUnmapMemObject(queue, kept, lent, 0, NULL, NULL), "unmap");
      must(clEnqueueReadBuffer(queue, kept, CL_TRUE, 0, MUCH, seen, 0, NULL, NULL), "read");
      for (cl_uint i = 0; i < MANY; i++) right(seen[i] == 0x05050505 + i, "what was mapped meanwhile", (int)by);
      lent = NULL;
    }
    cl_mem anew = buffer(MUCH, NULL);
    if (bytes) bytes();
    changes(large, add, by, "what was there");
    changes(part, add, by + 1, "a part");
    changes(anew, add, by, "what is new");
    if (own) {
      must(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_WRITE, own, MUCH, 0, NULL, NULL), "map");
      for (cl_uint i = 0; i < MANY; i++) own[i] = state[i] = i ^ by;
      must(clEnqueueSVMUnmap(queue, own, 0, NULL, NULL), "unmap");
      cl_kernel k = kernel(part, add, by);
      size_t all = MANY;
      must(clSetKernelArgSVMPointer(k, 0, own), "argument");
      must(clEnqueueNDRangeKernel(queue, k, 1, NULL, &all, NULL, 0, NULL, NULL), "run");
      must(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, own, MUCH, 0, NULL, NULL), "map");
      for (size_t i = 0; i < MANY; i++) right(own[i] == state[i] * 1664525u + 1013904223u + by + adds[i & 15], "shared virtual memory", (int)by);
      must(clEnqueueSVMUnmap(queue, own, 0, NULL, NULL), "unmap");
      must(clFinish(queue), "finish");
      must(clReleaseKernel(k), "release");
    }
    must(clReleaseMemObject(anew), "release");
    printf("copied %ld\n", bytes ? bytes() : -1);
    if (!strcmp(line, "keep\n")) {
      cl_uint five = 0x05050505;
      must(clEnqueueFillBuffer(queue, kept, &five, sizeof five, 0, MUCH, 0, NULL, NULL), "fill");
      lent = clEnqueueMapBuffer(queue, kept, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, MUCH, 0, NULL, NULL, &e);
      must(e, "map");
    }
  }
  puts("done");
}

static void *finishes(void *done) {
  must(clFinish(queue), "finish");
  return done;
}

static void between(void) {
  static const char *text = "kernel void spin(global uint *x, uint n) { uint y = x[0]; for (uint i = 0; i < n; i++) { y ^= y << 13; y ^= y >> 17; y ^= y << 5; } x[0] = y; }";
  cl_int e;
  cl_uint first = 1, nine = 9, rounds = 300000000, seen = 0;
  size_t one = 1;
  cl_program p = clCreateProgramWithSource(context, 1, &text, NULL, &e);
  must(e, "program"), must(clBuildProgram(p, 1, &device, "", NULL, NULL), "build");
  cl_mem m = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof first, &first, &e);
  must(e, "buffer");
  cl_kernel k = clCreateKernel(p, "spin", &e);
  must(e, "kernel"), must(clSetKernelArg(k, 0, sizeof m, &m), "argument"), must(clSetKernelArg(k, 1, sizeof rounds, &rounds), "argument");
  must(clEnqueueNDRangeKernel(queue, k, 1, NULL, &one, NULL, 0, NULL, NULL), "run"), must(clFlush(queue), "flush");
  pthread_t other;
  pthread_create(&other, NULL, finishes, NULL);
  usleep(200000);
  cl_event gate = clCreateUserEvent(context, &e);
  must(e, "event"), must(clEnqueueWriteBuffer(queue, m, CL_FALSE, 0, sizeof nine, &nine, 1, &gate, NULL), "write"); /* which takes no turn */
  puts("held");
  getchar();
  must(clSetUserEventStatus(gate, CL_COMPLETE), "set"), pthread_join(other, NULL);
  must(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, sizeof seen, &seen, 0, NULL, NULL), "read");
  printf("between %u\n", seen);
}

static cl_mem failing;
static cl_event two[2], fill;
static volatile int told;
static void *reads(void *x) {
  printf("read %d\n", clEnqueueReadBuffer(queue, failing, CL_TRUE, 0, sizeof told, x, 2, two, NULL));
  return NULL;
}
static void CL_CALLBACK tells_status(cl_event e, cl_int status, void *x) { (void)e, (void)x, told = status; }

static void fails(void) {
  cl_int e, status = 1, x = 7, seen = 0;
  failing = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof x, NULL, &e), must(e, "buffer");
  for (int i = 0; i < 2; i++) two[i] = clCreateUserEvent(context, &e), must(e, "event");
  must(clEnqueueFillBuffer(queue, failing, &x, sizeof x, 0, sizeof x, 2, two, &fill), "fill");
  must(clSetEventCallback(fill, CL_COMPLETE, tells_status, NULL), "callback");
  pthread_t other;
  pthread_create(&other, NULL, reads, &seen);
  usleep(200000);
  must(clSetUserEventStatus(two[1], -5), "set"), pthread_join(other, NULL);
  must(clGetEventInfo(fill, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL), "status");
  for (int i = 0; i < 1000 && !told; i++) usleep(10000);
  printf("fill %d, told %d\n", status < 0, told < 0);
  puts("held");
  getchar();
  must(clEnqueueFillBuffer(queue, failing, &x, sizeof x, 0, sizeof x, 0, NULL, NULL), "fill");
  must(clSetUserEventStatus(two[0], CL_COMPLETE), "set"), must(clFinish(queue), "finish");
  must(clEnqueueReadBuffer(queue, failing, CL_TRUE, 0, sizeof seen, &seen, 0, NULL, NULL), "read");
  printf("fails %d\n", seen);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!strcmp(what, "tells")) {
    start(0);
    tells();
  } else if (!strcmp(what, "gates")) {
    start(CL_QUEUE_PROFILING_ENABLE);
    gates(argc > 2 ? (size_t)atoi(argv[2]) : 0);
  } else if (!strcmp(what, "copies")) {
    start(0);
    copies();
  } else if (!strcmp(what, "between")) {
    start(0);
    between();
  } else if (!strcmp(what, "fails")) {
    start(0);
    fails();
  } else {
    fprintf(stderr, "there is no %s\n", what);
    return 2;
  }
  return 0;
}
