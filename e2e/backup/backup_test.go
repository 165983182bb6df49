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
	prog           *enginetest.Program
}

var address = regexp.MustCompile(`Console and API: (http://\S+)`)

func up(t *testing.T, bin, data string) *platform {
	t.Helper()
	prog, err := enginetest.StartProgram(filepath.Base(data), bin, t.TempDir(), nil, "up", "--data", data, "--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &platform{bin: bin, data: data, prog: prog}
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
	cmd.Env = append(os.Environ(), "YUNHE_DATA="+p.data, "YUNHE_SERVER="+p.url, "NO_COLOR=1")
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

func TestRestoreDrill(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a gateway needs root to isolate what it runs")
	}
	bin, err := enginetest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	old := up(t, bin, filepath.Join(dir, "old"))
	before := old.submit(t, "before")
	old.run(t, "job", "wait", before)
	kept := filepath.Join(dir, "backup")
	old.run(t, "backup", kept, "--data", old.data)

	// A second snapshot, while jobs come.
	var during []string
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 10 {
			during = append(during, old.submit(t, fmt.Sprintf("during%d", i)))
		}
	})
	second := strings.TrimSpace(old.run(t, "backup", kept, "--data", old.data, "-o", "name"))
	wg.Wait()
	old.run(t, "backup", "verify", kept)
	was := map[string]string{}
	facts := [][]string{{"job", "show", before, "-o", "json"}, {"job", "logs", before}, {"job", "explain", before, "-o", "json"}, {"usage", "list", "--job", before, "-o", "json"}}
	for _, args := range facts {
		was[strings.Join(args, " ")] = old.run(t, args...)
	}
	after := old.submit(t, "after")
	if err := old.prog.Kill(); err != nil {
		t.Fatal(err)
	}

	data := filepath.Join(dir, "new")
	if out, err := old.try(t.Context(), "restore", kept, second, "--data", data); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	// Gateways keep their folders; here they lie in the one that is lost.
	if err := os.Rename(filepath.Join(old.data, "gateways"), filepath.Join(data, "gateways")); err != nil {
		t.Fatal(err)
	}
	anew := up(t, bin, data)
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
}
