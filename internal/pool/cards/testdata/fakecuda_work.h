/* The other half of fakecuda.c: copies, code, streams, events and graphs, and how
 * programs find functions. */

static int copy(void *to, const void *from, size_t n, void *s, bool in, bool out) {
  if (!is_stream(s)) return BAD_HANDLE;
  if ((in && !on_card(to, n)) || (out && !on_card((void *)(uintptr_t)from, n)) || !to || !from) return now ? INVALID : BAD_CONTEXT;
  return give(s, &(op){.what = COPY, .to = to, .from = (ptr)(uintptr_t)from, .n = n});
}
#define BOTH(name, in, out)                                                                                         \
  int name##_v2(void *to, const void *from, size_t n) { return now_done(copy(to, from, n, NULL, in, out)); }        \
  int name##Async_v2(void *to, const void *from, size_t n, void *s) { return copy(to, from, n, s, in, out); }       \
  int name##_v2_ptds(void *to, const void *from, size_t n) { return now_done(copy(to, from, n, NULL, in, out)); }   \
  int name##Async_v2_ptsz(void *to, const void *from, size_t n, void *s) { return copy(to, from, n, s, in, out); }
BOTH(cuMemcpyHtoD, true, false)
BOTH(cuMemcpyDtoH, false, true)
BOTH(cuMemcpyDtoD, true, true)
int cuMemcpy(void *to, const void *from, size_t n) { return now_done(copy(to, from, n, NULL, false, false)); }
int cuMemcpyAsync(void *to, const void *from, size_t n, void *s) { return copy(to, from, n, s, false, false); }
int cuMemcpyPeerAsync(void *to, context *a, const void *from, context *b, size_t n, void *s) { return is(a, CONTEXT) && is(b, CONTEXT) ? copy(to, from, n, s, true, true) : BAD_CONTEXT; }

/* Of CUDA 13.2: copies that say how they may be done. Of those of boxes only rows are played. */
int cuMemcpyWithAttributesAsync(void *to, const void *from, size_t n, const void *how, void *s) { return how ? copy(to, from, n, s, false, false) : INVALID; }
typedef struct {
  int type; /* 1: an address */
  struct { void *at; size_t row, height; int where[2]; } of;
} place3;
typedef struct {
  place3 from, to;
  size_t w, h, d;
  unsigned order, flags;
} op3;
_Static_assert(sizeof(op3) == 112, "as the driver's");
int cuMemcpy3DWithAttributesAsync(const op3 *o, unsigned long long flags, void *s) {
  if (!o || flags || o->from.type != 1 || o->to.type != 1 || o->h != 1 || o->d != 1) return INVALID;
  return copy(o->to.of.at, o->from.of.at, o->w, s, false, false);
}

int cuMemPrefetchAsync(void *p, size_t n, int d, void *s) {
  CARD(d);
  return !is_stream(s) ? BAD_HANDLE : on_card_as(p, n, false) ? give(s, &(op){.what = FETCH, .to = p}) : INVALID;
}

/* Of CUDA 13: several at once, each to the place that is named for it and those behind it. */
int cuMemPrefetchBatchAsync(void **p, size_t *n, size_t count, const int (*where)[2], size_t *of, size_t wheres, unsigned long long flags, void *s) {
  if (!p || !n || !count || !where || !of || !wheres || of[0] || flags) return INVALID;
  int r = OK;
  for (size_t i = 0; i < count && !r; i++) r = cuMemPrefetchAsync(p[i], n[i], where[0][1], s);
  return r;
}

/* Of CUDA 12.6: what is decompressed here was stored as it is, with LZ4's mark of a block
 * of 15 bytes at most that are no copies. */
typedef struct {
  size_t from_n, to_n;
  uint32_t *got;
  const uint8_t *from;
  ptr to;
  int how;
  uint8_t more[20];
} packed;
_Static_assert(sizeof(packed) == 64, "as the driver's");
int cuMemBatchDecompressAsync(packed *all, size_t n, unsigned flags, size_t *bad, void *s) {
  enum { LZ4 = 4 };
  if (!all || !n || flags) return INVALID;
  for (size_t i = 0; i < n; i++) {
    const packed *x = all + i;
    if (bad) *bad = i;
    if (!is_stream(s)) return BAD_HANDLE;
    if (x->how != LZ4 || !x->from_n || !on_card((void *)(uintptr_t)x->from, x->from_n) || !on_card(x->to, x->to_n) || *x->from != (x->from_n - 1) << 4 || x->to_n < x->from_n - 1) return INVALID;
    int r = copy(x->to, x->from + 1, x->from_n - 1, s, true, true);
    if (r) return r;
    if (x->got) *x->got = (uint32_t)x->from_n - 1;
  }
  return OK;
}

