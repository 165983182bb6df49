package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"

	"yunhe.dev/yunhe/internal/fault"
)

// normalize gives every REST error one shape ([errorBody]) and the status its
// kind has. The transcoder answers what it refuses itself in several ways: as
// UNKNOWN with status 500 where the request is malformed, as plain text where
// it knows no route.
func (s *Server) normalize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkURL(r); err != nil {
			s.writeError(w, r, err)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, MaxBody+1)
		if r.ContentLength > MaxBody {
			s.writeError(w, r, fault.New(fault.TooLarge, "the body must be at most %d bytes, got %d", MaxBody, r.ContentLength))
			return
		}
		if r.Header.Get("Content-Type") == "" || strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
			// curl -d sends a form type; what it carries is JSON.
			r.Header.Set("Content-Type", "application/json")
		}
		body := &textBody{ReadCloser: r.Body}
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
			r.Body = body
		}
		cw := &capture{ResponseWriter: w}
		next.ServeHTTP(cw, r)
		switch {
		case cw.status >= 400 && (body.bad || len(body.part) > 0 && cw.status != http.StatusRequestEntityTooLarge):
			// What says so here cannot quote it, and is no text itself.
			s.writeError(w, r, fault.New(fault.Invalid, "the body must be valid UTF-8"))
		case cw.status >= 400:
			s.rewrite(w, r, cw)
		}
	})
}

// textBody notices that what is read through it is not UTF-8.
type textBody struct {
	io.ReadCloser
	part []byte // the beginning of a character whose rest is still to come
	bad  bool
}

func (t *textBody) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	t.look(p[:n])
	return n, err
}

func (t *textBody) look(p []byte) {
	for len(t.part) > 0 && len(p) > 0 && !t.bad {
		t.part, p = append(t.part, p[0]), p[1:]
		if utf8.FullRune(t.part) {
			t.bad, t.part = !utf8.Valid(t.part), t.part[:0]
		}
	}
	end := len(p)
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		if utf8.RuneStart(p[len(p)-i]) {
			if !utf8.FullRune(p[len(p)-i:]) {
				end = len(p) - i
			}
			break
		}
	}
	t.part = append(t.part, p[end:]...)
	t.bad = t.bad || !utf8.Valid(p[:end])
}

// keepColons lets a path name what has a colon in its name, written %3A: the
// transcoder takes a colon that it sees for the beginning of a verb, and
// decodes the rest of the path itself.
func keepColons(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(strings.ToUpper(r.URL.RawPath), "%3A") {
			next.ServeHTTP(w, r)
			return
		}
		c, u := *r, *r.URL
		u.Path, u.RawPath = strings.NewReplacer("%", "%25", ":", "%3A").Replace(u.Path), ""
		c.URL = &u
		next.ServeHTTP(w, &c)
	})
}

// jsonErrors gives the plain-text refusals of the RPC libraries, which come
// before there is a method, the shape of every other error.
func (s *Server) jsonErrors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cw := &plainRefusal{ResponseWriter: w}
		next.ServeHTTP(cw, r)
		if cw.refused != 0 {
			s.rewrite(w, r, &capture{status: cw.refused, body: cw.body})
		}
	})
}

// plainRefusal holds back answers that are errors in plain text.
type plainRefusal struct {
	http.ResponseWriter
	refused int
	body    bytes.Buffer
}

func (p *plainRefusal) WriteHeader(status int) {
	kind := p.Header().Get("Content-Type")
	if status >= 400 && (kind == "" || strings.HasPrefix(kind, "text/plain")) {
		p.refused = status
		return
	}
	p.ResponseWriter.WriteHeader(status)
}

func (p *plainRefusal) Write(b []byte) (int, error) {
	if p.refused != 0 {
		return p.body.Write(b)
	}
	return p.ResponseWriter.Write(b)
}

// Flush is needed by streams.
func (p *plainRefusal) Flush() {
	if f, ok := p.ResponseWriter.(http.Flusher); ok && p.refused == 0 {
		f.Flush()
	}
}

// Unwrap lets deadlines through.
func (p *plainRefusal) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// capture holds back error answers and lets others pass.
type capture struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (c *capture) WriteHeader(status int) {
	if c.status != 0 {
		return
	}
	c.status = status
	if status < 400 {
		c.ResponseWriter.WriteHeader(status)
	}
}

func (c *capture) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	if c.status >= 400 {
		return c.body.Write(b)
	}
	return c.ResponseWriter.Write(b)
}

// Flush is needed by the transcoder; an answer held back is written at the end.
func (c *capture) Flush() {
	if f, ok := c.ResponseWriter.(http.Flusher); ok && c.status < 400 {
		f.Flush()
	}
}

