package alarms_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"yunhe.dev/yunhe/adapters/gateway/switches"
	"yunhe.dev/yunhe/adapters/gateway/switches/switchestest"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	alarmsv1 "yunhe.dev/yunhe/gen/yunhe/alarms/v1"
	networkv1 "yunhe.dev/yunhe/gen/yunhe/network/v1"
	noticesv1 "yunhe.dev/yunhe/gen/yunhe/notices/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
)

const (
	up       = adapterv1.PortState_PORT_STATE_UP
	down     = adapterv1.PortState_PORT_STATE_DOWN
	eqUp     = adapterv1.EquipmentState_EQUIPMENT_STATE_UP
	eqDown   = adapterv1.EquipmentState_EQUIPMENT_STATE_DOWN
	eqKindSw = adapterv1.EquipmentKind_EQUIPMENT_KIND_SWITCH
)

// at sets what a rule finds an alarm, and whether.
func at(t testing.TB, a *apptest.App, kind networkv1.EquipmentRule_Kind, enabled bool, threshold int64) {
	t.Helper()
	_, err := a.Admin.Equipment.SetEquipmentRule(t.Context(), &networkv1.SetEquipmentRuleRequest{Rule: &networkv1.EquipmentRule{Kind: kind, Enabled: enabled, Threshold: threshold, Severity: 2}})
	must(t, err)
}

// A switch that is down is the root of the alarms of its links and of the node
// behind it; people are told of it alone. It stays so when the platform starts
// again, and clears by itself. What goes on after it is an alarm of its own.
func TestEquipment(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		at(t, a, networkv1.EquipmentRule_KIND_EQUIPMENT_DOWN, true, 0)
		at(t, a, networkv1.EquipmentRule_KIND_LINK_DOWN, true, 0)
		f := a.Join(t, apptest.Center{ID: "c1"})
		node := func(state adapterv1.NodeState) {
			must(t, f.Ask("heartbeat", &adapterv1.HeartbeatRequest{Inventory: f.Inventory(), Node: &adapterv1.Node{Name: "m1", State: state}}, &adapterv1.HeartbeatResponse{}))
		}
		node(adapterv1.NodeState_NODE_STATE_READY)
		leaf := &adapterv1.Equipment{Name: "leaf-1", Kind: eqKindSw, State: eqUp, Ports: []*adapterv1.Port{
			{Name: "1", State: up, PeerNode: "m1"}, {Name: "49", State: up, PeerEquipment: "spine-1", PeerPort: "7"}}}
		spine := &adapterv1.Equipment{Name: "spine-1", Kind: eqKindSw, State: eqUp, Ports: []*adapterv1.Port{{Name: "7", State: up, PeerEquipment: "leaf-1", PeerPort: "49"}, {Name: "8", State: up}}}
		report := func(list ...*adapterv1.Equipment) int64 {
			t.Helper()
			res, err := a.Admin.Equipment.ReportEquipment(ctx, &networkv1.ReportEquipmentRequest{AiCenterId: "c1", Source: "nms", Equipment: list})
			must(t, err)
			return res.Changed
		}
		if n := report(leaf, spine); n != 2 {
			t.Errorf("%d changed, want 2", n)
		}
		if n := report(leaf, spine); n != 0 {
			t.Errorf("the same again changed %d", n)
		}
		leaf.State, leaf.Reason = eqDown, "no power"
		spine.Ports[0].State = down
		node(adapterv1.NodeState_NODE_STATE_NOT_READY)
		report(spine, leaf)
		root := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_EQUIPMENT_DOWN, active)
		if root.ParentId != "" || root.Equipment != "leaf-1" || root.AiCenterId != "c1" || root.Severity != alarmsv1.Severity_SEVERITY_MAJOR || !strings.Contains(root.Message, "leaf-1 of center c1 is down: no power") {
			t.Errorf("root: %v", root)
		}
		link := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_LINK_DOWN, active)
		if link.ParentId != root.AlarmId || !strings.Contains(link.Message, "leaf-1:49 to spine-1:7") {
			t.Errorf("link: %v, root %v", link, root)
		}
		apptest.Until(t, "the node follows from the switch", func() bool {
			return await(t, a, alarmsv1.AlarmKind_ALARM_KIND_NODE_NOT_READY, active).ParentId == root.AlarmId
		})
		told := func() (out []string) {
			res, err := a.Admin.Notices.ListNotices(ctx, &noticesv1.ListNoticesRequest{})
			must(t, err)
			for _, n := range res.Notices {
				if strings.Contains(n.Message, "leaf-1") {
					out = append(out, n.Message)
				}
			}
			slices.Reverse(out)
			return out
		}
		if got := told(); len(got) != 1 || !strings.Contains(got[0], "equipment leaf-1") {
			t.Errorf("people were told %q, want of the switch alone", got)
		}
		a.Restart()
		f.Connect()
		if again := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_EQUIPMENT_DOWN, active); again.AlarmId != root.AlarmId || again.Count != root.Count {
			t.Errorf("after the start it is %v, was %v", again, root)
		}
		leaf.State, leaf.Reason = eqUp, ""
		node(adapterv1.NodeState_NODE_STATE_READY)
		report(leaf)
		await(t, a, alarmsv1.AlarmKind_ALARM_KIND_EQUIPMENT_DOWN, cleared)
		apptest.Until(t, "the link's alarm is one of its own", func() bool {
			return await(t, a, alarmsv1.AlarmKind_ALARM_KIND_LINK_DOWN, active).ParentId == ""
		})
		if got := told(); len(got) != 2 || !strings.Contains(got[1], "link leaf-1:49") {
			t.Errorf("people were told %q, want now of the link", got)
		}
		spine.Ports[0].State = up
		report(spine)
		await(t, a, alarmsv1.AlarmKind_ALARM_KIND_LINK_DOWN, cleared)
		await(t, a, alarmsv1.AlarmKind_ALARM_KIND_NODE_NOT_READY, cleared)
	})
}

