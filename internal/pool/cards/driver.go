//go:build linux

package cards

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Driver asks a maker's library, which runs in a process of its own from the
// first question on. It is safe for concurrent use: one asks after the other.
type Driver struct {
	Name string

	program, folder string
	env             []string

	mu    sync.Mutex // held by who asks
	runs  *process   // nil: it has to be started
	ended *process   // that was given up, and may not have ended yet
}

type process struct {
	cmd  *exec.Cmd
	in   *os.File
	out  *bufio.Reader
	file *os.File      // that out reads
	errs head          // what it says goes wrong
	done chan struct{} // closed when it has ended
}

// ErrAbsent says that this machine has no such library.
var ErrAbsent = errors.New("this machine has no such library")

// NewDriver is of the driver with a name: program is run as "PROGRAM cards NAME
// FOLDER", which is makers.Serve.
func NewDriver(name, program, folder string, env []string) *Driver {
	return &Driver{Name: name, program: program, folder: folder, env: env}
}

// Cards lists the library's cards. The error says what to do about a library
// that does not answer before ctx is done: it is ended, and the next question
// starts it again.
func (d *Driver) Cards(ctx context.Context) ([]Card, error) {
	a, err := d.ask(ctx, Request{})
	return a.Cards, err
}

// Limit sets what a card may draw.
func (d *Driver) Limit(ctx context.Context, index int, milliwatts int64) error {
	_, err := d.ask(ctx, Request{Limit: &Limit{index, milliwatts}})
	return err
}

// Hold ends the process, waits until it has ended or ctx is done, and lets nobody
// ask before it is released.
func (d *Driver) Hold(ctx context.Context) (release func()) {
	d.mu.Lock()
	d.end()
	if d.ended != nil {
		_ = d.ended.how(ctx)
	}
	return d.mu.Unlock
}

// how says how a process ended, if it does before ctx is done.
func (p *process) how(ctx context.Context) string {
	select {
	case <-p.done:
		return strings.TrimSpace(p.cmd.ProcessState.String() + " " + string(p.errs.b))
	case <-ctx.Done():
		return "its process goes on"
	}
}

// end gives the process up. The caller has the lock.
func (d *Driver) end() {
	if d.runs == nil {
		return
	}
	_ = d.runs.cmd.Process.Kill() // or it has ended
	_, _ = d.runs.in.Close(), d.runs.file.Close()
	d.ended, d.runs = d.runs, nil
}

func (d *Driver) ask(ctx context.Context, q Request) (a Answer, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.runs == nil {
		if err := d.start(); err != nil {
			return a, err
		}
	}
	p, said := d.runs, make(chan error, 1)
	go func() { // ends at latest when end closes the files
		err := json.NewEncoder(p.in).Encode(q)
		line, e := p.out.ReadBytes('\n')
		if err = errors.Join(err, e); len(line) > 0 && e == nil { // of one that ends after its answer
			err = json.Unmarshal(line, &a)
		}
		said <- err
	}()
	select {
	case err = <-said:
		if err != nil || a.Last {
			d.end()
		}
		switch {
		case err != nil:
			return Answer{}, fmt.Errorf("the library ended: %s", d.ended.how(ctx))
		case a.Absent:
			return Answer{}, ErrAbsent
		case a.Error != "":
			return Answer{}, errors.New(a.Error)
		}
		return a, nil
	case <-ctx.Done():
		d.end()
		<-said
		return Answer{}, fmt.Errorf("the library does not answer: %w", ctx.Err())
	}
}

// start starts the process. One that was killed and does not end, as happens
// when a driver of the kernel hangs, is left alone until it has.
func (d *Driver) start() error {
	if d.ended != nil {
		select {
		case <-d.ended.done:
		case <-time.After(time.Second):
			return errors.New("the library does not answer, and its process has not ended")
		}
	}
	p := &process{cmd: exec.Command(d.program, "cards", d.Name, d.folder), done: make(chan struct{})}
	theirs, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirs.Close()
	out, tells, err := os.Pipe()
	if err != nil {
		_ = in.Close()
		return err
	}
	defer tells.Close()
	p.in, p.file, p.out = in, out, bufio.NewReader(io.LimitReader(out, 1<<30))
	p.cmd.Env, p.cmd.Stdin, p.cmd.ExtraFiles, p.cmd.Stderr = d.env, theirs, []*os.File{tells}, &p.errs
	if err := p.cmd.Start(); err != nil {
		_, _ = in.Close(), out.Close()
		return err
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended is in its state
	}()
	d.runs = p
	return nil
}

// head keeps the beginning of what is written.
type head struct{ b []byte }

func (h *head) Write(p []byte) (int, error) {
	const most = 300
	h.b = append(h.b, p[:min(len(p), most-len(h.b))]...)
	return len(p), nil
}
