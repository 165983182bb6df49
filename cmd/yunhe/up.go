package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"yunhe.dev/yunhe/adapters/gateway/agent"
	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// localCenter is the one center of `yunhe up` without --centers.
var localCenter = agent.Center{ID: "local", Name: "This machine", Region: "local", SecurityGrade: 3, StaticWatts: 2, ActiveWatts: 12, Performance: 1000,
	Prices: map[string]int64{"small": 100, "medium": 240}}

func upCommand(c *cli) *cobra.Command {
	var f platformFlags
	var centers string
	var shares, poolNodes []string
	var poolLibraries string
	var none bool
	cmd := &cobra.Command{
		Use: "up", GroupID: groupServe, Short: "Start a whole platform on this machine",
		Long: `Start a whole platform on this machine: everything embedded, and a compute
gateway that makes the machine a center. --centers starts one gateway for each
center in a file instead. The gateways are processes of their own; they are
started again if they end, and end with this one. It needs root, for isolation.

Commands of the image "host" see the machine's programs read-only, and the
folders given with --share; ./examples is shown at /examples if it is there.`,
		Example: `  yunhe up
  yunhe up --data /var/lib/yunhe --listen 127.0.0.1:8180 --centers examples/centers.yaml`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.load()
			if err != nil {
				return err
			}
			list := centersFile{Centers: []agent.Center{localCenter}}
			if centers != "" {
				list.Centers = nil
				if err := readYAML(centers, &list); err != nil {
					return err
				}
			}
			if none {
				list.Centers = nil
			}
			if err := checkCenters(list.Centers); err != nil {
				return err
			}
			if err := addExamples(&shares); err != nil {
				return err
			}
			near, err := poolNodeArgs(poolNodes, poolLibraries)
			if err != nil {
				return err
			}
			var wg sync.WaitGroup
			defer wg.Wait()
			return servePlatform(cmd.Context(), cfg, func(ctx context.Context, a *app.App) error {
				for _, k := range list.Centers {
					g := gatewayChild{app: a, center: k, dir: filepath.Join(cfg.Data, "gateways", k.ID), shares: shares, near: near, cfg: cfg, say: c.note}
					wg.Go(func() { g.keep(ctx) })
				}
				c.note("Console and API: %s", a.URL())
				c.note("Administrator's key: %s", filepath.Join(cfg.Data, "admin.key"))
				return nil
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&centers, "centers", "", "file (YAML) of centers to start a gateway for each")
	cmd.Flags().StringSliceVar(&shares, "share", nil, "folder shown read-only to commands: /path or /path=/where")
	poolNodesFlag(cmd.Flags(), &poolNodes, &poolLibraries)
	cmd.Flags().BoolVar(&none, "no-gateway", false, "start no gateway")
	return cmd
}

// addExamples shows ./examples at /examples, if it is there.
func addExamples(shares *[]string) error {
	dir, err := filepath.Abs("examples")
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "the working folder cannot be found")
	}
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		*shares = append(*shares, dir+"=/examples")
	}
	return nil
}

func checkCenters(list []agent.Center) error {
	var k core.Check
	seen := map[string]bool{}
	for i, x := range list {
		k.ID(fmt.Sprintf("centers[%d].id", i), x.ID)
		if seen[x.ID] {
			k.Add(fmt.Sprintf("centers[%d].id", i), "%q is given twice", x.ID)
		}
		seen[x.ID] = true
	}
	return k.Err()
}

// gatewayChild keeps one gateway process running.
type gatewayChild struct {
	app    *app.App
	center agent.Center
	dir    string
	shares []string
	near   []string // arguments that name pool nodes
	cfg    app.Config
	say    func(format string, args ...any)
}

// keep starts the gateway, again when it ends, until ctx ends.
func (g *gatewayChild) keep(ctx context.Context) {
	pause := 200 * time.Millisecond
	for ctx.Err() == nil {
		start := time.Now()
		err := g.run(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(start) > time.Minute {
			pause = 200 * time.Millisecond
		}
		g.say("gateway of center %s ended (%v); starting it again in %s", g.center.ID, err, pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, 10*time.Second)
	}
}

func (g *gatewayChild) run(ctx context.Context) error {
	token, _, err := g.app.Adapters.CreateJoinToken(ctx, g.center.ID, time.Hour)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(g.dir, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", g.dir, err)
	}
	desc := filepath.Join(g.dir, "center.yaml")
	b, err := yaml.Marshal(g.center)
	if err != nil {
		return fmt.Errorf("describe center %s: %w", g.center.ID, err)
	}
	if err := os.WriteFile(desc, b, 0o600); err != nil {
		return fmt.Errorf("describe center %s: %w", g.center.ID, err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	args := []string{"gateway", "--server", g.app.URL(), "--data", g.dir, "--center", desc, "--log-level", g.cfg.Log.Level, "--log-format", g.cfg.Log.Format}
	for _, s := range g.shares {
		args = append(args, "--share", s)
	}
	args = append(args, g.near...)
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "YUNHE_JOIN_TOKEN="+token)
	cmd.Stderr = os.Stderr
	// The gateway ends with this process, however that ends; what it runs goes
	// on and is adopted at the next start. The signal is tied to the thread that
	// started the child, so this goroutine keeps its thread.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start gateway: %w", err)
	}
	done := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			select {
			case <-done:
			case <-time.After(5 * time.Second):
				_ = cmd.Process.Kill() // likewise
			}
		case <-done:
		}
	}()
	err = cmd.Wait()
	close(done)
	if err == nil {
		err = errors.New("exit status 0")
	}
	return err
}
