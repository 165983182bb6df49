package agent_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

// session is a command as a person sees it.
type session struct {
	t    *testing.T
	conn *websocket.Conn
	out  strings.Builder
	errs strings.Builder
	code *int
	end  string // why the session ended without a code
}

func address(c *apptest.Client, job, query string, command ...string) string {
	q := url.Values{"command": command}
	return fmt.Sprintf("%s/v1/jobs/%s/tasks/0/replicas/0/exec?%s&%s", c.URL, job, q.Encode(), query)
}

// dial starts a command; without a session it returns the server's answer.
func dial(t *testing.T, c *apptest.Client, job, query string, command ...string) (*session, *http.Response) {
	t.Helper()
	// As a browser does it: no header but the list of protocols.
	key := "base64url.bearer.authorization.yunhe." + base64.RawURLEncoding.EncodeToString([]byte(c.Key))
	conn, res, err := websocket.Dial(t.Context(), address(c, job, query, command...), &websocket.DialOptions{Subprotocols: []string{"v1.exec.yunhe", key}})
	if err != nil {
		if res == nil {
			t.Fatal(err)
		}
		return nil, res
	}
	if conn.Subprotocol() != "v1.exec.yunhe" {
		t.Errorf("the protocol is %q", conn.Subprotocol())
	}
	conn.SetReadLimit(16 << 20)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &session{t: t, conn: conn}, nil
}

func begin(t *testing.T, c *apptest.Client, job, query string, command ...string) *session {
	t.Helper()
	s, res := dial(t, c, job, query, command...)
	if s == nil {
		b, _ := io.ReadAll(res.Body)
		t.Fatalf("%v: %s %s", command, res.Status, b)
	}
	return s
}

func (s *session) say(channel byte, text string) {
	s.t.Helper()
	if err := s.conn.Write(s.t.Context(), websocket.MessageBinary, append([]byte{channel}, text...)); err != nil {
		s.t.Fatal(err)
	}
}

// until reads until the output contains text; "" is until the end.
func (s *session) until(text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), apptest.Patience)
	defer cancel()
	for text == "" || !strings.Contains(s.out.String(), text) {
		_, b, err := s.conn.Read(ctx)
		if err != nil {
			if text == "" && s.end+fmt.Sprint(s.code) != "<nil>" {
				return
			}
			s.t.Fatalf("%v; so far %q and %q, want %q", err, s.out.String(), s.errs.String(), text)
		}
		switch b[0] {
		case 1:
			s.out.Write(b[1:])
		case 2:
			s.errs.Write(b[1:])
		case 3:
			var st struct {
				ExitCode *int `json:"exit_code"`
				Error    string
			}
			if err := json.Unmarshal(b[1:], &st); err != nil {
				s.t.Fatal(err)
			}
			s.code, s.end = st.ExitCode, st.Error
		}
	}
}

func (s *session) expect(code int, out, errs string) {
	s.t.Helper()
	s.until("")
	if s.code == nil || *s.code != code || s.out.String() != out || s.errs.String() != errs {
		s.t.Errorf("it wrote %q and %q and ended with %v (%s); want %q, %q, %d", s.out.String(), s.errs.String(), s.code, s.end, out, errs, code)
	}
}

