package tags

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/tags/expr"
)

// Resources knows what is registered beside centers and nodes. Who calls is
// read from the context; what the caller may not see MUST be left out.
type Resources interface {
	// Resource returns a registered resource; fault.NotFound if there is none.
	Resource(ctx context.Context, id string) (Registered, error)
	// EachResource calls f with all registered resources.
	EachResource(ctx context.Context, f func(Registered)) error
	// Places returns the resources that centers are placed below, by center ID.
	Places(ctx context.Context) (map[string]string, error)
	// Place is Places of one center; "": none.
	Place(ctx context.Context, centerID string) (string, error)
}

// Registered is a registered resource.
type Registered struct {
	ID         string
	Type       string
	Name       string
	Parent     string // object it is part of, such as "node:c:n" or "resource:p"; "": none
	CenterID   string
	TenantID   string
	Region     string
	Provider   string
	State      string
	Attributes map[string]any
	Labels     map[string]string
}

// object is something that carries tags. Its facts have no tags yet.
type object struct {
	ref    string
	kind   Kind
	name   string
	parent string // "" for the platform only
	center string
	tenant string
	facts  expr.Facts
}

func platformObject() *object {
	f := expr.Platform.Facts()
	f["id"], f["name"] = PlatformObject, PlatformObject
	return &object{ref: PlatformObject, kind: Platform, name: PlatformObject, facts: f}
}

const giga = 1 << 30

