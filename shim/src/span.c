/* Spans: what they are made of, when they go; contexts, queues and samplers. */
#include "span.h"
#include "own.h"

span *sp_spans;
static pthread_mutex_t lock;
static pthread_cond_t settled; /* a command was put aside or sent, an event has ended, contents have come */
static span *told, **last_told = &told; /* they are gone, and their callbacks are yet to be called */
static yp_functions table;

static _Thread_local bool inside;

void sp_enter(void) { pthread_mutex_lock(&lock), inside = true; }

/* sp_leave gives the lock back, and tells what the program asked to be told. */
void sp_leave(void) {
  span *o = told;
  told = NULL, last_told = &told, inside = false;
  pthread_mutex_unlock(&lock);
  while (o) {
    span *n = o->next;
    yp_tell(o->destroyed, o);
    free(o);
    o = n;
  }
}

/* sp_news has all look again that wait for something to change. */
void sp_news(void) { pthread_cond_broadcast(&settled); }

/* sp_await waits until something has changed. The caller has the lock, with which no thread is canceled. */
void sp_await(void) {
  yp_stay();
  pthread_cond_wait(&settled, &lock);
  yp_go();
}

span *sp_make(int kind, span *context, span *parent) {
  span *o = calloc(1, sizeof *o);
  if (!o) return NULL;
  o->dispatch = &table.known, o->kind = SPAN + kind, o->refs = 1, o->context = context, o->parent = parent;
  sp_enter();
  if (context) context->holds++;
  if (parent) parent->holds++;
  o->next = sp_spans, sp_spans = o;
  sp_leave();
  return o;
}

static void release_in(span *o, int node) {
  void *h = o->in[node];
  if (!h) return;
  o->in[node] = NULL;
  switch (o->kind - SPAN) {
  case CONTEXT: D.clReleaseContext(h); break;
  case QUEUE: D.clReleaseCommandQueue(h); break;
  case MEM: D.clReleaseMemObject(h); break;
  case SAMPLER: D.clReleaseSampler(h); break;
  case PROGRAM: D.clReleaseProgram(h); break;
  case KERNEL: D.clReleaseKernel(h); break;
  case EVENT: D.clReleaseEvent(h); break;
  }
}

void sp_forget_in(span *m, int node) {
  release_in(m, node);
  sp_keep_writers(m, node);
}

/* gone_at has a span told to be gone when none of its nodes' objects is left: these wait for the commands that use them. It may be
 * called with the lock, by what is released then. */
static void CL_CALLBACK gone_at(void *handle, void *o_) {
  span *o = o_;
  (void)handle;
  if (__atomic_sub_fetch(&o->left, 1, __ATOMIC_ACQ_REL)) return;
  const bool within = inside;
  if (!within) sp_enter();
  o->next = NULL, *last_told = o, last_told = &o->next; /* before what it is part of */
  if (!within) sp_leave();
}

/* sp_when_gone has a function called when memory or a context goes. */
cl_int sp_when_gone(span *o, void (*call)(void), void *data) {
  span *context = o->kind == SPAN + CONTEXT ? o : o->context;
  EACH(i, context) __atomic_store_n(&obj(context->in[i])->u.context.told, true, __ATOMIC_RELAXED);
  return yp_when_destroyed(&o->destroyed, call, data);
}

