#!/bin/sh
# check.sh - what CI checks beside the tests: staticcheck, generated files in
# step with api/, and the console's lint.
set -eu
cd "$(dirname "$0")/.."
mkdir -p .cache/tools
(cd tools && go build -o ../.cache/tools/ honnef.co/go/tools/cmd/staticcheck)
.cache/tools/staticcheck ./...
made() { find gen web/src/gen shim/src shim/remote shim/loader internal/pool/wire -type f | LC_ALL=C sort | xargs sha256sum; }
before=$(made)
scripts/gen.sh
after=$(made)
if [ "$before" != "$after" ]; then
	echo "check: generated files were not in step with api/; commit what make gen wrote" >&2
	exit 1
fi
scripts/console.sh check
echo "check: clean"
