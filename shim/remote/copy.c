/* Copies. What the program's memory is read for goes along with the message; what
 * it is written for comes with the answer, or, if the program does not wait, before
 * the answer that may tell it that the copy is done. Large ones go piece by piece. */
#include "remote.h"

#define READY \
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED
#define WANTS(what) \
  if (!(what)) return CUDA_ERROR_INVALID_VALUE

enum { PIECE = 32 << 20 };

static uint64_t word(CUstream s) { return (uint64_t)(uintptr_t)s; }

static CUresult copy_in(CUdeviceptr to, const void *from, size_t n, CUstream s, bool wait) {
  READY;
  if (!n) return CUDA_SUCCESS;
  WANTS(to && from);
  for (size_t at = 0, k; at < n; at += k) {
    k = n - at < PIECE ? n - at : PIECE;
    yr_begin(OP_copy_in);
    yp_word(word(s));
    yp_word(wait);
    yp_proof();
    yp_word(to + at);
    yp_rows((const uint8_t *)from + at, k, 1, 1, k, k);
    CUresult r = !wait && yr_on_device(to + at, k) ? yr_end() : yr_sync(NULL);
    if (r) return r;
  }
  return CUDA_SUCCESS;
}

/* landing_of gives data a place to land that comes later; 0: it comes with the answer. */
static uint64_t landing_of(landing *l, bool wait) {
  static uint64_t ids;
  if (wait || !yp_room_for_reads(yr_node(), l->row * l->rows * l->slices)) return 0;
  l->id = __atomic_add_fetch(&ids, 1, __ATOMIC_RELAXED);
  yp_land_later(yr_node(), l);
  return l->id;
}

static CUresult copy_out(void *to, CUdeviceptr from, size_t n, CUstream s, bool wait) {
  READY;
  if (!n) return CUDA_SUCCESS;
  WANTS(to && from);
  for (size_t at = 0, k; at < n; at += k) {
    k = n - at < PIECE ? n - at : PIECE;
    landing l = {.to = (uint8_t *)to + at, .row = k, .rows = 1, .slices = 1, .row_pitch = k, .slice_pitch = k};
    answer a = {.land = &l};
    uint64_t later = landing_of(&l, wait);
    yr_begin(OP_copy_out);
    yp_word(word(s));
    yp_word(later != 0);
    yp_proof();
    yp_word(later);
    yp_word(from + at);
    yp_word(k);
    CUresult r = later && yr_on_device(from + at, k) ? yr_end() : yr_sync(&a);
    if (r) return r;
  }
  return CUDA_SUCCESS;
}

static CUresult in_program(void *to, const void *from, size_t n, CUstream s) {
  CUresult r = cuStreamSynchronize(s);
  if (!r) memmove(to, from, n);
  return r;
}

/* both copies between any two addresses. */
static CUresult both(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s, bool wait) {
  READY;
  range r;
  bool in = yr_find(to, &r) && r.what != YR_HOST, out = yr_find(from, &r) && r.what != YR_HOST;
  void *t = (void *)(uintptr_t)to, *f = (void *)(uintptr_t)from;
  if (!n) return CUDA_SUCCESS;
  WANTS(to && from);
  if (in && out) return cuMemcpyDtoDAsync_v2(to, from, n, s);
  return in ? copy_in(to, f, n, s, wait) : out ? copy_out(t, from, n, s, wait) : in_program(t, f, n, s);
}

