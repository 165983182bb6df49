package slurm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// view is what Watch and Discover tell: replaced, never changed.
type view struct {
	inventory *adapterv1.Inventory // nil: not known yet
	nodes     map[string]*adapterv1.Node
	measured  *adapterv1.Measurement
	trouble   string
}

const (
	mib             = 1 << 20
	partitionsEvery = 15 * time.Second
	// beat is how often Watch sends something; the contract wants it every
	// three seconds.
	beat = 2 * time.Second
	// nodesPerMessage keeps a message of Watch below a megabyte.
	nodesPerMessage = 500
	// statusesPerMessage does the same for Observe, whose statuses may carry logs.
	statusesPerMessage = 100
)

func unavailable(format string, args ...any) error {
	return connect.NewError(connect.CodeUnavailable, fmt.Errorf(format, args...))
}

// canceled is the error of a call whose context has ended.
func canceled(ctx context.Context) error {
	code := connect.CodeCanceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = connect.CodeDeadlineExceeded
	}
	return connect.NewError(code, ctx.Err())
}

// Discover answers with the inventory as it is known: a look is at most a few
// seconds old. While the cluster cannot be reached it is an error.
func (d *Driver) Discover(ctx context.Context, _ *adapterv1.DiscoverRequest) (*adapterv1.DiscoverResponse, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		d.mu.Lock()
		v, news := d.view, d.news
		d.mu.Unlock()
		switch {
		case v.trouble != "":
			return nil, unavailable("%s", v.trouble)
		case v.inventory != nil:
			return &adapterv1.DiscoverResponse{Inventory: v.inventory}, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, canceled(ctx)
		case <-timer.C:
			return nil, unavailable("%s has not said within %v what nodes there are", d.api.where(), patience)
		}
	}
}

// Watch sends the inventory and the nodes, then what changes, and trouble
// while the cluster cannot be reached.
func (d *Driver) Watch(ctx context.Context, _ *adapterv1.WatchRequest, stream *connect.ServerStream[adapterv1.WatchResponse]) error {
	var sent view
	tick := time.NewTicker(beat)
	defer tick.Stop()
	due := false
	for {
		d.mu.Lock()
		v, news := d.view, d.news
		d.mu.Unlock()
		messages := changes(sent, v)
		if len(messages) == 0 && due {
			messages = []*adapterv1.WatchResponse{{Trouble: v.trouble, Measurement: v.measured}}
			switch {
			case v.trouble != "":
				messages[0].Measurement = nil
			case sent.inventory == nil: // nothing may come before the whole but trouble
				messages[0].Trouble = fmt.Sprintf("%s has not answered yet, after %v", d.api.where(), beat)
			}
		}
		for _, m := range messages {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		if len(messages) > 0 {
			tick.Reset(beat)
		}
		if v.trouble != "" {
			sent.trouble = v.trouble
		} else if v.inventory != nil {
			sent = v
		}
		due = false
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		case <-tick.C:
			due = true
		}
	}
}

// changes are the messages that take a reader from one view to another.
func changes(sent, v view) []*adapterv1.WatchResponse {
	switch {
	case v.trouble != "" && v.trouble != sent.trouble:
		return []*adapterv1.WatchResponse{{Trouble: v.trouble}}
	case v.trouble != "" || v.inventory == nil:
		return nil
	}
	var changed []*adapterv1.Node
	var gone []string
	for _, name := range slices.Sorted(maps.Keys(v.nodes)) {
		if old := sent.nodes[name]; old != v.nodes[name] && !proto.Equal(old, v.nodes[name]) {
			changed = append(changed, v.nodes[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sent.nodes)) {
		if v.nodes[name] == nil {
			gone = append(gone, name)
		}
	}
	first := &adapterv1.WatchResponse{Gone: gone, Measurement: v.measured}
	if sent.inventory == nil || sent.trouble != "" || !proto.Equal(sent.inventory, v.inventory) {
		first.Inventory = v.inventory
	}
	if first.Inventory == nil && len(gone) == 0 && len(changed) == 0 {
		return nil
	}
	out := []*adapterv1.WatchResponse{first}
	for part := range slices.Chunk(changed, nodesPerMessage) {
		last := out[len(out)-1]
		if len(last.Nodes) > 0 {
			last.More = true
			last = &adapterv1.WatchResponse{}
			out = append(out, last)
		}
		last.Nodes = part
	}
	return out
}

// Observe sends how every attempt is that is not forgotten, then what changes.
// It begins when the jobs of the cluster are known.
func (d *Driver) Observe(ctx context.Context, _ *adapterv1.ObserveRequest, stream *connect.ServerStream[adapterv1.ObserveResponse]) error {
	for {
		d.mu.Lock()
		known, news := !d.seen.IsZero(), d.news
		d.mu.Unlock()
		if known {
			break
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil
		}
	}
	return d.board.Watch(ctx, func(set map[string]*adapterv1.Status, _ []string) error {
		ids := slices.Sorted(maps.Keys(set))
		if len(ids) == 0 {
			return stream.Send(&adapterv1.ObserveResponse{})
		}
		for part := range slices.Chunk(ids, statusesPerMessage) {
			m := &adapterv1.ObserveResponse{}
			for _, id := range part {
				m.Statuses = append(m.Statuses, set[id])
			}
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		return nil
	})
}

// lookAtNodes reads the nodes and makes the view of it.
func (d *Driver) lookAtNodes(ctx context.Context, c *looks) error {
	if err := d.lookAtPartitions(ctx, c); err != nil {
		return err
	}
	// Not with update_time: slurmrestd 22.05 answers that with an error, not
	// with the nodes, when one has changed.
	var nodes []*node
	if _, err := list(ctx, d.api, "nodes", 0, func(n *node) { nodes = append(nodes, n) }); err != nil {
		return err
	}
	d.mu.Lock()
	ours := d.uses()
	d.mu.Unlock()
	v := d.survey(nodes, c.down, ours)
	d.mu.Lock()
	defer d.mu.Unlock()
	v.trouble = d.view.trouble
	v.inventory.Notice = c.notice
	d.view = v
	d.tell()
	return nil
}
