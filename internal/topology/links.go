package topology

import (
	"context"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// Connection is a link as it is shown.
type Connection struct {
	*Item
	Health   Health
	Figures  []Figure
	Dangling bool // one of its ends is not there
}

// ID is the link's own.
func (c *Connection) LinkID() string { return strings.TrimPrefix(c.ID, linkPrefix) }

// Limits of links.
const (
	maxBandwidth = 1_000_000_000_000_000 // bits per second
	maxLatency   = 3_600_000_000         // microseconds
)

func (l *DeclaredLink) check() error {
	var c core.Check
	c.ID("link.link_id", l.ID)
	c.Text("link.name", l.Name, false, 0, 128)
	for _, end := range []struct{ path, id string }{{"link.from_id", l.From}, {"link.to_id", l.To}} {
		if checkVertex(&c, end.path, end.id); strings.HasPrefix(end.id, cardPrefix) {
			c.Add(end.path, "must not be a card, got %q", clip(end.id))
		}
	}
	if l.From == l.To && l.From != "" {
		c.Add("link.to_id", "must not be from_id %q", clip(l.To))
	}
	c.Range("link.kind", int64(l.Kind), int64(LeasedLine), int64(OtherKind))
	c.Range("link.bandwidth_bits_per_second", l.Bandwidth, 0, maxBandwidth)
	c.Range("link.latency_us", l.Latency, 0, maxLatency)
	c.Text("link.service_provider", l.Provider, false, 0, 128)
	if l.TenantID != "" {
		c.ID("link.tenant_id", l.TenantID)
	}
	c.Range("link.version", l.Version, 0, 1<<53)
	return c.Err()
}

// same compares all but version and times.
func (l *DeclaredLink) same(o *DeclaredLink) bool {
	return l.Name == o.Name && l.From == o.From && l.To == o.To && l.Kind == o.Kind && l.Bandwidth == o.Bandwidth && l.Latency == o.Latency &&
		l.Provider == o.Provider && l.TenantID == o.TenantID
}

// PutLink declares a link between two vertices that are there, or replaces a
// declared one; a version of 0 replaces whichever there is. A link that ends
// at something of a tenant is that tenant's. Putting the same again changes
// nothing. It returns fault.Invalid with paths below "link.", fault.Denied,
// and fault.Conflict for another version.
func (s *Service) PutLink(ctx context.Context, l DeclaredLink) (Connection, error) {
	if err := l.check(); err != nil {
		return Connection{}, err
	}
	if l.Name == "" {
		l.Name = l.ID
	}
	g, err := s.graphAt(ctx, time.Time{})
	if err != nil {
		return Connection{}, err
	}
	var c core.Check
	for _, end := range []struct{ path, id string }{{"link.from_id", l.From}, {"link.to_id", l.To}} {
		i, found := g.at[end.id]
		switch {
		case !found:
			c.Add(end.path, "there is no %s in the topology", clip(end.id))
		case g.v[i].TenantID == "":
		case l.TenantID == "":
			l.TenantID = g.v[i].TenantID
		case l.TenantID != g.v[i].TenantID:
			c.Add("link.tenant_id", "must be %s, whose %s it ends at, got %s", g.v[i].TenantID, clip(end.id), l.TenantID)
		}
	}
	if err := c.Err(); err != nil {
		return Connection{}, err
	}
	w := viewerOf(ctx)
	if !w.all && (l.TenantID == "" || l.TenantID != w.tenant) {
		return Connection{}, fault.New(fault.Denied, "only who sees all tenants may declare links of everyone or of others")
	}
	err = s.change(ctx, func(tx *db.Tx) ([]edit, error) {
		old, err := getDeclared(ctx, tx, l.ID)
		if err != nil {
			return nil, err
		}
		next := l
		next.Version, next.CreatedAt, next.UpdatedAt = 1, tx.Now, tx.Now
		if old != nil {
			if !w.sees(old.TenantID) || !w.all && old.TenantID == "" {
				return nil, fault.New(fault.Denied, "link %s is not yours", l.ID)
			}
			if old.same(&l) {
				return nil, nil
			}
			next.Version, next.CreatedAt = old.Version+1, old.CreatedAt
		}
		if have := next.Version - 1; l.Version != 0 && l.Version != have {
			return nil, fault.New(fault.Conflict, "link %s has version %d, not %d: it was changed meanwhile; read it and try again", l.ID, have, l.Version)
		}
		if err := putDeclared(ctx, tx, &next); err != nil {
			return nil, err
		}
		rec := &Record{ID: linkPrefix + l.ID, TenantID: next.TenantID, Name: next.Name, Provider: next.Provider,
			Link: &Link{From: next.From, To: next.To, Kind: next.Kind, Source: Declared, Bandwidth: next.Bandwidth, Latency: next.Latency, Version: next.Version}}
		prev, err := readOpen(ctx, tx, rec.ID)
		if err != nil {
			return nil, err
		}
		text, err := rec.body()
		return []edit{{id: rec.ID, prev: prev, next: rec, text: text}}, err
	})
	if err != nil {
		return Connection{}, err
	}
	return s.Link(ctx, l.ID)
}

// DeleteLink deletes a declared link; version 0: whichever. It returns
// fault.Invalid, also for a link that is not declared, fault.NotFound,
// fault.Denied, and fault.Conflict for another version.
func (s *Service) DeleteLink(ctx context.Context, id string, version int64) error {
	var c core.Check
	c.Range("version", version, 0, 1<<53)
	if strings.Contains(id, ":") {
		c.Add("link_id", "must be that of a declared link, got %q", clip(id))
	} else {
		c.ID("link_id", id)
	}
	if err := c.Err(); err != nil {
		return err
	}
	w := viewerOf(ctx)
	return s.change(ctx, func(tx *db.Tx) ([]edit, error) {
		old, err := getDeclared(ctx, tx, id)
		switch {
		case err != nil:
			return nil, err
		case old == nil || !w.sees(old.TenantID):
			return nil, noLink(id)
		case !w.all && old.TenantID == "":
			return nil, fault.New(fault.Denied, "link %s belongs to everyone; only who sees all tenants may delete it", id)
		case version != 0 && version != old.Version:
			return nil, fault.New(fault.Conflict, "link %s has version %d, not %d: it was changed meanwhile; read it and try again", id, old.Version, version)
		}
		if err := deleteDeclared(ctx, tx, id); err != nil {
			return nil, err
		}
		prev, err := readOpen(ctx, tx, linkPrefix+id)
		if err != nil || prev == nil {
			return nil, err
		}
		return []edit{{id: linkPrefix + id, prev: prev}}, nil
	})
}

// Link returns a link with what is measured of it. It returns fault.Invalid
// and fault.NotFound.
func (s *Service) Link(ctx context.Context, id string) (Connection, error) {
	var c core.Check
	if c.Text("link_id", id, true, 0, maxID); c.Err() != nil {
		return Connection{}, c.Err()
	}
	p, err := s.pictureAt(ctx, time.Time{})
	if err != nil {
		return Connection{}, err
	}
	for i, it := range p.links {
		if it.ID == linkPrefix+id {
			layers, err := s.layers(ctx, p, LevelLink, time.Time{})
			return p.connection(i, layers), err
		}
	}
	it := s.danglingLink(ctx, p.graph, id)
	if it == nil {
		return Connection{}, noLink(id)
	}
	return Connection{Item: it, Dangling: true}, nil
}

// danglingLink is a link that is in the image and not in the graph.
func (s *Service) danglingLink(ctx context.Context, g *graph, id string) *Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	it := s.now.items[linkPrefix+id]
	if it == nil || !it.isLink() || !showsDangling(viewerOf(ctx), g, it) {
		return nil
	}
	return it
}

