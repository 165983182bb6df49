/* grown is PoCL whose devices have MEMORY bytes; with FAILS it ends who loads it. */
#include "pocl.h"
#include <unistd.h>

#ifdef FAILS
#define MEMORY 0
__attribute__((constructor)) static void ends(void) { _exit(3); }
#endif

static cl_int CL_API_CALL info(cl_device_id d, cl_device_info what, size_t size, void *to, size_t *got) {
	cl_int e = was.clGetDeviceInfo(d, what, size, to, got);
	if (!e && to && what == CL_DEVICE_GLOBAL_MEM_SIZE) *(cl_ulong *)to = MEMORY;
	return e;
}

static void change(cl_icd_dispatch *table) { table->clGetDeviceInfo = info; }
