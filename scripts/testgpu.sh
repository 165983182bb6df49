#!/bin/sh
# testgpu.sh - build what the tests of the pool on a card of NVIDIA's need, into bin/gpu
# and bin/gpu.tar.xz: for a machine that has the driver and python3 with PyTorch, and
# nothing to build with and no network. There:
#
#   tar xJf gpu.tar.xz                          # or: python3 -m tarfile -e gpu.tar.xz
#   gpu/run [PATTERN]                           # all tests, or those whose names it matches
#
# bin/yunhe is there already (make build). What is built needs the C library of this
# machine or a later one.
set -eu
cd "$(dirname "$0")/.."
cc=${CC:-gcc}
to=bin/gpu
rm -rf "$to"
mkdir -p "$to"
cp bin/yunhe "$to/yunhe"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# Programs are linked with the names of libraries that are on the other machine.
"$cc" -std=gnu11 -O1 -w -fPIC -shared -pthread -o "$tmp/libcuda.so.1" internal/pool/cards/testdata/fakecuda.c
"$cc" -std=gnu11 -O2 -Wall -Wextra -Werror -o "$to/cuda" shim/test/cuda.c -L"$tmp" -l:libcuda.so.1 -ldl -pthread
"$cc" -std=gnu11 -O2 -Wall -Wextra -Werror -c -o "$tmp/pool.o" shim/test/pool.c
nm -u "$tmp/pool.o" | sed -n 's/.* \(cl[A-Z].*\)/void \1(void) {}/p' >"$tmp/opencl.c"
"$cc" -shared -nostdlib -Wl,-soname,libOpenCL.so.1 -o "$tmp/libOpenCL.so" "$tmp/opencl.c"
"$cc" -o "$to/pool" "$tmp/pool.o" "$tmp/libOpenCL.so" -pthread
CGO_ENABLED=0 ${GO:-go} test -c -trimpath -ldflags '-s -w' -o "$to/gpu.test" ./e2e/gpu
cp e2e/gpu/testdata/*.py scripts/benchcuda.sh scripts/benchpool.sh "$to"
cp scripts/rungpu.sh "$to/run"
# A loader of OpenCL, should the machine have none.
loader=$(ldconfig -p 2>/dev/null | sed -n 's/.*libOpenCL\.so\.1 .*=> //p' | head -1)
if [ -n "$loader" ]; then
	mkdir "$to/loader"
	cp -L "$loader" "$to/loader/libOpenCL.so.1"
fi
tar -C bin -cf - gpu | xz -T0 -3 >bin/gpu.tar.xz
ls -l bin/gpu.tar.xz
