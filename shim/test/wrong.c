/* Calls of OpenCL with wrong arguments: what each returns, a line each. Native
 * drivers and the pool are to say the same. With "all" as argument contexts are over all devices. */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#include <CL/cl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static cl_int e;
static void say(const char *call, cl_int code) { printf("%d %s\n", code, call), fflush(stdout); }
static void made(const char *call, const void *object) {
  printf("%d%s %s\n", e, object ? " made" : "", call), fflush(stdout);
  e = 77;
}
/* Some drivers crash: the call that did goes on here. A crash of one of their own
 * threads ends the program. */
static sigjmp_buf before;
static pthread_t caller;
static volatile sig_atomic_t calling;
static void crashed(int number) {
  if (calling && pthread_equal(pthread_self(), caller)) siglongjmp(before, number);
  signal(number, SIG_DFL), raise(number);
}
#define TRY(CALL, TEXT, ...)                                               \
  do {                                                                     \
    if (sigsetjmp(before, 1)) printf("crash %s\n", TEXT), fflush(stdout); \
    else calling = 1, CALL(TEXT, __VA_ARGS__);                             \
    calling = 0;                                                           \
  } while (0)
#define T(...) TRY(say, #__VA_ARGS__, __VA_ARGS__)
#define O(...) TRY(made, #__VA_ARGS__, __VA_ARGS__)
static void must(cl_int bad, const char *what) {
  if (bad) fprintf(stderr, "%s: %d\n", what, bad), exit(1);
}

static const char *text = "kernel void k(global int *a, int v, local int *l, sampler_t s, read_only image2d_t i) { a[0] = v + l[0] + read_imagei(i, s, (int2)(0, 0)).x; }\n"
                          "kernel __attribute__((reqd_work_group_size(4, 1, 1))) void four(global int *a) { a[get_global_id(0)] = 1; }\n"
                          "kernel void one(global int *a) { a[get_global_id(0)] = 1; }\n";
static const char *broken = "kernel void k(global int *a) { a[0] = nowhere; }\n";

