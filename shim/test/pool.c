/* A program that uses OpenCL, as the tests run it natively and on a pool: it
 * must not know which. The first argument says what it does:
 *
 *   add [ROUNDS]     adds vectors in many ways and prints a checksum
 *   fill MiB         makes buffers of 1 MiB until one fails, and prints how many there were
 *   crumbs PIECES    the same with 4 KiB
 *   spin SECONDS [ROUNDS [AHEAD]]  keeps the device busy with kernels of so many rounds, of which
 *                    it gives so many before it waits for them, and prints how many it did
 *   late KERNELS     has so many kernels wait for events that it sets when the device has rested,
 *                    and prints in how many nanoseconds they were computed
 *   fails TIMES      sets so many events, for each of which a command waits, to an error
 *   rate SECONDS ROUNDS  waits for a line, and computes for so long; prints how many kernels it did
 *   crash            runs a kernel that writes where it must not
 *   forever          runs a kernel that never ends
 *   print            has kernels print, before and after it prints itself
 *   threads          waits in one thread for an event that another sets
 *   includes         builds with header files, for which it needs inc/empty and inc/sub here
 *   flood MiB        writes and reads so much without waiting for any of it
 *   peek FILE        builds a source that includes a file by its path, and prints the log
 *   unbuilt          asks for the log of a program that was not built
 *   asks             asks for what few programs do, and prints the answers
 *   walk [MiB]       computes until a line is typed, checks every step, and prints how many
 *                    there were and the longest of them in milliseconds
 *   cards [ROUNDS]   computes in one context over all devices, so that each needs what others
 *                    wrote, checks every step, and prints how many devices there were; with 0
 *                    rounds until a line is typed
 *   apart            has one of two devices compute for long, and sees that nothing waits for that
 *                    which need not
 *   between MiB      has the second device need what the first wrote, and prints in how many seconds it
 *                    is there, and how many the program needs to read it of one and to write it to the other
 *   store MiB        fills buffers of 1 MiB on all devices in turn, until there is no room on
 *                    one, checks each, and prints how many there were
 *   leave MiB        fills buffers of 1 MiB with what find knows, and ends when a line is typed
 *   find MiB         makes buffers of 1 MiB, and prints in how many words there is what leave left
 *   trips            says before and after each of several calls so, and goes on when a line is typed
 *   bench [PEER...]  prints times, one name and number in a line; of peers, too, which only
 *                    send a few bytes back: by a unix or tcp socket, a ring in memory, or one
 *                    on which both are asleep while they wait
 */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static cl_context context;
static cl_command_queue queue;
static cl_device_id device;
static cl_program program;

static void must(cl_int e, const char *what) {
  if (e == CL_SUCCESS) return;
  printf("failed %s %d\n", what, e);
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static const char *source = "kernel void add(global const float *a, global const float *b, global float *c) { size_t i = get_global_id(0); c[i] = a[i] + b[i]; }\n"
                            "kernel void scale(global float *a, float by, local float *room) { size_t i = get_global_id(0); room[get_local_id(0)] = a[i]; a[i] = room[get_local_id(0)] * by; }\n"
                            "kernel void none(void) {}\n"
                            "kernel void talk(uint n) { for (uint i = 0; i < n; i++) printf(\"kernel says line %d, which is as long as a line of text is on average\\n\", (int)i); }\n"
                            "kernel void spin(global uint *out, uint rounds) { uint x = get_global_id(0) + 1; for (uint i = 0; i < rounds; i++) { x ^= x << 13; x ^= x >> 17; x ^= x << 5; } out[get_global_id(0)] = x; }\n"
                            "kernel void advance(global uint *x, uint round, global const uint *add) { size_t i = get_global_id(0); x[i] = x[i] * 1664525u + 1013904223u + round + add[i & 15]; }\n"
                            "kernel void crash(global uint *out, ulong at) { *(volatile global uint *)at = out[0]; }\n"
                            "kernel void forever(volatile global uint *out) { while (out[0] == 0) ; }\n";

static void start(void) {
  cl_platform_id platform;
  cl_int e;
  must(clGetPlatformIDs(1, &platform, NULL), "platform");
  must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
  context = clCreateContext(NULL, 1, &device, NULL, NULL, &e);
  must(e, "context");
  queue = clCreateCommandQueue(context, device, 0, &e);
  must(e, "queue");
  program = clCreateProgramWithSource(context, 1, &source, NULL, &e);
  must(e, "program");
  must(clBuildProgram(program, 1, &device, "", NULL, NULL), "build");
}

static cl_mem buffer(size_t n, void *host) {
  cl_int e;
  cl_mem m = clCreateBuffer(context, CL_MEM_READ_WRITE | (host ? CL_MEM_COPY_HOST_PTR : 0), n, host, &e);
  must(e, "buffer");
  return m;
}

static cl_kernel kernel(const char *name) {
  cl_int e;
  cl_kernel k = clCreateKernel(program, name, &e);
  must(e, name);
  return k;
}

static void arg(cl_kernel k, cl_uint i, size_t n, const void *v) { must(clSetKernelArg(k, i, n, v), "argument"); }
static void run(cl_kernel k, size_t n, const size_t *local) { must(clEnqueueNDRangeKernel(queue, k, 1, NULL, &n, local, 0, NULL, NULL), "run"); }

static uint64_t sum(const void *p, size_t n) {
  const uint8_t *b = p;
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < n; i++) h = (h ^ b[i]) * 1099511628211u;
  return h;
}

static uint64_t add(size_t n, int round) {
  size_t bytes = n * sizeof(float), local = 16;
  float *x = malloc(bytes), *y = malloc(bytes), *z = calloc(1, bytes), by = 3;
  for (size_t i = 0; i < n; i++) x[i] = (float)((i * 7 + (size_t)round) % 1000), y[i] = (float)(i % 313);
  cl_mem a = buffer(bytes, x), b = buffer(bytes, NULL), c = buffer(bytes, NULL);
  must(clEnqueueWriteBuffer(queue, b, CL_FALSE, 0, bytes, y, 0, NULL, NULL), "write");
  cl_kernel k = kernel("add"), s = kernel("scale");
  arg(k, 0, sizeof a, &a), arg(k, 1, sizeof b, &b), arg(k, 2, sizeof c, &c);
  arg(s, 0, sizeof c, &c), arg(s, 1, sizeof by, &by), arg(s, 2, local * sizeof(float), NULL);
  run(k, n, NULL);
  run(s, n, &local);
  cl_event done;
  must(clEnqueueReadBuffer(queue, c, CL_FALSE, 0, bytes, z, 0, NULL, &done), "read");
  must(clWaitForEvents(1, &done), "wait");
  uint64_t h = sum(z, bytes);
  /* a rectangle in, a copy, a mapping, and a part out */
  size_t origin[3] = {4, 1, 0}, zero[3] = {0, 0, 0}, region[3] = {64, 8, 1};
  must(clEnqueueWriteBufferRect(queue, a, CL_TRUE, origin, zero, region, 128, 0, 64, 0, x, 0, NULL, NULL), "write rect");
  must(clEnqueueCopyBuffer(queue, a, b, 0, bytes / 2, bytes / 2, 0, NULL, NULL), "copy");
  cl_int e;
  float *p = clEnqueueMapBuffer(queue, b, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0, NULL, NULL, &e);
  must(e, "map");
  p[3] += 1;
  h ^= sum(p, bytes) * 3;
  must(clEnqueueUnmapMemObject(queue, b, p, 0, NULL, NULL), "unmap");
  cl_uint pattern = 0x01020304;
  must(clEnqueueFillBuffer(queue, c, &pattern, sizeof pattern, 0, bytes / 2, 0, NULL, NULL), "fill");
  must(clEnqueueReadBuffer(queue, b, CL_TRUE, 0, bytes, x, 0, NULL, NULL), "read");
  must(clEnqueueReadBuffer(queue, c, CL_TRUE, 0, bytes, y, 0, NULL, NULL), "read");
  h ^= sum(x, bytes) * 5 ^ sum(y, bytes) * 7;
  clReleaseEvent(done), clReleaseKernel(k), clReleaseKernel(s);
  clReleaseMemObject(a), clReleaseMemObject(b), clReleaseMemObject(c);
  free(x), free(y), free(z);
  return h;
}

static cl_event gate;
static void *opens(void *p) {
  usleep(50000);
  must(clSetUserEventStatus(gate, CL_COMPLETE), "set");
  return p;
}

static void *works(void *p) {
  cl_int e;
  cl_uint in = 5, out = 0;
  cl_command_queue aside = clCreateCommandQueue(context, device, 0, &e);
  must(e, "queue");
  cl_mem m = buffer(64, NULL);
  usleep(50000);
  must(clEnqueueWriteBuffer(aside, m, CL_TRUE, 0, sizeof in, &in, 0, NULL, NULL), "write");
  must(clEnqueueReadBuffer(aside, m, CL_TRUE, 0, sizeof out, &out, 0, NULL, NULL), "read");
  must(out == in ? CL_SUCCESS : -1, "read what was written");
  clReleaseMemObject(m), clReleaseCommandQueue(aside);
  return opens(p);
}

/* threads waits in one thread, in three ways, for an event that another sets, which uses the device before. */
static void threads(void) {
  cl_int e;
  cl_uint out = 0;
  cl_mem m = buffer(64, NULL);
  for (int way = 0; way < 3; way++) {
    pthread_t t;
    cl_event filled, marked;
    cl_uint pattern = 7 + (cl_uint)way;
    gate = clCreateUserEvent(context, &e);
    must(e, "user event");
    must(clEnqueueFillBuffer(queue, m, &pattern, sizeof pattern, 0, 64, 1, &gate, &filled), "fill");
    must(clEnqueueMarkerWithWaitList(queue, 1, &filled, &marked), "marker");
    pthread_create(&t, NULL, works, NULL);
    if (way == 0) must(clFlush(queue), "flush");
    if (way == 1) must(clWaitForEvents(1, &marked), "wait");
    if (way == 2) must(clFinish(queue), "finish");
    must(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, sizeof out, &out, 0, NULL, NULL), "read");
    must(out == pattern ? CL_SUCCESS : -1, "fill in time");
    pthread_join(t, NULL);
    clReleaseEvent(gate), clReleaseEvent(filled), clReleaseEvent(marked);
  }
  clReleaseMemObject(m);
  printf("threads %u\n", out - 2);
}

static void print(void) {
  const char *text = "kernel void say(int n) { if (get_global_id(0) == 0) for (int i = 0; i < n; i++) printf(\"kernel says %d of %d\\n\", i, n); }";
  cl_int e;
  cl_program p = clCreateProgramWithSource(context, 1, &text, NULL, &e);
  must(e, "program");
  must(clBuildProgram(p, 1, &device, "", NULL, NULL), "build");
  cl_kernel k = clCreateKernel(p, "say", &e);
  must(e, "kernel");
  for (cl_int n = 1; n <= 100; n += 99) {
    puts("before");
    arg(k, 0, sizeof n, &n);
    run(k, 2, NULL);
    must(clFinish(queue), "finish");
    puts("after");
  }
}

static volatile int told;
static void put(const char *name, const char *text) {
  FILE *f = fopen(name, "w");
  if (!f || fputs(text, f) < 0 || fclose(f)) perror(name), exit(1);
}

static cl_uint first_of(cl_program p, const char *how) {
  cl_int e;
  cl_uint v = 0;
  cl_kernel k = clCreateKernel(p, "k", &e);
  must(e, how);
  cl_mem m = buffer(sizeof v, NULL);
  size_t one = 1;
  arg(k, 0, sizeof m, &m);
  run(k, one, NULL);
  must(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, sizeof v, &v, 0, NULL, NULL), "read");
  must(clReleaseKernel(k), "release"), must(clReleaseMemObject(m), "release");
  return v;
}

