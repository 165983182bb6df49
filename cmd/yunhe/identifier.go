package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
)

func identifierCommand(c *cli) *cobra.Command {
	return group("identifier", groupNetwork, "Compute identifiers: issue, verify, revoke",
		identifierIssueCommand(c), identifierVerifyCommand(c), identifierListCommand(c), identifierRevokeCommand(c))
}

func identifierIssueCommand(c *cli) *cobra.Command {
	form := &registryv1.IdentifierForm{}
	var zone string
	cmd := &cobra.Command{
		Use: "issue RESOURCE", Short: "Issue the compute identifier of a resource",
		Long: `Issues the compute identifier of a resource and its registration code, which
proves that the provider may report compute of an availability zone. What is
left out is taken from the resource: its chip type, its serial number and its
performance.`,
		Example: `  yunhe identifier issue gpu-1 --city 520100 --industry I65 --enterprise 91350100M000100Y43 \
    --resource-type IC --data-center GUIAN01 --service-type CL --network R400G --zone gz-a`,
		Args: takes(1, 1, "the ID of a resource"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			x, err := a.resources.IssueIdentifier(cmd.Context(), &registryv1.IssueIdentifierRequest{ResourceId: args[0], Form: form, AvailabilityZone: zone})
			if err != nil {
				return err
			}
			return c.printIdentifier(x)
		},
	}
	f := cmd.Flags()
	f.StringVar(&form.City, "city", "", "six digits of GB/T 2260, such as 520100")
	f.StringVar(&form.Industry, "industry", "", "code of GB/T 4754, such as I65")
	f.StringVar(&form.Enterprise, "enterprise", "", "unified social credit code")
	f.StringVar(&form.ResourceType, "resource-type", "", "GC general, IC intelligent, SC supercomputing, QC quantum")
	f.StringVar(&form.DataCenter, "data-center", "", "1 to 12 of A-Z and 0-9")
	f.StringVar(&form.ServiceType, "service-type", "", "CL cloud, BM bare compute, CN cloud native, PX supercomputing by proxy")
	f.StringVar(&form.ComputeCapability, "capability", "", "such as H989T: FP16, 989 T operations per second (default: of the resource)")
	f.StringVar(&form.StorageCapacity, "storage", "", "such as 80G (default: not stated)")
	f.StringVar(&form.NetworkConfiguration, "network", "", "such as R400G: RoCE, 400 Gbit/s (default: not stated)")
	f.StringVar(&form.ChipType, "chip-type", "", "such as GPU (default: of the resource)")
	f.StringVar(&form.ChipNumber, "chip-number", "", "1 to 32 of A-Z and 0-9 (default: the serial number of the resource)")
	f.StringVar(&zone, "zone", "", "availability zone the provider may report compute of")
	return cmd
}

func (c *cli) printIdentifier(x *registryv1.Identifier) error {
	return c.print(result{msg: x, names: []string{x.GetIdentifier()}, print: func(w io.Writer, color bool) error {
		var f text.Facts
		f.Add("Identifier", x.GetIdentifier())
		f.Add("Resource", x.GetResourceId())
		f.Add("Zone", x.GetAvailabilityZone())
		f.Add("Issued", c.stamp(x.GetIssuedAt()))
		f.Add("Revoked", c.stamp(x.GetRevokedAt()))
		f.Add("Reason", x.GetRevocationReason())
		f.Add("Code", x.GetRegistrationCode())
		return f.Write(w, color)
	}})
}

