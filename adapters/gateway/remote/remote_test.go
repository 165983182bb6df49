package remote

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
)

func TestParseTarget(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Target{
		"ssh://host":                   {"me", "host", 22},
		"ssh://root@host":              {"root", "host", 22},
		"ssh://root@host:2222":         {"root", "host", 2222},
		"ssh://root@host:22/":          {"root", "host", 22},
		"ssh://admin@[2001:db8::7]:99": {"admin", "2001:db8::7", 99},
		"ssh://admin@[2001:db8::7]":    {"admin", "2001:db8::7", 22},
	} {
		got, err := ParseTarget(in, "me")
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", in, got, err, want)
		}
		if again, err := ParseTarget(got.String(), "other"); err != nil || again != got {
			t.Errorf("%q is written %q, which is read as %+v, %v", in, got, again, err)
		}
	}
	for in, want := range map[string]string{
		"host":                  "want ssh://",
		"root@host":             "want ssh://",
		"http://host":           "want ssh://",
		"ssh://":                "want ssh://",
		"ssh://root@":           "want ssh://",
		"ssh://root@host/etc":   "nothing behind the host",
		"ssh://root@host?x=1":   "nothing behind the host",
		"ssh://root@host:0":     "between 1 and 65535",
		"ssh://root@host:65536": "between 1 and 65535",
		"ssh://root@host:ssh":   "want ssh://",
		"ssh://root:pw@host":    "a password has no place",
	} {
		got, err := ParseTarget(in, "me")
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %q", in, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "pw") {
			t.Errorf("%q: the password is shown: %v", in, err)
		}
	}
	if _, err := ParseTarget("ssh://host", ""); fault.KindOf(err) != fault.Invalid {
		t.Errorf("nobody to be: %v", err)
	}
}

func TestLocal(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{"localhost": true, "127.0.0.1": true, "127.3.0.1": true, "::1": true, "10.0.0.7": false, "local": false} {
		if got := (Target{Host: host}).Local(); got != want {
			t.Errorf("%s: %v", host, got)
		}
	}
}

// Whatever is quoted is one word of a shell.
func TestQuote(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "a", "a b", "it's", `$(id) "x" \ ; &`, "a\nb", "''", "*"} {
		out, err := exec.Command("/bin/sh", "-c", "printf %s "+Quote(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q comes out as %q, %v", s, out, err)
		}
	}
}

func TestNewInstall(t *testing.T) {
	t.Parallel()
	m := &Machine{}
	for _, dir := range []string{"/opt/yunhe-gateway", "/srv/a.b_c/d-1"} {
		if _, err := NewInstall(m, dir, false); err != nil {
			t.Errorf("%q: %v", dir, err)
		}
	}
	for _, dir := range []string{"", "/", "/opt", "opt/x", "/opt/", "/opt/../etc", "/opt//x", "/opt/a b", "/opt/$x", "/opt/x\ny"} {
		if _, err := NewInstall(m, dir, false); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q: %v, want invalid", dir, err)
		}
	}
	usual, _ := NewInstall(m, DefaultDir, true)
	one, _ := NewInstall(m, "/opt/one", true)
	two, _ := NewInstall(m, "/opt/two", true)
	if usual.Unit() != "yunhe-gateway.service" || one.Unit() == two.Unit() || one.Unit() == usual.Unit() {
		t.Errorf("units %s, %s, %s", usual.Unit(), one.Unit(), two.Unit())
	}
}

// put runs the script of Put here.
func put(name string, mode int, sum, data string) (string, error) {
	cmd := exec.Command("/bin/sh", "-c", putScript(name, mode, sum))
	cmd.Stdin = strings.NewReader(data)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A file arrives whole or what was there stays, and nothing else is left.
func TestPut(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "it's a folder")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "file")
	const text = "first\n"
	h := sha256.Sum256([]byte(text))
	sum := hex.EncodeToString(h[:])
	if out, err := put(name, 0o640, sum, text); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, broken := range []string{"fir", "", "first\n\n"} {
		out, err := put(name, 0o640, sum, broken)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || !strings.Contains(out, "what arrived is damaged") {
			t.Errorf("%q arrived: %v %s", broken, err, out)
		}
	}
	got, err := os.ReadFile(name)
	st, serr := os.Stat(name)
	if err != nil || serr != nil || string(got) != text || st.Mode().Perm() != 0o640 {
		t.Errorf("%q with mode %v, %v %v", got, st.Mode(), err, serr)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the folder holds %v, %v", left, err)
	}
	if out, err := put(filepath.Join(dir, "none", "file"), 0o600, sum, text); err == nil {
		t.Errorf("put into a folder that is not there: %s", out)
	}
}

func TestFailed(t *testing.T) {
	t.Parallel()
	cause := errors.New("cut off")
	for want, f := range map[string]*Failed{
		"cat: no room left":             {Status: 1, Said: "cat:\n  no room left\n"},
		"cut off":                       {Status: -1, Err: cause},
		"exit status 7, without a word": {Status: 7},
	} {
		if f.Error() != want {
			t.Errorf("%q, want %q", f.Error(), want)
		}
	}
	if !errors.Is(&Failed{Err: cause}, cause) {
		t.Error("the cause is lost")
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	x := tail{most: 5}
	for _, s := range []string{"abc", "def", "", "0123456789"} {
		if n, err := x.Write([]byte(s)); n != len(s) || err != nil {
			t.Errorf("write %q: %d, %v", s, n, err)
		}
	}
	if x.String() != "56789" {
		t.Errorf("kept %q, want the last 5 bytes", x.String())
	}
	if got := lastLines("a\nb\nc\n", 2); got != "b\nc" {
		t.Errorf("last lines %q", got)
	}
}
