/* What of streams, events and graphs is more than a message. */
#include "remote.h"

#define READY \
  if (!yr_ready()) return CUDA_ERROR_NOT_INITIALIZED
#define WANTS(what) \
  if (!(what)) return CUDA_ERROR_INVALID_VALUE

/* The program's functions are called here, when the stream has come to them: the
 * call waits for that. They may not call CUDA, so nothing waits for them in turn. */
static CUresult capturing(CUstream s) {
  int status = 0;
  CUresult r = cuStreamIsCapturing(s, &status);
  return r ? r : status ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchHostFunc(CUstream s, void (*call)(void *), void *data) {
  READY;
  WANTS(call);
  CUresult r = capturing(s);
  if (!r) r = cuStreamSynchronize(s);
  if (!r) call(data);
  return r;
}
EXPORT CUresult cuLaunchHostFunc_ptsz(CUstream s, void (*call)(void *), void *data) { return cuLaunchHostFunc(yr_own(s), call, data); }

EXPORT CUresult cuStreamAddCallback(CUstream s, void (*call)(CUstream, CUresult, void *), void *data, unsigned flags) {
  READY;
  WANTS(call && !flags);
  CUresult r = capturing(s);
  if (r) return r;
  call(s, cuStreamSynchronize(s), data);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamAddCallback_ptsz(CUstream s, void (*call)(CUstream, CUresult, void *), void *data, unsigned flags) { return cuStreamAddCallback(yr_own(s), call, data, flags); }

EXPORT CUresult cuStreamGetDevice(CUstream s, CUdevice *d) {
  CUctx c;
  WANTS(d);
  CUresult r = cuStreamGetCtx(s, &c);
  if (!r) *d = 0;
  return r;
}
EXPORT CUresult cuStreamGetDevice_ptsz(CUstream s, CUdevice *d) { return cuStreamGetDevice(yr_own(s), d); }

/* The forms of before, in which a capture has no mode, and what waits for a value has another version's number. */
EXPORT CUresult cuStreamBeginCapture(CUstream s) { return cuStreamBeginCapture_v2(s, 0); }
EXPORT CUresult cuStreamBeginCapture_ptsz(CUstream s) { return cuStreamBeginCapture_v2(yr_own(s), 0); }
#define VALUE(f, type)                                                                                             \
  EXPORT CUresult f(CUstream s, CUdeviceptr p, type value, unsigned flags) { return f##_v2(s, p, value, flags); } \
  EXPORT CUresult f##_ptsz(CUstream s, CUdeviceptr p, type value, unsigned flags) { return f##_v2(yr_own(s), p, value, flags); }
VALUE(cuStreamWaitValue32, uint32_t)
VALUE(cuStreamWriteValue32, uint32_t)
VALUE(cuStreamWaitValue64, uint64_t)
VALUE(cuStreamWriteValue64, uint64_t)

/* What a capture depends on is not told: a program that asks for that builds graphs by hand. */
EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream s, int *status, uint64_t *number, CUgraph *graph, const CUnode **nodes, size_t *n) {
  if (nodes) return CUDA_ERROR_NOT_SUPPORTED;
  uint64_t none, count = 0;
  CUresult r = yr_cuStreamGetCaptureInfo_v2(s, status, number, graph, &none, &count);
  if (!r && n) *n = count;
  return r;
}
EXPORT CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream s, int *status, uint64_t *number, CUgraph *graph, const CUnode **nodes, size_t *n) {
  return cuStreamGetCaptureInfo_v2(yr_own(s), status, number, graph, nodes, n);
}

EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream s, int *status, uint64_t *number, CUgraph *graph, const CUnode **nodes, const void **edges, size_t *n) {
  return edges ? CUDA_ERROR_NOT_SUPPORTED : cuStreamGetCaptureInfo_v2(s, status, number, graph, nodes, n);
}
EXPORT CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream s, int *status, uint64_t *number, CUgraph *graph, const CUnode **nodes, const void **edges, size_t *n) {
  return cuStreamGetCaptureInfo_v3(yr_own(s), status, number, graph, nodes, edges, n);
}

/* There are no green contexts. */
EXPORT CUresult cuStreamGetCtx_v2(CUstream s, CUctx *c, void **green) {
  if (green) *green = NULL;
  return cuStreamGetCtx(s, c);
}
EXPORT CUresult cuStreamGetCtx_v2_ptsz(CUstream s, CUctx *c, void **green) { return cuStreamGetCtx_v2(yr_own(s), c, green); }

EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
  WANTS(mode);
  return yr_cuThreadExchangeStreamCaptureMode(*mode, mode);
}

EXPORT CUresult cuEventElapsedTime_v2(float *ms, CUevent a, CUevent b) { return cuEventElapsedTime((unsigned *)ms, a, b); }

/* The first forms say which node failed and why, which nothing does here. */
EXPORT CUresult cuGraphInstantiate(CUexec *to, CUgraph g, CUnode *bad, char *text, size_t room) {
  if (bad) *bad = NULL;
  if (text && room) *text = 0;
  return cuGraphInstantiateWithFlags(to, g, 0);
}
EXPORT CUresult cuGraphInstantiate_v2(CUexec *to, CUgraph g, CUnode *bad, char *text, size_t room) { return cuGraphInstantiate(to, g, bad, text, room); }

typedef struct {
  uint64_t flags;
  CUstream upload;
  CUnode bad;
  int result;
} how;
EXPORT CUresult cuGraphInstantiateWithParams(CUexec *to, CUgraph g, how *h) {
  enum { UPLOAD = 2, FAILED = 1 };
  WANTS(h);
  CUresult r = cuGraphInstantiateWithFlags(to, g, h->flags & ~(uint64_t)UPLOAD);
  if (!r && h->flags & UPLOAD) r = cuGraphUpload(*to, h->upload);
  h->bad = NULL, h->result = r ? FAILED : 0;
  return r;
}
EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUexec *to, CUgraph g, how *h) { return cuGraphInstantiateWithParams(to, g, h); }
