package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/resourcefile"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
)

func resourceExportCommand(c *cli) *cobra.Command {
	var f resourceFilter
	var format, path string
	cmd := &cobra.Command{
		Use: "export", Short: "Write registered resources to a YAML or CSV file",
		Long: `Writes registered resources, the widest first, in a form that import reads.
Centers and the nodes that drivers report are not among them: they join by
themselves.`,
		Example: `  yunhe resource export -f network.yaml
  yunhe resource export --type compute --format csv > cards.csv`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := fileFormat(format, path)
			if err != nil {
				return err
			}
			req, err := f.request()
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			if path == "" || path == "-" {
				_, err := export(cmd.Context(), a, req, format, c.out)
				return err
			}
			var n int
			err = replaceFile(path, func(w io.Writer) (err error) {
				n, err = export(cmd.Context(), a, req, format, w)
				return err
			})
			if err == nil {
				c.note("%s in %s", text.Count(n, "resource"), path)
			}
			return err
		},
	}
	f.flags(cmd)
	cmd.Flags().StringVar(&format, "format", "", "yaml or csv (default: by the name of the file, else yaml)")
	cmd.Flags().StringVarP(&path, "file", "f", "", "file to write (default: standard output)")
	return cmd
}

// export writes what req asks for and returns how many resources that were.
func export(ctx context.Context, a *api, req *registryv1.ListResourcesRequest, format string, to io.Writer) (n int, err error) {
	res, err := a.resources.ListResourceTypes(ctx, &registryv1.ListResourceTypesRequest{})
	if err != nil {
		return 0, err
	}
	var types, columns []string
	for _, t := range res.GetTypes() {
		if t.GetReadOnly() || req.GetType() != "" && req.GetType() != t.GetType() {
			continue
		}
		types = append(types, t.GetType())
		attributes, err := attributesOf(t)
		if err != nil {
			return 0, err
		}
		for _, name := range sortedNames(attributes.Properties) {
			if !slices.Contains(columns, name) {
				columns = append(columns, name)
			}
		}
	}
	if len(types) == 0 {
		return 0, usagef("--type: want a type that can be registered, see `yunhe resource types`, got %q", req.GetType())
	}
	buffer := bufio.NewWriterSize(to, 64<<10)
	w := resourcefile.NewYAMLWriter(buffer)
	if format == "csv" {
		if w, err = resourcefile.NewCSVWriter(buffer, columns); err != nil {
			return 0, err
		}
	}
	for _, t := range types {
		req.Type, req.PageToken, req.PageSize = t, "", maxPage
		for {
			res, err := a.resources.ListResources(ctx, req)
			if err != nil {
				return 0, err
			}
			for _, r := range res.GetResources() {
				if r.GetVersion() == 0 {
					continue // a node that a driver reports
				}
				if err := w.Write(r); err != nil {
					return 0, err
				}
				n++
			}
			if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
				break
			}
		}
	}
	if err := w.Flush(); err != nil {
		return 0, err
	}
	return n, buffer.Flush()
}

// replaceFile writes a file whole or leaves what was there.
func replaceFile(path string, write func(w io.Writer) error) error {
	tmp := path + ".part"
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Close())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		if rm := os.Remove(tmp); rm != nil && !errors.Is(rm, os.ErrNotExist) {
			return errors.Join(err, fmt.Errorf("remove %s: %w", tmp, rm))
		}
	}
	return err
}
