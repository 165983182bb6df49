package identity_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/db/dbtest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
)

func TestAuthenticate(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		caller, err := w.Authenticate(t.Context(), c.keys["ann"])
		must(t, err)
		if caller.UserID != "ann" || caller.UserName != "ann" || caller.TenantID != "acme" || caller.KeyID != c.keys["ann"][3:11] || caller.AllTenants {
			t.Errorf("caller = %+v", caller)
		}
		if !caller.Can("jobs.write") || caller.Can("registry.write") || caller.Can("audit.read") {
			t.Errorf("permissions = %v, want those of role user", caller.Permissions)
		}
		w.reopen(t)
		if again, err := w.Authenticate(t.Context(), c.keys["ann"]); err != nil || again.UserID != "ann" {
			t.Errorf("after a restart = %+v, %v", again, err)
		}
	})
}

// Every refusal reads the same.
func TestAuthenticateRefuses(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		key := c.keys["ann"]
		_, unknown := identity.MakeKey()
		expiring, expiringKey, err := w.CreateKey(c.ann, identity.NewKey{TTLSeconds: 5})
		must(t, err)
		if want := w.clock.now().Add(5 * time.Second); !expiring.ExpiresAt.Equal(want) {
			t.Errorf("expires at %v, want %v", expiring.ExpiresAt, want)
		}
		w.clock.advance(5*time.Second - time.Microsecond)
		if _, err := w.Authenticate(t.Context(), expiringKey); err != nil {
			t.Errorf("a microsecond before the end: %v", err)
		}
		w.clock.advance(time.Microsecond) // the entry is still cached
		revoked, revokedKey, err := w.CreateKey(c.ann, identity.NewKey{})
		must(t, err)
		must(t, w.RevokeKey(c.ann, revoked.ID))

		texts := map[string]bool{}
		for what, token := range map[string]string{
			"nothing": "", "malformed": "hello", "unknown": unknown, "expired": expiringKey, "revoked": revokedKey,
			"another secret": key[:12] + unknown[12:], "one character off": key[:20] + flip(key[20]) + key[21:], "longer": key + "A",
		} {
			for range 2 { // also when remembered
				_, err := w.Authenticate(t.Context(), token)
				wantKind(t, what, err, fault.Unauthenticated)
				if err != nil {
					texts[err.Error()] = true
				}
			}
		}
		if len(texts) != 1 {
			t.Errorf("refusals read differently: %v", texts)
		}
		if _, err := w.Authenticate(t.Context(), key); err != nil {
			t.Errorf("the right key after wrong ones: %v", err)
		}
	})
}

func flip(c byte) string {
	if c == 'A' {
		return "B"
	}
	return "A"
}

func TestAuthenticateReportsItsTroubles(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		_, key := identity.MakeKey()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.Authenticate(ctx, key); !errors.Is(err, context.Canceled) {
			t.Errorf("ended context: %v", err)
		}
		must(t, w.d.Close())
		if _, err := w.Authenticate(t.Context(), key); err == nil || fault.KindOf(err) == fault.Unauthenticated {
			t.Errorf("closed database: %v, want trouble that does not blame the key", err)
		}
	})
}

func TestRevocationTakesEffect(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		other := w.another(t)
		key := c.keys["ann"]
		for _, s := range []*identity.Service{w.Service, other} {
			_, err := s.Authenticate(t.Context(), key)
			must(t, err)
		}
		must(t, w.RevokeKey(c.ann, key[3:11]))
		_, err := w.Authenticate(t.Context(), key)
		wantKind(t, "at once in this process", err, fault.Unauthenticated)
		w.clock.advance(identity.Fresh)
		_, err = other.Authenticate(t.Context(), key)
		wantKind(t, "after the cache's time in another process", err, fault.Unauthenticated)

		// A key looked up before it exists works as soon as it does.
		k, secret, err := w.CreateKey(c.bob, identity.NewKey{})
		must(t, err)
		if _, err := w.Authenticate(t.Context(), secret); err != nil {
			t.Errorf("new key %s: %v", k.ID, err)
		}
	})
}

