package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
)

func resourceCommand(c *cli) *cobra.Command {
	return group("resource", groupNetwork, "Registered resources: platforms, clouds, nodes, chips, networks, storage",
		resourceListCommand(c), resourceShowCommand(c), resourceTreeCommand(c), resourceTypesCommand(c),
		resourceImportCommand(c), resourceExportCommand(c), resourceMoveCommand(c), resourceDeleteCommand(c))
}

// resourceFilter is which resources are wanted.
type resourceFilter struct {
	kind, parent, platform, center, region, state string
	labels, attributes                            []string
}

func (f *resourceFilter) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kind, "type", "", "only this type, see `yunhe resource types`")
	cmd.Flags().StringVar(&f.parent, "parent", "", "only what is directly below this resource")
	cmd.Flags().StringVar(&f.platform, "platform", "", "only what belongs to this platform")
	cmd.Flags().StringVar(&f.center, "center", "", "only what belongs to this center")
	cmd.Flags().StringVar(&f.region, "region", "", "only of this region")
	cmd.Flags().StringVar(&f.state, "state", "", "only in this state: registered, available, unavailable, maintenance, retired")
	cmd.Flags().StringArrayVar(&f.labels, "label", nil, "only with this label, NAME or NAME=VALUE (repeatable)")
	cmd.Flags().StringArrayVar(&f.attributes, "attribute", nil, "only with this attribute, NAME, NAME=VALUE or NAME.MEMBER=VALUE (repeatable)")
}

func (f *resourceFilter) request() (*registryv1.ListResourcesRequest, error) {
	state, err := enumFlag("--state", f.state, registryv1.ResourceState_value, "RESOURCE_STATE_")
	if err != nil {
		return nil, err
	}
	return &registryv1.ListResourcesRequest{
		Type: f.kind, ParentId: f.parent, PlatformId: f.platform, AiCenterId: f.center, Region: f.region, State: registryv1.ResourceState(state), Labels: f.labels, Attributes: f.attributes,
	}, nil
}

func resourceListCommand(c *cli) *cobra.Command {
	var p paging
	var f resourceFilter
	cmd := &cobra.Command{
		Use: "list", Short: "List resources, also centers and the nodes drivers report",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := f.request()
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			list, next, err := pages(p, func(size int32, token string) ([]*registryv1.Resource, string, error) {
				req.PageSize, req.PageToken = size, token
				res, err := a.resources.ListResources(cmd.Context(), req)
				return res.GetResources(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			names := make([]string, len(list))
			for i, r := range list {
				names[i] = r.GetResourceId()
			}
			err = c.print(result{
				msg: &registryv1.ListResourcesResponse{Resources: list, NextPageToken: next}, names: names,
				print: func(w io.Writer, color bool) error { return c.resourceTable(list).Write(w, color) },
			})
			c.noteMore(len(list), next)
			return err
		},
	}
	f.flags(cmd)
	pageFlags(cmd, &p, 200)
	return cmd
}

func resourceState(r *registryv1.Resource) text.Cell {
	color := text.Plain
	switch r.GetState() {
	case registryv1.ResourceState_RESOURCE_STATE_AVAILABLE:
		color = text.Green
	case registryv1.ResourceState_RESOURCE_STATE_UNAVAILABLE:
		color = text.Red
	case registryv1.ResourceState_RESOURCE_STATE_MAINTENANCE:
		color = text.Yellow
	case registryv1.ResourceState_RESOURCE_STATE_RETIRED:
		color = text.Dim
	}
	return text.Cell{Text: enumName(r.GetState().String(), "RESOURCE_STATE_"), Color: color}
}

func (c *cli) resourceTable(list []*registryv1.Resource) *text.Table {
	columns := []string{"RESOURCE", "TYPE", "NAME", "STATE", "BELOW", "REGION", ">CHILDREN"}
	if c.wide() {
		columns = append(columns, "PLATFORM", "CENTER", "TENANT", "PROVIDER", "LABELS", "IDENTIFIER", "CHANGED")
	}
	t := text.NewTable(columns...)
	for _, r := range list {
		row := []any{r.GetResourceId(), r.GetType(), r.GetName(), resourceState(r), r.GetParentId(), r.GetRegion(), r.GetChildren()}
		if c.wide() {
			row = append(row, r.GetPlatformId(), r.GetAiCenterId(), r.GetTenantId(), r.GetServiceProvider(), pairs(r.GetLabels()), r.GetIdentifier(), c.ago(r.GetUpdatedAt()))
		}
		t.Row(row...)
	}
	return t
}

func resourceShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show RESOURCE", Short: "Show a resource with its attributes",
		Args: takes(1, 1, "the ID of a resource"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			r, err := a.resources.GetResource(cmd.Context(), &registryv1.GetResourceRequest{ResourceId: args[0]})
			if err != nil {
				return err
			}
			return c.printResource(r)
		},
	}
}

