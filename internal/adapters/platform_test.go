package adapters_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/bus"
)

func TestPlatform(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		for _, c := range []struct {
			name string
			f    func(*testing.T, *apptest.App)
		}{
			{"a token admits one key once", testJoin},
			{"a token that is wrong admits nobody", testJoinRefused},
			{"a removed gateway says nothing any more", testRemoved},
			{"credentials open the own subjects only", testSubjects},
			{"what is not confirmed is sent again", testResend},
			{"a center that comes back is told everything", testResync},
			{"a log is stored once", testPutLog},
			{"rubbish is answered", testRubbish},
		} {
			t.Run(c.name, func(t *testing.T) { t.Parallel(); c.f(t, a) })
		}
	})
}

func code(err error) connect.Code {
	if err == nil {
		return 0
	}
	return connect.CodeOf(err)
}

func key(t *testing.T) (seed, public string) {
	t.Helper()
	seed, public, err := bus.NewAgentKey()
	if err != nil {
		t.Fatal(err)
	}
	return seed, public
}

func token(t *testing.T, a *apptest.App, center string) string {
	t.Helper()
	res, err := a.Admin.Adapters.CreateJoinToken(t.Context(), &adaptersv1.CreateJoinTokenRequest{AiCenterId: center})
	if err != nil {
		t.Fatal(err)
	}
	return res.Token
}

func join(t *testing.T, a *apptest.App, token, public, center string) (*adaptersv1.JoinResponse, error) {
	t.Helper()
	return apptest.NewClient(a.URL(), "").Adapters.Join(t.Context(), &adaptersv1.JoinRequest{Token: token, PublicKey: public,
		Inventory: &adapterv1.Inventory{AiCenterId: center, Capacity: map[string]int64{"cpu": 1000, "memory": 1 << 30}, Version: "v9"}})
}

