package main

import (
	"cmp"
	"io"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
)

func tenantCommand(c *cli) *cobra.Command {
	return group("tenant", groupAdmin, "Tenants: isolated customers", tenantCreateCommand(c), tenantListCommand(c))
}

func tenantCreateCommand(c *cli) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "create TENANT", Short: "Create a tenant",
		Args: takes(1, 1, "the ID of the new tenant"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			t, err := a.identity.CreateTenant(cmd.Context(), &identityv1.CreateTenantRequest{
				Tenant: &identityv1.Tenant{TenantId: args[0], Name: cmp.Or(name, args[0])},
			})
			if err != nil {
				return err
			}
			return c.print(result{msg: t, names: []string{t.GetTenantId()}, print: func(w io.Writer, color bool) error {
				return c.tenantTable([]*identityv1.Tenant{t}).Write(w, color)
			}})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name for people (default: the ID)")
	return cmd
}

func tenantListCommand(c *cli) *cobra.Command {
	var p paging
	cmd := &cobra.Command{
		Use: "list", Short: "List tenants",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			tenants, next, err := pages(p, func(size int32, token string) ([]*identityv1.Tenant, string, error) {
				res, err := a.identity.ListTenants(cmd.Context(), &identityv1.ListTenantsRequest{PageSize: size, PageToken: token})
				return res.GetTenants(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(tenants))
			for i, t := range tenants {
				names[i] = t.GetTenantId()
			}
			err = c.print(result{
				msg: &identityv1.ListTenantsResponse{Tenants: tenants, NextPageToken: next}, names: names,
				print: func(w io.Writer, color bool) error { return c.tenantTable(tenants).Write(w, color) },
			})
			c.noteMore(len(tenants), next)
			return err
		},
	}
	pageFlags(cmd, &p, 200)
	return cmd
}

func (c *cli) tenantTable(tenants []*identityv1.Tenant) *text.Table {
	t := text.NewTable("TENANT", "NAME", "CREATED")
	for _, x := range tenants {
		t.Row(x.GetTenantId(), x.GetName(), c.ago(x.GetCreatedAt()))
	}
	return t
}
