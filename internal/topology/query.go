package topology

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// Figure is what a binding measured of a vertex or link.
type Figure struct {
	Binding *Binding
	Value   float64
	Health  Health
	At      time.Time
}

// figure appends what the layer says, if it says anything.
func (l *layer) figure(to []Figure, x float64) []Figure {
	if math.IsNaN(x) {
		return to
	}
	return append(to, Figure{l.Binding, x, l.judge(x), l.at})
}

// layers returns what the bindings of a level measured; AnyLevel: of all
// vertices. What cannot be read is left out.
func (s *Service) layers(ctx context.Context, p *picture, level Level, when time.Time) ([]*layer, error) {
	all, err := s.bindings(ctx)
	if err != nil {
		return nil, err
	}
	var out []*layer
	for _, id := range sortedKeys(all) {
		b := all[id]
		if level == AnyLevel && b.Level == LevelLink || level != AnyLevel && b.Level != level {
			continue
		}
		l, err := s.layerOf(ctx, p.graph, b, when)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			s.complain(id, err)
			continue
		}
		out = append(out, l)
	}
	return out, nil
}

// Vertex is a vertex as it is shown.
type Vertex struct {
	*Item
	Display     string // its parent where it is shown
	Health      Health
	Worst       Health
	Nodes       Counts
	Cards       Counts
	Children    int64
	More        bool   // some of them are not in this answer
	Hidden      Counts // nodes below it that are not
	Location    string // region
	Depth       int    // below the root of the answer
	Links       []Connection
	Figures     []Figure
	Changes     int64
	HistoryFrom time.Time
	ID          string // also of a card
	Card        *Cards // of a card: itself
	Level       Level
	Equipment   []Cards
}

// show makes the vertex i of a picture.
func (p *picture) show(i int32) Vertex {
	v := &p.v[i]
	out := Vertex{Item: v.Item, ID: v.Item.ID, Level: v.Item.Level, Health: p.health[i], Worst: p.worst[i], Nodes: p.nodes[i], Cards: p.cards[i], Children: int64(len(v.children)),
		Location: p.region(i), Equipment: v.Item.Equipment}
	if v.parent >= 0 {
		out.Display = p.v[v.parent].Item.ID
	}
	if v.Level == LevelNode {
		out.Nodes = Counts{} // it has none below it
	}
	return out
}

// region is that of the vertex or of what is above it.
func (g *graph) region(i int32) string {
	for ; i > 0; i = g.v[i].parent {
		if r := g.v[i].Region; r != "" {
			return r
		}
	}
	return ""
}

// showCard makes the card c (counted within its node) of node i.
func (p *picture) showCard(i int32, c int64) Vertex {
	v := &p.v[i]
	n := int64(0)
	seen := map[string]int64{}
	out := p.show(i)
	out.Display, out.Level, out.Children, out.Cards, out.Equipment = v.Item.ID, LevelCard, 0, Counts{}, nil
	for _, k := range v.Equipment {
		if c < n+k.Count {
			one := k
			one.Count = 1
			out.Card, out.Equipment = &one, []Cards{one}
			out.ID = cardID(v.CenterID, v.Name, k.Resource, seen[k.Resource]+c-n)
			break
		}
		n += k.Count
		seen[k.Resource] += k.Count
	}
	h := p.card[int64(v.card)+c]
	out.Health, out.Worst = h, h
	return out
}

// findCard returns the node and the number within it of a card.
func (g *graph) findCard(id string) (node int32, card int64, ok bool) {
	center, rest, index, ok := splitCard(id)
	if !ok {
		return 0, 0, false
	}
	// "node/resource": where the name ends depends on what the node has.
	for at := len(rest); ; {
		if at = strings.LastIndexByte(rest[:at], '/'); at < 1 {
			return 0, 0, false
		}
		i, found := g.at[nodeID(center, rest[:at])]
		if !found || g.v[i].center < 0 {
			continue
		}
		n, seen := int64(0), int64(0)
		for _, k := range g.v[i].Equipment {
			if k.Resource == rest[at+1:] {
				if index < seen+k.Count {
					card := n + index - seen
					return i, card, card < int64(g.v[i].cards)
				}
				seen += k.Count
			}
			n += k.Count
		}
	}
}