/* includes builds a program with header files of this machine, which are found as a compiler does, below the working folder. */
static void includes(void) {
  const char *text = "#if 0\n#include \"missing.h\"\n#endif\n  # include <a.h>\n#include \"sub/b.h\"\nkernel void k(global uint *o) { o[0] = A + B + C + X; }", *more = "#include <a.h>\n#define A2 A";
  char folder[4096], here[4200];
  cl_int e;
  if (!getcwd(folder, sizeof folder)) perror("folder"), exit(1);
  snprintf(here, sizeof here, "-DX=5000 -I %s/inc/../inc/empty -Iinc", folder);
  put("inc/a.h", "#ifndef A_H\n#define A_H\n#include \"sub/b.h\"\n#define A 1\n#endif\n");
  put("inc/sub/b.h", "#pragma once\n#include \"../../c.h\"\n#define B 20\n");
  cl_program p = clCreateProgramWithSource(context, 1, &text, NULL, &e), header = clCreateProgramWithSource(context, 1, &more, NULL, &e);
  for (int round = 0; round < 2; round++) { /* a header that changes is read anew */
    put("c.h", round ? "#define C 400\n" : "#define C 300\n");
    must(clBuildProgram(p, 1, &device, here, NULL, NULL), "build");
    char options[4200] = "";
    must(clGetProgramBuildInfo(p, device, CL_PROGRAM_BUILD_OPTIONS, sizeof options, options, NULL), "options");
    printf("included %u, options %s\n", first_of(p, "built"), strcmp(options, here) ? options : "as given");
  }
  const char *using = "#include \"given.h\"\nkernel void k(global uint *o) { o[0] = A2 + C; }", *name = "given.h";
  cl_program q = clCreateProgramWithSource(context, 1, &using, NULL, &e);
  must(clCompileProgram(q, 1, &device, here, 1, &header, &name, NULL, NULL), "compile");
  q = clLinkProgram(context, 1, &device, NULL, 1, &q, NULL, NULL, &e);
  must(e, "link");
  printf("compiled %u\n", first_of(q, "linked"));
  p = clCreateProgramWithSource(context, 1, &text, NULL, &e);
  printf("without folders %d\n", clBuildProgram(p, 1, &device, "-DX=1", NULL, NULL));
  char paths[9000], far[4200], was[9000] = "";
  const char *lines = paths;
  snprintf(paths, sizeof paths, "#include \"own.h\"\n#include <%s/inc/far.h>\n#include \"%s/inc/far.h\"\nkernel void k(global uint *o) { o[0] = D + E; }", folder, folder);
  put("own.h", "#define D 7000\n"), put("inc/farther.h", "#define E 80000\n");
  snprintf(far, sizeof far, "#include \"%s/inc/farther.h\"\n", folder);
  put("inc/far.h", far);
  p = clCreateProgramWithSource(context, 1, &lines, NULL, &e);
  must(clBuildProgram(p, 1, &device, NULL, NULL, NULL), "build");
  must(clGetProgramInfo(p, CL_PROGRAM_SOURCE, sizeof was, was, NULL), "source");
  printf("of no option %u, source %s\n", first_of(p, "by paths"), strcmp(was, paths) ? was : "as given");
}

static void CL_CALLBACK destroyed(cl_context c, void *of) {
  (void)c;
  printf("destroyed %s\n", (const char *)of);
}

/* unbuilt asks for the log of a program that was not built, as bindings do of devices that were left out. */
static void unbuilt(void) {
  cl_int e;
  char log[8] = "?";
  cl_program p = clCreateProgramWithSource(context, 1, &source, NULL, &e);
  must(clGetProgramBuildInfo(p, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL), "log");
  printf("log '%s'\n", log);
}

/* peek builds a source that includes a file, of which a compiler shows what it does not understand. */
static void peek(const char *file) {
  char text[4200], log[1 << 16] = "";
  const char *lines = text;
  cl_int e;
  snprintf(text, sizeof text, "#define FILE \"%s\"\n#include FILE\nkernel void k(void) {}\n", file); /* a name that the library does not see: it would bring the file */
  cl_program p = clCreateProgramWithSource(context, 1, &lines, NULL, &e);
  must(e, "program");
  e = clBuildProgram(p, 1, &device, "", NULL, NULL);
  clGetProgramBuildInfo(p, device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
  printf("built %d\n%s\n", e, log);
}

/* asks asks for what few programs do. */
static void asks(void) {
  cl_int e;
  size_t size = 7;
  cl_context c = clCreateContext(NULL, 1, &device, NULL, NULL, &e);
  must(clSetContextDestructorCallback(c, destroyed, "first"), "callback");
  must(clSetContextDestructorCallback(c, destroyed, "second"), "callback");
  printf("no callback %d\n", clSetContextDestructorCallback(c, NULL, NULL));
  cl_mem_properties none[] = {0};
  cl_mem m = clCreateBufferWithProperties(c, none, CL_MEM_READ_WRITE, 64, NULL, &e), n = clCreateBufferWithProperties(c, NULL, CL_MEM_READ_WRITE, 64, NULL, &e);
  must(clGetMemObjectInfo(m, CL_MEM_PROPERTIES, 0, NULL, &size), "properties");
  printf("an empty list %zu", size);
  must(clGetMemObjectInfo(n, CL_MEM_PROPERTIES, 0, NULL, &size), "properties");
  printf(", no list %zu\n", size);
  cl_sampler_properties list[] = {CL_SAMPLER_FILTER_MODE, CL_FILTER_LINEAR, 0}, got[3] = {1, 1, 1};
  cl_sampler s = clCreateSamplerWithProperties(c, list, &e);
  must(clGetSamplerInfo(s, CL_SAMPLER_PROPERTIES, sizeof got, got, &size), "properties");
  printf("of a sampler %zu, as given: %d\n", size, !memcmp(list, got, sizeof list));
  clCreatePipe(c, CL_MEM_HOST_NO_ACCESS, 4, 4, NULL, &e);
  printf("a pipe %d, of a buffer %d\n", e, clGetPipeInfo(m, CL_PIPE_PACKET_SIZE, 0, NULL, NULL));
  cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc line = {.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 16, .buffer = buffer(64, NULL)}, square = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 4, .image_row_pitch = 48};
  cl_mem of = NULL, i = clCreateImage(context, CL_MEM_READ_WRITE, &format, &line, NULL, &e);
  must(e, "an image of a buffer");
  must(clGetImageInfo(i, CL_IMAGE_BUFFER, sizeof of, &of, NULL), "its buffer");
  printf("an image of the buffer: %d\n", of == line.buffer);
  static uint8_t own[4 * 48] __attribute__((aligned(128))), back[4 * 48]; /* an image where the program's memory is, with gaps, and a part of it mapped */
  memset(own, 1, sizeof own);
  cl_mem there = clCreateImage(context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, &format, &square, own, &e);
  must(e, "an image of the program's memory");
  size_t at[3] = {2, 1, 0}, part[3] = {3, 2, 1}, zero[3] = {0}, whole[3] = {8, 4, 1}, row = 0;
  uint8_t *mapped = clEnqueueMapImage(queue, there, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, at, part, &row, NULL, 0, NULL, NULL, &e);
  must(e, "map image");
  printf("mapped at %td, rows of %zu\n", mapped - own, row);
  mapped[row + 5] = 9;
  must(clEnqueueUnmapMemObject(queue, there, mapped, 0, NULL, NULL), "unmap");
  must(clEnqueueReadImage(queue, there, CL_TRUE, zero, whole, 48, 0, back, 0, NULL, NULL), "read image");
  printf("sum %016llx %d\n", (unsigned long long)sum(back, sizeof back), back[2 * 48 + 2 * 4 + 5]);
  must(clReleaseMemObject(i), "release"), must(clReleaseMemObject(line.buffer), "release"), must(clReleaseMemObject(there), "release");
  must(clReleaseMemObject(n), "release"), must(clReleaseSampler(s), "release"), must(clReleaseContext(c), "release");
  puts("it has a buffer"); /* and goes with it */
  must(clReleaseMemObject(m), "release");
}

/* image_of makes an image of a buffer's memory, and reads there what the buffer was given. */
static void image_of(void) {
  static uint8_t in[1 << 16], out[64];
  size_t from[3] = {1, 0, 0}, region[3] = {16, 1, 1};
  cl_int e;
  for (size_t i = 0; i < sizeof in; i++) in[i] = (uint8_t)(i * 7);
  cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc line = {.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 1 << 14, .buffer = buffer(sizeof in, in)};
  cl_mem image = clCreateImage(context, CL_MEM_READ_WRITE, &format, &line, NULL, &e);
  must(e, "image");
  must(clEnqueueReadImage(queue, image, CL_TRUE, from, region, 0, 0, out, 0, NULL, NULL), "read");
  printf("right %d\n", !memcmp(out, in + 4, sizeof out));
  must(clReleaseMemObject(image), "release"), must(clReleaseMemObject(line.buffer), "release");
}

/* flood writes and reads so many MiB without waiting for any of it. */
static void flood(size_t mib) {
  enum { PIECE = 32 << 20 };
  size_t pieces = (mib << 20) / PIECE;
  uint8_t *in[2] = {malloc(PIECE), malloc(PIECE)}, *out = malloc(PIECE);
  memset(in[0], 1, PIECE), memset(in[1], 2, PIECE);
  cl_mem m = buffer(PIECE, NULL);
  for (size_t i = 0; i < pieces; i++) must(clEnqueueWriteBuffer(queue, m, CL_FALSE, 0, PIECE, in[i % 2], 0, NULL, NULL), "write");
  for (size_t i = 0; i < pieces; i++) must(clEnqueueReadBuffer(queue, m, CL_FALSE, 0, PIECE, out, 0, NULL, NULL), "read");
  must(clFinish(queue), "finish");
  printf("pieces %zu, the last is right: %d\n", pieces, !memcmp(out, in[(pieces + 1) % 2], PIECE));
}

/* exchange: as flood, in turns: all the time there is something to send and something to receive. */
static void exchange(size_t rounds) {
  enum { PIECE = 8 << 20 };
  uint8_t *in[2] = {malloc(PIECE), malloc(PIECE)}, *out = malloc(PIECE);
  memset(in[0], 1, PIECE), memset(in[1], 2, PIECE);
  cl_mem m = buffer(PIECE, NULL);
  puts("exchanging");
  for (size_t i = 0; i < rounds; i++) {
    must(clEnqueueWriteBuffer(queue, m, CL_FALSE, 0, PIECE, in[i % 2], 0, NULL, NULL), "write");
    must(clEnqueueReadBuffer(queue, m, CL_FALSE, 0, PIECE, out, 0, NULL, NULL), "read");
    if (i % 32 == 31) must(clFinish(queue), "finish");
  }
  must(clFinish(queue), "finish");
  printf("rounds %zu, the last is right: %d\n", rounds, !memcmp(out, in[(rounds + 1) % 2], PIECE));
}

/* talks: a kernel prints much, and the program gives much to do before it waits. */
static void talks(void) {
  enum { MANY = 20000, SMALL = 5000 };
  cl_kernel k = kernel("talk"), small = kernel("spin");
  cl_uint many = MANY, one = 1;
  cl_mem m = buffer(64, NULL);
  arg(k, 0, sizeof many, &many), arg(small, 0, sizeof m, &m), arg(small, 1, sizeof one, &one);
  run(k, 1, NULL), must(clFlush(queue), "flush");
  for (int i = 0; i < SMALL; i++) run(small, 1, NULL);
  must(clFinish(queue), "finish");
  puts("said");
}

