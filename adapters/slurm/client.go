package slurm

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// client speaks to slurmrestd. It is safe for concurrent use.
type client struct {
	cfg  *Config
	base string // for example http://127.0.0.1:6820
	http *http.Client

	mu      sync.Mutex // guards the fields below
	version int        // of the interface: 38 for v0.0.38; 0: not agreed yet
	release string     // of Slurm, as the last answer said
	token   string     // what tokenFrom held
	read    time.Time  // its modification time
}

// oldest and newest are the versions this driver knows: 0.0.37 and 0.0.38 by the tests on
// a real cluster, the later ones by the published descriptions.
const oldest, newest = 37, 43

// Bounds of an answer. A description of a job is about 4 KiB, so a list holds
// a hundred thousand jobs.
const (
	maxAnswer = 512 << 20
	maxSchema = 64 << 20
)

func newClient(cfg *Config) (*client, error) {
	c := &client{cfg: cfg}
	tr := &http.Transport{Proxy: nil, MaxIdleConnsPerHost: workers, MaxConnsPerHost: 2 * workers, IdleConnTimeout: 30 * time.Second, ForceAttemptHTTP2: false}
	if path, ok := strings.CutPrefix(cfg.URL, "unix:"); ok {
		path = strings.TrimPrefix(path, "//")
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
		c.base = "http://slurmrestd"
	} else {
		c.base = strings.TrimRight(cfg.URL, "/")
	}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "ca_file %s cannot be read", cfg.CAFile)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fault.New(fault.Invalid, "ca_file %s has no certificate in PEM form", cfg.CAFile)
		}
		tr.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	c.http = &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a token goes nowhere else
	}}
	return c, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// errUnchanged says that nothing changed since update_time.
var errUnchanged = errors.New("nothing changed")

// apiError is slurmrestd's answer that something did not work.
type apiError struct {
	status   int
	problems []problem
}

func (e *apiError) Error() string {
	if len(e.problems) == 0 {
		return fmt.Sprintf("slurmrestd answered %d %s", e.status, http.StatusText(e.status))
	}
	return "Slurm answered: " + e.problems[0].String()
}

// number is Slurm's number of the error, 0 if it gave none.
func (e *apiError) number() int64 {
	for _, p := range e.problems {
		if n := p.number(); n > 0 {
			return n
		}
	}
	return 0
}

// authError is a refusal of the token.
type authError struct{ text string }

func (e *authError) Error() string { return e.text }

// strangeError is an answer that is not slurmrestd's.
type strangeError struct{ text string }

func (e *strangeError) Error() string { return e.text }

// exchange sends one request and lets read take the body of the answer.
func (c *client) exchange(ctx context.Context, method, path string, body []byte, read func(io.Reader) (answer, error)) (answer, error) {
	token, err := c.secret()
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.timeout())
	defer cancel()
	var send io.Reader
	if body != nil {
		send = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, send)
	if err != nil {
		return answer{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.cfg.User != "" {
		req.Header.Set("X-SLURM-USER-NAME", c.cfg.User)
	}
	if token != "" {
		req.Header.Set("X-SLURM-USER-TOKEN", token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, c.unreachable(method, path, err)
	}
	defer resp.Body.Close() // nothing to learn from it
	a, err := c.judge(resp, method, path, read)
	if err == nil || errors.Is(err, errUnchanged) {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4096)) // so that the connection can be used again
	}
	return a, err
}

