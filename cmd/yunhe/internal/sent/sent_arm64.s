//go:build linux

#include "textflag.h"

// note(R0: signal, R1: siginfo_t, R2: context), as the kernel calls it.
TEXT ·note(SB), NOSPLIT|NOFRAME, $0
	MOVW	8(R1), R3	// si_code: above 0 where the kernel sent it
	CMPW	$0, R3
	BGT	on
	MOVD	$·byProcess(SB), R4
	MOVD	$1, R5
	MOVW	R5, (R4)(R0<<2)
on:
	MOVD	$·runtimes(SB), R4
	MOVD	(R4)(R0<<3), R4
	JMP	(R4)

DATA ·handler(SB)/8, $·note(SB)
GLOBL ·handler(SB), NOPTR, $8
