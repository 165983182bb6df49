/* Sockets: see path.h. */
#define _GNU_SOURCE
#include "path.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST_LOST = 3 };

int yp_sock(const yp_path *c) { return yp_fd(&c->sock); }

/* yp_poll is poll of the socket. One that the program has closed is ready, for who then fails to use it. */
int yp_poll(const yp_path *c, short events, int milliseconds) {
  struct pollfd p = {yp_sock(c), events, 0};
  return p.fd < 0 ? 1 : poll(&p, 1, milliseconds);
}

/* yp_again says whether what a call of the system that failed was asked for is to be
 * asked for again. One that has waited looks whether the other side can be reached: of
 * what was sent it has acknowledged nothing for some seconds, if it cannot. */
bool yp_again(const yp_path *c) {
  struct tcp_info i;
  socklen_t n = sizeof i;
  if (errno == EINTR) return true;
  if (errno != EAGAIN) return false;
  return getsockopt(yp_sock(c), IPPROTO_TCP, TCP_INFO, &i, &n) || (i.tcpi_retransmits <= MOST_LOST && i.tcpi_probes <= MOST_LOST);
}

/* Programs have pages that they get only when they touch them, by a signal (collectors of garbage do):
 * the system, which gets no signal, says EFAULT. So what is sent from there and received there is copied here. */
enum { PIECE = 4096 };

static ssize_t send_copied(yp_path *c, const uint8_t *p, size_t n) {
  uint8_t piece[PIECE];
  memcpy(piece, p, n < PIECE ? n : (n = PIECE));
  return send(yp_sock(c), piece, n, MSG_NOSIGNAL);
}

static ssize_t receive_copied(yp_path *c, struct msghdr *h) {
  uint8_t piece[PIECE];
  struct iovec to = *h->msg_iov, v = {piece, to.iov_len < PIECE ? to.iov_len : PIECE};
  h->msg_iov = &v;
  ssize_t k = recvmsg(yp_sock(c), h, MSG_CMSG_CLOEXEC);
  if (k > 0) memcpy(to.iov_base, piece, (size_t)k);
  return k;
}

static bool socket_send(yp_path *c, const uint8_t *p, size_t n, const uint8_t *q, size_t m) {
  while (n + m > 0) {
    struct iovec v[2] = {{(void *)(uintptr_t)p, n}, {(void *)(uintptr_t)q, m}};
    struct msghdr h = {.msg_iov = n ? v : v + 1, .msg_iovlen = n && m ? 2 : 1};
    int at = yp_sock(c);
    __atomic_store_n(&c->sure, at >= 0, __ATOMIC_RELAXED);
    ssize_t k = sendmsg(at, &h, MSG_NOSIGNAL);
    if (k < 0 && errno == EFAULT) k = send_copied(c, n ? p : q, n ? n : m);
    if (k < 0 && yp_again(c)) {
      if (c->stuck && !c->stuck(c->of)) return false;
      continue;
    }
    if (k <= 0) return false;
    size_t of_p = (size_t)k < n ? (size_t)k : n;
    p += of_p, n -= of_p;
    q += (size_t)k - of_p, m -= (size_t)k - of_p;
  }
  return true;
}

/* socket_receive keeps descriptors that come along in their order. */
static ssize_t socket_receive(yp_path *c, uint8_t *p, size_t n) {
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(8 * sizeof(int))];
  } control;
  struct iovec v = {p, n};
  struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
  ssize_t k;
  do {
    k = recvmsg(__atomic_exchange_n(&c->sure, false, __ATOMIC_RELAXED) ? c->sock.number : yp_sock(c), &h, MSG_CMSG_CLOEXEC);
    if (k < 0 && errno == EFAULT) k = receive_copied(c, &h);
  } while (k < 0 && yp_again(c));
  if (k > 0 && h.msg_flags & MSG_CTRUNC) c->fds[c->fds_in++ % YP_FDS] = -1; /* the program has as many descriptors as it may */
  for (struct cmsghdr *m = k > 0 ? CMSG_FIRSTHDR(&h) : NULL; m; m = CMSG_NXTHDR(&h, m))
    if (m->cmsg_level == SOL_SOCKET && m->cmsg_type == SCM_RIGHTS) {
      int got[8];
      size_t n_got = (m->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      memcpy(got, CMSG_DATA(m), n_got * sizeof(int));
      for (size_t i = 0; i < n_got; i++) c->fds[c->fds_in++ % YP_FDS] = got[i];
    }
  return k;
}

