//go:build linux

package pool_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pool/tunnel"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// TestEncrypted: a program computes over TLS what it computes natively, on one
// node and on the cards of two in one context, and with shared virtual memory.
func TestEncrypted(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{Encryption: true}), start(t, pool.NodeConfig{Encryption: true})
	if !strings.HasPrefix(a.tcp, "tls:") || !strings.HasPrefix(a.unix, "unix:") {
		t.Fatalf("it listens at %s and %s", a.tcp, a.unix)
	}
	want, prints := native(t, "add", "4"), native(t, "print")
	for _, at := range []string{a.tcp, a.unix} {
		_, run := share(t, at, pool.Spec{Device: "opencl-0", Compute: 40, Memory: 100 * mib})
		if got := output(t, run("add", "4")); got != want {
			t.Errorf("%s: got %q, want %q", at, got, want)
		}
		if got := output(t, run("print")); got != prints {
			t.Errorf("%s: what kernels print: got %q, want %q", at, got, prints)
		}
		if got := output(t, run("threads")); got != "threads 7\n" {
			t.Errorf("%s: an event that another thread sets: %q", at, got)
		}
	}
	for _, at := range [][]string{{a.tcp, b.tcp}, {a.unix, b.tcp}} {
		if got := output(t, over(t, at...)("cards", "4")); got != "cards 2\nrounds 4\n" {
			t.Errorf("%v: got %q", at, got)
		}
	}
	svmSame(t, a, svmProgram(t), a.tcp, "")
}

// TestCUDARemoteEncrypted: so does one of CUDA.
func TestCUDARemoteEncrypted(t *testing.T) {
	n := startRemoteOf(t, pool.NodeConfig{Encryption: true})
	_, run := n.share(t, n.tcp, pool.Spec{Device: "cuda-0", Compute: 100, Memory: 400 * mib})
	for _, args := range [][]string{{"compute", n.elf}, {"copies"}, {"threads", "8"}, {"late"}} {
		if got, want := output(t, run(args...)), n.native(t, args...); got != want {
			t.Errorf("%s:\n%s", args[0], differ(got, want))
		}
	}
}

// TestEncryptedMoves: a program moves between nodes that encrypt, from the memory
// of this machine and back, while it computes; each of its steps is right, and who
// holds its task holds it there.
func TestEncryptedMoves(t *testing.T) {
	t.Parallel()
	a, b, plain := start(t, pool.NodeConfig{Encryption: true}), start(t, pool.NodeConfig{Encryption: true}), start(t, pool.NodeConfig{})
	for _, from := range []string{a.tcp, a.unix} {
		client := dial(t, from)
		task, token, err := client.Run(pool.Spec{Device: "opencl-0", Compute: 40, Memory: 64 * mib})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan string, 1)
		go func() { why, _ := client.Ended(); ended <- why }()
		w := walk(t, program(t, from, task.ID, token, "walk", "8"))
		if _, _, err := dial(t, from).Migrate(task.ID, plain.tcp, ""); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "does not") {
			t.Errorf("to a node that does not encrypt: %v", err)
		}
		at, to := from, b.tcp
		for i := range 6 {
			moved, _, err := dial(t, at).Migrate(task.ID, to, "")
			if err != nil {
				t.Fatalf("move %d: %v\n%s\n%s%s", i, err, a.log, b.log, w.errs)
			}
			if moved.Programs != 1 || moved.Used < 8*mib {
				t.Errorf("move %d: %+v", i, moved)
			}
			if at, to = to, at; i == 0 {
				to = a.tcp
			}
		}
		if got := output(t, program(t, from, task.ID, token, "add")); !strings.HasPrefix(got, "sum ") {
			t.Errorf("a program that starts where the task was: %q", got)
		}
		w.end()
		if err := dial(t, at).Stop(task.ID); err != nil {
			t.Error(err)
		}
		if why := <-ended; why != "it was stopped" {
			t.Errorf("who asked for the task hears %q\n%s\n%s", why, a.log, b.log)
		}
	}
	// To where it is encrypted a task may come from where it is not.
	task, run := share(t, plain.tcp, pool.Spec{Device: "opencl-0", Compute: 10, Memory: 64 * mib})
	w := walk(t, run("walk", "4"))
	if _, _, err := dial(t, plain.tcp).Migrate(task.ID, a.tcp, ""); err != nil {
		t.Fatal(err)
	}
	plain.log.await(t, "program ended")
	w.end()
}

