package main

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// poolAt is how commands reach a node.
type poolAt struct {
	node, group, key string

	cmd *cobra.Command
}

func (p *poolAt) flags(cmd *cobra.Command) {
	p.cmd = cmd
	f := cmd.Flags()
	f.StringVar(&p.node, "node", "", "address of the pool node, unix:PATH, tcp:HOST:PORT, tls:HOST:PORT or rdma:HOST:PORT (default $YUNHE_POOL_NODE, or that of a node started in this folder)")
	f.StringVar(&p.group, "group", "", "group to act for, where the node has groups (default $YUNHE_POOL_GROUP)")
	f.StringVar(&p.key, "key-file", "", "file with the group's key (default: the key in $YUNHE_POOL_KEY)")
}

// address is the node's, and what named it; "": nothing did.
func (p *poolAt) address(c *cli) (at, named string) {
	switch {
	case p.node != "":
		return p.node, "--node"
	case c.env("YUNHE_POOL_NODE") != "":
		return c.env("YUNHE_POOL_NODE"), "$YUNHE_POOL_NODE"
	}
	return pool.DefaultAddress(poolDir), ""
}

// with calls do with a connection to the node, which ends when ctx does.
func (p *poolAt) with(ctx context.Context, c *cli, do func(*pool.Client) error) error {
	client, err := p.dial(ctx, c)
	if err != nil {
		return err
	}
	defer client.Close()
	defer context.AfterFunc(ctx, client.Close)()
	return do(client)
}

func (p *poolAt) dial(ctx context.Context, c *cli) (*pool.Client, error) {
	at, named := p.address(c)
	if of := given(p.cmd, serverFlags...); len(of) > 0 {
		return nil, usagef("%s is of a platform, and does not go with %s: a pool node is asked", of[0], cmp.Or(named, "--node"))
	}
	if _, _, err := pool.Address(at); err != nil {
		return nil, usagef("%s: %s", cmp.Or(named, "--node"), err)
	}
	group, key := p.group, c.env("YUNHE_POOL_KEY")
	if group == "" {
		group = c.env("YUNHE_POOL_GROUP")
	}
	if p.key != "" {
		c.warnOpen(p.key, "a key")
		b, err := os.ReadFile(p.key)
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "--key-file: %s cannot be read", p.key)
		}
		if key = strings.TrimSpace(string(b)); key == "" {
			return nil, fault.New(fault.Invalid, "--key-file: %s is empty", p.key)
		}
	}
	client, err := pool.Dial(ctx, at, group, key)
	switch {
	case fault.KindOf(err) == fault.Unavailable && named == "":
		err = &hinted{err, "name a node with --node or $YUNHE_POOL_NODE, or start one here: `yunhe pool node`"}
	case fault.KindOf(err) == fault.Unauthenticated && (group == "" || key == ""):
		err = &hinted{err, "say for which group with --group, and with which key with --key-file"}
	}
	return client, err
}

// Flags that have to do with a platform: of all commands, and of "pool run".
var (
	serverFlags = []string{"server", "key", "context"}
	poolFlags   = []string{"platform", "spec", "on", "slice", "priority", "physical", "affinity", "anti-affinity", "cards", "across-nodes", "local", "nodes", "devices", "into", "node-socket"}
)

// given are those of the flags that the command line has, as it has them.
func given(cmd *cobra.Command, flags ...string) []string {
	var out []string
	for _, f := range flags {
		if cmd.Flags().Changed(f) {
			out = append(out, "--"+f)
		}
	}
	return out
}

// asksPlatform reports whether "pool run" asks the platform: where a flag says so, or
// no node is named, and none was started in this folder. It refuses flags of the other.
func (c *cli) asksPlatform(cmd *cobra.Command, at *poolAt) (bool, error) {
	address, named := at.address(c)
	of := given(cmd, slices.Concat(poolFlags, serverFlags)...)
	if named == "--node" || named != "" && !cmd.Flags().Changed("platform") {
		if len(of) > 0 {
			e := &usageError{msg: of[0] + " is of a platform, and does not go with " + named + ": a pool node is asked"}
			if named != "--node" {
				e.hint = "--platform asks the platform all the same"
			}
			return false, e
		}
		return false, nil
	}
	if len(of) == 0 {
		if _, err := os.Stat(strings.TrimPrefix(address, "unix:")); err == nil {
			return false, nil
		}
	}
	switch with := given(cmd, "device", "key-file"); {
	case len(with) == 0:
		return true, nil
	case with[0] == "--device":
		return true, usagef("--device names a device of one pool node; one of the platform's pool is named by --on NODE/DEVICE")
	case len(of) > 0:
		return true, usagef("--key-file is of a group of one pool node, and does not go with %s: the platform is asked", of[0])
	}
	return true, usagef("--key-file is of a group of one pool node: name that with --node")
}

// sliceConflicts refuses what is asked for where something else says what there is.
func sliceConflicts(cmd *cobra.Command) error {
	share := []string{"compute", "memory", "weighted"}
	for _, x := range []struct {
		flag, why string
		not       []string
	}{
		{"slice", "what is held stays as it is", slices.Concat(share, []string{"spec", "api", "model", "on", "priority", "physical", "affinity", "anti-affinity", "cards", "across-nodes", "local", "nodes", "devices", "idle", "limit"})},
		{"physical", "a card is given whole", append(share, "spec")},
		{"spec", "a specification says how much", share},
	} {
		if f := cmd.Flags().Lookup(x.flag); f == nil || !f.Changed {
			continue
		}
		if with := given(cmd, x.not...); len(with) > 0 {
			return usagef("%s does not go with --%s: %s", with[0], x.flag, x.why)
		}
	}
	return nil
}
