package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"yunhe.dev/yunhe/internal/fault"
)

// MaxChunk is the number of bytes in one append to a growing object.
const MaxChunk = 4 << 20

// maxChunksKey leaves room for what a chunk adds to the key.
const maxChunksKey = MaxKey - len("/") - 2*offsetDigits - len("-")

const offsetDigits = 19 // of math.MaxInt64

// Chunks keeps growing objects, such as the log of a running job. A growing
// object is a sequence of bytes, stored as immutable objects:
//
//	<key>/<math.MaxInt64 - offset, 19 digits>-<offset>
//
// The chunks of an object always join without gap or overlap from offset 0 on,
// whoever appends, however often, and wherever a writer was killed: a chunk is
// accepted only at the end, and its name, made of the offset alone, is given
// away once by [Store.Create]. The inverted offset puts the newest chunk first
// in a listing, so finding the end is one request however long the object is.
//
// An object that nobody appended to is empty; there is no other trace of it.
type Chunks struct{ store Store }

// NewChunks returns the growing objects in s.
func NewChunks(s Store) *Chunks { return &Chunks{store: s} }

func chunkName(key string, offset int64) string {
	return fmt.Sprintf("%s/%019d-%d", key, math.MaxInt64-offset, offset)
}

func checkChunks(key string, offset int64) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if len(key) > maxChunksKey {
		return fault.New(fault.Invalid, "key of growing object has %d bytes, %d are allowed", len(key), maxChunksKey)
	}
	if offset < 0 {
		return fault.New(fault.Invalid, "offset in object %q must be at least 0, got %d", key, offset)
	}
	return nil
}

// Size returns the number of bytes appended to key so far, 0 if none.
func (c *Chunks) Size(ctx context.Context, key string) (int64, error) {
	if err := checkChunks(key, 0); err != nil {
		return 0, err
	}
	_, end, err := c.seek(ctx, key, math.MaxInt64)
	return end, err
}

// seek returns where the last chunk that begins at or before offset begins and
// ends; 0, 0 if there is none.
func (c *Chunks) seek(ctx context.Context, key string, offset int64) (begin, end int64, err error) {
	// "-" sorts before every digit, so this precedes the chunk at offset.
	after := fmt.Sprintf("%s/%019d", key, math.MaxInt64-offset)
	found, err := c.store.List(ctx, key+"/", after, 1)
	if err != nil || len(found) == 0 {
		return 0, 0, err
	}
	name := found[0].Key
	_, digits, _ := strings.Cut(name[len(key)+1:], "-")
	begin, err = strconv.ParseInt(digits, 10, 64)
	if err != nil || chunkName(key, begin) != name {
		return 0, 0, fmt.Errorf("object %q is not a chunk of %q", name, key)
	}
	return begin, begin + found[0].Size, nil
}

// Append adds data (1 to MaxChunk bytes) at offset, which MUST be the end of
// the object, and returns the new end. An append that was made before, with
// the same offset and bytes, succeeds and changes nothing, so a caller that
// saw no answer repeats it. Anything else is fault.Conflict: a gap, an
// overlap, other bytes; the caller asks Size where to go on. data is not
// retained.
func (c *Chunks) Append(ctx context.Context, key string, offset int64, data []byte) (end int64, err error) {
	if err := checkChunks(key, offset); err != nil {
		return 0, err
	}
	if len(data) == 0 || len(data) > MaxChunk {
		return 0, fault.New(fault.Invalid, "append to object %q has %d bytes, 1 to %d are allowed", key, len(data), MaxChunk)
	}
	if offset > MaxSize-int64(len(data)) {
		return 0, fault.New(fault.TooLarge, "append to object %q ends past %d bytes", key, int64(MaxSize))
	}
	_, size, err := c.seek(ctx, key, math.MaxInt64)
	if err != nil {
		return 0, err
	}
	if offset > size {
		return 0, fault.New(fault.Conflict, "append to object %q leaves a gap: it ends at %d, the append begins at %d", key, size, offset)
	}
	end = offset + int64(len(data))
	if offset == size {
		_, err := c.store.Create(ctx, chunkName(key, offset), bytes.NewReader(data), int64(len(data)), "")
		if fault.KindOf(err) != fault.Exists {
			return end, err
		}
		// Another append took the place since, or this one did before a retry.
	}
	return end, c.same(ctx, key, offset, data)
}