// TestEncryptedMoveFails: what is cut off while it moves computes on where it is.
func TestEncryptedMoveFails(t *testing.T) {
	t.Parallel()
	a, b := start(t, pool.NodeConfig{Encryption: true}), start(t, pool.NodeConfig{Encryption: true})
	task, run := share(t, a.tcp, pool.Spec{Device: "opencl-0", Compute: 60, Memory: 64 * mib})
	w := walk(t, run("walk", "8"))
	client, there := dial(t, a.tcp), dial(t, b.tcp)
	for _, c := range []cut{{}, {after: 300}, {after: 900}, {after: 3 << 20}, {after: 8 << 20}} {
		if _, _, err := client.Migrate(task.ID, c.listen(t, b.tcp), ""); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("cut off at %+v: %v", c, err)
		}
		eventually(t, func() bool { d, err := there.Devices(); return err == nil && d[0].Tasks == 0 })
	}
	if _, _, err := client.Migrate(task.ID, b.tcp, ""); err != nil {
		t.Errorf("after all that: %v", err)
	}
	w.end()
}

// TestNothingSeen: who reads along on TCP sees neither what a program has in memory
// nor its source, not when it moves to another node, and not what it is called; where
// a node does not encrypt, all of that.
func TestNothingSeen(t *testing.T) {
	t.Parallel()
	const secret, name = "nobody is to read this text", "a name that nobody is to know"
	keep := compiled(t, "keep", "../../shim/test/keep.c", "-l:libOpenCL.so.1")
	for _, encrypted := range []bool{false, true} {
		a, b := start(t, pool.NodeConfig{Encryption: encrypted}), start(t, pool.NodeConfig{Encryption: encrypted})
		seen := map[string]*lines{}
		at := func(where string, n node) string {
			seen[where] = &lines{}
			return through(t, n.tcp, seen[where], seen[where])
		}
		first, second := at("at the first node", a), at("at the second", b)
		task, token := ask(t, first, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib, Name: name})
		in, out := converse(t, program(t, first, task.ID, token, keep, secret))
		if line, _ := out.ReadString('\n'); line != "kept\n" {
			t.Fatalf("it said %q", line)
		}
		if _, _, err := dial(t, first).Migrate(task.ID, second, ""); err != nil {
			t.Fatal(err)
		}
		a.log.await(t, "program ended") // it has followed
		_, _ = io.WriteString(in, "\n")
		if line, _ := out.ReadString('\n'); line != "it is\n" {
			t.Fatalf("it said %q", line)
		}
		raw, err := hex.DecodeString(token)
		if err != nil {
			t.Fatal(err)
		}
		for where, all := range seen {
			text := all.String()
			for what, word := range map[string]string{"what is in memory": secret, "its source": "kernel void copy", "its name": name} {
				if strings.Contains(text, word) == encrypted {
					t.Errorf("encrypted %v: %s, %d bytes: %s is seen: %v", encrypted, where, len(text), what, !encrypted)
				}
			}
			for what, word := range map[string]string{"the token": token, "the token's bytes": string(raw), "the group's key": key} {
				if strings.Contains(text, word) {
					t.Errorf("encrypted %v: %s: %s was said", encrypted, where, what)
				}
			}
			if len(text) < 4*mib {
				t.Errorf("encrypted %v: %s only %d bytes came by", encrypted, where, len(text))
			}
		}
	}
}

