package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"yunhe.dev/yunhe/adapters/gateway/agent"
	"yunhe.dev/yunhe/adapters/gateway/remote"
	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
)

// leaving is a leave under way.
type leaving struct {
	*joining

	center     string
	wait       time.Duration
	force      bool
	keepCenter bool
}

func centerLeaveCommand(c *cli) *cobra.Command {
	var o joinOptions
	var l leaving
	var yes bool
	cmd := &cobra.Command{
		Use: "leave ssh://[USER@]HOST[:PORT]", Short: "Undo a join: take the gateway off a machine",
		Long: `Undoes "yunhe center join": takes the center out of use, stops the gateway, ends
its membership, deletes the center and removes every file from the machine.

While replicas run or wait there it does not begin: --wait waits for them, and
--force ends them on the machine; the platform then knows them as running until
you write them off with "yunhe job write-off", and the center is kept until you
delete it. Doing it again goes on where the last try ended.`,
		Example: `  yunhe center leave ssh://root@10.0.0.7 --wait 1h`,
		Args:    takes(1, 1, "the address of a machine, ssh://user@host"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.target, err = remote.ParseTarget(args[0], c.env("USER")); err != nil {
				return usageOf(err)
			}
			if !yes {
				if err := c.confirm(fmt.Sprintf("Take the gateway off %s?", o.target)); err != nil {
					return err
				}
			}
			if l.joining, err = newJoining(c, &o); err != nil {
				return err
			}
			defer l.close()
			return l.leave(cmd.Context())
		},
	}
	o.ssh.add(cmd)
	f := cmd.Flags()
	f.DurationVar(&l.wait, "wait", 0, "how long to wait for what runs there, such as 1h")
	f.BoolVar(&l.force, "force", false, "end what runs there")
	f.BoolVar(&l.keepCenter, "keep-center", false, "keep the center's record, with its prices and labels")
	yesFlag(cmd, &yes)
	return cmd
}

func (l *leaving) leave(ctx context.Context) error {
	for _, s := range []struct {
		name string
		do   func(context.Context) (string, error)
	}{{"connect", l.connect}, {"machine", l.look}, {"folder", l.find}} {
		if err := l.do(s.name, "", func() (string, error) { return s.do(ctx) }); err != nil {
			return err
		}
	}
	if l.center == "" {
		l.c.note("there is no gateway in %s", l.in.Dir)
	} else {
		if err := l.do("work", "wait for it with --wait 1h, stop the jobs, or end it with --force", func() (string, error) { return l.empty(ctx) }); err != nil {
			return err
		}
		for _, s := range []struct {
			name string
			do   func(context.Context) (string, error)
		}{{"gateway", l.stopGateway}, {"membership", l.endMembership}, {"center", l.deleteCenter}} {
			if err := l.do(s.name, "", func() (string, error) { return s.do(ctx) }); err != nil {
				return err
			}
		}
	}
	if err := l.do("files", "", func() (string, error) { return l.in.Dir + " is gone", l.in.Remove(ctx) }); err != nil {
		return err
	}
	return l.c.printJoined(joinResult{AiCenterID: l.center, Status: "left", Target: l.o.target.String(), HostKey: l.m.Fingerprint, Steps: l.list})
}

// find holds the folder and reads whose it is; also after a join that did not
// come to its end.
func (l *leaving) find(ctx context.Context) (string, error) {
	said, err := l.open(ctx)
	if err != nil {
		return "", err
	}
	if l.was != nil {
		l.center = l.was.Center.ID
		return said, nil
	}
	b, err := l.in.Read(ctx, l.in.Dir+"/center.yaml")
	if err != nil || b == nil {
		return "nothing in " + l.in.Dir, err
	}
	var k agent.Center
	if err := yaml.Unmarshal(b, &k); err != nil {
		return "", fmt.Errorf("%s/center.yaml there cannot be read: %w", l.in.Dir, err)
	}
	l.center = k.ID
	return fmt.Sprintf("%s, half joined as center %s", l.in.Dir, k.ID), nil
}

