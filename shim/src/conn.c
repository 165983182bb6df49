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
#include "given.h"
#include "ops.h"
#include "own.h"
#include "path.h"
#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEADER = 16, ANSWER = 40, FLAG_ANSWER = 1, FLAG_THREADS = 2, FLAG_FD = 1, FLAG_RING = 2, FLAG_RDMA = 4, FLAG_MAPS = 8, FLAG_LATER = 16, FLAG_LANES = 32, FLAG_POSTS = 64, OP_ANSWER = 0, OP_DATA = 1, OP_REFUSED = 2, OP_MOVED = 3, OP_END = 4, OP_PRINTED = 5, OP_ENCRYPT = 6 };
enum { PATH_STAY, PATH_USE, PATH_RDMA = 3, PATH_RING = 5 };
enum { FLUSH_MESSAGES = 32, FLUSH_BYTES = 16 << 10, COPY_BYTES = 16 << 10, MOST_KEPT = 4 << 20, KNOWN = 1 << 11, WAYS = 8 };

typedef struct waiter {
  uint32_t call;
  answer *a;
  bool done;
  const yp_manner *after; /* how what follows the answer comes; NULL: as before */
  struct waiter *next;
} waiter;

enum { FOLLOW = 1, FOLLOWED, STAYS }; /* of move.set; STAYS: the new place cannot be reached */
enum { QUIET = 50 };                  /* milliseconds */
enum { GREETS = 10 };                 /* seconds in which a pool node says who it is */

struct yp_node {
  pthread_mutex_t sending, waiting;
  pthread_cond_t turn;
  yp_path *to, *from; /* out and in: two for a moment when the program is moved */
  bool dead, reading, threads, tried;
  bool stuck; /* who reads has to send first */
  int result;       /* of connecting */
  char at[512];     /* the node's address */
  uint64_t sent, heard; /* messages */
  struct {
    char to[512];
    uint64_t session[2];
    int set; /* 0, or what is said above */
  } move;
  uint16_t offered; /* better paths that the worker has, of which it was not asked for one yet */
  int64_t called;
  yp_gate *gate;
  pthread_t first;
  bool user_events, unified;
  int queues; /* that the program has */
  uint16_t flags; /* what calls the worker knows that came later, and what else it said first */

  uint8_t *out;
  size_t used, room, start, proof, messages;
  uint64_t like; /* of the message: what stands for what comes after the proof; 0: nothing */
  const uint8_t *tail;
  size_t tail_size;
  uint32_t calls, asking; /* those whose answers tell what is promised */
  size_t promised; /* bytes of buffers that are made without waiting */
  uint64_t known[KNOWN][WAYS], era; /* counts the processes that this one is a child of: what is known there is not here */

  uint8_t in[1 << 16];
  size_t in_at, in_end;
  waiter *waiters;
  landing *landings;
};

static yp_node nodes[YP_NODES];
static _Thread_local yp_node *now; /* whose message this thread builds */

static _Thread_local struct {
  int depth, before;
} stays;
void yp_stay(void) {
  if (!stays.depth++) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &stays.before);
}
void yp_go(void) {
  if (!--stays.depth) pthread_setcancelstate(stays.before, NULL);
}

static void say(const char *what, const char *more) { fprintf(stderr, "yunhe pool: %s%s%s\n", what, *more ? ": " : "", more); }

/* lost says so only who was not started by what holds the slice, and says why; and what the
 * program itself has done to the path that was used. */
static void lost(yp_node *c, const yp_path *used) {
  bool closed = used && yp_sock(used) < 0;
  if (!c->dead && closed) say("the program has closed the connection to its node, which was not its to close: the calls that follow fail", "");
  else if (yp_by_file() && !c->dead) say("the slice has ended, or its node cannot be reached any more", "");
  c->dead = true;
}

static void flush_out(yp_node *c) {
  if (!c->dead && c->to && c->used + c->tail_size > 0 && !c->to->out->send(c->to, c->out, c->used, c->tail, c->tail_size)) {
    lost(c, c->to);
    shutdown(yp_sock(c->to), SHUT_RDWR); /* who reads comes to an end, too; the path that it reads from may be gone */
  }
  c->used = c->tail_size = c->messages = 0;
  if (c->room > MOST_KEPT) free(c->out), c->out = NULL, c->room = 0;
}

static bool read_all(yp_node *c, uint8_t *p, size_t n) {
  while (n > 0) {
    if (c->in_at == c->in_end) {
      bool direct = n >= sizeof c->in;
      ssize_t k = c->from->in->receive(c->from, direct ? p : c->in, direct ? n : sizeof c->in);
      if (k <= 0) return false;
      if (direct) {
        p += k, n -= (size_t)k;
        continue;
      }
      c->in_at = 0, c->in_end = (size_t)k;
    }
    size_t k = c->in_end - c->in_at < n ? c->in_end - c->in_at : n;
    memcpy(p, c->in + c->in_at, k);
    p += k, n -= k, c->in_at += k;
  }
  return true;
}

