package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools/conformance"
)

func poolConformanceCommand(c *cli) *cobra.Command {
	var tests []string
	var other string
	cmd := &cobra.Command{
		Use: "conformance", Short: "Check the platform's pool against the 27 tests of clause 12",
		Long: `Checks the platform's pool against the tests of clause 12, with real programs on its
nodes, and says which level of table A.1 it has. It needs an administrator's key and
changes devices, nodes and their configuration, the policy, alarm rules and who is told
of alarms while it runs: use a pool that nobody else does. What it changed is put back,
unless it is killed. A test that cannot be tried is "not provided" and
counts as one that failed. It starts a pool node on this machine where that has
devices, to see a node come and go; cards are not put in or taken out.

The exit status is 0 if all tests that were tried passed.`,
		Example: "  yunhe pool conformance\n  yunhe pool conformance --test 12.10 --test 12.23 -o json",
		Args:    takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, id := range tests {
				if !conformance.Has(id) {
					return usagef("--test: there is no test %q: 12.1 to 12.27", id)
				}
			}
			dir, err := os.MkdirTemp("", "yunhe-conformance-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			b, err := c.conformanceBench(cmd.Context(), dir)
			if err != nil {
				return err
			}
			if b.Release = other; other != "" {
				if _, err := versionOf(cmd.Context(), other); err != nil {
					return err
				}
			}
			r := conformance.Run(cmd.Context(), b, tests, func(v conformance.Verdict) {
				if c.forPeople() {
					c.note("%-6s %-13s %s (%.1f s)", v.ID, v.Result, v.Title, v.Seconds)
				}
			})
			failed := 0
			t := text.NewTable("TEST", "RESULT", "TITLE", ">SECONDS", "REASON")
			for _, v := range r.Tests {
				if v.Result == conformance.Failed {
					failed++
				}
				t.Row(v.ID, string(v.Result), v.Title, fmt.Sprintf("%.1f", v.Seconds), v.Reason)
			}
			if err := c.print(result{msg: r, names: []string{strconv.Itoa(r.Level)}, print: func(w io.Writer, color bool) error {
				if err := t.Write(w, color); err != nil {
					return err
				}
				_, err := fmt.Fprintf(w, "\nLevel %d of table A.1\n", r.Level)
				return err
			}}); err != nil {
				return err
			}
			if failed > 0 {
				return exitStatus(1)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&other, "release", "", "another build of yunhe, which nodes and platform are upgraded to and back (default: 12.20 and 12.22 are not tried)")
	cmd.Flags().StringArrayVar(&tests, "test", nil, "test to run, 12.1 to 12.27; may be repeated (default: all; the level counts those that ran)")
	return cmd
}

// conformanceBench is what the checks are made with: this program, as the caller
// and as two users that are made for it.
func (c *cli) conformanceBench(ctx context.Context, dir string) (b conformance.Bench, err error) {
	a, err := c.api()
	if err != nil {
		return b, err
	}
	self, err := os.Executable()
	if err != nil {
		return b, err
	}
	if b.Program, err = pool.TestProgram(dir); err != nil {
		return b, err
	}
	me, err := a.identity.WhoAmI(ctx, &identityv1.WhoAmIRequest{})
	if err != nil {
		return b, err
	}
	b.API, b.Operation, b.Alarms, b.Notices, b.Tenant = a.pool, a.poolOps, a.alarms, a.notices, me.User.TenantId
	for _, user := range []string{"conformance-a", "conformance-b"} {
		_, err := a.identity.CreateUser(ctx, &identityv1.CreateUserRequest{User: &identityv1.User{UserId: user, TenantId: b.Tenant, Name: "Pool conformance", Role: identityv1.Role_ROLE_USER}})
		if err != nil && connect.CodeOf(err) != connect.CodeAlreadyExists {
			return b, err
		}
		key, err := a.identity.CreateKey(ctx, &identityv1.CreateKeyRequest{UserId: user, Note: "yunhe pool conformance", TtlSeconds: 3600})
		if err != nil {
			return b, err
		}
		b.Clients = append(b.Clients, conformance.Client{User: user, Key: key.Secret})
	}
	b.Yunhe = func(ctx context.Context, key string, env []string, args ...string) *exec.Cmd {
		if key == "" {
			key = a.target.key
		}
		cmd := exec.CommandContext(ctx, self, args...)
		cmd.Env = append(append(os.Environ(), "YUNHE_SERVER="+a.target.server, "YUNHE_KEY="+key), env...)
		return cmd
	}
	b.AddNode = func(ctx context.Context) (conformance.Node, error) {
		n := conformance.Node{ID: "conformance-" + strconv.FormatInt(time.Now().Unix(), 36)}
		token, err := b.API.CreateNodeToken(ctx, &poolv1.CreateNodeTokenRequest{TtlSeconds: 60})
		if err != nil {
			return n, err
		}
		data := dir + "/" + n.ID
		cmd := exec.Command(self, "pool", "node", "--join", a.target.server, "--token", token.Token, "--name", n.ID, "--data", data, "--listen", "unix:"+data+".sock")
		var said strings.Builder
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			return n, err
		}
		ended := make(chan struct{})
		go func() { defer close(ended); _ = cmd.Wait() }()
		n.Stop = func() { _ = cmd.Process.Kill(); <-ended } // or it has left
		select {
		case <-ended:
			return n, fault.New(fault.Unavailable, "no pool node starts on this machine: %s", strings.TrimSpace(said.String()))
		case <-time.After(time.Second):
			return n, nil
		}
	}
	return b, nil
}
