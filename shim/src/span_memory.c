/* Memory of contexts over several nodes: made at a node when it is first needed there. */
#include "span.h"

enum { OF_BUFFER = CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR }; /* a part or an image of a buffer has them of that */
enum { OF_HOST = CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS }; /* looked at here only: copies between nodes read and write all memory */

static bool newest(const span *m, int node) {
  for (size_t i = 0; i < m->u.mem.n; i++)
    if (m->u.mem.parts[i].at & 1u << node) return true;
  return false;
}

/* spare releases a node's copies of memory that are not the newest anywhere and that nothing is part of. */
static bool spare(int node) {
  bool some = false;
  for (span *m = sp_spans; m; m = m->next) {
    bool elsewhere = false;
    for (int i = 0; i < YP_NODES; i++) elsewhere = elsewhere || (i != node && m->in[i]);
    if (m->kind == SPAN + MEM && !m->parent && !m->u.mem.svm && m->in[node] && elsewhere && !m->holds && !m->u.mem.maps && !newest(m, node)) sp_forget_in(m, node), some = true;
  }
  return some;
}

/* sp_view returns what stands for memory at a node, and makes it if nothing does. */
cl_mem sp_view(span *m, int node, void *contents, cl_int *err) {
  *err = CL_SUCCESS;
  if (m->in[node]) return m->in[node];
  cl_context c = m->context->in[node];
  cl_mem_flags flags = m->u.mem.flags & ~(cl_mem_flags)OF_HOST;
  void *host = flags & CL_MEM_USE_HOST_PTR ? m->u.mem.host : contents;
  if (!contents) flags &= ~(cl_mem_flags)CL_MEM_COPY_HOST_PTR;
  cl_mem of = m->parent ? sp_view(m->parent, node, NULL, err) : NULL;
  if (*err) return NULL;
  do {
    if (m->u.mem.image) {
      cl_image_desc d = m->u.mem.desc;
      d.buffer = of;
      m->in[node] = D.clCreateImage(c, of && !host ? flags & ~(cl_mem_flags)OF_BUFFER : flags, &m->u.mem.format, &d, host, err);
    } else if (of && !m->parent->u.mem.svm) {
      cl_buffer_region r = {m->u.mem.origin, m->u.mem.size};
      m->in[node] = D.clCreateSubBuffer(of, flags & ~(cl_mem_flags)OF_BUFFER, CL_BUFFER_CREATE_TYPE_REGION, &r, err);
    } else {
      m->in[node] = D.clCreateBuffer(c, flags, m->u.mem.size, host, err);
    }
  } while (*err == CL_MEM_OBJECT_ALLOCATION_FAILURE && spare(node));
  if (!*err && !m->parent && !m->holds && !m->u.mem.maps) { /* what was made to see that it can be, and never used, is needed no more */
    for (int i = 0; i < YP_NODES; i++)
      for (size_t k = 0; i != node && m->in[i] && k < m->u.mem.n; k++)
        if (m->u.mem.parts[k].at) return m->in[node];
    for (int i = 0; i < YP_NODES; i++)
      if (i != node) sp_forget_in(m, i);
  }
  return m->in[node];
}

/* created makes new memory at the first node that has room for it, which shows whether it can be made. */
static void *created(span *m, void *contents, cl_int *err) {
  cl_mem_flags of_host = m->u.mem.flags & OF_HOST;
  cl_int bad = of_host & (of_host - 1) ? CL_INVALID_VALUE : CL_SUCCESS;
  sp_enter();
  if (!m->parent) {
    m->u.mem.parts = malloc(sizeof *m->u.mem.parts);
    if (!m->u.mem.parts) bad = CL_OUT_OF_HOST_MEMORY;
    else m->u.mem.n = 1, m->u.mem.parts[0] = (part){m->u.mem.size, 0};
  }
  EACH(i, m->context) {
    if (bad && bad != CL_MEM_OBJECT_ALLOCATION_FAILURE) break;
    sp_view(m, (int)i, contents, &bad);
    if (bad) continue;
    if (contents) m->u.mem.parts[0].at = 1u << i;
    break;
  }
  sp_leave();
  return sp_done(m, bad, err);
}

/* part_of is what memory is a part of, to the program: its shared virtual memory is no object. */
static span *part_of(const span *m) { return m->parent && !m->parent->u.mem.svm ? m->parent : NULL; }

/* sp_svm_at returns the shared virtual memory that has n bytes at an address, or ends there if it is none. */
span *sp_svm_at(const span *context, const void *p, size_t n) {
  sp_enter();
  span *m = sp_spans;
  while (m && !(m->kind == SPAN + MEM && m->u.mem.svm && m->refs > 0 && m->context == context && offset(m, p) <= m->u.mem.size && n <= m->u.mem.size - offset(m, p))) m = m->next;
  sp_leave();
  return m;
}

