package badinput

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	optionsv1 "yunhe.dev/yunhe/gen/yunhe/options/v1"
)

// method of the contract.
type method struct {
	desc       protoreflect.MethodDescriptor
	permission string
	verb, path string // of REST, "" if it has none
	body       string // "", "*" or a field
}

func (m method) name() string { return string(m.desc.Name()) }

// reads reports whether the method changes nothing.
func (m method) reads() bool { return m.verb == "GET" || m.desc.IsStreamingServer() }

// ownTests are services whose input only their own tests spoil so far: they
// need right examples here, whose resources and tags fit together.
var ownTests = map[protoreflect.FullName]bool{}

// methods returns every method the contract has for callers, sorted, but for
// those of ownTests.
func methods(tb testing.TB) []method {
	tb.Helper()
	var out []method
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(string(f.Package()), "yunhe.") {
			return true
		}
		for i := range f.Services().Len() {
			if ownTests[f.Services().Get(i).FullName()] {
				continue
			}
			ms := f.Services().Get(i).Methods()
			for k := range ms.Len() {
				m := method{desc: ms.Get(k)}
				if m.permission, _ = proto.GetExtension(m.desc.Options(), optionsv1.E_Permission).(string); m.permission == "" {
					continue // between platform and drivers, not mounted
				}
				rule, _ := proto.GetExtension(m.desc.Options(), annotations.E_Http).(*annotations.HttpRule)
				for _, x := range [][2]string{{"GET", rule.GetGet()}, {"POST", rule.GetPost()}, {"PUT", rule.GetPut()}, {"PATCH", rule.GetPatch()}, {"DELETE", rule.GetDelete()}} {
					if x[1] != "" {
						m.verb, m.path, m.body = x[0], x[1], rule.GetBody()
					}
				}
				out = append(out, m)
			}
		}
		return true
	})
	sort.Slice(out, func(i, j int) bool { return out[i].desc.FullName() < out[j].desc.FullName() })
	if len(out) < 35 {
		tb.Fatalf("the contract has %d methods, want at least the 35 of its first version", len(out))
	}
	return out
}

// object is a JSON object as a caller writes it, with the names of the contract.
type object = map[string]any

// ahead is a time as a caller writes it.
func ahead(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }

// example returns a request that is right, with every input field set.
func (p *platform) example(m method) object {
	o := p.fill(m.desc.Input(), 0)
	switch m.name() {
	case "SubmitJobs":
		delete(o, "jobs")
		o["jobs"] = []any{p.jobSpec()}
	case "SubmitJob":
		o["job"] = p.jobSpec()
	case "PlanJob":
		o["job"] = p.jobSpec()
	case "ScaleJob":
		o["task"], o["replica_number"] = "t", 1
	case "SetQueue":
		o["queue_id"], o["queue"] = "q1", object{"queue_id": "q1", "parent_id": "", "weight": 1, "guaranteed": object{"cpu": "1"}, "borrowable": object{"cpu": "2"}, "limit": object{"cpu": "4"},
			"used": object{}, "waiting_jobs": 0, "share_ppm": 0, "updated_at": "2026-01-01T00:00:00Z"}
	case "SetBudget":
		o["budget_id"], o["budget"] = "b1", object{"budget_id": "b1", "tenant_id": "", "user_id": "u", "project": "p", "amount_micros": 1000000, "period": "PERIOD_ONCE", "time_zone": "Asia/Shanghai",
			"start_at": "2026-01-01T00:00:00Z", "warn_percents": []any{50}, "action": "ACTION_WARN", "grace_seconds": 0, "updated_at": "2026-01-01T00:00:00Z", "spent_micros": 0, "committed_micros": 0,
			"rate_micros_per_hour": 0, "period_start": "2026-01-01T00:00:00Z", "period_end": "2026-01-01T00:00:00Z", "reached_percent": 0}
	case "CreateUser":
		o["user"].(object)["role"] = "ROLE_USER"
	case "SetPolicySet":
		o["policy_set"] = object{"weights": object{"lowest-price": 1}}
	case "QueryRange":
		o = object{"query": "up", "step_seconds": 60}
	case "EvaluateCenter":
		o = object{"ai_center_id": "c1", "policy_ids": []any{"lowest-price"}, "scores": []any{50}}
	case "ApplyAllocation":
		o = object{"request_id": "", "name": "x", "resource_spec_id": "s1", "count": 1, "amounts": object{}, "nodes": []any{}, "ai_center_id": "c1", "region": "",
			"start_at": time.Now().UTC().Format(time.RFC3339), "end_at": "2099-01-01T00:00:00Z", "no_wait": true, "policy_weights": object{"lowest-price": 1}}
	case "AdjustAllocation":
		o["allocation_id"], o["amounts"], o["end_at"] = p.allocation, object{}, "2099-01-01T00:00:00Z"
	case "GetAllocation", "ReleaseAllocation":
		o["allocation_id"] = p.allocation
	case "GetOperation", "WatchOperations":
		o["operation_id"] = p.operation
	case "ListOperations":
		o["states"], o["kinds"], o["allocation_id"], o["node"] = []any{1}, []any{1}, p.allocation, ""
	case "IsolateResource", "RestoreResource", "ReclaimResource":
		o["node"], o["request_id"] = "", ""
	case "CreateReservation":
		put(o, object{"request_id": "", "amounts": object{}, "ai_center_ids": []any{"c1"}, "regions": []any{"north"}, "expression": "region == \"north\"", "start_at": ahead(24 * time.Hour), "end_at": ahead(25 * time.Hour),
			"recurrence": "FREQ=DAILY;COUNT=2", "time_zone": "Asia/Shanghai", "unused_seconds": 60, "resource_spec_id": "s1", "count": 1})
	case "ListReservations":
		o["states"] = []any{"STATE_PLANNED"}
	case "CreateMaintenance":
		put(o, object{"request_id": "", "start_at": ahead(24 * time.Hour), "end_at": ahead(25 * time.Hour), "recurrence": "FREQ=DAILY", "time_zone": "", "runs": "RUNS_REQUEUE", "notice_seconds": 60, "drain_seconds": 60, "nodes": []any{}})
	case "GetMaintenance", "CancelMaintenance":
		o["maintenance_id"] = p.maintenance
	case "GetResourceView":
		o["region"] = "north"
	case "ListJobs":
		o["states"] = []any{"STATE_QUEUED"}
	}
	switch m.name() {
	case "CreateInstance":
		o["config"] = "{}"
	case "GetInstance", "UpdateInstance":
		put(o, object{"plugin": "gateway", "config": "{}"})
		delete(o, "config_patch") // not together with config
	case "SetAccount":
		o["ai_center_id"] = "c9" // the gateway at c1 has no accounts, which is no answer to bad input
	case "SetLostGrace":
		put(o, object{"ai_center_id": "c1", "seconds": 60})
		delete(o, "tenant_id") // not together with a center
	case "CreateVolume", "GetVolume", "GrowVolume", "DeleteVolume":
		put(o, object{"name": "data", "volume": "data", "bytes": 1 << 20})
	}
	switch m.desc.Parent().FullName() {
	case "yunhe.measurement.v1.MeasurementService":
		put(o, object{"node": "", "run_id": "mrn_1", "ai_center_ids": []any{"c1", "c2"}, "settings": object{"policy": 1, "on_join": false, "every_days": 0, "version": 1,
			"updated_at": "2026-01-01T00:00:00Z", "weights": []any{object{"indicator_id": "memory.bandwidth", "reference": 5000, "weight": 1, "per_core": false}}},
			"schedule": object{"ai_center_id": "c1", "interval_hours": 0, "at_once": 1, "version": 0, "updated_at": "2026-01-01T00:00:00Z", "updated_by": "", "message": ""}})
	case "yunhe.topology.v1.TopologyService":
		topologyExample(m.name(), o)
	case "yunhe.registry.v1.ResourceService":
		resourceExample(m.name(), o)
	case "yunhe.tags.v1.TagService":
		tagExample(m.name(), o)
	case "yunhe.simulations.v1.SimulationService":
		// Of a policy that is not there: what is right in all else is not played, and
		// nothing moves by itself while states are compared.
		put(o, object{"simulation_id": "simulation_1", "platform": object{"since_seconds": 60, "jobs": 5}, "policies": []any{object{"policy_id": "none", "version": 1}}, "queues": []any{"fair"},
			"title": "one", "seed": 1, "load": 0, "speed": 1.5, "baseline": "", "format": "json", "since_seconds": 60, "jobs": 5, "name": "", "job_id": ""})
		delete(o, "files") // not together with the platform
		delete(o, "recipe")
	case "yunhe.policies.v1.PolicyService":
		p.policyExample(m.name(), o)
	case "yunhe.access.v1.AccessService":
		accessExample(m.name(), o)
	case "yunhe.routing.v1.RoutingService":
		put(o, object{"service_id": p.service, "reports": []any{object{"origin_id": "o", "requests_per_second": 1.5, "at": time.Now().UTC().Format(time.RFC3339), "latency_microseconds": object{"c1": 1000}}},
			"service": object{"service_id": p.service, "name": "svc-" + m.name(), "tenant_id": "", "job_ids": []any{p.job}, "origins": []any{object{"origin_id": "o", "name": "One", "longitude": 1, "latitude": 1}},
				"replica_rate": 1.5, "max_latency_microseconds": 1000, "max_use_percent": 80, "move_percent": 10, "endpoints": object{"c1": "host:1"}, "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z"}})
	case "yunhe.availability.v1.AvailabilityService":
		put(o, object{"days": 1, "least_cost": false, "method": "AVAILABILITY_METHOD_AWARE",
			"system": object{"modules": []any{object{"name": "m", "submodules": []any{object{"name": "s", "availability": 0.9}, object{"name": "t", "availability": 0.9}}, "instances": 2, "cost": 1}}, "instances": 2,
				"target": 0.9, "common_cause": 0.1, "sites": []any{object{"name": "n", "availability": 0.99}}, "dependencies": []any{object{"from": "m/s", "to": "m/t", "strength": 1}}},
			"modules": []any{object{"name": "m", "microservices": []any{object{"submodules": []any{"s", "t"}}}}}})
	case "yunhe.network.v1.NetworkService":
		put(o, object{"from": "center:c1", "to": "region:north", "end": "center:c1", "origin_id": "o9",
			"path":   object{"from": "center:c1", "to": "region:north", "latency_us": 1, "jitter_us": 1, "loss_ppm": 1, "bandwidth_kbps": 1, "fee_fen_per_gib": 1, "note": "n"},
			"origin": object{"origin_id": "o1", "name": "One", "region": "north", "longitude": 1, "latitude": 1, "tenant_ids": []any{"default"}, "user_ids": []any{"alice"}, "updated_at": "2026-01-01T00:00:00Z"}})
		if m.name() == "GetPath" {
			o["to"] = "center:c2"
		}
	case "yunhe.pool.v1.PoolService":
		put(o, object{"node_id": "n1", "device_id": "d", "group_id": "g", "spec_id": "", "request_id": "", "slice_id": "slice_1", "api": "", "compute_percent": 1, "memory_mib": 1, "weighted": false, "physical": false, "virtualization": 1, "mode": "MODE_ENABLED", "states": []any{"STATE_ENDED"},
			"secret": strings.Repeat("00", 32), "boot": "b", "sequence": 1, "wait_ms": 0, "compute_limit_percent": 100, "memory_limit_percent": 100, "policy": object{"local": 1, "nodes": 1, "devices": 1}, "priority": 0})
		poolExample(m.name(), o)
	case "yunhe.pool.v1.PoolOperationService":
		put(o, object{"node_id": "n1", "node_ids": []any{"n1"}, "slice_id": "", "user_id": "", "text": "", "from": nil, "to": nil, "format": 1, "level": 0, "secret": strings.Repeat("00", 32), "entries": []any{}, "components": []any{},
			"generation": 0, "problem": "", "wait_ms": 0, "program": "", "attempt": 0, "attempt_problem": "", "sha256": strings.Repeat("0a", 32), "version": "v1", "bytes": 1, "offset": 0, "content": "", "platform": false, "batch": 1,
			"pause_seconds": 0, "patience_seconds": 10, "action": 1, "upgrade_id": "upg_1", "config": object{"log_level": 2, "idle_limit_seconds": 0, "run_limit_seconds": 0}, "change": nil, "language": "en", "page_token": "",
			"rule": object{"kind": 1, "enabled": true, "threshold": 15, "severity": 2, "updated_at": "2026-01-01T00:00:00Z"}})
		if m.name() == "SetPoolAlarmRule" || m.name() == "ExportPoolReport" {
			o["kind"] = 1
		}
	case "yunhe.alarms.v1.AlarmService":
		put(o, object{"to": "2027-01-01T00:00:00Z"})
	case "yunhe.notices.v1.NoticeService":
		put(o, object{"notice_id": "note_1", "page_token": "", "settings": object{"in_site": true, "mail": false, "severity": 1, "cleared": false, "kinds": []any{12}, "recipients": []any{"a@example.org"},
			"sender": "y@example.org", "server": "127.0.0.1:1", "security": 1, "user_name": "", "password": "", "has_password": false, "updated_at": "2026-01-01T00:00:00Z"}})
	case "yunhe.monitor.v1.MonitorService":
		put(o, object{"node": "", "ai_center_id": "c1"})
	}
	return o
}