// empty sees to it that nothing new is placed there and waits until nothing is
// left. A center that is not left after all takes work again.
func (l *leaving) empty(ctx context.Context) (string, error) {
	k, err := l.a.registry.GetCenter(ctx, &registryv1.GetCenterRequest{AiCenterId: l.center})
	if connect.CodeOf(err) == connect.CodeNotFound {
		return "the platform has no center " + l.center, nil
	}
	if err != nil {
		return "", err
	}
	drained := k.GetDrained()
	if k, err = setDrained(ctx, l.a, l.center, true); err != nil {
		return "", err
	}
	wait, cancel := context.WithTimeout(ctx, l.wait)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		m := k.GetMonitoring()
		n := m.GetRunningTaskNum() + m.GetWaitingTaskNum()
		if n == 0 {
			return "nothing runs there", nil
		}
		if l.force {
			return text.Count(int(n), "replica") + " there, to be ended", nil
		}
		select {
		case <-tick.C:
		case <-wait.Done():
			if !drained {
				back, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
				defer cancel()
				if _, err := setDrained(back, l.a, l.center, false); err != nil {
					l.c.note("center %s stays drained: %v", l.center, err)
				}
			}
			if ctx.Err() != nil {
				return "", ctx.Err()
			}
			return "", fmt.Errorf("center %s has %d running and %d waiting replicas", l.center, m.GetRunningTaskNum(), m.GetWaitingTaskNum())
		}
		if k, err = l.a.registry.GetCenter(ctx, &registryv1.GetCenterRequest{AiCenterId: l.center}); err != nil {
			return "", err
		}
	}
}

func (l *leaving) stopGateway(ctx context.Context) (string, error) {
	if err := l.in.Stop(ctx); err != nil {
		return "", err
	}
	if !l.force || l.state.Current == "" {
		return "stopped", nil
	}
	if _, err := l.in.Call(ctx, l.state.Current, "gateway", "purge", "--data", l.in.Data(), "--center", l.center); err != nil {
		return "", err
	}
	return "stopped, and all it ran", nil
}

func (l *leaving) endMembership(ctx context.Context) (string, error) {
	_, err := l.a.adapters.RemoveGateway(ctx, &adaptersv1.RemoveGatewayRequest{AiCenterId: l.center})
	if connect.CodeOf(err) == connect.CodeNotFound {
		return "none", nil
	}
	return "ended", err
}

func (l *leaving) deleteCenter(ctx context.Context) (string, error) {
	if !l.keepCenter {
		_, err := l.a.registry.DeleteCenter(ctx, &registryv1.DeleteCenterRequest{AiCenterId: l.center})
		switch connect.CodeOf(err) {
		case connect.CodeNotFound:
			return "none", nil
		case connect.CodeAborted:
			if l.force {
				return "kept: its runs have yet to be written off, see `yunhe job write-off`", nil
			}
		}
		return "deleted", err
	}
	// It was drained for this only, and may be joined again.
	_, err := setDrained(ctx, l.a, l.center, false)
	if connect.CodeOf(err) == connect.CodeNotFound {
		return "none", nil
	}
	return "kept", err
}

// gatewayPurgeCommand ends what a stopped gateway left running. It is for
// `center leave --force`.
func gatewayPurgeCommand() *cobra.Command {
	var data, center string
	cmd := &cobra.Command{
		Use: "purge", Short: "End what a stopped gateway of this machine left running", Hidden: true,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return purge(cmd.Context(), data, center) },
	}
	cmd.Flags().StringVar(&data, "data", "gateway-data", "folder for the gateway's key and its runs")
	cmd.Flags().StringVar(&center, "center", "", "ID of its center")
	return cmd
}

func purge(ctx context.Context, data, center string) error {
	dir, err := filepath.Abs(data)
	if err != nil {
		return fmt.Errorf("find %s: %w", data, err)
	}
	sb, err := sandbox.New(sandbox.Config{Dir: filepath.Join(dir, "runs"), GatewayID: center}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer sb.Close()
	runs, err := sb.Adopt(ctx)
	if err != nil {
		return err
	}
	for _, r := range runs {
		err = errors.Join(err, r.Stop())
	}
	for _, r := range runs {
		select {
		case <-r.Done():
			err = errors.Join(err, sb.Remove(r.ID()))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}
