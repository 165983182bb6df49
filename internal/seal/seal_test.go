package seal_test

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"yunhe.dev/yunhe/internal/seal"
)

func TestSeal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys", "secrets.key")
	boxes := make([]*seal.Box, 8)
	var wg sync.WaitGroup
	for i := range boxes { // all make the key at once
		wg.Go(func() {
			var err error
			if boxes[i], err = seal.Open(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v, %v, want mode 0600", info, err)
	}
	if list, _ := os.ReadDir(filepath.Dir(path)); len(list) != 1 {
		t.Errorf("left over: %v", list)
	}
	secret := []byte("token of the cluster")
	sealed := boxes[0].Seal(secret, "a")
	if bytes.Contains(sealed, secret) || bytes.Equal(sealed, boxes[0].Seal(secret, "a")) {
		t.Error("the secret shows")
	}
	for _, b := range boxes {
		if got, err := b.Open(sealed, "a"); err != nil || !bytes.Equal(got, secret) {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if _, err := boxes[0].Open(sealed, "b"); err == nil {
		t.Error("opens for another purpose")
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if _, err := boxes[0].Open(bad, "a"); err == nil {
			t.Errorf("opens with byte %d changed", i)
		}
	}
	for _, bad := range [][]byte{nil, {1}, sealed[:10]} {
		if _, err := boxes[0].Open(bad, "a"); err == nil {
			t.Errorf("opens %q", bad)
		}
	}
}

func TestABadKeyIsNotReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secrets.key")
	if err := os.WriteFile(path, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.Open(path); err == nil {
		t.Error("a bad key opens")
	}
	if b, _ := os.ReadFile(path); string(b) != "short\n" {
		t.Errorf("the key is now %q", b)
	}
}
