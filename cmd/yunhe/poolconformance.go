package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
	"yunhe.dev/yunhe/internal/pools/agent"
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
unless it is killed. A test that cannot be tried is "not provided" and counts as one
that failed.

What a level needs beside level 1, which needs nothing more:

  3  two nodes that lend (12.4), one not on this machine or without a Unix socket (12.3),
     nodes on two machines, and a node with two cards (12.27)
  4  two nodes of one version with cards of one model and driver (12.23), --release and a
     platform that is one process on SQLite (12.20, 12.22), and devices of two drivers of
     OpenCL on this machine (12.25): a node is started here, and the last driver's card is
     put in and taken out of it
  5  cards of two drivers or makers in the pool (12.26)

What people see is not looked at in a browser: "make test-pool" does that, on a platform
and nodes of its own.

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
			defer context.AfterFunc(cmd.Context(), func() {
				c.note("yunhe pool: what the test changed is put back; a second signal ends that, too")
			})()
			r := conformance.Run(cmd.Context(), b, tests, func(v conformance.Verdict) {
				if c.forPeople() {
					c.note("%-6s %-13s %s (%.1f s)", v.ID, v.Result, v.Title, v.Seconds)
				}
			})
			if err := cmd.Context().Err(); err != nil {
				return err
			}
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
		data := dir + "/" + n.ID
		drivers, err := c.cardSlot(ctx, self, dir, &n)
		if err != nil {
			return n, err
		}
		token, err := b.API.CreateNodeToken(ctx, &poolv1.CreateNodeTokenRequest{TtlSeconds: 60})
		if err != nil {
			return n, err
		}
		cmd := exec.Command(self, "pool", "node", "--join", a.target.server, "--token", token.Token, "--name", n.ID, "--data", data, "--listen", "unix:"+data+".sock")
		cmd.Env = append(os.Environ(), drivers...)
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

// cardSlot has a node find the drivers of this machine in a folder of its own, and
// the last of them, if there are several with devices, put in and taken out as a
// card is. It returns what the node's environment has for that.
func (c *cli) cardSlot(ctx context.Context, self, dir string, n *conformance.Node) ([]string, error) {
	shows := func(vendors string) int {
		cmd := exec.CommandContext(ctx, self, "pool", "node", "probe", "-o", "json")
		cmd.Env = append(os.Environ(), "OCL_ICD_VENDORS="+vendors)
		var p agent.Probe
		if out, err := cmd.Output(); err != nil || json.Unmarshal(out, &p) != nil {
			return 0
		}
		return p.Devices
	}
	slots, one := filepath.Join(dir, "slots"), filepath.Join(dir, "one")
	for _, d := range []string{slots, one} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	var with []string                                                                                          // names and contents of vendors' files that show devices
	others := shows(one)                                                                                       // those of CUDA
	files, _ := filepath.Glob(filepath.Join(cmp.Or(c.env("OCL_ICD_VENDORS"), "/etc/OpenCL/vendors"), "*.icd")) // the pattern is one
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		alone := filepath.Join(one, "one.icd")
		if err := os.WriteFile(alone, b, 0o600); err != nil {
			return nil, err
		}
		if shows(one) > others {
			with = append(with, filepath.Base(f), string(b))
		}
	}
	put := func(i int) error {
		return os.WriteFile(filepath.Join(slots, with[i]), []byte(with[i+1]), 0o600)
	}
	last := len(with) - 2
	switch {
	case last < 0:
		return nil, conformance.Absent("no vendor's file of this machine shows a device of OpenCL that a pool node could lend")
	case last == 0:
		return []string{"OCL_ICD_VENDORS=" + slots}, put(0)
	}
	for i := 0; i < last; i += 2 {
		if err := put(i); err != nil {
			return nil, err
		}
	}
	n.Card = func(in bool) error {
		if in {
			return put(last)
		}
		return os.Remove(filepath.Join(slots, with[last]))
	}
	return []string{"OCL_ICD_VENDORS=" + slots}, nil
}
