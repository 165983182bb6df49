/* How programs come to the library's functions: dlsym and cuGetProcAddress give
 * them, where the driver has the function. What the library does not know is
 * given as the driver gives it: tables of functions that are not documented
 * (cuGetExportTable), too, which the library of CUDA's runtime asks for. */
#define _GNU_SOURCE
#include "cuda.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

typedef void *(*dlsym_fn)(void *, const char *);
typedef void *(*dlopen_fn)(const char *, int);

static dlsym_fn real_dlsym;
static dlopen_fn real_dlopen;
static void *driver;

__attribute__((constructor)) static void find_own(void) {
  static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
  for (size_t i = 0; i < 3 && !real_dlsym; i++) *(void **)&real_dlsym = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
  for (size_t i = 0; i < 3 && !real_dlopen; i++) *(void **)&real_dlopen = dlvsym(RTLD_NEXT, "dlopen", versions[i]);
}

/* row is the i-th of all functions that go through the library; NULL: there are fewer. */
static const yc_row *row(size_t i) { return i < yc_rows_n ? yc_rows + i : i - yc_rows_n < yc_work_n ? yc_work + (i - yc_rows_n) : NULL; }

static const yc_row *row_of(const char *name) {
  const yc_row *r;
  for (size_t i = 0; (r = row(i)) && strcmp(r->name, name); i++) {}
  return r;
}

static void resolve(void) {
  if (!real_dlopen) find_own();
  driver = real_dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  const yc_row *r;
  for (size_t i = 0; driver && (r = row(i)); i++) {
    void *f = real_dlsym(driver, r->name), *none = NULL;
    __atomic_compare_exchange_n(r->real, &none, f, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  }
}

void yc_resolve(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, resolve);
}

void *yc_driver(const char *name) { return driver ? real_dlsym(driver, name) : NULL; }

/* of_driver says that who calls is the driver, or its door to another (WSL's is): what
 * it looks for are functions of its own, or of that one. */
static bool of_driver(const void *caller) {
  static const char is[] = "libcuda.so";
  Dl_info in;
  if (!dladdr(caller, &in) || !in.dli_fname) return false;
  const char *name = strrchr(in.dli_fname, '/');
  return !strncmp(name ? name + 1 : in.dli_fname, is, sizeof is - 1);
}

/* dlsym returns at once, by a jump, what is none of the driver's: to the dynamic
 * loader the caller is who called, which RTLD_NEXT depends on. */
__attribute__((visibility("default"))) void *dlsym(void *restrict handle, const char *restrict name) {
  if (!real_dlsym) find_own();
  const yc_row *r = name[0] == 'c' && name[1] == 'u' ? row_of(name) : NULL;
  if (!r || of_driver(__builtin_return_address(0))) return real_dlsym(handle, name);
  void *f = real_dlsym(handle, name);
  if (!f || f == r->wrapper) return f;
  void *none = NULL; /* of a driver that is not where the loader looks */
  __atomic_compare_exchange_n(r->real, &none, f, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
  return r->wrapper;
}

/* A library that is opened to look for functions among its own first (RTLD_DEEPBIND)
 * would find the loader's dlsym, and by it the driver. */
__attribute__((visibility("default"))) void *dlopen(const char *name, int how) {
  if (!real_dlopen) find_own();
  return real_dlopen(name, how & ~RTLD_DEEPBIND);
}

/* yc_proc_address has what cuGetProcAddress found go through the library. The
 * function is known by its address, which says which version it is. A driver that
 * gives other addresses than it exports is taken at its word for the name. */
CUresult yc_proc_address(CUresult result, const char *name, void **f, int version, uint64_t flags) {
  enum { PER_THREAD = 2, SECOND = 12000, SIZES = 3020 };
  const yc_row *by_name = NULL, *r;
  if (result || !f || !*f || !name) return result;
  if (!strcmp(name, "cuGetProcAddress")) {
    *f = row_of(version >= SECOND ? "cuGetProcAddress_v2" : name)->wrapper;
    return result;
  }
  for (size_t i = 0; (r = row(i)); i++) {
    if (*f == *r->real || *f == r->wrapper) {
      *f = r->wrapper;
      return result;
    }
    if (!strcmp(r->base, name) && (!by_name || r->per_thread == !!(flags & PER_THREAD))) by_name = r;
  }
  if (by_name && (version >= SIZES || !strcmp(by_name->name, name))) { /* before, sizes had 32 bits */
    __atomic_store_n(by_name->real, *f, __ATOMIC_RELEASE);
    *f = by_name->wrapper;
  }
  return result;
}
