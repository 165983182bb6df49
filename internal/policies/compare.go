package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/jobs"
)

// Limits of comparisons.
const (
	minArms = 2
	maxArms = 8
	// enough jobs in an arm for the normal approximation.
	enough = 30
	// maxCompared jobs of a test are looked at, the latest.
	maxCompared = 20_000
)

// Arm of a comparison.
type Arm struct {
	Name    string    `json:"name"`
	Version int64     `json:"version"`
	Percent int64     `json:"percent"`
	Result  *ArmStats `json:"-"` // nil: not asked for
}

// ArmStats are the results of an arm.
type ArmStats struct {
	Jobs     int64 `json:"jobs"`
	Ended    int64 `json:"ended"`
	Failed   int64 `json:"failed"`
	Waiting  Mean  `json:"waiting"`  // seconds
	Duration Mean  `json:"duration"` // seconds
	Cost     Mean  `json:"cost"`     // fen
	Energy   Mean  `json:"energy"`   // joules
}

// Mean is a mean over jobs with its standard error.
type Mean struct {
	Jobs  int64   `json:"jobs"`
	Mean  float64 `json:"mean"`
	Error float64 `json:"error"`
}

// Test is a comparison of versions.
type Test struct {
	ID, PolicyID       string
	Arms               []Arm
	Running            bool
	StartedAt, EndedAt time.Time
	StartedBy, EndedBy string
	Winner, Reason     string
	Comparisons        []Comparison

	results string
}

// Comparison of an arm with the first one in one figure.
type Comparison struct {
	Arm, Figure           string
	Difference, Low, High float64
	Clear                 bool
	Note                  string
}

func readTests(ctx context.Context, tx *db.Tx, rest string, args ...any) (out []Test, err error) {
	err = tx.Query(ctx, `SELECT test_id, policy_id, running, arms, started_at, started_by, ended_at, ended_by, winner, reason, results FROM policy_tests `+rest, args, func(row db.Row) error {
		var t Test
		var arms string
		var started, ended int64
		if err := row.Scan(&t.ID, &t.PolicyID, &t.Running, &arms, &started, &t.StartedBy, &ended, &t.EndedBy, &t.Winner, &t.Reason, &t.results); err != nil {
			return err
		}
		t.StartedAt, t.EndedAt = db.Time(started), db.Time(ended)
		out = append(out, t)
		return json.Unmarshal([]byte(arms), &out[len(out)-1].Arms)
	})
	if err != nil {
		return nil, fmt.Errorf("read comparisons: %w", err)
	}
	return out, nil
}

func getTest(ctx context.Context, tx *db.Tx, id string) (*Test, error) {
	rows, err := readTests(ctx, tx, `WHERE test_id = $1`, id)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fault.New(fault.NotFound, "there is no comparison %s", clip(id))
	}
	return &rows[0], nil
}