static int set(void *p, size_t pitch, uint32_t v, int width, size_t n, size_t rows, void *s) {
  if (!is_stream(s)) return BAD_HANDLE;
  if (!n || !rows) return OK;
  if (!on_card(p, pitch * (rows - 1) + n * (size_t)width)) return now ? INVALID : BAD_CONTEXT;
  return give(s, &(op){.what = SET, .to = p, .pitch = pitch, .value = v, .width = width, .n = n, .rows = rows});
}
#define SETS(bits, type)                                                                                                                                        \
  int cuMemsetD##bits##_v2(void *p, type v, size_t n) { return set(p, 0, v, bits / 8, n, 1, NULL); }                                                            \
  int cuMemsetD##bits##Async(void *p, type v, size_t n, void *s) { return set(p, 0, v, bits / 8, n, 1, s); }                                                    \
  int cuMemsetD2D##bits##_v2(void *p, size_t pitch, type v, size_t w, size_t h) { return set(p, pitch, v, bits / 8, w, h, NULL); }                              \
  int cuMemsetD2D##bits##Async(void *p, size_t pitch, type v, size_t w, size_t h, void *s) { return set(p, pitch, v, bits / 8, w, h, s); }
SETS(8, unsigned char)
SETS(16, unsigned short)
SETS(32, unsigned)

static bool right_end(end *e, const box *b) {
  if (e->type == 4) e->type = on_card(e->device, 1) ? 2 : (e->host = e->device, 1);
  if (e->type == 1) return e->host && (e->pitch || b->h * b->d == 1);
  if (e->type == 3) return is(e->array, ARRAY) && e->x + b->w <= e->array->w * e->array->texel && e->y + b->h <= e->array->h;
  return e->type == 2 && (e->pitch >= e->x + b->w || b->h * b->d == 1) && on_card(at_end(e, 0, 0), 1) && on_card(at_end(e, b->h - 1, b->d - 1), b->w);
}
int cuMemcpy3DAsync_v2(const box *b, void *s) {
  if (!b) return INVALID;
  box c = *b;
  if (!c.from.height) c.from.height = c.from.y + c.h;
  if (!c.to.height) c.to.height = c.to.y + c.h;
  if (!c.w || !c.h || !c.d) return OK;
  return right_end(&c.from, &c) && right_end(&c.to, &c) ? give(s, &(op){.what = BOX, .box = c}) : now ? INVALID : BAD_CONTEXT;
}
int cuMemcpy3D_v2(const box *b) { return now_done(cuMemcpy3DAsync_v2(b, NULL)); }
typedef struct {
  size_t x, y;
  int type;
  ptr host, device;
  array *array;
  size_t pitch;
} end2;
typedef struct {
  end2 from, to;
  size_t w, h;
} box2;
static end of2(const end2 *e) { return (end){e->x, e->y, 0, 0, e->type, e->host, e->device, e->array, NULL, e->pitch, 0}; }
int cuMemcpy2DAsync_v2(const box2 *b, void *s) { return b ? cuMemcpy3DAsync_v2(&(box){of2(&b->from), of2(&b->to), b->w, b->h, 1}, s) : INVALID; }
int cuMemcpy2D_v2(const box2 *b) { return now_done(cuMemcpy2DAsync_v2(b, NULL)); }
int cuMemcpyHtoA_v2(array *a, size_t at, void *from, size_t n) { return cuMemcpy3D_v2(&(box){{.type = 1, .host = from}, {.type = 3, .array = a, .x = at}, n, 1, 1}); }
int cuMemcpyAtoH_v2(void *to, array *a, size_t at, size_t n) { return cuMemcpy3D_v2(&(box){{.type = 3, .array = a, .x = at}, {.type = 1, .host = to}, n, 1, 1}); }

/* --- textures, surfaces and tensor maps --- */

typedef struct {
  int type;
  union {
    array *array;
    struct { ptr at; int format; unsigned channels; size_t n; } linear;
    int reserved[32];
  } of;
  unsigned flags;
} resource;
typedef struct {
  int modes[3], filter;
  unsigned flags, anisotropy;
  int mipmaps;
  float levels[3];
  uint32_t border[4];
  int reserved[12];
} sampling;
typedef struct {
  int format;
  size_t w, h, d;
  unsigned some[4], reserved[16];
} view;
_Static_assert(sizeof(resource) == 144 && sizeof(sampling) == 104 && sizeof(view) == 112, "as the driver's");

