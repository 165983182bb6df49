package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/fault"
)

func doctorCommand(c *cli) *cobra.Command {
	var f platformFlags
	var thorough, alive bool
	cmd := &cobra.Command{
		Use: "doctor", GroupID: groupServe, Short: "Check what a platform on this machine needs, and say what to do",
		Long: `Check what a platform on this machine needs: configuration, folders, keys,
database, bus, objects, metrics, addresses, certificates, clocks, limits. It changes
nothing, and the platform may run. For a machine that is to be a computing
center, see yunhe gateway check.

--alive only asks the process that listens where the configuration says whether
it lives, for health checks of containers.

The exit status is 1 if something is broken; warnings leave it 0.`,
		Example: `  yunhe doctor --config /etc/yunhe.yaml
  yunhe doctor --data /var/lib/yunhe --thorough`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := []app.Finding{}
			cfg, err := f.load()
			if err == nil && alive {
				return app.Alive(cmd.Context(), &cfg)
			}
			switch fields := fault.FieldsOf(err); {
			case len(fields) > 0:
				for _, x := range fields {
					findings = append(findings, app.Finding{Part: "configuration", Verdict: app.Broken, Found: x.Path + " " + x.Problem, Todo: "see docs/configuration.md"})
				}
			case err != nil:
				return err
			default:
				findings = append(findings, app.Finding{Part: "configuration", Verdict: app.Fine, Found: "right"})
				findings = append(findings, app.Examine(cmd.Context(), &cfg, thorough, c.now)...)
			}
			broken := 0
			for _, x := range findings {
				if x.Verdict == app.Broken {
					broken++
				}
			}
			err = c.print(result{msg: map[string]any{"version": buildVersion(), "findings": findings}, print: func(w io.Writer, color bool) error {
				t := text.NewTable("PART", "VERDICT", "FOUND")
				for _, x := range findings {
					cell := text.Cell{Text: string(x.Verdict), Color: map[app.Verdict]text.Color{app.Fine: text.Green, app.Warning: text.Yellow, app.Broken: text.Red}[x.Verdict]}
					t.Row(x.Part, cell, x.Found)
				}
				if err := t.Write(w, color); err != nil {
					return err
				}
				for _, x := range findings {
					if x.Todo != "" {
						if _, err := fmt.Fprintf(w, "\n%s: %s", x.Part, x.Todo); err != nil {
							return err
						}
					}
				}
				_, err := fmt.Fprintln(w)
				return err
			}})
			if err == nil && broken > 0 {
				err = exitStatus(exitFailed)
			}
			return err
		},
	}
	f.addState(cmd)
	cmd.Flags().StringVar(&f.listen, "listen", "", "address of API and console (default 127.0.0.1:8180)")
	cmd.Flags().BoolVar(&thorough, "thorough", false, "read the whole database too (SQLite)")
	cmd.Flags().BoolVar(&alive, "alive", false, "only ask the process that listens whether it lives")
	return cmd
}
