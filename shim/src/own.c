/* Programs close descriptors that are not theirs, in loops, and then have the
 * number for what they open. So the library's have numbers where such loops do not
 * come: from the program's limit on, which is higher for a moment, but not so high
 * that the table of descriptors is long. And what is at a number is looked at
 * before each call of the system: a ring makes none while there is something to do. */
#define _GNU_SOURCE
#include "own.h"
#include <fcntl.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FAR = 1 << 12, SOME = 64 };

/* By the system's number: the C library's function is a new one since glibc 2.33. */
static bool identity(int fd, yp_own *o) {
  struct stat at = {0};
  if (fd < 0 || syscall(SYS_fstat, fd, &at)) return false;
  *o = (yp_own){fd, at.st_dev, at.st_ino};
  return true;
}

static int limit(const struct rlimit *new, struct rlimit *old) { return (int)syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, new, old); }

/* aside is a descriptor again, far from the program's own and from its streams; or -1. */
static int aside(int fd) {
  struct rlimit was, more, then;
  int far = -1;
  if (!limit(NULL, &was)) {
    int from = was.rlim_cur < FAR ? (int)was.rlim_cur : FAR;
    more = (struct rlimit){(rlim_t)from + SOME, was.rlim_max};
    if (more.rlim_cur <= was.rlim_cur) {
      far = fcntl(fd, F_DUPFD_CLOEXEC, from);
    } else if (!limit(&more, &was)) {
      far = fcntl(fd, F_DUPFD_CLOEXEC, from);
      if (!limit(&was, &then) && then.rlim_cur != more.rlim_cur) limit(&then, NULL); /* another thread has set it meanwhile */
    }
    if (far < 0 && from > 2 * SOME) far = fcntl(fd, F_DUPFD_CLOEXEC, from - SOME);
  }
  return far < 0 ? fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1) : far;
}

yp_own yp_own_of(int fd) {
  yp_own o = {.number = -1};
  int far = fd < 0 ? -1 : aside(fd);
  if (far >= 0 || fd <= STDERR_FILENO) { /* the program has closed its streams, and may write to them */
    if (fd >= 0) close(fd);
    fd = far;
  }
  if (!identity(fd, &o) && fd >= 0) close(fd);
  return o;
}

int yp_fd(const yp_own *o) {
  yp_own now;
  return identity(o->number, &now) && now.device == o->device && now.inode == o->inode ? o->number : -1;
}

void yp_close(yp_own *o) {
  if (yp_fd(o) >= 0) close(o->number);
  o->number = -1;
}

/* Where programs are of musl there is pthread_atfork; in glibc it is a part of who calls it, made of the other. */
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak));
extern int pthread_atfork(void (*)(void), void (*)(void), void (*)(void)) __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

void yp_at_fork(void (*before)(void), void (*parent)(void), void (*child)(void)) {
  if (__register_atfork) __register_atfork(before, parent, child, &__dso_handle);
  else if (pthread_atfork) pthread_atfork(before, parent, child);
}
