package slurm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// The script that a job is. It is the half of this driver that runs at the
// cluster: it keeps "at most once" there, and it keeps what slurmctld forgets.
//
// In ROOT/ATTEMPT, a folder of the file system that the nodes share:
//
//	.started   a symbolic link to "yunhe:JOB:RESTARTS:SECONDS", made before anything
//	           runs. Making a link is atomic, also over NFS, and fails if there
//	           is one: whoever made it runs, every other job of the attempt
//	           ends with signalTwice. A link, not a folder, because a link can be
//	           read: an NFS server that repeats an answer ("exists") after
//	           having made it does not keep the first job from running.
//	files/     the attempt's files, where the command runs
//	log        its output, only ever appended to
//	.passes    what its shares of the accelerator pool are had by, until it has them
//	.shares/   what its command finds them by, and what there was to say of them
//	.suspended there while the command stands still because it was asked to
//	exit       "CODE WHY SECONDS LOGBYTES", moved there whole, last
//
// ROOT/.forgotten/ATTEMPT remains of an attempt that was forgotten.
//
// What the job's status cannot say by exit code it says by signals that nothing
// else uses; a command that ends by one of these is reported by its code
// (128 + n) instead.
const (
	signalTwice   = 64 // this attempt has run, or was forgotten: nothing was done
	signalNoStart = 63 // the folder, the files or the setup failed
	signalStopped = 62 // ended after SIGTERM
	signalLimit   = 61 // ended at the attempt's time limit
)

// What the driver asks of a running script, by signals that reach it and not
// its command: to let the command stand still, and to let it go on.
const (
	signalHold = 50
	signalGo   = 51
)

// plan is what script needs to know of an attempt.
type plan struct {
	root    string // ROOT at the cluster
	attempt *adapterv1.Attempt
	image   Image
	setup   []string // lines of bash before the command: the partition's and the image's
	again   bool     // Slurm may start the job again
	program string   // yunhe at the cluster, for shares of the accelerator pool
	sockets []string // of the pool nodes that these are of, where they are on its machine
}

// maxScript is how long a script may be: slurmctld takes 4 MiB unless its
// max_script_size says otherwise.
const maxScript = 4<<20 - 64<<10

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// script returns the batch script of a plan. An error is for good.
func (p plan) script() (string, error) {
	files, err := pack(p.attempt.Files)
	if err != nil {
		return "", err
	}
	take, find, err := p.takeShares()
	if err != nil {
		return "", err
	}
	var s strings.Builder
	if p.attempt.Command == "" {
		return "", errors.New("command is empty")
	}
	fmt.Fprintf(&s, "#!/bin/bash\n# Made by Yunhe for attempt %s; see docs/howto/slurm.md.\n", p.attempt.AttemptId)
	fmt.Fprintf(&s, "root=%s\nattempt=%s\ngrace=%d\nlimit=%d\nagain=%t\n", quote(p.root), quote(p.attempt.AttemptId),
		max(p.attempt.StopGraceSeconds, 0), max(p.attempt.TimeoutSeconds, 0), p.again)
	s.WriteString(before)
	if files != "" {
		fmt.Fprintf(&s, "base64 -d <<'YUNHE_FILES' | (umask \"$mask\" && tar -xzf - -C \"$dir/files\") || end_by %d\n%sYUNHE_FILES\n[ \"${PIPESTATUS[0]}\" = 0 ] || end_by %[1]d\n", signalNoStart, files)
	}
	s.WriteString(take)
	s.WriteString("run() {\n\tcd \"$dir/files\" || exit 1\n")
	for _, k := range slices.Sorted(maps.Keys(p.attempt.Env)) {
		if !envName.MatchString(k) {
			return "", fmt.Errorf("env has the name %q, which a shell cannot set: want letters, digits and _", clip(k, 60))
		}
		if strings.ContainsRune(p.attempt.Env[k], 0) {
			return "", fmt.Errorf("env %s has a zero byte", k)
		}
		fmt.Fprintf(&s, "\texport %s=%s\n", k, quote(p.attempt.Env[k]))
	}
	for _, k := range slices.Sorted(maps.Keys(p.image.Env)) {
		fmt.Fprintf(&s, "\texport %s=%s\n", k, quote(p.image.Env[k]))
	}
	if len(p.setup) > 0 {
		s.WriteString("\t[ -r /etc/profile ] && . /etc/profile\n")
	}
	for _, line := range p.setup {
		fmt.Fprintf(&s, "\t%s || { echo 'yunhe: a setup line of this center failed: '%s >&2; exit 1; }\n", strings.TrimSpace(line), quote(line))
	}
	s.WriteString(find)
	if strings.ContainsRune(p.attempt.Command, 0) {
		return "", errors.New("command has a zero byte")
	}
	argv := append(slices.Clone(p.image.Prefix), "/bin/sh", "-c", p.attempt.Command)
	for i := range argv {
		argv[i] = quote(argv[i])
	}
	fmt.Fprintf(&s, "\t: >\"$dir/.ready\"\n\tumask \"$mask\"\n\texec %s\n}\n", strings.Join(argv, " "))
	s.WriteString(after)
	if s.Len() > maxScript {
		return "", fmt.Errorf("command, env and files make a script of %d bytes, at most %d fit", s.Len(), maxScript)
	}
	return s.String(), nil
}

// signals by their names in what follows.
var signals = strings.NewReplacer("@TWICE", strconv.Itoa(signalTwice), "@NOSTART", strconv.Itoa(signalNoStart), "@HOLD", strconv.Itoa(signalHold),
	"@GO", strconv.Itoa(signalGo), "@STOPPED", strconv.Itoa(signalStopped), "@LIMIT", strconv.Itoa(signalLimit))