// judge reads an answer and says what it means.
func (c *client) judge(resp *http.Response, method, path string, read func(io.Reader) (answer, error)) (answer, error) {
	switch resp.StatusCode {
	case http.StatusNotModified:
		return answer{}, errUnchanged
	case http.StatusUnauthorized, http.StatusForbidden:
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 512)) // for the message only
		return answer{}, &authError{c.refused(fmt.Sprintf("%d %s", resp.StatusCode, clip(string(b), 200)))}
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind != "application/json" {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 512)) // for the message only
		if resp.StatusCode == http.StatusNotFound && kind == "text/plain" {
			return answer{}, &apiError{status: resp.StatusCode}
		}
		return answer{}, &strangeError{fmt.Sprintf("%s answered %s %s with %d and %q instead of JSON (%s): what answers there is not slurmrestd, or something stands before it; look at url",
			c.where(), method, path, resp.StatusCode, kind, strconv.Quote(clip(string(b), 120)))}
	}
	a, err := read(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		if isTimeout(err) {
			return a, c.unreachable(method, path, err)
		}
		return a, &strangeError{fmt.Sprintf("%s answered %s %s with JSON that cannot be read: %v", c.where(), method, path, err)}
	}
	if a.release != "" {
		c.mu.Lock()
		c.release = a.release
		c.mu.Unlock()
	}
	if len(a.problems) > 0 || resp.StatusCode >= 300 {
		return a, &apiError{resp.StatusCode, a.problems}
	}
	return a, nil
}

// list reads a list from slurmrestd; since, if it is not 0, asks for nothing
// if nothing changed: that is errUnchanged. The whole list or an error.
func list[T any](ctx context.Context, c *client, what string, since int64, each func(*T)) (answer, error) {
	version, err := c.agree(ctx)
	if err != nil {
		return answer{}, err
	}
	path := fmt.Sprintf("/slurm/v0.0.%d/%s", version, what)
	if since > 0 {
		path += "?update_time=" + strconv.FormatInt(since, 10)
	}
	a, err := c.exchange(ctx, http.MethodGet, path, nil, func(r io.Reader) (answer, error) { return decode(r, what, each) })
	var no *apiError
	switch {
	case err == nil && !a.present:
		return a, &strangeError{fmt.Sprintf("%s answered GET %s without %q: what answers there is not slurmrestd", c.where(), path, what)}
	case errors.As(err, &no) && no.status == http.StatusNotFound:
		c.forgetVersion()
	case errors.As(err, &no) && no.number() == 1900: // SLURM_NO_CHANGE_IN_DATA
		return a, errUnchanged
	}
	return a, err
}

// call is a request about one job. into may have a use for the answer.
func (c *client) call(ctx context.Context, method, path string, body any) (answer, error) {
	version, err := c.agree(ctx)
	if err != nil {
		return answer{}, err
	}
	var b []byte
	if body != nil {
		if b, err = json.Marshal(body); err != nil {
			return answer{}, fmt.Errorf("encode %s: %w", path, err)
		}
	}
	return c.exchange(ctx, method, fmt.Sprintf("/slurm/v0.0.%d/%s", version, path), b, func(r io.Reader) (answer, error) { return decode[struct{}](r, "", nil) })
}

// agree returns the newest version that slurmrestd and this driver know.
func (c *client) agree(ctx context.Context) (int, error) {
	c.mu.Lock()
	v := c.version
	c.mu.Unlock()
	if v != 0 {
		return v, nil
	}
	v, err := c.negotiate(ctx)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = v
	return v, nil
}

func (c *client) forgetVersion() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = 0
}

// said is what is known of the other side, for the inventory.
func (c *client) said() (release string, version int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.release, c.version
}

var versionPath = regexp.MustCompile(`^/slurm/v0\.0\.([0-9]{1,4})/job/submit/?$`)

// negotiate reads which versions slurmrestd describes; one that describes
// nothing is asked for each version, the newest first.
func (c *client) negotiate(ctx context.Context) (int, error) {
	if c.cfg.APIVersion != "" {
		var v int
		_, err := fmt.Sscanf(c.cfg.APIVersion, "v0.0.%d", &v)
		return v, err // checked by Config
	}
	var theirs []int
	_, err := c.exchange(ctx, http.MethodGet, "/openapi/v3", nil, func(r io.Reader) (a answer, err error) {
		theirs, err = described(io.LimitReader(r, maxSchema))
		return a, err
	})
	var no *apiError
	if errors.As(err, &no) && no.status == http.StatusNotFound {
		return c.probe(ctx)
	}
	if err != nil {
		return 0, err
	}
	best := 0
	for _, v := range theirs {
		if v >= oldest && v <= newest {
			best = max(best, v)
		}
	}
	if best == 0 {
		return 0, &strangeError{fmt.Sprintf("%s speaks versions %v of the interface, this driver v0.0.%d to v0.0.%d: start slurmrestd with one of them (-s openapi/v0.0.%d)", c.where(), versions(theirs), oldest, newest, oldest)}
	}
	return best, nil
}

