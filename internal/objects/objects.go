// Package objects keeps blobs: job logs, datasets, artifacts, reports. The
// default engine is a local folder; any S3-compatible storage takes its place
// by configuration alone. Both pass the suite in objectstest.
//
// What the package keeps true, on either engine:
//
//   - An object is there whole or not at all. A reader never sees half an
//     upload, whenever the writer or the machine stopped; a reader that opened
//     an object reads that version to its end, whatever happens to the key.
//   - When Put or Create returned nil, the object survives the end of this
//     process and, in a folder, of the machine (file and directory entry are
//     synced; in S3 it is the server's promise).
//   - Create gives a key to exactly one of its callers. [Chunks] builds growing
//     objects on that alone, without locks.
//   - List is ordered by the bytes of the key and pages by key, never by
//     offset.
//
// A key is a path of segments, "jobs/job_01J/out.log". A key cannot also be a
// folder of others ("a" next to "a/b"): the folder engine and most S3 servers
// refuse that with [fault.Conflict].
//
// # The folder
//
//	root/objects/<key>   the content, then a trailer of 256 bytes of text
//	root/tmp/put-*       uploads in progress, locked by their writer
//
// A put writes and syncs a file in tmp and renames it (Create links it) into
// place, so a kill leaves nothing but a file in tmp, which the next Open
// removes. The trailer holds size, CRC-32C and content type: one file, one
// rename, no side file to fall out of step, and damage is noticed when the
// object is read to its end. `head -c -256` shows the content.
//
// # S3
//
// Objects up to 8 MiB are one request; larger ones are multipart uploads whose
// parts are held in memory (8 MiB per running put, more above 78 GiB) so that
// each can be sent again. A request is tried up to 4 times with jitter; a call
// without progress for 2 minutes ends. Both end as [fault.Unavailable]. Create
// needs a server that honors If-None-Match on writes (Amazon S3 since 2024,
// MinIO, versitygw, Ceph); one that ignores it turns Create into Put.
package objects

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"yunhe.dev/yunhe/internal/fault"
)

// Limits of every engine: the tightest of what file systems and S3 allow, so
// that a platform can move from one to the other.
const (
	MaxKey         = 512     // bytes in a key
	MaxSegment     = 255     // bytes between two slashes: what file systems allow in a name
	MaxContentType = 127     // bytes
	MaxList        = 1000    // objects in one List
	MaxSize        = 5 << 40 // bytes in an object: S3's limit
)

// DefaultContentType is what an object put with an empty content type has.
const DefaultContentType = "application/octet-stream"

// Info describes an object.
type Info struct {
	Key         string
	Size        int64     // bytes
	Modified    time.Time // UTC; S3 servers may round to seconds
	ContentType string    // empty in what List returns
}

// Store keeps objects. It has two implementations, a folder and S3, and is
// safe for concurrent use. Every method returns fault.Invalid for a bad
// argument, fault.Unavailable when the storage does not answer in time,
// fault.Denied when it refuses the credentials, fault.Canceled when ctx ended.
type Store interface {
	// Put stores what r holds under key, in place of what was there. size is
	// the number of bytes in r, -1 if unknown; a reader with more or fewer is
	// fault.Invalid and stores nothing. An error of r is returned as it is and
	// stores nothing. Other kinds: Conflict if key is a folder of other keys
	// or lies under one that is an object, Exhausted if the storage is full,
	// TooLarge above MaxSize. The returned Info is that of the stored object;
	// its Modified may differ from Stat's by the clock of the server.
	Put(ctx context.Context, key string, r io.Reader, size int64, contentType string) (Info, error)

	// Create is Put for a key that MUST NOT be there: fault.Exists if it is.
	// Of several concurrent calls for a key exactly one succeeds. A caller
	// whose answer was lost may get Exists for its own object.
	Create(ctx context.Context, key string, r io.Reader, size int64, contentType string) (Info, error)

	// Get opens length bytes of an object from offset on; length -1 means to
	// its end. A range that reaches past the end is cut there; an offset past
	// the end is Invalid. Info describes the whole object. The caller closes
	// the reader; ctx MUST live until then. Kinds: NotFound. A reader of a
	// whole object in a damaged file ends in an Internal error, not in EOF.
	Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, Info, error)

	// Stat describes an object. Kinds: NotFound.
	Stat(ctx context.Context, key string) (Info, error)

	// List returns up to limit (1 to MaxList) objects whose keys begin with
	// prefix and are greater than after, in byte order of their keys. To page,
	// pass the last key as after; fewer than limit means there are no more.
	List(ctx context.Context, prefix, after string, limit int) ([]Info, error)

	// Delete removes an object. One that is not there is no error.
	Delete(ctx context.Context, key string) error
}

