package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	"yunhe.dev/yunhe/internal/fault"
)

func pluginCommand(c *cli) *cobra.Command {
	return group("plugin", groupNetwork, "Plug-ins that reach centers of other kinds, and their instances",
		pluginListCommand(c), pluginDescribeCommand(c), pluginConnectCommand(c), pluginConfigCommand(c), pluginConfigureCommand(c), pluginEnableCommand(c, true), pluginEnableCommand(c, false),
		pluginDisconnectCommand(c), pluginRestartCommand(c), pluginRegisterCommand(c), pluginRemoveCommand(c))
}

// pluginRow is a plug-in as scripts read it.
type pluginRow struct {
	Name      string   `json:"name"`
	Version   string   `json:"version"`
	Parts     []string `json:"parts"`
	Instances int32    `json:"instances"`
	State     string   `json:"state"`
	Source    string   `json:"source"`
	Endpoints []string `json:"endpoints"`
}

func pluginListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List plug-ins with their versions and how many centers they serve",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.adapters.ListPlugins(cmd.Context(), &adaptersv1.ListPluginsRequest{})
			if err != nil {
				return err
			}
			rows, names := []pluginRow{}, []string{}
			t := text.NewTable("PLUG-IN", "VERSION", "PARTS", ">INSTANCES", "STATE", "SOURCE")
			for _, p := range res.GetPlugins() {
				source := enumName(p.GetSource().String(), "PLUGIN_SOURCE_")
				rows = append(rows, pluginRow{Name: p.GetName(), Version: p.GetVersion(), Parts: append([]string{}, p.GetParts()...), Instances: p.GetInstances(),
					State: p.GetState(), Source: source, Endpoints: append([]string{}, p.GetEndpoints()...)})
				names = append(names, p.GetName())
				t.Row(p.GetName(), orDash(p.GetVersion()), orDash(strings.Join(p.GetParts(), ", ")), p.GetInstances(), instanceState(p.GetState()), source)
			}
			return c.print(result{msg: rows, names: names, print: t.Write})
		},
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// instanceState colors the state of a plug-in or instance.
func instanceState(state string) text.Cell {
	cell := text.Cell{Text: state}
	switch state {
	case "up":
		cell.Color = text.Green
	case "trouble", "down":
		cell.Color = text.Red
	case "starting":
		cell.Color = text.Yellow
	}
	return cell
}

func pluginDescribeCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "describe PLUGIN", Short: "Show a plug-in, its instances and what its configuration may hold",
		Args: takes(1, 1, "the name of a plug-in"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			p, err := a.adapters.GetPlugin(cmd.Context(), &adaptersv1.GetPluginRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return c.print(result{msg: p, names: []string{p.GetName()}, print: func(w io.Writer, color bool) error { return c.showPlugin(w, color, p) }})
		},
	}
}

func (c *cli) showPlugin(w io.Writer, color bool, p *adaptersv1.Plugin) error {
	var f text.Facts
	state := instanceState(p.GetState())
	f.Add("Plug-in", p.GetName())
	f.Add("Version", orDash(p.GetVersion()))
	f.Add("Parts", orDash(strings.Join(p.GetParts(), ", ")))
	f.Add("Source", enumName(p.GetSource().String(), "PLUGIN_SOURCE_"))
	f.AddColor("State", state.Text, state.Color)
	if err := f.Write(w, color); err != nil {
		return err
	}
	if len(p.GetList()) > 0 {
		t := text.NewTable("CENTER", "STATE", "SINCE", "VERSION", "ORIGIN", "ENDPOINT", "MESSAGE")
		for _, in := range p.GetList() {
			t.Row(orDash(in.GetAiCenterId()), instanceState(in.GetState()), c.ago(in.GetChangedAt()), orDash(in.GetVersion()), instanceOrigin(in), orDash(in.GetEndpoint()), in.GetMessage())
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		if err := t.Write(w, color); err != nil {
			return err
		}
	}
	return writeSchema(w, color, p.GetConfigSchema())
}

// schema is the part of a JSON Schema that people need to write a configuration.
type schema struct {
	Type        any               `json:"type"`
	Description string            `json:"description"`
	Properties  map[string]schema `json:"properties"`
	Required    []string          `json:"required"`
	Items       *schema           `json:"items"`
	Additional  json.RawMessage   `json:"additionalProperties"`
}

// names lists the properties, those that are needed first.
func (s schema) names() []string {
	names := slices.Sorted(maps.Keys(s.Properties))
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(needed(s, b), needed(s, a))
	})
	return names
}

func needed(s schema, name string) int {
	if slices.Contains(s.Required, name) {
		return 1
	}
	return 0
}

