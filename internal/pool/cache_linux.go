package pool

import (
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
	return nil
}

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
	return env
}

// tidy removes what drivers left behind in the node's folders: those of PoCL
// leave an empty file for each program that they built.
func (n *Node) tidy(now time.Time) {
	n.mu.Lock()
	before := now.Add(-tidyEvery)
	for _, all := range []map[string]*task{n.tasks, n.arriving} {
		for _, t := range all {
			if slices.ContainsFunc(t.workers[:], func(p *proc) bool { return p != nil }) {
				before = now.Add(-mayUse)
			}
		}
	}
	n.mu.Unlock()
	folders := caches(n.cfg.Dir)
	left, _ := filepath.Glob(filepath.Join(folders["TMPDIR"], "*"))
	drivers, _ := filepath.Glob(filepath.Join(folders["POCL_CACHE_DIR"], "tempfile*"))
	for _, path := range append(left, drivers...) {
		if f, err := os.Lstat(path); err == nil && f.ModTime().Before(before) {
			_ = os.RemoveAll(path) // or the next time
		}
	}
}
