/* What programs do to their process, and to what they have not made. Each line says what came of it. */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define _GNU_SOURCE
#include <CL/cl.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 4096, GUARDED = 1 << 20 };

typedef struct {
  cl_context context;
  cl_command_queue queue;
  cl_program program;
  cl_kernel kernel;
  cl_mem mem;
} made;

static void must(cl_int e, const char *what) {
  if (e == CL_SUCCESS) return;
  printf("failed %s %d\n", what, e);
  fflush(stdout);
  _exit(1);
}

static made make(cl_device_id device) {
  const char *text = "kernel void add(global int *a, int by) { a[get_global_id(0)] += by; }";
  cl_int zero = 0, e;
  cl_platform_id platform;
  made m;
  if (!device) must(clGetPlatformIDs(1, &platform, NULL), "platform"), must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
  m.context = clCreateContext(NULL, 1, &device, NULL, NULL, &e), must(e, "context");
  m.queue = clCreateCommandQueue(m.context, device, 0, &e), must(e, "queue");
  m.program = clCreateProgramWithSource(m.context, 1, &text, NULL, &e), must(e, "program");
  must(clBuildProgram(m.program, 1, &device, "", NULL, NULL), "build");
  m.kernel = clCreateKernel(m.program, "add", &e), must(e, "kernel");
  m.mem = clCreateBuffer(m.context, CL_MEM_READ_WRITE, WORDS * sizeof zero, NULL, &e), must(e, "buffer");
  must(clEnqueueFillBuffer(m.queue, m.mem, &zero, sizeof zero, 0, WORDS * sizeof zero, 0, NULL, NULL), "fill");
  must(clSetKernelArg(m.kernel, 0, sizeof m.mem, &m.mem), "argument");
  return m;
}

/* add adds to all words and returns what one has then; the first that fails says why. */
static cl_int add(const made *m, cl_int by, cl_int *now) {
  const size_t n = WORDS;
  cl_int e = clSetKernelArg(m->kernel, 1, sizeof by, &by);
  if (!e) e = clEnqueueNDRangeKernel(m->queue, m->kernel, 1, NULL, &n, NULL, 0, NULL, NULL);
  if (!e) e = clEnqueueReadBuffer(m->queue, m->mem, CL_TRUE, (WORDS - 1) * sizeof *now, sizeof *now, now, 0, NULL, NULL);
  return e;
}

/* computes says whether it adds rightly so many times. */
static bool computes(const made *m, int times) {
  cl_int before, now;
  must(add(m, 0, &before), "add");
  for (cl_int i = 1; i <= times; i++) {
    must(add(m, i, &now), "add");
    if ((before += i) != now) return false;
  }
  return true;
}

/* sockets lists the numbers of sockets, but for these. */
static int sockets(int *list, int most, const int *but, int n_but) {
  int n = 0;
  for (int fd = 3; fd < 1 << 16 && n < most; fd++) {
    struct stat s;
    bool own = fstat(fd, &s) || !S_ISSOCK(s.st_mode);
    for (int i = 0; i < n_but; i++) own |= but[i] == fd;
    if (!own) list[n++] = fd;
  }
  return n;
}

/* A program closes the numbers that it might have, up to 1023 or to its limit. It computes on. */
static void closes(const char *upto) {
  made m = make(NULL);
  bool before = computes(&m, 3);
  int end = strcmp(upto, "limit") ? 1024 : (int)sysconf(_SC_OPEN_MAX);
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  for (int fd = 3; fd < end; fd++) close(fd);
  printf("limit %d, before %d, after %d\n", (int)limit.rlim_cur, before, computes(&m, 3));
}

/* It closes the library's number, too, and has it for a connection of its own, of which nothing is to be taken, and to
 * which nothing is to be said. How: what it does between the last call before and the first after. */
