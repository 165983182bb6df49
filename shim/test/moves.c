/* A program of OpenCL that the tests move while it runs. The first argument says what it does:
 *
 *   tells     prints all that OpenCL tells of programs and kernels that were made in many ways; once
 *             more for each line that is typed, of kernels that it makes anew, too
 */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!strcmp(what, "tells")) {
    start(0);
    tells();
  } else {
    fprintf(stderr, "there is no %s\n", what);
    return 2;
  }
  return 0;
}
