package identity

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

const (
	// maxLate is how many events are held: a few megabytes.
	maxLate = 10_000
	// lateEvery is how often it is tried to store them.
	lateEvery = time.Second
	// latePatience bounds one try.
	latePatience = 5 * time.Second
)

// late holds audit events for which the database had no answer or no room, until
// it takes them. They end with the process: the log has a line for each.
type late struct {
	lost prometheus.Counter

	mu     sync.Mutex // guards events and missed
	events []Event    // oldest first
	missed int        // found no room since events were last stored
}

// some reports whether events wait.
func (l *late) some() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events) > 0
}

// hold keeps an event, unless there are too many.
func (l *late) hold(e Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.events) >= maxLate {
		l.missed++
		l.lost.Inc()
		return fault.New(fault.Exhausted, "%d audit events wait to be stored already", maxLate)
	}
	l.events = append(l.events, e)
	return nil
}

// Collect has the metrics of the audit trail collected.
func (s *Service) Collect(reg prometheus.Registerer) {
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "yunhe_identity_audit_held", Help: "Audit events that wait until the database takes writes."}, func() float64 {
		s.late.mu.Lock()
		defer s.late.mu.Unlock()
		return float64(len(s.late.events))
	})
	reg.MustRegister(held, s.late.lost)
}

// Run stores the events that wait as soon as the database takes them, until ctx
// ends, and then tries a last time.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(lateEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if err := s.storeLate(context.WithoutCancel(ctx)); err != nil {
				s.log.Error("audit events not stored: the process ends", "error", err)
			}
			return nil
		case <-tick.C:
			if err := s.storeLate(ctx); err != nil && !notNow(err) {
				s.log.Error("audit events not stored, will try again", "error", err)
			}
		}
	}
}

// storeLate stores the events that wait.
func (s *Service) storeLate(ctx context.Context) error {
	s.late.mu.Lock()
	events := s.late.events[:len(s.late.events):len(s.late.events)]
	s.late.mu.Unlock()
	if len(events) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, latePatience)
	defer cancel()
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		// Some may be there: of a commit whose answer was lost.
		_, err := tx.InsertNew(ctx, "audit_events", eventColumns, 1, eventRows(events))
		return err
	})
	if err != nil {
		return fmt.Errorf("insert %d audit events that waited: %w", len(events), err)
	}
	s.late.mu.Lock()
	missed := s.late.missed
	s.late.events, s.late.missed = s.late.events[len(events):], 0
	s.late.mu.Unlock()
	s.log.Warn("audit events stored late: the database took none", "events", len(events), "lost", missed)
	return nil
}

// notNow reports whether an error of the database may pass.
func notNow(err error) bool {
	switch fault.KindOf(err) {
	case fault.Unavailable, fault.Conflict, fault.Canceled:
		return true
	}
	return false
}
