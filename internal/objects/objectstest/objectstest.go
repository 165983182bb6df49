// Package objectstest is the suite that every implementation of objects.Store
// passes. What it checks is what callers may rely on; what only one engine
// promises is tested beside that engine.
package objectstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/objects"
)

// Run runs the suite. open returns an empty store; each subtest asks for its
// own, and they run in parallel.
func Run(t *testing.T, open func(t *testing.T) objects.Store) {
	tests := []struct {
		name string
		run  func(t *testing.T, s objects.Store)
	}{
		{"what is put is got", roundTrip},
		{"put replaces", replaces},
		{"a wrong size stores nothing", wrongSize},
		{"an error of the reader is returned and stores nothing", readerFails},
		{"an ended context stores nothing", contextEnds},
		{"ranges", ranges},
		{"any valid key works", oddKeys},
		{"bad arguments are invalid", badArguments},
		{"what is missing is not found", missing},
		{"list is in key order and pages by key", lists},
		{"delete", deletes},
		{"create takes a key once", creates},
		{"of concurrent creates one wins", createRace},
		{"readers see whole versions while writers replace", replaceRace},
		{"a key is not also a folder", crossing},
		{"chunks join", chunksJoin},
		{"chunks refuse gaps, overlaps and other bytes", chunksRefuse},
		{"chunks of concurrent writers join", chunksRace},
		{"chunks are deleted", chunksDeleted},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, open(t))
		})
	}
}

// random returns n bytes that depend on n alone.
func random(n int) []byte {
	b := make([]byte, n)
	src := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)})
	_, _ = src.Read(b) // never fails
	return b
}

func put(t *testing.T, s objects.Store, key string, data []byte) {
	t.Helper()
	if _, err := s.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)), ""); err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
}