static void *listens(void *p) {
  getchar();
  told = 1;
  return p;
}

static void right(int ok, const char *what, int round) {
  if (ok) return;
  printf("wrong %s in step %d\n", what, round);
  exit(1);
}

/* queues: many come and go while another has work, which the end of a turn waits for. */
static void some_queues(int rounds) {
  enum { THERE = 64 };
  cl_command_queue there[THERE] = {NULL};
  cl_uint work = 400000;
  cl_mem m = buffer(4 * sizeof work, NULL);
  cl_kernel k = kernel("spin");
  arg(k, 0, sizeof m, &m), arg(k, 1, sizeof work, &work);
  for (int i = 0; i < rounds; i++) {
    cl_int e;
    if (i % THERE == 0) run(k, 4, NULL);
    if (there[i % THERE]) must(clReleaseCommandQueue(there[i % THERE]), "release");
    there[i % THERE] = clCreateCommandQueue(context, device, 0, &e);
    must(e, "queue");
  }
  must(clFinish(queue), "finish");
  printf("%d queues\n", rounds);
}

static const cl_uint mark = 0x5ec4e75a;

/* leave fills memory with the mark. */
static void leave(int n) {
  for (int i = 0; i < n; i++) {
    cl_mem m = buffer(1 << 20, NULL);
    must(clEnqueueFillBuffer(queue, m, &mark, sizeof mark, 0, 1 << 20, 0, NULL, NULL), "fill");
  }
  must(clFinish(queue), "finish");
  printf("left %d\n", n);
  getchar();
}

/* find looks for the mark in memory that nobody has written to. */
static void find(int n) {
  enum { WORDS = (1 << 20) / sizeof(cl_uint) };
  cl_uint *seen = malloc(WORDS * sizeof *seen);
  int marks = 0;
  for (int i = 0; i < n; i++) {
    cl_mem m = buffer(1 << 20, NULL);
    for (int k = 0; k < WORDS; k++) seen[k] = 1;
    must(clEnqueueReadBuffer(queue, m, CL_TRUE, 0, 1 << 20, seen, 0, NULL, NULL), "read");
    for (int k = 0; k < WORDS; k++) marks += seen[k] == mark;
  }
  printf("found %d\n", marks);
  free(seen);
}

static void step(const char *what) { puts(what), getchar(); }

/* many_steps makes a buffer for each step, which is as long as the step's number, and sees that what comes of them is right. */
static void *many_steps(void *name) {
  enum { STEPS = 100 };
  cl_uint x[STEPS] = {0}, want[STEPS] = {0}, add[STEPS];
  cl_int e;
  cl_kernel k = kernel("advance");
  cl_mem all = buffer(sizeof x, x);
  step(name);
  for (cl_uint i = 1; i < STEPS; i++) {
    size_t n = i;
    cl_buffer_region from = {0, n * sizeof *add};
    for (cl_uint j = 0; j < i; j++) add[j] = i * j, want[j] = want[j] * 1664525u + 1013904223u + i + add[j & 15];
    cl_mem m = buffer(sizeof add, NULL), copy = buffer(sizeof add, NULL), part = clCreateSubBuffer(copy, 0, CL_BUFFER_CREATE_TYPE_REGION, &from, &e);
    must(e, "part");
    must(clEnqueueFillBuffer(queue, copy, &i, sizeof i, 0, sizeof add, 0, NULL, NULL), "fill");
    must(clEnqueueWriteBuffer(queue, m, CL_FALSE, from.size, sizeof add - from.size, want, 0, NULL, NULL), "write"); /* which nobody reads */
    must(clEnqueueWriteBuffer(queue, m, CL_TRUE, 0, from.size, add, 0, NULL, NULL), "write");
    must(clEnqueueCopyBuffer(queue, m, copy, 0, 0, from.size, 0, NULL, NULL), "copy");
    memset(add, 0, sizeof add); /* it was copied */
    arg(k, 0, sizeof all, &all), arg(k, 1, sizeof i, &i), arg(k, 2, sizeof part, &part);
    run(k, n, NULL);
    must(clReleaseMemObject(part), "release"), must(clReleaseMemObject(copy), "release"), must(clReleaseMemObject(m), "release");
  }
  must(clEnqueueReadBuffer(queue, all, CL_TRUE, 0, sizeof x, x, 0, NULL, NULL), "read");
  step(".");
  must(memcmp(x, want, sizeof x), "steps");
  return NULL;
}

/* trips makes calls, each between two lines. */
static void trips(void) {
  cl_int e, status = 1;
  cl_uint word = 7;
  cl_event event;
  cl_kernel k = kernel("none");
  step("create buffer");
  cl_mem m = clCreateBuffer(context, CL_MEM_READ_WRITE, 4096, NULL, &e);
  step("."), must(e, "buffer");
  step("blocking write");
  e = clEnqueueWriteBuffer(queue, m, CL_TRUE, 0, sizeof word, &word, 0, NULL, NULL);
  step("."), must(e, "write"), word = 0;
  step("blocking read");
  e = clEnqueueReadBuffer(queue, m, CL_TRUE, 0, sizeof word, &word, 0, NULL, NULL);
  step("."), must(e == CL_SUCCESS && word == 7 ? e : -1, "read");
  size_t one = 1;
  step("launch");
  e = clEnqueueNDRangeKernel(queue, k, 1, NULL, &one, NULL, 0, NULL, NULL);
  step("."), must(e, "launch");
  step("finish");
  e = clFinish(queue);
  step("."), must(e, "finish");
  step("launch again and finish");
  e = clEnqueueNDRangeKernel(queue, k, 1, NULL, &one, NULL, 0, NULL, &event);
  if (!e) e = clFinish(queue);
  step("."), must(e, "finish");
  step("event info");
  e = clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
  step("."), must(e == CL_SUCCESS && status == CL_COMPLETE ? e : -1, "status");
  many_steps("many steps");
  pthread_t other;
  pthread_create(&other, NULL, many_steps, "many steps of another thread"), pthread_join(other, NULL);
  cl_program p = clCreateProgramWithSource(context, 1, &source, NULL, &e);
  must(e, "program");
  step("build");
  e = clBuildProgram(p, 1, &device, "", NULL, NULL);
  step("."), must(e, "build");
  puts("tripped");
}

/* silent: a short piece of work now and then, for which the program never waits; then how long they took. */
static void silent(void) {
  enum { PIECES = 60, PAUSE = 10000 };
  cl_int e;
  cl_uint work = 100000;
  cl_command_queue q = clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &e);
  must(e, "queue");
  cl_kernel k = kernel("spin");
  cl_mem m = buffer(1 << 16, NULL);
  cl_event events[PIECES];
  cl_ulong from, to, all = 0;
  size_t n = 4;
  arg(k, 0, sizeof m, &m), arg(k, 1, sizeof work, &work);
  run(k, n, NULL), must(clFinish(queue), "finish"); /* compiled */
  puts("silent"), getchar();
  for (int i = 0; i < PIECES; i++) {
    must(clEnqueueNDRangeKernel(q, k, 1, NULL, &n, NULL, 0, NULL, &events[i]), "run"), must(clFlush(q), "flush");
    usleep(PAUSE);
  }
  puts("done"), getchar();
  for (int i = 0; i < PIECES; i++) {
    must(clWaitForEvents(1, &events[i]), "wait");
    must(clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_QUEUED, sizeof from, &from, NULL), "given");
    must(clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_END, sizeof to, &to, NULL), "end");
    all += to - from;
  }
  printf("%d pieces of %.3f ms\n", PIECES, (double)all / 1e6 / PIECES);
}

/* parts: sub-devices, what is known of them, programs for some of them, and what is refused. */
enum { PARTS = 8 };

static cl_uint number(cl_device_id d, cl_device_info what) {
  cl_uint n = 99;
  must(clGetDeviceInfo(d, what, sizeof n, &n, NULL), "info");
  return n;
}

static cl_uint part_of(cl_device_id d, const cl_device_partition_property *how, cl_device_id *out) {
  cl_uint n = 0;
  must(clCreateSubDevices(d, how, PARTS, out, &n), "sub-devices");
  return n;
}

static void shown(const char *name, cl_device_id d, cl_device_id parent) {
  cl_device_partition_property how[PARTS + 2] = {0};
  cl_device_id of = d;
  size_t n = 0;
  must(clGetDeviceInfo(d, CL_DEVICE_PARTITION_TYPE, sizeof how, how, &n), "type");
  must(clGetDeviceInfo(d, CL_DEVICE_PARENT_DEVICE, sizeof of, &of, NULL), "parent");
  printf("%s: units %u, most parts %u, parent %s, references %u, made", name, number(d, CL_DEVICE_MAX_COMPUTE_UNITS), number(d, CL_DEVICE_PARTITION_MAX_SUB_DEVICES), of == parent ? "right" : "wrong",
         number(d, CL_DEVICE_REFERENCE_COUNT));
  for (size_t i = 0; i < n / sizeof *how; i++) printf(" %llx", (unsigned long long)how[i]);
  puts("");
}