#define OWN yr_own(NULL)
#define D CUdeviceptr
EXPORT CUresult cuMemcpyHtoD_v2(D to, const void *from, size_t n) { return copy_in(to, from, n, NULL, true); }
EXPORT CUresult cuMemcpyHtoD_v2_ptds(D to, const void *from, size_t n) { return copy_in(to, from, n, OWN, true); }
EXPORT CUresult cuMemcpyHtoDAsync_v2(D to, const void *from, size_t n, CUstream s) { return copy_in(to, from, n, s, false); }
EXPORT CUresult cuMemcpyHtoDAsync_v2_ptsz(D to, const void *from, size_t n, CUstream s) { return copy_in(to, from, n, yr_own(s), false); }
EXPORT CUresult cuMemcpyDtoH_v2(void *to, D from, size_t n) { return copy_out(to, from, n, NULL, true); }
EXPORT CUresult cuMemcpyDtoH_v2_ptds(void *to, D from, size_t n) { return copy_out(to, from, n, OWN, true); }
EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, D from, size_t n, CUstream s) { return copy_out(to, from, n, s, false); }
EXPORT CUresult cuMemcpyDtoHAsync_v2_ptsz(void *to, D from, size_t n, CUstream s) { return copy_out(to, from, n, yr_own(s), false); }
EXPORT CUresult cuMemcpy(D to, D from, size_t n) { return both(to, from, n, NULL, true); }
EXPORT CUresult cuMemcpy_ptds(D to, D from, size_t n) { return both(to, from, n, OWN, true); }
EXPORT CUresult cuMemcpyAsync(D to, D from, size_t n, CUstream s) { return both(to, from, n, s, false); }
EXPORT CUresult cuMemcpyAsync_ptsz(D to, D from, size_t n, CUstream s) { return both(to, from, n, yr_own(s), false); }
EXPORT CUresult cuMemcpyDtoD_v2(D to, D from, size_t n) { return yr_cuMemcpyDtoD_v2(to, from, n); }
EXPORT CUresult cuMemcpyDtoD_v2_ptds(D to, D from, size_t n) { return cuMemcpyDtoDAsync_v2(to, from, n, OWN); }
EXPORT CUresult cuMemcpyPeer(D to, CUctx a, D from, CUctx b, size_t n) { return yr_cuMemcpyPeer(to, a, from, b, n); }
EXPORT CUresult cuMemcpyPeer_ptds(D to, CUctx a, D from, CUctx b, size_t n) { return cuMemcpyPeerAsync(to, a, from, b, n, OWN); }

EXPORT CUresult cuMemsetD8_v2(D p, unsigned char v, size_t n) { return yr_cuMemsetD8_v2(p, v, n); }
EXPORT CUresult cuMemsetD16_v2(D p, unsigned short v, size_t n) { return yr_cuMemsetD16_v2(p, v, n); }
EXPORT CUresult cuMemsetD32_v2(D p, unsigned v, size_t n) { return yr_cuMemsetD32_v2(p, v, n); }
EXPORT CUresult cuMemsetD8_v2_ptds(D p, unsigned char v, size_t n) { return cuMemsetD8Async(p, v, n, OWN); }
EXPORT CUresult cuMemsetD16_v2_ptds(D p, unsigned short v, size_t n) { return cuMemsetD16Async(p, v, n, OWN); }
EXPORT CUresult cuMemsetD32_v2_ptds(D p, unsigned v, size_t n) { return cuMemsetD32Async(p, v, n, OWN); }
EXPORT CUresult cuMemsetD2D8_v2(D p, size_t pitch, unsigned char v, size_t w, size_t h) { return yr_cuMemsetD2D8_v2(p, pitch, v, w, h); }
EXPORT CUresult cuMemsetD2D16_v2(D p, size_t pitch, unsigned short v, size_t w, size_t h) { return yr_cuMemsetD2D16_v2(p, pitch, v, w, h); }
EXPORT CUresult cuMemsetD2D32_v2(D p, size_t pitch, unsigned v, size_t w, size_t h) { return yr_cuMemsetD2D32_v2(p, pitch, v, w, h); }
EXPORT CUresult cuMemsetD2D8_v2_ptds(D p, size_t pitch, unsigned char v, size_t w, size_t h) { return cuMemsetD2D8Async(p, pitch, v, w, h, OWN); }
EXPORT CUresult cuMemsetD2D16_v2_ptds(D p, size_t pitch, unsigned short v, size_t w, size_t h) { return cuMemsetD2D16Async(p, pitch, v, w, h, OWN); }
EXPORT CUresult cuMemsetD2D32_v2_ptds(D p, size_t pitch, unsigned v, size_t w, size_t h) { return cuMemsetD2D32Async(p, pitch, v, w, h, OWN); }

/* --- boxes: of two and three dimensions, and of arrays --- */

enum { IN_PROGRAM = 1, ON_DEVICE, IN_ARRAY, UNIFIED };

typedef struct {
  int type;
  size_t x, y, z, lod;
  uint64_t at; /* the address, or the array */
  size_t pitch, height;
} end;

/* place says where one end is. */
static CUresult place(end *e, size_t w, size_t h, size_t d) {
  range r;
  if (e->type == UNIFIED) e->type = yr_find(e->at, &r) && r.what != YR_HOST ? ON_DEVICE : IN_PROGRAM;
  WANTS(e->type >= IN_PROGRAM && e->type <= IN_ARRAY && e->at);
  if (e->type == IN_ARRAY) return CUDA_SUCCESS;
  if (!e->pitch && h == 1 && d == 1) e->pitch = e->x + w;
  if (!e->height) e->height = e->y + h;
  WANTS(e->pitch >= e->x + w && (d == 1 || e->height >= e->y + h));
  if (e->type == IN_PROGRAM) e->at += e->x + e->pitch * (e->y + e->height * e->z), e->x = e->y = e->z = 0;
  return CUDA_SUCCESS;
}

