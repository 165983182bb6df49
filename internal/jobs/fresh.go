package jobs

import (
	"context"
	"sync"

	"yunhe.dev/yunhe/internal/db"
)

// fresh is jobs as they were last read or written here, for the scheduler, which
// soon reads those that came a moment ago and writes where they go: that they
// have still the version they had says that they are still what they were. Its
// zero value is empty.
type fresh struct {
	mu sync.Mutex // guards the fields below
	m  map[string]*record
}

// maxFresh is how many jobs are kept: those that come in a second or two.
const maxFresh = 8192

// keep notes jobs as they are stored. Nobody may change what they point to.
func (f *fresh) keep(rs []*record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.m == nil || len(f.m)+len(rs) > maxFresh {
		f.m = make(map[string]*record, min(len(rs), maxFresh))
	}
	for _, r := range rs[:min(len(rs), maxFresh)] {
		own := *r
		f.m[r.id] = &own
	}
}

// drop forgets jobs.
func (f *fresh) drop(ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		delete(f.m, id)
	}
}

// get returns a job as it was with a version, nil if it is not known. The record
// is the caller's own, what it points to is not.
func (f *fresh) get(id string, version int64) *record {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.m[id]; r != nil && r.version == version {
		own := *r
		return &own
	}
	return nil
}

// has reports whether a job is known, with whatever version.
func (f *fresh) has(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.m[id] != nil
}

// loadFresh is loadJobs for jobs most of which are known: of these only the
// versions are read.
func (f *fresh) loadFresh(ctx context.Context, tx *db.Tx, ids []string) ([]*record, error) {
	var known, rest []string
	for _, id := range ids {
		if f.has(id) {
			known = append(known, id)
		} else {
			rest = append(rest, id)
		}
	}
	out := make([]*record, 0, len(ids))
	if len(known) > 0 {
		among, arg := tx.In(1, known)
		err := tx.Query(ctx, `SELECT job_id, version FROM jobs WHERE job_id `+among, []any{arg}, func(row db.Row) error {
			var id string
			var version int64
			err := row.Scan(&id, &version)
			if r := f.get(id, version); r != nil {
				out = append(out, r)
			} else {
				rest = append(rest, id)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	rs, err := loadJobs(ctx, tx, rest)
	return append(out, rs...), err
}
