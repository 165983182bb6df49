package pool

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool/tunnel"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// The control connection: after the greetings, lines of JSON. The first says
// which group the client is of and proves it; a node answers each request with
// one reply, and says on the connection that asked for a task when it ends.

// request is a line from a client.
type request struct {
	Op      string `json:"op"`               // hello, devices, tasks, run, resize, stop, enable, disable, rescan, power, migrate; of nodes: adopt, arrived; of who holds a task: hold
	Group   string `json:"group,omitempty"`  // hello
	MAC     string `json:"mac,omitempty"`    // hello: HMAC-SHA256(SHA-256(key), challenge + group), in hexadecimal
	Ticket  string `json:"ticket,omitempty"` // hello, for a group; the MAC is HMAC-SHA256(its key, challenge + ticket)
	Spec    Spec   `json:"spec,omitzero"`    // run
	Task    string `json:"task,omitempty"`   // hello, of who holds it: the MAC is HMAC-SHA256(its token, challenge + task)
	Device  string `json:"device,omitempty"`
	Compute int64  `json:"compute,omitempty"`      // resize; 0: as it is
	Memory  int64  `json:"memory_bytes,omitempty"` // resize; 0: as it is
	Watts   int64  `json:"watts,omitempty"`        // power; 0: the card's own limit
	To      string `json:"to,omitempty"`           // migrate: the address of a node; "": this one
	Hidden  bool   `json:"hidden,omitempty"`       // run: the token is to be hidden

	Adopt *adoption `json:"adopt,omitempty"`
}

// adoption is what a node asks another to take.
type adoption struct {
	Version int    `json:"version"` // of how programs move
	Task    Task   `json:"task"`
	Spec    Spec   `json:"spec"`
	Token   string `json:"token"` // where groups are, hidden by the group's key
	Device  Device `json:"device"`
	Left    int64  `json:"left_s,omitempty"` // of the limit

	// Age is how long ago it was started: clocks of two machines need not agree.
	Age time.Duration `json:"age_ns,omitempty"`
}

// reply is a line from a node.
type reply struct {
	Error   string   `json:"error,omitempty"`
	Kind    string   `json:"kind,omitempty"` // of the error
	Devices []Device `json:"devices,omitempty"`
	Tasks   []Task   `json:"tasks,omitempty"`
	Task    *Task    `json:"task,omitempty"`
	Token   string   `json:"token,omitempty"`
	Hidden  bool     `json:"hidden,omitempty"` // the token is, by the key of the group or the ticket
	MAC     string   `json:"mac,omitempty"`    // hello, where the connection is encrypted: the node's proof ([tunnel.Proof])
	Ended   string   `json:"ended,omitempty"`  // why a task ended
	Moved   string   `json:"moved,omitempty"`  // where a task went

	Pause time.Duration `json:"pause_ns,omitempty"` // migrate: how long the program stood still
}

// sameNode is where a task went that is at this node still, elsewhere.
const sameNode = "="

func movedText(to string) string {
	if to == "" {
		return sameNode
	}
	return to
}

// kinds are the errors that cross the wire.
var kinds = map[string]fault.Kind{
	"invalid": fault.Invalid, "not found": fault.NotFound, "exists": fault.Exists, "exhausted": fault.Exhausted, "denied": fault.Denied, "unauthenticated": fault.Unauthenticated, "unavailable": fault.Unavailable,
}

func kindName(err error) string {
	for name, k := range kinds {
		if fault.KindOf(err) == k {
			return name
		}
	}
	return ""
}

// hide makes a token one that only who knows the key of the group or the ticket reads, and back.
func hide(key string, challenge []byte, id string, token []byte) []byte {
	if key == "" {
		return token // on a Unix socket
	}
	k := sha256.Sum256([]byte(key))
	m := hmac.New(sha256.New, k[:])
	m.Write(challenge)
	m.Write([]byte("token" + id))
	out := m.Sum(nil)
	for i := range out {
		out[i] ^= token[i]
	}
	return out
}

func groupMAC(key string, challenge []byte, group string) []byte {
	k := sha256.Sum256([]byte(key))
	m := hmac.New(sha256.New, k[:])
	m.Write(challenge)
	m.Write([]byte(group))
	return m.Sum(nil)
}

// A task lasts as long as the connection it is held on, whose end gets lost if
// the network is cut. So both sides say an empty line now and then, and the
// kernel ends the connection if nothing is acknowledged for a while. It is the
// other's kernel that acknowledges: a process that is slow, or stopped, is not
// taken for one that is gone.
const (
	beatEvery = 300 * time.Millisecond
	silent    = 1200 * time.Millisecond
	// stuck is how long a program that moves is not read where it goes: it is more
	// than the other's kernel has room for, and who reads it may be busy.
	stuck = 10 * time.Second
)

