/* How a program starts, in place of the C compiler's own: that asks for glibc 2.34
 * where it was built on one, and the pool's program runs on older systems, too
 * (shim/src/glibc.h has its functions for them). */
__asm__(".symver __libc_start_main,__libc_start_main@GLIBC_2.2.5");
int __libc_start_main(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
int main(int, char **, char **);

__attribute__((used, noreturn)) static void begin(long *stack, void (*end)(void)) {
  __libc_start_main(main, (int)stack[0], (char **)(stack + 1), 0, 0, end, stack);
  __builtin_unreachable();
}

__asm__(".globl _start\n_start: xor %ebp,%ebp\n mov %rsp,%rdi\n mov %rdx,%rsi\n and $-16,%rsp\n call begin\n");
