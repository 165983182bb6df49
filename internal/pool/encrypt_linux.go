package pool

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"slices"
	"strings"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool/tunnel"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// A node that encrypts hands a connection to a worker before that is encrypted: in
// the clear a program says of which task it is, and proves it as ever, and then
// program and worker encrypt, and prove it of that ([tunnel]). Where the node itself
// has something to say it encrypts itself.

// Shown is an address of the node as others are told it: they know by it whether
// what they say there is encrypted.
func (n *Node) Shown(at string) string {
	if rest, is := strings.CutPrefix(at, "tcp:"); is && n.cfg.Encryption {
		return encrypted + ":" + rest
	}
	return at
}

// other refuses who wants what is said here encrypted where it is not, or not where it is.
func (n *Node) other(conn net.Conn, kind string, sealed bool) {
	why := "the pool node encrypts what is said over TCP: its address begins with " + encrypted + ":"
	if sealed {
		why = "the pool node does not encrypt what is said at this address"
	}
	n.log.Warn("connection refused", "from", conn.RemoteAddr().String(), "reason", why)
	if kind == wire.ControlHello && !sealed {
		err := fault.New(fault.Invalid, "%s", why)
		_ = json.NewEncoder(conn).Encode(reply{Error: why, Kind: kindName(err)}) // it goes away anyhow
		return
	}
	refuse(conn, why)
}

// goesOn is how a node answers who has proved to be of a task.
func goesOn(encrypted bool) uint16 {
	if encrypted {
		return wire.OpEncrypt
	}
	return wire.OpAnswer
}

// helloMAC proves that what is said on a connection is a task's. One that is to be
// encrypted is not taken for one that is not.
func helloMAC(token, challenge, said []byte, encrypted bool) []byte {
	if encrypted {
		said = append(slices.Clip(said), wire.TLSGreeting...)
	}
	return proof(token, challenge, said)
}

// accept has who has proved to be of a task go on.
func accept(conn net.Conn, encrypted bool) error {
	head := make([]byte, wire.AnswerSize)
	wire.PutAnswer(head, goesOn(encrypted), 0, 0, 0, 0, 0, 0)
	_, err := conn.Write(head)
	return err
}

// redirect tells a program where its task is. If its connection is to be encrypted,
// so is that.
func (n *Node) redirect(conn net.Conn, gone departure, hello []byte) {
	out, to := io.Writer(conn), gone.to
	if hello != nil {
		err := accept(conn, true)
		if err == nil {
			var c *tls.Conn
			var word []byte
			if c, word, err = tunnel.Server(conn); err == nil {
				out, err = c, tunnel.ProveWorker(c, word, gone.token, hello)
			}
		}
		if err != nil {
			n.log.Warn("connection refused", "from", conn.RemoteAddr().String(), "reason", err)
			return
		}
	}
	head := make([]byte, wire.AnswerSize, wire.AnswerSize+len(to))
	wire.PutAnswer(head, wire.OpMoved, 0, 0, 0, 0, 0, len(to))
	_, _ = out.Write(append(head, to...)) // it goes away anyhow
}
