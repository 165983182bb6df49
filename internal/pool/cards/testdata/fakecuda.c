/* fakecuda plays a driver of CUDA for tests: two cards that are not there. Memory
 * is the machine's; kernels are few, and known by their names: "add" adds 1 to
 * words, "spin" takes the microseconds it is given, "work" the nanoseconds, "wait" waits for a word,
 * "saxpy", "fill", "sum" and "odd" compute, "wild" writes where nothing is, "crash"
 * ends the process. Code is a text that names them ("fake: saxpy fill"), or an ELF
 * file with a section for each, which is checked to its last byte; of PTX the names of
 * its entries are read. What is given to a card's streams is done in one order, by a thread. As
 * the driver does, it shows what CUDA_VISIBLE_DEVICES names, lets nobody look at events
 * while a stream is captured who has not said so, has a table of functions that are not
 * documented, has launches last until kernels have ended if CUDA_LAUNCH_BLOCKING says so,
 * and cuGetProcAddress gives other addresses than it exports, if it is
 * compiled with OTHER_ADDRESSES; and who looks at events while the program ends ends
 * it with an error. Where FAKE_CARD names a file, processes share a card's room by it:
 * memory stays on the card, but what is managed, which comes there when it is fetched, or
 * when a kernel needs it (a fault), and goes when others need the room; at its end a
 * process says how often that was. FIXED is how much memory of the card there is for a
 * process, if that is compiled in: others have the rest. LAZY is how many milliseconds a
 * kernel's first launch takes, which loads it, if that is compiled in. While there is a
 * file BROKEN it does not start, if that is compiled in. Of structures only what is used is declared. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { OK, INVALID, NOMEM, UNINITIALIZED, NO_DEVICE = 100, BAD_DEVICE, BAD_IMAGE = 200, BAD_CONTEXT, BAD_PTX = 218, SYSTEM = 304, BAD_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL = 700, NO_CAPTURE = 900, UNMATCHED = 903, DETACHED = 917, UNKNOWN = 999 };
enum { CARDS = 2, DEPTH = 16 };
static const char *const places[CARDS] = {"0000:17:00.0", "0000:65:00.0"};
static const size_t size = 8ULL << 30;
typedef uint8_t *ptr;

typedef enum { CONTEXT = 1, STREAM, EVENT, MODULE, FUNCTION, GRAPH, EXEC, ARRAY, HANDLE, POOL, LINK, TEXTURE, SURFACE, GREEN } kind;
typedef struct object { /* what every handle points to */
  struct object *next;
  kind kind;
} object;
typedef struct context {
  object o;
  int card, uses;
  unsigned flags;
  struct context *under; /* of a green one: the primary */
  unsigned age;          /* how many green ones had this place before */
  pthread_t by;          /* of a green one: the thread that has it, */
  int times;             /* so often; no other may */
} context;
typedef struct {
  const char *name;
  struct { size_t at, size; } params[5];
} kernel;
static const kernel kernels[] = {
    {"add", {{0, 8}}}, {"spin", {{0, 8}}}, {"wait", {{0, 8}}}, {"saxpy", {{0, 8}, {8, 8}, {16, 4}, {20, 4}}}, {"fill", {{0, 8}, {8, 4}, {12, 4}}}, {"sum", {{0, 8}, {8, 8}, {16, 4}}},
    {"odd", {{0, 1}, {8, 8}, {16, 2}, {20, 4}}}, {"wild", {{0, 0}}}, {"crash", {{0, 0}}}, {"work", {{0, 8}}},
    {"texels", {{0, 8}, {8, 8}, {16, 4}}}};
enum { ADD, SPIN, WAIT, SAXPY, FILL, SUM, ODD, WILD, CRASH, WORK, TEXELS, KERNELS };

