package place

import "yunhe.dev/yunhe/internal/fault"

// Brought is what it takes to bring a dataset to a candidate.
type Brought struct {
	Bytes   int64 // that are missing there
	Millis  int64 // at the best bandwidth, or the assumed one
	Assumed bool  // the bandwidth of the path was not measured
	FeeFen  Fact  // from the whole copy from which it is cheapest
}

// Bring says what it takes to bring what a candidate lacks of a dataset, by the
// same reckoning as data-aware and lowest-transfer-cost. It returns
// fault.Invalid if the snapshot breaks its contract or has no such candidate.
func Bring(s *Snapshot, need DataNeed, candidate string) (Brought, error) {
	if err := s.check(); err != nil {
		return Brought{}, err
	}
	p := newPlanner(s, nil, &Options{})
	for i := range p.sites {
		if p.sites[i].ID != candidate {
			continue
		}
		d := p.copiesOf(&need)
		b := Brought{Bytes: max(need.Bytes-max(p.sites[i].Data[need.Dataset], 0), 0), Millis: d.time[i], Assumed: d.assumed[i]}
		if d.fee[i] >= 0 {
			b.FeeFen = Known(d.fee[i])
		}
		return b, nil
	}
	return Brought{}, fault.New(fault.Invalid, "there is no candidate %q", candidate)
}
