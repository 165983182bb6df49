/* reopens N: a program that opens the loader of OpenCL, computes, has a function called later, and closes it, so many
 * times. It says how often the sum was right, and how many sockets it has in the end. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int called;
static void CL_CALLBACK counts(cl_event e, cl_int status, void *none) {
  (void)e, (void)none;
  __atomic_add_fetch(&called, status == CL_COMPLETE, __ATOMIC_SEQ_CST);
}

#define GET(NAME) __typeof__(NAME) *NAME##_ = (__typeof__(NAME) *)dlsym(lib, #NAME)

int main(int argc, char **argv) {
  int n = argc > 1 ? atoi(argv[1]) : 0, right = 0, sockets = 0;
  for (int i = 0; i < n; i++) {
    void *lib = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) return 1;
    GET(clGetPlatformIDs); GET(clGetDeviceIDs); GET(clCreateContext); GET(clCreateCommandQueue); GET(clCreateBuffer); GET(clEnqueueFillBuffer); GET(clEnqueueReadBuffer);
    GET(clCreateUserEvent); GET(clSetEventCallback); GET(clSetUserEventStatus); GET(clReleaseMemObject); GET(clReleaseContext); GET(clReleaseCommandQueue);
    cl_platform_id platform;
    cl_device_id device;
    cl_int e, got = 0;
    if (clGetPlatformIDs_(1, &platform, NULL) || clGetDeviceIDs_(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL)) return 1;
    cl_context context = clCreateContext_(NULL, 1, &device, NULL, NULL, &e);
    cl_command_queue queue = clCreateCommandQueue_(context, device, 0, &e);
    cl_mem mem = clCreateBuffer_(context, CL_MEM_READ_WRITE, 64, NULL, &e);
    cl_event event = clCreateUserEvent_(context, &e);
    e = clSetEventCallback_(event, CL_COMPLETE, counts, NULL);
    right += !e && !clEnqueueFillBuffer_(queue, mem, &i, sizeof i, 0, 64, 0, NULL, NULL) && !clEnqueueReadBuffer_(queue, mem, CL_TRUE, 60, 4, &got, 0, NULL, NULL) && got == i;
    if (i % 2) clReleaseMemObject_(mem), clReleaseCommandQueue_(queue), clReleaseContext_(context); /* or it is left */
    clSetUserEventStatus_(event, CL_COMPLETE);
    dlclose(lib); /* while the function may be about to be called */
  }
  for (int i = 0; i < 5000 && __atomic_load_n(&called, __ATOMIC_SEQ_CST) < n; i++) usleep(1000);
  struct stat s;
  for (int fd = 3; fd < 1 << 16; fd++) sockets += !fstat(fd, &s) && S_ISSOCK(s.st_mode);
  printf("right %d, called %d, sockets %d\n", right, called, sockets);
}
