// Package rpc serves the API: gRPC, gRPC-Web, Connect and REST on one port,
// from one contract and one handler each.
//
// What it keeps true:
//
//   - Every method names its permission in the contract; a server with a
//     method that does not, does not start.
//   - No call reaches a handler without a caller who has that permission.
//   - Faults become status codes here and nowhere else. An unclassified error
//     is logged with a reference, and the caller gets the reference only.
//   - Every call of a method whose permission ends in ".write" leaves an
//     audit event.
//   - Requests are bounded in size; unknown fields and parameters are errors.
package rpc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"connectrpc.com/vanguard"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	optionsv1 "yunhe.dev/yunhe/gen/yunhe/options/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// MaxBody is the most a request may carry.
const MaxBody = 16 << 20

// Gate decides who calls and remembers what they did.
type Gate interface {
	// Authenticate returns the caller a bearer token stands for, or
	// fault.Unauthenticated.
	Authenticate(ctx context.Context, token string) (core.Caller, error)
	// Audit stores an audit event of a call that ended with outcome, at once or when
	// that can be done.
	Audit(ctx context.Context, a core.Audit, subject, outcome string) error
}

// Config of the server.
type Config struct {
	// OpenStatus lets /healthz, /readyz and /metrics answer callers that are
	// not on this machine.
	OpenStatus bool
	// Ready reports whether the process can serve.
	Ready func(ctx context.Context) error
	// Troubles says what the process does without success though it can serve; nil:
	// nothing.
	Troubles func() []string
}

// Server gathers services and raw routes into one handler.
type Server struct {
	cfg   Config
	gate  Gate
	log   *slog.Logger
	mux   *http.ServeMux
	perms map[string]string // by procedure
	names []string
	svcs  []*vanguard.Service
	errs  []error
	calls *prometheus.HistogramVec
	reg   *prometheus.Registry
}

// New returns a server without services.
func New(cfg Config, gate Gate, reg *prometheus.Registry, log *slog.Logger) *Server {
	s := &Server{cfg: cfg, gate: gate, log: log.With("component", "rpc"), mux: http.NewServeMux(), perms: map[string]string{}, reg: reg}
	s.calls = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "yunhe_rpc_call_seconds", Help: "Time calls take, by method and outcome.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
	}, []string{"method", "outcome"})
	reg.MustRegister(s.calls)
	return s
}

// Options returns what every generated handler is built with.
func (s *Server) Options() []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithInterceptors(&interceptor{s}), connect.WithReadMaxBytes(MaxBody),
		connect.WithCodec(strictJSON{}), connect.WithCompressMinBytes(1024),
	}
}

// Service mounts a generated handler.
func (s *Server) Service(path string, h http.Handler) {
	name := strings.Trim(path, "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("service %s: %w", name, err))
		return
	}
	methods := d.(protoreflect.ServiceDescriptor).Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		p, _ := proto.GetExtension(m.Options(), optionsv1.E_Permission).(string)
		if p == "" {
			s.errs = append(s.errs, fmt.Errorf("method %s names no permission", m.FullName()))
		}
		s.perms["/"+name+"/"+string(m.Name())] = p
	}
	s.names = append(s.names, name)
	s.svcs = append(s.svcs, vanguard.NewService(path, h, vanguard.WithMaxMessageBufferBytes(MaxBody)))
}

// Raw mounts a handler that is not a generated method, for a caller with the
// permission ("public": anyone). A handler that fails returns the error
// before it has written anything.
func (s *Server) Raw(pattern, permission string, h func(w http.ResponseWriter, r *http.Request) error) {
	s.RawErrors(pattern, permission, h, s.writeError)
}

// RawErrors is Raw with another form of error answers.
func (s *Server) RawErrors(pattern, permission string, h func(w http.ResponseWriter, r *http.Request) error, fail func(w http.ResponseWriter, r *http.Request, err error)) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
		ctx, done, err := s.admit(r.Context(), pattern, permission, authorization(r), r.RemoteAddr)
		if err == nil {
			err = checkURL(r)
		}
		if err == nil {
			err = guard(func() error { return h(w, r.WithContext(ctx)) })
		}
		err = s.finish(ctx, pattern, start, err)
		done(r.PathValue("id"), err)
		if err != nil {
			fail(w, r, err)
		}
	})
}

// keyProtocol begins the protocol by which a page of a browser, which can send
// no header with a websocket, sends its key: base64url without padding.
const keyProtocol = "base64url.bearer.authorization.yunhe."

// authorization is the credentials of a request.
func authorization(r *http.Request) string {
	header := r.Header.Get("Authorization")
	if header != "" || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return header
	}
	for _, list := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(list, ",") {
			if key, ok := strings.CutPrefix(strings.TrimSpace(name), keyProtocol); ok {
				if b, err := base64.RawURLEncoding.DecodeString(key); err == nil {
					return "Bearer " + string(b)
				}
			}
		}
	}
	return ""
}

