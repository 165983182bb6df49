/* Contexts over devices of several nodes, made of one context at each node.
 *
 * A program that has devices of several nodes sees them as devices of one
 * platform. A context over one of them is that node's own, and nothing of this
 * file is in its way. What is made in a context over several is a span: it holds
 * the objects that stand for it at the nodes.
 *
 * Memory is made at a node when it is first needed there. For each part of it
 * is known which nodes have its newest contents; a command that needs them
 * elsewhere is preceded by a copy, through this process. Sub-buffers are parts
 * of their buffer, so that several devices can each work on a part of one. Shared
 * virtual memory is memory that is made at each node at once, at one address; a kernel needs
 * what it is given pointers to, and what it is said to reach beside that.
 *
 * A command that waits for one at another node, or needs what one there writes,
 * is sent at once and waits, at its node, for a gate: an event that this process
 * sets when that has ended, or its contents have come. Threads bring these in the
 * order in which they were asked for, so none waits for a later one. Where the program
 * waits anyway, no gate is made. A command that waits for an event that the program
 * sets itself, directly or not, is put aside until then, as nothing says in which order
 * memory will be used, and so is what comes behind it in a queue that keeps order. A
 * thread for each node sends them. */
#include "pool.h"
#include <stddef.h>

#define D yp_dispatch

enum { SPAN = 64 };            /* added to the kinds of objects of one node */
enum { PIECE = 16 << 20 };     /* bytes copied between nodes at once */
enum { MOVERS = 8 };           /* threads that do so, at most */
enum { MOST_PATTERN = 128 };
enum { OF_BUFFER = CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR }; /* a part or an image of a buffer has them of that */
enum { OF_HOST = CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS }; /* looked at here only: copies between nodes read and write all memory */

typedef struct span span;

/* part is where the newest contents of memory are, up to an end: a bit for each node. 0: nothing was written. */
typedef struct {
  size_t end;
  uint32_t at;
} part;

/* writer is a command of a queue that wrote bytes of memory at a node: where the queue keeps order, the last one for all. */
typedef struct {
  int node;
  uint64_t queue;
  size_t from, to;
  cl_event done;
} writer;

typedef struct {
  size_t size;
  span *object;    /* memory or a sampler */
  uint8_t *bytes;  /* of a value */
  bool set, reads; /* reads: and does not write */
  bool svm;        /* it is a pointer into the object */
  void *pointer;
} arg;

typedef struct mapping {
  void *at;
  int node;
  bool write;
  size_t from, to;
  span *read; /* the event of what reads the contents, or NULL */
  struct mapping *next;
} mapping;

struct span {
  const cl_icd_dispatch *dispatch; /* as in object */
  int kind;
  int refs;  /* the program's */
  int holds; /* of other spans, and of commands that were put aside */
  int node;  /* of a queue or an event */
  span *context, *parent;
  void *in[YP_NODES]; /* the nodes' objects */
  callback *destroyed;
  span *next;
  union {
    struct {
      cl_context_properties *properties;
      size_t size;
      cl_uint n;
      int nodes[YP_NODES];
      cl_device_id devices[YP_NODES]; /* by node: the whole one or a part of it */
      cl_command_queue movers[YP_NODES]; /* queues of copies between nodes */
      cl_int lost; /* why contents did not come to a node: from then on memory is not what it should be */
    } ctx;
    struct {
      cl_command_queue_properties flags;
      cl_uint aside, fences; /* its commands that were put aside, and how many of them others keep their order with */
      cl_uint passed, fences_passed; /* of those, while somebody looks which may be sent */
    } queue;
    struct {
      cl_mem_flags flags;
      size_t size, origin; /* of an image the size is 1: it is copied whole */
      void *host, *svm; /* svm: where shared virtual memory is */
      bool image;
      cl_image_format format;
      cl_image_desc desc;
      part *parts; /* of what is no part of other memory */
      size_t n;
      writer *writers; /* those that are not known to have ended */
      size_t written, room; /* how many */
      mapping *maps;
      bool listed; /* as in object */
    } mem;
    struct {
      cl_uint n;
      arg *args;
      span **reached; /* shared virtual memory beside that of arguments */
      size_t reaches;
      uint64_t (*bound)[YP_NODES]; /* the memory that each node's kernel has as argument */
    } kernel;
    struct {
      cl_command_type type;
      span *queue;
      bool pending; /* not sent yet, or not set by the program */
      bool over;    /* it is known to have ended, with its status */
      bool watched; /* somebody tells when it has */
      cl_int status; /* of one that has no object at a node */
    } event;
  } u;
};

typedef struct command {
  cl_command_type type, as; /* as: what its event says that it is, or 0 */
  span *queue, *kernel, *from, *to;
  bool blocking;
  cl_uint dims, mems, waits;
  size_t a[3], b[3], c[3], p[4], n;
  const size_t *offset, *global, *local; /* one of a, b and c, or NULL */
  uint8_t pattern[MOST_PATTERN];
  void *host;
  cl_bitfield flags;
  mapping *map;
  arg *args; /* as they were when the command was put aside */
  span **mem, **wait;
  span *event;
  struct command *next;
} command;

/* arrival is bytes of memory, from one up to another, that are on their way to a node, which is said to have them already. */
typedef struct arrival {
  span *root;
  size_t from, to;
  int source, node;
  cl_command_queue out, in;
  cl_mem old, new;
  cl_event *after; /* of what wrote them at the source */
  cl_uint afters;
  cl_event gate;  /* at the node; NULL: no command waits for it there */
  bool begun;
  struct arrival *next;
} arrival;

/* lock guards everything here. It is not held while a program waits, nor while contents are on their way. */
static pthread_mutex_t lock;
static pthread_cond_t settled; /* a command was put aside or sent, an event has ended, contents have come */
static arrival *arrivals, **last_arrival; /* in their order */
static int movers;                        /* threads that see to them */
static span *spans;
static command *aside, **last_aside; /* in their order */
static bool sends[YP_NODES];         /* a thread sends what was put aside for the node */
static span *told, **last_told = &told; /* they are gone, and their callbacks are yet to be called */
static cl_icd_dispatch table;

static bool sis(const void *h, int kind) { return is(h, SPAN + kind); }
static span *sp(const void *h) { return (span *)h; }
static bool pending(const span *e) { return e->u.event.pending; }

#define FAIL(CODE)          \
  do {                      \
    if (err) *err = (CODE); \
    return NULL;            \
  } while (0)
#define GIVE(TYPE, X) \
  do {                \
    TYPE v = (X);     \
    return yp_give(&v, sizeof v, size, value, got); \
  } while (0)
#define EACH(I, CTX) for (cl_uint I##_ = 0, I = 0; I##_ < (CTX)->u.ctx.n && ((I = (cl_uint)(CTX)->u.ctx.nodes[I##_]), true); I##_++)

/* leave gives the lock back, and tells what the program asked to be told. */
static void leave(void) {
  span *o = told;
  told = NULL, last_told = &told;
  pthread_mutex_unlock(&lock);
  while (o) {
    span *n = o->next;
    yp_tell(o->destroyed, o);
    free(o);
    o = n;
  }
}

/* await waits until something has changed. The caller has the lock, with which no thread is canceled. */
static void await(void) {
  yp_stay();
  pthread_cond_wait(&settled, &lock);
  yp_go();
}

