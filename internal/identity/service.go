package identity

import (
	"context"
	"crypto/subtle"
	"embed"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Service answers who calls and keeps the records of it. It is safe for
// concurrent use.
type Service struct {
	db      *db.DB
	log     *slog.Logger
	cache   *cache
	lookups chan struct{}
	late    late
}

// maxLookups bounds the keys looked up at once, so that a flood of keys that
// do not exist leaves the database's readers to the callers that do.
const maxLookups = 4

// New brings the tables up to date and returns the service. It is ready for
// calls; without [Service.Bootstrap] a new database has no user.
func New(ctx context.Context, d *db.DB, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "identity", migrations); err != nil {
		return nil, err
	}
	return &Service{
		db: d, log: log.With("component", "identity"), cache: newCache(), lookups: make(chan struct{}, maxLookups),
		late: late{lost: prometheus.NewCounter(prometheus.CounterOpts{Name: "yunhe_identity_audit_lost_total", Help: "Audit events for which there was no room while the database took no writes."})},
	}, nil
}

// Authenticate returns the caller that a key stands for. Whatever is wrong
// with the key, the error is the same fault.Unauthenticated; the database not
// answering is fault.Unavailable or unclassified. The caller's Permissions
// are shared and must not be changed.
//
// A key seen within the last 2 s costs no database access.
func (s *Service) Authenticate(ctx context.Context, token string) (core.Caller, error) {
	id, hash, ok := parseKey(token)
	if !ok {
		return core.Caller{}, errKey
	}
	now := s.db.Now()
	e, _ := s.cache.get(id, now)
	if e == nil {
		var err error
		if e, err = s.lookup(ctx, id); err != nil {
			return core.Caller{}, err
		}
	}
	if subtle.ConstantTimeCompare(e.hash[:], hash[:]) != 1 || !e.known || e.revoked || !e.expires.IsZero() && !now.Before(e.expires) {
		return core.Caller{}, errKey
	}
	return e.caller, nil
}

