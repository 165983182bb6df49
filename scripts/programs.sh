#!/bin/sh
# programs.sh - build the programs of the benchmark for each architecture,
# packed: a job carries at most 1 MiB to a Kubernetes center.
set -eu
cd "$(dirname "$0")/.."
to=internal/measurement/programs
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for arch in amd64 arm64; do
	for program in yunhe-bench yunhe-bench-devices; do
		CGO_ENABLED=0 GOOS=linux GOARCH=$arch ${GO:-go} build -trimpath -ldflags '-s -w' -o "$tmp/program" "./cmd/$program"
		gzip -9nc "$tmp/program" >"$tmp/packed"
		size=$(wc -c <"$tmp/packed")
		if [ "$size" -gt 1040000 ]; then
			echo "programs: $program for $arch is $size bytes packed: too large for a job at a Kubernetes center" >&2
			exit 1
		fi
		mv "$tmp/packed" "$to/$program-$arch.gz"
	done
done
