package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// Keys of the board.
const (
	keyNode      = "node/"       // and its name: *adapterv1.Node
	keyInventory = "inventory"   // *adapterv1.Inventory, once all was listed
	keyMeasure   = "measurement" // *adapterv1.Measurement
	keyTrouble   = "trouble"     // string
	keyBeat      = "beat"        // nothing; set so that nobody waits too long
)

// beatEvery is below the three seconds in which Watch has to say something.
const beatEvery = 2 * time.Second

// beat wakes every Watch now and then.
func (d *Driver) beat(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.board.Set(keyBeat, nil)
		}
	}
}

// nodesPerMessage keeps messages well below what transports allow: a node has
// some kilobytes of labels.
const nodesPerMessage = 250

// watcher is what one Watch has not sent yet.
type watcher struct {
	send      func(*adapterv1.WatchResponse) error
	nodes     map[string]*adapterv1.Node
	gone      map[string]bool
	inventory *adapterv1.Inventory
	measure   *adapterv1.Measurement
	trouble   string
	whole     bool // the inventory was sent once
}

// take remembers what is new on the board.
func (w *watcher) take(set map[string]any, gone []string) (urgent bool) {
	for k, v := range set {
		switch k {
		case keyTrouble:
			w.trouble, urgent = v.(string), true
		case keyBeat:
			urgent = true
		case keyInventory:
			w.inventory = v.(*adapterv1.Inventory)
		case keyMeasure:
			w.measure = v.(*adapterv1.Measurement)
		default:
			name := strings.TrimPrefix(k, keyNode)
			w.nodes[name] = v.(*adapterv1.Node)
			delete(w.gone, name)
		}
	}
	for _, k := range gone {
		name := strings.TrimPrefix(k, keyNode)
		w.gone[name] = true
		delete(w.nodes, name)
	}
	return urgent
}

// flush sends what there is to send, be it nothing.
func (w *watcher) flush() error {
	if w.trouble != "" {
		return w.send(&adapterv1.WatchResponse{Trouble: w.trouble})
	}
	if !w.whole && w.inventory == nil {
		return w.send(&adapterv1.WatchResponse{}) // nothing is known yet
	}
	names := slices.Sorted(maps.Keys(w.nodes))
	for {
		res := &adapterv1.WatchResponse{Inventory: w.inventory, Measurement: w.measure, Gone: slices.Sorted(maps.Keys(w.gone))}
		n := min(len(names), nodesPerMessage)
		for _, name := range names[:n] {
			res.Nodes = append(res.Nodes, w.nodes[name])
		}
		names = names[n:]
		res.More = len(names) > 0
		if err := w.send(res); err != nil {
			return err
		}
		w.inventory, w.measure, w.whole = nil, nil, true
		clear(w.gone)
		if len(names) == 0 {
			clear(w.nodes)
			return nil
		}
	}
}

// Watch sends the inventory and the nodes as they change.
func (d *Driver) Watch(ctx context.Context, _ *adapterv1.WatchRequest, stream *connect.ServerStream[adapterv1.WatchResponse]) error {
	w := &watcher{send: stream.Send, nodes: map[string]*adapterv1.Node{}, gone: map[string]bool{}}
	return d.board.Watch(ctx, func(set map[string]any, gone []string) error {
		if urgent := w.take(set, gone); !urgent && (w.trouble != "" || !w.whole && w.inventory == nil) {
			return nil // held back until there is no trouble, or all is known
		}
		return w.flush()
	})
}

// statusesPerMessage bounds a message of Observe: a status may hold a log.
const statusesPerMessage = 200

// Observe sends every status as it changes. It begins when Jobs and pods were
// listed: before that nothing is known of any attempt.
func (d *Driver) Observe(ctx context.Context, _ *adapterv1.ObserveRequest, stream *connect.ServerStream[adapterv1.ObserveResponse]) error {
	if err := stream.Send(nil); err != nil { // the caller's request is heard
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-d.known:
	}
	return d.statuses.Watch(ctx, func(set map[string]*adapterv1.Status, _ []string) error {
		for ids := range slices.Chunk(slices.Sorted(maps.Keys(set)), statusesPerMessage) {
			res := &adapterv1.ObserveResponse{}
			for _, id := range ids {
				res.Statuses = append(res.Statuses, set[id])
			}
			if err := stream.Send(res); err != nil {
				return err
			}
		}
		return nil
	})
}

// parseVersion reads the API server's answer to /version.
func parseVersion(b []byte) (string, error) {
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(b, &v); err != nil || v.GitVersion == "" {
		return "", fmt.Errorf("what it answers to /version is not from Kubernetes: %.100q", b)
	}
	return "kubernetes " + v.GitVersion, nil
}

// answered takes what a probe learned of the cluster.
func (d *Driver) answered(version string, ahead time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if notice := d.clock.Notice(ahead); d.version != version || d.notice != notice {
		d.version, d.notice, d.res.dirty = version, notice, true
		d.flush()
	}
}
