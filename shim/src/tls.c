/* TLS 1.3, by the OpenSSL of the program's system, which is loaded when a node
 * encrypts. How both sides prove who they are is said in internal/pool/tunnel.
 *
 * What is encrypted is one for both ways and is used by one thread at a time (the
 * lock), so it has nothing to do with the socket: what it writes is kept and
 * sent without the lock, in its order, by who sends; what it reads was received
 * before, by who receives. So neither way waits for the other. What reading has to
 * say in turn (new keys) goes with what is sent next. */
#define _GNU_SOURCE
#include "path.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#ifdef OLDEST
OLDEST(dlsym);
#endif

typedef struct ssl SSL;
typedef struct ssl_ctx SSL_CTX;
typedef struct bio BIO;
typedef struct bio_method BIO_METHOD;

enum { PIECE = 64 << 10, RECEIVED = 128 << 10 }; /* bytes that are encrypted at once, and received */
#ifndef REKEY
#define REKEY (32ULL << 30) /* bytes after which both ways get new keys: AES-GCM is good for some ten times as much (RFC 8446, 5.5) */
#endif

/* Of what OpenSSL's headers say. */
enum { SET_MIN_PROTO = 123, TLS1_3 = 0x0304, READING = 3, KEY_UPDATE_REQUESTED = 1, BIO_FLUSH = 11, BIO_READ_RETRY = 1 | 8, BIO_RETRY = 15, BIO_SOURCE_SINK = 0x400 };
static const uint64_t NO_ATEXIT = 0x80000; /* programs call us until the very end */
static const unsigned long FIRST_VERSION = 0x10101000;

static struct {
  int (*init)(uint64_t, const void *);
  unsigned long (*version)(void);
  int (*new_index)(void);
  BIO_METHOD *(*meth_new)(int, const char *);
  int (*meth_write)(BIO_METHOD *, int (*)(BIO *, const char *, int)), (*meth_read)(BIO_METHOD *, int (*)(BIO *, char *, int)),
      (*meth_ctrl)(BIO_METHOD *, long (*)(BIO *, int, long, void *));
  BIO *(*bio_new)(const BIO_METHOD *);
  void (*bio_init)(BIO *, int), (*bio_data)(BIO *, void *), *(*bio_get_data)(BIO *), (*bio_set_flags)(BIO *, int), (*bio_clear_flags)(BIO *, int);
  const void *(*method)(void);
  SSL_CTX *(*ctx_new)(const void *);
  long (*ctx_ctrl)(SSL_CTX *, int, long, void *);
  SSL *(*new)(SSL_CTX *);
  void (*free)(SSL *), (*set_bio)(SSL *, BIO *, BIO *);
  int (*connect)(SSL *), (*read)(SSL *, void *, int), (*peek)(SSL *, void *, int), (*write)(SSL *, const void *, int), (*want)(const SSL *), (*update)(SSL *, int);
  int (*word)(SSL *, unsigned char *, size_t, const char *, size_t, const unsigned char *, size_t, int);
  SSL_CTX *ctx;
  BIO_METHOD *bio;
} lib;
static const char *missing = "what is said to the pool node cannot be encrypted: there is no OpenSSL here (libssl.so.3, or libssl.so.1.1 of 1.1.1)";
static char why_not[160];

struct yp_tls {
  pthread_mutex_t lock; /* guards what follows, but for what is said below */
  SSL *ssl;
  uint8_t *out; /* encrypted, not sent yet */
  size_t used, room;
  bool full;      /* there was no memory for what was to be sent */
  uint64_t since; /* bytes since new keys were asked for */
  uint8_t *spare; /* of who sends */
  size_t spare_room;
  size_t at, end; /* of in, which who receives fills when it is empty */
  uint8_t in[RECEIVED];
};

/* --- what OpenSSL writes to and reads from --- */