func testJoin(t *testing.T, a *apptest.App) {
	_, one := key(t)
	_, two := key(t)
	tok := token(t, a, "c-join")
	first, err := join(t, a, tok, one, "")
	if err != nil || first.AiCenterId != "c-join" || len(first.BusUrls) == 0 || first.BusJwt == "" {
		t.Fatalf("join: %v, %v", first, err)
	}
	again, err := join(t, a, tok, one, "c-join")
	if err != nil || again.AiCenterId != first.AiCenterId || !slices.Equal(again.BusUrls, first.BusUrls) {
		t.Errorf("the same token and key again: %v, %v", again, err)
	}
	if _, err := join(t, a, tok, two, "c-join"); code(err) != connect.CodeUnauthenticated {
		t.Errorf("the token with another key: %v", err)
	}
	if _, err := join(t, a, token(t, a, ""), two, "c-join"); code(err) != connect.CodeAborted {
		t.Errorf("a center that is taken: %v, want a conflict", err)
	}
	if _, err := join(t, a, token(t, a, "c-join-x"), two, "c-join-y"); code(err) != connect.CodeInvalidArgument {
		t.Errorf("a token for another center: %v", err)
	}
	named, err := join(t, a, token(t, a, ""), two, "c-join-free")
	if err != nil || named.AiCenterId != "c-join-free" {
		t.Errorf("a token for any center: %v, %v", named, err)
	}
	gs, err := a.Admin.Adapters.ListGateways(t.Context(), &adaptersv1.ListGatewaysRequest{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(gs.Gateways, func(g *adaptersv1.Gateway) bool { return g.AiCenterId == "c-join" })
	if i < 0 || gs.Gateways[i].PublicKey != one || gs.Gateways[i].Version != "v9" || gs.Gateways[i].JoinedAt == nil || gs.Gateways[i].Connected || gs.Gateways[i].LastSeenAt != nil {
		t.Errorf("gateways: %v", gs)
	}
	u := a.User(t, "t-adapters", "u-adapters", identityv1.Role_ROLE_USER)
	if _, err := u.Adapters.CreateJoinToken(t.Context(), &adaptersv1.CreateJoinTokenRequest{}); code(err) != connect.CodePermissionDenied {
		t.Errorf("a user makes a token: %v", err)
	}
	if _, err := u.Adapters.ListGateways(t.Context(), &adaptersv1.ListGatewaysRequest{}); code(err) != connect.CodePermissionDenied {
		t.Errorf("a user lists gateways: %v", err)
	}
}

func testJoinRefused(t *testing.T, a *apptest.App) {
	_, pub := key(t)
	for _, x := range []struct{ name, token string }{{"none", ""}, {"made up", "yj_made_up"}, {"long", strings.Repeat("x", 1<<20)}} {
		if _, err := join(t, a, x.token, pub, "c-refused"); code(err) != connect.CodeUnauthenticated {
			t.Errorf("token %s: %v", x.name, err)
		}
	}
	old, _, err := a.Adapters.CreateJoinToken(t.Context(), "c-refused", time.Nanosecond)
	if err == nil {
		_, err = join(t, a, old, pub, "c-refused")
	}
	if code(err) != connect.CodeUnauthenticated && code(err) != connect.CodeUnknown {
		t.Errorf("an expired token: %v", err)
	}
	for _, ttl := range []int64{-1, 604801} {
		if _, err := a.Admin.Adapters.CreateJoinToken(t.Context(), &adaptersv1.CreateJoinTokenRequest{TtlSeconds: ttl}); code(err) != connect.CodeInvalidArgument {
			t.Errorf("token for %d s: %v", ttl, err)
		}
	}
	if _, err := a.Admin.Adapters.CreateJoinToken(t.Context(), &adaptersv1.CreateJoinTokenRequest{AiCenterId: "not an id"}); code(err) != connect.CodeInvalidArgument {
		t.Errorf("token for a center that cannot be: %v", err)
	}
	// A refused key or inventory costs nothing: the token still admits.
	tok := token(t, a, "c-refused")
	acc, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	account, err := acc.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "U", "rubbish", account, pub + "x"} {
		if _, err := join(t, a, tok, bad, ""); code(err) != connect.CodeInvalidArgument {
			t.Errorf("public key %q: %v", bad, err)
		}
	}
	anyone := apptest.NewClient(a.URL(), "").Adapters
	for name, inv := range map[string]*adapterv1.Inventory{"none": nil, "bad amounts": {Capacity: map[string]int64{"cpu": -1}}, "bad place": {Longitude: 500}} {
		if _, err := anyone.Join(t.Context(), &adaptersv1.JoinRequest{Token: tok, PublicKey: pub, Inventory: inv}); code(err) != connect.CodeInvalidArgument {
			t.Errorf("inventory %s: %v", name, err)
		}
	}
	if res := a.Admin.REST(t, "GET", "/v1/centers/c-refused", ""); res.Status != 404 {
		t.Errorf("a refused join left a center: %d %s", res.Status, res.Body)
	}
	if _, err := join(t, a, tok, pub, "c-refused"); err != nil {
		t.Errorf("the token after refusals: %v", err)
	}
}

func testRemoved(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-removed"})
	id := a.Admin.Submit(t, c.Pin(apptest.Job("removed", 1)))
	r := c.Of(id, 1)[0]
	r.Run()
	remove := func() error {
		_, err := a.Admin.Adapters.RemoveGateway(t.Context(), &adaptersv1.RemoveGatewayRequest{AiCenterId: c.ID})
		return err
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	if err := remove(); code(err) != connect.CodeNotFound {
		t.Errorf("removed again: %v", err)
	}
	end := &adapterv1.ReportRequest{Statuses: []*adapterv1.Status{{AttemptId: r.AttemptId, Phase: adapterv1.Phase_PHASE_ENDED, Reason: "completed"}}}
	for what, req := range map[string]proto.Message{"report": end, "heartbeat": &adapterv1.HeartbeatRequest{Resync: true}, "putlog": &adapterv1.PutLogRequest{AttemptId: r.AttemptId, Data: []byte("x")}} {
		if err := c.Ask(what, req, &adapterv1.HeartbeatResponse{}); err == nil {
			t.Errorf("%s of a removed gateway is taken", what)
		}
	}
	if j := a.Admin.Job(t, id); j.State != jobsv1.State_STATE_RUNNING {
		t.Errorf("a removed gateway's word counts: %v", j)
	}
	if res := a.Admin.REST(t, "GET", "/v1/centers/"+c.ID, ""); res.Status != 200 || strings.Contains(string(res.Body), "STATUS_AVAILABLE") {
		t.Errorf("the center without its gateway: %d %s", res.Status, res.Body)
	}
	// Its old token is worth nothing; another gateway may take its place, and
	// the old one stays out.
	pub, err := bus.PublicKey(c.Seed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := join(t, a, c.Token, pub, c.ID); code(err) != connect.CodeUnauthenticated {
		t.Errorf("a removed gateway joins again with its old token: %v", err)
	}
	_, other := key(t)
	if _, err := join(t, a, token(t, a, c.ID), other, ""); err != nil {
		t.Errorf("another gateway for the center: %v", err)
	}
	if err := c.Ask("heartbeat", &adapterv1.HeartbeatRequest{}, &adapterv1.HeartbeatResponse{}); err == nil {
		t.Error("a removed gateway is heard again after another took its place")
	}
	// What is sent to the new one does not reach the old one, which is still connected.
	if j, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id}); err != nil || j.State != jobsv1.State_STATE_STOPPING {
		t.Errorf("stop: %v, %v", j, err)
	}
	out, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id})
	if code(err) != connect.CodeUnavailable || c.Stops(r.AttemptId) != 0 {
		t.Errorf("the old gateway answers for the new one: %q, %v, %d stops", out, err, c.Stops(r.AttemptId))
	}
}

