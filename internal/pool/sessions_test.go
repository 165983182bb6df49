//go:build linux

package pool_test

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"

	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// raw is a program of a task that says what it likes.
type raw struct {
	t    *testing.T
	conn net.Conn
	call uint32
}

// greeted connects to a node over TCP, and returns what a proof is to answer.
func greeted(t *testing.T, at string) (conn net.Conn, challenge []byte) {
	t.Helper()
	_, address, _ := strings.Cut(at, ":")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	greeting := make([]byte, len(wire.Greeting)+wire.ChallengeSize)
	if _, err := io.ReadFull(conn, greeting); err != nil {
		t.Fatal(err)
	}
	return conn, greeting[len(wire.Greeting):]
}

// speak connects as a program of a task does; kind and more are what it says of itself.
func speak(t *testing.T, at, task, token, kind string, more ...byte) *raw {
	t.Helper()
	conn, challenge := greeted(t, at)
	secret, err := hex.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	m := hmac.New(sha256.New, secret)
	m.Write(challenge)
	m.Write([]byte(task + string(more)))
	if _, err := conn.Write(m.Sum([]byte(kind + task + string(more)))); err != nil {
		t.Fatal(err)
	}
	return &raw{t: t, conn: conn}
}

// hear reads a message of the worker's.
func (r *raw) hear() (kind uint16, status int64, data []byte) {
	r.t.Helper()
	head := make([]byte, wire.AnswerSize)
	if _, err := io.ReadFull(r.conn, head); err != nil {
		r.t.Fatal(err)
	}
	data = make([]byte, binary.LittleEndian.Uint64(head)-wire.AnswerSize)
	if _, err := io.ReadFull(r.conn, data); err != nil {
		r.t.Fatal(err)
	}
	return binary.LittleEndian.Uint16(head[8:]), int64(binary.LittleEndian.Uint64(head[16:])), data
}

// do makes a call and says what came of it.
func (r *raw) do(op wire.Op, words ...uint64) (status int64, data []byte) {
	r.t.Helper()
	r.call++
	b := binary.LittleEndian.AppendUint64(nil, uint64(wire.HeaderSize+8*len(words)))
	b = binary.LittleEndian.AppendUint16(b, uint16(op))
	b = binary.LittleEndian.AppendUint16(b, wire.FlagAnswer)
	b = binary.LittleEndian.AppendUint32(b, r.call)
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	if _, err := r.conn.Write(b); err != nil {
		r.t.Fatal(err)
	}
	kind, status, data := r.hear()
	if kind != wire.OpAnswer {
		r.t.Fatalf("%s is answered by a message of kind %d", op, kind)
	}
	return status, data
}

// TestOthersObjects: a program that names what another task's program has made, by
// any number, is refused, and gets nothing of it; nor does it go on for that by its
// session.
func TestOthersObjects(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	_, other := share(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 20, Memory: 16 * mib})
	in, said := converse(t, other("leave", "16"))
	if line, _ := said.ReadString('\n'); line != "left 16\n" {
		t.Fatalf("it said %q", line)
	}
	task, token := ask(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 20, Memory: 16 * mib})
	r := speak(t, n.tcp, task.ID, token, wire.DataGreeting)
	if kind, status, data := r.hear(); kind != wire.OpAnswer || status != 0 {
		t.Fatalf("it is answered %d, %d, %s", kind, status, data)
	}
	const context, queue, own, most = 1000, 1001, 1002, 200 // the other's are numbered from 1 on
	if s, _ := r.do(wire.OpCreateContext, context, 0); s != 0 {
		t.Fatalf("context: %d", s)
	}
	if s, _ := r.do(wire.OpCreateQueue, context, queue, 0); s != 0 {
		t.Fatalf("queue: %d", s)
	}
	if s, _ := r.do(wire.OpCreateBuffer, context, own, 1, 4096, 0, 0); s != 0 {
		t.Fatalf("buffer: %d", s)
	}
	read := func(of uint64) (int64, []byte) {
		return r.do(wire.OpRead, queue, of, 0, 1, 0, 0, 0, 64, 1, 1, 64, 64, 64, 0, 0, 0)
	}
	if s, data := read(own); s != 0 || len(data) != 64 {
		t.Fatalf("what is its own: %d, %x", s, data)
	}
	const invalid = -38 // CL_INVALID_MEM_OBJECT
	for of := range uint64(most) {
		if s, data := read(of); s != invalid || len(data) > 0 {
			t.Errorf("number %d is answered %d, %x", of, s, data)
		}
		if s, data := r.do(wire.OpEnqueueCopyBuffer, queue, of, own, 0, 0, 64, 0, 0); s != invalid || len(data) > 0 {
			t.Errorf("a copy of number %d is answered %d, %x", of, s, data)
		}
		if s, _ := r.do(wire.OpEnqueueMarker, of, 0); s != -36 { // CL_INVALID_COMMAND_QUEUE
			t.Errorf("a queue with the number %d is answered %d", of, s)
		}
	}
	for _, session := range []string{strings.Repeat("\x00", wire.SessionSize), strings.Repeat("\xff", wire.SessionSize)} {
		back := speak(t, n.tcp, task.ID, token, wire.BackGreeting, []byte(session+strings.Repeat("\x00", 8))...)
		if kind, _, text := back.hear(); kind != wire.OpRefused {
			t.Errorf("who goes on with a session that is not its own is answered %d, %s", kind, text)
		}
	}
	_, _ = io.WriteString(in, "\n")
}

