/* Events of contexts over several nodes: what has ended, who waits for that, and the gates that open then. */
#include "span.h"

/* sp_ended says with what an event has ended that is known to have, or has no object at a node. */
cl_int sp_ended(const span *e) {
  if (!e->u.event.status) return CL_SUCCESS;
  return e->u.event.status == CL_OUT_OF_RESOURCES ? CL_OUT_OF_RESOURCES : CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
}

/* over says that an event has ended, with which status. The caller has the lock. */
static void over(span *e, cl_int status) {
  e->u.event.status = status < 0 ? status : CL_SUCCESS, e->u.event.over = true;
  sp_news();
}

/* sp_wait_over waits for an event that is not pending. */
cl_int sp_wait_over(span *e) {
  sp_enter();
  bool so = is_over(e);
  cl_int bad = so ? sp_ended(e) : CL_SUCCESS;
  void *in = e->in[e->node];
  sp_leave();
  if (so) return bad;
  bad = D.clWaitForEvents(1, (cl_event *)&in);
  sp_enter();
  over(e, bad);
  bad = sp_ended(e);
  sp_leave();
  return bad;
}

void sp_sent(span *e, cl_int bad, void *in) {
  e->in[e->node] = in;
  e->u.event.status = bad;
  e->u.event.pending = false;
  sp_news();
}

/* has_ended is told by who watches an event, and opens its gates. */
static void CL_CALLBACK has_ended(cl_event in, cl_int status, void *event) {
  span *e = event;
  cl_event gates[YP_NODES];
  int n = 0;
  (void)in;
  sp_enter();
  over(e, status);
  for (int i = 0; i < YP_NODES; i++)
    if (i != e->node && e->in[i]) D.clRetainEvent(gates[n++] = e->in[i]);
  e->holds--, sp_gone(e);
  sp_leave();
  while (n-- > 0) D.clSetUserEventStatus(gates[n], status < 0 ? status : CL_COMPLETE), D.clReleaseEvent(gates[n]);
}

/* watch has an event's end told, and waits for it only if nobody can. The caller has the lock. */
static void watch(span *e) {
  void *in = e->in[e->node];
  if (e->u.event.watched) return;
  D.clFlush(queue_at(e->parent, e->node));
  e->u.event.watched = true, e->holds++;
  if (!yp_when_over(in, has_ended, e)) return;
  sp_leave();
  cl_int status = D.clWaitForEvents(1, (cl_event *)&in);
  has_ended(in, status, e);
  sp_enter();
}

/* sp_gate makes an event at a node that is set when one of another node has ended. The caller has the lock. */
cl_int sp_gate(span *e, int node) {
  cl_int bad;
  e->in[node] = D.clCreateUserEvent(e->context->in[node], &bad);
  if (!bad) watch(e);
  return bad;
}

static cl_int wait_one(span *e) {
  sp_enter();
  while (pending(e)) sp_await();
  sp_leave();
  return sp_wait_over(e);
}

static cl_int CL_API_CALL sp_clWaitForEvents(cl_uint n, const cl_event *events) {
  if (!n || !events) return CL_INVALID_VALUE;
  for (cl_uint i = 0; i < n; i++) {
    if (!sis(events[i], EVENT)) return CL_INVALID_EVENT;
    if (sp(events[i])->context != sp(events[0])->context) return CL_INVALID_CONTEXT;
  }
  cl_int bad = CL_SUCCESS;
  for (cl_uint i = 0; i < n; i++) {
    cl_int b = wait_one(sp(events[i]));
    if (!bad) bad = b;
  }
  if (!bad) yp_hear(n, events, NULL, UINT64_MAX);
  return bad;
}

cl_event CL_API_CALL sp_clCreateUserEvent(cl_context c, cl_int *err) {
  if (!sis(c, CONTEXT)) FAIL(CL_INVALID_CONTEXT);
  span *e = sp_make(EVENT, sp(c), NULL);
  if (!e) FAIL(CL_OUT_OF_HOST_MEMORY);
  e->u.event.type = CL_COMMAND_USER, e->u.event.pending = true;
  return sp_done(e, CL_SUCCESS, err);
}

static cl_int CL_API_CALL sp_clSetUserEventStatus(cl_event h, cl_int status) {
  if (!sis(h, EVENT) || sp(h)->u.event.type != CL_COMMAND_USER) return CL_INVALID_EVENT;
  if (status > CL_COMPLETE) return CL_INVALID_VALUE;
  sp_enter();
  bool first = pending(sp(h));
  if (first) sp_sent(sp(h), status, NULL);
  sp_leave();
  return first ? CL_SUCCESS : CL_INVALID_OPERATION;
}

static cl_int CL_API_CALL sp_clGetEventInfo(cl_event h, cl_event_info what, size_t size, void *value, size_t *got) {
  if (!sis(h, EVENT)) return CL_INVALID_EVENT;
  span *e = sp(h);
  switch (what) {
  case CL_EVENT_COMMAND_QUEUE: GIVE(cl_command_queue, (cl_command_queue)e->parent);
  case CL_EVENT_CONTEXT: GIVE(cl_context, (cl_context)e->context);
  case CL_EVENT_COMMAND_TYPE: GIVE(cl_command_type, e->u.event.type);
  case CL_EVENT_REFERENCE_COUNT: GIVE(cl_uint, yp_count(e->refs));
  case CL_EVENT_COMMAND_EXECUTION_STATUS: break;
  default: return CL_INVALID_VALUE;
  }
  sp_enter();
  cl_int status = !pending(e) ? e->u.event.status : e->u.event.type == CL_COMMAND_USER ? CL_SUBMITTED : CL_QUEUED;
  void *in = e->in[e->node];
  sp_leave();
  if (in) return D.clGetEventInfo(in, what, size, value, got);
  GIVE(cl_int, status);
}

static cl_int CL_API_CALL sp_clGetEventProfilingInfo(cl_event h, cl_profiling_info what, size_t size, void *value, size_t *got) {
  if (!sis(h, EVENT)) return CL_INVALID_EVENT;
  void *in = sp(h)->in[sp(h)->node];
  return in ? D.clGetEventProfilingInfo(in, what, size, value, got) : CL_PROFILING_INFO_NOT_AVAILABLE;
}

static cl_int CL_API_CALL sp_clSetEventCallback(cl_event h, cl_int when, void(CL_CALLBACK *call)(cl_event, cl_int, void *), void *data) {
  return sis(h, EVENT) ? yp_notice(h, when, call, data) : CL_INVALID_EVENT;
}

void sp_fill_events(cl_icd_dispatch *t) {
  SET(clWaitForEvents) SET(clCreateUserEvent) SET(clSetUserEventStatus) SET(clGetEventInfo) SET(clGetEventProfilingInfo) SET(clSetEventCallback)
}
