package rpc

import (
	"context"
	"net"
	"time"
)

type connKey struct{}

// connection is what a call knows of where it came from.
type connection struct {
	conn     net.Conn
	stopping <-chan struct{}
}

// WithConn has calls know their connection, and when the server begins to stop.
func WithConn(ctx context.Context, conn net.Conn, stopping <-chan struct{}) context.Context {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = t.NetConn()
	}
	return context.WithValue(ctx, connKey{}, connection{conn, stopping})
}

// Stopping is closed when the server begins to stop, for calls that do not end by
// themselves; nil where that is not known.
func Stopping(ctx context.Context) <-chan struct{} {
	c, _ := ctx.Value(connKey{}).(connection)
	return c.stopping
}

// Unheard is how long ago the other machine last acknowledged something on a
// call's connection, if it has not acknowledged all that was sent; 0 if it has, or
// nothing is known of it. It is the other's kernel that acknowledges: a process
// that is slow, or stopped, is heard.
func Unheard(ctx context.Context) time.Duration {
	c, _ := ctx.Value(connKey{}).(connection)
	if c.conn == nil {
		return 0
	}
	return unheard(c.conn)
}
