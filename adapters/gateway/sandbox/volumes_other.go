//go:build !linux

package sandbox

import (
	"errors"
	"os"

	"yunhe.dev/yunhe/internal/fault"
)

func mapUser([]string, int, int) (*os.File, error) { return nil, errors.ErrUnsupported }

// CanMapVolumes says that volumes need Linux.
func (s *Sandbox) CanMapVolumes(string) error {
	return fault.New(fault.Unimplemented, "volumes need Linux")
}