// scaled writes amounts in the units of expressions.
func scaled(q core.Quantities) map[string]int64 {
	out := make(map[string]int64, len(q))
	for name, n := range q {
		switch name {
		case core.CPU:
			n /= 1000
		case core.Memory, core.Storage:
			n /= giga
		}
		out[name] = n
	}
	return out
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// placeFacts are what a center is beside its tags and live figures.
func placeFacts(f expr.Facts, k *registry.Center) {
	f["id"], f["name"], f["labels"] = k.ID, k.Name, orEmpty(k.Labels)
	f["region"], f["security_grade"], f["adapter"], f["performance"] = k.Region, k.SecurityGrade, k.Adapter, k.Performance
	f["static_milliwatts_per_cpu"], f["active_milliwatts_per_cpu"] = k.Power.Static, k.Power.Active
	f["capacity"] = scaled(k.Total)
	if p := k.Position; p != nil {
		f["located"], f["longitude"], f["latitude"] = true, float64(p.Longitude)/1e6, float64(p.Latitude)/1e6
	}
}

// acceleratorFacts sets what is known of accelerators.
func acceleratorFacts(f expr.Facts, as []registry.Accelerator) {
	list, models, counts := []any{}, []string{}, map[[2]string]int64{}
	for _, a := range as {
		list = append(list, map[string]any{"vendor": a.Vendor, "model": a.Model, "count": a.Count, "memory": a.Memory / giga, "resource": a.Resource})
		if a.Model != "" {
			counts[[2]string{a.Model, a.Vendor}] += a.Count
			if !slices.Contains(models, a.Model) {
				models = append(models, a.Model)
			}
		}
	}
	slices.Sort(models)
	var best [2]string
	for k, n := range counts {
		if m := counts[best]; n > m || n == m && (k[0] < best[0] || k[0] == best[0] && k[1] < best[1]) {
			best = k
		}
	}
	f["accelerators"], f["models"], f["main_model"], f["main_vendor"] = list, models, best[0], best[1]
}

// measuredWithin is how old what a center measured may be.
const measuredWithin = time.Minute

func (s *Service) centerObject(k *registry.Center, cat *registry.Catalog, places map[string]string) *object {
	f := expr.Center.Facts()
	placeFacts(f, k)
	catalogFacts(f, k.ID, cat)
	f["drained"] = k.Drained
	if n := k.Nodes; n != nil {
		acceleratorFacts(f, n.Accelerators)
		f["nodes"] = map[string]int64{"ready": n.Ready, "not_ready": n.NotReady, "drained": n.Drained, "total": n.Total()}
	}
	f["status"] = [...]string{"unavailable", "available", "unknown"}[k.Status]
	f["running"], f["waiting"], f["used"] = k.Running, k.Waiting, scaled(k.Used)
	free := core.Quantities{}
	for name := range k.Total {
		free[name] = k.Free(name)
	}
	f["free"] = scaled(free)
	if m := k.Measured; s.db.Now().Sub(m.At) < measuredWithin {
		percent := func(busy, total int64) int64 {
			if total <= 0 {
				return 0
			}
			return int64(math.Round(float64(busy) / float64(total) * 100))
		}
		f["measured"], f["cpu_busy_percent"] = true, (m.CPUBusyPermille+5)/10
		f["memory_busy_percent"], f["storage_busy_percent"] = percent(m.MemoryBusy, m.MemoryTotal), percent(m.StorageBusy, m.StorageTotal)
	}
	return &object{ref: "center:" + k.ID, kind: Center, name: k.Name, parent: placed(places, k.ID), center: k.ID, facts: f}
}

func placed(places map[string]string, centerID string) string {
	if id := places[centerID]; id != "" {
		return "resource:" + id
	}
	return PlatformObject
}

// catalogFacts sets what is offered at a center.
func catalogFacts(f expr.Facts, centerID string, cat *registry.Catalog) {
	if k := cat.Centers[centerID]; k != nil {
		f["specs"], f["images"] = sorted(k.Offers), sorted(k.Images)
	}
}

func nodeObject(n *registry.Node, region string) *object {
	f := expr.Node.Facts()
	f["id"], f["name"], f["labels"], f["center"], f["region"] = n.Name, n.Name, orEmpty(n.Labels), n.CenterID, region
	switch n.State {
	case registry.NodeReady:
		f["state"] = "ready"
	case registry.NodeDrained:
		f["state"] = "drained"
	default:
		f["state"] = "not_ready"
	}
	f["architecture"], f["operating_system"], f["capacity"], f["allocatable"] = n.Architecture, n.OS, scaled(n.Capacity), scaled(n.Allocatable)
	acceleratorFacts(f, n.Accelerators)
	return &object{ref: "node:" + n.CenterID + ":" + n.Name, kind: Node, name: n.Name, parent: "center:" + n.CenterID, center: n.CenterID, facts: f}
}

func resourceObject(r *Registered) *object {
	f := expr.Resource.Facts()
	f["id"], f["name"], f["labels"], f["type"], f["parent"], f["center"] = r.ID, r.Name, orEmpty(r.Labels), r.Type, r.Parent, r.CenterID
	f["region"], f["provider"], f["state"] = r.Region, r.Provider, r.State
	if r.Attributes != nil {
		f["attributes"] = r.Attributes
	}
	o := &object{ref: "resource:" + r.ID, kind: Resource, name: r.Name, parent: r.Parent, center: r.CenterID, tenant: r.TenantID, facts: f}
	if o.parent == "" {
		o.parent = PlatformObject
	}
	return o
}

func specObject(sp *registry.Spec) *object {
	f := expr.Spec.Facts()
	centers := make([]string, len(sp.Offers))
	for i, o := range sp.Offers {
		centers[i] = o.CenterID
	}
	f["id"], f["name"], f["capacity"], f["price"], f["service_types"], f["centers"] = sp.ID, sp.Name, scaled(sp.Quantity), int64(sp.Price), append([]string{}, sp.ServiceTypes...), centers
	return &object{ref: "spec:" + sp.ID, kind: Spec, name: sp.Name, parent: PlatformObject, facts: f}
}

func imageObject(m *registry.Image) *object {
	f := expr.Image.Facts()
	f["id"], f["name"], f["center"], f["base_os"], f["cuda_version"] = m.ID, m.Name, m.CenterID, m.BaseOS.Name, m.BaseOS.CUDA
	f["driver_version"], f["framework"], f["everywhere"], f["centers"] = m.BaseOS.Driver, m.Framework, m.Everywhere, append([]string{}, m.Centers...)
	return &object{ref: "image:" + m.ID, kind: Image, name: m.Name, parent: PlatformObject, center: m.CenterID, facts: f}
}

// maxPage is the largest page registry gives.
const maxPage = 1000

// pages calls fetch until there is no next page.
func pages[T any](fetch func(size int32, token string) ([]T, string, error), f func(*T)) error {
	for token := ""; ; {
		rows, next, err := fetch(maxPage, token)
		if err != nil {
			return err
		}
		for i := range rows {
			f(&rows[i])
		}
		if token = next; token == "" {
			return nil
		}
	}
}

// objects returns the objects of a kind that the caller may see, by name.
func (s *Service) objects(ctx context.Context, kind Kind) ([]*object, error) {
	var out []*object
	var err error
	switch kind {
	case Platform:
		return []*object{platformObject()}, nil
	case Center:
		var cat *registry.Catalog
		if cat, err = s.reg.Catalog(ctx); err != nil {
			return nil, err
		}
		var places map[string]string
		if places, err = s.centerPlaces(ctx); err != nil {
			return nil, err
		}
		err = pages(func(n int32, t string) ([]registry.Center, string, error) { return s.reg.ListCenters(ctx, "", n, t) }, func(k *registry.Center) {
			out = append(out, s.centerObject(k, cat, places))
		})
	case Node:
		var cat *registry.Catalog
		if cat, err = s.reg.Catalog(ctx); err != nil {
			return nil, err
		}
		err = pages(func(n int32, t string) ([]registry.Node, string, error) {
			return s.reg.ListNodes(ctx, registry.NodeFilter{}, n, t)
		}, func(n *registry.Node) {
			region := ""
			if k := cat.Centers[n.CenterID]; k != nil {
				region = k.Region
			}
			out = append(out, nodeObject(n, region))
		})
	case Resource:
		if s.res != nil {
			err = s.res.EachResource(ctx, func(r Registered) { out = append(out, resourceObject(&r)) })
		}
	case Spec:
		err = pages(func(n int32, t string) ([]registry.Spec, string, error) { return s.reg.ListSpecs(ctx, n, t) }, func(x *registry.Spec) {
			out = append(out, specObject(x))
		})
	case Image:
		err = pages(func(n int32, t string) ([]registry.Image, string, error) { return s.reg.ListImages(ctx, n, t) }, func(x *registry.Image) {
			out = append(out, imageObject(x))
		})
	}
	return out, err
}

// object returns an object the caller may see; fault.Invalid, fault.NotFound.
func (s *Service) object(ctx context.Context, ref string) (*object, error) {
	var c core.Check
	if checkObject(&c, "object", ref); c.Err() != nil {
		return nil, c.Err()
	}
	kind, id, name, _ := split(ref)
	switch kind {
	case Platform:
		return platformObject(), nil
	case Center, Node:
		cat, err := s.reg.Fresh(ctx)
		if err != nil {
			return nil, err
		}
		if kind == Node {
			n, err := s.reg.GetNode(ctx, id, name)
			if err != nil {
				return nil, err
			}
			region := ""
			if k := cat.Centers[id]; k != nil {
				region = k.Region
			}
			return nodeObject(&n, region), nil
		}
		k, err := s.reg.GetCenter(ctx, id)
		if err != nil {
			return nil, err
		}
		at, err := s.centerPlace(ctx, id)
		if err != nil {
			return nil, err
		}
		return s.centerObject(&k, cat, map[string]string{id: at}), nil
	case Resource:
		if s.res == nil {
			return nil, fault.New(fault.NotFound, "there is no resource %s", id)
		}
		r, err := s.res.Resource(ctx, id)
		if err != nil {
			return nil, err
		}
		return resourceObject(&r), nil
	case Spec:
		sp, err := s.reg.GetSpec(ctx, id)
		if err != nil {
			return nil, err
		}
		return specObject(&sp), nil
	}
	m, err := s.reg.GetImage(ctx, id)
	if err != nil {
		return nil, err
	}
	return imageObject(&m), nil
}

// placesFresh is how old the places of centers in the tree may be.
const placesFresh = 5 * time.Second

// centerPlaces returns what centers are placed below. The map is shared.
func (s *Service) centerPlaces(ctx context.Context) (map[string]string, error) {
	if s.res == nil {
		return nil, nil
	}
	s.mu.Lock()
	places, at := s.places, s.placesAt
	s.mu.Unlock()
	now := s.db.Now()
	if age := now.Sub(at); places != nil && age >= 0 && age < placesFresh {
		return places, nil
	}
	places, err := s.res.Places(everything(ctx))
	if err != nil {
		return nil, err
	}
	if places == nil {
		places = map[string]string{}
	}
	s.mu.Lock()
	s.places, s.placesAt = places, now
	s.mu.Unlock()
	return places, nil
}

// centerPlace is what one center is placed below now.
func (s *Service) centerPlace(ctx context.Context, id string) (string, error) {
	if s.res == nil {
		return "", nil
	}
	return s.res.Place(everything(ctx), id)
}

// everything is a context of the platform's own, which sees all tenants.
func everything(ctx context.Context) context.Context {
	return core.WithCaller(ctx, core.Caller{AllTenants: true})
}

// maxDepth bounds how far up parents are followed, were there ever a circle.
const maxDepth = 32

// world is what tags are looked at with: objects, their values and the
// library, as of about one moment.
type world struct {
	s       *Service
	defs    map[string]*Definition
	values  map[string][]*stored
	objects map[string]*object // the objects asked for, and what is above them
	places  map[string]string  // of centers; nil: asked one by one, which is exact
	above   map[bool]map[string]map[string]*Tag
}

// survey loads all objects of the kinds with all values of these and of what
// is above them, in that order: an object that is not found was deleted after
// its values were read, or before.
func (s *Service) survey(ctx context.Context, kinds []Kind) (*world, []*object, error) {
	w := &world{s: s, objects: map[string]*object{}}
	var err error
	if w.places, err = s.centerPlaces(ctx); err != nil {
		return nil, nil, err
	}
	load := slices.Clone(kinds)
	up := []Kind{Platform}
	if slices.Contains(kinds, Node) || slices.Contains(kinds, Resource) || slices.Contains(kinds, Center) {
		up = append(up, Center)
		if s.res != nil {
			up = append(up, Resource)
		}
	}
	if slices.Contains(kinds, Resource) {
		up = append(up, Node)
	}
	mask := maskOf(kinds) | maskOf(up)
	var marks []string
	for _, k := range kindsOf(mask) {
		marks = append(marks, strconv.Itoa(int(k)))
	}
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		if w.defs, err = readDefinitions(ctx, tx, ""); err != nil {
			return err
		}
		w.values, err = readValues(ctx, tx, `WHERE kind IN (`+strings.Join(marks, ", ")+`)`)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	var out []*object
	for _, k := range kindsOf(maskOf(load)) {
		rows, err := s.objects(ctx, k)
		if err != nil {
			return nil, nil, err
		}
		for _, o := range rows {
			w.objects[o.ref] = o
		}
		out = append(out, rows...)
	}
	// What is above, where it is not loaded: only its parents and values count.
	for _, o := range out {
		if err := w.climb(ctx, o.parent); err != nil {
			return nil, nil, err
		}
	}
	slices.SortFunc(out, func(a, b *object) int { return strings.Compare(a.ref, b.ref) })
	return w, out, nil
}

// climb makes what is at and above ref known.
func (w *world) climb(ctx context.Context, ref string) error {
	for range maxDepth {
		if ref == "" || w.objects[ref] != nil {
			return nil
		}
		o := &object{ref: ref, parent: PlatformObject}
		kind, id, _, ok := split(ref)
		switch {
		case ref == PlatformObject:
			o = platformObject()
		case !ok:
		case kind == Center:
			places, err := w.places, error(nil)
			if places == nil {
				var at string
				at, err = w.s.centerPlace(ctx, id)
				places = map[string]string{id: at}
			}
			if err != nil {
				return err
			}
			o.parent = placed(places, id)
		case kind == Node:
			o.parent = "center:" + id
		case kind == Resource && w.s.res != nil:
			// Values are inherited from above whoever may see what is there.
			switch r, err := w.s.res.Resource(everything(ctx), id); {
			case err == nil:
				o = resourceObject(&r)
			case fault.KindOf(err) != fault.NotFound:
				return err
			}
		}
		w.objects[ref] = o
		ref = o.parent
	}
	return nil
}

// around is survey for a few objects, which are the caller's.
func (s *Service) around(ctx context.Context, objects ...*object) (*world, error) {
	w := &world{s: s, objects: map[string]*object{}}
	for _, o := range objects {
		w.objects[o.ref] = o
	}
	for _, o := range objects {
		if err := w.climb(ctx, o.parent); err != nil {
			return nil, err
		}
	}
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		if w.defs, err = readDefinitions(ctx, tx, ""); err != nil {
			return err
		}
		w.values, err = readValuesOf(ctx, tx, slices.Sorted(maps.Keys(w.objects)))
		return err
	})
	return w, err
}

