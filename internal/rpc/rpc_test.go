package rpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"yunhe.dev/yunhe/gen/yunhe/adapter/v1/adapterv1connect"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/gen/yunhe/jobs/v1/jobsv1connect"
	optionsv1 "yunhe.dev/yunhe/gen/yunhe/options/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/gen/yunhe/registry/v1/registryv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/rpc"
)

// gate knows the keys "writer" and "reader", and remembers what was audited.
type gate struct {
	mu sync.Mutex // guards audits

	audits []string
}

func (g *gate) Authenticate(_ context.Context, token string) (core.Caller, error) {
	perms := map[string]map[string]bool{"writer": {"registry.read": true, "registry.write": true, "jobs.read": true}, "reader": {"registry.read": true, "jobs.read": true}}[token]
	if perms == nil {
		return core.Caller{}, fault.New(fault.Unauthenticated, "the key is not valid")
	}
	return core.Caller{UserID: token, TenantID: "t", Permissions: perms}, nil
}

func (g *gate) Audit(_ context.Context, a core.Audit, subject, outcome string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.audits = append(g.audits, a.Method+" "+subject+" "+outcome)
	return nil
}

func (g *gate) take() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := g.audits
	g.audits = nil
	return out
}

// centers answers GetCenter and CreateCenter with the fault the ID asks for.
type centers struct {
	registryv1connect.UnimplementedRegistryServiceHandler
}

func outcome(id string) error {
	switch {
	case id == "panic":
		panic("the secret of the panic")
	case id == "secret":
		return errors.New("the secret of the database")
	case id == "fields":
		return fault.Fields(fault.Field{Path: "center.name", Problem: "is required"}, fault.Field{Path: "center.region", Problem: "must be less than 64 bytes, got 99"})
	case id == "gone":
		return context.Canceled
	case id == "slow":
		return fmt.Errorf("read: %w", context.DeadlineExceeded)
	}
	for k := fault.Internal; k <= fault.TooLarge; k++ {
		if id == strings.ToLower(k.String()) {
			return fault.New(k, "the message of %s", k)
		}
	}
	return nil
}

func (centers) GetCenter(_ context.Context, r *registryv1.GetCenterRequest) (*registryv1.Center, error) {
	return &registryv1.Center{AiCenterId: r.AiCenterId, Name: strings.Repeat("n", 2000)}, outcome(r.AiCenterId)
}

func (centers) CreateCenter(_ context.Context, r *registryv1.CreateCenterRequest) (*registryv1.Center, error) {
	return r.Center, outcome(r.GetCenter().GetAiCenterId())
}

func (centers) ListCenters(_ context.Context, r *registryv1.ListCentersRequest) (*registryv1.ListCentersResponse, error) {
	return &registryv1.ListCentersResponse{NextPageToken: fmt.Sprint(r.PageSize, r.Region)}, nil
}

type jobs struct {
	jobsv1connect.UnimplementedJobServiceHandler
}

func (jobs) WatchJobs(_ context.Context, r *jobsv1.WatchJobsRequest, s *connect.ServerStream[jobsv1.WatchJobsResponse]) error {
	for i := range 3 {
		if err := s.Send(&jobsv1.WatchJobsResponse{Job: &jobsv1.Job{JobId: r.JobId, Version: int64(i)}}); err != nil {
			return err
		}
	}
	return outcome(r.JobId)
}

// world is a server with its surroundings.
type world struct {
	*httptest.Server
	gate *gate
	log  *bytes.Buffer
	reg  *prometheus.Registry
	srv  *rpc.Server
}

