package arch_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	span    = regexp.MustCompile("`[^`]+`")
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	scheme  = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
	mention = regexp.MustCompile(`\bdocs/[\w/-]+(\.[\w-]+)*\.md\b`)
)

// TestLinks: links of the documents, to files of the repository and to headings of
// pages, lead somewhere; so do the pages that programs and scripts name.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages, others := map[string]string{}, map[string]string{}
	err := walk(func(rel string) bool { return path.Base(rel) == "dist" || rel == "bin" || rel == "data" }, func(rel string, read func() ([]byte, error)) error {
		into := others
		switch path.Ext(rel) {
		case ".md":
			into = pages
		case ".go", ".c", ".h", ".proto", ".sh", ".ts", ".tsx", ".txtar", ".yaml":
		default:
			return nil
		}
		text, err := read()
		into[rel] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 50 {
		t.Fatalf("found %d pages, want the whole repository", len(pages))
	}
	for from, text := range pages {
		for _, at := range links(text) {
			if why := leads(pages, from, at); why != "" {
				t.Errorf("%s: the link %s %s", from, at, why)
			}
		}
	}
	for from, text := range others {
		for _, page := range mention.FindAllString(text, -1) {
			if _, ok := pages[page]; !ok {
				t.Errorf("%s names %s, which there is not", from, page)
			}
		}
	}
}

// leads says why a link of a page leads nowhere; "" if it leads somewhere.
func leads(pages map[string]string, from, at string) string {
	file, anchor, anchored := strings.Cut(at, "#")
	to := path.Join(path.Dir(from), file)
	if file == "" {
		to = from
	}
	if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(to))); err != nil {
		return "leads to no file"
	}
	if text, ok := pages[to]; anchored && ok && !slices.Contains(anchors(text), anchor) {
		return "leads to no heading"
	}
	return ""
}

// prose is a page's text without what is code in it by blocks.
func prose(text string) string {
	var out strings.Builder
	code := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			out.WriteString(line)
		}
	}
	return out.String()
}

// links are the targets of a page's links into the repository.
func links(text string) (out []string) {
	for paragraph := range strings.SplitSeq(prose(text), "\n\n") {
		for _, m := range link.FindAllStringSubmatch(span.ReplaceAllString(paragraph, ""), -1) {
			if !scheme.MatchString(m[1]) {
				out = append(out, m[1])
			}
		}
	}
	return out
}

// anchors are the names of a page's headings, as GitHub makes them.
func anchors(text string) (out []string) {
	for line := range strings.Lines(prose(text)) {
		level := len(line) - len(strings.TrimLeft(line, "#"))
		heading, ok := strings.CutPrefix(line[level:], " ")
		if level == 0 || level > 6 || !ok {
			continue
		}
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(linked.ReplaceAllString(heading, "$1")))
		unique := name
		for n := 1; slices.Contains(out, unique); n++ {
			unique = fmt.Sprintf("%s-%d", name, n)
		}
		out = append(out, unique)
	}
	return out
}

// TestAnchors: what the check of links reads of a page.
func TestAnchors(t *testing.T) {
	t.Parallel()
	const page = "# A page\n\n## `--data`: the node's folder\n\n[a](b.md#c) and `[x](y.md)` and\n`one\n[z](z.md)` [web](https://example.org/)\n\n" +
		"```\n# no heading\n[no](link.md)\n```\n\n## [Twice](x.md)\n\n## Twice\n"
	if got, want := anchors(page), []string{"a-page", "--data-the-nodes-folder", "twice", "twice-1"}; !slices.Equal(got, want) {
		t.Errorf("the anchors are %q, want %q", got, want)
	}
	if got, want := links(page), []string{"b.md#c", "x.md"}; !slices.Equal(got, want) {
		t.Errorf("the links are %q, want %q", got, want)
	}
}