// Commands beside a run, and pauses of it, through all there is between a
// person and the kernel.
func TestExecAndPause(t *testing.T) {
	t.Parallel()
	apptest.NeedRoot(t)
	a := apptest.Start(t, apptest.Options{})
	g := a.Gateway(t)
	long := func(name string) string {
		id := a.Admin.Submit(t, command(name, "echo on; n=0; while :; do n=$((n+1)); echo $n >count; sleep 0.02; done"))
		a.Admin.AwaitState(t, id, jobsv1.State_STATE_RUNNING)
		return id
	}
	id := long("long")

	t.Run("streams and exit code", func(t *testing.T) {
		s := begin(t, a.Admin, id, "", "sh", "-c", "cat; echo wrong >&2; exit 7")
		s.say(0, "one ")
		s.say(0, "two\x00\xff")
		s.say(255, "")
		s.expect(7, "one two\x00\xff", "wrong\n")
		begin(t, a.Admin, id, "", "true").expect(0, "", "")
		big := begin(t, a.Admin, id, "", "head", "-c", "5000000", "/dev/zero")
		big.until("")
		if big.out.Len() != 5000000 || *big.code != 0 {
			t.Errorf("of 5000000 bytes %d came, code %d", big.out.Len(), *big.code)
		}
	})
	t.Run("a terminal", func(t *testing.T) {
		s := begin(t, a.Admin, id, "terminal=1&columns=90&rows=20", "sh")
		s.say(0, "stty size\n")
		s.until("20 90\r\n")
		s.say(4, `{"columns":70,"rows":10}`)
		s.say(0, "stty size\n")
		s.until("10 70\r\n")
		s.say(0, "exit 3\n")
		s.until("")
		if s.code == nil || *s.code != 3 {
			t.Errorf("it ended with %v %s", s.code, s.end)
		}
	})
	t.Run("a reader who is slow holds up the command only", func(t *testing.T) {
		s := begin(t, a.Admin, id, "", "sh", "-c", "yes | head -c 20000000; touch done")
		other := begin(t, a.Admin, id, "", "sh", "-c", "test -e done || echo waits")
		other.expect(0, "waits\n", "") // 20 MB fit nowhere on the way
		s.until("")
		if s.out.Len() != 20000000 {
			t.Errorf("of 20000000 bytes %d came", s.out.Len())
		}
	})
	t.Run("a connection that is cut ends the command", func(t *testing.T) {
		s := begin(t, a.Admin, id, "", "sh", "-c", "echo $$ >pid; echo on; exec sleep 1000")
		s.until("on\n")
		_ = s.conn.CloseNow()
		apptest.Until(t, "the command is gone", func() bool {
			x := begin(t, a.Admin, id, "", "sh", "-c", "kill -0 $(cat pid) 2>/dev/null && echo there || echo gone")
			x.until("")
			return x.out.String() == "gone\n"
		})
	})
	t.Run("refused", func(t *testing.T) {
		user := a.User(t, "t-exec", "u-exec", identityv1.Role_ROLE_USER)
		auditor := a.User(t, "t-exec", "u-look", identityv1.Role_ROLE_AUDITOR)
		nobody := &apptest.Client{URL: a.Admin.URL, Key: "yk_wrong"}
		for name, x := range map[string]struct {
			who     *apptest.Client
			job     string
			query   string
			command []string
			want    int
			text    string
		}{
			"another tenant's": {user, id, "", []string{"true"}, 404, "no job"},
			"who only reads":   {auditor, id, "", []string{"true"}, 403, "jobs.write"},
			"a wrong key":      {nobody, id, "", []string{"true"}, 401, ""},
			"no such job":      {a.Admin, "job_x", "", []string{"true"}, 404, "no job"},
			"no command":       {a.Admin, id, "", nil, 400, "command"},
			"no such program":  {a.Admin, id, "", []string{"nonesuch"}, 400, "nonesuch"},
			"a size":           {a.Admin, id, "terminal=1&columns=99999", []string{"sh"}, 400, "columns"},
			"a parameter":      {a.Admin, id, "shell=1", []string{"sh"}, 400, "shell"},
		} {
			s, res := dial(t, x.who, x.job, x.query, x.command...)
			if s != nil {
				t.Errorf("%s: it runs", name)
				continue
			}
			b, _ := io.ReadAll(res.Body)
			if res.StatusCode != x.want || !strings.Contains(string(b), x.text) {
				t.Errorf("%s: %s %s, want %d and %q", name, res.Status, b, x.want, x.text)
			}
		}
		if res := a.Admin.REST(t, "GET", "/v1/jobs/"+id+"/tasks/0/replicas/0/exec?command=true", ""); res.Status != 400 || !strings.Contains(string(res.Body), "websocket") {
			t.Errorf("without a websocket: %d %s", res.Status, res.Body)
		}
	})
	t.Run("who ran what is written down", func(t *testing.T) {
		begin(t, a.Admin, id, "", "echo", "a secret plan").until("")
		res, err := a.Admin.Identity.ListAuditEvents(t.Context(), &identityv1.ListAuditEventsRequest{PageSize: 5})
		if err != nil {
			t.Fatal(err)
		}
		want := id + `/0/0: echo "a secret plan"`
		if e := res.Events[0]; e.Subject != want || e.Outcome != "OK" || !strings.Contains(e.Method, "/exec") || e.UserId == "" {
			t.Errorf("the newest event is %v, want %q", e, want)
		}
	})
	count := func(id string) string {
		s := begin(t, a.Admin, id, "", "cat", "count")
		s.until("")
		return s.out.String()
	}
	t.Run("paused it does not work, over a restart of its gateway", func(t *testing.T) {
		before := count(id)
		if _, err := a.Admin.Jobs.PauseJob(t.Context(), &jobsv1.PauseJobRequest{JobId: id}); err != nil {
			t.Fatal(err)
		}
		j := a.Admin.AwaitState(t, id, jobsv1.State_STATE_PAUSED)
		state := frozen(t, j.Replicas[0].AttemptId)
		if state != "FROZEN" {
			t.Errorf("the kernel says %q", state)
		}
		if s, res := dial(t, a.Admin, id, "", "true"); s != nil || res.StatusCode != 409 {
			t.Errorf("a command beside a paused run: %v", res)
		}
		g.Stop()
		g.Start()
		time.Sleep(time.Second) // long enough for a mistaken gateway to say that it runs
		if j := a.Admin.Job(t, id); j.State != jobsv1.State_STATE_PAUSED || frozen(t, j.Replicas[0].AttemptId) != "FROZEN" {
			t.Errorf("after the gateway's restart: %s, %s", j.State, frozen(t, j.Replicas[0].AttemptId))
		}
		if _, err := a.Admin.Jobs.ResumeJob(t.Context(), &jobsv1.ResumeJobRequest{JobId: id}); err != nil {
			t.Fatal(err)
		}
		a.Admin.AwaitState(t, id, jobsv1.State_STATE_RUNNING)
		apptest.Until(t, "it counts on", func() bool { return count(id) != before })
	})
	t.Run("the end of the job ends the session", func(t *testing.T) {
		s := begin(t, a.Admin, id, "terminal=1", "sh", "-c", "echo on; exec sleep 1000")
		s.until("on\r\n")
		if _, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id}); err != nil {
			t.Fatal(err)
		}
		s.until("")
		if s.code == nil || *s.code < 128 {
			t.Errorf("it ended with %v %q, want by a signal", s.code, s.end)
		}
		a.Admin.AwaitState(t, id, jobsv1.State_STATE_STOPPED)
		if s, res := dial(t, a.Admin, id, "", "true"); s != nil || res.StatusCode != 409 {
			t.Errorf("a command beside an ended run: %v", res)
		}
	})
	t.Run("a gateway that goes away ends the session", func(t *testing.T) {
		id := long("left")
		s := begin(t, a.Admin, id, "", "sh", "-c", "echo on; exec sleep 1000")
		s.until("on\n")
		g.Stop()
		s.until("")
		if s.end == "" && (s.code == nil || *s.code == 0) {
			t.Errorf("it ended with %v %q", s.code, s.end)
		}
		g.Start()
		apptest.Until(t, "the next gateway runs commands", func() bool {
			s, _ := dial(t, a.Admin, id, "", "true")
			return s != nil
		})
	})
}

// frozen is what the kernel says of a run's groups.
func frozen(t *testing.T, attempt string) string {
	t.Helper()
	found, err := filepath.Glob("/sys/fs/cgroup/freezer/yunhe/*/" + attempt + "/freezer.state")
	if err != nil || len(found) == 0 {
		t.Skipf("there is no freezer of %s to look at: %v", attempt, err)
	}
	b, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
