package app

import (
	"context"
	"strings"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/tags"
)

// resources shows the inventory to the tags, which do not know it.
type resources struct{ inv *inventory.Service }

var resourceStates = [...]string{"", "registered", "available", "unavailable", "maintenance", "retired"}

func (r resources) Resource(ctx context.Context, id string) (tags.Registered, error) {
	x, err := r.inv.Get(ctx, id)
	if err != nil {
		return tags.Registered{}, err
	}
	return registered(&x), nil
}

func registered(x *inventory.Resource) tags.Registered {
	return tags.Registered{ID: x.ID, Type: x.Type, Name: x.Name, Parent: objectOf(x.ParentID), CenterID: x.CenterID, TenantID: x.TenantID, Region: x.Region, Provider: x.Provider,
		State: resourceStates[x.State], Attributes: x.Attributes, Labels: x.Labels}
}

// objectOf is what tags call a resource of the inventory. Centers and nodes
// have the same name in both.
func objectOf(id string) string {
	if id == "" || strings.Contains(id, ":") {
		return id
	}
	return "resource:" + id
}

func (r resources) EachResource(ctx context.Context, f func(tags.Registered)) error {
	return r.pages(ctx, inventory.Filter{}, func(x *inventory.Resource) bool {
		if strings.Contains(x.ID, ":") { // what is registered comes first
			return false
		}
		f(registered(x))
		return true
	})
}

func (r resources) Places(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	err := r.pages(ctx, inventory.Filter{Type: "center"}, func(x *inventory.Resource) bool {
		if x.ParentID != "" {
			out[x.CenterID] = x.ParentID
		}
		return true
	})
	return out, err
}

func (r resources) Place(ctx context.Context, centerID string) (string, error) {
	x, err := r.inv.Get(ctx, inventory.CenterID(centerID))
	if fault.KindOf(err) == fault.NotFound {
		return "", nil // a center that went
	}
	return x.ParentID, err
}

// pages lists resources until more says no.
func (r resources) pages(ctx context.Context, filter inventory.Filter, more func(*inventory.Resource) bool) error {
	for token := ""; ; {
		rows, next, err := r.inv.List(ctx, filter, 1000, token)
		if err != nil {
			return err
		}
		for i := range rows {
			if !more(&rows[i]) {
				return nil
			}
		}
		if token = next; token == "" {
			return nil
		}
	}
}
