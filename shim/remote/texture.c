/* Textures and tensor maps: what of them is optional, or as long as something else says. */
#include "remote.h"
#include <string.h>

#define WANTS(what) \
  if (!(what)) return CUDA_ERROR_INVALID_VALUE

EXPORT CUresult cuTexObjectCreate(uint64_t *to, const void *resource, const void *how, const void *view) {
  static const uint8_t none[112];
  return yr_cuTexObjectCreate(to, resource, how, view ? view : none, view != NULL);
}

/* Of what a map has for each dimension. */
enum { RANK = 5, MAP = 128, ALIGNED = 64 };
typedef struct {
  uint64_t sizes[RANK], strides[RANK];
  uint32_t box[RANK], steps[RANK];
  int lower[RANK - 2], upper[RANK - 2];
} dimensions;

static CUresult take(dimensions *d, const void *to, unsigned rank, unsigned least, const uint64_t *sizes, const uint64_t *strides, const uint32_t *steps) {
  WANTS(to && (uintptr_t)to % ALIGNED == 0 && rank >= least && rank <= RANK && sizes && steps && (strides || rank == 1));
  *d = (dimensions){.sizes = {0}};
  memcpy(d->sizes, sizes, rank * sizeof *sizes);
  memcpy(d->steps, steps, rank * sizeof *steps);
  if (rank > 1) memcpy(d->strides, strides, (rank - 1) * sizeof *strides);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuTensorMapEncodeTiled(void *to, int type, unsigned rank, void *at, const uint64_t *sizes, const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                                       int swizzle, int promotion, int fill) {
  dimensions d;
  CUresult r = take(&d, to, rank, 1, sizes, strides, steps);
  if (r) return r;
  WANTS(box);
  memcpy(d.box, box, rank * sizeof *box);
  return yr_cuTensorMapEncodeTiled(to, type, rank, (uint64_t)(uintptr_t)at, d.sizes, d.strides, d.box, d.steps, interleave, swizzle, promotion, fill);
}

EXPORT CUresult cuTensorMapEncodeIm2col(void *to, int type, unsigned rank, void *at, const uint64_t *sizes, const uint64_t *strides, const int *lower, const int *upper, unsigned channels,
                                        unsigned pixels, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill) {
  dimensions d;
  CUresult r = take(&d, to, rank, 3, sizes, strides, steps);
  if (r) return r;
  WANTS(lower && upper);
  memcpy(d.lower, lower, (rank - 2) * sizeof *lower);
  memcpy(d.upper, upper, (rank - 2) * sizeof *upper);
  return yr_cuTensorMapEncodeIm2col(to, type, rank, (uint64_t)(uintptr_t)at, d.sizes, d.strides, d.lower, d.upper, channels, pixels, d.steps, interleave, swizzle, promotion, fill);
}

EXPORT CUresult cuTensorMapReplaceAddress(void *map, void *at) {
  uint8_t was[MAP];
  WANTS(map && (uintptr_t)map % ALIGNED == 0);
  memcpy(was, map, MAP);
  return yr_cuTensorMapReplaceAddress(map, (uint64_t)(uintptr_t)at, was);
}
