package enginetest_test

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"yunhe.dev/yunhe/internal/enginetest"
)

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatalf("connect to %s: %v", dsn, err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	a, b := enginetest.Postgres(t), enginetest.Postgres(t)
	if a == b {
		t.Fatalf("two calls returned the same database %s", a)
	}
	connA, connB := connect(t, a), connect(t, b)
	if _, err := connA.Exec(t.Context(), "CREATE TABLE x (n BIGINT CHECK (n > 0)); INSERT INTO x VALUES (41), (1)"); err != nil {
		t.Fatal(err)
	}
	var sum int64
	if err := connA.QueryRow(t.Context(), "SELECT CAST(SUM(n) AS BIGINT) FROM x").Scan(&sum); err != nil || sum != 42 {
		t.Errorf("sum = %d, %v, want 42", sum, err)
	}
	if err := connB.QueryRow(t.Context(), "SELECT COUNT(*) FROM x").Scan(&sum); err == nil {
		t.Error("the second database sees the first one's table")
	}
	var fsync string
	if err := connA.QueryRow(t.Context(), "SHOW fsync").Scan(&fsync); err != nil || fsync != "off" && os.Getenv("YUNHE_TEST_POSTGRES") == "" {
		t.Errorf("fsync = %q, %v, want off in tests", fsync, err)
	}
}

func TestPostgresDurableSurvivesCrash(t *testing.T) {
	t.Parallel()
	s := enginetest.PostgresOwn(t, enginetest.PostgresConfig{Settings: map[string]string{"work_mem": "5MB"}})
	dsn, drop, err := s.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, dsn)
	for setting, want := range map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "work_mem": "5MB"} {
		var got string
		if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s = %q, %v, want %q", setting, got, err, want)
		}
	}
	if _, err := conn.Exec(t.Context(), "CREATE TABLE x AS SELECT 7 AS n"); err != nil {
		t.Fatal(err)
	}
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.Connect(t.Context(), dsn); err == nil {
		t.Fatal("a crashed server accepted a connection")
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := connect(t, dsn).QueryRow(t.Context(), "SELECT n FROM x").Scan(&n); err != nil || n != 7 {
		t.Errorf("after the crash n = %d, %v, want 7", n, err)
	}
	if err := drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.Connect(t.Context(), dsn); err == nil {
		t.Error("the dropped database accepted a connection")
	}
}

func TestPostgresRejectsBadSetting(t *testing.T) {
	t.Parallel()
	enginetest.Postgres(t) // skips where there is no server
	_, err := enginetest.StartPostgres(t.Context(), enginetest.PostgresConfig{
		NotDurable: true, Settings: map[string]string{"no_such_setting": "1"},
	})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("error = %v, want one with the server's log naming no_such_setting", err)
	}
}

// TestPostgresDiesWithItsProcess kills a process that has started a server, as
// hard as it can be killed, and waits for server and directory to go.
func TestPostgresDiesWithItsProcess(t *testing.T) {
	if os.Getenv("ENGINETEST_CHILD") != "" {
		runVictim(t)
		return
	}
	t.Parallel()
	enginetest.Postgres(t) // skips where there is no server
	cmd := exec.Command(os.Args[0], "-test.run=^TestPostgresDiesWithItsProcess$")
	cmd.Env = append(os.Environ(), "ENGINETEST_CHILD=1", "YUNHE_TEST_POSTGRES=")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var dsn string
	lines := bufio.NewScanner(out)
	for dsn == "" && lines.Scan() {
		dsn, _ = strings.CutPrefix(lines.Text(), "DSN ")
	}
	conn := connect(t, dsn)
	var dir string
	if err := conn.QueryRow(t.Context(), "SHOW data_directory").Scan(&dir); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); !killed(err) {
		t.Fatalf("victim ended with %v, want killed", err)
	}
	// The event: the server ends our connection.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, "SELECT pg_sleep(60)"); err == nil || ctx.Err() != nil {
		t.Fatalf("the server outlived its process: %v", err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(filepath.Dir(dir)); errors.Is(err, fs.ErrNotExist) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("left behind: %s", filepath.Dir(dir))
		case <-tick.C:
		}
	}
}

func runVictim(t *testing.T) {
	_, _ = os.Stdout.WriteString("DSN " + enginetest.Postgres(t) + "\n")
	<-t.Context().Done() // never: the parent kills us
}

func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
