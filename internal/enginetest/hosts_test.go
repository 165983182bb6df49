package enginetest_test

import (
	"context"
	"net"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/enginetest"
)

// What is confirmed by a server with a standby is there when the standby takes
// its place; a host that is cut off is silent.
func TestHosts(t *testing.T) {
	t.Parallel()
	hosts := enginetest.Network(t, 2)
	on := func(i int) enginetest.PostgresConfig {
		return enginetest.PostgresConfig{NotDurable: true, Settings: map[string]string{"synchronous_commit": "on"}, Host: hosts.Host(i)}
	}
	first := enginetest.PostgresOwn(t, on(0))
	second, err := first.StartStandby(t.Context(), on(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := second.Close(); err != nil {
			t.Error(err)
		}
	})
	dsn, _, err := first.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t, dsn).Exec(t.Context(), "CREATE TABLE x (n BIGINT); INSERT INTO x VALUES (42)"); err != nil {
		t.Fatal(err)
	}
	if err := first.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := second.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, second.Beside(dsn))
	var n int64
	if err := conn.QueryRow(t.Context(), "SELECT n FROM x").Scan(&n); err != nil || n != 42 {
		t.Errorf("the standby has %d, %v", n, err)
	}
	if _, err := conn.Exec(t.Context(), "INSERT INTO x VALUES (1)"); err != nil {
		t.Errorf("the standby that was promoted is not written: %v", err)
	}
	address := net.JoinHostPort(hosts.Host(1).Address, "5432")
	dial := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	if err := hosts.Host(1).Cut(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := dial(300 * time.Millisecond); err == nil {
		t.Error("a host that is cut off answers")
	}
	if err := hosts.Host(1).Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := dial(time.Minute); err != nil {
		t.Errorf("a host that has joined again does not answer: %v", err)
	}
}