static cl_mem CL_API_CALL sp_clCreateBuffer(cl_context c, cl_mem_flags flags, size_t size, void *host, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  const cl_int wrong = yp_check_flags(flags, host);
  if (wrong) FAIL(wrong);
  span *of = flags & CL_MEM_USE_HOST_PTR ? sp_svm_at(sp(c), host, 1) : NULL, *m = sp_make(MEM, sp(c), of);
  if (!m) FAIL(CL_OUT_OF_HOST_MEMORY);
  m->u.mem.flags = flags, m->u.mem.size = size, m->u.mem.host = flags & CL_MEM_USE_HOST_PTR ? host : NULL;
  if (of) m->u.mem.origin = offset(of, host);
  return created(m, of ? NULL : host, err);
}

static cl_mem CL_API_CALL sp_clCreateBufferWithProperties(cl_context c, const cl_mem_properties *p, cl_mem_flags flags, size_t size, void *host, cl_int *err) {
  if (p && *p) FAIL(CL_INVALID_PROPERTY);
  cl_mem m = sp_clCreateBuffer(c, flags, size, host, err);
  if (m) sp(m)->u.mem.listed = p;
  return m;
}

static cl_mem CL_API_CALL sp_clCreateSubBuffer(cl_mem h, cl_mem_flags flags, cl_buffer_create_type type, const void *info, cl_int *err) {
  const cl_buffer_region *r = info;
  if (!sis(h, MEM) || part_of(sp(h))) FAIL(CL_INVALID_MEM_OBJECT);
  if (!r || type != CL_BUFFER_CREATE_TYPE_REGION || flags & OF_BUFFER) FAIL(CL_INVALID_VALUE);
  const cl_mem_flags had = sp(h)->u.mem.flags;
  if ((had & CL_MEM_HOST_WRITE_ONLY && flags & CL_MEM_HOST_READ_ONLY) || (had & CL_MEM_HOST_READ_ONLY && flags & CL_MEM_HOST_WRITE_ONLY) ||
      (had & CL_MEM_HOST_NO_ACCESS && flags & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY)))
    FAIL(CL_INVALID_VALUE);
  span *of = sp(h), *m = sp_make(MEM, of->context, of);
  if (!m) FAIL(CL_OUT_OF_HOST_MEMORY);
  m->u.mem.flags = flags, m->u.mem.size = r->size, m->u.mem.origin = r->origin;
  if (!created(m, NULL, err)) return NULL;
  m->u.mem.flags = yp_flags_of(flags, had);
  if (of->u.mem.host) m->u.mem.host = (uint8_t *)of->u.mem.host + r->origin;
  return (cl_mem)m;
}

