package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/pool"
)

// policies expects that nodes and devices are chosen as the pool's policy says, and
// as a task's own does that says something else.
func policies(ctx context.Context, b *bench) error {
	if _, _, err := b.two(); err != nil {
		return err
	}
	was, err := b.API.GetPoolPolicy(ctx, &poolv1.GetPoolPolicyRequest{})
	if err != nil {
		return err
	}
	set := func(ctx context.Context, p *poolv1.PoolPolicy) error {
		_, err := b.API.SetPoolPolicy(ctx, &poolv1.SetPoolPolicyRequest{Policy: p})
		return err
	}
	b.later(func(ctx context.Context) error { return set(ctx, was) })
	host := func(id string) string {
		for _, n := range b.nodes {
			if n.NodeId == id {
				return n.Host
			}
		}
		return ""
	}
	// places are where tasks are that follow each other, and compute.
	places := func(tasks int, r *poolv1.RequestSliceRequest) (nodes, devices map[string]bool, err error) {
		nodes, devices = map[string]bool{}, map[string]bool{}
		var held []string
		for range tasks {
			r.ComputePercent, r.MemoryMib = 10, 64
			x, err := b.hold(ctx, r)
			if err != nil {
				return nil, nil, err
			}
			if x.NodeId == "" {
				return nil, nil, fmt.Errorf("a task waits: %s", x.Reason)
			}
			nodes[x.NodeId], devices[x.NodeId+"/"+x.DeviceId], held = true, true, append(held, x.SliceId)
		}
		for _, id := range held {
			if said, err := b.run(ctx, []string{"--slice", id}, b.Program, "add"); err != nil {
				return nil, nil, fmt.Errorf("%w: %s", err, said)
			}
			if _, err := b.API.ReleaseSlice(ctx, &poolv1.ReleaseSliceRequest{SliceId: id}); err != nil {
				return nil, nil, err
			}
		}
		return nodes, devices, nil
	}
	const first, only, anywhere = poolv1.PoolPolicy_LOCAL_FIRST, poolv1.PoolPolicy_LOCAL_ONLY, poolv1.PoolPolicy_LOCAL_ANY
	const compact, balanced = poolv1.PoolPolicy_SPREAD_COMPACT, poolv1.PoolPolicy_SPREAD_BALANCED
	policy := func(local poolv1.PoolPolicy_Local, nodes, devices poolv1.PoolPolicy_Spread) *poolv1.PoolPolicy {
		return &poolv1.PoolPolicy{Local: local, Nodes: nodes, Devices: devices}
	}
	// Each policy is tried as the pool's, and as tasks' own where the pool's is the contrary.
	for _, global := range []bool{true, false} {
		as := func(p, contrary *poolv1.PoolPolicy) (*poolv1.PoolPolicy, error) {
			if global {
				return nil, set(ctx, p)
			}
			return p, set(ctx, contrary)
		}
		for _, c := range []struct{ is, contrary poolv1.PoolPolicy_Spread }{{compact, balanced}, {balanced, compact}} {
			own, err := as(policy(anywhere, c.is, compact), policy(anywhere, c.contrary, balanced))
			if err != nil {
				return err
			}
			nodes, _, err := places(2, &poolv1.RequestSliceRequest{Policy: own})
			if err != nil {
				return err
			}
			if (len(nodes) == 1) != (c.is == compact) {
				return fmt.Errorf("with nodes %v (of the pool: %v) tasks are at %v", c.is, global, nodes)
			}
		}
		i := slices.IndexFunc(b.nodes, func(n *poolv1.PoolNode) bool { return len(n.Devices) > 1 })
		if i < 0 {
			return absent{"no node has two cards between which a policy chooses"}
		}
		for _, c := range []struct{ is, contrary poolv1.PoolPolicy_Spread }{{compact, balanced}, {balanced, compact}} {
			own, err := as(policy(anywhere, compact, c.is), policy(anywhere, balanced, c.contrary))
			if err != nil {
				return err
			}
			_, devices, err := places(2, &poolv1.RequestSliceRequest{NodeId: b.nodes[i].NodeId, Policy: own})
			if err != nil {
				return err
			}
			if (len(devices) == 1) != (c.is == compact) {
				return fmt.Errorf("with devices %v (of the pool: %v) tasks are at %v", c.is, global, devices)
			}
		}
		other := slices.IndexFunc(b.nodes, func(n *poolv1.PoolNode) bool { return n.Host != b.nodes[0].Host })
		if other < 0 {
			return absent{"all nodes are on one machine: nothing else is more local"}
		}
		for _, local := range []poolv1.PoolPolicy_Local{first, only} {
			own, err := as(policy(local, balanced, balanced), policy(anywhere, balanced, balanced))
			if err != nil {
				return err
			}
			for _, at := range []string{b.nodes[0].Host, b.nodes[other].Host} {
				nodes, _, err := places(1, &poolv1.RequestSliceRequest{Host: at, Policy: own})
				if err != nil {
					return err
				}
				for id := range nodes {
					if host(id) != at {
						return fmt.Errorf("with %v (of the pool: %v) a task of another machine is at %s", local, global, id)
					}
				}
			}
			nodes, _, err := places(1, &poolv1.RequestSliceRequest{Host: "a machine without a node", Policy: own})
			if local == first && err != nil {
				return fmt.Errorf("local first, on a machine without a node: %w", err)
			}
			if local == only && (err == nil || !strings.Contains(err.Error(), "local only")) {
				return fmt.Errorf("local only, on a machine without a node: a task is at %v: %w", nodes, err)
			}
		}
	}
	if err := set(ctx, policy(anywhere, balanced, balanced)); err != nil {
		return err
	}
	said, err := b.run(ctx, []string{"--local", "only", "--compute", "10", "--memory", "64" + mib}, b.Program, "add")
	if slices.ContainsFunc(b.nodes, func(n *poolv1.PoolNode) bool { return n.Host == pool.Host() }) {
		if err != nil {
			return fmt.Errorf("local only: %w: %s", err, said)
		}
		return nil
	}
	return refused(said, err, "local only")
}
