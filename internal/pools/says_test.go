package pools_test

import (
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pools"
)

// What is refused is said in words that fit what was asked for.
func TestSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.group(pools.Group{ID: "g"})
		w.node("n1", "A")
		x := w.ask(pools.Request{Compute: 10})
		_, err := w.Move(w.ann, x.ID, "n1", "", 0)
		wantKind(t, err, fault.Conflict, "is on device d0 of pool node n1 already")
		_, err = w.Move(w.ann, x.ID, "n1", "d7", 0)
		wantKind(t, err, fault.NotFound, `has no device "d7"`)
		for _, c := range []struct {
			r    pools.Request
			says string
		}{
			{pools.Request{API: "cuda"}, "group g has no device of the api cuda"},
			{pools.Request{API: "cuda", Model: "B"}, `group g has no device of the api cuda of the model "B"`},
			{pools.Request{Model: "B"}, `group g has no device of the model "B"`},
			{pools.Request{Node: "n9"}, `group g has no such device on pool node "n9": api opencl`},
			{pools.Request{Node: "n1", Device: "d9"}, `group g has no such device on pool node "n1": device "d9", api opencl`},
		} {
			c.r.Compute, c.r.Memory = 10, 10
			if _, err := w.Request(w.ann, c.r); err == nil || err.Error() != c.says {
				t.Errorf("%+v: %v, want %s", c.r, err, c.says)
			}
		}
		for _, member := range []string{"n1/d0/x", "n 1", "n1/", "/d0", "/"} {
			_, err := w.SetGroup(w.admin, pools.Group{ID: "other", Tenants: []string{"default"}, Members: []string{"n1/d0", member}})
			wantKind(t, err, fault.Invalid, "group.members[1]: must be NODE or NODE/DEVICE, got")
		}
		_, err = w.SetGroup(w.admin, pools.Group{ID: "other", Tenants: []string{"default", "t9"}, Users: []string{"ann", "nobody", "No One"}})
		wantKind(t, err, fault.Invalid, `group.tenant_ids[1]: there is no tenant "t9"`)
		wantKind(t, err, fault.Invalid, `group.user_ids[1]: there is no user "nobody"`)
		wantKind(t, err, fault.Invalid, `group.user_ids[2]: there is no user "No One"`)
		_, err = w.SetGroup(w.admin, pools.Group{ID: "other", Tenants: []string{"biology"}, Users: []string{"ann"}})
		wantKind(t, err, fault.Invalid, `group.user_ids[0]: user "ann" is of tenant default, which is not one of group.tenant_ids`)
		_, err = w.SetGroup(w.admin, pools.Group{ID: "other", Tenants: []string{"default"}, Members: []string{"n1", "n9", "n1/d0", "n1/d9"}})
		wantKind(t, err, fault.Invalid, `group.members[1]: there is no pool node "n9"`)
		wantKind(t, err, fault.Invalid, `group.members[3]: pool node n1 has no device "d9"`)
		// What was there and is gone does not keep from changing the rest.
		n := w.node("n2", "A", "A")
		w.group(pools.Group{ID: "other", Members: []string{"n2/d1"}})
		n.Devices = n.Devices[:1]
		n.report()
		w.group(pools.Group{ID: "other", Members: []string{"n2/d1", "n2"}, MaxPriority: 1})
	})
}