func get(t *testing.T, s objects.Store, key string) ([]byte, objects.Info) {
	t.Helper()
	r, info, err := s.Get(t.Context(), key, 0, -1)
	if err != nil {
		t.Fatalf("get %q: %v", key, err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read %q: %v", key, err)
	}
	return data, info
}

func keys(t *testing.T, s objects.Store, prefix, after string, limit int) []string {
	t.Helper()
	found, err := s.List(t.Context(), prefix, after, limit)
	if err != nil {
		t.Fatalf("list %q after %q: %v", prefix, after, err)
	}
	var out []string
	for _, o := range found {
		out = append(out, o.Key)
	}
	return out
}

func wantKind(t *testing.T, what string, err error, want fault.Kind) {
	t.Helper()
	if err == nil || fault.KindOf(err) != want {
		t.Errorf("%s: got kind %v, want %v (error: %v)", what, fault.KindOf(err), want, err)
	}
}

func wantDiff(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func roundTrip(t *testing.T, s objects.Store) {
	const part = 8 << 20 // where S3 uploads change their form
	for _, size := range []int{0, 1, 255, 256, 257, 1 << 16, part - 1, part, part + 1} {
		for _, announced := range []bool{true, false} {
			key := fmt.Sprintf("trip/%d-%v", size, announced)
			data, n := random(size), int64(-1)
			if announced {
				n = int64(size)
			}
			before := time.Now().Add(-5 * time.Second) // servers round
			stored, err := s.Put(t.Context(), key, iotest.HalfReader(bytes.NewReader(data)), n, "text/x-log; charset=utf-8")
			if err != nil {
				t.Fatalf("put %s: %v", key, err)
			}
			got, info := get(t, s, key)
			if !bytes.Equal(got, data) {
				t.Errorf("%s: got %d bytes, want %d, or they differ", key, len(got), len(data))
			}
			want := objects.Info{Key: key, Size: int64(size), ContentType: "text/x-log; charset=utf-8"}
			if info.Modified.Before(before) || info.Modified.After(time.Now().Add(5*time.Second)) {
				t.Errorf("%s: modified %v, want about now", key, info.Modified)
			}
			stat, err := s.Stat(t.Context(), key)
			if err != nil {
				t.Fatalf("stat %s: %v", key, err)
			}
			listed, err := s.List(t.Context(), key, "", 1)
			if err != nil || len(listed) != 1 {
				t.Fatalf("list %s: %v, %v", key, listed, err)
			}
			for what, in := range map[string]objects.Info{"put": stored, "get": info, "stat": stat} {
				in.Modified = time.Time{}
				wantDiff(t, what, in, want)
			}
			listed[0].Modified, want.ContentType = time.Time{}, ""
			wantDiff(t, "list", listed[0], want)
		}
	}
	put(t, s, "plain", nil)
	if info, err := s.Stat(t.Context(), "plain"); err != nil || info.ContentType != objects.DefaultContentType {
		t.Errorf("stat: got %+v, %v, want the default content type", info, err)
	}
}

func replaces(t *testing.T, s objects.Store) {
	put(t, s, "k", []byte("first, and longer"))
	r, _, err := s.Get(t.Context(), "k", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := s.Put(t.Context(), "k", strings.NewReader("second"), -1, "text/plain"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "first, and longer" {
		t.Errorf("reader opened before: got %q, %v, want the version it opened", got, err)
	}
	got, info := get(t, s, "k")
	if string(got) != "second" || info.Size != 6 || info.ContentType != "text/plain" {
		t.Errorf("got %q, %+v, want the second version", got, info)
	}
}

func wrongSize(t *testing.T, s objects.Store) {
	put(t, s, "k", []byte("old"))
	for _, size := range []int64{0, 2, 4, 9 << 20} {
		_, err := s.Put(t.Context(), "k", strings.NewReader("new"), size, "")
		wantKind(t, fmt.Sprintf("3 bytes announced as %d", size), err, fault.Invalid)
		_, err = s.Create(t.Context(), "fresh", strings.NewReader("new"), size, "")
		wantKind(t, fmt.Sprintf("create, 3 bytes announced as %d", size), err, fault.Invalid)
	}
	// More than one part, so that the upload has begun when it shows.
	for _, size := range []int64{9<<20 + 1, 9<<20 - 1} {
		_, err := s.Put(t.Context(), "k", bytes.NewReader(random(9<<20)), size, "")
		wantKind(t, fmt.Sprintf("%d bytes announced as %d", 9<<20, size), err, fault.Invalid)
	}
	if got, _ := get(t, s, "k"); string(got) != "old" {
		t.Errorf("got %d bytes, want the old object", len(got))
	}
	wantDiff(t, "keys", keys(t, s, "", "", 10), []string{"k"})
}

func readerFails(t *testing.T, s objects.Store) {
	put(t, s, "k", []byte("old"))
	broken := errors.New("broken")
	for _, n := range []int{0, 10, 9 << 20} {
		r := io.MultiReader(bytes.NewReader(random(n)), iotest.ErrReader(broken))
		if _, err := s.Put(t.Context(), "k", r, -1, ""); !errors.Is(err, broken) {
			t.Errorf("put failing after %d bytes: got %v, want the reader's error", n, err)
		}
		r = io.MultiReader(bytes.NewReader(random(n)), iotest.ErrReader(broken))
		if _, err := s.Create(t.Context(), "fresh", r, int64(n+1), ""); !errors.Is(err, broken) {
			t.Errorf("create failing after %d bytes: got %v, want the reader's error", n, err)
		}
	}
	if got, _ := get(t, s, "k"); string(got) != "old" {
		t.Errorf("got %d bytes, want the old object", len(got))
	}
	wantDiff(t, "keys", keys(t, s, "", "", 10), []string{"k"})
}

// cancelReader cancels after its first bytes.
type cancelReader struct {
	io.Reader
	cancel context.CancelFunc
}

func (r cancelReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.cancel()
	return n, err
}

func contextEnds(t *testing.T, s objects.Store) {
	put(t, s, "k", []byte("old"))
	for _, n := range []int{100, 9 << 20} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := s.Put(ctx, "k", cancelReader{bytes.NewReader(random(n)), cancel}, int64(n), "")
		wantKind(t, fmt.Sprintf("put of %d bytes", n), err, fault.Canceled)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := s.Get(ctx, "k", 0, -1)
	wantKind(t, "get", err, fault.Canceled)
	_, err = s.Stat(ctx, "k")
	wantKind(t, "stat", err, fault.Canceled)
	_, err = s.List(ctx, "", "", 1)
	wantKind(t, "list", err, fault.Canceled)
	wantKind(t, "delete", s.Delete(ctx, "k"), fault.Canceled)
	if got, _ := get(t, s, "k"); string(got) != "old" {
		t.Errorf("got %d bytes, want the old object", len(got))
	}
}

func ranges(t *testing.T, s objects.Store) {
	const whole = "0123456789"
	put(t, s, "k", []byte(whole))
	put(t, s, "empty", nil)
	for _, test := range []struct {
		key            string
		offset, length int64
		want           string
	}{
		{"k", 0, -1, whole}, {"k", 0, 10, whole}, {"k", 0, 11, whole}, {"k", 0, 1, "0"}, {"k", 0, 0, ""},
		{"k", 1, 1, "1"}, {"k", 1, -1, "123456789"}, {"k", 3, 4, "3456"}, {"k", 9, -1, "9"}, {"k", 9, 1, "9"},
		{"k", 9, 5, "9"}, {"k", 10, -1, ""}, {"k", 10, 0, ""}, {"k", 10, 5, ""}, {"k", 5, 0, ""},
		{"k", 2, 1<<63 - 1, "23456789"},
		{"empty", 0, -1, ""}, {"empty", 0, 0, ""}, {"empty", 0, 5, ""},
	} {
		what := fmt.Sprintf("get %s from %d, %d bytes", test.key, test.offset, test.length)
		r, info, err := s.Get(t.Context(), test.key, test.offset, test.length)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		got, err := io.ReadAll(r)
		if err != nil || string(got) != test.want {
			t.Errorf("%s: got %q, %v, want %q", what, got, err, test.want)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: close: %v", what, err)
		}
		if want := int64(len(whole)); test.key == "k" && info.Size != want {
			t.Errorf("%s: info says %d bytes, want those of the whole object: %d", what, info.Size, want)
		}
	}
	for _, offset := range []int64{11, 1 << 40} {
		for _, length := range []int64{-1, 0, 1} {
			_, _, err := s.Get(t.Context(), "k", offset, length)
			wantKind(t, fmt.Sprintf("get from %d, %d bytes", offset, length), err, fault.Invalid)
		}
	}
}

func oddKeys(t *testing.T, s objects.Store) {
	valid := []string{
		"a", "A", "-", "...", ".hidden/x", "a b/c d", "a+b", "a%2Fb", "a&b=c", "a?b", "a#b", "a:b;c,d", "a\\b", "~",
		"中心/作业/日志.log", "emoji/😀", "e\u0301", "\u00e9", "\"quoted\"'", "<xml>&amp;", "[1]{2}|^`", "@$!*()",
		"seg/" + strings.Repeat("s", objects.MaxSegment), "u/" + strings.Repeat("界", objects.MaxSegment/3),
		"l/" + strings.Repeat("0123456789abcde/", (objects.MaxKey-2)/16) + "0123456789abcd",
	}
	for _, key := range valid {
		put(t, s, key, []byte(key))
	}
	for _, key := range valid {
		if got, _ := get(t, s, key); string(got) != key {
			t.Errorf("get %q: got %q", key, got)
		}
	}
	want := slices.Clone(valid)
	slices.Sort(want)
	wantDiff(t, "keys", keys(t, s, "", "", objects.MaxList), want)
	for _, key := range valid {
		wantDiff(t, "keys from "+key, keys(t, s, key, "", 1), []string{key})
		if err := s.Delete(t.Context(), key); err != nil {
			t.Errorf("delete %q: %v", key, err)
		}
	}
	wantDiff(t, "keys after delete", keys(t, s, "", "", 10), []string(nil))
}

func badArguments(t *testing.T, s objects.Store) {
	ctx := t.Context()
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "./a", "../a", "a/..", "a/./b", "a/../../b", "a\x00b", "a\nb", "\x7f", "a\u0085b",
		"\xff", "a\xc3", strings.Repeat("s", objects.MaxSegment+1), strings.Repeat("a/", objects.MaxKey/2) + "a",
	} {
		what := fmt.Sprintf("key %q", key)
		_, err := s.Put(ctx, key, strings.NewReader("x"), 1, "")
		wantKind(t, what+": put", err, fault.Invalid)
		_, err = s.Create(ctx, key, strings.NewReader("x"), 1, "")
		wantKind(t, what+": create", err, fault.Invalid)
		_, _, err = s.Get(ctx, key, 0, -1)
		wantKind(t, what+": get", err, fault.Invalid)
		_, err = s.Stat(ctx, key)
		wantKind(t, what+": stat", err, fault.Invalid)
		wantKind(t, what+": delete", s.Delete(ctx, key), fault.Invalid)
	}
	for _, contentType := range []string{strings.Repeat("x", objects.MaxContentType+1), "a\nb", "a\x00", "é", " a", "a "} {
		_, err := s.Put(ctx, "k", strings.NewReader("x"), 1, contentType)
		wantKind(t, fmt.Sprintf("content type %q", contentType), err, fault.Invalid)
	}
	_, err := s.Put(ctx, "k", strings.NewReader("x"), -2, "")
	wantKind(t, "size -2", err, fault.Invalid)
	_, err = s.Put(ctx, "k", strings.NewReader("x"), objects.MaxSize+1, "")
	wantKind(t, "size above the limit", err, fault.TooLarge)
	_, _, err = s.Get(ctx, "k", -1, 1)
	wantKind(t, "offset -1", err, fault.Invalid)
	_, _, err = s.Get(ctx, "k", 0, -2)
	wantKind(t, "length -2", err, fault.Invalid)
	for _, limit := range []int{-1, 0, objects.MaxList + 1} {
		_, err = s.List(ctx, "", "", limit)
		wantKind(t, fmt.Sprintf("list limit %d", limit), err, fault.Invalid)
	}
	for _, text := range []string{"a\x00", "\xff", strings.Repeat("a", objects.MaxKey+1)} {
		_, err = s.List(ctx, text, "", 1)
		wantKind(t, fmt.Sprintf("list prefix %q", text), err, fault.Invalid)
		_, err = s.List(ctx, "", text, 1)
		wantKind(t, fmt.Sprintf("list after %q", text), err, fault.Invalid)
	}
	_, err = s.List(ctx, "../", "", 1)
	wantKind(t, "list prefix ../", err, fault.Invalid)
	wantDiff(t, "keys", keys(t, s, "", "", 10), []string(nil))
}

func missing(t *testing.T, s objects.Store) {
	put(t, s, "folder/k", []byte("x"))
	for _, key := range []string{"k", "folder", "folder/other", "folder/k/below", "a/b/c"} {
		_, _, err := s.Get(t.Context(), key, 0, -1)
		wantKind(t, "get "+key, err, fault.NotFound)
		_, _, err = s.Get(t.Context(), key, 1, 0)
		wantKind(t, "get nothing of "+key, err, fault.NotFound)
		_, err = s.Stat(t.Context(), key)
		wantKind(t, "stat "+key, err, fault.NotFound)
	}
}

func lists(t *testing.T, s objects.Store) {
	all := []string{
		"a-", "a-b", "a.b", "a/-", "a/0", "a/b-c", "a/b/c", "a/b/d/e", "a/b0", "a/b1/x", "a0", "aa/b", "b", "c/d/e/f/g", "c/d/e/h",
	}
	if !slices.IsSorted(all) {
		t.Fatal("keys of the test are not sorted")
	}
	for _, i := range rand.Perm(len(all)) {
		put(t, s, all[i], []byte(all[i]))
	}
	for _, prefix := range []string{"", "a", "a/", "a/b", "a/b/", "a/b/c", "a/b/c/", "c/d/e", "c/d/x", "zz", "a-"} {
		var want []string
		for _, key := range all {
			if strings.HasPrefix(key, prefix) {
				want = append(want, key)
			}
		}
		wantDiff(t, fmt.Sprintf("prefix %q", prefix), keys(t, s, prefix, "", objects.MaxList), want)
		for limit := 1; limit <= 4; limit++ {
			var got []string
			for after := ""; ; after = got[len(got)-1] {
				page := keys(t, s, prefix, after, limit)
				if len(page) > limit {
					t.Fatalf("prefix %q, limit %d: page of %d", prefix, limit, len(page))
				}
				got = append(got, page...)
				if len(page) < limit {
					break
				}
			}
			wantDiff(t, fmt.Sprintf("prefix %q in pages of %d", prefix, limit), got, want)
		}
		// A position need not be a key.
		for _, after := range append([]string{"0", "a", "a/", "a/a", "a/b", "a/b/", "a/b/zz", "a/b0x", "a1", "z", "zzz"}, all...) {
			want := slices.DeleteFunc(slices.Clone(want), func(k string) bool { return k <= after })
			if len(want) == 0 {
				want = nil
			}
			wantDiff(t, fmt.Sprintf("prefix %q after %q", prefix, after), keys(t, s, prefix, after, objects.MaxList), want)
		}
	}
}

func deletes(t *testing.T, s objects.Store) {
	put(t, s, "a/b/c", []byte("x"))
	put(t, s, "a/b/d", []byte("x"))
	for _, key := range []string{"a", "a/b", "a/b/c/below", "none", "no/ne"} {
		if err := s.Delete(t.Context(), key); err != nil {
			t.Errorf("delete %q, which is not an object: %v", key, err)
		}
	}
	wantDiff(t, "keys", keys(t, s, "", "", 10), []string{"a/b/c", "a/b/d"})
	for range 2 {
		if err := s.Delete(t.Context(), "a/b/c"); err != nil {
			t.Error(err)
		}
		wantDiff(t, "keys", keys(t, s, "", "", 10), []string{"a/b/d"})
	}
	_, err := s.Stat(t.Context(), "a/b/c")
	wantKind(t, "stat", err, fault.NotFound)
	if err := s.Delete(t.Context(), "a/b/d"); err != nil {
		t.Error(err)
	}
	put(t, s, "a", []byte("now an object")) // what was a folder is free
}

func creates(t *testing.T, s objects.Store) {
	for _, n := range []int{0, 5, 9 << 20} {
		for _, size := range []int64{int64(n), -1} {
			key := fmt.Sprintf("k/%d/%d", n, size)
			data := random(n)
			if _, err := s.Create(t.Context(), key, bytes.NewReader(data), size, ""); err != nil {
				t.Fatalf("create %s: %v", key, err)
			}
			_, err := s.Create(t.Context(), key, bytes.NewReader(random(n+1)), -1, "")
			wantKind(t, "create "+key+" again", err, fault.Exists)
			if got, _ := get(t, s, key); !bytes.Equal(got, data) {
				t.Errorf("%s: not what was created first", key)
			}
			if err := s.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Create(t.Context(), key, strings.NewReader("again"), 5, ""); err != nil {
				t.Errorf("create %s after delete: %v", key, err)
			}
		}
	}
}

func createRace(t *testing.T, s objects.Store) {
	for round := range 10 {
		key := fmt.Sprintf("race/%d/k", round)
		const n = 8
		errs := make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				_, errs[i] = s.Create(t.Context(), key, strings.NewReader(fmt.Sprint("writer ", i)), -1, "")
			})
		}
		wg.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Errorf("%s: writers %d and %d both created it", key, winner, i)
			case err == nil:
				winner = i
			case fault.KindOf(err) != fault.Exists:
				t.Errorf("%s: writer %d: got %v, want kind EXISTS", key, i, err)
			}
		}
		if winner < 0 {
			t.Fatalf("%s: nobody created it: %v", key, errs)
		}
		if got, _ := get(t, s, key); string(got) != fmt.Sprint("writer ", winner) {
			t.Errorf("%s: got %q, but writer %d won", key, got, winner)
		}
	}
}

