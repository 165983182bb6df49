// Package registry records what the compute network has: computing centers
// with their resources and live use, specifications with their prices, and
// images.
//
// What it keeps true:
//
//   - No reservation takes more of a resource than a center has: each
//     [Service.ReserveTx] is a conditional update, all of it or nothing, and
//     the schema refuses amounts below zero whoever writes.
//   - What an operator decided wins over what a center declares, for good: a
//     record, a price or an offer once changed by hand is not changed by the
//     next declaration.
//   - Declaring the same thing again writes nothing, and neither does
//     reporting nodes again that are as they were.
//   - A catalog handed out is never changed; whoever wrote to the registry
//     in this process sees that write in the next catalog, other processes
//     within a second.
//
// # Status of a center
//
// Nothing stores the status: it follows from three facts.
//
//	drained by an operator, or down ──▶ unavailable
//	else heard within 10 s          ──▶ available
//	else, or never heard            ──▶ unknown
//
// # Catalog and live part
//
// The catalog (specifications, images, what centers declare) changes rarely
// and is kept in memory; a row that counts its changes says whether it is
// still right. The live part (amounts held, replicas, heartbeats) changes
// with every job and is always read from the database. Total capacity is in
// both, so that a job that fits nowhere is refused without a read.
//
// # Nodes
//
// The machines of a center are what its driver reports, no more: nobody edits
// them, and a node the driver no longer knows is gone. A hash of all that was
// reported of a node says whether it changed.
//
// # Specifications that centers declare
//
// A driver declares the packages its center is cut into (partitions, instance
// types). One that does not exist is created with the center's own price as
// list price; one that exists is never touched, and one that an operator
// deleted does not come back.
//
// # Offers of specifications that do not exist
//
// A center declares what its owner configured, perhaps before the operator
// creates the specification. The offer is kept, invisible, and becomes
// effective with the specification.
package registry

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// Status says whether a center can be used; the numbers are the standard's.
type Status int

// The states.
const (
	Unavailable Status = 0
	Available   Status = 1
	Unknown     Status = 2
)

// SeenWithin is how long a heartbeat keeps a center available: three
// heartbeats of 3 s, and one more second for the way. Shorter takes a center
// out of use for one lost message; longer sends work to a dead one.
const SeenWithin = 10 * time.Second

// Position is a place on earth in millionths of a degree (WGS 84).
type Position struct {
	Longitude, Latitude int64
}

// NewPosition rounds degrees to millionths, about 0.1 m. What is not a number
// becomes a position that no check accepts.
func NewPosition(longitude, latitude float64) *Position {
	micro := func(deg float64) int64 {
		if !(deg >= -1000 && deg <= 1000) { // also catches NaN
			return math.MaxInt64
		}
		return int64(math.Round(deg * 1e6))
	}
	return &Position{micro(longitude), micro(latitude)}
}

// Power is what a center draws in milliwatts per CPU core.
type Power struct {
	Static int64 // held while data is copied and nothing runs yet
	Active int64 // while the task executes
}

// Center is a computing center. Offers and Images are set in a [Catalog] and a
// [Snapshot] only, Live is not set in a Catalog.
type Center struct {
	ID            string
	Name          string
	Region        string
	Position      *Position // nil: not known
	SecurityGrade int64     // 0 to 5
	Power         Power
	Performance   int64 // 1000 is the reference machine; 0: not measured
	Adapter       string
	Drained       bool
	Labels        map[string]string
	CreatedAt     time.Time
	UpdatedAt     time.Time

	Total core.Quantities // capacity

	// Nodes is set by GetCenter and ListCenters; nil: none are reported.
	Nodes *NodeSummary

	Offers map[string]core.Fen // price by specification ID, of those that exist
	Images map[string]bool     // IDs of the images that can be used there
	Speeds []Speed             // of its accelerators, by kind and precision

	Live
}

// Live is what changes about a center while work runs.
type Live struct {
	Status   Status
	Used     core.Quantities // held by replicas
	Running  int64           // replicas
	Waiting  int64           // replicas sent and not yet running
	LastSeen time.Time       // zero: never
	Measured Measured
}

