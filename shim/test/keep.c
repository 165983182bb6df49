/* keep TEXT: puts a text into memory of a device over and over, has a kernel copy
 * it, says "kept", and computes on until a line is typed; then it reads the text
 * and says whether it is that. The kernel's source has the text's words, too. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 4 << 20 };

static void must(cl_int e, const char *what) {
  if (e == CL_SUCCESS) return;
  printf("failed %s %d\n", what, e);
  exit(1);
}

int main(int argc, char **argv) {
  if (argc != 2 || !*argv[1]) return 2;
  cl_int e;
  cl_platform_id platform;
  cl_device_id device;
  must(clGetPlatformIDs(1, &platform, NULL), "platform");
  must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &e);
  must(e, "context");
  cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, NULL, &e);
  must(e, "queue");
  char text[4096], *host = malloc(BYTES), *got = malloc(BYTES);
  if (!host || !got) return 2;
  for (size_t i = 0, n = strlen(argv[1]); i < BYTES; i++) host[i] = argv[1][i % n];
  snprintf(text, sizeof text, "kernel void copy(global const uchar *from, global uchar *to) { to[get_global_id(0)] = from[get_global_id(0)]; } // %s\n", argv[1]);
  const char *source = text;
  cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &e);
  must(e, "program");
  must(clBuildProgram(program, 1, &device, "", NULL, NULL), "build");
  cl_kernel kernel = clCreateKernel(program, "copy", &e);
  must(e, "kernel");
  cl_mem from = clCreateBuffer(context, CL_MEM_READ_WRITE, BYTES, NULL, &e), to = clCreateBuffer(context, CL_MEM_READ_WRITE, BYTES, NULL, &e);
  must(e, "buffer");
  must(clEnqueueWriteBuffer(queue, from, CL_TRUE, 0, BYTES, host, 0, NULL, NULL), "write");
  must(clSetKernelArg(kernel, 0, sizeof from, &from), "argument");
  must(clSetKernelArg(kernel, 1, sizeof to, &to), "argument");
  const size_t n = BYTES;
  must(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &n, NULL, 0, NULL, NULL), "run");
  must(clFinish(queue), "finish");
  printf("kept\n");
  fflush(stdout);
  char line;
  for (fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK); read(STDIN_FILENO, &line, 1) < 0; usleep(1000)) {
    must(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &n, NULL, 0, NULL, NULL), "run");
    must(clFinish(queue), "finish");
  }
  must(clEnqueueReadBuffer(queue, to, CL_TRUE, 0, BYTES, got, 0, NULL, NULL), "read");
  printf("it is%s\n", memcmp(host, got, BYTES) ? " not" : "");
  return 0;
}
