/* Random steps on memory of all kinds: buffers, their parts, images of all formats and of buffers, by all commands
 * that copy, fill, read, write or map, from several queues that wait for one another and for the program. What is read is
 * the same natively and in the pool. Arguments: a number that says which steps, how many, and whether each command is waited for. */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OBJECTS = 10, QUEUES = 4, ROOM = 1 << 17, FORMATS = 512, WRITTEN = 1 << 12, AHEAD = 8 };

typedef struct {
  cl_mem m;
  int kind; /* of an image, which of types; -1: a buffer */
  size_t size[3], pixel, bytes;
  uint8_t *host;
} object;

static const cl_mem_object_type types[] = {CL_MEM_OBJECT_IMAGE1D, CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE2D_ARRAY, CL_MEM_OBJECT_IMAGE3D};
static cl_context context;
static cl_command_queue queues[QUEUES];
static cl_image_format formats[FORMATS];
static cl_uint format_count;
static object objects[OBJECTS];
static cl_event last; /* what the next command waits for */
static uint8_t room[ROOM], fresh[WRITTEN];
static uint64_t seed;
static bool slow;

/* While a gate is shut, commands wait for the program to open it, and nothing waits for them. What they read and write is ahead. */
static cl_event gate;
static uint8_t ahead[AHEAD][ROOM];
static int given;

static size_t some(size_t n) { /* less than n */
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return n ? (size_t)(seed >> 33) % n : 0;
}
static bool perhaps(void) { return some(2); }
static size_t at_least(size_t n, size_t more) { return n + some(more); }

static void must(cl_int e, const char *what) {
  if (e == CL_SUCCESS) return;
  printf("failed %s %d\n", what, e);
  exit(1);
}

static void scatter(uint8_t *p, size_t n) {
  for (size_t i = 0; i < n; i++) p[i] = (uint8_t)some(256);
}

static uint32_t sum(uint32_t h, const uint8_t *p, size_t n) {
  for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 16777619u;
  return h;
}

static size_t pixel_of(const cl_image_format *f) {
  const cl_image_desc d = {.image_type = CL_MEM_OBJECT_IMAGE1D, .image_width = 1};
  cl_int e;
  size_t pixel = 0;
  cl_mem m = clCreateImage(context, 0, f, &d, NULL, &e);
  if (!m) return 0;
  must(clGetImageInfo(m, CL_IMAGE_ELEMENT_SIZE, sizeof pixel, &pixel, NULL), "size of a pixel");
  clReleaseMemObject(m);
  return pixel;
}

/* fill gives memory contents that are known. */
static void fill(object *o) {
  const size_t zero[3] = {0};
  scatter(room, o->bytes);
  if (o->kind < 0) must(clEnqueueWriteBuffer(queues[some(QUEUES)], o->m, CL_TRUE, 0, o->bytes, room, 0, NULL, NULL), "fill a buffer");
  else must(clEnqueueWriteImage(queues[some(QUEUES)], o->m, CL_TRUE, zero, o->size, 0, 0, room, 0, NULL, NULL), "fill an image");
}

