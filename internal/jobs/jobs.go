// Package jobs owns jobs: what users ask for, what runs of it, and how it ended.
//
// A job has tasks, a task has replicas. Only the job is stored when it is
// submitted: its replicas are implied by its specification until a scheduling
// cycle places them, which makes one attempt each. A failed replica that may
// be tried again waits once more and gets another attempt.
//
// # States of an attempt
//
//	            placed            accepted          first report
//	(waiting) ─────────▶ dispatching ─────▶ pending ─────────▶ running
//	     ▲                    │  stop asked: stopping   │          │
//	     │ retry              ▼                         ▼          ▼
//	     └──────────────── failed      stopped      succeeded | failed | stopped
//
// Its center is authoritative for when it started and how it ended; a report
// is recorded once, in one transaction with the usage record, the release of
// what it held and the job's counters. A report about an attempt that has
// ended changes nothing.
//
// A job's end is the latest end of its replicas, as their centers reported
// them, however late that is recorded; replicas that never ran ended when it
// was decided that they never start.
//
// # States of a job
//
// A job's state follows from its counters, which always add up to its number
// of replicas (the schema checks it):
//
//	unplaced + active + succeeded + failed + stopped = total
//
//	queued       nothing placed, or only retries wait
//	scheduling   some replicas placed, some wait for room
//	dispatching  all placed, none running yet
//	running      at least one runs
//	paused       none runs, and those placed stand still
//	stopping     its outcome is decided, some replicas have yet to end
//	succeeded, failed, stopped: ended
//
// The outcome is decided by the job's success and failure policies as soon as
// the counters allow it ([decide]); what is then left is stopped.
//
// # Pausing
//
// That a job shall stand still is a wish, stored with it and with each of its
// open attempts ([Service.Pause]). What waits is not placed. What runs is
// told to its center, and told again until the center reports that it stands
// still; an attempt that begins to run meanwhile is told then. An attempt on
// its way, or waiting at its center, goes on that far. Resuming is the same
// the other way around, and the last wish counts.
//
// A paused attempt keeps what it holds: it counts as running where resources
// are counted, and it is billed. Its timeout does not count the time. It can be
// stopped, fail or be written off as a running one; a retry waits until the
// job is resumed. A job is paused only if all centers where it has open
// attempts can do it.
//
// # Failures
//
// Lost messages: a center is told again (package adapters). A killed platform:
// everything above is in the database. A silent center: its attempts stay as
// they are for a grace (package standing), or until it comes back and reports.
//
// A center that does not come back in its grace: its attempts are written off
// and run again elsewhere, which uses up no retry ([Service.GiveUp]). An operator
// can do so earlier ([Service.WriteOff]); then they are not tried again unless
// asked. They end as failed, reason "lost", when the center was last heard of.
// Whether the run goes on out there nobody knows, so it stays marked as lost:
// when the center is there again it is told to stop it and, if it has forgotten
// it, never to start it. What it then reports clears the mark and changes nothing
// else: only the last attempt of a replica counts. Until its stop is done the run
// uses room that is counted as free.
//
// A center that refuses an attempt for now: the replica waits again at once,
// which uses up no retry, and package standing has the center left alone.
package jobs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/standing"
	"yunhe.dev/yunhe/internal/tags/expr"
)

// State of a job or an attempt.
type State = jobsv1.State

const (
	queued      = jobsv1.State_STATE_QUEUED
	scheduling  = jobsv1.State_STATE_SCHEDULING
	dispatching = jobsv1.State_STATE_DISPATCHING
	pending     = jobsv1.State_STATE_PENDING
	running     = jobsv1.State_STATE_RUNNING
	paused      = jobsv1.State_STATE_PAUSED
	stopping    = jobsv1.State_STATE_STOPPING
	stopped     = jobsv1.State_STATE_STOPPED
	succeeded   = jobsv1.State_STATE_SUCCEEDED
	failed      = jobsv1.State_STATE_FAILED
)

