package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pool/cards"
	"yunhe.dev/yunhe/internal/pools/agent"
	"yunhe.dev/yunhe/internal/release"
)

func poolCommand(c *cli) *cobra.Command {
	cmd := group("pool", groupServe, "Lend shares of accelerators, and run programs on them",
		poolNodeCommand(c), poolRunCommand(c), poolExecCommand(c), c.poolReadyCommand(), poolWebhookCommand(c), poolDevicesCommand(c), poolTasksCommand(c), poolResizeCommand(c), poolMigrateCommand(c), poolStopCommand(c),
		poolEnableCommand(c, true), poolEnableCommand(c, false), poolPowerCommand(c),
		group("slice", "", "Slices of the platform's pool", poolSliceListCommand(c), poolSliceHoldCommand(c), poolSliceResizeCommand(c), poolSliceMigrateCommand(c), poolSliceReleaseCommand(c)),
		group("spec", "", "Specifications of slices", poolSpecListCommand(c), poolSpecSetCommand(c), poolSpecDeleteCommand(c)),
		group("group", "", "Logical groups of the platform's pool", poolGroupListCommand(c), poolGroupSetCommand(c), poolGroupDeleteCommand(c)),
		poolPolicyCommand(c), poolUpgradeCommand(c), poolConformanceCommand(c), poolLogCommand(c), poolReportCommand(c),
		group("component", "", "Components of the platform's pool nodes", poolComponentListCommand(c), poolComponentSetCommand(c)),
		group("rule", "", "Rules by which the platform's pool raises alarms", poolRuleListCommand(c), poolRuleSetCommand(c)))
	cmd.Long = `Lends shares of accelerators, and runs programs on them. A pool node lends those of its
machine ("node"), by itself or for a platform.

One node is asked with devices, tasks, resize, migrate, stop, enable, disable and power:
that of --node, or one that was started in this folder. What is of the platform's pool
(node list, slice, spec, group, policy, ...) is asked of the server. "run" does either.`
	return cmd
}

const poolDir = "pool-data"

