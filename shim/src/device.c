/* The platform and its devices: what they are, their parts and their clocks. */
#include "pool.h"
#include "ops.h"
#include <time.h>

#define EXTENSIONS "cl_khr_icd"
#define VERSION "OpenCL 3.0 Yunhe accelerator pool"

cl_int CL_API_CALL yp_clGetPlatformIDs(cl_uint n, cl_platform_id *ids_, cl_uint *count) {
  if ((!ids_ && !count) || (ids_ && !n)) return CL_INVALID_VALUE;
  if (ids_) *ids_ = (cl_platform_id)&yp_platform;
  if (count) *count = 1;
  return CL_SUCCESS;
}

static uint64_t clock_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static cl_int ask_timer(const object *d, cl_ulong *device) {
  cl_int bad = yp_connect(d->node);
  if (bad) return bad;
  if (!yp_later(d->node)) return CL_INVALID_OPERATION;
  answer a = {.land = NULL};
  yp_begin(d->node, OP_timer);
  yp_word(d->id);
  if (!(bad = yp_sync(&a))) *device = a.a;
  free(a.data);
  return bad;
}

/* timers: all devices tell of their clocks. */
static bool timers(void) {
  static int told;
  cl_ulong device;
  for (int i = __atomic_load_n(&told, __ATOMIC_RELAXED); i < yp_device_count; i++)
    if (ask_timer(&yp_devices[i], &device)) return false;
  __atomic_store_n(&told, yp_device_count, __ATOMIC_RELAXED);
  return true;
}

/* The device says what its clock shows between two times of the host's. */
static cl_int CL_API_CALL yp_clGetDeviceAndHostTimer(cl_device_id d, cl_ulong *device, cl_ulong *host) {
  if (!is(d, DEVICE)) return CL_INVALID_DEVICE;
  cl_ulong shown;
  uint64_t before = clock_now();
  cl_int bad = ask_timer(obj(d), &shown);
  if (bad) return bad; /* there is none: that comes before where its time is to go */
  if (!device || !host) return CL_INVALID_VALUE;
  *device = shown, *host = before + (clock_now() - before) / 2;
  return CL_SUCCESS;
}

static cl_int CL_API_CALL yp_clGetHostTimer(cl_device_id d, cl_ulong *host) {
  if (!is(d, DEVICE)) return CL_INVALID_DEVICE;
  if (!timers()) return CL_INVALID_OPERATION;
  if (!host) return CL_INVALID_VALUE;
  *host = clock_now();
  return CL_SUCCESS;
}

cl_int CL_API_CALL yp_clGetPlatformInfo(cl_platform_id p, cl_platform_info what, size_t size, void *value, size_t *got) {
  if (p && !is(p, PLATFORM)) return CL_INVALID_PLATFORM;
  switch (what) {
  case CL_PLATFORM_PROFILE: GIVE_TEXT("FULL_PROFILE");
  case CL_PLATFORM_VERSION: GIVE_TEXT(VERSION);
  case CL_PLATFORM_NAME: GIVE_TEXT("Yunhe accelerator pool");
  case CL_PLATFORM_VENDOR: GIVE_TEXT("Yunhe");
  case CL_PLATFORM_EXTENSIONS: GIVE_TEXT(EXTENSIONS);
  case CL_PLATFORM_ICD_SUFFIX_KHR: GIVE_TEXT("YUNHE");
  case CL_PLATFORM_HOST_TIMER_RESOLUTION: GIVE(cl_ulong, timers() ? 1 : 0);
  case CL_PLATFORM_NUMERIC_VERSION: GIVE(cl_version, CL_MAKE_VERSION(3, 0, 0));
  case CL_PLATFORM_EXTENSIONS_WITH_VERSION: {
    cl_name_version v = {CL_MAKE_VERSION(1, 0, 0), EXTENSIONS};
    return yp_give(&v, sizeof v, size, value, got);
  }
  }
  return CL_INVALID_VALUE;
}

cl_int CL_API_CALL yp_clGetDeviceIDs(cl_platform_id p, cl_device_type type, cl_uint n, cl_device_id *devices, cl_uint *count) {
  static cl_device_type own[YP_NODES];
  if (p && !is(p, PLATFORM)) return CL_INVALID_PLATFORM;
  if ((!devices && !count) || (devices && !n)) return CL_INVALID_VALUE;
  if (type == ~(cl_device_type)0) type = CL_DEVICE_TYPE_ALL; /* as bindings have it whose numbers have a sign */
  const cl_device_type real = CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CUSTOM | CL_DEVICE_TYPE_DEFAULT;
  if (type != CL_DEVICE_TYPE_ALL && (!type || type & ~real)) return CL_INVALID_DEVICE_TYPE;
  cl_uint there = 0;
  for (int i = 0; i < yp_device_count; i++) {
    object *d = &yp_devices[i];
    cl_int bad = yp_connect(d->node);
    if (bad) return bad;
    if (!own[i] && (bad = yp_info(d->node, OF_DEVICE, 0, 0, CL_DEVICE_TYPE, sizeof own[i], &own[i], NULL))) return CL_DEVICE_NOT_FOUND;
    if (type == CL_DEVICE_TYPE_DEFAULT ? i > 0 : type != CL_DEVICE_TYPE_ALL && !(type & own[i]) && !(type & CL_DEVICE_TYPE_DEFAULT && i == 0)) continue;
    if (devices && there < n) devices[there] = (cl_device_id)d;
    there++;
  }
  if (!there) return CL_DEVICE_NOT_FOUND;
  if (count) *count = there;
  return CL_SUCCESS;
}

