/* compiling plays a driver that compiles for long, for tests: PoCL, which takes minutes
 * to tell a program's binary and has another process work meanwhile, named
 * "yhcompiling", that goes on when its own has ended. */
#include "pocl.h"
#include <sys/prctl.h>
#include <unistd.h>

static cl_int CL_API_CALL slow(cl_program p, cl_program_info what, size_t size, void *to, size_t *got) {
	if (what == CL_PROGRAM_BINARIES && to) {
		if (!fork()) {
			prctl(PR_SET_NAME, "yhcompiling");
			for (;;) pause();
		}
		sleep(600);
	}
	return was.clGetProgramInfo(p, what, size, to, got);
}

static void change(cl_icd_dispatch *table) { table->clGetProgramInfo = slow; }