// checkURL refuses what no identifier and no parameter can hold: bytes that
// are not UTF-8, and zero.
func checkURL(r *http.Request) error {
	bad := func(s string) bool { return !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 }
	if bad(r.URL.Path) {
		return fault.Fields(fault.Field{Path: "path", Problem: "must be valid UTF-8 without zero bytes"})
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fault.Fields(fault.Field{Path: "query", Problem: "is not a query string: " + strings.ToValidUTF8(clip(err.Error(), 100), "")})
	}
	for name, values := range q {
		if bad(name) {
			return fault.Fields(fault.Field{Path: "query", Problem: "parameter names must be valid UTF-8 without zero bytes"})
		}
		if slices.ContainsFunc(values, bad) {
			return fault.Fields(fault.Field{Path: clip(name, 64), Problem: "must be valid UTF-8 without zero bytes"})
		}
	}
	return nil
}

// Handle mounts a handler that checks nothing: static files.
func (s *Server) Handle(pattern string, h http.Handler) { s.mux.Handle(pattern, h) }

// Handler returns the whole server. It fails if a method names no permission.
func (s *Server) Handler() (http.Handler, error) {
	if len(s.errs) > 0 {
		return nil, s.errs[0]
	}
	for _, r := range []func(grpcreflect.Namer, ...connect.HandlerOption) (string, http.Handler){
		func(n grpcreflect.Namer, o ...connect.HandlerOption) (string, http.Handler) {
			return grpcreflect.NewHandlerV1(grpcreflect.NewReflector(n), o...)
		},
	} {
		path, h := r(grpcreflect.NamerFunc(func() []string { return s.names }))
		s.mux.Handle(path, h)
	}
	t, err := vanguard.NewTranscoder(s.svcs, vanguard.WithCodec(func(r vanguard.TypeResolver) vanguard.Codec {
		c := vanguard.NewJSONCodec(r)
		c.UnmarshalOptions.DiscardUnknown = false
		c.MarshalOptions.EmitUnpopulated = true
		return c
	}))
	if err != nil {
		return nil, fmt.Errorf("mount services: %w", err)
	}
	for _, n := range s.names {
		s.mux.Handle("/"+n+"/", s.jsonErrors(t))
	}
	s.mux.Handle("/v1/", keepColons(s.normalize(t)))
	// What is below these is never a page of the console.
	for _, prefix := range []string{"/openapi/", "/scheduler/"} {
		s.mux.HandleFunc(prefix, func(w http.ResponseWriter, r *http.Request) { FailEnvelope(w, r, noSuchPath(r)) })
	}
	s.mux.Handle("GET /healthz", s.local(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }))
	s.mux.Handle("GET /readyz", s.local(s.ready))
	s.mux.Handle("GET /metrics", s.local(promhttp.HandlerFor(s.reg, promhttp.HandlerOpts{}).ServeHTTP))
	return s.limit(s.mux), nil
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if err := s.cfg.Ready(ctx); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	lines := []string{"ok"}
	if s.cfg.Troubles != nil {
		lines = append(lines, s.cfg.Troubles()...)
	}
	_, _ = io.WriteString(w, strings.Join(lines, "\n")+"\n") // who does not wait for it does without
}

// local limits a route to callers on this machine unless configured otherwise.
func (s *Server) local(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); !s.cfg.OpenStatus && (ip == nil || !ip.IsLoopback()) {
			s.writeError(w, r, fault.New(fault.Denied, "%s answers on this machine only; set listen.open_status to change that", r.URL.Path))
			return
		}
		h(w, r)
	})
}

func noSuchPath(r *http.Request) error {
	return fault.New(fault.NotFound, "there is no %s %s; the API is described at /openapi.json", r.Method, clip(r.URL.Path, 200))
}