func replaceRace(t *testing.T, s objects.Store) {
	// Each version is one letter repeated; its length follows from it.
	version := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, 1000*(i+1)) }
	put(t, s, "d/k", version(0))
	done := make(chan struct{})
	var writers, readers sync.WaitGroup
	for w := range 3 {
		writers.Go(func() {
			for i := range 30 {
				v := version((w + i) % 26)
				if _, err := s.Put(t.Context(), "d/k", bytes.NewReader(v), int64(len(v)), ""); err != nil {
					t.Errorf("put: %v", err)
				}
				// Deleting a neighbor removes and makes the folder if it is alone.
				key := fmt.Sprintf("d%d/x", w)
				if _, err := s.Put(t.Context(), key, bytes.NewReader(v), -1, ""); err != nil {
					t.Errorf("put: %v", err)
				}
				if err := s.Delete(t.Context(), key); err != nil {
					t.Errorf("delete: %v", err)
				}
			}
		})
	}
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				r, _, err := s.Get(t.Context(), "d/k", 0, -1)
				if err != nil {
					t.Errorf("get: %v", err)
					return
				}
				got, err := io.ReadAll(r)
				r.Close()
				if err != nil || len(got) == 0 || !bytes.Equal(got, version(int(got[0]-'a'))) {
					t.Errorf("read: %v, or %d bytes that are no whole version", err, len(got))
					return
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
}

