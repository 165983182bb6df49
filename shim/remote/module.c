/* Code: modules, libraries, what is in them, and launches.
 *
 * A launch has a list of pointers to arguments, and says neither how many there
 * are nor how large: the worker knows that of each function, by the driver or by
 * the image. It is asked once. */
#include "remote.h"
#include <errno.h>

#define READY \
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED
#define WANTS(what) \
  if (!(what)) return CUDA_ERROR_INVALID_VALUE

static uint64_t id(const void *handle) { return (uint64_t)(uintptr_t)handle; }
static void *handle(uint64_t id) { return (void *)(uintptr_t)id; }

/* --- what is remembered of objects: their numbers are not used again --- */

typedef struct memo {
  struct memo *next;
  uint64_t key;
  int what;
  uint64_t n, total;
  char *text;
  uint64_t at[]; /* offset and size of each argument */
} memo;
enum { LAYOUT = 1, CALLED, LINKED, SET, BUCKETS = 1024 };
static memo *memos[BUCKETS];

static memo **bucket(uint64_t key) { return memos + (key * 0x9E3779B97F4A7C15u >> 54); }

static memo *recall(uint64_t key, int what) {
  memo *m = __atomic_load_n(bucket(key), __ATOMIC_ACQUIRE);
  while (m && (m->key != key || m->what != what)) m = m->next;
  return m;
}

