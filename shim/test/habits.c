/* What programs may do and few do. Natively and in the pool it comes to the same. With "all" as argument it is
 * done in a context over all devices, as far as that is what the pool has of its own. */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

static cl_context context;
static cl_command_queue queue;
static cl_device_id device;
static cl_program program;

static void must(cl_int e, const char *what) {
  if (e == CL_SUCCESS) return;
  printf("failed %s %d\n", what, e);
  exit(1);
}

static cl_mem buffer(size_t n, void *host) {
  cl_int e;
  cl_mem m = clCreateBuffer(context, CL_MEM_READ_WRITE | (host ? CL_MEM_COPY_HOST_PTR : 0), n, host, &e);
  must(e, "buffer");
  return m;
}

static cl_mem part(cl_mem m, size_t origin, size_t n) {
  cl_buffer_region r = {origin, n};
  cl_int e;
  cl_mem p = clCreateSubBuffer(m, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &r, &e);
  must(e, "part");
  return p;
}

static cl_kernel add(cl_mem m, cl_int by) {
  cl_int e;
  cl_kernel k = clCreateKernel(program, "add", &e);
  must(e, "kernel");
  must(clSetKernelArg(k, 0, sizeof m, &m), "argument");
  must(clSetKernelArg(k, 1, sizeof by, &by), "argument");
  return k;
}

static void run(cl_kernel k, size_t n, cl_uint waits, const cl_event *list, cl_event *done) { must(clEnqueueNDRangeKernel(queue, k, 1, NULL, &n, NULL, waits, list, done), "run"); }

/* A timer's signals come while it starts, and calls of the system are not restarted. */
static void alarmed(int number) { (void)number; }
static void start_alarmed(int all) {
  cl_device_id devices[8];
  cl_uint n = 1;
  const char *text = "kernel void add(global int *a, int by) { a[get_global_id(0)] += by; }"
                     "kernel void slow(global volatile int *a, int by) { for (int i = 0; i < by; i++) a[0] = a[0] * 3 + 1; }";
  struct sigaction on = {.sa_handler = alarmed};
  struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
  cl_platform_id platform;
  cl_int e;
  sigaction(SIGALRM, &on, NULL);
  setitimer(ITIMER_REAL, &often, NULL);
  must(clGetPlatformIDs(1, &platform, NULL), "platform");
  must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
  must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 8, devices, &n), "devices");
  context = clCreateContext(NULL, all ? n : 1, devices, NULL, NULL, &e);
  must(e, "context");
  queue = clCreateCommandQueue(context, device, 0, &e);
  must(e, "queue");
  setitimer(ITIMER_REAL, &never, NULL); /* compilers of drivers are not made for that */
  program = clCreateProgramWithSource(context, 1, &text, NULL, &e);
  must(e, "program");
  must(clBuildProgram(program, 1, &device, "", NULL, NULL), "build");
}

static void CL_CALLBACK gone(cl_mem m, void *name) {
  (void)m;
  printf("gone: %s\n", (const char *)name);
}

/* A part is used when its buffer was released, which goes after it. */
static void parts(void) {
  enum { SIZE = 1 << 16 };
  int *x = calloc(1, SIZE);
  cl_mem m = buffer(SIZE, x), p = part(m, SIZE / 2, SIZE / 4);
  must(clSetMemObjectDestructorCallback(m, gone, "buffer"), "callback");
  must(clSetMemObjectDestructorCallback(p, gone, "part"), "callback");
  must(clReleaseMemObject(m), "release");
  cl_kernel k = add(p, 7);
  run(k, SIZE / 4 / sizeof *x, 0, NULL, NULL);
  must(clEnqueueReadBuffer(queue, p, CL_TRUE, 0, SIZE / 4, x, 0, NULL, NULL), "read");
  printf("the part has %d and %d\n", x[0], x[SIZE / 4 / sizeof *x - 1]);
  must(clFinish(queue), "finish");
  must(clReleaseKernel(k), "release");
  must(clReleaseMemObject(p), "release");
  puts("both were released");
  free(x);
}

