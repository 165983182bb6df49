package sandbox_test

// The gateway dies in these tests: a helper process plays it.

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
)

// helperGateway starts runs as told on its standard input, one spec a line,
// and says "started ID" and "ended ID" until it is killed.
func helperGateway(args []string) int {
	var cfg sandbox.Config
	if err := json.Unmarshal([]byte(args[0]), &cfg); err != nil {
		fmt.Println("error", err)
		return 1
	}
	s, err := sandbox.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	var wg sync.WaitGroup
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var spec sandbox.Spec
		if err := json.Unmarshal(in.Bytes(), &spec); err != nil {
			fmt.Println("error", err)
			return 1
		}
		wg.Go(func() {
			r, err := s.Start(context.Background(), spec)
			if err != nil {
				fmt.Println("error", err)
				return
			}
			fmt.Println("started", spec.ID)
			<-r.Done()
			fmt.Println("ended", spec.ID)
		})
	}
	wg.Wait()
	return 0
}

// gateway is a helper process.
type gateway struct {
	t   *testing.T
	cmd *exec.Cmd
	in  *json.Encoder
	out *bufio.Scanner
}

func startGateway(t *testing.T, cfg sandbox.Config) *gateway {
	t.Helper()
	needHost(t)
	b, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{t: t, cmd: exec.Command(os.Args[0], "gateway", string(b))}
	in, err := g.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	g.cmd.Stderr = os.Stderr
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.cmd.Process.Kill(); _ = g.cmd.Wait() })
	g.in, g.out = json.NewEncoder(in), bufio.NewScanner(out)
	return g
}

func (g *gateway) start(spec sandbox.Spec) {
	g.t.Helper()
	if err := g.in.Encode(spec); err != nil {
		g.t.Fatal(err)
	}
}

// hear returns what the gateway says next.
func (g *gateway) hear() string {
	g.t.Helper()
	if !g.out.Scan() {
		g.t.Fatalf("the helper gateway is gone: %v", g.out.Err())
	}
	if line := g.out.Text(); !strings.HasPrefix(line, "error") {
		return line
	}
	g.t.Fatal("helper gateway:", g.out.Text())
	return ""
}

// kill is kill -9.
func (g *gateway) kill() {
	g.t.Helper()
	if err := g.cmd.Process.Kill(); err != nil {
		g.t.Fatal(err)
	}
	_ = g.cmd.Wait()
}

func TestGatewayDies(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	g := startGateway(t, cfg)
	specs := map[string]sandbox.Spec{
		"ended":   small("ended", "echo ran; exit 3"),
		"ending":  small("ending", "echo ran; sleep 1; exit 4"),
		"stopped": small("stopped", "exec 2>/dev/null; trap 'echo bye; exit 5' TERM; echo ran; while :; do sleep 0.01; done"),
		"limited": func() sandbox.Spec {
			s := small("limited", "echo ran; sleep 1000")
			s.WallTime = 1500 * time.Millisecond
			return s
		}(),
	}
	for _, id := range []string{"ended", "ending", "stopped", "limited"} {
		g.start(specs[id])
	}
	for heard := map[string]bool{}; !heard["ended ended"] || !heard["started ending"] || !heard["started stopped"] || !heard["started limited"]; {
		heard[g.hear()] = true
	}
	g.kill()

	s := open(t, cfg)
	runs, err := s.Adopt(t.Context())
	if err != nil || len(runs) != 4 {
		t.Fatalf("adopted %d runs, %v, want 4", len(runs), err)
	}
	for _, r := range runs {
		if r.StartedAt().IsZero() {
			t.Errorf("%s: start time unknown", r.ID())
		}
		again, err := s.Start(t.Context(), specs[r.ID()])
		if err != nil || again != r {
			t.Errorf("%s: a second Start gave %v, %v", r.ID(), again, err)
		}
		if r.ID() == "stopped" {
			await(t, r, "ran\n")
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
		}
	}
	for id, want := range map[string]struct {
		reason sandbox.Reason
		code   int
		output string
	}{"ended": {"exit", 3, "ran\n"}, "ending": {"exit", 4, "ran\n"}, "stopped": {"stopped", 5, "ran\nbye\n"}, "limited": {"wall_time", -1, "ran\n"}} {
		r, err := s.Get(id)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, wait(t, r), want.reason, want.code)
		if out := output(t, r); out != want.output {
			t.Errorf("%s: output %q, want %q", id, out, want.output)
		}
	}
	// A user id of an adopted run is not given away while it runs, and
	// records do not change any more.
	before, _ := os.ReadFile(filepath.Join(cfg.Dir, "ending", runner.ExitFile))
	s.Close()
	s2 := open(t, cfg)
	runs, err = s2.Adopt(t.Context())
	if err != nil || len(runs) != 4 {
		t.Fatalf("adopted %d runs, %v, want 4", len(runs), err)
	}
	for _, r := range runs {
		if _, ended := r.Result(); !ended {
			t.Errorf("%s has ended and is not", r.ID())
		}
	}
	if after, _ := os.ReadFile(filepath.Join(cfg.Dir, "ending", runner.ExitFile)); string(after) != string(before) || len(before) == 0 {
		t.Errorf("record changed from %s to %s", before, after)
	}
}

