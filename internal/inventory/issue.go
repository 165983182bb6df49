package inventory

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/inventory/identifier"
)

// Identifier is a compute identifier that was issued.
type Identifier struct {
	Identifier string
	ResourceID string
	Form       identifier.Form
	Zone       string // the availability zone the provider may report compute of
	Code       string // registration code: a JSON Web Signature
	IssuedAt   time.Time
	RevokedAt  time.Time // zero while it is valid
	Reason     string    // of the revocation

	tenantID string
}

// Standing says whether an identifier is known here.
type Standing int

// The standings.
const (
	UnknownHere Standing = 1
	Valid       Standing = 2
	Revoked     Standing = 3
)

// Verification is what is true of an identifier.
type Verification struct {
	Identifier  string
	Problem     string // "": it is well-formed
	Form        identifier.Form
	Standing    Standing
	Issued      *Identifier // if it was issued here and the caller may see it
	CodeValid   bool
	CodeProblem string // of a code that was given
}

// Key is a public key of registration codes.
type Key struct {
	ID     string
	Public ed25519.PublicKey
}

// maxCode is more than any registration code has.
const maxCode = 4096

// claims are what a registration code says.
type claims struct {
	Identifier string `json:"sub"`
	Enterprise string `json:"enterprise"`
	Zone       string `json:"availability_zone"`
	IssuedAt   int64  `json:"iat"` // seconds since 1970
}

type header struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
	Type      string `json:"typ"`
}

const codeType = "compute-identifier+jws"

// signer makes registration codes.
type signer struct {
	id  string
	key ed25519.PrivateKey
}

func (k *signer) sign(c claims) (string, error) {
	h, err := json.Marshal(header{"EdDSA", k.id, codeType})
	if err != nil {
		return "", fmt.Errorf("header of a registration code: %w", err)
	}
	b, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("claims of a registration code: %w", err)
	}
	enc := base64.RawURLEncoding
	body := enc.EncodeToString(h) + "." + enc.EncodeToString(b)
	return body + "." + enc.EncodeToString(ed25519.Sign(k.key, []byte(body))), nil
}

// readCode takes a registration code apart and checks its signature.
func readCode(code string, keys []Key) (claims, error) {
	parts := strings.Split(code, ".")
	if len(code) > maxCode || len(parts) != 3 {
		return claims{}, errors.New("it is not a registration code")
	}
	var raw [3][]byte
	for i, p := range parts {
		var err error
		if raw[i], err = base64.RawURLEncoding.Strict().DecodeString(p); err != nil {
			return claims{}, errors.New("it is not a registration code")
		}
	}
	var h header
	if json.Unmarshal(raw[0], &h) != nil || h.Algorithm != "EdDSA" || h.Type != codeType {
		return claims{}, errors.New("it is not a registration code")
	}
	for _, k := range keys {
		if k.ID != h.KeyID {
			continue
		}
		if !ed25519.Verify(k.Public, []byte(parts[0]+"."+parts[1]), raw[2]) {
			return claims{}, errors.New("its signature is wrong")
		}
		var c claims
		if err := json.Unmarshal(raw[1], &c); err != nil {
			return claims{}, errors.New("what it says cannot be read")
		}
		return c, nil
	}
	return claims{}, errors.New("it is signed by a key that is not of this platform")
}

const keyPurpose = "inventory.identifier_keys"

// signing returns the signer, making its key on the first call ever.
func (s *Service) signing(ctx context.Context) (*signer, error) {
	s.mu.Lock()
	have := s.signer
	s.mu.Unlock()
	if have != nil {
		return have, nil
	}
	k := &signer{}
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		var sealed []byte
		found, err := tx.Get(ctx, `SELECT key_id, private FROM identifier_keys ORDER BY created_at DESC, key_id LIMIT 1`, nil, &k.id, &sealed)
		if err != nil {
			return fmt.Errorf("read key of identifiers: %w", err)
		}
		if found {
			seed, err := s.box.Open(sealed, keyPurpose)
			if err != nil {
				return fmt.Errorf("open key of identifiers %s: %w", k.id, err)
			}
			k.key = ed25519.NewKeyFromSeed(seed)
			return nil
		}
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return fmt.Errorf("make key of identifiers: %w", err)
		}
		sum := sha256.Sum256(public)
		k.id, k.key = hex.EncodeToString(sum[:8]), private
		return tx.Insert(ctx, "identifier_keys", []string{"key_id", "public", "private", "created_at"},
			[][]any{{k.id, []byte(public), s.box.Seal(private.Seed(), keyPurpose), db.Micros(tx.Now)}})
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signer = k
	return k, nil
}