// limit refuses what no handler is for and adds the headers every answer has.
func (s *Server) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		if _, known := s.perms[r.URL.Path]; !known && strings.HasPrefix(r.URL.Path, "/yunhe.") {
			s.writeError(w, r, noSuchPath(r))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// admit authenticates and authorizes a call. done writes its audit event.
func (s *Server) admit(ctx context.Context, method, permission, header, remote string) (context.Context, func(subject string, err error), error) {
	nothing := func(string, error) {}
	if permission == "public" {
		return ctx, nothing, nil
	}
	scheme, token, _ := strings.Cut(header, " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return ctx, nothing, fault.New(fault.Unauthenticated, `no credentials; send "Authorization: Bearer KEY"`)
	}
	caller, err := s.gate.Authenticate(ctx, token)
	if err != nil {
		return ctx, nothing, err
	}
	ctx = core.WithCaller(ctx, caller)
	audit := &core.Audit{Method: strings.TrimPrefix(method, "/"), Remote: remote}
	done := func(subject string, err error) {
		if audit.Done || !strings.HasSuffix(permission, ".write") {
			return
		}
		outcome := "OK"
		if err != nil {
			outcome = fault.KindOf(err).String()
		}
		actx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := s.gate.Audit(actx, *audit, subject, outcome); err != nil {
			s.log.Error("audit event not stored", "method", method, "user_id", caller.UserID, "subject", subject, "outcome", outcome, "error", err)
		}
	}
	if permission != "self" && !caller.Can(permission) {
		err := fault.New(fault.Denied, "user %s lacks the permission %s", caller.UserID, permission)
		done("", err)
		return ctx, nothing, err
	}
	return core.WithAudit(ctx, audit), done, nil
}

// finish counts and logs a call; an unclassified error becomes one that
// carries a reference to the log.
func (s *Server) finish(ctx context.Context, method string, start time.Time, err error) error {
	outcome := "OK"
	var refused *connect.Error
	if errors.As(err, &refused) {
		// The RPC library's own: a stream's malformed request, a caller that left.
		outcome = kinds[int(refused.Code())].String()
		s.log.Debug("call refused", "method", method, "kind", outcome, "error", err)
	} else if err != nil {
		kind := fault.KindOf(err)
		outcome = kind.String()
		if _, ok := fault.Message(err); !ok && kind == fault.Internal {
			ref := core.NewID("err")
			s.log.Error("call failed", "method", method, "reference", ref, "user_id", core.CallerFrom(ctx).UserID, "error", err)
			err = fault.New(fault.Internal, "internal error; the operator finds it under %s", ref)
		} else {
			s.log.Debug("call refused", "method", method, "kind", outcome, "error", err)
		}
	}
	s.calls.WithLabelValues(method, outcome).Observe(time.Since(start).Seconds())
	return err
}

// Text returns what a caller may read of an error that finish let through.
func Text(err error) string {
	if msg, ok := fault.Message(err); ok {
		return msg
	}
	switch fault.KindOf(err) {
	case fault.Canceled:
		return "the request was canceled"
	case fault.Unavailable:
		return "the request took too long"
	default:
		return err.Error() // finish has made it a reference
	}
}

// Status returns the HTTP status of an error's kind.
func Status(err error) int {
	switch fault.KindOf(err) {
	case fault.Invalid:
		return http.StatusBadRequest
	case fault.Unauthenticated:
		return http.StatusUnauthorized
	case fault.Denied:
		return http.StatusForbidden
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Exists, fault.Conflict:
		return http.StatusConflict
	case fault.TooLarge:
		return http.StatusRequestEntityTooLarge
	case fault.Exhausted:
		return http.StatusTooManyRequests
	case fault.Unavailable, fault.Canceled:
		return http.StatusServiceUnavailable
	case fault.Unimplemented:
		return http.StatusNotImplemented
	default:
		return http.StatusInternalServerError
	}
}

// errorBody is how REST answers an error.
type errorBody struct {
	Code    string       `json:"code"`
	Message string       `json:"message"`
	Details []fieldError `json:"details"`
}

type fieldError struct {
	Field   string `json:"field"`
	Problem string `json:"problem"`
}

func (s *Server) writeError(w http.ResponseWriter, _ *http.Request, err error) {
	body := errorBody{Code: fault.KindOf(err).String(), Message: Text(err), Details: []fieldError{}}
	for _, f := range fault.FieldsOf(err) {
		body.Details = append(body.Details, fieldError{f.Path, f.Problem})
	}
	writeJSON(w, Status(err), body)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // it is no HTML, and people copy links out of it
	_ = enc.Encode(v)        // the caller may be gone
}

// Methods returns every mounted procedure with its permission, sorted.
func (s *Server) Methods() []string {
	out := make([]string, 0, len(s.perms))
	for m, p := range s.perms {
		out = append(out, m+" "+p)
	}
	slices.Sort(out)
	return out
}

// strictJSON is Connect's JSON codec that refuses unknown fields.
type strictJSON struct{}

func (strictJSON) Name() string { return "json" }
func (strictJSON) Marshal(v any) ([]byte, error) {
	return protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(v.(proto.Message))
}
func (strictJSON) Unmarshal(b []byte, v any) error {
	if len(b) == 0 {
		return fmt.Errorf("zero-length payload is not a valid JSON object")
	}
	if err := protojson.Unmarshal(b, v.(proto.Message)); err != nil {
		_, text := explain(err.Error())
		return errors.New(text)
	}
	return nil
}
