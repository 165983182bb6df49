package equipment

import (
	"context"
	"fmt"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/network"
)

// Trouble is what a rule finds.
type Trouble struct {
	Rule            Rule
	Key             string // of what it is about
	Parent          string // the key of another, which comes before it, that it follows from; "": none
	Center, Name    string // Name is that of the equipment
	Tenant, Message string
}

// NodeRef names a node.
type NodeRef struct{ Center, Name string }

// Found is what a look at the equipment came to.
type Found struct {
	Troubles []Trouble
	// Behind says of the nodes that were asked about, as far as they are reached
	// through nothing else, which trouble they follow from.
	Behind map[NodeRef]string
	// Next is when the clock makes something wrong that is not yet; zero: not
	// before something changes.
	Next time.Time
}

// mostRead bounds how much equipment that is not well is looked at.
const mostRead = 2000

// Troubles says what is wrong at the centers by the rules that are enabled, and
// from what of it the nodes follow.
func (s *Service) Troubles(ctx context.Context, centers map[string]bool, nodes []NodeRef) (*Found, error) {
	paths, err := s.net.Lossy(ctx)
	if err != nil {
		return nil, err
	}
	everything := core.WithCaller(ctx, core.Caller{AllTenants: true})
	unavailable, _, err := s.inv.List(everything, inventory.Filter{Type: "network", State: inventory.Unavailable}, 1000, "")
	if err != nil {
		return nil, err
	}
	var found *Found
	err = s.db.View(ctx, func(tx *db.Tx) error {
		l := look{at: s.db.Now(), rules: map[RuleKind]Rule{}, alarms: map[string]bool{}, centers: centers, paths: paths, unavailable: unavailable}
		rules, err := rulesTx(ctx, tx)
		if err != nil {
			return err
		}
		for _, r := range rules {
			if r.Enabled {
				l.rules[r.Kind] = r
			}
		}
		rows, err := readEquipment(ctx, tx, `WHERE `+troubled+` ORDER BY ai_center_id, name LIMIT $1`, int64(mostRead))
		if err != nil {
			return err
		}
		for _, e := range rows {
			if centers[e.CenterID] {
				l.rows = append(l.rows, e)
			}
		}
		if l.sources, err = readSources(ctx, tx); err != nil {
			return err
		}
		l.judge()
		behind, err := l.behind(ctx, tx, nodes)
		found = &Found{Troubles: l.out, Behind: behind, Next: l.next}
		return err
	})
	return found, err
}

// look is what the rules look at, and what they find.
type look struct {
	at          time.Time
	rules       map[RuleKind]Rule
	centers     map[string]bool
	rows        []*Equipment // what is not well, by center and name
	sources     []source
	paths       []network.Loss
	unavailable []inventory.Resource

	out    []Trouble
	alarms map[string]bool // keys of out
	next   time.Time
}

func key(k RuleKind, parts ...string) string {
	return fmt.Sprintf("equipment/%d/%s", k, strings.Join(parts, "/"))
}

// find takes what a rule found, once.
func (l *look) find(k RuleKind, t Trouble) {
	r, enabled := l.rules[k]
	if !enabled || l.alarms[t.Key] {
		return
	}
	t.Rule = r
	l.alarms[t.Key] = true
	l.out = append(l.out, t)
}

// since reports whether what has been so since a time has been so for too long; if
// not, it says when it will have been.
func (l *look) since(k RuleKind, at time.Time) bool {
	r, enabled := l.rules[k]
	due := at.Add(time.Duration(r.Threshold) * time.Second)
	if !enabled || !l.at.Before(due) {
		return enabled
	}
	if l.next.IsZero() || due.Before(l.next) {
		l.next = due
	}
	return false
}

func (l *look) judge() {
	failed := map[NodeRef]*Equipment{} // equipment, by center and name
	for _, e := range l.rows {
		if e.State.fails() {
			failed[NodeRef{e.CenterID, e.Name}] = e
		}
	}
	// What has failed comes before what is out of reach, which may follow from it.
	for _, state := range []State{Down, Unreachable} {
		for _, e := range l.rows {
			if e.State == state && l.since(EquipmentDown, e.Since) {
				l.failed(e, failed)
			}
		}
	}
	for _, e := range l.rows {
		if e.State == Degraded && l.since(EquipmentDegraded, e.Since) {
			l.find(EquipmentDegraded, Trouble{Key: key(EquipmentDegraded, e.CenterID, e.Name), Center: e.CenterID, Name: e.Name,
				Message: because(fmt.Sprintf("equipment %s of center %s is degraded", e.Name, e.CenterID), e.Reason)})
		}
	}
	for _, e := range l.rows {
		if e.State != Disabled {
			l.links(e, failed)
		}
	}
	for _, x := range l.sources {
		if l.centers[x.center] && l.since(EquipmentSilent, x.due) {
			l.find(EquipmentSilent, Trouble{Key: key(EquipmentSilent, x.center, x.name), Center: x.center,
				Message: fmt.Sprintf("%s, which reports network equipment of center %s, should have said something by %s", x.name, x.center, x.due.UTC().Format(time.RFC3339))})
		}
	}
	for _, r := range l.unavailable {
		l.find(NetworkUnavailable, Trouble{Key: key(NetworkUnavailable, r.ID), Center: r.CenterID, Tenant: r.TenantID, Message: fmt.Sprintf("network %s (%s) is unavailable", r.Name, r.ID)})
	}
	for _, p := range l.paths {
		if r, enabled := l.rules[PathLoss]; enabled && p.PPM >= r.Threshold && l.centers[p.CenterID] {
			l.find(PathLoss, Trouble{Key: key(PathLoss, p.CenterID, p.To), Center: p.CenterID,
				Message: fmt.Sprintf("at least %s of what is sent from center %s to %s is lost", share(r.Threshold), p.CenterID, p.To)})
		}
	}
}

