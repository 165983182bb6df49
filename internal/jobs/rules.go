package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

const (
	maxGroups = 16
	// groupBytes is one more than a group's name and a label's may have.
	groupBytes = 64
)

func checkGroups(c *core.Check, path string, names []string) {
	if len(names) > maxGroups {
		c.Add(path+"groups", "must be at most %d, got %d", maxGroups, len(names))
		return
	}
	for i, name := range names {
		at := fmt.Sprintf("%sgroups[%d]", path, i)
		c.Text(at, name, true, 0, groupBytes)
		if slices.Contains(names[:i], name) {
			c.Add(at, "%q is given twice", clip(name))
		}
	}
}

func checkRules(c *core.Check, path string, rules []*jobsv1.PlacementRule) {
	if len(rules) > place.MaxRules {
		c.Add(path, "must be at most %d, got %d", place.MaxRules, len(rules))
		return
	}
	for i, r := range rules {
		at := fmt.Sprintf("%s[%d]", path, i)
		spread := r.Kind == jobsv1.PlacementRule_KIND_SPREAD
		if kindOfRule(r.Kind) == "" {
			c.Add(at+".kind", "must be KIND_SPREAD, KIND_WITH or KIND_APART, got %s", r.Kind)
		}
		c.Text(at+".over", r.Over, false, 0, groupBytes)
		c.Text(at+".of_group", r.OfGroup, false, 0, groupBytes)
		if r.OfJob != "" {
			c.ID(at+".of_job", r.OfJob)
		}
		if r.OfJob != "" && r.OfGroup != "" {
			c.Add(at+".of_group", "must be empty when of_job is given")
		}
		switch {
		case spread:
			c.Range(at+".max_skew", int64(r.MaxSkew), 0, 10000)
		case r.MaxSkew != 0:
			c.Add(at+".max_skew", "is for KIND_SPREAD only, got %d", r.MaxSkew)
		}
	}
}

// checkRulesOf checks that there are the jobs whose replicas rules count.
func (s *Service) checkRulesOf(ctx context.Context, c *core.Check, prefix string, j *jobsv1.JobSpec) error {
	for i, t := range j.Tasks {
		for k, r := range t.GetConstraints().GetRules() {
			if r.OfJob == "" {
				continue
			}
			err := s.db.View(ctx, func(tx *db.Tx) error {
				other, err := loadJob(ctx, tx, r.OfJob)
				if err == nil && (other == nil || other.tenant != core.CallerFrom(ctx).TenantID) {
					c.Add(fmt.Sprintf("%stasks[%d].constraints.rules[%d].of_job", prefix, i, k), "there is no job %q of this tenant", clip(r.OfJob))
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func kindOfRule(k jobsv1.PlacementRule_Kind) place.RuleKind {
	switch k {
	case jobsv1.PlacementRule_KIND_SPREAD:
		return place.Spread
	case jobsv1.PlacementRule_KIND_WITH:
		return place.With
	case jobsv1.PlacementRule_KIND_APART:
		return place.Apart
	}
	return ""
}

// rules translates placement rules for the engine.
func rules(tenant string, in []*jobsv1.PlacementRule) []place.Rule {
	var out []place.Rule
	for _, r := range in {
		o := place.Rule{Kind: kindOfRule(r.Kind), Over: r.Over, Of: r.OfJob, MaxSkew: int(r.MaxSkew), Preferred: r.Preferred}
		if r.OfGroup != "" {
			o.Of = groupName(tenant, r.OfGroup)
		}
		if o.Kind == place.Spread {
			o.MaxSkew = max(o.MaxSkew, 1)
		}
		out = append(out, o)
	}
	return out
}

// groupName is what the engine calls a tenant's group. No ID has a slash.
func groupName(tenant, name string) string { return tenant + "/" + name }

func groupNames(tenant string, names []string) []string {
	var out []string
	for _, name := range names {
		out = append(out, groupName(tenant, name))
	}
	return out
}

func insertGroups(ctx context.Context, tx *db.Tx, rs []*record) error {
	var rows [][]any
	for _, r := range rs {
		for _, name := range r.spec.Groups {
			rows = append(rows, []any{r.tenant, name, r.id})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return tx.Insert(ctx, "job_groups", []string{"tenant_id", "name", "job_id"}, rows)
}

// Neighbors counts the open runs of jobs and of groups of jobs by center. See
// scheduler.Source.
func (s *Service) Neighbors(ctx context.Context, names []string) (map[string]map[string]int, error) {
	out := map[string]map[string]int{}
	count := func(name string) func(db.Row) error {
		return func(row db.Row) error {
			var center string
			var n int
			if err := row.Scan(&center, &n); err != nil {
				return err
			}
			if out[name] == nil {
				out[name] = map[string]int{}
			}
			out[name][center] = n
			return nil
		}
	}
	err := s.db.View(ctx, func(tx *db.Tx) error {
		clear(out)
		for _, name := range names {
			query, args := `SELECT ai_center_id, COUNT(*) FROM attempts WHERE job_id = $1 AND ended_at = 0 GROUP BY ai_center_id`, []any{name}
			if tenant, group, ok := strings.Cut(name, "/"); ok {
				query, args = `SELECT a.ai_center_id, COUNT(*) FROM job_groups g JOIN attempts a ON a.job_id = g.job_id
					WHERE g.tenant_id = $1 AND g.name = $2 AND a.ended_at = 0 GROUP BY a.ai_center_id`, []any{tenant, group}
			}
			if err := tx.Query(ctx, query, args, count(name)); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}
