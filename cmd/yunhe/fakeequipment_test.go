package main

import (
	"context"
	"sync"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	networkv1 "yunhe.dev/yunhe/gen/yunhe/network/v1"
	"yunhe.dev/yunhe/gen/yunhe/network/v1/networkv1connect"
)

// fakeEquipment has what it is told, and two rules.
type fakeEquipment struct {
	networkv1connect.UnimplementedEquipmentServiceHandler

	mu   sync.Mutex // guards the fields below
	rows []*networkv1.NetworkEquipment
	set  *networkv1.EquipmentRule
}

func (f *fakeEquipment) ReportEquipment(_ context.Context, r *networkv1.ReportEquipmentRequest) (*networkv1.ReportEquipmentResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range r.Equipment {
		row := &networkv1.NetworkEquipment{AiCenterId: r.AiCenterId, Source: r.Source, Equipment: x, Since: fakeTime(0), UpdatedAt: fakeTime(0), Ports: int64(len(x.Ports)), Silent: r.SilenceSeconds == 1}
		for _, p := range x.Ports {
			if p.State == adapterv1.PortState_PORT_STATE_DOWN {
				row.PortsDown++
			}
			row.WorstErrorsPpm, row.WorstLossPpm = max(row.WorstErrorsPpm, p.ErrorsPpm), max(row.WorstLossPpm, p.LossPpm)
		}
		f.rows = append(f.rows, row)
	}
	return &networkv1.ReportEquipmentResponse{Changed: int64(len(r.Equipment) + len(r.Gone))}, nil
}

func (f *fakeEquipment) ListEquipment(_ context.Context, r *networkv1.ListEquipmentRequest) (*networkv1.ListEquipmentResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &networkv1.ListEquipmentResponse{}
	for _, x := range f.rows {
		if !r.Troubled || x.PortsDown > 0 {
			out.Equipment = append(out.Equipment, x)
		}
	}
	return out, nil
}

func (f *fakeEquipment) GetEquipment(_ context.Context, r *networkv1.GetEquipmentRequest) (*networkv1.NetworkEquipment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.rows {
		if x.AiCenterId == r.AiCenterId && x.Equipment.Name == r.Name {
			return x, nil
		}
	}
	return nil, connect.NewError(connect.CodeNotFound, nil)
}

func (f *fakeEquipment) ListEquipmentRules(context.Context, *networkv1.ListEquipmentRulesRequest) (*networkv1.ListEquipmentRulesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	errors := &networkv1.EquipmentRule{Kind: networkv1.EquipmentRule_KIND_LINK_ERRORS, Enabled: true, Threshold: 100, Severity: 1}
	if f.set != nil {
		errors = f.set
	}
	return &networkv1.ListEquipmentRulesResponse{Rules: []*networkv1.EquipmentRule{{Kind: networkv1.EquipmentRule_KIND_EQUIPMENT_DOWN, Enabled: true, Threshold: 10, Severity: 3}, errors,
		{Kind: networkv1.EquipmentRule_KIND_NETWORK_UNAVAILABLE, Enabled: true, Severity: 2}}}, nil
}

func (f *fakeEquipment) SetEquipmentRule(_ context.Context, r *networkv1.SetEquipmentRuleRequest) (*networkv1.EquipmentRule, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set = r.Rule
	return r.Rule, nil
}
