package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// NodeState says whether a node can be used.
type NodeState int

// The states of a node; AnyNode is none of them.
const (
	AnyNode      NodeState = 0
	NodeReady    NodeState = 1
	NodeNotReady NodeState = 2
	NodeDrained  NodeState = 3 // takes no new work
)

// Node is a machine of a center as its driver last reported it.
type Node struct {
	CenterID     string
	Name         string
	State        NodeState
	Reason       string // why it is not ready
	Capacity     core.Quantities
	Allocatable  core.Quantities
	Architecture string
	OS           string
	Accelerators []Accelerator
	Labels       map[string]string
	Host         string    // its kernel's boot_id; "": not known
	PoolNode     string    // the accelerator pool's node on it, where the driver says; "": Host tells
	Specs        []string  // whose runs it takes; none: all of the center's
	CreatedAt    time.Time // first reported
	UpdatedAt    time.Time // something about it last changed
}

// Accelerator is a number of equal accelerators.
type Accelerator struct {
	Vendor   string `json:"vendor,omitempty"`
	Model    string `json:"model,omitempty"` // "": not known
	Count    int64  `json:"count"`
	Memory   int64  `json:"memory,omitempty"` // bytes of each; 0: not known
	Resource string `json:"resource"`         // what they count as: gpu, npu, mlu, dcu
}

// NodeSummary is the nodes of a center in numbers.
type NodeSummary struct {
	Ready, NotReady, Drained int64
	Accelerators             []Accelerator // by resource, vendor and model; without memory
}

// Total is the number of nodes.
func (n *NodeSummary) Total() int64 { return n.Ready + n.NotReady + n.Drained }

// NodeFilter says which nodes are wanted; the zero value: all.
type NodeFilter struct {
	CenterID string
	State    NodeState
	Model    string   // carry an accelerator of this model
	Labels   []string // carry all of these: "name", or "name=value"
}

// Limits of what is reported of nodes. They are far above what real drivers
// send: a node over a limit refuses the whole report, so that a driver's
// mistake is seen and not stored.
const (
	maxNodes        = 100_000 // of a center
	maxNodeLabels   = 256
	maxNodeAmounts  = 128
	maxAccelerators = 64
	maxNodeSpecs    = 256
	maxReason       = 512 // bytes; the rest is cut
	maxLabelFilters = 8
)

func checkNodes(nodes []Node, gone []string) error {
	var c core.Check
	if len(nodes) > maxNodes || len(gone) > maxNodes {
		c.Add("nodes", "must be at most %d, got %d and %d gone", maxNodes, len(nodes), len(gone))
		return c.Err()
	}
	seen := make(map[string]bool, len(nodes))
	for i := range nodes {
		n, at := &nodes[i], "nodes["+strconv.Itoa(i)+"]."
		checkNodeName(&c, at+"name", n.Name)
		if seen[n.Name] {
			c.Add(at+"name", "names %s a second time", clip(n.Name))
		}
		seen[n.Name] = true
		n.check(&c, at)
	}
	for i, name := range gone {
		at := "gone[" + strconv.Itoa(i) + "]"
		if checkNodeName(&c, at, name); seen[name] {
			c.Add(at, "names %s, which is among the nodes", clip(name))
		}
	}
	return c.Err()
}

func checkNodeName(c *core.Check, path, name string) { c.Text(path, name, true, 253, 0) }

// check leaves alone what drivers copy from elsewhere and nobody computes
// with, as long as it can be stored.
func (n *Node) check(c *core.Check, at string) {
	if n.State < NodeReady || n.State > NodeDrained {
		c.Add(at+"state", "must be 1 (ready), 2 (not ready) or 3 (drained), got %d", n.State)
	}
	c.Text(at+"architecture", n.Architecture, false, 0, 64)
	c.Text(at+"operating_system", n.OS, false, 0, 256)
	c.Text(at+"host", n.Host, false, 64, 0)
	c.Text(at+"pool_node", n.PoolNode, false, 253, 0)
	if len(n.Specs) > maxNodeSpecs {
		c.Add(at+"spec_ids", "must be at most %d, got %d", maxNodeSpecs, len(n.Specs))
	}
	for i, id := range n.Specs[:min(len(n.Specs), maxNodeSpecs)] {
		c.Text(at+"spec_ids["+strconv.Itoa(i)+"]", id, true, 0, 65)
	}
	for _, x := range []struct {
		field string
		q     core.Quantities
	}{{"capacity", n.Capacity}, {"allocatable", n.Allocatable}} {
		if len(x.q) > maxNodeAmounts {
			c.Add(at+x.field, "must name at most %d resources, got %d", maxNodeAmounts, len(x.q))
			continue
		}
		for _, name := range sorted(x.q) {
			c.Text(at+x.field, name, true, 0, 254)
			c.Range(at+x.field+"."+clip(name), x.q[name], 0, maxHeld)
		}
	}
	if len(n.Accelerators) > maxAccelerators {
		c.Add(at+"accelerators", "must be at most %d, got %d", maxAccelerators, len(n.Accelerators))
	} else {
		for i, a := range n.Accelerators {
			in := at + "accelerators[" + strconv.Itoa(i) + "]."
			c.Text(in+"vendor", a.Vendor, false, 0, 64)
			c.Text(in+"model", a.Model, false, 0, 128)
			c.Range(in+"count", a.Count, 1, maxAmount)
			c.Range(in+"memory_bytes", a.Memory, 0, maxHeld)
			c.Text(in+"resource", a.Resource, true, 0, 64)
		}
	}
	if len(n.Labels) > maxNodeLabels {
		c.Add(at+"labels", "must be at most %d, got %d", maxNodeLabels, len(n.Labels))
		return
	}
	for _, name := range sorted(n.Labels) {
		c.Text(at+"labels", name, true, 0, 318) // the longest of Kubernetes
		c.Text(at+"labels."+clip(name), n.Labels[name], false, 0, 254)
	}
}

