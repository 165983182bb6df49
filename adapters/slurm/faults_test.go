package slurm_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/enginetest"
)

type forward = func() (int, http.Header, []byte)

// TestBadBackends: each way in which a cluster can be out of reach is said in
// words to act on, loses nothing, and passes by itself.
func TestBadBackends(t *testing.T) {
	t.Parallel()
	needEngines(t)
	s := enginetest.SlurmCluster(t, enginetest.SlurmConfig{Nodes: 1, Conf: quick})

	t.Run("slurmrestd is killed and comes back", func(t *testing.T) {
		v := start(t, config(t, s))
		path := proof(t, s)
		runs, ends := attempt("echo run >>"+path+"; sleep 100"), attempt("echo run >>"+path+"; while [ -e "+path+".wait ]; do sleep 0.1; done; exit 4")
		if err := os.WriteFile(path+".wait", nil, 0o644); err != nil {
			t.Fatal(err)
		}
		v.apply(runs, ends)
		v.running(runs.AttemptId)
		v.running(ends.AttemptId)
		if err := s.KillREST(); err != nil {
			t.Fatal(err)
		}
		v.troubled("slurmrestd at "+s.RESTURL, "connection refused", "is slurmrestd running")
		if _, err := v.Apply(t.Context(), &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{attempt("true")}}); err == nil {
			t.Error("apply succeeds while nobody answers")
		}
		if err := os.Remove(path + ".wait"); err != nil {
			t.Fatal(err)
		}
		if err := s.StartREST(t.Context()); err != nil {
			t.Fatal(err)
		}
		v.well()
		if st := v.ended(ends.AttemptId); st.Reason != "exit" || st.ExitCode != 4 {
			t.Errorf("status is {%v}", st)
		}
		v.apply(runs, ends)
		v.stop(runs.AttemptId)
		if st := v.ended(runs.AttemptId); st.Reason != "stopped" {
			t.Errorf("status is {%v}", st)
		}
		if got := lines(t, path); len(got) != 2 {
			t.Errorf("ran %q, want each once", got)
		}
	})
	t.Run("slurmctld is killed behind slurmrestd and comes back", func(t *testing.T) {
		cfg := config(t, s)
		cfg.TimeoutSeconds = 2
		v := start(t, cfg)
		a := attempt("sleep 100")
		v.apply(a)
		v.running(a.AttemptId)
		if err := s.StopController(); err != nil {
			t.Fatal(err)
		}
		v.troubled("slurmctld", "scontrol ping")
		if err := s.StartController(t.Context()); err != nil {
			t.Fatal(err)
		}
		v.well()
		v.stop(a.AttemptId)
		if st := v.ended(a.AttemptId); st.Reason != "stopped" {
			t.Errorf("status is {%v}", st)
		}
	})
	t.Run("the token is wrong, expires, and is renewed in its file", func(t *testing.T) {
		cfg := config(t, s)
		good := cfg.Token
		other, err := s.Token(t.Context(), "daemon", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		short, err := s.Token(t.Context(), user, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Token, cfg.TokenFile = "", filepath.Join(t.TempDir(), "token")
		v := start(t, cfg)
		v.troubled("token_file "+cfg.TokenFile, "no such file")
		for _, c := range []struct {
			token string
			words []string
		}{
			{"not-a-token", []string{"the token is not a JWT", "scontrol token username=nobody"}},
			{other, []string{`the token is of user "daemon", not of "nobody"`}},
			{short, []string{`the token of user "nobody" expired at 20`, "> " + cfg.TokenFile}},
			{good[:len(good)-8] + "AAAAAAAA", []string{"refuses the token", "scontrol token username=nobody"}},
			{"two words", []string{"does not hold one token"}},
		} {
			write(t, cfg.TokenFile, c.token)
			v.troubled(c.words...)
		}
		write(t, cfg.TokenFile, "SLURM_JWT="+good)
		v.well()
		a := attempt("true")
		v.apply(a)
		v.ended(a.AttemptId)
	})
	t.Run("what answers is slow, broken or something else", func(t *testing.T) {
		p := newProxy(t, s)
		cfg := config(t, s)
		cfg.URL, cfg.TimeoutSeconds = p.URL, 1
		v := start(t, cfg)
		path := proof(t, s)
		a := attempt("echo ran >>" + path + "; sleep 100")
		v.apply(a)
		v.running(a.AttemptId)
		jobs := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/jobs") }
		for name, c := range map[string]struct {
			do    func(w http.ResponseWriter, r *http.Request, forward forward)
			words []string
		}{
			"stalled": {func(_ http.ResponseWriter, r *http.Request, _ forward) { <-r.Context().Done() }, []string{"did not answer", "within 1s"}},
			"a stall in the middle": {func(w http.ResponseWriter, r *http.Request, forward forward) {
				_, _, b := forward()
				give(w)(200, http.Header{"Content-Type": {"application/json"}}, b[:len(b)/2])
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}, []string{"did not answer", "within 1s"}},
			"half an answer": {func(w http.ResponseWriter, _ *http.Request, forward forward) {
				_, h, b := forward()
				give(w)(200, h, b[:len(b)/2])
			}, []string{"cannot be read", "broke off"}},
			"cut off": {func(w http.ResponseWriter, _ *http.Request, forward forward) {
				_, h, b := forward()
				w.Header().Set("Content-Length", fmt.Sprint(len(b)))
				give(w)(200, h, b[:len(b)/2])
			}, []string{"broke off"}},
			"a page": {func(w http.ResponseWriter, _ *http.Request, _ forward) {
				give(w)(200, http.Header{"Content-Type": {"text/html; charset=utf-8"}}, []byte("<html>Welcome to our portal</html>"))
			}, []string{`"text/html" instead of JSON`, "Welcome to our portal", "look at url"}},
			"a gateway's error": {func(w http.ResponseWriter, _ *http.Request, _ forward) {
				give(w)(502, http.Header{"Content-Type": {"text/plain"}}, []byte("bad gateway"))
			}, []string{"502", "bad gateway"}},
			"other JSON": {func(w http.ResponseWriter, _ *http.Request, _ forward) { js(w, `{"hello":1}`) }, []string{`without "jobs"`}},
			"a list":     {func(w http.ResponseWriter, _ *http.Request, _ forward) { js(w, `[1]`) }, []string{"not a JSON object"}},
			"no JSON":    {func(w http.ResponseWriter, _ *http.Request, _ forward) { js(w, `{"jobs":[}`) }, []string{"cannot be read"}},
			"errors with no jobs": {func(w http.ResponseWriter, _ *http.Request, _ forward) {
				js(w, `{"jobs":[],"errors":[{"error":"it broke","error_number":2090}]}`)
			}, []string{"it broke", "2090"}},
			"a redirect": {func(w http.ResponseWriter, _ *http.Request, _ forward) {
				w.Header().Set("Location", "http://127.0.0.1:1/")
				give(w)(302, http.Header{"Content-Type": {"text/html"}}, nil)
			}, []string{"302"}},
		} {
			t.Run(name, func(t *testing.T) {
				p.set(func(w http.ResponseWriter, r *http.Request, forward forward) {
					if jobs(r) {
						c.do(w, r, forward)
						return
					}
					give(w)(forward())
				})
				v.troubled(c.words...)
				p.set(nil)
				v.well()
				if st := v.running(a.AttemptId); st.Phase != adapterv1.Phase_PHASE_RUNNING {
					t.Errorf("status is {%v}", st)
				}
			})
		}
		v.stop(a.AttemptId)
		v.ended(a.AttemptId)
		if got := lines(t, path); len(got) != 1 {
			t.Errorf("ran %q, want once", got)
		}
	})
	t.Run("TLS where there is none", func(t *testing.T) {
		cfg := config(t, s)
		cfg.URL = strings.Replace(cfg.URL, "http://", "https://", 1)
		start(t, cfg).troubled("write http:// in url")
	})
	for name, c := range map[string]struct {
		known bool // its authority is in ca_file
		life  time.Duration
		host  string
		words string
	}{
		"a certificate of an unknown authority": {false, time.Hour, "127.0.0.1", "name that authority's certificate in ca_file"},
		"an expired certificate":                {true, -time.Hour, "127.0.0.1", "its certificate is not valid"},
		"a certificate of another name":         {true, time.Hour, "elsewhere.example", "its certificate is not valid for this url"},
	} {
		t.Run(name, func(t *testing.T) {
			u, err := url.Parse(s.RESTURL)
			if err != nil {
				t.Fatal(err)
			}
			front := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(u))
			front.Config.ErrorLog = log.New(io.Discard, "", 0) // each refusal
			bad, badPEM := certificate(t, c.life, c.host)
			right, rightPEM := certificate(t, time.Hour, "127.0.0.1")
			var mended atomic.Bool
			front.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				if mended.Load() {
					return &tls.Config{Certificates: []tls.Certificate{right}}, nil
				}
				return &tls.Config{Certificates: []tls.Certificate{bad}}, nil
			}}
			front.StartTLS()
			t.Cleanup(front.Close)
			cfg := config(t, s)
			cfg.URL, cfg.CAFile = front.URL, filepath.Join(t.TempDir(), "ca.pem")
			roots := rightPEM
			if c.known {
				roots = append(badPEM, rightPEM...)
			}
			write(t, cfg.CAFile, string(roots))
			v := start(t, cfg)
			v.troubled(c.words)
			mended.Store(true)
			v.well()
			a := attempt("true")
			v.apply(a)
			v.ended(a.AttemptId)
		})
	}
	t.Run("clocks differ", func(t *testing.T) {
		p := newProxy(t, s)
		var off atomic.Int64
		p.set(func(w http.ResponseWriter, r *http.Request, forward forward) {
			status, h, b := forward()
			if strings.HasSuffix(r.URL.Path, "/diag") {
				b = requestTime.ReplaceAllFunc(b, func(m []byte) []byte {
					var at int64
					_, _ = fmt.Sscanf(string(m), `"req_time": %d`, &at)
					return fmt.Appendf(nil, `"req_time": %d`, at-off.Load())
				})
			}
			give(w)(status, h, b)
		})
		off.Store(3600)
		cfg := config(t, s)
		cfg.URL = p.URL
		v := start(t, cfg)
		within(t, "it is told", func() bool {
			r, err := v.Discover(t.Context(), &adapterv1.DiscoverRequest{})
			return err == nil && strings.Contains(r.Inventory.Notice, "behind the driver's by 1h0m0s")
		})
		a := attempt("exit 3")
		v.apply(a)
		if st := v.ended(a.AttemptId); st.Reason != "exit" || st.ExitCode != 3 {
			t.Errorf("status is {%v}", st)
		}
		v.well()
	})
	t.Run("over a socket", func(t *testing.T) {
		cfg := config(t, s)
		cfg.URL = "unix:" + s.RESTSocket
		v := start(t, cfg)
		a := attempt("true")
		v.apply(a)
		if st := v.ended(a.AttemptId); st.Reason != "completed" {
			t.Errorf("status is {%v}", st)
		}
	})
	t.Run("a partition that is not there", func(t *testing.T) {
		cfg := config(t, s)
		cfg.Partitions[1].Name = "moon"
		start(t, cfg).troubled(`no partition "moon"`, "high, main")
	})
}

