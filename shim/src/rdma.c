/* RDMA, by the rsockets of librdmacm, which is loaded when a worker offers it:
 * sockets whose numbers are no descriptors. The TCP connection stays beside; it
 * ends when the worker does, or is cut off. */
#define _GNU_SOURCE
#include "path.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#ifdef OLDEST
OLDEST(dlsym);
#endif

enum { PATIENCE = 1000 }; /* milliseconds, for each step of connecting */

static struct {
  int (*socket)(int, int, int), (*connect)(int, const struct sockaddr *, socklen_t), (*poll)(struct pollfd *, nfds_t, int), (*fcntl)(int, int, ...),
      (*getsockopt)(int, int, int, void *, socklen_t *), (*close)(int);
  ssize_t (*send)(int, const void *, size_t, int), (*recv)(int, void *, size_t, int);
} verbs;
static bool there;

static void load(void) {
  const struct {
    const char *name;
    void *to;
  } all[] = {{"rsocket", &verbs.socket}, {"rconnect", &verbs.connect}, {"rpoll", &verbs.poll}, {"rfcntl", &verbs.fcntl},
             {"rgetsockopt", &verbs.getsockopt}, {"rclose", &verbs.close}, {"rsend", &verbs.send}, {"rrecv", &verbs.recv}};
  void *lib = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
  there = lib;
  for (size_t i = 0; lib && i < sizeof all / sizeof *all; i++) {
    void *f = dlsym(lib, all[i].name);
    if (!f) there = false;
    memcpy(all[i].to, &f, sizeof f);
  }
}

/* await is poll of the socket and of TCP: false if the worker has ended, or it takes longer than milliseconds, -1: as long as it takes. */
static bool await(yp_path *c, short events, int milliseconds) {
  struct pollfd p[] = {{c->rdma, events, 0}, {yp_sock(c), POLLRDHUP, 0}};
  if (p[1].fd < 0) return false;
  int k = verbs.poll(p, 2, milliseconds);
  return k < 0 ? errno == EINTR : k > 0 && (p[0].revents || !p[1].revents);
}

/* room waits a while for room to send: false if nobody reads any more. */
static bool room(yp_path *c) {
  struct pollfd p[] = {{c->rdma, POLLOUT, 0}, {yp_sock(c), POLLRDHUP, 0}};
  if (p[1].fd < 0) return false;
  int k = verbs.poll(p, 2, 20);
  if (k == 0 && c->stuck) return c->stuck(c->of);
  return k < 0 ? errno == EINTR : k == 0 || p[0].revents;
}

static bool rdma_send(yp_path *c, const uint8_t *p, size_t n, const uint8_t *q, size_t m) {
  for (int i = 0; i < 2; i++, p = q, n = m)
    while (n > 0) {
      ssize_t k = verbs.send(c->rdma, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (k > 0) p += k, n -= (size_t)k;
      else if (k == 0 || (errno != EAGAIN && errno != EINTR) || !room(c)) return false;
    }
  return true;
}

static ssize_t rdma_receive(yp_path *c, uint8_t *p, size_t n) {
  for (bool last = false;; last = !await(c, POLLIN, -1)) {
    ssize_t k = verbs.recv(c->rdma, p, n, MSG_DONTWAIT);
    if (k >= 0 || last || (errno != EAGAIN && errno != EINTR)) return k;
  }
}

static bool rdma_ready(yp_path *c) {
  struct pollfd p[] = {{c->rdma, POLLIN, 0}, {yp_sock(c), POLLRDHUP, 0}};
  return p[1].fd < 0 || verbs.poll(p, 2, 0) > 0;
}

const yp_manner yp_rdma = {rdma_send, rdma_receive, rdma_ready};

/* yp_rdma_open connects to a port of where TCP has connected to, and says the
 * token there; false: not within a second, or there is no RDMA here. */
bool yp_rdma_open(yp_path *c, uint16_t port, const uint8_t *token, size_t size) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  union {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
  } at;
  socklen_t n = sizeof at, word = sizeof(int);
  int bad = 0;
  uint8_t yes = 0;
  pthread_once(&once, load);
  if (!there || getpeername(yp_sock(c), &at.any, &n) < 0 || (at.any.sa_family != AF_INET && at.any.sa_family != AF_INET6)) return false;
  if (at.any.sa_family == AF_INET) at.four.sin_port = htons(port);
  else at.six.sin6_port = htons(port);
  c->rdma = verbs.socket(at.any.sa_family, SOCK_STREAM, 0);
  if (c->rdma < 0) return false;
  c->has_rdma = true;
  if (verbs.fcntl(c->rdma, F_SETFL, O_NONBLOCK) >= 0 && (verbs.connect(c->rdma, &at.any, n) == 0 || (errno == EINPROGRESS && await(c, POLLOUT, PATIENCE))) &&
      verbs.getsockopt(c->rdma, SOL_SOCKET, SO_ERROR, &bad, &word) == 0 && !bad && rdma_send(c, token, size, NULL, 0) && await(c, POLLIN, PATIENCE) &&
      verbs.recv(c->rdma, &yes, 1, MSG_DONTWAIT) == 1 && yes == 1)
    return true;
  yp_rdma_close(c);
  return false;
}

void yp_rdma_close(yp_path *c) {
  if (c->has_rdma) verbs.close(c->rdma);
  c->has_rdma = false;
}
