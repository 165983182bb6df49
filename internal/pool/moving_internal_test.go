//go:build linux

package pool

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// moving is a node with a task, on a device that has no worker.
func moving(t *testing.T) (*Node, *task) {
	t.Helper()
	n := &Node{log: slog.New(slog.DiscardHandler), tasks: map[string]*task{}, arriving: map[string]*task{}, departed: map[*task]bool{}, moved: map[string]departure{}, holders: map[net.Conn]*task{}}
	n.cfg.Overcommit, n.cfg.MemoryOver = 100, 100
	d := &device{Device: Device{ID: "opencl-0", API: OpenCL, Memory: 1 << 30}, turns: newArbiter()}
	var err error
	if d.card, err = newCard(d.Memory, d.turns, n.log); err != nil {
		t.Fatal(err)
	}
	k, err := newTask(d, Spec{Compute: 30}, 64*mib)
	if err != nil {
		t.Fatal(err)
	}
	n.devices, n.tasks[k.ID] = []*device{d}, k
	return n, k
}

// begins has a program come for a task, as serve does, and returns what it is answered.
func begins(t *testing.T, n *Node, k *task, within time.Duration) (answer func() (op uint16, text string)) {
	t.Helper()
	client, conn := net.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	challenge := make([]byte, wire.ChallengeSize)
	_ = conn.SetDeadline(time.Now().Add(within))
	go func() {
		defer conn.Close()
		n.data(conn, challenge, 0, false, func() {})
	}()
	if _, err := client.Write(append([]byte(k.ID), helloMAC(k.token, challenge, []byte(k.ID), false)...)); err != nil {
		t.Fatal(err)
	}
	return func() (uint16, string) {
		t.Helper()
		b, err := io.ReadAll(client)
		if err != nil || len(b) < wire.AnswerSize {
			t.Fatalf("it is answered %q, %v", b, err)
		}
		return binary.LittleEndian.Uint16(b[8:]), string(b[wire.AnswerSize:])
	}
}

// TestStartsMeanwhile: a program that starts while its task moves is told where that is then,
// however long it takes.
func TestStartsMeanwhile(t *testing.T) {
	t.Parallel()
	n, k := moving(t)
	k.moving = make(chan struct{})
	const hello = 20 * time.Millisecond
	answer := begins(t, n, k, hello)
	<-time.After(2 * hello)
	n.mu.Lock()
	n.departLocked(k, "tcp:10.0.0.6:7420")
	close(k.moving)
	k.moving = nil
	n.mu.Unlock()
	if op, text := answer(); op != wire.OpMoved || text != "tcp:10.0.0.6:7420" {
		t.Errorf("it is answered %d, %q", op, text)
	}
}

// TestTooManyPrograms: who may not start one more is told so, and not that there is no task.
func TestTooManyPrograms(t *testing.T) {
	t.Parallel()
	n, k := moving(t)
	for i := range k.workers {
		k.workers[i] = &proc{}
	}
	if op, text := begins(t, n, k, helloTime)(); op != wire.OpRefused || !strings.Contains(text, k.ID+" has 504 programs") {
		t.Errorf("it is answered %d, %q", op, text)
	}
	clear(k.workers[:])
	for k.device.card.add(&holder{}) {
	}
	if op, text := begins(t, n, k, helloTime)(); op != wire.OpRefused || !strings.Contains(text, "opencl-0 has 504 programs") {
		t.Errorf("it is answered %d, %q", op, text)
	}
}

// TestGoneDeviceLeft: a device that is gone is forgotten when its last task has moved away.
func TestGoneDeviceLeft(t *testing.T) {
	t.Parallel()
	n, k := moving(t)
	n.devices[0].Gone = true
	n.mu.Lock()
	defer n.mu.Unlock()
	n.departLocked(k, "tcp:10.0.0.6:7420")
	if len(n.devices) > 0 {
		t.Errorf("there are %d devices", len(n.devices))
	}
}