// name is a center's gateway's name on the bus.
func name(t *testing.T, c *apptest.FakeCenter) string {
	t.Helper()
	pub, err := bus.PublicKey(c.Seed)
	if err != nil {
		t.Fatal(err)
	}
	return bus.AgentName(c.ID, pub)
}

// natsAs connects with an agent's credentials, without the rules the agent
// program keeps, and collects what the bus refuses.
func natsAs(t *testing.T, c *apptest.FakeCenter) (*nats.Conn, <-chan error) {
	t.Helper()
	kp, err := nkeys.FromSeed([]byte(c.Seed))
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 16)
	conn, err := nats.Connect(strings.Join(c.Joined.BusUrls, ","), nats.UserJWT(func() (string, error) { return c.Joined.BusJwt, nil }, kp.Sign),
		nats.CustomInboxPrefix(bus.AgentInbox(name(t, c))), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn, refused
}

func testSubjects(t *testing.T, a *apptest.App) {
	one, two := a.Join(t, apptest.Center{ID: "c-mine"}), a.Join(t, apptest.Center{ID: "c-theirs"})
	conn, refused := natsAs(t, one)
	expect := func(what string) {
		t.Helper()
		if err := conn.FlushTimeout(apptest.Patience); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) && !strings.Contains(strings.ToLower(err.Error()), "permissions violation") {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(apptest.Patience):
			t.Errorf("%s is allowed", what)
		}
	}
	for _, subject := range []string{bus.AgentUp(name(t, two), "report"), bus.AgentDown(name(t, two), "apply"), bus.AgentDown(name(t, one), "apply"), "yunhe.event.job.changed", "$JS.API.STREAM.DELETE.YUNHE_EVENTS",
		"$SYS.REQ.SERVER.PING", bus.AgentInbox(name(t, two)) + ".x", "anything"} {
		if err := conn.Publish(subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
		expect("publishing on " + subject)
	}
	for _, subject := range []string{bus.AgentDown(name(t, two), ">"), "yunhe.agent.*.down.>", bus.AgentUp(name(t, one), ">"), bus.AgentUp(name(t, two), ">"), "yunhe.event.>", ">", "_INBOX.>", bus.AgentInbox(name(t, two)) + ".>", "$SYS.>"} {
		sub, err := conn.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		expect("listening on " + subject)
		_ = sub.Unsubscribe() // it may be gone
	}
	// What it may do, it can.
	ctx, cancel := context.WithTimeout(t.Context(), apptest.Patience)
	defer cancel()
	if m, err := conn.RequestWithContext(ctx, bus.AgentUp(name(t, one), "heartbeat"), nil); err != nil || m.Header.Get("Yunhe-Error") != "" {
		t.Errorf("the own heartbeat: %v, %v", m, err)
	}
	// Another's credentials without another's key are nothing.
	kp, err := nkeys.FromSeed([]byte(one.Seed))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := nats.Connect(two.Joined.BusUrls[0], nats.UserJWT(func() (string, error) { return two.Joined.BusJwt, nil }, kp.Sign)); err == nil {
		c.Close()
		t.Errorf("the credentials of %s work with the key of %s", two.ID, one.ID)
	}
	if c, err := nats.Connect(two.Joined.BusUrls[0]); err == nil {
		c.Close()
		t.Errorf("the bus admits callers without credentials")
	}
}

