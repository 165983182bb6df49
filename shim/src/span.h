/* Contexts over devices of several nodes, made of one context at each node.
 *
 * A program that has devices of several nodes sees them as devices of one
 * platform. A context over one of them is that node's own, and nothing of these
 * files is in its way. What is made in a context over several is a span: it holds
 * the objects that stand for it at the nodes.
 *
 * Memory is made at a node when it is first needed there. For each part of it
 * is known which nodes have its newest contents; a command that needs them
 * elsewhere is preceded by a copy, from node to node or through this process. Sub-buffers are parts
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
#ifndef YUNHE_SPAN_H
#define YUNHE_SPAN_H

#include "pool.h"
#include <stddef.h>

#define D yp_dispatch /* of the nodes */

enum { SPAN = 64 }; /* added to the kinds of objects of one node */
enum { MOST_PATTERN = 128 };

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
  int left; /* nodes' objects that are yet to go before that is told, and one while they are released */
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
      cl_uint aside, fences; /* its commands that were put aside, and how many of them hold back all that comes behind them */
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
  bool blank; /* a map that is over when nothing comes to its memory any more: contents are not read */
  cl_uint dims, mems, waits;
  size_t a[3], b[3], c[3], p[4], n;
  const size_t *offset, *global, *local; /* one of a, b and c, or NULL */
  uint8_t pattern[MOST_PATTERN];
  void *host;
  cl_bitfield flags;
  mapping *map;
  cl_event before; /* of a marker behind what its queue was sent before it, or NULL */
  arg *args; /* as they were when the command was put aside */
  span **mem, **wait;
  span *event;
  struct command *next;
} command;

/* arrival is memory that is on its way to a node, which is said to have it already: bytes of a buffer, or the planes of an image or the rows of its only one. */
typedef struct arrival {
  span *root;
  size_t next, to; /* what nobody brings yet */
  int source, node;
  cl_command_queue out, in;
  cl_mem old, new;
  cl_event *after; /* of what wrote it at the source */
  cl_uint afters;
  cl_event gate; /* at the node; NULL: no command waits for it there */
  int hands;     /* threads that see to it */
  bool there;    /* it is at the source: all of it can be brought */
  cl_int bad;
  struct arrival *later;
} arrival;

/* lack is a part of memory of which the newest contents are at some nodes, and not where they are needed. */
typedef struct {
  span *root;
  size_t from, to;
  uint32_t at;
} lack;

/* span.c: what spans are. One lock guards all of them. It is not held while a program waits, nor while contents are on their way. */
extern span *sp_spans;
void sp_enter(void);
void sp_leave(void);
void sp_news(void);
void sp_await(void);
span *sp_make(int kind, span *context, span *parent);
void sp_drop(span *o);
void *sp_done(span *o, cl_int bad, cl_int *err);
void sp_gone(span *o);
void sp_forget_in(span *m, int node);
cl_int sp_when_gone(span *o, void (*call)(void), void *data);
cl_int sp_release(const void *h, int kind, cl_int invalid);
int sp_node_of(const span *context, const void *device);

/* span_memory.c: what stands for memory at the nodes. */
cl_mem sp_view(span *m, int node, void *contents, cl_int *err);
span *sp_svm_at(const span *context, const void *p, size_t n);
void sp_fill_memory(cl_icd_dispatch *t);

/* span_contents.c: where the newest contents of memory are, and how they come to a node. */
extern arrival *sp_arrivals;
cl_command_queue sp_mover(span *c, int node, cl_int *err);
span *sp_range(span *m, size_t *at, size_t *n);
bool sp_comes(const span *root, int node, const arrival *before);
bool sp_lacks(span *m, size_t at, size_t n, int node, lack *l);
cl_int sp_bring(lack l, int node);
cl_int sp_acquire(span *m, size_t at, size_t n, int node);
cl_int sp_borders(span *m, size_t at, size_t n);
bool sp_mark(span *r, size_t from, size_t to, uint32_t there, uint32_t with);
void sp_wrote(span *m, size_t at, size_t n, int node, cl_command_queue q, cl_event done);
void sp_keep_writers(span *m, int node);
void sp_contents_in_child(void);

