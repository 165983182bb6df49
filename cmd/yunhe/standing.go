package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	standingv1 "yunhe.dev/yunhe/gen/yunhe/standing/v1"
)

func centerStandingCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "standing [CENTER]", Short: "How the links of centers stand, and what they refused",
		Long: `Shows how far centers are to be relied on: whether they are heard of, for how
long their silence is put up with before their work is run elsewhere, and what
they refused to take lately. Work like what a center refused is not sent there
for a while, which gets longer each time.`,
		Args: takes(0, 1, "the ID of a center"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				x, err := a.standing.GetStanding(cmd.Context(), &standingv1.GetStandingRequest{AiCenterId: args[0]})
				if err != nil {
					return err
				}
				return c.printStandings([]*standingv1.Standing{x}, x, true)
			}
			all := &standingv1.ListStandingsResponse{}
			for token := ""; ; {
				res, err := a.standing.ListStandings(cmd.Context(), &standingv1.ListStandingsRequest{PageSize: 1000, PageToken: token})
				if err != nil {
					return err
				}
				all.Standings = append(all.Standings, res.GetStandings()...)
				if token = res.GetNextPageToken(); token == "" {
					return c.printStandings(all.Standings, all, false)
				}
			}
		},
	}
}

func (c *cli) printStandings(list []*standingv1.Standing, msg any, refusals bool) error {
	names := make([]string, len(list))
	for i, x := range list {
		names[i] = x.GetAiCenterId()
	}
	return c.print(result{msg: msg, names: names, print: func(w io.Writer, color bool) error {
		t := text.NewTable("CENTER", "LINK", "SINCE", "HEARD", ">SILENT FOR", ">GRACE", ">TIMES SILENT", ">TIMES LOST", ">REFUSES")
		for _, x := range list {
			t.Row(x.GetAiCenterId(), linkOf(x), c.ago(x.GetSince()), c.ago(x.GetHeardAt()), text.Duration(time.Duration(x.GetSilentSeconds())*time.Second), graceOf(x.GetLostGraceSeconds()),
				x.GetSilences(), x.GetLosses(), len(x.GetRefusals()))
		}
		if err := t.Write(w, color); err != nil || !refusals {
			return err
		}
		for _, x := range list {
			if err := c.writeRefusals(w, color, x); err != nil {
				return err
			}
		}
		return nil
	}})
}

func (c *cli) writeRefusals(w io.Writer, color bool, x *standingv1.Standing) error {
	if len(x.GetRefusals()) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	t := text.NewTable("REFUSED", "IMAGE", ">TIMES", "LAST", "TRIED AGAIN FROM", "REASON")
	for _, r := range x.GetRefusals() {
		t.Row(r.GetResourceSpecId(), r.GetImageId(), r.GetCount(), c.ago(r.GetLastAt()), when(r.GetUntil()).UTC().Format("2006-01-02 15:04:05Z"), r.GetReason())
	}
	return t.Write(w, color)
}

func linkOf(x *standingv1.Standing) text.Cell {
	name := strings.ToLower(strings.TrimPrefix(x.GetLink().String(), "LINK_STATE_"))
	switch x.GetLink() {
	case standingv1.LinkState_LINK_STATE_CONNECTED:
		return text.Cell{Text: name, Color: text.Green}
	case standingv1.LinkState_LINK_STATE_LOST:
		return text.Cell{Text: name, Color: text.Red}
	}
	return text.Cell{Text: name, Color: text.Yellow}
}

func graceOf(seconds int64) string {
	if seconds < 0 {
		return "never"
	}
	return text.Duration(time.Duration(seconds) * time.Second)
}

// giveUpAfter says what a grace means.
func giveUpAfter(seconds int64) string {
	if seconds < 0 {
		return "its work is waited for however long it is silent"
	}
	return "its work is run elsewhere after " + graceOf(seconds) + " of silence"
}

// standingOf returns how a center stands; nil if the server is too old to say,
// or does not tell this caller.
func standingOf(ctx context.Context, a *api, center string) *standingv1.Standing {
	x, err := a.standing.GetStanding(ctx, &standingv1.GetStandingRequest{AiCenterId: center})
	if err != nil {
		return nil // what was asked for is shown without it
	}
	return x
}

func centerGraceCommand(c *cli) *cobra.Command {
	var center, tenant string
	cmd := &cobra.Command{
		Use: "grace [SECONDS|never|default]", Short: "How long a silent center is waited for",
		Long: `Sets for how long a silent center is waited for before its work is run elsewhere:
of all centers, of one (--center), or for the work of a tenant (--tenant). Without
an argument it shows what is set. A job may state its own (lostGraceSeconds); of
those that apply the job's counts, then the tenant's, the center's, the
platform's; 1800 seconds where none is set. "default" takes away what is set.`,
		Example: "  yunhe center grace 600\n  yunhe center grace never --tenant physics\n  yunhe center grace default --center gz-1",
		Args:    takes(0, 1, "seconds"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				res, err := a.standing.ListLostGraces(cmd.Context(), &standingv1.ListLostGracesRequest{})
				if err != nil {
					return err
				}
				return c.printGraces(res.GetGraces(), res)
			}
			n := int64(0)
			switch args[0] {
			case "default":
			case "never":
				n = -1
			default:
				if n, err = strconv.ParseInt(args[0], 10, 64); err != nil {
					return usagef("want a number of seconds, never or default, got %q", args[0])
				}
			}
			g, err := a.standing.SetLostGrace(cmd.Context(), &standingv1.SetLostGraceRequest{AiCenterId: center, TenantId: tenant, Seconds: n})
			if err != nil {
				return err
			}
			return c.printGraces([]*standingv1.LostGrace{g}, g)
		},
	}
	cmd.Flags().StringVar(&center, "center", "", "of this center")
	cmd.Flags().StringVar(&tenant, "tenant", "", "for the work of this tenant")
	return cmd
}

func (c *cli) printGraces(list []*standingv1.LostGrace, msg any) error {
	return c.print(result{msg: msg, print: func(w io.Writer, color bool) error {
		t := text.NewTable("OF", ">GRACE")
		for _, g := range list {
			of, grace := "the platform", "default"
			switch {
			case g.GetAiCenterId() != "":
				of = "center " + g.GetAiCenterId()
			case g.GetTenantId() != "":
				of = "tenant " + g.GetTenantId()
			}
			if g.GetSeconds() != 0 {
				grace = graceOf(g.GetSeconds())
			}
			t.Row(of, grace)
		}
		return t.Write(w, color)
	}})
}

func centerForgetCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "forget-refusals CENTER", Short: "Try a center again with work that it refused",
		Args: takes(1, 1, "the ID of a center"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			x, err := a.standing.ForgetRefusals(cmd.Context(), &standingv1.ForgetRefusalsRequest{AiCenterId: args[0]})
			if err != nil {
				return err
			}
			return c.printStandings([]*standingv1.Standing{x}, x, true)
		},
	}
}
