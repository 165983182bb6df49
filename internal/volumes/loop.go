package volumes

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

const (
	// roundEvery is how often what waits for its center is looked at without
	// being told to.
	roundEvery = 2 * time.Second
	// lookEvery is how often centers are asked what is there.
	lookEvery = time.Minute
	// width centers are asked at once.
	width = 16
)

// Run has centers carry out what was asked, until ctx ends. One process at a
// time runs it.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(roundEvery)
	defer tick.Stop()
	told := s.feed.Watch() // what other processes store
	defer told.Close()
	var looked time.Time
	for {
		core.Round(ctx, roundEvery)
		s.Round(ctx)
		if now := s.db.Now(); now.Sub(looked) >= lookEvery {
			looked = now
			s.Look(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-told.Changed:
			told.Take()
		case <-tick.C:
		}
	}
}

func (s *Service) warn(ctx context.Context, what string, err error, args ...any) {
	if err != nil && ctx.Err() == nil {
		s.log.Warn(what+", will try again", append(args, "error", err)...)
	}
}

// byCenter reads volumes and calls f for those of each center, several at once.
func (s *Service) byCenter(ctx context.Context, where string, args func(now int64) []any, f func(center string, list []*Volume)) {
	var list []*Volume
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		list, err = read(ctx, tx, where, args(db.Micros(tx.Now))...)
		return err
	})
	if err != nil {
		core.RoundFailed(ctx, err)
		s.warn(ctx, "volumes not read", err)
	}
	groups := map[string][]*Volume{}
	for _, v := range list {
		groups[v.CenterID] = append(groups[v.CenterID], v)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, width)
	for center, list := range groups {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			core.GetsOn(ctx)
			f(center, list)
		})
	}
	wg.Wait()
}

// Round asks centers once for what was asked of them and is due.
func (s *Service) Round(ctx context.Context) {
	s.byCenter(ctx, `WHERE state IN (1, 3, 4) AND next_at <= $1 ORDER BY volume_id`, func(now int64) []any { return []any{now} }, func(_ string, list []*Volume) {
		for _, v := range list {
			core.GetsOn(ctx)
			err := s.carry(ctx, v)
			if err == nil {
				continue
			}
			switch fault.KindOf(err) {
			case fault.Unavailable:
				s.log.Debug("volume not as it is to be, will try again", "volume_id", v.ID, "ai_center_id", v.CenterID, "error", err)
				return // the others of this center would wait as long
			case fault.Internal:
				s.warn(ctx, "volume not recorded", err, "volume_id", v.ID)
			}
		}
	})
}

// carry has a volume's center do what is asked and records what came of it.
func (s *Service) carry(ctx context.Context, v *Volume) error {
	if v.State == Deleting {
		err := s.ad.RemoveVolume(ctx, v.CenterID, v.ID)
		if err != nil && s.centerGone(ctx, v.CenterID) {
			err = nil // and its volumes with it
		}
		if err != nil {
			return s.again(ctx, v, err)
		}
		return s.db.Tx(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `DELETE FROM volumes WHERE volume_id = $1 AND state = $2`, v.ID, int64(Deleting))
			return err
		})
	}
	got, err := s.ad.EnsureVolume(ctx, v.CenterID, v.ID, v.TenantID, v.Wanted)
	if err == nil && (got.ID != v.ID || got.Bytes < v.Wanted) {
		err = fault.New(fault.Unavailable, "center %s answers with a volume of %d bytes", v.CenterID, got.Bytes)
	}
	if k := fault.KindOf(err); v.State == Growing && err != nil && (k == fault.Exhausted || k == fault.Conflict || k == fault.Invalid) {
		return s.cannotGrow(ctx, v, err)
	}
	if err != nil {
		return s.again(ctx, v, err)
	}
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		used, at := usedOf(got, tx.Now)
		// Who asked for more meanwhile is asked for again.
		_, err := tx.Exec(ctx, `UPDATE volumes SET state = CASE WHEN wanted > $2 THEN 3 ELSE 2 END, bytes = $2, enforced = $3, used = $4, used_at = $5, message = '', tries = 0, next_at = 0, changed_at = $6
			WHERE volume_id = $1 AND state IN (1, 3)`, v.ID, got.Bytes, got.Enforced, used, at, db.Micros(tx.Now))
		if err != nil {
			return fmt.Errorf("record volume %s: %w", v.ID, err)
		}
		return nil
	})
}

