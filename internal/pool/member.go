package pool

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// Member is a node that belongs to a platform: it lends to who has a ticket of
// the platform, and to nobody else.
type Member struct {
	ID     string
	Secret []byte // the platform's and the node's
}

// Ticket is what a platform lets a client have of a node. It goes in the clear:
// what proves it is its key, which is not sent. It is good once, for one start
// of the node, and for [TicketEpochs] of the node's epochs.
type Ticket struct {
	Node   string `json:"node"`
	Boot   string `json:"boot"`
	Epoch  int64  `json:"epoch"`
	Serial string `json:"serial"`
	Slice  string `json:"slice"`
	Group  string `json:"group"`
	Spec   Spec   `json:"spec"`
	Move   bool   `json:"move,omitempty"`   // of another node, which brings the slice
	Shared bool   `json:"shared,omitempty"` // all that show one for the slice have it together
	Pages  bool   `json:"pages,omitempty"`  // more memory of its device of CUDA is lent than that has

	key string // as a node knows it that was shown the ticket
}

const (
	// EpochLength is how long an epoch of a node takes. Epochs are counted by
	// the node, so that clocks need not agree.
	EpochLength = 15 * time.Second
	// TicketEpochs is for how many epochs after its own a ticket is taken.
	TicketEpochs = 2
	maxTicket    = 8 << 10
)

// Sign returns the ticket as a node is shown it, and its key.
func (t Ticket) Sign(secret []byte) (text, key string, err error) {
	b, err := json.Marshal(t)
	if err != nil {
		return "", "", err
	}
	text = base64.RawURLEncoding.EncodeToString(b)
	return text, hex.EncodeToString(ticketKey(secret, text)), nil
}

func ticketKey(secret []byte, text string) []byte {
	of := sha256.Sum256(append([]byte("yunhe pool ticket\n"), secret...))
	m := hmac.New(sha256.New, of[:])
	m.Write([]byte(text))
	return m.Sum(nil)
}

func ticketMAC(key, challenge []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write(challenge)
	m.Write([]byte(text))
	return m.Sum(nil)
}

// redeem returns the ticket that a client shows and proves to have.
func (m *Member) redeem(text, mac string, challenge []byte) (*Ticket, error) {
	refused := fault.New(fault.Unauthenticated, "the ticket is not one of this pool node's, or is not the client's")
	got, err := hex.DecodeString(mac)
	key := ticketKey(m.Secret, text)
	if err != nil || len(text) > maxTicket || !hmac.Equal(got, ticketMAC(key, challenge, text)) {
		return nil, refused
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, refused
	}
	t := &Ticket{key: hex.EncodeToString(key)}
	if json.Unmarshal(b, t) != nil || t.Node != m.ID {
		return nil, refused
	}
	return t, nil
}

// Report is what a node tells its platform.
type Report struct {
	Boot      string
	Sequence  int64
	Epoch     int64
	Addresses []string
	Devices   []Device
	Figures   []Figure
	Tasks     []Task
	Ended     []EndedTask // since the last report that was answered
	Moved     []Moved     // as Ended
	Stopping  bool
}

// Figure is what a device, or a card that cannot be lent, does; as in [Device].
type Figure struct {
	Device      string `json:"device"`
	Model       string `json:"model,omitempty"`  // of a card that cannot be lent
	Driver      string `json:"driver,omitempty"` // of the maker's library
	Bus         string `json:"bus,omitempty"`
	NotLent     string `json:"not_lent,omitempty"`
	Temperature *int64 `json:"temperature,omitempty"`
	Busy        *int64 `json:"busy,omitempty"`
	Uncorrected *int64 `json:"uncorrected,omitempty"`
	Faults      int64  `json:"faults,omitempty"`
	Fault       string `json:"fault,omitempty"`
	Power       int64  `json:"power,omitempty"`
	Energy      int64  `json:"energy,omitempty"`
	Source      string `json:"source,omitempty"`
	Limit       *int64 `json:"limit,omitempty"` // of its power, milliwatts, as the next two
	LeastLimit  *int64 `json:"least_limit,omitempty"`
	MostLimit   *int64 `json:"most_limit,omitempty"`
	LimitError  string `json:"limit_error,omitempty"` // why the platform's was not set
	Pages       bool   `json:"pages,omitempty"`
}

func (d *Device) figure() Figure {
	f := Figure{Device: d.ID, Bus: d.Bus, NotLent: d.NotLent, Power: d.Power, Energy: d.Energy, Source: d.EnergySource, Pages: d.Pages}
	if d.NotLent != "" {
		f.Model = d.Model
	}
	if c := d.Card; c != nil {
		f.Driver, f.Temperature, f.Busy, f.Uncorrected, f.Faults, f.Fault = c.Driver, c.Temperature, c.Busy, c.Uncorrected, c.Faults, c.Fault
		f.Limit, f.LeastLimit, f.MostLimit = c.Limit, c.LeastLimit, c.MostLimit
	}
	return f
}

// ClientEnded is the reason of a task whose program has ended, or let go of it.
const ClientEnded = "its client ended the connection"

// ClientLost is the reason of a task whose client nothing gets through to.
const ClientLost = "its client cannot be reached any more"

// Released begins the reason of a task that the node or its platform ended: by
// its limits, not by its program.
const Released = "virtual resource released: "

// RunTimeout is in the reason of a task that ran for its limit.
const RunTimeout = "run timeout"

// EndedTask is a task that has ended.
type EndedTask struct {
	Slice, Reason string
	Busy          time.Duration
	Energy        int64 // millijoules
}

// Moved is a move that has ended.
type Moved struct {
	Slice, ID, Error string
	Pause            time.Duration
}

// Wanted is what a platform wants of a node.
type Wanted struct {
	Slices []WantedSlice
	End    []string
	Moves  []Move
	Power  []WantedPower
	Groups []WantedGroup
}

// Move is a slice that should move to a node at one of these addresses, none: to
// another device of this one.
type Move struct {
	Slice, ID   string
	Addresses   []string
	Ticket, Key string
}

// WantedSlice is what a slice has.
type WantedSlice struct {
	Slice           string
	Compute, Memory int64 // percent, bytes
}

// WantedGroup is what of devices' time a group's tasks may have together at the node, in
// percent of one; others are not bound.
type WantedGroup struct {
	Group   string
	Compute int64
}

// WantedPower is what a device may draw; -1: as its maker set it.
type WantedPower struct {
	Device string
	Watts  int64
}

// Tell sends a report; the platform may answer as late as wait from now.
type Tell func(ctx context.Context, r Report, wait time.Duration) (Wanted, error)

// Host names the running kernel of this machine: who has the same is on it, in
// whatever container. It is "" where there is no such name.
func Host() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
