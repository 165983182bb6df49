// Package bus carries signals: events between components, and requests
// between the platform and the agents that dial out to it. It is NATS, in
// process or a cluster elsewhere.
//
// Signals may be lost; state never is. Whoever acts on a signal must also find
// the work by looking at the state. Events come out of the database's outbox
// ([Bus.Relay]) and go to a JetStream stream, at least once, and are handed to
// each named consumer at least once.
//
// Trust: the bus has one account, in JWT form. Each agent has a key it made
// itself; the platform signs a user JWT for that key which lets it publish
// to and answer on its own subjects only:
//
//	yunhe.agent.<id>.up.*    agent asks, platform answers
//	yunhe.agent.<id>.down.*  platform asks, agent answers
package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"yunhe.dev/yunhe/internal/fault"
)

// Config says which bus to use.
type Config struct {
	// URL of an existing NATS cluster, comma separated; empty: in process.
	URL string
	// Dir keeps the keys and, in process, the stream.
	Dir string
	// Listen is the address agents dial in process, host:port; port 0 picks one.
	Listen string
	// Advertise are the URLs told to agents; empty: derived from Listen or URL.
	Advertise []string
	// Replicas of the event stream on a cluster; 0 means 1.
	Replicas int
}

// Bus is a connection to the bus, and the server when it is in process.
type Bus struct {
	cfg    Config
	log    *slog.Logger
	srv    *server.Server
	conn   *nats.Conn
	js     jetstream.JetStream
	keys   keys
	stream string
	// batches: the stream takes events as a whole or not at all.
	batches bool
}

const (
	streamName  = "YUNHE_EVENTS"
	eventPrefix = "yunhe.event."
	// pingEvery is how often a connection is tried: one that is cut off is
	// given up after three of them.
	pingEvery = 3 * time.Second
	// startTimeout covers a cluster that elects its leaders.
	startTimeout = 30 * time.Second
)

// Open starts or connects to the bus. Close it when done.
func Open(ctx context.Context, cfg Config, log *slog.Logger) (*Bus, error) {
	b := &Bus{cfg: cfg, log: log.With("component", "bus"), stream: streamName}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "cannot make the folder of the bus %s", cfg.Dir)
	}
	var err error
	if b.keys, err = loadKeys(filepath.Join(cfg.Dir, "keys.json")); err != nil {
		return nil, err
	}
	opts := []nats.Option{nats.Name("yunhe"), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.ReconnectWait(250 * time.Millisecond),
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(2), nats.UserJWT(b.keys.platformJWT, b.keys.platformSign), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			b.log.Warn("bus connection", "error", err)
		})}
	url := cfg.URL
	if url == "" {
		if err := b.startServer(); err != nil {
			b.Close()
			return nil, err
		}
		opts = append(opts, nats.InProcessServer(b.srv))
	}
	if b.conn, err = nats.Connect(url, opts...); err != nil {
		b.Close()
		return nil, fault.Wrap(fault.Unavailable, err, "the bus at %q does not answer", url)
	}
	if b.js, err = jetstream.New(b.conn); err != nil {
		b.Close()
		return nil, fmt.Errorf("event stream: %w", err)
	}
	if err := b.makeStream(ctx); err != nil {
		b.Close()
		return nil, fault.Wrap(fault.Unavailable, err, "the event stream of the bus cannot be made")
	}
	return b, nil
}

func (b *Bus) startServer() error {
	host, port, err := splitListen(b.cfg.Listen)
	if err != nil {
		return err
	}
	portFile := filepath.Join(b.cfg.Dir, "port")
	if port == server.RANDOM_PORT {
		port = savedPort(portFile)
	}
	trust, err := b.keys.trust()
	if err != nil {
		return err
	}
	opts := &server.Options{
		ServerName: "yunhe", Host: host, Port: port, NoSigs: true,
		JetStream: true, StoreDir: filepath.Join(b.cfg.Dir, "stream"), JetStreamMaxMemory: 16 << 20, JetStreamMaxStore: 1 << 30,
		MaxPayload: maxPayload,
	}
	if err := trust.Apply(opts); err != nil {
		return err
	}
	if b.srv, err = server.NewServer(opts); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the bus cannot start on %s", b.cfg.Listen)
	}
	b.srv.SetLoggerV2(serverLog{b.log}, false, false, false)
	b.srv.Start()
	if !b.srv.ReadyForConnections(10 * time.Second) {
		return fault.New(fault.Unavailable, "the bus cannot listen on %s: is the address in use?", b.cfg.Listen)
	}
	addr, ok := b.srv.Addr().(*net.TCPAddr)
	if !ok {
		return fault.New(fault.Unavailable, "the bus does not listen")
	}
	if err := os.WriteFile(portFile, []byte(strconv.Itoa(addr.Port)), 0o600); err != nil {
		return fmt.Errorf("keep the bus's port: %w", err)
	}
	return nil
}

