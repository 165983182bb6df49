package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// far is what the proxy keeps at the backend beside the example driver, which
// has no accounts, volumes and node settings: it outlives instances.
type far struct {
	dir string

	mu       sync.Mutex // guards the fields below
	isolated bool
	accounts map[string]string   // tenant by name
	volumes  map[string]int64    // size by ID
	uses     map[string][]string // attempts by "account NAME" or "volume ID"
	n        int
}

func newFar(dir string) *far {
	return &far{dir: dir, accounts: map[string]string{}, volumes: map[string]int64{}, uses: map[string][]string{}}
}

// partLies change what the proxy does with them. Every field may be nil.
type partLies struct {
	account func(p *proxy, r *adapterv1.EnsureAccountRequest) // before it is ensured
	listed  func(*adapterv1.ListAccountsResponse)
	free    func(use string) bool // whether something in use counts as free
	again   bool                  // what is not there cannot be removed
	any     bool                  // any account and volume is accepted
	size    func(v *adapterv1.Volume, wanted int64)
	name    func(id string) bool // an ID that is right
	private bool                 // each attempt has files of its own
	writes  bool                 // those that may only read can write
	keeps   bool                 // the files of a volume outlive it
	node    func(p *proxy, r *adapterv1.SetNodeRequest) error
	untold  bool // isolation is not told
	busy    bool // an isolated node goes on taking work

	anywhere bool // attempts may name any node
}

func fail(code connect.Code, format string, args ...any) error {
	return connect.NewError(code, fmt.Errorf(format, args...))
}

// busy reports whether attempts that use it have not ended.
func (p *proxy) busy(ctx context.Context, use string) bool {
	p.w.far.mu.Lock()
	ids := slices.Clone(p.w.far.uses[use])
	p.w.far.mu.Unlock()
	if len(ids) == 0 || p.lie.parts.free != nil && p.lie.parts.free(use) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	in, err := p.DriverServiceHandler.(honest).client.Observe(ctx, &adapterv1.ObserveRequest{})
	if err != nil {
		return true
	}
	defer func() { _ = in.Close() }() // given up
	if !in.Receive() {
		return false
	}
	return slices.ContainsFunc(in.Msg().Statuses, func(st *adapterv1.Status) bool {
		return slices.Contains(ids, st.AttemptId) && st.Phase != adapterv1.Phase_PHASE_ENDED
	})
}

func (p *proxy) ListAccounts(context.Context, *adapterv1.ListAccountsRequest) (*adapterv1.ListAccountsResponse, error) {
	f := p.w.far
	f.mu.Lock()
	defer f.mu.Unlock()
	res := &adapterv1.ListAccountsResponse{Accounts: []*adapterv1.Account{{Name: "root"}}}
	for name, tenant := range f.accounts {
		res.Accounts = append(res.Accounts, &adapterv1.Account{Name: name, TenantId: tenant})
	}
	if p.lie.parts.listed != nil {
		p.lie.parts.listed(res)
	}
	return res, nil
}

func (p *proxy) EnsureAccount(_ context.Context, r *adapterv1.EnsureAccountRequest) (*adapterv1.EnsureAccountResponse, error) {
	f := p.w.far
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.lie.parts.account != nil {
		f.n++
		p.lie.parts.account(p, r)
	}
	if r.Name == "" {
		r.Name = "of-" + r.TenantId
	}
	if _, there := f.accounts[r.Name]; !there {
		f.accounts[r.Name] = r.TenantId
	}
	return &adapterv1.EnsureAccountResponse{Account: &adapterv1.Account{Name: r.Name, TenantId: f.accounts[r.Name]}}, nil
}

func (p *proxy) RemoveAccount(ctx context.Context, r *adapterv1.RemoveAccountRequest) (*adapterv1.RemoveAccountResponse, error) {
	if p.busy(ctx, "account "+r.Name) {
		return nil, fail(connect.CodeFailedPrecondition, "runs of account %s have not ended", r.Name)
	}
	f := p.w.far
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, there := f.accounts[r.Name]; !there && p.lie.parts.again {
		return nil, fail(connect.CodeNotFound, "no account %s", r.Name)
	}
	if f.accounts[r.Name] == r.TenantId {
		delete(f.accounts, r.Name)
	}
	return &adapterv1.RemoveAccountResponse{}, nil
}

func (p *proxy) ListVolumes(context.Context, *adapterv1.ListVolumesRequest) (*adapterv1.ListVolumesResponse, error) {
	f := p.w.far
	f.mu.Lock()
	defer f.mu.Unlock()
	res := &adapterv1.ListVolumesResponse{}
	for id, bytes := range f.volumes {
		res.Volumes = append(res.Volumes, &adapterv1.Volume{VolumeId: id, Bytes: bytes})
	}
	return res, nil
}

