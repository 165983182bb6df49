package enginetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresConfig says how to run a PostgreSQL server. The zero value is a
// server as fresh from the package: durable.
type PostgresConfig struct {
	// NotDurable switches fsync, synchronous commit and full page writes off, and
	// keeps the data in memory where that has room: for tests, which throw it away.
	// Never measure with it.
	NotDurable bool
	// Settings are passed as `-c name=value`, after this package's own.
	Settings map[string]string
	// Host it runs on, where everyone on the network of hosts is let in; nil:
	// this machine as it is.
	Host *Host
	// Disk is how much room the server has, a size as mount takes it, such as
	// 512m; "": as much as there is. It needs root.
	Disk string
}

// PostgresServer is a running PostgreSQL server, or a connection to one that
// was there before.
type PostgresServer struct {
	url  string // of the database "postgres", as a superuser
	dir  string // "" if the server is not ours
	disk bool   // dir is a file system of its own
	port int
	proc *process
	cmd  command
}

// StartPostgres initializes and starts a server in a new directory. The caller
// must Close it.
func StartPostgres(ctx context.Context, cfg PostgresConfig) (*PostgresServer, error) {
	initdb, postgres, ok := postgresPrograms()
	if !ok {
		return nil, &MissingError{Engine: "PostgreSQL", Need: "no initdb and postgres found", Fix: fixTest}
	}
	cred, err := unprivileged("PostgreSQL", "postgres")
	if err != nil {
		return nil, err
	}
	s, err := newPostgres(cfg, cred)
	if err != nil {
		return nil, err
	}
	if err := s.boot(ctx, cfg, initdb, postgres, cred); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// newPostgres makes the folder of a server.
func newPostgres(cfg PostgresConfig, cred *syscall.Credential) (*PostgresServer, error) {
	parent := ""
	if cfg.NotDurable && cfg.Disk == "" {
		parent = memory()
	}
	dir, err := newDirIn(parent, "postgres", cred)
	if err != nil {
		return nil, err
	}
	s := &PostgresServer{dir: dir}
	if cfg.Disk == "" {
		return s, nil
	}
	options := "mode=0700,size=" + cfg.Disk
	if cred != nil {
		options += fmt.Sprintf(",uid=%d,gid=%d", cred.Uid, cred.Gid)
	}
	if err := mountDisk(dir, options); err != nil {
		return nil, errors.Join(fmt.Errorf("make a disk of %s: %w", cfg.Disk, err), s.Close())
	}
	s.disk = true
	return s, nil
}

func (s *PostgresServer) boot(ctx context.Context, cfg PostgresConfig, initdb, postgres string, cred *syscall.Credential) error {
	data := filepath.Join(s.dir, "data")
	args := []string{"-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"}
	if cfg.NotDurable {
		args = append(args, "--no-sync")
	}
	if err := runTo(ctx, command{name: "initdb", path: initdb, args: args, dir: s.dir, user: cred}); err != nil {
		return err
	}
	if cfg.Host != nil {
		rules := "local all all trust\nhost all all samenet trust\nhost replication all samenet trust\n"
		if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(rules), 0o600); err != nil {
			return fmt.Errorf("let the network in: %w", err)
		}
	}
	return s.serve(ctx, cfg, postgres, cred)
}