// StartTest begins a comparison of versions of a policy in force; the same
// again is the one under way. It returns fault.Invalid, fault.NotFound and
// fault.Conflict.
func (s *Service) StartTest(ctx context.Context, policyID string, arms []Arm, reason string) (out Test, err error) {
	arms = slices.Clone(arms)
	err = reasonCheck("reason", reason, func(c *core.Check) {
		c.ID("policy_id", policyID)
		if len(arms) < minArms || len(arms) > maxArms {
			c.Add("arms", "must be %d to %d, got %d", minArms, maxArms, len(arms))
			return
		}
		var sum int64
		for i := range arms {
			a, at := &arms[i], fmt.Sprintf("arms[%d].", i)
			if a.Name == "" {
				a.Name = string(rune('a' + i))
			}
			if c.ID(at+"name", a.Name); len(a.Name) > 16 {
				c.Add(at+"name", "must be at most 16 characters, got %d", len(a.Name))
			}
			if slices.ContainsFunc(arms[:i], func(o Arm) bool { return o.Name == a.Name }) {
				c.Add(at+"name", "%q is given twice", clip(a.Name))
			}
			c.Range(at+"version", a.Version, 1, 1<<40)
			c.Range(at+"percent", a.Percent, 1, 99)
			if a.Percent >= 1 && a.Percent <= 99 {
				sum += a.Percent
			}
		}
		if sum != 100 {
			c.Add("arms", "must have 100 percent in all, got %d", sum)
		}
	})
	if err != nil {
		return out, err
	}
	text := toJSON(arms)
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		h, err := getHead(ctx, tx, policyID)
		if err != nil {
			return err
		}
		switch {
		case h == nil:
			return noPolicy(policyID)
		case h.issued == 0:
			return fault.New(fault.Conflict, "policy %s is not in force; issue a version first: what it matches is compared", policyID)
		case h.test != "":
			t, err := getTest(ctx, tx, h.test)
			if err != nil {
				return err
			}
			if toJSON(t.Arms) != text {
				return fault.New(fault.Conflict, "versions of policy %s are compared already, in test %s; end it first", policyID, h.test)
			}
			out = *t // asked again
			return s.ids.AuditTx(ctx, tx, policyID)
		}
		for i, a := range arms {
			v, err := getVersion(ctx, tx, policyID, a.Version)
			if err != nil {
				return err
			}
			if v == nil {
				return noVersion(policyID, a.Version)
			}
			k, problems := compile(v.Document, a.Version)
			at := fmt.Sprintf("arms[%d].", i)
			if err := invalid(at, problems); err != nil {
				return err
			}
			if err := s.errorsOf(ctx, tx, k, at); err != nil {
				return err
			}
		}
		out = Test{ID: core.NewID("ptest"), PolicyID: policyID, Arms: arms, Running: true, StartedAt: tx.Now, StartedBy: core.CallerFrom(ctx).UserID, Reason: reason}
		err = tx.Insert(ctx, "policy_tests", []string{"test_id", "policy_id", "running", "arms", "started_at", "started_by", "ended_at", "ended_by", "winner", "reason", "results"},
			[][]any{{out.ID, policyID, true, text, db.Micros(tx.Now), out.StartedBy, int64(0), "", "", reason, ""}})
		if err != nil {
			return fmt.Errorf("store comparison: %w", err)
		}
		h.test = out.ID
		if err := writeHead(ctx, tx, h); err != nil {
			return err
		}
		if err := event(ctx, tx, policyID, "test started", h.issued, "", reason); err != nil {
			return err
		}
		if err := s.ids.AuditTx(ctx, tx, policyID); err != nil {
			return err
		}
		return s.bump(ctx, tx)
	})
	return out, err
}

// GetTest returns a comparison with its results. It returns fault.Invalid and
// fault.NotFound.
func (s *Service) GetTest(ctx context.Context, id string) (Test, error) {
	if err := checkTestID(id); err != nil {
		return Test{}, err
	}
	var t *Test
	var arms map[string]string
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		if t, err = getTest(ctx, tx, id); err != nil || t.results != "" {
			return err
		}
		arms, err = testJobs(ctx, tx, id)
		return err
	})
	if err != nil {
		return Test{}, err
	}
	if t.results != "" {
		return *t, t.recall()
	}
	return *t, s.measure(ctx, t, arms)
}

func checkTestID(id string) error {
	var c core.Check
	c.Text("test_id", id, true, 32, 0)
	return c.Err()
}

