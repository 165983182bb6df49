#!/bin/sh
# run.sh - what `make run` shows: three centers on this machine, the first job
# from submission to cost, then the console until Ctrl-C.
set -eu
cd "$(dirname "$0")/.."
data=${YUNHE_DATA:-$PWD/data}
listen=${YUNHE_LISTEN:-127.0.0.1:8180}
yunhe=bin/yunhe
mkdir -p -m 700 "$data" # it will have keys
echo "==> starting the platform with three centers (log: $data/up.log)"
$yunhe up --data "$data" --listen "$listen" --centers examples/centers.yaml >"$data/up.log" 2>&1 &
pid=$!
trap 'kill $pid 2>/dev/null || true; wait $pid 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM
export YUNHE_SERVER="http://$listen" YUNHE_DATA="$data"
n=0
until curl -fs "$YUNHE_SERVER/readyz" >/dev/null 2>&1; do
	n=$((n + 1))
	if [ $n -gt 150 ] || ! kill -0 $pid 2>/dev/null; then
		echo "the platform did not start:" >&2
		tail -n 20 "$data/up.log" >&2
		exit 1
	fi
	sleep 0.1
done
n=0
until [ "$($yunhe center list -o json | grep -c '"CENTER_STATUS_AVAILABLE"')" -ge 3 ]; do
	n=$((n + 1))
	if [ $n -gt 150 ]; then
		echo "the centers did not join:" >&2
		tail -n 20 "$data/up.log" >&2
		exit 1
	fi
	sleep 0.1
done
$yunhe center list
echo
echo "==> submitting the first job: examples/digits/job.json"
id=$($yunhe job submit -f examples/digits/job.json -o name)
$yunhe job wait "$id" || true
echo
echo "==> why each replica went where it went"
$yunhe job explain "$id"
echo
echo "==> what it learned"
for t in 0 1; do
	for r in 0 1; do
		$yunhe job logs "$id" --task $t --replica $r 2>/dev/null | grep 'test accuracy' | sed "s/^/task $t replica $r: /" || true
	done
done
echo
echo "==> what it used and cost"
$yunhe job cost "$id"
echo
echo "The console: $YUNHE_SERVER/#key=$(cat "$data/admin.key")"
echo "Ctrl-C stops the platform; its data stays in $data."
wait $pid
