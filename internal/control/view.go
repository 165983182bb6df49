package control

import (
	"context"
	"maps"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/registry"
)

// View is what there is across regions, as of one moment.
type View struct {
	At      time.Time
	Regions []Region
}

// Region is the centers of a region; Total and Free are of those that take work.
type Region struct {
	Name        string
	Total, Free core.Quantities
	Centers     []Center
}

// Center is a center in the view.
type Center struct {
	*registry.Center
	Status    string
	Allocated core.Quantities // held by allocations
	Free      core.Quantities
	Nodes     registry.NodeSummary
	Specs     []SpecRoom
}

// SpecRoom says how many packages of a specification would fit.
type SpecRoom struct {
	SpecID string
	Free   int64
	Price  core.Fen
}

// ResourceView returns what there is, of one region or with one specification
// on offer if they are named.
func (s *Service) ResourceView(ctx context.Context, region, specID string) (*View, error) {
	var c core.Check
	c.Text("region", region, false, 0, 64)
	if checkFilterIDs(&c, "resource_spec_id", specID); c.Err() != nil {
		return nil, c.Err()
	}
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	allocated := map[string]core.Quantities{}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		clear(allocated)
		return tx.Query(ctx, `SELECT a.ai_center_id, m.resource, CAST(SUM(m.held) AS BIGINT) FROM allocations a JOIN allocation_amounts m ON m.allocation_id = a.allocation_id
			WHERE a.ended_at = 0 AND m.held > 0 GROUP BY a.ai_center_id, m.resource`, nil, func(row db.Row) error {
			var center, name string
			var n int64
			err := row.Scan(&center, &name, &n)
			if allocated[center] == nil {
				allocated[center] = core.Quantities{}
			}
			allocated[center][name] = n
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	nodes, err := s.summaries(ctx)
	if err != nil {
		return nil, err
	}
	byName := map[string]*Region{}
	for _, k := range snap.Centers {
		if _, offers := k.Offers[specID]; region != "" && k.Region != region || specID != "" && !offers {
			continue
		}
		r := byName[k.Region]
		if r == nil {
			r = &Region{Name: k.Region, Total: core.Quantities{}, Free: core.Quantities{}}
			byName[k.Region] = r
		}
		x := centerView(k, snap.Specs, specID)
		if x.Allocated = allocated[k.ID]; nodes[k.ID] != nil {
			x.Nodes = *nodes[k.ID]
		}
		if x.Status == "available" {
			for name, n := range k.Total {
				r.Total[name] += n
				r.Free[name] += x.Free[name]
			}
		}
		r.Centers = append(r.Centers, x)
	}
	out := &View{At: snap.At}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out.Regions = append(out.Regions, *byName[name])
	}
	return out, nil
}

// summaries are the nodes of every center, in numbers.
func (s *Service) summaries(ctx context.Context) (map[string]*registry.NodeSummary, error) {
	out := map[string]*registry.NodeSummary{}
	for token := ""; ; {
		rows, next, err := s.reg.ListCenters(ctx, "", 1000, token)
		if err != nil {
			return nil, err
		}
		for _, k := range rows {
			out[k.ID] = k.Nodes
		}
		if token = next; token == "" {
			return out, nil
		}
	}
}

func centerView(k *registry.Center, specs map[string]*registry.Spec, only string) Center {
	x := Center{Center: k, Free: core.Quantities{}}
	switch {
	case k.Drained:
		x.Status = "drained"
	case k.Status == registry.Available:
		x.Status = "available"
	case k.Status == registry.Unavailable:
		x.Status = "unavailable"
	default:
		x.Status = "unknown"
	}
	for name := range k.Total {
		x.Free[name] = k.Free(name)
	}
	for _, id := range slices.Sorted(maps.Keys(k.Offers)) {
		spec := specs[id]
		if spec == nil || only != "" && id != only {
			continue
		}
		room := SpecRoom{SpecID: id, Price: k.Offers[id]}
		if x.Status == "available" {
			room.Free = fits(x.Free, spec.Quantity)
		}
		x.Specs = append(x.Specs, room)
	}
	return x
}

// fits returns how often q fits into free.
func fits(free, q core.Quantities) int64 {
	n := int64(-1)
	for name, one := range q {
		if one > 0 && (n < 0 || free[name]/one < n) {
			n = free[name] / one
		}
	}
	return max(n, 0)
}
