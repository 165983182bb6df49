/* Opens a library so that it finds functions among its own first, as some programs
 * open their parts, and runs a program that was built as one:
 *
 *   deep LIBRARY ARGUMENT... */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND) : NULL;
  int (*run)(int, char **);
  if (library) *(void **)&run = dlsym(library, "program");
  if (!library || !run) return printf("%s\n", dlerror()), 3;
  return run(argc - 1, argv + 1);
}