typedef struct {
  object o;
  unsigned flags;
  int priority, pending;
  struct timespec at;
  context *of;
  unsigned age;
} event;
typedef enum { RUN, COPY, SET, BOX, MARK, FETCH } what;
typedef struct {
  size_t x, y, z, lod;
  int type;
  ptr host, device;
  struct array *array;
  void *none;
  size_t pitch, height;
} end;
typedef struct {
  end from, to;
  size_t w, h, d;
} box;
typedef struct op {
  struct op *next;
  what what;
  int kernel;
  uint64_t threads;
  uint8_t args[64];
  ptr to, from;
  size_t n, pitch, rows;
  uint32_t value;
  int width;
  box box;
  event *event;
} op;
typedef struct {
  object o;
  op *first, **last;
  int nodes;
} graph;
typedef struct {
  object o;
  unsigned flags;
  int priority;
  graph *captures;
  bool all; /* threads */
  context *of;
  unsigned age;
} stream;
typedef struct {
  object o;
  unsigned has; /* bits of kernels */
  char *text;
} module;
typedef struct function {
  object o;
  int kernel;
  module *of;
  bool loaded; /* by its first launch */
} function;
typedef struct array {
  object o;
  ptr at;
  size_t w, h, d, texel;
  int format;
  unsigned channels, flags;
} array;
typedef struct {
  object o;
  ptr at;
  size_t n; /* bytes */
  uint32_t border;
} texture;
typedef struct {
  object o;
  bool host;
} pool;
enum { MANAGED = 1, ON_HOST };
typedef struct memory {
  struct memory *next;
  ptr at;
  size_t n;
  context *of;
  bool reserved;
  int managed;    /* or ON_HOST, for good */
  uint32_t since; /* of managed memory: the card has it if that is still its process's */
} memory;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct queue {
  op *first, **last;
  uint64_t given, done;
} queues[CARDS];
static memory *memories;
static object *objects;
static context primary[CARDS] = {{.o = {NULL, CONTEXT}, .card = 0}, {.o = {NULL, CONTEXT}, .card = 1}};
static bool begun, blocking;
static int failed; /* for good */
static _Thread_local context *stack[DEPTH];
static _Thread_local int depth;
#define now (depth ? stack[depth - 1] : NULL)

static void *make_object(size_t n, kind k) {
  object *o = calloc(1, n);
  o->kind = k;
  pthread_mutex_lock(&lock);
  o->next = objects, objects = o;
  pthread_mutex_unlock(&lock);
  return o;
}
static bool is(void *p, kind k) {
  if (k == CONTEXT && (p == primary || p == primary + 1)) return true;
  pthread_mutex_lock(&lock);
  object *o = objects;
  while (o && o != p) o = o->next;
  pthread_mutex_unlock(&lock);
  return o && o->kind == k;
}
static int end_object(void *p, kind k) { return is(p, k) ? (((object *)p)->kind = 0, OK) : BAD_HANDLE; } /* its memory stays: what is under way knows it */
static bool is_stream(void *s) { return (uintptr_t)s <= 2 || is(s, STREAM); }

/* there looks whether memory of the cards is there; the lock is held. */
static bool there(ptr p, size_t n) {
  for (memory *m = memories; m; m = m->next)
    if (!m->reserved && p >= m->at && n <= m->n && (size_t)(p - m->at) <= m->n - n) return true;
  return false;
}

/* What the processes have on a card. */
typedef struct {
  int lock;
  struct {
    int pid;
    uint32_t since;
    uint64_t fixed, managed;
  } of[16];
} room;
static room *shared;
static int me;
static unsigned faults, fetched;
static uint64_t has;

static void lock_room(void) {
  while (__atomic_exchange_n(&shared->lock, 1, __ATOMIC_ACQUIRE)) sched_yield();
}
static void unlock_room(void) { __atomic_store_n(&shared->lock, 0, __ATOMIC_RELEASE); }

static void join_room(const char *file) {
  int fd = file ? open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (fd < 0 || ftruncate(fd, sizeof *shared)) return;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd), lock_room();
  for (me = 0; shared->of[me].pid && !kill(shared->of[me].pid, 0); me++) {}
  shared->of[me].pid = getpid(), shared->of[me].since = 1, shared->of[me].fixed = shared->of[me].managed = 0;
  unlock_room();
}

/* take_room makes room for what is to be on the card; the room is locked. */
static bool take_room(size_t n) {
  uint64_t all = n;
  for (int i = 0; i < 16; i++) all += shared->of[i].fixed + shared->of[i].managed;
  for (int i = 0; i < 16 && all > size; i++) {
    if (i == me || !shared->of[i].managed) continue;
    all -= shared->of[i].managed;
    shared->of[i].managed = 0, shared->of[i].since++;
  }
  return all <= size;
}

static bool take_fixed(size_t n) {
#ifdef FIXED
  if (has + n > FIXED) return false;
#endif
  has += n;
  if (!shared) return true;
  lock_room();
  bool ok = take_room(n);
  if (ok) shared->of[me].fixed += n;
  unlock_room();
  return ok;
}

static void give_room(const memory *m) {
  if (!m->managed) has -= m->n;
  if (!shared || m->managed == ON_HOST) return;
  lock_room();
  if (!m->managed) shared->of[me].fixed -= m->n;
  else if (m->since == shared->of[me].since) shared->of[me].managed -= m->n;
  unlock_room();
}

