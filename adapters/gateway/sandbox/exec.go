package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
	"yunhe.dev/yunhe/internal/fault"
)

// ExecSpec is a command to be run beside a run's own.
type ExecSpec struct {
	Args          []string // program and arguments; a name without slash is looked up in PATH
	Terminal      bool     // give it a terminal
	Columns, Rows uint16   // of the terminal
}

// Exec is a command that runs beside a run's own: in the same namespaces and
// control groups, as the same user, behind the same filter, within the same
// limits. It ends with the run. A process of the host next to the runner
// watches over it, and kills it when the gateway dies.
type Exec struct {
	// Output and ErrorOutput are what it writes. They end when the command
	// has ended, also if what it left in the background still could write;
	// with a terminal all comes by Output and ErrorOutput is at its end.
	Output, ErrorOutput io.Reader

	id       string
	terminal bool
	input    *os.File
	request  *os.File // its end has the command killed
	files    []*os.File

	ended chan struct{} // closed when code and err are there
	code  int
	err   error
	over  atomic.Bool

	close sync.Once
}

// outputWait is how long output may fail to come once the command has ended:
// what it wrote is there by then.
const outputWait = 250 * time.Millisecond

// Exec starts a command beside the run's own and returns when it runs. The
// caller closes it. Errors are faults: NotFound for a run that is not known,
// Conflict for one that does not run or stands still, Unimplemented for one
// started by a gateway of before there was Exec, Invalid for a bad command or
// one that cannot be run.
func (s *Sandbox) Exec(ctx context.Context, id string, spec ExecSpec) (*Exec, error) {
	r, err := s.Get(id)
	if err != nil {
		return nil, err
	}
	if err := r.checkRunning(); err != nil {
		return nil, err
	}
	if r.Paused() {
		return nil, fault.New(fault.Conflict, "run %s is paused", id)
	}
	var v violations
	Spec{Args: spec.Args}.validateCommand(&v)
	if err := fault.Fields(v...); err != nil {
		return nil, err
	}
	if old, err := runner.ReadSpec(r.dir); err == nil && old.Version < 3 {
		return nil, fault.New(fault.Unimplemented, "run %s was started by an older gateway, which had no way to run commands in it", id)
	}
	x := &Exec{id: id, terminal: spec.Terminal, ended: make(chan struct{})}
	if err := x.start(ctx, s, r, spec); err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

func (x *Exec) start(ctx context.Context, s *Sandbox, r *Run, spec ExecSpec) error {
	wrap := func(err error) error {
		return fault.Wrap(fault.Unavailable, err, "a command in run %s cannot be started on this machine now", r.id)
	}
	var theirs [3]*os.File
	var err error
	if spec.Terminal {
		theirs, err = x.openTerminal(r.uid, spec)
	} else {
		theirs, err = x.openPipes()
	}
	defer closeAll(theirs[:]...)
	if err != nil {
		return wrap(err)
	}
	requestRead, requestWrite, err := os.Pipe()
	if err != nil {
		return wrap(err)
	}
	defer requestRead.Close()
	x.request = requestWrite
	statusRead, statusWrite, err := os.Pipe()
	if err != nil {
		return wrap(err)
	}
	x.files = append(x.files, statusRead)
	defer statusWrite.Close()
	c := exec.Command(s.runner[0], append(s.runner[1:len(s.runner):len(s.runner)], "exec", r.dir)...)
	c.Dir, c.Env, c.Stdin, c.Stdout, c.Stderr = "/", runnerEnv, theirs[0], theirs[1], theirs[2]
	c.ExtraFiles = []*os.File{requestRead, statusWrite} // descriptors 3 and 4
	c.SysProcAttr = ownSession
	if err := c.Start(); err != nil {
		return wrap(err)
	}
	statusWrite.Close()
	requestRead.Close()
	closeAll(theirs[:]...)
	status := make(chan runner.ExecStatus, 2)
	// Nobody waits for this one: a command that stands still with its run does
	// not end before the run goes on, and its supervisor not before the command.
	go func() {
		defer close(status)
		for d := json.NewDecoder(statusRead); ; {
			var st runner.ExecStatus
			if d.Decode(&st) != nil {
				break
			}
			status <- st
		}
		_ = c.Wait() // what it had to say is said
	}()
	if err := json.NewEncoder(requestWrite).Encode(runner.ExecRequest{Argv: spec.Args, Terminal: spec.Terminal}); err != nil {
		return wrap(err)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return fault.New(fault.Unavailable, "the gateway is ending")
	case st, ok := <-status:
		if !ok {
			return wrap(errors.New("its supervisor died"))
		}
		if st.Problem != "" {
			if _, over := r.Result(); over {
				return fault.New(fault.Conflict, "run %s has ended", r.id)
			}
			return fault.New(fault.Invalid, "the command cannot be run: %s", st.Problem)
		}
	}
	s.watch.Go(func() { x.follow(s, status) })
	return nil
}

// follow waits for the command's end.
func (x *Exec) follow(s *Sandbox, status <-chan runner.ExecStatus) {
	x.err = fault.New(fault.Unavailable, "the supervisor of a command in run %s died", x.id)
	select {
	case st, ok := <-status:
		if ok && st.Ended {
			x.code, x.err = st.ExitCode, nil
		}
	case <-s.closed:
		x.Close()
		x.err = fault.New(fault.Unavailable, "the gateway is ending")
	}
	x.over.Store(true)
	for _, f := range x.files {
		_ = f.SetReadDeadline(time.Now().Add(outputWait)) // wakes who reads
	}
	close(x.ended)
}

// openPipes makes standard input, output and error.
func (x *Exec) openPipes() (theirs [3]*os.File, err error) {
	in, inWrite, err := os.Pipe()
	if err != nil {
		return theirs, err
	}
	theirs[0], x.input = in, inWrite
	out, outWrite, err := os.Pipe()
	if err != nil {
		return theirs, err
	}
	theirs[1], x.Output, x.files = outWrite, &execOutput{x, out}, append(x.files, out)
	errs, errsWrite, err := os.Pipe()
	if err != nil {
		return theirs, err
	}
	theirs[2], x.ErrorOutput, x.files = errsWrite, &execOutput{x, errs}, append(x.files, errs)
	return theirs, nil
}

// openTerminal makes a terminal and gives the command's side to its user.
func (x *Exec) openTerminal(uid uint32, spec ExecSpec) (theirs [3]*os.File, err error) {
	ours, side, err := openTerminal(uid)
	if err != nil {
		return theirs, err
	}
	x.input, x.Output, x.ErrorOutput = ours, &execOutput{x, ours}, eof{}
	x.files = append(x.files, ours)
	if spec.Columns > 0 && spec.Rows > 0 {
		err = resizeTerminal(ours, spec.Columns, spec.Rows)
	}
	return [3]*os.File{side, side, side}, err
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// execOutput reads until the command has ended and nothing more comes.
type execOutput struct {
	x *Exec
	f *os.File
}

func (o *execOutput) Read(p []byte) (int, error) {
	if o.x.over.Load() {
		_ = o.f.SetReadDeadline(time.Now().Add(outputWait)) // fails where it is closed, as the read does
	}
	n, err := o.f.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = io.EOF // no writer is left of a terminal; closed; or nothing came any more
	}
	return n, err
}

// Write gives the command input. It waits while the command does not read.
func (x *Exec) Write(p []byte) (int, error) { return x.input.Write(p) }

// CloseInput says that no more input comes. On a terminal that is what a
// person does there: end of transmission.
func (x *Exec) CloseInput() error {
	if x.terminal {
		_, err := x.input.Write([]byte{4})
		return err
	}
	return x.input.Close()
}

// Resize changes the size of the command's terminal; without one it does
// nothing.
func (x *Exec) Resize(columns, rows uint16) error {
	if !x.terminal || columns == 0 || rows == 0 {
		return nil
	}
	return resizeTerminal(x.input, columns, rows)
}

// Ended is closed when the command has ended.
func (x *Exec) Ended() <-chan struct{} { return x.ended }

// ExitCode returns the command's exit status once it has ended: 128 and the
// number of the signal if one ended it. The error is an Unavailable fault if
// nobody knows.
func (x *Exec) ExitCode() (int, error) {
	<-x.ended
	return x.code, x.err
}

// Close has the command killed if it runs, and lets go of everything.
func (x *Exec) Close() {
	x.close.Do(func() {
		closeAll(x.request, x.input)
		closeAll(x.files...)
	})
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close() // again, for some
		}
	}
}