func poolNodeCommand(c *cli) *cobra.Command {
	var join joinFlags
	var data, groups, libraries, logLevel, logFormat string
	var listen, concurrent, watts []string
	var overcommit, memoryOver int64
	var memory, cache string
	var encryption bool
	cmd := &cobra.Command{
		Use: "node", Short: "Lend this machine's accelerators",
		Long: `Lends the devices that OpenCL shows on this machine, in shares: percent of a
device's time, MiB of its memory. Programs use them with "yunhe pool run", here
or on other machines, without being changed.

Without --groups only who may open the Unix socket uses the node: the user who
started it. Listening on TCP needs groups: a file (YAML) of names, keys and
limits. What programs send over TCP is not encrypted, unless the node is started with
--encryption: turn that on where others see the network, as between machine rooms.

Tasks may have more memory than a device has, all together (--memory-overcommit):
what does not fit goes to this machine's memory, and comes back for who computes;
of CUDA the driver does that, if it can (devices -o json: pages).
Programs have a device one after the other; those of a --concurrent device have
it at once, by their weights.

What cards do, how warm they are and what they draw is asked of their makers'
libraries: NVML, DCMI, CNDev and ROCm SMI, where the machine has them.

With --join the node belongs to a platform from then on: that says who may use
what, and the node takes its tickets only.`,
		Example: `  yunhe pool node
  yunhe pool node --join http://10.0.0.1:8180 --token yp_... --listen tcp:10.0.0.5:7420
  yunhe pool node --listen unix:/run/yunhe/pool.sock --listen tcp:10.0.0.5:7420 --groups groups.yaml`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // who reads the log may end; the tasks do not
			logs := app.LogConfig{Level: logLevel, Format: logFormat}
			if !pool.HandedOver() { // what a program before took is good enough
				if err := errors.Join(nodeFlags(cmd, listen, join.advertise, libraries, overcommit, memoryOver), logFlags(logs)); err != nil {
					return err
				}
			}
			size, err := mebibytes("--memory", memory)
			if err != nil {
				return err
			}
			kept, err := mebibytes("--cache", cache)
			if err != nil {
				return err
			}
			cfg := pool.NodeConfig{Encryption: encryption, Cache: kept, Dir: data, Listen: listen, Overcommit: overcommit, Memory: size, MemoryOver: memoryOver, Concurrent: concurrent, Libraries: libraries}
			cfg.Power = map[string]pool.Watts{}
			for _, s := range watts {
				device, w, err := pool.ParseWatts(s)
				if err != nil {
					return usagef("--power: %s", err)
				}
				cfg.Power[device] = w
			}
			if groups != "" {
				c.warnOpen(groups, "the groups' keys")
				var file struct {
					Groups []pool.Group `yaml:"groups"`
				}
				if err := readYAML(groups, &file); err != nil {
					return err
				}
				cfg.Groups = file.Groups
			}
			if len(listen) == 0 {
				cfg.Listen = []string{pool.DefaultAddress(data)}
			}
			programs := release.Folder(filepath.Join(data, "programs"))
			var m *agent.Membership
			if pool.HandedOver() { // the platform may be away
				m, err = agent.Load(data)
			} else if cfg.Lock, err = pool.LockFolder(data); err == nil { // before anything there is changed
				defer cfg.Lock.Release()
				if err = upgraded(programs); err == nil {
					m, err = join.member(ctx, data, cfg.Listen)
				}
			}
			if err != nil {
				return err
			}
			if m != nil {
				if cfg.Member, err = m.Member(); err != nil {
					return err
				}
			}
			log := newLog(logs)
			var spool *agent.Spool
			if m != nil {
				if spool, err = agent.OpenSpool(data); err != nil {
					return err
				}
				log = slog.New(spool.Handler(log.Handler()))
			}
			n, err := pool.NewNode(cfg, log)
			if err != nil {
				return err
			}
			log.Info("pool node listens", "addresses", strings.Join(n.Addresses(), " "))
			for i, at := range join.advertise {
				join.advertise[i] = n.Shown(at)
			}
			if m != nil {
				return join.attend(ctx, n, m, spool, programs)
			}
			return n.Run(ctx)
		},
	}
	f := cmd.Flags()
	f.StringVar(&data, "data", poolDir, "folder for the node's socket and the worker's program")
	f.StringArrayVar(&listen, "listen", nil, "address to listen at, unix:PATH, tcp:HOST:PORT or rdma:HOST:PORT; may be repeated (default: unix:pool.sock in --data)")
	f.StringVar(&groups, "groups", "", "file (YAML) of the groups that may use the node; see docs/howto/lend-devices.md")
	f.BoolVar(&encryption, "encryption", false, "encrypt what is said over TCP, by TLS 1.3; the node's addresses are tls:HOST:PORT then, and programs need OpenSSL 1.1.1 or later")
	f.Int64Var(&overcommit, "overcommit", 100, "percent of a device's time that tasks may be given together")
	f.Int64Var(&memoryOver, "memory-overcommit", 100, "percent of a device's memory that tasks may be given together")
	f.StringVar(&memory, "memory", "", "memory of each device to use at most, such as 8GiB (default: all that it has)")
	f.StringVar(&cache, "cache", "4GiB", "compiled programs to keep at most; those used longest ago go first")
	f.StringArrayVar(&concurrent, "concurrent", nil, "device whose tasks use it at the same time, such as opencl-0; may be repeated")
	f.StringArrayVar(&watts, "power", nil, "what a device draws idle and computing, where nothing tells: DEVICE=IDLE:FULL in watts, such as opencl-0=35:120; its energy is a model then; may be repeated")
	f.StringVar(&libraries, "libraries", "", "folder in which makers' libraries are looked for first, such as /usr/local/nvidia/lib64 (default: where the system looks)")
	f.StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&logFormat, "log-format", "text", "text or json")
	join.flags(cmd)
	cmd.AddCommand(poolNodeCommands(c)...)
	return cmd
}

