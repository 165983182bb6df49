package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// maxWeight of a policy in a set given by users.
const maxWeight = 1000

// CheckWeights reports what is wrong with a job's own weights; nil for none.
func (s *Service) CheckWeights(weights map[string]int32) error {
	if len(weights) == 0 {
		return nil
	}
	_, err := setOf("own", weights)
	return err
}

// setOf makes a policy set of weights by policy ID.
func setOf(id string, weights map[string]int32) (*place.Set, error) {
	list := make([]place.Weight, 0, len(weights))
	for _, p := range place.Policies() { // in the engine's order; all are shown, unnamed ones with weight 0
		list = append(list, place.Weight{Policy: p.ID, Weight: int64(weights[p.ID])})
	}
	for name, w := range weights {
		if _, ok := place.PolicyByID(name); !ok {
			return nil, fault.New(fault.Invalid, "there is no policy %q; see yunhe policy list", name)
		}
		if w < 0 || w > maxWeight {
			return nil, fault.New(fault.Invalid, "the weight of %s must be between 0 and %d, got %d", name, maxWeight, w)
		}
	}
	return place.NewSet(id, place.Weighted, list)
}

// ownSet is a job's own set; nil if it has none. Weights were checked when
// the job was submitted.
func ownSet(weights map[string]int32) *place.Set {
	if len(weights) == 0 {
		return nil
	}
	set, err := setOf("job", weights)
	if err != nil {
		return nil
	}
	return set
}

// PolicySet is the platform's weights.
type PolicySet struct {
	Preset  string
	Weights map[string]int32
	Updated time.Time
}

func presetWeights(p *place.Set) map[string]int32 {
	out := map[string]int32{}
	for _, u := range p.Uses {
		out[u.Policy.ID] = int32(u.Weight)
	}
	return out
}

// GetPolicySet returns the platform's weights.
func (s *Service) GetPolicySet(ctx context.Context) (PolicySet, error) {
	def := place.Presets()[0]
	out := PolicySet{Preset: def.ID, Weights: presetWeights(def)}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		var preset, weights string
		var at int64
		found, err := tx.Get(ctx, `SELECT preset, weights, updated_at FROM policy_set WHERE one = 1`, nil, &preset, &weights, &at)
		if err != nil || !found {
			return err
		}
		out = PolicySet{Preset: preset, Updated: db.Time(at)}
		return json.Unmarshal([]byte(weights), &out.Weights)
	})
	return out, err
}