// StateName is the name of a state for people and programs: "queued", "running".
func StateName(s State) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "STATE_"))
}

func ended(s State) bool { return s == stopped || s == succeeded || s == failed }

// Limits of a job, beside those of its fields.
const (
	maxTasks        = 256
	maxReplicas     = 10000
	maxTotal        = 100000
	maxCommand      = 64 << 10
	maxEnv          = 64 << 10
	maxFile         = 1 << 20
	maxFiles        = 2 << 20
	maxTimeout      = 30 * 24 * 3600
	maxBatch        = 5000
	defaultScratch  = 64
	defaultGrace    = 10
	defaultExpected = 3600
)

// counts are the replicas of a job by where they stand.
type counts struct {
	total, unplaced, active, running, paused, succeeded, failed, stopped int64
}

// decide returns the state a job will end in, 0 while that is open. When all
// replicas have ended and neither policy holds, the job has failed: it was
// not what its owner called a success.
func decide(c counts, sp jobsv1.SuccessPolicy, fp jobsv1.FailurePolicy) State {
	switch {
	case sp == jobsv1.SuccessPolicy_SUCCESS_POLICY_ANY && c.succeeded > 0, c.succeeded == c.total:
		return succeeded
	case fp != jobsv1.FailurePolicy_FAILURE_POLICY_ALL && c.failed > 0, c.failed == c.total:
		return failed
	case c.succeeded+c.failed+c.stopped == c.total:
		return failed
	}
	return 0
}

// stateOf derives a job's state from its counters, its outcome and whether it
// shall be paused.
func stateOf(c counts, outcome State, pauseAsked bool) State {
	switch {
	case outcome != 0 && c.active == 0 && c.unplaced == 0:
		return outcome
	case outcome != 0:
		return stopping
	case c.running > 0:
		return running
	case pauseAsked && c.active == c.paused, c.paused > 0 && !pauseAsked:
		return paused
	case c.unplaced > 0 && c.active == 0:
		return queued
	case c.unplaced > 0:
		return scheduling
	default:
		return dispatching
	}
}

// validate checks a specification against the limits and the catalog. prefix
// is put before every path ("jobs[3].").
func validate(c *core.Check, prefix string, j *jobsv1.JobSpec, cat *registry.Catalog) {
	c.Text(prefix+"name", j.Name, true, 32, 128)
	c.Text(prefix+"desc", j.Desc, false, 0, 128)
	c.Range(prefix+"priority", int64(j.Priority), -100, 100)
	c.Range(prefix+"max_retries", int64(j.MaxRetries), 0, 100)
	enum(c, prefix+"success_policy", int32(j.SuccessPolicy), jobsv1.SuccessPolicy_name)
	enum(c, prefix+"failure_policy", int32(j.FailurePolicy), jobsv1.FailurePolicy_name)
	if len(j.Labels) > 32 {
		c.Add(prefix+"labels", "must be at most 32 entries, got %d", len(j.Labels))
	}
	for _, k := range sortedKeys(j.Labels) {
		c.Text(prefix+"labels."+clip(k), k, true, 0, 64)
		c.Text(prefix+"labels."+clip(k), j.Labels[k], false, 0, 64)
	}
	for _, k := range sortedKeys(j.PolicyWeights) {
		c.Range(prefix+"policy_weights."+clip(k), int64(j.PolicyWeights[k]), 0, 1000)
	}
	if len(j.Tasks) < 1 || len(j.Tasks) > maxTasks {
		c.Add(prefix+"tasks", "must be 1 to %d tasks, got %d", maxTasks, len(j.Tasks))
		return
	}
	names := make(map[string]bool, len(j.Tasks))
	total, files := int64(0), 0
	for i, t := range j.Tasks {
		p := fmt.Sprintf("%stasks[%d].", prefix, i)
		if t == nil {
			c.Add(p[:len(p)-1], "must not be null")
			continue
		}
		if names[t.Name] {
			c.Add(p+"name", "%q is the name of another task of this job", clip(t.Name))
		}
		names[t.Name] = true
		total += int64(max(0, t.ReplicaNumber))
		for _, f := range t.Files {
			files += len(f.GetContent())
		}
		validateTask(c, p, t, cat)
		checkScale(c, p, t, j.Elastic)
	}
	checkAfter(c, prefix, j)
	checkRetries(c, prefix, j)
	checkElastic(c, prefix, j)
	checkTimes(c, prefix, j)
	if total > maxTotal {
		c.Add(prefix+"tasks", "must have at most %d replicas in all, got %d", maxTotal, total)
	}
	if files > maxFiles {
		c.Add(prefix+"tasks", "must carry at most %d bytes of files in all, got %d", maxFiles, files)
	}
}