/* What is mapped stays while it is, though it was released, and so does what it is part of. */
static void mapped(cl_mem_flags flags, size_t n) {
  uint8_t *own = aligned_alloc(4096, n), back = 0;
  memset(own, 1, n);
  cl_int e;
  cl_mem m = clCreateBuffer(context, flags, n, flags & CL_MEM_USE_HOST_PTR ? own : NULL, &e), p = part(m, n / 2, n / 4);
  must(e, "buffer");
  must(clSetMemObjectDestructorCallback(m, gone, "what was mapped"), "callback"), must(clSetMemObjectDestructorCallback(p, gone, "a mapped part"), "callback");
  uint8_t *in = clEnqueueMapBuffer(queue, p, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, n / 4, 0, NULL, NULL, &e);
  must(e, "map");
  must(clReleaseMemObject(p), "release");
  memset(in, 7, n / 4);
  must(clEnqueueUnmapMemObject(queue, p, in, 0, NULL, NULL), "unmap"), must(clFinish(queue), "finish");
  must(clEnqueueReadBuffer(queue, m, CL_TRUE, n / 2 + n / 4 - 1, 1, &back, 0, NULL, NULL), "read");
  in = clEnqueueMapBuffer(queue, m, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, n, 0, NULL, NULL, &e);
  must(e, "map");
  must(clReleaseMemObject(m), "release");
  printf("released: %d, it has %d and %d\n", back, in[n / 2], in[n / 2 + n / 4 - 1]);
  in[n - 1] = 9;
  must(clEnqueueUnmapMemObject(queue, m, in, 0, NULL, NULL), "unmap"), must(clFinish(queue), "finish");
  free(own);
}

/* What a write that blocks has written is there for other queues, without events, and in memory of all sizes. */
static int elsewhere(size_t n, cl_command_queue_properties of_first) {
  cl_int e, wrong = 0, x, round;
  cl_command_queue first = clCreateCommandQueue(context, device, of_first, &e);
  if (e == CL_INVALID_QUEUE_PROPERTIES) return 0; /* not every device has those */
  must(e, "queue");
  cl_command_queue second = clCreateCommandQueue(context, device, 0, &e);
  must(e, "queue");
  cl_mem m = buffer(n, NULL);
  cl_kernel k = add(m, 1);
  const size_t one = 1;
  for (round = 0; round < 100; round++) {
    cl_event written;
    must(clEnqueueWriteBuffer(first, m, CL_TRUE, 0, sizeof round, &round, 0, NULL, round % 2 ? &written : NULL), "write");
    if (round % 4 > 1) must(clEnqueueNDRangeKernel(second, k, 1, NULL, &one, NULL, 0, NULL, NULL), "run");
    must(clEnqueueReadBuffer(second, m, CL_TRUE, 0, sizeof x, &x, 0, NULL, NULL), "read");
    wrong += x != round + (round % 4 > 1);
    if (round % 2) must(clReleaseEvent(written), "release");
  }
  clReleaseKernel(k), clReleaseMemObject(m), clReleaseCommandQueue(first), clReleaseCommandQueue(second);
  return wrong;
}

/* What was mapped without waiting, and is unmapped before it was there, stays as it is. */
static void maps(size_t n) {
  int *x = malloc(n), wrong = 0;
  for (size_t i = 0; i < n / sizeof *x; i++) x[i] = (int)i;
  cl_mem m = buffer(n, x);
  cl_kernel k = add(m, 1);
  for (int round = 1; round <= 200; round++) {
    cl_int e;
    run(k, n / sizeof *x, 0, NULL, NULL);
    void *p = clEnqueueMapBuffer(queue, m, CL_FALSE, CL_MAP_READ | CL_MAP_WRITE, 0, n, 0, NULL, NULL, &e);
    must(e, "map");
    must(clEnqueueUnmapMemObject(queue, m, p, 0, NULL, NULL), "unmap");
    void *room = calloc(1, n); /* may be where the map was */
    must(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, n, x, 0, NULL, NULL), "read");
    for (size_t i = 0; i < n / sizeof *x; i++) wrong += x[i] != (int)i + round || ((int *)room)[i];
    free(room);
  }
  printf("mapped %zu bytes, wrong %d\n", n, wrong);
  must(clReleaseKernel(k), "release"), must(clReleaseMemObject(m), "release");
  free(x);
}

static int told[4];
static cl_int said[4];
static void CL_CALLBACK tells(cl_event e, cl_int status, void *which) {
  (void)e;
  said[(intptr_t)which] = status;
  __atomic_store_n(&told[(intptr_t)which], 1, __ATOMIC_RELEASE);
}

/* state is that of an event that is waited for, or nothing: of its queue that is. */
static cl_int state(cl_event e, bool wait) {
  cl_int status = CL_QUEUED;
  if (wait) must(clWaitForEvents(1, &e), "wait");
  must(clFinish(queue), "finish");
  must(clGetEventInfo(e, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL), "status");
  return status;
}

