package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	topologyv1 "yunhe.dev/yunhe/gen/yunhe/topology/v1"
)

func topologyLinkCommand(c *cli) *cobra.Command {
	return group("link", "", "Links between vertices", topologyLinkListCommand(c), topologyLinkSetCommand(c), removal{
		use: "delete LINK...", short: "Delete declared links", long: "Deletes declared links. Those of registered network resources and measured paths go with what they are of.",
		one: "link", some: "links", member: "linkIds", done: "deleted",
		remove: func(cmd *cobra.Command, a *api, id string) error {
			_, err := a.topology.DeleteLink(cmd.Context(), &topologyv1.DeleteLinkRequest{LinkId: id})
			return err
		},
	}.command(c))
}

const linkKinds = "leased-line, private-network, dedicated-network, internet, cluster-fabric, other"

func (c *cli) linkTable(links []*topologyv1.Link) *text.Table {
	t := text.NewTable("LINK", "FROM", "TO", "KIND", "HEALTH", ">BANDWIDTH", ">LATENCY", "MEASURED")
	for _, l := range links {
		var measured []string
		for _, f := range l.GetFigures() {
			measured = append(measured, f.GetTitle()+" "+measuredText(f)+" "+f.GetUnit())
		}
		latency := ""
		if us := l.GetLatencyUs(); us > 0 {
			latency = (time.Duration(us) * time.Microsecond).String()
		}
		to := l.GetToId()
		if l.GetDangling() {
			to += " (gone)"
		}
		t.Row(l.GetLinkId(), l.GetFromId(), to, enumName(l.GetKind().String(), "LINK_KIND_"), healthCell(l.GetHealth()), bitRate(l.GetBandwidthBitsPerSecond()), latency, strings.Join(measured, ", "))
	}
	return t
}

// bitRate formats "10G"; "" of 0.
func bitRate(n int64) string {
	if n == 0 {
		return ""
	}
	for _, u := range []struct {
		of   int64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if n >= u.of {
			return strconv.FormatFloat(float64(n)/float64(u.of), 'g', 4, 64) + u.name + "bit/s"
		}
	}
	return strconv.FormatInt(n, 10) + "bit/s"
}

// parseBitRate reads "10G", "100M", "5000".
func parseBitRate(what, s string) (int64, error) {
	number, unit := s, int64(1)
	for _, u := range []struct {
		name string
		of   int64
	}{{"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"k", 1e3}} {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			number, unit = rest, u.of
		}
	}
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || !(x > 0 && x*float64(unit) <= 1e15) {
		return 0, usagef("%s: want bits per second such as 10G or 100M, got %q", what, s)
	}
	return int64(x * float64(unit)), nil
}

