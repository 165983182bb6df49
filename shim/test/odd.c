/* Calls that are wrong, or odd, where nothing else was: what comes of each, in lines that are the same natively and
 * in the pool. With "all" behind its name a case is tried in a context over all devices. */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define _GNU_SOURCE
#include <CL/cl.h>
#include <CL/cl_icd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static cl_context context;
static cl_device_id first, last;
static cl_command_queue queue, other; /* of these */
static cl_program program;
static bool all; /* devices are in a context */

static void must(cl_int e, const char *what) {
  if (e == CL_SUCCESS) return;
  printf("failed %s %d\n", what, e);
  exit(1);
}

static const char *text =
    "kernel void some(global int *a, int v, local int *l) { a[0] = v + l[0]; }"
    "kernel void slow(global volatile int *a, int by) { for (int i = 0; i < by; i++) a[0] = a[0] * 3 + 1; }"
    "kernel void look(read_only image2d_t i, sampler_t s, global int *a) { a[0] = read_imagei(i, s, (int2)(-1, 0)).x; }"
    "kernel void through(global int *global *a) { a[0][0] += 1; }";

static void start(void) {
  cl_device_id devices[8];
  cl_uint n = 1;
  cl_platform_id platform;
  cl_int e;
  must(clGetPlatformIDs(1, &platform, NULL), "platform");
  must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 8, devices, &n), "devices");
  if (!all) n = 1;
  first = devices[0], last = devices[n - 1];
  context = clCreateContext(NULL, n, devices, NULL, NULL, &e), must(e, "context");
  queue = clCreateCommandQueue(context, first, 0, &e), must(e, "queue");
  other = clCreateCommandQueue(context, last, 0, &e), must(e, "queue");
  program = clCreateProgramWithSource(context, 1, &text, NULL, &e), must(e, "program");
  must(clBuildProgram(program, 0, NULL, "", NULL, NULL), "build");
}

static cl_kernel kernel(const char *name) {
  cl_int e;
  cl_kernel k = clCreateKernel(program, name, &e);
  must(e, "kernel");
  return k;
}

static cl_mem buffer(size_t n) {
  cl_int e;
  cl_mem m = clCreateBuffer(context, CL_MEM_READ_WRITE, n, NULL, &e);
  must(e, "buffer");
  return m;
}

/* An argument is said to be longer than the program has memory. */
static void arguments(void) {
  cl_kernel k = kernel("some");
  int *v = malloc(sizeof *v);
  for (size_t n = 8; n <= (size_t)1 << 36; n <<= 7) printf("value of %zu: %d, local %d\n", n, clSetKernelArg(k, 1, n, v), clSetKernelArg(k, 2, n, v));
}

/* Memory is to be made of more than the program has, and than a device can have. */
static void huge(void) {
  char host[64] = {0};
  cl_int e;
  clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, (size_t)1 << 46, host, &e), printf("copied %d\n", e);
  clCreateBuffer(context, CL_MEM_USE_HOST_PTR, (size_t)1 << 46, host, &e), printf("lent %d\n", e);
  const size_t sides[][3] = {{1 << 30, 8, 1}, {8, 1 << 30, 1}, {16, (size_t)1 << 58, 1}, {(size_t)1 << 62, 4, 1}, {8, 8, 1 << 30}, {16, 16, (size_t)1 << 54}};
  const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
  for (int i = 0; i < 6; i++) {
    cl_image_desc d = {.image_type = i < 4 ? CL_MEM_OBJECT_IMAGE2D : CL_MEM_OBJECT_IMAGE3D, .image_width = sides[i][0], .image_height = sides[i][1], .image_depth = sides[i][2]};
    clCreateImage(context, CL_MEM_COPY_HOST_PTR, &format, &d, host, &e);
    printf("image %d: %d\n", i, e == CL_INVALID_IMAGE_SIZE || e == CL_INVALID_OPERATION); /* by the standard either is */
  }
}

