package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
)

func imageCommand(c *cli) *cobra.Command {
	return group("image", groupNetwork, "Images that jobs run in",
		imageListCommand(c), imageShowCommand(c), imageCreateCommand(c), imageDeleteCommand(c))
}

func imageListCommand(c *cli) *cobra.Command {
	var p paging
	cmd := &cobra.Command{
		Use: "list", Short: "List images",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			images, next, err := pages(p, func(size int32, token string) ([]*registryv1.Image, string, error) {
				res, err := a.registry.ListImages(cmd.Context(), &registryv1.ListImagesRequest{PageSize: size, PageToken: token})
				return res.GetImages(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(images))
			for i, m := range images {
				names[i] = m.GetImageId()
			}
			err = c.print(result{
				msg: &registryv1.ListImagesResponse{Images: images, NextPageToken: next}, names: names,
				print: func(w io.Writer, color bool) error { return c.imageTable(images).Write(w, color) },
			})
			c.noteMore(len(images), next)
			return err
		},
	}
	pageFlags(cmd, &p, 200)
	return cmd
}

func (c *cli) imageTable(images []*registryv1.Image) *text.Table {
	columns := []string{"IMAGE", "NAME", "FRAMEWORK", "BASE", "CENTERS"}
	if c.wide() {
		columns = append(columns, "OWNER", "SPECS", "CREATED")
	}
	t := text.NewTable(columns...)
	for _, m := range images {
		centers := someOf(m.GetCenters(), 3, c.wide())
		if centers == "" {
			centers = "all"
		}
		row := []any{m.GetImageId(), m.GetName(), m.GetFramework(), m.GetBaseOs().GetBaseOs(), centers}
		if c.wide() {
			row = append(row, orPlatform(m.GetAiCenterId()), orAny(m.GetResourceSpec()), c.ago(m.GetCreatedAt()))
		}
		t.Row(row...)
	}
	return t
}

func orPlatform(center string) string {
	if center == "" {
		return "the platform"
	}
	return center
}

func orAny(specs string) string {
	if specs == "" {
		return "any"
	}
	return specs
}

func imageShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show IMAGE", Short: "Show an image",
		Args: takes(1, 1, "the ID of an image"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			m, err := a.registry.GetImage(cmd.Context(), &registryv1.GetImageRequest{ImageId: args[0]})
			if err != nil {
				return err
			}
			return c.printImage(m)
		},
	}
}

func (c *cli) printImage(m *registryv1.Image) error {
	return c.print(result{msg: m, names: []string{m.GetImageId()}, print: func(w io.Writer, color bool) error {
		var f text.Facts
		f.Add("Image", m.GetImageId())
		f.Add("Name", m.GetName())
		f.Add("Owner", orPlatform(m.GetAiCenterId()))
		f.Add("Frameworks", m.GetFramework())
		f.Add("Base system", m.GetBaseOs().GetBaseOs())
		f.Add("CUDA", m.GetBaseOs().GetCudaVersion())
		f.Add("Driver", m.GetBaseOs().GetDriverVersion())
		f.Add("Packages", strings.Join(m.GetBaseOs().GetPackages(), ", "))
		f.Add("Specifications", orAny(m.GetResourceSpec()))
		centers := strings.Join(m.GetCenters(), ", ")
		if centers == "" {
			centers = "all"
		}
		f.Add("Centers", centers)
		f.Add("Created", c.stamp(m.GetCreatedAt()))
		return f.Write(w, color)
	}})
}

func imageCreateCommand(c *cli) *cobra.Command {
	m := &registryv1.Image{BaseOs: &registryv1.BaseOs{}}
	cmd := &cobra.Command{
		Use: "create IMAGE", Short: "Register an image",
		Example: `  yunhe image create torch-2 --name "PyTorch 2" --framework pytorch --base-os ubuntu-24.04 --cuda 12.8 --center bj-1`,
		Args:    takes(1, 1, "the ID of the new image"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			m.ImageId = args[0]
			if m.Name == "" {
				m.Name = args[0]
			}
			created, err := a.registry.CreateImage(cmd.Context(), &registryv1.CreateImageRequest{Image: m})
			if err != nil {
				return err
			}
			return c.printImage(created)
		},
	}
	f := cmd.Flags()
	f.StringVar(&m.Name, "name", "", "name for people (default: the ID)")
	f.StringVar(&m.AiCenterId, "owner", "", "center that owns it (default: the platform)")
	f.StringVar(&m.Framework, "framework", "", "supported frameworks, comma separated")
	f.StringVar(&m.ResourceSpec, "specs", "", "fitting specifications, comma separated (default: any)")
	f.StringArrayVar(&m.Centers, "center", nil, "center where it can be used (repeatable; default: all)")
	f.StringVar(&m.BaseOs.BaseOs, "base-os", "", "base operating system")
	f.StringVar(&m.BaseOs.CudaVersion, "cuda", "", "CUDA version")
	f.StringVar(&m.BaseOs.DriverVersion, "driver", "", "driver version")
	f.StringArrayVar(&m.BaseOs.Packages, "package", nil, "installed package (repeatable)")
	return cmd
}