// While keys are revoked, no call that begins after the revocation returned
// may succeed, whatever lookups were under way.
func TestRevocationRace(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		for range 10 {
			k, secret, err := w.CreateKey(c.ann, identity.NewKey{})
			must(t, err)
			var revoked atomic.Bool
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for {
						after := revoked.Load()
						_, err := w.Authenticate(t.Context(), secret)
						if after {
							if fault.KindOf(err) != fault.Unauthenticated {
								t.Errorf("call after the revocation of %s: %v", k.ID, err)
							}
							return
						}
						w.clock.advance(identity.Fresh / 4) // keep looking it up
					}
				})
			}
			must(t, w.RevokeKey(c.ann, k.ID))
			revoked.Store(true)
			wg.Wait()
		}
	})
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	s, err := identity.New(t.Context(), d, quiet)
	must(t, err)
	now := d.Now()
	s.FillCache(identity.MaxCached+500, true, now)
	s.FillCache(identity.MaxUnknown+500, false, now)
	known, unknown := s.Cached()
	if known > identity.MaxCached || known < identity.MaxCached/2 || unknown > identity.MaxUnknown || unknown < identity.MaxUnknown/2 {
		t.Errorf("cache holds %d known and %d unknown keys, want at most %d and %d and not far below", known, unknown, identity.MaxCached, identity.MaxUnknown)
	}
	for range 2 * identity.MaxUnknown { // junk cannot push out keys in use
		_, key := identity.MakeKey()
		_, err := s.Authenticate(t.Context(), key)
		wantKind(t, "junk", err, fault.Unauthenticated)
	}
	if after, u := s.Cached(); after != known || u > identity.MaxUnknown {
		t.Errorf("after junk the cache holds %d known and %d unknown keys, want %d and at most %d", after, u, known, identity.MaxUnknown)
	}
	s.FillCache(identity.MaxCached, true, now.Add(identity.Fresh))
	if known, _ := s.Cached(); known > identity.MaxCached {
		t.Errorf("cache holds %d keys after another %d", known, identity.MaxCached)
	}
}

func TestTenants(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		got, err := w.CreateTenant(c.admin, identity.Tenant{ID: "solo"})
		must(t, err)
		if got.Name != "solo" || !got.CreatedAt.Equal(w.clock.now()) {
			t.Errorf("tenant without a name = %+v", got)
		}
		_, err = w.CreateTenant(c.admin, identity.Tenant{ID: "acme"})
		wantKind(t, "taken ID", err, fault.Exists)
		for _, bad := range []identity.Tenant{
			{}, {ID: "-a"}, {ID: "Acme"}, {ID: "a.b"}, {ID: strings.Repeat("a", 33)}, {ID: "a\x00"}, {ID: "ok", Name: strings.Repeat("n", 64)}, {ID: "ok", Name: "a\nb"},
		} {
			_, err := w.CreateTenant(c.admin, bad)
			wantKind(t, fmt.Sprintf("tenant %+v", bad), err, fault.Invalid)
		}
		for _, x := range []struct {
			who  context.Context
			want []string
		}{{c.admin, []string{"acme", "default", "rival", "solo"}}, {c.auditor, []string{"acme", "default", "rival", "solo"}}, {c.ann, []string{"acme"}}} {
			var ids []string
			rows, next, err := w.ListTenants(x.who, 0, "")
			must(t, err)
			for _, r := range rows {
				ids = append(ids, r.ID)
			}
			if !slices.Equal(ids, x.want) || next != "" {
				t.Errorf("%s sees tenants %v, want %v", core.CallerFrom(x.who).UserID, ids, x.want)
			}
		}
	})
}

