// Package backup_test is a restore drill: a platform that ran jobs is kept
// while it works, killed, and made again from the backup elsewhere.
package backup_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/enginetest"
)

// platform is `yunhe up` on a data folder.
type platform struct {
	bin, data, url string
	env            []string
	prog           *enginetest.Program
}

var address = regexp.MustCompile(`Console and API: (http://\S+)`)

// up starts a platform that keeps its state in the database, or embedded if that is "".
func up(t *testing.T, bin, data, database, listen string) *platform {
	t.Helper()
	p := &platform{bin: bin, data: data, env: []string{"YUNHE_DATA=" + data, "YUNHE_DATABASE=" + database, "NO_COLOR=1"}}
	prog, err := enginetest.StartProgram(filepath.Base(data), bin, t.TempDir(), p.env, "up", "--listen", listen)
	if err != nil {
		t.Fatal(err)
	}
	p.prog = prog
	t.Cleanup(func() {
		_ = prog.Stop() // it may have been killed
		if t.Failed() {
			log, _ := os.ReadFile(prog.Log())
			t.Logf("%s\n%s", data, log)
		}
	})
	for end := time.Now().Add(time.Minute); p.url == ""; time.Sleep(50 * time.Millisecond) {
		log, err := os.ReadFile(prog.Log())
		if err != nil || time.Now().After(end) {
			t.Fatalf("the platform does not start: %v\n%s", err, log)
		}
		if m := address.FindSubmatch(log); m != nil {
			p.url = string(m[1])
		}
	}
	return p
}

// run runs a command of the program and returns what it prints.
func (p *platform) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := p.try(t.Context(), args...)
	if err != nil {
		t.Fatalf("yunhe %s: %v", strings.Join(args, " "), err)
	}
	return out
}

func (p *platform) try(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.bin, args...)
	cmd.Env = append(append(os.Environ(), p.env...), "YUNHE_SERVER="+p.url)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, said.String())
	}
	return string(out), err
}

// submit submits a job that prints text and returns its ID.
func (p *platform) submit(t *testing.T, text string) string {
	t.Helper()
	return strings.TrimSpace(p.run(t, "job", "submit", "--name", text, "--image", "host", "--spec", "small", "--command", "echo "+text, "-o", "name"))
}

// lend starts a pool node with this machine's devices and returns a slice of it
// that is held.
func (p *platform) lend(t *testing.T, dir string) (slice string) {
	t.Helper()
	p.run(t, "pool", "group", "set", "team", "--tenant", "default", "--compute", "150")
	p.run(t, "pool", "spec", "set", "quarter", "--compute", "25", "--memory", "64MiB", "--price", "2.00")
	token := strings.TrimSpace(p.run(t, "pool", "node", "token", "-o", "name"))
	node, err := enginetest.StartProgram("node", p.bin, t.TempDir(), nil, "pool", "node", "--join", p.url, "--token", token, "--name", "n1", "--data", dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = node.Stop() // whatever it says: the test is over
		if t.Failed() {
			t.Logf("the pool node says\n%s", node.Tail())
		}
	})
	p.poll(t, "the node lends", func() bool { return strings.Contains(p.run(t, "pool", "node", "list"), "0% of 100%") })
	return strings.TrimSpace(p.run(t, "pool", "slice", "hold", "--group", "team", "--spec", "quarter", "-o", "name"))
}

func (p *platform) poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in a minute: %s", what)
		}
	}
}

func TestRestoreDrill(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a gateway needs root to isolate what it runs")
	}
	bin, err := enginetest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("embedded", func(t *testing.T) { drill(t, bin, func() string { return "" }) })
	t.Run("postgres", func(t *testing.T) { drill(t, bin, func() string { return enginetest.Postgres(t) }) })
}

// drill keeps a platform with jobs and a pool, and makes it anew; each has a
// database of its own.
func drill(t *testing.T, bin string, database func() string) {
	dir := t.TempDir()
	old := up(t, bin, filepath.Join(dir, "old"), database(), "127.0.0.1:0")
	before := old.submit(t, "before")
	old.run(t, "job", "wait", before)
	held := old.lend(t, filepath.Join(dir, "node"))
	kept := filepath.Join(dir, "backup")
	old.run(t, "backup", kept)

	// A second snapshot, while jobs come.
	var during []string
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 10 {
			during = append(during, old.submit(t, fmt.Sprintf("during%d", i)))
		}
	})
	second := strings.TrimSpace(old.run(t, "backup", kept, "-o", "name"))
	wg.Wait()
	old.run(t, "backup", "verify", kept)
	was := map[string]string{}
	facts := [][]string{{"pool", "group", "list"}, {"pool", "spec", "list", "-o", "json"}, {"pool", "policy"}, {"job", "show", before, "-o", "json"}, {"job", "logs", before}, {"job", "explain", before, "-o", "json"}, {"usage", "list", "--job", before, "-o", "json"}}
	for _, args := range facts {
		was[strings.Join(args, " ")] = old.run(t, args...)
	}
	after := old.submit(t, "after")
	if err := old.prog.Kill(); err != nil {
		t.Fatal(err)
	}

	data, fresh := filepath.Join(dir, "new"), database()
	if out, err := old.try(t.Context(), "restore", kept, second, "--data", data, "--database", fresh); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	// Gateways keep their folders; here they lie in the one that is lost.
	if err := os.Rename(filepath.Join(old.data, "gateways"), filepath.Join(data, "gateways")); err != nil {
		t.Fatal(err)
	}
	anew := up(t, bin, data, fresh, strings.TrimPrefix(old.url, "http://")) // where the pool's node looks for it
	for _, args := range facts {
		if got := anew.run(t, args...); got != was[strings.Join(args, " ")] {
			t.Errorf("yunhe %s says\n%s\nand said\n%s", strings.Join(args, " "), got, was[strings.Join(args, " ")])
		}
	}
	if out, err := anew.try(t.Context(), "job", "show", after); err == nil {
		t.Errorf("a job submitted after the backup is there: %s", out)
	}
	// What was on its way comes to its end here, and new work too.
	list := anew.run(t, "job", "list", "-o", "name")
	for _, id := range during {
		if strings.Contains(list, id) {
			anew.run(t, "job", "wait", id)
		}
	}
	last := anew.submit(t, "anew")
	anew.run(t, "job", "wait", last)
	if got := anew.run(t, "job", "logs", last); !strings.Contains(got, "anew") {
		t.Errorf("the new job says %q", got)
	}
	// The pool's node comes back by itself, and what it had lent counts.
	another := ""
	anew.poll(t, "a slice on the node that has lent one", func() bool {
		if another == "" {
			another = strings.TrimSpace(anew.run(t, "pool", "slice", "hold", "--group", "team", "--spec", "quarter", "-o", "name"))
		}
		return strings.Contains(anew.run(t, "pool", "node", "list"), "50% of 100%")
	})
	list = anew.run(t, "pool", "slice", "list")
	if !strings.Contains(list, held) || !strings.Contains(list, another) {
		t.Errorf("of the slices %s, of before, and %s the platform has\n%s", held, another, list)
	}
	anew.run(t, "pool", "slice", "release", held, another)
	anew.poll(t, "all is given back", func() bool { return strings.Contains(anew.run(t, "pool", "node", "list"), "0% of 100%") })
}
