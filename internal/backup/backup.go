// Package backup keeps copies of a platform: its database, keys, objects and
// samples, taken while it runs.
//
// A repository is a folder. What is kept is cut into chunks of 256 KiB, each a
// compressed file named by the SHA-256 of what it holds, so a chunk that did
// not change is kept once, however many snapshots have it: each snapshot is
// whole, and costs what changed. A snapshot is a JSON file that lists files and
// their chunks, and its own name ends in its checksum.
//
// What a snapshot holds belongs together: objects are read, then the database,
// in one transaction, then the objects that came meanwhile. So each object the
// database speaks of is there, and perhaps some that it does not know. Objects
// deleted in between may be missing.
//
// A snapshot is written last, after its chunks are on the disk: what was killed
// in the middle leaves chunks that belong to nothing, and [Repository.Prune]
// removes them. A restore is made beside its place and moved there when it is
// whole. Backups hold the platform's keys, unencrypted: only their owner may
// read them, and who copies them elsewhere must see to that too.
package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/filelock"
)

// format is the version of repositories and snapshots.
const format = 1

// Snapshot says what was kept of a platform at one time.
type Snapshot struct {
	ID     string `json:"id"`
	Format int    `json:"format"`
	// Time is when the database was read.
	Time time.Time `json:"time"`
	// Program is the version of the program that wrote it.
	Program string `json:"program"`
	// Database is sqlite or postgres.
	Database string `json:"database"`
	Files    []File `json:"files,omitempty"`
	// Bytes of all files, NewBytes of the chunks no snapshot before had, and
	// StoredBytes of these on the disk, compressed.
	Bytes       int64 `json:"bytes"`
	NewBytes    int64 `json:"newBytes"`
	StoredBytes int64 `json:"storedBytes"`
	// Seconds it took.
	Seconds float64 `json:"seconds"`
}

