package monitor

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/samples"
)

// Series of a center's measurements are stored at most so often: a driver may
// send them faster than anyone looks, and those of nodes are many.
const (
	centerEvery = 5 * time.Second
	nodesEvery  = 15 * time.Second
	runsEvery   = 5 * time.Second
	// early is how much sooner than that one may come: periods are not exact.
	early = 500 * time.Millisecond
)

// forgetAfter is when a center that sends nothing is forgotten.
const forgetAfter = time.Hour

// Intake takes the measurements of centers and makes samples of them. A
// [Collector] stores those: [Intake.Gather] hands them over, and
// [Intake.GatherRuns] those of runs. It is safe for concurrent use.
type Intake struct {
	// Owners says whose runs are; nil: nobody does, and none has figures. It is
	// set before the first call.
	Owners Owners

	now func() time.Time
	log *slog.Logger

	gathering sync.Mutex        // guards owners
	owners    map[string]*owned // by attempt, of those measured lately

	mu      sync.Mutex // guards the fields below
	centers map[string]*taken
	waiting []samples.Sample
	runs    map[string]runTaken // by attempt
	dropped int                 // did not fit into waiting or runs
}

// taken is what was last taken from a center.
type taken struct {
	center, nodes, runs  time.Time
	refused, refusedRuns string // what the log last said
}

// NewIntake returns an intake that holds nothing.
func NewIntake(now func() time.Time, log *slog.Logger) *Intake {
	return &Intake{now: now, log: log.With("component", "monitor"), centers: map[string]*taken{}, owners: map[string]*owned{}, runs: map[string]runTaken{}}
}

// Take takes what a center measured and returns what of it was refused; the
// log says so once. It never waits. What comes sooner than anyone looks is
// passed over. m is not retained.
func (in *Intake) Take(center string, m *Measurement) []Refusal {
	now := in.now()
	in.mu.Lock()
	defer in.mu.Unlock()
	t := in.centers[center]
	if t == nil {
		if len(in.centers) > 0 && len(in.centers)%1024 == 0 {
			in.forget(now)
		}
		t = &taken{}
		in.centers[center] = t
	}
	due := func(last time.Time, every time.Duration) bool {
		since := now.Sub(last)
		return since < 0 || since >= every-early
	}
	few, nodes := due(t.center, centerEvery), len(m.Nodes) > 0 && due(t.nodes, nodesEvery)
	runs := len(m.Runs) > 0 && due(t.runs, runsEvery)
	if !few && !nodes && !runs {
		return nil
	}
	part := &Measurement{At: m.At}
	if few {
		t.center, part.Storage, part.Network, part.Paths = now, m.Storage, m.Network, m.Paths
	}
	if nodes {
		t.nodes, part.Nodes = now, m.Nodes
	}
	if runs {
		t.runs, part.Runs = now, m.Runs
	}
	got, used, refused := normalize(center, part, now)
	if room := samples.MaxBatch - len(in.waiting); len(got) > room {
		in.dropped += len(got) - room
		got = got[:room]
	}
	in.waiting = append(in.waiting, got...)
	in.holdRuns(center, used, now)
	// Runs are in some messages only.
	others := slices.DeleteFunc(slices.Clone(refused), Refusal.ofRuns)
	in.tell(center, &t.refused, others, few && nodes == (len(m.Nodes) > 0))
	in.tell(center, &t.refusedRuns, refused[len(others):], runs)
	return refused
}

// tell logs what is refused when that is not what it said last; whole says that
// all was looked at.
func (in *Intake) tell(center string, said *string, refused []Refusal, whole bool) {
	var fields, problems []string
	for _, r := range refused {
		if len(fields) == 0 || fields[len(fields)-1] != r.Field {
			fields = append(fields, r.Field)
			problems = append(problems, r.Field+" "+r.Problem)
		}
	}
	text := strings.Join(fields, " ")
	switch {
	case text == *said || text == "" && !whole:
	case text == "":
		*said = ""
		in.log.Info("figures of a center are right again", "ai_center_id", center)
	default:
		*said = text
		in.log.Warn("figures of a center refused", "ai_center_id", center, "figures", len(refused), "problems", strings.Join(problems[:min(len(problems), 8)], "; "))
	}
}

// forget drops centers of which nothing was heard for long.
func (in *Intake) forget(now time.Time) {
	for id, t := range in.centers {
		if now.Sub(t.center) > forgetAfter && now.Sub(t.nodes) > forgetAfter && now.Sub(t.runs) > forgetAfter {
			delete(in.centers, id)
		}
	}
}

// Gather returns what was taken since the call before.
func (in *Intake) Gather(context.Context) ([]samples.Sample, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	out, dropped := in.waiting, in.dropped
	in.waiting, in.dropped = nil, 0
	if dropped > 0 {
		in.log.Warn("more was measured than is stored", "samples_dropped", dropped)
	}
	return out, nil
}