static span *make(int kind, span *context, span *parent) {
  span *o = calloc(1, sizeof *o);
  if (!o) return NULL;
  o->dispatch = &table, o->kind = SPAN + kind, o->refs = 1, o->context = context, o->parent = parent;
  pthread_mutex_lock(&lock);
  if (context) context->holds++;
  if (parent) parent->holds++;
  o->next = spans, spans = o;
  leave();
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

/* keep_writers lets go those of a node, or those that have ended (-1). */
static void keep_writers(span *m, int node) {
  size_t n = 0;
  for (size_t i = 0; i < m->u.mem.written; i++) {
    writer *w = &m->u.mem.writers[i];
    cl_int status = CL_COMPLETE;
    bool over = node == w->node || (node < 0 && (D.clGetEventInfo(w->done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL) || status <= CL_COMPLETE));
    if (over) D.clReleaseEvent(w->done);
    else m->u.mem.writers[n++] = *w;
  }
  m->u.mem.written = n;
}

static void forget_in(span *m, int node) {
  release_in(m, node);
  keep_writers(m, node);
}

static void free_args(arg *args, cl_uint n) {
  for (cl_uint i = 0; args && i < n; i++) free(args[i].bytes);
  free(args);
}

/* gone frees what nothing refers to any more, and then what only it referred to. The caller has the lock. */
static void gone(span *o) {
  if (!o || o->refs > 0 || o->holds > 0) return;
  span **at = &spans;
  while (*at && *at != o) at = &(*at)->next;
  if (!*at) return; /* it is of the program whose child this is */
  *at = o->next;
  if (o->kind == SPAN + MEM)
    for (span *k = spans; k; k = k->next)
      if (k->kind == SPAN + KERNEL) {
        for (cl_uint i = 0; i < k->u.kernel.n; i++)
          if (k->u.kernel.args[i].object == o) k->u.kernel.args[i].object = NULL, k->u.kernel.args[i].set = false;
        for (size_t i = 0; i < k->u.kernel.reaches; i++)
          if (k->u.kernel.reached[i] == o) k->u.kernel.reached[i--] = k->u.kernel.reached[--k->u.kernel.reaches];
      }
  for (int i = 0; i < YP_NODES; i++) {
    if (o->kind == SPAN + CONTEXT && o->u.ctx.movers[i]) D.clReleaseCommandQueue(o->u.ctx.movers[i]);
    if (o->kind == SPAN + MEM) forget_in(o, i);
    else release_in(o, i);
    if (o->kind == SPAN + MEM && o->u.mem.svm && o->context->in[i]) D.clSVMFree(o->context->in[i], o->u.mem.svm);
  }
  span *context = o->context, *parent = o->parent;
  switch (o->kind - SPAN) {
  case CONTEXT: free(o->u.ctx.properties); break;
  case MEM: free(o->u.mem.parts), free(o->u.mem.writers); break;
  case KERNEL: free_args(o->u.kernel.args, o->u.kernel.n), free(o->u.kernel.reached), free(o->u.kernel.bound); break;
  }
  o->kind = 0;
  if (o->destroyed) o->next = NULL, *last_told = o, last_told = &o->next; /* before what it is part of */
  else free(o);
  if (parent) parent->holds--, gone(parent);
  if (context) context->holds--, gone(context);
}

static cl_int retain(const void *h, int kind, cl_int invalid) {
  if (!sis(h, kind)) return invalid;
  pthread_mutex_lock(&lock);
  sp(h)->refs++;
  leave();
  return CL_SUCCESS;
}

static cl_int release(const void *h, int kind, cl_int invalid) {
  if (!sis(h, kind) || sp(h)->refs < 1) return invalid;
  if (kind == QUEUE) D.clFlush(sp(h)->in[sp(h)->node]);
  pthread_mutex_lock(&lock);
  sp(h)->refs--;
  gone(sp(h));
  leave();
  return CL_SUCCESS;
}

#define COUNTED(NAME, TYPE, KIND, INVALID)                                                 \
  static cl_int CL_API_CALL sp_clRetain##NAME(TYPE h) { return retain(h, KIND, INVALID); } \
  static cl_int CL_API_CALL sp_clRelease##NAME(TYPE h) { return release(h, KIND, INVALID); }
COUNTED(Context, cl_context, CONTEXT, CL_INVALID_CONTEXT)
COUNTED(CommandQueue, cl_command_queue, QUEUE, CL_INVALID_COMMAND_QUEUE)
COUNTED(MemObject, cl_mem, MEM, CL_INVALID_MEM_OBJECT)
COUNTED(Sampler, cl_sampler, SAMPLER, CL_INVALID_SAMPLER)
COUNTED(Program, cl_program, PROGRAM, CL_INVALID_PROGRAM)
COUNTED(Kernel, cl_kernel, KERNEL, CL_INVALID_KERNEL)
COUNTED(Event, cl_event, EVENT, CL_INVALID_EVENT)

/* drop undoes a make whose object could not be made. */
static void drop(span *o) {
  pthread_mutex_lock(&lock);
  o->refs = 0;
  gone(o);
  leave();
}

/* done ends a function that makes something: it returns o, or drops it. */
static void *done(span *o, cl_int bad, cl_int *err) {
  if (bad) drop(o), o = NULL;
  if (err) *err = bad;
  return o;
}

static int node_of(const span *context, const void *device) {
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
  span *o = make(CONTEXT, NULL, NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  for (cl_uint i = 0; i < n && !bad; i++) {
    if (node_of(o, devices[i]) >= 0) continue;
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
  return done(o, bad, err);
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
  case CL_CONTEXT_REFERENCE_COUNT: GIVE(cl_uint, (cl_uint)o->refs);
  case CL_CONTEXT_NUM_DEVICES: GIVE(cl_uint, o->u.ctx.n);
  case CL_CONTEXT_DEVICES: return yp_give(devices, o->u.ctx.n * sizeof *devices, size, value, got);
  case CL_CONTEXT_PROPERTIES: return yp_give(o->u.ctx.properties, o->u.ctx.size, size, value, got);
  }
  return CL_INVALID_VALUE;
}

static cl_int CL_API_CALL sp_clSetContextDestructorCallback(cl_context h, void(CL_CALLBACK *call)(cl_context, void *), void *data) {
  if (!sis(h, CONTEXT)) return CL_INVALID_CONTEXT;
  return yp_when_destroyed(&sp(h)->destroyed, (void (*)(void))call, data);
}

/* create_queue makes a queue in the older way, by its flags, or by a list, which the program can ask for. */
static void *create_queue(cl_context c, cl_device_id d, const cl_command_queue_properties *flags, const cl_queue_properties *list, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  int node = node_of(sp(c), d);
  if (node < 0) FAIL(CL_INVALID_DEVICE);
  span *o = make(QUEUE, sp(c), NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad;
  o->node = node;
  o->in[node] = flags ? D.clCreateCommandQueue(sp(c)->in[node], d, *flags, &bad) : D.clCreateCommandQueueWithProperties(sp(c)->in[node], d, list, &bad);
  if (!bad) bad = D.clGetCommandQueueInfo(o->in[node], CL_QUEUE_PROPERTIES, sizeof o->u.queue.flags, &o->u.queue.flags, NULL);
  return done(o, bad, err);
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
  if (what == CL_QUEUE_REFERENCE_COUNT) GIVE(cl_uint, (cl_uint)sp(h)->refs);
  return D.clGetCommandQueueInfo(sp(h)->in[sp(h)->node], what, size, value, got);
}

static cl_int CL_API_CALL sp_clSetCommandQueueProperty(cl_command_queue h, cl_command_queue_properties p, cl_bool on, cl_command_queue_properties *old) {
  (void)p, (void)on, (void)old;
  return sis(h, QUEUE) ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE;
}

/* Memory. */

/* any is an object that stands for o at some node. */
static void *any(const span *o) {
  for (int i = 0; i < YP_NODES; i++)
    if (o->in[i]) return o->in[i];
  return NULL;
}

static bool newest(const span *m, int node) {
  for (size_t i = 0; i < m->u.mem.n; i++)
    if (m->u.mem.parts[i].at & 1u << node) return true;
  return false;
}

/* spare releases a node's copies of memory that are not the newest anywhere and that nothing is part of. */
static bool spare(int node) {
  bool some = false;
  for (span *m = spans; m; m = m->next) {
    bool elsewhere = false;
    for (int i = 0; i < YP_NODES; i++) elsewhere = elsewhere || (i != node && m->in[i]);
    if (m->kind == SPAN + MEM && !m->parent && !m->u.mem.svm && m->in[node] && elsewhere && !m->holds && !m->u.mem.maps && !newest(m, node)) forget_in(m, node), some = true;
  }
  return some;
}

/* view returns what stands for memory at a node, and makes it if nothing does. */
static cl_mem view(span *m, int node, void *contents, cl_int *err) {
  *err = CL_SUCCESS;
  if (m->in[node]) return m->in[node];
  cl_context c = m->context->in[node];
  cl_mem_flags flags = m->u.mem.flags & ~(cl_mem_flags)OF_HOST;
  void *host = flags & CL_MEM_USE_HOST_PTR ? m->u.mem.host : contents;
  if (!contents) flags &= ~(cl_mem_flags)CL_MEM_COPY_HOST_PTR;
  cl_mem of = m->parent ? view(m->parent, node, NULL, err) : NULL;
  if (*err) return NULL;
  do {
    if (m->u.mem.image) {
      cl_image_desc d = m->u.mem.desc;
      d.buffer = of;
      m->in[node] = D.clCreateImage(c, of && !host ? flags & ~(cl_mem_flags)OF_BUFFER : flags, &m->u.mem.format, &d, host, err);
    } else if (of && !m->parent->u.mem.svm) {
      cl_buffer_region r = {m->u.mem.origin, m->u.mem.size};
      m->in[node] = D.clCreateSubBuffer(of, flags & ~(cl_mem_flags)OF_BUFFER, CL_BUFFER_CREATE_TYPE_REGION, &r, err);
    } else {
      m->in[node] = D.clCreateBuffer(c, flags, m->u.mem.size, host, err);
    }
  } while (*err == CL_MEM_OBJECT_ALLOCATION_FAILURE && spare(node));
  if (!*err && !m->parent && !m->holds && !m->u.mem.maps) { /* what was made to see that it can be, and never used, is needed no more */
    for (int i = 0; i < YP_NODES; i++)
      for (size_t k = 0; i != node && m->in[i] && k < m->u.mem.n; k++)
        if (m->u.mem.parts[k].at) return m->in[node];
    for (int i = 0; i < YP_NODES; i++)
      if (i != node) forget_in(m, i);
  }
  return m->in[node];
}

/* created makes new memory at the first node that has room for it, which shows whether it can be made. */
static void *created(span *m, void *contents, cl_int *err) {
  cl_mem_flags of_host = m->u.mem.flags & OF_HOST;
  cl_int bad = of_host & (of_host - 1) ? CL_INVALID_VALUE : CL_SUCCESS;
  pthread_mutex_lock(&lock);
  if (!m->parent) {
    m->u.mem.parts = malloc(sizeof *m->u.mem.parts);
    if (!m->u.mem.parts) bad = CL_OUT_OF_HOST_MEMORY;
    else m->u.mem.n = 1, m->u.mem.parts[0] = (part){m->u.mem.size, 0};
  }
  EACH(i, m->context) {
    if (bad && bad != CL_MEM_OBJECT_ALLOCATION_FAILURE) break;
    view(m, (int)i, contents, &bad);
    if (bad) continue;
    if (contents) m->u.mem.parts[0].at = 1u << i;
    break;
  }
  leave();
  return done(m, bad, err);
}

/* part_of is what memory is a part of, to the program: its shared virtual memory is no object. */
static span *part_of(const span *m) { return m->parent && !m->parent->u.mem.svm ? m->parent : NULL; }

static size_t offset(const span *m, const void *p) { return (size_t)((const uint8_t *)p - (const uint8_t *)m->u.mem.svm); }

/* svm_at returns the shared virtual memory that has n bytes at an address, or ends there if it is none. */
static span *svm_at(const span *context, const void *p, size_t n) {
  pthread_mutex_lock(&lock);
  span *m = spans;
  while (m && !(m->kind == SPAN + MEM && m->u.mem.svm && m->refs > 0 && m->context == context && offset(m, p) <= m->u.mem.size && n <= m->u.mem.size - offset(m, p))) m = m->next;
  leave();
  return m;
}

static cl_mem CL_API_CALL sp_clCreateBuffer(cl_context c, cl_mem_flags flags, size_t size, void *host, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if ((host != NULL) != ((flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR)) != 0)) FAIL(CL_INVALID_HOST_PTR);
  span *of = flags & CL_MEM_USE_HOST_PTR ? svm_at(sp(c), host, 1) : NULL, *m = make(MEM, sp(c), of);
  if (!m) FAIL(CL_OUT_OF_HOST_MEMORY);
  m->u.mem.flags = flags, m->u.mem.size = size, m->u.mem.host = flags & CL_MEM_USE_HOST_PTR ? host : NULL;
  if (of) m->u.mem.origin = offset(of, host);
  return created(m, of ? NULL : host, err);
}

static cl_mem CL_API_CALL sp_clCreateBufferWithProperties(cl_context c, const cl_mem_properties *p, cl_mem_flags flags, size_t size, void *host, cl_int *err) {
  if (p && *p) FAIL(CL_INVALID_PROPERTY);
  cl_mem m = sp_clCreateBuffer(c, flags, size, host, err);
  if (m) sp(m)->u.mem.listed = p;
  return m;
}

static cl_mem CL_API_CALL sp_clCreateSubBuffer(cl_mem h, cl_mem_flags flags, cl_buffer_create_type type, const void *info, cl_int *err) {
  const cl_buffer_region *r = info;
  if (!sis(h, MEM) || part_of(sp(h))) FAIL(CL_INVALID_MEM_OBJECT);
  if (!r || type != CL_BUFFER_CREATE_TYPE_REGION) FAIL(CL_INVALID_VALUE);
  const cl_mem_flags had = sp(h)->u.mem.flags;
  if ((had & CL_MEM_HOST_WRITE_ONLY && flags & CL_MEM_HOST_READ_ONLY) || (had & CL_MEM_HOST_READ_ONLY && flags & CL_MEM_HOST_WRITE_ONLY) ||
      (had & CL_MEM_HOST_NO_ACCESS && flags & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY)))
    FAIL(CL_INVALID_VALUE);
  span *of = sp(h), *m = make(MEM, of->context, of);
  if (!m) FAIL(CL_OUT_OF_HOST_MEMORY);
  m->u.mem.flags = flags, m->u.mem.size = r->size, m->u.mem.origin = r->origin;
  if (!created(m, NULL, err)) return NULL;
  m->u.mem.flags = yp_flags_of(flags, had);
  if (of->u.mem.host) m->u.mem.host = (uint8_t *)of->u.mem.host + r->origin;
  return (cl_mem)m;
}

static cl_mem CL_API_CALL sp_clCreateImage(cl_context c, cl_mem_flags flags, const cl_image_format *f, const cl_image_desc *d, void *host, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!f) FAIL(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
  if (!d || (d->buffer && (!sis(d->buffer, MEM) || sp(d->buffer)->u.mem.image))) FAIL(CL_INVALID_IMAGE_DESCRIPTOR);
  if ((host != NULL) != ((flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR)) != 0)) FAIL(CL_INVALID_HOST_PTR);
  span *m = make(MEM, sp(c), d->buffer ? sp(d->buffer) : NULL);
  if (!m) FAIL(CL_OUT_OF_HOST_MEMORY);
  m->u.mem.flags = flags, m->u.mem.image = true, m->u.mem.format = *f, m->u.mem.desc = *d, m->u.mem.host = flags & CL_MEM_USE_HOST_PTR ? host : NULL;
  m->u.mem.size = d->buffer ? sp(d->buffer)->u.mem.size : 1;
  if (!created(m, host, err)) return NULL;
  if (d->buffer) m->u.mem.flags = yp_flags_of(flags, sp(d->buffer)->u.mem.flags);
  return (cl_mem)m;
}

static cl_mem CL_API_CALL sp_clCreateImageWithProperties(cl_context c, const cl_mem_properties *p, cl_mem_flags flags, const cl_image_format *f, const cl_image_desc *d, void *host,
                                                         cl_int *err) {
  if (p && *p) FAIL(CL_INVALID_PROPERTY);
  cl_mem m = sp_clCreateImage(c, flags, f, d, host, err);
  if (m) sp(m)->u.mem.listed = p;
  return m;
}

static cl_mem old_image(cl_context c, cl_mem_flags flags, const cl_image_format *f, cl_image_desc d, void *host, cl_int *err) {
  cl_int bad;
  cl_mem m = sp_clCreateImage(c, flags, f, &d, host, &bad);
  if (err) *err = bad == CL_INVALID_IMAGE_DESCRIPTOR ? CL_INVALID_IMAGE_SIZE : bad;
  return m;
}

static cl_mem CL_API_CALL sp_clCreateImage2D(cl_context c, cl_mem_flags flags, const cl_image_format *f, size_t w, size_t h, size_t row, void *host, cl_int *err) {
  return old_image(c, flags, f, (cl_image_desc){.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = w, .image_height = h, .image_row_pitch = row}, host, err);
}

static cl_mem CL_API_CALL sp_clCreateImage3D(cl_context c, cl_mem_flags flags, const cl_image_format *f, size_t w, size_t h, size_t d, size_t row, size_t slice, void *host, cl_int *err) {
  cl_image_desc x = {.image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = w, .image_height = h, .image_depth = d, .image_row_pitch = row, .image_slice_pitch = slice};
  return old_image(c, flags, f, x, host, err);
}

/* A format is supported if every node does. */
static cl_int CL_API_CALL sp_clGetSupportedImageFormats(cl_context c, cl_mem_flags flags, cl_mem_object_type type, cl_uint n, cl_image_format *formats, cl_uint *count) {
  enum { MOST = 512 };
  cl_image_format all[MOST], here[MOST];
  cl_uint left = 0, k = 0;
  if (!sis(c, CONTEXT)) return CL_INVALID_CONTEXT;
  if (formats && !n) return CL_INVALID_VALUE;
  EACH(i, sp(c)) {
    cl_int bad = D.clGetSupportedImageFormats(sp(c)->in[i], flags, type, MOST, here, &k);
    if (bad) return bad;
    if (k > MOST) k = MOST;
    if (!i_) {
      memcpy(all, here, (left = k) * sizeof *all);
      continue;
    }
    cl_uint both = 0;
    for (cl_uint a = 0; a < left; a++)
      for (cl_uint b = 0; b < k; b++)
        if (!memcmp(&all[a], &here[b], sizeof *all)) {
          all[both++] = all[a];
          break;
        }
    left = both;
  }
  if (formats) memcpy(formats, all, (left < n ? left : n) * sizeof *formats);
  if (count) *count = left;
  return CL_SUCCESS;
}

static cl_int CL_API_CALL sp_clSetMemObjectDestructorCallback(cl_mem m, void(CL_CALLBACK *call)(cl_mem, void *), void *data) {
  if (!sis(m, MEM)) return CL_INVALID_MEM_OBJECT;
  return yp_when_destroyed(&sp(m)->destroyed, (void (*)(void))call, data);
}

static cl_int CL_API_CALL sp_clGetMemObjectInfo(cl_mem m, cl_mem_info what, size_t size, void *value, size_t *got) {
  if (!sis(m, MEM)) return CL_INVALID_MEM_OBJECT;
  span *o = sp(m);
  cl_uint n = 0;
  switch (what) {
  case CL_MEM_FLAGS: GIVE(cl_mem_flags, o->u.mem.flags);
  case CL_MEM_HOST_PTR: GIVE(void *, o->u.mem.host);
  case CL_MEM_MAP_COUNT:
    pthread_mutex_lock(&lock);
    for (mapping *i = o->u.mem.maps; i; i = i->next) n++;
    leave();
    GIVE(cl_uint, n);
  case CL_MEM_REFERENCE_COUNT: GIVE(cl_uint, (cl_uint)o->refs);
  case CL_MEM_CONTEXT: GIVE(cl_context, (cl_context)o->context);
  case CL_MEM_ASSOCIATED_MEMOBJECT: GIVE(cl_mem, (cl_mem)part_of(o));
  case CL_MEM_OFFSET: GIVE(size_t, part_of(o) ? o->u.mem.origin : 0);
  case CL_MEM_PROPERTIES: return yp_no_properties(o->u.mem.listed, size, value, got);
  }
  return D.clGetMemObjectInfo(any(o), what, size, value, got);
}

static cl_int CL_API_CALL sp_clGetImageInfo(cl_mem m, cl_image_info what, size_t size, void *value, size_t *got) {
  if (!sis(m, MEM) || !sp(m)->u.mem.image) return CL_INVALID_MEM_OBJECT;
  if (what == CL_IMAGE_BUFFER) GIVE(cl_mem, (cl_mem)sp(m)->parent);
  return D.clGetImageInfo(any(sp(m)), what, size, value, got);
}

/* split makes a border between parts at a place. */
static bool split(span *m, size_t at) {
  size_t i = 0;
  while (i < m->u.mem.n && m->u.mem.parts[i].end < at) i++;
  if (at == 0 || i == m->u.mem.n || m->u.mem.parts[i].end == at) return true;
  part *p = realloc(m->u.mem.parts, (m->u.mem.n + 1) * sizeof *p);
  if (!p) return false;
  memmove(p + i + 1, p + i, (m->u.mem.n - i) * sizeof *p);
  p[i].end = at;
  m->u.mem.parts = p, m->u.mem.n++;
  return true;
}

static void join(span *m) {
  part *p = m->u.mem.parts;
  size_t n = 0;
  for (size_t i = 0; i < m->u.mem.n; i++)
    if (n && p[n - 1].at == p[i].at) p[n - 1].end = p[i].end;
    else p[n++] = p[i];
  m->u.mem.n = n;
}

static cl_command_queue mover(span *c, int node, cl_int *err) {
  cl_device_id d = c->u.ctx.devices[node];
  *err = CL_SUCCESS;
  if (!c->u.ctx.movers[node]) c->u.ctx.movers[node] = D.clCreateCommandQueue(c->in[node], d, 0, err);
  return c->u.ctx.movers[node];
}

