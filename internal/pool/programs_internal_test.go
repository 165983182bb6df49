package pool

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPut: what was left by who was killed while it wrote goes, what others write now
// and what is called otherwise stays.
func TestPut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, old := filepath.Join(dir, "library.so"), time.Now().Add(-2*putTime)
	for name, written := range map[string]time.Time{"library.so-1234": old, "library.so-99": time.Now(), "library.so-other": old, "library.so.1": old} {
		f := filepath.Join(dir, name)
		if err := os.WriteFile(f, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(f, written, written); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := put(path, []byte("text"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "text" {
		t.Errorf("it is %q, %v", got, err)
	}
	all, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(all) != 4 {
		t.Errorf("there are %v, %v", all, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "library.so-1234")); err == nil {
		t.Error("what was left is there")
	}
}

// TestCUDANumber: a card is told of by the number that the driver and NVML count it by,
// or, where that cannot be seen, by its UUID.
func TestCUDANumber(t *testing.T) {
	t.Parallel()
	const card, part = "GPU-02020202-0202-0202-0202-020202020202", "MIG-377e0049-554c-540b-93c6-d0976f8426cb"
	dir := t.TempDir()
	folder := filepath.Join(dir, NVIDIACards)
	for _, bus := range []string{"0000:9b:00.0", "0000:17:00.0", "0000:65:00.0", "0001:00:00.0"} {
		if err := os.MkdirAll(filepath.Join(folder, bus), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		a, b, want string
	}{
		{"0000:17:00.0", "0000:65:00.0", "0 1"},
		{"0000:17:00.0", "0000:9b:00.0", "0 2"},
		{"0000:9b:00.0", "0001:00:00.0", "2 3"},
		{"0000:65:00.0", "0000:17:00.0", card + " GPU-03"}, // what is 1, the first or the second?
		{"0000:65:00.0", "0000:9b:00.0", card + " GPU-03"},
		{"0000:65:00.0", "", card + " GPU-03"}, // all are told in one way
	} {
		if got := strings.Join(cudaNumbers(dir, []CUDACard{{card, c.a}, {"GPU-03", c.b}}), " "); got != c.want {
			t.Errorf("cards at %q and %q: %s, want %s", c.a, c.b, got, c.want)
		}
	}
	for _, c := range []struct{ folder, uuid, bus, want string }{
		{dir, card, "0000:17:00.0", "0"},
		{dir, card, "0000:65:00.0", "1"},
		{dir, card, "0000:9B:00.0", "2"},
		{dir, card, "0001:00:00.0", "3"},
		{dir, part, "0000:65:00.0", part},
		{dir, card, "0000:66:00.0", card},
		{dir, card, "", card}, // of a node of before
		{dir + "/none", card, "0000:65:00.0", card},
	} {
		if got := cudaNumbers(c.folder, []CUDACard{{c.uuid, c.bus}}); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s at %q: got %q, want %q", c.uuid, c.bus, got, c.want)
		}
	}

	// Where only some of the machine's cards are shown, the driver counts those.
	if err := os.Mkdir(filepath.Join(dir, "dev"), 0o700); err != nil {
		t.Fatal(err)
	}
	for minor, bus := range map[string]string{"3": "0000:17:00.0", "0": "0000:65:00.0", "1": "0000:9b:00.0"} {
		about := "Model: \t\t NVIDIA H200\nBus Location: \t " + bus + "\nDevice Minor: \t " + minor + "\n"
		if err := os.WriteFile(filepath.Join(folder, bus, "information"), []byte(about), 0o600); err != nil {
			t.Fatal(err)
		}
		if minor != "3" {
			if err := os.WriteFile(filepath.Join(dir, "dev", "nvidia"+minor), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for bus, want := range map[string]string{"0000:65:00.0": "0", "0000:9b:00.0": "1", "0001:00:00.0": "2", "0000:17:00.0": card} {
		if got := cudaNumbers(dir, []CUDACard{{card, bus}}); !slices.Equal(got, []string{want}) {
			t.Errorf("at %q, of those that are shown: got %q, want %q", bus, got, want)
		}
	}
	for bus, want := range map[string]int{"0000:17:00.0": 3, "0000:9B:00.0": 1, "0001:00:00.0": -1, "": -1, "../0000:17:00.0": 3} {
		if got := NVIDIAMinor(folder, bus); got != want {
			t.Errorf("the file of %q is %d, want %d", bus, got, want)
		}
	}
}
