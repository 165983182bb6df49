package equipment

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	networkv1 "yunhe.dev/yunhe/gen/yunhe/network/v1"
	"yunhe.dev/yunhe/gen/yunhe/network/v1/networkv1connect"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/rpc"
)

// Register mounts the API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(networkv1connect.NewEquipmentServiceHandler(api{s}, srv.Options()...))
}

type api struct{ s *Service }

// SaidTx records what a plug-in or gateway of a center says; whole: it is all
// there is.
func (s *Service) SaidTx(ctx context.Context, tx *db.Tx, centerID, plugin string, list []*adapterv1.Equipment, gone []string, whole bool) error {
	return s.PluginTx(ctx, tx, Report{CenterID: centerID, Source: plugin, Equipment: in(list), Gone: gone, Whole: whole})
}

func in(list []*adapterv1.Equipment) []Equipment {
	out := make([]Equipment, len(list))
	for i, x := range list {
		e := Equipment{Name: x.GetName(), Kind: Kind(x.GetKind()), State: State(x.GetState()), Reason: x.GetReason(), Vendor: x.GetVendor(), Model: x.GetModel(), Address: x.GetAddress()}
		for _, p := range x.GetPorts() {
			e.Ports = append(e.Ports, Port{Name: p.GetName(), State: PortState(p.GetState()), Reason: p.GetReason(), Speed: p.GetSpeedBitsPerSecond(), PeerEquipment: p.GetPeerEquipment(),
				PeerPort: p.GetPeerPort(), PeerNode: p.GetPeerNode(), Errors: p.GetErrorsPpm(), Loss: p.GetLossPpm()})
		}
		out[i] = e
	}
	return out
}

func out(e *Equipment) *networkv1.NetworkEquipment {
	x := &adapterv1.Equipment{Name: e.Name, Kind: adapterv1.EquipmentKind(e.Kind), State: adapterv1.EquipmentState(e.State), Reason: e.Reason, Vendor: e.Vendor, Model: e.Model, Address: e.Address}
	for i := range e.Ports {
		p := &e.Ports[i]
		x.Ports = append(x.Ports, &adapterv1.Port{Name: p.Name, State: adapterv1.PortState(p.State), Reason: p.Reason, SpeedBitsPerSecond: p.Speed, PeerEquipment: p.PeerEquipment, PeerPort: p.PeerPort,
			PeerNode: p.PeerNode, ErrorsPpm: p.Errors, LossPpm: p.Loss})
	}
	return &networkv1.NetworkEquipment{AiCenterId: e.CenterID, Source: e.Source, Equipment: x, Since: timestamppb.New(e.Since), UpdatedAt: timestamppb.New(e.UpdatedAt), Ports: e.PortCount, PortsDown: e.PortsDown,
		WorstErrorsPpm: e.WorstErrors, WorstLossPpm: e.WorstLoss, Silent: e.Silent}
}

func (a api) ReportEquipment(ctx context.Context, r *networkv1.ReportEquipmentRequest) (*networkv1.ReportEquipmentResponse, error) {
	n, err := a.s.Report(ctx, Report{CenterID: r.AiCenterId, Source: r.Source, Equipment: in(r.Equipment), Gone: r.Gone, Whole: r.Whole, Silence: time.Duration(min(r.SilenceSeconds, maxSilence+1)) * time.Second})
	if err != nil {
		return nil, err
	}
	return &networkv1.ReportEquipmentResponse{Changed: n}, nil
}

func (a api) ListEquipment(ctx context.Context, r *networkv1.ListEquipmentRequest) (*networkv1.ListEquipmentResponse, error) {
	rows, next, err := a.s.List(ctx, Filter{CenterID: r.AiCenterId, Troubled: r.Troubled}, r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	res := &networkv1.ListEquipmentResponse{NextPageToken: next}
	for _, e := range rows {
		res.Equipment = append(res.Equipment, out(e))
	}
	return res, nil
}

func (a api) GetEquipment(ctx context.Context, r *networkv1.GetEquipmentRequest) (*networkv1.NetworkEquipment, error) {
	e, err := a.s.Get(ctx, r.AiCenterId, r.Name)
	if err != nil {
		return nil, err
	}
	return out(e), nil
}

func ruleOut(r *Rule) *networkv1.EquipmentRule {
	x := &networkv1.EquipmentRule{Kind: networkv1.EquipmentRule_Kind(r.Kind), Enabled: r.Enabled, Threshold: r.Threshold, Severity: int32(r.Severity)}
	if !r.UpdatedAt.IsZero() {
		x.UpdatedAt = timestamppb.New(r.UpdatedAt)
	}
	return x
}

func (a api) ListEquipmentRules(ctx context.Context, _ *networkv1.ListEquipmentRulesRequest) (*networkv1.ListEquipmentRulesResponse, error) {
	rules, err := a.s.Rules(ctx)
	if err != nil {
		return nil, err
	}
	res := &networkv1.ListEquipmentRulesResponse{}
	for i := range rules {
		res.Rules = append(res.Rules, ruleOut(&rules[i]))
	}
	return res, nil
}

func (a api) SetEquipmentRule(ctx context.Context, r *networkv1.SetEquipmentRuleRequest) (*networkv1.EquipmentRule, error) {
	x := r.GetRule()
	rule, err := a.s.SetRule(ctx, Rule{Kind: RuleKind(x.GetKind()), Enabled: x.GetEnabled(), Threshold: x.GetThreshold(), Severity: int64(x.GetSeverity())})
	if err != nil {
		return nil, err
	}
	return ruleOut(rule), nil
}