/* fetch copies what arrives, bytes of memory or an image, when what wrote it has ended. */
static cl_int fetch(const arrival *x) {
  cl_int bad = CL_SUCCESS;
  for (cl_uint i = 0; i < x->afters; i++) D.clWaitForEvents(1, &x->after[i]); /* what has failed has come to its end, too */
  size_t origin[3] = {0}, region[3] = {0}, size = x->to - x->from < PIECE ? x->to - x->from : PIECE;
  const bool image = x->root->u.mem.image;
  if (image) {
    const cl_image_desc *d = &x->root->u.mem.desc;
    bool flat = d->image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    region[0] = d->image_width, region[1] = flat ? d->image_array_size : d->image_height, region[2] = d->image_type == CL_MEM_OBJECT_IMAGE2D_ARRAY ? d->image_array_size : d->image_depth;
    if (d->image_type == CL_MEM_OBJECT_IMAGE1D || d->image_type == CL_MEM_OBJECT_IMAGE1D_BUFFER) region[1] = 1;
    if (d->image_type != CL_MEM_OBJECT_IMAGE3D && d->image_type != CL_MEM_OBJECT_IMAGE2D_ARRAY) region[2] = 1;
    bad = D.clGetImageInfo(x->old, CL_IMAGE_ELEMENT_SIZE, sizeof size, &size, NULL);
    size *= region[0] * region[1] * region[2];
  }
  uint8_t *p = bad ? NULL : malloc(size);
  if (!p) {
    if (!bad) bad = CL_OUT_OF_HOST_MEMORY;
  } else if (image) {
    bad = D.clEnqueueReadImage(x->out, x->old, CL_TRUE, origin, region, 0, 0, p, 0, NULL, NULL);
    if (!bad) bad = D.clEnqueueWriteImage(x->in, x->new, CL_TRUE, origin, region, 0, 0, p, 0, NULL, NULL);
  } else {
    for (size_t n, at = x->from; at < x->to && !bad; at += n) {
      n = x->to - at < size ? x->to - at : size;
      bad = D.clEnqueueReadBuffer(x->out, x->old, CL_TRUE, at, n, p, 0, NULL, NULL);
      if (!bad) bad = D.clEnqueueWriteBuffer(x->in, x->new, CL_TRUE, at, n, p, 0, NULL, NULL);
    }
  }
  free(p);
  return bad;
}

/* range is which bytes of its root n bytes of memory from a place are. */
static span *range(span *m, size_t *at, size_t *n) {
  if (*at > m->u.mem.size) *at = m->u.mem.size; /* such a command fails at the node */
  if (*n > m->u.mem.size - *at) *n = m->u.mem.size - *at;
  for (; m->parent; m = m->parent) *at += m->u.mem.origin;
  return m;
}

/* lack is a part of memory of which the newest contents are at some nodes, and not where they are needed. */
typedef struct {
  span *root;
  size_t from, to;
  uint32_t at;
} lack;

/* lacks finds the first of memory that a node lacks. */
static bool lacks(span *m, size_t at, size_t n, int node, lack *l) {
  span *r = range(m, &at, &n);
  size_t from = 0;
  for (size_t i = 0; n && i < r->u.mem.n; from = r->u.mem.parts[i++].end) {
    const part *p = &r->u.mem.parts[i];
    if (p->end <= at || from >= at + n || !p->at || p->at & 1u << node) continue;
    *l = (lack){r, from > at ? from : at, p->end < at + n ? p->end : at + n, p->at};
    return true;
  }
  return false;
}

/* mark says of a part of memory where its newest contents are: there only, or there, too, where one of others still is. */
static bool mark(span *r, size_t from, size_t to, uint32_t there, uint32_t with) {
  if (!split(r, from) || !split(r, to)) return false;
  size_t start = 0;
  for (size_t i = 0; i < r->u.mem.n; start = r->u.mem.parts[i++].end) {
    part *p = &r->u.mem.parts[i];
    if (start >= from && start < to && (!with || p->at & with)) p->at = with ? p->at | there : there;
  }
  join(r);
  return true;
}

/* comes reports whether contents of memory are on their way to a node, among those asked for before others. */
static bool comes(const span *root, int node, const arrival *before) {
  for (const arrival *x = arrivals; x != before; x = x->next)
    if (x->root == root && x->node == node) return true;
  return false;
}

static void let_go(arrival *x) {
  for (cl_uint i = 0; i < x->afters; i++) D.clReleaseEvent(x->after[i]);
  free(x->after);
}

/* move_all brings what is to be brought, the first first, until there is nothing. */
static void *move_all(void *none) {
  pthread_mutex_lock(&lock);
  arrival *x;
  while (x = arrivals, true) {
    while (x && x->begun) x = x->next;
    if (!x) break;
    x->begun = true;
    while (comes(x->root, x->source, x)) await();
    leave();
    cl_int bad = fetch(x);
    pthread_mutex_lock(&lock);
    arrival **at = &arrivals;
    while (*at != x) at = &(*at)->next;
    if (!(*at = x->next)) last_arrival = at;
    if (bad) x->root->context->u.ctx.lost = bad;
    pthread_cond_broadcast(&settled);
    leave();
    if (x->gate) D.clSetUserEventStatus(x->gate, bad ? bad : CL_COMPLETE), D.clReleaseEvent(x->gate);
    let_go(x);
    pthread_mutex_lock(&lock);
    x->root->holds--, gone(x->root);
    free(x);
  }
  movers--;
  leave();
  return none;
}

/* bring has what a node lacks brought there. The caller has the lock. */
static cl_int bring(lack l, int node) {
  arrival *x = calloc(1, sizeof *x);
  if (!x) return CL_OUT_OF_HOST_MEMORY;
  span *root = l.root, *c = root->context;
  cl_int bad = CL_SUCCESS;
  int source = -1;
  for (int s = 0; s < YP_NODES; s++)
    if (l.at & 1u << s && (source < 0 || comes(root, source, NULL))) source = s;
  *x = (arrival){.root = root, .from = l.from, .to = l.to, .source = source, .node = node, .old = root->in[source]};
  x->after = calloc(root->u.mem.written + 1, sizeof *x->after);
  if (!x->after) bad = CL_OUT_OF_HOST_MEMORY;
  for (size_t i = 0; !bad && i < root->u.mem.written; i++) {
    const writer *w = &root->u.mem.writers[i];
    if (w->node == source && w->from < l.to && l.from < w->to) D.clRetainEvent(x->after[x->afters++] = w->done);
  }
  if (!bad) x->out = mover(c, source, &bad);
  if (!bad) x->in = mover(c, node, &bad);
  if (!bad) x->new = view(root, node, NULL, &bad);
  if (!bad && movers < MOVERS) {
    if (yp_thread(move_all, NULL)) movers++;
    else if (!movers) bad = CL_OUT_OF_HOST_MEMORY;
  }
  if (!bad && !mark(root, l.from, l.to, 1u << node, l.at)) bad = CL_OUT_OF_HOST_MEMORY;
  if (bad) return let_go(x), free(x), bad;
  root->holds++;
  *last_arrival = x, last_arrival = &x->next;
  return CL_SUCCESS;
}

/* acquire brings the newest contents of a part of memory to a node, and waits. The caller has the lock, but not meanwhile. */
static cl_int acquire(span *m, size_t at, size_t n, int node) {
  cl_int bad = CL_SUCCESS;
  for (lack l; !bad && lacks(m, at, n, node, &l);) bad = bring(l, node);
  const span *root = range(m, &at, &n);
  while (!bad && comes(root, node, NULL)) await();
  return bad ? bad : m->context->u.ctx.lost;
}

/* borders makes room to say of a part of memory that it was written. */
static cl_int borders(span *m, size_t at, size_t n) {
  span *r = range(m, &at, &n);
  return split(r, at) && split(r, at + n) ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
}

/* add_writer notes who wrote to a root of memory. What comes later in a queue that keeps order stands for what came before;
 * of another's a marker does, when they are many. */
static void add_writer(span *r, writer w, cl_command_queue q) {
  enum { FEW = 16 };
  const bool ordered = yp_ordered(obj(q));
  size_t of = 0, n = 0;
  for (size_t i = 0; i < r->u.mem.written; i++) of += r->u.mem.writers[i].node == w.node && r->u.mem.writers[i].queue == w.queue;
  cl_event all = NULL;
  if (!ordered && of >= FEW && D.clEnqueueMarkerWithWaitList(q, 0, NULL, &all)) all = NULL;
  D.clRetainEvent(w.done);
  if (all) D.clReleaseEvent(w.done), w.done = all;
  for (size_t i = 0; i < r->u.mem.written; i++) {
    const writer *o = &r->u.mem.writers[i];
    if (!(ordered || all) || o->node != w.node || o->queue != w.queue) {
      r->u.mem.writers[n++] = *o;
      continue;
    }
    if (o->from < w.from) w.from = o->from;
    if (o->to > w.to) w.to = o->to;
    D.clReleaseEvent(o->done);
  }
  if ((r->u.mem.written = n) >= r->u.mem.room) {
    keep_writers(r, -1);
    n = r->u.mem.written < FEW ? FEW : 2 * r->u.mem.written;
    writer *more = realloc(r->u.mem.writers, n * sizeof *more);
    if (!more) {
      D.clWaitForEvents(1, &w.done), D.clReleaseEvent(w.done);
      return;
    }
    r->u.mem.writers = more, r->u.mem.room = n;
  }
  r->u.mem.writers[r->u.mem.written++] = w;
}

/* wrote says that a part of memory, which has borders, is newest at a node, when a command of a queue there is done. */
static void wrote(span *m, size_t at, size_t n, int node, cl_command_queue q, cl_event done) {
  span *r = range(m, &at, &n);
  if (!n) return;
  mark(r, at, at + n, 1u << node, 0);
  add_writer(r, (writer){node, obj(q)->id, at, at + n, done}, q);
}

/* Commands. */

static bool orders(const command *c) { return c->type == CL_COMMAND_BARRIER || (c->type == CL_COMMAND_MARKER && !c->waits); }

