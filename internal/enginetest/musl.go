package enginetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Musl compiles a program of OpenCL with the C library that Alpine has, musl, and returns
// where it is. Links are options for the linker; none: it opens its libraries itself.
func Musl(tb testing.TB, source string, links ...string) string {
	tb.Helper()
	if _, err := exec.LookPath("musl-gcc"); err != nil {
		tb.Skip("SKIPPED: there is no musl-gcc (musl-tools)")
	}
	dir := tb.TempDir()
	for name, at := range map[string]string{"CL": "/usr/include/CL", "linux": "/usr/include/linux", "asm-generic": "/usr/include/asm-generic", "asm": "/usr/include/*/asm"} {
		found, err := filepath.Glob(at)
		if err != nil || len(found) == 0 {
			tb.Fatalf("no headers at %s: %v", at, err)
		}
		check(tb, os.Symlink(found[0], filepath.Join(dir, name)))
	}
	program := filepath.Join(dir, strings.TrimSuffix(filepath.Base(source), ".c"))
	// What the libraries need themselves the system that they are for has.
	args := append([]string{"-std=gnu11", "-O2", "-I", dir, "-o", program, source, "-pthread", "-Wl,--unresolved-symbols=ignore-in-shared-libs"}, links...)
	if out, err := exec.CommandContext(tb.Context(), "musl-gcc", args...).CombinedOutput(); err != nil {
		tb.Fatalf("musl-gcc: %v: %s", err, out)
	}
	return program
}