int main(int argc, char **argv) {
  caller = pthread_self();
  struct sigaction catch = {.sa_handler = crashed};
  sigaction(SIGSEGV, &catch, NULL);
  cl_platform_id platform;
  cl_device_id d, every[8];
  cl_uint n;
  size_t size;
  char space[4096];
  must(clGetPlatformIDs(1, &platform, NULL), "platform");
  must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 8, every, &n), "device");
  d = every[0], n = argc > 1 && !strcmp(argv[1], "all") ? n : 1;
  cl_context c = clCreateContext(NULL, n, every, NULL, NULL, &e), c2 = clCreateContext(NULL, n, every, NULL, NULL, &e);
  cl_ulong time;
  T(clGetDeviceAndHostTimer(d, NULL, NULL));
  T(clGetDeviceAndHostTimer(d, &time, NULL));
  T(clGetHostTimer(d, NULL));
  O(clCreatePipe(c, 0, 4, 4, NULL, &e));
  cl_command_queue q = clCreateCommandQueue(c, d, 0, &e), q2 = clCreateCommandQueue(c2, d, 0, &e), timed = clCreateCommandQueue(c, d, CL_QUEUE_PROFILING_ENABLE, &e);
  must(e, "queue");
  enum { N = 1024 };
  char host[N];
  memset(host, 0, sizeof host);
  cl_mem m = clCreateBuffer(c, CL_MEM_READ_WRITE, N, NULL, &e), m2 = clCreateBuffer(c2, CL_MEM_READ_WRITE, N, NULL, &e), half = clCreateBuffer(c, CL_MEM_READ_ONLY, N / 2, NULL, &e);
  cl_mem blind = clCreateBuffer(c, CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS, N, NULL, &e), looks = clCreateBuffer(c, CL_MEM_READ_WRITE | CL_MEM_HOST_READ_ONLY, N, NULL, &e);
  cl_mem tells = clCreateBuffer(c, CL_MEM_READ_WRITE | CL_MEM_HOST_WRITE_ONLY, N, NULL, &e);
  cl_buffer_region region = {0, N / 2}, beyond = {N / 2, N}, none = {0, 0}, askew = {1, N / 2};
  cl_mem part = clCreateSubBuffer(m, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &e);
  cl_image_format rgba = {CL_RGBA, CL_UNSIGNED_INT8}, odd = {CL_RGB, CL_UNSIGNED_INT8}, nonsense = {0, 0};
  cl_image_desc flat = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8}, thin = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 0, .image_height = 8},
                huge = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 1 << 30, .image_height = 8}, pitched = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8, .image_row_pitch = 3},
                strange = {.image_type = 0x1234, .image_width = 8, .image_height = 8};
  cl_mem image = clCreateImage(c, CL_MEM_READ_WRITE, &rgba, &flat, NULL, &e);
  must(e, "image");
  cl_sampler s = clCreateSampler(c, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &e);
  cl_program p = clCreateProgramWithSource(c, 1, &text, NULL, &e), bad = clCreateProgramWithSource(c, 1, &broken, NULL, &e), raw = clCreateProgramWithSource(c, 1, &text, NULL, &e);
  must(clBuildProgram(p, 1, &d, "", NULL, NULL), "build");
  cl_kernel k = clCreateKernel(p, "k", &e), four = clCreateKernel(p, "four", &e), one = clCreateKernel(p, "one", &e), unset = clCreateKernel(p, "one", &e);
  must(e, "kernel");
  must(clSetKernelArg(four, 0, sizeof m, &m), "argument"), must(clSetKernelArg(one, 0, sizeof m, &m), "argument");
  cl_event own = clCreateUserEvent(c, &e), other = clCreateUserEvent(c2, &e), done;
  must(clEnqueueMarkerWithWaitList(q, 0, NULL, &done), "marker");
  must(clWaitForEvents(1, &done), "wait");
  size_t at[3] = {0, 0, 0}, box[3] = {8, 8, 1}, zero[3] = {0, 0, 0}, out[3] = {4, 4, 0}, large[3] = {64, 64, 1}, deep[3] = {4, 4, 2}, w4 = 4, w6 = 6, w0 = 0, wide = 1 << 20;

  /* Platforms and devices. */
  T(clGetPlatformIDs(0, NULL, NULL));
  T(clGetPlatformIDs(0, &platform, NULL));
  T(clGetPlatformInfo(platform, 1, 0, NULL, &size));
  T(clGetPlatformInfo(platform, CL_PLATFORM_NAME, 1, space, NULL));
  T(clGetDeviceIDs(platform, 0, 1, &d, NULL));
  T(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, &d, NULL));
  T(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, NULL));
  T(clGetDeviceIDs(platform, 1 << 20, 1, &d, &n));
  T(clGetDeviceInfo(d, 1, 0, NULL, &size));
  T(clGetDeviceInfo(d, CL_DEVICE_NAME, 1, space, NULL));
  T(clGetDeviceInfo(d, CL_DEVICE_MAX_COMPUTE_UNITS, 3, space, NULL));
  T(clUnloadPlatformCompiler(platform));

  /* Contexts. */
  cl_context_properties twice[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0}, wrong[] = {0x4321, 1, 0},
                        nowhere[] = {CL_CONTEXT_PLATFORM, 0, 0}, neither[] = {CL_CONTEXT_INTEROP_USER_SYNC, -1, 0};
  O(clCreateContext(NULL, 0, &d, NULL, NULL, &e));
  O(clCreateContext(NULL, 1, NULL, NULL, NULL, &e));
  O(clCreateContext(NULL, 1, &d, NULL, space, &e));
  O(clCreateContext(wrong, 1, &d, NULL, NULL, &e));
  O(clCreateContext(twice, 1, &d, NULL, NULL, &e));
  O(clCreateContext(nowhere, 1, &d, NULL, NULL, &e));
  O(clCreateContext(neither, 1, &d, NULL, NULL, &e));
  O(clCreateContextFromType(nowhere, CL_DEVICE_TYPE_ALL, NULL, NULL, &e));
  T(clGetContextInfo(c, 1, 0, NULL, &size));
  T(clGetContextInfo(c, CL_CONTEXT_DEVICES, 1, space, NULL));

  /* Queues. */
  cl_queue_properties unknown[] = {0x4321, 1, 0}, flags[] = {CL_QUEUE_PROPERTIES, 1 << 20, 0};
  O(clCreateCommandQueue(NULL, d, 0, &e));
  O(clCreateCommandQueue(c, NULL, 0, &e));
  O(clCreateCommandQueue(c, d, 1 << 20, &e));
  O(clCreateCommandQueueWithProperties(c, d, unknown, &e));
  O(clCreateCommandQueueWithProperties(c, d, flags, &e));
  T(clGetCommandQueueInfo(q, 1, 0, NULL, &size));
  T(clGetCommandQueueInfo(q, CL_QUEUE_SIZE, 0, NULL, &size));

  /* Buffers. */
  O(clCreateBuffer(NULL, 0, N, NULL, &e));
  O(clCreateBuffer(c, 0, 0, NULL, &e));
  O(clCreateBuffer(c, 1 << 20, N, NULL, &e));
  O(clCreateBuffer(c, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, N, NULL, &e));
  O(clCreateBuffer(c, CL_MEM_READ_WRITE | CL_MEM_READ_ONLY, N, NULL, &e));
  O(clCreateBuffer(c, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS, N, NULL, &e));
  O(clCreateBuffer(c, CL_MEM_USE_HOST_PTR, N, NULL, &e));
  O(clCreateBuffer(c, CL_MEM_COPY_HOST_PTR, N, NULL, &e));
  O(clCreateBuffer(c, 0, N, host, &e));
  O(clCreateBuffer(c, CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR, N, host, &e));
  O(clCreateBuffer(c, CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR, N, host, &e));
  O(clCreateBuffer(c, 0, (size_t)1 << 60, NULL, &e));
  O(clCreateSubBuffer(NULL, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &e));
  O(clCreateSubBuffer(part, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &e));
  O(clCreateSubBuffer(image, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &e));
  O(clCreateSubBuffer(m, 0, 1, &region, &e));
  O(clCreateSubBuffer(m, 0, CL_BUFFER_CREATE_TYPE_REGION, NULL, &e));
  O(clCreateSubBuffer(m, 0, CL_BUFFER_CREATE_TYPE_REGION, &beyond, &e));
  O(clCreateSubBuffer(m, 0, CL_BUFFER_CREATE_TYPE_REGION, &none, &e));
  O(clCreateSubBuffer(m, 0, CL_BUFFER_CREATE_TYPE_REGION, &askew, &e));
  O(clCreateSubBuffer(half, CL_MEM_WRITE_ONLY, CL_BUFFER_CREATE_TYPE_REGION, &region, &e));
  O(clCreateSubBuffer(m, CL_MEM_USE_HOST_PTR, CL_BUFFER_CREATE_TYPE_REGION, &region, &e));
  O(clCreateSubBuffer(blind, CL_MEM_HOST_READ_ONLY, CL_BUFFER_CREATE_TYPE_REGION, &region, &e));
  T(clGetMemObjectInfo(m, 1, 0, NULL, &size));
  T(clGetMemObjectInfo(m, CL_MEM_SIZE, 1, space, NULL));
  T(clGetMemObjectInfo(NULL, CL_MEM_SIZE, 8, space, NULL));
  T(clSetMemObjectDestructorCallback(m, NULL, NULL));
  T(clRetainMemObject(NULL));
  T(clReleaseMemObject(NULL));

  /* Images and samplers. */
  O(clCreateImage(NULL, 0, &rgba, &flat, NULL, &e));
  O(clCreateImage(c, 0, NULL, &flat, NULL, &e));
  O(clCreateImage(c, 0, &rgba, NULL, NULL, &e));
  O(clCreateImage(c, 0, &nonsense, &flat, NULL, &e));
  O(clCreateImage(c, 0, &odd, &flat, NULL, &e));
  O(clCreateImage(c, 0, &rgba, &thin, NULL, &e));
  O(clCreateImage(c, 0, &rgba, &huge, NULL, &e));
  O(clCreateImage(c, 0, &rgba, &pitched, NULL, &e));
  O(clCreateImage(c, CL_MEM_COPY_HOST_PTR, &rgba, &pitched, host, &e));
  O(clCreateImage(c, 0, &rgba, &strange, NULL, &e));
  O(clCreateImage(c, CL_MEM_COPY_HOST_PTR, &rgba, &flat, NULL, &e));
  O(clCreateImage(c, 0, &rgba, &flat, host, &e));
  O(clCreateImage(c, 1 << 20, &rgba, &flat, NULL, &e));
  T(clGetSupportedImageFormats(NULL, 0, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &n));
  T(clGetSupportedImageFormats(c, 0, 0x1234, 0, NULL, &n));
  T(clGetSupportedImageFormats(c, 0, CL_MEM_OBJECT_IMAGE2D, 0, &rgba, &n));
  T(clGetImageInfo(image, 1, 0, NULL, &size));
  T(clGetImageInfo(m, CL_IMAGE_WIDTH, 8, space, NULL));
  T(clGetImageInfo(image, CL_IMAGE_WIDTH, 1, space, NULL));
  O(clCreateSampler(NULL, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &e));
  O(clCreateSampler(c, CL_FALSE, 1, CL_FILTER_NEAREST, &e));
  O(clCreateSampler(c, CL_FALSE, CL_ADDRESS_CLAMP, 1, &e));
  T(clGetSamplerInfo(s, 1, 0, NULL, &size));
  T(clGetSamplerInfo(NULL, CL_SAMPLER_CONTEXT, 8, space, NULL));

  /* Programs. */
  size_t length = 3;
  const unsigned char *binary = (const unsigned char *)"xyz", *no_binary = NULL;
  cl_int status = 77;
  const char *holes[] = {text, NULL};
  O(clCreateProgramWithSource(NULL, 1, &text, NULL, &e));
  O(clCreateProgramWithSource(c, 0, &text, NULL, &e));
  O(clCreateProgramWithSource(c, 2, holes, NULL, &e));
  O(clCreateProgramWithBinary(NULL, 1, &d, &length, &binary, &status, &e));
  O(clCreateProgramWithBinary(c, 0, &d, &length, &binary, &status, &e));
  O(clCreateProgramWithBinary(c, 1, NULL, &length, &binary, &status, &e));
  O(clCreateProgramWithBinary(c, 1, &d, NULL, &binary, &status, &e));
  O(clCreateProgramWithBinary(c, 1, &d, &length, &no_binary, &status, &e));
  O(clCreateProgramWithBinary(c, 1, &d, &length, &binary, &status, &e));
  O(clCreateProgramWithBuiltInKernels(c, 1, &d, NULL, &e));
  O(clCreateProgramWithBuiltInKernels(c, 0, &d, "x", &e));
  O(clCreateProgramWithBuiltInKernels(c, 1, &d, "x", &e));
  T(clBuildProgram(NULL, 0, NULL, NULL, NULL, NULL));
  T(clBuildProgram(raw, 1, NULL, NULL, NULL, NULL));
  T(clBuildProgram(raw, 0, &d, NULL, NULL, NULL));
  T(clBuildProgram(raw, 0, NULL, NULL, NULL, space));
  T(clBuildProgram(raw, 0, NULL, "-such-option", NULL, NULL));
  T(clBuildProgram(bad, 0, NULL, NULL, NULL, NULL));
  T(clBuildProgram(p, 0, NULL, NULL, NULL, NULL)); /* it has kernels */
  T(clCompileProgram(NULL, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL));
  T(clCompileProgram(raw, 1, NULL, NULL, 0, NULL, NULL, NULL, NULL));
  T(clCompileProgram(raw, 0, NULL, "-such-option", 0, NULL, NULL, NULL, NULL));
  T(clCompileProgram(bad, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL));
  T(clCompileProgram(p, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL));
  O(clLinkProgram(NULL, 0, NULL, NULL, 1, &p, NULL, NULL, &e));
  O(clLinkProgram(c, 0, NULL, NULL, 0, &p, NULL, NULL, &e));
  O(clLinkProgram(c, 0, NULL, NULL, 1, NULL, NULL, NULL, &e));
  O(clLinkProgram(c, 1, NULL, NULL, 1, &p, NULL, NULL, &e));
  O(clLinkProgram(c, 0, NULL, NULL, 1, &raw, NULL, NULL, &e));
  T(clGetProgramInfo(p, 1, 0, NULL, &size));
  T(clGetProgramInfo(p, CL_PROGRAM_NUM_DEVICES, 1, space, NULL));
  T(clGetProgramInfo(NULL, CL_PROGRAM_NUM_DEVICES, 4, space, NULL));
  T(clGetProgramInfo(bad, CL_PROGRAM_NUM_KERNELS, 8, space, NULL));
  T(clGetProgramInfo(bad, CL_PROGRAM_KERNEL_NAMES, 8, space, NULL));
  T(clGetProgramBuildInfo(p, d, 1, 0, NULL, &size));
  T(clGetProgramBuildInfo(p, NULL, CL_PROGRAM_BUILD_STATUS, 4, space, NULL));
  T(clGetProgramBuildInfo(p, d, CL_PROGRAM_BUILD_STATUS, 1, space, NULL));

  /* Kernels. */
  cl_kernel some[8];
  cl_int v = 1;
  O(clCreateKernel(NULL, "k", &e));
  O(clCreateKernel(p, NULL, &e));
  O(clCreateKernel(p, "nothing", &e));
  O(clCreateKernel(bad, "k", &e));
  T(clCreateKernelsInProgram(NULL, 8, some, &n));
  T(clCreateKernelsInProgram(p, 1, some, &n));
  T(clCreateKernelsInProgram(bad, 8, some, &n));
  T(clSetKernelArg(NULL, 0, sizeof m, &m));
  T(clSetKernelArg(k, 5, sizeof m, &m));
  T(clSetKernelArg(k, 0, 1, &m));
  T(clSetKernelArg(k, 0, sizeof s, &s));
  T(clSetKernelArg(k, 1, 2, &v));
  T(clSetKernelArg(k, 1, sizeof v, NULL));
  T(clSetKernelArg(k, 2, 0, NULL));
  T(clSetKernelArg(k, 2, 8, &v));
  T(clSetKernelArg(k, 3, sizeof m, &m));
  T(clSetKernelArg(k, 3, 1, &s));
  T(clSetKernelArg(k, 4, 1, &image));
  T(clGetKernelInfo(k, 1, 0, NULL, &size));
  T(clGetKernelInfo(k, CL_KERNEL_NUM_ARGS, 1, space, NULL));
  T(clGetKernelInfo(NULL, CL_KERNEL_NUM_ARGS, 4, space, NULL));
  T(clGetKernelArgInfo(k, 9, CL_KERNEL_ARG_NAME, 9, space, NULL));
  T(clGetKernelArgInfo(k, 0, 1, 9, space, NULL));
  T(clGetKernelWorkGroupInfo(k, d, 1, 0, NULL, &size));
  T(clGetKernelWorkGroupInfo(k, d, CL_KERNEL_WORK_GROUP_SIZE, 1, space, NULL));
  T(clGetKernelWorkGroupInfo(k, d, CL_KERNEL_GLOBAL_WORK_SIZE, 24, space, NULL));
  T(clGetKernelWorkGroupInfo(k, NULL, CL_KERNEL_WORK_GROUP_SIZE, 8, space, NULL));

  /* Runs. */
  T(clEnqueueNDRangeKernel(NULL, one, 1, NULL, &w4, NULL, 0, NULL, NULL));
  T(clEnqueueNDRangeKernel(q2, one, 1, NULL, &w4, NULL, 0, NULL, NULL));
  T(clEnqueueNDRangeKernel(q, unset, 1, NULL, &w4, NULL, 0, NULL, NULL));
  T(clEnqueueNDRangeKernel(q, one, 0, NULL, &w4, NULL, 0, NULL, NULL));
  T(clEnqueueNDRangeKernel(q, one, 4, NULL, &w4, NULL, 0, NULL, NULL));
  T(clEnqueueNDRangeKernel(q, one, 1, NULL, &w4, &wide, 0, NULL, NULL));
  T(clEnqueueNDRangeKernel(q, one, 1, NULL, &w4, &w0, 0, NULL, NULL));
  T(clEnqueueNDRangeKernel(q, four, 1, NULL, &w4, &w6, 0, NULL, NULL));
  T(clEnqueueNDRangeKernel(q, four, 1, NULL, &w6, &w4, 0, NULL, NULL));
  T(clEnqueueNDRangeKernel(q, one, 1, NULL, &w4, NULL, 0, &done, NULL));
  T(clEnqueueNDRangeKernel(q, one, 1, NULL, &w4, NULL, 1, &other, NULL));
  T(clEnqueueTask(q, unset, 0, NULL, NULL));
  T(clEnqueueTask(NULL, one, 0, NULL, NULL));
  T(clEnqueueNativeKernel(NULL, NULL, NULL, 0, 0, NULL, NULL, 0, NULL, NULL));

  /* Reads, writes and copies. */
  T(clEnqueueReadBuffer(NULL, m, CL_TRUE, 0, 4, host, 0, NULL, NULL));
  T(clEnqueueReadBuffer(q, NULL, CL_TRUE, 0, 4, host, 0, NULL, NULL));
  T(clEnqueueReadBuffer(q, m2, CL_TRUE, 0, 4, host, 0, NULL, NULL));
  T(clEnqueueReadBuffer(q, m, CL_TRUE, 0, 4, NULL, 0, NULL, NULL));
  T(clEnqueueReadBuffer(q, m, CL_TRUE, N, 4, host, 0, NULL, NULL));
  T(clEnqueueReadBuffer(q, m, CL_TRUE, 0, N + 1, host, 0, NULL, NULL));
  T(clEnqueueReadBuffer(q, m, CL_TRUE, 0, 4, host, 1, NULL, NULL));
  T(clEnqueueReadBuffer(q, m, CL_TRUE, 0, 4, host, 1, &other, NULL));
  T(clEnqueueReadBuffer(q, blind, CL_TRUE, 0, 4, host, 0, NULL, NULL));
  T(clEnqueueReadBuffer(q, tells, CL_TRUE, 0, 4, host, 0, NULL, NULL));
  T(clEnqueueWriteBuffer(q, looks, CL_TRUE, 0, 4, host, 0, NULL, NULL));
  T(clEnqueueWriteBuffer(q, blind, CL_TRUE, 0, 4, host, 0, NULL, NULL));
  T(clEnqueueWriteBuffer(q, m, CL_TRUE, 0, 4, NULL, 0, NULL, NULL));
  T(clEnqueueWriteBuffer(q, m, CL_TRUE, 1, N, host, 0, NULL, NULL));
  T(clEnqueueWriteBuffer(q, m2, CL_TRUE, 0, 4, host, 0, NULL, NULL));
  T(clEnqueueReadBufferRect(q, m, CL_TRUE, at, at, large, 0, 0, 0, 0, host, 0, NULL, NULL));
  T(clEnqueueReadBufferRect(q, m, CL_TRUE, at, at, zero, 0, 0, 0, 0, host, 0, NULL, NULL));
  T(clEnqueueReadBufferRect(q, m, CL_TRUE, at, at, box, 4, 0, 0, 0, host, 0, NULL, NULL));
  T(clEnqueueReadBufferRect(q, m, CL_TRUE, at, at, box, 0, 4, 0, 0, host, 0, NULL, NULL));
  T(clEnqueueReadBufferRect(q, m, CL_TRUE, at, at, box, 8, 65, 0, 0, host, 0, NULL, NULL));
  T(clEnqueueReadBufferRect(q, m, CL_TRUE, NULL, at, box, 0, 0, 0, 0, host, 0, NULL, NULL));
  T(clEnqueueReadBufferRect(q, m, CL_TRUE, at, at, box, 0, 0, 0, 0, NULL, 0, NULL, NULL));
  T(clEnqueueWriteBufferRect(q, m, CL_TRUE, at, at, large, 0, 0, 0, 0, host, 0, NULL, NULL));
  T(clEnqueueWriteBufferRect(q, looks, CL_TRUE, at, at, box, 0, 0, 0, 0, host, 0, NULL, NULL));
  T(clEnqueueCopyBuffer(q, m, m, 0, 4, 8, 0, NULL, NULL));
  T(clEnqueueCopyBuffer(q, m, half, 0, 0, N, 0, NULL, NULL));
  T(clEnqueueCopyBuffer(q, m, half, 0, 0, 0, 0, NULL, NULL));
  T(clEnqueueCopyBuffer(q, m, m2, 0, 0, 4, 0, NULL, NULL));
  T(clEnqueueCopyBuffer(q, NULL, half, 0, 0, 4, 0, NULL, NULL));
  T(clEnqueueCopyBuffer(q, m, part, 0, 0, 8, 0, NULL, NULL));
  T(clEnqueueCopyBufferRect(q, m, half, at, at, large, 0, 0, 0, 0, 0, NULL, NULL));
  T(clEnqueueCopyBufferRect(q, m, m, at, at, box, 0, 0, 0, 0, 0, NULL, NULL));
  T(clEnqueueFillBuffer(q, m, &v, 3, 0, 6, 0, NULL, NULL));
  T(clEnqueueFillBuffer(q, m, &v, 0, 0, 4, 0, NULL, NULL));
  T(clEnqueueFillBuffer(q, m, NULL, 4, 0, 4, 0, NULL, NULL));
  T(clEnqueueFillBuffer(q, m, &v, 4, 2, 4, 0, NULL, NULL));
  T(clEnqueueFillBuffer(q, m, &v, 4, 0, 6, 0, NULL, NULL));
  T(clEnqueueFillBuffer(q, m, &v, 4, 0, 2 * N, 0, NULL, NULL));
  T(clEnqueueReadImage(q, m, CL_TRUE, at, box, 0, 0, host, 0, NULL, NULL));
  T(clEnqueueReadImage(q, image, CL_TRUE, at, large, 0, 0, host, 0, NULL, NULL));
  T(clEnqueueReadImage(q, image, CL_TRUE, at, zero, 0, 0, host, 0, NULL, NULL));
  T(clEnqueueReadImage(q, image, CL_TRUE, at, deep, 0, 0, host, 0, NULL, NULL));
  T(clEnqueueReadImage(q, image, CL_TRUE, at, out, 0, 0, host, 0, NULL, NULL));
  T(clEnqueueReadImage(q, image, CL_TRUE, at, box, 0, 0, NULL, 0, NULL, NULL));
  T(clEnqueueReadImage(q, image, CL_TRUE, NULL, box, 0, 0, host, 0, NULL, NULL));
  T(clEnqueueWriteImage(q, image, CL_TRUE, at, large, 0, 0, host, 0, NULL, NULL));
  T(clEnqueueWriteImage(q2, image, CL_TRUE, at, box, 0, 0, host, 0, NULL, NULL));
  T(clEnqueueCopyImage(q, image, image, at, at, box, 0, NULL, NULL));
  T(clEnqueueCopyImage(q, image, image, at, at, large, 0, NULL, NULL));
  T(clEnqueueCopyImage(q, image, m, at, at, box, 0, NULL, NULL));
  T(clEnqueueCopyImageToBuffer(q, image, m, at, box, N, 0, NULL, NULL));
  T(clEnqueueCopyImageToBuffer(q, image, half, at, large, 0, 0, NULL, NULL));
  T(clEnqueueCopyBufferToImage(q, m, image, N, at, box, 0, NULL, NULL));
  T(clEnqueueFillImage(q, image, NULL, at, box, 0, NULL, NULL));
  T(clEnqueueFillImage(q, image, space, at, large, 0, NULL, NULL));
  T(clEnqueueMigrateMemObjects(q, 0, &m, 0, 0, NULL, NULL));
  T(clEnqueueMigrateMemObjects(q, 1, NULL, 0, 0, NULL, NULL));
  T(clEnqueueMigrateMemObjects(q, 1, &m, 1 << 20, 0, NULL, NULL));
  T(clEnqueueMigrateMemObjects(q, 1, &m2, 0, 0, NULL, NULL));

  /* Maps. */
  size_t row, slice;
  O(clEnqueueMapBuffer(NULL, m, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &e));
  O(clEnqueueMapBuffer(q, NULL, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &e));
  O(clEnqueueMapBuffer(q, m2, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &e));
  O(clEnqueueMapBuffer(q, m, CL_TRUE, CL_MAP_READ, N, 4, 0, NULL, NULL, &e));
  O(clEnqueueMapBuffer(q, m, CL_TRUE, CL_MAP_READ, 0, 0, 0, NULL, NULL, &e));
  O(clEnqueueMapBuffer(q, blind, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &e));
  O(clEnqueueMapBuffer(q, looks, CL_TRUE, CL_MAP_WRITE, 0, 4, 0, NULL, NULL, &e));
  O(clEnqueueMapBuffer(q, tells, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &e));
  O(clEnqueueMapImage(q, image, CL_TRUE, CL_MAP_READ, at, large, &row, &slice, 0, NULL, NULL, &e));
  O(clEnqueueMapImage(q, image, CL_TRUE, CL_MAP_READ, at, box, NULL, &slice, 0, NULL, NULL, &e));
  O(clEnqueueMapImage(q, m, CL_TRUE, CL_MAP_READ, at, box, &row, &slice, 0, NULL, NULL, &e));
  T(clEnqueueUnmapMemObject(q, m, host, 0, NULL, NULL));
  T(clEnqueueUnmapMemObject(q, NULL, host, 0, NULL, NULL));

  /* Shared virtual memory. */
  char *v1 = clSVMAlloc(c, CL_MEM_READ_WRITE, 4096, 0), *v2 = clSVMAlloc(c, 0, 4096, 128);
  void *list[] = {v1, NULL};
  const void *those[] = {v1, NULL};
  cl_bool yes = CL_TRUE, no = CL_FALSE;
  must(!v1 || !v2, "shared virtual memory");
  O((e = 0, clSVMAlloc(NULL, CL_MEM_READ_WRITE, 64, 0)));
  O((e = 0, clSVMAlloc(c, CL_MEM_READ_WRITE, 0, 0)));
  O((e = 0, clSVMAlloc(c, CL_MEM_READ_WRITE, (size_t)1 << 60, 0)));
  O((e = 0, clSVMAlloc(c, CL_MEM_READ_WRITE | CL_MEM_READ_ONLY, 64, 0)));
  O((e = 0, clSVMAlloc(c, CL_MEM_SVM_ATOMICS, 64, 0)));
  O((e = 0, clSVMAlloc(c, CL_MEM_READ_WRITE, 64, 3)));
  O((e = 0, clSVMAlloc(c, CL_MEM_READ_WRITE, 64, 4096)));
  clSVMFree(NULL, v1), clSVMFree(c, NULL), clSVMFree(c, host);
  O(clCreateBuffer(c, CL_MEM_USE_HOST_PTR, 8192, v1, &e));
  O(clCreateBuffer(c, CL_MEM_USE_HOST_PTR, 4096, NULL, &e));
  T(clSetKernelArgSVMPointer(NULL, 0, v1));
  T(clSetKernelArgSVMPointer(k, 9, v1));
  T(clSetKernelArgSVMPointer(k, 1, v1));
  T(clSetKernelArgSVMPointer(k, 2, v1));
  T(clSetKernelArgSVMPointer(k, 3, v1));
  T(clSetKernelArgSVMPointer(k, 4, v1));
  T(clSetKernelArgSVMPointer(one, 0, host));
  T(clSetKernelArgSVMPointer(one, 0, NULL));
  T(clSetKernelExecInfo(NULL, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof v1, &v1));
  T(clSetKernelExecInfo(k, 1, sizeof v1, &v1));
  T(clSetKernelExecInfo(k, CL_KERNEL_EXEC_INFO_SVM_PTRS, 3, &v1));
  T(clSetKernelExecInfo(k, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof v1, &v1));
  T(clSetKernelExecInfo(k, CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM, sizeof yes, &yes));
  T(clSetKernelExecInfo(k, CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM, sizeof no, &no));
  T(clEnqueueSVMFree(NULL, 1, list, NULL, NULL, 0, NULL, NULL));
  T(clEnqueueSVMFree(q, 0, list, NULL, NULL, 0, NULL, NULL));
  T(clEnqueueSVMFree(q, 1, NULL, NULL, NULL, 0, NULL, NULL));
  T(clEnqueueSVMFree(q, 2, list, NULL, NULL, 0, NULL, NULL));
  T(clEnqueueSVMFree(q, 1, list, NULL, NULL, 1, NULL, NULL));
  T(clEnqueueSVMFree(q, 1, list, NULL, NULL, 1, &other, NULL));
  T(clEnqueueSVMMemcpy(NULL, CL_FALSE, v1, v2, 64, 0, NULL, NULL));
  T(clEnqueueSVMMemcpy(q, CL_FALSE, NULL, v2, 64, 0, NULL, NULL));
  T(clEnqueueSVMMemcpy(q, CL_FALSE, v1, NULL, 64, 0, NULL, NULL));
  T(clEnqueueSVMMemcpy(q, CL_FALSE, v1, v2, 0, 0, NULL, NULL));
  T(clEnqueueSVMMemcpy(q, CL_FALSE, v1, v1 + 8, 64, 0, NULL, NULL));
  T(clEnqueueSVMMemcpy(q, CL_FALSE, host + 8, host, 64, 0, NULL, NULL));
  T(clEnqueueSVMMemcpy(q, CL_FALSE, v1, v2, 64, 1, NULL, NULL));
  T(clEnqueueSVMMemcpy(q, CL_FALSE, v1, v2, 64, 1, &other, NULL));
  T(clEnqueueSVMMemFill(NULL, v1, &v, 4, 64, 0, NULL, NULL));
  T(clEnqueueSVMMemFill(q, NULL, &v, 4, 64, 0, NULL, NULL));
  T(clEnqueueSVMMemFill(q, v1, &v, 0, 64, 0, NULL, NULL));
  T(clEnqueueSVMMemFill(q, v1, &v, 3, 63, 0, NULL, NULL));
  T(clEnqueueSVMMemFill(q, v1, space, 256, 256, 0, NULL, NULL));
  T(clEnqueueSVMMemFill(q, v1 + 1, &v, 4, 64, 0, NULL, NULL));
  T(clEnqueueSVMMemFill(q, v1, &v, 4, 63, 0, NULL, NULL));
  T(clEnqueueSVMMemFill(q, v1, &v, 4, 0, 0, NULL, NULL));
  T(clEnqueueSVMMemFill(q, v1, &v, 4, 64, 1, NULL, NULL));
  T(clEnqueueSVMMap(NULL, CL_FALSE, CL_MAP_READ, v1, 64, 0, NULL, NULL));
  T(clEnqueueSVMMap(q, CL_FALSE, CL_MAP_READ, NULL, 64, 0, NULL, NULL));
  T(clEnqueueSVMMap(q, CL_FALSE, CL_MAP_READ, v1, 0, 0, NULL, NULL));
  T(clEnqueueSVMMap(q, CL_FALSE, CL_MAP_READ | CL_MAP_WRITE_INVALIDATE_REGION, v1, 64, 0, NULL, NULL));
  T(clEnqueueSVMMap(q, CL_FALSE, CL_MAP_READ, v1, 64, 1, NULL, NULL));
  T(clEnqueueSVMMap(q, CL_FALSE, CL_MAP_READ, v1, 64, 1, &other, NULL));
  T(clEnqueueSVMUnmap(NULL, v1, 0, NULL, NULL));
  T(clEnqueueSVMUnmap(q, NULL, 0, NULL, NULL));
  T(clEnqueueSVMUnmap(q, v2, 0, NULL, NULL));
  T(clEnqueueSVMUnmap(q, v1, 1, NULL, NULL));
  T(clEnqueueSVMMigrateMem(NULL, 1, those, NULL, 0, 0, NULL, NULL));
  T(clEnqueueSVMMigrateMem(q, 0, those, NULL, 0, 0, NULL, NULL));
  T(clEnqueueSVMMigrateMem(q, 1, NULL, NULL, 0, 0, NULL, NULL));
  T(clEnqueueSVMMigrateMem(q, 2, those, NULL, 0, 0, NULL, NULL));
  T(clEnqueueSVMMigrateMem(q, 1, those, NULL, 1 << 20, 0, NULL, NULL));
  T(clEnqueueSVMMigrateMem(q, 1, those, NULL, 0, 1, NULL, NULL));

  /* Events. */
  T(clWaitForEvents(0, NULL));
  T(clWaitForEvents(1, NULL));
  T(clEnqueueMarkerWithWaitList(q, 1, NULL, NULL));
  T(clEnqueueMarkerWithWaitList(q, 1, &other, NULL));
  T(clEnqueueMarkerWithWaitList(NULL, 0, NULL, NULL));
  T(clEnqueueMarker(q, NULL));
  T(clEnqueueBarrierWithWaitList(q, 0, &done, NULL));
  T(clEnqueueWaitForEvents(q, 1, &other));
  O(clCreateUserEvent(NULL, &e));
  T(clSetUserEventStatus(done, CL_COMPLETE));
  T(clSetUserEventStatus(own, CL_RUNNING));
  T(clSetUserEventStatus(own, CL_COMPLETE));
  T(clSetUserEventStatus(own, CL_COMPLETE));
  T(clSetEventCallback(done, CL_COMPLETE, NULL, NULL));
  T(clGetEventInfo(done, 1, 0, NULL, &size));
  T(clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, 1, space, NULL));
  T(clGetEventProfilingInfo(done, CL_PROFILING_COMMAND_START, 8, space, NULL));
  T(clGetEventProfilingInfo(own, CL_PROFILING_COMMAND_START, 8, space, NULL));
  must(clEnqueueMarkerWithWaitList(timed, 0, NULL, &done), "marker"), must(clFinish(timed), "finish");
  T(clGetEventProfilingInfo(done, 1, 8, space, NULL));
  T(clGetEventProfilingInfo(done, CL_PROFILING_COMMAND_START, 1, space, NULL));
  T(clFinish(NULL));
  T(clFlush(NULL));
  /* Drivers whose threads still hold commands of wrong calls need not end well. */
  _exit(0);
}
