package backup

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// postgres keeps what pg_dump says: one transaction's view of the database.
func (t *taking) postgres(ctx context.Context) error {
	t.tell("database")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends pg_dump if we cannot keep what it says
	// Not packed: chunks are.
	cmd, said, err := client(ctx, t.src.Database, "pg_dump", "--format=custom", "--compress=0", "--no-owner", "--no-privileges")
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "pg_dump cannot be run")
	}
	if err := cmd.Start(); err != nil {
		return notRun("pg_dump", err)
	}
	f := File{Path: postgresPath, Modified: time.Now().UTC()}
	if f.Chunks, f.Size, err = t.w.file(ctx, out); err != nil {
		cancel()
		_ = cmd.Wait() // it was ended
		return err
	}
	if err := cmd.Wait(); err != nil {
		return failed("pg_dump", "", said, err)
	}
	t.add(f)
	return nil
}

// restorePostgres fills an empty database in one transaction.
func (r *Repository) restorePostgres(ctx context.Context, s Snapshot, address string) error {
	// pg_restore reads the table of contents first, then what it names: a file.
	tmp, err := os.CreateTemp("", "yunhe-restore-*")
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "no file can be made for the restore")
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	for _, f := range s.Files {
		if f.Path != postgresPath {
			continue
		}
		if err := r.copy(ctx, f, tmp, func(int) {}); err != nil {
			return err
		}
	}
	check, said, err := client(ctx, address, "psql", "--no-psqlrc", "--tuples-only", "--no-align", "--command",
		"SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v', 'S') AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg_toast%'")
	if err != nil {
		return err
	}
	out, err := check.Output()
	if err != nil {
		return failed("psql", "", said, err)
	}
	if n := strings.TrimSpace(string(out)); n != "0" {
		return fault.New(fault.Conflict, "the database has %s tables and sequences: a backup is restored to an empty one", n)
	}
	restore, said, err := client(ctx, address, "pg_restore", "--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction")
	if err != nil {
		return err
	}
	restore.Args = append(restore.Args, tmp.Name())
	if err := restore.Run(); err != nil {
		return failed("pg_restore", ", the database is as it was", said, err)
	}
	return nil
}

// client prepares a program of PostgreSQL. The password goes by the
// environment: arguments are seen by everyone on the machine.
func client(ctx context.Context, address, program string, args ...string) (*exec.Cmd, *bytes.Buffer, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, nil, fault.New(fault.Invalid, "the database's address is not one") // the error repeats it, with the password
	}
	password, ok := u.User.Password()
	if ok {
		u.User = url.User(u.User.Username())
	}
	cmd := exec.CommandContext(ctx, program, append(args, "--dbname="+u.String())...)
	if ok {
		cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
	}
	said := &bytes.Buffer{}
	cmd.Stderr = said
	return cmd, said, nil
}

// failed is how a program failed, and what that means, or that it could not be
// run at all.
func failed(program, means string, said *bytes.Buffer, err error) error {
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		return notRun(program, err)
	}
	return fault.New(fault.Unavailable, "%s failed%s: %s", program, means, lastLine(said, err))
}

func notRun(program string, err error) error {
	return fault.Wrap(fault.Unavailable, err, "%s cannot be run (it comes with PostgreSQL's client programs, package postgresql-client)", program)
}

// lastLine is what a program said last, or how it ended.
func lastLine(said *bytes.Buffer, err error) string {
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return last
	}
	return err.Error()
}
