/* Platform, device, contexts, queues, programs, kernels, samplers and events. */
#include "pool.h"
#include "stubs.h"
#include <stddef.h>
#include <time.h>
#include <unistd.h>

#define EXTENSIONS "cl_khr_icd"
#define VERSION "OpenCL 3.0 Yunhe accelerator pool"

/* What an info asks of; the worker has the same list. */
enum { OF_DEVICE = 1, OF_QUEUE, OF_MEM, OF_IMAGE, OF_SAMPLER, OF_PROGRAM, OF_BUILD, OF_KERNEL, OF_ARG, OF_GROUP, OF_EVENT, OF_PROFILE };

cl_icd_dispatch yp_dispatch;
object yp_platform = {.dispatch = &yp_dispatch, .kind = PLATFORM, .refs = 1}, yp_devices[YP_NODES];
int yp_device_count;

static pthread_mutex_t objects = PTHREAD_MUTEX_INITIALIZER;
static uint64_t ids;
static object *all[1 << 12]; /* by address */

static object **place(const void *o) { return &all[((uintptr_t)o >> 4) % (sizeof all / sizeof *all)]; }

/* find_object returns the object at an address that may be anything. */
static object *find_object(const void *p) {
  pthread_mutex_lock(&objects);
  object *o = *place(p);
  while (o && o != p) o = o->next;
  pthread_mutex_unlock(&objects);
  return o;
}

object *yp_new(int kind, object *parent, object *context) {
  object *o = calloc(1, sizeof *o);
  if (!o) return NULL;
  o->dispatch = &yp_dispatch, o->kind = kind, o->refs = 1, o->parent = parent, o->context = context;
  o->node = parent ? parent->node : NULL;
  pthread_mutex_lock(&objects);
  o->id = ++ids;
  if (parent) parent->children++;
  o->next = *place(o), *place(o) = o;
  pthread_mutex_unlock(&objects);
  return o;
}

