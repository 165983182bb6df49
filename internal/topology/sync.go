package topology

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/registry"
)

const (
	// lookEvery is how often centers are looked at: their state follows from
	// time, nothing tells of it.
	lookEvery = 3 * time.Second
	// sweepEvery is how often all is compared.
	sweepEvery = time.Minute
	// purgeEvery is how often history is forgotten.
	purgeEvery = 10 * time.Minute
	// maxEdits is how much one transaction writes: others wait for it.
	maxEdits = 2000
	// maxRounds of them make one sync: half a million vertices.
	maxRounds = 250
	// fewNodes is up to how many nodes of a center are read one by one.
	fewNodes = 50
)

// watch is what the watch knows beside the image.
type watch struct {
	nodes map[string]map[string]time.Time // when they changed, as last recorded
	tree  map[string]time.Time            // the same of registered resources
	at    map[string]string               // what centers are placed below
	paths map[[2]string]bool              // measured; nil: not known

	mu sync.Mutex // guards the fields below

	told map[string][]string // nodes that events told of, by center; nil: which is not known
	inv  bool                // the inventory changed
}

// Run watches registry and inventory and records what changes, until ctx ends.
// In a cluster it belongs under a lease (run.Elector): two would do the same work twice.
func (s *Service) Run(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	ring := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	s.watch.nodes, s.watch.tree, s.watch.paths, s.watch.told = nil, nil, nil, map[string][]string{}
	stopNodes, err := s.bus.Listen(registry.NodesChangedSubject, func(_ string, payload []byte) {
		var e registry.NodesChanged
		if err := json.Unmarshal(payload, &e); err != nil {
			s.log.Warn("event not read", "error", err)
			return
		}
		s.watch.tell(e)
		ring()
	})
	if err != nil {
		return err
	}
	defer stopNodes()
	stopTree, err := s.bus.Listen(inventory.ChangedSubject, func(string, []byte) {
		s.watch.mu.Lock()
		s.watch.inv = true
		s.watch.mu.Unlock()
		ring()
	})
	if err != nil {
		return err
	}
	defer stopTree()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var swept, purged time.Time
	for {
		core.Round(ctx, lookEvery)
		now := s.db.Now()
		sweep := now.Sub(swept) >= sweepEvery || now.Before(swept)
		_, err := s.Sync(ctx, sweep)
		if err == nil && sweep {
			swept = now
		}
		if err == nil && (now.Sub(purged) >= purgeEvery || now.Before(purged)) {
			if err = s.Purge(ctx); err == nil {
				purged = now
			}
		}
		if err != nil && ctx.Err() == nil {
			core.RoundFailed(ctx, err)
			s.log.Warn("topology not brought up to date, will try again", "error", err)
			swept = time.Time{} // what events told may be lost
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-tick.C:
		}
	}
}

func (w *watch) tell(e registry.NodesChanged) {
	w.mu.Lock()
	defer w.mu.Unlock()
	have, known := w.told[e.CenterID]
	switch {
	case len(e.Names) == 0 || known && (have == nil || len(have) > fewNodes):
		w.told[e.CenterID] = nil
	default:
		w.told[e.CenterID] = append(have, e.Names...)
	}
}

// Purge forgets what ended longer ago than history is kept.
func (s *Service) Purge(ctx context.Context) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		n, err := forget(ctx, tx, tx.Now.Add(-s.cfg.History))
		if err == nil && n > 0 {
			tx.AfterCommit(func() { s.log.Info("history forgotten", "versions", n) })
		}
		return err
	})
}

// Sync records what changed: centers, and what events told of or, with sweep,
// everything. It returns how many vertices and links changed. One call at a
// time; Run makes them.
func (s *Service) Sync(ctx context.Context, sweep bool) (changed int, err error) {
	ctx = everything(ctx)
	w := &s.watch
	w.mu.Lock()
	told, inv := w.told, w.inv
	w.told, w.inv = map[string][]string{}, false
	w.mu.Unlock()
	sweep = sweep || w.nodes == nil
	want := &wanted{s: s, records: map[string]*Record{}}
	if err := want.tree(ctx, sweep || inv); err != nil {
		return 0, err
	}
	if sweep {
		err = want.sweepNodes(ctx)
	} else {
		err = want.toldNodes(ctx, told)
	}
	if err != nil {
		return 0, err
	}
	return want.write(ctx)
}

