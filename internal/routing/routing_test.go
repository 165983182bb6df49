package routing_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	routingv1 "yunhe.dev/yunhe/gen/yunhe/routing/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/samples"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// deployed starts replicas of a job at a center.
func deployed(t testing.TB, a *apptest.App, f *apptest.FakeCenter, name string, replicas int32) (job string, rs []*apptest.Replica) {
	t.Helper()
	job = a.Admin.Submit(t, f.Pin(apptest.Job(name, replicas)))
	rs = f.Of(job, int(replicas))
	for _, r := range rs {
		r.Run()
	}
	a.Admin.Await(t, job, "all replicas run", func(j *jobsv1.Job) bool { return j.ReplicasRunning == replicas })
	return job, rs
}

// weights of an origin by center.
func weights(r *routingv1.Routes, origin string) map[string]int32 {
	out := map[string]int32{}
	for _, o := range r.Origins {
		if o.OriginId == origin {
			for _, w := range o.Weights {
				out[w.AiCenterId] = w.Weight
			}
		}
	}
	return out
}

// awaitRoutes waits until the weights are as wanted; rounds are made for it.
func awaitRoutes(t testing.TB, a *apptest.App, id, what string, cond func(*routingv1.Routes) bool) *routingv1.Routes {
	t.Helper()
	var r *routingv1.Routes
	apptest.Until(t, what, func() bool {
		must(t, a.Routing.Round(t.Context()))
		var err error
		r, err = a.Admin.Routing.GetRoutes(t.Context(), &routingv1.GetRoutesRequest{ServiceId: id})
		must(t, err)
		return cond(r)
	})
	return r
}

