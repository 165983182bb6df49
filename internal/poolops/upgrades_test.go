package poolops_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/poolops"
	"yunhe.dev/yunhe/internal/pools/logs"
)

func sumOf(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// upload uploads a program in parts, the second of them twice.
func (w *world) upload(version string, size int) poolops.Release {
	w.t.Helper()
	b := bytes.Repeat([]byte(version), size/len(version)+1)[:size]
	r := poolops.Release{Sum: sumOf(b), Version: version, Bytes: int64(size)}
	const part = 1 << 20
	for at := 0; at < size; at += part {
		for range 1 + at/part%2 {
			n, whole, err := w.Upload(w.admin, r, int64(at), b[at:min(at+part, size)])
			must(w.t, err)
			if n < int64(min(at+part, size)) || (whole != nil) != (min(at+part, size) == size) {
				w.t.Fatalf("at %d there are %d bytes, %v", at, n, whole)
			}
		}
	}
	return r
}

// runs has a node say what it runs, and returns what it should.
func (w *world) runs(s *poolops.Service, node, program string, attempt int64, problem string) poolops.Wanted {
	w.t.Helper()
	got, err := s.Tell(w.admin, poolops.Told{Node: node, Secret: secret, Program: program, Attempt: attempt, AttemptProblem: problem}, 0)
	must(w.t, err)
	return got
}

// step has the upgrade taken on, and returns its state and those of its nodes.
func (w *world) step(s *poolops.Service) string {
	w.t.Helper()
	_, err := s.StepUpgrade(w.admin)
	must(w.t, err)
	list, err := s.Upgrades(w.admin)
	must(w.t, err)
	out := list[0].State.String() + ":"
	for _, n := range list[0].Steps {
		out += fmt.Sprintf(" %d", n.State)
	}
	return out
}

func (w *world) expect(what, got, want string) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("%s: %s, not %s", what, got, want)
	}
}

// TestRelease: a program comes whole or not at all; only nodes fetch it.
func TestRelease(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.join("n1")
		r := w.upload("v2", 5<<19)
		var got []byte
		for {
			part, err := w.Fetch(w.admin, "n1", secret, r.Sum, int64(len(got)))
			must(w.t, err)
			if len(part) == 0 {
				break
			}
			got = append(got, part...)
		}
		if sumOf(got) != r.Sum {
			w.t.Error("what a node fetches is not what was uploaded")
		}
		if _, err := w.Fetch(w.admin, "n1", strings.Repeat("00", 32), r.Sum, 0); fault.KindOf(err) != fault.Unauthenticated {
			w.t.Errorf("who is no node: %v", err)
		}
		bad := poolops.Release{Sum: sumOf([]byte("x")), Version: "v3", Bytes: 2}
		if _, _, err := w.Upload(w.admin, bad, 0, []byte("yy")); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "other contents") {
			w.t.Errorf("what is not of its SHA-256: %v", err)
		}
		if n, _, err := w.Upload(w.admin, bad, 0, nil); err != nil || n != 0 {
			w.t.Errorf("of that %d bytes are kept, %v", n, err)
		}
		for want, x := range map[string]poolops.Release{"sha256": {Sum: "AB", Version: "v", Bytes: 1}, "version": {Sum: r.Sum, Bytes: 1}, "bytes": {Sum: r.Sum, Version: "v", Bytes: 1 << 40}} {
			if _, _, err := w.Upload(w.admin, x, 0, nil); err == nil || !strings.Contains(err.Error(), want) {
				w.t.Errorf("%s: %v", want, err)
			}
		}
		list, err := w.Releases(w.admin)
		if must(w.t, err); len(list) != 1 || list[0].Version != "v2" {
			w.t.Errorf("releases are %v", list)
		}
	})
}

