// Package images keeps root file systems on the machine of a compute gateway:
// loaded from archives, without a registry, and shown to jobs read-only.
//
// # What stays true
//
//   - An image is there whole or not at all, whatever dies when. What is being
//     loaded, and what is being deleted, has no name that counts.
//   - What is there is what its digests say: the manifest, the configuration
//     and every layer, packed and unpacked, were checked on the way in.
//   - Nothing outside the folder of an image is written while it is unpacked,
//     whatever its archive holds.
//   - An image does not go while an attempt runs in it or is being started.
//   - The same file is kept once, in however many images and layers it is.
//
// # On disk
//
//	DIR/ID/image.json      what the image is ([Image])
//	DIR/ID/rootfs/         its files
//	DIR/.files/AB/CD...    every file of 4 KiB or more, a hard link named by content, time and whether it may be run
//	DIR/.tmp-*             being loaded; a lock (flock) on it says by a process that lives
//	DIR/.trash-*           being deleted
//	DIR/.lock              held while such folders are made, or cleared away after their maker died
//	DIR/.files.lock        shared by loads, which link to .files; alone by the one that clears it
//
// # Life of an image
//
//	Load: unpack into .tmp-*, syncfs ── rename ──> ID ── rename ──> .trash-* ── delete
//	                 │ kill, error                 │ Use, Watch
//	                 └── cleared by the next Load   └── Remove: refused while in use
//
// A folder called ID is complete and durable from the rename on. Load and Remove run in the
// command line's process, the gateway in another one: it hears of changes from
// the folder itself ([Store.Watch]), and a lock (flock) on DIR/ID keeps an
// image from going between the gateway's look at it and the start of the
// attempt, from when on the attempt's own folder says that it is in use.
//
// # What is taken over from an image
//
// Files: content, time, and whether the owner may run them; everyone may read
// them. An attempt runs as a user of its own, to whom the image's owners mean
// nothing, and sees whatever is in the image as the image's own user would.
// Owners, other permissions, setuid bits and extended attributes (file
// capabilities among them) are dropped. Device nodes, pipes and sockets are
// refused, except below /dev, where they are left out: attempts get a /dev of
// their own.
//
// Configuration: Env is the attempt's, below what the job sets; HOME, PWD and
// TMPDIR stay the sandbox's, because a job can write nowhere else. A job's
// command is text for /bin/sh, which every image must therefore have; it takes the place of
// Entrypoint and Cmd, as "command" does in Kubernetes. It starts in the
// folder that holds its files and that it can write to; where the image wanted to
// start is in YUNHE_IMAGE_WORKDIR. The attempt's user is called as User in the
// image's lists of users and groups, and "yunhe" where that is root or a number;
// its number is the gateway's choice.
package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// Host is the image that stands for the machine's own programs. It is not
// kept here, and no image can be called so.
const Host = "host"

// Image is one that is loaded.
type Image struct {
	Version      int       `json:"version"`
	ID           string    `json:"image_id"`
	Ref          string    `json:"ref,omitempty"` // the name its archive gave it
	Digest       string    `json:"digest"`        // of its configuration; of a plain archive, of the archive unpacked
	Format       string    `json:"format"`        // oci, docker or rootfs
	Architecture string    `json:"architecture,omitempty"`
	Layers       int       `json:"layers"`
	Files        int64     `json:"files"`
	Bytes        int64     `json:"bytes"` // of its files, each as often as it is there
	Env          []string  `json:"env,omitempty"`
	WorkingDir   string    `json:"working_dir,omitempty"`
	Entrypoint   []string  `json:"entrypoint,omitempty"` // not run, see the package comment
	Cmd          []string  `json:"cmd,omitempty"`        // not run
	User         string    `json:"user,omitempty"`       // its name is the command's
	NoShell      string    `json:"no_shell,omitempty"`   // why no command can be run in it; empty: one can
	LoadedAt     time.Time `json:"loaded_at"`
}

const (
	version    = 1
	recordFile = "image.json"
	rootFolder = "rootfs"
	filesPool  = ".files"
	tmpPrefix  = ".tmp-"
	trashName  = ".trash-"
)

// Store is a folder of images. Its methods are safe for concurrent use, also
// by several processes.
type Store struct{ dir string }

// Open returns the store in dir, which is made if missing.
func Open(dir string) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(abs, 0o700)
	}
	if err == nil {
		// One name for the folder, however it was reached: attempts note it.
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the folder of images %s cannot be used", dir)
	}
	return &Store{dir: abs}, nil
}

// CheckID returns an Invalid fault if no image can have this ID.
func CheckID(id string) error {
	var c core.Check
	c.ID("image_id", id)
	if id == Host {
		c.Add("image_id", "%q stands for the machine's own programs", Host)
	}
	return c.Err()
}

// List returns the images there are, by ID. The error says which folders
// cannot be read; the images returned are good all the same.
func (s *Store) List() ([]Image, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the folder of images %s cannot be read", s.dir)
	}
	var list []Image
	var bad []error
	for _, e := range entries {
		if !e.IsDir() || CheckID(e.Name()) != nil {
			continue
		}
		m, err := s.Get(e.Name())
		switch {
		case err == nil:
			list = append(list, m)
		case fault.KindOf(err) != fault.NotFound: // else removed meanwhile
			bad = append(bad, err)
		}
	}
	return list, errors.Join(bad...)
}

