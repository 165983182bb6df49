package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/adapters/gateway/agent"
	"yunhe.dev/yunhe/adapters/kubernetes"
	"yunhe.dev/yunhe/adapters/slurm"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/sdk/adapter"
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

// What a built-in driver is configured with is known before a center is connected.
func TestDriversAreDescribedWithoutACenter(t *testing.T) {
	t.Parallel()
	for _, d := range []adapter.Driver{&kubernetes.Driver{}, &slurm.Driver{}} {
		res, err := asBuilt{describing{Driver: d}}.Describe(t.Context(), &adapterv1.DescribeRequest{})
		if err != nil || drivers[res.Name] == nil || res.Version != buildVersion() || len(res.Parts) == 0 || !strings.Contains(res.ConfigSchema, `"region"`) {
			t.Errorf("described as %v, %v", res, err)
		}
	}
}
