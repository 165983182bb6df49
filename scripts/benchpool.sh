#!/bin/sh
# benchpool.sh - the same program natively, on this machine's pool over a ring and
# over the Unix socket, over TCP and over TLS: what a call, a launch, a transfer and a
# computation cost, and their ratio, and a call that waits beside what the bare ring
# and the bare socket take; how exact shares of a card are
# over ten seconds, what is lost where programs take turns, and where memory ends;
# then how long a program with 64 MiB stands still when it is moved between two
# nodes, what memory takes from one node to another of a program's, and what two
# programs do that have 200 MiB each of a card with 256 MiB.
# With GPU, which says what it is, it is on that card (scripts/testgpu.sh), and PROGRAMS
# has the program that is built here else.
set -eu
umask 077 # keys
[ -n "${GPU:-}" ] || cd "$(dirname "$0")/.."
yunhe=${YUNHE:-bin/yunhe}
work=$(mktemp -d)
nodes= machines= inside= address=
cleanup() {
	for node in $nodes; do kill "$node" 2>/dev/null || true; done
	for machine in $machines; do ip netns delete "$machine" || true; done
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM
if [ -n "${GPU:-}" ]; then
	echo "on $GPU"
	cp "$PROGRAMS/pool" "$work/program"
else
	${CC:-gcc} -std=gnu11 -O2 -Wall -Wextra -Werror -o "$work/program" shim/test/pool.c -l:libOpenCL.so.1 -pthread
fi
printf 'groups:\n  - {name: bench, key: %s}\n' "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" >"$work/groups.yaml"
sed -n 's/.*key: \(.*\)}/\1/p' "$work/groups.yaml" >"$work/key"
# node NAME [FLAG...] - start a node
node() {
	name=$1
	shift
	${inside:+ip netns exec "$inside"} "$yunhe" pool node --data "$work/$name" --listen "unix:$work/$name.sock" --listen "tcp:${address:-127.0.0.1}:0" --groups "$work/groups.yaml" "$@" 2>"$work/$name.log" &
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
node e --encryption
tcp=$(grep -o 'tcp:127.0.0.1:[0-9]*' "$work/a.log")
tls=$(grep -o 'tls:127.0.0.1:[0-9]*' "$work/e.log")
other=$(grep -o 'tcp:127.0.0.1:[0-9]*' "$work/b.log")
# measure NAME NODE PEER... - the program's times at a node, and those of peers beside it
measure() {
	into=$1 at=$2
	shift 2
	YUNHE_POOL_TRANSPORT=${into%remote} "$yunhe" pool run --node "$at" --group bench --key-file "$work/key" --memory 1024MiB -- "$work/program" bench "$@" >"$work/$into.all"
	grep -v ^bare_ "$work/$into.all" >"$work/$into"
	sed -n 's/^bare_//p' "$work/$into.all" >>"$work/turns"
}
"$work/program" bench >"$work/native"
measure ring "unix:$work/a.sock" ring asleep
measure socket "unix:$work/a.sock" unix
measure remote "$tcp" tcp
measure tls "$tls"
printf '%-18s %10s %10s %10s %10s %10s %12s %12s %12s %12s\n' WHAT NATIVE RING SOCKET TCP TLS RING/NATIVE SOCKET/NAT. TCP/NATIVE TLS/TCP
paste -d ' ' "$work/native" "$work/ring" "$work/socket" "$work/remote" "$work/tls" |
	awk '{ printf "%-18s %10.3f %10.3f %10.3f %10.3f %10.3f %12.2f %12.2f %12.2f %12.2f\n", $1, $2, $4, $6, $8, $10, $4 / $2, $6 / $2, $8 / $2, $10 / $8 }'

# judge NAME VALUE GOAL - a line of what has a goal: VALUE is at most GOAL, or at
# least where it begins with a minus
judge() { awk -v n="$1" -v v="$2" -v g="$3" 'BEGIN { printf "%-46s %9.3f %s %7.3f  %s\n", n, v, g < 0 ? ">=" : "<=", g < 0 ? -g : g, (g < 0 ? v >= -g : v <= g) ? "yes" : "NO" }'; }
# of FILE NAME - a figure; over FILE NAME FILE NAME - the first divided by the second
of() { awk -v n="$2" '$1 == n { print $2 }' "$work/$1"; }
over() { echo "$(of "$1" "$2") $(of "$3" "$4")" | awk '{ print $1 / $2 }'; }
printf '\n%-46s %9s    %7s  MET\n' 'WHAT' VALUE GOAL
judge 'computation, speed of native, TCP' "$(over native compute_s remote compute_s)" -0.97
judge 'a launch in a stream, us above native, TCP' "$(echo "$(of remote launch_us) $(of native launch_us)" | awk '{ print $1 - $2 }')" 1
for local in ring socket; do
	judge "computation, speed of native, $local" "$(over native compute_s $local compute_s)" -0.98
	for what in write_64m_gbs read_64m_gbs write_1m_gbs read_1m_gbs; do judge "$what, ratio to native, $local" "$(over $local $what native $what)" -0.9; done
	judge "a launch in a stream, us above native, $local" "$(echo "$(of $local launch_us) $(of native launch_us)" | awk '{ print $1 - $2 }')" 1
done
judge 'a call that waits, ring : Unix socket' "$(over ring ask_us socket ask_us)" 1
judge 'a call that waits : the ring there and back' "$(over ring ask_us turns ring_us)" 1.3
judge 'a call that waits : the ring, where both sleep' "$(over ring ask_us turns asleep_us)" 1.3
judge 'a call that waits : the Unix socket there and back' "$(over socket ask_us turns unix_us)" 1.3
judge 'a call that waits : TCP there and back' "$(over remote ask_us turns tcp_us)" 1.3

# together SECONDS FLAGS... - programs that keep the card busy at once, one for each
# argument; prints percent of the card for each, and kernels for each, into files
tasks() { "$yunhe" pool tasks --node "unix:$work/a.sock" --group bench --key-file "$work/key" -o json |
	awk '/"compute":/ { gsub(/[^0-9]/, "", $2); c = $2 } /"device_time_ns":/ { gsub(/[^0-9]/, "", $2); print c, $2 }' | sort -n; }
together() {
	spinning=
	rm -f "$work"/spin.*
	for flags; do
		"$yunhe" pool run --node "unix:$work/a.sock" --group bench --key-file "$work/key" --memory 10MiB $flags -- "$work/program" spin 16 5000 >"$work/spin.$(echo "$flags" | tr -dc a-z0-9)" &
		spinning="$spinning $!"
	done
	until [ "$(cat "$work"/spin.* 2>/dev/null | grep -c spinning)" -eq $# ]; do
		for p in $spinning; do kill -0 "$p" || exit 1; done
		sleep 0.1
	done
	sleep 2
	tasks >"$work/before"; began=$(date +%s%N)
	sleep 10
	tasks >"$work/after"; ended=$(date +%s%N)
	for p in $spinning; do wait "$p"; done
	paste -d ' ' "$work/before" "$work/after" | awk -v ns=$((ended - began)) '{ printf "%d %.2f\n", $1, 100 * ($4 - $2) / ns }' >"$work/shares"
}
for pair in '1 50' '2 3' '10 90' '30 70'; do
	together "--compute ${pair% *}" "--compute ${pair#* }"
	while read -r share had; do
		judge "share of $share beside the other of $pair, points off" "$(echo "$share $had" | awk '{ d = $1 - $2; print d < 0 ? -d : d }')" "$([ "$share" -gt 50 ] && echo 2 || echo 1)"
	done <"$work/shares"
done
together "--compute 50" "--compute 49"
judge 'lost of the card at 50 and 49, percent' "$(awk '{ lost -= $2 } END { print 99 + lost }' "$work/shares")" 2
for fit in 1 37 1234; do
	got=$("$yunhe" pool run --node "unix:$work/a.sock" --group bench --key-file "$work/key" --memory ${fit}MiB -- "$work/program" fill 2000)
	judge "buffers of 1 MiB in $fit MiB, one too many refused" "$(echo "$got" | awk -v fit=$fit '{ print $2 == fit && $4 == -4 ? 0 : 1 }')" 0
done

mkfifo "$work/end"
"$yunhe" pool run --node "$tcp" --group bench --key-file "$work/key" --memory 1024MiB -- "$work/program" walk 64 <"$work/end" >"$work/walk" &
walk=$!
exec 3>"$work/end"
until grep -q walking "$work/walk"; do sleep 0.1; done
sleep 1
task=$("$yunhe" pool tasks --node "$tcp" --group bench --key-file "$work/key" -o name)
for i in 1 2 3 4 5; do
	for way in "$tcp $other" "$other $tcp"; do
		"$yunhe" pool migrate --node "${way% *}" --to "${way#* }" --group bench --key-file "$work/key" "$task" 2>&1 >/dev/null | sed -n 's/.*stood still for //p'
		sleep 0.5
	done
done >"$work/pauses"
echo >&3
exec 3>&-
wait "$walk"
printf '\nmoved %s times, with 64 MiB; stood still for: %s\n' "$(wc -l <"$work/pauses")" "$(tr '\n' ' ' <"$work/pauses")"
grep walked "$work/walk"
judge 'longest pause of a move, ms' "$(tr ' ' '\n' <"$work/pauses" | sed 's/ms$//' | sort -n | tail -1)" "$(awk '$1 == "write_64m_gbs" { print 150 + 67.1 / $2 * 1.3 }' "$work/remote")"

# Memory from one node to another, both behind links of 1 Gbit/s each way: it takes no longer than such a link does, also
# where the program's is ten times slower; where it goes through the program, no longer than the slower of both ways.
if [ -n "${GPU:-}" ]; then
	:
elif machines="yunhe-bench-$$" && ip netns add "$machines" 2>/dev/null; then
	router=$machines cards= n=0
	ip netns exec "$router" sysctl -qw net.ipv4.ip_forward=1
	# link NAME RATE - have a machine behind a link to the others, and each way of it be so fast
	link() {
		n=$((n + 1)) inside="$router-$1" address="10.81.$n.2"
		ip netns add "$inside"
		machines="$machines $inside"
		ip -n "$router" link add "$1" type veth peer name router netns "$inside"
		ip -n "$router" address add "10.81.$n.1/24" dev "$1"
		ip -n "$inside" address add "$address/24" dev router
		for end in "$router $1" "$inside router"; do
			ip -n "${end% *}" link set "${end#* }" up
			ip netns exec "${end% *}" tc qdisc add dev "${end#* }" root tbf rate "$2" burst 256kb latency 20ms
		done
		ip -n "$inside" route add default via "10.81.$n.1"
	}
	for name in linked1 linked2; do
		link "$name" 1gbit
		node "$name"
		cards="$cards $(grep -o "tcp:$address:[0-9]*" "$work/$name.log")"
	done
	# Each "pool run" says in the environment which slice it has: the second has the first one's, too.
	cat >"$work/both" <<-'END'
		first="YUNHE_POOL_ADDRESS=$YUNHE_POOL_ADDRESS YUNHE_POOL_TASK=$YUNHE_POOL_TASK YUNHE_POOL_TOKEN=$YUNHE_POOL_TOKEN"
		second='YUNHE_POOL_ADDRESS_2=$YUNHE_POOL_ADDRESS YUNHE_POOL_TASK_2=$YUNHE_POOL_TASK YUNHE_POOL_TOKEN_2=$YUNHE_POOL_TOKEN'
		"$1" pool run --node "$2" --group bench --key-file "$3/key" --memory 512MiB -- sh -c "exec env $second $first $3/program between 64"
	END
	# between RATE TRANSPORT - what memory takes, by a program behind a link of its own
	between() {
		link "by$1" "$1"
		YUNHE_POOL_TRANSPORT=$2 ip netns exec "$inside" "$yunhe" pool run --node "$(echo $cards | cut -d ' ' -f 1)" --group bench --key-file "$work/key" --memory 512MiB -- \
			sh "$work/both" "$yunhe" "$(echo $cards | cut -d ' ' -f 2)" "$work" >"$work/between"
		printf '\n64 MiB between nodes with links of 1 Gbit/s%s, the program with one of %s, s: ' "${2:+, through the program}" "$1"
		tr '\n' ' ' <"$work/between"
		echo
	}
	between 1gbit socket
	judge 'through the program : the slower of both ways' "$(awk '{ v[$1] = $2 } END { print v["between_s"] / (v["read_s"] > v["write_s"] ? v["read_s"] : v["write_s"]) }' "$work/between")" 1.3
	between 100mbit ''
	judge 'from node to node : 64 MiB at 1 Gbit/s' "$(awk '$1 == "between_s" { print $2 / (64 * 2 ^ 20 * 8 / 1e9) }' "$work/between")" 1.3
	inside= address=
else
	machines=
	printf '\nmemory from node to node was not measured: that needs network namespaces (root)\n'
fi

node c --memory 256MiB --memory-overcommit 200
card="--node unix:$work/c.sock --group bench --key-file $work/key"
# big NAME - start a program with 200 MiB that checks its steps for 20 s
big() {
	(sleep 20; echo) | "$yunhe" pool run $card --weighted --compute 50 --memory 210MiB -- "$work/program" walk 200 >"$work/$1" &
}
big alone
wait $!
big one
first=$!
big two
second=$!
sleep 18
"$yunhe" pool tasks $card -o json | sed -n 's/.*"memory_swaps": *\([0-9]*\).*/swaps of one of the two: \1/p' | head -1
wait "$first" "$second"
printf '\n200 MiB alone:    %s\nand beside another: %s\n                    %s\n' "$(tail -1 "$work/alone")" "$(tail -1 "$work/one")" "$(tail -1 "$work/two")"
