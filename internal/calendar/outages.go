package calendar

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/registry"
)

// outage is what maintenance takes of a center for a while.
type outage struct {
	demand
	id, center, text string
	nodes            bool // only nodes; the amounts are not nil
	drain            time.Duration
}

// outages are what maintenance takes in a span of time, by maintenance. Where now is
// given, nodes are taken from when their drain has begun.
func (s *Service) outages(ctx context.Context, tx *db.Tx, during span, now time.Time) ([]outage, error) {
	ms, err := readMaintenance(ctx, tx, `WHERE ended_at = 0 ORDER BY maintenance_id`)
	if err != nil {
		return nil, err
	}
	var out []outage
	var centers []string
	ofNodes := map[string][]nodesSpan{}
	for _, m := range ms {
		drain := time.Duration(m.DrainSeconds) * time.Second
		list, err := m.times(during.from, during.to, maxSpans)
		if err != nil {
			return nil, err
		}
		for _, x := range list {
			if len(m.Nodes) == 0 {
				out = append(out, outage{demand{x, nil}, fmt.Sprintf("%s.%d", m.ID, x.from.Unix()), m.CenterID, fmt.Sprintf("maintenance %s %s", m.ID, when(x)), false, drain})
				continue
			}
			if begin := x.from.Add(-drain); !begin.After(now) {
				x.from = begin
			}
			if ofNodes[m.CenterID] == nil {
				centers = append(centers, m.CenterID)
			}
			ofNodes[m.CenterID] = append(ofNodes[m.CenterID], nodesSpan{x, m})
		}
	}
	for _, center := range centers {
		if out, err = s.nodeOutages(ctx, tx, out, center, ofNodes[center]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// nodesSpan is a time of maintenance of nodes.
type nodesSpan struct {
	span
	m *Maintenance
}

// piece is a span in which the same maintenance is under way throughout.
type piece struct {
	span
	ids, nodes []string // sorted; the nodes each once
}

// pieces cuts the times of maintenance of nodes where any begins or ends, so that
// a node counts once however many name it.
func pieces(spans []nodesSpan) (out []piece) {
	var at []time.Time
	for _, x := range spans {
		at = append(at, x.from, x.to)
	}
	slices.SortFunc(at, time.Time.Compare)
	at = slices.CompactFunc(at, time.Time.Equal)
	slices.SortStableFunc(spans, func(a, b nodesSpan) int { return a.from.Compare(b.from) })
	var open []nodesSpan
	for i := 0; i+1 < len(at); i++ {
		open = slices.DeleteFunc(open, func(x nodesSpan) bool { return !x.to.After(at[i]) })
		for len(spans) > 0 && !spans[0].from.After(at[i]) {
			open, spans = append(open, spans[0]), spans[1:]
		}
		if len(open) == 0 {
			continue
		}
		p := piece{span: span{at[i], at[i+1]}}
		for _, x := range open {
			p.ids, p.nodes = append(p.ids, x.m.ID), append(p.nodes, x.m.Nodes...)
		}
		slices.Sort(p.ids)
		slices.Sort(p.nodes)
		p.ids, p.nodes = slices.Compact(p.ids), slices.Compact(p.nodes)
		out = append(out, p)
	}
	return out
}

// nodeOutages adds those of the nodes of a center.
func (s *Service) nodeOutages(ctx context.Context, tx *db.Tx, out []outage, center string, spans []nodesSpan) ([]outage, error) {
	known := map[string]core.Quantities{} // by the maintenance under way
	for _, p := range pieces(spans) {
		key := strings.Join(p.ids, " and ")
		amounts, ok := known[key]
		if !ok {
			var err error
			if amounts, err = s.room(ctx, tx, center, p.nodes); err != nil {
				return nil, err
			}
			known[key] = amounts
		}
		if len(amounts) > 0 {
			out = append(out, outage{demand{p.span, amounts}, fmt.Sprintf("%s.%d", strings.Join(p.ids, "."), p.from.Unix()), center,
				fmt.Sprintf("room of nodes is kept free for maintenance %s %s", key, when(p.span)), true, 0})
		}
	}
	return out, nil
}

// room is what nodes have now of what their center declares. A node that is not
// ready has nothing: its center does not count it either.
func (s *Service) room(ctx context.Context, tx *db.Tx, center string, names []string) (core.Quantities, error) {
	cat, err := s.reg.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	out := core.Quantities{}
	k := cat.Centers[center]
	if k == nil {
		return out, nil
	}
	for _, name := range names {
		n, found, err := s.reg.NodeTx(ctx, tx, center, name)
		if err != nil {
			return nil, err
		}
		if !found || n.State != registry.NodeReady {
			continue
		}
		for what, amount := range n.Allocatable {
			if total := k.Total[what]; total > 0 && amount > 0 {
				out[what] = min(out[what]+amount, total) // a center may offer less than its nodes have
			}
		}
	}
	return out, nil
}
