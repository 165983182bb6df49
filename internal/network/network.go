// Package network keeps what placement knows of the network: how good the ways
// to and between centers are, what carrying data over them costs, where users
// are, and how available centers were.
//
// What it keeps true:
//
//   - Every fact has a source, and every measured one its time. What was not
//     measured for [staleAfter] is not known any more; nothing is guessed, and
//     what is estimated (by the engine, from distances) is said to be.
//   - Of several sources the nearest to the truth counts, fact by fact:
//     measured, then declared here, then a link of the topology, then a
//     registered network resource.
//   - What a placement reads is one picture, which never changes: all works of a
//     cycle see the same network.
//   - Pictures grow with what is known, not with the square of the centers: two
//     places without a path of their own are joined by the engine from what is
//     known of each ([place.Link]).
//
// # Where facts come from
//
//	gateways, drivers ─▶ monitor ─▶ samples ──read every 10 s──┐
//	topology: links, registered resources ──read every 10 s────┤
//	topology: history of the centers' states ──every 5 min─────┼─▶ picture ─▶ scheduler
//	SetPath, SetOrigin ─▶ tables ──generation, within 1 s──────┘
//
// Every process that decides or answers keeps its own picture (Follow). A store
// of samples that does not answer costs the measured facts, when they have
// become stale, and nothing else. A process that has just started knows what is
// declared at once, and what is measured within a round.
package network

import (
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// Source says where a fact is from; the numbers are the API's.
type Source int

// The sources, those that go first first.
const (
	Measured     Source = 1
	Declared     Source = 2
	FromLink     Source = 3
	FromResource Source = 4
	Estimated    Source = 5
)

func (s Source) String() string {
	return [...]string{"", "measured", "declared", "of a link", "registered", "estimated from the distance"}[s]
}

// Fact is something known of a path.
type Fact struct {
	Name   string // see the API
	Value  int64
	Source Source
	At     time.Time // when it was measured; zero for others
	Path   string    // that it was taken from, "END to END"; "": the one asked for
}

// Path is what is known between two ends.
type Path struct {
	From, To string
	Facts    []Fact // in the order of names
	Note     string
}

// Declaration is what is declared of a path.
type Declaration struct {
	From, To string
	Facts    place.Network
	Note     string
}

// Origin is a place users are at.
type Origin struct {
	ID, Name, Region string
	Position         *place.Position // nil: not known
	Tenants, Users   []string
	UpdatedAt        time.Time
}

// Anywhere is the second end of what is one end's part in all its paths.
const Anywhere = "*"

const (
	centerPrefix = "center:"
	regionPrefix = "region:"
	originPrefix = "origin:"
)

// Limits.
const (
	maxMicros    = 1_000_000_000
	maxBandwidth = 1_000_000_000_000 // kbit/s
	maxFee       = 1_000_000_000     // fen per GiB
	maxNote      = 256
	maxMembers   = 256
	maxDeclared  = 100_000 // paths
	maxOrigins   = 10_000
)

// names of facts, in the order they are shown.
var names = [...]string{"latency_us", "jitter_us", "loss_ppm", "bandwidth_kbps", "fee_fen_per_gib"}

// facts of a network in the order of names.
func facts(n *place.Network) [5]*place.Fact {
	return [...]*place.Fact{&n.LatencyMicros, &n.JitterMicros, &n.LossPPM, &n.BandwidthKbps, &n.FeeFenPerGiB}
}

var ranges = [...]struct{ low, high int64 }{{0, maxMicros}, {0, maxMicros}, {0, 1_000_000}, {1, maxBandwidth}, {0, maxFee}}

// OriginEnd is the end that an origin is.
func OriginEnd(id string) string { return originPrefix + id }

// checkEnd checks the form of an end.
func checkEnd(c *core.Check, path, end string, kinds ...string) {
	for _, k := range kinds {
		rest, ok := strings.CutPrefix(end, k)
		switch {
		case !ok:
			continue
		case k == regionPrefix:
			c.Text(path, rest, true, 64, 0)
		case k == Anywhere && rest != "":
			continue
		case k != Anywhere:
			c.ID(path, rest)
		}
		return
	}
	var list []string
	for _, k := range kinds {
		list = append(list, `"`+k+map[string]string{regionPrefix: "NAME", centerPrefix: "ID", originPrefix: "ID"}[k]+`"`)
	}
	c.Add(path, "must be %s, got %q", strings.Join(list, " or "), clip(end))
}

func (d *Declaration) check() error {
	var c core.Check
	checkEnd(&c, "path.from", d.From, centerPrefix, regionPrefix, originPrefix)
	checkEnd(&c, "path.to", d.To, centerPrefix, regionPrefix, originPrefix, Anywhere)
	if d.From == d.To && !strings.HasPrefix(d.From, regionPrefix) {
		c.Add("path.to", "must not be from %q", clip(d.To))
	}
	stated := false
	for i, f := range facts(&d.Facts) {
		if f.Known {
			stated = true
			c.Range("path."+names[i], f.Value, ranges[i].low, ranges[i].high)
		}
	}
	if !stated {
		c.Add("path", "must state at least one of %s", strings.Join(names[:], ", "))
	}
	c.Text("path.note", d.Note, false, 0, maxNote+1)
	return c.Err()
}

func (o *Origin) check(longitude, latitude *int64) error {
	var c core.Check
	c.ID("origin.origin_id", o.ID)
	c.Text("origin.name", o.Name, false, 128, 0)
	c.Text("origin.region", o.Region, false, 64, 0)
	if (longitude == nil) != (latitude == nil) {
		c.Add("origin.longitude", "must be given with latitude, or neither")
	} else if longitude != nil {
		c.Range("origin.longitude", *longitude, -180e6, 180e6)
		c.Range("origin.latitude", *latitude, -90e6, 90e6)
		o.Position = &place.Position{Longitude: *longitude, Latitude: *latitude}
	}
	for _, l := range []struct {
		name string
		ids  []string
	}{{"tenant_ids", o.Tenants}, {"user_ids", o.Users}} {
		if len(l.ids) > maxMembers {
			c.Add("origin."+l.name, "must be at most %d, got %d", maxMembers, len(l.ids))
			continue
		}
		seen := map[string]bool{}
		for _, id := range l.ids {
			c.Text("origin."+l.name, id, true, 64, 0)
			if seen[id] {
				c.Add("origin."+l.name, "names %q twice", clip(id))
			}
			seen[id] = true
		}
	}
	return c.Err()
}

func clip(s string) string {
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}