func serve(t *testing.T, cfg rpc.Config) *world {
	t.Helper()
	w := &world{gate: &gate{}, log: &bytes.Buffer{}, reg: prometheus.NewRegistry()}
	w.srv = rpc.New(cfg, w.gate, w.reg, slog.New(slog.NewTextHandler(&lockedWriter{w: w.log}, nil)))
	w.srv.Service(registryv1connect.NewRegistryServiceHandler(centers{}, w.srv.Options()...))
	w.srv.Service(jobsv1connect.NewJobServiceHandler(jobs{}, w.srv.Options()...))
	raw := func(rw http.ResponseWriter, r *http.Request) error {
		if err := rpc.OnlyParams(r, "known"); err != nil {
			return err
		}
		if err := outcome(r.PathValue("id")); err != nil {
			return err
		}
		rpc.WriteEnvelope(rw, r.PathValue("id"))
		return nil
	}
	w.srv.Raw("GET /v1/raw/{id}", "registry.read", raw)
	w.srv.Raw("GET /v1/open/{id}", "public", raw)
	w.srv.RawErrors("POST /openapi/v1/trainjob/{id}", "registry.write", raw, rpc.FailEnvelope)
	w.srv.Handle("GET /openapi.json", rpc.OpenAPI())
	w.srv.Handle("/", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("page")) }))
	h, err := w.srv.Handler()
	if err != nil {
		t.Fatal(err)
	}
	w.Server = httptest.NewUnstartedServer(h)
	w.Config.Protocols = new(http.Protocols)
	w.Config.Protocols.SetHTTP1(true)
	w.Config.Protocols.SetUnencryptedHTTP2(true)
	w.Start()
	t.Cleanup(w.Close)
	return w
}

type lockedWriter struct {
	mu sync.Mutex // guards w

	w io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

type body struct {
	Code, Message, ErrorMsg string
	Status                  int
	Data                    any
	Details                 []struct{ Field, Problem string }
}

// do sends a REST request as token ("" for nobody).
func (w *world) do(t *testing.T, method, path, token, in string, header ...string) (*http.Response, string, body) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.URL+path, strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := w.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }() // read to the end
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var b body
	if res.StatusCode >= 400 {
		if err := json.Unmarshal(text, &b); err != nil {
			t.Errorf("%s %s answered %d %q, which is not JSON", method, path, res.StatusCode, text)
		}
	}
	return res, string(text), b
}

// h2c is a client that speaks HTTP/2 without TLS, as gRPC does.
func h2c() *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: tr}
}

func as(token string) connect.ClientOption {
	return connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			r.Header().Set("Authorization", "Bearer "+token)
			return next(ctx, r)
		}
	}))
}

// TestKinds: each kind of fault has one code in gRPC and Connect and one
// status in REST, with the same message.
func TestKinds(t *testing.T) {
	t.Parallel()
	w := serve(t, rpc.Config{})
	protocols := map[string]registryv1connect.RegistryServiceClient{
		"grpc":     registryv1connect.NewRegistryServiceClient(h2c(), w.URL, as("writer"), connect.WithGRPC()),
		"grpc-web": registryv1connect.NewRegistryServiceClient(w.Client(), w.URL, as("writer"), connect.WithGRPCWeb()),
		"connect":  registryv1connect.NewRegistryServiceClient(w.Client(), w.URL, as("writer")),
		"json":     registryv1connect.NewRegistryServiceClient(w.Client(), w.URL, as("writer"), connect.WithProtoJSON()),
	}
	for _, x := range []struct {
		id     string
		code   connect.Code
		status int
		name   string
	}{
		{"invalid_argument", connect.CodeInvalidArgument, 400, "INVALID_ARGUMENT"},
		{"fields", connect.CodeInvalidArgument, 400, "INVALID_ARGUMENT"},
		{"not_found", connect.CodeNotFound, 404, "NOT_FOUND"},
		{"already_exists", connect.CodeAlreadyExists, 409, "ALREADY_EXISTS"},
		{"conflict", connect.CodeAborted, 409, "CONFLICT"},
		{"permission_denied", connect.CodePermissionDenied, 403, "PERMISSION_DENIED"},
		{"unauthenticated", connect.CodeUnauthenticated, 401, "UNAUTHENTICATED"},
		{"resource_exhausted", connect.CodeResourceExhausted, 429, "RESOURCE_EXHAUSTED"},
		{"unavailable", connect.CodeUnavailable, 503, "UNAVAILABLE"},
		{"unimplemented", connect.CodeUnimplemented, 501, "UNIMPLEMENTED"},
		{"canceled", connect.CodeCanceled, 503, "CANCELED"},
		{"gone", connect.CodeCanceled, 503, "CANCELED"},
		{"slow", connect.CodeUnavailable, 503, "UNAVAILABLE"},
		{"internal", connect.CodeInternal, 500, "INTERNAL"},
		{"secret", connect.CodeInternal, 500, "INTERNAL"},
		{"panic", connect.CodeInternal, 500, "INTERNAL"},
	} {
		t.Run(x.id, func(t *testing.T) {
			for name, client := range protocols {
				_, err := client.GetCenter(t.Context(), &registryv1.GetCenterRequest{AiCenterId: x.id})
				if connect.CodeOf(err) != x.code {
					t.Errorf("%s answered %v, want %v", name, err, x.code)
				}
				checkText(t, name, x.id, err.Error())
			}
			for _, path := range []string{"/v1/centers/" + x.id, "/v1/raw/" + x.id} {
				res, text, b := w.do(t, "GET", path, "writer", "")
				if res.StatusCode != x.status || b.Code != x.name || b.Message == "" || !strings.Contains(text, `"details":[`) {
					t.Errorf("%s answered %d %s, want %d %s", path, res.StatusCode, text, x.status, x.name)
				}
				checkText(t, path, x.id, b.Message)
				if x.id == "fields" && (len(b.Details) != 2 || b.Details[0].Field != "center.name" || b.Details[1].Problem != "must be less than 64 bytes, got 99") {
					t.Errorf("%s has the details %+v, want both fields", path, b.Details)
				}
			}
			res, text, b := w.do(t, "POST", "/openapi/v1/trainjob/"+x.id, "writer", "")
			if res.StatusCode != x.status || b.Status != x.status || b.Code != x.name || b.ErrorMsg == "" || len([]rune(b.ErrorMsg)) > 128 || !strings.Contains(text, `"data":null`) {
				t.Errorf("annex A answered %d %s, want %d %s", res.StatusCode, text, x.status, x.name)
			}
			checkText(t, "annex A", x.id, b.ErrorMsg)
		})
	}
	if res, text, b := w.do(t, "GET", "/v1/raw/too_large", "writer", ""); res.StatusCode != 413 || b.Code != "TOO_LARGE" {
		t.Errorf("too large answered %d %s", res.StatusCode, text)
	}
	if res, text, b := w.do(t, "POST", "/openapi/v1/trainjob/too_large", "writer", ""); res.StatusCode != 400 || b.Status != 400 {
		t.Errorf("too large in annex A, which has no 413, answered %d %s", res.StatusCode, text)
	}
}