static void words(const end *e) {
  uint64_t all[] = {(uint64_t)e->type, e->x, e->y, e->z, e->lod, e->type == IN_PROGRAM ? 0 : e->at, e->pitch, e->height};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) yp_word(all[i]);
}

static void step(end *e, size_t columns, size_t rows, size_t slices) {
  if (e->type == IN_PROGRAM) e->at += columns + e->pitch * (rows + e->height * slices);
  else e->x += columns, e->y += rows, e->z += slices;
}

static CUresult box(end to, end from, size_t w, size_t h, size_t d, CUstream s, bool wait) {
  bool in = from.type == IN_PROGRAM, out = to.type == IN_PROGRAM;
  while ((in || out) && w * h * d > PIECE) { /* half of it first: slices, rows, or a part of one */
    size_t half_w = d == 1 && h == 1 ? w / 2 : w, half_h = d == 1 && h > 1 ? h / 2 : h, half_d = d > 1 ? d / 2 : d;
    CUresult r = box(to, from, half_w, half_h, half_d, s, wait);
    if (r) return r;
    size_t columns = w - half_w ? half_w : 0, rows = h - half_h ? half_h : 0, slices = d - half_d ? half_d : 0;
    step(&to, columns, rows, slices), step(&from, columns, rows, slices);
    w -= columns, h -= rows, d -= slices;
  }
  if (in && out) {
    CUresult r = cuStreamSynchronize(s);
    for (size_t z = 0; z < d && !r; z++)
      for (size_t y = 0; y < h; y++)
        memmove((void *)(uintptr_t)(to.at + to.pitch * (y + to.height * z)), (void *)(uintptr_t)(from.at + from.pitch * (y + from.height * z)), w);
    return r;
  }
  landing l = {.to = (uint8_t *)(uintptr_t)to.at, .row = w, .rows = h, .slices = d, .row_pitch = to.pitch, .slice_pitch = to.pitch * to.height};
  answer a = {.land = out ? &l : NULL};
  uint64_t later = out ? landing_of(&l, wait) : 0;
  yr_begin(OP_copy_box);
  yp_word(word(s));
  yp_word(!out && wait);
  yp_word(w), yp_word(h), yp_word(d);
  words(&to), words(&from);
  yp_proof();
  yp_word(later);
  if (in) yp_rows((const uint8_t *)(uintptr_t)from.at, w, h, d, from.pitch, from.pitch * from.height);
  return !wait && (later || !out) ? yr_end() : yr_sync(&a);
}

static CUresult boxes(end to, end from, size_t w, size_t h, size_t d, CUstream s, bool wait) {
  READY;
  if (!w || !h || !d) return CUDA_SUCCESS;
  CUresult r = place(&to, w, h, d);
  if (!r) r = place(&from, w, h, d);
  return r ? r : box(to, from, w, h, d, s, wait);
}

typedef struct {
  size_t x, y;
  int type;
  const void *host;
  CUdeviceptr device;
  CUarray array;
  size_t pitch;
} end2;
typedef struct {
  end2 from, to;
  size_t w, h;
} copy2;
typedef struct {
  size_t x, y, z, lod;
  int type;
  const void *host;
  CUdeviceptr device;
  CUarray array;
  void *none;
  size_t pitch, height;
} end3;
typedef struct {
  end3 from, to;
  size_t w, h, d;
} copy3;

#define AT(e) ((e)->type == IN_PROGRAM ? (uint64_t)(uintptr_t)(e)->host : (e)->type == IN_ARRAY ? (uint64_t)(uintptr_t)(e)->array : (e)->device)
static end of2(const end2 *e) { return (end){e->type, e->x, e->y, 0, 0, AT(e), e->pitch, 0}; }
static end of3(const end3 *e) { return (end){e->type, e->x, e->y, e->z, e->lod, AT(e), e->pitch, e->height}; }
static CUresult copy_2d(const copy2 *c, CUstream s, bool wait) {
  WANTS(c);
  return boxes(of2(&c->to), of2(&c->from), c->w, c->h, 1, s, wait);
}
static CUresult copy_3d(const copy3 *c, CUstream s, bool wait) {
  WANTS(c);
  return boxes(of3(&c->to), of3(&c->from), c->w, c->h, c->d, s, wait);
}