static int put(BIO *b, const char *p, int n) {
  struct yp_tls *t = lib.bio_get_data(b);
  if (n <= 0) return 0;
  if (t->used + (size_t)n > t->room) {
    size_t room = (t->used + (size_t)n) * 2;
    uint8_t *out = realloc(t->out, room);
    if (!out) {
      t->full = true;
      return -1;
    }
    t->out = out, t->room = room;
  }
  memcpy(t->out + t->used, p, (size_t)n);
  t->used += (size_t)n;
  return n;
}

static int get(BIO *b, char *p, int n) {
  struct yp_tls *t = lib.bio_get_data(b);
  size_t k = t->end - t->at < (size_t)n ? t->end - t->at : (size_t)n;
  lib.bio_clear_flags(b, BIO_RETRY);
  if (k == 0) {
    lib.bio_set_flags(b, BIO_READ_RETRY);
    return -1;
  }
  memcpy(p, t->in + t->at, k);
  t->at += k;
  return (int)k;
}

static long control(BIO *b, int what, long n, void *p) {
  (void)b, (void)n, (void)p;
  return what == BIO_FLUSH;
}

/* --- the library --- */

static void *open_library(const char *name) {
  /* Its own functions, where a program has others of these names; what checks memory forbids that. */
  return dlopen(name, RTLD_NOW | RTLD_LOCAL | (dlsym(RTLD_DEFAULT, "__asan_init") || dlsym(RTLD_DEFAULT, "__tsan_init") ? 0 : RTLD_DEEPBIND));
}

static void load(void) {
  static const char *const names[][2] = {{"libssl.so.3", "libcrypto.so.3"}, {"libssl.so.1.1", "libcrypto.so.1.1"}};
  static const char *const old[] = {"libssl.so.1.0.2", "libssl.so.1.0.0", "libssl.so.10"};
  const struct {
    const char *name;
    void *to;
  } all[] = {{"OPENSSL_init_crypto", &lib.init}, {"OpenSSL_version_num", &lib.version}, {"BIO_get_new_index", &lib.new_index}, {"BIO_meth_new", &lib.meth_new},
             {"BIO_meth_set_write", &lib.meth_write}, {"BIO_meth_set_read", &lib.meth_read}, {"BIO_meth_set_ctrl", &lib.meth_ctrl}, {"BIO_new", &lib.bio_new},
             {"BIO_set_init", &lib.bio_init}, {"BIO_set_data", &lib.bio_data}, {"BIO_get_data", &lib.bio_get_data}, {"BIO_set_flags", &lib.bio_set_flags},
             {"BIO_clear_flags", &lib.bio_clear_flags}, {"TLS_client_method", &lib.method}, {"SSL_CTX_new", &lib.ctx_new}, {"SSL_CTX_ctrl", &lib.ctx_ctrl},
             {"SSL_new", &lib.new}, {"SSL_free", &lib.free}, {"SSL_set_bio", &lib.set_bio}, {"SSL_connect", &lib.connect}, {"SSL_read", &lib.read},
             {"SSL_peek", &lib.peek}, {"SSL_write", &lib.write}, {"SSL_want", &lib.want}, {"SSL_key_update", &lib.update}, {"SSL_export_keying_material", &lib.word}};
  enum { OF_CRYPTO = 13 };
  const char *name = NULL;
  void *ssl = NULL, *crypto = NULL;
  for (size_t i = 0; !ssl && i < sizeof names / sizeof *names; i++)
    if ((crypto = open_library(names[i][1])) && (ssl = open_library(names[i][0]))) name = names[i][0];
  for (size_t i = 0; !ssl && i < sizeof old / sizeof *old; i++)
    if (open_library(old[i])) {
      snprintf(why_not, sizeof why_not, "what is said to the pool node cannot be encrypted: %s is too old, OpenSSL 1.1.1 or later has TLS 1.3", old[i]);
      missing = why_not;
      return;
    }
  if (!ssl) return;
  missing = why_not;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    void *f = dlsym(i < OF_CRYPTO ? crypto : ssl, all[i].name);
    if (!f) {
      snprintf(why_not, sizeof why_not, "what is said to the pool node cannot be encrypted: %s has no %s, OpenSSL 1.1.1 or later has", name, all[i].name);
      return;
    }
    memcpy(all[i].to, &f, sizeof f);
  }
  if (lib.version() < FIRST_VERSION) {
    snprintf(why_not, sizeof why_not, "what is said to the pool node cannot be encrypted: %s is too old, OpenSSL 1.1.1 or later has TLS 1.3", name);
    return;
  }
  snprintf(why_not, sizeof why_not, "what is said to the pool node cannot be encrypted: %s does not work", name);
  lib.init(NO_ATEXIT, NULL);
  lib.ctx = lib.ctx_new(lib.method());
  lib.bio = lib.meth_new(lib.new_index() | BIO_SOURCE_SINK, "yunhe pool");
  if (lib.ctx && lib.bio && lib.ctx_ctrl(lib.ctx, SET_MIN_PROTO, TLS1_3, NULL) == 1 && lib.meth_write(lib.bio, put) && lib.meth_read(lib.bio, get) && lib.meth_ctrl(lib.bio, control))
    missing = NULL;
}

