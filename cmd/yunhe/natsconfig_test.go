package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"yunhe.dev/yunhe/internal/bus"
)

// A NATS server reads what nats-config prints, and trusts the platform.
func TestNATSConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trust, err := bus.LoadTrust(dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(file, []byte("listen: 127.0.0.1:-1\n"+natsConfig(trust)), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatalf("a NATS server does not read it: %v", err)
	}
	if len(opts.TrustedOperators) != 1 || opts.SystemAccount != trust.SystemAccount || opts.AccountResolver == nil {
		t.Errorf("operators %d, system account %q, resolver %v", len(opts.TrustedOperators), opts.SystemAccount, opts.AccountResolver)
	}
	if again, err := bus.LoadTrust(dir); err != nil || again.SystemAccount != trust.SystemAccount {
		t.Errorf("the keys changed: %v %v", again.SystemAccount, err)
	}
}
