// Package access manages how resources are accessed: it judges whether they
// meet the conditions of access, converts what they say into the platform's
// words, classifies their compute, and keeps the record of every access (S
// 6.3.4, Table 12).
//
// What it keeps true:
//
//   - A rule is data: a condition in CEL over what is known of a resource. One
//     that cannot be compiled is never stored. A condition that cannot be judged
//     yet makes a resource unknown, never compliant.
//   - Every version of a rule and of a conversion is kept, with who made it, and
//     can be made the latest again.
//   - A conversion changes words and amounts, never whether something is there:
//     what it makes that cannot be taken (an empty name, an amount below zero or
//     too large) is dropped, and what the source said stays. Two names that
//     become one are added up.
//   - Nothing here keeps a center from its work unless the switch is on. Then a
//     center that does not meet the conditions takes no new work; what runs goes
//     on, and a center that is merely unknown is not held back.
//
// # Judging
//
//	registry, nodes, figures,  ──facts──▶ applies? ─no─▶ left out
//	plug-ins, inventory                      │
//	                                       known? ─no─▶ unknown
//	                                         │
//	                                     condition ─▶ compliant | non-compliant
//
// A resource is non-compliant if one rule above advice is not met, else unknown
// if one cannot be judged, else compliant. One process of the platform (a
// lease) judges: at once when a rule or the catalog changed, else every 15 s,
// nodes and registered resources every minute. A report is written when a
// verdict became another, so that a quiet network costs no writes; the values
// in it are those of that moment. When judging fails (the sample store is away),
// reports stay as they are, and the log says so once.
//
// # Steps
//
// Calls of the API are in the audit trail; what happens without a call
// (connected, in trouble, down, refused) is written here, when it changes.
// Steps are a record, not a state: one that cannot be written is logged.
package access