func TestCreateUser(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		u, err := w.CreateUser(c.admin, identity.User{ID: "kim.lee-2", TenantID: "acme", Name: "金 Lee", Role: identity.Member})
		must(t, err)
		if got, err := w.GetUser(c.ann, "kim.lee-2"); err != nil || got != u {
			t.Errorf("user = %+v, %v; want %+v", got, err, u)
		}
		_, err = w.CreateUser(c.admin, identity.User{ID: "ann", TenantID: "rival", Role: identity.Member})
		wantKind(t, "taken ID", err, fault.Exists)
		_, err = w.CreateUser(c.admin, identity.User{ID: "zoe", TenantID: "nowhere", Role: identity.Member})
		wantKind(t, "unknown tenant", err, fault.NotFound)
		_, err = w.CreateUser(c.ann, identity.User{ID: "zoe", TenantID: "rival", Role: identity.Member})
		wantKind(t, "another tenant", err, fault.NotFound)

		// All violations at once.
		_, err = w.CreateUser(c.admin, identity.User{ID: "Zoe", Name: strings.Repeat("n", 64), Role: "boss"})
		wantKind(t, "four violations", err, fault.Invalid)
		var paths []string
		for _, f := range fault.FieldsOf(err) {
			paths = append(paths, f.Path)
		}
		if want := []string{"user.user_id", "user.tenant_id", "user.name", "user.role"}; !slices.Equal(paths, want) {
			t.Errorf("violations at %v, want %v", paths, want)
		}
	})
}

func TestNobodyGrantsMoreThanTheyHave(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		roles := []identity.Role{identity.Admin, identity.Operator, identity.Member, identity.Auditor}
		may := map[string][]identity.Role{
			"admin": roles,
			"oper":  {identity.Operator, identity.Member}, // not the auditor, who reads the audit trail
			"audi":  {identity.Auditor},
			"ann":   {identity.Member},
		}
		for i, who := range []context.Context{c.admin, c.operator, c.auditor, c.ann} {
			id := core.CallerFrom(who).UserID
			for j, r := range roles {
				_, err := w.CreateUser(who, identity.User{ID: fmt.Sprintf("u%d%d", i, j), TenantID: "acme", Role: r})
				if !slices.Contains(may[id], r) {
					wantKind(t, fmt.Sprintf("%s creates %s", id, r), err, fault.Denied)
				} else if err != nil {
					t.Errorf("%s creates %s: %v", id, r, err)
				}
			}
		}
		_, err := w.CreateUser(t.Context(), identity.User{ID: "u", TenantID: "acme", Role: identity.Member})
		wantKind(t, "nobody creates a user", err, fault.NotFound)
	})
}

// Rules that today's roles cannot reach, for roles to come: a manager of
// users who is less than an admin.
func TestManagerOfUsersIsBounded(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		_, err := w.CreateUser(c.admin, identity.User{ID: "chief", TenantID: "acme", Role: identity.Operator})
		must(t, err)
		chief, _, err := w.CreateKey(c.admin, identity.NewKey{UserID: "chief"})
		must(t, err)
		manager := core.CallerFrom(c.ann)
		manager.Permissions = map[string]bool{"identity.write": true}
		for _, p := range identity.Member.Permissions() {
			manager.Permissions[p] = true
		}
		ctx := core.WithCaller(t.Context(), manager)
		if _, _, err := w.CreateKey(ctx, identity.NewKey{UserID: "bob"}); err != nil {
			t.Errorf("key for an equal: %v", err)
		}
		_, _, err = w.CreateKey(ctx, identity.NewKey{UserID: "chief"})
		wantKind(t, "key for one who may more", err, fault.Denied)
		wantKind(t, "revoke a key of one who may more", w.RevokeKey(ctx, chief.ID), fault.Denied)
		must(t, w.RevokeKey(ctx, c.keys["bob"][3:11]))

		// All permissions, but of one tenant: no role that sees all tenants.
		for _, p := range identity.Permissions() {
			manager.Permissions[p] = true
		}
		_, err = w.CreateUser(core.WithCaller(t.Context(), manager), identity.User{ID: "u", TenantID: "acme", Role: identity.Auditor})
		wantKind(t, "a role that sees all tenants", err, fault.Denied)
		_, err = w.CreateUser(core.WithCaller(t.Context(), manager), identity.User{ID: "u", TenantID: "acme", Role: identity.Member})
		must(t, err)
	})
}