static void parts(void) {
  cl_platform_id platform;
  cl_device_id whole, p[PARTS], q[PARTS], seen[PARTS + 1];
  cl_device_partition_property kinds[PARTS] = {0};
  size_t n = 0;
  cl_uint count = 0;
  cl_int e;
  must(clGetPlatformIDs(1, &platform, NULL), "platform");
  must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &whole, NULL), "device");
  must(clGetDeviceInfo(whole, CL_DEVICE_PARTITION_PROPERTIES, sizeof kinds, kinds, &n), "kinds");
  printf("kinds");
  for (size_t i = 0; i < n / sizeof *kinds; i++) printf(" %llx", (unsigned long long)kinds[i]);
  puts("");
  if (!kinds[0]) return;
  const cl_device_partition_property ones[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0}, counts[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1, 1, 0, 0}, many[] = {CL_DEVICE_PARTITION_EQUALLY, 1 << 20, 0},
                                     odd[] = {0x7777, 1, 0}, more[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1 << 20, 0, 0}, none[] = {0};
  printf("refused %d %d %d %d %d %d %d %d\n", clCreateSubDevices(whole, many, PARTS, p, NULL), clCreateSubDevices(whole, odd, PARTS, p, NULL), clCreateSubDevices(whole, more, PARTS, p, NULL),
         clCreateSubDevices(whole, none, PARTS, p, NULL), clCreateSubDevices(whole, NULL, PARTS, p, NULL), clCreateSubDevices(whole, ones, 1, p, NULL), clCreateSubDevices(whole, ones, 0, NULL, NULL),
         clCreateSubDevices(NULL, ones, PARTS, p, NULL));
  must(clCreateSubDevices(whole, ones, 0, NULL, &count), "count");
  if (count < 2) return;
  if (count > PARTS) exit(0); /* none of the machines that tests run on */
  cl_uint there = part_of(whole, ones, p);
  printf("there %u, said %u\n", there, count);
  part_of(whole, counts, q);
  shown("whole", whole, NULL), shown("first", p[0], whole), shown("by counts", q[1], whole);
  must(clRetainDevice(p[0]), "retain"), must(clRetainDevice(whole), "retain");
  printf("references %u %u\n", number(p[0], CL_DEVICE_REFERENCE_COUNT), number(whole, CL_DEVICE_REFERENCE_COUNT));
  must(clReleaseDevice(p[0]), "release"), must(clReleaseDevice(whole), "release");
  cl_device_id three[] = {p[0], whole, p[1], p[0]};
  cl_context c = clCreateContext(NULL, 4, three, NULL, NULL, &e);
  must(e, "context");
  must(clGetContextInfo(c, CL_CONTEXT_DEVICES, sizeof seen, seen, &n), "context's devices");
  printf("context of %zu, the first %s\n", n / sizeof *seen, seen[0] == p[0] ? "right" : "wrong");
  cl_command_queue other = clCreateCommandQueue(c, q[0], 0, &e);
  printf("a queue on another device: %d\n", e);
  if (other) clReleaseCommandQueue(other);
  cl_program both = clCreateProgramWithSource(c, 1, &source, NULL, &e);
  must(e, "program");
  must(clBuildProgram(both, 2, p, NULL, NULL, NULL), "build");
  must(clGetProgramInfo(both, CL_PROGRAM_DEVICES, sizeof seen, seen, &n), "program's devices");
  printf("program of %zu\n", n / sizeof *seen);
  size_t sizes[PARTS + 1] = {0}, width = 0;
  unsigned char *built[PARTS + 1] = {0};
  must(clGetProgramInfo(both, CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, &n), "sizes");
  cl_uint devices = (cl_uint)(n / sizeof *sizes);
  for (cl_uint i = 0; i < devices; i++) built[i] = malloc(sizes[i] + 1);
  must(clGetProgramInfo(both, CL_PROGRAM_BINARIES, sizeof built, built, NULL), "binaries");
  cl_device_id some[PARTS + 1];
  cl_uint k = 0;
  for (cl_uint i = 0; i < devices; i++)
    if (sizes[i]) some[k] = seen[i], sizes[k] = sizes[i], built[k++] = built[i];
  cl_int status[PARTS + 1] = {9, 9, 9};
  cl_program again = clCreateProgramWithBinary(c, k, some, sizes, (const unsigned char **)built, status, &e);
  must(e, "program of binaries"), must(status[0], "its status");
  must(clBuildProgram(again, 0, NULL, NULL, NULL, NULL), "build");
  cl_program of[] = {both, again};
  for (int i = 0; i < 2; i++) {
    cl_kernel advance = clCreateKernel(of[i], "advance", &e);
    must(e, "kernel");
    cl_uint x[1024], add[16], round = 5;
    for (int j = 0; j < 1024; j++) x[j] = (cl_uint)j;
    for (int j = 0; j < 16; j++) add[j] = (cl_uint)j;
    cl_mem xs = clCreateBuffer(c, CL_MEM_COPY_HOST_PTR, sizeof x, x, &e), adds = clCreateBuffer(c, CL_MEM_COPY_HOST_PTR, sizeof add, add, &e);
    arg(advance, 0, sizeof xs, &xs), arg(advance, 1, sizeof round, &round), arg(advance, 2, sizeof adds, &adds);
    for (int j = 0; j < 2; j++) {
      cl_command_queue on = clCreateCommandQueue(c, p[j], 0, &e);
      must(e, "queue");
      cl_device_id its = NULL;
      must(clGetCommandQueueInfo(on, CL_QUEUE_DEVICE, sizeof its, &its, NULL), "queue's device");
      size_t all = 1024;
      must(clEnqueueNDRangeKernel(on, advance, 1, NULL, &all, NULL, 0, NULL, NULL), "run");
      must(clEnqueueReadBuffer(on, xs, CL_TRUE, 0, sizeof x, x, 0, NULL, NULL), "read");
      must(clGetKernelWorkGroupInfo(advance, p[j], CL_KERNEL_WORK_GROUP_SIZE, sizeof width, &width, NULL), "group");
      cl_build_status how = 9;
      must(clGetProgramBuildInfo(of[i], p[j], CL_PROGRAM_BUILD_STATUS, sizeof how, &how, NULL), "status");
      printf("part %d: sum %016llx, groups of %zu, queue %s, built %d\n", j, (unsigned long long)sum(x, sizeof x), width, its == p[j] ? "right" : "wrong", how);
      must(clReleaseCommandQueue(on), "release");
    }
    printf("group of another: %d\n", clGetKernelWorkGroupInfo(advance, q[0], CL_KERNEL_WORK_GROUP_SIZE, sizeof width, &width, NULL));
    clReleaseKernel(advance), clReleaseMemObject(xs), clReleaseMemObject(adds);
  }
  printf("build for another: %d\n", clBuildProgram(both, 1, q, NULL, NULL, NULL));
  cl_uint held = number(p[0], CL_DEVICE_REFERENCE_COUNT);
  clReleaseProgram(both), clReleaseProgram(again), must(clReleaseContext(c), "release");
  printf("references fell %s\n", number(p[0], CL_DEVICE_REFERENCE_COUNT) < held ? "" : "not");
  for (cl_uint i = 0; i < there; i++) must(clReleaseDevice(p[i]), "release");
}

/* side is what walk has on sub-devices, where there are any. */
typedef struct {
  cl_device_id on[PARTS];
  cl_uint n, state[256];
  cl_command_queue queues[2];
  cl_kernel k;
  cl_mem x;
} side;

static void side_begins(side *s, const cl_uint *add, size_t adds) {
  const cl_device_partition_property ones[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
  cl_int e;
  if (clCreateSubDevices(device, ones, PARTS, s->on, &s->n) || s->n < 2) {
    s->n = 0;
    return;
  }
  cl_context c = clCreateContext(NULL, 2, s->on, NULL, NULL, &e);
  must(e, "context of parts");
  cl_program p = clCreateProgramWithSource(c, 1, &source, NULL, &e);
  must(clBuildProgram(p, 0, NULL, "", NULL, NULL), "build");
  for (int i = 0; i < 2; i++) s->queues[i] = clCreateCommandQueue(c, s->on[i], 0, &e);
  for (int i = 0; i < 256; i++) s->state[i] = (cl_uint)i;
  s->x = clCreateBuffer(c, CL_MEM_COPY_HOST_PTR, sizeof s->state, s->state, &e);
  cl_mem its = clCreateBuffer(c, CL_MEM_COPY_HOST_PTR, adds, (void *)(uintptr_t)add, &e);
  s->k = clCreateKernel(p, "advance", &e);
  must(e, "kernel of parts");
  arg(s->k, 0, sizeof s->x, &s->x), arg(s->k, 2, sizeof its, &its);
  char name[64] = "";
  cl_platform_id platform;
  must(clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL), "platform");
  must(clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name, name, NULL), "name");
  for (cl_uint i = 0; i < s->n && strstr(name, "Yunhe"); i++) clReleaseDevice(s->on[i]); /* the context has them, but not PoCL's: 3.1 uses what it has freed */
  clReleaseProgram(p), clReleaseContext(c);
}

static void side_steps(side *s, const cl_uint *add, cl_uint round) {
  size_t n = 256;
  cl_uint got[256];
  if (!s->n) return;
  cl_command_queue q = s->queues[round & 1];
  arg(s->k, 1, sizeof round, &round);
  must(clEnqueueNDRangeKernel(q, s->k, 1, NULL, &n, NULL, 0, NULL, NULL), "step of a part");
  must(clEnqueueReadBuffer(q, s->x, CL_TRUE, 0, sizeof got, got, 0, NULL, NULL), "read");
  for (int i = 0; i < 256; i++) s->state[i] = s->state[i] * 1664525u + 1013904223u + round + add[i & 15];
  right(!memcmp(got, s->state, sizeof got), "part", (int)round);
}

/* walk has all that a program that moves must bring with it: memory that changes
 * and memory that does not, a part of a buffer, an image, what it has mapped,
 * events, arguments that stay set, sub-devices, and objects made of ones it has released. */
static void walk(size_t mib) {
  enum { WINDOW = 4096, SMALL = 1024, HELD = 64 << 10, SIDE = 32 };
  size_t n = mib * (1 << 20) / sizeof(cl_uint), window = WINDOW, small = SMALL;
  cl_uint *host = malloc(n * sizeof *host), *mirror = malloc(n * sizeof *host), add[16], got[SMALL], state[SMALL], pixels[SIDE * SIDE];
  for (size_t i = 0; i < n; i++) mirror[i] = (cl_uint)(i * 2654435761u);
  for (int i = 0; i < 16; i++) add[i] = (cl_uint)i * 77;
  for (int i = 0; i < SMALL; i++) state[i] = (cl_uint)i;
  for (int i = 0; i < SIDE * SIDE; i++) pixels[i] = (cl_uint)i * 40503u;
  cl_int e;
  cl_mem big = buffer(n * sizeof *host, mirror), adds = buffer(sizeof add, add), whole = buffer(2 * sizeof state, NULL), held = buffer(HELD, NULL);
  cl_buffer_region half = {sizeof state, sizeof state};
  cl_mem own = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS | CL_MEM_COPY_HOST_PTR, sizeof add, add, &e), shown = buffer(sizeof add, NULL);
  must(e, "buffer without the host");
  cl_mem part = clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &half, &e);
  must(e, "sub-buffer");
  clReleaseMemObject(whole);
  must(clEnqueueWriteBuffer(queue, part, CL_FALSE, 0, sizeof state, state, 0, NULL, NULL), "write");
  cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = SIDE, .image_height = SIDE};
  cl_mem image = clCreateImage(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, &format, &desc, pixels, &e);
  must(e, "image");
  uint8_t *lent = clEnqueueMapBuffer(queue, held, CL_TRUE, CL_MAP_WRITE, 0, HELD, 0, NULL, NULL, &e);
  must(e, "map");
  memset(lent, 1, HELD);
  cl_kernel on_big = kernel("advance"), on_part = kernel("advance");
  clReleaseProgram(program);
  arg(on_big, 0, sizeof big, &big), arg(on_big, 2, sizeof adds, &adds);
  arg(on_part, 0, sizeof part, &part), arg(on_part, 2, sizeof adds, &adds);
  side s = {.n = 0};
  side_begins(&s, add, sizeof add);
  pthread_t t;
  pthread_create(&t, NULL, listens, NULL);
  cl_event first = NULL;
  cl_uint round = 0;
  double longest = 0;
  puts("walking");
  for (; !round || !told; round++) { /* one, whoever is quicker */
    double began = now();
    size_t at = (size_t)round * WINDOW % n;
    arg(on_big, 1, sizeof round, &round), arg(on_part, 1, sizeof round, &round);
    must(clEnqueueNDRangeKernel(queue, on_big, 1, &at, &window, NULL, 0, NULL, NULL), "step");
    cl_event done, ran;
    must(clEnqueueNDRangeKernel(queue, on_part, 1, NULL, &small, NULL, first ? 1 : 0, first ? &first : NULL, &ran), "step");
    must(clEnqueueReadBuffer(queue, part, CL_FALSE, 0, sizeof got, got, 1, &ran, &done), "read");
    for (size_t i = at; i < at + WINDOW; i++) mirror[i] = mirror[i] * 1664525u + 1013904223u + round + add[i & 15];
    for (int i = 0; i < SMALL; i++) state[i] = state[i] * 1664525u + 1013904223u + round + add[i & 15];
    side_steps(&s, add, round);
    must(clWaitForEvents(1, &done), "wait");
    right(!memcmp(got, state, sizeof got), "state", (int)round);
    if (round % 7 == 0) { /* the host writes, too, without waiting */
      state[round % SMALL] = round;
      must(clEnqueueWriteBuffer(queue, part, CL_FALSE, round % SMALL * sizeof *state, sizeof *state, &state[round % SMALL], 0, NULL, &done), "write");
      must(clEnqueueReadBuffer(queue, big, CL_TRUE, at * sizeof *host, WINDOW * sizeof *host, host, 0, NULL, NULL), "read");
      right(!memcmp(host, mirror + at, WINDOW * sizeof *host), "memory", (int)round);
    }
    clReleaseEvent(done);
    if (first) clReleaseEvent(ran);
    else first = ran; /* kept for good: what waits for it need not wait */
    if (now() - began > longest) longest = now() - began;
  }
  memset(lent + HELD / 2, 2, HELD / 2);
  must(clEnqueueUnmapMemObject(queue, held, lent, 0, NULL, NULL), "unmap");
  uint8_t *back = malloc(HELD);
  must(clEnqueueReadBuffer(queue, held, CL_TRUE, 0, HELD, back, 0, NULL, NULL), "read");
  right(back[0] == 1 && back[HELD / 2 - 1] == 1 && back[HELD / 2] == 2 && back[HELD - 1] == 2, "what was mapped", (int)round);
  must(clEnqueueReadBuffer(queue, big, CL_TRUE, 0, n * sizeof *host, host, 0, NULL, NULL), "read");
  right(!memcmp(host, mirror, n * sizeof *host), "all memory", (int)round);
  must(clEnqueueCopyBuffer(queue, own, shown, 0, 0, sizeof add, 0, NULL, NULL), "copy");
  must(clEnqueueReadBuffer(queue, shown, CL_TRUE, 0, sizeof add, got, 0, NULL, NULL), "read");
  right(!memcmp(got, add, sizeof add), "what the host has no access to", (int)round);
  size_t zero[3] = {0, 0, 0}, square[3] = {SIDE, SIDE, 1};
  cl_uint seen[SIDE * SIDE];
  must(clEnqueueReadImage(queue, image, CL_TRUE, zero, square, 0, 0, seen, 0, NULL, NULL), "read image");
  right(!memcmp(seen, pixels, sizeof seen), "image", (int)round);
  printf("walked %u steps, the longest %.1f ms\n", round, longest * 1e3);
}

