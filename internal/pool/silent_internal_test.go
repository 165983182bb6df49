//go:build linux

package pool

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// TestSilentWorker: a worker that asks for turn after turn and reads nothing of what it
// is told is ended. Neither the others of its device nor who moves it wait for it.
func TestSilentWorker(t *testing.T) {
	t.Parallel()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs, own := os.NewFile(uintptr(pair[1]), "theirs"), os.NewFile(uintptr(pair[0]), "own")
	defer theirs.Close()
	ours, err := net.FileConn(own)
	_ = own.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	n, x, ended := &Node{log: slog.New(slog.DiscardHandler)}, &task{}, 0
	x.compute.Store(50)
	x.Weighted = true
	l := newLink(func() { ended++ })
	l.turns = ours.(*net.UnixConn)
	silent := n.userOf(x, l)
	a := newArbiter()
	defer a.timer.Stop()
	a.add(silent)
	for range 10_000 {
		a.want(silent)
		a.done(silent, 0, false)
	}
	if ended == 0 {
		t.Error("it was not ended")
	}
	granted := 0
	other := &user{account: &account{}, share: func() int64 { return 50 }, weighted: func() bool { return true }, say: func(byte, time.Duration) { granted++ }}
	a.add(other)
	if a.want(other); granted != 1 {
		t.Errorf("another has %d turns", granted)
	}
	if err := l.put(between.PutText(between.Move, make([]byte, 100)), nil); err != errGone {
		t.Errorf("it is told to move: %v", err)
	}
}

// TestSilentClient: a client that asks and reads no answer holds up nobody, and not the
// node when it stops.
func TestSilentClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &Node{log: slog.New(slog.DiscardHandler), makers: &makers{}, tasks: map[string]*task{}}
		n.stopping, n.deaf = context.WithCancel(t.Context())
		client, conn := net.Pipe()
		_ = conn.SetDeadline(time.Now().Add(helloTime)) // as serve does
		over := make(chan struct{})
		go func() {
			defer close(over)
			n.control(conn, make([]byte, wire.ChallengeSize), false, func() {}, func() {})
		}()
		if _, err := io.WriteString(client, `{"op":"hello"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(client).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour) // it may be silent for as long as it likes
		if _, err := io.WriteString(client, `{"op":"tasks"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		n.deaf()
		<-over
		if took := time.Since(began); took > helloTime {
			t.Errorf("the node waited %s", took)
		}
	})
}

// TestDriverLeavesSomething: what a vendor's library starts and leaves behind, with the
// place where it says what there is, keeps the node from nothing.
func TestDriverLeavesSomething(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := put(program, []byte("#!/bin/sh\nsleep 1000 & echo $! >>"+dir+"/left\ncase $1 in list) echo '[]';; esac\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b, _ := os.ReadFile(dir + "/left")
		for pid := range strings.FieldsSeq(string(b)) {
			if p, err := strconv.Atoi(pid); err == nil {
				_ = syscall.Kill(p, syscall.SIGKILL)
			}
		}
	})
	began := time.Now()
	if _, err := list(t.Context(), dir, program); err != nil {
		t.Errorf("devices of OpenCL: %v", err)
	}
	if _, err := listCUDA(t.Context(), dir, program, ""); err != nil && strings.Contains(err.Error(), "WaitDelay") {
		t.Errorf("devices of CUDA: %v", err)
	}
	if took := time.Since(began); took > cardsWithin {
		t.Errorf("the node waited %s for what was left behind", took)
	}
}

// TestDriverWakes: a driver of CUDA that has to wake many cards, each for a second or
// more, is waited for.
func TestDriverWakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	text := fmt.Sprintf("#!/bin/sh\nsleep %.0f\necho '{\"devices\":[{\"uuid\":\"GPU-1\"}]}'\n", (cardsWithin + time.Second).Seconds())
	if err := put(program, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	if found, err := listCUDA(t.Context(), dir, program, ""); err != nil || len(found) != 1 || found[0].UUID != "GPU-1" {
		t.Errorf("it has %+v, %v", found, err)
	}
}
