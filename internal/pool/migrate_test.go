//go:build linux

package pool_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// walker is a program that checks each of its steps, until it is told to end.
type walker struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	errs *lines
}

func walk(t *testing.T, cmd *exec.Cmd) *walker {
	t.Helper()
	errs := &lines{}
	cmd.Stderr = errs
	in, out := converse(t, cmd)
	w := &walker{t, cmd, in, out, errs}
	if line := w.line(); line != "walking\n" {
		t.Fatalf("it said %q, %s", line, errs.String())
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return w
}

func (w *walker) line() string {
	s, _ := w.out.ReadString('\n')
	return s
}

// end tells it to, and expects that every step was right.
func (w *walker) end() {
	w.t.Helper()
	_, _ = io.WriteString(w.in, "\n")
	line := w.line()
	var steps int
	var longest float64
	if n, _ := fmt.Sscanf(line, "walked %d steps, the longest %f ms\n", &steps, &longest); n != 2 || steps == 0 {
		w.t.Errorf("it ended with %q\n%s", line, w.errs.String())
	}
	if err := w.cmd.Wait(); err != nil {
		w.t.Error(err)
	}
	w.t.Logf("%s", strings.TrimSpace(line))
}

// TestMigrateExchange: a program that sends and receives all the time, and waits for
// neither, moves over and over. (What had been read was sent to a program that could
// not send, and did not listen.)
func TestMigrateExchange(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	client := dial(t, a.tcp)
	task, token, err := client.Run(pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = client.Ended() }()
	cmd := program(t, a.tcp, task.ID, token, "exchange", "200")
	_, out := converse(t, cmd)
	if line, _ := out.ReadString('\n'); line != "exchanging\n" {
		t.Fatalf("it said %q", line)
	}
	said := make(chan string, 1)
	go func() { line, _ := out.ReadString('\n'); said <- line }()
	at, to := a.tcp, b.tcp
	for moves := 0; ; {
		select {
		case line := <-said:
			if line != "rounds 200, the last is right: 1\n" || moves == 0 {
				t.Errorf("it said %q, and has moved %d times", line, moves)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			t.Logf("moved %d times", moves)
			return
		default:
		}
		if _, _, err := dial(t, at).Migrate(task.ID, to, ""); err == nil {
			at, to, moves = to, at, moves+1
		} else if !strings.Contains(err.Error(), "ended") && !strings.Contains(err.Error(), "followed") {
			t.Fatalf("after %d moves: %v", moves, err)
		}
	}
}

// TestMigrate: a program moves from node to node and back, over and over, and
// from here to there over TCP, while it computes; each of its steps is right.
func TestMigrate(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	for _, c := range []struct{ name, from, to string }{{"over TCP", a.tcp, b.tcp}, {"from this machine's memory", a.unix, b.tcp}} {
		t.Run(c.name, func(t *testing.T) {
			client := dial(t, c.from)
			task, token, err := client.Run(pool.Spec{Device: "opencl-0", Compute: 40, Memory: 64 * mib})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan string, 1)
			go func() { why, _ := client.Ended(); ended <- why }()
			w := walk(t, program(t, c.from, task.ID, token, "walk", "8"))
			at, to := c.from, c.to
			for i := range 6 {
				moved, pause, err := dial(t, at).Migrate(task.ID, to, "")
				if err != nil {
					t.Fatalf("move %d: %v\n%s\n%s%s", i, err, a.log, b.log, w.errs)
				}
				if moved.ID != task.ID || moved.Programs != 1 || moved.Used < 8*mib || pause <= 0 {
					t.Errorf("move %d: %+v, %s", i, moved, pause)
				}
				if at, to = to, at; i == 0 {
					to = a.tcp
				}
			}
			if _, err := dial(t, to).Resize(task.ID, 10, 0); fault.KindOf(err) != fault.NotFound || !strings.Contains(err.Error(), "has moved to the pool node at "+at) {
				t.Errorf("resized where it was: %v", err)
			}
			if _, err := dial(t, at).Resize(task.ID, 30, 0); err != nil {
				t.Errorf("resized where it is: %v", err)
			}
			if got := output(t, program(t, c.from, task.ID, token, "add")); !strings.HasPrefix(got, "sum ") {
				t.Errorf("a program that starts where the task was: %q", got)
			}
			if w.end(); t.Failed() {
				t.Logf("%s\n%s", a.log, b.log)
			}
			if err := dial(t, at).Stop(task.ID); err != nil {
				t.Error(err)
			}
			if why := <-ended; why != "it was stopped" {
				t.Errorf("who asked for the task hears %q", why)
			}
		})
	}
}

// TestMigrateAtOneNode: a task moves to a device of its own node.
func TestMigrateAtOneNode(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	task, run := share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 60, Memory: 64 * mib})
	w := walk(t, run("walk", "4"))
	for range 3 {
		if moved, _, err := dial(t, n.tcp).Migrate(task.ID, "", "opencl-0"); err != nil || moved.Device != "opencl-0" {
			t.Fatalf("%+v, %v\n%s", moved, err, n.log)
		}
	}
	if d, err := dial(t, n.unix).Devices(); err != nil || d[0].Tasks != 1 || d[0].Compute != 60 {
		t.Errorf("%+v, %v", d, err)
	}
	w.end()
}

