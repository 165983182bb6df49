/* placing plays a card for tests: PoCL, which says of its devices that they are no
 * processors and have memory of their own. So its driver says where shared virtual
 * memory is. It is found by the loader of OpenCL as any. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <string.h>

static cl_icd_dispatch ours;
static const cl_icd_dispatch *theirs;
static void *(*find)(const char *);
struct _cl_platform_id {
	const cl_icd_dispatch *dispatch;
};
struct _cl_device_id {
	const cl_icd_dispatch *dispatch;
};

static cl_int CL_API_CALL info(cl_device_id d, cl_device_info what, size_t size, void *to, size_t *got) {
	cl_int bad = theirs->clGetDeviceInfo(d, what, size, to, got);
	cl_device_type gpu = CL_DEVICE_TYPE_GPU;
	if (!bad && to && what == CL_DEVICE_TYPE) memcpy(to, &gpu, sizeof gpu);
	if (!bad && to && what == CL_DEVICE_HOST_UNIFIED_MEMORY) memset(to, 0, sizeof(cl_bool));
	return bad;
}

static cl_int CL_API_CALL devices(cl_platform_id p, cl_device_type type, cl_uint n, cl_device_id *list, cl_uint *count) {
	cl_uint there = 0;
	cl_int bad = theirs->clGetDeviceIDs(p, type, n, list, &there);
	for (cl_uint i = 0; !bad && list && i < n && i < there; i++) list[i]->dispatch = &ours;
	if (count) *count = there;
	return bad;
}

cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint n, cl_platform_id *list, cl_uint *count) {
	clIcdGetPlatformIDsKHR_fn all = (clIcdGetPlatformIDsKHR_fn)find("clIcdGetPlatformIDsKHR");
	cl_int bad = all(n, list, count);
	if (bad || !list || !n) return bad;
	if (!theirs) theirs = list[0]->dispatch, ours = *theirs, ours.clGetDeviceInfo = info, ours.clGetDeviceIDs = devices;
	list[0]->dispatch = &ours;
	return bad;
}

void *CL_API_CALL clGetExtensionFunctionAddress(const char *name) {
	if (!find) {
		void *pocl = dlopen("libpocl.so.2", RTLD_NOW | RTLD_LOCAL);
		if (pocl) find = (void *(*)(const char *))dlsym(pocl, "clGetExtensionFunctionAddress");
	}
	if (!find) return NULL;
	return !strcmp(name, "clIcdGetPlatformIDsKHR") ? (void *)clIcdGetPlatformIDsKHR : find(name);
}

cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id p, cl_platform_info what, size_t size, void *to, size_t *got) { return theirs->clGetPlatformInfo(p, what, size, to, got); }
