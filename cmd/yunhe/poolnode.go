package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools/agent"
	"yunhe.dev/yunhe/internal/release"
)

// joinFlags say of which platform a pool node is.
type joinFlags struct {
	platform, token, name string
	advertise             []string
}

func (j *joinFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&j.platform, "join", "", "address of the platform whose pool the node joins, such as http://10.0.0.1:8180; once")
	f.StringVar(&j.token, "token", "", `what the platform's "yunhe pool node token" printed; with --join`)
	f.StringVar(&j.name, "name", "", "what the node is called in the pool; with --join (default: the host's name)")
	f.StringArrayVar(&j.advertise, "advertise", nil, "address under which programs reach the node, tcp:HOST:PORT, where it is not one of --listen; may be repeated")
}

// nodeFlags checks what of a node's flags can be known before it starts.
func nodeFlags(cmd *cobra.Command, listen, advertise []string, libraries string, overcommit, memoryOver int64) error {
	if of := given(cmd, serverFlags...); len(of) > 0 {
		return usagef("%s is of clients of a platform; a node joins one with --join and --token", of[0])
	}
	for flag, list := range map[string][]string{"--listen": listen, "--advertise": advertise} {
		for _, at := range list {
			if _, _, err := pool.Address(at); err != nil {
				return usagef("%s: %s", flag, err)
			}
		}
	}
	for flag, percent := range map[string]int64{"--overcommit": overcommit, "--memory-overcommit": memoryOver} {
		if percent < 100 || percent > 10000 {
			return usagef("%s must be 100 to 10000 percent, got %d", flag, percent)
		}
	}
	if libraries != "" {
		if i, err := os.Stat(libraries); err != nil || !i.IsDir() {
			return usagef("--libraries: %s is no folder", libraries)
		}
	}
	return nil
}

// poolHTTP is how a pool node, which has no key, calls its platform.
func poolHTTP() *http.Client {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 5 * time.Second}
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true}}
}

func poolPlatform(at string) poolv1connect.PoolServiceClient {
	return poolv1connect.NewPoolServiceClient(poolHTTP(), strings.TrimSuffix(at, "/"))
}

// member makes the node in the folder a member, or finds that it is one; nil if it
// is none.
func (j *joinFlags) member(ctx context.Context, dir string, listen []string) (*agent.Membership, error) {
	if j.platform == "" {
		if j.token != "" || j.name != "" {
			return nil, usagef("--token and --name go with --join")
		}
		return agent.Load(dir)
	}
	if u, err := url.Parse(j.platform); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usagef("--join: want the address of a platform, such as http://10.0.0.1:8180, got %q", j.platform)
	}
	for _, at := range listen {
		host, _, err := net.SplitHostPort(strings.TrimPrefix(at, "tcp:"))
		if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) && len(j.advertise) == 0 {
			return nil, usagef("--listen %s is no address that programs can use: say one with --advertise", at)
		}
	}
	if j.name == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "this machine has no name: say one with --name")
		}
		j.name, _, _ = strings.Cut(name, ".")
	}
	m, err := agent.Join(ctx, dir, j.platform, j.name, j.token, poolPlatform(j.platform))
	if code := connect.CodeOf(err); code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded {
		return nil, fault.Wrap(fault.Unavailable, err, "the platform at %s does not answer", j.platform)
	}
	return m, err
}

// attend runs the node of a platform.
func (j *joinFlags) attend(ctx context.Context, n *pool.Node, m *agent.Membership, spool *agent.Spool, programs release.Folder) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	operate, ended := context.WithCancel(context.WithoutCancel(ctx))
	operated := make(chan struct{})
	go func() {
		defer close(operated)
		m.Operate(operate, poolv1connect.NewPoolOperationServiceClient(poolHTTP(), strings.TrimSuffix(m.Platform, "/")), buildVersion(), n, spool, programs)
	}()
	defer func() { // what the node logs while it stops is sent, too
		ended()
		<-operated
		spool.Close()
	}()
	platform := poolPlatform(m.Platform)
	tell := m.Tell(platform, buildVersion())
	attended := make(chan struct{})
	go func() {
		defer close(attended)
		m.Attend(ctx, platform)
	}()
	done := make(chan error, 1)
	go func() {
		err := n.Attend(ctx, func(ctx context.Context, r pool.Report, wait time.Duration) (pool.Wanted, error) {
			r.Addresses = append(r.Addresses, j.advertise...)
			return tell(ctx, r, wait)
		})
		stop(err)
		done <- err
	}()
	err := n.Run(ctx)
	<-attended
	if refused := <-done; err == nil {
		err = refused
	}
	return err
}