func versions(vs []int) []string {
	out := []string{}
	for _, v := range vs {
		out = append(out, fmt.Sprintf("v0.0.%d", v))
	}
	return out
}

func (c *client) probe(ctx context.Context) (int, error) {
	for v := newest; v >= oldest; v-- {
		_, err := c.exchange(ctx, http.MethodGet, fmt.Sprintf("/slurm/v0.0.%d/ping", v), nil, func(r io.Reader) (answer, error) { return decode[struct{}](r, "", nil) })
		var no *apiError
		switch {
		case err == nil, errors.As(err, &no) && no.status != http.StatusNotFound:
			return v, nil // it is known, even if slurmctld does not answer now
		case !errors.As(err, &no):
			return 0, err
		}
	}
	return 0, &strangeError{fmt.Sprintf("%s knows no version of the interface from v0.0.%d to v0.0.%d", c.where(), oldest, newest)}
}

// described reads the versions from an OpenAPI document, which is large: only
// the names of its paths are kept.
func described(r io.Reader) ([]int, error) {
	var paths pathNames
	var doc struct {
		Paths *pathNames `json:"paths"`
	}
	doc.Paths = &paths
	if err := json.NewDecoder(r).Decode(&doc); err != nil {
		return nil, cut(err)
	}
	if doc.Paths == nil {
		return nil, nil
	}
	return *doc.Paths, nil
}

type pathNames []int

func (p *pathNames) UnmarshalJSON(b []byte) error {
	var all map[string]json.RawMessage
	*p = nil
	if err := json.Unmarshal(b, &all); err != nil {
		return skipped(err)
	}
	for path := range all {
		if m := versionPath.FindStringSubmatch(path); m != nil {
			v, _ := strconv.Atoi(m[1]) // four digits
			*p = append(*p, v)
		}
	}
	return nil
}

// where names slurmrestd for an operator.
func (c *client) where() string { return "slurmrestd at " + c.cfg.URL }

// secret returns the token: that of the configuration, or what its file holds
// now. Whoever renews the file needs to tell nobody.
func (c *client) secret() (string, error) {
	if c.cfg.TokenFile == "" {
		return c.cfg.Token, nil
	}
	st, err := os.Stat(c.cfg.TokenFile)
	if err != nil {
		return "", &authError{fmt.Sprintf("token_file %s cannot be read: %v; write a token of user %q there (scontrol token)", c.cfg.TokenFile, err, c.cfg.User)}
	}
	c.mu.Lock()
	held, read := c.token, c.read
	c.mu.Unlock()
	if held != "" && st.ModTime().Equal(read) {
		return held, nil
	}
	b, err := os.ReadFile(c.cfg.TokenFile)
	if err != nil {
		return "", &authError{fmt.Sprintf("token_file %s cannot be read: %v", c.cfg.TokenFile, err)}
	}
	token := strings.TrimPrefix(strings.TrimSpace(string(b)), "SLURM_JWT=")
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", &authError{fmt.Sprintf("token_file %s does not hold one token: write what scontrol token prints there", c.cfg.TokenFile)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.read = token, st.ModTime()
	return token, nil
}

// claims of a token, not verified: only Slurm has the key.
type claims struct {
	Expires int64  `json:"exp"`
	User    string `json:"sun"`
}

