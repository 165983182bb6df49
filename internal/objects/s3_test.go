package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
)

// realS3 starts a server with a bucket and returns a configuration for it
// without a prefix.
func realS3(t testing.TB) Config {
	s3 := enginetest.S3(t)
	client, err := minio.New(s3.Endpoint, &minio.Options{
		Creds: credentials.NewStaticV4(s3.AccessKey, s3.SecretKey, ""),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.MakeBucket(t.Context(), "yunhe", minio.MakeBucketOptions{Region: s3.Region}); err != nil {
		t.Fatal(err)
	}
	return Config{
		URL:       "s3://yunhe?endpoint=" + s3.URL + "&region=" + s3.Region,
		AccessKey: s3.AccessKey, SecretKey: s3.SecretKey,
	}
}

func wantKind(t *testing.T, what string, err error, want fault.Kind) {
	t.Helper()
	if err == nil || fault.KindOf(err) != want {
		t.Errorf("%s: got kind %v, want %v (error: %v)", what, fault.KindOf(err), want, err)
	}
}

func TestOpenS3Refuses(t *testing.T) {
	t.Parallel()
	c := realS3(t)
	_, err := Open(t.Context(), Config{URL: strings.Replace(c.URL, "//yunhe", "//other", 1), AccessKey: c.AccessKey, SecretKey: c.SecretKey})
	wantKind(t, "a bucket that is not there", err, fault.NotFound)
	_, err = Open(t.Context(), Config{URL: c.URL, AccessKey: c.AccessKey, SecretKey: "wrong"})
	wantKind(t, "a wrong secret", err, fault.Denied)
	if err != nil && strings.Contains(err.Error(), "wrong") {
		t.Errorf("error shows the secret: %v", err)
	}
	_, err = Open(t.Context(), Config{URL: c.URL, AccessKey: "nobody", SecretKey: c.SecretKey})
	wantKind(t, "a wrong access key", err, fault.Denied)
}

func TestS3IgnoresForeignKeys(t *testing.T) {
	t.Parallel()
	c := realS3(t)
	c.URL = strings.Replace(c.URL, "yunhe?", "yunhe/pre/fix?", 1)
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	b := s.(*bucket)
	for _, key := range []string{"pre/fix/dir/", "pre/fixed", "other"} {
		if _, err := b.client.PutObject(t.Context(), "yunhe", key, strings.NewReader(""), 0, minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Put(t.Context(), "mine", strings.NewReader("x"), 1, ""); err != nil {
		t.Fatal(err)
	}
	found, err := s.List(t.Context(), "", "", 10)
	if err != nil || len(found) != 1 || found[0].Key != "mine" {
		t.Errorf("list: got %v, %v, want only what is under the prefix and has a valid key", found, err)
	}
}

// fakeS3 answers what no healthy server does.
func fakeS3(t *testing.T, answer http.HandlerFunc) *bucket {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("list-type") { // to open the bucket
			_, _ = io.WriteString(w, "<ListBucketResult></ListBucketResult>")
			return
		}
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	s, err := Open(t.Context(), Config{URL: "s3://yunhe?endpoint=" + server.URL, AccessKey: "a", SecretKey: "secretsecret"})
	if err != nil {
		t.Fatal(err)
	}
	return s.(*bucket)
}

func TestS3RetriesWithAnEnd(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	var healAt int64 = 3
	b := fakeS3(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if n := requests.Add(1); healAt == 0 || n < healAt {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	if _, err := b.Put(t.Context(), "k", strings.NewReader("x"), 1, ""); err != nil {
		t.Errorf("put on a server that recovers: %v", err)
	}
	if n := requests.Load(); n != healAt {
		t.Errorf("got %d requests, want %d", n, healAt)
	}
	requests.Store(0)
	healAt = 0
	_, err := b.Put(t.Context(), "k", strings.NewReader("x"), 1, "")
	wantKind(t, "put on a server that does not recover", err, fault.Unavailable)
	if n := requests.Load(); n != tries {
		t.Errorf("got %d requests, want %d", n, tries)
	}
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("tried %d times", tries)) {
		t.Errorf("error does not name the limit: %v", err)
	}
}

func TestS3TriesAgainOnAConfusedConnection(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	b := fakeS3(t, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1)%2 == 1 {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, "<Error><Code>BadRequest</Code></Error>")
			return
		}
		if r.Method == http.MethodHead {
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			return
		}
		if data, _ := io.ReadAll(r.Body); !strings.Contains(string(data), "content") {
			t.Errorf("second request has body %q", data)
		}
	})
	if _, err := b.Put(t.Context(), "k", strings.NewReader("content"), 7, ""); err != nil {
		t.Errorf("put: %v", err)
	}
	if _, err := b.Stat(t.Context(), "k"); err != nil { // whose answer has no body to recognize
		t.Errorf("stat: %v", err)
	}
}

func TestS3Unreachable(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close() // the port is now closed
	_, err := Open(t.Context(), Config{URL: "s3://yunhe?endpoint=" + server.URL, AccessKey: "a", SecretKey: "secretsecret"})
	wantKind(t, "open", err, fault.Unavailable)
}

func TestS3EndsWhatStalls(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b := fakeS3(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Length", "10")
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			_, _ = w.Write([]byte("12345"))
			w.(http.Flusher).Flush()
		}
		<-release
	})
	t.Cleanup(func() { close(release) }) // before the server closes
	b.stallTimeout = 50 * time.Millisecond
	_, err := b.Put(t.Context(), "k", strings.NewReader("x"), 1, "")
	wantKind(t, "put", err, fault.Unavailable)
	r, _, err := b.Get(t.Context(), "k", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	wantKind(t, "read", err, fault.Unavailable)
	if string(got) != "12345" {
		t.Errorf("got %q before the stall, want %q", got, "12345")
	}
}

// slowReader takes its time for every byte.
type slowReader struct{ left int }

func (r *slowReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	r.left--
	time.Sleep(time.Hour)
	p[0] = 'x'
	return 1, nil
}

func TestStallTimesTheStorageAndNotTheCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, s := watch(t.Context(), time.Minute)
		defer s.stop()
		src := &source{ctx: ctx, r: &slowReader{left: 24}, key: "k", size: 24, stall: s}
		if data, err := io.ReadAll(src); err != nil || len(data) != 24 {
			t.Fatalf("read over a day: got %d bytes, %v, want 24", len(data), err)
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Error("ended before the storage had a minute")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if cause := context.Cause(ctx); !errors.Is(cause, errStalled) {
			t.Errorf("after a minute without progress: got cause %v, want a stall", cause)
		}
	})
}
