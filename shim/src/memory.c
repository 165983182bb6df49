/* Buffers and images. A buffer whose device memory both sides map (shared) is
 * read, written and mapped by copying here, once what was sent before is done;
 * all others by messages. What is mapped of those is a copy. */
#include "pool.h"
#include "ops.h"
#include <sys/mman.h>
#include <unistd.h>

typedef struct map {
  void *at;
  bool shadow; /* at is not the device's memory, but a copy */
  bool write;
  size_t owned;    /* how large it is, of what is to be freed; 0: it is the program's */
  size_t origin[3], region[3], row, slice; /* row and slice: as they lie in the program's memory; 0: one after the other */
  uint64_t landing; /* of what was read for it without waiting */
  yp_gate *gate;    /* of memory that both map */
  struct map *next;
} map;

static pthread_mutex_t maps = PTHREAD_MUTEX_INITIALIZER;

void yp_memory_in_child(void) {
  pthread_mutex_init(&maps, NULL);
  yp_spare_in_child();
}

enum { LATER = 256 << 10 }; /* bytes above which waiting for a queue is cheaper than sending them */
enum { COPIED = 8 << 10 }; /* bytes of a write that is not waited for though it blocks: they are in the message when it returns */
enum { BUFFER, RECT, IMAGE };

enum { ACCESS = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY, OF_HOST = CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS };

/* yp_flags_of are the flags of a part or an image of a buffer, with what it has of the buffer. */
cl_mem_flags yp_flags_of(cl_mem_flags flags, cl_mem_flags buffer) {
  if (!(flags & ACCESS)) flags |= buffer & ACCESS;
  if (!(flags & OF_HOST)) flags |= buffer & OF_HOST;
  return flags | (buffer & (CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR));
}

cl_int yp_check_flags(cl_mem_flags f, const void *host) {
  if (f & ~(cl_mem_flags)(ACCESS | OF_HOST | CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR | CL_MEM_KERNEL_READ_AND_WRITE)) return CL_INVALID_VALUE;
  if ((f & ACCESS) & ((f & ACCESS) - 1) || (f & OF_HOST) & ((f & OF_HOST) - 1)) return CL_INVALID_VALUE;
  if (f & CL_MEM_USE_HOST_PTR && f & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR)) return CL_INVALID_VALUE;
  if ((host != NULL) != ((f & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR)) != 0)) return CL_INVALID_HOST_PTR;
  return CL_SUCCESS;
}

/* device_flags: memory that the program lends is copied to the device. */
static uint64_t device_flags(cl_mem_flags f) { return f & CL_MEM_USE_HOST_PTR ? (f & ~(cl_mem_flags)CL_MEM_USE_HOST_PTR) | CL_MEM_COPY_HOST_PTR : f; }

static object *whole(object *m) {
  while (m->parent->kind == MEM || m->parent->kind == SVM) m = m->parent;
  return m;
}

static bool has(const object *m, size_t at, size_t n) { return n && at <= m->u.mem.size && n <= m->u.mem.size - at; }

bool yp_sound_copy(object *from, object *to, size_t at, size_t into, size_t n) {
  return !from->u.mem.pixel && !to->u.mem.pixel && has(from, at, n) && has(to, into, n) && whole(from) != whole(to);
}

bool yp_sound_fill(object *m, size_t pattern, size_t at, size_t n) { return !m->u.mem.pixel && has(m, at, n) && !(pattern & (pattern - 1)) && at % pattern == 0 && n % pattern == 0; }

/* shared_at returns where memory is that both map; NULL: they do not. */
static uint8_t *shared_at(object *m) {
  const object *w = whole(m);
  return !w->u.mem.shared || m == w ? w->u.mem.shared : w->kind == SVM ? m->u.mem.host : w->u.mem.shared + m->u.mem.origin;
}

/* may_share says whether a buffer is shared behind a gate, or the worker was not asked for it yet. */
static bool may_share(object *m, yp_gate *g) {
  const object *w = whole(m);
  return g && !m->u.mem.pixel && w->u.mem.size >= YP_SHARED && !w->u.mem.placed &&
         (__atomic_load_n(&w->u.mem.gate, __ATOMIC_ACQUIRE) == g || __atomic_load_n(&w->u.mem.refused, __ATOMIC_RELAXED) != g);
}

/* share_again maps what the worker has of a buffer where the program was moved to. What the program has mapped stays as it is. */
static bool share_again(object *m, yp_gate *g) {
  if (__atomic_load_n(&m->u.mem.mapped, __ATOMIC_RELAXED)) return false;
  answer a = {.land = NULL};
  yp_begin(m->node, OP_share);
  yp_word(m->id);
  cl_int bad = yp_sync(&a);
  free(a.data);
  pthread_mutex_lock(&maps);
  if (!bad && a.fd >= 0 && !m->u.mem.mapped) {
    uint8_t *at = m->kind == SVM ? m->u.mem.host : m->u.mem.shared;
    void *p = mmap(at, m->u.mem.size, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), a.fd, 0);
    if (p != MAP_FAILED) m->u.mem.shared = p, __atomic_store_n(&m->u.mem.gate, g, __ATOMIC_RELEASE);
  }
  bool ok = m->u.mem.gate == g; /* or another thread was quicker */
  if (!ok) __atomic_store_n(&m->u.mem.refused, g, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&maps);
  if (a.fd >= 0) close(a.fd);
  return ok;
}

/* enter returns the gate of a buffer that is shared, which this thread has entered: it must leave it. NULL: it is not. */
static yp_gate *enter(object *mem) {
  object *m = whole(mem);
  yp_gate *g = yp_gate_now(m->node);
  if (!may_share(mem, g) || (__atomic_load_n(&m->u.mem.gate, __ATOMIC_ACQUIRE) != g && !share_again(m, g))) return NULL;
  return yp_gate_enter(g) ? g : NULL;
}

/* count_maps says that the program has a region of a buffer mapped, or has not any more. */
static void count_maps(object *m, int more) {
  pthread_mutex_lock(&maps);
  whole(m)->u.mem.mapped += more;
  pthread_mutex_unlock(&maps);
}

/* doubtful says whether memory may be more than there can be. Then it is asked for without its contents first: of a size that
 * no device has nobody has contents either. */
static bool doubtful(const object *context, size_t size) {
  enum { SOME = 16 << 20 };
  cl_ulong most = 0;
  return size > SOME && (yp_dispatch.clGetDeviceInfo((cl_device_id)context->u.context.devices[0], CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, NULL) || size > most);
}

