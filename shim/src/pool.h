/* The client library of the accelerator pool: a vendor library of OpenCL that
 * any program finds through its ICD loader, and that sends what the program
 * asks for to a worker at a pool node. docs/pool-design.md describes the wire.
 *
 * A call goes in one of two ways. Sync: it is sent, and its answer waited for.
 * Post: it is put behind what is to be sent, and the call succeeds at once. A
 * call is posted if an equal one was sent before and succeeded: objects do not
 * change once they are made, so what was right stays right (see yp_end). Thus
 * errors are told by the call that has them, as programs expect, and a stream
 * of launches waits for nothing.
 *
 * Handles are made here: a number that the worker knows the object by. Numbers
 * are not used again.
 */
#ifndef YUNHE_POOL_H
#define YUNHE_POOL_H

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#define _GNU_SOURCE
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLATFORM = 1, DEVICE, CONTEXT, QUEUE, MEM, SAMPLER, PROGRAM, KERNEL, EVENT, SVM };
enum { PARENTS = 1 << 8 }; /* of a kind, in a child of fork: its parent made it */

typedef struct object object;
/* What another thread of the parent had locked nobody gives back in a child. */
void yp_devices_in_child(void);
void yp_notices_in_child(void);
void yp_memory_in_child(void);
void yp_spare_in_child(void);
void *yp_room(size_t *size);            /* of so many bytes or more, as it then says, for yp_spare; NULL: there is none */
void yp_spare(void *at, size_t size);
void yp_spare_look(void);               /* whether that is kept any longer */
void yp_svm_in_child(void);

typedef struct yp_node yp_node; /* the connection to a worker at a pool node, which has one device */
enum { YP_NODES = 16 };         /* a program has devices of as many at most */
typedef struct callback { /* of memory or a context that goes */
  void(CL_CALLBACK *call)(void *, void *);
  void *data;
  struct callback *next;
} callback;

/* object is what every handle points to. The loader reads its first word. */
struct object {
  const cl_icd_dispatch *dispatch;
  int kind;
  uint64_t id;
  int refs;     /* the program's */
  bool released; /* it had some, and the worker is told when it goes */
  bool awaited;  /* the commands that may use it were waited for */
  int children; /* objects that point here: the memory stays until they are gone */
  object *parent;  /* context of most, program of a kernel, parent of a sub-buffer or sub-device, queue of an event */
  object *context; /* NULL in a context */
  yp_node *node;
  object *next;    /* of those with a like address */
  void *properties; /* the list it was made with, for the info that asks for it; NULL: none */
  size_t properties_size;
  callback *destroyed; /* called when it goes */
  struct fact *facts;    /* what was told of it and stays so */
  struct notice *notices, *last; /* of a queue or an event, callbacks in the order in which they are called */
  union {
    struct {
      object **devices; /* which it retains */
      cl_uint n;
      bool told; /* the program is told when it goes, or memory of it */
    } context;
    struct {
      cl_command_queue_properties flags;
      object *device;
      uint64_t posted, done; /* commands that were sent, and of how many of them it is known that they are done */
      bool marked;           /* markers were sent, which memory does not wait for, of which that is not known */
    } queue;
    struct {
      cl_mem_flags flags;
      cl_mem_object_type type;
      size_t size, origin;
      uint8_t *host;   /* the program's, of CL_MEM_USE_HOST_PTR; of shared virtual memory, where it is */
      size_t host_row, host_slice; /* of an image there */
      size_t told[2];              /* the pitches that the program gave an image, or 0 */
      uint8_t *shared; /* the device's own memory, mapped here too, or NULL */
      struct yp_gate *gate, *refused; /* of a whole buffer or region: what it is shared behind, and what it cannot be */
      int mapped; /* and how often it or a part of it is */
      size_t pixel, w, h, d; /* of an image; pixel is 0 in a buffer */
      bool depth;            /* of an image: its pixels are one number */
      struct map *maps;
      bool placed; /* shared virtual memory that is where that of another node is */
      bool listed; /* it was made with a list of properties, which was empty */
    } mem;
    struct {
      char *text; /* of one that was made from source */
      size_t size;
    } program;
    struct {
      cl_uint args;
      char *classes; /* one letter for each argument, as the worker found it */
      uint64_t *proven; /* by argument, as what it was last set that went well: see yp_end_by */
      object **samplers; /* that arguments are, or NULL: there was none yet */
    } kernel;
    struct {
      cl_command_type type;
      uint64_t upto; /* of a queue that keeps order, how many commands had been sent to it with this one; 0: it may be any */
      bool over;     /* it is known to have ended well */
    } event;
  } u;
};

