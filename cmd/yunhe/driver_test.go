package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/adapters/gateway/agent"
)

// tags returns the names that a struct's fields have in the kind of file.
func tags(t reflect.Type, kind string) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			out = append(out, tags(f.Type, kind)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get(kind), ",")
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func TestGatewayIsDescribedAsItIs(t *testing.T) {
	t.Parallel()
	described, real := tags(reflect.TypeFor[gatewayConfig](), "json"), tags(reflect.TypeFor[agent.Center](), "yaml")
	if !slices.Equal(described, real) {
		t.Errorf("described are %v, a gateway reads %v", described, real)
	}
}