// TestLeftovers: what a task has had in memory is not there when another has that,
// on this machine and over TCP.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{Memory: 64 * mib}) // which one has whole, and then the next
	for _, at := range []string{n.unix, n.tcp} {
		for range 3 {
			for _, what := range []string{"leave", "find"} {
				client := dial(t, at)
				task, token, err := client.Run(pool.Spec{Device: "opencl-0", Compute: 100, Memory: 64 * mib})
				if err != nil {
					t.Fatal(err)
				}
				cmd := program(t, at, task.ID, token, what, "64")
				cmd.Stdin = strings.NewReader("\n")
				if got, want := output(t, cmd), map[string]string{"leave": "left 64\n", "find": "found 0\n"}[what]; got != want {
					t.Errorf("%s: %s says %q, want %q", at, what, got, want)
				}
				client.Close()
				eventually(t, func() bool {
					d, err := dial(t, at).Devices()
					return err == nil && d[0].Allotted == 0 && d[0].Resident == 0
				})
			}
		}
	}
}

// waited counts messages of a connection for which an answer is waited for, by their calls.
type waited struct {
	mu   sync.Mutex
	skip int // bytes before the first message, and of the message that is on its way
	head []byte
	all  map[string]int
}

func (w *waited) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for rest := b; len(rest) > 0; {
		if n := min(w.skip, len(rest)); n > 0 {
			w.skip, rest = w.skip-n, rest[n:]
			continue
		}
		n := min(wire.HeaderSize-len(w.head), len(rest))
		w.head, rest = append(w.head, rest[:n]...), rest[n:]
		if len(w.head) < wire.HeaderSize {
			break
		}
		if binary.LittleEndian.Uint16(w.head[10:])&wire.FlagAnswer != 0 {
			w.all[wire.Op(binary.LittleEndian.Uint16(w.head[8:])).String()]++
		}
		w.skip, w.head = int(binary.LittleEndian.Uint64(w.head))-wire.HeaderSize, w.head[:0]
	}
	return len(b), nil
}

func (w *waited) take() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = map[string]int{}
	return all
}

// TestRoundTrips: no call waits for more than one answer, nor do a launch like one
// before and the wait for it together. Many steps with little memory of their own, and
// launches of other sizes, wait for nothing but what was never done before.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{})
	said := &waited{skip: len(wire.DataGreeting) + wire.TaskIDSize + wire.MACSize, all: map[string]int{}}
	task, token := ask(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	in, out := converse(t, program(t, through(t, n.tcp, said, io.Discard), task.ID, token, "trips"))
	seen, what := map[string]map[string]int{}, ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		switch line := lines.Text(); line {
		case ".":
			seen[what] = said.take()
		case "tripped":
		default:
			what = line
			if before := said.take(); what == "create buffer" && len(before) == 0 {
				t.Fatal("nothing was written down")
			}
		}
		_, _ = io.WriteString(in, "\n") // or it has ended
	}
	if len(seen) != 10 {
		t.Fatalf("it made %v", seen)
	}
	for _, what := range []string{"many steps", "many steps of another thread"} {
		steps := seen[what]
		delete(seen, what)
		t.Logf("%s: %v", what, steps)
		if n := steps["create_buffer"] + steps["create_sub_buffer"]; n > 0 || steps["write"] > 1 || steps["clEnqueueFillBuffer"] > 1 || steps["clEnqueueCopyBuffer"] > 1 || steps["clEnqueueNDRangeKernel"] > 7 {
			t.Errorf("%s like those before wait for what they make or write, or for launches of all sizes: %v", what, steps)
		}
	}
	waits := map[string]bool{"blocking read": true, "finish": true, "launch again and finish": true, "build": true} // and nothing else could tell what came of it
	for what, all := range seen {
		count := 0
		for n := range maps.Values(all) {
			count += n
		}
		if count > 1 || count == 0 && waits[what] {
			t.Errorf("%s waits for %d answers: %v", what, count, all)
		}
		t.Logf("%s: %v", what, all)
	}
}
