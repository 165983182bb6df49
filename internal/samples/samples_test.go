package samples

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		c    Config
		want string // in the error; "" if valid
	}{
		{DefaultConfig(), ""},
		{Config{URL: "/var/lib/yunhe/samples", Retention: 2 * time.Hour}, ""},
		{Config{URL: "https://prometheus.example:9090/tenant", Token: "t", WriteURL: "https://prometheus.example/push"}, ""},
		{Config{}, "url: must be a folder or an http(s) address"},
		{Config{URL: "ftp://x"}, `url: must be a folder or begin with http:// or https://, got "ftp://"`},
		{Config{URL: "http://"}, `url: must be http(s)://host:port/path, got "http://"`},
		{Config{URL: "http://h?x=y"}, "url: must be http(s)://host:port/path"},
		{Config{URL: "http://u:hunter2@h"}, "url: must not hold credentials"},
		{Config{URL: "http://h:hunter2"}, "url: is not an address"},
		{Config{URL: "http://h", WriteURL: "push"}, `write_url: must be http(s)://host:port/path, got "push"`},
		{Config{URL: "dir", WriteURL: "http://h"}, "write_url: is only for http(s)"},
		{Config{URL: "dir", Token: "hunter2"}, "token: is only for http(s)"},
		{Config{URL: "dir", Retention: time.Hour}, "retention: must be at least 2h, or 0 for 15 days, got 1h0m0s"},
		{Config{URL: "dir", Retention: -1}, "retention: must be at least 2h"},
	} {
		err := test.c.Validate()
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%v: %v", test.c, err)
		case test.want != "" && (err == nil || fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%v: got %v, want an invalid field with %q", test.c, err, test.want)
		case err != nil && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%v: error shows the secret: %v", test.c, err)
		}
		if test.want != "" {
			if _, err := Open(test.c, quiet, time.Now); err == nil {
				t.Errorf("%v: opened", test.c)
			}
		}
	}
	if got := len(fault.FieldsOf(Config{URL: "x://", Retention: 1}.Validate())); got != 2 {
		t.Errorf("got %d problems, want both at once", got)
	}
}

func TestConfigHidesSecrets(t *testing.T) {
	t.Parallel()
	c := Config{URL: "http://host", Token: "hunter2"}
	for _, format := range []string{"%v", "%+v", "%s", "%#v"} {
		if got := fmt.Sprintf(format, c); strings.Contains(got, "hunter") || !strings.Contains(got, "http://host") {
			t.Errorf("%s: got %q, want the address without the token", format, got)
		}
	}
}

func TestLabels(t *testing.T) {
	t.Parallel()
	l := L("a", "1", "b", "2")
	if l.Get("b") != "2" || l.Get("c") != "" {
		t.Errorf("got %q and %q, want 2 and nothing", l.Get("b"), l.Get("c"))
	}
	defer func() {
		if recover() == nil {
			t.Error("an odd number of arguments did not panic")
		}
	}()
	L("a") //lint:ignore SA5012 the odd number is what is tested
}
