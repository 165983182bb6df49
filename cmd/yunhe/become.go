package main

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/release"
)

// A platform in one process is upgraded by itself: it ends, and goes on as
// another program, with the arguments it was started with. If that does not come
// up, it is the program before again.
const (
	previousEnv = "YUNHE_PREVIOUS_PROGRAM"
	backEnv     = "YUNHE_PROGRAM_PROBLEM" // why the program after this did not come up
)

// itselfProgram is what this process is, and may become.
type itselfProgram struct {
	sum    string
	folder release.Folder
	back   string
	stop   func()

	mu   sync.Mutex // guards next
	next string
}

// itself returns the program of a platform that is one process; nil if it is not.
func itself(cfg app.Config, stop func()) *itselfProgram {
	sum, err := release.Self()
	if err != nil || cfg.Database.URL != "" {
		return nil
	}
	p := &itselfProgram{sum: sum, folder: release.Folder(filepath.Join(cfg.Data, "programs")), back: os.Getenv(backEnv), stop: stop}
	_ = os.Unsetenv(backEnv)
	return p
}

func (p *itselfProgram) Sum() string            { return p.sum }
func (p *itselfProgram) Folder() release.Folder { return p.folder }
func (p *itselfProgram) Back() string           { return p.back }

func (p *itselfProgram) Become(path string) {
	p.mu.Lock()
	p.next = path
	p.mu.Unlock()
	p.stop()
}

// replaced goes on as the next program, if there is one; it then does not return.
func (p *itselfProgram) replaced() error {
	p.mu.Lock()
	next := p.next
	p.mu.Unlock()
	if next == "" {
		return nil
	}
	exe := p.folder.Path(p.sum) // kept there: where it was installed another may be by now
	err := execute(next, previousEnv+"="+exe)
	if e := p.folder.Fail(err.Error()); e != nil {
		return e
	}
	return execute(exe, backEnv+"="+err.Error())
}

// cameUp says whether the platform did; if not, and another program became this
// one, it is that again.
func (p *itselfProgram) cameUp(err error) error {
	was := os.Getenv(previousEnv)
	_ = os.Unsetenv(previousEnv)
	if err == nil || was == "" {
		return err
	}
	if e := p.folder.Fail(err.Error()); e != nil {
		return e
	}
	return execute(was, backEnv+"="+err.Error())
}

// execute goes on as another program; it returns only if it cannot.
func execute(path string, env ...string) error {
	err := syscall.Exec(path, append([]string{path}, os.Args[1:]...), append(os.Environ(), env...))
	return fault.Wrap(fault.Invalid, err, "%s cannot be run", path)
}

// upgraded goes on as what the process was upgraded to, if the program that it was
// started as is not that; it then does not return.
func upgraded(folder release.Folder) error {
	self, err := release.Self()
	if err != nil {
		return nil //nolint:nilerr // it was never upgraded by itself
	}
	next, err := folder.Successor(self)
	if err != nil || next == "" {
		return err
	}
	return execute(next)
}