// Measured is what a center last measured about its machine.
type Measured struct {
	At              time.Time // zero: never
	CPUBusyPermille int64     // thousandths of all cores
	MemoryBusy      int64     // bytes, like the others
	MemoryTotal     int64
	StorageBusy     int64
	StorageTotal    int64
}

// Free returns how much of a resource nothing holds; never less than 0.
func (c *Center) Free(resource string) int64 { return max(c.Total[resource]-c.Used[resource], 0) }

// Spec is a package of resources with a price per hour.
type Spec struct {
	ID           string
	Name         string
	Quantity     core.Quantities
	ServiceTypes []string // sorted as in ServiceTypes
	Price        core.Fen // list price
	Offers       []Offer  // by center ID
	CreatedAt    time.Time
	UpdatedAt    time.Time
}

// Offer is a specification's price at a center.
type Offer struct {
	CenterID string
	Price    core.Fen
}

// NewSpec is what a specification is created from.
type NewSpec struct {
	ID          string
	Name        string            // "": the ID
	Quantity    map[string]string // Kubernetes notation
	ServiceType string            // comma separated; "": all
	Price       core.Fen
	Offers      []Offer
}

// Image is something a replica can start from.
type Image struct {
	ID         string
	Name       string
	CenterID   string // the owner; "": the platform
	BaseOS     BaseOS
	Framework  string
	Specs      []string // fitting specifications; empty: any
	Everywhere bool     // at every center; otherwise at Centers
	Centers    []string // by ID
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

// BaseOS is the software an image brings.
type BaseOS struct {
	Name     string   `json:"base_os,omitempty"`
	CUDA     string   `json:"cuda_version,omitempty"`
	Driver   string   `json:"driver_version,omitempty"`
	Packages []string `json:"packages,omitempty"`
}

// Declaration is what a center says about itself when it joins.
type Declaration struct {
	Center   Center // ID to Labels; Drained is not a center's to say
	Capacity core.Quantities
	Specs    []DeclaredSpec // made if there are none of these IDs
	Offers   []SpecPrice
	Images   []string
}

// DeclaredSpec is a specification as a center knows it.
type DeclaredSpec struct {
	ID          string
	Description string
	Quantity    core.Quantities
}

// SpecPrice is a declared offer.
type SpecPrice struct {
	SpecID string
	Price  core.Fen
}

// serviceTypes are the kinds of job a specification can support.
var serviceTypes = []string{"interactive", "batch", "streaming", "others"}

// Limits of what a record holds.
const (
	maxPrice     = 1_000_000_000_000 // fen
	maxPower     = 1_000_000_000     // milliwatts per core
	maxSpeed     = 1_000_000_000
	maxAmount    = 1 << 53 // exact in every client's numbers
	maxLabels    = 32
	maxSpecNames = 16   // resources of a specification
	maxResources = 64   // resources of a center
	maxDeclared  = 1000 // offers or images of a center
	maxPackages  = 256
)

var resourceName = regexp.MustCompile(`^[a-z0-9./-]{1,63}$`)

// paths is where the parts of a center stand in the caller's message.
type paths struct{ record, geometry, power string }

var (
	centerPaths    = paths{"center.", "center.geometry.", "center.power."}
	inventoryPaths = paths{"inventory.", "inventory.", "inventory."}
)

func checkCenter(c *core.Check, p paths, k Center) {
	c.ID(p.record+"ai_center_id", k.ID)
	c.Text(p.record+"name", k.Name, true, 0, 64)
	c.Text(p.record+"region", k.Region, false, 0, 64)
	c.Range(p.record+"security_grade", k.SecurityGrade, 0, 5)
	c.Range(p.power+"static_milliwatts_per_cpu", k.Power.Static, 0, maxPower)
	c.Range(p.power+"active_milliwatts_per_cpu", k.Power.Active, 0, maxPower)
	c.Range(p.record+"performance", k.Performance, 0, maxSpeed)
	c.Text(p.record+"adapter", k.Adapter, false, 0, 64)
	if g := k.Position; g != nil {
		degrees(c, p.geometry+"longitude", g.Longitude, 180)
		degrees(c, p.geometry+"latitude", g.Latitude, 90)
	}
	if len(k.Labels) > maxLabels {
		c.Add(p.record+"labels", "must be at most %d, got %d", maxLabels, len(k.Labels))
		return
	}
	for _, name := range sorted(k.Labels) {
		var named core.Check
		if named.Text("", name, true, 0, 64); named.Err() != nil {
			c.Add(p.record+"labels", "label name %q must be 1 to 63 bytes of text without control characters", clip(name))
			continue
		}
		c.Text(p.record+"labels."+name, k.Labels[name], false, 0, 64)
	}
}

func degrees(c *core.Check, path string, micro, limit int64) {
	if micro < -limit*1e6 || micro > limit*1e6 {
		c.Add(path, "must be between -%d and %d degrees", limit, limit)
	}
}

func checkCapacity(c *core.Check, path string, q core.Quantities) {
	if len(q) > maxResources {
		c.Add(path, "must name at most %d resources, got %d", maxResources, len(q))
		return
	}
	for _, name := range sorted(q) {
		if !resourceName.MatchString(name) {
			c.Add(path, "resource name %q must be 1 to 63 of a-z, 0-9, '.', '/' and '-'", clip(name))
			continue
		}
		c.Range(path+"."+name, q[name], 0, maxAmount)
	}
}

// checkDeclaration also makes the declared specifications.
func checkDeclaration(d Declaration) ([]Spec, error) {
	var c core.Check
	checkCenter(&c, inventoryPaths, d.Center)
	checkCapacity(&c, "inventory.capacity", d.Capacity)
	if len(d.Offers) > maxDeclared {
		c.Add("inventory.offers", "must be at most %d, got %d", maxDeclared, len(d.Offers))
		return nil, c.Err()
	}
	seen := map[string]bool{}
	for i, o := range d.Offers {
		at := "inventory.offers[" + strconv.Itoa(i) + "]."
		c.ID(at+"resource_spec_id", o.SpecID)
		c.Range(at+"price", int64(o.Price), 0, maxPrice)
		if seen[o.SpecID] {
			c.Add(at+"resource_spec_id", "names %s a second time", o.SpecID)
		}
		seen[o.SpecID] = true
	}
	if len(d.Images) > maxDeclared {
		c.Add("inventory.images", "must be at most %d, got %d", maxDeclared, len(d.Images))
		return nil, c.Err()
	}
	for i, id := range d.Images {
		c.ID("inventory.images["+strconv.Itoa(i)+"]", id)
	}
	specs := declaredSpecs(&c, d)
	return specs, c.Err()
}

// declaredSpecs checks the specifications as if an operator made them.
func declaredSpecs(c *core.Check, d Declaration) []Spec {
	if len(d.Specs) > maxDeclared {
		c.Add("inventory.specs", "must be at most %d, got %d", maxDeclared, len(d.Specs))
		return nil
	}
	prices := map[string]core.Fen{}
	for _, o := range d.Offers {
		prices[o.SpecID] = o.Price
	}
	out := make([]Spec, 0, len(d.Specs))
	seen := map[string]bool{}
	for i, x := range d.Specs {
		at := "inventory.specs[" + strconv.Itoa(i) + "]."
		c.Text(at+"desc", x.Description, false, 256, 0)
		if seen[x.ID] {
			c.Add(at+"resource_spec_id", "names %s a second time", clip(x.ID))
		}
		seen[x.ID] = true
		n := NewSpec{ID: x.ID, Quantity: map[string]string{}, Price: max(prices[x.ID], 0)}
		for name, amount := range x.Quantity {
			n.Quantity[name] = core.FormatQuantity(name, amount)
		}
		sp, err := n.spec()
		for _, f := range fault.FieldsOf(err) {
			c.Add(at+strings.Replace(strings.TrimPrefix(f.Path, "spec."), "resource_quantity", "quantity", 1), "%s", f.Problem)
		}
		out = append(out, sp)
	}
	return out
}

// spec checks n and makes the specification of it.
func (n NewSpec) spec() (Spec, error) {
	var c core.Check
	c.ID("spec.resource_spec_id", n.ID)
	if n.Name == "" {
		n.Name = n.ID
	}
	c.Text("spec.resource_spec_name", n.Name, false, 0, 64)
	c.Range("spec.price", int64(n.Price), 0, maxPrice)
	sp := Spec{ID: n.ID, Name: n.Name, Price: n.Price, Quantity: core.Quantities{}, Offers: slices.Clone(n.Offers)}
	if len(n.Quantity) > maxSpecNames {
		c.Add("spec.resource_quantity", "must name at most %d resources, got %d", maxSpecNames, len(n.Quantity))
		return Spec{}, c.Err()
	}
	for _, name := range []string{core.CPU, core.Memory} {
		if n.Quantity[name] == "" {
			c.Add("spec.resource_quantity."+name, "is required")
		}
	}
	for _, name := range sorted(n.Quantity) {
		if !resourceName.MatchString(name) {
			c.Add("spec.resource_quantity", "resource name %q must be 1 to 63 of a-z, 0-9, '.', '/' and '-'", clip(name))
			continue
		}
		amount, err := core.ParseQuantity(name, n.Quantity[name])
		if msg, _ := fault.Message(err); err != nil && n.Quantity[name] != "" {
			c.Add("spec.resource_quantity."+name, "%s", msg)
		} else if err != nil && name != core.CPU && name != core.Memory {
			c.Add("spec.resource_quantity."+name, "must not be empty")
		}
		sp.Quantity[name] = amount
	}
	sp.ServiceTypes = checkServiceType(&c, n.ServiceType)
	if len(n.Offers) > maxDeclared {
		c.Add("spec.offers", "must be at most %d, got %d", maxDeclared, len(n.Offers))
		return Spec{}, c.Err()
	}
	seen := map[string]bool{}
	for i, o := range n.Offers {
		at := "spec.offers[" + strconv.Itoa(i) + "]."
		c.ID(at+"ai_center_id", o.CenterID)
		c.Range(at+"price", int64(o.Price), 0, maxPrice)
		if seen[o.CenterID] {
			c.Add(at+"ai_center_id", "names %s a second time", o.CenterID)
		}
		seen[o.CenterID] = true
	}
	return sp, c.Err()
}

func checkServiceType(c *core.Check, s string) []string {
	tokens := splitList(s)
	if len(tokens) == 0 {
		return slices.Clone(serviceTypes)
	}
	for _, t := range tokens {
		if !slices.Contains(serviceTypes, t) {
			c.Add("spec.service_type", "must be of %s, got %q", strings.Join(serviceTypes, ", "), clip(t))
			return nil
		}
	}
	var out []string
	for _, t := range serviceTypes {
		if slices.Contains(tokens, t) {
			out = append(out, t)
		}
	}
	return out
}

func checkImage(m Image) error {
	var c core.Check
	c.ID("image.image_id", m.ID)
	c.Text("image.name", m.Name, true, 0, 64)
	if m.CenterID != "" {
		c.ID("image.ai_center_id", m.CenterID)
	}
	c.Text("image.base_os.base_os", m.BaseOS.Name, false, 0, 64)
	c.Text("image.base_os.cuda_version", m.BaseOS.CUDA, false, 0, 64)
	c.Text("image.base_os.driver_version", m.BaseOS.Driver, false, 0, 64)
	c.Text("image.framework", m.Framework, false, 0, 256)
	if len(m.BaseOS.Packages) > maxPackages {
		c.Add("image.base_os.packages", "must be at most %d, got %d", maxPackages, len(m.BaseOS.Packages))
		return c.Err()
	}
	for i, p := range m.BaseOS.Packages {
		c.Text("image.base_os.packages["+strconv.Itoa(i)+"]", p, true, 0, 128)
	}
	if len(m.Specs) > maxDeclared || len(m.Centers) > maxDeclared {
		c.Add("image", "must name at most %d specifications and %d centers", maxDeclared, maxDeclared)
		return c.Err()
	}
	for _, id := range m.Specs {
		c.ID("image.resource_spec", id)
	}
	for i, id := range m.Centers {
		at := "image.centers[" + strconv.Itoa(i) + "]"
		c.ID(at, id)
		if slices.Contains(m.Centers[:i], id) {
			c.Add(at, "names %s a second time", id)
		}
	}
	return c.Err()
}

// splitList takes a comma separated list apart; empty parts do not count.
func splitList(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// statusAt is the one place that derives a center's status.
func statusAt(drained, down bool, lastSeen, now time.Time) Status {
	switch {
	case drained || down:
		return Unavailable
	case !lastSeen.IsZero() && now.Sub(lastSeen) <= SeenWithin:
		return Available
	default:
		return Unknown
	}
}