// mebibytes reads a size: 1234MiB, 2GiB, or a number of MiB.
func mebibytes(flag, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	number, unit := strings.TrimSuffix(s, "MiB"), int64(1<<20)
	if n, ok := strings.CutSuffix(s, "GiB"); ok {
		number, unit = n, 1<<30
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 1 {
		return 0, usagef("%s must be a number of MiB from 1, such as 1234MiB or 2GiB, got %q", flag, s)
	}
	return n * unit, nil
}

func poolRunCommand(c *cli) *cobra.Command {
	var at poolAt
	var slice sliceFlags
	var spec pool.Spec
	var memory, into string
	var devices []string
	var remote bool
	var idle, limit time.Duration
	cmd := &cobra.Command{
		Use: "run [flags] -- PROGRAM [ARGUMENT...]", Short: "Run a program on a share of an accelerator",
		Long: `Asks for a share of a device and runs a program that finds it as the only device of
OpenCL, or of CUDA. The program is not changed and need not be on the device's machine. The
share is the node's to enforce: nothing the program does changes it.

Where --node, or a node that was started in this folder, says so, that node is
asked. Otherwise the platform is: it has a slice for the program on some node, or
the program waits in its queue.

What $YUNHE_POOL_COMPUTE and $YUNHE_POOL_MEMORY say is asked for where neither a flag
nor a specification says something else.

A device of CUDA is used by who asks for one (--api cuda) or names it (--device cuda-0,
--on n1/cuda-0): on the node's machine by the program itself, from others by a worker of
the node, as with --remote. Such a program does not move. On the node's machine it
may have several (--cards, or --device as often), all of that node.

The share ends with the program. It can be resized meanwhile ("yunhe pool
resize"). The exit status is the program's, as a shell has it: 128 and the number of
the signal that ended it, 127 where there is no such program. What yunhe is sent goes
on to the program, and yunhe ends when that has.

With --into no program is run: the platform's slice is had until this ends, for
programs that others start with what is written into a folder, as in pods. With --local
only, those of CUDA have the driver themselves.

With --limit, share and program end; with --idle the share only, and what the program
calls fails from then on.`,
		Example: `  yunhe pool run --compute 37 --memory 1234MiB -- clinfo
  yunhe pool run --group team-a --spec small --local first -- python3 train.py
  yunhe pool run --cards 2 --across-nodes --compute 50 --memory 2GiB -- program
  yunhe pool run --api cuda --compute 30 --memory 4GiB -- program
  yunhe pool run --device cuda-0 --device cuda-1 --memory 8GiB -- torchrun --nproc-per-node 2 train.py
  yunhe pool run --node tcp:10.0.0.5:7420 --group team-a --key-file key -- hashcat -b`,
		Args: func(cmd *cobra.Command, args []string) error {
			if into != "" {
				return takes(0, 0, "")(cmd, args)
			}
			return takes(1, -1, "a program")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if v := c.env("YUNHE_POOL_COMPUTE"); v != "" && !cmd.Flags().Changed("compute") {
				if spec.Compute, err = strconv.ParseInt(strings.TrimSuffix(v, "%"), 10, 64); err != nil {
					return usagef("$YUNHE_POOL_COMPUTE must be 1 to 100, got %q", v)
				}
			}
			if v := c.env("YUNHE_POOL_MEMORY"); v != "" && memory == "" {
				memory = v
			}
			if spec.Memory, err = mebibytes("--memory", memory); err != nil {
				return err
			}
			if spec.Compute < 1 || spec.Compute > 100 {
				return usagef("--compute must be 1 to 100, got %d", spec.Compute)
			}
			platform, err := c.asksPlatform(cmd, &at)
			if err == nil {
				err = errors.Join(sliceConflicts(cmd), slice.checkSocket())
			}
			if err != nil {
				return err
			}
			if err := checkAPI(spec.API); err != nil {
				return err
			}
			if spec.Idle, err = poolSeconds("--idle", idle); err != nil {
				return err
			}
			if spec.Limit, err = poolSeconds("--limit", limit); err != nil {
				return err
			}
			if into != "" {
				slice.group, spec.Name = at.group, c.env("HOSTNAME")
				return c.shareInto(cmd.Context(), &slice, spec, remote, into)
			}
			if _, err := exec.LookPath(args[0]); err != nil { // before others wait for what it would have
				return c.notStarted(args[0], err)
			}
			spec.Name = filepath.Base(args[0])
			if platform {
				slice.group = at.group
				return c.platformRun(cmd.Context(), &slice, spec, remote, args)
			}
			return c.poolRun(cmd.Context(), &at, spec, devices, remote, args)
		},
	}
	cmd.Flags().SetInterspersed(false)
	at.flags(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&devices, "device", nil, "device of the node to use (default: any that has room); may be repeated: the program has as much of each")
	apiFlag(cmd, &spec)
	f.BoolVar(&remote, "remote", false, "with a device of CUDA: compute by a worker of the node as from another machine, also on the node's own")
	f.StringVar(&spec.Model, "model", "", "a part of the name of the model to use")
	f.Int64Var(&spec.Compute, "compute", 100, "percent of the device's time")
	f.BoolVar(&spec.Weighted, "weighted", false, "take --compute as a weight: use what others leave, too")
	f.StringVar(&memory, "memory", "", "memory of the device, such as 1234MiB (default: all that is left at a node; of the platform's pool --memory, --spec or --physical is needed)")
	f.DurationVar(&idle, "idle", 0, "end the share when it is not used for so long, such as 30s; at least 1s (default: never)")
	f.DurationVar(&limit, "limit", 0, "end the share and its program after so long, at least 1s (default: never)")
	slice.flags(cmd)
	f.StringVar(&into, "into", "", "folder that programs of others find the slice by, instead of a program")
	f.StringVar(&slice.slice, "slice", "", `slice to use that is held ("yunhe pool slice hold")`)
	f.StringVar(&slice.socket, "node-socket", "", "where this process and the programs are shown the shared socket of the node on this machine, as containers are (default: the node's own socket); goes with --local only")
	f.BoolVar(&slice.platform, "platform", false, "ask the platform, also where a node was started in this folder")
	return cmd
}

// poolSeconds is a time after which a share ends, in whole seconds; 0: it does not.
func poolSeconds(flag string, d time.Duration) (int64, error) {
	switch {
	case d < 0 || d > 0 && d < time.Second:
		return 0, usagef("%s must be at least 1s, or 0 for no end, got %s", flag, d)
	case d%time.Second != 0:
		return 0, usagef("%s must be whole seconds, got %s", flag, d)
	case d > pool.MaxSeconds*time.Second:
		return 0, usagef("%s must be at most %dh, got %s", flag, pool.MaxSeconds/3600, d)
	}
	return int64(d / time.Second), nil
}

// poolRun runs a program on a share of each of these devices of a node, or of any that
// has room.
func (c *cli) poolRun(ctx context.Context, at *poolAt, spec pool.Spec, devices []string, remote bool, args []string) error {
	switch n := len(devices); {
	case n > pool.MaxCards:
		return usagef("--device must be given at most %d times, got %d", pool.MaxCards, n)
	case n == 0:
		devices = []string{""}
	}
	for i, d := range devices {
		if d == "" && len(devices) > 1 {
			return usagef("--device names no device: each is named where there are several")
		}
		if slices.Contains(devices[:i], d) {
			return usagef("--device names %s twice", d)
		}
	}
	var tasks []*agent.Task
	defer func() { leave(tasks) }()
	for _, d := range devices {
		spec.Device = d
		t, err := c.shareOf(ctx, at, spec)
		if err != nil {
			return err
		}
		if tasks = append(tasks, t); t.API != tasks[0].API {
			return usagef("--device names %s of %s and %s of %s: a program has those of one", devices[0], tasks[0].API, d, t.API)
		}
	}
	return c.runWithLibrary(ctx, tasks, remote, args)
}

// shareOf begins a task at a node.
func (c *cli) shareOf(ctx context.Context, at *poolAt, spec pool.Spec) (*agent.Task, error) {
	client, err := at.dial(ctx, c)
	if err != nil {
		return nil, err
	}
	waits := context.AfterFunc(ctx, client.Close)
	task, token, err := client.Run(spec)
	waits()
	if err != nil {
		client.Close()
		return nil, err
	}
	address, _ := at.address(c)
	return &agent.Task{Client: client, ID: task.ID, Token: token, At: address, API: task.API, UUID: task.UUID, Bus: task.Bus}, nil
}

func checkAPI(api string) error {
	if api != "" && api != pool.OpenCL && api != pool.CUDA {
		return usagef("--api must be %s or %s, got %q", pool.OpenCL, pool.CUDA, api)
	}
	return nil
}

func apiFlag(cmd *cobra.Command, spec *pool.Spec) {
	cmd.Flags().StringVar(&spec.API, "api", "", "what the program uses the device by: opencl or cuda (default: that of the device named, or opencl)")
}

// platformRun is poolRun on a slice of the platform's pool.
func (c *cli) platformRun(ctx context.Context, s *sliceFlags, spec pool.Spec, remote bool, args []string) error {
	if remote {
		if err := oneCard("--remote", spec.API, int(s.cards)); err != nil {
			return err
		}
	}
	a, err := c.api()
	if err != nil {
		return err
	}
	tasks, err := c.take(ctx, a, s, spec)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		defer t.Client.Close()
	}
	return c.runWithLibrary(ctx, tasks, remote, args)
}