// SetPolicySet replaces the platform's weights: those of a preset, or own ones.
func (s *Service) SetPolicySet(ctx context.Context, preset string, weights map[string]int32) (PolicySet, error) {
	if preset != "" {
		p, ok := place.Preset(preset)
		if !ok {
			return PolicySet{}, fault.Fields(fault.Field{Path: "policy_set.preset", Problem: fmt.Sprintf("there is no preset %q", preset)})
		}
		if len(weights) > 0 {
			return PolicySet{}, fault.Fields(fault.Field{Path: "policy_set.weights", Problem: "must be empty when a preset is named"})
		}
		weights = presetWeights(p)
	} else if _, err := setOf("platform", weights); err != nil {
		return PolicySet{}, fault.Fields(fault.Field{Path: "policy_set.weights", Problem: err.Error()})
	}
	b, err := json.Marshal(weights)
	if err != nil {
		return PolicySet{}, fmt.Errorf("encode weights: %w", err)
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO policy_set (one, preset, weights, updated_at) VALUES (1, $1, $2, $3)
			ON CONFLICT (one) DO UPDATE SET preset = $1, weights = $2, updated_at = $3`, preset, string(b), db.Micros(tx.Now))
		return err
	})
	if err != nil {
		return PolicySet{}, err
	}
	s.mu.Lock()
	s.set = nil
	s.mu.Unlock()
	return s.GetPolicySet(ctx)
}

// setFresh is how long the set read is used: another process may change it.
const setFresh = time.Second

func (s *Service) policySet(ctx context.Context) (*place.Set, error) {
	s.mu.Lock()
	set, at := s.set, s.setAt
	s.mu.Unlock()
	if set != nil && time.Since(at) < setFresh {
		return set, nil
	}
	ps, err := s.GetPolicySet(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the policy set: %w", err)
	}
	name := ps.Preset
	if name == "" {
		name = "platform"
	}
	if set, err = setOf(name, ps.Weights); err != nil {
		return nil, err
	}
	if preset, ok := place.Preset(ps.Preset); ok {
		set.Evaluator = preset.Evaluator
	}
	s.mu.Lock()
	s.set, s.setAt = set, time.Now()
	s.mu.Unlock()
	return set, nil
}

// Score scores a center under one policy for a task of a job, or for one
// replica of the smallest specification if jobID is "". It returns
// fault.NotFound for an unknown policy, center or job, and fault.Conflict
// with the reasons if the center cannot run it.
func (s *Service) Score(ctx context.Context, policyID, centerID, jobID string) (int, error) {
	if _, ok := place.PolicyByID(policyID); !ok {
		return 0, fault.New(fault.NotFound, "there is no policy %q", clip(policyID))
	}
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	if centerOf(snap, centerID) == nil {
		return 0, fault.New(fault.NotFound, "there is no center %q", clip(centerID))
	}
	t := place.Task{ID: "0", Replicas: 1, Kind: "cpu", RunSeconds: place.Known(3600)}
	if jobID != "" {
		if t, err = s.src.FirstTask(ctx, jobID); err != nil {
			return 0, err
		}
	} else if t.Spec = smallest(snap); t.Spec == "" {
		return 0, fault.New(fault.NotFound, "there is no resource specification to score with")
	}
	t.Replicas, t.Indices = 1, nil
	w, ok := fill(&Item{Work: place.Work{ID: "score", Tasks: []place.Task{t}}}, snap)
	if !ok {
		return 0, fault.New(fault.NotFound, "there is no resource specification %q", t.Spec)
	}
	set, err := setOf("score", map[string]int32{policyID: 1})
	if err != nil {
		return 0, err
	}
	ps, err := s.snapshotFor(ctx, snap, []place.Work{w})
	if err != nil {
		return 0, err
	}
	d, err := place.Score(ps, &w, 0, set, place.Options{})
	if err != nil {
		return 0, err
	}
	for _, row := range d.Table {
		if row.Candidate != centerID {
			continue
		}
		if len(row.Filtered) > 0 {
			return 0, fault.New(fault.Conflict, "center %s cannot run it: %s", centerID, row.Filtered[0].Text)
		}
		for i, p := range d.Policies {
			if p.ID == policyID {
				return row.Scores[i], nil
			}
		}
	}
	return 0, fmt.Errorf("score of %s under %s is missing", centerID, policyID)
}

// smallest is the specification with the least CPU, then memory, then ID.
func smallest(snap *registry.Snapshot) string {
	var best *registry.Spec
	for _, s := range snap.Specs {
		if best == nil || slices.Compare([]int64{s.Quantity["cpu"], s.Quantity["memory"]}, []int64{best.Quantity["cpu"], best.Quantity["memory"]}) < 0 ||
			s.Quantity["cpu"] == best.Quantity["cpu"] && s.Quantity["memory"] == best.Quantity["memory"] && s.ID < best.ID {
			best = s
		}
	}
	if best == nil {
		return ""
	}
	return best.ID
}

// Evaluate is equation 2 over given scores with the platform's weights. It
// returns fault.NotFound for an unknown center and fault.Invalid for an
// unknown policy, a length mismatch or a score outside 0 to 100.
func (s *Service) Evaluate(ctx context.Context, centerID string, policyIDs []string, scores []int) (int, error) {
	cat, err := s.reg.Catalog(ctx)
	if err != nil {
		return 0, err
	}
	if cat.Centers[centerID] == nil {
		return 0, fault.New(fault.NotFound, "there is no center %q", clip(centerID))
	}
	set, err := s.policySet(ctx)
	if err != nil {
		return 0, err
	}
	exact, err := set.Evaluate(policyIDs, scores)
	if err != nil {
		return 0, err
	}
	return exact.Rounded(), nil
}

func clip(s string) string {
	if len(s) > 64 {
		s = s[:64] + "…"
	}
	return s
}
