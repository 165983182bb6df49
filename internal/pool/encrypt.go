package pool

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool/tunnel"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// How addresses begin at which programs may go on over RDMA, and at which all that
// is said is encrypted. Who has one of these says nothing there that is not.
const (
	rdma      = "rdma"
	encrypted = "tls"
)

// Encrypts reports whether what is said at an address is encrypted.
func Encrypts(at string) bool { return strings.HasPrefix(at, encrypted+":") }

// secret reports whether nobody on the network sees what is said at an address.
func secret(at string) bool { return Encrypts(at) || strings.HasPrefix(at, "unix:") }

// encrypt has what follows be encrypted. What both prove from here on they prove of
// this session.
func (c *Client) encrypt() error {
	if _, err := io.WriteString(c.conn, wire.TLSGreeting+wire.ControlHello); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the pool node at %s ended the connection", c.at)
	}
	head := make([]byte, wire.AnswerSize)
	if _, err := io.ReadFull(c.in, head); err != nil || binary.LittleEndian.Uint16(head[8:]) != wire.OpEncrypt || c.in.Buffered() > 0 {
		return fault.New(fault.Unauthenticated, "what answers at %s does not encrypt what is said there, as it should", c.at)
	}
	var err error
	if c.tls, c.challenge, err = tunnel.Client(c.conn); err != nil {
		return fault.Wrap(fault.Unauthenticated, err, "what is said to the pool node at %s cannot be encrypted", c.at)
	}
	c.in, c.out = bufio.NewReader(c.tls), json.NewEncoder(c.tls)
	return nil
}

// holds is said when the connection holds a task: what is said on it from then on is
// that both are there, and how the task ends. That is not encrypted, because a node
// that is upgraded hands its connections over.
func (c *Client) holds() error {
	if c.tls == nil {
		return nil
	}
	_ = c.conn.SetDeadline(time.Now().Add(followTime))
	if err := tunnel.EndClient(c.tls); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the pool node ended the connection")
	}
	_ = c.conn.SetDeadline(time.Time{})
	c.tls, c.in, c.out = nil, bufio.NewReader(c.conn), json.NewEncoder(c.conn)
	return nil
}
