package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	tagging "yunhe.dev/yunhe/internal/tags"
)

// What one server shares another adopts, from a file.
func TestTagShare(t *testing.T) {
	t.Parallel()
	from, tagger := startTagger(t)
	if _, err := tagger.PutGroup(t.Context(), tagging.Group{ID: "energy", Title: "Energy"}); err != nil {
		t.Fatal(err)
	}
	if out, errs, status := from.run("", "tag", "define", "green", "--group", "energy", "--type", "boolean"); status != 0 {
		t.Fatalf("define: %q, %q", out, errs)
	}
	doc, errs, status := from.run("", "tag", "share", "green")
	if status != 0 || !strings.Contains(doc, `"groupId": "energy"`) {
		t.Fatalf("share: %q, %q, %d", doc, errs, status)
	}
	file := filepath.Join(t.TempDir(), "green.json")
	if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	to, _ := startTagger(t)
	to.want("adopted", "", `
KIND   ID      OUTCOME  MESSAGE
group  energy  created  -
tag    green   created  -
`, "tag", "adopt", "-f", file)
	if _, errs, status := to.run("", "tag", "define", "green", "--title", "Renewable"); status != 0 {
		t.Fatalf("change: %q", errs)
	}
	to.want("different", "", `
KIND   ID      OUTCOME    MESSAGE
group  energy  same       -
tag    green   different  -
2> error: 1 thing not as shared
exit 1
`, "tag", "adopt", "-f", file)
	to.want("replaced", doc, "KIND   ID      OUTCOME   MESSAGE\ngroup  energy  same      -\ntag    green   replaced  -\n", "tag", "adopt", "-f", "-", "--replace")
	to.want("no file", "", "2> error: -f is missing\n2> hint: `yunhe tag share` prints what to adopt\nexit 2\n", "tag", "adopt")
}
