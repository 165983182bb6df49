package bus

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"yunhe.dev/yunhe/internal/fault"
)

// Probed is what a bus said.
type Probed struct {
	// Version of the server that answered, of so many.
	Version string
	Servers int
}

// Probe connects to a bus of its own processes (cfg.URL) as the platform
// does, and changes nothing. Kinds: Invalid if the keys are not right,
// Unavailable with what the bus said.
func Probe(ctx context.Context, cfg Config) (Probed, error) {
	k, err := readKeys(filepath.Join(cfg.Dir, "keys.json"))
	if err != nil {
		return Probed{}, err
	}
	conn, err := nats.Connect(cfg.URL, nats.Name("yunhe doctor"), nats.UserJWT(k.platformJWT, k.platformSign))
	if err != nil {
		return Probed{}, fault.Wrap(fault.Unavailable, err, "the bus at %q does not let us in", cfg.URL)
	}
	defer conn.Close()
	p := Probed{Version: conn.ConnectedServerVersion(), Servers: len(conn.Servers())}
	if most := conn.MaxPayload(); most < maxPayload {
		return p, fault.New(fault.Invalid, "the bus takes messages of at most %d bytes, %d are needed: set max_payload", most, maxPayload)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return p, fmt.Errorf("event stream: %w", err)
	}
	if _, err := js.AccountInfo(ctx); err != nil {
		return p, fault.Wrap(fault.Unavailable, err, "the bus keeps no streams: turn on jetstream")
	}
	return p, nil
}
