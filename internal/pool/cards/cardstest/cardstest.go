// Package cardstest builds what plays the makers' libraries in tests.
package cardstest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/enginetest"
)

// files are what plays each library, and the name that it is loaded by.
var files = map[string][2]string{
	"nvml": {"fakenvml.c", "libnvidia-ml.so.1"}, "dcmi": {"fakedcmi.c", "libdcmi.so"}, "cndev": {"fakecndev.c", "libcndev.so"}, "rocm-smi": {"fakersmi.c", "librocm_smi64.so"},
	"opencl": {"fakecl.c", "libfakecl.so"}, "cuda": {"fakecuda.c", "libcuda.so.1"},
}

// Build builds libraries into a folder, and skips where there is no compiler.
// Options of the compiler may follow a library's name.
func Build(t *testing.T, libraries ...string) (folder string) {
	t.Helper()
	return BuildFrom(t, filepath.Join(enginetest.Repository(), "internal/pool/cards/testdata"), libraries...)
}

// BuildFrom is Build from sources of another version, in a folder.
func BuildFrom(t *testing.T, sources string, libraries ...string) (folder string) {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("there is no gcc to build what plays the makers' libraries")
	}
	folder = t.TempDir()
	for _, l := range libraries {
		words := strings.Fields(l)
		f := files[words[0]]
		args := append([]string{"-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fPIC", "-shared", "-pthread", "-Wl,-Bsymbolic"}, words[1:]...)
		args = append(args, "-o", filepath.Join(folder, f[1]), filepath.Join(sources, f[0]))
		if out, err := exec.CommandContext(t.Context(), gcc, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", l, err, out)
		}
	}
	return folder
}
