/* The functions that the library has, by their names. Programs ask for them in the
 * form that a version of CUDA has. */
#ifndef YUNHE_REMOTE_TABLE_H
#define YUNHE_REMOTE_TABLE_H

#include <stddef.h>

typedef struct {
  const char *base;
  void (*f)(void), (*own)(void); /* own: its default stream is the thread's */
  int since;
} yr_function;
extern const yr_function yr_functions[];
extern const size_t yr_functions_n;

#endif