/* sp_piece is memory that goes from one node to another at once. */
typedef struct {
  int from, to;
  cl_command_queue out, in;
  cl_mem old, new;
  bool image;
  size_t origin[3], region[3], bytes;
} sp_piece;

/* span_lane.c: how it does not go through this process. */
bool sp_pass(const sp_piece *p);
void sp_lanes_in_child(void);

/* span_event.c: what has ended, and who waits for that. */
cl_int sp_ended(const span *e);
cl_int sp_wait_over(span *e);
void sp_sent(span *e, cl_int bad, void *in);
cl_int sp_gate(span *e, int node);
cl_event CL_API_CALL sp_clCreateUserEvent(cl_context c, cl_int *err);
void sp_fill_events(cl_icd_dispatch *t);

/* span_program.c: programs and kernels. */
void sp_hold_sampler(const arg *a, int by);
void sp_free_args(arg *args, cl_uint n);
cl_int sp_set_arg(span *k, cl_uint i, const arg *a, int node);
void sp_fill_programs(cl_icd_dispatch *t);

/* span_command.c: when and where commands are sent. */
bool sp_early(const command *c);
cl_int sp_ready(const command *c);
cl_int sp_wrong(const command *c, cl_uint n, const cl_event *waits);
cl_int sp_enqueue(command *c, cl_uint n, const cl_event *waits, cl_event *event);
void sp_commands_in_child(void);

/* span_enqueue.c: the calls that give commands. */
#define ENDS cl_uint n, const cl_event *waits, cl_event *event
void *sp_map(command *c, cl_map_flags flags, size_t *row, size_t *slice, ENDS, cl_int *err);
cl_int sp_unmap(cl_command_queue q, span *m, void *at, cl_command_type as, ENDS);
cl_int CL_API_CALL sp_clFinish(cl_command_queue q);
void sp_fill_commands(cl_icd_dispatch *t);

/* span_svm.c */
void sp_fill_svm(cl_icd_dispatch *t);

static inline bool sis(const void *h, int kind) { return is(h, SPAN + kind); }
static inline span *sp(const void *h) { return (span *)h; }
static inline bool pending(const span *e) { return e->u.event.pending; }

/* any is an object that stands for o at some node. */
static inline void *any(const span *o) {
  for (int i = 0; i < YP_NODES; i++)
    if (o->in[i]) return o->in[i];
  return NULL;
}

static inline size_t offset(const span *m, const void *p) { return (size_t)((const uint8_t *)p - (const uint8_t *)m->u.mem.svm); }

static inline bool is_memory(const arg *a) { return a->set && a->object && a->object->kind == SPAN + MEM; }

/* is_over reports whether an event that is not pending needs no waiting for. The caller has the lock. */
static inline bool is_over(const span *e) { return e->u.event.over || !e->in[e->node]; }

static inline int at_node(const command *c) { return c->map ? c->map->node : c->queue->node; }

/* queue_at is in which queue of a node a queue's commands are sent there. */
static inline cl_command_queue queue_at(const span *q, int node) { return node == q->node ? q->in[node] : q->context->u.ctx.movers[node]; }

static inline cl_command_type told_as(const command *c) { return c->as ? c->as : c->type; }

static inline void *copy_of(const void *p, size_t n) {
  void *q = n ? malloc(n) : NULL;
  if (q) memcpy(q, p, n);
  return q;
}

#define EACH(I, CTX) for (cl_uint I##_ = 0, I = 0; I##_ < (CTX)->u.ctx.n && ((I = (cl_uint)(CTX)->u.ctx.nodes[I##_]), true); I##_++)

#define SET(NAME) t->NAME = sp_##NAME;

#endif