func testResend(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-resend"})
	c.Drop("apply", 1)
	id := a.Admin.Submit(t, c.Pin(apptest.Job("resend", 2)))
	rs := c.Of(id, 2) // of the second message
	rs[0].Run()
	c.Drop("remove", 1)
	if _, err := a.Admin.Jobs.StopJob(t.Context(), &jobsv1.StopJobRequest{JobId: id}); err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		r.AwaitStop()
		r.End("stopped", 0)
	}
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_STOPPED)
}

func testResync(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-resync"})
	id := a.Admin.Submit(t, c.Pin(apptest.Job("resync", 3)))
	rs := c.Of(id, 3)
	rs[0].Run()
	apptest.Succeed(rs[1])
	rs[2].Run()
	c.Disconnect()
	c.Connect()
	for _, r := range []*apptest.Replica{rs[0], rs[2]} {
		c.AwaitApplied(r.AttemptId, 2)
	}
	if n := c.Applied(rs[1].AttemptId); n != 1 {
		t.Errorf("an ended attempt was sent %d times", n)
	}
	if !c.Last(rs[0].AttemptId).Seen || rs[0].Seen {
		t.Errorf("the center is not told that it has seen the attempt")
	}
	rs[0].End("completed", 0)
	rs[2].End("completed", 0)
	a.Admin.AwaitState(t, id, jobsv1.State_STATE_SUCCEEDED)
	// It came back as another version.
	inv := &adapterv1.Inventory{AiCenterId: c.ID, Capacity: map[string]int64{"cpu": 1000, "memory": 1 << 30}, Version: "v10"}
	if err := c.Ask("heartbeat", &adapterv1.HeartbeatRequest{Inventory: inv}, &adapterv1.HeartbeatResponse{}); err != nil {
		t.Fatal(err)
	}
	gs, err := a.Admin.Adapters.ListGateways(t.Context(), &adaptersv1.ListGatewaysRequest{})
	if err != nil || !slices.ContainsFunc(gs.Gateways, func(g *adaptersv1.Gateway) bool { return g.AiCenterId == c.ID && g.Version == "v10" }) {
		t.Errorf("gateways: %v, %v, want the new version", gs, err)
	}
}

func testPutLog(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-putlog"})
	id := a.Admin.Submit(t, c.Pin(apptest.Job("putlog", 1)))
	r := c.Of(id, 1)[0]
	r.Run()
	put := func(offset int64, text string) int64 {
		t.Helper()
		var res adapterv1.PutLogResponse
		if err := c.Ask("putlog", &adapterv1.PutLogRequest{AttemptId: r.AttemptId, Offset: offset, Data: []byte(text)}, &res); err != nil {
			t.Fatalf("put %q at %d: %v", text, offset, err)
		}
		return res.Stored
	}
	for _, x := range []struct {
		offset int64
		text   string
		stored int64
	}{{0, "hello ", 6}, {0, "hello ", 6}, {6, "world", 11}, {6, "world", 11}, {0, "HELLO ", 6 + 5}, {20, "gap", 11}, {-5, "before", 11}, {11, "", 11}, {11, "!", 12}} {
		if got := put(x.offset, x.text); got != x.stored {
			t.Errorf("put %q at %d: %d stored, want %d", x.text, x.offset, got, x.stored)
		}
	}
	c.Report(&adapterv1.Status{AttemptId: r.AttemptId, Phase: adapterv1.Phase_PHASE_ENDED, Reason: "completed", LogBytes: 12})
	if got, err := a.Admin.Log(t, &jobsv1.ReadLogRequest{JobId: id}); err != nil || got != "hello world!" {
		t.Errorf("log %q, %v", got, err)
	}
}