func TestListUsers(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		list := func(who context.Context, tenant string) (ids []string) {
			t.Helper()
			rows, _, err := w.ListUsers(who, tenant, 0, "")
			must(t, err)
			for _, r := range rows {
				ids = append(ids, r.ID)
			}
			return ids
		}
		for _, x := range []struct {
			who    context.Context
			tenant string
			want   []string
		}{
			{c.admin, "", []string{"admin", "ann", "audi", "bob", "eve", "oper"}}, {c.admin, "rival", []string{"eve"}},
			{c.ann, "", []string{"ann", "bob"}}, {c.ann, "acme", []string{"ann", "bob"}}, {c.ann, "rival", nil}, {c.ann, "nowhere", nil},
		} {
			if got := list(x.who, x.tenant); !slices.Equal(got, x.want) {
				t.Errorf("%s lists users of %q: %v, want %v", core.CallerFrom(x.who).UserID, x.tenant, got, x.want)
			}
		}
		_, _, err := w.ListUsers(c.admin, "Bad Tenant", 0, "")
		wantKind(t, "bad tenant", err, fault.Invalid)
		_, err = w.GetUser(c.ann, "eve")
		wantKind(t, "user of another tenant", err, fault.NotFound)
		_, err = w.GetUser(c.ann, "nobody")
		wantKind(t, "unknown user", err, fault.NotFound)
		_, err = w.GetUser(c.ann, "no body")
		wantKind(t, "bad user", err, fault.Invalid)
	})
}

// Whatever the page size, the pages together are the list.
func TestPages(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		want, _, err := w.ListUsers(c.admin, "", 0, "")
		must(t, err)
		for size := int32(1); size <= int32(len(want))+1; size++ {
			var got []identity.User
			token := ""
			for {
				rows, next, err := w.ListUsers(c.admin, "", size, token)
				must(t, err)
				if len(rows) > int(size) {
					t.Fatalf("page of %d has %d rows", size, len(rows))
				}
				got = append(got, rows...)
				if token = next; token == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("pages of %d give %v, want %v", size, got, want)
			}
		}
		for _, bad := range []func() error{
			func() error { _, _, err := w.ListUsers(c.admin, "", -1, ""); return err },
			func() error { _, _, err := w.ListTenants(c.admin, 1001, ""); return err },
			func() error { _, _, err := w.ListKeys(c.admin, "", 0, "junk"); return err },
			func() error { _, _, err := w.ListKeys(c.admin, "", 0, core.PageToken("a", "b")); return err },
			func() error {
				_, _, err := w.ListEvents(c.admin, identity.EventFilter{}, 0, core.PageToken("a\x00"))
				return err
			},
			func() error {
				_, _, err := w.ListEvents(c.admin, identity.EventFilter{Method: "a\x00"}, 0, "")
				return err
			},
		} {
			wantKind(t, "bad page", bad(), fault.Invalid)
		}
	})
}

func TestCreateKey(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		k, secret, err := w.CreateKey(c.ann, identity.NewKey{Note: "laptop"})
		must(t, err)
		if k.UserID != "ann" || k.TenantID != "acme" || k.Note != "laptop" || !k.ExpiresAt.IsZero() || !k.RevokedAt.IsZero() || secret[3:11] != k.ID {
			t.Errorf("key = %+v", k)
		}
		if caller := core.CallerFrom(w.as(t, secret)); caller.UserID != "ann" || caller.KeyID != k.ID {
			t.Errorf("caller of the new key = %+v", caller)
		}
		// The secret is nowhere in the database.
		must(t, w.d.View(t.Context(), func(tx *db.Tx) error {
			var hash []byte
			_, err := tx.Get(t.Context(), `SELECT hash FROM api_keys WHERE key_id = $1`, []any{k.ID}, &hash)
			if _, want, _ := identity.ParseKey(secret); string(hash) != string(want[:]) {
				t.Errorf("stored %x, want the secret's SHA-256", hash)
			}
			return err
		}))
		for _, x := range []struct {
			what string
			who  context.Context
			key  identity.NewKey
			want fault.Kind
		}{
			{"a colleague", c.ann, identity.NewKey{UserID: "bob"}, fault.Denied},
			{"another tenant", c.ann, identity.NewKey{UserID: "eve"}, fault.NotFound},
			{"unknown user", c.admin, identity.NewKey{UserID: "nobody"}, fault.NotFound},
			{"operator for the admin", c.operator, identity.NewKey{UserID: "admin"}, fault.Denied},
			{"long note", c.ann, identity.NewKey{Note: strings.Repeat("x", 64)}, fault.Invalid},
			{"negative time", c.ann, identity.NewKey{TTLSeconds: -1}, fault.Invalid},
			{"eleven years", c.ann, identity.NewKey{TTLSeconds: 11 * 365 * 24 * 3600}, fault.Invalid},
			{"bad user", c.ann, identity.NewKey{UserID: "B b"}, fault.Invalid},
			{"nobody", t.Context(), identity.NewKey{}, fault.Unauthenticated},
		} {
			_, _, err := w.CreateKey(x.who, x.key)
			wantKind(t, x.what, err, x.want)
		}
	})
}

