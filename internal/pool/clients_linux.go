package pool

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool/tunnel"
)

// control answers requests. A task that was asked for ends with the connection.
func (n *Node) control(conn net.Conn, challenge []byte, sealed bool, shown, known func()) {
	talk := conn
	if sealed {
		err := accept(conn, true)
		if err == nil {
			talk, challenge, err = tunnel.Server(conn)
		}
		if err != nil {
			n.log.Warn("client refused", "from", conn.RemoteAddr().String(), "reason", err)
			return
		}
	}
	in := bufio.NewReader(io.LimitReader(talk, 1<<30))
	out := json.NewEncoder(talk)
	network := conn.RemoteAddr().Network()
	if conn.LocalAddr().String() == n.shared() {
		network = "shared"
	}
	who, err := n.hello(in, challenge, network)
	if err != nil {
		n.log.Warn("client refused", "from", conn.RemoteAddr().String(), "reason", err)
		_ = out.Encode(reply{Error: err.Error(), Kind: kindName(err)}) // it goes away anyhow
		return
	}
	shown()
	who.local = network == "unix" && beside(conn)
	impatient(conn, missed.Idle+time.Duration(missed.Count)*missed.Interval) // it may not have had the last answer
	_ = conn.SetReadDeadline(time.Time{})
	first := reply{}
	if sealed {
		first.MAC = hex.EncodeToString(tunnel.Proof(who.secret, challenge))
	}
	if out.Encode(first) != nil {
		return
	}
	var own *task
	why := ClientEnded
	defer func() {
		if own != nil {
			n.unhold(own, conn, why)
		}
	}()
	for {
		if own != nil { // it is coming
			_ = conn.SetReadDeadline(time.Now().Add(moveTime))
		}
		listening := context.AfterFunc(n.stopping, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
		q, err := readRequest(in)
		listening()
		if err != nil {
			return
		}
		r, mine, err := n.answer(who, challenge, q, own)
		if err != nil {
			r = reply{Error: err.Error(), Kind: kindName(err)}
		}
		if mine != nil {
			own = mine
		}
		_ = conn.SetWriteDeadline(time.Now().Add(helloTime)) // who does not read is not waited for, also when the node stops
		if out.Encode(r) != nil {
			return
		}
		if err == nil && own != nil && q.Op != "adopt" { // from here on the node speaks, until the task ends
			if c, is := talk.(*tls.Conn); is {
				_ = conn.SetDeadline(time.Now().Add(helloTime))
				if err := tunnel.EndServer(c); err != nil {
					n.log.Warn("client lost", "from", conn.RemoteAddr().String(), "task_id", own.ID, "error", err)
					return
				}
				_ = conn.SetDeadline(time.Time{})
				in, out = bufio.NewReader(conn), json.NewEncoder(conn)
			}
			_ = conn.SetReadDeadline(time.Time{})
			n.mu.Lock()
			n.holders[conn] = own
			n.mu.Unlock()
			known()
			why = n.keep(own, conn, in, out)
			return
		}
	}
}

// keep speaks to who holds a task, until either ends, and returns how it went if it did.
func (n *Node) keep(t *task, conn net.Conn, in io.ByteReader, out *json.Encoder) (why string) {
	gone := make(chan struct{})
	why = ClientEnded
	n.work.Go(func() {
		defer close(gone)
		var err error
		for b := byte('\n'); b == '\n'; { // a client with a task asks nothing more: it only goes
			b, err = in.ReadByte()
		}
		if cutOff(err) {
			why = ClientLost
		}
	})
	n.lasts(t, conn, out, gone)
	_ = conn.Close()
	<-gone
	return why
}

const maxRequest = 64 << 10

func readRequest(in *bufio.Reader) (request, error) {
	var q request
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if line = append(line, part...); len(line) > maxRequest {
			return q, fault.New(fault.Invalid, "a request of more than %d bytes", maxRequest)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return q, err
		}
	}
	return q, json.Unmarshal(line, &q)
}

// beside reports whether who is at the other end of a Unix socket is a process of the
// machine as the node sees it: not of a container that was given the socket, whose root
// is root to the node, too.
func beside(conn net.Conn) bool {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return false
	}
	who, err := peer(c)
	if err != nil || who.Pid == 0 {
		return false
	}
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", who.Pid))
	own, err2 := os.Readlink("/proc/self/ns/pid")
	return err == nil && err2 == nil && theirs == own
}

// hello finds who a client proves to be.
func (n *Node) hello(in *bufio.Reader, challenge []byte, network string) (guest, error) {
	q, err := readRequest(in)
	if err != nil || q.Op != "hello" {
		return guest{}, fault.New(fault.Invalid, "the first line is not a hello")
	}
	mac, _ := hex.DecodeString(q.MAC) // what is not hexadecimal is not the MAC
	switch {
	case q.Task != "":
		n.mu.Lock()
		t := n.tasks[q.Task]
		n.mu.Unlock()
		if t == nil || !hmac.Equal(mac, ticketMAC(t.token, challenge, q.Task)) {
			return guest{}, fault.New(fault.Unauthenticated, "the pool node has no such task with this token")
		}
		return guest{task: q.Task, secret: t.token}, nil
	case n.cfg.Member != nil && (q.Ticket != "" || network != "unix"):
		t, err := n.cfg.Member.redeem(q.Ticket, q.MAC, challenge)
		if err != nil {
			return guest{}, err
		}
		return guest{ticket: t, secret: []byte(t.key)}, nil
	case len(n.cfg.Groups) == 0:
		return guest{}, nil
	}
	for i := range n.cfg.Groups {
		g := &n.cfg.Groups[i]
		if g.Name == q.Group && hmac.Equal(mac, groupMAC(g.Key, challenge, g.Name)) {
			return guest{group: g, secret: []byte(g.Key)}, nil
		}
	}
	return guest{}, fault.New(fault.Unauthenticated, "group %q with this key may not use the pool node", q.Group)
}
