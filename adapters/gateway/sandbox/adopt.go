package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
	"yunhe.dev/yunhe/internal/fault"
)

var errAlive = errors.New("the runner is alive")

// settle returns the attempt's record, writing it in place of a dead runner.
// It returns errAlive if the runner holds the lock. The lock also keeps a
// runner that has only just been forked from starting the command after the
// attempt was given up: it finds the record.
func (s *Sandbox) settle(r *Run) (*runner.Exit, error) {
	if e := readExit(r.dir); e != nil {
		return e, nil
	}
	lock, err := os.Open(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		e := &runner.Exit{Reason: runner.Lost, ExitCode: -1, EndedAt: time.Now().UnixMicro(), Message: "the folder of the run was deleted"}
		return e, s.sweep(r.groups, e)
	}
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	free, err := tryLock(lock)
	if err != nil {
		return nil, err
	}
	if !free {
		return nil, errAlive
	}
	if e := readExit(r.dir); e != nil {
		return e, nil // written between our look and the lock
	}
	var e *runner.Exit
	claim, err := runner.ReadStarted(r.dir)
	switch {
	case err == nil:
		e = &runner.Exit{Reason: runner.Lost, StartedAt: claim.StartedAt, Message: "the supervisor of the run died"}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case exists(filepath.Join(r.dir, runner.StopFile)):
		e = &runner.Exit{Reason: runner.Stopped, Message: "stopped before the command ran"}
	default:
		e = &runner.Exit{Reason: runner.NeverStarted, Message: "the gateway stopped before the command ran"}
	}
	e.ExitCode, e.EndedAt = -1, time.Now().UnixMicro()
	if err := s.sweep(r.groups, e); err != nil {
		return nil, err
	}
	if e.OutputBytes, e.DroppedBytes, err = measureLog(r.dir, r.logFileBytes); err != nil {
		return nil, err
	}
	return e, runner.WriteExit(r.dir, e)
}

// readExit returns the record in dir, nil if there is none. Records are
// written whole: one that cannot be read was damaged by something else, and
// must not keep the gateway from its other runs.
func readExit(dir string) *runner.Exit {
	e, err := runner.ReadExit(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &runner.Exit{Reason: runner.Lost, ExitCode: -1, Message: "the record of how the run ended is damaged: " + err.Error()}
	}
	return e
}

// sweep ends what is left in groups, adds what it used to e, and removes
// them.
func (s *Sandbox) sweep(g runner.Groups, e *runner.Exit) error {
	if err := g.Kill(); err != nil {
		return err
	}
	if u, ok := g.Usage(); ok {
		e.CPUUsec, e.MaxMemoryBytes = u.CPUUsec, u.MaxMemoryBytes
		e.OOMKills, e.PidsLimitHits = u.OOMKills, u.PidsLimitHits
	}
	return g.Remove()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Adopt finds what an earlier gateway left: running runs are followed again,
// ended ones have their results, and attempts without a living runner are
// recorded as lost or never_started. It returns all runs known, by ID; later
// calls do the same without looking at the disk. It is called once at start;
// Start does it otherwise.
func (s *Sandbox) Adopt(ctx context.Context) ([]*Run, error) {
	if err := s.adoptOnce(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.all(), nil
}

func (s *Sandbox) adoptOnce() error {
	s.mu.Lock()
	adopted := s.adopted
	s.mu.Unlock()
	if adopted {
		return nil
	}
	s.adopt.Lock()
	defer s.adopt.Unlock()
	s.mu.Lock()
	adopted = s.adopted
	s.mu.Unlock()
	if adopted {
		return nil
	}
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "the folder of runs %s cannot be read", s.cfg.Dir)
	}
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), trashPrefix) || strings.HasPrefix(e.Name(), ".tmp-"):
			if err := os.RemoveAll(filepath.Join(s.cfg.Dir, e.Name())); err != nil {
				return fault.Wrap(fault.Unavailable, err, "the rest of a removed run cannot be deleted")
			}
		case e.IsDir() && validID(e.Name()):
			if err := s.adoptRun(e.Name()); err != nil {
				return fault.Wrap(fault.Unavailable, err, "run %s cannot be adopted", e.Name())
			}
		}
	}
	if err := s.sweepLeftovers(); err != nil {
		return fault.Wrap(fault.Unavailable, err, "left-over control groups cannot be removed")
	}
	s.mu.Lock()
	s.adopted = true
	s.mu.Unlock()
	return nil
}

// adoptRun takes over one attempt. A call after a failed Adopt finds those
// it had taken over already.
func (s *Sandbox) adoptRun(id string) error {
	s.mu.Lock()
	_, known := s.runs[id]
	s.mu.Unlock()
	if known {
		return nil
	}
	r := s.newRun(id)
	close(r.launched)
	if spec, err := runner.ReadSpec(r.dir); err == nil {
		r.uid, r.logFileBytes, r.groups, r.devices = spec.UID, spec.LogFileBytes, spec.Groups, sources(spec.Devices)
	} else {
		// Cut short by a power failure, or by the gateway's death while it
		// was being written: nothing runs then. The record will say so.
		s.log.Warn("spec of run is not readable", "run_id", id, "error", err)
		r.logFileBytes = Spec{}.withDefaults().LogFileBytes
	}
	add := func() {
		s.mu.Lock()
		s.runs[id] = r
		s.mu.Unlock()
	}
	for wait := time.Millisecond; ; wait *= 2 {
		e, err := s.settle(r)
		if err == nil {
			r.finish(e)
			add()
			return nil
		}
		if !errors.Is(err, errAlive) {
			return err
		}
		claim, err := runner.ReadStarted(r.dir)
		if err == nil {
			proc, ferr := find(claim)
			if ferr == nil {
				r.startedAt = micros(claim.StartedAt)
				if err := r.adoptPause(); err != nil {
					s.log.Warn("pauses of run are not readable; its wall time counts them", "run_id", id, "error", err)
				}
				s.mu.Lock()
				s.uids[r.uid] = id
				s.mu.Unlock()
				s.follow(r, proc)
				add()
				return nil
			}
			err = ferr
		}
		// The runner has taken the lock but not yet made its claim, or has
		// just ended: a moment later it is clear.
		if !errors.Is(err, fs.ErrNotExist) || wait > 5*time.Second {
			return fmt.Errorf("find its runner: %w", err)
		}
		time.Sleep(wait)
	}
}

// sweepLeftovers removes groups that belong to no running attempt: those of
// runs that ended while their runner could not remove them, and of attempts
// whose folder a power failure took.
func (s *Sandbox) sweepLeftovers() error {
	ids, err := s.groups.leftover()
	if err != nil {
		return err
	}
	for _, id := range ids {
		s.mu.Lock()
		r := s.runs[id]
		s.mu.Unlock()
		if r != nil {
			if _, ended := r.Result(); !ended {
				continue
			}
		}
		s.log.Warn("removing left-over control groups", "run_id", id)
		if err := s.sweep(s.groups.plan(id, Spec{}), &runner.Exit{}); err != nil {
			return err
		}
	}
	return nil
}
