/* Shared virtual memory, of the coarse-grained kind: it has one address in the
 * program and for kernels, so that what points into it may lie in it. A region
 * is mapped here where the worker has it. The program's pages are a copy that
 * mapping and unmapping bring up to date as they do with buffers, or the
 * device's own memory where both can map that.
 *
 * Room for it is made here first, where few programs have anything, and the worker takes that place if it
 * can choose and has nothing there. Else it says where the region is; if the program has something
 * there, that is given back, and one elsewhere asked for. */
#include "pool.h"
#include "ops.h"
#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum { ALONE, TOGETHER, THERE, TRIES = 64, ARG_SVM = 3 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static object **regions; /* by context and address: of several nodes, each has its own at the same */
static size_t count, room;
static uintptr_t next;

void yp_svm_in_child(void) { pthread_mutex_init(&lock, NULL); }

static size_t page(void) { return (size_t)sysconf(_SC_PAGESIZE); }
static size_t length(const object *o) { return (o->u.mem.size + page() - 1) & ~(page() - 1); }
static uintptr_t place(const object *o) { return (uintptr_t)o->u.mem.host; }

/* above returns how many regions are of contexts before one, or of it and begin at an address or before. The caller has the lock. */
static size_t above(const object *context, uintptr_t p) {
  size_t from = 0, to = count;
  while (from < to) {
    size_t i = (from + to) / 2;
    const object *o = regions[i];
    if (o->context == context ? place(o) <= p : o->context < context) from = i + 1;
    else to = i;
  }
  return from;
}

static object *find(const object *context, uintptr_t p, size_t size) {
  size_t i = above(context, p);
  object *o = i ? regions[i - 1] : NULL;
  return o && o->context == context && p - place(o) <= o->u.mem.size && size <= o->u.mem.size - (p - place(o)) ? o : NULL;
}

object *yp_svm_at(const object *context, const void *p, size_t size) {
  pthread_mutex_lock(&lock);
  object *o = find(context, (uintptr_t)p, size);
  pthread_mutex_unlock(&lock);
  return o;
}

static bool add(object *o) {
  pthread_mutex_lock(&lock);
  if (count == room) {
    object **p = realloc(regions, (2 * room + 16) * sizeof *p);
    if (p) regions = p, room = 2 * room + 16;
  }
  bool ok = count < room;
  if (ok) {
    size_t i = above(o->context, place(o));
    memmove(regions + i + 1, regions + i, (count++ - i) * sizeof *regions);
    regions[i] = o;
  }
  pthread_mutex_unlock(&lock);
  return ok;
}

/* take_out returns the region that begins at an address, of which nothing is known any more. */
static object *take_out(const object *context, const void *p) {
  pthread_mutex_lock(&lock);
  object *o = find(context, (uintptr_t)p, 0);
  if (o && o->u.mem.host == p) {
    size_t i = above(context, (uintptr_t)p);
    memmove(regions + i - 1, regions + i, (count-- - i) * sizeof *regions);
  } else {
    o = NULL;
  }
  pthread_mutex_unlock(&lock);
  return o;
}

void yp_svm_gone(object *o) {
  if (o->u.mem.host && !o->u.mem.placed) munmap(o->u.mem.host, length(o));
}

static void give_back(object *o) {
  yp_begin(o->node, OP_release);
  yp_word(o->id);
  yp_post(false);
  yp_destroy(o);
}