// checkText: faults keep their message, the rest is a reference only.
func checkText(t *testing.T, how, id, msg string) {
	t.Helper()
	switch id {
	case "internal", "secret", "panic":
		if !strings.Contains(msg, "err_") || strings.Contains(msg, "secret") || strings.Contains(msg, "the message") {
			t.Errorf("%s: an internal error reads %q, want a reference and nothing else", how, msg)
		}
	case "gone", "slow", "fields":
		if strings.Contains(msg, "context") {
			t.Errorf("%s: %q speaks of a context", how, msg)
		}
	default:
		if want := "the message of " + strings.ToUpper(id); !strings.Contains(msg, want) {
			t.Errorf("%s: the message is %q, want %q", how, msg, want)
		}
	}
}

// TestReference: the reference a caller gets is in the log, with the cause.
func TestReference(t *testing.T) {
	t.Parallel()
	w := serve(t, rpc.Config{})
	for _, id := range []string{"secret", "panic"} {
		_, _, b := w.do(t, "GET", "/v1/centers/"+id, "writer", "")
		ref := b.Message[strings.Index(b.Message, "err_"):]
		if log := w.log.String(); !strings.Contains(log, ref) || !strings.Contains(log, "the secret of the ") || len(ref) != 30 {
			t.Errorf("%s: the log does not have %q with its cause:\n%s", id, ref, log)
		}
	}
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	w := serve(t, rpc.Config{})
	for name, header := range map[string]string{"none": "", "no token": "Bearer", "blank": "Bearer   ", "garbage": "Bearer x", "basic": "Basic d3JpdGVy", "no scheme": "writer", "two": "Bearer writer writer"} {
		for _, path := range []string{"/v1/centers/a", "/v1/raw/a", "/v1/centers"} {
			if res, text, b := w.do(t, "GET", path, "", "", "Authorization", header); res.StatusCode != 401 || b.Code != "UNAUTHENTICATED" {
				t.Errorf("%s: %s answered %d %s, want 401", name, path, res.StatusCode, text)
			}
		}
		if res, text, b := w.do(t, "POST", "/openapi/v1/trainjob/a", "", "", "Authorization", header); res.StatusCode != 401 || b.Status != 401 {
			t.Errorf("%s: annex A answered %d %s, want 401", name, res.StatusCode, text)
		}
	}
	for _, header := range []string{"Bearer reader", "bearer reader", "BEARER  reader"} {
		if res, text, _ := w.do(t, "GET", "/v1/centers/a", "", "", "Authorization", header); res.StatusCode != 200 {
			t.Errorf("%q answered %d %s, want 200: the scheme's case does not matter", header, res.StatusCode, text)
		}
	}
	if res, text, _ := w.do(t, "GET", "/v1/open/a", "", ""); res.StatusCode != 200 {
		t.Errorf("a public route answered %d %s", res.StatusCode, text)
	}
	if got := w.gate.take(); len(got) != 0 {
		t.Errorf("audited %v, want nothing: nobody was there", got)
	}
}

