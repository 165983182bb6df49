/* Our libOpenCL.so.1, for programs of systems that have no loader of OpenCL: the
 * client library with the functions that programs find in a loader. It is the last
 * that is looked for, and loads no drivers: a loader of the system's own wins, and
 * what programs find by that is the same (docs/howto/run-on-a-slice.md). */
#include "../src/pool.h"

#define EXPORT __attribute__((visibility("default")))

/* of returns who does what is asked of a handle: one node's, or that of devices of several. */
static const cl_icd_dispatch *of(const void *handle) { return obj(handle)->dispatch; }

extern cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint n, cl_platform_id *ids, cl_uint *count);

static cl_platform_id platform(void) {
  cl_platform_id p = NULL;
  clIcdGetPlatformIDsKHR(1, &p, NULL);
  return p;
}

/* named is the platform that properties of a context name, or the only one. */
static cl_platform_id named(const cl_context_properties *properties) {
  for (const cl_context_properties *p = properties; p && *p; p += 2)
    if (*p == CL_CONTEXT_PLATFORM) return (cl_platform_id)p[1];
  return platform();
}

#include "calls.h"

EXPORT cl_int CL_API_CALL clGetPlatformIDs(cl_uint n, cl_platform_id *ids, cl_uint *count) { return clIcdGetPlatformIDsKHR(n, ids, count); }

EXPORT cl_int CL_API_CALL clGetDeviceIDs(cl_platform_id p, cl_device_type type, cl_uint n, cl_device_id *ids, cl_uint *count) {
  if (!p) p = platform();
  return of(p)->clGetDeviceIDs(p, type, n, ids, count);
}

EXPORT cl_context CL_API_CALL clCreateContext(const cl_context_properties *properties, cl_uint n, const cl_device_id *devices, void(CL_CALLBACK *tell)(const char *, const void *, size_t, void *), void *data, cl_int *err) {
  if (devices && n && devices[0]) return of(devices[0])->clCreateContext(properties, n, devices, tell, data, err);
  if (err) *err = devices && n ? CL_INVALID_DEVICE : CL_INVALID_VALUE;
  return NULL;
}

EXPORT cl_context CL_API_CALL clCreateContextFromType(const cl_context_properties *properties, cl_device_type type, void(CL_CALLBACK *tell)(const char *, const void *, size_t, void *), void *data, cl_int *err) {
  cl_platform_id p = named(properties);
  if (p) return of(p)->clCreateContextFromType(properties, type, tell, data, err);
  if (err) *err = CL_INVALID_PLATFORM;
  return NULL;
}

EXPORT cl_int CL_API_CALL clGetGLContextInfoKHR(const cl_context_properties *properties, cl_gl_context_info what, size_t size, void *value, size_t *got) {
  cl_platform_id p = named(properties);
  return p ? of(p)->clGetGLContextInfoKHR(properties, what, size, value, got) : CL_INVALID_PLATFORM;
}

EXPORT cl_int CL_API_CALL clWaitForEvents(cl_uint n, const cl_event *events) {
  if (!n || !events) return CL_INVALID_VALUE;
  return events[0] ? of(events[0])->clWaitForEvents(n, events) : CL_INVALID_EVENT;
}

/* Of OpenCL 3.1, which the platform is not. */
EXPORT cl_int CL_API_CALL clGetKernelSuggestedLocalWorkSize(cl_command_queue q, cl_kernel k, cl_uint dim, const size_t *offset, const size_t *global, size_t *local) {
  (void)k, (void)dim, (void)offset, (void)global, (void)local;
  return q ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE;
}

EXPORT cl_int CL_API_CALL clUnloadCompiler(void) { return CL_SUCCESS; }