// inBetween is an address at which somebody in between has a key of his own: he
// reads what comes first, and then what each side says to him.
func inBetween(t *testing.T, at string, seen io.Writer) string {
	return door(t, at, func(client, node net.Conn) {
		defer client.Close()
		defer node.Close()
		pass := func(to io.Writer, from io.Reader, n int) []byte {
			b := make([]byte, n)
			_, _ = io.ReadFull(from, b)
			_, _ = to.Write(b)
			return b
		}
		pass(client, node, len(wire.Greeting)+wire.ChallengeSize)
		if kind := pass(node, client, 16); string(kind[8:]) != wire.ControlHello {
			pass(node, client, wire.TaskIDSize+wire.MACSize)
		}
		pass(client, node, wire.AnswerSize)
		near, _, err := tunnel.Server(client)
		if err != nil {
			t.Errorf("it does not speak to who is in between: %v", err)
			return
		}
		far, _, err := tunnel.Client(node)
		if err != nil {
			t.Errorf("the node does not speak to who is in between: %v", err)
			return
		}
		var both sync.WaitGroup
		for _, x := range [][2]*tls.Conn{{near, far}, {far, near}} {
			both.Go(func() {
				_, _ = io.Copy(io.MultiWriter(seen, x[0]), x[1])
				_ = x[0].Close()
			})
		}
		both.Wait()
	})
}

// TestInBetween: who is in between, with a key of his own, is found out by both
// before a program or a client says anything of what it wants.
func TestInBetween(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{Encryption: true})
	task, token := ask(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	seen := &lines{}
	at := inBetween(t, n.tcp, seen)
	if out, err := program(t, at, task.ID, token, "add").CombinedOutput(); err == nil || !strings.Contains(string(out), "somebody is in between") {
		t.Errorf("a program: %v, %s", err, out)
	}
	n.log.await(t, "does not know the task's token, or somebody is in between")
	if len(seen.String()) != tunnel.ProofSize {
		t.Errorf("he has seen %q", seen.String())
	}
	if _, err := pool.Dial(t.Context(), at, "a", key); fault.KindOf(err) != fault.Unauthenticated {
		t.Errorf("a client: %v", err)
	}
	n.log.await(t, "with this key may not use the pool node")
	idle(t, n, task)
}

// idle: a task's node has no programs, and others compute.
func idle(t *testing.T, n node, task pool.Task) {
	t.Helper()
	eventually(t, func() bool {
		tasks, err := dial(t, n.unix).Tasks()
		return err == nil && !slices.ContainsFunc(tasks, func(x pool.Task) bool { return x.ID == task.ID && (x.Programs > 0 || x.Used > 0) })
	})
	_, run := share(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 10, Memory: 32 * mib})
	if got, want := output(t, run("add")), native(t, "add"); got != want {
		t.Errorf("another program: %q, natively %q", got, want)
	}
}

