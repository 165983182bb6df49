package conformance

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/pool"
)

const mib = "MiB"

// hold asks for a slice that is held.
func (b *bench) hold(ctx context.Context, r *poolv1.RequestSliceRequest) (*poolv1.Slice, error) {
	r.Fixed, r.GroupId = true, b.name
	if r.MemoryMib == 0 && r.SpecId == "" && !r.Physical {
		r.MemoryMib = 64
	}
	x, err := b.API.RequestSlice(ctx, r)
	if err == nil { // before what else the check changed
		b.later(func(ctx context.Context) error {
			_, err := b.API.ReleaseSlice(ctx, &poolv1.ReleaseSliceRequest{SliceId: x.SliceId})
			return err
		})
	}
	return x, err
}

func fixed(ctx context.Context, b *bench) error {
	for _, c := range []struct{ compute, memory int64 }{{1, 1}, {37, 3}} {
		x, err := b.hold(ctx, &poolv1.RequestSliceRequest{ComputePercent: c.compute, MemoryMib: c.memory})
		if err != nil {
			return err
		}
		got, err := b.runAs(ctx, "", []string{"YUNHE_POOL_COMPUTE=90", "YUNHE_POOL_MEMORY=500" + mib}, []string{"--group", b.name, "--slice", x.SliceId}, b.Program, "fill", "20")
		if want := fmt.Sprintf("buffers %d error -4", c.memory); err != nil || got != want {
			return fmt.Errorf("on %d MiB the task said %q, not %q: %w", c.memory, got, want, err)
		}
		now, err := b.slice(ctx, x.SliceId)
		if err != nil {
			return err
		}
		if now.ComputePercent != c.compute || now.MemoryMib != c.memory {
			return fmt.Errorf("the slice has %d%% and %d MiB after the task asked for more, not %d%% and %d", now.ComputePercent, now.MemoryMib, c.compute, c.memory)
		}
		if err := b.look(ctx, "slices", x.SliceId, fmt.Sprintf("%d %%", c.compute)); err != nil {
			return err
		}
	}
	return nil
}

func remote(ctx context.Context, b *bench) error {
	i := slices.IndexFunc(b.nodes, func(n *poolv1.PoolNode) bool {
		return n.Host != pool.Host() || !slices.ContainsFunc(n.Addresses, func(a string) bool { return strings.HasPrefix(a, "unix:") })
	})
	if i < 0 {
		return absent{"all nodes are on the client's machine and lend over its Unix socket: run this from another"}
	}
	n := b.nodes[i]
	t, x, err := b.walking(ctx, "--on", n.NodeId, "--compute", "50", "--memory", "64"+mib)
	if err != nil {
		return err
	}
	if err := b.until(ctx, "the card of "+n.NodeId+" is used", func() (bool, error) {
		x, err = b.slice(ctx, x.SliceId)
		return err == nil && x.NodeId == n.NodeId && x.DeviceMicros > 0 && x.MemoryUsedBytes > 0, err
	}); err != nil {
		return err
	}
	return t.end(ctx)
}

func aggregation(ctx context.Context, b *bench) error {
	if _, _, err := b.two(); err != nil {
		return err
	}
	t, err := b.start(ctx, []string{"--cards", "2", "--across-nodes", "--compute", "40", "--memory", "64" + mib}, b.Program, "cards", "0")
	if err != nil {
		return err
	}
	if err := t.expect(ctx, "cards 2"); err != nil { // devices of one context
		return err
	}
	var cards []*poolv1.Slice
	if err := b.until(ctx, "the cards of both nodes are used", func() (bool, error) {
		if cards, err = b.slices(ctx, b.name); err != nil || len(cards) != 2 {
			return false, err
		}
		return !slices.ContainsFunc(cards, func(x *poolv1.Slice) bool {
			return x.State != poolv1.Slice_STATE_RUNNING || x.DeviceMicros == 0 || x.MemoryUsedBytes == 0 || x.Programs != 1
		}), nil
	}); err != nil {
		return err
	}
	if cards[0].NodeId == cards[1].NodeId {
		return fmt.Errorf("both cards are at %s", cards[0].NodeId)
	}
	for _, x := range cards {
		if err := b.look(ctx, "slices", x.SliceId, x.NodeId+"/"+x.DeviceId, "of 2 cards of a program"); err != nil {
			return err
		}
	}
	if err := t.endWith(ctx, "rounds "); err != nil { // it has checked what each card computed of what the other did
		return err
	}
	for _, x := range cards {
		if err := b.until(ctx, "the cards are released together", func() (bool, error) {
			now, err := b.slice(ctx, x.SliceId)
			return err == nil && now.State == poolv1.Slice_STATE_ENDED, err
		}); err != nil {
			return err
		}
	}
	return nil
}