func poolExample(name string, o object) {
	switch name {
	case "SetSliceSpec":
		put(o, object{"spec_id": "s", "spec": object{"spec_id": "s", "compute_percent": 1, "memory_mib": 1, "weighted": false, "model": "", "price_fen": 0, "updated_at": "2026-01-01T00:00:00Z"}})
	case "SetPoolGroup":
		o["group"] = object{"group_id": "g", "tenant_ids": []any{"default"}, "user_ids": []any{}, "members": []any{}, "compute_limit_percent": 0, "memory_limit_mib": 0, "max_priority": 1, "updated_at": "2026-01-01T00:00:00Z",
			"compute_lent_percent": 0, "memory_lent_mib": 0, "slices": 0}
	case "DeleteSliceSpec":
		o["spec_id"] = "s"
	}
}

// put replaces those of the fields that o has.
func put(o object, values object) {
	for field, v := range values {
		if _, ok := o[field]; ok {
			o[field] = v
		}
	}
}

// resourceExample puts into o what fits together: a cloud, and the identifier
// of a chip in it.
func resourceExample(name string, o object) {
	cloud := func(id string) object {
		return object{"resource_id": id, "type": "cloud", "name": "One", "parent_id": "", "platform_id": "", "ai_center_id": "", "tenant_id": "", "region": "north", "service_provider": "x",
			"state": "RESOURCE_STATE_AVAILABLE", "attributes": object{"cloud_platform_type": "public"}, "labels": object{"k": "v"}, "version": 0, "children": 0, "identifier": ""}
	}
	put(o, object{"resource": cloud("r1"), "resources": []any{cloud("r1")}, "resource_id": "r1", "parent_id": "", "type": "cloud", "platform_id": "", "ai_center_id": "", "labels": []any{"k=v"},
		"availability_zone": "z", "registration_code": "", "identifier": "x", "form": object{"city": "520100", "industry": "I65", "enterprise": "91350100M000100Y43", "resource_type": "IC", "data_center": "GUIAN01",
			"service_type": "CL", "compute_capability": "H989T", "storage_capacity": "80G", "network_configuration": "R400G", "chip_type": "GPU", "chip_number": "SN1"}})
	switch name {
	case "CreateResource":
		o["resource"] = cloud("r2")
	case "UpdateResource":
		o["resource"].(object)["version"] = 1
	}
}