func identifierVerifyCommand(c *cli) *cobra.Command {
	var code string
	cmd := &cobra.Command{
		Use: "verify IDENTIFIER", Short: "Check an identifier, and its registration code",
		Long: `Checks the form and the check characters of a compute identifier, whether this
platform issued it, and with --code that its registration code is genuine. The
exit status is 1 if anything is wrong with it.`,
		Args: takes(1, 1, "a compute identifier"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			v, err := a.resources.VerifyIdentifier(cmd.Context(), &registryv1.VerifyIdentifierRequest{Identifier: args[0], RegistrationCode: code})
			if err != nil {
				return err
			}
			if err := c.printVerification(v, code != ""); err != nil {
				return err
			}
			if v.GetStatus() != registryv1.IdentifierStatus_IDENTIFIER_STATUS_VALID || code != "" && !v.GetCodeValid() {
				return exitStatus(exitFailed)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&code, "code", "", "registration code to check too")
	return cmd
}

func (c *cli) printVerification(v *registryv1.IdentifierVerification, code bool) error {
	return c.print(result{msg: v, names: []string{v.GetIdentifier()}, print: func(w io.Writer, color bool) error {
		var f text.Facts
		f.Add("Identifier", v.GetIdentifier())
		if !v.GetWellFormed() {
			f.AddColor("Form", "wrong: "+v.GetProblem(), text.Red)
			return f.Write(w, color)
		}
		f.AddColor("Form", "right", text.Green)
		status := text.Cell{Text: enumName(v.GetStatus().String(), "IDENTIFIER_STATUS_"), Color: text.Red}
		switch v.GetStatus() {
		case registryv1.IdentifierStatus_IDENTIFIER_STATUS_VALID:
			status.Color = text.Green
		case registryv1.IdentifierStatus_IDENTIFIER_STATUS_UNKNOWN:
			status.Text = "not issued by this platform"
		}
		f.AddColor("Status", status.Text, status.Color)
		switch {
		case code && v.GetCodeValid():
			f.AddColor("Code", "genuine", text.Green)
		case code:
			f.AddColor("Code", "wrong: "+v.GetCodeProblem(), text.Red)
		}
		x := v.GetForm()
		for _, part := range [][2]string{
			{"City", x.GetCity()}, {"Industry", x.GetIndustry()}, {"Enterprise", x.GetEnterprise()}, {"Resource type", x.GetResourceType()}, {"Data center", x.GetDataCenter()},
			{"Service type", x.GetServiceType()}, {"Capability", x.GetComputeCapability()}, {"Storage", x.GetStorageCapacity()}, {"Network", x.GetNetworkConfiguration()},
			{"Chip", fmt.Sprintf("%s %s", x.GetChipType(), x.GetChipNumber())}, {"Resource", v.GetResourceId()}, {"Zone", v.GetAvailabilityZone()},
			{"Issued", c.stamp(v.GetIssuedAt())}, {"Revoked", c.stamp(v.GetRevokedAt())}, {"Reason", v.GetRevocationReason()},
		} {
			f.Add(part[0], part[1])
		}
		return f.Write(w, color)
	}})
}

func identifierListCommand(c *cli) *cobra.Command {
	var p paging
	var resource string
	cmd := &cobra.Command{
		Use: "list", Short: "List identifiers that were issued",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			list, next, err := pages(p, func(size int32, token string) ([]*registryv1.Identifier, string, error) {
				res, err := a.resources.ListIdentifiers(cmd.Context(), &registryv1.ListIdentifiersRequest{PageSize: size, PageToken: token, ResourceId: resource})
				return res.GetIdentifiers(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			var names []string
			t := text.NewTable("IDENTIFIER", "RESOURCE", "ZONE", "ISSUED", "REVOKED")
			for _, x := range list {
				names = append(names, x.GetIdentifier())
				revoked := ""
				if x.GetRevokedAt() != nil {
					revoked = c.ago(x.GetRevokedAt()) + ": " + x.GetRevocationReason()
				}
				t.Row(x.GetIdentifier(), x.GetResourceId(), x.GetAvailabilityZone(), c.ago(x.GetIssuedAt()), revoked)
			}
			err = c.print(result{msg: &registryv1.ListIdentifiersResponse{Identifiers: list, NextPageToken: next}, names: names, print: t.Write})
			c.noteMore(len(list), next)
			return err
		},
	}
	cmd.Flags().StringVar(&resource, "resource", "", "only of this resource")
	pageFlags(cmd, &p, 200)
	return cmd
}

func identifierRevokeCommand(c *cli) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "revoke IDENTIFIER --reason TEXT", Short: "Revoke an identifier for good",
		Args: takes(1, 1, "a compute identifier"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return usagef("--reason: say why")
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			x, err := a.resources.RevokeIdentifier(cmd.Context(), &registryv1.RevokeIdentifierRequest{Identifier: args[0], Reason: reason})
			if err != nil {
				return err
			}
			return c.printIdentifier(x)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever verifies it later")
	return cmd
}
