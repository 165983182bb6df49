package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/scheduler/place"
)

// Room is what an allocation has for the work that names it.
type Room struct {
	CenterID    string
	Total, Free core.Quantities
	OnNodes     bool // it is made of nodes
}

// Allocations holds resources that work may draw on, implemented by control.
type Allocations interface {
	// Rooms returns the room of those of the allocations that are granted.
	Rooms(ctx context.Context, ids []string) (map[string]Room, error)
	// DrawTx takes all of q from an allocation or nothing; ok is false if it
	// has less, or is not granted any more.
	DrawTx(ctx context.Context, tx *db.Tx, id string, q core.Quantities) (ok bool, err error)
}

// SetAllocations says who holds allocations; without it work that names one waits.
func (s *Service) SetAllocations(a Allocations) { s.room = a }

// planned is a plan with what it rests on.
type planned struct {
	*place.Result
	rooms   map[string]Room              // of the allocations that work draws on
	verdict Verdict                      // of the policies; nil: there are none
	parts   map[string]map[string]string // by reservation and center the allocation to draw on
	over    map[string]bool              // reservations that have no time to come
}

// plan plans works, which were made of items: those that draw on an
// allocation, each allocation for itself in its room, and all others in what
// centers have free.
func (s *Service) plan(ctx context.Context, snap *registry.Snapshot, works []place.Work, items []*Item, set *place.Set) (*planned, error) {
	return s.planWith(ctx, snap, works, items, set, func(*place.Options) func() { return func() {} })
}

// planWith is plan, with what competes for free room planned under options
// that begin sets; what it returns is called when that is planned.
func (s *Service) planWith(ctx context.Context, snap *registry.Snapshot, works []place.Work, items []*Item, set *place.Set, begin func(*place.Options) func()) (*planned, error) {
	ps, err := s.snapshotFor(ctx, snap, works)
	if err != nil {
		return nil, err
	}
	defer s.release(ps)
	out := &planned{rooms: map[string]Room{}}
	if out.verdict, err = s.choose(ctx, ps, items, works, set); err != nil {
		return nil, err
	}
	var free []place.Work
	byID := map[string][]place.Work{}
	for i, w := range works {
		if id := items[i].AllocationID; id != "" {
			byID[id] = append(byID[id], w)
		} else {
			free = append(free, w)
		}
	}
	var opts place.Options
	end := begin(&opts)
	out.Result, err = place.Plan(ps, free, set, opts)
	end()
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if len(byID) == 0 {
		return out, nil
	}
	ids := slices.Sorted(keys(byID))
	if err := s.readRooms(ctx, out, ids); err != nil {
		return nil, err
	}
	for _, id := range ids {
		in := *ps
		in.Candidates, in.Sound = nil, nil // others, with other room
		for _, c := range ps.Candidates {
			from := id
			if IsReservation(id) {
				from = out.parts[id][c.ID]
			}
			if room, ok := out.rooms[from]; ok && c.ID == room.CenterID {
				c.Total, c.Free = place.Amounts(room.Total), place.Amounts(room.Free)
				in.Candidates = append(in.Candidates, c)
			}
		}
		one, err := place.Plan(&in, byID[id], set, place.Options{})
		if err != nil {
			return nil, fmt.Errorf("plan in allocation %s: %w", id, err)
		}
		out.Placements, out.Unplaced = append(out.Placements, one.Placements...), append(out.Unplaced, one.Unplaced...)
	}
	return out, nil
}

// readRooms reads the room of allocations and reservations.
func (s *Service) readRooms(ctx context.Context, out *planned, ids []string) error {
	var allocations, reservations []string
	for _, id := range ids {
		if IsReservation(id) {
			reservations = append(reservations, id)
		} else {
			allocations = append(allocations, id)
		}
	}
	if len(reservations) > 0 && s.calendar != nil {
		drawn, err := s.calendar.Drawn(ctx, reservations)
		if err != nil {
			return fmt.Errorf("read reservations: %w", err)
		}
		out.over, out.parts = map[string]bool{}, map[string]map[string]string{}
		for id, r := range drawn {
			out.over[id] = r.Over
			allocations = append(allocations, r.Allocations...)
		}
		slices.Sort(allocations)
		if err := s.rooms(ctx, out, allocations); err != nil {
			return err
		}
		for id, r := range drawn {
			out.parts[id] = map[string]string{}
			for _, a := range r.Allocations {
				if room, ok := out.rooms[a]; ok {
					out.parts[id][room.CenterID] = a
				}
			}
		}
		return nil
	}
	return s.rooms(ctx, out, allocations)
}

func (s *Service) rooms(ctx context.Context, out *planned, allocations []string) (err error) {
	if s.room == nil {
		return nil
	}
	if out.rooms, err = s.room.Rooms(ctx, allocations); err != nil {
		return fmt.Errorf("read allocations: %w", err)
	}
	return nil
}

// Choice is where something that was asked for would go now.
type Choice struct {
	CenterID string // "": nowhere, now
	Reason   string // why nowhere
	Possible bool   // some center could take it if nothing were held there
	Price    core.Fen
	Version  int64 // of the calendar it rests on; see [Service.CalendarIsTx]
}

// Ask is what an allocation needs.
type Ask struct {
	Task        place.Task
	Weights     map[string]int32 // own policies; empty: the platform's
	Until       time.Time        // zero: without end
	Reservation string           // that it is for; "": none
}

// Choose says where one replica of the task would go now, by the platform's
// policies or those of weights. Nothing is reserved.
func (s *Service) Choose(ctx context.Context, a Ask) (Choice, error) {
	t, weights := a.Task, a.Weights
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return Choice{}, err
	}
	set, err := s.policySet(ctx)
	if err != nil {
		return Choice{}, err
	}
	if own := ownSet(weights); own != nil {
		set = own
	}
	var version int64
	t.ID, t.Replicas, t.RunSeconds, t.Kind = "0", 1, place.Known(3600), kindOf(core.Quantities(t.Request))
	if s.calendar != nil {
		if t.Excluded, version, err = s.calendar.Keeps(ctx, Hold{Amounts: core.Quantities(t.Request), Until: a.Until, Reservation: a.Reservation}); err != nil {
			return Choice{}, err
		}
	}
	work := []place.Work{{ID: "allocation", Tasks: []place.Task{t}}}
	ps := s.snapshotOf(snap)
	res, err := place.Plan(ps, work, set, place.Options{})
	if err != nil {
		return Choice{}, fmt.Errorf("plan: %w", err)
	}
	if len(res.Placements) == 1 {
		id := res.Placements[0].Candidate
		return Choice{CenterID: id, Possible: true, Price: centerOf(snap, id).Offers[t.Spec], Version: version}, nil
	}
	out := Choice{Reason: "no center can take it", Version: version}
	if len(res.Unplaced) > 0 {
		out.Reason = res.Unplaced[0].Reason
	}
	for i := range ps.Candidates { // as if it were empty and in use
		ps.Candidates[i].Free, ps.Candidates[i].Status = ps.Candidates[i].Total, place.Available
	}
	work[0].Tasks[0].Excluded = nil
	if res, err = place.Plan(ps, work, set, place.Options{}); err != nil {
		return Choice{}, fmt.Errorf("plan: %w", err)
	}
	out.Possible = len(res.Placements) == 1
	return out, nil
}