// wanted is what should be valid of the items that were looked at: nil for
// those that should not be.
type wanted struct {
	s       *Service
	records map[string]*Record
	all     []func(id string, it *Item) bool // what was looked at as a whole: what is not wanted of it goes

	nodes         map[string]map[string]time.Time // marks to keep once it is written
	resourceMarks map[string]time.Time
}

func (w *wanted) put(r *Record) { w.records[r.ID] = r }

// tree wants centers with their regions and paths and, if asked to, registered
// resources and their links.
func (w *wanted) tree(ctx context.Context, resources bool) error {
	s := w.s
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return err
	}
	if resources = resources || s.watch.tree == nil; resources {
		changed, places, err := s.inv.Marks(ctx)
		if err != nil {
			return err
		}
		if err := w.resources(ctx, changed); err != nil {
			return err
		}
		s.watch.at = places
	}
	regions := map[string]bool{}
	for _, k := range snap.Centers {
		r := centerRecord(k, s.watch.at[k.ID])
		if strings.HasPrefix(r.Parent, regionPrefix) {
			regions[k.Region] = true
		}
		w.put(r)
		w.put(pathRecord(k.ID, platformPeer, NetworkID))
	}
	for name := range regions {
		w.put(&Record{ID: regionID(name), Parent: NetworkID, Name: name, Kind: "region", Level: LevelRegion, Region: name})
	}
	if resources || s.watch.paths == nil {
		if paths, err := s.measuredPaths(ctx); err == nil {
			s.watch.paths = paths
		} else if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	for ends := range s.watch.paths {
		to := strings.TrimPrefix(ends[1], centerPrefix)
		if w.records[centerID(ends[0])] != nil && w.records[centerID(to)] != nil && to != ends[0] {
			w.put(pathRecord(ends[0], to, centerID(to)))
		}
	}
	w.all = append(w.all, func(id string, it *Item) bool {
		switch {
		case it.isLink():
			return it.Link.Source == Measured && s.watch.paths != nil
		case it.Level == LevelNode && strings.HasPrefix(id, nodePrefix):
			return w.records[centerID(it.CenterID)] == nil // they go with their center
		}
		return it.Level == LevelRegion || it.Level == LevelCenter
	})
	return nil
}

// resources wants the registered resources that changed since they were
// recorded, and those that went gone.
func (w *wanted) resources(ctx context.Context, changed map[string]time.Time) error {
	s := w.s
	var due []string
	for id, t := range changed {
		if o, ok := s.watch.tree[id]; !ok || !o.Equal(t) {
			due = append(due, id)
		}
	}
	slices.Sort(due)
	fresh := map[string]bool{}
	for part := range slices.Chunk(due, 1000) {
		rows, err := s.inv.Read(ctx, part)
		if err != nil {
			return err
		}
		for _, id := range part {
			fresh[id] = true
			r, found := rows[id]
			if !found {
				delete(changed, id) // deleted meanwhile
				continue
			}
			for _, rec := range resourceRecords(&r) {
				w.put(rec)
			}
		}
	}
	w.resourceMarks = changed
	w.all = append(w.all, func(id string, it *Item) bool {
		if it.isLink() {
			if it.Link.Source != FromResource {
				return false
			}
			id = it.Link.ResourceID
		} else if it.Level == LevelRegion || strings.Contains(id, ":") {
			return false
		}
		_, there := changed[id]
		return !there || fresh[id]
	})
	return nil
}

// sweepNodes wants the nodes whose marks differ from those recorded.
func (w *wanted) sweepNodes(ctx context.Context) error {
	s := w.s
	marks, err := s.reg.NodeMarks(ctx)
	if err != nil {
		return err
	}
	for center, nodes := range marks {
		var due []string
		for name, t := range nodes {
			if o, ok := s.watch.nodes[center][name]; !ok || !o.Equal(t) {
				due = append(due, name)
			}
		}
		if err := w.readNodes(ctx, center, due); err != nil {
			return err
		}
	}
	w.nodes = marks
	w.all = append(w.all, func(id string, it *Item) bool {
		if it.Level != LevelNode || !strings.HasPrefix(id, nodePrefix) {
			return false
		}
		_, there := marks[it.CenterID][it.Name]
		return !there
	})
	return nil
}

