package notices_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/identity"
	"yunhe.dev/yunhe/internal/notices"
	"yunhe.dev/yunhe/internal/notices/noticestest"
	"yunhe.dev/yunhe/internal/seal"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type world struct {
	*notices.Service
	t     *testing.T
	db    *db.DB
	admin context.Context
	bob   context.Context
	skew  *skew
}

// skew moves the clock.
type skew struct {
	mu sync.Mutex
	d  time.Duration
}

func (s *skew) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.d)
}

func (s *skew) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.d += d
}

func open(t *testing.T, url string) *world {
	w := &world{t: t, skew: &skew{}}
	log := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var err error
	w.db, err = db.Open(ctx, db.Config{URL: url, Now: w.skew.now}, log)
	must(t, err)
	b, err := bus.Open(ctx, bus.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"}, log)
	must(t, err)
	ids, err := identity.New(ctx, w.db, log)
	must(t, err)
	box, err := seal.Open(filepath.Join(t.TempDir(), "key"))
	must(t, err)
	w.Service, err = notices.New(ctx, w.db, b, ids, box, log)
	must(t, err)
	var loops sync.WaitGroup
	loops.Go(func() { _ = b.Relay(ctx, w.db) })
	t.Cleanup(func() {
		cancel()
		loops.Wait()
		b.Close()
		_ = w.db.Close()
	})
	w.admin = core.WithCaller(ctx, core.Caller{UserID: "admin", TenantID: "default", AllTenants: true})
	w.bob = core.WithCaller(ctx, core.Caller{UserID: "bob", TenantID: "biology"})
	return w
}

func each(t *testing.T, f func(w *world)) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(open(t, filepath.Join(t.TempDir(), "db"))) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); f(open(t, enginetest.Postgres(t))) })
}

func (w *world) post(list ...notices.Alarm) {
	w.t.Helper()
	must(w.t, w.db.Tx(w.admin, func(tx *db.Tx) error { return w.PostTx(w.admin, tx, list...) }))
}

// run runs the loop until the test ends or stop is called.
func (w *world) run() (stop func()) {
	ctx, cancel := context.WithCancel(w.admin)
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	stop = func() { cancel(); <-done }
	w.t.Cleanup(stop)
	return stop
}

func (w *world) take(s *noticestest.Server) noticestest.Letter {
	w.t.Helper()
	select {
	case l := <-s.Got:
		return l
	case <-time.After(time.Minute):
		w.t.Fatal("no mail came")
		return noticestest.Letter{}
	}
}

// state waits until the newest mail is in a state.
func (w *world) state(want notices.MailState, attempts int64) *notices.Mail {
	w.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		list, err := w.Mails(w.admin)
		must(w.t, err)
		if len(list) > 0 && list[0].State == want && list[0].Attempts >= attempts {
			return list[0]
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the mail is not in state %d after %d attempts: %+v", want, attempts, list)
		}
	}
}

// A notice is there once for each who may see it, and is read by each by himself.
func TestInSite(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.post(notices.Alarm{ID: "alm_1", Message: "a node is offline", Kind: 12, Severity: 2}, notices.Alarm{ID: "alm_2", Message: "of a tenant", Kind: 16, Severity: 1, Tenant: "default"})
		w.post(notices.Alarm{ID: "alm_1", Message: "a node is offline", Kind: 12, Severity: 2, Cleared: true}) // not asked for
		list, _, unread, err := w.List(w.bob, 0, "")
		if must(t, err); len(list) != 1 || unread != 1 || list[0].Message != "a node is offline" || list[0].Read {
			t.Errorf("bob sees %+v, %d unread", list, unread)
		}
		must(t, w.Read(w.bob, list[0].ID))
		if list, _, unread, err = w.List(w.bob, 0, ""); err != nil || unread != 0 || !list[0].Read {
			t.Errorf("bob has read: %+v, %d unread, %v", list, unread, err)
		}
		one, next, unread, err := w.List(w.admin, 1, "")
		if must(t, err); len(one) != 1 || next == "" || unread != 2 || one[0].AlarmID != "alm_2" {
			t.Errorf("the administrator sees %+v, %d unread", one, unread)
		}
		if err := w.Read(w.bob, one[0].ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("bob reads what is another tenant's: %v", err)
		}
		_, err = w.Set(w.admin, notices.Settings{Severity: 3, InSite: true, Kinds: []int64{12}})
		must(t, err)
		w.post(notices.Alarm{ID: "alm_3", Kind: 12, Severity: 2}, notices.Alarm{ID: "alm_4", Kind: 13, Severity: 3}, notices.Alarm{ID: "alm_5", Kind: 12, Severity: 3})
		if list, _, _, err = w.List(w.admin, 0, ""); err != nil || len(list) != 3 || list[0].AlarmID != "alm_5" {
			t.Errorf("by kind and severity: %+v %v", list, err)
		}
	})
}

