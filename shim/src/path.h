/* A path carries what this program and a worker say to each other: bytes, in
 * their order. It begins as a socket, and either way of it may go on in another
 * manner when both sides have agreed (conn.c, better); the socket stays, because
 * descriptors come over it, and because it ends when the worker does. */
#ifndef YUNHE_POOL_PATH_H
#define YUNHE_POOL_PATH_H

#include "own.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct yp_path yp_path;

typedef struct { /* a manner */
  bool (*send)(yp_path *, const uint8_t *p, size_t n, const uint8_t *q, size_t m); /* all of two pieces */
  ssize_t (*receive)(yp_path *, uint8_t *p, size_t n);                             /* at least a byte; not one: it has ended */
  bool (*ready)(yp_path *);                                                        /* receive would not wait */
} yp_manner;

enum { YP_FDS = 64 };

struct yp_path {
  const yp_manner *out, *in; /* one thread at a time uses each */
  bool (*stuck)(void *of);   /* NULL, or called every now and then by who cannot send; false: no more is to be sent */
  void *of;
  yp_own sock;
  bool sure; /* who has sent has looked at it, for who receives the answer */
  int fds[YP_FDS]; /* that came along, and were not taken yet */
  unsigned fds_in, fds_out;
  struct { /* see ring.c */
    uint8_t *page;
    size_t size;
    uint32_t read, written, taken; /* taken: as far as the worker is known to have read */
    int back, skip, asleep;
    bool met; /* the worker did not wait when it was written to */
  } ring;
  int rdma; /* see rdma.c */
  bool has_rdma;
  struct yp_tls *tls; /* see tls.c */
};

yp_path *yp_dial(const char *address); /* NULL: it cannot be reached */
int yp_descriptor(yp_path *p);         /* the next that came along, or -1 */
int yp_sock(const yp_path *p);         /* the socket; -1: the program has closed it */
int yp_poll(const yp_path *p, short events, int milliseconds);
bool yp_again(const yp_path *p);
void yp_hang_up(yp_path *p);
bool yp_ring_open(yp_path *p, int fd, uint64_t size);
void yp_ring_close(yp_path *p);
bool yp_rdma_open(yp_path *p, uint16_t port, const uint8_t *token, size_t size);
void yp_rdma_close(yp_path *p);
const char *yp_tls_missing(void); /* why nothing can be encrypted, or NULL */
bool yp_tls_open(yp_path *p, const uint8_t token[32], const uint8_t hello[32], const char **why);
void yp_tls_close(yp_path *p);
extern const yp_manner yp_socket, yp_ring, yp_rdma, yp_tls;

#endif