func (s *Service) lookup(ctx context.Context, id keyID) (*entry, error) {
	select {
	case s.lookups <- struct{}{}:
		defer func() { <-s.lookups }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	now := s.db.Now()
	e, changes := s.cache.get(id, now) // another caller may have looked meanwhile
	if e != nil {
		return e, nil
	}
	e = &entry{read: now} // before the read: an entry is never younger than what it holds
	err := s.db.View(ctx, func(tx *db.Tx) error {
		r, found, err := getKey(ctx, tx, id.String())
		if err != nil || !found {
			return err
		}
		e.known, e.expires, e.revoked = true, r.ExpiresAt, !r.RevokedAt.IsZero()
		copy(e.hash[:], r.hash)
		e.caller = core.Caller{
			UserID: r.UserID, UserName: r.user.Name, TenantID: r.TenantID, KeyID: r.ID,
			Permissions: rolePermissions[r.user.Role], AllTenants: r.user.Role.AllTenants(),
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.cache.put(id, e, changes)
	return e, nil
}

// Audit stores an event of a call that ended with outcome ("OK" or an error's
// code), made by the caller in ctx. While the database takes no writes the event
// is held in memory ([Service.Run]); an error says that there was no room.
func (s *Service) Audit(ctx context.Context, a core.Audit, subject, outcome string) error {
	e := event(ctx, s.db.Now(), a, subject, outcome)
	err := errors.New("others wait already") // and nobody for a database that takes nothing
	if !s.late.some() {
		if err = s.db.Tx(ctx, func(tx *db.Tx) error { return insertEvents(ctx, tx, e) }); err == nil || !notNow(err) {
			return err
		}
	}
	if full := s.late.hold(e); full != nil {
		return full
	}
	s.log.Warn("audit event held until the database takes it", "method", e.Method, "user_id", e.UserID, "key_id", e.KeyID, "subject", e.Subject, "outcome", e.Outcome, "remote", e.Remote, "error", err)
	return nil
}

// AuditTx stores, in the caller's transaction, the event that the request in
// ctx succeeded, and marks the request as audited once that is committed. It
// does nothing if ctx comes from no request.
func (s *Service) AuditTx(ctx context.Context, tx *db.Tx, subject string) error {
	return s.AuditAllTx(ctx, tx, []Success{{ctx, subject}})
}

// Success is a request that succeeded.
type Success struct {
	Request context.Context // the request's own
	Subject string
}

// AuditAllTx is AuditTx for several requests that one transaction serves.
func (s *Service) AuditAllTx(ctx context.Context, tx *db.Tx, list []Success) error {
	var events []Event
	var audits []*core.Audit
	for _, x := range list {
		if a := core.AuditFrom(x.Request); a != nil {
			audits = append(audits, a)
			events = append(events, event(x.Request, tx.Now, *a, x.Subject, "OK"))
		}
	}
	if len(events) == 0 {
		return nil
	}
	if err := insertEvents(ctx, tx, events...); err != nil {
		return err
	}
	tx.AfterCommit(func() {
		for _, a := range audits {
			a.Done = true
		}
	})
	return nil
}

func event(ctx context.Context, at time.Time, a core.Audit, subject, outcome string) Event {
	c := core.CallerFrom(ctx)
	return Event{
		ID: core.NewID("aud"), At: at, TenantID: c.TenantID, UserID: c.UserID, KeyID: c.KeyID,
		Method: clean(a.Method), Subject: clean(subject), Outcome: clean(outcome), Remote: clean(a.Remote),
	}
}

// clean makes text storable on every engine: what a caller put into a path
// must not keep the event from being written.
func clean(s string) string {
	const limit = 256
	s = s[:min(len(s), limit)]
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// refused stores the audit event of a failed call to a method that any caller
// may call, because the rpc layer does so only for ".write" permissions.
func (s *Service) refused(ctx context.Context, subject string, err error) {
	a := core.AuditFrom(ctx)
	if a == nil || err == nil {
		return
	}
	actx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if aerr := s.Audit(actx, *a, subject, fault.KindOf(err).String()); aerr != nil {
		s.log.Error("audit event not stored", "method", a.Method, "subject", subject, "error", aerr)
		return
	}
	a.Done = true
}

// EventFilter narrows a list of audit events; empty fields match all.
type EventFilter struct {
	UserID  string
	Method  string
	Subject string // what the call was about
}

// ListEvents returns a page of audit events the caller may see, newest first,
// and the token of the next page, "" on the last. It returns fault.Invalid
// for a bad page size, token or filter.
func (s *Service) ListEvents(ctx context.Context, f EventFilter, size int32, token string) ([]Event, string, error) {
	var c core.Check
	c.Text("user_id", f.UserID, false, 0, 256)
	c.Text("method", f.Method, false, 0, 256)
	c.Text("subject", f.Subject, false, 0, 512)
	if err := c.Err(); err != nil {
		return nil, "", err
	}
	tenant, err := scope(ctx, "")
	if err != nil {
		return nil, "", err
	}
	return page(ctx, s, size, token, func(e Event) string { return e.ID }, func(tx *db.Tx, before string, n int) ([]Event, error) {
		return listEvents(ctx, tx, f, tenant, before, n)
	})
}

// CreateTenant creates a tenant; its name is its ID if it has none. It
// returns fault.Invalid, and fault.Exists if the ID is taken.
func (s *Service) CreateTenant(ctx context.Context, t Tenant) (Tenant, error) {
	if err := checkTenant(t); err != nil {
		return Tenant{}, err
	}
	if t.Name == "" {
		t.Name = t.ID
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		t.CreatedAt = tx.Now
		if err := insertTenant(ctx, tx, t); err != nil {
			return err
		}
		return s.AuditTx(ctx, tx, t.ID)
	})
	if err != nil {
		return Tenant{}, err
	}
	s.log.Info("tenant created", "tenant_id", t.ID)
	return t, nil
}

// CheckTenant returns fault.NotFound unless there is such a tenant.
func (s *Service) CheckTenant(ctx context.Context, id string) error {
	return s.db.View(ctx, func(tx *db.Tx) error {
		found, err := tx.Get(ctx, `SELECT tenant_id FROM tenants WHERE tenant_id = $1`, []any{id}, new(string))
		if err == nil && !found {
			err = noTenant(id)
		}
		return err
	})
}

// ListTenants returns a page of the tenants the caller may see, by ID, and
// the token of the next page. It returns fault.Invalid for a bad page.
func (s *Service) ListTenants(ctx context.Context, size int32, token string) ([]Tenant, string, error) {
	tenant, err := scope(ctx, "")
	if err != nil {
		return nil, "", err
	}
	return page(ctx, s, size, token, func(t Tenant) string { return t.ID }, func(tx *db.Tx, after string, n int) ([]Tenant, error) {
		return listTenants(ctx, tx, tenant, after, n)
	})
}

// CreateUser creates a user; the name is the ID if there is none. It returns
// fault.Invalid, fault.Denied if the role may more than the caller,
// fault.NotFound if the caller sees no such tenant, and fault.Exists if the
// ID is taken.
func (s *Service) CreateUser(ctx context.Context, u User) (User, error) {
	if err := checkUser(u); err != nil {
		return User{}, err
	}
	caller := core.CallerFrom(ctx)
	if !caller.Sees(u.TenantID) {
		return User{}, noTenant(u.TenantID)
	}
	if !grantable(caller, u.Role) {
		return User{}, fault.New(fault.Denied, "user %s may not create a user with role %s, which may more than themselves", caller.UserID, u.Role)
	}
	if u.Name == "" {
		u.Name = u.ID
	}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		u.CreatedAt = tx.Now
		if found, err := hasTenant(ctx, tx, u.TenantID); err != nil {
			return err
		} else if !found {
			return noTenant(u.TenantID)
		}
		if err := insertUser(ctx, tx, u); err != nil {
			return err
		}
		return s.AuditTx(ctx, tx, u.ID)
	})
	if err != nil {
		return User{}, err
	}
	s.log.Info("user created", "user_id", u.ID, "tenant_id", u.TenantID, "role", u.Role)
	return u, nil
}

func noTenant(id string) error { return fault.New(fault.NotFound, "there is no tenant %s", id) }
func noUser(id string) error   { return fault.New(fault.NotFound, "there is no user %s", id) }
func noKey(id string) error    { return fault.New(fault.NotFound, "there is no key %s", id) }

// GetUser returns a user the caller may see, fault.NotFound otherwise.
func (s *Service) GetUser(ctx context.Context, id string) (User, error) {
	var c core.Check
	checkID(&c, "user_id", id, "-.")
	if err := c.Err(); err != nil {
		return User{}, err
	}
	var u User
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		u, err = visibleUser(ctx, tx, id)
		return err
	})
	return u, err
}

