/* The connection to the worker: messages out, answers in.
 *
 * Two locks: `sending` guards what goes out, `waiting` what comes in. Of the
 * threads that wait for an answer one reads, for all of them.
 *
 * When the program is moved to another node, the worker says where. Calls still
 * arrive there over the old connection; whoever has the lock next connects to
 * the new place and says how many messages went the old way. Answers come the
 * old way until it says that it ends. If the new place cannot be reached, all
 * goes on over the old connection. */
#include "pool.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { HEADER = 16, ANSWER = 40, FLAG_ANSWER = 1, FLAG_THREADS = 2, FLAG_FD = 1, OP_ANSWER = 0, OP_DATA = 1, OP_REFUSED = 2, OP_MOVED = 3, OP_END = 4, OP_PRINTED = 5 };
enum { FLUSH_MESSAGES = 32, FLUSH_BYTES = 16 << 10, COPY_BYTES = 16 << 10, KNOWN = 1 << 12 };

typedef struct waiter {
  uint32_t call;
  answer *a;
  bool done;
  struct waiter *next;
} waiter;

static pthread_mutex_t sending = PTHREAD_MUTEX_INITIALIZER, waiting = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static int sock = -1, source = -1; /* out and in: two connections for a moment when the program is moved */
static bool dead, reading, threads, tried;
static char at[512]; /* the node's address */
static uint64_t sent, heard; /* messages */
static struct {
  char to[sizeof at];
  uint64_t session[2];
  int set; /* 0, or one of the following */
} move;
enum { FOLLOW = 1, FOLLOWED, STAYS }; /* STAYS: the new place cannot be reached */
enum { QUIET = 50 };                  /* milliseconds */
static int64_t called;
yp_gate *yp_shared_gate;
static pthread_t first;
bool yp_user_events, yp_unified;

static uint8_t *out;
static size_t used, room, start, proof, messages;
static const uint8_t *tail;
static size_t tail_size;
static uint32_t calls;
static uint64_t known[KNOWN];

static uint8_t in[1 << 16];
static size_t in_at, in_end;
static int fds[64];
static unsigned fds_in, fds_out;
static waiter *waiters;
static landing *landings;

static void lost(void) { dead = true; }

static bool send_all(const uint8_t *p, size_t n, const uint8_t *q, size_t m) {
  while (n + m > 0) {
    struct iovec v[2] = {{(void *)(uintptr_t)p, n}, {(void *)(uintptr_t)q, m}};
    struct msghdr h = {.msg_iov = n ? v : v + 1, .msg_iovlen = n && m ? 2 : 1};
    ssize_t k = sendmsg(sock, &h, MSG_NOSIGNAL);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return false;
    size_t of_p = (size_t)k < n ? (size_t)k : n;
    p += of_p, n -= of_p;
    q += (size_t)k - of_p, m -= (size_t)k - of_p;
  }
  return true;
}

static void flush_out(void) {
  if (!dead && used + tail_size > 0 && !send_all(out, used, tail, tail_size)) lost();
  used = tail_size = messages = 0;
}

/* receive reads at least one byte to p from a socket. Descriptors that come along are kept in their order. */
static ssize_t receive(int from, uint8_t *p, size_t n) {
  union {
    struct cmsghdr align;
    char room[CMSG_SPACE(8 * sizeof(int))];
  } control;
  struct iovec v = {p, n};
  struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
  ssize_t k;
  do k = recvmsg(from, &h, MSG_CMSG_CLOEXEC);
  while (k < 0 && errno == EINTR);
  for (struct cmsghdr *c = k > 0 ? CMSG_FIRSTHDR(&h) : NULL; c; c = CMSG_NXTHDR(&h, c))
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
      int got[8];
      size_t n_got = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      memcpy(got, CMSG_DATA(c), n_got * sizeof(int));
      for (size_t i = 0; i < n_got; i++) fds[fds_in++ % 64] = got[i];
    }
  return k;
}