// TestUpgrade: batches wait for each other, a gray upgrade for a person; a platform
// that starts again goes on with it, and all can run again what they ran before.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		old := sumOf([]byte("old"))
		nodes := []string{"n1", "n2", "n3"}
		for _, n := range nodes {
			w.join(n)
			w.runs(w.Service, n, old, 0, "")
		}
		w.join("silent")
		r := w.upload("v2", 100)
		for want, x := range map[string]struct {
			kind  fault.Kind
			nodes []string
			sum   string
		}{"has not said": {fault.Invalid, []string{"silent"}, r.Sum}, `"n9"`: {fault.NotFound, []string{"n9"}, r.Sum}, "SHA-256": {fault.NotFound, nodes, old}, "given twice": {fault.Invalid, []string{"n1", "n1"}, r.Sum}, "nothing is": {fault.Invalid, nil, r.Sum}} {
			if _, err := w.StartUpgrade(w.admin, poolops.Upgrade{Release: poolops.Release{Sum: x.sum}}, x.nodes, false); fault.KindOf(err) != x.kind || !strings.Contains(err.Error(), want) {
				w.t.Errorf("%s: %v", want, err)
			}
		}
		if _, err := w.StartUpgrade(w.admin, poolops.Upgrade{Release: r}, nil, true); fault.KindOf(err) != fault.Invalid {
			w.t.Errorf("a platform that cannot be upgraded: %v", err)
		}
		var begun []*poolops.Upgrade
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				x, err := w.StartUpgrade(w.admin, poolops.Upgrade{Release: r, Batch: 1, Gray: true, Pause: 60}, nodes, false)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					begun = append(begun, x)
				} else if k := fault.KindOf(err); k != fault.Conflict && k != fault.Exists {
					w.t.Errorf("another at the same time: %v", err)
				}
			})
		}
		all.Wait()
		if len(begun) != 1 {
			w.t.Fatalf("%d upgrades began", len(begun))
		}
		id := begun[0].ID
		w.expect("begun", w.step(w.Service), "running: 2 1 1")
		if got := w.runs(w.Service, "n2", old, 0, ""); got.Release != nil {
			w.t.Errorf("a node of the second batch should run %v", got.Release)
		}
		got := w.runs(w.Service, "n1", old, 0, "")
		if got.Release == nil || got.Release.Sum != r.Sum || got.Release.Bytes != 100 {
			w.t.Fatalf("a node of the first batch should run %v", got.Release)
		}
		if again := w.runs(w.Service, "n1", old, got.Attempt, ""); again.Release != nil {
			w.t.Error("a node that has begun is told again")
		}
		s := w.restarted()
		w.runs(s, "n1", r.Sum, got.Attempt, "")
		w.expect("after the first batch", w.step(s), "waiting to go on: 3 1 1")
		w.expect("it waits", w.step(s), "waiting to go on: 3 1 1")
		_, err := s.ChangeUpgrade(w.admin, id, poolops.Continue)
		must(w.t, err)
		w.expect("in the pause", w.step(s), "running: 3 1 1")
		w.clock.add(61 * time.Second)
		w.expect("after it", w.step(s), "running: 3 2 1")
		got = w.runs(s, "n2", old, 0, "")
		w.runs(s, "n2", old, got.Attempt, "it finds no devices")
		w.expect("a node that fails", w.step(s), "going back: 5 5 1")
		if back := w.runs(s, "n1", r.Sum, 1, ""); back.Release == nil || back.Release.Sum != old || back.Release.Bytes != 0 {
			w.t.Errorf("a node that goes back should run %v", back.Release)
		}
		w.expect("n2 never left", w.step(s), "going back: 5 6 1")
		w.runs(s, "n1", old, 2, "")
		w.expect("all are back", w.step(s), "rolled back: 6 6 1")
		list, err := s.Upgrades(w.admin)
		if must(w.t, err); list[0].Reason != "n2: it finds no devices" || list[0].EndedAt.IsZero() {
			w.t.Errorf("it ended with %+v", list[0])
		}
		entries, _, err := w.pools.Logs().Search(w.admin, logs.Filter{Text: "node not upgraded"}, 10, "")
		if must(w.t, err); len(entries) != 1 || entries[0].Node != "n2" {
			w.t.Errorf("the log says %v", entries)
		}

		// One that nobody takes on fails when patience ends; what is done stays with Keep.
		x, err := s.StartUpgrade(w.admin, poolops.Upgrade{Release: r, Patience: 10, Keep: true}, nodes[:2], false)
		must(w.t, err)
		w.expect("all at once", w.step(s), "running: 2 2")
		w.runs(s, "n1", r.Sum, 3, "")
		w.clock.add(11 * time.Second)
		w.expect("patience ends", w.step(s), "failed: 3 4")
		if _, err := s.ChangeUpgrade(w.admin, x.ID, poolops.Stop); fault.KindOf(err) != fault.Conflict {
			w.t.Errorf("what has failed is stopped: %v", err)
		}
		_, err = s.ChangeUpgrade(w.admin, x.ID, poolops.RollBack)
		must(w.t, err)
		w.runs(s, "n1", old, 4, "")
		w.expect("back by hand", w.step(s), "rolled back: 6 6")

		x, err = s.StartUpgrade(w.admin, poolops.Upgrade{Release: r, Batch: 1}, nodes[:2], false)
		must(w.t, err)
		w.step(s)
		_, err = s.ChangeUpgrade(w.admin, x.ID, poolops.Stop)
		must(w.t, err)
		w.expect("what is under way ends", w.step(s), "stopped: 2 1")
		w.runs(s, "n1", r.Sum, 5, "")
		w.expect("then it is over", w.step(s), "stopped: 3 1")
		if running, err := s.StepUpgrade(w.admin); err != nil || running {
			w.t.Errorf("it is not over: %v", err)
		}
		if i := slices.IndexFunc(begun, func(b *poolops.Upgrade) bool { return b.User != "admin" }); i >= 0 {
			w.t.Errorf("it is of %q", begun[i].User)
		}
	})
}

