/* later says what functions of OpenCL 2.1 and 2.2 tell: of clocks, of sub-groups, and of
 * programs in intermediate language and their constants; with "keeps" what a program keeps on its device, and with "lacks" what comes with pipes and queues there. After "step" it waits for a line. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef cl_int(CL_API_CALL *sub_groups)(cl_kernel, cl_device_id, cl_kernel_sub_group_info, size_t, const void *, size_t, void *, size_t *);
typedef cl_program(CL_API_CALL *with_il)(cl_context, const void *, size_t, cl_int *);

static cl_platform_id platform;
static cl_device_id devices[16];
static cl_uint count;
static cl_context context;

static void step(void) {
  puts("step");
  fflush(stdout);
  for (int c; (c = getchar()) != '\n' && c != EOF;) {}
}

static void tell(sub_groups ask, cl_kernel k, cl_device_id d, cl_kernel_sub_group_info what, size_t given, const size_t *sizes, size_t room) {
  size_t v[4] = {77, 77, 77, 77}, got = 99;
  cl_int bad = ask(k, d, what, given, sizes, room, room ? v : NULL, &got);
  printf("%x of %zu: %d, %zu bytes: %zu %zu %zu %zu\n", what, given, bad, bad ? 0 : got, v[0], v[1], v[2], v[3]);
}

static void groups(sub_groups ask, cl_kernel k) {
  const size_t w = sizeof(size_t), flat[3] = {64, 1, 1}, square[3] = {16, 5, 1}, three = 3;
  for (cl_uint i = 0; i < count; i++) {
    tell(ask, k, devices[i], CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE, w, flat, w);
    tell(ask, k, devices[i], CL_KERNEL_SUB_GROUP_COUNT_FOR_NDRANGE, 2 * w, square, w);
    tell(ask, k, devices[i], CL_KERNEL_SUB_GROUP_COUNT_FOR_NDRANGE, 3 * w, square, 4 * w);
    for (size_t room = 0; room <= 3; room++) tell(ask, k, devices[i], CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT, w, &three, room * w);
    tell(ask, k, devices[i], CL_KERNEL_MAX_NUM_SUB_GROUPS, 0, NULL, w);
    tell(ask, k, devices[i], CL_KERNEL_COMPILE_NUM_SUB_GROUPS, 0, NULL, 0);
    tell(ask, k, devices[i], CL_KERNEL_SUB_GROUP_COUNT_FOR_NDRANGE, 0, NULL, w);
    tell(ask, k, devices[i], 0x1234, w, flat, w);
  }
  if (count == 1) tell(ask, k, NULL, CL_KERNEL_MAX_NUM_SUB_GROUPS, 0, NULL, w);
}

/* clocks says whether a device's shows when a command ran, and goes as the host's does. */
static void clocks(cl_device_id d) {
  cl_ulong resolution, device[2], host[3], began, ended;
  cl_int bad, first = clGetDeviceAndHostTimer(d, &device[0], &host[0]);
  cl_command_queue q = clCreateCommandQueueWithProperties(context, d, (cl_queue_properties[]){CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0}, &bad);
  cl_mem m = bad ? NULL : clCreateBuffer(context, CL_MEM_READ_WRITE, 1 << 16, NULL, &bad);
  cl_event e;
  bad = bad || clEnqueueFillBuffer(q, m, "word", 4, 0, 1 << 16, 0, NULL, &e) || clFinish(q);
  bad = bad || clGetEventProfilingInfo(e, CL_PROFILING_COMMAND_START, sizeof began, &began, NULL) || clGetEventProfilingInfo(e, CL_PROFILING_COMMAND_END, sizeof ended, &ended, NULL);
  cl_int second = clGetDeviceAndHostTimer(d, &device[1], &host[1]), third = clGetHostTimer(d, &host[2]);
  if (bad || clGetPlatformInfo(platform, CL_PLATFORM_HOST_TIMER_RESOLUTION, sizeof resolution, &resolution, NULL)) exit(6);
  printf("timers of %d ns: %d %d %d, without a place %d %d\n", (int)resolution, first, second, third, clGetDeviceAndHostTimer(d, NULL, &host[2]), clGetHostTimer(d, NULL));
  if (!first && !second && !third) {
    double apart = (double)(device[1] - device[0]) - (double)(host[1] - host[0]);
    printf("in order: %d %d %d, of the host %d %d, together: %d\n", device[0] <= began, began <= ended, ended <= device[1], host[0] < host[1], host[1] <= host[2], apart < 1e9 && apart > -1e9);
  }
  clReleaseEvent(e), clReleaseMemObject(m), clReleaseCommandQueue(q);
}

/* run says what a program's kernel writes on each device. */
static void run(cl_program p) {
  cl_int bad, v;
  cl_kernel k = clCreateKernel(p, "constants", &bad);
  cl_mem m = bad ? NULL : clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof v, NULL, &bad);
  if (!bad) bad = clSetKernelArg(k, 0, sizeof m, &m);
  for (cl_uint i = 0; i < count && !bad; i++) {
    const size_t one = 1;
    cl_command_queue q = clCreateCommandQueueWithProperties(context, devices[i], NULL, &bad);
    if (!bad) bad = clEnqueueNDRangeKernel(q, k, 1, NULL, &one, NULL, 0, NULL, NULL);
    if (!bad) bad = clEnqueueReadBuffer(q, m, CL_TRUE, 0, sizeof v, &v, 0, NULL, NULL);
    printf("constants %d: %d\n", v, bad);
    clReleaseCommandQueue(q);
  }
  if (bad) printf("it does not run: %d\n", bad);
  if (m) clReleaseMemObject(m);
  if (k) clReleaseKernel(k);
}