// Keys returns the public keys of registration codes, the newest first. There
// is none before the first identifier.
func (s *Service) Keys(ctx context.Context) (keys []Key, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		keys, err = readKeys(ctx, tx)
		return err
	})
	return keys, err
}

func readKeys(ctx context.Context, tx *db.Tx) (keys []Key, err error) {
	err = tx.Query(ctx, `SELECT key_id, public FROM identifier_keys ORDER BY created_at DESC, key_id`, nil, func(row db.Row) error {
		var k Key
		var public []byte
		if err := row.Scan(&k.ID, &public); err != nil {
			return err
		}
		if len(public) != ed25519.PublicKeySize {
			return fmt.Errorf("key %s has %d bytes", k.ID, len(public))
		}
		k.Public = public
		keys = append(keys, k)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read keys of identifiers: %w", err)
	}
	return keys, nil
}

// Issue issues the compute identifier of a resource. What the form leaves out
// is taken from the resource's attributes. Issuing the same again returns what
// was issued. It returns fault.Invalid with paths below "form.",
// fault.NotFound, fault.Denied, fault.Conflict if the resource has another
// identifier or is retired, and fault.Exists if another resource has the
// identifier or the chip has one.
func (s *Service) Issue(ctx context.Context, resourceID string, form identifier.Form, zone string) (Identifier, error) {
	r, err := s.Get(ctx, resourceID)
	if err != nil {
		return Identifier{}, err
	}
	fill(&form, &r)
	var c core.Check
	form.Check(&c, "form.")
	c.Text("availability_zone", zone, true, 0, 64)
	if err := c.Err(); err != nil {
		return Identifier{}, err
	}
	see := visibleTo(ctx)
	if !see.all && r.TenantID != see.tenant {
		return Identifier{}, fault.New(fault.Denied, "resource %s belongs to everyone; only who sees all tenants may have its identifier issued", r.ID)
	}
	if r.State == Retired {
		return Identifier{}, fault.New(fault.Conflict, "resource %s is retired", r.ID)
	}
	key, err := s.signing(ctx)
	if err != nil {
		return Identifier{}, err
	}
	var out Identifier
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		if _, _, view := viewed(r.ID); !view {
			now, err := getRecord(ctx, tx, r.ID)
			if err != nil {
				return err
			}
			if now == nil {
				return noResource(r.ID)
			}
		}
		out, err = issue(ctx, tx, key, Identifier{Identifier: form.String(), ResourceID: r.ID, Form: form, Zone: zone, IssuedAt: tx.Now, tenantID: r.TenantID})
		return err
	})
	if err != nil {
		return Identifier{}, err
	}
	s.log.Info("identifier issued", "identifier", out.Identifier, "resource_id", r.ID)
	return out, nil
}

func issue(ctx context.Context, tx *db.Tx, key *signer, n Identifier) (Identifier, error) {
	rows, err := readIdentifiers(ctx, tx, `WHERE r.resource_id = $1 AND r.revoked_at = 0`, n.ResourceID)
	if err != nil {
		return Identifier{}, err
	}
	if len(rows) > 0 {
		if rows[0].Identifier == n.Identifier && rows[0].Zone == n.Zone {
			return rows[0], nil
		}
		return Identifier{}, fault.New(fault.Conflict, "resource %s has the identifier %s of zone %s; revoke it first", n.ResourceID, rows[0].Identifier, rows[0].Zone)
	}
	chip := strings.Join([]string{n.Form.Enterprise, n.Form.ChipType, n.Form.ChipNumber}, "/")
	// The chip is part of the identifier: this finds both.
	if rows, err = readIdentifiers(ctx, tx, `WHERE chip = $1 AND revoked_at = 0`, chip); err != nil {
		return Identifier{}, err
	}
	if len(rows) > 0 {
		return Identifier{}, fault.New(fault.Exists, "chip %s of enterprise %s has the identifier %s already, of another resource", n.Form.ChipNumber, n.Form.Enterprise, rows[0].Identifier)
	}
	if n.Code, err = key.sign(claims{n.Identifier, n.Form.Enterprise, n.Zone, n.IssuedAt.Unix()}); err != nil {
		return Identifier{}, err
	}
	err = tx.Insert(ctx, "identifiers", []string{"identifier", "resource_id", "tenant_id", "chip", "availability_zone", "registration_code", "issued_at", "revoked_at", "reason"},
		[][]any{{n.Identifier, n.ResourceID, n.tenantID, chip, n.Zone, n.Code, db.Micros(n.IssuedAt), int64(0), ""}})
	if db.IsDuplicate(err) {
		return Identifier{}, fault.Wrap(fault.Conflict, err, "identifier %s is being issued by someone else; please try again", n.Identifier)
	}
	if err != nil {
		return Identifier{}, fmt.Errorf("insert identifier %s: %w", n.Identifier, err)
	}
	return n, nil
}

