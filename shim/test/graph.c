/* Random commands on the devices of one context, given to several queues without waiting: kernels, fills, copies, reads and writes
 * of buffers, their parts and an image, maps, markers and barriers, and events that the program sets later, itself or from another
 * thread. A command waits for those before it that use the same bytes, and hardly for others. So the order in which they are given
 * is one in which they could run, and a model in the program's own memory that is changed in that order says what each reads.
 * Natively one device may stand for all. Arguments: a number that says which commands, and how many rounds of them. A difference,
 * or a round that does not end, ends the program with an error. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFERS = 4, SIZE = 1 << 16, PARTS = 8, PART = SIZE / PARTS, ITEMS = PART / 4 };
enum { IMAGE = BUFFERS, SIDE = 64, PIXELS = SIDE * SIDE * 4, QUEUES = 6, COMMANDS = 512, MAPS = 16, THREADS = 16, SECONDS = 60 };

typedef struct {
  int of; /* which buffer, or the image */
  size_t from, to;
  bool writes;
} use;

typedef struct command command;
struct command {
  const char *what;
  int queue, used;        /* no queue, -1: an event that the program sets */
  use uses[2];
  bool syncs, all, fence; /* a marker or barrier; it waits for all before it in its queue; all after it there wait for it */
  size_t reads;           /* bytes that are to be compared */
  bool set, kept;         /* an event of the program's is set; its event is not released early */
  const command *undoes;  /* of an unmap: the map */
  cl_event event;
  int stand;              /* where its event was released, a marker behind it; 0: none */
  bool before[COMMANDS];  /* which have ended when it begins */
};

typedef struct {
  int by;
  use used;
  cl_map_flags how;
  uint8_t *p;
  size_t row;
} mapping;

static const char *const source =
  "uint odd(uint x, uint n) { for (uint k = 0; k < n; k++) x = x * 1664525u + 1013904223u; return x & 1; }\n"
  "kernel void blend(global const uint *a, uint at, global uint *b, uint to, uint s, uint slow) {\n"
  "  uint i = get_global_id(0); b[to + i] = b[to + i] * 3 + a[at + i] + s + (i ? 0 : odd(s, slow)); }\n"
  "kernel void trade(global uint *a, uint at, global uint *b, uint to, uint s, uint slow) {\n"
  "  uint i = get_global_id(0), x = a[at + i]; a[at + i] = b[to + i] + s + (i ? 0 : odd(s, slow)); b[to + i] = x ^ s; }\n";

static cl_context context;
static cl_device_id devices[8];
static cl_uint device_count, listed;
static cl_program program;
static cl_kernel blend, trade;
static cl_mem memories[BUFFERS + 1], parts[BUFFERS][PARTS], brief[2]; /* brief: parts that are released when a command was given */
static uint32_t models[BUFFERS + 1][SIZE / 4];
static cl_command_queue queues[QUEUES];
static bool ordered[QUEUES];
static command commands[COMMANDS];
static uint8_t room[COMMANDS][SIZE], wanted[COMMANDS][SIZE]; /* what a command reads or writes, and what it should read */
static mapping maps[MAPS];
static pthread_t threads[THREADS];
static cl_event list[COMMANDS]; /* what the next command waits for */
static int queue_count, count, mapped, briefs, started, number, done;
static uint64_t seed;

static size_t some(size_t n) { /* less than n */
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (size_t)(seed >> 33) % n;
}
static bool one_in(size_t n) { return !some(n); }
static bool perhaps(void) { return one_in(2); }

static void must(cl_int e, const char *what) {
  if (e == CL_SUCCESS) return;
  printf("seed %d, round %d, command %d: failed %s %d\n", number, done, count, what, e);
  exit(1);
}

static void stuck(int signal) {
  (void)signal;
  dprintf(1, "seed %d, round %d: not over after %d seconds\n", number, done, SECONDS);
  _exit(1);
}

static void right(const char *what, int by, const uint8_t *got, const uint8_t *want, size_t n, int of, size_t at) {
  for (size_t i = 0; i < n; i++) {
    if (got[i] == want[i]) continue;
    printf("seed %d, round %d, command %d: %s: byte %zu of %d is %02x, not %02x\n", number, done, by, what, at + i, of, got[i], want[i]);
    exit(1);
  }
}

