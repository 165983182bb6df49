package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRedeemNewest: what has shares for a script waits for passes for a while, says why
// those that came were no good, and ends with the script. That it takes newer ones is
// tested with a platform (e2e/pool).
func TestRedeemNewest(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "passes")
	for _, x := range []struct{ text, want string }{
		{"", "no such file"},
		{"no passes", "must have passes"},
		{"[]", "must have passes"},
		{`[{"slice":"slice_1","addresses":["tcp:127.0.0.1:1"],"ticket":"t","key":"aa"}]`, "connection refused"},
	} {
		if x.text != "" {
			if err := os.WriteFile(file, []byte(x.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		tasks, err := redeemNewest(t.Context(), file, time.Second, false)
		if err == nil || len(tasks) > 0 || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), "within 1s") {
			t.Errorf("%q: %v, %v, want %s", x.text, tasks, err, x.want)
		}
	}
	ctx, over := context.WithCancel(t.Context())
	over()
	if tasks, err := redeemNewest(ctx, file, time.Hour, false); err != nil || tasks != nil {
		t.Errorf("after the script ended: %v, %v", tasks, err)
	}
	var out, errs strings.Builder
	c := &cli{in: strings.NewReader(""), out: &out, err: &errs, env: func(string) string { return "" }}
	cmd := poolExecCommand(c)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs([]string{"--passes", file})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--passes and --local need --into") {
		t.Errorf("without a folder: %v", err)
	}
}
