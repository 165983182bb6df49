package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// fakePoolNode is a pool node without devices, as its clients see it: it gives any
// task that is asked for, and answers what it is told to; nothing, to the rest.
type fakePoolNode struct {
	at      string
	answers map[string]string // by request

	mu    sync.Mutex // guards what follows
	asked []string
	held  int           // tasks
	told  chan struct{} // closed when something changes
}

func startPoolNode(t *testing.T, answers map[string]string) *fakePoolNode {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pool.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	n := &fakePoolNode{at: "unix:" + path, answers: answers, told: make(chan struct{})}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { n.serve(conn) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); conns.Wait() })
	return n
}

func (n *fakePoolNode) change(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do()
	close(n.told)
	n.told = make(chan struct{})
}

func (n *fakePoolNode) serve(conn net.Conn) {
	defer conn.Close()
	if _, err := io.WriteString(conn, wire.Greeting+strings.Repeat("c", wire.ChallengeSize)); err != nil {
		return
	}
	in := bufio.NewReader(conn)
	if _, err := in.Discard(len(wire.ControlHello)); err != nil {
		return
	}
	lines := json.NewDecoder(in)
	var q struct{ Op string }
	for lines.Decode(&q) == nil {
		n.change(func() { n.asked = append(n.asked, q.Op) })
		answer := n.answers[q.Op]
		switch q.Op {
		case "hello":
			answer = cmp.Or(answer, "{}")
		case "run":
			answer = `{"task":{"id":"` + strings.Repeat("T", wire.TaskIDSize) + `","api":"opencl"},"token":"` + strings.Repeat("ab", 32) + `"}`
			n.change(func() { n.held++ })
			defer n.change(func() { n.held-- })
		}
		if _, err := io.WriteString(conn, answer+"\n"); err != nil {
			return
		}
	}
}

// holds waits until so many tasks are held.
func (n *fakePoolNode) holds(t *testing.T, tasks int) {
	t.Helper()
	n.until(t, func() bool { return n.held == tasks })
}

// has waits until it was asked something.
func (n *fakePoolNode) has(t *testing.T, asked string) {
	t.Helper()
	n.until(t, func() bool { return slices.Contains(n.asked, asked) })
}

func (n *fakePoolNode) until(t *testing.T, is func() bool) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		n.mu.Lock()
		done, told := is(), n.told
		n.mu.Unlock()
		if done {
			return
		}
		select {
		case <-told:
		case <-late:
			t.Fatal("what was waited for at the node did not come")
		}
	}
}

// library skips a test where this program has no client library for programs.
func library(t *testing.T) {
	t.Helper()
	if _, err := pool.Library(t.TempDir()); err != nil {
		t.Skipf("without a client library nothing runs: %v", err)
	}
}
