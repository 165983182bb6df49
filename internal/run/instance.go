package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/filelock"
)

// Instance is the name of a process, the same after each start with its
// folder. While it is open no other process can use the folder.
type Instance struct {
	// ID is a random part kept in the folder, and where the folder is: a copy
	// of the folder elsewhere is another instance.
	ID   string
	file *os.File
}

// OpenInstance returns the instance of the folder dir, which must exist, and
// makes it at the first start. It returns fault.Conflict if another process
// uses the folder. Close it when done; the end of the process does it too.
func OpenInstance(dir string) (*Instance, error) {
	path := filepath.Join(dir, "instance")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the data folder %s cannot be used", dir)
	}
	if err := filelock.Lock(f); err != nil {
		if errors.Is(err, filelock.ErrHeld) {
			err = fault.New(fault.Conflict, "another process uses the data folder %s: stop it, or choose another folder", dir)
		}
		return nil, errors.Join(err, f.Close())
	}
	i := &Instance{file: f}
	if err := i.name(path); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return i, nil
}

func (i *Instance) name(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this machine: %w", err)
	}
	id := core.NewID("ins")
	if was := strings.TrimSpace(string(b)); len(was) == len(id) { // else cut short by a crash
		id = was
	} else if err := errors.Join(i.file.Truncate(0), i.write(id)); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	i.ID = id + "@" + host + ":" + filepath.Dir(path)
	return nil
}

func (i *Instance) write(id string) error {
	_, err := i.file.WriteAt([]byte(id+"\n"), 0)
	return errors.Join(err, i.file.Sync())
}

// Close lets another process use the folder.
func (i *Instance) Close() error { return filelock.Unlock(i.file) }
