//go:build linux

package pool_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pool/cards/cardstest"
)

// TestCUDAMember: a node of a platform reports its devices of CUDA; a ticket for one
// waits until its card is not lent by OpenCL any more, and is good still if it did not
// come to that; a node with such programs does not become another program.
func TestCUDAMember(t *testing.T) {
	driver := cardstest.Build(t, "cuda", "opencl")
	vendor(t, driver)
	start(t, pool.NodeConfig{})        // or it is skipped
	dir, err := os.MkdirTemp("", "yp") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	member := &pool.Member{ID: "n1", Secret: []byte("a secret of the node and its platform")}
	n, err := pool.NewNode(pool.NodeConfig{Dir: dir, Listen: []string{"unix:" + dir + "/s"}, Libraries: driver, Member: member}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended, told := make(chan error, 2), make(chan pool.Report, 1)
	go func() { ended <- n.Run(ctx) }()
	go func() {
		ended <- n.Attend(ctx, func(ctx context.Context, r pool.Report, wait time.Duration) (pool.Wanted, error) {
			select {
			case told <- r:
			default:
			}
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
			return pool.Wanted{}, nil
		})
	}()
	t.Cleanup(func() { stop(); <-ended; <-ended })
	r := <-told
	opencl := ""
	for _, d := range r.Devices {
		if d.API == pool.OpenCL && d.Bus == "0000:65:00.0" {
			opencl = d.ID
		}
	}
	if s := fmt.Sprintf("%+v", r.Devices); opencl == "" || !strings.Contains(s, "ID:cuda-1 API:cuda") {
		t.Fatalf("it reports %s", s)
	}
	pass := func(serial, device string) pool.Pass {
		t.Helper()
		text, key, err := pool.Ticket{Node: "n1", Boot: r.Boot, Epoch: r.Epoch, Serial: serial, Slice: serial, Spec: pool.Spec{Device: device, Compute: 10, Memory: mib}}.Sign(member.Secret)
		if err != nil {
			t.Fatal(err)
		}
		return pool.Pass{Slice: serial, Addresses: n.Addresses(), Host: pool.Host(), Ticket: text, Key: key}
	}
	first, _, _, _, err := pass("one", opencl).Redeem(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	two := pass("two", "cuda-1")
	if _, _, _, _, err := two.Redeem(t.Context()); fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "is lent as "+opencl) {
		t.Errorf("while it is lent by the other: %v", err)
	}
	begun := time.Now()
	time.AfterFunc(300*time.Millisecond, first.Close)
	second, task, token, at, err := two.Redeem(t.Context())
	if err != nil || task.API != pool.CUDA || task.UUID == "" || time.Since(begun) < 300*time.Millisecond {
		t.Fatalf("after %s: %v, %+v", time.Since(begun), err, task)
	}
	defer second.Close()

	program := filepath.Join(dir, "program")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-O2", "-o", program, "../../shim/test/cuda.c", "-L"+driver, "-l:libcuda.so.1", "-ldl", "-pthread").CombinedOutput(); err != nil {
		t.Fatalf("the test's program: %v: %s", err, out)
	}
	library, err := pool.CUDALibrary(dir)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "proc", "hold", "1")
	cmd.Env = append(append(os.Environ(), "LD_PRELOAD="+library, "LD_LIBRARY_PATH="+driver), pool.Environment(0, pool.CUDA, at, task.ID, token)...)
	h := hold(t, cmd)
	if got := h.line(t); got != "holds 0" {
		t.Fatal(got)
	}
	soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := n.Replace(soon, program); fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "programs of CUDA on this machine are not handed over") {
		t.Errorf("it becomes another program: %v", err)
	}
	if got := h.ask(t, "u"); got != "uses 1" {
		t.Errorf("afterwards its program %s", got)
	}
	_ = h.in.Close()
	if err := h.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestCUDALook: a program that is to take over a node finds devices of CUDA where the
// node looks for them.
func TestCUDALook(t *testing.T) {
	t.Parallel()
	if !pool.Built() {
		t.Skip("SKIPPED: the accelerator pool was not built (scripts/pool.sh needs gcc and opencl-c-headers)")
	}
	without, err := pool.Look("")
	if err != nil {
		t.Skipf("SKIPPED: no device of OpenCL: %v", err)
	}
	if with, err := pool.Look(cardstest.Build(t, "cuda")); err != nil || with != without+2 {
		t.Errorf("%d devices, of OpenCL %d: %v", with, without, err)
	}
}
