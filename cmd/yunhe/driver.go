package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/adapters/kubernetes"
	"yunhe.dev/yunhe/adapters/slurm"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/plugin"
	"yunhe.dev/yunhe/sdk/adapter"
)

// drivers are the plug-ins that come with the program; each runs as a process
// of its own, which the platform starts.
var drivers = map[string]func(ctx context.Context, log *slog.Logger) error{
	kubernetes.Name: driverOf(&kubernetes.Driver{}, kubernetes.New),
	slurm.Name:      driverOf(&slurm.Driver{}, slurm.New),
}

// driverCommand is what the platform starts; people have no use for it.
func driverCommand(*cli) *cobra.Command {
	return &cobra.Command{
		Use: "driver NAME", Hidden: true, Short: "Run a built-in driver; the platform does this",
		Args: takes(1, 1, "the name of a driver"),
		RunE: func(cmd *cobra.Command, args []string) error {
			run := drivers[args[0]]
			if run == nil {
				return usagef("there is no driver %q; there are: %s", args[0], strings.Join(slices.Sorted(maps.Keys(drivers)), ", "))
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return run(ctx, newLog(app.LogConfig{Level: os.Getenv("YUNHE_LOG_LEVEL")}))
		},
	}
}

// driver is what the packages of built-in drivers offer.
type driver interface {
	adapter.Driver
	Close()
}

// driverOf makes the process of a driver. Without a center to serve it only
// says what it is; a configuration that is wrong is reported as trouble, so
// that the operator reads it where the instance is shown.
func driverOf[C any, D driver](describe adapter.Driver, start func(ctx context.Context, center string, cfg C, log *slog.Logger) (D, error)) func(context.Context, *slog.Logger) error {
	return func(ctx context.Context, log *slog.Logger) error {
		center := adapter.Center("")
		if center == "" {
			return adapter.Serve(ctx, asBuilt{describing{Driver: describe}})
		}
		var cfg C
		if err := adapter.Config(&cfg); err != nil {
			return adapter.Serve(ctx, asBuilt{describing{Driver: describe, trouble: err.Error()}})
		}
		d, err := start(ctx, center, cfg, log)
		if err != nil {
			return adapter.Serve(ctx, asBuilt{describing{Driver: describe, trouble: err.Error()}})
		}
		defer d.Close()
		return adapter.Serve(ctx, asBuilt{d})
	}
}

// asBuilt is a driver with the version of this program, which it comes with.
type asBuilt struct{ adapter.Driver }

// Describe answers as the driver does, but for the version.
func (d asBuilt) Describe(ctx context.Context, r *adapterv1.DescribeRequest) (*adapterv1.DescribeResponse, error) {
	out, err := d.Driver.Describe(ctx, r)
	if err == nil {
		out.Version = buildVersion()
	}
	return out, err
}

// describing is a driver that can do nothing but say what it is, and why.
type describing struct {
	adapter.Driver
	trouble string
}

func (d describing) why() error {
	if d.trouble == "" {
		return connect.NewError(connect.CodeUnavailable, fmt.Errorf("no center was named: %s is not set", adapter.CenterEnv))
	}
	return connect.NewError(connect.CodeUnavailable, fmt.Errorf("%s", d.trouble))
}

// Discover says why there is nothing.
func (d describing) Discover(context.Context, *adapterv1.DiscoverRequest) (*adapterv1.DiscoverResponse, error) {
	return nil, d.why()
}

// Watch says why there is nothing, until it is told to end.
func (d describing) Watch(ctx context.Context, _ *adapterv1.WatchRequest, out *connect.ServerStream[adapterv1.WatchResponse]) error {
	if d.trouble == "" {
		return d.why()
	}
	for ctx.Err() == nil {
		if err := out.Send(&adapterv1.WatchResponse{Trouble: d.trouble}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
	return nil
}

// Apply refuses nothing for good: the configuration may be mended.
func (d describing) Apply(context.Context, *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
	return nil, d.why()
}

// Remove does nothing.
func (d describing) Remove(context.Context, *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
	return nil, d.why()
}

// Observe sees nothing.
func (d describing) Observe(context.Context, *adapterv1.ObserveRequest, *connect.ServerStream[adapterv1.ObserveResponse]) error {
	return d.why()
}

// ReadLog reads nothing.
func (d describing) ReadLog(context.Context, *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
	return nil, d.why()
}

// gatewayConfig describes the file of a gateway's center (agent.Center).
type gatewayConfig struct {
	ID string `json:"id" jsonschema:"ID of the center"`
	adapter.Declared
	CPU    string `json:"cpu,omitempty" jsonschema:"cores for jobs, all if empty"`
	Memory string `json:"memory,omitempty" jsonschema:"memory for jobs, 80 % of the machine's if empty"`

	Accelerators string `json:"accelerators,omitempty" jsonschema:"none, or all that are found if empty"`
}

// builtIn lists the plug-ins that come with the program.
func builtIn() ([]adapters.Known, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	schema, err := adapter.Schema[gatewayConfig]()
	if err != nil {
		return nil, err
	}
	known := []adapters.Known{{Config: plugin.Config{Name: adapters.GatewayPlugin}, Source: adapters.BuiltIn, Version: buildVersion(), Parts: []string{"image", "job", "resource", "storage"}, Schema: schema}}
	for _, name := range slices.Sorted(maps.Keys(drivers)) {
		known = append(known, adapters.Known{Config: plugin.Config{Name: name, Command: []string{exe, "driver", name}, OnDemand: true}, Source: adapters.BuiltIn})
	}
	return known, nil
}
