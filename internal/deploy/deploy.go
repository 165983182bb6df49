// Package deploy writes an availability plan of the platform itself as
// manifests: its submodules are the roles of the program, each microservice of
// the plan is a group of processes that run these roles, with the instances
// that the plan says.
//
// What it keeps true: every role is run by exactly one group, as the plan has
// it; instances of a group are kept apart, because a plan counts on it that
// they fail one by one; one of a group is replaced at a time; no secret is
// written. What the processes share (database, bus, samples, objects, keys) is
// in the configuration file, which is named and not copied.
//
// Everything here is pure: it returns files and writes none.
package deploy

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/template"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// MaxPlan is the largest plan read, in bytes.
const MaxPlan = 1 << 20

// Group is the processes of one microservice of a plan.
type Group struct {
	Name      string   // its roles, joined
	Roles     []string // in the order of the program
	Instances int
}

// Read returns the groups of a plan that `yunhe availability plan -o json`
// printed. It returns fault.Invalid if its submodules are not the roles, each
// once.
func Read(plan []byte, roles []string) ([]Group, error) {
	var in struct {
		Modules []struct {
			Name          string     `json:"name"`
			Instances     int        `json:"instances"`
			Microservices [][]string `json:"microservices"`
		} `json:"modules"`
	}
	if len(plan) > MaxPlan {
		return nil, fault.New(fault.Invalid, "the plan must be at most %d bytes", MaxPlan)
	}
	if err := json.Unmarshal(plan, &in); err != nil {
		return nil, fault.New(fault.Invalid, "the plan is not what `yunhe availability plan -o json` prints: %v", err)
	}
	var c core.Check
	var out []Group
	seen := map[string]bool{}
	for i, m := range in.Modules {
		c.Range(fmt.Sprintf("modules[%d].instances", i), int64(m.Instances), 1, 100)
		for j, names := range m.Microservices {
			at := fmt.Sprintf("modules[%d].microservices[%d]", i, j)
			g := Group{Instances: m.Instances}
			for k, name := range names {
				_, role, found := strings.Cut(name, "/") // the method fca names modules too
				if !found {
					role = name
				}
				switch {
				case !slices.Contains(roles, role):
					c.Add(fmt.Sprintf("%s[%d]", at, k), "must be a role of the program (%s), got %q", strings.Join(roles, ", "), name)
				case seen[role]:
					c.Add(fmt.Sprintf("%s[%d]", at, k), "is in the plan already, got %q twice", name)
				}
				seen[role] = true
				g.Roles = append(g.Roles, role)
			}
			if len(names) == 0 {
				c.Add(at, "must name at least one role")
			}
			slices.SortFunc(g.Roles, func(a, b string) int { return slices.Index(roles, a) - slices.Index(roles, b) })
			g.Name = strings.Join(g.Roles, "-")
			out = append(out, g)
		}
	}
	for _, role := range roles {
		if !seen[role] {
			c.Add("modules", "must have every role as a submodule, %q is missing", role)
		}
	}
	return out, c.Err()
}

// Format of manifests.
type Format string

// The formats.
const (
	Kubernetes Format = "kubernetes"
	Systemd    Format = "systemd"
	Compose    Format = "compose"
)

// Options of manifests; empty ones are filled in.
type Options struct {
	Format    Format
	Namespace string   // of Kubernetes; yunhe
	Image     string   // with the program at /yunhe; for Kubernetes and Compose
	Binary    string   // path of the program on the hosts; /usr/local/bin/yunhe
	Config    string   // path of the configuration file on the hosts; /etc/yunhe/yunhe.yaml
	Data      string   // folder with a folder for each process on the hosts; /var/lib/yunhe
	User      string   // the processes run as on the hosts; yunhe
	Address   string   // the processes listen on; 0.0.0.0
	Port      int      // the first one; 8180
	Hosts     []string // the instances are spread over, for systemd
}

// File of manifests.
type File struct {
	Path string // relative, with slashes
	Text string
}