static bool land(yp_node *c, const landing *l, size_t n) {
  if (n != l->row * l->rows * l->slices) return false;
  for (size_t z = 0; z < l->slices; z++) {
    if (l->row_pitch == l->row || l->rows == 1) {
      if (!read_all(c, l->to + z * l->slice_pitch, l->row * l->rows)) return false;
      continue;
    }
    for (size_t y = 0; y < l->rows; y++)
      if (!read_all(c, l->to + z * l->slice_pitch + y * l->row_pitch, l->row)) return false;
  }
  return true;
}

static bool skip(yp_node *c, size_t n) {
  uint8_t drop[4096];
  for (size_t k; n > 0; n -= k)
    if (!read_all(c, drop, k = n < sizeof drop ? n : sizeof drop)) return false;
  return true;
}

static void follow(yp_node *c);
static bool meanwhile(void *of);

/* follows has who has `sending` follow, who must ask for it when it has sent. */
static void follows(yp_node *c) {
  if (__atomic_load_n(&c->move.set, __ATOMIC_SEQ_CST) != FOLLOW || pthread_mutex_trylock(&c->sending)) return;
  if (c->move.set == FOLLOW) follow(c);
  pthread_mutex_unlock(&c->sending);
}

/* moved remembers where the program is, n bytes of text. */
static bool moved(yp_node *c, size_t n, uint64_t a, uint64_t b) {
  if (n >= sizeof c->move.to) return false;
  char to[sizeof c->move.to];
  if (!read_all(c, (uint8_t *)to, n)) return false;
  to[n] = 0;
  if (__atomic_load_n(&c->move.set, __ATOMIC_ACQUIRE)) return false; /* the worker waits until the program has followed */
  memcpy(c->move.to, n ? to : c->at, n ? n + 1 : sizeof c->at);
  c->move.session[0] = a, c->move.session[1] = b;
  __atomic_store_n(&c->move.set, FOLLOW, __ATOMIC_SEQ_CST);
  follows(c);
  return true;
}

/* print writes what kernels have printed, as drivers do: not through the program's own buffer. */
static bool print(yp_node *c, size_t n) {
  uint8_t text[4096];
  while (n > 0) {
    size_t k = n < sizeof text ? n : sizeof text;
    if (!read_all(c, text, k)) return false;
    n -= k;
    for (size_t done = 0; done < k;) {
      ssize_t w = write(STDOUT_FILENO, text + done, k - done);
      if (w < 0 && errno != EINTR) break; /* nobody reads it */
      if (w > 0) done += (size_t)w;
    }
  }
  return true;
}

/* change reads from the new connection from here on. Who follows just now has done so in a moment. */
static bool change(yp_node *c) {
  while (__atomic_load_n(&c->move.set, __ATOMIC_ACQUIRE) == FOLLOW) sched_yield();
  if (c->move.set != FOLLOWED) return false;
  yp_hang_up(c->from);
  c->from = c->to;
  c->in_at = c->in_end = 0;
  __atomic_store_n(&c->move.set, 0, __ATOMIC_RELEASE);
  return true;
}

/* chosen is the best of the paths that a worker offers: RDMA is for who comes by an address of it. */
static uint16_t chosen(const yp_node *c, uint16_t offered) {
  const char *wanted = yp_setting("YUNHE_POOL_TRANSPORT");
  if (offered & FLAG_RING && (!wanted || !*wanted || !strcmp(wanted, "ring"))) return FLAG_RING;
  if (offered & FLAG_RDMA && !strncmp(c->at, "rdma:", 5) && (!wanted || !*wanted || !strcmp(wanted, "rdma"))) return FLAG_RDMA;
  return 0;
}

/* first reads the worker's first message on a new connection. */
static bool first(yp_node *c, uint8_t h[ANSWER]) {
  uint16_t flags;
  if (!read_all(c, h, ANSWER)) return false;
  memcpy(&flags, h + 10, 2);
  __atomic_store_n(&c->flags, flags, __ATOMIC_RELAXED);
  __atomic_store_n(&c->offered, chosen(c, flags) | (flags & FLAG_MAPS), __ATOMIC_RELEASE);
  return true;
}

/* broken reads from the new connection if all has come that was sent over the old one, which is broken. */
static bool broken(yp_node *c, bool locked) {
  uint64_t all;
  uint8_t h[ANSWER];
  if (!locked) pthread_mutex_lock(&c->sending);
  if (c->move.set == FOLLOW) follow(c);
  if (!locked) pthread_mutex_unlock(&c->sending);
  if (!change(c) || !first(c, h)) return false;
  memcpy(&all, h + 32, 8);
  return c->heard == all;
}