func visibleUser(ctx context.Context, tx *db.Tx, id string) (User, error) {
	u, found, err := getUser(ctx, tx, id)
	if err != nil {
		return User{}, err
	}
	if !found || !core.CallerFrom(ctx).Sees(u.TenantID) {
		return User{}, noUser(id)
	}
	return u, nil
}

// ListUsers returns a page of the users the caller may see, by ID, of one
// tenant if it is named, and the token of the next page. It returns
// fault.Invalid for a bad page or tenant ID.
func (s *Service) ListUsers(ctx context.Context, tenantID string, size int32, token string) ([]User, string, error) {
	var c core.Check
	if tenantID != "" {
		checkID(&c, "tenant_id", tenantID, "-")
	}
	if err := c.Err(); err != nil {
		return nil, "", err
	}
	tenant, err := scope(ctx, tenantID)
	if err != nil {
		return nil, "", err
	}
	if tenantID != "" && tenant != tenantID {
		return nil, "", nil // as if it had no users
	}
	return page(ctx, s, size, token, func(u User) string { return u.ID }, func(tx *db.Tx, after string, n int) ([]User, error) {
		return listUsers(ctx, tx, tenant, after, n)
	})
}

// CreateKey creates a key for the caller, or for another user if the caller
// has identity.write, and returns it with its secret, which is not stored. It
// returns fault.Invalid, fault.Denied for another user of the tenant without
// that permission or one who may more than the caller, fault.NotFound for a
// user the caller cannot see, and fault.Exhausted if the user has 100 usable
// keys.
func (s *Service) CreateKey(ctx context.Context, n NewKey) (Key, string, error) {
	k, secret, err := s.createKey(ctx, n)
	if err != nil {
		s.refused(ctx, n.UserID, err)
		return Key{}, "", err
	}
	s.log.Info("key created", "key_id", k.ID, "user_id", k.UserID, "by", core.CallerFrom(ctx).UserID)
	return k, secret, nil
}

func (s *Service) createKey(ctx context.Context, n NewKey) (k Key, secret string, err error) {
	if err := checkKey(n); err != nil {
		return Key{}, "", err
	}
	caller := core.CallerFrom(ctx)
	if caller.UserID == "" {
		return Key{}, "", errKey
	}
	if n.UserID == "" {
		n.UserID = caller.UserID
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		u, err := visibleUser(ctx, tx, n.UserID)
		if err != nil {
			return err
		}
		if u.ID != caller.UserID && (!caller.Can("identity.write") || !grantable(caller, u.Role)) {
			return fault.New(fault.Denied, "user %s may not create keys of user %s", caller.UserID, u.ID)
		}
		if have, err := countKeys(ctx, tx, u.ID); err != nil {
			return err
		} else if have >= maxKeys {
			return fault.New(fault.Exhausted, "user %s has %d usable keys, the most there may be: revoke some", u.ID, have)
		}
		k = Key{UserID: u.ID, TenantID: u.TenantID, Note: n.Note, CreatedAt: tx.Now}
		if n.TTLSeconds > 0 {
			k.ExpiresAt = tx.Now.Add(time.Duration(n.TTLSeconds) * time.Second)
		}
		if secret, err = insertNewKey(ctx, tx, &k); err != nil {
			return err
		}
		return s.AuditTx(ctx, tx, k.ID)
	})
	return k, secret, err
}

