package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/release"
)

func poolUpgradeCommand(c *cli) *cobra.Command {
	return group("upgrade", "", "Upgrade pool nodes, and the platform, while tasks compute",
		poolUpgradeUploadCommand(c), poolUpgradeReleasesCommand(c), poolUpgradeStartCommand(c), poolUpgradeListCommand(c),
		poolUpgradeChangeCommand(c, "continue", "Go on with a gray upgrade that waits after its first batch", poolv1.ChangePoolUpgradeRequest_ACTION_CONTINUE),
		poolUpgradeChangeCommand(c, "stop", "Stop an upgrade after what is under way", poolv1.ChangePoolUpgradeRequest_ACTION_STOP),
		poolUpgradeChangeCommand(c, "rollback", "Have all nodes of an upgrade run again what they ran before", poolv1.ChangePoolUpgradeRequest_ACTION_ROLL_BACK))
}

func (c *cli) printPoolReleases(msg any, list ...*poolv1.PoolRelease) error {
	t := text.NewTable("VERSION", "SHA-256", ">SIZE", "UPLOADED")
	var names []string
	for _, r := range list {
		names = append(names, r.Sha256)
		t.Row(r.Version, r.Sha256, text.Bytes(r.Bytes), c.stamp(r.UploadedAt))
	}
	return c.print(result{msg: msg, names: names, print: func(w io.Writer, color bool) error {
		if t.Len() == 0 {
			c.note("there are no programs to upgrade to; `yunhe pool upgrade upload FILE` is the first step")
			return nil
		}
		return t.Write(w, color)
	}})
}

func poolUpgradeReleasesCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "releases", Short: "List the programs that nodes can be upgraded to",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.poolOps.ListPoolReleases(cmd.Context(), &poolv1.ListPoolReleasesRequest{})
			if err != nil {
				return err
			}
			return c.printPoolReleases(res, res.Releases...)
		},
	}
}

// partBytes is how much of a program is uploaded at once.
const partBytes = 1 << 20

func poolUpgradeUploadCommand(c *cli) *cobra.Command {
	var says string
	cmd := &cobra.Command{
		Use: "upload FILE", Short: "Give the platform a program that nodes can be upgraded to",
		Long: `Uploads a yunhe for the machines of nodes. What was uploaded before it was cut
off is not sent again. The platform takes it when its SHA-256 is right.`,
		Example: "  yunhe pool upgrade upload ./yunhe-1.4.0",
		Args:    takes(1, 1, "a program: a yunhe for the machines of nodes"),
		RunE: func(cmd *cobra.Command, args []string) error {
			sum, err := release.Sum(args[0])
			if err != nil {
				return fault.Wrap(fault.Invalid, err, "%s cannot be read", args[0])
			}
			if says == "" {
				if says, err = versionOf(cmd.Context(), args[0]); err != nil {
					return err
				}
			}
			file, err := os.Open(args[0])
			if err != nil {
				return fault.Wrap(fault.Invalid, err, "%s cannot be read", args[0])
			}
			defer file.Close()
			info, err := file.Stat()
			if err != nil {
				return fault.Wrap(fault.Invalid, err, "%s cannot be read", args[0])
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			req := &poolv1.UploadPoolReleaseRequest{Sha256: sum, Version: says, Bytes: info.Size()}
			part := make([]byte, partBytes)
			for {
				res, err := a.poolOps.UploadPoolRelease(cmd.Context(), req)
				if err != nil {
					return err
				}
				if res.Release != nil {
					return c.printPoolReleases(res.Release, res.Release)
				}
				n, err := file.ReadAt(part, res.Received)
				if err != nil && err != io.EOF || n == 0 {
					return fault.Wrap(fault.Invalid, err, "%s cannot be read: it changed, or the upload is longer", args[0])
				}
				req.Offset, req.Content = res.Received, part[:n]
			}
		},
	}
	cmd.Flags().StringVar(&says, "as", "", "what its version is called (default: what the program says, if it runs here)")
	return cmd
}

// versionOf is what a program says that it is.
func versionOf(ctx context.Context, path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, abs, "version", "-o", "name")
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || strings.TrimSpace(out.String()) == "" {
		return "", usagef("%s does not say its version here (%v %s): give it with --as", path, err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

func (c *cli) printPoolUpgrades(msg any, list ...*poolv1.PoolUpgrade) error {
	t := text.NewTable("UPGRADE", "STATE", "TO", "NODE", "STATE", "FROM", "REASON")
	var names []string
	for _, x := range list {
		names = append(names, x.UpgradeId)
		row := []any{x.UpgradeId, enumName(x.State.String(), "STATE_"), x.Release.GetVersion(), "", "", "", ""}
		for _, n := range x.Nodes {
			row[3], row[4], row[5], row[6] = n.NodeId, enumName(n.State.String(), "STATE_"), n.FromVersion, n.Reason
			if n.NodeId == "" {
				row[3] = "(platform)"
			}
			t.Row(row...)
			row = []any{"", "", "", "", "", "", ""}
		}
	}
	return c.print(result{msg: msg, names: names, print: func(w io.Writer, color bool) error {
		if t.Len() == 0 {
			c.note("nothing was upgraded; `yunhe pool upgrade start` begins")
			return nil
		}
		return t.Write(w, color)
	}})
}

func poolUpgradeListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List upgrades, newest first",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.poolOps.ListPoolUpgrades(cmd.Context(), &poolv1.ListPoolUpgradesRequest{})
			if err != nil {
				return err
			}
			return c.printPoolUpgrades(res, res.Upgrades...)
		},
	}
}