/* A map that is refused leaves memory as it is. */
static void refused(void) {
  enum { N = 4096 };
  static int x[N], y[N];
  cl_int e;
  cl_mem m = buffer(sizeof x);
  for (int i = 0; i < N; i++) x[i] = i;
  must(clEnqueueWriteBuffer(queue, m, CL_TRUE, 0, sizeof x, x, 0, NULL, NULL), "write");
  void *p = clEnqueueMapBuffer(other, m, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, sizeof x / 2, sizeof x, 0, NULL, NULL, &e);
  printf("beyond its end: %d %d\n", p != NULL, e);
  p = clEnqueueMapBuffer(other, m, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 64, (size_t)-64, 0, NULL, NULL, &e);
  printf("around: %d %d\n", p != NULL, e);
  must(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, sizeof y, y, 0, NULL, NULL), "read");
  printf("it has %d", !memcmp(x, y, sizeof x)), memset(y, 0, sizeof y);
  must(clEnqueueReadBuffer(other, m, CL_TRUE, 0, sizeof y, y, 0, NULL, NULL), "read");
  printf(", and %d\n", !memcmp(x, y, sizeof x));
}

/* A map that blocks has all behind it that was before it. */
static void behind(void) {
  enum { N = 1 << 16 };
  const size_t one = 1;
  cl_int e, rounds = 30000000, state = 77;
  cl_kernel k = kernel("slow");
  cl_command_queue loose = clCreateCommandQueue(context, last, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &e);
  must(e, "queue");
  const size_t sizes[] = {N, 64};
  for (int i = 0; i < 4; i++) {
    cl_command_queue q = i < 2 ? queue : loose;
    cl_mem m = buffer(64), to = buffer(sizes[i % 2]);
    cl_event done, mapped;
    must(clSetKernelArg(k, 0, sizeof m, &m), "argument"), must(clSetKernelArg(k, 1, sizeof rounds, &rounds), "argument");
    must(clEnqueueNDRangeKernel(q, k, 1, NULL, &one, NULL, 0, NULL, &done), "run");
    void *p = clEnqueueMapBuffer(q, to, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 0, sizes[i % 2], i >= 2, i < 2 ? NULL : &done, &mapped, &e);
    must(e, "map");
    must(clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL), "status");
    printf("mapped %zu: %d", sizes[i % 2], state);
    must(clGetEventInfo(mapped, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL), "status");
    printf(" %d\n", state);
    must(clEnqueueUnmapMemObject(q, to, p, 0, NULL, NULL), "unmap"), must(clFinish(q), "finish");
    clReleaseEvent(done), clReleaseEvent(mapped), clReleaseMemObject(m), clReleaseMemObject(to);
  }
}

/* In a queue without order a map does not wait for what the program holds back. */
static void loose(void) {
  enum { N = 1 << 16 };
  cl_int e, v = 5;
  cl_command_queue q = clCreateCommandQueue(context, last, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &e);
  must(e, "queue");
  for (int i = 0; i < 2; i++) {
    cl_mem held = buffer(N), m = buffer(N);
    must(clEnqueueFillBuffer(q, m, &v, sizeof v, 0, N, 0, NULL, NULL), "fill"), must(clFinish(q), "finish");
    cl_event gate = clCreateUserEvent(context, &e), ready;
    must(e, "event");
    must(clEnqueueFillBuffer(q, held, &v, sizeof v, 0, N, 1, &gate, NULL), "fill");
    must(clEnqueueFillBuffer(q, m, &v, sizeof v, 0, N, 0, NULL, &ready), "fill");
    int *p = clEnqueueMapBuffer(q, m, CL_TRUE, i ? CL_MAP_WRITE_INVALIDATE_REGION : CL_MAP_READ, 0, N, 1, &ready, NULL, &e);
    must(e, "map");
    printf("mapped %d\n", i ? 5 : p[N / sizeof *p - 1]), fflush(stdout);
    must(clEnqueueUnmapMemObject(q, m, p, 0, NULL, NULL), "unmap");
    must(clSetUserEventStatus(gate, CL_COMPLETE), "set"), must(clFinish(q), "finish");
    clReleaseEvent(gate), clReleaseEvent(ready), clReleaseMemObject(held), clReleaseMemObject(m);
  }
}