static int make_texture(uint64_t *to, kind k, const resource *r, uint32_t border, const view *v) {
  if (!to || !r || r->flags || (r->type != 0 && (r->type != 2 || k == SURFACE))) return INVALID;
  if (r->type == 0 ? !is(r->of.array, ARRAY) : !on_card(r->of.linear.at, r->of.linear.n)) return r->type ? INVALID : BAD_HANDLE;
  const array *a = r->type ? NULL : r->of.array;
  texture *t = make_object(sizeof *t, k);
  t->at = a ? a->at : r->of.linear.at, t->n = a ? a->w * (a->h ? a->h : 1) * a->texel : r->of.linear.n, t->border = border;
  if (v) t->n = t->n < v->w * 4 ? t->n : v->w * 4;
  return *to = (uintptr_t)t, OK;
}
int cuTexObjectCreate(uint64_t *to, const resource *r, const sampling *s, const view *v) { return s ? make_texture(to, TEXTURE, r, s->border[0], v) : INVALID; }
int cuSurfObjectCreate(uint64_t *to, const resource *r) { return make_texture(to, SURFACE, r, 0, NULL); }
int cuTexObjectDestroy(uint64_t t) { return end_object((void *)(uintptr_t)t, TEXTURE) ? INVALID : OK; }
int cuSurfObjectDestroy(uint64_t t) { return end_object((void *)(uintptr_t)t, SURFACE) ? INVALID : OK; }

/* A map has a sum of all that it was made of, and where it is. */
static uint64_t sum_of(uint64_t sum, const void *p, size_t n) {
  for (const uint8_t *q = p; n--; q++) sum = sum * 31 + *q;
  return sum;
}
static int make_map(uint64_t *map, void *at, uint64_t sum) { return (uintptr_t)map % 64 ? INVALID : (memset(map, 0, 128), map[0] = (uintptr_t)at, map[1] = sum, OK); }
int cuTensorMapEncodeTiled(uint64_t *map, int type, unsigned rank, void *at, const uint64_t *sizes, const uint64_t *strides, const unsigned *part, const unsigned *steps, int a, int b, int c, int d) {
  if (!map || rank < 1 || rank > 5 || type < 0 || type > 12) return INVALID;
  int more[] = {type, a, b, c, d};
  return make_map(map, at, sum_of(sum_of(sum_of(sum_of(sum_of(rank, sizes, rank * 8), strides, (rank - 1) * 8), part, rank * 4), steps, rank * 4), more, sizeof more));
}
int cuTensorMapEncodeIm2col(uint64_t *map, int type, unsigned rank, void *at, const uint64_t *sizes, const uint64_t *strides, const int *low, const int *high, unsigned channels, unsigned pixels,
                            const unsigned *steps, int a, int b, int c, int d) {
  if (!map || rank < 3 || rank > 5) return INVALID;
  int more[] = {type, (int)channels, (int)pixels, a, b, c, d};
  return make_map(map, at, sum_of(sum_of(sum_of(sum_of(sum_of(sum_of(rank, sizes, rank * 8), strides, (rank - 1) * 8), low, (rank - 2) * 4), high, (rank - 2) * 4), steps, rank * 4), more, sizeof more));
}
int cuTensorMapReplaceAddress(uint64_t *map, void *at) { return map ? (map[0] = (uintptr_t)at, OK) : INVALID; }

/* --- code --- */

static uint64_t word(const uint8_t *p, size_t n) {
  uint64_t v = 0;
  return memcpy(&v, p, n), v;
}

/* elf finds the kernels of an ELF file, which ends with its table of sections and
 * has a sum of all bytes after its first sixteen among these. */
static bool elf(const uint8_t *p, unsigned *has) {
  uint64_t at = word(p + 40, 8), n = word(p + 60, 2), names = word(p + 62, 2), sum = 14695981039346656037u;
  const uint8_t *text = p + word(p + at + names * 64 + 24, 8);
  for (uint64_t i = 16; i < at + n * 64; i++) sum = (sum ^ p[i]) * 1099511628211u;
  if (word(p + 8, 8) != sum) return false;
  for (uint64_t i = 0; i < n; i++)
    for (int k = 0; k < KERNELS; k++) {
      const char *name = (const char *)text + word(p + at + i * 64, 4);
      if (!strncmp(name, ".nv.info.", 9) && !strcmp(name + 9, kernels[k].name)) *has |= 1u << k;
    }
  return true;
}

