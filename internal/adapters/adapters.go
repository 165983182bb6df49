// Package adapters reaches the centers, by one contract (api/yunhe/adapter/v1)
// over two ways: a compute gateway dials out and answers over the bus; a
// plug-in is a process that answers over gRPC on a private socket or at an
// address (package plugin).
//
// What it keeps true:
//
//   - A gateway joins with a token that works once, for one key. The key never
//     leaves the gateway; the token is stored as a hash.
//
//   - What should run at a center is state, owned by jobs ([Work]). Messages
//     only hurry it along: a center is told what changed at once, told again
//     what it has not confirmed ([resendAfter]), and told everything when its
//     gateway (re)connects. So a message may be lost, repeated or late.
//
//   - A plug-in serves centers by instances, each with a process and a session
//     of its own: one that hangs or lies delays no other. One process of the
//     platform runs the instances (run.Elector); requests of the others reach it
//     over the bus. What an instance needs to know is stored sealed.
//
//   - A report is answered only after it is durably recorded; until then the
//     gateway keeps it and asks again.
//
//     Send/Stop (now)                       report, heartbeat
//     jobs ───────────────────────▶ outbox of center ───▶ gateway ───▶ jobs.Report (one tx)
//     ▲   Outstanding (again)          │  bus request       │
//     └──────────────────────────────── resync ◀────────────┘
package adapters

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/objects"
	"yunhe.dev/yunhe/internal/plugin"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/seal"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Work is what runs at the centers, implemented by jobs.
type Work interface {
	// Outstanding returns what a center may not know: attempts sent at or
	// before the time and not confirmed since (all: every one that has not
	// ended), and those that should stop, stand still or go on.
	Outstanding(ctx context.Context, centerID string, before time.Time, all bool) (Wanted, error)
	// Unsettled returns the centers for which Outstanding, not for all, may have
	// something.
	Unsettled(ctx context.Context, before time.Time) (centers []string, err error)
	// Issued notes that a center has accepted the attempts.
	Issued(attemptIDs []string, at time.Time)
	// Refused ends attempts a center does not take.
	Refused(ctx context.Context, centerID string, refusals []*adapterv1.Refusal) error
	// Report records what a center says, in one transaction. It returns the
	// attempts recorded as ended and those that should not run.
	Report(ctx context.Context, centerID string, statuses []*adapterv1.Status) (recorded, unwanted []string, err error)
	// Owns reports whether the attempt was placed at the center.
	Owns(ctx context.Context, centerID, attemptID string) (bool, error)
}

// Wanted is what should become of attempts at a center.
type Wanted struct {
	Apply                 []*adapterv1.Attempt
	Stop, Suspend, Resume []string
}

// Service keeps the gateways and talks to them.
type Service struct {
	db   *db.DB
	bus  *bus.Bus
	reg  *registry.Service
	logs *objects.Chunks
	log  *slog.Logger
	work Work
	// measured takes what centers measure; nil: nobody wants it.
	measured func(centerID string, m *adapterv1.Measurement)
	access   Access // nil: what centers say is taken as it is

	equipment Equipment // nil: nobody wants it

	// joined is told of every center that is connected; nil: nobody wants to know.
	joined func(ctx context.Context, tx *db.Tx, centerID, how string) error

	tenant func(ctx context.Context, id string) error // knows tenants; nil: any will do

	box  *seal.Box
	dir  string        // of plug-ins' sockets
	wake chan struct{} // instances changed

	beats   beats                                 // not stored yet
	members *recent[map[string]string]            // the names of gateways on the bus, by center
	booked  *recent[map[string]map[string]string] // accounts by center and tenant

	mu      sync.Mutex // guards the fields below
	outs    map[string]*outbox
	served  map[string]*plugin.Process
	running map[string]*runner // instances of this process, by ID
}

// outbox is what waits to be sent to one center.
type outbox struct {
	apply []*adapterv1.Attempt
	stop  []string
	pause map[string]bool // by attempt: stand still, or go on
	wake  chan struct{}
	drop  context.CancelFunc // gives up the message under way; nil if there is none
}

