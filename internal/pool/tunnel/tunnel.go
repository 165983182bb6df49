// Package tunnel encrypts what nodes, workers and programs of the accelerator
// pool say to each other over TCP: TLS 1.3, and nothing older.
//
// No certificate is looked at: that of a process is made when it first needs
// one, and means nothing. Who the other is follows from what it knows. Both sides
// derive a word from the session (RFC 9266, tls-exporter), which is another on
// each side of somebody in between, and prove by it that they know a task's
// token, or the key of a group or a ticket.
//
//	client                               server
//	  │ ◀──────── TLS 1.3, client first ────▶ │
//	  │ ── HMAC(token, word, program, hello) ▶ │ wrong: it ends
//	  │ ◀─ HMAC(token, word, worker, hello) ── │
//	  │ wrong: it ends                         │
//
// The hello is what was said in the clear before, so that it is the one of this
// session. Until both have proved it nothing else is said.
package tunnel

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"time"
)

// ProofSize is how long a proof is.
const ProofSize = sha256.Size

// binding is a session's word, by RFC 9266.
const binding = "EXPORTER-Channel-Binding"

// Who proves something.
const (
	ofProgram = "yunhe pool program"
	ofWorker  = "yunhe pool worker"
)

// config is of this process.
var config = sync.OnceValues(func() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	// Its times are not looked at, as nothing of it is.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion:   tls.VersionTLS13,
		// Whose certificate it is says nothing: see the package.
		InsecureSkipVerify: true,
		// Each connection has a session of its own, and its server says nothing that was not asked for.
		SessionTicketsDisabled: true,
		// What is said is long, or one record anyhow.
		DynamicRecordSizingDisabled: true,
	}, nil
})

// Client encrypts a connection and returns the session's word. The caller bounds
// how long that may take, here as in all that follows.
func Client(conn net.Conn) (*tls.Conn, []byte, error) {
	return begin(conn, tls.Client)
}

// Server is [Client] for the other side.
func Server(conn net.Conn) (*tls.Conn, []byte, error) {
	return begin(conn, tls.Server)
}

func begin(conn net.Conn, side func(net.Conn, *tls.Config) *tls.Conn) (*tls.Conn, []byte, error) {
	cfg, err := config()
	if err != nil {
		return nil, nil, fmt.Errorf("a key for a connection: %w", err)
	}
	c := side(conn, cfg)
	if err := c.Handshake(); err != nil {
		return nil, nil, fmt.Errorf("the connection was not encrypted: %w", err)
	}
	state := c.ConnectionState()
	word, err := state.ExportKeyingMaterial(binding, nil, sha256.Size)
	if err != nil {
		return nil, nil, fmt.Errorf("the connection was not encrypted: %w", err)
	}
	return c, word, nil
}

// ErrUnproved is that the other side does not know what it should.
var ErrUnproved = errors.New("the other side of the encrypted connection does not know the task's token, or somebody is in between")

func proof(token, word []byte, who string, hello []byte) []byte {
	m := hmac.New(sha256.New, token)
	m.Write(word)
	m.Write([]byte(who))
	m.Write(hello)
	return m.Sum(nil)
}

// ProveProgram proves, as a program, that this side knows a token, and has the
// worker prove it.
func ProveProgram(c io.ReadWriter, word, token, hello []byte) error {
	if _, err := c.Write(proof(token, word, ofProgram, hello)); err != nil {
		return err
	}
	return check(c, proof(token, word, ofWorker, hello))
}

// ProveWorker is [ProveProgram] for the other side.
func ProveWorker(c io.ReadWriter, word, token, hello []byte) error {
	if err := check(c, proof(token, word, ofProgram, hello)); err != nil {
		return err
	}
	_, err := c.Write(proof(token, word, ofWorker, hello))
	return err
}

func check(c io.Reader, want []byte) error {
	got := make([]byte, ProofSize)
	if _, err := io.ReadFull(c, got); err != nil {
		return fmt.Errorf("the other side of the encrypted connection proved nothing: %w", err)
	}
	if !hmac.Equal(got, want) {
		return ErrUnproved
	}
	return nil
}

// EndClient ends a session whose connection is used in the clear from then on, when
// the server does so, too. What the client says next may be lost: it must have no
// meaning.
func EndClient(c *tls.Conn) error {
	if _, err := io.Copy(io.Discard, c); err != nil { // so that nothing that follows is read with it
		return err
	}
	return c.CloseWrite()
}

// EndServer is [EndClient] for the other side.
func EndServer(c *tls.Conn) error {
	if err := c.CloseWrite(); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, c)
	return err
}

// Proof is what proves by a session's word that one knows a secret, where one side
// has proved it in words of its own.
func Proof(secret, word []byte) []byte {
	key := sha256.Sum256(secret)
	return proof(key[:], word, ofWorker, nil)
}
