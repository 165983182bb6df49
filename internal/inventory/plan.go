package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
)

// world is what a plan must know of registry. It is read before the
// transaction: reading it inside would take a second connection for each,
// and with many at once there would be none left.
type world struct {
	catalog *registry.Catalog
	nodes   map[string]bool // IDs of nodes that are there
}

func (s *Service) survey(ctx context.Context, batch []Resource) (world, error) {
	w := world{nodes: map[string]bool{}}
	var err error
	if w.catalog, err = s.reg.Catalog(ctx); err != nil {
		return world{}, err
	}
	for i := range batch {
		id := batch[i].ParentID
		centerID, node, ok := viewed(id)
		if !ok || node == "" {
			continue
		}
		if _, asked := w.nodes[id]; asked {
			continue
		}
		_, err := s.reg.GetNode(ctx, centerID, node)
		if k := fault.KindOf(err); err != nil && k != fault.NotFound && k != fault.Invalid {
			return world{}, err
		}
		w.nodes[id] = err == nil
	}
	return w, nil
}

// plan decides what a batch comes to before anything is written.
type plan struct {
	s       *Service
	tx      *db.Tx
	world   world
	see     visible
	batch   []Resource
	at      map[string]int     // place in the batch by ID
	have    map[string]*record // stored, by ID; those that were looked up
	looked  map[string]bool    // IDs that were looked up
	next    []*record          // as they will be, in the order of the batch
	state   []int              // of the resolution of next
	results []Result
}

// States of resolution.
const (
	untouched = iota
	resolving
	resolved
)

