/* Commands of contexts over several nodes: what they wait for and need, when they are sent, and to which node. */
#include "span.h"

static command *aside, **last_aside = &aside; /* in their order */
static bool sends[YP_NODES];                  /* a thread sends what was put aside for the node */

static bool in_order(const span *q) { return !(q->u.queue.flags & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE); }

/* fence reports whether what comes behind a command in its queue waits for it, even if the queue keeps no order. */
static bool fence(const command *c) { return c->type == CL_COMMAND_BARRIER; }

/* last reports whether a command waits for all that is before it in its queue. */
static bool last(const command *c) { return in_order(c->queue) || (!c->waits && (c->type == CL_COMMAND_MARKER || fence(c))); }

/* sp_early reports whether a command depends on one that was not sent yet, or on an event that the program is yet to set. */
bool sp_early(const command *c) {
  const span *q = c->queue;
  for (cl_uint i = 0; i < c->waits; i++)
    if (pending(c->wait[i])) return true;
  return last(c) ? q->u.queue.aside : q->u.queue.fences;
}

#define WAITS n, n ? list : NULL, out

static cl_int launch(command *c, int node, cl_command_queue q, cl_uint n, const cl_event *list, cl_event *out) {
  span *k = c->kernel;
  const arg *args = c->args ? c->args : k->u.kernel.args;
  cl_int bad = CL_SUCCESS;
  if (!k->in[node]) return CL_INVALID_PROGRAM_EXECUTABLE;
  for (cl_uint i = 0; i < k->u.kernel.n && !bad; i++) {
    if (is_memory(&args[i])) bad = sp_borders(args[i].object, 0, args[i].object->u.mem.size);
    if (!bad && (c->args || is_memory(&args[i]))) bad = sp_set_arg(k, i, &args[i], node);
  }
  if (!bad) bad = c->type == CL_COMMAND_TASK ? D.clEnqueueTask(q, k->in[node], WAITS) : D.clEnqueueNDRangeKernel(q, k->in[node], c->dims, c->offset, c->global, c->local, WAITS);
  for (cl_uint i = 0; i < k->u.kernel.n && !bad; i++)
    if (is_memory(&args[i]) && !args[i].reads && !(args[i].object->u.mem.flags & CL_MEM_READ_ONLY)) sp_wrote(args[i].object, 0, args[i].object->u.mem.size, node, q, *out);
  for (size_t i = 0; i < k->u.kernel.reaches && !bad; i++) sp_wrote(k->u.kernel.reached[i], 0, k->u.kernel.reached[i]->u.mem.size, node, q, *out);
  for (cl_uint i = 0; c->args && i < k->u.kernel.n; i++)
    if (!is_memory(&k->u.kernel.args[i])) sp_set_arg(k, i, &k->u.kernel.args[i], node);
  return bad;
}

/* extent is from where to where rows in slices reach. */
static void extent(const size_t *origin, const size_t *region, size_t row, size_t slice, size_t *at, size_t *n) {
  if (!row) row = region[0];
  if (!slice) slice = row * region[1];
  *at = origin[0] + origin[1] * row + origin[2] * slice;
  *n = region[0] && region[1] && region[2] ? (region[2] - 1) * slice + (region[1] - 1) * row + region[0] : 0;
}

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
  if (m && m->read) m->read->holds--, sp_gone(m->read);
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
  if (c->blank) t.fn = 0;
  return t;
}

/* needs finds something that a command's node lacks for it. */
static bool needs(const command *c, lack *l) {
  const int node = at_node(c);
  const touched t = touches(c);
  const span *k = c->kernel;
  if (c->from && sp_lacks(c->from, t.fa, t.fn, node, l)) return true;
  if (c->to && !t.whole && sp_lacks(c->to, t.ta, t.tn, node, l)) return true;
  if (!(c->flags & (CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED)))
    for (cl_uint i = 0; i < c->mems; i++)
      if (sp_lacks(c->mem[i], 0, c->mem[i]->u.mem.size, node, l)) return true;
  const arg *args = c->args ? c->args : k ? k->u.kernel.args : NULL;
  for (cl_uint i = 0; k && i < k->u.kernel.n; i++)
    if (is_memory(&args[i]) && sp_lacks(args[i].object, 0, args[i].object->u.mem.size, node, l)) return true;
  for (size_t i = 0; k && i < k->u.kernel.reaches; i++)
    if (sp_lacks(k->u.kernel.reached[i], 0, k->u.kernel.reached[i]->u.mem.size, node, l)) return true;
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
  while (x && !(x->node == at_node(c) && uses(c, x->root))) x = x->later;
  return x;
}