static int load(module **m, const void *image) {
  const uint8_t *p = image;
  unsigned has = 0;
  if (!m || !image) return INVALID;
  if (!now) return BAD_CONTEXT;
  if (!memcmp(p, "\x50\xED\x55\xBA", 1) && word(p, 4) == 0xBA55ED50) p += word(p + 6, 2) + word(p + word(p + 6, 2) + 4, 4); /* of a fat binary the first */
  if (p[0] == 0x7F) {
    if (!elf(p, &has)) return BAD_IMAGE;
  } else if (!strncmp((const char *)p, "fake:", 5)) {
    for (int k = 0; k < KERNELS; k++)
      if (strstr((const char *)p, kernels[k].name)) has |= 1u << k;
    if (strstr((const char *)p, "wrong")) return BAD_PTX;
  } else if (!strncmp((const char *)p, ".version", 8)) {
    for (const char *e = (const char *)p; (e = strstr(e, ".entry "));) {
      size_t n = strcspn(e += 7, "( ");
      for (int k = 0; k < KERNELS; k++)
        if (n == strlen(kernels[k].name) && !strncmp(e, kernels[k].name, n)) has |= 1u << k;
    }
  } else {
    return BAD_IMAGE;
  }
  module *x = make_object(sizeof *x, MODULE);
  x->has = has;
  return *m = x, OK;
}
int cuModuleLoadData(module **m, const void *image) { return load(m, image); }
int cuModuleLoadFatBinary(module **m, const void *image) { return image && word(image, 4) == 0x466243B1 ? load(m, *(void **)((uint8_t *)(uintptr_t)image + 8)) : load(m, image); }
static void say(unsigned n, const int *options, void **values, int buffer, const char *text) {
  for (unsigned i = 0; i < n; i++)
    for (unsigned j = 0; j < n; j++)
      if (options[i] == buffer && options[j] == buffer + 1 && values[i] && (uintptr_t)values[j] > strlen(text)) strcpy(values[i], text), values[j] = (void *)(strlen(text) + 1);
}
int cuModuleLoadDataEx(module **m, const void *image, unsigned n, int *options, void **values) {
  int r = load(m, image);
  if (r) say(n, options, values, 5, "it is wrong");
  else say(n, options, values, 3, "compiled");
  return r;
}
int cuModuleLoad(module **m, const char *path) {
  char *text = calloc(1, 1 << 20);
  FILE *f = path ? fopen(path, "r") : NULL;
  if (!f) return free(text), path ? 301 : INVALID;
  size_t n = fread(text, 1, (1 << 20) - 1, f);
  fclose(f);
  int r = n ? load(m, text) : BAD_IMAGE;
  return free(text), r;
}
int cuModuleUnload(module *m) { return end_object(m, MODULE); }
int cuModuleGetFunction(function **f, module *m, const char *name) {
  if (!f || !name) return INVALID;
  if (!is(m, MODULE)) return BAD_HANDLE;
  pthread_mutex_lock(&lock);
  object *o = objects;
  while (o && (o->kind != FUNCTION || ((function *)o)->of != m || strcmp(kernels[((function *)o)->kernel].name, name))) o = o->next;
  pthread_mutex_unlock(&lock);
  if (o) return *f = (function *)o, OK;
  for (int k = 0; k < KERNELS; k++)
    if (!strcmp(kernels[k].name, name) && m->has >> k & 1) {
      function *x = make_object(sizeof *x, FUNCTION);
      x->kernel = k, x->of = m;
      return *f = x, OK;
    }
  return NOT_FOUND;
}
int cuLibraryLoadData(module **m, const void *image, int *options, void **values, unsigned n, int *o, void **v, unsigned k) { return (void)o, (void)v, (void)k, cuModuleLoadDataEx(m, image, n, options, values); }
int cuLibraryUnload(module *m) { return end_object(m, MODULE); }
int cuLibraryGetKernel(function **f, module *m, const char *name) { return cuModuleGetFunction(f, m, name); }
int cuKernelGetFunction(function **f, function *k) { return is(k, FUNCTION) ? (*f = k, OK) : BAD_HANDLE; }
int cuFuncGetModule(module **m, function *f) { return is(f, FUNCTION) ? (*m = f->of, OK) : BAD_HANDLE; }
int cuFuncGetName(const char **name, function *f) { return is(f, FUNCTION) && name ? (*name = kernels[f->kernel].name, OK) : BAD_HANDLE; }
int cuFuncGetAttribute(int *v, int what, function *f) { return !is(f, FUNCTION) ? BAD_HANDLE : v && what >= 0 && what < 16 ? (*v = what ? 0 : 1024, OK) : INVALID; }
int cuFuncSetAttribute(function *f, int what, int v) { return (void)v, !is(f, FUNCTION) ? BAD_HANDLE : what == 8 || what == 9 ? OK : INVALID; }
int cuFuncSetCacheConfig(function *f, int how) { return (void)how, is(f, FUNCTION) ? OK : BAD_HANDLE; }
#ifndef OLD
int cuFuncGetParamInfo(function *f, size_t i, size_t *at, size_t *n) {
  if (!is(f, FUNCTION)) return BAD_HANDLE;
  if (i >= 5 || !kernels[f->kernel].params[i].size) return INVALID;
  return *at = kernels[f->kernel].params[i].at, n ? *n = kernels[f->kernel].params[i].size : 0, OK;
}
int cuKernelGetParamInfo(function *f, size_t i, size_t *at, size_t *n) { return cuFuncGetParamInfo(f, i, at, n); }
#endif
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, function *f, int threads, size_t shared) { return (void)shared, !is(f, FUNCTION) ? BAD_HANDLE : n && threads > 0 ? (*n = 2048 / threads, OK) : INVALID; }
int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, function *f, int threads, size_t shared, unsigned flags) { return (void)flags, cuOccupancyMaxActiveBlocksPerMultiprocessor(n, f, threads, shared); }

