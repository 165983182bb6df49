package images

import (
	"bytes"
	"context"
	"path/filepath"
)

// Unpack applies layers below folder without anything around it.
func Unpack(ctx context.Context, folder string, limits Limits, layers ...[]byte) error {
	s, err := Open(folder)
	if err != nil {
		return err
	}
	dir, held, err := s.workspace(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = held.Close() }() // read only
	u, err := newUnpacker(ctx, s.dir, filepath.Base(dir), limits)
	if err != nil {
		return err
	}
	defer u.close()
	for _, l := range layers {
		if err := u.layer(packed{bytes.NewReader(l), u}, true); err != nil {
			return err
		}
	}
	_ = u.noShell() // must end whatever links there are
	return nil
}
