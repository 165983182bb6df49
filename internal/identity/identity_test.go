package identity_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	_ "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	_ "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	_ "yunhe.dev/yunhe/gen/yunhe/metering/v1"
	_ "yunhe.dev/yunhe/gen/yunhe/monitor/v1"
	optionsv1 "yunhe.dev/yunhe/gen/yunhe/options/v1"
	_ "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	_ "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
)

var quiet = slog.New(slog.DiscardHandler)

// clock is a time that tests move.
type clock struct{ us atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.us.Store(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).UnixMicro())
	return c
}

func (c *clock) now() time.Time          { return time.UnixMicro(c.us.Load()) }
func (c *clock) advance(d time.Duration) { c.us.Add(d.Microseconds()) }

// world is a platform with a database whose clock the test moves.
type world struct {
	*identity.Service
	clock *clock
	url   string
	d     *db.DB
}

// each runs a test on a bootstrapped service on every engine.
func each(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	for _, e := range []struct {
		name string
		url  func(t *testing.T) string
	}{
		{"sqlite", func(t *testing.T) string { return filepath.Join(t.TempDir(), "yunhe.db") }},
		{"postgres", func(t *testing.T) string { return enginetest.Postgres(t) }},
	} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			w := &world{clock: newClock(), url: e.url(t)}
			w.open(t)
			f(t, w)
		})
	}
}