// tagExample puts into o a tag, a rule that sets it, and a center to carry it.
func tagExample(name string, o object) {
	const when = "true"
	put(o, object{
		"object": "center:c1", "objects": []any{"center:c1"}, "subject": "center:c1", "key": "k1", "group_id": "g1", "kind": "OBJECT_KIND_CENTER", "expression": when,
		"selector": object{"kinds": []any{"OBJECT_KIND_CENTER"}, "objects": []any{"center:c1"}, "ai_center_id": "c1", "expression": when},
		"changes":  []any{object{"key": "k1", "value": "v", "op": "CHANGE_OP_SET"}},
		"group":    object{"group_id": "g1", "title": "One", "title_zh": "x", "description": "d", "kinds": []any{}, "tags": 0},
		"tag": object{"key": "k1", "title": "One", "title_zh": "x", "group_id": "g1", "description": "d", "value_type": "VALUE_TYPE_TEXT", "allowed_values": []any{}, "kinds": []any{}, "setter": "SETTER_OPERATORS",
			"inherited": false, "hidden_from_policies": false, "status": "TAG_STATUS_ACTIVE", "version": 1, "objects": 0, "rules": []any{}, "operations": []any{}},
		"rule": object{"rule_id": "u1", "title": "One", "description": "d", "key": "k1", "kinds": []any{}, "when": when, "until": "", "value": "v", "value_expression": "", "hold_seconds": 0, "priority": 1,
			"mode": "RULE_MODE_RECOMMEND", "version": 1, "matched": 0, "error": "", "live": false},
	})
	switch name {
	case "ShareTags":
		o["keys"] = []any{}
	case "AdoptTags":
		o["shared"] = object{"groups": []any{object{"group_id": "g1", "title": "One"}}, "tags": []any{}, "rules": []any{}}
	}
	if strings.HasPrefix(name, "Delete") { // the others need what is there
		put(o, object{"key": "k9", "group_id": "g9"})
	}
}