/* undo gives back what the worker has made. */
static void undo(object *o) {
  yp_begin(o->node, OP_release);
  yp_word(o->id);
  yp_post(false);
  yp_destroy(o);
}

static object *create_buffer(cl_context c, cl_mem_flags flags, size_t size, void *host, bool sure, cl_int *err) {
  if (!is(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  cl_int bad = yp_check_flags(flags, host);
  if (bad) FAIL(bad);
  if (!size) FAIL(CL_INVALID_BUFFER_SIZE);
  object *region = flags & CL_MEM_USE_HOST_PTR ? yp_svm_at(obj(c), host, 1) : NULL;
  if (region) return yp_svm_buffer(region, flags, size, host, err);
  const bool ask = host && !sure && doubtful(obj(c), size);
  object *o = yp_new(MEM, obj(c), obj(c));
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  o->u.mem.flags = flags, o->u.mem.size = size, o->u.mem.type = CL_MEM_OBJECT_BUFFER;
  o->u.mem.host = flags & CL_MEM_USE_HOST_PTR ? host : NULL;
  yp_gate *gate = yp_gate_now(o->node); /* of who makes it, or of before */
  bool share = !ask && yp_unified(o->node) && size >= YP_SHARED && yp_gate_enter(gate);
  if (share) yp_gate_leave(gate);
  answer a = {.land = NULL};
  yp_begin(o->node, OP_create_buffer);
  yp_word(obj(c)->id);
  yp_word(o->id);
  yp_word(device_flags(flags));
  yp_word(size);
  yp_word(share);
  if (host && !share && !ask) yp_rows(host, size, 1, 1, size, size);
  else yp_word(0);
  bad = share || ask ? yp_sync(&a) : yp_end_promised(size, &a);
  if (ask) {
    if (a.fd >= 0) close(a.fd);
    if (bad) yp_destroy(o);
    else undo(o);
    if (bad) FAIL(bad);
    return create_buffer(c, flags, size, host, true, err);
  }
  if (!bad && share && (a.fd >= 0 || host)) {
    void *p = a.fd < 0 ? NULL : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, a.fd, 0);
    if (a.fd >= 0) close(a.fd);
    if (p != MAP_FAILED) o->u.mem.shared = p, o->u.mem.gate = gate;
    if (p == MAP_FAILED || (host && (!p || !yp_gate_enter(gate)))) { /* or nothing is shared any more: its data is to be sent */
      undo(o);
      if (p == MAP_FAILED) FAIL(CL_OUT_OF_HOST_MEMORY);
      return create_buffer(c, flags, size, host, true, err);
    }
    if (host) {
      memcpy(p, host, size);
      yp_gate_leave(gate);
    }
  }
  if (bad) yp_destroy(o), o = NULL;
  if (err) *err = bad;
  return o;
}

static cl_mem CL_API_CALL yp_clCreateBuffer(cl_context c, cl_mem_flags flags, size_t size, void *host, cl_int *err) { return (cl_mem)create_buffer(c, flags, size, host, false, err); }

static cl_mem CL_API_CALL yp_clCreateBufferWithProperties(cl_context c, const cl_mem_properties *p, cl_mem_flags flags, size_t size, void *host, cl_int *err) {
  if (p && *p) FAIL(CL_INVALID_PROPERTY);
  object *o = create_buffer(c, flags, size, host, false, err);
  if (o) o->u.mem.listed = p;
  return (cl_mem)o;
}

/* aligned says whether a part of a buffer can begin there, as the device tells. */
static bool aligned(const object *context, size_t origin) {
  cl_uint bits = 0;
  return !yp_dispatch.clGetDeviceInfo((cl_device_id)context->u.context.devices[0], CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof bits, &bits, NULL) && bits / 8 && origin % (bits / 8) == 0;
}

static cl_mem CL_API_CALL yp_clCreateSubBuffer(cl_mem m, cl_mem_flags flags, cl_buffer_create_type type, const void *info, cl_int *err) {
  const cl_buffer_region *r = info;
  if (!is(m, MEM) || obj(m)->u.mem.pixel || obj(m)->parent->kind == MEM) FAIL(CL_INVALID_MEM_OBJECT);
  object *of = obj(m);
  if (flags & ~(cl_mem_flags)(ACCESS | OF_HOST) || (flags && yp_check_flags(flags, NULL))) FAIL(CL_INVALID_VALUE);
  if ((of->u.mem.flags & CL_MEM_WRITE_ONLY && flags & (CL_MEM_READ_WRITE | CL_MEM_READ_ONLY)) || (of->u.mem.flags & CL_MEM_READ_ONLY && flags & (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY)))
    FAIL(CL_INVALID_VALUE);
  if ((of->u.mem.flags & CL_MEM_HOST_WRITE_ONLY && flags & CL_MEM_HOST_READ_ONLY) || (of->u.mem.flags & CL_MEM_HOST_READ_ONLY && flags & CL_MEM_HOST_WRITE_ONLY) ||
      (of->u.mem.flags & CL_MEM_HOST_NO_ACCESS && flags & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY)))
    FAIL(CL_INVALID_VALUE);
  if (type != CL_BUFFER_CREATE_TYPE_REGION || !r) FAIL(CL_INVALID_VALUE);
  if (!r->size) FAIL(CL_INVALID_BUFFER_SIZE);
  if (r->origin > of->u.mem.size || r->size > of->u.mem.size - r->origin) FAIL(CL_INVALID_VALUE);
  object *o = yp_new(MEM, of, of->context);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  const cl_mem_flags all = yp_flags_of(flags, of->u.mem.flags);
  const bool sure = aligned(of->context, r->origin);
  yp_begin(o->node, OP_create_sub_buffer);
  yp_word(of->id);
  yp_word(o->id);
  yp_word(all & (ACCESS | OF_HOST));
  yp_word(r->origin);
  yp_word(r->size);
  cl_int bad = CL_SUCCESS;
  if (sure) yp_post(false);
  else bad = yp_sync(NULL);
  o->u.mem.flags = all;
  o->u.mem.size = r->size, o->u.mem.origin = r->origin, o->u.mem.type = CL_MEM_OBJECT_BUFFER;
  if (of->u.mem.host) o->u.mem.host = of->u.mem.host + r->origin;
  if (bad) yp_destroy(o), o = NULL;
  if (err) *err = bad;
  return (cl_mem)o;
}

