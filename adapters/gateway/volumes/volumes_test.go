package volumes_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/adapters/gateway/loopfs"
	"yunhe.dev/yunhe/adapters/gateway/volumes"
	"yunhe.dev/yunhe/internal/fault"
)

const mib = 1 << 20

// open returns a store of 100 MiB on dir whose volumes the named runs use.
func open(t testing.TB, dir string, running ...string) *volumes.Store {
	t.Helper()
	s, err := volumes.Open(volumes.Config{Dir: dir, Owner: os.Getuid(), Room: func() (int64, error) { return 100 * mib, nil },
		Users: func(string) ([]string, error) { return running, nil }}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func kind(t testing.TB, what string, err error, want fault.Kind) {
	t.Helper()
	if err == nil || fault.KindOf(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// source is what runs are shown of a volume.
func source(t *testing.T, s *volumes.Store, id string) string {
	t.Helper()
	sources, done, err := s.Use([]string{id})
	if err != nil {
		t.Fatal(err)
	}
	done()
	return sources[id]
}

// fill writes a file into a volume, as a run would.
func fill(t *testing.T, source, name string, bytes int) error {
	t.Helper()
	if st, err := os.Stat(source); err != nil {
		t.Fatal(err)
	} else if st.IsDir() {
		return os.WriteFile(filepath.Join(source, name), make([]byte, bytes), 0o600)
	}
	fd, err := loopfs.Mount(source)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	to, err := unix.Openat(fd, name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(to), name)
	_, err = f.Write(make([]byte, bytes))
	return errors.Join(err, f.Sync(), f.Close())
}

// folder puts a volume there as gateways made them before they kept file systems.
func folder(t *testing.T, dir, id string, bytes int64) {
	t.Helper()
	b, err := json.Marshal(volumes.Volume{Version: 1, ID: id, TenantID: "acme", Bytes: bytes})
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, id, "data"), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, id, "volume.json"), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestVolumes(t *testing.T) {
	t.Parallel()
	t.Run("as this machine keeps them", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "volumes")
		v, err := open(t, dir).Ensure(t.Context(), "vol_1", "acme", 10*mib)
		if err != nil || v.Bytes != 10*mib || v.TenantID != "acme" || !v.Known {
			t.Fatalf("made %+v, %v", v, err)
		}
		testVolumes(t, dir)
	})
	t.Run("a folder of before", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "volumes")
		folder(t, dir, "vol_1", 10*mib)
		testVolumes(t, dir)
	})
}

