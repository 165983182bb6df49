// Package enginetest starts the real engines that tests and benchmarks of
// Yunhe run against: PostgreSQL, an S3 server, Prometheus, a NATS cluster,
// Slurm and Kubernetes.
//
// What it keeps true:
//
//   - Every engine listens on 127.0.0.1 only, on ports nobody else was using,
//     and keeps all its state in a directory of its own. Any number of them
//     can run side by side.
//   - An engine never outlives the process that started it. Close, or the end
//     of the test, stops it in order; if the process dies, even by SIGKILL,
//     the kernel sends each engine its parent-death signal and a small shell
//     (the janitor) removes its directory.
//   - A start has a deadline. An engine that exits or is not ready in time is
//     an error that ends with the tail of the engine's own log.
//   - An engine that is not installed is a [MissingError]. The functions that
//     take a testing.TB skip the test with that text, or fail it where the
//     environment says CI=true, because there nothing may be missing but
//     Kubernetes.
//
// Each engine comes in two forms. StartX(ctx, ...) returns a value with a
// Close method, for commands; ctx bounds the start and nothing else. X(tb, ...)
// is the same for a test: it skips, fails and cleans up by itself. Engines run
// with the durability they have by default unless a comment says otherwise.
//
// scripts/deps.sh installs what is missing.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
)

// startTimeout bounds the start of one engine in a test. The slowest, the
// Kubernetes control plane, needs 4 s alone and 20 s on a loaded machine.
const startTimeout = 90 * time.Second

// MissingError says that an engine cannot run here because something it needs
// is not installed or not permitted.
type MissingError struct {
	Engine string // "PostgreSQL"
	Need   string // what was not found
	Fix    string // the command that installs it
}

// Error returns one sentence with the way out.
func (e *MissingError) Error() string {
	return fmt.Sprintf("%s cannot run here: %s; run %s", e.Engine, e.Need, e.Fix)
}

const (
	fixTest  = "`scripts/deps.sh test`"
	fixBench = "`scripts/deps.sh bench`"
)

// check skips or fails the test for err; it returns only if err is nil.
func check(tb testing.TB, err error) {
	tb.Helper()
	var missing *MissingError
	if errors.As(err, &missing) && os.Getenv("CI") != "true" {
		tb.Skipf("SKIPPED: %v (CI=true makes this a failure)", missing)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// testContext bounds the start of an engine for a test.
func testContext(tb testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(tb.Context(), startTimeout)
}

// closer is what every started engine is.
type closer interface{ Close() error }

// closeAtEnd closes c when the test ends.
func closeAtEnd(tb testing.TB, c closer) {
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Errorf("close engine: %v", err)
		}
	})
}

// find returns the path of a program: the first of dirs that has it, then
// PATH, then the system folders an unprivileged PATH leaves out.
func find(name string, dirs ...string) (string, bool) {
	for _, dir := range dirs {
		if p := filepath.Join(dir, name); executable(p) {
			return p, true
		}
	}
	if p, err := exec.LookPath(name); err == nil {
		return p, true
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if p := filepath.Join(dir, name); executable(p) {
			return p, true
		}
	}
	return "", false
}

func executable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

// builtDir is where scripts/deps.sh puts the engines it builds: .cache/engines
// of this repository, or what YUNHE_ENGINES names.
func builtDir() string {
	if dir := os.Getenv("YUNHE_ENGINES"); dir != "" {
		return dir
	}
	if root := Repository(); root != "" {
		return filepath.Join(root, ".cache", "engines")
	}
	return ""
}

// Repository is this repository's folder, "" if there is none. It is found
// from the working directory (tests run in their package's folder) and, for a
// command started elsewhere, from where this file was compiled.
func Repository() string {
	var starts []string
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		starts = append(starts, filepath.Dir(file))
	}
	for _, dir := range starts {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "scripts", "deps.sh")); err == nil {
				return dir
			}
		}
	}
	return ""
}

// ports remembers what freePort has given out in this process.
var ports struct {
	mu   sync.Mutex
	used map[int]bool
}

// freePort returns a loopback TCP port that is free now and that this process
// has not had before. It stays below the range the kernel takes for outgoing
// connections (32768 and up), which would otherwise race with the engine.
func freePort() (int, error) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	if ports.used == nil {
		ports.used = make(map[int]bool)
	}
	for range 200 {
		port := 12000 + rand.IntN(20000)
		if ports.used[port] {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return 0, fmt.Errorf("release port %d: %w", port, err)
		}
		ports.used[port] = true
		return port, nil
	}
	return 0, errors.New("no free loopback port between 12000 and 31999 in 200 tries")
}

// freePorts returns n different free ports.
func freePorts(n int) ([]int, error) {
	out := make([]int, n)
	for i := range out {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		out[i] = port
	}
	return out, nil
}
