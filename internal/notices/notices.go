// Package notices tells people of alarms: in the console, and by mail.
//
// What it keeps true:
//
//   - A notice and its mail are stored in the transaction that raises or clears
//     the alarm: none is lost, and none tells what was undone.
//   - A mail is sent until the server has taken it, at growing intervals, for
//     [tryFor]. If the process dies after the server took it and before that is
//     stored, it is sent again with the same Message-ID.
//   - The password of the mail server is sealed, is told to nobody, and is not kept
//     for another server or user.
//
// # States of a mail
//
//	waiting ──the server takes it──▶ sent
//	   │ ▲
//	   │ └─ it does not answer, or not now: later again
//	   └── it says that it never will, or [tryFor] is over ──▶ failed
package notices

import (
	"context"
	"crypto/x509"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/mail"
	"slices"
	"strconv"
	"time"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/seal"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Security of the connection to the mail server; the numbers are the API's.
type Security int64

// What there is.
const (
	None     Security = 1
	StartTLS Security = 2
	TLS      Security = 3
)

// Settings say how people are told.
type Settings struct {
	InSite      bool      `json:"in_site"`
	Mail        bool      `json:"mail"`
	Severity    int64     `json:"severity"` // at least
	Cleared     bool      `json:"cleared"`
	Kinds       []int64   `json:"kinds"` // of alarms; none: all
	Recipients  []string  `json:"recipients"`
	Sender      string    `json:"sender"`
	Server      string    `json:"server"`
	Security    Security  `json:"security"`
	User        string    `json:"user"`
	Password    string    `json:"-"`
	HasPassword bool      `json:"-"`
	UpdatedAt   time.Time `json:"-"`
}

// Alarm is what is told.
type Alarm struct {
	ID, Tenant, Message string
	Kind, Severity      int64
	Cleared             bool
}

// Notice is one, for the console.
type Notice struct {
	ID, AlarmID string
	Severity    int64
	Cleared     bool
	Message     string
	At          time.Time
	Read        bool
}

// MailState is the state of a mail; the numbers are the API's.
type MailState int64

// The states.
const (
	Waiting MailState = 1
	Sent    MailState = 2
	Failed  MailState = 3
)

// Mail is one that was or is to be sent.
type Mail struct {
	ID, NoticeID           string
	Recipients             []string
	Subject, body, Problem string
	State                  MailState
	Attempts               int64
	CreatedAt, SentAt      time.Time
}

const (
	// keep notices and mails.
	keep          = 30 * 24 * time.Hour
	tryFor        = 24 * time.Hour
	maxRecipients = 50
	maxUnread     = 1000
	maxKinds      = 64
	sealedFor     = "notices mail password"
)

// Service keeps the notices. It is safe for concurrent use.
type Service struct {
	db   *db.DB
	bus  *bus.Bus
	ids  *identity.Service
	box  *seal.Box
	log  *slog.Logger
	wake chan struct{} // a mail is due

	// Roots are who vouches for mail servers; nil: whom this machine trusts.
	Roots *x509.CertPool
}

// subject is the event that there is a mail to send.
const subject = "notices.mail"

// New returns the service; its loop is Run. box seals the mail server's password.
func New(ctx context.Context, d *db.DB, b *bus.Bus, ids *identity.Service, box *seal.Box, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "notices", migrations); err != nil {
		return nil, err
	}
	return &Service{db: d, bus: b, ids: ids, box: box, log: log.With("component", "notices"), wake: make(chan struct{}, 1)}, nil
}

