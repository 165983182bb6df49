package notices

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/smtp"
	"net/textproto"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

const (
	sendTime   = 30 * time.Second
	againFirst = 10 * time.Second // and twice as long each time
	againMost  = time.Hour
	lookEvery  = 30 * time.Second // whatever happens
	mostAtOnce = 20
)

func postMail(ctx context.Context, tx *db.Tx, notice string, recipients []string, subject, body string) error {
	to, err := json.Marshal(recipients)
	if err == nil {
		err = tx.Insert(ctx, "notice_mails", []string{"mail_id", "notice_id", "recipients", "subject", "body", "state", "attempts", "problem", "created_at", "due_at", "sent_at"},
			[][]any{{core.NewID("mail"), notice, string(to), subject, body, int64(Waiting), int64(0), "", db.Micros(tx.Now), db.Micros(tx.Now), int64(0)}})
	}
	if err != nil {
		return fmt.Errorf("store a mail: %w", err)
	}
	return nil
}

const mailColumns = `mail_id, notice_id, recipients, subject, body, state, attempts, problem, created_at, sent_at`

func readMails(ctx context.Context, tx *db.Tx, rest string, args ...any) (out []*Mail, err error) {
	err = tx.Query(ctx, `SELECT `+mailColumns+` FROM notice_mails `+rest, args, func(row db.Row) error {
		m := &Mail{}
		var to string
		var created, sent int64
		if err := row.Scan(&m.ID, &m.NoticeID, &to, &m.Subject, &m.body, &m.State, &m.Attempts, &m.Problem, &created, &sent); err != nil {
			return err
		}
		m.CreatedAt, m.SentAt = db.Time(created), db.Time(sent)
		out = append(out, m)
		return json.Unmarshal([]byte(to), &m.Recipients)
	})
	if err != nil {
		return nil, fmt.Errorf("read mails: %w", err)
	}
	return out, nil
}

// Mails lists those of late, newest first.
func (s *Service) Mails(ctx context.Context) (out []*Mail, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out, err = readMails(ctx, tx, `ORDER BY mail_id DESC LIMIT 100`)
		return err
	})
	return out, err
}