func (c *cli) printPoolDevices(devices []pool.Device) error {
	t := text.NewTable("DEVICE", "STATE", "MODEL", "TYPE", "API", ">UNITS", ">MEMORY", ">ON IT", ">TASKS", ">COMPUTE LENT", ">MEMORY LENT", ">BUSY", ">TEMPERATURE", ">POWER", ">ENERGY", "ENERGY BY", "DRIVER")
	var names, why []string
	for _, d := range devices {
		state := "enabled"
		switch {
		case d.Gone:
			state = "gone"
		case d.Disabled:
			state = "disabled"
		case d.NotLent != "":
			state = "not lent"
			why = append(why, d.ID+": "+d.NotLent)
		}
		if d.Concurrent {
			state += ", concurrent"
		}
		t.Row(d.ID, state, d.Model, d.Type, d.API, d.Units, text.Bytes(d.Memory), text.Bytes(d.Resident), d.Tasks, strconv.FormatInt(d.Compute, 10)+"%", text.Bytes(d.Allotted), cardFigure(d, func(c *cards.Card) *int64 { return c.Busy }, "%"),
			cardFigure(d, func(c *cards.Card) *int64 { return c.Temperature }, " °C"), cardPower(d), watthours(d.Energy, d.EnergySource), d.EnergySource, d.Driver)
		names = append(names, d.ID)
	}
	return c.print(result{msg: map[string][]pool.Device{"devices": append([]pool.Device{}, devices...)}, names: names, print: func(w io.Writer, color bool) error {
		for _, s := range why {
			c.note("%s", s)
		}
		return t.Write(w, color)
	}})
}

