/* The header files of a program that is built. They are on the program's
 * machine, where the node's compiler cannot look: what a source includes from the
 * folders that build options name, and then from the working folder, or by a
 * path of its own, goes along with the call. Paths from / on are told to
 * the compiler as beginning with ./, of a folder that comes last.
 *
 * Files are found by their #include lines, whatever conditions these stand
 * under: a file too many does no harm. One that is named by a macro is not
 * found. */
#include "pool.h"
#include <ctype.h>
#include <unistd.h>

enum { MOST_FILES = 1024, MOST_DIRS = 64, MOST_BYTES = 32 << 20 };

typedef struct {
  char *path; /* absolute */
  char *text;
  size_t size;
} file;

struct yp_headers {
  char *dirs[MOST_DIRS + 2]; /* absolute, in the order of the options; then the working folder, and / */
  size_t dir_count;
  size_t given;         /* by options */
  bool later, own, root; /* the worker knows more folders than those; something is included from the working folder, or by a path from / on */
  file files[MOST_FILES];
  size_t count, bytes;
  bool failed;
};

/* tidy makes a path absolute and takes . and .. out of it. */
static char *tidy(const char *folder, const char *name) {
  char *path = NULL, *own = *name == '/' || *folder == '/' ? strdup("") : getcwd(NULL, 0);
  if (own && asprintf(&path, "%s/%s/%s", own, *name == '/' ? "" : folder, name) < 0) path = NULL;
  free(own);
  if (!path) return NULL;
  size_t n = 0;
  for (char *p = path; *p;) {
    while (*p == '/') p++;
    size_t k = strcspn(p, "/");
    if (k == 2 && !strncmp(p, "..", 2)) {
      while (n && path[--n] != '/') {}
    } else if (k && !(k == 1 && *p == '.')) {
      path[n++] = '/';
      memmove(path + n, p, k);
      n += k;
    }
    p += k;
  }
  if (!n) path[n++] = '/';
  path[n] = 0;
  return path;
}

/* add takes in a file, unless it is there already, and says whether there is one. */
static bool add(yp_headers *h, const char *folder, const char *name) {
  char *path = tidy(folder, name), *text = NULL;
  size_t room = MOST_BYTES - h->bytes, n = 0;
  for (size_t i = 0; path && i < h->count; i++)
    if (!strcmp(h->files[i].path, path)) return free(path), true;
  FILE *f = path ? fopen(path, "r") : NULL;
  if (f && (text = malloc(room + 1))) n = fread(text, 1, room + 1, f);
  bool there = text && !ferror(f); /* it is no folder */
  if (there && (h->count == MOST_FILES || n > room)) h->failed = true, there = false;
  if (there) {
    char *fits = realloc(text, n + 1);
    h->files[h->count++] = (file){path, fits ? fits : text, n};
    h->bytes += n;
  } else {
    free(path), free(text);
  }
  if (f) fclose(f);
  return there;
}

static const char *blank(const char *p, const char *end) {
  while (p < end && (*p == ' ' || *p == '\t')) p++;
  return p;
}

/* included is the first name of *n bytes that a text includes, behind its quote or bracket; *rest is where the next line begins. NULL: it includes no more. */
static const char *included(const char *text, const char *end, size_t *n, const char **rest) {
  for (const char *line = text, *stop; line < end; line = stop + 1) {
    if (!(stop = memchr(line, '\n', (size_t)(end - line)))) stop = end;
    const char *p = blank(line, stop);
    if (p == stop || *p != '#') continue;
    p = blank(p + 1, stop);
    if (stop - p < 7 || memcmp(p, "include", 7)) continue;
    p = blank(p + 7, stop);
    if (p == stop || (*p != '"' && *p != '<')) continue;
    const char *to = memchr(p + 1, *p == '"' ? '"' : '>', (size_t)(stop - p - 1));
    if (!to) continue;
    *n = (size_t)(to - p - 1), *rest = stop < end ? stop + 1 : end;
    return p + 1;
  }
  return NULL;
}

/* scan takes in what a text includes; the text is that of a file in a folder, or of no file. */
static void scan(yp_headers *h, const char *text, size_t n, const char *folder) {
  const char *end = text + n, *at;
  for (size_t k; (at = included(text, end, &k, &text));) {
    char *name = strndup(at, k);
    if (!name) continue;
    if (*name == '/') {
      h->root |= h->later && add(h, "/", name);
    } else if (at[-1] != '"' || !folder || !add(h, folder, name)) {
      size_t i = 0;
      while (i < h->given && !add(h, h->dirs[i], name)) i++;
      h->own |= i == h->given && h->later && add(h, h->dirs[i], name);
    }
    free(name);
  }
}

