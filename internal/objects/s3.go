package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"yunhe.dev/yunhe/internal/fault"
)

const (
	// partSize is what one request carries: large enough that 10,000 parts
	// reach 78 GiB, small enough to be held in memory for a retry.
	partSize = 8 << 20
	maxParts = 10000 // S3's limit

	// tries per request. With the library's jittered backoff (200 ms doubled,
	// at most 1 s) a restart of the server's front is survived, a user is not
	// kept waiting for more than about 2 s.
	tries = 4

	callTimeout  = 30 * time.Second // for calls that move no content
	stallTimeout = 2 * time.Minute  // without progress, for calls that do
)

// bucket keeps objects in S3-compatible storage.
type bucket struct {
	client   *minio.Client
	core     minio.Core
	name     string
	prefix   string
	endpoint string

	// Tests shorten it.
	stallTimeout time.Duration
}

func openS3(ctx context.Context, t target, accessKey, secretKey string) (*bucket, error) {
	lookup := minio.BucketLookupAuto
	if t.path {
		lookup = minio.BucketLookupPath
	}
	base, err := minio.DefaultTransport(t.secure)
	if err != nil {
		return nil, fmt.Errorf("open object storage: %w", err)
	}
	base.ResponseHeaderTimeout = callTimeout
	client, err := minio.New(t.endpoint, &minio.Options{
		Creds: credentials.NewStaticV4(accessKey, secretKey, ""), Secure: t.secure,
		Region: t.region, BucketLookup: lookup, Transport: transport{base}, MaxRetries: tries,
	})
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "object storage %q cannot be used", t.endpoint)
	}
	b := &bucket{
		client: client, core: minio.Core{Client: client}, name: t.bucket, prefix: t.prefix, endpoint: t.endpoint,
		stallTimeout: stallTimeout,
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// A listing, not BucketExists: a HEAD answer has no room for the reason.
	for o := range client.ListObjectsIter(ctx, t.bucket, minio.ListObjectsOptions{Prefix: t.prefix, MaxKeys: 1}) {
		if o.Err != nil {
			return nil, b.failed(ctx, o.Err, "look for", t.bucket)
		}
		break
	}
	if err := ctx.Err(); err != nil {
		return nil, b.failed(ctx, err, "look for", t.bucket)
	}
	return b, nil
}

// transport makes two things safe that the library leaves to luck.
//
// A server may answer an upload before it has read it, and a body may then
// still be read while the library rewinds it to try again. No body is read
// after the answer has been handed over.
//
// Some servers (seen with versitygw 1.8) take what they did not read of an
// upload (a refused one, or the last chunk of an empty one) for the next
// request and answer it with 400. Whoever uses the connection next may get
// this answer. It becomes a 503, which the library tries again, on a new
// connection.
type transport struct{ http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		body := &guardedBody{ReadCloser: r.Body}
		defer body.end()
		guarded := *r // a RoundTripper does not change its request
		guarded.Body = body
		r = &guarded
	}
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusBadRequest || !resp.Close {
		return resp, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	// Amazon names no such code for a request that it could read, and has no
	// reason to refuse a HEAD of ours, whose answer has no code, as malformed.
	if r.Method == http.MethodHead || bytes.Contains(body, []byte("<Code>BadRequest</Code>")) {
		resp.StatusCode, resp.Status = http.StatusServiceUnavailable, "503 Service Unavailable"
	}
	return resp, nil
}

func (b *bucket) noBucket() error {
	return fault.New(fault.NotFound, "bucket %q does not exist at object storage %s: create it first", b.name, b.endpoint)
}

// guardedBody is a body that can be taken away from its reader.
type guardedBody struct {
	io.ReadCloser

	mu    sync.Mutex // guards ended, and is held while the body is read: from memory
	ended bool
}

func (g *guardedBody) Read(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return 0, errors.New("the request has been answered")
	}
	return g.ReadCloser.Read(p)
}

func (g *guardedBody) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
}

func (b *bucket) Put(ctx context.Context, key string, r io.Reader, size int64, contentType string) (Info, error) {
	return b.write(ctx, key, r, size, minio.PutObjectOptions{ContentType: contentType})
}

func (b *bucket) Create(ctx context.Context, key string, r io.Reader, size int64, contentType string) (Info, error) {
	opts := minio.PutObjectOptions{ContentType: contentType}
	opts.SetMatchETagExcept("*")
	// Spare a large upload if the answer is known; the server decides.
	if size < 0 || size > partSize {
		if _, err := b.Stat(ctx, key); err == nil {
			return Info{}, exists(key)
		} else if fault.KindOf(err) != fault.NotFound {
			return Info{}, err
		}
	}
	return b.write(ctx, key, r, size, opts)
}