/* facts are some that stay as they are. */
static void facts(cl_kernel k) {
  size_t width = 0;
  char name[64];
  cl_uint units, args;
  must(clGetKernelWorkGroupInfo(k, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof width, &width, NULL), "group");
  must(clGetKernelInfo(k, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL), "name");
  must(clGetKernelInfo(k, CL_KERNEL_NUM_ARGS, sizeof args, &args, NULL), "arguments");
  must(clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL), "units");
  if (!width || strcmp(name, "add")) puts("another kernel");
}

/* What is known to be over, and what stays as it is, is not asked for again. With quiet, a program says when it does not ask, and waits for a line before and after. */
static void known(bool quiet) {
  enum { SIZE = 1 << 16 };
  cl_int x = 3;
  cl_mem m = buffer(SIZE, NULL);
  cl_event fill, write;
  must(clEnqueueFillBuffer(queue, m, &x, sizeof x, 0, SIZE, 0, NULL, &fill), "fill");
  printf("filled: %d", state(fill, true));
  printf(" %d\n", state(fill, true));
  cl_kernel k = add(m, 1);
  facts(k);
  if (quiet) puts("quiet"), getchar();
  for (int i = 0; i < 1000; i++)
    if (state(fill, i % 2)) puts("it is not over any more");
  for (int i = 0; i < 1000; i++) facts(k);
  if (quiet) puts("was quiet"), getchar();
  must(clEnqueueWriteBuffer(queue, m, CL_TRUE, 4, sizeof x, &x, 0, NULL, &write), "write");
  printf("written: %d\n", state(write, false));
  must(clReleaseEvent(fill), "release"), must(clReleaseEvent(write), "release"), must(clReleaseKernel(k), "release"), must(clReleaseMemObject(m), "release");
}

/* A queue keeps order: what follows what waits for another queue waits for that. */
static void behind(void) {
  enum { SIZE = 1 << 16 };
  int *zero = calloc(1, SIZE), x = 0;
  size_t one = 1;
  cl_int e, rounds = 20000000;
  cl_mem m = buffer(SIZE, zero), other = buffer(SIZE, zero);
  cl_command_queue second = clCreateCommandQueue(context, device, 0, &e);
  must(e, "queue");
  cl_kernel k = clCreateKernel(program, "slow", &e);
  must(e, "kernel");
  must(clSetKernelArg(k, 0, sizeof m, &m), "argument"), must(clSetKernelArg(k, 1, sizeof rounds, &rounds), "argument");
  void *p = clEnqueueMapBuffer(queue, other, CL_TRUE, CL_MAP_READ, 0, SIZE, 0, NULL, NULL, &e);
  must(e, "map");
  cl_event done;
  must(clEnqueueNDRangeKernel(second, k, 1, NULL, &one, NULL, 0, NULL, &done), "run"), must(clFlush(second), "flush");
  must(clEnqueueUnmapMemObject(queue, other, p, 1, &done, NULL), "unmap");
  must(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, sizeof x, &x, 0, NULL, NULL), "read");
  printf("computed in another queue: %d\n", x);
  must(clReleaseEvent(done), "release"), must(clReleaseKernel(k), "release"), must(clReleaseCommandQueue(second), "release");
  must(clReleaseMemObject(m), "release"), must(clReleaseMemObject(other), "release"), free(zero);
}

/* What asked to be told that a command was submitted, runs and is complete is told that before it is over for who waits for it. */
static void notices(bool finish) {
  int x[16] = {0};
  memset(told, 0, sizeof told);
  cl_mem m = buffer(sizeof x, x);
  cl_kernel k = add(m, 1);
  cl_int e;
  cl_event gate = clCreateUserEvent(context, &e), done;
  must(e, "event");
  run(k, 16, 1, &gate, &done);
  for (cl_int when = CL_SUBMITTED; when >= CL_COMPLETE; when--) must(clSetEventCallback(done, when, tells, (void *)(intptr_t)when), "callback");
  must(clSetUserEventStatus(gate, CL_COMPLETE), "set");
  must(finish ? clFinish(queue) : clWaitForEvents(1, &done), "wait");
  for (int i = CL_COMPLETE; i <= CL_SUBMITTED; i++)
    if (!__atomic_load_n(&told[i], __ATOMIC_ACQUIRE)) printf("that it is %d was not told in time\n", i);
  printf("submitted %d, runs %d, complete %d\n", said[CL_SUBMITTED], said[CL_RUNNING], said[CL_COMPLETE]);
  must(clReleaseEvent(gate), "release"), must(clReleaseEvent(done), "release"), must(clReleaseKernel(k), "release"), must(clReleaseMemObject(m), "release");
}