var (
	label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	host  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)
	image = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}$`)
	where = regexp.MustCompile(`^/[A-Za-z0-9._/-]{1,254}$`)
	user  = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
	listn = regexp.MustCompile(`^[0-9A-Fa-f.:\[\]]{2,45}$`)
)

// check fills in what is empty. Only what needs no quoting anywhere is allowed.
func (o *Options) check(groups []Group) error {
	var c core.Check
	fill := func(field string, to *string, normal string, allowed *regexp.Regexp, like string) {
		if *to == "" {
			*to = normal
		}
		if !allowed.MatchString(*to) {
			c.Add(field, "must be %s, got %q", like, *to)
		}
	}
	fill("namespace", &o.Namespace, "yunhe", label, "lower case letters, digits and hyphens, at most 63")
	fill("image", &o.Image, "yunhe:latest", image, "the name of an image")
	fill("binary", &o.Binary, "/usr/local/bin/yunhe", where, "an absolute path without spaces")
	fill("config", &o.Config, "/etc/yunhe/yunhe.yaml", where, "an absolute path without spaces")
	fill("data", &o.Data, "/var/lib/yunhe", where, "an absolute path without spaces")
	fill("user", &o.User, "yunhe", user, "the name of a user")
	fill("address", &o.Address, "0.0.0.0", listn, "an IP address")
	if o.Port == 0 {
		o.Port = 8180
	}
	all := 0
	for _, g := range groups {
		all += g.Instances
	}
	c.Range("port", int64(o.Port), 1, int64(65535-all))
	if len(o.Hosts) == 0 {
		o.Hosts = []string{"localhost"}
	}
	for i, h := range o.Hosts {
		if !host.MatchString(h) {
			c.Add(fmt.Sprintf("hosts[%d]", i), "must be the name of a host, got %q", h)
		}
		if slices.Contains(o.Hosts[:i], h) {
			c.Add(fmt.Sprintf("hosts[%d]", i), "must differ from the others, got %q twice", h)
		}
	}
	return c.Err()
}

// Process is one instance of a group on a host.
type Process struct {
	Group
	Unit    string
	Number  int // of the group, from 1
	Host    string
	Options *Options
	Listen  int // port
}

// Write returns the files of a deployment, by path. It returns fault.Invalid.
func Write(groups []Group, o Options) ([]File, error) {
	if err := o.check(groups); err != nil {
		return nil, err
	}
	switch o.Format {
	case Kubernetes:
		return kubernetes(groups, &o)
	case Systemd:
		return systemd(groups, &o)
	case Compose:
		text, err := render("compose.yaml", map[string]any{"Options": &o, "Groups": groups})
		return []File{{"compose.yaml", text}}, err
	}
	return nil, fault.Fields(fault.Field{Path: "format", Problem: fmt.Sprintf("must be kubernetes, systemd or compose, got %q", string(o.Format))})
}

func kubernetes(groups []Group, o *Options) ([]File, error) {
	files := []File{}
	add := func(path, name string, data map[string]any) error {
		data["Options"] = o
		text, err := render(name, data)
		files = append(files, File{path, text})
		return err
	}
	if err := add("base.yaml", "base.yaml", map[string]any{}); err != nil {
		return nil, err
	}
	for _, g := range groups {
		if err := add(g.Name+".yaml", "group.yaml", map[string]any{"Group": g}); err != nil {
			return nil, err
		}
	}
	paths := make([]string, len(files))
	for i := range files {
		paths[i] = files[i].Path
	}
	return files, add("kustomization.yaml", "kustomization.yaml", map[string]any{"Files": paths})
}

// systemd puts each instance of a group on another host, in turn, and each
// group a host further than the one before.
func systemd(groups []Group, o *Options) ([]File, error) {
	units := map[string][]string{}
	var files []File
	next := 0
	for _, g := range groups {
		for n := range g.Instances {
			h := o.Hosts[next%len(o.Hosts)]
			next++
			p := Process{Group: g, Unit: fmt.Sprintf("yunhe-%s-%d.service", g.Name, n+1), Number: n + 1, Host: h, Options: o, Listen: o.Port + len(units[h])}
			units[h] = append(units[h], p.Unit)
			text, err := render("unit.service", p)
			if err != nil {
				return nil, err
			}
			files = append(files, File{h + "/" + p.Unit, text})
		}
	}
	for _, h := range o.Hosts {
		if len(units[h]) == 0 {
			continue // more hosts than processes
		}
		text, err := render("yunhe.target", map[string]any{"Units": units[h]})
		if err != nil {
			return nil, err
		}
		files = append(files, File{h + "/yunhe.target", text})
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

//go:embed templates/*
var templates embed.FS

var texts = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{"join": strings.Join}).ParseFS(templates, "templates/*"))
})

func render(name string, data any) (string, error) {
	var b bytes.Buffer
	if err := texts().ExecuteTemplate(&b, name, data); err != nil {
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return b.String(), nil
}