func overcommit(ctx context.Context, b *bench) error {
	at := b.first()
	if err := b.set(ctx, at, &poolv1.SetPoolDeviceRequest{ComputeLimitPercent: 200, MemoryLimitPercent: 200}); err != nil {
		return err
	}
	d, err := b.device(ctx, at)
	if err != nil {
		return err
	}
	node, device, _ := strings.Cut(at, "/")
	first, err := b.hold(ctx, &poolv1.RequestSliceRequest{ComputePercent: 80, MemoryMib: d.MemoryMib * 6 / 10, NodeId: node, DeviceId: device})
	if err != nil {
		return err
	}
	second, err := b.hold(ctx, &poolv1.RequestSliceRequest{ComputePercent: 80, MemoryMib: d.MemoryMib * 6 / 10, NodeId: node, DeviceId: device})
	if err != nil {
		return err
	}
	if second.State == poolv1.Slice_STATE_WAITING {
		return fmt.Errorf("the second task waits: %s", second.Reason)
	}
	return b.both(ctx, first, second)
}

// both runs a program on each of two slices at the same time.
func (b *bench) both(ctx context.Context, x, y *poolv1.Slice) error {
	var tasks []*task
	for _, s := range []*poolv1.Slice{x, y} {
		t, err := b.start(ctx, []string{"--slice", s.SliceId}, b.Program, "walk", "1")
		if err != nil {
			return err
		}
		if err := t.expect(ctx, "walking"); err != nil {
			return err
		}
		tasks = append(tasks, t)
	}
	for _, s := range []*poolv1.Slice{x, y} {
		if err := b.until(ctx, "both use the card", func() (bool, error) {
			now, err := b.slice(ctx, s.SliceId)
			return err == nil && now.State == poolv1.Slice_STATE_RUNNING && now.DeviceMicros > 0, err
		}); err != nil {
			return err
		}
	}
	for _, t := range tasks {
		if err := t.end(ctx); err != nil {
			return err
		}
	}
	return nil
}

// refused expects that a task does not run, and that its terminal says why.
func refused(said string, err error, why string) error {
	switch {
	case err == nil:
		return fmt.Errorf("the task ran: %s", said)
	case !strings.Contains(said, why):
		return fmt.Errorf("the task was not told %q: %s", why, said)
	}
	return nil
}

func quota(ctx context.Context, b *bench) error {
	for _, c := range []struct {
		id    string
		g     *poolv1.PoolGroup
		flags []string
	}{
		{"conformance-compute", &poolv1.PoolGroup{ComputeLimitPercent: 30}, []string{"--compute", "31", "--memory", "10" + mib}},
		{"conformance-memory", &poolv1.PoolGroup{MemoryLimitMib: 30}, []string{"--compute", "1", "--memory", "31" + mib}},
	} {
		if err := b.group(ctx, c.id, c.g); err != nil {
			return err
		}
		said, err := b.runAs(ctx, "", nil, append([]string{"--group", c.id}, c.flags...), b.Program, "add")
		if err := refused(said, err, "exceeds the quota"); err != nil {
			return err
		}
	}
	return nil
}

