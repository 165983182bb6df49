/* Lanes: the nodes of a program's cards send each other memory, and it does not go through this process.
 *
 * A lane is made when memory is first needed at the other node, by a thread of its own; until it is there, and when
 * it is not any more, memory goes through here. What passes on it is asked for at both nodes in one order. */
#include "ops.h"
#include "span.h"
#include <time.h>
#include <unistd.h>

enum { LANE_AWAIT, LANE_DIAL, LANE_DROP };
enum { NONE, MAKING, MADE };
enum { AGAIN = 10 }; /* seconds until one is made again that could not be made */

typedef struct {
  pthread_mutex_t order; /* held while a piece is asked for at both nodes */
  int state, a, b;
  uint64_t id[2]; /* of what is made, another each time */
  time_t again;
} lane;

static pthread_mutex_t lock; /* guards states, and what is said of who makes them */
static lane lanes[YP_NODES][YP_NODES]; /* of two nodes, the lower first */

static time_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return t.tv_sec;
}

static void begin(int node, int op, const uint64_t id[2], uint64_t what) {
  yp_begin(yp_node_at(node), op);
  if (op == OP_lane) yp_word(what);
  yp_word(id[0]), yp_word(id[1]);
}

static void drop(int node, const uint64_t id[2]) {
  begin(node, OP_lane, id, LANE_DROP);
  yp_post(true);
}

/* dial has one node connect to another. */
static bool dial(int from, int to, const uint64_t id[2]) {
  yp_lane_end end;
  answer a = {.land = NULL};
  if (!yp_lane_to(yp_node_at(to), id, &end)) return false;
  begin(to, OP_lane, id, LANE_AWAIT);
  bool ok = yp_sync(&a) == CL_SUCCESS;
  const uint64_t slot = a.a;
  free(a.data);
  if (!ok) return false;
  begin(from, OP_lane, id, LANE_DIAL);
  yp_bytes(end.key, sizeof end.key), yp_bytes(end.task, sizeof end.task);
  yp_word(slot);
  yp_bytes(end.at, strlen(end.at));
  if (yp_sync(NULL) == CL_SUCCESS) return true;
  drop(to, id);
  return false;
}

static void *make(void *of) {
  static uint32_t made;
  lane *l = of;
  uint64_t id[2];
  bool ok = false;
  for (int way = 0; way < 2 && !ok; way++) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    id[0] = (uint64_t)getpid() << 32 | __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED), id[1] = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
    ok = dial(way ? l->b : l->a, way ? l->a : l->b, id);
  }
  pthread_mutex_lock(&lock);
  l->state = ok ? MADE : NONE, l->again = now() + AGAIN;
  memcpy(l->id, id, sizeof id);
  pthread_mutex_unlock(&lock);
  return NULL;
}

/* between is the lane between two nodes and its number, if there is one now: if not, one may be made. */
static lane *between(int x, int y, uint64_t id[2]) {
  lane *l = x < y ? &lanes[x][y] : &lanes[y][x];
  pthread_mutex_lock(&lock);
  const bool is = l->state == MADE;
  if (is) memcpy(id, l->id, sizeof l->id);
  if (l->state == NONE && now() >= l->again && yp_lanes(yp_node_at(x)) && yp_lanes(yp_node_at(y))) {
    l->a = x < y ? x : y, l->b = x < y ? y : x;
    l->state = yp_thread(make, l) ? MAKING : NONE;
  }
  pthread_mutex_unlock(&lock);
  return is ? l : NULL;
}

/* broken forgets a lane on which something did not pass. It is made again when it is next needed. */
static void broken(lane *l, const uint64_t id[2]) {
  pthread_mutex_lock(&lock);
  const bool first = l->state == MADE && l->id[0] == id[0] && l->id[1] == id[1];
  if (first) l->state = NONE, l->again = 0;
  pthread_mutex_unlock(&lock);
  if (first) drop(l->a, id), drop(l->b, id);
}

static void piece(const sp_piece *p, bool in) {
  yp_word(obj(in ? p->in : p->out)->id), yp_word(obj(in ? p->new : p->old)->id), yp_word(p->image ? 2 : 0), yp_word(1);
  yp_size3(p->origin), yp_size3(p->region);
  yp_word(0), yp_word(0), yp_word(p->bytes), yp_word(0);
}

/* sp_pass has a piece of memory pass from one node to another, and waits. If it says no, nothing is known of what is there. */
bool sp_pass(const sp_piece *p) {
  if (p->bytes > YP_LANE_PIECE) return false;
  uint64_t id[2];
  lane *l = between(p->from, p->to, id);
  if (!l) return false;
  pthread_mutex_lock(&l->order);
  begin(p->from, OP_push, id, 0);
  piece(p, false);
  yp_post(true);
  begin(p->to, OP_pull, id, 0);
  piece(p, true);
  const bool ok = yp_sync_in_order(NULL, &l->order) == CL_SUCCESS;
  if (!ok) broken(l, id);
  return ok;
}

void sp_lanes_in_child(void) {
  pthread_mutex_init(&lock, NULL);
  memset(lanes, 0, sizeof lanes);
  for (int a = 0; a < YP_NODES; a++)
    for (int b = a; b < YP_NODES; b++) pthread_mutex_init(&lanes[a][b].order, NULL);
}