// savedPort is the port picked at an earlier start, if it is free: gateways
// come back to it.
func savedPort(file string) int {
	b, err := os.ReadFile(file)
	if err != nil {
		return server.RANDOM_PORT
	}
	port, err := strconv.Atoi(string(b))
	if err != nil {
		return server.RANDOM_PORT
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return server.RANDOM_PORT
	}
	_ = l.Close() // it was only a question
	return port
}

// maxPayload lets a log piece or a batch of attempts travel in one message.
const maxPayload = 8 << 20

// makeStream retries with short tries: a request sent before a cluster has
// its leader is silently lost.
func (b *Bus) makeStream(ctx context.Context) error {
	deadline := time.Now().Add(startTimeout)
	for {
		tctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		stream, err := b.js.CreateOrUpdateStream(tctx, jetstream.StreamConfig{
			Name: b.stream, Subjects: []string{eventPrefix + ">"}, Storage: jetstream.FileStorage, Replicas: max(1, b.cfg.Replicas),
			MaxAge: 24 * time.Hour, MaxBytes: 512 << 20, Duplicates: 10 * time.Minute,
			AllowAtomicPublish: true,
		})
		cancel()
		if err == nil {
			// NATS before 2.12 does not know what was asked for.
			b.batches = stream.CachedInfo().Config.AllowAtomicPublish
		}
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		b.log.Debug("event stream not ready", "error", err)
	}
}

// AgentURLs returns where agents dial the bus.
func (b *Bus) AgentURLs() []string {
	switch {
	case len(b.cfg.Advertise) > 0:
		return b.cfg.Advertise
	case b.cfg.URL != "":
		return strings.Split(b.cfg.URL, ",")
	default:
		return []string{b.srv.ClientURL()}
	}
}

// Ready reports whether the bus can be used now.
func (b *Bus) Ready() error {
	if !b.conn.IsConnected() {
		return fault.New(fault.Unavailable, "the bus is not connected")
	}
	return nil
}

// Close ends the connection and the server in process.
func (b *Bus) Close() {
	if b.conn != nil {
		b.conn.Close()
	}
	if b.srv != nil {
		b.srv.Shutdown()
		b.srv.WaitForShutdown()
	}
}

// Request asks and waits for one answer. It returns fault.Unavailable if
// nobody listens or nobody answers before ctx ends, and otherwise the kind of
// fault that was answered.
func (b *Bus) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	m, err := b.conn.RequestWithContext(ctx, subject, data)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "no answer on the bus")
	}
	return m.Data, answerError(m)
}

// The headers that carry the error of an answer, for the user and for
// programs.
const (
	errorHeader = "Yunhe-Error"
	kindHeader  = "Yunhe-Error-Kind"
)

// answerError is the error that an answer carries, nil if it carries none.
// What went wrong inside the other side may go right later: Unavailable.
func answerError(m *nats.Msg) error {
	msg := m.Header.Get(errorHeader)
	if msg == "" {
		return nil
	}
	kind := fault.KindNamed(m.Header.Get(kindHeader))
	if kind == fault.Internal {
		kind = fault.Unavailable
	}
	return fault.New(kind, "%s", msg)
}

// Answer serves requests on a subject (wildcards allowed) until ctx ends.
// Processes that answer with the same group share the requests. Each request
// is handled in its own goroutine, at most width at once.
func (b *Bus) Answer(ctx context.Context, subject, group string, width int, h func(ctx context.Context, subject string, data []byte) ([]byte, error)) error {
	return answer(ctx, b.conn, subject, group, width, h, b.log)
}