/* Kernels have samplers that the program has released, and where these were something else may be. */
static void samplers(void) {
  enum { KERNELS = 20 };
  const cl_image_format format = {CL_RGBA, CL_SIGNED_INT32};
  const cl_image_desc d = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 2, .image_height = 1};
  int host[8] = {1, 0, 0, 0, 2}, x, sum = 0;
  const size_t one = 1;
  cl_int e;
  cl_kernel k[KERNELS];
  cl_sampler s[KERNELS];
  cl_mem m = buffer(64), i = clCreateImage(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, &format, &d, host, &e);
  must(e, "image");
  for (int n = 0; n < KERNELS; n++) {
    k[n] = kernel("look"), s[n] = clCreateSampler(context, CL_FALSE, CL_ADDRESS_CLAMP_TO_EDGE, CL_FILTER_NEAREST, &e);
    must(e, "sampler");
    must(clSetKernelArg(k[n], 0, sizeof i, &i), "image"), must(clSetKernelArg(k[n], 1, sizeof *s, &s[n]), "sampler"), must(clSetKernelArg(k[n], 2, sizeof m, &m), "buffer");
  }
  for (int n = 0; n < KERNELS; n++) must(clReleaseSampler(s[n]), "release");
  for (int n = 0; n < 4 * KERNELS; n++) buffer(64);
  for (int n = 0; n < KERNELS; n++) {
    x = 0;
    must(clEnqueueNDRangeKernel(n % 2 ? other : queue, k[n], 1, NULL, &one, NULL, 0, NULL, NULL), "run");
    must(clEnqueueReadBuffer(n % 2 ? other : queue, m, CL_TRUE, 0, sizeof x, &x, 0, NULL, NULL), "read");
    sum += x;
    must(clReleaseKernel(k[n]), "release");
  }
  printf("they read %d\n", sum);
}

/* A clone of a kernel reaches what the kernel does. */
static void clones(void) {
  const size_t one = 1;
  cl_int e;
  int **list = clSVMAlloc(context, CL_MEM_READ_WRITE, 4096, 0), *at = clSVMAlloc(context, CL_MEM_READ_WRITE, 4096, 0);
  if (!list || !at) exit(1);
  must(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_WRITE, list, 4096, 0, NULL, NULL), "map"), must(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_WRITE, at, 4096, 0, NULL, NULL), "map");
  list[0] = at, at[0] = 40;
  must(clEnqueueSVMUnmap(queue, list, 0, NULL, NULL), "unmap"), must(clEnqueueSVMUnmap(queue, at, 0, NULL, NULL), "unmap"), must(clFinish(queue), "finish");
  cl_kernel k = kernel("through");
  must(clSetKernelArgSVMPointer(k, 0, list), "argument");
  void *reaches[] = {at};
  must(clSetKernelExecInfo(k, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof reaches, reaches), "info");
  cl_kernel c = clCloneKernel(k, &e);
  must(e, "clone");
  must(clEnqueueNDRangeKernel(other, c, 1, NULL, &one, NULL, 0, NULL, NULL), "run"), must(clFinish(other), "finish");
  must(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, at, 4096, 0, NULL, NULL), "map");
  printf("then %d\n", at[0]);
  must(clEnqueueSVMUnmap(queue, at, 0, NULL, NULL), "unmap"), must(clFinish(queue), "finish");
}

/* The time of day, which is what libraries are told, is ahead for a while, and then it is set right. */
static int ahead, told;
int clock_gettime(clockid_t which, struct timespec *t) {
  const int bad = (int)syscall(SYS_clock_gettime, which, t);
  if (which == CLOCK_REALTIME && __atomic_load_n(&ahead, __ATOMIC_RELAXED)) t->tv_sec += 3600;
  return bad;
}

static void CL_CALLBACK tells(cl_event e, cl_int status, void *none) {
  (void)e, (void)status, (void)none;
  __atomic_store_n(&told, 1, __ATOMIC_RELEASE);
}