func writeSchema(w io.Writer, color bool, raw string) error {
	if raw == "" {
		return nil
	}
	var s schema
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return fmt.Errorf("schema of the plug-in: %w", err)
	}
	t := text.NewTable("CONFIGURATION", "TYPE", "NEEDED", "MEANING")
	s.rows(t, "")
	if t.Len() == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.Write(w, color)
}

func (s schema) rows(t *text.Table, indent string) {
	for _, name := range s.names() {
		p, need := s.Properties[name], ""
		if needed(s, name) > 0 {
			need = "yes"
		}
		t.Row(indent+name, p.kind(), need, p.Description)
		if p.Items != nil {
			p = *p.Items
		}
		p.rows(t, indent+"  ")
	}
}

// kind names a type: "string", "list of string", "map of integer".
func (s schema) kind() string {
	kind := ""
	switch v := s.Type.(type) {
	case string:
		kind = v
	case []any: // a list that may be null
		for _, x := range v {
			if x != "null" {
				kind, _ = x.(string)
			}
		}
	}
	var values schema
	switch {
	case kind == "array" && s.Items != nil:
		return "list of " + s.Items.kind()
	case kind == "object" && len(s.Properties) == 0 && json.Unmarshal(s.Additional, &values) == nil && values.Type != nil:
		return "map of " + values.kind()
	}
	return kind
}

// configFlag reads --config: YAML or JSON, "-" for standard input. It returns JSON.
func (c *cli) configFlag(path string) (string, error) {
	var data []byte
	var err error
	switch path {
	case "":
		return "{}", nil
	case "-":
		data, err = io.ReadAll(c.in)
	default:
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return "", fault.Wrap(fault.Invalid, err, "the configuration %s cannot be read", path)
	}
	var value map[string]any
	d := yaml.NewDecoder(bytes.NewReader(data)) // JSON is YAML
	if err := d.Decode(&value); err != nil {
		return "", fault.New(fault.Invalid, "the configuration %s is not right: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	out, err := json.Marshal(value)
	if err != nil {
		return "", fault.New(fault.Invalid, "the configuration %s is not right: %s", path, err)
	}
	return string(out), nil
}

func (c *cli) printInstance(in *adaptersv1.Instance) error {
	return c.print(result{msg: in, names: []string{in.GetAiCenterId()}, print: func(w io.Writer, color bool) error {
		t := text.NewTable("CENTER", "PLUG-IN", "STATE", "MESSAGE")
		t.Row(in.GetAiCenterId(), in.GetPlugin(), instanceState(in.GetState()), in.GetMessage())
		return t.Write(w, color)
	}})
}

func pluginConnectCommand(c *cli) *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use: "connect PLUGIN CENTER", Short: "Connect a center through a plug-in",
		Long: `Starts an instance of a plug-in that serves a center. What its configuration may
hold says ` + "`yunhe plugin describe PLUGIN`" + `. The configuration is kept sealed.`,
		Example: "  yunhe plugin connect kubernetes west --config west.yaml\n  yunhe plugin describe kubernetes",
		Args:    takes(2, 2, "the name of a plug-in and an ID for the center"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := c.configFlag(config)
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			in, err := a.adapters.CreateInstance(cmd.Context(), &adaptersv1.CreateInstanceRequest{Plugin: args[0], AiCenterId: args[1], Config: text})
			if err != nil {
				return err
			}
			c.note("`yunhe plugin describe %s` says how it gets on", args[0])
			return c.printInstance(in)
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "file of the configuration (YAML or JSON), - for standard input")
	return cmd
}

func pluginConfigureCommand(c *cli) *cobra.Command {
	var config, patch string
	cmd := &cobra.Command{
		Use: "configure PLUGIN CENTER", Short: "Change the configuration of an instance; jobs run on",
		Long: `Changes the configuration of an instance, as a whole (--config) or in part
(--patch: a JSON merge patch, in which null takes a value away and what is not
named stays). "(secret)" as a value keeps the secret that was there, so that what
` + "`yunhe plugin config`" + ` shows can be edited and sent back.`,
		Example: "  yunhe plugin configure kubernetes west --patch patch.yaml\n  echo 'requests_per_second: 50' | yunhe plugin configure kubernetes west --patch -",
		Args:    takes(2, 2, "the name of a plug-in and the ID of a center"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (config == "") == (patch == "") {
				return usagef("want a file with the whole configuration, --config FILE, or with a part of it, --patch FILE")
			}
			text, err := c.configFlag(config + patch)
			if err != nil {
				return err
			}
			req := &adaptersv1.UpdateInstanceRequest{Config: &text}
			if patch != "" {
				req = &adaptersv1.UpdateInstanceRequest{ConfigPatch: &text}
			}
			return c.updateInstance(cmd, args, req)
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "file of the whole configuration (YAML or JSON), - for standard input")
	cmd.Flags().StringVar(&patch, "patch", "", "file of the part that changes (YAML or JSON), - for standard input")
	return cmd
}

func pluginConfigCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "config PLUGIN CENTER", Short: "Print the configuration of an instance, secrets hidden",
		Args: takes(2, 2, "the name of a plug-in and the ID of a center"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			in, err := a.adapters.GetInstance(cmd.Context(), &adaptersv1.GetInstanceRequest{Plugin: args[0], AiCenterId: args[1]})
			if err != nil {
				return err
			}
			return c.print(result{msg: in, names: []string{in.GetAiCenterId()}, print: func(w io.Writer, _ bool) error {
				if in.GetConfig() == "" {
					c.note("its configuration is not kept here: it comes from %s", instanceOrigin(in))
					return nil
				}
				var value map[string]any
				if err := json.Unmarshal([]byte(in.GetConfig()), &value); err != nil {
					return fmt.Errorf("configuration of the instance: %w", err)
				}
				e := yaml.NewEncoder(w)
				e.SetIndent(2)
				return cmp.Or(e.Encode(value), e.Close())
			}})
		},
	}
}