// TestNotDowngraded: who was told that a node encrypts says nothing in the clear,
// whatever answers; and a node that encrypts has nobody say anything in the clear.
func TestNotDowngraded(t *testing.T) {
	t.Parallel()
	n, plain := start(t, pool.NodeConfig{Encryption: true}), start(t, pool.NodeConfig{})
	clear := func(at string) string { return strings.Replace(at, "tls:", "tcp:", 1) }
	fails := func(what, says string, cmd *exec.Cmd) {
		t.Helper()
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), says) {
			t.Errorf("%s: %v, %s", what, err, out)
		}
	}
	const ours, theirs = "the pool node encrypts what is said over TCP: its address begins with tls:", "the pool node does not encrypt what is said at this address"
	task, token := ask(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	fails("a program that does not encrypt", ours, program(t, clear(n.tcp), task.ID, token, "add"))
	n.log.await(t, ours)
	if _, err := pool.Dial(t.Context(), clear(n.tcp), "a", key); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), ours) {
		t.Errorf("a client that does not encrypt: %v", err)
	}
	fails("a wrong token", "the pool node has no such task with this token", program(t, n.tcp, task.ID, strings.Repeat("0", 64), "add"))
	n.log.await(t, "no such task with this token")
	if _, err := pool.Dial(t.Context(), n.tcp, "a", "not the key of the group"); fault.KindOf(err) != fault.Unauthenticated {
		t.Errorf("a wrong key: %v", err)
	}

	other, token2 := ask(t, plain.tcp, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	told := strings.Replace(plain.tcp, "tcp:", "tls:", 1)
	fails("a node that does not encrypt", theirs, program(t, told, other.ID, token2, "add"))
	plain.log.await(t, theirs)
	if _, err := pool.Dial(t.Context(), told, "a", key); fault.KindOf(err) != fault.Unauthenticated || !strings.Contains(err.Error(), "does not encrypt") {
		t.Errorf("a client at a node that does not encrypt: %v", err)
	}

	answer := func(op uint16, text string) []byte {
		b := make([]byte, wire.AnswerSize)
		wire.PutAnswer(b, op, 0, 0, 0, 0, 0, len(text))
		return append(b, text...)
	}
	const unlike, ended = "what answers does not encrypt what is said, as it should", "the pool node ended the connection"
	for _, c := range []struct {
		name, says string
		answers    []byte
	}{
		{"a plain answer", unlike, answer(wire.OpAnswer, "")},
		{"sent elsewhere, in the clear", unlike, answer(wire.OpMoved, "tcp:127.0.0.1:1")},
		{"what is no answer", unlike, bytes.Repeat([]byte("rubbish!"), 100)},
		{"an answer that is longer", unlike, answer(wire.OpEncrypt, "more")},
		{"less than an answer", ended, answer(wire.OpAnswer, "")[:20]},
		{"nothing", ended, nil},
		{"a plain answer instead of TLS", unlike, append(answer(wire.OpEncrypt, ""), answer(wire.OpAnswer, "")...)},
		{"rubbish instead of TLS", unlike, append(answer(wire.OpEncrypt, ""), bytes.Repeat([]byte("rubbish!"), 1000)...)},
		{"nothing instead of TLS", unlike, answer(wire.OpEncrypt, "")},
		{"a refusal", "refused", answer(wire.OpRefused, "because \x1b[2J")},
	} {
		said := &lines{}
		at := answers(t, said, c.answers)
		out, err := program(t, at, task.ID, token, "add").CombinedOutput()
		if err == nil || c.says != "refused" && !strings.Contains(string(out), c.says) || c.says == "refused" && !strings.Contains(string(out), "because  [2J") {
			t.Errorf("%s: a program: %v, %q", c.name, err, out)
		}
		want := 16 + wire.TaskIDSize + wire.MACSize
		eventually(t, func() bool { return len(said.String()) >= want }) // it is written down meanwhile
		if len(said.String()) < want || strings.Contains(said.String()[want:], "kernel") {
			t.Errorf("%s: it said %q", c.name, said.String())
		}
		if _, err := pool.Dial(t.Context(), at, "a", key); err == nil {
			t.Errorf("%s: a client is content", c.name)
		}
	}

	// What is asked for wrongly.
	for _, x := range []struct{ listen, says string }{{"rdma:127.0.0.1:0", "offers no RDMA"}, {"tls:127.0.0.1:0", "listens at tcp:HOST:PORT"}} {
		_, err := pool.NewNode(pool.NodeConfig{Dir: t.TempDir(), Encryption: true, Listen: []string{x.listen}, Groups: []pool.Group{{Name: "a", Key: key}}}, slog.New(slog.DiscardHandler))
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), x.says) {
			t.Errorf("a node at %s: %v", x.listen, err)
		}
	}
	idle(t, n, task)
}

// answers is an address at which a greeting is said and then something else.
func answers(t *testing.T, said io.Writer, answer []byte) string {
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = door.Close() })
	go func() {
		for {
			conn, err := door.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write(append([]byte(wire.Greeting), make([]byte, wire.ChallengeSize)...))
			first := make([]byte, 16)
			if _, err := io.ReadFull(conn, first); err == nil {
				_, _ = said.Write(first)
				_, _ = conn.Write(answer)
				_ = conn.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(said, conn)
			}
			_ = conn.Close()
		}
	}()
	return "tls:" + door.Addr().String()
}