static void scatter(void *to, size_t n) {
  for (uint8_t *p = to; n; n--) *p++ = (uint8_t)some(256);
}

static void flush(void) {
  for (int i = 0; i < queue_count; i++) must(clFlush(queues[i]), "flush");
}

/* What waits for what. */

static bool share(const use *a, const use *b) { return a->of == b->of && (a->writes || b->writes) && a->from < b->to && b->from < a->to; }

static bool conflict(const command *a, const command *b) {
  bool any = false;
  for (int i = 0; i < a->used * b->used; i++) any |= share(&a->uses[i / b->used], &b->uses[i % b->used]);
  return any;
}

static void follow(command *c, int other) {
  for (int i = 0; i < other; i++) c->before[i] |= commands[other].before[i];
  c->before[other] = true;
}

/* follow_queue notes what a queue's own rules say about the order of a command and those before it. In one that keeps no order
 * PoCL 3.1 knows the last barrier only, and one with a list does not wait for that before it. */
static void follow_queue(command *c) {
  const bool any = ordered[c->queue];
  for (int i = count - 1; i >= 0 && (any || c->all || !c->fence); i--) {
    const command *o = &commands[i];
    if (o->queue != c->queue) continue;
    if (any || c->all || o->fence) follow(c, i);
    if (any || (o->fence && !c->all)) return;
  }
}

/* late reports whether a command waits for an event that is not set: the program may not wait for it. */
static bool late(const command *c) {
  for (int i = 0; i < count; i++)
    if (c->before[i] && commands[i].queue < 0 && !commands[i].set) return true;
  return false;
}

/* stands says whose event tells that a command has ended: its own or, if that was released, that of a marker behind it. */
static int stands(command *c) {
  if (c->event) return (int)(c - commands);
  if (c->stand) return c->stand;
  command *m = &commands[count];
  *m = (command){.what = "marker", .queue = c->queue, .all = true, .kept = true};
  follow_queue(m);
  must(clEnqueueMarkerWithWaitList(queues[c->queue], 0, NULL, &m->event), "marker for a command");
  return c->stand = count++;
}

static void wait_for(command *c, int i) {
  follow(c, i);
  for (cl_uint k = 0; k < listed; k++)
    if (list[k] == commands[i].event) return;
  list[listed++] = commands[i].event;
  if (commands[i].queue >= 0 && perhaps()) must(clFlush(queues[commands[i].queue]), "flush");
}

/* next makes a command the next one, with a list of what it waits for; NULL: it cannot be, as what it uses is mapped. */
static command *next(command *c) {
  for (int i = 0; i < mapped * c->used; i++)
    if (share(&maps[i / c->used].used, &c->uses[i % c->used])) return NULL;
  for (int i = 0; i < count; i++)
    if (conflict(c, &commands[i])) stands(&commands[i]);
  follow_queue(c);
  listed = 0;
  for (int i = count - 1; i >= 0 && !c->all; i--) {
    command *o = &commands[i];
    const bool needless = (o->event || o->stand) && one_in(c->syncs || (o->queue < 0 && !o->set) ? 8 : 100);
    if (o == c->undoes || ((needless || conflict(c, o)) && !(c->before[i] && perhaps()))) wait_for(c, stands(o));
  }
  if (c->syncs && !listed) c->all = true, follow_queue(c);
  commands[count] = *c;
  return &commands[count];
}

#define NEXT(Q, WHAT, ...) next(&(command){.what = WHAT, .queue = Q, __VA_ARGS__})
#define AFTER listed, listed ? list : NULL, c->kept || some(7) ? &c->event : NULL

/* given ends what was done to give a command. Now and then an event of an earlier one is released. */
static void given(cl_int e, const command *c) {
  must(e, c->what);
  count++;
  while (briefs) must(clReleaseMemObject(brief[--briefs]), "release of a part");
  if (one_in(3)) must(clFlush(queues[c->queue]), "flush");
  command *o = &commands[some((size_t)count)];
  if (o->kept || !o->event || some(4)) return;
  must(clReleaseEvent(o->event), "release of an event");
  o->event = NULL;
}

