package registry_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/gen/yunhe/registry/v1/registryv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/registry"
	"yunhe.dev/yunhe/internal/rpc"
)

// open lets everyone in: who may what is tested where it is decided.
type openGate struct{}

func (openGate) Authenticate(context.Context, string) (core.Caller, error) {
	return core.Caller{UserID: "u", Permissions: map[string]bool{"registry.read": true, "registry.write": true}}, nil
}
func (openGate) Audit(context.Context, core.Audit, string, string) error { return nil }

func (w *world) serve(t *testing.T) registryv1connect.RegistryServiceClient {
	t.Helper()
	srv := rpc.New(rpc.Config{Ready: func(context.Context) error { return nil }}, openGate{}, prometheus.NewRegistry(), quiet)
	w.Register(srv)
	h, err := srv.Handler()
	must(t, err)
	hs := httptest.NewServer(h)
	t.Cleanup(hs.Close)
	return registryv1connect.NewRegistryServiceClient(hs.Client(), hs.URL, connect.WithInterceptors(connect.UnaryInterceptorFunc(
		func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
				req.Header().Set("Authorization", "Bearer any")
				return next(ctx, req)
			}
		})))
}

// wantMessage compares a message with its JSON form.
func wantMessage(t *testing.T, what string, got proto.Message, wantJSON string) {
	t.Helper()
	want := got.ProtoReflect().New().Interface()
	if err := protojson.Unmarshal([]byte(wantJSON), want); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, protojson.Format(got), protojson.Format(want))
	}
}

func wantCode(t *testing.T, what string, err error, want connect.Code) {
	t.Helper()
	if err == nil || connect.CodeOf(err) != want {
		t.Errorf("%s: error = %v, want code %v", what, err, want)
	}
}

const stamps = `"createdAt":"2030-01-02T03:04:05Z","updatedAt":"2030-01-02T03:04:05Z"`