func TestKeysOfAUserAreBounded(t *testing.T) {
	t.Parallel()
	// The count is one query; one engine shows the rule, both run the query in TestCreateKey.
	w := &world{clock: newClock(), url: t.TempDir() + "/yunhe.db"}
	w.open(t)
	c := w.cast(t)
	last := ""
	for range identity.MaxKeys - 1 { // one there is
		k, _, err := w.CreateKey(c.ann, identity.NewKey{TTLSeconds: 60})
		must(t, err)
		last = k.ID
	}
	_, _, err := w.CreateKey(c.ann, identity.NewKey{})
	wantKind(t, "one too many", err, fault.Exhausted)
	must(t, w.RevokeKey(c.ann, last))
	if _, _, err := w.CreateKey(c.ann, identity.NewKey{TTLSeconds: 60}); err != nil {
		t.Errorf("after revoking one: %v", err)
	}
	w.clock.advance(time.Minute)
	if _, _, err := w.CreateKey(c.ann, identity.NewKey{}); err != nil {
		t.Errorf("after the others expired: %v", err)
	}
}

func TestListKeys(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		users := func(who context.Context, user string) (out []string, err error) {
			rows, _, err := w.ListKeys(who, user, 0, "")
			for _, k := range rows {
				out = append(out, k.UserID)
			}
			slices.Sort(out)
			return out, err
		}
		for _, x := range []struct {
			who  context.Context
			user string
			want []string
		}{
			{c.admin, "", []string{"admin", "ann", "audi", "bob", "eve", "oper"}}, {c.auditor, "eve", []string{"eve"}},
			{c.ann, "", []string{"ann"}}, {c.ann, "ann", []string{"ann"}},
		} {
			if got, err := users(x.who, x.user); err != nil || !slices.Equal(got, x.want) {
				t.Errorf("%s lists keys of %q: %v, %v; want %v", core.CallerFrom(x.who).UserID, x.user, got, err, x.want)
			}
		}
		_, err := users(c.ann, "bob")
		wantKind(t, "keys of a colleague", err, fault.Denied)
		_, err = users(c.ann, "eve")
		wantKind(t, "keys of another tenant", err, fault.NotFound)
		_, err = users(c.admin, "nobody")
		wantKind(t, "keys of an unknown user", err, fault.NotFound)
		_, err = users(c.ann, "B b")
		wantKind(t, "bad user", err, fault.Invalid)
	})
}