static bool socket_ready(yp_path *c) {
  uint8_t one;
  return recv(yp_sock(c), &one, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || (errno != EAGAIN && errno != EINTR);
}

const yp_manner yp_socket = {socket_send, socket_receive, socket_ready};

/* yp_descriptor: over the socket a descriptor comes with the message; else before what says that it came. */
int yp_descriptor(yp_path *c) {
  uint8_t drop[64];
  while (c->fds_out == c->fds_in)
    if (c->in == &yp_socket || socket_receive(c, drop, sizeof drop) <= 0) return -1;
  return c->fds[c->fds_out++ % YP_FDS];
}

/* The program's signals may come while it connects. */
static bool connected(int s, const struct sockaddr *to, socklen_t n) {
  struct pollfd p = {.fd = s, .events = POLLOUT};
  int bad = 0;
  socklen_t size = sizeof bad;
  if (!connect(s, to, n)) return true;
  if (errno != EINTR) return false;
  while (poll(&p, 1, -1) < 0 && errno == EINTR) {}
  return !getsockopt(s, SOL_SOCKET, SO_ERROR, &bad, &size) && !bad;
}

static int dial(const char *address) {
  if (!strncmp(address, "unix:", 5)) {
    struct sockaddr_un u = {.sun_family = AF_UNIX};
    if (strlen(address + 5) >= sizeof u.sun_path) return -1;
    strcpy(u.sun_path, address + 5);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s >= 0 && !connected(s, (struct sockaddr *)&u, sizeof u)) close(s), s = -1;
    return s;
  }
  char host[256];
  const char *a = !strncmp(address, "tcp:", 4) || !strncmp(address, "tls:", 4) ? address + 4 : !strncmp(address, "rdma:", 5) ? address + 5 : address, *port = strrchr(a, ':');
  if (!port || (size_t)(port - a) >= sizeof host) return -1;
  size_t n = (size_t)(port - a);
  if (n > 2 && a[0] == '[') a++, n -= 2;
  memcpy(host, a, n), host[n] = 0;
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all, *i;
  if (getaddrinfo(host, port + 1, &hints, &all)) return -1;
  const struct timeval some = {4, 0}, a_while = {1, 0};
  int s = -1, on = 1;
  for (i = all; i && s < 0; i = i->ai_next) {
    s = socket(i->ai_family, i->ai_socktype | SOCK_CLOEXEC, i->ai_protocol);
    if (s >= 0) setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &some, sizeof some), setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &a_while, sizeof a_while);
    if (s >= 0 && !connected(s, i->ai_addr, i->ai_addrlen)) close(s), s = -1;
  }
  freeaddrinfo(all);
  if (s >= 0) { /* a node that is cut off is missed after 4 s, also by who only waits */
    const int times = 3;
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(s, IPPROTO_TCP, TCP_KEEPIDLE, &on, sizeof on);
    setsockopt(s, IPPROTO_TCP, TCP_KEEPINTVL, &on, sizeof on);
    setsockopt(s, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
  }
  return s;
}

yp_path *yp_dial(const char *address) {
  yp_own s = yp_own_of(dial(address));
  const struct timeval a_while = {0, 20000};
  yp_path *c = s.number < 0 ? NULL : calloc(1, sizeof *c);
  if (s.number >= 0) setsockopt(s.number, SOL_SOCKET, SO_SNDTIMEO, &a_while, sizeof a_while);
  if (c) c->sock = s, c->out = c->in = &yp_socket;
  else yp_close(&s);
  return c;
}

void yp_hang_up(yp_path *c) {
  if (!c) return;
  for (; c->fds_out != c->fds_in; c->fds_out++)
    if (c->fds[c->fds_out % YP_FDS] >= 0) close(c->fds[c->fds_out % YP_FDS]);
  yp_ring_close(c);
  yp_rdma_close(c);
  yp_tls_close(c);
  yp_close(&c->sock);
  free(c);
}
