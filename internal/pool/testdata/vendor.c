/* vendor FILE: opens the client library as loaders of OpenCL do, and prints how many platforms and devices it has. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  cl_platform_id p;
  cl_uint platforms = 0, devices = 0;
  void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
  void *(*address)(const char *) = library ? (void *(*)(const char *))dlsym(library, "clGetExtensionFunctionAddress") : NULL;
  cl_int (*ids)(cl_uint, cl_platform_id *, cl_uint *) = address ? (cl_int(*)(cl_uint, cl_platform_id *, cl_uint *))address("clIcdGetPlatformIDsKHR") : NULL;
  if (!ids || ids(1, &p, &platforms) || (*(cl_icd_dispatch **)p)->clGetDeviceIDs(p, CL_DEVICE_TYPE_ALL, 0, NULL, &devices)) {
    printf("failed: %s\n", library ? "no platform" : dlerror());
    return 1;
  }
  printf("platforms %u devices %u\n", platforms, devices);
  return 0;
}