// instanceOrigin says where an instance comes from.
func instanceOrigin(in *adaptersv1.Instance) string {
	switch in.GetOrigin() {
	case adaptersv1.InstanceOrigin_INSTANCE_ORIGIN_API:
		return "made here"
	case adaptersv1.InstanceOrigin_INSTANCE_ORIGIN_CONFIGURATION:
		return "the configuration file"
	case adaptersv1.InstanceOrigin_INSTANCE_ORIGIN_ADDRESS:
		return "a registered address"
	case adaptersv1.InstanceOrigin_INSTANCE_ORIGIN_JOINED:
		return "a gateway that joined"
	}
	return "-"
}

func pluginEnableCommand(c *cli, enable bool) *cobra.Command {
	name, short := "disable", "Take an instance out of service; what runs at its center goes on"
	if enable {
		name, short = "enable", "Put an instance back into service"
	}
	return &cobra.Command{
		Use: name + " PLUGIN CENTER", Short: short,
		Args: takes(2, 2, "the name of a plug-in and the ID of a center"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.updateInstance(cmd, args, &adaptersv1.UpdateInstanceRequest{Enabled: &enable})
		},
	}
}

func (c *cli) updateInstance(cmd *cobra.Command, args []string, r *adaptersv1.UpdateInstanceRequest) error {
	a, err := c.api()
	if err != nil {
		return err
	}
	r.Plugin, r.AiCenterId = args[0], args[1]
	in, err := a.adapters.UpdateInstance(cmd.Context(), r)
	if err != nil {
		return err
	}
	return c.printInstance(in)
}

func pluginDisconnectCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "disconnect PLUGIN CENTER", Short: "End an instance; what runs at its center goes on unseen",
		Args: takes(2, 2, "the name of a plug-in and the ID of a center"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if _, err := a.adapters.DeleteInstance(cmd.Context(), &adaptersv1.DeleteInstanceRequest{Plugin: args[0], AiCenterId: args[1]}); err != nil {
				return err
			}
			return c.printDone("disconnected", []string{args[1]}, "disconnected")
		},
	}
}

func pluginRestartCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "restart PLUGIN", Short: "Start a plug-in's processes anew, for example after an upgrade; jobs run on",
		Args: takes(1, 1, "the name of a plug-in"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if _, err := a.adapters.RestartPlugin(cmd.Context(), &adaptersv1.RestartPluginRequest{Name: args[0]}); err != nil {
				return err
			}
			return c.printDone("restarted", args, "restarted")
		},
	}
}

func pluginRegisterCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "register PLUGIN URL...", Short: "Register a plug-in that runs elsewhere, or change where it runs",
		Long: `Registers a plug-in by the addresses where it answers, each for one center. Several
addresses that serve the same center take over from one another. Registering it
again changes the addresses; connections to those that stay are kept, so it is
upgraded by adding the new ones first and taking the old ones away then.`,
		Example: "  yunhe plugin register mycloud http://10.0.0.7:9000 http://10.0.0.8:9000",
		Args:    takes(2, -1, "a name and at least one address"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			p, err := a.adapters.SetPlugin(cmd.Context(), &adaptersv1.SetPluginRequest{Name: args[0], Endpoints: args[1:]})
			if err != nil {
				return err
			}
			return c.print(result{msg: p, names: []string{p.GetName()}, print: func(w io.Writer, color bool) error { return c.showPlugin(w, color, p) }})
		},
	}
}

func pluginRemoveCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "remove PLUGIN", Short: "Forget a registered plug-in; what runs at its centers goes on unseen",
		Args: takes(1, 1, "the name of a registered plug-in"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if _, err := a.adapters.DeletePlugin(cmd.Context(), &adaptersv1.DeletePluginRequest{Name: args[0]}); err != nil {
				return err
			}
			return c.printDone("removed", args, "removed")
		},
	}
}