func TestPermissionsAndAudit(t *testing.T) {
	t.Parallel()
	w := serve(t, rpc.Config{})
	const create = "yunhe.registry.v1.RegistryService/CreateCenter "
	for _, x := range []struct {
		name, method, path, token, body string
		status                          int
		audit                           []string
	}{
		{"reading leaves no event", "GET", "/v1/centers/a", "reader", "", 200, nil},
		{"a write that succeeds", "POST", "/v1/centers", "writer", `{"aiCenterId":"a"}`, 200, []string{create + "a OK"}},
		{"a write that fails", "POST", "/v1/centers", "writer", `{"aiCenterId":"conflict"}`, 409, []string{create + "conflict CONFLICT"}},
		{"a write that breaks", "POST", "/v1/centers", "writer", `{"aiCenterId":"panic"}`, 500, []string{create + "panic INTERNAL"}},
		{"a write that is denied", "POST", "/v1/centers", "reader", `{"aiCenterId":"a"}`, 403, []string{create + " PERMISSION_DENIED"}},
		{"a raw write", "POST", "/openapi/v1/trainjob/a", "writer", "", 200, []string{"POST /openapi/v1/trainjob/{id} a OK"}},
		{"a raw write that is denied", "POST", "/openapi/v1/trainjob/a", "reader", "", 403, []string{"POST /openapi/v1/trainjob/{id}  PERMISSION_DENIED"}},
	} {
		res, text, b := w.do(t, x.method, x.path, x.token, x.body)
		if got := w.gate.take(); res.StatusCode != x.status || !slices.Equal(got, x.audit) {
			t.Errorf("%s: answered %d %s and audited %q, want %d and %q", x.name, res.StatusCode, text, got, x.status, x.audit)
		}
		if x.status == 403 && !strings.Contains(b.Message+b.ErrorMsg, "registry.write") {
			t.Errorf("%s: %s does not name the permission", x.name, text)
		}
	}
}

