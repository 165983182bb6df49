package bus

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"yunhe.dev/yunhe/internal/fault"
)

// NewAgentKey makes the key of an agent. The seed never leaves the agent.
func NewAgentKey() (seed, publicKey string, err error) {
	kp, err := nkeys.CreateUser()
	if err != nil {
		return "", "", err
	}
	s, err := kp.Seed()
	if err != nil {
		return "", "", err
	}
	publicKey, err = kp.PublicKey()
	return string(s), publicKey, err
}

// Agent is an agent's end of the bus.
type Agent struct {
	name string
	conn *nats.Conn
	log  *slog.Logger

	mu   sync.Mutex    // guards the fields below
	lost chan struct{} // closed when the connection under way breaks
	wire net.Conn      // the connection under way, or the last one
}

// Dial implements nats.CustomDialer: it remembers the connection.
func (a *Agent) Dial(network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: dialTimeout}).Dial(network, address)
	if err == nil {
		a.mu.Lock()
		a.wire = c
		a.mu.Unlock()
	}
	return c, err
}

// dialTimeout is that of the NATS library.
const dialTimeout = 2 * time.Second

// Segments returns how many pieces of data were sent on the connection under
// way, and how many of those again because they got lost. ok is false where
// the system does not say.
func (a *Agent) Segments() (sent, again int64, ok bool) {
	a.mu.Lock()
	wire := a.wire
	a.mu.Unlock()
	return segments(wire)
}

// DialAgent connects agent id with its own key and the credentials the
// platform signed. It keeps trying to reconnect for ever; connected is
// called each time a connection is there. Close it when done.
func DialAgent(urls []string, id, seed, userJWT string, connected func(), log *slog.Logger) (*Agent, error) {
	kp, err := nkeys.FromSeed([]byte(seed))
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the agent's key cannot be read")
	}
	public, err := kp.PublicKey()
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the agent's key cannot be used")
	}
	name := AgentName(id, public)
	a := &Agent{name: name, log: log, lost: make(chan struct{})}
	conn, err := nats.Connect(strings.Join(urls, ","), nats.Name("yunhe-gateway "+id), nats.CustomInboxPrefix(AgentInbox(name)),
		nats.UserJWT(func() (string, error) { return userJWT, nil }, kp.Sign),
		nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.ReconnectWait(200*time.Millisecond), nats.ReconnectJitter(100*time.Millisecond, 100*time.Millisecond),
		nats.SetCustomDialer(a), nats.IgnoreAuthErrorAbort(), nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(2),
		nats.ConnectHandler(func(*nats.Conn) { connected() }), nats.ReconnectHandler(func(*nats.Conn) { connected() }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			a.mu.Lock()
			close(a.lost)
			a.lost = make(chan struct{})
			a.mu.Unlock()
			if err != nil {
				log.Warn("platform not reachable, work goes on", "error", err)
			}
		}))
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the bus cannot be dialed")
	}
	a.conn = conn
	return a, nil
}

// Ask sends a request to the platform and waits for the answer. It returns
// fault.Unavailable if none comes before ctx ends, and at once if the
// connection breaks: the process that was asked may be gone.
func (a *Agent) Ask(ctx context.Context, what string, data []byte) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.mu.Lock()
	lost := a.lost
	a.mu.Unlock()
	go func() {
		select {
		case <-lost:
			cancel()
		case <-ctx.Done():
		}
	}()
	m, err := a.conn.RequestWithContext(ctx, AgentUp(a.name, what), data)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the platform does not answer")
	}
	return m.Data, answerError(m)
}

// Answer serves the platform's requests until ctx ends, at most width at once.
func (a *Agent) Answer(ctx context.Context, width int, h func(ctx context.Context, what string, data []byte) ([]byte, error)) error {
	prefix := AgentDown(a.name, "")
	return answer(ctx, a.conn, AgentDown(a.name, "*"), "agent", width, func(ctx context.Context, subject string, data []byte) ([]byte, error) {
		return h(ctx, strings.TrimPrefix(subject, prefix), data)
	}, a.log)
}

// Name is the agent's name on the bus.
func (a *Agent) Name() string { return a.name }

// Close ends the connection.
func (a *Agent) Close() { a.conn.Close() }

// PublicKey returns the public key of an agent's seed.
func PublicKey(seed string) (string, error) {
	kp, err := nkeys.FromSeed([]byte(seed))
	if err != nil {
		return "", fault.Wrap(fault.Invalid, err, "the agent's key cannot be read")
	}
	return kp.PublicKey()
}