static memo *remember(memo *m, uint64_t key, int what) {
  m->key = key, m->what = what;
  memo **b = bucket(key);
  m->next = __atomic_load_n(b, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(b, &m->next, m, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {}
  return m;
}

/* --- options of the compiler: numbers, and buffers for what it says --- */

enum { INFO_LOG = 3, INFO_SIZE, ERROR_LOG, ERROR_SIZE, SYMBOL_NAMES = 17, SYMBOL_ADDRESSES, KERNEL_NAMES = 25, VARIABLE_NAMES = 27, MOST_OPTIONS = 64 };

static bool pointer(int option) { return option == SYMBOL_NAMES || option == SYMBOL_ADDRESSES || option == KERNEL_NAMES || option == VARIABLE_NAMES; }

static CUresult check_options(unsigned n, const int *options, void **values) {
  WANTS(n <= MOST_OPTIONS && (!n || (options && values)));
  for (unsigned i = 0; i < n; i++)
    if (pointer(options[i])) return CUDA_ERROR_NOT_SUPPORTED; /* names, and addresses of the program's */
  return CUDA_SUCCESS;
}

static void put_options(unsigned n, const int *options, void **values) {
  yp_word(n);
  for (unsigned i = 0; i < n; i++) {
    bool log = options[i] == INFO_LOG || options[i] == ERROR_LOG;
    yp_word((uint64_t)options[i]);
    yp_word(log ? values[i] != NULL : id(values[i]));
  }
}

/* take_options gives the program what the answer begins with, and returns what follows. */
static const uint8_t *take_options(const answer *a, unsigned n, const int *options, void **values) {
  const uint8_t *p = a->data, *end = p ? p + a->size : p;
  uint64_t room[2] = {0, 0};
  for (unsigned i = 0; i < n; i++) /* before the sizes become those of the texts */
    if (options[i] == INFO_SIZE || options[i] == ERROR_SIZE) room[options[i] == ERROR_SIZE] = id(values[i]);
  for (unsigned i = 0; i < n && end - p >= 8; i++) {
    uint64_t w;
    memcpy(&w, p, 8);
    p += 8;
    if (options[i] != INFO_LOG && options[i] != ERROR_LOG) {
      if (options[i] <= ERROR_SIZE) values[i] = handle(w);
      continue;
    }
    if (w > (uint64_t)(end - p)) return end;
    uint64_t most = room[options[i] == ERROR_LOG], k = w < most ? w : most;
    if (values[i] && k) memcpy(values[i], p, k);
    p += (w + 7) / 8 * 8;
  }
  return p;
}

/* --- modules and libraries --- */

static const size_t MOST_IMAGE = (2UL << 30) - (1 << 20); /* a message has no more */

static CUresult load(int op, void **to, const void *image, unsigned n, const int *options, void **values) {
  READY;
  WANTS(to && image);
  CUresult r = check_options(n, options, values);
  if (r) return r;
  const void *code = yr_image_of(image, SIZE_MAX);
  size_t size = yr_image_size(code, SIZE_MAX);
  if (!size) return CUDA_ERROR_INVALID_IMAGE;
  if (size > MOST_IMAGE) return CUDA_ERROR_OUT_OF_MEMORY;
  answer a = {.land = NULL};
  yr_begin(op);
  put_options(n, options, values);
  yp_rows(code, size, 1, 1, size, size);
  r = yr_sync(&a);
  take_options(&a, n, options, values);
  free(a.data);
  if (!r) *to = handle(a.a);
  return r;
}

EXPORT CUresult cuModuleLoadData(CUmodule *m, const void *image) { return load(OP_load, m, image, 0, NULL, NULL); }
EXPORT CUresult cuModuleLoadDataEx(CUmodule *m, const void *image, unsigned n, int *options, void **values) { return load(OP_load, m, image, n, options, values); }
EXPORT CUresult cuModuleLoadFatBinary(CUmodule *m, const void *image) { return load(OP_load, m, image, 0, NULL, NULL); }
EXPORT CUresult cuLibraryLoadData(CUlibrary *l, const void *image, int *options, void **values, unsigned n, int *of_library, void **their_values, unsigned their_n) {
  (void)of_library, (void)their_values, (void)their_n; /* whether the image stays, which it does, and what cudart knows */
  return load(OP_load_library, l, image, n, options, values);
}

static CUresult read_file(const char *path, char **text, size_t *n) {
  FILE *f = fopen(path, "re");
  if (!f) return CUDA_ERROR_FILE_NOT_FOUND;
  *text = NULL, *n = 0;
  for (size_t room = 0;;) {
    if (room - *n < 2) {
      char *more = realloc(*text, room = room * 2 + (1 << 16));
      if (!more) break;
      *text = more;
    }
    size_t k = fread(*text + *n, 1, room - *n - 1, f);
    if (!k) break;
    *n += k;
  }
  bool bad = ferror(f) || !*text || !feof(f);
  fclose(f);
  if (bad) return free(*text), CUDA_ERROR_FILE_NOT_FOUND;
  (*text)[(*n)] = 0; /* of texts */
  return CUDA_SUCCESS;
}

static CUresult load_file(int op, void **to, const char *path, unsigned n, const int *options, void **values) {
  char *text;
  size_t size;
  READY;
  WANTS(to && path);
  CUresult r = read_file(path, &text, &size);
  if (r) return r;
  if (!yr_image_size(text, size + 1)) r = CUDA_ERROR_INVALID_IMAGE; /* its end is missing */
  if (!r) r = load(op, to, text, n, options, values);
  free(text);
  return r;
}
EXPORT CUresult cuModuleLoad(CUmodule *m, const char *path) { return load_file(OP_load, m, path, 0, NULL, NULL); }
EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *l, const char *path, int *options, void **values, unsigned n, int *of_library, void **their_values, unsigned their_n) {
  (void)of_library, (void)their_values, (void)their_n;
  return load_file(OP_load_library, l, path, n, options, values);
}

/* list gives the numbers that an answer has. */
static CUresult list(int op, uint64_t of, void **to, size_t *n, bool all) {
  answer a = {.land = NULL};
  yr_begin(op);
  yp_word(of);
  CUresult r = yr_sync(&a);
  size_t there = a.size / 8, k = to ? (*n < there ? *n : there) : 0;
  if (!r) {
    for (size_t i = 0; i < k; i++) memcpy(to + i, a.data + 8 * i, 8);
    if (all) *n = there;
  }
  free(a.data);
  return r;
}
EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *to, unsigned n, CUmodule m) {
  size_t k = n;
  READY;
  WANTS(to);
  return list(OP_kernels_of, id(m), to, &k, false);
}
EXPORT CUresult cuLibraryEnumerateKernels(CUkernel *to, unsigned n, CUlibrary l) { return cuModuleEnumerateFunctions(to, n, l); }
EXPORT CUresult cuGraphGetNodes(CUgraph g, CUnode *to, size_t *n) {
  READY;
  WANTS(n);
  return list(OP_nodes, id(g), to, n, true);
}
EXPORT CUresult cuGraphGetRootNodes(CUgraph g, CUnode *to, size_t *n) {
  (void)g, (void)to, (void)n;
  return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult name(const char **to, void *of) {
  READY;
  WANTS(to);
  memo *m = recall(id(of), CALLED);
  if (!m) {
    answer a = {.land = NULL};
    yr_begin(OP_name);
    yp_word(id(of));
    CUresult r = yr_sync(&a);
    if (!r && a.data && (m = calloc(1, sizeof *m))) m->text = (char *)a.data, remember(m, id(of), CALLED);
    else free(a.data);
    if (r || !m) return r ? r : CUDA_ERROR_OUT_OF_MEMORY;
  }
  *to = m->text;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncGetName(const char **to, CUfunction f) { return name(to, f); }
EXPORT CUresult cuKernelGetName(const char **to, CUkernel k) { return name(to, k); }

/* --- arguments --- */

static memo *layout(CUfunction f, CUresult *r) {
  memo *m = recall(id(f), LAYOUT);
  *r = CUDA_SUCCESS;
  if (m) return m;
  answer a = {.land = NULL};
  yr_begin(OP_params);
  yp_word(id(f));
  *r = yr_sync(&a);
  if (!*r && a.a * 16 <= a.size && (m = calloc(1, sizeof *m + a.a * 16))) {
    m->n = a.a, m->total = a.b;
    if (a.a) memcpy(m->at, a.data, a.a * 16);
    remember(m, id(f), LAYOUT);
  } else if (!*r) {
    *r = CUDA_ERROR_OUT_OF_MEMORY;
  }
  free(a.data);
  return m;
}

EXPORT CUresult cuFuncGetParamInfo(CUfunction f, size_t i, size_t *offset, size_t *size) {
  CUresult r;
  READY;
  WANTS(offset);
  memo *m = layout(f, &r);
  if (!m) return r;
  WANTS(i < m->n);
  *offset = m->at[2 * i];
  if (size) *size = m->at[2 * i + 1];
  return CUDA_SUCCESS;
}
EXPORT CUresult cuKernelGetParamInfo(CUkernel k, size_t i, size_t *offset, size_t *size) { return cuFuncGetParamInfo(k, i, offset, size); }

typedef struct {
  int id, pad;
  uint8_t value[64];
} feature;
typedef struct {
  unsigned grid[3], block[3], shared;
  CUstream stream;
  const feature *features;
  unsigned features_n;
} config;
enum { COOPERATIVE = 1, PACKED = 2, MOST_FEATURES = 32 };

static void put_config(CUfunction f, const config *c, uint64_t how) {
  yp_word(id(f));
  for (int i = 0; i < 3; i++) yp_word(c->grid[i]);
  for (int i = 0; i < 3; i++) yp_word(c->block[i]);
  yp_word(c->shared);
  yp_word(id(c->stream));
  yp_word(how);
  yp_bytes(c->features, c->features_n * sizeof *c->features);
}

enum { END = 0, BUFFER = 1, SIZE = 2 }; /* of what a launch is given beside */

/* packed finds a buffer of arguments in a list of pairs; false: the list is not one. */
static bool packed(void **extra, const void **at, size_t *n) {
  *at = NULL, *n = 0;
  for (int i = 0; i < 8 && extra[i] != (void *)END; i += 2) {
    if (extra[i] == (void *)BUFFER) *at = extra[i + 1];
    else if (extra[i] == (void *)SIZE) *n = *(const size_t *)extra[i + 1];
    else return false;
  }
  return *at || !*n;
}

static CUresult launch(CUfunction f, const config *c, void **params, void **extra, uint64_t how) {
  enum { MOST = 1 << 16 };
  const void *buffer = NULL;
  size_t n = 0;
  CUresult r;
  memo *m = NULL;
  READY;
  WANTS(c && c->features_n <= MOST_FEATURES && (!c->features_n || c->features) && !(params && extra));
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  if (extra) {
    WANTS(packed(extra, &buffer, &n) && n <= MOST);
  } else {
    if (!(m = layout(f, &r))) return r;
    WANTS(!m->n || params);
    for (uint64_t i = 0; i < m->n; i++) WANTS(params[i]);
  }
  yr_begin(OP_launch);
  put_config(f, c, how | (extra ? PACKED : 0));
  yp_proof();
  if (extra) {
    yp_bytes(buffer, n);
    return yr_end();
  }
  uint8_t small[512], *all = m->total <= sizeof small ? small : malloc(m->total);
  if (!all) abort(); /* a message cannot be half sent */
  memset(all, 0, m->total);
  for (uint64_t i = 0; i < m->n; i++) memcpy(all + m->at[2 * i], params[i], m->at[2 * i + 1]);
  yp_bytes(all, m->total);
  if (all != small) free(all);
  return yr_end();
}

#define GRID unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared
#define CONFIG(s) (&(config){{gx, gy, gz}, {bx, by, bz}, shared, s, NULL, 0})
EXPORT CUresult cuLaunchKernel(CUfunction f, GRID, CUstream s, void **params, void **extra) { return launch(f, CONFIG(s), params, extra, 0); }
EXPORT CUresult cuLaunchKernel_ptsz(CUfunction f, GRID, CUstream s, void **params, void **extra) { return launch(f, CONFIG(yr_own(s)), params, extra, 0); }
EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, GRID, CUstream s, void **params) { return launch(f, CONFIG(s), params, NULL, COOPERATIVE); }
EXPORT CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, GRID, CUstream s, void **params) { return launch(f, CONFIG(yr_own(s)), params, NULL, COOPERATIVE); }
EXPORT CUresult cuLaunchKernelEx(const config *c, CUfunction f, void **params, void **extra) { return launch(f, c, params, extra, 0); }
EXPORT CUresult cuLaunchKernelEx_ptsz(const config *c, CUfunction f, void **params, void **extra) {
  WANTS(c);
  config own = *c;
  own.stream = yr_own(c->stream);
  return launch(f, &own, params, extra, 0);
}

