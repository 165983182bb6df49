package adapters

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// Hidden stands in a configuration that is shown for each of its secrets. In
// one that is sent it stands for the secret that was there.
const Hidden = "(secret)"

// secretNames are what the last words of a secret's name are, where the schema
// does not say: writeOnly in it decides for itself.
var secretNames = []string{"token", "password", "passphrase", "secret", "kubeconfig", "private_key", "secret_key", "access_key", "api_key", "credentials"}

// isSecret reports whether the value under a name is one. s is nil where
// the plug-in's schema says nothing of it.
func isSecret(name string, s *jsonschema.Schema) bool {
	if s != nil && (s.WriteOnly || s.Format == "password") {
		return true
	}
	name = strings.ReplaceAll(strings.ToLower(name), "-", "_")
	return slices.ContainsFunc(secretNames, func(end string) bool {
		return name == end || strings.HasSuffix(name, "_"+end) || strings.HasSuffix(name, end)
	})
}

// child returns what a schema says of a member of its value, nil if nothing.
func child(s *jsonschema.Schema, name string) *jsonschema.Schema {
	if s == nil {
		return nil
	}
	if p := s.Properties[name]; p != nil {
		return p
	}
	return s.AdditionalProperties
}

// items returns what a schema says of the elements of its value.
func items(s *jsonschema.Schema) *jsonschema.Schema {
	if s == nil {
		return nil
	}
	return s.Items
}

// hide replaces the secrets in a configuration. Where nothing is known of its
// schema every text is taken for one.
func hide(v any, name string, s *jsonschema.Schema, known bool) any {
	switch v := v.(type) {
	case map[string]any:
		if isSecret(name, s) {
			return Hidden
		}
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = hide(x, k, child(s, k), known)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = hide(x, name, items(s), known)
		}
		return out
	case string:
		if v != "" && (!known || isSecret(name, s)) {
			return Hidden
		}
	case nil, bool:
	default:
		if isSecret(name, s) {
			return Hidden
		}
	}
	return v
}

// keep puts the secrets of old where a configuration that is sent says that
// they stay. It notes where there was none.
func keep(c *core.Check, path string, v, old any) any {
	switch v := v.(type) {
	case map[string]any:
		was, _ := old.(map[string]any)
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out[k] = keep(c, path+"."+k, v[k], was[k])
		}
		return out
	case []any:
		was, _ := old.([]any)
		out := make([]any, len(v))
		for i, x := range v {
			var o any
			if i < len(was) {
				o = was[i]
			}
			out[i] = keep(c, fmt.Sprintf("%s[%d]", path, i), x, o)
		}
		return out
	case string:
		if v != Hidden {
			return v
		}
		if old == nil {
			c.Add(path, "is %q, which keeps a secret, and there was none", Hidden)
		}
		return old
	}
	return v
}

// merge applies a JSON merge patch (RFC 7396).
func merge(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, ok := target.(map[string]any)
	if !ok {
		t = nil
	}
	out := maps.Clone(t)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range p {
		if v == nil {
			delete(out, k)
		} else {
			out[k] = merge(out[k], v)
		}
	}
	return out
}

// violations notes what in a configuration its schema refuses, by field.
func violations(c *core.Check, path string, v any, s *jsonschema.Schema) {
	object, isObject := v.(map[string]any)
	list, isList := v.([]any)
	switch {
	case isObject && (len(s.Properties) > 0 || s.AdditionalProperties != nil):
		for _, name := range s.Required {
			if _, ok := object[name]; !ok {
				c.Add(path+"."+name, "is required")
			}
		}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			sub := child(s, name)
			switch {
			case s.Properties[name] == nil && sub != nil && sub.Not != nil: // false: nothing else may be there
				c.Add(path+"."+clip(clean(name), 64), "is not known; there are %s", strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", "))
			case sub != nil:
				violations(c, path+"."+clip(clean(name), 64), object[name], sub)
			}
		}
	case isList && s.Items != nil:
		for i, x := range list {
			violations(c, fmt.Sprintf("%s[%d]", path, i), x, s.Items)
		}
	default:
		if err := validate(v, s); err != nil {
			c.Add(path, "%s", clip(clean(strings.TrimPrefix(err.Error(), "validating root: ")), 300))
		}
	}
}