// A service's users are served nearby while there is room there, elsewhere
// when there is not or replicas are gone, and what was learned survives a
// restart.
func TestRoutes(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		east, west := a.Join(t, apptest.Center{ID: "c-1"}), a.Join(t, apptest.Center{ID: "c-2"})
		eastJob, _ := deployed(t, a, east, "serve-east", 2)
		westJob, westReplicas := deployed(t, a, west, "serve-west", 2)
		create := &routingv1.CreateServiceRequest{RequestId: "r1", Service: &routingv1.Service{Name: "chat", JobIds: []string{eastJob, westJob}, ReplicaRate: 10, MovePercent: 100,
			Origins: []*routingv1.ServiceOrigin{{OriginId: "shanghai", Longitude: proto.Int64(121_400_000), Latitude: proto.Int64(31_200_000)}, {OriginId: "chengdu"}}}}
		s, err := a.Admin.Routing.CreateService(ctx, create)
		must(t, err)
		again, err := a.Admin.Routing.CreateService(ctx, create)
		must(t, err)
		if again.ServiceId != s.ServiceId || s.MaxUsePercent != 85 || s.TenantId == "" {
			t.Errorf("created %v, again %v", s, again)
		}
		report := func(shanghai, chengdu float64) {
			t.Helper()
			_, err := a.Admin.Routing.ReportTraffic(ctx, &routingv1.ReportTrafficRequest{ServiceId: s.ServiceId, Reports: []*routingv1.TrafficReport{
				{OriginId: "shanghai", RequestsPerSecond: shanghai, LatencyMicroseconds: map[string]int64{east.ID: 4_000, west.ID: 40_000}},
				{OriginId: "chengdu", RequestsPerSecond: chengdu, LatencyMicroseconds: map[string]int64{east.ID: 40_000, west.ID: 4_000}}}})
			must(t, err)
		}
		report(4, 4)
		r := awaitRoutes(t, a, s.ServiceId, "everyone is served nearby", func(r *routingv1.Routes) bool {
			return weights(r, "shanghai")[east.ID] == 1000 && weights(r, "chengdu")[west.ID] == 1000
		})
		if len(r.Places) != 2 || r.Places[0].Replicas != 2 || r.Places[0].Capacity != 20 || r.MeanMicroseconds < 104_000 || r.MeanMicroseconds > 112_000 || r.Overload != 0 {
			t.Errorf("%v", r)
		}
		if w := r.Origins[0].Weights[0]; w.LatencyMicroseconds != 4_000 || !w.Measured {
			t.Errorf("weight %v", w)
		}
		must(t, a.Routing.Round(ctx))
		if same, err := a.Admin.Routing.GetRoutes(ctx, &routingv1.GetRoutesRequest{ServiceId: s.ServiceId}); err != nil || same.Generation != r.Generation || !same.MadeAt.AsTime().Equal(r.MadeAt.AsTime()) {
			t.Errorf("nothing changed, but from %v to %v %v", r, same, err)
		}
		kept0, err := a.Routing.Samples(ctx, time.UnixMilli(1000), 100)
		must(t, err)
		var asked, served float64
		for _, x := range kept0 {
			switch x.Name {
			case "yunhe_service_requests_per_second":
				asked += x.Value
			case "yunhe_service_served_per_second":
				served += x.Value
			}
			if !slices.Contains(x.Labels, samples.Label{Name: "tenant", Value: "default"}) || !slices.Contains(x.Labels, samples.Label{Name: "service", Value: s.ServiceId}) {
				t.Errorf("sample %v", x)
			}
		}
		if asked != r.Origins[0].Demand+r.Origins[1].Demand || math.Abs(served-asked) > 0.01 {
			t.Errorf("samples say %v are asked and %v served: %v", asked, served, kept0)
		}
		if few, err := a.Routing.Samples(ctx, time.UnixMilli(1000), 3); err != nil || len(few) != 0 {
			t.Errorf("without room: %v %v", few, err)
		}
		apptest.Until(t, "the store has them", func() bool {
			res := a.Admin.REST(t, "GET", "/v1/query-range?query=yunhe_service_latency_seconds", "")
			return res.Status == 200 && strings.Contains(string(res.Body), s.ServiceId)
		})
		a.Restart()
		kept := awaitRoutes(t, a, s.ServiceId, "the same after a restart", func(r *routingv1.Routes) bool { return len(r.Places) == 2 })
		if kept.Origins[0].Demand != 4 || weights(kept, "shanghai")[east.ID] != 1000 {
			t.Errorf("after a restart: %v", kept)
		}

		// The replicas in the west end: everyone goes east, at once.
		for _, x := range westReplicas {
			x.End("", 0)
		}
		r = awaitRoutes(t, a, s.ServiceId, "all go east", func(r *routingv1.Routes) bool { return weights(r, "chengdu")[east.ID] == 1000 })
		if r.Generation <= kept.Generation {
			t.Errorf("generation %d after %d", r.Generation, kept.Generation)
		}
		_, err = a.Admin.Routing.DeleteService(ctx, &routingv1.DeleteServiceRequest{ServiceId: s.ServiceId})
		must(t, err)
		must(t, a.Routing.Round(ctx))
		if _, err := a.Admin.Routing.GetRoutes(ctx, &routingv1.GetRoutesRequest{ServiceId: s.ServiceId}); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("routes of a deleted service: %v", err)
		}
	})
}