// Client asks a node.
type Client struct {
	at        string
	challenge []byte
	key       string // of the group or the ticket
	task      string // that the connection holds
	token     []byte // of the task

	// Follows, if it is set, is told by Ended where the task has gone, when the client has
	// followed it there.
	Follows func(at string)

	mu     sync.Mutex // guards what follows, which changes when the task moves
	conn   net.Conn
	tls    *tls.Conn // nil: it is not encrypted, or not any more
	in     *bufio.Reader
	out    *json.Encoder
	closed bool
	ended  chan struct{} // closed with the client
}

// Address splits "unix:PATH", "tcp:HOST:PORT", "tls:HOST:PORT" and "rdma:HOST:PORT" into
// what net.Dial takes: who comes over RDMA connects by TCP first, and TLS goes over that.
func Address(s string) (network, address string, err error) {
	network, address, ok := strings.Cut(s, ":")
	if !ok || address == "" || network != "unix" && network != "tcp" && network != encrypted && network != rdma {
		return "", "", fault.New(fault.Invalid, "%q is not the address of a pool node: unix:PATH, tcp:HOST:PORT, tls:HOST:PORT or rdma:HOST:PORT", s)
	}
	if network == rdma || network == encrypted {
		network = "tcp"
	}
	return network, address, nil
}

// Dial connects to a node for a group; both are empty for a node without groups.
func Dial(ctx context.Context, at, group, key string) (*Client, error) {
	return dial(ctx, at, key, []byte(key), func(challenge []byte) request {
		return request{Op: "hello", Group: group, MAC: hex.EncodeToString(groupMAC(key, challenge, group))}
	})
}

// DialTicket connects to a node of a platform for the task of a ticket.
func DialTicket(ctx context.Context, at, ticket, key string) (*Client, error) {
	k, err := hex.DecodeString(key)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the ticket's key is not hexadecimal")
	}
	return dial(ctx, at, key, []byte(key), func(challenge []byte) request {
		return request{Op: "hello", Ticket: ticket, MAC: hex.EncodeToString(ticketMAC(k, challenge, ticket))}
	})
}

// dial connects to a node. The key is what tokens are hidden by, and the secret what
// the node proves to know where the connection is encrypted.
func dial(ctx context.Context, at, key string, secret []byte, hello func(challenge []byte) request) (*Client, error) {
	network, address, err := Address(at)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the pool node at %s does not answer", at)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends what is under way
	defer stop()
	c := &Client{at: at, key: key, conn: conn, in: bufio.NewReader(conn), out: json.NewEncoder(conn), ended: make(chan struct{})}
	var greeting [len(wire.Greeting) + wire.ChallengeSize]byte
	if _, err := io.ReadFull(c.in, greeting[:]); err != nil || string(greeting[:len(wire.Greeting)]) != wire.Greeting {
		_ = conn.Close()
		if ctx.Err() != nil {
			return nil, fault.Wrap(fault.Unavailable, ctx.Err(), "the pool node at %s does not answer", at)
		}
		return nil, fault.New(fault.Unavailable, "what answers at %s is not a pool node of this version", at)
	}
	c.challenge = greeting[len(wire.Greeting):]
	if Encrypts(at) {
		err = c.encrypt()
	} else {
		_, err = io.WriteString(conn, wire.ControlHello)
	}
	var first reply
	if err == nil {
		first, err = c.ask(hello(c.challenge))
	}
	if err == nil && c.tls != nil && !hmac.Equal([]byte(first.MAC), []byte(hex.EncodeToString(tunnel.Proof(secret, c.challenge)))) {
		err = fault.New(fault.Unauthenticated, "what answers at %s is not the pool node, or somebody is in between", at)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the connection, and the task that was asked for on it.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		close(c.ended)
	}
	_ = c.conn.Close()
}

// beat says now and then that the client is there, until it is closed.
func (c *Client) beat() {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		c.mu.Lock()
		conn := c.conn
		c.mu.Unlock()
		impatient(conn, silent)
		for same := true; same; {
			select {
			case <-c.ended:
				return
			case <-tick.C:
			}
			_, _ = conn.Write([]byte{'\n'}) // who reads hears of an error
			c.mu.Lock()
			same = c.conn == conn
			c.mu.Unlock()
		}
	}
}

// follow goes to where the task of this client is now. If that cannot be
// reached, the node it was at holds it on the client's behalf.
func (c *Client) follow(to string) {
	if to == sameNode {
		to = c.at
	}
	if Encrypts(c.at) && !secret(to) {
		return // what is said in the clear is not believed so far
	}
	ctx, cancel := context.WithTimeout(context.Background(), followTime)
	defer cancel()
	next, err := dial(ctx, to, "", c.token, func(challenge []byte) request {
		return request{Op: "hello", Task: c.task, MAC: hex.EncodeToString(ticketMAC(c.token, challenge, c.task))}
	})
	if err != nil {
		return
	}
	if _, err = next.ask(request{Op: "hold", Task: c.task}); err == nil {
		err = next.holds()
	}
	if err != nil {
		next.Close()
		return
	}
	c.mu.Lock()
	_ = c.conn.Close()
	c.at, c.conn, c.in, c.out = to, next.conn, next.in, next.out
	if c.closed {
		_ = c.conn.Close()
	}
	c.mu.Unlock()
	if c.Follows != nil {
		c.Follows(to)
	}
}

