/* Functions of the program that are called when commands have come so far.
 *
 * Those of a queue that keeps order, or of one event, are called one after the
 * other (a lane); each lane has a thread, which waits. Of lanes beyond a number of
 * threads one, the watch, asks how far they are, in turn, and has threads for those
 * only whose functions are to be called: what a thread waits for may come after
 * what such a function does. A thread whose lane is through has the next. Few wait:
 * an answer of the worker wakes all that do. */
#include "pool.h"
#include <signal.h>
#include <time.h>

enum { WAITING = 8, MOST = 64, AT_ONCE = 64 }; /* threads that wait, all threads, lanes that are asked for before a pause */

typedef struct notice {
  cl_event event;
  cl_int when;
  void(CL_CALLBACK *call)(cl_event, cl_int, void *);
  void *data;
  bool own;     /* the library's: it is quick, and what the program waits for may wait for it */
  object *lane; /* NULL: it is alone */
  struct notice *next, *after; /* of its lane, of the crowd */
  cl_command_queue queue;
  uint64_t number;
  int64_t began; /* its callback, in milliseconds; 0: it was not called yet */
  struct notice *other, **back; /* of all that are not told */
} notice;

static pthread_mutex_t noticing = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t noticed; /* one was told, or somebody waits for that */
static notice *untold;
static uint64_t notices_made;
static struct {
  notice *first, *last; /* of lanes that have no thread */
  int threads, hearers;
  bool watched;
} crowd;
static _Thread_local bool telling;

/* yp_notices_in_child is called when the library is loaded, too. Nobody sets the clock that is waited by. */
void yp_notices_in_child(void) {
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_mutex_init(&noticing, NULL), pthread_cond_init(&noticed, &attr);
  pthread_condattr_destroy(&attr);
  untold = NULL, memset(&crowd, 0, sizeof crowd); /* its threads are the parent's */
}

static int64_t since(const notice *n) { return __atomic_load_n(&n->began, __ATOMIC_RELAXED); }

static int64_t milliseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000 + 1;
}

/* pause_noticing gives `noticing` back for so many microseconds, or until a notice was told or is waited for. */
static void pause_noticing(long us) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  t.tv_nsec += us * 1000;
  t.tv_sec += t.tv_nsec / 1000000000, t.tv_nsec %= 1000000000;
  pthread_cond_timedwait(&noticed, &noticing, &t);
}

/* yp_notices returns how many callbacks of events were asked for so far. */
uint64_t yp_notices(void) {
  pthread_mutex_lock(&noticing);
  uint64_t n = notices_made;
  pthread_mutex_unlock(&noticing);
  return n;
}

/* yp_hear waits until the callbacks of events that are complete, or the first so many, of a queue that is, have been
 * called: drivers call them before they say that a command is complete, and programs take away what callbacks use
 * when they have heard that. A callback that takes long may wait for what the program does next. */
void yp_hear(cl_uint n, const cl_event *events, cl_command_queue q, uint64_t until) {
  enum { LONG = 100 };
  yp_stay();
  pthread_mutex_lock(&noticing);
  bool more = untold && !telling;
  crowd.hearers++;
  if (more) pthread_cond_broadcast(&noticed);
  while (more) {
    more = false;
    int64_t at = milliseconds();
    bool slow = false;
    for (const notice *i = untold; i; i = i->other) {
      bool of = q && i->queue == q;
      for (cl_uint k = 0; k < n && !of; k++) of = i->event == events[k];
      more |= of && i->number <= until, slow |= since(i) > 0 && at - since(i) > LONG;
    }
    more &= !slow;
    if (more) pause_noticing(10000);
  }
  crowd.hearers--;
  pthread_mutex_unlock(&noticing);
  yp_go();
}

/* there asks whether a command has come so far, or to nothing. */
static bool there(const notice *n, cl_int *status) {
  cl_int bad = obj(n->event)->dispatch->clGetEventInfo(n->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof *status, status, NULL);
  if (bad) *status = bad;
  return bad || *status <= n->when;
}

/* That a command was submitted or runs is asked for again and again: few want to know, and what lets it end may be the callback. */
static void tell(notice *n) {
  const cl_icd_dispatch *d = obj(n->event)->dispatch;
  telling = true;
  cl_int status = CL_QUEUED, failed = n->when == CL_COMPLETE ? d->clWaitForEvents(1, &n->event) : CL_SUCCESS;
  for (long pause = 100; !there(n, &status) && !failed; pause += pause < 10000 ? pause : 0) {
    pthread_mutex_lock(&noticing);
    pause_noticing(pause);
    pthread_mutex_unlock(&noticing);
  }
  __atomic_store_n(&n->began, milliseconds(), __ATOMIC_RELAXED);
  n->call(n->event, status < 0 ? status : failed ? failed : n->when, n->data);
}

static void told(notice *n) {
  pthread_mutex_lock(&noticing);
  *n->back = n->other;
  if (n->other) n->other->back = n->back;
  pthread_cond_broadcast(&noticed);
  pthread_mutex_unlock(&noticing);
  obj(n->event)->dispatch->clReleaseEvent(n->event);
  free(n);
}

/* take takes the first of the crowd. The caller has the lock. */
static notice *take(void) {
  notice *n = crowd.first;
  if (n && !(crowd.first = n->after)) crowd.last = NULL;
  return n;
}

static void put(notice *n) {
  n->after = NULL;
  if (crowd.last) crowd.last->after = n;
  else crowd.first = n;
  crowd.last = n;
}

/* tell_next tells a notice, and returns the next of its lane, if there is a thread to spare for that. */
static notice *tell_next(notice *n, bool spare) {
  object *lane = n->lane;
  tell(n);
  pthread_mutex_lock(&noticing);
  notice *next = lane ? lane->notices = n->next : NULL; /* nothing comes before it */
  if (next && !(spare && crowd.threads <= WAITING)) put(next), next = NULL;
  pthread_mutex_unlock(&noticing);
  told(n); /* the lane may go now, if nothing is left of it */
  return next;
}

static void *serve(void *first) {
  for (notice *n = first, *next; n; n = next) {
    next = tell_next(n, true);
    pthread_mutex_lock(&noticing);
    if (!next && crowd.threads <= WAITING) next = take();
    if (!next) crowd.threads--;
    pthread_mutex_unlock(&noticing);
  }
  return NULL;
}

/* yp_thread starts a thread, which has no signals but those of its own faults: the others are for the program's. */
bool yp_thread(void *(*run)(void *), void *with) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
  pthread_t t;
  sigset_t none, before;
  sigfillset(&none);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&none, faults[i]);
  pthread_sigmask(SIG_BLOCK, &none, &before);
  bool ok = !pthread_create(&t, NULL, run, with);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (ok) pthread_detach(t);
  return ok;
}

static bool served(notice *n) {
  bool ok = yp_thread(serve, n);
  crowd.threads += ok;
  return ok;
}

static void *watch(void *none) {
  enum { SHORT = 500, LONG = 4000 }; /* microseconds */
  long pause = SHORT;
  pthread_mutex_lock(&noticing);
  while (crowd.first || crowd.threads > WAITING) { /* such a thread may have more for it */
    bool some = false;
    notice *n;
    for (int i = 0; i < AT_ONCE && (n = take()); i++) {
      cl_int status;
      const bool own = n->own;
      bool so = own || crowd.threads < MOST;
      if (so) {
        pthread_mutex_unlock(&noticing);
        so = there(n, &status);
        if (so && own) tell_next(n, false);
        pthread_mutex_lock(&noticing);
      }
      if (so && (own || served(n))) some = true;
      else put(n);
    }
    pause = some || crowd.hearers ? SHORT : pause < LONG ? 2 * pause : LONG;
    if (!some) pause_noticing(pause);
  }
  crowd.watched = false;
  pthread_mutex_unlock(&noticing);
  return none;
}

/* seen has somebody see to a lane. The caller has the lock. */
static bool seen(notice *n) {
  if (crowd.threads < WAITING && served(n)) return true;
  if (!crowd.watched) crowd.watched = yp_thread(watch, NULL);
  if (crowd.watched) put(n);
  return crowd.watched;
}

static bool earlier(const notice *a, const notice *b) { return obj(a->event)->id < obj(b->event)->id || (a->event == b->event && a->when > b->when); }

/* lane_of returns whose notices a notice keeps its order with: those of a queue that keeps order, or of the same event. */
static object *lane_of(cl_event e) {
  object *o = obj(e);
  if (o->kind != EVENT) return NULL;
  return o->parent->kind == QUEUE && yp_ordered(o->parent) ? o->parent : o;
}

/* noted has a function called when a command has come so far. One that comes before what the thread of its lane waits for
 * is a lane of its own. */
static cl_int noted(cl_event h, cl_int when, void(CL_CALLBACK *call)(cl_event, cl_int, void *), void *data, bool own) {
  if (!call || (when != CL_COMPLETE && when != CL_RUNNING && when != CL_SUBMITTED)) return CL_INVALID_VALUE;
  notice *n = malloc(sizeof *n);
  object *of = lane_of(h);
  bool ok = true;
  if (!n) return CL_OUT_OF_HOST_MEMORY;
  *n = (notice){.event = h, .when = when, .call = call, .data = data, .own = own};
  obj(h)->dispatch->clRetainEvent(h);
  obj(h)->dispatch->clGetEventInfo(h, CL_EVENT_COMMAND_QUEUE, sizeof n->queue, &n->queue, NULL);
  pthread_mutex_lock(&noticing);
  n->number = ++notices_made, n->other = untold, n->back = &untold;
  if (untold) untold->back = &n->other;
  untold = n;
  if (of && of->notices && !earlier(n, of->notices)) {
    notice *i = earlier(n, of->last) ? of->notices : of->last;
    while (i->next && !earlier(n, i->next)) i = i->next;
    n->next = i->next, i->next = n, n->lane = of;
    if (!n->next) of->last = n;
  } else {
    if (of && !of->notices) n->lane = of;
    ok = seen(n);
    if (ok && n->lane) of->notices = of->last = n;
  }
  pthread_mutex_unlock(&noticing);
  if (!ok) told(n);
  return ok ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
}

/* yp_notice has a function of the program called when a command has come so far, at one node or several. It may take as
 * long as it likes. */
cl_int yp_notice(cl_event h, cl_int when, void(CL_CALLBACK *call)(cl_event, cl_int, void *), void *data) { return noted(h, when, call, data, false); }

/* yp_when_over has a function of the library's, which takes no time, called when a command has ended, whatever the program's do. */
cl_int yp_when_over(cl_event h, void(CL_CALLBACK *call)(cl_event, cl_int, void *), void *data) { return noted(h, CL_COMPLETE, call, data, true); }