func validateTask(c *core.Check, p string, t *jobsv1.Task, cat *registry.Catalog) {
	c.Text(p+"name", t.Name, true, 32, 64)
	switch {
	case strings.TrimSpace(t.Command) == "":
		c.Add(p+"command", "is required")
	case len(t.Command) > maxCommand:
		c.Add(p+"command", "must be at most %d bytes, got %d", maxCommand, len(t.Command))
	case strings.ContainsRune(t.Command, 0) || strings.ToValidUTF8(t.Command, "") != t.Command:
		c.Add(p+"command", "must be valid UTF-8 without zero bytes")
	}
	c.ID(p+"image_id", t.ImageId)
	c.ID(p+"resource_spec_id", t.ResourceSpecId)
	if img := cat.Images[t.ImageId]; img == nil && len(t.ImageId) <= 32 && t.ImageId != "" {
		c.Add(p+"image_id", "there is no image %q; see yunhe image list", t.ImageId)
	} else if img != nil && len(img.Specs) > 0 && !slices.Contains(img.Specs, t.ResourceSpecId) {
		c.Add(p+"resource_spec_id", "image %q fits the specifications %s only", t.ImageId, strings.Join(img.Specs, ", "))
	}
	spec := cat.Specs[t.ResourceSpecId]
	if spec == nil && len(t.ResourceSpecId) <= 32 && t.ResourceSpecId != "" {
		c.Add(p+"resource_spec_id", "there is no resource specification %q; see yunhe spec list", t.ResourceSpecId)
	}
	c.Range(p+"replica_number", int64(t.ReplicaNumber), 1, maxReplicas)
	c.Range(p+"timeout_seconds", t.TimeoutSeconds, 0, maxTimeout)
	c.Range(p+"expected_seconds", t.ExpectedSeconds, 0, maxTimeout)
	c.Range(p+"stop_grace_seconds", t.StopGraceSeconds, 0, 600)
	if c.Range(p+"scratch_mib", t.ScratchMib, 0, 1<<20); spec != nil {
		if mem := spec.Quantity[core.Memory]; scratch(t)>>20 > 0 && scratch(t) > mem {
			c.Add(p+"scratch_mib", "is kept in memory and must be at most the specification's %d MiB, got %d", mem>>20, scratch(t)>>20)
		}
	}
	validateEnv(c, p, t.Env)
	validateFiles(c, p, t.Files)
	checkMounts(c, p, t.Volumes)
	checkNeeds(c, p, t, cat)
	if k := t.Constraints; k != nil {
		c.Range(p+"constraints.min_security_grade", k.MinSecurityGrade, 0, 5)
		c.Range(p+"constraints.max_price", k.MaxPrice, 0, 1e12)
		validateExpression(c, p+"constraints.expression", k.Expression)
		checkRules(c, p+"constraints.rules", k.Rules)
		validateIDs(c, p+"constraints.centers", k.Centers)
		if len(k.Regions) > 64 {
			c.Add(p+"constraints.regions", "must be at most 64, got %d", len(k.Regions))
		}
		for i, r := range k.Regions {
			c.Text(fmt.Sprintf("%sconstraints.regions[%d]", p, i), r, true, 0, 64)
		}
		for i, id := range k.Centers {
			if cat.Centers[id] == nil {
				c.Add(fmt.Sprintf("%sconstraints.centers[%d]", p, i), "there is no center %q; see yunhe center list", clip(id))
			}
		}
	}
}

