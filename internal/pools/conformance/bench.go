package conformance

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/pool"
)

// bench is a Bench during one check.
type bench struct {
	Bench
	name  string
	nodes []*poolv1.PoolNode // that lend, when the check began
	undo  []func(context.Context) error
}

// later has something put back when the check ends, last first.
func (b *bench) later(f func(context.Context) error) { b.undo = append(b.undo, f) }

func (b *bench) putBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var errs []error
	for _, f := range slices.Backward(b.undo) {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}

// begin makes the group that the checks act for.
func (b *bench) begin(ctx context.Context) error {
	if err := b.group(ctx, b.name, &poolv1.PoolGroup{MaxPriority: 100}); err != nil {
		return err
	}
	list, err := b.lending(ctx)
	if err == nil && len(list) == 0 {
		err = absent{"the pool has no node that lends"}
	}
	b.nodes = list
	return err
}

func (b *bench) lending(ctx context.Context) ([]*poolv1.PoolNode, error) {
	res, err := b.API.ListPoolNodes(ctx, &poolv1.ListPoolNodesRequest{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(res.Nodes, func(n *poolv1.PoolNode) bool {
		// The checks' program is one of OpenCL.
		n.Devices = slices.DeleteFunc(n.Devices, func(d *poolv1.PoolDevice) bool { return d.Api == pool.CUDA })
		return !n.Online || n.Mode != poolv1.PoolNode_MODE_ENABLED || len(n.Devices) == 0
	}), nil
}

func (b *bench) group(ctx context.Context, id string, g *poolv1.PoolGroup) error {
	if g.TenantIds == nil {
		g.TenantIds = []string{b.Tenant}
	}
	if _, err := b.API.SetPoolGroup(ctx, &poolv1.SetPoolGroupRequest{GroupId: id, Group: g}); err != nil {
		return err
	}
	b.later(func(ctx context.Context) error {
		res, err := b.API.ListSlices(ctx, &poolv1.ListSlicesRequest{GroupId: id})
		if err != nil {
			return err
		}
		for _, x := range res.Slices {
			if _, err := b.API.ReleaseSlice(ctx, &poolv1.ReleaseSliceRequest{SliceId: x.SliceId}); err != nil {
				return err
			}
		}
		_, err = b.API.DeletePoolGroup(ctx, &poolv1.DeletePoolGroupRequest{GroupId: id})
		return err
	})
	return nil
}

// two returns two nodes, or says that there are none.
func (b *bench) two() (x, y *poolv1.PoolNode, err error) {
	if len(b.nodes) < 2 {
		return nil, nil, absent{"the pool has one node only that lends; this needs two"}
	}
	return b.nodes[0], b.nodes[1], nil
}

// first is a device that all checks of one device use, as NODE/DEVICE.
func (b *bench) first() string { return b.nodes[0].NodeId + "/" + b.nodes[0].Devices[0].DeviceId }

func (b *bench) device(ctx context.Context, at string) (*poolv1.PoolDevice, error) {
	res, err := b.API.ListPoolNodes(ctx, &poolv1.ListPoolNodesRequest{})
	if err != nil {
		return nil, err
	}
	for _, n := range res.Nodes {
		for _, d := range n.Devices {
			if n.NodeId+"/"+d.DeviceId == at {
				return d, nil
			}
		}
	}
	return nil, fmt.Errorf("device %s is not listed", at)
}

// set changes a device until the check ends.
func (b *bench) set(ctx context.Context, at string, change *poolv1.SetPoolDeviceRequest) error {
	was, err := b.device(ctx, at)
	if err != nil {
		return err
	}
	change.NodeId, change.DeviceId, _ = strings.Cut(at, "/")
	if _, err := b.API.SetPoolDevice(ctx, change); err != nil {
		return err
	}
	back := &poolv1.SetPoolDeviceRequest{NodeId: change.NodeId, DeviceId: change.DeviceId, Disabled: &was.Disabled, ComputeLimitPercent: was.ComputeLimitPercent, MemoryLimitPercent: was.MemoryLimitPercent, Virtualization: poolv1.SetPoolDeviceRequest_VIRTUALIZATION_ON}
	if was.Physical {
		back.Virtualization = poolv1.SetPoolDeviceRequest_VIRTUALIZATION_OFF
	}
	b.later(func(ctx context.Context) error {
		return b.until(ctx, "device "+at+" is as it was", func() (bool, error) {
			_, err := b.API.SetPoolDevice(ctx, back)
			return err == nil, nil // its slices end first
		})
	})
	return nil
}

// press is set by a person, where there is one.
func (b *bench) press(ctx context.Context, at, button string, change *poolv1.SetPoolDeviceRequest) error {
	if b.Press == nil {
		return b.set(ctx, at, change)
	}
	if err := b.set(ctx, at, &poolv1.SetPoolDeviceRequest{}); err != nil { // and put back later
		return err
	}
	return b.Press(ctx, "nodes", at, button, "")
}

// until waits until something is so.
func (b *bench) until(ctx context.Context, what string, is func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 45*time.Second)
	defer cancel()
	for {
		ok, err := is()
		if err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not so in 45 s", what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// task is a program that runs on a slice.
type task struct {
	b     *bench
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // that it printed
	ended chan error
	mu    sync.Mutex
	said  bytes.Buffer // on its terminal, by yunhe and by itself
}

func (t *task) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.said.Write(p)
}

func (t *task) terminal() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(t.said.String())
}

// start runs a command on a slice; flags are of yunhe pool run. Its name in the
// pool is the program's.
func (b *bench) start(ctx context.Context, flags []string, program ...string) (*task, error) {
	return b.startAs(ctx, "", nil, append([]string{"--group", b.name}, flags...), program...)
}

func (b *bench) startAs(ctx context.Context, key string, env, flags []string, program ...string) (*task, error) {
	args := append(append([]string{"pool", "run", "--platform"}, flags...), "--")
	t := &task{b: b, cmd: b.Yunhe(ctx, key, env, append(args, program...)...), lines: make(chan string, 100), ended: make(chan error, 1)}
	t.cmd.Stderr = t
	var err error
	if t.in, err = t.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			_, _ = t.Write(append(s.Bytes(), '\n')) // a buffer takes it
			select {
			case t.lines <- s.Text():
			default: // nobody reads so many
			}
		}
		err := t.cmd.Wait()
		close(t.lines)
		t.ended <- err
	}()
	b.later(func(context.Context) error {
		_ = t.in.Close()
		_ = t.cmd.Cancel() // or it has ended
		return nil
	})
	return t, nil
}

