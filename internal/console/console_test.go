package console_test

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/console"
	"yunhe.dev/yunhe/web"
)

func get(t *testing.T, method, target string) *httptest.ResponseRecorder {
	t.Helper()
	rec := httptest.NewRecorder()
	console.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), method, target, nil))
	return rec
}

// built is the console's index, nil if this checkout has none.
func built() []byte {
	b, err := fs.ReadFile(web.Dist, "dist/index.html")
	if err != nil {
		return nil
	}
	return b
}

func TestAbsent(t *testing.T) {
	t.Parallel()
	if built() != nil {
		t.Skip("SKIPPED: the console is built here; the other tests cover it")
	}
	if rec := get(t, http.MethodGet, "/"); rec.Code != http.StatusNotFound || !strings.Contains(rec.Body.String(), "make build") {
		t.Errorf("without a console / answered %d %s, want 404 and how to build it", rec.Code, rec.Body)
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	index := built()
	if index == nil {
		t.Skip("SKIPPED: the console is not built here; make build does it")
	}
	for _, page := range []string{"/", "/jobs", "/jobs/job_01", "/jobs/new?x=1", "/centers/c1", "/nosuch", "/assets", "/assets/", "/index", "/../../etc/passwd", "//etc/passwd"} {
		rec := get(t, http.MethodGet, page)
		if rec.Code != http.StatusOK || rec.Body.String() != string(index) || rec.Header().Get("Cache-Control") != "no-cache" || !strings.HasPrefix(rec.Header().Get("Content-Type"), "text/html") {
			t.Errorf("%s answered %d with %v, want the index, never cached", page, rec.Code, rec.Header())
		}
	}
	for _, file := range []string{"/nosuch.js", "/assets/nosuch.css", "/.gitkeep", "/../web.go", "/assets/../../web.go", "/index.html.map"} {
		if rec := get(t, http.MethodGet, file); rec.Code != http.StatusNotFound {
			t.Errorf("%s answered %d %.60q, want 404", file, rec.Code, rec.Body)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		if rec := get(t, method, "/"); rec.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s answered %d, want 405", method, rec.Code)
		}
	}
	n := 0
	err := fs.WalkDir(web.Dist, "dist", func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || p == "dist/index.html" || strings.HasPrefix(path.Base(p), ".") {
			return err
		}
		want, err := fs.ReadFile(web.Dist, p)
		if err != nil {
			return err
		}
		rec := get(t, http.MethodGet, strings.TrimPrefix(p, "dist"))
		if n++; rec.Code != http.StatusOK || rec.Body.String() != string(want) {
			t.Errorf("%s answered %d with %d bytes, want its %d", p, rec.Code, rec.Body.Len(), len(want))
		}
		if forEver := strings.Contains(rec.Header().Get("Cache-Control"), "immutable"); forEver != strings.HasPrefix(p, "dist/assets/") {
			t.Errorf("%s has Cache-Control %q", p, rec.Header().Get("Cache-Control"))
		}
		return nil
	})
	if err != nil || n < 2 {
		t.Errorf("checked %d files, %v; want the console's", n, err)
	}
}

func TestContentSecurityPolicy(t *testing.T) {
	t.Parallel()
	if built() == nil {
		t.Skip("SKIPPED: the console is not built here; make build does it")
	}
	policy := get(t, http.MethodGet, "/").Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'self'", "script-src 'self';", "frame-ancestors 'none'", "object-src 'none'", "base-uri 'self'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy %q lacks %q", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe-eval") || strings.Contains(policy, "http:") || strings.Contains(policy, "https:") {
		t.Errorf("the policy %q opens the console to scripts from elsewhere", policy)
	}
}