const char *yp_tls_missing(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return missing;
}

/* --- a path --- */

/* send_out sends what is encrypted. The caller is who sends. */
static bool send_out(yp_path *c) {
  struct yp_tls *t = c->tls;
  pthread_mutex_lock(&t->lock);
  uint8_t *p = t->out;
  size_t n = t->used, room = t->room;
  t->out = t->spare, t->room = t->spare_room, t->used = 0;
  bool ok = !t->full;
  pthread_mutex_unlock(&t->lock);
  t->spare = p, t->spare_room = room;
  return ok && (n == 0 || yp_socket.send(c, p, n, NULL, 0));
}

static bool tls_send(yp_path *c, const uint8_t *p, size_t n, const uint8_t *q, size_t m) {
  struct yp_tls *t = c->tls;
  uint8_t both[4096]; /* what is short goes at once */
  if (n && m && n + m <= sizeof both) {
    memcpy(both, p, n), memcpy(both + n, q, m);
    p = both, n += m, m = 0;
  }
  for (int i = 0; i < 2; i++, p = q, n = m)
    while (n > 0) {
      size_t k = n < PIECE ? n : PIECE;
      pthread_mutex_lock(&t->lock);
      if ((t->since += k) > REKEY) t->since = 0, lib.update(t->ssl, KEY_UPDATE_REQUESTED);
      bool ok = lib.write(t->ssl, p, (int)k) == (int)k;
      pthread_mutex_unlock(&t->lock);
      if (!ok || !send_out(c)) return false;
      p += k, n -= k;
    }
  return true;
}

/* fill receives, as many bytes as there are, when what came before was read; how: flags of recv. */
static ssize_t fill(yp_path *c, int how) {
  struct yp_tls *t = c->tls;
  ssize_t k;
  do k = recv(yp_sock(c), t->in, sizeof t->in, how);
  while (k < 0 && (how & MSG_DONTWAIT ? errno == EINTR : yp_again(c)));
  if (k <= 0) return k;
  pthread_mutex_lock(&t->lock);
  t->at = 0, t->end = (size_t)k;
  pthread_mutex_unlock(&t->lock);
  return k;
}

/* take reads or peeks what is there already; *more: that is not a byte yet. */
static int take(struct yp_tls *t, int (*how)(SSL *, void *, int), void *p, int n, bool *more) {
  pthread_mutex_lock(&t->lock);
  int k = how(t->ssl, p, n);
  *more = k <= 0 && lib.want(t->ssl) == READING; /* SSL_get_error looks at what the program has left in its thread, too */
  if (k > 0) t->since += (uint64_t)k;
  pthread_mutex_unlock(&t->lock);
  return k;
}

