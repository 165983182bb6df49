//go:build linux

#include "textflag.h"

// note(DI: signal, SI: siginfo_t, DX: context), as the kernel calls it.
TEXT ·note(SB), NOSPLIT|NOFRAME, $0
	MOVL	DI, DI
	CMPL	8(SI), $0	// si_code: above 0 where the kernel sent it
	JGT	on
	LEAQ	·byProcess(SB), AX
	MOVL	$1, (AX)(DI*4)
on:
	LEAQ	·runtimes(SB), AX
	MOVQ	(AX)(DI*8), AX
	JMP	AX

DATA ·handler(SB)/8, $·note(SB)
GLOBL ·handler(SB), NOPTR, $8
