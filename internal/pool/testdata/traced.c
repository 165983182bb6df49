/* A program that has a function of the driver's name, as one has that looks at its calls: the
 * driver's own is what the driver gives. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

int cuDriverGetVersion(int *version) { return *version = 1, 0; }

int main(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW), *f = NULL;
  int (*get)(const char *, void **, int, unsigned long), (*version)(int *), v = 0;
  if (!driver || !(*(void **)&get = dlsym(driver, "cuGetProcAddress")) || get("cuDriverGetVersion", &f, 11030, 0)) return 2;
  *(void **)&version = f;
  int bad = version(&v);
  printf("%d, %s\n", bad, v > 1 ? "the driver's" : "the program's");
  return 0;
}
