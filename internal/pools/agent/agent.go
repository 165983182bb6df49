// Package agent has pool nodes and their clients talk to a platform.
//
// What it keeps true: a node's secret is made here, kept in its folder (0600),
// and sent to its platform only; a client takes a ticket to the node over what is
// fastest, the Unix socket where both are on one machine.
package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"connectrpc.com/connect"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// Membership is what a node keeps of its platform.
type Membership struct {
	Platform string `json:"platform"`
	Node     string `json:"node"`
	Secret   string `json:"secret"`
}

const (
	file = "membership.json"
	// asked is a membership that a platform was asked for. It takes the place of the
	// one before when the platform has taken it.
	asked = "membership.asked.json"
	// joinTime is how long the platform may take to say so.
	joinTime = 30 * time.Second
)

// Load reads the membership of the node in the folder; nil if it has none.
func Load(dir string) (*Membership, error) { return load(filepath.Join(dir, file)) }

func load(path string) (*Membership, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	m := &Membership{}
	if err == nil {
		err = json.Unmarshal(b, m)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "%s cannot be read", path)
	}
	return m, nil
}

// Join makes the node in the folder a member of a platform. If it fails, the node is
// a member of what it was before. It may be repeated, after a crash, too: what the
// platform was asked for is asked for again. A node that is a member already needs
// no answer of a platform that is away.
func Join(ctx context.Context, dir, platform, node, token string, client poolv1connect.PoolServiceClient) (*Membership, error) {
	m, err := Load(dir)
	if err != nil {
		return nil, err
	}
	is := func(m *Membership) bool { return m != nil && m.Node == node && m.Platform == platform }
	member, path := is(m), filepath.Join(dir, asked)
	if !member {
		if m, err = load(path); err != nil || !is(m) { // one that cannot be read is of no use
			secret := make([]byte, 32)
			_, _ = rand.Read(secret) // it does not fail
			m = &Membership{platform, node, hex.EncodeToString(secret)}
			if err := m.write(dir, path); err != nil {
				return nil, fault.Wrap(fault.Unavailable, err, "%s cannot be written", path)
			}
		}
	}
	within, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	_, err = client.JoinNode(within, &poolv1.JoinNodeRequest{Token: token, NodeId: node, Secret: m.Secret})
	switch away := unavailable(err) && ctx.Err() == nil; {
	case err == nil && !member:
		if err := errors.Join(os.Rename(path, filepath.Join(dir, file)), syncFolder(dir)); err != nil {
			return nil, fault.Wrap(fault.Unavailable, err, "the platform took the pool node, and %s cannot be written: repeat this", filepath.Join(dir, file))
		}
	case err != nil && !(member && away):
		return nil, err
	}
	return m, nil
}

// write puts a membership in its place, whole.
func (m *Membership) write(dir, path string) error {
	b, err := json.Marshal(m)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, filepath.Base(path)+"-") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // or it is in its place
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(f.Name(), path), syncFolder(dir))
}

// syncFolder has what was renamed in a folder outlive the machine.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Member is what the node needs to know.
func (m *Membership) Member() (*pool.Member, error) {
	secret, err := hex.DecodeString(m.Secret)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the secret in %s is not hexadecimal", file)
	}
	return &pool.Member{ID: m.Node, Secret: secret}, nil
}

// What a platform takes of a text of a report, in characters.
const (
	mostText   = 256
	mostReason = 1000
)

