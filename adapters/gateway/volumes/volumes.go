// Package volumes keeps files on the machine of a compute gateway that outlive
// the runs which use them.
//
// # What stays true
//
//   - A volume is there whole or not at all: what is being made, and what is
//     being deleted, has no name that counts.
//   - A volume is a folder below the one of all volumes, named by its ID. IDs are
//     letters, digits, "_" and "-", so no name leads elsewhere; and what runs
//     put into it is never looked up through links by the gateway.
//   - A volume does not go while a run has it or is being started with it.
//
// # On disk
//
//	DIR/ID/volume.json     what the volume is ([Volume])
//	DIR/ID/disk            what runs see, a file system in a file (package loopfs), or
//	DIR/ID/data/           a folder; all in it belongs to one user of the machine
//	DIR/.new-*, .trash-*   being made, being deleted: cleared when the gateway starts
//
// # Size
//
// What is written beyond the size of a volume fails, because the volume is a
// file system of that size. Its file takes the disk's room when the volume is made.
//
// A machine that keeps no file systems in files keeps a folder instead, as
// gateways before version 2 of the record did. Its size is a promise: what is in
// it is counted whenever the platform asks, and if it holds more it is given to
// no further run until it is grown or emptied. It stays a folder.
//
// All sizes together are at most what the file system has.
package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"yunhe.dev/yunhe/adapters/gateway/loopfs"
	"yunhe.dev/yunhe/internal/fault"
)

// Volume is one that is here.
type Volume struct {
	Version  int    `json:"version"`
	ID       string `json:"volume_id"`
	TenantID string `json:"tenant_id,omitempty"`
	Bytes    int64  `json:"bytes"`

	Used     int64 `json:"-"` // when it was counted last
	Known    bool  `json:"-"` // it was
	Enforced bool  `json:"-"` // the kernel bounds it
}

const (
	version    = 2 // 1 of a folder, so that gateways before 2 keep theirs
	recordFile = "volume.json"
	dataFolder = "data"
	diskFile   = "disk"
	newPrefix  = ".new-"
	trashName  = ".trash-"
	minBytes   = 1 << 20
	maxBytes   = 1 << 50
)

// Config is where volumes are and what a store asks of others.
type Config struct {
	Dir   string                             // made if missing
	Owner int                                // user of the machine to whom all in volumes belongs
	Room  func() (int64, error)              // bytes the file system has in all
	Users func(dir string) ([]string, error) // runs that have not ended and are shown something below a folder
}

// Store is a folder of volumes, for one gateway at a time. Its methods are safe for
// concurrent use.
type Store struct {
	cfg Config
	dir string // cfg.Dir by its one name
	log *slog.Logger

	// use is held shared while a run is started with volumes, alone while one
	// is deleted.
	use sync.RWMutex

	mu   sync.Mutex // guards what follows, and the records on disk
	used map[string]int64
}

// Open returns the store of a folder.
func Open(cfg Config, log *slog.Logger) (*Store, error) {
	wrap := func(err error) error {
		return fault.Wrap(fault.Unavailable, err, "the folder of volumes %s cannot be used", cfg.Dir)
	}
	abs, err := filepath.Abs(cfg.Dir)
	if err == nil {
		err = os.MkdirAll(abs, 0o700)
	}
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs) // one name for the folder: runs note it
	}
	if err != nil {
		return nil, wrap(err)
	}
	entries, err := os.ReadDir(abs)
	if err != nil {
		return nil, wrap(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), newPrefix) || strings.HasPrefix(e.Name(), trashName) {
			if err := os.RemoveAll(filepath.Join(abs, e.Name())); err != nil {
				return nil, wrap(err)
			}
		}
	}
	return &Store{cfg: cfg, dir: abs, log: log, used: map[string]int64{}}, nil
}

// Dir is the folder of all volumes.
func (s *Store) Dir() string { return s.dir }

// CheckID returns an Invalid fault if no volume can have this ID.
func CheckID(id string) error {
	ok := id != "" && len(id) <= 64
	for _, c := range []byte(id) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-')
	}
	if !ok {
		return fault.Fields(fault.Field{Path: "volume_id", Problem: fmt.Sprintf(`must be 1 to 64 letters, digits, "_" and "-", got %.80q`, id)})
	}
	return nil
}

