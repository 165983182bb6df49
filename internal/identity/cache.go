package identity

import (
	"crypto/sha256"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/core"
)

// entry is what the database said of one key. Once cached it is never changed.
type entry struct {
	known   bool // false: there is no such key
	hash    [sha256.Size]byte
	caller  core.Caller
	expires time.Time // zero: never
	revoked bool
	read    time.Time
}

// fresh is how long an entry is believed: the time within which another
// process's revocation takes effect.
const fresh = 2 * time.Second

// maxCached bounds the keys remembered: at about 400 bytes each some 4 MB.
// maxUnknown bounds the keys remembered as not existing; they have room of
// their own so that junk cannot push out keys in use.
const (
	maxCached  = 10_000
	maxUnknown = 1_000
)

// cache remembers keys for a short time.
type cache struct {
	mu      sync.RWMutex // guards the fields below
	known   map[keyID]*entry
	unknown map[keyID]*entry
	changes uint64 // local changes so far: what was read before one is not stored after it
}

func newCache() *cache {
	return &cache{known: map[keyID]*entry{}, unknown: map[keyID]*entry{}}
}

// get returns the entry, nil if there is none that is fresh, and the number
// put wants back.
func (c *cache) get(id keyID, now time.Time) (*entry, uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e := c.known[id]
	if e == nil {
		e = c.unknown[id]
	}
	if e == nil || now.Before(e.read) || now.Sub(e.read) >= fresh {
		return nil, c.changes
	}
	return e, c.changes
}

// put stores an entry read after get returned changes.
func (c *cache) put(id keyID, e *entry, changes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes != changes {
		return
	}
	delete(c.unknown, id)
	if !e.known {
		delete(c.known, id)
		room(c.unknown, maxUnknown, e.read)
		c.unknown[id] = e
		return
	}
	if c.known[id] == nil {
		room(c.known, maxCached, e.read)
	}
	c.known[id] = e
}

// room drops what is no longer fresh from a full map or, if everything is, a
// quarter of it as it comes: making room then costs little per entry.
func room(m map[keyID]*entry, limit int, now time.Time) {
	if len(m) < limit {
		return
	}
	for id, e := range m {
		if now.Sub(e.read) >= fresh {
			delete(m, id)
		}
	}
	for id := range m {
		if len(m) < limit-limit/4 {
			return
		}
		delete(m, id)
	}
}

// drop forgets a key that has changed.
func (c *cache) drop(id keyID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	delete(c.known, id)
	delete(c.unknown, id)
}