var requestTime = regexp.MustCompile(`"req_time": [0-9]+`)

// certificate makes a self-signed certificate of a host, valid until after a time.
func certificate(t *testing.T, life time.Duration, host string) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(life), IsCA: true, BasicConstraintsValid: true}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func js(w http.ResponseWriter, body string) {
	give(w)(200, http.Header{"Content-Type": {"application/json"}}, []byte(body))
}

// write replaces a file with a newer one.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestLostAnswers: a submission whose answer does not come, or comes through
// long after it was given up, runs once all the same.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	s := enginetest.SlurmCluster(t, enginetest.SlurmConfig{Nodes: 2, Conf: quick})
	submission := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/job/submit") }

	t.Run("the answer is lost", func(t *testing.T) {
		p := newProxy(t, s)
		cfg := config(t, s)
		cfg.URL = p.URL
		v := start(t, cfg)
		path := proof(t, s)
		a := attempt("echo ran >>" + path)
		var n atomic.Int64
		p.set(func(w http.ResponseWriter, r *http.Request, forward forward) {
			if submission(r) && n.Add(1) == 1 {
				forward()
				panic(http.ErrAbortHandler)
			}
			give(w)(forward())
		})
		if _, err := v.Apply(t.Context(), &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{a}}); err == nil {
			t.Fatal("apply succeeds without an answer")
		}
		v.apply(a)
		v.ended(a.AttemptId)
		if got := lines(t, path); len(got) != 1 || n.Load() != 1 {
			t.Errorf("ran %q after %d submissions, want once after one", got, n.Load())
		}
	})
	for name, readable := range map[string]bool{"with the folder in reach": true, "without": false} {
		t.Run("a submission comes through late, "+name, func(t *testing.T) {
			p := newProxy(t, s)
			cfg := config(t, s)
			cfg.URL, cfg.TimeoutSeconds = p.URL, 1
			if !readable {
				cfg.OutputDir = ""
			}
			first := start(t, cfg)
			path := proof(t, s)
			a := attempt("echo ran >>" + path + "; sleep 1; exit 5")
			late, release := make(chan struct{}), make(chan struct{})
			var n atomic.Int64
			p.set(func(w http.ResponseWriter, r *http.Request, forward forward) {
				if submission(r) && n.Add(1) == 1 {
					close(late)
					<-release // whoever sent it has long gone
					give(w)(forward())
					return
				}
				give(w)(forward())
			})
			t.Cleanup(func() { p.set(nil) })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { _, _ = first.Apply(ctx, &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{a}}) }()
			<-late
			first.kill() // in the middle of the submission
			v := start(t, cfg)
			v.apply(a)
			v.running(a.AttemptId)
			close(release)
			within(t, "both jobs are known", func() bool {
				out, err := s.Run(t.Context(), "", "squeue", "--noheader", "--states=all", "--name=yunhe:"+a.AttemptId, "--format=%i")
				return err == nil && len(strings.Fields(out)) == 2
			})
			if st := v.ended(a.AttemptId); st.Reason != "exit" || st.ExitCode != 5 {
				t.Errorf("status is {%v}, want exit 5", st)
			}
			within(t, "both jobs have ended", func() bool {
				out, err := s.Run(t.Context(), "", "squeue", "--noheader", "--name=yunhe:"+a.AttemptId)
				return err == nil && out == ""
			})
			if got := lines(t, path); len(got) != 1 {
				t.Errorf("ran %q, want once", got)
			}
			again := start(t, cfg)
			if st := again.ended(a.AttemptId); st.Reason != "exit" || st.ExitCode != 5 {
				t.Errorf("after a restart status is {%v}, want exit 5", st)
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			if h := slices.Compact(slices.Clone(v.history[a.AttemptId])); !slices.Equal(h, []string{"PENDING ", "RUNNING ", "ENDED exit"}) {
				t.Errorf("it was told as %q", h)
			}
		})
	}
}