static void foreign(const char *how) {
  static const char own[] = "what is said to the program";
  int list[4], pair[2], n;
  char got[64] = {0};
  cl_int now = 0, e = 0;
  made m = make(NULL);
  if (!computes(&m, 3) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || !(n = sockets(list, 4, pair, 2))) exit(1);
  if (!strcmp(how, "later")) usleep(200000);
  for (int i = 0; i < n; i++)
    if (dup2(pair[0], list[i]) != list[i]) exit(1);
  if (write(pair[1], own, sizeof own) != sizeof own) exit(1);
  for (int i = 0; i < 50 && !e; i++) e = add(&m, 1, &now), usleep(i ? 2000 : 0);
  printf("fails %d", e);
  printf(", again %d", add(&m, 1, &now));
  pid_t child = fork();
  if (!child) _exit(fcntl(list[0], F_GETFD) < 0); /* nor closed, in a child */
  int status = 1;
  waitpid(child, &status, 0);
  printf(", a child has it %d", !status);
  ssize_t k = recv(pair[1], got, sizeof got, MSG_DONTWAIT);
  printf(", said %d", (int)k), k = recv(pair[0], got, sizeof got, MSG_DONTWAIT);
  printf(", heard '%s' %d", got, (int)k);
  printf(", open %d\n", write(list[0], "x", 1) == 1 && read(pair[1], got, 1) == 1);
}

static cl_device_id first_device(void) {
  cl_platform_id platform;
  cl_device_id device;
  must(clGetPlatformIDs(1, &platform, NULL), "platform");
  must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
  return device;
}

/* What a child does with what its parent has: each call fails, and what it lets go of it may. */
static int heir(const made *m, cl_device_id device, bool anew) {
  cl_int now = 0, e, zero = 0;
  int wrong = 0;
  cl_ulong memory = 0;
  for (int i = 0; i <= anew; i++) { /* also when it has a connection of its own */
    wrong += clSetKernelArg(m->kernel, 1, sizeof zero, &zero) != CL_INVALID_KERNEL;
    wrong += clFinish(m->queue) != CL_INVALID_COMMAND_QUEUE;
    wrong += clEnqueueReadBuffer(m->queue, m->mem, CL_TRUE, 0, sizeof now, &now, 0, NULL, NULL) != CL_INVALID_COMMAND_QUEUE;
    wrong += clEnqueueWriteBuffer(m->queue, m->mem, CL_FALSE, 0, sizeof now, &now, 0, NULL, NULL) != CL_INVALID_COMMAND_QUEUE;
    clCreateBuffer(m->context, CL_MEM_READ_WRITE, 64, NULL, &e), wrong += e != CL_INVALID_CONTEXT;
    wrong += clRetainMemObject(m->mem) != CL_SUCCESS, wrong += clReleaseMemObject(m->mem) != CL_SUCCESS;
    if (!anew) continue;
    if (!i) wrong += clGetDeviceInfo(device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof memory, &memory, NULL) != CL_SUCCESS || !memory;
    made own = make(i ? NULL : device); /* handles of devices are a child's, too */
    wrong += !computes(&own, 20);
    clReleaseMemObject(own.mem), clReleaseKernel(own.kernel), clReleaseProgram(own.program), clReleaseCommandQueue(own.queue), clReleaseContext(own.context);
  }
  clReleaseMemObject(m->mem), clReleaseKernel(m->kernel), clReleaseProgram(m->program), clReleaseCommandQueue(m->queue), clReleaseContext(m->context);
  return wrong;
}

/* Children of fork, at once with their parent, which computes on and has what they have let go of. */
static void forks(int n) {
  cl_device_id device = first_device();
  made m = make(device);
  bool right = computes(&m, 3);
  for (int i = 0; i < n; i++) {
    pid_t child = fork();
    if (!child) _exit(heir(&m, device, i % 2));
    if (child < 0) exit(1);
  }
  int status, wrong = 0;
  for (int left = n; left > 0;) {
    right &= computes(&m, 5);
    pid_t child = waitpid(-1, &status, WNOHANG);
    if (child > 0) left--, wrong += status != 0;
  }
  right &= computes(&m, 3);
  clReleaseMemObject(m.mem), clReleaseKernel(m.kernel), clReleaseProgram(m.program), clReleaseCommandQueue(m.queue), clReleaseContext(m.context);
  printf("parent %d, children that failed %d\n", right, wrong);
}