/* reserve keeps n bytes of addresses, far from where systems put programs if it may. */
static void *reserve(size_t n) {
  pthread_mutex_lock(&lock);
  if (!next) next = ((uintptr_t)0x2000 << 32) + (((uintptr_t)&regions >> 12 & 0xFFFF) << 24); /* 64 bits: others have no pool */
  void *p = mmap((void *)next, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  next += n;
  pthread_mutex_unlock(&lock);
  return p == MAP_FAILED ? NULL : p;
}

/* make asks the worker for a region that is not at one of n addresses, and maps it. CL_INVALID_HOST_PTR: it
 * cannot be where it is at the worker, which is the next of these. One that was placed is there already, as another's. */
static cl_int make(object *o, cl_svm_mem_flags flags, int how, uintptr_t *taken, size_t k) {
  const size_t n = length(o);
  void *kept = o->u.mem.placed ? o->u.mem.host : reserve(n), *p = kept;
  yp_gate *gate = yp_gate_now(o->node);
  bool share = how == TOGETHER && yp_unified(o->node) && o->u.mem.size >= YP_SHARED && yp_gate_enter(gate);
  if (share) yp_gate_leave(gate);
  answer a = {.land = NULL};
  yp_begin(o->node, OP_create_svm);
  yp_word(o->context->id);
  yp_word(o->id);
  yp_word(flags);
  yp_word(o->u.mem.size);
  yp_word(page());
  yp_word((uintptr_t)kept);
  yp_word(how == TOGETHER && !share ? ALONE : (uint64_t)how);
  yp_word(k);
  for (size_t i = 0; i < k; i++) yp_word(taken[i]);
  cl_int bad = yp_sync(&a);
  free(a.data);
  if (o->u.mem.placed) return bad;
  bool there = kept && a.a == (uintptr_t)kept;
  if (kept && (bad || !there)) munmap(kept, n);
  if (bad) return bad;
  if (a.a % page() || !a.a) p = MAP_FAILED;
  else if (!there || a.fd >= 0) p = mmap((void *)a.a, n, PROT_READ | PROT_WRITE, (a.fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | (there ? MAP_FIXED : MAP_FIXED_NOREPLACE), a.fd, 0);
  else if (mprotect(kept, n, PROT_READ | PROT_WRITE)) munmap(kept, n), p = MAP_FAILED;
  if (a.fd >= 0) close(a.fd);
  if (p != MAP_FAILED && (uintptr_t)p != a.a) munmap(p, n), p = MAP_FAILED; /* Linux before 4.17 */
  taken[k] = a.a;
  if (p == MAP_FAILED) return CL_INVALID_HOST_PTR;
  o->u.mem.host = p, o->u.mem.shared = a.fd >= 0 ? p : NULL, o->u.mem.gate = a.fd >= 0 ? gate : NULL;
  return CL_SUCCESS;
}

static bool offered(const object *context) {
  cl_device_svm_capabilities has = 0;
  return !yp_dispatch.clGetDeviceInfo((cl_device_id)context->u.context.devices[0], CL_DEVICE_SVM_CAPABILITIES, sizeof has, &has, NULL) && has;
}

static bool right(object *c, cl_svm_mem_flags flags, size_t size, cl_uint alignment) {
  const cl_svm_mem_flags access = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
  cl_uint most = 0;
  if (flags & ~access || flags & (flags - 1) || !size || alignment & (alignment - 1)) return false; /* none is of finer grain */
  for (cl_uint i = 0; i < c->u.context.n; i++)
    if (yp_dispatch.clGetDeviceInfo((cl_device_id)c->u.context.devices[i], CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE, sizeof most, &most, NULL) || alignment > most) return false;
  return true;
}

void *yp_svm_make(object *c, cl_svm_mem_flags flags, size_t size, cl_uint alignment, bool share, void *at) {
  if (!offered(c) || !right(c, flags, size, alignment)) return NULL;
  uintptr_t taken[TRIES];
  for (size_t n = 0; n < (at ? 1 : TRIES); n++) {
    object *o = yp_new(SVM, c, c);
    if (!o) return NULL;
    o->u.mem.size = size, o->u.mem.type = CL_MEM_OBJECT_BUFFER, o->u.mem.host = at, o->u.mem.placed = at;
    cl_int bad = make(o, flags, at ? THERE : share ? TOGETHER : ALONE, taken, n);
    if (!bad && add(o)) return o->u.mem.host;
    if (!bad || bad == CL_INVALID_HOST_PTR) give_back(o);
    else yp_destroy(o);
    if (bad != CL_INVALID_HOST_PTR) return NULL;
  }
  return NULL;
}

static void *CL_API_CALL yp_clSVMAlloc(cl_context c, cl_svm_mem_flags flags, size_t size, cl_uint alignment) {
  return is(c, CONTEXT) ? yp_svm_make(obj(c), flags, size, alignment, true, NULL) : NULL;
}

static void CL_API_CALL yp_clSVMFree(cl_context c, void *p) {
  object *o = is(c, CONTEXT) ? take_out(obj(c), p) : NULL;
  if (o) give_back(o);
}

/* yp_svm_buffer makes a buffer of shared virtual memory, which has it as its parent. */
object *yp_svm_buffer(object *region, cl_mem_flags flags, size_t size, uint8_t *host, cl_int *err) {
  size_t at = (size_t)(host - region->u.mem.host);
  if (size > region->u.mem.size - at) FAIL(CL_INVALID_BUFFER_SIZE);
  object *o = yp_new(MEM, region, region->context);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  o->u.mem.flags = flags, o->u.mem.size = size, o->u.mem.type = CL_MEM_OBJECT_BUFFER, o->u.mem.host = host;
  yp_begin(o->node, OP_create_svm_buffer);
  yp_word(region->id);
  yp_word(o->id);
  yp_word(flags);
  yp_word(at);
  yp_word(size);
  cl_int bad = yp_sync(NULL);
  if (bad) yp_destroy(o), o = NULL;
  if (err) *err = bad;
  return o;
}

bool yp_of_svm(const object *m) {
  while (m->kind == MEM) m = m->parent;
  return m->kind == SVM;
}

/* Commands. */

#define ENDS cl_uint n, const cl_event *waits, cl_event *event
#define CHECK_QUEUE(WRONG)                                           \
  do {                                                               \
    if (!is(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;              \
    if (!offered(obj(q)->context)) return CL_INVALID_OPERATION;      \
    if (WRONG) return CL_INVALID_VALUE;                              \
    cl_int bad_ = yp_check_waits(obj(q)->context, n, waits);         \
    if (bad_) return bad_;                                           \
  } while (0)

/* A deed is what a command does in the program: an event that this library sets is between what comes before it and what comes after. */
struct yp_deed {
  cl_command_queue queue;
  cl_context context;
  cl_event over;
  void(CL_CALLBACK *call)(cl_command_queue, cl_uint, void *[], void *);
  void *data, *to;
  const void *from;
  size_t size; /* of what is copied; 0: the list is freed */
  cl_uint n;
  void *list[];
};

yp_deed *yp_deed_of_copy(void *to, const void *from, size_t size) {
  yp_deed *d = calloc(1, sizeof *d);
  if (d) d->to = to, d->from = from, d->size = size;
  return d;
}

yp_deed *yp_deed_of_free(cl_uint n, void *list[], void(CL_CALLBACK *call)(cl_command_queue, cl_uint, void *[], void *), void *data) {
  yp_deed *d = calloc(1, sizeof *d + n * sizeof *list);
  if (d) d->n = n, d->call = call, d->data = data, memcpy(d->list, list, n * sizeof *list);
  return d;
}

static void CL_CALLBACK do_now(cl_event before, cl_int status, void *of) {
  yp_deed *d = of;
  (void)before;
  const cl_icd_dispatch *to = obj(d->queue)->dispatch;
  if (status == CL_COMPLETE && d->size) memcpy(d->to, d->from, d->size);
  else if (status == CL_COMPLETE && d->call) d->call(d->queue, d->n, d->list, d->data);
  else if (status == CL_COMPLETE)
    for (cl_uint i = 0; i < d->n; i++) to->clSVMFree(d->context, d->list[i]);
  if (d->over) to->clSetUserEventStatus(d->over, status < 0 ? status : CL_COMPLETE), to->clReleaseEvent(d->over);
  to->clReleaseCommandQueue(d->queue);
  free(d);
}

cl_int yp_do(yp_deed *d, cl_command_queue q, cl_context c, cl_event over, yp_ends ends, cl_int (*marker)(object *, yp_ends)) {
  cl_event before = NULL;
  const cl_icd_dispatch *to = obj(q)->dispatch;
  if (!d) {
    if (over) to->clReleaseEvent(over);
    return CL_OUT_OF_HOST_MEMORY;
  }
  d->queue = q, d->context = c, d->over = over;
  to->clRetainCommandQueue(q); /* until it is done */
  cl_int bad = over ? marker(obj(q), (yp_ends){ends.n, ends.waits, &before, CL_COMMAND_MARKER}) : CL_OUT_OF_HOST_MEMORY;
  if (!bad) bad = marker(obj(q), (yp_ends){1, &over, ends.event, ends.type});
  if (!bad) bad = yp_notice(before, CL_COMPLETE, do_now, d);
  if (bad) do_now(NULL, bad, d);
  if (before) to->clReleaseEvent(before);
  return bad;
}

/* in_program enqueues a command that is done here. Its event is not the program's, which need not know that there is one. */
static cl_int in_program(cl_command_queue q, yp_deed *d, yp_ends ends) {
  object *c = obj(q)->context, *over = yp_new(EVENT, c, c);
  if (over) over->u.event.type = CL_COMMAND_USER;
  if (over && yp_status(over->node, OP_user_event, c->id, over->id)) yp_destroy(over), over = NULL;
  cl_int bad = yp_do(d, q, (cl_context)c, (cl_event)over, ends, yp_marker);
  yp_flush(obj(q)->node);
  return bad;
}

static cl_int CL_API_CALL yp_clEnqueueSVMFree(cl_command_queue q, cl_uint count_, void *list[], void(CL_CALLBACK *call)(cl_command_queue, cl_uint, void *[], void *), void *data, ENDS) {
  CHECK_QUEUE(!count_ || !list);
  for (cl_uint i = 0; i < count_; i++)
    if (!list[i]) return CL_INVALID_VALUE;
  return in_program(q, yp_deed_of_free(count_, list, call, data), (yp_ends){n, waits, event, CL_COMMAND_SVM_FREE});
}

/* on_device sends a command that has regions as a stub's has memory; what is particular to it has been written. */
static cl_int on_device(cl_command_queue q, yp_ends ends) {
  object *e = ends.event ? yp_event(obj(q), ends.type) : NULL;
  yp_proof();
  yp_waits(ends.n, ends.waits);
  yp_word(e ? e->id : 0);
  cl_int status = yp_send_to(obj(q), e);
  if (e && status) yp_destroy(e);
  else if (e) *ends.event = (cl_event)e;
  return status;
}

static size_t offset(const object *o, const void *p) { return (uintptr_t)p - place(o); }

static cl_int CL_API_CALL yp_clEnqueueSVMMemcpy(cl_command_queue q, cl_bool blocking, void *to, const void *from, size_t size, ENDS) {
  CHECK_QUEUE(!to || !from || !size);
  if ((uintptr_t)to - (uintptr_t)from < size || (uintptr_t)from - (uintptr_t)to < size) return CL_MEM_COPY_OVERLAP;
  object *a = yp_svm_at(obj(q)->context, from, 1), *b = yp_svm_at(obj(q)->context, to, 1);
  if ((a && !yp_svm_at(obj(q)->context, from, size)) || (b && !yp_svm_at(obj(q)->context, to, size))) return CL_INVALID_VALUE;
  yp_ends ends = {n, waits, event, CL_COMMAND_SVM_MEMCPY};
  if (a && !b) return yp_transfer(obj(q), OP_read, a, blocking, offset(a, from), size, to, ends);
  if (b && !a) return yp_transfer(obj(q), OP_write, b, blocking, offset(b, to), size, (void *)(uintptr_t)from, ends);
  cl_int bad;
  if (!a) {
    bad = in_program(q, yp_deed_of_copy(to, from, size), ends);
  } else {
    yp_begin(obj(q)->node, OP_EnqueueCopyBuffer);
    yp_word(obj(q)->id);
    yp_word(a->id);
    yp_word(b->id);
    yp_word(offset(a, from));
    yp_word(offset(b, to));
    yp_word(size);
    bad = on_device(q, ends);
  }
  return bad || !blocking ? bad : yp_finish(obj(q));
}

static cl_int CL_API_CALL yp_clEnqueueSVMMemFill(cl_command_queue q, void *p, const void *pattern, size_t pattern_size, size_t size, ENDS) {
  CHECK_QUEUE(!p || !pattern || !pattern_size || pattern_size > 128 || pattern_size & (pattern_size - 1) || !size || (uintptr_t)p % pattern_size || size % pattern_size);
  object *o = yp_svm_at(obj(q)->context, p, size);
  if (!o) return CL_INVALID_VALUE;
  yp_begin(obj(q)->node, OP_EnqueueFillBuffer);
  yp_word(obj(q)->id);
  yp_word(o->id);
  yp_bytes(pattern, pattern_size);
  yp_word(offset(o, p));
  yp_word(size);
  return on_device(q, (yp_ends){n, waits, event, CL_COMMAND_SVM_MEMFILL});
}

static cl_int CL_API_CALL yp_clEnqueueSVMMap(cl_command_queue q, cl_bool blocking, cl_map_flags flags, void *p, size_t size, ENDS) {
  CHECK_QUEUE(!p || !size);
  object *o = yp_svm_at(obj(q)->context, p, size);
  if (!o) return CL_INVALID_VALUE;
  cl_int bad;
  yp_map(obj(q), o, blocking, flags, offset(o, p), size, (yp_ends){n, waits, event, CL_COMMAND_SVM_MAP}, &bad);
  return bad;
}

static cl_int CL_API_CALL yp_clEnqueueSVMUnmap(cl_command_queue q, void *p, ENDS) {
  CHECK_QUEUE(!p);
  object *o = yp_svm_at(obj(q)->context, p, 1);
  if (!o) return CL_INVALID_VALUE;
  yp_ends ends = {n, waits, event, CL_COMMAND_SVM_UNMAP};
  cl_int bad = yp_unmap(obj(q), o, p, ends);
  return bad == CL_INVALID_VALUE ? yp_marker(obj(q), ends) : bad; /* what is not mapped is not told */
}

static cl_int CL_API_CALL yp_clEnqueueSVMMigrateMem(cl_command_queue q, cl_uint count_, const void **list, const size_t *sizes, cl_mem_migration_flags flags, ENDS) {
  CHECK_QUEUE(!list || !count_ || flags & ~(cl_mem_migration_flags)(CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED));
  for (cl_uint i = 0; i < count_; i++)
    if (!yp_svm_at(obj(q)->context, list[i], sizes && sizes[i] ? sizes[i] : 1)) return CL_INVALID_VALUE;
  return yp_marker(obj(q), (yp_ends){n, waits, event, CL_COMMAND_SVM_MIGRATE_MEM}); /* it is there */
}

/* Kernels. */

static cl_int CL_API_CALL yp_clSetKernelArgSVMPointer(cl_kernel h, cl_uint index, const void *p) {
  if (!is(h, KERNEL)) return CL_INVALID_KERNEL;
  const object *k = obj(h);
  if (!offered(k->context)) return CL_INVALID_OPERATION;
  if (index >= k->u.kernel.args) return CL_INVALID_ARG_INDEX;
  char class = k->u.kernel.classes[index];
  if ((class != 'm' && class != '?') || (p && !yp_svm_at(k->context, p, 0))) return CL_INVALID_ARG_VALUE;
  yp_begin(k->node, OP_set_arg);
  yp_word(k->id);
  yp_word(index);
  yp_word(sizeof p);
  yp_word(ARG_SVM);
  yp_proof();
  yp_word((uintptr_t)p);
  return yp_end_by(yp_proven(k, index));
}

static cl_int CL_API_CALL yp_clSetKernelExecInfo(cl_kernel h, cl_kernel_exec_info what, size_t size, const void *value) {
  if (!is(h, KERNEL)) return CL_INVALID_KERNEL;
  const object *k = obj(h);
  if (!offered(k->context)) return CL_INVALID_OPERATION;
  void *const *list = value;
  size_t n = value ? size / sizeof *list : 0;
  if (!value && (size || what != CL_KERNEL_EXEC_INFO_SVM_PTRS)) return CL_INVALID_VALUE;
  if (what == CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM) {
    cl_bool on;
    if (size != sizeof on) return CL_INVALID_VALUE;
    memcpy(&on, value, sizeof on);
    return on ? CL_INVALID_OPERATION : CL_SUCCESS;
  }
  if (what != CL_KERNEL_EXEC_INFO_SVM_PTRS || size % sizeof *list) return CL_INVALID_VALUE;
  for (size_t i = 0; i < n; i++)
    if (!yp_svm_at(k->context, list[i], 1)) return CL_INVALID_VALUE;
  yp_begin(k->node, OP_exec_info);
  yp_word(k->id);
  yp_word(n);
  for (size_t i = 0; i < n; i++) yp_word((uintptr_t)list[i]);
  return yp_sync(NULL);
}

#define SET(NAME) yp_dispatch.NAME = yp_##NAME;
void yp_fill_svm(void) {
  SET(clSVMAlloc) SET(clSVMFree) SET(clEnqueueSVMFree) SET(clEnqueueSVMMemcpy) SET(clEnqueueSVMMemFill) SET(clEnqueueSVMMap) SET(clEnqueueSVMUnmap) SET(clEnqueueSVMMigrateMem)
  SET(clSetKernelArgSVMPointer) SET(clSetKernelExecInfo)
}