/* bring has managed memory on the card, and says whether it had been there before, and was not now; the lock is held. */
static bool bring(ptr p) {
  memory *m = memories;
  while (m && (m->reserved || p < m->at || p >= m->at + m->n)) m = m->next;
  if (!shared || !m || m->managed != MANAGED) return false;
  lock_room();
  bool is_ = m->since == shared->of[me].since, was = is_ || !m->since;
  if (!is_ && take_room(m->n)) shared->of[me].managed += m->n, m->since = shared->of[me].since;
  unlock_room();
  if (!is_) usleep((useconds_t)(m->n >> 18)); /* 256 MiB a millisecond */
  return !was;
}

static bool on_card_as(void *p, size_t n, bool comes) {
  pthread_mutex_lock(&lock);
  bool is_ = there(p, n);
  if (is_ && comes && bring(p)) faults++;
  pthread_mutex_unlock(&lock);
  return is_;
}
static bool on_card(void *p, size_t n) { return on_card_as(p, n, true); }

static ptr at_end(const end *e, size_t y, size_t z) {
  if (e->type == 3) return e->array->at + ((e->z + z) * e->array->h + e->y + y) * e->array->w * e->array->texel + e->x;
  ptr base = e->type == 1 ? e->host : e->device;
  return base + ((e->z + z) * (e->height ? e->height : 1) + e->y + y) * e->pitch + e->x;
}

static bool run(const op *o) {
  struct { ptr p, q; float a; uint32_t n; } f;
  struct { ptr p; uint32_t v, n; } g;
  struct { uint8_t a; ptr p; uint16_t b; uint32_t n; } h;
  uint64_t word;
  memcpy(&f, o->args, sizeof f), memcpy(&g, o->args, sizeof g), memcpy(&h, o->args, sizeof h), memcpy(&word, o->args, 8);
  uint32_t *p = (void *)f.p, *q = (void *)f.q;
  switch (o->kernel) {
  case ADD:
    if (!on_card(p, o->threads * 4)) return false;
    for (uint64_t i = 0; i < o->threads; i++) p[i]++;
    return true;
  case WAIT:
    while (!*(volatile uint32_t *)(void *)f.p) sched_yield();
    return true;
  case WORK:
  case SPIN: {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t at = (uint64_t)t.tv_nsec + word * (o->kernel == SPIN ? 1000 : 1);
    t.tv_sec += (time_t)(at / 1000000000), t.tv_nsec = (long)(at % 1000000000);
    while (word && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
    return true;
  }
  case SAXPY:
    if (!on_card(p, f.n * 4) || !on_card(q, f.n * 4)) return false;
    for (uint32_t i = 0; i < f.n; i++) ((float *)p)[i] += f.a * ((float *)q)[i];
    return true;
  case FILL:
    if (!on_card(g.p, g.n * 4)) return false;
    for (uint32_t i = 0; i < g.n; i++) ((uint32_t *)(void *)g.p)[i] = g.v + i;
    return true;
  case SUM: {
    uint64_t sum = 0;
    uint32_t n;
    memcpy(&n, o->args + 16, 4);
    if (!on_card(p, 8) || !on_card(q, n * 4)) return false;
    for (uint32_t i = 0; i < n; i++) sum += q[i];
    memcpy(p, &sum, 8);
    return true;
  }
  case ODD:
    if (!on_card(h.p, h.n * 4)) return false;
    for (uint32_t i = 0; i < h.n; i++) ((uint32_t *)(void *)h.p)[i] = h.a * 100000u + h.b;
    return true;
  case TEXELS: { /* past the end is the border */
    texture *t = (void *)f.p;
    uint32_t n;
    memcpy(&n, o->args + 16, 4);
    if ((!is(t, TEXTURE) && !is(t, SURFACE)) || !on_card(q, n * 4)) return false;
    for (uint32_t i = 0; i < n; i++) q[i] = (i + 1) * 4 <= t->n ? ((uint32_t *)(void *)t->at)[i] : t->border;
    return true;
  }
  case CRASH: abort();
  }
  return false;
}

static bool perform(const op *o) {
  switch (o->what) {
  case RUN: return run(o);
  case COPY: memcpy(o->to, o->from, o->n); return true;
  case SET:
    for (size_t y = 0; y < o->rows; y++)
      for (size_t i = 0; i < o->n; i++) memcpy(o->to + y * o->pitch + i * (size_t)o->width, &o->value, (size_t)o->width);
    return true;
  case BOX:
    for (size_t z = 0; z < o->box.d; z++)
      for (size_t y = 0; y < o->box.h; y++) memcpy(at_end(&o->box.to, y, z), at_end(&o->box.from, y, z), o->box.w);
    return true;
  case FETCH:
    pthread_mutex_lock(&lock);
    if (bring(o->to)) fetched++;
    pthread_mutex_unlock(&lock);
    return true;
  case MARK: clock_gettime(CLOCK_MONOTONIC, &o->event->at);
  }
  return true;
}

static void *compute(void *of) {
  struct queue *q = of;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (!q->first) pthread_cond_wait(&changed, &lock);
    op *o = q->first;
    bool go = !failed || o->what == MARK;
    pthread_mutex_unlock(&lock);
    bool ok = !go || perform(o);
    pthread_mutex_lock(&lock);
    if (!ok) failed = ILLEGAL;
    if (o->what == MARK) o->event->pending--;
    if (!(q->first = o->next)) q->last = &q->first;
    free(o);
    q->done++;
    pthread_cond_broadcast(&changed);
  }
  return NULL;
}