// kinds by google.rpc code, as the transcoder writes them.
var kinds = map[int]fault.Kind{
	1: fault.Canceled, 2: fault.Invalid, 3: fault.Invalid, 4: fault.Unavailable, 5: fault.NotFound, 6: fault.Exists, 7: fault.Denied,
	8: fault.Exhausted, 9: fault.Conflict, 10: fault.Conflict, 11: fault.Invalid, 12: fault.Unimplemented, 13: fault.Internal, 14: fault.Unavailable, 16: fault.Unauthenticated,
}

func (s *Server) rewrite(w http.ResponseWriter, r *http.Request, c *capture) {
	for _, h := range []string{"Content-Length", "Content-Type", "Content-Encoding", "Trailer"} {
		w.Header().Del(h)
	}
	var st struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Details []struct {
			FieldViolations []struct {
				Field       string `json:"field"`
				Description string `json:"description"`
			} `json:"fieldViolations"`
		} `json:"details"`
	}
	if json.Unmarshal(c.body.Bytes(), &st) != nil || st.Code == 0 {
		switch c.status {
		case http.StatusNotFound:
			s.writeError(w, r, noSuchPath(r))
		case http.StatusMethodNotAllowed:
			writeJSON(w, c.status, errorBody{Code: "METHOD_NOT_ALLOWED", Message: r.Method + " is not a method of " + clip(r.URL.Path, 200), Details: []fieldError{}})
		case http.StatusUnsupportedMediaType:
			writeJSON(w, c.status, errorBody{Code: "UNSUPPORTED_MEDIA_TYPE", Message: "send application/json, uncompressed or with gzip", Details: []fieldError{}})
		default:
			writeJSON(w, c.status, errorBody{Code: fault.Invalid.String(), Message: strings.TrimSpace(c.body.String()), Details: []fieldError{}})
		}
		return
	}
	kind, msg := kinds[st.Code], st.Message
	if strings.Contains(msg, "larger than") || strings.Contains(msg, "request body too large") || strings.Contains(msg, "max buffer size") || strings.Contains(msg, "exceeded") && st.Code == 8 {
		kind = fault.TooLarge
	}
	body := errorBody{Code: kind.String(), Message: msg, Details: []fieldError{}}
	for _, d := range st.Details {
		for _, v := range d.FieldViolations {
			body.Details = append(body.Details, fieldError{v.Field, v.Description})
		}
	}
	if kind == fault.Invalid && len(body.Details) == 0 {
		var field string
		if field, body.Message = explain(msg); field != "" {
			body.Details = append(body.Details, fieldError{field, body.Message})
		}
	}
	writeJSON(w, Status(fault.New(kind, "")), body)
}

var (
	wrongValue   = regexp.MustCompile(`^\(line (\d+):(\d+)\): invalid value for (\w+) field (\w+): (.*)$`)
	unknownField = regexp.MustCompile(`unknown field "(.*)"$`)
	wrongParam   = regexp.MustCompile(`^invalid parameter "([^"]*)" ?(.*)$`)
	unknownParam = regexp.MustCompile(`^in field path "([^"]*)": element `)
	explained    = regexp.MustCompile(`^(?:"([^"]+)" is not a field here|(\w+): must be of type .*)$`) // by strictJSON
	wrongSyntax  = regexp.MustCompile(`^syntax error \(line (\d+):(\d+)\): (.*)$`)
)

// explain turns what the JSON decoder says into the name of the field, "" if
// it names none, and a sentence for the caller.
func explain(msg string) (field, text string) {
	msg = strings.ReplaceAll(msg, "\u00a0", " ")
	for _, prefix := range []string{"unmarshal message: ", "proto: "} {
		msg = strings.TrimPrefix(msg, prefix)
	}
	if m := wrongValue.FindStringSubmatch(msg); m != nil {
		return m[4], fmt.Sprintf("%s: must be of type %s, got %s (line %s, column %s)", m[4], m[3], clip(m[5], 64), m[1], m[2])
	}
	if m := unknownField.FindStringSubmatch(msg); m != nil {
		return clip(m[1], 64), fmt.Sprintf("%q is not a field here", clip(m[1], 64))
	}
	if m := wrongParam.FindStringSubmatch(msg); m != nil {
		return clip(m[1], 64), fmt.Sprintf("%s: is not a value of this parameter: %s", clip(m[1], 64), clip(m[2], 100))
	}
	if m := unknownParam.FindStringSubmatch(msg); m != nil {
		return clip(m[1], 64), fmt.Sprintf("%q is not a parameter or field here", clip(m[1], 64))
	}
	if m := explained.FindStringSubmatch(msg); m != nil {
		return clip(m[1]+m[2], 64), msg
	}
	if m := wrongSyntax.FindStringSubmatch(msg); m != nil {
		return "", fmt.Sprintf("the body is not the JSON expected: %s (line %s, column %s)", clip(m[3], 200), m[1], m[2])
	}
	return "", msg
}