static bool read_all(uint8_t *p, size_t n) {
  while (n > 0) {
    if (in_at == in_end) {
      bool direct = n >= sizeof in;
      ssize_t k = direct ? receive(source, p, n) : receive(source, in, sizeof in);
      if (k <= 0) return false;
      if (direct) {
        p += k, n -= (size_t)k;
        continue;
      }
      in_at = 0, in_end = (size_t)k;
    }
    size_t k = in_end - in_at < n ? in_end - in_at : n;
    memcpy(p, in + in_at, k);
    p += k, n -= k, in_at += k;
  }
  return true;
}

static bool land(const landing *l, size_t n) {
  if (n != l->row * l->rows * l->slices) return false;
  for (size_t z = 0; z < l->slices; z++) {
    if (l->row_pitch == l->row || l->rows == 1) {
      if (!read_all(l->to + z * l->slice_pitch, l->row * l->rows)) return false;
      continue;
    }
    for (size_t y = 0; y < l->rows; y++)
      if (!read_all(l->to + z * l->slice_pitch + y * l->row_pitch, l->row)) return false;
  }
  return true;
}

static bool skip(size_t n) {
  uint8_t drop[4096];
  for (size_t k; n > 0; n -= k)
    if (!read_all(drop, k = n < sizeof drop ? n : sizeof drop)) return false;
  return true;
}

static void follow(void);

/* moved remembers where the program is, n bytes of text. */
static bool moved(size_t n, uint64_t a, uint64_t b) {
  if (n >= sizeof move.to) return false;
  char to[sizeof move.to];
  if (!read_all((uint8_t *)to, n)) return false;
  to[n] = 0;
  if (__atomic_load_n(&move.set, __ATOMIC_ACQUIRE)) return false; /* the worker waits until the program has followed */
  memcpy(move.to, n ? to : at, n ? n + 1 : sizeof at);
  move.session[0] = a, move.session[1] = b;
  __atomic_store_n(&move.set, FOLLOW, __ATOMIC_RELEASE);
  if (!pthread_mutex_trylock(&sending)) { /* else who has it follows, or who has it next */
    follow();
    pthread_mutex_unlock(&sending);
  }
  return true;
}

/* print writes what kernels have printed, as drivers do: not through the program's own buffer. */
static bool print(size_t n) {
  uint8_t text[4096];
  while (n > 0) {
    size_t k = n < sizeof text ? n : sizeof text;
    if (!read_all(text, k)) return false;
    n -= k;
    for (size_t at = 0; at < k;) {
      ssize_t w = write(STDOUT_FILENO, text + at, k - at);
      if (w < 0 && errno != EINTR) break; /* nobody reads it */
      if (w > 0) at += (size_t)w;
    }
  }
  return true;
}

/* change reads from the new connection from here on. Who follows just now has done so in a moment. */
static bool change(void) {
  while (__atomic_load_n(&move.set, __ATOMIC_ACQUIRE) == FOLLOW) sched_yield();
  if (move.set != FOLLOWED) return false;
  close(source);
  source = sock;
  in_at = in_end = 0;
  __atomic_store_n(&move.set, 0, __ATOMIC_RELEASE);
  return true;
}

/* broken reads from the new connection if all has come that was sent over the old one, which is broken. */
static bool broken(bool locked) {
  uint64_t all;
  uint8_t h[ANSWER];
  if (!locked) pthread_mutex_lock(&sending);
  if (move.set == FOLLOW) follow();
  if (!locked) pthread_mutex_unlock(&sending);
  if (!change() || !read_all(h, sizeof h)) return false;
  memcpy(&all, h + 32, 8);
  return heard == all;
}

