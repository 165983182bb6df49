// Package core holds the words every component shares: identifiers, money,
// quantities, intervals, pages, the caller. It does no I/O.
package core

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"yunhe.dev/yunhe/internal/fault"
)

var (
	entropyMu sync.Mutex
	entropy   io.Reader = &ulid.LockedMonotonicReader{MonotonicReader: ulid.Monotonic(rand.Reader, 0)}
	newest    uint64    // time of the last ID: a clock that is set back does not take them back
)

// NewID returns a new identifier: the prefix, an underscore and 26 characters
// that sort by time of creation, within this process even inside one
// millisecond and when the machine's clock is set back. IDs are never reused.
// Those of several processes sort as their machines' clocks say: nothing but the
// order of lists may rest on it.
func NewID(prefix string) string {
	entropyMu.Lock()
	defer entropyMu.Unlock()
	newest = max(newest, ulid.Timestamp(time.Now()))
	id, err := ulid.New(newest, entropy)
	if err != nil { // the monotonic counter is used up within this millisecond
		newest++
		id = ulid.MustNew(newest, entropy)
	}
	return prefix + "_" + id.String()
}

// FirstID returns what no ID of the prefix made at or after t sorts before.
func FirstID(prefix string, t time.Time) string {
	var id ulid.ULID
	if err := id.SetTime(ulid.Timestamp(t)); err != nil {
		return prefix + "_"
	}
	return prefix + "_" + id.String()
}

// Caller is who makes a request. It travels in the context.
type Caller struct {
	UserID   string
	UserName string
	TenantID string
	KeyID    string
	// Permissions the caller has; see Can.
	Permissions map[string]bool
	// AllTenants: the caller may see every tenant's records.
	AllTenants bool
}

// Can reports whether the caller has the permission.
func (c Caller) Can(permission string) bool { return c.Permissions[permission] }

// Tenant returns the tenant a query of this caller is limited to: the wanted
// one if the caller may see all tenants ("" means all of them), the caller's
// own otherwise. It is the one place that decides this.
func (c Caller) Tenant(wanted string) string {
	switch {
	case c.AllTenants:
		return wanted
	case c.TenantID == "":
		return nobody // "" would mean all
	default:
		return c.TenantID
	}
}

// nobody is no tenant's ID: those begin with a letter or digit.
const nobody = "-"

// Sees reports whether the caller may see records of the tenant.
func (c Caller) Sees(tenant string) bool {
	return c.AllTenants || c.TenantID != "" && c.TenantID == tenant
}

type callerKey struct{}

// WithCaller returns a context that carries the caller.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom returns the caller of the request; the zero Caller, which may
// nothing, if there is none.
func CallerFrom(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// PageSize returns the page size to use for a wanted one: def if it is 0.
// Outside 1 to 1000 it returns a fault.Invalid that says so.
func PageSize(wanted int32, def int) (int, error) {
	if wanted == 0 {
		return def, nil
	}
	if wanted < 0 || wanted > 1000 {
		return 0, fault.Fields(fault.Field{Path: "page_size", Problem: "must be between 1 and 1000, got " + itoa(int64(wanted))})
	}
	return int(wanted), nil
}

// PageToken packs the key of the last row of a page into an opaque token.
func PageToken(key ...string) string {
	b, err := json.Marshal(key)
	if err != nil {
		return "" // strings always marshal
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParsePageToken unpacks a token of n parts; nil for "", a fault.Invalid for
// anything PageToken did not make.
func ParsePageToken(token string, n int) ([]string, error) {
	if token == "" {
		return nil, nil
	}
	bad := fault.Fields(fault.Field{Path: "page_token", Problem: "is not a token of this list; leave it empty to start anew"})
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(token) > 1024 {
		return nil, bad
	}
	var key []string
	if json.Unmarshal(b, &key) != nil || len(key) != n || strings.ContainsRune(strings.Join(key, ""), 0) { // no database takes a zero byte as text
		return nil, bad
	}
	return key, nil
}

// Audit follows a request that changes something. A component that writes the
// audit event itself, in the transaction of the change, sets Done; otherwise
// the rpc layer writes it after the call.
type Audit struct {
	Method string
	Remote string
	Done   bool
}

type auditKey struct{}

// WithAudit returns a context that carries the audit record.
func WithAudit(ctx context.Context, a *Audit) context.Context {
	return context.WithValue(ctx, auditKey{}, a)
}

// AuditFrom returns the audit record of the request, nil if there is none.
func AuditFrom(ctx context.Context) *Audit {
	a, _ := ctx.Value(auditKey{}).(*Audit)
	return a
}
