package registry_test

import (
	"log/slog"
	"testing"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/registry"
)

var quiet = slog.New(slog.DiscardHandler)

func open(t *testing.T, d *db.DB) *registry.Service {
	t.Helper()
	s, err := registry.New(t.Context(), d, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
