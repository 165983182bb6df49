/* compiling plays a driver that compiles for long, for tests: PoCL, which takes minutes
 * to tell a program's binary and has another process work meanwhile, named
 * "yhcompiling", that goes on when its own has ended. It is found by the loader of
 * OpenCL as any. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static cl_icd_dispatch *theirs;
static void *(*find)(const char *);
static cl_api_clGetProgramInfo info;
struct _cl_platform_id {
	cl_icd_dispatch *dispatch;
};

static cl_int CL_API_CALL slow(cl_program p, cl_program_info what, size_t size, void *to, size_t *got) {
	if (what == CL_PROGRAM_BINARIES && to) {
		if (!fork()) {
			prctl(PR_SET_NAME, "yhcompiling");
			for (;;) pause();
		}
		sleep(600);
	}
	return info(p, what, size, to, got);
}

cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint n, cl_platform_id *list, cl_uint *count) {
	clIcdGetPlatformIDsKHR_fn all = (clIcdGetPlatformIDsKHR_fn)find("clIcdGetPlatformIDsKHR");
	cl_int bad = all(n, list, count);
	if (bad || !list || !n || theirs) return bad;
	theirs = list[0]->dispatch, info = theirs->clGetProgramInfo, theirs->clGetProgramInfo = slow;
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
