/* libyunhe-cuda-remote.so: what a program on a machine without a card finds as
 * the driver of CUDA (libcuda.so.1). What the program asks for is done by a
 * worker at a pool node, over the same connection and in the same form as
 * programs of OpenCL have (../src/conn.c, docs/pool-design.md).
 *
 * Objects are numbers that the worker gives; a number says of what kind it is and
 * is never used again. Pointers of the device are the device's own, since kernels
 * are given them. Each thread of the program has a thread of the worker's, which
 * makes its calls: so a thread's current context, its default stream and its mode
 * of capturing are the driver's own.
 *
 * Work, copies, records and frees are sent without waiting where they are known
 * to be right: because an equal call succeeded before (yp_end), or because the
 * library knows the memory. What goes wrong nevertheless is told by the next
 * call that waits for the device, as CUDA does. */
#ifndef YUNHE_REMOTE_H
#define YUNHE_REMOTE_H

#include "../src/pool.h"

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef void *CUctx, *CUstream, *CUevent, *CUmodule, *CUfunction, *CUlibrary, *CUkernel, *CUgraph, *CUexec, *CUnode, *CUarray, *CUmipmap, *CUpool;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
  CUDA_ERROR_FILE_NOT_FOUND = 301,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_NOT_SUPPORTED = 801,
};

#define EXPORT __attribute__((visibility("default")))

static const uintptr_t yr_per_thread = 2;
static inline CUstream yr_own(CUstream s) { return s ? s : (CUstream)yr_per_thread; } /* of functions whose default stream is the thread's */

/* remote.c */
bool yr_ready(void);      /* cuInit succeeded */
yp_node *yr_node(void);
CUresult yr_connect(void);
void yr_begin(int op);    /* as yp_begin; the first word is the thread */
CUresult yr_sync(answer *a);
CUresult yr_end(void);
CUresult yr_post(void);   /* sends without waiting; yr_begin's lock is given back */
CUresult yr_send(uint64_t handle, int kind); /* the same, if it is an object of that kind; else waits */
uint64_t yr_out(const answer *a, size_t i);  /* what the answer gives back */
void yr_bytes(const answer *a, void *to, size_t n);
CUctx yr_current(void);
CUresult yr_proc(const char *base, void **f, int version, uint64_t flags, int *status);

/* memory.c: what the library knows of addresses. */
enum { YR_DEVICE = 1, YR_HOST, YR_RESERVED, YR_GLOBAL };
typedef struct {
  uint64_t at, size;
  int what;
  unsigned flags;
  uint64_t id; /* never used again */
  CUctx context;
  bool held; /* the program's own memory is kept away */
} range;
void yr_know(uint64_t at, uint64_t size, int what, unsigned flags);
bool yr_find(uint64_t at, range *r); /* the range that at is in */
bool yr_forget(uint64_t at, int what, range *r);
bool yr_on_device(uint64_t at, uint64_t n);
void yr_forget_all(CUctx context); /* the device's ranges of a context that is gone */

/* image.c: how long an image of code is, 0 if it is none; limit is how many bytes may be looked at. */
size_t yr_image_size(const void *image, size_t limit);
const void *yr_image_of(const void *image, size_t limit); /* what the wrapper of a fat binary points to, or the image itself */

#include "stubs.h"

#endif