static void set(cl_program p, cl_uint id, cl_int value, size_t size) { printf("constant %u: %d\n", id, clSetProgramSpecializationConstant(p, id, size, &value)); }

/* keeps says what a program's own variable is, which each run changes. */
static int keeps(void) {
  static const char *text = "global int kept = 5; kernel void keeps(global int *a) { a[0] = kept++; }";
  size_t size = 0;
  cl_int bad, v = 0;
  cl_program p = clCreateProgramWithSource(context, 1, &text, NULL, &bad);
  if (!bad) bad = clBuildProgram(p, 0, NULL, "-cl-std=CL2.0", NULL, NULL);
  if (!bad) bad = clGetProgramBuildInfo(p, devices[0], CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE, sizeof size, &size, NULL);
  cl_kernel k = bad ? NULL : clCreateKernel(p, "keeps", &bad);
  cl_mem m = bad ? NULL : clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof v, NULL, &bad);
  cl_command_queue q = bad ? NULL : clCreateCommandQueueWithProperties(context, devices[0], NULL, &bad);
  if (!bad) bad = clSetKernelArg(k, 0, sizeof m, &m);
  for (int i = 0; i < 3 && !bad; i++) {
    const size_t one = 1;
    bad = clEnqueueNDRangeKernel(q, k, 1, NULL, &one, NULL, 0, NULL, NULL);
    if (!bad) bad = clEnqueueReadBuffer(q, m, CL_TRUE, 0, sizeof v, &v, 0, NULL, NULL);
    printf("of %zu bytes: %d\n", size, v);
    step();
  }
  return bad;
}

/* lacks says what there is of what comes with pipes and queues on devices. */
static int lacks(void) {
  const cl_device_info list[] = {CL_DEVICE_PIPE_SUPPORT, CL_DEVICE_MAX_PIPE_ARGS, CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS, CL_DEVICE_PIPE_MAX_PACKET_SIZE,
                                 CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES, CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES, CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE,
                                 CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE, CL_DEVICE_MAX_ON_DEVICE_QUEUES, CL_DEVICE_MAX_ON_DEVICE_EVENTS};
  cl_name_version features[64];
  size_t n;
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    cl_ulong v = 0;
    if (clGetDeviceInfo(devices[0], list[i], sizeof v, &v, &n)) return 1;
    printf("%zu:%llu ", n, (unsigned long long)v);
  }
  if (clGetDeviceInfo(devices[0], CL_DEVICE_OPENCL_C_FEATURES, sizeof features, features, &n)) return 2;
  for (size_t i = 0; i < n / sizeof *features; i++) printf("%s ", features[i].name);
  printf("%d\n", clGetDeviceInfo(devices[0], CL_DEVICE_GENERIC_ADDRESS_SPACE_SUPPORT + 0x10000, sizeof n, &n, NULL));
  return 0;
}

int main(int n, char **args) {
  static const char *text = "kernel void groups(global int *a) { a[0] = 1; }";
  static const char il[] = "IL #ifndef C7\n#define C7 1\n#endif\n#ifndef C9\n#define C9 1\n#endif\nkernel void constants(global int *a) { a[0] = 100 * C7 + C9; }";
  cl_int bad;
  if (clGetPlatformIDs(1, &platform, NULL) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 16, devices, &count)) return 1;
  context = clCreateContext(NULL, count, devices, NULL, NULL, &bad);
  if (n > 1) return bad ? 1 : !strcmp(args[1], "keeps") ? keeps() : lacks();
  cl_program p = bad ? NULL : clCreateProgramWithSource(context, 1, &text, NULL, &bad);
  if (!bad) bad = clBuildProgram(p, 0, NULL, NULL, NULL, NULL);
  cl_kernel k = bad ? NULL : clCreateKernel(p, "groups", &bad);
  if (bad) return 2;
  cl_uint most;
  char version[256]; /* its processor's name is in it */
  if (clGetDeviceInfo(devices[0], CL_DEVICE_MAX_NUM_SUB_GROUPS, sizeof most, &most, NULL) || clGetDeviceInfo(devices[0], CL_DEVICE_VERSION, sizeof version, version, NULL)) return 3;
  printf("sub-groups %u\n", most);
  if (!strncmp(version, "OpenCL 2.0", 10)) { /* by the extension */
    sub_groups ask = (sub_groups)clGetExtensionFunctionAddressForPlatform(platform, "clGetKernelSubGroupInfoKHR");
    if (!ask) return 4;
    groups(ask, k);
    return 0;
  }
  for (cl_uint i = 0; i < count; i++) clocks(devices[i]);
  groups(clGetKernelSubGroupInfo, k);
  set(p, 7, 5, 4);
  cl_program q = clCreateProgramWithIL(context, il, sizeof il - 1, &bad);
  if (bad) return 5;
  set(q, 7, 5, 4), set(q, 9, 2, 4), set(q, 10, 2, 4), set(q, 9, 3, 2);
  printf("no value %d, no program %d\n", clSetProgramSpecializationConstant(q, 7, 4, NULL), clSetProgramSpecializationConstant(NULL, 7, 4, il));
  step();
  set(q, 9, 3, 4);
  step();
  printf("build %d\n", clBuildProgram(q, 0, NULL, "-DUNUSED", NULL, NULL));
  run(q);
  set(q, 7, 11, 4); /* for the next time that it is built */
  step();
  run(q);
  groups(clGetKernelSubGroupInfo, k);
  printf("build %d\n", clBuildProgram(q, 0, NULL, NULL, NULL, NULL));
  run(q);
  step();
  run(q);
  set(q, 9, 4, 4);
  printf("build %d\n", clBuildProgram(q, 0, NULL, NULL, NULL, NULL));
  run(q);
  return 0;
}