// Tell returns what sends reports.
func (m *Membership) Tell(client poolv1connect.PoolServiceClient, version string) pool.Tell {
	host := pool.Host()
	return func(ctx context.Context, r pool.Report, wait time.Duration) (pool.Wanted, error) {
		ctx, cancel := context.WithTimeout(ctx, wait+10*time.Second)
		defer cancel()
		req := &poolv1.ReportNodeRequest{NodeId: m.Node, Secret: m.Secret, Boot: r.Boot, Sequence: r.Sequence, Epoch: r.Epoch, Host: host, Version: version, Addresses: r.Addresses, Stopping: r.Stopping, WaitMs: wait.Milliseconds()}
		for _, d := range r.Devices {
			of := &req.Devices
			if d.API == pool.CUDA {
				of = &req.CudaDevices
			}
			*of = append(*of, &poolv1.ReportNodeRequest_Device{DeviceId: d.ID, Model: line(d.Model, mostText), Vendor: line(d.Vendor, mostText), Driver: line(d.Driver, mostText), Type: line(d.Type, mostText), ComputeUnits: d.Units, MemoryMib: d.Memory >> 20, Bus: line(d.Bus, 64)})
		}
		for _, f := range r.Figures {
			req.Figures = append(req.Figures, &poolv1.PoolFigures{DeviceId: f.Device, Model: line(f.Model, mostText), Driver: line(f.Driver, mostText), Bus: line(f.Bus, mostText), NotLent: line(f.NotLent, mostText), TemperatureCelsius: f.Temperature, BusyPercent: f.Busy, UncorrectedErrors: f.Uncorrected,
				Faults: f.Faults, Fault: line(f.Fault, mostText), PowerMilliwatts: f.Power, EnergyMillijoules: f.Energy, EnergySource: f.Source,
				PowerLimitMilliwatts: f.Limit, LeastPowerLimitMilliwatts: f.LeastLimit, MostPowerLimitMilliwatts: f.MostLimit, PowerLimitError: line(f.LimitError, mostText), PagesMemory: f.Pages})
		}
		for _, t := range r.Tasks {
			req.Tasks = append(req.Tasks, &poolv1.ReportNodeRequest_Task{SliceId: t.Slice, MemoryUsedBytes: t.Used, DeviceMicros: t.Busy.Microseconds(), Programs: int64(t.Programs), DeviceId: t.Device, EnergyMillijoules: t.Energy})
		}
		for _, e := range r.Ended {
			req.Ended = append(req.Ended, &poolv1.ReportNodeRequest_Ended{SliceId: e.Slice, Reason: line(e.Reason, mostReason), DeviceMicros: e.Busy.Microseconds(), EnergyMillijoules: e.Energy})
		}
		for _, x := range r.Moved {
			req.Moved = append(req.Moved, &poolv1.ReportNodeRequest_Moved{SliceId: x.Slice, MoveId: x.ID, Error: line(x.Error, mostReason), PauseMicros: x.Pause.Microseconds()})
		}
		res, err := client.ReportNode(ctx, req)
		if err != nil {
			if connect.CodeOf(err) == connect.CodeUnauthenticated {
				return pool.Wanted{}, fault.Wrap(fault.Unauthenticated, err, "pool node %s is not in the pool of %s any more: it was drained, or another joined by its name; --join with a new --token has it join again", m.Node, m.Platform)
			}
			return pool.Wanted{}, fault.Wrap(fault.Unavailable, err, "the platform did not take the report of pool node %s", m.Node)
		}
		w := pool.Wanted{End: res.End}
		for _, x := range res.Slices {
			w.Slices = append(w.Slices, pool.WantedSlice{Slice: x.SliceId, Compute: x.ComputePercent, Memory: x.MemoryMib << 20})
		}
		for _, x := range res.Moves {
			w.Moves = append(w.Moves, pool.Move{Slice: x.SliceId, ID: x.MoveId, Addresses: x.Addresses, Ticket: x.Ticket, Key: x.TicketKey})
		}
		for _, x := range res.Power {
			w.Power = append(w.Power, pool.WantedPower{Device: x.DeviceId, Watts: x.Watts})
		}
		for _, x := range res.Groups {
			w.Groups = append(w.Groups, pool.WantedGroup{Group: x.GroupId, Compute: x.ComputePercent})
		}
		return w, nil
	}
}

const (
	// deafFor is for how long a node hears nothing of its platform until it asks anew;
	// the platform speaks four times a second.
	deafFor = 5 * time.Second
	// attendAgain is how long it waits until then, and longer after each error.
	attendAgain = 250 * time.Millisecond
)

