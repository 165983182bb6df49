#!/bin/sh
# e2e.sh - tests of whole processes: faults on a small scale, and the console
# in a real browser against a platform started for it.
set -eu
cd "$(dirname "$0")/.."
scripts/gotest.sh ./e2e/... -- -vet=off -count=1 -timeout 20m
if ! command -v npm >/dev/null 2>&1; then
	echo "e2e: npm is not installed; the browser test is left out"
	exit 0
fi
data=$(mktemp -d)
bin/yunhe up --data "$data" --listen 127.0.0.1:0 --centers examples/centers.yaml >"$data/up.log" 2>&1 &
pid=$!
trap 'kill $pid 2>/dev/null || true; wait $pid 2>/dev/null || true; rm -rf "$data"' EXIT
n=0
until url=$(sed -n 's/^Console and API: //p' "$data/up.log") && [ -n "$url" ] && curl -fs "$url/readyz" >/dev/null; do
	n=$((n + 1))
	if [ $n -gt 150 ]; then
		cat "$data/up.log" >&2
		exit 1
	fi
	sleep 0.2
done
YUNHE_URL=$url YUNHE_KEY=$(cat "$data/admin.key")
export YUNHE_URL YUNHE_KEY
again=
for f in web/e2e/*.test.mjs; do
	node --test "$f" || again="$again $f"
done
if [ -n "$again" ]; then
	echo "e2e: once more, and no other time:$again" >&2
	# shellcheck disable=SC2086 # a list of files without spaces
	node --test $again
fi