// Get returns an image. It returns NotFound if it is not here.
func (s *Store) Get(id string) (Image, error) {
	if err := CheckID(id); err != nil {
		return Image{}, err
	}
	b, err := os.ReadFile(filepath.Join(s.dir, id, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Image{}, notHere(id)
	}
	if err != nil {
		return Image{}, fault.Wrap(fault.Unavailable, err, "image %s cannot be read", id)
	}
	var m Image
	if err = json.Unmarshal(b, &m); err == nil && (m.ID != id || m.Version < 1 || m.Version > version) {
		err = fmt.Errorf("it is of image %q in version %d", m.ID, m.Version)
	}
	if err != nil {
		return Image{}, fault.Wrap(fault.Unavailable, err, "the record of image %s is damaged or of a later version; remove the image and load it again", id)
	}
	return m, nil
}

func notHere(id string) error { return fault.New(fault.NotFound, "image %q is not here", id) }

// InUse is an image that stays until Close.
type InUse struct {
	Image
	Rootfs string // the folder of its files
	held   *os.File
}

// Close lets the image go.
func (u *InUse) Close() { _ = u.held.Close() } // read only; closing drops the lock

// Environ returns what the image adds to the environment of a command in it.
func (u *InUse) Environ() map[string]string {
	env := map[string]string{}
	for _, e := range u.Env {
		k, v, ok := strings.Cut(e, "=")
		if ok && !slices.Contains([]string{"", "HOME", "PWD", "TMPDIR"}, k) {
			env[k] = v
		}
	}
	if u.WorkingDir != "" {
		env["YUNHE_IMAGE_WORKDIR"] = path.Clean("/" + u.WorkingDir)
	}
	return env
}

// Use keeps an image from being removed until the answer is closed. It
// returns NotFound if the image is not here, and Invalid if no command can be
// run in it.
func (s *Store) Use(id string) (*InUse, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, id)
	held, err := lockFolder(dir, lockShared)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notHere(id)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "image %s cannot be read", id)
	}
	m, err := s.Get(id)
	if err == nil && m.NoShell != "" {
		err = fault.New(fault.Invalid, "no command can be run in image %q: %s", id, m.NoShell)
	}
	if err != nil {
		_ = held.Close() // read only
		return nil, err
	}
	return &InUse{Image: m, Rootfs: filepath.Join(dir, rootFolder), held: held}, nil
}

// Remove deletes an image. users returns the attempts that run in a root file
// system. It returns NotFound if the image is not here and Conflict if it is
// in use.
func (s *Store) Remove(id string, users func(rootfs string) ([]string, error)) error {
	if err := CheckID(id); err != nil {
		return err
	}
	dir := filepath.Join(s.dir, id)
	held, err := lockFolder(dir, lockAlone)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return notHere(id)
	case errors.Is(err, errLocked):
		return fault.New(fault.Conflict, "image %s is in use: an attempt is being started in it", id)
	case err != nil:
		return fault.Wrap(fault.Unavailable, err, "image %s cannot be locked", id)
	}
	defer func() { _ = held.Close() }() // read only
	running, err := users(filepath.Join(dir, rootFolder))
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "what runs in image %s cannot be found out", id)
	}
	if len(running) > 0 {
		return fault.New(fault.Conflict, "image %s is in use by %s", id, some(running))
	}
	// The lock goes with the folder: nobody else clears it away.
	trash := fmt.Sprintf("%s%s-%d-%d", filepath.Join(s.dir, trashName), id, os.Getpid(), time.Now().UnixNano())
	if err := os.Rename(dir, trash); err != nil {
		return fault.Wrap(fault.Unavailable, err, "image %s cannot be removed", id)
	}
	if err := errors.Join(syncFolder(s.dir), os.RemoveAll(trash), s.clearPool()); err != nil {
		return fault.Wrap(fault.Unavailable, err, "image %s is removed, but not all of its room is free", id)
	}
	return nil
}

// some names a few of many.
func some(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

// clearPool deletes the files no image has any more, unless a load, which may
// be about to take one, goes on: then a later call does.
func (s *Store) clearPool() error {
	alone, err := lockFile(filepath.Join(s.dir, filesPool+".lock"), lockAlone)
	if errors.Is(err, errLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = alone.Close() }() // empty
	return filepath.WalkDir(filepath.Join(s.dir, filesPool), func(p string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		if links(st) == 1 {
			return os.Remove(p)
		}
		return nil
	})
}

// clear deletes what processes that died left half done.
func (s *Store) clear() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tmpPrefix) && !strings.HasPrefix(e.Name(), trashName) {
			continue
		}
		p := filepath.Join(s.dir, e.Name())
		held, err := lockFolder(p, lockAlone)
		if errors.Is(err, errLocked) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = errors.Join(os.RemoveAll(p), held.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// workspace makes a folder to load into, locked for as long as the answer is
// open, and clears away those of the dead.
func (s *Store) workspace(ctx context.Context) (dir string, held *os.File, err error) {
	// Between mkdir and flock a new folder looks like a dead process's.
	making, err := lockWait(ctx, filepath.Join(s.dir, ".lock"))
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = making.Close() }() // empty
	if err := s.clear(); err != nil {
		return "", nil, err
	}
	if dir, err = os.MkdirTemp(s.dir, tmpPrefix); err != nil {
		return "", nil, err
	}
	held, err = lockFolder(dir, lockAlone)
	return dir, held, err
}