func TestRevokeKey(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		id := func(user string) string { return c.keys[user][3:11] }
		for _, x := range []struct {
			what string
			who  context.Context
			id   string
			want fault.Kind
		}{
			{"a colleague's", c.ann, id("bob"), fault.Denied},
			{"another tenant's", c.ann, id("eve"), fault.NotFound},
			{"operator, the admin's", c.operator, id("admin"), fault.Denied},
			{"unknown", c.admin, "aaaaaaaa", fault.NotFound},
			{"not a key's name", c.admin, "a\x00b", fault.NotFound},
			{"none", c.admin, "", fault.Invalid},
			{"nobody", t.Context(), id("ann"), fault.Unauthenticated},
		} {
			wantKind(t, x.what, w.RevokeKey(x.who, x.id), x.want)
		}
		must(t, w.RevokeKey(c.admin, id("bob")))
		first := w.clock.now()
		w.clock.advance(time.Hour)
		must(t, w.RevokeKey(c.admin, id("bob"))) // changes nothing
		rows, _, err := w.ListKeys(c.admin, "bob", 0, "")
		must(t, err)
		if len(rows) != 1 || !rows[0].RevokedAt.Equal(first) {
			t.Errorf("keys of bob = %+v, want one revoked at %v", rows, first)
		}
	})
}

// Nobody is not everybody: without a caller nothing is listed.
func TestListsNeedACaller(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.cast(t)
		ctx := t.Context()
		_, _, err := w.ListTenants(ctx, 0, "")
		wantKind(t, "tenants", err, fault.Unauthenticated)
		_, _, err = w.ListUsers(ctx, "", 0, "")
		wantKind(t, "users", err, fault.Unauthenticated)
		_, _, err = w.ListKeys(ctx, "", 0, "")
		wantKind(t, "keys", err, fault.Unauthenticated)
		_, _, err = w.ListEvents(ctx, identity.EventFilter{}, 0, "")
		wantKind(t, "events", err, fault.Unauthenticated)
	})
}

func TestAudit(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		a := core.Audit{Method: "yunhe.jobs.v1.JobService/StopJob", Remote: "192.0.2.1:9"}
		must(t, w.Audit(c.ann, a, "job_1", "OK"))
		must(t, w.Audit(c.eve, a, "job\x00\xff"+strings.Repeat("x", 999), "PERMISSION_DENIED"))
		w.reopen(t)
		events, _, err := w.ListEvents(c.auditor, identity.EventFilter{Method: a.Method}, 0, "")
		must(t, err)
		if len(events) != 2 || events[1].Subject != "job_1" || events[1].UserID != "ann" || events[1].TenantID != "acme" ||
			events[1].KeyID != c.keys["ann"][3:11] || events[1].Outcome != "OK" || events[1].Remote != a.Remote || !events[1].At.Equal(w.clock.now()) {
			t.Fatalf("events = %+v, want eve's and then ann's", events)
		}
		if s := events[0].Subject; !strings.HasPrefix(s, "job??xxx") || len(s) > 260 {
			t.Errorf("subject is stored as %q, want it readable and short", s)
		}
		for _, x := range []struct {
			who  context.Context
			f    identity.EventFilter
			want int
		}{
			{c.admin, identity.EventFilter{UserID: "ann"}, 1}, {c.admin, identity.EventFilter{UserID: "ann", Method: "x"}, 0},
			{c.ann, identity.EventFilter{}, 1}, // a role that could, would see its tenant's only
			{c.ann, identity.EventFilter{UserID: "eve"}, 0},
		} {
			got, _, err := w.ListEvents(x.who, x.f, 0, "")
			must(t, err)
			if len(got) != x.want {
				t.Errorf("%s sees %d events of %+v, want %d", core.CallerFrom(x.who).UserID, len(got), x.f, x.want)
			}
		}
		// Newest first over pages.
		for i := range 5 {
			must(t, w.Audit(c.ann, core.Audit{Method: "many"}, fmt.Sprint(i), "OK"))
		}
		got, token := "", ""
		for {
			rows, next, err := w.ListEvents(c.admin, identity.EventFilter{Method: "many"}, 2, token)
			must(t, err)
			for _, e := range rows {
				got += e.Subject
			}
			if token = next; token == "" {
				break
			}
		}
		if got != "43210" {
			t.Errorf("events in order %q, want 43210", got)
		}
	})
}