static int threads(void) {
  int n = 0;
  DIR *all = opendir("/proc/self/task");
  for (struct dirent *i; (i = readdir(all));) n += *i->d_name != '.';
  closedir(all);
  return n;
}

static int called, wrong_status;
static void CL_CALLBACK counts(cl_event e, cl_int status, void *none) {
  (void)e, (void)none;
  __atomic_add_fetch(&called, 1, __ATOMIC_SEQ_CST);
  if (status != CL_COMPLETE) __atomic_add_fetch(&wrong_status, 1, __ATOMIC_SEQ_CST);
}

static void CL_CALLBACK sets(cl_event e, cl_int status, void *next) {
  counts(e, status, NULL);
  if (next) must(clSetUserEventStatus(next, CL_COMPLETE), "set");
}

static void await_called(int n) {
  for (int i = 0; i < 60000 && __atomic_load_n(&called, __ATOMIC_SEQ_CST) < n; i++) usleep(1000);
}

/* Functions are to be called when commands of a queue without order end, which wait; of other events, from the last to
 * the first; and of such of which each ends by what is called for the one after it. */
static void notices(int n) {
  enum { CHAIN = 200 };
  cl_int e, zero = 0;
  cl_device_id device = first_device();
  made m = make(device);
  cl_command_queue loose = clCreateCommandQueue(m.context, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &e);
  must(e, "queue without order");
  cl_event start = clCreateUserEvent(m.context, &e), *all = calloc((size_t)n, sizeof *all);
  must(e, "event");
  int before = threads(), most = 0;
  for (int i = 0; i < n; i++) {
    must(clEnqueueFillBuffer(loose, m.mem, &zero, sizeof zero, 0, sizeof zero, 1, &start, &all[i]), "fill");
    must(clSetEventCallback(all[i], CL_COMPLETE, counts, NULL), "callback");
  }
  most = threads() - before;
  must(clSetUserEventStatus(start, CL_COMPLETE), "set");
  must(clFinish(loose), "finish");
  printf("called %d when all is done\n", called);
  for (int i = 0; i < n; i++) must(clReleaseEvent(all[i]), "release");
  called = 0;
  for (int i = 0; i < n; i++) {
    all[i] = clCreateUserEvent(m.context, &e), must(e, "event");
    must(clSetEventCallback(all[i], CL_COMPLETE, counts, NULL), "callback");
  }
  most = threads() - before > most ? threads() - before : most;
  for (int i = n; i-- > 0;) must(clSetUserEventStatus(all[i], CL_COMPLETE), "set");
  must(clWaitForEvents(1, all), "wait");
  await_called(n);
  printf("called %d from the last on\n", called);
  for (int i = 0; i < n; i++) must(clReleaseEvent(all[i]), "release");
  called = 0;
  for (int i = 0; i < CHAIN; i++) {
    all[i] = clCreateUserEvent(m.context, &e), must(e, "event");
    must(clSetEventCallback(all[i], CL_COMPLETE, sets, i ? all[i - 1] : NULL), "callback");
  }
  must(clSetUserEventStatus(all[CHAIN - 1], CL_COMPLETE), "set");
  await_called(CHAIN);
  printf("called %d in a chain, %d with a wrong status\n", called, wrong_status);
  fprintf(stderr, "%d threads more\n", most);
}

typedef struct {
  const made *of;
  size_t bytes;
  int rounds;
  bool right;
} copies;