// New returns the service; its loops are Run, Answer and RunInstances. SetWork
// must be called before them. box seals configurations, dir keeps sockets.
func New(ctx context.Context, d *db.DB, b *bus.Bus, reg *registry.Service, logs *objects.Chunks, box *seal.Box, dir string, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "adapters", migrations); err != nil {
		return nil, err
	}
	s := &Service{db: d, bus: b, reg: reg, logs: logs, log: log.With("component", "adapters"), box: box, dir: dir, wake: make(chan struct{}, 1),
		outs: map[string]*outbox{}, served: map[string]*plugin.Process{}, running: map[string]*runner{}}
	s.members, s.booked = newRecent(s.readMembers), newRecent(s.readBooked)
	return s, nil
}

const (
	// memberKnown is how long a gateway's membership is believed: so long may
	// what another process removed go on to be heard.
	memberKnown = time.Second
	// memberAgain is how soon it is read again for a gateway that is not known.
	memberAgain = 100 * time.Millisecond
)

// member returns the name on the bus of a center's gateway, "" if it has none.
// What was read longer ago than age is read again.
func (s *Service) member(ctx context.Context, centerID string, age time.Duration) (string, error) {
	names, err := s.members.get(ctx, s.db.Now, age)
	if err == nil && names[centerID] == "" { // it may have joined in another process just now
		names, err = s.members.get(ctx, s.db.Now, memberAgain)
	}
	return names[centerID], err
}

// readMembers returns the names on the bus of all gateways, by center.
func (s *Service) readMembers(ctx context.Context) (names map[string]string, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		names = map[string]string{}
		return tx.Query(ctx, `SELECT ai_center_id, public_key FROM gateways WHERE NOT removed`, nil, func(row db.Row) error {
			var center, key string
			err := row.Scan(&center, &key)
			names[center] = bus.AgentName(center, key)
			return err
		})
	})
	return names, err
}

// isMember reports whether the named gateway is that of its center.
func (s *Service) isMember(ctx context.Context, centerID, name string) (bool, error) {
	is, err := s.member(ctx, centerID, memberKnown)
	if err == nil && is != name {
		is, err = s.member(ctx, centerID, memberAgain)
	}
	return err == nil && is == name, err
}

// SetWork says who owns what runs; it breaks the circle of construction
// between this component and jobs.
func (s *Service) SetWork(w Work) { s.work = w }

// SetJoined says who is told, in the transaction, of every center that is
// connected. It is called before the first call, if at all.
func (s *Service) SetJoined(f func(ctx context.Context, tx *db.Tx, centerID, how string) error) {
	s.joined = f
}

// SetMeasured says who takes what centers measure, beside what the registry
// keeps of it. f MUST NOT wait. It is called before the loops, if at all.
func (s *Service) SetMeasured(f func(centerID string, m *adapterv1.Measurement)) { s.measured = f }

// Equipment keeps the network equipment that centers tell of, in the transaction
// that records what they say. whole: list is all there is.
type Equipment func(ctx context.Context, tx *db.Tx, centerID, plugin string, list []*adapterv1.Equipment, gone []string, whole bool) error

// SetEquipment says who keeps network equipment. It is called before the loops, if
// at all.
func (s *Service) SetEquipment(f Equipment) { s.equipment = f }

// equipmentTx hands on what a center tells of its network equipment.
func (s *Service) equipmentTx(ctx context.Context, tx *db.Tx, centerID, plugin string, list []*adapterv1.Equipment, gone []string, whole bool) error {
	if s.equipment == nil || !whole && len(list)+len(gone) == 0 {
		return nil
	}
	return s.equipment(ctx, tx, centerID, plugin, list, gone, whole)
}

// Access converts what centers say and keeps the record of how they are
// accessed, implemented by access.
type Access interface {
	// Convert returns what a center reached by the plug-in says in the platform's
	// words, and whether anything changed. It does not change what it is given.
	Convert(ctx context.Context, plugin string, inv *adapterv1.Inventory, nodes []*adapterv1.Node) (*adapterv1.Inventory, []*adapterv1.Node, bool)
	// Note records a step of a center's access.
	Note(ctx context.Context, centerID, step, message string)
}