// TestWrongRequests: what never reaches a handler.
func TestWrongRequests(t *testing.T) {
	t.Parallel()
	w := serve(t, rpc.Config{})
	big := `{"name":"` + strings.Repeat("a", rpc.MaxBody) + `"}`
	const form = "application/x-www-form-urlencoded"
	for _, x := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		words                    []string
	}{
		{"unknown parameter", "GET", "/v1/centers?nosuch=1", "", nil, 400, []string{"nosuch"}},
		{"parameter of a wrong type", "GET", "/v1/centers?pageSize=many", "", nil, 400, []string{`"field":"page_size"`}},
		{"parameter over its range", "GET", "/v1/centers?pageSize=3000000000", "", nil, 400, []string{`"field":"page_size"`, "3000000000"}},
		{"broken escape", "GET", "/v1/centers?region=%zz", "", nil, 400, []string{"query"}},
		{"parameter that is not UTF-8", "GET", "/v1/centers?region=%ff", "", nil, 400, []string{"region", "UTF-8"}},
		{"zero byte in a parameter", "GET", "/v1/centers?region=%00", "", nil, 400, []string{"region", "zero"}},
		{"path that is not UTF-8", "GET", "/v1/centers/%ff", "", nil, 400, []string{"path", "UTF-8"}},
		{"zero byte in a path", "GET", "/v1/centers/%00", "", nil, 400, []string{"zero"}},
		{"raw path that is not UTF-8", "GET", "/v1/raw/%ff", "", nil, 400, []string{"path", "UTF-8"}},
		{"raw unknown parameter", "GET", "/v1/raw/a?nosuch=1", "", nil, 400, []string{"nosuch", "known"}},
		{"raw broken escape", "GET", "/v1/raw/a?known=%zz", "", nil, 400, []string{"query"}},
		{"raw zero byte", "GET", "/v1/raw/a?known=%00", "", nil, 400, []string{"known"}},
		{"unknown field", "POST", "/v1/centers", `{"nosuch":1}`, nil, 400, []string{"nosuch"}},
		{"wrong type", "POST", "/v1/centers", `{"name":7}`, nil, 400, []string{"name", "string", "7"}},
		{"wrong type inside", "POST", "/v1/centers", `{"geometry":{"latitude":"north"}}`, nil, 400, []string{"latitude"}},
		{"wrong enum", "POST", "/v1/centers", `{"status":"CENTER_STATUS_NONE"}`, nil, 400, []string{"status", "CENTER_STATUS_NONE"}},
		{"too large a number", "POST", "/v1/centers", `{"securityGrade":9223372036854775808}`, nil, 400, []string{"securityGrade"}},
		{"not UTF-8", "POST", "/v1/centers", "{\"name\":\"\xff\"}", nil, 400, []string{"UTF-8"}},
		{"a number that is not UTF-8", "POST", "/v1/centers", "{\"securityGrade\":9\xe00}", nil, 400, []string{"UTF-8"}},
		{"cut short within a character", "POST", "/v1/centers", "{\"securityGrade\":9\xe8\xbf", nil, 400, []string{"UTF-8"}},
		{"zero byte", "POST", "/v1/centers", `{"labels":{"k":"a\u0000"}}`, nil, 400, []string{"center.labels"}},
		{"zero byte in a key", "POST", "/v1/centers", `{"labels":{"a\u0000":"v"}}`, nil, 400, []string{"center.labels"}},
		{"cut short", "POST", "/v1/centers", `{"name":`, nil, 400, nil},
		{"a list", "POST", "/v1/centers", `[]`, nil, 400, nil},
		{"two values", "POST", "/v1/centers", `{}{}`, nil, 400, nil},
		{"no route", "GET", "/v1/nosuch", "", nil, 404, []string{"/v1/nosuch", "/openapi.json"}},
		{"no annex route", "GET", "/openapi/v1/nosuch", "", nil, 404, []string{"/openapi/v1/nosuch"}},
		{"annex route with another verb", "GET", "/openapi/v1/trainjob/a", "", nil, 404, []string{"GET"}},
		{"no scheduler route", "GET", "/scheduler/nosuch", "", nil, 404, []string{"/scheduler/nosuch"}},
		{"no service", "POST", "/yunhe.none.v1.NoService/Call", "", nil, 404, []string{"NoService"}},
		{"no method", "POST", "/yunhe.registry.v1.RegistryService/NoMethod", "{}", nil, 404, []string{"NoMethod"}},
		{"another verb", "DELETE", "/v1/centers", "", nil, 405, []string{"DELETE"}},
		{"another type", "POST", "/v1/centers", `<a/>`, []string{"Content-Type", "text/xml"}, 415, []string{"application/json"}},
		{"over the limit", "POST", "/v1/centers", big, nil, 413, []string{"16777216"}},
		{"curl's form type carries JSON", "POST", "/v1/centers", `{"aiCenterId":"a"}`, []string{"Content-Type", form}, 200, nil},
		{"both spellings", "POST", "/v1/centers", `{"ai_center_id":"a"}`, nil, 200, nil},
		{"within the limit", "POST", "/v1/centers", `{"name":"` + strings.Repeat("a", rpc.MaxBody-1024) + `"}`, nil, 200, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			res, text, b := w.do(t, x.method, x.path, "writer", x.body, x.header...)
			if res.StatusCode != x.status {
				t.Fatalf("answered %d %.300s, want %d", res.StatusCode, text, x.status)
			}
			if x.status == 200 {
				return
			}
			if ct := res.Header.Get("Content-Type"); ct != "application/json" || b.Code == "" || b.Message+b.ErrorMsg == "" {
				t.Errorf("answered %s %.300s, want JSON with code and message", ct, text)
			}
			for _, word := range x.words {
				if !strings.Contains(text, word) {
					t.Errorf("answered %.300s, want it to name %q", text, word)
				}
			}
		})
	}
	t.Run("over the limit, length unknown", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", w.URL+"/v1/centers", io.MultiReader(strings.NewReader(big)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer writer")
		res, err := w.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close() // only the status matters
		if res.StatusCode != 413 {
			t.Errorf("answered %d, want 413", res.StatusCode)
		}
	})
	if strings.Contains(w.log.String(), "level=ERROR") {
		t.Errorf("a caller's mistakes are not errors of the operator's:\n%s", w.log)
	}
}