static void clocks(void) {
  cl_int e, v = 1;
  cl_mem m = buffer(64);
  cl_event gate = clCreateUserEvent(context, &e), done;
  must(e, "event");
  ahead = 1;
  must(clEnqueueFillBuffer(queue, m, &v, sizeof v, 0, 64, 1, &gate, &done), "fill");
  must(clSetEventCallback(done, CL_RUNNING, tells, NULL), "callback");
  usleep(100000);
  __atomic_store_n(&ahead, 0, __ATOMIC_RELAXED);
  must(clSetUserEventStatus(gate, CL_COMPLETE), "set"), must(clFlush(queue), "flush");
  for (int i = 0; i < 1000 && !__atomic_load_n(&told, __ATOMIC_ACQUIRE); i++) usleep(10000);
  printf("told %d\n", told);
}

/* A child of fork is refused what its parent has made, also what waits for the parent. */
static void forked(void) {
  cl_int e, v = 1;
  cl_mem m = buffer(64);
  cl_event gate = clCreateUserEvent(context, &e), done;
  must(e, "event");
  must(clEnqueueFillBuffer(queue, m, &v, sizeof v, 0, 64, 1, &gate, &done), "fill");
  pid_t child = fork();
  if (!child) {
    int wrong = 0, status = 0;
    close(STDERR_FILENO), alarm(20);
    wrong += clFinish(queue) != CL_INVALID_COMMAND_QUEUE;
    wrong += clWaitForEvents(1, &done) != CL_INVALID_EVENT;
    wrong += clEnqueueReadBuffer(queue, m, CL_TRUE, 0, sizeof v, &v, 0, NULL, NULL) != CL_INVALID_COMMAND_QUEUE;
    wrong += clSetUserEventStatus(gate, CL_COMPLETE) != CL_INVALID_EVENT;
    clCreateBuffer(context, CL_MEM_READ_WRITE, 64, NULL, &status), wrong += status != CL_INVALID_CONTEXT;
    wrong += clRetainMemObject(m) != CL_SUCCESS, wrong += clReleaseMemObject(m) != CL_SUCCESS, wrong += clReleaseEvent(done) != CL_SUCCESS;
    wrong += clReleaseCommandQueue(queue) != CL_SUCCESS, wrong += clReleaseContext(context) != CL_SUCCESS;
    start();
    cl_mem own = buffer(sizeof v);
    must(clEnqueueWriteBuffer(queue, own, CL_TRUE, 0, sizeof v, &v, 0, NULL, NULL), "write"), v = 0;
    must(clEnqueueReadBuffer(other, own, CL_TRUE, 0, sizeof v, &v, 0, NULL, NULL), "read");
    _exit(10 * (v != 1) + wrong);
  }
  int status = -1;
  waitpid(child, &status, 0);
  must(clSetUserEventStatus(gate, CL_COMPLETE), "set"), must(clWaitForEvents(1, &done), "wait"), v = 0;
  must(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, sizeof v, &v, 0, NULL, NULL), "read");
  printf("the child %d, its parent %d\n", status, v);
}

static bool over(cl_event of) {
  cl_int state;
  must(clGetEventInfo(of, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL), "status");
  return state <= CL_COMPLETE;
}

