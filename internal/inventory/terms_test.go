package inventory_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/inventory"
)

// TestTerms: what has an attribute is found, whoever wrote it and however it
// changed, and nothing is kept of what is gone.
func TestTerms(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, w *world) {
		w.create(t, ctx, compute("g1", ""), compute("g2", ""), compute("g3", ""))
		many := compute("many", "")
		many.Attributes["extra"] = map[string]any{"a.b": "no filter names these", "c=d": "v", "e": "f=g", "list": "x"}
		w.create(t, ctx, many)
		found := func(want string, f inventory.Filter) {
			t.Helper()
			same(t, fmt.Sprint(f.Attributes), fmt.Sprint(w.ids(t, ctx, f)), want)
		}
		with := func(attributes ...string) inventory.Filter { return inventory.Filter{Attributes: attributes} }
		count := func(query string) (n int) {
			t.Helper()
			must(t, w.d.View(ctx, func(tx *db.Tx) error {
				_, err := tx.Get(ctx, query, nil, &n)
				return err
			}))
			return n
		}
		each := count(`SELECT COUNT(*) FROM resource_terms WHERE resource_id = 'g1'`)
		if each != 8 {
			t.Errorf("%d terms of g1", each)
		}
		check := func() {
			t.Helper()
			found("[many]", with("extra.list"))
			found("[many]", with("extra.list", "chip_model=H800"))
			found("[many]", with("extra.e=f=g", "chip_model=H800", "extra.list=x"))
			found("[]", with("extra.list=y"))
			found("[g1 g2 g3 many]", with("chip_model=H800"))
			found("[g1 g2 g3 many]", with("performance", "performance.fp16=989000"))
			found("[g2]", with("chip_model=H800", "serial_number=SN-g2"))
			found("[]", with("serial_number=SN-g2", "chip_model=H900"))
			found("[g3]", inventory.Filter{Attributes: []string{"serial_number=SN-g3"}, Type: "compute"})
			found("[]", inventory.Filter{Attributes: []string{"serial_number=SN-g3"}, Type: "cloud"})
		}
		check()

		// Written by a program without terms.
		must(t, w.d.Tx(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `DELETE FROM resource_terms WHERE resource_id = 'g1'`)
			if err == nil {
				_, err = tx.Exec(ctx, `UPDATE resources SET indexed = 0 WHERE resource_id = 'g1'`)
			}
			if err == nil {
				_, err = tx.Exec(ctx, `UPDATE resources SET version = version + 1, attributes = $1 WHERE resource_id = 'g2'`,
					`{"chip_model":"H900","serial_number":"SN-other"}`)
			}
			return err
		}))
		for range 2 { // before and after all have terms
			found("[g1 g3 many]", with("chip_model=H800"))
			found("[g2]", with("chip_model=H900"))
			found("[]", with("serial_number=SN-g2"))
			found("[g1]", with("serial_number=SN-g1", "chip_model=H800"))
			w.reopen(t)
		}
		if n := count(`SELECT COUNT(*) FROM resources WHERE indexed <> version`); n != 0 {
			t.Errorf("%d without terms", n)
		}
		if n := count(`SELECT COUNT(*) FROM resource_terms WHERE resource_id = 'g2'`); n != 2 {
			t.Errorf("%d terms of g2, want 2", n)
		}

		// Changed.
		for _, id := range []string{"g2", "many", "g3"} {
			r, err := w.Get(ctx, id)
			must(t, err)
			r.Attributes = compute(id, "").Attributes
			if id == "g3" {
				r.Attributes["extra"] = map[string]any{"list": "1"}
			}
			_, err = w.Update(ctx, r)
			must(t, err)
		}
		found("[g3]", with("extra.list=1"))
		found("[g1 g2 g3 many]", with("chip_model=H800"))
		found("[]", with("chip_model=H900"))
		if n := count(`SELECT COUNT(*) FROM resource_terms`); n != 4*each+1 {
			t.Errorf("%d terms, want %d", n, 4*each+1)
		}

		// Deleted by a program without terms.
		must(t, w.d.Tx(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `DELETE FROM resources WHERE resource_id = 'g3'`)
			return err
		}))
		found("[]", with("extra.list=1"))
		w.create(t, ctx, compute("g3", ""))
		found("[]", with("extra.list=1"))
		found("[g1 g2 g3 many]", with("chip_model=H800"))

		for _, id := range strings.Fields("g1 g2 g3 many") {
			must(t, w.Delete(ctx, id, 0))
		}
		if n := count(`SELECT COUNT(*) FROM resource_terms`); n != 1 { // extra.list=1 of the first g3
			t.Errorf("%d terms of nothing, want 1", n)
		}
	})
}