// TestGatewayDiesAnywhere kills the gateway in the middle of many starts:
// whatever it was doing, each command ran at most once, and exactly once if
// the gateway had said so.
func TestGatewayDiesAnywhere(t *testing.T) {
	t.Parallel()
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		cfg := config(t)
		g := startGateway(t, cfg)
		const n = 24
		for i := range n {
			g.start(small(fmt.Sprint("r", i), "echo ran"))
		}
		said := map[string]bool{}
		if round%2 == 0 {
			// As soon as so many attempts have a folder.
			for found := 0; found <= round; {
				folders, err := filepath.Glob(filepath.Join(cfg.Dir, "r*"))
				if err != nil {
					t.Fatal(err)
				}
				found = len(folders)
			}
		} else {
			for range round {
				if what, id, _ := strings.Cut(g.hear(), " "); what == "started" {
					said[id] = true
				}
			}
		}
		g.kill()
		s := open(t, cfg)
		runs, err := s.Adopt(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		never := 0
		for _, r := range runs {
			res, out := wait(t, r), output(t, r)
			switch {
			case res.Reason == "completed" && out == "ran\n":
			case res.Reason == "never_started" && out == "" && !said[r.ID()]:
				never++
			default:
				t.Errorf("%s: %+v, output %q, reported as started: %v", r.ID(), res, out, said[r.ID()])
			}
			delete(said, r.ID())
			again, err := s.Start(t.Context(), small(r.ID(), "echo ran"))
			if err != nil || again != r {
				t.Errorf("%s: a second Start gave %v, %v", r.ID(), again, err)
			}
		}
		if len(said) > 0 {
			t.Errorf("reported as started and gone: %v", said)
		}
		t.Logf("round %d: %d of %d attempts found, %d never started", round, len(runs), n, never)
	}
}

func TestRunnerDies(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	s := open(t, cfg)
	r, err := s.Start(t.Context(), small("r", "sleep 1000 & setsid sleep 1000 & echo up; sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	await(t, r, "up\n")
	claim, err := runner.ReadStarted(filepath.Join(cfg.Dir, "r"))
	if err != nil {
		t.Fatal(err)
	}
	inside := members(t, cfg, "r")
	if len(inside) < 3 {
		t.Fatalf("processes %v in the group, want 3 or more", inside)
	}
	kill9(t, claim.PID)
	res := wait(t, r)
	expect(t, res, "lost", -1)
	if res.StartedAt.IsZero() || res.CPU <= 0 || res.OutputBytes != 3 {
		t.Errorf("result %+v", res)
	}
	for _, pid := range inside {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(b), ") Z ") {
			t.Errorf("process %d is still there: %s", pid, b)
		}
	}
	if left := members(t, cfg, "r"); left != nil {
		t.Errorf("group is still there with %v", left)
	}
	again, err := s.Start(t.Context(), small("r", "echo again"))
	if err != nil || again != r || output(t, r) != "up\n" {
		t.Errorf("a second Start gave %v, %v", again, err)
	}
}

func TestGatewayAndRunnerDie(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	g := startGateway(t, cfg)
	g.start(small("r", "echo up; sleep 1000"))
	if got := g.hear(); got != "started r" {
		t.Fatal(got)
	}
	g.kill()
	claim, err := runner.ReadStarted(filepath.Join(cfg.Dir, "r"))
	if err != nil {
		t.Fatal(err)
	}
	kill9(t, claim.PID)
	s := open(t, cfg)
	r, err := s.Start(t.Context(), small("r", "echo again"))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, wait(t, r), "lost", -1)
	if out := output(t, r); out != "up\n" && out != "" {
		t.Errorf("output %q", out)
	}
}