func crossing(t *testing.T, s objects.Store) {
	put(t, s, "a", []byte("object"))
	put(t, s, "f/x", []byte("in folder"))
	for name, write := range map[string]func(context.Context, string, io.Reader, int64, string) (objects.Info, error){
		"put": s.Put, "create": s.Create,
	} {
		_, err := write(t.Context(), "a/b", strings.NewReader("x"), 1, "")
		wantKind(t, name+" below an object", err, fault.Conflict)
		_, err = write(t.Context(), "a/b/c", strings.NewReader("x"), 1, "")
		wantKind(t, name+" far below an object", err, fault.Conflict)
		_, err = write(t.Context(), "f", strings.NewReader("x"), 1, "")
		wantKind(t, name+" over a folder", err, fault.Conflict)
	}
	wantDiff(t, "keys", keys(t, s, "", "", 10), []string{"a", "f/x"})
}

// tail reads a growing object from offset on.
func tail(t *testing.T, c *objects.Chunks, key string, offset int64) string {
	t.Helper()
	r, err := c.Read(t.Context(), key, offset)
	if err != nil {
		t.Fatalf("read %q from %d: %v", key, offset, err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read %q from %d: %v", key, offset, err)
	}
	return string(got)
}

func appendAt(t *testing.T, c *objects.Chunks, key string, offset int64, data string) int64 {
	t.Helper()
	end, err := c.Append(t.Context(), key, offset, []byte(data))
	if err != nil {
		t.Fatalf("append %q at %d: %v", data, offset, err)
	}
	return end
}

func chunksJoin(t *testing.T, s objects.Store) {
	c := objects.NewChunks(s)
	const key = "jobs/job_1/out.log"
	if size, err := c.Size(t.Context(), key); err != nil || size != 0 {
		t.Fatalf("size of nothing: got %d, %v, want 0", size, err)
	}
	if got := tail(t, c, key, 0); got != "" {
		t.Errorf("read of nothing: got %q", got)
	}
	var want strings.Builder
	for i := range 40 {
		piece := strings.Repeat(fmt.Sprint(i, ";"), i%7+1)
		offset := int64(want.Len())
		want.WriteString(piece)
		for range 1 + i%2 { // some are repeated
			if end := appendAt(t, c, key, offset, piece); end != int64(want.Len()) {
				t.Fatalf("append %d: got end %d, want %d", i, end, want.Len())
			}
		}
		if size, err := c.Size(t.Context(), key); err != nil || size != int64(want.Len()) {
			t.Fatalf("append %d: got size %d, %v, want %d", i, size, err, want.Len())
		}
	}
	for offset := 0; offset <= want.Len(); offset += 1 + offset%29 { // at, before and behind where chunks meet
		if got := tail(t, c, key, int64(offset)); got != want.String()[offset:] {
			t.Fatalf("read from %d: got %q, want %q", offset, got, want.String()[offset:])
		}
	}
	// What comes later is not part of a read that has begun.
	r, err := c.Read(t.Context(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	appendAt(t, c, key, int64(want.Len()), "later")
	if err := iotest.TestReader(r, []byte(want.String())); err != nil {
		t.Errorf("read: %v", err)
	}
	if got := tail(t, c, "jobs/job_1/out", 0); got != "" {
		t.Errorf("an object whose key begins alike: got %q", got)
	}
}

func chunksRefuse(t *testing.T, s objects.Store) {
	c := objects.NewChunks(s)
	appendAt(t, c, "log", 0, "0123456789")
	appendAt(t, c, "log", 10, "abcde")
	for _, test := range []struct {
		why    string
		offset int64
		data   string
		want   fault.Kind
	}{
		{"gap", 16, "x", fault.Conflict},
		{"overlap at the end", 14, "exyz", fault.Conflict},
		{"overlap in the middle", 5, "5", fault.Conflict},
		{"other bytes", 10, "abcdX", fault.Conflict},
		{"fewer bytes", 10, "abc", fault.Conflict},
		{"more bytes", 10, "abcdef", fault.Conflict},
		{"other bytes at the beginning", 0, "X123456789", fault.Conflict},
		{"nothing", 15, "", fault.Invalid},
		{"too much", 15, string(make([]byte, objects.MaxChunk+1)), fault.Invalid},
		{"negative offset", -1, "x", fault.Invalid},
		{"offset above the limit", objects.MaxSize, "x", fault.TooLarge},
	} {
		_, err := c.Append(t.Context(), "log", test.offset, []byte(test.data))
		wantKind(t, test.why, err, test.want)
	}
	_, err := c.Append(t.Context(), "fresh", 1, []byte("x"))
	wantKind(t, "gap at the beginning", err, fault.Conflict)
	_, err = c.Append(t.Context(), "../log", 0, []byte("x"))
	wantKind(t, "bad key", err, fault.Invalid)
	_, err = c.Append(t.Context(), strings.Repeat("a/", objects.MaxKey/2-1)+"a", 0, []byte("x"))
	wantKind(t, "key too long for chunks", err, fault.Invalid)
	_, err = c.Read(t.Context(), "log", 16)
	wantKind(t, "read past the end", err, fault.Invalid)
	_, err = c.Read(t.Context(), "log", -1)
	wantKind(t, "read from -1", err, fault.Invalid)
	if got := tail(t, c, "log", 0); got != "0123456789abcde" {
		t.Errorf("got %q, want it unchanged", got)
	}
	appendAt(t, c, "log", 15, string(make([]byte, objects.MaxChunk)))
}

func chunksRace(t *testing.T, s objects.Store) {
	c := objects.NewChunks(s)
	const writers, each = 4, 8
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				record := fmt.Appendf(nil, "<%d.%d>", w, i)
				for {
					end, err := c.Size(t.Context(), "log")
					if err != nil {
						t.Errorf("size: %v", err)
						return
					}
					if _, err = c.Append(t.Context(), "log", end, record); err == nil {
						break
					}
					if fault.KindOf(err) != fault.Conflict {
						t.Errorf("append: %v", err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	got := tail(t, c, "log", 0)
	records := strings.SplitAfter(got, ">")
	if len(records) != writers*each+1 {
		t.Errorf("got %d records, want %d: %q", len(records)-1, writers*each, got)
	}
	for w := range writers {
		at := -1
		for i := range each {
			next := strings.Index(got, fmt.Sprintf("<%d.%d>", w, i))
			if next <= at {
				t.Errorf("record %d of writer %d is missing or out of order in %q", i, w, got)
			}
			at = next
		}
	}
}

func chunksDeleted(t *testing.T, s objects.Store) {
	c := objects.NewChunks(s)
	put(t, s, "other", []byte("x"))
	for i := range 10 {
		appendAt(t, c, "log", int64(i), "x")
	}
	r, err := c.Read(t.Context(), "log", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Delete(t.Context(), "log"); err != nil {
			t.Fatal(err)
		}
	}
	_, err = io.ReadAll(r)
	wantKind(t, "read of what was deleted", err, fault.NotFound)
	if size, err := c.Size(t.Context(), "log"); err != nil || size != 0 {
		t.Errorf("size: got %d, %v, want 0", size, err)
	}
	wantDiff(t, "keys", keys(t, s, "", "", 10), []string{"other"})
	appendAt(t, c, "log", 0, "anew")
	if got := tail(t, c, "log", 0); got != "anew" {
		t.Errorf("got %q, want %q", got, "anew")
	}
}
