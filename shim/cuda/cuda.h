/* What libyunhe-cuda.so knows of the CUDA driver interface, and its parts.
 *
 * The library is loaded before a program's others (LD_PRELOAD). Functions of the
 * driver that make memory or work are called through it, however the program
 * finds them: linked, by dlsym, or by cuGetProcAddress. All other functions are
 * the driver's own, untouched.
 *
 * The node decides what a program gets: the library asks it for memory and for
 * turns over the node's socket, and keeps no limit itself. */
#ifndef YUNHE_CUDA_H
#define YUNHE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef void *CUcontext, *CUstream, *CUevent, *CUfunction, *CUarray, *CUgraphExec, *CUmemoryPool;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_NOT_SUPPORTED = 801,
};

/* A function that goes through the library. Rows are sorted by nothing: there are few. */
typedef struct {
  const char *name, *base; /* as the driver exports it, and without version and stream */
  void *wrapper;
  void **real;
  bool per_thread; /* its default stream is the thread's */
} yc_row;

extern const yc_row yc_rows[];
extern const size_t yc_rows_n;

/* hook.c */
void yc_resolve(void);            /* finds the driver */
void *yc_driver(const char *name); /* a function of it, or NULL */
CUresult yc_proc_address(CUresult r, const char *name, void **f, int version, uint64_t flags);

/* node.c */
void yc_show(void);          /* before the driver starts, */
void yc_shown(bool started); /* and after it */
bool yc_connect(void);       /* to the node, once; false: there is no device for this program */
const char *yc_bus(void);    /* where the slice's device is */
bool yc_take(uint64_t n);    /* memory, or none */
void yc_give(uint64_t n);
bool yc_memory(uint64_t *limit, uint64_t *used);
bool yc_pages(void);         /* whether memory is to be such as the driver may move to the host; known after any answer */
bool yc_begin(CUstream s, bool copies); /* before work, which may be done when the call returns if it copies: waits for a turn; false: there will be none */
void yc_end(CUstream s, bool copies);   /* after it */
void yc_hold(void);          /* nobody looks at events, while a context may end */
void yc_forget(CUcontext ended); /* between both */
void yc_go_on(void);

/* wrap.c */
void yc_alone(void); /* in a child of fork */
void yc_fetch(void); /* moves that memory to the card; no context ends meanwhile */

#endif
