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

extern const yc_row yc_rows[], yc_work[];
extern const size_t yc_rows_n, yc_work_n;

/* hook.c */
void yc_resolve(void);            /* finds the driver */
void *yc_driver(const char *name); /* a function of it, or NULL */
CUresult yc_proc_address(CUresult r, const char *name, void **f, int version, uint64_t flags);

/* A card that the program has: a slice, with a connection of its own. */
typedef struct yc_card yc_card;
enum { YC_CARDS = 16 };

/* visible.c */
typedef struct {
  char address[108], task[27], token[65];
} yc_slice;
void yc_read(void);               /* the environment, and a file that it names, before the program can change them */
const yc_slice *yc_slice_of(int card);
int yc_shown_cards(const int **cards); /* how many of them the program sees, and which in which order */
void yc_show(void);               /* before the driver starts: it is to show these only. Until */
void yc_shown(bool started);      /* after it no other thread starts it, and the program has its list back */
void yc_shown_in_child(void);

/* node.c */
void yc_start(void);
void yc_stay(void); /* until yc_go as often, the thread is not canceled */
void yc_go(void);
bool yc_connect(void);          /* to the node, once; false: there is no device for this program */
int yc_count(void);             /* cards that the program sees, */
yc_card *yc_at(int i);          /* the i-th of them, or NULL */
CUdevice yc_device(yc_card *c); /* as the driver numbers it, or -1 */
yc_card *yc_of_device(CUdevice d); /* or NULL */
yc_card *yc_here(void);         /* that of the current context. Where there is none, the first: the driver says what is wrong */
yc_card *yc_of_stream(CUstream s);
yc_card *yc_of_context(CUcontext context);
CUcontext yc_context_of(CUstream s);
const char *yc_bus(yc_card *c);
bool yc_take(yc_card *c, uint64_t n); /* memory, or none */
void yc_give(yc_card *c, uint64_t n);
bool yc_memory(yc_card *c, uint64_t *limit, uint64_t *used);
bool yc_pages(yc_card *c);      /* whether memory is to be such as the driver may move to the host; known after any answer */
yc_card *yc_begin(CUstream s, bool copies); /* before work, which may be done when the call returns if it copies: waits for a turn of its card; NULL: there will be none */
void yc_end(yc_card *c, CUstream s, bool copies); /* after it */
void yc_learn(CUcontext context, CUdevice d, bool green); /* of what card it is; a green one is one thread's at a time */
bool yc_green(CUcontext context);
bool yc_capturing(CUstream s);
void yc_hold(yc_card *c);       /* nobody looks at its events, while a context of it may end */
void yc_forget(yc_card *c, CUcontext ended); /* between both */
void yc_go_on(yc_card *c);
int yc_number(yc_card *c);      /* its place among the program's */

/* wrap.c, beside what it wraps */
void yc_alone(void); /* in a child of fork */
void yc_fetch(yc_card *c); /* moves that memory to the card; no context ends meanwhile */

#endif