// checkTimes checks the times of a job that are not of its tasks.
func checkTimes(c *core.Check, prefix string, j *jobsv1.JobSpec) {
	for _, f := range []struct {
		name string
		at   *timestamppb.Timestamp
	}{{"not_before", j.NotBefore}, {"deadline", j.Deadline}} {
		if f.at != nil && (f.at.CheckValid() != nil || f.at.Seconds < 0) {
			c.Add(prefix+f.name, "must be a time between 1970 and 9999")
		}
	}
	if j.NotBefore != nil && j.Deadline != nil && !j.Deadline.AsTime().After(j.NotBefore.AsTime()) {
		c.Add(prefix+"deadline", "must be after not_before")
	}
	standing.CheckGrace(c, prefix+"lost_grace_seconds", j.LostGraceSeconds)
	if j.NearJob != "" {
		c.ID(prefix+"near_job", j.NearJob)
	}
	checkGroups(c, prefix, j.Groups)
}

func validateExpression(c *core.Check, path, text string) {
	if text == "" {
		return
	}
	_, problems := expr.Compile(expr.Placement, text)
	for _, p := range problems {
		c.Add(path, "%s", p)
	}
}

func validateIDs(c *core.Check, path string, ids []string) {
	if len(ids) > 64 {
		c.Add(path, "must be at most 64, got %d", len(ids))
	}
	for i, id := range ids {
		c.ID(fmt.Sprintf("%s[%d]", path, i), id)
	}
}

func validateEnv(c *core.Check, p string, env map[string]string) {
	if len(env) > 256 {
		c.Add(p+"env", "must be at most 256 entries, got %d", len(env))
	}
	size := 0
	for _, k := range sortedKeys(env) {
		v := env[k]
		size += len(k) + len(v)
		if !isEnvName(k) {
			c.Add(p+"env", "names must match [A-Za-z_][A-Za-z0-9_]* and be at most 128 bytes, got %q", clip(k))
		}
		if strings.ContainsRune(v, 0) || strings.ToValidUTF8(v, "") != v {
			c.Add(p+"env."+clip(k), "must be valid UTF-8 without zero bytes")
		}
	}
	if size > maxEnv {
		c.Add(p+"env", "must be at most %d bytes in all, got %d", maxEnv, size)
	}
}

// sortedKeys has the same job refused with the same words every time.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func isEnvName(s string) bool {
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

func validateFiles(c *core.Check, p string, files []*jobsv1.File) {
	if len(files) > 64 {
		c.Add(p+"files", "must be at most 64, got %d", len(files))
	}
	seen := map[string]bool{}
	for i, f := range files {
		q := fmt.Sprintf("%sfiles[%d].", p, i)
		path := f.GetPath()
		c.Text(q+"path", path, true, 0, 256)
		if strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || hasDots(path) {
			c.Add(q+"path", `must be relative, without "." or ".." elements, got %q`, clip(path))
		}
		if seen[path] {
			c.Add(q+"path", "%q is given twice", clip(path))
		}
		seen[path] = true
		if len(f.GetContent()) > maxFile {
			c.Add(q+"content", "must be at most %d bytes, got %d", maxFile, len(f.GetContent()))
		}
	}
}

func hasDots(path string) bool {
	for _, e := range strings.Split(path, "/") {
		if e == "." || e == ".." || e == "" {
			return true
		}
	}
	return false
}

func enum(c *core.Check, path string, n int32, names map[int32]string) {
	if _, ok := names[n]; !ok {
		c.Add(path, "is not one of its values, got %d", n)
	}
}

func scratch(t *jobsv1.Task) int64 {
	if t.ScratchMib == 0 {
		return defaultScratch << 20
	}
	return t.ScratchMib << 20
}

func clip(s string) string {
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}
