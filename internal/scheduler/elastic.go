package scheduler

import "slices"

// whole returns the attempts, sorted, with all others of each elastic gang that
// would have less than its least without them: it goes as a whole then.
func (l *lineup) whole(attempts []string) []string {
	taken, hit := map[string]bool{}, map[string]bool{}
	for _, id := range attempts {
		if taken[id] = true; l.runs[id].least > 0 {
			hit[l.runs[id].job] = true
		}
	}
	if len(hit) > 0 {
		type part struct {
			job  string
			task int
		}
		left, low := map[part]int{}, map[part]int{}
		for id, r := range l.runs {
			if hit[r.job] {
				p := part{r.job, r.task}
				if low[p] = r.least; !taken[id] {
					left[p]++
				}
			}
		}
		broken := map[string]bool{}
		for p, n := range low {
			broken[p.job] = broken[p.job] || left[p] < n
		}
		for id, r := range l.runs {
			if broken[r.job] && !taken[id] {
				attempts = append(attempts, id)
			}
		}
	}
	slices.Sort(attempts)
	return attempts
}

// claimed reports whether runs were taken back for work that still waits: an
// elastic gang does not grow into the room that is being made.
func (l *lineup) claimed(now int64) bool {
	for _, until := range l.asked {
		if until > now {
			return true
		}
	}
	return false
}