static landing *landing_of(yp_node *c, uint64_t id) {
  landing *l = c->landings;
  while (l && l->id != id) l = l->next;
  return l;
}

/* read_one reads one message. The caller has the role of the reader, and `sending` if it says so. */
static bool read_one(yp_node *c, bool locked) {
  uint8_t h[ANSWER];
  uint64_t size, a, b;
  int64_t status;
  uint16_t op, flags;
  uint32_t call;
  if (c->in_at == c->in_end) { /* between two messages */
    ssize_t k = c->from->in->receive(c->from, c->in, sizeof c->in);
    if (k <= 0) return c->stuck || broken(c, locked); /* who sends hears of it, too */
    c->in_at = 0, c->in_end = (size_t)k;
  }
  if (!read_all(c, h, sizeof h)) return false;
  memcpy(&size, h, 8), memcpy(&op, h + 8, 2), memcpy(&flags, h + 10, 2), memcpy(&call, h + 12, 4);
  memcpy(&status, h + 16, 8), memcpy(&a, h + 24, 8), memcpy(&b, h + 32, 8);
  if (size < ANSWER) return false;
  size_t n = size - ANSWER;
  if (op == OP_END) return change(c) && first(c, h); /* the worker's first on the new connection */
  c->heard++;
  if (op == OP_MOVED) return moved(c, n, a, b);
  if (op == OP_PRINTED) return print(c, n);
  if (op == OP_DATA) {
    pthread_mutex_lock(&c->waiting);
    landing *l = landing_of(c, a), **i = &c->landings;
    if (l) l->now = true;
    pthread_mutex_unlock(&c->waiting);
    bool ok = l && (n == 0 || (l->to ? land(c, l, n) : skip(c, n)));
    pthread_mutex_lock(&c->waiting);
    while (*i && *i != l) i = &(*i)->next;
    if (l) *i = l->next;
    pthread_mutex_unlock(&c->waiting);
    free(l);
    return ok;
  }
  pthread_mutex_lock(&c->waiting);
  waiter **i = &c->waiters, *w;
  while (*i && (*i)->call != call) i = &(*i)->next;
  if ((w = *i)) *i = w->next;
  pthread_mutex_unlock(&c->waiting);
  if (op != OP_ANSWER || !w) return false;
  w->a->status = (cl_int)status, w->a->a = a, w->a->b = b;
  if (flags & FLAG_FD && (w->a->fd = yp_descriptor(c->from)) < 0) return false;
  if (w->after) { /* what else came are bytes that wake who listens */
    c->from->in = w->after;
    c->in_at = c->in_end = 0;
  }
  bool ok = true;
  if (n > 0 && w->a->land) {
    ok = land(c, w->a->land, n);
  } else if (n > 0) {
    w->a->data = malloc(n + 1);
    ok = w->a->data ? read_all(c, w->a->data, n) : skip(c, n);
    if (w->a->data) w->a->data[n] = 0, w->a->size = n;
  }
  pthread_mutex_lock(&c->waiting);
  w->done = true;
  pthread_mutex_unlock(&c->waiting);
  return ok;
}

static bool unhex(const char *s, uint8_t *p, size_t n) {
  for (size_t i = 0; i < n; i++) {
    unsigned v;
    if (!s[2 * i] || sscanf(s + 2 * i, "%2x", &v) != 1) return false;
    p[i] = (uint8_t)v;
  }
  return s[2 * n] == 0;
}

static bool receive_all(int s, void *to, size_t n) {
  int late = 0;
  for (size_t got = 0; got < n;) {
    ssize_t k = recv(s, (uint8_t *)to + got, n - got, 0);
    if (k < 0 && (errno == EINTR || (errno == EAGAIN && ++late < GREETS))) continue;
    if (k <= 0) return false;
    got += (size_t)k;
  }
  return true;
}

static void init(yp_node *c) {
  c->to = c->from = NULL;
  pthread_mutex_init(&c->sending, NULL), pthread_mutex_init(&c->waiting, NULL), pthread_cond_init(&c->turn, NULL);
}

/* A child has its parent's socket and must not speak on it. What the parent made is not the child's. */
static void in_child(void) {
  for (yp_node *c = nodes; c < nodes + YP_NODES; c++) {
    if (c->from) c->from->tls = NULL; /* which another thread may have had just then; it stays as it was */
    if (c->to) c->to->tls = NULL;
    if (c->from) c->from->has_rdma = false; /* closing it would end the parent's */
    if (c->to) c->to->has_rdma = false;
    if (c->from != c->to) yp_hang_up(c->from);
    yp_hang_up(c->to);
    c->sent = c->heard = 0, c->move.set = 0, c->gate = NULL, c->offered = 0;
    c->tried = false, c->dead = false, c->reading = c->stuck = false;
    c->out = NULL; /* which another thread may have been about to have grow */
    c->used = c->room = c->tail_size = c->messages = c->in_at = c->in_end = 0;
    c->waiters = NULL, c->landings = NULL, c->asking = 0, c->promised = 0, c->queues = 0;
    c->era++;
    init(c);
  }
}