/* run sends a command of which ready has said that it can be, and says how to wait for it if `wanted`. The caller has the
 * lock, but not while the program's memory is read or written. */
static cl_int run(command *c, bool wanted, cl_event *event) {
  int node = at_node(c);
  span *ctx = c->queue->context, *from = c->from, *to = c->to;
  cl_int bad = CL_SUCCESS;
  cl_command_queue q = elsewhere(c) ? sp_mover(ctx, node, &bad) : c->queue->in[node];
  cl_uint gates = 0;
  for (arrival *x = sp_arrivals; (x = coming(c, x)); x = x->later) gates++;
  cl_event list[c->waits + gates + 2], *out = wanted || to || c->kernel || c->mems ? event : NULL;
  cl_uint n = 0;
  *event = NULL;
  for (cl_uint i = 0; i < c->waits && !bad; i++) {
    span *e = c->wait[i];
    if (e->in[node] && !e->u.event.over) list[n++] = e->in[node];
    else if (!c->before) bad = sp_ended(e); /* else it was not named */
  }
  if (c->before) list[n++] = c->before;
  const touched t = touches(c);
  cl_mem a = from && !bad ? sp_view(from, node, NULL, &bad) : NULL, b = to && !bad ? sp_view(to, node, NULL, &bad) : NULL;
  for (cl_uint i = 0; i < c->mems && !bad; i++)
    if (!(c->flags & CL_MIGRATE_MEM_OBJECT_HOST)) sp_view(c->mem[i], node, NULL, &bad);
  if (!bad && to) bad = sp_borders(to, t.ta, t.tn);
  const cl_uint own = n;
  for (arrival *x = sp_arrivals; !bad && (x = coming(c, x)); x = x->later) {
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
    sp_leave();
  }
  switch (c->blank ? CL_COMMAND_MARKER : c->type) {
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
    sp_enter();
    held->holds--;
  }
  if (!bad && to && (!c->map || c->map->write)) sp_wrote(to, t.ta, t.tn, node, q, *out);
  if (!bad)
    for (cl_uint i = 0; i < c->mems; i++)
      if (c->flags & CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED && !(c->flags & CL_MIGRATE_MEM_OBJECT_HOST)) sp_wrote(c->mem[i], 0, c->mem[i]->u.mem.size, node, q, *out);
  if (held) sp_gone(held);
  if (*event && !wanted) D.clReleaseEvent(*event), *event = NULL;
  return bad;
}

/* hold_all holds, by 1, or lets go, by -1, all that a command that was put aside needs. */
static void hold_all(command *c, int by) {
  cl_uint args = c->args ? c->kernel->u.kernel.n : 0;
  for (cl_uint i = 0; i < args; i++)
    if (c->args[i].object) c->args[i].object->holds += by, sp_gone(c->args[i].object);
  span *of[] = {c->from, c->to, c->event, c->kernel, c->queue};
  for (cl_uint i = 0; i < c->mems; i++) c->mem[i]->holds += by, sp_gone(c->mem[i]);
  for (cl_uint i = 0; i < c->waits; i++) c->wait[i]->holds += by, sp_gone(c->wait[i]);
  for (cl_uint i = 0; i < sizeof of / sizeof *of; i++)
    if (of[i]) of[i]->holds += by, sp_gone(of[i]);
}

static void free_command(command *c) {
  cl_uint args = c->args ? c->kernel->u.kernel.n : 0;
  hold_all(c, -1);
  sp_free_args(c->args, args);
  unmapped(c->map);
  if (c->before) D.clReleaseEvent(c->before);
  free(c->mem), free(c->wait), free(c);
}

/* sp_ready sees to all that a command waits for elsewhere and that its node lacks for it, by gates if it can wait for these,
 * and if it blocks also waits for what was put aside. The caller has the lock, but not while this waits. */
