package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/release"
)

// platform has one program, and is away each second time that it is asked for it.
type platform struct {
	poolv1connect.PoolOperationServiceClient

	content []byte

	mu     sync.Mutex // guards what follows
	asked  int
	wanted *poolv1.TellNodeResponse
	told   chan *poolv1.TellNodeRequest // what came of upgrades
}

func (p *platform) TellNode(ctx context.Context, r *poolv1.TellNodeRequest) (*poolv1.TellNodeResponse, error) {
	p.mu.Lock()
	w := p.wanted
	p.mu.Unlock()
	if r.Attempt == w.Attempt && r.WaitMs == 0 {
		p.told <- r
	}
	if r.Attempt == w.Attempt && r.WaitMs > 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return w, nil
}

func (p *platform) FetchPoolRelease(_ context.Context, r *poolv1.FetchPoolReleaseRequest) (*poolv1.FetchPoolReleaseResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked++; p.asked%2 == 1 {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("away"))
	}
	at := min(r.Offset, int64(len(p.content)))
	return &poolv1.FetchPoolReleaseResponse{Content: p.content[at:min(at+20, int64(len(p.content)))]}, nil
}

// replaceable is a node that notes what it should become, and stays what it is.
type replaceable struct {
	became chan string
	back   string
}

func (*replaceable) SetLimits(pool.Limits) {}
func (*replaceable) Parts() []pool.Part    { return nil }
func (n *replaceable) GivenBack() string   { return n.back }
func (*replaceable) Libraries() string     { return "/makers" }
func (n *replaceable) Replace(_ context.Context, program string) error {
	n.became <- program
	return errors.New("task t1 is being moved")
}

// TestUpgrade: a node fetches what it should run, also from a platform that comes
// and goes, and becomes it only if it is that and runs here as a node; what came of
// it is told, and known after a start.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, script, content, becomes, says string }{
		{"as it should be", "#!/bin/sh\n[ \"$YUNHE_POOL_LIBRARIES\" = /makers ] && echo '{\"version\":\"v2\",\"handover\":1,\"devices\":1}'\n", "", "yes", "is being moved"},
		{"no devices", "#!/bin/sh\necho '{\"version\":\"v2\",\"handover\":1,\"devices\":0}'\n", "", "", "finds no devices here"},
		{"another form", "#!/bin/sh\necho '{\"version\":\"v2\",\"handover\":99,\"devices\":1}'\n", "", "", "takes over in form 99"},
		{"it does not run", "#!/bin/sh\necho no such command >&2\nexit 2\n", "", "", "no such command"},
		{"other contents", "#!/bin/sh\n", "#!/bin/sh\nexit 0\n", "", "SHA-256"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := sha256.Sum256([]byte(c.script))
			sum := hex.EncodeToString(h[:])
			p := &platform{content: []byte(c.script), told: make(chan *poolv1.TellNodeRequest, 10), wanted: &poolv1.TellNodeResponse{Release: &poolv1.PoolRelease{Sha256: sum, Version: "v2", Bytes: int64(len(c.script))}, Attempt: 7}}
			if c.content != "" {
				p.content = []byte(c.content)
			}
			dir := t.TempDir()
			spool, err := OpenSpool(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer spool.Close()
			n := &replaceable{became: make(chan string, 1)}
			programs := release.Folder(dir + "/programs")
			operate := func(until func()) {
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					(&Membership{Node: "n1"}).Operate(ctx, p, "v1", n, spool, programs)
				}()
				until()
				stop()
				<-done
			}
			operate(func() {
				if c.becomes != "" {
					if got := <-n.became; got != programs.Path(sum) {
						t.Errorf("it became %s", got)
					}
				}
				if r := <-p.told; !strings.Contains(r.AttemptProblem, c.says) || r.Program == "" {
					t.Errorf("it says %v, not %q", r, c.says)
				}
			})
			self, err := release.Self()
			if err != nil {
				t.Fatal(err)
			}
			if next, err := programs.Successor(self); err != nil || next != "" {
				t.Errorf("started again it is %q, %v", next, err)
			}
			if _, err := os.Stat(programs.Path(sum)); (err == nil) != (c.content == "") {
				t.Errorf("what was fetched: %v", err)
			}
		})
	}
}