// TestResizedMeanwhile: who resizes a task while it goes to another node has what was asked
// for there, or is told that it is not so.
func TestResizedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, arrives := range []bool{true, false} {
		n, k := moving(t)
		n.stopping, n.deaf = context.WithCancel(t.Context())
		k.moving = make(chan struct{}) // as move does
		conn, there := net.Pipe()
		client := &Client{at: "tcp:10.0.0.6:7420", conn: conn, in: bufio.NewReader(conn), out: json.NewEncoder(conn), ended: make(chan struct{})}
		over := make(chan error, 1)
		go func() {
			_, _, err := n.moveTo(t.Context(), k, nil, client, client.at, client.at)
			over <- err
		}()
		said, err := readRequest(bufio.NewReader(there))
		if err != nil || said.Op != "arrived" {
			t.Fatalf("%+v, %v", said, err)
		}
		n.mu.Lock()
		_, err = n.resize(nil, request{Task: k.ID, Compute: 70})
		n.mu.Unlock()
		if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), k.ID) {
			t.Errorf("it arrives with %d%%, and was then resized: %v", said.Adopt.Task.Compute, err)
		}
		r := reply{Task: &said.Adopt.Task}
		if !arrives {
			r = reply{Error: "there is no room", Kind: kindName(fault.New(fault.Exhausted, ""))}
		}
		if err := json.NewEncoder(there).Encode(r); err != nil {
			t.Fatal(err)
		}
		if err := <-over; (err == nil) != arrives {
			t.Errorf("it arrives: %v, %v", arrives, err)
		}
		if !arrives {
			n.mu.Lock()
			if _, err := n.resize(nil, request{Task: k.ID, Compute: 70}); err != nil || k.Compute != 70 {
				t.Errorf("it has not moved, and is resized to %d%%: %v", k.Compute, err)
			}
			n.mu.Unlock()
		}
		_ = there.Close()
		client.Close()
		n.work.Wait()
	}
}

// TestDoesNotArrive: a node that asks for the room of a task and then says nothing more, though
// its connection stays, has that room for as long as a move may take, and no longer.
func TestDoesNotArrive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, k := moving(t)
		delete(n.tasks, k.ID)
		n.makers = &makers{}
		n.stopping, n.deaf = context.WithCancel(t.Context())
		defer n.deaf()
		client, conn := net.Pipe()
		defer client.Close()
		_ = conn.SetDeadline(time.Now().Add(helloTime)) // as serve does
		over := make(chan struct{})
		go func() {
			defer close(over)
			n.control(conn, make([]byte, wire.ChallengeSize), false, func() {}, func() {})
		}()
		in := bufio.NewReader(client)
		for _, q := range []request{{Op: "hello"}, {Op: "adopt", Adopt: &adoption{Version: wire.MoveVersion, Task: k.show(), Token: hex.EncodeToString(k.token)}}} {
			if err := json.NewEncoder(client).Encode(q); err != nil {
				t.Fatal(err)
			}
			if said, err := in.ReadString('\n'); err != nil || strings.Contains(said, "error") {
				t.Fatalf("%s: %q, %v", q.Op, said, err)
			}
		}
		<-time.After(moveTime - time.Second)
		n.mu.Lock()
		if len(n.arriving) != 1 {
			t.Errorf("%d tasks are coming, while it may", len(n.arriving))
		}
		n.mu.Unlock()
		<-time.After(time.Minute)
		n.mu.Lock()
		if c, m, tasks := n.allotted(func(*task) bool { return true }); c+m != 0 || tasks != 0 {
			t.Errorf("%d tasks still have %d%% and %d bytes", tasks, c, m)
		}
		n.mu.Unlock()
		_ = client.Close()
		<-over
		n.devices[0].turns.timer.Stop()
	})
}

// TestReturned: what comes back from a program that did not take it is given to nobody any more:
// neither takes it, and they would give it to each other for ever.
func TestReturned(t *testing.T) {
	t.Parallel()
	previous := filepath.Join(t.TempDir(), "none")
	if err := (&handover{Program: -1, Previous: previous, returned: true}).giveBack(errors.New("x")); err != nil {
		t.Errorf("it is given back again: %v", err)
	}
	if err := (&handover{Program: -1, Previous: previous}).giveBack(errors.New("x")); err == nil {
		t.Error("it is not given back at first")
	}
}