/* of returns what is said of a node. */
static const char *of(const yp_node *c, const char *name) { return yp_setting_of(name, (int)(c - nodes)); }

/* yp_nodes makes ready as many nodes as the environment names, and returns the number. */
int yp_nodes(void) {
  int n = 0;
  for (yp_node *c = nodes; c < nodes + YP_NODES; c++) init(c);
  yp_at_fork(NULL, NULL, in_child);
  while (n < YP_NODES && of(nodes + n, "YUNHE_POOL_ADDRESS")) n++;
  return n;
}

/* yp_lent_to says whether what is lent is for programs of that interface. */
bool yp_lent_to(const char *api) {
  const char *other = yp_setting("YUNHE_POOL_API");
  return !other || !strcmp(other, api);
}

yp_node *yp_node_at(int i) { return nodes + i; }
bool yp_unified(const yp_node *c) { return c->unified; }
bool yp_user_events(const yp_node *c) { return __atomic_load_n(&c->user_events, __ATOMIC_ACQUIRE); }
void yp_user_event_made(yp_node *c) { __atomic_store_n(&c->user_events, true, __ATOMIC_RELEASE); }

enum { GREETING = 8, CHALLENGE = 32, TASK = 26, MAC = 32, MORE = 24 };
static const char tls_greeting[] = "YHTLS_1\n";

/* encrypts: what is said at an address is encrypted, or not said. */
static bool encrypts(const char *address) { return !strncmp(address, "tls:", 4); }

/* worse: what is said at the second address is seen on the network, and at the first it is not. */
static bool worse(const char *from, const char *to) { return encrypts(from) && !encrypts(to) && strncmp(to, "unix:", 5); }

static const char seen[] = "the program was moved to where what is said is not encrypted";

/* greet connects to a node, proves to be of the task, and returns the path or
 * NULL. more bytes beside the task's ID say which program of it this is. The
 * node's answer is in h; what it says in text, which has room for n. */
static yp_path *greet(yp_node *c, const char *address, const char *greeting, const uint8_t *more, size_t more_size, uint8_t h[ANSWER], char *text, size_t n, const char **why) {
  const char *task = of(c, "YUNHE_POOL_TASK"), *token = of(c, "YUNHE_POOL_TOKEN");
  const bool tls = encrypts(address);
  uint8_t key[32], hello[GREETING + CHALLENGE], proof_[CHALLENGE + TASK + MORE + GREETING], out_[2 * GREETING + TASK + MORE + MAC], *out = out_, *mac;
  *why = "YUNHE_POOL_TASK or YUNHE_POOL_TOKEN is not of the pool's form";
  if (!task || !token || strlen(task) != TASK || !unhex(token, key, sizeof key)) return NULL;
  if (tls && (*why = yp_tls_missing())) return NULL;
  *why = "the pool node cannot be reached";
  yp_path *p = yp_dial(address);
  if (!p) return NULL;
  const int s = p->sock.number;
  *why = "there is no pool node of this version";
  uint64_t size = 0;
  uint16_t op = OP_REFUSED;
  if (!receive_all(s, hello, sizeof hello) || memcmp(hello, "YHPOOL1\n", GREETING)) goto bad;
  memcpy(proof_, hello + GREETING, CHALLENGE), memcpy(proof_ + CHALLENGE, task, TASK);
  if (more_size) memcpy(proof_ + CHALLENGE + TASK, more, more_size);
  if (tls) memcpy(out, tls_greeting, GREETING), out += GREETING;
  memcpy(out, greeting, GREETING), memcpy(out + GREETING, proof_ + CHALLENGE, TASK + more_size);
  mac = out + GREETING + TASK + more_size;
  if (tls) memcpy(proof_ + CHALLENGE + TASK + more_size, tls_greeting, GREETING);
  yp_hmac(key, proof_, CHALLENGE + TASK + more_size + (tls ? GREETING : 0), mac);
  size_t all = (size_t)(mac + MAC - out_);
  *why = "the pool node ended the connection";
  if (send(s, out_, all, MSG_NOSIGNAL) != (ssize_t)all) goto bad;
  if (tls) {
    if (!receive_all(s, h, ANSWER)) goto bad;
    memcpy(&size, h, 8), memcpy(&op, h + 8, 2);
    if (op == OP_REFUSED) goto refused;
    *why = "what answers does not encrypt what is said, as it should";
    if (op != OP_ENCRYPT || size != ANSWER || !yp_tls_open(p, key, mac, why)) goto bad;
    if (more_size) return p; /* what it says first comes when all has that was sent over the old one */
    *why = "the pool node ended the connection";
  }
  for (size_t got = 0; got < ANSWER;) { /* a descriptor may come along */
    ssize_t k = p->in->receive(p, h + got, ANSWER - got);
    if (k <= 0) goto bad;
    got += (size_t)k;
  }
  memcpy(&size, h, 8), memcpy(&op, h + 8, 2);
  if (op == OP_ANSWER) return p;
refused:
  size = size > ANSWER && size - ANSWER < n ? size - ANSWER : 0;
  for (size_t got = 0; got < size;) {
    ssize_t k = p->in->receive(p, (uint8_t *)text + got, size - got);
    if (k <= 0) goto bad;
    got += (size_t)k;
  }
  text[size] = 0;
  for (char *c = text; *c; c++)
    if (*c > 0 && *c < ' ') *c = ' '; /* it may be anybody's */
  *why = op == OP_MOVED ? "moved" : "refused";
bad:
  yp_hang_up(p);
  return NULL;
}

