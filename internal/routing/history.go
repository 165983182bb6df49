package routing

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/samples"
)

// Samples returns what the weights in force are made from, to be kept over time,
// as series of the service's tenant:
//
//	yunhe_service_requests_per_second{service, origin}    asked for
//	yunhe_service_served_per_second{service, center}      sent to the center
//	yunhe_service_capacity_per_second{service, center}    what its replicas can do
//	yunhe_service_overload_per_second{service}            more than all can do
//	yunhe_service_latency_seconds{service}                mean time of a request, if it is known
//
// Of the services that were made last it leaves out those whose series would be
// more than most together.
func (r *Router) Samples(ctx context.Context, now time.Time, most int) ([]samples.Sample, error) {
	var out []samples.Sample
	err := r.db.View(ctx, func(tx *db.Tx) error {
		out = nil
		full := false
		return tx.Query(ctx, `SELECT s.service_id, s.tenant_id, r.routes FROM services s JOIN service_routes r ON r.service_id = s.service_id ORDER BY s.service_id`, nil, func(row db.Row) error {
			var id, tenant, text string
			if err := row.Scan(&id, &tenant, &text); err != nil || full {
				return err
			}
			var table Routes
			if err := json.Unmarshal([]byte(text), &table); err != nil {
				return fmt.Errorf("decode routes of %s: %w", id, err)
			}
			if full = len(out)+len(table.Origins)+2*len(table.Places)+2 > most; full {
				return nil
			}
			add := func(name string, v float64, more ...string) {
				out = append(out, samples.Sample{Name: "yunhe_service_" + name, Labels: samples.L(append([]string{"tenant", tenant, "service", id}, more...)...), Value: v, At: now})
			}
			for _, o := range table.Origins {
				add("requests_per_second", o.Demand, "origin", o.OriginID)
			}
			for _, p := range table.Places {
				add("served_per_second", p.Load, "center", p.CenterID)
				add("capacity_per_second", p.Capacity, "center", p.CenterID)
			}
			add("overload_per_second", table.Overload)
			if table.Mean > 0 {
				add("latency_seconds", float64(table.Mean)/1e6)
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read routes of all services: %w", err)
	}
	return out, nil
}