// TestUpgradeKept: a node that did not run the program in time is not had run it later,
// by an upgrade that has failed or was stopped.
func TestUpgradeKept(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		old, nodes := sumOf([]byte("old")), []string{"n1", "n2"}
		for _, n := range nodes {
			w.join(n)
			w.runs(w.Service, n, old, 0, "")
		}
		r := w.upload("v2", 100)
		_, err := w.StartUpgrade(w.admin, poolops.Upgrade{Release: r, Patience: 10, Keep: true}, nodes, false)
		must(w.t, err)
		w.step(w.Service)
		w.runs(w.Service, "n1", r.Sum, 1, "")
		w.clock.add(11 * time.Second)
		w.expect("patience ends", w.step(w.Service), "failed: 3 4")
		if got := w.runs(w.Service, "n2", old, 0, ""); got.Release != nil && got.Release.Sum != old {
			w.t.Errorf("a node that comes late should run %v", got.Release)
		}
		if got := w.runs(w.Service, "n1", r.Sum, 1, ""); got.Release != nil {
			w.t.Errorf("a node that was upgraded should run %v", got.Release)
		}
		x, err := w.StartUpgrade(w.admin, poolops.Upgrade{Release: r, Patience: 10}, nodes[1:], false)
		must(w.t, err)
		w.step(w.Service)
		_, err = w.ChangeUpgrade(w.admin, x.ID, poolops.Stop)
		must(w.t, err)
		w.clock.add(11 * time.Second)
		w.expect("stopped, and patience ends", w.step(w.Service), "stopped: 4")
		if got := w.runs(w.Service, "n2", old, 2, ""); got.Release == nil || got.Release.Sum != old {
			w.t.Errorf("a node that comes late should run %v", got.Release)
		}
	})
}

// TestInstalledByHand: a node whose program was replaced by hand since it was upgraded,
// and that knows of no upgrade for that, is not had run what it was upgraded to before.
func TestInstalledByHand(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		old, third := sumOf([]byte("old")), sumOf([]byte("third"))
		w.join("n1")
		w.runs(w.Service, "n1", old, 0, "")
		upgrade := func(r poolops.Release, from string, attempt int64) {
			w.t.Helper()
			_, err := w.StartUpgrade(w.admin, poolops.Upgrade{Release: r}, []string{"n1"}, false)
			must(w.t, err)
			w.step(w.Service)
			got := w.runs(w.Service, "n1", from, 0, "")
			if got.Release == nil || got.Release.Sum != r.Sum || got.Attempt != attempt {
				w.t.Fatalf("it should run %v by attempt %d", got.Release, got.Attempt)
			}
			w.runs(w.Service, "n1", from, attempt, "") // it has begun, is killed and has to begin anew
			if got := w.runs(w.Service, "n1", from, 0, ""); got.Release == nil || got.Release.Sum != r.Sum {
				w.t.Errorf("begun anew, it should run %v", got.Release)
			}
			w.runs(w.Service, "n1", r.Sum, attempt, "")
			w.expect("upgraded", w.step(w.Service), "done: 3")
		}
		upgrade(w.upload("v2", 100), old, 1)
		for range 2 {
			if got := w.runs(w.Service, "n1", third, 0, ""); got.Release != nil {
				w.t.Errorf("what was installed by hand should run %v", got.Release)
			}
		}
		upgrade(w.upload("v4", 100), third, 2)
	})
}