/* Extensions that are functions, objects, images or lists of properties of the host's, by how their names begin: the driver has them, this library does not. */
static const char *const host_only[] = {"cl_khr_command_buffer", "cl_khr_semaphore", "cl_khr_external_", "cl_khr_gl_", "cl_khr_egl_", "cl_khr_d3d", "cl_khr_dx9_", "cl_khr_terminate_context",
                                        "cl_khr_create_command_queue", "cl_khr_suggested_local_work_size", "cl_khr_priority_hints", "cl_khr_throttle_hints", "cl_khr_unified_svm",
                                        "cl_ext_buffer_device_address", "cl_ext_device_fission", "cl_ext_migrate_memobject", "cl_ext_image_requirements_info", "cl_ext_immutable_memory_objects",
                                        "cl_pocl_", "cl_intel_unified_shared_memory", "cl_intel_accelerator", "cl_intel_va_api_", "cl_intel_create_buffer_with_properties",
                                        "cl_intel_command_queue_families", "cl_intel_sharing_format_query", "cl_intel_mem_", "cl_arm_import_memory", "cl_arm_shared_virtual_memory", "cl_arm_printf",
                                        "cl_arm_scheduling_controls", "cl_amd_bus_addressable_memory", "cl_nv_create_buffer", "cl_nv_d3d", "cl_img_", "cl_qcom_", "cl_APPLE_",
                                        "cl_khr_mipmap_image", "cl_khr_initialize_memory", "cl_ext_image_from_buffer", "cl_ext_image_raw10_raw12", "cl_ext_yuv_images", "cl_intel_packed_yuv", "cl_intel_planar_yuv",
                                        "cl_intel_motion_estimation", "cl_intel_advanced_motion_estimation", "cl_intel_driver_diagnostics", "cl_intel_exec_by_local_thread", "cl_intel_d3d", "cl_intel_dx9",
                                        "cl_intel_egl", "cl_intel_simultaneous_sharing", "cl_intel_queue_no_sync_operations", "cl_intel_concurrent_dispatch", "cl_amd_copy_buffer_p2p",
                                        "cl_amd_offline_devices", "cl_amd_planar_yuv", "cl_amd_liquid_flash", "cl_amd_object_metadata", "cl_arm_controlled_kernel_termination",
                                        "cl_arm_job_slot_selection", "cl_arm_protected_memory_allocation", "__opencl_c_pipes", "__opencl_c_device_enqueue"}; /* features of OpenCL C */

static bool offered(const char *name, size_t n) {
  for (size_t i = 0; i < sizeof host_only / sizeof *host_only; i++)
    if (strlen(host_only[i]) <= n && !strncmp(name, host_only[i], strlen(host_only[i]))) return false;
  return true;
}

/* yp_only_offered takes away what is not offered of a device's extensions. */
void yp_only_offered(cl_uint what, answer *a) {
  size_t n = 0;
  if (what == CL_DEVICE_EXTENSIONS_WITH_VERSION || what == CL_DEVICE_OPENCL_C_FEATURES) {
    cl_name_version v;
    for (size_t i = 0; i + sizeof v <= a->size; i += sizeof v) {
      memcpy(&v, a->data + i, sizeof v);
      if (offered(v.name, strnlen(v.name, sizeof v.name))) memmove(a->data + n, &v, sizeof v), n += sizeof v;
    }
    a->size = n;
  }
  if (what != CL_DEVICE_EXTENSIONS || !a->size) return;
  char *to = (char *)a->data;
  for (const char *word = to; *word;) {
    size_t k = strcspn(word, " ");
    const char *next = word + k + strspn(word + k, " ");
    if (offered(word, k)) memmove(to + n, word, (size_t)(next - word)), n += (size_t)(next - word);
    word = next;
  }
  to[n] = 0, a->size = n + 1;
}

static pthread_mutex_t svm_lock = PTHREAD_MUTEX_INITIALIZER;

void yp_devices_in_child(void) { pthread_mutex_init(&svm_lock, NULL); }

/* svm_capabilities: of what a driver has, the coarse-grained kind is offered, if all devices have it that may be in one context. */
static cl_int svm_capabilities(const object *d, size_t size, void *value, size_t *got) {
  static cl_device_svm_capabilities all = CL_DEVICE_SVM_COARSE_GRAIN_BUFFER;
  static int known;
  pthread_mutex_lock(&svm_lock);
  for (; known < yp_device_count; known++) {
    cl_device_svm_capabilities has = 0;
    cl_int bad = yp_connect(yp_devices[known].node);
    if (!bad) bad = yp_info(yp_devices[known].node, OF_DEVICE, 0, yp_device_count > 1, CL_DEVICE_SVM_CAPABILITIES, sizeof has, &has, NULL);
    if (bad && yp_devices[known].node == d->node) break;
    all &= has;
  }
  cl_device_svm_capabilities v = known == yp_device_count ? all : 0;
  pthread_mutex_unlock(&svm_lock);
  return yp_give(&v, sizeof v, size, value, got);
}