static ssize_t tls_receive(yp_path *c, uint8_t *p, size_t n) {
  for (bool more;;) {
    int k = take(c->tls, lib.read, p, n < PIECE ? (int)n : PIECE, &more);
    if (k > 0) return k;
    if (!more || fill(c, 0) <= 0) return 0;
  }
}

static bool tls_ready(yp_path *c) {
  uint8_t one;
  for (bool more;;) {
    if (take(c->tls, lib.peek, &one, 1, &more) > 0 || !more) return true;
    ssize_t k = fill(c, MSG_DONTWAIT);
    if (k <= 0) return k == 0 || errno != EAGAIN;
  }
}

const yp_manner yp_tls = {tls_send, tls_receive, tls_ready};

static bool equal(const uint8_t *a, const uint8_t *b, size_t n) {
  uint8_t other = 0;
  for (size_t i = 0; i < n; i++) other |= a[i] ^ b[i];
  return !other;
}

void yp_hmac(const uint8_t key[32], const uint8_t *text, size_t n, uint8_t out[32]);

enum { WORD = 32, MAC = 32 };

/* proof is what who proves a token with in a session with this word. */
static void proof(const uint8_t token[32], const uint8_t word[WORD], const char *who, const uint8_t hello[MAC], uint8_t out[MAC]) {
  uint8_t text[WORD + 32 + MAC];
  size_t n = strlen(who);
  memcpy(text, word, WORD), memcpy(text + WORD, who, n), memcpy(text + WORD + n, hello, MAC);
  yp_hmac(token, text, WORD + n + MAC, out);
}

static bool begin(yp_path *c, const uint8_t token[32], const uint8_t hello[MAC], const char **why) {
  static const char label[] = "EXPORTER-Channel-Binding";
  struct yp_tls *t = c->tls;
  uint8_t word[WORD], own[MAC], want[MAC], got[MAC];
  *why = "what is said to the pool node cannot be encrypted: there is no memory for it";
  t->ssl = lib.new(lib.ctx);
  BIO *b = lib.bio_new(lib.bio);
  if (!t->ssl || !b) return false;
  lib.bio_data(b, t), lib.bio_init(b, 1);
  lib.set_bio(t->ssl, b, b); /* which it frees */
  *why = "what answers does not encrypt what is said, as it should";
  for (int k; (k = lib.connect(t->ssl)) != 1;) {
    if (k == 0 || lib.want(t->ssl) != READING || !send_out(c) || fill(c, 0) <= 0) return false;
  }
  if (lib.word(t->ssl, word, sizeof word, label, sizeof label - 1, NULL, 0, 0) != 1) return false;
  proof(token, word, "yunhe pool program", hello, own);
  proof(token, word, "yunhe pool worker", hello, want);
  *why = "what answers is not the pool node, or somebody is in between";
  if (!tls_send(c, own, sizeof own, NULL, 0)) return false;
  for (size_t at = 0; at < sizeof got;) {
    ssize_t k = tls_receive(c, got + at, sizeof got - at);
    if (k <= 0) return false;
    at += (size_t)k;
  }
  return equal(got, want, sizeof got);
}

/* yp_tls_open has what follows be encrypted, and proved to be between who knows the
 * token. The hello is what proved in the clear that the connection is of the task. */
bool yp_tls_open(yp_path *c, const uint8_t token[32], const uint8_t hello[MAC], const char **why) {
  c->tls = calloc(1, sizeof *c->tls);
  if (!c->tls) return false;
  pthread_mutex_init(&c->tls->lock, NULL);
  if (!begin(c, token, hello, why)) return false; /* it is hung up */
  c->in = c->out = &yp_tls;
  return true;
}

void yp_tls_close(yp_path *c) {
  struct yp_tls *t = c->tls;
  if (!t) return;
  c->tls = NULL;
  if (t->ssl) lib.free(t->ssl);
  pthread_mutex_destroy(&t->lock);
  free(t->out), free(t->spare), free(t);
}