int cuLaunchKernel(function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *s, void **params, void **extra) {
  (void)shared;
  if (!is(f, FUNCTION) || !is_stream(s)) return BAD_HANDLE;
  if (!gx || !gy || !gz || !bx || !by || !bz || bx * by * bz > 1024 || (params && extra)) return INVALID;
  op o = {.what = RUN, .kernel = f->kernel, .threads = (uint64_t)gx * gy * gz * bx * by * bz};
  const kernel *k = kernels + f->kernel;
  if (extra) memcpy(o.args, extra[1], *(size_t *)extra[3] < sizeof o.args ? *(size_t *)extra[3] : sizeof o.args);
  for (int i = 0; !extra && i < 5 && k->params[i].size; i++) {
    if (!params || !params[i]) return INVALID;
    memcpy(o.args + k->params[i].at, params[i], k->params[i].size);
  }
#ifdef LAZY
  if (!f->loaded) f->loaded = true, usleep(LAZY * 1000);
#endif
  int r = give(s, &o);
  return blocking && ((uintptr_t)s <= 2 || !((stream *)s)->captures) ? now_done(r) : r;
}
int cuLaunchKernel_ptsz(function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *s, void **params, void **extra) {
  return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, params, extra);
}
int cuLaunchCooperativeKernel(function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *s, void **params) {
  return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, params, NULL);
}
typedef struct {
  function *f;
  unsigned grid[3], block[3], shared;
  void *stream, **params;
} cooperative;
int cuLaunchCooperativeKernelMultiDevice(const cooperative *all, unsigned n, unsigned flags) {
  int r = flags || !n ? INVALID : OK;
  for (const cooperative *c = all; !r && c < all + n; c++) r = cuLaunchKernel(c->f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared, c->stream, c->params, NULL);
  return r;
}
typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream;
  const void *features;
  unsigned features_n;
} config;
int cuLaunchKernelEx(const config *c, function *f, void **params, void **extra) {
  return c ? cuLaunchKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared, c->stream, params, extra) : INVALID;
}

/* A linker puts texts behind each other. */
int cuLinkCreate_v2(unsigned n, int *options, void **values, module **l) { return (void)n, (void)options, (void)values, *l = make_object(sizeof **l, LINK), (*l)->text = calloc(1, 4096), OK; }
int cuLinkAddData_v2(module *l, int type, void *data, size_t n, const char *name, unsigned k, int *options, void **values) {
  (void)type, (void)name, (void)k, (void)options, (void)values;
  return is(l, LINK) && n + strlen(l->text) < 4096 ? (strncat(l->text, data, n), OK) : BAD_HANDLE;
}
int cuLinkComplete(module *l, void **code, size_t *n) { return is(l, LINK) ? (*code = l->text, n ? *n = strlen(l->text) + 1 : 0, OK) : BAD_HANDLE; }
int cuLinkDestroy(module *l) { return end_object(l, LINK); }

/* --- streams, events, graphs --- */

