package identity_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
)

func (w *world) bootstrap(t *testing.T, dir string) string {
	t.Helper()
	must(t, w.Bootstrap(t.Context(), dir))
	return readKey(t, dir)
}

func readKey(tb testing.TB, dir string) string {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "admin.key"))
	if err != nil {
		tb.Fatal(err)
	}
	key, ok := strings.CutSuffix(string(b), "\n")
	if _, _, form := identity.ParseKey(key); !ok || !form {
		tb.Fatalf("admin.key holds %q, want a key and a newline", b)
	}
	return key
}

func TestBootstrap(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		dir := filepath.Join(t.TempDir(), "new", "state")
		key := w.bootstrap(t, dir)
		st, err := os.Stat(filepath.Join(dir, "admin.key"))
		must(t, err)
		if st.Mode().Perm() != 0o600 {
			t.Errorf("mode of admin.key = %v, want 0600", st.Mode().Perm())
		}
		if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) != 0 {
			t.Errorf("temporary files left: %v (%v)", left, err)
		}
		caller, err := w.Authenticate(t.Context(), key)
		must(t, err)
		if caller.UserID != "admin" || caller.TenantID != "default" || !caller.AllTenants || !caller.Can("identity.write") {
			t.Errorf("first caller = %+v, want the admin of tenant default", caller)
		}

		must(t, w.Bootstrap(t.Context(), dir))
		if again := readKey(t, dir); again != key {
			t.Errorf("a second bootstrap changed the key")
		}
		w.reopen(t)
		must(t, w.Bootstrap(t.Context(), dir))
		if _, err := w.Authenticate(t.Context(), readKey(t, dir)); err != nil {
			t.Errorf("the key after a restart: %v", err)
		}
		users, _, err := w.ListUsers(w.as(t, key), "", 0, "")
		must(t, err)
		if len(users) != 1 || users[0].Role != identity.Admin {
			t.Errorf("users = %+v, want admin alone", users)
		}
		events, _, err := w.ListEvents(w.as(t, key), identity.EventFilter{Method: "bootstrap"}, 0, "")
		must(t, err)
		if len(events) != 1 || events[0].Subject != key[3:11] || events[0].UserID != "admin" || events[0].TenantID != "default" {
			t.Errorf("audit of the first key = %+v, want one event about it", events)
		}
	})
}

// A crash between the file and the commit leaves a file alone.
func TestBootstrapAdoptsKeyOfInterruptedStart(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		dir := t.TempDir()
		_, key := identity.MakeKey()
		must(t, os.WriteFile(filepath.Join(dir, "admin.key"), []byte(key+"\n"), 0o600))
		if got := w.bootstrap(t, dir); got != key {
			t.Errorf("the key file was replaced")
		}
		if c, err := w.Authenticate(t.Context(), key); err != nil || c.UserID != "admin" {
			t.Errorf("adopted key = %+v, %v; want admin", c, err)
		}
		// The same with users there: a database restored from before the file.
		_, newer := identity.MakeKey()
		must(t, os.WriteFile(filepath.Join(dir, "admin.key"), []byte(newer+"\n"), 0o600))
		if _, err := w.Authenticate(t.Context(), newer); fault.KindOf(err) != fault.Unauthenticated {
			t.Fatalf("unknown key before adoption: %v", err)
		}
		must(t, w.Bootstrap(t.Context(), dir))
		for _, k := range []string{key, newer} {
			if c, err := w.Authenticate(t.Context(), k); err != nil || c.UserID != "admin" {
				t.Errorf("key %s = %+v, %v; want admin", k[3:11], c, err)
			}
		}
	})
}

// A commit that fails leaves the file; the next start finishes.
func TestBootstrapCutShort(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		dir := t.TempDir()
		// The first transaction that writes finds its context ended, after the file is there.
		ctx, cancel := context.WithCancel(t.Context())
		stop := &stopAtLog{cancel: cancel}
		s, err := identity.New(t.Context(), w.d, slog.New(stop))
		must(t, err)
		if err := s.Bootstrap(ctx, dir); err == nil {
			t.Fatal("bootstrap succeeded with its context ended before the commit")
		}
		key := readKey(t, dir)
		if _, err := w.Authenticate(t.Context(), key); fault.KindOf(err) != fault.Unauthenticated {
			t.Fatalf("key of the failed start: %v, want it unknown", err)
		}
		if got := w.bootstrap(t, dir); got != key {
			t.Error("the next start made another key")
		}
		if _, err := w.Authenticate(t.Context(), key); err != nil {
			t.Errorf("key after the next start: %v", err)
		}
	})
}

