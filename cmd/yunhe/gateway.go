package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"yunhe.dev/yunhe/adapters/gateway/agent"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	"yunhe.dev/yunhe/gen/yunhe/adapters/v1/adaptersv1connect"
	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/fault"
)

// centersFile is the form of --centers and --center files.
type centersFile struct {
	Centers []agent.Center `yaml:"centers"`
}

// readYAML decodes a file and refuses unknown keys.
func readYAML(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "%s cannot be read", path)
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return fault.New(fault.Invalid, "%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	return nil
}

func gatewayCommand(c *cli) *cobra.Command {
	var data, token, center, switches, measured, logLevel, logFormat string
	var shares, poolNodes []string
	var poolLibraries string
	cmd := &cobra.Command{
		Use: "gateway", GroupID: groupServe, Short: "Make this machine a computing center of a platform",
		Long: `Make this machine a computing center: join a platform, then run what it sends,
each replica isolated in namespaces and control groups. It needs root.

The first start needs a token, made with "yunhe center join-token"; it is read
from --token or YUNHE_JOIN_TOKEN. The gateway keeps a key of its own in its data
folder and dials out only. What runs goes on if the platform or the gateway is
restarted.

It offers the image "host", which is the machine's own programs, and what is
loaded with "yunhe gateway image load".`,
		Example: `  yunhe gateway --server https://yunhe.example.com --token yj_... --data /var/lib/yunhe-gateway --center center.yaml`,
		Args:    takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			cfg := agent.Config{Token: token, Shares: shares, Version: buildVersion()}
			var err error
			if cfg.PoolNodes, cfg.PoolLibraries, err = poolNodeFlags(poolNodes, poolLibraries); err != nil {
				return err
			}
			if cfg.Program, err = os.Executable(); err != nil {
				return fault.Wrap(fault.Unavailable, err, "where this program lies is not known")
			}
			if cfg.Measure, err = measureFlag(measured); err != nil {
				return err
			}
			if cfg.Token == "" {
				cfg.Token = os.Getenv("YUNHE_JOIN_TOKEN")
			}
			if cfg.Dir, err = filepath.Abs(data); err != nil {
				return fault.Wrap(fault.Invalid, err, "--data: %q is not a folder", data)
			}
			if center != "" {
				if err := readYAML(center, &cfg.Center); err != nil {
					return err
				}
			}
			if switches != "" {
				c.warnOpen(switches, "the switches' communities")
				if err := readYAML(switches, &cfg.Switches); err != nil {
					return err
				}
				if err := cfg.Switches.Check(); err != nil {
					return err
				}
			}
			t, err := c.target()
			if err != nil {
				return err
			}
			client := adaptersv1connect.NewAdapterServiceClient(http.DefaultClient, t.server)
			cfg.Join = func(ctx context.Context, r *adaptersv1.JoinRequest) (*adaptersv1.JoinResponse, error) {
				res, err := client.Join(ctx, r)
				if connect.CodeOf(err) == connect.CodeUnavailable {
					return nil, fault.Wrap(fault.Unavailable, err, "the platform at %s does not answer", t.server)
				}
				return res, err
			}
			logs := app.LogConfig{Level: logLevel, Format: logFormat}
			if err := logFlags(logs); err != nil {
				return err
			}
			return agent.Run(ctx, cfg, newLog(logs))
		},
	}
	f := cmd.Flags()
	f.StringVar(&data, "data", "gateway-data", "folder for the gateway's key and its runs")
	f.StringVar(&token, "token", "", "token to join with; only needed the first time")
	f.StringVar(&center, "center", "", "file (YAML) that describes the center; see docs/howto/join-a-center.md")
	f.StringVar(&switches, "switches", "", "file (YAML) of the center's switches, to be asked by SNMP, mode 0600; see docs/howto/network.md")
	f.StringSliceVar(&shares, "share", nil, "folder shown read-only to commands: /path or /path=/where")
	poolNodesFlag(f, &poolNodes, &poolLibraries)
	f.StringVar(&measured, "measure", agent.MeasureOnce, "measure the machine's speed: once, again, or no")
	f.StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&logFormat, "log-format", "text", "text or json")
	cmd.AddCommand(gatewayListCommand(c), gatewayRemoveCommand(c), gatewayCheckCommand(c), gatewayPurgeCommand())
	cmd.AddCommand(gatewayImageCommand(c), gatewayMeasureCommand(c))
	return cmd
}

// poolNodesFlag says which pool nodes runs use beside them.
func poolNodesFlag(f *pflag.FlagSet, nodes *[]string, libraries *string) {
	f.StringArrayVar(nodes, "pool-node", nil, "folder (--data) of a pool node on this machine: runs whose shares of the pool are local use it, those for CUDA with the driver in them; may be repeated; see docs/howto/operate-a-pool.md")
	f.StringVar(libraries, "pool-libraries", "", "folder of the driver of CUDA (libcuda.so.1) that such runs are shown, such as /usr/local/nvidia/lib64 (default: where systems have it)")
}

// poolNodeFlags checks these, and makes them absolute.
func poolNodeFlags(nodes []string, libraries string) (folders []string, driver string, err error) {
	for _, dir := range nodes {
		abs, err := filepath.Abs(dir)
		if err == nil {
			_, err = os.Stat(abs)
		}
		if err != nil {
			return nil, "", fault.Wrap(fault.Invalid, err, "--pool-node: %q is no folder of a pool node", dir)
		}
		folders = append(folders, abs)
	}
	if libraries == "" {
		return folders, "", nil
	}
	if driver, err = filepath.Abs(libraries); err == nil {
		_, err = os.Stat(filepath.Join(driver, "libcuda.so.1"))
	}
	if err != nil {
		return nil, "", fault.Wrap(fault.Invalid, err, "--pool-libraries: %q is no folder of the driver of CUDA", libraries)
	}
	return folders, driver, nil
}

// poolNodeArgs are these of a gateway's command line.
func poolNodeArgs(nodes []string, libraries string) (args []string, err error) {
	nodes, libraries, err = poolNodeFlags(nodes, libraries)
	for _, dir := range nodes {
		args = append(args, "--pool-node", dir)
	}
	if libraries != "" {
		args = append(args, "--pool-libraries", libraries)
	}
	return args, err
}
