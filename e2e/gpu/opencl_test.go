//go:build linux

package gpu_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// startOpenCL is start for tests of OpenCL: of the driver that the card's maker has
// (libnvidia-opencl.so.1), or of any where no card is asked for.
func startOpenCL(t *testing.T, flags ...string) *bench {
	t.Helper()
	b := start(t, flags...)
	if b.twin == "" {
		t.Skipf("SKIPPED: OpenCL shows no card of NVIDIA's: its driver's package has no libnvidia-opencl.so.1, OCL_ICD_VENDORS (%q) does not name it, or there is no loader (libOpenCL.so.1). The node said:\n%s", os.Getenv("OCL_ICD_VENDORS"), b.log)
	}
	for _, d := range b.devices() {
		if d.ID == b.twin {
			b.model = d.Model + " (OpenCL, " + d.Driver + ")"
		}
	}
	return b
}

func (b *bench) shareCL(flags string, args ...string) *exec.Cmd {
	return b.command(append(append([]string{"pool", "run", "--device", b.twin}, append(strings.Fields(flags), "--")...), append([]string{b.pool}, args...)...)...)
}

// TestOpenCLMemory: a program has its slice's memory, and no more, to 1 MiB.
func TestOpenCLMemory(t *testing.T) {
	b := startOpenCL(t)
	for _, mib := range []int{1, 37, 1234} {
		got := b.output(b.shareCL(fmt.Sprintf("--memory %dMiB", mib), "fill", "2000"))
		b.say("%d MiB: %s", mib, strings.ReplaceAll(got, "\n", " "))
		if want := fmt.Sprintf("buffers %d error -4\n", mib); !strings.HasPrefix(got, want) {
			t.Errorf("%d MiB: got %q, want %q", mib, got, want)
		}
	}
}

// TestOpenCLSame: what programs compute is what they compute natively.
func TestOpenCLSame(t *testing.T) {
	b := startOpenCL(t)
	for _, what := range []string{"add", "asks", "print"} {
		out, errs, err := b.result(b.shareCL("--memory 2048MiB", what), 2*time.Minute)
		b.say("%s: %v: %d bytes, %s", what, err, len(out), lastLine(out))
		if err != nil || strings.Contains(out, "failed") {
			t.Errorf("%s: %v: %s\n%s", what, err, out, errs)
		}
		if native, _, e := b.result(b.native(b.pool, what), 2*time.Minute); what == "add" && (e != nil || out != native) {
			t.Errorf("%s: natively %q (%v), on a share %q", what, native, e, out)
		}
	}
}

const roundsCL = 20000 // of a kernel: well below a turn

// TestOpenCLShares: programs beside each other compute by their shares.
func TestOpenCLShares(t *testing.T) {
	b := startOpenCL(t)
	args := []string{"rate", strconv.Itoa(seconds(10)), strconv.Itoa(roundsCL)}
	alone := b.rate(b.native(append([]string{b.pool}, args...)...))
	b.shares("kernels of OpenCL", alone, func(share int) *exec.Cmd {
		return b.shareCL(fmt.Sprintf("--compute %d --memory 64MiB", share), args...)
	})
}

// TestOpenCLSpeed: a program whose kernels are the most of its time is as fast on a
// whole share as without one.
func TestOpenCLSpeed(t *testing.T) {
	b := startOpenCL(t)
	args := []string{"rate", strconv.Itoa(seconds(5)), strconv.Itoa(roundsCL)}
	b.speed("kernels of OpenCL", func() float64 { return b.rate(b.native(append([]string{b.pool}, args...)...)) }, func() float64 { return b.rate(b.shareCL("--memory 64MiB", args...)) })
}

// TestOpenCLIsolation: a kernel that writes where it must not ends its own program's
// work, and its neighbor computes on, and right.
func TestOpenCLIsolation(t *testing.T) {
	b := startOpenCL(t)
	neighbor := b.ready(b.shareCL("--compute 50 --memory 256MiB", "rate", strconv.Itoa(seconds(6)), strconv.Itoa(roundsCL)))
	neighbor.tell("g\n")
	out, errs, err := b.result(b.shareCL("--compute 50 --memory 64MiB", "crash"), time.Minute)
	b.say("a kernel with an address that is none: %v, %s %s", err, strings.TrimSpace(out), lastLine(errs))
	if strings.Contains(out, "crash 0") {
		t.Errorf("it did not fail: %s", out)
	}
	b.say("its neighbor did %.1f kernels by the second", neighbor.did())
	if out := b.output(b.shareCL("--memory 512MiB", "add")); strings.Contains(out, "failed") {
		t.Errorf("afterwards: %s", out)
	}
}

// TestOpenCLMove: a program moves to another node while it computes, or stays where it
// is and the node says why; it computes right either way.
func TestOpenCLMove(t *testing.T) {
	groups := filepath.Join(t.TempDir(), "groups.yaml")
	if err := os.WriteFile(groups, []byte("groups:\n  - {name: g, key: 0123456789abcdef}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("YUNHE_POOL_GROUP", "g")
	t.Setenv("YUNHE_POOL_KEY", "0123456789abcdef")
	b := startOpenCL(t, "--groups", groups, "--listen", "tcp:127.0.0.1:0")
	args := []string{"pool", "node", "--data", filepath.Join(b.dir, "second"), "--listen", "unix:" + b.sock + "2", "--listen", "tcp:127.0.0.1:0", "--groups", groups}
	if b.libraries != "" {
		args = append(args, "--libraries", b.libraries)
	}
	b.node(args)
	at := regexp.MustCompile(`tcp:127\.0\.0\.1:\d+`).FindAllString(b.log.String(), -1)
	to := at[len(at)-1]
	walk := b.begin(b.shareCL("--memory 512MiB", "walk", "64"), "walking")
	out, errs, err := b.result(b.command("pool", "migrate", b.tasks()[0].ID, "--to", to), time.Minute)
	b.say("the move: %v %s %s", err, strings.TrimSpace(out), strings.TrimSpace(errs))
	if err != nil && !strings.Contains(errs, "error: ") {
		t.Errorf("it did not move, and nothing says why: %s", errs)
	}
	time.Sleep(time.Second)
	walk.tell("\n")
	b.say("the program: %s", walk.expect("walked"))
	if err := walk.cmd.Wait(); err != nil {
		t.Errorf("the program: %v: %s", err, &walk.err)
	}
}
