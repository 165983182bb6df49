package registry

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"yunhe.dev/yunhe/internal/accelerators"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

// Speed is how fast a center's accelerators of a kind compute: one of them, the
// slowest.
type Speed struct {
	Kind      string // the resource: gpu, npu, …
	Precision accelerators.Precision
	Milli     int64 // 1000 is the reference, an NVIDIA A100
	Measured  bool  // else it is what the makers publish
}

// The reference of speeds, tera operations a second. Peaks are compared with
// what its maker publishes. What is measured is compared with what its maker says
// of the units that the benchmark uses: those for matrices are not among them.
var (
	peakOfReference = map[accelerators.Precision]float64{accelerators.FP64: 19.5, accelerators.FP32: 19.5, accelerators.FP16: 312, accelerators.INT8: 624}
	plainReference  = map[accelerators.Precision]float64{accelerators.FP64: 9.7, accelerators.FP32: 19.5}
)

// MeasuredSpeed is the speed of accelerators of a kind of which the slowest was
// measured to do so many tera operations a second; false where the reference is
// not known.
func MeasuredSpeed(kind string, p accelerators.Precision, tera float64) (Speed, bool) {
	s := Speed{Kind: kind, Precision: p, Measured: true}
	of := plainReference[p]
	if of > 0 {
		s.Milli = milliOf(tera / of)
	}
	return s, s.Milli > 0
}

func milliOf(ratio float64) int64 { return int64(math.Round(1000 * min(ratio, 1e6))) }

// published are the peaks of a center's accelerators by the table of models: of
// each kind those of its slowest model. Of a kind with a model that is not in the
// table, or of which a precision is not published, nothing is said.
func published(models []Accelerator) []Speed {
	least := map[string]map[accelerators.Precision]float64{}
	for _, m := range models {
		known, _ := accelerators.Known().Find(m.Model)
		of, more := least[m.Resource]
		if !more {
			of = map[accelerators.Precision]float64{}
			least[m.Resource] = of
		}
		for p := range peakOfReference {
			rate, _ := known.PeakOf(p)
			if !more || rate.Tera() < of[p] {
				of[p] = rate.Tera()
			}
		}
	}
	var out []Speed
	for kind, of := range least {
		for p, tera := range of {
			if milli := milliOf(tera / peakOfReference[p]); milli > 0 {
				out = append(out, Speed{Kind: kind, Precision: p, Milli: milli})
			}
		}
	}
	return out
}

// readSpeeds sets the speeds of the centers: what was measured, and what is
// published of the rest.
func readSpeeds(ctx context.Context, tx *db.Tx, centers map[string]*Center, first, last string) error {
	where, args := between("ai_center_id", first, last)
	err := tx.Query(ctx, `SELECT ai_center_id, kind, precision, milli FROM center_speeds`+where, args, func(row db.Row) error {
		var id string
		s := Speed{Measured: true}
		if err := row.Scan(&id, &s.Kind, &s.Precision, &s.Milli); err != nil {
			return err
		}
		if k := centers[id]; k != nil {
			k.Speeds = append(k.Speeds, s)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read speeds: %w", err)
	}
	models := map[string][]Accelerator{}
	err = tx.Query(ctx, `SELECT DISTINCT ai_center_id, resource, model FROM node_accelerators`+where, args, func(row db.Row) error {
		var id string
		var a Accelerator
		if err := row.Scan(&id, &a.Resource, &a.Model); err != nil {
			return err
		}
		models[id] = append(models[id], a)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read models of accelerators: %w", err)
	}
	for id, k := range centers {
		for _, s := range published(models[id]) {
			if !slices.ContainsFunc(k.Speeds, func(o Speed) bool { return o.Kind == s.Kind && o.Precision == s.Precision }) {
				k.Speeds = append(k.Speeds, s)
			}
		}
		slices.SortFunc(k.Speeds, func(a, b Speed) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Precision, b.Precision))
		})
	}
	return nil
}

// modelsOf are the kinds and models of a center's accelerators, in order.
func modelsOf(ctx context.Context, tx *db.Tx, id string) (out []string, err error) {
	err = tx.Query(ctx, `SELECT DISTINCT resource, model FROM node_accelerators WHERE ai_center_id = $1 ORDER BY resource, model`, []any{id}, func(row db.Row) error {
		var resource, model string
		err := row.Scan(&resource, &model)
		out = append(out, resource+"\n"+model)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read models of accelerators of %s: %w", id, err)
	}
	return out, nil
}

// SetSpeedsTx makes measured speeds the center's, in the place of all that were
// measured before of the same kinds. It returns fault.Invalid and fault.NotFound.
func (s *Service) SetSpeedsTx(ctx context.Context, tx *db.Tx, id string, speeds []Speed) error {
	var c core.Check
	c.ID("ai_center_id", id)
	for i, v := range speeds {
		at := fmt.Sprintf("speeds[%d].", i)
		c.Text(at+"kind", v.Kind, true, 0, 64)
		c.Range(at+"milli", v.Milli, 1, maxSpeed)
		if !slices.Contains(accelerators.Precisions(), v.Precision) {
			c.Add(at+"precision", "must be one of %v, got %q", accelerators.Precisions(), clip(string(v.Precision)))
		}
	}
	if err := c.Err(); err != nil {
		return err
	}
	if found, err := hasCenter(ctx, tx, id); err != nil || !found {
		return cmp.Or(err, error(noCenter(id)))
	}
	var rows [][]any
	for _, v := range speeds {
		if _, err := tx.Exec(ctx, `DELETE FROM center_speeds WHERE ai_center_id = $1 AND kind = $2`, id, v.Kind); err != nil {
			return fmt.Errorf("replace speeds of center %s: %w", id, err)
		}
		rows = append(rows, []any{id, v.Kind, string(v.Precision), v.Milli})
	}
	if err := tx.Insert(ctx, "center_speeds", []string{"ai_center_id", "kind", "precision", "milli"}, rows); err != nil {
		return fmt.Errorf("insert speeds of center %s: %w", id, err)
	}
	return s.changed(ctx, tx)
}