/* yp_own_paths is a text in which paths that are included from / on begin with ./, of *n bytes, or NULL: there are none. */
char *yp_own_paths(const char *text, size_t *n) {
  const char *end = text + *n, *from = text, *rest = text, *at;
  char *out = NULL;
  size_t size = 0;
  for (size_t k; (at = included(rest, end, &k, &rest));)
    if (k && *at == '/') {
      char *more = realloc(out, size + (size_t)(at - from) + 1 + (size_t)(end - at));
      if (!more) break; /* and the compiler says that it is not there */
      memcpy((out = more) + size, from, (size_t)(at - from));
      size += (size_t)(at - from), out[size++] = '.', from = at;
    }
  if (out) memcpy(out + size, from, (size_t)(end - from)), *n = size + (size_t)(end - from);
  return out;
}

/* next_option returns where the next option begins, and its length; NULL: there is none. */
static const char *next_option(const char *p, size_t *n) {
  while (isspace((unsigned char)*p)) p++;
  bool quoted = false;
  for (*n = 0; p[*n] && (quoted || !isspace((unsigned char)p[*n])); ++*n)
    if (p[*n] == '"') quoted = !quoted;
  return *n ? p : NULL;
}

static void add_dir(yp_headers *h, const char *p, size_t n) {
  char name[4096];
  size_t k = 0;
  h->failed = h->failed || n >= sizeof name || h->dir_count == MOST_DIRS;
  if (h->failed) return;
  for (size_t i = 0; i < n; i++)
    if (p[i] != '"') name[k++] = p[i];
  name[k] = 0;
  char *dir = tidy(name, "");
  h->failed = !dir;
  if (dir) h->dirs[h->dir_count++] = dir;
}

yp_headers *yp_headers_of(const char *options, cl_uint n, const cl_program *texts) {
  yp_headers *h = calloc(1, sizeof *h);
  if (!h) return NULL;
  size_t k;
  for (const char *p = next_option(options ? options : "", &k); p; p = next_option(p + k, &k)) {
    if (k == 2 && !strncmp(p, "-I", 2)) {
      const char *dir = next_option(p + k, &k);
      if (!dir) break;
      add_dir(h, p = dir, k);
    } else if (k > 2 && !strncmp(p, "-I", 2)) {
      add_dir(h, p + 2, k - 2);
    }
  }
  h->given = h->dir_count, h->later = n && yp_later(obj(*texts)->node);
  if (h->later && !h->failed) {
    h->dirs[h->dir_count++] = tidy("", "");
    h->dirs[h->dir_count++] = strdup("/");
    h->failed = !h->dirs[h->given] || !h->dirs[h->given + 1];
  }
  for (cl_uint i = 0; !h->failed && i < n; i++)
    if (obj(texts[i])->u.program.text) scan(h, obj(texts[i])->u.program.text, obj(texts[i])->u.program.size, NULL);
  for (size_t i = 0; i < h->count && !h->failed; i++) { /* it grows meanwhile */
    char *folder = strndup(h->files[i].path, (size_t)(strrchr(h->files[i].path, '/') - h->files[i].path + 1));
    if (folder) scan(h, h->files[i].text, h->files[i].size, folder);
    free(folder);
  }
  if (!h->failed) return h;
  yp_headers_free(h);
  return NULL;
}

void yp_headers_put(const yp_headers *h, bool more) {
  if (!h->given && !h->own && !h->root && !more) return;
  yp_word(h->given + h->own + h->root);
  for (size_t i = 0; i < h->dir_count; i++)
    if (i < h->given || (i == h->given ? h->own : h->root)) yp_bytes(h->dirs[i], strlen(h->dirs[i]));
  yp_word(h->count);
  for (size_t i = 0; i < h->count; i++) {
    size_t n = h->files[i].size;
    char *own = h->later ? yp_own_paths(h->files[i].text, &n) : NULL;
    yp_bytes(h->files[i].path, strlen(h->files[i].path));
    yp_bytes(own ? own : h->files[i].text, n);
    free(own);
  }
}

void yp_headers_free(yp_headers *h) {
  for (size_t i = 0; h && i < h->dir_count; i++) free(h->dirs[i]);
  for (size_t i = 0; h && i < h->count; i++) free(h->files[i].path), free(h->files[i].text);
  free(h);
}