/* Memory. */

static uint8_t *model(const use *u) { return (uint8_t *)models[u->of] + u->from; }
static size_t length(const use *u) { return u->to - u->from; }
static use image(bool writes) { return (use){IMAGE, 0, PIXELS, writes}; }

static use bytes(bool writes) {
  const size_t part = some(PARTS) * PART, from = some(SIZE / 4) * 4, most = one_in(10) ? SIZE - from : PART - from % PART;
  if (one_in(3)) return (use){(int)some(BUFFERS), part, part + PART, writes};
  return (use){(int)some(BUFFERS), from, from + 4 + some(most / 4) * 4, writes};
}

static cl_mem part(int of, size_t i) {
  cl_int e;
  cl_mem m = clCreateSubBuffer(memories[of], 0, CL_BUFFER_CREATE_TYPE_REGION, &(cl_buffer_region){i * PART, PART}, &e);
  must(e, "part");
  return m;
}

/* part_of gives a part of a buffer that stays, or one that is released as soon as it was used. */
static cl_mem part_of(int of, size_t i) { return some(3) ? parts[of][i] : (brief[briefs++] = part(of, i)); }

/* place gives what holds bytes of a buffer, the buffer or a part, and where they are in it. */
static cl_mem place(const use *u, size_t *at) {
  const size_t i = u->from / PART;
  const bool whole = u->to > (i + 1) * PART || one_in(3);
  *at = u->from - (whole ? 0 : i * PART);
  return whole ? memories[u->of] : part_of(u->of, i);
}

/* Commands. */

static void run(int q) {
  const int a = (int)some(BUFFERS), b = (int)some(BUFFERS);
  const size_t i = some(PARTS), j = some(PARTS), items = ITEMS;
  const bool trades = perhaps(), all_of_a = one_in(12), all_of_b = one_in(12); /* the kernel is given the buffer, and could use it all */
  const cl_uint at = all_of_a ? (cl_uint)i * ITEMS : 0, to = all_of_b ? (cl_uint)j * ITEMS : 0;
  const cl_uint s = (cl_uint)some(1 << 30), slow = some(3) ? 0 : 200000 + (cl_uint)some(3000000);
  const use first = {a, all_of_a ? 0 : i * PART, all_of_a ? SIZE : (i + 1) * PART, trades};
  const use second = {b, all_of_b ? 0 : j * PART, all_of_b ? SIZE : (j + 1) * PART, true};
  if (a == b && (i == j || all_of_a || all_of_b)) return;
  command *c = NEXT(q, trades ? "trade" : "blend", .uses = {first, second}, .used = 2);
  if (!c) return;
  cl_kernel k = trades ? trade : blend;
  cl_mem m = all_of_a ? memories[a] : part_of(a, i), other = all_of_b ? memories[b] : part_of(b, j);
  const void *args[] = {&m, &at, &other, &to, &s, &slow};
  for (cl_uint l = 0; l < 6; l++) must(clSetKernelArg(k, l, l == 0 || l == 2 ? sizeof m : sizeof s, args[l]), "argument");
  given(clEnqueueNDRangeKernel(queues[q], k, 1, NULL, &items, NULL, AFTER), c);
  uint32_t *x = &models[a][i * ITEMS], *y = &models[b][j * ITEMS];
  for (size_t l = 0; l < items; l++) {
    const uint32_t old = x[l], more = s + (l ? 0 : (s + slow) & 1); /* each turn of odd's makes an odd number even, and the reverse */
    if (trades) x[l] = y[l] + more;
    y[l] = trades ? old ^ s : y[l] * 3 + old + more;
  }
}

static void copy(int q) {
  use from = bytes(false), to = bytes(true);
  const size_t n = length(&from) < length(&to) ? length(&from) : length(&to);
  size_t at, at_to;
  from.to = from.from + n, to.to = to.from + n;
  command *c = share(&from, &to) ? NULL : NEXT(q, "copy", .uses = {from, to}, .used = 2);
  if (!c) return;
  cl_mem m = place(&from, &at), other = place(&to, &at_to);
  given(clEnqueueCopyBuffer(queues[q], m, other, at, at_to, n, AFTER), c);
  memcpy(model(&to), model(&from), n);
}

