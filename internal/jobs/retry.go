package jobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
)

const (
	maxRules    = 32
	maxReasons  = 16
	maxCodes    = 64
	maxBackoff  = 24 * time.Hour
	maxRetrying = 100
)

func checkRetries(c *core.Check, prefix string, j *jobsv1.JobSpec) {
	if len(j.RetryRules) > maxRules {
		c.Add(prefix+"retry_rules", "must be at most %d, got %d", maxRules, len(j.RetryRules))
		return
	}
	for i, r := range j.RetryRules {
		p := fmt.Sprintf("%sretry_rules[%d].", prefix, i)
		c.Range(p+"max_retries", int64(r.GetMaxRetries()), 0, maxRetrying)
		c.Range(p+"backoff_seconds", r.GetBackoffSeconds(), 0, int64(maxBackoff/time.Second))
		if len(r.GetReasons()) > maxReasons {
			c.Add(p+"reasons", "must be at most %d, got %d", maxReasons, len(r.Reasons))
		}
		for k, reason := range r.GetReasons() {
			c.Text(fmt.Sprintf("%sreasons[%d]", p, k), reason, true, 0, 65)
		}
		if len(r.GetExitCodes()) > maxCodes {
			c.Add(p+"exit_codes", "must be at most %d, got %d", maxCodes, len(r.ExitCodes))
		}
		for k, code := range r.GetExitCodes() {
			c.Range(fmt.Sprintf("%sexit_codes[%d]", p, k), int64(code), 0, 255)
		}
	}
	if j.RestartWhole && !j.Gang {
		c.Add(prefix+"restart_whole", "is for gangs; set gang too")
	}
}

// ruleFor returns the index of the first rule that fits how a run failed, -1
// if none does.
func ruleFor(rules []*jobsv1.RetryRule, a *attempt) int {
	return slices.IndexFunc(rules, func(r *jobsv1.RetryRule) bool {
		return (len(r.Reasons) == 0 || slices.Contains(r.Reasons, a.reason)) &&
			(len(r.ExitCodes) == 0 || a.reason == "exit" && slices.Contains(r.ExitCodes, int32(a.exitCode)))
	})
}

// spares reports whether a run that ended so uses up no retry: it was not its
// fault, and it is run again whatever the job's retries.
func spares(a *attempt) bool {
	return a.reason == takenPreempted || a.reason == takenRestarted || a.reason == takenScaled ||
		a.takenAs != "" && (a.reason == reasonLost || a.reason == reasonRefused || a.reason == reasonUnlent)
}

// ruled reports whether a rule names how a run ended that would use up no retry:
// then the rule decides.
func ruled(rules []*jobsv1.RetryRule, a *attempt) bool {
	return (a.reason == reasonLost || a.reason == reasonRefused || a.reason == reasonUnlent) &&
		slices.ContainsFunc(rules, func(r *jobsv1.RetryRule) bool { return slices.Contains(r.Reasons, a.reason) })
}

// again says whether a replica whose run a failed is run again, and after
// which pause. earlier are the runs of the replica before.
func again(j *jobsv1.JobSpec, a *attempt, earlier []*attempt) (yes bool, pause time.Duration) {
	if spares(a) && !ruled(j.RetryRules, a) {
		return true, 0
	}
	if len(j.RetryRules) == 0 {
		return a.number-a.spared <= int64(j.MaxRetries), 0
	}
	rule := ruleFor(j.RetryRules, a)
	failures := int64(0)
	for _, e := range earlier {
		if e.state == failed && (!spares(e) || ruled(j.RetryRules, e)) && ruleFor(j.RetryRules, e) == rule {
			failures++
		}
	}
	if rule < 0 {
		return failures < int64(j.MaxRetries), 0
	}
	r := j.RetryRules[rule]
	pause = time.Duration(r.BackoffSeconds) * time.Second
	for range failures {
		if pause = 2 * pause; pause >= maxBackoff {
			pause = maxBackoff
			break
		}
	}
	return failures < int64(r.MaxRetries), pause
}

// earlierRuns of the replica of a; read only when rules count them.
func (b *batch) earlierRuns(ctx context.Context, r *record, a *attempt) ([]*attempt, error) {
	if len(r.spec.RetryRules) == 0 || a.number == 1 {
		return nil, nil
	}
	return queryAttempts(ctx, b.tx, `job_id = $1 AND task_index = $2 AND replica_index = $3 AND attempt < $4`, a.job, a.task, a.replica, a.number)
}