/* What comes behind a wait, or a barrier, of OpenCL 1.0 in a queue waits for it. */
static void waits(void) {
  cl_int e, v = 5;
  cl_command_queue loose = clCreateCommandQueue(context, last, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &e);
  must(e, "queue");
  cl_event none = NULL, gate, first_done = NULL, done, marked;
  printf("wrong: %d %d %d %d %d\n", clEnqueueWaitForEvents(NULL, 0, NULL), clEnqueueWaitForEvents(queue, 0, NULL), clEnqueueWaitForEvents(queue, 1, NULL),
         clEnqueueWaitForEvents(queue, 1, &none), clEnqueueMarker(queue, NULL));
  for (int i = 0; i < 4; i++) {
    cl_command_queue q = i < 2 ? queue : loose;
    cl_mem m = buffer(64), held = buffer(64);
    gate = clCreateUserEvent(context, &e);
    must(e, "event");
    if (i % 2) must(clEnqueueFillBuffer(q, held, &v, sizeof v, 0, 64, 1, &gate, &first_done), "fill"), must(clEnqueueBarrier(q), "barrier");
    else must(clEnqueueWaitForEvents(q, 1, &gate), "wait");
    must(clEnqueueFillBuffer(q, m, &v, sizeof v, 0, 64, 0, NULL, &done), "fill"), must(clEnqueueMarker(q, &marked), "marker");
    must(clFlush(q), "flush");
    usleep(50000);
    printf("behind it %d %d", over(done), over(marked));
    must(clSetUserEventStatus(gate, CL_COMPLETE), "set"), must(clFinish(q), "finish");
    printf(", then %d %d\n", over(done), over(marked));
  }
}

/* What is read or written may have no bytes, since OpenCL 2.1. */
static void empty(void) {
  cl_int e, x = 7;
  cl_mem m = buffer(64);
  cl_event gate = clCreateUserEvent(context, &e), done;
  must(e, "event");
  printf("read %d %d, written %d", clEnqueueReadBuffer(queue, m, CL_TRUE, 0, 0, &x, 0, NULL, NULL), clEnqueueReadBuffer(other, m, CL_TRUE, 64, 0, &x, 0, NULL, NULL),
         clEnqueueWriteBuffer(other, m, CL_TRUE, 8, 0, &x, 0, NULL, NULL));
  printf(", beyond %d, nowhere %d, mapped %d\n", clEnqueueReadBuffer(queue, m, CL_TRUE, 65, 0, &x, 0, NULL, NULL), clEnqueueReadBuffer(queue, m, CL_TRUE, 0, 0, NULL, 0, NULL, NULL),
         clEnqueueMapBuffer(queue, m, CL_TRUE, CL_MAP_READ, 0, 0, 0, NULL, NULL, &e) != NULL);
  must(clEnqueueWriteBuffer(queue, m, CL_FALSE, 0, 0, &x, 1, &gate, &done), "write");
  printf("before it %d", over(done));
  must(clSetUserEventStatus(gate, CL_COMPLETE), "set"), must(clWaitForEvents(1, &done), "wait");
  cl_command_type type;
  must(clGetEventInfo(done, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL), "type");
  printf(", behind %d, it wrote %d, the program has %d\n", over(done), type == CL_COMMAND_WRITE_BUFFER, x);
}

/* Programs that have nothing to link, and a build that is refused. */
static void links(void) {
  const char *broken = "kernel void k( {", *more = "kernel void more(global int *named) { named[0] = 1; }";
  char options[64] = "", name[64] = "";
  cl_int e;
  cl_program bad = clCreateProgramWithSource(context, 1, &broken, NULL, &e), good = clCreateProgramWithSource(context, 1, &more, NULL, &e);
  must(e, "program");
  clLinkProgram(context, 0, NULL, "", 1, &good, NULL, NULL, &e), printf("not compiled %d\n", e);
  printf("broken %d", clCompileProgram(bad, 0, NULL, "", 0, NULL, NULL, NULL, NULL));
  clLinkProgram(context, 0, NULL, "", 1, &bad, NULL, NULL, &e), printf(", linked %d\n", e);
  must(clCompileProgram(good, 0, NULL, "", 0, NULL, NULL, NULL, NULL), "compile");
  cl_program linked = clLinkProgram(context, 0, NULL, "", 1, &good, NULL, NULL, &e);
  printf("linked %d %d\n", e, linked != NULL);
  must(clBuildProgram(good, 0, NULL, "-cl-kernel-arg-info -DX=1", NULL, NULL), "build");
  cl_kernel k = clCreateKernel(good, "more", &e);
  must(e, "kernel");
  printf("with a kernel %d", clBuildProgram(good, 0, NULL, "-DY", NULL, NULL));
  must(clGetProgramBuildInfo(good, first, CL_PROGRAM_BUILD_OPTIONS, sizeof options, options, NULL), "options");
  cl_kernel again = clCreateKernel(good, "more", &e);
  must(e, "kernel");
  must(clGetKernelArgInfo(again, 0, CL_KERNEL_ARG_NAME, sizeof name, name, NULL), "argument");
  printf(", it is of %s and has %s\n", options, name);
  clReleaseKernel(k), clReleaseKernel(again);
}