func notHere(id string) error { return fault.New(fault.NotFound, "volume %.80q is not here", id) }

// get reads a record; s.mu is held.
func (s *Store) get(id string) (Volume, error) {
	if err := CheckID(id); err != nil {
		return Volume{}, err
	}
	b, err := os.ReadFile(filepath.Join(s.dir, id, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Volume{}, notHere(id)
	}
	var v Volume
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err == nil && (v.ID != id || v.Version < 1 || v.Version > version) {
		err = fmt.Errorf("it is of volume %q in version %d", v.ID, v.Version)
	}
	if err != nil {
		return Volume{}, fault.Wrap(fault.Unavailable, err, "the record of volume %s cannot be read", id)
	}
	v.Enforced = v.Version > 1
	v.Used, v.Known = s.used[id], s.counted(id)
	return v, nil
}

// source is what runs are shown of a volume.
func (s *Store) source(v Volume) string {
	if v.Enforced {
		return filepath.Join(s.dir, v.ID, diskFile)
	}
	return filepath.Join(s.dir, v.ID, dataFolder)
}

// Get returns a volume; NotFound if it is not here.
func (s *Store) Get(id string) (Volume, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(id)
}

func (s *Store) counted(id string) bool { _, ok := s.used[id]; return ok }

// ids lists what is here; s.mu is held.
func (s *Store) ids() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the folder of volumes cannot be read")
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && CheckID(e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// List returns the volumes there are, by ID, and counts what is in them. One
// that cannot be read makes the whole an error: half an answer would make
// volumes lost.
func (s *Store) List(ctx context.Context) ([]Volume, error) {
	s.mu.Lock()
	ids, err := s.ids()
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var list []Volume
	for _, id := range ids {
		v, err := s.look(ctx, id)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		switch {
		case err == nil:
			list = append(list, v)
		case fault.KindOf(err) != fault.NotFound: // else deleted meanwhile
			return nil, err
		}
	}
	return list, nil
}

// look returns a volume with what is in it now.
func (s *Store) look(ctx context.Context, id string) (Volume, error) {
	v, err := s.Get(id)
	if err != nil {
		return Volume{}, err
	}
	used, counted := int64(0), false
	if v.Enforced {
		room, err := loopfs.Look(s.source(v))
		if used, counted = min(max(0, v.Bytes-room.Free), v.Bytes), err == nil; err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("what is in a volume cannot be read", "volume_id", id, "error", err)
		}
	} else {
		used, counted = count(ctx, s.source(v))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, err = s.get(id); err == nil && counted {
		s.used[id] = used
	}
	v.Used, v.Known = used, counted
	return v, err
}

// count adds up what a folder's files take on the disk. Files come and go meanwhile.
func count(ctx context.Context, dir string) (total int64, ok bool) {
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			var st fs.FileInfo
			if st, err = e.Info(); err == nil {
				total += allocated(st)
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return total, err == nil
}

// Ensure makes a volume, or grows it, of at least [loopfs.MinBytes]; one that is larger is left as it is. It
// returns Exhausted if the file system has no room for all that is promised,
// and Invalid for a bad ID or size.
func (s *Store) Ensure(ctx context.Context, id, tenantID string, bytes int64) (Volume, error) {
	if err := CheckID(id); err != nil {
		return Volume{}, err
	}
	if bytes < minBytes || bytes > maxBytes {
		return Volume{}, fault.Fields(fault.Field{Path: "bytes", Problem: fmt.Sprintf("must be %d to %d, got %d", minBytes, maxBytes, bytes)})
	}
	bytes = max(bytes, loopfs.MinBytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.get(id)
	there := err == nil
	if !there && fault.KindOf(err) != fault.NotFound {
		return Volume{}, err
	}
	if there && v.Bytes >= bytes {
		return v, nil
	}
	if err := s.checkRoom(bytes - v.Bytes); err != nil {
		return Volume{}, err
	}
	if there {
		err = s.grow(ctx, v, bytes)
	} else {
		err = s.make(ctx, Volume{Version: version, ID: id, TenantID: tenantID, Bytes: bytes})
	}
	if err == nil {
		v, err = s.get(id)
	}
	var f *fault.Error
	if err != nil && !errors.As(err, &f) {
		err = fault.Wrap(fault.Unavailable, err, "volume %s cannot be made here", id)
	}
	return v, err
}

func (s *Store) grow(ctx context.Context, v Volume, bytes int64) error {
	if v.Enforced {
		if err := loopfs.Grow(ctx, s.source(v), bytes); err != nil {
			return err
		}
		delete(s.used, v.ID) // what was counted is from before; it is when the platform asks next
	}
	v.Bytes = bytes
	return s.write(filepath.Join(s.dir, v.ID), v)
}

// checkRoom fails if the file system cannot hold what is promised and more;
// s.mu is held.
func (s *Store) checkRoom(more int64) error {
	ids, err := s.ids()
	if err != nil {
		return err
	}
	total, err := s.cfg.Room()
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "the size of the file system cannot be read")
	}
	promised := int64(0)
	for _, id := range ids {
		v, err := s.get(id)
		if err != nil {
			return err
		}
		promised += v.Bytes
	}
	if promised+more > total {
		return fault.New(fault.Exhausted, "there is no room: the file system has %d bytes, %d are promised to volumes, %d more are asked for", total, promised, more)
	}
	return nil
}

// write replaces a record, durably.
func (s *Store) write(dir string, v Volume) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, recordFile+".new")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, recordFile)); err != nil {
		return err
	}
	return syncFolder(dir)
}

