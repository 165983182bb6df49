package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files with secrets of others than this program's own are read, too, with a warning
// if others may read them.
func TestFilesWithSecrets(t *testing.T) {
	t.Parallel()
	s := startFake(t)
	for what, args := range map[string][]string{
		"the switches' communities": {"gateway", "--data", "DIR", "--switches", "FILE"},
		"the groups' keys":          {"pool", "node", "--data", "DIR", "--groups", "FILE"},
		"a key":                     {"pool", "tasks", "--node", "unix:DIR/none", "--group", "g", "--key-file", "FILE"},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "file")
		for _, mode := range []os.FileMode{0o600, 0o640, 0o604} {
			if err := errors.Join(os.WriteFile(file, []byte("none: of these\n"), 0o600), os.Chmod(file, mode)); err != nil {
				t.Fatal(err)
			}
			var given []string
			for _, a := range args {
				given = append(given, strings.NewReplacer("DIR", dir, "FILE", file).Replace(a))
			}
			c := start(t, s, nil, given...)
			c.end(t, 1)
			want := "warning: " + file + " holds " + what + " and others may read it; run `chmod 600 " + file + "`\n"
			if got := strings.Contains(c.err.String(), want); got != (mode != 0o600) {
				t.Errorf("%v, mode %o: %s", given, mode, c.err)
			}
		}
	}
}
