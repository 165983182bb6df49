#!/bin/sh
# pool.sh - build the accelerator pool's worker and client libraries, packed, to
# be embedded into the binary. Without a C compiler or OpenCL's headers the
# binary has no pool, and says so when it is asked for one.
set -eu
cd "$(dirname "$0")/.."
to=internal/pool/programs
cc=${CC:-gcc}
if [ "$(uname -s)" != Linux ] || ! command -v "$cc" >/dev/null 2>&1 || ! echo '#include <CL/cl_icd.h>' | "$cc" -E - >/dev/null 2>&1; then
	echo "pool: no C compiler, or no headers of OpenCL (opencl-c-headers): the binary is built without the accelerator pool"
	exit 0
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
older= apart= # systems have some functions in libraries apart, see shim/src/glibc.h
if getconf GNU_LIBC_VERSION >/dev/null 2>&1; then
	older="-include shim/src/glibc.h" apart="-Wl,--no-as-needed -l:libpthread.so.0 -l:librt.so.1 -l:libdl.so.2"
fi
library() {
	so=$1
	shift
	"$cc" -std=c11 -O2 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -shared -pthread $older -Wl,-z,defs -o "$tmp/$so" "$@" $apart
}
library libyunhe-pool.so shim/src/*.c
library libyunhe-cuda.so shim/cuda/*.c shim/src/sha256.c
library libyunhe-cuda-remote.so -Wl,-soname,libcuda.so.1 -DDEFINES_DLOPEN shim/remote/*.c shim/src/conn.c shim/src/path.c shim/src/ring.c shim/src/rdma.c shim/src/sha256.c
CGO_ENABLED=0 GOOS=linux ${GO:-go} build -trimpath -ldflags '-s -w' -o "$tmp/yunhe-pool-worker" ./cmd/yunhe-pool-worker
programs="libyunhe-pool.so libyunhe-cuda.so libyunhe-cuda-remote.so yunhe-pool-worker"
# What "yunhe pool conformance" runs; it links the loader of OpenCL as any program does.
if echo 'int main(void) { return 0; }' | "$cc" -x c -o "$tmp/yunhe-pool-program" - -l:libOpenCL.so.1 2>/dev/null; then
	"$cc" -std=gnu11 -O2 -Wall -Wextra -Werror -o "$tmp/yunhe-pool-program" shim/test/pool.c -l:libOpenCL.so.1 -pthread
	programs="$programs yunhe-pool-program"
else
	echo "pool: no loader of OpenCL (ocl-icd-libopencl1): the binary is built without the program of yunhe pool conformance"
fi
for program in $programs; do
	gzip -9nc "$tmp/$program" >"$tmp/packed"
	cmp -s "$tmp/packed" "$to/$program.gz" || mv "$tmp/packed" "$to/$program.gz"
done
