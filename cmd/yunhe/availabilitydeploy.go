package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	availabilityv1 "yunhe.dev/yunhe/gen/yunhe/availability/v1"
	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/availability"
	"yunhe.dev/yunhe/internal/deploy"
	"yunhe.dev/yunhe/internal/fault"
)

func availabilityMeasuredCommand(c *cli) *cobra.Command {
	var days int32
	cmd := &cobra.Command{
		Use: "measured", Short: "How available the roles of the platform's processes were; asks the server",
		Long: `How available the roles of the platform's processes were, by the signs of life
they give every five seconds: one instance on average, and at least one of them.
A stop in order is no failure. "availability plan --measured" takes the first.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.api()
			if err != nil {
				return err
			}
			res, err := api.planning.GetMeasuredAvailability(cmd.Context(), &availabilityv1.GetMeasuredAvailabilityRequest{Days: days})
			if err != nil {
				return err
			}
			var names []string
			for _, r := range res.GetRoles() {
				names = append(names, r.GetRole())
			}
			return c.print(result{msg: res, names: names, print: func(w io.Writer, color bool) error {
				t := text.NewTable("ROLE", ">ONE INSTANCE", ">AT LEAST ONE", ">PROCESSES", ">FAILURES", "SINCE")
				for _, r := range res.GetRoles() {
					t.Row(r.GetRole(), percent(100*r.GetAvailability()), percent(100*r.GetAny()), r.GetInstances(), r.GetFailures(), c.ago(r.GetSince()))
				}
				return t.Write(w, color)
			}})
		},
	}
	cmd.Flags().Int32Var(&days, "days", 0, "how far to look back, at most 400 (default 30)")
	return cmd
}

// setMeasured makes submodules named like a role as available as it was measured.
func (c *cli) setMeasured(ctx context.Context, s *availability.System) error {
	api, err := c.api()
	if err != nil {
		return err
	}
	res, err := api.planning.GetMeasuredAvailability(ctx, &availabilityv1.GetMeasuredAvailabilityRequest{})
	if err != nil {
		return err
	}
	set := 0
	for _, r := range res.GetRoles() {
		for i := range s.Modules {
			for j := range s.Modules[i].Submodules {
				if sub := &s.Modules[i].Submodules[j]; sub.Name == r.GetRole() {
					if sub.Availability = r.GetAvailability(); sub.Availability == 0 {
						return fault.New(fault.Conflict, "role %s was never there in what was measured; plan without --measured", sub.Name)
					}
					set++
				}
			}
		}
	}
	if set == 0 {
		return fault.New(fault.Invalid, "--measured: no submodule is named like a role that was measured (%s)", strings.Join(app.Roles, ", "))
	}
	return nil
}

func availabilityDeployCommand(c *cli) *cobra.Command {
	var plan, format, out string
	var o deploy.Options
	cmd := &cobra.Command{
		Use: "deploy --plan PLAN.json --format FORMAT", Short: "Write a plan of the platform's roles as manifests or units",
		Long: `Reads a plan whose submodules are the roles of this program (api, control, reach,
watch), as "availability plan -o json" prints it, and writes a deployment of it:
each microservice is a group of processes with its roles and its instances.

  kubernetes  Deployments that never put two of a group on one node, probes,
              rolling updates one at a time, disruption budgets, a Service;
              apply the folder with kubectl apply -k
  systemd     a folder for each host with its units and yunhe.target; instances
              of a group are put on different hosts as far as there are some
  compose     one file for docker compose

Database, bus, samples and objects are named in the configuration file, which is
the same for all processes; it and the keys are never written here.`,
		Example: `  yunhe availability plan -f roles.yaml -o json > plan.json
  yunhe availability deploy --plan plan.json --format kubernetes --image registry/yunhe:1.2 --out deploy
  yunhe availability deploy --plan plan.json --format systemd --hosts a,b,c --out units`,
		Args: takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			if plan == "" {
				return usagef("--plan FILE is required: the plan to write out")
			}
			data, err := c.readInput(plan, deploy.MaxPlan)
			if err != nil {
				return err
			}
			groups, err := deploy.Read(data, app.Roles)
			if err != nil {
				return err
			}
			o.Format = deploy.Format(format)
			files, err := deploy.Write(groups, o)
			if err != nil {
				return err
			}
			if out != "" {
				err = c.writeFiles(out, files)
			} else {
				for _, f := range files {
					fmt.Fprintf(c.out, "# %s\n%s\n", f.Path, f.Text)
				}
			}
			most := slices.MaxFunc(groups, func(a, b deploy.Group) int { return cmp.Compare(a.Instances, b.Instances) })
			if hosts := max(1, len(o.Hosts)); err == nil && o.Format == deploy.Systemd && hosts < most.Instances {
				c.note("%d instances of %s are on %s: the plan counts on each having its own; name them with --hosts", most.Instances, most.Name, text.Count(hosts, "host"))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&plan, "plan", "", "file with the plan; - reads standard input")
	cmd.Flags().StringVar(&format, "format", string(deploy.Kubernetes), "kubernetes, systemd or compose")
	cmd.Flags().StringVar(&out, "out", "", "folder to write into (default: print)")
	cmd.Flags().StringVar(&o.Image, "image", "", "image with the program at /yunhe (default yunhe:latest)")
	cmd.Flags().StringVar(&o.Namespace, "namespace", "", "namespace of Kubernetes (default yunhe)")
	cmd.Flags().StringSliceVar(&o.Hosts, "hosts", nil, "hosts the instances are spread over, for systemd (default localhost)")
	cmd.Flags().StringVar(&o.Binary, "binary", "", "the program on the hosts (default /usr/local/bin/yunhe)")
	cmd.Flags().StringVar(&o.Config, "config", "", "the configuration file on the hosts (default /etc/yunhe/yunhe.yaml)")
	cmd.Flags().StringVar(&o.Data, "data", "", "the folder of the processes' data on the hosts (default /var/lib/yunhe)")
	cmd.Flags().StringVar(&o.User, "user", "", "the user on the hosts (default yunhe)")
	cmd.Flags().StringVar(&o.Address, "address", "", "what processes on the hosts listen on (default 0.0.0.0)")
	cmd.Flags().IntVar(&o.Port, "port", 0, "the first port on each host (default 8180)")
	return cmd
}

func availabilityImageCommand(c *cli) *cobra.Command {
	var program, out, name string
	cmd := &cobra.Command{
		Use: "image --out FILE", Short: "Write the container image that deployments name",
		Long: `Writes an archive with this program in an image: it is at /yunhe, and there is
nothing else. Load it with docker load, podman load or ctr images import, or push it
to a registry with a tool such as skopeo. The same program gives the same archive.`,
		Example: `  yunhe availability image --name registry/yunhe:1.2 --out yunhe-image.tar
  yunhe availability image --program bin/yunhe-arm64 --out yunhe-image.tar`,
		Args: takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) (err error) {
			if out == "" {
				return usagef("--out FILE is required: where to write the archive")
			}
			if program == "" {
				if program, err = os.Executable(); err != nil {
					return err
				}
			}
			in, err := os.Open(program)
			if err != nil {
				return err
			}
			defer in.Close() // read only
			info, err := in.Stat()
			if err != nil {
				return err
			}
			to, err := os.Create(out)
			if err != nil {
				return err
			}
			if err := errors.Join(deploy.WriteImage(to, in, info.Size(), name), to.Close()); err != nil {
				return errors.Join(err, os.Remove(out))
			}
			c.note("wrote %s", out)
			return nil
		},
	}
	cmd.Flags().StringVar(&program, "program", "", "file with the program (default this one)")
	cmd.Flags().StringVar(&out, "out", "", "file to write")
	cmd.Flags().StringVar(&name, "name", "yunhe:latest", "name of the image")
	return cmd
}

func (c *cli) writeFiles(dir string, files []deploy.File) error {
	for _, f := range files {
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f.Text), 0o644); err != nil {
			return err
		}
		c.note("wrote %s", path)
	}
	return nil
}
