package main

import (
	"io"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
)

func gatewayListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the gateways that are members",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.adapters.ListGateways(cmd.Context(), &adaptersv1.ListGatewaysRequest{})
			if err != nil {
				return err
			}
			var names []string
			for _, g := range res.GetGateways() {
				names = append(names, g.GetAiCenterId())
			}
			return c.print(result{msg: res, names: names, print: func(w io.Writer, color bool) error {
				if len(names) == 0 {
					c.note("no gateways; `yunhe center join-token` lets one join")
					return nil
				}
				return c.gatewayTable(res.GetGateways()).Write(w, color)
			}})
		},
	}
}

func (c *cli) gatewayTable(gateways []*adaptersv1.Gateway) *text.Table {
	columns := []string{"CENTER", "STATUS", "VERSION", "SEEN", "JOINED"}
	if c.wide() {
		columns = append(columns, "PUBLIC KEY")
	}
	t := text.NewTable(columns...)
	for _, g := range gateways {
		status := text.Cell{Text: "away", Color: text.Red}
		if g.GetConnected() {
			status = text.Cell{Text: "connected", Color: text.Green}
		}
		row := []any{g.GetAiCenterId(), status, g.GetVersion(), c.ago(g.GetLastSeenAt()), c.ago(g.GetJoinedAt())}
		if c.wide() {
			row = append(row, g.GetPublicKey())
		}
		t.Row(row...)
	}
	return t
}

func gatewayRemoveCommand(c *cli) *cobra.Command {
	return removal{
		use: "remove CENTER...", short: "End the membership of centers' gateways",
		long: `Ends the membership of gateways: what they say is refused from now on, and
their centers become unavailable. What runs there goes on unseen; "yunhe job
write-off" ends it for the platform. Another gateway may then join for the
center with a new token.`,
		one: "gateway", some: "gateways", member: "aiCenterIds", done: "removed",
		remove: func(cmd *cobra.Command, a *api, id string) error {
			_, err := a.adapters.RemoveGateway(cmd.Context(), &adaptersv1.RemoveGatewayRequest{AiCenterId: id})
			return err
		},
	}.command(c)
}
