package inventory

import (
	"context"
	"slices"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
)

// getViewed returns a center, or a node of it, as a resource.
func (s *Service) getViewed(ctx context.Context, centerID, node string) (Resource, error) {
	k, err := s.reg.GetCenter(ctx, centerID)
	if err != nil {
		return Resource{}, viewMissing(err, centerID, node)
	}
	var n registry.Node
	if node != "" {
		if n, err = s.reg.GetNode(ctx, centerID, node); err != nil {
			return Resource{}, viewMissing(err, centerID, node)
		}
	}
	var rows []Resource
	err = s.db.View(ctx, func(tx *db.Tx) error {
		at, err := getPlace(ctx, tx, centerID)
		if err != nil {
			return err
		}
		if node == "" {
			rows = []Resource{centerView(&k, at)}
		} else {
			rows = []Resource{nodeView(&n, k.Region, at)}
		}
		return complete(ctx, tx, rows)
	})
	if err != nil {
		return Resource{}, err
	}
	return rows[0], nil
}

func viewMissing(err error, centerID, node string) error {
	if fault.KindOf(err) != fault.NotFound {
		return err
	}
	if node == "" {
		return noResource(CenterID(centerID))
	}
	return noResource(NodeID(centerID, node))
}

func centerView(k *registry.Center, at place) Resource {
	r := Resource{
		ID: CenterID(k.ID), Type: typeCenter, Name: k.Name, ParentID: at.parentID, PlatformID: at.platformID, CenterID: k.ID, Region: k.Region,
		State: Unavailable, Labels: k.Labels, CreatedAt: k.CreatedAt, UpdatedAt: k.UpdatedAt,
		Attributes: map[string]any{"available_resources": amounts(k.Total), "security_grade": float64(k.SecurityGrade)},
	}
	switch {
	case k.Drained:
		r.State = Maintenance
	case k.Status == registry.Available:
		r.State = Available
	}
	if k.Adapter != "" {
		r.Attributes["adapter"] = k.Adapter
	}
	if k.Nodes != nil {
		r.Children = k.Nodes.Total()
		r.Attributes["nodes"] = float64(r.Children)
	}
	return r
}

func nodeView(n *registry.Node, region string, at place) Resource {
	r := Resource{
		ID: NodeID(n.CenterID, n.Name), Type: typeNode, Name: n.Name, ParentID: CenterID(n.CenterID), PlatformID: at.platformID, CenterID: n.CenterID, Region: region,
		State: nodeStates[n.State], Labels: n.Labels, CreatedAt: n.CreatedAt, UpdatedAt: n.UpdatedAt,
		Attributes: map[string]any{"available_resources": amounts(n.Capacity)},
	}
	for name, v := range map[string]string{"architecture": n.Architecture, "operating_system": n.OS, "reason": n.Reason} {
		if v != "" {
			r.Attributes[name] = v
		}
	}
	var chips []any
	for _, a := range n.Accelerators {
		chip := map[string]any{"count": float64(a.Count)}
		if kind := strings.ToUpper(a.Resource); slices.Contains(typeOf("compute").schema.Properties["chip_type"].Enum, any(kind)) {
			chip["chip_type"] = kind
		}
		for name, v := range map[string]string{"vendor": a.Vendor, "chip_model": a.Model} {
			if v != "" {
				chip[name] = v
			}
		}
		if a.Memory > 0 {
			chip["memory_bytes"] = float64(a.Memory)
		}
		chips = append(chips, chip)
	}
	if chips != nil {
		r.Attributes["chips"] = chips
	}
	return r
}

var nodeStates = map[registry.NodeState]State{registry.NodeReady: Available, registry.NodeNotReady: Unavailable, registry.NodeDrained: Maintenance}

// amounts writes quantities as S Table 9 has them.
func amounts(q core.Quantities) []any {
	out := []any{}
	for _, name := range sorted(q) {
		x := map[string]any{"kind": clip(name), "scale": float64(q[name])}
		switch name {
		case core.CPU:
			x["scale"], x["unit"] = float64(q[name])/1000, "cores"
		case core.Memory, core.Storage:
			x["unit"] = "bytes"
		}
		out = append(out, x)
	}
	return out
}

// Sections of a list: what is registered, then centers, then nodes.
const (
	sectionStored  = "r"
	sectionCenters = "c"
	sectionNodes   = "n"
)

// Most rows of the view that one page looks through for those that pass the
// filter: a filter that few pass gives short pages rather than slow ones.
const (
	maxScanned = 5000
	maxScans   = 20
)