static size_t pixel_size(const cl_image_format *f) {
  size_t n;
  switch (f->image_channel_order) {
  case CL_R: case CL_A: case CL_INTENSITY: case CL_LUMINANCE: case CL_Rx: case CL_DEPTH: n = 1; break;
  case CL_RG: case CL_RA: case CL_RGx: n = 2; break;
  case CL_RGB: case CL_RGBx: case CL_sRGB: n = 3; break;
  default: n = 4;
  }
  switch (f->image_channel_data_type) {
  case CL_SNORM_INT8: case CL_UNORM_INT8: case CL_SIGNED_INT8: case CL_UNSIGNED_INT8: return n;
  case CL_SNORM_INT16: case CL_UNORM_INT16: case CL_SIGNED_INT16: case CL_UNSIGNED_INT16: case CL_HALF_FLOAT: return 2 * n;
  case CL_UNORM_SHORT_565: case CL_UNORM_SHORT_555: return 2;
  case CL_UNORM_INT_101010: case CL_UNORM_INT_101010_2: return 4;
  default: return 4 * n;
  }
}

static object *make_image(cl_context c, cl_mem_flags flags, const cl_image_format *f, const cl_image_desc *d, void *host, bool sure, cl_int *err) {
  if (!is(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!f) FAIL(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
  if (!d) FAIL(CL_INVALID_IMAGE_DESCRIPTOR);
  if (d->buffer && (!is(d->buffer, MEM) || obj(d->buffer)->context != obj(c))) FAIL(CL_INVALID_IMAGE_DESCRIPTOR);
  cl_int bad = yp_check_flags(flags, host);
  if (bad) FAIL(bad);
  size_t pixel = pixel_size(f), w = d->image_width, h = 1, z = 1;
  switch (d->image_type) {
  case CL_MEM_OBJECT_IMAGE1D_ARRAY: h = d->image_array_size; break;
  case CL_MEM_OBJECT_IMAGE2D: h = d->image_height; break;
  case CL_MEM_OBJECT_IMAGE2D_ARRAY: h = d->image_height, z = d->image_array_size; break;
  case CL_MEM_OBJECT_IMAGE3D: h = d->image_height, z = d->image_depth; break;
  case CL_MEM_OBJECT_IMAGE1D: case CL_MEM_OBJECT_IMAGE1D_BUFFER: break;
  default: FAIL(CL_INVALID_IMAGE_DESCRIPTOR);
  }
  const bool lines = d->image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY, slices = d->image_type == CL_MEM_OBJECT_IMAGE3D || d->image_type == CL_MEM_OBJECT_IMAGE2D_ARRAY;
  size_t row = d->image_row_pitch ? d->image_row_pitch : w * pixel, least = lines ? row : row * h, slice = (lines || slices) && d->image_slice_pitch ? d->image_slice_pitch : least;
  /* Pitches of memory that there is not are not the standard's, but its conformance tests give them, and drivers take them. */
  if (!d->buffer && (row < w * pixel || row % pixel || (row && (slice < least || slice % row)))) FAIL(CL_INVALID_IMAGE_DESCRIPTOR);
  size_t bytes;
  const bool many = __builtin_mul_overflow(w, pixel, &bytes) || __builtin_mul_overflow(bytes, h, &bytes) || __builtin_mul_overflow(bytes, z, &bytes);
  const bool ask = host && !sure && (many || doubtful(obj(c), bytes));
  object *o = yp_new(MEM, d->buffer ? obj(d->buffer) : obj(c), obj(c));
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  o->u.mem.flags = d->buffer ? yp_flags_of(flags, obj(d->buffer)->u.mem.flags) : flags, o->u.mem.type = d->image_type, o->u.mem.pixel = pixel, o->u.mem.depth = f->image_channel_order == CL_DEPTH, o->u.mem.w = w, o->u.mem.h = h, o->u.mem.d = z;
  if (!d->buffer && (host || d->image_row_pitch || slice != least)) o->u.mem.told[0] = row, o->u.mem.told[1] = lines || slices ? slice : 0;
  if (lines) row = slice, slice *= h; /* each row is a slice there */
  o->u.mem.host = flags & CL_MEM_USE_HOST_PTR ? host : NULL, o->u.mem.host_row = row, o->u.mem.host_slice = slice;
  yp_begin(o->node, OP_create_image);
  yp_word(obj(c)->id);
  yp_word(o->id);
  yp_word(device_flags(flags));
  yp_word(f->image_channel_order);
  yp_word(f->image_channel_data_type);
  yp_word(d->image_type);
  yp_word(d->image_width);
  yp_word(d->image_height);
  yp_word(d->image_depth);
  yp_word(d->image_array_size);
  yp_word(d->buffer ? d->image_row_pitch : 0);
  yp_word(d->num_mip_levels);
  yp_word(d->num_samples);
  yp_word(d->buffer ? obj(d->buffer)->id : 0);
  if (host && !ask) yp_rows(host, w * pixel, h, z, row, slice);
  else yp_word(0);
  bad = yp_sync(NULL);
  if (!bad && ask) {
    undo(o);
    return make_image(c, flags, f, d, host, true, err);
  }
  if (bad) yp_destroy(o), o = NULL;
  if (err) *err = bad;
  return o;
}

static object *create_image(cl_context c, cl_mem_flags flags, const cl_image_format *f, const cl_image_desc *d, void *host, cl_int *err) { return make_image(c, flags, f, d, host, false, err); }

static cl_mem CL_API_CALL yp_clCreateImage(cl_context c, cl_mem_flags flags, const cl_image_format *f, const cl_image_desc *d, void *host, cl_int *err) {
  return (cl_mem)create_image(c, flags, f, d, host, err);
}

static cl_mem CL_API_CALL yp_clCreateImageWithProperties(cl_context c, const cl_mem_properties *p, cl_mem_flags flags, const cl_image_format *f, const cl_image_desc *d, void *host,
                                                         cl_int *err) {
  if (p && *p) FAIL(CL_INVALID_PROPERTY);
  object *o = create_image(c, flags, f, d, host, err);
  if (o) o->u.mem.listed = p;
  return (cl_mem)o;
}

static cl_mem old_image(cl_context c, cl_mem_flags flags, const cl_image_format *f, cl_image_desc d, void *host, cl_int *err) {
  cl_int bad;
  object *o = create_image(c, flags, f, &d, host, &bad);
  if (err) *err = bad == CL_INVALID_IMAGE_DESCRIPTOR ? CL_INVALID_IMAGE_SIZE : bad;
  return (cl_mem)o;
}

static cl_mem CL_API_CALL yp_clCreateImage2D(cl_context c, cl_mem_flags flags, const cl_image_format *f, size_t w, size_t h, size_t row, void *host, cl_int *err) {
  return old_image(c, flags, f, (cl_image_desc){.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = w, .image_height = h, .image_row_pitch = row}, host, err);
}

static cl_mem CL_API_CALL yp_clCreateImage3D(cl_context c, cl_mem_flags flags, const cl_image_format *f, size_t w, size_t h, size_t d, size_t row, size_t slice, void *host, cl_int *err) {
  cl_image_desc x = {.image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = w, .image_height = h, .image_depth = d, .image_row_pitch = row, .image_slice_pitch = slice};
  return old_image(c, flags, f, x, host, err);
}

static cl_int CL_API_CALL yp_clGetSupportedImageFormats(cl_context c, cl_mem_flags flags, cl_mem_object_type type, cl_uint n, cl_image_format *formats, cl_uint *count) {
  if (!is(c, CONTEXT)) return CL_INVALID_CONTEXT;
  if (formats && !n) return CL_INVALID_VALUE;
  answer a = {.land = NULL};
  yp_begin(obj(c)->node, OP_image_formats);
  yp_word(obj(c)->id);
  yp_word(flags);
  yp_word(type);
  cl_int status = yp_sync(&a);
  size_t there = a.size / sizeof *formats;
  if (!status && formats) memcpy(formats, a.data, (there < n ? there : n) * sizeof *formats);
  if (!status && count) *count = (cl_uint)there;
  free(a.data);
  return status;
}

/* yp_color adds what an image is filled with, of which one of depths has one number and no more. */
void yp_color(const object *image, const void *color) {
  uint32_t channels[4] = {0};
  memcpy(channels, color, image->u.mem.depth ? sizeof *channels : sizeof channels);
  yp_bytes(channels, sizeof channels);
}

/* yp_mem_gone calls what the program asked for, the last first. */
void yp_mem_gone(object *o) {
  yp_tell(o->destroyed, o);
  while (o->u.mem.maps) { /* of shared virtual memory */
    map *p = o->u.mem.maps;
    o->u.mem.maps = p->next;
    free(p);
  }
  if (o->kind == SVM) yp_svm_gone(o);
  else if (o->u.mem.shared && o->parent->kind == CONTEXT) munmap(o->u.mem.shared, o->u.mem.size);
}

static cl_int CL_API_CALL yp_clSetMemObjectDestructorCallback(cl_mem m, void(CL_CALLBACK *call)(cl_mem, void *), void *data) {
  if (!is(m, MEM)) return CL_INVALID_MEM_OBJECT;
  return yp_when_gone(obj(m), (void (*)(void))call, data);
}

static cl_int CL_API_CALL yp_clGetMemObjectInfo(cl_mem m, cl_mem_info what, size_t size, void *value, size_t *got) {
  if (!is(m, MEM)) return CL_INVALID_MEM_OBJECT;
  object *o = obj(m);
  cl_uint n = 0;
  switch (what) {
  case CL_MEM_TYPE: GIVE(cl_mem_object_type, o->u.mem.type);
  case CL_MEM_FLAGS: GIVE(cl_mem_flags, o->u.mem.flags);
  case CL_MEM_HOST_PTR: GIVE(void *, o->u.mem.host);
  case CL_MEM_MAP_COUNT:
  case CL_MEM_REFERENCE_COUNT: /* the program's, without those of what is mapped */
    pthread_mutex_lock(&maps);
    for (map *i = o->u.mem.maps; i; i = i->next) n++;
    pthread_mutex_unlock(&maps);
    GIVE(cl_uint, what == CL_MEM_MAP_COUNT ? n : yp_count(yp_refs(o) - (int)n));
  case CL_MEM_CONTEXT: GIVE(cl_context, (cl_context)o->context);
  case CL_MEM_ASSOCIATED_MEMOBJECT: GIVE(cl_mem, o->parent->kind == MEM ? (cl_mem)o->parent : NULL);
  case CL_MEM_OFFSET: GIVE(size_t, o->u.mem.origin);
  case CL_MEM_USES_SVM_POINTER: GIVE(cl_bool, yp_of_svm(o));
  case CL_MEM_PROPERTIES: return yp_no_properties(o->u.mem.listed, size, value, got);
  }
  return yp_info(o->node, OF_MEM, o->id, 0, what, size, value, got);
}

static cl_int CL_API_CALL yp_clGetImageInfo(cl_mem m, cl_image_info what, size_t size, void *value, size_t *got) {
  if (!is(m, MEM) || !obj(m)->u.mem.pixel) return CL_INVALID_MEM_OBJECT;
  if (what == CL_IMAGE_BUFFER) GIVE(cl_mem, obj(m)->parent->kind == MEM && !obj(m)->parent->u.mem.pixel ? (cl_mem)obj(m)->parent : NULL);
  const size_t *told = obj(m)->u.mem.told;
  if (told[0] && (what == CL_IMAGE_ROW_PITCH || what == CL_IMAGE_SLICE_PITCH)) GIVE(size_t, told[what == CL_IMAGE_SLICE_PITCH]);
  return yp_info(obj(m)->node, OF_IMAGE, obj(m)->id, 0, what, size, value, got);
}

/* A transfer is between memory of the device and rows of the program's. */
typedef struct {
  int shape, op;
  object *queue, *mem;
  bool blocking;
  size_t origin[3], region[3]; /* bytes and rows, or pixels in images */
  size_t row_pitch, slice_pitch; /* of the buffer, in RECT */
  uint8_t *host;
  size_t host_row, host_slice;
  cl_uint n;
  const cl_event *waits;
  cl_event *event;
  cl_command_type type;
  bool mapped;
  uint64_t landing; /* where what is read comes later */
  bool blank;       /* a map of which no contents are wanted, and that does not wait for its queue */
} transfer;

static size_t row_bytes(const transfer *t) { return t->region[0] * (t->shape == IMAGE ? t->mem->u.mem.pixel : 1); }

/* reach adds so many times so many bytes, if there are such numbers. */
static bool reach(size_t *end, size_t n, size_t bytes) {
  size_t more;
  return !__builtin_mul_overflow(n, bytes, &more) && !__builtin_add_overflow(*end, more, end);
}

/* within says whether a region is one of the image. */
static bool within(const transfer *t) {
  const size_t size[3] = {t->mem->u.mem.w, t->mem->u.mem.h, t->mem->u.mem.d};
  for (int i = 0; i < 3; i++)
    if (t->origin[i] > size[i] || t->region[i] > size[i] - t->origin[i]) return false;
  return true;
}

static void copy_rows(uint8_t *to, size_t to_row, size_t to_slice, const uint8_t *from, size_t from_row, size_t from_slice, size_t row, size_t rows, size_t slices) {
  for (size_t z = 0; z < slices; z++)
    if (rows == 1 || (to_row == row && from_row == row)) memcpy(to + z * to_slice, from + z * from_slice, row * rows);
    else
      for (size_t y = 0; y < rows; y++) memcpy(to + z * to_slice + y * to_row, from + z * from_slice + y * from_row, row);
}

cl_int yp_marker(object *queue, yp_ends ends) {
  object *e = ends.event ? yp_event(queue, ends.type) : NULL;
  yp_begin(queue->node, OP_EnqueueMarkerWithWaitList);
  yp_word(queue->id);
  yp_proof();
  yp_waits(ends.n, ends.waits);
  yp_word(e ? e->id : 0);
  if (e && yp_ordered(queue)) e->u.event.upto = yp_posted(queue);
  if (!ends.n) __atomic_store_n(&queue->u.queue.marked, true, __ATOMIC_RELEASE);
  cl_int status = ends.n ? yp_send_to(queue, e) : yp_end();
  if (e && status) yp_destroy(e);
  else if (e) *ends.event = (cl_event)e;
  return status;
}

/* marker makes the event of a transfer that was done here. */
static cl_int marker(object *queue, cl_uint n, const cl_event *waits, cl_event *event, cl_command_type type) { return yp_marker(queue, (yp_ends){n, waits, event, type}); }

/* ended makes the event of a transfer that was done here, if one is wanted. */
static cl_int ended(const transfer *t) {
  const bool ordered = yp_ordered(t->queue), named = !ordered && t->n; /* else it would be behind all that such a queue has, also what the program holds back */
  if (!t->event) return CL_SUCCESS;
  cl_int bad = marker(t->queue, named ? t->n : 0, named ? t->waits : NULL, t->event, t->type);
  if (bad) return bad;
  if (t->queue->u.queue.flags & CL_QUEUE_PROFILING_ENABLE && (ordered || !yp_user_events(t->queue->node))) return yp_dispatch.clWaitForEvents(1, t->event); /* it has times then */
  __atomic_store_n(&obj(*t->event)->u.event.over, true, __ATOMIC_RELEASE);
  return CL_SUCCESS;
}

/* not_read ends a map of which no contents are wanted. One that blocks is behind what it waits for, and what its queue keeps before it. */
static cl_int not_read(transfer *t) {
  cl_event own = NULL;
  cl_int bad = CL_SUCCESS;
  if (!t->blocking || t->blank) return t->n || t->event ? marker(t->queue, t->n, t->waits, t->event, t->type) : CL_SUCCESS;
  if (!yp_ordered(t->queue) && t->n) bad = yp_dispatch.clWaitForEvents(t->n, t->waits);
  if (!yp_ordered(t->queue) || !(t->n || yp_pending(t->queue))) return bad ? bad : ended(t);
  bad = marker(t->queue, t->n, t->waits, &own, t->type);
  if (!bad) bad = yp_dispatch.clWaitForEvents(1, &own);
  if (!bad && t->event) *t->event = own;
  else if (own) yp_dispatch.clReleaseEvent(own);
  return bad;
}

/* shared_now brings a queue to rest, if that is the cheaper way to transfer n
 * bytes, and enters the gate if that went well. It says no where the message
 * must go behind what the queue has. */
static bool shared_now(object *queue, object *mem, bool blocking, size_t n, cl_uint waits, const cl_event *list, cl_int *status, yp_gate **gate) {
  *status = CL_SUCCESS;
  if (!may_share(mem, yp_gate_now(queue->node)) || yp_user_events(queue->node)) return false;
  if (yp_pending(queue) || waits) {
    if (!blocking && n < LATER) return false;
    if (waits) *status = marker(queue, waits, list, NULL, 0);
    if (!*status) *status = yp_finish(queue);
  }
  return *status || (*gate = enter(mem));
}

/* may_be_empty: since OpenCL 2.1 what is read or written of a buffer may have no bytes. */
static bool may_be_empty(const object *queue) {
  char version[1024];
  int major = 0, minor = 0;
  if (yp_dispatch.clGetDeviceInfo((cl_device_id)queue->u.queue.device, CL_DEVICE_VERSION, sizeof version, version, NULL)) return false;
  return sscanf(version, "OpenCL %d.%d", &major, &minor) == 2 && (major > 2 || (major == 2 && minor > 0));
}

static cl_int run_transfer(transfer *t) {
  if (!is(t->queue, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!is(t->mem, MEM) && !is(t->mem, SVM)) return CL_INVALID_MEM_OBJECT;
  if (t->queue->context != t->mem->context) return CL_INVALID_CONTEXT;
  bool reads = t->op == OP_read;
  cl_int status = yp_check_waits(t->queue->context, t->n, t->waits);
  if (status) return status;
  if (!t->host) return CL_INVALID_VALUE;
  if ((t->shape == IMAGE) != (t->mem->u.mem.pixel != 0)) return CL_INVALID_MEM_OBJECT;
  if (t->mem->u.mem.flags & (CL_MEM_HOST_NO_ACCESS | (reads ? CL_MEM_HOST_WRITE_ONLY : CL_MEM_HOST_READ_ONLY)) && !t->mapped)
    return CL_INVALID_OPERATION;
  if (t->shape == IMAGE && !within(t)) return CL_INVALID_VALUE;
  if (t->shape == BUFFER && !t->region[0] && t->origin[0] <= t->mem->u.mem.size && may_be_empty(t->queue)) return not_read(t);
  size_t row = row_bytes(t), rows = t->region[1], slices = t->region[2], bytes = 0, plane = 0;
  if (!row || !rows || !slices || !reach(&plane, row, rows) || !reach(&bytes, plane, slices)) return CL_INVALID_VALUE;
  if (!t->host_row) t->host_row = row;
  if (plane = 0, !reach(&plane, t->host_row, rows)) return CL_INVALID_VALUE;
  if (!t->host_slice) t->host_slice = plane;
  if (t->host_row < row || t->host_slice < plane || (t->shape == RECT && t->host_slice % t->host_row)) return CL_INVALID_VALUE;
  size_t at = 0;
  if (t->shape != IMAGE) {
    size_t size = t->mem->u.mem.size;
    if (!t->row_pitch) t->row_pitch = row;
    if (plane = 0, !reach(&plane, t->row_pitch, rows)) return CL_INVALID_VALUE;
    if (!t->slice_pitch) t->slice_pitch = plane;
    if (t->row_pitch < row || (t->shape == RECT && (t->slice_pitch < plane || t->slice_pitch % t->row_pitch))) return CL_INVALID_VALUE;
    at = t->origin[0];
    if (!reach(&at, t->origin[1], t->row_pitch) || !reach(&at, t->origin[2], t->slice_pitch)) return CL_INVALID_VALUE;
    size_t end = at;
    if (!reach(&end, slices - 1, t->slice_pitch) || !reach(&end, rows - 1, t->row_pitch) || !reach(&end, row, 1) || end > size || bytes > size) return CL_INVALID_VALUE;
    bool profiled = t->event && t->queue->u.queue.flags & CL_QUEUE_PROFILING_ENABLE;
    yp_gate *gate = NULL;
    if (!profiled && shared_now(t->queue, t->mem, t->blocking, bytes, t->n, t->waits, &status, &gate)) {
      uint8_t *device = shared_at(t->mem) + at;
      if (status) return status == CL_OUT_OF_RESOURCES ? status : CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
      if (reads) copy_rows(t->host, t->host_row, t->host_slice, device, t->row_pitch, t->slice_pitch, row, rows, slices);
      else copy_rows(device, t->row_pitch, t->slice_pitch, t->host, t->host_row, t->host_slice, row, rows, slices);
      yp_gate_leave(gate);
      return ended(t);
    }
  }
  /* It may wait where it need not: the node holds what is read for a program until that looks. */
  if (reads && !t->blocking && !t->n && !yp_room_for_reads(t->queue->node, bytes)) t->blocking = true;
  object *e = t->event ? yp_event(t->queue, t->type) : NULL;
  landing l = {0, t->host, row, rows, slices, t->host_row, t->host_slice, false, NULL};
  bool later = reads && !t->blocking;
  if (later) {
    object *number = yp_new(EVENT, NULL, NULL); /* for its number only */
    if (!number) return CL_OUT_OF_HOST_MEMORY;
    t->landing = l.id = number->id;
    yp_destroy(number);
    yp_land_later(t->queue->node, &l);
  }
  uint64_t posted = yp_posted(t->queue);
  answer a = {.land = &l};
  yp_spare_look();
  yp_begin(t->queue->node, t->op);
  yp_word(t->queue->id);
  yp_proof(); /* it was looked at here */
  yp_like((uint64_t[]){(uint64_t)t->shape, t->mem->u.mem.pixel}, 2);
  yp_word(t->mem->id);
  yp_word((uint64_t)t->shape);
  yp_word(t->blocking);
  yp_size3(t->origin);
  yp_size3(t->region);
  yp_word(t->row_pitch);
  yp_word(t->slice_pitch);
  yp_word(bytes);
  yp_word(l.id);
  yp_waits(t->n, t->waits);
  yp_word(e ? e->id : 0);
  if (!reads) yp_rows(t->host, row, rows, slices, t->host_row, t->host_slice);
  /* What both map is used here as soon as its own queue rests: another may not write there then. */
  if (t->blocking && !reads && bytes <= COPIED && !t->n && !whole(t->mem)->u.mem.shared && !yp_user_events(t->queue->node) && yp_end_ahead(t->queue)) {
    posted = __atomic_add_fetch(&t->queue->u.queue.posted, 1, __ATOMIC_RELEASE);
    if (e && yp_ordered(t->queue)) e->u.event.upto = posted;
    if (e) *t->event = (cl_event)e;
    return CL_SUCCESS;
  }
  status = t->blocking ? yp_sync(&a) : yp_send_to(t->queue, e);
  if (t->blocking && !status && !a.a && !t->n && yp_ordered(t->queue)) yp_done(t->queue, posted);
  if (e && status) yp_destroy(e);
  else if (e) *t->event = (cl_event)e;
  return status;
}

#define ENDS cl_uint n, const cl_event *waits, cl_event *event

cl_int yp_transfer(object *queue, int op, object *m, bool blocking, size_t at, size_t size, void *host, yp_ends ends) {
  transfer t = {BUFFER, op, queue, m, blocking, {at, 0, 0}, {size, 1, 1}, 0, 0, host, 0, 0, ends.n, ends.waits, ends.event, ends.type, false, 0, false};
  return run_transfer(&t);
}

static cl_int CL_API_CALL yp_clEnqueueReadBuffer(cl_command_queue q, cl_mem m, cl_bool blocking, size_t offset, size_t size, void *p, ENDS) {
  return yp_transfer(obj(q), OP_read, obj(m), blocking, offset, size, p, (yp_ends){n, waits, event, CL_COMMAND_READ_BUFFER});
}

static cl_int CL_API_CALL yp_clEnqueueWriteBuffer(cl_command_queue q, cl_mem m, cl_bool blocking, size_t offset, size_t size, const void *p, ENDS) {
  return yp_transfer(obj(q), OP_write, obj(m), blocking, offset, size, (void *)(uintptr_t)p, (yp_ends){n, waits, event, CL_COMMAND_WRITE_BUFFER});
}

static cl_int rect(int op, cl_command_queue q, cl_mem m, cl_bool blocking, const size_t *origin, const size_t *host, const size_t *region, size_t row, size_t slice, size_t host_row,
                   size_t host_slice, const void *p, ENDS) {
  if (!origin || !host || !region || !p) return CL_INVALID_VALUE;
  if (!host_row) host_row = region[0];
  if (!host_slice) host_slice = host_row * region[1];
  uint8_t *at = (uint8_t *)(uintptr_t)p + host[0] + host[1] * host_row + host[2] * host_slice;
  transfer t = {RECT, op, obj(q), obj(m), blocking, {origin[0], origin[1], origin[2]}, {region[0], region[1], region[2]}, row, slice, at, host_row, host_slice, n, waits, event,
                op == OP_read ? CL_COMMAND_READ_BUFFER_RECT : CL_COMMAND_WRITE_BUFFER_RECT, false, 0, false};
  return run_transfer(&t);
}

static cl_int CL_API_CALL yp_clEnqueueReadBufferRect(cl_command_queue q, cl_mem m, cl_bool blocking, const size_t *origin, const size_t *host, const size_t *region, size_t row,
                                                     size_t slice, size_t host_row, size_t host_slice, void *p, ENDS) {
  return rect(OP_read, q, m, blocking, origin, host, region, row, slice, host_row, host_slice, p, n, waits, event);
}

static cl_int CL_API_CALL yp_clEnqueueWriteBufferRect(cl_command_queue q, cl_mem m, cl_bool blocking, const size_t *origin, const size_t *host, const size_t *region, size_t row,
                                                      size_t slice, size_t host_row, size_t host_slice, const void *p, ENDS) {
  return rect(OP_write, q, m, blocking, origin, host, region, row, slice, host_row, host_slice, p, n, waits, event);
}

static cl_int image(int op, cl_command_queue q, cl_mem m, cl_bool blocking, const size_t *origin, const size_t *region, size_t row, size_t slice, const void *p, cl_command_type type, ENDS) {
  if (!origin || !region) return CL_INVALID_VALUE;
  transfer t = {IMAGE, op, obj(q), obj(m), blocking, {origin[0], origin[1], origin[2]}, {region[0], region[1], region[2]}, 0, 0, (uint8_t *)(uintptr_t)p, row, slice, n, waits, event, type, false, 0, false};
  if (is(m, MEM) && obj(m)->u.mem.type == CL_MEM_OBJECT_IMAGE1D_ARRAY && slice) t.host_row = slice, t.host_slice = slice * region[1];
  return run_transfer(&t);
}

static cl_int CL_API_CALL yp_clEnqueueReadImage(cl_command_queue q, cl_mem m, cl_bool blocking, const size_t *origin, const size_t *region, size_t row, size_t slice, void *p, ENDS) {
  return image(OP_read, q, m, blocking, origin, region, row, slice, p, CL_COMMAND_READ_IMAGE, n, waits, event);
}

static cl_int CL_API_CALL yp_clEnqueueWriteImage(cl_command_queue q, cl_mem m, cl_bool blocking, const size_t *origin, const size_t *region, size_t row, size_t slice, const void *p, ENDS) {
  return image(OP_write, q, m, blocking, origin, region, row, slice, p, CL_COMMAND_WRITE_IMAGE, n, waits, event);
}

static void *map_region(transfer *t, cl_map_flags flags, cl_int *err) {
  const cl_map_flags all = CL_MAP_READ | CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;
  if (!is(t->queue, QUEUE)) FAIL(CL_INVALID_COMMAND_QUEUE);
  if ((!is(t->mem, MEM) && !is(t->mem, SVM)) || (t->shape == IMAGE) != (t->mem->u.mem.pixel != 0)) FAIL(CL_INVALID_MEM_OBJECT);
  if (t->queue->context != t->mem->context) FAIL(CL_INVALID_CONTEXT);
  object *m = t->mem;
  cl_int bad = yp_check_waits(t->queue->context, t->n, t->waits);
  if (bad) FAIL(bad);
  if (flags & ~all || (flags & CL_MAP_WRITE_INVALIDATE_REGION && flags & (CL_MAP_READ | CL_MAP_WRITE))) FAIL(CL_INVALID_VALUE);
  const cl_map_flags writes = CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;
  if (m->u.mem.flags & CL_MEM_HOST_NO_ACCESS || (m->u.mem.flags & CL_MEM_HOST_WRITE_ONLY && flags & CL_MAP_READ) || (m->u.mem.flags & CL_MEM_HOST_READ_ONLY && flags & writes))
    FAIL(CL_INVALID_OPERATION);
  if (t->shape == BUFFER && (!t->region[0] || t->origin[0] > m->u.mem.size || t->region[0] > m->u.mem.size - t->origin[0])) FAIL(CL_INVALID_VALUE);
  size_t row = row_bytes(t), bytes = row * t->region[1] * t->region[2];
  if (t->shape == IMAGE && (!bytes || !within(t))) FAIL(CL_INVALID_VALUE);
  map *p = calloc(1, sizeof *p);
  if (!p) FAIL(CL_OUT_OF_HOST_MEMORY);
  p->write = flags & writes;
  memcpy(p->origin, t->origin, sizeof p->origin);
  memcpy(p->region, t->region, sizeof p->region);
  bool direct = may_share(m, yp_gate_now(m->node)) && (!m->u.mem.host || yp_of_svm(m)) && ((t->blocking && yp_ordered(t->queue)) || !yp_user_events(m->node));
  if (direct) {
    if (t->n) bad = marker(t->queue, t->n, t->waits, NULL, t->type);
    if (!bad && !t->blank && (yp_pending(t->queue) || t->n)) bad = yp_finish(t->queue);
    direct = bad || (p->gate = enter(m)); /* else what was finished may have been finished elsewhere */
    if (direct) count_maps(m, 1);
    if (direct && !bad) {
      p->at = shared_at(m) + t->origin[0];
      yp_gate_leave(p->gate);
      bad = ended(t);
    }
  }
  if (!direct) {
    count_maps(m, 1);
    p->shadow = true;
    bool lent = m->u.mem.host;
    if (lent && t->shape == IMAGE) t->host_row = m->u.mem.host_row, t->host_slice = m->u.mem.host_slice;
    p->row = t->host_row, p->slice = t->host_slice;
    if (lent) p->at = m->u.mem.host + t->origin[0] * (t->shape == IMAGE ? m->u.mem.pixel : 1) + t->origin[1] * t->host_row + t->origin[2] * t->host_slice;
    else if ((p->at = yp_room(&bytes))) p->owned = bytes;
    else bad = CL_OUT_OF_HOST_MEMORY;
    t->host = p->at;
    if (!bad && (t->blank || flags & CL_MAP_WRITE_INVALIDATE_REGION)) bad = not_read(t);
    else if (!bad) t->mapped = true, bad = run_transfer(t);
  }
  if (bad) {
    count_maps(m, -1);
    if (p->owned) yp_spare(p->at, p->owned);
    free(p);
    FAIL(bad);
  }
  p->landing = t->landing;
  if (m->kind == MEM) __atomic_add_fetch(&m->refs, 1, __ATOMIC_RELAXED); /* it stays while it is mapped */
  pthread_mutex_lock(&maps);
  p->next = m->u.mem.maps, m->u.mem.maps = p;
  pthread_mutex_unlock(&maps);
  if (err) *err = CL_SUCCESS;
  return p->at;
}

void *yp_map(object *queue, object *m, bool blocking, cl_map_flags flags, size_t at, size_t size, yp_ends ends, cl_int *err) {
  transfer t = {BUFFER, OP_read, queue, m, blocking, {at, 0, 0}, {size, 1, 1}, 0, 0, NULL, 0, 0, ends.n, ends.waits, ends.event, ends.type, false, 0, false};
  return map_region(&t, flags, err);
}

static void *CL_API_CALL yp_clEnqueueMapBuffer(cl_command_queue q, cl_mem m, cl_bool blocking, cl_map_flags flags, size_t offset, size_t size, ENDS, cl_int *err) {
  return yp_map(obj(q), obj(m), blocking, flags, offset, size, (yp_ends){n, waits, event, CL_COMMAND_MAP_BUFFER}, err);
}

static void *map_image(transfer *t, cl_map_flags flags, size_t *row, size_t *slice, cl_int *err) {
  if (!is(t->mem, MEM)) FAIL(CL_INVALID_MEM_OBJECT);
  cl_mem_object_type type = t->mem->u.mem.type;
  if (!slice && (type == CL_MEM_OBJECT_IMAGE3D || type == CL_MEM_OBJECT_IMAGE1D_ARRAY || type == CL_MEM_OBJECT_IMAGE2D_ARRAY)) FAIL(CL_INVALID_VALUE);
  void *p = map_region(t, flags, err);
  if (!p) return NULL;
  *row = t->host_row ? t->host_row : row_bytes(t);
  if (slice) *slice = type == CL_MEM_OBJECT_IMAGE1D_ARRAY ? *row : type != CL_MEM_OBJECT_IMAGE3D && type != CL_MEM_OBJECT_IMAGE2D_ARRAY ? 0 : t->host_slice ? t->host_slice : *row * t->region[1];
  return p;
}

static void *CL_API_CALL yp_clEnqueueMapImage(cl_command_queue q, cl_mem m, cl_bool blocking, cl_map_flags flags, const size_t *origin, const size_t *region, size_t *row, size_t *slice,
                                              ENDS, cl_int *err) {
  if (!is(m, MEM)) FAIL(CL_INVALID_MEM_OBJECT);
  if (!origin || !region || !row) FAIL(CL_INVALID_VALUE);
  transfer t = {IMAGE, OP_read, obj(q), obj(m), blocking, {origin[0], origin[1], origin[2]}, {region[0], region[1], region[2]}, 0, 0, NULL, 0, 0, n, waits, event, CL_COMMAND_MAP_IMAGE,
                false, 0, false};
  return map_image(&t, flags, row, slice, err);
}

void *yp_map_blank(object *queue, object *m, cl_map_flags flags, const size_t *origin, const size_t *region, size_t *row, size_t *slice, cl_int *err) {
  const bool image = m->u.mem.pixel != 0;
  transfer t = {.shape = image ? IMAGE : BUFFER, .op = OP_read, .queue = queue, .mem = m, .blocking = true, .blank = true};
  memcpy(t.origin, origin, sizeof t.origin), memcpy(t.region, region, sizeof t.region);
  return image ? map_image(&t, flags, row, slice, err) : map_region(&t, flags, err);
}

cl_int yp_unmap(object *queue, object *m, void *at, yp_ends ends) {
  pthread_mutex_lock(&maps);
  map **i = &m->u.mem.maps, *p;
  while (*i && (*i)->at != at) i = &(*i)->next;
  if ((p = *i)) *i = p->next;
  pthread_mutex_unlock(&maps);
  if (!p) return CL_INVALID_VALUE;
  cl_int bad = CL_SUCCESS;
  bool here = !p->shadow && yp_gate_enter(p->gate);
  if (here) yp_gate_leave(p->gate);
  bool early = p->landing && yp_never_land(m->node, p->landing); /* the program did not wait for what it mapped: it wrote nothing */
  if (!here && p->write && !early) { /* a copy, or memory that was shared before the program moved */
    transfer t = {m->u.mem.pixel ? IMAGE : BUFFER, OP_write, queue, m, false, {p->origin[0], p->origin[1], p->origin[2]}, {p->region[0], p->region[1], p->region[2]}, 0, 0, at,
                  p->row, p->slice, ends.n, ends.waits, ends.event, ends.type, true, 0, false};
    bad = run_transfer(&t);
  } else if (ends.n || ends.event) {
    bad = yp_marker(queue, ends);
  }
  if (p->owned) yp_spare(p->at, p->owned);
  free(p);
  count_maps(m, -1);
  if (m->kind == MEM) yp_dispatch.clReleaseMemObject((cl_mem)m);
  return bad;
}

void yp_unmap_blank(object *queue, object *m, void *at) {
  pthread_mutex_lock(&maps);
  map *p = m->u.mem.maps;
  while (p && p->at != at) p = p->next;
  if (p) p->write = false;
  pthread_mutex_unlock(&maps);
  yp_unmap(queue, m, at, (yp_ends){.n = 0});
}

static cl_int CL_API_CALL yp_clEnqueueUnmapMemObject(cl_command_queue q, cl_mem m, void *at, ENDS) {
  if (!is(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!is(m, MEM)) return CL_INVALID_MEM_OBJECT;
  if (obj(q)->context != obj(m)->context) return CL_INVALID_CONTEXT;
  cl_int bad = yp_check_waits(obj(q)->context, n, waits);
  if (bad) return bad;
  return yp_unmap(obj(q), obj(m), at, (yp_ends){n, waits, event, CL_COMMAND_UNMAP_MEM_OBJECT});
}

#define SET(NAME) yp_dispatch.NAME = yp_##NAME;
void yp_fill_memory(void) {
  SET(clCreateBuffer) SET(clCreateBufferWithProperties) SET(clCreateSubBuffer) SET(clCreateImage) SET(clCreateImageWithProperties) SET(clCreateImage2D) SET(clCreateImage3D)
  SET(clGetSupportedImageFormats) SET(clSetMemObjectDestructorCallback) SET(clGetMemObjectInfo) SET(clGetImageInfo) SET(clEnqueueReadBuffer) SET(clEnqueueWriteBuffer)
  SET(clEnqueueReadBufferRect) SET(clEnqueueWriteBufferRect) SET(clEnqueueReadImage) SET(clEnqueueWriteImage) SET(clEnqueueMapBuffer) SET(clEnqueueMapImage)
  SET(clEnqueueUnmapMemObject)
}