/* cards: steps of one buffer that go from device to device. */
enum { CARDS = 16, WORDS = 1 << 15 };
static cl_device_id cards[CARDS];
static cl_command_queue queues[CARDS];
static cl_uint card_count;
static cl_uint model[WORDS], seen[WORDS], adds[16];

static void model_step(size_t from, size_t to, cl_uint round) {
  for (size_t i = from; i < to; i++) model[i] = model[i] * 1664525u + 1013904223u + round + adds[(i - from) & 15];
}

static cl_event step_on(cl_uint card, cl_kernel k, cl_mem x, cl_mem add, cl_uint round, size_t n, cl_uint waits, const cl_event *wait) {
  cl_event e;
  arg(k, 0, sizeof x, &x), arg(k, 1, sizeof round, &round), arg(k, 2, sizeof add, &add);
  must(clEnqueueNDRangeKernel(queues[card], k, 1, NULL, &n, NULL, waits, wait, &e), "step");
  return e;
}

static void same(const char *what, int round) { right(!memcmp(model, seen, sizeof model), what, round); }

static void see(cl_uint card, cl_mem x, const char *what, int round) {
  must(clEnqueueReadBuffer(queues[card], x, CL_TRUE, 0, sizeof seen, seen, 0, NULL, NULL), "read");
  same(what, round);
}

static void all_cards(void) {
  cl_platform_id platform;
  cl_int e;
  must(clGetPlatformIDs(1, &platform, NULL), "platform");
  must(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, CARDS, cards, &card_count), "devices");
  context = clCreateContext(NULL, card_count, cards, NULL, NULL, &e);
  must(e, "context");
  cl_uint n = 0;
  must(clGetContextInfo(context, CL_CONTEXT_NUM_DEVICES, sizeof n, &n, NULL), "context info");
  right(n == card_count, "devices of the context", 0);
  for (cl_uint i = 0; i < n; i++) {
    queues[i] = clCreateCommandQueue(context, cards[i], 0, &e);
    must(e, "queue");
  }
  queue = queues[0];
  program = clCreateProgramWithSource(context, 1, &source, NULL, &e);
  must(e, "program");
  must(clBuildProgram(program, 0, NULL, "", NULL, NULL), "build");
}

static void store(int most) {
  all_cards();
  cl_mem *m = calloc((size_t)most, sizeof *m);
  cl_int e = CL_SUCCESS;
  int n = 0;
  for (; n < most && !e; n++) {
    cl_uint pattern = (cl_uint)n;
    m[n] = clCreateBuffer(context, CL_MEM_READ_WRITE, 1 << 20, NULL, &e);
    if (e || (e = clEnqueueFillBuffer(queues[(cl_uint)n % card_count], m[n], &pattern, sizeof pattern, 0, 1 << 20, 0, NULL, NULL))) break;
  }
  right(n == most || e == CL_MEM_OBJECT_ALLOCATION_FAILURE, "error", e);
  cl_uint *p = malloc(1 << 20);
  for (int i = 0; i < n; i++) {
    must(clEnqueueReadBuffer(queues[(cl_uint)i % card_count], m[i], CL_TRUE, 0, 1 << 20, p, 0, NULL, NULL), "read");
    for (int k = 0; k < 1 << 18; k++) right(p[k] == (cl_uint)i, "buffer", i);
  }
  printf("buffers %d of %u cards\n", n, card_count);
  free(p), free(m);
}

/* walker computes on a buffer of its own, on the devices in turn, while other threads do. */
static void *walker(void *p) {
  enum { MINE = 1 << 12, STEPS = 60 };
  size_t number = (size_t)p, n = MINE;
  cl_uint x[MINE], got[MINE];
  cl_kernel k = kernel("advance");
  for (cl_uint i = 0; i < MINE; i++) x[i] = i * (cl_uint)(number + 1);
  cl_mem m = buffer(sizeof x, x), add = buffer(sizeof adds, adds);
  for (cl_uint r = 0; r < STEPS; r++) {
    cl_command_queue q = queues[(number + r / 5) % card_count];
    cl_event e;
    arg(k, 0, sizeof m, &m), arg(k, 1, sizeof r, &r), arg(k, 2, sizeof add, &add);
    must(clEnqueueNDRangeKernel(q, k, 1, NULL, &n, NULL, 0, NULL, &e), "step of a thread");
    for (size_t i = 0; i < MINE; i++) x[i] = x[i] * 1664525u + 1013904223u + r + adds[i & 15];
    must(clEnqueueReadBuffer(queues[(number + r) % card_count], m, CL_TRUE, 0, sizeof got, got, 1, &e, NULL), "read of a thread");
    clReleaseEvent(e);
    right(!memcmp(x, got, sizeof x), "thread", (int)r);
  }
  clReleaseMemObject(m), clReleaseMemObject(add), clReleaseKernel(k);
  return NULL;
}

static void over_cards(int rounds) {
  cl_int e;
  all_cards();
  cl_uint n = card_count;
  cl_kernel k = kernel("advance");
  for (cl_uint i = 0; i < WORDS; i++) model[i] = i * 2654435761u;
  for (cl_uint i = 0; i < 16; i++) adds[i] = i * i;
  cl_mem x = buffer(sizeof model, model), y = buffer(sizeof model, NULL), add = buffer(sizeof adds, adds);
  pthread_t walkers[4];
  for (size_t i = 0; i < 4; i++) must(pthread_create(&walkers[i], NULL, walker, (void *)i), "thread");
  for (size_t i = 0; i < 4; i++) pthread_join(walkers[i], NULL);
  printf("cards %u\n", n);
  pthread_t typed;
  if (!rounds) pthread_create(&typed, NULL, listens, NULL);
  int r = 0;
  for (; rounds ? r < rounds : !told; r++) {
    cl_uint a = (cl_uint)r % n, b = (a + 1) % n;
    cl_event before = NULL;
    for (cl_uint i = 0; i < 3 * n; i++) { /* each waits for the one before, elsewhere */
      cl_event done = step_on((a + i) % n, k, x, add, (cl_uint)r + i, WORDS, before ? 1 : 0, before ? &before : NULL);
      if (before) clReleaseEvent(before);
      before = done;
      model_step(0, WORDS, (cl_uint)r + i);
    }
    must(clWaitForEvents(1, &before), "wait");
    clReleaseEvent(before);
    see(b, x, "alternating", r);

    size_t part = WORDS / n / 1024 * 1024; /* every device has a part of its own */
    cl_event done[CARDS];
    cl_mem parts[CARDS];
    for (cl_uint i = 0; i < n; i++) {
      cl_buffer_region region = {i * part * sizeof *model, part * sizeof *model};
      parts[i] = clCreateSubBuffer(x, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &e);
      must(e, "part");
    }
    for (cl_uint i = 0; i < n; i++) done[i] = step_on((a + i) % n, k, parts[i], add, i, part, 0, NULL), model_step(i * part, (i + 1) * part, i);
    for (cl_uint i = 0; i < n; i++) must(clFlush(queues[i]), "flush");
    must(clWaitForEvents(n, done), "wait for parts");
    for (cl_uint i = 0; i < n; i++) clReleaseEvent(done[i]), clReleaseMemObject(parts[i]);
    see(a, x, "parts", r);

    cl_uint *m = clEnqueueMapBuffer(queues[a], x, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 64, 4096, 0, NULL, NULL, &e);
    must(e, "map");
    right(!memcmp(m, model + 16, 4096), "mapped", r);
    for (int i = 0; i < 1024; i++) m[i] ^= 0x5a5a5a5a, model[16 + i] = m[i];
    must(clEnqueueUnmapMemObject(queues[b], x, m, 0, NULL, NULL), "unmap");
    must(clFinish(queues[b]), "finish");
    cl_event moved;
    must(clEnqueueMigrateMemObjects(queues[b], 1, &x, 0, 0, NULL, &moved), "migrate");
    clReleaseEvent(step_on(a, k, x, add, 7, WORDS, 1, &moved)), model_step(0, WORDS, 7);
    must(clFinish(queues[a]), "finish");
    see(b, x, "mapped and computed", r);

    must(clEnqueueCopyBuffer(queues[a], x, y, 0, 0, sizeof model, 0, NULL, NULL), "copy"); /* x has been read at both */
    must(clFinish(queues[a]), "finish");
    clReleaseEvent(step_on(b, k, y, add, 9, WORDS, 0, NULL)), model_step(0, WORDS, 9);
    must(clFinish(queues[b]), "finish");
    size_t to[3] = {128, 0, 0}, from[3] = {128, 4, 0}, region[3] = {256, 16, 1};
    must(clEnqueueCopyBufferRect(queues[a], y, x, from, to, region, 1024, 0, 1024, 0, 0, NULL, NULL), "copy rows");
    must(clEnqueueCopyBufferRect(queues[a], x, y, to, to, region, 1024, 0, 1024, 0, 0, NULL, NULL), "copy rows back");
    cl_uint pattern[2] = {(cl_uint)r, ~(cl_uint)r};
    must(clEnqueueFillBuffer(queues[a], y, pattern, sizeof pattern, 65536, 4096, 0, NULL, NULL), "fill");
    must(clFinish(queues[a]), "finish");
    for (int i = 0; i < 16; i++) memmove(model + 256 * i + 32, model + 256 * (i + 4) + 32, 256);
    for (int i = 0; i < 1024; i++) model[16384 + i] = pattern[i & 1];
    see(b, y, "copied and filled", r);

    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT32};
    cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 64, .image_height = 128};
    cl_mem picture = clCreateImage(context, CL_MEM_READ_WRITE, &format, &desc, NULL, &e);
    must(e, "image");
    size_t zero[3] = {0}, all[3] = {64, 128, 1};
    must(clEnqueueCopyBufferToImage(queues[a], y, picture, 0, zero, all, 0, NULL, NULL), "to image");
    must(clFinish(queues[a]), "finish");
    must(clEnqueueReadImage(queues[b], picture, CL_TRUE, zero, all, 0, 0, seen, 0, NULL, NULL), "read image");
    same("image", r);
    must(clEnqueueCopyImageToBuffer(queues[b], picture, x, zero, all, 0, 0, NULL, NULL), "from image");
    must(clFinish(queues[b]), "finish");
    clReleaseMemObject(picture);
    see(a, x, "from an image", r);

    cl_event opened = clCreateUserEvent(context, &e); /* nothing may wait here for what is set below */
    must(e, "user event");
    cl_event first = step_on(a, k, x, add, 11, WORDS, 1, &opened);
    cl_event second = step_on(b, k, x, add, 12, WORDS, 1, &first), last; /* with the kernel's arguments of then */
    memset(seen, 0, sizeof seen);
    must(clEnqueueReadBuffer(queues[a], x, CL_FALSE, 0, sizeof seen, seen, 1, &second, &last), "read later");
    cl_int status;
    must(clGetEventInfo(second, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL), "status");
    right(status > CL_RUNNING, "waits for the event", r);
    arg(k, 0, sizeof y, &y);
    must(clSetUserEventStatus(opened, CL_COMPLETE), "set");
    must(clWaitForEvents(1, &last), "wait for all");
    model_step(0, WORDS, 11), model_step(0, WORDS, 12);
    same("after the event", r);
    gate = clCreateUserEvent(context, &e); /* a map without a list of events waits for what was put aside, too */
    must(e, "user event");
    pthread_t other;
    cl_event behind = step_on(a, k, x, add, 14, WORDS, 1, &gate);
    pthread_create(&other, NULL, opens, NULL);
    void *mapped = clEnqueueMapBuffer(queues[a], x, CL_TRUE, CL_MAP_READ, 0, sizeof seen, 0, NULL, NULL, &e);
    must(e, "map behind");
    pthread_join(other, NULL);
    memcpy(seen, mapped, sizeof seen);
    model_step(0, WORDS, 14);
    same("mapped behind", r);
    must(clEnqueueUnmapMemObject(queues[a], x, mapped, 0, NULL, NULL), "unmap");
    clReleaseEvent(gate), clReleaseEvent(behind);
    cl_event broken = clCreateUserEvent(context, &e);
    cl_event never = step_on(b, k, x, add, 13, WORDS, 1, &broken);
    must(clSetUserEventStatus(broken, -7), "set to an error");
    right(clWaitForEvents(1, &never) < 0, "what waits for an error fails", r);
    clReleaseEvent(opened), clReleaseEvent(first), clReleaseEvent(second), clReleaseEvent(last), clReleaseEvent(broken), clReleaseEvent(never), clReleaseEvent(moved);
    see(b, x, "after an error", r);
  }
  clReleaseMemObject(x), clReleaseMemObject(y), clReleaseMemObject(add), clReleaseKernel(k), clReleaseProgram(program);
  for (cl_uint i = 0; i < n; i++) clReleaseCommandQueue(queues[i]);
  must(clReleaseContext(context), "release");
  printf("rounds %d\n", r);
}

