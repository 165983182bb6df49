package adapters

import (
	"context"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/fault"
)

// NodeSetting is how a node is to be.
type NodeSetting struct {
	Name         string
	Isolated     bool   // takes no new work
	AllocationID string // takes work of this one only; "": of all
	Reason       string
}

// SetNode asks a center to make a node be as said. It returns
// fault.Unimplemented if what reaches the center cannot control nodes,
// fault.NotFound if the center has no such node and fault.Unavailable while
// the center does not answer. Asking again is safe.
func (s *Service) SetNode(ctx context.Context, centerID string, n NodeSetting) error {
	err := s.ask(ctx, centerID, "setnode", &adapterv1.SetNodeRequest{Name: n.Name, Isolated: n.Isolated, AllocationId: n.AllocationID, Reason: n.Reason}, &adapterv1.SetNodeResponse{})
	return centerError(err, centerID, "control nodes")
}

// centerError says in the platform's words why a center did not do what it was
// asked; ability is what that takes, as in "cannot control nodes".
func centerError(err error, centerID, ability string) error {
	switch fault.KindOf(err) {
	case fault.Unimplemented:
		return fault.Wrap(fault.Unimplemented, err, "what reaches center %s cannot %s", centerID, ability)
	case fault.Canceled, fault.Internal:
		if err != nil {
			return fault.Wrap(fault.Unavailable, err, "center %s does not answer", centerID)
		}
	}
	return err
}