static int called;
static void CL_CALLBACK calls(cl_event e, cl_int status, void *which) {
  (void)e;
  printf(" %d:%d", (int)(intptr_t)which, status);
  __atomic_add_fetch(&called, 1, __ATOMIC_RELEASE);
}

/* Callbacks of one queue come in its order, whatever order they were asked for in. */
static void order(void) {
  enum { EVENTS = 16 };
  cl_int e, x = 1;
  cl_mem m = buffer(1024, NULL);
  cl_event gate = clCreateUserEvent(context, &e), done[EVENTS];
  must(e, "event");
  for (int i = 0; i < EVENTS; i++) must(clEnqueueFillBuffer(queue, m, &x, sizeof x, 0, 1024, i == 0, i == 0 ? &gate : NULL, &done[i]), "fill");
  printf("called");
  for (int i = 0; i < EVENTS; i++) must(clSetEventCallback(done[i * 7 % EVENTS], CL_COMPLETE, calls, (void *)(intptr_t)(i * 7 % EVENTS)), "callback");
  must(clSetUserEventStatus(gate, CL_COMPLETE), "set");
  must(clFinish(queue), "finish");
  while (__atomic_load_n(&called, __ATOMIC_ACQUIRE) < EVENTS) usleep(1000);
  puts("");
  for (int i = 0; i < EVENTS; i++) must(clReleaseEvent(done[i]), "release");
  must(clReleaseEvent(gate), "release"), must(clReleaseMemObject(m), "release");
}

/* Whether arguments have names that were not asked for is the driver's. And of a binary, a device is named once. */
static void names(void) {
  const char *options[] = {NULL, "", "-DA=1", "-cl-kernel-arg-info"}, *text = "kernel void one(global int *where) { where[0] = 1; }";
  cl_int e;
  for (int i = 0; i < 4; i++) {
    char name[64] = "", with[64] = "";
    cl_program p = clCreateProgramWithSource(context, 1, &text, NULL, &e);
    must(e, "program"), must(clBuildProgram(p, 1, &device, options[i], NULL, NULL), "build");
    must(clGetProgramBuildInfo(p, device, CL_PROGRAM_BUILD_OPTIONS, sizeof with, with, NULL), "options");
    cl_kernel k = clCreateKernel(p, "one", &e);
    must(e, "kernel");
    e = clGetKernelArgInfo(k, 0, CL_KERNEL_ARG_NAME, sizeof name, name, NULL);
    printf("with '%s' the argument is %d '%s'\n", with, e, name);
    must(clReleaseKernel(k), "release"), must(clReleaseProgram(p), "release");
  }
  size_t sizes[2];
  must(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof *sizes, sizes, NULL), "size");
  unsigned char *built = malloc(sizes[1] = sizes[0]);
  const unsigned char *twice[] = {built, built};
  cl_device_id same[] = {device, device};
  must(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof built, &built, NULL), "binary");
  cl_program p = clCreateProgramWithBinary(context, 2, same, sizes, twice, NULL, &e);
  printf("one device twice: %d %d\n", p != NULL, e);
  free(built);
}

enum { TIMES = 20000 };
static cl_mem both[TIMES];
static int at[2], went;
static void CL_CALLBACK goes(cl_mem m, void *data) {
  (void)m, (void)data;
  __atomic_add_fetch(&went, 1, __ATOMIC_RELAXED);
}

static void *releases(void *me) {
  for (int i = 0; i < TIMES; i++) {
    __atomic_store_n(&at[(intptr_t)me], i + 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&at[1 - (intptr_t)me], __ATOMIC_ACQUIRE) <= i) {}
    must(clReleaseMemObject(both[i]), "release");
  }
  return NULL;
}

/* Two threads release the same memory at once, the last that have it. */
static void together(void) {
  pthread_t other;
  for (int i = 0; i < TIMES; i++) {
    both[i] = buffer(64, NULL);
    must(clSetMemObjectDestructorCallback(both[i], goes, NULL), "callback");
    must(clRetainMemObject(both[i]), "retain");
  }
  pthread_create(&other, NULL, releases, (void *)1);
  releases((void *)0);
  pthread_join(other, NULL);
  printf("of %d went %d\n", TIMES, went);
}

