package identity

import (
	"crypto/sha256"
	"slices"
	"time"
)

// MaxLate is how many events are held.
const MaxLate = maxLate

// ParseKey lets tests take keys apart.
func ParseKey(key string) (id string, hash [sha256.Size]byte, ok bool) {
	k, hash, ok := parseKey(key)
	return k.String(), hash, ok
}

// MakeKey lets tests make keys that no service knows.
func MakeKey() (id, key string) {
	k, key, _ := newKey()
	return k.String(), key
}

// Cached returns how many keys the service remembers, and how many it
// remembers as not existing.
func (s *Service) Cached() (known, unknown int) {
	s.cache.mu.RLock()
	defer s.cache.mu.RUnlock()
	return len(s.cache.known), len(s.cache.unknown)
}

// FillCache makes the cache remember n keys read at the time, as existing or not.
func (s *Service) FillCache(n int, known bool, at time.Time) {
	for range n {
		id, _, hash := newKey()
		_, changes := s.cache.get(id, at)
		s.cache.put(id, &entry{known: known, hash: hash, read: at}, changes)
	}
}

// Limits of the cache.
const (
	MaxCached  = maxCached
	MaxUnknown = maxUnknown
	Fresh      = fresh
	MaxKeys    = maxKeys
)

// Permissions returns every permission there is, sorted. "public" (no
// credentials) and "self" (any caller) are not among them: they need none.
func Permissions() []string { return slices.Clone(permissions) }