cl_int sp_ready(const command *c) {
  const int node = at_node(c);
  const bool gates = !c->blocking && !elsewhere(c);
  cl_int bad = CL_SUCCESS;
  while (!bad && !(bad = c->queue->context->u.ctx.lost)) {
    lack l;
    span *e;
    if (c->blocking && sp_early(c)) {
      sp_await();
    } else if (gates && (e = far(c))) {
      bad = sp_gate(e, node);
    } else if ((e = far(c)) || (e = unread(c))) {
      e->holds++;
      sp_leave();
      sp_wait_over(e);
      sp_enter();
      e->holds--, sp_gone(e);
    } else if (needs(c, &l)) {
      bad = sp_bring(l, node);
    } else if (!gates && coming(c, sp_arrivals)) {
      sp_await();
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
    bool can = at_node(c) == node && !(last(c) ? q->u.queue.passed : q->u.queue.fences_passed);
    q->u.queue.passed++, q->u.queue.fences_passed += fence(c);
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
  sp_enter();
  while (any_aside(node)) {
    command *c = next(node);
    if (!c) {
      sp_await();
      continue;
    }
    cl_event in = NULL;
    span *q = c->queue;
    cl_int bad = sp_ready(c);
    if (!bad) bad = run(c, true, &in);
    if (in) D.clFlush(queue_at(q, node));
    command **at = &aside;
    while (*at != c) at = &(*at)->next;
    if (!(*at = c->next)) last_aside = at;
    q->u.queue.aside--, q->u.queue.fences -= fence(c);
    sp_sent(c->event, bad, in);
    free_command(c);
    sp_leave();
    sp_enter();
  }
  sends[node] = false;
  sp_leave();
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
    sp_free_args(k->args, of ? of->u.kernel.n : 0);
    free(k->mem), free(k->wait), free(k);
    return CL_OUT_OF_HOST_MEMORY;
  }
  hold_all(k, 1);
  k->next = NULL, *last_aside = k, last_aside = &k->next;
  c->queue->u.queue.aside++, c->queue->u.queue.fences += fence(c);
  sp_news();
  return CL_SUCCESS;
}

/* mark_aside puts a marker without a list aside where the queue keeps no order. It must not wait for what comes behind it and is
 * sent before it, nor that for it: so it waits for a marker that is sent now, and for what was put aside. The caller has the lock. */
static cl_int mark_aside(command *c) {
  span *q = c->queue, **list = malloc(q->u.queue.aside * sizeof *list);
  if (!list) return CL_OUT_OF_HOST_MEMORY;
  c->waits = 0;
  for (const command *k = aside; k; k = k->next)
    if (k->queue == q) list[c->waits++] = k->event;
  c->wait = list;
  cl_int bad = D.clEnqueueMarkerWithWaitList(q->in[q->node], 0, NULL, &c->before);
  if (!bad && (bad = put_aside(c))) D.clReleaseEvent(c->before);
  free(list);
  return bad;
}

/* sp_wrong says what is wrong with a command's queue, memory and list of events. */
cl_int sp_wrong(const command *c, cl_uint n, const cl_event *waits) {
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

/* sp_enqueue sends a command, or puts it aside. */
cl_int sp_enqueue(command *c, cl_uint n, const cl_event *waits, cl_event *event) {
  span *q = c->queue;
  cl_int bad = sp_wrong(c, n, waits);
  if (bad) return bad;
  c->waits = n, c->wait = (span **)(uintptr_t)waits;
  span *e = sp_make(EVENT, q->context, q);
  if (!e) return CL_OUT_OF_HOST_MEMORY;
  e->u.event.type = told_as(c), e->u.event.queue = q, e->node = at_node(c), e->u.event.pending = true;
  c->event = e;
  cl_event in = NULL;
  sp_enter();
  bool later = !c->blocking && sp_early(c);
  bad = !later ? sp_ready(c) : c->type == CL_COMMAND_MARKER && !n && !in_order(q) && q->u.queue.aside ? mark_aside(c) : put_aside(c);
  if (later) {
    later = !bad;
  } else {
    if (!bad) bad = run(c, event, &in);
    sp_sent(e, bad, in);
  }
  if (bad || !event) e->refs = 0, sp_gone(e);
  if (!later) unmapped(c->map);
  sp_leave();
  if (!bad && event) *event = (cl_event)e;
  return bad;
}

void sp_commands_in_child(void) { aside = NULL, last_aside = &aside, memset(sends, 0, sizeof sends); }