// accessExample puts into o a rule, a conversion, and a center.
func accessExample(name string, o object) {
	put(o, object{
		"resource_id": "c1", "source": "gateway", "kind": 1, "id": "center-region", "version": 1,
		"rule": object{"rule_id": "a1", "title": "One", "title_zh": "x", "kind": "RESOURCE_KIND_CENTER", "severity": "SEVERITY_MAJOR", "applies": "true", "known": "true", "condition": "region != \"\"",
			"message": "m", "enabled": false, "version": 0, "updated_at": "2026-01-01T00:00:00Z", "updated_by": "x"},
		"conversion": object{"conversion_id": "a1", "title": "One", "source": "gateway", "field": "FIELD_RESOURCE", "match": "x(.*)", "replace": "y$1", "times": 2, "per": 3, "priority": 1, "enabled": false,
			"version": 0, "updated_at": "2026-01-01T00:00:00Z", "updated_by": "x"},
		"items":    []any{object{"field": "FIELD_RESOURCE", "value": "x1", "amount": 6}},
		"settings": object{"enforce": false}, "compliance": 1, "status": 1, "page_token": "",
	})
	switch name {
	case "DeleteAccessRule":
		o["rule_id"] = "cloud-version"
	case "DeleteConversion":
		o["conversion_id"] = "region-cn"
	}
}

// topologyExample puts into o what is there: history is as old as the platform.
func topologyExample(name string, o object) {
	for _, field := range []string{"at", "to"} {
		if _, ok := o[field]; ok {
			o[field] = time.Now().UTC().Format(time.RFC3339Nano)
		}
	}
	for field, v := range map[string]any{"node_id": "center:c1", "root_id": "center:c1", "link_id": "path:c1:platform", "binding_id": "node.cpu", "level": 5} {
		if _, ok := o[field]; ok {
			o[field] = v
		}
	}
	switch name {
	case "DiffTopology":
		o["from"] = o["to"]
	case "PutLink":
		o["link"] = object{"link_id": "l1", "name": "One", "from_id": "center:c1", "to_id": "network", "kind": 1, "bandwidth_bits_per_second": 1, "latency_us": 1, "service_provider": "x", "tenant_id": "", "version": 0}
	case "DeleteLink":
		o["link_id"], o["version"] = "l1", 0
	case "PutBinding":
		o["binding"] = object{"binding_id": "b1", "title": "One", "title_zh": "x", "level": 5, "expression": "up", "center_label": "c", "node_label": "n", "index_label": "i", "peer_label": "p",
			"unit": "x", "scale": 1, "relative_to": "", "busy": 1, "warning": 1, "low_is_bad": false, "low": 0, "high": 1, "aggregate": 1, "version": 0}
	case "DeleteBinding":
		o["binding_id"] = "b1"
	}
}

