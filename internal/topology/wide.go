package topology

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/network"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// NetworkLinks returns the links between centers, regions and the platform that
// everyone may use and that state a bandwidth or a latency. Of a registered
// network, an end that is neither counts as the center it belongs to. See
// network.Topology.
func (s *Service) NetworkLinks(ctx context.Context) ([]network.Link, error) {
	if err := s.refresh(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []network.Link
	ids := []string{}
	for id, it := range s.now.items {
		if it.isLink() && it.TenantID == "" && it.Link.Source != Measured && (it.State == NoState || it.State == Ready || it.State == Registered) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		if l, ok := wide(s.now.items[id]); ok {
			out = append(out, l)
		}
	}
	return out, nil
}

func wide(it *Item) (network.Link, bool) {
	end := func(id string) string {
		switch {
		case strings.HasPrefix(id, centerPrefix), strings.HasPrefix(id, regionPrefix):
			return id
		case id == NetworkID:
			return network.Anywhere
		case it.Link.Source == FromResource && it.CenterID != "":
			return centerID(it.CenterID)
		}
		return ""
	}
	out := network.Link{From: end(it.Link.From), To: end(it.Link.To), Source: network.FromLink}
	if it.Link.Source == FromResource {
		out.Source = network.FromResource
	}
	if out.From == network.Anywhere {
		out.From, out.To = out.To, out.From
	}
	if out.From == out.To && out.From == centerID(it.CenterID) { // between parts of a center: its own
		out.To = network.Anywhere
	}
	if it.Link.Latency > 0 {
		out.Facts.LatencyMicros = place.Known(it.Link.Latency)
	}
	if it.Link.Bandwidth >= 1000 {
		out.Facts.BandwidthKbps = place.Known(it.Link.Bandwidth / 1000)
	}
	return out, out.From != "" && out.To != "" && out.From != out.To && out.Facts != (place.Network{})
}

// fewSeen is how long a center must have been watched for its availability to
// say anything.
const fewSeen = time.Hour

// Availability returns the share of the time since then that each center was
// ready in, by ID in millionths: of the time it was known, at least an hour.
// See network.Topology.
func (s *Service) Availability(ctx context.Context, since time.Time) (map[string]int64, error) {
	if err := s.refresh(ctx); err != nil {
		return nil, err
	}
	var centers []string
	s.mu.Lock()
	for _, it := range s.now.items {
		if it.Level == LevelCenter && !it.isLink() {
			centers = append(centers, it.CenterID)
		}
	}
	s.mu.Unlock()
	slices.Sort(centers)
	now := db.Micros(s.db.Now())
	out := map[string]int64{}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		clear(out)
		for _, id := range centers { // few rows each, of the many that nodes have
			vs, err := readVersions(ctx, tx, `WHERE v.item_id = $1 AND v.valid_until > $2`, centerID(id), db.Micros(since))
			if err != nil {
				return err
			}
			var ready, all int64
			for _, v := range vs {
				length := max(0, min(v.ended, now)-max(db.Micros(v.Since), db.Micros(since)))
				if all += length; v.State == Ready {
					ready += length
				}
			}
			if all >= fewSeen.Microseconds() {
				out[id] = int64(float64(ready) / float64(all) * 1e6)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read how centers were: %w", err)
	}
	return out, nil
}