func (s *Service) plan(ctx context.Context, tx *db.Tx, w world, batch []Resource) (*plan, error) {
	if k := core.CallerFrom(ctx); !k.AllTenants && k.TenantID == "" {
		return nil, fault.New(fault.Denied, "only a user may register resources")
	}
	p := &plan{
		s: s, tx: tx, world: w, see: visibleTo(ctx), batch: batch, at: map[string]int{}, looked: map[string]bool{},
		next: make([]*record, len(batch)), state: make([]int, len(batch)), results: make([]Result, len(batch)),
	}
	ids := make([]string, 0, 3*len(batch))
	want := func(id string) {
		if _, _, view := viewed(id); id != "" && !view && !p.looked[id] {
			p.looked[id] = true
			ids = append(ids, id)
		}
	}
	for i := range batch {
		r := &batch[i]
		p.results[i] = Result{ID: r.ID}
		var c core.Check
		r.check(&c, "")
		if first, twice := p.at[r.ID]; twice {
			c.Add("resource_id", "is the same as of resources[%d]", first)
		} else {
			p.at[r.ID] = i
		}
		for _, f := range fault.FieldsOf(c.Err()) {
			p.refuse(i, f.Path, "%s", f.Problem)
		}
		if len(p.results[i].Violations) == 0 {
			want(r.ID)
			want(r.ParentID)
			want(r.PlatformID)
		}
	}
	var err error
	if p.have, err = readByID(ctx, tx, ids); err != nil {
		return nil, err
	}
	for i := range batch {
		if err := p.resolve(ctx, i); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *plan) refuse(i int, field, format string, args ...any) {
	p.results[i].Outcome = Refused
	p.results[i].Violations = append(p.results[i].Violations, Violation{field, fmt.Sprintf(format, args...)})
}

func (p *plan) refused() bool {
	return slices.ContainsFunc(p.results, func(r Result) bool { return r.Outcome == Refused })
}

// stored returns the resource as it is stored, nil if it is not.
func (p *plan) stored(ctx context.Context, id string) (*record, error) {
	if p.looked[id] {
		return p.have[id], nil
	}
	p.looked[id] = true
	r, err := getRecord(ctx, p.tx, id)
	if err == nil && r != nil {
		p.have[id] = r
	}
	return r, err
}

// above is what a resource takes from its parent.
type above struct {
	found, refused   bool // refused: it is in the batch and cannot be
	kind             string
	platform, center string
	tenant           string
	parentID         string // of the parent
	passes           string
}

// lookAt returns the parent as it will be (now: as it is stored).
func (p *plan) lookAt(ctx context.Context, id string, now bool) (above, error) {
	if id == "" {
		return above{found: true}, nil
	}
	if centerID, node, view := viewed(id); view {
		at, err := getPlace(ctx, p.tx, centerID)
		if err != nil {
			return above{}, err
		}
		_, joined := p.world.catalog.Centers[centerID]
		a := above{found: joined, kind: typeCenter, center: centerID, parentID: at.parentID, passes: at.platformID}
		if node != "" {
			a.found, a.kind, a.parentID = joined && p.world.nodes[id], typeNode, CenterID(centerID)
		}
		return a, nil
	}
	var r *record
	if i, ok := p.at[id]; ok && !now {
		if err := p.resolve(ctx, i); err != nil {
			return above{}, err
		}
		if r = p.next[i]; r == nil {
			return above{found: true, refused: true}, nil
		}
	} else {
		var err error
		if r, err = p.stored(ctx, id); err != nil || r == nil {
			return above{}, err
		}
	}
	a := above{found: p.see.sees(r.TenantID), kind: r.Type, platform: r.PlatformID, center: r.CenterID, tenant: r.TenantID, parentID: r.ParentID, passes: r.PlatformID}
	if r.Type == typePlatform {
		a.passes = r.ID
	}
	return a, nil
}

// resolve decides what becomes of one resource of the batch, after its parent
// if that is in the batch too.
func (p *plan) resolve(ctx context.Context, i int) error {
	if p.state[i] != untouched || len(p.results[i].Violations) > 0 {
		if p.state[i] == resolving {
			p.refuse(i, "parent_id", "%s is below itself", p.batch[i].ID)
		}
		return nil
	}
	p.state[i] = resolving
	defer func() { p.state[i] = resolved }()
	r := p.batch[i]
	old, err := p.stored(ctx, r.ID)
	if err != nil {
		return err
	}
	p.checkOld(i, &r, old)
	if err := p.place(ctx, i, &r, old); err != nil {
		return err
	}
	if len(p.results[i].Violations) > 0 {
		return nil
	}
	if r.Name == "" {
		r.Name = r.ID
	}
	if r.Labels == nil {
		r.Labels = map[string]string{}
	}
	next := &record{Resource: r}
	if next.attributes, err = canonical(r.Attributes); err != nil {
		return fmt.Errorf("attributes of %s: %w", r.ID, err)
	}
	b, err := json.Marshal(r.Labels)
	if err != nil {
		return fmt.Errorf("labels of %s: %w", r.ID, err)
	}
	next.labels = string(b)
	next.Version, next.CreatedAt, next.UpdatedAt = 1, p.tx.Now, p.tx.Now
	outcome := Created
	if old != nil {
		next.Version, next.CreatedAt = old.Version+1, old.CreatedAt
		if outcome = Updated; next.same(old) {
			next, outcome = old, Unchanged
		}
	}
	p.next[i] = next
	p.results[i].Outcome, p.results[i].Version = outcome, next.Version
	return nil
}

// checkOld compares with what is stored and takes from it what is left out.
func (p *plan) checkOld(i int, r *Resource, old *record) {
	if !p.see.all && r.TenantID == "" && old == nil {
		r.TenantID = p.see.tenant // whoever does not see all registers for themselves
	}
	if !p.see.all && r.TenantID != p.see.tenant {
		p.refuse(i, "tenant_id", "must be your own, %s, got %q", p.see.tenant, r.TenantID)
	}
	if old == nil {
		if r.State == AnyState {
			r.State = Registered
		}
		if r.Version > 0 {
			p.refuse(i, "version", "is %d, but there is no such resource", r.Version)
		}
		return
	}
	if !p.see.all && old.TenantID != p.see.tenant {
		p.refuse(i, "resource_id", "is taken by a resource that is not yours")
		return
	}
	if r.State == AnyState {
		r.State = old.State
	}
	if old.State == Retired && r.State != Retired && r.State != Registered {
		p.refuse(i, "state", "is retired; only registered may follow")
	}
	if r.Type != old.Type {
		p.refuse(i, "type", "cannot change from %s to %s", old.Type, r.Type)
	}
	if r.Version != 0 && r.Version != old.Version {
		p.refuse(i, "version", "must be %d, the stored one, got %d: it was changed meanwhile", old.Version, r.Version)
	}
}

// place checks the parent and the owners, and sets owners that are left out.
func (p *plan) place(ctx context.Context, i int, r *Resource, old *record) error {
	parent, err := p.lookAt(ctx, r.ParentID, false)
	if err != nil {
		return err
	}
	moved := old == nil || old.ParentID != r.ParentID
	switch {
	case parent.refused:
		if len(p.results[i].Violations) == 0 { // a resource below itself was told so already
			p.refuse(i, "parent_id", "%s is in the batch and cannot be registered", r.ParentID)
		}
		return nil
	case !parent.found && moved:
		p.refuse(i, "parent_id", "there is no resource %s", r.ParentID)
		_, _, view := viewed(r.ParentID)
		p.results[i].ParentMissing = !view && len(p.results[i].Violations) == 1
		return nil
	case r.ParentID != "" && moved && !slices.Contains(typeOf(r.Type).Parents, parent.kind):
		p.refuse(i, "parent_id", "must be a %s for type %s, got %s of type %s", strings.Join(typeOf(r.Type).Parents, ", "), r.Type, r.ParentID, parent.kind)
		return nil
	case parent.tenant != "" && r.TenantID == "":
		r.TenantID = parent.tenant
	case parent.tenant != "" && r.TenantID != parent.tenant:
		p.refuse(i, "tenant_id", "must be %s as of its parent, got %q", parent.tenant, r.TenantID)
	}
	if moved && r.ParentID != "" {
		if err := p.climb(ctx, i, r); err != nil {
			return err
		}
	}
	var before above
	if old != nil && moved {
		if before, err = p.lookAt(ctx, old.ParentID, true); err != nil {
			return err
		}
		// Owners as they followed from the old place.
		if r.PlatformID == old.PlatformID && old.PlatformID == before.passes {
			r.PlatformID = ""
		}
		if r.CenterID == old.CenterID && old.CenterID == before.center {
			r.CenterID = ""
		}
	}
	if r.PlatformID == "" {
		r.PlatformID = parent.passes
	} else if old == nil || r.PlatformID != old.PlatformID {
		owner, err := p.lookAt(ctx, r.PlatformID, false)
		if err != nil {
			return err
		}
		if !owner.found || owner.kind != typePlatform {
			p.refuse(i, "platform_id", "there is no platform %s", r.PlatformID)
			p.results[i].ParentMissing = !owner.found && len(p.results[i].Violations) == 1
		}
	}
	if r.CenterID == "" {
		r.CenterID = parent.center
	} else if _, joined := p.world.catalog.Centers[r.CenterID]; !joined && (old == nil || r.CenterID != old.CenterID) {
		p.refuse(i, "ai_center_id", "there is no center %s", r.CenterID)
	}
	return nil
}

// climb refuses what would be below itself or too deep.
func (p *plan) climb(ctx context.Context, i int, r *Resource) error {
	depth := 1
	for id := r.ParentID; id != ""; depth++ {
		if id == r.ID {
			p.refuse(i, "parent_id", "%s is below %s", r.ParentID, r.ID)
			return nil
		}
		if depth >= maxDepth {
			p.refuse(i, "parent_id", "the tree must be at most %d levels deep", maxDepth)
			return nil
		}
		a, err := p.lookAt(ctx, id, false)
		if err != nil {
			return err
		}
		id = a.parentID
	}
	return nil
}

// write makes the plan true. Nothing of it was refused.
func (p *plan) write(ctx context.Context) error {
	var fresh, changed []*record
	for i, r := range p.next {
		switch p.results[i].Outcome {
		case Created:
			fresh = append(fresh, r)
		case Updated:
			changed = append(changed, r)
		}
	}
	if len(fresh)+len(changed) == 0 {
		return nil
	}
	if err := emitChanged(ctx, p.tx); err != nil {
		return err
	}
	// One order for all writers: no deadlocks.
	byID := func(a, b *record) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(fresh, byID)
	slices.SortFunc(changed, byID)
	if err := insertRecords(ctx, p.tx, fresh); err != nil {
		return err
	}
	for _, r := range changed {
		old := p.have[r.ID]
		if err := updateRecord(ctx, p.tx, r, old); err != nil {
			return err
		}
		was, is := owners{old.PlatformID, old.CenterID}, owners{r.PlatformID, r.CenterID}
		if r.Type == typePlatform {
			was.platform, is.platform = r.ID, r.ID // what is below belongs to it
		}
		if err := p.inherit(ctx, []string{r.ID}, was, is); err != nil {
			return err
		}
	}
	return nil
}

// owners are what resources take from their parent.
type owners struct{ platform, center string }

// inherit gives what is below the parents the new owners where it had the old
// ones.
func (p *plan) inherit(ctx context.Context, parents []string, was, is owners) error {
	if was == is {
		return nil
	}
	for total := 0; len(parents) > 0; {
		ids, err := below(ctx, p.tx, parents)
		if err != nil {
			return err
		}
		if total += len(ids); total > maxMoved {
			return fault.New(fault.Conflict, "more than %d resources are below it; move smaller parts", maxMoved)
		}
		slices.Sort(ids)
		parents = parents[:0:0]
		for _, id := range ids {
			changed, err := p.reown(ctx, id, was, is)
			if err != nil {
				return err
			}
			if changed {
				parents = append(parents, id)
			}
		}
	}
	return nil
}

func (p *plan) reown(ctx context.Context, id string, was, is owners) (changed bool, err error) {
	if centerID, _, view := viewed(id); view {
		at, err := getPlace(ctx, p.tx, centerID)
		if err != nil || at.platformID != was.platform || was.platform == is.platform {
			return false, err
		}
		at.platformID = is.platform
		return true, p.placeCenter(ctx, centerID, at, owners{was.platform, centerID})
	}
	r, err := getRecord(ctx, p.tx, id)
	if err != nil || r == nil {
		return false, err
	}
	next := *r
	if r.PlatformID == was.platform {
		next.PlatformID = is.platform
	}
	if r.CenterID == was.center {
		next.CenterID = is.center
	}
	if next.same(r) {
		return false, nil
	}
	next.Version, next.UpdatedAt = r.Version+1, p.tx.Now
	return true, updateRecord(ctx, p.tx, &next, r)
}

// placeCenter stores the place of a center and gives what is below it, and
// below its nodes, the platform of that place.
func (p *plan) placeCenter(ctx context.Context, centerID string, at place, was owners) error {
	if err := setPlace(ctx, p.tx, centerID, at); err != nil {
		return err
	}
	if err := emitChanged(ctx, p.tx); err != nil {
		return err
	}
	is := owners{at.platformID, centerID}
	if was == is {
		return nil
	}
	ids, err := belowNodes(ctx, p.tx, centerID)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := p.reown(ctx, id, was, is); err != nil {
			return err
		}
	}
	if err := p.inherit(ctx, ids, was, is); err != nil {
		return err
	}
	return p.inherit(ctx, []string{CenterID(centerID)}, was, is)
}

func (s *Service) moveCenter(ctx context.Context, tx *db.Tx, w world, centerID, parentID string) error {
	p := &plan{s: s, tx: tx, world: w, see: visibleTo(ctx), at: map[string]int{}, have: map[string]*record{}, looked: map[string]bool{}, results: make([]Result, 1)}
	if !p.see.all {
		return fault.New(fault.Denied, "only who sees all tenants may move centers")
	}
	parent, err := p.lookAt(ctx, parentID, false)
	if err != nil {
		return err
	}
	var c core.Check
	switch {
	case !parent.found:
		c.Add("parent_id", "there is no resource %s", parentID)
	case parentID != "" && !slices.Contains(typeOf(typeCenter).Parents, parent.kind):
		c.Add("parent_id", "must be a %s for a center, got %s of type %s", strings.Join(typeOf(typeCenter).Parents, ", "), parentID, parent.kind)
	}
	if err := c.Err(); err != nil {
		return err
	}
	old, err := getPlace(ctx, tx, centerID)
	if err != nil {
		return err
	}
	return p.placeCenter(ctx, centerID, place{parentID, parent.passes}, owners{old.platformID, centerID})
}
