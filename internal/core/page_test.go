package core_test

import (
	"slices"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

func TestPageToken(t *testing.T) {
	t.Parallel()
	for _, key := range [][]string{{"job_1"}, {"1700000000", "att_2"}, {""}, {"云 \"quoted\""}} {
		got, err := core.ParsePageToken(core.PageToken(key...), len(key))
		if err != nil || !slices.Equal(got, key) {
			t.Errorf("%q came back as %q, %v", key, got, err)
		}
		if _, err := core.ParsePageToken(core.PageToken(key...), len(key)+1); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q as a longer key: %v", key, err)
		}
	}
	if key, err := core.ParsePageToken("", 1); key != nil || err != nil {
		t.Errorf("no token: %q, %v", key, err)
	}
	if _, err := core.ParsePageToken(core.PageToken("a\x00"), 1); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a zero byte: %v", err)
	}
}

func FuzzParsePageToken(f *testing.F) {
	f.Add(core.PageToken("job_1"), 1)
	f.Add(core.PageToken("a", "b"), 2)
	f.Add("WyJcdTAwMDAiXQ", 1)
	f.Add("%%%", 1)
	f.Fuzz(func(t *testing.T, token string, n int) {
		key, err := core.ParsePageToken(token, n)
		switch {
		case err != nil && (fault.KindOf(err) != fault.Invalid || key != nil):
			t.Fatalf("%q: %q, %v", token, key, err)
		case err == nil && token != "" && (len(key) != n || strings.ContainsRune(strings.Join(key, ""), 0)):
			t.Fatalf("%q: taken as %q", token, key)
		}
	})
}
