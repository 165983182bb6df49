/* Where the newest contents of memory are, of each part of it, and how they come from one node to another. */
#include "span.h"

enum { PIECE = YP_LANE_PIECE }; /* bytes copied between nodes at once */
enum { HANDS = 3 };       /* threads that copy of one arrival: while one writes what it has read others read on */
enum { MOVERS = 8 };      /* threads that copy, at most */

arrival *sp_arrivals; /* in their order */
static arrival **last_arrival = &sp_arrivals;
static int movers; /* threads that see to them */

/* sp_keep_writers lets go those of a node, or those that have ended (-1). */
void sp_keep_writers(span *m, int node) {
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

cl_command_queue sp_mover(span *c, int node, cl_int *err) {
  cl_device_id d = c->u.ctx.devices[node];
  *err = CL_SUCCESS;
  if (!c->u.ctx.movers[node]) c->u.ctx.movers[node] = D.clCreateCommandQueue(c->in[node], d, 0, err);
  return c->u.ctx.movers[node];
}

/* unit is how many bytes an arrival counts as one. */
static size_t unit(const arrival *x) {
  const object *o = obj(x->old);
  return !x->root->u.mem.image ? 1 : o->u.mem.d > 1 ? o->u.mem.pixel * o->u.mem.w * o->u.mem.h : o->u.mem.pixel * o->u.mem.w;
}

/* piece is how much of an arrival is brought at once. */
static size_t piece(const arrival *x) { return unit(x) < PIECE ? PIECE / unit(x) : 1; }

/* fetch brings a piece, by way of *own, which it makes if need be. */
static cl_int fetch(const sp_piece *p, uint8_t **own) {
  if (sp_pass(p)) return CL_SUCCESS;
  if (!*own && !(*own = malloc(p->bytes))) return CL_OUT_OF_HOST_MEMORY; /* what comes next is no more */
  cl_int bad;
  if (p->image) {
    bad = D.clEnqueueReadImage(p->out, p->old, CL_TRUE, p->origin, p->region, 0, 0, *own, 0, NULL, NULL);
    return bad ? bad : D.clEnqueueWriteImage(p->in, p->new, CL_TRUE, p->origin, p->region, 0, 0, *own, 0, NULL, NULL);
  }
  bad = D.clEnqueueReadBuffer(p->out, p->old, CL_TRUE, p->origin[0], p->bytes, *own, 0, NULL, NULL);
  return bad ? bad : D.clEnqueueWriteBuffer(p->in, p->new, CL_TRUE, p->origin[0], p->bytes, *own, 0, NULL, NULL);
}

/* piece_of is n of an arrival. */
static sp_piece piece_of(const arrival *x, size_t at, size_t n) {
  sp_piece p = {.from = x->source, .to = x->node, .out = x->out, .in = x->in, .old = x->old, .new = x->new, .image = x->root->u.mem.image, .origin = {at}, .region = {n, 1, 1}, .bytes = n * unit(x)};
  if (p.image) {
    const object *o = obj(x->old);
    const int in = o->u.mem.d > 1 ? 2 : 1;
    p.region[0] = o->u.mem.w, p.region[1] = o->u.mem.h, p.region[2] = o->u.mem.d;
    p.origin[0] = 0, p.origin[in] = at, p.region[in] = n;
  }
  return p;
}

/* sp_range is which bytes of its root n bytes of memory from a place are. */
span *sp_range(span *m, size_t *at, size_t *n) {
  if (*at > m->u.mem.size) *at = m->u.mem.size; /* such a command fails at the node */
  if (*n > m->u.mem.size - *at) *n = m->u.mem.size - *at;
  for (; m->parent; m = m->parent) *at += m->u.mem.origin;
  return m;
}

/* sp_lacks finds the first of memory that a node lacks. */
bool sp_lacks(span *m, size_t at, size_t n, int node, lack *l) {
  span *r = sp_range(m, &at, &n);
  size_t from = 0;
  for (size_t i = 0; n && i < r->u.mem.n; from = r->u.mem.parts[i++].end) {
    const part *p = &r->u.mem.parts[i];
    if (p->end <= at || from >= at + n || !p->at || p->at & 1u << node) continue;
    *l = (lack){r, from > at ? from : at, p->end < at + n ? p->end : at + n, p->at};
    return true;
  }
  return false;
}

/* sp_mark says of a part of memory where its newest contents are: there only, or there, too, where one of others still is. */
bool sp_mark(span *r, size_t from, size_t to, uint32_t there, uint32_t with) {
  if (!split(r, from) || !split(r, to)) return false;
  size_t start = 0;
  for (size_t i = 0; i < r->u.mem.n; start = r->u.mem.parts[i++].end) {
    part *p = &r->u.mem.parts[i];
    if (start >= from && start < to && (!with || p->at & with)) p->at = with ? p->at | there : there;
  }
  join(r);
  return true;
}

/* sp_comes reports whether contents of memory are on their way to a node, among those asked for before others. */
bool sp_comes(const span *root, int node, const arrival *before) {
  for (const arrival *x = sp_arrivals; x != before; x = x->later)
    if (x->root == root && x->node == node) return true;
  return false;
}

static void let_go(arrival *x) {
  for (cl_uint i = 0; i < x->afters; i++) D.clReleaseEvent(x->after[i]);
  free(x->after);
}

static void *move_all(void *none);

/* hire has more threads see to what is to be brought. */
static bool hire(size_t n) {
  for (; n > 0 && movers < MOVERS && yp_thread(move_all, NULL); n--) movers++;
  return movers > 0;
}

/* due is the first arrival that a thread can help with. */
static arrival *due(void) {
  arrival *x = sp_arrivals;
  while (x && !(x->there ? x->next < x->to && x->hands < HANDS : !x->hands)) x = x->later;
  return x;
}

/* carry brings pieces of an arrival until others have taken on the rest. The caller has the lock, but not meanwhile. */
static void carry(arrival *x) {
  uint8_t *own = NULL;
  while (x->next < x->to) {
    const sp_piece p = piece_of(x, x->next, x->to - x->next < piece(x) ? x->to - x->next : piece(x));
    x->next += p.bytes / unit(x);
    sp_leave();
    cl_int bad = fetch(&p, &own);
    sp_enter();
    if (bad) x->bad = bad, x->next = x->to;
  }
  free(own);
}

/* landed ends an arrival. The caller has the lock, but not meanwhile. */
static void landed(arrival *x) {
  arrival **at = &sp_arrivals;
  while (*at != x) at = &(*at)->later;
  if (!(*at = x->later)) last_arrival = at;
  if (x->bad) x->root->context->u.ctx.lost = x->bad;
  sp_news();
  sp_leave();
  if (x->gate) D.clSetUserEventStatus(x->gate, x->bad ? x->bad : CL_COMPLETE), D.clReleaseEvent(x->gate);
  let_go(x);
  sp_enter();
  x->root->holds--, sp_gone(x->root);
  free(x);
}

/* move_all brings what is to be brought, the first first, until there is nothing. */
static void *move_all(void *none) {
  sp_enter();
  for (arrival *x; (x = due());) {
    x->hands++;
    if (!x->there) {
      while (sp_comes(x->root, x->source, x)) sp_await();
      sp_leave();
      for (cl_uint i = 0; i < x->afters; i++) D.clWaitForEvents(1, &x->after[i]); /* what has failed has come to its end, too */
      sp_enter();
      x->there = true;
      const size_t more = (x->to - x->next - 1) / piece(x);
      hire(more < HANDS - 1 ? more : HANDS - 1);
    }
    carry(x);
    if (--x->hands == 0) landed(x);
  }
  movers--;
  sp_leave();
  return none;
}

/* sp_bring has what a node lacks brought there. The caller has the lock. */
cl_int sp_bring(lack l, int node) {
  arrival *x = calloc(1, sizeof *x);
  if (!x) return CL_OUT_OF_HOST_MEMORY;
  span *root = l.root, *c = root->context;
  cl_int bad = CL_SUCCESS;
  int source = -1;
  for (int s = 0; s < YP_NODES; s++)
    if (l.at & 1u << s && (source < 0 || sp_comes(root, source, NULL))) source = s;
  *x = (arrival){.root = root, .next = l.from, .to = l.to, .source = source, .node = node, .old = root->in[source]};
  if (root->u.mem.image) x->to = obj(x->old)->u.mem.d > 1 ? obj(x->old)->u.mem.d : obj(x->old)->u.mem.h;
  x->after = calloc(root->u.mem.written + 1, sizeof *x->after);
  if (!x->after) bad = CL_OUT_OF_HOST_MEMORY;
  for (size_t i = 0; !bad && i < root->u.mem.written; i++) {
    const writer *w = &root->u.mem.writers[i];
    if (w->node == source && w->from < l.to && l.from < w->to) D.clRetainEvent(x->after[x->afters++] = w->done);
  }
  if (!bad) x->out = sp_mover(c, source, &bad);
  if (!bad) x->in = sp_mover(c, node, &bad);
  if (!bad) x->new = sp_view(root, node, NULL, &bad);
  if (!bad && !hire(1)) bad = CL_OUT_OF_HOST_MEMORY;
  if (!bad && !sp_mark(root, l.from, l.to, 1u << node, l.at)) bad = CL_OUT_OF_HOST_MEMORY;
  if (bad) return let_go(x), free(x), bad;
  root->holds++;
  *last_arrival = x, last_arrival = &x->later;
  return CL_SUCCESS;
}

/* sp_acquire brings the newest contents of a part of memory to a node, and waits. The caller has the lock, but not meanwhile. */
cl_int sp_acquire(span *m, size_t at, size_t n, int node) {
  cl_int bad = CL_SUCCESS;
  for (lack l; !bad && sp_lacks(m, at, n, node, &l);) bad = sp_bring(l, node);
  const span *root = sp_range(m, &at, &n);
  while (!bad && sp_comes(root, node, NULL)) sp_await();
  return bad ? bad : m->context->u.ctx.lost;
}

/* sp_borders makes room to say of a part of memory that it was written. */
cl_int sp_borders(span *m, size_t at, size_t n) {
  span *r = sp_range(m, &at, &n);
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
    sp_keep_writers(r, -1);
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

/* sp_wrote says that a part of memory, which has borders, is newest at a node, when a command of a queue there is done. */
void sp_wrote(span *m, size_t at, size_t n, int node, cl_command_queue q, cl_event done) {
  span *r = sp_range(m, &at, &n);
  if (!n) return;
  sp_mark(r, at, at + n, 1u << node, 0);
  add_writer(r, (writer){node, obj(q)->id, at, at + n, done}, q);
}

void sp_contents_in_child(void) { sp_arrivals = NULL, last_arrival = &sp_arrivals, movers = 0; }