/* sp_gone frees what nothing refers to any more, and then what only it referred to. The caller has the lock. */
void sp_gone(span *o) {
  if (!o || o->refs > 0 || o->holds > 0) return;
  span **at = &sp_spans;
  while (*at && *at != o) at = &(*at)->next;
  if (!*at) return; /* it is of the program whose child this is */
  *at = o->next;
  if (o->kind == SPAN + MEM)
    for (span *k = sp_spans; k; k = k->next)
      if (k->kind == SPAN + KERNEL) {
        for (cl_uint i = 0; i < k->u.kernel.n; i++)
          if (k->u.kernel.args[i].object == o) k->u.kernel.args[i].object = NULL, k->u.kernel.args[i].set = false;
        for (size_t i = 0; i < k->u.kernel.reaches; i++)
          if (k->u.kernel.reached[i] == o) k->u.kernel.reached[i--] = k->u.kernel.reached[--k->u.kernel.reaches];
      }
  o->left = 1;
  for (int i = 0; i < YP_NODES; i++) {
    if (o->destroyed && o->in[i] && !yp_when_gone(o->in[i], (void (*)(void))gone_at, o)) __atomic_add_fetch(&o->left, 1, __ATOMIC_RELAXED);
    if (o->kind == SPAN + CONTEXT && o->u.ctx.movers[i]) D.clReleaseCommandQueue(o->u.ctx.movers[i]);
    if (o->kind == SPAN + MEM) sp_forget_in(o, i);
    else release_in(o, i);
    if (o->kind == SPAN + MEM && o->u.mem.svm && o->context->in[i]) D.clSVMFree(o->context->in[i], o->u.mem.svm);
  }
  span *context = o->context, *parent = o->parent;
  switch (o->kind - SPAN) {
  case CONTEXT: free(o->u.ctx.properties); break;
  case MEM: free(o->u.mem.parts), free(o->u.mem.writers); break;
  case KERNEL:
    for (cl_uint i = 0; o->u.kernel.args && i < o->u.kernel.n; i++) sp_hold_sampler(&o->u.kernel.args[i], -1);
    sp_free_args(o->u.kernel.args, o->u.kernel.n), free(o->u.kernel.reached), free(o->u.kernel.bound);
    break;
  }
  o->kind = 0;
  if (o->destroyed) gone_at(NULL, o);
  else free(o);
  if (parent) parent->holds--, sp_gone(parent);
  if (context) context->holds--, sp_gone(context);
}

/* of_parent: as in api.c. */
static bool of_parent(const void *h, int kind) { return h && sp(h)->kind == ((SPAN + kind) | PARENTS); }

static cl_int retain(const void *h, int kind, cl_int invalid) {
  if (of_parent(h, kind)) return CL_SUCCESS;
  if (!sis(h, kind)) return invalid;
  sp_enter();
  sp(h)->refs++;
  sp_leave();
  return CL_SUCCESS;
}

cl_int sp_release(const void *h, int kind, cl_int invalid) {
  if (of_parent(h, kind)) return CL_SUCCESS;
  if (!sis(h, kind)) return invalid;
  if (kind == QUEUE) D.clFlush(sp(h)->in[sp(h)->node]);
  sp_enter();
  const bool has = sp(h)->refs > 0;
  if (has) sp(h)->refs--, sp_gone(sp(h));
  sp_leave();
  return has ? CL_SUCCESS : invalid;
}

#define COUNTED(NAME, TYPE, KIND, INVALID)                                                 \
  static cl_int CL_API_CALL sp_clRetain##NAME(TYPE h) { return retain(h, KIND, INVALID); } \
  static cl_int CL_API_CALL sp_clRelease##NAME(TYPE h) { return sp_release(h, KIND, INVALID); }
COUNTED(Context, cl_context, CONTEXT, CL_INVALID_CONTEXT)
COUNTED(CommandQueue, cl_command_queue, QUEUE, CL_INVALID_COMMAND_QUEUE)
COUNTED(MemObject, cl_mem, MEM, CL_INVALID_MEM_OBJECT)
COUNTED(Sampler, cl_sampler, SAMPLER, CL_INVALID_SAMPLER)
COUNTED(Program, cl_program, PROGRAM, CL_INVALID_PROGRAM)
COUNTED(Kernel, cl_kernel, KERNEL, CL_INVALID_KERNEL)
COUNTED(Event, cl_event, EVENT, CL_INVALID_EVENT)

/* sp_drop undoes a make whose object could not be made. */
void sp_drop(span *o) {
  sp_enter();
  o->refs = 0;
  sp_gone(o);
  sp_leave();
}

/* sp_done ends a function that makes something: it returns o, or drops it. */
void *sp_done(span *o, cl_int bad, cl_int *err) {
  if (bad) sp_drop(o), o = NULL;
  if (err) *err = bad;
  return o;
}

int sp_node_of(const span *context, const void *device) {
  for (cl_uint i = 0; i < context->u.ctx.n; i++)
    if (context->u.ctx.devices[context->u.ctx.nodes[i]] == device) return context->u.ctx.nodes[i];
  return -1;
}

/* Contexts and queues. */