// List returns a page of the resources that pass the filter and the caller may
// see: those registered by ID, then centers by ID, then nodes by center and
// name. next is the token of the next page, "" on the last; a page may be
// shorter than size and have a next one. It returns fault.Invalid.
func (s *Service) List(ctx context.Context, f Filter, size int32, token string) (rows []Resource, next string, err error) {
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", err
	}
	if err := f.check(); err != nil {
		return nil, "", err
	}
	section, inner := sectionStored, ""
	key, err := core.ParsePageToken(token, 2)
	if err != nil {
		return nil, "", err
	}
	if key != nil {
		section, inner = key[0], key[1]
	}
	sections := []string{sectionStored, sectionCenters, sectionNodes}
	at := slices.Index(sections, section)
	if at < 0 {
		return nil, "", fault.Fields(fault.Field{Path: "page_token", Problem: "is not a token of this list; leave it empty to start anew"})
	}
	for ; at < len(sections); at++ {
		var part []Resource
		if part, inner, err = s.section(ctx, sections[at], f, n-len(rows), inner); err != nil {
			return nil, "", err
		}
		rows = append(rows, part...)
		if inner != "" {
			next = core.PageToken(sections[at], inner)
			break
		}
		if len(rows) == n && at+1 < len(sections) {
			next = core.PageToken(sections[at+1], "")
			break
		}
	}
	err = s.db.View(ctx, func(tx *db.Tx) error { return complete(ctx, tx, rows) })
	return rows, next, err
}

// section returns up to n rows of one section.
func (s *Service) section(ctx context.Context, section string, f Filter, n int, inner string) ([]Resource, string, error) {
	switch section {
	case sectionStored:
		if len(f.Attributes) > 0 {
			return s.listWith(ctx, f, n, inner)
		}
		return s.listStored(ctx, f, n, inner, false)
	case sectionCenters:
		if f.Type != "" && f.Type != typeCenter {
			return nil, "", nil
		}
		if _, _, view := viewed(f.ParentID); view {
			return nil, "", nil
		}
		return s.listView(ctx, f, n, inner, s.centers(f))
	}
	if f.Type != "" && f.Type != typeNode || f.roots {
		return nil, "", nil
	}
	if centerID, node, view := viewed(f.ParentID); view && node == "" {
		if f.CenterID != "" && f.CenterID != centerID {
			return nil, "", nil
		}
		f.CenterID = centerID
	} else if f.ParentID != "" {
		return nil, "", nil
	}
	want := registry.AnyNode
	if f.State != AnyState {
		for _, state := range []registry.NodeState{registry.NodeReady, registry.NodeNotReady, registry.NodeDrained} {
			if nodeStates[state] == f.State {
				want = state
			}
		}
		if want == registry.AnyNode {
			return nil, "", nil
		}
	}
	return s.listView(ctx, f, n, inner, s.nodes(f, want))
}

// listWith returns up to n stored rows that have the attributes of the filter:
// of those it looked at, which may not be all.
func (s *Service) listWith(ctx context.Context, f Filter, n int, after string) (rows []Resource, next string, err error) {
	// Nearly all that have the terms have the attributes.
	terms, size := slices.ContainsFunc(f.Attributes, func(a string) bool { return strings.Contains(a, "=") }), 1000
	if terms {
		size = n
	}
	next = after
	for scans := 0; scans < maxScans && len(rows) < n; scans++ {
		var part []Resource
		if part, next, err = s.listStored(ctx, f, size, next, terms); err != nil {
			return nil, "", err
		}
		for i := range part {
			if !f.hasAttributes(&part[i]) {
				continue
			}
			if rows = append(rows, part[i]); len(rows) == n && (i+1 < len(part) || next != "") {
				return rows, part[i].ID, nil
			}
		}
		if next == "" {
			break
		}
	}
	return rows, next, nil
}

// listStored lists stored rows; with terms those that have the terms of the
// attributes of the filter, and those whose terms are not kept.
func (s *Service) listStored(ctx context.Context, f Filter, n int, after string, terms bool) ([]Resource, string, error) {
	var rows []Resource
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		q, id := &query{}, "r.resource_id"
		if terms {
			id = "t.resource_id"
			if err := q.withTerms(ctx, tx, f.Attributes); err != nil {
				return err
			}
		}
		f.limit(ctx, q)
		if after != "" {
			q.and(id + " > " + q.param(after))
		}
		records, err := readRecords(ctx, tx, q, " ORDER BY "+id+" LIMIT "+q.param(n+1))
		if err != nil {
			return err
		}
		rows = make([]Resource, len(records))
		for i, r := range records {
			if rows[i], err = r.open(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || len(rows) <= n {
		return rows, "", err
	}
	return rows[:n], rows[n-1].ID, nil
}

// limit adds the conditions of the filter on stored rows r, but attributes.
func (f Filter) limit(ctx context.Context, q *query) {
	visibleTo(ctx).limit(q)
	for _, x := range []struct{ column, value string }{
		{"type", f.Type}, {"parent_id", f.ParentID}, {"platform_id", f.PlatformID}, {"ai_center_id", f.CenterID}, {"region", f.Region},
	} {
		if x.value != "" {
			q.and("r." + x.column + " = " + q.param(x.value))
		}
	}
	// Said once more for the partial indexes, which a parameter does not tell of.
	if f.PlatformID != "" {
		q.and("r.platform_id <> ''")
	}
	if f.CenterID != "" {
		q.and("r.ai_center_id <> ''")
	}
	if f.roots {
		q.and("r.parent_id = ''")
	}
	if f.State != AnyState {
		q.and("r.state = " + q.param(int64(f.State)))
	}
	for _, l := range f.Labels {
		name, value, exact := strings.Cut(l, "=")
		cond := "EXISTS (SELECT 1 FROM resource_labels l WHERE l.resource_id = r.resource_id AND l.label = " + q.param(name)
		if exact {
			cond += " AND l.value = " + q.param(value)
		}
		q.and(cond + ")")
	}
}

// source gives a page of the view, with the places of centers at hand.
type source func(ctx context.Context, places map[string]place, n int, token string) ([]Resource, string, error)

// listView takes up to n rows that pass the filter from the source.
func (s *Service) listView(ctx context.Context, f Filter, n int, token string, from source) (rows []Resource, next string, err error) {
	var places map[string]place
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		places, err = readPlaces(ctx, tx, "")
		return err
	})
	for scans, scanned := 0, 0; err == nil && len(rows) < n && scans < maxScans && scanned < maxScanned; scans++ {
		var part []Resource
		if part, token, err = from(ctx, places, min(n-len(rows), 1000), token); err != nil {
			break
		}
		scanned += len(part)
		for i := range part {
			if f.matches(&part[i]) {
				rows = append(rows, part[i])
			}
		}
		if token == "" {
			break
		}
	}
	return rows, token, err
}