var volumeID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (p *proxy) EnsureVolume(_ context.Context, r *adapterv1.EnsureVolumeRequest) (*adapterv1.EnsureVolumeResponse, error) {
	if !volumeID.MatchString(r.VolumeId) && (p.lie.parts.name == nil || !p.lie.parts.name(r.VolumeId)) {
		return nil, fail(connect.CodeInvalidArgument, "bad ID %q", r.VolumeId)
	}
	f := p.w.far
	f.mu.Lock()
	defer f.mu.Unlock()
	v := &adapterv1.Volume{VolumeId: r.VolumeId, Bytes: max(f.volumes[r.VolumeId], r.Bytes)}
	if p.lie.parts.size != nil {
		p.lie.parts.size(v, r.Bytes)
	}
	f.volumes[r.VolumeId] = v.Bytes
	if err := os.MkdirAll(filepath.Join(f.dir, r.VolumeId), 0o700); err != nil {
		return nil, err
	}
	return &adapterv1.EnsureVolumeResponse{Volume: v}, nil
}

func (p *proxy) RemoveVolume(ctx context.Context, r *adapterv1.RemoveVolumeRequest) (*adapterv1.RemoveVolumeResponse, error) {
	if p.busy(ctx, "volume "+r.VolumeId) {
		return nil, fail(connect.CodeFailedPrecondition, "volume %s is in use", r.VolumeId)
	}
	f := p.w.far
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.volumes, r.VolumeId)
	if p.lie.parts.keeps {
		return &adapterv1.RemoveVolumeResponse{}, nil
	}
	return &adapterv1.RemoveVolumeResponse{}, os.RemoveAll(filepath.Join(f.dir, r.VolumeId))
}

func (p *proxy) isolated() bool {
	p.w.far.mu.Lock()
	defer p.w.far.mu.Unlock()
	return p.w.far.isolated && !p.lie.parts.untold
}

func (p *proxy) SetNode(_ context.Context, r *adapterv1.SetNodeRequest) (*adapterv1.SetNodeResponse, error) {
	if p.lie.parts.node != nil {
		if err := p.lie.parts.node(p, r); err != nil {
			return nil, err
		}
	}
	if r.Name != "machine" {
		return nil, fail(connect.CodeNotFound, "no node %q", r.Name)
	}
	p.w.far.mu.Lock()
	defer p.w.far.mu.Unlock()
	p.w.far.isolated = r.Isolated
	return &adapterv1.SetNodeResponse{}, nil
}

// applyParts has attempts find their volumes: where their command names the
// path it is given the folder instead, or a copy of it that may be changed.
func (p *proxy) applyParts(ctx context.Context, r *adapterv1.ApplyRequest) (*adapterv1.ApplyResponse, error) {
	f := p.w.far
	f.mu.Lock()
	if f.isolated && !p.lie.parts.busy && len(r.Attempts) > 0 {
		f.mu.Unlock()
		return nil, fail(connect.CodeUnavailable, "the machine takes no new work")
	}
	var refusals []*adapterv1.Refusal
	kept := []*adapterv1.Attempt{}
	for _, a := range r.Attempts {
		a = proto.CloneOf(a)
		if why := f.mount(a, p.lie.parts); why != "" && !p.lie.parts.any {
			refusals = append(refusals, &adapterv1.Refusal{AttemptId: a.AttemptId, Reason: why})
			continue
		}
		if a.Node != "" && a.Node != "machine" && !p.lie.parts.anywhere {
			refusals = append(refusals, &adapterv1.Refusal{AttemptId: a.AttemptId, Reason: "there is no node " + a.Node})
			continue
		}
		kept = append(kept, a)
	}
	f.mu.Unlock()
	res, err := p.DriverServiceHandler.Apply(ctx, &adapterv1.ApplyRequest{Attempts: kept})
	if err == nil {
		res.Refusals = append(res.Refusals, refusals...)
	}
	return res, err
}