// toldNodes wants the nodes that events told of.
func (w *wanted) toldNodes(ctx context.Context, told map[string][]string) error {
	for center, names := range told {
		if names == nil {
			return w.sweepNodes(ctx)
		}
		slices.Sort(names)
		if err := w.readNodes(ctx, center, slices.Compact(names)); err != nil {
			return err
		}
	}
	return nil
}

// readNodes wants nodes of a center to be as they are, also if they are gone.
func (w *wanted) readNodes(ctx context.Context, center string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	for _, name := range names {
		w.records[nodeID(center, name)] = nil
	}
	if len(names) <= fewNodes {
		for _, name := range names {
			n, err := w.s.reg.GetNode(ctx, center, name)
			if fault.KindOf(err) == fault.NotFound {
				continue
			}
			if err != nil {
				return err
			}
			w.put(nodeRecord(&n))
		}
		return nil
	}
	for token := ""; ; {
		rows, next, err := w.s.reg.ListNodes(ctx, registry.NodeFilter{CenterID: center}, 1000, token)
		if err != nil {
			return err
		}
		for i := range rows {
			if _, due := w.records[nodeID(center, rows[i].Name)]; due {
				w.put(nodeRecord(&rows[i]))
			}
		}
		if token = next; token == "" {
			return nil
		}
	}
}

// write records what differs from the image, some at a time.
func (w *wanted) write(ctx context.Context) (changed int, err error) {
	s := w.s
	for range maxRounds {
		edits, h, err := w.compare(ctx)
		if err != nil {
			return changed, err
		}
		if len(edits) == 0 {
			if w.nodes != nil {
				s.watch.nodes = w.nodes
			}
			for center := range s.watch.nodes {
				if w.records[centerID(center)] == nil {
					delete(s.watch.nodes, center) // read again should it come back
				}
			}
			if w.resourceMarks != nil {
				s.watch.tree = w.resourceMarks
			}
			return changed, nil
		}
		part := edits[:min(len(edits), s.maxEdits)]
		if s.onEdit != nil {
			s.onEdit()
		}
		err = s.db.Tx(ctx, func(tx *db.Tx) error { return record(ctx, tx, h, part) })
		switch {
		case err == nil:
			changed += len(part)
		case !errors.Is(err, errStale):
			return changed, err
		}
	}
	return changed, fault.New(fault.Conflict, "others change the topology all the time")
}