// Config says where objects are kept.
type Config struct {
	// URL is a folder, as a path or file:///path, or
	// s3://bucket/prefix?endpoint=https://host:port&region=name&style=path.
	// endpoint is required; region defaults to us-east-1, which servers
	// without regions expect; style=path forces bucket names into the path.
	URL string
	// AccessKey and SecretKey are the credentials for S3.
	AccessKey string
	SecretKey string
}

// String returns the configuration without its secrets.
func (c Config) String() string {
	if c.AccessKey == "" && c.SecretKey == "" {
		return c.URL
	}
	return c.URL + " (with credentials)"
}

// GoString is String: %#v must not show secrets either.
func (c Config) GoString() string { return c.String() }

// Validate returns fault.Invalid with every wrong field.
func (c Config) Validate() error {
	_, err := c.parse()
	return err
}

// target is a parsed Config.
type target struct {
	folder string // empty for S3

	endpoint string // host:port
	secure   bool
	region   string
	bucket   string
	prefix   string // empty, or ends in a slash
	path     bool   // bucket in the path, not in the host name
}

func (c Config) parse() (target, error) {
	bad := func(format string, args ...any) (target, error) {
		return target{}, fault.Fields(fault.Field{Path: "url", Problem: fmt.Sprintf(format, args...)})
	}
	if c.URL == "" {
		return bad("must be a folder or an s3:// address, got nothing")
	}
	if !strings.Contains(c.URL, "://") {
		return target{folder: filepath.Clean(c.URL)}, nil
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return bad("is not an address") // url.Error repeats the text, which may hold a password
	}
	if u.User != nil {
		return bad("must not hold credentials: they belong in access_key and secret_key")
	}
	switch u.Scheme {
	case "file":
		if u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" {
			return bad("must be file:///absolute/path, got %q", c.URL)
		}
		return target{folder: filepath.Clean(u.Path)}, nil
	case "s3":
		return c.parseS3(u)
	}
	return bad("must be a path or begin with file:// or s3://, got %q", u.Scheme+"://")
}

func (c Config) parseS3(u *url.URL) (target, error) {
	var fields []fault.Field
	bad := func(path, format string, args ...any) {
		fields = append(fields, fault.Field{Path: path, Problem: fmt.Sprintf(format, args...)})
	}
	t := target{bucket: u.Host, region: "us-east-1", prefix: strings.Trim(u.Path, "/")}
	if n := len(t.bucket); n < 3 || n > 63 {
		bad("url", "bucket name must have 3 to 63 characters, got %q", t.bucket)
	}
	if t.prefix != "" {
		// S3 allows keys of 1,024 bytes: what MaxKey leaves, less the slash.
		if err := checkKey(t.prefix); err != nil || len(t.prefix) > 1024-MaxKey-1 {
			bad("url", "prefix must be a key of at most %d bytes, got %q", 1024-MaxKey-1, t.prefix)
		}
		t.prefix += "/"
	}
	for name, values := range u.Query() {
		value := values[len(values)-1]
		switch name {
		case "endpoint":
			e, err := url.Parse(value)
			if err != nil || (e.Scheme != "http" && e.Scheme != "https") || e.Host == "" ||
				e.User != nil || strings.Trim(e.Path, "/") != "" || e.RawQuery != "" {
				bad("url", "endpoint must be http(s)://host:port, got %q", value)
				continue
			}
			t.endpoint, t.secure = e.Host, e.Scheme == "https"
		case "region":
			t.region = value
		case "style":
			if value != "path" && value != "host" {
				bad("url", "style must be path or host, got %q", value)
			}
			t.path = value == "path"
		default:
			bad("url", "unknown parameter %q: known are endpoint, region, style", name)
		}
	}
	if t.endpoint == "" && !u.Query().Has("endpoint") {
		bad("url", "endpoint is missing: s3://bucket/prefix?endpoint=https://host:port")
	}
	if c.AccessKey == "" {
		bad("access_key", "must be set for s3://")
	}
	if c.SecretKey == "" {
		bad("secret_key", "must be set for s3://")
	}
	return t, fault.Fields(fields...)
}

