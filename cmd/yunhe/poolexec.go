package main

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"

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
api=cuda for programs of CUDA (one card), group=GROUP and priority=5. A run waits
until it has them, and they end with it.`

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
		flag := map[string]*bool{"weighted": &p.Weighted, "across": &p.AcrossNodes, "whole": &p.Physical}[key]
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
			err = usagef("--pool: %q is none of compute=PERCENT, memory=SIZE, spec=SPEC, whole, weighted, api=opencl|cuda, model=PART, node=NODE, cards=NUMBER, across, affinity=WORD, apart=WORD, group=GROUP and priority=NUMBER", part)
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
	var into string
	cmd := &cobra.Command{
		Use: "exec (-- PROGRAM [ARGUMENT...] | --into DIR)", Short: "Run a program on the shares of a job's run, or have them for one", Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (into == "") == (len(args) == 0) {
				return usagef("a program or --into is required")
			}
			var passes []pool.Pass
			if err := json.Unmarshal([]byte(c.env(pool.PassesVariable)), &passes); err != nil || len(passes) == 0 {
				return fault.New(fault.Invalid, "$%s must have passes to shares of the accelerator pool: centers start runs with it", pool.PassesVariable)
			}
			var put func([]*agent.Task) (*sliceFile, error)
			if into != "" {
				var err error
				if put, err = c.prepare(into); err != nil {
					return err
				}
			}
			var tasks []*agent.Task
			for _, p := range passes {
				t, err := agent.Redeem(cmd.Context(), p)
				if err != nil {
					return err
				}
				defer t.Client.Close()
				tasks = append(tasks, t)
			}
			if into != "" {
				file, err := put(tasks)
				if err != nil {
					return err
				}
				return hold(cmd.Context(), tasks, file)
			}
			library, env := c.env(gateway.LibraryVariable), []string(nil)
			if tasks[0].API == pool.CUDA { // also on the node's machine: the sandbox has no driver
				env = pool.RemoteCUDAEnvironment(filepath.Join(library, pool.CUDAFolder), c.env("LD_LIBRARY_PATH"), c.env("LD_PRELOAD"))
			}
			by := finds{vendors: filepath.Join(library, pool.Vendors), env: env}
			if path := c.env(pool.FileVariable); path != "" {
				var err error
				if by.file, err = writeSlices(path, tasks); err != nil {
					return err
				}
			}
			return c.runOn(cmd.Context(), tasks, by, args)
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVar(&into, "into", "", "folder for what programs that others start need to find the shares")
	return cmd
}
