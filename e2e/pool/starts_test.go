package pool_test

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
)

// left is what platform and node have.
type left struct {
	Files, Threads, Mappings int // of both processes
	Workers, Programs        int // processes
	Stored                   int // files in the node's folder
	Lent                     int64
	MiB                      [2]int64 // memory of each
}

// processes are how many of the machine's run this file.
func processes(of string) (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range all {
		if at, err := os.Readlink(exe); err == nil && at == of {
			n++
		}
	}
	return n
}

func (w *world) left(node *exec.Cmd) (l left) {
	w.t.Helper()
	for i, p := range []*exec.Cmd{w.platform, node} {
		proc := fmt.Sprintf("/proc/%d/", p.Process.Pid)
		files, err := os.ReadDir(proc + "fd")
		must(w.t, err)
		threads, err := os.ReadDir(proc + "task")
		must(w.t, err)
		maps, err := os.ReadFile(proc + "maps")
		must(w.t, err)
		status, err := os.ReadFile(proc + "status")
		must(w.t, err)
		for _, x := range regexp.MustCompile(`(?m)^Rss(?:Anon|Shmem):\s+(\d+) kB$`).FindAllSubmatch(status, -1) {
			kib, err := strconv.ParseInt(string(x[1]), 10, 64)
			must(w.t, err)
			l.MiB[i] += kib >> 10
		}
		for _, f := range files { // the database's come and go with who reads at once
			if of, _ := os.Readlink(proc + "fd/" + f.Name()); !strings.Contains(of, "yunhe.db") {
				l.Files++
			}
		}
		l.Threads, l.Mappings = l.Threads+len(threads), l.Mappings+strings.Count(string(maps), "yunhe-pool")
	}
	must(w.t, filepath.WalkDir(filepath.Join(w.dir, "n1"), func(_ string, d fs.DirEntry, _ error) error { // what has just gone is not there
		if d != nil && !d.IsDir() {
			l.Stored++
		}
		return nil
	}))
	l.Programs, l.Workers = processes(w.bench.Program), processes(filepath.Join(w.dir, "n1", "yunhe-pool-worker"))
	nodes, err := w.bench.API.ListPoolNodes(w.t.Context(), &poolv1.ListPoolNodesRequest{})
	must(w.t, err)
	for _, d := range nodes.Nodes[0].Devices {
		l.Lent += d.ComputeLentPercent + d.MemoryLentMib
	}
	live, err := w.bench.API.ListSlices(w.t.Context(), &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{poolv1.Slice_STATE_WAITING, poolv1.Slice_STATE_ASSIGNED, poolv1.Slice_STATE_RUNNING}})
	must(w.t, err)
	l.Lent += int64(len(live.Slices))
	return l
}

// within says whether no more is left than was. Connections, threads, kernels that
// were compiled and memory come and go by themselves: of them it may be as much more
// as is far less than a little of each start.
func (l left) within(was left) bool {
	return l.Mappings <= was.Mappings && l.Workers <= was.Workers && l.Programs <= was.Programs && l.Lent <= was.Lent &&
		l.Files <= was.Files+8 && l.Threads <= was.Threads+16 && l.Stored <= was.Stored+16 && l.MiB[0] <= was.MiB[0]+48 && l.MiB[1] <= was.MiB[1]+16
}

