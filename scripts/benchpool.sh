#!/bin/sh
# benchpool.sh - the same program natively, on this machine's pool and over TCP:
# what a call, a launch, a transfer and a computation cost, and their ratio.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
node=
cleanup() {
	if [ -n "$node" ]; then kill "$node" 2>/dev/null || true; fi
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM
${CC:-gcc} -std=gnu11 -O2 -Wall -Wextra -Werror -o "$work/program" shim/test/pool.c -l:libOpenCL.so.1 -pthread
printf 'groups:\n  - {name: bench, key: %s}\n' "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" >"$work/groups.yaml"
sed -n 's/.*key: \(.*\)}/\1/p' "$work/groups.yaml" >"$work/key"
bin/yunhe pool node --data "$work" --listen "unix:$work/s" --listen tcp:127.0.0.1:0 --groups "$work/groups.yaml" 2>"$work/log" &
node=$!
i=0
until grep -q 'pool node listens' "$work/log"; do
	i=$((i + 1))
	if [ $i -gt 100 ] || ! kill -0 $node 2>/dev/null; then
		cat "$work/log" >&2
		exit 1
	fi
	sleep 0.1
done
tcp=$(grep -o 'tcp:127.0.0.1:[0-9]*' "$work/log")
"$work/program" bench >"$work/native"
bin/yunhe pool run --node "unix:$work/s" --group bench --key-file "$work/key" --memory 1024MiB -- "$work/program" bench >"$work/local"
bin/yunhe pool run --node "$tcp" --group bench --key-file "$work/key" --memory 1024MiB -- "$work/program" bench >"$work/remote"
printf '%-18s %10s %10s %10s %12s %12s\n' WHAT NATIVE LOCAL TCP LOCAL/NATIVE TCP/NATIVE
paste -d ' ' "$work/native" "$work/local" "$work/remote" |
	awk '{ printf "%-18s %10.3f %10.3f %10.3f %12.2f %12.2f\n", $1, $2, $4, $6, $4 / $2, $6 / $2 }'