static cl_mem far_x, far_y;
static bool far_begun;

/* copies has the second device copy what the first one is still to compute. */
static void *copies(void *done) {
  __atomic_store_n(&far_begun, true, __ATOMIC_SEQ_CST);
  must(clEnqueueCopyBuffer(queues[1], far_x, far_y, 0, 0, sizeof(cl_uint), done != NULL, done, NULL), "copy");
  return NULL;
}

static bool ran(cl_event done) {
  cl_int status;
  must(clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL), "status");
  return status == CL_COMPLETE;
}

static cl_event spin_on(cl_command_queue q, cl_kernel k, cl_mem m, cl_uint rounds) {
  cl_event done;
  size_t one = 1;
  arg(k, 0, sizeof m, &m), arg(k, 1, sizeof rounds, &rounds);
  must(clEnqueueNDRangeKernel(q, k, 1, NULL, &one, NULL, 0, NULL, &done), "spin");
  must(clFlush(q), "flush");
  return done;
}

/* both_parts has the first device write two parts of memory, one of them late, and the second read all when both have been. */
static void both_parts(int how) {
  enum { BARRIER = 1, LATE = 2, LOOSE = 4, SLOW = 20000000 };
  cl_int e;
  cl_command_queue_properties flags = how & LOOSE ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0;
  cl_command_queue a = clCreateCommandQueue(context, cards[0], flags, &e), b = how & LOOSE ? a : clCreateCommandQueue(context, cards[0], 0, &e), c = queues[1];
  must(e, "queue");
  enum { PART = 4096 };
  cl_mem all = buffer(2 * PART, NULL), other = buffer(PART, NULL), parts[2];
  for (int i = 0; i < 2; i++) {
    parts[i] = clCreateSubBuffer(all, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &(cl_buffer_region){(size_t)i * PART, PART}, &e);
    must(e, "part");
  }
  cl_kernel k = kernel("spin");
  cl_event wrote[2], before = how & LATE ? spin_on(c, k, other, SLOW) : spin_on(a, k, parts[0], SLOW);
  const cl_uint one = 1;
  must(clEnqueueFillBuffer(a, parts[0], &one, sizeof one, 0, PART, 1, &before, &wrote[0]), "fill late");
  must(clFlush(a), "flush");
  must(clEnqueueFillBuffer(b, parts[1], &one, sizeof one, 0, PART, 0, NULL, &wrote[1]), "fill");
  must(clFlush(b), "flush");
  if (how & BARRIER) must(clEnqueueBarrierWithWaitList(c, 2, wrote, NULL), "barrier");
  cl_uint got[2 * PART / sizeof(cl_uint)] = {0};
  must(clEnqueueReadBuffer(c, all, CL_FALSE, 0, sizeof got, got, how & BARRIER ? 0 : 2, how & BARRIER ? NULL : wrote, NULL), "read");
  must(clFinish(c), "finish");
  for (size_t i = 0; i < sizeof got / sizeof *got; i++) right(got[i] == 1, "what two wrote", how);
  clReleaseEvent(before);
  for (int i = 0; i < 2; i++) clReleaseEvent(wrote[i]), clReleaseMemObject(parts[i]);
  clReleaseMemObject(all), clReleaseMemObject(other), clReleaseKernel(k), clReleaseCommandQueue(a);
  if (b != a) clReleaseCommandQueue(b);
}

static pthread_mutex_t called_back = PTHREAD_MUTEX_INITIALIZER;
static void CL_CALLBACK waits_long(cl_event e, cl_int status, void *data) {
  (void)e, (void)status, (void)data;
  pthread_mutex_lock(&called_back), pthread_mutex_unlock(&called_back);
}

/* beside_callbacks has one device wait for the other while many of the program's functions do not return. */
static void beside_callbacks(void) {
  enum { MANY = 80 };
  cl_event e, far;
  const cl_uint none = 0;
  cl_mem m = buffer(64, NULL);
  pthread_mutex_lock(&called_back);
  for (int i = 0; i < MANY; i++) {
    must(clEnqueueMarkerWithWaitList(queues[0], 0, NULL, &e), "marker");
    must(clSetEventCallback(e, CL_COMPLETE, waits_long, NULL), "callback");
    clReleaseEvent(e);
  }
  must(clFlush(queues[0]), "flush");
  usleep(200000); /* most are called */
  must(clEnqueueFillBuffer(queues[0], m, &none, sizeof none, 0, 64, 0, NULL, &e), "fill");
  must(clEnqueueFillBuffer(queues[1], m, &none, sizeof none, 0, 64, 1, &e, &far), "fill elsewhere");
  must(clFlush(queues[1]), "flush");
  must(clWaitForEvents(1, &far), "wait beside callbacks");
  pthread_mutex_unlock(&called_back);
  clReleaseEvent(e), clReleaseEvent(far), clReleaseMemObject(m);
}

/* maps has one device map what another computes, or has a copy of on its way, and sees that the call does not wait. */
static void maps(cl_kernel k, cl_uint rounds) {
  static const cl_map_flags ways[] = {CL_MAP_READ, CL_MAP_READ | CL_MAP_WRITE, CL_MAP_WRITE_INVALIDATE_REGION};
  const cl_uint none = 0, own = 7;
  for (int i = 0, tries = 0; i < 6; i++) {
    cl_int e;
    cl_uint x, y;
    cl_event there;
    must(clEnqueueFillBuffer(queues[0], far_x, &none, sizeof none, 0, sizeof none, 0, NULL, NULL), "fill");
    must(clFinish(queues[0]), "finish");
    cl_event computed = spin_on(queues[0], k, far_x, rounds);
    if (i % 2) must(clEnqueueCopyBuffer(queues[1], far_x, far_y, 0, 0, sizeof x, 0, NULL, NULL), "copy");
    cl_uint *p = clEnqueueMapBuffer(queues[1], far_x, CL_FALSE, ways[i / 2], 0, sizeof x, 1, &computed, &there, &e);
    must(e, "map");
    const bool waits = ran(computed); /* on a busy machine a turn may be over before all is sent */
    right(!waits || tries++ < 4, "a call that maps waits for another device", i);
    must(clWaitForEvents(1, &there), "wait for a map");
    right(ran(computed), "what is mapped", i);
    must(clEnqueueReadBuffer(queues[0], far_x, CL_TRUE, 0, sizeof x, &x, 0, NULL, NULL), "read");
    right(ways[i / 2] == CL_MAP_WRITE_INVALIDATE_REGION || *p == x, "mapped", i);
    if (ways[i / 2] != CL_MAP_READ) *p = own;
    must(clEnqueueUnmapMemObject(queues[1], far_x, p, 0, NULL, NULL), "unmap");
    must(clFinish(queues[1]), "finish");
    must(clEnqueueReadBuffer(queues[0], far_y, CL_TRUE, 0, sizeof y, &y, 0, NULL, NULL), "read");
    right(i % 2 == 0 || y == x, "copied before it is mapped", i);
    must(clEnqueueReadBuffer(queues[0], far_x, CL_TRUE, 0, sizeof y, &y, 0, NULL, NULL), "read");
    right(y == (ways[i / 2] == CL_MAP_READ ? x : own), "unmapped", i);
    clReleaseEvent(computed), clReleaseEvent(there);
    i -= waits;
  }
}

/* large has one device copy what was written on another and comes in several pieces: a buffer, and images of one plane and of many. */
static void large(void) {
  static const cl_image_desc shapes[] = {{.image_type = CL_MEM_OBJECT_BUFFER, .image_width = (9 << 20) + 3},
                                         {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 1501, .image_height = 1499},
                                         {.image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = 301, .image_height = 199, .image_depth = 41}};
  const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
  for (int i = 0; i < 3; i++) {
    const cl_image_desc *d = &shapes[i];
    const size_t none[3] = {0}, all[3] = {d->image_width, d->image_height, d->image_depth ? d->image_depth : 1}, bytes = i ? 4 * all[0] * all[1] * all[2] : all[0];
    uint8_t *wrote = malloc(bytes), *got = calloc(1, bytes);
    for (size_t k = 0; k < bytes; k++) wrote[k] = (uint8_t)(k * 2654435761u >> 24);
    cl_mem m[2];
    cl_int e;
    for (int k = 0; k < 2; k++) m[k] = i ? clCreateImage(context, CL_MEM_READ_WRITE, &format, d, NULL, &e) : clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &e), must(e, "large");
    if (i) must(clEnqueueWriteImage(queues[0], m[0], CL_FALSE, none, all, 0, 0, wrote, 0, NULL, NULL), "write");
    else must(clEnqueueWriteBuffer(queues[0], m[0], CL_FALSE, 0, bytes, wrote, 0, NULL, NULL), "write");
    must(clFlush(queues[0]), "flush");
    if (i) must(clEnqueueCopyImage(queues[1], m[0], m[1], none, none, all, 0, NULL, NULL), "copy");
    else must(clEnqueueCopyBuffer(queues[1], m[0], m[1], 0, 0, bytes, 0, NULL, NULL), "copy");
    if (i) must(clEnqueueReadImage(queues[1], m[1], CL_TRUE, none, all, 0, 0, got, 0, NULL, NULL), "read");
    else must(clEnqueueReadBuffer(queues[1], m[1], CL_TRUE, 0, bytes, got, 0, NULL, NULL), "read");
    right(!memcmp(wrote, got, bytes), "large", i);
    clReleaseMemObject(m[0]), clReleaseMemObject(m[1]);
    free(wrote), free(got);
  }
}

