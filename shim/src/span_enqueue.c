/* The calls that give commands to queues of contexts over several nodes. */
#include "span.h"

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
  return sp_enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueWriteBuffer(cl_command_queue q, cl_mem m, cl_bool blocking, size_t offset, size_t size, const void *p, ENDS) {
  MEMORY(m, false);
  if (hidden(m, CL_MEM_HOST_READ_ONLY)) return CL_INVALID_OPERATION;
  command c = {.type = CL_COMMAND_WRITE_BUFFER, .queue = sp(q), .to = sp(m), .blocking = blocking, .a = {offset}, .n = size, .host = (void *)(uintptr_t)p};
  return sp_enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueReadBufferRect(cl_command_queue q, cl_mem m, cl_bool blocking, const size_t *origin, const size_t *host, const size_t *region, size_t row,
                                                     size_t slice, size_t host_row, size_t host_slice, void *p, ENDS) {
  MEMORY(m, false);
  if (!origin || !host || !region) return CL_INVALID_VALUE;
  if (hidden(m, CL_MEM_HOST_WRITE_ONLY)) return CL_INVALID_OPERATION;
  command c = {.type = CL_COMMAND_READ_BUFFER_RECT, .queue = sp(q), .from = sp(m), .blocking = blocking, .a = VECTOR(origin), .b = VECTOR(host), .c = VECTOR(region),
               .p = {row, slice, host_row, host_slice}, .host = p};
  return sp_enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueWriteBufferRect(cl_command_queue q, cl_mem m, cl_bool blocking, const size_t *origin, const size_t *host, const size_t *region, size_t row,
                                                      size_t slice, size_t host_row, size_t host_slice, const void *p, ENDS) {
  MEMORY(m, false);
  if (!origin || !host || !region) return CL_INVALID_VALUE;
  if (hidden(m, CL_MEM_HOST_READ_ONLY)) return CL_INVALID_OPERATION;
  command c = {.type = CL_COMMAND_WRITE_BUFFER_RECT, .queue = sp(q), .to = sp(m), .blocking = blocking, .a = VECTOR(origin), .b = VECTOR(host), .c = VECTOR(region),
               .p = {row, slice, host_row, host_slice}, .host = (void *)(uintptr_t)p};
  return sp_enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueReadImage(cl_command_queue q, cl_mem m, cl_bool blocking, const size_t *origin, const size_t *region, size_t row, size_t slice, void *p, ENDS) {
  MEMORY(m, true);
  if (!origin || !region) return CL_INVALID_VALUE;
  if (hidden(m, CL_MEM_HOST_WRITE_ONLY)) return CL_INVALID_OPERATION;
  command c = {.type = CL_COMMAND_READ_IMAGE, .queue = sp(q), .from = sp(m), .blocking = blocking, .a = VECTOR(origin), .c = VECTOR(region), .p = {row, slice}, .host = p};
  return sp_enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueWriteImage(cl_command_queue q, cl_mem m, cl_bool blocking, const size_t *origin, const size_t *region, size_t row, size_t slice, const void *p,
                                                 ENDS) {
  MEMORY(m, true);
  if (!origin || !region) return CL_INVALID_VALUE;
  if (hidden(m, CL_MEM_HOST_READ_ONLY)) return CL_INVALID_OPERATION;
  command c = {.type = CL_COMMAND_WRITE_IMAGE, .queue = sp(q), .to = sp(m), .blocking = blocking, .a = VECTOR(origin), .c = VECTOR(region), .p = {row, slice},
               .host = (void *)(uintptr_t)p};
  return sp_enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueCopyBuffer(cl_command_queue q, cl_mem from, cl_mem to, size_t a, size_t b, size_t size, ENDS) {
  MEMORY(from, false);
  MEMORY(to, false);
  command c = {.type = CL_COMMAND_COPY_BUFFER, .queue = sp(q), .from = sp(from), .to = sp(to), .a = {a}, .b = {b}, .n = size};
  return sp_enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueCopyBufferRect(cl_command_queue q, cl_mem from, cl_mem to, const size_t *a, const size_t *b, const size_t *region, size_t from_row,
                                                     size_t from_slice, size_t to_row, size_t to_slice, ENDS) {
  MEMORY(from, false);
  MEMORY(to, false);
  if (!a || !b || !region) return CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_COPY_BUFFER_RECT, .queue = sp(q), .from = sp(from), .to = sp(to), .a = VECTOR(a), .b = VECTOR(b), .c = VECTOR(region),
               .p = {from_row, from_slice, to_row, to_slice}};
  return sp_enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueFillBuffer(cl_command_queue q, cl_mem m, const void *pattern, size_t pattern_size, size_t offset, size_t size, ENDS) {
  MEMORY(m, false);
  if (!pattern || !pattern_size || pattern_size > MOST_PATTERN) return CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_FILL_BUFFER, .queue = sp(q), .to = sp(m), .a = {offset}, .n = size, .p = {pattern_size}};
  memcpy(c.pattern, pattern, pattern_size);
  return sp_enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueFillImage(cl_command_queue q, cl_mem m, const void *color, const size_t *origin, const size_t *region, ENDS) {
  MEMORY(m, true);
  if (!color || !origin || !region) return CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_FILL_IMAGE, .queue = sp(q), .to = sp(m), .a = VECTOR(origin), .c = VECTOR(region)};
  memcpy(c.pattern, color, sp(m)->u.mem.format.image_channel_order == CL_DEPTH ? sizeof(cl_float) : 4 * sizeof(cl_float));
  return sp_enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueCopyImage(cl_command_queue q, cl_mem from, cl_mem to, const size_t *a, const size_t *b, const size_t *region, ENDS) {
  MEMORY(from, true);
  MEMORY(to, true);
  if (!a || !b || !region) return CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_COPY_IMAGE, .queue = sp(q), .from = sp(from), .to = sp(to), .a = VECTOR(a), .b = VECTOR(b), .c = VECTOR(region)};
  return sp_enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueCopyImageToBuffer(cl_command_queue q, cl_mem from, cl_mem to, const size_t *a, const size_t *region, size_t offset, ENDS) {
  MEMORY(from, true);
  MEMORY(to, false);
  if (!a || !region) return CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_COPY_IMAGE_TO_BUFFER, .queue = sp(q), .from = sp(from), .to = sp(to), .a = VECTOR(a), .b = {offset}, .c = VECTOR(region)};
  return sp_enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueCopyBufferToImage(cl_command_queue q, cl_mem from, cl_mem to, size_t offset, const size_t *b, const size_t *region, ENDS) {
  MEMORY(from, false);
  MEMORY(to, true);
  if (!b || !region) return CL_INVALID_VALUE;
  command c = {.type = CL_COMMAND_COPY_BUFFER_TO_IMAGE, .queue = sp(q), .from = sp(from), .to = sp(to), .a = {offset}, .b = VECTOR(b), .c = VECTOR(region)};
  return sp_enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueMigrateMemObjects(cl_command_queue q, cl_uint mems, const cl_mem *mem, cl_mem_migration_flags flags, ENDS) {
  if (!sis(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!mems || !mem || flags & ~(cl_mem_migration_flags)(CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED)) return CL_INVALID_VALUE;
  for (cl_uint i = 0; i < mems; i++) {
    if (!sis(mem[i], MEM)) return CL_INVALID_MEM_OBJECT;
    if (sp(mem[i])->context != sp(q)->context) return CL_INVALID_CONTEXT;
  }
  command c = {.type = CL_COMMAND_MIGRATE_MEM_OBJECTS, .queue = sp(q), .mems = mems, .mem = (span **)(uintptr_t)mem, .flags = flags};
  return sp_enqueue(&c, n, waits, event);
}

/* sp_map maps at the device of the queue. What the program gets is that node's mapping. Contents that are not
 * there, or may not be, are read into it when they have come: the call waits for them only if it is to. */
void *sp_map(command *c, cl_map_flags flags, size_t *row, size_t *slice, cl_uint n, const cl_event *waits, cl_event *event, cl_int *err) {
  const cl_map_flags writes = CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;
  span *m = c->from, *q = c->queue;
  if (!sis(q, QUEUE)) FAIL(CL_INVALID_COMMAND_QUEUE);
  bool image = c->type == CL_COMMAND_MAP_IMAGE;
  if (!sis(m, MEM) || m->u.mem.image != image) FAIL(CL_INVALID_MEM_OBJECT);
  if (flags & ~(CL_MAP_READ | writes) || (flags & CL_MAP_WRITE_INVALIDATE_REGION && flags & (CL_MAP_READ | CL_MAP_WRITE))) FAIL(CL_INVALID_VALUE);
  if (m->u.mem.flags & CL_MEM_HOST_NO_ACCESS || (m->u.mem.flags & CL_MEM_HOST_WRITE_ONLY && flags & CL_MAP_READ) || (m->u.mem.flags & CL_MEM_HOST_READ_ONLY && flags & writes))
    FAIL(CL_INVALID_OPERATION);
  cl_int bad = sp_wrong(c, n, waits);
  if (bad) FAIL(bad);
  if (!image && (!c->n || c->a[0] > m->u.mem.size || c->n > m->u.mem.size - c->a[0])) FAIL(CL_INVALID_VALUE); /* of nothing it is said that it is to be written */
  mapping *p = calloc(1, sizeof *p);
  if (!p) FAIL(CL_OUT_OF_HOST_MEMORY);
  const int node = q->node;
  size_t at = image ? 0 : c->a[0], size = image ? m->u.mem.size : c->n;
  *p = (mapping){NULL, node, flags & writes, at, at + size, NULL, NULL};
  const command before = {.type = c->type, .queue = q, .waits = n, .wait = (span **)(uintptr_t)waits}; /* what the map waits for, without the memory */
  lack l;
  sp_enter();
  while (c->blocking && sp_early(&before)) sp_await();
  const bool fresh = flags & CL_MAP_WRITE_INVALIDATE_REGION;
  size_t from = at, bytes = size;
  span *root = sp_range(m, &from, &bytes);
  const bool late = sp_early(&before) || (!c->blocking && (sp_comes(root, node, NULL) || (!fresh && sp_lacks(m, at, size, node, &l))));
  if (!late) bad = sp_ready(&before);
  if (!late && !bad) bad = sp_acquire(m, at, fresh ? 0 : size, node); /* nothing comes while the program writes there */
  if (!late && !bad && fresh && !image && !(bad = sp_borders(m, at, size)) && bytes) sp_mark(root, from, from + bytes, 1u << node, 0);
  cl_event list[n + 1];
  cl_uint own = 0;
  for (cl_uint i = 0; i < n && !bad && !late; i++) {
    const span *e = before.wait[i];
    if (e->in[node] && !e->u.event.over) D.clRetainEvent(list[own++] = e->in[node]);
    else bad = sp_ended(e);
  }
  cl_mem in = bad ? NULL : sp_view(m, node, NULL, &bad);
  cl_event made = NULL;
  cl_event *out = event ? &made : NULL;
  m->holds++;
  sp_leave();
  cl_command_queue inner = q->in[node];
  const size_t region[3] = {image ? c->c[0] : c->n, image ? c->c[1] : 1, image ? c->c[2] : 1};
  if (!bad && late) p->at = yp_map_blank(obj(inner), obj(in), flags, c->a, region, row, slice, &bad);
  else if (!bad && image) p->at = D.clEnqueueMapImage(inner, in, c->blocking, flags, c->a, c->c, row, slice, own, own ? list : NULL, out, &bad);
  else if (!bad) p->at = D.clEnqueueMapBuffer(inner, in, c->blocking, flags, c->a[0], c->n, own, own ? list : NULL, out, &bad);
  while (own > 0) D.clReleaseEvent(list[--own]);
  sp_enter();
  if (bad) m->holds--, sp_gone(m);
  else p->next = m->u.mem.maps, m->u.mem.maps = p; /* it stays while it is mapped */
  sp_leave();
  if (bad) {
    free(p);
    FAIL(bad);
  }
  if (late) { /* the contents come when they are there */
    c->host = p->at, c->blank = fresh;
    if (image) c->p[0] = *row, c->p[1] = slice ? *slice : 0;
    cl_event read = NULL;
    bad = sp_enqueue(c, n, waits, &read);
    sp_enter();
    if (bad) {
      mapping **i = &m->u.mem.maps;
      while (*i != p) i = &(*i)->next;
      *i = p->next;
      m->holds--, sp_gone(m);
    } else {
      p->read = sp(read), p->read->holds++;
      if (event) *event = read;
      else p->read->refs--;
    }
    sp_leave();
    if (bad) {
      yp_unmap_blank(obj(inner), obj(in), p->at);
      free(p);
      FAIL(bad);
    }
  } else if (event) {
    span *e = sp_make(EVENT, q->context, q);
    if (!e) FAIL(CL_OUT_OF_HOST_MEMORY);
    e->u.event.type = told_as(c), e->u.event.queue = q, e->node = node, e->in[node] = made;
    *event = (cl_event)e;
  }
  if (err) *err = CL_SUCCESS;
  return p->at;
}

static void *CL_API_CALL sp_clEnqueueMapBuffer(cl_command_queue q, cl_mem m, cl_bool blocking, cl_map_flags flags, size_t offset, size_t size, ENDS, cl_int *err) {
  command c = {.type = CL_COMMAND_MAP_BUFFER, .queue = sp(q), .from = sp(m), .blocking = blocking, .a = {offset}, .n = size};
  return sp_map(&c, flags, NULL, NULL, n, waits, event, err);
}

static void *CL_API_CALL sp_clEnqueueMapImage(cl_command_queue q, cl_mem m, cl_bool blocking, cl_map_flags flags, const size_t *origin, const size_t *region, size_t *row, size_t *slice,
                                              ENDS, cl_int *err) {
  if (!origin || !region || !row) FAIL(CL_INVALID_VALUE);
  command c = {.type = CL_COMMAND_MAP_IMAGE, .queue = sp(q), .from = sp(m), .blocking = blocking, .a = VECTOR(origin), .c = VECTOR(region)};
  return sp_map(&c, flags, row, slice, n, waits, event, err);
}

static cl_int sync_point(cl_command_type type, cl_command_type as, cl_command_queue q, ENDS) {
  command c = {.type = type, .as = as, .queue = sp(q)};
  return sp_enqueue(&c, n, waits, event);
}

/* sp_unmap unmaps at the node of the mapping. In the queue of another node a marker before it and one behind it keep its place. */
cl_int sp_unmap(cl_command_queue q, span *m, void *at, cl_command_type as, ENDS) {
  command c = {.type = CL_COMMAND_UNMAP_MEM_OBJECT, .as = as, .queue = sp(q), .to = m};
  cl_int bad = sp_wrong(&c, n, waits);
  if (bad) return bad; /* it stays mapped */
  sp_enter();
  mapping *p = m->u.mem.maps;
  while (p && p->at != at) p = p->next;
  const bool elsewhere = p && p->node != sp(q)->node;
  sp_leave();
  cl_event before = NULL, unmapped = NULL;
  if (elsewhere && (bad = sync_point(CL_COMMAND_MARKER, 0, q, n, waits, &before))) return bad;
  sp_enter();
  mapping **i = &m->u.mem.maps;
  while (*i && *i != p) i = &(*i)->next;
  if ((p = *i)) *i = p->next;
  sp_leave();
  c.map = p;
  if (!p) bad = CL_INVALID_VALUE;
  else if (elsewhere) bad = sp_enqueue(&c, 1, &before, &unmapped);
  else bad = sp_enqueue(&c, n, waits, event);
  if (elsewhere && !bad) bad = sync_point(CL_COMMAND_MARKER, as ? as : c.type, q, 1, &unmapped, event);
  if (before) sp_release(before, EVENT, 0);
  if (unmapped) sp_release(unmapped, EVENT, 0);
  sp_enter();
  if (p) m->holds--, sp_gone(m);
  sp_leave();
  return bad;
}

static cl_int CL_API_CALL sp_clEnqueueUnmapMemObject(cl_command_queue q, cl_mem m, void *at, ENDS) {
  if (!sis(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!sis(m, MEM)) return CL_INVALID_MEM_OBJECT;
  return sp_unmap(q, sp(m), at, 0, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueMarkerWithWaitList(cl_command_queue q, ENDS) { return sync_point(CL_COMMAND_MARKER, 0, q, n, waits, event); }
static cl_int CL_API_CALL sp_clEnqueueMarker(cl_command_queue q, cl_event *event) { return sis(q, QUEUE) && !event ? CL_INVALID_VALUE : sync_point(CL_COMMAND_MARKER, 0, q, 0, NULL, event); }
static cl_int CL_API_CALL sp_clEnqueueBarrierWithWaitList(cl_command_queue q, ENDS) { return sync_point(CL_COMMAND_BARRIER, 0, q, n, waits, event); }
static cl_int CL_API_CALL sp_clEnqueueBarrier(cl_command_queue q) { return sync_point(CL_COMMAND_BARRIER, 0, q, 0, NULL, NULL); }
static cl_int CL_API_CALL sp_clEnqueueWaitForEvents(cl_command_queue q, cl_uint n, const cl_event *waits) {
  if (sis(q, QUEUE) && (!n || !waits)) return CL_INVALID_VALUE;
  const cl_int bad = sync_point(CL_COMMAND_BARRIER, 0, q, n, waits, NULL);
  return bad == CL_INVALID_EVENT_WAIT_LIST ? CL_INVALID_EVENT : bad;
}

static cl_int CL_API_CALL sp_clFlush(cl_command_queue q) { return sis(q, QUEUE) ? D.clFlush(sp(q)->in[sp(q)->node]) : CL_INVALID_COMMAND_QUEUE; }

cl_int CL_API_CALL sp_clFinish(cl_command_queue q) {
  if (!sis(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  command all = {.type = CL_COMMAND_MARKER, .queue = sp(q)};
  const uint64_t notices = yp_notices();
  sp_enter();
  while (sp_early(&all)) sp_await();
  sp_leave();
  cl_int status = D.clFinish(sp(q)->in[sp(q)->node]);
  if (!status) yp_hear(0, NULL, q, notices);
  return status ? status : sp(q)->context->u.ctx.lost;
}

static cl_int CL_API_CALL sp_clEnqueueNativeKernel(cl_command_queue q, void(CL_CALLBACK *call)(void *), void *args, size_t size, cl_uint mems, const cl_mem *mem, const void **at,
                                                   ENDS) {
  (void)call, (void)args, (void)size, (void)mems, (void)mem, (void)at, (void)n, (void)waits, (void)event;
  return sis(q, QUEUE) ? CL_INVALID_OPERATION : CL_INVALID_COMMAND_QUEUE;
}

static cl_int CL_API_CALL sp_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint dims, const size_t *offset, const size_t *global, const size_t *local, ENDS) {
  if (!sis(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!sis(k, KERNEL)) return CL_INVALID_KERNEL;
  if (dims < 1 || dims > 3) return CL_INVALID_WORK_DIMENSION;
  command c = {.type = CL_COMMAND_NDRANGE_KERNEL, .queue = sp(q), .kernel = sp(k), .dims = dims};
  for (cl_uint i = 0; i < dims; i++) c.a[i] = offset ? offset[i] : 0, c.b[i] = global ? global[i] : 0, c.c[i] = local ? local[i] : 0;
  c.offset = offset ? c.a : NULL, c.global = global ? c.b : NULL, c.local = local ? c.c : NULL;
  return sp_enqueue(&c, n, waits, event);
}

static cl_int CL_API_CALL sp_clEnqueueTask(cl_command_queue q, cl_kernel k, ENDS) {
  if (!sis(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!sis(k, KERNEL)) return CL_INVALID_KERNEL;
  command c = {.type = CL_COMMAND_TASK, .queue = sp(q), .kernel = sp(k)};
  return sp_enqueue(&c, n, waits, event);
}

void sp_fill_commands(cl_icd_dispatch *t) {
  SET(clEnqueueReadBuffer) SET(clEnqueueWriteBuffer) SET(clEnqueueReadBufferRect) SET(clEnqueueWriteBufferRect) SET(clEnqueueReadImage) SET(clEnqueueWriteImage)
  SET(clEnqueueCopyBuffer) SET(clEnqueueCopyBufferRect) SET(clEnqueueFillBuffer) SET(clEnqueueFillImage) SET(clEnqueueCopyImage) SET(clEnqueueCopyImageToBuffer)
  SET(clEnqueueCopyBufferToImage) SET(clEnqueueMigrateMemObjects) SET(clEnqueueMapBuffer) SET(clEnqueueMapImage) SET(clEnqueueUnmapMemObject) SET(clEnqueueMarker)
  SET(clEnqueueMarkerWithWaitList) SET(clEnqueueBarrier) SET(clEnqueueBarrierWithWaitList) SET(clEnqueueWaitForEvents) SET(clEnqueueNativeKernel) SET(clEnqueueNDRangeKernel)
  SET(clEnqueueTask) SET(clFinish) SET(clFlush)
}