/* follow connects to where the program was moved. The caller has `sending`. */
static void follow(yp_node *c) {
  uint8_t more[MORE], h[ANSWER];
  char text[256];
  const char *why = seen;
  flush_out(c);
  memcpy(more, c->move.session, 16), memcpy(more + 16, &c->sent, 8);
  yp_path *p = worse(c->at, c->move.to) ? NULL : greet(c, c->move.to, "YHBACK1\n", more, sizeof more, h, text, sizeof text, &why);
  if (!p && (encrypts(c->move.to) || encrypts(c->at))) say(why, !strcmp(why, "refused") ? text : c->move.to);
  if (p) {
    c->to = p, p->stuck = meanwhile, p->of = c;
    memcpy(c->at, c->move.to, sizeof c->at);
    c->unified = false; /* what is made from here on is not shared */
  }
  __atomic_store_n(&c->move.set, p ? FOLLOWED : STAYS, __ATOMIC_RELEASE);
}

/* look reads what may have come while the program called nothing, so that it
 * does not send to where nobody is any more. The caller has `sending`. */
static void look(yp_node *c, bool stuck) {
  pthread_mutex_lock(&c->waiting);
  bool mine = !c->reading && !c->dead && (c->in_at != c->in_end || c->from->in->ready(c->from));
  if (mine) c->reading = true, c->stuck = stuck;
  pthread_mutex_unlock(&c->waiting);
  if (!mine) return;
  bool ok = read_one(c, true);
  pthread_mutex_lock(&c->waiting);
  c->reading = c->stuck = false;
  if (!ok) lost(c, c->from);
  pthread_cond_broadcast(&c->turn);
  pthread_mutex_unlock(&c->waiting);
}

/* meanwhile is what who cannot send does: the worker may have to be heard before it
 * reads on. It sends what was read before a program moves, and what kernels print. */
static bool meanwhile(void *of) {
  yp_node *c = of;
  look(c, true);
  return !c->dead;
}

/* set_gate maps a gate. That of where the program was before stays: other threads may be about to look at it. */
static void set_gate(yp_node *c, int fd) {
  void *p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(yp_gate), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  if (p != MAP_FAILED) __atomic_store_n(&c->gate, p, __ATOMIC_RELEASE);
}

static int connect_now(yp_node *c) {
  const char *address = of(c, "YUNHE_POOL_ADDRESS"), *why;
  uint8_t h[ANSWER];
  char text[sizeof c->at];
  if (!address && yp_by_file()) say("there is no slice: it has ended, or has no place yet", "");
  if (!address || strlen(address) >= sizeof c->at || !of(c, "YUNHE_POOL_TASK") || !of(c, "YUNHE_POOL_TOKEN")) return CL_DEVICE_NOT_FOUND; /* the program was not started by the pool */
  strcpy(c->at, address);
  c->first = pthread_self();
  for (int times = 0; times < 8; times++) {
    c->to = c->from = greet(c, c->at, "YHDATA1\n", NULL, 0, h, text, sizeof text, &why);
    if (c->to || strcmp(why, "moved")) break;
    if (*text && worse(c->at, text)) {
      why = seen;
      break;
    }
    if (*text) strcpy(c->at, text);
  }
  if (!c->to) {
    say(why, !strcmp(why, "refused") ? text : c->at);
    return CL_DEVICE_NOT_FOUND;
  }
  c->to->stuck = meanwhile, c->to->of = c;
  c->heard = 1;
  uint64_t shares;
  uint16_t flags;
  memcpy(&shares, h + 24, 8), memcpy(&flags, h + 10, 2);
  set_gate(c, flags & FLAG_FD ? yp_descriptor(c->to) : -1);
  c->offered = chosen(c, flags), c->flags = flags;
  const char *wanted = yp_setting("YUNHE_POOL_TRANSPORT");
  if (wanted && !c->offered && (!strcmp(wanted, "ring") || !strcmp(wanted, "rdma"))) {
    say(!strcmp(wanted, "ring") ? "there is no ring to the pool node at" : "there is no RDMA to the pool node at", c->at);
    return CL_DEVICE_NOT_FOUND;
  }
  c->unified = shares && c->gate && !strncmp(c->at, "unix:", 5);
  return 0;
}