/* Facts of the device do not change, except how much memory it has: that is the task's, and can be resized. */
static cl_int CL_API_CALL yp_clGetDeviceInfo(cl_device_id d, cl_device_info what, size_t size, void *value, size_t *got) {
  if (!is(d, DEVICE)) return CL_INVALID_DEVICE;
  if (yp_connect(obj(d)->node)) return CL_OUT_OF_RESOURCES; /* a child may have the handle of its parent */
  switch (what) {
  case CL_DEVICE_SVM_CAPABILITIES:
    return svm_capabilities(obj(d), size, value, got);
  case CL_DEVICE_PLATFORM: GIVE(cl_platform_id, (cl_platform_id)&yp_platform);
  case CL_DEVICE_PARENT_DEVICE: GIVE(cl_device_id, (cl_device_id)obj(d)->parent);
  case CL_DEVICE_REFERENCE_COUNT: GIVE(cl_uint, yp_count(yp_refs(obj(d))));
  case CL_DEVICE_EXECUTION_CAPABILITIES: GIVE(cl_device_exec_capabilities, CL_EXEC_KERNEL);
  case CL_DEVICE_PIPE_SUPPORT: GIVE(cl_bool, CL_FALSE);
  case CL_DEVICE_HOST_UNIFIED_MEMORY: /* of its own machine's, which programs take for theirs */
    if (!yp_unified(obj(d)->node)) GIVE(cl_bool, CL_FALSE);
    break;
  case CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES: GIVE(cl_device_device_enqueue_capabilities, 0);
  case CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES: GIVE(cl_command_queue_properties, 0);
  case CL_DEVICE_MAX_PIPE_ARGS: case CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS: case CL_DEVICE_PIPE_MAX_PACKET_SIZE: case CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE:
  case CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE: case CL_DEVICE_MAX_ON_DEVICE_QUEUES: case CL_DEVICE_MAX_ON_DEVICE_EVENTS: GIVE(cl_uint, 0);
  case CL_DEVICE_GLOBAL_MEM_SIZE:
  case CL_DEVICE_MAX_MEM_ALLOC_SIZE: return yp_info(obj(d)->node, OF_DEVICE, obj(d)->id, 0, what, size, value, got);
  }
  return yp_fact(obj(d), OF_DEVICE, 0, what, size, value, got);
}

enum { MOST_PARTS = 4096 };

static cl_int CL_API_CALL yp_clCreateSubDevices(cl_device_id d, const cl_device_partition_property *p, cl_uint n, cl_device_id *out, cl_uint *count) {
  if (!is(d, DEVICE)) return CL_INVALID_DEVICE;
  if (!p || !*p || (out && !n)) return CL_INVALID_VALUE;
  cl_int bad = yp_connect(obj(d)->node);
  if (bad) return bad;
  cl_uint words = 2, some = out ? n < MOST_PARTS ? n : MOST_PARTS : 0;
  while (*p == CL_DEVICE_PARTITION_BY_COUNTS && p[words - 1] != CL_DEVICE_PARTITION_BY_COUNTS_LIST_END)
    if (words++ > MOST_PARTS) return CL_INVALID_DEVICE_PARTITION_COUNT;
  if (p[words]) return CL_INVALID_VALUE;
  object **made = calloc(some + 1, sizeof *made);
  if (!made) return CL_OUT_OF_HOST_MEMORY;
  for (cl_uint i = 0; i < some; i++)
    if (!(made[i] = yp_new(DEVICE, obj(d), NULL))) some = i;
    else made[i]->dispatch = obj(d)->dispatch;
  answer a = {.land = NULL};
  yp_begin(obj(d)->node, OP_create_sub_devices);
  yp_word(obj(d)->id);
  yp_word(words);
  for (cl_uint i = 0; i < words; i++) yp_word((uint64_t)p[i]);
  yp_word(some);
  for (cl_uint i = 0; i < some; i++) yp_word(made[i]->id);
  bad = yp_sync(&a);
  free(a.data);
  for (cl_uint i = 0; i < some; i++)
    if (!bad && i < a.a) out[i] = (cl_device_id)made[i];
    else yp_destroy(made[i]);
  free(made);
  if (!bad && count) *count = (cl_uint)a.a;
  return bad;
}

#define SET(NAME) yp_dispatch.NAME = yp_##NAME;
void yp_fill_devices(void) {
  SET(clGetPlatformIDs) SET(clGetPlatformInfo) SET(clGetDeviceIDs) SET(clGetDeviceInfo) SET(clGetDeviceAndHostTimer) SET(clGetHostTimer) SET(clCreateSubDevices)
}