// TestAuditLate: what failed while the database took no writes is in the audit
// trail as soon as it does, once and in order; what there was no room for is counted.
func TestAuditLate(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		reg := prometheus.NewRegistry()
		w.Collect(reg)
		full := w.fill(t)
		a := core.Audit{Method: "yunhe.jobs.v1.JobService/SubmitJobs"}
		for i := range identity.MaxLate {
			if err := w.Audit(c.ann, a, fmt.Sprint(i), "UNAVAILABLE"); err != nil {
				t.Fatalf("event %d, with the disk full: %v", i, err)
			}
		}
		wantKind(t, "one more than there is room for", w.Audit(c.ann, a, "lost", "UNAVAILABLE"), fault.Exhausted)
		metrics := func(held, lost int) {
			t.Helper()
			must(t, testutil.GatherAndCompare(reg, strings.NewReader(fmt.Sprintf(`
# HELP yunhe_identity_audit_held Audit events that wait until the database takes writes.
# TYPE yunhe_identity_audit_held gauge
yunhe_identity_audit_held %d
# HELP yunhe_identity_audit_lost_total Audit events for which there was no room while the database took no writes.
# TYPE yunhe_identity_audit_lost_total counter
yunhe_identity_audit_lost_total %d
`, held, lost))))
		}
		metrics(identity.MaxLate, 1)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		count := func() int {
			events, _, err := w.ListEvents(c.admin, identity.EventFilter{Method: a.Method}, 1000, "")
			must(t, err)
			for i, e := range events {
				if want := fmt.Sprint(identity.MaxLate - 1 - i); e.Subject != want || e.UserID != "ann" || !e.At.Equal(w.clock.now()) {
					t.Fatalf("event %d from the end is %+v, want that of %s", i, e, want)
				}
			}
			return len(events)
		}
		if n := count(); n != 0 {
			t.Errorf("%d events are stored while nothing can be", n)
		}
		full(false)
		for end := time.Now().Add(time.Minute); count() == 0; <-time.After(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no event is stored in a minute after the database takes writes")
			}
		}
		// The end of the process stores what came last.
		full(true)
		must(t, w.Audit(c.eve, core.Audit{Method: "last"}, "", "UNAVAILABLE"))
		full(false)
		cancel()
		must(t, <-ended)
		metrics(0, 1)
		if events, _, err := w.ListEvents(c.admin, identity.EventFilter{Method: "last"}, 0, ""); err != nil || len(events) != 1 {
			t.Errorf("what came last is %v, %v", events, err)
		}
	})
}

// fill has the database say that its disk is full when audit events are written,
// until full(false).
func (w *world) fill(t *testing.T) (full func(bool)) {
	t.Helper()
	exec := func(text string) {
		t.Helper()
		must(t, w.d.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), text)
			return err
		}))
	}
	full = func(yes bool) {
		t.Helper()
		switch {
		case w.d.Engine() == db.Postgres && yes:
			exec(`CREATE TRIGGER no_room BEFORE INSERT ON audit_events FOR EACH STATEMENT EXECUTE FUNCTION disk_full()`)
		case w.d.Engine() == db.Postgres:
			exec(`DROP TRIGGER no_room ON audit_events`)
		case yes:
			exec(`PRAGMA max_page_count = 1`)    // as many as there are
			for err := error(nil); err == nil; { // what is free in them is used up
				err = w.d.Tx(t.Context(), func(tx *db.Tx) error {
					return tx.Insert(t.Context(), "audit_events", []string{"event_id", "at", "tenant_id", "user_id", "key_id", "method", "subject", "outcome", "remote"},
						[][]any{{core.NewID("aud"), 0, "", "", "", "", "", "", ""}})
				})
			}
		default:
			exec(`PRAGMA max_page_count = 4294967294`)
		}
	}
	if w.d.Engine() == db.Postgres {
		exec(`CREATE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END $$`)
	}
	full(true)
	return full
}

