/* A program that opens a part of its own by name, where only its own path to libraries
 * (RUNPATH) leads, and the part, which looks for the next function of the same name as
 * one of its own: the dynamic loader answers both by who asks.
 *
 *   parts PART */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#ifdef PART
int cuPart(void);
int cuPart(void) { return dlsym(RTLD_NEXT, "cuPart") ? 2 : 1; }
#else
int main(int argc, char **argv) {
  void *part = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
  int (*f)(void);
  if (part) *(void **)&f = dlsym(part, "cuPart");
  if (!part || !f) return printf("%s\n", dlerror()), 3;
  printf("opened, %s\n", f() == 1 ? "none is next" : "it is next to itself");
  return 0;
}
#endif
