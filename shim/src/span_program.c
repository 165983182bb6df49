/* Programs, one at each node, and their kernels, in contexts over several nodes. */
#include "span.h"

/* sp_hold_sampler holds an argument that is a sampler, by 1, or lets it go, by -1: the program may release it, and still run the
 * kernel. (Memory is not held: it may be much.) The caller has the lock. */
void sp_hold_sampler(const arg *a, int by) {
  if (a->object && a->object->kind == SPAN + SAMPLER) a->object->holds += by, sp_gone(a->object);
}

void sp_free_args(arg *args, cl_uint n) {
  for (cl_uint i = 0; args && i < n; i++) free(args[i].bytes);
  free(args);
}

cl_int sp_set_arg(span *k, cl_uint i, const arg *a, int node) {
  if (!k->in[node] || !a->set) return CL_SUCCESS;
  if (a->svm) return D.clSetKernelArgSVMPointer(k->in[node], i, a->pointer);
  if (!a->object) return D.clSetKernelArg(k->in[node], i, a->size, a->bytes);
  if (a->object->kind == SPAN + SAMPLER) return D.clSetKernelArg(k->in[node], i, a->size, &a->object->in[node]);
  cl_int bad;
  cl_mem m = sp_view(a->object, node, NULL, &bad);
  if (bad || k->u.kernel.bound[i][node] == obj(m)->id) return bad;
  bad = D.clSetKernelArg(k->in[node], i, a->size, &m);
  k->u.kernel.bound[i][node] = bad ? 0 : obj(m)->id;
  return bad;
}

