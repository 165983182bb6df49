package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	networkv1 "yunhe.dev/yunhe/gen/yunhe/network/v1"
)

const endHelp = `An end of a path is center:ID, region:NAME or origin:ID. What is declared of
regions counts for all centers and origins in them that have no path of their
own. The second end may be "*": the part of the first in all its paths.`

func networkCommand(c *cli) *cobra.Command {
	return group("network", groupNetwork, "Switches and links, paths to and between centers, and where users are",
		group("equipment", "", "Switches, routers and the like, their ports and links", equipmentListCommand(c), equipmentShowCommand(c), equipmentReportCommand(c)),
		group("rule", "", "When what is wrong with the network is an alarm", equipmentRuleListCommand(c), equipmentRuleSetCommand(c)),
		group("path", "", "Quality and fees of paths", pathListCommand(c), pathShowCommand(c), pathSetCommand(c), pathDeleteCommand(c)),
		group("origin", "", "Places users are at", originListCommand(c), originSetCommand(c), removal{
			use: "delete ORIGIN...", short: "Delete origins", long: "Deletes origins, with what was declared of their paths. Jobs that name one are placed as if they named none.",
			one: "origin", some: "origins", member: "originIds", done: "deleted",
			remove: func(cmd *cobra.Command, a *api, id string) error {
				_, err := a.network.DeleteOrigin(cmd.Context(), &networkv1.DeleteOriginRequest{OriginId: id})
				return err
			},
		}.command(c)))
}

// pathColumns are the facts of paths, in the order they are shown.
var pathColumns = []struct {
	fact, title string
	text        func(v int64) string
}{
	{"latency_us", ">LATENCY", func(v int64) string { return (time.Duration(v) * time.Microsecond).String() }},
	{"jitter_us", ">JITTER", func(v int64) string { return (time.Duration(v) * time.Microsecond).String() }},
	{"loss_ppm", ">LOSS", func(v int64) string { return strconv.FormatFloat(float64(v)/1e4, 'g', 4, 64) + "%" }},
	{"bandwidth_kbps", ">BANDWIDTH", func(v int64) string { return bitRate(v * 1000) }},
	{"fee_fen_per_gib", ">FEE PER GIB", func(v int64) string { return strconv.FormatFloat(float64(v)/100, 'f', 2, 64) }},
}

func factText(f *networkv1.PathFact) string {
	for _, k := range pathColumns {
		if k.fact == f.GetFact() {
			return k.text(f.GetValue())
		}
	}
	return strconv.FormatInt(f.GetValue(), 10)
}

// sourceText says where a fact is from: "measured 4s ago", "declared".
func (c *cli) sourceText(f *networkv1.PathFact) string {
	s := enumName(f.GetSource().String(), "SOURCE_")
	if f.GetMeasuredAt() != nil {
		s += " " + c.ago(f.GetMeasuredAt())
	}
	return s
}

func (c *cli) pathTable(paths []*networkv1.Path) *text.Table {
	head := []string{"FROM", "TO"}
	for _, k := range pathColumns {
		head = append(head, k.title)
	}
	t := text.NewTable(append(head, "SOURCES", "NOTE")...)
	for _, p := range paths {
		row := []any{p.GetFrom(), p.GetTo()}
		var sources []string
		seen := map[string]bool{}
		for _, k := range pathColumns {
			cell := ""
			for _, f := range p.GetFacts() {
				if f.GetFact() != k.fact {
					continue
				}
				cell = k.text(f.GetValue())
				if s := c.sourceText(f); !seen[s] {
					seen[s] = true
					sources = append(sources, s)
				}
			}
			row = append(row, cell)
		}
		t.Row(append(row, strings.Join(sources, ", "), p.GetNote())...)
	}
	return t
}

func pathName(p *networkv1.Path) string { return p.GetFrom() + " " + p.GetTo() }

