package enginetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Upgrade returns the built program and that of the version before, which it builds
// with the accelerator pool's programs and without the console; tree is the folder with
// that version's files. YUNHE_TEST_UPGRADE_FROM names its commit, or says "auto": the one
// before migrations were last added. The test is skipped without.
func Upgrade(t *testing.T) (fresh, old, tree string) {
	t.Helper()
	commit := os.Getenv("YUNHE_TEST_UPGRADE_FROM")
	if commit == "" {
		t.Skip("SKIPPED: it builds the version before, which YUNHE_TEST_UPGRADE_FROM names (a commit, or auto); make test-upgrade runs it")
	}
	fresh, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	tree = t.TempDir()
	run := func(dir, name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
		var failed strings.Builder
		cmd.Stderr = &failed
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, failed.String())
		}
		return strings.TrimSpace(string(out))
	}
	root := Repository()
	if commit == "auto" {
		commit = run(root, "git", "log", "-1", "--format=%H", "--", ":(glob)internal/*/migrations/*.sql") + "^"
	}
	version := run(root, "git", "log", "-1", "--format=%h", commit)
	t.Logf("the version before: %s", run(root, "git", "log", "-1", "--format=%h %s", commit))
	archive := filepath.Join(tree, "old.tar")
	run(root, "git", "archive", "-o", archive, commit)
	run(tree, "tar", "-xf", archive)
	if err := os.Remove(archive); err != nil {
		t.Fatal(err)
	}
	run(tree, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.FromSlash("adapters/gateway/sandbox/bin/runner"), "./adapters/gateway/sandbox/runner/cmd")
	run(tree, "sh", "scripts/pool.sh")
	old = filepath.Join(tree, "yunhe-old")
	run(tree, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", fmt.Sprintf("-s -w -X main.version=%s", version), "-o", old, "./cmd/yunhe")
	return fresh, old, tree
}
