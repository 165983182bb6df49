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
older= # functions as older systems have them: shim/src/glibc.h
if getconf GNU_LIBC_VERSION >/dev/null 2>&1; then older="-include shim/src/glibc.h"; fi

# link NAME OPTION...: what was compiled to NAME.o. Older systems have some functions in libraries apart, and look for each
# where it was when the program was linked (glibc before 2.30): in libraries of these names, here, as today's are empty.
# What glibc has in its dynamic linker is said to be in one of these, as musl knows no such linker, and these names for its own.
link() {
	name=$1 apart=
	shift
	for so in libpthread.so.0:pthread_ librt.so.1:clock_ libdl.so.2:dl; do
		[ -n "$older" ] || continue
		nm -u "$tmp/$name.o" | sed -n "s/.* \(${so#*:}[a-z_]*\)@\(GLIBC_.*\)/\1 \2/p" >"$tmp/names"
		[ -s "$tmp/names" ] || continue
		so=${so%:*}
		awk '{ print "void " $1 "(void) {}" } END { print "void *__tls_get_addr(void *x) { return x; }" }' "$tmp/names" >"$tmp/apart.c"
		awk '{ in_[$2] = in_[$2] $1 ";" } END { for (v in in_) print v " {" in_[v] "};" }' "$tmp/names" >"$tmp/apart.map"
		"$cc" -w -fno-builtin -fPIC -shared -nostdlib "-Wl,-soname,$so,--version-script=$tmp/apart.map" -o "$tmp/$so" "$tmp/apart.c"
		apart="$apart $tmp/$so"
	done
	"$cc" -pthread -Wl,-z,defs -o "$tmp/$name" "$tmp/$name.o" "$@" -Wl,--no-as-needed $apart
}

# library NAME COMPILE LINK FILE...: with an option each, or none.
library() {
	name=$1 option=$2 linked=$3
	shift 3
	"$cc" -std=c11 -O2 -Wall -Wextra -Werror -fPIC -fvisibility=hidden $older $option -r -o "$tmp/$name.o" "$@"
	link "$name" -shared $linked
}
library libyunhe-pool.so "" -Wl,-z,nodelete,-Bsymbolic shim/src/*.c
library libOpenCL.so.1 "-DLOADER" -Wl,-z,nodelete,-soname,libOpenCL.so.1,-Bsymbolic,--version-script=shim/loader/exports.map shim/src/*.c shim/loader/*.c
library libyunhe-cuda.so -DDEFINES_DLOPEN "" shim/cuda/*.c shim/src/given.c shim/src/own.c shim/src/sha256.c
library libyunhe-cuda-remote.so -DDEFINES_DLOPEN -Wl,-soname,libcuda.so.1,-Bsymbolic shim/remote/*.c shim/src/conn.c shim/src/given.c shim/src/own.c shim/src/path.c shim/src/ring.c shim/src/rdma.c shim/src/tls.c shim/src/sha256.c
CGO_ENABLED=0 GOOS=linux ${GO:-go} build -trimpath -ldflags '-s -w' -o "$tmp/yunhe-pool-worker" ./cmd/yunhe-pool-worker
# What "yunhe pool conformance" runs: linked with the names that it uses of the loader of OpenCL, whichever version a system has.
"$cc" -std=gnu11 -O2 -Wall -Wextra -Werror $older -c -o "$tmp/yunhe-pool-program.o" shim/test/pool.c
nm -u "$tmp/yunhe-pool-program.o" | sed -n 's/.* \(cl[A-Z].*\)/void \1(void) {}/p' >"$tmp/opencl.c"
"$cc" -shared -nostdlib -Wl,-soname,libOpenCL.so.1 -o "$tmp/libOpenCL.so" "$tmp/opencl.c"
start=
case $older$("$cc" -dumpmachine) in -include*x86_64*) start="-nostartfiles shim/test/start.c" ;; esac
link yunhe-pool-program -Wl,-z,lazy $start "$tmp/libOpenCL.so"
for program in libyunhe-pool.so libOpenCL.so.1 libyunhe-cuda.so libyunhe-cuda-remote.so yunhe-pool-worker yunhe-pool-program; do
	gzip -9nc "$tmp/$program" >"$tmp/packed"
	cmp -s "$tmp/packed" "$to/$program.gz" || mv "$tmp/packed" "$to/$program.gz"
done
