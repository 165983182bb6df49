/* placing plays a card for tests: PoCL, which says of its devices that they are no
 * processors and have memory of their own. So its driver says where shared virtual
 * memory is. */
#include "pocl.h"

static cl_int CL_API_CALL info(cl_device_id d, cl_device_info what, size_t size, void *to, size_t *got) {
	cl_int bad = was.clGetDeviceInfo(d, what, size, to, got);
	cl_device_type gpu = CL_DEVICE_TYPE_GPU;
	if (!bad && to && what == CL_DEVICE_TYPE) memcpy(to, &gpu, sizeof gpu);
	if (!bad && to && what == CL_DEVICE_HOST_UNIFIED_MEMORY) memset(to, 0, sizeof(cl_bool));
	return bad;
}

static void change(cl_icd_dispatch *table) { table->clGetDeviceInfo = info; }
