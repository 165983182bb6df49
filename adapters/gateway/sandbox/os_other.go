//go:build !linux

package sandbox

import (
	"errors"
	"os"
	"syscall"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
	"yunhe.dev/yunhe/internal/fault"
)

// process is never made here: checkHost refuses first.
type process struct{}

var errNotLinux = errors.New("not Linux")

func checkHost() error {
	return fault.New(fault.Unimplemented, "isolating jobs needs Linux; run the gateway on a Linux machine")
}

func deviceNumber(os.FileInfo) (major, minor uint32) { return 0, 0 }

func spawn(_, _ []string, _, _, _, _ *os.File) (*process, error) { return nil, errNotLinux }
func find(runner.Started) (*process, error)                      { return nil, errNotLinux }
func (p *process) wait() error                                   { return errNotLinux }
func (p *process) terminate() error                              { return errNotLinux }
func (p *process) close()                                        {}
func tryLock(*os.File) (bool, error)                             { return false, errNotLinux }

func monotonic() time.Duration                           { return 0 }
func openTerminal(uint32) (ours, side *os.File, _ error) { return nil, nil, errNotLinux }
func resizeTerminal(*os.File, uint16, uint16) error      { return errNotLinux }

var ownSession *syscall.SysProcAttr