// cut passes connections on to an address, and ends all of them at once when a
// number of bytes of a program have gone through, or a word was said.
type cut struct {
	after int    // bytes of a connection that brings a program
	word  string // "": none; it is not passed on
}

func (c cut) listen(t *testing.T, to string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []net.Conn
	end := func() {
		mu.Lock()
		defer mu.Unlock()
		_ = l.Close()
		for _, x := range all {
			_ = x.Close()
		}
		all = nil
	}
	t.Cleanup(end)
	pass := func(dst, src net.Conn, watch bool) {
		b, n := make([]byte, 64<<10), 0
		for {
			k, err := src.Read(b)
			n += k
			if watch && (c.word == "" && n > c.after || c.word != "" && bytes.Contains(b[:k], []byte(c.word))) {
				end()
				return
			}
			_, werr := dst.Write(b[:k])
			if err != nil || werr != nil {
				_ = dst.Close()
				return
			}
		}
	}
	scheme, address, _ := strings.Cut(to, ":")
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			other, err := net.Dial("tcp", address)
			if err != nil {
				_ = conn.Close()
				continue
			}
			mu.Lock()
			all = append(all, conn, other)
			mu.Unlock()
			hello := make([]byte, 40)
			if _, err := io.ReadFull(other, hello); err != nil {
				continue
			}
			_, _ = conn.Write(hello)
			kind := make([]byte, 8)
			if _, err := io.ReadFull(conn, kind); err != nil {
				continue
			}
			_, _ = other.Write(kind)
			if scheme == "tls" {
				if _, err := io.ReadFull(conn, kind); err != nil {
					continue
				}
				_, _ = other.Write(kind)
			}
			brings := string(kind) == "YHMOVE1\n"
			go pass(other, conn, brings == (c.word == ""))
			go pass(conn, other, false)
		}
	}()
	return scheme + ":" + l.Addr().String()
}

// TestMigrateFails: what cannot be moved, or is cut off at any point of its
// move, computes on where it is, and nothing of it stays where it did not come.
func TestMigrateFails(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	other := start(t, pool.NodeConfig{Groups: []pool.Group{{Name: "a", Key: "this is another key"}}})
	small := start(t, pool.NodeConfig{Groups: []pool.Group{{Name: "a", Key: key, Memory: 10}}})
	task, run := share(t, a.tcp, pool.Spec{Device: "opencl-0", Compute: 60, Memory: 64 * mib})
	w := walk(t, run("walk", "8"))
	client, there := dial(t, a.tcp), dial(t, b.tcp)
	for _, c := range []struct {
		to, device string
		kind       fault.Kind
		say        string
	}{
		{"tcp:127.0.0.1:1", "", fault.Unavailable, "does not answer"},
		{"nowhere", "", fault.Invalid, "not the address of a pool node"},
		{other.tcp, "", fault.Unauthenticated, `group "a" with this key`},
		{small.tcp, "", fault.Exhausted, "exceeds the quota of group a"},
		{b.tcp, "opencl-9", fault.NotFound, `no device "opencl-9"`},
	} {
		if _, _, err := client.Migrate(task.ID, c.to, c.device); fault.KindOf(err) != c.kind || !strings.Contains(fmt.Sprint(err), c.say) {
			t.Errorf("to %s %s: %v", c.to, c.device, err)
		}
	}
	for _, c := range []cut{{}, {after: 500}, {after: 3 << 20}, {after: 8 << 20}, {word: `"arrived"`}} {
		to := c.listen(t, b.tcp)
		if _, _, err := client.Migrate(task.ID, to, ""); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("cut off at %+v: %v", c, err)
		}
		for left := 1; left > 0; { // it is not held there any more
			d, err := there.Devices()
			if err != nil {
				t.Fatal(err)
			}
			left = d[0].Tasks
		}
	}
	if _, _, err := client.Migrate(task.ID, b.tcp, ""); err != nil {
		t.Errorf("after all that: %v", err)
	}
	w.end()
}