// precisions are those of performance figures, the one that says most of AI
// compute first.
var precisions = []struct{ figure, code string }{{"fp16", "H"}, {"bf16", "B"}, {"tf32", "T"}, {"fp32", "S"}, {"fp64", "D"}, {"fp8", "F"}, {"int8", "I"}}

// fill takes from the resource what the form leaves out.
func fill(f *identifier.Form, r *Resource) {
	text := func(name string) string {
		v, _ := r.Attributes[name].(string)
		return v
	}
	if f.ChipType == "" {
		f.ChipType = text("chip_type")
	}
	if f.ChipNumber == "" {
		f.ChipNumber = notPlain.ReplaceAllString(strings.ToUpper(text("serial_number")), "")
	}
	if f.Capability == "" {
		f.Capability = identifier.NotStated
		figures, _ := r.Attributes["performance"].(map[string]any)
		for _, p := range precisions {
			if n, ok := figures[p.figure].(float64); ok && n >= 1 {
				f.Capability = identifier.Amount(p.code, int64(n), "GTP")
				break
			}
		}
	}
	if f.Storage == "" {
		f.Storage = identifier.NotStated
	}
	if f.Network == "" {
		f.Network = identifier.NotStated
	}
}

// notPlain is what serial numbers may have and chip numbers do not.
var notPlain = regexp.MustCompile(`[-_./: ]`)

// Revoke revokes an identifier for good. Revoking it again changes nothing.
// It returns fault.Invalid, fault.NotFound and fault.Denied.
func (s *Service) Revoke(ctx context.Context, id, reason string) (Identifier, error) {
	var c core.Check
	id = identifier.Clean(id)
	c.Text("identifier", id, true, identifier.MaxLength, 0)
	c.Text("reason", reason, true, 0, 256)
	if err := c.Err(); err != nil {
		return Identifier{}, err
	}
	see := visibleTo(ctx)
	var out Identifier
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		rows, err := readIdentifiers(ctx, tx, `WHERE identifier = $1 ORDER BY issued_at DESC LIMIT 1`, id)
		if err != nil {
			return err
		}
		if len(rows) == 0 || !see.sees(rows[0].tenantID) {
			return fault.New(fault.NotFound, "there is no identifier %s", clip(id))
		}
		if out = rows[0]; !out.RevokedAt.IsZero() {
			return nil
		}
		if !see.all && out.tenantID != see.tenant {
			return fault.New(fault.Denied, "identifier %s is of a resource of everyone; only who sees all tenants may revoke it", id)
		}
		out.RevokedAt, out.Reason = tx.Now, reason
		return revokeOf(ctx, tx, out.ResourceID, reason)
	})
	if err != nil {
		return Identifier{}, err
	}
	s.log.Info("identifier revoked", "identifier", out.Identifier, "resource_id", out.ResourceID)
	return out, nil
}

// revokeOf revokes the identifier of a resource, if it has one.
func revokeOf(ctx context.Context, tx *db.Tx, resourceID, reason string) error {
	if _, err := tx.Exec(ctx, `UPDATE identifiers SET revoked_at = $2, reason = $3 WHERE resource_id = $1 AND revoked_at = 0`,
		resourceID, db.Micros(tx.Now), reason); err != nil {
		return fmt.Errorf("revoke identifier of %s: %w", resourceID, err)
	}
	return nil
}