/* --- launches as before CUDA 4: what a function is launched with is set one by one --- */

enum { MOST_ARGS = 4096 };
typedef struct {
  unsigned block[3], shared, size;
  uint8_t args[MOST_ARGS];
} setting;

static setting *setting_of(CUfunction f) {
  memo *m = recall(id(f), SET);
  if (m || !f) return m ? (setting *)m->text : NULL;
  setting *s = calloc(1, sizeof *s);
  if (!s || !(m = calloc(1, sizeof *m))) return free(s), NULL;
  m->text = (char *)s;
  remember(m, id(f), SET);
  return s;
}
#define SETTING(s, f)         \
  READY;                      \
  setting *s = setting_of(f); \
  if (!s) return f ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_HANDLE

EXPORT CUresult cuFuncSetBlockShape(CUfunction f, int x, int y, int z) {
  SETTING(s, f);
  WANTS(x > 0 && y > 0 && z > 0);
  s->block[0] = (unsigned)x, s->block[1] = (unsigned)y, s->block[2] = (unsigned)z;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncSetSharedSize(CUfunction f, unsigned n) {
  SETTING(s, f);
  s->shared = n;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuParamSetSize(CUfunction f, unsigned n) {
  SETTING(s, f);
  WANTS(n <= MOST_ARGS);
  s->size = n;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuParamSetv(CUfunction f, int at, const void *value, unsigned n) {
  SETTING(s, f);
  WANTS(value && at >= 0 && at <= MOST_ARGS && n <= MOST_ARGS - (unsigned)at);
  memcpy(s->args + at, value, n);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuParamSeti(CUfunction f, int at, unsigned value) { return cuParamSetv(f, at, &value, sizeof value); }
EXPORT CUresult cuParamSetf(CUfunction f, int at, float value) { return cuParamSetv(f, at, &value, sizeof value); }

EXPORT CUresult cuLaunchGridAsync(CUfunction f, int w, int h, CUstream stream) {
  SETTING(s, f);
  WANTS(w > 0 && h > 0);
  size_t n = s->size;
  void *extra[] = {(void *)BUFFER, s->args, (void *)SIZE, &n, (void *)END};
  return cuLaunchKernel(f, (unsigned)w, (unsigned)h, 1, s->block[0], s->block[1], s->block[2], s->shared, stream, NULL, extra);
}
EXPORT CUresult cuLaunchGrid(CUfunction f, int w, int h) { return cuLaunchGridAsync(f, w, h, NULL); }
EXPORT CUresult cuLaunch(CUfunction f) { return cuLaunchGrid(f, 1, 1); }

/* --- how many blocks there is room for --- */

static CUresult clusters(int *to, CUfunction f, const config *c, uint64_t which) {
  READY;
  WANTS(to && c && c->features_n <= MOST_FEATURES && (!c->features_n || c->features));
  answer a = {.land = NULL};
  yr_begin(OP_occupancy);
  put_config(f, c, which);
  CUresult r = yr_sync(&a);
  free(a.data);
  if (!r) *to = (int)a.a;
  return r;
}
EXPORT CUresult cuOccupancyMaxPotentialClusterSize(int *to, CUfunction f, const config *c) { return clusters(to, f, c, 0); }
EXPORT CUresult cuOccupancyMaxActiveClusters(int *to, CUfunction f, const config *c) { return clusters(to, f, c, 1); }

CUresult cuDeviceGetAttribute(int *value, int what, CUdevice d);

/* The largest blocks of which as many threads run at once as can. */
EXPORT CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction f, size_t (*shared_of)(int), size_t shared, int limit, unsigned flags) {
  enum { THREADS_PER_BLOCK = 1, WARP = 10, PROCESSORS = 16, THREADS = 39, OF_FUNCTION = 0 };
  int most, own, warp, processors, threads, best = 0;
  WANTS(grid && block);
  CUresult r = cuDeviceGetAttribute(&most, THREADS_PER_BLOCK, 0);
  if (!r) r = cuDeviceGetAttribute(&warp, WARP, 0);
  if (!r) r = cuDeviceGetAttribute(&processors, PROCESSORS, 0);
  if (!r) r = cuDeviceGetAttribute(&threads, THREADS, 0);
  if (!r) r = cuFuncGetAttribute(&own, OF_FUNCTION, f);
  if (r) return r;
  if (own < most) most = own;
  if (limit > 0 && limit < most) most = limit;
  *grid = *block = 0;
  if (warp < 1) warp = 1;
  for (int n = (most + warp - 1) / warp * warp; n > 0 && best < threads; n -= warp) {
    int k = n < most ? n : most, blocks = 0;
    r = cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, f, k, shared_of ? shared_of(k) : shared, flags);
    if (r) return r;
    if (blocks * k > best) best = blocks * k, *block = k, *grid = blocks * processors;
  }
  return CUDA_SUCCESS;
}
EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction f, size_t (*shared_of)(int), size_t shared, int limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, f, shared_of, shared, limit, 0);
}

