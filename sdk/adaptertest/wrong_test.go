package adaptertest

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// wrong is a driver that breaks a rule.
type wrong struct {
	check string // that catches it
	name  string // what it does, after "a driver that"
	want  string // part of what it is told
	lie   func() lie
}

// each makes a lie of a change to each attempt that is applied.
func each(change func(p *proxy, a *adapterv1.Attempt)) func() lie {
	return func() lie {
		return lie{apply: func(p *proxy, ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
			r = proto.CloneOf(r)
			for _, a := range r.Attempts {
				change(p, a)
			}
			return p.enqueue(ctx, r, "waits")
		}}
	}
}

// ends makes a lie of a change to statuses of ends.
func ends(change func(st *adapterv1.Status)) func() lie {
	return func() lie {
		return lie{status: func(_ int, st *adapterv1.Status) bool {
			if st.Phase == adapterv1.Phase_PHASE_ENDED {
				change(st)
			}
			return true
		}}
	}
}

// suspends makes a lie of a change to statuses of what stands still.
func suspends(change func(p *proxy, st *adapterv1.Status)) func() lie {
	return func() lie {
		var mu sync.Mutex // guards now
		var now *proxy
		return lie{
			begin: func(p *proxy) {
				mu.Lock()
				defer mu.Unlock()
				now = p
			},
			status: func(_ int, st *adapterv1.Status) bool {
				mu.Lock()
				defer mu.Unlock()
				if st.Phase == adapterv1.Phase_PHASE_SUSPENDED {
					change(now, st)
				}
				return true
			},
		}
	}
}

// reads makes a lie of a change to pieces of logs.
func reads(change func(r *adapterv1.ReadLogRequest, res *adapterv1.ReadLogResponse)) func() lie {
	return func() lie {
		return lie{read: func(p *proxy, ctx context.Context, r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
			res, err := p.DriverServiceHandler.ReadLog(ctx, r)
			if err == nil {
				change(r, res)
			}
			return res, err
		}}
	}
}

// equips tells of network equipment in the first message.
func equips(x *adapterv1.Equipment) func() lie {
	return watches(func(n int, m *adapterv1.WatchResponse) {
		if n == 1 {
			m.Equipment = []*adapterv1.Equipment{x}
		}
	})
}

// watches makes a lie of a change to messages of Watch; n counts them.
func watches(change func(n int, m *adapterv1.WatchResponse)) func() lie {
	return func() lie {
		return lie{watch: func(_ context.Context, n int, m *adapterv1.WatchResponse) error {
			change(n, m)
			return nil
		}}
	}
}

// otherName has each instance call attempts by names of its own, which no
// other knows: what is applied to two runs twice, and is lost with the first.
func otherName() lie {
	name := func(p *proxy, id string) string { return id + "-" + string(rune('a'+p.n)) }
	var mu sync.Mutex // guards n
	n := 0
	return lie{
		apply: func(p *proxy, ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
			mu.Lock()
			n = p.n
			mu.Unlock()
			r = proto.CloneOf(r)
			for _, a := range r.Attempts {
				a.AttemptId = name(p, a.AttemptId)
			}
			return p.DriverServiceHandler.Apply(ctx, r)
		},
		status: func(_ int, st *adapterv1.Status) bool {
			id, by, _ := strings.Cut(st.AttemptId, "-")
			mu.Lock()
			defer mu.Unlock()
			st.AttemptId = id
			return by == string(rune('a'+n))
		},
		remove: func(p *proxy, ctx context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
			r = proto.CloneOf(r)
			for _, ids := range [][]string{r.Stop, r.Forget} {
				for i := range ids {
					ids[i] = name(p, ids[i])
				}
			}
			return p.DriverServiceHandler.Remove(ctx, r)
		},
		read: func(p *proxy, ctx context.Context, r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
			r = proto.CloneOf(r)
			r.AttemptId = name(p, r.AttemptId)
			return p.DriverServiceHandler.ReadLog(ctx, r)
		},
	}
}

// everyCall starts an attempt in each call of Apply.
func everyCall() lie {
	var mu sync.Mutex // guards n
	n := 0
	return lie{apply: func(p *proxy, ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
		again := proto.CloneOf(r)
		mu.Lock()
		n++
		for _, a := range again.Attempts {
			a.AttemptId += "-" + string(rune('a'+n))
		}
		mu.Unlock()
		if _, err := p.DriverServiceHandler.Apply(context.WithoutCancel(ctx), again); err != nil {
			return nil, err
		}
		return p.DriverServiceHandler.Apply(ctx, r)
	}}
}

