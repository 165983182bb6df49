package adapters_test

import (
	"context"

	"yunhe.dev/yunhe/internal/core"
)

// adminContext is that of a caller who sees every tenant.
func adminContext() context.Context {
	return core.WithCaller(context.Background(), core.Caller{AllTenants: true})
}
