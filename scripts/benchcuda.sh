#!/bin/sh
# benchcuda.sh - how exact shares of a card are that CUDA shows, over ten seconds,
# and what calls cost on the node's machine and by a worker, on a stand-in of the
# driver: kernels take the time they are given, and nothing here says how a card
# behaves. With GPU, which says what it is, it is on that card (scripts/testgpu.sh),
# and PROGRAMS has what is built here else.
set -eu
[ -n "${GPU:-}" ] || cd "$(dirname "$0")/.."
work=$(mktemp -d)
node=
trap '[ -z "$node" ] || kill "$node" 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cc=${CC:-gcc}
if [ -n "${GPU:-}" ]; then
	echo "on $GPU"
	cp "$PROGRAMS/cuda" "$work/program"
else
	echo "on a STAND-IN of the driver, no GPU"
	LIBRARIES=$work
	"$cc" -std=gnu11 -O1 -Wall -Wextra -Werror -Wno-unused-function -fPIC -shared -pthread -Wl,-Bsymbolic -o "$work/libcuda.so.1" internal/pool/cards/testdata/fakecuda.c
	"$cc" -std=gnu11 -O2 -Wall -Wextra -Werror -o "$work/program" shim/test/cuda.c -L"$work" -l:libcuda.so.1 -ldl -pthread
	"$cc" -std=gnu11 -O2 -Wall -Wextra -Werror -o "$work/remote" shim/test/cudaremote.c -L"$work" -l:libcuda.so.1 -ldl -pthread
	export LD_LIBRARY_PATH="$work"
fi
yunhe=${YUNHE:-bin/yunhe}
export YUNHE_POOL_NODE="unix:$work/sock"
"$yunhe" pool node --data "$work/node" --listen "$YUNHE_POOL_NODE" ${LIBRARIES:+--libraries "$LIBRARIES"} 2>"$work/log" &
node=$!
i=0
until grep -qs 'pool node listens' "$work/log"; do
	i=$((i + 1))
	if [ $i -gt 100 ] || ! kill -0 $node 2>/dev/null; then
		cat "$work/log" >&2
		exit 1
	fi
	sleep 0.1
done
# tasks - the ID of each, its percent, and device time in nanoseconds
tasks() { "$yunhe" pool tasks -o json | awk '/"id":/ { gsub(/[",]/, "", $2); id = $2 } /"compute":/ { gsub(/[^0-9]/, "", $2); c = $2 } /"device_time_ns":/ { gsub(/[^0-9]/, "", $2); print id, c, $2 }' | sort; }
printf '%-24s %9s\n' 'SHARE' 'HAS'
for kernel in ${KERNELS:-100 1000 20000}; do
	for pair in '1 50' '10 90' '30 70' '50 50'; do
		running=
		for share in $pair; do
			"$yunhe" pool run --device cuda-0 --compute "$share" --memory 10MiB -- "$work/program" proc spin $kernel 16 >/dev/null &
			running="$running $!"
		done
		sleep 2
		tasks >"$work/before"; began=$(date +%s%N)
		sleep 10
		tasks >"$work/after"; ended=$(date +%s%N)
		for p in $running; do wait "$p"; done
		join "$work/before" "$work/after" | sort -n -k 2 |
			awk -v ns=$((ended - began)) -v of="$pair" -v k=$kernel '{ printf "%-24s %8.2f%%\n", $2 "% of " of ", " k " us", 100 * ($5 - $3) / ns }'
	done
done
printf '\n%-24s %9s %9s\n' 'CALL, us' NATIVE SLICE
"$work/program" proc costs >"$work/native"
"$yunhe" pool run --device cuda-0 --memory 10MiB -- "$work/program" proc costs >"$work/slice"
paste -d ' ' "$work/native" "$work/slice" | awk '{ printf "%-24s %9.3f %9.3f\n", $1, $2, $4 }'
printf '\n%-24s %9s %9s\n' 'CALL, us; COPY, GB/s' NATIVE WORKER
if [ -n "${GPU:-}" ]; then set -- "$work/program" proc costs; else set -- "$work/remote" costs; fi
"$@" >"$work/native"
"$yunhe" pool run --device cuda-0 --memory 128MiB --remote -- "$@" >"$work/slice"
paste -d ' ' "$work/native" "$work/slice" | awk '{ printf "%-24s %9.3f %9.3f\n", $1, $2, $4 }'
