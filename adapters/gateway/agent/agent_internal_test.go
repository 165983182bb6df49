package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/images"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/fault"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLedgerSurvives(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "recorded")
	l, err := openLedger(path)
	must(t, err)
	end := func(id string) *adapterv1.Status {
		return &adapterv1.Status{AttemptId: id, Phase: adapterv1.Phase_PHASE_ENDED, Reason: "exit", ExitCode: 3, Log: []byte("said " + id), LogInline: true}
	}
	must(t, l.add([]*adapterv1.Status{end("att_1"), end("att_2")}))
	must(t, l.add([]*adapterv1.Status{end("att_3"), end("att_1")}))
	if l.has("att_4") || !l.has("att_2") {
		t.Error("the ledger forgets or invents")
	}
	// Killed: not closed, and in the middle of a line.
	now := time.Now()
	for _, torn := range []string{"att_torn", "att_torn ", fmt.Sprintf("att_torn %d", now.Unix())[:15], "\x00\x00\x00", "att_old 1\n" + fmt.Sprintf("att_edge %d\natt_", now.Add(-ledgerKeep-time.Minute).Unix())} {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteString(torn)
		must(t, errors.Join(err, f.Close()))
		l, err := openLedger(path)
		if err != nil {
			t.Fatalf("after %q: %v", torn, err)
		}
		for _, id := range []string{"att_1", "att_2", "att_3"} {
			if st, ok := l.status(id); !l.has(id) || !ok || st.ExitCode != 3 || len(st.Log) != 0 {
				t.Errorf("after %q: of %s is known %v", torn, id, st)
			}
		}
		for _, id := range []string{"att_torn", "att_old", "att_edge", "att_", "\x00\x00\x00"} {
			if l.has(id) {
				t.Errorf("after %q: %q is remembered", torn, id)
			}
		}
		l.close()
	}
	l, err = openLedger(path)
	must(t, err)
	must(t, l.add([]*adapterv1.Status{end("att_5")})) // appended to whole lines
	l.close()
	l, err = openLedger(path)
	must(t, err)
	defer l.close()
	for _, id := range []string{"att_5", "att_3"} {
		if st, ok := l.status(id); !ok || st.AttemptId != id {
			t.Errorf("after a torn line %s is lost: %v", id, st)
		}
	}
	// Written by a gateway that did not keep how attempts ended.
	old := filepath.Join(t.TempDir(), "recorded")
	must(t, os.WriteFile(old, fmt.Appendf(nil, "att_1 %d\n", now.Unix()), 0o600))
	l, err = openLedger(old)
	must(t, err)
	defer l.close()
	if _, ok := l.status("att_1"); ok || !l.has("att_1") {
		t.Error("an old line is not read as one")
	}
}

// The key is on disk before the token is used: however often the gateway is
// killed in between, it is the same gateway to the platform.
// Gateways of two platforms on one machine may serve centers of one ID: each has
// groups of its own, the same after every start.
func TestGroupsAreOfOneFolder(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("c", 32)
	one, other := groupName(long, "/var/lib/one"), groupName(long, "/var/lib/other")
	if one == other || one != groupName(long, "/var/lib/one") || !strings.HasPrefix(one, long+"-") || len(one) > 64 {
		t.Errorf("groups %s and %s", one, other)
	}
}

func TestMembershipBeforeToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	var keys []string
	cfg := Config{Dir: dir, Token: "yj_once"}
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Join = func(_ context.Context, r *adaptersv1.JoinRequest) (*adaptersv1.JoinResponse, error) {
		b, err := os.ReadFile(filepath.Join(dir, "gateway.json"))
		must(t, err)
		if !strings.Contains(string(b), "seed") {
			t.Errorf("the token is used and the key is not kept: %s", b)
		}
		keys = append(keys, r.PublicKey)
		cancel() // killed before the answer came
		return nil, fault.New(fault.Unavailable, "away")
	}
	if _, err := member(ctx, cfg, &adapterv1.Inventory{}, log); !errors.Is(err, context.Canceled) {
		t.Fatalf("killed while joining: %v", err)
	}
	calls := 0
	cfg.Join = func(_ context.Context, r *adaptersv1.JoinRequest) (*adaptersv1.JoinResponse, error) {
		keys = append(keys, r.PublicKey)
		calls++
		return &adaptersv1.JoinResponse{AiCenterId: "c1", BusUrls: []string{"nats://127.0.0.1:1"}, BusJwt: "jwt"}, nil
	}
	m, err := member(t.Context(), cfg, &adapterv1.Inventory{}, log)
	must(t, err)
	pub, err := bus.PublicKey(m.Seed)
	must(t, err)
	if len(keys) != 2 || keys[0] != keys[1] || keys[1] != pub {
		t.Errorf("keys shown: %v, kept: %s", keys, pub)
	}
	cfg.Token = ""
	again, err := member(t.Context(), cfg, &adapterv1.Inventory{}, log)
	if err != nil || again.CenterID != "c1" || again.JWT != "jwt" || again.Seed != m.Seed || calls != 1 {
		t.Errorf("the next start: %+v, %v after %d calls", again, err, calls)
	}
	if st, err := os.Stat(filepath.Join(dir, "gateway.json")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", st, err)
	}
}

