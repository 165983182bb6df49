/* What drivers that tests stand in have in common: each is PoCL, some of whose calls are its own.
 * It defines change(), which puts them into the table that all that PoCL makes points to. It is found
 * by the loader of OpenCL as any. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <string.h>

static cl_icd_dispatch was; /* as PoCL's table is */
static void change(cl_icd_dispatch *table);

static void *pocl_call(const char *name) {
	static void *(*find)(const char *);
	if (!find) {
		void *pocl = dlopen("libpocl.so.2", RTLD_NOW | RTLD_LOCAL);
		if (pocl) find = (void *(*)(const char *))dlsym(pocl, "clGetExtensionFunctionAddress");
	}
	return find ? find(name) : NULL;
}

cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint n, cl_platform_id *list, cl_uint *there) {
	static cl_icd_dispatch *table;
	cl_platform_id p;
	clIcdGetPlatformIDsKHR_fn get = (clIcdGetPlatformIDsKHR_fn)pocl_call("clIcdGetPlatformIDsKHR");
	if (!get || get(1, &p, NULL)) return CL_PLATFORM_NOT_FOUND_KHR;
	if (!table) {
		table = *(cl_icd_dispatch **)p, was = *table;
		change(table);
	}
	return get(n, list, there);
}

void *CL_API_CALL clGetExtensionFunctionAddress(const char *name) { return !strcmp(name, "clIcdGetPlatformIDsKHR") ? (void *)clIcdGetPlatformIDsKHR : pocl_call(name); }

cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id p, cl_platform_info what, size_t size, void *to, size_t *got) { return (*(cl_icd_dispatch **)p)->clGetPlatformInfo(p, what, size, to, got); }
