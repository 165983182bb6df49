package backup_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/backup"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/samples"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func silent(int64, int64) {}

// platform is what a platform keeps: a database in which number n has the
// object n, samples, and keys.
type platform struct {
	dir string
	db  *db.DB
	src backup.Source
}

func newPlatform(t *testing.T) *platform {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	d, err := db.Open(t.Context(), db.Config{URL: filepath.Join(dir, "yunhe.db")}, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return fill(t, dir, d, filepath.Join(dir, "yunhe.db"))
}

func fill(t *testing.T, dir string, d *db.DB, address string) *platform {
	t.Helper()
	must(t, d.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `CREATE TABLE numbers (n BIGINT PRIMARY KEY, word TEXT NOT NULL)`)
		return err
	}))
	must(t, os.MkdirAll(filepath.Join(dir, "objects", "objects"), 0o700))
	must(t, os.MkdirAll(filepath.Join(dir, "bus"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "bus", "keys.json"), []byte("{}"), 0o600))
	return &platform{dir, d, backup.Source{
		Database: address, Objects: filepath.Join(dir, "objects"), Stage: filepath.Join(dir, "stage"),
		Keys: map[string]string{"bus/keys.json": filepath.Join(dir, "bus", "keys.json"), "admin.key": filepath.Join(dir, "admin.key")},
	}}
}

// add writes the object of n and then n.
func (p *platform) add(ctx context.Context, n int) error {
	path := filepath.Join(p.dir, "objects", "objects", fmt.Sprint(n))
	if err := os.WriteFile(path+".part", fmt.Appendf(nil, "object %d", n), 0o600); err != nil {
		return err
	}
	if err := os.Rename(path+".part", path); err != nil {
		return err
	}
	return p.db.Tx(ctx, func(tx *db.Tx) error {
		return tx.Insert(ctx, "numbers", []string{"n", "word"}, [][]any{{n, strings.Repeat(fmt.Sprint(n), 50)}})
	})
}

// numbers reads how many rows there are, and that each has its object.
func numbers(t *testing.T, dir string, d *db.DB) int {
	t.Helper()
	var all []int64
	must(t, d.View(t.Context(), func(tx *db.Tx) error {
		return tx.Query(t.Context(), `SELECT n FROM numbers ORDER BY n`, nil, func(row db.Row) error {
			var n int64
			err := row.Scan(&n)
			all = append(all, n)
			return err
		})
	}))
	for _, n := range all {
		body, err := os.ReadFile(filepath.Join(dir, "objects", "objects", fmt.Sprint(n)))
		if err != nil || string(body) != fmt.Sprintf("object %d", n) {
			t.Fatalf("number %d has the object %q, %v", n, body, err)
		}
	}
	return len(all)
}

func repository(t *testing.T) (*backup.Repository, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "backup")
	r, err := backup.Create(dir)
	must(t, err)
	return r, dir
}

// What is kept while the platform writes belongs together: each number that is
// restored has its object.
func TestWhileRunning(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, p *platform, empty func() string) {
		r, _ := repository(t)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		sure := make(chan struct{})
		wg.Go(func() {
			for n := 0; n < 1000 && ctx.Err() == nil; n++ {
				if err := p.add(ctx, n); err != nil && ctx.Err() == nil {
					t.Errorf("add %d: %v", n, err)
					return
				}
				if n == 20 {
					close(sure)
				}
			}
		})
		<-sure
		for range 3 {
			s, err := r.Take(t.Context(), p.src, backup.Options{Program: "test"})
			must(t, err)
			to, address := filepath.Join(t.TempDir(), "new"), empty()
			must(t, r.Restore(t.Context(), s, to, address, silent))
			if address == "" {
				address = filepath.Join(to, "yunhe.db")
			}
			d, err := db.Open(t.Context(), db.Config{URL: address}, slog.New(slog.DiscardHandler))
			must(t, err)
			if n := numbers(t, to, d); n < 20 {
				t.Errorf("%d numbers restored, want those before the backup too", n)
			}
			must(t, d.Close())
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		check(t, newPlatform(t), func() string { return "" })
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		address := enginetest.Postgres(t)
		d, err := db.Open(t.Context(), db.Config{URL: address}, slog.New(slog.DiscardHandler))
		must(t, err)
		t.Cleanup(func() { _ = d.Close() })
		p := fill(t, filepath.Join(t.TempDir(), "data"), d, address)
		check(t, p, func() string { return enginetest.Postgres(t) })
	})
}

