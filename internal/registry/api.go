package registry

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/gen/yunhe/registry/v1/registryv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/rpc"
)

// Register mounts the service's API.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(registryv1connect.NewRegistryServiceHandler(api{s}, srv.Options()...))
}

// JoinTx is [Service.DeclareTx] for what a center sends, reached by the named
// adapter.
func (s *Service) JoinTx(ctx context.Context, tx *db.Tx, inv *adapterv1.Inventory, adapter string) error {
	d := Declaration{
		Center: Center{
			ID: inv.GetAiCenterId(), Name: inv.GetName(), Region: inv.GetRegion(), SecurityGrade: inv.GetSecurityGrade(),
			Power:       Power{Static: inv.GetStaticMilliwattsPerCpu(), Active: inv.GetActiveMilliwattsPerCpu()},
			Performance: inv.GetPerformance(), Adapter: adapter, Labels: inv.GetLabels(),
		},
		Capacity: inv.GetCapacity(), Images: inv.GetImages(),
	}
	// The message cannot tell "not set" from the point in the Gulf of Guinea.
	if inv.GetLongitude() != 0 || inv.GetLatitude() != 0 {
		d.Center.Position = NewPosition(inv.GetLongitude(), inv.GetLatitude())
	}
	for _, x := range inv.GetSpecs() {
		d.Specs = append(d.Specs, DeclaredSpec{ID: x.GetResourceSpecId(), Description: x.GetDesc(), Quantity: x.GetQuantity()})
	}
	for _, o := range inv.GetOffers() {
		d.Offers = append(d.Offers, SpecPrice{SpecID: o.GetResourceSpecId(), Price: core.Fen(o.GetPrice())})
	}
	return s.DeclareTx(ctx, tx, d)
}

// HeartbeatTx is [Service.MeasureTx] for what a center sends; without a
// measurement it is [Service.MarkSeenTx].
func (s *Service) HeartbeatTx(ctx context.Context, tx *db.Tx, id string, m *adapterv1.Measurement) error {
	if m == nil {
		return s.MarkSeenTx(ctx, tx, id)
	}
	return s.MeasureTx(ctx, tx, id, measuredOf(m))
}

// ReadMeasurement reads what a center sends. It returns fault.Invalid for
// figures that cannot be.
func ReadMeasurement(m *adapterv1.Measurement, now time.Time) (Measured, error) {
	out := measuredOf(m)
	_, err := out.check(now)
	return out, err
}

func measuredOf(m *adapterv1.Measurement) Measured {
	out := Measured{
		CPUBusyPermille: m.GetCpuBusyPermille(), MemoryBusy: m.GetMemoryBusyBytes(), MemoryTotal: m.GetMemoryTotalBytes(),
		StorageBusy: m.GetStorageBusyBytes(), StorageTotal: m.GetStorageTotalBytes(),
	}
	if m.GetMeasuredAt() != nil {
		out.At = m.GetMeasuredAt().AsTime()
	}
	return out
}

// SyncNodesTx takes what a driver reports of the nodes of its center: with
// whole all there are (what is not among them is gone), otherwise those that
// changed, and the names of those that are no more. It writes only what
// differs from what is stored, so that reporting the same again costs reads
// alone. A reason is cut to 512 bytes. It returns fault.NotFound if there is
// no such center, and fault.Invalid, with paths such as "nodes[3].state", if
// any node cannot be: then none is taken.
func (s *Service) SyncNodesTx(ctx context.Context, tx *db.Tx, centerID string, whole bool, nodes []*adapterv1.Node, gone []string) error {
	out := make([]Node, len(nodes))
	for i, p := range nodes {
		n := Node{
			Name: p.GetName(), State: NodeState(p.GetState()), Reason: plain(p.GetReason()), Capacity: p.GetCapacity(), Allocatable: p.GetAllocatable(),
			Architecture: p.GetArchitecture(), OS: p.GetOperatingSystem(), Labels: p.GetLabels(), Host: p.GetHost(), PoolNode: p.GetPoolNode(), Specs: p.GetSpecIds(),
		}
		for _, a := range p.GetAccelerators() {
			n.Accelerators = append(n.Accelerators, Accelerator{a.GetVendor(), a.GetModel(), a.GetCount(), a.GetMemoryBytes(), a.GetResource()})
		}
		out[i] = n
	}
	return s.syncNodes(ctx, tx, centerID, whole, out, gone)
}

type api struct{ s *Service }

func (a api) CreateCenter(ctx context.Context, r *registryv1.CreateCenterRequest) (*registryv1.Center, error) {
	k := centerOf(r.GetCenter())
	var err error
	if k.Total, err = totals(r.GetCenter().GetResources()); err != nil {
		return nil, err
	}
	return answer(centerProto)(a.s.CreateCenter(ctx, k))
}

