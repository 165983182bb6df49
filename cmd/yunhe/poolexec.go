package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	gateway "yunhe.dev/yunhe/adapters/gateway/agent"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools/agent"
)

const poolHelp = `A run's shares of the accelerator pool are on devices that need not be where it
runs; programs of OpenCL find them as the only ones. --pool takes compute=37 (percent)
and memory=1234MiB, or spec=SPEC, or whole for a whole card; and, where wanted,
weighted, model=PART, node=NODE, cards=2, across for cards of as many pool nodes,
affinity=WORD for the card of others with that word or apart=WORD for other cards,
api=cuda for programs of CUDA (one card), group=GROUP and priority=5. With local they
are of the pool node on the run's machine: programs of CUDA have the driver themselves
there, and several cards. A run waits until it has them, and they end with it.`

// poolFlag reads the value of --pool.
func poolFlag(text string) (*jobsv1.PoolShares, error) {
	p := &jobsv1.PoolShares{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, has := strings.Cut(part, "=")
		number := func() (int64, error) {
			n, err := strconv.ParseInt(strings.TrimSuffix(value, "%"), 10, 32)
			if err != nil {
				return 0, usagef("--pool: %s must be a number, got %q", key, value)
			}
			return n, nil
		}
		flag := map[string]*bool{"weighted": &p.Weighted, "across": &p.AcrossNodes, "whole": &p.Physical, "local": &p.Local}[key]
		word := map[string]*string{"api": &p.Api, "model": &p.Model, "spec": &p.SpecId, "group": &p.GroupId, "node": &p.NodeId, "affinity": &p.Affinity, "apart": &p.AntiAffinity}[key]
		var n int64
		var err error
		switch {
		case flag != nil && !has:
			*flag = true
		case word != nil && value != "":
			*word = value
		case key == "compute":
			p.ComputePercent, err = number()
		case key == "cards":
			p.Cards, err = number()
		case key == "priority":
			n, err = number()
			p.Priority = int32(n)
		case key == "memory":
			n, err = mebibytes("--pool: memory", value)
			p.MemoryMib = n >> 20
		default:
			err = usagef("--pool: %q is none of compute=PERCENT, memory=SIZE, spec=SPEC, whole, weighted, local, api=opencl|cuda, model=PART, node=NODE, cards=NUMBER, across, affinity=WORD, apart=WORD, group=GROUP and priority=NUMBER", part)
		}
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

// poolExecCommand is what gateways start a run by that has shares of the pool, and
// what is beside one in a pod of Kubernetes (--into).
func poolExecCommand(c *cli) *cobra.Command {
	var into, file string
	var local bool
	cmd := &cobra.Command{
		Use: "exec (-- PROGRAM [ARGUMENT...] | --into DIR [--local] [--passes FILE])", Short: "Run a program on the shares of a job's run, or have them for one", Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (into == "") == (len(args) == 0) || (file != "" || local) && into == "" {
				return usagef("a program or --into is required, and --passes and --local need --into")
			}
			if file != "" {
				return c.holdFor(cmd.Context(), into, file, local)
			}
			var put func([]*agent.Task) (*sliceFile, error)
			if into != "" {
				var err error
				if put, err = c.prepare(into, local); err != nil {
					return err
				}
			}
			tasks, err := redeem(cmd.Context(), "$"+pool.PassesVariable, []byte(c.env(pool.PassesVariable)), local)
			if err != nil {
				return err
			}
			defer leave(tasks)
			if into != "" {
				file, err := put(tasks)
				if err != nil {
					return err
				}
				return hold(cmd.Context(), tasks, file)
			}
			library, env, cards := c.env(gateway.LibraryVariable), []string(nil), []string(nil)
			switch {
			case tasks[0].API != pool.CUDA:
			case c.env(gateway.DriverVariable) != "":
				if t := far(tasks); t != nil {
					return fault.New(fault.Unavailable, "the shared socket of the pool node of task %s cannot be opened, and programs with the driver of CUDA need it", t.ID)
				}
				inOrder(tasks)
				of := cudaCards(tasks)
				cards, env = pool.CUDACards(of...), pool.CUDAEnvironment(filepath.Join(library, pool.CUDABefore), c.env("LD_PRELOAD"), of...)
			default: // the sandbox has no driver
				env = pool.RemoteCUDAEnvironment(filepath.Join(library, pool.CUDAFolder), c.env("LD_LIBRARY_PATH"), c.env("LD_PRELOAD"))
			}
			by := finds{vendors: filepath.Join(library, pool.Vendors), env: env}
			if path := c.env(pool.FileVariable); path != "" {
				var err error
				if by.file, err = writeSlices(path, tasks, cards...); err != nil {
					return err
				}
			}
			return c.runOn(cmd.Context(), tasks, by, args)
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVar(&into, "into", "", "folder for what programs that others start need to find the shares")
	cmd.Flags().StringVar(&file, "passes", "", "file of the passes, which newer ones replace until some are good; the shares are had until standard input ends")
	cmd.Flags().BoolVar(&local, "local", false, "they are of the node on this machine, and programs of CUDA have the driver themselves")
	return cmd
}

// redeem begins the tasks of passes, all or none. where says whose the text is; those that
// are local are shown to the shared socket only, as they are good once.
func redeem(ctx context.Context, where string, text []byte, local bool) (tasks []*agent.Task, err error) {
	var passes []pool.Pass
	if err := json.Unmarshal(text, &passes); err != nil || len(passes) == 0 {
		return nil, fault.New(fault.Invalid, "%s must have passes to shares of the accelerator pool: centers start runs with it", where)
	}
	for _, p := range passes {
		if local {
			p.Addresses = nil
		}
		t, err := agent.Redeem(ctx, p)
		if err != nil {
			leave(tasks)
			return nil, err
		}
		tasks = append(tasks, t)
	}
	return tasks, nil
}

func leave(tasks []*agent.Task) {
	for _, t := range tasks {
		t.Client.Close()
	}
}

// holdFor has shares for a script of Slurm's: until its input ends, which the script
// has open, and not when all of a job's processes are told to end, of which the
// command may take its time.
func (c *cli) holdFor(ctx context.Context, dir, file string, local bool) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ctx, over := context.WithCancel(context.WithoutCancel(ctx))
	defer over()
	go func() {
		_, _ = io.Copy(io.Discard, c.in)
		over()
	}()
	put, err := c.prepare(dir, local)
	if err != nil {
		return err
	}
	tasks, err := redeemNewest(ctx, file, pool.PassesWait, local)
	if err != nil || ctx.Err() != nil {
		return err
	}
	defer leave(tasks)
	found, err := put(tasks)
	if err != nil {
		return err
	}
	return hold(ctx, tasks, found)
}

// redeemNewest begins the tasks of a file's passes, and of those that replace them if
// they are not good any more, for a while.
func redeemNewest(ctx context.Context, file string, within time.Duration, local bool) ([]*agent.Task, error) {
	waits, done := context.WithTimeout(ctx, within)
	defer done()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var tried []byte
	var why error
	for {
		text, err := os.ReadFile(file)
		switch {
		case err != nil:
			why = fault.Wrap(fault.Invalid, err, "--passes")
		case !bytes.Equal(text, tried):
			var tasks []*agent.Task
			if tasks, why = redeem(waits, "--passes "+file, text, local); why == nil {
				return tasks, nil
			}
			tried = text
		}
		select {
		case <-tick.C:
		case <-waits.Done():
			if ctx.Err() != nil {
				return nil, nil
			}
			return nil, fault.Wrap(fault.KindOf(why), why, "no pass to shares of the accelerator pool was good within %v; does the platform reach its center?", within)
		}
	}
}