// testJobs returns the arms of a test's latest jobs.
func testJobs(ctx context.Context, tx *db.Tx, id string) (map[string]string, error) {
	out := map[string]string{}
	err := tx.Query(ctx, `SELECT job_id, arm FROM policy_test_jobs WHERE test_id = $1 ORDER BY job_id DESC LIMIT $2`, []any{id, int64(maxCompared)}, func(row db.Row) error {
		var job, arm string
		err := row.Scan(&job, &arm)
		out[job] = arm
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read jobs of a comparison: %w", err)
	}
	return out, nil
}

// kept is how the results of a test that ended are stored.
type kept struct {
	Arms []*ArmStats `json:"arms"`
}

func (t *Test) recall() error {
	var k kept
	if err := json.Unmarshal([]byte(t.results), &k); err != nil || len(k.Arms) != len(t.Arms) {
		return fmt.Errorf("results of comparison %s: %w", t.ID, err)
	}
	for i := range t.Arms {
		t.Arms[i].Result = k.Arms[i]
	}
	t.compare()
	return nil
}

// measure works out the results from the records of the jobs.
func (s *Service) measure(ctx context.Context, t *Test, arms map[string]string) error {
	outcomes, err := s.jobs.Outcomes(ctx, slices.Sorted(keys(arms)))
	if err != nil {
		return err
	}
	for i := range t.Arms {
		var of []jobs.Outcome
		for _, o := range outcomes {
			if arms[o.JobID] == t.Arms[i].Name {
				of = append(of, o)
			}
		}
		t.Arms[i].Result = statsOf(of)
	}
	t.compare()
	return nil
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func statsOf(of []jobs.Outcome) *ArmStats {
	out := &ArmStats{Jobs: int64(len(of))}
	var waiting, duration, cost, energy []float64
	for _, o := range of {
		if o.Ended {
			out.Ended++
			cost = append(cost, o.CostFen)
			if o.EnergyKnown {
				energy = append(energy, o.EnergyJoules)
			}
			if o.Failed {
				out.Failed++
			}
			if o.DurationKnown {
				duration = append(duration, o.Duration.Seconds())
			}
		}
		if o.WaitingKnown {
			waiting = append(waiting, o.Waiting.Seconds())
		}
	}
	out.Waiting, out.Duration, out.Cost, out.Energy = meanOf(waiting), meanOf(duration), meanOf(cost), meanOf(energy)
	return out
}

// meanOf is the mean with its standard error, from the sample's deviation.
func meanOf(list []float64) Mean {
	n := float64(len(list))
	if n == 0 {
		return Mean{}
	}
	var sum, squares float64
	for _, v := range list {
		sum += v
	}
	mean := sum / n
	for _, v := range list {
		squares += (v - mean) * (v - mean)
	}
	out := Mean{Jobs: int64(len(list)), Mean: mean}
	if n > 1 {
		out.Error = math.Sqrt(squares / (n - 1) / n)
	}
	return out
}

// compare sets every arm beside the first.
func (t *Test) compare() {
	t.Comparisons = nil
	first := t.Arms[0].Result
	for _, a := range t.Arms[1:] {
		r := a.Result
		for _, f := range []struct {
			name string
			a, b Mean
		}{
			{"waiting_seconds", first.Waiting, r.Waiting}, {"duration_seconds", first.Duration, r.Duration}, {"cost_fen", first.Cost, r.Cost},
			{"energy_joules", first.Energy, r.Energy}, {"failed_share", share(first), share(r)},
		} {
			t.Comparisons = append(t.Comparisons, against(a.Name, f.name, f.a, f.b))
		}
	}
}

// share is that of failed jobs among those that ended.
func share(r *ArmStats) Mean {
	if r.Ended == 0 {
		return Mean{}
	}
	n := float64(r.Ended)
	p := float64(r.Failed) / n
	return Mean{Jobs: r.Ended, Mean: p, Error: math.Sqrt(p * (1 - p) / n)}
}

// against is arm minus first with the 95 % interval of the normal
// approximation.
func against(arm, figure string, first, b Mean) Comparison {
	out := Comparison{Arm: arm, Figure: figure}
	if first.Jobs == 0 || b.Jobs == 0 {
		out.Note = "not known yet"
		return out
	}
	const z = 1.959964
	d, e := b.Mean-first.Mean, z*math.Hypot(first.Error, b.Error)
	out.Difference, out.Low, out.High = d, d-e, d+e
	switch {
	case first.Jobs < enough || b.Jobs < enough:
		out.Note = fmt.Sprintf("too few jobs to tell: %d and %d, at least %d each wanted", first.Jobs, b.Jobs, enough)
	case out.Low <= 0 && out.High >= 0:
		out.Note = "no clear difference: the interval includes 0"
	default:
		out.Clear = true
		out.Note = "a clear difference: the interval leaves out 0"
	}
	return out
}

// Tests returns the comparisons, of one policy if it is named, latest first,
// without results. It returns fault.Invalid.
func (s *Service) Tests(ctx context.Context, policyID string) (out []Test, err error) {
	rest, args := `ORDER BY test_id DESC LIMIT $1`, []any{int64(maxListed)}
	if policyID != "" {
		if err := checkIDs("policy_id", policyID, "", 0); err != nil {
			return nil, err
		}
		rest, args = `WHERE policy_id = $2 `+rest, append(args, policyID)
	}
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		out, err = readTests(ctx, tx, rest, args...)
		return err
	})
	return out, err
}

