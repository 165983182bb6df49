//go:build linux

package pool_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// member is a node of a platform that the test plays.
type member struct {
	of   *pool.Member
	at   []string
	log  *lines
	told chan pool.Report
	want chan pool.Wanted // what the next report is answered
	gate chan struct{}    // closed when reports are answered
}

func joined(t *testing.T, id string) *member {
	t.Helper()
	dir, err := os.MkdirTemp("", "yp") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &member{of: &pool.Member{ID: id, Secret: []byte("a secret of the node and its platform")}, log: &lines{}, told: make(chan pool.Report, 1000), want: make(chan pool.Wanted, 1), gate: make(chan struct{})}
	n, err := pool.NewNode(pool.NodeConfig{Dir: dir, Listen: []string{"unix:" + dir + "/s", "tcp:127.0.0.1:0"}, Member: m.of}, slog.New(slog.NewTextHandler(m.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	m.at = n.Addresses()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- n.Run(ctx) }()
	go func() {
		ended <- n.Attend(ctx, func(ctx context.Context, r pool.Report, wait time.Duration) (pool.Wanted, error) {
			select {
			case m.told <- r:
			default: // the test does not read them any more
			}
			var w pool.Wanted
			var due <-chan pool.Wanted
			if wait > 0 {
				due = m.want
			}
			select {
			case w = <-due:
			case <-m.gate:
				select {
				case w = <-due:
				case <-time.After(min(wait, 20*time.Millisecond)):
				}
			case <-ctx.Done():
			}
			return w, nil
		})
	}()
	t.Cleanup(func() { stop(); <-ended; <-ended })
	return m
}

// pass is one for a slice at the node, which its report says how to make.
func (m *member) pass(t *testing.T, r pool.Report, slice, serial string, move bool) (text, key string) {
	t.Helper()
	return m.sign(t, r, pool.Ticket{Serial: serial, Slice: slice, Move: move, Spec: pool.Spec{Memory: mib}})
}

func (m *member) sign(t *testing.T, r pool.Report, x pool.Ticket) (text, key string) {
	t.Helper()
	x.Node, x.Boot, x.Epoch, x.Spec.Device, x.Spec.Compute = m.of.ID, r.Boot, r.Epoch, r.Devices[0].ID, 10
	text, key, err := x.Sign(m.of.Secret)
	if err != nil {
		t.Fatal(err)
	}
	return text, key
}

// TestMemberBrief: of a task that came and ended before the platform heard that it
// came, the platform hears both, in this order: otherwise it waits for it to come.
func TestMemberBrief(t *testing.T) {
	t.Parallel()
	start(t, pool.NodeConfig{}) // or it is skipped
	a, b := joined(t, "a"), joined(t, "b")
	ra, rb := <-a.told, <-b.told
	close(a.gate)
	text, key := a.pass(t, ra, "s", "one", false)
	client, _, _, _, err := pool.Pass{Slice: "s", Addresses: a.at, Host: pool.Host(), Ticket: text, Key: key}.Redeem(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan string, 1)
	go func() { why, _ := client.Ended(); ended <- why }()
	text, key = b.pass(t, rb, "s", "two", true)
	wants := pool.WantedSlice{Slice: "s", Compute: 10, Memory: mib}
	a.want <- pool.Wanted{Slices: []pool.WantedSlice{wants}, Moves: []pool.Move{{Slice: "s", ID: "two", Addresses: b.at, Ticket: text, Key: key}}}
	b.log.await(t, "client followed its task")
	client.Close()
	b.log.await(t, "task ended")
	close(b.gate)
	came := false
	for !came {
		select {
		case r := <-b.told:
			if len(r.Ended) > 0 {
				t.Fatalf("it is said to have ended, and not to have come: %+v", r)
			}
			came = len(r.Tasks) == 1 && r.Tasks[0].Slice == "s" && r.Tasks[0].Device == rb.Devices[0].ID
		case <-t.Context().Done():
			t.Fatal("it is not said to have come")
		}
	}
	for gone := false; !gone; {
		r := <-b.told
		if gone = len(r.Tasks) == 0; gone && (len(r.Ended) != 1 || r.Ended[0].Slice != "s" || r.Ended[0].Reason != "its client ended the connection") {
			t.Errorf("of its end it says %+v", r.Ended)
		}
	}
	if _, _, _, _, err := (pool.Pass{Slice: "s", Addresses: b.at, Host: pool.Host(), Ticket: text, Key: key}).Redeem(t.Context()); fault.KindOf(err) != fault.Denied && fault.KindOf(err) != fault.Unauthenticated {
		t.Errorf("its ticket is good again: %v", err)
	}
}

// TestMemberEndsInTurn: a task that ends while its program has the device is told of
// with that time, though its worker has not ended yet.
func TestMemberEndsInTurn(t *testing.T) {
	t.Parallel()
	start(t, pool.NodeConfig{}) // or it is skipped
	m := joined(t, "a")
	r := <-m.told
	close(m.gate)
	text, key := m.pass(t, r, "s", "one", false)
	client, task, token, at, err := pool.Pass{Slice: "s", Addresses: m.at, Host: pool.Host(), Ticket: text, Key: key}.Redeem(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cmd := program(t, at, task.ID, token, "forever")
	begin(t, cmd, "forever")
	for began := time.Now(); time.Since(began) < 100*time.Millisecond; { // the device, which it has had since it said so
		<-m.told
	}
	client.Close()
	for {
		select {
		case r := <-m.told:
			if len(r.Ended) == 0 {
				continue
			}
			if e := r.Ended[0]; e.Slice != "s" || e.Busy < 50*time.Millisecond {
				t.Errorf("of its end it says %+v", e)
			}
			return
		case <-t.Context().Done():
			t.Fatal("it is not said to have ended")
		}
	}
}

// TestMemberShares: programs that show tickets of a shared slice have one task
// together, also when it moves, and until the last of them ends.
func TestMemberShares(t *testing.T) {
	t.Parallel()
	start(t, pool.NodeConfig{}) // or it is skipped
	a, b := joined(t, "a"), joined(t, "b")
	ra, rb := <-a.told, <-b.told
	close(a.gate)
	close(b.gate)
	redeem := func(serial string, shared bool) (*pool.Client, pool.Task, *walker) {
		t.Helper()
		text, key := a.sign(t, ra, pool.Ticket{Serial: serial, Slice: "s", Shared: shared, Spec: pool.Spec{Memory: 256 * mib}})
		client, task, token, at, err := pool.Pass{Slice: "s", Addresses: a.at, Host: pool.Host(), Ticket: text, Key: key}.Redeem(t.Context())
		if err != nil {
			if shared || fault.KindOf(err) != fault.Exhausted {
				t.Fatal(err)
			}
			return nil, task, nil
		}
		go func() { _, _ = client.Ended() }()
		return client, task, walk(t, program(t, at, task.ID, token, "walk", "4"))
	}
	one, task, w1 := redeem("one", true)
	two, same, w2 := redeem("two", true)
	if task.ID != same.ID {
		t.Fatalf("tasks %s and %s", task.ID, same.ID)
	}
	if other, _, _ := redeem("three", false); other != nil {
		t.Error("a ticket for the slice alone is good beside them")
	}
	text, key := b.sign(t, rb, pool.Ticket{Serial: "move", Slice: "s", Move: true, Spec: pool.Spec{Memory: 256 * mib}})
	a.want <- pool.Wanted{Slices: []pool.WantedSlice{{Slice: "s", Compute: 10, Memory: 256 * mib}}, Moves: []pool.Move{{Slice: "s", ID: "move", Addresses: b.at, Ticket: text, Key: key}}}
	eventually(t, func() bool { return strings.Count(b.log.String(), "client followed its task") == 2 })
	w1.end()
	one.Close()
	w2.end() // which would not, had the task ended
	two.Close()
	b.log.await(t, "task ended")
}
