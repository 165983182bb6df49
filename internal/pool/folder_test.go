//go:build linux

package pool

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
)

// TestLibraryFolder: libraries go where nobody else can put any, or nowhere.
func TestLibraryFolder(t *testing.T) {
	t.Parallel()
	own := "yunhe-" + strconv.Itoa(os.Geteuid())
	folder := func(dir string, mode os.FileMode) string {
		t.Helper()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
		return dir
	}
	const all = 0o777 | os.ModeSticky
	for _, c := range []struct {
		name string
		make func(root string) (env map[string]string, want string) // "": none
		says string
	}{
		{"the cache that is named", func(root string) (map[string]string, string) {
			return map[string]string{"XDG_CACHE_HOME": root + "/xdg", "HOME": root + "/home"}, root + "/xdg/yunhe/pool"
		}, ""},
		{"the user's home", func(root string) (map[string]string, string) {
			return map[string]string{"XDG_CACHE_HOME": "relative", "HOME": root + "/home"}, root + "/home/.cache/yunhe/pool"
		}, ""},
		{"a cache on another disk", func(root string) (map[string]string, string) {
			folder(root+"/home", 0o755)
			if err := os.Symlink(folder(root+"/disk", 0o700), root+"/home/.cache"); err != nil {
				t.Fatal(err)
			}
			return map[string]string{"HOME": root + "/home"}, root + "/home/.cache/yunhe/pool"
		}, ""},
		{"no home", func(root string) (map[string]string, string) {
			return map[string]string{"TMPDIR": folder(root+"/tmp", all)}, root + "/tmp/" + own + "/pool"
		}, ""},
		{"a home that is not there", func(root string) (map[string]string, string) {
			return map[string]string{"HOME": "/proc/no/home", "TMPDIR": folder(root+"/tmp", all)}, root + "/tmp/" + own + "/pool"
		}, ""},
		{"a home that all share", func(root string) (map[string]string, string) {
			folder(root+"/tmp/.cache", 0o777)
			return map[string]string{"HOME": folder(root+"/tmp", all), "TMPDIR": root + "/tmp"}, root + "/tmp/" + own + "/pool"
		}, ""},
		{"one that others may write in", func(root string) (map[string]string, string) {
			folder(root+"/tmp/"+own, 0o777)
			return map[string]string{"TMPDIR": folder(root+"/tmp", all)}, ""
		}, "others may write in"},
		{"one within which others may", func(root string) (map[string]string, string) {
			folder(root+"/tmp/"+own+"/pool", 0o772)
			return map[string]string{"TMPDIR": folder(root+"/tmp", all)}, ""
		}, "others may write in"},
		{"a common one that keeps nothing for its owner", func(root string) (map[string]string, string) {
			return map[string]string{"TMPDIR": folder(root+"/tmp", 0o777)}, ""
		}, "others may write in"},
		{"a file in its place", func(root string) (map[string]string, string) {
			folder(root+"/tmp", all)
			if err := os.WriteFile(root+"/tmp/"+own, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return map[string]string{"TMPDIR": root + "/tmp"}, ""
		}, "is no folder"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env, want := c.make(t.TempDir())
			got, err := LibraryFolder(func(name string) string { return env[name] })
			switch {
			case want == "" && (fault.KindOf(err) != fault.Denied || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "XDG_CACHE_HOME")):
				t.Errorf("it is %q, %v, want a refusal with %q", got, err, c.says)
			case want != "" && (err != nil || got != want):
				t.Errorf("it is %q, %v, want %s", got, err, want)
			}
		})
	}
}

// TestLibraryFolderOfAnother: what another user has put there is not used. Needs root.
func TestLibraryFolderOfAnother(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root makes what belongs to others")
	}
	tmp := filepath.Join(t.TempDir(), "tmp")
	planted := filepath.Join(tmp, "yunhe-0")
	if err := os.MkdirAll(planted, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tmp, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	refused := func(what string) {
		t.Helper()
		got, err := LibraryFolder(func(name string) string { return map[string]string{"TMPDIR": tmp}[name] })
		if fault.KindOf(err) != fault.Denied || !strings.Contains(err.Error(), planted+" belongs to user 4711") {
			t.Errorf("%s: it is %q, %v", what, got, err)
		}
	}
	if err := os.Chown(planted, 4711, 4711); err != nil {
		t.Fatal(err)
	}
	refused("a folder")
	if err := os.Rename(planted, tmp+"/mine"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(tmp+"/mine", 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(tmp+"/mine", planted); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(planted, 4711, 4711); err != nil {
		t.Fatal(err)
	}
	refused("a link")
}