int cuStreamCreateWithPriority(stream **s, unsigned flags, int priority) {
  if (!now) return BAD_CONTEXT;
  if (!s || flags > 1) return INVALID;
  stream *x = make_object(sizeof *x, STREAM);
  x->flags = flags, x->priority = priority < -5 ? -5 : priority > 0 ? 0 : priority, x->of = now, x->age = now->age;
  return *s = x, OK;
}
int cuGreenCtxStreamCreate(stream **s, green *g, unsigned flags, int priority) {
  if (!is(g, GREEN)) return BAD_HANDLE;
  if (flags != 1) return INVALID;
  int r = cuCtxPushCurrent_v2(g->is);
  if (!r) r = cuStreamCreateWithPriority(s, flags, priority), cuCtxPopCurrent_v2(NULL);
  return r;
}
int cuStreamCreate(stream **s, unsigned flags) { return cuStreamCreateWithPriority(s, flags, 0); }
int cuStreamGetFlags(stream *s, unsigned *flags) { return !is_stream(s) ? BAD_HANDLE : flags ? (*flags = (uintptr_t)s > 2 ? s->flags : 0, OK) : INVALID; }
int cuStreamGetPriority(stream *s, int *priority) { return !is_stream(s) ? BAD_HANDLE : priority ? (*priority = (uintptr_t)s > 2 ? s->priority : 0, OK) : INVALID; }
int cuStreamGetCtx(stream *s, context **c) { return !is_stream(s) ? BAD_HANDLE : c ? (*c = (uintptr_t)s > 2 ? s->of : now, OK) : INVALID; }
int cuStreamDestroy_v2(stream *s) { return end_object(s, STREAM); }
int cuStreamSynchronize(void *s) { return !is_stream(s) ? BAD_HANDLE : !now ? BAD_CONTEXT : done_on(queue_of(s)); }
int cuStreamQuery(void *s) {
  if (!is_stream(s) || !now) return is_stream(s) ? BAD_CONTEXT : BAD_HANDLE;
  pthread_mutex_lock(&lock);
  int r = failed ? failed : queue_of(s)->done < queue_of(s)->given ? NOT_READY : OK;
  pthread_mutex_unlock(&lock);
  return r;
}
/* What may not be asked while a stream is captured ends the capture, unless the thread
 * has said otherwise: of a capture of all threads, of its own. */
static _Thread_local int capture_mode;
static int captures_all;
static bool captures_bad;
static int unsafe(void) { return captures_all && capture_mode != 2 ? (captures_bad = true, NO_CAPTURE) : OK; }

int cuStreamBeginCapture_v2(stream *s, int mode) {
  if ((uintptr_t)s <= 2) return NO_CAPTURE;
  if (!is(s, STREAM)) return BAD_HANDLE;
  if (mode < 0 || mode > 2 || s->captures) return INVALID;
  s->captures = make_object(sizeof *s->captures, GRAPH);
  s->captures->last = &s->captures->first, s->all = !mode;
  captures_all += s->all;
  return OK;
}
int cuStreamEndCapture(stream *s, graph **g) {
  if ((uintptr_t)s <= 2 || !is(s, STREAM)) return BAD_HANDLE;
  if (!g || !s->captures) return g ? UNMATCHED : INVALID;
  captures_all -= s->all;
  *g = s->captures, s->captures = NULL;
  return captures_bad ? captures_bad = false, 901 : OK;
}
int cuStreamIsCapturing(stream *s, int *status) { return !is_stream(s) ? BAD_HANDLE : status ? (*status = (uintptr_t)s > 2 && s->captures, OK) : INVALID; }
int cuThreadExchangeStreamCaptureMode(int *mode) {
  int was = capture_mode;
  return mode && *mode >= 0 && *mode <= 2 ? (capture_mode = *mode, *mode = was, OK) : INVALID;
}
int cuEventCreate(event **e, unsigned flags) {
  if (!now) return BAD_CONTEXT;
  if (!e || flags > 7) return INVALID;
  *e = make_object(sizeof **e, EVENT);
  return (*e)->flags = flags, (*e)->of = now, (*e)->age = now->age, OK;
}
int cuEventDestroy_v2(event *e) { return end_object(e, EVENT); }
int cuEventRecord(event *e, void *s) { return is(e, EVENT) && lives(e->of, e->age) && is_stream(s) && e->of == ((uintptr_t)s > 2 ? ((stream *)s)->of : now) ? give(s, &(op){.what = MARK, .event = e}) : BAD_HANDLE; }
int cuStreamWaitEvent(void *s, event *e, unsigned flags) { return !is(e, EVENT) || !is_stream(s) ? BAD_HANDLE : flags ? INVALID : OK; }
int cuEventQuery(event *e) {
  if (over) abort();
  if (!is(e, EVENT)) return BAD_HANDLE;
  if (unsafe()) return NO_CAPTURE;
  pthread_mutex_lock(&lock);
  int r = e->pending ? NOT_READY : failed;
  pthread_mutex_unlock(&lock);
  return r;
}
int cuEventSynchronize(event *e) {
  if (!is(e, EVENT)) return BAD_HANDLE;
  pthread_mutex_lock(&lock);
  while (e->pending) pthread_cond_wait(&changed, &lock);
  int r = failed;
  pthread_mutex_unlock(&lock);
  return r;
}
int cuEventElapsedTime(float *ms, event *a, event *b) {
  if (!ms) return INVALID;
  if (!is(a, EVENT) || !is(b, EVENT) || (a->flags | b->flags) & 2 || !a->at.tv_sec || !b->at.tv_sec) return BAD_HANDLE;
  if (cuEventQuery(a) || cuEventQuery(b)) return NOT_READY;
  return *ms = (float)(b->at.tv_sec - a->at.tv_sec) * 1e3f + (float)(b->at.tv_nsec - a->at.tv_nsec) / 1e6f, OK;
}
int cuGraphInstantiateWithFlags(graph **to, graph *g, unsigned long long flags) {
  (void)flags;
  if (!to) return INVALID;
  if (!is(g, GRAPH)) return BAD_HANDLE;
  *to = make_object(sizeof **to, EXEC);
  (*to)->first = g->first;
  return OK;
}
int cuGraphLaunch(graph *g, void *s) {
  int r = is(g, EXEC) ? OK : BAD_HANDLE;
  for (op *o = r ? NULL : g->first; o && !r; o = o->next) r = give(s, o);
  return r;
}
int cuGraphDestroy(graph *g) { return end_object(g, GRAPH); }
int cuGraphExecDestroy(graph *g) { return end_object(g, EXEC); }
int cuGraphGetNodes(graph *g, void **to, size_t *n) {
  if (!is(g, GRAPH) || !n) return INVALID;
  int i = 0;
  for (op *o = g->first; to && o && (size_t)i < *n; o = o->next) to[i++] = o;
  return *n = (size_t)g->nodes, OK;
}