/* moves writes and reads a buffer of its own, of which each time all has another value. */
static void *moves(void *p) {
  copies *w = p;
  cl_int e;
  uint8_t *host = malloc(w->bytes);
  cl_mem m = clCreateBuffer(w->of->context, CL_MEM_READ_WRITE, w->bytes, NULL, &e);
  w->right = !e && host;
  for (int i = 1; i <= w->rounds && w->right; i++) {
    memset(host, i, w->bytes);
    w->right = !clEnqueueWriteBuffer(w->of->queue, m, i % 2 ? CL_TRUE : CL_FALSE, 0, w->bytes, host, 0, NULL, NULL) && !clFinish(w->of->queue);
    memset(host, 0, w->bytes);
    w->right &= !clEnqueueReadBuffer(w->of->queue, m, CL_TRUE, 0, w->bytes, host, 0, NULL, NULL);
    w->right &= host[0] == (uint8_t)i && !memcmp(host, host + 1, w->bytes - 1);
  }
  clReleaseMemObject(m), free(host);
  return NULL;
}

/* at_once has n threads do that, each with so much of a stack (0: as ever), and says how many were right. */
static int at_once(const made *m, int n, size_t bytes, int rounds, size_t stack) {
  pthread_t *t = calloc((size_t)n, sizeof *t);
  copies *w = calloc((size_t)n, sizeof *w);
  pthread_attr_t attr;
  int right = 0;
  pthread_attr_init(&attr);
  if (stack && pthread_attr_setstacksize(&attr, stack)) exit(1);
  for (int i = 0; i < n; i++) {
    w[i] = (copies){m, bytes, rounds, false};
    if (pthread_create(&t[i], &attr, moves, &w[i])) exit(1);
  }
  for (int i = 0; i < n; i++) pthread_join(t[i], NULL), right += w[i].right;
  free(t), free(w);
  return right;
}

static int alarms;
static void alarmed(int number) {
  (void)number;
  __atomic_add_fetch(&alarms, 1, __ATOMIC_RELAXED);
}

/* Signals of timers come all the time, to any thread, from the start on. */
static void signals(int restarts) {
  const struct sigaction on = {.sa_handler = alarmed, .sa_flags = restarts ? SA_RESTART : 0};
  const struct itimerval often = {{0, 1000}, {0, 1000}};
  sigaction(SIGALRM, &on, NULL), sigaction(SIGPROF, &on, NULL);
  setitimer(ITIMER_REAL, &often, NULL), setitimer(ITIMER_PROF, &often, NULL);
  made m = make(NULL);
  int right = at_once(&m, 3, 3 << 20, 20, 0) + at_once(&m, 2, 100, 200, 0);
  for (int before = alarms; alarms < before + 20;) right -= !computes(&m, 5);
  printf("threads that were right %d, signals %d\n", right, alarms > 50);
}

/* All is done, from connecting on, by threads with small stacks. */
static void *small(void *p) {
  made m = make(NULL);
  *(int *)p = computes(&m, 5);
  return NULL;
}
static void stacks(int n) {
  pthread_t t;
  pthread_attr_t attr;
  made m;
  int right = 0;
  pthread_attr_init(&attr);
  if (pthread_attr_setstacksize(&attr, (size_t)n << 10) || pthread_create(&t, &attr, small, &right)) exit(1);
  pthread_join(t, NULL);
  m = make(NULL);
  printf("right %d, threads %d\n", right, at_once(&m, 4, 200000, 10, (size_t)n << 10));
}

/* Many threads at once. */
static void many(int n) {
  made m = make(NULL);
  printf("threads that were right %d\n", at_once(&m, n, 64, 3, 64 << 10));
}

static void *waits(void *e) {
  clWaitForEvents(1, (cl_event *)e);
  pthread_testcancel();
  return NULL;
}
static void *finishes(void *q) {
  clFinish(q);
  pthread_testcancel();
  return NULL;
}