func (w *world) open(t *testing.T) {
	t.Helper()
	d, err := db.Open(t.Context(), db.Config{URL: w.url, Now: w.clock.now}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // a second close after reopen is harmless
	w.d = d
	w.Service = w.another(t)
}

// another is the service of another process on the same database.
func (w *world) another(t *testing.T) *identity.Service {
	t.Helper()
	s, err := identity.New(t.Context(), w.d, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reopen is a restart.
func (w *world) reopen(t *testing.T) {
	t.Helper()
	if err := w.d.Close(); err != nil {
		t.Fatal(err)
	}
	w.open(t)
}

// cast is two tenants with a user of each kind, and keys.
type cast struct {
	admin, operator, auditor, ann, bob, eve context.Context // ann and bob are of acme, eve of rival
	keys                                    map[string]string
}

func (w *world) cast(t *testing.T) cast {
	t.Helper()
	key := w.bootstrap(t, t.TempDir())
	c := cast{admin: w.as(t, key), keys: map[string]string{"admin": key}}
	for _, id := range []string{"acme", "rival"} {
		if _, err := w.CreateTenant(c.admin, identity.Tenant{ID: id, Name: "The " + id}); err != nil {
			t.Fatal(err)
		}
	}
	for _, u := range []struct {
		id, tenant string
		role       identity.Role
		to         *context.Context
	}{
		{"oper", "default", identity.Operator, &c.operator}, {"audi", "default", identity.Auditor, &c.auditor},
		{"ann", "acme", identity.Member, &c.ann}, {"bob", "acme", identity.Member, &c.bob}, {"eve", "rival", identity.Member, &c.eve},
	} {
		if _, err := w.CreateUser(c.admin, identity.User{ID: u.id, TenantID: u.tenant, Role: u.role}); err != nil {
			t.Fatal(err)
		}
		_, secret, err := w.CreateKey(c.admin, identity.NewKey{UserID: u.id})
		if err != nil {
			t.Fatal(err)
		}
		*u.to, c.keys[u.id] = w.as(t, secret), secret
	}
	return c
}

// as is the context of a request with the key, as the rpc layer makes it.
func (w *world) as(t *testing.T, key string) context.Context {
	t.Helper()
	caller, err := w.Authenticate(t.Context(), key)
	if err != nil {
		t.Fatalf("authenticate: %v", err)
	}
	return core.WithCaller(t.Context(), caller)
}

func wantKind(t *testing.T, what string, err error, want fault.Kind) {
	t.Helper()
	if err == nil || fault.KindOf(err) != want {
		t.Errorf("%s: error = %v, want kind %s", what, err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPermissionsCoverContract walks every method of every service: a
// permission that is not in the table would be held by nobody.
func TestPermissionsCoverContract(t *testing.T) {
	t.Parallel()
	known := append(identity.Permissions(), "public", "self")
	if !slices.IsSorted(identity.Permissions()) {
		t.Errorf("permissions are not sorted: %v", identity.Permissions())
	}
	used, methods := map[string]bool{}, 0
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(string(f.Package()), "yunhe.") || f.Package() == "yunhe.adapter.v1" { // the driver contract is not served
			return true
		}
		for i := range f.Services().Len() {
			ms := f.Services().Get(i).Methods()
			for j := range ms.Len() {
				m := ms.Get(j)
				methods++
				p, _ := proto.GetExtension(m.Options(), optionsv1.E_Permission).(string)
				used[p] = true
				if !slices.Contains(known, p) {
					t.Errorf("%s needs permission %q, which no role can have", m.FullName(), p)
				}
			}
		}
		return true
	})
	if methods < 30 {
		t.Fatalf("walked %d methods only", methods)
	}
	for _, p := range identity.Permissions() {
		if !used[p] {
			t.Errorf("permission %s is used by no method", p)
		}
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	all := identity.Permissions()
	without := func(drop ...string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(p string) bool { return slices.Contains(drop, p) })
	}
	for _, c := range []struct {
		role    identity.Role
		want    []string
		tenants bool
	}{
		{identity.Admin, all, true},
		{identity.Operator, without("identity.write", "audit.read"), true},
		{identity.Member, []string{"jobs.read", "jobs.write", "metering.read", "monitor.read", "registry.read", "scheduler.read"}, false},
		{identity.Auditor, slices.DeleteFunc(slices.Clone(all), func(p string) bool { return !strings.HasSuffix(p, ".read") }), true},
		{"nobody", nil, false},
	} {
		if got := c.role.Permissions(); !slices.Equal(got, c.want) {
			t.Errorf("role %s may %v, want %v", c.role, got, c.want)
		}
		if got := c.role.AllTenants(); got != c.tenants {
			t.Errorf("role %s sees all tenants: %v, want %v", c.role, got, c.tenants)
		}
	}
}

func TestKeyForm(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		id, key := identity.MakeKey()
		if len(id) != 8 || len(key) != 55 || !strings.HasPrefix(key, "yk_"+id+"_") {
			t.Fatalf("key %q of %q has the wrong form", key, id)
		}
		got, hash, ok := identity.ParseKey(key)
		secret, err := base64.RawURLEncoding.DecodeString(key[12:])
		if err != nil || !ok || got != id || hash != sha256.Sum256(secret) {
			t.Fatalf("parse %q = %q, %x, %v (secret: %v)", key, got, hash, ok, err)
		}
		if seen[key] {
			t.Fatalf("key %q twice", key)
		}
		seen[key] = true
	}
	_, good := identity.MakeKey()
	for _, bad := range []string{
		"", "yk_", good[:54], good + "A", " " + good[1:], "yx_" + good[3:], "YK_" + good[3:], good[:11] + "-" + good[12:],
		good[:3] + "ABCDEFGH" + good[11:], good[:3] + "abc\x00defg" + good[11:], good[:54] + "=", good[:54] + "\n", good[:20] + "+" + good[21:],
		good[:54] + "B", // a second spelling: unused bits set
		strings.Repeat("é", 27) + "x",
	} {
		if id, _, ok := identity.ParseKey(bad); ok {
			t.Errorf("parse %q = %q, want it refused", bad, id)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	_, key := identity.MakeKey()
	for _, s := range []string{"", "yk_", key, key[:30], "yk_aaaaaaaa_" + strings.Repeat("_", 43), "yk_aaaaaaaa_" + strings.Repeat("A", 43)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, hash, ok := identity.ParseKey(s)
		if !ok {
			return
		}
		// What is accepted has exactly one spelling.
		secret, err := base64.RawURLEncoding.DecodeString(s[12:])
		if err != nil || len(secret) != 32 || s != fmt.Sprintf("yk_%s_%s", id, base64.RawURLEncoding.EncodeToString(secret)) {
			t.Errorf("%q is accepted as key %q, but is not how that key is written (%v)", s, id, err)
		}
		if hash != sha256.Sum256(secret) {
			t.Errorf("%q: hash %x is not that of its secret", s, hash)
		}
	})
}
