#!/bin/sh
# gen.sh - generate gen/ and web/src/gen from api/, and the accelerator pool's
# calls from shim/opencl.table, shim/cuda.table and shim/loader.table.
set -eu
cd "$(dirname "$0")/.."
if [ ! -x web/node_modules/.bin/buf ]; then
	(cd web && npm install --no-save --no-audit --no-fund --silent && cp package-lock.json node_modules/.lock)
fi
mkdir -p .cache/tools
for tool in google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/cmd/protoc-gen-connect-go \
	github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-openapiv3; do
	(cd tools && go build -o ../.cache/tools/ "$tool")
done
(cd tools && go run ./protoexport ../.cache/proto)
go run ./shim/gen # both sides of the accelerator pool's calls
web/node_modules/.bin/buf lint
# Beside, and then only what is new: whoever builds meanwhile finds every file.
rm -rf .cache/gen
web/node_modules/.bin/buf generate -o .cache/gen
(cd .cache/gen && find . -type f) | while read -r file; do
	if ! cmp -s ".cache/gen/$file" "$file"; then
		mkdir -p "$(dirname "$file")"
		cp ".cache/gen/$file" "$file.new"
		mv "$file.new" "$file"
	fi
done
find gen/yunhe gen/openapi/yunhe web/src/gen -type f | while read -r file; do
	[ -e ".cache/gen/$file" ] || rm "$file"
done
find gen/yunhe gen/openapi/yunhe web/src/gen -type d -empty -delete
rm -rf .cache/gen
