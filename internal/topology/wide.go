package topology

import (
	"context"
	"encoding/json"
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
	now := s.db.Now()
	ready, all := map[string]int64{}, map[string]int64{}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		clear(ready)
		clear(all)
		return tx.Query(ctx, `SELECT ai_center_id, valid_from, valid_until, body FROM topology_versions WHERE item_id >= $1 AND item_id < $2 AND valid_until > $3`,
			[]any{centerPrefix, strings.TrimSuffix(centerPrefix, ":") + ";", db.Micros(since)}, func(row db.Row) error {
				var id, body string
				var from, until int64
				if err := row.Scan(&id, &from, &until, &body); err != nil {
					return err
				}
				var r struct {
					State State `json:"state"`
				}
				if err := json.Unmarshal([]byte(body), &r); err != nil {
					return fmt.Errorf("version of center %s: %w", id, err)
				}
				length := max(0, min(until, db.Micros(now))-max(from, db.Micros(since)))
				if all[id] += length; r.State == Ready {
					ready[id] += length
				}
				return nil
			})
	})
	if err != nil {
		return nil, fmt.Errorf("read how centers were: %w", err)
	}
	out := map[string]int64{}
	for id, length := range all {
		if length >= fewSeen.Microseconds() {
			out[id] = int64(float64(ready[id]) / float64(length) * 1e6)
		}
	}
	return out, nil
}
