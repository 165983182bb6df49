// Package seal keeps secrets encrypted at rest: credentials of centers and
// the like, which the platform must be able to read again.
//
// What it keeps true: what was sealed for one purpose opens for that purpose
// only, and a changed byte makes it fail (AES-256-GCM, the purpose is
// authenticated). The key is a file of the process's keys folder (0600);
// without it, sealed secrets are lost, and a copy of the database alone gives
// nothing away.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"yunhe.dev/yunhe/internal/fault"
)

// Box seals and opens. It is safe for concurrent use.
type Box struct{ aead cipher.AEAD }

const (
	keySize = 32
	format  = 1 // first byte of what is sealed
)

// Open reads the key in path, making one if there is none. Processes may
// open the same path at once.
func Open(path string) (*Box, error) {
	key, err := readKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeKey(path); err == nil {
			key, err = readKey(path)
		}
	}
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the key of secrets %s cannot be used", path)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("cipher: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("cipher: %w", err)
	}
	return &Box{aead}, nil
}

func readKey(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(b)))
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("it must have %d bytes in base64, as generated", keySize)
	}
	return key, nil
}

// makeKey writes a new key whole or not at all; if another was faster, that
// one's stays.
func makeKey(path string) error {
	key := make([]byte, keySize)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".key-*") // 0600
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(base64.StdEncoding.EncodeToString(key) + "\n")
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		if err = os.Link(tmp.Name(), path); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	return errors.Join(err, os.Remove(tmp.Name()))
}

// Seal encrypts a secret for a purpose, for example "instance c1".
func (b *Box) Seal(secret []byte, purpose string) []byte {
	return b.aead.Seal([]byte{format}, nil, secret, []byte(purpose))
}

// Open is the reverse of Seal.
func (b *Box) Open(sealed []byte, purpose string) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != format {
		return nil, errors.New("this is not a sealed secret")
	}
	secret, err := b.aead.Open(nil, nil, sealed[1:], []byte(purpose))
	if err != nil {
		return nil, fmt.Errorf("the sealed secret of %q does not open: it was changed or sealed with another key", purpose)
	}
	return secret, nil
}