/* Threads that wait are canceled, among them the one that reads for all. Others call on meanwhile. */
static void cancels(void) {
  enum { N = 8 };
  made m = make(NULL);
  cl_event e[N];
  pthread_t t[N], last;
  int right = 0, canceled = 0;
  cl_int bad;
  void *result;
  for (int i = 0; i < N; i++) {
    e[i] = clCreateUserEvent(m.context, &bad), must(bad, "event");
    if (pthread_create(&t[i], NULL, waits, &e[i])) exit(1);
    if (i == 0) usleep(20000); /* it reads */
  }
  usleep(20000);
  for (int i = 0; i < N; i++) pthread_cancel(t[i]);
  for (int i = 0; i < 20; i++) right += computes(&m, 2);
  for (int i = 0; i < N; i++) must(clSetUserEventStatus(e[i], CL_COMPLETE), "set");
  for (int i = 0; i < N; i++) pthread_join(t[i], &result), canceled += result == PTHREAD_CANCELED;
  if (pthread_create(&last, NULL, finishes, m.queue)) exit(1);
  pthread_cancel(last), pthread_join(last, NULL);
  printf("right %d, canceled %d, then %d\n", right, canceled, computes(&m, 20));
}

static void *on_and_on(void *p) {
  copies w = {p, 50000, 1, true};
  while (w.right) moves(&w);
  return NULL;
}
static made at_exit;
static void computes_still(void) { printf("at exit it computes %d\n", computes(&at_exit, 3)); }

/* exit is called while other threads compute; last is called what computes, too, and what aborts, if it says so. */
static void ends(const char *how) {
  pthread_t t;
  at_exit = make(NULL);
  if (!strcmp(how, "abort")) atexit(abort);
  atexit(computes_still);
  for (int i = 0; i < 4; i++)
    if (pthread_create(&t, NULL, on_and_on, &at_exit)) _exit(1);
  usleep(20000);
  exit(0);
}

static uint8_t *guarded;
static int touched;
static void opens(int number, siginfo_t *at, void *context) {
  uintptr_t page = (uintptr_t)at->si_addr & ~(uintptr_t)4095;
  (void)context;
  if (page < (uintptr_t)guarded || page >= (uintptr_t)guarded + GUARDED) signal(number, SIG_DFL);
  else touched++, mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
}

/* Pages of the program's can be used when they were touched only, as collectors of garbage have it. */
static void guards(void) {
  made m = make(NULL);
  cl_int e;
  static uint8_t stack[64 << 10];
  const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
  const struct sigaction on = {.sa_sigaction = opens, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  guarded = mmap(NULL, GUARDED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  cl_mem mem = clCreateBuffer(m.context, CL_MEM_READ_WRITE, GUARDED, NULL, &e);
  must(e, "buffer");
  sigaltstack(&other, NULL), sigaction(SIGSEGV, &on, NULL);
  for (size_t i = 0; i < GUARDED; i++) guarded[i] = (uint8_t)(i * 2654435761u >> 24);
  mprotect(guarded, GUARDED, PROT_NONE);
  must(clEnqueueWriteBuffer(m.queue, mem, CL_TRUE, 0, GUARDED, guarded, 0, NULL, NULL), "write");
  int written = touched, wrong = 0;
  memset(guarded, 0, GUARDED);
  mprotect(guarded, GUARDED, PROT_NONE);
  must(clEnqueueReadBuffer(m.queue, mem, CL_TRUE, 0, GUARDED, guarded, 0, NULL, NULL), "read");
  for (size_t i = 0; i < GUARDED; i++) wrong += guarded[i] != (uint8_t)(i * 2654435761u >> 24);
  printf("wrong %d, touched %d and %d\n", wrong, written == GUARDED / 4096, touched - written >= GUARDED / 4096);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "", *how = argc > 2 ? argv[2] : "";
  if (!strcmp(what, "closes")) closes(how);
  else if (!strcmp(what, "foreign")) foreign(how);
  else if (!strcmp(what, "forks")) forks(atoi(how));
  else if (!strcmp(what, "notices")) notices(atoi(how));
  else if (!strcmp(what, "signals")) signals(atoi(how));
  else if (!strcmp(what, "stacks")) stacks(atoi(how));
  else if (!strcmp(what, "many")) many(atoi(how));
  else if (!strcmp(what, "cancels")) cancels();
  else if (!strcmp(what, "ends")) ends(how);
  else if (!strcmp(what, "guards")) guards();
  else return 2;
  return 0;
}