func poolNodeTokenCommand(c *cli) *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "token", Short: "Make a token with which a pool node joins the platform, once",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			seconds, err := wholeSeconds("--ttl", ttl)
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.pool.CreateNodeToken(cmd.Context(), &poolv1.CreateNodeTokenRequest{TtlSeconds: seconds})
			if err != nil {
				return err
			}
			return c.print(result{msg: res, names: []string{res.Token}, print: func(w io.Writer, color bool) error {
				var f text.Facts
				f.Add("Token", res.Token)
				f.Add("Until", c.stamp(res.ExpiresAt))
				f.Add("Use", "yunhe pool node --join PLATFORM --token "+res.Token+" --listen tcp:ADDRESS:7420")
				return f.Write(w, color)
			}})
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long it is good")
	return cmd
}

func poolNodeState(n *poolv1.PoolNode) string {
	state := enumName(n.Mode.String(), "MODE_")
	if !n.Online {
		state = "offline, " + state
	}
	return state
}

func (c *cli) printPoolNodes(msg any, nodes ...*poolv1.PoolNode) error {
	head := []string{"NODE", "STATE", "DEVICE", "BUS", "API", "MODEL", ">UNITS", ">MEMORY", ">SLICES", ">COMPUTE LENT", ">MEMORY LENT", "KIND", "VERSION"}
	figures := slices.ContainsFunc(nodes, func(n *poolv1.PoolNode) bool { // where anything tells
		return slices.ContainsFunc(n.Figures, func(f *poolv1.PoolFigures) bool { return f.Driver != "" || f.EnergySource != "" })
	})
	if figures {
		head = append(head, ">TEMPERATURE", ">POWER", "POWER BY")
	}
	t := text.NewTable(head...)
	var names []string
	for _, n := range nodes {
		names = append(names, n.NodeId)
		if len(n.Devices) == 0 {
			t.Row(append([]any{n.NodeId, poolNodeState(n), "", "", "", "", "", "", "", "", "", "", n.Version}, make([]any, len(head)-13)...)...)
		}
		for _, d := range n.Devices {
			state := poolNodeState(n)
			switch {
			case !d.Present:
				state = "device gone"
			case d.Disabled && n.Online:
				state = "device disabled"
			}
			kind := "virtual"
			if d.Physical {
				kind = "physical"
			}
			row := []any{n.NodeId, state, d.DeviceId, d.Bus, d.Api, d.Model, d.ComputeUnits, text.Bytes(d.MemoryMib << 20), d.Slices, strconv.FormatInt(d.ComputeLentPercent, 10) + "% of " + strconv.FormatInt(d.ComputeLimitPercent, 10) + "%",
				text.Bytes(d.MemoryLentMib<<20) + " of " + text.Bytes(d.MemoryLimitMib<<20), kind, n.Version}
			if figures {
				row = append(row, poolFigures(n, d.DeviceId)...)
			}
			t.Row(row...)
		}
		for _, f := range n.Figures {
			if f.PowerLimitError != "" {
				c.note("%s/%s: the limit of power was not set: %s", n.NodeId, f.DeviceId, f.PowerLimitError)
			}
			if f.NotLent != "" {
				t.Row(append([]any{n.NodeId, "not lent", f.DeviceId, f.Bus, "", f.Model, "", "", "", "", "", "", n.Version}, poolFigures(n, f.DeviceId)...)...)
				c.note("%s/%s: %s", n.NodeId, f.DeviceId, f.NotLent)
			}
		}
	}
	return c.print(result{msg: msg, names: names, print: func(w io.Writer, color bool) error {
		if t.Len() == 0 {
			c.note("the pool has no nodes; `yunhe pool node token` is the first step")
			return nil
		}
		return t.Write(w, color)
	}})
}

