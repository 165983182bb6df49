package adaptertest

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/gen/yunhe/adapter/v1/adapterv1connect"
)

// checks are all there are, in the order they are run.
func checks() []check {
	return slices.Concat(describeChecks, watchChecks, applyChecks, endChecks, logChecks, featureChecks, partChecks, nodeChecks, faultChecks)
}

var describeChecks = []check{
	{"describe/names", needsNothing, describeNames},
	{"describe/schema", needsNothing, describeSchema},
	{"describe/unclaimed", needsNothing, describeUnclaimed},
	{"discover/whole", needsNothing, discoverWhole},
	{"discover/repeatable", needsNothing, discoverRepeatable},
}

var nameRule = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

func (e *env) describe() *adapterv1.DescribeResponse {
	e.Helper()
	ctx, cancel := e.call()
	defer cancel()
	res, err := e.client.Describe(ctx, &adapterv1.DescribeRequest{})
	if err != nil {
		e.Fatalf("Describe: %v. It must always succeed: it says what the program is, not how the center does", err)
	}
	return res
}

func (e *env) discover() *adapterv1.Inventory {
	e.Helper()
	ctx, cancel := e.call()
	defer cancel()
	res, err := e.client.Discover(ctx, &adapterv1.DiscoverRequest{})
	if err != nil {
		e.Fatalf("Discover: %v", err)
	}
	if res.Inventory == nil {
		e.Fatal("Discover answers without an inventory: answer with all of it, or with an error")
	}
	return res.Inventory
}

func describeNames(e *env) {
	d := e.describe()
	if !nameRule.MatchString(d.Name) {
		e.Errorf("Describe: the name is %q; want what %s matches, for example %q: operators write it", d.Name, nameRule, "kubernetes")
	}
	if d.Version == "" {
		e.Error("Describe: the version is empty; operators see it in lists and after an upgrade")
	}
	if len(d.Parts) == 0 {
		e.Error("Describe: no parts; claim what the driver offers, PART_JOB if it runs attempts")
	}
	seen := map[adapterv1.Part]bool{}
	for _, p := range d.Parts {
		if adapterv1.Part_name[int32(p)] == "" || p == adapterv1.Part_PART_UNSPECIFIED || seen[p] {
			e.Errorf("Describe: part %v is unknown or claimed twice", p)
		}
		seen[p] = true
	}
	if again := e.describe(); !proto.Equal(d, again) {
		e.Errorf("Describe answers {%v} and then {%v}; want the same every time", d, again)
	}
}

func describeSchema(e *env) {
	d := e.describe()
	if d.ConfigSchema == "" {
		return // takes no configuration
	}
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(d.ConfigSchema), &s); err != nil {
		e.Fatalf("Describe: config_schema is no JSON Schema: %v. adapter.Schema makes one from a struct", err)
	}
	if _, err := s.Resolve(nil); err != nil {
		e.Fatalf("Describe: config_schema is not a valid JSON Schema: %v", err)
	}
	if s.Type != "object" {
		e.Errorf("Describe: config_schema has type %q at its top; want object, for the configuration is one", s.Type)
	}
}

// describeUnclaimed: what is not claimed answers "unimplemented", and so does
// what a later version of the contract may add.
func describeUnclaimed(e *env) {
	later := connect.NewClient[adapterv1.DescribeRequest, adapterv1.DescribeResponse](e.in.HTTP, e.in.URL+"/"+adapterv1connect.DriverServiceName+"/OfALaterContract")
	ctx, cancel := e.call()
	defer cancel()
	_, err := later.CallUnary(ctx, connect.NewRequest(&adapterv1.DescribeRequest{}))
	e.wantCode(err, "a method of a later contract", connect.CodeUnimplemented)

	jobs := slices.Contains(e.describe().Parts, adapterv1.Part_PART_JOB)
	_, apply := e.client.Apply(ctx, &adapterv1.ApplyRequest{})
	_, remove := e.client.Remove(ctx, &adapterv1.RemoveRequest{})
	for what, err := range map[string]error{"Apply": apply, "Remove": remove} {
		switch {
		case jobs && err != nil:
			e.Errorf("%s of nothing: %v; want success, for PART_JOB is claimed", what, err)
		case !jobs:
			e.wantCode(err, what+", while Describe does not claim PART_JOB,", connect.CodeUnimplemented)
		}
	}
	e.featuresUnclaimed()
	e.partsUnclaimed()
}

