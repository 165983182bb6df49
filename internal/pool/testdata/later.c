/* later is PoCL with functions that came with OpenCL 2.1 and 2.2: timers, sub-groups, of 8
 * each, and intermediate language, which is text here, and knows its constants as
 * macros; and it tells of variables that programs keep, of pipes, and of queues on devices. With OLD it says that it is of version 2.0, and has no place for them
 * in its table, but sub-groups as an extension. */
#include "pocl.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { EACH = 8, MOST = 64 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	cl_program program;
	bool set[10];
	cl_int value[10];
} made[MOST];
static int count;

static int which(cl_program p) {
	int i = count;
	while (--i >= 0 && made[i].program != p) {}
	return i;
}

static cl_int CL_API_CALL sub_groups(cl_kernel k, cl_device_id d, cl_kernel_sub_group_info what, size_t given, const void *in, size_t size, void *out, size_t *got) {
	size_t v[3] = {1, 1, 1}, n = 1;
	(void)d;
	if (!k) return CL_INVALID_KERNEL;
	for (size_t i = 0; in && i < given / sizeof(size_t); i++) n *= ((const size_t *)in)[i];
	switch (what) {
	case CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE: v[0] = EACH; break;
	case CL_KERNEL_SUB_GROUP_COUNT_FOR_NDRANGE: v[0] = (n + EACH - 1) / EACH; break;
	case CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT: v[0] = n * EACH; break;
	case CL_KERNEL_MAX_NUM_SUB_GROUPS: v[0] = 512; break;
	case CL_KERNEL_COMPILE_NUM_SUB_GROUPS: v[0] = 0; break;
	default: return CL_INVALID_VALUE;
	}
	if (what <= CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT && what != CL_KERNEL_MAX_NUM_SUB_GROUPS && (!in || !given)) return CL_INVALID_VALUE;
	size_t all = what == CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT && out && size < sizeof v ? size / sizeof *v * sizeof *v : what == CL_KERNEL_LOCAL_SIZE_FOR_SUB_GROUP_COUNT ? sizeof v : sizeof *v;
	if (out && size < all) return CL_INVALID_VALUE;
	if (out) memcpy(out, v, all);
	if (got) *got = all;
	return CL_SUCCESS;
}

__attribute__((unused)) static cl_program CL_API_CALL with_il(cl_context c, const void *il, size_t n, cl_int *err) {
	const char *text = (const char *)il + 3;
	if (n < 4 || memcmp(il, "IL ", 3)) {
		if (err) *err = CL_INVALID_VALUE;
		return NULL;
	}
	n -= 3;
	cl_program p = was.clCreateProgramWithSource(c, 1, &text, &n, err);
	pthread_mutex_lock(&lock);
	if (p && count < MOST) made[count++].program = p;
	pthread_mutex_unlock(&lock);
	return p;
}

__attribute__((unused)) static cl_int CL_API_CALL specialize(cl_program p, cl_uint id, size_t size, const void *value) {
	pthread_mutex_lock(&lock);
	int i = which(p);
	cl_int bad = i < 0 ? CL_INVALID_OPERATION : size != sizeof(cl_int) || !value ? CL_INVALID_VALUE : id > 9 ? CL_INVALID_SPEC_ID : CL_SUCCESS;
	if (!bad) made[i].set[id] = true, made[i].value[id] = *(const cl_int *)value;
	pthread_mutex_unlock(&lock);
	return bad;
}

static cl_int CL_API_CALL build(cl_program p, cl_uint n, const cl_device_id *list, const char *options, void(CL_CALLBACK *call)(cl_program, void *), void *data) {
	char all[4096];
	pthread_mutex_lock(&lock);
	int i = which(p);
	int end = i < 0 ? 0 : snprintf(all, sizeof all, "%s", options ? options : "");
	for (int k = 0; i >= 0 && k < 10; k++)
		if (made[i].set[k]) end += snprintf(all + end, sizeof all - (size_t)end, " -DC%d=%d", k, made[i].value[k]);
	if (i >= 0) options = all;
	pthread_mutex_unlock(&lock);
	return was.clBuildProgram(p, n, list, options, call, data);
}

/* built tells of variables that a program keeps, which PoCL has and does not tell of. */
static cl_int CL_API_CALL built(cl_program p, cl_device_id d, cl_program_build_info what, size_t size, void *out, size_t *got) {
	char text[4096] = "";
	if (what != CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE || was.clGetProgramInfo(p, CL_PROGRAM_SOURCE, sizeof text, text, NULL)) return was.clGetProgramBuildInfo(p, d, what, size, out, got);
	if (out && size < sizeof(size_t)) return CL_INVALID_VALUE;
	if (out) *(size_t *)out = strstr(text, "global int kept") ? sizeof(cl_int) : 0;
	if (got) *got = sizeof(size_t);
	return CL_SUCCESS;
}