func (p *platform) jobSpec() object {
	return object{"name": "job", "desc": "d", "priority": 1, "success_policy": "SUCCESS_POLICY_ALL", "failure_policy": "FAILURE_POLICY_ANY",
		"max_retries": 1, "gang": true, "policy_weights": object{"lowest-price": 1}, "labels": object{"k": "v"},
		"tasks": []any{object{"name": "t", "command": "true", "image_id": "i1", "resource_spec_id": "s1", "replica_number": 1, "env": object{"A": "b"},
			"files": []any{object{"path": "f", "content": "YQ==", "executable": true}}, "timeout_seconds": 9, "network": false,
			"constraints":      object{"centers": []any{"c1"}, "regions": []any{"north"}, "min_security_grade": 0, "max_price": 1000},
			"expected_seconds": 9, "stop_grace_seconds": 9, "scratch_mib": 64, "after": []any{}, "min_replicas": 1, "max_replicas": 2, "precision": "FP32",
			"inputs": []any{object{"name": "d", "size_bytes": 1, "centers": []any{"c1"}, "volume": "", "stays": true}},
			"qos":    object{"max_latency_us": 1, "max_jitter_us": 1, "max_loss_ppm": 1, "min_bandwidth_kbps": 1, "finish_seconds": 1, "min_availability_ppm": 1, "required": false}}}, // no pool: without a node of it no share can be had
		"retry_rules":   []any{object{"reasons": []any{"exit"}, "exit_codes": []any{75}, "max_retries": 1, "backoff_seconds": 1}},
		"restart_whole": true, "elastic": true, "lost_grace_seconds": 60, "no_preemption": false, "distributed": true, "not_before": "2026-01-01T00:00:00Z", "deadline": "2099-01-01T00:00:00Z"}
}

// values of fields by name; others get one by their kind.
func (p *platform) value(name string) (any, bool) {
	v, ok := map[string]any{
		"job_id": p.job, "ai_center_id": "c1", "resource_spec_id": "s1", "image_id": "i1", "tenant_id": "default", "user_id": "alice", "user_name": "alice",
		"key_id": p.key, "policy_id": "lowest-price", "page_token": "", "page_size": 10, "resource_quantity": object{"cpu": "1", "memory": "1Gi"},
		"service_type": "batch", "adapter": "gateway", "resource_spec": "s1", "centers": []any{"c1"}, "preset": "", "security_grade": 1,
		"longitude": 1.5, "latitude": 1.5, "performance": 1000, "status": 1, "ttl_seconds": 60, "attempt": 0, "public_key": "U", "step_seconds": 60,
	}[name]
	return v, ok
}

func (p *platform) fill(d protoreflect.MessageDescriptor, depth int) object {
	o := object{}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if v, ok := p.value(string(f.Name())); ok {
			o[string(f.Name())] = v
			continue
		}
		switch {
		case f.IsMap():
			o[string(f.Name())] = object{}
		case f.IsList():
			o[string(f.Name())] = []any{}
		case f.Kind() == protoreflect.MessageKind && f.Message().FullName() == "google.protobuf.Timestamp":
			o[string(f.Name())] = "2026-01-01T00:00:00Z"
		case f.Kind() == protoreflect.MessageKind && depth < 3:
			o[string(f.Name())] = p.fill(f.Message(), depth+1)
		case f.Kind() == protoreflect.StringKind:
			o[string(f.Name())] = "x"
		case f.Kind() == protoreflect.BoolKind:
			o[string(f.Name())] = false
		case f.Kind() == protoreflect.BytesKind:
			o[string(f.Name())] = "YQ=="
		case f.Kind() == protoreflect.EnumKind, f.Kind() != protoreflect.MessageKind:
			o[string(f.Name())] = 1
		}
	}
	return o
}

// request over the wire.
type request struct {
	verb, path string
	header     map[string]string
	body       []byte
	reads      bool // nothing it does may change anything
	stays      bool // its answer may be an open stream
}

func (r request) String() string {
	return fmt.Sprintf("%s %.300s %.300q", r.verb, r.path, r.body)
}

// raw is JSON that is sent as it stands, right or not.
type raw string

// encode writes JSON, with [raw] values as they stand.
func encode(v any) []byte {
	switch v := v.(type) {
	case raw:
		return []byte(v)
	case object:
		var b bytes.Buffer
		b.WriteByte('{')
		for i, k := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(encode(k))
			b.WriteByte(':')
			b.Write(encode(v[k]))
		}
		b.WriteByte('}')
		return b.Bytes()
	case []any:
		var b bytes.Buffer
		b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(encode(x))
		}
		b.WriteByte(']')
		return b.Bytes()
	default:
		b, err := json.Marshal(v)
		if err != nil {
			panic(err) // only strings, numbers and booleans come here
		}
		return b
	}
}