/* lives reports whether a context is still the one that something was made in. */
static bool lives(context *c, unsigned age) { return is(c, CONTEXT) && c->age == age; }

static struct queue *queue_of(void *s) { return queues + ((uintptr_t)s > 2 ? ((stream *)s)->of : now)->card; }

/* give gives a stream work, or what it captures. */
static int give(void *s, const op *what) {
  if (!now) return BAD_CONTEXT;
  if (!is_stream(s)) return BAD_HANDLE;
  if ((uintptr_t)s > 2 && !lives(((stream *)s)->of, ((stream *)s)->age)) return DETACHED;
  if (failed && what->what != MARK) return failed;
  op *o = malloc(sizeof *o);
  *o = *what, o->next = NULL;
  graph *g = (uintptr_t)s > 2 ? ((stream *)s)->captures : NULL;
  if (g) {
    *g->last = o, g->last = &o->next, g->nodes++;
    return OK;
  }
  pthread_mutex_lock(&lock);
  struct queue *q = queue_of(s);
  pthread_t t;
  if (!q->last && !pthread_create(&t, NULL, compute, q)) q->last = &q->first;
  if (o->what == MARK) o->event->pending++;
  *q->last = o, q->last = &o->next;
  q->given++;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return OK;
}

static int done_on(struct queue *q) {
  pthread_mutex_lock(&lock);
  for (uint64_t n = q->given; q->done < n;) pthread_cond_wait(&changed, &lock);
  int r = failed;
  pthread_mutex_unlock(&lock);
  return r;
}
static int all_done(void) {
  int r = OK;
  for (int i = 0; i < CARDS; i++) r = done_on(queues + i);
  return r;
}
static int now_done(int r) { return r ? r : done_on(queue_of(NULL)); }

static int shown[CARDS], shown_n;
static bool names(const char *entry, size_t n, int card) {
  char uuid[64], number[2] = {(char)('0' + card), 0};
  snprintf(uuid, sizeof uuid, "GPU-%02x%02x%02x%02x", card + 1, card + 1, card + 1, card + 1);
  return n > 4 ? !strncmp(entry, uuid, n < strlen(uuid) ? n : strlen(uuid)) : n == 1 && *entry == *number;
}
/* show has the program see the cards of a list, in its order, as far as they are there. */
static void show(const char *list) {
  for (int i = 0; !list && i < CARDS; i++) shown[shown_n++] = i;
  for (int before = -1; list && shown_n > before;) {
    size_t n = strcspn(list, ",");
    before = shown_n;
    for (int i = 0; i < CARDS && shown_n < CARDS; i++)
      if (names(list, n, i)) shown[shown_n++] = i;
    list += n + (list[n] == ',');
  }
}
/* When the program ends the driver does, too, before the program's other threads. */
static bool over;
static void ends(void) {
  over = true, usleep(5000);
  if (shared) dprintf(STDERR_FILENO, "fake card: %u fetched, %u faults\n", fetched, faults);
}

/* The driver has a thread, which it names, and does not start if it cannot. */
static void *listens(void *none) {
  for (;;) pause();
  return none;
}
static bool named(void) {
  pthread_t t;
  return !pthread_create(&t, NULL, listens, NULL) && !pthread_detach(t) && !pthread_setname_np(t, "fake-listens");
}
/* It listens at a socket, by which processes that share memory ask each other for
 * what they have opened, and does not start if it cannot. */
static bool listening(void) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  struct stat space;
  int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  int n = stat("/proc/self/ns/pid", &space) ? -1 : snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "cuda-uvmfd-%llu-%d", (unsigned long long)space.st_ino, getpid());
  return s >= 0 && n > 0 && !bind(s, (struct sockaddr *)&at, (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1 + (socklen_t)n) && !listen(s, 16);
}