// Serve answers requests on a subject (a wildcard last) in this process alone,
// until stop is called; h gets the last part of the subject. It returns once
// requests that are sent from now on are heard. Requests beyond width at once
// are not answered.
func (b *Bus) Serve(ctx context.Context, subject string, width int, h func(ctx context.Context, what string, data []byte) ([]byte, error)) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	slots := make(chan struct{}, width)
	sub, err := b.conn.Subscribe(subject, func(m *nats.Msg) {
		select {
		case slots <- struct{}{}:
		default:
			return // it is asked again
		}
		go func() {
			defer func() { <-slots }()
			reply(ctx, m, func(ctx context.Context, subject string, data []byte) ([]byte, error) {
				return h(ctx, subject[strings.LastIndexByte(subject, '.')+1:], data)
			}, b.log)
		}()
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("subscribe %s: %w", subject, err)
	}
	return func() {
		_ = sub.Unsubscribe() // the connection may be gone already
		cancel()
		for range width { // wait for handlers under way
			slots <- struct{}{}
		}
	}, nil
}

func answer(ctx context.Context, conn *nats.Conn, subject, group string, width int, h func(context.Context, string, []byte) ([]byte, error), log *slog.Logger) error {
	msgs := make(chan *nats.Msg, 1024)
	sub, err := conn.ChanQueueSubscribe(subject, group, msgs)
	if err != nil {
		return fmt.Errorf("subscribe %s: %w", subject, err)
	}
	slots := make(chan struct{}, width)
	defer func() {
		_ = sub.Unsubscribe() // the connection may be gone already
		for range width {     // wait for handlers under way
			slots <- struct{}{}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-msgs:
			slots <- struct{}{}
			go func() {
				defer func() { <-slots }()
				reply(ctx, m, h, log)
			}()
		}
	}
}

func reply(ctx context.Context, m *nats.Msg, h func(context.Context, string, []byte) ([]byte, error), log *slog.Logger) {
	out, err := guard(func() ([]byte, error) { return h(ctx, m.Subject, m.Data) })
	r := nats.NewMsg(m.Reply)
	r.Data = out
	if err != nil {
		msg, ok := fault.Message(err)
		kind := fault.KindOf(err)
		switch {
		case ok:
		case kind == fault.Internal:
			msg = "internal error"
			log.Error("bus request failed", "subject", m.Subject, "error", err)
		default: // it took too long, or this side ends
			msg = "not now"
			log.Debug("bus request given up", "subject", m.Subject, "error", err)
		}
		r.Header.Set(errorHeader, strings.Map(oneLine, msg))
		r.Header.Set(kindHeader, kind.String())
	}
	if err := m.RespondMsg(r); err != nil {
		log.Debug("bus answer not sent", "subject", m.Subject, "error", err)
	}
}

// guard turns a panic of a handler into an error: one bad message must not
// take the process down.
func guard(f func() ([]byte, error)) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

func oneLine(r rune) rune {
	if r < ' ' {
		return ' '
	}
	return r
}

// Handle is called for each event. An error has it delivered again later.
type Handle func(ctx context.Context, subject string, payload []byte) error