func topologyLinkListCommand(c *cli) *cobra.Command {
	var p paging
	var source, at string
	req := &topologyv1.ListLinksRequest{}
	cmd := &cobra.Command{
		Use: "list", Short: "List links with what is measured of them",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			want, err := enumFlag("--source", source, topologyv1.LinkSource_value, "LINK_SOURCE_")
			if err != nil {
				return err
			}
			req.Source = topologyv1.LinkSource(want)
			if req.At, err = c.parseTime("--at", at); err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			rows, next, err := pages(p, func(size int32, token string) ([]*topologyv1.Link, string, error) {
				req.PageSize, req.PageToken = size, token
				res, err := a.topology.ListLinks(cmd.Context(), req)
				return res.GetLinks(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(rows))
			for i, l := range rows {
				names[i] = l.GetLinkId()
			}
			err = c.print(result{msg: &topologyv1.ListLinksResponse{Links: rows, NextPageToken: next}, names: names, print: c.linkTable(rows).Write})
			c.noteMore(len(rows), next)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.NodeId, "of", "", "only those that end at this vertex")
	f.StringVar(&source, "source", "", "only of this source: declared, resource, measured")
	f.StringVar(&at, "at", "", atHelp)
	pageFlags(cmd, &p, 200)
	return cmd
}

func topologyLinkSetCommand(c *cli) *cobra.Command {
	l := &topologyv1.Link{}
	var kind, bandwidth string
	var latency time.Duration
	cmd := &cobra.Command{
		Use: "set LINK --from VERTEX --to VERTEX --kind KIND", Short: "Declare a link, or replace a declared one",
		Long:    "Declares a link between two vertices, or replaces the declared link of this ID as a whole.\n\n" + vertexHelp,
		Example: "  yunhe topology link set gz-nx --from center:gz-1 --to center:nx-1 --kind leased-line --bandwidth 10G --latency 18ms",
		Args:    takes(1, 1, "the ID of a link"),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := enumFlag("--kind", kind, topologyv1.LinkKind_value, "LINK_KIND_")
			if err != nil {
				return err
			}
			l.LinkId, l.Kind, l.LatencyUs = args[0], topologyv1.LinkKind(k), latency.Microseconds()
			if bandwidth != "" {
				if l.BandwidthBitsPerSecond, err = parseBitRate("--bandwidth", bandwidth); err != nil {
					return err
				}
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			got, err := a.topology.PutLink(cmd.Context(), &topologyv1.PutLinkRequest{Link: l})
			if err != nil {
				return err
			}
			return c.print(result{msg: got, names: []string{got.GetLinkId()}, print: c.linkTable([]*topologyv1.Link{got}).Write})
		},
	}
	f := cmd.Flags()
	f.StringVar(&l.FromId, "from", "", "one end")
	f.StringVar(&l.ToId, "to", "", "the other end")
	f.StringVar(&kind, "kind", "", "kind of link: "+linkKinds)
	f.StringVar(&l.Name, "name", "", "name for people (default: the ID)")
	f.StringVar(&bandwidth, "bandwidth", "", "bits per second, such as 10G")
	f.DurationVar(&latency, "latency", 0, "round trip as stated, such as 18ms")
	f.StringVar(&l.ServiceProvider, "provider", "", "who runs it")
	f.StringVar(&l.TenantId, "tenant", "", "the tenant that alone sees it (default: everyone)")
	f.Int64Var(&l.Version, "version", 0, "replace this version only")
	return cmd
}

func topologyBindingCommand(c *cli) *cobra.Command {
	return group("binding", "", "Which series is measured of which vertices, and from where on it warns",
		topologyBindingListCommand(c), topologyBindingSetCommand(c), removal{
			use: "delete BINDING...", short: "Delete bindings; those that come with the platform are as at first again",
			one: "binding", some: "bindings", member: "bindingIds", done: "deleted",
			remove: func(cmd *cobra.Command, a *api, id string) error {
				_, err := a.topology.DeleteBinding(cmd.Context(), &topologyv1.DeleteBindingRequest{BindingId: id})
				return err
			},
		}.command(c))
}

func topologyBindingListCommand(c *cli) *cobra.Command {
	var level string
	cmd := &cobra.Command{
		Use: "list", Short: "List bindings with their thresholds",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			want, err := enumFlag("--level", level, topologyv1.Level_value, "LEVEL_")
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.topology.ListBindings(cmd.Context(), &topologyv1.ListBindingsRequest{Level: topologyv1.Level(want)})
			if err != nil {
				return err
			}
			var names []string
			for _, b := range res.GetBindings() {
				names = append(names, b.GetBindingId())
			}
			return c.print(result{msg: res, names: names, print: c.bindingTable(res.GetBindings()).Write})
		},
	}
	cmd.Flags().StringVar(&level, "level", "", "only of this level: center, node, card, link")
	return cmd
}

func (c *cli) bindingTable(rows []*topologyv1.Binding) *text.Table {
	t := text.NewTable("BINDING", "LEVEL", "TITLE", "UNIT", ">BUSY", ">WARNING", "EXPRESSION", "OF")
	limit := func(x *float64) string {
		if x == nil {
			return ""
		}
		return strconv.FormatFloat(*x, 'g', 4, 64)
	}
	for _, b := range rows {
		of := "the platform"
		if !b.GetBuiltIn() {
			of = fmt.Sprintf("people, version %d", b.GetVersion())
		}
		t.Row(b.GetBindingId(), enumName(b.GetLevel().String(), "LEVEL_"), b.GetTitle(), b.GetUnit(), limit(b.Busy), limit(b.Warning), b.GetExpression(), of)
	}
	return t
}

func topologyBindingSetCommand(c *cli) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "set -f FILE", Short: "Add a binding, or replace one",
		Long: `Adds a binding, or replaces the one of its ID as a whole. The file is the JSON
that "yunhe topology binding list -o json" prints of one.`,
		Example: `  yunhe topology binding list --level node -o json | jq '.bindings[0] | .warning=0.9' |
    yunhe topology binding set -f -`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usagef("--file: say which file holds the binding; - is standard input")
			}
			in := c.in
			if file != "-" {
				opened, err := os.Open(file)
				if err != nil {
					return fmt.Errorf("read the binding: %w", err)
				}
				defer opened.Close()
				in = opened
			}
			data, err := io.ReadAll(io.LimitReader(in, 1<<20))
			if err != nil {
				return fmt.Errorf("read the binding: %w", err)
			}
			b := &topologyv1.Binding{}
			if err := protojson.Unmarshal(data, b); err != nil {
				return usagef("--file: %s is not a binding in JSON: %s", file, text.Clean(strings.TrimPrefix(err.Error(), "proto: ")))
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			got, err := a.topology.PutBinding(cmd.Context(), &topologyv1.PutBindingRequest{Binding: b})
			if err != nil {
				return err
			}
			return c.print(result{msg: got, names: []string{got.GetBindingId()}, print: c.bindingTable([]*topologyv1.Binding{got}).Write})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file with the binding as JSON; - reads standard input")
	return cmd
}