// A snapshot costs what changed since the one before.
func TestIncremental(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	r, _ := repository(t)
	must(t, p.db.Tx(t.Context(), func(tx *db.Tx) error {
		for n := range 2000 {
			if err := tx.Insert(t.Context(), "numbers", []string{"n", "word"}, [][]any{{-n - 1, strings.Repeat(fmt.Sprint("word", n), 500)}}); err != nil {
				return err
			}
		}
		return nil
	}))
	must(t, p.add(t.Context(), 1))
	first, err := r.Take(t.Context(), p.src, backup.Options{})
	must(t, err)
	if first.Bytes < 5e6 || first.NewBytes != first.Bytes || first.StoredBytes >= first.NewBytes {
		t.Errorf("first: %d bytes, %d new, %d stored", first.Bytes, first.NewBytes, first.StoredBytes)
	}
	must(t, p.add(t.Context(), 2))
	second, err := r.Take(t.Context(), p.src, backup.Options{})
	must(t, err)
	if second.NewBytes > first.Bytes/4 || second.NewBytes == 0 {
		t.Errorf("second: %d new bytes of %d after one row", second.NewBytes, second.Bytes)
	}
	full, err := r.Take(t.Context(), p.src, backup.Options{Full: true})
	must(t, err)
	if full.NewBytes != full.Bytes {
		t.Errorf("full: %d written of %d", full.NewBytes, full.Bytes)
	}

	// Old ones go, with what only they had; what others have stays.
	snapshots, chunks, bytes, err := r.Prune(t.Context(), 1)
	must(t, err)
	if snapshots != 2 || chunks == 0 || bytes == 0 {
		t.Errorf("pruned %d snapshots, %d chunks, %d bytes", snapshots, chunks, bytes)
	}
	to := filepath.Join(t.TempDir(), "new")
	must(t, r.Restore(t.Context(), full, to, "", silent))
	if err := r.Restore(t.Context(), full, to, "", silent); fault.KindOf(err) != fault.Conflict {
		t.Errorf("restore over something: %v, want a conflict", err)
	}
	if b, err := os.ReadFile(filepath.Join(to, "bus", "keys.json")); err != nil || string(b) != "{}" {
		t.Errorf("keys: %q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(to, "admin.key")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key that was not there: %v", err)
	}
	if all, err := r.Snapshots(); err != nil || len(all) != 1 || all[0].ID != full.ID {
		t.Errorf("snapshots after pruning: %v, %v", all, err)
	}
}

