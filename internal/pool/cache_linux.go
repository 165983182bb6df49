package pool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/fault"
)

// Drivers keep what they compiled, and what they need for a moment, in folders of
// the node's: they are not those of the user's other programs, and what drivers
// leave behind there goes.
//
// Each group has folders of its own, which workers of others may neither read nor
// write: what a driver finds in its cache it runs, and a program can have anything
// put there, by a binary that says what it was made of, or a kernel that is the
// worker's code, as on processors.

const (
	// tidyEvery is how often the node looks for what drivers left behind, and how
	// old that is where no worker runs; mayUse where some do, which may need it.
	tidyEvery = 10 * time.Second
	mayUse    = time.Hour

	// weighEvery is how often it looks how much they keep.
	weighEvery = 10 * time.Minute

	// cacheKept is how long a group's cache is kept that has no program here.
	cacheKept = 30 * 24 * time.Hour
)

// owner is whose a cache is: a group's, "" of who may use a node without groups. The
// node's own programs have one, too.
func owner(group string) string {
	if group == "" {
		return "all"
	}
	sum := sha256.Sum256([]byte(group)) // a name may be none of a folder
	return hex.EncodeToString(sum[:12])
}

const nodes = "node"

// caches are the folders of an owner that drivers are told to use, by the names of the
// environment that tell them. Workers may write there only ([worker.Confine]).
func caches(dir, owner string) map[string]string {
	all := map[string]string{"TMPDIR": "tmp", "XDG_CACHE_HOME": "", "POCL_CACHE_DIR": "pocl", "CUDA_CACHE_PATH": "nvidia", "MESA_SHADER_CACHE_DIR": "mesa"}
	for name, folder := range all {
		all[name] = filepath.Join(dir, "cache", owner, folder)
	}
	return all
}

// makeCachesOf makes what caches are, and says that they are used.
func makeCachesOf(dir, owner string) error {
	for _, folder := range caches(dir, owner) {
		if f, err := os.Lstat(folder); err == nil && !f.IsDir() {
			_ = os.Remove(folder) // a program's: where it leads is not the node's
		}
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fault.Wrap(fault.Invalid, err, "%s cannot be made", folder)
		}
	}
	_ = os.Chtimes(filepath.Join(dir, "cache", owner), time.Time{}, time.Now()) // else it goes sooner
	return nil
}

func makeCaches(dir string) error {
	if err := makeCachesOf(dir, nodes); err != nil {
		return err
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

// workerEnv is the environment of workers of a node with this folder, whose caches
// are an owner's. Folders that the node's own names for the cache of one driver are
// used, each owner's within. Whoever starts a node
// with the pool's own vendor library set must not have workers find that.
func workerEnv(dir, owner string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "YUNHE_POOL_") {
			env = append(env, e)
		}
	}
	for name, folder := range caches(dir, owner) {
		if own := os.Getenv(name); own != "" && name != "TMPDIR" && name != "XDG_CACHE_HOME" {
			folder = filepath.Join(own, owner)
		}
		env = append(env, name+"="+folder) // of the same names the last counts
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
	left := n.cached("tmp", "*")
	drivers := n.cached("pocl", "tempfile*")
	for _, path := range append(left, drivers...) {
		if f, err := os.Lstat(path); err == nil && unusedSince(before, now, f.ModTime()) {
			_ = os.RemoveAll(path) // or the next time
		}
	}
}

// cached are files of all owners' caches that are called so; those of nodes of before, which
// had one cache for all, are among them. What lies behind a link is not: a worker that was not
// confined may have made it, and it leads anywhere.
func (n *Node) cached(folder ...string) (all []string) {
	dir := filepath.Join(n.cfg.Dir, "cache")
	for _, of := range []string{"", "*"} {
		found, _ := filepath.Glob(filepath.Join(append([]string{dir, of}, folder...)...)) // the pattern is one
		all = append(all, found...)
	}
	return unlinked(dir, all)
}

// unlinked are those of some paths below a folder on whose way there is no link.
func unlinked(dir string, paths []string) []string {
	return slices.DeleteFunc(paths, func(path string) bool {
		for path = filepath.Dir(path); len(path) > len(dir); path = filepath.Dir(path) {
			if f, err := os.Lstat(path); err != nil || !f.IsDir() {
				return true
			}
		}
		return false
	})
}

// unused is the time since when no worker can have used what is older; zero: that is
// not known.
func (n *Node) unused(now time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.clock.set(now, mayUse) {
		return time.Time{}
	}
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
	taken int64 // of the disk
	used  time.Time
}

// sizeOf is how much there is below a path, and when the last of it was used.
func sizeOf(path string) compiled {
	c := compiled{path: path}
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // it is going, or not what takes room
		}
		if f, err := d.Info(); err == nil {
			c.taken += taken(f)
			if c.bytes += min(f.Size(), taken(f)); f.ModTime().After(c.used) {
				c.used = f.ModTime()
			}
		}
		return nil
	})
	return c
}

// taken is what a file takes of the disk: as long as it says it is any program can make it,
// and many that have a byte each take much.
func taken(f fs.FileInfo) int64 {
	if own, ok := f.Sys().(*syscall.Stat_t); ok {
		return own.Blocks * 512
	}
	return f.Size()
}

