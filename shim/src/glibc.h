/* Libraries that are loaded into programs are for systems older than the one
 * they are built on (CentOS 6 has glibc 2.12): each function that glibc gave a new
 * version since is asked for by its first. The compiler includes this before
 * each file; what one does not call it does not mention. */

#if defined __x86_64__ || defined __aarch64__
#ifdef __x86_64__
#define FIRST "@GLIBC_2.2.5"
__asm__(".symver memcpy,memcpy" FIRST);
__asm__(".symver clock_gettime,clock_gettime" FIRST); /* of librt then */
__asm__(".symver pthread_condattr_setclock,pthread_condattr_setclock@GLIBC_2.3.3");
#else
#define FIRST "@GLIBC_2.17"
__asm__(".symver pthread_condattr_setclock,pthread_condattr_setclock" FIRST);
#endif
__asm__(".symver pthread_create,pthread_create" FIRST);
__asm__(".symver pthread_detach,pthread_detach" FIRST);
__asm__(".symver pthread_join,pthread_join" FIRST);
__asm__(".symver pthread_once,pthread_once" FIRST);
__asm__(".symver pthread_sigmask,pthread_sigmask" FIRST);
__asm__(".symver pthread_mutex_trylock,pthread_mutex_trylock" FIRST);
#ifndef DEFINES_DLOPEN /* the library has its own */
__asm__(".symver dlopen,dlopen" FIRST);
#endif
__asm__(".symver dlvsym,dlvsym" FIRST);
__asm__(".symver dladdr,dladdr" FIRST);
__asm__(".symver pthread_key_create,pthread_key_create" FIRST);
__asm__(".symver pthread_setspecific,pthread_setspecific" FIRST);
#define OLDEST(F) __asm__(".symver " #F "," #F FIRST) /* of one that a library of ours defines */
#endif