/* unmaps has a queue that keeps order unmap what another device's has mapped. */
static void unmaps(cl_kernel k, cl_uint rounds) {
  cl_int e;
  cl_event computed, unmapped;
  cl_uint *p = clEnqueueMapBuffer(queues[0], far_x, CL_TRUE, CL_MAP_WRITE, 0, sizeof *p, 0, NULL, NULL, &e);
  must(e, "map");
  *p = 5;
  computed = spin_on(queues[1], k, far_y, rounds);
  must(clEnqueueUnmapMemObject(queues[1], far_x, p, 0, NULL, &unmapped), "unmap");
  must(clWaitForEvents(1, &unmapped), "wait");
  right(ran(computed), "an unmap waits for what is before it in its queue", 0);
  clReleaseEvent(computed), clReleaseEvent(unmapped);
}

/* markers has one without a list wait for what is before it, and nothing behind it for the marker, in a queue without order. */
static void markers(void) {
  const cl_uint one = 1, two = 2;
  cl_int e;
  cl_uint x;
  cl_command_queue q = clCreateCommandQueue(context, cards[1], CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &e);
  must(e, "queue");
  cl_event set = clCreateUserEvent(context, &e), marked, behind;
  must(e, "user event");
  must(clEnqueueFillBuffer(q, far_x, &one, sizeof one, 0, sizeof one, 1, &set, NULL), "fill");
  must(clEnqueueMarkerWithWaitList(q, 0, NULL, &marked), "mark");
  must(clEnqueueFillBuffer(q, far_y, &two, sizeof two, 0, sizeof two, 0, NULL, &behind), "fill");
  must(clFlush(q), "flush");
  for (double end = now() + 10; !ran(behind) && now() < end;) usleep(1000);
  right(ran(behind), "what is behind a marker waits for it", 0);
  right(!ran(marked), "a marker waits for what is before it", 0);
  must(clSetUserEventStatus(set, CL_COMPLETE), "set");
  must(clEnqueueReadBuffer(q, far_x, CL_TRUE, 0, sizeof x, &x, 1, &marked, NULL), "read");
  right(x == one, "behind a marker", (int)x);
  clReleaseEvent(set), clReleaseEvent(marked), clReleaseEvent(behind);
  clReleaseCommandQueue(q);
}

static void apart(void) {
  enum { LONG = 500000000, STEPS = 5 };
  cl_int e;
  all_cards();
  cl_mem own = buffer(sizeof(cl_uint), NULL);
  far_x = buffer(sizeof(cl_uint), NULL), far_y = buffer(sizeof(cl_uint), NULL);
  cl_kernel k = kernel("spin"), small = kernel("spin");
  cl_event copied, waits[2] = {clCreateUserEvent(context, &e), spin_on(queues[0], k, far_x, LONG)};
  must(e, "user event");
  must(clEnqueueCopyBuffer(queues[1], far_x, far_y, 0, 0, sizeof(cl_uint), 2, waits, &copied), "copy");
  must(clSetUserEventStatus(waits[0], CL_COMPLETE), "set");
  right(!ran(waits[1]), "who sets an event waits for what waits for it", 0);
  must(clWaitForEvents(1, &copied), "wait");
  right(ran(waits[1]), "what waits for another device's", 0);
  cl_uint x, y;
  must(clEnqueueReadBuffer(queues[0], far_x, CL_TRUE, 0, sizeof x, &x, 0, NULL, NULL), "read");
  must(clEnqueueReadBuffer(queues[1], far_y, CL_TRUE, 0, sizeof y, &y, 0, NULL, NULL), "read");
  right(x == y, "copied", 0);
  cl_command_queue q = clCreateCommandQueue(context, cards[1], 0, &e);
  must(e, "queue");
  for (int with = 0; with < 2; with++) { /* a list of events, or none: the device's last writer counts, too */
    cl_event done = spin_on(queues[0], k, far_x, LONG);
    pthread_t t;
    far_begun = false;
    pthread_create(&t, NULL, copies, with ? &done : NULL);
    int steps = 0;
    while (!ran(done)) {
      bool begun = __atomic_load_n(&far_begun, __ATOMIC_SEQ_CST);
      cl_event step = spin_on(q, small, own, 1);
      must(clFinish(q), "finish");
      clReleaseEvent(step);
      steps += begun && !ran(done);
    }
    right(steps >= STEPS, "steps while a call waits for another device", steps);
    pthread_join(t, NULL);
    must(clFinish(queues[1]), "finish");
    clReleaseEvent(done);
  }
  const cl_uint none = 0;
  int tries = 0;
  for (bool waits = true; waits; tries++) { /* on a busy machine a turn may be over before all is sent */
    must(clEnqueueFillBuffer(queues[0], far_x, &none, sizeof none, 0, sizeof none, 0, NULL, NULL), "fill");
    must(clEnqueueFillBuffer(queues[0], far_y, &none, sizeof none, 0, sizeof none, 0, NULL, NULL), "fill");
    must(clFinish(queues[0]), "finish");
    cl_event computed = spin_on(queues[0], k, far_x, LONG), last = computed;
    for (int i = 0; i < 2 * STEPS; i++) { /* each needs what the one before writes elsewhere */
      cl_event before = last;
      must(clEnqueueCopyBuffer(queues[(i + 1) % 2], i % 2 ? far_y : far_x, i % 2 ? far_x : far_y, 0, 0, sizeof x, 1, &before, &last), "copy");
      if (before != computed) clReleaseEvent(before);
    }
    waits = ran(computed);
    right(!waits || tries < 4, "calls wait for another device", 0);
    must(clWaitForEvents(1, &last), "wait");
    right(ran(computed), "what is behind it", 0);
    must(clEnqueueReadBuffer(queues[0], far_y, CL_TRUE, 0, sizeof y, &y, 0, NULL, NULL), "read");
    right(x == y, "copied to and fro", 0);
    clReleaseEvent(last), clReleaseEvent(computed);
  }
  void *mapped = clEnqueueMapBuffer(queues[0], own, CL_TRUE, CL_MAP_READ, 0, sizeof(cl_uint), 0, NULL, NULL, &e);
  must(e, "map");
  right(clEnqueueUnmapMemObject(queues[0], own, mapped, 1, NULL, NULL) == CL_INVALID_EVENT_WAIT_LIST, "a list without events", 0);
  must(clEnqueueUnmapMemObject(queues[0], own, mapped, 0, NULL, NULL), "unmap what was refused");
  maps(k, LONG);
  unmaps(k, LONG);
  large();
  markers();
  for (int how = 0; how < 8; how++) both_parts(how);
  beside_callbacks();
  puts("apart");
}

static double best(double (*f)(void), int times) {
  double b = f();
  for (int i = 1; i < times; i++) {
    double x = f();
    if (x < b) b = x;
  }
  return b;
}

/* between measures how long memory takes from one device to another: what it takes to either is the least. */
static void between(size_t bytes) {
  enum { TIMES = 5 };
  all_cards();
  right(card_count > 1, "devices", (int)card_count);
  cl_mem x = buffer(bytes, NULL), y = buffer(bytes, NULL);
  uint8_t *host = malloc(bytes), *wrote = calloc(1, bytes);
  double least[3] = {1e9, 1e9, 1e9};
  for (cl_uint i = 1; i <= TIMES; i++) {
    double at[4];
    must(clEnqueueFillBuffer(queues[0], x, &i, sizeof i, 0, bytes, 0, NULL, NULL), "fill");
    must(clEnqueueFillBuffer(queues[1], y, &i, sizeof i, 0, bytes, 0, NULL, NULL), "fill");
    must(clFinish(queues[0]), "finish"), must(clFinish(queues[1]), "finish");
    at[0] = now();
    must(clEnqueueReadBuffer(queues[0], x, CL_TRUE, 0, bytes, host, 0, NULL, NULL), "read");
    at[1] = now();
    must(clEnqueueWriteBuffer(queues[1], y, CL_TRUE, 0, bytes, wrote, 0, NULL, NULL), "write");
    at[2] = now();
    must(clEnqueueCopyBuffer(queues[1], x, y, 0, 0, bytes, 0, NULL, NULL), "copy");
    must(clFinish(queues[1]), "finish");
    at[3] = now();
    for (int k = 0; k < 3; k++)
      if (at[k + 1] - at[k] < least[k]) least[k] = at[k + 1] - at[k];
    must(clEnqueueReadBuffer(queues[1], y, CL_TRUE, 0, bytes, wrote, 0, NULL, NULL), "read");
    right(!memcmp(host, wrote, bytes), "what has come", (int)i);
  }
  printf("read_s %.4f\nwrite_s %.4f\nbetween_s %.4f\n", least[0], least[1], least[2]);
  free(host), free(wrote);
}

static cl_kernel bench_kernel;
static cl_mem bench_buffer;
static uint8_t *bench_host;
static size_t bench_bytes;

static double b_launch(void) { /* one of a stream */
  double t = now();
  for (int i = 0; i < 2000; i++) run(bench_kernel, 1, NULL);
  double d = now() - t;
  must(clFinish(queue), "finish");
  return d / 2000 * 1e6;
}
static double b_ask(void) { /* what only the driver knows, and tells at once */
  cl_ulong n;
  double t = now();
  for (int i = 0; i < 500; i++) must(clGetKernelWorkGroupInfo(bench_kernel, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof n, &n, NULL), "ask");
  return (now() - t) / 500 * 1e6;
}
static double b_both(void) {
  double t = now();
  for (int i = 0; i < 500; i++) run(bench_kernel, 1, NULL), must(clFinish(queue), "finish");
  return (now() - t) / 500 * 1e6;
}
static double b_write(void) {
  double t = now();
  must(clEnqueueWriteBuffer(queue, bench_buffer, CL_TRUE, 0, bench_bytes, bench_host, 0, NULL, NULL), "write");
  return (double)bench_bytes / (now() - t) / 1e9;
}
static double b_read(void) {
  double t = now();
  must(clEnqueueReadBuffer(queue, bench_buffer, CL_TRUE, 0, bench_bytes, bench_host, 0, NULL, NULL), "read");
  return (double)bench_bytes / (now() - t) / 1e9;
}
static double b_compute(void) {
  cl_kernel k = kernel("spin");
  cl_uint rounds = 200000;
  arg(k, 0, sizeof bench_buffer, &bench_buffer), arg(k, 1, sizeof rounds, &rounds);
  double t = now();
  for (int i = 0; i < 20; i++) run(k, 256, NULL);
  must(clFinish(queue), "finish");
  return now() - t;
}
static double most(double (*f)(void), int times) {
  double b = 0;
  for (int i = 0; i < times; i++) {
    double x = f();
    if (x > b) b = x;
  }
  return b;
}

/* A ring without anything else: a word and few bytes each way. Who waits looks for
 * a while, if it may, and sleeps then. */
typedef struct {
  _Alignas(128) uint32_t written;
  uint8_t few[32];
  _Alignas(128) uint32_t asleep;
} way;

