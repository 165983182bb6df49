#!/bin/sh
# console.sh [test|check] - build the web console into web/dist, or run its tests, or its lint only.
# It installs its packages when package-lock.json changed and builds when its
# sources changed (npm install, not ci: a mirror without the packages of other
# systems makes a lock that ci refuses); without npm it says so and leaves the binary without one.
set -eu
cd "$(dirname "$0")/../web"
if ! command -v npm >/dev/null 2>&1; then
	echo "console: npm is not installed; the binary is built without its console"
	exit 0
fi
if ! cmp -s package-lock.json node_modules/.lock 2>/dev/null; then
	echo "console: installing packages"
	npm install --no-save --no-audit --no-fund --silent
	cp package-lock.json node_modules/.lock
fi
case "${1:-build}" in
check)
	npm run --silent check
	exit 0
	;;
test)
	npm test --silent
	exit 0
	;;
esac
sum=$(find src index.html vite.config.ts tsconfig.json package-lock.json public -type f 2>/dev/null | LC_ALL=C sort | xargs sha256sum | sha256sum)
if [ -f dist/index.html ] && [ "$(cat node_modules/.built 2>/dev/null)" = "$sum" ]; then
	exit 0
fi
echo "console: building"
npm run --silent build
touch dist/.keep
echo "$sum" >node_modules/.built
