package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/rpc"
	tagging "yunhe.dev/yunhe/internal/tags"
)

// startTagger is a server with the real registry and tags, and three centers.
func startTagger(t *testing.T) (*registrar, *tagging.Service) {
	t.Helper()
	s := &registrar{t: t, work: t.TempDir()}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	quiet := slog.New(slog.DiscardHandler)
	var err error
	s.d, err = db.Open(t.Context(), db.Config{URL: filepath.Join(s.work, "yunhe.db")}, quiet)
	check(err)
	t.Cleanup(func() {
		if err := s.d.Close(); err != nil {
			t.Error(err)
		}
	})
	s.reg, err = registry.New(t.Context(), s.d, quiet)
	check(err)
	tagger, err := tagging.New(t.Context(), s.d, s.reg, quiet)
	check(err)
	for i := range 3 {
		_, err := s.reg.CreateCenter(t.Context(), registry.Center{ID: fmt.Sprintf("c%d", i), Region: []string{"east", "west"}[i%2]})
		check(err)
	}
	srv := rpc.New(rpc.Config{Ready: func(context.Context) error { return nil }}, anyKey{}, prometheus.NewRegistry(), quiet)
	s.reg.Register(srv)
	tagger.Register(srv)
	h, err := srv.Handler()
	check(err)
	hs := httptest.NewServer(h)
	t.Cleanup(hs.Close)
	s.url = hs.URL
	return s, tagger
}

func TestTags(t *testing.T) {
	t.Parallel()
	s, tagger := startTagger(t)
	// Columns of times have a width of their own.
	loose := func(what, want string, args ...string) {
		t.Helper()
		out, errs, status := s.run("", args...)
		got := regexp.MustCompile(` +`).ReplaceAllString(masked.ReplaceAllString(out, "…"), " ")
		if got != want || errs != "" || status != 0 {
			t.Errorf("%s: %q, %q, %d; want %q", what, got, errs, status, want)
		}
	}
	s.want("an empty library", "", "TAG  GROUP  TITLE  VALUES  KINDS  OBJECTS  RULES\n", "tag", "list")
	if _, err := tagger.PutGroup(t.Context(), tagging.Group{ID: "energy", Title: "Energy", TitleZH: "能耗"}); err != nil {
		t.Fatal(err)
	}
	out, errs, status := s.run("", "tag", "define", "green", "--group", "energy", "--type", "boolean", "--inherited", "--kinds", "platform,center", "-o", "name")
	if out != "green\n" || status != 0 {
		t.Fatalf("define: %q, %q, %d", out, errs, status)
	}
	out, errs, status = s.run("", "tag", "define", "green", "--title", "Renewable", "-o", "json")
	if status != 0 {
		t.Fatalf("change: %q, %q, %d", out, errs, status)
	}
	s.want("the library", "", `
TAG    GROUP   TITLE      VALUES   KINDS            OBJECTS  RULES
green  energy  Renewable  boolean  platform,center        0  -
`, "tag", "list")
	s.want("a dry run", "", `
OBJECT     TAG    BEFORE  AFTER
center:c0  green  -       true
center:c2  green  -       true
2 values would change on 2 objects, 0 were as wanted
`, "tag", "set", "--kind", "center", "--where", `region == "east"`, "green=true", "--dry-run")
	s.want("in earnest", "", `
OBJECT     TAG    BEFORE  AFTER
center:c0  green  -       true
center:c2  green  -       true
2 values changed on 2 objects, 0 were as wanted
`, "tag", "set", "--kind", "center", "--where", `region == "east"`, "green=true", "--request-id", "r1")
	s.want("again", "", `
OBJECT     TAG    BEFORE  AFTER
center:c0  green  -       true
center:c2  green  -       true
2 values were changed by this request before on 2 objects, 0 were as wanted
`, "tag", "set", "--kind", "center", "--where", `region == "east"`, "green=true", "--request-id", "r1")
	s.want("inherited", "", "OBJECT    TAG    BEFORE  AFTER\nplatform  green  -       false\n1 values changed on 1 objects, 0 were as wanted\n", "tag", "set", "platform", "green=false")
	loose("nearest wins", `TAG VALUE FROM SET BY UPDATED HIDES
green true itself op … false of platform
`, "tag", "show", "center:c0")
	loose("from above", `TAG VALUE FROM SET BY UPDATED HIDES
green false platform op … -
`, "tag", "show", "center:c1")
	s.want("by tag", "", "center:c0\ncenter:c2\n", "tag", "find", "--kind", "center", "--where", `tags["green"] == "true"`, "-o", "name")
	s.want("a bad value", "", `
2> error: changes[0].value: must be "true" or "false", got "yes"
exit 1
`, "tag", "set", "center:c0", "green=yes")
	s.want("what does not exist", "", `
2> center:c9: there is no center c9
2> error: nothing was changed: 1 problems
exit 1
`, "tag", "set", "center:c0", "center:c9", "green=false")
	s.want("a bad expression", "", `
2> error: line 1, column 8: found no matching overload for '_==_' applied to '(string, int)'
exit 1
`, "tag", "check", "region == 5")
	s.want("why not", "", "center:c1 does not meet tags[\"green\"] == \"true\": tags[\"green\"] is \"false\"\n", "tag", "check", `tags["green"] == "true"`, "--on", "center:c1")

	out, errs, status = s.run("", "tag", "rule", "set", "west", "--key", "green", "--kinds", "center", "--when", `region == "west"`, "--value", "true")
	if status != 0 {
		t.Fatalf("rule: %q, %q", out, errs)
	}
	if _, err := tagger.Evaluate(t.Context(), tagging.Center); err != nil {
		t.Fatal(err)
	}
	loose("set by a rule", `TAG VALUE FROM SET BY UPDATED HIDES
green true itself rule west … false of platform
`, "tag", "show", "center:c1")
	loose("the history", `WHEN SUBJECT TAG BEFORE AFTER BY REASON
… center:c1 green - true rule west west
`, "tag", "history", "center:c1")
	s.want("off", "", "west\n", "tag", "rule", "set", "west", "--mode", "off", "-o", "name")
	s.want("rules", "", `
RULE  TAG    VALUE  KINDS   WHEN              MODE  MATCHED  ERROR
west  green  true   center  region == "west"  off         0  -
`, "tag", "rule", "list")
	s.want("nothing to suggest", "", "2> nothing to suggest for center:c1\n", "tag", "suggest", "center:c1")
	s.want("a tag in use", "", "2> error: 4 objects carry tag green; clear it there, or delete it with its values\nexit 1\n", "tag", "delete", "green")
	s.want("with its values", "", "green  deleted\n", "tag", "delete", "green", "--with-values")
	s.want("no change", "", "2> error: want a change such as green=true, green- or green!\nexit 2\n", "tag", "set", "center:c1")
}
