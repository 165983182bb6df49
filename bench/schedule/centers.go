package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	"yunhe.dev/yunhe/gen/yunhe/adapters/v1/adaptersv1connect"
	"yunhe.dev/yunhe/internal/bus"
)

// centersEnv has this program be the centers; it holds a centersConfig.
const centersEnv = "YUNHE_BENCH_CENTERS"

// centersConfig says what the centers are.
type centersConfig struct {
	URL    string        `json:"url"`
	Tokens []string      `json:"tokens"` // one for each center
	CPU    int64         `json:"cpu"`    // cores of each
	Run    time.Duration `json:"run"`    // of each job; 0: for ever, unreported
}

// heard is what the centers were told.
type heard struct {
	// At is when a center had the job of that name, nanoseconds since 1970.
	At map[string]int64 `json:"at"`
	// Twice are jobs that had more than one run.
	Twice []string `json:"twice"`
}

// beat is how often a center says that it lives, as gateways do.
const beat = 2 * time.Second

// fleet is all simulated centers.
type fleet struct {
	run time.Duration

	mu       sync.Mutex // guards the fields below
	heard    heard
	attempts map[string]string // by job name
}

// serveCenters joins centers and answers for them. It says "ready" when all
// have connected and then answers lines: "count" with the number of jobs they
// have, "heard" with when each came. It ends with its input.
func serveCenters() error {
	var cfg centersConfig
	if err := json.Unmarshal([]byte(os.Getenv(centersEnv)), &cfg); err != nil {
		return fmt.Errorf("read %s: %w", centersEnv, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f := &fleet{run: cfg.Run, heard: heard{At: map[string]int64{}}, attempts: map[string]string{}}
	joining, jctx := errgroup.WithContext(ctx)
	joining.SetLimit(4)
	var serving sync.WaitGroup
	for i, token := range cfg.Tokens {
		joining.Go(func() error {
			c := &center{fleet: f, id: fmt.Sprintf("sim-%04d", i), cpu: cfg.CPU, connected: make(chan struct{}, 1), dirty: make(chan struct{}, 1)}
			if err := c.join(jctx, cfg.URL, token); err != nil {
				return fmt.Errorf("center %s: %w", c.id, err)
			}
			serving.Go(func() { c.serve(ctx) })
			return nil
		})
	}
	defer serving.Wait()
	defer cancel()
	if err := joining.Wait(); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode("ready"); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		f.mu.Lock()
		var answer any = len(f.heard.At)
		if in.Text() == "heard" {
			answer = f.heard
		}
		err := out.Encode(answer)
		f.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// note notes attempts that a center was told to run.
func (f *fleet) note(as []*adapterv1.Attempt) {
	now := time.Now().UnixNano()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range as {
		name := a.Env["YUNHE_JOB_NAME"]
		switch was := f.attempts[name]; was {
		case "":
			f.attempts[name], f.heard.At[name] = a.AttemptId, now
		case a.AttemptId: // told again
		default:
			f.heard.Twice = append(f.heard.Twice, name)
		}
	}
}

// center is a simulated center with its gateway.
type center struct {
	*fleet
	id        string
	cpu       int64
	agent     *bus.Agent
	connected chan struct{}
	dirty     chan struct{}

	mu       sync.Mutex // guards the fields below
	known    map[string]bool
	statuses []*adapterv1.Status // to be reported
}

func (c *center) inventory() *adapterv1.Inventory {
	return &adapterv1.Inventory{AiCenterId: c.id, Name: "Simulated " + c.id, Region: "region-" + c.id[len(c.id)-1:], SecurityGrade: 3, Performance: 1000,
		StaticMilliwattsPerCpu: 2000, ActiveMilliwattsPerCpu: 6000, Capacity: map[string]int64{"cpu": 1000 * c.cpu, "memory": c.cpu << 30},
		Offers: []*adapterv1.SpecOffer{{ResourceSpecId: "small", Price: 100}}, Images: []string{"host"}, Version: "simulated"}
}

// join joins with a token and dials the bus. A platform that is busy is asked
// again.
func (c *center) join(ctx context.Context, url, token string) error {
	seed, public, err := bus.NewAgentKey()
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	api := adaptersv1connect.NewAdapterServiceClient(http.DefaultClient, url)
	var res *adaptersv1.JoinResponse
	for tries := 0; ; tries++ {
		res, err = api.Join(ctx, &adaptersv1.JoinRequest{Token: token, PublicKey: public, Inventory: c.inventory()})
		if code := connect.CodeOf(err); err == nil || code != connect.CodeAborted && code != connect.CodeUnavailable || tries == 20 {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	c.known = map[string]bool{}
	c.agent, err = bus.DialAgent(res.BusUrls, res.AiCenterId, seed, res.BusJwt, func() { wake(c.connected) }, slog.New(slog.DiscardHandler))
	return err
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// serve does what a gateway does, until ctx ends.
func (c *center) serve(ctx context.Context) {
	defer c.agent.Close()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { c.beats(ctx) })
	if c.run > 0 {
		all.Go(func() { c.reports(ctx) })
	}
	if err := c.agent.Answer(ctx, 16, c.answer); err != nil {
		fmt.Fprintln(os.Stderr, "schedule: center", c.id, "does not answer any more:", err)
	}
}

func (c *center) ask(ctx context.Context, what string, req, res proto.Message) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	data, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	out, err := c.agent.Ask(ctx, what, data)
	if err != nil {
		return err
	}
	return proto.Unmarshal(out, res)
}

func (c *center) beats(ctx context.Context) {
	// Gateways start at different times.
	next := time.NewTimer(rand.N(beat))
	defer next.Stop()
	resync := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.connected:
			resync = true
		case <-next.C:
		}
		req := &adapterv1.HeartbeatRequest{Resync: resync, Measurement: &adapterv1.Measurement{CpuBusyPermille: rand.Int64N(1000),
			MemoryBusyBytes: rand.Int64N(c.cpu << 30), MemoryTotalBytes: c.cpu << 30, StorageBusyBytes: 1 << 30, StorageTotalBytes: 1 << 40}}
		if resync {
			req.Inventory = c.inventory()
		}
		pause := beat
		if err := c.ask(ctx, "heartbeat", req, &adapterv1.HeartbeatResponse{}); err == nil {
			resync = false
		} else if resync {
			pause = beat / 10
		}
		next.Reset(pause)
	}
}

// answer takes what the platform asks.
func (c *center) answer(_ context.Context, what string, data []byte) ([]byte, error) {
	switch what {
	case "apply":
		var req adapterv1.ApplyRequest
		if err := proto.Unmarshal(data, &req); err != nil {
			return nil, err
		}
		c.note(req.Attempts)
		c.begin(req.Attempts)
		return proto.Marshal(&adapterv1.ApplyResponse{})
	case "remove":
		return proto.Marshal(&adapterv1.RemoveResponse{})
	}
	return nil, errors.New("a simulated center does not do that")
}

// begin has attempts run, if they do.
func (c *center) begin(as []*adapterv1.Attempt) {
	if c.run == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	started := time.Now().UnixMicro()
	var ids []string
	for _, a := range as {
		if !c.known[a.AttemptId] {
			c.known[a.AttemptId] = true
			ids = append(ids, a.AttemptId)
			c.statuses = append(c.statuses, &adapterv1.Status{AttemptId: a.AttemptId, Phase: adapterv1.Phase_PHASE_RUNNING, StartedAt: started})
		}
	}
	wake(c.dirty)
	time.AfterFunc(c.run, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, id := range ids {
			c.statuses = append(c.statuses, &adapterv1.Status{AttemptId: id, Phase: adapterv1.Phase_PHASE_ENDED, Reason: "completed",
				StartedAt: started, EndedAt: time.Now().UnixMicro(), LogInline: true})
		}
		wake(c.dirty)
	})
}

// reports tells the platform what became of attempts, until it has recorded it.
func (c *center) reports(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.dirty:
		}
		c.mu.Lock()
		list := c.statuses[:min(len(c.statuses), 256)]
		c.mu.Unlock()
		if len(list) == 0 {
			continue
		}
		if err := c.ask(ctx, "report", &adapterv1.ReportRequest{Statuses: list}, &adapterv1.ReportResponse{}); err != nil {
			wake(c.dirty)
			continue
		}
		c.mu.Lock()
		if c.statuses = c.statuses[len(list):]; len(c.statuses) > 0 {
			wake(c.dirty)
		}
		c.mu.Unlock()
	}
}