func TestAPICenters(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		c := w.serve(t)
		in := &registryv1.Center{
			AiCenterId: "c1", Name: "One", Region: "north", Geometry: &registryv1.Geometry{Longitude: 116.4, Latitude: 39.9}, SecurityGrade: 3,
			Power: &registryv1.Power{StaticMilliwattsPerCpu: 5, ActiveMilliwattsPerCpu: 6}, Performance: 1000, Adapter: "manual", Labels: map[string]string{"a": "b"},
			Resources: &registryv1.Resources{Cpu: 4, Gpu: 2, Npu: 3, Mlu: 5, Memory: 1024, Storage: 10, UserDefine: 7},
			// Output only: not taken from the caller.
			Status: registryv1.CenterStatus_CENTER_STATUS_AVAILABLE, Monitoring: &registryv1.Monitoring{CpuUsed: 99},
		}
		created, err := c.CreateCenter(ctx, &registryv1.CreateCenterRequest{Center: in})
		must(t, err)
		record := `"aiCenterId":"c1","name":"One","region":"north","geometry":{"longitude":116.4,"latitude":39.9},"securityGrade":"3",
			"power":{"staticMilliwattsPerCpu":"5","activeMilliwattsPerCpu":"6"},"performance":"1000","adapter":"manual","labels":{"a":"b"},
			"resources":{"cpu":"4","gpu":"2","npu":"3","mlu":"5","memory":"1024","storage":"10","userDefine":"7"},` + stamps
		wantMessage(t, "created center", created, `{"status":"CENTER_STATUS_UNKNOWN",`+record+`}`)

		// What is held counts up, what is free counts down.
		w.seen(t, "c1")
		w.tx(t, func(tx *db.Tx) error {
			q := core.Quantities{core.CPU: 1001, core.Memory: 1, core.Storage: 1, "gpu": 1, "npu": 3, "user-define": 2}
			if ok, err := w.ReserveTx(ctx, tx, "c1", q, 3); !ok || err != nil {
				t.Errorf("reserve: %v, %v", ok, err)
			}
			if err := w.StartedTx(ctx, tx, "c1", 1); err != nil {
				return err
			}
			return w.MeasureTx(ctx, tx, "c1", registry.Measured{CPUBusyPermille: 333, MemoryBusy: 600<<20 + 5})
		})
		got, err := c.GetCenter(ctx, &registryv1.GetCenterRequest{AiCenterId: "c1"})
		must(t, err)
		live := `"lastSeenAt":"2030-01-02T03:04:05Z","monitoring":{"centerName":"One","runningTaskNum":"1","waitingTaskNum":"2","cpuUsed":"2","cpuFree":"2",
			"npuUsed":"3","npuFree":"0","gpuUsed":"1","gpuFree":"1","mluUsed":"0","mluFree":"5","memoryUsed":"1","memoryFree":"1023","storageUsed":"1","storageFree":"9",
			"defineresUsed":"2","defineresFree":"5","securityGrade":"3","cpuBusyPermille":"333","memoryBusy":"600","measuredAt":"2030-01-02T03:04:05Z"},`
		wantMessage(t, "live center", got, `{"status":"CENTER_STATUS_AVAILABLE",`+live+record+`}`)
		list, err := c.ListCenters(ctx, &registryv1.ListCentersRequest{Region: "north"})
		must(t, err)
		wantMessage(t, "list", list, `{"centers":[{"status":"CENTER_STATUS_AVAILABLE",`+live+record+`}]}`)
		if list, err := c.ListCenters(ctx, &registryv1.ListCentersRequest{Region: "south"}); err != nil || len(list.GetCenters()) != 0 {
			t.Errorf("centers of another region = %v, %v", list, err)
		}

		// Read, change, write back.
		got.Drained, got.Geometry = true, nil
		updated, err := c.UpdateCenter(ctx, &registryv1.UpdateCenterRequest{Center: got})
		must(t, err)
		if !updated.GetDrained() || updated.GetStatus() != registryv1.CenterStatus_CENTER_STATUS_UNAVAILABLE || updated.GetGeometry() != nil || updated.GetAdapter() != "manual" || updated.GetResources().GetCpu() != 4 {
			t.Errorf("updated center = %v", updated)
		}
		_, err = c.DeleteCenter(ctx, &registryv1.DeleteCenterRequest{AiCenterId: "c1"})
		wantCode(t, "delete a center with replicas", err, connect.CodeAborted)
		_, err = c.CreateCenter(ctx, &registryv1.CreateCenterRequest{Center: in})
		wantCode(t, "create it again", err, connect.CodeAlreadyExists)
		for _, r := range []*registryv1.Resources{{Cpu: -1}, {Memory: 1 << 62}, {Storage: 1 << 40}} {
			_, err = c.CreateCenter(ctx, &registryv1.CreateCenterRequest{Center: &registryv1.Center{AiCenterId: "c2", Resources: r}})
			wantCode(t, "impossible resources", err, connect.CodeInvalidArgument)
		}
		_, err = c.CreateCenter(ctx, &registryv1.CreateCenterRequest{})
		wantCode(t, "create nothing", err, connect.CodeInvalidArgument)
		_, err = c.CreateCenter(ctx, &registryv1.CreateCenterRequest{Center: &registryv1.Center{AiCenterId: "c2"}})
		must(t, err)
		_, err = c.DeleteCenter(ctx, &registryv1.DeleteCenterRequest{AiCenterId: "c2"})
		must(t, err)
		_, err = c.GetCenter(ctx, &registryv1.GetCenterRequest{AiCenterId: "c2"})
		wantCode(t, "get a deleted center", err, connect.CodeNotFound)
	})
}