// Each of the other rules finds what it is for, of what gateways, platforms of
// network management and operators say, and no more once it is disabled.
func TestEquipmentRules(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		f := a.Join(t, apptest.Center{ID: "c1", Paths: []*adapterv1.Path{{Peer: "platform", LatencyMicroseconds: 5000, LossPpm: 90_000}}})
		at(t, a, networkv1.EquipmentRule_KIND_EQUIPMENT_DEGRADED, true, 0)
		say := func(x ...*adapterv1.Equipment) {
			t.Helper()
			must(t, f.Ask("heartbeat", &adapterv1.HeartbeatRequest{Equipment: x}, &adapterv1.HeartbeatResponse{}))
		}
		say(&adapterv1.Equipment{Name: "sw", Kind: eqKindSw, State: adapterv1.EquipmentState_EQUIPMENT_STATE_DEGRADED, Reason: "fan 2", Ports: []*adapterv1.Port{{Name: "1", State: up, ErrorsPpm: 777, LossPpm: 12_345}}},
			&adapterv1.Equipment{Name: "bad", State: 77})
		_, err := a.Admin.Resources.ApplyResources(ctx, &registryv1.ApplyResourcesRequest{Resources: []*registryv1.Resource{{ResourceId: "line-1", Type: "network", ParentId: "center:c1", Region: "east", ServiceProvider: "x",
			State: registryv1.ResourceState_RESOURCE_STATE_UNAVAILABLE, Attributes: line(t)}}})
		must(t, err)
		_, err = a.Admin.Equipment.ReportEquipment(ctx, &networkv1.ReportEquipmentRequest{AiCenterId: "c1", Source: "nms", SilenceSeconds: 1})
		must(t, err)
		for kind, want := range map[networkv1.EquipmentRule_Kind]string{
			networkv1.EquipmentRule_KIND_EQUIPMENT_DEGRADED:  "equipment sw of center c1 is degraded: fan 2",
			networkv1.EquipmentRule_KIND_LINK_ERRORS:         "at least 100 of a million frames on link sw:1 of center c1 have errors",
			networkv1.EquipmentRule_KIND_LINK_LOSS:           "at least 1000 of a million frames on link sw:1 of center c1 are dropped",
			networkv1.EquipmentRule_KIND_EQUIPMENT_SILENT:    "nms, which reports network equipment of center c1",
			networkv1.EquipmentRule_KIND_NETWORK_UNAVAILABLE: "network line-1 (line-1) is unavailable",
			networkv1.EquipmentRule_KIND_PATH_LOSS:           "at least 5% of what is sent from center c1 to the platform is lost",
		} {
			alarm := alarmsv1.AlarmKind(kind + 22)
			if got := await(t, a, alarm, active); !strings.Contains(got.Message, want) || got.AiCenterId != "c1" {
				t.Errorf("%v: %v, want %q", kind, got, want)
			}
			threshold := int64(1)
			if kind == networkv1.EquipmentRule_KIND_NETWORK_UNAVAILABLE {
				threshold = 0
			}
			at(t, a, kind, false, threshold)
			await(t, a, alarm, cleared)
		}
		// Thresholds count from the next look on.
		at(t, a, networkv1.EquipmentRule_KIND_LINK_ERRORS, true, 500)
		await(t, a, alarmsv1.AlarmKind_ALARM_KIND_LINK_ERRORS, active)
		at(t, a, networkv1.EquipmentRule_KIND_LINK_ERRORS, true, 501)
		await(t, a, alarmsv1.AlarmKind_ALARM_KIND_LINK_ERRORS, cleared)
		got, err := a.Admin.Equipment.ListEquipment(ctx, &networkv1.ListEquipmentRequest{Troubled: true})
		if must(t, err); len(got.Equipment) != 1 || got.Equipment[0].WorstErrorsPpm != 500 || got.Equipment[0].WorstLossPpm != 10_000 || got.Equipment[0].Source != "plugin:gateway" || len(got.Equipment[0].Equipment.Ports) != 0 {
			t.Errorf("equipment %v", got)
		}
	})
}

