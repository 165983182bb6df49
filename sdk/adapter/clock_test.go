package adapter_test

import (
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/sdk/adapter"
)

func TestClock(t *testing.T) {
	var c adapter.Clock
	for _, step := range []struct {
		ahead time.Duration
		want  string
	}{
		{-time.Second, ""}, {40 * time.Second, ""}, {89 * time.Second, "ahead of the driver's by 1m0s"}, {91 * time.Second, "by 1m0s"},
		{3 * time.Hour, "by 3h0m0s"}, {-time.Second, ""}, {-2 * time.Minute, "behind the driver's by 2m0s"}, {-time.Second, ""},
	} {
		if got := c.Notice(step.ahead); step.want == "" != (got == "") || !strings.Contains(got, step.want) {
			t.Errorf("%s ahead: got %q, want %q", step.ahead, got, step.want)
		}
	}
}