func (c *cli) printResource(r *registryv1.Resource) error {
	return c.print(result{msg: r, names: []string{r.GetResourceId()}, print: func(w io.Writer, color bool) error {
		var f text.Facts
		state := resourceState(r)
		f.Add("Resource", r.GetResourceId())
		f.Add("Type", r.GetType())
		f.Add("Name", r.GetName())
		f.AddColor("State", state.Text, state.Color)
		f.Add("Below", r.GetParentId())
		f.Add("Platform", r.GetPlatformId())
		f.Add("Center", r.GetAiCenterId())
		f.Add("Tenant", r.GetTenantId())
		f.Add("Region", r.GetRegion())
		f.Add("Provider", r.GetServiceProvider())
		f.Add("Labels", pairs(r.GetLabels()))
		f.Add("Identifier", r.GetIdentifier())
		if r.GetChildren() > 0 {
			f.Add("Children", fmt.Sprint(r.GetChildren()))
		}
		if r.GetVersion() > 0 {
			f.Add("Version", fmt.Sprint(r.GetVersion()))
		}
		f.Add("Registered", c.stamp(r.GetCreatedAt()))
		f.Add("Changed", c.stamp(r.GetUpdatedAt()))
		if err := f.Write(w, color); err != nil {
			return err
		}
		return attributeTable(w, color, r)
	}})
}

func attributeTable(w io.Writer, color bool, r *registryv1.Resource) error {
	t := text.NewTable("ATTRIBUTE", "VALUE")
	all := r.GetAttributes().AsMap()
	for _, name := range sortedNames(all) {
		v, isText := all[name].(string)
		if !isText {
			b, err := json.Marshal(all[name])
			if err != nil {
				return fmt.Errorf("attribute %s: %w", name, err)
			}
			v = string(b)
		}
		t.Row(name, v)
	}
	if t.Len() == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.Write(w, color)
}

func resourceTreeCommand(c *cli) *cobra.Command {
	var depth, width int32
	cmd := &cobra.Command{
		Use: "tree [RESOURCE]", Short: "Show what is below a resource, or the whole tree",
		Args: takes(0, 1, "the ID of a resource"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			req := &registryv1.GetResourceTreeRequest{Depth: depth, Width: width}
			if len(args) > 0 {
				req.ResourceId = args[0]
			}
			tree, err := a.resources.GetResourceTree(cmd.Context(), req)
			if err != nil {
				return err
			}
			var names []string
			walkTree(tree, 0, func(t *registryv1.ResourceTree, _ int) { names = append(names, t.GetResource().GetResourceId()) })
			return c.print(result{msg: tree, names: names, print: func(w io.Writer, color bool) error {
				if len(names) == 0 {
					c.note("nothing is registered; `yunhe resource import FILE` registers resources")
					return nil
				}
				var b strings.Builder
				walkTree(tree, 0, func(t *registryv1.ResourceTree, level int) { treeLine(&b, t, level, color) })
				_, err := io.WriteString(w, b.String())
				return err
			}})
		},
	}
	cmd.Flags().Int32Var(&depth, "depth", 3, "levels below it, at most 8")
	cmd.Flags().Int32Var(&width, "width", 50, "children shown of each, at most 200")
	return cmd
}

// walkTree calls fn for every resource, parents first.
func walkTree(t *registryv1.ResourceTree, level int, fn func(t *registryv1.ResourceTree, level int)) {
	if t.GetResource() != nil {
		fn(t, level)
		level++
	}
	for _, child := range t.GetChildren() {
		walkTree(child, level, fn)
	}
}

func treeLine(b *strings.Builder, t *registryv1.ResourceTree, level int, color bool) {
	r, state := t.GetResource(), resourceState(t.GetResource())
	fmt.Fprintf(b, "%s%s  %s  %s", strings.Repeat("  ", level), text.Clean(r.GetResourceId()), r.GetType(), text.Paint(state.Text, state.Color, color))
	if r.GetName() != r.GetResourceId() {
		fmt.Fprintf(b, "  %s", text.Clean(r.GetName()))
	}
	if t.GetMore() {
		fmt.Fprintf(b, "  (%d of %d below it shown)", len(t.GetChildren()), r.GetChildren())
	}
	b.WriteByte('\n')
}

func resourceTypesCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "types [TYPE]", Short: "Show the types of resource, or the attributes of one",
		Args: takes(0, 1, "the name of a type"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.resources.ListResourceTypes(cmd.Context(), &registryv1.ListResourceTypesRequest{})
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return c.printTypes(res)
			}
			for _, t := range res.GetTypes() {
				if t.GetType() == args[0] {
					return c.printType(t)
				}
			}
			return usagef("there is no type %q; `yunhe resource types` shows them", args[0])
		},
	}
}

func (c *cli) printTypes(res *registryv1.ListResourceTypesResponse) error {
	var names []string
	t := text.NewTable("TYPE", "TITLE", "MAY BE BELOW", "NEEDS", "CLAUSE")
	for _, x := range res.GetTypes() {
		names = append(names, x.GetType())
		title := x.GetTitle()
		if x.GetReadOnly() {
			title += " (joins by itself)"
		}
		t.Row(x.GetType(), title, strings.Join(x.GetParents(), ", "), strings.Join(x.GetRequires(), ", "), x.GetClause())
	}
	return c.print(result{msg: res, names: names, print: t.Write})
}

// attributeSchema is what people need to know of an attribute, or of all of a type.
type attributeSchema struct {
	Type        string                     `json:"type"`
	Enum        []string                   `json:"enum"`
	Description string                     `json:"description"`
	Items       *attributeSchema           `json:"items"`
	Properties  map[string]attributeSchema `json:"properties"`
	Required    []string                   `json:"required"`
}

// attributesOf reads the schema of a type.
func attributesOf(t *registryv1.ResourceType) (attributeSchema, error) {
	var s attributeSchema
	if err := json.Unmarshal([]byte(t.GetSchema()), &s); err != nil {
		return s, fmt.Errorf("schema of type %s: %w", t.GetType(), err)
	}
	return s, nil
}

// rows adds the attributes, and below each list what its objects have.
func (s attributeSchema) rows(table *text.Table, indent string) {
	for _, name := range sortedNames(s.Properties) {
		a, needed := s.Properties[name], ""
		if slices.Contains(s.Required, name) {
			needed = "yes"
		}
		about := a.Description
		if len(a.Enum) > 0 {
			about += " One of " + strings.Join(a.Enum, ", ") + "."
		}
		kind := a.Type
		if a.Items != nil {
			kind = "list of " + a.Items.Type
		}
		table.Row(indent+name, kind, needed, about)
		if a.Items != nil {
			a.Items.rows(table, indent+"  ")
		}
	}
}

func (c *cli) printType(t *registryv1.ResourceType) error {
	attributes, err := attributesOf(t)
	if err != nil {
		return err
	}
	return c.print(result{msg: t, names: []string{t.GetType()}, print: func(w io.Writer, color bool) error {
		table := text.NewTable("ATTRIBUTE", "KIND", "NEEDED", "ABOUT")
		attributes.rows(table, "")
		return table.Write(w, color)
	}})
}

func resourceMoveCommand(c *cli) *cobra.Command {
	var top bool
	cmd := &cobra.Command{
		Use: "move RESOURCE (PARENT | --top)", Short: "Put a resource or a center below another resource",
		Long: `Puts a resource below another one, with all that is below it. A center that
joined is moved by its ID in the tree, "center:ID".`,
		Args: takes(1, 2, "the ID of a resource and of its new parent"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if top == (len(args) == 2) {
				return usagef("want one of a parent and --top")
			}
			req := &registryv1.MoveResourceRequest{ResourceId: args[0]}
			if !top {
				req.ParentId = args[1]
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			r, err := a.resources.MoveResource(cmd.Context(), req)
			if err != nil {
				return err
			}
			return c.printResource(r)
		},
	}
	cmd.Flags().BoolVar(&top, "top", false, "to the top of the tree")
	return cmd
}

func resourceDeleteCommand(c *cli) *cobra.Command {
	return removal{
		use: "delete RESOURCE...", short: "Delete resources with nothing below them",
		long: `Deletes resources from the register and revokes their identifiers. One with
something below it cannot be deleted.`,
		one: "resource", some: "resources", member: "resourceIds", done: "deleted",
		remove: func(cmd *cobra.Command, a *api, id string) error {
			_, err := a.resources.DeleteResource(cmd.Context(), &registryv1.DeleteResourceRequest{ResourceId: id})
			return err
		},
	}.command(c)
}