/* compare sees to what a command read, once. */
static void compare(command *c) {
  const int by = (int)(c - commands);
  right(c->what, by, room[by], wanted[by], c->reads, c->uses->of, c->uses->from);
  c->reads = 0;
}

static void transfer(int q) {
  static const char *const ways[] = {"fill", "write", "write", "read", "read"};
  const int way = (int)some(5);
  const bool reads = way > 2;
  const use u = bytes(!reads);
  const size_t n = length(&u);
  size_t at;
  command *c = NEXT(q, ways[way], .uses = {u}, .used = 1, .reads = reads ? n : 0);
  if (!c) return;
  const bool wait = ordered[q] && way && one_in(10) && !late(c); /* elsewhere PoCL hangs while events are not set */
  uint8_t *p = room[count];
  cl_mem m = place(&u, &at);
  if (wait) flush();
  if (!reads) scatter(p, n);
  for (size_t i = 4; i < n && !way; i++) p[i] = p[i % 4];
  memcpy(reads ? wanted[count] : model(&u), reads ? model(&u) : p, n);
  if (reads) given(clEnqueueReadBuffer(queues[q], m, wait, at, n, p, AFTER), c);
  else if (way) given(clEnqueueWriteBuffer(queues[q], m, wait, at, n, p, AFTER), c);
  else given(clEnqueueFillBuffer(queues[q], m, p, 4, at, n, AFTER), c);
  if (wait && reads) compare(c);
  else if (wait) scatter(p, n);
}

static void draw(int q) {
  enum { FILL, WRITE, FROM_BUFFER, READ, TO_BUFFER, WAYS };
  static const char *const ways[] = {"fill of pixels", "write of pixels", "copy to pixels", "read of pixels", "copy of pixels"};
  const int way = (int)some(WAYS), of = (int)some(BUFFERS);
  const size_t extent[3] = {1 + some(SIDE), 1 + some(SIDE), 1}, origin[3] = {some(SIDE - extent[0] + 1), some(SIDE - extent[1] + 1), 0};
  const size_t row = extent[0] * 4, n = row * extent[1], at = some((SIZE - n) / 4 + 1) * 4;
  const bool writes = way < READ, buffer = way == FROM_BUFFER || way == TO_BUFFER;
  const use u = {of, at, at + n, !writes}, whole = image(writes);
  command *c = NEXT(q, ways[way], .uses = {whole, u}, .used = buffer ? 2 : 1, .reads = way == READ ? n : 0);
  if (!c) return;
  cl_mem m = memories[IMAGE];
  uint8_t *p = room[count], *packed = buffer ? model(&u) : way == READ ? wanted[count] : p;
  scatter(p, n);
  for (size_t i = 4; i < n && way == FILL; i++) p[i] = p[i % 4];
  for (size_t y = 0; y < extent[1]; y++) {
    uint8_t *line = model(&whole) + ((origin[1] + y) * SIDE + origin[0]) * 4;
    memcpy(writes ? line : packed + y * row, writes ? packed + y * row : line, row);
  }
  if (way == FILL) given(clEnqueueFillImage(queues[q], m, (cl_uint[4]){p[0], p[1], p[2], p[3]}, origin, extent, AFTER), c);
  else if (way == WRITE) given(clEnqueueWriteImage(queues[q], m, CL_FALSE, origin, extent, 0, 0, p, AFTER), c);
  else if (way == FROM_BUFFER) given(clEnqueueCopyBufferToImage(queues[q], memories[of], m, at, origin, extent, AFTER), c);
  else if (way == READ) given(clEnqueueReadImage(queues[q], m, CL_FALSE, origin, extent, 0, 0, p, AFTER), c);
  else given(clEnqueueCopyImageToBuffer(queues[q], m, memories[of], origin, extent, at, AFTER), c);
}

static void order(int q) {
  const bool fence = perhaps();
  command *c = NEXT(q, fence ? "barrier" : "marker", .syncs = true, .all = one_in(3), .fence = fence);
  given((fence ? clEnqueueBarrierWithWaitList : clEnqueueMarkerWithWaitList)(queues[q], AFTER), c);
}