/* An image where the program's memory is has the rows that it has there. */
static void rows(void) {
  static uint8_t own[4 * 6 * 64] __attribute__((aligned(4096)));
  cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc box = {.image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = 8, .image_height = 5, .image_depth = 4, .image_row_pitch = 64, .image_slice_pitch = 6 * 64};
  size_t row = 0, slice = 0, zero[3] = {0}, whole[3] = {8, 5, 4};
  cl_int e;
  cl_mem m = clCreateImage(context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, &format, &box, own, &e);
  must(e, "image");
  must(clGetImageInfo(m, CL_IMAGE_ROW_PITCH, sizeof row, &row, NULL), "row");
  must(clGetImageInfo(m, CL_IMAGE_SLICE_PITCH, sizeof slice, &slice, NULL), "slice");
  printf("rows of %zu, slices of %zu", row, slice);
  uint8_t *p = clEnqueueMapImage(queue, m, CL_TRUE, CL_MAP_READ, zero, whole, &row, &slice, 0, NULL, NULL, &e);
  must(e, "map");
  printf(", mapped %zu, %zu at %td\n", row, slice, p - own);
  must(clEnqueueUnmapMemObject(queue, m, p, 0, NULL, NULL), "unmap");
  must(clFinish(queue), "finish"), must(clReleaseMemObject(m), "release");
}

/* What objects were made of is told as it was said. */
static void origins(void) {
  const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
  const cl_queue_properties list[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};
  const cl_sampler_properties how[] = {CL_SAMPLER_NORMALIZED_COORDS, CL_FALSE, 0};
  cl_int e[5];
  cl_mem m = buffer(4096, NULL), of = NULL, whole = NULL;
  cl_mem image = clCreateImage(context, CL_MEM_READ_WRITE, &format, &(cl_image_desc){.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 64, .buffer = m}, NULL, &e[0]);
  cl_command_queue queues[] = {clCreateCommandQueue(context, device, 0, &e[1]), clCreateCommandQueueWithProperties(context, device, list, &e[2])};
  cl_sampler samplers[] = {clCreateSampler(context, CL_TRUE, CL_ADDRESS_REPEAT, CL_FILTER_LINEAR, &e[3]), clCreateSamplerWithProperties(context, how, &e[4])};
  for (int i = 0; i < 5; i++) must(e[i], "origins");
  must(clGetImageInfo(image, CL_IMAGE_BUFFER, sizeof of, &of, NULL), "an image's buffer");
  must(clGetMemObjectInfo(image, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof whole, &whole, NULL), "what it is part of");
  printf("image of its buffer: %d %d\n", of == m, whole == m);
  for (int i = 0; i < 2; i++) {
    size_t q = 99, s = 99;
    must(clGetCommandQueueInfo(queues[i], CL_QUEUE_PROPERTIES_ARRAY, 0, NULL, &q), "a queue's properties");
    must(clGetSamplerInfo(samplers[i], CL_SAMPLER_PROPERTIES, 0, NULL, &s), "a sampler's properties");
    printf("properties: %zu %zu\n", q, s);
    clReleaseCommandQueue(queues[i]), clReleaseSampler(samplers[i]);
  }
  clReleaseMemObject(image), clReleaseMemObject(m);
}

/* What the program may do with an image of a buffer is what it may do with that, unless it says so. */
static void allowed(void) {
  static uint8_t host[256];
  const cl_mem_flags may[] = {CL_MEM_READ_WRITE, CL_MEM_READ_ONLY | CL_MEM_HOST_WRITE_ONLY | CL_MEM_ALLOC_HOST_PTR, CL_MEM_WRITE_ONLY | CL_MEM_HOST_READ_ONLY, CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS};
  const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
  const size_t zero[3] = {0}, some[3] = {4, 1, 1};
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 3; k++) {
      cl_int e;
      size_t row;
      cl_mem_flags flags = 0;
      cl_mem m = clCreateBuffer(context, may[i], sizeof host, NULL, &e);
      must(e, "buffer");
      cl_mem image = clCreateImage(context, k == 1 ? may[i] & 7 : k == 2 ? may[i] & CL_MEM_HOST_NO_ACCESS : 0, &format, &(cl_image_desc){.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 64, .buffer = m}, NULL, &e);
      must(e, "image");
      must(clGetMemObjectInfo(image, CL_MEM_FLAGS, sizeof flags, &flags, NULL), "flags");
      const cl_int w = clEnqueueWriteImage(queue, image, CL_TRUE, zero, some, 0, 0, host, 0, NULL, NULL), r = clEnqueueReadImage(queue, image, CL_TRUE, zero, some, 0, 0, host, 0, NULL, NULL);
      void *p = clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_READ, zero, some, &row, NULL, 0, NULL, NULL, &e);
      if (p) must(clEnqueueUnmapMemObject(queue, image, p, 0, NULL, NULL), "unmap");
      printf("allowed %d %d: %x, %d %d %d\n", i, k, (unsigned)flags, w, r, e);
      clReleaseMemObject(image), clReleaseMemObject(m);
    }
}

