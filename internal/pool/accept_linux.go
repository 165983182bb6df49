package pool

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// missed is when who is only read from is taken for cut off: a program, or a node that a task
// comes from, may have nothing to say for long.
var missed = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 5}

// mostStrangers is how many connections to one address may be open of which is not known
// yet whose they are: an eighth of the files that this process may open, as others need
// these, and 1,024. Each is closed after helloTime; until then others wait.
func mostStrangers() int {
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) != nil {
		return 64
	}
	return int(min(files.Cur/8, 1024))
}

// accept takes connections to one address, until nobody is let in.
func (n *Node) accept(l net.Listener) {
	defer n.accepting.Done()
	const soonest, latest = 5 * time.Millisecond, time.Second
	places, warned := make(chan struct{}, mostStrangers()), time.Time{}
	for again := soonest; ; {
		select {
		case places <- struct{}{}:
		default:
			if now := time.Now(); now.Sub(warned) > helloTime {
				n.log.Warn("connections wait: too many have not shown whose they are", "at", l.Addr().String(), "limit", cap(places))
				warned = now
			}
			places <- struct{}{} // within helloTime
		}
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) { // nobody is let in for now
			return
		}
		if err != nil { // there are too many open files, as may be over in a moment
			<-places
			n.log.Warn("no connection was accepted", "at", l.Addr().String(), "error", err)
			<-time.After(again)
			again = min(2*again, latest)
			continue
		}
		again = soonest
		if t, ok := conn.(*net.TCPConn); ok {
			_ = t.SetKeepAliveConfig(missed) // else the system's own patience does
		}
		n.greeting.Add(1)
		shown := sync.OnceFunc(func() { <-places })
		known := sync.OnceFunc(func() {
			n.greeting.Add(-1)
			shown()
		})
		n.work.Go(func() { n.serve(conn, shown, known) })
	}
}