/* yp_is_not is false, and says once why what a parent made is not a child's. */
bool yp_is_not(const object *o, int kind) {
  static int said;
  if (o->kind == (kind | PARENTS) && !__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
    fprintf(stderr, "yunhe pool: a child process uses what its parent has made, and cannot: it has to make a context of its own\n");
  return false;
}

/* yp_when_destroyed has a function called when something goes, before those that were asked for earlier. */
cl_int yp_when_destroyed(callback **list, void (*call)(void), void *data) {
  if (!call) return CL_INVALID_VALUE;
  callback *c = malloc(sizeof *c);
  if (!c) return CL_OUT_OF_HOST_MEMORY;
  *c = (callback){(void(CL_CALLBACK *)(void *, void *))call, data, NULL};
  pthread_mutex_lock(&objects);
  c->next = *list, *list = c;
  pthread_mutex_unlock(&objects);
  return CL_SUCCESS;
}

void yp_tell(callback *c, void *handle) {
  while (c) {
    callback *next = c->next;
    c->call(handle, c->data);
    free(c);
    c = next;
  }
}

static cl_int CL_API_CALL yp_clReleaseDevice(cl_device_id h);

/* fact is what the worker has told of an object and stays so: it is asked once. */
typedef struct fact {
  struct fact *next;
  int of;
  uint64_t more;
  cl_uint what;
  answer a;
} fact;

static pthread_mutex_t facts_lock = PTHREAD_MUTEX_INITIALIZER;

static void forget_facts(object *o) {
  for (fact *f; (f = o->facts);) o->facts = f->next, free(f->a.data), free(f);
}

/* yp_destroy frees what nothing points to any more, and then what only it pointed to. */
void yp_destroy(object *o) {
  object *context = NULL, *device = NULL; /* a queue's */
  pthread_mutex_lock(&objects);
  o->refs = 0;
  while (o && o->refs == 0 && o->children == 0) {
    object *parent = o->parent;
    if (o->kind == MEM || o->kind == SVM) { /* nobody else knows it any more */
      pthread_mutex_unlock(&objects);
      yp_mem_gone(o);
      pthread_mutex_lock(&objects);
    }
    free(o->properties);
    forget_facts(o);
    if (o->kind == CONTEXT) context = o; /* the last, as it points to nothing */
    if (o->kind == QUEUE) device = o->u.queue.device;
    if (o->kind == PROGRAM) free(o->u.program.text);
    if (o->kind == KERNEL) free(o->u.kernel.classes);
    object **at = place(o);
    while (*at != o) at = &(*at)->next;
    *at = o->next;
    o->kind = 0;
    if (o != context) free(o);
    if (parent) parent->children--;
    o = parent;
  }
  pthread_mutex_unlock(&objects);
  if (device) yp_clReleaseDevice((cl_device_id)device);
  if (!context) return;
  yp_tell(context->destroyed, context);
  for (cl_uint i = 0; i < context->u.context.n; i++) yp_clReleaseDevice((cl_device_id)context->u.context.devices[i]);
  free(context->u.context.devices), free(context);
}

/* of_parent: a child lets go of what its parent made, as its own ends do; nobody has to hear of it. */
static bool of_parent(const void *handle, int kind) { return handle && obj(handle)->kind == (kind | PARENTS); }

static cl_int retain(void *handle, int kind, cl_int invalid) {
  if (of_parent(handle, kind)) return CL_SUCCESS;
  if (!is(handle, kind)) return invalid;
  __atomic_add_fetch(&obj(handle)->refs, 1, __ATOMIC_RELAXED);
  return CL_SUCCESS;
}

/* release reports in *last whether that was the last reference; the worker has been told then. */
static cl_int release(void *handle, int kind, cl_int invalid, bool *last) {
  *last = false;
  if (of_parent(handle, kind)) return CL_SUCCESS;
  if (!is(handle, kind)) return invalid;
  int refs = __atomic_load_n(&obj(handle)->refs, __ATOMIC_ACQUIRE);
  if (refs < 1) return invalid;
  while (refs > 1 && !__atomic_compare_exchange_n(&obj(handle)->refs, &refs, refs - 1, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {}
  if (!(*last = refs == 1)) return CL_SUCCESS;
  yp_begin(obj(handle)->node, OP_release);
  yp_word(obj(handle)->id);
  yp_post(kind == QUEUE);
  return CL_SUCCESS;
}

#define COUNTED(NAME, TYPE, KIND, INVALID)                                      \
  static cl_int CL_API_CALL yp_clRetain##NAME(TYPE h) { return retain(h, KIND, INVALID); } \
  static cl_int CL_API_CALL yp_clRelease##NAME(TYPE h) {                        \
    bool last;                                                                  \
    cl_int bad = release(h, KIND, INVALID, &last);                              \
    if (!bad && last) yp_destroy(obj(h));                                       \
    return bad;                                                                 \
  }
COUNTED(CommandQueue, cl_command_queue, QUEUE, CL_INVALID_COMMAND_QUEUE)
COUNTED(Sampler, cl_sampler, SAMPLER, CL_INVALID_SAMPLER)
COUNTED(Program, cl_program, PROGRAM, CL_INVALID_PROGRAM)
COUNTED(Kernel, cl_kernel, KERNEL, CL_INVALID_KERNEL)
COUNTED(Event, cl_event, EVENT, CL_INVALID_EVENT)
COUNTED(MemObject, cl_mem, MEM, CL_INVALID_MEM_OBJECT)
COUNTED(Context, cl_context, CONTEXT, CL_INVALID_CONTEXT)

static bool whole(cl_device_id d) { return is(d, DEVICE) && !obj(d)->parent; }
static cl_int CL_API_CALL yp_clRetainDevice(cl_device_id d) { return whole(d) ? CL_SUCCESS : retain(d, DEVICE, CL_INVALID_DEVICE); }
static cl_int CL_API_CALL yp_clReleaseDevice(cl_device_id d) {
  bool last = false;
  cl_int bad = whole(d) ? CL_SUCCESS : release(d, DEVICE, CL_INVALID_DEVICE, &last);
  if (!bad && last) yp_destroy(obj(d));
  return bad;
}

cl_int yp_give(const void *p, size_t n, size_t size, void *value, size_t *got) {
  if (value && size < n) return CL_INVALID_VALUE;
  if (value && n) memcpy(value, p, n);
  if (got) *got = n;
  return CL_SUCCESS;
}
#define GIVE(TYPE, X) \
  do {                \
    TYPE v = (X);     \
    return yp_give(&v, sizeof v, size, value, got); \
  } while (0)
#define GIVE_TEXT(X) return yp_give(X, strlen(X) + 1, size, value, got)

static cl_int ask(yp_node *c, int of, uint64_t id, uint64_t more, cl_uint what, answer *a) {
  yp_begin(c, OP_info);
  yp_word((uint64_t)of);
  yp_word(id);
  yp_word(more);
  yp_word(what);
  return yp_sync(a);
}

cl_int yp_info(yp_node *c, int of, uint64_t id, uint64_t more, cl_uint what, size_t size, void *value, size_t *got) {
  answer a = {.land = NULL};
  cl_int status = ask(c, of, id, more, what, &a);
  if (!status) status = yp_give(a.data, a.size, size, value, got);
  free(a.data);
  return status;
}

static void only_offered(cl_uint what, answer *a);

static cl_int fact_of(object *o, int of, uint64_t more, cl_uint what, size_t size, void *value, size_t *got) {
  pthread_mutex_lock(&facts_lock);
  fact *f = o->facts;
  while (f && (f->what != what || f->of != of || f->more != more)) f = f->next;
  pthread_mutex_unlock(&facts_lock);
  if (!f) {
    answer a = {.land = NULL};
    if (!ask(o->node, of, o->id, more, what, &a) && of == OF_DEVICE) only_offered(what, &a);
    bool stays = !a.status || a.status == CL_INVALID_VALUE || a.status == CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
    if (!stays || !(f = malloc(sizeof *f))) {
      free(a.data);
      return stays ? CL_OUT_OF_HOST_MEMORY : a.status;
    }
    pthread_mutex_lock(&facts_lock);
    *f = (fact){o->facts, of, more, what, a}, o->facts = f;
    pthread_mutex_unlock(&facts_lock);
  }
  return f->a.status ? f->a.status : yp_give(f->a.data, f->a.size, size, value, got);
}

static cl_int CL_API_CALL yp_clGetPlatformIDs(cl_uint n, cl_platform_id *ids_, cl_uint *count) {
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

static cl_int CL_API_CALL yp_clGetPlatformInfo(cl_platform_id p, cl_platform_info what, size_t size, void *value, size_t *got) {
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

static cl_int CL_API_CALL yp_clGetDeviceIDs(cl_platform_id p, cl_device_type type, cl_uint n, cl_device_id *devices, cl_uint *count) {
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

/* Extensions that are functions or objects of the host's, by how their names begin: the driver has them, this library does not. */
static const char *const host_only[] = {"cl_khr_command_buffer", "cl_khr_semaphore", "cl_khr_external_", "cl_khr_gl_", "cl_khr_egl_", "cl_khr_d3d", "cl_khr_dx9_", "cl_khr_terminate_context",
                                        "cl_khr_create_command_queue", "cl_khr_suggested_local_work_size", "cl_khr_priority_hints", "cl_khr_throttle_hints", "cl_khr_unified_svm",
                                        "cl_ext_buffer_device_address", "cl_ext_device_fission", "cl_ext_migrate_memobject", "cl_ext_image_requirements_info", "cl_ext_immutable_memory_objects",
                                        "cl_pocl_", "cl_intel_unified_shared_memory", "cl_intel_accelerator", "cl_intel_va_api_", "cl_intel_create_buffer_with_properties",
                                        "cl_intel_command_queue_families", "cl_intel_sharing_format_query", "cl_intel_mem_", "cl_arm_import_memory", "cl_arm_shared_virtual_memory", "cl_arm_printf",
                                        "cl_arm_scheduling_controls", "cl_amd_bus_addressable_memory", "cl_nv_create_buffer", "cl_nv_d3d", "cl_img_", "cl_qcom_", "cl_APPLE_",
                                        "__opencl_c_pipes", "__opencl_c_device_enqueue"}; /* features of OpenCL C */

static bool offered(const char *name, size_t n) {
  for (size_t i = 0; i < sizeof host_only / sizeof *host_only; i++)
    if (strlen(host_only[i]) <= n && !strncmp(name, host_only[i], strlen(host_only[i]))) return false;
  return true;
}

/* only_offered takes away what is not offered of a device's extensions. */
static void only_offered(cl_uint what, answer *a) {
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

/* svm_capabilities: of what a driver has, the coarse-grained kind is offered, if all devices have it that may be in one context. */
static cl_int svm_capabilities(const object *d, size_t size, void *value, size_t *got) {
  static cl_device_svm_capabilities all = CL_DEVICE_SVM_COARSE_GRAIN_BUFFER;
  static int known;
  pthread_mutex_lock(&facts_lock);
  for (; known < yp_device_count; known++) {
    cl_device_svm_capabilities has = 0;
    cl_int bad = yp_connect(yp_devices[known].node);
    if (!bad) bad = yp_info(yp_devices[known].node, OF_DEVICE, 0, yp_device_count > 1, CL_DEVICE_SVM_CAPABILITIES, sizeof has, &has, NULL);
    if (bad && yp_devices[known].node == d->node) break;
    all &= has;
  }
  cl_device_svm_capabilities v = known == yp_device_count ? all : 0;
  pthread_mutex_unlock(&facts_lock);
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
  case CL_DEVICE_REFERENCE_COUNT: GIVE(cl_uint, (cl_uint)obj(d)->refs);
  case CL_DEVICE_EXECUTION_CAPABILITIES: GIVE(cl_device_exec_capabilities, CL_EXEC_KERNEL);
  case CL_DEVICE_PIPE_SUPPORT: GIVE(cl_bool, CL_FALSE);
  case CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES: GIVE(cl_device_device_enqueue_capabilities, 0);
  case CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES: GIVE(cl_command_queue_properties, 0);
  case CL_DEVICE_MAX_PIPE_ARGS: case CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS: case CL_DEVICE_PIPE_MAX_PACKET_SIZE: case CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE:
  case CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE: case CL_DEVICE_MAX_ON_DEVICE_QUEUES: case CL_DEVICE_MAX_ON_DEVICE_EVENTS: GIVE(cl_uint, 0);
  case CL_DEVICE_GLOBAL_MEM_SIZE:
  case CL_DEVICE_MAX_MEM_ALLOC_SIZE: return yp_info(obj(d)->node, OF_DEVICE, obj(d)->id, 0, what, size, value, got);
  }
  return fact_of(obj(d), OF_DEVICE, 0, what, size, value, got);
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

#define FAIL(CODE)          \
  do {                      \
    if (err) *err = (CODE); \
    return NULL;            \
  } while (0)

/* keep_properties keeps a list of pairs that ends with 0, for the info that asks for it. */
static void keep_properties(object *o, const void *list) {
  const intptr_t *p = list;
  size_t n = 0;
  if (!o || !p) return;
  while (p[n]) n += 2;
  o->properties = malloc(o->properties_size = (n + 1) * sizeof *p);
  if (o->properties) memcpy(o->properties, p, o->properties_size);
}

static bool in_context(const object *context, const void *device) {
  for (cl_uint i = 0; i < context->u.context.n; i++)
    if (context->u.context.devices[i] == device) return true;
  return false;
}

static object *create_context(const cl_context_properties *properties, cl_uint n, const cl_device_id *devices, cl_int *err) {
  for (const cl_context_properties *p = properties; p && *p; p += 2) {
    if (*p == CL_CONTEXT_PLATFORM) {
      if (!is((void *)p[1], PLATFORM)) FAIL(CL_INVALID_PLATFORM);
    } else if (*p != CL_CONTEXT_INTEROP_USER_SYNC || (p[1] != CL_TRUE && p[1] != CL_FALSE)) {
      FAIL(CL_INVALID_PROPERTY);
    }
    for (const cl_context_properties *q = properties; q < p; q += 2)
      if (*q == *p) FAIL(CL_INVALID_PROPERTY);
  }
  cl_int bad = yp_connect(obj(devices[0])->node);
  if (bad) FAIL(bad);
  object *o = yp_new(CONTEXT, NULL, NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  o->node = obj(devices[0])->node;
  keep_properties(o, properties);
  object **list = o->u.context.devices = calloc(n, sizeof *list);
  if (!list) {
    yp_destroy(o);
    FAIL(CL_OUT_OF_HOST_MEMORY);
  }
  for (cl_uint i = 0; i < n; i++)
    if (!in_context(o, devices[i])) list[o->u.context.n++] = obj(devices[i]), yp_clRetainDevice(devices[i]);
  n = o->u.context.n;
  yp_begin(o->node, OP_create_context);
  yp_word(o->id);
  yp_word(n > 1 || list[0]->id ? n : 0); /* none: the whole device */
  for (cl_uint i = 0; i < n && (n > 1 || list[0]->id); i++) yp_word(list[i]->id);
  bad = yp_sync(NULL);
  if (bad) yp_destroy(o), o = NULL;
  if (err) *err = bad;
  return o;
}

static cl_context CL_API_CALL yp_clCreateContext(const cl_context_properties *properties, cl_uint n, const cl_device_id *devices,
                                                 void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *data, cl_int *err) {
  if (!devices || !n || (!notify && data)) FAIL(CL_INVALID_VALUE);
  for (cl_uint i = 0; i < n; i++)
    if (!is(devices[i], DEVICE) || obj(devices[i])->node != obj(devices[0])->node) FAIL(CL_INVALID_DEVICE);
  return (cl_context)create_context(properties, n, devices, err);
}

static cl_context CL_API_CALL yp_clCreateContextFromType(const cl_context_properties *properties, cl_device_type type,
                                                         void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *data, cl_int *err) {
  cl_device_id d;
  if (!notify && data) FAIL(CL_INVALID_VALUE);
  cl_int bad = yp_clGetDeviceIDs(NULL, type, 1, &d, NULL);
  if (bad) FAIL(bad);
  return (cl_context)create_context(properties, 1, &d, err);
}

static cl_int CL_API_CALL yp_clGetContextInfo(cl_context h, cl_context_info what, size_t size, void *value, size_t *got) {
  if (!is(h, CONTEXT)) return CL_INVALID_CONTEXT;
  object *o = obj(h);
  switch (what) {
  case CL_CONTEXT_REFERENCE_COUNT: GIVE(cl_uint, (cl_uint)o->refs);
  case CL_CONTEXT_NUM_DEVICES: GIVE(cl_uint, o->u.context.n);
  case CL_CONTEXT_DEVICES: return yp_give(o->u.context.devices, o->u.context.n * sizeof(cl_device_id), size, value, got);
  case CL_CONTEXT_PROPERTIES: return yp_give(o->properties, o->properties_size, size, value, got);
  }
  return CL_INVALID_VALUE;
}

static cl_int CL_API_CALL yp_clSetContextDestructorCallback(cl_context h, void(CL_CALLBACK *call)(cl_context, void *), void *data) {
  if (!is(h, CONTEXT)) return CL_INVALID_CONTEXT;
  return yp_when_destroyed(&obj(h)->destroyed, (void (*)(void))call, data);
}

static object *create_queue(cl_context c, cl_device_id d, cl_command_queue_properties flags, cl_int *err) {
  if (!is(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!is(d, DEVICE) || obj(d)->node != obj(c)->node) FAIL(CL_INVALID_DEVICE);
  if (flags & ~(cl_command_queue_properties)(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE | CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT)) FAIL(CL_INVALID_VALUE);
  if (flags & (CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT)) FAIL(CL_INVALID_QUEUE_PROPERTIES);
  object *o = yp_new(QUEUE, obj(c), obj(c));
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  o->u.queue.flags = flags, o->u.queue.device = obj(d);
  yp_clRetainDevice(d);
  yp_begin(o->node, OP_create_queue);
  yp_word(obj(c)->id);
  yp_word(o->id);
  yp_word(flags);
  yp_word(obj(d)->id);
  cl_int bad = yp_sync(NULL);
  if (bad) yp_destroy(o), o = NULL;
  if (err) *err = bad;
  return o;
}

static cl_command_queue CL_API_CALL yp_clCreateCommandQueue(cl_context c, cl_device_id d, cl_command_queue_properties flags, cl_int *err) {
  return (cl_command_queue)create_queue(c, d, flags, err);
}

static cl_command_queue CL_API_CALL yp_clCreateCommandQueueWithProperties(cl_context c, cl_device_id d, const cl_queue_properties *properties, cl_int *err) {
  cl_command_queue_properties flags = 0;
  for (const cl_queue_properties *p = properties; p && *p; p += 2)
    if (*p == CL_QUEUE_PROPERTIES) flags = p[1];
    else if (*p == CL_QUEUE_SIZE) FAIL(CL_INVALID_QUEUE_PROPERTIES);
    else FAIL(CL_INVALID_VALUE);
  object *o = create_queue(c, d, flags, err);
  keep_properties(o, properties);
  return (cl_command_queue)o;
}

static cl_int CL_API_CALL yp_clGetCommandQueueInfo(cl_command_queue h, cl_command_queue_info what, size_t size, void *value, size_t *got) {
  if (!is(h, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  object *o = obj(h);
  switch (what) {
  case CL_QUEUE_CONTEXT: GIVE(cl_context, (cl_context)o->context);
  case CL_QUEUE_DEVICE: GIVE(cl_device_id, (cl_device_id)o->u.queue.device);
  case CL_QUEUE_REFERENCE_COUNT: GIVE(cl_uint, (cl_uint)o->refs);
  case CL_QUEUE_PROPERTIES: GIVE(cl_command_queue_properties, o->u.queue.flags);
  case CL_QUEUE_PROPERTIES_ARRAY: return yp_give(o->properties, o->properties_size, size, value, got);
  case CL_QUEUE_DEVICE_DEFAULT: GIVE(cl_command_queue, NULL);
  case CL_QUEUE_SIZE: return CL_INVALID_COMMAND_QUEUE; /* of queues on devices only */
  }
  return CL_INVALID_VALUE;
}

static cl_int CL_API_CALL yp_clSetCommandQueueProperty(cl_command_queue h, cl_command_queue_properties p, cl_bool on, cl_command_queue_properties *old) {
  (void)p, (void)on, (void)old;
  return is(h, QUEUE) ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE; /* removed from OpenCL in 1.1 */
}

cl_int yp_send_to(object *queue, object *e) {
  uint64_t posted = __atomic_add_fetch(&queue->u.queue.posted, 1, __ATOMIC_RELEASE);
  if (e && yp_ordered(queue)) e->u.event.upto = posted;
  return yp_end();
}

cl_int yp_finish(object *q) {
  uint64_t posted = yp_posted(q);
  cl_int status = yp_status(q->node, OP_finish, q->id, 0);
  if (!status) yp_done(q, posted);
  return status;
}

static cl_int CL_API_CALL yp_clFinish(cl_command_queue q) {
  if (!is(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  const uint64_t notices = yp_notices();
  cl_int status = CL_SUCCESS;
  if (__atomic_exchange_n(&obj(q)->u.queue.marked, false, __ATOMIC_ACQ_REL) || yp_pending(obj(q))) status = yp_finish(obj(q));
  if (!status) yp_hear(0, NULL, q, notices);
  return status;
}

static cl_int CL_API_CALL yp_clFlush(cl_command_queue q) {
  if (!is(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  yp_begin(obj(q)->node, OP_Flush);
  yp_word(obj(q)->id);
  yp_post(true);
  return CL_SUCCESS;
}

/* Samplers. */

static object *create_sampler(cl_context c, cl_bool normalized, cl_addressing_mode addressing, cl_filter_mode filter, cl_int *err) {
  if (!is(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  object *o = yp_new(SAMPLER, obj(c), obj(c));
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  yp_begin(o->node, OP_create_sampler);
  yp_word(obj(c)->id);
  yp_word(o->id);
  yp_word(normalized);
  yp_word(addressing);
  yp_word(filter);
  cl_int bad = yp_sync(NULL);
  if (bad) yp_destroy(o), o = NULL;
  if (err) *err = bad;
  return o;
}

static cl_sampler CL_API_CALL yp_clCreateSampler(cl_context c, cl_bool normalized, cl_addressing_mode addressing, cl_filter_mode filter, cl_int *err) {
  return (cl_sampler)create_sampler(c, normalized, addressing, filter, err);
}

static cl_sampler CL_API_CALL yp_clCreateSamplerWithProperties(cl_context c, const cl_sampler_properties *p, cl_int *err) {
  cl_bool normalized = CL_TRUE;
  cl_addressing_mode addressing = CL_ADDRESS_CLAMP;
  cl_filter_mode filter = CL_FILTER_NEAREST;
  for (const cl_sampler_properties *i = p; i && *i; i += 2)
    if (*i == CL_SAMPLER_NORMALIZED_COORDS) normalized = (cl_bool)i[1];
    else if (*i == CL_SAMPLER_ADDRESSING_MODE) addressing = (cl_addressing_mode)i[1];
    else if (*i == CL_SAMPLER_FILTER_MODE) filter = (cl_filter_mode)i[1];
    else FAIL(CL_INVALID_VALUE);
  object *o = create_sampler(c, normalized, addressing, filter, err);
  keep_properties(o, p);
  return (cl_sampler)o;
}

static cl_int CL_API_CALL yp_clGetSamplerInfo(cl_sampler h, cl_sampler_info what, size_t size, void *value, size_t *got) {
  if (!is(h, SAMPLER)) return CL_INVALID_SAMPLER;
  if (what == CL_SAMPLER_REFERENCE_COUNT) GIVE(cl_uint, (cl_uint)obj(h)->refs);
  if (what == CL_SAMPLER_CONTEXT) GIVE(cl_context, (cl_context)obj(h)->context);
  if (what == CL_SAMPLER_PROPERTIES) return yp_give(obj(h)->properties, obj(h)->properties_size, size, value, got);
  return yp_info(obj(h)->node, OF_SAMPLER, obj(h)->id, 0, what, size, value, got);
}

/* Programs. */

enum { FROM_SOURCE, FROM_BINARY, FROM_IL, BUILT_IN, FROM_BINARIES };
enum { MOST_CONSTANT = 128 };

static object *create_program(cl_context c, int from, const void *text, size_t n, answer *a, cl_int *err) {
  object *o = yp_new(PROGRAM, obj(c), obj(c));
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  yp_begin(o->node, OP_create_program);
  yp_word(obj(c)->id);
  yp_word(o->id);
  yp_word((uint64_t)from);
  yp_bytes(text, n);
  cl_int bad = yp_sync(a);
  if (bad) yp_destroy(o), o = NULL;
  if (err) *err = bad;
  return o;
}

static cl_program CL_API_CALL yp_clCreateProgramWithSource(cl_context c, cl_uint n, const char **texts, const size_t *lengths, cl_int *err) {
  if (!is(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!n || !texts) FAIL(CL_INVALID_VALUE);
  size_t all = 0;
  for (cl_uint i = 0; i < n; i++) {
    if (!texts[i]) FAIL(CL_INVALID_VALUE);
    all += lengths && lengths[i] ? lengths[i] : strlen(texts[i]);
  }
  char *text = malloc(all + 1);
  if (!text) FAIL(CL_OUT_OF_HOST_MEMORY);
  size_t at = 0;
  for (cl_uint i = 0; i < n; i++) {
    size_t k = lengths && lengths[i] ? lengths[i] : strlen(texts[i]);
    memcpy(text + at, texts[i], k);
    at += k;
  }
  text[all] = 0;
  size_t said = all;
  char *own = yp_later(obj(c)->node) ? yp_own_paths(text, &said) : NULL;
  object *o = create_program(c, FROM_SOURCE, own ? own : text, said, NULL, err);
  free(own);
  if (o) o->u.program.text = text, o->u.program.size = all;
  else free(text);
  return (cl_program)o;
}

static bool devices_right(const object *context, cl_uint n, const cl_device_id *devices, cl_int *bad) {
  *bad = (n == 0) != (devices == NULL) ? CL_INVALID_VALUE : CL_SUCCESS;
  for (cl_uint i = 0; i < n && !*bad; i++)
    if (!is(devices[i], DEVICE) || obj(devices[i])->node != context->node) *bad = CL_INVALID_DEVICE;
  return !*bad;
}

/* put_devices adds which devices of a context that has several a program is made for, at the end of a message. */
static void put_devices(const object *context, cl_uint n, const cl_device_id *devices) {
  if (!n || context->u.context.n == 1) return;
  yp_word(n);
  for (cl_uint i = 0; i < n; i++) yp_word(obj(devices[i])->id);
}

static cl_program CL_API_CALL yp_clCreateProgramWithBinary(cl_context c, cl_uint n, const cl_device_id *devices, const size_t *lengths, const unsigned char **binaries,
                                                           cl_int *status, cl_int *err) {
  cl_int bad;
  if (!is(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!n || !devices || !lengths || !binaries) FAIL(CL_INVALID_VALUE);
  if (!devices_right(obj(c), n, devices, &bad)) FAIL(bad);
  for (cl_uint i = 1; i < n; i++)
    for (cl_uint j = 0; j < i; j++)
      if (devices[i] == devices[j]) FAIL(CL_INVALID_DEVICE);
  size_t all = 8 + 16 * (size_t)n, at = all;
  for (cl_uint i = 0; i < n; i++) {
    if (status) status[i] = lengths[i] && binaries[i] ? CL_SUCCESS : CL_INVALID_VALUE;
    if (!lengths[i] || !binaries[i]) bad = CL_INVALID_VALUE;
    else all += lengths[i];
  }
  if (bad) FAIL(bad);
  answer a = {.land = NULL};
  if (obj(c)->u.context.n == 1) {
    object *o = create_program(c, FROM_BINARY, binaries[0], lengths[0], &a, err);
    if (status) *status = (cl_int)a.a;
    free(a.data);
    return (cl_program)o;
  }
  uint8_t *text = malloc(all);
  if (!text) FAIL(CL_OUT_OF_HOST_MEMORY);
  uint64_t count = n;
  memcpy(text, &count, 8);
  for (cl_uint i = 0; i < n; i++) {
    uint64_t w[2] = {obj(devices[i])->id, lengths[i]};
    memcpy(text + 8 + 16 * (size_t)i, w, sizeof w);
    memcpy(text + at, binaries[i], lengths[i]);
    at += lengths[i];
  }
  object *o = create_program(c, FROM_BINARIES, text, all, &a, err);
  for (cl_uint i = 0; status && i < n && (i + 1) * sizeof *status <= a.size; i++) memcpy(status + i, a.data + i * sizeof *status, sizeof *status);
  free(text), free(a.data);
  return (cl_program)o;
}

static cl_program CL_API_CALL yp_clCreateProgramWithIL(cl_context c, const void *il, size_t n, cl_int *err) {
  if (!is(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!il || !n) FAIL(CL_INVALID_VALUE);
  return (cl_program)create_program(c, FROM_IL, il, n, NULL, err);
}

static cl_program CL_API_CALL yp_clCreateProgramWithBuiltInKernels(cl_context c, cl_uint n, const cl_device_id *devices, const char *names, cl_int *err) {
  cl_int bad;
  if (!is(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!n || !devices || !names) FAIL(CL_INVALID_VALUE);
  if (!devices_right(obj(c), n, devices, &bad)) FAIL(bad);
  return (cl_program)create_program(c, BUILT_IN, names, strlen(names), NULL, err);
}

/* Constants are of programs in intermediate language, for when they are built. */
static cl_int CL_API_CALL yp_clSetProgramSpecializationConstant(cl_program p, cl_uint constant, size_t size, const void *value) {
  if (!is(p, PROGRAM)) return CL_INVALID_PROGRAM;
  if (!size || !value || size > MOST_CONSTANT) return CL_INVALID_VALUE;
  if (!yp_later(obj(p)->node)) return CL_INVALID_OPERATION;
  yp_begin(obj(p)->node, OP_specialize);
  yp_word(obj(p)->id);
  yp_word(constant);
  yp_bytes(value, size);
  return yp_sync(NULL);
}

typedef void(CL_CALLBACK *built)(cl_program, void *);

/* put_options adds build options. Drivers tell none from empty ones: PoCL then tells of kernels' arguments. */
static void put_options(const char *options) {
  if (options && !*options) options = " ";
  yp_bytes(options, options ? strlen(options) : 0);
}

static cl_int CL_API_CALL yp_clBuildProgram(cl_program p, cl_uint n, const cl_device_id *devices, const char *options, built notify, void *data) {
  cl_int bad;
  if (!is(p, PROGRAM)) return CL_INVALID_PROGRAM;
  if (!devices_right(obj(p)->context, n, devices, &bad)) return bad;
  if (!notify && data) return CL_INVALID_VALUE;
  yp_headers *h = yp_headers_of(options, 1, &p);
  if (!h) return CL_OUT_OF_HOST_MEMORY;
  yp_begin(obj(p)->node, OP_build);
  yp_word(obj(p)->id);
  put_options(options);
  yp_headers_put(h, obj(p)->context->u.context.n > 1);
  put_devices(obj(p)->context, n, devices);
  bad = yp_sync(NULL);
  yp_headers_free(h);
  if (notify) notify(p, data);
  return bad;
}

static cl_int CL_API_CALL yp_clCompileProgram(cl_program p, cl_uint n, const cl_device_id *devices, const char *options, cl_uint headers, const cl_program *header,
                                              const char **names, built notify, void *data) {
  cl_int bad;
  if (!is(p, PROGRAM)) return CL_INVALID_PROGRAM;
  if (!devices_right(obj(p)->context, n, devices, &bad)) return bad;
  if ((!notify && data) || (headers == 0) != (header == NULL) || (headers == 0) != (names == NULL)) return CL_INVALID_VALUE;
  for (cl_uint i = 0; i < headers; i++)
    if (!is(header[i], PROGRAM)) return CL_INVALID_PROGRAM;
  cl_program texts[headers + 1];
  texts[0] = p;
  for (cl_uint i = 0; i < headers; i++) texts[i + 1] = header[i];
  yp_headers *h = yp_headers_of(options, headers + 1, texts);
  if (!h) return CL_OUT_OF_HOST_MEMORY;
  yp_begin(obj(p)->node, OP_compile);
  yp_word(obj(p)->id);
  put_options(options);
  yp_word(headers);
  for (cl_uint i = 0; i < headers; i++) {
    yp_word(obj(header[i])->id);
    yp_bytes(names[i], strlen(names[i]));
  }
  yp_headers_put(h, obj(p)->context->u.context.n > 1);
  put_devices(obj(p)->context, n, devices);
  bad = yp_sync(NULL);
  yp_headers_free(h);
  if (notify) notify(p, data);
  return bad;
}

static cl_program CL_API_CALL yp_clLinkProgram(cl_context c, cl_uint n, const cl_device_id *devices, const char *options, cl_uint inputs, const cl_program *input, built notify,
                                               void *data, cl_int *err) {
  cl_int bad;
  if (!is(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!devices_right(obj(c), n, devices, &bad)) FAIL(bad);
  if (!inputs || !input || (!notify && data)) FAIL(CL_INVALID_VALUE);
  for (cl_uint i = 0; i < inputs; i++)
    if (!is(input[i], PROGRAM)) FAIL(CL_INVALID_PROGRAM);
  object *o = yp_new(PROGRAM, obj(c), obj(c));
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  yp_begin(o->node, OP_link);
  yp_word(obj(c)->id);
  yp_word(o->id);
  yp_bytes(options, options ? strlen(options) : 0);
  yp_word(inputs);
  for (cl_uint i = 0; i < inputs; i++) yp_word(obj(input[i])->id);
  put_devices(obj(c), n, devices);
  answer a = {.land = NULL};
  bad = yp_sync(&a);
  free(a.data);
  if (bad && !a.a) yp_destroy(o), o = NULL; /* a.a: there is a program, with a log that says what is wrong */
  if (err) *err = bad;
  if (notify) notify((cl_program)o, data);
  return (cl_program)o;
}

static cl_int CL_API_CALL yp_clUnloadCompiler(void) { return CL_SUCCESS; }
static cl_int CL_API_CALL yp_clUnloadPlatformCompiler(cl_platform_id p) { return is(p, PLATFORM) ? CL_SUCCESS : CL_INVALID_PLATFORM; }

/* device_with returns the device of a context with a worker's number, or the whole device, of which they are parts. */
static object *device_with(const object *context, uint64_t id) {
  for (cl_uint i = 0; i < context->u.context.n; i++)
    if (context->u.context.devices[i]->id == id) return context->u.context.devices[i];
  object *d = context->u.context.devices[0];
  while (d->parent) d = d->parent;
  return d;
}

static cl_int CL_API_CALL yp_clGetProgramInfo(cl_program h, cl_program_info what, size_t size, void *value, size_t *got) {
  if (!is(h, PROGRAM)) return CL_INVALID_PROGRAM;
  object *o = obj(h);
  switch (what) {
  case CL_PROGRAM_REFERENCE_COUNT: GIVE(cl_uint, (cl_uint)o->refs);
  case CL_PROGRAM_CONTEXT: GIVE(cl_context, (cl_context)o->context);
  case CL_PROGRAM_SOURCE:
    if (o->u.program.text) return yp_give(o->u.program.text, o->u.program.size + 1, size, value, got);
    break;
  case CL_PROGRAM_DEVICES: { /* the worker knows them by their numbers */
    answer a = {.land = NULL};
    cl_int status = ask(o->node, OF_PROGRAM, o->id, 0, what, &a);
    for (size_t i = 0; !status && i + sizeof(cl_device_id) <= a.size; i += sizeof(cl_device_id)) {
      uint64_t id;
      memcpy(&id, a.data + i, sizeof id);
      object *d = device_with(o->context, id);
      memcpy(a.data + i, &d, sizeof d);
    }
    if (!status) status = yp_give(a.data, a.size, size, value, got);
    free(a.data);
    return status;
  }
  case CL_PROGRAM_BINARIES: {
    unsigned char **to = value;
    answer sizes = {.land = NULL}, a = {.land = NULL};
    cl_int status = ask(o->node, OF_PROGRAM, o->id, 0, CL_PROGRAM_BINARY_SIZES, &sizes);
    size_t all = sizes.size / sizeof(size_t) * sizeof *to, at = 0;
    if (!status && value && size < all) status = CL_INVALID_VALUE;
    if (!status && value) {
      yp_begin(o->node, OP_binaries);
      yp_word(o->id);
      status = yp_sync(&a);
    }
    if (!status && got) *got = all;
    for (size_t i = 0; !status && value && i < all / sizeof *to; i++) {
      size_t n;
      memcpy(&n, sizes.data + i * sizeof n, sizeof n);
      if (to[i] && n <= a.size - at) memcpy(to[i], a.data + at, n);
      at += n <= a.size - at ? n : 0;
    }
    free(sizes.data), free(a.data);
    return status;
  }
  }
  return yp_info(o->node, OF_PROGRAM, o->id, 0, what, size, value, got);
}

static cl_int CL_API_CALL yp_clGetProgramBuildInfo(cl_program h, cl_device_id d, cl_program_build_info what, size_t size, void *value, size_t *got) {
  if (!is(h, PROGRAM)) return CL_INVALID_PROGRAM;
  if (!is(d, DEVICE) || obj(d)->node != obj(h)->node) return CL_INVALID_DEVICE;
  cl_int bad = yp_info(obj(h)->node, OF_BUILD, obj(h)->id, obj(d)->id, what, size, value, got);
  if (bad == CL_INVALID_PROGRAM && what == CL_PROGRAM_BUILD_LOG) GIVE_TEXT(""); /* what was not built has an empty log; not every driver says so */
  return bad;
}

/* Kernels. */

static void describe_kernel(object *k, const char *classes, size_t n) {
  k->u.kernel.args = (cl_uint)n;
  k->u.kernel.classes = calloc(1, n + 1);
  if (k->u.kernel.classes) memcpy(k->u.kernel.classes, classes, n);
  else k->u.kernel.args = 0;
}

static cl_kernel CL_API_CALL yp_clCreateKernel(cl_program p, const char *name, cl_int *err) {
  if (!is(p, PROGRAM)) FAIL(CL_INVALID_PROGRAM);
  if (!name) FAIL(CL_INVALID_VALUE);
  object *o = yp_new(KERNEL, obj(p), obj(p)->context);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  answer a = {.land = NULL};
  yp_begin(o->node, OP_create_kernel);
  yp_word(obj(p)->id);
  yp_word(o->id);
  yp_bytes(name, strlen(name));
  cl_int bad = yp_sync(&a);
  if (bad) yp_destroy(o), o = NULL;
  else describe_kernel(o, (char *)a.data, a.size);
  free(a.data);
  if (err) *err = bad;
  return (cl_kernel)o;
}

static cl_int CL_API_CALL yp_clCreateKernelsInProgram(cl_program p, cl_uint n, cl_kernel *kernels, cl_uint *count) {
  if (!is(p, PROGRAM)) return CL_INVALID_PROGRAM;
  size_t there = 0;
  cl_int bad = yp_info(obj(p)->node, OF_PROGRAM, obj(p)->id, 0, CL_PROGRAM_NUM_KERNELS, sizeof there, &there, NULL);
  if (bad) return bad == CL_INVALID_PROGRAM_EXECUTABLE ? bad : CL_INVALID_PROGRAM_EXECUTABLE;
  if (kernels && n < there) return CL_INVALID_VALUE;
  if (count) *count = (cl_uint)there;
  if (!kernels || !there) return CL_SUCCESS;
  for (size_t i = 0; i < there; i++) kernels[i] = (cl_kernel)yp_new(KERNEL, obj(p), obj(p)->context);
  answer a = {.land = NULL};
  yp_begin(obj(p)->node, OP_create_kernels);
  yp_word(obj(p)->id);
  yp_word(there);
  for (size_t i = 0; i < there; i++) yp_word(obj(kernels[i])->id);
  bad = yp_sync(&a);
  const char *line = (char *)a.data;
  for (size_t i = 0; i < there; i++) {
    const char *end = bad ? NULL : strchr(line, '\n');
    if (!end) {
      yp_destroy(obj(kernels[i]));
      continue;
    }
    describe_kernel(obj(kernels[i]), line, (size_t)(end - line));
    line = end + 1;
  }
  free(a.data);
  return bad;
}

static cl_kernel CL_API_CALL yp_clCloneKernel(cl_kernel k, cl_int *err) {
  if (!is(k, KERNEL)) FAIL(CL_INVALID_KERNEL);
  object *o = yp_new(KERNEL, obj(k)->parent, obj(k)->context);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = yp_status(o->node, OP_clone_kernel, obj(k)->id, o->id);
  if (bad) yp_destroy(o), o = NULL;
  else describe_kernel(o, obj(k)->u.kernel.classes, obj(k)->u.kernel.args);
  if (err) *err = bad;
  return (cl_kernel)o;
}

/* Classes of arguments: m memory, s sampler, v value, l local, ? not known. */
enum { ARG_VALUE, ARG_HANDLE, ARG_NULL };

static cl_int CL_API_CALL yp_clSetKernelArg(cl_kernel h, cl_uint index, size_t size, const void *value) {
  if (!is(h, KERNEL)) return CL_INVALID_KERNEL;
  object *k = obj(h);
  if (index >= k->u.kernel.args) return CL_INVALID_ARG_INDEX;
  char class = k->u.kernel.classes[index];
  if (class == '?' && value && size == sizeof(void *)) { /* a value that is the address of an object is that object */
    object *o = find_object(*(void *const *)value);
    class = is(o, MEM) ? 'm' : is(o, SAMPLER) ? 's' : '?';
  }
  uint64_t id = 0;
  int how = value ? ARG_VALUE : ARG_NULL;
  if (class == 'm' || class == 's') {
    if (size != sizeof(void *)) return CL_INVALID_ARG_SIZE;
    void *handle = value ? *(void *const *)value : NULL;
    if (class == 's' && !is(handle, SAMPLER)) return CL_INVALID_SAMPLER;
    if (handle && class == 'm' && !is(handle, MEM)) return CL_INVALID_MEM_OBJECT;
    how = handle ? ARG_HANDLE : ARG_NULL;
    if (handle) id = obj(handle)->id;
  } else if (class == 'v' && !value) {
    return CL_INVALID_ARG_VALUE;
  } else if (class == 'l' && (value || !size)) {
    return value ? CL_INVALID_ARG_VALUE : CL_INVALID_ARG_SIZE;
  } else if (size > 4096 && value) {
    return CL_INVALID_ARG_SIZE;
  }
  yp_begin(k->node, OP_set_arg);
  yp_word(k->id);
  yp_word(index);
  yp_word(size);
  yp_word((uint64_t)how);
  yp_proof();
  if (how == ARG_HANDLE) yp_word(id);
  else if (how == ARG_VALUE) yp_bytes(value, size);
  return yp_end();
}

static cl_int CL_API_CALL yp_clGetKernelInfo(cl_kernel h, cl_kernel_info what, size_t size, void *value, size_t *got) {
  if (!is(h, KERNEL)) return CL_INVALID_KERNEL;
  object *o = obj(h);
  switch (what) {
  case CL_KERNEL_REFERENCE_COUNT: GIVE(cl_uint, (cl_uint)o->refs);
  case CL_KERNEL_CONTEXT: GIVE(cl_context, (cl_context)o->context);
  case CL_KERNEL_PROGRAM: GIVE(cl_program, (cl_program)o->parent);
  }
  return fact_of(o, OF_KERNEL, 0, what, size, value, got);
}

static cl_int CL_API_CALL yp_clGetKernelArgInfo(cl_kernel h, cl_uint index, cl_kernel_arg_info what, size_t size, void *value, size_t *got) {
  if (!is(h, KERNEL)) return CL_INVALID_KERNEL;
  if (index >= obj(h)->u.kernel.args) return CL_INVALID_ARG_INDEX;
  return fact_of(obj(h), OF_ARG, index, what, size, value, got);
}

static cl_int CL_API_CALL yp_clGetKernelWorkGroupInfo(cl_kernel h, cl_device_id d, cl_kernel_work_group_info what, size_t size, void *value, size_t *got) {
  if (!is(h, KERNEL)) return CL_INVALID_KERNEL;
  const object *context = obj(h)->context;
  if (d ? !is(d, DEVICE) || obj(d)->node != context->node : context->u.context.n > 1) return CL_INVALID_DEVICE;
  uint64_t on = d ? obj(d)->id : context->u.context.devices[0]->id;
  if (what == CL_KERNEL_LOCAL_MEM_SIZE) return yp_info(obj(h)->node, OF_GROUP, obj(h)->id, on, what, size, value, got); /* arguments have some */
  return fact_of(obj(h), OF_GROUP, on, what, size, value, got);
}

/* What is asked of sub-groups depends on sizes that the program gives, and how many of them it wants. */
static cl_int CL_API_CALL yp_clGetKernelSubGroupInfo(cl_kernel h, cl_device_id d, cl_kernel_sub_group_info what, size_t given, const void *sizes, size_t size, void *value, size_t *got) {
  if (!is(h, KERNEL)) return CL_INVALID_KERNEL;
  const object *context = obj(h)->context;
  if (d ? !is(d, DEVICE) || obj(d)->node != context->node : context->u.context.n > 1) return CL_INVALID_DEVICE;
  if (given > 3 * sizeof(size_t)) return CL_INVALID_VALUE;
  if (!yp_later(obj(h)->node)) return CL_INVALID_OPERATION;
  answer a = {.land = NULL};
  yp_begin(obj(h)->node, OP_sub_group_info);
  yp_word(obj(h)->id);
  yp_word(d ? obj(d)->id : context->u.context.devices[0]->id);
  yp_word(what);
  yp_word(value ? size : 0);
  yp_bytes(sizes, sizes ? given : 0);
  cl_int status = yp_sync(&a);
  if (!status) status = yp_give(a.data, value ? a.size : a.a, size, value, got);
  free(a.data);
  return status;
}

static cl_int CL_API_CALL yp_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint dims, const size_t *offset, const size_t *global, const size_t *local, cl_uint n,
                                                    const cl_event *waits, cl_event *event) {
  if (!is(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!is(k, KERNEL)) return CL_INVALID_KERNEL;
  if (obj(q)->context != obj(k)->context) return CL_INVALID_CONTEXT;
  if (dims < 1 || dims > 3) return CL_INVALID_WORK_DIMENSION;
  cl_int bad = yp_check_waits(obj(q)->context, n, waits);
  if (bad) return bad;
  object *e = event ? yp_event(obj(q), CL_COMMAND_NDRANGE_KERNEL) : NULL;
  yp_begin(obj(q)->node, OP_EnqueueNDRangeKernel);
  yp_word(obj(q)->id);
  yp_word(obj(k)->id);
  yp_word(dims);
  yp_osize3(offset, dims);
  yp_osize3(global, dims);
  yp_osize3(local, dims);
  yp_proof();
  yp_waits(n, waits);
  yp_word(e ? e->id : 0);
  bad = yp_send_to(obj(q), e);
  if (e && bad) yp_destroy(e);
  else if (e) *event = (cl_event)e;
  return bad;
}

static cl_int CL_API_CALL yp_clEnqueueNativeKernel(cl_command_queue q, void(CL_CALLBACK *call)(void *), void *args, size_t size, cl_uint mems, const cl_mem *mem, const void **at,
                                                   cl_uint n, const cl_event *waits, cl_event *event) {
  (void)call, (void)args, (void)size, (void)mems, (void)mem, (void)at, (void)n, (void)waits, (void)event;
  return is(q, QUEUE) ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE; /* CL_DEVICE_EXECUTION_CAPABILITIES says so */
}

/* Events. */

object *yp_event(object *queue, cl_command_type type) {
  object *e = yp_new(EVENT, queue, queue->context);
  if (e) e->u.event.type = type;
  return e;
}

cl_int yp_check_waits(const object *context, cl_uint n, const cl_event *events) {
  if ((n == 0) != (events == NULL)) return CL_INVALID_EVENT_WAIT_LIST;
  for (cl_uint i = 0; i < n; i++) {
    if (!is(events[i], EVENT)) return CL_INVALID_EVENT_WAIT_LIST;
    if (obj(events[i])->context != context) return CL_INVALID_CONTEXT;
  }
  return CL_SUCCESS;
}

static cl_int wait_for(cl_uint n, const cl_event *events) {
  bool over = true;
  for (cl_uint i = 0; i < n && over; i++) over = __atomic_load_n(&obj(events[i])->u.event.over, __ATOMIC_ACQUIRE);
  if (over) return CL_SUCCESS;
  answer a = {.land = NULL};
  yp_begin(obj(events[0])->node, OP_wait);
  yp_waits(n, events);
  cl_int status = yp_sync(&a);
  for (cl_uint i = 0; i < n && !status; i++) {
    object *e = obj(events[i]);
    __atomic_store_n(&e->u.event.over, true, __ATOMIC_RELEASE);
    if (e->u.event.upto && !a.a) yp_done(e->parent, e->u.event.upto);
  }
  return status;
}

static cl_int CL_API_CALL yp_clWaitForEvents(cl_uint n, const cl_event *events) {
  if (!n || !events) return CL_INVALID_VALUE;
  for (cl_uint i = 0; i < n; i++) {
    if (!is(events[i], EVENT)) return CL_INVALID_EVENT;
    if (obj(events[i])->context != obj(events[0])->context) return CL_INVALID_CONTEXT;
  }
  cl_int status = wait_for(n, events);
  if (!status) yp_hear(n, events, NULL, UINT64_MAX);
  return status;
}

static cl_event CL_API_CALL yp_clCreateUserEvent(cl_context c, cl_int *err) {
  if (!is(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  object *o = yp_new(EVENT, obj(c), obj(c));
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  o->u.event.type = CL_COMMAND_USER;
  yp_begin(o->node, OP_user_event);
  yp_word(obj(c)->id);
  yp_proof();
  yp_word(o->id);
  cl_int bad = yp_end();
  if (bad) yp_destroy(o), o = NULL;
  else yp_user_event_made(o->node);
  if (err) *err = bad;
  return (cl_event)o;
}

static cl_int CL_API_CALL yp_clGetEventInfo(cl_event h, cl_event_info what, size_t size, void *value, size_t *got) {
  if (!is(h, EVENT)) return CL_INVALID_EVENT;
  object *o = obj(h);
  switch (what) {
  case CL_EVENT_COMMAND_QUEUE: GIVE(cl_command_queue, o->u.event.type == CL_COMMAND_USER ? NULL : (cl_command_queue)o->parent);
  case CL_EVENT_CONTEXT: GIVE(cl_context, (cl_context)o->context);
  case CL_EVENT_COMMAND_TYPE: GIVE(cl_command_type, o->u.event.type);
  case CL_EVENT_REFERENCE_COUNT: GIVE(cl_uint, (cl_uint)o->refs);
  case CL_EVENT_COMMAND_EXECUTION_STATUS:
    if (__atomic_load_n(&o->u.event.over, __ATOMIC_ACQUIRE)) GIVE(cl_int, CL_COMPLETE);
  }
  return yp_info(o->node, OF_EVENT, o->id, 0, what, size, value, got);
}

static cl_int CL_API_CALL yp_clGetEventProfilingInfo(cl_event h, cl_profiling_info what, size_t size, void *value, size_t *got) {
  if (!is(h, EVENT)) return CL_INVALID_EVENT;
  object *o = obj(h);
  if (o->u.event.type == CL_COMMAND_USER || !(o->parent->u.queue.flags & CL_QUEUE_PROFILING_ENABLE)) return CL_PROFILING_INFO_NOT_AVAILABLE;
  return yp_info(o->node, OF_PROFILE, o->id, 0, what, size, value, got);
}

static void before_fork(void) { pthread_mutex_lock(&objects); }
static void in_parent(void) { pthread_mutex_unlock(&objects); }
static void in_child(void) {
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    for (object *o = all[i]; o; o = o->next) o->kind |= PARENTS;
  pthread_mutex_init(&objects, NULL), pthread_mutex_init(&facts_lock, NULL);
  yp_notices_in_child(), yp_memory_in_child(), yp_svm_in_child();
}

static cl_int CL_API_CALL yp_clSetEventCallback(cl_event h, cl_int when, void(CL_CALLBACK *call)(cl_event, cl_int, void *), void *data) {
  return is(h, EVENT) ? yp_notice(h, when, call, data) : CL_INVALID_EVENT;
}

/* Pipes, which CL_DEVICE_PIPE_SUPPORT says there are none of. */

static cl_mem CL_API_CALL yp_clCreatePipe(cl_context c, cl_mem_flags flags, cl_uint packet, cl_uint n, const cl_pipe_properties *p, cl_int *err) {
  (void)flags, (void)packet, (void)n, (void)p;
  FAIL(is(c, CONTEXT) ? CL_INVALID_OPERATION : CL_INVALID_CONTEXT);
}

static cl_int CL_API_CALL yp_clGetPipeInfo(cl_mem m, cl_pipe_info what, size_t size, void *value, size_t *got) {
  (void)m, (void)what, (void)size, (void)value, (void)got;
  return CL_INVALID_MEM_OBJECT;
}

/* What the loader finds. */

static cl_int CL_API_CALL nothing(void) { return CL_INVALID_OPERATION; }
static void *CL_API_CALL no_object(void) { return NULL; }

/* Functions that extensions name, which are the standard's own by now. Programs call these by their addresses: the loader is not asked. */
static cl_int CL_API_CALL khr_clGetKernelSubGroupInfo(cl_kernel k, cl_device_id d, cl_kernel_sub_group_info what, size_t given, const void *sizes, size_t size, void *value, size_t *got) {
  return k ? obj(k)->dispatch->clGetKernelSubGroupInfo(k, d, what, given, sizes, size, value, got) : CL_INVALID_KERNEL;
}
static cl_program CL_API_CALL khr_clCreateProgramWithIL(cl_context c, const void *il, size_t n, cl_int *err) {
  if (!c) FAIL(CL_INVALID_CONTEXT);
  return obj(c)->dispatch->clCreateProgramWithIL(c, il, n, err);
}

#define EXPORT __attribute__((visibility("default")))
EXPORT void *CL_API_CALL clGetExtensionFunctionAddress(const char *name);
EXPORT cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint n, cl_platform_id *ids_, cl_uint *count);
EXPORT cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id p, cl_platform_info what, size_t size, void *value, size_t *got);

static void *CL_API_CALL yp_clGetExtensionFunctionAddressForPlatform(cl_platform_id p, const char *name) { return is(p, PLATFORM) ? clGetExtensionFunctionAddress(name) : NULL; }

#define SET(NAME) yp_dispatch.NAME = yp_##NAME;
static void fill(void) {
  void (**all)(void) = (void (**)(void))(void *)&yp_dispatch;
  for (size_t i = 0; i < sizeof yp_dispatch / sizeof *all; i++) all[i] = (void (*)(void))nothing; /* such as what shares objects with OpenGL */
  YP_STUBS(SET)
#define NONE(NAME) all[offsetof(cl_icd_dispatch, NAME) / sizeof *all] = (void (*)(void))no_object;
  NONE(clCreateFromGLBuffer) NONE(clCreateFromGLTexture) NONE(clCreateFromGLTexture2D) NONE(clCreateFromGLTexture3D)
  NONE(clCreateFromGLRenderbuffer) NONE(clCreateEventFromGLsyncKHR)
  SET(clGetPlatformIDs) SET(clGetPlatformInfo) SET(clGetDeviceIDs) SET(clGetDeviceInfo) SET(clGetDeviceAndHostTimer) SET(clGetHostTimer) SET(clCreateSubDevices) SET(clRetainDevice) SET(clReleaseDevice)
  SET(clCreateContext) SET(clCreateContextFromType) SET(clRetainContext) SET(clReleaseContext) SET(clGetContextInfo) SET(clSetContextDestructorCallback)
  SET(clCreateCommandQueue) SET(clCreateCommandQueueWithProperties) SET(clRetainCommandQueue) SET(clReleaseCommandQueue) SET(clGetCommandQueueInfo)
  SET(clSetCommandQueueProperty) SET(clFinish) SET(clFlush) SET(clRetainMemObject) SET(clReleaseMemObject)
  SET(clCreateSampler) SET(clCreateSamplerWithProperties) SET(clRetainSampler) SET(clReleaseSampler) SET(clGetSamplerInfo)
  SET(clCreateProgramWithSource) SET(clCreateProgramWithBinary) SET(clCreateProgramWithIL) SET(clCreateProgramWithBuiltInKernels) SET(clRetainProgram) SET(clReleaseProgram)
  SET(clBuildProgram) SET(clCompileProgram) SET(clLinkProgram) SET(clUnloadCompiler) SET(clUnloadPlatformCompiler) SET(clGetProgramInfo) SET(clGetProgramBuildInfo)
  SET(clCreateKernel) SET(clCreateKernelsInProgram) SET(clCloneKernel) SET(clRetainKernel) SET(clReleaseKernel) SET(clSetKernelArg) SET(clGetKernelInfo)
  SET(clGetKernelArgInfo) SET(clGetKernelWorkGroupInfo) SET(clGetKernelSubGroupInfo) SET(clSetProgramSpecializationConstant) SET(clEnqueueNDRangeKernel) SET(clEnqueueNativeKernel)
  SET(clWaitForEvents) SET(clCreateUserEvent) SET(clRetainEvent) SET(clReleaseEvent) SET(clGetEventInfo) SET(clGetEventProfilingInfo) SET(clSetEventCallback)
  SET(clCreatePipe) SET(clGetPipeInfo) SET(clGetExtensionFunctionAddressForPlatform)
  yp_dispatch.clGetExtensionFunctionAddress = clGetExtensionFunctionAddress;
  yp_dispatch.clGetKernelSubGroupInfoKHR = khr_clGetKernelSubGroupInfo;
  yp_fill_memory();
  yp_fill_svm();
  yp_device_count = yp_nodes();
  pthread_atfork(before_fork, in_parent, in_child);
  if (!yp_device_count) yp_device_count = 1; /* connecting says what is missing */
  for (int i = 0; i < yp_device_count; i++) yp_devices[i] = (object){.dispatch = &yp_dispatch, .kind = DEVICE, .refs = 1, .node = yp_node_at(i)};
  if (yp_device_count < 2) return;
  yp_platform.dispatch = yp_span();
  for (int i = 0; i < yp_device_count; i++) yp_devices[i].dispatch = yp_platform.dispatch;
}

cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint n, cl_platform_id *ids_, cl_uint *count) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, fill);
  return yp_clGetPlatformIDs(n, ids_, count);
}

#ifndef LOADER /* which asks whoever's the platform is */
cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id p, cl_platform_info what, size_t size, void *value, size_t *got) {
  return yp_clGetPlatformInfo(p, what, size, value, got);
}
#endif

void *CL_API_CALL clGetExtensionFunctionAddress(const char *name) {
  if (name && !strcmp(name, "clIcdGetPlatformIDsKHR")) return (void *)(uintptr_t)clIcdGetPlatformIDsKHR;
  if (name && !strcmp(name, "clGetPlatformInfo")) return (void *)(uintptr_t)clGetPlatformInfo;
  if (name && !strcmp(name, "clGetKernelSubGroupInfoKHR")) return (void *)(uintptr_t)khr_clGetKernelSubGroupInfo;
  if (name && !strcmp(name, "clCreateProgramWithILKHR")) return (void *)(uintptr_t)khr_clCreateProgramWithIL;
  return NULL;
}