static void make(object *o, int kind) {
  const cl_mem_flags ways[] = {0, CL_MEM_COPY_HOST_PTR, CL_MEM_USE_HOST_PTR, CL_MEM_ALLOC_HOST_PTR};
  const cl_mem_flags flags = ways[some(4)];
  const bool lent = flags == CL_MEM_COPY_HOST_PTR || flags == CL_MEM_USE_HOST_PTR;
  const cl_image_format *f = &formats[some(format_count)];
  cl_int e;
  *o = (object){.kind = kind, .pixel = 1, .size = {at_least(64, perhaps() ? 60000 : 400), 1, 1}};
  if (kind < 0) {
    o->bytes = o->size[0];
    if (lent) o->host = malloc(o->bytes), scatter(o->host, o->bytes);
    o->m = clCreateBuffer(context, flags, o->bytes, o->host, &e);
    must(e, "buffer");
  } else {
    const cl_mem_object_type type = types[kind];
    const bool lines = type == CL_MEM_OBJECT_IMAGE1D_ARRAY, slices = type == CL_MEM_OBJECT_IMAGE2D_ARRAY || type == CL_MEM_OBJECT_IMAGE3D;
    cl_image_desc d = {.image_type = type, .image_width = at_least(1, 20), .image_height = at_least(1, 9), .image_depth = at_least(1, 6), .image_array_size = at_least(1, 6)};
    o->pixel = pixel_of(f);
    o->size[0] = d.image_width;
    if (type != CL_MEM_OBJECT_IMAGE1D) o->size[1] = lines ? d.image_array_size : d.image_height;
    if (slices) o->size[2] = type == CL_MEM_OBJECT_IMAGE3D ? d.image_depth : d.image_array_size;
    o->bytes = o->size[0] * o->size[1] * o->size[2] * o->pixel;
    if (perhaps()) d.image_row_pitch = o->pixel * at_least(d.image_width, 5);
    const size_t row = d.image_row_pitch ? d.image_row_pitch : o->pixel * d.image_width;
    if (slices && perhaps()) d.image_slice_pitch = row * at_least(o->size[1], 3);
    const size_t room_for = d.image_slice_pitch ? d.image_slice_pitch * o->size[2] : row * o->size[1] * o->size[2];
    if (lent) o->host = malloc(room_for), scatter(o->host, room_for);
    o->m = clCreateImage(context, flags, f, &d, o->host, &e);
    must(e, "image");
    size_t pitch[2];
    must(clGetImageInfo(o->m, CL_IMAGE_ROW_PITCH, sizeof *pitch, &pitch[0], NULL), "row");
    must(clGetImageInfo(o->m, CL_IMAGE_SLICE_PITCH, sizeof *pitch, &pitch[1], NULL), "slice");
    printf("image of kind %d, %x %x, pitches %zu %zu\n", kind, f->image_channel_order, f->image_channel_data_type, pitch[0], pitch[1]);
  }
  if (!lent) fill(o);
}

static void drop(object *o) {
  clReleaseMemObject(o->m);
  for (int i = 0; i < QUEUES && o->host; i++) must(clFinish(queues[i]), "finish");
  free(o->host);
}

static void region(const object *o, size_t *origin, size_t *extent) {
  for (int i = 0; i < 3; i++) origin[i] = some(o->size[i]), extent[i] = at_least(1, o->size[i] - origin[i]);
}

/* A command waits for the one before it, which may be another queue's. */
#define AFTER (last != NULL), last ? &last : NULL, &next

static void told(const char *what, cl_int e, cl_event next) {
  cl_command_type type = 0;
  if (next) must(clGetEventInfo(next, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL), "type of a command");
  printf("%s: %s %x\n", what, e ? "no" : "yes", type);
  if (!next) return;
  if (last) clReleaseEvent(last);
  last = next;
  if (slow && !gate) must(clWaitForEvents(1, &last), "wait");
}

#define DO(WHAT, CALL)       \
  do {                       \
    cl_event next = NULL;    \
    const cl_int bad = CALL; \
    told(WHAT, bad, next);   \
  } while (0)

static void settled(void) {
  if (last) must(clWaitForEvents(1, &last), "wait");
}

static void map_buffer(cl_command_queue q, object *o, bool wait, cl_map_flags how) {
  cl_event next = NULL;
  cl_int e;
  size_t at = some(o->bytes), n = at_least(1, o->bytes - at);
  uint8_t *p = clEnqueueMapBuffer(q, o->m, wait, how, at, n, AFTER, &e);
  must(e, "map");
  told("map", e, next);
  settled();
  if (how == CL_MAP_WRITE_INVALIDATE_REGION) scatter(p, n);
  else printf("%08x\n", sum(1, p, n));
  if (how & CL_MAP_WRITE) p[some(n)] ^= 77;
  DO("unmap", clEnqueueUnmapMemObject(q, o->m, p, AFTER));
}

static void map_image(cl_command_queue q, object *o, bool wait, cl_map_flags how) {
  cl_event next = NULL;
  cl_int e;
  size_t origin[3], extent[3], row = 0, slice = 0;
  uint32_t h = 1;
  region(o, origin, extent);
  uint8_t *p = clEnqueueMapImage(q, o->m, wait, how, origin, extent, &row, &slice, AFTER, &e);
  must(e, "map");
  told("map", e, next);
  settled();
  const size_t line = types[o->kind] == CL_MEM_OBJECT_IMAGE1D_ARRAY ? slice : row;
  for (size_t z = 0; z < extent[2]; z++)
    for (size_t y = 0; y < extent[1]; y++) {
      uint8_t *l = p + z * slice + y * line;
      if (how == CL_MAP_WRITE_INVALIDATE_REGION) scatter(l, extent[0] * o->pixel);
      else h = sum(h, l, extent[0] * o->pixel);
      if (how & CL_MAP_WRITE) l[some(extent[0] * o->pixel)] ^= 33;
    }
  printf("%08x\n", h);
  DO("unmap", clEnqueueUnmapMemObject(q, o->m, p, AFTER));
}