// TestStream: streams end with the code their handler gave, or the one of the
// request that was wrong.
func TestStream(t *testing.T) {
	t.Parallel()
	w := serve(t, rpc.Config{})
	for name, client := range map[string]jobsv1connect.JobServiceClient{
		"grpc":    jobsv1connect.NewJobServiceClient(h2c(), w.URL, connect.WithGRPC(), connect.WithInterceptors(bearer("reader"))),
		"connect": jobsv1connect.NewJobServiceClient(w.Client(), w.URL, connect.WithInterceptors(bearer("reader"))),
	} {
		for id, code := range map[string]connect.Code{"fine": 0, "not_found": connect.CodeNotFound, "panic": connect.CodeInternal, "a\x00b": connect.CodeInvalidArgument} {
			s, err := client.WatchJobs(t.Context(), &jobsv1.WatchJobsRequest{JobId: id})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for s.Receive() {
				n++
			}
			if err := s.Err(); err != nil && connect.CodeOf(err) != code || err == nil && code != 0 {
				t.Errorf("%s: watching %q ended with %v, want %v", name, id, err, code)
			}
			if want := map[bool]int{true: 0, false: 3}[strings.Contains(id, "\x00")]; n != want {
				t.Errorf("%s: watching %q sent %d messages, want %d", name, id, n, want)
			}
			_ = s.Close() // read to the end
		}
	}
	bad := jobsv1connect.NewJobServiceClient(w.Client(), w.URL)
	s, err := bad.WatchJobs(t.Context(), &jobsv1.WatchJobsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Receive() || connect.CodeOf(s.Err()) != connect.CodeUnauthenticated {
		t.Errorf("watching without a key ended with %v, want unauthenticated", s.Err())
	}
	_ = s.Close() // it has ended
}

type bearer string

func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }
func (b bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, s connect.Spec) connect.StreamingClientConn {
		c := next(ctx, s)
		c.RequestHeader().Set("Authorization", "Bearer "+string(b))
		return c
	}
}