func line(t *testing.T) *structpb.Struct {
	x, err := structpb.NewStruct(map[string]any{"network_type": "leased_line", "specification": "10G"})
	must(t, err)
	return x
}

// A gateway asks the switches of its center: a link that goes down there is an
// alarm, and none when it is back.
func TestSwitches(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{Config: soon})
	at(t, a, networkv1.EquipmentRule_KIND_LINK_DOWN, true, 0)
	played := switchestest.New(t)
	played.Port(1, "25GE1/0/1", 1, 1)
	g := a.Gateway(t)
	g.Stop()
	g.Switches = switches.Config{Switches: []switches.Switch{{Name: "leaf-1", Address: played.Address(), Community: switchestest.Community, Ports: map[string]switches.Far{"25GE1/0/1": {Node: "n7"}}}}}
	g.Start()
	apptest.Until(t, "the switch is known", func() bool {
		x, err := a.Admin.Equipment.GetEquipment(t.Context(), &networkv1.GetEquipmentRequest{AiCenterId: g.ID, Name: "leaf-1"})
		return err == nil && x.Source == "plugin:gateway" && len(x.Equipment.Ports) == 1 && x.Equipment.State == eqUp
	})
	played.Port(1, "25GE1/0/1", 1, 2)
	if x := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_LINK_DOWN, active); x.Equipment != "leaf-1" || !strings.Contains(x.Message, "leaf-1:25GE1/0/1 to node n7") {
		t.Errorf("alarm %v", x)
	}
	first := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_LINK_DOWN, active)
	g.Stop() // what it does not know yet when it starts again stays as it was
	g.Start()
	apptest.Until(t, "the gateway is back", func() bool {
		x, err := a.Admin.Adapters.ListGateways(t.Context(), &adaptersv1.ListGatewaysRequest{})
		return err == nil && len(x.Gateways) == 1 && x.Gateways[0].Connected
	})
	if x := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_LINK_DOWN, active); x.Count != first.Count {
		t.Errorf("after the gateway's start %v, before %v", x, first)
	}
	played.Port(1, "25GE1/0/1", 1, 1)
	if x := await(t, a, alarmsv1.AlarmKind_ALARM_KIND_LINK_DOWN, cleared); x.Count != first.Count {
		t.Errorf("it came again: %v", x)
	}
}