static cl_context CL_API_CALL sp_clCreateContext(const cl_context_properties *properties, cl_uint n, const cl_device_id *devices,
                                                 void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *data, cl_int *err) {
  bool same = true;
  for (cl_uint i = 0; devices && i < n; i++) {
    if (!is(devices[i], DEVICE)) FAIL(CL_INVALID_DEVICE);
    same = same && obj(devices[i])->node == obj(devices[0])->node;
  }
  if (same) return D.clCreateContext(properties, n, devices, notify, data, err);
  if (!notify && data) FAIL(CL_INVALID_VALUE);
  span *o = sp_make(CONTEXT, NULL, NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  for (cl_uint i = 0; i < n && !bad; i++) {
    if (sp_node_of(o, devices[i]) >= 0) continue;
    int node = 0;
    while (yp_node_at(node) != obj(devices[i])->node) node++;
    if (o->in[node]) {
      bad = CL_INVALID_DEVICE; /* of each node a context over several has one */
      continue;
    }
    o->u.ctx.nodes[o->u.ctx.n++] = node, o->u.ctx.devices[node] = devices[i];
    o->in[node] = D.clCreateContext(properties, 1, &devices[i], notify, data, &bad);
  }
  for (const cl_context_properties *p = properties; p && *p; p += 2) o->u.ctx.size += 2 * sizeof *p;
  if (properties && !bad) {
    o->u.ctx.size += sizeof *properties;
    o->u.ctx.properties = malloc(o->u.ctx.size);
    if (o->u.ctx.properties) memcpy(o->u.ctx.properties, properties, o->u.ctx.size);
    else bad = CL_OUT_OF_HOST_MEMORY;
  }
  return sp_done(o, bad, err);
}

static cl_context CL_API_CALL sp_clCreateContextFromType(const cl_context_properties *properties, cl_device_type type,
                                                         void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *data, cl_int *err) {
  cl_device_id devices[YP_NODES];
  cl_uint n;
  cl_int bad = D.clGetDeviceIDs((cl_platform_id)&yp_platform, type, YP_NODES, devices, &n);
  if (bad) FAIL(bad);
  return sp_clCreateContext(properties, n, devices, notify, data, err);
}

static cl_int CL_API_CALL sp_clGetContextInfo(cl_context h, cl_context_info what, size_t size, void *value, size_t *got) {
  if (!sis(h, CONTEXT)) return CL_INVALID_CONTEXT;
  span *o = sp(h);
  cl_device_id devices[YP_NODES];
  for (cl_uint i = 0; i < o->u.ctx.n; i++) devices[i] = o->u.ctx.devices[o->u.ctx.nodes[i]];
  switch (what) {
  case CL_CONTEXT_REFERENCE_COUNT: GIVE(cl_uint, yp_count(o->refs));
  case CL_CONTEXT_NUM_DEVICES: GIVE(cl_uint, o->u.ctx.n);
  case CL_CONTEXT_DEVICES: return yp_give(devices, o->u.ctx.n * sizeof *devices, size, value, got);
  case CL_CONTEXT_PROPERTIES: return yp_give(o->u.ctx.properties, o->u.ctx.size, size, value, got);
  }
  return CL_INVALID_VALUE;
}

static cl_int CL_API_CALL sp_clSetContextDestructorCallback(cl_context h, void(CL_CALLBACK *call)(cl_context, void *), void *data) {
  if (!sis(h, CONTEXT)) return CL_INVALID_CONTEXT;
  return sp_when_gone(sp(h), (void (*)(void))call, data);
}

/* create_queue makes a queue in the older way, by its flags, or by a list, which the program can ask for. */
static void *create_queue(cl_context c, cl_device_id d, const cl_command_queue_properties *flags, const cl_queue_properties *list, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  int node = sp_node_of(sp(c), d);
  if (node < 0) FAIL(CL_INVALID_DEVICE);
  span *o = sp_make(QUEUE, sp(c), NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad;
  o->node = node;
  o->in[node] = flags ? D.clCreateCommandQueue(sp(c)->in[node], d, *flags, &bad) : D.clCreateCommandQueueWithProperties(sp(c)->in[node], d, list, &bad);
  if (!bad) bad = D.clGetCommandQueueInfo(o->in[node], CL_QUEUE_PROPERTIES, sizeof o->u.queue.flags, &o->u.queue.flags, NULL);
  return sp_done(o, bad, err);
}

static cl_command_queue CL_API_CALL sp_clCreateCommandQueueWithProperties(cl_context c, cl_device_id d, const cl_queue_properties *list, cl_int *err) {
  return create_queue(c, d, NULL, list, err);
}

static cl_command_queue CL_API_CALL sp_clCreateCommandQueue(cl_context c, cl_device_id d, cl_command_queue_properties flags, cl_int *err) {
  return create_queue(c, d, &flags, NULL, err);
}

static cl_int CL_API_CALL sp_clGetCommandQueueInfo(cl_command_queue h, cl_command_queue_info what, size_t size, void *value, size_t *got) {
  if (!sis(h, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (what == CL_QUEUE_CONTEXT) GIVE(cl_context, (cl_context)sp(h)->context);
  if (what == CL_QUEUE_REFERENCE_COUNT) GIVE(cl_uint, yp_count(sp(h)->refs));
  return D.clGetCommandQueueInfo(sp(h)->in[sp(h)->node], what, size, value, got);
}

static cl_int CL_API_CALL sp_clSetCommandQueueProperty(cl_command_queue h, cl_command_queue_properties p, cl_bool on, cl_command_queue_properties *old) {
  (void)p, (void)on, (void)old;
  return sis(h, QUEUE) ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE;
}

/* Samplers. */

static cl_sampler CL_API_CALL sp_clCreateSamplerWithProperties(cl_context c, const cl_sampler_properties *p, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  span *o = sp_make(SAMPLER, sp(c), NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  EACH(i, sp(c)) if (!bad) o->in[i] = D.clCreateSamplerWithProperties(sp(c)->in[i], p, &bad);
  return sp_done(o, bad, err);
}

static cl_sampler CL_API_CALL sp_clCreateSampler(cl_context c, cl_bool normalized, cl_addressing_mode addressing, cl_filter_mode filter, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  span *o = sp_make(SAMPLER, sp(c), NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  EACH(i, sp(c)) if (!bad) o->in[i] = D.clCreateSampler(sp(c)->in[i], normalized, addressing, filter, &bad);
  return sp_done(o, bad, err);
}

static cl_int CL_API_CALL sp_clGetSamplerInfo(cl_sampler h, cl_sampler_info what, size_t size, void *value, size_t *got) {
  if (!sis(h, SAMPLER)) return CL_INVALID_SAMPLER;
  if (what == CL_SAMPLER_REFERENCE_COUNT) GIVE(cl_uint, yp_count(sp(h)->refs));
  if (what == CL_SAMPLER_CONTEXT) GIVE(cl_context, (cl_context)sp(h)->context);
  return D.clGetSamplerInfo(any(sp(h)), what, size, value, got);
}

static void in_child(void) {
  for (span *o = sp_spans; o; o = o->next) o->kind |= PARENTS; /* else it would wait for what the parent's threads do */
  sp_spans = NULL, told = NULL, last_told = &told;
  sp_contents_in_child(), sp_lanes_in_child(), sp_commands_in_child();
  pthread_mutex_init(&lock, NULL), pthread_cond_init(&settled, NULL);
}

const cl_icd_dispatch *yp_span(void) {
  cl_icd_dispatch *t = &table.known;
  table = yp_table;
  in_child();
  yp_at_fork(NULL, NULL, in_child);
  SET(clCreateContext) SET(clCreateContextFromType) SET(clRetainContext) SET(clReleaseContext) SET(clGetContextInfo) SET(clSetContextDestructorCallback)
  SET(clCreateCommandQueue) SET(clCreateCommandQueueWithProperties) SET(clRetainCommandQueue) SET(clReleaseCommandQueue) SET(clGetCommandQueueInfo)
  SET(clSetCommandQueueProperty) SET(clRetainMemObject) SET(clReleaseMemObject) SET(clRetainSampler) SET(clReleaseSampler) SET(clRetainProgram) SET(clReleaseProgram)
  SET(clRetainKernel) SET(clReleaseKernel) SET(clRetainEvent) SET(clReleaseEvent) SET(clCreateSampler) SET(clCreateSamplerWithProperties) SET(clGetSamplerInfo)
  sp_fill_memory(t), sp_fill_events(t), sp_fill_programs(t), sp_fill_commands(t), sp_fill_svm(t);
  return t;
}
