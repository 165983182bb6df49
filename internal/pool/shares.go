package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// Fate is what became of a run's shares before it ended, if that was not its program's doing.
type Fate struct {
	Why   string // "": nothing
	Lost  bool   // a node or device went, which is nobody's decision
	Begun bool   // its program had had them
}

// Shares are what a run of a job wants of a platform's pool.
type Shares struct {
	Run                     string // names it for ever; "": it has no place yet
	Wish                    string // names a replica that waits to be placed, and its run until that has its shares
	Gang                    string // those that wait with the same have a place together; "": by themselves
	Job, Task, Project      string
	TaskIndex, Replica      int32
	Number                  int32 // of the replica's runs, from 1
	Tenant, User, UserName  string
	Group, Spec, Model, API string
	Node, Affinity, Anti    string
	Compute, Memory         int64 // percent, MiB
	Cards, Priority         int64
	JobPriority             int64     // of those of the same priority the job's counts
	Since                   time.Time // when it has its turn, with both; zero: now
	Weighted, Across, Whole bool
	Local                   bool // of a node on the machine of the run
}

// Asked is what replicas that wait to be placed have asked a platform's pool for.
type Asked struct {
	Wishes map[string]Wish
	// Full says why one more does not ask for such shares now; "": it may. It counts whom
	// it lets.
	Full func(Shares) string
}

// Wish is what a replica asked for that waits to be placed.
type Wish struct {
	Placed bool   // all its shares have a place
	Waits  string // else what they wait for
}

// Claim is of a replica, or a gang, that waits for its shares.
type Claim struct {
	Wishes []string // or runs that wait with a place
	Ahead  bool     // those of higher priorities in the pool's queue, too, are not there again before it
	From   []Yield  // what may be taken back for it; of those that cost the same the first

}

// Yield are runs that are taken back together, or not.
type Yield struct {
	Runs []string
	Lost int64 // of their time, milliseconds
}

// Pass is how who has a slice gets to its node.
type Pass struct {
	Slice     string   `json:"slice"`
	Addresses []string `json:"addresses"`
	Host      string   `json:"host"` // names the node's machine
	Ticket    string   `json:"ticket"`
	Key       string   `json:"key"`
	Socket    string   `json:"socket,omitempty"` // where the node's shared socket is here, the best way to it
	Node      string   `json:"-"`                // as the platform calls it
	Bus       string   `json:"-"`                // where the slice's card is
}

// ErrNoNode is why a run that is local is not lent its shares: no node on its machine
// lends such now.
var ErrNoNode = errors.New("no pool node on its machine lends such shares now")

// SentPass is a pass as the platform sends it to centers.
type SentPass interface {
	GetSliceId() string
	GetAddresses() []string
	GetHost() string
	GetTicket() string
	GetTicketKey() string
}

// Home is where a run whose shares are local is to have them.
type Home struct {
	Node  string   // whose they are; "": none lends any now
	Room  bool     // it has room for them now
	Lends []string // those where the run may wait for them
}

// DriverShown are variables, each with its value, by which a container's runtime with
// NVIDIA's toolkit shows it the driver and the cards.
func DriverShown() [][2]string {
	return [][2]string{{"NVIDIA_VISIBLE_DEVICES", "all"}, {"NVIDIA_DRIVER_CAPABILITIES", "compute,utility"}}
}

// PassesText are passes as what redeems a run's reads them (PassesVariable). sockets are
// where it finds their nodes' shared sockets, "" where it does not; none: nowhere.
func PassesText[P SentPass](sent []P, sockets ...string) ([]byte, error) {
	var list []Pass
	for i, p := range sent {
		list = append(list, Pass{Slice: p.GetSliceId(), Addresses: p.GetAddresses(), Host: p.GetHost(), Ticket: p.GetTicket(), Key: p.GetTicketKey()})
		if i < len(sockets) {
			list[i].Socket = sockets[i]
		}
	}
	b, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encode passes: %w", err)
	}
	return b, nil
}

// Redeem begins the slice's task at the first address that answers: its Unix
// socket where both are on one machine. The task lasts as long as the client.
func (p Pass) Redeem(ctx context.Context) (client *Client, task Task, token, at string, err error) {
	addresses := p.order()
	err = fault.New(fault.Unavailable, "the pool node of slice %s has no address that is reached from here: %s", p.Slice, strings.Join(p.Addresses, " "))
	for _, at := range addresses {
		if client, err = DialTicket(ctx, at, p.Ticket, p.Key); err == nil {
			waits := context.AfterFunc(ctx, client.Close)
			task, token, err = client.Run(Spec{})
			if !waits() {
				err = ctx.Err()
			}
			if err == nil {
				return client, task, token, at, nil
			}
			client.Close()
		}
		if fault.KindOf(err) != fault.Unavailable {
			break
		}
	}
	return nil, Task{}, "", "", err
}

// order are the addresses that may be reached from here, the best first.
func (p Pass) order() []string {
	if p.Socket != "" {
		far := p
		far.Socket, far.Host = "", "" // its own socket is not there
		return append([]string{"unix:" + p.Socket}, far.order()...)
	}
	addresses := slices.DeleteFunc(slices.Clone(p.Addresses), func(a string) bool {
		path, local := strings.CutPrefix(a, "unix:")
		if !local {
			return false
		}
		_, err := os.Stat(path)
		return p.Host != Host() || err != nil
	})
	ways := []string{"unix", rdma, encrypted, "tcp"}
	slices.SortStableFunc(addresses, func(a, b string) int {
		of := func(s string) int { network, _, _ := strings.Cut(s, ":"); return slices.Index(ways, network) }
		return of(a) - of(b)
	})
	return addresses
}

// LibraryFor is Library, CUDALibrary and RemoteCUDA for programs that are shown the folder at
// another path, and may be anybody's.
func LibraryFor(dir, path string) error {
	if _, err := unpack(dir, clientLibrary); err != nil {
		return err
	}
	if err := unpackLoader(dir); err != nil {
		return err
	}
	if _, err := unpack(dir, cudaLibrary); err != nil {
		return err
	}
	cuda, err := RemoteCUDA(dir)
	if err != nil {
		return err
	}
	vendors := filepath.Join(dir, Vendors)
	if err := os.MkdirAll(vendors, 0o755); err != nil {
		return fault.Wrap(fault.Unavailable, err, "%s cannot be made", vendors)
	}
	for _, folder := range []string{dir, vendors, cuda, filepath.Join(dir, LoaderFolder)} {
		if err := os.Chmod(folder, 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(vendors, "yunhe.icd"), []byte(filepath.Join(path, clientLibrary)+"\n"), 0o644)
}

// Vendors is the folder beside the client library by which the loader of OpenCL
// finds it.
const Vendors = "vendors"
