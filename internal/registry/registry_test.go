package registry_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
)

var quiet = slog.New(slog.DiscardHandler)

// clock is a time that tests move.
type clock struct{ us atomic.Int64 }

func (c *clock) now() time.Time          { return time.UnixMicro(c.us.Load()) }
func (c *clock) advance(d time.Duration) { c.us.Add(d.Microseconds()) }

// world is a registry on a database whose clock the test moves.
type world struct {
	*registry.Service
	clock *clock
	url   string
	d     *db.DB
}

// each runs a test on every engine.
func each(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	for _, e := range []struct {
		name string
		url  func(t *testing.T) string
	}{
		{"sqlite", func(t *testing.T) string { return filepath.Join(t.TempDir(), "yunhe.db") }},
		{"postgres", func(t *testing.T) string { return enginetest.Postgres(t) }},
	} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			w := &world{clock: &clock{}, url: e.url(t)}
			w.clock.us.Store(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).UnixMicro())
			w.open(t)
			f(t, w)
		})
	}
}

func (w *world) open(t *testing.T) {
	t.Helper()
	d, err := db.Open(t.Context(), db.Config{URL: w.url, Now: w.clock.now}, quiet)
	must(t, err)
	t.Cleanup(func() { _ = d.Close() }) // a second close after reopen is harmless
	w.d = d
	w.Service = w.another(t)
}

// another is the service of another process on the same database.
func (w *world) another(t *testing.T) *registry.Service {
	t.Helper()
	s, err := registry.New(t.Context(), w.d, quiet)
	must(t, err)
	return s
}

// reopen is a restart.
func (w *world) reopen(t *testing.T) {
	t.Helper()
	must(t, w.d.Close())
	w.open(t)
}

func (w *world) tx(t *testing.T, f func(tx *db.Tx) error) {
	t.Helper()
	must(t, w.d.Tx(t.Context(), f))
}

// declare is a center joining.
func (w *world) declare(t *testing.T, d registry.Declaration) {
	t.Helper()
	w.tx(t, func(tx *db.Tx) error { return w.DeclareTx(t.Context(), tx, d) })
}

func (w *world) seen(t *testing.T, ids ...string) {
	t.Helper()
	w.tx(t, func(tx *db.Tx) error { return w.MarkSeenTx(t.Context(), tx, ids...) })
}

func (w *world) snapshot(t *testing.T) *registry.Snapshot {
	t.Helper()
	s, err := w.Snapshot(t.Context())
	must(t, err)
	return s
}

func (w *world) catalog(t *testing.T) *registry.Catalog {
	t.Helper()
	c, err := w.Catalog(t.Context())
	must(t, err)
	return c
}

func (w *world) center(t *testing.T, id string) registry.Center {
	t.Helper()
	k, err := w.GetCenter(t.Context(), id)
	must(t, err)
	return k
}

// site is a declaration of a center with 4 cores and 8 GiB.
func site(id string) registry.Declaration {
	return registry.Declaration{
		Center:   registry.Center{ID: id, Name: "Center " + id, Region: "north", Adapter: "gateway", SecurityGrade: 2, Performance: 900},
		Capacity: core.Quantities{core.CPU: 4000, core.Memory: 8 << 30},
	}
}

// spec is a specification of one core.
func spec(id string, price core.Fen) registry.NewSpec {
	return registry.NewSpec{ID: id, Quantity: map[string]string{core.CPU: "1", core.Memory: "1Gi"}, Price: price}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, what string, err error, want fault.Kind) {
	t.Helper()
	if err == nil || fault.KindOf(err) != want {
		t.Errorf("%s: error = %v, want kind %s", what, err, want)
	}
}

// wantPaths checks which inputs an error complains about.
func wantPaths(t *testing.T, what string, err error, want ...string) {
	t.Helper()
	wantKind(t, what, err, fault.Invalid)
	var got []string
	for _, f := range fault.FieldsOf(err) {
		got = append(got, f.Path)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: violations at %q, want %q (%v)", what, got, want, err)
	}
}

// same compares by what is printed: maps in key order, times as they are.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}