// TestHalfEncrypted: who has a task's token and says something else than TLS, or
// stops in its midst, has a worker for 10 s at most, and holds nobody up.
func TestHalfEncrypted(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{Encryption: true})
	task, token := ask(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	raw, err := hex.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	// begin comes as far as TLS.
	begin := func() net.Conn {
		conn, challenge := greeted(t, n.tcp)
		m := hmac.New(sha256.New, raw)
		m.Write(challenge)
		m.Write([]byte(task.ID + wire.TLSGreeting))
		_, _ = conn.Write(m.Sum([]byte(wire.TLSGreeting + wire.DataGreeting + task.ID)))
		answer := make([]byte, wire.AnswerSize)
		if _, err := io.ReadFull(conn, answer); err != nil || binary.LittleEndian.Uint16(answer[8:]) != wire.OpEncrypt {
			t.Fatalf("it is not let in: %v, %x\n%s", err, answer, n.log)
		}
		return conn
	}
	encrypted := func() *tls.Conn {
		c, _, err := tunnel.Client(begin())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var hello bytes.Buffer // a client's first words
	_ = tls.Client(&recorder{w: &hello}, &tls.Config{InsecureSkipVerify: true}).Handshake()

	quick := map[string]func(){
		"rubbish":              func() { _, _ = begin().Write(bytes.Repeat([]byte("rubbish!"), 1000)) },
		"nothing, and it goes": func() { _ = begin().Close() },
		"an older TLS": func() {
			_ = tls.Client(begin(), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}).Handshake()
		},
		"a wrong proof":    func() { _, _ = encrypted().Write(make([]byte, tunnel.ProofSize)) },
		"half a proof":     func() { c := encrypted(); _, _ = c.Write(make([]byte, 16)); _ = c.Close() },
		"its hello, again": func() { c := begin(); _, _ = c.Write(hello.Bytes()); _, _ = c.Write(hello.Bytes()) },
		"its hello, bytewise": func() {
			c := begin()
			for _, b := range hello.Bytes() {
				_, _ = c.Write([]byte{b})
			}
			_ = c.Close()
		},
	}
	for what, do := range quick {
		const ended = "level=WARN msg=\"program ended\""
		before := strings.Count(n.log.String(), ended)
		do()
		eventually(t, func() bool { return strings.Count(n.log.String(), ended) > before })
		if tail := n.log.String(); !strings.Contains(tail[strings.LastIndex(tail, ended):], "encrypted") {
			t.Errorf("%s: the node says\n%s", what, tail)
		}
	}
	began := time.Now()
	slow := []net.Conn{begin(), begin(), encrypted()}
	_, _ = slow[1].Write(hello.Bytes()[:len(hello.Bytes())/2])
	_, run := share(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 10, Memory: 32 * mib})
	if got, want := output(t, run("add")), native(t, "add"); got != want {
		t.Errorf("meanwhile a program says %q, natively %q", got, want)
	}
	for i, c := range slow {
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%d: after %s it still has a worker", i, time.Since(began))
		}
	}
	n.log.await(t, "did not say what encrypts its connection in 10s")
	idle(t, n, task)
	// A hello that was heard is of no use again.
	said := &lines{}
	at := through(t, n.tcp, said, io.Discard)
	output(t, program(t, at, task.ID, token, "add"))
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.tcp, "tls:"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, said.String()[:16+wire.TaskIDSize+wire.MACSize])
	greeting := make([]byte, len(wire.Greeting)+wire.ChallengeSize+wire.AnswerSize)
	if _, err := io.ReadFull(conn, greeting); err != nil || binary.LittleEndian.Uint16(greeting[len(wire.Greeting)+wire.ChallengeSize+8:]) != wire.OpRefused {
		t.Errorf("what was heard is taken again: %v, %x", err, greeting)
	}
}

// recorder is a connection on which nobody answers.
type recorder struct {
	net.Conn
	w io.Writer
}

func (r *recorder) Write(b []byte) (int, error) { return r.w.Write(b) }
func (r *recorder) Read([]byte) (int, error)    { return 0, io.EOF }
func (r *recorder) Close() error                { return nil }

// TestEncryptedFlipped: where a bit of what is said changes on its way, a program
// computes nothing wrong, and nobody crashes.
func TestEncryptedFlipped(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{Encryption: true})
	task, token := ask(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 80, Memory: 64 * mib})
	want := native(t, "add")
	random := rand.New(rand.NewPCG(1, uint64(os.Getpid())))
	failed := 0
	for i := range 24 {
		at := random.IntN(1 << (6 + i/2)) // most are in what comes first
		var byNode flip
		var byProgram flip
		if i%2 == 0 {
			byNode = flip{at: wire.AnswerSize + 40 + at}
		} else {
			byProgram = flip{at: 16 + wire.TaskIDSize + wire.MACSize + at}
		}
		cmd := program(t, flipped(t, n.tcp, byProgram, byNode), task.ID, token, "add")
		out, err := cmd.CombinedOutput()
		switch {
		case err == nil && string(out) == want: // nothing that was said
		case cmd.ProcessState.ExitCode() < 0 || err == nil:
			t.Errorf("flipped %+v, %+v: %v, %s", byProgram, byNode, err, out)
		default:
			failed++
		}
	}
	if failed < 8 {
		t.Errorf("only %d of 24 programs failed", failed)
	}
	if strings.Contains(n.log.String(), "panic") || strings.Contains(n.log.String(), "signal: segmentation") {
		t.Errorf("the node says\n%s", n.log)
	}
	idle(t, n, task)
}