// File is one file of a snapshot.
type File struct {
	// Path below the data folder, with slashes.
	Path     string    `json:"path"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	// Chunks are the SHA-256 of its parts, in order.
	Chunks []string `json:"chunks"`
}

// Repository is a folder that keeps snapshots.
type Repository struct {
	dir string
}

const marker = "yunhe-backup.json"

// Create opens the repository in dir, and makes it if dir does not exist or is
// empty. Kinds: Invalid if dir holds something else, Unavailable.
func Create(dir string) (*Repository, error) {
	r, err := Open(dir)
	if err == nil || fault.KindOf(err) != fault.NotFound {
		return r, err
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fault.Wrap(fault.Unavailable, err, "the folder %s cannot be read", dir)
	case len(entries) > 0:
		return nil, fault.New(fault.Invalid, "%s is not a backup and not empty: choose another folder", dir)
	}
	r = &Repository{dir}
	for _, name := range []string{"chunks", "snapshots", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, fault.Wrap(fault.Unavailable, err, "the folder %s cannot be made", dir)
		}
	}
	body, err := json.Marshal(map[string]int{"format": format})
	if err != nil {
		return nil, fmt.Errorf("mark backup: %w", err)
	}
	return r, r.write(filepath.Join(dir, marker), body)
}

// Open opens the repository in dir. Kinds: NotFound if there is none, Invalid
// if a newer program made it.
func Open(dir string) (*Repository, error) {
	body, err := os.ReadFile(filepath.Join(dir, marker))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "there is no backup in %s", dir)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the backup %s cannot be read", dir)
	}
	var m struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(body, &m); err != nil || m.Format != format {
		return nil, fault.New(fault.Invalid, "the backup %s has format %d, this program reads %d", dir, m.Format, format)
	}
	return &Repository{dir}, nil
}

// lock keeps other writers out.
func (r *Repository) lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(r.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the backup %s cannot be written", r.dir)
	}
	if err := filelock.Lock(f); err != nil {
		if errors.Is(err, filelock.ErrHeld) {
			err = fault.New(fault.Conflict, "another process writes to the backup %s: wait for its end", r.dir)
		}
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = filelock.Unlock(f) }, nil
}

// Snapshots returns the snapshots, oldest first. One that is damaged is an error.
func (r *Repository) Snapshots() ([]Snapshot, error) {
	entries, err := os.ReadDir(filepath.Join(r.dir, "snapshots"))
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the backup %s cannot be read", r.dir)
	}
	var out []Snapshot
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		s, err := r.Snapshot(id)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Snapshot) int { return a.Time.Compare(b.Time) })
	return out, nil
}

// Latest names the newest snapshot.
const Latest = "latest"

// Snapshot returns a snapshot by its ID, or the newest. Kinds: NotFound;
// Internal if it is damaged.
func (r *Repository) Snapshot(id string) (Snapshot, error) {
	if id == Latest {
		all, err := r.Snapshots()
		if err != nil {
			return Snapshot{}, err
		}
		if len(all) == 0 {
			return Snapshot{}, fault.New(fault.NotFound, "the backup %s has no snapshot yet", r.dir)
		}
		return all[len(all)-1], nil
	}
	if id != filepath.Base(id) {
		return Snapshot{}, fault.New(fault.NotFound, "the backup %s has no snapshot %q", r.dir, id)
	}
	body, err := os.ReadFile(filepath.Join(r.dir, "snapshots", id+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return Snapshot{}, fault.New(fault.NotFound, "the backup %s has no snapshot %q", r.dir, id)
	}
	if err != nil {
		return Snapshot{}, fault.Wrap(fault.Unavailable, err, "the snapshot %s cannot be read", id)
	}
	s, err := decode(body)
	if err != nil || !strings.HasSuffix(id, "-"+checksum(body)) {
		return Snapshot{}, fault.New(fault.Internal, "the snapshot %s is damaged: its checksum is not the one in its name", id)
	}
	s.ID = id
	return s, nil
}

// decode reads a snapshot and refuses one whose files would lie elsewhere.
func decode(body []byte) (s Snapshot, err error) {
	if err := json.Unmarshal(body, &s); err != nil {
		return s, fault.New(fault.Invalid, "a snapshot is not JSON: %v", err)
	}
	if s.Format != format {
		return s, fault.New(fault.Invalid, "the snapshot has format %d, this program reads %d", s.Format, format)
	}
	for _, f := range s.Files {
		if !filepath.IsLocal(filepath.FromSlash(f.Path)) || f.Size < 0 {
			return s, fault.New(fault.Invalid, "the snapshot has a file %q of %d bytes", f.Path, f.Size)
		}
		for _, c := range f.Chunks {
			if b, err := hex.DecodeString(c); err != nil || len(b) != sha256.Size || strings.ToLower(c) != c {
				return s, fault.New(fault.Invalid, "the snapshot names a chunk %q", c)
			}
		}
	}
	return s, nil
}

// keep writes a snapshot, whose chunks are on the disk.
func (r *Repository) keep(s *Snapshot) error {
	body, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	s.ID = s.Time.UTC().Format("20060102T150405.000Z") + "-" + checksum(body)
	return r.write(filepath.Join(r.dir, "snapshots", s.ID+".json"), body)
}

func checksum(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:8])
}

// Prune removes all snapshots but the newest keep (at least 1), and the chunks
// that no other has. It returns what it removed.
func (r *Repository) Prune(ctx context.Context, keep int) (snapshots, chunks int, bytes int64, err error) {
	if keep < 1 {
		return 0, 0, 0, fault.Fields(fault.Field{Path: "keep", Problem: fmt.Sprintf("must be at least 1, got %d", keep)})
	}
	unlock, err := r.lock()
	if err != nil {
		return 0, 0, 0, err
	}
	defer unlock()
	all, err := r.Snapshots()
	if err != nil {
		return 0, 0, 0, err
	}
	used := map[string]bool{}
	for i, s := range all {
		if i < len(all)-keep {
			continue
		}
		for _, f := range s.Files {
			for _, c := range f.Chunks {
				used[c] = true
			}
		}
	}
	for _, s := range all[:max(0, len(all)-keep)] {
		if err := os.Remove(filepath.Join(r.dir, "snapshots", s.ID+".json")); err != nil {
			return snapshots, 0, 0, fault.Wrap(fault.Unavailable, err, "the snapshot %s cannot be removed", s.ID)
		}
		snapshots++
	}
	if err := flush(filepath.Join(r.dir, "snapshots")); err != nil { // before what they need goes
		return snapshots, 0, 0, err
	}
	if err := empty(filepath.Join(r.dir, "tmp")); err != nil {
		return snapshots, 0, 0, err
	}
	err = r.eachChunk(ctx, func(sum, path string, size int64) error {
		if used[sum] {
			return nil
		}
		chunks++
		bytes += size
		return os.Remove(path)
	})
	return snapshots, chunks, bytes, err
}

// Damage is a chunk that is not what it was.
type Damage struct {
	Chunk   string `json:"chunk"`
	Problem string `json:"problem"`
	// Snapshot and Path of a file that needs it.
	Snapshot string `json:"snapshot"`
	Path     string `json:"path"`
}

// Verify reads everything that the snapshots need and returns what is damaged.
// told is called after each chunk with how many of all were read.
func (r *Repository) Verify(ctx context.Context, snapshots []Snapshot, told func(done, all int)) (chunks int, damage []Damage, err error) {
	need := map[string]Damage{}
	for _, s := range snapshots {
		for _, f := range s.Files {
			for _, c := range f.Chunks {
				need[c] = Damage{Chunk: c, Snapshot: s.ID, Path: f.Path}
			}
		}
	}
	order := slices.Sorted(maps.Keys(need))
	for i, sum := range order {
		if err := ctx.Err(); err != nil {
			return i, damage, err
		}
		if _, err := r.chunk(sum); err != nil {
			d := need[sum]
			d.Problem = err.Error()
			damage = append(damage, d)
		}
		told(i+1, len(order))
	}
	return len(order), damage, nil
}
