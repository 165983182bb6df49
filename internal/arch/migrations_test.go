package arch_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A version of the platform works beside the one before it, on one database:
// migrations add. What may not be missed any more is taken away by a migration
// of a later version, which says so in a line "-- contract: " with the version
// since which nothing uses it.
var (
	comment  = regexp.MustCompile(`--[^\n]*`)
	allowed  = regexp.MustCompile(`(?is)^(CREATE TABLE|CREATE INDEX|CREATE UNIQUE INDEX|INSERT INTO|UPDATE|DELETE FROM)\s`)
	adds     = regexp.MustCompile(`(?is)^ALTER TABLE \S+ ADD COLUMN (\S+)\s+(.*)$`)
	contract = "-- contract: since "
)

func TestMigrationsAdd(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "*", "migrations", "*.sql"))
	if err != nil || len(files) < 30 {
		t.Fatalf("found %d migrations, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), contract) {
			continue
		}
		for _, problem := range takesAway(string(text)) {
			t.Errorf("%s: %s: the version before it, which runs beside it for a while, would fail", file, problem)
		}
	}
	for sql, want := range map[string]int{
		"-- +goose Up\nCREATE TABLE x (a TEXT); -- b; c\nALTER TABLE x ADD COLUMN n BIGINT NOT NULL DEFAULT 0;": 0,
		"ALTER TABLE x ADD COLUMN n BIGINT;":                                            0,
		"ALTER TABLE x ADD COLUMN n BIGINT NOT NULL;":                                   1,
		"ALTER TABLE x DROP COLUMN n; DROP TABLE y; ALTER TABLE x RENAME COLUMN a TO b": 3,
	} {
		if got := takesAway(sql); len(got) != want {
			t.Errorf("%s: found %q, want %d problems", sql, got, want)
		}
	}
}

// takesAway lists what of a migration the version before it could not bear.
func takesAway(sql string) (problems []string) {
	for statement := range strings.SplitSeq(comment.ReplaceAllString(sql, ""), ";") {
		statement = strings.TrimSpace(statement)
		if statement == "" || allowed.MatchString(statement) {
			continue
		}
		m := adds.FindStringSubmatch(statement)
		rest := ""
		if m != nil {
			rest = strings.ToUpper(m[2])
		}
		switch {
		case m == nil:
			problems = append(problems, "it does more than add: "+statement)
		case strings.Contains(rest, "NOT NULL") && !strings.Contains(rest, "DEFAULT"):
			problems = append(problems, "the column "+m[1]+" must have a default or be NULL")
		}
	}
	return problems
}