/* read_one reads one message. The caller has the role of the reader, and `sending` if it says so. */
static bool read_one(bool locked) {
  uint8_t h[ANSWER];
  uint64_t size, a, b;
  int64_t status;
  uint16_t op, flags;
  uint32_t call;
  if (in_at == in_end) { /* between two messages */
    ssize_t k = receive(source, in, sizeof in);
    if (k <= 0) return broken(locked);
    in_at = 0, in_end = (size_t)k;
  }
  if (!read_all(h, sizeof h)) return false;
  memcpy(&size, h, 8), memcpy(&op, h + 8, 2), memcpy(&flags, h + 10, 2), memcpy(&call, h + 12, 4);
  memcpy(&status, h + 16, 8), memcpy(&a, h + 24, 8), memcpy(&b, h + 32, 8);
  if (size < ANSWER) return false;
  size_t n = size - ANSWER;
  if (op == OP_END) return change() && read_all(h, sizeof h); /* the worker's first on the new connection */
  heard++;
  if (op == OP_MOVED) return moved(n, a, b);
  if (op == OP_PRINTED) return print(n);
  if (op == OP_DATA) {
    pthread_mutex_lock(&waiting);
    landing **at = &landings, *l;
    while (*at && (*at)->id != a) at = &(*at)->next;
    if ((l = *at)) *at = l->next;
    pthread_mutex_unlock(&waiting);
    bool ok = l && (n == 0 || land(l, n));
    free(l);
    return ok;
  }
  pthread_mutex_lock(&waiting);
  waiter **at = &waiters, *w;
  while (*at && (*at)->call != call) at = &(*at)->next;
  if ((w = *at)) *at = w->next;
  pthread_mutex_unlock(&waiting);
  if (op != OP_ANSWER || !w) return false;
  w->a->status = (cl_int)status, w->a->a = a, w->a->b = b;
  if (flags & FLAG_FD) {
    if (fds_out == fds_in) return false;
    w->a->fd = fds[fds_out++ % 64];
  }
  bool ok = true;
  if (n > 0 && w->a->land) {
    ok = land(w->a->land, n);
  } else if (n > 0) {
    w->a->data = malloc(n + 1);
    ok = w->a->data ? read_all(w->a->data, n) : skip(n);
    if (w->a->data) w->a->data[n] = 0, w->a->size = n;
  }
  pthread_mutex_lock(&waiting);
  w->done = true;
  pthread_mutex_unlock(&waiting);
  return ok;
}

static void say(const char *what, const char *more) { fprintf(stderr, "yunhe pool: %s%s%s\n", what, *more ? ": " : "", more); }

static bool unhex(const char *s, uint8_t *p, size_t n) {
  for (size_t i = 0; i < n; i++) {
    unsigned v;
    if (!s[2 * i] || sscanf(s + 2 * i, "%2x", &v) != 1) return false;
    p[i] = (uint8_t)v;
  }
  return s[2 * n] == 0;
}

