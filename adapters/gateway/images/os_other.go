//go:build !linux

package images

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"yunhe.dev/yunhe/internal/fault"
)

// syncTree writes everything below path to the disk.
func syncTree(path string) error {
	return filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() && !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

// Watch refuses: gateways run on Linux.
func (s *Store) Watch(context.Context, func()) error {
	return fault.New(fault.Unimplemented, "the folder of images can be watched on Linux only")
}
