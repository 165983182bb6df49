package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
)

func whoamiCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "whoami", GroupID: groupHere, Short: "Show the server, who you are there and what you may do",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			me, err := a.identity.WhoAmI(cmd.Context(), &identityv1.WhoAmIRequest{})
			if err != nil {
				return err
			}
			return c.print(result{msg: me, names: []string{me.GetUser().GetUserId()}, print: func(w io.Writer, color bool) error {
				var f text.Facts
				f.Add("Server", a.target.server+" (from "+a.target.source+")")
				f.Add("User", joinNonEmpty(" ", me.GetUser().GetUserId(), parens(me.GetUser().GetName())))
				f.Add("Tenant", me.GetUser().GetTenantId())
				f.Add("Role", enumName(me.GetUser().GetRole().String(), "ROLE_"))
				key := me.GetKeyId()
				if a.target.keySource != "" {
					key += " (from " + a.target.keySource + ")"
				}
				f.Add("Key", key)
				f.Add("Permissions", strings.Join(me.GetPermissions(), ", "))
				return f.Write(w, color)
			}})
		},
	}
}