// insertNewKey makes a key with an ID that is free.
func insertNewKey(ctx context.Context, tx *db.Tx, k *Key) (string, error) {
	for {
		id, key, hash := newKey()
		k.ID = id.String()
		ok, err := insertKey(ctx, tx, *k, hash)
		if err != nil {
			return "", err
		}
		if ok {
			return key, nil
		}
	}
}

// ListKeys returns a page of keys by ID, and the token of the next page: the
// caller's own or, with identity.read, those of every user the caller may
// see. userID narrows it to one user. It returns fault.Invalid,
// fault.NotFound for a user the caller cannot see, and fault.Denied for
// another user of the tenant without identity.read.
func (s *Service) ListKeys(ctx context.Context, userID string, size int32, token string) ([]Key, string, error) {
	var c core.Check
	if userID != "" {
		checkID(&c, "user_id", userID, "-.")
	}
	if err := c.Err(); err != nil {
		return nil, "", err
	}
	caller := core.CallerFrom(ctx)
	tenant, err := scope(ctx, "")
	if err != nil {
		return nil, "", err
	}
	all := caller.Can("identity.read")
	if userID == "" && !all {
		userID = caller.UserID
	}
	return page(ctx, s, size, token, func(k Key) string { return k.ID }, func(tx *db.Tx, after string, n int) ([]Key, error) {
		if userID != "" {
			u, err := visibleUser(ctx, tx, userID)
			if err != nil {
				return nil, err
			}
			if u.ID != caller.UserID && !all {
				return nil, fault.New(fault.Denied, "user %s may not list keys of user %s", caller.UserID, u.ID)
			}
		}
		return listKeys(ctx, tx, tenant, userID, after, n)
	})
}

// RevokeKey ends a key of the caller or, with identity.write, of another user
// who may no more than the caller. Revoking a revoked key changes nothing. It
// returns fault.NotFound for a key the caller cannot see, and fault.Denied
// for another user's key without that permission.
func (s *Service) RevokeKey(ctx context.Context, id string) error {
	err := s.revokeKey(ctx, id)
	if err != nil {
		s.refused(ctx, id, err)
		return err
	}
	s.log.Info("key revoked", "key_id", id, "by", core.CallerFrom(ctx).UserID)
	return nil
}

func (s *Service) revokeKey(ctx context.Context, id string) error {
	caller := core.CallerFrom(ctx)
	if caller.UserID == "" {
		return errKey
	}
	var kid keyID
	if copy(kid[:], id); len(id) != keyIDLen || !isKeyID(kid) {
		if id == "" {
			return fault.Fields(fault.Field{Path: "key_id", Problem: "is required"})
		}
		return noKey(clean(id))
	}
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		r, found, err := getKey(ctx, tx, id)
		if err != nil {
			return err
		}
		if !found || !caller.Sees(r.TenantID) {
			return noKey(id)
		}
		if r.UserID != caller.UserID && (!caller.Can("identity.write") || !grantable(caller, r.user.Role)) {
			return fault.New(fault.Denied, "user %s may not revoke keys of user %s", caller.UserID, r.UserID)
		}
		if err := revokeKey(ctx, tx, id); err != nil {
			return err
		}
		tx.AfterCommit(func() { s.cache.drop(kid) })
		return s.AuditTx(ctx, tx, id)
	})
}

// scope returns the tenant a list is limited to, "" for all. Without a caller
// there is none: the empty tenant of nobody must not read as "all".
func scope(ctx context.Context, wanted string) (string, error) {
	caller := core.CallerFrom(ctx)
	if caller.UserID == "" {
		return "", errKey
	}
	return caller.Tenant(wanted), nil
}

// page reads one row more than wanted to learn whether there is another page.
func page[T any](ctx context.Context, s *Service, wanted int32, token string, key func(T) string, read func(tx *db.Tx, from string, n int) ([]T, error)) ([]T, string, error) {
	size, err := core.PageSize(wanted, 100)
	if err != nil {
		return nil, "", err
	}
	from := ""
	if k, err := core.ParsePageToken(token, 1); err != nil {
		return nil, "", err
	} else if k != nil {
		from = k[0]
	}
	if clean(from) != from {
		return nil, "", fault.Fields(fault.Field{Path: "page_token", Problem: "is not a token of this list; leave it empty to start anew"})
	}
	var rows []T
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		rows, err = read(tx, from, size+1)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if len(rows) <= size {
		return rows, "", nil
	}
	return rows[:size], core.PageToken(key(rows[size-1])), nil
}