// mount readies an attempt, or says why it cannot be; mu is held.
func (f *far) mount(a *adapterv1.Attempt, lies partLies) string {
	if a.Account != "" {
		if _, there := f.accounts[a.Account]; !there {
			return "no account " + a.Account
		}
		f.uses["account "+a.Account] = append(f.uses["account "+a.Account], a.AttemptId)
	}
	for _, m := range a.Volumes {
		if _, there := f.volumes[m.VolumeId]; !there {
			return "no volume " + m.VolumeId
		}
		f.uses["volume "+m.VolumeId] = append(f.uses["volume "+m.VolumeId], a.AttemptId)
		from := filepath.Join(f.dir, m.VolumeId)
		to := from
		if m.ReadOnly && !lies.writes || lies.private {
			to = filepath.Join(f.dir, ".copy-"+a.AttemptId)
			if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
				return err.Error()
			}
		}
		a.Command = strings.ReplaceAll(a.Command, m.Path, to)
	}
	a.Volumes, a.Account = nil, ""
	return ""
}

// partWrongs are drivers that break the rules of accounts, volumes and nodes.
var partWrongs = []wrong{
	{"account/kept", "names accounts anew", "want the same every time", func() lie {
		return lie{parts: partLies{account: func(p *proxy, r *adapterv1.EnsureAccountRequest) { r.Name = fmt.Sprint("a", p.w.far.n) }}}
	}},
	{"account/kept", "has one account for all", "each must have its own", func() lie {
		return lie{parts: partLies{account: func(_ *proxy, r *adapterv1.EnsureAccountRequest) { r.Name = "all" }}}
	}},
	{"account/kept", "does not say whose accounts are", "for which it was made", func() lie {
		return lie{parts: partLies{listed: func(r *adapterv1.ListAccountsResponse) {
			for _, a := range r.Accounts {
				a.TenantId = ""
			}
		}}}
	}},
	{"account/unknown", "takes any account", "accepted an attempt with an account", func() lie { return lie{parts: partLies{any: true}} }},
	{"account/remove", "removes accounts in use", "while a run of the account goes on", func() lie {
		return lie{parts: partLies{free: func(string) bool { return true }}}
	}},
	{"account/remove", "cannot be asked again", "and ever after", func() lie { return lie{parts: partLies{again: true}} }},
	{"volume/kept", "shrinks volumes", "left as it is", func() lie {
		return lie{parts: partLies{size: func(v *adapterv1.Volume, wanted int64) { v.Bytes = wanted }}}
	}},
	{"volume/kept", "does not grow volumes", "of at least that size", func() lie {
		return lie{parts: partLies{size: func(v *adapterv1.Volume, _ int64) { v.Bytes = smallVolume }}}
	}},
	{"volume/names", "takes any ID", "with code [invalid_argument]", func() lie {
		return lie{parts: partLies{name: func(id string) bool { return id == "a/b" }}}
	}},
	{"volume/shared", "gives each attempt its own files", "another reads as", func() lie { return lie{parts: partLies{private: true}} }},
	{"volume/shared", "lets all write", "may only read changed", func() lie { return lie{parts: partLies{writes: true}} }},
	{"volume/unknown", "takes any volume", "accepted an attempt with a volume", func() lie { return lie{parts: partLies{any: true}} }},
	{"volume/remove", "deletes volumes in use", "while an attempt has it", func() lie {
		return lie{parts: partLies{free: func(string) bool { return true }}}
	}},
	{"volume/remove", "keeps the files of deleted volumes", "it must be empty: others", func() lie { return lie{parts: partLies{keeps: true}} }},
	{"node/unknown", "sets any node", "with code [not_found]", func() lie {
		return lie{parts: partLies{node: func(_ *proxy, r *adapterv1.SetNodeRequest) error {
			r.Name = "machine"
			return nil
		}}}
	}},
	{"node/isolated", "does not tell of isolation", "it was isolated", func() lie { return lie{parts: partLies{untold: true}} }},
	{"node/isolated", "cannot be asked again", "asking again is safe", func() lie {
		return lie{parts: partLies{node: func(p *proxy, r *adapterv1.SetNodeRequest) error {
			p.w.far.mu.Lock()
			defer p.w.far.mu.Unlock()
			if p.w.far.isolated == r.Isolated {
				return fail(connect.CodeFailedPrecondition, "it is so already")
			}
			return nil
		}}}
	}},
	{"node/restart", "forgets isolation on a restart", "kept at the center", func() lie {
		return lie{begin: func(p *proxy) {
			p.w.far.mu.Lock()
			defer p.w.far.mu.Unlock()
			p.w.far.isolated = false
		}}
	}},
	{"node/chosen", "takes any node", "accepted an attempt with a node", func() lie { return lie{parts: partLies{anywhere: true}} }},
	{"node/chosen", "runs them elsewhere", "to have run on", ends(func(st *adapterv1.Status) { st.Node = "another" })},
	{"node/work", "starts work on an isolated node", "it must wait", func() lie { return lie{parts: partLies{busy: true}} }},
}