static cl_mem CL_API_CALL sp_clCreateImage(cl_context c, cl_mem_flags flags, const cl_image_format *f, const cl_image_desc *d, void *host, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  if (!f) FAIL(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
  if (!d || (d->buffer && (!sis(d->buffer, MEM) || sp(d->buffer)->u.mem.image || sp(d->buffer)->context != sp(c)))) FAIL(CL_INVALID_IMAGE_DESCRIPTOR);
  const cl_int wrong = yp_check_flags(flags, host);
  if (wrong) FAIL(wrong);
  span *m = sp_make(MEM, sp(c), d->buffer ? sp(d->buffer) : NULL);
  if (!m) FAIL(CL_OUT_OF_HOST_MEMORY);
  m->u.mem.flags = flags, m->u.mem.image = true, m->u.mem.format = *f, m->u.mem.desc = *d, m->u.mem.host = flags & CL_MEM_USE_HOST_PTR ? host : NULL;
  m->u.mem.size = d->buffer ? sp(d->buffer)->u.mem.size : 1;
  if (!created(m, host, err)) return NULL;
  if (d->buffer) m->u.mem.flags = yp_flags_of(flags, sp(d->buffer)->u.mem.flags);
  return (cl_mem)m;
}

static cl_mem CL_API_CALL sp_clCreateImageWithProperties(cl_context c, const cl_mem_properties *p, cl_mem_flags flags, const cl_image_format *f, const cl_image_desc *d, void *host,
                                                         cl_int *err) {
  if (p && *p) FAIL(CL_INVALID_PROPERTY);
  cl_mem m = sp_clCreateImage(c, flags, f, d, host, err);
  if (m) sp(m)->u.mem.listed = p;
  return m;
}

static cl_mem old_image(cl_context c, cl_mem_flags flags, const cl_image_format *f, cl_image_desc d, void *host, cl_int *err) {
  cl_int bad;
  cl_mem m = sp_clCreateImage(c, flags, f, &d, host, &bad);
  if (err) *err = bad == CL_INVALID_IMAGE_DESCRIPTOR ? CL_INVALID_IMAGE_SIZE : bad;
  return m;
}

static cl_mem CL_API_CALL sp_clCreateImage2D(cl_context c, cl_mem_flags flags, const cl_image_format *f, size_t w, size_t h, size_t row, void *host, cl_int *err) {
  return old_image(c, flags, f, (cl_image_desc){.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = w, .image_height = h, .image_row_pitch = row}, host, err);
}

static cl_mem CL_API_CALL sp_clCreateImage3D(cl_context c, cl_mem_flags flags, const cl_image_format *f, size_t w, size_t h, size_t d, size_t row, size_t slice, void *host, cl_int *err) {
  cl_image_desc x = {.image_type = CL_MEM_OBJECT_IMAGE3D, .image_width = w, .image_height = h, .image_depth = d, .image_row_pitch = row, .image_slice_pitch = slice};
  return old_image(c, flags, f, x, host, err);
}

/* A format is supported if every node does. */
static cl_int CL_API_CALL sp_clGetSupportedImageFormats(cl_context c, cl_mem_flags flags, cl_mem_object_type type, cl_uint n, cl_image_format *formats, cl_uint *count) {
  enum { MOST = 512 };
  cl_image_format all[MOST], here[MOST];
  cl_uint left = 0, k = 0;
  if (!sis(c, CONTEXT)) return CL_INVALID_CONTEXT;
  if (formats && !n) return CL_INVALID_VALUE;
  EACH(i, sp(c)) {
    cl_int bad = D.clGetSupportedImageFormats(sp(c)->in[i], flags, type, MOST, here, &k);
    if (bad) return bad;
    if (k > MOST) k = MOST;
    if (!i_) {
      memcpy(all, here, (left = k) * sizeof *all);
      continue;
    }
    cl_uint both = 0;
    for (cl_uint a = 0; a < left; a++)
      for (cl_uint b = 0; b < k; b++)
        if (!memcmp(&all[a], &here[b], sizeof *all)) {
          all[both++] = all[a];
          break;
        }
    left = both;
  }
  if (formats) memcpy(formats, all, (left < n ? left : n) * sizeof *formats);
  if (count) *count = left;
  return CL_SUCCESS;
}

static cl_int CL_API_CALL sp_clSetMemObjectDestructorCallback(cl_mem m, void(CL_CALLBACK *call)(cl_mem, void *), void *data) {
  if (!sis(m, MEM)) return CL_INVALID_MEM_OBJECT;
  return sp_when_gone(sp(m), (void (*)(void))call, data);
}

static cl_int CL_API_CALL sp_clGetMemObjectInfo(cl_mem m, cl_mem_info what, size_t size, void *value, size_t *got) {
  if (!sis(m, MEM)) return CL_INVALID_MEM_OBJECT;
  span *o = sp(m);
  cl_uint n = 0;
  switch (what) {
  case CL_MEM_FLAGS: GIVE(cl_mem_flags, o->u.mem.flags);
  case CL_MEM_HOST_PTR: GIVE(void *, o->u.mem.host);
  case CL_MEM_MAP_COUNT:
    sp_enter();
    for (mapping *i = o->u.mem.maps; i; i = i->next) n++;
    sp_leave();
    GIVE(cl_uint, n);
  case CL_MEM_REFERENCE_COUNT: GIVE(cl_uint, yp_count(o->refs));
  case CL_MEM_CONTEXT: GIVE(cl_context, (cl_context)o->context);
  case CL_MEM_ASSOCIATED_MEMOBJECT: GIVE(cl_mem, (cl_mem)part_of(o));
  case CL_MEM_OFFSET: GIVE(size_t, part_of(o) ? o->u.mem.origin : 0);
  case CL_MEM_PROPERTIES: return yp_no_properties(o->u.mem.listed, size, value, got);
  }
  return D.clGetMemObjectInfo(any(o), what, size, value, got);
}

static cl_int CL_API_CALL sp_clGetImageInfo(cl_mem m, cl_image_info what, size_t size, void *value, size_t *got) {
  if (!sis(m, MEM) || !sp(m)->u.mem.image) return CL_INVALID_MEM_OBJECT;
  if (what == CL_IMAGE_BUFFER) GIVE(cl_mem, (cl_mem)sp(m)->parent);
  return D.clGetImageInfo(any(sp(m)), what, size, value, got);
}

/* Pipes, which CL_DEVICE_PIPE_SUPPORT says there are none of. */

static cl_mem CL_API_CALL sp_clCreatePipe(cl_context c, cl_mem_flags flags, cl_uint packet, cl_uint n, const cl_pipe_properties *p, cl_int *err) {
  (void)flags, (void)packet, (void)n, (void)p;
  FAIL(sis(c, CONTEXT) ? CL_INVALID_OPERATION : CL_INVALID_CONTEXT);
}

void sp_fill_memory(cl_icd_dispatch *t) {
  SET(clCreateBuffer) SET(clCreateBufferWithProperties) SET(clCreateSubBuffer) SET(clCreateImage) SET(clCreateImageWithProperties) SET(clCreateImage2D) SET(clCreateImage3D)
  SET(clGetSupportedImageFormats) SET(clSetMemObjectDestructorCallback) SET(clGetMemObjectInfo) SET(clGetImageInfo) SET(clCreatePipe)
}