// line is the next that the program prints.
func (t *task) line(ctx context.Context) (string, error) {
	select {
	case s, ok := <-t.lines:
		if !ok {
			return "", fmt.Errorf("the task ended: %s", t.terminal())
		}
		return s, nil
	case <-ctx.Done():
		return "", fmt.Errorf("the task printed nothing: %s", t.terminal())
	}
}

// expect waits for a line.
func (t *task) expect(ctx context.Context, want string) error {
	got, err := t.line(ctx)
	if err == nil && !strings.HasPrefix(got, want) {
		err = fmt.Errorf("the task printed %q, not %q", got, want)
	}
	return err
}

// end tells a program that walks to end, and expects that all its steps were right.
func (t *task) end(ctx context.Context) error { return t.endWith(ctx, "walked ") }

func (t *task) endWith(ctx context.Context, word string) error {
	if _, err := io.WriteString(t.in, "\n"); err != nil {
		return fmt.Errorf("the task has ended: %s", t.terminal())
	}
	if err := t.expect(ctx, word); err != nil {
		return err
	}
	return t.wait(ctx)
}

func (t *task) wait(ctx context.Context) error {
	select {
	case err := <-t.ended:
		t.ended <- err
		if err != nil {
			return fmt.Errorf("the task failed: %w: %s", err, t.terminal())
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the task does not end: %s", t.terminal())
	}
}

// run is a program's whole run, and what it and yunhe said.
func (b *bench) run(ctx context.Context, flags []string, program ...string) (string, error) {
	return b.runAs(ctx, "", nil, append([]string{"--group", b.name}, flags...), program...)
}

func (b *bench) runAs(ctx context.Context, key string, env, flags []string, program ...string) (string, error) {
	t, err := b.startAs(ctx, key, env, flags, program...)
	if err != nil {
		return "", err
	}
	_ = t.in.Close()
	err = t.wait(ctx)
	return t.terminal(), err
}

// walking starts a program that computes until it is told to end, checks each of
// its steps, and has a slice of this name's spec.
func (b *bench) walking(ctx context.Context, flags ...string) (*task, *poolv1.Slice, error) {
	seen := map[string]bool{}
	list, err := b.slices(ctx, b.name)
	if err != nil {
		return nil, nil, err
	}
	for _, x := range list {
		seen[x.SliceId] = true
	}
	t, err := b.start(ctx, flags, b.Program, "walk", "1")
	if err != nil {
		return nil, nil, err
	}
	if err := t.expect(ctx, "walking"); err != nil {
		return nil, nil, err
	}
	var got *poolv1.Slice
	err = b.until(ctx, "the task runs", func() (bool, error) {
		list, err := b.slices(ctx, b.name)
		i := slices.IndexFunc(list, func(x *poolv1.Slice) bool {
			return !seen[x.SliceId] && x.State == poolv1.Slice_STATE_RUNNING
		})
		if i >= 0 {
			got = list[i]
		}
		return i >= 0, err
	})
	return t, got, err
}

// slices are those of a group that have not ended, newest first.
func (b *bench) slices(ctx context.Context, group string) ([]*poolv1.Slice, error) {
	res, err := b.API.ListSlices(ctx, &poolv1.ListSlicesRequest{GroupId: group})
	if err != nil {
		return nil, err
	}
	return res.Slices, nil
}

// slice is one of the group's, as it is now.
func (b *bench) slice(ctx context.Context, id string) (*poolv1.Slice, error) {
	all := []poolv1.Slice_State{poolv1.Slice_STATE_WAITING, poolv1.Slice_STATE_ASSIGNED, poolv1.Slice_STATE_RUNNING, poolv1.Slice_STATE_ENDED}
	res, err := b.API.ListSlices(ctx, &poolv1.ListSlicesRequest{States: all, PageSize: 200})
	if err != nil {
		return nil, err
	}
	for _, x := range res.Slices {
		if x.SliceId == id {
			return x, nil
		}
	}
	return nil, fmt.Errorf("slice %s is not listed", id)
}

// look asks a person's view where there is one.
func (b *bench) look(ctx context.Context, tab string, want ...string) error {
	if b.Look == nil {
		return nil
	}
	return b.Look(ctx, tab, want...)
}
