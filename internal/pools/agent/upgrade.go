package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/release"
)

const (
	// provesIn is how long a program that has taken over may take to reach the
	// platform, before the one that it took over from goes on.
	provesIn = time.Minute
	// leavesIn is how long is waited for tasks that move.
	leavesIn = 2 * time.Minute
	probes   = time.Minute
)

// Probe is what a program says of itself before it is to take over a node
// ("yunhe pool node probe").
type Probe struct {
	Version  string `json:"version"`
	Handover int    `json:"handover"`
	Devices  int    `json:"devices"`
}

// probe runs a program that may take over the node.
func (o *operator) probe(ctx context.Context, program string) (p Probe, err error) {
	ctx, cancel := context.WithTimeout(ctx, probes)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "pool", "node", "probe", "-o", "json")
	cmd.Env = append(os.Environ(), pool.LibrariesVariable+"="+o.node.Libraries())
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &p)
	}
	switch {
	case err != nil:
		return p, fault.Wrap(fault.Invalid, err, "the program does not run here as a pool node: %s", first(strings.TrimSpace(errs.String()), 200))
	case p.Handover != pool.HandoverFormat:
		return p, fault.New(fault.Invalid, "the program %s takes over in form %d, this node hands over in form %d: upgrade it by hand", p.Version, p.Handover, pool.HandoverFormat)
	case p.Devices == 0:
		return p, fault.New(fault.Invalid, "the program %s finds no devices here", p.Version)
	}
	return p, nil
}

// begin knows what the node is, and what came of the last attempt.
func (o *operator) begin(ctx context.Context) {
	if o.self == "" {
		return // it cannot be read: the node cannot be upgraded
	}
	s, err := o.programs.State()
	if back := o.node.GivenBack(); err == nil && back != "" {
		err = o.programs.Fail(back)
		s, _ = o.programs.State()
	}
	if err != nil {
		s.Problem = err.Error()
	}
	if s.Current != o.self && s.Problem == "" && s.Attempt > 0 {
		s = release.State{} // another was installed by hand
	}
	o.attempt, o.attemptProblem = s.Attempt, s.Problem
	if s.Fresh {
		o.work.Go(func() { o.prove(ctx, s) })
	}
}

// prove goes back if the platform is not reached in time.
func (o *operator) prove(ctx context.Context, s release.State) {
	late := time.NewTimer(provesIn)
	defer late.Stop()
	select {
	case <-ctx.Done():
	case <-o.reached:
		if err := o.programs.Proved(); err != nil {
			o.failed(s.Attempt, err)
		}
	case <-late.C:
		err := o.programs.Fail(fmt.Sprintf("it did not reach its platform within %s", provesIn))
		if err == nil {
			err = o.node.Replace(ctx, o.programs.Path(s.Previous))
		}
		o.failed(s.Attempt, err)
	}
}

func (o *operator) failed(attempt int64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.attempt == attempt && err != nil {
		o.attemptProblem = first(err.Error(), 400)
	}
	select {
	case o.say <- struct{}{}:
	default:
	}
}

// upgrade becomes another program.
func (o *operator) upgrade(ctx context.Context, to *poolv1.PoolRelease, attempt int64) {
	if to.Sha256 == o.self {
		o.failed(attempt, nil) // it is told
		return
	}
	err := o.get(ctx, to)
	if err == nil {
		_, err = o.probe(ctx, o.programs.Path(to.Sha256))
	}
	if err == nil {
		err = o.programs.Upgrade(o.self, to.Sha256, attempt)
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, leavesIn)
		defer cancel()
		err = o.node.Replace(ctx, o.programs.Path(to.Sha256)) // if it does, it does not return
		if e := o.programs.Fail(first(err.Error(), 400)); err == nil {
			err = e
		}
	}
	o.failed(attempt, err)
}

// get has the program in the folder.
func (o *operator) get(ctx context.Context, to *poolv1.PoolRelease) error {
	if o.programs.Has(to.Sha256) {
		return nil
	}
	if to.Bytes == 0 {
		return fault.New(fault.NotFound, "the program %.12s is not kept here any more", to.Sha256)
	}
	return o.programs.Add(to.Sha256, &fetched{ctx: ctx, o: o, sum: to.Sha256})
}

// fetched reads a program from the platform.
type fetched struct {
	ctx    context.Context
	o      *operator
	sum    string
	offset int64
	rest   []byte
}

const fetches = 30 * time.Second // a part

func (f *fetched) Read(b []byte) (int, error) {
	for late := tellSoon; len(f.rest) == 0; late = min(2*late, tellLate) {
		ctx, cancel := context.WithTimeout(f.ctx, fetches)
		res, err := f.o.client.FetchPoolRelease(ctx, &poolv1.FetchPoolReleaseRequest{NodeId: f.o.m.Node, Secret: f.o.m.Secret, Sha256: f.sum, Offset: f.offset})
		cancel()
		switch {
		case err == nil && len(res.Content) == 0:
			return 0, io.EOF
		case err == nil:
			f.rest, f.offset = res.Content, f.offset+int64(len(res.Content))
		case f.ctx.Err() != nil || !unavailable(err):
			return 0, err
		default:
			pause(f.ctx, late) // the platform may be upgraded itself
		}
	}
	n := copy(b, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}