// Open returns the store that c names. A folder is created if it is missing
// and cleared of uploads that a kill left behind. A bucket MUST exist:
// fault.NotFound if it does not. There is nothing to close.
func Open(ctx context.Context, c Config) (Store, error) {
	t, err := c.parse()
	if err != nil {
		return nil, err
	}
	if t.folder != "" {
		return openFolder(t.folder)
	}
	return openS3(ctx, t, c.AccessKey, c.SecretKey)
}

// checkKey returns fault.Invalid, naming the limit, if key is not one.
func checkKey(key string) error {
	if key == "" {
		return fault.New(fault.Invalid, "object key is empty: 1 to %d bytes are allowed", MaxKey)
	}
	if err := checkText("object key", key); err != nil {
		return err
	}
	for s := range strings.SplitSeq(key, "/") {
		switch {
		case s == "":
			return fault.New(fault.Invalid, "object key %q has an empty segment: no leading, trailing or double slash is allowed", key)
		case s == "." || s == "..":
			return fault.New(fault.Invalid, "object key %q has the segment %q, which is not allowed", key, s)
		case len(s) > MaxSegment:
			return fault.New(fault.Invalid, "object key %q has a segment of %d bytes, %d are allowed", key, len(s), MaxSegment)
		}
	}
	return nil
}

// checkText is what keys, prefixes and list positions have in common.
func checkText(what, s string) error {
	if len(s) > MaxKey {
		return fault.New(fault.Invalid, "%s has %d bytes, %d are allowed", what, len(s), MaxKey)
	}
	if !utf8.ValidString(s) {
		return fault.New(fault.Invalid, "%s %q is not valid UTF-8", what, s)
	}
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		return fault.New(fault.Invalid, "%s %q has a control character at byte %d", what, s, i)
	}
	return nil
}

func checkPut(key string, size int64, contentType string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if size < -1 {
		return fault.New(fault.Invalid, "size of object %q must be at least 0, or -1 if unknown, got %d", key, size)
	}
	if size > MaxSize {
		return fault.New(fault.TooLarge, "object %q has %d bytes, %d are allowed", key, size, int64(MaxSize))
	}
	if len(contentType) > MaxContentType {
		return fault.New(fault.Invalid, "content type of object %q has %d bytes, %d are allowed", key, len(contentType), MaxContentType)
	}
	if strings.Trim(contentType, " ") != contentType {
		return fault.New(fault.Invalid, "content type %q of object %q begins or ends with a space", contentType, key)
	}
	for i := range len(contentType) {
		if b := contentType[i]; b < ' ' || b > '~' {
			return fault.New(fault.Invalid, "content type %q of object %q has a character that is not printable ASCII", contentType, key)
		}
	}
	return nil
}

func checkRange(key string, offset, length int64) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if offset < 0 {
		return fault.New(fault.Invalid, "offset in object %q must be at least 0, got %d", key, offset)
	}
	if length < -1 {
		return fault.New(fault.Invalid, "length of object %q must be at least 0, or -1 for all, got %d", key, length)
	}
	return nil
}

func checkList(prefix, after string, limit int) error {
	if limit < 1 || limit > MaxList {
		return fault.New(fault.Invalid, "list limit must be 1 to %d, got %d", MaxList, limit)
	}
	if err := checkText("list prefix", prefix); err != nil {
		return err
	}
	for s := range strings.SplitSeq(prefix, "/") {
		if s == "." || s == ".." {
			return fault.New(fault.Invalid, "list prefix %q has the segment %q, which is not allowed", prefix, s)
		}
	}
	return checkText("list position", after)
}

func pastEnd(key string, offset, size int64) error {
	return fault.New(fault.Invalid, "offset %d is past the end of object %q, which has %d bytes", offset, key, size)
}

func notFound(key string) error { return fault.New(fault.NotFound, "object %q does not exist", key) }

func exists(key string) error { return fault.New(fault.Exists, "object %q exists", key) }

func crossed(key string) error {
	return fault.New(fault.Conflict, "object %q cannot be stored: a key cannot be both an object and a folder of objects", key)
}
