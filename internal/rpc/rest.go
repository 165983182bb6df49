package rpc

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"yunhe.dev/yunhe/internal/fault"
)

// normalize gives every REST error one shape ([errorBody]) and the status its
// kind has. The transcoder answers what it refuses itself in several ways: as
// UNKNOWN with status 500 where the request is malformed, as plain text where
// it knows no route.
func (s *Server) normalize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, MaxBody+1)
		if r.ContentLength > MaxBody {
			s.writeError(w, r, fault.New(fault.TooLarge, "the body must be at most %d bytes, got %d", MaxBody, r.ContentLength))
			return
		}
		if r.Header.Get("Content-Type") == "" || strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
			// curl -d sends a form type; what it carries is JSON.
			r.Header.Set("Content-Type", "application/json")
		}
		cw := &capture{ResponseWriter: w}
		next.ServeHTTP(cw, r)
		if cw.status >= 400 {
			s.rewrite(w, r, cw)
		}
	})
}

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
			s.writeError(w, r, fault.New(fault.NotFound, "there is no %s %s; the API is described at /openapi.json", r.Method, clip(r.URL.Path, 200)))
		case http.StatusMethodNotAllowed:
			writeJSON(w, c.status, errorBody{Code: "METHOD_NOT_ALLOWED", Message: r.Method + " is not a method of " + clip(r.URL.Path, 200), Details: []fieldError{}})
		case http.StatusUnsupportedMediaType:
			writeJSON(w, c.status, errorBody{Code: "UNSUPPORTED_MEDIA_TYPE", Message: "send application/json", Details: []fieldError{}})
		default:
			writeJSON(w, c.status, errorBody{Code: fault.Invalid.String(), Message: strings.TrimSpace(c.body.String()), Details: []fieldError{}})
		}
		return
	}
	kind := kinds[st.Code]
	msg := strings.ReplaceAll(st.Message, "\u00a0", " ")
	if strings.Contains(msg, "larger than") || strings.Contains(msg, "request body too large") || strings.Contains(msg, "max buffer size") || strings.Contains(msg, "exceeded") && st.Code == 8 {
		kind = fault.TooLarge
	}
	body := errorBody{Code: kind.String(), Message: msg, Details: []fieldError{}}
	for _, d := range st.Details {
		for _, v := range d.FieldViolations {
			body.Details = append(body.Details, fieldError{v.Field, v.Description})
		}
	}
	writeJSON(w, Status(fault.New(kind, "")), body)
}