// SetAccess says who converts and records. It is called before the loops, if
// at all.
func (s *Service) SetAccess(a Access) { s.access = a }

// converted calls store with what a center says in the platform's words. What
// cannot be stored so is stored as it came: a conversion must not lose an
// inventory.
func (s *Service) converted(ctx context.Context, centerID, plugin string, inv *adapterv1.Inventory, nodes []*adapterv1.Node, store func(*adapterv1.Inventory, []*adapterv1.Node) error) error {
	if s.access == nil || inv == nil && len(nodes) == 0 {
		return store(inv, nodes)
	}
	cinv, cnodes, changed := s.access.Convert(ctx, plugin, inv, nodes)
	err := store(cinv, cnodes)
	if changed && err != nil && fault.KindOf(err) == fault.Invalid {
		s.log.Warn("what a center says cannot be taken when it is converted, taken as it came", "ai_center_id", centerID, "error", err)
		s.note(ctx, centerID, "refused", "a conversion makes of what it says what cannot be taken: "+err.Error())
		return store(inv, nodes)
	}
	return err
}

// note records a step of a center's access.
func (s *Service) note(ctx context.Context, centerID, step, message string) {
	if s.access != nil && centerID != "" {
		s.access.Note(ctx, centerID, step, clip(clean(message), maxMessage))
	}
}

// measure hands on what a center measured.
func (s *Service) measure(centerID string, m *adapterv1.Measurement) {
	if m != nil && s.measured != nil {
		s.measured(centerID, m)
	}
}

const (
	// resendAfter is how long a center may leave a message unconfirmed before
	// it is sent again: longer than a loaded gateway needs to start a batch.
	resendAfter = 5 * time.Second
	// requestTimeout bounds one message to a gateway.
	requestTimeout = 15 * time.Second
	// applyBatch attempts go in one message over the bus, of which a gateway starts
	// each before it answers.
	applyBatch = 64
	// pluginBatch go to a plug-in of this process: it makes some at a time, and the
	// end of each batch waits for the slowest of them.
	pluginBatch = 250
	// applyBytes bounds both, unless one attempt is larger: the bus takes 8 MiB.
	applyBytes = 4 << 20
	// maxTokenTTL of a join token.
	maxTokenTTL = 7 * 24 * time.Hour
)

func hash(token string) string {
	h := sha256.Sum256([]byte(token))
	return hex.EncodeToString(h[:])
}

// CreateJoinToken makes a token for one gateway. centerID may be empty: then
// the gateway names its center. ttl 0 means one hour.
func (s *Service) CreateJoinToken(ctx context.Context, centerID string, ttl time.Duration) (token string, expires time.Time, err error) {
	var c core.Check
	if centerID != "" {
		c.ID("ai_center_id", centerID)
	}
	c.Range("ttl_seconds", int64(ttl/time.Second), 0, int64(maxTokenTTL/time.Second))
	if err := c.Err(); err != nil {
		return "", time.Time{}, err
	}
	if ttl == 0 {
		ttl = time.Hour
	}
	raw := make([]byte, 24)
	if _, err := rand.Read(raw); err != nil {
		return "", time.Time{}, fmt.Errorf("make token: %w", err)
	}
	token = "yj_" + base64.RawURLEncoding.EncodeToString(raw)
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		expires = tx.Now.Add(ttl)
		if _, err := tx.Exec(ctx, `DELETE FROM join_tokens WHERE expires_at < $1`, db.Micros(tx.Now)); err != nil {
			return err
		}
		return tx.Insert(ctx, "join_tokens", []string{"token_hash", "ai_center_id", "expires_at", "used_by"},
			[][]any{{hash(token), centerID, db.Micros(expires), ""}})
	})
	return token, expires, err
}