func poolUpgradeStartCommand(c *cli) *cobra.Command {
	var everywhere bool
	var pause, patience time.Duration
	req := &poolv1.StartPoolUpgradeRequest{}
	cmd := &cobra.Command{
		Use: "start [NODE...]", Short: "Upgrade nodes, batch after batch, while their tasks compute",
		Long: `Has each node fetch the program, check it, and become it: tasks and connections
stay, and stand still for less than a second. A node that does not run it in time,
or cannot reach the platform with it, goes back; then all that were upgraded do,
but with --keep.

With --gray the upgrade waits after its first batch: see how that goes, then
"continue" or "rollback".`,
		Example: `  yunhe pool upgrade start --to 3f1c... n1
  yunhe pool upgrade start --to 3f1c... --every-node --batch 10 --gray
  yunhe pool upgrade start --to 3f1c... --platform n2`,
		Args: takes(0, 1000, "nodes of the platform's pool"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if everywhere && len(args) > 0 || !everywhere && !req.Platform && len(args) == 0 {
				return usagef("name nodes, or give --every-node or --platform")
			}
			if req.Sha256 == "" {
				return usagef("--to: want the SHA-256 of a program; see `yunhe pool upgrade releases`")
			}
			for _, x := range []struct {
				flag  string
				value time.Duration
				to    *int64
			}{{"--pause", pause, &req.PauseSeconds}, {"--patience", patience, &req.PatienceSeconds}} {
				if x.value == 0 {
					continue
				}
				if *x.to, err = wholeSeconds(x.flag, x.value); err != nil {
					return err
				}
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			req.NodeIds = args
			if everywhere {
				all, err := a.poolOps.ListPoolComponents(cmd.Context(), &poolv1.ListPoolComponentsRequest{})
				if err != nil {
					return err
				}
				for _, n := range all.Nodes {
					req.NodeIds = append(req.NodeIds, n.NodeId)
				}
			}
			if len(req.Sha256) < 64 { // its beginning, if that is enough
				list, err := a.poolOps.ListPoolReleases(cmd.Context(), &poolv1.ListPoolReleasesRequest{})
				if err != nil {
					return err
				}
				var found []string
				for _, r := range list.Releases {
					if strings.HasPrefix(r.Sha256, req.Sha256) || r.Version == req.Sha256 {
						found = append(found, r.Sha256)
					}
				}
				if len(found) != 1 {
					return usagef("--to: %d programs are %q; see `yunhe pool upgrade releases`", len(found), req.Sha256)
				}
				req.Sha256 = found[0]
			}
			x, err := a.poolOps.StartPoolUpgrade(cmd.Context(), req)
			if err != nil {
				return err
			}
			return c.printPoolUpgrades(x, x)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Sha256, "to", "", "the program: its SHA-256, the beginning of that, or its version")
	f.BoolVar(&everywhere, "every-node", false, "all nodes of the pool")
	f.BoolVar(&req.Platform, "platform", false, "the platform too, if it is one process")
	f.Int64Var(&req.Batch, "batch", 0, "how many at once (default: all)")
	f.BoolVar(&req.Gray, "gray", false, "wait after the first batch until it is told to go on")
	f.DurationVar(&pause, "pause", 0, "time between batches")
	f.DurationVar(&patience, "patience", 0, "time after which a node that does not run the program has failed (default 5m)")
	f.BoolVar(&req.KeepOnFailure, "keep", false, "leave what was upgraded as it is when a node fails")
	return cmd
}

func poolUpgradeChangeCommand(c *cli, use, short string, action poolv1.ChangePoolUpgradeRequest_Action) *cobra.Command {
	return &cobra.Command{
		Use: use + " UPGRADE", Short: short,
		Args: takes(1, 1, "an upgrade: see `yunhe pool upgrade list`"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			x, err := a.poolOps.ChangePoolUpgrade(cmd.Context(), &poolv1.ChangePoolUpgradeRequest{UpgradeId: args[0], Action: action})
			if err != nil {
				return err
			}
			return c.printPoolUpgrades(x, x)
		},
	}
}
