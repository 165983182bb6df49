package metering

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"time"

	"yunhe.dev/yunhe/internal/db"
)

// Payer is whose usage it is.
type Payer struct{ Tenant, User, Project string }

// Spent is a selection for [Service.SpentTx].
type Spent struct {
	From, To time.Time // of the time used; the zero To: without end
	// RecordedFrom and RecordedBefore are when it was recorded; the zero time: no
	// bound.
	RecordedFrom, RecordedBefore time.Time
}

// SpentTx returns what each payer's usage cost in a time, micro-yuan: of what
// reaches into that time the part that lies in it, rounded down. A record counts
// as recorded when its transaction began, by the clock of who recorded it.
func (s *Service) SpentTx(ctx context.Context, tx *db.Tx, q Spent) (map[Payer]int64, error) {
	out := map[Payer]int64{}
	from, to := db.Micros(q.From), int64(math.MaxInt64)
	if !q.To.IsZero() {
		to = db.Micros(q.To)
	}
	rest, args := ``, []any{from, to}
	for _, b := range []struct {
		cond string
		at   time.Time
	}{{"recorded_at >=", q.RecordedFrom}, {"recorded_at <", q.RecordedBefore}} {
		if !b.at.IsZero() {
			args = append(args, db.Micros(b.at))
			rest += fmt.Sprintf(" AND %s $%d", b.cond, len(args))
		}
	}
	// What ends with the begin of the time has no part in it, unless it is a moment.
	err := tx.Query(ctx, `SELECT tenant_id, user_name, project, CAST(SUM(cost_micros) AS BIGINT) FROM usage
		WHERE ended_at >= $1 AND started_at >= $1 AND ended_at <= $2`+rest+` GROUP BY tenant_id, user_name, project`, args, func(row db.Row) error {
		var p Payer
		var micros int64
		err := row.Scan(&p.Tenant, &p.User, &p.Project, &micros)
		out[p] += micros
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sum what was spent: %w", err)
	}
	err = tx.Query(ctx, `SELECT tenant_id, user_name, project, started_at, ended_at, cost_micros FROM usage
		WHERE ended_at > $1 AND started_at < $2 AND (started_at < $1 OR ended_at > $2)`+rest, args, func(row db.Row) error {
		var p Payer
		var start, end, micros int64
		err := row.Scan(&p.Tenant, &p.User, &p.Project, &start, &end, &micros)
		if err == nil {
			out[p] += share(micros, min(end, to)-max(start, from), end-start)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sum what was spent over the edges of a time: %w", err)
	}
	return out, nil
}

// share is amount * part / whole, for 0 <= part <= whole, whole > 0.
func share(amount, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(amount), uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(whole)) // at most amount
	return int64(q)
}