func readClaims(token string) (c claims, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, false
	}
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	return c, err == nil && json.Unmarshal(b, &c) == nil
}

// suspect says what is wrong with the token as far as it can be seen from
// here, "" if nothing is.
func (c *client) suspect(now time.Time) string {
	token, err := c.secret()
	if err != nil {
		return err.Error()
	}
	if token == "" {
		return ""
	}
	again := fmt.Sprintf("make a new one with: scontrol token username=%s lifespan=SECONDS", c.cfg.User)
	if c.cfg.TokenFile != "" {
		again += " > " + c.cfg.TokenFile
	}
	t, ok := readClaims(token)
	switch {
	case !ok:
		return "the token is not a JWT; " + again
	case t.Expires > 0 && t.Expires <= now.Unix():
		return fmt.Sprintf("the token of user %q expired at %s; %s", c.cfg.User, time.Unix(t.Expires, 0).UTC().Format(time.RFC3339), again)
	case t.User != "" && t.User != c.cfg.User:
		return fmt.Sprintf("the token is of user %q, not of %q as user says; %s", t.User, c.cfg.User, again)
	}
	return ""
}

func (c *client) refused(what string) string {
	why := c.suspect(time.Now())
	if why == "" {
		why = fmt.Sprintf("the token of user %q is not one it accepts; make a new one with: scontrol token username=%s", c.cfg.User, c.cfg.User)
	}
	return fmt.Sprintf("%s refuses the sign-in (%s): %s", c.where(), what, why)
}

// unreachableError is a request without an answer: whether it was done is not known.
type unreachableError struct{ text string }

func (e *unreachableError) Error() string { return e.text }

// unreachable says what to do about a request that got no answer.
func (c *client) unreachable(method, path string, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	hint := "is slurmrestd running, and is url right?"
	switch text := err.Error(); {
	case isTimeout(err):
		return &unreachableError{fmt.Sprintf("%s did not answer %s %s within %v: slurmctld or the network may be stuck; try scontrol ping at the cluster", c.where(), method, path, c.cfg.timeout())}
	case errors.As(err, &unknown):
		hint = "its certificate is of an authority this driver does not know: name that authority's certificate in ca_file"
	case errors.As(err, &host), errors.As(err, &invalid):
		hint = "its certificate is not valid for this url"
	case errors.As(err, &record), strings.Contains(text, "HTTP response to HTTPS client"):
		hint = "it does not speak TLS: write http:// in url, or a TLS proxy before it"
	case strings.Contains(text, "malformed HTTP"):
		hint = "it does not speak plain HTTP; if it speaks TLS, write https:// in url"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		hint = "the connection was closed before an answer came"
	case errors.Is(err, os.ErrPermission):
		hint = "this process may not open the socket"
	}
	return &unreachableError{fmt.Sprintf("%s does not answer %s: %v; %s", c.where(), path, err, hint)}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

// explain turns an error into a sentence an operator can act on. slurmrestd of
// v0.0.38 says only "Unspecified error" both when slurmctld is down and when it
// refuses the token, so the token is looked at from here.
func (c *client) explain(err error) string {
	var no *apiError
	if !errors.As(err, &no) {
		return err.Error()
	}
	switch n := no.number(); {
	case n == 1007 || n >= 6000 && n < 7000: // SLURM_PROTOCOL_AUTHENTICATION_ERROR, ESLURM_AUTH_*
		return c.refused(no.Error())
	case n == 0 || n < 2000 || n >= 5000 && n < 6000:
		if why := c.suspect(time.Now()); why != "" {
			return fmt.Sprintf("%s gets no answer for us from slurmctld (%v): %s", c.where(), no, why)
		}
		return fmt.Sprintf("%s answers, but slurmctld does not answer it or refuses the token of user %q (%v): look with scontrol ping at the cluster, and if it is up, make a new token with: scontrol token username=%s", c.where(), c.cfg.User, no, c.cfg.User)
	}
	return c.where() + ": " + no.Error()
}