func (s *Service) centers(f Filter) source {
	return func(ctx context.Context, places map[string]place, n int, token string) ([]Resource, string, error) {
		if f.CenterID != "" {
			k, err := s.reg.GetCenter(ctx, f.CenterID)
			if fault.KindOf(err) == fault.NotFound && err != nil {
				return nil, "", nil
			}
			return []Resource{centerView(&k, places[f.CenterID])}, "", err
		}
		list, next, err := s.reg.ListCenters(ctx, f.Region, int32(n), token)
		out := make([]Resource, len(list))
		for i := range list {
			out[i] = centerView(&list[i], places[list[i].ID])
		}
		return out, next, err
	}
}

func (s *Service) nodes(f Filter, state registry.NodeState) source {
	return func(ctx context.Context, places map[string]place, n int, token string) ([]Resource, string, error) {
		catalog, err := s.reg.Catalog(ctx)
		if err != nil {
			return nil, "", err
		}
		list, next, err := s.reg.ListNodes(ctx, registry.NodeFilter{CenterID: f.CenterID, State: state, Labels: f.Labels}, int32(n), token)
		out := make([]Resource, len(list))
		for i := range list {
			region := ""
			if k := catalog.Centers[list[i].CenterID]; k != nil {
				region = k.Region
			}
			out[i] = nodeView(&list[i], region, places[list[i].CenterID])
		}
		return out, next, err
	}
}

// maxTree is how many resources a tree shows.
const maxTree = 2000

// GetTree returns a resource, or with "" all that has no parent, with what is
// below it: depth levels (1 to 8; 0: 2) and width children of each (1 to 200;
// 0: 50), at most 2000 resources. It returns fault.Invalid and fault.NotFound.
func (s *Service) GetTree(ctx context.Context, id string, depth, width int32) (*Tree, error) {
	if depth == 0 {
		depth = 2
	}
	if width == 0 {
		width = 50
	}
	var c core.Check
	if id != "" {
		checkRef(&c, "resource_id", id)
	}
	c.Range("depth", int64(depth), 1, 8)
	c.Range("width", int64(width), 1, 200)
	if err := c.Err(); err != nil {
		return nil, err
	}
	top := &Tree{}
	if id != "" {
		r, err := s.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		top.Resource = &r
	}
	level, room := []*Tree{top}, maxTree
	for ; depth > 0 && len(level) > 0; depth-- {
		var below []*Tree
		for _, t := range level {
			if err := s.grow(ctx, t, int(width), &room); err != nil {
				return nil, err
			}
			below = append(below, t.Children...)
		}
		level = below
	}
	for _, t := range level {
		t.More = t.Resource != nil && t.Resource.Children > 0
	}
	return top, nil
}

// grow lists the children of a resource.
func (s *Service) grow(ctx context.Context, t *Tree, width int, room *int) error {
	f := Filter{roots: true}
	if t.Resource != nil {
		if t.Resource.Children == 0 {
			return nil
		}
		f = Filter{ParentID: t.Resource.ID}
	}
	token, wanted := "", min(width, *room)
	for len(t.Children) < wanted {
		rows, next, err := s.List(ctx, f, int32(wanted-len(t.Children)), token)
		if err != nil {
			return err
		}
		for i := range rows {
			t.Children = append(t.Children, &Tree{Resource: &rows[i]})
		}
		if token = next; token == "" {
			break
		}
	}
	*room -= len(t.Children)
	t.More = token != "" || wanted == 0
	if t.Resource != nil {
		t.More = int64(len(t.Children)) < t.Resource.Children
	}
	return nil
}