// showsDangling: to who does not see all, an end that is not there may be one
// they must not know of.
func showsDangling(w viewer, g *graph, it *Item) bool {
	_, from := g.at[it.Link.From]
	_, to := g.at[it.Link.To]
	return w.sees(it.TenantID) && w.all && !(from && to)
}

// LinkFilter says which links are wanted; the zero value: all.
type LinkFilter struct {
	VertexID string // end at it
	Source   Source
	At       time.Time // zero: now
}

// Links returns a page of links by ID, and the token of the next page, "" on
// the last. It returns fault.Invalid.
func (s *Service) Links(ctx context.Context, f LinkFilter, size int32, token string) ([]Connection, string, error) {
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", err
	}
	var c core.Check
	if f.VertexID != "" {
		checkVertex(&c, "node_id", f.VertexID)
	}
	c.Range("source", int64(f.Source), 0, int64(Measured))
	if err := c.Err(); err != nil {
		return nil, "", err
	}
	p, err := s.pictureAt(ctx, f.At)
	if err != nil {
		return nil, "", err
	}
	var rows []Connection
	fits := func(it *Item) bool {
		return (f.Source == AnySource || it.Link.Source == f.Source) && (f.VertexID == "" || it.Link.From == f.VertexID || it.Link.To == f.VertexID) &&
			(key == nil || it.ID > key[0])
	}
	var layers []*layer
	if layers, err = s.layers(ctx, p, LevelLink, f.At); err != nil {
		return nil, "", err
	}
	for i, it := range p.links {
		if fits(it) {
			rows = append(rows, p.connection(i, layers))
		}
	}
	if f.At.IsZero() {
		s.mu.Lock()
		w := viewerOf(ctx)
		for _, it := range s.now.items {
			if it.isLink() && fits(it) && showsDangling(w, p.graph, it) {
				rows = append(rows, Connection{Item: it, Dangling: true})
			}
		}
		s.mu.Unlock()
		slices.SortFunc(rows, func(a, b Connection) int { return strings.Compare(a.ID, b.ID) })
	}
	if len(rows) <= n {
		return rows, "", nil
	}
	return rows[:n], core.PageToken(rows[n-1].ID), nil
}

// connection shows a link of the picture.
func (p *picture) connection(i int, layers []*layer) Connection {
	c := Connection{Item: p.links[i], Health: p.link[i]}
	for _, l := range layers {
		c.Figures = l.figure(c.Figures, l.link[i])
	}
	return c
}
