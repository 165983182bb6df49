package release_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/release"
)

func sum(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFolder: what is kept is whole; a process that starts is what it was upgraded
// to, unless that failed or another program was installed by hand.
func TestFolder(t *testing.T) {
	t.Parallel()
	f := release.Folder(t.TempDir() + "/releases")
	self, err := release.Self()
	must(t, err)
	starts := func(as, want string) {
		t.Helper()
		if got, err := f.Successor(as); err != nil || got != want {
			t.Errorf("what starts as %.8s is %q, %v, not %q", as, got, err, want)
		}
	}
	starts(self, "")
	if err := f.Add(sum("two"), strings.NewReader("tw")); fault.KindOf(err) != fault.Invalid || f.Has(sum("two")) {
		t.Errorf("half a program: %v", err)
	}
	must(t, f.Add(sum("two"), strings.NewReader("two")))
	must(t, f.Upgrade(self, sum("two"), 7))
	must(t, f.Proved())
	starts(self, f.Path(sum("two")))
	starts(sum("two"), "")
	starts(sum("installed by hand"), "")
	if s, _ := f.State(); s.Base != self || s.Previous != self || s.Attempt != 7 || s.Fresh || !f.Has(self) {
		t.Errorf("the state is %+v", s)
	}
	must(t, f.Upgrade(self, sum("two"), 8)) // and it does not come up
	starts(self, "")
	if s, _ := f.State(); s.Problem != "it ended before it had proved itself" || s.Current != self {
		t.Errorf("the state is %+v", s)
	}
	must(t, os.WriteFile(f.Path(sum("two")), []byte("damaged"), 0o600))
	if f.Has(sum("two")) {
		t.Error("a damaged program is taken for whole")
	}
	for _, x := range []string{"a", "b", "c", "d", "e"} {
		must(t, f.Add(sum(x), strings.NewReader(x)))
	}
	must(t, f.Proved())
	must(t, f.Fail("x"))
	if list, _ := os.ReadDir(string(f)); len(list) > 5 { // its own, three more, the state
		t.Errorf("%d files are kept", len(list))
	}
}

// TestLeftovers: what who was killed had written of a program goes when it is old, as
// programs are large.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, young := filepath.Join(dir, "new-1"), filepath.Join(dir, "new-2")
	for _, f := range []string{old, young} {
		must(t, os.WriteFile(f, []byte("half"), 0o600))
	}
	long := time.Now().Add(-2 * time.Hour)
	must(t, os.Chtimes(old, long, long))
	must(t, release.Folder(dir).Save(release.State{}))
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("what is old is there: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("what may be being written is gone: %v", err)
	}
}
