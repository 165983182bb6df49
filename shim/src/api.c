/* Objects, who refers to them and what was told of them; contexts, queues, samplers and events; what the loader finds. */
#include "pool.h"
#include "own.h"
#include "stubs.h"
#include <stddef.h>

yp_functions yp_table;
object yp_platform = {.dispatch = &yp_dispatch, .kind = PLATFORM, .refs = 1}, yp_devices[YP_NODES];
int yp_device_count;

static pthread_mutex_t objects = PTHREAD_MUTEX_INITIALIZER;
static uint64_t ids;
static object *all[1 << 12]; /* by address */

static object **place(const void *o) { return &all[((uintptr_t)o >> 4) % (sizeof all / sizeof *all)]; }

/* yp_find_object returns the object at an address that may be anything. */
object *yp_find_object(const void *p) {
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
  if (kind == QUEUE) yp_count_queue(o->node, 1);
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

/* yp_when_gone has a function called when memory or a context goes. */
cl_int yp_when_gone(object *o, void (*call)(void), void *data) {
  __atomic_store_n(&(o->kind == CONTEXT ? o : o->context)->u.context.told, true, __ATOMIC_RELAXED);
  return yp_when_destroyed(&o->destroyed, call, data);
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

/* yp_keep_sampler has a sampler stay while it is an argument of a kernel: the program may release it before, and drivers forget
 * what was released. NULL: the argument is none. */
void yp_keep_sampler(object *kernel, cl_uint i, object *sampler) {
  object ***list = &kernel->u.kernel.samplers, *was = NULL;
  pthread_mutex_lock(&objects);
  if (!*list && sampler) *list = calloc(kernel->u.kernel.args, sizeof **list);
  if (*list) was = (*list)[i], (*list)[i] = sampler;
  if (*list && sampler) sampler->children++;
  if (was) was->children--;
  const bool last = was && yp_refs(was) == 0 && was->children == 0;
  pthread_mutex_unlock(&objects);
  if (last) yp_destroy(was);
}

/* let_go ends what has an object stay, as one of its children. */
static void let_go(object *o) {
  pthread_mutex_lock(&objects);
  const bool last = --o->children == 0 && yp_refs(o) == 0;
  pthread_mutex_unlock(&objects);
  if (last) yp_destroy(o);
}

/* leaving is an object that goes when commands have ended that may use it. */
typedef struct {
  object *o;
  size_t left; /* queues that have some */
} leaving;

static void one_less(leaving *l) {
  if (__atomic_sub_fetch(&l->left, 1, __ATOMIC_ACQ_REL)) return;
  let_go(l->o);
  free(l);
}

static void CL_CALLBACK has_none(cl_event e, cl_int status, void *l) {
  (void)e, (void)status;
  one_less(l);
}

/* used_in lists the queues whose commands an object waits for before it goes, and has all these stay: for memory of which the
 * program is told that it goes all of its context's, as none of them says what it uses; for a queue, where the program is told of
 * such things, itself. The caller has the lock. */
static object **used_in(object *o, size_t *n) {
  const bool of_queue = o->kind == QUEUE && __atomic_load_n(&o->context->u.context.told, __ATOMIC_RELAXED);
  object **list = NULL;
  if (o->awaited || !(of_queue || (o->kind == MEM && o->destroyed))) return NULL;
  size_t most = 0; /* whether they have something changes meanwhile */
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    for (object *q = all[i]; q; q = q->next) most += q->kind == QUEUE && (of_queue ? q == o : q->context == o->context);
  if (!most || !(list = calloc(most, sizeof *list))) return NULL;
  *n = 0;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    for (object *q = all[i]; q; q = q->next)
      if (q->kind == QUEUE && (of_queue ? q == o : q->context == o->context) && yp_pending(q)) list[(*n)++] = q, q->children++;
  if (!*n) {
    free(list);
    return NULL;
  }
  o->awaited = true, o->children++;
  return list;
}

/* await_commands has an object go when the queues of the list have done what they were given. */
static void await_commands(object *o, object **list, size_t n) {
  leaving *l = malloc(sizeof *l);
  if (l) *l = (leaving){o, n + 1};
  for (size_t i = 0; i < n; i++) {
    cl_event e = NULL;
    if (l && (yp_marker(list[i], (yp_ends){.event = &e, .type = CL_COMMAND_MARKER}) || yp_notice(e, CL_COMPLETE, has_none, l))) one_less(l);
    if (e) yp_dispatch.clReleaseEvent(e);
    let_go(list[i]);
  }
  free(list);
  if (l) one_less(l);
  else let_go(o);
}

/* yp_destroy frees what nothing points to any more, and then what only it pointed to. */
void yp_destroy(object *o) {
  object *context = NULL, *device = NULL; /* a queue's */
  object **used = NULL;
  size_t n = 0;
  pthread_mutex_lock(&objects);
  __atomic_store_n(&o->refs, 0, __ATOMIC_RELAXED);
  while (o && yp_refs(o) == 0 && o->children == 0 && !(used = used_in(o, &n))) {
    object *parent = o->parent;
    pthread_mutex_unlock(&objects); /* nobody else knows it any more */
    if (o->released) {
      yp_begin(o->node, OP_release);
      yp_word(o->id);
      yp_post(o->kind == QUEUE);
    }
    if (o->kind == MEM || o->kind == SVM) yp_mem_gone(o);
    for (cl_uint i = 0; o->kind == KERNEL && o->u.kernel.samplers && i < o->u.kernel.args; i++) yp_keep_sampler(o, i, NULL);
    pthread_mutex_lock(&objects);
    free(o->properties);
    forget_facts(o);
    if (o->kind == CONTEXT) context = o; /* the last, as it points to nothing */
    if (o->kind == QUEUE) device = o->u.queue.device, yp_count_queue(o->node, -1);
    if (o->kind == PROGRAM) free(o->u.program.text);
    if (o->kind == KERNEL) free(o->u.kernel.classes), free(o->u.kernel.proven), free(o->u.kernel.samplers);
    object **at = place(o);
    while (*at != o) at = &(*at)->next;
    *at = o->next;
    o->kind = 0;
    if (o != context) free(o);
    if (parent) parent->children--;
    o = parent;
  }
  pthread_mutex_unlock(&objects);
  if (used) await_commands(o, used, n);
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

/* release reports in *last whether that was the last reference: then the object stays until let_go, whatever other threads let go of. The worker is told when nothing is made of it any more: until
 * then it can be found by what is (CL_QUEUE_CONTEXT), and used. */
static cl_int release(void *handle, int kind, cl_int invalid, bool *last) {
  *last = false;
  if (of_parent(handle, kind)) return CL_SUCCESS;
  if (!is(handle, kind)) return invalid;
  int refs = yp_refs(obj(handle));
  if (refs < 1) return invalid;
  while (refs > 1 && !__atomic_compare_exchange_n(&obj(handle)->refs, &refs, refs - 1, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {}
  if (refs > 1) return CL_SUCCESS;
  pthread_mutex_lock(&objects);
  const bool stays = obj(handle)->children > 0;
  *last = __atomic_sub_fetch(&obj(handle)->refs, 1, __ATOMIC_ACQ_REL) == 0;
  if (*last) obj(handle)->released = true, obj(handle)->children++;
  pthread_mutex_unlock(&objects);
  if (!*last) return CL_SUCCESS;
  return kind == QUEUE && stays ? yp_dispatch.clFlush(handle) : CL_SUCCESS;
}

#define COUNTED(NAME, TYPE, KIND, INVALID)                                      \
  static cl_int CL_API_CALL yp_clRetain##NAME(TYPE h) { return retain(h, KIND, INVALID); } \
  static cl_int CL_API_CALL yp_clRelease##NAME(TYPE h) {                        \
    bool last;                                                                  \
    cl_int bad = release(h, KIND, INVALID, &last);                              \
    if (last) let_go(obj(h));                                                   \
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
  if (last) let_go(obj(d));
  return bad;
}

/* yp_count is how often an object is referred to, as programs are told: by what is made of it once, however much that is. */
cl_uint yp_count(int refs) { return refs > 0 ? (cl_uint)refs : 1; }

cl_int yp_give(const void *p, size_t n, size_t size, void *value, size_t *got) {
  if (value && size < n) return CL_INVALID_VALUE;
  if (value && n) memcpy(value, p, n);
  if (got) *got = n;
  return CL_SUCCESS;
}

cl_int yp_ask(yp_node *c, int of, uint64_t id, uint64_t more, cl_uint what, answer *a) {
  yp_begin(c, OP_info);
  yp_word((uint64_t)of);
  yp_word(id);
  yp_word(more);
  yp_word(what);
  return yp_sync(a);
}

cl_int yp_info(yp_node *c, int of, uint64_t id, uint64_t more, cl_uint what, size_t size, void *value, size_t *got) {
  answer a = {.land = NULL};
  cl_int status = yp_ask(c, of, id, more, what, &a);
  if (!status) status = yp_give(a.data, a.size, size, value, got);
  free(a.data);
  return status;
}

cl_int yp_fact(object *o, int of, uint64_t more, cl_uint what, size_t size, void *value, size_t *got) {
  pthread_mutex_lock(&facts_lock);
  fact *f = o->facts;
  while (f && (f->what != what || f->of != of || f->more != more)) f = f->next;
  pthread_mutex_unlock(&facts_lock);
  if (!f) {
    answer a = {.land = NULL};
    if (!yp_ask(o->node, of, o->id, more, what, &a) && of == OF_DEVICE) yp_only_offered(what, &a);
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

/* Lists of properties are of pairs, and end with 0. twice: something is in one more than once. */
static bool twice(const void *list) {
  for (const intptr_t *p = list; p && *p; p += 2)
    for (const intptr_t *q = list; q < p; q += 2)
      if (*q == *p) return true;
  return false;
}

/* keep_properties keeps a list for the info that asks for it. */
static void keep_properties(object *o, const void *list) {
  const intptr_t *p = list;
  size_t n = 0;
  if (!o || !p) return;
  while (p[n]) n += 2;
  o->properties = malloc(o->properties_size = (n + 1) * sizeof *p);
  if (o->properties) memcpy(o->properties, p, o->properties_size);
}

bool yp_in_context(const object *context, const void *device) {
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
  }
  if (twice(properties)) FAIL(CL_INVALID_PROPERTY);
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
    if (!yp_in_context(o, devices[i])) list[o->u.context.n++] = obj(devices[i]), yp_clRetainDevice(devices[i]);
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
  case CL_CONTEXT_REFERENCE_COUNT: GIVE(cl_uint, yp_count(yp_refs(o)));
  case CL_CONTEXT_NUM_DEVICES: GIVE(cl_uint, o->u.context.n);
  case CL_CONTEXT_DEVICES: return yp_give(o->u.context.devices, o->u.context.n * sizeof(cl_device_id), size, value, got);
  case CL_CONTEXT_PROPERTIES: return yp_give(o->properties, o->properties_size, size, value, got);
  }
  return CL_INVALID_VALUE;
}

static cl_int CL_API_CALL yp_clSetContextDestructorCallback(cl_context h, void(CL_CALLBACK *call)(cl_context, void *), void *data) {
  if (!is(h, CONTEXT)) return CL_INVALID_CONTEXT;
  return yp_when_gone(obj(h), (void (*)(void))call, data);
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
  if (twice(properties)) FAIL(CL_INVALID_VALUE);
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
  case CL_QUEUE_REFERENCE_COUNT: GIVE(cl_uint, yp_count(yp_refs(o)));
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
  yp_spare_look();
  return yp_end();
}

cl_int yp_finish(object *q) {
  uint64_t posted = yp_posted(q);
  yp_spare_look();
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
  if (twice(p)) FAIL(CL_INVALID_VALUE);
  object *o = create_sampler(c, normalized, addressing, filter, err);
  keep_properties(o, p);
  return (cl_sampler)o;
}

static cl_int CL_API_CALL yp_clGetSamplerInfo(cl_sampler h, cl_sampler_info what, size_t size, void *value, size_t *got) {
  if (!is(h, SAMPLER)) return CL_INVALID_SAMPLER;
  if (what == CL_SAMPLER_REFERENCE_COUNT) GIVE(cl_uint, yp_count(yp_refs(obj(h))));
  if (what == CL_SAMPLER_CONTEXT) GIVE(cl_context, (cl_context)obj(h)->context);
  if (what == CL_SAMPLER_PROPERTIES) return yp_give(obj(h)->properties, obj(h)->properties_size, size, value, got);
  return yp_info(obj(h)->node, OF_SAMPLER, obj(h)->id, 0, what, size, value, got);
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

/* What comes behind it in its queue waits for the events. The worker is asked for a barrier: not every driver has what OpenCL 1.0 had. */
static cl_int CL_API_CALL yp_clEnqueueWaitForEvents(cl_command_queue q, cl_uint n, const cl_event *events) {
  if (is(q, QUEUE) && (!n || !events)) return CL_INVALID_VALUE;
  const cl_int bad = yp_dispatch.clEnqueueBarrierWithWaitList(q, n, events, NULL);
  return bad == CL_INVALID_EVENT_WAIT_LIST ? CL_INVALID_EVENT : bad;
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
  case CL_EVENT_REFERENCE_COUNT: GIVE(cl_uint, yp_count(yp_refs(o)));
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
  yp_devices_in_child(), yp_notices_in_child(), yp_memory_in_child(), yp_svm_in_child();
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
  void (**all)(void) = (void (**)(void))(void *)&yp_table;
  for (size_t i = 0; i < sizeof yp_table / sizeof *all; i++) all[i] = (void (*)(void))nothing; /* such as what shares objects with OpenGL */
  YP_STUBS(SET)
#define NONE(NAME) all[offsetof(cl_icd_dispatch, NAME) / sizeof *all] = (void (*)(void))no_object;
  NONE(clCreateFromGLBuffer) NONE(clCreateFromGLTexture) NONE(clCreateFromGLTexture2D) NONE(clCreateFromGLTexture3D)
  NONE(clCreateFromGLRenderbuffer) NONE(clCreateEventFromGLsyncKHR)
  SET(clRetainDevice) SET(clReleaseDevice) SET(clCreateContext) SET(clCreateContextFromType) SET(clRetainContext) SET(clReleaseContext) SET(clGetContextInfo) SET(clSetContextDestructorCallback)
  SET(clCreateCommandQueue) SET(clCreateCommandQueueWithProperties) SET(clRetainCommandQueue) SET(clReleaseCommandQueue) SET(clGetCommandQueueInfo)
  SET(clSetCommandQueueProperty) SET(clFinish) SET(clFlush) SET(clRetainMemObject) SET(clReleaseMemObject)
  SET(clCreateSampler) SET(clCreateSamplerWithProperties) SET(clRetainSampler) SET(clReleaseSampler) SET(clGetSamplerInfo)
  SET(clRetainProgram) SET(clReleaseProgram) SET(clRetainKernel) SET(clReleaseKernel) SET(clEnqueueNativeKernel)
  SET(clWaitForEvents) SET(clEnqueueWaitForEvents) SET(clCreateUserEvent) SET(clRetainEvent) SET(clReleaseEvent) SET(clGetEventInfo) SET(clGetEventProfilingInfo) SET(clSetEventCallback)
  SET(clCreatePipe) SET(clGetPipeInfo) SET(clGetExtensionFunctionAddressForPlatform)
  yp_dispatch.clGetExtensionFunctionAddress = clGetExtensionFunctionAddress;
  yp_dispatch.clGetKernelSubGroupInfoKHR = khr_clGetKernelSubGroupInfo;
  yp_fill_devices(), yp_fill_programs(), yp_fill_memory(), yp_fill_svm();
  yp_notices_in_child();
  yp_device_count = yp_nodes();
  yp_at_fork(before_fork, in_parent, in_child);
  if (!yp_device_count) yp_device_count = 1; /* connecting says what is missing */
  for (int i = 0; i < yp_device_count; i++) yp_devices[i] = (object){.dispatch = &yp_dispatch, .kind = DEVICE, .refs = 1, .node = yp_node_at(i)};
  if (yp_device_count < 2) return;
  yp_platform.dispatch = yp_span();
  for (int i = 0; i < yp_device_count; i++) yp_devices[i].dispatch = yp_platform.dispatch;
}

cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint n, cl_platform_id *ids_, cl_uint *count) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, fill);
  if (yp_lent_to("opencl")) return yp_clGetPlatformIDs(n, ids_, count);
  if (count) *count = 0;
  return CL_PLATFORM_NOT_FOUND_KHR;
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
