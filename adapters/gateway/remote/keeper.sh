#!/bin/sh
# Written by "yunhe center join": keeps the gateway of a folder running where
# there is no systemd. What the gateway runs goes on when this ends.
dir=$1
cd "$dir" || exit 1
umask 077
child=
stop() {
	trap '' TERM INT HUP
	[ -n "$child" ] && kill -TERM "$child" 2>/dev/null && wait "$child"
	rm -f keeper.pid
	exit 0
}
trap stop TERM INT
trap '' HUP
echo $$ >keeper.pid
pause=1
while :; do
	if [ -e gateway.log ] && [ "$(wc -c <gateway.log)" -gt 10485760 ]; then
		mv -f gateway.log gateway.log.1
	fi
	began=$(date +%s)
	./start.sh </dev/null >>gateway.log 2>&1 &
	child=$!
	wait "$child"
	echo "keeper: the gateway ended with status $?; it is started again in ${pause} s" >>gateway.log
	sleep "$pause" &
	child=$!
	wait "$child"
	pause=$((pause * 2))
	if [ $(($(date +%s) - began)) -gt 60 ]; then pause=1; fi
	if [ "$pause" -gt 30 ]; then pause=30; fi
done