func discoverWhole(e *env) {
	e.judge(e.discover(), "Discover")
}

// judge says what is wrong with an inventory.
func (e *env) judge(inv *adapterv1.Inventory, from string) {
	e.Helper()
	if inv.AiCenterId == "" || len([]rune(inv.AiCenterId)) > 32 {
		e.Errorf("%s: ai_center_id is %q; want 1 to 32 characters", from, inv.AiCenterId)
	}
	if len(inv.Capacity) == 0 {
		e.Errorf("%s: no capacity; say what jobs may use in all, at least cpu and memory", from)
	}
	for _, r := range slices.Sorted(maps.Keys(inv.Capacity)) {
		if inv.Capacity[r] < 0 || r == "" {
			e.Errorf("%s: capacity[%q] is %d; want at least 0", from, r, inv.Capacity[r])
		}
	}
	if !slices.Contains(inv.Images, e.c.ImageID) {
		e.Errorf("%s: images are %q and lack Config.ImageID %q; the platform sends here only what is listed", from, inv.Images, e.c.ImageID)
	}
	offers, specs := map[string]bool{}, map[string]bool{}
	for _, o := range inv.Offers {
		if o.ResourceSpecId == "" || o.Price < 0 || offers[o.ResourceSpecId] {
			e.Errorf("%s: offer {%v} has no ID, a negative price or comes twice", from, o)
		}
		offers[o.ResourceSpecId] = true
	}
	for _, s := range inv.Specs {
		if s.ResourceSpecId == "" || len([]rune(s.ResourceSpecId)) > 32 || specs[s.ResourceSpecId] || len(s.Quantity) == 0 {
			e.Errorf("%s: specification {%v} needs an ID of 1 to 32 characters, given once, and quantities", from, s)
		}
		specs[s.ResourceSpecId] = true
	}
	for _, text := range append(slices.Collect(maps.Values(inv.Labels)), inv.Name, inv.Region, inv.Version) {
		if strings.ContainsRune(text, 0) {
			e.Errorf("%s: %q has a zero byte", from, text)
		}
	}
}

// fixed is what of an inventory does not change by itself.
func fixed(inv *adapterv1.Inventory) *adapterv1.Inventory {
	out := proto.CloneOf(inv)
	out.Capacity = nil // others may use it
	slices.Sort(out.Images)
	slices.SortFunc(out.Offers, func(a, b *adapterv1.SpecOffer) int { return cmp.Compare(a.ResourceSpecId, b.ResourceSpecId) })
	slices.SortFunc(out.Specs, func(a, b *adapterv1.SpecDeclaration) int { return cmp.Compare(a.ResourceSpecId, b.ResourceSpecId) })
	return out
}

func discoverRepeatable(e *env) {
	first := e.discover()
	for range 3 {
		if again := e.discover(); !proto.Equal(fixed(first), fixed(again)) || !maps.Equal(keys(first.Capacity), keys(again.Capacity)) {
			e.Fatalf("Discover answered\n{%v}\nand then\n{%v}\nwith nothing changed: each answer must be the whole inventory", first, again)
		}
	}
	e.restart()
	if again := e.discover(); again.AiCenterId != first.AiCenterId {
		e.Errorf("Discover names center %q, after a restart %q; a center has one ID for good", first.AiCenterId, again.AiCenterId)
	}
}

func keys(m map[string]int64) map[string]bool {
	out := map[string]bool{}
	for k := range m {
		out[k] = true
	}
	return out
}