/* early reports whether a command depends on one that was not sent yet, or on an event that the program is yet to set. */
static bool early(const command *c) {
  const span *q = c->queue;
  for (cl_uint i = 0; i < c->waits; i++)
    if (pending(c->wait[i])) return true;
  bool in_order = !(q->u.queue.flags & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  return in_order || orders(c) ? q->u.queue.aside : q->u.queue.fences;
}

static cl_int set_in(span *k, cl_uint i, const arg *a, int node) {
  if (!k->in[node] || !a->set) return CL_SUCCESS;
  if (a->svm) return D.clSetKernelArgSVMPointer(k->in[node], i, a->pointer);
  if (!a->object) return D.clSetKernelArg(k->in[node], i, a->size, a->bytes);
  if (a->object->kind == SPAN + SAMPLER) return D.clSetKernelArg(k->in[node], i, a->size, &a->object->in[node]);
  cl_int bad;
  cl_mem m = view(a->object, node, NULL, &bad);
  if (bad || k->u.kernel.bound[i][node] == obj(m)->id) return bad;
  bad = D.clSetKernelArg(k->in[node], i, a->size, &m);
  k->u.kernel.bound[i][node] = bad ? 0 : obj(m)->id;
  return bad;
}

static bool is_memory(const arg *a) { return a->set && a->object && a->object->kind == SPAN + MEM; }

#define WAITS n, n ? list : NULL, out

static cl_int launch(command *c, int node, cl_command_queue q, cl_uint n, const cl_event *list, cl_event *out) {
  span *k = c->kernel;
  const arg *args = c->args ? c->args : k->u.kernel.args;
  cl_int bad = CL_SUCCESS;
  if (!k->in[node]) return CL_INVALID_PROGRAM_EXECUTABLE;
  for (cl_uint i = 0; i < k->u.kernel.n && !bad; i++) {
    if (is_memory(&args[i])) bad = borders(args[i].object, 0, args[i].object->u.mem.size);
    if (!bad && (c->args || is_memory(&args[i]))) bad = set_in(k, i, &args[i], node);
  }
  if (!bad) bad = c->type == CL_COMMAND_TASK ? D.clEnqueueTask(q, k->in[node], WAITS) : D.clEnqueueNDRangeKernel(q, k->in[node], c->dims, c->offset, c->global, c->local, WAITS);
  for (cl_uint i = 0; i < k->u.kernel.n && !bad; i++)
    if (is_memory(&args[i]) && !args[i].reads && !(args[i].object->u.mem.flags & CL_MEM_READ_ONLY)) wrote(args[i].object, 0, args[i].object->u.mem.size, node, q, *out);
  for (size_t i = 0; i < k->u.kernel.reaches && !bad; i++) wrote(k->u.kernel.reached[i], 0, k->u.kernel.reached[i]->u.mem.size, node, q, *out);
  for (cl_uint i = 0; c->args && i < k->u.kernel.n; i++)
    if (!is_memory(&k->u.kernel.args[i])) set_in(k, i, &k->u.kernel.args[i], node);
  return bad;
}

/* extent is from where to where rows in slices reach. */
static void extent(const size_t *origin, const size_t *region, size_t row, size_t slice, size_t *at, size_t *n) {
  if (!row) row = region[0];
  if (!slice) slice = row * region[1];
  *at = origin[0] + origin[1] * row + origin[2] * slice;
  *n = region[0] && region[1] && region[2] ? (region[2] - 1) * slice + (region[1] - 1) * row + region[0] : 0;
}

/* ended says with what an event has ended that is known to have, or has no object at a node. */
static cl_int ended(const span *e) {
  if (!e->u.event.status) return CL_SUCCESS;
  return e->u.event.status == CL_OUT_OF_RESOURCES ? CL_OUT_OF_RESOURCES : CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
}

/* is_over reports whether an event that is not pending needs no waiting for. The caller has the lock. */
static bool is_over(const span *e) { return e->u.event.over || !e->in[e->node]; }

/* over says that an event has ended, with which status. The caller has the lock. */
static void over(span *e, cl_int status) {
  e->u.event.status = status < 0 ? status : CL_SUCCESS, e->u.event.over = true;
  pthread_cond_broadcast(&settled);
}

/* wait_over waits for an event that is not pending. */
static cl_int wait_over(span *e) {
  pthread_mutex_lock(&lock);
  bool so = is_over(e);
  cl_int bad = so ? ended(e) : CL_SUCCESS;
  void *in = e->in[e->node];
  leave();
  if (so) return bad;
  bad = D.clWaitForEvents(1, (cl_event *)&in);
  pthread_mutex_lock(&lock);
  over(e, bad);
  bad = ended(e);
  leave();
  return bad;
}

static int at_node(const command *c) { return c->map ? c->map->node : c->queue->node; }

/* elsewhere reports whether a command is sent in the queue of copies of another node than its queue's. */
static bool elsewhere(const command *c) { return at_node(c) != c->queue->node; }

/* far is an event that a command waits for, that is not known to have ended, and for which it cannot wait at its node. In a
 * queue of copies it would hold up those that events may wait for. */
static span *far(const command *c) {
  for (cl_uint i = 0; i < c->waits; i++)
    if ((!c->wait[i]->in[at_node(c)] || elsewhere(c)) && !is_over(c->wait[i])) return c->wait[i];
  return NULL;
}

/* unread is the event of what reads the contents of a mapping that is to go, if that has not ended. */
static span *unread(const command *c) {
  span *e = c->map ? c->map->read : NULL;
  return e && !pending(e) && !is_over(e) ? e : NULL;
}

/* unmapped frees a mapping. The caller has the lock. */
static void unmapped(mapping *m) {
  if (m && m->read) m->read->holds--, gone(m->read);
  free(m);
}

/* touched is what a command reads and writes of `from` and `to`. */
typedef struct {
  size_t fa, fn, ta, tn;
  bool whole; /* all of the part of `to` is written */
} touched;

/* of_image is how many bytes a region of an image has in a buffer. */
static size_t of_image(const span *image, const size_t *region) { return obj(any(image))->u.mem.pixel * region[0] * region[1] * region[2]; }

static touched touches(const command *c) {
  touched t = {0, c->from ? c->from->u.mem.size : 0, 0, c->to ? c->to->u.mem.size : 0, false};
  switch (c->type) {
  case CL_COMMAND_READ_BUFFER: case CL_COMMAND_MAP_BUFFER: t.fa = c->a[0], t.fn = c->n; break;
  case CL_COMMAND_WRITE_BUFFER: case CL_COMMAND_FILL_BUFFER: t.ta = c->a[0], t.tn = c->n, t.whole = true; break;
  case CL_COMMAND_READ_BUFFER_RECT: extent(c->a, c->c, c->p[0], c->p[1], &t.fa, &t.fn); break;
  case CL_COMMAND_WRITE_BUFFER_RECT: extent(c->a, c->c, c->p[0], c->p[1], &t.ta, &t.tn); break;
  case CL_COMMAND_COPY_BUFFER: t.fa = c->a[0], t.fn = c->n, t.ta = c->b[0], t.tn = c->n, t.whole = true; break;
  case CL_COMMAND_COPY_BUFFER_RECT: extent(c->a, c->c, c->p[0], c->p[1], &t.fa, &t.fn), extent(c->b, c->c, c->p[2], c->p[3], &t.ta, &t.tn); break;
  case CL_COMMAND_COPY_IMAGE_TO_BUFFER: t.ta = c->b[0], t.tn = of_image(c->from, c->c), t.whole = true; break;
  case CL_COMMAND_COPY_BUFFER_TO_IMAGE: t.fa = c->a[0], t.fn = of_image(c->to, c->c); break;
  case CL_COMMAND_UNMAP_MEM_OBJECT: t.ta = c->map->from, t.tn = c->map->to - c->map->from, t.whole = !c->to->u.mem.image; break; /* of images a region was mapped */
  }
  return t;
}

/* needs finds something that a command's node lacks for it. */
static bool needs(const command *c, lack *l) {
  const int node = at_node(c);
  const touched t = touches(c);
  const span *k = c->kernel;
  if (c->from && lacks(c->from, t.fa, t.fn, node, l)) return true;
  if (c->to && !t.whole && lacks(c->to, t.ta, t.tn, node, l)) return true;
  if (!(c->flags & (CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED)))
    for (cl_uint i = 0; i < c->mems; i++)
      if (lacks(c->mem[i], 0, c->mem[i]->u.mem.size, node, l)) return true;
  const arg *args = c->args ? c->args : k ? k->u.kernel.args : NULL;
  for (cl_uint i = 0; k && i < k->u.kernel.n; i++)
    if (is_memory(&args[i]) && lacks(args[i].object, 0, args[i].object->u.mem.size, node, l)) return true;
  for (size_t i = 0; k && i < k->u.kernel.reaches; i++)
    if (lacks(k->u.kernel.reached[i], 0, k->u.kernel.reached[i]->u.mem.size, node, l)) return true;
  return false;
}

static bool within(const span *m, const span *root) {
  while (m && m != root) m = m->parent;
  return m;
}

/* uses reports whether a command reads or writes some of a root of memory. */
static bool uses(const command *c, const span *root) {
  const span *k = c->kernel;
  const arg *args = c->args ? c->args : k ? k->u.kernel.args : NULL;
  bool so = within(c->from, root) || within(c->to, root);
  for (cl_uint i = 0; i < c->mems && !so; i++) so = within(c->mem[i], root);
  for (cl_uint i = 0; k && i < k->u.kernel.n && !so; i++) so = is_memory(&args[i]) && within(args[i].object, root);
  for (size_t i = 0; k && i < k->u.kernel.reaches && !so; i++) so = within(k->u.kernel.reached[i], root);
  return so;
}

/* coming is the first of some arrivals at a command's node whose memory it uses. */
static arrival *coming(const command *c, arrival *x) {
  while (x && !(x->node == at_node(c) && uses(c, x->root))) x = x->next;
  return x;
}

/* run sends a command of which ready has said that it can be, and says how to wait for it if `wanted`. The caller has the
 * lock, but not while the program's memory is read or written. */
static cl_int run(command *c, bool wanted, cl_event *event) {
  int node = at_node(c);
  span *ctx = c->queue->context, *from = c->from, *to = c->to;
  cl_int bad = CL_SUCCESS;
  cl_command_queue q = elsewhere(c) ? mover(ctx, node, &bad) : c->queue->in[node];
  cl_uint gates = 0;
  for (arrival *x = arrivals; (x = coming(c, x)); x = x->next) gates++;
  cl_event list[c->waits + gates + 1], *out = wanted || to || c->kernel || c->mems ? event : NULL;
  cl_uint n = 0;
  *event = NULL;
  for (cl_uint i = 0; i < c->waits && !bad; i++) {
    span *e = c->wait[i];
    if (e->in[node] && !e->u.event.over) list[n++] = e->in[node];
    else bad = ended(e);
  }
  const touched t = touches(c);
  cl_mem a = from && !bad ? view(from, node, NULL, &bad) : NULL, b = to && !bad ? view(to, node, NULL, &bad) : NULL;
  for (cl_uint i = 0; i < c->mems && !bad; i++)
    if (!(c->flags & CL_MIGRATE_MEM_OBJECT_HOST)) view(c->mem[i], node, NULL, &bad);
  if (!bad && to) bad = borders(to, t.ta, t.tn);
  const cl_uint own = n;
  for (arrival *x = arrivals; !bad && (x = coming(c, x)); x = x->next) {
    if (!x->gate) x->gate = D.clCreateUserEvent(ctx->in[node], &bad);
    if (!bad) D.clRetainEvent(list[n++] = x->gate);
  }
  if (bad) { /* its node is gone */
    while (n > own) D.clReleaseEvent(list[--n]);
    return bad;
  }
  span *held = c->host ? from ? from : to : NULL;
  if (held) {
    held->holds++;
    leave();
  }
  switch (c->type) {
  case CL_COMMAND_NDRANGE_KERNEL: case CL_COMMAND_TASK: bad = launch(c, node, q, n, list, out); break;
  case CL_COMMAND_READ_BUFFER: case CL_COMMAND_MAP_BUFFER: bad = D.clEnqueueReadBuffer(q, a, c->blocking, c->a[0], c->n, c->host, WAITS); break;
  case CL_COMMAND_WRITE_BUFFER: bad = D.clEnqueueWriteBuffer(q, b, c->blocking, c->a[0], c->n, c->host, WAITS); break;
  case CL_COMMAND_READ_BUFFER_RECT: bad = D.clEnqueueReadBufferRect(q, a, c->blocking, c->a, c->b, c->c, c->p[0], c->p[1], c->p[2], c->p[3], c->host, WAITS); break;
  case CL_COMMAND_WRITE_BUFFER_RECT: bad = D.clEnqueueWriteBufferRect(q, b, c->blocking, c->a, c->b, c->c, c->p[0], c->p[1], c->p[2], c->p[3], c->host, WAITS); break;
  case CL_COMMAND_READ_IMAGE: case CL_COMMAND_MAP_IMAGE: bad = D.clEnqueueReadImage(q, a, c->blocking, c->a, c->c, c->p[0], c->p[1], c->host, WAITS); break;
  case CL_COMMAND_WRITE_IMAGE: bad = D.clEnqueueWriteImage(q, b, c->blocking, c->a, c->c, c->p[0], c->p[1], c->host, WAITS); break;
  case CL_COMMAND_COPY_BUFFER: bad = D.clEnqueueCopyBuffer(q, a, b, c->a[0], c->b[0], c->n, WAITS); break;
  case CL_COMMAND_COPY_BUFFER_RECT: bad = D.clEnqueueCopyBufferRect(q, a, b, c->a, c->b, c->c, c->p[0], c->p[1], c->p[2], c->p[3], WAITS); break;
  case CL_COMMAND_FILL_BUFFER: bad = D.clEnqueueFillBuffer(q, b, c->pattern, c->p[0], c->a[0], c->n, WAITS); break;
  case CL_COMMAND_FILL_IMAGE: bad = D.clEnqueueFillImage(q, b, c->pattern, c->a, c->c, WAITS); break;
  case CL_COMMAND_COPY_IMAGE: bad = D.clEnqueueCopyImage(q, a, b, c->a, c->b, c->c, WAITS); break;
  case CL_COMMAND_COPY_IMAGE_TO_BUFFER: bad = D.clEnqueueCopyImageToBuffer(q, a, b, c->a, c->c, c->b[0], WAITS); break;
  case CL_COMMAND_COPY_BUFFER_TO_IMAGE: bad = D.clEnqueueCopyBufferToImage(q, a, b, c->a[0], c->b, c->c, WAITS); break;
  case CL_COMMAND_UNMAP_MEM_OBJECT: bad = D.clEnqueueUnmapMemObject(q, b, c->map->at, WAITS); break;
  case CL_COMMAND_BARRIER: bad = D.clEnqueueBarrierWithWaitList(q, WAITS); break;
  default: bad = D.clEnqueueMarkerWithWaitList(q, WAITS); break; /* markers, and what was done here */
  }
  for (cl_uint i = own; i < n; i++) D.clReleaseEvent(list[i]);
  if (held) {
    pthread_mutex_lock(&lock);
    held->holds--;
  }
  if (!bad && to && (!c->map || c->map->write)) wrote(to, t.ta, t.tn, node, q, *out);
  if (!bad)
    for (cl_uint i = 0; i < c->mems; i++)
      if (c->flags & CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED && !(c->flags & CL_MIGRATE_MEM_OBJECT_HOST)) wrote(c->mem[i], 0, c->mem[i]->u.mem.size, node, q, *out);
  if (held) gone(held);
  if (*event && !wanted) D.clReleaseEvent(*event), *event = NULL;
  return bad;
}

/* hold_all holds, by 1, or lets go, by -1, all that a command that was put aside needs. */
static void hold_all(command *c, int by) {
  cl_uint args = c->args ? c->kernel->u.kernel.n : 0;
  for (cl_uint i = 0; i < args; i++)
    if (c->args[i].object) c->args[i].object->holds += by, gone(c->args[i].object);
  span *of[] = {c->from, c->to, c->event, c->kernel, c->queue};
  for (cl_uint i = 0; i < c->mems; i++) c->mem[i]->holds += by, gone(c->mem[i]);
  for (cl_uint i = 0; i < c->waits; i++) c->wait[i]->holds += by, gone(c->wait[i]);
  for (cl_uint i = 0; i < sizeof of / sizeof *of; i++)
    if (of[i]) of[i]->holds += by, gone(of[i]);
}

static void free_command(command *c) {
  cl_uint args = c->args ? c->kernel->u.kernel.n : 0;
  hold_all(c, -1);
  free_args(c->args, args);
  unmapped(c->map);
  free(c->mem), free(c->wait), free(c);
}

static void *copy_of(const void *p, size_t n) {
  void *q = n ? malloc(n) : NULL;
  if (q) memcpy(q, p, n);
  return q;
}

static void sent(span *e, cl_int bad, void *in) {
  e->in[e->node] = in;
  e->u.event.status = bad;
  e->u.event.pending = false;
  pthread_cond_broadcast(&settled);
}

/* has_ended is told by who watches an event, and opens its gates. */
static void CL_CALLBACK has_ended(cl_event in, cl_int status, void *event) {
  span *e = event;
  cl_event gates[YP_NODES];
  int n = 0;
  (void)in;
  pthread_mutex_lock(&lock);
  over(e, status);
  for (int i = 0; i < YP_NODES; i++)
    if (i != e->node && e->in[i]) D.clRetainEvent(gates[n++] = e->in[i]);
  e->holds--, gone(e);
  leave();
  while (n-- > 0) D.clSetUserEventStatus(gates[n], status < 0 ? status : CL_COMPLETE), D.clReleaseEvent(gates[n]);
}

/* queue_at is in which queue of a node a queue's commands are sent there. */
static cl_command_queue queue_at(const span *q, int node) { return node == q->node ? q->in[node] : q->context->u.ctx.movers[node]; }

/* watch has an event's end told, and waits for it only if nobody can. The caller has the lock. */
static void watch(span *e) {
  void *in = e->in[e->node];
  if (e->u.event.watched) return;
  D.clFlush(queue_at(e->parent, e->node));
  e->u.event.watched = true, e->holds++;
  if (!yp_when_over(in, has_ended, e)) return;
  leave();
  cl_int status = D.clWaitForEvents(1, (cl_event *)&in);
  has_ended(in, status, e);
  pthread_mutex_lock(&lock);
}

/* gate makes an event at a node that is set when one of another node has ended. The caller has the lock. */
static cl_int gate(span *e, int node) {
  cl_int bad;
  e->in[node] = D.clCreateUserEvent(e->context->in[node], &bad);
  if (!bad) watch(e);
  return bad;
}

/* ready sees to all that a command waits for elsewhere and that its node lacks for it, by gates if it can wait for these,
 * and if it blocks also waits for what was put aside. The caller has the lock, but not while this waits. */
static cl_int ready(const command *c) {
  const int node = at_node(c);
  const bool gates = !c->blocking && !elsewhere(c);
  cl_int bad = CL_SUCCESS;
  while (!bad && !(bad = c->queue->context->u.ctx.lost)) {
    lack l;
    span *e;
    if (c->blocking && early(c)) {
      await();
    } else if (gates && (e = far(c))) {
      bad = gate(e, node);
    } else if ((e = far(c)) || (e = unread(c))) {
      e->holds++;
      leave();
      wait_over(e);
      pthread_mutex_lock(&lock);
      e->holds--, gone(e);
    } else if (needs(c, &l)) {
      bad = bring(l, node);
    } else if (!gates && coming(c, arrivals)) {
      await();
    } else {
      break;
    }
  }
  return bad;
}

/* next finds the first command that can be sent to a node. The caller has the lock. */
static command *next(int node) {
  for (command *c = aside; c; c = c->next) c->queue->u.queue.passed = c->queue->u.queue.fences_passed = 0;
  for (command *c = aside; c; c = c->next) {
    span *q = c->queue;
    bool in_order = !(q->u.queue.flags & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE), can = at_node(c) == node && !(in_order || orders(c) ? q->u.queue.passed : q->u.queue.fences_passed);
    q->u.queue.passed++, q->u.queue.fences_passed += orders(c);
    for (cl_uint i = 0; i < c->waits; i++) can = can && !pending(c->wait[i]);
    if (can) return c;
  }
  return NULL;
}

static bool any_aside(int node) {
  for (const command *c = aside; c; c = c->next)
    if (at_node(c) == node) return true;
  return false;
}

/* send sends what was put aside for a node, when it can be, until there is nothing. */
static void *send(void *node_) {
  const int node = (int)(intptr_t)node_;
  pthread_mutex_lock(&lock);
  while (any_aside(node)) {
    command *c = next(node);
    if (!c) {
      await();
      continue;
    }
    cl_event in = NULL;
    span *q = c->queue;
    cl_int bad = ready(c);
    if (!bad) bad = run(c, true, &in);
    if (in) D.clFlush(queue_at(q, node));
    command **at = &aside;
    while (*at != c) at = &(*at)->next;
    if (!(*at = c->next)) last_aside = at;
    q->u.queue.aside--, q->u.queue.fences -= orders(c);
    sent(c->event, bad, in);
    free_command(c);
    leave();
    pthread_mutex_lock(&lock);
  }
  sends[node] = false;
  leave();
  return NULL;
}

/* put_aside keeps a copy of a command until it can be sent. The caller has the lock. */
static cl_int put_aside(const command *c) {
  const span *of = c->kernel;
  const int node = at_node(c);
  if (of && !of->in[node]) return CL_INVALID_PROGRAM_EXECUTABLE;
  for (cl_uint i = 0; of && i < of->u.kernel.n; i++)
    if (!of->u.kernel.args[i].set) return CL_INVALID_KERNEL_ARGS;
  command *k = copy_of(c, sizeof *c);
  if (!k) return CL_OUT_OF_HOST_MEMORY;
  k->offset = c->offset ? k->a : NULL, k->global = c->global ? k->b : NULL, k->local = c->local ? k->c : NULL;
  k->mem = copy_of(c->mem, c->mems * sizeof *c->mem), k->wait = copy_of(c->wait, c->waits * sizeof *c->wait), k->args = NULL;
  bool ok = (k->mem || !c->mems) && (k->wait || !c->waits);
  if (of && of->u.kernel.n) {
    k->args = calloc(of->u.kernel.n, sizeof *k->args);
    ok = ok && k->args;
    for (cl_uint i = 0; ok && i < of->u.kernel.n; i++) {
      const arg *a = &of->u.kernel.args[i];
      k->args[i] = *a;
      if (a->bytes) ok = (k->args[i].bytes = copy_of(a->bytes, a->size));
    }
  }
  if (ok && !sends[node]) ok = sends[node] = yp_thread(send, (void *)(intptr_t)node);
  if (!ok) {
    free_args(k->args, of ? of->u.kernel.n : 0);
    free(k->mem), free(k->wait), free(k);
    return CL_OUT_OF_HOST_MEMORY;
  }
  hold_all(k, 1);
  k->next = NULL, *last_aside = k, last_aside = &k->next;
  c->queue->u.queue.aside++, c->queue->u.queue.fences += orders(c);
  pthread_cond_broadcast(&settled);
  return CL_SUCCESS;
}

static cl_command_type told_as(const command *c) { return c->as ? c->as : c->type; }

/* wrong says what is wrong with a command's queue, memory and list of events. */
static cl_int wrong(const command *c, cl_uint n, const cl_event *waits) {
  const span *q = c->queue;
  if (!sis(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  span *of[] = {c->kernel, c->from, c->to};
  for (int i = 0; i < 3; i++)
    if (of[i] && of[i]->context != q->context) return CL_INVALID_CONTEXT;
  if ((n == 0) != (waits == NULL)) return CL_INVALID_EVENT_WAIT_LIST;
  for (cl_uint i = 0; i < n; i++) {
    if (!sis(waits[i], EVENT)) return CL_INVALID_EVENT_WAIT_LIST;
    if (sp(waits[i])->context != q->context) return CL_INVALID_CONTEXT;
  }
  return CL_SUCCESS;
}

/* enqueue sends a command, or puts it aside. */
static cl_int enqueue(command *c, cl_uint n, const cl_event *waits, cl_event *event) {
  span *q = c->queue;
  cl_int bad = wrong(c, n, waits);
  if (bad) return bad;
  c->waits = n, c->wait = (span **)(uintptr_t)waits;
  span *e = make(EVENT, q->context, q);
  if (!e) return CL_OUT_OF_HOST_MEMORY;
  e->u.event.type = told_as(c), e->u.event.queue = q, e->node = at_node(c), e->u.event.pending = true;
  c->event = e;
  cl_event in = NULL;
  pthread_mutex_lock(&lock);
  bool later = !c->blocking && early(c);
  bad = later ? put_aside(c) : ready(c);
  if (later) {
    later = !bad;
  } else {
    if (!bad) bad = run(c, event, &in);
    sent(e, bad, in);
  }
  if (bad || !event) e->refs = 0, gone(e);
  if (!later) unmapped(c->map);
  leave();
  if (!bad && event) *event = (cl_event)e;
  return bad;
}

#define ENDS cl_uint n, const cl_event *waits, cl_event *event
#define MEMORY(M, IMAGE)                                                                    \
  do {                                                                                      \
    if (!sis(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;                                    \
    if (!sis(M, MEM) || sp(M)->u.mem.image != (IMAGE)) return CL_INVALID_MEM_OBJECT;        \
  } while (0)
#define VECTOR(V) {(V)[0], (V)[1], (V)[2]}

static bool hidden(const void *m, cl_mem_flags from) { return sp(m)->u.mem.flags & (CL_MEM_HOST_NO_ACCESS | from); }

static cl_int CL_API_CALL sp_clEnqueueReadBuffer(cl_command_queue q, cl_mem m, cl_bool blocking, size_t offset, size_t size, void *p, ENDS) {
  MEMORY(m, false);
  if (hidden(m, CL_MEM_HOST_WRITE_ONLY)) return CL_INVALID_OPERATION;
  command c = {.type = CL_COMMAND_READ_BUFFER, .queue = sp(q), .from = sp(m), .blocking = blocking, .a = {offset}, .n = size, .host = p};
  return enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueWriteBuffer(cl_command_queue q, cl_mem m, cl_bool blocking, size_t offset, size_t size, const void *p, ENDS) {
  MEMORY(m, false);
  if (hidden(m, CL_MEM_HOST_READ_ONLY)) return CL_INVALID_OPERATION;
  command c = {.type = CL_COMMAND_WRITE_BUFFER, .queue = sp(q), .to = sp(m), .blocking = blocking, .a = {offset}, .n = size, .host = (void *)(uintptr_t)p};
  return enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueReadBufferRect(cl_command_queue q, cl_mem m, cl_bool blocking, const size_t *origin, const size_t *host, const size_t *region, size_t row,
                                                     size_t slice, size_t host_row, size_t host_slice, void *p, ENDS) {
  MEMORY(m, false);
  if (!origin || !host || !region) return CL_INVALID_VALUE;
  if (hidden(m, CL_MEM_HOST_WRITE_ONLY)) return CL_INVALID_OPERATION;
  command c = {.type = CL_COMMAND_READ_BUFFER_RECT, .queue = sp(q), .from = sp(m), .blocking = blocking, .a = VECTOR(origin), .b = VECTOR(host), .c = VECTOR(region),
               .p = {row, slice, host_row, host_slice}, .host = p};
  return enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueWriteBufferRect(cl_command_queue q, cl_mem m, cl_bool blocking, const size_t *origin, const size_t *host, const size_t *region, size_t row,
                                                      size_t slice, size_t host_row, size_t host_slice, const void *p, ENDS) {
  MEMORY(m, false);
  if (!origin || !host || !region) return CL_INVALID_VALUE;
  if (hidden(m, CL_MEM_HOST_READ_ONLY)) return CL_INVALID_OPERATION;
  command c = {.type = CL_COMMAND_WRITE_BUFFER_RECT, .queue = sp(q), .to = sp(m), .blocking = blocking, .a = VECTOR(origin), .b = VECTOR(host), .c = VECTOR(region),
               .p = {row, slice, host_row, host_slice}, .host = (void *)(uintptr_t)p};
  return enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueReadImage(cl_command_queue q, cl_mem m, cl_bool blocking, const size_t *origin, const size_t *region, size_t row, size_t slice, void *p, ENDS) {
  MEMORY(m, true);
  if (!origin || !region) return CL_INVALID_VALUE;
  if (hidden(m, CL_MEM_HOST_WRITE_ONLY)) return CL_INVALID_OPERATION;
  command c = {.type = CL_COMMAND_READ_IMAGE, .queue = sp(q), .from = sp(m), .blocking = blocking, .a = VECTOR(origin), .c = VECTOR(region), .p = {row, slice}, .host = p};
  return enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueWriteImage(cl_command_queue q, cl_mem m, cl_bool blocking, const size_t *origin, const size_t *region, size_t row, size_t slice, const void *p,
                                                 ENDS) {
  MEMORY(m, true);
  if (!origin || !region) return CL_INVALID_VALUE;
  if (hidden(m, CL_MEM_HOST_READ_ONLY)) return CL_INVALID_OPERATION;
  command c = {.type = CL_COMMAND_WRITE_IMAGE, .queue = sp(q), .to = sp(m), .blocking = blocking, .a = VECTOR(origin), .c = VECTOR(region), .p = {row, slice},
               .host = (void *)(uintptr_t)p};
  return enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueCopyBuffer(cl_command_queue q, cl_mem from, cl_mem to, size_t a, size_t b, size_t size, ENDS) {
  MEMORY(from, false);
  MEMORY(to, false);
  command c = {.type = CL_COMMAND_COPY_BUFFER, .queue = sp(q), .from = sp(from), .to = sp(to), .a = {a}, .b = {b}, .n = size};
  return enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueCopyBufferRect(cl_command_queue q, cl_mem from, cl_mem to, const size_t *a, const size_t *b, const size_t *region, size_t from_row,
                                                     size_t from_slice, size_t to_row, size_t to_slice, ENDS) {
  MEMORY(from, false);
  MEMORY(to, false);
  if (!a || !b || !region) return CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_COPY_BUFFER_RECT, .queue = sp(q), .from = sp(from), .to = sp(to), .a = VECTOR(a), .b = VECTOR(b), .c = VECTOR(region),
               .p = {from_row, from_slice, to_row, to_slice}};
  return enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueFillBuffer(cl_command_queue q, cl_mem m, const void *pattern, size_t pattern_size, size_t offset, size_t size, ENDS) {
  MEMORY(m, false);
  if (!pattern || !pattern_size || pattern_size > MOST_PATTERN) return CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_FILL_BUFFER, .queue = sp(q), .to = sp(m), .a = {offset}, .n = size, .p = {pattern_size}};
  memcpy(c.pattern, pattern, pattern_size);
  return enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueFillImage(cl_command_queue q, cl_mem m, const void *color, const size_t *origin, const size_t *region, ENDS) {
  MEMORY(m, true);
  if (!color || !origin || !region) return CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_FILL_IMAGE, .queue = sp(q), .to = sp(m), .a = VECTOR(origin), .c = VECTOR(region)};
  memcpy(c.pattern, color, 16);
  return enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueCopyImage(cl_command_queue q, cl_mem from, cl_mem to, const size_t *a, const size_t *b, const size_t *region, ENDS) {
  MEMORY(from, true);
  MEMORY(to, true);
  if (!a || !b || !region) return CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_COPY_IMAGE, .queue = sp(q), .from = sp(from), .to = sp(to), .a = VECTOR(a), .b = VECTOR(b), .c = VECTOR(region)};
  return enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueCopyImageToBuffer(cl_command_queue q, cl_mem from, cl_mem to, const size_t *a, const size_t *region, size_t offset, ENDS) {
  MEMORY(from, true);
  MEMORY(to, false);
  if (!a || !region) return CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_COPY_IMAGE_TO_BUFFER, .queue = sp(q), .from = sp(from), .to = sp(to), .a = VECTOR(a), .b = {offset}, .c = VECTOR(region)};
  return enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueCopyBufferToImage(cl_command_queue q, cl_mem from, cl_mem to, size_t offset, const size_t *b, const size_t *region, ENDS) {
  MEMORY(from, false);
  MEMORY(to, true);
  if (!b || !region) return CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_COPY_BUFFER_TO_IMAGE, .queue = sp(q), .from = sp(from), .to = sp(to), .a = {offset}, .b = VECTOR(b), .c = VECTOR(region)};
  return enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueMigrateMemObjects(cl_command_queue q, cl_uint mems, const cl_mem *mem, cl_mem_migration_flags flags, ENDS) {
  if (!sis(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!mems || !mem || flags & ~(cl_mem_migration_flags)(CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED)) return CL_INVALID_VALUE;
  for (cl_uint i = 0; i < mems; i++) {
    if (!sis(mem[i], MEM)) return CL_INVALID_MEM_OBJECT;
    if (sp(mem[i])->context != sp(q)->context) return CL_INVALID_CONTEXT;
  }
  command c = {.type = CL_COMMAND_MIGRATE_MEM_OBJECTS, .queue = sp(q), .mems = mems, .mem = (span **)(uintptr_t)mem, .flags = flags};
  return enqueue(&c, n, waits, event);
}

/* map maps at the device of the queue, once the newest contents are there. What
 * the program gets is that node's mapping. */
static void *map(command *c, cl_map_flags flags, size_t *row, size_t *slice, cl_uint n, const cl_event *waits, cl_event *event, cl_int *err) {
  const cl_map_flags writes = CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;
  span *m = c->from, *q = c->queue;
  if (!sis(q, QUEUE)) FAIL(CL_INVALID_COMMAND_QUEUE);
  bool image = c->type == CL_COMMAND_MAP_IMAGE;
  if (!sis(m, MEM) || m->u.mem.image != image) FAIL(CL_INVALID_MEM_OBJECT);
  if (flags & ~(CL_MAP_READ | writes) || (flags & CL_MAP_WRITE_INVALIDATE_REGION && flags & (CL_MAP_READ | CL_MAP_WRITE))) FAIL(CL_INVALID_VALUE);
  if (m->u.mem.flags & CL_MEM_HOST_NO_ACCESS || (m->u.mem.flags & CL_MEM_HOST_WRITE_ONLY && flags & CL_MAP_READ) || (m->u.mem.flags & CL_MEM_HOST_READ_ONLY && flags & writes))
    FAIL(CL_INVALID_OPERATION);
  cl_int bad = wrong(c, n, waits);
  if (bad) FAIL(bad);
  mapping *p = calloc(1, sizeof *p);
  if (!p) FAIL(CL_OUT_OF_HOST_MEMORY);
  size_t at = image ? 0 : c->a[0], size = image ? m->u.mem.size : c->n;
  *p = (mapping){NULL, q->node, flags & writes, at, at + size, NULL, NULL};
  const command before = {.type = c->type, .queue = q, .waits = n, .wait = (span **)(uintptr_t)waits}; /* what the map waits for, without the memory */
  pthread_mutex_lock(&lock);
  while (c->blocking && early(&before)) await();
  const bool late = early(&before), fresh = flags & CL_MAP_WRITE_INVALIDATE_REGION;
  if (!late) bad = ready(&before);
  if (!bad) bad = acquire(m, at, late || fresh ? 0 : size, q->node); /* nothing comes while the program writes there */
  if (!bad && !late && fresh && !image && !(bad = borders(m, at, size))) {
    size_t from = at, bytes = size;
    span *r = range(m, &from, &bytes);
    if (bytes) mark(r, from, from + bytes, 1u << q->node, 0);
  }
  cl_event list[n + 1];
  cl_uint own = 0;
  for (cl_uint i = 0; i < n && !bad && !late; i++) {
    const span *e = before.wait[i];
    if (e->in[q->node] && !e->u.event.over) D.clRetainEvent(list[own++] = e->in[q->node]);
    else bad = ended(e);
  }
  cl_mem in = bad ? NULL : view(m, q->node, NULL, &bad);
  cl_map_flags how = late && flags & writes ? CL_MAP_WRITE_INVALIDATE_REGION : flags;
  cl_event made = NULL;
  cl_event *out = event && !late ? &made : NULL;
  m->holds++;
  leave();
  cl_command_queue inner = q->in[q->node];
  if (!bad && image) p->at = D.clEnqueueMapImage(inner, in, late || c->blocking, how, c->a, c->c, row, slice, own, own ? list : NULL, out, &bad);
  else if (!bad) p->at = D.clEnqueueMapBuffer(inner, in, late || c->blocking, how, c->a[0], c->n, own, own ? list : NULL, out, &bad);
  while (own > 0) D.clReleaseEvent(list[--own]);
  pthread_mutex_lock(&lock);
  if (bad) m->holds--, gone(m);
  else p->next = m->u.mem.maps, m->u.mem.maps = p; /* it stays while it is mapped */
  leave();
  if (bad) {
    free(p);
    FAIL(bad);
  }
  if (late) { /* the contents come when they are there */
    c->host = p->at;
    if (image) c->p[0] = *row, c->p[1] = slice ? *slice : 0;
    if (fresh) c->from = NULL, c->type = CL_COMMAND_MARKER;
    cl_event read = NULL;
    bad = enqueue(c, n, waits, &read);
    if (read) {
      pthread_mutex_lock(&lock);
      p->read = sp(read), p->read->holds++;
      if (event) *event = read;
      else p->read->refs--;
      leave();
    }
  } else if (event) {
    span *e = make(EVENT, q->context, q);
    if (!e) FAIL(CL_OUT_OF_HOST_MEMORY);
    e->u.event.type = told_as(c), e->u.event.queue = q, e->node = q->node, e->in[q->node] = made;
    *event = (cl_event)e;
  }
  if (err) *err = bad;
  return bad ? NULL : p->at;
}

static void *CL_API_CALL sp_clEnqueueMapBuffer(cl_command_queue q, cl_mem m, cl_bool blocking, cl_map_flags flags, size_t offset, size_t size, ENDS, cl_int *err) {
  command c = {.type = CL_COMMAND_MAP_BUFFER, .queue = sp(q), .from = sp(m), .blocking = blocking, .a = {offset}, .n = size};
  return map(&c, flags, NULL, NULL, n, waits, event, err);
}

static void *CL_API_CALL sp_clEnqueueMapImage(cl_command_queue q, cl_mem m, cl_bool blocking, cl_map_flags flags, const size_t *origin, const size_t *region, size_t *row, size_t *slice,
                                              ENDS, cl_int *err) {
  if (!origin || !region || !row) FAIL(CL_INVALID_VALUE);
  command c = {.type = CL_COMMAND_MAP_IMAGE, .queue = sp(q), .from = sp(m), .blocking = blocking, .a = VECTOR(origin), .c = VECTOR(region)};
  return map(&c, flags, row, slice, n, waits, event, err);
}

static cl_int unmap(cl_command_queue q, span *m, void *at, cl_command_type as, ENDS) {
  command c = {.type = CL_COMMAND_UNMAP_MEM_OBJECT, .as = as, .queue = sp(q), .to = m};
  cl_int bad = wrong(&c, n, waits);
  if (bad) return bad; /* it stays mapped */
  pthread_mutex_lock(&lock);
  mapping **i = &m->u.mem.maps, *p;
  while (*i && (*i)->at != at) i = &(*i)->next;
  if ((p = *i)) *i = p->next;
  leave();
  if (!p) return CL_INVALID_VALUE;
  c.map = p;
  bad = enqueue(&c, n, waits, event);
  pthread_mutex_lock(&lock);
  m->holds--, gone(m);
  leave();
  return bad;
}

static cl_int CL_API_CALL sp_clEnqueueUnmapMemObject(cl_command_queue q, cl_mem m, void *at, ENDS) {
  if (!sis(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!sis(m, MEM)) return CL_INVALID_MEM_OBJECT;
  return unmap(q, sp(m), at, 0, n, waits, event);
}

static cl_int sync_point(cl_command_type type, cl_command_queue q, ENDS) {
  command c = {.type = type, .queue = sp(q)};
  return enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueMarkerWithWaitList(cl_command_queue q, ENDS) { return sync_point(CL_COMMAND_MARKER, q, n, waits, event); }
static cl_int CL_API_CALL sp_clEnqueueMarker(cl_command_queue q, cl_event *event) { return sync_point(CL_COMMAND_MARKER, q, 0, NULL, event); }
static cl_int CL_API_CALL sp_clEnqueueBarrierWithWaitList(cl_command_queue q, ENDS) { return sync_point(CL_COMMAND_BARRIER, q, n, waits, event); }
static cl_int CL_API_CALL sp_clEnqueueBarrier(cl_command_queue q) { return sync_point(CL_COMMAND_BARRIER, q, 0, NULL, NULL); }
static cl_int CL_API_CALL sp_clEnqueueWaitForEvents(cl_command_queue q, cl_uint n, const cl_event *waits) { return sync_point(CL_COMMAND_BARRIER, q, n, waits, NULL); }

static cl_int CL_API_CALL sp_clFlush(cl_command_queue q) { return sis(q, QUEUE) ? D.clFlush(sp(q)->in[sp(q)->node]) : CL_INVALID_COMMAND_QUEUE; }

static cl_int CL_API_CALL sp_clFinish(cl_command_queue q) {
  if (!sis(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  command all = {.type = CL_COMMAND_MARKER, .queue = sp(q)};
  const uint64_t notices = yp_notices();
  pthread_mutex_lock(&lock);
  while (early(&all)) await();
  leave();
  cl_int status = D.clFinish(sp(q)->in[sp(q)->node]);
  if (!status) yp_hear(0, NULL, q, notices);
  return status ? status : sp(q)->context->u.ctx.lost;
}

static cl_int CL_API_CALL sp_clEnqueueNativeKernel(cl_command_queue q, void(CL_CALLBACK *call)(void *), void *args, size_t size, cl_uint mems, const cl_mem *mem, const void **at,
                                                   ENDS) {
  (void)call, (void)args, (void)size, (void)mems, (void)mem, (void)at, (void)n, (void)waits, (void)event;
  return sis(q, QUEUE) ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE;
}

/* Samplers. */

static cl_sampler CL_API_CALL sp_clCreateSamplerWithProperties(cl_context c, const cl_sampler_properties *p, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  span *o = make(SAMPLER, sp(c), NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  EACH(i, sp(c)) if (!bad) o->in[i] = D.clCreateSamplerWithProperties(sp(c)->in[i], p, &bad);
  return done(o, bad, err);
}

static cl_sampler CL_API_CALL sp_clCreateSampler(cl_context c, cl_bool normalized, cl_addressing_mode addressing, cl_filter_mode filter, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  span *o = make(SAMPLER, sp(c), NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  EACH(i, sp(c)) if (!bad) o->in[i] = D.clCreateSampler(sp(c)->in[i], normalized, addressing, filter, &bad);
  return done(o, bad, err);
}

static cl_int CL_API_CALL sp_clGetSamplerInfo(cl_sampler h, cl_sampler_info what, size_t size, void *value, size_t *got) {
  if (!sis(h, SAMPLER)) return CL_INVALID_SAMPLER;
  if (what == CL_SAMPLER_REFERENCE_COUNT) GIVE(cl_uint, (cl_uint)sp(h)->refs);
  if (what == CL_SAMPLER_CONTEXT) GIVE(cl_context, (cl_context)sp(h)->context);
  return D.clGetSamplerInfo(any(sp(h)), what, size, value, got);
}

/* Programs: one at each node. */

static cl_program CL_API_CALL sp_clCreateProgramWithSource(cl_context c, cl_uint n, const char **texts, const size_t *lengths, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  span *o = make(PROGRAM, sp(c), NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  EACH(i, sp(c)) if (!bad) o->in[i] = D.clCreateProgramWithSource(sp(c)->in[i], n, texts, lengths, &bad);
  return done(o, bad, err);
}

static cl_program CL_API_CALL sp_clCreateProgramWithIL(cl_context c, const void *il, size_t n, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  span *o = make(PROGRAM, sp(c), NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  EACH(i, sp(c)) if (!bad) o->in[i] = D.clCreateProgramWithIL(sp(c)->in[i], il, n, &bad);
  return done(o, bad, err);
}

static cl_program CL_API_CALL sp_clCreateProgramWithBinary(cl_context c, cl_uint n, const cl_device_id *devices, const size_t *lengths, const unsigned char **binaries,
                                                           cl_int *status, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!n || !devices || !lengths || !binaries) FAIL(CL_INVALID_VALUE);
  span *o = make(PROGRAM, sp(c), NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  for (cl_uint i = 0; i < n && !bad; i++) {
    int node = node_of(sp(c), devices[i]);
    if (node < 0 || o->in[node]) bad = CL_INVALID_DEVICE;
    else o->in[node] = D.clCreateProgramWithBinary(sp(c)->in[node], 1, &devices[i], &lengths[i], &binaries[i], status ? &status[i] : NULL, &bad);
  }
  return done(o, bad, err);
}

static cl_program CL_API_CALL sp_clCreateProgramWithBuiltInKernels(cl_context c, cl_uint n, const cl_device_id *devices, const char *names, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!n || !devices || !names) FAIL(CL_INVALID_VALUE);
  span *o = make(PROGRAM, sp(c), NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  for (cl_uint i = 0; i < n && !bad; i++) {
    int node = node_of(sp(c), devices[i]);
    if (node < 0) bad = CL_INVALID_DEVICE;
    else if (!o->in[node]) o->in[node] = D.clCreateProgramWithBuiltInKernels(sp(c)->in[node], 1, &devices[i], names, &bad);
  }
  return done(o, bad, err);
}

typedef void(CL_CALLBACK *built)(cl_program, void *);

static cl_int CL_API_CALL sp_clSetProgramSpecializationConstant(cl_program p, cl_uint constant, size_t size, const void *value) {
  cl_int bad = CL_SUCCESS;
  if (!sis(p, PROGRAM)) return CL_INVALID_PROGRAM;
  for (int i = 0; i < YP_NODES && !bad; i++)
    if (sp(p)->in[i]) bad = D.clSetProgramSpecializationConstant(sp(p)->in[i], constant, size, value);
  return bad;
}

/* wanted says which nodes the devices of a call name, all of a program's if it names none. */
static cl_int wanted(const span *context, const span *program, cl_uint n, const cl_device_id *devices, bool *nodes) {
  if ((n == 0) != (devices == NULL)) return CL_INVALID_VALUE;
  for (int i = 0; i < YP_NODES; i++) nodes[i] = !n && (program ? program->in[i] : context->in[i]) != NULL;
  for (cl_uint i = 0; i < n; i++) {
    int node = node_of(context, devices[i]);
    if (node < 0 || (program && !program->in[node])) return CL_INVALID_DEVICE;
    nodes[node] = true;
  }
  return CL_SUCCESS;
}

static cl_int CL_API_CALL sp_clBuildProgram(cl_program p, cl_uint n, const cl_device_id *devices, const char *options, built notify, void *data) {
  bool nodes[YP_NODES];
  if (!sis(p, PROGRAM)) return CL_INVALID_PROGRAM;
  if (!notify && data) return CL_INVALID_VALUE;
  cl_int bad = wanted(sp(p)->context, sp(p), n, devices, nodes);
  if (bad) return bad;
  for (int i = 0; i < YP_NODES; i++) {
    cl_int b = nodes[i] ? D.clBuildProgram(sp(p)->in[i], 0, NULL, options, NULL, NULL) : CL_SUCCESS;
    if (!bad) bad = b;
  }
  if (notify) notify(p, data);
  return bad;
}

static cl_int CL_API_CALL sp_clCompileProgram(cl_program p, cl_uint n, const cl_device_id *devices, const char *options, cl_uint headers, const cl_program *header,
                                              const char **names, built notify, void *data) {
  bool nodes[YP_NODES];
  if (!sis(p, PROGRAM)) return CL_INVALID_PROGRAM;
  if ((!notify && data) || (headers == 0) != (header == NULL)) return CL_INVALID_VALUE;
  cl_int bad = wanted(sp(p)->context, sp(p), n, devices, nodes);
  if (bad) return bad;
  for (cl_uint i = 0; i < headers; i++)
    if (!sis(header[i], PROGRAM)) return CL_INVALID_PROGRAM;
  cl_program in[headers + 1];
  for (int i = 0; i < YP_NODES; i++) {
    if (!nodes[i]) continue;
    for (cl_uint k = 0; k < headers; k++) in[k] = sp(header[k])->in[i];
    cl_int b = D.clCompileProgram(sp(p)->in[i], 0, NULL, options, headers, headers ? in : NULL, names, NULL, NULL);
    if (!bad) bad = b;
  }
  if (notify) notify(p, data);
  return bad;
}

static cl_program CL_API_CALL sp_clLinkProgram(cl_context c, cl_uint n, const cl_device_id *devices, const char *options, cl_uint inputs, const cl_program *input, built notify,
                                               void *data, cl_int *err) {
  bool nodes[YP_NODES];
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!inputs || !input || (!notify && data)) FAIL(CL_INVALID_VALUE);
  cl_int bad = wanted(sp(c), NULL, n, devices, nodes);
  if (bad) FAIL(bad);
  for (cl_uint i = 0; i < inputs; i++)
    if (!sis(input[i], PROGRAM)) FAIL(CL_INVALID_PROGRAM);
  span *o = make(PROGRAM, sp(c), NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_program in[inputs];
  for (int i = 0; i < YP_NODES; i++) {
    cl_int b = CL_SUCCESS;
    if (!nodes[i]) continue;
    for (cl_uint k = 0; k < inputs; k++) in[k] = sp(input[k])->in[i];
    o->in[i] = D.clLinkProgram(sp(c)->in[i], 0, NULL, options, inputs, in, NULL, NULL, &b);
    if (!bad) bad = b;
  }
  if (bad && !any(o)) drop(o), o = NULL; /* else there is a log that says what is wrong */
  if (err) *err = bad;
  if (notify) notify((cl_program)o, data);
  return (cl_program)o;
}

static cl_int CL_API_CALL sp_clGetProgramInfo(cl_program h, cl_program_info what, size_t size, void *value, size_t *got) {
  if (!sis(h, PROGRAM)) return CL_INVALID_PROGRAM;
  span *o = sp(h);
  cl_uint n = 0;
  cl_device_id devices[YP_NODES];
  size_t sizes[YP_NODES];
  cl_int bad = CL_SUCCESS;
  for (int i = 0; i < YP_NODES && what == CL_PROGRAM_BINARIES; i++) {
    unsigned char **to = value;
    if (!o->in[i]) continue;
    if (value && size < (n + 1) * sizeof *to) return CL_INVALID_VALUE;
    if (value && !bad) bad = D.clGetProgramInfo(o->in[i], what, sizeof *to, to + n, NULL);
    n++;
  }
  if (what == CL_PROGRAM_BINARIES) {
    if (got) *got = n * sizeof(unsigned char *);
    return bad;
  }
  for (int i = 0; i < YP_NODES; i++) {
    if (!o->in[i]) continue;
    if (what == CL_PROGRAM_BINARY_SIZES) bad = D.clGetProgramInfo(o->in[i], what, sizeof *sizes, &sizes[n], NULL);
    if (bad) return bad;
    devices[n++] = o->context->u.ctx.devices[i];
  }
  switch (what) {
  case CL_PROGRAM_REFERENCE_COUNT: GIVE(cl_uint, (cl_uint)o->refs);
  case CL_PROGRAM_CONTEXT: GIVE(cl_context, (cl_context)o->context);
  case CL_PROGRAM_NUM_DEVICES: GIVE(cl_uint, n);
  case CL_PROGRAM_DEVICES: return yp_give(devices, n * sizeof *devices, size, value, got);
  case CL_PROGRAM_BINARY_SIZES: return yp_give(sizes, n * sizeof *sizes, size, value, got);
  }
  bad = CL_INVALID_PROGRAM_EXECUTABLE;
  for (int i = 0; i < YP_NODES && bad == CL_INVALID_PROGRAM_EXECUTABLE; i++) /* it may be built for some only */
    if (o->in[i]) bad = D.clGetProgramInfo(o->in[i], what, size, value, got);
  return bad;
}

static cl_int CL_API_CALL sp_clGetProgramBuildInfo(cl_program h, cl_device_id d, cl_program_build_info what, size_t size, void *value, size_t *got) {
  if (!sis(h, PROGRAM)) return CL_INVALID_PROGRAM;
  int node = node_of(sp(h)->context, d);
  if (node < 0 || !sp(h)->in[node]) return CL_INVALID_DEVICE;
  return D.clGetProgramBuildInfo(sp(h)->in[node], d, what, size, value, got);
}

/* Kernels. */

/* described asks what a new kernel's arguments are, or drops it. */
static void *described(span *k, cl_int bad, cl_int *err) {
  object *in = any(k);
  if (!in) return done(k, bad ? bad : CL_INVALID_PROGRAM_EXECUTABLE, err);
  cl_uint n = in->u.kernel.args;
  k->u.kernel.args = calloc(n + 1, sizeof *k->u.kernel.args), k->u.kernel.bound = calloc(n + 1, sizeof *k->u.kernel.bound);
  if (!k->u.kernel.args || !k->u.kernel.bound) return done(k, CL_OUT_OF_HOST_MEMORY, err);
  k->u.kernel.n = n;
  for (cl_uint i = 0; i < n; i++) {
    cl_kernel_arg_address_qualifier where;
    cl_kernel_arg_type_qualifier how;
    cl_kernel_arg_access_qualifier access;
    if (in->u.kernel.classes[i] != 'm') continue;
    bool constant = !D.clGetKernelArgInfo((cl_kernel)in, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof where, &where, NULL) && where == CL_KERNEL_ARG_ADDRESS_CONSTANT;
    bool is_const = !constant && !D.clGetKernelArgInfo((cl_kernel)in, i, CL_KERNEL_ARG_TYPE_QUALIFIER, sizeof how, &how, NULL) && how & CL_KERNEL_ARG_TYPE_CONST;
    bool read_only = !is_const && !D.clGetKernelArgInfo((cl_kernel)in, i, CL_KERNEL_ARG_ACCESS_QUALIFIER, sizeof access, &access, NULL) && access == CL_KERNEL_ARG_ACCESS_READ_ONLY;
    k->u.kernel.args[i].reads = constant || is_const || read_only;
  }
  return done(k, CL_SUCCESS, err);
}

static cl_kernel CL_API_CALL sp_clCreateKernel(cl_program p, const char *name, cl_int *err) {
  if (!sis(p, PROGRAM)) FAIL(CL_INVALID_PROGRAM);
  span *k = make(KERNEL, sp(p)->context, sp(p));
  if (!k) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  EACH(i, k->context) {
    cl_int b = CL_SUCCESS;
    if (sp(p)->in[i]) k->in[i] = D.clCreateKernel(sp(p)->in[i], name, &b); /* it may not be built for this device */
    if (!bad) bad = b;
  }
  return described(k, bad, err);
}

static cl_int CL_API_CALL sp_clCreateKernelsInProgram(cl_program p, cl_uint n, cl_kernel *kernels, cl_uint *count) {
  if (!sis(p, PROGRAM)) return CL_INVALID_PROGRAM;
  size_t there = 0, length = 0;
  cl_int bad = sp_clGetProgramInfo(p, CL_PROGRAM_NUM_KERNELS, sizeof there, &there, NULL);
  if (!bad) bad = sp_clGetProgramInfo(p, CL_PROGRAM_KERNEL_NAMES, 0, NULL, &length);
  if (bad) return CL_INVALID_PROGRAM_EXECUTABLE;
  if (kernels && n < there) return CL_INVALID_VALUE;
  if (count) *count = (cl_uint)there;
  if (!kernels) return CL_SUCCESS;
  char *names = malloc(length + 1), *rest = names;
  if (!names) return CL_OUT_OF_HOST_MEMORY;
  bad = sp_clGetProgramInfo(p, CL_PROGRAM_KERNEL_NAMES, length, names, NULL);
  size_t k = 0;
  for (char *name; !bad && k < there && (name = strsep(&rest, ";")); k++) kernels[k] = sp_clCreateKernel(p, name, &bad);
  if (bad)
    while (k-- > 0)
      if (kernels[k]) release(kernels[k], KERNEL, 0);
  free(names);
  return bad;
}

static cl_kernel CL_API_CALL sp_clCloneKernel(cl_kernel of, cl_int *err) {
  if (!sis(of, KERNEL)) FAIL(CL_INVALID_KERNEL);
  span *k = make(KERNEL, sp(of)->context, sp(of)->parent);
  if (!k) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  EACH(i, k->context) if (sp(of)->in[i] && !bad) k->in[i] = D.clCloneKernel(sp(of)->in[i], &bad);
  if (bad) return done(k, bad, err);
  k = described(k, bad, err);
  pthread_mutex_lock(&lock);
  for (cl_uint i = 0; k && i < k->u.kernel.n; i++) {
    arg *a = &k->u.kernel.args[i];
    *a = sp(of)->u.kernel.args[i];
    a->bytes = a->bytes ? copy_of(a->bytes, a->size) : NULL;
  }
  leave();
  return (cl_kernel)k;
}

static cl_int CL_API_CALL sp_clSetKernelArg(cl_kernel h, cl_uint index, size_t size, const void *value) {
  if (!sis(h, KERNEL)) return CL_INVALID_KERNEL;
  span *k = sp(h);
  if (index >= k->u.kernel.n) return CL_INVALID_ARG_INDEX;
  char class = ((object *)any(k))->u.kernel.classes[index];
  void *handle = NULL;
  pthread_mutex_lock(&lock);
  if (value && size == sizeof handle) memcpy(&handle, value, size);
  if (class == '?' && handle) { /* a value that is the address of an object is that object */
    const span *o = spans;
    while (o && o != handle) o = o->next;
    class = sis(o, MEM) ? 'm' : sis(o, SAMPLER) ? 's' : '?';
  }
  arg *old = &k->u.kernel.args[index], new = {.size = size, .set = true, .reads = old->reads};
  cl_int bad = CL_SUCCESS;
  if ((class == 'm' || class == 's') && size != sizeof handle) bad = CL_INVALID_ARG_SIZE;
  else if (class == 's' && !sis(handle, SAMPLER)) bad = CL_INVALID_SAMPLER;
  else if (class == 'm' && handle && (!sis(handle, MEM) || sp(handle)->context != k->context)) bad = CL_INVALID_MEM_OBJECT;
  else if (class == 'm' || class == 's') new.object = handle;
  else if (value && !(new.bytes = copy_of(value, size))) bad = size ? CL_OUT_OF_HOST_MEMORY : CL_INVALID_ARG_SIZE;
  bool tried = false;
  EACH(i, k->context) {
    bool here = k->in[i] && !(is_memory(&new) && (tried || !new.object->in[i])); /* memory is set where it is, and elsewhere with the launch */
    if (!here || bad) continue;
    if (!new.object) k->u.kernel.bound[index][i] = 0;
    bad = set_in(k, index, &new, (int)i);
    tried = true;
  }
  if (bad) {
    free(new.bytes);
  } else {
    free(old->bytes);
    *old = new;
  }
  leave();
  return bad;
}

static cl_int CL_API_CALL sp_clGetKernelInfo(cl_kernel h, cl_kernel_info what, size_t size, void *value, size_t *got) {
  if (!sis(h, KERNEL)) return CL_INVALID_KERNEL;
  switch (what) {
  case CL_KERNEL_REFERENCE_COUNT: GIVE(cl_uint, (cl_uint)sp(h)->refs);
  case CL_KERNEL_CONTEXT: GIVE(cl_context, (cl_context)sp(h)->context);
  case CL_KERNEL_PROGRAM: GIVE(cl_program, (cl_program)sp(h)->parent);
  }
  return D.clGetKernelInfo(any(sp(h)), what, size, value, got);
}

static cl_int CL_API_CALL sp_clGetKernelArgInfo(cl_kernel h, cl_uint index, cl_kernel_arg_info what, size_t size, void *value, size_t *got) {
  return sis(h, KERNEL) ? D.clGetKernelArgInfo(any(sp(h)), index, what, size, value, got) : CL_INVALID_KERNEL;
}

static cl_int CL_API_CALL sp_clGetKernelWorkGroupInfo(cl_kernel h, cl_device_id d, cl_kernel_work_group_info what, size_t size, void *value, size_t *got) {
  if (!sis(h, KERNEL)) return CL_INVALID_KERNEL;
  int node = node_of(sp(h)->context, d);
  if (node < 0 || !sp(h)->in[node]) return CL_INVALID_DEVICE; /* also if it is NULL: there are several */
  return D.clGetKernelWorkGroupInfo(sp(h)->in[node], d, what, size, value, got);
}

static cl_int CL_API_CALL sp_clGetKernelSubGroupInfo(cl_kernel h, cl_device_id d, cl_kernel_sub_group_info what, size_t given, const void *sizes, size_t size, void *value, size_t *got) {
  if (!sis(h, KERNEL)) return CL_INVALID_KERNEL;
  int node = node_of(sp(h)->context, d);
  if (node < 0 || !sp(h)->in[node]) return CL_INVALID_DEVICE;
  return D.clGetKernelSubGroupInfo(sp(h)->in[node], d, what, given, sizes, size, value, got);
}

static cl_int CL_API_CALL sp_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint dims, const size_t *offset, const size_t *global, const size_t *local, ENDS) {
  if (!sis(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!sis(k, KERNEL)) return CL_INVALID_KERNEL;
  if (dims < 1 || dims > 3) return CL_INVALID_WORK_DIMENSION;
  command c = {.type = CL_COMMAND_NDRANGE_KERNEL, .queue = sp(q), .kernel = sp(k), .dims = dims};
  for (cl_uint i = 0; i < dims; i++) c.a[i] = offset ? offset[i] : 0, c.b[i] = global ? global[i] : 0, c.c[i] = local ? local[i] : 0;
  c.offset = offset ? c.a : NULL, c.global = global ? c.b : NULL, c.local = local ? c.c : NULL;
  return enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueTask(cl_command_queue q, cl_kernel k, ENDS) {
  if (!sis(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!sis(k, KERNEL)) return CL_INVALID_KERNEL;
  command c = {.type = CL_COMMAND_TASK, .queue = sp(q), .kernel = sp(k)};
  return enqueue(&c, n, waits, event);
}

/* Events. */

static cl_int wait_one(span *e) {
  pthread_mutex_lock(&lock);
  while (pending(e)) await();
  leave();
  return wait_over(e);
}

static cl_int CL_API_CALL sp_clWaitForEvents(cl_uint n, const cl_event *events) {
  if (!n || !events) return CL_INVALID_VALUE;
  for (cl_uint i = 0; i < n; i++) {
    if (!sis(events[i], EVENT)) return CL_INVALID_EVENT;
    if (sp(events[i])->context != sp(events[0])->context) return CL_INVALID_CONTEXT;
  }
  cl_int bad = CL_SUCCESS;
  for (cl_uint i = 0; i < n; i++) {
    cl_int b = wait_one(sp(events[i]));
    if (!bad) bad = b;
  }
  if (!bad) yp_hear(n, events, NULL, UINT64_MAX);
  return bad;
}

static cl_event CL_API_CALL sp_clCreateUserEvent(cl_context c, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  span *e = make(EVENT, sp(c), NULL);
  if (!e) FAIL(CL_OUT_OF_HOST_MEMORY);
  e->u.event.type = CL_COMMAND_USER, e->u.event.pending = true;
  return done(e, CL_SUCCESS, err);
}

static cl_int CL_API_CALL sp_clSetUserEventStatus(cl_event h, cl_int status) {
  if (!sis(h, EVENT) || sp(h)->u.event.type != CL_COMMAND_USER) return CL_INVALID_EVENT;
  if (status > CL_COMPLETE) return CL_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  bool first = pending(sp(h));
  if (first) sent(sp(h), status, NULL);
  leave();
  return first ? CL_SUCCESS : CL_INVALID_OPERATION;
}

static cl_int CL_API_CALL sp_clGetEventInfo(cl_event h, cl_event_info what, size_t size, void *value, size_t *got) {
  if (!sis(h, EVENT)) return CL_INVALID_EVENT;
  span *e = sp(h);
  switch (what) {
  case CL_EVENT_COMMAND_QUEUE: GIVE(cl_command_queue, (cl_command_queue)e->parent);
  case CL_EVENT_CONTEXT: GIVE(cl_context, (cl_context)e->context);
  case CL_EVENT_COMMAND_TYPE: GIVE(cl_command_type, e->u.event.type);
  case CL_EVENT_REFERENCE_COUNT: GIVE(cl_uint, (cl_uint)e->refs);
  case CL_EVENT_COMMAND_EXECUTION_STATUS: break;
  default: return CL_INVALID_VALUE;
  }
  pthread_mutex_lock(&lock);
  cl_int status = !pending(e) ? e->u.event.status : e->u.event.type == CL_COMMAND_USER ? CL_SUBMITTED : CL_QUEUED;
  void *in = e->in[e->node];
  leave();
  if (in) return D.clGetEventInfo(in, what, size, value, got);
  GIVE(cl_int, status);
}

static cl_int CL_API_CALL sp_clGetEventProfilingInfo(cl_event h, cl_profiling_info what, size_t size, void *value, size_t *got) {
  if (!sis(h, EVENT)) return CL_INVALID_EVENT;
  void *in = sp(h)->in[sp(h)->node];
  return in ? D.clGetEventProfilingInfo(in, what, size, value, got) : CL_PROFILING_INFO_NOT_AVAILABLE;
}

static cl_int CL_API_CALL sp_clSetEventCallback(cl_event h, cl_int when, void(CL_CALLBACK *call)(cl_event, cl_int, void *), void *data) {
  return sis(h, EVENT) ? yp_notice(h, when, call, data) : CL_INVALID_EVENT;
}

/* Pipes, which CL_DEVICE_PIPE_SUPPORT says there are none of. */

static cl_mem CL_API_CALL sp_clCreatePipe(cl_context c, cl_mem_flags flags, cl_uint packet, cl_uint n, const cl_pipe_properties *p, cl_int *err) {
  (void)flags, (void)packet, (void)n, (void)p;
  FAIL(sis(c, CONTEXT) ? CL_INVALID_OPERATION : CL_INVALID_CONTEXT);
}

/* Shared virtual memory. */

static void *CL_API_CALL sp_clSVMAlloc(cl_context c, cl_svm_mem_flags flags, size_t size, cl_uint alignment) {
  span *m = sis(c, CONTEXT) ? make(MEM, sp(c), NULL) : NULL;
  if (!m) return NULL;
  m->u.mem.size = size, m->u.mem.parts = malloc(sizeof *m->u.mem.parts);
  cl_int bad = m->u.mem.parts ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
  if (!bad) m->u.mem.n = 1, m->u.mem.parts[0] = (part){size, 0};
  void *p = NULL;
  EACH(i, sp(c)) {
    if (bad) break;
    void *at = yp_svm_make(obj(sp(c)->in[i]), flags, size, alignment, false, p);
    bad = at ? CL_SUCCESS : CL_MEM_OBJECT_ALLOCATION_FAILURE;
    if (at) p = m->u.mem.svm = at, m->in[i] = D.clCreateBuffer(sp(c)->in[i], CL_MEM_USE_HOST_PTR | flags, size, p, &bad);
  }
  return done(m, bad, NULL) ? p : NULL;
}

static void CL_API_CALL sp_clSVMFree(cl_context c, void *p) {
  span *m = p && sis(c, CONTEXT) ? svm_at(sp(c), p, 1) : NULL;
  if (m && m->u.mem.svm == p) release(m, MEM, 0);
}

static bool offered(const void *context) {
  cl_device_svm_capabilities has = 0;
  return !D.clGetDeviceInfo(sp(context)->u.ctx.devices[sp(context)->u.ctx.nodes[0]], CL_DEVICE_SVM_CAPABILITIES, sizeof has, &has, NULL) && has;
}

#define SVM_QUEUE(WRONG)                                            \
  do {                                                              \
    if (!sis(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;            \
    if (!offered(sp(q)->context)) return CL_INVALID_OPERATION;      \
    if (WRONG) return CL_INVALID_VALUE;                             \
  } while (0)

static cl_int marker(object *q, yp_ends ends) {
  command c = {.type = CL_COMMAND_MARKER, .as = ends.type, .queue = sp(q)};
  return enqueue(&c, ends.n, ends.waits, ends.event);
}

static cl_int in_program(cl_command_queue q, yp_deed *d, yp_ends ends) {
  cl_int bad;
  cl_context c = (cl_context)sp(q)->context;
  return yp_do(d, q, c, sp_clCreateUserEvent(c, &bad), ends, marker);
}

static cl_int CL_API_CALL sp_clEnqueueSVMFree(cl_command_queue q, cl_uint count, void *list[], void(CL_CALLBACK *call)(cl_command_queue, cl_uint, void *[], void *), void *data, ENDS) {
  SVM_QUEUE(!count || !list);
  for (cl_uint i = 0; i < count; i++)
    if (!list[i]) return CL_INVALID_VALUE;
  return in_program(q, yp_deed_of_free(count, list, call, data), (yp_ends){n, waits, event, CL_COMMAND_SVM_FREE});
}

static cl_int CL_API_CALL sp_clEnqueueSVMMemcpy(cl_command_queue q, cl_bool blocking, void *to, const void *from, size_t size, ENDS) {
  SVM_QUEUE(!to || !from || !size);
  if ((uintptr_t)to - (uintptr_t)from < size || (uintptr_t)from - (uintptr_t)to < size) return CL_MEM_COPY_OVERLAP;
  span *a = svm_at(sp(q)->context, from, 1), *b = svm_at(sp(q)->context, to, 1);
  if ((a && offset(a, from) + size > a->u.mem.size) || (b && offset(b, to) + size > b->u.mem.size)) return CL_INVALID_VALUE;
  command c = {.as = CL_COMMAND_SVM_MEMCPY, .queue = sp(q), .from = a, .to = b, .blocking = blocking, .n = size};
  cl_int bad;
  if (a && b) {
    c.type = CL_COMMAND_COPY_BUFFER, c.blocking = false, c.a[0] = offset(a, from), c.b[0] = offset(b, to);
  } else if (a || b) {
    c.type = a ? CL_COMMAND_READ_BUFFER : CL_COMMAND_WRITE_BUFFER, c.a[0] = a ? offset(a, from) : offset(b, to), c.host = a ? to : (void *)(uintptr_t)from;
    return enqueue(&c, n, waits, event);
  }
  if (a) bad = enqueue(&c, n, waits, event);
  else bad = in_program(q, yp_deed_of_copy(to, from, size), (yp_ends){n, waits, event, c.as});
  return bad || !blocking ? bad : sp_clFinish(q);
}

static cl_int CL_API_CALL sp_clEnqueueSVMMemFill(cl_command_queue q, void *p, const void *pattern, size_t pattern_size, size_t size, ENDS) {
  SVM_QUEUE(!p || !pattern || !pattern_size || pattern_size > MOST_PATTERN || pattern_size & (pattern_size - 1) || !size || (uintptr_t)p % pattern_size || size % pattern_size);
  span *m = svm_at(sp(q)->context, p, size);
  if (!m) return CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_FILL_BUFFER, .as = CL_COMMAND_SVM_MEMFILL, .queue = sp(q), .to = m, .a = {offset(m, p)}, .n = size, .p = {pattern_size}};
  memcpy(c.pattern, pattern, pattern_size);
  return enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueSVMMap(cl_command_queue q, cl_bool blocking, cl_map_flags flags, void *p, size_t size, ENDS) {
  SVM_QUEUE(!p || !size);
  span *m = svm_at(sp(q)->context, p, size);
  if (!m) return CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_MAP_BUFFER, .as = CL_COMMAND_SVM_MAP, .queue = sp(q), .from = m, .blocking = blocking, .a = {offset(m, p)}, .n = size};
  cl_int bad;
  map(&c, flags, NULL, NULL, n, waits, event, &bad);
  return bad;
}

static cl_int CL_API_CALL sp_clEnqueueSVMUnmap(cl_command_queue q, void *p, ENDS) {
  SVM_QUEUE(!p);
  span *m = svm_at(sp(q)->context, p, 1);
  if (!m) return CL_INVALID_VALUE;
  cl_int bad = unmap(q, m, p, CL_COMMAND_SVM_UNMAP, n, waits, event);
  return bad == CL_INVALID_VALUE ? marker(obj(q), (yp_ends){n, waits, event, CL_COMMAND_SVM_UNMAP}) : bad;
}

static cl_int CL_API_CALL sp_clEnqueueSVMMigrateMem(cl_command_queue q, cl_uint count, const void **list, const size_t *sizes, cl_mem_migration_flags flags, ENDS) {
  SVM_QUEUE(!list || !count || flags & ~(cl_mem_migration_flags)(CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED));
  span **all = calloc(count, sizeof *all);
  if (!all) return CL_OUT_OF_HOST_MEMORY;
  cl_int bad = CL_SUCCESS;
  for (cl_uint i = 0; i < count; i++)
    if (!(all[i] = svm_at(sp(q)->context, list[i], sizes && sizes[i] ? sizes[i] : 1))) bad = CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_MIGRATE_MEM_OBJECTS, .as = CL_COMMAND_SVM_MIGRATE_MEM, .queue = sp(q), .mems = count, .mem = all, .flags = flags & CL_MIGRATE_MEM_OBJECT_HOST}; /* a part may be named */
  if (!bad) bad = enqueue(&c, n, waits, event);
  free(all);
  return bad;
}

static cl_int CL_API_CALL sp_clSetKernelArgSVMPointer(cl_kernel h, cl_uint index, const void *p) {
  if (!sis(h, KERNEL)) return CL_INVALID_KERNEL;
  span *k = sp(h), *m = p ? svm_at(k->context, p, 0) : NULL;
  if (!offered(k->context)) return CL_INVALID_OPERATION;
  if (index >= k->u.kernel.n) return CL_INVALID_ARG_INDEX;
  if (p && !m) return CL_INVALID_ARG_VALUE;
  cl_int bad = CL_SUCCESS;
  pthread_mutex_lock(&lock);
  arg *old = &k->u.kernel.args[index], new = {.size = sizeof p, .object = m, .set = true, .reads = old->reads, .svm = true, .pointer = (void *)(uintptr_t)p};
  EACH(i, k->context) {
    k->u.kernel.bound[index][i] = 0;
    if (!bad) bad = set_in(k, index, &new, (int)i);
  }
  if (!bad) free(old->bytes), *old = new;
  leave();
  return bad;
}

static cl_int CL_API_CALL sp_clSetKernelExecInfo(cl_kernel h, cl_kernel_exec_info what, size_t size, const void *value) {
  if (!sis(h, KERNEL)) return CL_INVALID_KERNEL;
  span *k = sp(h);
  size_t n = what == CL_KERNEL_EXEC_INFO_SVM_PTRS && value ? size / sizeof(void *) : 0;
  cl_int bad = CL_SUCCESS;
  EACH(i, k->context) if (k->in[i] && !bad) bad = D.clSetKernelExecInfo(k->in[i], what, size, value);
  span **reached = bad ? NULL : calloc(n + 1, sizeof *reached);
  if (!reached) return bad ? bad : CL_OUT_OF_HOST_MEMORY;
  for (size_t i = 0; i < n; i++) reached[i] = svm_at(k->context, ((void *const *)value)[i], 1); /* it is one, as every node has found */
  pthread_mutex_lock(&lock);
  if (what == CL_KERNEL_EXEC_INFO_SVM_PTRS) {
    span **old = k->u.kernel.reached;
    k->u.kernel.reached = reached, k->u.kernel.reaches = n, reached = old;
  }
  leave();
  free(reached);
  return CL_SUCCESS;
}

static void in_child(void) {
  spans = NULL, aside = NULL, last_aside = &aside, memset(sends, 0, sizeof sends), arrivals = NULL, last_arrival = &arrivals, movers = 0; /* the parent's, as all that was made there */
  pthread_mutex_init(&lock, NULL), pthread_cond_init(&settled, NULL);
}

#define SET(NAME) table.NAME = sp_##NAME;
const cl_icd_dispatch *yp_span(void) {
  table = yp_dispatch;
  in_child();
  pthread_atfork(NULL, NULL, in_child);
  SET(clCreateContext) SET(clCreateContextFromType) SET(clRetainContext) SET(clReleaseContext) SET(clGetContextInfo) SET(clSetContextDestructorCallback)
  SET(clCreateCommandQueue) SET(clCreateCommandQueueWithProperties) SET(clRetainCommandQueue) SET(clReleaseCommandQueue) SET(clGetCommandQueueInfo)
  SET(clSetCommandQueueProperty) SET(clFinish) SET(clFlush) SET(clRetainMemObject) SET(clReleaseMemObject) SET(clCreateBuffer) SET(clCreateBufferWithProperties)
  SET(clCreateSubBuffer) SET(clCreateImage) SET(clCreateImageWithProperties) SET(clCreateImage2D) SET(clCreateImage3D) SET(clGetSupportedImageFormats)
  SET(clSetMemObjectDestructorCallback) SET(clGetMemObjectInfo) SET(clGetImageInfo) SET(clEnqueueReadBuffer) SET(clEnqueueWriteBuffer) SET(clEnqueueReadBufferRect)
  SET(clEnqueueWriteBufferRect) SET(clEnqueueReadImage) SET(clEnqueueWriteImage) SET(clEnqueueCopyBuffer) SET(clEnqueueCopyBufferRect) SET(clEnqueueFillBuffer)
  SET(clEnqueueFillImage) SET(clEnqueueCopyImage) SET(clEnqueueCopyImageToBuffer) SET(clEnqueueCopyBufferToImage) SET(clEnqueueMigrateMemObjects) SET(clEnqueueMapBuffer)
  SET(clEnqueueMapImage) SET(clEnqueueUnmapMemObject) SET(clEnqueueMarker) SET(clEnqueueMarkerWithWaitList) SET(clEnqueueBarrier) SET(clEnqueueBarrierWithWaitList)
  SET(clEnqueueWaitForEvents) SET(clEnqueueNativeKernel) SET(clEnqueueNDRangeKernel) SET(clEnqueueTask) SET(clCreateSampler) SET(clCreateSamplerWithProperties)
  SET(clRetainSampler) SET(clReleaseSampler) SET(clGetSamplerInfo) SET(clCreateProgramWithSource) SET(clCreateProgramWithBinary) SET(clCreateProgramWithIL)
  SET(clCreateProgramWithBuiltInKernels) SET(clRetainProgram) SET(clReleaseProgram) SET(clBuildProgram) SET(clCompileProgram) SET(clLinkProgram) SET(clGetProgramInfo)
  SET(clGetProgramBuildInfo) SET(clCreateKernel) SET(clCreateKernelsInProgram) SET(clCloneKernel) SET(clRetainKernel) SET(clReleaseKernel) SET(clSetKernelArg)
  SET(clGetKernelInfo) SET(clGetKernelArgInfo) SET(clGetKernelWorkGroupInfo) SET(clGetKernelSubGroupInfo) SET(clSetProgramSpecializationConstant) SET(clWaitForEvents) SET(clCreateUserEvent) SET(clSetUserEventStatus) SET(clRetainEvent)
  SET(clReleaseEvent) SET(clGetEventInfo) SET(clGetEventProfilingInfo) SET(clSetEventCallback)
  SET(clSVMAlloc) SET(clSVMFree) SET(clEnqueueSVMFree) SET(clEnqueueSVMMemcpy) SET(clEnqueueSVMMemFill) SET(clEnqueueSVMMap) SET(clEnqueueSVMUnmap) SET(clEnqueueSVMMigrateMem)
  SET(clSetKernelArgSVMPointer) SET(clSetKernelExecInfo) SET(clCreatePipe)
  return &table;
}
