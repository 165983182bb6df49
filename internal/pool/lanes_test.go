//go:build linux

package pool_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// toll is what programs reach a node by, and other nodes: it counts what goes by
// lanes, and ends a lane after so many bytes, if that is not 0.
type toll struct {
	at    string
	after int64

	lanes, bytes atomic.Int64
}

func before(t *testing.T, node string, after int64) *toll {
	t.Helper()
	b := &toll{after: after}
	b.at = door(t, node, b.pass)
	return b
}

func (b *toll) pass(near, far net.Conn) {
	defer func() { _, _ = near.Close(), far.Close() }()
	go func() { // what the node says
		_, _ = io.Copy(near, far)
		_ = near.Close()
	}()
	kind := make([]byte, len(wire.LaneGreeting))
	all := []byte{}
	for len(all) == 0 || string(kind) == wire.TLSGreeting {
		if _, err := io.ReadFull(near, kind); err != nil {
			return
		}
		all = append(all, kind...)
	}
	_, _ = far.Write(all)
	if string(kind) != wire.LaneGreeting {
		_, _ = io.Copy(far, near)
		return
	}
	b.lanes.Add(1)
	from := io.Reader(near)
	if b.after > 0 {
		from = io.LimitReader(near, b.after)
	}
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		b.bytes.Add(int64(n))
		if _, bad := far.Write(piece[:n]); bad != nil || err != nil {
			return
		}
	}
}

// TestLanes: memory that one card wrote and another needs goes from node to node, and not
// through the program, also where what is said is encrypted, or at one of them; a program
// that is told to stay with its connections has all go through it.
func TestLanes(t *testing.T) {
	t.Parallel()
	const most = 3 * 16 * mib // of five times as much: the first may have gone before there was a lane
	plain, secret := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{Encryption: true})
	other := map[bool]node{false: start(t, pool.NodeConfig{}), true: start(t, pool.NodeConfig{Encryption: true})}
	for _, c := range []struct {
		name       string
		first      node
		encrypted  bool
		transport  string
		atLeast    int64
		otherwards bool // the second node connects to the first, which would not
	}{
		{name: "clear", first: plain, atLeast: most},
		{name: "encrypted", first: secret, encrypted: true, atLeast: most},
		{name: "from clear to encrypted", first: plain, encrypted: true, atLeast: most},
		{name: "from encrypted to clear", first: secret, otherwards: true},
		{name: "told to stay", first: plain, transport: "socket"},
	} {
		t.Run(c.name, func(t *testing.T) {
			scheme := map[bool]string{false: "tcp:", true: "tls:"}
			named := func(n node, encrypted bool) string { return scheme[encrypted] + strings.SplitN(n.tcp, ":", 2)[1] }
			a, b := before(t, named(c.first, c.first.dir == secret.dir), 0), before(t, named(other[c.encrypted], c.encrypted), 0)
			cmd := over(t, a.at, b.at)("between", "16")
			cmd.Env = append(cmd.Env, pool.TransportVariable+"="+c.transport)
			if got := output(t, cmd); !strings.Contains(got, "between_s") {
				t.Errorf("it says %q", got)
			}
			switch {
			case c.otherwards:
				if a.lanes.Load() != 1 || b.lanes.Load() != 0 {
					t.Errorf("%d lanes to the node that encrypts, %d from it", a.lanes.Load(), b.lanes.Load())
				}
			case c.atLeast == 0 && a.lanes.Load()+b.lanes.Load() > 0:
				t.Error("there is a lane")
			case c.atLeast > 0 && (b.lanes.Load() != 1 || b.bytes.Load() < c.atLeast):
				t.Errorf("%d lanes, and %d bytes went by them", b.lanes.Load(), b.bytes.Load())
			}
		})
	}
}

// TestLanesEnd: whenever a lane ends, in the middle of what it brings, too, all comes through
// the program that did not come, and by another lane what comes next; so it does while the
// program moves, to where there is a lane, and a node's end is an error of the calls, not a wait.
func TestLanesEnd(t *testing.T) {
	t.Parallel()
	nodes := []node{start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})}
	a, b, c := nodes[0], nodes[1], nodes[2]
	graph := compiled(t, "graph", "../../shim/test/graph.c", "-l:libOpenCL.so.1")
	for _, after := range []int64{0, 100, 50_000} {
		near, far := before(t, a.tcp, after), before(t, b.tcp, after)
		args := []string{graph, strconv.FormatInt(after, 10), "10"}
		if got, want := output(t, over(t, near.at, far.at)(args...)), fmt.Sprintf("graph %s 10 rounds\n", args[1]); got != want {
			t.Errorf("after %d bytes: got %q, want %q", after, got, want)
		}
		if n := near.lanes.Load() + far.lanes.Load(); n < 1 || after == 100 && n < 2 {
			t.Errorf("after %d bytes: %d lanes", after, n)
		}
	}

	far := before(t, b.tcp, 0)
	s := pool.Spec{Device: "opencl-0", Compute: 10, Memory: 64 * mib}
	first, token := ask(t, a.tcp, s)
	second, token2 := ask(t, far.at, s)
	fails := keeps(t, with(t, append(pool.Environment(0, pool.OpenCL, a.tcp, first.ID, token), pool.Environment(1, pool.OpenCL, far.at, second.ID, token2)...)))
	at, to := a, c
	for i := range 6 {
		was := far.lanes.Load()
		if _, _, err := dial(t, at.tcp).Migrate(first.ID, to.tcp, ""); err != nil {
			t.Fatalf("move %d: %v\n%s", i, err, at.log)
		}
		at, to = to, at
		if i == 0 {
			at.log.await(t, "nodes connected for a program")
		} else if was == 0 {
			t.Error("there was no lane")
		}
	}
	b.stop()
	fails()
}

