package kubernetes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"yunhe.dev/yunhe/adapters/kubernetes"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/enginetest"
)

// startKubelet adds a real kubelet to a cluster for a rig.
func startKubelet(t *testing.T, k *enginetest.Kubernetes, label, logs string) *enginetest.Kubelet {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	l, err := k.StartKubelet(ctx, enginetest.KubeletConfig{Labels: map[string]string{"rig": label}, LogMaxSize: logs})
	var missing *enginetest.MissingError
	if errors.As(err, &missing) {
		t.Skipf("SKIPPED: %v", missing)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close the kubelet: %v", err)
		}
	})
	return l
}

// command is an attempt that really runs.
func command(id, command string, change func(*adapterv1.Attempt)) *adapterv1.Attempt {
	return attempt(id, "", func(a *adapterv1.Attempt) {
		a.Command, a.StopGraceSeconds = command, 5
		if change != nil {
			change(a)
		}
	})
}

// log reads an attempt's log from offset to its end.
func (r *rig) log(id string, offset, limit int64) []byte {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(r.tb.Context(), time.Minute)
	defer cancel()
	var out []byte
	for {
		res, err := r.client.ReadLog(ctx, &adapterv1.ReadLogRequest{AttemptId: id, Offset: offset, Limit: limit, WaitMilliseconds: 5000})
		if err != nil {
			r.tb.Fatalf("log of %s at %d: %v", id, offset, err)
		}
		if res.Offset != offset || int64(len(res.Data)) > limit {
			r.tb.Fatalf("log of %s: asked for %d bytes at %d, got %d at %d", id, limit, offset, len(res.Data), res.Offset)
		}
		out, offset = append(out, res.Data...), offset+int64(len(res.Data))
		if res.End {
			return out
		}
	}
}

func TestRealKubelet(t *testing.T) {
	k := enginetest.KubernetesCluster(t)
	r := newRig(t, k, 0, func(c *kubernetes.Config) {
		c.Images = map[string]string{"base": enginetest.KubeletImage, "nowhere": "127.0.0.1:1/nowhere:1", "bad": "busybox:never-loaded"}
		c.ImagePullPolicy, c.StartPatience = "IfNotPresent", 3
	})
	startKubelet(t, k, r.label, "")
	r.start()

	long := strings.Repeat("x", 20_000) // longer than what a runtime writes at a time
	r.apply(
		command("hello", `echo "hello $NAME $(pwd) $$"; echo to stderr >&2; printf 'no line end'`, func(a *adapterv1.Attempt) { a.Env["NAME"] = "$(HOME) $$x" }),
		command("exit", `echo bye; exit 7`, nil),
		command("killed", `kill -9 $$; sleep 60`, nil),
		command("memory", `head -c 200000000 /dev/zero | tail`, func(a *adapterv1.Attempt) { a.Resources["memory"] = 32 << 20 }),
		command("late", `sleep 100`, func(a *adapterv1.Attempt) { a.TimeoutSeconds = 4 }),
		command("polite", `trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.1; done`, nil),
		command("plain", `echo ready; sleep 100`, nil),
		command("files", `cat in/data; ./run.sh; echo more >>in/data; ls -l in/data | cut -c1-10`, func(a *adapterv1.Attempt) {
			a.Files = []*adapterv1.File{{Path: "in/data", Content: []byte("data\n")}, {Path: "run.sh", Content: []byte("#!/bin/sh\necho ran\n"), Executable: true}}
		}),
		command("long", fmt.Sprintf(`i=0; while [ $i -lt 40 ]; do echo $i %s; i=$((i+1)); done`, long), nil),
		command("noimage", `true`, func(a *adapterv1.Attempt) { a.ImageId = "nowhere" }),
	)
	for id, want := range map[string]struct {
		reason string
		code   int32
		log    string
	}{
		"hello":  {"completed", 0, ""},
		"exit":   {"exit", 7, "bye\n"},
		"killed": {"signal", 137, ""},
		"memory": {"oom", 137, ""},
		"late":   {"wall_time", 143, ""},
		"files":  {"completed", 0, "data\nran\n-rw-r--r--\n"},
	} {
		st := r.ended(id)
		if st.Reason != want.reason || st.ExitCode != want.code || st.StartedAt == 0 || st.EndedAt < st.StartedAt {
			t.Errorf("%s: %v, want %+v", id, st, want)
		}
		if want.log != "" && (!st.LogInline || string(st.Log) != want.log) {
			t.Errorf("%s: log %q with its status, want %q", id, st.Log, want.log)
		}
	}
	hello := string(r.log("hello", 0, 100))
	for _, part := range []string{"hello $(HOME) $$x /workspace ", "to stderr\n", "no line end"} {
		if !strings.Contains(hello, part) {
			t.Errorf("log of hello is %q, want %q in it", hello, part)
		}
	}
	if st := r.ended("noimage"); st.Reason != "start_failed" || st.StartedAt != 0 || !strings.Contains(st.Message, "mage") {
		t.Errorf("noimage: %v, want start_failed with the kubelet's words", st)
	}

	// Stopping: in good order, and one that hears no signal by default.
	for id, want := range map[string]int32{"polite": 0, "plain": 143} {
		r.running(id)
		begun := time.Now()
		r.remove([]string{id}, nil)
		st := r.ended(id)
		if st.Reason != "stopped" || st.ExitCode != want || st.StartedAt == 0 {
			t.Errorf("%s: %v, want stopped with status %d", id, st, want)
		}
		t.Logf("figure: %s had stopped %s after it was asked", id, time.Since(begun).Round(10*time.Millisecond))
	}
	if got := string(r.log("polite", 0, 1000)); got != "ready\nbye\n" {
		t.Errorf("log after stop is %q, want that it said bye", got)
	}

	// Every way of reading gives the same bytes.
	var want bytes.Buffer
	for i := range 40 {
		fmt.Fprintf(&want, "%d %s\n", i, long)
	}
	if st := r.ended("long"); st.LogInline || st.LogBytes != int64(want.Len()) {
		t.Errorf("long: log of %d bytes, inline %v, want %d", st.LogBytes, st.LogInline, want.Len())
	}
	for _, limit := range []int64{512 << 10, 4999} {
		if got := r.log("long", 0, limit); !bytes.Equal(got, want.Bytes()) {
			t.Errorf("read %d bytes at a time: %d bytes, want %d", limit, len(got), want.Len())
		}
	}
	for _, from := range []int64{700_000, 3, 400_001, int64(want.Len())} {
		if got := r.log("long", from, 512<<10); !bytes.Equal(got, want.Bytes()[from:]) {
			t.Errorf("read from %d: %d bytes, want %d", from, len(got), int64(want.Len())-from)
		}
	}
	_, err := r.client.ReadLog(t.Context(), &adapterv1.ReadLogRequest{AttemptId: "nobody"})
	wantCode(t, err, connect.CodeNotFound)
}

