package registry_test

import (
	"fmt"
	"testing"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/db/dbtest"
	"yunhe.dev/yunhe/internal/registry"
)

// BenchmarkRegistry measures what every submission, decision, reservation and
// heartbeat pays, with 100 centers.
func BenchmarkRegistry(b *testing.B) {
	for _, e := range []struct {
		name string
		open func(testing.TB) *db.DB
	}{{"sqlite", dbtest.SQLite}, {"postgres", dbtest.Postgres}} {
		b.Run(e.name, func(b *testing.B) {
			d, ctx := e.open(b), b.Context()
			s, err := registry.New(ctx, d, quiet)
			check := func(err error) {
				b.Helper()
				if err != nil {
					b.Fatal(err)
				}
			}
			check(err)
			decl := make([]registry.Declaration, 100)
			check(d.Tx(ctx, func(tx *db.Tx) error {
				for i := range decl {
					decl[i] = site(fmt.Sprintf("c%03d", i))
					decl[i].Capacity = core.Quantities{core.CPU: 1 << 40, core.Memory: 1 << 50, "gpu": 8}
					decl[i].Offers, decl[i].Images = []registry.SpecPrice{{SpecID: "s", Price: 1}}, []string{"host"}
					if err := s.DeclareTx(ctx, tx, decl[i]); err != nil {
						return err
					}
				}
				return nil
			}))
			tx := func(f func(tx *db.Tx) error) { check(d.Tx(ctx, f)) }
			for _, x := range []struct {
				name string
				f    func(i int)
			}{
				{"catalog", func(int) { _, err := s.Catalog(ctx); check(err) }},
				{"snapshot", func(int) { _, err := s.Snapshot(ctx); check(err) }},
				{"declare-same", func(i int) { tx(func(tx *db.Tx) error { return s.DeclareTx(ctx, tx, decl[i%100]) }) }},
				{"heartbeat", func(i int) {
					tx(func(tx *db.Tx) error {
						return s.MeasureTx(ctx, tx, decl[i%100].Center.ID, registry.Measured{CPUBusyPermille: 5})
					})
				}},
				{"reserve-and-release", func(i int) {
					tx(func(tx *db.Tx) error {
						q := core.Quantities{core.CPU: 1000, core.Memory: 1 << 20}
						if ok, err := s.ReserveTx(ctx, tx, decl[i%100].Center.ID, q, 1); !ok || err != nil {
							return fmt.Errorf("reserve: %v, %w", ok, err)
						}
						return s.ReleaseTx(ctx, tx, decl[i%100].Center.ID, q, 0, 1)
					})
				}},
			} {
				b.Run(x.name, func(b *testing.B) {
					b.ReportAllocs()
					i := 0
					for b.Loop() {
						x.f(i)
						i++
					}
				})
			}
		})
	}
}

func eachEngine(b *testing.B, f func(b *testing.B, d *db.DB)) {
	b.Run("sqlite", func(b *testing.B) { f(b, dbtest.SQLite(b)) })
	b.Run("postgres", func(b *testing.B) { f(b, dbtest.Postgres(b)) })
}