// cardFigure is what a device's card says, "" if it does not.
func cardFigure(d pool.Device, of func(*cards.Card) *int64, unit string) string {
	if d.Card == nil || of(d.Card) == nil {
		return ""
	}
	return strconv.FormatInt(*of(d.Card), 10) + unit
}

func cardPower(d pool.Device) string {
	if d.Power == 0 && d.EnergySource == "" {
		return ""
	}
	return fmt.Sprintf("%.1f W", float64(d.Power)/1000)
}

// watthours is energy of a source, "" where nothing tells.
func watthours(millijoules int64, source string) string {
	if source == "" {
		return ""
	}
	return fmt.Sprintf("%.3f Wh", float64(millijoules)/3.6e6)
}

func poolDevicesCommand(c *cli) *cobra.Command {
	var at poolAt
	cmd := &cobra.Command{
		Use: "devices", Short: "List a pool node's devices and what is lent of them",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return at.with(cmd.Context(), c, func(client *pool.Client) error {
				devices, err := client.Devices()
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

func poolTaskTable(tasks []pool.Task) func(io.Writer, bool) error {
	t := text.NewTable("TASK", "PROGRAM", "GROUP", "DEVICE", ">COMPUTE", ">MEMORY", ">USED", ">ON DEVICE", ">DEVICE TIME", ">ENERGY", ">PROGRAMS", "STARTED")
	for _, k := range tasks {
		share := strconv.FormatInt(k.Compute, 10) + "%"
		if k.Weighted {
			share += " weight"
		}
		t.Row(k.ID, k.Name, k.Group, k.Device, share, text.Bytes(k.Memory), text.Bytes(k.Used), text.Bytes(k.Resident), k.Busy.Round(time.Millisecond).String(), fmt.Sprintf("%.3f Wh", float64(k.Energy)/3.6e6), k.Programs, k.Started.Local().Format(time.DateTime))
	}
	return t.Write
}

func poolTasksCommand(c *cli) *cobra.Command {
	var at poolAt
	cmd := &cobra.Command{
		Use: "tasks", Short: "List the shares that run on a pool node",
		Long: "Lists the shares that run on a pool node: a group sees its own.",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return at.with(cmd.Context(), c, func(client *pool.Client) error {
				tasks, err := client.Tasks()
				if err != nil {
					return err
				}
				if len(tasks) == 0 && c.forPeople() {
					c.note("nothing runs there; `yunhe pool run` starts a program")
					return nil
				}
				var names []string
				for _, t := range tasks {
					names = append(names, t.ID)
				}
				return c.print(result{msg: map[string][]pool.Task{"tasks": append([]pool.Task{}, tasks...)}, names: names, print: poolTaskTable(tasks)})
			})
		},
	}
	at.flags(cmd)
	return cmd
}

func poolResizeCommand(c *cli) *cobra.Command {
	var at poolAt
	var compute int64
	var memory string
	cmd := &cobra.Command{
		Use: "resize TASK", Short: "Change what a share may use while it runs",
		Long: `Changes a share at once, while its program runs on: nothing is restarted. Memory
that the program holds already stays its own; below that it gets no more.`,
		Example: "  yunhe pool resize 01J... --compute 50 --memory 2GiB",
		Args:    takes(1, 1, "a task"),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := resized(cmd, compute, memory)
			if err != nil {
				return err
			}
			return at.with(cmd.Context(), c, func(client *pool.Client) error {
				task, err := client.Resize(args[0], compute, size)
				if err != nil {
					return err
				}
				return c.print(result{msg: task, names: []string{task.ID}, print: poolTaskTable([]pool.Task{task})})
			})
		},
	}
	at.flags(cmd)
	cmd.Flags().Int64Var(&compute, "compute", 0, "percent of the device's time")
	cmd.Flags().StringVar(&memory, "memory", "", "memory of the device, such as 1234MiB")
	return cmd
}

func poolMigrateCommand(c *cli) *cobra.Command {
	var at poolAt
	var to, device string
	cmd := &cobra.Command{
		Use: "migrate TASK", Short: "Move a share to another device or node while its program computes",
		Long: `Moves a share to another device: to a node (--to), or to another device of its
own. Model and driver must be the same there. Programs are stopped between two
calls for as long as it takes to copy what changed last, and go on there; they
notice nothing. If it fails, they go on where they were.

The group must be known to both nodes with the same key.`,
		Example: `  yunhe pool migrate 01J... --to tcp:10.0.0.6:7420
  yunhe pool migrate 01J... --device opencl-1`,
		Args: takes(1, 1, "a task"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" && device == "" {
				return usagef("one of --to and --device is needed")
			}
			if to != "" {
				if _, _, err := pool.Address(to); err != nil {
					return usagef("--to: %s", err)
				}
			}
			return at.with(cmd.Context(), c, func(client *pool.Client) error {
				task, pause, err := client.Migrate(args[0], to, device)
				if cmd.Context().Err() != nil {
					c.note("yunhe pool: the node goes on moving task %s; `yunhe pool tasks`, here and there, shows where it is", args[0])
				}
				if err != nil {
					return err
				}
				c.note("moved; its programs stood still for %s", pause.Round(100*time.Microsecond))
				return c.print(result{msg: task, names: []string{task.ID}, print: poolTaskTable([]pool.Task{task})})
			})
		},
	}
	at.flags(cmd)
	cmd.Flags().StringVar(&to, "to", "", "address of the node to move to, as it and the programs reach it (default: the same node)")
	cmd.Flags().StringVar(&device, "device", "", "device to move to (default: any of the same model and driver)")
	return cmd
}

// resized checks --compute and --memory of what is there, and returns the memory.
func resized(cmd *cobra.Command, compute int64, memory string) (int64, error) {
	asked := cmd.Flags().Changed("compute")
	switch {
	case !asked && memory == "":
		return 0, usagef("one of --compute and --memory is needed")
	case asked && (compute < 1 || compute > 100):
		return 0, usagef("--compute must be 1 to 100, got %d", compute)
	}
	return mebibytes("--memory", memory)
}

func poolStopCommand(c *cli) *cobra.Command {
	var at poolAt
	cmd := &cobra.Command{
		Use: "stop TASK", Short: "Take a share back",
		Long: `Takes a share back. Its programs are not ended: what they call fails from then on.
Programs of CUDA that compute on the node's machine themselves are killed (SIGKILL),
as nothing else gives back their memory.`,
		Args: takes(1, 1, "a task"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.with(cmd.Context(), c, func(client *pool.Client) error {
				if err := client.Stop(args[0]); err != nil {
					return err
				}
				return c.printDone("tasks", args, "stopped")
			})
		},
	}
	at.flags(cmd)
	return cmd
}

func poolPowerCommand(c *cli) *cobra.Command {
	var at poolAt
	cmd := &cobra.Command{
		Use: "power DEVICE WATTS|default", Short: "Limit what a card of a pool node draws",
		Long: `Sets the card's limit of power, within what the card allows, through its maker's
library: NVML, for which the node's user needs the right to. It holds until it is
set anew, or the card's driver is loaded again.`,
		Example: "  yunhe pool power opencl-0 200\n  yunhe pool power opencl-0 default",
		Args:    takes(2, 2, "a device, and watts or default"),
		RunE: func(cmd *cobra.Command, args []string) error {
			watts, err := strconv.ParseInt(args[1], 10, 64)
			if args[1] == "default" {
				watts, err = 0, nil
			} else if err != nil || watts < 1 || watts > 100_000 {
				return usagef("want watts from 1 to 100000, or default, got %q", args[1])
			}
			return at.with(cmd.Context(), c, func(client *pool.Client) error {
				if err := client.LimitPower(args[0], watts); err != nil {
					return err
				}
				done := "draws at most " + args[1] + " W"
				if watts == 0 {
					done = "draws what its maker lets it"
				}
				return c.printDone("devices", args[:1], done)
			})
		},
	}
	at.flags(cmd)
	return cmd
}

func poolEnableCommand(c *cli, on bool) *cobra.Command {
	var at poolAt
	use, short := "disable", "Lend no more of a device; what runs goes on"
	if on {
		use, short = "enable", "Lend a device again"
	}
	cmd := &cobra.Command{
		Use: use + " DEVICE", Short: short,
		Args: takes(1, 1, "a device"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.with(cmd.Context(), c, func(client *pool.Client) error {
				if err := client.Enable(args[0], on); err != nil {
					return err
				}
				return c.printDone("devices", args, use+"d")
			})
		},
	}
	at.flags(cmd)
	return cmd
}