// Mail goes through a server that wants STARTTLS and a password, once for each
// notice, over a restart too; it is tried again when the server says not now.
func TestMail(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		s := noticestest.Serve(t)
		w.Roots = s.Roots
		x := notices.Settings{Mail: true, Cleared: true, Recipients: []string{"ann@example.org", "bob@example.org"}, Sender: "yunhe@example.org", Server: s.Addr().String(), Security: notices.StartTLS, User: "yunhe", Password: "geheim"}
		got, err := w.Set(w.admin, x)
		if must(t, err); !got.HasPassword || got.Password != "" {
			t.Errorf("settings are %+v", got)
		}
		must(t, w.Try(w.admin))
		if l := w.take(s); !l.Secure || l.Auth != "\x00yunhe\x00geheim" || !strings.Contains(l.From, "yunhe@example.org") || len(l.To) != 2 {
			t.Errorf("the server got %+v", l)
		}
		stop := w.run()
		w.post(notices.Alarm{ID: "alm_1", Message: "加速器 n1 is offline\r\nBcc: x@example.org", Kind: 12, Severity: 2})
		if l := w.take(s); l.Subject != "[Yunhe] major: 加速器 n1 is offline  Bcc: x@example.org" || !strings.Contains(l.Body, "alm_1") || len(l.To) != 2 {
			t.Errorf("the server got %+v", l)
		}
		w.state(notices.Sent, 1)
		stop()
		s.Answer("451 not now")
		w.post(notices.Alarm{ID: "alm_1", Message: "over", Kind: 12, Severity: 2, Cleared: true})
		stop = w.run()
		m := w.state(notices.Waiting, 1)
		if !strings.Contains(m.Problem, "not now") {
			t.Errorf("the problem is %q", m.Problem)
		}
		stop()
		s.Answer("")
		w.skew.add(time.Minute)
		x.Password = "" // stays
		_, err = w.Set(w.admin, x)
		must(t, err)
		stop = w.run()
		if l := w.take(s); l.Subject != "[Yunhe] cleared: over" || l.Auth != "\x00yunhe\x00geheim" || l.ID != fmt.Sprintf("<%s@example.org>", m.ID) {
			t.Errorf("the server got %+v", l)
		}
		w.state(notices.Sent, 2)
		s.Answer("550 never")
		w.post(notices.Alarm{ID: "alm_2", Message: "m", Kind: 12, Severity: 2})
		w.state(notices.Failed, 1)
		stop()
		if n := len(s.Got); n != 0 {
			t.Errorf("%d mails more than there should be", n)
		}
		x.Server = "127.0.0.1:1" // another server must not learn the password
		if got, err = w.Set(w.admin, x); err != nil || got.HasPassword {
			t.Errorf("settings are %+v %v", got, err)
		}
		if err := w.Try(w.admin); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("no server: %v", err)
		}
	})
}

// A server whose certificate nobody vouches for, or that encrypts nothing, learns
// nothing.
func TestMailRefuses(t *testing.T) {
	t.Parallel()
	w := open(t, filepath.Join(t.TempDir(), "db"))
	s := noticestest.Serve(t)
	w.Roots = x509.NewCertPool()
	_, err := w.Set(w.admin, notices.Settings{Mail: true, Recipients: []string{"a@b.c"}, Sender: "y@b.c", Server: s.Addr().String(), User: "u", Password: "p"})
	must(t, err)
	if err := w.Try(w.admin); fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate that nobody vouches for: %v", err)
	}
	if n := len(s.Got); n != 0 {
		t.Errorf("%d mails were sent", n)
	}
	_, err = w.Set(w.admin, notices.Settings{Mail: true, Severity: 9, Recipients: []string{"no address"}, Sender: "x\r\ny@b", Server: "host", Security: 7})
	for _, path := range []string{"severity", "recipients[0]", "sender", "server", "security"} {
		if !slices.ContainsFunc(fault.FieldsOf(err), func(f fault.Field) bool { return f.Path == "settings."+path }) {
			t.Errorf("%s is not named: %v", path, err)
		}
	}
	if got, err := w.Settings(w.admin); err != nil || !slices.Equal(got.Recipients, []string{"a@b.c"}) {
		t.Errorf("settings are %+v %v", got, err)
	}
}