// More than a center should serve goes to the next one.
func TestOverflow(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	ctx := t.Context()
	near, far := a.Join(t, apptest.Center{ID: "c-1"}), a.Join(t, apptest.Center{ID: "c-2"})
	j1, _ := deployed(t, a, near, "near", 1)
	j2, _ := deployed(t, a, far, "far", 2)
	s, err := a.Admin.Routing.CreateService(ctx, &routingv1.CreateServiceRequest{Service: &routingv1.Service{Name: "api", JobIds: []string{j1, j2}, ReplicaRate: 10, MaxLatencyMicroseconds: 10_000,
		MovePercent: 100, Origins: []*routingv1.ServiceOrigin{{OriginId: "u"}}}})
	must(t, err)
	report := func(rate float64) {
		t.Helper()
		_, err := a.Admin.Routing.ReportTraffic(ctx, &routingv1.ReportTrafficRequest{ServiceId: s.ServiceId, Reports: []*routingv1.TrafficReport{
			{OriginId: "u", RequestsPerSecond: rate, LatencyMicroseconds: map[string]int64{near.ID: 1000, far.ID: 100_000}}}})
		must(t, err)
	}
	report(17) // near may take 8.5
	r := awaitRoutes(t, a, s.ServiceId, "half is served far away", func(r *routingv1.Routes) bool {
		w := weights(r, "u")[near.ID]
		return w >= 495 && w <= 505
	})
	if r.BeyondLimitPercent < 49 || r.BeyondLimitPercent > 51 || r.Overload > 0 {
		t.Errorf("%v", r)
	}
	// An old report changes nothing.
	_, err = a.Admin.Routing.ReportTraffic(ctx, &routingv1.ReportTrafficRequest{ServiceId: s.ServiceId, Reports: []*routingv1.TrafficReport{{OriginId: "u", RequestsPerSecond: 1, At: timestamppb.New(time.Now().Add(-time.Hour))}}})
	must(t, err)
	must(t, a.Routing.Round(ctx))
	if r, err = a.Admin.Routing.GetRoutes(ctx, &routingv1.GetRoutesRequest{ServiceId: s.ServiceId}); err != nil || r.Origins[0].Demand != 17 {
		t.Errorf("%v %v", r, err)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	ctx := t.Context()
	c := a.Join(t, apptest.Center{ID: "c-1"})
	job, _ := deployed(t, a, c, "serve", 1)
	good := func() *routingv1.Service {
		return &routingv1.Service{Name: "x", JobIds: []string{job}, ReplicaRate: 1, Origins: []*routingv1.ServiceOrigin{{OriginId: "o"}}}
	}
	for field, spoil := range map[string]func(*routingv1.Service){
		"service.name":                 func(s *routingv1.Service) { s.Name = "" },
		"service.job_ids":              func(s *routingv1.Service) { s.JobIds = nil },
		"service.job_ids[1]":           func(s *routingv1.Service) { s.JobIds = []string{job, job} },
		"service.origins":              func(s *routingv1.Service) { s.Origins = nil },
		"service.origins[1].origin_id": func(s *routingv1.Service) { s.Origins = append(s.Origins, s.Origins[0]) },
		"service.origins[0]":           func(s *routingv1.Service) { s.Origins[0].Latitude = proto.Int64(1) },
		"service.origins[0].latitude": func(s *routingv1.Service) {
			s.Origins[0].Longitude, s.Origins[0].Latitude = proto.Int64(1), proto.Int64(91_000_000)
		},
		"service.replica_rate":             func(s *routingv1.Service) { s.ReplicaRate = 0 },
		"service.max_latency_microseconds": func(s *routingv1.Service) { s.MaxLatencyMicroseconds = -1 },
		"service.max_use_percent":          func(s *routingv1.Service) { s.MaxUsePercent = 100 },
		"service.move_percent":             func(s *routingv1.Service) { s.MovePercent = 101 },
		"service.endpoints[c]":             func(s *routingv1.Service) { s.Endpoints = map[string]string{"c": "host:1;\nserver evil:1"} },
	} {
		s := good()
		spoil(s)
		_, err := a.Admin.Routing.CreateService(ctx, &routingv1.CreateServiceRequest{Service: s})
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	s, err := a.Admin.Routing.CreateService(ctx, &routingv1.CreateServiceRequest{Service: good()})
	must(t, err)
	if _, err := a.Admin.Routing.CreateService(ctx, &routingv1.CreateServiceRequest{Service: good()}); connect.CodeOf(err) != connect.CodeAborted && connect.CodeOf(err) != connect.CodeAlreadyExists && connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("the same name: %v", err)
	}
	for want, r := range map[string]*routingv1.TrafficReport{
		"reports[0].origin_id":               {OriginId: "elsewhere"},
		"reports[0].requests_per_second":     {OriginId: "o", RequestsPerSecond: -1},
		"reports[0].at":                      {OriginId: "o", At: timestamppb.New(time.Now().Add(time.Hour))},
		"reports[0].latency_microseconds[c]": {OriginId: "o", LatencyMicroseconds: map[string]int64{"c": -1}},
	} {
		_, err := a.Admin.Routing.ReportTraffic(ctx, &routingv1.ReportTrafficRequest{ServiceId: s.ServiceId, Reports: []*routingv1.TrafficReport{r}})
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}

	// Another tenant neither sees it nor can route to this one's jobs.
	other := a.User(t, "other", "mallory", identityv1.Role_ROLE_USER)
	if _, err := other.Routing.GetService(ctx, &routingv1.GetServiceRequest{ServiceId: s.ServiceId}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("get: %v", err)
	}
	if _, err := other.Routing.GetRoutes(ctx, &routingv1.GetRoutesRequest{ServiceId: s.ServiceId}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("routes: %v", err)
	}
	if _, err := other.Routing.DeleteService(ctx, &routingv1.DeleteServiceRequest{ServiceId: s.ServiceId}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("delete: %v", err)
	}
	if _, err := other.Routing.CreateService(ctx, &routingv1.CreateServiceRequest{Service: good()}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("with another's job: %v", err)
	}
	list, err := other.Routing.ListServices(ctx, &routingv1.ListServicesRequest{})
	if err != nil || len(list.Services) != 0 {
		t.Errorf("list: %v %v", list, err)
	}
}

func TestListAndUpdate(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		c := a.Join(t, apptest.Center{ID: "c-1"})
		job, _ := deployed(t, a, c, "serve", 1)
		var ids []string
		for i := range 3 {
			s, err := a.Admin.Routing.CreateService(ctx, &routingv1.CreateServiceRequest{Service: &routingv1.Service{Name: fmt.Sprintf("s%d", i), JobIds: []string{job}, ReplicaRate: 1,
				Origins: []*routingv1.ServiceOrigin{{OriginId: "a"}, {OriginId: "b"}}}})
			must(t, err)
			ids = append([]string{s.ServiceId}, ids...)
		}
		var got []string
		for token := ""; ; {
			res, err := a.Admin.Routing.ListServices(ctx, &routingv1.ListServicesRequest{PageSize: 2, PageToken: token})
			must(t, err)
			for _, s := range res.Services {
				got = append(got, s.ServiceId)
			}
			if token = res.NextPageToken; token == "" {
				break
			}
		}
		if !slices.Equal(got, ids) {
			t.Errorf("listed %v, want %v", got, ids)
		}
		_, err := a.Admin.Routing.ReportTraffic(ctx, &routingv1.ReportTrafficRequest{ServiceId: ids[0], Reports: []*routingv1.TrafficReport{{OriginId: "a", RequestsPerSecond: 1}, {OriginId: "b", RequestsPerSecond: 2}}})
		must(t, err)
		s, err := a.Admin.Routing.UpdateService(ctx, &routingv1.UpdateServiceRequest{Service: &routingv1.Service{ServiceId: ids[0], Name: "renamed", JobIds: []string{job}, ReplicaRate: 2,
			Origins: []*routingv1.ServiceOrigin{{OriginId: "b"}, {OriginId: "c"}}}})
		must(t, err)
		if s.Name != "renamed" || s.CreatedAt.AsTime().After(s.UpdatedAt.AsTime()) {
			t.Errorf("updated %v", s)
		}
		r := awaitRoutes(t, a, ids[0], "the new origins are routed", func(r *routingv1.Routes) bool { return weights(r, "c")[c.ID] == 1000 })
		if len(r.Origins) != 2 || r.Origins[0].Demand != 2 || r.Places[0].Capacity != 2 {
			t.Errorf("what was learned of origins that stay is kept: %v", r)
		}
	})
}
