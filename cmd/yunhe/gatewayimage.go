package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/adapters/gateway/agent"
	"yunhe.dev/yunhe/adapters/gateway/images"
	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

func gatewayImageCommand(c *cli) *cobra.Command {
	cmd := group("image", "", "Images on this gateway's machine", gatewayImageLoadCommand(c), gatewayImageListCommand(c), gatewayImageRemoveCommand(c))
	cmd.Long = `Images on this gateway's machine: root file systems that jobs sent here can run
in. A running gateway sees changes at once and tells the platform.`
	return cmd
}

// gatewayData is the flag that says which gateway is meant.
func gatewayData(cmd *cobra.Command, data *string) {
	cmd.Flags().StringVar(data, "data", "gateway-data", "folder of the gateway, as it was started with")
}

func gatewayImageLoadCommand(c *cli) *cobra.Command {
	var data, maxBytes string
	var r images.Request
	cmd := &cobra.Command{
		Use: "load ARCHIVE", Short: "Load an image from an archive",
		Long: `Load an image from an archive: an OCI layout in a tar file ("skopeo copy ...
oci-archive:FILE", "podman save --format oci-archive"), the output of "docker
save", or a plain tar file of a root file system. The archive and its layers may
be packed with gzip or zstd; "-" reads standard input. Every digest is checked.

Loading the same again does nothing. Jobs run in the image read-only, as an
ordinary user, by its /bin/sh; its environment is theirs, its entry point is
not run, and they start in their own folder: the image's is in
YUNHE_IMAGE_WORKDIR.`,
		Example: `  yunhe gateway image load --data /var/lib/yunhe-gateway pytorch.tar
  docker save alpine:3.22 | ssh node7 sudo yunhe gateway image load --data /var/lib/yunhe-gateway -`,
		Args: takes(1, 1, "an archive"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			r.Path, r.Input = args[0], c.in
			if maxBytes != "" {
				var err error
				if r.Limits.Bytes, err = core.ParseQuantity(core.Storage, maxBytes); err != nil {
					return fault.New(fault.Invalid, "--max-bytes: want a size such as 100Gi, got %q", maxBytes)
				}
			}
			if r.Limits.Files < 0 {
				return fault.New(fault.Invalid, "--max-files must be at least 1, got %d", r.Limits.Files)
			}
			s, err := imagesOf(data)
			if err != nil {
				return err
			}
			m, loaded, err := s.Load(ctx, r)
			if err != nil {
				return err
			}
			if !loaded {
				c.note("it was here already")
			}
			if m.NoShell != "" {
				c.note("no command can be run in it: %s", m.NoShell)
			}
			return c.printGatewayImages([]images.Image{m}, m)
		},
	}
	gatewayData(cmd, &data)
	f := cmd.Flags()
	f.StringVar(&r.ID, "id", "", "ID of the image, at most 32 characters (default: made from its name, \"repo/tool:1.2\" is tool-1.2)")
	f.StringVar(&r.Ref, "ref", "", "which image of an archive of several")
	f.StringVar(&maxBytes, "max-bytes", "", "refuse an image of more (default 64Gi)")
	f.Int64Var(&r.Limits.Files, "max-files", 0, "refuse an image of more files (default 1000000)")
	return cmd
}

// imagesOf opens the images of a gateway that exists: a mistyped folder must
// not become a new one.
func imagesOf(data string) (*images.Store, error) {
	abs, err := filepath.Abs(data)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "--data: %q is not a folder", data)
	}
	if st, err := os.Stat(abs); err != nil || !st.IsDir() {
		return nil, fault.New(fault.Invalid, "--data: %s is not the folder of a gateway: start the gateway once, or make the folder", abs)
	}
	return images.Open(agent.ImagesDir(abs))
}

func (c *cli) printGatewayImages(list []images.Image, msg any) error {
	names := make([]string, len(list))
	for i, m := range list {
		names[i] = m.ID
	}
	return c.print(result{msg: msg, names: names, print: func(w io.Writer, color bool) error {
		columns := []string{"IMAGE", "NAME", "SIZE", "FILES", "LOADED"}
		if c.wide() {
			columns = append(columns, "LAYERS", "FORMAT", "DIGEST", "PROBLEM")
		}
		t := text.NewTable(columns...)
		for _, m := range list {
			row := []any{m.ID, m.Ref, text.Bytes(m.Bytes), m.Files, text.Ago(c.now(), m.LoadedAt)}
			if c.wide() {
				row = append(row, m.Layers, m.Format, m.Digest, m.NoShell)
			}
			t.Row(row...)
		}
		return t.Write(w, color)
	}})
}

func gatewayImageListCommand(c *cli) *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use: "list", Short: "List the images",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := imagesOf(data)
			if err != nil {
				return err
			}
			list, bad := s.List()
			if list == nil {
				list = []images.Image{}
			}
			return errors.Join(c.printGatewayImages(list, map[string][]images.Image{"images": list}), bad)
		},
	}
	gatewayData(cmd, &data)
	return cmd
}

func gatewayImageRemoveCommand(c *cli) *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use: "remove IMAGE...", Short: "Remove images",
		Long: `Remove images. One that a job runs in is not removed: stop the job, or drain the
center and wait.`,
		Args: takes(1, -1, "the ID of an image"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := imagesOf(data)
			if err != nil {
				return err
			}
			abs, err := filepath.Abs(data)
			if err != nil {
				return fmt.Errorf("find --data: %w", err)
			}
			for _, id := range args {
				err := s.Remove(id, func(root string) ([]string, error) { return sandbox.Using(agent.RunsDir(abs), root) })
				if err != nil {
					return err
				}
			}
			return c.printDone("removed", args, "removed")
		},
	}
	gatewayData(cmd, &data)
	return cmd
}
