package db_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
)

// TestServerCrashes: while the server crashes and comes back, transactions
// either succeed, and are there afterwards, or fail with Unavailable.
func TestServerCrashes(t *testing.T) {
	t.Parallel()
	// Without fsync, which is slow: it is not the machine that crashes.
	server := enginetest.PostgresOwn(t, enginetest.PostgresConfig{NotDurable: true, Settings: map[string]string{"synchronous_commit": "on"}})
	url, drop, err := server.NewDatabase(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = drop }) // it goes with the server
	d, err := db.Open(t.Context(), db.Config{URL: url, Name: "crashes"}, slog.New(slog.DiscardHandler))
	must(t, err)
	defer d.Close()
	must(t, d.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `CREATE TABLE written (id TEXT PRIMARY KEY)`)
		return err
	}))
	var mu sync.Mutex // guards acked
	acked := map[string]bool{}
	wrote := make(chan struct{}, 1) // after each success
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for c := range 4 {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("%d-%d", c, n)
				err := d.Tx(t.Context(), func(tx *db.Tx) error {
					_, err := tx.Exec(t.Context(), `INSERT INTO written VALUES ($1)`, id)
					return err
				})
				switch {
				case err == nil:
					mu.Lock()
					acked[id] = true
					mu.Unlock()
					select {
					case wrote <- struct{}{}:
					default:
					}
				case fault.KindOf(err) != fault.Unavailable:
					t.Errorf("write %s: %v", id, err)
				}
			}
		})
	}
	for range 3 {
		for range 20 {
			<-wrote
		}
		must(t, server.Crash())
		must(t, server.Start(t.Context()))
	}
	<-wrote
	<-wrote // it goes on
	close(stop)
	clients.Wait()
	// A caller whose time is up while the server is away is told just that.
	must(t, server.Crash())
	for _, x := range []struct {
		limit time.Duration
		want  fault.Kind
	}{{50 * time.Millisecond, fault.Unavailable}, {0, fault.Canceled}} {
		ctx, cancel := context.WithCancel(t.Context())
		if x.limit > 0 {
			ctx, cancel = context.WithTimeout(t.Context(), x.limit)
		} else {
			cancel()
		}
		err := d.Tx(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO written VALUES ('late')`)
			return err
		})
		cancel()
		if fault.KindOf(err) != x.want {
			t.Errorf("a caller with %v while the server is away: %v", x.limit, err)
		}
	}
	must(t, server.Start(t.Context()))
	there := map[string]bool{}
	must(t, d.View(t.Context(), func(tx *db.Tx) error {
		return tx.Query(t.Context(), `SELECT id FROM written`, nil, func(row db.Row) error {
			var id string
			err := row.Scan(&id)
			there[id] = true
			return err
		})
	}))
	for id := range acked {
		if !there[id] {
			t.Errorf("%s was confirmed and is lost", id)
		}
	}
}
