package pool_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/pool"
)

// TestUnlent: a job computes on another node when its own is killed, or nothing gets from there to
// where it runs, and has used up no retry, of which it has none; it waits, and says why, where there
// is none.
func TestUnlent(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: gateways need root to isolate what they run")
	}
	w := open(t, true)
	vendors := w.vendors("one", "pocl.icd")
	first, _ := w.node("n1", vendors)
	w.online(1)
	w.group()
	away := w.host()
	w.gatewayOn(away, "center", nil)
	job := w.submit("compute=50,memory=64MiB,group=g", "./program spin 600", "--center", "center", "--add-file", w.bench.Program+":program")
	computes := func() {
		t.Helper()
		w.until("it computes", func() bool { return strings.Contains(w.yunhe("job", "logs", job), "spinning") })
	}
	shows := func(what string) bool {
		return regexp.MustCompile(what).MatchString(w.yunhe("job", "show", job, "-o", "json"))
	}
	computes()
	must(t, first.Process.Kill())
	w.until("its run has failed and it waits", func() bool { return shows(`"state": *"STATE_QUEUED"`) })
	if !shows(`"reason": *"pool_lost"`) || !shows("pool node n1 is gone") {
		t.Errorf("it waits: %s", w.yunhe("job", "show", job, "-o", "json"))
	}
	second, _ := w.node("n2", vendors)
	w.until("it is run again", func() bool { return shows(`"attempt": *2\b`) })
	computes()
	third := w.host()
	w.nodeOn(third, "n3", vendors)
	must(t, second.Process.Kill())
	w.until("it is run again elsewhere", func() bool { return shows(`"attempt": *3\b`) })
	computes()
	lost := 2
	if w.spaces {
		w.node("n4", vendors)
		w.yunhe("pool", "node", "disable", "n3")
		must(t, ip("-n "+third.space+" neigh replace "+away.address+" lladdr 02:00:00:00:00:01 dev eth0 nud permanent")) // whom nobody is
		w.until("it is run again in reach", func() bool { return shows(`"attempt": *4\b`) })
		computes()
		lost++
	}
	if runs := w.yunhe("job", "runs", job, "-o", "json"); strings.Count(runs, `"pool_lost"`) != lost || strings.Contains(runs, pool.ClientLost) != w.spaces {
		t.Errorf("its runs: %s", runs)
	}
	w.yunhe("job", "stop", job)
}
