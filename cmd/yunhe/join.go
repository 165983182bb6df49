package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"yunhe.dev/yunhe/adapters/gateway/agent"
	"yunhe.dev/yunhe/adapters/gateway/remote"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// sshFlags say how to get into a machine.
type sshFlags struct{ identity, knownHosts, hostKey, dir string }

func (s *sshFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&s.identity, "identity", "i", "", "private key to log in with (default: the agent's keys, then those in ~/.ssh)")
	f.StringVar(&s.knownHosts, "known-hosts", "", "file of known host keys (default: ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts)")
	f.StringVar(&s.hostKey, "host-key", "", "fingerprint the machine's host key must have, SHA256:...")
	f.StringVar(&s.dir, "dir", remote.DefaultDir, "folder of the gateway on the machine")
}

// connect logs in.
func (s *sshFlags) connect(ctx context.Context, c *cli, t remote.Target) (*remote.Machine, error) {
	keys := filepath.Join(c.env("HOME"), ".ssh")
	l := remote.Login{Target: t, Identity: s.identity, KeyDir: keys, Agent: c.env("SSH_AUTH_SOCK"), Fingerprint: s.hostKey,
		KnownHosts: []string{filepath.Join(keys, "known_hosts"), "/etc/ssh/ssh_known_hosts"}}
	if s.knownHosts != "" {
		l.KnownHosts = []string{s.knownHosts}
	}
	if l.Fingerprint != "" && !strings.HasPrefix(l.Fingerprint, "SHA256:") {
		return nil, usagef("--host-key: want a fingerprint such as ssh-keygen -lf prints it, SHA256:..., got %q", l.Fingerprint)
	}
	if c.person != nil && c.person() {
		l.Agree = func(host, kind, print string) (bool, error) {
			answer, err := c.ask(fmt.Sprintf("%s is not known. It shows the %s key %s.\nIs that the machine's? [y/N] ", host, kind, print))
			return answer == "y" || strings.EqualFold(answer, "yes"), err
		}
		l.Passphrase = func(file string) ([]byte, error) {
			fmt.Fprintf(c.err, "Passphrase of %s: ", file)
			defer fmt.Fprintln(c.err)
			return term.ReadPassword(int(os.Stdin.Fd()))
		}
	}
	return remote.Connect(ctx, l)
}

// joined is what a machine keeps about how it was joined. It has no secrets.
type joined struct {
	Platform string       `yaml:"platform"`
	Shares   []string     `yaml:"shares,omitempty"`
	Center   agent.Center `yaml:"center"`
}

type joinOptions struct {
	ssh                  sshFlags
	target               remote.Target
	binary, platform     string
	config               string
	center, name, region string
	cpu, memory          string
	prices, labels       []string
	shares               []string
	timeout              time.Duration
}

func centerJoinCommand(c *cli) *cobra.Command {
	var o joinOptions
	cmd := &cobra.Command{
		Use: "join ssh://[USER@]HOST[:PORT] --center CENTER", Short: "Make a machine reached by SSH a center, or upgrade it",
		Long: `Makes a Linux machine that is reached by SSH a computing center: checks it, puts
this program there, lets it join and waits until the platform has it. Each step
is shown. Doing it again is safe: it goes on where the last try ended, or brings
program and description up to date while jobs run on; what is not given stays.

The machine needs root, or sudo without a password. Its host key must be known:
from the known hosts, by --host-key, or because you agree to it on a terminal.
Systemd keeps the gateway running where there is one, otherwise a small loop.`,
		Example: `  yunhe center join ssh://root@10.0.0.7 --center lab --price small=1.00 --price medium=2.40
  yunhe center join ssh://admin@gpu7:2222 --center gpu7 --config center.yaml -i ~/.ssh/lab
  yunhe center join ssh://root@10.0.0.7        upgrade it to this program`,
		Args: takes(1, 1, "the address of a machine, ssh://user@host"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.target, err = remote.ParseTarget(args[0], c.env("USER")); err != nil {
				return usageOf(err)
			}
			j, err := newJoining(c, &o)
			if err != nil {
				return err
			}
			defer j.close()
			return j.join(cmd.Context())
		},
	}
	o.ssh.add(cmd)
	f := cmd.Flags()
	f.StringVar(&o.center, "center", "", "ID of the center; not needed to upgrade")
	f.StringVar(&o.platform, "platform", "", "address of the platform as the machine reaches it (default: that of this command)")
	f.StringVar(&o.binary, "binary", "", "program to put there, for a machine of another kind (default: this one)")
	f.StringVar(&o.config, "config", "", "file (YAML) that describes the center; see docs/howto/join-a-center.md")
	f.StringVar(&o.name, "name", "", "name for people")
	f.StringVar(&o.region, "region", "", "region of the center")
	f.StringArrayVar(&o.prices, "price", nil, "specification offered and its price in yuan per hour, SPEC=YUAN (repeatable)")
	f.StringArrayVar(&o.labels, "label", nil, "label NAME=VALUE (repeatable)")
	f.StringVar(&o.cpu, "cpu", "", "cores it offers (default: all of the machine's)")
	f.StringVar(&o.memory, "memory", "", "memory it offers, such as 48Gi (default: 80 % of the machine's)")
	f.StringArrayVar(&o.shares, "share", nil, "folder shown read-only to commands, /path or /path=/where (repeatable)")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "how long to wait until the platform has the center")
	return cmd
}

