package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/fault"
)

// setting is how the machine is to be, on disk before it counts.
type setting struct {
	Isolated     bool   `json:"isolated"`
	AllocationID string `json:"allocation_id,omitempty"`
	Reason       string `json:"reason,omitempty"`
}

func (a *Agent) settingPath() string { return filepath.Join(a.cfg.Dir, "node.json") }

// readSetting takes up what a predecessor was asked. A file that cannot be
// read counts as none: the platform says again what it wants.
func (a *Agent) readSetting() {
	b, err := os.ReadFile(a.settingPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("setting of the machine not read", "error", err)
	}
	var s setting
	if err != nil || json.Unmarshal(b, &s) != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.setting = s
}

// setNode makes the machine be as asked. What runs goes on.
func (a *Agent) setNode(r *adapterv1.SetNodeRequest) (*adapterv1.SetNodeResponse, error) {
	if a.node == nil || r.Name != a.node.Name {
		return nil, fault.New(fault.NotFound, "this gateway runs on another machine than %q", r.Name)
	}
	s := setting{r.Isolated, r.AllocationId, cleanText(r.Reason)}
	a.mu.Lock()
	same := a.setting == s
	a.mu.Unlock()
	if same {
		return &adapterv1.SetNodeResponse{}, nil
	}
	if err := writeFile(a.settingPath(), s); err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the setting cannot be stored")
	}
	a.mu.Lock()
	a.setting = s
	a.mu.Unlock()
	a.log.Info("machine set", "isolated", s.Isolated, "allocation_id", s.AllocationID, "reason", s.Reason)
	signal(a.declare)
	return &adapterv1.SetNodeResponse{}, nil
}

// settled puts the setting into what the gateway declares: an isolated machine
// has nothing for new work.
func (a *Agent) settled(inv *adapterv1.Inventory) (*adapterv1.Inventory, *adapterv1.Node) {
	a.mu.Lock()
	s := a.setting
	a.mu.Unlock()
	if a.node == nil || !s.Isolated {
		return inv, a.node
	}
	for name := range inv.Capacity {
		inv.Capacity[name] = 0
	}
	node := proto.CloneOf(a.node)
	node.State, node.Reason = adapterv1.NodeState_NODE_STATE_DRAINED, s.Reason
	if node.Reason == "" {
		node.Reason = "isolated"
	}
	return inv, node
}

// admit says whether new work may start here. What may not stays with the
// platform, which sends it again, until it may or is taken back.
func (a *Agent) admit(at *adapterv1.Attempt) error {
	a.mu.Lock()
	s := a.setting
	a.mu.Unlock()
	switch {
	case s.Isolated:
		return fault.New(fault.Unavailable, "the machine is isolated and takes no new work")
	case s.AllocationID != at.AllocationId:
		return fault.New(fault.Unavailable, "the machine is kept for allocation %q, the run is of %q", s.AllocationID, at.AllocationId)
	}
	return nil
}
