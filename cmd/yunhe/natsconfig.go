package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/seal"
)

func natsConfigCommand(c *cli) *cobra.Command {
	var keys string
	cmd := &cobra.Command{
		Use: "nats-config", GroupID: groupServe, Short: "Print what a NATS cluster must trust to be this platform's bus",
		Long: `Print the part of a NATS server's configuration that makes it the bus of this
platform: whom it trusts. Include it in every server of the cluster, beside its
own listen, cluster and jetstream settings; then set bus.url of the platform.

The keys are made if they are not there. They stay in the folder, which all
processes of the platform share (bus.keys); what is printed is public.`,
		Example: `  yunhe nats-config --keys /etc/yunhe/bus > /etc/nats/yunhe.conf`,
		Args:    takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := filepath.Abs(keys)
			if err != nil {
				return fault.Wrap(fault.Invalid, err, "--keys: %q is not a folder", keys)
			}
			t, err := bus.LoadTrust(dir)
			if err != nil {
				return err
			}
			// The key that seals secrets is beside them: whoever copies the folder has all.
			if _, err := seal.Open(filepath.Join(dir, "secrets.key")); err != nil {
				return err
			}
			_, err = fmt.Fprint(c.out, natsConfig(t))
			return err
		},
	}
	cmd.Flags().StringVar(&keys, "keys", filepath.Join("data", "bus"), "folder of the bus's keys")
	return cmd
}

// natsConfig writes the trust in the form of a NATS configuration file.
func natsConfig(t bus.Trust) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Whom this NATS server trusts; made by yunhe nats-config.\noperator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {\n", t.OperatorJWT, t.SystemAccount)
	accounts := make([]string, 0, len(t.Accounts))
	for pub := range t.Accounts {
		accounts = append(accounts, pub)
	}
	slices.Sort(accounts)
	for _, pub := range accounts {
		fmt.Fprintf(&b, "  %s: %s\n", pub, t.Accounts[pub])
	}
	b.WriteString("}\nmax_payload: 8MB\n")
	return b.String()
}
