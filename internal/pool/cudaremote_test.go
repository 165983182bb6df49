//go:build linux

package pool_test

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/pool"
)

// These tests run a real program of CUDA (shim/test/cudaremote.c) without the
// driver: a worker at the node has that, which is a stand-in (fakecuda.c). Nothing
// here says how cards behave.

// remoteNode is a node that plays two cards, and a program that has no driver.
type remoteNode struct {
	cudaNode
	far string // the program
	elf string // code for it
}

func startRemote(t *testing.T, options ...string) remoteNode {
	t.Helper()
	n := remoteNode{cudaNode: startCUDAWith(t, "cuda "+strings.Join(options, " ")), far: filepath.Join(t.TempDir(), "cudaremote"), elf: filepath.Join(t.TempDir(), "code")}
	if out, err := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", n.far, "../../shim/test/cudaremote.c", "-L"+n.driver, "-l:libcuda.so.1", "-ldl", "-pthread").CombinedOutput(); err != nil {
		t.Fatalf("the test's program: %v: %s", err, out)
	}
	if err := os.WriteFile(n.elf, cubin(), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

// share asks for a task at an address and returns it with what runs the program on it.
func (n remoteNode) share(t *testing.T, at string, s pool.Spec) (pool.Task, func(args ...string) *exec.Cmd) {
	t.Helper()
	task, token := ask(t, at, s)
	return task, func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), n.far, args...)
		cmd.Env = append(append(os.Environ(), pool.RemoteCUDAEnvironment(n.remote, "", "")...), pool.Environment(0, at, task.ID, token)...)
		return cmd
	}
}

// native runs the program with the driver itself.
func (n remoteNode) native(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), n.far, args...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+n.driver)
	return output(t, cmd)
}

// cubin is an ELF file in the form of CUDA's code, as far as the stand-in and the
// worker look: a section for each kernel says what its arguments are.
func cubin() []byte {
	le := binary.LittleEndian
	kernels := []struct {
		name   string
		params [][2]uint32 // offset, size
	}{
		{"saxpy", [][2]uint32{{0, 8}, {8, 8}, {16, 4}, {20, 4}}}, {"fill", [][2]uint32{{0, 8}, {8, 4}, {12, 4}}}, {"sum", [][2]uint32{{0, 8}, {8, 8}, {16, 4}}},
		{"odd", [][2]uint32{{0, 1}, {8, 8}, {16, 2}, {20, 4}}}, {"wild", nil},
	}
	const header, section = 64, 64
	body := make([]byte, header)
	names := []byte("\x00.shstrtab\x00")
	sections := make([]byte, section)
	add := func(name uint32, kind uint32, text []byte) {
		s := make([]byte, section)
		le.PutUint32(s, name)
		le.PutUint32(s[4:], kind)
		le.PutUint64(s[24:], uint64(len(body)))
		le.PutUint64(s[32:], uint64(len(text)))
		le.PutUint64(s[48:], 1)
		body = append(body, text...)
		sections = append(sections, s...)
	}
	const nobits, nvInfo, strtab = 8, 0x70000000, 3
	for _, k := range kernels {
		info := []byte{3, 0x19, 24, 0}            // a form whose value is short
		for i := len(k.params) - 1; i >= 0; i-- { // as compilers have them
			info = append(info, 4, 0x17, 12, 0)
			info = le.AppendUint32(info, 0)
			info = le.AppendUint16(info, uint16(i))
			info = le.AppendUint16(info, uint16(k.params[i][0]))
			info = le.AppendUint32(info, k.params[i][1]<<18|0x1F000)
		}
		at := uint32(len(names))
		names = append(append(names, ".nv.info."+k.name...), 0)
		add(at, nvInfo, info)
	}
	at := uint32(len(names))
	names = append(append(names, ".nv.shared"...), 0)
	add(at, nobits, nil)
	le.PutUint64(sections[len(sections)-section+32:], 1<<40) // which takes no room in the file
	add(1, strtab, names)
	for len(body)%8 != 0 {
		body = append(body, 0)
	}
	n := len(sections) / section
	copy(body, "\x7fELF\x02\x01\x01")
	le.PutUint16(body[16:], 2)
	le.PutUint16(body[18:], 190) // EM_CUDA
	le.PutUint32(body[20:], 1)
	le.PutUint64(body[40:], uint64(len(body)))
	le.PutUint16(body[52:], header)
	le.PutUint16(body[58:], section)
	le.PutUint16(body[60:], uint16(n))
	le.PutUint16(body[62:], uint16(n-1))
	out := append(body, sections...)
	h := fnv.New64a()
	_, _ = h.Write(out[16:])
	le.PutUint64(out[8:], h.Sum64()) // where the stand-in looks whether all has come
	return out
}

// TestCUDARemote: a program says the same with the driver and without, on this
// machine and over TCP.
func TestCUDARemote(t *testing.T) {
	n := startRemote(t)
	for _, args := range [][]string{{"compute", n.elf}, {"copies"}, {"streams"}, {"memory"}, {"jit"}, {"threads", "8"}, {"late"}, {"wrong"}} {
		want := n.native(t, args...)
		for _, at := range []string{n.unix, n.tcp} {
			task, run := n.share(t, at, pool.Spec{Device: "cuda-1", Compute: 100, Memory: 400 * mib})
			if got := output(t, run(args...)); got != want {
				t.Errorf("%s at %s:\n%s", args[0], at, differ(got, want))
			}
			if err := dial(t, at).Stop(task.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// differ says in which lines two texts do.
func differ(a, b string) string {
	var out bytes.Buffer
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(x), len(y)) {
		var p, q string
		if i < len(x) {
			p = x[i]
		}
		if i < len(y) {
			q = y[i]
		}
		if p != q {
			out.WriteString(p + " != " + q + "\n")
		}
	}
	return out.String()
}