// make makes a volume under a name that does not count and gives it its own.
func (s *Store) make(ctx context.Context, v Volume) error {
	dir, err := os.MkdirTemp(s.dir, newPrefix)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // not there any more if all went well
	disk := filepath.Join(dir, diskFile)
	err = loopfs.Make(ctx, disk, s.cfg.Owner, v.Bytes)
	if errors.Is(err, loopfs.ErrCannot) {
		s.log.Warn("the kernel does not bound a volume here", "volume_id", v.ID, "error", err)
		v.Version = 1
		data := filepath.Join(dir, dataFolder)
		err = errors.Join(os.RemoveAll(disk), os.Mkdir(data, 0o700), os.Chown(data, s.cfg.Owner, s.cfg.Owner))
	}
	if err == nil {
		err = s.write(dir, v)
	}
	if err != nil {
		return err
	}
	if err := os.Rename(dir, filepath.Join(s.dir, v.ID)); err != nil {
		return err
	}
	s.used[v.ID] = 0
	return syncFolder(s.dir)
}

// Remove deletes a volume; one that is not here is deleted. It returns Conflict
// while a run has it.
func (s *Store) Remove(id string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	s.use.Lock()
	defer s.use.Unlock()
	dir := filepath.Join(s.dir, id)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	running, err := s.cfg.Users(dir)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "what uses volume %s cannot be found out", id)
	}
	if len(running) > 0 {
		slices.Sort(running)
		return fault.New(fault.Conflict, "volume %s is in use by %s", id, strings.Join(running[:min(3, len(running))], ", "))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	trash, err := os.MkdirTemp(s.dir, trashName)
	if err == nil {
		err = os.Rename(dir, filepath.Join(trash, "volume"))
	}
	if err == nil {
		err = syncFolder(s.dir)
	}
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "volume %s cannot be deleted", id)
	}
	delete(s.used, id)
	if err := os.RemoveAll(trash); err != nil { // the next start clears it
		return fault.Wrap(fault.Unavailable, err, "volume %s is deleted, but not all of its room is free", id)
	}
	return nil
}

// Use returns what runs are shown of volumes, by ID, and keeps them from being deleted
// until done is called, once. It returns NotFound if one is not here and
// Conflict if one holds more than its size.
func (s *Store) Use(ids []string) (sources map[string]string, done func(), err error) {
	s.use.RLock()
	defer func() {
		if err != nil {
			s.use.RUnlock()
		}
	}()
	sources = map[string]string{}
	for _, id := range ids {
		v, err := s.Get(id)
		if err != nil {
			return nil, nil, err
		}
		if v.Known && v.Used > v.Bytes {
			return nil, nil, fault.New(fault.Conflict, "volume %s holds %d bytes, more than its size of %d: grow or empty it", id, v.Used, v.Bytes)
		}
		sources[id] = s.source(v)
	}
	return sources, s.use.RUnlock, nil
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