func (x *Settings) check() error {
	var c core.Check
	c.Range("settings.severity", x.Severity, 0, 3)
	if len(x.Kinds) > maxKinds {
		c.Add("settings.kinds", "must be at most %d, got %d", maxKinds, len(x.Kinds))
	}
	for i, k := range x.Kinds[:min(len(x.Kinds), maxKinds)] {
		c.Range(fmt.Sprintf("settings.kinds[%d]", i), k, 1, 1000)
	}
	address := func(path, s string) {
		if a, err := mail.ParseAddress(s); err != nil || a.Address != s || len(s) > 254 {
			c.Add(path, "must be an address such as ann@example.org, got %q", s[:min(len(s), 64)])
		}
	}
	if len(x.Recipients) > maxRecipients {
		c.Add("settings.recipients", "must be at most %d, got %d", maxRecipients, len(x.Recipients))
	}
	for i, r := range x.Recipients[:min(len(x.Recipients), maxRecipients)] {
		address(fmt.Sprintf("settings.recipients[%d]", i), r)
	}
	c.Range("settings.security", int64(x.Security), 0, int64(TLS))
	c.Text("settings.user_name", x.User, false, 200, 0)
	c.Text("settings.password", x.Password, false, 200, 0)
	if x.Sender != "" || x.Mail {
		address("settings.sender", x.Sender)
	}
	if x.Server != "" || x.Mail {
		host, port, err := net.SplitHostPort(x.Server)
		if n, bad := strconv.Atoi(port); err != nil || host == "" || bad != nil || n < 1 || n > 65535 || len(x.Server) > 300 {
			c.Add("settings.server", "must be HOST:PORT, got %q", x.Server[:min(len(x.Server), 64)])
		}
	}
	if x.Mail && len(x.Recipients) == 0 {
		c.Add("settings.recipients", "at least one is required for mail")
	}
	return c.Err()
}

func (s *Service) settingsTx(ctx context.Context, tx *db.Tx) (*Settings, string, error) {
	x := &Settings{InSite: true, Severity: 1}
	var text, sealed string
	var at int64
	found, err := tx.Get(ctx, `SELECT settings, password, updated_at FROM notice_settings`, nil, &text, &sealed, &at)
	if err == nil && found {
		x.UpdatedAt, x.HasPassword = db.Time(at), sealed != ""
		err = json.Unmarshal([]byte(text), x)
	}
	if err != nil {
		return nil, "", fmt.Errorf("read how people are told: %w", err)
	}
	return x, sealed, nil
}

// Settings returns how people are told, without the password.
func (s *Service) Settings(ctx context.Context) (out *Settings, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out, _, err = s.settingsTx(ctx, tx)
		return err
	})
	return out, err
}

// Set replaces how people are told.
func (s *Service) Set(ctx context.Context, x Settings) (out *Settings, err error) {
	if err := x.check(); err != nil {
		return nil, err
	}
	x.Severity = max(x.Severity, 1)
	if x.Security == 0 {
		x.Security = StartTLS
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		was, sealed, err := s.settingsTx(ctx, tx)
		if err != nil {
			return err
		}
		switch {
		case x.Password != "":
			sealed = base64.StdEncoding.EncodeToString(s.box.Seal([]byte(x.Password), sealedFor))
		case was.Server != x.Server || was.User != x.User || x.User == "" || was.Security != x.Security:
			sealed = "" // it is not for who else asks for it
		}
		text, err := json.Marshal(x)
		if err == nil {
			_, err = tx.Exec(ctx, `INSERT INTO notice_settings (only_row, settings, password, updated_at) VALUES (1, $1, $2, $3)
				ON CONFLICT (only_row) DO UPDATE SET settings = $1, password = $2, updated_at = $3`, string(text), sealed, db.Micros(tx.Now))
		}
		if err != nil {
			return fmt.Errorf("store how people are told: %w", err)
		}
		if err := s.ids.AuditTx(ctx, tx, "notice settings"); err != nil {
			return err
		}
		out, _, err = s.settingsTx(ctx, tx)
		return err
	})
	return out, err
}

var severities = [4]string{"", "warning", "major", "critical"}

