/* A program that exports functions named as OpenCL's, as layers and wrappers do: each takes a lock and has the loader
 * do it, which it opens. A driver that calls one of them waits for ever. */
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#include <CL/cl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *loader;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(NAME) ((__typeof__(NAME) *)dlsym(loader, #NAME))
#define WRAPPED(RETURNS, NAME, PARAMETERS, ...) \
  RETURNS CL_API_CALL NAME PARAMETERS { \
    pthread_mutex_lock(&lock); \
    RETURNS result = REAL(NAME)(__VA_ARGS__); \
    pthread_mutex_unlock(&lock); \
    return result; \
  }
WRAPPED(cl_int, clGetPlatformIDs, (cl_uint n, cl_platform_id *ids, cl_uint *count), n, ids, count)
WRAPPED(cl_int, clGetPlatformInfo, (cl_platform_id p, cl_platform_info what, size_t size, void *value, size_t *got), p, what, size, value, got)
WRAPPED(cl_int, clGetDeviceIDs, (cl_platform_id p, cl_device_type type, cl_uint n, cl_device_id *ids, cl_uint *count), p, type, n, ids, count)
WRAPPED(void *, clGetExtensionFunctionAddress, (const char *name), name)
WRAPPED(void *, clGetExtensionFunctionAddressForPlatform, (cl_platform_id p, const char *name), p, name)

int main(void) {
  cl_platform_id p = NULL;
  cl_uint n = 0, devices = 0;
  char version[400] = "";
  alarm(60);
  loader = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!loader) return 1;
  cl_int e = clGetPlatformIDs(1, &p, &n), e1 = clGetPlatformInfo(p, CL_PLATFORM_VERSION, sizeof version, version, NULL), e2 = clGetDeviceIDs(p, CL_DEVICE_TYPE_ALL, 0, NULL, &devices);
  printf("%d %d %d: %d platform, %.8s, %d device\n", e, e1, e2, n, version, devices);
  printf("no such function: %d %d\n", !clGetExtensionFunctionAddress("clNoneKHR"), !clGetExtensionFunctionAddressForPlatform(p, "clNoneKHR"));
}
