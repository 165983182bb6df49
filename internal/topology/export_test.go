package topology

import (
	"context"

	"google.golang.org/protobuf/proto"

	topologyv1 "yunhe.dev/yunhe/gen/yunhe/topology/v1"
	"yunhe.dev/yunhe/internal/registry"
)

// Differences names what differs.
func Differences(c Change) []string { return differences(&c.Before.Record, &c.After.Record) }

// SplitCard and CardID are for the fuzzers.
var SplitCard, CardID = splitCard, cardID

// SetMaxEdits makes transactions small for a test.
func SetMaxEdits(s *Service, n int) { s.maxEdits = n }

// OnEdit is called before each transaction of the watch.
func OnEdit(s *Service, f func()) { s.onEdit = f }

// LinkValues are those of a layer, by link.
func LinkValues(l *layer) []float64 { return l.link }

// ViewBytes is the view as it goes over the wire.
func ViewBytes(ctx context.Context, s *Service) ([]byte, error) {
	m, err := api{s}.GetNetworkView(ctx, &topologyv1.GetNetworkViewRequest{})
	if err != nil {
		return nil, err
	}
	return proto.Marshal(m)
}

// ValuesMessage is the answer with the values of a binding.
func ValuesMessage(ctx context.Context, s *Service, binding string) (proto.Message, error) {
	return api{s}.GetViewValues(ctx, &topologyv1.GetViewValuesRequest{BindingId: binding})
}

// Tell is the event of a node.
func Tell(s *Service, center string, names ...string) {
	s.watch.tell(registry.NodesChanged{CenterID: center, Names: names})
}

// Forget drops what is at hand of the past.
func Forget(s *Service) { s.old, s.past, s.pictures = nil, nil, nil }