func model(ctx context.Context, b *bench) error {
	d := b.nodes[0].Devices[0]
	t, x, err := b.walking(ctx, "--model", d.Model, "--compute", "10", "--memory", "64"+mib)
	if err != nil {
		return err
	}
	used, err := b.device(ctx, x.NodeId+"/"+x.DeviceId)
	if err != nil {
		return err
	}
	if used.Model != d.Model {
		return fmt.Errorf("the task got a %s, not a %s", used.Model, d.Model)
	}
	if err := t.end(ctx); err != nil {
		return err
	}
	said, err := b.run(ctx, []string{"--model", "no card is called so", "--compute", "10", "--memory", "64" + mib}, b.Program, "add")
	return refused(said, err, "no device of the model")
}

func node(ctx context.Context, b *bench) error {
	x, y, err := b.two()
	if err != nil {
		return err
	}
	for _, n := range []*poolv1.PoolNode{y, x} {
		t, s, err := b.walking(ctx, "--on", n.NodeId, "--compute", "10", "--memory", "64"+mib)
		if err != nil {
			return err
		}
		if s.NodeId != n.NodeId {
			return fmt.Errorf("the task is at %s, not at %s", s.NodeId, n.NodeId)
		}
		if err := b.look(ctx, "slices", s.SliceId, s.NodeId+"/"+s.DeviceId); err != nil {
			return err
		}
		if err := t.end(ctx); err != nil {
			return err
		}
	}
	return nil
}

func affinity(ctx context.Context, b *bench) error {
	for _, n := range b.nodes {
		for _, d := range n.Devices {
			if err := b.set(ctx, n.NodeId+"/"+d.DeviceId, &poolv1.SetPoolDeviceRequest{ComputeLimitPercent: 200}); err != nil {
				return err
			}
		}
	}
	var got []*poolv1.Slice
	var tasks []*task
	for range 2 {
		t, x, err := b.walking(ctx, "--compute", "100", "--memory", "64"+mib, "--affinity", "conformance")
		if err != nil {
			return err
		}
		got, tasks = append(got, x), append(tasks, t)
	}
	if got[0].NodeId != got[1].NodeId || got[0].DeviceId != got[1].DeviceId {
		return fmt.Errorf("the tasks are at %s/%s and %s/%s", got[0].NodeId, got[0].DeviceId, got[1].NodeId, got[1].DeviceId)
	}
	at := got[0].NodeId + "/" + got[0].DeviceId
	d, err := b.device(ctx, at)
	if err != nil {
		return err
	}
	if d.ComputeLentPercent != 200 {
		return fmt.Errorf("of %s %d%% are lent, not 200%%", at, d.ComputeLentPercent)
	}
	if err := b.look(ctx, "nodes", at, "200 %"); err != nil {
		return err
	}
	for _, t := range tasks {
		if err := t.end(ctx); err != nil {
			return err
		}
	}
	return nil
}

func queue(ctx context.Context, b *bench) error {
	on := []string{"--on", b.first(), "--compute", "100", "--memory", "64" + mib}
	first, _, err := b.walking(ctx, on...)
	if err != nil {
		return err
	}
	var tasks []*task
	for i, priority := range []string{"1", "5"} {
		t, err := b.start(ctx, append(slices.Clone(on), "--priority", priority), b.Program, "walk", "1")
		if err != nil {
			return err
		}
		tasks = append(tasks, t)
		if err := b.until(ctx, "the task waits", func() (bool, error) {
			list, err := b.slices(ctx, b.name)
			return len(list) == i+2, err
		}); err != nil {
			return err
		}
	}
	list, err := b.slices(ctx, b.name) // newest first
	if err != nil {
		return err
	}
	if list[0].State != poolv1.Slice_STATE_WAITING || list[1].State != poolv1.Slice_STATE_WAITING || list[0].Position >= list[1].Position || list[0].Reason == "" {
		return fmt.Errorf("the queue is %v %v", list[0], list[1])
	}
	if err := b.look(ctx, "slices", list[1].SliceId, fmt.Sprintf("%d in the queue", list[1].Position)); err != nil {
		return err
	}
	if err := first.end(ctx); err != nil {
		return err
	}
	for _, i := range []int{1, 0} {
		if err := tasks[i].expect(ctx, "walking"); err != nil {
			return err
		}
		if i == 1 {
			if x, err := b.slice(ctx, list[1].SliceId); err != nil || x.State != poolv1.Slice_STATE_WAITING {
				return fmt.Errorf("the task of lower priority does not wait: %v %w", x, err)
			}
		}
		if err := tasks[i].end(ctx); err != nil {
			return err
		}
	}
	return nil
}

