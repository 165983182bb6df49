/* Programs and kernels. */
#include "pool.h"
#include "ops.h"

enum { FROM_SOURCE, FROM_BINARY, FROM_IL, BUILT_IN, FROM_BINARIES };
enum { MOST_CONSTANT = 128 };

static object *create_program(cl_context c, int from, const void *text, size_t n, answer *a, cl_int *err) {
  object *o = yp_new(PROGRAM, obj(c), obj(c));
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  yp_begin(o->node, OP_create_program);
  yp_word(obj(c)->id);
  yp_word(o->id);
  yp_word((uint64_t)from);
  yp_bytes(text, n);
  cl_int bad = yp_sync(a);
  if (bad) yp_destroy(o), o = NULL;
  if (err) *err = bad;
  return o;
}

static cl_program CL_API_CALL yp_clCreateProgramWithSource(cl_context c, cl_uint n, const char **texts, const size_t *lengths, cl_int *err) {
  if (!is(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!n || !texts) FAIL(CL_INVALID_VALUE);
  size_t all = 0;
  for (cl_uint i = 0; i < n; i++) {
    if (!texts[i]) FAIL(CL_INVALID_VALUE);
    all += lengths && lengths[i] ? lengths[i] : strlen(texts[i]);
  }
  char *text = malloc(all + 1);
  if (!text) FAIL(CL_OUT_OF_HOST_MEMORY);
  size_t at = 0;
  for (cl_uint i = 0; i < n; i++) {
    size_t k = lengths && lengths[i] ? lengths[i] : strlen(texts[i]);
    memcpy(text + at, texts[i], k);
    at += k;
  }
  text[all] = 0;
  size_t said = all;
  char *own = yp_later(obj(c)->node) ? yp_own_paths(text, &said) : NULL;
  object *o = create_program(c, FROM_SOURCE, own ? own : text, said, NULL, err);
  free(own);
  if (o) o->u.program.text = text, o->u.program.size = all;
  else free(text);
  return (cl_program)o;
}

static bool devices_right(const object *context, cl_uint n, const cl_device_id *devices, cl_int *bad) {
  *bad = (n == 0) != (devices == NULL) ? CL_INVALID_VALUE : CL_SUCCESS;
  for (cl_uint i = 0; i < n && !*bad; i++)
    if (!is(devices[i], DEVICE) || obj(devices[i])->node != context->node) *bad = CL_INVALID_DEVICE;
  return !*bad;
}

/* put_devices adds which devices of a context that has several a program is made for, at the end of a message. */
static void put_devices(const object *context, cl_uint n, const cl_device_id *devices) {
  if (!n || context->u.context.n == 1) return;
  yp_word(n);
  for (cl_uint i = 0; i < n; i++) yp_word(obj(devices[i])->id);
}

static cl_program CL_API_CALL yp_clCreateProgramWithBinary(cl_context c, cl_uint n, const cl_device_id *devices, const size_t *lengths, const unsigned char **binaries,
                                                           cl_int *status, cl_int *err) {
  cl_int bad;
  if (!is(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!n || !devices || !lengths || !binaries) FAIL(CL_INVALID_VALUE);
  if (!devices_right(obj(c), n, devices, &bad)) FAIL(bad);
  for (cl_uint i = 1; i < n; i++)
    for (cl_uint j = 0; j < i; j++)
      if (devices[i] == devices[j]) FAIL(CL_INVALID_DEVICE);
  size_t all = 8 + 16 * (size_t)n, at = all;
  for (cl_uint i = 0; i < n; i++) {
    if (status) status[i] = lengths[i] && binaries[i] ? CL_SUCCESS : CL_INVALID_VALUE;
    if (!lengths[i] || !binaries[i]) bad = CL_INVALID_VALUE;
    else all += lengths[i];
  }
  if (bad) FAIL(bad);
  answer a = {.land = NULL};
  if (obj(c)->u.context.n == 1) {
    object *o = create_program(c, FROM_BINARY, binaries[0], lengths[0], &a, err);
    if (status) *status = (cl_int)a.a;
    free(a.data);
    return (cl_program)o;
  }
  uint8_t *text = malloc(all);
  if (!text) FAIL(CL_OUT_OF_HOST_MEMORY);
  uint64_t count = n;
  memcpy(text, &count, 8);
  for (cl_uint i = 0; i < n; i++) {
    uint64_t w[2] = {obj(devices[i])->id, lengths[i]};
    memcpy(text + 8 + 16 * (size_t)i, w, sizeof w);
    memcpy(text + at, binaries[i], lengths[i]);
    at += lengths[i];
  }
  object *o = create_program(c, FROM_BINARIES, text, all, &a, err);
  for (cl_uint i = 0; status && i < n && (i + 1) * sizeof *status <= a.size; i++) memcpy(status + i, a.data + i * sizeof *status, sizeof *status);
  free(text), free(a.data);
  return (cl_program)o;
}

static cl_program CL_API_CALL yp_clCreateProgramWithIL(cl_context c, const void *il, size_t n, cl_int *err) {
  if (!is(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!il || !n) FAIL(CL_INVALID_VALUE);
  return (cl_program)create_program(c, FROM_IL, il, n, NULL, err);
}

static cl_program CL_API_CALL yp_clCreateProgramWithBuiltInKernels(cl_context c, cl_uint n, const cl_device_id *devices, const char *names, cl_int *err) {
  cl_int bad;
  if (!is(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!n || !devices || !names) FAIL(CL_INVALID_VALUE);
  if (!devices_right(obj(c), n, devices, &bad)) FAIL(bad);
  return (cl_program)create_program(c, BUILT_IN, names, strlen(names), NULL, err);
}

/* Constants are of programs in intermediate language, for when they are built. */
static cl_int CL_API_CALL yp_clSetProgramSpecializationConstant(cl_program p, cl_uint constant, size_t size, const void *value) {
  if (!is(p, PROGRAM)) return CL_INVALID_PROGRAM;
  if (!size || !value || size > MOST_CONSTANT) return CL_INVALID_VALUE;
  if (!yp_later(obj(p)->node)) return CL_INVALID_OPERATION;
  yp_begin(obj(p)->node, OP_specialize);
  yp_word(obj(p)->id);
  yp_word(constant);
  yp_bytes(value, size);
  return yp_sync(NULL);
}

typedef void(CL_CALLBACK *built)(cl_program, void *);

/* put_options adds build options. Drivers tell none from empty ones: PoCL then tells of kernels' arguments. */
static void put_options(const char *options) {
  if (options && !*options) options = " ";
  yp_bytes(options, options ? strlen(options) : 0);
}

/* end_build ends the message that builds or compiles a program, and tells who asked to be told. */
static cl_int end_build(cl_program p, yp_headers *h, cl_uint n, const cl_device_id *devices, built notify, void *data) {
  yp_headers_put(h, obj(p)->context->u.context.n > 1);
  put_devices(obj(p)->context, n, devices);
  cl_int bad = yp_sync(NULL);
  yp_headers_free(h);
  if (notify) notify(p, data);
  return bad;
}

static cl_int CL_API_CALL yp_clBuildProgram(cl_program p, cl_uint n, const cl_device_id *devices, const char *options, built notify, void *data) {
  cl_int bad;
  if (!is(p, PROGRAM)) return CL_INVALID_PROGRAM;
  if (!devices_right(obj(p)->context, n, devices, &bad)) return bad;
  if (!notify && data) return CL_INVALID_VALUE;
  yp_headers *h = yp_headers_of(options, 1, &p);
  if (!h) return CL_OUT_OF_HOST_MEMORY;
  yp_begin(obj(p)->node, OP_build);
  yp_word(obj(p)->id);
  put_options(options);
  return end_build(p, h, n, devices, notify, data);
}

static cl_int CL_API_CALL yp_clCompileProgram(cl_program p, cl_uint n, const cl_device_id *devices, const char *options, cl_uint headers, const cl_program *header,
                                              const char **names, built notify, void *data) {
  cl_int bad;
  if (!is(p, PROGRAM)) return CL_INVALID_PROGRAM;
  if (!devices_right(obj(p)->context, n, devices, &bad)) return bad;
  if ((!notify && data) || (headers == 0) != (header == NULL) || (headers == 0) != (names == NULL)) return CL_INVALID_VALUE;
  for (cl_uint i = 0; i < headers; i++)
    if (!is(header[i], PROGRAM)) return CL_INVALID_PROGRAM;
  cl_program texts[headers + 1];
  texts[0] = p;
  for (cl_uint i = 0; i < headers; i++) texts[i + 1] = header[i];
  yp_headers *h = yp_headers_of(options, headers + 1, texts);
  if (!h) return CL_OUT_OF_HOST_MEMORY;
  yp_begin(obj(p)->node, OP_compile);
  yp_word(obj(p)->id);
  put_options(options);
  yp_word(headers);
  for (cl_uint i = 0; i < headers; i++) {
    yp_word(obj(header[i])->id);
    yp_bytes(names[i], strlen(names[i]));
  }
  return end_build(p, h, n, devices, notify, data);
}

static cl_program CL_API_CALL yp_clLinkProgram(cl_context c, cl_uint n, const cl_device_id *devices, const char *options, cl_uint inputs, const cl_program *input, built notify,
                                               void *data, cl_int *err) {
  cl_int bad;
  if (!is(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!devices_right(obj(c), n, devices, &bad)) FAIL(bad);
  if (!inputs || !input || (!notify && data)) FAIL(CL_INVALID_VALUE);
  for (cl_uint i = 0; i < inputs; i++)
    if (!is(input[i], PROGRAM)) FAIL(CL_INVALID_PROGRAM);
  object *o = yp_new(PROGRAM, obj(c), obj(c));
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  yp_begin(o->node, OP_link);
  yp_word(obj(c)->id);
  yp_word(o->id);
  yp_bytes(options, options ? strlen(options) : 0);
  yp_word(inputs);
  for (cl_uint i = 0; i < inputs; i++) yp_word(obj(input[i])->id);
  put_devices(obj(c), n, devices);
  answer a = {.land = NULL};
  bad = yp_sync(&a);
  free(a.data);
  if (bad && !a.a) yp_destroy(o), o = NULL; /* a.a: there is a program, with a log that says what is wrong */
  if (err) *err = bad;
  if (notify) notify((cl_program)o, data);
  return (cl_program)o;
}

static cl_int CL_API_CALL yp_clUnloadCompiler(void) { return CL_SUCCESS; }
static cl_int CL_API_CALL yp_clUnloadPlatformCompiler(cl_platform_id p) { return is(p, PLATFORM) ? CL_SUCCESS : CL_INVALID_PLATFORM; }

/* device_with returns the device of a context with a worker's number, or the whole device, of which they are parts. */
static object *device_with(const object *context, uint64_t id) {
  for (cl_uint i = 0; i < context->u.context.n; i++)
    if (context->u.context.devices[i]->id == id) return context->u.context.devices[i];
  object *d = context->u.context.devices[0];
  while (d->parent) d = d->parent;
  return d;
}

static cl_int CL_API_CALL yp_clGetProgramInfo(cl_program h, cl_program_info what, size_t size, void *value, size_t *got) {
  if (!is(h, PROGRAM)) return CL_INVALID_PROGRAM;
  object *o = obj(h);
  switch (what) {
  case CL_PROGRAM_REFERENCE_COUNT: GIVE(cl_uint, yp_count(yp_refs(o)));
  case CL_PROGRAM_CONTEXT: GIVE(cl_context, (cl_context)o->context);
  case CL_PROGRAM_SOURCE:
    if (o->u.program.text) return yp_give(o->u.program.text, o->u.program.size + 1, size, value, got);
    break;
  case CL_PROGRAM_DEVICES: { /* the worker knows them by their numbers */
    answer a = {.land = NULL};
    cl_int status = yp_ask(o->node, OF_PROGRAM, o->id, 0, what, &a);
    for (size_t i = 0; !status && i + sizeof(cl_device_id) <= a.size; i += sizeof(cl_device_id)) {
      uint64_t id;
      memcpy(&id, a.data + i, sizeof id);
      object *d = device_with(o->context, id);
      memcpy(a.data + i, &d, sizeof d);
    }
    if (!status) status = yp_give(a.data, a.size, size, value, got);
    free(a.data);
    return status;
  }
  case CL_PROGRAM_BINARIES: {
    unsigned char **to = value;
    answer sizes = {.land = NULL}, a = {.land = NULL};
    cl_int status = yp_ask(o->node, OF_PROGRAM, o->id, 0, CL_PROGRAM_BINARY_SIZES, &sizes);
    size_t all = sizes.size / sizeof(size_t) * sizeof *to, at = 0;
    if (!status && value && size < all) status = CL_INVALID_VALUE;
    if (!status && value) {
      yp_begin(o->node, OP_binaries);
      yp_word(o->id);
      status = yp_sync(&a);
    }
    if (!status && got) *got = all;
    for (size_t i = 0; !status && value && i < all / sizeof *to; i++) {
      size_t n;
      memcpy(&n, sizes.data + i * sizeof n, sizeof n);
      if (to[i] && n <= a.size - at) memcpy(to[i], a.data + at, n);
      at += n <= a.size - at ? n : 0;
    }
    free(sizes.data), free(a.data);
    return status;
  }
  }
  return yp_info(o->node, OF_PROGRAM, o->id, 0, what, size, value, got);
}

static cl_int CL_API_CALL yp_clGetProgramBuildInfo(cl_program h, cl_device_id d, cl_program_build_info what, size_t size, void *value, size_t *got) {
  if (!is(h, PROGRAM)) return CL_INVALID_PROGRAM;
  if (!is(d, DEVICE) || obj(d)->node != obj(h)->node) return CL_INVALID_DEVICE;
  cl_int bad = yp_info(obj(h)->node, OF_BUILD, obj(h)->id, obj(d)->id, what, size, value, got);
  if (bad == CL_INVALID_PROGRAM && what == CL_PROGRAM_BUILD_LOG) GIVE_TEXT(""); /* what was not built has an empty log; not every driver says so */
  return bad;
}

/* Kernels. */

static void describe_kernel(object *k, const char *classes, size_t n) {
  k->u.kernel.args = (cl_uint)n;
  k->u.kernel.classes = calloc(1, n + 1);
  k->u.kernel.proven = calloc(n + 1, sizeof *k->u.kernel.proven);
  if (k->u.kernel.classes) memcpy(k->u.kernel.classes, classes, n);
  else k->u.kernel.args = 0;
}

static cl_kernel CL_API_CALL yp_clCreateKernel(cl_program p, const char *name, cl_int *err) {
  if (!is(p, PROGRAM)) FAIL(CL_INVALID_PROGRAM);
  if (!name) FAIL(CL_INVALID_VALUE);
  object *o = yp_new(KERNEL, obj(p), obj(p)->context);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  answer a = {.land = NULL};
  yp_begin(o->node, OP_create_kernel);
  yp_word(obj(p)->id);
  yp_word(o->id);
  yp_bytes(name, strlen(name));
  cl_int bad = yp_sync(&a);
  if (bad) yp_destroy(o), o = NULL;
  else describe_kernel(o, (char *)a.data, a.size);
  free(a.data);
  if (err) *err = bad;
  return (cl_kernel)o;
}

static cl_int CL_API_CALL yp_clCreateKernelsInProgram(cl_program p, cl_uint n, cl_kernel *kernels, cl_uint *count) {
  if (!is(p, PROGRAM)) return CL_INVALID_PROGRAM;
  size_t there = 0;
  cl_int bad = yp_info(obj(p)->node, OF_PROGRAM, obj(p)->id, 0, CL_PROGRAM_NUM_KERNELS, sizeof there, &there, NULL);
  if (bad) return bad == CL_INVALID_PROGRAM_EXECUTABLE ? bad : CL_INVALID_PROGRAM_EXECUTABLE;
  if (kernels && n < there) return CL_INVALID_VALUE;
  if (count) *count = (cl_uint)there;
  if (!kernels || !there) return CL_SUCCESS;
  for (size_t i = 0; i < there; i++) kernels[i] = (cl_kernel)yp_new(KERNEL, obj(p), obj(p)->context);
  answer a = {.land = NULL};
  yp_begin(obj(p)->node, OP_create_kernels);
  yp_word(obj(p)->id);
  yp_word(there);
  for (size_t i = 0; i < there; i++) yp_word(obj(kernels[i])->id);
  bad = yp_sync(&a);
  const char *line = (char *)a.data;
  for (size_t i = 0; i < there; i++) {
    const char *end = bad ? NULL : strchr(line, '\n');
    if (!end) {
      yp_destroy(obj(kernels[i]));
      continue;
    }
    describe_kernel(obj(kernels[i]), line, (size_t)(end - line));
    line = end + 1;
  }
  free(a.data);
  return bad;
}

static cl_kernel CL_API_CALL yp_clCloneKernel(cl_kernel k, cl_int *err) {
  if (!is(k, KERNEL)) FAIL(CL_INVALID_KERNEL);
  object *o = yp_new(KERNEL, obj(k)->parent, obj(k)->context);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = yp_status(o->node, OP_clone_kernel, obj(k)->id, o->id);
  if (bad) yp_destroy(o), o = NULL;
  else describe_kernel(o, obj(k)->u.kernel.classes, obj(k)->u.kernel.args);
  for (cl_uint i = 0; o && obj(k)->u.kernel.samplers && i < o->u.kernel.args; i++) yp_keep_sampler(o, i, obj(k)->u.kernel.samplers[i]);
  if (err) *err = bad;
  return (cl_kernel)o;
}

/* Classes of arguments: m memory, s sampler, v value, l local, ? not known. */
enum { ARG_VALUE, ARG_HANDLE, ARG_NULL };

static cl_int CL_API_CALL yp_clSetKernelArg(cl_kernel h, cl_uint index, size_t size, const void *value) {
  if (!is(h, KERNEL)) return CL_INVALID_KERNEL;
  object *k = obj(h);
  if (index >= k->u.kernel.args) return CL_INVALID_ARG_INDEX;
  char class = k->u.kernel.classes[index];
  if (class == '?' && value && size == sizeof(void *)) { /* a value that is the address of an object is that object */
    object *o = yp_find_object(*(void *const *)value);
    class = is(o, MEM) ? 'm' : is(o, SAMPLER) ? 's' : '?';
  }
  uint64_t id = 0;
  int how = value ? ARG_VALUE : ARG_NULL;
  if (class == 'm' || class == 's') {
    if (size != sizeof(void *)) return CL_INVALID_ARG_SIZE;
    void *handle = value ? *(void *const *)value : NULL;
    if (class == 's' && !is(handle, SAMPLER)) return CL_INVALID_SAMPLER;
    if (handle && class == 'm' && !is(handle, MEM)) return CL_INVALID_MEM_OBJECT;
    how = handle ? ARG_HANDLE : ARG_NULL;
    if (handle) id = obj(handle)->id;
  } else if (class == 'v' && !value) {
    return CL_INVALID_ARG_VALUE;
  } else if (class == 'l' && (value || !size)) {
    return value ? CL_INVALID_ARG_VALUE : CL_INVALID_ARG_SIZE;
  } else if (size > MOST_VALUE && value) {
    return CL_INVALID_ARG_SIZE;
  }
  yp_begin(k->node, OP_set_arg);
  yp_word(k->id);
  yp_word(index);
  yp_word(size);
  yp_word((uint64_t)how);
  yp_proof();
  if (how == ARG_HANDLE) yp_word(id);
  else if (how == ARG_VALUE) yp_bytes(value, size);
  cl_int bad = yp_end_by(yp_proven(k, index));
  if (!bad && (class == 's' || k->u.kernel.samplers)) yp_keep_sampler(k, index, class == 's' ? obj(*(void *const *)value) : NULL);
  return bad;
}

static cl_int CL_API_CALL yp_clGetKernelInfo(cl_kernel h, cl_kernel_info what, size_t size, void *value, size_t *got) {
  if (!is(h, KERNEL)) return CL_INVALID_KERNEL;
  object *o = obj(h);
  switch (what) {
  case CL_KERNEL_REFERENCE_COUNT: GIVE(cl_uint, yp_count(yp_refs(o)));
  case CL_KERNEL_CONTEXT: GIVE(cl_context, (cl_context)o->context);
  case CL_KERNEL_PROGRAM: GIVE(cl_program, (cl_program)o->parent);
  }
  return yp_fact(o, OF_KERNEL, 0, what, size, value, got);
}

static cl_int CL_API_CALL yp_clGetKernelArgInfo(cl_kernel h, cl_uint index, cl_kernel_arg_info what, size_t size, void *value, size_t *got) {
  if (!is(h, KERNEL)) return CL_INVALID_KERNEL;
  if (index >= obj(h)->u.kernel.args) return CL_INVALID_ARG_INDEX;
  return yp_fact(obj(h), OF_ARG, index, what, size, value, got);
}

static cl_int CL_API_CALL yp_clGetKernelWorkGroupInfo(cl_kernel h, cl_device_id d, cl_kernel_work_group_info what, size_t size, void *value, size_t *got) {
  if (!is(h, KERNEL)) return CL_INVALID_KERNEL;
  const object *context = obj(h)->context;
  if (d ? !is(d, DEVICE) || obj(d)->node != context->node : context->u.context.n > 1) return CL_INVALID_DEVICE;
  uint64_t on = d ? obj(d)->id : context->u.context.devices[0]->id;
  if (what == CL_KERNEL_LOCAL_MEM_SIZE) return yp_info(obj(h)->node, OF_GROUP, obj(h)->id, on, what, size, value, got); /* arguments have some */
  return yp_fact(obj(h), OF_GROUP, on, what, size, value, got);
}

/* What is asked of sub-groups depends on sizes that the program gives, and how many of them it wants. */
static cl_int CL_API_CALL yp_clGetKernelSubGroupInfo(cl_kernel h, cl_device_id d, cl_kernel_sub_group_info what, size_t given, const void *sizes, size_t size, void *value, size_t *got) {
  if (!is(h, KERNEL)) return CL_INVALID_KERNEL;
  const object *context = obj(h)->context;
  if (d ? !is(d, DEVICE) || obj(d)->node != context->node : context->u.context.n > 1) return CL_INVALID_DEVICE;
  if (given > 3 * sizeof(size_t)) return CL_INVALID_VALUE;
  if (!yp_later(obj(h)->node)) return CL_INVALID_OPERATION;
  answer a = {.land = NULL};
  yp_begin(obj(h)->node, OP_sub_group_info);
  yp_word(obj(h)->id);
  yp_word(d ? obj(d)->id : context->u.context.devices[0]->id);
  yp_word(what);
  yp_word(value ? size : 0);
  yp_bytes(sizes, sizes ? given : 0);
  cl_int status = yp_sync(&a);
  if (!status) status = yp_give(a.data, value ? a.size : a.a, size, value, got);
  free(a.data);
  return status;
}

static uint64_t bits(size_t n) { return n ? (uint64_t)(64 - __builtin_clzll(n)) : 0; }

/* alike fills in what launches of a kernel have in common of which all are right if one is: the size of a group, and of what else
 * there is how many bits it has, as limits of devices are powers of two (65,535 groups). Programs whose sizes change with each
 * step do not wait then. It returns false if only one of just these sizes is known to be right. */
static bool alike(cl_uint dims, const size_t *offset, const size_t *global, const size_t *local, uint64_t like[12]) {
  for (cl_uint i = 0; i < dims; i++) {
    const size_t at = offset ? offset[i] : 0, n = global ? global[i] : 0, group = local ? local[i] : 1;
    size_t end;
    if (!n || !group || n % group || __builtin_add_overflow(at, n, &end)) {
      *like = 0;
      return false;
    }
    like[4 * i] = local ? group : ~(uint64_t)0;
    like[4 * i + 1] = bits(at), like[4 * i + 2] = bits(end), like[4 * i + 3] = bits(n / group);
  }
  return true;
}

static cl_int CL_API_CALL yp_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel k, cl_uint dims, const size_t *offset, const size_t *global, const size_t *local, cl_uint n,
                                                    const cl_event *waits, cl_event *event) {
  if (!is(q, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!is(k, KERNEL)) return CL_INVALID_KERNEL;
  if (obj(q)->context != obj(k)->context) return CL_INVALID_CONTEXT;
  if (dims < 1 || dims > 3) return CL_INVALID_WORK_DIMENSION;
  cl_int bad = yp_check_waits(obj(q)->context, n, waits);
  if (bad) return bad;
  object *e = event ? yp_event(obj(q), CL_COMMAND_NDRANGE_KERNEL) : NULL;
  yp_begin(obj(q)->node, OP_EnqueueNDRangeKernel);
  yp_word(obj(q)->id);
  yp_word(obj(k)->id);
  yp_word(dims);
  uint64_t like[12] = {0};
  if (alike(dims, offset, global, local, like)) yp_proof(), yp_like(like, sizeof like / sizeof *like);
  yp_osize3(offset, dims);
  yp_osize3(global, dims);
  yp_osize3(local, dims);
  if (!*like) yp_proof();
  yp_waits(n, waits);
  yp_word(e ? e->id : 0);
  bad = yp_send_to(obj(q), e);
  if (e && bad) yp_destroy(e);
  else if (e) *event = (cl_event)e;
  return bad;
}

#define SET(NAME) yp_dispatch.NAME = yp_##NAME;
void yp_fill_programs(void) {
  SET(clCreateProgramWithSource) SET(clCreateProgramWithBinary) SET(clCreateProgramWithIL) SET(clCreateProgramWithBuiltInKernels) SET(clBuildProgram) SET(clCompileProgram)
  SET(clLinkProgram) SET(clUnloadCompiler) SET(clUnloadPlatformCompiler) SET(clGetProgramInfo) SET(clGetProgramBuildInfo) SET(clSetProgramSpecializationConstant)
  SET(clCreateKernel) SET(clCreateKernelsInProgram) SET(clCloneKernel) SET(clSetKernelArg) SET(clGetKernelInfo) SET(clGetKernelArgInfo) SET(clGetKernelWorkGroupInfo)
  SET(clGetKernelSubGroupInfo) SET(clEnqueueNDRangeKernel)
}