static void map(int q) {
  static const cl_map_flags ways[] = {CL_MAP_READ, CL_MAP_WRITE, CL_MAP_READ | CL_MAP_WRITE, CL_MAP_WRITE_INVALIDATE_REGION};
  const size_t zero[3] = {0}, extent[3] = {SIDE, SIDE, 1};
  const cl_map_flags how = ways[some(4)];
  const use u = one_in(5) ? image(how != CL_MAP_READ) : bytes(how != CL_MAP_READ);
  cl_int e;
  bool able = ordered[q] && mapped < MAPS;
  for (int i = 0; i < mapped; i++) able &= maps[i].used.of != u.of || maps[i].used.from != u.from; /* else a pointer may be of two */
  command *c = able ? NEXT(q, "map", .uses = {u}, .used = 1, .kept = true) : NULL;
  if (!c) return;
  mapping *x = &maps[mapped];
  *x = (mapping){.by = count, .used = u, .how = how};
  if (u.of == IMAGE) x->p = clEnqueueMapImage(queues[q], memories[IMAGE], CL_FALSE, how, zero, extent, &x->row, NULL, AFTER, &e);
  else x->p = clEnqueueMapBuffer(queues[q], memories[u.of], CL_FALSE, how, u.from, length(&u), AFTER, &e);
  given(e, c);
  mapped++;
}

/* unmap ends a mapping, unless that waits for an event that is not set. */
static void unmap(int i) {
  const mapping x = maps[i];
  const use *u = &x.used;
  const size_t line = u->of == IMAGE ? SIDE * 4 : length(u);
  const bool fresh = x.how == CL_MAP_WRITE_INVALIDATE_REGION; /* what is there is not known */
  command *of = &commands[x.by];
  if (late(of)) return;
  maps[i] = maps[--mapped];
  if (u->writes || perhaps()) {
    flush();
    must(clWaitForEvents(1, &of->event), "wait for a map");
    for (size_t at = 0; at < length(u); at += line) {
      uint8_t *p = x.p + at / line * x.row;
      if (!fresh) right(of->what, x.by, p, model(u) + at, line, u->of, u->from + at);
      if (u->writes) scatter(p, fresh ? line : some(line));
      memcpy(model(u) + at, p, line);
    }
  }
  const int q = (int)some((size_t)queue_count);
  command *c = NEXT(q, "unmap", .uses = {*u}, .used = 1, .undoes = of);
  given(clEnqueueUnmapMemObject(queues[q], memories[u->of], x.p, AFTER), c);
}

/* The program's events: promised first, kept later. */

static void promise(void) {
  cl_int e;
  commands[count] = (command){.queue = -1, .kept = true, .event = clCreateUserEvent(context, &e)};
  must(e, "event");
  count++;
}

static void *later(void *of) {
  const command *c = of;
  usleep((useconds_t)(c - commands) * 50);
  must(clSetUserEventStatus(c->event, CL_COMPLETE), "event set by a thread");
  return NULL;
}

static void keep(command *c) {
  c->set = true;
  if (started < THREADS && perhaps()) must(pthread_create(&threads[started++], NULL, later, c), "thread");
  else must(clSetUserEventStatus(c->event, CL_COMPLETE), "event set");
}

static void finish(int q) {
  for (int i = 0; i < count; i++)
    if (commands[i].queue == q && late(&commands[i])) return;
  flush();
  must(clFinish(queues[q]), "finish");
  for (int i = 0; i < count; i++)
    if (commands[i].queue == q) compare(&commands[i]);
}

static void step(void) {
  static void (*const ways[])(int) = {run, run, run, copy, copy, transfer, transfer, transfer, transfer, draw, draw, order, map, map};
  ways[some(sizeof ways / sizeof *ways)]((int)some((size_t)queue_count));
  if (one_in(25)) promise();
  for (int i = 0; i < count; i++)
    if (commands[i].queue < 0 && !commands[i].set && one_in(20)) keep(&commands[i]);
  for (int i = mapped - 1; i >= 0; i--)
    if (one_in(3)) unmap(i);
  if (one_in(50)) finish((int)some((size_t)queue_count));
}