/* In a child of fork there is no driver. */
static bool child;
static void in_child(void) { child = true; }

int cuInit(unsigned flags) {
  if (flags) return INVALID;
  if (child) return UNINITIALIZED;
#ifdef BROKEN
  if (!access(BROKEN, F_OK)) return UNKNOWN;
#endif
  if (!begun && (!named() || !listening())) return SYSTEM;
  if (!begun) pthread_atfork(NULL, NULL, in_child), atexit(ends), join_room(getenv("FAKE_CARD"));
  const char *blocks = getenv("CUDA_LAUNCH_BLOCKING");
  if (!begun) blocking = blocks && !strcmp(blocks, "1");
  if (!begun) show(getenv("CUDA_VISIBLE_DEVICES"));
  return begun = true, shown_n ? OK : NO_DEVICE;
}
int cuDriverGetVersion(int *v) { return v ? (*v = 12040, OK) : INVALID; }
int cuDeviceGetCount(int *n) { return !begun ? UNINITIALIZED : n ? (*n = shown_n, OK) : INVALID; }
int cuDeviceGet(int *d, int i) { return !begun ? UNINITIALIZED : !d ? INVALID : i < 0 || i >= shown_n ? BAD_DEVICE : (*d = i, OK); }
#define CARD(d)                                \
  if (d < 0 || d >= shown_n) return BAD_DEVICE; \
  d = shown[d]
int cuDeviceGetName(char *name, int n, int d) { CARD(d); return name ? snprintf(name, (size_t)n, d ? "FAKE H100" : "FAKE H200"), OK : INVALID; }
int cuDeviceGetAttribute(int *v, int what, int d) {
  static const struct { int what, v; } all[] = {{1, 1024}, {10, 32}, {14, 512}, {16, 132}, {39, 2048}, {41, 1}, {75, 9}, {76, 0}, {89, 1}};
  CARD(d);
  if (!v || what < 1 || what > 150) return INVALID;
  *v = 0;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i].what == what) *v = all[i].v;
  return OK;
}
int cuDeviceTotalMem_v2(size_t *n, int d) { CARD(d); return n ? (*n = size, OK) : INVALID; }
int cuDeviceGetUuid(unsigned char *id, int d) { CARD(d); return memset(id, d + 1, 16), OK; }
int cuDeviceGetPCIBusId(char *to, int n, int d) { CARD(d); return to ? snprintf(to, (size_t)n, "%s", places[d]), OK : INVALID; }
int cuDeviceGetByPCIBusId(int *d, const char *at) {
  for (*d = 0; *d < shown_n; ++*d)
    if (!strcmp(places[shown[*d]], at)) return OK;
  return BAD_DEVICE;
}

/* The runtime's library asks for tables by numbers of 16 bytes. */
static int undocumented(int x) { return 2 * x; }
int cuGetExportTable(const void **table, const void *id) {
  static const struct { size_t size; int (*f)(int); } all = {sizeof all, undocumented};
  return !table || !id ? INVALID : *(const uint8_t *)id == 0x6e ? (*table = &all, OK) : NOT_FOUND;
}

int cuCtxGetCurrent(context **c) { return c ? (*c = now, OK) : INVALID; }
int cuCtxGetDevice(int *d) {
  for (int i = 0; now && d && i < shown_n; i++)
    if (shown[i] == now->card) *d = i;
  return !now ? BAD_CONTEXT : d ? OK : INVALID;
}
/* A green context is current to one thread at a time. */
static bool enter(context *c) {
  pthread_mutex_lock(&lock);
  bool may = !c->under || !c->times || pthread_equal(c->by, pthread_self());
  if (may) c->by = pthread_self(), c->times++;
  pthread_mutex_unlock(&lock);
  return may && (stack[depth++] = c);
}
static context *leave(void) {
  context *c = stack[--depth];
  pthread_mutex_lock(&lock);
  c->times--;
  pthread_mutex_unlock(&lock);
  return c;
}
int cuCtxSetCurrent(context *c) {
  context *was = depth ? now : NULL;
  if (c && !is(c, CONTEXT)) return BAD_CONTEXT;
  if (was) leave();
  if (!c || enter(c)) return OK;
  if (was) enter(was);
  return BAD_CONTEXT;
}
int cuCtxPushCurrent_v2(context *c) { return !is(c, CONTEXT) || depth == DEPTH || !enter(c) ? BAD_CONTEXT : OK; }
int cuCtxPopCurrent_v2(context **c) {
  if (!depth) return BAD_CONTEXT;
  context *was = leave();
  if (c) *c = was;
  return OK;
}
int cuCtxCreate_v2(context **c, unsigned flags, int d) {
  CARD(d);
  if (!c) return INVALID;
  context *x = make_object(sizeof *x, CONTEXT);
  x->card = d, x->flags = flags;
  return *c = x, cuCtxPushCurrent_v2(x);
}
int cuCtxCreate_v3(context **c, void *params, int n, unsigned flags, int d) { return params || n ? INVALID : cuCtxCreate_v2(c, flags, d); }
int cuCtxCreate_v4(context **c, void *params, unsigned flags, int d) { return params ? INVALID : cuCtxCreate_v2(c, flags, d); }
int cuCtxGetFlags(unsigned *flags) { return now ? (*flags = now->flags, OK) : BAD_CONTEXT; }
int cuCtxGetLimit(size_t *n, int what) { return !n || what < 0 || what > 9 ? INVALID : (*n = 1024u * (unsigned)(what + 1), OK); }
int cuCtxSetLimit(int what, size_t n) { return (void)n, !now ? BAD_CONTEXT : what < 0 || what > 9 ? INVALID : OK; }
int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  if (!now) return BAD_CONTEXT;
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return OK;
}
int cuDevicePrimaryCtxRetain(context **c, int d) { CARD(d); return c ? (*c = primary + d, primary[d].card = d, primary[d].uses++, OK) : INVALID; }
int cuDevicePrimaryCtxGetState(int d, unsigned *flags, int *on) { CARD(d); return *flags = 0, *on = primary[d].uses > 0, OK; }

