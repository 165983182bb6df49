/* The connections to the node, turns of devices, and what devices were given.
 *
 * One connection for each card of a process that starts CUDA; the node takes its end
 * for the end of the process. Frames of nine bytes, as workers use: a letter and a
 * word (docs/pool-design.md). Of each a thread of the library reads them; another, the
 * keeper, gives the device back when the turn is over, or nothing is left to do. Cards
 * have their turns apart: work waits for the turn of its stream's card only.
 *
 * After each piece of work an event is recorded in its stream. The device is
 * given back when the last event of each stream has happened, so that who comes
 * next has it alone, and what a turn cost is known. Events are looked at, not
 * slept on: one that wakes who sleeps costs an interrupt each time it happens,
 * and there is one for each launch. */
#define _GNU_SOURCE
#include "cuda.h"
#include "../src/given.h"
#include "../src/own.h"
#include "../src/pool.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { GREETING = 8, CHALLENGE = 32, TASK = 26, MAC = 32, FRAME = 9, STREAMS = 1024 };
enum { MS = 1000000 };
static const int64_t rests = 2 * MS;      /* how long the device is kept with nothing to do, */
static const int64_t mostRests = 200 * MS; /* and at most, where memory was moved for it */
enum { LOADS = 4 }; /* a turn is so many times as long as its memory took to come */
static const int64_t ahead = 1 * MS;      /* how long after it was given work may be undone while more is given */
static const int64_t slow = 10 * MS;      /* work that takes as long as a turn is given piece by piece */
static const int64_t stuck = 1000L * MS;  /* work that does not end: it may wait for what the program does next */
static const int64_t stuckStep = 100 * MS;
static const int64_t soonest = MS / 50, latest = MS / 5; /* how often it is looked whether the device is done */

static struct {
  CUresult (*ctxGetCurrent)(CUcontext *), (*ctxSetCurrent)(CUcontext), (*ctxPush)(CUcontext), (*ctxPop)(CUcontext *), (*streamGetCtx)(CUstream, CUcontext *);
  CUresult (*ctxGetDevice)(CUdevice *), (*byBus)(CUdevice *, const char *), (*streamQuery)(CUstream);
  CUresult (*eventCreate)(CUevent *, unsigned), (*eventRecord)(CUevent, CUstream), (*eventQuery)(CUevent);
  CUresult (*streamIsCapturing)(CUstream, int *), (*captureMode)(int *);
} cu;

/* What a stream was given. */
typedef struct {
  CUcontext context, by; /* the stream's, and who gave it last */
  CUstream stream;
  pid_t thread; /* of its own default stream; else 0 */
  bool green;   /* one of the contexts is */
  CUevent last, mark;
  bool pending, marked;
  uint64_t number; /* of the last work */
  int64_t marked_at;
} work;

/* Of these the first are the program's, in the order in which it sees them. */
static struct yc_card {
  const yc_slice *slice;
  CUdevice device; /* as the driver numbers it; -1: not known yet */
  pthread_mutex_t lock;
  pthread_cond_t changed, due; /* for the program's threads, and for the keeper */
  pthread_mutex_t asking;
  yp_own sock;
  bool connected, dead;
  bool ends; /* the program does, and with it the driver, which is asked nothing more */
  char bus[64];

  /* turns */
  int64_t until, since; /* until 0: the device is another's */
  int64_t quiet;        /* since when it was seen to have nothing to do; 0: it has */
  bool wanted, draining;
  int64_t rests;        /* how long the device is kept with nothing to do */
  int64_t drains;       /* since when */
  int calls, waiting;   /* that give work, that wait for a turn */
  int copying;          /* of these calls, those that may use the device themselves */
  uint64_t came;        /* calls that began or ended */
  int64_t spare;        /* of the turn: how long calls took while the device had nothing to do */
  struct {
    int64_t at;
    uint64_t came; /* 0: the device had something to do */
  } looked;
  bool slow;            /* what was given lately took as long as a turn */
  bool blocking;        /* launches last until their kernels have ended, as the program's environment says: they use the device themselves */
  bool pages;           /* memory is such as the driver moves */
  bool away;            /* others had the device, and it may have moved it */
  bool loads, room;     /* the turn waits for memory, which the node lets come now */
  int64_t length;       /* of that turn */
  work works[STREAMS];
  int works_n;