static void begin(void) {
  const cl_mem_flags flags = CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR;
  const cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = SIDE, .image_height = SIDE};
  cl_int e;
  count = mapped = started = 0;
  queue_count = 4 + (int)some(QUEUES - 3);
  for (int i = 0; i < queue_count; i++) {
    cl_device_id d = devices[(cl_uint)i % device_count];
    cl_command_queue_properties able = 0;
    must(clGetDeviceInfo(d, CL_DEVICE_QUEUE_PROPERTIES, sizeof able, &able, NULL), "properties of queues");
    able &= perhaps() ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0;
    ordered[i] = !able;
    queues[i] = clCreateCommandQueue(context, d, able, &e);
    must(e, "queue");
  }
  scatter(models, sizeof models);
  for (int i = 0; i < BUFFERS; i++) {
    memories[i] = clCreateBuffer(context, flags, SIZE, models[i], &e);
    must(e, "buffer");
    for (size_t j = 0; j < PARTS; j++) parts[i][j] = part(i, j);
  }
  memories[IMAGE] = clCreateImage(context, flags, &(cl_image_format){CL_RGBA, CL_UNSIGNED_INT8}, &desc, models[IMAGE], &e);
  must(e, "image");
  blend = clCreateKernel(program, "blend", &e), must(e, "kernel");
  trade = clCreateKernel(program, "trade", &e), must(e, "kernel");
}

/* release drops what commands are given: before they end, or after. */
static void release(void) {
  for (int i = 0; i < count; i++)
    if (commands[i].event) must(clReleaseEvent(commands[i].event), "release of an event");
  for (int i = 0; i < BUFFERS * PARTS; i++) must(clReleaseMemObject(parts[i / PARTS][i % PARTS]), "release of a part");
  must(clReleaseKernel(blend), "release of a kernel");
  must(clReleaseKernel(trade), "release of a kernel");
}

static void end(void) {
  const size_t zero[3] = {0}, extent[3] = {SIDE, SIDE, 1};
  const bool early = perhaps();
  for (int i = 0; i < count; i++)
    if (commands[i].queue < 0 && !commands[i].set) keep(&commands[i]);
  while (mapped) unmap(mapped - 1);
  while (started) pthread_join(threads[--started], NULL);
  if (early) release();
  for (int i = 0; i < queue_count; i++) must(clFlush(queues[i]), "flush");
  for (int i = 0; i < queue_count; i++) must(clFinish(queues[i]), "finish");
  for (int i = 0; i < count; i++) compare(&commands[i]);
  for (int i = 0; i <= BUFFERS; i++) {
    cl_command_queue q = queues[some((size_t)queue_count)];
    if (i == IMAGE) must(clEnqueueReadImage(q, memories[i], CL_TRUE, zero, extent, 0, 0, *room, 0, NULL, NULL), "read at the end");
    else must(clEnqueueReadBuffer(q, memories[i], CL_TRUE, 0, SIZE, *room, 0, NULL, NULL), "read at the end");
    right("at the end", count, *room, (uint8_t *)models[i], i == IMAGE ? PIXELS : SIZE, i, 0);
    must(clReleaseMemObject(memories[i]), "release of memory");
  }
  if (!early) release();
  for (int i = 0; i < queue_count; i++) must(clReleaseCommandQueue(queues[i]), "release of a queue");
}

int main(int n, char **args) {
  cl_platform_id platform;
  cl_int e;
  if (n != 3) return 2;
  number = atoi(args[1]), seed = (uint64_t)number * 7919 + 1;
  signal(SIGALRM, stuck);
  must(clGetPlatformIDs(1, &platform, NULL), "platform");
  must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, sizeof devices / sizeof *devices, devices, &device_count), "devices");
  context = clCreateContext(NULL, device_count, devices, NULL, NULL, &e);
  must(e, "context");
  program = clCreateProgramWithSource(context, 1, (const char *[]){source}, NULL, &e);
  must(e, "program");
  must(clBuildProgram(program, 0, NULL, NULL, NULL, NULL), "build");
  for (; done < atoi(args[2]); done++) {
    alarm(SECONDS);
    begin();
    for (size_t steps = 30 + some(51); steps && count < COMMANDS * 3 / 4; steps--) step();
    end();
  }
  printf("graph %d %d rounds\n", number, done);
  return 0;
}