func pathListCommand(c *cli) *cobra.Command {
	var p paging
	req := &networkv1.ListPathsRequest{}
	cmd := &cobra.Command{
		Use: "list", Short: "List what is known of paths, with source and age",
		Long: "Lists what is declared and measured of paths. What was not measured for two minutes is not known any more.\n\n" + endHelp,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			rows, next, err := pages(p, func(size int32, token string) ([]*networkv1.Path, string, error) {
				req.PageSize, req.PageToken = size, token
				res, err := a.network.ListPaths(cmd.Context(), req)
				return res.GetPaths(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			if len(rows) == 0 && c.forPeople() {
				c.note("nothing is known of any path; gateways measure theirs, and `yunhe network path set` declares one")
				return nil
			}
			names := make([]string, len(rows))
			for i, x := range rows {
				names[i] = pathName(x)
			}
			err = c.print(result{msg: &networkv1.ListPathsResponse{Paths: rows, NextPageToken: next}, names: names, print: c.pathTable(rows).Write})
			c.noteMore(len(rows), next)
			return err
		},
	}
	cmd.Flags().StringVar(&req.End, "of", "", "only those with this end")
	pageFlags(cmd, &p, 200)
	return cmd
}

func pathShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show FROM TO", Short: "Show what placement takes between two places now, and why",
		Long:    "Shows what placement takes between a center or an origin and a center: each fact with its source, its age, and the path it was taken from.",
		Example: "  yunhe network path show origin:hq center:gz-1",
		Args:    takes(2, 2, "two ends"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			got, err := a.network.GetPath(cmd.Context(), &networkv1.GetPathRequest{From: args[0], To: args[1]})
			if err != nil {
				return err
			}
			t := text.NewTable("FACT", ">VALUE", "SOURCE", "OF")
			for _, f := range got.GetFacts() {
				of := f.GetFromPath()
				if of == "" && f.GetSource() != networkv1.PathFact_SOURCE_ESTIMATED {
					of = "this path"
				}
				name, _, _ := strings.Cut(f.GetFact(), "_")
				t.Row(name, factText(f), c.sourceText(f), of)
			}
			if len(got.GetFacts()) == 0 && c.forPeople() {
				c.note("nothing is known between %s and %s", args[0], args[1])
				return nil
			}
			return c.print(result{msg: got, names: []string{pathName(got)}, print: t.Write})
		},
	}
}

func pathSetCommand(c *cli) *cobra.Command {
	d := &networkv1.PathDeclaration{}
	var latency, jitter time.Duration
	var loss, bandwidth, fee string
	cmd := &cobra.Command{
		Use: "set FROM TO", Short: "Declare quality and fee of a path, or replace what was declared",
		Long: "Declares a path as a whole. What is measured goes before what is declared.\n\n" + endHelp,
		Example: `  yunhe network path set region:east region:west --latency 30ms --bandwidth 10G --fee 0.30
  yunhe network path set center:gz-1 '*' --fee 0.10`,
		Args: takes(2, 2, "two ends"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.From, d.To = args[0], args[1]
			f := cmd.Flags()
			if f.Changed("latency") {
				d.LatencyUs = new(latency.Microseconds())
			}
			if f.Changed("jitter") {
				d.JitterUs = new(jitter.Microseconds())
			}
			if loss != "" {
				ppm, err := percentFlag("--loss", loss)
				if err != nil {
					return err
				}
				d.LossPpm = new(ppm)
			}
			if bandwidth != "" {
				bits, err := parseBitRate("--bandwidth", bandwidth)
				if err != nil {
					return err
				}
				d.BandwidthKbps = new(bits / 1000)
			}
			if fee != "" {
				x, err := strconv.ParseFloat(fee, 64)
				if err != nil || !(x >= 0 && x <= 1e7) {
					return usagef("--fee: want CNY per GiB such as 0.30, got %q", fee)
				}
				d.FeeFenPerGib = new(int64(x*100 + .5))
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			got, err := a.network.SetPath(cmd.Context(), &networkv1.SetPathRequest{Path: d})
			if err != nil {
				return err
			}
			return c.print(result{msg: got, names: []string{pathName(got)}, print: c.pathTable([]*networkv1.Path{got}).Write})
		},
	}
	f := cmd.Flags()
	f.DurationVar(&latency, "latency", 0, "round trip, such as 18ms")
	f.DurationVar(&jitter, "jitter", 0, "such as 2ms")
	f.StringVar(&loss, "loss", "", "lost packets, such as 0.1%")
	f.StringVar(&bandwidth, "bandwidth", "", "usable bits per second, such as 10G")
	f.StringVar(&fee, "fee", "", "CNY that carrying a GiB costs, such as 0.30")
	f.StringVar(&d.Note, "note", "", "free text")
	return cmd
}

func pathDeleteCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "delete FROM TO", Short: "Forget what was declared of a path",
		Args: takes(2, 2, "two ends"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if _, err := a.network.DeletePath(cmd.Context(), &networkv1.DeletePathRequest{From: args[0], To: args[1]}); err != nil {
				return err
			}
			return c.printDone("paths", []string{args[0] + " " + args[1]}, "deleted")
		},
	}
}