// timeout is what both timeouts are set to, as their rows say.
const timeout = 30 * time.Second

func idleTimeout(ctx context.Context, b *bench) error {
	t, err := b.start(ctx, []string{"--idle", timeout.String(), "--compute", "10", "--memory", "64" + mib}, "sh", "-c", `"$0" add; cat >/dev/null`, b.Program)
	if err != nil {
		return err
	}
	if err := t.expect(ctx, "sum "); err != nil {
		return err
	}
	return b.released(ctx, t, time.Now(), "idle timeout")
}

// released expects that a task's terminal tells of its release after the timeout.
func (b *bench) released(ctx context.Context, t *task, since time.Time, why string) error {
	list, err := b.slices(ctx, b.name)
	if err != nil || len(list) == 0 {
		return fmt.Errorf("the task's slice is not listed: %w", err)
	}
	want := "virtual resource released: " + why
	if err := b.until(ctx, "the terminal says "+want, func() (bool, error) { return strings.Contains(t.terminal(), want), nil }); err != nil {
		return fmt.Errorf("%w: %s", err, t.terminal())
	}
	if took := time.Since(since); took < timeout-3*time.Second {
		return fmt.Errorf("released after %s, not after %s", took, timeout)
	}
	return b.until(ctx, "the slice has ended", func() (bool, error) {
		x, err := b.slice(ctx, list[0].SliceId)
		return err == nil && x.State == poolv1.Slice_STATE_ENDED, err
	})
}

func runTimeout(ctx context.Context, b *bench) error {
	t, _, err := b.walking(ctx, "--limit", timeout.String(), "--compute", "10", "--memory", "64"+mib)
	if err != nil {
		return err
	}
	if err := b.released(ctx, t, time.Now(), "run timeout"); err != nil {
		return err
	}
	if err := t.wait(ctx); err == nil {
		return fmt.Errorf("the program ended as if nothing had happened: %s", t.terminal())
	} else if ctx.Err() != nil {
		return err
	}
	return nil
}

func logicalGroup(ctx context.Context, b *bench) error {
	if len(b.Clients) < 2 {
		return absent{"two clients of an organization are needed"}
	}
	const id = "conformance-clients"
	if err := b.group(ctx, id, &poolv1.PoolGroup{Members: []string{b.first()}, UserIds: []string{b.Clients[0].User}}); err != nil {
		return err
	}
	flags := []string{"--group", id, "--compute", "10", "--memory", "64" + mib}
	if said, err := b.runAs(ctx, b.Clients[0].Key, nil, flags, b.Program, "add"); err != nil {
		return fmt.Errorf("the task of the authorized client: %w: %s", err, said)
	}
	said, err := b.runAs(ctx, b.Clients[1].Key, nil, flags, b.Program, "add")
	return refused(said, err, "may use")
}

