// Package identity knows who calls: tenants, users, API keys and the audit
// trail.
//
// What it keeps true:
//
//   - A key's secret leaves this package once, in the answer of [Service.CreateKey]
//     (or in the file of [Service.Bootstrap]). What is stored is its SHA-256.
//   - A revoked key is refused at once by the process that revoked it and
//     within 2 s by every other. An expired key is refused from the
//     microsecond on at which it expires.
//   - Every refused credential gets the same error, so that a guess learns
//     nothing from the answer.
//   - Nobody creates a user who may more than themselves.
//   - A record of another tenant is not found, never denied: its existence is
//     not told. Only roles that see every tenant see it.
//   - An audit event written with [Service.AuditTx] exists if and only if the
//     change it is about was committed.
//
// # Keys
//
// A key reads yk_<8 characters that name it>_<43 characters of secret>. The
// secret is 256 random bits in base64url, so a plain hash is enough: a key
// derivation function slows down guessing of what people choose, and 2^256
// needs no slowing down, while it would cost every request milliseconds.
//
// # The first key
//
// Bootstrap makes the first user and its key. The key file is on disk,
// complete, before the database knows its hash. A crash in between leaves a
// file whose key nobody knows; the next start adopts it. A key that was
// revoked stays in the table and is therefore never adopted again.
package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// Role says what a user may do. It is stored; see [Role.Permissions].
type Role string

// The roles.
const (
	Admin    Role = "admin"
	Operator Role = "operator"
	Member   Role = "user" // of a tenant; the ordinary case
	Auditor  Role = "auditor"
)

// permissions is every permission a method may name besides "public" and
// "self", sorted.
var permissions = []string{
	"adapters.read", "adapters.write", "audit.read", "identity.read", "identity.write", "jobs.read", "jobs.write",
	"metering.read", "monitor.read", "registry.read", "registry.write", "scheduler.read", "scheduler.write",
}

var rolePermissions = map[Role]map[string]bool{
	Admin:    only(func(string) bool { return true }),
	Operator: only(func(p string) bool { return p != "identity.write" && p != "audit.read" }),
	Member: only(func(p string) bool {
		return slices.Contains([]string{"jobs.read", "jobs.write", "metering.read", "monitor.read", "registry.read", "scheduler.read"}, p)
	}),
	Auditor: only(func(p string) bool { return strings.HasSuffix(p, ".read") }),
}

func only(keep func(string) bool) map[string]bool {
	m := map[string]bool{}
	for _, p := range permissions {
		if keep(p) {
			m[p] = true
		}
	}
	return m
}

// Permissions returns what the role may do, sorted; nothing if there is no
// such role.
func (r Role) Permissions() []string { return slices.Sorted(maps.Keys(rolePermissions[r])) }

// AllTenants reports whether the role sees every tenant's records.
func (r Role) AllTenants() bool { return r == Admin || r == Operator || r == Auditor }

// grantable reports whether the caller may make a user of role r: only who
// has all of its permissions and sees as much as it does.
func grantable(c core.Caller, r Role) bool {
	for p := range rolePermissions[r] {
		if !c.Can(p) {
			return false
		}
	}
	return c.AllTenants || !r.AllTenants()
}

// Tenant is an organization whose users see each other's work.
type Tenant struct {
	ID        string
	Name      string
	CreatedAt time.Time
}

// User acts for a tenant.
type User struct {
	ID        string
	TenantID  string
	Name      string
	Role      Role
	CreatedAt time.Time
}

// Key is an API key without its secret.
type Key struct {
	ID        string
	UserID    string
	TenantID  string
	Note      string
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
	RevokedAt time.Time // zero: not revoked
}

// NewKey is what a key is created from.
type NewKey struct {
	UserID     string // "": the caller
	Note       string
	TTLSeconds int64 // 0: until revoked
}

// Event is an entry of the audit trail.
type Event struct {
	ID       string
	At       time.Time
	TenantID string
	UserID   string
	KeyID    string
	Method   string // "yunhe.jobs.v1.JobService/StopJob"
	Subject  string // the ID the call was about, "" if none
	Outcome  string // "OK" or the error's code
	Remote   string // network address of the caller
}