// testVolumes uses a folder of volumes with vol_1 of 10 MiB in it.
func testVolumes(t *testing.T, dir string) {
	s := open(t, dir)
	v, err := s.Get("vol_1")
	if err != nil {
		t.Fatal(err)
	}
	data, enforced := source(t, s, "vol_1"), v.Enforced
	if err := fill(t, data, "kept", 3*mib); err != nil {
		t.Fatal(err)
	}
	for _, bytes := range []int64{10 * mib, 5 * mib, 10 * mib} { // again, and smaller: as it is
		if v, err = s.Ensure(t.Context(), "vol_1", "acme", bytes); err != nil || v.Bytes != 10*mib {
			t.Errorf("asked again for %d: %+v, %v", bytes, v, err)
		}
	}
	s = open(t, dir) // another gateway on the same folder
	if v, err = s.Ensure(t.Context(), "vol_1", "", 20*mib); err != nil || v.Bytes != 20*mib || v.TenantID != "acme" || v.Enforced != enforced {
		t.Errorf("grown: %+v, %v", v, err)
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Used < 3*mib || list[0].Used > 4*mib || !list[0].Known {
		t.Errorf("listed %+v, %v", list, err)
	}
	_, err = s.Ensure(t.Context(), "vol_2", "", 81*mib)
	kind(t, "more than there is", err, fault.Exhausted)
	if _, err := s.Ensure(t.Context(), "vol_2", "", 80*mib); err != nil {
		t.Errorf("all there is: %v", err)
	}
	_, err = s.Ensure(t.Context(), "vol_1", "", 21*mib)
	kind(t, "grown beyond what there is", err, fault.Exhausted)
	if err := s.Remove("vol_1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove("vol_1"); err != nil {
		t.Errorf("deleted again: %v", err)
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("its files are still there: %v", err)
	}
	_, _, err = s.Use([]string{"vol_2", "vol_1"})
	kind(t, "use of one that was deleted", err, fault.NotFound)
	if err := s.Remove("vol_2"); err != nil { // the failed use let it go
		t.Error(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// What is written beyond the size of a volume fails, and the volume can still be used.
func TestBounded(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	for _, id := range []string{"full", "other"} {
		v, err := s.Ensure(t.Context(), id, "", mib)
		if err != nil {
			t.Fatal(err)
		}
		if !v.Enforced {
			t.Skip("SKIPPED: this machine keeps no file systems in files")
		}
		if v.Bytes != loopfs.MinBytes {
			t.Errorf("the smallest has %d bytes", v.Bytes)
		}
	}
	if err := fill(t, source(t, s, "full"), "big", 16*mib); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("written beyond its size: %v", err)
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) != 2 || list[0].Used != list[0].Bytes || list[1].Used != 0 {
		t.Errorf("one is full and one empty: %+v, %v", list, err)
	}
	if err := fill(t, source(t, s, "other"), "file", 3*mib); err != nil {
		t.Errorf("the other: %v", err)
	}
}

// One that the kernel does not bound and that holds more than its size is given to no further run.
func TestOverfull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	folder(t, dir, "full", mib)
	if err := fill(t, source(t, s, "full"), "big", 2*mib); err != nil {
		t.Fatal(err)
	}
	if _, err := s.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Use([]string{"full"})
	kind(t, "use of one that is too full", err, fault.Conflict)
	if _, err := s.Ensure(t.Context(), "full", "", 4*mib); err != nil {
		t.Fatal(err)
	}
	source(t, s, "full") // grown, it can be used
}

func TestIDs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	outside := filepath.Join(dir, "precious")
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	s := open(t, filepath.Join(dir, "volumes"))
	for _, id := range []string{"", ".", "..", "../precious", "a/b", ".new-1", "a\x00", "ä", strings.Repeat("x", 65)} {
		_, err := s.Ensure(t.Context(), id, "", mib)
		kind(t, "made "+id, err, fault.Invalid)
		kind(t, "deleted "+id, s.Remove(id), fault.Invalid)
		_, _, err = s.Use([]string{id})
		kind(t, "used "+id, err, fault.Invalid)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
	for _, bytes := range []int64{0, -1, mib - 1, 1<<50 + 1} {
		_, err := s.Ensure(t.Context(), "v", "", bytes)
		kind(t, "a size", err, fault.Invalid)
	}
}

// In use it stays, and while a run is being started with it deletion waits.
func TestInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := open(t, dir).Ensure(t.Context(), "v", "", mib); err != nil {
		t.Fatal(err)
	}
	err := open(t, dir, "att_1", "att_2").Remove("v")
	kind(t, "deleted in use", err, fault.Conflict)
	if !strings.Contains(err.Error(), "att_1, att_2") {
		t.Errorf("it does not say by whom: %v", err)
	}
	s := open(t, dir)
	_, done, err := s.Use([]string{"v"})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	let := make(chan struct{})
	wg.Go(func() {
		if err := s.Remove("v"); err != nil {
			t.Error(err)
		}
		select {
		case <-let:
		default:
			t.Error("it was deleted while a run was being started with it")
		}
	})
	if _, err := s.Get("v"); err != nil {
		t.Error(err)
	}
	close(let)
	done()
	wg.Wait()
	_, err = s.Get("v")
	kind(t, "after that", err, fault.NotFound)
}

// What a gateway that died left half done is cleared, and a damaged record is no volume.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{".new-123/data", ".trash-9/volume/data/x"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, dir)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := s.Ensure(t.Context(), "v", "", mib); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "v/volume.json"), []byte(`{"version":`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := s.List(t.Context())
	kind(t, "a damaged record", err, fault.Unavailable) // half an answer would make volumes lost
	_, err = s.Ensure(t.Context(), "v", "", mib)
	kind(t, "a damaged record", err, fault.Unavailable)
}