// swallowed is a driver that accepts whatever it is given.
func swallowed() lie {
	return lie{apply: func(p *proxy, ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
		res, err := p.DriverServiceHandler.Apply(ctx, r)
		if err == nil {
			res.Refusals = nil
		}
		return res, err
	}}
}

// refusals makes a lie of a change to an answer with refusals.
func refusals(change func(r *adapterv1.ApplyRequest, res *adapterv1.ApplyResponse) error) func() lie {
	return func() lie {
		return lie{apply: func(p *proxy, ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
			res, err := p.DriverServiceHandler.Apply(ctx, r)
			if err == nil && len(res.Refusals) > 0 {
				err = change(r, res)
			}
			return res, err
		}}
	}
}

// later has Apply say yes and do it after a while, if it lives.
func later() lie {
	return lie{apply: func(p *proxy, ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
		time.AfterFunc(300*time.Millisecond, func() { _, _ = p.DriverServiceHandler.Apply(context.WithoutCancel(ctx), r) }) // the driver may be dead
		return &adapterv1.ApplyResponse{}, nil
	}}
}

func unseen() lie {
	return each(func(_ *proxy, a *adapterv1.Attempt) { a.Seen = false })()
}

func untroubled() lie {
	return watches(func(_ int, m *adapterv1.WatchResponse) { m.Trouble = "" })()
}