/* --- the linker --- */

typedef struct {
  unsigned n;
  int options[MOST_OPTIONS];
  void **values;
  void *made;
} linker;

EXPORT CUresult cuLinkCreate_v2(unsigned n, int *options, void **values, void **to) {
  READY;
  WANTS(to);
  CUresult r = check_options(n, options, values);
  if (r) return r;
  answer a = {.land = NULL};
  linker *l = calloc(1, sizeof *l);
  memo *m = calloc(1, sizeof *m);
  if (!l || !m) return free(l), free(m), CUDA_ERROR_OUT_OF_MEMORY;
  yr_begin(OP_link_begin);
  put_options(n, options, values);
  r = yr_sync(&a);
  free(a.data);
  if (r) return free(l), free(m), r;
  l->n = n, l->values = values;
  if (n) memcpy(l->options, options, n * sizeof *options);
  m->text = (char *)l;
  remember(m, a.a, LINKED);
  *to = handle(a.a);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuLinkCreate(unsigned n, int *options, void **values, void **to) { return cuLinkCreate_v2(n, options, values, to); }

static linker *linker_of(void *l) {
  memo *m = recall(id(l), LINKED);
  return m ? (linker *)m->text : NULL;
}

EXPORT CUresult cuLinkAddData_v2(void *of, int type, void *data, size_t n, const char *name, unsigned options_n, int *options, void **values) {
  READY;
  linker *l = linker_of(of);
  if (!l) return CUDA_ERROR_INVALID_HANDLE;
  WANTS(data && n);
  if (n > MOST_IMAGE) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult r = check_options(options_n, options, values);
  if (r) return r;
  answer a = {.land = NULL};
  yr_begin(OP_link_add);
  yp_word(id(of));
  yp_word((uint64_t)type);
  put_options(options_n, options, values);
  if (!name) name = "";
  yp_bytes(name, strlen(name) + 1);
  yp_rows(data, n, 1, 1, n, n);
  r = yr_sync(&a);
  take_options(&a, l->n, l->options, l->values);
  free(a.data);
  return r;
}

EXPORT CUresult cuLinkAddData(void *of, int type, void *data, size_t n, const char *name, unsigned options_n, int *options, void **values) {
  return cuLinkAddData_v2(of, type, data, n, name, options_n, options, values);
}

EXPORT CUresult cuLinkAddFile_v2(void *of, int type, const char *path, unsigned options_n, int *options, void **values) {
  enum { PTX = 1 };
  char *text;
  size_t n;
  READY;
  WANTS(path);
  CUresult r = read_file(path, &text, &n);
  if (r) return r;
  r = cuLinkAddData_v2(of, type, text, type == PTX ? n + 1 : n, path, options_n, options, values);
  free(text);
  return r;
}

EXPORT CUresult cuLinkAddFile(void *of, int type, const char *path, unsigned options_n, int *options, void **values) {
  return cuLinkAddFile_v2(of, type, path, options_n, options, values);
}

EXPORT CUresult cuLinkComplete(void *of, void **code, size_t *n) {
  READY;
  linker *l = linker_of(of);
  if (!l) return CUDA_ERROR_INVALID_HANDLE;
  WANTS(code);
  answer a = {.land = NULL};
  yr_begin(OP_link_complete);
  yp_word(id(of));
  CUresult r = yr_sync(&a);
  const uint8_t *rest = take_options(&a, l->n, l->options, l->values);
  size_t size = a.data ? (size_t)(a.data + a.size - rest) : 0;
  if (!r) {
    void *p = malloc(size ? size : 1);
    if (!p) return free(a.data), CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(p, rest, size);
    free(l->made);
    *code = l->made = p;
    if (n) *n = size;
  }
  free(a.data);
  return r;
}

EXPORT CUresult cuLinkDestroy(void *of) {
  READY;
  memo *m = recall(id(of), LINKED);
  linker *l = m ? (linker *)__atomic_exchange_n(&m->text, NULL, __ATOMIC_ACQ_REL) : NULL;
  if (!l) return CUDA_ERROR_INVALID_HANDLE;
  free(l->made);
  free(l);
  yr_begin(OP_link_end);
  yp_word(id(of));
  return yr_post();
}