/* Images have the pitches that they were given, with memory of the program's or without. */
static void pitches(void) {
  static uint8_t host[1 << 15];
  const cl_mem_object_type types[] = {CL_MEM_OBJECT_IMAGE1D, CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE2D_ARRAY, CL_MEM_OBJECT_IMAGE3D};
  const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
  const size_t rows[] = {0, 3, 32, 48, 50}, slices[] = {0, 5, 48 * 8, 48 * 10};
  for (int lent = 0; lent < 3; lent++)
    for (int t = 0; t < 5; t++)
      for (int k = 0; k < (t < 2 ? 5 : 20); k++) {
        cl_int e;
        size_t row = 0, slice = 0;
        cl_image_desc d = {.image_type = types[t], .image_width = 8, .image_height = 8, .image_depth = t == 4 ? 4 : 1, .image_array_size = 4, .image_row_pitch = rows[k % 5], .image_slice_pitch = slices[k / 5]};
        cl_mem m = clCreateImage(context, lent == 2 ? CL_MEM_USE_HOST_PTR : lent ? CL_MEM_COPY_HOST_PTR : 0, &format, &d, lent ? host : NULL, &e);
        if (m) {
          must(clGetImageInfo(m, CL_IMAGE_ROW_PITCH, sizeof row, &row, NULL), "row");
          must(clGetImageInfo(m, CL_IMAGE_SLICE_PITCH, sizeof slice, &slice, NULL), "slice");
          clReleaseMemObject(m);
        }
        printf("pitches %d %d %d: %s %zu %zu\n", lent, t, k, e ? "no" : "yes", row, slice);
      }
}

/* An image of the program's memory is mapped before there is what is in it. */
static void ahead(void) {
  enum { SIDE = 5, PITCH = 48, PIXEL = 4 };
  static uint8_t lent[SIDE * PITCH];
  const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
  const cl_image_desc d = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = SIDE, .image_height = SIDE, .image_row_pitch = PITCH};
  const size_t zero[3] = {0}, all[3] = {SIDE, SIDE, 1};
  const cl_uint color[4] = {1, 2, 3, 4};
  cl_int e;
  size_t row = 0, wrong = 0;
  cl_mem m = clCreateImage(context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, &format, &d, lent, &e);
  must(e, "image");
  cl_event gate = clCreateUserEvent(context, &e);
  must(e, "user event");
  clEnqueueMapImage(queue, m, CL_FALSE, CL_MAP_READ, zero, all, &row, NULL, 0, &gate, NULL, &e);
  printf("a list of none: %d\n", e);
  must(clEnqueueFillImage(queue, m, color, zero, all, 1, &gate, NULL), "fill");
  uint8_t *p = clEnqueueMapImage(queue, m, CL_FALSE, CL_MAP_READ, zero, all, &row, NULL, 1, &gate, NULL, &e);
  must(e, "map");
  must(clSetUserEventStatus(gate, CL_COMPLETE), "set");
  must(clFinish(queue), "finish");
  for (size_t y = 0; y < SIDE; y++)
    for (size_t x = 0; x < row; x++) wrong += p[y * row + x] != (x < SIDE * PIXEL ? x % PIXEL + 1 : 0);
  printf("rows of %zu, wrong %zu\n", row, wrong);
  must(clEnqueueUnmapMemObject(queue, m, p, 0, NULL, NULL), "unmap");
  must(clFinish(queue), "finish");
  clReleaseEvent(gate), clReleaseMemObject(m);
}

static long resident(void) {
  long size, pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f && fscanf(f, "%ld %ld", &size, &pages) != 2) pages = 0;
  if (f) fclose(f);
  return pages;
}