// flip changes a bit of what is passed on; 0: none.
type flip struct{ at, seen int }

func (f *flip) pass(to net.Conn, from net.Conn) {
	b := make([]byte, 32<<10)
	for {
		k, err := from.Read(b)
		if i := f.at - f.seen; f.at > 0 && i >= 0 && i < k {
			b[i] ^= 4
			time.AfterFunc(time.Second, func() { _, _ = to.Close(), from.Close() }) // the other may wait for more than there is: a length has changed
		}
		f.seen += k
		if _, werr := to.Write(b[:k]); err != nil || werr != nil {
			_ = to.Close()
			_ = from.Close()
			return
		}
	}
}

func flipped(t *testing.T, at string, byProgram, byNode flip) string {
	return door(t, at, func(from, node net.Conn) {
		there, back := byProgram, byNode
		go there.pass(node, from)
		back.pass(from, node)
	})
}

// TestNoOpenSSL: a program whose system cannot encrypt says so, and nothing else.
func TestNoOpenSSL(t *testing.T) {
	t.Parallel()
	n := start(t, pool.NodeConfig{Encryption: true})
	said := &lines{}
	task, token := ask(t, n.tcp, pool.Spec{Device: "opencl-0", Compute: 50, Memory: 64 * mib})
	at := through(t, n.tcp, said, said)
	library := func(dir, name, source string) {
		t.Helper()
		text := filepath.Join(dir, "x.c")
		if err := os.WriteFile(text, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-w", "-o", filepath.Join(dir, name), text).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	none, old, first, bare := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{none, old, first} { // what is there is none
		for _, name := range []string{"libcrypto.so.3", "libcrypto.so.1.1", "libssl.so.3", "libssl.so.1.1", "libssl.so.1.0.2", "libssl.so.1.0.0", "libssl.so.10"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("no library\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	library(old, "libssl.so.1.0.0", "int SSL_library_init(void) { return 1; }")
	all := "#define F(f) int f() { return 0; }\nunsigned long OpenSSL_version_num(void) { return 0x101000cf; }\n"
	for f := range strings.FieldsSeq("OPENSSL_init_crypto BIO_get_new_index BIO_meth_new BIO_meth_set_write BIO_meth_set_read BIO_meth_set_ctrl BIO_new BIO_set_init BIO_set_data BIO_get_data BIO_set_flags BIO_clear_flags " +
		"TLS_client_method SSL_CTX_new SSL_CTX_ctrl SSL_new SSL_free SSL_set_bio SSL_connect SSL_read SSL_peek SSL_write SSL_want SSL_export_keying_material") {
		all += "F(" + f + ")\n"
	}
	for dir, source := range map[string]string{first: all + "F(SSL_key_update)\n", bare: all} {
		library(dir, "libcrypto.so.3", source)
		library(dir, "libssl.so.3", source)
	}
	for dir, says := range map[string]string{
		none:  "there is no OpenSSL here (libssl.so.3, or libssl.so.1.1 of 1.1.1)",
		old:   "libssl.so.1.0.0 is too old, OpenSSL 1.1.1 or later has TLS 1.3",
		first: "libssl.so.3 is too old, OpenSSL 1.1.1 or later has TLS 1.3",
		bare:  "libssl.so.3 has no SSL_key_update",
	} {
		cmd := program(t, at, task.ID, token, "add")
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+dir)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "what is said to the pool node cannot be encrypted: "+says) || !strings.Contains(string(out), ": "+at) {
			t.Errorf("%v, %s, want %s", err, out, says)
		}
	}
	if said.String() != "" {
		t.Errorf("it said %q", said.String())
	}
	// With the Unix socket it needs nothing of that.
	_, run := share(t, n.unix, pool.Spec{Device: "opencl-0", Compute: 20, Memory: 64 * mib})
	cmd := run("add")
	cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+none)
	if got, want := output(t, cmd), native(t, "add"); got != want {
		t.Errorf("over the Unix socket: %q, natively %q", got, want)
	}
}

// sealed is a node of a platform that the test plays, which encrypts.
type sealed struct {
	at     string // tls:…
	boot   string
	epoch  int64
	secret []byte
	log    *lines
	wants  chan pool.Wanted
	moved  chan pool.Moved
}

func startSealed(t *testing.T, id string) *sealed {
	t.Helper()
	m := &sealed{secret: []byte("a secret of " + id + " and its platform"), log: &lines{}, wants: make(chan pool.Wanted, 1), moved: make(chan pool.Moved, 8)}
	n, err := pool.NewNode(pool.NodeConfig{Dir: t.TempDir(), Listen: []string{"tcp:127.0.0.1:0"}, Encryption: true, Member: &pool.Member{ID: id, Secret: m.secret}}, slog.New(slog.NewTextHandler(m.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended, told := make(chan error, 2), make(chan pool.Report, 1)
	go func() { ended <- n.Run(ctx) }()
	go func() {
		ended <- n.Attend(ctx, func(ctx context.Context, r pool.Report, wait time.Duration) (w pool.Wanted, err error) {
			select {
			case told <- r:
			default:
			}
			for _, x := range r.Moved {
				m.moved <- x
			}
			select {
			case <-ctx.Done():
			case w = <-m.wants:
			case <-time.After(wait):
			}
			return w, nil
		})
	}()
	t.Cleanup(func() { stop(); <-ended; <-ended })
	r := <-told
	m.at, m.boot, m.epoch = r.Addresses[0], r.Boot, r.Epoch
	return m
}

// ticket is a pass to a node, for a slice that comes from another if it moves.
func (m *sealed) ticket(t *testing.T, id, slice string, move bool) pool.Pass {
	t.Helper()
	text, key, err := pool.Ticket{Node: id, Boot: m.boot, Epoch: m.epoch, Serial: id + slice, Slice: slice, Move: move, Spec: pool.Spec{Device: "opencl-0", Compute: 40, Memory: 64 * mib}}.Sign(m.secret)
	if err != nil {
		t.Fatal(err)
	}
	return pool.Pass{Slice: slice, Addresses: []string{m.at}, Host: pool.Host(), Ticket: text, Key: key}
}

// TestEncryptedTickets: nodes of a platform report that they encrypt by their addresses,
// and a slice is had by a ticket, and moved by one, over TLS; by who is in between it is not.
func TestEncryptedTickets(t *testing.T) {
	t.Parallel()
	start(t, pool.NodeConfig{}) // or it is skipped
	a, b := startSealed(t, "n1"), startSealed(t, "n2")
	if !pool.Encrypts(a.at) || !pool.Encrypts(b.at) {
		t.Fatalf("they report %s and %s", a.at, b.at)
	}
	stolen := a.ticket(t, "n1", "s0", false)
	stolen.Addresses = []string{inBetween(t, a.at, io.Discard)}
	if _, _, _, _, err := stolen.Redeem(t.Context()); fault.KindOf(err) != fault.Unauthenticated {
		t.Errorf("by who is in between: %v", err)
	}
	client, task, token, at, err := a.ticket(t, "n1", "s1", false).Redeem(t.Context())
	if err != nil || at != a.at {
		t.Fatalf("%v, at %s\n%s", err, at, a.log)
	}
	defer client.Close()
	go func() { _, _ = client.Ended() }()
	w := walk(t, program(t, at, task.ID, token, "walk", "4"))
	there := b.ticket(t, "n2", "s1", true)
	slice := pool.WantedSlice{Slice: "s1", Compute: 40, Memory: 64 * mib}
	a.wants <- pool.Wanted{Slices: []pool.WantedSlice{slice}, Moves: []pool.Move{{Slice: "s1", ID: "m1", Addresses: there.Addresses, Ticket: there.Ticket, Key: there.Key}}}
	if m := <-a.moved; m.Error != "" || m.ID != "m1" {
		t.Fatalf("it moved: %+v\n%s\n%s", m, a.log, b.log)
	}
	b.log.await(t, "client followed")
	a.log.await(t, "program ended")
	w.end()
}