// fingerprints are the hash of everything reported, and of what is indexed.
func (n *Node) fingerprints() (content, indexed string) {
	hash := func(v ...any) string {
		sum := sha256.Sum256([]byte(toJSON(v)))
		return hex.EncodeToString(sum[:16])
	}
	indexed = hash(n.Labels, n.Accelerators)
	return hash(indexed, n.State, n.Reason, n.Capacity, n.Allocatable, n.Architecture, n.OS, n.Host, n.PoolNode, n.Specs), indexed
}

// plain cuts a reason to what is stored and shown on one line.
func plain(reason string) string {
	reason = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(reason, "\uFFFD"), func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason-3], "") + "…"
	}
	return reason
}

// syncNodes writes what differs from what is stored and nothing else: see
// [Service.SyncNodesTx].
func (s *Service) syncNodes(ctx context.Context, tx *db.Tx, centerID string, whole bool, nodes []Node, gone []string) error {
	var c core.Check
	c.ID("ai_center_id", centerID)
	if err := c.Err(); err != nil {
		return err
	}
	if err := checkNodes(nodes, gone); err != nil {
		return err
	}
	if found, err := hasCenter(ctx, tx, centerID); err != nil {
		return err
	} else if !found {
		return noCenter(centerID)
	}
	var names []string
	if !whole {
		for i := range nodes {
			names = append(names, nodes[i].Name)
		}
		names = append(names, gone...)
	}
	have, err := readFingerprints(ctx, tx, centerID, whole, names)
	if err != nil {
		return err
	}
	var fresh, changed, lost []Node
	for i := range nodes {
		n := &nodes[i]
		n.CenterID = centerID
		content, indexed := n.fingerprints()
		old, known := have[n.Name]
		switch {
		case !known:
			fresh = append(fresh, *n)
		case old.content != content:
			if changed = append(changed, *n); old.indexed != indexed {
				lost = append(lost, *n)
			}
		}
		delete(have, n.Name)
	}
	if !whole {
		keep := maps.Clone(have)
		for _, name := range gone {
			delete(keep, name)
		}
		for name := range keep {
			delete(have, name)
		}
	}
	var was []string
	others := len(fresh)+len(lost)+len(have) > 0 // not only states and figures
	if others {
		if was, err = modelsOf(ctx, tx, centerID); err != nil {
			return err
		}
	}
	if err := insertNodes(ctx, tx, fresh); err != nil {
		return err
	}
	for i := range changed {
		if err := updateNode(ctx, tx, &changed[i]); err != nil {
			return err
		}
	}
	if err := reindexNodes(ctx, tx, lost); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if err := deleteNode(ctx, tx, centerID, name); err != nil {
			return err
		}
	}
	if others {
		now, err := modelsOf(ctx, tx, centerID)
		if err != nil {
			return err
		}
		if !slices.Equal(was, now) { // the speeds of models are part of the catalog
			if err := s.changed(ctx, tx); err != nil {
				return err
			}
		}
	}
	if len(fresh)+len(changed)+len(have) > 0 {
		if err := emitNodes(ctx, tx, centerID, fresh, changed, slices.Sorted(maps.Keys(have))); err != nil {
			return err
		}
	}
	if len(fresh)+len(have) > 0 {
		s.log.Info("nodes changed", "ai_center_id", centerID, "new", len(fresh), "changed", len(changed), "gone", len(have))
	}
	return nil
}

