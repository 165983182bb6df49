package identity

import (
	"context"
	"crypto/sha256"
	"fmt"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

func insertTenant(ctx context.Context, tx *db.Tx, t Tenant) error {
	n, err := tx.Exec(ctx, `INSERT INTO tenants (tenant_id, name, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
		t.ID, t.Name, db.Micros(t.CreatedAt))
	if err != nil {
		return fmt.Errorf("insert tenant %s: %w", t.ID, err)
	}
	if n == 0 {
		return fault.New(fault.Exists, "tenant %s exists already", t.ID)
	}
	return nil
}

func hasTenant(ctx context.Context, tx *db.Tx, id string) (bool, error) {
	var one int
	found, err := tx.Get(ctx, `SELECT 1 FROM tenants WHERE tenant_id = $1`, []any{id}, &one)
	if err != nil {
		return false, fmt.Errorf("read tenant %s: %w", id, err)
	}
	return found, nil
}

// filter makes the end of a list query. A column that is not filtered is not
// mentioned: "$1 = ” OR column = $1" would keep both engines from its index.
type filter struct {
	where string
	args  []any
}

// add limits the rows to those with the value, unless it is empty.
func (f *filter) add(column, value string) {
	if value != "" {
		f.args = append(f.args, value)
		f.where += fmt.Sprintf(" AND %s = $%d", column, len(f.args))
	}
}

// end returns the query's end; it adds the limit to args.
func (f *filter) end(order string, limit int) string {
	f.args = append(f.args, limit)
	return fmt.Sprintf(" WHERE %s ORDER BY %s LIMIT $%d", f.where, order, len(f.args))
}

// listTenants returns up to n tenants after the given ID, only the named one
// if only is not empty.
func listTenants(ctx context.Context, tx *db.Tx, only, after string, n int) ([]Tenant, error) {
	f := filter{`tenant_id > $1`, []any{after}}
	f.add("tenant_id", only)
	var out []Tenant
	err := tx.Query(ctx, `SELECT tenant_id, name, created_at FROM tenants`+f.end("tenant_id", n), f.args, func(row db.Row) error {
		var t Tenant
		var created int64
		if err := row.Scan(&t.ID, &t.Name, &created); err != nil {
			return err
		}
		t.CreatedAt = db.Time(created)
		out = append(out, t)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list tenants: %w", err)
	}
	return out, nil
}

func insertUser(ctx context.Context, tx *db.Tx, u User) error {
	n, err := tx.Exec(ctx, `INSERT INTO users (user_id, tenant_id, name, role, created_at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`,
		u.ID, u.TenantID, u.Name, string(u.Role), db.Micros(u.CreatedAt))
	if err != nil {
		return fmt.Errorf("insert user %s: %w", u.ID, err)
	}
	if n == 0 {
		return fault.New(fault.Exists, "user %s exists already", u.ID)
	}
	return nil
}

const userColumns = `user_id, tenant_id, name, role, created_at`

func scanUser(row db.Row) (User, error) {
	var u User
	var created int64
	err := row.Scan(&u.ID, &u.TenantID, &u.Name, &u.Role, &created)
	u.CreatedAt = db.Time(created)
	return u, err
}

func getUser(ctx context.Context, tx *db.Tx, id string) (u User, found bool, err error) {
	err = tx.Query(ctx, `SELECT `+userColumns+` FROM users WHERE user_id = $1`, []any{id}, func(row db.Row) (err error) {
		found = true
		u, err = scanUser(row)
		return err
	})
	if err != nil {
		return u, false, fmt.Errorf("read user %s: %w", id, err)
	}
	return u, found, nil
}

func anyUser(ctx context.Context, tx *db.Tx) (bool, error) {
	var one int
	found, err := tx.Get(ctx, `SELECT 1 FROM users LIMIT 1`, nil, &one)
	if err != nil {
		return false, fmt.Errorf("read users: %w", err)
	}
	return found, nil
}

// listUsers returns up to n users after the given ID, of every tenant if
// tenant is empty.
func listUsers(ctx context.Context, tx *db.Tx, tenant, after string, n int) ([]User, error) {
	f := filter{`user_id > $1`, []any{after}}
	f.add("tenant_id", tenant)
	var out []User
	err := tx.Query(ctx, `SELECT `+userColumns+` FROM users`+f.end("user_id", n), f.args, func(row db.Row) error {
		u, err := scanUser(row)
		out = append(out, u)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list users: %w", err)
	}
	return out, nil
}

// insertKey reports whether it was inserted; false means the ID is taken.
func insertKey(ctx context.Context, tx *db.Tx, k Key, hash [sha256.Size]byte) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO api_keys (key_id, user_id, note, hash, created_at, expires_at, revoked_at)
		VALUES ($1, $2, $3, $4, $5, $6, 0) ON CONFLICT DO NOTHING`,
		k.ID, k.UserID, k.Note, hash[:], db.Micros(k.CreatedAt), db.Micros(k.ExpiresAt))
	if err != nil {
		return false, fmt.Errorf("insert key %s: %w", k.ID, err)
	}
	return n == 1, nil
}

// countKeys returns how many of the user's keys can be used at the time.
func countKeys(ctx context.Context, tx *db.Tx, userID string) (n int64, err error) {
	_, err = tx.Get(ctx, `SELECT COUNT(*) FROM api_keys WHERE user_id = $1 AND revoked_at = 0 AND (expires_at = 0 OR expires_at > $2)`,
		[]any{userID, db.Micros(tx.Now)}, &n)
	if err != nil {
		return 0, fmt.Errorf("count keys of %s: %w", userID, err)
	}
	return n, nil
}

// keyRecord is a key as stored, with its user.
type keyRecord struct {
	Key
	hash []byte
	user User
}

const keyColumns = `k.key_id, k.user_id, u.tenant_id, k.note, k.created_at, k.expires_at, k.revoked_at, k.hash, u.name, u.role`

func scanKey(row db.Row) (r keyRecord, err error) {
	var created, expires, revoked int64
	err = row.Scan(&r.ID, &r.UserID, &r.TenantID, &r.Note, &created, &expires, &revoked, &r.hash, &r.user.Name, &r.user.Role)
	r.CreatedAt, r.ExpiresAt, r.RevokedAt = db.Time(created), db.Time(expires), db.Time(revoked)
	r.user.ID, r.user.TenantID = r.UserID, r.TenantID
	return r, err
}

func getKey(ctx context.Context, tx *db.Tx, id string) (r keyRecord, found bool, err error) {
	err = tx.Query(ctx, `SELECT `+keyColumns+` FROM api_keys k JOIN users u ON u.user_id = k.user_id WHERE k.key_id = $1`, []any{id},
		func(row db.Row) (err error) {
			found = true
			r, err = scanKey(row)
			return err
		})
	if err != nil {
		return r, false, fmt.Errorf("read key %s: %w", id, err)
	}
	return r, found, nil
}

// listKeys returns up to n keys after the given ID. An empty tenant or user
// means all of them.
func listKeys(ctx context.Context, tx *db.Tx, tenant, user, after string, n int) ([]Key, error) {
	f := filter{`k.key_id > $1`, []any{after}}
	f.add("u.tenant_id", tenant)
	f.add("k.user_id", user)
	var out []Key
	err := tx.Query(ctx, `SELECT `+keyColumns+` FROM api_keys k JOIN users u ON u.user_id = k.user_id`+f.end("k.key_id", n), f.args, func(row db.Row) error {
		r, err := scanKey(row)
		out = append(out, r.Key)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	return out, nil
}

func revokeKey(ctx context.Context, tx *db.Tx, id string) error {
	if _, err := tx.Exec(ctx, `UPDATE api_keys SET revoked_at = $2 WHERE key_id = $1 AND revoked_at = 0`, id, db.Micros(tx.Now)); err != nil {
		return fmt.Errorf("revoke key %s: %w", id, err)
	}
	return nil
}

var eventColumns = []string{"event_id", "at", "tenant_id", "user_id", "key_id", "method", "subject", "outcome", "remote"}

func eventRows(events []Event) [][]any {
	rows := make([][]any, len(events))
	for i, e := range events {
		rows[i] = []any{e.ID, db.Micros(e.At), e.TenantID, e.UserID, e.KeyID, e.Method, e.Subject, e.Outcome, e.Remote}
	}
	return rows
}

func insertEvents(ctx context.Context, tx *db.Tx, events ...Event) error {
	return tx.InsertLater(ctx, "store audit events", "audit_events", eventColumns, eventRows(events))
}

// listEvents returns up to n events before the given ID, newest first. Empty
// filters match all.
func listEvents(ctx context.Context, tx *db.Tx, want EventFilter, tenant, before string, n int) ([]Event, error) {
	if before == "" {
		before = "z" // sorts after every ID, in any collation
	}
	f := filter{`event_id < $1`, []any{before}}
	f.add("tenant_id", tenant)
	f.add("user_id", want.UserID)
	f.add("method", want.Method)
	f.add("subject", want.Subject)
	var out []Event
	err := tx.Query(ctx, `SELECT event_id, at, tenant_id, user_id, key_id, method, subject, outcome, remote FROM audit_events`+f.end("event_id DESC", n), f.args, func(row db.Row) error {
		var e Event
		var at int64
		if err := row.Scan(&e.ID, &at, &e.TenantID, &e.UserID, &e.KeyID, &e.Method, &e.Subject, &e.Outcome, &e.Remote); err != nil {
			return err
		}
		e.At = db.Time(at)
		out = append(out, e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list audit events: %w", err)
	}
	return out, nil
}