  /* answers */
  int answered; /* letters that came: 1 T, 2 L, 4 U */
  uint64_t taken, limit, used;
} cards[YC_CARDS];
static int cards_n; /* that are connected; the program sees no others */
static pthread_mutex_t connecting = PTHREAD_MUTEX_INITIALIZER;
static bool tried, connected;

/* The contexts that the program has made, and their cards: not all can be asked, as those that
 * are another thread's. */
typedef struct known {
  struct known *next;
  CUcontext context;
  yc_card *card;
  bool green;
} known;
static known *contexts;
static bool any_green; /* has been there */
static unsigned contexts_changed;
static pthread_mutex_t naming = PTHREAD_MUTEX_INITIALIZER;

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void say(const char *what, const char *more) { dprintf(STDERR_FILENO, "yunhe pool: %s%s%s\n", what, more ? ": " : "", more ? more : ""); }

/* fresh is how a card begins. */
static void fresh(yc_card *c, const yc_slice *slice) {
  memset(c, 0, sizeof *c);
  c->slice = slice, c->device = -1;
  pthread_mutex_init(&c->lock, NULL);
  pthread_mutex_init(&c->asking, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&c->changed, &attr);
  pthread_cond_init(&c->due, &attr);
  pthread_condattr_destroy(&attr);
  c->sock.number = -1, c->slow = true;
}

static void in_child(void) {
  for (yc_card *c = cards; c < cards + YC_CARDS && c->slice; c++) {
    yp_close(&c->sock); /* the node waits for the end of the process that has it */
    fresh(c, NULL);
  }
  tried = connected = false, cards_n = 0;
  pthread_mutex_init(&connecting, NULL);
  pthread_mutex_init(&naming, NULL);
  contexts = NULL; /* a child has none */
  yc_shown_in_child();
  yc_alone();
}

static void first(void) {
  yc_read();
  yp_at_fork(NULL, NULL, in_child);
}

/* yc_start is called when the library is loaded, unless a library that is loaded
 * before has started the driver by then. */
__attribute__((constructor)) void yc_start(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, first);
}

/* Until yc_go as often, the thread is not canceled: it has locks, and what others wait for. */
static _Thread_local struct {
  int depth, before;
} stays;

void yc_stay(void) {
  if (!stays.depth++) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &stays.before);
}

void yc_go(void) {
  if (!--stays.depth) pthread_setcancelstate(stays.before, NULL);
}

static bool put(yc_card *c, char letter, uint64_t word) {
  uint8_t b[FRAME] = {(uint8_t)letter};
  memcpy(b + 1, &word, 8);
  ssize_t n;
  while ((n = send(yp_fd(&c->sock), b, sizeof b, MSG_NOSIGNAL)) < 0 && errno == EINTR) {}
  return n == sizeof b; /* so few bytes go whole */
}

static void wait_until(yc_card *c, pthread_cond_t *on, int64_t at) {
  struct timespec t = {at / 1000000000, at % 1000000000};
  pthread_cond_timedwait(on, &c->lock, &t);
}

static bool done(CUresult r) {
  enum { NOT_READY = 600 };
  return r != NOT_READY; /* of a context that has failed nothing more comes */
}

/* passed looks whether the mark of a stream was passed, and how long that took.
 * The caller has the lock. */
static void passed(yc_card *c, work *w) {
  if (!w->marked || !done(cu.eventQuery(w->mark))) return;
  c->slow = now() - w->marked_at >= slow;
  w->marked = false;
}