static int drop(context *c, void *at) {
  int r = INVALID;
  pthread_mutex_lock(&lock);
  for (memory **m = &memories; *m;) {
    memory *x = *m;
    if (c ? x->of != c : x->at != at) {
      m = &x->next;
      continue;
    }
    if (!x->reserved) give_room(x);
    munmap(x->at, x->n);
    *m = x->next;
    free(x);
    r = OK;
  }
  pthread_mutex_unlock(&lock);
  return r;
}

int cuCtxSynchronize(void) { return !begun ? UNINITIALIZED : now ? now_done(OK) : BAD_CONTEXT; }
int cuCtxDestroy_v2(context *c) {
  if (!is(c, CONTEXT)) return BAD_CONTEXT;
  all_done(), drop(c, NULL);
  if (now == c) leave();
  return end_object(c, CONTEXT), OK;
}
static int release(int card) { return !primary[card].uses ? BAD_CONTEXT : --primary[card].uses ? OK : (all_done(), drop(primary + card, NULL), OK); }
int cuDevicePrimaryCtxRelease_v2(int d) { CARD(d); return release(d); }

/* Green contexts are parts of a primary one, which they hold; what is made while one is
 * current is that one's, but for streams and events. The last that ended has its place taken
 * by the next. Of what they are made of nothing is played. */
int cuDeviceGetDevResource(int d, int *resource, int type) { CARD(d); return resource && type == 1 ? (*resource = type, OK) : INVALID; }
int cuDevResourceGenerateDesc(void **to, int *all, unsigned n) { return to && all && n == 1 && *all == 1 ? (*to = primary, OK) : INVALID; }
typedef struct {
  object o;
  context *is;
} green;
static green *last_green;
int cuGreenCtxCreate(green **to, void *what, int d, unsigned flags) {
  CARD(d);
  if (!to || what != primary || flags != 1) return INVALID;
  green *g = last_green;
  if (!g) g = make_object(sizeof *g, GREEN), g->is = make_object(sizeof *g->is, CONTEXT);
  last_green = NULL, g->o.kind = GREEN, g->is->o.kind = CONTEXT;
  g->is->card = d, g->is->under = primary + d, primary[d].uses++;
  return *to = g, OK;
}
int cuCtxFromGreenCtx(context **c, green *g) { return !is(g, GREEN) ? BAD_HANDLE : c ? (*c = g->is, OK) : INVALID; }
int cuGreenCtxDestroy(green *g) {
  if (!is(g, GREEN)) return BAD_HANDLE;
  if (now == g->is) leave();
  all_done(), last_green = g, g->is->age++, g->is->times = 0;
  end_object(g->is, CONTEXT), end_object(g, GREEN);
  return release(g->is->card);
}

static int keep(void **to, ptr at, size_t n, bool reserved, int managed) {
  memory *m = calloc(1, sizeof *m);
  *m = (memory){NULL, at, n, reserved ? NULL : now && now->under ? now->under : now, reserved, managed, 0};
  pthread_mutex_lock(&lock);
  m->next = memories, memories = m;
  pthread_mutex_unlock(&lock);
  return *to = at, OK;
}
static int make_as(void **to, size_t n, int managed) {
  if (!now) return BAD_CONTEXT;
  if (failed) return failed;
  if (!to || !n) return INVALID;
  if (n > size || (!managed && !take_fixed(n))) return NOMEM;
  ptr at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? NOMEM : keep(to, at, n, false, managed);
}
static int make(void **to, size_t n) { return make_as(to, n, 0); }

