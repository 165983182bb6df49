package place

// sheet holds every score of a table, each brought up to date when it changes:
// for evaluators that need them all, and for records of decisions.
type sheet struct {
	scores   []uint8 // by site, then policy
	final    []int64 // by site: Σ weight·score
	versions []int   // of the columns
	seen     int     // changes looked at
}

func newSheet(p *planner, h *shape) *sheet {
	n := len(p.sites)
	s := &sheet{scores: make([]uint8, n*len(h.weights)), final: make([]int64, n), versions: make([]int, len(h.columns))}
	h.sheet = s
	s.follow(p, h)
	return s
}

// follow brings the sheet up to date: policies whose ranges moved at every
// site, others where something changed.
func (s *sheet) follow(p *planner, h *shape) {
	t := h.table
	for u := range t.weights {
		moved := false
		for k := t.first[u]; k < t.first[u+1]; k++ {
			if v := t.columns[k].version; v != s.versions[k] {
				s.versions[k], moved = v, true
				if t.columns[k].f.Varies == WithPeers {
					t.show.staleAll()
				}
			}
		}
		if moved {
			for i, ok := range t.fits {
				if ok {
					s.settle(t, int32(i), u)
				}
			}
		}
	}
	if s.seen == len(p.changes) {
		return
	}
	p.since(s.seen, func(i int32) {
		t.show.stale(i)
		if t.fits[i] {
			for u := range t.weights {
				s.settle(t, i, u)
			}
		}
	})
	s.seen = len(p.changes)
}

// settle writes the score of policy u at site i and corrects the total.
func (s *sheet) settle(t *table, i int32, u int) {
	score := uint8(t.scoreAt(u, i, nil))
	cell := &s.scores[int(i)*len(t.weights)+u]
	if *cell == score {
		return
	}
	s.final[i] += t.weights[u] * (int64(score) - int64(*cell))
	*cell = score
	t.show.stale(i)
}

// of returns the scores of site i.
func (s *sheet) of(i int32) []uint8 {
	n := len(s.scores) / max(len(s.final), 1)
	return s.scores[int(i)*n : (int(i)+1)*n]
}

// best returns the best site that allow lets through, -1 if there is none.
func (s *sheet) best(t *table, allow func(i int32) bool) int32 {
	best := int32(-1)
	for i, ok := range t.fits {
		if ok && (best < 0 || t.better(int32(i), best) > 0) && (allow == nil || allow(int32(i))) {
			best = int32(i)
		}
	}
	return best
}

// better compares two sites that fit by their scores.
func (t *table) better(a, b int32) int {
	if t.compare == nil {
		switch x, y := t.sheet.final[a], t.sheet.final[b]; {
		case x > y:
			return 1
		case x < y:
			return -1
		}
		return 0
	}
	return t.compare(t.weights, t.sheet.of(a), t.sheet.of(b))
}
