//go:build linux

package pool_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/pool"
)

// TestCUDAFile: programs with the driver in them that others start find their cards by a
// file, as those of pool run find theirs, and are bounded by them; what they start finds
// those of the file as it is then. Where there is none, or it has not all, there is no device.
func TestCUDAFile(t *testing.T) {
	n := startCUDA(t)
	dir := t.TempDir()
	lines := func(list string, devices ...string) string {
		t.Helper()
		var lines, uuids []string
		for i, d := range devices {
			task, token := ask(t, n.unix, pool.Spec{Device: d, Compute: 30, Memory: 37 * mib})
			lines = append(lines, pool.Environment(i, pool.CUDA, n.unix, task.ID, token)...)
			uuids = append(uuids, task.UUID)
		}
		return strings.Join(append(lines, "YUNHE_POOL_CARD="+strings.Join(uuids, ","), "YUNHE_POOL_VISIBLE="+list, "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES="+list), "\n") + "\n"
	}
	file := filepath.Join(dir, pool.SliceFile)
	put := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	finds := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), n.program, args...)
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+n.library, "LD_LIBRARY_PATH="+n.driver, pool.FileVariable+"="+file)
		return cmd
	}
	none := func(when, want string) {
		t.Helper()
		if out, err := finds("dlsym", "info").CombinedOutput(); err == nil || string(out) != "yunhe pool: "+want+"cuInit: error 100\n" {
			t.Errorf("%s: %v: %s, want %q", when, err, out, want)
		}
	}
	const ended = "there is no slice: it has ended, or has no place yet: CUDA shows no device\n"
	none("before it is there", ended)
	one := lines("1", "cuda-1")
	put(file, one)
	for what, want := range map[string]string{
		"info": "devices 1, FAKE H100 at 0000:65:00.0, 37 MiB, 37 of 37 free, other 101 101, unknown 42\n",
		"fill": "filled 37, error 2\nagain 0 2\n",
		"env":  "filled 37, error 2\nagain 0 2\n",
	} {
		if got := output(t, finds("proc", what)); got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	for _, x := range []struct{ own, what, want string }{ // a program's own list, or who starts it has one
		{"", "listed", "1"}, {"", "unset", "nowhere"}, {"0", "listed", "0"}, {"1", "visible", "0"},
	} {
		cmd := finds("proc", x.what)
		if x.own != "" {
			cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+x.own)
		}
		got := output(t, cmd)
		if to := strings.Replace(x.want, "nowhere", "1", 1); got != "devices 1, at 0000:65:00.0, listed "+x.want+", to others "+to+"\n" { // a shell takes what the file says
			t.Errorf("its list is %q, %s: %q", x.own, x.what, got)
		}
	}

	// A shell whose slice has ended, and which gets another one of two cards.
	const alone, both = "0000:65:00.0, then 101\n", "0000:65:00.0 0000:17:00.0, then 101\n"
	two := lines("1,0", "cuda-1", "cuda-0")
	put(file+".two", two)
	const script = `"$0" proc shows; mv "$1.two" "$1"; "$0" proc shows; CUDA_VISIBLE_DEVICES=0 "$0" proc shows; rm "$1"; "$0" proc shows`
	shell := finds("-c", script, n.program, file)
	shell.Path, shell.Args[0] = "/bin/sh", "sh"
	if out, err := shell.CombinedOutput(); err == nil || string(out) != alone+both+"0000:17:00.0, then 101\nyunhe pool: "+ended+"cuInit: error 100\n" {
		t.Errorf("a shell that outlives its slice: %v: %q", err, out)
	}

	// Whatever is written, nothing but whole lines counts.
	noise := strings.Repeat("x", 1<<20)
	for when, text := range map[string]string{"empty": "", "cut in a token": two[:strings.Index(two, "TOKEN=")+40], "without an end": noise, "of zeros": strings.Repeat("\x00", 4096), "behind noise": noise + "\n" + two, "binary": "\x00\xff\n=\n\n" + two} {
		put(file, text)
		none("a file that is "+when, ended)
	}
	second := strings.Index(two, "YUNHE_POOL_ADDRESS_2")
	for text, want := range map[string]string{two + noise: both, two[:second+70]: alone} {
		put(file, text)
		if got := output(t, finds("proc", "shows")); got != want {
			t.Errorf("with %.600q: got %q, want %q", text, got, want)
		}
	}
	fields := strings.Split(one, "\n")
	token := slices.IndexFunc(fields, func(s string) bool { return strings.HasPrefix(s, "YUNHE_POOL_TOKEN=") })
	fields[token] = "YUNHE_POOL_TOKEN=" + strings.Repeat("0", 64)
	put(file, strings.Join(fields, "\n"))
	none("a wrong token", "the pool node has no such task with this token\n")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	none("a folder", ended)
}