// bound removes programs that PoCL compiled, those first that were used longest
// ago, until a tenth is free of what may be kept: other drivers bound theirs
// themselves. What a worker may be using stays, however much there is.
func (n *Node) bound(now time.Time) {
	n.forgetCaches(now)
	if n.cfg.Cache <= 0 {
		return
	}
	all := n.cached("pocl", "*", "*")
	before, total := n.unused(now), int64(0)
	var list []compiled
	for _, path := range all {
		c := sizeOf(path)
		total += c.bytes
		list = append(list, c)
	}
	if total <= n.cfg.Cache {
		return
	}
	slices.SortFunc(list, func(a, b compiled) int { return a.used.Compare(b.used) })
	removed := 0
	for _, c := range list {
		if total <= n.cfg.Cache/10*9 {
			break
		}
		if !unusedSince(before, now, c.used) {
			continue
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

// spare keeps programs from filling the disk for all: when little of it is free, what is
// in caches of groups without programs goes and, if that is not enough, the programs of the
// group end that has most there, if that is what is missing. What they have goes the next time.
func (n *Node) spare() {
	free, least := n.diskFree()
	if free >= least {
		return
	}
	used, hidden := n.owners(), n.nameless()
	worst, most := "", int64(0)
	for _, tmp := range n.cached("tmp") {
		dir := filepath.Dir(tmp)
		name := filepath.Base(dir)
		bytes := sizeOf(dir).taken + hidden[name]
		switch {
		case name == nodes, dir == filepath.Join(n.cfg.Dir, "cache"): // of a node of before
		case !used[name] && bytes > 0:
			emptied(dir)
			n.log.Warn("a cache is emptied, as the disk is full", "path", dir, "bytes", bytes, "bytes_free", free)
		case used[name] && bytes > most:
			worst, most = name, bytes
		}
	}
	if free, least = n.diskFree(); free >= least || most < least-free {
		return
	}
	n.mu.Lock()
	tasks := n.sorted()
	n.mu.Unlock()
	for _, t := range tasks {
		if owner(t.Group) == worst {
			n.end(t, fmt.Sprintf(Released+"the node's disk is full, and programs of its group have %d MiB of compiled and temporary files there", most/mib))
		}
	}
}

// nameless is what files of the node's folder take that workers have open, or mapped, and
// that have no name any more, by the owners of their caches.
func (n *Node) nameless() map[string]int64 {
	root, err := filepath.EvalSymlinks(n.cfg.Dir)
	if err != nil {
		root = n.cfg.Dir
	}
	pids := map[int]string{}
	n.mu.Lock()
	for _, t := range n.sorted() {
		for _, p := range t.workers {
			if p != nil && p.process != nil {
				pids[p.process.Pid] = owner(t.Group)
			}
		}
	}
	n.mu.Unlock()
	type file struct{ dev, ino uint64 }
	bytes, counted := map[string]int64{}, map[file]bool{}
	for pid, name := range pids {
		opened, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		mapped, _ := filepath.Glob(fmt.Sprintf("/proc/%d/map_files/*", pid))
		for _, path := range slices.Concat(opened, mapped) {
			at, err := os.Readlink(path)
			if err != nil || !strings.HasPrefix(at, root+"/") || !strings.HasSuffix(at, " (deleted)") {
				continue
			}
			f, err := os.Stat(path)
			if err != nil {
				continue // closed meanwhile
			}
			if is, ok := f.Sys().(*syscall.Stat_t); ok && !counted[file{is.Dev, is.Ino}] {
				counted[file{is.Dev, is.Ino}] = true
				bytes[name] += taken(f)
			}
		}
	}
	return bytes
}

// emptied removes what is in an owner's folders. These stay: a program may start just now.
func emptied(dir string) {
	for _, pattern := range []string{"*", "*/*"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is one
		for _, path := range unlinked(dir, found) {
			if f, err := os.Lstat(path); err == nil && (pattern != "*" || !f.IsDir()) {
				_ = os.RemoveAll(path) // or the next time
			}
		}
	}
}

// diskFree is how many bytes are free where the node has its files, and how many should be.
func (n *Node) diskFree() (free, least int64) {
	var fs unix.Statfs_t
	if err := unix.Statfs(n.cfg.Dir, &fs); err != nil {
		return 0, 0
	}
	return int64(fs.Bavail) * fs.Bsize, min(int64(fs.Blocks)*fs.Bsize/20, 512*mib)
}

// forgetCaches removes the caches of groups that have had no program here for a while.
func (n *Node) forgetCaches(now time.Time) {
	used := n.owners()
	for _, tmp := range n.cached("tmp") {
		dir := filepath.Dir(tmp)
		if f, err := os.Lstat(dir); err != nil || used[filepath.Base(dir)] || dir == filepath.Join(n.cfg.Dir, "cache") || now.Sub(f.ModTime()) < cacheKept {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			n.log.Warn("a cache cannot be removed", "path", dir, "error", err)
		}
	}
}

// owners are those whose caches may be in use.
func (n *Node) owners() map[string]bool {
	used := map[string]bool{nodes: true}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, all := range []map[string]*task{n.tasks, n.arriving} {
		for _, t := range all {
			used[owner(t.Group)] = true
		}
	}
	return used
}