/* Objects that are not what a call asks for, and what is said twice. */
static void twice(void) {
  const cl_image_format format = {CL_RGBA, CL_SIGNED_INT32};
  const cl_sampler_properties s[] = {CL_SAMPLER_NORMALIZED_COORDS, CL_TRUE, CL_SAMPLER_NORMALIZED_COORDS, CL_TRUE, 0};
  const cl_queue_properties q[] = {CL_QUEUE_PROPERTIES, 0, CL_QUEUE_PROPERTIES, 0, 0};
  const cl_buffer_region region = {0, 1024};
  cl_device_id devices[] = {first, last};
  cl_int e;
  cl_mem m = buffer(4096), part = clCreateSubBuffer(m, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &e), of;
  must(e, "part");
  printf("images %d %d\n", clGetImageInfo(m, CL_IMAGE_BUFFER, sizeof of, &of, NULL), clGetImageInfo(part, CL_IMAGE_BUFFER, sizeof of, &of, NULL));
  cl_context c = clCreateContext(NULL, all ? 2 : 1, devices, NULL, NULL, &e);
  must(e, "context");
  const cl_image_desc d = {.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 16, .buffer = m};
  clCreateImage(c, 0, &format, &d, NULL, &e), printf("of another context %d\n", e);
  clCreateSamplerWithProperties(context, s, &e), printf("sampler %d\n", e);
  clCreateCommandQueueWithProperties(context, first, q, &e), printf("queue %d\n", e);
  clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, 64, devices, &e), printf("buffer %d\n", e);
}

/* The program is told that memory and contexts are gone, when what was to be done with them is. */
static int gone[3], gone_so_far;
static void CL_CALLBACK mem_gone(cl_mem m, void *at) {
  (void)m;
  *(int *)at = __atomic_add_fetch(&gone_so_far, 1, __ATOMIC_ACQ_REL);
}
static void CL_CALLBACK context_gone(cl_context c, void *at) {
  (void)c;
  *(int *)at = __atomic_add_fetch(&gone_so_far, 1, __ATOMIC_ACQ_REL);
}

static void ends(void) {
  const size_t one = 1;
  const cl_buffer_region region = {0, 1024};
  cl_device_id devices[] = {first, last};
  cl_int e, v = 5, rounds = 100000000;
  for (int i = 0; i < 4; i++) { /* a queue that keeps order, and one that does not; commands that wait, and that run */
    cl_context c = clCreateContext(NULL, all ? 2 : 1, devices, NULL, NULL, &e);
    must(e, "context");
    cl_command_queue q = clCreateCommandQueue(c, last, i % 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0, &e);
    must(e, "queue");
    cl_mem m = clCreateBuffer(c, CL_MEM_READ_WRITE, 4096, NULL, &e), part = clCreateSubBuffer(m, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &e);
    must(e, "memory");
    gone_so_far = 0, memset(gone, 0, sizeof gone);
    must(clSetMemObjectDestructorCallback(m, mem_gone, &gone[0]), "callback"), must(clSetMemObjectDestructorCallback(part, mem_gone, &gone[1]), "callback");
    must(clSetContextDestructorCallback(c, context_gone, &gone[2]), "callback");
    cl_event gate = clCreateUserEvent(c, &e);
    must(e, "event");
    if (i < 2) {
      must(clEnqueueFillBuffer(q, part, &v, sizeof v, 0, 64, 1, &gate, NULL), "fill");
    } else {
      cl_program p = clCreateProgramWithSource(c, 1, &text, NULL, &e);
      must(clBuildProgram(p, 0, NULL, "", NULL, NULL), "build");
      cl_kernel k = clCreateKernel(p, "slow", &e);
      must(clSetKernelArg(k, 0, sizeof part, &part), "argument"), must(clSetKernelArg(k, 1, sizeof rounds, &rounds), "argument");
      must(clEnqueueNDRangeKernel(q, k, 1, NULL, &one, NULL, 0, NULL, NULL), "run");
      must(clReleaseKernel(k), "release"), must(clReleaseProgram(p), "release");
    }
    must(clFlush(q), "flush");
    must(clReleaseMemObject(m), "release"), must(clReleaseMemObject(part), "release"), must(clReleaseCommandQueue(q), "release"), must(clReleaseContext(c), "release");
    usleep(50000);
    printf("gone %d", __atomic_load_n(&gone_so_far, __ATOMIC_ACQUIRE));
    must(clSetUserEventStatus(gate, CL_COMPLETE), "set"), must(clReleaseEvent(gate), "release");
    for (int k = 0; k < 2000 && __atomic_load_n(&gone_so_far, __ATOMIC_ACQUIRE) < 3; k++) usleep(10000);
    printf(", then the part %d, the buffer %d, the context %d\n", gone[1], gone[0], gone[2]);
  }
}

