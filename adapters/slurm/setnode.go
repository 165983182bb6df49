package slurm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// nodesFrom is the first version of the interface that changes nodes.
const nodesFrom = 39

// ourReason begins the reason of every node the platform drained: only those
// are resumed by it.
const ourReason = "yunhe: "

// setsNodes reports whether slurmrestd can change nodes; if it does not answer
// soon, it cannot.
func (d *Driver) setsNodes(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	version, err := d.api.agree(ctx)
	return err == nil && version >= nodesFrom
}

// SetNode drains a node or resumes it. What an administrator drained stays so.
// An allocation is Unimplemented: nodes are not reserved here; so is everything
// with an interface before v0.0.39. NotFound if there is no such node;
// FailedPrecondition if Slurm refuses, for example because the user is no
// operator; Unavailable.
func (d *Driver) SetNode(ctx context.Context, r *adapterv1.SetNodeRequest) (*adapterv1.SetNodeResponse, error) {
	version, err := d.api.agree(ctx)
	switch {
	case err != nil:
		return nil, unavailable("%s", d.api.explain(err))
	case version < nodesFrom:
		return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("%s cannot change nodes: it speaks v0.0.%d, and v0.0.%d is the first that can", d.api.where(), version, nodesFrom))
	case r.AllocationId != "":
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("the driver of Slurm does not reserve nodes for allocations"))
	}
	if _, err := d.Discover(ctx, &adapterv1.DiscoverRequest{}); err != nil { // the nodes are known then
		return nil, err
	}
	d.mu.Lock()
	n := d.view.nodes[r.Name]
	d.mu.Unlock()
	path := "node/" + url.PathEscape(r.Name)
	if n != nil { // as it is now
		n = nil
		_, err = d.api.exchange(ctx, http.MethodGet, fmt.Sprintf("/slurm/v0.0.%d/%s", version, path), nil, func(body io.Reader) (answer, error) {
			return decode(body, "nodes", func(now *node) { n = d.node(now) })
		})
		if err != nil {
			return nil, unavailable("%s", d.api.explain(err))
		}
	}
	if n == nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("center %s has no node %q", d.center, clip(r.Name, 100)))
	}
	drained := n.State == adapterv1.NodeState_NODE_STATE_DRAINED
	change := map[string]any{"state": []string{"DRAIN"}, "reason": ourReason + clip(r.Reason, 200)}
	switch {
	case r.Isolated && drained, !r.Isolated && !strings.Contains(n.Reason, ourReason):
		return &adapterv1.SetNodeResponse{}, nil
	case !r.Isolated:
		change = map[string]any{"state": []string{"RESUME"}}
	}
	_, err = d.api.call(ctx, http.MethodPost, path, change)
	var no *apiError
	switch {
	case errors.As(err, &no):
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("the cluster does not change node %s: %v; is user %q an operator there?", r.Name, no, d.cfg.User))
	case err != nil:
		return nil, unavailable("%s", d.api.explain(err))
	}
	d.look()
	return &adapterv1.SetNodeResponse{}, nil
}