static void rect(cl_command_queue q, object *o, bool wait, bool reads) {
  const size_t r[3] = {at_least(1, 12), at_least(1, 5), at_least(1, 4)}, at[3] = {some(8), some(3), some(2)}, in[3] = {some(8), some(3), some(2)};
  const size_t row = perhaps() ? 0 : at_least(r[0], 9), slice = perhaps() ? 0 : (row ? row : r[0]) * at_least(r[1], 3);
  const size_t host_row = perhaps() ? 0 : at_least(r[0], 9), host_slice = perhaps() ? 0 : (host_row ? host_row : r[0]) * at_least(r[1], 3);
  memset(room, 0, WRITTEN);
  if (!reads) scatter(fresh, WRITTEN);
  if (reads) DO("read rect", clEnqueueReadBufferRect(q, o->m, wait, at, in, r, row, slice, host_row, host_slice, room, AFTER));
  else DO("write rect", clEnqueueWriteBufferRect(q, o->m, wait, at, in, r, row, slice, host_row, host_slice, fresh, AFTER));
  settled();
  if (reads) printf("%08x\n", sum(1, room, WRITTEN));
}

static void copy_rect(cl_command_queue q, object *o, object *to) {
  const size_t r[3] = {at_least(1, 9), at_least(1, 4), at_least(1, 3)}, a[3] = {some(5), some(3), some(2)}, b[3] = {some(5), some(3), some(2)};
  const size_t row = perhaps() ? 0 : at_least(r[0], 5), slice = perhaps() ? 0 : (row ? row : r[0]) * at_least(r[1], 2);
  const size_t to_row = perhaps() ? 0 : at_least(r[0], 5), to_slice = perhaps() ? 0 : (to_row ? to_row : r[0]) * at_least(r[1], 2);
  DO("copy rect", clEnqueueCopyBufferRect(q, o->m, to->m, a, b, r, row, slice, to_row, to_slice, AFTER));
}

static void part(cl_command_queue q, object *o) {
  cl_int e;
  cl_uint align = 0;
  cl_device_id d;
  must(clGetCommandQueueInfo(q, CL_QUEUE_DEVICE, sizeof d, &d, NULL), "device");
  must(clGetDeviceInfo(d, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof align, &align, NULL), "alignment");
  const size_t origin = some(o->bytes) / (align / 8) * (align / 8);
  const cl_buffer_region r = {origin, at_least(1, o->bytes - origin)};
  cl_mem m = clCreateSubBuffer(o->m, 0, CL_BUFFER_CREATE_TYPE_REGION, &r, &e);
  must(e, "part");
  memset(room, 0, r.size);
  DO("read a part", clEnqueueReadBuffer(q, m, CL_TRUE, 0, r.size, room, AFTER));
  printf("%08x\n", sum(1, room, r.size));
  const uint8_t pattern = (uint8_t)some(256);
  DO("fill a part", clEnqueueFillBuffer(queues[some(QUEUES)], m, &pattern, 1, r.size / 3, r.size / 2, AFTER));
  clReleaseMemObject(m);
}

static void image_of(cl_command_queue q, object *o) {
  static const cl_image_format f = {CL_RGBA, CL_UNSIGNED_INT8};
  cl_int e;
  const cl_image_desc d = {.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = o->bytes / 4, .buffer = o->m};
  const size_t origin[3] = {some(o->bytes / 4)}, extent[3] = {at_least(1, o->bytes / 4 - origin[0]), 1, 1};
  cl_mem m = clCreateImage(context, CL_MEM_READ_WRITE, &f, &d, NULL, &e);
  must(e, "image of a buffer");
  memset(room, 0, o->bytes);
  settled();
  must(clEnqueueReadImage(q, m, CL_TRUE, origin, extent, 0, 0, room, 0, NULL, NULL), "read an image of a buffer"); /* PoCL's events tell another command */
  printf("image of a buffer: %08x\n", sum(1, room, o->bytes));
  scatter(room, extent[0] * 4);
  must(clEnqueueWriteImage(queues[some(QUEUES)], m, CL_TRUE, origin, extent, 0, 0, room, 0, NULL, NULL), "write an image of a buffer");
  clReleaseMemObject(m);
}