// A log is followed while its node drops the beginning: who reads along has
// every line whole, once and in order, and who comes late is told. Lines may be
// missing where the node began a new file: the kubelet, which follows the old one, does not
// read that to its end (see logs.go).
func TestLogsOutliveRotation(t *testing.T) {
	k := enginetest.KubernetesCluster(t)
	r := newRig(t, k, 0, func(c *kubernetes.Config) { c.Images = map[string]string{"base": enginetest.KubeletImage} })
	startKubelet(t, k, r.label, "2Mi")
	r.start()
	const count, width = 60_000, 200
	r.apply(command("talk", fmt.Sprintf(`i=0; while [ $i -lt %d ]; do printf '%%0%dd\n' $i; i=$((i+1)); [ $((i%%2000)) -ne 0 ] || sleep 0.5; done; sleep 3`, count, width-1), nil))
	r.running("talk")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var offset, line, gaps int64
	restarted := false
	var rest []byte
	for end := false; !end; {
		res, err := r.client.ReadLog(ctx, &adapterv1.ReadLogRequest{AttemptId: "talk", Offset: offset, Limit: 100_000, WaitMilliseconds: 3000})
		if err != nil {
			t.Fatal(err)
		}
		rest, offset, end = append(rest, res.Data...), offset+int64(len(res.Data)), res.End
		for len(rest) >= width {
			got, err := strconv.ParseInt(strings.TrimSuffix(string(rest[:width]), "\n"), 10, 64)
			if err != nil || rest[width-1] != '\n' || got < line {
				t.Fatalf("line %d is %q", line, rest[:width])
			}
			if got > line {
				gaps++
				t.Logf("%d lines from %d on are missing", got-line, line)
			}
			rest, line = rest[width:], got+1
		}
		if !restarted && line > 3000 && line < 5000 { // well before the first rotation
			restarted = true
			r.kill()
			r.start()
		}
	}
	if line != count || !restarted || gaps > count*width/(2<<20) || offset > count*width { // a gap for each file at most
		t.Errorf("read up to line %d with %d gaps, %d bytes, restarted %v; want all %d", line, gaps, offset, restarted, count)
	}
	// A new driver finds only what the node has kept.
	r.kill()
	r.start()
	r.ended("talk")
	late := r.log("talk", 0, 512<<10)
	if len(late) >= count*width || !bytes.HasPrefix(late, []byte("[yunhe: the node has dropped")) ||
		len(late) > width && !bytes.HasSuffix(late, []byte(fmt.Sprintf("%0*d\n", width-1, count-1))) { // it may drop all at the very end
		t.Errorf("late, the log has %d bytes and begins %.80q, want a part that says so", len(late), late)
	}
}
