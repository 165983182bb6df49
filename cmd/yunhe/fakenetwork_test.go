package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	networkv1 "yunhe.dev/yunhe/gen/yunhe/network/v1"
	"yunhe.dev/yunhe/gen/yunhe/network/v1/networkv1connect"
)

// fakeNetwork knows one measured path, and what is declared to it.
type fakeNetwork struct {
	networkv1connect.UnimplementedNetworkServiceHandler

	mu      sync.Mutex // guards the fields below
	paths   []*networkv1.Path
	origins []*networkv1.Origin
}

func newFakeNetwork() *fakeNetwork {
	at := timestamppb.New(fakeTime(0).AsTime().Add(-4 * time.Second))
	fact := func(name string, v int64) *networkv1.PathFact {
		return &networkv1.PathFact{Fact: name, Value: v, Source: networkv1.PathFact_SOURCE_MEASURED, MeasuredAt: at}
	}
	return &fakeNetwork{paths: []*networkv1.Path{{From: "center:bj-1", To: "*", Facts: []*networkv1.PathFact{
		fact("latency_us", 4200), fact("loss_ppm", 1000), fact("bandwidth_kbps", 900_000)}}}}
}

func (f *fakeNetwork) ListPaths(_ context.Context, r *networkv1.ListPathsRequest) (*networkv1.ListPathsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &networkv1.ListPathsResponse{}
	for _, p := range f.paths {
		if r.End == "" || r.End == p.From || r.End == p.To {
			out.Paths = append(out.Paths, p)
		}
	}
	return out, nil
}

func (f *fakeNetwork) GetPath(_ context.Context, r *networkv1.GetPathRequest) (*networkv1.Path, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &networkv1.Path{From: r.From, To: r.To}
	if strings.HasPrefix(r.From, "origin:") && r.To == "center:bj-1" {
		for _, x := range f.paths[0].Facts {
			out.Facts = append(out.Facts, &networkv1.PathFact{Fact: x.Fact, Value: x.Value, Source: x.Source, MeasuredAt: x.MeasuredAt, FromPath: "center:bj-1 to *"})
		}
	}
	return out, nil
}

func (f *fakeNetwork) SetPath(_ context.Context, r *networkv1.SetPathRequest) (*networkv1.Path, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := r.Path
	p := &networkv1.Path{From: d.From, To: d.To, Note: d.Note}
	for _, x := range []struct {
		name string
		v    *int64
	}{{"latency_us", d.LatencyUs}, {"jitter_us", d.JitterUs}, {"loss_ppm", d.LossPpm}, {"bandwidth_kbps", d.BandwidthKbps}, {"fee_fen_per_gib", d.FeeFenPerGib}} {
		if x.v != nil {
			p.Facts = append(p.Facts, &networkv1.PathFact{Fact: x.name, Value: *x.v, Source: networkv1.PathFact_SOURCE_DECLARED})
		}
	}
	f.paths = append(f.paths, p)
	return p, nil
}

func (f *fakeNetwork) DeletePath(_ context.Context, r *networkv1.DeletePathRequest) (*networkv1.DeletePathResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paths = slices.DeleteFunc(f.paths, func(p *networkv1.Path) bool { return p.From == r.From && p.To == r.To })
	return &networkv1.DeletePathResponse{}, nil
}

func (f *fakeNetwork) ListOrigins(context.Context, *networkv1.ListOriginsRequest) (*networkv1.ListOriginsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &networkv1.ListOriginsResponse{Origins: f.origins}, nil
}

func (f *fakeNetwork) SetOrigin(_ context.Context, r *networkv1.SetOriginRequest) (*networkv1.Origin, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.origins = append(f.origins, r.Origin)
	return r.Origin, nil
}

func (f *fakeNetwork) DeleteOrigin(_ context.Context, r *networkv1.DeleteOriginRequest) (*networkv1.DeleteOriginResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(f.origins, func(o *networkv1.Origin) bool { return o.OriginId == r.OriginId }) {
		return nil, missing("origin", r.OriginId)
	}
	f.origins = nil
	return &networkv1.DeleteOriginResponse{}, nil
}