// spoken is a program of a task at a node, that says what it likes.
func spoken(t *testing.T, n node) (task pool.Task, token string, r *raw) {
	t.Helper()
	task, token = ask(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 10, Memory: 16 * mib})
	r = speak(t, n.tcp, task.ID, token, wire.DataGreeting)
	r.hear()
	return task, token, r
}

// TestLanesRefused: who does not know a lane's key, or says again what was said with another
// challenge, or names another program, gets nothing, and the log says so. A node goes for a
// program only to addresses of TCP, and says nothing to who is no pool's node.
func TestLanesRefused(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	task, token, r := spoken(t, n)
	lane := []uint64{7, 8}
	if status, _ := r.do(wire.OpLane, append([]uint64{wire.LaneAwait}, lane...)...); status != 0 {
		t.Fatalf("a lane is waited for: %d", status)
	}
	id := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, lane[0]), lane[1])
	said := func(slot uint64) []byte { return append(binary.LittleEndian.AppendUint64(nil, slot), id...) }
	secret, err := hex.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	key := hex.EncodeToString(between.LaneKey(secret, id))
	refused := func(c *raw) bool {
		kind := make([]byte, wire.AnswerSize)
		_, err := io.ReadFull(c.conn, kind)
		return err == nil && binary.LittleEndian.Uint16(kind[8:]) == wire.OpRefused
	}
	for name, c := range map[string]*raw{
		"by the task's token": speak(t, n.tcp, task.ID, token, wire.LaneGreeting, said(0)...),
		"of another slot":     speak(t, n.tcp, task.ID, key, wire.LaneGreeting, said(1)...),
		"of no slot":          speak(t, n.tcp, task.ID, key, wire.LaneGreeting, said(1<<63)...),
		"of no task":          speak(t, n.tcp, strings.Repeat("0", 26), key, wire.LaneGreeting, said(0)...),
		"of another lane":     speak(t, n.tcp, task.ID, key, wire.LaneGreeting, append(binary.LittleEndian.AppendUint64(nil, 0), make([]byte, 16)...)...),
	} {
		if !refused(c) {
			t.Errorf("%s: not refused", name)
		}
	}
	if !strings.Contains(n.log.String(), "no program of this task waits for it") {
		t.Errorf("the log says %s", n.log)
	}
	// Who knows the key is given to the worker, once. What does not come as it was asked for ends the lane.
	first := speak(t, n.tcp, task.ID, key, wire.LaneGreeting, said(0)...)
	if kind, status, _ := first.hear(); kind != wire.OpAnswer || status != 0 {
		t.Fatalf("the lane's other end: kind %d, %d", kind, status)
	}
	if _, err := first.conn.Write(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	const size = 4096
	pull := func() int64 {
		status, _ := r.do(wire.OpPull, append(lane, 1, 2, 0, 1, 0, 0, 0, size, 1, 1, 0, 0, size, 0)...)
		return status
	}
	if status := pull(); status == 0 {
		t.Error("a pull of what is of another size is no error")
	}
	second := speak(t, n.tcp, task.ID, key, wire.LaneGreeting, said(0)...)
	second.hear()
	for _, c := range []*raw{first, second} {
		if _, err := c.conn.Read(make([]byte, 1)); err == nil {
			t.Error("a lane that has ended says something")
		}
	}
	if status := pull(); status == 0 {
		t.Error("a pull by a lane that has ended is no error")
	}
	if status, _ := r.do(wire.OpLane, wire.LaneAwait, 7, 9); status != 0 {
		t.Errorf("another lane: %d", status)
	}
}

// TestLanesDial: what a worker has its node connect to.
func TestLanesDial(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	task, _, r := spoken(t, n)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "220 a server of something else, which greets by more than forty bytes\r\n")
		b, _ := io.ReadAll(conn)
		heard <- string(b)
	}()
	t.Cleanup(func() { _ = l.Close() })
	quiet, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and nobody greets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = quiet.Close() })
	packed := func(text string) (all []uint64) {
		b := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
		for b = append(b, make([]byte, -len(b)&7)...); len(b) > 0; b = b[8:] {
			all = append(all, binary.LittleEndian.Uint64(b))
		}
		return all
	}
	for i, at := range []string{n.unix, "tcp:" + l.Addr().String(), "tcp:127.0.0.1:1", "nonsense", "tcp:" + quiet.Addr().String()} {
		words := []uint64{wire.LaneDial, 1, uint64(i)}
		words = append(append(words, packed(strings.Repeat("k", wire.MACSize))...), packed(task.ID)...)
		if status, _ := r.do(wire.OpLane, append(append(words, 0), packed(at)...)...); status == 0 {
			t.Errorf("%s: there is a lane", at)
		}
	}
	if got := <-heard; got != "" {
		t.Errorf("a server that is no pool's node hears %q", got)
	}
	for _, want := range []string{"is not an address of TCP", "there is no pool node of this version", "connection refused", "is not the address of a pool node", "i/o timeout"} {
		if !strings.Contains(n.log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, n.log)
		}
	}
}