var wrongs = []wrong{
	{"describe/names", "has a name with spaces", "the name is", func() lie { return lie{describe: func(r *adapterv1.DescribeResponse) { r.Name = "My Driver" }} }},
	{"describe/names", "has no version", "version is empty", func() lie { return lie{describe: func(r *adapterv1.DescribeResponse) { r.Version = "" }} }},
	{"describe/names", "claims a part twice", "claimed twice", func() lie {
		return lie{describe: func(r *adapterv1.DescribeResponse) { r.Parts = append(r.Parts, r.Parts...) }}
	}},
	{"describe/schema", "has a schema that is none", "no JSON Schema", func() lie {
		return lie{describe: func(r *adapterv1.DescribeResponse) { r.ConfigSchema = `{"type": 5}` }}
	}},
	{"describe/schema", "is configured by a text", "want object", func() lie {
		return lie{describe: func(r *adapterv1.DescribeResponse) { r.ConfigSchema = `{"type": "string"}` }}
	}},
	{"describe/unclaimed", "runs jobs and does not claim it", "does not claim PART_JOB", func() lie {
		return lie{describe: func(r *adapterv1.DescribeResponse) { r.Parts = []adapterv1.Part{adapterv1.Part_PART_RESOURCE} }}
	}},
	{"discover/whole", "has no capacity", "no capacity", func() lie {
		return lie{discover: func(_ int, r *adapterv1.DiscoverResponse) { r.Inventory.Capacity = nil }}
	}},
	{"discover/whole", "has no center", "ai_center_id", func() lie {
		return lie{discover: func(_ int, r *adapterv1.DiscoverResponse) { r.Inventory.AiCenterId = "" }}
	}},
	{"discover/repeatable", "gives half answers", "each answer must be the whole", func() lie {
		return lie{discover: func(n int, r *adapterv1.DiscoverResponse) {
			if n%2 == 0 {
				r.Inventory.Images = nil
			}
		}}
	}},
	{"watch/whole", "begins with a part", "no inventory in the first message", watches(func(_ int, m *adapterv1.WatchResponse) { m.Inventory = nil })},
	{"watch/whole", "tells another inventory", "and Discover", watches(func(_ int, m *adapterv1.WatchResponse) {
		if m.Inventory != nil {
			m.Inventory.Offers[0].Price++
		}
	})},
	{"watch/whole", "ends Watch by itself", "Watch ended by itself", func() lie {
		return lie{watch: func(context.Context, int, *adapterv1.WatchResponse) error { return errors.New("enough") }}
	}},
	{"watch/nodes", "has more for jobs than there is", "which has", watches(func(_ int, m *adapterv1.WatchResponse) {
		for _, n := range m.Nodes {
			n.Allocatable = maps.Clone(n.Allocatable)
			n.Allocatable["cpu"]++
		}
	})},
	{"watch/nodes", "counts a drained node", "its ready nodes have", watches(func(_ int, m *adapterv1.WatchResponse) {
		for _, n := range m.Nodes {
			n.State = adapterv1.NodeState_NODE_STATE_DRAINED
		}
	})},
	{"watch/nodes", "has accelerators that count as nothing", "accelerator", watches(func(_ int, m *adapterv1.WatchResponse) {
		for _, n := range m.Nodes {
			n.Accelerators = []*adapterv1.Accelerator{{Vendor: "NVIDIA", Count: 8, Resource: "cards"}}
		}
	})},
	{"watch/nodes", "gives no reason", "gives no reason", watches(func(_ int, m *adapterv1.WatchResponse) {
		for _, n := range m.Nodes {
			n.State, n.Reason = adapterv1.NodeState_NODE_STATE_NOT_READY, ""
		}
	})},
	{"watch/equipment", "has equipment in no state", "want those of the contract", equips(&adapterv1.Equipment{Name: "leaf-1", State: 9})},
	{"watch/equipment", "has equipment that is down for no reason", "gives no reason", equips(&adapterv1.Equipment{Name: "leaf-1", State: adapterv1.EquipmentState_EQUIPMENT_STATE_DOWN})},
	{"watch/equipment", "has a port twice", "each once", equips(&adapterv1.Equipment{Name: "leaf-1", State: adapterv1.EquipmentState_EQUIPMENT_STATE_UP, Ports: []*adapterv1.Port{
		{Name: "1", State: adapterv1.PortState_PORT_STATE_UP}, {Name: "1", State: adapterv1.PortState_PORT_STATE_UP}}})},
	{"watch/equipment", "has a port to a node that is not there", "which is not there", equips(&adapterv1.Equipment{Name: "leaf-1", State: adapterv1.EquipmentState_EQUIPMENT_STATE_UP, Ports: []*adapterv1.Port{
		{Name: "1", State: adapterv1.PortState_PORT_STATE_UP, PeerNode: "no such node"}}})},
	{"watch/equipment", "loses more than there is", "want 0 to a million", equips(&adapterv1.Equipment{Name: "leaf-1", State: adapterv1.EquipmentState_EQUIPMENT_STATE_UP, Ports: []*adapterv1.Port{
		{Name: "1", State: adapterv1.PortState_PORT_STATE_UP, LossPpm: 1_000_001}}})},
	{"watch/beat", "falls silent", "Watch sent", func() lie {
		return lie{watch: func(ctx context.Context, n int, _ *adapterv1.WatchResponse) error {
			if n > 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		}}
	}},
	{"watch/deadline", "never ends Watch", "Watch goes on", func() lie {
		return lie{watch: func(context.Context, int, *adapterv1.WatchResponse) error {
			<-time.After(30 * time.Second)
			return nil
		}}
	}},
	{"watch/deadline", "never ends Observe", "Observe goes on", func() lie {
		return lie{observe: func(context.Context) error {
			<-time.After(30 * time.Second)
			return nil
		}}
	}},
	{"watch/changes", "tells no changes", "changed (Config.Change)", watches(func(n int, m *adapterv1.WatchResponse) {
		if n > 1 {
			m.Nodes = nil
		}
	})},
	{"apply/once", "starts in every call", "ran ", everyCall},
	{"apply/once", "forgets on a restart", "ran 2 times", otherName},
	{"apply/again", "starts again what has ended", "ran 2 times", func() lie {
		return lie{apply: func(p *proxy, ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
			for _, a := range r.Attempts {
				if _, err := p.DriverServiceHandler.Remove(ctx, &adapterv1.RemoveRequest{Forget: []string{a.AttemptId}}); err != nil {
					return nil, err
				}
				a.Seen = false
			}
			return p.DriverServiceHandler.Apply(ctx, r)
		}}
	}},
	{"apply/seen", "starts what was seen elsewhere", `want ["lost"]`, unseen},
	{"apply/forgotten", "starts what it forgot", "reason lost", unseen},
	{"apply/canceled", "starts in every call", "ran ", everyCall},
	{"refuse/image", "accepts any image", "accepted an image", swallowed},
	{"refuse/image", "refuses without a reason", "accepted an image", refusals(func(_ *adapterv1.ApplyRequest, res *adapterv1.ApplyResponse) error {
		res.Refusals[0].Reason = ""
		return nil
	})},
	{"refuse/image", "refuses with an empty phrase", "does not name", refusals(func(_ *adapterv1.ApplyRequest, res *adapterv1.ApplyResponse) error {
		res.Refusals[0].Reason = "bad request"
		return nil
	})},
	{"refuse/image", "fails the whole call", "keeps the others", refusals(func(*adapterv1.ApplyRequest, *adapterv1.ApplyResponse) error {
		return connect.NewError(connect.CodeInvalidArgument, errors.New("bad image"))
	})},
	{"refuse/image", "refuses all of a call", "refused the good one too", refusals(func(r *adapterv1.ApplyRequest, res *adapterv1.ApplyResponse) error {
		res.Refusals = nil
		for _, a := range r.Attempts {
			res.Refusals = append(res.Refusals, &adapterv1.Refusal{AttemptId: a.AttemptId, Reason: `image "no-such-image" is not here`})
		}
		return nil
	})},
	{"refuse/specification", "accepts any specification", "accepted a specification", swallowed},
	{"refuse/negative", "accepts negative quantities", "accepted a negative", swallowed},
	{"refuse/resource", "accepts any resource", "accepted a resource", swallowed},
	{"refuse/command", "accepts no command", "accepted an empty", swallowed},
	{"refuse/environment", "accepts any environment", "accepted an environment", swallowed},
	{"refuse/name", "accepts any name", "accepted a variable", swallowed},
	{"refuse/path", "accepts any path", "accepted a file", swallowed},
	{"refuse/id", "accepts any ID", "accepted an attempt with the ID", swallowed},
	{"refuse/too-much", "runs what it has no room for", "asks for map", each(func(_ *proxy, a *adapterv1.Attempt) { a.Resources = nil })},
	{"stop/before", "ignores stops of what it does not know", "want", func() lie {
		var mu sync.Mutex // guards known
		known := map[string]bool{}
		return lie{
			apply: func(p *proxy, ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
				mu.Lock()
				for _, a := range r.Attempts {
					known[a.AttemptId] = true
				}
				mu.Unlock()
				return p.DriverServiceHandler.Apply(ctx, r)
			},
			remove: func(p *proxy, ctx context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
				var stop []string
				mu.Lock()
				for _, id := range r.Stop {
					if known[id] {
						stop = append(stop, id)
					}
				}
				mu.Unlock()
				return p.DriverServiceHandler.Remove(ctx, &adapterv1.RemoveRequest{Stop: stop, Forget: r.Forget})
			},
		}
	}},
	{"stop/before", "refuses what was stopped", "stopped before", func() lie {
		return lie{apply: func(_ *proxy, _ context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
			return &adapterv1.ApplyResponse{Refusals: []*adapterv1.Refusal{{AttemptId: r.Attempts[0].AttemptId, Reason: "stopped"}}}, nil
		}}
	}},
	{"stop/before-restart", "keeps stops in memory", "want", func() lie {
		var mu sync.Mutex // guards early
		early := map[string]int{}
		return lie{
			apply: func(p *proxy, ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
				mu.Lock()
				var stop []string
				for _, a := range r.Attempts {
					if early[a.AttemptId] == p.n {
						stop = append(stop, a.AttemptId)
					}
				}
				mu.Unlock()
				if _, err := p.DriverServiceHandler.Remove(ctx, &adapterv1.RemoveRequest{Stop: stop}); err != nil {
					return nil, err
				}
				return p.DriverServiceHandler.Apply(ctx, r)
			},
			remove: func(p *proxy, ctx context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
				mu.Lock()
				for _, id := range r.Stop {
					early[id] = p.n
				}
				mu.Unlock()
				return p.DriverServiceHandler.Remove(ctx, &adapterv1.RemoveRequest{Forget: r.Forget})
			},
		}
	}},
	{"stop/waiting", "does not say what it waits for", "with a message that says what for", func() lie {
		return lie{apply: func(p *proxy, ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
			return p.enqueue(ctx, r, "")
		}}
	}},
	{"stop/running", "calls a stop an exit", `want ["stopped"]`, ends(func(st *adapterv1.Status) { st.Reason = "exit" })},
	{"stop/running", "does not stop", "is not ended within", func() lie {
		return lie{remove: func(p *proxy, ctx context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
			return &adapterv1.RemoveResponse{}, nil
		}}
	}},
	{"stop/unknown", "knows no unknown attempts", "It only notes", func() lie {
		return lie{remove: func(_ *proxy, _ context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
			return nil, connect.NewError(connect.CodeNotFound, errors.New("no such attempt"))
		}}
	}},
	{"stop/graceful", "kills at once", "it must be asked", each(func(_ *proxy, a *adapterv1.Attempt) {
		a.Command = strings.Replace(a.Command, "echo asked; ", "", 1)
	})},
	{"stop/ended", "calls an end a stop", "an end changed", func() lie {
		var mu sync.Mutex // guards stopped
		stopped := map[string]bool{}
		return lie{
			remove: func(p *proxy, ctx context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
				mu.Lock()
				for _, id := range r.Stop {
					stopped[id] = true
				}
				mu.Unlock()
				return p.DriverServiceHandler.Remove(ctx, r)
			},
			status: func(_ int, st *adapterv1.Status) bool {
				mu.Lock()
				defer mu.Unlock()
				if stopped[st.AttemptId] {
					st.Reason = "stopped"
				}
				return true
			},
		}
	}},
	{"forget/ended", "forgets nothing", "want nothing left", func() lie {
		return lie{remove: func(p *proxy, ctx context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
			return p.DriverServiceHandler.Remove(ctx, &adapterv1.RemoveRequest{Stop: r.Stop})
		}}
	}},
	{"forget/running", "ends what it is to forget", "stopped", func() lie {
		return lie{remove: func(p *proxy, ctx context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
			return p.DriverServiceHandler.Remove(ctx, &adapterv1.RemoveRequest{Stop: append(r.Stop, r.Forget...), Forget: r.Forget})
		}}
	}},
	{"ends/codes", "knows only failed or not", "it must be exact", ends(func(st *adapterv1.Status) { st.ExitCode = min(st.ExitCode, 1) })},
	{"ends/codes", "calls every end completed", "a run that completed has exit code 0", ends(func(st *adapterv1.Status) { st.Reason = "completed" })},
	{"ends/codes", "has reasons of its own", "one of the reasons", ends(func(st *adapterv1.Status) { st.Reason = "finished" })},
	{"ends/signal", "has no code for signals", "137", ends(func(st *adapterv1.Status) { st.ExitCode = 9 })},
	{"ends/wall-time", "knows no time limit", "is not ended within", each(func(_ *proxy, a *adapterv1.Attempt) { a.TimeoutSeconds = 0 })},
	{"ends/wall-time", "calls a time limit a stop", `want ["wall_time"]`, ends(func(st *adapterv1.Status) { st.Reason = "stopped" })},
	{"ends/times", "tells when it looked", "is said to have run for", ends(func(st *adapterv1.Status) { st.EndedAt = st.StartedAt })},
	{"ends/times", "tells seconds", "want microseconds", ends(func(st *adapterv1.Status) { st.StartedAt, st.EndedAt = st.StartedAt/1e6, st.EndedAt/1e6 })},
	{"ends/times", "tells a beginning each time anew", "started_at changed", func() lie {
		return lie{status: func(_ int, st *adapterv1.Status) bool {
			if st.StartedAt != 0 {
				st.StartedAt = time.Now().UnixMicro()
				st.EndedAt = max(st.EndedAt, 2*st.StartedAt*min(st.EndedAt, 1)/2)
			}
			return true
		}}
	}},
	{"observe/readers", "has one reader", "is not ended within", func() lie {
		var once sync.Once
		return lie{observe: func(ctx context.Context) error {
			first := false
			once.Do(func() { first = true })
			if !first {
				<-ctx.Done()
			}
			return ctx.Err()
		}}
	}},
	{"observe/slow", "loses an end", "is not ended within", func() lie {
		var lost atomic.Value // the attempt; for every reader, of whom the first says so
		return lie{status: func(_ int, st *adapterv1.Status) bool {
			return st.Phase != adapterv1.Phase_PHASE_ENDED || !lost.CompareAndSwap(nil, st.AttemptId) && lost.Load() != st.AttemptId
		}}
	}},
	{"observe/repeats", "tells changes only", "is not ", func() lie {
		return lie{status: func(n int, _ *adapterv1.Status) bool { return n > 2 }}
	}},
	{"observe/repeats", "goes back", "its phase went back", func() lie {
		var streams atomic.Int64
		return lie{
			observe: func(context.Context) error {
				streams.Add(1)
				return nil
			},
			status: func(_ int, st *adapterv1.Status) bool {
				if streams.Load() > 1 && st.Phase == adapterv1.Phase_PHASE_RUNNING {
					st.Phase, st.StartedAt = adapterv1.Phase_PHASE_PENDING, 0
				}
				return true
			},
		}
	}},
	{"observe/readers", "ends Observe", "Observe ended by itself", func() lie {
		return lie{observe: func(context.Context) error { return connect.NewError(connect.CodeUnavailable, errors.New("not now")) }}
	}},
	{"runs/environment", "trims values", "byte for byte", each(func(_ *proxy, a *adapterv1.Attempt) {
		for k, v := range a.Env {
			a.Env[k] = strings.TrimSpace(v)
		}
	})},
	{"runs/files", "makes no file executable", "did not arrive", each(func(_ *proxy, a *adapterv1.Attempt) {
		for _, f := range a.Files {
			f.Executable = false
		}
	})},
	{"runs/files", "takes files for text", "did not arrive", each(func(_ *proxy, a *adapterv1.Attempt) {
		for _, f := range a.Files {
			f.Content = bytes.ToValidUTF8(f.Content, []byte("?"))
		}
	})},
	{"logs/offsets", "lies about offsets", "answers with bytes at", reads(func(_ *adapterv1.ReadLogRequest, res *adapterv1.ReadLogResponse) { res.Offset++ })},
	{"logs/offsets", "says end too early", "says end after", reads(func(r *adapterv1.ReadLogRequest, res *adapterv1.ReadLogResponse) { res.End = res.End || r.Limit < 100 })},
	{"logs/offsets", "knows no limit", "with limit", func() lie {
		return lie{read: func(p *proxy, ctx context.Context, r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
			r.Limit = 0
			return p.DriverServiceHandler.ReadLog(ctx, r)
		}}
	}},
	{"logs/offsets", "reads from the beginning", "want the first bytes of", func() lie {
		return lie{read: func(p *proxy, ctx context.Context, r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
			if r.Limit != 524288 {
				return p.DriverServiceHandler.ReadLog(ctx, r)
			}
			res, err := p.DriverServiceHandler.ReadLog(ctx, &adapterv1.ReadLogRequest{AttemptId: r.AttemptId, Limit: r.Limit})
			if err == nil {
				res.Offset = r.Offset
			}
			return res, err
		}}
	}},
	{"logs/offsets", "counts no bytes", "log_bytes", ends(func(st *adapterv1.Status) { st.LogBytes = 0 })},
	{"logs/offsets", "brings half a log with a status", "log_inline", ends(func(st *adapterv1.Status) { st.Log, st.LogInline = []byte("line 0\n"), true })},
	{"logs/bytes", "takes logs for text", "byte for byte", reads(func(_ *adapterv1.ReadLogRequest, res *adapterv1.ReadLogResponse) {
		res.Data = bytes.ToValidUTF8(res.Data, []byte("?"))
	})},
	{"logs/large", "loses a byte", "they differ at", reads(func(r *adapterv1.ReadLogRequest, res *adapterv1.ReadLogResponse) {
		if r.Offset > 0 && len(res.Data) > 2 {
			res.Data[1]++
		}
	})},
	{"logs/both", "keeps one output", "its error output", each(func(_ *proxy, a *adapterv1.Attempt) { a.Command = "{ " + a.Command + "; } 2>/dev/null" })},
	{"logs/follow", "does not wait", "want it to wait", func() lie {
		return lie{read: func(p *proxy, ctx context.Context, r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
			r.WaitMilliseconds = 0
			return p.DriverServiceHandler.ReadLog(ctx, r)
		}}
	}},
	{"logs/follow", "waits to the end of a wait", "not when the wait", func() lie {
		return lie{read: func(p *proxy, ctx context.Context, r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
			if r.WaitMilliseconds > 5000 {
				<-time.After(time.Duration(r.WaitMilliseconds) * time.Millisecond)
			}
			return p.DriverServiceHandler.ReadLog(ctx, r)
		}}
	}},
	{"logs/end", "never says end", "never says end", reads(func(_ *adapterv1.ReadLogRequest, res *adapterv1.ReadLogResponse) { res.End = false })},
	{"logs/end", "waits behind the end", "must not wait", func() lie {
		return lie{read: func(p *proxy, ctx context.Context, r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
			if r.Offset > 0 {
				<-time.After(time.Duration(r.WaitMilliseconds) * time.Millisecond)
			}
			return p.DriverServiceHandler.ReadLog(ctx, r)
		}}
	}},
	{"logs/unknown", "has logs of what it does not know", "which is unknown", func() lie {
		return lie{read: func(*proxy, context.Context, *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
			return &adapterv1.ReadLogResponse{End: true}, nil
		}}
	}},
	{"logs/canceled", "waits for nobody", "with a deadline of 500 ms", func() lie {
		return lie{read: func(p *proxy, ctx context.Context, r *adapterv1.ReadLogRequest) (*adapterv1.ReadLogResponse, error) {
			return p.DriverServiceHandler.ReadLog(context.WithoutCancel(ctx), r)
		}}
	}},
	{"kill/after-apply", "accepts in memory", "is not ", later},
	{"kill/mid-apply", "forgets on a restart", "ran ", otherName},
	{"kill/mid-run", "forgets on a restart", "is not ", otherName},
	{"kill/ended-meanwhile", "forgets on a restart", "is not ", otherName},
	{"kill/two-at-once", "knows only its own", "ran 2 times", otherName},
	{"end/in-order", "ends its work with itself", "want it to stay", func() lie {
		var mu sync.Mutex // guards ids
		var ids []string
		return lie{
			apply: func(p *proxy, ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
				mu.Lock()
				defer mu.Unlock()
				for _, a := range r.Attempts {
					ids = append(ids, a.AttemptId)
				}
				return p.DriverServiceHandler.Apply(ctx, r)
			},
			end: func(p *proxy) {
				mu.Lock()
				defer mu.Unlock()
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				_, _ = p.DriverServiceHandler.Remove(ctx, &adapterv1.RemoveRequest{Stop: ids}) // it may have ended
			},
		}
	}},
	{"broken/trouble", "knows no trouble", "does not tell trouble", untroubled},
	{"broken/trouble", "says only that there is some", "want a sentence", watches(func(_ int, m *adapterv1.WatchResponse) {
		if m.Trouble != "" {
			m.Trouble = "error"
		}
	})},
	{"broken/trouble", "says more than it can know", "carries more", watches(func(_ int, m *adapterv1.WatchResponse) {
		m.Inventory = &adapterv1.Inventory{AiCenterId: "processes"}
	})},
	{"broken/calls", "accepts what it cannot keep", "cut off succeeded", func() lie {
		return lie{apply: func(p *proxy, ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
			res, err := p.DriverServiceHandler.Apply(ctx, r)
			if err != nil {
				return &adapterv1.ApplyResponse{}, nil
			}
			return res, nil
		}}
	}},
	{"broken/calls", "refuses for good what may pass", "cut off refused", func() lie {
		return lie{apply: func(p *proxy, ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
			res, err := p.DriverServiceHandler.Apply(ctx, r)
			if err != nil {
				return &adapterv1.ApplyResponse{Refusals: []*adapterv1.Refusal{{AttemptId: r.Attempts[0].AttemptId, Reason: err.Error()}}}, nil
			}
			return res, nil
		}}
	}},
	{"broken/start", "knows no trouble", "does not tell trouble", untroubled},
	{"deleted/lost", "calls a loss an end in good order", `want ["lost"]`, ends(func(st *adapterv1.Status) { st.Reason, st.ExitCode = "completed", 0 })},
	{"suspend/running", "tells of no suspension", "is not suspended within", suspends(func(_ *proxy, st *adapterv1.Status) { st.Phase = adapterv1.Phase_PHASE_RUNNING })},
	{"suspend/running", "turns back what is suspended twice", "want it to stay", func() lie {
		var mu sync.Mutex // guards asked
		asked := map[string]bool{}
		return lie{suspend: func(p *proxy, ctx context.Context, r *adapterv1.SuspendRequest) (*adapterv1.SuspendResponse, error) {
			mu.Lock()
			defer mu.Unlock()
			for _, id := range slices.Compact(r.Suspend) {
				if asked[id] {
					r = &adapterv1.SuspendRequest{Resume: []string{id}}
				}
				asked[id] = true
			}
			return p.DriverServiceHandler.Suspend(ctx, r)
		}}
	}},
	{"suspend/still", "says so and soon goes on", "must stand still", func() lie {
		var mu sync.Mutex // guards asked
		asked := map[string]bool{}
		return lie{
			suspend: func(p *proxy, ctx context.Context, r *adapterv1.SuspendRequest) (*adapterv1.SuspendResponse, error) {
				mu.Lock()
				defer mu.Unlock()
				for _, id := range r.Suspend {
					asked[id] = true
					time.AfterFunc(300*time.Millisecond, func() {
						_, _ = p.DriverServiceHandler.Suspend(context.WithoutCancel(ctx), &adapterv1.SuspendRequest{Resume: []string{id}}) // it may have ended
					})
				}
				return p.DriverServiceHandler.Suspend(ctx, r)
			},
			status: func(_ int, st *adapterv1.Status) bool {
				mu.Lock()
				defer mu.Unlock()
				if asked[st.AttemptId] && st.Phase == adapterv1.Phase_PHASE_RUNNING {
					st.Phase = adapterv1.Phase_PHASE_SUSPENDED
				}
				return true
			},
		}
	}},
	{"suspend/others", "does not forgive what it does not know", "must succeed whatever", func() lie {
		return lie{suspend: func(p *proxy, ctx context.Context, r *adapterv1.SuspendRequest) (*adapterv1.SuspendResponse, error) {
			if len(r.Suspend) > 1 {
				return nil, connect.NewError(connect.CodeNotFound, errors.New("not known here"))
			}
			return p.DriverServiceHandler.Suspend(ctx, r)
		}}
	}},
	{"suspend/stop", "cannot stop what stands still", "is not ended within", func() lie {
		var mu sync.Mutex // guards still
		still := map[string]bool{}
		return lie{
			suspend: func(p *proxy, ctx context.Context, r *adapterv1.SuspendRequest) (*adapterv1.SuspendResponse, error) {
				mu.Lock()
				defer mu.Unlock()
				for _, id := range r.Suspend {
					still[id] = true
				}
				return p.DriverServiceHandler.Suspend(ctx, r)
			},
			remove: func(p *proxy, ctx context.Context, r *adapterv1.RemoveRequest) (*adapterv1.RemoveResponse, error) {
				mu.Lock()
				defer mu.Unlock()
				for _, id := range r.Stop {
					if still[id] {
						return &adapterv1.RemoveResponse{}, nil
					}
				}
				return p.DriverServiceHandler.Remove(ctx, r)
			},
		}
	}},
	{"suspend/restart", "forgets that it stands still", "is not suspended within", suspends(func(p *proxy, st *adapterv1.Status) {
		if p.n > 1 {
			st.Phase = adapterv1.Phase_PHASE_RUNNING
		}
	})},
	{"exec/streams", "mixes the outputs", "all streams must arrive", func() lie {
		return lie{execTell: func(m *adapterv1.ExecResponse) bool {
			m.Output, m.ErrorOutput = append(m.Output, m.ErrorOutput...), nil
			return true
		}}
	}},
	{"exec/streams", "takes input for text", "all streams must arrive", func() lie {
		return lie{execAsk: func(m *adapterv1.ExecRequest) { m.Input = bytes.ToValidUTF8(m.Input, []byte("?")) }}
	}},
	{"exec/codes", "knows only failed or not", "128 and the signal", func() lie {
		return lie{execTell: func(m *adapterv1.ExecResponse) bool { m.ExitCode = min(m.ExitCode, 1); return true }}
	}},
	{"exec/canceled", "lets commands run on", "closing the stream must end it", func() lie {
		return lie{execOpen: func(ctx context.Context, _ *adapterv1.ExecStart) (context.Context, error) {
			return context.WithoutCancel(ctx), nil
		}}
	}},
	{"exec/ends", "says that what was killed ended well", "exit code 0", func() lie {
		return lie{execTell: func(m *adapterv1.ExecResponse) bool { m.ExitCode = 0; return true }}
	}},
	{"exec/unknown", "knows no attempt it does not know", "want [not_found]", func() lie {
		return lie{execOpen: func(context.Context, *adapterv1.ExecStart) (context.Context, error) {
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("no such process"))
		}}
	}},
}