/* What is mapped again and again takes new memory once, and gives it back when it is not mapped for a while. */
static void again(bool idle) {
  enum { SIZE = 16 << 20, PAGES = SIZE / 4096, ROUNDS = 10 };
  struct rusage before, after;
  cl_mem m = buffer(SIZE, NULL);
  const long had = resident();
  for (int i = 0; i < ROUNDS; i++) {
    cl_int e;
    char *p = clEnqueueMapBuffer(queue, m, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, SIZE - (size_t)i, 0, NULL, NULL, &e);
    must(e, "map");
    memset(p, i, SIZE - (size_t)i);
    if (i == 0) getrusage(RUSAGE_SELF, &before);
    must(clEnqueueUnmapMemObject(queue, m, p, 0, NULL, NULL), "unmap"), must(clFinish(queue), "finish");
  }
  getrusage(RUSAGE_SELF, &after);
  printf("new pages for what is mapped again: %s\n", after.ru_minflt - before.ru_minflt < PAGES ? "few" : "many");
  if (idle) {
    const long kept = resident() - had;
    usleep(1100000);
    run(add(m, 1), 1, 0, NULL, NULL), must(clFinish(queue), "finish");
    printf("kept: %s, and when it is idle: %s\n", kept < PAGES ? "no" : "yes", resident() - had < PAGES / 2 ? "no" : "yes");
  }
  must(clReleaseMemObject(m), "release");
}

/* All types, in a language whose numbers have a sign. */
static void types(void) {
  cl_uint all = 0, n = 0;
  must(clGetDeviceIDs(NULL, CL_DEVICE_TYPE_ALL, 0, NULL, &all), "devices");
  must(clGetDeviceIDs(NULL, (cl_device_type)-1, 0, NULL, &n), "devices of all types");
  printf("%s devices of all types\n", n == all ? "the same" : "other");
}

/* What is read while nobody waits for it is there when the queue has come to its end. */
static void late(void) {
  static cl_int got[1024];
  int missing = 0;
  for (int i = 0; i < 300; i++) {
    cl_mem m = buffer(sizeof got, memset(got, 0, sizeof got));
    cl_kernel k = add(m, 1);
    run(k, 1024, 0, NULL, NULL), run(k, 1024, 0, NULL, NULL);
    must(clEnqueueReadBuffer(queue, m, CL_FALSE, 0, sizeof got, got, 0, NULL, NULL), "read");
    must(clFinish(queue), "finish");
    missing += got[1023] != 2;
    must(clReleaseKernel(k), "release"), must(clReleaseMemObject(m), "release");
  }
  printf("%d reads are late\n", missing);
}

/* While a queue computes for longer than a turn takes, it is given what the program holds back, and another queue something to do. */
static void held_back(void) {
  const size_t one = 1;
  cl_int e, x = 0, y = 7, rounds = 100000000;
  cl_mem m = buffer(sizeof x, &x), other = buffer(sizeof x, &x);
  cl_command_queue second = clCreateCommandQueue(context, device, 0, &e);
  must(e, "queue");
  cl_kernel k = clCreateKernel(program, "slow", &e);
  must(e, "kernel");
  must(clSetKernelArg(k, 0, sizeof m, &m), "argument"), must(clSetKernelArg(k, 1, sizeof rounds, &rounds), "argument");
  must(clEnqueueNDRangeKernel(queue, k, 1, NULL, &one, NULL, 0, NULL, NULL), "run"), must(clFlush(queue), "flush");
  usleep(50000);
  cl_event gate = clCreateUserEvent(context, &e);
  must(e, "event");
  must(clEnqueueReadBuffer(queue, other, CL_FALSE, 0, sizeof x, &x, 1, &gate, NULL), "read");
  must(clEnqueueFillBuffer(second, other, &y, sizeof y, 0, sizeof y, 0, NULL, NULL), "fill");
  must(clFinish(second), "finish"), must(clSetUserEventStatus(gate, CL_COMPLETE), "set"), must(clFinish(queue), "finish");
  printf("held back: %d\n", x);
  must(clReleaseEvent(gate), "release"), must(clReleaseKernel(k), "release"), must(clReleaseCommandQueue(second), "release");
  must(clReleaseMemObject(m), "release"), must(clReleaseMemObject(other), "release");
}

/* Pipes there are none of, and that is said. */
static void pipes(void) {
  cl_int bad;
  cl_mem pipe = clCreatePipe(context, 0, 4, 4, NULL, &bad);
  printf("pipes %d %d\n", pipe != NULL, bad);
}