static cl_program CL_API_CALL sp_clCreateProgramWithSource(cl_context c, cl_uint n, const char **texts, const size_t *lengths, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  span *o = sp_make(PROGRAM, sp(c), NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  EACH(i, sp(c)) if (!bad) o->in[i] = D.clCreateProgramWithSource(sp(c)->in[i], n, texts, lengths, &bad);
  return sp_done(o, bad, err);
}

static cl_program CL_API_CALL sp_clCreateProgramWithIL(cl_context c, const void *il, size_t n, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  span *o = sp_make(PROGRAM, sp(c), NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  EACH(i, sp(c)) if (!bad) o->in[i] = D.clCreateProgramWithIL(sp(c)->in[i], il, n, &bad);
  return sp_done(o, bad, err);
}

static cl_program CL_API_CALL sp_clCreateProgramWithBinary(cl_context c, cl_uint n, const cl_device_id *devices, const size_t *lengths, const unsigned char **binaries,
                                                           cl_int *status, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!n || !devices || !lengths || !binaries) FAIL(CL_INVALID_VALUE);
  span *o = sp_make(PROGRAM, sp(c), NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  for (cl_uint i = 0; i < n && !bad; i++) {
    int node = sp_node_of(sp(c), devices[i]);
    if (node < 0 || o->in[node]) bad = CL_INVALID_DEVICE;
    else o->in[node] = D.clCreateProgramWithBinary(sp(c)->in[node], 1, &devices[i], &lengths[i], &binaries[i], status ? &status[i] : NULL, &bad);
  }
  return sp_done(o, bad, err);
}

static cl_program CL_API_CALL sp_clCreateProgramWithBuiltInKernels(cl_context c, cl_uint n, const cl_device_id *devices, const char *names, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!n || !devices || !names) FAIL(CL_INVALID_VALUE);
  span *o = sp_make(PROGRAM, sp(c), NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  for (cl_uint i = 0; i < n && !bad; i++) {
    int node = sp_node_of(sp(c), devices[i]);
    if (node < 0) bad = CL_INVALID_DEVICE;
    else if (!o->in[node]) o->in[node] = D.clCreateProgramWithBuiltInKernels(sp(c)->in[node], 1, &devices[i], names, &bad);
  }
  return sp_done(o, bad, err);
}

typedef void(CL_CALLBACK *built)(cl_program, void *);

static cl_int CL_API_CALL sp_clSetProgramSpecializationConstant(cl_program p, cl_uint constant, size_t size, const void *value) {
  cl_int bad = CL_SUCCESS;
  if (!sis(p, PROGRAM)) return CL_INVALID_PROGRAM;
  for (int i = 0; i < YP_NODES && !bad; i++)
    if (sp(p)->in[i]) bad = D.clSetProgramSpecializationConstant(sp(p)->in[i], constant, size, value);
  return bad;
}

/* wanted says which nodes the devices of a call name, all of a program's if it names none. */
static cl_int wanted(const span *context, const span *program, cl_uint n, const cl_device_id *devices, bool *nodes) {
  if ((n == 0) != (devices == NULL)) return CL_INVALID_VALUE;
  for (int i = 0; i < YP_NODES; i++) nodes[i] = !n && (program ? program->in[i] : context->in[i]) != NULL;
  for (cl_uint i = 0; i < n; i++) {
    int node = sp_node_of(context, devices[i]);
    if (node < 0 || (program && !program->in[node])) return CL_INVALID_DEVICE;
    nodes[node] = true;
  }
  return CL_SUCCESS;
}

static cl_int CL_API_CALL sp_clBuildProgram(cl_program p, cl_uint n, const cl_device_id *devices, const char *options, built notify, void *data) {
  bool nodes[YP_NODES];
  if (!sis(p, PROGRAM)) return CL_INVALID_PROGRAM;
  if (!notify && data) return CL_INVALID_VALUE;
  cl_int bad = wanted(sp(p)->context, sp(p), n, devices, nodes);
  if (bad) return bad;
  for (int i = 0; i < YP_NODES; i++) {
    cl_int b = nodes[i] ? D.clBuildProgram(sp(p)->in[i], 0, NULL, options, NULL, NULL) : CL_SUCCESS;
    if (!bad) bad = b;
  }
  if (notify) notify(p, data);
  return bad;
}

static cl_int CL_API_CALL sp_clCompileProgram(cl_program p, cl_uint n, const cl_device_id *devices, const char *options, cl_uint headers, const cl_program *header,
                                              const char **names, built notify, void *data) {
  bool nodes[YP_NODES];
  if (!sis(p, PROGRAM)) return CL_INVALID_PROGRAM;
  if ((!notify && data) || (headers == 0) != (header == NULL)) return CL_INVALID_VALUE;
  cl_int bad = wanted(sp(p)->context, sp(p), n, devices, nodes);
  if (bad) return bad;
  for (cl_uint i = 0; i < headers; i++)
    if (!sis(header[i], PROGRAM)) return CL_INVALID_PROGRAM;
  cl_program in[headers + 1];
  for (int i = 0; i < YP_NODES; i++) {
    if (!nodes[i]) continue;
    for (cl_uint k = 0; k < headers; k++) in[k] = sp(header[k])->in[i];
    cl_int b = D.clCompileProgram(sp(p)->in[i], 0, NULL, options, headers, headers ? in : NULL, names, NULL, NULL);
    if (!bad) bad = b;
  }
  if (notify) notify(p, data);
  return bad;
}

static cl_program CL_API_CALL sp_clLinkProgram(cl_context c, cl_uint n, const cl_device_id *devices, const char *options, cl_uint inputs, const cl_program *input, built notify,
                                               void *data, cl_int *err) {
  bool nodes[YP_NODES];
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!inputs || !input || (!notify && data)) FAIL(CL_INVALID_VALUE);
  cl_int bad = wanted(sp(c), NULL, n, devices, nodes);
  if (bad) FAIL(bad);
  for (cl_uint i = 0; i < inputs; i++)
    if (!sis(input[i], PROGRAM)) FAIL(CL_INVALID_PROGRAM);
  span *o = sp_make(PROGRAM, sp(c), NULL);
  if (!o) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_program in[inputs];
  for (int i = 0; i < YP_NODES; i++) {
    cl_int b = CL_SUCCESS;
    if (!nodes[i]) continue;
    for (cl_uint k = 0; k < inputs; k++) in[k] = sp(input[k])->in[i];
    o->in[i] = D.clLinkProgram(sp(c)->in[i], 0, NULL, options, inputs, in, NULL, NULL, &b);
    if (!bad) bad = b;
  }
  if (bad && !any(o)) sp_drop(o), o = NULL; /* else there is a log that says what is wrong */
  if (err) *err = bad;
  if (notify) notify((cl_program)o, data);
  return (cl_program)o;
}

static cl_int CL_API_CALL sp_clGetProgramInfo(cl_program h, cl_program_info what, size_t size, void *value, size_t *got) {
  if (!sis(h, PROGRAM)) return CL_INVALID_PROGRAM;
  span *o = sp(h);
  cl_uint n = 0;
  cl_device_id devices[YP_NODES];
  size_t sizes[YP_NODES];
  cl_int bad = CL_SUCCESS;
  for (int i = 0; i < YP_NODES && what == CL_PROGRAM_BINARIES; i++) {
    unsigned char **to = value;
    if (!o->in[i]) continue;
    if (value && size < (n + 1) * sizeof *to) return CL_INVALID_VALUE;
    if (value && !bad) bad = D.clGetProgramInfo(o->in[i], what, sizeof *to, to + n, NULL);
    n++;
  }
  if (what == CL_PROGRAM_BINARIES) {
    if (got) *got = n * sizeof(unsigned char *);
    return bad;
  }
  for (int i = 0; i < YP_NODES; i++) {
    if (!o->in[i]) continue;
    if (what == CL_PROGRAM_BINARY_SIZES) bad = D.clGetProgramInfo(o->in[i], what, sizeof *sizes, &sizes[n], NULL);
    if (bad) return bad;
    devices[n++] = o->context->u.ctx.devices[i];
  }
  switch (what) {
  case CL_PROGRAM_REFERENCE_COUNT: GIVE(cl_uint, yp_count(o->refs));
  case CL_PROGRAM_CONTEXT: GIVE(cl_context, (cl_context)o->context);
  case CL_PROGRAM_NUM_DEVICES: GIVE(cl_uint, n);
  case CL_PROGRAM_DEVICES: return yp_give(devices, n * sizeof *devices, size, value, got);
  case CL_PROGRAM_BINARY_SIZES: return yp_give(sizes, n * sizeof *sizes, size, value, got);
  }
  bad = CL_INVALID_PROGRAM_EXECUTABLE;
  for (int i = 0; i < YP_NODES && bad == CL_INVALID_PROGRAM_EXECUTABLE; i++) /* it may be built for some only */
    if (o->in[i]) bad = D.clGetProgramInfo(o->in[i], what, size, value, got);
  return bad;
}

static cl_int CL_API_CALL sp_clGetProgramBuildInfo(cl_program h, cl_device_id d, cl_program_build_info what, size_t size, void *value, size_t *got) {
  if (!sis(h, PROGRAM)) return CL_INVALID_PROGRAM;
  int node = sp_node_of(sp(h)->context, d);
  if (node < 0 || !sp(h)->in[node]) return CL_INVALID_DEVICE;
  return D.clGetProgramBuildInfo(sp(h)->in[node], d, what, size, value, got);
}

/* described asks what a new kernel's arguments are, or drops it. */
static void *described(span *k, cl_int bad, cl_int *err) {
  object *in = any(k);
  if (!in) return sp_done(k, bad ? bad : CL_INVALID_PROGRAM_EXECUTABLE, err);
  cl_uint n = in->u.kernel.args;
  k->u.kernel.args = calloc(n + 1, sizeof *k->u.kernel.args), k->u.kernel.bound = calloc(n + 1, sizeof *k->u.kernel.bound);
  if (!k->u.kernel.args || !k->u.kernel.bound) return sp_done(k, CL_OUT_OF_HOST_MEMORY, err);
  k->u.kernel.n = n;
  for (cl_uint i = 0; i < n; i++) {
    cl_kernel_arg_address_qualifier where;
    cl_kernel_arg_type_qualifier how;
    cl_kernel_arg_access_qualifier access;
    if (in->u.kernel.classes[i] != 'm') continue;
    bool constant = !D.clGetKernelArgInfo((cl_kernel)in, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof where, &where, NULL) && where == CL_KERNEL_ARG_ADDRESS_CONSTANT;
    bool is_const = !constant && !D.clGetKernelArgInfo((cl_kernel)in, i, CL_KERNEL_ARG_TYPE_QUALIFIER, sizeof how, &how, NULL) && how & CL_KERNEL_ARG_TYPE_CONST;
    bool read_only = !is_const && !D.clGetKernelArgInfo((cl_kernel)in, i, CL_KERNEL_ARG_ACCESS_QUALIFIER, sizeof access, &access, NULL) && access == CL_KERNEL_ARG_ACCESS_READ_ONLY;
    k->u.kernel.args[i].reads = constant || is_const || read_only;
  }
  return sp_done(k, CL_SUCCESS, err);
}

static cl_kernel CL_API_CALL sp_clCreateKernel(cl_program p, const char *name, cl_int *err) {
  if (!sis(p, PROGRAM)) FAIL(CL_INVALID_PROGRAM);
  span *k = sp_make(KERNEL, sp(p)->context, sp(p));
  if (!k) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  EACH(i, k->context) {
    cl_int b = CL_SUCCESS;
    if (sp(p)->in[i]) k->in[i] = D.clCreateKernel(sp(p)->in[i], name, &b); /* it may not be built for this device */
    if (!bad) bad = b;
  }
  return described(k, bad, err);
}

static cl_int CL_API_CALL sp_clCreateKernelsInProgram(cl_program p, cl_uint n, cl_kernel *kernels, cl_uint *count) {
  if (!sis(p, PROGRAM)) return CL_INVALID_PROGRAM;
  size_t there = 0, length = 0;
  cl_int bad = sp_clGetProgramInfo(p, CL_PROGRAM_NUM_KERNELS, sizeof there, &there, NULL);
  if (!bad) bad = sp_clGetProgramInfo(p, CL_PROGRAM_KERNEL_NAMES, 0, NULL, &length);
  if (bad) return CL_INVALID_PROGRAM_EXECUTABLE;
  if (kernels && n < there) return CL_INVALID_VALUE;
  if (count) *count = (cl_uint)there;
  if (!kernels) return CL_SUCCESS;
  char *names = malloc(length + 1), *rest = names;
  if (!names) return CL_OUT_OF_HOST_MEMORY;
  bad = sp_clGetProgramInfo(p, CL_PROGRAM_KERNEL_NAMES, length, names, NULL);
  size_t k = 0;
  for (char *name; !bad && k < there && (name = strsep(&rest, ";")); k++) kernels[k] = sp_clCreateKernel(p, name, &bad);
  if (bad)
    while (k-- > 0)
      if (kernels[k]) sp_release(kernels[k], KERNEL, 0);
  free(names);
  return bad;
}

static cl_kernel CL_API_CALL sp_clCloneKernel(cl_kernel of, cl_int *err) {
  if (!sis(of, KERNEL)) FAIL(CL_INVALID_KERNEL);
  span *k = sp_make(KERNEL, sp(of)->context, sp(of)->parent);
  if (!k) FAIL(CL_OUT_OF_HOST_MEMORY);
  cl_int bad = CL_SUCCESS;
  EACH(i, k->context) if (sp(of)->in[i] && !bad) k->in[i] = D.clCloneKernel(sp(of)->in[i], &bad);
  if (bad) return sp_done(k, bad, err);
  k = described(k, bad, err);
  sp_enter();
  for (cl_uint i = 0; k && i < k->u.kernel.n; i++) {
    arg *a = &k->u.kernel.args[i];
    *a = sp(of)->u.kernel.args[i];
    a->bytes = a->bytes ? copy_of(a->bytes, a->size) : NULL;
    sp_hold_sampler(a, 1);
  }
  const size_t reaches = sp(of)->u.kernel.reaches;
  if (k && reaches && (k->u.kernel.reached = copy_of(sp(of)->u.kernel.reached, reaches * sizeof *k->u.kernel.reached))) k->u.kernel.reaches = reaches;
  bad = k && reaches > k->u.kernel.reaches ? CL_OUT_OF_HOST_MEMORY : CL_SUCCESS;
  sp_leave();
  return bad ? sp_done(k, bad, err) : (void *)k;
}

static cl_int CL_API_CALL sp_clSetKernelArg(cl_kernel h, cl_uint index, size_t size, const void *value) {
  if (!sis(h, KERNEL)) return CL_INVALID_KERNEL;
  span *k = sp(h);
  if (index >= k->u.kernel.n) return CL_INVALID_ARG_INDEX;
  char class = ((object *)any(k))->u.kernel.classes[index];
  void *handle = NULL;
  sp_enter();
  if (value && size == sizeof handle) memcpy(&handle, value, size);
  if (class == '?' && handle) { /* a value that is the address of an object is that object */
    const span *o = sp_spans;
    while (o && o != handle) o = o->next;
    class = sis(o, MEM) ? 'm' : sis(o, SAMPLER) ? 's' : '?';
  }
  arg *old = &k->u.kernel.args[index], new = {.size = size, .set = true, .reads = old->reads};
  cl_int bad = CL_SUCCESS;
  if ((class == 'm' || class == 's') && size != sizeof handle) bad = CL_INVALID_ARG_SIZE;
  else if (class == 's' && !sis(handle, SAMPLER)) bad = CL_INVALID_SAMPLER;
  else if (class == 'm' && handle && (!sis(handle, MEM) || sp(handle)->context != k->context)) bad = CL_INVALID_MEM_OBJECT;
  else if (class == 'm' || class == 's') new.object = handle;
  else if (class == 'l' && value) bad = CL_INVALID_ARG_VALUE;
  else if (value && size > MOST_VALUE) bad = CL_INVALID_ARG_SIZE;
  else if (value && !(new.bytes = copy_of(value, size))) bad = size ? CL_OUT_OF_HOST_MEMORY : CL_INVALID_ARG_SIZE;
  bool tried = false;
  EACH(i, k->context) {
    bool here = k->in[i] && !(is_memory(&new) && (tried || !new.object->in[i])); /* memory is set where it is, and elsewhere with the launch */
    if (!here || bad) continue;
    if (!new.object) k->u.kernel.bound[index][i] = 0;
    bad = sp_set_arg(k, index, &new, (int)i);
    tried = true;
  }
  if (bad) {
    free(new.bytes);
  } else {
    const arg was = *old;
    sp_hold_sampler(&new, 1);
    *old = new;
    sp_hold_sampler(&was, -1), free(was.bytes);
  }
  sp_leave();
  return bad;
}

static cl_int CL_API_CALL sp_clGetKernelInfo(cl_kernel h, cl_kernel_info what, size_t size, void *value, size_t *got) {
  if (!sis(h, KERNEL)) return CL_INVALID_KERNEL;
  switch (what) {
  case CL_KERNEL_REFERENCE_COUNT: GIVE(cl_uint, yp_count(sp(h)->refs));
  case CL_KERNEL_CONTEXT: GIVE(cl_context, (cl_context)sp(h)->context);
  case CL_KERNEL_PROGRAM: GIVE(cl_program, (cl_program)sp(h)->parent);
  }
  return D.clGetKernelInfo(any(sp(h)), what, size, value, got);
}

static cl_int CL_API_CALL sp_clGetKernelArgInfo(cl_kernel h, cl_uint index, cl_kernel_arg_info what, size_t size, void *value, size_t *got) {
  return sis(h, KERNEL) ? D.clGetKernelArgInfo(any(sp(h)), index, what, size, value, got) : CL_INVALID_KERNEL;
}

static cl_int CL_API_CALL sp_clGetKernelWorkGroupInfo(cl_kernel h, cl_device_id d, cl_kernel_work_group_info what, size_t size, void *value, size_t *got) {
  if (!sis(h, KERNEL)) return CL_INVALID_KERNEL;
  int node = sp_node_of(sp(h)->context, d);
  if (node < 0 || !sp(h)->in[node]) return CL_INVALID_DEVICE; /* also if it is NULL: there are several */
  return D.clGetKernelWorkGroupInfo(sp(h)->in[node], d, what, size, value, got);
}

static cl_int CL_API_CALL sp_clGetKernelSubGroupInfo(cl_kernel h, cl_device_id d, cl_kernel_sub_group_info what, size_t given, const void *sizes, size_t size, void *value, size_t *got) {
  if (!sis(h, KERNEL)) return CL_INVALID_KERNEL;
  int node = sp_node_of(sp(h)->context, d);
  if (node < 0 || !sp(h)->in[node]) return CL_INVALID_DEVICE;
  return D.clGetKernelSubGroupInfo(sp(h)->in[node], d, what, given, sizes, size, value, got);
}

void sp_fill_programs(cl_icd_dispatch *t) {
  SET(clCreateProgramWithSource) SET(clCreateProgramWithBinary) SET(clCreateProgramWithIL) SET(clCreateProgramWithBuiltInKernels) SET(clBuildProgram) SET(clCompileProgram)
  SET(clLinkProgram) SET(clGetProgramInfo) SET(clGetProgramBuildInfo) SET(clSetProgramSpecializationConstant) SET(clCreateKernel) SET(clCreateKernelsInProgram)
  SET(clCloneKernel) SET(clSetKernelArg) SET(clGetKernelInfo) SET(clGetKernelArgInfo) SET(clGetKernelWorkGroupInfo) SET(clGetKernelSubGroupInfo)
}
