package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
)

func specCommand(c *cli) *cobra.Command {
	return group("spec", groupNetwork, "Resource specifications and where they are offered",
		specListCommand(c), specShowCommand(c), specCreateCommand(c), specOfferCommand(c), specDeleteCommand(c))
}

func specListCommand(c *cli) *cobra.Command {
	var p paging
	cmd := &cobra.Command{
		Use: "list", Short: "List specifications with their prices",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			specs, next, err := pages(p, func(size int32, token string) ([]*registryv1.Spec, string, error) {
				res, err := a.registry.ListSpecs(cmd.Context(), &registryv1.ListSpecsRequest{PageSize: size, PageToken: token})
				return res.GetSpecs(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(specs))
			for i, s := range specs {
				names[i] = s.GetResourceSpecId()
			}
			err = c.print(result{
				msg: &registryv1.ListSpecsResponse{Specs: specs, NextPageToken: next}, names: names,
				print: func(w io.Writer, color bool) error { return c.specTable(specs).Write(w, color) },
			})
			c.noteMore(len(specs), next)
			return err
		},
	}
	pageFlags(cmd, &p, 200)
	return cmd
}

func (c *cli) specTable(specs []*registryv1.Spec) *text.Table {
	columns := []string{"SPEC", "NAME", "RESOURCES", ">LIST PRICE", "OFFERED AT"}
	if c.wide() {
		columns = append(columns, "JOB KINDS", "CREATED")
	}
	t := text.NewTable(columns...)
	for _, s := range specs {
		var offers []string
		for _, o := range s.GetOffers() {
			offers = append(offers, fmt.Sprintf("%s %s/h", o.GetAiCenterId(), text.Fen(o.GetPrice())))
		}
		row := []any{s.GetResourceSpecId(), s.GetResourceSpecName(), pairs(s.GetResourceQuantity()), text.Fen(s.GetPrice()) + "/h", someOf(offers, 3, c.wide())}
		if c.wide() {
			row = append(row, s.GetServiceType(), c.ago(s.GetCreatedAt()))
		}
		t.Row(row...)
	}
	return t
}

func specShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show SPEC", Short: "Show a specification and its offers",
		Args: takes(1, 1, "the ID of a specification"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			s, err := a.registry.GetSpec(cmd.Context(), &registryv1.GetSpecRequest{ResourceSpecId: args[0]})
			if err != nil {
				return err
			}
			return c.printSpec(s)
		},
	}
}

func (c *cli) printSpec(s *registryv1.Spec) error {
	return c.print(result{msg: s, names: []string{s.GetResourceSpecId()}, print: func(w io.Writer, color bool) error {
		var f text.Facts
		f.Add("Specification", s.GetResourceSpecId())
		f.Add("Name", s.GetResourceSpecName())
		f.Add("Resources", pairs(s.GetResourceQuantity()))
		f.Add("Job kinds", s.GetServiceType())
		f.Add("List price", text.Fen(s.GetPrice())+"/h")
		f.Add("Created", c.stamp(s.GetCreatedAt()))
		f.Add("Updated", c.stamp(s.GetUpdatedAt()))
		if err := f.Write(w, color); err != nil {
			return err
		}
		if len(s.GetOffers()) == 0 {
			c.note("no center offers it; `yunhe spec offer %s CENTER --price 1.20` makes an offer", s.GetResourceSpecId())
			return nil
		}
		t := text.NewTable("OFFERED AT", ">PRICE")
		for _, o := range s.GetOffers() {
			t.Row(o.GetAiCenterId(), text.Fen(o.GetPrice())+"/h")
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		return t.Write(w, color)
	}})
}

func specCreateCommand(c *cli) *cobra.Command {
	var name, kinds, price string
	var resources []string
	cmd := &cobra.Command{
		Use: "create SPEC RESOURCE=AMOUNT...", Short: "Create a specification",
		Long: `Creates a specification: a package of resources with a list price. Amounts are in
Kubernetes notation: cpu=500m is half a core, memory=2Gi are 2 GiB.`,
		Example: `  yunhe spec create small cpu=1 memory=2Gi --price 0.80
  yunhe spec create gpu-1 cpu=8 memory=64Gi gpu=1 --price 12 --kinds batch,interactive`,
		Args: takes(2, -1, "an ID and at least one resource such as cpu=1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			fen, err := priceFlag(price)
			if err != nil {
				return err
			}
			resources = args[1:]
			spec := &registryv1.Spec{ResourceSpecId: args[0], ResourceSpecName: name, ServiceType: kinds, Price: fen, ResourceQuantity: map[string]string{}}
			if name == "" {
				spec.ResourceSpecName = args[0]
			}
			for _, r := range resources {
				k, v, ok := strings.Cut(r, "=")
				if !ok || k == "" || v == "" {
					return usagef("want a resource such as cpu=1, got %q", r)
				}
				if _, twice := spec.ResourceQuantity[k]; twice {
					return usagef("resource %s is given twice", k)
				}
				spec.ResourceQuantity[k] = v
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			spec, err = a.registry.CreateSpec(cmd.Context(), &registryv1.CreateSpecRequest{Spec: spec})
			if err != nil {
				return err
			}
			return c.printSpec(spec)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name for people (default: the ID)")
	cmd.Flags().StringVar(&kinds, "kinds", "", "job kinds it supports, comma separated: interactive, batch, streaming, others")
	cmd.Flags().StringVar(&price, "price", "0", "list price in yuan per hour, such as 1.20")
	return cmd
}

func priceFlag(s string) (int64, error) {
	fen, err := text.ParseFen(s)
	if err != nil {
		return 0, usagef("--price: %v", err)
	}
	return fen, nil
}

func specOfferCommand(c *cli) *cobra.Command {
	var price string
	var withdraw bool
	cmd := &cobra.Command{
		Use: "offer SPEC CENTER (--price YUAN | --withdraw)", Short: "Offer a specification at a center, or withdraw it",
		Long: `Offers a specification at a center at a price, changes that price, or withdraws
the offer. Work that runs keeps the price fixed when it was placed.`,
		Args: takes(2, 2, "the ID of a specification and of a center"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if withdraw == cmd.Flags().Changed("price") {
				return usagef("want one of --price and --withdraw")
			}
			fen, err := priceFlag(price)
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			var spec *registryv1.Spec
			if withdraw {
				spec, err = a.registry.DeleteOffer(cmd.Context(), &registryv1.DeleteOfferRequest{ResourceSpecId: args[0], AiCenterId: args[1]})
			} else {
				spec, err = a.registry.SetOffer(cmd.Context(), &registryv1.SetOfferRequest{ResourceSpecId: args[0], AiCenterId: args[1], Price: fen})
			}
			if err != nil {
				return err
			}
			return c.printSpec(spec)
		},
	}
	cmd.Flags().StringVar(&price, "price", "0", "price in yuan per package and hour, such as 1.20")
	cmd.Flags().BoolVar(&withdraw, "withdraw", false, "withdraw the offer")
	return cmd
}
