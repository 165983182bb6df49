package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/fault"
)

// runnerCommand is the hidden first argument that makes this program the
// supervisor of one replica where no separate runner is embedded.
const runnerCommand = "runner"

// platformFlags choose the configuration of a platform process.
type platformFlags struct {
	config, data, listen, database, logLevel string
	roles                                    []string
}

func (f *platformFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.config, "config", "", "configuration file (YAML); see docs/configuration.md")
	fl.StringVar(&f.data, "data", "", "folder for keys and, when embedded, all state (default ./data)")
	fl.StringVar(&f.listen, "listen", "", "address of API and console (default 127.0.0.1:8180)")
	fl.StringVar(&f.database, "database", "", "postgres://... to keep the state there (default: SQLite in the data folder)")
	fl.StringVar(&f.logLevel, "log-level", "", "debug, info, warn or error (default info)")
}

// load reads the file, then the environment, then the flags: later wins.
func (f *platformFlags) load() (app.Config, error) {
	cfg := app.DefaultConfig()
	if f.config != "" {
		var err error
		if cfg, err = app.LoadConfig(f.config); err != nil {
			return cfg, err
		}
	}
	for _, x := range []struct {
		to        *string
		env, flag string
	}{
		{&cfg.Data, "YUNHE_DATA", f.data}, {&cfg.Listen.Address, "YUNHE_LISTEN", f.listen},
		{&cfg.Database.URL, "YUNHE_DATABASE", f.database}, {&cfg.Log.Level, "YUNHE_LOG_LEVEL", f.logLevel},
	} {
		if v := os.Getenv(x.env); v != "" {
			*x.to = v
		}
		if x.flag != "" {
			*x.to = x.flag
		}
	}
	if len(f.roles) > 0 {
		cfg.Roles = f.roles
	}
	abs, err := filepath.Abs(cfg.Data)
	if err != nil {
		return cfg, fault.Wrap(fault.Invalid, err, "data: %q is not a folder", cfg.Data)
	}
	cfg.Data = abs
	if cfg.Adapters.BuiltIn, err = builtIn(); err != nil {
		return cfg, err
	}
	return cfg, cfg.Validate()
}

// logFlags checks --log-level and --log-format.
func logFlags(cfg app.LogConfig) error {
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, cfg.Level) {
		return usagef("--log-level must be debug, info, warn or error, got %q", cfg.Level)
	}
	if cfg.Format != "text" && cfg.Format != "json" {
		return usagef("--log-format must be text or json, got %q", cfg.Format)
	}
	return nil
}

func newLog(cfg app.LogConfig) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Level)) // validated
	opts := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, opts))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opts))
}

func serveCommand(c *cli) *cobra.Command {
	var f platformFlags
	cmd := &cobra.Command{
		Use: "serve", GroupID: groupServe, Short: "Run a platform process",
		Long: `Run a platform process: the API, the console and the loops behind them.

Without a configuration everything is embedded: SQLite, NATS, the metrics store
and a folder of objects, all below the data folder. The same program runs as
several processes on PostgreSQL and a NATS cluster; --roles then chooses what
this one does (` + strings.Join(app.Roles, ", ") + `; default all).`,
		Example: `  yunhe serve --data /var/lib/yunhe --listen 0.0.0.0:8180
  yunhe serve --config /etc/yunhe.yaml --roles api,reach`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.load()
			if err != nil {
				return err
			}
			return servePlatform(cmd.Context(), cfg, func(ctx context.Context, a *app.App) error {
				c.note("Console and API: %s", a.URL())
				c.note("Administrator's key: %s", filepath.Join(cfg.Data, "admin.key"))
				return nil
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringSliceVar(&f.roles, "roles", nil, "roles of this process, comma separated (default all)")
	return cmd
}

// servePlatform runs a platform until ctx or a signal ends it; started is
// called once it listens.
func servePlatform(ctx context.Context, cfg app.Config, started func(context.Context, *app.App) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg.Version = buildVersion()
	self := itself(cfg, stop)
	if self == nil {
		return runPlatform(ctx, cfg, started)
	}
	if os.Getenv(previousEnv) == "" && self.back == "" {
		if err := upgraded(self.folder); err != nil {
			return err
		}
	}
	cfg.Program = self
	err := runPlatform(ctx, cfg, func(ctx context.Context, a *app.App) error {
		err := started(ctx, a)
		if err == nil {
			err = self.cameUp(nil)
		}
		return err
	})
	if err := self.cameUp(err); err != nil {
		return err
	}
	return self.replaced()
}

// What a platform keeps in memory is collected when it has grown to so many
// percent more, as long as the program takes no more than this part of what the
// machine or its cgroup has: collecting takes a fifth of the processor time of
// scheduling at Go's default of 100.
const (
	heapGrowth = 300
	memoryPart = 0.75
)

// roomToCollect sets how often memory is collected, where GOGC and GOMEMLIMIT
// do not.
func roomToCollect(log *slog.Logger) {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(heapGrowth)
	}
	if _, err := memlimit.Set(memlimit.WithRatio(memoryPart), memlimit.WithProvider(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem))); err != nil {
		log.Warn("the program's memory is not bounded", "error", err)
	}
}

func runPlatform(ctx context.Context, cfg app.Config, started func(context.Context, *app.App) error) error {
	log := newLog(cfg.Log)
	roomToCollect(log)
	a, err := app.New(ctx, cfg, log)
	if err != nil {
		return err
	}
	if err := started(ctx, a); err != nil {
		a.Close()
		return fmt.Errorf("start: %w", err)
	}
	return a.Run(ctx)
}