yp_gate *yp_gate_now(yp_node *c) { return __atomic_load_n(&c->gate, __ATOMIC_ACQUIRE); }

bool yp_gate_enter(yp_gate *g) {
  if (!g) return false;
  __atomic_add_fetch(&g->inside, 1, __ATOMIC_SEQ_CST);
  if (!__atomic_load_n(&g->closed, __ATOMIC_SEQ_CST)) return true;
  yp_gate_leave(g);
  return false;
}

void yp_gate_leave(yp_gate *g) { __atomic_sub_fetch(&g->inside, 1, __ATOMIC_SEQ_CST); }

bool yp_later(yp_node *c) { return __atomic_load_n(&c->flags, __ATOMIC_RELAXED) & FLAG_LATER; }

/* A node that is reached by its machine's Unix socket is as near as the other's memory could come. */
bool yp_lanes(yp_node *c) {
  const char *wanted = yp_setting("YUNHE_POOL_TRANSPORT");
  pthread_mutex_lock(&c->sending);
  bool far = strncmp(c->at, "unix:", 5) != 0;
  pthread_mutex_unlock(&c->sending);
  return far && __atomic_load_n(&c->flags, __ATOMIC_RELAXED) & FLAG_LANES && !(wanted && !strcmp(wanted, "socket"));
}

bool yp_lane_to(yp_node *c, const uint64_t id[2], yp_lane_end *end) {
  static const char what[] = "yunhe pool lane";
  const char *task = of(c, "YUNHE_POOL_TASK"), *token = of(c, "YUNHE_POOL_TOKEN");
  uint8_t key[32], text[sizeof what - 1 + 16];
  if (!task || !token || strlen(task) != TASK || !unhex(token, key, sizeof key)) return false;
  memcpy(text, what, sizeof what - 1), memcpy(text + sizeof what - 1, id, 16);
  yp_hmac(key, text, sizeof text, end->key);
  memcpy(end->task, task, TASK);
  pthread_mutex_lock(&c->sending);
  memcpy(end->at, c->at, sizeof end->at);
  pthread_mutex_unlock(&c->sending);
  return true;
}

int yp_connect(yp_node *c) {
  yp_stay();
  pthread_mutex_lock(&c->sending);
  if (!c->tried) {
    c->result = connect_now(c);
    c->tried = true;
    c->dead = c->result != 0;
  }
  pthread_mutex_unlock(&c->sending);
  yp_go();
  return c->result;
}

static uint8_t *grow(yp_node *c, size_t n) {
  if (c->used + n > c->room) {
    size_t want = (c->used + n) * 2 + 4096;
    uint8_t *p = realloc(c->out, want);
    if (!p) abort(); /* a message cannot be half sent */
    c->out = p, c->room = want;
  }
  c->used += n;
  return c->out + c->used - n;
}

static void better(yp_node *c, uint16_t offered);

