package bus_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/bus/bustest"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/db/dbtest"
	"yunhe.dev/yunhe/internal/enginetest"
)

// TestOrder: events are in the stream once each and in the order of their
// commits while its leader steps down again and again, servers end and come
// back, and two relays publish at once.
func TestOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trust, err := bus.LoadTrust(dir)
	if err != nil {
		t.Fatal(err)
	}
	cluster := enginetest.NATSCluster(t, 3, func(_ int, o *server.Options) {
		if err == nil {
			err = trust.Apply(o)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	d := dbtest.SQLite(t)
	first, second := open(t, bus.Config{URL: cluster.URL(), Dir: dir, Replicas: 3}), open(t, bus.Config{URL: cluster.URL(), Dir: dir, Replicas: 3})
	bustest.Go(t, func(ctx context.Context) error { return first.Relay(ctx, d) })
	bustest.Go(t, func(ctx context.Context) error { return second.Relay(ctx, d) })
	downs := make(chan int, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		every, n := time.NewTicker(100*time.Millisecond), 0
		defer every.Stop()
		for ctx.Err() == nil {
			if first.StepDown() == nil {
				n++
			}
			<-every.C
		}
		downs <- n
	}()
	var want []string
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for i := range 600 {
		if i == 200 || i == 400 { // whoever leads then
			var account string
			for account = range trust.Accounts {
				if account != trust.SystemAccount {
					break
				}
			}
			leader := max(0, cluster.Leader(account, "YUNHE_EVENTS"))
			cluster.Stop(leader)
			if err := cluster.Start(bustest.Within(t), leader); err != nil {
				t.Fatal(err)
			}
		}
		a, b := fmt.Sprint("a", i), fmt.Sprint("b", i)
		bustest.Emit(t, d, fmt.Sprint("order.", i%3), a, b)
		want = append(want, a, b)
		<-pace.C
	}
	cancel()
	if n := <-downs; n == 0 {
		t.Error("the leader never stepped down")
	}
	drained(t, d)
	same(t, first, want)
}

// TestEachForItself: a stream that knows no batches has the order, too, and so
// has one that has some of the events already.
func TestEachForItself(t *testing.T) {
	t.Parallel()
	b := open(t, bus.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	d := dbtest.SQLite(t)
	var want []string
	for i := range 5 {
		want = append(want, fmt.Sprint(i))
	}
	bustest.Emit(t, d, "x", want...)
	if err := d.Tx(t.Context(), func(tx *db.Tx) error { // what is kept back from the first relay
		if _, err := tx.Exec(t.Context(), `CREATE TABLE kept AS SELECT * FROM outbox`); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `DELETE FROM outbox WHERE event_id > (SELECT event_id FROM outbox ORDER BY event_id LIMIT 1 OFFSET 2)`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	relay := func(b *bus.Bus) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Relay(ctx, d) }()
		drained(t, d)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	relay(b.WithoutBatches())
	same(t, b, want[:3])
	var ids []string
	if err := d.Tx(t.Context(), func(tx *db.Tx) error {
		ids = nil
		if _, err := tx.Exec(t.Context(), `INSERT INTO outbox SELECT * FROM kept`); err != nil {
			return err
		}
		return tx.Query(t.Context(), `SELECT event_id FROM kept ORDER BY event_id`, nil, func(row db.Row) error {
			ids = append(ids, "")
			return row.Scan(&ids[len(ids)-1])
		})
	}); err != nil {
		t.Fatal(err)
	}
	for i, id := range ids { // what a server says it is still taking is looked for
		if there, err := b.There(t.Context(), id); err != nil || there != (i < 3) {
			t.Errorf("event %d is there: %v, %v", i, there, err)
		}
	}
	relay(b)
	same(t, b, want)
}

// TestStuckTwice: an event that was lost on the way, and its ID with it, comes once,
// also where two publish it of whom one has not waited for as long.
func TestStuckTwice(t *testing.T) {
	t.Parallel()
	b := open(t, bus.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	long, now := time.Now().Add(-time.Minute), time.Now()
	for _, x := range []struct {
		since time.Time
		fresh bool
	}{{long, true}, {now, false}, {long, false}} {
		if fresh, err := b.PublishStuck(t.Context(), "e1", "x", x.since); err != nil || fresh != x.fresh {
			t.Errorf("since %v: new %v, %v", x.since, fresh, err)
		}
	}
	same(t, b, []string{"e1"})
}

// drained waits until all events are published.
func drained(tb testing.TB, d *db.DB) {
	tb.Helper()
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	for end := time.Now().Add(30 * time.Second); ; <-every.C {
		var left int
		if err := d.View(tb.Context(), func(tx *db.Tx) error {
			_, err := tx.Get(tb.Context(), `SELECT COUNT(*) FROM outbox`, nil, &left)
			return err
		}); err != nil {
			tb.Fatal(err)
		}
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("%d events are not published", left)
		}
	}
}

func same(t *testing.T, b *bus.Bus, want []string) {
	t.Helper()
	got, err := b.Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("the stream has %d events, want %d; from %d on they are %.200q, want %.200q", len(got), len(want), i, got[min(i, len(got)):], want[min(i, len(want)):])
		}
	}
}

// BenchmarkRelay: events per second from the outbox to the stream, in
// transactions of so many.
func BenchmarkRelay(b *testing.B) {
	for _, x := range []struct {
		name     string
		servers  int
		together int
	}{{"embedded, single", 0, 1}, {"embedded, of 100", 0, 100}, {"cluster, single", 3, 1}, {"cluster, of 100", 3, 100}} {
		b.Run(x.name, func(b *testing.B) {
			dir := b.TempDir()
			cfg := bus.Config{Dir: dir, Listen: "127.0.0.1:0"}
			if x.servers > 0 {
				trust, err := bus.LoadTrust(dir)
				if err != nil {
					b.Fatal(err)
				}
				cluster := enginetest.NATSCluster(b, x.servers, func(_ int, o *server.Options) {
					if err == nil {
						err = trust.Apply(o)
					}
				})
				cfg = bus.Config{URL: cluster.URL(), Dir: dir, Replicas: x.servers}
			}
			events, err := bus.Open(b.Context(), cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			defer events.Close()
			d := dbtest.SQLite(b)
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- events.Relay(ctx, d) }()
			b.ResetTimer()
			for i := 0; i < b.N; i += x.together {
				if err := d.Tx(ctx, func(tx *db.Tx) error {
					for range x.together {
						if err := tx.Emit(ctx, "bench.x", []byte(`["job_01J00000000000000000000000"]`)); err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			}
			drained(b, d)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			cancel()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}
