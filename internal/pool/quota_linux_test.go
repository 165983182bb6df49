package pool

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// TestQuotaOfGroup: a task counts in its group's quota, wherever it comes from.
func TestQuotaOfGroup(t *testing.T) {
	t.Parallel()
	groups := []Group{{Name: "a", Compute: 50}, {Name: "b"}}
	n := &Node{log: slog.New(slog.DiscardHandler), tasks: map[string]*task{}, arriving: map[string]*task{}, quotas: quotas(groups), cfg: NodeConfig{Groups: groups, Overcommit: 100, MemoryOver: 100}}
	d := &device{Device: Device{ID: "opencl-0", API: OpenCL, Memory: 16 * mib}, turns: newArbiter()}
	var err error
	if d.card, err = newCard(d.Memory, d.turns, n.log); err != nil {
		t.Fatal(err)
	}
	defer d.card.close()
	n.devices = []*device{d}
	for _, c := range []struct {
		group *Group
		want  *quota
	}{{&groups[0], n.quotas["a"]}, {&groups[1], nil}} {
		r, err := n.run(c.group, Spec{Memory: mib, Weighted: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := n.tasks[r.Task.ID].account.quota; got != c.want {
			t.Errorf("a task of group %s has the quota %v, want %v", c.group.Name, got, c.want)
		}
		x, err := n.adopt(guest{group: c.group}, nil, &adoption{Version: wire.MoveVersion, Task: Task{ID: "01ARZ3NDEKTSV4RRFFQ69G5FA" + strings.ToUpper(c.group.Name), Compute: 1, Memory: mib, Started: time.Now()}, Token: strings.Repeat("0a", 32)})
		if err != nil {
			t.Fatal(err)
		}
		if x.account.quota != c.want {
			t.Errorf("a task that comes to group %s has the quota %v, want %v", c.group.Name, x.account.quota, c.want)
		}
	}
	if n.quotas["a"] == nil {
		t.Error("group a has none")
	}

	// Of a platform's groups it is what the platform says, from then on.
	n.member, n.tasks, n.quotas = &membership{changed: make(chan struct{}, 1), used: map[string]int64{}, boot: "b", since: time.Now()}, map[string]*task{}, map[string]*quota{}
	n.arriving = nil
	r, err := n.admit(&Ticket{Boot: "b", Serial: "1", Slice: "s", Group: "g", Spec: Spec{Device: d.ID, Compute: 50, Memory: mib, Weighted: true}})
	if err != nil {
		t.Fatal(err)
	}
	q := n.tasks[r.Task.ID].account.quota
	if q == nil || q.percent != 0 {
		t.Fatalf("at first it is %v", q)
	}
	if n.limitGroups([]WantedGroup{{Group: "g", Compute: 30}, {Group: "other", Compute: 1}}); q.percent != 30 {
		t.Errorf("it is %d, want 30", q.percent)
	}
	if n.limitGroups(nil); q.percent != 0 || n.quotas["g"] != q {
		t.Errorf("where nothing is said it is %d", q.percent)
	}
	n.arriving, n.tasks = n.tasks, map[string]*task{} // one that comes to the node
	if n.limitGroups(nil); n.quotas["g"] != q {
		t.Error("one that comes would have a quota that nobody sets")
	}
	n.arriving = nil
	if n.limitGroups(nil); len(n.quotas) > 0 {
		t.Errorf("without tasks there are %v", n.quotas)
	}
}