func (c *cli) originTable(origins []*networkv1.Origin) *text.Table {
	t := text.NewTable("ORIGIN", "NAME", "REGION", "PLACE", "TENANTS", "USERS")
	for _, o := range origins {
		at := ""
		if o.Longitude != nil {
			at = fmt.Sprintf("%g, %g", float64(o.GetLongitude())/1e6, float64(o.GetLatitude())/1e6)
		}
		t.Row(o.GetOriginId(), o.GetName(), o.GetRegion(), at, strings.Join(o.GetTenantIds(), ", "), strings.Join(o.GetUserIds(), ", "))
	}
	return t
}

func originListCommand(c *cli) *cobra.Command {
	var p paging
	cmd := &cobra.Command{
		Use: "list", Short: "List origins",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			rows, next, err := pages(p, func(size int32, token string) ([]*networkv1.Origin, string, error) {
				res, err := a.network.ListOrigins(cmd.Context(), &networkv1.ListOriginsRequest{PageSize: size, PageToken: token})
				return res.GetOrigins(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			if len(rows) == 0 && c.forPeople() {
				c.note("no origins; `yunhe network origin set` makes one")
				return nil
			}
			names := make([]string, len(rows))
			for i, o := range rows {
				names[i] = o.GetOriginId()
			}
			err = c.print(result{msg: &networkv1.ListOriginsResponse{Origins: rows, NextPageToken: next}, names: names, print: c.originTable(rows).Write})
			c.noteMore(len(rows), next)
			return err
		},
	}
	pageFlags(cmd, &p, 200)
	return cmd
}

func originSetCommand(c *cli) *cobra.Command {
	o := &networkv1.Origin{}
	var longitude, latitude float64
	cmd := &cobra.Command{
		Use: "set ORIGIN", Short: "Create an origin, or replace one",
		Long: `Says where users are. A job comes from the origin it names (originId), else from
that of its user, else from that of its tenant; distance, latency and the other
facts of the path from there then count for it.`,
		Example: "  yunhe network origin set hq --region east --longitude 121.47 --latitude 31.23 --tenant acme",
		Args:    takes(1, 1, "the ID of an origin"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.OriginId = args[0]
			if f := cmd.Flags(); f.Changed("longitude") || f.Changed("latitude") {
				if !f.Changed("longitude") || !f.Changed("latitude") {
					return usagef("--longitude and --latitude go together")
				}
				if !(longitude >= -180 && longitude <= 180 && latitude >= -90 && latitude <= 90) {
					return usagef("--longitude is -180 to 180 and --latitude -90 to 90, got %g and %g", longitude, latitude)
				}
				o.Longitude, o.Latitude = new(int64(math.Round(longitude*1e6))), new(int64(math.Round(latitude*1e6)))
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			got, err := a.network.SetOrigin(cmd.Context(), &networkv1.SetOriginRequest{Origin: o})
			if err != nil {
				return err
			}
			return c.print(result{msg: got, names: []string{got.GetOriginId()}, print: c.originTable([]*networkv1.Origin{got}).Write})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Name, "name", "", "name for people (default: the ID)")
	f.StringVar(&o.Region, "region", "", "region it lies in, whose paths count for it")
	f.Float64Var(&longitude, "longitude", 0, "degrees east")
	f.Float64Var(&latitude, "latitude", 0, "degrees north")
	f.StringSliceVar(&o.TenantIds, "tenant", nil, "tenants whose jobs come from here")
	f.StringSliceVar(&o.UserIds, "user", nil, "users whose jobs come from here")
	return cmd
}