// Join admits a gateway. Asking again with the same token and key answers the
// same. It returns fault.Unauthenticated for a token that is unknown, expired
// or used by another key, and fault.Invalid for a bad key or inventory.
func (s *Service) Join(ctx context.Context, token, publicKey string, inv *adapterv1.Inventory) (*adaptersv1.JoinResponse, error) {
	if inv == nil {
		return nil, fault.Fields(fault.Field{Path: "inventory", Problem: "is required"})
	}
	jwt := ""
	err := s.converted(ctx, inv.AiCenterId, GatewayPlugin, inv, nil, func(declared *adapterv1.Inventory, _ []*adapterv1.Node) (err error) {
		jwt, err = s.admit(ctx, token, publicKey, inv, declared)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.members.forget()
	s.note(ctx, inv.AiCenterId, "joined", "with a join token, version "+inv.Version)
	s.log.Info("gateway joined", "ai_center_id", inv.AiCenterId)
	return &adaptersv1.JoinResponse{AiCenterId: inv.AiCenterId, BusUrls: s.bus.AgentURLs(), BusJwt: jwt}, nil
}

// admit stores a membership, unless the token does not allow it; declared is
// what inv declares in the platform's words.
func (s *Service) admit(ctx context.Context, token, publicKey string, inv, declared *adapterv1.Inventory) (jwt string, err error) {
	refused := fault.New(fault.Unauthenticated, "the join token is unknown, expired or was used by another gateway; make one with: yunhe center join-token")
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		var center, usedBy string
		var expires int64
		found, err := tx.Get(ctx, `SELECT ai_center_id, used_by, expires_at FROM join_tokens WHERE token_hash = $1`, []any{hash(token)}, &center, &usedBy, &expires)
		if err != nil {
			return err
		}
		if !found || expires < db.Micros(tx.Now) || usedBy != "" && usedBy != publicKey {
			return refused
		}
		if center != "" && inv.AiCenterId == "" {
			inv.AiCenterId = center
		}
		if center != "" && inv.AiCenterId != center {
			return fault.Fields(fault.Field{Path: "inventory.ai_center_id", Problem: fmt.Sprintf("the token is for center %q, got %q", center, inv.AiCenterId)})
		}
		var holder string
		var removed bool
		known, err := tx.Get(ctx, `SELECT public_key, removed FROM gateways WHERE ai_center_id = $1`, []any{inv.AiCenterId}, &holder, &removed)
		if err != nil {
			return err
		}
		if known && !removed && holder != publicKey {
			return fault.New(fault.Conflict, "center %q has a gateway already; remove that one first", inv.AiCenterId)
		}
		declared.AiCenterId = inv.AiCenterId
		if err := s.reg.JoinTx(ctx, tx, declared, GatewayPlugin); err != nil {
			return err
		}
		// Here, so that a key that is none does not use up the token.
		if jwt, err = s.bus.AgentJWT(inv.AiCenterId, publicKey); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE join_tokens SET used_by = $2 WHERE token_hash = $1`, hash(token), publicKey); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO gateways (ai_center_id, public_key, version, joined_at, removed) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (ai_center_id) DO UPDATE SET public_key = $2, version = $3, removed = $5`, inv.AiCenterId, publicKey, inv.Version, db.Micros(tx.Now), false)
		if err != nil || s.joined == nil || usedBy != "" { // asked again with the same token
			return err
		}
		return s.joined(ctx, tx, inv.AiCenterId, "its gateway joined")
	})
	return jwt, err
}

// Gateway is a compute gateway as listed.
type Gateway struct {
	CenterID, PublicKey, Version string
	JoinedAt, LastSeen           time.Time // LastSeen is zero if it was never heard of
	Connected                    bool
}