// Part is a part of the topology.
type Part struct {
	Seq         int64
	At          time.Time
	HistoryFrom time.Time
	Vertices    []Vertex
	Links       []Connection
	MoreLinks   int64
}

// maxPartLinks bounds the links of a part.
const maxPartLinks = 1000

// Topology returns a vertex, "" for the network, and what is below it: depth
// levels (1 to 16; 0: 2) and at most limit vertices (1 to 5000; 0: 500). What
// does not fit is left out evenly, the worst stay. It returns fault.Invalid
// and fault.NotFound.
func (s *Service) Topology(ctx context.Context, root string, when time.Time, depth, limit int32) (*Part, error) {
	if root == "" {
		root = NetworkID
	}
	if depth == 0 {
		depth = 2
	}
	if limit == 0 {
		limit = 500
	}
	var c core.Check
	checkVertex(&c, "root_id", root)
	c.Range("depth", int64(depth), 1, 16)
	c.Range("limit", int64(limit), 1, 5000)
	if err := c.Err(); err != nil {
		return nil, err
	}
	p, err := s.pictureAt(ctx, when)
	if err != nil {
		return nil, err
	}
	out, err := s.part(ctx, p, when)
	if err != nil {
		return nil, err
	}
	if i, card, ok := p.findCard(root); ok {
		out.Vertices = []Vertex{p.showCard(i, card)}
		return out, nil
	}
	i, found := p.at[root]
	if !found {
		return nil, noVertex(root)
	}
	p.grow(out, i, int(depth), int(limit))
	shown := make(map[string]bool, len(out.Vertices))
	for k := range out.Vertices {
		shown[out.Vertices[k].ID] = true
	}
	layers, err := s.layers(ctx, p, LevelLink, when)
	if err != nil {
		return nil, err
	}
	for k, it := range p.links {
		if !shown[it.Link.From] || !shown[it.Link.To] {
			continue
		}
		if len(out.Links) == maxPartLinks {
			out.MoreLinks++
			continue
		}
		out.Links = append(out.Links, p.connection(k, layers))
	}
	return out, nil
}

// part begins an answer.
func (s *Service) part(ctx context.Context, p *picture, when time.Time) (*Part, error) {
	out := &Part{Seq: p.seq, At: when}
	if when.IsZero() {
		out.At = s.db.Now()
	}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		first, err := firstRevision(ctx, tx)
		out.HistoryFrom = db.Time(first.at)
		return err
	})
	return out, err
}

// grow puts the vertex and what is below it into the answer, level by level.
func (p *picture) grow(out *Part, root int32, depth, limit int) {
	type place struct {
		i  int32
		at int // in out.Vertices
	}
	add := func(v Vertex, depth int) int {
		v.Depth = depth
		out.Vertices = append(out.Vertices, v)
		return len(out.Vertices) - 1
	}
	level := []place{{root, add(p.show(root), 0)}}
	for d := 1; d <= depth && len(level) > 0; d++ {
		room := limit - len(out.Vertices)
		var next []place
		for k, pl := range level {
			// Of what room is left each gets the same share of it.
			share := room / (len(level) - k)
			v := &p.v[pl.i]
			kids := v.children
			if len(kids) > share {
				kids = slices.Clone(kids)
				slices.SortStableFunc(kids, func(a, b int32) int { return severity[p.worst[b]] - severity[p.worst[a]] })
				for _, hidden := range kids[share:] {
					out.Vertices[pl.at].Hidden.add(&p.nodes[hidden])
				}
				kids = kids[:share]
				slices.Sort(kids)
				out.Vertices[pl.at].More = true
			}
			for _, i := range kids {
				next = append(next, place{i, add(p.show(i), d)})
			}
			room -= len(kids)
			if v.cards == 0 {
				continue
			}
			fit := min(int(v.cards), share-len(kids))
			for c := range fit {
				add(p.showCard(pl.i, int64(c)), d)
			}
			room -= fit
			out.Vertices[pl.at].More = out.Vertices[pl.at].More || fit < int(v.cards)
		}
		level = next
	}
	for _, pl := range level {
		if v := &p.v[pl.i]; len(v.children) > 0 || v.cards > 0 {
			at := &out.Vertices[pl.at]
			at.More = true
			if len(v.children) > 0 {
				at.Hidden = p.nodes[pl.i]
			}
		}
	}
}