/* early gives a command that waits for the gate. */
static void early(cl_command_queue q, object *o, object *other) {
  size_t origin[3], extent[3], at = some(o->bytes), n = at_least(1, o->bytes - at);
  uint8_t *p = ahead[given++];
  region(o, origin, extent);
  memset(p, 0, ROOM);
  switch (some(4)) {
  case 0:
    if (o->kind < 0) DO("read early", clEnqueueReadBuffer(q, o->m, CL_FALSE, at, n, p, AFTER));
    else DO("read an image early", clEnqueueReadImage(q, o->m, CL_FALSE, origin, extent, 0, 0, p, AFTER));
    break;
  case 1:
    scatter(p, WRITTEN);
    if (o->kind < 0) DO("write early", clEnqueueWriteBuffer(q, o->m, CL_FALSE, at, n, p, AFTER));
    else DO("write an image early", clEnqueueWriteImage(q, o->m, CL_FALSE, origin, extent, 0, 0, p, AFTER));
    break;
  case 2:
    scatter(p, 16);
    if (o->kind < 0) DO("fill early", clEnqueueFillBuffer(q, o->m, p, 4, at / 4 * 4, (o->bytes - at / 4 * 4) / 4 * 4, AFTER));
    else DO("fill an image early", clEnqueueFillImage(q, o->m, (const cl_float[4]){(cl_float)p[0] / 255, (cl_float)p[1] / 255, (cl_float)p[2] / 255, 1}, origin, extent, AFTER));
    break;
  default:
    if (o->kind < 0 && other->kind < 0 && o != other) DO("copy early", clEnqueueCopyBuffer(q, o->m, other->m, at, 0, n < other->bytes ? n : other->bytes, AFTER));
  }
}

static void gated(void) {
  cl_int e;
  settled();
  if (last) clReleaseEvent(last);
  last = gate = clCreateUserEvent(context, &e);
  must(e, "gate");
  must(clRetainEvent(gate), "keep the gate");
  for (given = 0; given < AHEAD;) early(queues[some(QUEUES)], &objects[some(OBJECTS)], &objects[some(OBJECTS)]);
  for (int i = 0; i < QUEUES && perhaps(); i++) must(clFlush(queues[i]), "flush");
  must(clSetUserEventStatus(gate, CL_COMPLETE), "open the gate");
  clReleaseEvent(gate);
  gate = NULL;
  settled();
  for (int i = 0; i < AHEAD; i++) printf("ahead %08x\n", sum(1, ahead[i], ROOM));
}

