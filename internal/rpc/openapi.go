package rpc

import (
	_ "embed" // raw.openapi.json
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"strings"
	"sync"

	"yunhe.dev/yunhe/gen/openapi"
)

// rawDoc describes by hand what is mounted with [Server.Raw]: the paths of
// T/AI 123.6 and what REST callers use in the place of streams.
//
//go:embed raw.openapi.json
var rawDoc []byte

// OpenAPI serves the description of the REST API: the documents generated for
// each service and [rawDoc] as one.
func OpenAPI() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		doc, err := merged()
		if err != nil {
			http.Error(w, "the description cannot be read", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Access-Control-Allow-Origin", "*") // it is public
		_, _ = w.Write(doc)
	})
}

// merged is made when it is first asked for: with the race detector it takes a twentieth of what most tests do.
var merged = sync.OnceValues(func() ([]byte, error) { return mergeOpenAPI(openapi.Files) })

func mergeOpenAPI(files fs.FS) ([]byte, error) {
	paths, schemas := map[string]any{}, map[string]any{}
	version := "3.1.0"
	add := func(path string, b []byte) error {
		var d struct {
			OpenAPI    string         `json:"openapi"`
			Paths      map[string]any `json:"paths"`
			Components struct {
				Schemas map[string]any `json:"schemas"`
			} `json:"components"`
		}
		if err := json.Unmarshal(b, &d); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if d.OpenAPI != "" {
			version = d.OpenAPI
		}
		maps.Copy(paths, d.Paths)
		maps.Copy(schemas, d.Components.Schemas)
		return nil
	}
	err := fs.WalkDir(files, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".json") {
			return err
		}
		b, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		return add(path, b)
	})
	if err != nil {
		return nil, err
	}
	if err := add("raw.openapi.json", rawDoc); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"openapi": version,
		"info": map[string]any{"title": "Yunhe", "version": "v1", "description": "The REST API of a Yunhe platform. Every path takes an " +
			"\"Authorization: Bearer KEY\" header. gRPC, gRPC-Web and Connect answer on the same port."},
		"paths":      paths,
		"components": map[string]any{"schemas": schemas, "securitySchemes": map[string]any{"key": map[string]any{"type": "http", "scheme": "bearer"}}},
		"security":   []any{map[string]any{"key": []any{}}},
	})
}