// connectRequest sends the message to the method itself.
func connectRequest(m method, o object) request {
	r := request{verb: "POST", path: "/" + string(m.desc.Parent().FullName()) + "/" + m.name(), header: map[string]string{"Connect-Protocol-Version": "1"}, body: encode(o), reads: m.reads(), stays: m.desc.IsStreamingServer()}
	if m.desc.IsStreamingServer() {
		r.header["Content-Type"] = "application/connect+json"
		r.body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(r.body))), r.body...)
	}
	return r
}

// restRequest spreads the message over path, query and body as the contract says.
func restRequest(m method, o object) request {
	r := request{verb: m.verb, header: map[string]string{}, reads: m.reads()}
	rest := maps.Clone(o)
	path := m.path
	for {
		i := strings.IndexByte(path, '{')
		if i < 0 {
			break
		}
		k := strings.IndexByte(path, '}')
		v := take(rest, strings.Split(path[i+1:k], "."))
		path = path[:i] + url.PathEscape(text(v)) + path[k+1:]
	}
	r.path = path
	switch m.body {
	case "*":
		r.body = encode(rest)
		return r
	case "":
	default:
		body, ok := rest[m.body]
		if !ok {
			body = object{}
		}
		delete(rest, m.body)
		r.body = encode(body)
	}
	q := url.Values{}
	params("", rest, q)
	if len(q) > 0 {
		r.path += "?" + q.Encode()
	}
	return r
}

// take removes a field of nested objects and returns what it was.
func take(o object, path []string) any {
	v := o[path[0]]
	if len(path) == 1 {
		delete(o, path[0])
		return v
	}
	inner, ok := v.(object)
	if !ok {
		return v
	}
	inner = maps.Clone(inner)
	o[path[0]] = inner
	return take(inner, path[1:])
}

// params writes fields as query parameters.
func params(prefix string, v any, q url.Values) {
	switch v := v.(type) {
	case object:
		for k, x := range v {
			params(strings.TrimPrefix(prefix+"."+k, "."), x, q)
		}
	case []any:
		for _, x := range v {
			q.Add(prefix, text(x))
		}
	default:
		if s := text(v); s != "" {
			q.Add(prefix, s)
		}
	}
}

// text is a value in a path or a query.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case raw:
		return strings.Trim(string(v), `"`)
	case nil:
		return ""
	default:
		return string(encode(v))
	}
}

// firstFrame reads the first message of a Connect stream.
func firstFrame(in io.Reader) ([]byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[1:]))
	_, err := io.ReadFull(in, b)
	return b, err
}

// fault is an error answer in any of the three forms there are.
type faultBody struct {
	Code     string
	Message  string
	ErrorMsg string
	Details  []struct {
		Field, Problem string
		Value          string // Connect packs its details
	}
	Error *faultBody // the end of a stream
}

// text is all the answer says.
func (f *faultBody) text() string {
	s := f.Code + " " + f.Message + f.ErrorMsg
	for _, d := range f.Details {
		s += " " + d.Field + " " + d.Problem
		if b, err := base64.RawStdEncoding.DecodeString(d.Value); err == nil {
			s += " " + string(b)
		}
	}
	return s
}

// problem returns the error an answer is, nil if it is none.
func problem(tb testing.TB, r request, a answer) *faultBody {
	tb.Helper()
	f := &faultBody{}
	if a.status == http.StatusRequestHeaderFieldsTooLarge { // the HTTP server's own, before there is an API
		return &faultBody{Code: "HEADER", Message: string(a.body)}
	}
	err := json.Unmarshal(a.body, f)
	if f.Error != nil && f.Error.Code != "" { // a rule has an error of its own, which is text
		f = f.Error
	} else if a.status < 400 {
		return nil
	}
	if err != nil || f.Code == "" || f.Message+f.ErrorMsg == "" {
		tb.Errorf("%v answered %d with %.300q, want an error with code and message", r, a.status, a.body)
	}
	return f
}
