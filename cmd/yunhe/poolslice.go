package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools/agent"
)

// policyFlags say where slices go.
type policyFlags struct{ local, nodes, devices string }

func (p *policyFlags) flags(cmd *cobra.Command, without string) {
	f := cmd.Flags()
	f.StringVar(&p.local, "local", "", "any, first (the node on this machine, if it has room) or only (default: "+without+")")
	f.StringVar(&p.nodes, "nodes", "", "balanced or compact: where most, or least, is free (default: "+without+")")
	f.StringVar(&p.devices, "devices", "", "balanced or compact, among a node's devices (default: "+without+")")
}

func (p *policyFlags) policy() (*poolv1.PoolPolicy, error) {
	out := &poolv1.PoolPolicy{}
	for _, x := range []struct {
		flag, value string
		names       map[string]int32
		prefix      string
		set         func(int32)
	}{
		{"--local", p.local, poolv1.PoolPolicy_Local_value, "LOCAL_", func(n int32) { out.Local = poolv1.PoolPolicy_Local(n) }},
		{"--nodes", p.nodes, poolv1.PoolPolicy_Spread_value, "SPREAD_", func(n int32) { out.Nodes = poolv1.PoolPolicy_Spread(n) }},
		{"--devices", p.devices, poolv1.PoolPolicy_Spread_value, "SPREAD_", func(n int32) { out.Devices = poolv1.PoolPolicy_Spread(n) }},
	} {
		if x.value == "" {
			continue
		}
		n := x.names[x.prefix+strings.ToUpper(x.value)]
		if n == 0 {
			return nil, usagef("%s: there is no policy %q; see --help", x.flag, x.value)
		}
		x.set(n)
	}
	return out, nil
}

// sliceFlags say what is asked of the platform's pool, beside what is asked of a
// node.
type sliceFlags struct {
	group, spec, on, slice string
	socket                 string // of the node on this machine, as this process is shown it
	affinity, apart        string
	priority               int32
	platform, physical     bool
	cards                  int32
	across                 bool
	policy                 policyFlags
}

func (s *sliceFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.spec, "spec", "", "specification to ask the platform's pool for, instead of --compute and --memory")
	f.StringVar(&s.on, "on", "", "node of the platform's pool to use, NODE or NODE/DEVICE")
	f.Int32Var(&s.priority, "priority", 0, "in the queue of the platform's pool, 0 to 100")
	f.BoolVar(&s.physical, "physical", false, "a whole card of the platform's pool whose virtualization is off, instead of --compute and --memory")
	f.StringVar(&s.affinity, "affinity", "", "a name: slices of the group with the same one are on one device")
	f.StringVar(&s.apart, "anti-affinity", "", "a name: slices of the group with the same one are on different devices")
	f.Int32Var(&s.cards, "cards", 1, "cards of the platform's pool, each with --compute and --memory: the program finds so many devices; those of CUDA are of the node on its machine")
	f.BoolVar(&s.across, "across-nodes", false, "each of --cards on another node")
	s.policy.flags(cmd, "as the platform's pool says")
}

// only reports whether the slice is to be on the node of this machine, or is not had.
func (s *sliceFlags) only() bool { return strings.EqualFold(s.policy.local, "only") }

// checkSocket refuses a socket that programs would not find, or that may be another node's.
func (s *sliceFlags) checkSocket() error {
	switch {
	case s.socket == "":
		return nil
	case !filepath.IsAbs(s.socket):
		return usagef("--node-socket must be an absolute path, which programs find, too, got %q", s.socket)
	case !s.only():
		return usagef("--node-socket goes with --local only: it is that of the node on this machine")
	}
	return nil
}

// opens looks whether the node's socket can be opened, if one is named: a slice's node is
// tried again and again.
func (s *sliceFlags) opens(ctx context.Context) error {
	if s.socket == "" {
		return nil
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", s.socket)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "--node-socket must be the shared socket of a platform's pool node on this machine, %s in its folder", pool.SharedSocket)
	}
	return conn.Close()
}

