#!/bin/sh
# gotest.sh PACKAGES -- [go test flags] - go test, a test that fails is run
# again once, alone, and named at the end: decision 17.
#
# A data race, or more than a few failures, end it without a second try.
set -eu
cd "$(dirname "$0")/.."
packages=$1
shift
mkdir -p .cache/tools
(cd tools && go build -o ../.cache/tools/ gotest.tools/gotestsum)
again=$(mktemp)
trap 'rm -f "$again"' EXIT
rc=0
.cache/tools/gotestsum --format standard-quiet --hide-summary skipped \
	--rerun-fails=1 --rerun-fails-max-failures=6 --rerun-fails-abort-on-data-race \
	--rerun-fails-run-root-test --rerun-fails-report "$again" \
	--packages "$packages" "$@" || rc=$?
if [ "$rc" = 0 ] && [ -s "$again" ]; then
	echo "test: these failed once and passed alone; each is a defect of the test or of the product:" >&2
	sed 's/^/  /' "$again" >&2
fi
exit $rc