// maxTTL is ten years: longer than any credential should live.
const maxTTL = 10 * 365 * 24 * 3600

// maxKeys bounds the usable keys of one user, so that a script that makes a
// key per run is noticed before the table is.
const maxKeys = 100

func checkTenant(t Tenant) error {
	var c core.Check
	checkID(&c, "tenant.tenant_id", t.ID, "-")
	c.Text("tenant.name", t.Name, false, 0, 64)
	return c.Err()
}

func checkUser(u User) error {
	var c core.Check
	checkID(&c, "user.user_id", u.ID, "-.")
	checkID(&c, "user.tenant_id", u.TenantID, "-")
	c.Text("user.name", u.Name, false, 0, 64)
	if rolePermissions[u.Role] == nil {
		c.Add("user.role", "must be admin, operator, user or auditor")
	}
	return c.Err()
}

func checkKey(n NewKey) error {
	var c core.Check
	if n.UserID != "" {
		checkID(&c, "user_id", n.UserID, "-.")
	}
	c.Text("note", n.Note, false, 0, 64)
	c.Range("ttl_seconds", n.TTLSeconds, 0, maxTTL)
	return c.Err()
}

// checkID checks an ID of lower-case letters, digits and the other characters.
func checkID(c *core.Check, path, id, others string) {
	switch {
	case id == "":
		c.Add(path, "is required")
	case len(id) > 32:
		c.Add(path, "must be at most 32 characters, got %d", len([]rune(id)))
	case strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789"+others) != "" || strings.Contains(others, id[:1]):
		names := "hyphens"
		if strings.Contains(others, ".") {
			names = "hyphens and dots"
		}
		c.Add(path, "must be lower-case letters, digits, %s, beginning with a letter or digit, got %q", names, id)
	}
}

const (
	keyPrefix   = "yk_"
	keyIDLen    = 8
	secretBytes = 32
	secretLen   = 43 // of secretBytes in base64url
	keyLen      = len(keyPrefix) + keyIDLen + 1 + secretLen
)

// keyID is the public part of a key.
type keyID [keyIDLen]byte

func (k keyID) String() string { return string(k[:]) }

// strict refuses a second spelling of the same secret.
var strict = base64.RawURLEncoding.Strict()

// parseKey takes a key apart. ok is false if it does not have the form of one.
func parseKey(key string) (id keyID, hash [sha256.Size]byte, ok bool) {
	if len(key) != keyLen || key[:len(keyPrefix)] != keyPrefix || key[len(keyPrefix)+keyIDLen] != '_' {
		return id, hash, false
	}
	copy(id[:], key[len(keyPrefix):])
	if !isKeyID(id) {
		return id, hash, false
	}
	var secret [secretBytes + 1]byte // one more: the decoder asks for room for whole groups
	n, err := strict.Decode(secret[:], []byte(key[keyLen-secretLen:]))
	if err != nil || n != secretBytes {
		return id, hash, false
	}
	return id, sha256.Sum256(secret[:secretBytes]), true
}

func isKeyID(id keyID) bool {
	for _, c := range id {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// newKey makes a key at random.
func newKey() (id keyID, key string, hash [sha256.Size]byte) {
	const alphabet = "abcdefghijklmnopqrstuvwxyz012345" // 32 characters: five bits each, evenly
	var random [keyIDLen + secretBytes]byte
	_, _ = rand.Read(random[:]) // never fails: the runtime ends the process instead
	for i := range id {
		id[i] = alphabet[random[i]%byte(len(alphabet))]
	}
	secret := random[keyIDLen:]
	return id, keyPrefix + id.String() + "_" + base64.RawURLEncoding.EncodeToString(secret), sha256.Sum256(secret)
}

// errKey answers every credential that is not accepted, whatever is wrong.
var errKey = fault.New(fault.Unauthenticated, "the key is not valid: it is unknown, expired or revoked")