func (b *bucket) write(ctx context.Context, key string, r io.Reader, size int64, opts minio.PutObjectOptions) (Info, error) {
	if err := checkPut(key, size, opts.ContentType); err != nil {
		return Info{}, err
	}
	if opts.ContentType == "" {
		opts.ContentType = DefaultContentType
	}
	up, stall := watch(ctx, b.stallTimeout)
	defer stall.stop()
	src := &source{ctx: up, r: r, key: key, size: size, stall: stall}

	// 1. Read the first part: most objects are no larger, and take one request.
	var first bytes.Buffer
	if size >= 0 {
		first.Grow(int(min(size, partSize)) + bytes.MinRead)
	}
	if _, err := first.ReadFrom(io.LimitReader(src, partSize)); err != nil {
		return Info{}, err // of r, or of its size
	}
	if err := ctx.Err(); err != nil {
		return Info{}, err
	}
	length, body := int64(first.Len()), io.Reader(bytes.NewReader(first.Bytes()))

	// 2. Larger ones go part by part, each read into memory to be sent again.
	if length == partSize && size != partSize {
		length, body = -1, io.MultiReader(body, onlyReader{src})
		opts.PartSize = partSize
		if need := (size + maxParts - 1) / maxParts; need > partSize {
			opts.PartSize = uint64((need + (1<<20 - 1)) &^ (1<<20 - 1))
		}
	}
	info, err := b.client.PutObject(up, b.name, b.prefix+key, body, length, opts)
	if failed := src.failed(); failed != nil && !errors.Is(failed, context.Canceled) {
		return Info{}, failed
	}
	if err != nil {
		return Info{}, b.failed(up, err, "store", key)
	}
	modified := info.LastModified
	if modified.IsZero() {
		modified = time.Now()
	}
	return Info{Key: key, Size: src.got, Modified: modified.UTC(), ContentType: opts.ContentType}, nil
}

func (b *bucket) Stat(ctx context.Context, key string) (Info, error) {
	if err := checkKey(key); err != nil {
		return Info{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	o, err := b.client.StatObject(ctx, b.name, b.prefix+key, minio.StatObjectOptions{})
	if err != nil {
		return Info{}, b.failed(ctx, err, "stat", key)
	}
	return Info{Key: key, Size: o.Size, Modified: o.LastModified.UTC(), ContentType: o.ContentType}, nil
}

func (b *bucket) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, Info, error) {
	if err := checkRange(key, offset, length); err != nil {
		return nil, Info{}, err
	}
	// HTTP cannot ask for nothing.
	if length == 0 {
		return b.nothing(ctx, key, offset)
	}
	var opts minio.GetObjectOptions
	if offset > 0 || length > 0 {
		end := int64(0) // to the end
		if length > 0 {
			end = offset + length - 1
			if end < offset { // overflow
				end = 0
			}
		}
		// bytes=0-0 is the first byte; SetRange spells it (0, 0) like "from 0 on".
		switch {
		case end == 0 && offset > 0 && length != 1:
			opts.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		default:
			opts.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, end))
		}
	}
	down, stall := watch(ctx, b.stallTimeout)
	body, o, header, err := b.core.GetObject(down, b.name, b.prefix+key, opts)
	if err != nil {
		err = b.failed(down, err, "get", key)
		stall.stop()
		if fault.KindOf(err) == fault.Invalid { // the range: empty, or past the end
			return b.nothing(ctx, key, offset)
		}
		return nil, Info{}, err
	}
	info := Info{Key: key, Size: o.Size, Modified: o.LastModified.UTC(), ContentType: o.ContentType}
	if total, ok := totalSize(header); ok {
		info.Size = total
	}
	return &bodyReader{b: b, ctx: down, key: key, body: body, stall: stall}, info, nil
}

// nothing answers a Get whose range is empty.
func (b *bucket) nothing(ctx context.Context, key string, offset int64) (io.ReadCloser, Info, error) {
	info, err := b.Stat(ctx, key)
	if err != nil {
		return nil, Info{}, err
	}
	if offset > info.Size {
		return nil, Info{}, pastEnd(key, offset, info.Size)
	}
	return io.NopCloser(strings.NewReader("")), info, nil
}

// totalSize returns the size of the whole object from the answer to a range
// request: "Content-Range: bytes 0-9/20".
func totalSize(h http.Header) (int64, bool) {
	_, total, ok := strings.Cut(h.Get("Content-Range"), "/")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(total, 10, 64)
	return n, err == nil
}