// before the command: who runs, and where.
var before = signals.Replace(`
dir=$root/$attempt
mask=$(umask)
umask 007
end_by() { ulimit -c 0; trap - "$1" 2>/dev/null; kill -"$1" $$; exit $((128 + $1)); }

# 1. Only one job of the attempt may run, and only once.
mkdir -p -- "$dir" || end_by @NOSTART
me=yunhe:$SLURM_JOB_ID:${SLURM_RESTART_COUNT:-0}:
now=${SLURM_JOB_START_TIME:-$(date +%s)}
if ! ln -s -- "$me$now" "$dir/.started" 2>/dev/null; then
	was=$(readlink -- "$dir/.started")
	case $was in
	"$me"*) ;;
	"yunhe:$SLURM_JOB_ID:"*)
		[ "$again" = true ] || end_by @TWICE
		rm -f -- "$dir/exit" "$dir/.ready" "$dir/.suspended" && ln -sfn -- "$me$now" "$dir/.started" || end_by @NOSTART ;;
	"") end_by @NOSTART ;;
	*) end_by @TWICE ;;
	esac
fi
if [ -e "$root/.forgotten/$attempt" ]; then
	rm -rf -- "$dir"
	end_by @TWICE
fi
: >>"$dir/log" && mkdir -p -- "$dir/files" || end_by @NOSTART

# 2. Signals: Slurm sends TERM before it kills.
pid= why=done woken= dog=
doom() { (trap '' TERM @HOLD @GO; sleep "$1"; kill -KILL -- "-$2") </dev/null >/dev/null 2>&1 9>&- & }
tree() {
	local p
	for p in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
		kill "-$2" "$p" 2>/dev/null
		tree "$p" "$2"
	done
}
finish() {
	woken=1
	if [ "$why" = done ] && [ -n "$pid" ]; then
		why=$1
		kill -TERM -- "-$pid" 2>/dev/null || return
		resume
		doom "$grace" "$pid"
	fi
}
stop() {
	[ -n "$pid" ] || end_by 15
	finish stopped
}
hold() { # what has a group of its own among its children stands still, too
	woken=1
	[ "$why" = done ] && [ -n "$pid" ] || return
	kill -STOP -- "-$pid" 2>/dev/null || return
	tree "$pid" STOP
	tree "$pid" STOP
	: >"$dir/.suspended"
}
resume() {
	woken=1
	[ -e "$dir/.suspended" ] || return
	tree "$pid" CONT
	kill -CONT -- "-$pid" 2>/dev/null
	rm -f -- "$dir/.suspended"
}
trap stop TERM
trap 'finish limit' ALRM
trap hold @HOLD
trap resume @GO
home=$(eval echo "~$(id -un)")
export HOME="${HOME:-$home}" USER="${USER:-$(id -un)}" LOGNAME="${LOGNAME:-$(id -un)}"

# 3. The command.
`)

// after the command: how it ended, in a file and by this script's own status.
var after = signals.Replace(`
set -m # each gets a process group of its own
run </dev/null >>"$dir/log" 2>&1 9>&- &
pid=$!
if [ "$limit" -gt 0 ]; then
	(sleep "$limit" && kill -ALRM $$) </dev/null >/dev/null 2>&1 9>&- &
	dog=$!
fi
set +m # a command that stands still has not ended
while :; do
	woken=
	wait "$pid"
	code=$?
	[ -n "$woken" ] || break
done
# Slurm signals all processes of a job that it ends, the command maybe first.
[ "$code" != 143 ] || [ "$why" != done ] || sleep 1
trap '' TERM ALRM @HOLD @GO
[ -z "$dog" ] || kill -KILL -- "-$dog" 2>/dev/null
` + giveShares + `
[ -e "$dir/.ready" ] || [ "$why" != done ] || why=nostart
times >"$dir/.times"
printf '%d %s %d %d\n' "$code" "$why" "$(date +%s)" "$(wc -c <"$dir/log")" >"$dir/.exit" && mv -f -- "$dir/.exit" "$dir/exit"
case $why in
nostart) end_by @NOSTART ;;
stopped) end_by @STOPPED ;;
limit) end_by @LIMIT ;;
esac
if [ "$code" -gt 128 ] && [ "$code" -le 188 ]; then
	end_by $((code - 128))
fi
exit "$code"
`)

// quote makes one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// pack makes base64 lines of a tar file, "" of no files.
func pack(files []*adapterv1.File) (string, error) {
	if len(files) == 0 {
		return "", nil
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	t := tar.NewWriter(z)
	for _, f := range files {
		for _, e := range strings.Split(f.Path, "/") {
			if e == "" || e == "." || e == ".." || strings.ContainsRune(e, 0) {
				return "", fmt.Errorf("files has the path %q: want a relative one without \".\" and \"..\"", clip(f.Path, 200))
			}
		}
		mode := int64(0o644)
		if f.Executable {
			mode = 0o755
		}
		err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: mode, Size: int64(len(f.Content)), Format: tar.FormatPAX})
		if err == nil {
			_, err = t.Write(f.Content)
		}
		if err != nil {
			return "", fmt.Errorf("file %q: %w", clip(f.Path, 200), err)
		}
	}
	if err := t.Close(); err != nil {
		return "", fmt.Errorf("pack files: %w", err)
	}
	if err := z.Close(); err != nil {
		return "", fmt.Errorf("pack files: %w", err)
	}
	text := base64.StdEncoding.EncodeToString(packed.Bytes())
	var out strings.Builder
	for len(text) > 0 {
		n := min(len(text), 76)
		out.WriteString(text[:n])
		out.WriteByte('\n')
		text = text[n:]
	}
	return out.String(), nil
}