static int dial(const char *address) {
  if (!strncmp(address, "unix:", 5)) {
    struct sockaddr_un u = {.sun_family = AF_UNIX};
    if (strlen(address + 5) >= sizeof u.sun_path) return -1;
    strcpy(u.sun_path, address + 5);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s >= 0 && connect(s, (struct sockaddr *)&u, sizeof u) < 0) close(s), s = -1;
    return s;
  }
  char host[256];
  const char *a = !strncmp(address, "tcp:", 4) ? address + 4 : address, *port = strrchr(a, ':');
  if (!port || (size_t)(port - a) >= sizeof host) return -1;
  size_t n = (size_t)(port - a);
  if (n > 2 && a[0] == '[') a++, n -= 2;
  memcpy(host, a, n), host[n] = 0;
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all, *i;
  if (getaddrinfo(host, port + 1, &hints, &all)) return -1;
  int s = -1, on = 1;
  for (i = all; i && s < 0; i = i->ai_next) {
    s = socket(i->ai_family, i->ai_socktype | SOCK_CLOEXEC, i->ai_protocol);
    if (s >= 0 && connect(s, i->ai_addr, i->ai_addrlen) < 0) close(s), s = -1;
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

/* A child has its parent's socket and must not speak on it. What the parent made is not the child's. */
static void in_child(void) {
  if (sock >= 0) close(sock);
  if (source >= 0 && source != sock) close(source);
  sock = source = -1, sent = heard = 0, move.set = 0, yp_shared_gate = NULL;
  tried = false, dead = false, reading = false;
  used = tail_size = messages = in_at = in_end = fds_in = fds_out = 0;
  waiters = NULL, landings = NULL;
  memset(known, 0, sizeof known);
  pthread_mutex_init(&sending, NULL), pthread_mutex_init(&waiting, NULL), pthread_cond_init(&turn, NULL);
}

enum { GREETING = 8, CHALLENGE = 32, TASK = 26, MAC = 32, MORE = 24 };

/* greet connects to a node, proves to be of the task, and returns the socket or
 * -1. more bytes beside the task's ID say which program of it this is. The
 * node's answer is in h; what it says in text, which has room for n. */
static int greet(const char *address, const char *greeting, const uint8_t *more, size_t more_size, uint8_t h[ANSWER], char *text, size_t n, const char **why) {
  const char *task = getenv("YUNHE_POOL_TASK"), *token = getenv("YUNHE_POOL_TOKEN");
  uint8_t key[32], hello[GREETING + CHALLENGE], proof_[CHALLENGE + TASK + MORE], out_[GREETING + TASK + MORE + MAC];
  *why = "YUNHE_POOL_TASK or YUNHE_POOL_TOKEN is not of the pool's form";
  if (!task || !token || strlen(task) != TASK || !unhex(token, key, sizeof key)) return -1;
  *why = "the pool node cannot be reached";
  int s = dial(address);
  if (s < 0) return -1;
  *why = "there is no pool node of this version";
  uint64_t size = 0;
  uint16_t op = OP_REFUSED;
  if (recv(s, hello, sizeof hello, MSG_WAITALL) != sizeof hello || memcmp(hello, "YHPOOL1\n", GREETING)) goto bad;
  memcpy(proof_, hello + GREETING, CHALLENGE), memcpy(proof_ + CHALLENGE, task, TASK);
  if (more_size) memcpy(proof_ + CHALLENGE + TASK, more, more_size);
  memcpy(out_, greeting, GREETING), memcpy(out_ + GREETING, proof_ + CHALLENGE, TASK + more_size);
  yp_hmac(key, proof_, CHALLENGE + TASK + more_size, out_ + GREETING + TASK + more_size);
  size_t all = GREETING + TASK + more_size + MAC;
  *why = "the pool node ended the connection";
  if (send(s, out_, all, MSG_NOSIGNAL) != (ssize_t)all) goto bad;
  for (size_t got = 0; got < ANSWER;) { /* a descriptor may come along */
    ssize_t k = receive(s, h + got, ANSWER - got);
    if (k <= 0) goto bad;
    got += (size_t)k;
  }
  memcpy(&size, h, 8), memcpy(&op, h + 8, 2);
  if (op == OP_ANSWER) return s;
  size = size > ANSWER && size - ANSWER < n ? size - ANSWER : 0;
  if (size && recv(s, text, size, MSG_WAITALL) != (ssize_t)size) goto bad;
  text[size] = 0;
  *why = op == OP_MOVED ? "moved" : "refused";
bad:
  close(s);
  return -1;
}

/* follow connects to where the program was moved. The caller has `sending`. */
static void follow(void) {
  uint8_t more[MORE], h[ANSWER];
  char text[256];
  const char *why;
  flush_out();
  memcpy(more, move.session, 16), memcpy(more + 16, &sent, 8);
  int s = greet(move.to, "YHBACK1\n", more, sizeof more, h, text, sizeof text, &why);
  if (s >= 0) {
    sock = s;
    memcpy(at, move.to, sizeof at);
    yp_unified = false; /* what is made from here on is not shared */
  }
  __atomic_store_n(&move.set, s < 0 ? STAYS : FOLLOWED, __ATOMIC_RELEASE);
}

/* look reads what may have come while the program called nothing, so that it
 * does not send to where nobody is any more. The caller has `sending`. */
static void look(void) {
  uint8_t one;
  pthread_mutex_lock(&waiting);
  bool mine = !reading && !dead && in_at == in_end && (recv(source, &one, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || (errno != EAGAIN && errno != EINTR));
  if (mine) reading = true;
  pthread_mutex_unlock(&waiting);
  if (!mine) return;
  bool ok = read_one(true);
  pthread_mutex_lock(&waiting);
  reading = false;
  if (!ok) lost();
  pthread_cond_broadcast(&turn);
  pthread_mutex_unlock(&waiting);
}

static int connect_now(void) {
  const char *address = getenv("YUNHE_POOL_ADDRESS"), *why;
  uint8_t h[ANSWER];
  char text[sizeof at];
  if (!address || strlen(address) >= sizeof at || !getenv("YUNHE_POOL_TASK") || !getenv("YUNHE_POOL_TOKEN")) return CL_DEVICE_NOT_FOUND; /* the program was not started by the pool */
  strcpy(at, address);
  static bool once;
  if (!once) pthread_atfork(NULL, NULL, in_child);
  once = true;
  first = pthread_self();
  for (int times = 0; times < 8; times++) {
    sock = source = greet(at, "YHDATA1\n", NULL, 0, h, text, sizeof text, &why);
    if (sock >= 0 || strcmp(why, "moved")) break;
    if (*text) strcpy(at, text);
  }
  if (sock < 0) {
    say(why, !strcmp(why, "refused") ? text : at);
    return CL_DEVICE_NOT_FOUND;
  }
  heard = 1;
  uint64_t unified;
  uint16_t flags;
  memcpy(&unified, h + 24, 8), memcpy(&flags, h + 10, 2);
  if (flags & FLAG_FD && fds_out != fds_in) {
    int fd = fds[fds_out++ % 64];
    void *p = mmap(NULL, sizeof(yp_gate), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p != MAP_FAILED) yp_shared_gate = p;
  }
  yp_unified = unified && yp_shared_gate && !strncmp(at, "unix:", 5);
  return 0;
}

bool yp_shared_enter(void) {
  if (!yp_shared_gate) return false;
  __atomic_add_fetch(&yp_shared_gate->inside, 1, __ATOMIC_SEQ_CST);
  if (!__atomic_load_n(&yp_shared_gate->closed, __ATOMIC_SEQ_CST)) return true;
  yp_shared_leave();
  return false;
}

void yp_shared_leave(void) { __atomic_sub_fetch(&yp_shared_gate->inside, 1, __ATOMIC_SEQ_CST); }

int yp_connect(void) {
  static int result;
  pthread_mutex_lock(&sending);
  if (!tried) {
    result = connect_now();
    tried = true;
    dead = sock < 0;
  }
  pthread_mutex_unlock(&sending);
  return result;
}

static uint8_t *grow(size_t n) {
  if (used + n > room) {
    size_t want = (used + n) * 2 + 4096;
    uint8_t *p = realloc(out, want);
    if (!p) abort(); /* a message cannot be half sent */
    out = p, room = want;
  }
  used += n;
  return out + used - n;
}

bool yp_begin(int op) {
  pthread_mutex_lock(&sending);
  if (!threads && !pthread_equal(first, pthread_self())) threads = true;
  if (used > FLUSH_BYTES) flush_out();
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  int64_t now = t.tv_sec * 1000 + t.tv_nsec / 1000000;
  if (now - called > QUIET && source >= 0) look();
  called = now;
  if (__atomic_load_n(&move.set, __ATOMIC_ACQUIRE) == FOLLOW) follow();
  start = used;
  uint64_t h[2] = {0, (uint64_t)op | (uint64_t)(threads ? FLAG_THREADS : 0) << 16};
  memcpy(grow(HEADER), h, HEADER);
  proof = 0;
  return !dead;
}

void yp_word(uint64_t w) { memcpy(grow(8), &w, 8); }

void yp_size3(const size_t *v) {
  for (int i = 0; i < 3; i++) yp_word(v[i]);
}

void yp_osize3(const size_t *v, cl_uint n) {
  yp_word(v != NULL);
  for (cl_uint i = 0; i < 3; i++) yp_word(v && i < n ? v[i] : 0);
}

static void pad(void) {
  while (used % 8) *grow(1) = 0;
}

void yp_bytes(const void *p, size_t n) {
  yp_word(n);
  if (n) memcpy(grow(n), p, n);
  pad();
}

/* yp_rows adds the data of a write, which ends its message: rows packed, or sent from where they are. */
void yp_rows(const uint8_t *p, size_t row, size_t rows, size_t slices, size_t row_pitch, size_t slice_pitch) {
  yp_word(row * rows * slices);
  if (slices == 1 && (rows == 1 || row_pitch == row) && row * rows > COPY_BYTES) {
    tail = p, tail_size = row * rows;
    return;
  }
  for (size_t z = 0; z < slices; z++)
    for (size_t y = 0; y < rows; y++) memcpy(grow(row), p + z * slice_pitch + y * row_pitch, row);
  pad();
}

void yp_waits(cl_uint n, const cl_event *events) {
  yp_word(n);
  for (cl_uint i = 0; i < n; i++) yp_word(obj(events[i])->id);
}

void yp_proof(void) { proof = used; }

static void close_message(uint32_t call, uint16_t flags) {
  uint64_t size = used - start + tail_size;
  uint16_t f;
  memcpy(out + start, &size, 8);
  memcpy(&f, out + start + 10, 2);
  f |= flags;
  memcpy(out + start + 10, &f, 2);
  memcpy(out + start + 12, &call, 4);
  messages++, sent++;
}

cl_int yp_sync(answer *a) {
  answer own = {.land = NULL};
  if (!a) a = &own;
  waiter w = {.a = a};
  a->status = CL_OUT_OF_RESOURCES, a->data = NULL, a->size = 0, a->fd = -1;
  w.call = ++calls;
  close_message(w.call, FLAG_ANSWER);
  pthread_mutex_lock(&waiting);
  w.next = waiters, waiters = &w;
  pthread_mutex_unlock(&waiting);
  flush_out();
  pthread_mutex_unlock(&sending);

  pthread_mutex_lock(&waiting);
  while (!w.done && !dead) {
    if (reading) {
      pthread_cond_wait(&turn, &waiting);
      continue;
    }
    reading = true;
    pthread_mutex_unlock(&waiting);
    bool ok = read_one(false);
    pthread_mutex_lock(&waiting);
    reading = false;
    if (!ok) {
      if (!dead) say("the worker is gone: the calls that follow fail", "");
      lost();
    }
    pthread_cond_broadcast(&turn);
  }
  if (!w.done) {
    for (waiter **at = &waiters; *at; at = &(*at)->next)
      if (*at == &w) {
        *at = w.next;
        break;
      }
    a->status = CL_OUT_OF_RESOURCES;
  }
  pthread_mutex_unlock(&waiting);
  if (a == &own) free(own.data);
  return a->status;
}

void yp_post(bool flush) {
  close_message(0, 0);
  if (flush || tail_size || messages >= FLUSH_MESSAGES || used >= FLUSH_BYTES) flush_out();
  pthread_mutex_unlock(&sending);
}

static uint64_t hash(const uint8_t *p, size_t n) {
  uint64_t h = 0x9e3779b97f4a7c15u ^ n;
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t w;
    memcpy(&w, p, 8);
    h = (h ^ w) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
  }
  return h | 1;
}

cl_int yp_end(void) {
  uint64_t h = hash(out + start + 8, 8) * 31 ^ hash(out + start + HEADER, (proof ? proof : used) - start - HEADER);
  bool post = __atomic_load_n(&known[h % KNOWN], __ATOMIC_RELAXED) == h && !dead;
  if (post) {
    yp_post(false);
    return CL_SUCCESS;
  }
  cl_int status = yp_sync(NULL);
  if (status == CL_SUCCESS) __atomic_store_n(&known[h % KNOWN], h, __ATOMIC_RELAXED);
  return status;
}

void yp_land_later(const landing *l) {
  landing *keep = malloc(sizeof *keep);
  if (!keep) {
    lost();
    return;
  }
  *keep = *l;
  pthread_mutex_lock(&waiting);
  keep->next = landings, landings = keep;
  pthread_mutex_unlock(&waiting);
}

cl_int yp_status(int op, uint64_t a, uint64_t b) {
  yp_begin(op);
  yp_word(a);
  yp_word(b);
  return yp_sync(NULL);
}