// bodyReader reads an answer and ends if the server stops sending.
type bodyReader struct {
	b     *bucket
	ctx   context.Context
	key   string
	body  io.ReadCloser
	stall *stall
}

func (r *bodyReader) Read(p []byte) (int, error) {
	r.stall.resume()
	n, err := r.body.Read(p)
	r.stall.pause() // the caller may take its time
	if err != nil && err != io.EOF {
		err = r.b.failed(r.ctx, err, "read", r.key)
	}
	return n, err
}

func (r *bodyReader) Close() error {
	r.stall.stop()
	return r.body.Close()
}

func (b *bucket) List(ctx context.Context, prefix, after string, limit int) ([]Info, error) {
	if err := checkList(prefix, after, limit); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	opts := minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true, MaxKeys: limit}
	if after != "" {
		opts.StartAfter = b.prefix + after
	}
	var found []Info
	for o := range b.client.ListObjectsIter(ctx, b.name, opts) {
		if o.Err != nil {
			return nil, b.failed(ctx, o.Err, "list", prefix)
		}
		key := strings.TrimPrefix(o.Key, b.prefix)
		// Other programs leave keys that we could not name, such as "dir/".
		if checkKey(key) != nil || key <= after {
			continue
		}
		found = append(found, Info{Key: key, Size: o.Size, Modified: o.LastModified.UTC()})
		if len(found) == limit {
			break
		}
	}
	// The iterator ends without a word when its context does.
	if err := ctx.Err(); err != nil && len(found) < limit {
		return nil, b.failed(ctx, err, "list", prefix)
	}
	return found, nil
}

func (b *bucket) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := b.client.RemoveObject(ctx, b.name, b.prefix+key, minio.RemoveObjectOptions{})
	if err != nil {
		if err := b.failed(ctx, err, "delete", key); fault.KindOf(err) != fault.NotFound {
			return err
		}
	}
	return nil
}

// failed classifies an error of the library. ctx is that of the call.
func (b *bucket) failed(ctx context.Context, err error, verb, key string) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStalled):
		return fault.Wrap(fault.Unavailable, err, "object storage %s made no progress for %s: %s object %q", b.endpoint, b.stallTimeout, verb, key)
	case errors.Is(cause, context.DeadlineExceeded):
		return fault.Wrap(fault.Unavailable, err, "object storage %s did not answer in time: %s object %q", b.endpoint, verb, key)
	case cause != nil:
		return fmt.Errorf("%s object %q: %w", verb, key, cause)
	}
	r := minio.ToErrorResponse(err)
	switch r.Code {
	case "NoSuchKey", "NotFound":
		return notFound(key)
	case "NoSuchBucket":
		return b.noBucket()
	case "InvalidRange":
		return fault.Wrap(fault.Invalid, err, "range is not in object %q", key)
	case "PreconditionFailed", "ConditionalRequestConflict":
		return exists(key)
	case "ObjectParentIsFile", "ExistingObjectIsDirectory", "ObjectExistsAsDirectory", "ParentIsObject", "XMinioParentIsObject", "XMinioObjectExistsAsDirectory":
		return crossed(key)
	case "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "XAdminUserNotFound", "AllAccessDisabled":
		return fault.Wrap(fault.Denied, err, "object storage %s refuses the access key for bucket %q", b.endpoint, b.name)
	case "EntityTooLarge":
		return fault.Wrap(fault.TooLarge, err, "object %q is too large for object storage %s: at most %d parts of %d bytes if the size is not announced",
			key, b.endpoint, maxParts, partSize)
	case "QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull":
		return fault.Wrap(fault.Exhausted, err, "object %q cannot be stored: object storage %s is full", key, b.endpoint)
	}
	switch {
	case r.StatusCode == http.StatusNotFound:
		return notFound(key)
	case r.StatusCode == http.StatusPreconditionFailed:
		return exists(key)
	case r.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return fault.Wrap(fault.Invalid, err, "range is not in object %q", key)
	case r.StatusCode == http.StatusForbidden || r.StatusCode == http.StatusUnauthorized:
		return fault.Wrap(fault.Denied, err, "object storage %s refuses the access key for bucket %q", b.endpoint, b.name)
	case r.StatusCode >= 400 && r.StatusCode < 500 && r.StatusCode != http.StatusTooManyRequests && r.StatusCode != http.StatusRequestTimeout:
		return fmt.Errorf("%s object %q: %w", verb, key, err)
	}
	// What is left never reached the server, or the server is in trouble.
	return fault.Wrap(fault.Unavailable, err, "object storage %s does not answer (tried %d times): %s object %q", b.endpoint, tries, verb, key)
}