// serve starts the server of the data that is there.
func (s *PostgresServer) serve(ctx context.Context, cfg PostgresConfig, postgres string, cred *syscall.Credential) (err error) {
	address := "127.0.0.1"
	if s.port = 5432; cfg.Host != nil {
		address = cfg.Host.Address
	} else if s.port, err = freePort(); err != nil {
		return err
	}
	args := []string{"-D", filepath.Join(s.dir, "data"), "-k", s.dir, "-h", address, "-p", strconv.Itoa(s.port), "-c", "max_connections=500"}
	if cfg.NotDurable {
		args = append(args, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off", "-c", "max_wal_size=256MB")
	}
	for _, name := range sortedKeys(cfg.Settings) {
		args = append(args, "-c", name+"="+cfg.Settings[name])
	}
	s.url = fmt.Sprintf("postgres://postgres@%s:%d/postgres?sslmode=disable", address, s.port)
	// SIGINT is a fast shutdown, SIGQUIT an immediate one: it also ends the
	// server's children and returns its shared memory, which SIGKILL does not.
	s.cmd = command{name: "postgres", path: postgres, args: args, dir: s.dir, user: cred, host: cfg.Host, stop: syscall.SIGINT, death: syscall.SIGQUIT}
	return s.Start(ctx)
}

// StartStandby starts a server that follows s, a server of a host, by streaming
// replication and can take its place ([PostgresServer.Promote]). From then on
// s confirms a commit only once the standby has it. The caller must Close it.
func (s *PostgresServer) StartStandby(ctx context.Context, cfg PostgresConfig) (*PostgresServer, error) {
	_, postgres, _ := postgresPrograms()
	copier, ok := find("pg_basebackup", filepath.Dir(postgres))
	if !ok {
		return nil, &MissingError{Engine: "PostgreSQL", Need: "no pg_basebackup found", Fix: fixTest}
	}
	cred, err := unprivileged("PostgreSQL", "postgres")
	if err != nil {
		return nil, err
	}
	b, err := newPostgres(cfg, cred)
	if err != nil {
		return nil, err
	}
	err = runTo(ctx, command{name: "pg_basebackup", path: copier, dir: b.dir, user: cred, host: cfg.Host,
		args: []string{"-d", s.url, "-D", filepath.Join(b.dir, "data"), "-R", "-X", "stream", "-c", "fast", "--no-sync"}})
	if err == nil {
		err = b.serve(ctx, cfg, postgres, cred)
	}
	if err == nil {
		err = s.follow(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// follow waits until a standby follows and has commits wait for it.
func (s *PostgresServer) follow(ctx context.Context) error {
	if err := s.exec(ctx, "ALTER SYSTEM SET synchronous_standby_names = '*'"); err != nil {
		return err
	}
	if err := s.exec(ctx, "SELECT pg_reload_conf()"); err != nil {
		return err
	}
	return s.proc.ready(ctx, func(ctx context.Context) error {
		return s.exec(ctx, "DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync') THEN RAISE 'no standby follows'; END IF; END $$")
	})
}

// Promote makes a standby the server that is written; who was must be gone. It
// waits for no standby of its own until it has one.
func (s *PostgresServer) Promote(ctx context.Context) error {
	if err := s.exec(ctx, "SELECT pg_promote()"); err != nil {
		return err
	}
	if err := s.exec(ctx, "ALTER SYSTEM SET synchronous_standby_names = ''"); err != nil {
		return err
	}
	return s.exec(ctx, "SELECT pg_reload_conf()")
}

// Start starts a server again after Stop or Crash, on the same port and data.
func (s *PostgresServer) Start(ctx context.Context) error {
	if s.dir == "" {
		return errors.New("start postgres: the server is not ours")
	}
	proc, err := start(s.cmd)
	if err != nil {
		return err
	}
	s.proc = proc
	return proc.ready(ctx, func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, s.url)
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	})
}

// Stop ends the server in order and keeps its data for Start.
func (s *PostgresServer) Stop() error {
	if s.proc == nil {
		return nil
	}
	return s.proc.terminate()
}

// Crash ends the server without a checkpoint, as a loss of the machine would,
// and keeps its data for Start.
func (s *PostgresServer) Crash() error {
	if s.proc == nil {
		return nil
	}
	s.proc.command.stop = syscall.SIGQUIT
	return s.proc.terminate()
}

// Close stops the server and removes its data. Safe to call again.
func (s *PostgresServer) Close() error {
	err := s.Stop()
	if s.disk {
		err = errors.Join(err, unmountDisk(s.dir))
		s.disk = false
	}
	if s.dir != "" {
		err = errors.Join(err, removeDir(s.dir))
	}
	return err
}

// FillDisk takes all the room that is left on the disk of a server that has one
// of its own, until free is called.
func (s *PostgresServer) FillDisk() (free func() error, err error) {
	if !s.disk {
		return nil, errors.New("fill the disk of postgres: it has none of its own")
	}
	return FillDisk(s.dir)
}

// Running reports whether the server has not ended.
func (s *PostgresServer) Running() bool {
	select {
	case <-s.proc.done:
		return false
	default:
		return true
	}
}

// NewDatabase creates an empty database with a random name and returns its URL
// and a function that drops it, whoever is connected. Safe for concurrent use.
func (s *PostgresServer) NewDatabase(ctx context.Context) (dsn string, drop func(context.Context) error, err error) {
	name := "yunhe_" + strings.ToLower(rand.Text()[:16])
	u, err := url.Parse(s.url)
	if err != nil {
		return "", nil, fmt.Errorf("parse PostgreSQL URL: %w", err)
	}
	if err := s.exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, err
	}
	u.Path = "/" + name
	drop = func(ctx context.Context) error {
		return s.exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	}
	return u.String(), drop, nil
}

// Beside returns the URL that a database of another server has at this one.
func (s *PostgresServer) Beside(dsn string) string {
	a, err := url.Parse(s.url)
	b, err2 := url.Parse(dsn)
	if err != nil || err2 != nil {
		return dsn // whoever connects is told
	}
	b.Host = a.Host
	return b.String()
}

func (s *PostgresServer) exec(ctx context.Context, sql string) (err error) {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// sharedPostgres is the one server of this test process. It is not closed: it
// dies with the process.
var sharedPostgres = sync.OnceValues(func() (*PostgresServer, error) {
	if env := os.Getenv("YUNHE_TEST_POSTGRES"); env != "" {
		u, err := url.Parse(env)
		if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
			return nil, fmt.Errorf("YUNHE_TEST_POSTGRES must be a URL like postgres://user:password@host:5432/postgres, got %q", env)
		}
		return &PostgresServer{url: env}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return StartPostgres(ctx, PostgresConfig{NotDurable: true})
})

// Postgres returns the URL of a fresh, empty database that is dropped when the
// test ends. All tests of a process share one server, started at the first
// call and not durable; YUNHE_TEST_POSTGRES names an existing server (its user
// must be allowed to create databases) to use instead.
func Postgres(tb testing.TB) string {
	tb.Helper()
	s, err := sharedPostgres()
	check(tb, err)
	ctx, cancel := testContext(tb)
	defer cancel()
	dsn, drop, err := s.NewDatabase(ctx)
	check(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		switch err := drop(ctx); {
		case err == nil:
		case s.dir != "": // it goes with the server; a busy disk is no fault of the test
			tb.Logf("drop the test's database: %v", err)
		default:
			tb.Errorf("drop the test's database: %v", err)
		}
	})
	return dsn
}

// PostgresOwn starts a server of the test's own, for tests that stop it or
// change its settings.
func PostgresOwn(tb testing.TB, cfg PostgresConfig) *PostgresServer {
	tb.Helper()
	ctx, cancel := testContext(tb)
	defer cancel()
	s, err := StartPostgres(ctx, cfg)
	check(tb, err)
	closeAtEnd(tb, s)
	return s
}

// postgresPrograms finds the newest installed server. Debian keeps the server
// programs of each major version in a folder outside PATH.
func postgresPrograms() (initdb, postgres string, ok bool) {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is well formed
	slices.SortFunc(dirs, func(a, b string) int { return majorOf(b) - majorOf(a) })
	initdb, ok1 := find("initdb", dirs...)
	postgres, ok2 := find("postgres", dirs...)
	return initdb, postgres, ok1 && ok2
}

func majorOf(dir string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	if err != nil {
		return 0
	}
	return n
}

// unprivileged returns the credential of a system user if this process is root,
// for engines that refuse to run as root, and nil if it is not.
func unprivileged(engine, name string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, &MissingError{Engine: engine, Need: fmt.Sprintf("it refuses to run as root and there is no user %q", name), Fix: fixTest}
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("read the IDs of user %s: %w", name, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
