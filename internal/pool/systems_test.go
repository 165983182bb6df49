//go:build linux

package pool_test

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"testing"

	"yunhe.dev/yunhe/internal/pool"
)

// apart are functions that glibc had in libraries apart before 2.34. Before 2.30 it
// looks for each in the library that the file says, and nowhere else.
var apart = map[string]*regexp.Regexp{
	"libpthread.so.0": regexp.MustCompile(`^pthread_(create|join|detach|once|sigmask|mutex_trylock|key_\w+|[gs]etspecific|condattr_setclock)$`),
	"librt.so.1":      regexp.MustCompile(`^(clock|timer|shm)_`),
	"libdl.so.2":      regexp.MustCompile(`^dl[a-z]+$`),
}

// TestOldSystems: the libraries that are loaded into programs, whose images may be
// old, ask glibc for nothing that CentOS 6 does not have (on ARM: CentOS 7), and for
// each function where that has it. So does the program of pool conformance on x86-64.
func TestOldSystems(t *testing.T) {
	t.Parallel()
	if !pool.Built() {
		t.Skip("SKIPPED: the accelerator pool was not built (scripts/pool.sh needs gcc and opencl-c-headers)")
	}
	newest, files := 17, []string{"libyunhe-pool.so", "libOpenCL.so.1", "libyunhe-cuda.so", "libyunhe-cuda-remote.so"}
	if runtime.GOARCH == "amd64" {
		newest, files = 12, append(files, "yunhe-pool-program")
	}
	for _, name := range files {
		packed, err := os.Open("programs/" + name + ".gz")
		if err != nil {
			t.Fatal(err)
		}
		unpacked, err := gzip.NewReader(packed)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(unpacked)
		_ = packed.Close()
		if err != nil {
			t.Fatal(err)
		}
		f, err := elf.NewFile(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := f.ImportedSymbols()
		if err != nil || len(symbols) == 0 {
			t.Fatalf("%s: %d symbols, %v", name, len(symbols), err)
		}
		for _, s := range symbols {
			var minor int
			if n, _ := fmt.Sscanf(s.Version, "GLIBC_2.%d", &minor); n == 1 && minor > newest {
				t.Errorf("%s needs %s of %s", name, s.Name, s.Version)
			}
			for library, has := range apart {
				if has.MatchString(s.Name) && s.Library != library {
					t.Errorf("%s needs %s of %q, which is in %s", name, s.Name, s.Library, library)
				}
			}
		}
	}
}