func specification(ctx context.Context, b *bench) error {
	const id = "conformance-spec"
	if _, err := b.API.SetSliceSpec(ctx, &poolv1.SetSliceSpecRequest{SpecId: id, Spec: &poolv1.SliceSpec{ComputePercent: 23, MemoryMib: 5}}); err != nil {
		return err
	}
	b.later(func(ctx context.Context) error {
		_, err := b.API.DeleteSliceSpec(ctx, &poolv1.DeleteSliceSpecRequest{SpecId: id})
		return err
	})
	env := []string{"YUNHE_POOL_COMPUTE=71", "YUNHE_POOL_MEMORY=9" + mib}
	for _, c := range []struct {
		flags           []string
		compute, memory int64
	}{{nil, 71, 9}, {[]string{"--spec", id}, 23, 5}} { // without a specification they count
		t, err := b.startAs(ctx, "", env, append([]string{"--group", b.name}, c.flags...), b.Program, "fill", "20", "wait")
		if err != nil {
			return err
		}
		if err := t.expect(ctx, fmt.Sprintf("buffers %d error -4", c.memory)); err != nil {
			return err
		}
		list, err := b.slices(ctx, b.name)
		if err != nil {
			return err
		}
		if len(list) == 0 || list[0].ComputePercent != c.compute || list[0].MemoryMib != c.memory {
			return fmt.Errorf("with %v the slice is %v", c.flags, list)
		}
		if err := b.look(ctx, "slices", list[0].SliceId, fmt.Sprintf("%d %%", c.compute)); err != nil {
			return err
		}
		if _, err := io.WriteString(t.in, "\n"); err != nil {
			return err
		}
		if err := t.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// cards are all devices, as NODE/DEVICE.
func (b *bench) cards() (all []string) {
	for _, n := range b.nodes {
		for _, d := range n.Devices {
			all = append(all, n.NodeId+"/"+d.DeviceId)
		}
	}
	return all
}

func dualPool(ctx context.Context, b *bench) error {
	all := b.cards()
	if len(all) < 2 {
		return absent{"the pool has one card only; this needs two"}
	}
	if err := b.set(ctx, all[0], &poolv1.SetPoolDeviceRequest{Virtualization: poolv1.SetPoolDeviceRequest_VIRTUALIZATION_OFF}); err != nil {
		return err
	}
	if err := b.set(ctx, all[1], &poolv1.SetPoolDeviceRequest{Virtualization: poolv1.SetPoolDeviceRequest_VIRTUALIZATION_ON}); err != nil {
		return err
	}
	card, _, err := b.walking(ctx, "--physical", "--on", all[0])
	if err != nil {
		return err
	}
	part, _, err := b.walking(ctx, "--on", all[1], "--compute", "10", "--memory", "64"+mib)
	if err != nil {
		return err
	}
	for i, word := range []string{"Physical card", "Virtual"} {
		d, err := b.device(ctx, all[i])
		if err != nil {
			return err
		}
		if d.Physical != (i == 0) || d.Slices != 1 {
			return fmt.Errorf("device %s is %v", all[i], d)
		}
		if err := b.look(ctx, "nodes", all[i], word); err != nil {
			return err
		}
	}
	// A task in use is not switched away.
	node, device, _ := strings.Cut(all[0], "/")
	if _, err := b.API.SetPoolDevice(ctx, &poolv1.SetPoolDeviceRequest{NodeId: node, DeviceId: device, Virtualization: poolv1.SetPoolDeviceRequest_VIRTUALIZATION_ON}); err == nil {
		return fmt.Errorf("device %s was switched while a task used it", all[0])
	}
	if err := card.end(ctx); err != nil {
		return err
	}
	return part.end(ctx)
}

func devices(ctx context.Context, b *bench) error {
	at := b.first()
	on := []string{"--on", at, "--compute", "10", "--memory", "64" + mib}
	for _, off := range []bool{true, false} {
		to := poolv1.SetPoolDeviceRequest_VIRTUALIZATION_ON
		word, button := "Virtual", "Virtualization on"
		if off {
			to, word, button = poolv1.SetPoolDeviceRequest_VIRTUALIZATION_OFF, "Physical card", "Virtualization off"
		}
		if err := b.press(ctx, at, button, &poolv1.SetPoolDeviceRequest{Virtualization: to}); err != nil {
			return err
		}
		if err := b.look(ctx, "nodes", at, word); err != nil {
			return err
		}
		said, err := b.run(ctx, on, b.Program, "add")
		if off {
			err = refused(said, err, "the virtualization of all is off")
		}
		if err != nil {
			return fmt.Errorf("virtualization off %v: %w: %s", off, err, said)
		}
	}
	_, device, _ := strings.Cut(at, "/")
	if err := b.press(ctx, at, "Disable "+device, &poolv1.SetPoolDeviceRequest{Disabled: new(true)}); err != nil {
		return err
	}
	if err := b.look(ctx, "nodes", at, "Device disabled"); err != nil {
		return err
	}
	return b.waitsUntil(ctx, at, func() error {
		return b.press(ctx, at, "Enable "+device, &poolv1.SetPoolDeviceRequest{Disabled: new(false)})
	})
}

// waitsUntil expects that a task there waits until something is done, and then runs.
func (b *bench) waitsUntil(ctx context.Context, at string, do func() error) error {
	t, err := b.start(ctx, []string{"--on", at, "--compute", "10", "--memory", "64" + mib}, b.Program, "add")
	if err != nil {
		return err
	}
	if err := b.until(ctx, "the task waits", func() (bool, error) {
		list, err := b.slices(ctx, b.name)
		return len(list) > 0 && list[0].State == poolv1.Slice_STATE_WAITING, err
	}); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	if err := t.expect(ctx, "sum "); err != nil {
		return err
	}
	return t.wait(ctx)
}

func nodeManagement(ctx context.Context, b *bench) error {
	n := b.nodes[0]
	if n.Version == "" || len(n.Addresses) == 0 || n.LastSeenAt == nil || n.Devices[0].Model == "" || n.Devices[0].MemoryMib == 0 {
		return fmt.Errorf("the node's details are %v", n)
	}
	set := func(ctx context.Context, mode poolv1.PoolNode_Mode) error {
		_, err := b.API.SetPoolNode(ctx, &poolv1.SetPoolNodeRequest{NodeId: n.NodeId, Mode: mode})
		return err
	}
	b.later(func(ctx context.Context) error { return set(ctx, poolv1.PoolNode_MODE_ENABLED) })
	press := func(ctx context.Context, button string, mode poolv1.PoolNode_Mode) error {
		if b.Press == nil {
			return set(ctx, mode)
		}
		return b.Press(ctx, "nodes", n.NodeId, button+" "+n.NodeId, "")
	}
	if err := press(ctx, "Disable", poolv1.PoolNode_MODE_DISABLED); err != nil {
		return err
	}
	if err := b.look(ctx, "nodes", n.NodeId, "Disabled"); err != nil {
		return err
	}
	if err := b.waitsUntil(ctx, n.NodeId, func() error { return press(ctx, "Enable", poolv1.PoolNode_MODE_ENABLED) }); err != nil {
		return err
	}
	return b.look(ctx, "nodes", n.NodeId, "Online")
}

func migration(ctx context.Context, b *bench) error {
	var at, to string
	for _, x := range b.nodes {
		for _, y := range b.nodes {
			for _, d := range x.Devices {
				for _, e := range y.Devices {
					if at == "" && x != y && x.Version == y.Version && d.Model == e.Model && d.Driver == e.Driver {
						at, to = x.NodeId+"/"+d.DeviceId, y.NodeId+"/"+e.DeviceId
					}
				}
			}
		}
	}
	if at == "" {
		return absent{"there are no two nodes of one version with a card of one model and driver"}
	}
	t, x, err := b.walking(ctx, "--on", at, "--compute", "50", "--memory", "64"+mib)
	if err != nil {
		return err
	}
	for range 2 { // there, and back
		node, device, _ := strings.Cut(to, "/")
		if b.Press != nil {
			if err := b.Press(ctx, "slices", x.SliceId, "Migrate", to); err != nil {
				return err
			}
		}
		if err := b.until(ctx, "the task is at "+to, func() (bool, error) {
			x, err = b.API.MoveSlice(ctx, &poolv1.MoveSliceRequest{SliceId: x.SliceId, NodeId: node, DeviceId: device, WaitMs: 5000})
			if err == nil && (x.MoveError != "" || x.State != poolv1.Slice_STATE_RUNNING) {
				err = fmt.Errorf("not moved: %v", x)
			}
			return err == nil && x.MovingToNodeId == "" && x.NodeId == node && x.DeviceId == device && x.PauseMicros > 0, err
		}); err != nil {
			return err
		}
		if err := b.look(ctx, "slices", x.SliceId, to); err != nil {
			return err
		}
		at, to = to, at
	}
	return t.end(ctx)
}

func isolation(ctx context.Context, b *bench) error {
	t, x, err := b.walking(ctx, "--on", b.first(), "--compute", "40", "--memory", "64"+mib)
	if err != nil {
		return err
	}
	bad := func(program ...string) (string, error) {
		return b.run(ctx, []string{"--on", b.first(), "--compute", "40", "--memory", "3" + mib}, append([]string{b.Program}, program...)...)
	}
	for _, x := range []struct {
		what    string
		program []string
		says    *regexp.Regexp
	}{{"out of memory", []string{"fill", "20"}, regexp.MustCompile(`^buffers 3 error -4$`)}, {"a kernel that writes where it must not", []string{"crash"}, crashed}} {
		said, err := bad(x.program...)
		if err == nil && !x.says.MatchString(said) { // the program goes on, and is told by an error
			err = fmt.Errorf("it does not say %s", x.says)
		}
		if err != nil {
			return fmt.Errorf("%s: %w: %s", x.what, err, said)
		}
	}
	before, err := b.slice(ctx, x.SliceId)
	if err != nil {
		return err
	}
	if err := b.until(ctx, "the other computes on", func() (bool, error) {
		now, err := b.slice(ctx, x.SliceId)
		return err == nil && now.State == poolv1.Slice_STATE_RUNNING && now.DeviceMicros > before.DeviceMicros, err
	}); err != nil {
		return err
	}
	return t.end(ctx)
}

// crashed is what a program says whose kernel has crashed.
var crashed = regexp.MustCompile(`(?m)^crash -[1-9][0-9]*$`)

func scale(ctx context.Context, b *bench) error {
	if b.AddNode == nil {
		return absent{"no pool node can be started here"}
	}
	runs, _, err := b.walking(ctx, "--on", b.first(), "--compute", "20", "--memory", "64"+mib)
	if err != nil {
		return err
	}
	n, err := b.AddNode(ctx)
	if err != nil {
		return err
	}
	b.later(func(ctx context.Context) error { // it leaves, if it has not
		defer n.Stop()
		drain := &poolv1.SetPoolNodeRequest{NodeId: n.ID, Mode: poolv1.PoolNode_MODE_DRAINING}
		return b.until(ctx, "the node has left", func() (bool, error) {
			_, err := b.API.SetPoolNode(ctx, drain)
			return connect.CodeOf(err) == connect.CodeNotFound, nil
		})
	})
	cards := func() (all []string, err error) {
		list, err := b.API.ListPoolNodes(ctx, &poolv1.ListPoolNodesRequest{})
		if err != nil {
			return nil, err
		}
		for _, x := range list.Nodes {
			for _, d := range x.Devices {
				if x.NodeId == n.ID && x.Online && d.Api != pool.CUDA {
					all = append(all, d.DeviceId)
				}
			}
		}
		return all, nil
	}
	has := func(what string, enough func(int) bool) (all []string, err error) {
		err = b.until(ctx, "node "+n.ID+" "+what, func() (is bool, err error) {
			all, err = cards()
			return enough(len(all)), err
		})
		return all, err
	}
	before, err := has("is there with its cards", func(count int) bool { return count > 0 })
	if err != nil {
		return err
	}
	as := func(want int) func(int) bool { return func(count int) bool { return count == want } }
	if n.Card == nil {
		return absent{"no card can be put into a node here; nodes come and go"}
	}
	if err := n.Card(true); err != nil {
		return err
	}
	after, err := has("has one more card", func(count int) bool { return count > len(before) })
	if err != nil {
		return err
	}
	added := slices.DeleteFunc(after, func(d string) bool { return slices.Contains(before, d) })[0]
	onCard, _, err := b.walking(ctx, "--on", n.ID+"/"+added, "--compute", "20", "--memory", "64"+mib)
	if err != nil {
		return err
	}
	if err := n.Card(false); err != nil {
		return err
	}
	if err := b.until(ctx, "the card is gone and its task runs", func() (bool, error) {
		d, err := b.device(ctx, n.ID+"/"+added)
		return err == nil && !d.Present && d.Slices == 1, err
	}); err != nil {
		return err
	}
	if err := onCard.end(ctx); err != nil {
		return err
	}
	if _, err := has("is without that card", as(len(before))); err != nil {
		return err
	}
	onNode, _, err := b.walking(ctx, "--on", n.ID, "--compute", "20", "--memory", "64"+mib)
	if err != nil {
		return err
	}
	if _, err := b.API.SetPoolNode(ctx, &poolv1.SetPoolNodeRequest{NodeId: n.ID, Mode: poolv1.PoolNode_MODE_DRAINING}); err != nil {
		return err
	}
	if err := b.look(ctx, "nodes", n.ID, "Draining"); err != nil {
		return err
	}
	if all, err := cards(); err != nil || len(all) != len(before) {
		return fmt.Errorf("the node left while a task ran there: %v %w", all, err)
	}
	if err := onNode.end(ctx); err != nil {
		return err
	}
	if _, err := has("has left", as(0)); err != nil {
		return err
	}
	return runs.end(ctx)
}

func heterogeneous(ctx context.Context, b *bench) error {
	kinds := map[string]string{}
	for _, n := range b.nodes {
		for _, d := range n.Devices {
			kinds[d.Vendor+" "+d.Driver] = n.NodeId + "/" + d.DeviceId
		}
	}
	if len(kinds) < 2 {
		return absent{"all cards are of one vendor and driver"}
	}
	for _, off := range []bool{true, false} {
		to, word, button := poolv1.SetPoolDeviceRequest_VIRTUALIZATION_ON, "Virtual", "Virtualization on"
		if off {
			to, word, button = poolv1.SetPoolDeviceRequest_VIRTUALIZATION_OFF, "Physical card", "Virtualization off"
		}
		for _, at := range kinds {
			if err := b.press(ctx, at, button, &poolv1.SetPoolDeviceRequest{Virtualization: to}); err != nil {
				return err
			}
			if err := b.until(ctx, fmt.Sprintf("device %s is physical: %v", at, off), func() (bool, error) {
				d, err := b.device(ctx, at)
				return err == nil && d.Physical == off, err
			}); err != nil {
				return err
			}
			if err := b.look(ctx, "nodes", at, word); err != nil {
				return err
			}
		}
	}
	for kind, at := range kinds {
		node, device, _ := strings.Cut(at, "/")
		x, err := b.hold(ctx, &poolv1.RequestSliceRequest{ComputePercent: 50, NodeId: node, DeviceId: device})
		if err != nil {
			return fmt.Errorf("on %s: %w", kind, err)
		}
		if said, err := b.run(ctx, []string{"--slice", x.SliceId}, b.Program, "add", "3"); err != nil {
			return fmt.Errorf("on %s: %w: %s", kind, err, said)
		}
		if err := b.until(ctx, "a task has used "+at+", "+kind, func() (bool, error) {
			x, err = b.slice(ctx, x.SliceId)
			return err == nil && x.NodeId == node && x.DeviceId == device && x.DeviceMicros > 0, err
		}); err != nil {
			return fmt.Errorf("%w: the slice is %v", err, x)
		}
	}
	return nil
}
