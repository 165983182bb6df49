//go:build linux

package pool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// TestKinds: what kind of error a node answers with is known on the other side: a
// move that meets what is left of the last one tries again.
func TestKinds(t *testing.T) {
	t.Parallel()
	for _, k := range []fault.Kind{fault.Invalid, fault.NotFound, fault.Exists, fault.Denied, fault.Unauthenticated, fault.Exhausted, fault.Unavailable} {
		if got := kinds[kindName(fault.New(k, "it is so"))]; got != k {
			t.Errorf("%s comes through as %s", k, got)
		}
	}
}

// FuzzControl: whatever a client says on a control connection, in a group and in
// none, the node goes on: it answers each line by one of JSON, lends no more than
// there is, shows a group what is its own, and has nothing left when the
// connection has ended.
func FuzzControl(f *testing.F) {
	const standing, others = "01ARZ3NDEKTSV4RRFFQ69G5FAV", "01BX5ZZKBKACTAV9WEVGEMMVRZ"
	const room = 1 << 30
	adopts := `{"op":"adopt","adopt":{"version":` + string(rune('0'+wire.MoveVersion)) + `,"task":{"id":"01CX5ZZKBKACTAV9WEVGEMMVRZ","compute":5,"memory_bytes":1048576,"slice":"s"},"spec":{},"token":"` + strings.Repeat("0a", 32) + `","device":{"model":"m"},"left_s":9223372036854775807}}`
	for _, s := range []string{
		`{"op":"devices"}`, `{"op":"tasks"}`, `{"op":"run","spec":{"compute":90,"memory_bytes":1048576},"hidden":true}`, `{"op":"run","spec":{"compute":5,"weighted":true}}` + "\n" + `{"op":"tasks"}`,
		`{"op":"run","spec":{"compute":91}}`, `{"op":"run","spec":{"memory_bytes":9223372036853727232,"limit_s":9223372036854775807}}`, `{"op":"resize","task":"` + standing + `","compute":100,"memory_bytes":2097152}`,
		`{"op":"resize","task":"` + standing + `","compute":-1}`, `{"op":"resize","task":"` + standing + `","memory_bytes":-1048576}`, `{"op":"stop","task":"` + standing + `"}`, `{"op":"stop","task":"` + others + `"}`,
		`{"op":"disable","device":"opencl-0"}`, `{"op":"rescan"}`, `{"op":"power","device":"opencl-0","watts":1}`, `{"op":"hold","task":"` + standing + `"}`, `{"op":"arrived"}`, `{"op":"adopt"}`, adopts, adopts + "\n" + `{"op":"arrived"}`,
		`{"op":"migrate","task":"` + others + `","to":""}`, `{"op":"hello","group":"a","mac":"00"}`, `{"op":"none"}`, "", "{", "null", "[]", `"op"`, "\xff", "\n\n", `{"op":1}`, strings.Repeat("x", maxRequest+1), strings.Repeat(`{"spec":`, 9000),
	} {
		f.Add([]byte(s+"\n"), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, said []byte, in bool) {
		for line := range bytes.Lines(said) {
			if q, err := readRequest(bufio.NewReader(bytes.NewReader(append(line, '\n')))); err == nil && q.Op == "migrate" && q.Task == standing {
				t.Skip() // it connects to where it is told
			}
		}
		n := &Node{cfg: NodeConfig{Groups: []Group{{Name: "a", Key: "a key of 16 bytes"}, {Name: "b", Key: "b key of 16 bytes"}}, Overcommit: 100, MemoryOver: 100}, log: slog.New(slog.DiscardHandler),
			tasks: map[string]*task{}, arriving: map[string]*task{}, departed: map[*task]bool{}, moved: map[string]departure{}, holders: map[net.Conn]*task{}, makers: &makers{}}
		n.stopping, n.deaf = context.WithCancel(t.Context())
		d := &device{Device: Device{ID: "opencl-0", API: OpenCL, Model: "m", Memory: room}, turns: newArbiter()}
		var err error
		if d.card, err = newCard(room, d.turns, n.log); err != nil {
			t.Fatal(err)
		}
		defer d.card.close()
		n.devices = []*device{d}
		stand := func(id, group string) {
			x, err := newTask(d, Spec{Compute: 5}, mib)
			if err != nil {
				t.Fatal(err)
			}
			x.ID, x.Group, x.Compute = id, group, 5
			n.tasks[id] = x
		}
		stand(standing, "a")
		stand(others, "b")
		defer func() {
			for _, x := range n.sorted() {
				n.end(x, "")
			}
		}()

		theirs, ours := net.Pipe()
		done, heard := make(chan struct{}), make(chan string, 1)
		challenge := bytes.Repeat([]byte{7}, wire.ChallengeSize)
		go func() {
			defer close(done)
			n.control(theirs, challenge, false, func() {}, func() {})
			_ = theirs.Close()
		}()
		go func() {
			all, _ := io.ReadAll(ours) // until it is closed, here or there
			heard <- string(all)
		}()
		if in {
			_ = json.NewEncoder(ours).Encode(request{Op: "hello", Group: "a", MAC: hex.EncodeToString(groupMAC("a key of 16 bytes", challenge, "a"))})
		}
		_, _ = ours.Write(said) // what is refused is not read to its end
		_ = ours.Close()
		<-done
		answers := slices.Collect(strings.Lines(<-heard))
		for i, line := range answers {
			if !strings.HasSuffix(line, "\n") { // the connection ended meanwhile
				break
			}
			var r reply
			if err := json.Unmarshal([]byte(line), &r); line != "\n" && err != nil {
				t.Fatalf("it answers %q: %v", line, err)
			}
			if !in && (i > 0 || r.Error == "" || len(r.Tasks)+len(r.Devices) > 0 || r.Task != nil) {
				t.Fatalf("who is of no group is answered %q", line)
			}
			if strings.Contains(line, others) && r.Error == "" {
				t.Fatalf("a group is told of another's task: %s", line)
			}
		}
		if len(n.arriving) > 0 || len(n.holders) > 0 || n.tasks[others] == nil || len(n.tasks) > 2 || len(n.tasks) == 2 && n.tasks[standing] == nil || !in && len(n.tasks) != 2 || d.Disabled {
			t.Fatalf("left are %v, %v and %v, of %q", n.tasks, n.arriving, n.holders, answers)
		}
		if compute, memory, _ := n.allotted(func(*task) bool { return true }); compute < 5 || compute > 100 || memory < mib || memory > room {
			t.Fatalf("%d %% and %d bytes are lent", compute, memory)
		}
	})
}
