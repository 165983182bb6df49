/* A driver that is a door to another, as that of WSL: when its functions are called
 * first, it looks for that one's, of the same names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

static void *find(const char *name) { return dlsym(dlopen("libcuda.so.1.1", RTLD_NOW), name); }

int cuInit(unsigned flags) {
  static int (*f)(unsigned);
  if (!f) *(void **)&f = find("cuInit");
  return f(flags);
}

int cuMemAlloc_v2(void **p, size_t n) {
  static int (*f)(void **, size_t);
  if (!f) *(void **)&f = find("cuMemAlloc_v2");
  return f(p, n);
}
