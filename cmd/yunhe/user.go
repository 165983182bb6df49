package main

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
)

func userCommand(c *cli) *cobra.Command {
	return group("user", groupAdmin, "Users of tenants and what they may do", userCreateCommand(c), userListCommand(c))
}

// roles returns the role names, the mightiest first.
func roles() []string {
	names := make([]string, 0, len(identityv1.Role_name))
	for n := int32(1); int(n) < len(identityv1.Role_name); n++ {
		names = append(names, enumName(identityv1.Role_name[n], "ROLE_"))
	}
	return names
}

func userCreateCommand(c *cli) *cobra.Command {
	u := &identityv1.User{}
	var role string
	cmd := &cobra.Command{
		Use: "create USER --tenant TENANT", Short: "Create a user",
		Long: `Creates a user. Roles: admin may do everything, operator runs the network and
sees all jobs, user submits and follows jobs of the own tenant, auditor reads
everything and changes nothing.`,
		Example: `  yunhe user create li.wei --tenant physics --name "Li Wei"`,
		Args:    takes(1, 1, "the ID of the new user"),
		RunE: func(cmd *cobra.Command, args []string) error {
			i := slices.Index(roles(), role)
			if i < 0 {
				return usagef("--role: want one of %s, got %q", strings.Join(roles(), ", "), role)
			}
			if u.TenantId == "" {
				return &usageError{msg: "--tenant is missing", hint: "`yunhe tenant list` shows the tenants"}
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			u.UserId, u.Name, u.Role = args[0], cmp.Or(u.Name, args[0]), identityv1.Role(i+1)
			created, err := a.identity.CreateUser(cmd.Context(), &identityv1.CreateUserRequest{User: u})
			if err != nil {
				return err
			}
			return c.print(result{msg: created, names: []string{created.GetUserId()}, print: func(w io.Writer, color bool) error {
				c.note("`yunhe key create --user %s` makes a key for them", created.GetUserId())
				return c.userTable([]*identityv1.User{created}).Write(w, color)
			}})
		},
	}
	cmd.Flags().StringVar(&u.TenantId, "tenant", "", "tenant of the user")
	cmd.Flags().StringVar(&u.Name, "name", "", "name for people (default: the ID)")
	cmd.Flags().StringVar(&role, "role", "user", "role: "+strings.Join(roles(), ", "))
	return cmd
}

func userListCommand(c *cli) *cobra.Command {
	var p paging
	var tenant string
	cmd := &cobra.Command{
		Use: "list", Short: "List users",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			users, next, err := pages(p, func(size int32, token string) ([]*identityv1.User, string, error) {
				res, err := a.identity.ListUsers(cmd.Context(), &identityv1.ListUsersRequest{TenantId: tenant, PageSize: size, PageToken: token})
				return res.GetUsers(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(users))
			for i, u := range users {
				names[i] = u.GetUserId()
			}
			err = c.print(result{
				msg: &identityv1.ListUsersResponse{Users: users, NextPageToken: next}, names: names,
				print: func(w io.Writer, color bool) error { return c.userTable(users).Write(w, color) },
			})
			c.noteMore(len(users), next)
			return err
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only users of this tenant")
	pageFlags(cmd, &p, 200)
	return cmd
}

func (c *cli) userTable(users []*identityv1.User) *text.Table {
	t := text.NewTable("USER", "NAME", "TENANT", "ROLE", "CREATED")
	for _, u := range users {
		t.Row(u.GetUserId(), u.GetName(), u.GetTenantId(), enumName(u.GetRole().String(), "ROLE_"), c.ago(u.GetCreatedAt()))
	}
	return t
}