// Whatever bytes a gateway sends, it gets an answer and the platform lives.
func testRubbish(t *testing.T, a *apptest.App) {
	c := a.Join(t, apptest.Center{ID: "c-rubbish"})
	for _, what := range []string{"heartbeat", "report", "putlog", "no-such"} {
		for _, data := range [][]byte{nil, {0}, {0xff}, []byte("rubbish"), bytes.Repeat([]byte{0x0a}, 1<<16), []byte("\x0a\x02\xff\xfe")} {
			_, err := c.Raw(t.Context(), what, data)
			if err != nil && strings.Contains(err.Error(), "does not answer") {
				t.Errorf("%s of %.20q: %v", what, data, err)
			}
		}
	}
	for name, inv := range map[string]*adapterv1.Inventory{"no room below zero": {Capacity: map[string]int64{"cpu": -1}}, "no place off the earth": {Longitude: 1e9}} {
		if err := c.Ask("heartbeat", &adapterv1.HeartbeatRequest{Inventory: inv}, &adapterv1.HeartbeatResponse{}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if err := c.Ask("heartbeat", &adapterv1.HeartbeatRequest{}, &adapterv1.HeartbeatResponse{}); err != nil {
		t.Errorf("after all that: %v", err)
	}
	id := a.Admin.Submit(t, c.Pin(apptest.Job("after rubbish", 1)))
	apptest.Succeed(c.Of(id, 1)[0])
}

// FuzzGateway sends bytes as a gateway's requests, the last of them after
// every try a good one.
func FuzzGateway(f *testing.F) {
	a := apptest.Start(f, apptest.Options{})
	c := a.Join(f, apptest.Center{ID: "c-fuzz"})
	id := a.Admin.Submit(f, c.Pin(apptest.Job("fuzz", 1)))
	r := c.Of(id, 1)[0]
	r.Run()
	add := func(what byte, m proto.Message) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(what, b)
	}
	add(0, &adapterv1.HeartbeatRequest{Resync: true, Inventory: &adapterv1.Inventory{Capacity: map[string]int64{"cpu": 5}}, Measurement: &adapterv1.Measurement{CpuBusyPermille: 5}})
	add(1, &adapterv1.ReportRequest{Statuses: []*adapterv1.Status{{AttemptId: r.AttemptId, Phase: adapterv1.Phase_PHASE_RUNNING, StartedAt: 5}, {AttemptId: "x", Phase: 9}}})
	add(2, &adapterv1.PutLogRequest{AttemptId: r.AttemptId, Offset: 0, Data: []byte("x")})
	f.Add(byte(1), []byte("\x0a\x02\xff\xfe"))
	whats := []string{"heartbeat", "report", "putlog"}
	f.Fuzz(func(t *testing.T, what byte, data []byte) {
		ctx, cancel := context.WithTimeout(context.Background(), apptest.Patience)
		defer cancel()
		name := whats[int(what)%len(whats)]
		if _, err := c.Raw(ctx, name, data); err != nil && (strings.Contains(err.Error(), "internal error") || strings.Contains(err.Error(), "does not answer")) {
			t.Fatalf("%s of %q: %v", name, data, err)
		}
		if _, err := a.Jobs.Get(adminContext(), id); err != nil {
			t.Fatal(fmt.Errorf("the job after %s of %q: %w", name, data, err))
		}
	})
}