// poolFigures are temperature, power and where that comes from.
func poolFigures(n *poolv1.PoolNode, device string) []any {
	out := []any{"", "", ""}
	for _, f := range n.Figures {
		if f.DeviceId != device {
			continue
		}
		if f.TemperatureCelsius != nil {
			out[0] = fmt.Sprintf("%d °C", *f.TemperatureCelsius)
		}
		if f.EnergySource != "" || f.PowerMilliwatts > 0 {
			out[1], out[2] = fmt.Sprintf("%.1f W", float64(f.PowerMilliwatts)/1000), cmp.Or(f.EnergySource, f.Driver)
			if f.PowerLimitMilliwatts != nil {
				out[1] = fmt.Sprintf("%.1f of %d W", float64(f.PowerMilliwatts)/1000, *f.PowerLimitMilliwatts/1000)
			}
		}
	}
	return out
}

func poolNodeListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the platform's pool nodes with their devices",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.pool.ListPoolNodes(cmd.Context(), &poolv1.ListPoolNodesRequest{})
			if err != nil {
				return err
			}
			return c.printPoolNodes(res, res.Nodes...)
		},
	}
}

func poolNodeModeCommand(c *cli, use, short, long string, mode poolv1.PoolNode_Mode) *cobra.Command {
	var limit, memory int64
	devices := mode != poolv1.PoolNode_MODE_DRAINING
	arg := "NODE"
	if devices {
		arg = "NODE[/DEVICE]"
	}
	cmd := &cobra.Command{
		Use: use + " " + arg, Short: short, Long: long,
		Args: takes(1, 1, "a node of the platform's pool"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			node, device, one := strings.Cut(args[0], "/")
			var n *poolv1.PoolNode
			if one && devices {
				n, err = a.pool.SetPoolDevice(cmd.Context(), &poolv1.SetPoolDeviceRequest{NodeId: node, DeviceId: device, Disabled: new(mode == poolv1.PoolNode_MODE_DISABLED), ComputeLimitPercent: limit, MemoryLimitPercent: memory})
			} else {
				if limit != 0 || memory != 0 {
					return usagef("--compute-limit and --memory-limit are of a device: NODE/DEVICE")
				}
				n, err = a.pool.SetPoolNode(cmd.Context(), &poolv1.SetPoolNodeRequest{NodeId: args[0], Mode: mode})
			}
			if err != nil {
				return err
			}
			return c.printPoolNodes(n, n)
		},
	}
	if mode == poolv1.PoolNode_MODE_ENABLED {
		cmd.Flags().Int64Var(&limit, "compute-limit", 0, "percent of the device's time that slices may have together, 100 to 10000 (default: as it is)")
		cmd.Flags().Int64Var(&memory, "memory-limit", 0, "percent of the device's memory that slices may have together, 100 to 10000 (default: as it is)")
	}
	return cmd
}

func poolNodePowerCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "power NODE/DEVICE WATTS|default", Short: "Limit what a device of the platform's pool draws",
		Long: `Has the node set the card's limit of power, within what the card allows, through
its maker's library: NVML, for which the node's user needs the right to. The node
sets it again when it starts. With "default" it is as its maker set it.`,
		Example: "  yunhe pool node power n1/opencl-0 250\n  yunhe pool node power n1/opencl-0 default",
		Args:    takes(2, 2, "a device of the platform's pool, NODE/DEVICE, and watts or default"),
		RunE: func(cmd *cobra.Command, args []string) error {
			node, device, ok := strings.Cut(args[0], "/")
			watts, err := int64(-1), error(nil)
			if args[1] != "default" {
				watts, err = strconv.ParseInt(args[1], 10, 64)
			}
			if !ok || err != nil || watts == 0 {
				return usagef("want NODE/DEVICE, and watts or default, got %q and %q", args[0], args[1])
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			n, err := a.pool.SetPoolDevice(cmd.Context(), &poolv1.SetPoolDeviceRequest{NodeId: node, DeviceId: device, PowerLimitWatts: watts})
			if err != nil {
				return err
			}
			return c.printPoolNodes(n, n)
		},
	}
}

func poolNodeVirtualizeCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "virtualize NODE/DEVICE on|off", Short: "Lend a device of the platform's pool in parts, or whole as the card it is",
		Long: `With virtualization on a device is lent in parts. With it off it is a card that is
given whole, to one task at a time ("yunhe pool run --physical"). It is switched
while the device has no slices.`,
		Example: "  yunhe pool node virtualize n1/opencl-0 off",
		Args:    takes(2, 2, "a device of the platform's pool, NODE/DEVICE, and on or off"),
		RunE: func(cmd *cobra.Command, args []string) error {
			to := map[string]poolv1.SetPoolDeviceRequest_Virtualization{"on": poolv1.SetPoolDeviceRequest_VIRTUALIZATION_ON, "off": poolv1.SetPoolDeviceRequest_VIRTUALIZATION_OFF}[args[1]]
			node, device, ok := strings.Cut(args[0], "/")
			if !ok || to == 0 {
				return usagef("want NODE/DEVICE and on or off, got %q and %q", args[0], args[1])
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			n, err := a.pool.SetPoolDevice(cmd.Context(), &poolv1.SetPoolDeviceRequest{NodeId: node, DeviceId: device, Virtualization: to})
			if err != nil {
				return err
			}
			return c.printPoolNodes(n, n)
		},
	}
}

func poolNodeRescanCommand(c *cli) *cobra.Command {
	var at poolAt
	cmd := &cobra.Command{
		Use: "rescan", Short: "Have a node on this machine look for devices that came or went",
		Long: `A node looks by itself when a vendor's file or a device in /dev comes or goes. A
device that is gone lends no more, and is removed when what runs there has ended.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return at.with(cmd.Context(), c, func(client *pool.Client) error {
				devices, err := client.Rescan()
				if err != nil {
					return err
				}
				return c.printPoolDevices(devices)
			})
		},
	}
	at.flags(cmd)
	return cmd
}

// poolNodeProbeCommand is what a node asks a program that it is to be upgraded to.
func poolNodeProbeCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "probe", Short: "Say whether this program can take over a pool node of this machine", Hidden: true,
		Args: takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			devices, err := pool.Look(c.env(pool.LibrariesVariable))
			if err != nil {
				return err
			}
			p := agent.Probe{Version: buildVersion(), Handover: pool.HandoverFormat, Devices: devices}
			return c.print(result{msg: p, names: []string{p.Version}, print: func(w io.Writer, _ bool) error {
				_, err := fmt.Fprintf(w, "%s takes over in form %d, and finds %d devices\n", p.Version, p.Handover, p.Devices)
				return err
			}})
		},
	}
}

func poolNodeCommands(c *cli) []*cobra.Command {
	return []*cobra.Command{poolNodeTokenCommand(c), poolNodeProbeCommand(c), poolNodeListCommand(c), poolNodeVirtualizeCommand(c), poolNodePowerCommand(c), poolNodeRescanCommand(c),
		poolNodeModeCommand(c, "enable", "Let a node or device of the platform's pool lend", "", poolv1.PoolNode_MODE_ENABLED),
		poolNodeModeCommand(c, "disable", "Let a node or device of the platform's pool lend no more; what runs goes on", "", poolv1.PoolNode_MODE_DISABLED),
		poolNodeModeCommand(c, "drain", "Let a node leave the platform's pool when nothing runs there", "The node lends no more; what runs goes on, and when it has ended the node leaves\nthe pool. Until then \"enable\" keeps it.", poolv1.PoolNode_MODE_DRAINING)}
}