func (s *sliceFlags) request(spec pool.Spec) (*poolv1.RequestSliceRequest, error) {
	r := &poolv1.RequestSliceRequest{RequestId: core.NewID("request"), GroupId: s.group, SpecId: s.spec, Api: spec.API, Model: spec.Model, Priority: s.priority, Host: pool.Host(), Name: spec.Name, IdleSeconds: spec.Idle, LimitSeconds: spec.Limit,
		Physical: s.physical, Affinity: s.affinity, AntiAffinity: s.apart, AcrossNodes: s.across}
	if s.cards != 1 {
		if s.cards < 1 {
			return nil, usagef("--cards must be 1 to 16, got %d", s.cards)
		}
		r.Cards = s.cards
	}
	if s.spec == "" && !s.physical {
		if spec.Memory == 0 {
			return nil, usagef("one of --memory SIZE, --spec and --physical is needed: the platform's pool lends so much")
		}
		r.ComputePercent, r.MemoryMib, r.Weighted = spec.Compute, spec.Memory>>20, spec.Weighted
	}
	r.NodeId, r.DeviceId, _ = strings.Cut(s.on, "/")
	var err error
	r.Policy, err = s.policy.policy()
	return r, err
}

// take gets slices of the platform's pool for a program, waiting in the queue with
// a line of progress, and begins their tasks.
func (c *cli) take(ctx context.Context, a *api, s *sliceFlags, spec pool.Spec) ([]*agent.Task, error) {
	id, said := s.slice, ""
	waits := func(x *poolv1.Slice) {
		if now := strconv.FormatInt(x.Position, 10) + x.Reason; now != said && x.State == poolv1.Slice_STATE_WAITING {
			said = now
			c.note("yunhe pool: slice %s waits, %d in the queue: %s", x.SliceId, x.Position, x.Reason)
		}
	}
	if id == "" {
		r, err := s.request(spec)
		if err == nil {
			err = s.opens(ctx)
		}
		if err != nil {
			return nil, err
		}
		x, err := a.pool.RequestSlice(ctx, r)
		if err != nil {
			return nil, err
		}
		id = x.SliceId
		waits(x)
	}
	t, err := agent.TakeAll(ctx, a.pool, agent.Awaited{Slice: id, Socket: s.socket, Waits: waits})
	if err != nil && s.slice == "" { // nobody has a use of it any more
		bye, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer stop()
		_, _ = a.pool.ReleaseSlice(bye, &poolv1.ReleaseSliceRequest{SliceId: id}) // or it ends when nobody awaits it
	}
	if err == nil && t[0].API == pool.CUDA {
		inOrder(t)
	}
	return t, err
}

func poolSliceState(x *poolv1.Slice) string {
	state := enumName(x.State.String(), "STATE_")
	if x.Position > 0 {
		state += " " + strconv.FormatInt(x.Position, 10)
		if x.Priority != 0 {
			state += fmt.Sprintf(", priority %d", x.Priority)
		}
		if x.JobPriority != 0 {
			state += fmt.Sprintf(", its job's priority %d", x.JobPriority)
		}
	}
	if x.MovingToNodeId != "" {
		state += ", moving to " + x.MovingToNodeId + "/" + x.MovingToDeviceId
	}
	return state
}

func (c *cli) printSlices(msg any, list ...*poolv1.Slice) error {
	t := text.NewTable("SLICE", "STATE", "PROGRAM", "GROUP", "USER", "NODE", "DEVICE", "API", ">COMPUTE", ">MEMORY", ">USED", ">DEVICE TIME", "REASON")
	var names []string
	for _, x := range list {
		names = append(names, x.SliceId)
		state := poolSliceState(x)
		if n := len(x.CardSliceIds); n > 1 {
			state += fmt.Sprintf(", card %d of %d", slices.Index(x.CardSliceIds, x.SliceId)+1, n)
		}
		share := strconv.FormatInt(x.ComputePercent, 10) + "%"
		if x.Weighted {
			share += " weight"
		}
		if x.Physical {
			share = "card"
		}
		t.Row(x.SliceId, state, x.Name, x.GroupId, x.UserId, x.NodeId, x.DeviceId, x.Api, share, text.Bytes(x.MemoryMib<<20), text.Bytes(x.MemoryUsedBytes),
			(time.Duration(x.DeviceMicros) * time.Microsecond).Round(time.Millisecond).String(), x.Reason)
	}
	return c.print(result{msg: msg, names: names, print: func(w io.Writer, color bool) error {
		if t.Len() == 0 {
			c.note("there are no slices; `yunhe pool run` asks for one")
			return nil
		}
		return t.Write(w, color)
	}})
}