// TestAttemptsCutShort makes the folders a crash at each point leaves.
func TestAttemptsCutShort(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	s := open(t, cfg)
	res, _ := run(t, s, small("model", "echo ran"))
	expect(t, res, "completed", 0)
	model, err := os.ReadFile(filepath.Join(cfg.Dir, "model", runner.SpecFile))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	for id, files := range map[string]map[string]string{
		"folder":   {},
		"torn":     {runner.SpecFile: string(model[:len(model)/2])},
		"spec":     {runner.SpecFile: "%"},
		"unstop":   {runner.SpecFile: "%", runner.StopFile: ""},
		"claimed":  {runner.SpecFile: "%", runner.StartedFile: `{"pid":1,"start_ticks":1}` + "\n", runner.LogPrefix + "0": "half a li"},
		"tornmark": {runner.SpecFile: "%", runner.StartedFile: `{"pi`},
		"reused":   {runner.SpecFile: "%", runner.StartedFile: fmt.Sprintf(`{"pid":%d,"start_ticks":1,"started_at":5000000}`, os.Getpid())},
		"damaged":  {runner.SpecFile: "%", runner.StartedFile: "", runner.ExitFile: "{"},
	} {
		dir := filepath.Join(cfg.Dir, id)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			text = strings.Replace(text, "%", strings.ReplaceAll(string(model), "model", id), 1)
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Mkdir(filepath.Join(cfg.Dir, ".trash-old"), 0o700); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	for id, want := range map[string]sandbox.Reason{"folder": "never_started", "torn": "never_started", "spec": "never_started",
		"unstop": "stopped", "claimed": "lost", "tornmark": "lost", "reused": "lost", "damaged": "lost", "model": "completed"} {
		r, err := s.Start(t.Context(), small(id, "echo ran"))
		if err != nil {
			t.Fatal(err)
		}
		res, ended := r.Result()
		if !ended || res.Reason != want {
			t.Errorf("%s: ended %v with %+v, want %s", id, ended, res, want)
		}
		out := map[string]string{"model": "ran\n", "claimed": "half a li"}[id]
		if got := output(t, r); got != out || id != "model" && res.OutputBytes != int64(len(out)) {
			t.Errorf("%s: output %q, counted %d, want %q", id, got, res.OutputBytes, out)
		}
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, ".trash-old")); err == nil {
		t.Error("the rest of a removed run is still there")
	}
}

// TestLeftoverGroupsAreRemoved: their folder was lost with the power.
func TestLeftoverGroupsAreRemoved(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	open(t, cfg).Close()
	parents, err := filepath.Glob("/sys/fs/cgroup/*/yunhe/" + cfg.GatewayID)
	if err != nil || len(parents) == 0 {
		t.Skip("skipped: no cgroup v1 hierarchies here:", err)
	}
	squatter := exec.Command("sleep", "1000")
	if err := squatter.Start(); err != nil {
		t.Fatal(err)
	}
	for _, p := range parents {
		if err := os.Mkdir(filepath.Join(p, "gone"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(p, "gone", "cgroup.procs"), []byte(strconv.Itoa(squatter.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- squatter.Wait() }()
	s := open(t, cfg)
	if _, err := s.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the process inside was not killed")
	}
	if left := members(t, cfg, "gone"); left != nil {
		t.Errorf("group is still there with %v", left)
	}
}

// members returns the processes in an attempt's memory group, nil if the
// group is gone.
func members(t *testing.T, cfg sandbox.Config, id string) []int {
	t.Helper()
	for _, parent := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"} {
		b, err := os.ReadFile(filepath.Join(parent, "yunhe", cfg.GatewayID, id, "cgroup.procs"))
		if err != nil {
			continue
		}
		pids := []int{}
		for _, f := range strings.Fields(string(b)) {
			n, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, n)
		}
		return pids
	}
	return nil
}

func kill9(t *testing.T, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
}
