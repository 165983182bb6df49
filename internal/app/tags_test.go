package app_test

import (
	"fmt"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/tags"
)

// Tags are inherited along the tree of the inventory: platform, cloud, center
// and device.
func TestTagsOfTheInventory(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := core.WithCaller(t.Context(), core.Caller{UserID: "op", AllTenants: true, Permissions: map[string]bool{"registry.write": true}})
		a.Join(t, apptest.Center{ID: "c1"})
		for _, r := range []inventory.Resource{
			{ID: "prov", Type: "platform", Attributes: map[string]any{"level": "provincial", "managed_compute_types": []any{"general"}}},
			{ID: "store", Type: "storage", ParentID: "center:c1", Region: "guizhou", Provider: "P", Attributes: map[string]any{"storage_type": "file", "specification": "NVMe"}},
		} {
			if _, err := a.Inventory.Create(ctx, r); err != nil {
				t.Fatalf("%s: %v", r.ID, err)
			}
		}
		if _, err := a.Inventory.Move(ctx, "center:c1", "prov"); err != nil {
			t.Fatal(err)
		}
		res, err := a.Tags.Apply(ctx, tags.Batch{Selector: tags.Selector{Objects: []string{"resource:prov"}}, Changes: []tags.Change{{Key: "green", Value: "true"}}})
		if err != nil || !res.Applied {
			t.Fatalf("%+v, %v", res, err)
		}
		x, err := a.Tags.Get(ctx, "resource:store")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(x.Parents), "[center:c1 resource:prov platform]"; got != want {
			t.Errorf("parents = %s, want %s", got, want)
		}
		var green tags.Tag
		for _, g := range x.Tags {
			if g.Key == "green" {
				green = g
			}
		}
		if green.Value != "true" || green.From != "resource:prov" {
			t.Errorf("green = %+v", green)
		}
		// Lists may be some seconds behind a move.
		end, tick := time.After(30*time.Second), time.NewTicker(50*time.Millisecond)
		defer tick.Stop()
		for {
			rows, _, err := a.Tags.List(ctx, tags.Selector{Kinds: []tags.Kind{tags.Resource}, Expression: `type == "storage" && tags["green"] == "true"`}, 0, "")
			if err != nil || len(rows) == 1 && rows[0].Object == "resource:store" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			select {
			case <-end:
				t.Fatalf("listed = %+v", rows)
			case <-tick.C:
			}
		}
	})
}