func poolSliceListCommand(c *cli) *cobra.Command {
	var all bool
	var on string
	req := &poolv1.ListSlicesRequest{}
	cmd := &cobra.Command{
		Use: "list", Short: "List slices: what waits, is held and runs",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if all {
				req.States = []poolv1.Slice_State{poolv1.Slice_STATE_WAITING, poolv1.Slice_STATE_ASSIGNED, poolv1.Slice_STATE_RUNNING, poolv1.Slice_STATE_ENDED}
			}
			req.NodeId, req.DeviceId, _ = strings.Cut(on, "/")
			res, err := a.pool.ListSlices(cmd.Context(), req)
			if err != nil {
				return err
			}
			return c.printSlices(res, res.Slices...)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "those that have ended, too")
	f.StringVar(&req.GroupId, "group", "", "only of this group")
	f.StringVar(&on, "node", "", "only on this node, or NODE/DEVICE: only on this device of it")
	f.Int32Var(&req.PageSize, "limit", 100, "how many at most, 1 to 1000")
	return cmd
}

func poolSliceHoldCommand(c *cli) *cobra.Command {
	var s sliceFlags
	var spec pool.Spec
	var mem string
	cmd := &cobra.Command{
		Use: "hold", Short: "Ask for a slice that is held until it is released",
		Long: `Asks for a slice that is held until it is released. Programs run on it with "yunhe
pool run --slice SLICE"; several at once share it.`,
		Example: "  yunhe pool slice hold --group team-a --compute 30 --memory 2GiB",
		Args:    takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := errors.Join(sliceConflicts(cmd), checkAPI(spec.API))
			if err == nil && (spec.Compute < 1 || spec.Compute > 100) {
				err = usagef("--compute must be 1 to 100, got %d", spec.Compute)
			}
			if err == nil {
				spec.Memory, err = mebibytes("--memory", mem)
			}
			if err != nil {
				return err
			}
			r, err := s.request(spec)
			if err != nil {
				return err
			}
			r.Fixed = true
			a, err := c.api()
			if err != nil {
				return err
			}
			x, err := a.pool.RequestSlice(cmd.Context(), r)
			if err != nil {
				return err
			}
			return c.printSlices(x, x)
		},
	}
	s.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&s.group, "group", "", "logical group to act for (default: the only one that you may use)")
	f.StringVar(&spec.Name, "name", "", "what it is for, for people")
	apiFlag(cmd, &spec)
	f.StringVar(&spec.Model, "model", "", "a part of the name of the model to use")
	f.Int64Var(&spec.Compute, "compute", 100, "percent of the device's time")
	f.BoolVar(&spec.Weighted, "weighted", false, "take --compute as a weight: use what others leave, too")
	f.StringVar(&mem, "memory", "", "memory of the device, such as 1234MiB; needed without --spec and --physical")
	return cmd
}

func poolSliceResizeCommand(c *cli) *cobra.Command {
	var compute int64
	var mem string
	cmd := &cobra.Command{
		Use: "resize SLICE", Short: "Change what a slice has while its program computes",
		Example: "  yunhe pool slice resize slice_01J... --compute 50 --memory 2GiB",
		Args:    takes(1, 1, "the ID of a slice"),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := resized(cmd, compute, mem)
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			x, err := a.pool.ResizeSlice(cmd.Context(), &poolv1.ResizeSliceRequest{SliceId: args[0], ComputePercent: compute, MemoryMib: size >> 20})
			if err != nil {
				return err
			}
			return c.printSlices(x, x)
		},
	}
	cmd.Flags().Int64Var(&compute, "compute", 0, "percent of the device's time")
	cmd.Flags().StringVar(&mem, "memory", "", "memory of the device, such as 1234MiB")
	return cmd
}