// compare returns what has to be edited in the image to be as wanted, parents
// first.
func (w *wanted) compare(ctx context.Context) ([]edit, head, error) {
	s := w.s
	if err := s.refresh(ctx); err != nil {
		return nil, head{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var edits []edit
	for id, r := range w.records {
		have := s.now.items[id]
		e := edit{id: id, prev: have, next: r}
		if r != nil {
			text, err := r.body()
			if err != nil {
				return nil, head{}, err
			}
			e.text = text
		}
		if have == nil && r == nil || have != nil && r != nil && have.text == e.text && have.TenantID == r.TenantID && have.CenterID == r.CenterID {
			continue
		}
		edits = append(edits, e)
	}
	if len(w.all) > 0 {
		for id, it := range s.now.items {
			if _, looked := w.records[id]; looked {
				continue
			}
			if slices.ContainsFunc(w.all, func(f func(string, *Item) bool) bool { return f(id, it) }) {
				edits = append(edits, edit{id: id, prev: it})
			}
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return strings.Compare(a.id, b.id) })
	return edits, s.now.head, nil
}

func centerRecord(k *registry.Center, place string) *Record {
	r := &Record{ID: centerID(k.ID), CenterID: k.ID, Parent: NetworkID, Name: k.Name, Kind: "center", Level: LevelCenter, Type: Compute,
		Region: k.Region, Capacity: amounts(k.Total), Adapter: k.Adapter, Position: k.Position, Labels: k.Labels}
	switch {
	case place != "":
		r.Parent = place
	case k.Region != "":
		r.Parent = regionID(k.Region)
	}
	switch {
	case k.Drained:
		r.State, r.Reason = Isolated, "taken out of use by an operator"
	case k.Status == registry.Available:
		r.State = Ready
	case k.Status == registry.Unavailable:
		r.State, r.Reason = NotReady, "it reports that it is down"
	case k.LastSeen.IsZero():
		r.State, r.Reason = NotHeard, "never heard of"
	default:
		r.State, r.Reason = NotHeard, "not heard of since "+k.LastSeen.UTC().Format(time.RFC3339)
	}
	return r
}

// amounts leaves out what there is none of.
func amounts(q core.Quantities) core.Quantities {
	out := core.Quantities{}
	for name, n := range q {
		if n != 0 {
			out[name] = n
		}
	}
	return out
}

var nodeStates = map[registry.NodeState]State{registry.NodeReady: Ready, registry.NodeNotReady: NotReady, registry.NodeDrained: Isolated}

func nodeRecord(n *registry.Node) *Record {
	r := &Record{ID: nodeID(n.CenterID, n.Name), CenterID: n.CenterID, Parent: centerID(n.CenterID), Name: n.Name, Kind: "node", Level: LevelNode, Type: Compute,
		State: nodeStates[n.State], Reason: n.Reason, Capacity: amounts(n.Capacity), Architecture: n.Architecture, OS: n.OS, Labels: n.Labels}
	for _, a := range n.Accelerators {
		r.Equipment = append(r.Equipment, Cards{a.Resource, a.Vendor, a.Model, a.Count, a.Memory})
	}
	return r
}

// pathRecord is the path that a center measures to a peer.
func pathRecord(center, peer, to string) *Record {
	return &Record{ID: linkPrefix + pathPrefix + center + ":" + peer, CenterID: center, Name: center + " – " + peer,
		Link: &Link{From: centerID(center), To: to, Kind: Path, Source: Measured}}
}

var resourceStates = map[inventory.State]State{inventory.Registered: Registered, inventory.Available: Ready, inventory.Unavailable: NotReady,
	inventory.Maintenance: Isolated, inventory.Retired: Retired}

var resourceTypes = map[string]struct {
	level Level
	kind  NodeType
}{
	"platform": {LevelPlatform, Compute}, "cloud": {LevelPlatform, Compute}, "node": {LevelNode, Compute}, "compute": {LevelResource, Compute},
	"network": {LevelResource, Network}, "storage": {LevelResource, Storage}, "security": {LevelResource, Security},
}

var networkKinds = map[string]LinkKind{"private_network": PrivateNetwork, "leased_line": LeasedLine, "dedicated_network": DedicatedNetwork,
	"internet": Internet, "cluster_fabric": ClusterFabric}

// resourceRecords are a registered resource and, of a network, its links: one
// from end to end if it has two, otherwise one from it to each.
func resourceRecords(r *inventory.Resource) []*Record {
	t := resourceTypes[r.Type]
	rec := &Record{ID: r.ID, CenterID: r.CenterID, TenantID: r.TenantID, Parent: r.ParentID, Name: r.Name, Kind: r.Type, Level: t.level, Type: t.kind,
		State: resourceStates[r.State], Region: r.Region, Provider: r.Provider, Labels: r.Labels}
	if rec.Parent == "" {
		rec.Parent = NetworkID
	}
	out := []*Record{rec}
	if r.Type != "network" || r.State == inventory.Retired {
		return out
	}
	var ends []string
	list, _ := r.Attributes["endpoints"].([]any) // the schema says so
	for _, e := range list {
		if id, ok := e.(string); ok && !slices.Contains(ends, id) {
			ends = append(ends, id)
		}
	}
	kind := OtherKind
	if name, ok := r.Attributes["network_type"].(string); ok && networkKinds[name] != 0 {
		kind = networkKinds[name]
	}
	whole := func(name string) int64 {
		x, _ := r.Attributes[name].(float64)
		return int64(x)
	}
	link := func(id, from, to string) *Record {
		return &Record{ID: linkPrefix + id, CenterID: r.CenterID, TenantID: r.TenantID, Name: r.Name, Provider: r.Provider, State: rec.State,
			Link: &Link{From: from, To: to, Kind: kind, Source: FromResource, Bandwidth: min(whole("bandwidth_mbps"), 1<<42) * 1_000_000, Latency: whole("latency_us"), ResourceID: r.ID}}
	}
	if len(ends) == 2 {
		return append(out, link("resource:"+r.ID, ends[0], ends[1]))
	}
	for _, end := range ends {
		out = append(out, link(fmt.Sprintf("resource:%s:%s", r.ID, end), r.ID, end))
	}
	return out
}
