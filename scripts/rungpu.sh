#!/bin/sh
# run - the tests of the pool on this machine's card of NVIDIA's (scripts/testgpu.sh).
# A pattern runs some; what they say is kept in results.txt beside this file, or, where
# that cannot be written, in $OUT or /tmp.
set -u
here=$(cd "$(dirname "$0")" && pwd)
export YUNHE_TEST_GPU=1 YUNHE_GPU_DIR="$here"
# library NAME - the folder that has it, "" if the loader knows it
library() {
	ldconfig -p 2>/dev/null | grep -q "$1 " && return
	for dir in $(echo "${LD_LIBRARY_PATH:-}" | tr : ' ') /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib/x86_64-linux-gnu /usr/lib64 /usr/lib /usr/lib/wsl/lib /usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib /run/opengl-driver/lib; do
		[ -e "$dir/$1" ] && echo "$dir" && return
	done
	found=$(find / \( -path /proc -o -path /sys -o -path "$here" \) -prune -o -name "$1" -print 2>/dev/null | head -1)
	[ -n "$found" ] && dirname "$found"
}
if cuda=$(library libcuda.so.1); then
	[ -z "$cuda" ] || export YUNHE_GPU_LIBRARIES="$cuda"
else
	echo "run: there is no libcuda.so.1 here: no driver of NVIDIA's"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if opencl=$(library libnvidia-opencl.so.1); then
	mkdir "$work/vendors"
	echo "${opencl:+$opencl/}libnvidia-opencl.so.1" >"$work/vendors/nvidia.icd"
	export OCL_ICD_VENDORS="$work/vendors/"
	loader=$(library libOpenCL.so.1) || loader=$here/loader
	[ -z "$loader" ] || export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$loader"
	echo "run: OpenCL by $(cat "$work/vendors/nvidia.icd"), loader ${loader:-of the system}"
else
	export OCL_ICD_VENDORS="$work/" # no other driver is taken for the card's
	echo "run: there is no libnvidia-opencl.so.1 here: what needs OpenCL is skipped"
fi
nvidia-smi 2>&1 | head -20
results=${OUT:-$here}/results.txt
: >>"$results" 2>/dev/null || results=/tmp/yunhe-gpu-results.txt
cd "$here" || exit 1
{
	./gpu.test -test.v -test.timeout 60m ${1:+-test.run "$1"} 2>&1
	echo "exit status $?"
} | tee -a "$results"
dmesg 2>/dev/null | grep -i 'landlock\|nvrm\|xid' | tail -20 # what the kernel kept workers from, and what the card told
echo
grep -h '^--- ' "$results" | sort | uniq -c
[ "$(tail -1 "$results")" = 'exit status 0' ]
