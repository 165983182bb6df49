/* A program whose kernel is code of the process that runs it, as on processors, and
 * makes files there: poison PATH... prints for each what the kernel was told (Linux,
 * x86-64). */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(cl_int e, const char *what) {
  if (e == CL_SUCCESS) return;
  printf("failed %s %d\n", what, e);
  exit(1);
}

int main(int n, char **paths) {
  static const char *text = "kernel void make(global const char *path, global long *told) {\n"
                            "  long r, how = 0101 | 02000; /* to write, made if it is not there, at its end */\n"
                            "  __asm__ volatile(\"movq $0x180, %%r10; syscall\" : \"=a\"(r) : \"a\"(257L), \"D\"(-100L), \"S\"(path), \"d\"(how) : \"rcx\", \"r11\", \"r10\", \"memory\");\n"
                            "  told[0] = r;\n"
                            "}\n";
  cl_platform_id platform;
  cl_device_id device;
  cl_int e;
  must(clGetPlatformIDs(1, &platform, NULL), "platform"), must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &e);
  must(e, "context");
  cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, NULL, &e);
  must(e, "queue");
  cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &e);
  must(e, "program"), must(clBuildProgram(program, 1, &device, "", NULL, NULL), "build");
  cl_kernel kernel = clCreateKernel(program, "make", &e);
  must(e, "kernel");
  for (int i = 1; i < n; i++) {
    cl_long told = 0;
    size_t one = 1;
    cl_mem path = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, strlen(paths[i]) + 1, paths[i], &e), out = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof told, NULL, &e);
    must(e, "buffer"), must(clSetKernelArg(kernel, 0, sizeof path, &path), "argument"), must(clSetKernelArg(kernel, 1, sizeof out, &out), "argument");
    must(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL), "run");
    must(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof told, &told, 0, NULL, NULL), "read");
    printf("%d\n", told < 0 ? (int)told : 0);
  }
  return 0;
}
