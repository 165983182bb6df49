package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
	"yunhe.dev/yunhe/internal/fault"
)

// Volume is a folder of the machine, or a file system in a file (package loopfs), that a command finds in its root and, unless
// it is read-only, can write to. What is in it belongs to one user of
// the machine ([Sandbox.VolumeUID]), whichever runs wrote it; the command sees it as its own.
type Volume struct {
	Source   string // on the host
	Path     string // in the run
	ReadOnly bool
}

const maxVolumes = 16

// systemFolders of a run belong to the sandbox or to the image.
var systemFolders = []string{"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "tmp", "usr", "var"}

func (s Spec) validateVolumes(v *violations) {
	if len(s.Volumes) > maxVolumes {
		v.add("volumes", "must be at most %d, got %d", maxVolumes, len(s.Volumes))
		return
	}
	for i, m := range s.Volumes {
		name := fmt.Sprintf("volumes[%d]", i)
		if !filepath.IsAbs(m.Source) || filepath.Clean(m.Source) != m.Source || m.Source == "/" || strings.ContainsRune(m.Source, 0) {
			v.add(name, "its source must be a clean absolute path below /, got %q", m.Source)
		}
		top, _, _ := strings.Cut(strings.TrimPrefix(m.Path, "/"), "/")
		switch {
		case !filepath.IsAbs(m.Path) || filepath.Clean(m.Path) != m.Path || m.Path == "/" || len(m.Path) > 255 || strings.ContainsRune(m.Path, 0):
			v.add(name, "its path must be a clean absolute path below /, at most 255 bytes, got %q", m.Path)
		case slices.Contains(systemFolders, top) || m.Path == runner.Dir || top == ".shm" || top == ".empty":
			v.add(name, "its path must not be what belongs to the sandbox, got %q", m.Path)
		}
		for _, o := range s.Volumes[:i] {
			if o.Path == m.Path || strings.HasPrefix(m.Path, o.Path+"/") || strings.HasPrefix(o.Path, m.Path+"/") {
				v.add(name, "%q and %q lie in one another", m.Path, o.Path)
			}
		}
	}
}

// runnerVolumes checks that the sources are there and says what the runner is told.
func runnerVolumes(list []Volume) ([]runner.Volume, error) {
	var out []runner.Volume
	for _, m := range list {
		if st, err := os.Lstat(m.Source); err != nil || !st.IsDir() && !st.Mode().IsRegular() {
			return nil, fault.Wrap(fault.Unavailable, err, "volumes: %s is no folder or file of this machine", m.Source)
		}
		out = append(out, runner.Volume{Path: m.Path, Source: m.Source, ReadOnly: m.ReadOnly})
	}
	return out, nil
}

// VolumeUID is the user, and the group, of everything in volumes: one of the
// machine that no run has.
func (s *Sandbox) VolumeUID() int { return int(s.cfg.FirstUID) - 1 }