static void step(void) {
  object *o = &objects[some(OBJECTS)], *other = &objects[some(OBJECTS)];
  const cl_map_flags ways[] = {CL_MAP_READ, CL_MAP_WRITE, CL_MAP_READ | CL_MAP_WRITE, CL_MAP_WRITE_INVALIDATE_REGION};
  const cl_map_flags how = ways[some(4)];
  const bool wait = perhaps();
  cl_command_queue q = queues[some(QUEUES)];
  size_t origin[3], extent[3], to[3], row = 0, slice = 0, at = some(o->bytes), n = at_least(1, o->bytes - at);
  region(o, origin, extent);
  const int what = (int)some(12);
  printf("%d on %d and %d\n", what, (int)(o - objects), (int)(other - objects));
  if (what == 0) {
    drop(o);
    make(o, (int)some(6) - 1);
  } else if (what == 1) {
    const cl_mem both[] = {o->m, other->m};
    DO("migrate", clEnqueueMigrateMemObjects(q, 2, both, 0, AFTER));
  } else if (what <= 3) {
    if (o->kind < 0) map_buffer(q, o, wait, how);
    else map_image(q, o, wait, how);
  } else if (o->kind < 0) {
    switch (what) {
    case 4:
      DO("read", clEnqueueReadBuffer(q, o->m, wait, at, n, room, AFTER));
      settled();
      printf("%08x\n", sum(1, room, n));
      break;
    case 5:
      scatter(room, n < WRITTEN ? n : WRITTEN);
      DO("write", clEnqueueWriteBuffer(q, o->m, wait, at, n, room, AFTER));
      settled();
      break;
    case 6: rect(q, o, wait, perhaps()); break;
    case 7: {
      const size_t size = (size_t)1 << some(8);
      scatter(fresh, size);
      at = at / size * size;
      DO("fill", clEnqueueFillBuffer(q, o->m, fresh, size, at, (o->bytes - at) / size * size, AFTER));
      break;
    }
    case 8:
      if (other->kind < 0 && other != o) copy_rect(q, o, other);
      break;
    case 9: part(q, o); break;
    case 10: image_of(q, o); break;
    default:
      region(other, to, extent);
      if (other == o) break;
      if (other->kind >= 0) DO("copy to an image", clEnqueueCopyBufferToImage(q, o->m, other->m, at, to, extent, AFTER));
      else DO("copy", clEnqueueCopyBuffer(q, o->m, other->m, at, to[0], n < extent[0] ? n : extent[0], AFTER));
    }
  } else {
    const bool lines = types[o->kind] == CL_MEM_OBJECT_IMAGE1D_ARRAY, slices = o->kind > 2;
    if (perhaps()) row = o->pixel * at_least(extent[0], 4);
    if (row && lines) slice = row;
    if (row && slices && perhaps()) slice = row * at_least(extent[1], 3);
    switch (what) {
    case 4: case 5:
      memset(room, 0, WRITTEN);
      DO("read an image", clEnqueueReadImage(q, o->m, wait, origin, extent, row, slice, room, AFTER));
      settled();
      printf("%08x\n", sum(1, room, WRITTEN));
      break;
    case 6: case 7:
      scatter(room, WRITTEN);
      DO("write an image", clEnqueueWriteImage(q, o->m, wait, origin, extent, row, slice, room, AFTER));
      settled();
      break;
    case 8: {
      const cl_float color[4] = {(cl_float)some(100) / 100, (cl_float)some(100) / 100, (cl_float)some(100) / 100, (cl_float)some(100) / 100};
      DO("fill an image", clEnqueueFillImage(q, o->m, color, origin, extent, AFTER));
      break;
    }
    case 9: case 10:
      if (other == o || other->kind < 0) break;
      for (int i = 0; i < 3; i++) {
        to[i] = some(other->size[i]);
        if (extent[i] > other->size[i] - to[i]) extent[i] = other->size[i] - to[i];
      }
      DO("copy an image", clEnqueueCopyImage(q, o->m, other->m, origin, to, extent, AFTER));
      break;
    default:
      if (other->kind < 0) DO("copy from an image", clEnqueueCopyImageToBuffer(q, o->m, other->m, origin, extent, some(other->bytes), AFTER));
    }
  }
}

int main(int n, char **args) {
  enum { MOST = 8 };
  const size_t zero[3] = {0};
  cl_platform_id platform;
  cl_device_id devices[MOST];
  cl_uint count = 0;
  cl_int e;
  if (n != 4) return 2;
  seed = strtoull(args[1], NULL, 10) * 7919 + 1, slow = atoi(args[3]);
  setvbuf(stdout, NULL, _IOLBF, 0);
  must(clGetPlatformIDs(1, &platform, NULL), "platform");
  must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MOST, devices, &count), "devices");
  context = clCreateContext(NULL, count, devices, NULL, NULL, &e);
  must(e, "context");
  for (cl_uint i = 0; i < QUEUES; i++) {
    queues[i] = clCreateCommandQueue(context, devices[i % count], i & 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0, &e);
    must(e, "queue");
  }
  must(clGetSupportedImageFormats(context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, FORMATS, formats, &format_count), "formats");
  for (int i = 0; i < OBJECTS; i++) make(&objects[i], (int)some(6) - 1);
  for (int steps = atoi(args[2]); steps > 0; steps--)
    if (some(20)) step();
    else gated();
  settled();
  for (int i = 0; i < OBJECTS; i++) {
    object *o = &objects[i];
    if (o->kind < 0) must(clEnqueueReadBuffer(queues[some(QUEUES)], o->m, CL_TRUE, 0, o->bytes, room, 0, NULL, NULL), "read");
    else must(clEnqueueReadImage(queues[some(QUEUES)], o->m, CL_TRUE, zero, o->size, 0, 0, room, 0, NULL, NULL), "read");
    printf("at the end %d: %08x\n", i, sum(1, room, o->bytes));
    drop(o);
  }
  return 0;
}
