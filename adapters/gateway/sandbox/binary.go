package sandbox

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
	"yunhe.dev/yunhe/internal/fault"
)

// programs holds bin/runner where the build made it first (see Makefile).
//
//go:embed all:bin
var programs embed.FS

// runnerCommand returns how to start a runner: the program embedded here,
// unpacked below dir, or else this very program with first argument
// "runner", which starts slower and needs more memory.
func runnerCommand(dir string) ([]string, error) {
	b, err := programs.ReadFile("bin/runner")
	if errors.Is(err, fs.ErrNotExist) {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find own program: %w", err)
		}
		return []string{self, "runner"}, nil
	}
	if err != nil {
		return nil, err
	}
	// Named by content: runners of an older gateway keep their own.
	sum := sha256.Sum256(b)
	path := filepath.Join(dir, ".runner-"+hex.EncodeToString(sum[:8]))
	if old, err := os.ReadFile(path); err == nil && sha256.Sum256(old) == sum {
		return []string{path}, nil
	}
	// A process forked meanwhile would hold the file open for writing until its
	// exec, and nobody could run it ("text file busy").
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	tmp, err := os.CreateTemp(dir, ".tmp-*")
	if err != nil {
		return nil, fmt.Errorf("unpack runner: %w", err)
	}
	defer os.Remove(tmp.Name()) // fails once renamed
	_, err = tmp.Write(b)
	if err == nil {
		err = tmp.Chmod(0o755)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return nil, fmt.Errorf("unpack runner: %w", err)
	}
	return []string{path}, nil
}

// checkRunner makes sure that the program runs here and speaks our protocol.
func checkRunner(command []string) error {
	c := exec.Command(command[0], append(command[1:len(command):len(command)], "version")...)
	c.Env = runnerEnv
	out, err := c.Output()
	want := fmt.Sprint("yunhe-runner ", runner.Version)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "the runner %s does not run (is its file system mounted noexec?)", command[0])
	}
	if got := strings.TrimSpace(string(out)); got != want {
		return fault.New(fault.Unavailable, "the runner %s answers %q, want %q", command[0], got, want)
	}
	return nil
}

// runnerEnv keeps a runner small: it mostly waits, so one processor and a
// collector that only works when there is something to collect suffice.
var runnerEnv = []string{"GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=12MiB", "GOTRACEBACK=single"}
