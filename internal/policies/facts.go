package policies

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/scheduler"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/tags/expr"
)

// appendClass appends what r reads of a job: jobs with equal keys are matched
// by the same policies, which say the same of every center.
func (r *reads) appendClass(b []byte, it *scheduler.Item, w *place.Work, now time.Time) []byte {
	b = appendText(b, w.Tenant)
	if r.user {
		b = appendText(b, it.User)
	}
	if r.labels {
		b = binary.AppendUvarint(b, uint64(len(it.Labels)))
		for _, k := range slices.Sorted(maps.Keys(it.Labels)) {
			b = appendText(appendText(b, k), it.Labels[k])
		}
	}
	if r.priority {
		b = binary.AppendVarint(b, w.Priority)
	}
	if r.gang {
		b = append(b, 'n')
		if w.Gang {
			b[len(b)-1] = 'y'
		}
	}
	if r.time {
		b = binary.AppendVarint(b, now.Unix()/60)
	}
	if !r.tasks {
		return b
	}
	for i := range w.Tasks {
		t := &w.Tasks[i]
		b = append(b, '|')
		b = appendText(appendText(appendText(b, t.Spec), t.Image), t.Kind)
		b = binary.AppendVarint(binary.AppendVarint(b, t.RunSeconds.Value), t.MinGrade)
		b = binary.AppendVarint(binary.AppendVarint(b, t.MaxPrice.Value), int64(replicas(t)))
		for _, list := range [][]string{t.Regions, t.Pinned} {
			b = binary.AppendUvarint(b, uint64(len(list)))
			for _, s := range list {
				b = appendText(b, s)
			}
		}
		b = binary.AppendUvarint(b, uint64(len(t.Data)))
		for _, d := range t.Data {
			b = appendText(b, d.Dataset)
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func replicas(t *place.Task) int {
	if t.Indices != nil {
		return len(t.Indices)
	}
	return t.Replicas
}

// jobFacts are what expressions read of a job and of the time.
func jobFacts(it *scheduler.Item, w *place.Work, now time.Time) expr.Facts {
	f := expr.PolicyJob.Facts()
	now = now.UTC()
	f["job.tenant"], f["job.user"], f["job.priority"], f["job.gang"] = w.Tenant, it.User, w.Priority, w.Gang
	if it.Labels != nil {
		f["job.labels"], f["job.business"] = it.Labels, it.Labels[businessLabel]
	}
	day := int64(now.Weekday())
	if day == 0 {
		day = 7
	}
	f["time.hour"], f["time.minute"], f["time.weekday"] = int64(now.Hour()), int64(now.Minute()), day
	var total int64
	var kinds, specs, images, data []string
	tasks := []any{}
	for i := range w.Tasks {
		t := &w.Tasks[i]
		total += int64(replicas(t))
		kinds, specs, images = append(kinds, t.Kind), append(specs, t.Spec), append(images, t.Image)
		sets := []string{}
		for _, d := range t.Data {
			sets = append(sets, d.Dataset)
		}
		data = append(data, sets...)
		tasks = append(tasks, map[string]any{"spec": t.Spec, "image": t.Image, "kind": t.Kind, "replicas": int64(replicas(t)), "run_seconds": t.RunSeconds.Value,
			"min_security_grade": t.MinGrade, "max_price": t.MaxPrice.Value, "request": scaled(t.Request), "regions": orNone(t.Regions), "centers": orNone(t.Pinned), "datasets": sets})
	}
	regions, _ := all(w, func(t *place.Task) []string { return t.Regions })
	centers, _ := all(w, func(t *place.Task) []string { return t.Pinned })
	f["job.replicas"], f["job.tasks"] = total, tasks
	f["job.kinds"], f["job.specs"], f["job.images"], f["job.datasets"] = sorted(kinds), sorted(specs), sorted(images), sorted(data)
	f["job.regions"], f["job.centers"] = sorted(regions), sorted(centers)
	return f
}

// all gathers a list of every task; everyTask is false if one has none, which
// means anything.
func all(w *place.Work, list func(*place.Task) []string) (out []string, everyTask bool) {
	everyTask = len(w.Tasks) > 0
	for i := range w.Tasks {
		l := list(&w.Tasks[i])
		everyTask = everyTask && len(l) > 0
		out = append(out, l...)
	}
	return out, everyTask
}

// why says why a job is not in the scope, "" if it is.
func (s *Scope) why(it *scheduler.Item, w *place.Work) string {
	within := func(allowed []string, list func(*place.Task) []string) bool {
		if len(allowed) == 0 {
			return true
		}
		names, every := all(w, list)
		return every && !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(allowed, n) })
	}
	switch {
	case len(s.Tenants) > 0 && !slices.Contains(s.Tenants, w.Tenant):
		return "its tenant is not in the scope"
	case len(s.Users) > 0 && !slices.Contains(s.Users, it.User):
		return "its user is not in the scope"
	case len(s.Businesses) > 0 && !slices.Contains(s.Businesses, it.Labels[businessLabel]):
		return "its business type is not in the scope"
	case !within(s.Regions, func(t *place.Task) []string { return t.Regions }):
		return "it may go to regions outside the scope"
	case !within(s.Centers, func(t *place.Task) []string { return t.Pinned }):
		return "it may go to centers outside the scope"
	}
	for k, v := range s.Labels {
		if got, ok := it.Labels[k]; !ok || got != v {
			return "its labels are not those of the scope"
		}
	}
	return ""
}

// liveFacts sets what expressions read of a center that changes.
func liveFacts(f expr.Facts, c *place.Candidate) {
	f["status"], f["running"], f["waiting"], f["free"] = string(c.Status), c.RunningTasks, c.WaitingTasks, scaled(c.Free)
	prices := make(map[string]int64, len(c.Offers))
	for spec, o := range c.Offers {
		if o.PriceFenPerHour.Known {
			prices[spec] = o.PriceFenPerHour.Value
		}
	}
	f["prices"] = prices
}

const giga = 1 << 30

// scaled turns amounts into the units of expressions.
func scaled(q place.Amounts) map[string]int64 {
	out := make(map[string]int64, len(q))
	for name, n := range q {
		switch name {
		case core.CPU:
			n /= 1000
		case core.Memory, core.Storage:
			n /= giga
		}
		out[name] = n
	}
	return out
}

func sorted(list []string) []string {
	out := []string{}
	for _, s := range list {
		if s != "" {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func orNone(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