import (
	"context"
	"embed"
	"log/slog"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/adapters"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/monitor"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/tags/expr"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Kind of resource that rules are about; stored.
type Kind int64

// The kinds.
const (
	Center     Kind = 1
	Node       Kind = 2
	Registered Kind = 3
)

func (k Kind) scope() expr.Scope {
	return [...]expr.Scope{Center: expr.AccessCenter, Node: expr.AccessNode, Registered: expr.AccessResource}[k]
}

// Status of compliance; stored.
type Status int64

// The states.
const (
	Compliant    Status = 1
	NonCompliant Status = 2
	Unknown      Status = 3
)

// Severity of a rule; stored.
type Severity int64

// The severities. Advice does not count.
const (
	Advice   Severity = 1
	Major    Severity = 2
	Critical Severity = 3
)

// Health of an accessed resource.
type Health int64

// The states of health; the numbers are the contract's.
const (
	Healthy       Health = 1
	Degraded      Health = 2
	Unreachable   Health = 3
	OutOfUse      Health = 4
	HealthUnknown Health = 5
)

// Limits.
const (
	maxDocuments = 500
	maxTitle     = 128
	maxMessage   = 512
	maxItems     = 100
	maxSteps     = 200
	maxVersions  = 100
)

// Meta is what every version of a rule or conversion has.
type Meta struct {
	ID        string    `json:"-"`
	Version   int64     `json:"-"`
	UpdatedAt time.Time `json:"-"`
	UpdatedBy string    `json:"-"` // "": came with the program
}

// Rule is a condition of access.
type Rule struct {
	Meta
	Title     string   `json:"title"`
	TitleZH   string   `json:"title_zh,omitempty"`
	Kind      Kind     `json:"kind"`
	Severity  Severity `json:"severity"`
	Applies   string   `json:"applies,omitempty"`
	Known     string   `json:"known,omitempty"`
	Condition string   `json:"condition"`
	Message   string   `json:"message,omitempty"`
	Enabled   bool     `json:"enabled"`

	applies, known, condition *expr.Expr
}

// check reports every problem of r, and compiles it.
func (r *Rule) check() error {
	var c core.Check
	c.ID("rule.rule_id", r.ID)
	if r.Title == "" {
		r.Title = r.ID
	}
	c.Text("rule.title", r.Title, false, maxTitle, 0)
	c.Text("rule.title_zh", r.TitleZH, false, maxTitle, 0)
	c.Text("rule.message", r.Message, false, maxMessage, 0)
	c.Range("rule.severity", int64(r.Severity), int64(Advice), int64(Critical))
	c.Range("rule.version", r.Version, 0, 1<<40)
	if c.Range("rule.kind", int64(r.Kind), int64(Center), int64(Registered)); r.Kind < Center || r.Kind > Registered {
		return c.Err()
	}
	take := func(path, text string, required bool) *expr.Expr {
		if text == "" && !required {
			return nil
		}
		e, problems := expr.Compile(r.Kind.scope(), text)
		for _, p := range problems {
			c.Add(path, "%s", p)
		}
		return e
	}
	r.applies, r.known, r.condition = take("rule.applies", r.Applies, false), take("rule.known", r.Known, false), take("rule.condition", r.Condition, true)
	return c.Err()
}

// Verdict is what a rule says of a resource.
type Verdict struct {
	RuleID   string   `json:"rule_id"`
	Title    string   `json:"title"`
	Severity Severity `json:"severity"`
	Status   Status   `json:"status"`
	Observed string   `json:"observed,omitempty"`
	Message  string   `json:"message,omitempty"`
}

// Report is what all rules say of a resource.
type Report struct {
	ResourceID  string
	Kind        Kind
	Name        string
	Status      Status
	Verdicts    []Verdict // by rule
	EvaluatedAt time.Time
	ChangedAt   time.Time
}

// judge evaluates rules, which are compiled, by ID.
func judge(rules []*Rule, kind Kind, facts expr.Facts) (Status, []Verdict) {
	status := Compliant
	var out []Verdict
	for _, r := range rules {
		if r.Kind != kind || !r.Enabled {
			continue
		}
		if r.applies != nil {
			if ok, _ := r.applies.Holds(facts); !ok { // what cannot be said does not apply
				continue
			}
		}
		v := Verdict{RuleID: r.ID, Title: r.Title, Severity: r.Severity, Status: Compliant, Observed: r.condition.Values(facts)}
		known := true
		if r.known != nil {
			known, _ = r.known.Holds(facts)
		}
		if !known {
			v.Status, v.Observed = Unknown, r.known.Values(facts)
		} else if ok, err := r.condition.Holds(facts); err != nil {
			v.Status, v.Observed = Unknown, err.Error()
		} else if !ok {
			v.Status, v.Message = NonCompliant, r.Message
		}
		if out = append(out, v); r.Severity == Advice {
			continue
		}
		switch {
		case v.Status == NonCompliant:
			status = NonCompliant
		case v.Status == Unknown && status == Compliant:
			status = Unknown
		}
	}
	return status, out
}

// Service judges, converts and records. It is safe for concurrent use.
type Service struct {
	db   *db.DB
	ids  *identity.Service
	reg  *registry.Service
	inv  *inventory.Service
	mon  *monitor.Service
	ad   *adapters.Service
	log  *slog.Logger
	wake chan struct{}

	loading sync.Mutex // held while the library is read
	mu      sync.Mutex // guards the fields below

	lib   *library
	stale bool // this process changed it
	gate  gate
	said  map[string]string // last step of each resource
}

// Deps are the components whose resources are accessed.
type Deps struct {
	Identity  *identity.Service
	Registry  *registry.Service
	Inventory *inventory.Service
	Monitor   *monitor.Service
	Adapters  *adapters.Service
}

// New brings the tables up to date, puts the rules and conversions there that
// come with the program and were never there before, and returns the service.
// The loop is Run.
func New(ctx context.Context, d *db.DB, deps Deps, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "access", migrations); err != nil {
		return nil, err
	}
	s := &Service{db: d, ids: deps.Identity, reg: deps.Registry, inv: deps.Inventory, mon: deps.Monitor, ad: deps.Adapters, log: log.With("component", "access"),
		wake: make(chan struct{}, 1), said: map[string]string{}}
	return s, s.defaults(ctx)
}