/* rested reports whether all work is done. A launch that takes long while the device has
 * nothing to do loads its code, or compiles it: that is not the device's time. The caller has
 * the lock. */
static bool rested(yc_card *c) {
  bool all = true, green = false;
  for (work *w = c->works; w < c->works + c->works_n && !c->ends; w++) {
    if (!w->pending) continue;
    if (cu.ctxSetCurrent(w->context)) cu.ctxSetCurrent(w->by); /* a green one may be another thread's */
    green |= w->green;
    passed(c, w);
    if (done(cu.eventQuery(w->last))) w->pending = w->marked = false;
    else all = false;
  }
  if (green) cu.ctxSetCurrent(NULL); /* no other thread could have it */
  int64_t t = now();
  uint64_t came = all && c->calls && !c->copying ? c->came : 0;
  if (came && c->looked.came == came) c->spare += t - c->looked.at;
  c->looked.at = t, c->looked.came = came;
  return all && !c->calls;
}

/* drain waits until all work is done. The caller, the keeper, has the lock. */
static void drain(yc_card *c) {
  c->draining = true;
  c->drains = now();
  while (!c->dead && !rested(c)) {
    int64_t t = now(), step = (t - c->drains) / 16;
    wait_until(c, &c->due, t + (step < soonest ? soonest : step > latest ? latest : step));
  }
  c->draining = false;
}

/* load has the program's memory moved to the card, for the turn that begins then. The
 * caller, the keeper, has the lock, without which no context ends. */
static void load(yc_card *c) {
  while (!c->dead && !c->room) pthread_cond_wait(&c->due, &c->lock);
  int64_t t = now();
  if (!c->dead && !c->ends) yc_fetch(c);
  int64_t took = now() - t, half = took / 2;
  put(c, 'I', (uint64_t)took);
  c->loads = c->room = c->wanted = false;
  c->since = now(), c->quiet = c->spare = 0, c->looked.came = 0;
  c->until = c->since + (c->length > LOADS * took ? c->length : LOADS * took);
  c->rests = half < rests ? rests : half > mostRests ? mostRests : half;
  pthread_cond_broadcast(&c->changed);
}

static void *keep(void *card) {
  yc_card *c = card;
  int relaxed = 2; /* what this thread waits for is none of what others capture */
  if (cu.captureMode) cu.captureMode(&relaxed);
  prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0); /* nanoseconds, of waits: 50,000 else */
  pthread_mutex_lock(&c->lock);
  while (!c->dead) {
    if (c->loads) load(c);
    if (!c->until) {
      pthread_cond_wait(&c->due, &c->lock);
      continue;
    }
    int64_t t = now(), unused = 0;
    if (t < c->until) {
      if (!rested(c)) c->quiet = 0;
      else if (!c->quiet) c->quiet = t;
      if (!c->quiet || t - c->quiet < c->rests) {
        int64_t next = t + (c->waiting ? MS : MS / 2);
        wait_until(c, &c->due, next < c->until ? next : c->until);
        continue;
      }
      unused = t - (c->quiet > c->since ? c->quiet : c->since);
    }
    drain(c);
    t = now(), unused += c->spare;
    c->until = c->quiet = 0;
    c->wanted = c->waiting > 0;
    put(c, c->wanted ? 'M' : 'R', (uint64_t)(t - c->since > unused ? t - c->since - unused : 0));
    pthread_cond_broadcast(&c->changed);
  }
  pthread_mutex_unlock(&c->lock);
  return NULL;
}