func TestAPISpecs(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		c := w.serve(t)
		w.declare(t, site("c1"))
		w.declare(t, site("c2"))
		sp, err := c.CreateSpec(ctx, &registryv1.CreateSpecRequest{Spec: &registryv1.Spec{
			ResourceSpecId: "s", ResourceSpecName: "S", ResourceQuantity: map[string]string{"cpu": "1500m", "memory": "1024Mi", "gpu": "1"}, ServiceType: "streaming,batch", Price: 100,
			ComputingCenterList: "ignored", Offers: []*registryv1.Offer{{AiCenterId: "c2", Price: 90}},
		}})
		must(t, err)
		record := `"resourceSpecId":"s","resourceSpecName":"S","resourceQuantity":{"cpu":"1500m","memory":"1Gi","gpu":"1"},"serviceType":"batch,streaming","price":"100",` + stamps
		one := `{"computingCenterList":"c2","offers":[{"aiCenterId":"c2","price":"90"}],` + record + `}`
		wantMessage(t, "created", sp, one)
		sp, err = c.SetOffer(ctx, &registryv1.SetOfferRequest{ResourceSpecId: "s", AiCenterId: "c1", Price: 80})
		must(t, err)
		wantMessage(t, "offered", sp, `{"computingCenterList":"c1,c2","offers":[{"aiCenterId":"c1","price":"80"},{"aiCenterId":"c2","price":"90"}],`+record+`}`)
		sp, err = c.DeleteOffer(ctx, &registryv1.DeleteOfferRequest{ResourceSpecId: "s", AiCenterId: "c1"})
		must(t, err)
		wantMessage(t, "withdrawn", sp, one)
		sp, err = c.GetSpec(ctx, &registryv1.GetSpecRequest{ResourceSpecId: "s"})
		must(t, err)
		wantMessage(t, "got", sp, one)
		list, err := c.ListSpecs(ctx, &registryv1.ListSpecsRequest{})
		must(t, err)
		wantMessage(t, "list", list, `{"specs":[`+one+`]}`)
		_, err = c.DeleteOffer(ctx, &registryv1.DeleteOfferRequest{ResourceSpecId: "s", AiCenterId: "c1"})
		wantCode(t, "withdraw again", err, connect.CodeNotFound)
		_, err = c.CreateSpec(ctx, &registryv1.CreateSpecRequest{})
		wantCode(t, "create nothing", err, connect.CodeInvalidArgument)
		_, err = c.DeleteSpec(ctx, &registryv1.DeleteSpecRequest{ResourceSpecId: "s"})
		must(t, err)
		_, err = c.GetSpec(ctx, &registryv1.GetSpecRequest{ResourceSpecId: "s"})
		wantCode(t, "get a deleted specification", err, connect.CodeNotFound)
	})
}

func TestAPIImages(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		c := w.serve(t)
		w.declare(t, site("c1"))
		one := `{"imageId":"m","name":"M","aiCenterId":"c1","baseOs":{"baseOs":"Ubuntu","cudaVersion":"12","driverVersion":"550","packages":["p"]},
			"framework":"PyTorch, TensorFlow","resourceSpec":"s1,s2","centers":["c1"],` + stamps + `}`
		m, err := c.CreateImage(ctx, &registryv1.CreateImageRequest{Image: &registryv1.Image{
			ImageId: "m", Name: "M", AiCenterId: "c1", BaseOs: &registryv1.BaseOs{BaseOs: "Ubuntu", CudaVersion: "12", DriverVersion: "550", Packages: []string{"p"}},
			Framework: "PyTorch, TensorFlow", ResourceSpec: "s1, s2,", Centers: []string{"c1"},
		}})
		must(t, err)
		wantMessage(t, "created", m, one)
		m, err = c.GetImage(ctx, &registryv1.GetImageRequest{ImageId: "m"})
		must(t, err)
		wantMessage(t, "got", m, one)
		list, err := c.ListImages(ctx, &registryv1.ListImagesRequest{})
		must(t, err)
		wantMessage(t, "list", list, `{"images":[`+one+`]}`)
		_, err = c.CreateImage(ctx, &registryv1.CreateImageRequest{Image: &registryv1.Image{ImageId: "m"}})
		wantCode(t, "create it again", err, connect.CodeAlreadyExists)
		_, err = c.DeleteImage(ctx, &registryv1.DeleteImageRequest{ImageId: "m"})
		must(t, err)
		_, err = c.DeleteImage(ctx, &registryv1.DeleteImageRequest{ImageId: "m"})
		wantCode(t, "delete it again", err, connect.CodeNotFound)
	})
}