static cl_int CL_API_CALL device(cl_device_id d, cl_device_info what, size_t size, void *out, size_t *got) {
	static const cl_uint groups = 512;
	const void *v = what == CL_DEVICE_MAX_NUM_SUB_GROUPS ? (const void *)&groups : what == CL_DEVICE_IL_VERSION ? "TEXT_1.0" : NULL;
	size_t n = what == CL_DEVICE_MAX_NUM_SUB_GROUPS ? sizeof groups : sizeof "TEXT_1.0";
	static const cl_uint some = 7;
	static const cl_command_queue_properties on_device = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
	static const cl_name_version features[] = {{CL_MAKE_VERSION(3, 0, 0), "__opencl_c_pipes"}, {CL_MAKE_VERSION(3, 0, 0), "__opencl_c_fp64"}, {CL_MAKE_VERSION(3, 0, 0), "__opencl_c_device_enqueue"}};
	switch (what) {
	case CL_DEVICE_MAX_PIPE_ARGS: case CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS: case CL_DEVICE_PIPE_MAX_PACKET_SIZE: case CL_DEVICE_PIPE_SUPPORT: case CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE:
	case CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE: case CL_DEVICE_MAX_ON_DEVICE_QUEUES: case CL_DEVICE_MAX_ON_DEVICE_EVENTS: v = &some, n = sizeof some; break;
	case CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES: case CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES: v = &on_device, n = sizeof on_device; break;
	case CL_DEVICE_OPENCL_C_FEATURES: v = features, n = sizeof features; break;
	}
#ifdef OLD
	if (what == CL_DEVICE_VERSION) v = "OpenCL 2.0", n = sizeof "OpenCL 2.0";
	if (what == CL_DEVICE_EXTENSIONS) v = "cl_khr_fp64 cl_khr_subgroups", n = sizeof "cl_khr_fp64 cl_khr_subgroups";
#endif
	if (!v) return was.clGetDeviceInfo(d, what, size, out, got);
	if (out && size < n) return CL_INVALID_VALUE;
	if (out) memcpy(out, v, n);
	if (got) *got = n;
	return CL_SUCCESS;
}

static cl_int CL_API_CALL platform(cl_platform_id p, cl_platform_info what, size_t size, void *out, size_t *got) {
#ifndef OLD
	if (what == CL_PLATFORM_HOST_TIMER_RESOLUTION && size == sizeof(cl_ulong) && out) {
		*(cl_ulong *)out = 1;
		return CL_SUCCESS;
	}
#endif
	return was.clGetPlatformInfo(p, what, size, out, got);
}

__attribute__((unused)) static cl_int CL_API_CALL host_timer(cl_device_id d, cl_ulong *host) {
	struct timespec t;
	if (!d) return CL_INVALID_DEVICE;
	if (!host) return CL_INVALID_VALUE;
	clock_gettime(CLOCK_MONOTONIC, &t); /* by which PoCL says when commands ran */
	*host = (cl_ulong)t.tv_sec * 1000000000 + (cl_ulong)t.tv_nsec;
	return CL_SUCCESS;
}

__attribute__((unused)) static cl_int CL_API_CALL timers(cl_device_id d, cl_ulong *now, cl_ulong *host) {
	cl_int bad = !d ? CL_INVALID_DEVICE : !host ? CL_INVALID_VALUE : host_timer(d, now);
	if (!bad) *host = *now;
	return bad;
}

static void change(cl_icd_dispatch *table) {
	table->clGetDeviceInfo = device, table->clBuildProgram = build, table->clGetPlatformInfo = platform, table->clGetProgramBuildInfo = built;
#ifdef OLD
	table->clGetDeviceAndHostTimer = NULL, table->clGetHostTimer = NULL;
	table->clGetKernelSubGroupInfo = NULL, table->clCreateProgramWithIL = NULL, table->clSetProgramSpecializationConstant = NULL;
	table->clGetKernelSubGroupInfoKHR = sub_groups;
#else
	table->clGetDeviceAndHostTimer = timers, table->clGetHostTimer = host_timer;
	table->clGetKernelSubGroupInfo = sub_groups, table->clCreateProgramWithIL = with_il, table->clSetProgramSpecializationConstant = specialize;
#endif
}