// TestMigrateStopped: a task that is stopped while it moves is gone from both nodes.
func TestMigrateStopped(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	task, run := share(t, a.tcp, pool.Spec{Device: "opencl-0", Compute: 60, Memory: 64 * mib})
	w := walk(t, run("walk", "8"))
	moved := make(chan error, 1)
	mover, clients := dial(t, a.tcp), []*pool.Client{dial(t, a.tcp), dial(t, b.tcp)}
	go func() { _, _, err := mover.Migrate(task.ID, b.tcp, ""); moved <- err }()
	for gone := false; !gone; { // before, in the midst, or after
		for _, c := range clients {
			gone = c.Stop(task.ID) == nil || gone
		}
	}
	<-moved
	for left := 1; left > 0; {
		left = 0
		for _, c := range clients {
			tasks, err := c.Tasks()
			if err != nil {
				t.Fatal(err)
			}
			left += len(tasks)
		}
	}
	_, _ = io.WriteString(w.in, "\n")
	_ = w.cmd.Wait() // its calls fail
}

// TestMigrateEnds: a program that ends while it is copied, and the driver does what
// takes long, is left out; the move is over at once, also if what the driver has
// started goes on. Of a task that ends meanwhile it says so. It is not parallel: the
// environment says which driver there is.
func TestMigrateEnds(t *testing.T) {
	start(t, pool.NodeConfig{}) // or there is nothing to lend
	if _, err := os.Stat("/usr/lib/x86_64-linux-gnu/libpocl.so.2"); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	of(t, "compiling", compiled(t, "libcompiling.so", "-shared", "-fPIC", "testdata/compiling.c", "-ldl"))
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	compiles := func() (list []int) { // processes
		names, _ := filepath.Glob("/proc/[0-9]*/comm")
		for _, name := range names {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			env, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "environ")) // or it has ended
			if text, err := os.ReadFile(name); err == nil && string(text) == "yhcompiling\n" && bytes.Contains(env, []byte(os.Getenv("OCL_ICD_VENDORS"))) {
				list = append(list, pid)
			}
		}
		return list
	}
	for _, whole := range []bool{false, true} {
		client := dial(t, a.tcp)
		task, token, err := client.Run(pool.Spec{Device: "opencl-0", Compute: 40, Memory: 64 * mib})
		if err != nil {
			t.Fatal(err)
		}
		w := walk(t, program(t, a.tcp, task.ID, token, "walk", "8"))
		moved := make(chan error, 1)
		go func() { _, _, err := dial(t, a.tcp).Migrate(task.ID, b.tcp, ""); moved <- err }()
		var pids []int
		for len(pids) == 0 {
			pids = compiles()
		}
		if whole {
			client.Close()
		}
		_ = w.cmd.Process.Kill()
		began := time.Now()
		err = <-moved
		if took := time.Since(began); took > time.Minute || slices.Compare(compiles(), pids) != 0 {
			t.Errorf("it took %s to end a move; what compiles are %v, they were %v", took, compiles(), pids)
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		switch {
		case whole && (fault.KindOf(err) != fault.NotFound || !strings.HasSuffix(err.Error(), "has ended")):
			t.Errorf("of a task that ended: %v", err)
		case !whole && err != nil:
			t.Errorf("of a program that ended: %v", err)
		case !whole:
			for there, programs := dial(t, b.tcp), int64(1); programs != 0; { // what waited for the program has ended
				tasks, err := there.Tasks()
				if err != nil || len(tasks) != 1 || tasks[0].ID != task.ID {
					t.Fatalf("where the task went there are %+v, %v", tasks, err)
				}
				programs = int64(tasks[0].Programs)
			}
		}
		client.Close()
	}
}

// TestMigrateAndStop: the node that a task has left stops, and the program
// computes on where it is.
func TestMigrateAndStop(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	client := dial(t, a.tcp)
	task, token, err := client.Run(pool.Spec{Device: "opencl-0", Compute: 60, Memory: 64 * mib})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = client.Ended() }()
	w := walk(t, program(t, a.tcp, task.ID, token, "walk", "4"))
	if _, _, err := dial(t, a.tcp).Migrate(task.ID, b.tcp, ""); err != nil {
		t.Fatal(err)
	}
	b.log.await(t, "client followed")
	a.log.await(t, "program ended")
	// Of one whose client does not listen, the node that it left holds it; that stops all the same.
	silent, _, err := dial(t, a.tcp).Run(pool.Spec{Device: "opencl-0", Compute: 5, Memory: 5 * mib})
	if err == nil {
		_, _, err = dial(t, a.tcp).Migrate(silent.ID, b.tcp, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	a.stop()
	w.end()
}
