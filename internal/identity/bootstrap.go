package identity

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// PlatformTenant is the tenant of what the platform does by itself. Bootstrap
// makes it.
const PlatformTenant = firstTenant

const (
	firstTenant = "default"
	firstUser   = "admin"
)

// Bootstrap makes a new platform usable: if there is no user it creates the
// tenant "default" and its user "admin", with a key that it writes to
// admin.key in dir. If admin.key holds a key that the database does not know,
// because an earlier start was cut short or the database is older than the
// file, that key becomes one of admin's. It may be repeated at every start,
// and by several processes at once.
//
// It returns fault.Invalid if there is no user and admin.key holds no key,
// and fault.Unavailable if dir cannot be written.
func (s *Service) Bootstrap(ctx context.Context, dir string) error {
	path := filepath.Join(dir, "admin.key")
	key, err := s.readKeyFile(path)
	if err != nil {
		return err
	}
	empty := false
	if err := s.db.View(ctx, func(tx *db.Tx) error {
		some, err := anyUser(ctx, tx)
		empty = !some
		return err
	}); err != nil {
		return err
	}
	if key == "" {
		if !empty {
			s.log.Info("no admin key in this folder; an admin can create another with the API", "path", path)
			return nil
		}
		// 1. The file first: a key nobody has written down would be lost.
		_, key, _ = newKey()
		if err := writeKeyFile(path, key); err != nil {
			return fault.Wrap(fault.Unavailable, err, "the admin key %s cannot be written", path)
		}
		s.log.Info("admin key written", "path", path)
	}
	id, hash, ok := parseKey(key)
	if !ok {
		if empty {
			return fault.New(fault.Invalid, "%s does not hold a key; remove the file to have one made", path)
		}
		s.log.Warn("the admin key file does not hold a key", "path", path)
		return nil
	}
	// 2. Then the records, all or none.
	return s.adopt(ctx, path, id, hash)
}

// adopt makes the key one of admin's unless it is known, and creates admin if
// there is no user.
func (s *Service) adopt(ctx context.Context, path string, id keyID, hash [sha256.Size]byte) error {
	var warning, outcome string
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		warning, outcome = "", ""
		some, err := anyUser(ctx, tx)
		if err != nil {
			return err
		}
		if !some {
			if found, err := hasTenant(ctx, tx, firstTenant); err != nil {
				return err
			} else if !found {
				if err := insertTenant(ctx, tx, Tenant{ID: firstTenant, Name: firstTenant, CreatedAt: tx.Now}); err != nil {
					return err
				}
			}
			if err := insertUser(ctx, tx, User{ID: firstUser, TenantID: firstTenant, Name: firstUser, Role: Admin, CreatedAt: tx.Now}); err != nil {
				return err
			}
		}
		r, known, err := getKey(ctx, tx, id.String())
		if err != nil {
			return err
		}
		if known {
			if subtle.ConstantTimeCompare(r.hash, hash[:]) != 1 {
				warning = "the admin key file names a known key but holds another secret"
			} else if !r.RevokedAt.IsZero() {
				warning = "the admin key file holds a revoked key"
			}
			return nil
		}
		admin, found, err := getUser(ctx, tx, firstUser)
		if err != nil {
			return err
		}
		if !found || admin.Role != Admin {
			warning = "the admin key file holds an unknown key and there is no user admin to give it to"
			return nil
		}
		if _, err := insertKey(ctx, tx, Key{ID: id.String(), UserID: firstUser, Note: "first key, from admin.key", CreatedAt: tx.Now}, hash); err != nil {
			return err
		}
		tx.AfterCommit(func() { s.cache.drop(id) })
		outcome = "admin key accepted"
		actx := core.WithCaller(ctx, core.Caller{UserID: firstUser, TenantID: admin.TenantID})
		return insertEvents(ctx, tx, event(actx, tx.Now, core.Audit{Method: "bootstrap", Remote: "local"}, id.String(), "OK"))
	})
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	if warning != "" {
		s.log.Warn(warning, "path", path, "key_id", id.String())
	}
	if outcome != "" {
		s.log.Info(outcome, "path", path, "key_id", id.String())
	}
	return nil
}

// readKeyFile returns the file's content without the newline, "" if there is
// no file.
func (s *Service) readKeyFile(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fault.Wrap(fault.Unavailable, err, "the admin key %s cannot be read", path)
	}
	defer func() { _ = f.Close() }() // only read
	if st, err := f.Stat(); err == nil && st.Mode().Perm()&0o077 != 0 {
		s.log.Warn("the admin key file can be read by others; set its mode to 0600", "path", path, "mode", st.Mode().Perm().String())
	}
	var b [256]byte // a key is far shorter; more is not one
	n, err := f.Read(b[:])
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fault.Wrap(fault.Unavailable, err, "the admin key %s cannot be read", path)
	}
	if n == 0 {
		return " ", nil // there, and not a key
	}
	return strings.TrimRight(string(b[:n]), "\r\n"), nil
}

// writeKeyFile makes the file appear whole or not at all, also if power fails.
func writeKeyFile(path, key string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".admin.key-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(key + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