// usageOf makes an error of the command line of one that says so.
func usageOf(err error) error {
	if msg, ok := fault.Message(err); ok && fault.KindOf(err) == fault.Invalid {
		return &usageError{msg: msg}
	}
	return err
}

// describe brings what is known of a center up to date with the flags.
func (o *joinOptions) describe(k agent.Center) (agent.Center, error) {
	if o.config != "" {
		id := k.ID
		k = agent.Center{}
		if err := readYAML(o.config, &k); err != nil {
			return k, err
		}
		if k.ID == "" {
			k.ID = id
		}
	}
	for _, x := range []struct {
		to   *string
		from string
	}{{&k.ID, o.center}, {&k.Name, o.name}, {&k.Region, o.region}, {&k.CPU, o.cpu}, {&k.Memory, o.memory}} {
		if x.from != "" {
			*x.to = x.from
		}
	}
	k.Prices, k.Labels = maps.Clone(k.Prices), maps.Clone(k.Labels)
	for _, p := range o.prices {
		spec, yuan, ok := strings.Cut(p, "=")
		fen, err := text.ParseFen(yuan)
		if !ok || spec == "" || err != nil {
			return k, usagef("--price: want SPEC=YUAN such as small=1.20, got %q", p)
		}
		if k.Prices == nil {
			k.Prices = map[string]int64{}
		}
		k.Prices[spec] = fen
	}
	labels, err := assignments("--label", o.labels)
	if err != nil {
		return k, err
	}
	if k.Labels == nil && len(labels) > 0 {
		k.Labels = map[string]string{}
	}
	maps.Copy(k.Labels, labels)
	var check core.Check
	check.ID("--center", k.ID)
	for _, q := range []struct{ flag, resource, value string }{{"--cpu", core.CPU, k.CPU}, {"--memory", core.Memory, k.Memory}} {
		if q.value == "" {
			continue
		}
		if _, err := core.ParseQuantity(q.resource, q.value); err != nil {
			check.Add(q.flag, "%v", err)
		}
	}
	return k, usageOf(check.Err())
}

// steps shows what is done, and remembers it.
type steps struct {
	c    *cli
	list []stepDone
}

type stepDone struct {
	Step   string `json:"step"`
	Result string `json:"result"`
}

// do runs a step. Its error names the step; what to do comes from the error,
// or it is todo.
func (s *steps) do(name, todo string, fn func() (string, error)) error {
	result, err := fn()
	if err != nil {
		fmt.Fprintf(s.c.err, "%s  %s\n", s.c.paint(s.c.err, "fail", text.Red), name)
		var usage *usageError
		if errors.As(err, &usage) || errors.Is(err, context.Canceled) {
			return err
		}
		msg, fields, hint := explain(err)
		for _, f := range fields {
			if !strings.Contains(msg, f.Problem) {
				msg += "; " + f.Path + ": " + f.Problem
			}
		}
		if hint == "" {
			hint = todo
		}
		return &hinted{fmt.Errorf("step %q: %s", name, msg), hint}
	}
	s.list = append(s.list, stepDone{name, result})
	fmt.Fprintf(s.c.err, "%s    %-13s  %s\n", s.c.paint(s.c.err, "ok", text.Green), name, text.Clean(result))
	return nil
}

// joinResult is what join and leave answer.
type joinResult struct {
	AiCenterID string     `json:"aiCenterId"`
	Status     string     `json:"status"`
	Target     string     `json:"target"`
	HostKey    string     `json:"hostKey"`
	Program    string     `json:"program"`   // SHA-256
	Restarted  bool       `json:"restarted"` // the gateway, for a new program or description
	Steps      []stepDone `json:"steps"`
}

func (c *cli) printJoined(r joinResult) error {
	return c.print(result{msg: r, names: []string{r.AiCenterID}, print: func(w io.Writer, color bool) error {
		shade := text.Green
		if r.Status != "available" {
			shade = text.Yellow
		}
		_, err := fmt.Fprintf(w, "%s  %s\n", r.AiCenterID, text.Paint(r.Status, shade, color))
		return err
	}})
}

func sameJoined(a, b joined) bool {
	x, y := a.Center, b.Center
	flat := func(k agent.Center) string {
		k.Prices, k.Labels = nil, nil
		return fmt.Sprintf("%#v", k)
	}
	return a.Platform == b.Platform && slices.Equal(a.Shares, b.Shares) && maps.Equal(x.Prices, y.Prices) && maps.Equal(x.Labels, y.Labels) && flat(x) == flat(y)
}