func (a api) GetCenter(ctx context.Context, r *registryv1.GetCenterRequest) (*registryv1.Center, error) {
	return answer(centerProto)(a.s.GetCenter(ctx, r.GetAiCenterId()))
}

func (a api) ListCenters(ctx context.Context, r *registryv1.ListCentersRequest) (*registryv1.ListCentersResponse, error) {
	rows, next, err := a.s.ListCenters(ctx, r.GetRegion(), r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &registryv1.ListCentersResponse{Centers: each(rows, centerProto), NextPageToken: next}, nil
}

func (a api) UpdateCenter(ctx context.Context, r *registryv1.UpdateCenterRequest) (*registryv1.Center, error) {
	return answer(centerProto)(a.s.UpdateCenter(ctx, centerOf(r.GetCenter())))
}

func (a api) DeleteCenter(ctx context.Context, r *registryv1.DeleteCenterRequest) (*registryv1.DeleteCenterResponse, error) {
	return &registryv1.DeleteCenterResponse{}, a.s.DeleteCenter(ctx, r.GetAiCenterId())
}

func (a api) GetNode(ctx context.Context, r *registryv1.GetNodeRequest) (*registryv1.Node, error) {
	return answer(nodeProto)(a.s.GetNode(ctx, r.GetAiCenterId(), r.GetName()))
}

func (a api) ListNodes(ctx context.Context, r *registryv1.ListNodesRequest) (*registryv1.ListNodesResponse, error) {
	f := NodeFilter{CenterID: r.GetAiCenterId(), State: NodeState(r.GetState()), Model: r.GetAcceleratorModel(), Labels: r.GetLabels()}
	rows, next, err := a.s.ListNodes(ctx, f, r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	total := int64(len(rows))
	if next != "" || r.GetPageToken() != "" {
		if total, err = a.s.CountNodes(ctx, f); err != nil {
			return nil, err
		}
	}
	return &registryv1.ListNodesResponse{Nodes: each(rows, nodeProto), NextPageToken: next, Total: total}, nil
}

func (a api) CreateSpec(ctx context.Context, r *registryv1.CreateSpecRequest) (*registryv1.Spec, error) {
	p := r.GetSpec()
	n := NewSpec{ID: p.GetResourceSpecId(), Name: p.GetResourceSpecName(), Quantity: p.GetResourceQuantity(), ServiceType: p.GetServiceType(), Price: core.Fen(p.GetPrice())}
	for _, o := range p.GetOffers() {
		n.Offers = append(n.Offers, Offer{CenterID: o.GetAiCenterId(), Price: core.Fen(o.GetPrice())})
	}
	return answer(specProto)(a.s.CreateSpec(ctx, n))
}

func (a api) GetSpec(ctx context.Context, r *registryv1.GetSpecRequest) (*registryv1.Spec, error) {
	return answer(specProto)(a.s.GetSpec(ctx, r.GetResourceSpecId()))
}

func (a api) ListSpecs(ctx context.Context, r *registryv1.ListSpecsRequest) (*registryv1.ListSpecsResponse, error) {
	rows, next, err := a.s.ListSpecs(ctx, r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &registryv1.ListSpecsResponse{Specs: each(rows, specProto), NextPageToken: next}, nil
}

func (a api) SetOffer(ctx context.Context, r *registryv1.SetOfferRequest) (*registryv1.Spec, error) {
	return answer(specProto)(a.s.SetOffer(ctx, r.GetResourceSpecId(), r.GetAiCenterId(), core.Fen(r.GetPrice())))
}

func (a api) DeleteOffer(ctx context.Context, r *registryv1.DeleteOfferRequest) (*registryv1.Spec, error) {
	return answer(specProto)(a.s.DeleteOffer(ctx, r.GetResourceSpecId(), r.GetAiCenterId()))
}

func (a api) DeleteSpec(ctx context.Context, r *registryv1.DeleteSpecRequest) (*registryv1.DeleteSpecResponse, error) {
	return &registryv1.DeleteSpecResponse{}, a.s.DeleteSpec(ctx, r.GetResourceSpecId())
}

func (a api) CreateImage(ctx context.Context, r *registryv1.CreateImageRequest) (*registryv1.Image, error) {
	p, b := r.GetImage(), r.GetImage().GetBaseOs()
	return answer(imageProto)(a.s.CreateImage(ctx, Image{
		ID: p.GetImageId(), Name: p.GetName(), CenterID: p.GetAiCenterId(),
		BaseOS:    BaseOS{Name: b.GetBaseOs(), CUDA: b.GetCudaVersion(), Driver: b.GetDriverVersion(), Packages: b.GetPackages()},
		Framework: p.GetFramework(), Specs: splitList(p.GetResourceSpec()), Centers: p.GetCenters(),
	}))
}

func (a api) GetImage(ctx context.Context, r *registryv1.GetImageRequest) (*registryv1.Image, error) {
	return answer(imageProto)(a.s.GetImage(ctx, r.GetImageId()))
}

func (a api) ListImages(ctx context.Context, r *registryv1.ListImagesRequest) (*registryv1.ListImagesResponse, error) {
	rows, next, err := a.s.ListImages(ctx, r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &registryv1.ListImagesResponse{Images: each(rows, imageProto), NextPageToken: next}, nil
}

func (a api) DeleteImage(ctx context.Context, r *registryv1.DeleteImageRequest) (*registryv1.DeleteImageResponse, error) {
	return &registryv1.DeleteImageResponse{}, a.s.DeleteImage(ctx, r.GetImageId())
}

// centerOf takes what a caller may say about a center; the rest of the
// message is output.
func centerOf(p *registryv1.Center) Center {
	k := Center{
		ID: p.GetAiCenterId(), Name: p.GetName(), Region: p.GetRegion(), SecurityGrade: p.GetSecurityGrade(),
		Power:       Power{Static: p.GetPower().GetStaticMilliwattsPerCpu(), Active: p.GetPower().GetActiveMilliwattsPerCpu()},
		Performance: p.GetPerformance(), Adapter: p.GetAdapter(), Drained: p.GetDrained(), Labels: p.GetLabels(),
	}
	if g := p.GetGeometry(); g != nil {
		k.Position = NewPosition(g.GetLongitude(), g.GetLatitude())
	}
	return k
}

const (
	milli = 1000
	mega  = 1 << 20
	giga  = 1 << 30
)

// totals reads Table 2 as capacity.
func totals(r *registryv1.Resources) (core.Quantities, error) {
	var c core.Check
	q := core.Quantities{}
	for _, x := range []struct {
		field, name string
		n, unit     int64
	}{
		{"cpu", core.CPU, r.GetCpu(), milli}, {"gpu", "gpu", r.GetGpu(), 1}, {"npu", "npu", r.GetNpu(), 1}, {"mlu", "mlu", r.GetMlu(), 1},
		{"memory", core.Memory, r.GetMemory(), mega}, {"storage", core.Storage, r.GetStorage(), giga}, {"user_define", "user-define", r.GetUserDefine(), 1},
	} {
		if c.Range("center.resources."+x.field, x.n, 0, maxAmount/x.unit); x.n > 0 && x.n <= maxAmount/x.unit {
			q[x.name] = x.n * x.unit
		}
	}
	return q, c.Err()
}

func centerProto(k Center) *registryv1.Center {
	p := &registryv1.Center{
		AiCenterId: k.ID, Name: k.Name, Region: k.Region, Status: registryv1.CenterStatus(k.Status),
		CreatedAt: stamp(k.CreatedAt), UpdatedAt: stamp(k.UpdatedAt), Resources: &registryv1.Resources{}, SecurityGrade: k.SecurityGrade,
		Power:       &registryv1.Power{StaticMilliwattsPerCpu: k.Power.Static, ActiveMilliwattsPerCpu: k.Power.Active},
		Performance: k.Performance, Adapter: k.Adapter, Drained: k.Drained, Labels: k.Labels, LastSeenAt: stamp(k.LastSeen),
	}
	if g := k.Position; g != nil {
		p.Geometry = &registryv1.Geometry{Longitude: float64(g.Longitude) / 1e6, Latitude: float64(g.Latitude) / 1e6}
	}
	if n := k.Nodes; n != nil {
		p.Nodes = &registryv1.NodeSummary{Ready: n.Ready, NotReady: n.NotReady, Drained: n.Drained, Total: n.Total(), Accelerators: each(n.Accelerators, acceleratorProto)}
	}
	for _, v := range k.Speeds {
		p.Speeds = append(p.Speeds, &registryv1.Speed{Kind: v.Kind, Precision: string(v.Precision), Milli: v.Milli, Measured: v.Measured})
	}
	for name, n := range k.Total {
		*tableTwo(p.Resources, name) += n / unitOf(name)
	}
	if !k.LastSeen.IsZero() {
		p.Monitoring = monitoring(k)
	}
	return p
}

func nodeProto(n Node) *registryv1.Node {
	return &registryv1.Node{
		AiCenterId: n.CenterID, Name: n.Name, State: registryv1.NodeState(n.State), Reason: n.Reason, Capacity: notation(n.Capacity), Allocatable: notation(n.Allocatable),
		Architecture: n.Architecture, OperatingSystem: n.OS, Accelerators: each(n.Accelerators, acceleratorProto), Labels: n.Labels,
		CreatedAt: stamp(n.CreatedAt), UpdatedAt: stamp(n.UpdatedAt),
	}
}

func acceleratorProto(a Accelerator) *registryv1.Accelerator {
	return &registryv1.Accelerator{Vendor: a.Vendor, Model: a.Model, Count: a.Count, MemoryBytes: a.Memory, Resource: a.Resource}
}

// notation writes amounts as Kubernetes does.
func notation(q core.Quantities) map[string]string {
	out := make(map[string]string, len(q))
	for name, n := range q {
		out[name] = core.FormatQuantity(name, n)
	}
	return out
}

// unitOf is how much of a resource the standard's tables count as one.
func unitOf(resource string) int64 {
	switch resource {
	case core.CPU:
		return milli
	case core.Memory:
		return mega
	case core.Storage:
		return giga
	}
	return 1
}

func tableTwo(r *registryv1.Resources, name string) *int64 {
	switch name {
	case core.CPU:
		return &r.Cpu
	case core.Memory:
		return &r.Memory
	case core.Storage:
		return &r.Storage
	case "gpu":
		return &r.Gpu
	case "npu":
		return &r.Npu
	case "mlu":
		return &r.Mlu
	}
	return &r.UserDefine
}

// monitoring counts Table 4. What is used is rounded up and what is free
// down, each to the table's unit: a core of which a tenth is held is not
// free, so used and free may sum to more than the total by one.
func monitoring(k Center) *registryv1.Monitoring {
	m := &registryv1.Monitoring{
		CenterName: k.Name, RunningTaskNum: k.Running, WaitingTaskNum: k.Waiting, SecurityGrade: k.SecurityGrade,
		CpuBusyPermille: k.Measured.CPUBusyPermille, MemoryBusy: k.Measured.MemoryBusy / mega, MeasuredAt: stamp(k.Measured.At),
	}
	for name := range k.Total {
		used, free := tableFour(m, name)
		unit := unitOf(name)
		*used += (k.Used[name] + unit - 1) / unit
		*free += k.Free(name) / unit
	}
	return m
}

func tableFour(m *registryv1.Monitoring, name string) (used, free *int64) {
	switch name {
	case core.CPU:
		return &m.CpuUsed, &m.CpuFree
	case core.Memory:
		return &m.MemoryUsed, &m.MemoryFree
	case core.Storage:
		return &m.StorageUsed, &m.StorageFree
	case "gpu":
		return &m.GpuUsed, &m.GpuFree
	case "npu":
		return &m.NpuUsed, &m.NpuFree
	case "mlu":
		return &m.MluUsed, &m.MluFree
	}
	return &m.DefineresUsed, &m.DefineresFree
}

func specProto(sp Spec) *registryv1.Spec {
	p := &registryv1.Spec{
		ResourceSpecId: sp.ID, ResourceSpecName: sp.Name, ResourceQuantity: notation(sp.Quantity), ServiceType: strings.Join(sp.ServiceTypes, ","),
		Price: int64(sp.Price), CreatedAt: stamp(sp.CreatedAt), UpdatedAt: stamp(sp.UpdatedAt),
	}
	centers := make([]string, len(sp.Offers))
	for i, o := range sp.Offers {
		centers[i] = o.CenterID
		p.Offers = append(p.Offers, &registryv1.Offer{AiCenterId: o.CenterID, Price: int64(o.Price)})
	}
	p.ComputingCenterList = strings.Join(centers, ",")
	return p
}

func imageProto(m Image) *registryv1.Image {
	return &registryv1.Image{
		ImageId: m.ID, Name: m.Name, AiCenterId: m.CenterID,
		BaseOs:    &registryv1.BaseOs{BaseOs: m.BaseOS.Name, CudaVersion: m.BaseOS.CUDA, DriverVersion: m.BaseOS.Driver, Packages: m.BaseOS.Packages},
		Framework: m.Framework, ResourceSpec: strings.Join(m.Specs, ","), CreatedAt: stamp(m.CreatedAt), UpdatedAt: stamp(m.UpdatedAt), Centers: m.Centers,
	}
}

// stamp is unset for no time.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// answer turns a domain call's result into a handler's.
func answer[T, P any](f func(T) P) func(T, error) (P, error) {
	return func(v T, err error) (p P, _ error) {
		if err != nil {
			return p, err
		}
		return f(v), nil
	}
}

func each[T, P any](rows []T, f func(T) P) []P {
	out := make([]P, len(rows))
	for i, r := range rows {
		out[i] = f(r)
	}
	return out
}