// Gateways lists the members by center.
func (s *Service) Gateways(ctx context.Context) ([]Gateway, error) {
	snap, err := s.reg.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]*registry.Center, len(snap.Centers))
	for _, c := range snap.Centers {
		seen[c.ID] = c
	}
	var out []Gateway
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out = nil
		return tx.Query(ctx, `SELECT ai_center_id, public_key, version, joined_at FROM gateways WHERE NOT removed ORDER BY ai_center_id`, nil, func(row db.Row) error {
			var g Gateway
			var at int64
			if err := row.Scan(&g.CenterID, &g.PublicKey, &g.Version, &at); err != nil {
				return err
			}
			g.JoinedAt = db.Time(at)
			if c := seen[g.CenterID]; c != nil {
				g.LastSeen = c.LastSeen
				g.Connected = !c.LastSeen.IsZero() && snap.At.Sub(c.LastSeen) < registry.SeenWithin
			}
			out = append(out, g)
			return nil
		})
	})
	return out, err
}

// RemoveGateway ends a membership: what it says from now on is refused.
// fault.NotFound if the center has no gateway.
func (s *Service) RemoveGateway(ctx context.Context, centerID string) error {
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE gateways SET removed = $2 WHERE ai_center_id = $1 AND NOT removed`, centerID, true)
		if err == nil && n == 0 {
			err = fault.New(fault.NotFound, "center %q has no gateway", centerID)
		}
		if err != nil {
			return err
		}
		// Its token must not bring it back.
		if _, err := tx.Exec(ctx, `DELETE FROM join_tokens WHERE used_by = (SELECT public_key FROM gateways WHERE ai_center_id = $1)`, centerID); err != nil {
			return err
		}
		return s.reg.MarkDownTx(ctx, tx, centerID)
	})
	if err == nil {
		s.members.forget()
	}
	return err
}

// Send tells centers what to run, soon. It does not block; what is lost is
// sent again from the state.
func (s *Service) Send(centerID string, attempts []*adapterv1.Attempt) {
	s.put(centerID, func(o *outbox) { o.apply = append(o.apply, attempts...) })
}

// Stop tells a center to stop attempts, soon. It does not block.
func (s *Service) Stop(centerID string, attemptIDs []string) {
	s.put(centerID, func(o *outbox) { o.stop = append(o.stop, attemptIDs...) })
}

// Suspend tells a center which attempts shall stand still and which go on,
// soon. It does not block. What was said last of an attempt counts.
func (s *Service) Suspend(centerID string, suspend, resume []string) {
	s.put(centerID, func(o *outbox) { o.suspend(suspend, resume) })
}

// suspend notes wishes; the service's mu is held.
func (o *outbox) suspend(suspend, resume []string) {
	if o.pause == nil {
		o.pause = map[string]bool{}
	}
	for _, id := range suspend {
		o.pause[id] = true
	}
	for _, id := range resume {
		o.pause[id] = false
	}
}

func (s *Service) put(centerID string, add func(*outbox)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outs[centerID]
	if o == nil {
		o = &outbox{wake: make(chan struct{}, 1)}
		s.outs[centerID] = o
	}
	add(o)
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take empties an outbox, as far as one message goes.
func (s *Service) take(centerID string, o *outbox, drop context.CancelFunc) (apply []*adapterv1.Attempt, stop []string, pause *adapterv1.SuspendRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.drop = drop
	n, most, bytes := 0, applyBatch, 0
	if s.served[centerID] != nil {
		most = pluginBatch
	}
	for n < min(len(o.apply), most) {
		if bytes += proto.Size(o.apply[n]); n > 0 && bytes > applyBytes {
			break
		}
		n++
	}
	apply, o.apply = o.apply[:n:n], o.apply[n:]
	stop, o.stop = o.stop, nil
	if len(o.pause) > 0 {
		pause = &adapterv1.SuspendRequest{}
		for _, id := range slices.Sorted(maps.Keys(o.pause)) {
			if o.pause[id] {
				pause.Suspend = append(pause.Suspend, id)
			} else {
				pause.Resume = append(pause.Resume, id)
			}
		}
		o.pause = nil
	}
	if len(o.apply) > 0 {
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
	return apply, stop, pause
}

// clean makes text of a center storable: PostgreSQL takes neither broken
// UTF-8 nor zeros.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
