/* Counts the bytes that a program sends and receives over sockets: loaded before its other libraries. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>

static long passed;
long bytes_passed(void);
long bytes_passed(void) { return __atomic_exchange_n(&passed, 0, __ATOMIC_SEQ_CST); }

static ssize_t count(ssize_t n) {
  if (n > 0) __atomic_add_fetch(&passed, n, __ATOMIC_SEQ_CST);
  return n;
}

ssize_t sendmsg(int s, const struct msghdr *h, int flags) {
  static ssize_t (*next)(int, const struct msghdr *, int);
  if (!next) *(void **)&next = dlsym(RTLD_NEXT, "sendmsg");
  return count(next(s, h, flags));
}

ssize_t recvmsg(int s, struct msghdr *h, int flags) {
  static ssize_t (*next)(int, struct msghdr *, int);
  if (!next) *(void **)&next = dlsym(RTLD_NEXT, "recvmsg");
  return count(next(s, h, flags));
}
