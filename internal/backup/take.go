package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// Source says where the parts of a platform are.
type Source struct {
	// Database is the file of SQLite or the address of PostgreSQL.
	Database string
	// Keys are files: their paths in the snapshot and here. One that is not
	// there is left out.
	Keys map[string]string
	// Objects and Samples are folders; empty: they are kept elsewhere.
	Objects, Samples string
	// Stage is a folder, which need not exist, for copies on the way: on the
	// file system of Samples, with room for the database.
	Stage string
}

// Paths in snapshots.
const (
	sqlitePath   = "yunhe.db"
	postgresPath = "database.dump"
	objectsPath  = "objects"
	samplesPath  = "samples"
)

// Options of taking a snapshot.
type Options struct {
	// Program is the version to note.
	Program string
	// Full reads every object again and writes every chunk again, so that
	// what is damaged in the repository is mended.
	Full bool
	// Now is the clock; nil: the system's.
	Now func() time.Time
	// Told is called now and then with what is read and how much was; nil: nobody is.
	Told func(part string, bytes int64)
}

// Take keeps a snapshot. The platform may run. Kinds: Conflict if another
// process writes to the repository, Unavailable.
func (r *Repository) Take(ctx context.Context, src Source, opt Options) (Snapshot, error) {
	unlock, err := r.lock()
	if err != nil {
		return Snapshot{}, err
	}
	defer unlock()
	if opt.Now == nil {
		opt.Now = time.Now
	}
	began := opt.Now()
	t := &taking{w: &writing{r: r, anew: opt.Full, known: map[string]bool{}}, src: src, told: opt.Told, have: map[string]File{}}
	if last, err := r.Snapshot(Latest); err == nil && !opt.Full { // a damaged one only costs time
		for _, f := range last.Files {
			t.have[f.Path] = f
		}
	}
	if err := os.RemoveAll(src.Stage); err != nil { // left by one that was killed
		return Snapshot{}, fmt.Errorf("clear stage: %w", err)
	}
	if err := os.MkdirAll(src.Stage, 0o700); err != nil {
		return Snapshot{}, fault.Wrap(fault.Unavailable, err, "the folder %s cannot be made", src.Stage)
	}
	defer os.RemoveAll(src.Stage)

	s := Snapshot{Format: format, Program: opt.Program, Database: "sqlite"}
	database := t.sqlite
	if IsPostgres(src.Database) {
		s.Database, database = "postgres", t.postgres
	}
	for _, step := range []func(context.Context) error{
		t.objects,
		func(ctx context.Context) error { s.Time = opt.Now().UTC(); return database(ctx) },
		t.objects, t.keys, t.samples,
		func(context.Context) error { return t.w.sync() },
	} {
		if err := step(ctx); err != nil {
			return Snapshot{}, err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(t.files)) {
		f := t.files[path]
		s.Files, s.Bytes = append(s.Files, f), s.Bytes+f.Size
	}
	s.NewBytes, s.StoredBytes, s.Seconds = t.w.chunks, t.w.stored, opt.Now().Sub(began).Seconds()
	return s, r.keep(&s)
}

// IsPostgres tells an address of PostgreSQL from a path.
func IsPostgres(database string) bool {
	return strings.HasPrefix(database, "postgres://") || strings.HasPrefix(database, "postgresql://")
}

// taking is a snapshot being made.
type taking struct {
	w     *writing
	src   Source
	told  func(part string, bytes int64)
	have  map[string]File // of the snapshot before
	files map[string]File
}

func (t *taking) add(f File) {
	if t.files == nil {
		t.files = map[string]File{}
	}
	t.files[f.Path] = f
}

func (t *taking) tell(part string) {
	if t.told != nil {
		t.told(part, t.w.bytes.Load())
	}
}

// file keeps the file at from.
func (t *taking) file(ctx context.Context, path, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	out := File{Path: path, Modified: info.ModTime().UTC()}
	if out.Chunks, out.Size, err = t.w.file(ctx, f); err != nil {
		return fmt.Errorf("keep %s: %w", from, err)
	}
	t.add(out)
	return nil
}

// tree keeps the files below dir. It does not read those that look as they did
// in the snapshot before; files that go meanwhile are left out.
func (t *taking) tree(ctx context.Context, path, dir string) error {
	return filepath.WalkDir(dir, func(from string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || !d.Type().IsRegular() {
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return err
		}
		rel, err := filepath.Rel(dir, from)
		if err != nil {
			return err
		}
		name := path + "/" + filepath.ToSlash(rel)
		info, err := d.Info()
		if err == nil {
			for _, was := range []File{t.files[name], t.have[name]} {
				if was.Path != "" && was.Size == info.Size() && was.Modified.Equal(info.ModTime()) {
					t.add(was)
					return nil
				}
			}
		}
		if err == nil {
			err = t.file(ctx, name, from)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		t.tell(path)
		return err
	})
}

// objects may be read twice: what is known is not read again.
func (t *taking) objects(ctx context.Context) error {
	if t.src.Objects == "" {
		return nil
	}
	t.tell(objectsPath)
	// Beside objects there are only uploads that have not ended.
	return t.tree(ctx, objectsPath+"/objects", filepath.Join(t.src.Objects, "objects"))
}

func (t *taking) keys(ctx context.Context) error {
	for path, from := range t.src.Keys {
		if err := t.file(ctx, path, from); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault.Wrap(fault.Unavailable, err, "%s cannot be read", from)
		}
	}
	return nil
}

func (t *taking) sqlite(ctx context.Context) error {
	t.tell("database")
	stage := filepath.Join(t.src.Stage, sqlitePath)
	if err := db.CopySQLite(ctx, t.src.Database, stage); err != nil {
		return err
	}
	if err := t.file(ctx, sqlitePath, stage); err != nil {
		return err
	}
	return os.Remove(stage)
}

// samples are blocks, which never change, and a log that only grows. Both go
// when they are old: names of their own keep the files for as long as they are
// read.
func (t *taking) samples(ctx context.Context) error {
	if t.src.Samples == "" {
		return nil
	}
	t.tell(samplesPath)
	stage := filepath.Join(t.src.Stage, samplesPath)
	for range 10 {
		before, err := link(t.src.Samples, stage)
		if err != nil {
			return err
		}
		if after, err := sampleFiles(t.src.Samples); err != nil {
			return err
		} else if before == after {
			return t.tree(ctx, samplesPath, stage)
		}
		if err := os.RemoveAll(stage); err != nil {
			return err
		}
	}
	return fault.New(fault.Unavailable, "the samples in %s do not hold still", t.src.Samples)
}

// link gives the files of samples second names below stage.
func link(dir, stage string) (names string, err error) {
	names, err = sampleFiles(dir)
	if err != nil {
		return "", err
	}
	for _, name := range strings.Fields(names) {
		to := filepath.Join(stage, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return "", err
		}
		if err := os.Link(filepath.Join(dir, name), to); errors.Is(err, fs.ErrNotExist) {
			return "gone", nil
		} else if err != nil {
			return "", fault.Wrap(fault.Unavailable, err, "the samples in %s cannot be linked to %s", dir, stage)
		}
	}
	return names, nil
}

// sampleFiles lists the files of samples. What is being written under another
// name first, and chunks of the head, which the log has too, are not among them.
func sampleFiles(dir string) (string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == "chunks_head" || strings.Contains(name, ".tmp")) {
			return fs.SkipDir
		} else if d.IsDir() || !d.Type().IsRegular() || name == "lock" || strings.Contains(name, ".tmp") {
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		names = append(names, rel)
		return err
	})
	return strings.Join(names, "\n"), err
}
