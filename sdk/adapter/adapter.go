// Package adapter is for those who write a driver: the program that lets
// Yunhe use a computing center of a kind it does not know yet.
//
// A driver is a process of its own. It implements [Driver], calls over protocol
// buffers (api/yunhe/adapter/v1) of which some are optional, and calls [Serve]. Yunhe starts it,
// restarts it, and may kill it at any moment; so a driver keeps nothing in
// memory that it cannot find again at the center. The rules, retries, limits,
// metrics and state are on Yunhe's side: a driver translates, nothing more.
//
// What a driver must keep true:
//
//   - Apply never starts an attempt it has started before, whatever happened since.
//   - Discover answers with the whole inventory or an error, never a part.
//   - Observe begins with every attempt not yet forgotten, then sends changes.
//   - What Describe does not claim is answered with "unimplemented": a part, or a
//     feature. Embed [Unimplemented].
//   - Suspend (FEATURE_SUSPEND) has what runs stand still where it is and go on from
//     there, whatever happens to the driver meanwhile; what does not run is left
//     alone. Observe tells what became of it.
//   - Exec (FEATURE_EXEC) runs a command as confined as the attempt's own. It ends
//     with its stream and with the attempt. Its exit code is 128 and the signal's
//     number if a signal ended it. An attempt that is not known is "not found", one
//     that does not run "failed precondition".
//   - An attempt that names a node (FEATURE_NODE) runs there or waits; one that is not
//     there has it refused.
//
// The example in examples/driver is complete and short.
package adapter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"yunhe.dev/yunhe/gen/yunhe/adapter/v1/adapterv1connect"
)

// Driver is what a driver implements; the calls are described in
// api/yunhe/adapter/v1/adapter.proto.
type Driver = adapterv1connect.DriverServiceHandler

// Unimplemented answers every call with "unimplemented"; embed it for the
// parts a driver does not offer.
type Unimplemented = adapterv1connect.UnimplementedDriverServiceHandler

// SocketEnv names the environment variable with the path of the private
// socket a driver serves on.
const SocketEnv = "YUNHE_DRIVER_SOCKET"

// Serve answers Yunhe's calls until ctx ends or Yunhe goes away (standard
// input closes). It is the last call of a driver's main function.
func Serve(ctx context.Context, d Driver) error {
	path := os.Getenv(SocketEnv)
	if path == "" {
		return fmt.Errorf("%s is not set: this program is a driver and is started by Yunhe (adapters.plugins in its configuration)", SocketEnv)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when Yunhe does
		cancel()
	}()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("replace the socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return ServeListener(ctx, l, d)
}

// ServeListener answers calls that come to l, for drivers that are registered
// by an address instead of being started.
func ServeListener(ctx context.Context, l net.Listener, d Driver) error {
	mux := http.NewServeMux()
	mux.Handle(adapterv1connect.NewDriverServiceHandler(d))
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: mux, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // streams never end by themselves
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
