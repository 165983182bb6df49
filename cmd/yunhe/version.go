package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the release build: -ldflags "-X main.version=1.2.3".
var version string

// buildVersion returns the version of this program: the release's, else the
// module's, else "dev".
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "(devel)" {
		return cmp.Or(info.Main.Version, "dev")
	}
	return "dev"
}

func versionCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "version", GroupID: groupHere, Short: "Show the version of this program",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			v := struct {
				Version  string `json:"version"`
				Revision string `json:"revision"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{buildVersion(), "", runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						v.Revision = s.Value
					}
				}
			}
			return c.print(result{msg: v, names: []string{v.Version}, print: func(w io.Writer, _ bool) error {
				_, err := fmt.Fprintf(w, "yunhe %s (%s, %s)\n", v.Version, v.Go, v.Platform)
				return err
			}})
		},
	}
}
