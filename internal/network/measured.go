package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/monitor"
	"yunhe.dev/yunhe/internal/samples"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

const (
	// every is how often what is measured is read: centers measure that often, or
	// less.
	every = 10 * time.Second
	// window is how far back a read looks. Drivers may report every 15 s; what an
	// earlier read has seen is kept.
	window = 40 * time.Second
	// staleAfter is when what was measured is not known any more.
	staleAfter = 2 * time.Minute
	// availableEvery and availableOver: how often, and over how long, it is looked
	// how available centers were.
	availableEvery = 5 * time.Minute
	availableOver  = 30 * 24 * time.Hour
	// maxSeries that are read: four of each path of 10,000 centers and then some.
	maxSeries = 200_000
)

// Link of the topology.
type Link struct {
	From, To string // as of paths
	Facts    place.Network
	Source   Source // FromLink or FromResource
}

// Topology is asked for what it knows. Availability is the share of the time
// since then that each center was available in, in millionths.
type Topology interface {
	NetworkLinks(ctx context.Context) ([]Link, error)
	Availability(ctx context.Context, since time.Time) (map[string]int64, error)
}

// Follow keeps the picture up to date until ctx ends. It belongs into every
// process that decides about work or answers calls.
func (s *Service) Follow(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var said string
	for {
		err := s.Look(ctx)
		switch text := fmt.Sprint(err); {
		case ctx.Err() != nil:
			return nil
		case err != nil && text != said:
			s.log.Warn("not all is known of the network", "error", err)
			said = text
		case err == nil:
			said = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Look brings the picture up to date with what is measured and with the
// topology. What cannot be read stays as it was, until it is stale.
func (s *Service) Look(ctx context.Context) error {
	now := s.db.Now()
	fresh, err := s.readMeasured(ctx, now)
	links, err2 := s.topology.NetworkLinks(ctx)
	s.mu.Lock()
	due := now.Sub(s.availableAt).Abs() >= availableEvery
	s.mu.Unlock()
	var available map[string]int64
	var err3 error
	if due {
		available, err3 = s.topology.Availability(ctx, now.Add(-availableOver))
	}
	s.mu.Lock()
	for e, m := range fresh {
		if old := s.measured[e]; !m.at.Before(old.at) {
			s.measured[e] = m
		}
	}
	for e, m := range s.measured {
		if now.Sub(m.at) > staleAfter {
			delete(s.measured, e)
		}
	}
	if err2 == nil {
		s.links = links
	}
	if err == nil {
		s.lookedAt = now
	}
	if due && err3 == nil {
		s.available, s.availableAt = available, now
	}
	s.picture = nil
	s.mu.Unlock()
	return errors.Join(err, err2, err3)
}

// Loss is what is lost on a path that a center measures.
type Loss struct {
	CenterID string
	To       string // "the platform" or "center ID"
	PPM      int64
}

// Lossy returns the paths on which something is lost now, by their ends.
func (s *Service) Lossy(ctx context.Context) ([]Loss, error) {
	now := s.db.Now()
	s.mu.Lock()
	due := now.Sub(s.lookedAt).Abs() > 2*every // nobody follows here, or not yet
	s.mu.Unlock()
	if due {
		if err := s.Look(ctx); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Loss
	for e, m := range s.measured {
		if f := m.values.LossPPM; f.Known && f.Value > 0 && now.Sub(m.at) <= staleAfter {
			x := Loss{CenterID: strings.TrimPrefix(e.from, centerPrefix), To: "the platform", PPM: f.Value}
			if e.to != Anywhere {
				x.To = "center " + strings.TrimPrefix(e.to, centerPrefix)
			}
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b Loss) int {
		return cmp.Or(strings.Compare(a.CenterID, b.CenterID), strings.Compare(a.To, b.To))
	})
	return out, nil
}

// Names of the samples; see monitor.
var series = map[string]struct {
	fact int
	unit float64
}{
	"yunhe_path_latency_seconds": {0, 1e6}, "yunhe_path_jitter_seconds": {1, 1e6}, "yunhe_path_loss_ratio": {2, 1e6}, "yunhe_path_bandwidth_bits_per_second": {3, 1e-3},
}

// platformPeer is what gateways call the platform.
const platformPeer = "platform"

func (s *Service) readMeasured(ctx context.Context, now time.Time) (map[ends]measurement, error) {
	expr, err := samples.Enforce(fmt.Sprintf(`{__name__=~"yunhe_path_.+"}[%ds]`, int(window.Seconds())), monitor.TenantLabel, "")
	if err != nil {
		return nil, err
	}
	rows, err := s.samples.QueryWide(ctx, expr, now, maxSeries)
	if err != nil {
		return nil, fmt.Errorf("read what is measured of paths: %w", err)
	}
	cat, err := s.reg.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	out := map[ends]measurement{}
	platform := map[string]bool{} // centers that measure the way to the platform itself
	for i := range rows {
		if rows[i].Labels.Get("peer") == platformPeer {
			platform[rows[i].Labels.Get("ai_center_id")] = true
		}
	}
	for i := range rows {
		x := &rows[i]
		is, ok := series[x.Name]
		center, peer := x.Labels.Get("ai_center_id"), x.Labels.Get("peer")
		if !ok || len(x.Points) == 0 || cat.Centers[center] == nil {
			continue
		}
		e := ends{centerPrefix + center, Anywhere}
		if id := engineEnd(peer); cat.Centers[id] != nil && id != center {
			e.to = centerPrefix + id
		} else if peer != platformPeer && platform[center] {
			continue // the endpoint of what its driver translates for
		}
		last := x.Points[len(x.Points)-1]
		v := math.Round(last.Value * is.unit)
		if math.IsNaN(v) || v < 0 {
			continue
		}
		m := out[e]
		*facts(&m.values)[is.fact] = place.Known(int64(min(v, 1e18)))
		if m.at.Before(last.At) {
			m.at = last.At
		}
		out[e] = m
	}
	return out, nil
}
