//go:build linux

package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/tunnel"
	"yunhe.dev/yunhe/internal/pool/wire"
)

var testSecret = between.Secret{Token: bytes.Repeat([]byte{7}, wire.MACSize), Hello: bytes.Repeat([]byte{9}, wire.MACSize)}

// ends are both ends of a TCP connection.
func ends(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// TestSealed: what is said both ways at once through a program's library and a
// worker's path comes as it was said, with new keys every so often. What looks for
// races and wrong memory looks at the library.
func TestSealed(t *testing.T) {
	t.Parallel()
	for _, check := range []string{"thread", "address,undefined"} {
		t.Run(check, func(t *testing.T) {
			t.Parallel()
			program := filepath.Join(t.TempDir(), "tunnel")
			out, err := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-DREKEY=(1<<20)", "-fsanitize="+check, "-o", program,
				"../../../shim/test/tunnel.c", "../../../shim/src/own.c", "../../../shim/src/path.c", "../../../shim/src/ring.c", "../../../shim/src/rdma.c", "../../../shim/src/sha256.c", "-ldl", "-pthread").CombinedOutput()
			if err != nil {
				t.Skipf("SKIPPED: no gcc that checks %s: %v: %s", check, err, out)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			_, port, _ := net.SplitHostPort(l.Addr().String())
			const size = 24 << 20
			cmd := exec.CommandContext(t.Context(), program, port, fmt.Sprint(size))
			said := &bytes.Buffer{}
			cmd.Stdout, cmd.Stderr = said, said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			_, path, err := OpenProgram(testSecret, conn)
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			heard := make(chan []byte, 1<<10)
			go func() {
				defer close(heard)
				for left := size; left > 0; {
					b := make([]byte, 100_000)
					n, err := path.Read(b)
					if err != nil {
						t.Errorf("after %d bytes: %v", size-left, err)
						return
					}
					left -= n
					heard <- b[:n]
				}
			}()
			for b := range heard { // while it is heard
				head := len(b) / 7
				if err := WriteAll(path, b[:head], b[head:]); err != nil {
					t.Fatal(err)
				}
			}
			_ = path.Close()
			if err := cmd.Wait(); err != nil || said.String() != "right, new keys often\n" {
				t.Errorf("%v: %s", err, said)
			}
		})
	}
}

// TestSealedWakes: who waits for what is encrypted can be made to look up, and loses
// nothing by that, wherever in a record it was.
func TestSealedWakes(t *testing.T) {
	t.Parallel()
	near, far := ends(t)
	opened := make(chan error, 1)
	var path Path
	go func() {
		var err error
		_, path, err = OpenProgram(testSecret, near)
		opened <- err
	}()
	slow := &slowly{Conn: far}
	c, word, err := tunnel.Client(slow)
	if err == nil {
		err = tunnel.ProveProgram(c, word, testSecret.Token, testSecret.Hello)
	}
	if err := errors.Join(err, <-opened); err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("a record that comes slowly "), 400)
	slow.pieces = 997
	go func() { _, _ = c.Write(want); _ = far.Close() }()
	got, b, woken := []byte{}, make([]byte, 100), 0
	for {
		wake := time.AfterFunc(time.Millisecond, func() { _ = path.SetReadDeadline(time.Unix(1, 0)) })
		n, err := path.Read(b)
		wake.Stop()
		got = append(got, b[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			if woken++; path.SetReadDeadline(time.Time{}) != nil {
				t.Fatal(err)
			}
		}
	}
	if !bytes.Equal(got, want) || woken == 0 {
		t.Errorf("it heard %d of %d bytes, woken %d times", len(got), len(want), woken)
	}
}

// slowly says what it says in pieces.
type slowly struct {
	net.Conn
	pieces int
}

func (s *slowly) Write(b []byte) (int, error) {
	for at := 0; s.pieces > 0 && at < len(b); at += s.pieces {
		if _, err := s.Conn.Write(b[at:min(at+s.pieces, len(b))]); err != nil {
			return at, err
		}
		<-time.After(3 * time.Millisecond)
	}
	if s.pieces > 0 {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

// FuzzSealed: whatever comes instead of what encrypts a connection is refused, and
// never taken for a program.
func FuzzSealed(f *testing.F) {
	for _, s := range []string{"", "rubbish", "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", "\x14\x03\x03\x00\x01\x01", "\x17\x03\x03\x40\x00"} {
		f.Add([]byte(s))
	}
	hello := &recorded{}
	_, _, _ = tunnel.Client(hello)
	f.Add(hello.b)
	f.Fuzz(func(t *testing.T, b []byte) {
		near, far := ends(t)
		go func() {
			_, _ = far.Write(b)
			_ = far.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, far)
		}()
		if _, path, err := OpenProgram(testSecret, near); err == nil {
			t.Errorf("a program: %T", path)
		}
	})
}

type recorded struct {
	net.Conn
	b []byte
}

func (r *recorded) Write(b []byte) (int, error) { r.b = append(r.b, b...); return len(b), nil }
func (r *recorded) Read([]byte) (int, error)    { return 0, io.EOF }

// FuzzReadSecret: what a node says first is taken only if it is of its form.
func FuzzReadSecret(f *testing.F) {
	f.Add(between.PutSecret(testSecret))
	f.Add(between.PutSecret(between.Secret{Token: testSecret.Token}))
	f.Add(between.PutText(between.MoveSealed, []byte("short")))
	f.Add(between.PutText(between.SaysSecret, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		near, far := net.Pipe()
		go func() { _, _ = far.Write(b); _ = far.Close() }()
		defer near.Close()
		s, err := between.ReadSecret(near)
		if err == nil && (len(s.Token) != wire.MACSize || len(s.Hello) != 0 && len(s.Hello) != wire.MACSize) {
			t.Errorf("a secret of %d and %d bytes", len(s.Token), len(s.Hello))
		}
		frame := between.Frame{What: between.MoveSealed, Text: b}
		if hello := frame.Hello(between.MoveSealed); len(hello)+len(frame.Text) != len(b) || len(hello) > wire.MACSize {
			t.Errorf("a hello of %d bytes, and %d follow, of %d", len(hello), len(frame.Text), len(b))
		}
	})
}