static void *hear(void *card) {
  yc_card *c = card;
  uint8_t b[FRAME];
  while (recv(yp_fd(&c->sock), b, sizeof b, MSG_WAITALL) == sizeof b) {
    uint64_t word;
    memcpy(&word, b + 1, 8);
    pthread_mutex_lock(&c->lock);
    switch (b[0]) {
    case 'P': __atomic_store_n(&c->pages, word, __ATOMIC_RELAXED); break;
    case 'Z': c->away = true; break;
    case 'K': c->room = true; break;
    case 'G':
      if (c->pages && c->away) c->loads = put(c, 'N', 0), c->length = (int64_t)word;
      else c->since = now(), c->until = c->since + (int64_t)word, c->rests = rests, c->quiet = c->spare = 0, c->looked.came = 0, c->wanted = false;
      c->away = false;
      break;
    case 'Y':
      if (c->until) c->until = 1;
      break;
    case 'T': c->taken = word, c->answered |= 1; break;
    case 'L': c->limit = word, c->answered |= 2; break;
    case 'U': c->used = word, c->answered |= 4; break;
    }
    pthread_cond_broadcast(&c->changed);
    pthread_cond_signal(&c->due);
    pthread_mutex_unlock(&c->lock);
  }
  pthread_mutex_lock(&c->lock);
  c->dead = true;
  pthread_cond_broadcast(&c->changed);
  pthread_cond_signal(&c->due);
  pthread_mutex_unlock(&c->lock);
  return NULL;
}

static bool thread(void *(*run)(void *), yc_card *c) {
  pthread_t t;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before); /* signals are for the program's threads */
  bool ok = !pthread_create(&t, NULL, run, c);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (ok) pthread_detach(t);
  return ok;
}

/* unhex reads n bytes; the text has as many letters as that takes. */
static bool unhex(const char *s, uint8_t *to, size_t n) {
  for (size_t i = 0; i < n; i++) {
    unsigned v;
    if (sscanf(s + 2 * i, "%2x", &v) != 1) return false;
    to[i] = (uint8_t)v;
  }
  return true;
}

static bool read_text(int s, char *letter, char *text, size_t room) {
  uint8_t b[FRAME];
  uint64_t n;
  if (recv(s, b, sizeof b, MSG_WAITALL) != sizeof b) return false;
  memcpy(&n, b + 1, 8);
  if (n >= room || (n && recv(s, text, n, MSG_WAITALL) != (ssize_t)n)) return false;
  *letter = (char)b[0], text[n] = 0;
  return true;
}