const followTime = 10 * time.Second

func (c *Client) read() (reply, error) {
	var r reply
	line, err := c.in.ReadBytes('\n')
	for err == nil && len(line) == 1 {
		line, err = c.in.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return r, fault.New(fault.Unavailable, "the pool node at %s does not answer", c.at)
	}
	if err != nil {
		return r, fault.Wrap(fault.Unavailable, err, "the pool node ended the connection")
	}
	if r.Error != "" {
		k, ok := kinds[r.Kind]
		if !ok {
			k = fault.Internal
		}
		return r, fault.New(k, "%s", r.Error)
	}
	return r, nil
}

func (c *Client) ask(q request) (reply, error) {
	if err := c.out.Encode(q); err != nil {
		return reply{}, fault.Wrap(fault.Unavailable, err, "the pool node ended the connection")
	}
	return c.read()
}

// askSoon asks a node that answers at once, or is silent.
func (c *Client) askSoon(q request) (reply, error) {
	_ = c.conn.SetDeadline(time.Now().Add(answerTime))
	r, err := c.ask(q)
	_ = c.conn.SetDeadline(time.Time{})
	return r, err
}

// answerTime is how long a node takes at most to say something that needs no waiting.
const answerTime = 30 * time.Second

// Devices lists the node's devices.
func (c *Client) Devices() ([]Device, error) {
	r, err := c.askSoon(request{Op: "devices"})
	return r.Devices, err
}

// Tasks lists the tasks that the group may see: its own.
func (c *Client) Tasks() ([]Task, error) {
	r, err := c.askSoon(request{Op: "tasks"})
	return r.Tasks, err
}

// Run asks for a task. It lasts until it is released or the client is closed.
func (c *Client) Run(s Spec) (Task, string, error) {
	r, err := c.ask(request{Op: "run", Spec: s, Hidden: true})
	if err == nil && r.Task == nil {
		err = fault.New(fault.Unavailable, "the pool node gave no task")
	}
	if err != nil {
		return Task{}, "", err
	}
	c.task = r.Task.ID
	if c.token, err = hex.DecodeString(r.Token); err != nil || len(c.token) != sha256.Size {
		return Task{}, "", fault.New(fault.Unavailable, "the pool node gave a token that is none")
	}
	if r.Hidden {
		c.token = hide(c.key, c.challenge, c.task, c.token)
	}
	if err := c.holds(); err != nil {
		return Task{}, "", err
	}
	go c.beat()
	return *r.Task, hex.EncodeToString(c.token), nil
}

// Migrate moves a task to another device of the same model and driver while its
// programs compute: to a node at an address ("": the same), and to a device of
// that ("": any). It returns the task as it is there, and how long its programs
// stood still. If it fails, the task is where it was and computes on.
func (c *Client) Migrate(task, to, device string) (Task, time.Duration, error) {
	r, err := c.ask(request{Op: "migrate", Task: task, To: to, Device: device})
	if err != nil || r.Task == nil {
		return Task{}, 0, err
	}
	return *r.Task, r.Pause, nil
}

// Ended waits until the task that was asked for has ended, and says why.
func (c *Client) Ended() (string, error) {
	for {
		r, err := c.read()
		if err != nil || r.Moved == "" {
			return r.Ended, err
		}
		c.follow(r.Moved)
	}
}

// Resize changes what a task may use while it runs; 0 leaves it.
func (c *Client) Resize(task string, compute, memory int64) (Task, error) {
	r, err := c.askSoon(request{Op: "resize", Task: task, Compute: compute, Memory: memory})
	if err != nil || r.Task == nil {
		return Task{}, err
	}
	return *r.Task, nil
}

// Stop ends a task.
func (c *Client) Stop(task string) error {
	_, err := c.askSoon(request{Op: "stop", Task: task})
	return err
}

// Enable lets a device take new tasks, or none.
func (c *Client) Enable(device string, on bool) error {
	op := "disable"
	if on {
		op = "enable"
	}
	_, err := c.askSoon(request{Op: op, Device: device})
	return err
}

// LimitPower sets what a card may draw, in watts; 0: as it is made. What the card
// or its driver refuses is fault.Invalid or fault.Denied.
func (c *Client) LimitPower(device string, watts int64) error {
	_, err := c.askSoon(request{Op: "power", Device: device, Watts: watts})
	return err
}

// Rescan has the node look for devices that came or went, and returns those there are.
func (c *Client) Rescan() ([]Device, error) {
	r, err := c.ask(request{Op: "rescan"})
	return r.Devices, err
}

// DefaultAddress is where a node with this folder listens if nothing else is said.
func DefaultAddress(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		abs = dir
	}
	return "unix:" + filepath.Join(abs, "pool.sock")
}

// SharedFolder is the folder in that of a node of a platform which containers on its
// machine may be shown, and SharedSocket the socket in it. Anybody may open that; who
// does is asked for a ticket or a token, and can administer nothing.
const (
	SharedFolder = "shared"
	SharedSocket = SharedFolder + "/pool.sock"
)
