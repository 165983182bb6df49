package backup

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// Restore makes the data folder dir, which must not exist or be empty, from a
// snapshot. The tables of a platform on PostgreSQL go to the database at
// address, which must be empty; address is not used for SQLite. Everything is
// checked while it is written; if something is wrong there is no dir, and the
// database is as it was. told is called with how much is written. Kinds:
// Conflict if dir or the database is not empty, Internal if the snapshot is
// damaged, Unavailable.
func (r *Repository) Restore(ctx context.Context, s Snapshot, dir, address string, told func(done, all int64)) (err error) {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fault.New(fault.Conflict, "the folder %s is not empty: a backup is restored to a new one", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(fault.Unavailable, err, "the folder %s cannot be read", dir)
	}
	if s.Database == "postgres" && !IsPostgres(address) {
		return fault.New(fault.Invalid, "the snapshot %s is of a platform on PostgreSQL: name an empty database with --database postgres://...", s.ID)
	}
	part := filepath.Clean(dir) + ".restoring"
	if err := os.RemoveAll(part); err != nil { // left by one that was killed
		return fault.Wrap(fault.Unavailable, err, "the folder %s cannot be removed", part)
	}
	if err := os.MkdirAll(part, 0o700); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the folder %s cannot be made", part)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(part)) }() // moved away if all went well
	var done int64
	for _, f := range s.Files {
		if f.Path == postgresPath {
			continue
		}
		if err := r.restoreFile(ctx, f, filepath.Join(part, filepath.FromSlash(f.Path)), func(n int) {
			done += int64(n)
			told(done, s.Bytes)
		}); err != nil {
			return err
		}
	}
	if s.Database == "sqlite" {
		if err := db.CheckSQLite(ctx, filepath.Join(part, sqlitePath)); err != nil {
			return err
		}
	} else if err := r.restorePostgres(ctx, s, address); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(fault.Unavailable, err, "the folder %s cannot be replaced", dir)
	}
	if err := os.Rename(part, dir); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the folder %s cannot be made", dir)
	}
	return flush(filepath.Dir(dir))
}

// restoreFile writes one file.
func (r *Repository) restoreFile(ctx context.Context, f File, to string, told func(n int)) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the folder of %s cannot be made", to)
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "the file %s cannot be made", to)
	}
	defer out.Close()
	if err := r.copy(ctx, f, out, told); err != nil {
		return err
	}
	if err := out.Sync(); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the file %s cannot be written", to)
	}
	return os.Chtimes(to, f.Modified, f.Modified)
}

// copy writes the chunks of a file to out.
func (r *Repository) copy(ctx context.Context, f File, out io.Writer, told func(n int)) error {
	var size int64
	for i, sum := range f.Chunks {
		if err := ctx.Err(); err != nil {
			return err
		}
		body, err := r.chunk(sum)
		if err != nil {
			return fault.New(fault.Internal, "%s cannot be restored: chunk %d of %d (%s): %v", f.Path, i+1, len(f.Chunks), sum, err)
		}
		if _, err := out.Write(body); err != nil {
			return fault.Wrap(fault.Unavailable, err, "%s cannot be written", f.Path)
		}
		size += int64(len(body))
		told(len(body))
	}
	if size != f.Size {
		return fault.New(fault.Internal, "%s cannot be restored: it has %d bytes, not %d", f.Path, size, f.Size)
	}
	return nil
}