/* greet proves to be of the task; NULL, or what is wrong. */
static const char *greet(yc_card *c, char text[512]) {
  uint8_t key[32], hello[GREETING + CHALLENGE], proof[CHALLENGE + TASK], out[GREETING + TASK + MAC];
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  const yc_slice *of = c->slice;
  char letter;
  if (!unhex(of->token, key, sizeof key)) return "the slice's token is not hexadecimal";
  if (strncmp(of->address, "unix:", 5)) return "programs that have the driver of CUDA themselves run on the node's machine, and reach it by its Unix socket";
  if (strlen(of->address + 5) >= sizeof to.sun_path) return "the address of the pool node is too long";
  strcpy(to.sun_path, of->address + 5);
  c->sock = yp_own_of(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int s = c->sock.number;
  if (s < 0 || connect(s, (struct sockaddr *)&to, sizeof to)) return "the pool node cannot be reached";
  if (recv(s, hello, sizeof hello, MSG_WAITALL) != sizeof hello || memcmp(hello, "YHPOOL1\n", GREETING)) return "there is no pool node of this version";
  memcpy(proof, hello + GREETING, CHALLENGE), memcpy(proof + CHALLENGE, of->task, TASK);
  memcpy(out, "YHCUDA1\n", GREETING), memcpy(out + GREETING, of->task, TASK);
  yp_hmac(key, proof, sizeof proof, out + GREETING + TASK);
  if (send(s, out, sizeof out, MSG_NOSIGNAL) != sizeof out || !read_text(s, &letter, text, 512)) return "the pool node ended the connection";
  if (letter != 'H') return text;
  snprintf(c->bus, sizeof c->bus, "%.63s", text);
  return NULL;
}

/* at_exit is called before what the driver does then, as it is told later. */
static void at_exit(void) {
  for (yc_card *c = cards; c < cards + cards_n; c++) {
    yc_hold(c);
    c->ends = true;
    yc_go_on(c);
  }
}

#define NEED(field, name) (*(void **)&cu.field = yc_driver(name))

/* resolve finds what the library calls of the driver. */
static bool resolve(void) {
  bool has = NEED(ctxGetCurrent, "cuCtxGetCurrent") && NEED(ctxSetCurrent, "cuCtxSetCurrent") && NEED(eventCreate, "cuEventCreate") && NEED(eventRecord, "cuEventRecord") &&
             NEED(eventQuery, "cuEventQuery") && NEED(ctxGetDevice, "cuCtxGetDevice") && NEED(byBus, "cuDeviceGetByPCIBusId");
  NEED(ctxPush, "cuCtxPushCurrent_v2"), NEED(ctxPop, "cuCtxPopCurrent_v2"), NEED(streamGetCtx, "cuStreamGetCtx");
  NEED(streamQuery, "cuStreamQuery"), NEED(streamIsCapturing, "cuStreamIsCapturing"), NEED(captureMode, "cuThreadExchangeStreamCaptureMode");
  return has;
}

/* begin connects a card; NULL, or what is wrong. */
static const char *begin(yc_card *c, const yc_slice *slice, char text[512]) {
  fresh(c, slice);
  sigset_t all, before; /* of timers, too, which would interrupt it */
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const char *why = greet(c, text), *blocks = getenv("CUDA_LAUNCH_BLOCKING");
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  c->blocking = blocks && *blocks && strcmp(blocks, "0");
  return why ? why : thread(hear, c) && thread(keep, c) ? NULL : "no thread can be started";
}

static const char *begin_all(char text[512]) {
  const int *shown;
  const int n = yc_shown_cards(&shown);
  if (!n && yp_by_file()) return "there is no slice: it has ended, or has no place yet: CUDA shows no device";
  if (!n) return "the program was not started by yunhe pool run, or its environment does not say so: CUDA shows no device";
  if (!resolve()) return "libcuda.so.1 is not a driver of CUDA";
  for (int i = 0; i < n; i++) {
    const char *why = begin(cards + i, yc_slice_of(shown[i]), text);
    if (why) return why;
    cards[i].connected = true;
  }
  cards_n = n;
  return NULL;
}

bool yc_connect(void) {
  char text[512];
  yc_start();
  yc_resolve();
  yc_stay();
  pthread_mutex_lock(&connecting);
  if (!tried) {
    tried = true;
    const char *why = begin_all(text);
    connected = !why;
    if (why) say(why, NULL);
    else atexit(at_exit);
  }
  bool ok = connected;
  pthread_mutex_unlock(&connecting);
  for (yc_card *c = cards; ok && c < cards + cards_n; c++) ok = !c->dead;
  yc_go();
  return ok;
}

int yc_count(void) { return cards_n; }

int yc_number(yc_card *c) { return (int)(c - cards); }

yc_card *yc_at(int i) { return i >= 0 && i < cards_n ? cards + i : NULL; }

/* yc_device is a card's number as the driver counts, wherever the program's environment
 * has it put the card; -1: it has none, or has not started. */
CUdevice yc_device(yc_card *c) {
  CUdevice d = __atomic_load_n(&c->device, __ATOMIC_ACQUIRE), found;
  if (d >= 0 || !c->connected || cu.byBus(&found, c->bus)) return d;
  __atomic_store_n(&c->device, found, __ATOMIC_RELEASE);
  return found;
}

yc_card *yc_of_device(CUdevice d) {
  for (yc_card *c = cards; c < cards + cards_n; c++)
    if (d >= 0 && yc_device(c) == d) return c;
  return NULL;
}

void yc_learn(CUcontext context, CUdevice d, bool green) {
  yc_card *card = yc_of_device(d);
  known *k = context && card ? malloc(sizeof *k) : NULL;
  if (green) __atomic_store_n(&any_green, true, __ATOMIC_RELAXED);
  yc_stay();
  pthread_mutex_lock(&naming);
  for (known *old = contexts; k && old; old = old->next)
    if (old->context == context) old->card = card, old->green = green, free(k), k = NULL;
  if (k) {
    *k = (known){contexts, context, card, green};
    contexts = k;
  }
  pthread_mutex_unlock(&naming);
  __atomic_fetch_add(&contexts_changed, 1, __ATOMIC_RELEASE);
  yc_go();
}

/* unlearn forgets one that has ended. */
static void unlearn(CUcontext context) {
  pthread_mutex_lock(&naming);
  known **at = &contexts;
  while (*at && (*at)->context != context) at = &(*at)->next;
  known *k = *at;
  if (k) *at = k->next;
  pthread_mutex_unlock(&naming);
  free(k);
  __atomic_fetch_add(&contexts_changed, 1, __ATOMIC_RELEASE);
}

static known find_context(CUcontext context) {
  known found = {.card = NULL};
  pthread_mutex_lock(&naming);
  for (known *k = contexts; k && !found.card; k = k->next)
    if (k->context == context) found = *k;
  pthread_mutex_unlock(&naming);
  return found;
}

bool yc_green(CUcontext context) { return __atomic_load_n(&any_green, __ATOMIC_RELAXED) && find_context(context).green; }

/* asked is the card of a context that the driver is asked for; NULL: it does not say. */
static yc_card *asked(CUcontext context) {
  CUcontext current = NULL;
  CUdevice d = -1;
  if (!cu.ctxGetCurrent(&current) && current == context) cu.ctxGetDevice(&d);
  else if (cu.ctxPush && cu.ctxPop && !cu.ctxPush(context)) cu.ctxGetDevice(&d), cu.ctxPop(&context);
  return yc_of_device(d);
}

yc_card *yc_of_context(CUcontext context) {
  static _Thread_local struct {
    CUcontext context;
    unsigned changed;
    yc_card *card;
  } last; /* that this thread asked for */
  if (cards_n < 2 || !context) return cards;
  unsigned changed = __atomic_load_n(&contexts_changed, __ATOMIC_ACQUIRE);
  if (last.context == context && last.changed == changed) return last.card;
  yc_stay();
  yc_card *c = find_context(context).card;
  yc_go();
  CUcontext current = NULL;
  if (!c) c = asked(context);
  if (!c && !cu.ctxGetCurrent(&current) && current) c = find_context(current).card; /* where it is used */
  if (!c) return cards;
  last.context = context, last.changed = changed, last.card = c;
  return c;
}

const char *yc_bus(yc_card *c) { return c->bus; }

yc_card *yc_here(void) {
  CUcontext current = NULL;
  return cards_n < 2 || cu.ctxGetCurrent(&current) ? cards : yc_of_context(current);
}

/* ask says a letter and waits for answers. */
static bool ask(yc_card *c, char letter, uint64_t word, int answers) {
  bool ok = put(c, letter, word);
  while (ok && !c->dead && (c->answered & answers) != answers) pthread_cond_wait(&c->changed, &c->lock);
  return ok && !c->dead;
}

bool yc_take(yc_card *c, uint64_t n) {
  yc_stay();
  pthread_mutex_lock(&c->asking);
  pthread_mutex_lock(&c->lock);
  c->answered = 0;
  bool ok = c->connected && ask(c, 'T', n, 1) && c->taken;
  pthread_mutex_unlock(&c->lock);
  pthread_mutex_unlock(&c->asking);
  yc_go();
  return ok;
}

void yc_give(yc_card *c, uint64_t n) {
  yc_stay();
  if (n && c->connected) put(c, 'B', n);
  yc_go();
}

bool yc_memory(yc_card *c, uint64_t *limit, uint64_t *used) {
  yc_stay();
  pthread_mutex_lock(&c->asking);
  pthread_mutex_lock(&c->lock);
  c->answered = 0;
  bool ok = c->connected && ask(c, 'Q', 0, 2 | 4);
  *limit = c->limit, *used = c->used;
  pthread_mutex_unlock(&c->lock);
  pthread_mutex_unlock(&c->asking);
  yc_go();
  return ok;
}

bool yc_pages(yc_card *c) { return __atomic_load_n(&c->pages, __ATOMIC_RELAXED); }

static const CUstream legacy = (CUstream)1, perThread = (CUstream)2;

/* owner is the thread whose default stream this is, or 0. */
static pid_t owner(CUstream s) { return s == perThread ? (pid_t)syscall(SYS_gettid) : 0; }

/* of finds what a stream was given, or makes room; NULL: there is none. The caller has the lock. */
static work *of(yc_card *c, CUcontext context, CUstream s) {
  pid_t thread = owner(s);
  work *free = NULL;
  for (int i = 0; i < c->works_n; i++) {
    work *w = c->works + i;
    if (w->context == context && w->stream == s && w->thread == thread) return w;
    if (!free && w->context == context && !w->pending) free = w; /* its events can be used again */
  }
  if (c->works_n < STREAMS) {
    work made = {.context = context};
    enum { UNTIMED = 2 };
    int mode = 2;
    if (cu.captureMode) cu.captureMode(&mode);
    bool bad = cu.eventCreate(&made.last, UNTIMED) || cu.eventCreate(&made.mark, UNTIMED);
    if (cu.captureMode) cu.captureMode(&mode);
    if (bad) return free;
    free = c->works + c->works_n++;
    *free = made;
  }
  if (free) free->stream = s, free->thread = thread, free->marked = false;
  return free;
}

bool yc_capturing(CUstream s) {
  int status = 0;
  return cu.streamIsCapturing && (cu.streamIsCapturing(s, &status) || status);
}

/* yc_context_of is a stream's context, which need not be current: of a green one's streams the
 * primary may be. */
CUcontext yc_context_of(CUstream s) {
  CUcontext of = NULL;
  if ((uintptr_t)s > (uintptr_t)perThread && cu.streamGetCtx && cu.ctxPush && cu.ctxPop && !cu.streamGetCtx(s, &of) && of) return of;
  of = NULL;
  return cu.ctxGetCurrent(&of) ? NULL : of;
}

yc_card *yc_of_stream(CUstream s) { return cards_n < 2 ? cards : yc_of_context(yc_context_of(s)); }

/* behind waits while what a stream was given a while ago is undone: else a turn
 * would end long after its time. Work that waits for what the program does next
 * is not waited for without end. */
static void behind(yc_card *c, CUcontext context, CUstream s) {
  pid_t thread = owner(s);
  if (!context) return;
  pthread_mutex_lock(&c->lock);
  CUevent mark = NULL;
  for (work *w = c->works; w < c->works + c->works_n; w++)
    if (w->context == context && w->stream == s && w->thread == thread && w->marked && (c->slow || now() - w->marked_at > ahead)) mark = w->mark;
  pthread_mutex_unlock(&c->lock);
  if (!mark) return;
  int mode = 2;
  if (cu.captureMode) cu.captureMode(&mode);
  for (int64_t late = now() + stuckStep; !done(cu.eventQuery(mark)) && now() < late;) nanosleep(&(struct timespec){0, MS / 10}, NULL);
  if (cu.captureMode) cu.captureMode(&mode);
  pthread_mutex_lock(&c->lock);
  for (work *w = c->works; w < c->works + c->works_n; w++)
    if (w->mark == mark && w->marked) c->slow = now() - w->marked_at >= slow, w->marked = false;
  pthread_mutex_unlock(&c->lock);
}

static _Thread_local bool captured; /* what was begun is not computed, but put into a graph */

/* From its beginning to its end work is whole: no thread is canceled in between. */
yc_card *yc_begin(CUstream s, bool copies) {
  int status = 0;
  if (!cards_n) return NULL;
  yc_stay();
  if (!s) s = legacy;
  captured = cu.streamIsCapturing && !cu.streamIsCapturing(s, &status) && status;
  if (captured) return cards; /* meanwhile others may do less: it is not to wait */
  CUcontext context = yc_context_of(s);
  yc_card *c = yc_of_context(context);
  behind(c, context, s);
  pthread_mutex_lock(&c->lock);
  c->waiting++;
  for (int64_t came = now(); !c->dead; ) {
    int64_t t = now();
    if (!c->draining && c->until > t) break;
    if (c->draining && t - c->drains > stuck && t - came > stuckStep) break;
    if (!c->until && !c->wanted && !c->draining) {
      c->wanted = true;
      put(c, 'W', 0);
    }
    if (c->until) pthread_cond_signal(&c->due); /* its time is over */
    if (c->draining) wait_until(c, &c->changed, t + stuckStep);
    else pthread_cond_wait(&c->changed, &c->lock);
  }
  c->waiting--;
  bool ok = !c->dead;
  if (ok) c->calls++, c->came++, c->copying += copies || c->blocking, c->quiet = 0;
  pthread_mutex_unlock(&c->lock);
  if (!ok) yc_go();
  return ok ? c : NULL;
}

/* done_by waits for work of a stream that no event can be recorded for, as of one of a green
 * context that another thread has; not for long, as it may wait for the program. */
static void done_by(yc_card *c, CUstream s) {
  if (!cu.streamQuery || c->ends) return;
  pthread_mutex_lock(&c->lock);
  c->copying++; /* the device is busy */
  pthread_mutex_unlock(&c->lock);
  for (int64_t late = now() + stuck; !done(cu.streamQuery(s)) && now() < late;) nanosleep(&(struct timespec){0, MS / 10}, NULL);
  pthread_mutex_lock(&c->lock);
  c->copying--;
  pthread_mutex_unlock(&c->lock);
}

void yc_end(yc_card *c, CUstream s, bool copies) {
  CUcontext by = NULL, context;
  if (captured) {
    yc_go();
    return;
  }
  if (!s) s = legacy;
  bool counts = !cu.ctxGetCurrent(&by) && by && !yc_capturing(s), pushed = false;
  context = counts ? yc_context_of(s) : by;
  if (counts && context != by && !(pushed = !cu.ctxPush(context))) context = by; /* events are of the stream's */
  pthread_mutex_lock(&c->lock);
  work *w = counts && !c->ends ? of(c, context, s) : NULL;
  bool marked = w && !cu.eventRecord(w->last, s);
  if (marked) {
    w->pending = true, w->number++, w->by = by, w->green = yc_green(context) || yc_green(by);
    if (!w->marked && !cu.eventRecord(w->mark, s)) w->marked = true, w->marked_at = now();
  }
  if (counts && !marked) {
    pthread_mutex_unlock(&c->lock);
    done_by(c, s);
    pthread_mutex_lock(&c->lock);
  }
  c->came++, c->copying -= copies || c->blocking;
  if (!--c->calls && c->draining) pthread_cond_signal(&c->due);
  pthread_mutex_unlock(&c->lock);
  if (pushed) cu.ctxPop(&context);
  yc_go();
}

void yc_hold(yc_card *c) {
  yc_stay();
  pthread_mutex_lock(&c->lock);
}

void yc_forget(yc_card *c, CUcontext ended) {
  int kept = 0;
  for (int i = 0; i < c->works_n; i++)
    if (c->works[i].context != ended) c->works[kept++] = c->works[i];
  c->works_n = kept;
  unlearn(ended);
}

void yc_go_on(yc_card *c) {
  pthread_mutex_unlock(&c->lock);
  yc_go();
}
