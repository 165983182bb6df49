/* Shared virtual memory of contexts over several nodes: memory that is at one address at each. */
#include "span.h"

static void *CL_API_CALL sp_clSVMAlloc(cl_context c, cl_svm_mem_flags flags, size_t size, cl_uint alignment) {
  span *m = sis(c, CONTEXT) ? sp_make(MEM, sp(c), NULL) : NULL;
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
  return sp_done(m, bad, NULL) ? p : NULL;
}

static void CL_API_CALL sp_clSVMFree(cl_context c, void *p) {
  span *m = p && sis(c, CONTEXT) ? sp_svm_at(sp(c), p, 1) : NULL;
  if (m && m->u.mem.svm == p) sp_release(m, MEM, 0);
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
  return sp_enqueue(&c, ends.n, ends.waits, ends.event);
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
  span *a = sp_svm_at(sp(q)->context, from, 1), *b = sp_svm_at(sp(q)->context, to, 1);
  if ((a && offset(a, from) + size > a->u.mem.size) || (b && offset(b, to) + size > b->u.mem.size)) return CL_INVALID_VALUE;
  command c = {.as = CL_COMMAND_SVM_MEMCPY, .queue = sp(q), .from = a, .to = b, .blocking = blocking, .n = size};
  cl_int bad;
  if (a && b) {
    c.type = CL_COMMAND_COPY_BUFFER, c.blocking = false, c.a[0] = offset(a, from), c.b[0] = offset(b, to);
  } else if (a || b) {
    c.type = a ? CL_COMMAND_READ_BUFFER : CL_COMMAND_WRITE_BUFFER, c.a[0] = a ? offset(a, from) : offset(b, to), c.host = a ? to : (void *)(uintptr_t)from;
    return sp_enqueue(&c, n, waits, event);
  }
  if (a) bad = sp_enqueue(&c, n, waits, event);
  else bad = in_program(q, yp_deed_of_copy(to, from, size), (yp_ends){n, waits, event, c.as});
  return bad || !blocking ? bad : sp_clFinish(q);
}

static cl_int CL_API_CALL sp_clEnqueueSVMMemFill(cl_command_queue q, void *p, const void *pattern, size_t pattern_size, size_t size, ENDS) {
  SVM_QUEUE(!p || !pattern || !pattern_size || pattern_size > MOST_PATTERN || pattern_size & (pattern_size - 1) || !size || (uintptr_t)p % pattern_size || size % pattern_size);
  span *m = sp_svm_at(sp(q)->context, p, size);
  if (!m) return CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_FILL_BUFFER, .as = CL_COMMAND_SVM_MEMFILL, .queue = sp(q), .to = m, .a = {offset(m, p)}, .n = size, .p = {pattern_size}};
  memcpy(c.pattern, pattern, pattern_size);
  return sp_enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueSVMMap(cl_command_queue q, cl_bool blocking, cl_map_flags flags, void *p, size_t size, ENDS) {
  SVM_QUEUE(!p || !size);
  span *m = sp_svm_at(sp(q)->context, p, size);
  if (!m) return CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_MAP_BUFFER, .as = CL_COMMAND_SVM_MAP, .queue = sp(q), .from = m, .blocking = blocking, .a = {offset(m, p)}, .n = size};
  cl_int bad;
  sp_map(&c, flags, NULL, NULL, n, waits, event, &bad);
  return bad;
}

static cl_int CL_API_CALL sp_clEnqueueSVMUnmap(cl_command_queue q, void *p, ENDS) {
  SVM_QUEUE(!p);
  span *m = sp_svm_at(sp(q)->context, p, 1);
  if (!m) return CL_INVALID_VALUE;
  cl_int bad = sp_unmap(q, m, p, CL_COMMAND_SVM_UNMAP, n, waits, event);
  return bad == CL_INVALID_VALUE ? marker(obj(q), (yp_ends){n, waits, event, CL_COMMAND_SVM_UNMAP}) : bad;
}

static cl_int CL_API_CALL sp_clEnqueueSVMMigrateMem(cl_command_queue q, cl_uint count, const void **list, const size_t *sizes, cl_mem_migration_flags flags, ENDS) {
  SVM_QUEUE(!list || !count || flags & ~(cl_mem_migration_flags)(CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED));
  span **all = calloc(count, sizeof *all);
  if (!all) return CL_OUT_OF_HOST_MEMORY;
  cl_int bad = CL_SUCCESS;
  for (cl_uint i = 0; i < count; i++)
    if (!(all[i] = sp_svm_at(sp(q)->context, list[i], sizes && sizes[i] ? sizes[i] : 1))) bad = CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_MIGRATE_MEM_OBJECTS, .as = CL_COMMAND_SVM_MIGRATE_MEM, .queue = sp(q), .mems = count, .mem = all, .flags = flags & CL_MIGRATE_MEM_OBJECT_HOST}; /* a part may be named */
  if (!bad) bad = sp_enqueue(&c, n, waits, event);
  free(all);
  return bad;
}

static cl_int CL_API_CALL sp_clSetKernelArgSVMPointer(cl_kernel h, cl_uint index, const void *p) {
  if (!sis(h, KERNEL)) return CL_INVALID_KERNEL;
  span *k = sp(h), *m = p ? sp_svm_at(k->context, p, 0) : NULL;
  if (!offered(k->context)) return CL_INVALID_OPERATION;
  if (index >= k->u.kernel.n) return CL_INVALID_ARG_INDEX;
  if (p && !m) return CL_INVALID_ARG_VALUE;
  cl_int bad = CL_SUCCESS;
  sp_enter();
  arg *old = &k->u.kernel.args[index], new = {.size = sizeof p, .object = m, .set = true, .reads = old->reads, .svm = true, .pointer = (void *)(uintptr_t)p};
  EACH(i, k->context) {
    k->u.kernel.bound[index][i] = 0;
    if (!bad) bad = sp_set_arg(k, index, &new, (int)i);
  }
  if (!bad) {
    const arg was = *old;
    *old = new;
    sp_hold_sampler(&was, -1), free(was.bytes);
  }
  sp_leave();
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
  for (size_t i = 0; i < n; i++) reached[i] = sp_svm_at(k->context, ((void *const *)value)[i], 1); /* it is one, as every node has found */
  sp_enter();
  if (what == CL_KERNEL_EXEC_INFO_SVM_PTRS) {
    span **old = k->u.kernel.reached;
    k->u.kernel.reached = reached, k->u.kernel.reaches = n, reached = old;
  }
  sp_leave();
  free(reached);
  return CL_SUCCESS;
}

void sp_fill_svm(cl_icd_dispatch *t) {
  SET(clSVMAlloc) SET(clSVMFree) SET(clEnqueueSVMFree) SET(clEnqueueSVMMemcpy) SET(clEnqueueSVMMemFill) SET(clEnqueueSVMMap) SET(clEnqueueSVMUnmap) SET(clEnqueueSVMMigrateMem)
  SET(clSetKernelArgSVMPointer) SET(clSetKernelExecInfo)
}