static void give(way *w, const uint8_t *few) {
  memcpy(w->few, few, sizeof w->few);
  __atomic_add_fetch(&w->written, 1, __ATOMIC_SEQ_CST);
  uint32_t asleep = 1;
  if (__atomic_compare_exchange_n(&w->asleep, &asleep, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) syscall(SYS_futex, &w->written, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void take(way *w, uint32_t seen, uint8_t *few, bool look) {
  const struct timespec most = {0, 100000000}; /* who was not woken looks, as on the pool's ring */
  for (double end = look ? now() + 20e-6 : 0; look && __atomic_load_n(&w->written, __ATOMIC_SEQ_CST) == seen && now() < end;) ;
  while (__atomic_load_n(&w->written, __ATOMIC_SEQ_CST) == seen) {
    __atomic_store_n(&w->asleep, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&w->written, __ATOMIC_SEQ_CST) == seen) syscall(SYS_futex, &w->written, FUTEX_WAIT, seen, &most, NULL, 0);
  }
  __atomic_store_n(&w->asleep, 0, __ATOMIC_SEQ_CST);
  memcpy(few, w->few, sizeof w->few);
}

/* A peer is a process that sends a few bytes back, over a socket or a ring. */
typedef struct {
  const char *name;
  int fd;
  way *ring; /* NULL: it has a socket */
  bool look;
  uint32_t turns;
  pid_t process;
  double least;
} peer;

static void converse(peer *p) {
  char few[32] = {0};
  while (!p->ring)
    if (read(p->fd, few, sizeof few) != sizeof few || write(p->fd, few, sizeof few) != sizeof few) _exit(0);
  for (uint32_t i = 0;; i++) take(p->ring, i, (uint8_t *)few, p->look), give(p->ring + 1, (uint8_t *)few);
}

/* meet starts the peer of a name, before there are threads. */
static peer meet(const char *name) {
  peer p = {.name = name, .look = !strcmp(name, "ring")};
  int fd[2], on = 1;
  if (!strcmp(name, "unix")) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd)) exit(1);
  } else if (!strcmp(name, "tcp")) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int door = socket(AF_INET, SOCK_STREAM, 0);
    fd[1] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(door, (struct sockaddr *)&at, size) || listen(door, 1) || getsockname(door, (struct sockaddr *)&at, &size) ||
        connect(fd[1], (struct sockaddr *)&at, size) || (fd[0] = accept(door, NULL, NULL)) < 0)
      exit(1);
    close(door);
    for (int i = 0; i < 2; i++) setsockopt(fd[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  } else {
    p.ring = mmap(NULL, 2 * sizeof *p.ring, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p.ring == MAP_FAILED) exit(1);
  }
  p.process = fork();
  if (!p.process) {
    if (!p.ring) close(fd[0]), p.fd = fd[1];
    converse(&p);
  }
  if (!p.ring) close(fd[1]), p.fd = fd[0];
  return p;
}

/* turn is what a few bytes to a peer and back take, in microseconds. */
static double turn(peer *p) {
  uint8_t few[32] = {0};
  double t = now();
  for (int i = 0; i < 500; i++, p->turns++) {
    if (p->ring)
      give(p->ring, few), take(p->ring + 1, p->turns, few, p->look);
    else if (write(p->fd, few, sizeof few) != sizeof few || read(p->fd, few, sizeof few) != sizeof few)
      exit(1);
  }
  return (now() - t) / 500 * 1e6;
}

static void bench(peer *peers, int n) {
  bench_kernel = kernel("none");
  bench_host = malloc(64 << 20);
  memset(bench_host, 1, 64 << 20);
  bench_bytes = 64 << 20;
  bench_buffer = buffer(bench_bytes, NULL);
  b_both();
  printf("launch_us %.3f\n", best(b_launch, 10));
  double least = b_ask();
  for (int i = 0; i < 40; i++) { /* in turns, so that both find the machine alike */
    for (int j = 0; j < n; j++) {
      double x = turn(&peers[j]);
      if (!i || x < peers[j].least) peers[j].least = x;
    }
    double x = b_ask();
    if (x < least) least = x;
  }
  printf("ask_us %.3f\n", least);
  printf("launch_finish_us %.3f\n", best(b_both, 10));
  printf("compute_s %.4f\n", best(b_compute, 5));
  printf("write_64m_gbs %.3f\n", most(b_write, 12));
  printf("read_64m_gbs %.3f\n", most(b_read, 12));
  bench_bytes = 1 << 20;
  printf("write_1m_gbs %.3f\n", most(b_write, 200));
  printf("read_1m_gbs %.3f\n", most(b_read, 200));
  for (int j = 0; j < n; j++) {
    printf("bare_%s_us %.3f\n", peers[j].name, peers[j].least);
    kill(peers[j].process, SIGKILL), waitpid(peers[j].process, NULL, 0);
  }
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  int n = argc > 2 ? atoi(argv[2]) : 1;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!strcmp(what, "cards")) {
    over_cards(n);
    return 0;
  } else if (!strcmp(what, "apart")) {
    apart();
    return 0;
  } else if (!strcmp(what, "between")) {
    between((size_t)n << 20);
    return 0;
  } else if (!strcmp(what, "store")) {
    store(n);
    return 0;
  }
  peer peers[2];
  int met = 0;
  for (int i = 2; !strcmp(what, "bench") && i < argc && met < 2; i++) peers[met++] = meet(argv[i]);
  start();
  if (!strcmp(what, "add")) {
    uint64_t h = 0;
    for (int i = 0; i < n; i++) h = h * 31 + add(i % 2 ? 1 << 10 : 1 << 16, i);
    printf("sum %016llx\n", (unsigned long long)h);
  } else if (!strcmp(what, "fill") || !strcmp(what, "crumbs")) {
    int i = 0;
    cl_int e = CL_SUCCESS;
    const size_t bytes = *what == 'f' ? 1 << 20 : 4 << 10;
    for (; i < n; i++) {
      clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &e);
      if (e) break;
    }
    printf("buffers %d error %d\n", i, e);
    if (argc > 3) { /* then once more, when told so */
      getchar();
      clCreateBuffer(context, CL_MEM_READ_WRITE, 1 << 20, NULL, &e);
      printf("again %d\n", e);
    }
  } else if (!strcmp(what, "silent")) {
    silent();
  } else if (!strcmp(what, "spin")) {
    cl_kernel k = kernel("spin");
    cl_uint rounds = argc > 3 ? (cl_uint)atoi(argv[3]) : 400000;
    cl_mem m = buffer(1 << 16, NULL);
    int done = 0, ahead = argc > 4 ? atoi(argv[4]) : 1;
    arg(k, 0, sizeof m, &m), arg(k, 1, sizeof rounds, &rounds);
    puts("spinning");
    for (double end = now() + n; now() < end; done += ahead) {
      for (int i = 0; i < ahead; i++) run(k, 256, NULL);
      must(clFinish(queue), "finish");
    }
    printf("kernels %d\n", done);
  } else if (!strcmp(what, "fails")) {
    cl_mem m = buffer(64, NULL);
    const cl_uint one = 1;
    for (int i = 0; i < n; i++) {
      cl_int e;
      cl_event opened = clCreateUserEvent(context, &e), never;
      must(e, "user event");
      must(clEnqueueFillBuffer(queue, m, &one, sizeof one, 0, 64, 1, &opened, &never), "fill");
      must(clSetUserEventStatus(opened, -7), "set");
      right(clWaitForEvents(1, &never) < 0, "what waits for an error fails", i);
      clReleaseEvent(opened), clReleaseEvent(never);
    }
    puts("failed");
  } else if (!strcmp(what, "late")) {
    cl_kernel k = kernel("spin");
    cl_uint rounds = 4000000;
    cl_mem m = buffer(4096, NULL);
    arg(k, 0, sizeof m, &m), arg(k, 1, sizeof rounds, &rounds);
    const size_t some = 4;
    cl_int e;
    cl_command_queue q = clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &e);
    must(e, "queue");
    cl_ulong took = 0, from, to;
    for (int i = 0; i < n; i++) {
      cl_event opened = clCreateUserEvent(context, &e), done;
      must(e, "user event");
      must(clEnqueueNDRangeKernel(q, k, 1, NULL, &some, NULL, 1, &opened, &done), "run");
      must(clFlush(q), "flush");
      usleep(20000);
      must(clSetUserEventStatus(opened, CL_COMPLETE), "set");
      must(clFinish(q), "finish");
      must(clGetEventProfilingInfo(done, CL_PROFILING_COMMAND_START, sizeof from, &from, NULL), "began");
      must(clGetEventProfilingInfo(done, CL_PROFILING_COMMAND_END, sizeof to, &to, NULL), "ended");
      took += to - from;
      clReleaseEvent(opened), clReleaseEvent(done);
    }
    printf("took %llu\n", (unsigned long long)took);
  } else if (!strcmp(what, "rate")) {
    enum { AHEAD = 8 };
    cl_kernel k = kernel("spin");
    cl_uint rounds = argc > 3 ? (cl_uint)atoi(argv[3]) : 20000;
    cl_mem m = buffer(1 << 16, NULL);
    int done = 0;
    arg(k, 0, sizeof m, &m), arg(k, 1, sizeof rounds, &rounds);
    for (int i = 0; i < AHEAD; i++) run(k, 256, NULL);
    must(clFinish(queue), "finish");
    puts("ready");
    if (getchar() == EOF) return 1;
    double begun = now();
    for (; now() < begun + n; done += AHEAD) {
      for (int i = 0; i < AHEAD; i++) run(k, 256, NULL);
      must(clFinish(queue), "finish");
    }
    printf("did %d in %.3f\n", done, now() - begun);
  } else if (!strcmp(what, "crash")) {
    cl_kernel k = kernel("crash");
    cl_ulong at = 8;
    cl_mem m = buffer(64, NULL);
    arg(k, 0, sizeof m, &m), arg(k, 1, sizeof at, &at);
    size_t one = 1;
    cl_int e = clEnqueueNDRangeKernel(queue, k, 1, NULL, &one, NULL, 0, NULL, NULL);
    printf("crash %d\n", e ? e : clFinish(queue)); /* natively it does not come here */
  } else if (!strcmp(what, "forever")) {
    cl_kernel k = kernel("forever");
    cl_uint zero = 0;
    cl_mem m = buffer(64, NULL);
    must(clEnqueueWriteBuffer(queue, m, CL_TRUE, 0, sizeof zero, &zero, 0, NULL, NULL), "write");
    arg(k, 0, sizeof m, &m);
    run(k, 1, NULL);
    puts("forever");
    printf("finish %d\n", clFinish(queue));
  } else if (!strcmp(what, "threads")) {
    threads();
  } else if (!strcmp(what, "print")) {
    print();
  } else if (!strcmp(what, "includes")) {
    includes();
  } else if (!strcmp(what, "flood")) {
    flood((size_t)n);
  } else if (!strcmp(what, "exchange")) {
    exchange((size_t)n);
  } else if (!strcmp(what, "talks")) {
    talks();
  } else if (!strcmp(what, "peek")) {
    peek(argc > 2 ? argv[2] : "");
  } else if (!strcmp(what, "unbuilt")) {
    unbuilt();
  } else if (!strcmp(what, "queues")) {
    some_queues(n);
  } else if (!strcmp(what, "parts")) {
    parts();
  } else if (!strcmp(what, "leave")) {
    leave(n);
  } else if (!strcmp(what, "find")) {
    find(n);
  } else if (!strcmp(what, "trips")) {
    trips();
  } else if (!strcmp(what, "asks")) {
    asks();
  } else if (!strcmp(what, "imageof")) {
    image_of();
  } else if (!strcmp(what, "walk")) {
    walk((size_t)n);
  } else if (!strcmp(what, "bench")) {
    bench(peers, met);
  } else {
    fprintf(stderr, "there is no %s\n", what);
    return 2;
  }
  return 0;
}
