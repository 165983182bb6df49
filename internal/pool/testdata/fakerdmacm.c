/* A stand-in of librdmacm: its rsockets, played over Unix sockets with abstract
 * names that say the port. It shows that node, worker and program call
 * rsockets as they are meant to be called; of RDMA it shows nothing. Numbers of
 * rsockets are no descriptors here, either. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MARK = 1 << 24, FEW = 8 };
static struct sockaddr_in6 names[1 << 12]; /* of sockets that are bound, the longer kind */

static int fd_of(int s) {
  if (s >= MARK) return s - MARK;
  errno = EBADF;
  return -1;
}

static int marked(int fd) { return fd < 0 ? fd : fd + MARK; }

static unsigned port_of(const struct sockaddr *a) { return ntohs(a->sa_family == AF_INET ? ((const struct sockaddr_in *)(const void *)a)->sin_port : ((const struct sockaddr_in6 *)(const void *)a)->sin6_port); }

static socklen_t name(unsigned port, struct sockaddr_un *u) {
  memset(u, 0, sizeof *u);
  u->sun_family = AF_UNIX;
  const char *whose = getenv("FAKERDMACM_NAME");
  int n = snprintf(u->sun_path + 1, sizeof u->sun_path - 1, "yunhe-fakerdmacm-%.40s-%u", whose ? whose : "", port);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int rsocket(int domain, int type, int protocol) {
  (void)protocol;
  if ((domain != AF_INET && domain != AF_INET6) || type != SOCK_STREAM) return errno = EAFNOSUPPORT, -1;
  if (getenv("FAKERDMACM_NONE")) return errno = ENODEV, -1; /* the library is there, and no device */
  return marked(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

int rbind(int s, const struct sockaddr *a, socklen_t n) {
  int fd = fd_of(s);
  unsigned port = port_of(a);
  for (unsigned i = 0; fd >= 0 && i < 1000; i++) {
    struct sockaddr_un u;
    unsigned p = port ? port : 20000 + ((unsigned)getpid() * 7 + i) % 40000;
    if (bind(fd, (struct sockaddr *)&u, name(p, &u)) == 0) {
      memcpy(&names[fd], a, n);
      if (a->sa_family == AF_INET) ((struct sockaddr_in *)(void *)&names[fd])->sin_port = htons((uint16_t)p);
      else names[fd].sin6_port = htons((uint16_t)p);
      return 0;
    }
    if (errno != EADDRINUSE || port) break;
  }
  return -1;
}

int rlisten(int s, int backlog) { return listen(fd_of(s), backlog); }

int raccept(int s, struct sockaddr *a, socklen_t *n) {
  (void)a, (void)n;
  return marked(accept4(fd_of(s), NULL, NULL, SOCK_CLOEXEC));
}

int rgetsockname(int s, struct sockaddr *a, socklen_t *n) {
  int fd = fd_of(s);
  if (fd < 0) return -1;
  memcpy(a, &names[fd], *n);
  return 0;
}

int rconnect(int s, const struct sockaddr *a, socklen_t n) {
  struct sockaddr_un u;
  socklen_t size = name(port_of(a), &u);
  (void)n;
  if (getenv("FAKERDMACM_INTRUDER")) { /* another comes first, who does not know the token */
    int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(other, (struct sockaddr *)&u, size) || send(other, &u, 32, MSG_NOSIGNAL) != 32) return -1;
  }
  return connect(fd_of(s), (struct sockaddr *)&u, size);
}

ssize_t rsend(int s, const void *p, size_t n, int flags) { return send(fd_of(s), p, n, flags | MSG_NOSIGNAL); }
ssize_t rrecv(int s, void *p, size_t n, int flags) { return recv(fd_of(s), p, n, flags); }

int rpoll(struct pollfd *p, nfds_t n, int timeout) { /* descriptors that are none of its own are waited for, too */
  struct pollfd q[FEW];
  if (n > FEW) return errno = EINVAL, -1;
  memcpy(q, p, n * sizeof *p);
  for (nfds_t i = 0; i < n; i++)
    if (q[i].fd >= MARK) q[i].fd -= MARK;
  int k = poll(q, n, timeout);
  for (nfds_t i = 0; i < n; i++) p[i].revents = q[i].revents;
  return k;
}

int rfcntl(int s, int what, ...) {
  va_list more;
  va_start(more, what);
  int how = va_arg(more, int);
  va_end(more);
  return fcntl(fd_of(s), what, how);
}

int rgetsockopt(int s, int level, int what, void *value, socklen_t *n) { return getsockopt(fd_of(s), level, what, value, n); }
int rshutdown(int s, int how) { return shutdown(fd_of(s), how); }
int rclose(int s) { return close(fd_of(s)); }
