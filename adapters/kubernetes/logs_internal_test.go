package kubernetes

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"
)

// A node may begin a new file after the last line: then nothing is left, and
// the log says so instead of looking as if there had been none.
func TestLogDroppedWhole(t *testing.T) {
	t.Parallel()
	for first, want := range map[string]string{"": "", "2026-01-02T03:04:05Z": dropped} {
		s := &cursors{open: func(context.Context, string, time.Time, bool) (source, error) {
			return source{ReadCloser: io.NopCloser(strings.NewReader("")), final: true, first: first}, nil
		}}
		var got []byte
		for end := false; !end; {
			var data []byte
			var err error
			if data, _, end, err = s.read(t.Context(), "a", int64(len(got)), 1000, true); err != nil {
				t.Fatal(err)
			}
			got = append(got, data...)
		}
		if string(got) != want {
			t.Errorf("a log that began at %q and of which nothing is left reads %q, want %q", first, got, want)
		}
		s.close()
	}
}
