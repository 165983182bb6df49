/* The connection to the worker: messages out, answers in.
 *
 * Two locks: `sending` guards what goes out, `waiting` what comes in. Of the
 * threads that wait for an answer one reads, for all of them. */
#include "pool.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { HEADER = 16, ANSWER = 40, FLAG_ANSWER = 1, FLAG_THREADS = 2, FLAG_FD = 1, OP_ANSWER = 0, OP_DATA = 1, OP_REFUSED = 2 };
enum { FLUSH_MESSAGES = 32, FLUSH_BYTES = 16 << 10, COPY_BYTES = 16 << 10, KNOWN = 1 << 12 };

typedef struct waiter {
  uint32_t call;
  answer *a;
  bool done;
  struct waiter *next;
} waiter;

static pthread_mutex_t sending = PTHREAD_MUTEX_INITIALIZER, waiting = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static int sock = -1;
static bool dead, reading, threads, tried;
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

/* receive reads at least one byte to p. Descriptors that come along are kept in their order. */
static ssize_t receive(uint8_t *p, size_t n) {
  union {
    struct cmsghdr align;
    char room[CMSG_SPACE(8 * sizeof(int))];
  } control;
  struct iovec v = {p, n};
  struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
  ssize_t k;
  do k = recvmsg(sock, &h, MSG_CMSG_CLOEXEC);
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
      ssize_t k = direct ? receive(p, n) : receive(in, sizeof in);
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

/* read_one reads one message. It holds no lock while it reads; the caller has the role of the reader. */
static bool read_one(void) {
  uint8_t h[ANSWER];
  uint64_t size, a, b;
  int64_t status;
  uint16_t op, flags;
  uint32_t call;
  if (!read_all(h, sizeof h)) return false;
  memcpy(&size, h, 8), memcpy(&op, h + 8, 2), memcpy(&flags, h + 10, 2), memcpy(&call, h + 12, 4);
  memcpy(&status, h + 16, 8), memcpy(&a, h + 24, 8), memcpy(&b, h + 32, 8);
  if (size < ANSWER) return false;
  size_t n = size - ANSWER;
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
  if (s >= 0) setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return s;
}

/* A child has its parent's socket and must not speak on it. What the parent made is not the child's. */
static void in_child(void) {
  if (sock >= 0) close(sock);
  sock = -1, tried = false, dead = false, reading = false;
  used = tail_size = messages = in_at = in_end = fds_in = fds_out = 0;
  waiters = NULL, landings = NULL;
  memset(known, 0, sizeof known);
  pthread_mutex_init(&sending, NULL), pthread_mutex_init(&waiting, NULL), pthread_cond_init(&turn, NULL);
}

static int connect_now(void) {
  const char *address = getenv("YUNHE_POOL_ADDRESS"), *task = getenv("YUNHE_POOL_TASK"), *token = getenv("YUNHE_POOL_TOKEN");
  uint8_t key[32], hello[40], answer_[8 + 26 + 32] = "YHDATA1\n";
  if (!address || !task || !token) return CL_DEVICE_NOT_FOUND; /* the program was not started by the pool */
  if (strlen(task) != 26 || !unhex(token, key, sizeof key)) {
    say("YUNHE_POOL_TASK or YUNHE_POOL_TOKEN is not of the pool's form", "");
    return CL_DEVICE_NOT_FOUND;
  }
  static bool once;
  if (!once) pthread_atfork(NULL, NULL, in_child);
  once = true;
  if ((sock = dial(address)) < 0) {
    say("the pool node cannot be reached", address);
    return CL_DEVICE_NOT_FOUND;
  }
  first = pthread_self();
  if (!read_all(hello, sizeof hello) || memcmp(hello, "YHPOOL1\n", 8)) {
    say("there is no pool node of this version", address);
    return CL_DEVICE_NOT_FOUND;
  }
  uint8_t text[32 + 26];
  memcpy(text, hello + 8, 32), memcpy(text + 32, task, 26);
  memcpy(answer_ + 8, task, 26);
  yp_hmac(key, text, sizeof text, answer_ + 34);
  uint8_t h[ANSWER];
  uint64_t size;
  uint16_t op;
  if (!send_all(answer_, sizeof answer_, NULL, 0) || !read_all(h, sizeof h)) {
    say("the pool node ended the connection", address);
    return CL_DEVICE_NOT_FOUND;
  }
  memcpy(&size, h, 8), memcpy(&op, h + 8, 2);
  if (op == OP_REFUSED) {
    char why[256] = "";
    size_t n = size - ANSWER < sizeof why ? size - ANSWER : sizeof why - 1;
    if (size > ANSWER && read_all((uint8_t *)why, n)) say("refused", why);
    return CL_DEVICE_NOT_FOUND;
  }
  uint64_t unified;
  memcpy(&unified, h + 24, 8);
  yp_unified = unified && !strncmp(address, "unix:", 5);
  return 0;
}

int yp_connect(void) {
  static int result;
  pthread_mutex_lock(&sending);
  if (!tried) {
    result = connect_now();
    if (result && sock >= 0) close(sock), sock = -1;
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
  messages++;
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
    bool ok = read_one();
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