/* An image of depths is filled with one number. The next page is nobody's. */
static void depths(void) {
  const cl_image_format format = {CL_DEPTH, CL_FLOAT};
  const cl_image_desc d = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 4, .image_height = 4};
  const size_t origin[3] = {0}, region[3] = {4, 4, 1};
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  cl_int e;
  char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED || mprotect(p + page, page, PROT_NONE)) exit(1);
  float *color = (float *)(void *)(p + page - sizeof *color), pixels[16] = {0};
  *color = 0.25f;
  cl_mem i = clCreateImage(context, CL_MEM_READ_WRITE, &format, &d, NULL, &e);
  must(e, "image");
  must(clEnqueueFillImage(other, i, color, origin, region, 0, NULL, NULL), "fill");
  must(clEnqueueReadImage(queue, i, CL_TRUE, origin, region, 0, 0, pixels, 0, NULL, NULL), "read");
  printf("it has %g and %g\n", pixels[0], pixels[15]);
}

/* The extensions of the device that this is asked for. */
static void extensions(void) {
  static const char *const names[] = {"cl_khr_fp64", "cl_khr_depth_images", "cl_khr_mipmap_image", "cl_khr_mipmap_image_writes", "cl_khr_initialize_memory", "cl_intel_planar_yuv", "cl_amd_copy_buffer_p2p"};
  char list[8192] = " ";
  must(clGetDeviceInfo(last, CL_DEVICE_EXTENSIONS, sizeof list - 2, list + 1, NULL), "extensions");
  strcat(list, " ");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char name[64];
    snprintf(name, sizeof name, " %s ", names[i]);
    if (strstr(list, name)) printf("%s\n", names[i]);
  }
}

/* newer: what loaders know that are newer than a driver, and call in its table. */
static void newer(void) {
  cl_int (**table)(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, size_t *) = *(void **)queue;
  size_t global = 64, local, end = sizeof(cl_icd_dispatch) / sizeof *table;
  cl_int first = table[end](queue, NULL, 1, NULL, &global, &local); /* clGetKernelSuggestedLocalWorkSize */
  printf("%d %d\n", first, table[end + 15](queue, NULL, 1, NULL, &global, &local));
}

int main(int n, char **args) {
  const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {{"arguments", arguments}, {"huge", huge}, {"refused", refused}, {"behind", behind}, {"loose", loose}, {"samplers", samplers}, {"clones", clones}, {"clocks", clocks}, {"forked", forked},
               {"waits", waits}, {"empty", empty}, {"links", links}, {"twice", twice}, {"ends", ends}, {"depths", depths}, {"extensions", extensions}, {"newer", newer}};
  alarm(60);
  all = n > 2 && !strcmp(args[2], "all");
  start();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (n > 1 && !strcmp(args[1], cases[i].name)) cases[i].run();
  return 0;
}
