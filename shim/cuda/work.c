/* The functions of the driver that give a card work: each waits for a turn of its
 * stream's card. */
#include "wrap.h"
#include <string.h>

/* Copies that are smaller are let through: they cost less than a turn. */
enum { BIG = 64 << 10 };

/* GIVES is of a function that gives a stream work, if it is enough to ask for a turn. WORK is
 * one that copies or fills, of which some are done when they return; LAUNCH is no such. */
#define GIVES(f, copies, s, enough, args, ...)                            \
  WRAP(f, __VA_ARGS__) {                                                  \
    NEEDS(f);                                                             \
    CUresult r;                                                           \
    if (yc_inside || !(enough)) return REAL(f)(args);                        \
    yc_card *card = yc_begin(s, copies);                                  \
    if (!card) return CUDA_ERROR_DEVICE_UNAVAILABLE;                      \
    CALL(r, f, args);                                                     \
    yc_end(card, s, copies);                                              \
    return r;                                                             \
  }
#define WORK(f, s, enough, args, ...) GIVES(f, true, s, enough, A(args), __VA_ARGS__)
#define LAUNCH(f, s, args, ...) GIVES(f, false, s, true, A(args), __VA_ARGS__)
#define LEGACY ((CUstream)0)
#define PER_THREAD ((CUstream)2)
#define OWN(s) ((s) ? (s) : PER_THREAD)
/* Both forms of a function: its default stream is the device's, or the thread's. */
#define STREAM_WORK(f, suffix, enough, args, ...) \
  WORK(f, s, enough, A(args), __VA_ARGS__)        \
  WORK(f##suffix, OWN(s), enough, A(args), __VA_ARGS__)
#define STREAM_LAUNCH(f, suffix, args, ...) \
  LAUNCH(f, s, A(args), __VA_ARGS__)        \
  LAUNCH(f##suffix, OWN(s), A(args), __VA_ARGS__)
#define DEFAULT_WORK(f, suffix, enough, args, ...) \
  WORK(f, LEGACY, enough, A(args), __VA_ARGS__)    \
  WORK(f##suffix, PER_THREAD, enough, A(args), __VA_ARGS__)

typedef struct {
  unsigned grid[3], block[3], shared;
  CUstream stream;
} launch;
#define OF(c) ((c) ? (c)->stream : LEGACY)
#define GRID unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s

STREAM_LAUNCH(cuLaunchKernel, _ptsz, A(f, gx, gy, gz, bx, by, bz, shared, s, params, extra), CUfunction f, GRID, void **params, void **extra)
STREAM_LAUNCH(cuLaunchCooperativeKernel, _ptsz, A(f, gx, gy, gz, bx, by, bz, shared, s, params), CUfunction f, GRID, void **params)
LAUNCH(cuLaunchKernelEx, OF(c), A(c, f, params, extra), const launch *c, CUfunction f, void **params, void **extra)
LAUNCH(cuLaunchKernelEx_ptsz, OWN(OF(c)), A(c, f, params, extra), const launch *c, CUfunction f, void **params, void **extra)
STREAM_LAUNCH(cuGraphLaunch, _ptsz, A(g, s), CUgraphExec g, CUstream s)
LAUNCH(cuLaunch, LEGACY, A(f), CUfunction f)
LAUNCH(cuLaunchGrid, LEGACY, A(f, w, h), CUfunction f, int w, int h)
LAUNCH(cuLaunchGridAsync, s, A(f, w, h, s), CUfunction f, int w, int h, CUstream s)

/* One kernel on several cards: it needs a turn of each. Who waits for one has others, so all
 * programs ask for them in the same order. */
typedef struct {
  CUfunction function;
  unsigned grid[3], block[3], shared;
  CUstream stream;
  void **params;
} cooperative;

WRAP(cuLaunchCooperativeKernelMultiDevice, cooperative *list, unsigned n, unsigned flags) {
  NEEDS(cuLaunchCooperativeKernelMultiDevice);
  PASS(cuLaunchCooperativeKernelMultiDevice, list, n, flags);
  struct {
    yc_card *card;
    CUstream stream;
  } on[YC_CARDS];
  unsigned cards = 0, begun = 0;
  CUresult r = CUDA_SUCCESS;
  for (unsigned i = 0; list && i < n; i++)
    if (yc_capturing(list[i].stream)) return REAL(cuLaunchCooperativeKernelMultiDevice)(list, n, flags); /* which cannot be */
  for (unsigned i = 0; list && i < n; i++) {
    yc_card *card = yc_of_stream(list[i].stream);
    unsigned at = 0;
    while (at < cards && strcmp(yc_bus(on[at].card), yc_bus(card)) < 0) at++;
    if (at < cards && on[at].card == card) continue; /* as the driver will say */
    memmove(on + at + 1, on + at, (cards++ - at) * sizeof *on);
    on[at].card = card, on[at].stream = list[i].stream;
  }
  while (begun < cards && yc_begin(on[begun].stream, false)) begun++;
  if (begun < cards) r = CUDA_ERROR_DEVICE_UNAVAILABLE;
  else CALL(r, cuLaunchCooperativeKernelMultiDevice, list, n, flags);
  while (begun--) yc_end(on[begun].card, on[begun].stream, false);
  return r;
}

DEFAULT_WORK(cuMemcpy, _ptds, n >= BIG, A(to, from, n), CUdeviceptr to, CUdeviceptr from, size_t n)
DEFAULT_WORK(cuMemcpyHtoD_v2, _ptds, n >= BIG, A(to, from, n), CUdeviceptr to, const void *from, size_t n)
DEFAULT_WORK(cuMemcpyDtoH_v2, _ptds, n >= BIG, A(to, from, n), void *to, CUdeviceptr from, size_t n)
DEFAULT_WORK(cuMemcpyDtoD_v2, _ptds, n >= BIG, A(to, from, n), CUdeviceptr to, CUdeviceptr from, size_t n)
STREAM_WORK(cuMemcpyAsync, _ptsz, n >= BIG, A(to, from, n, s), CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s)
STREAM_WORK(cuMemcpyHtoDAsync_v2, _ptsz, n >= BIG, A(to, from, n, s), CUdeviceptr to, const void *from, size_t n, CUstream s)
STREAM_WORK(cuMemcpyDtoHAsync_v2, _ptsz, n >= BIG, A(to, from, n, s), void *to, CUdeviceptr from, size_t n, CUstream s)
STREAM_WORK(cuMemcpyDtoDAsync_v2, _ptsz, n >= BIG, A(to, from, n, s), CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s)
DEFAULT_WORK(cuMemcpy2D_v2, _ptds, true, A(how), const void *how)
DEFAULT_WORK(cuMemcpy2DUnaligned_v2, _ptds, true, A(how), const void *how)
DEFAULT_WORK(cuMemcpy3D_v2, _ptds, true, A(how), const void *how)
STREAM_WORK(cuMemcpy2DAsync_v2, _ptsz, true, A(how, s), const void *how, CUstream s)
STREAM_WORK(cuMemcpy3DAsync_v2, _ptsz, true, A(how, s), const void *how, CUstream s)
DEFAULT_WORK(cuMemcpyPeer, _ptds, n >= BIG, A(to, a, from, b, n), CUdeviceptr to, CUcontext a, CUdeviceptr from, CUcontext b, size_t n)
STREAM_WORK(cuMemcpyPeerAsync, _ptsz, n >= BIG, A(to, a, from, b, n, s), CUdeviceptr to, CUcontext a, CUdeviceptr from, CUcontext b, size_t n, CUstream s)
DEFAULT_WORK(cuMemcpy3DPeer, _ptds, true, A(how), const void *how)
STREAM_WORK(cuMemcpy3DPeerAsync, _ptsz, true, A(how, s), const void *how, CUstream s)
DEFAULT_WORK(cuMemcpyHtoA_v2, _ptds, n >= BIG, A(to, at, from, n), CUarray to, size_t at, const void *from, size_t n)
DEFAULT_WORK(cuMemcpyAtoH_v2, _ptds, n >= BIG, A(to, from, at, n), void *to, CUarray from, size_t at, size_t n)
DEFAULT_WORK(cuMemcpyDtoA_v2, _ptds, n >= BIG, A(to, at, from, n), CUarray to, size_t at, CUdeviceptr from, size_t n)
DEFAULT_WORK(cuMemcpyAtoD_v2, _ptds, n >= BIG, A(to, from, at, n), CUdeviceptr to, CUarray from, size_t at, size_t n)
DEFAULT_WORK(cuMemcpyAtoA_v2, _ptds, n >= BIG, A(to, into, from, at, n), CUarray to, size_t into, CUarray from, size_t at, size_t n)
STREAM_WORK(cuMemcpyHtoAAsync_v2, _ptsz, n >= BIG, A(to, at, from, n, s), CUarray to, size_t at, const void *from, size_t n, CUstream s)
STREAM_WORK(cuMemcpyAtoHAsync_v2, _ptsz, n >= BIG, A(to, from, at, n, s), void *to, CUarray from, size_t at, size_t n, CUstream s)
#define LISTS const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes, size_t n, const void *how, const size_t *of, size_t hows
STREAM_WORK(cuMemcpyBatchAsync, _ptsz, true, A(to, from, sizes, n, how, of, hows, bad, s), LISTS, size_t *bad, CUstream s)
STREAM_WORK(cuMemcpyBatchAsync_v2, _ptsz, true, A(to, from, sizes, n, how, of, hows, s), LISTS, CUstream s)
STREAM_WORK(cuMemcpy3DBatchAsync, _ptsz, true, A(n, how, bad, flags, s), size_t n, const void *how, size_t *bad, unsigned long long flags, CUstream s)
STREAM_WORK(cuMemcpy3DBatchAsync_v2, _ptsz, true, A(n, how, flags, s), size_t n, const void *how, unsigned long long flags, CUstream s)
STREAM_WORK(cuMemcpyWithAttributesAsync, _ptsz, n >= BIG, A(to, from, n, how, s), CUdeviceptr to, CUdeviceptr from, size_t n, const void *how, CUstream s)
STREAM_WORK(cuMemcpy3DWithAttributesAsync, _ptsz, true, A(how, flags, s), const void *how, unsigned long long flags, CUstream s)
typedef struct {
  int type, id;
} location;
STREAM_WORK(cuMemPrefetchAsync, _ptsz, n >= BIG, A(p, n, where, s), CUdeviceptr p, size_t n, CUdevice where, CUstream s)
STREAM_WORK(cuMemPrefetchAsync_v2, _ptsz, n >= BIG, A(p, n, where, flags, s), CUdeviceptr p, size_t n, location where, unsigned flags, CUstream s)
#define RANGES CUdeviceptr *p, size_t *sizes, size_t n
STREAM_WORK(cuMemPrefetchBatchAsync, _ptsz, true, A(p, sizes, n, where, of, wheres, flags, s), RANGES, location *where, size_t *of, size_t wheres, unsigned long long flags, CUstream s)
STREAM_WORK(cuMemDiscardAndPrefetchBatchAsync, _ptsz, true, A(p, sizes, n, where, of, wheres, flags, s), RANGES, location *where, size_t *of, size_t wheres, unsigned long long flags, CUstream s)
STREAM_WORK(cuMemBatchDecompressAsync, _ptsz, true, A(list, n, flags, bad, s), void *list, size_t n, unsigned flags, size_t *bad, CUstream s)
DEFAULT_WORK(cuMemsetD8_v2, _ptds, n >= BIG, A(to, v, n), CUdeviceptr to, unsigned char v, size_t n)
DEFAULT_WORK(cuMemsetD16_v2, _ptds, n >= BIG / 2, A(to, v, n), CUdeviceptr to, unsigned short v, size_t n)
DEFAULT_WORK(cuMemsetD32_v2, _ptds, n >= BIG / 4, A(to, v, n), CUdeviceptr to, unsigned v, size_t n)
#define ROWS(bits, type)                                                                                                             \
  DEFAULT_WORK(cuMemsetD2D##bits##_v2, _ptds, true, A(to, pitch, v, w, h), CUdeviceptr to, size_t pitch, type v, size_t w, size_t h) \
  STREAM_WORK(cuMemsetD2D##bits##Async, _ptsz, true, A(to, pitch, v, w, h, s), CUdeviceptr to, size_t pitch, type v, size_t w, size_t h, CUstream s)
ROWS(8, unsigned char)
ROWS(16, unsigned short)
ROWS(32, unsigned)
STREAM_WORK(cuMemsetD8Async, _ptsz, n >= BIG, A(to, v, n, s), CUdeviceptr to, unsigned char v, size_t n, CUstream s)
STREAM_WORK(cuMemsetD16Async, _ptsz, n >= BIG / 2, A(to, v, n, s), CUdeviceptr to, unsigned short v, size_t n, CUstream s)
STREAM_WORK(cuMemsetD32Async, _ptsz, n >= BIG / 4, A(to, v, n, s), CUdeviceptr to, unsigned v, size_t n, CUstream s)

const yc_row yc_work[] = {
    STREAMS(cuLaunchKernel), STREAMS(cuLaunchCooperativeKernel), STREAMS(cuLaunchKernelEx), PLAIN(cuLaunchCooperativeKernelMultiDevice), STREAMS(cuGraphLaunch),
    PLAIN(cuLaunch), PLAIN(cuLaunchGrid), PLAIN(cuLaunchGridAsync),
    PLAIN(cuMemcpy), ROW(cuMemcpy_ptds, "cuMemcpy", true), DEFAULTS2(cuMemcpyHtoD), DEFAULTS2(cuMemcpyDtoH), DEFAULTS2(cuMemcpyDtoD),
    STREAMS(cuMemcpyAsync), STREAMS2(cuMemcpyHtoDAsync), STREAMS2(cuMemcpyDtoHAsync), STREAMS2(cuMemcpyDtoDAsync),
    DEFAULTS2(cuMemcpy2D), DEFAULTS2(cuMemcpy2DUnaligned), DEFAULTS2(cuMemcpy3D), STREAMS2(cuMemcpy2DAsync), STREAMS2(cuMemcpy3DAsync),
    DEFAULTS2(cuMemsetD8), DEFAULTS2(cuMemsetD16), DEFAULTS2(cuMemsetD32), STREAMS(cuMemsetD8Async), STREAMS(cuMemsetD16Async), STREAMS(cuMemsetD32Async),
    DEFAULTS2(cuMemsetD2D8), DEFAULTS2(cuMemsetD2D16), DEFAULTS2(cuMemsetD2D32), STREAMS(cuMemsetD2D8Async), STREAMS(cuMemsetD2D16Async), STREAMS(cuMemsetD2D32Async),
    PLAIN(cuMemcpyPeer), ROW(cuMemcpyPeer_ptds, "cuMemcpyPeer", true), STREAMS(cuMemcpyPeerAsync), PLAIN(cuMemcpy3DPeer), ROW(cuMemcpy3DPeer_ptds, "cuMemcpy3DPeer", true), STREAMS(cuMemcpy3DPeerAsync),
    DEFAULTS2(cuMemcpyHtoA), DEFAULTS2(cuMemcpyAtoH), DEFAULTS2(cuMemcpyDtoA), DEFAULTS2(cuMemcpyAtoD), DEFAULTS2(cuMemcpyAtoA), STREAMS2(cuMemcpyHtoAAsync), STREAMS2(cuMemcpyAtoHAsync),
    EXACTS(cuMemcpyBatchAsync), EXACTS(cuMemcpyBatchAsync_v2), EXACTS(cuMemcpy3DBatchAsync), EXACTS(cuMemcpy3DBatchAsync_v2), STREAMS(cuMemcpyWithAttributesAsync), STREAMS(cuMemcpy3DWithAttributesAsync), EXACTS(cuMemPrefetchAsync), EXACTS(cuMemPrefetchAsync_v2), STREAMS(cuMemPrefetchBatchAsync), STREAMS(cuMemDiscardAndPrefetchBatchAsync), STREAMS(cuMemBatchDecompressAsync),
};
const size_t yc_work_n = sizeof yc_work / sizeof *yc_work;
