//go:build linux

package between

import (
	"errors"
	"net"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// Secret is what a node says to a worker before all else: the token of its task,
// and of which hello its program's connection is, if that is to be encrypted.
type Secret struct {
	Token []byte
	Hello []byte // none: it is not
}

// PutSecret writes it.
func PutSecret(s Secret) []byte {
	return PutText(SaysSecret, append(append([]byte{}, s.Token...), s.Hello...))
}

// ReadSecret reads it.
func ReadSecret(node net.Conn) (Secret, error) {
	f, err := Read(node)
	if err == nil && (f.What != SaysSecret || len(f.Text) != wire.MACSize && len(f.Text) != 2*wire.MACSize) {
		err = errors.New("the node does not say of which task this worker is")
	}
	if err != nil {
		return Secret{}, err
	}
	return Secret{f.Text[:wire.MACSize:wire.MACSize], f.Text[wire.MACSize:]}, nil
}