// GetNode returns a node. It returns fault.Invalid for what is not a name and
// fault.NotFound.
func (s *Service) GetNode(ctx context.Context, centerID, name string) (Node, error) {
	var c core.Check
	c.ID("ai_center_id", centerID)
	checkNodeName(&c, "name", name)
	if err := c.Err(); err != nil {
		return Node{}, err
	}
	var rows []Node
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		rows, err = readNodes(ctx, tx, `WHERE n.ai_center_id = $1 AND n.name = $2`, centerID, name)
		return err
	})
	if err == nil && len(rows) == 0 {
		err = fault.New(fault.NotFound, "center %s has no node %s", centerID, name)
	}
	if err != nil {
		return Node{}, err
	}
	return rows[0], nil
}

// ListNodes returns a page of the nodes that pass the filter, by center and
// name, and the token of the next page, "" on the last. It returns
// fault.Invalid.
func (s *Service) ListNodes(ctx context.Context, f NodeFilter, size int32, token string) ([]Node, string, error) {
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 2)
	if err != nil {
		return nil, "", err
	}
	where, args, err := f.where()
	if err != nil {
		return nil, "", err
	}
	add := func(v any) string { args = append(args, v); return "$" + strconv.Itoa(len(args)) }
	if key != nil {
		if f.CenterID == "" {
			where = append(where, "(n.ai_center_id, n.name) > ("+add(key[0])+", "+add(key[1])+")")
		} else {
			where = append(where, "n.name > "+add(key[1]))
		}
	}
	rest := ""
	if len(where) > 0 {
		rest = "WHERE " + strings.Join(where, " AND ")
	}
	rest += " ORDER BY n.ai_center_id, n.name LIMIT " + add(n+1)
	var rows []Node
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		rows, err = readNodes(ctx, tx, rest, args...)
		return err
	})
	if err != nil || len(rows) <= n {
		return rows, "", err
	}
	last := rows[n-1]
	return rows[:n], core.PageToken(last.CenterID, last.Name), nil
}

// CountNodes returns how many nodes pass the filter. It returns fault.Invalid.
func (s *Service) CountNodes(ctx context.Context, f NodeFilter) (n int64, err error) {
	where, args, err := f.where()
	if err != nil {
		return 0, err
	}
	text := `SELECT COUNT(*) FROM nodes n`
	if len(where) > 0 {
		text += " WHERE " + strings.Join(where, " AND ")
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		return tx.Query(ctx, text, args, func(row db.Row) error { return row.Scan(&n) })
	})
	if err != nil {
		return 0, fmt.Errorf("count nodes: %w", err)
	}
	return n, nil
}

// where checks the filter and makes conditions of it on nodes n.
func (f NodeFilter) where() (where []string, args []any, err error) {
	var c core.Check
	add := func(v any) string { args = append(args, v); return "$" + strconv.Itoa(len(args)) }
	if f.CenterID != "" {
		c.ID("ai_center_id", f.CenterID)
		where = append(where, "n.ai_center_id = "+add(f.CenterID))
	}
	if f.State != AnyNode {
		c.Range("state", int64(f.State), int64(NodeReady), int64(NodeDrained))
		where = append(where, "n.state = "+add(int64(f.State)))
	}
	if f.Model != "" {
		c.Text("accelerator_model", f.Model, false, 0, 128)
		where = append(where, `EXISTS (SELECT 1 FROM node_accelerators a WHERE a.model = `+add(f.Model)+` AND a.ai_center_id = n.ai_center_id AND a.name = n.name)`)
	}
	if len(f.Labels) > maxLabelFilters {
		c.Add("labels", "must be at most %d, got %d", maxLabelFilters, len(f.Labels))
		return nil, nil, c.Err()
	}
	for i, l := range f.Labels {
		at := "labels[" + strconv.Itoa(i) + "]"
		name, value, exact := strings.Cut(l, "=")
		c.Text(at, name, true, 0, 318)
		c.Text(at, value, false, 0, 254)
		q := `EXISTS (SELECT 1 FROM node_labels l WHERE l.ai_center_id = n.ai_center_id AND l.name = n.name AND l.label = ` + add(name)
		if exact {
			q += ` AND l.value = ` + add(value)
		}
		where = append(where, q+")")
	}
	return where, args, c.Err()
}

// summarize sets what is reported of the nodes of centers ordered by ID, and how fast their accelerators are.
func summarize(ctx context.Context, tx *db.Tx, rows []Center) error {
	if len(rows) == 0 {
		return nil
	}
	byID := map[string]*Center{}
	for i := range rows {
		byID[rows[i].ID] = &rows[i]
	}
	if err := readNodeSummaries(ctx, tx, rows[0].ID, rows[len(rows)-1].ID, byID); err != nil {
		return fmt.Errorf("count nodes: %w", err)
	}
	return readSpeeds(ctx, tx, byID, rows[0].ID, rows[len(rows)-1].ID)
}