// same returns nil if the chunk at offset holds data.
func (c *Chunks) same(ctx context.Context, key string, offset int64, data []byte) error {
	r, info, err := c.store.Get(ctx, chunkName(key, offset), 0, -1)
	if fault.KindOf(err) == fault.NotFound {
		return fault.New(fault.Conflict, "append to object %q at %d overlaps what is there", key, offset)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	if info.Size != int64(len(data)) {
		return fault.New(fault.Conflict, "append to object %q at %d has %d bytes, the one made there before has %d", key, offset, len(data), info.Size)
	}
	old, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if !bytes.Equal(old, data) {
		return fault.New(fault.Conflict, "append to object %q at %d differs from the one made there before", key, offset)
	}
	return nil
}

// Read opens what was appended to key up to now, from offset on. An offset
// past the end is fault.Invalid. The caller closes the reader; ctx MUST live
// until then. If the object is deleted meanwhile, the reader ends in
// fault.NotFound, not in EOF.
func (c *Chunks) Read(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	if err := checkChunks(key, offset); err != nil {
		return nil, err
	}
	_, size, err := c.seek(ctx, key, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	if offset > size {
		return nil, pastEnd(key, offset, size)
	}
	r := &chunkReader{ctx: ctx, chunks: c, key: key, next: offset, end: size}
	if offset < size {
		begin, end, err := c.seek(ctx, key, offset)
		if err != nil {
			return nil, err
		}
		if end <= offset {
			return nil, notFound(key) // deleted meanwhile
		}
		r.next, r.skip = begin, offset-begin
	}
	return r, nil
}

// chunkReader reads one chunk after the other; each begins where the one
// before it ends.
type chunkReader struct {
	ctx    context.Context
	chunks *Chunks
	key    string
	next   int64 // where the next chunk begins
	skip   int64 // bytes of it to pass over
	end    int64

	body io.ReadCloser // of the open chunk, nil if none
	left int64         // bytes of it to read
	err  error
}

func (r *chunkReader) Read(p []byte) (int, error) {
	if len(p) == 0 || r.err != nil {
		return 0, r.err
	}
	for {
		if r.body == nil {
			if r.err = r.open(); r.err != nil {
				return 0, r.err
			}
		}
		n, err := r.body.Read(p)
		r.left -= int64(n)
		if err == io.EOF {
			err = r.closeChunk()
			if r.left > 0 {
				err = fmt.Errorf("chunk of object %q before %d is short of %d bytes", r.key, r.next, r.left)
			}
		}
		r.err = err
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

func (r *chunkReader) open() error {
	if r.next >= r.end {
		return io.EOF
	}
	body, info, err := r.chunks.store.Get(r.ctx, chunkName(r.key, r.next), r.skip, -1)
	if fault.KindOf(err) == fault.NotFound {
		return fault.New(fault.NotFound, "object %q was deleted while it was read", r.key)
	}
	if err != nil {
		return err
	}
	if info.Size <= r.skip {
		body.Close()
		return fmt.Errorf("chunk of object %q at %d has %d bytes, more than %d are expected", r.key, r.next, info.Size, r.skip)
	}
	r.body, r.left = body, info.Size-r.skip
	r.next, r.skip = r.next+info.Size, 0
	return nil
}

func (r *chunkReader) closeChunk() error {
	if r.body == nil {
		return nil
	}
	err := r.body.Close()
	r.body = nil
	return err
}

func (r *chunkReader) Close() error {
	err := r.closeChunk()
	r.err = errors.New("read after close")
	return err
}

// Delete removes the object, newest chunk first: if it stops halfway, a
// shorter object remains and the call can be repeated. The caller makes sure
// that nobody appends meanwhile.
func (c *Chunks) Delete(ctx context.Context, key string) error {
	if err := checkChunks(key, 0); err != nil {
		return err
	}
	for {
		found, err := c.store.List(ctx, key+"/", "", MaxList)
		if err != nil {
			return err
		}
		for _, o := range found {
			if err := c.store.Delete(ctx, o.Key); err != nil {
				return err
			}
		}
		if len(found) < MaxList {
			return nil
		}
	}
}