func TestDamage(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	r, dir := repository(t)
	must(t, p.add(t.Context(), 7))
	s, err := r.Take(t.Context(), p.src, backup.Options{})
	must(t, err)
	check := func() []backup.Damage {
		_, damage, err := r.Verify(t.Context(), []backup.Snapshot{s}, func(int, int) {})
		must(t, err)
		return damage
	}
	if d := check(); len(d) != 0 {
		t.Fatalf("new: %v", d)
	}
	var object backup.File
	for _, f := range s.Files {
		if f.Path == "objects/objects/7" {
			object = f
		}
	}
	if len(object.Chunks) != 1 {
		t.Fatalf("the object is %v", object)
	}
	chunk := filepath.Join(dir, "chunks", object.Chunks[0][:2], object.Chunks[0])
	whole, err := os.ReadFile(chunk)
	must(t, err)
	for what, body := range map[string][]byte{"cut": whole[:len(whole)-1], "changed": append([]byte{whole[0] ^ 1}, whole[1:]...), "empty": nil} {
		must(t, os.WriteFile(chunk, body, 0o600))
		if d := check(); len(d) != 1 || d[0].Path != object.Path || d[0].Snapshot != s.ID {
			t.Errorf("%s: %v, want %s named", what, d, object.Path)
		}
		to := filepath.Join(t.TempDir(), "new")
		if err := r.Restore(t.Context(), s, to, "", silent); fault.KindOf(err) != fault.Internal || !strings.Contains(err.Error(), object.Path) {
			t.Errorf("%s: restored: %v", what, err)
		}
		if left, err := os.ReadDir(filepath.Dir(to)); err != nil || len(left) != 0 {
			t.Errorf("%s: a failed restore leaves %v, %v", what, left, err)
		}
	}
	must(t, os.Remove(chunk))
	if d := check(); len(d) != 1 {
		t.Errorf("gone: %v", d)
	}
	if _, err := r.Take(t.Context(), p.src, backup.Options{Full: true}); err != nil {
		t.Fatal(err)
	}
	if d := check(); len(d) != 0 {
		t.Errorf("after a full one: %v", d)
	}
	list := filepath.Join(dir, "snapshots", s.ID+".json")
	body, err := os.ReadFile(list)
	must(t, err)
	must(t, os.WriteFile(list, []byte(strings.Replace(string(body), "objects/7", "objects/8", 1)), 0o600))
	if _, err := r.Snapshot(s.ID); fault.KindOf(err) != fault.Internal {
		t.Errorf("a changed list: %v, want it told", err)
	}
	// Nothing is removed while it is not known what is needed; what comes is kept.
	if _, _, _, err := r.Prune(t.Context(), 1); fault.KindOf(err) != fault.Internal {
		t.Errorf("prune with a damaged list: %v", err)
	}
	if _, err := r.Take(t.Context(), p.src, backup.Options{}); err != nil {
		t.Errorf("another snapshot: %v", err)
	}
}

// What was stopped in the middle leaves no snapshot, and the next one goes well.
func TestStopped(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	r, dir := repository(t)
	for n := range 30 {
		must(t, p.add(t.Context(), n))
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := r.Take(ctx, p.src, backup.Options{Told: func(_ string, bytes int64) {
		if bytes > 100 {
			cancel()
		}
	}})
	if err == nil {
		t.Fatal("a canceled backup ended well")
	}
	if all, err := r.Snapshots(); err != nil || len(all) != 0 {
		t.Errorf("it left %v, %v", all, err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "tmp", "rest"), []byte("of one that was killed"), 0o600))
	must(t, os.MkdirAll(filepath.Join(p.src.Stage, "rest"), 0o700))
	s, err := r.Take(t.Context(), p.src, backup.Options{})
	must(t, err)
	if _, err := os.Stat(p.src.Stage); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the stage is left: %v", err)
	}
	if _, _, _, err := r.Prune(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(left) != 0 {
		t.Errorf("pruning leaves %v, %v", left, err)
	}
	to := filepath.Join(t.TempDir(), "new")
	must(t, os.MkdirAll(to+".restoring", 0o700)) // of one that was killed
	must(t, r.Restore(t.Context(), s, to, "", silent))
}

func TestOneWriter(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	r, dir := repository(t)
	tried := sync.OnceFunc(func() {
		other, err := backup.Open(dir)
		must(t, err)
		if _, err := other.Take(t.Context(), p.src, backup.Options{}); fault.KindOf(err) != fault.Conflict {
			t.Errorf("two at once: %v, want a conflict", err)
		}
	})
	_, err := r.Take(t.Context(), p.src, backup.Options{Told: func(string, int64) { tried() }})
	must(t, err)
}

