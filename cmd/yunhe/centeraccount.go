package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
)

func centerAccountCommand(c *cli) *cobra.Command {
	return group("account", "", "A center's own accounts, on which tenants' runs are booked",
		accountListCommand(c), accountSetCommand(c), accountRemoveCommand(c))
}

func accountListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list CENTER", Short: "List a center's accounts with what runs on them have used",
		Args: takes(1, 1, "the ID of a center"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.adapters.ListAccounts(cmd.Context(), &adaptersv1.ListAccountsRequest{AiCenterId: args[0]})
			if err != nil {
				return err
			}
			return c.printAccounts(res.GetAccounts(), res)
		},
	}
}

func (c *cli) printAccounts(list []*adaptersv1.Account, msg any) error {
	names := make([]string, len(list))
	for i, k := range list {
		names[i] = k.GetName()
	}
	return c.print(result{msg: msg, names: names, print: func(w io.Writer, color bool) error {
		t := text.NewTable("ACCOUNT", "TENANTS", ">CORE SECONDS", ">CARD SECONDS", ">RUNS", "MADE HERE", "STATE")
		for _, k := range list {
			used := []any{"-", "-", "-"}
			if k.GetUseKnown() {
				used = []any{k.GetCpuCoreSeconds(), k.GetAcceleratorSeconds(), k.GetRuns()}
			}
			state := text.Cell{Text: "there", Color: text.Green}
			if k.GetMissing() {
				state = text.Cell{Text: "missing", Color: text.Red}
			}
			t.Row(append(append([]any{k.GetName(), orDash(strings.Join(k.GetTenantIds(), ", "))}, used...), map[bool]string{true: "yes", false: "no"}[k.GetMade()], state)...)
		}
		return t.Write(w, color)
	}})
}

func accountSetCommand(c *cli) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "set CENTER TENANT", Short: "Book a tenant's runs at a center on an account there",
		Long: `Has a tenant's runs at a center booked on an account there, which is made if
there is none of that name. Without --name the center's driver names it. It
counts for runs that are sent from now on.`,
		Example: "  yunhe center account set slurm-1 physics\n  yunhe center account set slurm-1 physics --name phys-2026",
		Args:    takes(2, 2, "the ID of a center and of a tenant"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			k, err := a.adapters.SetAccount(cmd.Context(), &adaptersv1.SetAccountRequest{AiCenterId: args[0], TenantId: args[1], Name: name})
			if err != nil {
				return err
			}
			return c.printAccounts([]*adaptersv1.Account{k}, k)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "of the account, as the center calls it")
	return cmd
}

func accountRemoveCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "remove CENTER TENANT", Short: "Book a tenant's runs on the center's default again",
		Args: takes(2, 2, "the ID of a center and of a tenant"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if _, err := a.adapters.RemoveAccount(cmd.Context(), &adaptersv1.RemoveAccountRequest{AiCenterId: args[0], TenantId: args[1]}); err != nil {
				return err
			}
			return c.printDone("removed", []string{args[0] + " " + args[1]}, "removed")
		},
	}
}
