package pool_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
)

// TestBeside: a command beside a run at a gateway (job exec) computes on the run's
// slice, as the run's own command does: at once with others, where the slice has gone
// after the node that it left has stopped, and not any more when it has ended.
func TestBeside(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: gateways need root to isolate what they run")
	}
	w := open(t, false)
	vendors := w.vendors("one", "pocl.icd")
	_, stop := w.node("n1", vendors)
	w.online(1)
	w.group()
	command := func(args ...string) *exec.Cmd {
		return w.bench.Yunhe(context.WithoutCancel(t.Context()), "", nil, args...)
	}
	id := regexp.MustCompile(`job_\w+`).FindString(w.yunhe("job", "submit", "--name", "beside", "--image", "host", "--spec", "small", "--env", "OCL_ICD_FILENAMES=none", "--env", "FLAVOR=plum",
		"--pool", "compute=40,memory=64MiB,group=g", "--add-file", w.bench.Program+":program", "--command", "env >own; ./program add 3; while [ ! -e go ]; do sleep 0.2; done; ./program add 3"))
	running := func() []*poolv1.Slice {
		res, err := w.bench.API.ListSlices(t.Context(), &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{poolv1.Slice_STATE_RUNNING}})
		must(t, err)
		return res.Slices
	}
	w.until("its own command has computed", func() bool { return strings.Contains(w.yunhe("job", "logs", id), "sum ") })
	native := exec.Command(w.bench.Program, "add", "3")
	native.Env = append(os.Environ(), "OCL_ICD_VENDORS="+vendors)
	sum, err := native.Output()
	must(t, err)
	computes := func(when string) {
		t.Helper()
		if got := w.yunhe("job", "exec", id, "--", "./program", "add", "3"); got != string(sum) {
			t.Errorf("%s it says %q, natively %q", when, got, sum)
		}
	}
	computes("beside the run")
	if got := w.yunhe("job", "exec", id, "--", "./program", "fill", "100"); got != "buffers 64 error -4\n" {
		t.Errorf("of the slice's 64 MiB it has %q", got)
	}

	// The same environment, but for how the slice is named, and no way to more slices.
	vars := func(text string) map[string]string {
		out := map[string]string{}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			out[name] = value
		}
		for _, name := range []string{"YUNHE_POOL_ADDRESS", "YUNHE_POOL_TASK", "YUNHE_POOL_TOKEN", "YUNHE_POOL_FILE", "_", "OLDPWD", "SHLVL"} {
			delete(out, name)
		}
		return out
	}
	own, its := vars(w.yunhe("job", "exec", id, "--", "cat", "own")), vars(w.yunhe("job", "exec", id, "--", "env"))
	for name := range own {
		if its[name] != own[name] {
			t.Errorf("%s is %q, for the run's own command %q", name, its[name], own[name])
		}
	}
	if len(its) != len(own) || its["FLAVOR"] != "plum" || its["OCL_ICD_VENDORS"] == "" {
		t.Errorf("its environment is %v, that of the run's own command %v", its, own)
	}

	// Where the slice has gone. Two at once, of which one moves.
	list := running()
	if len(list) != 1 {
		t.Fatalf("slices are %v", list)
	}
	walks := command("job", "exec", "--stdin", id, "--", "./program", "walk", "8")
	in, err := walks.StdinPipe()
	must(t, err)
	var says strings.Builder
	walks.Stdout, walks.Stderr = &says, &says
	must(t, walks.Start())
	w.until("two programs are there", func() bool { x := running(); return len(x) == 1 && x[0].Programs >= 1 && x[0].MemoryUsedBytes >= 8<<20 })
	computes("beside another")
	_, stopNext := w.node("n2", vendors)
	w.online(2)
	w.yunhe("pool", "slice", "migrate", list[0].SliceId, "--to", "n2")
	w.until("it is at the other node only", func() bool { x := running(); return len(x) == 1 && x[0].NodeId == "n2" && x[0].Programs == 1 })
	stop()
	computes("where the slice has gone")

	// The slice ends with its node. Who computes hears so, and who comes then.
	stopNext()
	w.until("the slice has ended", func() bool { return len(running()) == 0 })
	if err := walks.Wait(); err == nil || !strings.Contains(says.String(), "yunhe pool: the slice has ended") {
		t.Errorf("who computed when the slice ended: %v: %s", err, says.String())
	}
	_ = in.Close()
	if out, err := command("job", "exec", id, "--", "./program", "add", "3").CombinedOutput(); err == nil || !strings.Contains(string(out), "yunhe pool: there is no slice: it has ended, or has no place yet") {
		t.Errorf("who comes when the slice has ended: %v: %s", err, out)
	}
	w.yunhe("job", "exec", id, "--", "touch", "go")
	w.until("the run's own command has failed, and would be run again", func() bool {
		return strings.Contains(w.yunhe("job", "runs", id, "-o", "json"), `"pool_lost"`)
	})
	w.yunhe("job", "stop", id)
}