func TestRefused(t *testing.T) {
	t.Parallel()
	if _, err := backup.Open(t.TempDir()); fault.KindOf(err) != fault.NotFound {
		t.Errorf("no backup: %v", err)
	}
	other := t.TempDir()
	must(t, os.WriteFile(filepath.Join(other, "x"), nil, 0o600))
	if _, err := backup.Create(other); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a folder of others: %v", err)
	}
	r, dir := repository(t)
	if _, err := r.Snapshot(backup.Latest); fault.KindOf(err) != fault.NotFound {
		t.Errorf("latest of none: %v", err)
	}
	for _, id := range []string{"x", "../" + filepath.Base(dir), ""} {
		if _, err := r.Snapshot(id); fault.KindOf(err) != fault.NotFound {
			t.Errorf("snapshot %q: %v", id, err)
		}
	}
	if _, _, _, err := r.Prune(t.Context(), 0); fault.KindOf(err) != fault.Invalid {
		t.Errorf("keep none: %v", err)
	}
	gone := backup.Source{Database: filepath.Join(t.TempDir(), "yunhe.db"), Stage: filepath.Join(t.TempDir(), "stage")}
	if _, err := r.Take(t.Context(), gone, backup.Options{}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("no database: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "yunhe-backup.json"), []byte(`{"format":2}`), 0o600))
	if _, err := backup.Open(dir); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a newer format: %v", err)
	}
}

// The store of samples is in use while it is copied.
func TestSamples(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.src.Samples = filepath.Join(p.dir, "samples")
	store, err := samples.Open(samples.Config{URL: p.src.Samples, Retention: 24 * time.Hour}, slog.New(slog.DiscardHandler), time.Now)
	must(t, err)
	defer store.Close()
	at := time.Now().Add(-time.Minute).Truncate(time.Second)
	for i := range 30 {
		_, err := store.Append(t.Context(), []samples.Sample{{Name: "load", Labels: samples.L("node", fmt.Sprint(i%3)), At: at.Add(time.Duration(i) * time.Second), Value: float64(i)}})
		must(t, err)
	}
	r, _ := repository(t)
	s, err := r.Take(t.Context(), p.src, backup.Options{})
	must(t, err)
	to := filepath.Join(t.TempDir(), "new")
	must(t, r.Restore(t.Context(), s, to, "", silent))
	copied, err := samples.Open(samples.Config{URL: filepath.Join(to, "samples"), Retention: 24 * time.Hour}, slog.New(slog.DiscardHandler), time.Now)
	must(t, err)
	defer copied.Close()
	got, err := copied.Query(t.Context(), "sum(load)", at.Add(30*time.Second))
	must(t, err)
	if len(got) != 1 || got[0].Points[0].Value != 27+28+29 {
		t.Errorf("restored samples: %v, want the sum of the last three, 84", got)
	}
}

// Postgres refuses what is not empty and leaves it as it is.
func TestPostgresRefused(t *testing.T) {
	t.Parallel()
	address := enginetest.Postgres(t)
	d, err := db.Open(t.Context(), db.Config{URL: address}, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	p := fill(t, filepath.Join(t.TempDir(), "data"), d, address)
	r, _ := repository(t)
	s, err := r.Take(t.Context(), p.src, backup.Options{})
	must(t, err)
	to := filepath.Join(t.TempDir(), "new")
	if err := r.Restore(t.Context(), s, to, "", silent); fault.KindOf(err) != fault.Invalid {
		t.Errorf("without a database: %v", err)
	}
	if err := r.Restore(t.Context(), s, to, address, silent); fault.KindOf(err) != fault.Conflict {
		t.Errorf("into the one it is of: %v", err)
	}
	if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it leaves a folder: %v", err)
	}
	bad := p.src
	bad.Database = "postgres://nobody:hunter2@127.0.0.1:1/none"
	if _, err := r.Take(t.Context(), bad, backup.Options{}); fault.KindOf(err) != fault.Unavailable || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("no server: %v", err)
	}
}