EXPORT CUresult cuMemcpy2D_v2(const copy2 *c) { return copy_2d(c, NULL, true); }
EXPORT CUresult cuMemcpy2D_v2_ptds(const copy2 *c) { return copy_2d(c, OWN, true); }
EXPORT CUresult cuMemcpy2DUnaligned_v2(const copy2 *c) { return copy_2d(c, NULL, true); }
EXPORT CUresult cuMemcpy2DUnaligned_v2_ptds(const copy2 *c) { return copy_2d(c, OWN, true); }
EXPORT CUresult cuMemcpy2DAsync_v2(const copy2 *c, CUstream s) { return copy_2d(c, s, false); }
EXPORT CUresult cuMemcpy2DAsync_v2_ptsz(const copy2 *c, CUstream s) { return copy_2d(c, yr_own(s), false); }
EXPORT CUresult cuMemcpy3D_v2(const copy3 *c) { return copy_3d(c, NULL, true); }
EXPORT CUresult cuMemcpy3D_v2_ptds(const copy3 *c) { return copy_3d(c, OWN, true); }
EXPORT CUresult cuMemcpy3DAsync_v2(const copy3 *c, CUstream s) { return copy_3d(c, s, false); }
EXPORT CUresult cuMemcpy3DAsync_v2_ptsz(const copy3 *c, CUstream s) { return copy_3d(c, yr_own(s), false); }

static CUresult with_array(CUarray a, size_t offset, void *host, size_t n, bool in, CUstream s, bool wait) {
  WANTS(a && host);
  end array = {.type = IN_ARRAY, .x = offset, .at = (uint64_t)(uintptr_t)a}, program = {.type = IN_PROGRAM, .at = (uint64_t)(uintptr_t)host};
  return in ? boxes(array, program, n, 1, 1, s, wait) : boxes(program, array, n, 1, 1, s, wait);
}
#define FROM(p) ((void *)(uintptr_t)(p))
EXPORT CUresult cuMemcpyHtoA_v2(CUarray a, size_t at, const void *from, size_t n) { return with_array(a, at, FROM(from), n, true, NULL, true); }
EXPORT CUresult cuMemcpyHtoA_v2_ptds(CUarray a, size_t at, const void *from, size_t n) { return with_array(a, at, FROM(from), n, true, OWN, true); }
EXPORT CUresult cuMemcpyHtoAAsync_v2(CUarray a, size_t at, const void *from, size_t n, CUstream s) { return with_array(a, at, FROM(from), n, true, s, false); }
EXPORT CUresult cuMemcpyHtoAAsync_v2_ptsz(CUarray a, size_t at, const void *from, size_t n, CUstream s) { return with_array(a, at, FROM(from), n, true, yr_own(s), false); }
EXPORT CUresult cuMemcpyAtoH_v2(void *to, CUarray a, size_t at, size_t n) { return with_array(a, at, to, n, false, NULL, true); }
EXPORT CUresult cuMemcpyAtoH_v2_ptds(void *to, CUarray a, size_t at, size_t n) { return with_array(a, at, to, n, false, OWN, true); }
EXPORT CUresult cuMemcpyAtoHAsync_v2(void *to, CUarray a, size_t at, size_t n, CUstream s) { return with_array(a, at, to, n, false, s, false); }
EXPORT CUresult cuMemcpyAtoHAsync_v2_ptsz(void *to, CUarray a, size_t at, size_t n, CUstream s) { return with_array(a, at, to, n, false, yr_own(s), false); }
/* One stream is as good as the other: the copy is in order with the default one. */
EXPORT CUresult cuMemcpyDtoA_v2(CUarray a, size_t at, D from, size_t n) { return yr_cuMemcpyDtoA_v2(a, at, from, n); }
EXPORT CUresult cuMemcpyAtoD_v2(D to, CUarray a, size_t at, size_t n) { return yr_cuMemcpyAtoD_v2(to, a, at, n); }
EXPORT CUresult cuMemcpyAtoA_v2(CUarray a, size_t at, CUarray b, size_t from, size_t n) { return yr_cuMemcpyAtoA_v2(a, at, b, from, n); }
EXPORT CUresult cuMemcpyDtoA_v2_ptds(CUarray a, size_t at, D from, size_t n) { return cuMemcpyDtoA_v2(a, at, from, n); }
EXPORT CUresult cuMemcpyAtoD_v2_ptds(D to, CUarray a, size_t at, size_t n) { return cuMemcpyAtoD_v2(to, a, at, n); }
EXPORT CUresult cuMemcpyAtoA_v2_ptds(CUarray a, size_t at, CUarray b, size_t from, size_t n) { return cuMemcpyAtoA_v2(a, at, b, from, n); }