/* Other threads may send to a queue while one waits for it: what it knows then is of what had been sent before. */
static inline uint64_t yp_posted(const object *queue) { return __atomic_load_n(&queue->u.queue.posted, __ATOMIC_ACQUIRE); }
static inline bool yp_pending(const object *queue) { return __atomic_load_n(&queue->u.queue.done, __ATOMIC_ACQUIRE) < yp_posted(queue); }
static inline bool yp_ordered(const object *queue) { return !(queue->u.queue.flags & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE); }
static inline void yp_done(object *queue, uint64_t posted) {
  uint64_t was = __atomic_load_n(&queue->u.queue.done, __ATOMIC_RELAXED);
  while (was < posted && !__atomic_compare_exchange_n(&queue->u.queue.done, &was, posted, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {}
}

static inline int yp_refs(const object *o) { return __atomic_load_n(&o->refs, __ATOMIC_ACQUIRE); } /* threads retain and release without a lock */

typedef struct {
  cl_icd_dispatch known;
  void (*later[32])(void); /* what loaders newer than these headers call, whatever version the platform has (OpenCL 3.1) */
} yp_functions;
extern yp_functions yp_table;
#define yp_dispatch yp_table.known
extern object yp_platform, yp_devices[YP_NODES];
extern int yp_device_count; /* one of each node */

cl_int yp_when_destroyed(callback **list, void (*call)(void), void *data);
cl_int yp_when_gone(object *o, void (*call)(void), void *data);
void yp_tell(callback *c, void *handle);
object *yp_find_object(const void *p); /* NULL: there is none at that address, which may be anything */
bool yp_in_context(const object *context, const void *device);
object *yp_new(int kind, object *parent, object *context);
void yp_destroy(object *o);
void yp_keep_sampler(object *kernel, cl_uint i, object *sampler);
static inline object *obj(const void *handle) { return (object *)handle; }
bool yp_is_not(const object *o, int kind);
static inline bool is(const void *handle, int kind) { return handle && (obj(handle)->kind == kind || yp_is_not(obj(handle), kind)); }

/* landing is where data that is read goes: rows of equal length, in slices. */
typedef struct landing {
  uint64_t id;
  uint8_t *to;
  size_t row, rows, slices, row_pitch, slice_pitch;
  bool now; /* it comes just now */
  struct landing *next;
} landing;

typedef struct {
  cl_int status;
  uint64_t a, b;
  landing *land; /* where the data goes, if it is wanted there */
  uint8_t *data; /* else it is here, to be freed */
  size_t size;
  int fd; /* that came along, or -1 */
} answer;

/* A message is built between yp_begin, which takes the lock, and one of
 * yp_sync, yp_post and yp_end, which give it back. */
int yp_nodes(void);
bool yp_lent_to(const char *api);
void yp_stay(void); /* until yp_go as often, the thread is not canceled: it has locks, or a part in what others wait for */
void yp_go(void);
yp_node *yp_node_at(int i);
bool yp_later(yp_node *c);  /* whether its worker knows what came later (FlagLater): one of before ends a program that asks for it */
bool yp_lanes(yp_node *c);  /* whether its worker and others may send each other memory (FlagLanes) */
int yp_connect(yp_node *c); /* 0, or an error of OpenCL; connects when first called */
bool yp_begin(yp_node *c, int op);
void yp_word(uint64_t w);
void yp_size3(const size_t *v);
void yp_osize3(const size_t *v, cl_uint n);
void yp_bytes(const void *p, size_t n); /* a word that counts, and the bytes */
void yp_color(const object *image, const void *color);
void yp_rows(const uint8_t *p, size_t row, size_t rows, size_t slices, size_t row_pitch, size_t slice_pitch);
void yp_waits(cl_uint n, const cl_event *events);
cl_int yp_sync(answer *a);
cl_int yp_sync_in_order(answer *a, pthread_mutex_t *order); /* which it gives back when the message is sent */
void yp_post(bool flush);
void yp_flush(yp_node *c); /* sends what was posted */
cl_int yp_end(void); /* posts what is known to be right, and sends what is not */
static inline uint64_t *yp_proven(const object *kernel, cl_uint index) { return kernel->u.kernel.proven ? &kernel->u.kernel.proven[index] : NULL; }
cl_int yp_end_by(uint64_t *kept); /* as yp_end, where what is known is kept: apart from that of the many calls that are made once. NULL: there */
cl_int yp_end_promised(size_t bytes, answer *a); /* posts what makes no more than the worker has promised, and sends other */
bool yp_end_ahead(const object *queue); /* posts a write that blocks; false: it must be waited for, and the message is not ended */
void yp_count_queue(yp_node *c, int more);
void yp_proof(void);       /* what comes after it in the message does not decide whether the call is right */
void yp_like(const uint64_t *w, size_t n); /* but for what it has in common with others: these n words */
void yp_land_later(yp_node *c, const landing *l);
bool yp_never_land(yp_node *c, uint64_t id); /* nowhere, if it did not come yet */
bool yp_room_for_reads(yp_node *c, size_t n); /* or too much is read already that did not come yet */
bool yp_unified(const yp_node *c);     /* memory can be shared with the worker */
bool yp_user_events(const yp_node *c); /* the program has made events that it sets itself */
void yp_user_event_made(yp_node *c);

/* What a node is told to connect to another's worker. */
enum { YP_LANE_PIECE = 4 << 20 }; /* bytes that pass at once, at most */
typedef struct {
  char at[512], task[26];
  uint8_t key[32];
} yp_lane_end;
bool yp_lane_to(yp_node *c, const uint64_t id[2], yp_lane_end *end);

/* A page that both sides map: shared buffers are copied to and from between
 * enter and leave only, and not at all while the gate is closed, because the
 * program is moved. It does not open again if it was: the worker there has
 * another, and what was shared is mapped anew behind that. */
typedef struct yp_gate {
  uint32_t inside, closed;
} yp_gate;
yp_gate *yp_gate_now(yp_node *c); /* NULL: nothing can be shared */
bool yp_gate_enter(yp_gate *g);
void yp_gate_leave(yp_gate *g);
cl_int yp_status(yp_node *c, int op, uint64_t a, uint64_t b);

cl_int yp_check_waits(const object *context, cl_uint n, const cl_event *events);
cl_int yp_finish(object *queue);
cl_int yp_send_to(object *queue, object *event); /* ends the message of a command, as yp_end */
object *yp_event(object *queue, cl_command_type type);
uint64_t yp_notices(void); /* see notice.c */
bool yp_thread(void *(*run)(void *), void *with);
void yp_hear(cl_uint n, const cl_event *events, cl_command_queue q, uint64_t until);
cl_int yp_notice(cl_event h, cl_int when, void(CL_CALLBACK *call)(cl_event, cl_int, void *), void *data);
cl_int yp_when_over(cl_event h, void(CL_CALLBACK *call)(cl_event, cl_int, void *), void *data);

/* FAIL ends a function that makes something, GIVE and GIVE_TEXT one that tells of something. */
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
#define GIVE_TEXT(X) return yp_give(X, strlen(X) + 1, size, value, got)
cl_uint yp_count(int refs);
cl_int yp_give(const void *p, size_t n, size_t size, void *value, size_t *got);
bool yp_sound_copy(object *from, object *to, size_t at, size_t into, size_t n); /* whether a call is right, as far as is known here: see shim/gen */
bool yp_sound_fill(object *m, size_t pattern, size_t at, size_t n);
cl_int yp_check_flags(cl_mem_flags flags, const void *host);
cl_mem_flags yp_flags_of(cl_mem_flags flags, cl_mem_flags buffer);

static inline cl_int yp_no_properties(bool listed, size_t size, void *value, size_t *got) {
  cl_mem_properties none = 0;
  return yp_give(&none, listed ? sizeof none : 0, size, value, got);
}

/* What an info asks of; the worker has the same list. */
enum { OF_DEVICE = 1, OF_QUEUE, OF_MEM, OF_IMAGE, OF_SAMPLER, OF_PROGRAM, OF_BUILD, OF_KERNEL, OF_ARG, OF_GROUP, OF_EVENT, OF_PROFILE };
cl_int yp_ask(yp_node *c, int of, uint64_t id, uint64_t more, cl_uint what, answer *a);
cl_int yp_info(yp_node *c, int of, uint64_t id, uint64_t more, cl_uint what, size_t size, void *value, size_t *got);
cl_int yp_fact(object *o, int of, uint64_t more, cl_uint what, size_t size, void *value, size_t *got); /* what stays so: it is asked once */
enum { MOST_VALUE = 4096 };     /* bytes of a kernel's argument that is a value */
enum { YP_SHARED = 32 << 10 }; /* bytes from which a mapping that the worker has, too, is worth its cost */
void yp_mem_gone(object *o); /* memory goes, and nothing is made of it */

/* What commands have at their ends, and are told of those. */
typedef struct {
  cl_uint n;
  const cl_event *waits;
  cl_event *event;
  cl_command_type type;
} yp_ends;
cl_int yp_marker(object *queue, yp_ends ends); /* a command that does nothing on the device */
cl_int yp_transfer(object *queue, int op, object *mem, bool blocking, size_t at, size_t size, void *host, yp_ends ends);
void *yp_map(object *queue, object *mem, bool blocking, cl_map_flags flags, size_t at, size_t size, yp_ends ends, cl_int *err);
/* maps without contents, and waits for nothing that the queue was given; a region of a buffer is {bytes, 1, 1} */
void *yp_map_blank(object *queue, object *mem, cl_map_flags flags, const size_t *origin, const size_t *region, size_t *row, size_t *slice, cl_int *err);
void yp_unmap_blank(object *queue, object *mem, void *at); /* whatever the map is for, nothing is written */
cl_int yp_unmap(object *queue, object *mem, void *at, yp_ends ends); /* CL_INVALID_VALUE: nothing is mapped there */

/* See svm.c. A region that has size bytes at an address; NULL: there is none. */
object *yp_svm_at(const object *context, const void *p, size_t size);
object *yp_svm_buffer(object *region, cl_mem_flags flags, size_t size, uint8_t *host, cl_int *err);
bool yp_of_svm(const object *mem);
void yp_svm_gone(object *o);
void *yp_svm_make(object *context, cl_svm_mem_flags flags, size_t size, cl_uint alignment, bool share, void *at); /* at NULL: anywhere */
typedef struct yp_deed yp_deed;
yp_deed *yp_deed_of_copy(void *to, const void *from, size_t size);
yp_deed *yp_deed_of_free(cl_uint n, void *list[], void(CL_CALLBACK *call)(cl_command_queue, cl_uint, void *[], void *), void *data);
cl_int yp_do(yp_deed *d, cl_command_queue q, cl_context c, cl_event over, yp_ends ends, cl_int (*marker)(object *, yp_ends)); /* sets over when it is done, and frees d */

/* See device.c. */
void yp_only_offered(cl_uint what, answer *a); /* takes away what this library does not offer of a device's extensions */
cl_int CL_API_CALL yp_clGetPlatformIDs(cl_uint n, cl_platform_id *ids, cl_uint *count);
cl_int CL_API_CALL yp_clGetPlatformInfo(cl_platform_id p, cl_platform_info what, size_t size, void *value, size_t *got);
cl_int CL_API_CALL yp_clGetDeviceIDs(cl_platform_id p, cl_device_type type, cl_uint n, cl_device_id *devices, cl_uint *count);

void yp_fill_devices(void);
void yp_fill_programs(void);
void yp_fill_svm(void);
void yp_fill_memory(void);
const cl_icd_dispatch *yp_span(void); /* for devices of several nodes */

/* See headers.c. Their files are found by build options and the texts that are built; NULL: that failed. */
typedef struct yp_headers yp_headers;
char *yp_own_paths(const char *text, size_t *n);
yp_headers *yp_headers_of(const char *options, cl_uint n, const cl_program *texts);
void yp_headers_put(const yp_headers *h, bool more); /* before what comes at the end of a message: more */
void yp_headers_free(yp_headers *h);

void yp_hmac(const uint8_t key[32], const uint8_t *text, size_t n, uint8_t out[32]);

#endif