// EndTest ends a comparison, keeps its results and issues the winner, if one
// is named; one that ended stays as it is. It returns fault.Invalid,
// fault.NotFound and fault.Conflict.
func (s *Service) EndTest(ctx context.Context, id, winner, reason string) (Test, error) {
	if err := reasonCheck("reason", reason, func(c *core.Check) { c.Text("test_id", id, true, 32, 0); c.Text("winner", winner, false, 16, 0) }); err != nil {
		return Test{}, err
	}
	t, err := s.GetTest(ctx, id) // its results, as they are now
	if err != nil {
		return Test{}, err
	}
	i := slices.IndexFunc(t.Arms, func(a Arm) bool { return a.Name == winner })
	if winner != "" && i < 0 {
		return Test{}, fault.Fields(fault.Field{Path: "winner", Problem: fmt.Sprintf("the comparison has no arm %q", clip(winner))})
	}
	if !t.Running && t.Winner != winner {
		return Test{}, fault.New(fault.Conflict, "comparison %s ended already, with %q as the winner", id, t.Winner)
	}
	k := kept{}
	for _, a := range t.Arms {
		k.Arms = append(k.Arms, a.Result)
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		now, err := getTest(ctx, tx, id)
		if err != nil {
			return err
		}
		if !now.Running {
			if now.Winner != winner {
				return fault.New(fault.Conflict, "comparison %s ended already, with %q as the winner", id, now.Winner)
			}
			return s.ids.AuditTx(ctx, tx, t.PolicyID)
		}
		h, err := getHead(ctx, tx, t.PolicyID)
		if err != nil {
			return err
		}
		if h == nil || h.test != id {
			return fmt.Errorf("comparison %s runs and policy %s does not know it", id, t.PolicyID)
		}
		if _, err := tx.Exec(ctx, `UPDATE policy_tests SET running = FALSE, ended_at = $2, ended_by = $3, winner = $4, results = $5 WHERE test_id = $1`,
			id, db.Micros(tx.Now), core.CallerFrom(ctx).UserID, winner, toJSON(k)); err != nil {
			return err
		}
		h.test = ""
		if err := writeHead(ctx, tx, h); err != nil {
			return err
		}
		if err := event(ctx, tx, t.PolicyID, "test ended", h.issued, "", reason); err != nil {
			return err
		}
		if winner != "" {
			scope, err := scopeFrom(h.scope)
			if err != nil {
				return fmt.Errorf("scope of policy %s: %w", h.id, err)
			}
			if err := s.issueTx(ctx, tx, h, t.Arms[i].Version, &scope, "issued", reason); err != nil {
				return err
			}
		}
		if err := s.ids.AuditTx(ctx, tx, t.PolicyID); err != nil {
			return err
		}
		return s.bump(ctx, tx)
	})
	if err != nil {
		return Test{}, err
	}
	return s.GetTest(ctx, id)
}
