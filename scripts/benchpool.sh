#!/bin/sh
# benchpool.sh - the same program natively, on this machine's pool and over TCP:
# what a call, a launch, a transfer and a computation cost, and their ratio; then
# how long a program with 64 MiB stands still when it is moved between two nodes,
# and what two programs do that have 200 MiB each of a card with 256 MiB.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
nodes=
cleanup() {
	for node in $nodes; do kill "$node" 2>/dev/null || true; done
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM
${CC:-gcc} -std=gnu11 -O2 -Wall -Wextra -Werror -o "$work/program" shim/test/pool.c -l:libOpenCL.so.1 -pthread
printf 'groups:\n  - {name: bench, key: %s}\n' "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" >"$work/groups.yaml"
sed -n 's/.*key: \(.*\)}/\1/p' "$work/groups.yaml" >"$work/key"
# node NAME [FLAG...] - start a node
node() {
	name=$1
	shift
	bin/yunhe pool node --data "$work/$name" --listen "unix:$work/$name.sock" --listen tcp:127.0.0.1:0 --groups "$work/groups.yaml" "$@" 2>"$work/$name.log" &
	nodes="$nodes $!"
	i=0
	until grep -qs 'pool node listens' "$work/$name.log"; do
		i=$((i + 1))
		if [ $i -gt 100 ] || ! kill -0 $! 2>/dev/null; then
			cat "$work/$name.log" >&2
			exit 1
		fi
		sleep 0.1
	done
}
node a
node b
tcp=$(grep -o 'tcp:127.0.0.1:[0-9]*' "$work/a.log")
other=$(grep -o 'tcp:127.0.0.1:[0-9]*' "$work/b.log")
"$work/program" bench >"$work/native"
bin/yunhe pool run --node "unix:$work/a.sock" --group bench --key-file "$work/key" --memory 1024MiB -- "$work/program" bench >"$work/local"
bin/yunhe pool run --node "$tcp" --group bench --key-file "$work/key" --memory 1024MiB -- "$work/program" bench >"$work/remote"
printf '%-18s %10s %10s %10s %12s %12s\n' WHAT NATIVE LOCAL TCP LOCAL/NATIVE TCP/NATIVE
paste -d ' ' "$work/native" "$work/local" "$work/remote" |
	awk '{ printf "%-18s %10.3f %10.3f %10.3f %12.2f %12.2f\n", $1, $2, $4, $6, $4 / $2, $6 / $2 }'

mkfifo "$work/end"
bin/yunhe pool run --node "$tcp" --group bench --key-file "$work/key" --memory 1024MiB -- "$work/program" walk 64 <"$work/end" >"$work/walk" &
walk=$!
exec 3>"$work/end"
until grep -q walking "$work/walk"; do sleep 0.1; done
sleep 1
task=$(bin/yunhe pool tasks --node "$tcp" --group bench --key-file "$work/key" -o name)
for i in 1 2 3 4 5; do
	for way in "$tcp $other" "$other $tcp"; do
		bin/yunhe pool migrate --node "${way% *}" --to "${way#* }" --group bench --key-file "$work/key" "$task" 2>&1 >/dev/null | sed -n 's/.*stood still for //p'
		sleep 0.5
	done
done >"$work/pauses"
echo >&3
exec 3>&-
wait "$walk"
printf '\nmoved %s times, with 64 MiB; stood still for: %s\n' "$(wc -l <"$work/pauses")" "$(tr '\n' ' ' <"$work/pauses")"
grep walked "$work/walk"
awk '$1 == "write_64m_gbs" { printf "goal: at most 150 ms + %.0f ms (64 MiB at the link, times 1.3)\n", 67.1 / $2 * 1.3 }' "$work/remote"

node c --memory 256MiB --memory-overcommit 200
card="--node unix:$work/c.sock --group bench --key-file $work/key"
# big NAME - start a program with 200 MiB that checks its steps for 20 s
big() {
	(sleep 20; echo) | bin/yunhe pool run $card --weighted --compute 50 --memory 210MiB -- "$work/program" walk 200 >"$work/$1" &
}
big alone
wait $!
big one
first=$!
big two
second=$!
sleep 18
bin/yunhe pool tasks $card -o json | sed -n 's/.*"memory_swaps": *\([0-9]*\).*/swaps of one of the two: \1/p' | head -1
wait "$first" "$second"
printf '\n200 MiB alone:    %s\nand beside another: %s\n                    %s\n' "$(tail -1 "$work/alone")" "$(tail -1 "$work/one")" "$(tail -1 "$work/two")"