int cuMemAlloc_v2(void **p, size_t n) { return make(p, n); }
int cuMemAllocManaged(void **p, size_t n, unsigned flags) { return flags == 1 || flags == 2 ? make_as(p, n, MANAGED) : INVALID; }
int cuMemAllocAsync(void **p, size_t n, void *s) { return is_stream(s) ? make(p, n) : BAD_HANDLE; }
int cuMemAllocAsync_ptsz(void **p, size_t n, void *s) { return cuMemAllocAsync(p, n, s); }
int cuMemAllocFromPoolAsync(void **p, size_t n, void *x, void *s) { return !is(x, POOL) || !is_stream(s) ? BAD_HANDLE : make_as(p, n, ((pool *)x)->host ? ON_HOST : 0); }
int cuMemAllocPitch_v2(void **p, size_t *pitch, size_t w, size_t h, unsigned element) { return (void)element, pitch ? (*pitch = (w + 511) / 512 * 512, make(p, *pitch * h)) : INVALID; }
int cuMemFree_v2(void *p) { return child ? UNINITIALIZED : !now ? BAD_CONTEXT : failed ? failed : (all_done(), drop(NULL, p)); }
int cuMemFreeAsync(void *p, void *s) { return is_stream(s) ? cuMemFree_v2(p) : BAD_HANDLE; }
int cuMemGetInfo_v2(size_t *left, size_t *total) { /* who wants only one gives no place for the other */
  if (!now) return BAD_CONTEXT;
  if (left) *left = size;
  if (total) *total = size;
  return OK;
}
int cuMemGetAddressRange_v2(ptr *base, size_t *n, ptr p) {
  int r = NOT_FOUND;
  pthread_mutex_lock(&lock);
  for (memory *m = memories; m; m = m->next)
    if (p >= m->at && p < m->at + m->n) r = (base ? *base = m->at : 0, n ? *n = m->n : 0, OK);
  pthread_mutex_unlock(&lock);
  return r;
}
int cuMemAllocHost_v2(void **p, size_t n) { return !now ? BAD_CONTEXT : p && n ? (*p = malloc(n), OK) : INVALID; }
int cuMemFreeHost(void *p) { return p ? (free(p), OK) : INVALID; }

static int make_array(array **a, array how) {
  if (!a || !how.w || !how.channels || how.channels > 4) return INVALID;
  void *at;
  how.texel = how.channels * (how.format == 1 || how.format == 8 ? 1 : how.format == 2 || how.format == 9 || how.format == 16 ? 2 : 4);
  size_t h = how.h ? how.h : 1, d = how.d ? how.d : 1;
  int r = make(&at, how.w * h * d * how.texel);
  if (r) return r;
  array *x = make_object(sizeof *x, ARRAY);
  object o = x->o;
  *x = how, x->o = o, x->at = at, x->h = h;
  return *a = x, OK;
}
typedef struct {
  size_t w, h;
  int format;
  unsigned channels;
} array2;
typedef struct {
  size_t w, h, d;
  int format;
  unsigned channels, flags;
} array3;
int cuArrayCreate_v2(array **a, const array2 *how) { return how ? make_array(a, (array){.w = how->w, .h = how->h, .format = how->format, .channels = how->channels}) : INVALID; }
int cuArray3DCreate_v2(array **a, const array3 *how) { return how ? make_array(a, (array){.w = how->w, .h = how->h, .d = how->d, .format = how->format, .channels = how->channels, .flags = how->flags}) : INVALID; }
int cuArrayDestroy(array *a) { return is(a, ARRAY) ? (drop(NULL, a->at), end_object(a, ARRAY)) : BAD_HANDLE; }

