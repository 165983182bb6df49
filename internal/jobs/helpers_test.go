package jobs_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/registry"
)

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// drain takes a center out of use, or back.
func drain(t *testing.T, a *apptest.App, id string, out bool) {
	t.Helper()
	c, err := a.Registry.GetCenter(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	c.Drained = out
	if _, err := a.Registry.UpdateCenter(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// held is how much CPU replicas hold at a center.
func held(t *testing.T, a *apptest.App, id string) int64 {
	t.Helper()
	c, err := a.Registry.GetCenter(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return c.Used[core.CPU]
}

// createSpec makes a specification of one core that every test may hold.
func createSpec(t *testing.T, a *apptest.App, id string) {
	t.Helper()
	_, err := a.Registry.CreateSpec(t.Context(), registry.NewSpec{ID: id, Quantity: map[string]string{core.CPU: "1", core.Memory: "512Mi"}, Price: 100})
	if err != nil {
		t.Fatal(err)
	}
}