// tags returns what an object has: its own values and those inherited, blocked
// ones left out; of people only, if wanted. The map is shared.
func (w *world) tags(ref string, people bool) map[string]*Tag {
	all, o := w.tagsTo(ref, people, maxDepth), w.objects[ref]
	foreign := func(key string) bool { return o != nil && o.kind != 0 && !slices.Contains(w.defs[key].Kinds, o.kind) }
	for key := range all {
		if foreign(key) {
			all = maps.Clone(all)
			maps.DeleteFunc(all, func(key string, _ *Tag) bool { return foreign(key) })
			break
		}
	}
	return all
}

// tagsTo is tags with what only passes through ref to kinds that may carry it.

func (w *world) tagsTo(ref string, people bool, depth int) map[string]*Tag {
	if w.above == nil {
		w.above = map[bool]map[string]map[string]*Tag{false: {}, true: {}}
	}
	if have, ok := w.above[people][ref]; ok {
		return have
	}
	out := map[string]*Tag{}
	o := w.objects[ref]
	if o != nil && o.parent != "" && depth > 0 {
		for key, t := range w.tagsTo(o.parent, people, depth-1) {
			if w.defs[key].Inherited {
				out[key] = t
			}
		}
	}
	for _, v := range w.values[ref] {
		switch {
		case w.defs[v.key] == nil, people && v.source != Person:
		case v.Blocked:
			delete(out, v.key)
		default:
			out[v.key] = v.tag()
		}
	}
	w.above[people][ref] = out
	return out
}