// TestOnePort: the same server answers gRPC over HTTP/2 and REST over both.
func TestOnePort(t *testing.T) {
	t.Parallel()
	w := serve(t, rpc.Config{})
	for name, client := range map[string]*http.Client{"HTTP/1.1": w.Client(), "HTTP/2.0": h2c()} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", w.URL+"/v1/centers/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer reader")
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body) // an error shows in the text
		_ = res.Body.Close()            // read to the end
		if res.StatusCode != 200 || res.Proto != name || !strings.Contains(string(text), `"aiCenterId":"a"`) {
			t.Errorf("%s answered %s %d %.100s", name, res.Proto, res.StatusCode, text)
		}
	}
	for path, want := range map[string]string{"/": "page", "/jobs/x": "page", "/healthz": "ok\n"} {
		res, text, _ := w.do(t, "GET", path, "", "")
		if text != want {
			t.Errorf("%s answered %q, want %q", path, text, want)
		}
		for k, v := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer"} {
			if res.Header.Get(k) != v {
				t.Errorf("%s has %s %q, want %q", path, k, res.Header.Get(k), v)
			}
		}
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	ready := fault.New(fault.Unavailable, "the bus is not connected")
	for _, open := range []bool{false, true} {
		srv := rpc.New(rpc.Config{OpenStatus: open, Ready: func(context.Context) error { return ready }}, &gate{}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		h, err := srv.Handler()
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			for remote, local := range map[string]bool{"127.0.0.1:9": true, "[::1]:9": true, "192.0.2.1:9": false, "[2001:db8::1]:9": false, "": false} {
				req := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
				req.RemoteAddr = remote
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, req)
				want := 200
				if path == "/readyz" {
					want = 503
				}
				if !local && !open {
					want = 403
				}
				if rec.Code != want {
					t.Errorf("open=%v: %s from %q answered %d %s, want %d", open, path, remote, rec.Code, rec.Body, want)
				}
			}
		}
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	w := serve(t, rpc.Config{})
	w.do(t, "GET", "/v1/centers/a", "reader", "")
	w.do(t, "GET", "/v1/centers/not_found", "reader", "")
	w.do(t, "GET", "/v1/raw/conflict", "reader", "")
	_, text, _ := w.do(t, "GET", "/metrics", "", "")
	for _, want := range []string{
		`yunhe_rpc_call_seconds_count{method="/yunhe.registry.v1.RegistryService/GetCenter",outcome="OK"} 1`,
		`yunhe_rpc_call_seconds_count{method="/yunhe.registry.v1.RegistryService/GetCenter",outcome="NOT_FOUND"} 1`,
		`yunhe_rpc_call_seconds_count{method="GET /v1/raw/{id}",outcome="CONFLICT"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// TestPermissionRequired: a service with a method that names no permission
// keeps the server from starting.
func TestPermissionRequired(t *testing.T) {
	t.Parallel()
	srv := rpc.New(rpc.Config{}, &gate{}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	srv.Service(adapterv1connect.NewDriverServiceHandler(adapterv1connect.UnimplementedDriverServiceHandler{}, srv.Options()...))
	if _, err := srv.Handler(); err == nil || !strings.Contains(err.Error(), "DriverService") || !strings.Contains(err.Error(), "permission") {
		t.Errorf("got %v, want an error that names the method without a permission", err)
	}
	srv = rpc.New(rpc.Config{}, &gate{}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	srv.Service("/yunhe.nosuch.v1.NoService/", http.NotFoundHandler())
	if _, err := srv.Handler(); err == nil || !strings.Contains(err.Error(), "NoService") {
		t.Errorf("got %v, want an error that names the unknown service", err)
	}
}

// TestOpenAPI: the description is one document that names every REST path of
// the contract and every path beside it, and refers to nothing it lacks.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	w := serve(t, rpc.Config{})
	res, text, _ := w.do(t, "GET", "/openapi.json", "", "")
	var doc struct {
		OpenAPI    string
		Paths      map[string]map[string]json.RawMessage
		Components struct{ Schemas map[string]json.RawMessage }
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil || res.StatusCode != 200 || !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Fatalf("answered %d, version %q, %v", res.StatusCode, doc.OpenAPI, err)
	}
	want := map[string]string{
		"/openapi/v1/trainjob": "post", "/openapi/v1/trainjob/{id}/stop": "post", "/openapi/v1/trainjob/{id}": "get",
		"/openapi/v1/trainjob/{id}/task/{task}/replica/{replica}/log": "get", "/scheduler/algorithm/{algorithmId}/score/{centerId}": "get",
		"/scheduler/evaluate/score/{centerId}": "get", "/v1/jobs/{id}/events": "get", "/v1/usage.csv": "get", "/v1/logs/{id}/{task}/{replica}": "get",
	}
	for _, d := range []protoreflect.FileDescriptor{jobsv1.File_yunhe_jobs_v1_jobs_proto, registryv1.File_yunhe_registry_v1_registry_proto} {
		for i := range d.Services().Len() {
			ms := d.Services().Get(i).Methods()
			for k := range ms.Len() {
				if p, _ := proto.GetExtension(ms.Get(k).Options(), optionsv1.E_Permission).(string); p == "" {
					t.Errorf("%s names no permission", ms.Get(k).FullName())
				}
				rule, _ := proto.GetExtension(ms.Get(k).Options(), annotations.E_Http).(*annotations.HttpRule)
				for verb, path := range map[string]string{"get": rule.GetGet(), "post": rule.GetPost(), "put": rule.GetPut(), "patch": rule.GetPatch(), "delete": rule.GetDelete()} {
					if path != "" && doc.Paths[path][verb] == nil {
						t.Errorf("the description lacks %s %s", verb, path)
					}
				}
			}
		}
	}
	for path, verb := range want {
		if doc.Paths[path][verb] == nil {
			t.Errorf("the description lacks %s %s; it has %v", verb, path, slices.Sorted(maps.Keys(doc.Paths)))
		}
	}
	const ref = `"$ref":"#/components/schemas/`
	for rest := text; ; {
		i := strings.Index(rest, ref)
		if i < 0 {
			break
		}
		rest = rest[i+len(ref):]
		if name := rest[:strings.IndexByte(rest, '"')]; doc.Components.Schemas[name] == nil {
			t.Errorf("the description refers to %s, which it lacks", name)
		}
	}
}
