//go:build linux

package worker

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/tunnel"
)

// OpenProgram takes a program's connection over, in any case, and encrypts it if it is to be.
func OpenProgram(s between.Secret, conn net.Conn) (*Line, Path, error) {
	l, err := NewLine(conn)
	if err != nil {
		return nil, nil, err
	}
	if len(s.Hello) == 0 {
		return l, l, nil
	}
	p, err := seal(l, s)
	if err != nil {
		l.free()
		return nil, nil, err
	}
	return l, p, nil
}

// sealTo encrypts a connection to another worker if it is of a hello.
func (s *Session) sealTo(conn net.Conn, hello []byte) (net.Conn, error) {
	if len(hello) == 0 {
		return conn, nil
	}
	_ = conn.SetDeadline(time.Now().Add(patience)) // the other is about to start
	c, word, err := tunnel.Client(conn)
	if err == nil {
		err = tunnel.ProveProgram(c, word, s.token, hello)
	}
	if err != nil {
		return nil, err
	}
	return c, conn.SetDeadline(time.Time{})
}

// sealTime is how long encrypting a connection may take: two times there and back.
const sealTime = 10 * time.Second

// sealed is a path through TLS. Nobody else could go on with it: what TLS knows is
// this process's.
type sealed struct {
	*Line

	pipe *pipe
	tls  *tls.Conn
	room []byte // for what is short enough to be one record
}

// record is how much one brings at most.
const record = 16 << 10

func seal(l *Line, s between.Secret) (*sealed, error) {
	ended := make(chan struct{})
	late := time.AfterFunc(sealTime, func() { defer close(ended); _ = l.Close() })
	p := &pipe{Line: l}
	c, word, err := tunnel.Server(p)
	if err == nil {
		err = tunnel.ProveWorker(c, word, s.Token, s.Hello)
	}
	if !late.Stop() {
		<-ended
		err = fmt.Errorf("the program did not say what encrypts its connection in %s", sealTime)
	}
	if err != nil {
		return nil, err
	}
	return &sealed{l, p, c, make([]byte, 0, record)}, nil
}

func (s *sealed) Read(b []byte) (int, error) { return s.tls.Read(b) }

// Write writes all of b.
func (s *sealed) Write(b []byte) (int, error) {
	if err := s.write(b, nil, -1); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (s *sealed) write(head, data []byte, _ int) error {
	k := min(len(data), cap(s.room)-min(len(head), cap(s.room)))
	s.pipe.collect()
	_, err := s.tls.Write(append(append(s.room, head...), data[:k]...))
	if data = data[k:]; err == nil && len(data) > 0 {
		_, err = s.tls.Write(data)
	}
	return errors.Join(err, s.pipe.flush())
}

// handOver cannot be: what TLS knows is this process's.
func (s *sealed) handOver() ([]string, error) { return nil, errors.ErrUnsupported }

// pipe is a line as TLS has it. TLS reads and writes a record at a time: several
// are read at once, and written at once.
type pipe struct {
	*Line

	in      []byte
	at, end int

	mu         sync.Mutex // guards what follows
	out        []byte
	collecting bool
	bad        error
}

const (
	pipeIn  = 128 << 10
	pipeOut = 128 << 10
)

func (p *pipe) Read(b []byte) (int, error) {
	if p.at == p.end {
		if p.in == nil {
			p.in = make([]byte, pipeIn)
		}
		n, err := p.Line.Read(p.in)
		if p.at, p.end = 0, n; err != nil {
			return 0, err
		}
	}
	n := copy(b, p.in[p.at:p.end])
	p.at += n
	return n, nil
}

// collect has what is written wait for flush, or until it is much.
func (p *pipe) collect() {
	p.mu.Lock()
	p.collecting = true
	p.mu.Unlock()
}

func (p *pipe) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.collecting = false
	return p.send()
}

// send sends what waits. The caller has the lock.
func (p *pipe) send() error {
	if len(p.out) > 0 && p.bad == nil {
		p.bad = p.Line.write(p.out, nil, -1)
	}
	p.out = p.out[:0]
	return p.bad
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = append(p.out, b...)
	if !p.collecting || len(p.out) > pipeOut-2*record {
		if err := p.send(); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// What TLS has no use for here.
func (p *pipe) LocalAddr() net.Addr              { return nil }
func (p *pipe) RemoteAddr() net.Addr             { return nil }
func (p *pipe) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (p *pipe) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }
