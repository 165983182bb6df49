/* A program whose kernel is code of the process that runs it, as on processors, and asks the kernel of the system
 * there: poison [link:|socket:|hidden:]WHAT... makes files, links to / and sockets of families, and prints for each what
 * it was told; of a folder a file without a name as large as the next argument says, with which it waits for the end of
 * what it reads (Linux, x86-64). */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(cl_int e, const char *what) {
  if (e == CL_SUCCESS) return;
  printf("failed %s %d\n", what, e);
  exit(1);
}

int main(int n, char **paths) {
  static const char *text = "kernel void ask(long number, long a, long b, long c, long d, int at, global const char *path, global long *told) {\n"
                            "  long r, p = (long)path;\n"
                            "  __asm__ volatile(\"movq %5, %%r10; syscall\" : \"=a\"(r) : \"a\"(number), \"D\"(at == 1 ? p : a), \"S\"(at == 2 ? p : b), \"d\"(at == 1 ? p + 2 : c), \"r\"(d) : \"rcx\", \"r11\", \"r10\", \"memory\");\n"
                            "  told[0] = r;\n"
                            "}\n";
  enum { OPEN = 257, LINK = 266, SOCKET = 41, FALLOCATE = 285, HERE = -100, TMPFILE = 020200000 };
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
  cl_kernel kernel = clCreateKernel(program, "ask", &e);
  must(e, "kernel");
  cl_long told = 0;
  bool large = false; /* the argument is how large the file of the one before shall be */
  for (int i = 1; i < n; i++) {
    const bool link = !strncmp(paths[i], "link:", 5), socket = !strncmp(paths[i], "socket:", 7), hidden = !strncmp(paths[i], "hidden:", 7);
    char text[4096] = "/"; /* and where the link is to be */
    const size_t from = link ? 2 : 0;
    snprintf(text + from, sizeof text - from, "%s", paths[i] + (link ? 5 : hidden ? 7 : 0));
    cl_long args[5] = {OPEN, HERE, 0, 0101 | 02000, 0600}; /* to write, made if it is not there, at its end */
    cl_int at = 2;
    if (link) memcpy(args, (cl_long[5]){LINK, 0, HERE, 0, 0}, sizeof args), at = 1;
    if (hidden) args[3] = TMPFILE | 2;
    if (large) memcpy(args, (cl_long[5]){FALLOCATE, told, 0, 0, atoll(paths[i])}, sizeof args), at = 0;
    if (socket) memcpy(args, (cl_long[5]){SOCKET, atoi(paths[i] + 7), 1, 0, 0}, sizeof args), at = 0;
    size_t one = 1;
    cl_mem path = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof text, text, &e), out = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof told, NULL, &e);
    must(e, "buffer");
    for (cl_uint k = 0; k < 5; k++) must(clSetKernelArg(kernel, k, sizeof *args, &args[k]), "argument");
    must(clSetKernelArg(kernel, 5, sizeof at, &at), "argument"), must(clSetKernelArg(kernel, 6, sizeof path, &path), "argument"), must(clSetKernelArg(kernel, 7, sizeof out, &out), "argument");
    must(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL), "run");
    must(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof told, &told, 0, NULL, NULL), "read");
    printf("%d\n", told < 0 ? (int)told : 0), fflush(stdout);
    while (large && getchar() != EOF) {}
    large = hidden;
  }
  return 0;
}
