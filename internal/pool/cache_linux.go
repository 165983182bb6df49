package pool

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// Drivers keep what they compiled, and what they need for a moment, in folders of
// the node's: they are not those of the user's other programs, and what drivers
// leave behind there goes.

const (
	// tidyEvery is how often the node looks for what drivers left behind, and how
	// old that is where no worker runs; mayUse where some do, which may need it.
	tidyEvery = 10 * time.Second
	mayUse    = time.Hour

	// weighEvery is how often it looks how much they keep.
	weighEvery = 10 * time.Minute
)

// caches are the folders that drivers are told to use, by the names of the
// environment that tell them. Workers may write there only ([worker.Confine]).
func caches(dir string) map[string]string {
	all := map[string]string{"TMPDIR": "tmp", "XDG_CACHE_HOME": "", "POCL_CACHE_DIR": "pocl", "CUDA_CACHE_PATH": "nvidia", "MESA_SHADER_CACHE_DIR": "mesa"}
	for name, folder := range all {
		all[name] = filepath.Join(dir, "cache", folder)
	}
	return all
}

func makeCaches(dir string) error {
	for _, folder := range caches(dir) {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fault.Wrap(fault.Invalid, err, "%s cannot be made", folder)
		}
	}
	for _, name := range []string{"proc", "sys"} {
		link := filepath.Join(machine(dir), name)
		err := os.MkdirAll(machine(dir), 0o700)
		if err == nil {
			err = os.Symlink("/"+name, link)
		}
		if err != nil && !os.IsExist(err) {
			return fault.Wrap(fault.Invalid, err, "%s cannot be made", link)
		}
	}
	return nil
}

// machine is a folder in which hwloc, by which PoCL knows processors and memory, finds
// what it looks for in the root, which workers may not open.
func machine(dir string) string { return filepath.Join(dir, "machine") }

// workerEnv is the environment of workers of a node with this folder. Folders that
// the node's own names for the cache of one driver are used. Whoever starts a node
// with the pool's own vendor library set must not have workers find that.
func workerEnv(dir string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "YUNHE_POOL_") {
			env = append(env, e)
		}
	}
	for name, folder := range caches(dir) {
		if os.Getenv(name) == "" || name == "TMPDIR" || name == "XDG_CACHE_HOME" { // of the same names the last counts
			env = append(env, name+"="+folder)
		}
	}
	if os.Getenv("HWLOC_FSROOT") == "" {
		env = append(env, "HWLOC_FSROOT="+machine(dir), "HWLOC_THISSYSTEM=1")
	}
	return env
}

// tidy removes what drivers left behind in the node's folders: those of PoCL
// leave an empty file for each program that they built.
func (n *Node) tidy(now time.Time) {
	before := n.unused(now)
	folders := caches(n.cfg.Dir)
	left, _ := filepath.Glob(filepath.Join(folders["TMPDIR"], "*"))
	drivers, _ := filepath.Glob(filepath.Join(folders["POCL_CACHE_DIR"], "tempfile*"))
	for _, path := range append(left, drivers...) {
		if f, err := os.Lstat(path); err == nil && f.ModTime().Before(before) {
			_ = os.RemoveAll(path) // or the next time
		}
	}
}

// unused is the time since when no worker can have used what is older.
func (n *Node) unused(now time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := now.Add(-tidyEvery)
	for _, all := range []map[string]*task{n.tasks, n.arriving} {
		for _, t := range all {
			if slices.ContainsFunc(t.workers[:], func(p *proc) bool { return p != nil }) {
				before = now.Add(-mayUse)
			}
		}
	}
	return before
}

// weigh bounds what is kept until ctx is done.
func (n *Node) weigh(ctx context.Context) {
	tick := time.NewTicker(weighEvery)
	defer tick.Stop()
	for now := time.Now(); ; {
		n.bound(now)
		select {
		case <-ctx.Done():
			return
		case now = <-tick.C:
		}
	}
}

// compiled is what a driver keeps of one program.
type compiled struct {
	path  string
	bytes int64
	used  time.Time
}

// bound removes programs that PoCL compiled, those first that were used longest
// ago, until a tenth is free of what may be kept: other drivers bound theirs
// themselves. What a worker may be using stays, however much there is.
func (n *Node) bound(now time.Time) {
	all, err := filepath.Glob(filepath.Join(caches(n.cfg.Dir)["POCL_CACHE_DIR"], "*", "*"))
	if err != nil || n.cfg.Cache <= 0 {
		return
	}
	before, total := n.unused(now), int64(0)
	var list []compiled
	for _, path := range all {
		c := compiled{path: path}
		_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil // it is going, or not what takes room
			}
			if f, err := d.Info(); err == nil {
				if c.bytes += f.Size(); f.ModTime().After(c.used) {
					c.used = f.ModTime()
				}
			}
			return nil
		})
		total += c.bytes
		list = append(list, c)
	}
	if total <= n.cfg.Cache {
		return
	}
	slices.SortFunc(list, func(a, b compiled) int { return a.used.Compare(b.used) })
	removed := 0
	for _, c := range list {
		if total <= n.cfg.Cache/10*9 || !c.used.Before(before) {
			break
		}
		if err := os.RemoveAll(c.path); err != nil {
			n.log.Warn("a compiled program cannot be removed", "path", c.path, "error", err)
			continue
		}
		total -= c.bytes
		removed++
	}
	n.log.Info("compiled programs removed", "programs", removed, "bytes_left", total)
}