// Run sends mails until ctx ends. One process at a time runs it.
func (s *Service) Run(ctx context.Context) error {
	stop, err := s.bus.Listen(subject, func(string, []byte) {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	var purged time.Time
	for {
		core.Round(ctx, lookEvery)
		next, err := s.round(ctx)
		if err != nil && ctx.Err() == nil {
			core.RoundFailed(ctx, err)
			s.log.Warn("mails not sent, will try again", "error", err)
		}
		if now := s.db.Now(); now.Sub(purged) > time.Hour {
			purged = now
			if err := s.purge(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("old notices not deleted", "error", err)
			}
		}
		due := time.NewTimer(next)
		select {
		case <-ctx.Done():
			due.Stop()
			return nil
		case <-s.wake:
		case <-due.C:
		}
		due.Stop()
	}
}

func (s *Service) purge(ctx context.Context) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		old := db.Micros(tx.Now.Add(-keep))
		if _, err := tx.Exec(ctx, `DELETE FROM notices WHERE at < $1`, old); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM notice_mails WHERE created_at < $1`, old)
		return err
	})
}

// round sends what is due, and returns when to look again.
func (s *Service) round(ctx context.Context) (next time.Duration, err error) {
	var due []*Mail
	var x *Settings
	var sealed string
	var soonest int64
	err = s.db.View(ctx, func(tx *db.Tx) error {
		if due, err = readMails(ctx, tx, `WHERE state = 1 AND due_at <= $1 ORDER BY due_at, mail_id LIMIT $2`, db.Micros(s.db.Now()), int64(mostAtOnce)); err != nil {
			return err
		}
		if _, err := tx.Get(ctx, `SELECT COALESCE(MIN(due_at), 0) FROM notice_mails WHERE state = 1 AND due_at > $1`, []any{db.Micros(s.db.Now())}, &soonest); err != nil {
			return err
		}
		x, sealed, err = s.settingsTx(ctx, tx)
		return err
	})
	if err != nil {
		return lookEvery, err
	}
	for _, m := range due {
		core.GetsOn(ctx)
		m.Attempts++
		err := s.send(ctx, x, sealed, m)
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if err := s.tried(ctx, m, err); err != nil {
			return lookEvery, err
		}
	}
	switch {
	case len(due) > 0:
		return 0, nil
	case soonest > 0:
		return max(0, min(lookEvery, db.Time(soonest).Sub(s.db.Now())+time.Millisecond)), nil
	}
	return lookEvery, nil
}

// tried stores how it went.
func (s *Service) tried(ctx context.Context, m *Mail, problem error) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		var due, sent time.Time
		var never *textproto.Error
		switch {
		case problem == nil:
			m.State, m.Problem, sent = Sent, "", tx.Now
		case errors.As(problem, &never) && never.Code >= 500, tx.Now.Sub(m.CreatedAt) >= tryFor:
			m.State, m.Problem = Failed, problem.Error()
		default:
			m.Problem, due = problem.Error(), tx.Now.Add(min(againMost, againFirst<<min(m.Attempts-1, 10)))
		}
		m.Problem = strings.ToValidUTF8(m.Problem[:min(len(m.Problem), 500)], "?")
		tx.AfterCommit(func() {
			if problem != nil {
				s.log.Warn("mail not sent", "mail_id", m.ID, "attempts", m.Attempts, "failed", m.State == Failed, "error", problem)
			} else {
				s.log.Info("mail sent", "mail_id", m.ID)
			}
		})
		_, err := tx.Exec(ctx, `UPDATE notice_mails SET state = $2, attempts = $3, problem = $4, due_at = $5, sent_at = $6 WHERE mail_id = $1`, m.ID, int64(m.State), m.Attempts, m.Problem, db.Micros(due), db.Micros(sent))
		return err
	})
}

// Try sends a mail to the recipients now, and says what went wrong.
func (s *Service) Try(ctx context.Context) error {
	var x *Settings
	var sealed string
	err := s.db.View(ctx, func(tx *db.Tx) (err error) {
		x, sealed, err = s.settingsTx(ctx, tx)
		return err
	})
	if err != nil {
		return err
	}
	if len(x.Recipients) == 0 || x.Server == "" || x.Sender == "" {
		return fault.New(fault.Conflict, "there are no recipients, no sender or no mail server in the settings")
	}
	m := &Mail{ID: core.NewID("mail"), Recipients: x.Recipients, Subject: "[Yunhe] test", body: "This mail was sent to try the settings.\n", CreatedAt: s.db.Now()}
	if err := s.send(ctx, x, sealed, m); err != nil {
		return fault.New(fault.Unavailable, "the mail was not sent: %s", err)
	}
	return nil
}

// send gives a mail to the server.
func (s *Service) send(ctx context.Context, x *Settings, sealed string, m *Mail) (err error) {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	host, _, err := net.SplitHostPort(x.Server)
	if err != nil {
		return err
	}
	secure := &tls.Config{ServerName: host, RootCAs: s.Roots, MinVersion: tls.VersionTLS12}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", x.Server)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if x.Security == TLS {
		conn = tls.Client(conn, secure)
	}
	c, err := smtp.NewClient(conn, host)
	if err != nil {
		return err
	}
	defer c.Close()
	if x.Security == StartTLS {
		if err := c.StartTLS(secure); err != nil {
			return fmt.Errorf("STARTTLS: %w", err)
		}
	}
	if x.User != "" {
		b, err := base64.StdEncoding.DecodeString(sealed)
		if err != nil {
			return err
		}
		var password []byte
		if len(b) > 0 {
			if password, err = s.box.Open(b, sealedFor); err != nil {
				return err
			}
		}
		if err := c.Auth(smtp.PlainAuth("", x.User, string(password), host)); err != nil {
			return err
		}
	}
	if err := c.Mail(x.Sender); err != nil {
		return err
	}
	for _, to := range m.Recipients {
		if err := c.Rcpt(to); err != nil {
			return err
		}
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err = w.Write(m.message(x.Sender)); err == nil {
		err = w.Close()
	}
	if err != nil {
		return err
	}
	_ = c.Quit() // the server has it
	return nil
}

// message is the mail as it is sent (RFC 5322).
func (m *Mail) message(sender string) []byte {
	var b bytes.Buffer
	_, domain, _ := strings.Cut(sender, "@")
	subject := strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, m.Subject)
	fmt.Fprintf(&b, "From: <%s>\r\nTo: <%s>\r\nSubject: %s\r\nDate: %s\r\nMessage-ID: <%s@%s>\r\n", sender, strings.Join(m.Recipients, ">, <"), mime.QEncoding.Encode("utf-8", subject), m.CreatedAt.UTC().Format(time.RFC1123Z), m.ID, domain)
	b.WriteString("MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\nAuto-Submitted: auto-generated\r\n\r\n")
	w := quotedprintable.NewWriter(&b)
	_, _ = w.Write([]byte(strings.ReplaceAll(m.body, "\n", "\r\n"))) // into memory
	_ = w.Close()
	return b.Bytes()
}
