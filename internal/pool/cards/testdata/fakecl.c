/* fakecl plays a maker's OpenCL for tests: a GPU, which is not there and
 * computes nothing, with where it is on the bus; or as many as FAKECL_BUSES names
 * a file that has a letter for each, which is its bus, and in a second line another
 * for its UUID, or none. The first of fakenvml's cards
 * is at the same place, e. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cl_icd_dispatch dispatch;
struct _cl_platform_id {
	const cl_icd_dispatch *dispatch;
} platform = {&dispatch};
struct _cl_device_id {
	const cl_icd_dispatch *dispatch;
	char bus, uuid;
} device[8] = {{&dispatch, 'e', 0}};

static cl_int give(const void *v, size_t n, size_t size, void *to, size_t *got) {
	if (to && size < n) return CL_INVALID_VALUE;
	if (to) memcpy(to, v, n);
	if (got) *got = n;
	return CL_SUCCESS;
}
#define TEXT(s) return give(s, sizeof s, size, to, got)

cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id p, cl_platform_info what, size_t size, void *to, size_t *got) {
	(void)p;
	switch (what) {
	case CL_PLATFORM_NAME: TEXT("Fake OpenCL");
	case CL_PLATFORM_EXTENSIONS: TEXT("cl_khr_icd");
	case CL_PLATFORM_ICD_SUFFIX_KHR: TEXT("FAKE");
	case CL_PLATFORM_VERSION: TEXT("OpenCL 3.0 fake");
	case CL_PLATFORM_PROFILE: TEXT("FULL_PROFILE");
	case CL_PLATFORM_VENDOR: TEXT("nobody");
	}
	return CL_INVALID_VALUE;
}
static cl_int CL_API_CALL devices(cl_platform_id p, cl_device_type type, cl_uint n, cl_device_id *list, cl_uint *count) {
	(void)p, (void)type;
	const char *path = getenv("FAKECL_BUSES");
	FILE *f = path ? fopen(path, "re") : NULL;
	cl_uint there = f ? 0 : 1;
	for (int c; f && there < 8 && (c = getc(f)) > ' '; there++) device[there].dispatch = &dispatch, device[there].bus = (char)c, device[there].uuid = 0;
	for (int c, i = 0; f && i < (int)there && (c = getc(f)) > ' '; i++) device[i].uuid = (char)c;
	if (f) fclose(f);
	for (cl_uint i = 0; list && i < n && i < there; i++) list[i] = &device[i];
	if (count) *count = there;
	return there ? CL_SUCCESS : CL_DEVICE_NOT_FOUND;
}
static cl_int CL_API_CALL info(cl_device_id d, cl_device_info what, size_t size, void *to, size_t *got) {
	switch (what) {
	case CL_DEVICE_NAME: TEXT("FAKE H100");
	case CL_DEVICE_VENDOR: TEXT("nobody");
	case CL_DRIVER_VERSION: TEXT("1");
	case CL_DEVICE_VERSION: TEXT("OpenCL 3.0 fake");
	case CL_DEVICE_TYPE: return give(&(cl_device_type){CL_DEVICE_TYPE_GPU}, sizeof(cl_device_type), size, to, got);
	case CL_DEVICE_MAX_COMPUTE_UNITS: return give(&(cl_uint){132}, sizeof(cl_uint), size, to, got);
	case CL_DEVICE_GLOBAL_MEM_SIZE: return give(&(cl_ulong){80ULL << 30}, sizeof(cl_ulong), size, to, got);
	case 0x106A: { /* CL_DEVICE_UUID_KHR */
		char b[16] = {d->uuid};
		if (!d->uuid) return CL_INVALID_VALUE;
		return give(b, sizeof b, size, to, got);
	}
#ifdef NV
	case 0x4008: return give(&(cl_uint){(cl_uint)d->bus}, sizeof(cl_uint), size, to, got);   /* CL_DEVICE_PCI_BUS_ID_NV */
	case 0x4009: return give(&(cl_uint){0 << 3}, sizeof(cl_uint), size, to, got); /* CL_DEVICE_PCI_SLOT_ID_NV */
	case 0x400A: return give(&(cl_uint){0}, sizeof(cl_uint), size, to, got);      /* CL_DEVICE_PCI_DOMAIN_ID_NV */
#elif defined AMD
	case 0x4037: { /* CL_DEVICE_TOPOLOGY_AMD */
		unsigned char b[24] = {1};
		b[21] = (unsigned char)d->bus;
		return give(b, sizeof b, size, to, got);
	}
#else
	case 0x410F: return give(&(cl_uint[4]){0, (cl_uint)d->bus, 0, 0}, 4 * sizeof(cl_uint), size, to, got); /* CL_DEVICE_PCI_BUS_INFO_KHR */
#endif
	}
	return CL_INVALID_VALUE;
}

cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint n, cl_platform_id *list, cl_uint *count) {
	dispatch.clGetPlatformInfo = clGetPlatformInfo, dispatch.clGetDeviceIDs = devices, dispatch.clGetDeviceInfo = info;
	if (list && n) *list = &platform;
	if (count) *count = 1;
	return CL_SUCCESS;
}
void *CL_API_CALL clGetExtensionFunctionAddress(const char *name) {
	if (!strcmp(name, "clIcdGetPlatformIDsKHR")) return (void *)clIcdGetPlatformIDsKHR;
	if (!strcmp(name, "clGetPlatformInfo")) return (void *)clGetPlatformInfo;
	return NULL;
}
