// Package console serves the web console: the files built from web/ into the
// binary. It holds no logic; the console uses the public API like every other
// client. Without the built files the binary says that it has no console.
package console

import (
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/klauspost/compress/gzhttp"

	"yunhe.dev/yunhe/web"
)

const policy = "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; script-src 'self'; connect-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'self'"

// Handler serves the console at "/". Paths that are no file are pages of the
// console and get its index.
func Handler() http.Handler {
	dist, err := fs.Sub(web.Dist, "dist")
	if err != nil {
		return http.HandlerFunc(absent)
	}
	index, err := fs.ReadFile(dist, "index.html")
	if err != nil {
		return http.HandlerFunc(absent)
	}
	files := http.FileServerFS(dist)
	return gzhttp.GzipHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
		if info, err := fs.Stat(dist, name); err == nil && !info.IsDir() && name != "index.html" && !strings.HasPrefix(path.Base(name), ".") {
			if strings.HasPrefix(name, "assets/") { // named by their content
				h.Set("Cache-Control", "public, max-age=31536000, immutable")
			}
			files.ServeHTTP(w, r)
			return
		}
		if path.Ext(name) != "" {
			http.NotFound(w, r)
			return
		}
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		_, _ = w.Write(index) // the caller may be gone
	}))
}

func absent(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "this binary was built without the console; build it with: make build\nThe API is described at /openapi.json", http.StatusNotFound)
}
