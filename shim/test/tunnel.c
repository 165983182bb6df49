/* tunnel PORT BYTES: says bytes to 127.0.0.1 over TLS, in pieces of all sizes, while
 * another thread reads as many and checks that they are those; prints how often new
 * keys were asked for. What is between is that a node's worker says back what it hears. */
#include "../src/tls.c"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

static int updates;
static int (*update)(SSL *, int);
static int counted(SSL *s, int how) {
  updates++;
  return update(s, how);
}

static uint8_t byte_at(size_t i) { return (uint8_t)(i * 2654435761u >> 24 ^ i); }

static size_t bytes;
static yp_path *path;

static void *hear(void *right) {
  uint8_t *b = malloc(1 << 20);
  for (size_t at = 0; at < bytes;) {
    ssize_t k = path->in->receive(path, b, 1 << 20);
    if (k <= 0) return NULL;
    for (size_t i = 0; i < (size_t)k; i++)
      if (b[i] != byte_at(at + i)) return NULL;
    at += (size_t)k;
  }
  free(b);
  return right;
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  bytes = (size_t)atol(argv[2]);
  char address[64];
  const char *why = yp_tls_missing();
  uint8_t token[32], hello[32], *all = malloc(bytes), end;
  memset(token, 7, sizeof token), memset(hello, 9, sizeof hello);
  snprintf(address, sizeof address, "tls:127.0.0.1:%s", argv[1]);
  update = lib.update, lib.update = counted;
  if (why || !all || !(path = yp_dial(address)) || !yp_tls_open(path, token, hello, &why)) {
    printf("%s\n", why ? why : "it cannot be reached");
    return 1;
  }
  for (size_t i = 0; i < bytes; i++) all[i] = byte_at(i);
  pthread_t t;
  void *heard = NULL;
  if (path->in->ready(path) || pthread_create(&t, NULL, hear, &heard)) return 2;
  size_t at = 0;
  for (size_t n = 1, m = 5000; at < bytes; n = n * 3 % 300007, m = m * 5 % 4099) { /* a head and what follows */
    size_t head = m < bytes - at ? m : bytes - at, rest = n < bytes - at - head ? n : bytes - at - head;
    if (!path->out->send(path, all + at, head, all + at + head, rest)) return 1;
    at += head + rest;
  }
  pthread_join(t, &heard);
  if (!heard) printf("what was said is not what was heard\n");
  else printf("right, new keys %s\n", updates > 3 ? "often" : "seldom");
  while (!path->in->ready(path)) usleep(1000); /* when the other ends */
  bool over = path->in->receive(path, &end, 1) <= 0;
  yp_hang_up(path), free(all);
  return !heard || !over;
}