// TestClusterEvents: what happens to jobs without anybody asking.
func TestClusterEvents(t *testing.T) {
	t.Parallel()
	needEngines(t)
	s := enginetest.SlurmCluster(t, enginetest.SlurmConfig{Nodes: 2, CPUs: 2, Conf: quick})

	t.Run("a job is preempted and lost", func(t *testing.T) {
		v := start(t, config(t, s))
		low := []*adapterv1.Attempt{attempt("sleep 100"), attempt("sleep 100")}
		for _, a := range low {
			a.Resources["cpu"] = 2000
		}
		v.apply(low...)
		for _, a := range low {
			v.running(a.AttemptId)
		}
		high := attempt("true")
		high.ResourcespecId, high.Resources["cpu"] = "high", 2000
		v.apply(high)
		if st := v.ended(high.AttemptId); st.Reason != "completed" {
			t.Errorf("status is {%v}", st)
		}
		lost := 0
		within(t, "one is preempted", func() bool {
			lost = 0
			v.mu.Lock()
			defer v.mu.Unlock()
			for _, a := range low {
				if st := v.last[a.AttemptId]; st.Reason == "lost" && strings.Contains(st.Message, "preempted") {
					lost++
				}
			}
			return lost > 0
		})
		v.stop(low[0].AttemptId, low[1].AttemptId)
		v.ended(low[0].AttemptId)
		v.ended(low[1].AttemptId)
		if lost != 1 {
			t.Errorf("%d were preempted, want one", lost)
		}
	})
	t.Run("a job is preempted and starts again where that is allowed", func(t *testing.T) {
		cfg := config(t, s)
		cfg.Requeue = true
		v := start(t, cfg)
		path := proof(t, s)
		var low []*adapterv1.Attempt
		for range 2 {
			// A shell may say on its error output that its sleep was ended.
			a := attempt("exec 2>/dev/null; echo $YUNHE_ATTEMPT_ID >>" + path + "; echo up; while [ ! -e " + path + ".go ]; do sleep 0.1; done")
			a.Resources["cpu"] = 2000
			low = append(low, a)
		}
		v.apply(low...)
		within(t, "both run", func() bool { return len(lines(t, path)) == 2 })
		high := attempt("true")
		high.ResourcespecId, high.Resources["cpu"] = "high", 2000
		v.apply(high)
		v.ended(high.AttemptId)
		within(t, "one runs again", func() bool {
			hurry(t, s, low[0].AttemptId, low[1].AttemptId)
			return len(lines(t, path)) == 3
		})
		if err := os.WriteFile(path+".go", nil, 0o644); err != nil {
			t.Fatal(err)
		}
		logs := ""
		for _, a := range low {
			if st := v.ended(a.AttemptId); st.Reason != "completed" {
				t.Errorf("status is {%v}", st)
			}
			logs += v.log(a.AttemptId)
		}
		if logs != "up\nup\nup\n" {
			t.Errorf("logs are %q, want that the log of the first run stays", logs)
		}
	})
	t.Run("an administrator's requeue does not run it twice", func(t *testing.T) {
		v := start(t, config(t, s))
		path := proof(t, s)
		a := attempt("echo ran >>" + path + "; sleep 100")
		v.apply(a)
		within(t, "it runs", func() bool { return len(lines(t, path)) == 1 })
		v.running(a.AttemptId)
		for _, args := range [][]string{{"update", "JobId=" + jobID(t, s, a.AttemptId), "Requeue=1"}, {"requeue", jobID(t, s, a.AttemptId)}} {
			if _, err := s.Run(t.Context(), "", "scontrol", args...); err != nil {
				t.Fatal(err)
			}
		}
		if st := v.ended(a.AttemptId); st.Reason != "lost" || !strings.Contains(st.Message, "again") || st.StartedAt == 0 || st.Node == "" {
			t.Errorf("status is {%v}", st)
		}
		within(t, "it is canceled", func() bool {
			out, err := s.Run(t.Context(), "", "squeue", "--noheader", "--states=all", "--name=yunhe:"+a.AttemptId, "--format=%T")
			return err == nil && out == "CANCELLED\n"
		})
		if got := lines(t, path); len(got) != 1 {
			t.Errorf("ran %q, want once", got)
		}
	})
	t.Run("Slurm's time limit is met", func(t *testing.T) {
		v := start(t, config(t, s))
		a := attempt("sleep 1000")
		v.apply(a)
		v.running(a.AttemptId)
		within(t, "Slurm takes the limit", func() bool { // not in the second in which the job began
			_, err := s.Run(t.Context(), "", "scontrol", "update", "JobId="+jobID(t, s, a.AttemptId), "EndTime=now")
			return err == nil
		})
		if st := v.ended(a.AttemptId); st.Reason != "wall_time" || !strings.Contains(st.Message, "Slurm's time limit") {
			t.Errorf("status is {%v}, want wall_time", st)
		}
	})
	t.Run("a node fails", func(t *testing.T) {
		v := start(t, config(t, s))
		a := attempt("sleep 100")
		v.apply(a)
		st := v.running(a.AttemptId)
		name := st.Message[strings.LastIndex(st.Message, " ")+1:]
		if err := s.KillNode(name); err != nil { // otherwise the node would report for work again at once
			t.Fatal(err)
		}
		if _, err := s.Run(t.Context(), "", "scontrol", "update", "NodeName="+name, "State=DOWN", "Reason=smoke"); err != nil {
			t.Fatal(err)
		}
		if st := v.ended(a.AttemptId); st.Reason != "lost" || !strings.Contains(st.Message, "node failed") {
			t.Errorf("status is {%v}, want lost", st)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		w, err := v.Watch(ctx, &adapterv1.WatchRequest{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for w.Receive() {
			for _, n := range w.Msg().Nodes {
				if n.Name == name && n.State == adapterv1.NodeState_NODE_STATE_NOT_READY && strings.Contains(n.Reason, "smoke") {
					return
				}
			}
		}
		t.Errorf("watch never tells that %s is down", name)
	})
}

// hurry lets jobs that were put back begin at once; Slurm makes them wait for
// two minutes.
func hurry(t *testing.T, s *enginetest.Slurm, attempts ...string) {
	t.Helper()
	for _, a := range attempts {
		out, err := s.Run(t.Context(), "", "squeue", "--noheader", "--states=PENDING", "--name=yunhe:"+a, "--format=%i")
		if err != nil {
			t.Fatal(err)
		}
		if id := strings.TrimSpace(out); id != "" {
			_, _ = s.Run(t.Context(), "", "scontrol", "update", "JobId="+id, "StartTime=now") // not while it is cleaned up
		}
	}
}

// jobID asks Slurm for the job of an attempt.
func jobID(t *testing.T, s *enginetest.Slurm, attempt string) string {
	t.Helper()
	out, err := s.Run(t.Context(), "", "squeue", "--noheader", "--name=yunhe:"+attempt, "--format=%i")
	if err != nil || len(strings.Fields(out)) != 1 {
		t.Fatalf("jobs of %s: %q, %v", attempt, out, err)
	}
	return strings.TrimSpace(out)
}
