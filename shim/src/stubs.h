/* Made from shim/opencl.table by shim/gen; not to be edited. */
#include "ops.h"
#include "pool.h"

static cl_int CL_API_CALL yp_clEnqueueTask(cl_command_queue a0, cl_kernel a1, cl_uint a2, const cl_event *a3, cl_event *a4) {
  if (!is(a0, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!is(a1, KERNEL)) return CL_INVALID_KERNEL;
  if (obj(a1)->context != obj(a0)->context) return CL_INVALID_CONTEXT;
  cl_int bad = yp_check_waits(obj(a0)->context, a2, a3);
  if (bad) return bad;
  object *e = a4 ? yp_event(obj(a0), CL_COMMAND_TASK) : NULL;
  yp_begin(obj(a0)->node, OP_EnqueueTask);
  yp_word(obj(a0)->id);
  yp_word(obj(a1)->id);
  yp_proof();
  yp_waits(a2, a3);
  yp_word(e ? e->id : 0);
  cl_int status = yp_send_to(obj(a0), e);
  if (e && status) yp_destroy(e);
  else if (e) *a4 = (cl_event)e;
  return status;
}

static cl_int CL_API_CALL yp_clEnqueueCopyBuffer(cl_command_queue a0, cl_mem a1, cl_mem a2, size_t a3, size_t a4, size_t a5, cl_uint a6, const cl_event *a7, cl_event *a8) {
  if (!is(a0, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!is(a1, MEM)) return CL_INVALID_MEM_OBJECT;
  if (obj(a1)->context != obj(a0)->context) return CL_INVALID_CONTEXT;
  if (!is(a2, MEM)) return CL_INVALID_MEM_OBJECT;
  if (obj(a2)->context != obj(a0)->context) return CL_INVALID_CONTEXT;
  cl_int bad = yp_check_waits(obj(a0)->context, a6, a7);
  if (bad) return bad;
  object *e = a8 ? yp_event(obj(a0), CL_COMMAND_COPY_BUFFER) : NULL;
  yp_begin(obj(a0)->node, OP_EnqueueCopyBuffer);
  yp_word(obj(a0)->id);
  const bool sound = yp_sound_copy(obj(a1), obj(a2), a3, a4, a5);
  if (sound) yp_proof();
  yp_word(obj(a1)->id);
  yp_word(obj(a2)->id);
  yp_word((uint64_t)a3);
  yp_word((uint64_t)a4);
  yp_word((uint64_t)a5);
  if (!sound) yp_proof();
  yp_waits(a6, a7);
  yp_word(e ? e->id : 0);
  cl_int status = yp_send_to(obj(a0), e);
  if (e && status) yp_destroy(e);
  else if (e) *a8 = (cl_event)e;
  return status;
}

static cl_int CL_API_CALL yp_clEnqueueCopyBufferRect(cl_command_queue a0, cl_mem a1, cl_mem a2, const size_t *a3, const size_t *a4, const size_t *a5, size_t a6, size_t a7, size_t a8, size_t a9, cl_uint a10, const cl_event *a11, cl_event *a12) {
  if (!is(a0, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!is(a1, MEM)) return CL_INVALID_MEM_OBJECT;
  if (obj(a1)->context != obj(a0)->context) return CL_INVALID_CONTEXT;
  if (!is(a2, MEM)) return CL_INVALID_MEM_OBJECT;
  if (obj(a2)->context != obj(a0)->context) return CL_INVALID_CONTEXT;
  if (!a3) return CL_INVALID_VALUE;
  if (!a4) return CL_INVALID_VALUE;
  if (!a5) return CL_INVALID_VALUE;
  cl_int bad = yp_check_waits(obj(a0)->context, a10, a11);
  if (bad) return bad;
  object *e = a12 ? yp_event(obj(a0), CL_COMMAND_COPY_BUFFER_RECT) : NULL;
  yp_begin(obj(a0)->node, OP_EnqueueCopyBufferRect);
  yp_word(obj(a0)->id);
  yp_word(obj(a1)->id);
  yp_word(obj(a2)->id);
  yp_size3(a3);
  yp_size3(a4);
  yp_size3(a5);
  yp_word((uint64_t)a6);
  yp_word((uint64_t)a7);
  yp_word((uint64_t)a8);
  yp_word((uint64_t)a9);
  yp_proof();
  yp_waits(a10, a11);
  yp_word(e ? e->id : 0);
  cl_int status = yp_send_to(obj(a0), e);
  if (e && status) yp_destroy(e);
  else if (e) *a12 = (cl_event)e;
  return status;
}

static cl_int CL_API_CALL yp_clEnqueueFillBuffer(cl_command_queue a0, cl_mem a1, const void *a2, size_t a3, size_t a4, size_t a5, cl_uint a6, const cl_event *a7, cl_event *a8) {
  if (!is(a0, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!is(a1, MEM)) return CL_INVALID_MEM_OBJECT;
  if (obj(a1)->context != obj(a0)->context) return CL_INVALID_CONTEXT;
  if (!a2 || !a3 || a3 > 128) return CL_INVALID_VALUE;
  cl_int bad = yp_check_waits(obj(a0)->context, a6, a7);
  if (bad) return bad;
  object *e = a8 ? yp_event(obj(a0), CL_COMMAND_FILL_BUFFER) : NULL;
  yp_begin(obj(a0)->node, OP_EnqueueFillBuffer);
  yp_word(obj(a0)->id);
  const bool sound = yp_sound_fill(obj(a1), a3, a4, a5);
  if (sound) yp_proof();
  yp_word(obj(a1)->id);
  yp_bytes(a2, a3);
  yp_word((uint64_t)a4);
  yp_word((uint64_t)a5);
  if (!sound) yp_proof();
  yp_waits(a6, a7);
  yp_word(e ? e->id : 0);
  cl_int status = yp_send_to(obj(a0), e);
  if (e && status) yp_destroy(e);
  else if (e) *a8 = (cl_event)e;
  return status;
}

static cl_int CL_API_CALL yp_clEnqueueFillImage(cl_command_queue a0, cl_mem a1, const void *a2, const size_t *a3, const size_t *a4, cl_uint a5, const cl_event *a6, cl_event *a7) {
  if (!is(a0, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!is(a1, MEM)) return CL_INVALID_MEM_OBJECT;
  if (obj(a1)->context != obj(a0)->context) return CL_INVALID_CONTEXT;
  if (!a2) return CL_INVALID_VALUE;
  if (!a3) return CL_INVALID_VALUE;
  if (!a4) return CL_INVALID_VALUE;
  cl_int bad = yp_check_waits(obj(a0)->context, a5, a6);
  if (bad) return bad;
  object *e = a7 ? yp_event(obj(a0), CL_COMMAND_FILL_IMAGE) : NULL;
  yp_begin(obj(a0)->node, OP_EnqueueFillImage);
  yp_word(obj(a0)->id);
  yp_word(obj(a1)->id);
  yp_color(obj(a1), a2);
  yp_size3(a3);
  yp_size3(a4);
  yp_proof();
  yp_waits(a5, a6);
  yp_word(e ? e->id : 0);
  cl_int status = yp_send_to(obj(a0), e);
  if (e && status) yp_destroy(e);
  else if (e) *a7 = (cl_event)e;
  return status;
}

static cl_int CL_API_CALL yp_clEnqueueCopyImage(cl_command_queue a0, cl_mem a1, cl_mem a2, const size_t *a3, const size_t *a4, const size_t *a5, cl_uint a6, const cl_event *a7, cl_event *a8) {
  if (!is(a0, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!is(a1, MEM)) return CL_INVALID_MEM_OBJECT;
  if (obj(a1)->context != obj(a0)->context) return CL_INVALID_CONTEXT;
  if (!is(a2, MEM)) return CL_INVALID_MEM_OBJECT;
  if (obj(a2)->context != obj(a0)->context) return CL_INVALID_CONTEXT;
  if (!a3) return CL_INVALID_VALUE;
  if (!a4) return CL_INVALID_VALUE;
  if (!a5) return CL_INVALID_VALUE;
  cl_int bad = yp_check_waits(obj(a0)->context, a6, a7);
  if (bad) return bad;
  object *e = a8 ? yp_event(obj(a0), CL_COMMAND_COPY_IMAGE) : NULL;
  yp_begin(obj(a0)->node, OP_EnqueueCopyImage);
  yp_word(obj(a0)->id);
  yp_word(obj(a1)->id);
  yp_word(obj(a2)->id);
  yp_size3(a3);
  yp_size3(a4);
  yp_size3(a5);
  yp_proof();
  yp_waits(a6, a7);
  yp_word(e ? e->id : 0);
  cl_int status = yp_send_to(obj(a0), e);
  if (e && status) yp_destroy(e);
  else if (e) *a8 = (cl_event)e;
  return status;
}

static cl_int CL_API_CALL yp_clEnqueueCopyImageToBuffer(cl_command_queue a0, cl_mem a1, cl_mem a2, const size_t *a3, const size_t *a4, size_t a5, cl_uint a6, const cl_event *a7, cl_event *a8) {
  if (!is(a0, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!is(a1, MEM)) return CL_INVALID_MEM_OBJECT;
  if (obj(a1)->context != obj(a0)->context) return CL_INVALID_CONTEXT;
  if (!is(a2, MEM)) return CL_INVALID_MEM_OBJECT;
  if (obj(a2)->context != obj(a0)->context) return CL_INVALID_CONTEXT;
  if (!a3) return CL_INVALID_VALUE;
  if (!a4) return CL_INVALID_VALUE;
  cl_int bad = yp_check_waits(obj(a0)->context, a6, a7);
  if (bad) return bad;
  object *e = a8 ? yp_event(obj(a0), CL_COMMAND_COPY_IMAGE_TO_BUFFER) : NULL;
  yp_begin(obj(a0)->node, OP_EnqueueCopyImageToBuffer);
  yp_word(obj(a0)->id);
  yp_word(obj(a1)->id);
  yp_word(obj(a2)->id);
  yp_size3(a3);
  yp_size3(a4);
  yp_word((uint64_t)a5);
  yp_proof();
  yp_waits(a6, a7);
  yp_word(e ? e->id : 0);
  cl_int status = yp_send_to(obj(a0), e);
  if (e && status) yp_destroy(e);
  else if (e) *a8 = (cl_event)e;
  return status;
}

static cl_int CL_API_CALL yp_clEnqueueCopyBufferToImage(cl_command_queue a0, cl_mem a1, cl_mem a2, size_t a3, const size_t *a4, const size_t *a5, cl_uint a6, const cl_event *a7, cl_event *a8) {
  if (!is(a0, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!is(a1, MEM)) return CL_INVALID_MEM_OBJECT;
  if (obj(a1)->context != obj(a0)->context) return CL_INVALID_CONTEXT;
  if (!is(a2, MEM)) return CL_INVALID_MEM_OBJECT;
  if (obj(a2)->context != obj(a0)->context) return CL_INVALID_CONTEXT;
  if (!a4) return CL_INVALID_VALUE;
  if (!a5) return CL_INVALID_VALUE;
  cl_int bad = yp_check_waits(obj(a0)->context, a6, a7);
  if (bad) return bad;
  object *e = a8 ? yp_event(obj(a0), CL_COMMAND_COPY_BUFFER_TO_IMAGE) : NULL;
  yp_begin(obj(a0)->node, OP_EnqueueCopyBufferToImage);
  yp_word(obj(a0)->id);
  yp_word(obj(a1)->id);
  yp_word(obj(a2)->id);
  yp_word((uint64_t)a3);
  yp_size3(a4);
  yp_size3(a5);
  yp_proof();
  yp_waits(a6, a7);
  yp_word(e ? e->id : 0);
  cl_int status = yp_send_to(obj(a0), e);
  if (e && status) yp_destroy(e);
  else if (e) *a8 = (cl_event)e;
  return status;
}

static cl_int CL_API_CALL yp_clEnqueueMigrateMemObjects(cl_command_queue a0, cl_uint a1, const cl_mem *a2, cl_bitfield a3, cl_uint a4, const cl_event *a5, cl_event *a6) {
  if (!is(a0, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  if (!a1 || !a2) return CL_INVALID_VALUE;
  for (cl_uint i = 0; i < a1; i++)
    if (!is(a2[i], MEM)) return CL_INVALID_MEM_OBJECT;
  cl_int bad = yp_check_waits(obj(a0)->context, a4, a5);
  if (bad) return bad;
  object *e = a6 ? yp_event(obj(a0), CL_COMMAND_MIGRATE_MEM_OBJECTS) : NULL;
  yp_begin(obj(a0)->node, OP_EnqueueMigrateMemObjects);
  yp_word(obj(a0)->id);
  yp_word(a1);
  for (cl_uint i = 0; i < a1; i++) yp_word(obj(a2[i])->id);
  yp_word((uint64_t)a3);
  yp_proof();
  yp_waits(a4, a5);
  yp_word(e ? e->id : 0);
  cl_int status = yp_send_to(obj(a0), e);
  if (e && status) yp_destroy(e);
  else if (e) *a6 = (cl_event)e;
  return status;
}

static cl_int CL_API_CALL yp_clEnqueueMarkerWithWaitList(cl_command_queue a0, cl_uint a1, const cl_event *a2, cl_event *a3) {
  if (!is(a0, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  cl_int bad = yp_check_waits(obj(a0)->context, a1, a2);
  if (bad) return bad;
  object *e = a3 ? yp_event(obj(a0), CL_COMMAND_MARKER) : NULL;
  yp_begin(obj(a0)->node, OP_EnqueueMarkerWithWaitList);
  yp_word(obj(a0)->id);
  yp_proof();
  yp_waits(a1, a2);
  yp_word(e ? e->id : 0);
  cl_int status = yp_send_to(obj(a0), e);
  if (e && status) yp_destroy(e);
  else if (e) *a3 = (cl_event)e;
  return status;
}

static cl_int CL_API_CALL yp_clEnqueueBarrierWithWaitList(cl_command_queue a0, cl_uint a1, const cl_event *a2, cl_event *a3) {
  if (!is(a0, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  cl_int bad = yp_check_waits(obj(a0)->context, a1, a2);
  if (bad) return bad;
  object *e = a3 ? yp_event(obj(a0), CL_COMMAND_BARRIER) : NULL;
  yp_begin(obj(a0)->node, OP_EnqueueBarrierWithWaitList);
  yp_word(obj(a0)->id);
  yp_proof();
  yp_waits(a1, a2);
  yp_word(e ? e->id : 0);
  cl_int status = yp_send_to(obj(a0), e);
  if (e && status) yp_destroy(e);
  else if (e) *a3 = (cl_event)e;
  return status;
}

static cl_int CL_API_CALL yp_clEnqueueMarker(cl_command_queue a0, cl_event *a1) {
  if (!is(a0, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  object *e = a1 ? yp_event(obj(a0), CL_COMMAND_MARKER) : NULL;
  yp_begin(obj(a0)->node, OP_EnqueueMarker);
  yp_word(obj(a0)->id);
  yp_proof();
  yp_word(e ? e->id : 0);
  cl_int status = yp_send_to(obj(a0), e);
  if (e && status) yp_destroy(e);
  else if (e) *a1 = (cl_event)e;
  return status;
}

static cl_int CL_API_CALL yp_clEnqueueBarrier(cl_command_queue a0) {
  if (!is(a0, QUEUE)) return CL_INVALID_COMMAND_QUEUE;
  yp_begin(obj(a0)->node, OP_EnqueueBarrier);
  yp_word(obj(a0)->id);
  yp_proof();
  cl_int status = yp_send_to(obj(a0), NULL);
  return status;
}

static cl_int CL_API_CALL yp_clSetUserEventStatus(cl_event a0, cl_int a1) {
  if (!is(a0, EVENT)) return CL_INVALID_EVENT;
  yp_begin(obj(a0)->node, OP_SetUserEventStatus);
  yp_word(obj(a0)->id);
  yp_word((uint64_t)a1);
  yp_proof();
  return yp_sync(NULL);
}

#define YP_STUBS(X) \
  X(clEnqueueTask) \
  X(clEnqueueCopyBuffer) \
  X(clEnqueueCopyBufferRect) \
  X(clEnqueueFillBuffer) \
  X(clEnqueueFillImage) \
  X(clEnqueueCopyImage) \
  X(clEnqueueCopyImageToBuffer) \
  X(clEnqueueCopyBufferToImage) \
  X(clEnqueueMigrateMemObjects) \
  X(clEnqueueMarkerWithWaitList) \
  X(clEnqueueBarrierWithWaitList) \
  X(clEnqueueMarker) \
  X(clEnqueueBarrier) \
  X(clSetUserEventStatus)
