package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// hears is a platform that keeps what it is told last.
type hears struct {
	poolv1connect.PoolServiceClient
	poolv1connect.PoolOperationServiceClient

	last proto.Message
}

func (h *hears) ReportNode(_ context.Context, r *poolv1.ReportNodeRequest) (*poolv1.ReportNodeResponse, error) {
	h.last = r
	return &poolv1.ReportNodeResponse{}, nil
}

func (h *hears) TellNode(_ context.Context, r *poolv1.TellNodeRequest) (*poolv1.TellNodeResponse, error) {
	h.last = r
	return nil, connect.NewError(connect.CodeUnavailable, nil)
}

// drained is a platform whose pool the node has left.
type drained struct{ hears }

func (d *drained) ReportNode(context.Context, *poolv1.ReportNodeRequest) (*poolv1.ReportNodeResponse, error) {
	return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("there is no such node"))
}

// TestReportOfDrained: a node that was drained says that, and how it comes back.
func TestReportOfDrained(t *testing.T) {
	t.Parallel()
	m := &Membership{Node: "n1", Secret: "00", Platform: "http://10.0.0.1:8180"}
	_, err := m.Tell(&drained{}, "v")(t.Context(), pool.Report{Boot: "b", Sequence: 1}, 0)
	if fault.KindOf(err) != fault.Unauthenticated || !strings.Contains(err.Error(), "pool node n1 is not in the pool of http://10.0.0.1:8180 any more: it was drained") {
		t.Errorf("a node that was drained says %v", err)
	}
}

// TestReportOfAnything: whatever drivers and other programs say, what a node tells its
// platform of it is one that is taken: one text that is not would have the node missed.
func TestReportOfAnything(t *testing.T) {
	t.Parallel()
	h := &hears{}
	takes := func(what string, most int) {
		t.Helper()
		if _, err := proto.Marshal(h.last); err != nil {
			t.Errorf("%s cannot be sent: %v", what, err)
		}
		_ = protorange.Range(h.last.ProtoReflect(), func(p protopath.Values) error {
			s, ok := p.Index(-1).Value.Interface().(string)
			if !ok {
				return nil
			}
			field := p.Path.String()
			lines := strings.HasSuffix(field, ".message") || strings.HasSuffix(field, ".details")
			if n := utf8.RuneCountInString(s); n > most || !utf8.ValidString(s) || !lines && strings.ContainsFunc(s, unicode.IsControl) {
				t.Errorf("%s has %d characters in %s: %.40q", what, n, field, s)
			}
			return nil
		})
	}
	m := &Membership{Node: "n1", Secret: "00"}
	for _, anything := range []string{"", "\xff\xfe", "a\nb\x00", strings.Repeat("云", 3000), strings.Repeat("\n", 9000) + "x"} {
		r := pool.Report{Boot: "b", Sequence: 1, Ended: []pool.EndedTask{{Slice: "s", Reason: anything}}, Moved: []pool.Moved{{Slice: "s", ID: "m", Error: anything}},
			Devices: []pool.Device{{ID: "opencl-0", Model: anything, Vendor: anything, Driver: anything, Type: anything, Bus: anything}},
			Figures: []pool.Figure{{Device: "opencl-0", Model: anything, Driver: anything, Bus: anything, NotLent: anything, Fault: anything, LimitError: anything}}}
		if _, err := m.Tell(h, "v")(t.Context(), r, 0); err != nil {
			t.Fatal(err)
		}
		takes("a report", mostReason)
		for _, d := range h.last.(*poolv1.ReportNodeRequest).Devices {
			if n := utf8.RuneCountInString(d.Model); n > mostText || utf8.RuneCountInString(d.Bus) > 64 {
				t.Errorf("a device's model has %d characters, its bus is %.80q", n, d.Bus)
			}
		}
		o := &operator{m: m, client: h, node: &replaceable{}, attemptProblem: anything}
		_ = o.tell(t.Context(), []entry{{Sequence: 1, Message: anything, Device: anything, Slice: anything, Details: anything}}, 0)
		takes("the log", 2000)
	}
}