func usedOf(v adapters.Volume, now time.Time) (used, at int64) {
	if !v.UsedKnown {
		return -1, 0
	}
	return v.Used, db.Micros(now)
}

func (s *Service) centerGone(ctx context.Context, id string) bool {
	_, err := s.reg.GetCenter(ctx, id)
	return fault.KindOf(err) == fault.NotFound
}

// again records why a volume is not yet as it is to be, and when it is tried
// again. It returns the reason.
func (s *Service) again(ctx context.Context, v *Volume, why error) error {
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE volumes SET message = $2, tries = tries + 1, next_at = $3 WHERE volume_id = $1 AND state = $4 AND wanted = $5`,
			v.ID, message(why), db.Micros(tx.Now.Add(backoff(v.tries))), int64(v.State), v.Wanted)
		return err
	})
	s.warn(ctx, "state of a volume not recorded", err, "volume_id", v.ID)
	return why
}

// cannotGrow has a volume be as it was.
func (s *Service) cannotGrow(ctx context.Context, v *Volume, why error) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE volumes SET state = $2, wanted = bytes, message = $3, tries = 0, next_at = 0, changed_at = $4 WHERE volume_id = $1 AND state = $5 AND wanted = $6`,
			v.ID, int64(Ready), "it could not grow: "+message(why), db.Micros(tx.Now), int64(Growing), v.Wanted)
		return err
	})
}

// message is an error as the volume's user reads it.
func message(err error) string {
	text, ok := fault.Message(err)
	if !ok {
		text = "its center could not be asked"
	}
	if r := []rune(strings.ToValidUTF8(text, "\uFFFD")); len(r) > maxMessage {
		text = string(r[:maxMessage])
	}
	return text
}

// Look asks centers once what of their volumes is there, and how full.
func (s *Service) Look(ctx context.Context) {
	s.byCenter(ctx, `WHERE state IN (2, 5) ORDER BY volume_id`, func(int64) []any { return nil }, func(center string, list []*Volume) {
		there, err := s.ad.Volumes(ctx, center)
		if err != nil {
			s.log.Debug("volumes of a center not seen, will look again", "ai_center_id", center, "error", err)
			return
		}
		byID := make(map[string]adapters.Volume, len(there))
		for _, v := range there {
			byID[v.ID] = v
		}
		err = s.db.Tx(ctx, func(tx *db.Tx) error {
			for _, v := range list {
				got, ok := byID[v.ID]
				state, text, bytes := Ready, v.Message, max(got.Bytes, 0)
				if v.State == Lost {
					text = ""
				}
				if !ok {
					state, text, bytes = Lost, "center "+center+" does not have it any more", v.Bytes
				}
				used, at := usedOf(got, tx.Now)
				// Only what is as it was when the center was asked.
				if _, err := tx.Exec(ctx, `UPDATE volumes SET state = $2, message = $3, bytes = $4, used = $5, used_at = $6, enforced = $7,
					changed_at = CASE WHEN state <> $2 THEN $8 ELSE changed_at END WHERE volume_id = $1 AND state = $9`,
					v.ID, int64(state), text, bytes, used, at, got.Enforced, db.Micros(tx.Now), int64(v.State)); err != nil {
					return fmt.Errorf("record volume %s: %w", v.ID, err)
				}
			}
			return nil
		})
		s.warn(ctx, "volumes of a center not recorded", err, "ai_center_id", center)
	})
}