// PostTx tells people of an alarm in the transaction that raises or clears it.
func (s *Service) PostTx(ctx context.Context, tx *db.Tx, list ...Alarm) error {
	if len(list) == 0 {
		return nil
	}
	x, _, err := s.settingsTx(ctx, tx)
	if err != nil || !x.InSite && !x.Mail {
		return err
	}
	var mails int
	for _, a := range list {
		if a.Severity < x.Severity || a.Cleared && !x.Cleared || len(x.Kinds) > 0 && !slices.Contains(x.Kinds, a.Kind) {
			continue
		}
		id := core.NewID("note")
		if err := tx.Insert(ctx, "notices", []string{"notice_id", "alarm_id", "severity", "cleared", "tenant_id", "in_site", "message", "at"},
			[][]any{{id, a.ID, a.Severity, a.Cleared, a.Tenant, x.InSite, a.Message, db.Micros(tx.Now)}}); err != nil {
			return fmt.Errorf("store a notice: %w", err)
		}
		if !x.Mail {
			continue
		}
		what := severities[a.Severity&3]
		if a.Cleared {
			what = "cleared"
		}
		body := fmt.Sprintf("%s\n\nAlarm     %s\nSeverity  %s\nState     %s\nTime      %s\n", a.Message, a.ID, severities[a.Severity&3], map[bool]string{true: "cleared", false: "raised"}[a.Cleared], tx.Now.UTC().Format(time.RFC3339))
		if err := postMail(ctx, tx, id, x.Recipients, fmt.Sprintf("[Yunhe] %s: %s", what, a.Message), body); err != nil {
			return err
		}
		mails++
	}
	if mails == 0 {
		return nil
	}
	return tx.Emit(ctx, subject, []byte("[]"))
}

// List returns a page of the notices the caller may see, newest first, and how
// many are unread.
func (s *Service) List(ctx context.Context, size int32, token string) (list []Notice, next string, unread int64, err error) {
	n, err := core.PageSize(size, 100)
	if err != nil {
		return nil, "", 0, err
	}
	before, err := core.ParsePageToken(token, 1)
	if err != nil {
		return nil, "", 0, err
	}
	if before == nil {
		before = []string{"~"} // after all IDs
	}
	caller := core.CallerFrom(ctx)
	tenant := caller.Tenant("")
	err = s.db.View(ctx, func(tx *db.Tx) error {
		list = nil
		var upTo string
		if _, err := tx.Get(ctx, `SELECT up_to FROM notice_reads WHERE user_id = $1`, []any{caller.UserID}, &upTo); err != nil {
			return err
		}
		if err := tx.Query(ctx, `SELECT notice_id, alarm_id, severity, cleared, message, at FROM notices WHERE in_site AND notice_id < $1 AND ($2 = '' OR tenant_id = '' OR tenant_id = $2) ORDER BY notice_id DESC LIMIT $3`,
			[]any{before[0], tenant, int64(n) + 1}, func(row db.Row) error {
				var x Notice
				var at int64
				err := row.Scan(&x.ID, &x.AlarmID, &x.Severity, &x.Cleared, &x.Message, &at)
				x.At, x.Read = db.Time(at), x.ID <= upTo
				list = append(list, x)
				return err
			}); err != nil {
			return err
		}
		_, err := tx.Get(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM notices WHERE in_site AND notice_id > $1 AND ($2 = '' OR tenant_id = '' OR tenant_id = $2) LIMIT $3) AS unread`, []any{upTo, tenant, int64(maxUnread)}, &unread)
		return err
	})
	if err != nil {
		return nil, "", 0, fmt.Errorf("read notices: %w", err)
	}
	if len(list) > n {
		list, next = list[:n], core.PageToken(list[n-1].ID)
	}
	return list, next, unread, nil
}

// Read says that the caller has read all notices up to one.
func (s *Service) Read(ctx context.Context, id string) error {
	var c core.Check
	if c.Text("notice_id", id, true, 64, 0); c.Err() != nil {
		return c.Err()
	}
	caller := core.CallerFrom(ctx)
	tenant := caller.Tenant("")
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		var there int64
		if _, err := tx.Get(ctx, `SELECT COUNT(*) FROM notices WHERE notice_id = $1 AND in_site AND ($2 = '' OR tenant_id = '' OR tenant_id = $2)`, []any{id, tenant}, &there); err != nil {
			return err
		}
		if there == 0 {
			return fault.New(fault.NotFound, "there is no notice %q", id)
		}
		if _, err := tx.Exec(ctx, `INSERT INTO notice_reads (user_id, up_to) VALUES ($1, $2) ON CONFLICT (user_id) DO UPDATE SET up_to = $2 WHERE notice_reads.up_to < $2`, caller.UserID, id); err != nil {
			return fmt.Errorf("store what was read: %w", err)
		}
		return s.ids.AuditTx(ctx, tx, id)
	})
}
