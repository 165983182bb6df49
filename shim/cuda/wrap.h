/* How functions of the driver are wrapped: each file of such has a table of its own. */
#ifndef YUNHE_WRAP_H
#define YUNHE_WRAP_H

#include "cuda.h"

extern _Thread_local int yc_inside; /* the driver may call its own functions by their names */

#define EXPORT __attribute__((visibility("default")))
#define REAL(f) ((__typeof__(&f))__atomic_load_n(&real_##f, __ATOMIC_ACQUIRE))
/* WRAP declares a function. Its body calls the driver's by REAL. */
#define WRAP(f, ...)     \
  static void *real_##f; \
  EXPORT CUresult f(__VA_ARGS__)
#define NEEDS(f)                      \
  yc_resolve();                       \
  if (!REAL(f)) return CUDA_ERROR_NOT_SUPPORTED
/* CALL calls the driver's function. */
#define CALL(r, f, ...)     \
  do {                      \
    yc_inside++;              \
    r = REAL(f)(__VA_ARGS__); \
    yc_inside--;              \
  } while (0)
#define PASS(f, ...) \
  if (yc_inside) return REAL(f)(__VA_ARGS__)

#define A(...) __VA_ARGS__

/* Rows of those tables. */
#define ROW(f, base, own) {#f, base, (void *)f, &real_##f, own}
#define PLAIN(f) ROW(f, #f, false)
#define V2(f) ROW(f##_v2, #f, false)
#define STREAMS(f) ROW(f, #f, false), ROW(f##_ptsz, #f, true)
#define STREAMS2(f) ROW(f##_v2, #f, false), ROW(f##_v2_ptsz, #f, true)
#define DEFAULTS2(f) ROW(f##_v2, #f, false), ROW(f##_v2_ptds, #f, true)
/* Of those whose first forms are not the last, only the address says which is meant. */
#define EXACT(f) ROW(f, "", false)
#define EXACTS(f) ROW(f, "", false), ROW(f##_ptsz, "", true)

#endif