// Vertex returns one vertex with its links and what is measured of it. It
// returns fault.Invalid and fault.NotFound.
func (s *Service) Vertex(ctx context.Context, id string, when time.Time) (*Vertex, error) {
	var c core.Check
	if checkVertex(&c, "node_id", id); c.Err() != nil {
		return nil, c.Err()
	}
	p, err := s.pictureAt(ctx, when)
	if err != nil {
		return nil, err
	}
	i, card, isCard := p.findCard(id)
	if !isCard {
		var found bool
		if i, found = p.at[id]; !found {
			return nil, noVertex(id)
		}
	}
	layers, err := s.layers(ctx, p, AnyLevel, when)
	if err != nil {
		return nil, err
	}
	out := p.show(i)
	if isCard {
		out = p.showCard(i, card)
	}
	for _, l := range layers {
		switch {
		case !isCard:
			out.Figures = l.figure(out.Figures, l.vertex[i])
		case l.card != nil:
			out.Figures = l.figure(out.Figures, l.card[int64(p.v[i].card)+card])
		}
	}
	if isCard {
		return &out, nil
	}
	links, err := s.layers(ctx, p, LevelLink, when)
	if err != nil {
		return nil, err
	}
	for k, it := range p.links {
		if it.Link.From == id || it.Link.To == id {
			if len(out.Links) == maxPartLinks {
				break
			}
			out.Links = append(out.Links, p.connection(k, links))
		}
	}
	if err := s.describe(ctx, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// describe adds what only one vertex is asked for.
func (s *Service) describe(ctx context.Context, v *Vertex) error {
	err := s.db.View(ctx, func(tx *db.Tx) error {
		if _, err := tx.Get(ctx, `SELECT COUNT(*) FROM topology_versions WHERE item_id = $1`, []any{v.ID}, &v.Changes); err != nil {
			return err
		}
		first, err := firstRevision(ctx, tx)
		v.HistoryFrom = db.Time(first.at)
		return err
	})
	if err != nil {
		return fmt.Errorf("read history of %s: %w", v.ID, err)
	}
	return nil
}

// View is the whole network for a picture of it.
type View struct {
	*picture
	Unchanged   bool
	Revision    string
	At          time.Time
	HistoryFrom time.Time
	Links       []Connection
}

// Limits of a view.
const (
	maxViewVertices = 5000
	maxViewLinks    = 5000
)

// View returns the whole network. If known is the revision of it, the answer
// is only that.
func (s *Service) View(ctx context.Context, when time.Time, known string) (*View, error) {
	p, err := s.pictureAt(ctx, when)
	if err != nil {
		return nil, err
	}
	part, err := s.part(ctx, p, when)
	if err != nil {
		return nil, err
	}
	out := &View{picture: p, At: part.At, HistoryFrom: part.HistoryFrom, Revision: fmt.Sprintf("%d-%x", p.seq, p.hash)}
	if out.Unchanged = known == out.Revision; out.Unchanged {
		return out, nil
	}
	layers, err := s.layers(ctx, p, LevelLink, when)
	if err != nil {
		return nil, err
	}
	for i := range p.links[:min(len(p.links), maxViewLinks)] {
		out.Links = append(out.Links, p.connection(i, layers))
	}
	return out, nil
}

// Values returns a binding on the graph that View shows. It returns
// fault.Invalid, fault.NotFound and what the store of samples does.
func (s *Service) Values(ctx context.Context, bindingID string, when time.Time) (*graph, *layer, error) {
	var c core.Check
	if c.ID("binding_id", bindingID); c.Err() != nil {
		return nil, nil, c.Err()
	}
	all, err := s.bindings(ctx)
	if err != nil {
		return nil, nil, err
	}
	b := all[bindingID]
	if b == nil {
		return nil, nil, fault.New(fault.NotFound, "there is no binding %s", bindingID)
	}
	g, err := s.graphAt(ctx, when)
	if err != nil {
		return nil, nil, err
	}
	l, err := s.layerOf(ctx, g, b, when)
	return g, l, err
}
