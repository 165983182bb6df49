/* depths plays a driver for tests: PoCL, which has images of depths, as of one channel that they are, and says that it has
 * extensions, of which a part cannot be had over the pool. */
#include "pocl.h"

static cl_mem CL_API_CALL image(cl_context c, cl_mem_flags flags, const cl_image_format *f, const cl_image_desc *d, void *host, cl_int *err) {
	cl_image_format one = *f;
	if (one.image_channel_order == CL_DEPTH) one.image_channel_order = CL_R;
	return was.clCreateImage(c, flags, &one, d, host, err);
}

static cl_int CL_API_CALL info(cl_device_id d, cl_device_info what, size_t size, void *to, size_t *got) {
	static const char list[] = "cl_khr_fp64 cl_khr_depth_images cl_khr_mipmap_image cl_khr_mipmap_image_writes cl_khr_initialize_memory cl_intel_planar_yuv cl_amd_copy_buffer_p2p";
	if (what != CL_DEVICE_EXTENSIONS) return was.clGetDeviceInfo(d, what, size, to, got);
	if (to && size < sizeof list) return CL_INVALID_VALUE;
	if (to) memcpy(to, list, sizeof list);
	if (got) *got = sizeof list;
	return CL_SUCCESS;
}

static void change(cl_icd_dispatch *table) { table->clCreateImage = image, table->clGetDeviceInfo = info; }