func (v *stored) tag() *Tag {
	return &Tag{Key: v.key, Value: v.Value, Blocked: v.Blocked, From: v.object, Source: v.source, Origin: v.origin, BatchID: v.batchID, Reason: v.reason,
		CreatedAt: db.Time(v.created), UpdatedAt: db.Time(v.updated)}
}

// facts are what an expression reads of o.
func (w *world) facts(o *object, people bool) expr.Facts {
	seen := map[string]string{}
	for key, t := range w.tags(o.ref, people) {
		if w.defs[key].visible() {
			seen[key] = t.Value
		}
	}
	return o.facts.Merge(expr.Facts{"tags": seen})
}

// show returns the object with its tags as people see them.
func (w *world) show(o *object) Tagged {
	out := Tagged{Object: o.ref, Kind: o.kind, Name: o.name}
	at := map[string]int{}
	for ref, n := o.ref, 0; ref != "" && n < maxDepth; n++ {
		if n > 0 {
			out.Parents = append(out.Parents, ref)
		}
		for _, v := range w.values[ref] {
			d := w.defs[v.key]
			if d == nil || n > 0 && (!d.Inherited || !slices.Contains(d.Kinds, o.kind)) {
				continue
			}
			if i, ok := at[v.key]; !ok {
				at[v.key] = len(out.Tags)
				out.Tags = append(out.Tags, *v.tag())
			} else if !v.Blocked {
				out.Tags[i].Hides = append(out.Tags[i].Hides, Hidden{ref, v.Value})
			}
		}
		next := w.objects[ref]
		if next == nil {
			break
		}
		ref = next.parent
	}
	// A block further up has nothing to say to people here, but what it hides
	// must not shine through.
	out.Tags = slices.DeleteFunc(out.Tags, func(t Tag) bool { return t.Blocked && t.From != o.ref })
	slices.SortFunc(out.Tags, func(a, b Tag) int { return strings.Compare(a.Key, b.Key) })
	return out
}

func sorted[V any](m map[string]V) []string {
	out := slices.Sorted(maps.Keys(m))
	if out == nil {
		out = []string{}
	}
	return out
}

func itoa(n int) string { return strconv.Itoa(n) }
