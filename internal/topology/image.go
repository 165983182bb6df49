package topology

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
)

// image is what is valid at a revision.
type image struct {
	head
	items   map[string]*Item
	tenants bool // something in it belongs to a tenant
}

func (m *image) put(it *Item) {
	m.items[it.ID] = it
	m.tenants = m.tenants || it.TenantID != ""
}

// refresh brings the image up to the last revision.
func (s *Service) refresh(ctx context.Context) error {
	select { // one at a time; others find it done
	case s.loading <- struct{}{}:
		defer func() { <-s.loading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	have := s.now.head
	s.mu.Unlock()
	var last head
	var anew bool
	var gone, open []*version
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		if last, err = lastRevision(ctx, tx); err != nil || last == have {
			return err
		}
		first, err := firstRevision(ctx, tx)
		if err != nil {
			return err
		}
		if anew = have.seq < first.seq || last.seq < have.seq; anew {
			open, err = readVersions(ctx, tx, `WHERE v.closed = 0`)
			return err
		}
		if gone, err = readVersions(ctx, tx, `WHERE `+ended+` AND v.until_seq > $1`, have.seq); err != nil {
			return err
		}
		open, err = readVersions(ctx, tx, `WHERE v.closed = 0 AND v.from_seq > $1`, have.seq)
		return err
	})
	if err != nil || last == have {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.graphs)
	if anew {
		s.now = &image{items: make(map[string]*Item, len(open))}
	}
	s.now.head = last
	for _, v := range gone {
		delete(s.now.items, v.ID)
	}
	for _, v := range open {
		s.now.put(&v.Item)
	}
	return nil
}

// vertex of a graph.
type vertex struct {
	*Item
	parent   int32 // -1: none
	children []int32
	card     int32 // where its cards begin
	cards    int32
	center   int32 // the center it is a node of; -1: none
	order    int32 // where it is among the vertices that are not nodes of centers, or among the nodes of its center
}

// graph is what one caller may see of an image, as a tree with links. It is
// never changed.
type graph struct {
	head
	v       []vertex // the network first, parents before children
	at      map[string]int32
	centers []int32 // by ID
	groups  []int32 // neither centers nor nodes of one, parents before children
	links   []*Item // by ID; both ends are here
	cards   int32
}

// whole is the network itself.
var whole = &Item{Record: Record{ID: NetworkID, Name: NetworkID, Kind: "network", Level: LevelNetwork}}

// viewer is what a caller may see.
type viewer struct {
	all    bool
	tenant string
}

func viewerOf(ctx context.Context) viewer {
	c := core.CallerFrom(ctx)
	return viewer{c.AllTenants, c.Tenant("")}
}

func (w viewer) sees(tenantID string) bool { return w.all || tenantID == "" || tenantID == w.tenant }

// newGraph makes the graph of an image.
func newGraph(m *image, w viewer) *graph {
	items := make([]*Item, 0, len(m.items))
	var links []*Item
	for _, it := range m.items {
		switch {
		case !w.sees(it.TenantID):
		case it.isLink():
			links = append(links, it)
		default:
			items = append(items, it)
		}
	}
	// Centers and nodes are most of it: by ID they are by center and name.
	slices.SortFunc(items, func(a, b *Item) int {
		return cmp.Or(cmp.Compare(rank[a.Level], rank[b.Level]), strings.Compare(a.ID, b.ID))
	})
	n := len(items) + 1
	all := make([]*Item, 0, n)
	all = append(append(all, whole), items...)
	at := make(map[string]int32, n)
	for i, it := range all {
		at[it.ID] = int32(i)
	}
	parent := make([]int32, n)
	children := make([][]int32, n)
	for i := 1; i < n; i++ {
		p, found := at[all[i].Parent]
		if !found || all[i].Parent == "" || p == int32(i) {
			if p, found = at[centerID(all[i].CenterID)]; !found || p == int32(i) {
				p = 0
			}
		}
		parent[i] = p
	}
	// What is in a circle, which only a picture taken in the middle of a move
	// can have, is shown below the network.
	const fresh, open, done = 0, 1, 2
	mark := make([]byte, n)
	mark[0] = done
	for i := 1; i < n; i++ {
		j := int32(i)
		for mark[j] == fresh {
			mark[j] = open
			j = parent[j]
		}
		if mark[j] == open {
			parent[j] = 0
		}
		for j = int32(i); mark[j] == open; j = parent[j] {
			mark[j] = done
		}
	}
	for i := 1; i < n; i++ {
		children[parent[i]] = append(children[parent[i]], int32(i))
	}
	g := &graph{head: m.head, v: make([]vertex, 0, n), at: at}
	g.place(all, children)
	for _, it := range links {
		_, from := at[it.Link.From]
		if _, to := at[it.Link.To]; from && to {
			g.links = append(g.links, it)
		}
	}
	slices.SortFunc(g.links, func(a, b *Item) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(g.centers, func(a, b int32) int { return strings.Compare(g.v[a].ID, g.v[b].ID) })
	return g
}

// rank orders siblings.
var rank = map[Level]int{LevelNetwork: 0, LevelPlatform: 1, LevelRegion: 2, LevelCenter: 3, LevelResource: 4, LevelNode: 5}

// place lays the vertices out level by level.
func (g *graph) place(all []*Item, children [][]int32) {
	old := make([]int32, 0, len(all)) // of the same vertex in all
	add := func(i, parent int32) {
		it := all[i]
		v := vertex{Item: it, parent: parent, center: -1, card: g.cards, cards: int32(min(it.cards(), maxCards))}
		g.cards += v.cards
		self := int32(len(g.v))
		g.at[it.ID] = self
		switch {
		case it.Level == LevelCenter:
			g.centers = append(g.centers, self)
		case it.Level == LevelNode && parent >= 0 && g.v[parent].Level == LevelCenter && strings.HasPrefix(it.ID, nodePrefix):
			v.center = parent
		default:
			v.order = int32(len(g.groups))
			g.groups = append(g.groups, self)
		}
		g.v = append(g.v, v)
		old = append(old, i)
	}
	add(0, -1)
	for next := 0; next < len(g.v); next++ {
		below := children[old[next]]
		if len(below) == 0 {
			continue
		}
		first, nodes := int32(len(g.v)), int32(0)
		for _, i := range below {
			add(i, int32(next))
			if v := &g.v[len(g.v)-1]; v.center >= 0 {
				v.order = nodes
				nodes++
			}
		}
		kids := make([]int32, len(below))
		for i := range kids {
			kids[i] = first + int32(i)
		}
		g.v[next].children = kids
	}
}

// nodesOf are the nodes of a center by name.
func (g *graph) nodesOf(center int32) []int32 {
	kids := g.v[center].children
	from := slices.IndexFunc(kids, func(i int32) bool { return g.v[i].center == center })
	if from < 0 {
		return nil
	}
	out := kids[from:]
	// Registered nodes have other IDs and sort elsewhere, before or behind.
	if g.v[out[len(out)-1]].center == center {
		return out
	}
	return out[:slices.IndexFunc(out, func(i int32) bool { return g.v[i].center != center })]
}
