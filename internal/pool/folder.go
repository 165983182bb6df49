package pool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"yunhe.dev/yunhe/internal/fault"
)

// LibraryFolder makes a folder for the client libraries in which nobody but this
// process's user can put anything, as programs load what is there: the user's cache
// ($XDG_CACHE_HOME, $HOME/.cache), or, where there is none or others may write there, as
// services and cron have it, one of the user's own beside those of others
// ($TMPDIR/yunhe-UID). fault.Denied: none of them is the user's alone.
func LibraryFolder(env func(string) string) (string, error) {
	type place struct {
		base string
		path []string
	}
	var places []place
	if x := env("XDG_CACHE_HOME"); filepath.IsAbs(x) {
		places = append(places, place{x, []string{"yunhe", "pool"}})
	}
	if x := env("HOME"); filepath.IsAbs(x) {
		places = append(places, place{x, []string{".cache", "yunhe", "pool"}})
	}
	tmp := env("TMPDIR")
	if !filepath.IsAbs(tmp) {
		tmp = "/tmp"
	}
	places = append(places, place{tmp, []string{"yunhe-" + strconv.Itoa(os.Geteuid()), "pool"}})
	var why []string
	for _, p := range places {
		dir, err := ownFolder(p.base, p.path...)
		if err == nil {
			return dir, nil
		}
		why = append(why, err.Error())
	}
	return "", fault.New(fault.Denied, "there is no folder for the client libraries that only this user writes in: %s; set XDG_CACHE_HOME to one", strings.Join(why, "; "))
}

// ownFolder makes folders in a folder, each of which only this user, or root, may
// change. The first may be common to all, if it keeps what is in it for its owner (as
// /tmp does).
func ownFolder(base string, path ...string) (string, error) {
	if err := os.MkdirAll(base, 0o700); err != nil {
		return "", err
	}
	if err := onlyOurs(base, true); err != nil {
		return "", err
	}
	dir := base
	for _, name := range path {
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		if err := onlyOurs(dir, false); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// onlyOurs says how others may change a folder, or what it is a link to; nil: they may not.
// A group that is this process's own is no other.
func onlyOurs(dir string, common bool) error {
	for _, look := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
		info, err := look(dir)
		if err != nil {
			return err
		}
		own, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: its owner is not known", dir)
		}
		if uid := int(own.Uid); uid != 0 && uid != os.Geteuid() {
			return fmt.Errorf("%s belongs to user %d", dir, uid)
		}
		if info.Mode().Type() == fs.ModeSymlink {
			continue // its own mode means nothing
		}
		mode := info.Mode()
		group := mode&0o020 != 0 && own.Gid != 0 && int(own.Gid) != os.Getegid()
		switch {
		case !info.IsDir():
			return fmt.Errorf("%s is no folder", dir)
		case (group || mode&0o002 != 0) && !(common && mode&fs.ModeSticky != 0):
			return fmt.Errorf("others may write in %s (%s)", dir, mode)
		}
	}
	return nil
}