func TestMemberRefuses(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	if _, err := member(t.Context(), Config{Dir: dir}, nil, log); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "--token") {
		t.Errorf("no token: %v", err)
	}
	denied := Config{Dir: dir, Token: "x", Join: func(context.Context, *adaptersv1.JoinRequest) (*adaptersv1.JoinResponse, error) {
		return nil, fault.New(fault.Unauthenticated, "no")
	}}
	if _, err := member(t.Context(), denied, nil, log); fault.KindOf(err) != fault.Unauthenticated {
		t.Errorf("refused: %v, want it given up", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "gateway.json"), []byte("{"), 0o600))
	if _, err := member(t.Context(), denied, nil, log); fault.KindOf(err) != fault.Invalid {
		t.Errorf("spoiled file: %v", err)
	}
}

func TestInventory(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir(), Center: Center{ID: "c", CPU: "1500m", Memory: "2Gi", Prices: map[string]int64{"small": 7}, StaticWatts: 1.5}}
	inv, err := inventory(cfg, map[string]int64{"gpu": 2})
	must(t, err)
	if inv.Capacity["cpu"] != 1500 || inv.Capacity["gpu"] != 2 || inv.Capacity["memory"] != 2<<30 || inv.Capacity["storage"] <= 0 || inv.StaticMilliwattsPerCpu != 1500 || len(inv.Offers) != 1 || inv.Offers[0].Price != 7 {
		t.Errorf("declared: %v", inv)
	}
	cfg.Center = Center{ID: "c"}
	if inv, err = inventory(cfg, nil); err != nil || inv.Capacity["cpu"] < 1000 || inv.Capacity["memory"] < 1<<20 {
		t.Errorf("measured: %v, %v", inv, err)
	}
	for _, bad := range []Center{{CPU: "x"}, {CPU: "-1"}, {Memory: "1.5"}} {
		cfg.Center = bad
		if _, err := inventory(cfg, nil); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// What the platform cannot mean is answered, whatever the bytes.
func FuzzAnswer(f *testing.F) {
	for _, what := range []string{"apply", "remove", "readlog", "discover", "describe", "no-such"} {
		f.Add(what, []byte("\x0a\x02\xff\xfe"))
		f.Add(what, []byte(nil))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, what string, data []byte) {
		if what == "apply" || what == "remove" || what == "readlog" {
			// Only what cannot be read: the rest needs a sandbox.
			data = append([]byte{0x0a, 0x02, 0xff, 0xfe}, data...)
		}
		store, err := images.Open(dir)
		must(t, err)
		a := &Agent{inv: &adapterv1.Inventory{}, images: store, log: slog.New(slog.DiscardHandler)}
		out, err := a.answer(t.Context(), what, data)
		if k := fault.KindOf(err); err != nil && k != fault.Invalid && k != fault.Unimplemented {
			t.Fatalf("%s of %q: %q, %v", what, data, out, err)
		}
	})
}

// The factor is measured once, and what an operator states holds.
func TestMeasureMachine(t *testing.T) {
	t.Parallel()
	a := &Agent{cfg: Config{Dir: t.TempDir(), Measure: MeasureOnce}, log: slog.New(slog.DiscardHandler)}
	first, err := a.measureMachine(t.Context())
	if err != nil || first <= 0 {
		t.Fatalf("measured %d, %v", first, err)
	}
	if second, err := a.measureMachine(t.Context()); err != nil || second != first {
		t.Errorf("again %d, %v, want the same, to the digit", second, err)
	}
	a.inv = &adapterv1.Inventory{Capacity: map[string]int64{"cpu": 2000, "memory": 1 << 30}}
	if n := a.describe(t.Context()); n == nil || n.Labels["disk.write.mbps"] == "" || n.Labels["system"] == "" {
		t.Errorf("the machine: %v", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.cfg.Measure = MeasureAgain
	if _, err := a.measureMachine(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped meanwhile: %v", err)
	}
	a.cfg.Dir = filepath.Join(a.cfg.Dir, "absent")
	if got, err := a.measureMachine(t.Context()); got != 0 || err != nil {
		t.Errorf("a disk that cannot be measured: %d, %v, want the gateway to go on", got, err)
	}
	if n := a.describe(t.Context()); n == nil || n.Allocatable["cpu"] != 2000 || n.Capacity["cpu"] < 1000 || n.Labels["disk.write.mbps"] != "" {
		t.Errorf("the machine: %v", n)
	}
}