// share is millionths for people.
func share(ppm int64) string {
	if ppm%10_000 == 0 {
		return fmt.Sprintf("%d%%", ppm/10_000)
	}
	return fmt.Sprintf("%d of a million", ppm)
}

func because(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}

func (l *look) failed(e *Equipment, failed map[NodeRef]*Equipment) {
	text, parent := "is down", ""
	if e.State == Unreachable {
		text = "is out of reach"
		for i := range e.Ports {
			p := &e.Ports[i]
			if x := failed[NodeRef{e.CenterID, p.PeerEquipment}]; x != nil && x.State == Down && parent == "" && l.alarms[key(EquipmentDown, x.CenterID, x.Name)] {
				parent = key(EquipmentDown, x.CenterID, x.Name)
			}
		}
	}
	l.find(EquipmentDown, Trouble{Key: key(EquipmentDown, e.CenterID, e.Name), Parent: parent, Center: e.CenterID, Name: e.Name,
		Message: because(fmt.Sprintf("equipment %s of center %s %s", e.Name, e.CenterID, text), e.Reason)})
}

// ends names a link the same from whichever of its ends.
func ends(e *Equipment, p *Port) (id, name string) {
	here, there := e.Name+":"+p.Name, ""
	switch {
	case p.PeerNode != "":
		return here, here + " to node " + p.PeerNode
	case p.PeerEquipment == "":
		return here, here
	case p.PeerPort == "":
		return here, here + " to " + p.PeerEquipment
	}
	there = p.PeerEquipment + ":" + p.PeerPort
	if there < here {
		here, there = there, here
	}
	return here + "=" + there, here + " to " + there
}

// links finds what is wrong with the links of equipment.
func (l *look) links(e *Equipment, failed map[NodeRef]*Equipment) {
	for i := range e.Ports {
		p := &e.Ports[i]
		if p.State == PortDisabled || p.State == PortUp && p.Errors+p.Loss == 0 {
			continue
		}
		id, name := ends(e, p)
		t := Trouble{Center: e.CenterID, Name: e.Name}
		if p.State == PortDown {
			since := db.Time(p.Since)
			for _, x := range []*Equipment{failed[NodeRef{e.CenterID, e.Name}], failed[NodeRef{e.CenterID, p.PeerEquipment}]} {
				if x == nil {
					continue
				}
				// Not before the alarm of what it follows from.
				if _, enabled := l.rules[EquipmentDown]; enabled && !l.since(EquipmentDown, x.Since) {
					since = l.at
				}
				if up := key(EquipmentDown, x.CenterID, x.Name); t.Parent == "" && l.alarms[up] {
					t.Parent = up
				}
			}
			if !l.since(LinkDown, since) {
				continue
			}
			t.Key, t.Message = key(LinkDown, e.CenterID, id), because(fmt.Sprintf("link %s of center %s is down", name, e.CenterID), p.Reason)
			l.find(LinkDown, t)
			continue
		}
		if e.State.fails() {
			continue // what it last said is of before
		}
		for _, x := range []struct {
			kind RuleKind
			rate int64
			text string
		}{{LinkErrors, p.Errors, "have errors"}, {LinkLoss, p.Loss, "are dropped"}} {
			if r, enabled := l.rules[x.kind]; enabled && x.rate >= r.Threshold {
				t.Key, t.Message = key(x.kind, e.CenterID, id), fmt.Sprintf("at least %s frames on link %s of center %s %s", share(r.Threshold), name, e.CenterID, x.text)
				l.find(x.kind, t)
			}
		}
	}
}

// behind says which trouble each of the nodes follows from: all that leads to it
// has failed or is down.
func (l *look) behind(ctx context.Context, tx *db.Tx, nodes []NodeRef) (map[NodeRef]string, error) {
	asked := map[NodeRef]bool{}
	for _, n := range nodes {
		asked[n] = true
	}
	cause, fails := map[NodeRef]string{}, map[string]map[string]bool{}
	for _, e := range l.rows {
		down := key(EquipmentDown, e.CenterID, e.Name)
		if e.State.fails() {
			if fails[e.CenterID] == nil {
				fails[e.CenterID] = map[string]bool{}
			}
			fails[e.CenterID][e.Name] = true
		}
		for i := range e.Ports {
			p := &e.Ports[i]
			n := NodeRef{e.CenterID, p.PeerNode}
			if p.PeerNode == "" || !asked[n] {
				continue
			}
			id, _ := ends(e, p)
			switch link := key(LinkDown, e.CenterID, id); {
			case e.State.fails() && l.alarms[down]:
				cause[n] = down
			case p.State == PortDown && cause[n] == "" && l.alarms[link]:
				cause[n] = link
			}
		}
	}
	byCenter := map[string][]string{}
	for n := range cause {
		byCenter[n.Center] = append(byCenter[n.Center], n.Name)
	}
	for _, center := range sorted(byCenter) {
		well, err := reached(ctx, tx, center, byCenter[center], fails[center])
		if err != nil {
			return nil, err
		}
		for _, name := range byCenter[center] {
			if well[name] {
				delete(cause, NodeRef{center, name})
			}
		}
	}
	return cause, nil
}