func poolSliceMigrateCommand(c *cli) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use: "migrate SLICE", Short: "Move a slice to another node or device while its programs compute",
		Long: `Moves a slice with its programs to a device of the same model and driver, at a node
of the same version. Programs are stopped between two calls for as long as it takes
to copy what changed last, and go on there; they notice nothing. If it fails, they
go on where they were. A slice of CUDA moves only while no program runs on it.`,
		Example: "  yunhe pool slice migrate slice_01J... --to n2\n  yunhe pool slice migrate slice_01J... --to n1/opencl-1",
		Args:    takes(1, 1, "the ID of a slice"),
		RunE: func(cmd *cobra.Command, args []string) error {
			node, device, _ := strings.Cut(to, "/")
			if node == "" {
				return usagef("--to is needed: NODE or NODE/DEVICE")
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			req := &poolv1.MoveSliceRequest{SliceId: args[0], NodeId: node, DeviceId: device, WaitMs: 5000}
			x, err := a.pool.MoveSlice(cmd.Context(), req)
			for err == nil && x.MovingToNodeId != "" {
				req.DeviceId = x.MovingToDeviceId
				x, err = a.pool.MoveSlice(cmd.Context(), req)
			}
			if cmd.Context().Err() != nil {
				c.note("yunhe pool: if slice %s was on its way, it goes on: `yunhe pool slice list` shows where it is", args[0])
			}
			switch {
			case err != nil:
				return err
			case x.MoveError != "":
				return fault.New(fault.Unavailable, "slice %s was not moved: %s", x.SliceId, x.MoveError)
			case x.State == poolv1.Slice_STATE_ENDED:
				return fault.New(fault.Unavailable, "slice %s has ended: %s", x.SliceId, x.Reason)
			}
			if x.PauseMicros > 0 {
				c.note("moved; its programs stood still for %s", (time.Duration(x.PauseMicros) * time.Microsecond).Round(100*time.Microsecond))
			}
			return c.printSlices(x, x)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "NODE or NODE/DEVICE to move to")
	return cmd
}

func poolSliceReleaseCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "release SLICE...", Short: "End slices: what their programs call fails from then on",
		Long: `Ends slices. Their programs are not ended: what they call fails from then on.
Programs of CUDA that compute on the node's machine themselves are killed (SIGKILL),
as nothing else gives back their memory.`,
		Args: takes(1, -1, "the ID of a slice"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.eachDone(args, "sliceIds", "released", func(a *api, id string) error {
				_, err := a.pool.ReleaseSlice(cmd.Context(), &poolv1.ReleaseSliceRequest{SliceId: id})
				return err
			})
		},
	}
}

func poolPolicyCommand(c *cli) *cobra.Command {
	var p policyFlags
	cmd := &cobra.Command{
		Use: "policy", Short: "Show where slices of the platform's pool go, or set it",
		Example: "  yunhe pool policy\n  yunhe pool policy --local first --nodes compact",
		Args:    takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			want, err := p.policy()
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			var got *poolv1.PoolPolicy
			if p == (policyFlags{}) {
				got, err = a.pool.GetPoolPolicy(cmd.Context(), &poolv1.GetPoolPolicyRequest{})
			} else {
				got, err = a.pool.SetPoolPolicy(cmd.Context(), &poolv1.SetPoolPolicyRequest{Policy: want})
			}
			if err != nil {
				return err
			}
			return c.print(result{msg: got, print: func(w io.Writer, color bool) error {
				var f text.Facts
				f.Add("Local", enumName(got.Local.String(), "LOCAL_"))
				f.Add("Nodes", enumName(got.Nodes.String(), "SPREAD_"))
				f.Add("Devices", enumName(got.Devices.String(), "SPREAD_"))
				return f.Write(w, color)
			}})
		},
	}
	p.flags(cmd, "as it is")
	return cmd
}
