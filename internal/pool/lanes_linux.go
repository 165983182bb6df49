package pool

import (
	"context"
	"crypto/hmac"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// The workers of a program that has cards of several nodes send each other memory
// on lanes. Nodes connect them, and have no part in what is said: worker/lane.go.

const (
	laneTime  = 4 * time.Second // for a lane's connection; and how long one is borne on which nobody acknowledges anything
	mostDials = 16              // of a worker's, at once: as many cards as a program has
)

// dialLane connects a worker to another one of its program's.
func (n *Node) dialLane(l *link, text []byte) {
	d, ok := between.ReadDial(text)
	if !ok {
		return
	}
	none := func() { _ = l.put(between.PutText(between.Lane, d.Lane[:]), nil) } // or the worker is gone
	if l.dials.Add(1) > mostDials {
		l.dials.Add(-1)
		none()
		return
	}
	n.greeting.Add(1) // a node that is upgraded waits for that
	go func() {
		defer n.greeting.Add(-1)
		defer l.dials.Add(-1)
		ctx, cancel := context.WithTimeout(n.stopping, laneTime)
		defer cancel()
		conn, hello, err := n.connectLane(ctx, d)
		if err != nil {
			n.log.Info("nodes not connected for a program", "task_id", d.Task, "to", d.At, "error", err)
			none()
			return
		}
		defer conn.Close()
		what := byte(between.Lane)
		if hello != nil {
			what = between.LaneSealed
		}
		if l.hand(what, append(hello, d.Lane[:]...), conn) == nil {
			n.log.Info("nodes connected for a program", "task_id", d.Task, "to", d.At)
		}
	}()
}

// connectLane goes only to where others on the network can go, too, and says nothing
// to who does not greet as a pool's node.
func (n *Node) connectLane(ctx context.Context, d between.Dial) (net.Conn, []byte, error) {
	network, _, err := Address(d.At)
	if err == nil && network != "tcp" {
		err = fault.New(fault.Invalid, "%q is not an address of TCP", d.At)
	}
	if err == nil && n.cfg.Encryption && !Encrypts(d.At) {
		err = fault.New(fault.Invalid, "this pool node encrypts what is said over TCP, and the one at %s does not", d.At)
	}
	if err != nil {
		return nil, nil, err
	}
	conn, hello, err := dialWorker(ctx, d.At, wire.LaneGreeting, d.Task, d.Key, append(binary.LittleEndian.AppendUint64(nil, d.Slot), d.Lane[:]...))
	if err == nil {
		impatient(conn, laneTime)
	}
	return conn, hello, err
}

// lane gives a connection from another node to the worker that waits for it.
func (n *Node) lane(conn net.Conn, challenge []byte, sealed bool, known func()) {
	b := make([]byte, wire.TaskIDSize+8+wire.LaneSize+wire.MACSize)
	if _, err := io.ReadFull(conn, b); err != nil {
		return
	}
	said, mac := b[:len(b)-wire.MACSize], b[len(b)-wire.MACSize:]
	id, slot, lane := string(said[:wire.TaskIDSize]), binary.LittleEndian.Uint64(said[wire.TaskIDSize:]), said[wire.TaskIDSize+8:]
	var l *link
	n.mu.Lock()
	t := n.tasks[id]
	if t != nil && slot < uint64(len(t.links)) && hmac.Equal(mac, helloMAC(between.LaneKey(t.token, lane), challenge, said, sealed)) {
		l = t.links[slot]
	}
	if l != nil && (l.turns == nil || sealed && !l.secret) {
		l = nil
	}
	n.mu.Unlock()
	if l == nil {
		n.log.Warn("connection refused", "from", conn.RemoteAddr().String(), "task_id", id, "reason", "no program of this task waits for it")
		refuse(conn, "the pool node has no such program")
		return
	}
	impatient(conn, laneTime)
	if accept(conn, sealed) != nil || conn.SetDeadline(time.Time{}) != nil {
		return
	}
	what, text := byte(between.Lane), slices.Clone(lane)
	if sealed {
		what, text = between.LaneSealed, append(slices.Clone(mac), lane...)
	}
	_ = l.hand(what, text, conn) // or the worker is gone, and the connection ends
	known()
}