/* A device that cannot be divided says so, and computes on. */
static void divides(void) {
  const cl_device_partition_property ways[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
  cl_uint n = 0;
  cl_int bad = clCreateSubDevices(device, ways, 0, NULL, &n), x = 1;
  must(clEnqueueFillBuffer(queue, buffer(sizeof x, NULL), &x, sizeof x, 0, sizeof x, 0, NULL, NULL), "fill"), must(clFinish(queue), "finish");
  printf("divided %d\n", bad);
}

/* kept releases what others are made of, finds it again by those, and uses it. */
static void kept(void) {
  const char *text = "kernel void one(global int *a) { a[0] = 1; } kernel void two(global int *a) { a[0] = 2; }";
  cl_device_id devices[8];
  cl_uint count = 0;
  size_t size = 0, once = 1;
  cl_int e, x = 0;
  cl_context c = NULL;
  cl_program p = NULL;
  cl_mem whole = NULL;
  cl_command_queue q = NULL;
  must(clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof devices, devices, &size), "devices");
  cl_context own = clCreateContext(NULL, (cl_uint)(size / sizeof *devices), devices, NULL, NULL, &e);
  must(e, "context");
  cl_command_queue first = clCreateCommandQueue(own, device, 0, &e);
  must(e, "queue"), must(clReleaseContext(own), "release of a context");
  must(clGetCommandQueueInfo(first, CL_QUEUE_CONTEXT, sizeof c, &c, NULL), "context of a queue");
  must(clGetContextInfo(c, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, NULL), "count");
  cl_program made = clCreateProgramWithSource(c, 1, &text, NULL, &e);
  must(e, "program"), must(clBuildProgram(made, 0, NULL, "", NULL, NULL), "build");
  cl_kernel k = clCreateKernel(made, "one", &e);
  must(e, "kernel"), must(clReleaseProgram(made), "release of a program");
  must(clGetKernelInfo(k, CL_KERNEL_PROGRAM, sizeof p, &p, NULL), "program of a kernel");
  cl_kernel other = clCreateKernel(p, "two", &e);
  must(e, "kernel of a program that is found again");
  cl_mem m = clCreateBuffer(c, CL_MEM_READ_WRITE, 8192, NULL, &e);
  must(e, "buffer of a context that is found again");
  cl_mem some = part(m, 4096, 4096);
  must(clReleaseMemObject(m), "release of a buffer");
  must(clGetMemObjectInfo(some, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof whole, &whole, NULL), "buffer of a part");
  must(clRetainMemObject(whole), "retain");
  must(clSetKernelArg(other, 0, sizeof whole, &whole), "argument");
  cl_event done;
  must(clEnqueueNDRangeKernel(first, other, 1, NULL, &once, NULL, 0, NULL, &done), "run");
  must(clReleaseCommandQueue(first), "release of a queue");
  must(clGetEventInfo(done, CL_EVENT_COMMAND_QUEUE, sizeof q, &q, NULL), "queue of an event");
  must(clEnqueueReadBuffer(q, whole, CL_TRUE, 0, sizeof x, &x, 1, &done, NULL), "read");
  printf("kept %d %d %d %d %d, found again %d\n", count > 0, c == own, p == made, whole == m, q == first, x);
  must(clReleaseEvent(done), "release"), must(clReleaseKernel(k), "release"), must(clReleaseKernel(other), "release"), must(clReleaseMemObject(some), "release");
  must(clReleaseMemObject(whole), "release");
}

int main(int n, char **args) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  start_alarmed(n > 1 && !strcmp(args[1], "all"));
  if (n > 1 && !strcmp(args[1], "quiet")) {
    known(true);
    return 0;
  }
  if (n > 1 && !strcmp(args[1], "divides")) {
    divides();
    return 0;
  }
  if (n > 1 && !strcmp(args[1], "again")) {
    again(true);
    return 0;
  }
  int wrong = 0;
  for (size_t size = 4096; size <= 1 << 16; size <<= 4) wrong += elsewhere(size, 0) + elsewhere(size, CL_QUEUE_PROFILING_ENABLE) + elsewhere(size, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  printf("written in another queue: %d are wrong\n", wrong);
  late();
  if (n > 1 && !strcmp(args[1], "late")) return 0;
  types();
  again(false);
  held_back();
  pipes();
  parts();
  origins();
  allowed();
  kept();
  pitches();
  ahead();
  for (size_t size = 4096; size <= 1 << 18; size <<= 6) mapped(CL_MEM_READ_WRITE, size), mapped(CL_MEM_USE_HOST_PTR, size), mapped(CL_MEM_ALLOC_HOST_PTR, size);
  if (n > 1) return 0;
  known(false), behind();
  maps(4096), maps(1 << 16);
  for (int i = 0; i < 20; i++) notices(i % 2);
  order();
  names();
  together();
  rows();
  return 0;
}