// stopAtLog ends a context when the key file is reported as written.
type stopAtLog struct {
	slog.Handler
	cancel context.CancelFunc
}

func (s *stopAtLog) Enabled(context.Context, slog.Level) bool { return true }
func (s *stopAtLog) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s *stopAtLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "admin key written" {
		s.cancel()
	}
	return nil
}

func TestBootstrapLeavesOthersAlone(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		dir := t.TempDir()
		path := filepath.Join(dir, "admin.key")
		key := w.bootstrap(t, dir)
		warnings := func() string {
			var out bytes.Buffer
			s, err := identity.New(t.Context(), w.d, slog.New(slog.NewTextHandler(&out, nil)))
			must(t, err)
			must(t, s.Bootstrap(t.Context(), dir))
			if strings.Contains(out.String(), key[12:]) {
				t.Errorf("the log holds the secret: %s", out.String())
			}
			return out.String()
		}

		t.Run("file missing and users there", func(t *testing.T) {
			must(t, os.Remove(path))
			if got := warnings(); !strings.Contains(got, "no admin key") {
				t.Errorf("log = %q, want a hint", got)
			}
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("a key file was made: %v", err)
			}
		})
		t.Run("another secret under a known name", func(t *testing.T) {
			_, other := identity.MakeKey()
			forged := key[:12] + other[12:]
			must(t, os.WriteFile(path, []byte(forged+"\n"), 0o600))
			if got := warnings(); !strings.Contains(got, "another secret") {
				t.Errorf("log = %q, want a warning", got)
			}
			_, err := w.Authenticate(t.Context(), forged)
			wantKind(t, "forged key", err, fault.Unauthenticated)
		})
		t.Run("not a key", func(t *testing.T) {
			must(t, os.WriteFile(path, []byte("hello"), 0o600))
			must(t, os.Chmod(path, 0o644))
			if got := warnings(); !strings.Contains(got, "does not hold a key") || !strings.Contains(got, "read by others") {
				t.Errorf("log = %q, want warnings about content and mode", got)
			}
		})
		t.Run("a revoked key is not adopted", func(t *testing.T) {
			must(t, os.WriteFile(path, []byte(key+"\n"), 0o600))
			must(t, w.RevokeKey(w.as(t, key), key[3:11]))
			if got := warnings(); !strings.Contains(got, "revoked") {
				t.Errorf("log = %q, want a warning", got)
			}
			_, err := w.another(t).Authenticate(t.Context(), key)
			wantKind(t, "revoked first key", err, fault.Unauthenticated)
		})
	})
}

func TestBootstrapFaults(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		dir := t.TempDir()
		for _, content := range []string{"", "not a key\n", strings.Repeat("x", 5000)} {
			must(t, os.WriteFile(filepath.Join(dir, "admin.key"), []byte(content), 0o600))
			wantKind(t, "no user and a file without a key", w.Bootstrap(t.Context(), dir), fault.Invalid)
		}
		wantKind(t, "a folder below a file", w.Bootstrap(t.Context(), filepath.Join(dir, "admin.key", "x")), fault.Unavailable)
		must(t, w.d.View(t.Context(), func(tx *db.Tx) error {
			var n int
			_, err := tx.Get(t.Context(), `SELECT COUNT(*) FROM users`, nil, &n)
			if n != 0 {
				t.Errorf("%d users after failed starts", n)
			}
			return err
		}))
	})
}

// Several processes start at once, with a folder each: one admin, and every
// folder's key works.
func TestBootstrapConcurrently(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		const n = 6
		dirs, services := make([]string, n), make([]*identity.Service, n)
		for i := range n {
			dirs[i], services[i] = t.TempDir(), w.another(t)
		}
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if err := services[i].Bootstrap(t.Context(), dirs[i]); err != nil {
					t.Errorf("bootstrap %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		// A folder may have stayed empty: its process came when there was a user.
		keys := 0
		for i := range n {
			if _, err := os.Stat(filepath.Join(dirs[i], "admin.key")); err != nil {
				continue
			}
			keys++
			if _, err := w.Authenticate(t.Context(), readKey(t, dirs[i])); err != nil {
				t.Errorf("key of process %d: %v", i, err)
			}
		}
		if keys == 0 {
			t.Error("no process wrote a key")
		}
	})
}