// ListIdentifiers returns a page of the identifiers that were issued, of one
// resource if it is named, by identifier, and the token of the next page, ""
// on the last; one that was revoked and issued again is there for each time.
// It returns fault.Invalid.
func (s *Service) ListIdentifiers(ctx context.Context, resourceID string, size int32, token string) ([]Identifier, string, error) {
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", err
	}
	key, err := core.ParsePageToken(token, 2)
	if err != nil {
		return nil, "", err
	}
	q := &query{}
	if key != nil {
		issued, err := strconv.ParseInt(key[1], 10, 64)
		if err != nil {
			return nil, "", fault.Fields(fault.Field{Path: "page_token", Problem: "is not a token of this list; leave it empty to start anew"})
		}
		q.and("(r.identifier, r.issued_at) > (" + q.param(key[0]) + ", " + q.param(issued) + ")")
	}
	if resourceID != "" {
		var c core.Check
		if checkRef(&c, "resource_id", resourceID); c.Err() != nil {
			return nil, "", c.Err()
		}
		q.and("r.resource_id = " + q.param(resourceID))
	}
	visibleTo(ctx).limit(q)
	var rows []Identifier
	err = s.db.View(ctx, func(tx *db.Tx) (err error) {
		rows, err = readIdentifiers(ctx, tx, q.text()+` ORDER BY r.identifier, r.issued_at LIMIT `+q.param(n+1), q.args...)
		return err
	})
	if err != nil || len(rows) <= n {
		return rows, "", err
	}
	return rows[:n], core.PageToken(rows[n-1].Identifier, strconv.FormatInt(db.Micros(rows[n-1].IssuedAt), 10)), nil
}

// Verify says what is true of an identifier and, if one is given, of its
// registration code. Whatever is wrong is in the answer; errors are of the
// database only.
func (s *Service) Verify(ctx context.Context, id, code string) (Verification, error) {
	v := Verification{Identifier: identifier.Clean(id), Standing: UnknownHere}
	if len(v.Identifier) > identifier.MaxLength {
		v.Identifier = clip(v.Identifier)
	}
	v.Form, v.Problem = identifier.Parse(identifier.Clean(id))
	var last *Identifier // how it was last issued here
	err := s.db.View(ctx, func(tx *db.Tx) error {
		if v.Problem == "" {
			rows, err := readIdentifiers(ctx, tx, `WHERE identifier = $1 ORDER BY issued_at DESC LIMIT 1`, v.Identifier)
			if err != nil {
				return err
			}
			if len(rows) > 0 {
				last = &rows[0]
				if v.Standing = Valid; !rows[0].RevokedAt.IsZero() {
					v.Standing = Revoked
				}
				if visibleTo(ctx).sees(rows[0].tenantID) {
					v.Issued = &rows[0]
				}
			}
		}
		if code == "" {
			return nil
		}
		keys, err := readKeys(ctx, tx)
		if err != nil {
			return err
		}
		switch said, err := readCode(strings.TrimSpace(code), keys); {
		case err != nil:
			v.CodeProblem = err.Error()
		case said.Identifier != v.Identifier:
			v.CodeProblem = "it is the code of " + said.Identifier
		case last == nil || last.IssuedAt.Unix() != said.IssuedAt:
			v.CodeProblem = "it is of an earlier issue, which was revoked"
		default:
			v.CodeValid = true
		}
		return nil
	})
	return v, err
}

// readIdentifiers reads the identifiers r that match the rest of the query.
func readIdentifiers(ctx context.Context, tx *db.Tx, rest string, args ...any) ([]Identifier, error) {
	var out []Identifier
	err := tx.Query(ctx, `SELECT r.identifier, r.resource_id, r.tenant_id, r.availability_zone, r.registration_code, r.issued_at, r.revoked_at, r.reason
		FROM identifiers r `+rest, args, func(row db.Row) error {
		var x Identifier
		var issued, revoked int64
		if err := row.Scan(&x.Identifier, &x.ResourceID, &x.tenantID, &x.Zone, &x.Code, &issued, &revoked, &x.Reason); err != nil {
			return err
		}
		x.IssuedAt, x.RevokedAt = db.Time(issued), db.Time(revoked)
		var problem string
		if x.Form, problem = identifier.Parse(x.Identifier); problem != "" {
			return fmt.Errorf("stored identifier %s: %s", x.Identifier, problem)
		}
		out = append(out, x)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read identifiers: %w", err)
	}
	return out, nil
}

// validIdentifiers returns the identifiers of these resources.
func validIdentifiers(ctx context.Context, tx *db.Tx, ids []string) (map[string]string, error) {
	out := map[string]string{}
	err := chunks(ids, func(part []string) error {
		q := &query{}
		q.and("revoked_at = 0")
		q.and("resource_id IN (" + q.params(part) + ")")
		return tx.Query(ctx, `SELECT resource_id, identifier FROM identifiers`+q.text(), q.args, func(row db.Row) error {
			var id, x string
			err := row.Scan(&id, &x)
			out[id] = x
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read identifiers: %w", err)
	}
	return out, nil
}