func TestAuditTx(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		count := func() int {
			t.Helper()
			rows, _, err := w.ListEvents(c.admin, identity.EventFilter{Method: "m"}, 0, "")
			must(t, err)
			return len(rows)
		}
		a := &core.Audit{Method: "m"}
		ctx := core.WithAudit(c.ann, a)
		boom := errors.New("boom")
		if err := w.d.Tx(ctx, func(tx *db.Tx) error {
			return errors.Join(w.AuditTx(ctx, tx, "s"), boom)
		}); !errors.Is(err, boom) {
			t.Fatal(err)
		}
		if a.Done || count() != 0 {
			t.Errorf("after a rollback: done %v and %d events, want neither", a.Done, count())
		}
		must(t, w.d.Tx(ctx, func(tx *db.Tx) error { return w.AuditTx(ctx, tx, "s") }))
		if !a.Done || count() != 1 {
			t.Errorf("after the commit: done %v and %d events, want one", a.Done, count())
		}
		must(t, w.d.Tx(c.ann, func(tx *db.Tx) error { return w.AuditTx(c.ann, tx, "s") }))
		if count() != 1 {
			t.Errorf("a call outside of a request left an event")
		}
	})
}

// Changes to keys are audited here, whatever their outcome: their methods are
// open to any caller, so the rpc layer does not.
func TestKeyChangesAreAudited(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		call := func(who context.Context, method string, f func(ctx context.Context) error) *core.Audit {
			a := &core.Audit{Method: method}
			_ = f(core.WithAudit(who, a)) // the outcome is what the events say
			return a
		}
		create := func(user string) func(context.Context) error {
			return func(ctx context.Context) error {
				_, _, err := w.CreateKey(ctx, identity.NewKey{UserID: user})
				return err
			}
		}
		revoke := func(id string) func(context.Context) error {
			return func(ctx context.Context) error { return w.RevokeKey(ctx, id) }
		}
		for _, a := range []*core.Audit{
			call(c.ann, "1", create("")), call(c.ann, "2", create("bob")), call(c.ann, "3", revoke(c.keys["eve"][3:11])), call(c.bob, "4", revoke(c.keys["bob"][3:11])),
			call(c.admin, "5", func(ctx context.Context) error {
				_, err := w.CreateTenant(ctx, identity.Tenant{ID: "t5"})
				return err
			}),
		} {
			if !a.Done {
				t.Errorf("call %s is not marked as audited", a.Method)
			}
		}
		got := map[string]string{}
		rows, _, err := w.ListEvents(c.admin, identity.EventFilter{}, 0, "")
		must(t, err)
		for _, e := range rows {
			if e.Method != "bootstrap" {
				got[e.Method] += e.UserID + " " + e.Outcome + ";"
			}
		}
		want := map[string]string{"1": "ann OK;", "2": "ann PERMISSION_DENIED;", "3": "ann NOT_FOUND;", "4": "bob OK;", "5": "admin OK;"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("events = %v, want %v", got, want)
		}
	})
}

func TestConcurrentCreation(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast(t)
		var made, taken atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				switch _, err := w.CreateUser(c.admin, identity.User{ID: "same", TenantID: "acme", Role: identity.Member}); fault.KindOf(err) {
				case fault.Exists:
					taken.Add(1)
				case fault.Internal:
					if err == nil {
						made.Add(1)
					} else {
						t.Errorf("create: %v", err)
					}
				default:
					t.Errorf("create: %v", err)
				}
			})
		}
		wg.Wait()
		if made.Load() != 1 || taken.Load() != 7 {
			t.Errorf("%d created and %d found it taken, want 1 and 7", made.Load(), taken.Load())
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	d := dbtest.SQLite(b)
	s, err := identity.New(b.Context(), d, quiet)
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	if err := s.Bootstrap(b.Context(), dir); err != nil {
		b.Fatal(err)
	}
	good := readKey(b, dir)
	_, unknown := identity.MakeKey()
	for _, x := range []struct{ name, key string }{{"cached", good}, {"wrong-secret", good[:12] + unknown[12:]}, {"unknown", unknown}, {"malformed", "hello"}} {
		b.Run(x.name, func(b *testing.B) {
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Authenticate(ctx, x.key); (err == nil) != (x.name == "cached") {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("unknown-ever-new", func(b *testing.B) {
		ctx := b.Context()
		for b.Loop() {
			_, key := identity.MakeKey()
			if _, err := s.Authenticate(ctx, key); err == nil {
				b.Fatal("accepted")
			}
		}
	})
}