// Consume hands every event whose subject matches to h, at least once for
// each name, until ctx ends. Processes with the same name share the events.
func (b *Bus) Consume(ctx context.Context, name, subject string, h Handle) error {
	for ctx.Err() == nil {
		if err := b.consume(ctx, name, subject, h); err != nil && ctx.Err() == nil {
			b.log.Warn("consumer not ready", "consumer", name, "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	}
	return nil
}

// heard is how often the server says that a consumer's request for events
// stands; one that is not heard of twice is made again. A request is lost when
// the consumer has no leader, and nobody says so; the library's 15 s had no
// events come for 30.
const heard = 2 * time.Second

// consume returns when ctx ends, or the consumer does.
func (b *Bus) consume(ctx context.Context, name, subject string, h Handle) error {
	tctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	cons, err := b.js.CreateOrUpdateConsumer(tctx, b.stream, jetstream.ConsumerConfig{
		Durable: name, FilterSubject: eventPrefix + subject, AckWait: 30 * time.Second, MaxAckPending: 1024})
	cancel()
	if err != nil {
		return err
	}
	cc, err := cons.Consume(func(m jetstream.Msg) {
		if _, err := guard(func() ([]byte, error) { return nil, h(ctx, strings.TrimPrefix(m.Subject(), eventPrefix), m.Data()) }); err != nil {
			b.log.Warn("event not handled, will be delivered again", "consumer", name, "subject", m.Subject(), "error", err)
			_ = m.NakWithDelay(time.Second) // redelivered after AckWait if this is lost
			return
		}
		_ = m.Ack() // redelivered if this is lost
	}, jetstream.PullHeartbeat(heard))
	if err != nil {
		return fmt.Errorf("consume %s: %w", subject, err)
	}
	select {
	case <-ctx.Done():
		cc.Stop()
		<-cc.Closed()
		return nil
	case <-cc.Closed():
		return errors.New("the stream has it no more")
	}
}

// Listen calls h for every event that comes while it runs, in this process
// and in every other that listens: for watchers, which start from the state
// and need no history. What came while the connection was lost is told when it
// is back, out of order and along with some that were told before. It returns
// once the subscription is in place; stop ends it.
func (b *Bus) Listen(subject string, h func(subject string, payload []byte)) (stop func(), err error) {
	take := func(subject string, payload []byte) { h(strings.TrimPrefix(subject, eventPrefix), payload) }
	status := b.conn.StatusChanged(nats.RECONNECTING, nats.CONNECTED)
	sub, err := b.conn.Subscribe(eventPrefix+subject, func(m *nats.Msg) { take(m.Subject, m.Data) })
	if err != nil {
		b.conn.RemoveStatusListener(status)
		return nil, fmt.Errorf("listen %s: %w", subject, err)
	}
	cut := time.Now()
	late := b.conn.IsConnected() && b.conn.FlushTimeout(inPlace) != nil
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		catchUp := func() {
			for b.catchUp(ctx, eventPrefix+subject, cut.Add(-missed), take) != nil && ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-time.After(500 * time.Millisecond):
				}
			}
		}
		if late {
			catchUp()
		}
		for s := range status { // until it is removed
			if s == nats.RECONNECTING {
				cut = time.Now()
				continue
			}
			catchUp()
		}
	}()
	return func() {
		_ = sub.Unsubscribe() // the connection may be gone already
		b.conn.RemoveStatusListener(status)
		cancel()
		<-done
	}, nil
}

// inPlace is how long a server has to say that it knows a subscription; what comes
// until a slower one does is caught up with.
const inPlace = 5 * time.Second

// missed is how long before a connection is given up nothing may have come,
// and by how much the clocks of this process and of the stream may differ.
const missed = time.Minute

// catchUp reads the events from a time on out of the stream.
func (b *Bus) catchUp(ctx context.Context, subject string, since time.Time, h func(subject string, payload []byte)) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cons, err := b.js.CreateConsumer(ctx, b.stream, jetstream.ConsumerConfig{FilterSubject: subject, AckPolicy: jetstream.AckNonePolicy,
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since, InactiveThreshold: 10 * time.Second, MemoryStorage: true, Replicas: 1})
	for err == nil {
		var batch jetstream.MessageBatch
		if batch, err = cons.FetchNoWait(1000); err != nil {
			break
		}
		n := 0
		for m := range batch.Messages() {
			h(m.Subject(), m.Data())
			n++
		}
		if err = batch.Error(); err == nil && n == 0 {
			return nil
		}
	}
	b.log.Debug("events not caught up with", "subject", subject, "error", err)
	return err
}

func splitListen(s string) (string, int, error) {
	u, err := url.Parse("nats://" + s)
	if err != nil || u.Hostname() == "" {
		return "", 0, fault.New(fault.Invalid, "bus.listen must be host:port, got %q", s)
	}
	port := server.RANDOM_PORT
	if p := u.Port(); p != "" && p != "0" {
		if _, err := fmt.Sscanf(p, "%d", &port); err != nil {
			return "", 0, fault.New(fault.Invalid, "bus.listen must be host:port, got %q", s)
		}
	}
	return u.Hostname(), port, nil
}

// serverLog passes on what the server in process says that an operator needs.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Noticef(f string, v ...any) {}
func (l serverLog) Debugf(f string, v ...any)  {}
func (l serverLog) Tracef(f string, v ...any)  {}
func (l serverLog) Warnf(f string, v ...any) {
	l.log.Debug("bus server", "message", fmt.Sprintf(f, v...))
}
func (l serverLog) Errorf(f string, v ...any) {
	l.log.Warn("bus server", "message", fmt.Sprintf(f, v...))
}
func (l serverLog) Fatalf(f string, v ...any) {
	l.log.Error("bus server", "message", fmt.Sprintf(f, v...))
}