// TestStarts: of 10,000 short programs, which end by themselves, crash, are
// killed, have too little memory or lose their slice, nothing is left after the
// last that was not left after the first hundred.
func TestStarts(t *testing.T) {
	times, err := strconv.Atoi(os.Getenv("YUNHE_TEST_POOL_STARTS"))
	if err != nil || times < 1 {
		t.Skip("SKIPPED: thousands of starts take long; make test-pool-starts runs 10,000, or YUNHE_TEST_POOL_STARTS")
	}
	w := open(t, false)
	node, _ := w.node("n1", w.vendors("one", "pocl.icd"))
	w.online(1)
	_, err = w.bench.API.SetPoolGroup(t.Context(), &poolv1.SetPoolGroupRequest{GroupId: "g", Group: &poolv1.PoolGroup{TenantIds: []string{"default"}}})
	must(t, err)
	want, err := exec.CommandContext(t.Context(), w.bench.Program, "add").CombinedOutput()
	must(t, err)

	// run is a program on a slice, which has its name.
	run := func(ctx context.Context, program string, args ...string) *exec.Cmd {
		cmd := w.bench.Yunhe(ctx, "", nil, append([]string{"pool", "run", "--weighted", "--compute", "100", "--memory", "16MiB", "--", program}, args...)...)
		cmd.Cancel = func() error { return cmd.Process.Kill() }
		return cmd
	}
	says := func(ctx context.Context, name, want string, args ...string) error {
		if out, err := run(ctx, w.bench.Program, args...).CombinedOutput(); err != nil || !strings.HasSuffix(string(out), want) {
			return fmt.Errorf("%s %v: %w, it says %q, which does not end in %q", name, args, err, out, want)
		}
		return nil
	}
	// spinning starts a program of a name that computes, and has something done to it.
	spinning := func(ctx context.Context, name string, do func(cmd *exec.Cmd) error) error {
		link := filepath.Join(w.dir, name)
		if err := os.Symlink(w.bench.Program, link); err != nil {
			return err
		}
		defer os.Remove(link)
		cmd := run(ctx, link, "spin", "60")
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err == nil && line == "spinning\n" {
			err = do(cmd)
		} else {
			err = fmt.Errorf("%s: it says %q: %w", name, line, err)
		}
		_ = cmd.Wait() // it was killed, or its program was
		return err
	}
	start := func(ctx context.Context, i int) error {
		name := fmt.Sprintf("start-%d", i)
		switch i % 50 {
		case 7:
			return says(ctx, name, "crash -5\n", "crash")
		case 17:
			return says(ctx, name, "buffers 16 error -4\n", "fill", "99")
		case 27: // the client is killed; what its program calls then fails
			return spinning(ctx, name, func(cmd *exec.Cmd) error { return cmd.Process.Kill() })
		case 37: // the program is killed
			return spinning(ctx, name, func(cmd *exec.Cmd) error {
				children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", cmd.Process.Pid))
				for _, x := range children {
					b, _ := os.ReadFile(x) // of a thread that has ended, none
					for pid := range strings.FieldsSeq(string(b)) {
						if n, err := strconv.Atoi(pid); err == nil {
							return syscall.Kill(n, syscall.SIGKILL)
						}
					}
				}
				return fmt.Errorf("%s has no program: %w", name, err)
			})
		case 47: // the slice is taken away
			return spinning(ctx, name, func(*exec.Cmd) error {
				live, err := w.bench.API.ListSlices(ctx, &poolv1.ListSlicesRequest{States: []poolv1.Slice_State{poolv1.Slice_STATE_RUNNING}})
				if err != nil {
					return err
				}
				n := slices.IndexFunc(live.Slices, func(x *poolv1.Slice) bool { return x.Name == name })
				if n < 0 {
					return fmt.Errorf("%s has no slice that runs", name)
				}
				_, err = w.bench.API.ReleaseSlice(ctx, &poolv1.ReleaseSliceRequest{SliceId: live.Slices[n].SliceId})
				return err
			})
		default:
			return says(ctx, name, string(want), "add")
		}
	}
	var next atomic.Int64
	until := func(n int) {
		lanes, ctx := errgroup.WithContext(t.Context())
		for range 3 {
			lanes.Go(func() error {
				for ctx.Err() == nil {
					i := next.Add(1) - 1
					if i >= int64(n) {
						return nil
					}
					if err := start(ctx, int(i)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		must(t, lanes.Wait())
		next.Store(int64(n))
	}
	quiet := func() (l left) {
		for end := time.Now().Add(time.Minute); ; <-time.After(100 * time.Millisecond) {
			if l = w.left(node); l.Lent == 0 && l.Workers == 0 && l.Programs == 0 {
				return l
			}
			if time.Now().After(end) {
				t.Fatalf("not all programs have ended, or not all slices are given back: %+v", l)
			}
		}
	}
	const first = 100 // what is made once is there then
	until(first)
	quiet()
	<-time.After(30 * time.Second) // the node has tidied up
	was := quiet()
	t.Logf("after %d starts: %+v", first, was)
	began := time.Now()
	for n := first; n < times; {
		n = min(n+1000, times)
		until(n)
		now := quiet()
		t.Logf("after %d starts, %s each: %+v", n, (time.Since(began) / time.Duration(n-first)).Round(time.Millisecond), now)
		if n <= times/3 { // a platform has what it keeps in memory only then
			was.MiB[0] = now.MiB[0]
		}
	}
	is := quiet()
	for end := time.Now().Add(3 * time.Minute); !is.within(was) && time.Now().Before(end); is = w.left(node) {
		<-time.After(time.Second)
	}
	if !is.within(was) {
		t.Errorf("after %d starts: %+v, and after %d: %+v", first, was, times, is)
	}
}
