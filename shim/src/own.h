/* What is the library's own in a program that may do anything: numbers of descriptors, and functions for a child's beginning. */
#ifndef YUNHE_POOL_OWN_H
#define YUNHE_POOL_OWN_H

#include <sys/types.h>

typedef struct {
  int number;
  dev_t device;
  ino_t inode;
} yp_own;

yp_own yp_own_of(int fd); /* which it takes; number -1: it cannot be had */
int yp_fd(const yp_own *o); /* -1: the program has closed it, and may have something else at its number */
void yp_close(yp_own *o);
void yp_at_fork(void (*before)(void), void (*parent)(void), void (*child)(void));

#endif