/* What the pool's library does not know. */
int cuNobodyKnows(int x) { return x + 1; }

#ifdef OTHER_ADDRESSES
static int other_cuMemAlloc_v2(void **p, size_t n) { return cuMemAlloc_v2(p, n); }
static int other_cuMemFree_v2(void *p) { return cuMemFree_v2(p); }
static int other_cuMemGetInfo_v2(size_t *left, size_t *total) { return cuMemGetInfo_v2(left, total); }
#endif

int cuGetProcAddress_v2(const char *name, void **f, int version, uint64_t flags, int *status);
int cuGetProcAddress(const char *name, void **f, int version, uint64_t flags) {
  static const struct {
    const char *name;
    void *f, *own;
  } all[] = {
#ifdef OTHER_ADDRESSES
#define AT(f) ((void *)other_##f)
#else
#define AT(f) ((void *)f)
#endif
#define F(f) {#f, (void *)f, (void *)f}
#define F2A(f) {#f, AT(f##_v2), AT(f##_v2)}
#define F2(f) {#f, (void *)f##_v2, (void *)f##_v2}
#define FS(f) {#f, (void *)f, (void *)f##_ptsz}
#define F2S(f) {#f, (void *)f##_v2, (void *)f##_v2_ptsz}
#define F2D(f) {#f, (void *)f##_v2, (void *)f##_v2_ptds}
      F(cuInit), F(cuDriverGetVersion), F(cuDeviceGetCount), F(cuDeviceGet), F(cuDeviceGetName), F(cuDeviceGetAttribute), F2(cuDeviceTotalMem), F(cuDeviceGetUuid), F(cuDeviceGetPCIBusId),
      F(cuDeviceGetByPCIBusId), F(cuCtxGetDevice), F(cuCtxGetCurrent), F(cuCtxSetCurrent), F2(cuCtxPushCurrent), F2(cuCtxPopCurrent), F2(cuCtxCreate), F(cuCtxGetFlags), F(cuCtxGetLimit), F(cuCtxSetLimit), F(cuCtxGetStreamPriorityRange),
      F(cuDevicePrimaryCtxRetain), F(cuDevicePrimaryCtxGetState), F(cuDeviceGetDevResource), F(cuDevResourceGenerateDesc), F(cuGreenCtxCreate), F(cuCtxFromGreenCtx), F(cuGreenCtxDestroy), F(cuGreenCtxStreamCreate), F(cuCtxSynchronize), F2(cuCtxDestroy), F2(cuDevicePrimaryCtxRelease), F2A(cuMemAlloc), F(cuMemAllocManaged), FS(cuMemAllocAsync),
      F(cuMemAllocFromPoolAsync), F2(cuMemAllocPitch), F2A(cuMemFree), F(cuMemFreeAsync), F2A(cuMemGetInfo), F2(cuMemGetAddressRange), F2(cuMemAllocHost), F(cuMemFreeHost), F2(cuArrayCreate), F2(cuArray3DCreate),
      F(cuArrayDestroy), F(cuMemCreate), F(cuMemRelease), F(cuMemExportToShareableHandle), F(cuMemImportFromShareableHandle), F(cuMemGetAllocationPropertiesFromHandle), F(cuMemAddressReserve), F(cuMemAddressFree), F(cuMemMap), F(cuMemUnmap), F(cuMemSetAccess), F(cuMemGetAllocationGranularity), F(cuDeviceGetDefaultMemPool),
      F(cuMemPoolCreate), F(cuMemPoolDestroy), F(cuMemGetDefaultMemPool), F(cuMemPoolTrimTo), F(cuMemPrefetchAsync), F(cuMemPrefetchBatchAsync), F(cuMemcpyWithAttributesAsync), F(cuMemcpy3DWithAttributesAsync), F(cuMemBatchDecompressAsync), F(cuMemPoolSetAttribute), F(cuMemPoolGetAttribute), F(cuMemcpy), F(cuMemcpyAsync), F2D(cuMemcpyHtoD), F2D(cuMemcpyDtoH), F2D(cuMemcpyDtoD), F2S(cuMemcpyHtoDAsync), F2S(cuMemcpyDtoHAsync),
      F2S(cuMemcpyDtoDAsync), F2(cuMemcpy2D), F2(cuMemcpy2DAsync), F2(cuMemcpy3D), F2(cuMemcpy3DAsync), F2(cuMemcpyHtoA), F2(cuMemcpyAtoH), F2(cuMemsetD8), F2(cuMemsetD16), F2(cuMemsetD32), F(cuMemsetD8Async),
      F(cuMemsetD16Async), F(cuMemsetD32Async), F2(cuMemsetD2D8), F2(cuMemsetD2D16), F2(cuMemsetD2D32), F(cuMemsetD2D32Async), F(cuModuleLoad), F(cuModuleLoadData), F(cuModuleLoadDataEx), F(cuModuleLoadFatBinary),
      F(cuModuleUnload), F(cuModuleGetFunction), F(cuLibraryLoadData), F(cuLibraryUnload), F(cuLibraryGetKernel), F(cuKernelGetFunction), F(cuFuncGetModule), F(cuFuncGetName), F(cuFuncGetAttribute),
      F(cuFuncSetAttribute), F(cuFuncSetCacheConfig), F(cuOccupancyMaxActiveBlocksPerMultiprocessor), F(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags), FS(cuLaunchKernel), F(cuLaunchCooperativeKernel), F(cuLaunchCooperativeKernelMultiDevice), F(cuMemcpyPeerAsync),
      F(cuLaunchKernelEx), F2(cuLinkCreate), F2(cuLinkAddData), F(cuLinkComplete), F(cuLinkDestroy), F(cuStreamCreate), F(cuStreamCreateWithPriority), F(cuStreamGetFlags), F(cuStreamGetPriority), F(cuStreamGetCtx),
      F2(cuStreamDestroy), F(cuStreamSynchronize), F(cuStreamQuery), F2(cuStreamBeginCapture), F(cuStreamEndCapture), F(cuStreamIsCapturing), F(cuThreadExchangeStreamCaptureMode), F(cuEventCreate), F2(cuEventDestroy),
      F(cuEventRecord), F(cuStreamWaitEvent), F(cuEventSynchronize), F(cuEventQuery), F(cuEventElapsedTime), F(cuGraphInstantiateWithFlags), F(cuGraphLaunch), F(cuGraphDestroy), F(cuGraphExecDestroy),
      F(cuGraphGetNodes), F(cuGetExportTable), F(cuNobodyKnows), F(cuGetProcAddress)};
  if (!strcmp(name, "cuCtxCreate") && version >= 11040) return *f = version < 12050 ? (void *)cuCtxCreate_v3 : (void *)cuCtxCreate_v4, OK;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (!strcmp(all[i].name, name)) return *f = flags & 2 ? all[i].own : all[i].f, *f == (void *)cuGetProcAddress && version >= 12000 ? *f = (void *)cuGetProcAddress_v2, OK : OK;
  return NOT_FOUND;
}
int cuGetProcAddress_v2(const char *name, void **f, int version, uint64_t flags, int *status) {
  if (flags > 3) return INVALID;
  *f = NULL;
  int r = cuGetProcAddress(name, f, version, flags);
  if (status) *status = r ? 1 : 0;
  return OK;
}