bool yp_begin(yp_node *c, int op) {
  yp_stay();
  uint16_t offered = __atomic_load_n(&c->offered, __ATOMIC_RELAXED);
  if (offered && __atomic_compare_exchange_n(&c->offered, &offered, 0, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) better(c, offered);
  now = c;
  pthread_mutex_lock(&c->sending);
  if (!c->threads && !pthread_equal(c->first, pthread_self())) c->threads = true;
  if (c->used > FLUSH_BYTES) flush_out(c);
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  int64_t ms = t.tv_sec * 1000 + t.tv_nsec / 1000000;
  if (ms - c->called > QUIET && c->from) look(c, false);
  c->called = ms;
  if (__atomic_load_n(&c->move.set, __ATOMIC_ACQUIRE) == FOLLOW) follow(c);
  c->start = c->used;
  uint64_t h[2] = {0, (uint64_t)op | (uint64_t)(c->threads ? FLAG_THREADS : 0) << 16};
  memcpy(grow(c, HEADER), h, HEADER);
  c->proof = 0, c->like = 0;
  return !c->dead;
}

void yp_word(uint64_t w) { memcpy(grow(now, 8), &w, 8); }

void yp_size3(const size_t *v) {
  for (int i = 0; i < 3; i++) yp_word(v[i]);
}

void yp_osize3(const size_t *v, cl_uint n) {
  yp_word(v != NULL);
  for (cl_uint i = 0; i < 3; i++) yp_word(v && i < n ? v[i] : 0);
}

static void pad(yp_node *c) {
  while (c->used % 8) *grow(c, 1) = 0;
}

void yp_bytes(const void *p, size_t n) {
  yp_word(n);
  if (n) memcpy(grow(now, n), p, n);
  pad(now);
}

/* yp_rows adds the data of a write, which ends its message: rows packed, or sent from where they are. */
void yp_rows(const uint8_t *p, size_t row, size_t rows, size_t slices, size_t row_pitch, size_t slice_pitch) {
  yp_node *c = now;
  yp_word(row * rows * slices);
  if (slices == 1 && (rows == 1 || row_pitch == row) && row * rows > COPY_BYTES) {
    c->tail = p, c->tail_size = row * rows;
    return;
  }
  for (size_t z = 0; z < slices; z++)
    for (size_t y = 0; y < rows; y++) memcpy(grow(c, row), p + z * slice_pitch + y * row_pitch, row);
  pad(c);
}

void yp_waits(cl_uint n, const cl_event *events) {
  yp_word(n);
  for (cl_uint i = 0; i < n; i++) yp_word(obj(events[i])->id);
}

void yp_proof(void) { now->proof = now->used; }

static void close_message(yp_node *c, uint32_t call, uint16_t flags) {
  uint64_t size = c->used - c->start + c->tail_size;
  uint16_t f;
  memcpy(c->out + c->start, &size, 8);
  memcpy(&f, c->out + c->start + 10, 2);
  f |= flags;
  memcpy(c->out + c->start + 10, &f, 2);
  memcpy(c->out + c->start + 12, &call, 4);
  c->messages++, c->sent++;
}

/* sync_then is yp_sync; after the message is sent, and after its answer, comes what is said in another manner. An order is given back when it is sent. */
static cl_int sync_then(answer *a, const yp_manner *after, pthread_mutex_t *order) {
  yp_node *c = now;
  answer own = {.land = NULL};
  if (!a) a = &own;
  waiter w = {.a = a, .after = after};
  a->status = CL_OUT_OF_RESOURCES, a->data = NULL, a->size = 0, a->fd = -1;
  w.call = ++c->calls;
  close_message(c, w.call, FLAG_ANSWER);
  pthread_mutex_lock(&c->waiting);
  w.next = c->waiters, c->waiters = &w;
  pthread_mutex_unlock(&c->waiting);
  flush_out(c);
  if (after && !c->dead) c->to->out = after;
  pthread_mutex_unlock(&c->sending);
  if (order) pthread_mutex_unlock(order);
  follows(c);

  pthread_mutex_lock(&c->waiting);
  while (!w.done && c->from && (!c->dead || c->reading)) { /* who reads may be writing to where the answer is to be */
    if (c->reading) {
      pthread_cond_wait(&c->turn, &c->waiting);
      continue;
    }
    c->reading = true;
    pthread_mutex_unlock(&c->waiting);
    bool ok = read_one(c, false);
    pthread_mutex_lock(&c->waiting);
    c->reading = false;
    if (!ok) {
      if (!c->dead && yp_sock(c->from) >= 0) say("the worker is gone: the calls that follow fail", "");
      lost(c, c->from);
    }
    pthread_cond_broadcast(&c->turn);
  }
  if (!w.done) {
    for (waiter **i = &c->waiters; *i; i = &(*i)->next)
      if (*i == &w) {
        *i = w.next;
        break;
      }
    a->status = CL_OUT_OF_RESOURCES;
  }
  pthread_mutex_unlock(&c->waiting);
  yp_go();
  if (a == &own) free(own.data);
  return a->status;
}

cl_int yp_sync(answer *a) { return sync_then(a, NULL, NULL); }
cl_int yp_sync_in_order(answer *a, pthread_mutex_t *order) { return sync_then(a, NULL, order); }

void yp_post(bool flush) {
  yp_node *c = now;
  close_message(c, 0, 0);
  if (flush || c->tail_size || c->messages >= FLUSH_MESSAGES || c->used >= FLUSH_BYTES) flush_out(c);
  pthread_mutex_unlock(&c->sending);
  follows(c);
  yp_go();
}

void yp_flush(yp_node *c) {
  yp_stay();
  pthread_mutex_lock(&c->sending);
  flush_out(c);
  pthread_mutex_unlock(&c->sending);
  follows(c);
  yp_go();
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

void yp_like(const uint64_t *w, size_t n) { now->like = hash((const uint8_t *)w, n * sizeof *w); }

/* known is where it is kept that a call is right, or will be. */
static uint64_t *known(yp_node *c, uint64_t h) {
  uint64_t *line = c->known[(h >> 1) % KNOWN]; /* what its last bit is says little */
  for (int i = 0; i < WAYS; i++)
    if (__atomic_load_n(line + i, __ATOMIC_RELAXED) == h) return line + i;
  return line + (h >> 32) % WAYS;
}

cl_int yp_end_by(uint64_t *kept) {
  yp_node *c = now;
  uint64_t h = (hash(c->out + c->start + 8, 8) * 31 ^ hash(c->out + c->start + HEADER, (c->proof ? c->proof : c->used) - c->start - HEADER) ^ c->like) + c->era;
  if (!kept) kept = known(c, h);
  bool post = __atomic_load_n(kept, __ATOMIC_RELAXED) == h && !c->dead;
  if (post) {
    yp_post(false);
    return CL_SUCCESS;
  }
  cl_int status = yp_sync(NULL);
  if (status == CL_SUCCESS) __atomic_store_n(kept, h, __ATOMIC_RELAXED);
  return status;
}

cl_int yp_end(void) { return yp_end_by(NULL); }

/* yp_end_promised: the worker tells how much it promises with its answer. While what another thread has sent has none yet, nothing
 * is known, as that may take what was promised. */
cl_int yp_end_promised(size_t bytes, answer *a) {
  yp_node *c = now;
  if (bytes <= c->promised && !c->dead) {
    c->promised -= bytes;
    yp_post(false);
    return CL_SUCCESS;
  }
  c->promised = 0, c->asking++;
  cl_int status = yp_sync(a);
  yp_stay();
  pthread_mutex_lock(&c->sending);
  if (!--c->asking && !status) c->promised = a->b;
  pthread_mutex_unlock(&c->sending);
  yp_go();
  return status;
}

/* yp_end_ahead: the worker waits for the device, and reads nothing meanwhile, but where the program has no other queue than one that
 * keeps order: then what it writes is before what comes next anyway. */
bool yp_end_ahead(const object *queue) {
  yp_node *c = now;
  const bool alone = __atomic_load_n(&c->queues, __ATOMIC_RELAXED) == 1 && yp_ordered(queue);
  if ((__atomic_load_n(&c->threads, __ATOMIC_RELAXED) && !alone) || __atomic_load_n(&c->dead, __ATOMIC_RELAXED) || !(__atomic_load_n(&c->flags, __ATOMIC_RELAXED) & FLAG_POSTS)) return false;
  yp_post(false);
  return true;
}

void yp_count_queue(yp_node *c, int more) { __atomic_add_fetch(&c->queues, more, __ATOMIC_RELAXED); }

void yp_land_later(yp_node *c, const landing *l) {
  landing *keep = malloc(sizeof *keep);
  if (!keep) {
    lost(c, NULL);
    return;
  }
  *keep = *l;
  pthread_mutex_lock(&c->waiting);
  keep->next = c->landings, c->landings = keep;
  pthread_mutex_unlock(&c->waiting);
}

bool yp_never_land(yp_node *c, uint64_t id) {
  landing *l;
  yp_stay();
  pthread_mutex_lock(&c->waiting);
  while ((l = landing_of(c, id)) && l->now && c->reading) pthread_cond_wait(&c->turn, &c->waiting);
  if (l) l->to = NULL;
  pthread_mutex_unlock(&c->waiting);
  yp_go();
  return l;
}

bool yp_room_for_reads(yp_node *c, size_t n) {
  enum { MOST = 256 << 20 };
  pthread_mutex_lock(&c->waiting);
  size_t coming = 0;
  for (landing *l = c->landings; l; l = l->next) coming += l->row * l->rows * l->slices;
  pthread_mutex_unlock(&c->waiting);
  return yp_user_events(c) || coming + n <= MOST;
}

cl_int yp_status(yp_node *c, int op, uint64_t a, uint64_t b) {
  yp_begin(c, op);
  yp_word(a);
  yp_word(b);
  return yp_sync(NULL);
}

/* better shares memory again that was shared where the program was before, and goes on by the path that was chosen, or as before. */
static void better(yp_node *c, uint16_t offered) {
  answer a = {.land = NULL};
  if (offered & FLAG_MAPS) {
    yp_begin(c, OP_share);
    yp_word(0);
    if (yp_sync(&a) == CL_SUCCESS) set_gate(c, a.fd), c->unified = c->gate;
    free(a.data), a = (answer){.land = NULL};
  }
  if (!(offered &= (uint16_t)~FLAG_MAPS)) return;
  const yp_manner *how = offered == FLAG_RING ? &yp_ring : &yp_rdma;
  yp_begin(c, OP_path);
  yp_word(offered == FLAG_RING ? PATH_RING : PATH_RDMA);
  bool use = yp_sync(&a) == CL_SUCCESS;
  if (use) {
    use = offered == FLAG_RING ? yp_ring_open(c->to, a.fd, a.a) : yp_rdma_open(c->to, (uint16_t)a.a, a.data, a.size);
    yp_begin(c, OP_path);
    yp_word(use ? PATH_USE : PATH_STAY);
    sync_then(NULL, use ? how : NULL, NULL);
  } /* else the program is moving, or the worker could not: it says why */
  if (!use && offered == FLAG_RDMA) say("the pool node is reached by TCP, and not over RDMA", a.data && a.status ? (const char *)a.data : "");
  if (a.fd >= 0) close(a.fd);
  free(a.data);
}