// validate checks a value by a schema that may be a part of another; one that
// refers to what is elsewhere in the other says nothing by itself.
func validate(v any, s *jsonschema.Schema) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	var own jsonschema.Schema
	if err := json.Unmarshal(b, &own); err != nil {
		return err
	}
	resolved, err := own.Resolve(nil)
	if err != nil {
		return nil // only the whole can be resolved, and it is checked too
	}
	return resolved.Validate(v)
}

// parseConfig reads a configuration or a part of one, the field named path.
func parseConfig(path, text string) (map[string]any, error) {
	if len(text) > maxConfig {
		return nil, fault.Fields(fault.Field{Path: path, Problem: fmt.Sprintf("must be at most %d bytes, got %d", maxConfig, len(text))})
	}
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return nil, fault.Fields(fault.Field{Path: path, Problem: "must be a JSON object: " + err.Error()})
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, fault.Fields(fault.Field{Path: path, Problem: "must be a JSON object"})
	}
	return object, nil
}

// readSchema returns the schema of a plug-in's configuration, nil if it was never reached.
func readSchema(name, text string) (*jsonschema.Schema, error) {
	if text == "" {
		return nil, nil
	}
	schema := new(jsonschema.Schema)
	if err := json.Unmarshal([]byte(text), schema); err != nil {
		return nil, fmt.Errorf("schema of plug-in %s: %w", name, err)
	}
	return schema, nil
}

// checkConfig checks a configuration by the schema of the named plug-in.
func checkConfig(ctx context.Context, tx *db.Tx, name string, config map[string]any) error {
	var source Source
	var text string
	found, err := tx.Get(ctx, `SELECT source, config_schema FROM plugins WHERE name = $1`, []any{name}, &source, &text)
	switch {
	case err != nil:
		return err
	case !found:
		return noPlugin(name)
	case name == GatewayPlugin:
		return fault.New(fault.Invalid, "a compute gateway joins by itself: make a token with yunhe center join-token, and start yunhe gateway with it")
	case source == Registered:
		return fault.New(fault.Invalid, "plug-in %q runs elsewhere: its instances are its addresses", name)
	}
	schema, err := readSchema(name, text)
	if err != nil || schema == nil { // one that was never reached says itself what is wrong
		return err
	}
	var c core.Check
	violations(&c, "config", config, schema)
	if err := c.Err(); err != nil {
		return err
	}
	if err := validate(config, schema); err != nil { // what no single field is to blame for
		return fault.Fields(fault.Field{Path: "config", Problem: fmt.Sprintf("is not as plug-in %s wants it (see: yunhe plugin describe %s): %s", name, name, err)})
	}
	return nil
}

// GetInstance returns an instance with its configuration, secrets hidden;
// fault.NotFound if there is none.
func (s *Service) GetInstance(ctx context.Context, name, center string) (Instance, error) {
	p, err := s.GetPlugin(ctx, name)
	if err != nil {
		return Instance{}, err
	}
	i := slices.IndexFunc(p.Instances, func(in Instance) bool { return in.CenterID == center })
	if i < 0 {
		return Instance{}, fault.New(fault.NotFound, "plug-in %q has no instance at center %q", name, center)
	}
	in := p.Instances[i]
	if !in.made {
		return in, nil
	}
	schema, err := readSchema(name, p.Schema)
	if err != nil {
		return Instance{}, err
	}
	config, err := s.openConfig(in)
	if err != nil {
		return Instance{}, err
	}
	b, err := json.Marshal(hide(config, "", schema, schema != nil))
	in.Config = string(b)
	return in, err
}

func (s *Service) openConfig(in Instance) (map[string]any, error) {
	raw, err := s.box.Open(in.config, purpose(in.CenterID))
	if err != nil {
		return nil, err
	}
	return parseConfig("config", string(raw))
}

// changedConfig returns what an instance's configuration becomes: the whole
// that is sent, or a patch of what it was.
func (s *Service) changedConfig(in Instance, config, patch *string) (map[string]any, error) {
	old, err := s.openConfig(in)
	if err != nil {
		return nil, err
	}
	path, text := "config", config
	if patch != nil {
		path, text = "config_patch", patch
	}
	sent, err := parseConfig(path, *text)
	if err != nil {
		return nil, err
	}
	next := sent
	if patch != nil {
		next, _ = merge(old, sent).(map[string]any)
	}
	var c core.Check
	next, _ = keep(&c, path, next, old).(map[string]any)
	return next, c.Err()
}