// Attend keeps a connection by which the platform sees at once that the node was
// cut off, until ctx is done.
func (m *Membership) Attend(ctx context.Context, client poolv1connect.PoolServiceClient) {
	for late := attendAgain; ctx.Err() == nil; late = min(2*late, deafFor) {
		if m.attend(ctx, client) {
			late = attendAgain
		}
		select {
		case <-ctx.Done():
		case <-time.After(late):
		}
	}
}

// attend reports whether the platform was heard.
func (m *Membership) attend(ctx context.Context, client poolv1connect.PoolServiceClient) (heard bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	deaf := time.AfterFunc(deafFor, cancel)
	defer deaf.Stop()
	stream, err := client.AttendNode(ctx, &poolv1.AttendNodeRequest{NodeId: m.Node, Secret: m.Secret})
	if err != nil {
		return false
	}
	for stream.Receive() {
		heard = true
		deaf.Reset(deafFor)
	}
	_ = stream.Close() // why it ended is of no interest: it is begun anew
	return heard
}

// awaitFor is how long a client lets the platform wait with its answer.
const awaitFor = 2 * time.Second

// Task is a slice that a program can use: it lasts until the client is closed.
type Task struct {
	Slice  *poolv1.Slice
	Client *pool.Client
	ID     string
	Token  string
	At     string // the node's address
	API    string // what programs use it by
	UUID   string // of a device of CUDA
	Bus    string // and where that is
}

// Awaited is a slice that somebody waits for.
type Awaited struct {
	Slice  string
	Socket string              // where its node's shared socket is here, by which it is reached then ([pool.Pass])
	Waits  func(*poolv1.Slice) // is told of each answer while it waits
}

// Take waits until a slice has a place and begins its task at the node.
func Take(ctx context.Context, client poolv1connect.PoolServiceClient, w Awaited) (*Task, error) {
	var last error
	for {
		res, err := client.AwaitSlice(ctx, &poolv1.AwaitSliceRequest{SliceId: w.Slice, WaitMs: awaitFor.Milliseconds()})
		if err != nil {
			return nil, err
		}
		switch {
		case res.Slice.State == poolv1.Slice_STATE_ENDED:
			if last != nil {
				return nil, last
			}
			return nil, fault.New(fault.Unavailable, "slice %s has ended: %s", w.Slice, res.Slice.Reason)
		case res.Ticket == "":
			w.Waits(res.Slice)
			continue
		}
		t, err := redeem(ctx, res, w.Socket)
		if err == nil {
			return t, nil
		}
		if fault.KindOf(err) != fault.Unavailable {
			return nil, err
		}
		last = err // the node may be gone: then the slice is placed anew
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(awaitFor / 4):
		}
	}
}

// TakeAll is Take of a slice and of the others that its program has with it, the
// first first.
func TakeAll(ctx context.Context, client poolv1connect.PoolServiceClient, w Awaited) ([]*Task, error) {
	first, err := Take(ctx, client, w)
	if err != nil {
		return nil, err
	}
	tasks := []*Task{first}
	for _, id := range first.Slice.CardSliceIds {
		if id == first.Slice.SliceId {
			continue
		}
		w.Slice = id
		t, err := Take(ctx, client, w)
		if err != nil {
			for _, t := range tasks {
				t.Client.Close()
			}
			return nil, err
		}
		tasks = append(tasks, t)
	}
	return tasks, nil
}

// redeem begins a task at the first address that answers, or at that socket.
func redeem(ctx context.Context, res *poolv1.AwaitSliceResponse, socket string) (*Task, error) {
	p := pool.Pass{Slice: res.Slice.SliceId, Addresses: res.Addresses, Host: res.Host, Ticket: res.Ticket, Key: res.TicketKey, Socket: socket}
	t, err := Redeem(ctx, p)
	if err != nil {
		return nil, err
	}
	t.Slice = res.Slice
	return t, nil
}

// Redeem begins the task of a pass.
func Redeem(ctx context.Context, p pool.Pass) (*Task, error) {
	client, k, token, at, err := p.Redeem(ctx)
	if err != nil {
		return nil, err
	}
	return &Task{Client: client, ID: k.ID, Token: token, At: at, API: k.API, UUID: k.UUID, Bus: k.Bus}, nil
}