/* Memory that is mapped by the program. */
typedef struct {
  object o;
  int fd;
  size_t n;
  int how[8];
} handle;
int cuMemCreate(handle **h, size_t n, const int how[8], unsigned long long flags) {
  (void)flags;
  if (!h || !n || !how || how[0] != 1) return INVALID;
  handle *x = make_object(sizeof *x, HANDLE);
  x->fd = memfd_create(how[2] == 1 ? "card" : "host", MFD_CLOEXEC), x->n = n;
  memcpy(x->how, how, sizeof x->how);
  return ftruncate(x->fd, (off_t)n) ? NOMEM : (*h = x, OK);
}
int cuMemRelease(handle *h) { return end_object(h, HANDLE); } /* what is mapped stays */
/* What is exported is there as long as what is opened of it. */
int cuMemExportToShareableHandle(void *to, handle *h, int type, unsigned long long flags) {
  if (!is(h, HANDLE)) return BAD_HANDLE;
  if (!to || type != 1 || flags || !(h->how[1] & type)) return INVALID;
  int fd = fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
  return fd < 0 ? NOMEM : (*(int *)to = fd, OK);
}
int cuMemImportFromShareableHandle(handle **h, void *from, int type) {
  char path[64], name[64] = "";
  struct stat is_;
  int fd = (int)(intptr_t)from;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (!h || type != 1 || fstat(fd, &is_) || readlink(path, name, sizeof name - 1) < 0) return INVALID;
  handle *x = make_object(sizeof *x, HANDLE);
  *x = (handle){.o = x->o, .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0), .n = (size_t)is_.st_size, .how = {1, type, strstr(name, "card") ? 1 : 2}};
  return *h = x, OK;
}
int cuMemGetAllocationPropertiesFromHandle(int how[8], handle *h) { return !is(h, HANDLE) ? BAD_HANDLE : how ? (memcpy(how, h->how, sizeof h->how), OK) : INVALID; }
int cuMemAddressReserve(void **p, size_t n, size_t alignment, void *want, unsigned long long flags) {
  (void)alignment, (void)flags;
  ptr at = p && n ? mmap(want, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) : MAP_FAILED;
  return at == MAP_FAILED ? INVALID : keep(p, at, n, true, 0);
}
int cuMemAddressFree(void *p, size_t n) { return (void)n, drop(NULL, p); }
int cuMemMap(ptr p, size_t n, size_t offset, handle *h, unsigned long long flags) {
  void *to;
  (void)flags;
  if (!is(h, HANDLE) || n + offset > h->n) return INVALID;
  if (!take_fixed(n)) return NOMEM;
  return mmap(p, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, h->fd, (off_t)offset) == p ? keep(&to, p, n, false, 0) : INVALID;
}
int cuMemUnmap(ptr p, size_t n) {
  bool is_ = false;
  pthread_mutex_lock(&lock);
  for (memory **m = &memories; *m && !is_; m = &(*m)->next)
    if ((*m)->at == p && !(*m)->reserved) give_room(*m), *m = (*m)->next, is_ = true;
  pthread_mutex_unlock(&lock);
  return is_ && mmap(p, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == p ? OK : INVALID;
}
int cuMemSetAccess(ptr p, size_t n, const int *rows, size_t count) { return (void)n, on_card(p, 1) && rows && count && rows[0] == 1 ? OK : INVALID; }
int cuMemGetAllocationGranularity(size_t *n, const void *how, int what) { return (void)what, n && how ? (*n = 2 << 20, OK) : INVALID; }
int cuDeviceGetDefaultMemPool(pool **p, int d) {
  static pool *pools[CARDS];
  CARD(d);
  if (!pools[d]) pools[d] = make_object(sizeof **pools, POOL);
  return *p = pools[d], OK;
}
static bool right_place(const int where[2]) { return where[0] == 1 ? where[1] >= 0 && where[1] < shown_n : where[0] == 2 || where[0] == 3 || where[0] == 4; } /* the card, the host, a part of it */
int cuMemPoolCreate(pool **p, const int how[22]) {
  if (!p || !how || how[0] != 1 || !right_place(how + 2)) return INVALID;
  *p = make_object(sizeof **p, POOL), (*p)->host = how[2] != 1;
  return OK;
}
int cuMemPoolDestroy(pool *p) { return end_object(p, POOL); }
int cuMemGetDefaultMemPool(pool **p, const int where[2], int type) { /* of CUDA 13 */
  static pool *host;
  if (!p || !where || type != 1 || !right_place(where)) return INVALID;
  if (where[0] == 1) return cuDeviceGetDefaultMemPool(p, where[1]);
  if (!host) host = make_object(sizeof *host, POOL), host->host = true;
  return *p = host, OK;
}
int cuMemPoolTrimTo(void *p, size_t n) { return (void)n, is(p, POOL) ? OK : BAD_HANDLE; }
static uint64_t threshold;
int cuMemPoolSetAttribute(void *p, int what, const uint64_t *v) { return is(p, POOL) && what == 4 ? (threshold = *v, OK) : INVALID; }
int cuMemPoolGetAttribute(void *p, int what, uint64_t *v) { return is(p, POOL) && what == 4 ? (*v = threshold, OK) : INVALID; }

#include "fakecuda_work.h"
