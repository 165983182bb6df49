package enginetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// accounting is what a cluster of Slurm's keeps its past in: a MariaDB of its
// own, which answers on a socket only, and slurmdbd. Both run as the user slurm.
type accounting struct {
	port     int // of slurmdbd
	mariadb  *process
	slurmdbd *process
	cmd      command // that starts slurmdbd
}

type accountingPrograms struct{ mariadbd, slurmdbd, share string }

func findAccounting() (accountingPrograms, error) {
	var bin accountingPrograms
	for name, path := range map[string]*string{"mariadbd": &bin.mariadbd, "slurmdbd": &bin.slurmdbd} {
		p, ok := find(name)
		if !ok {
			return bin, &MissingError{Engine: "Slurm's accounting", Need: "no " + name + " found", Fix: fixTest}
		}
		*path = p
	}
	for _, dir := range []string{"/usr/share/mysql", "/usr/share/mariadb"} {
		if _, err := os.Stat(filepath.Join(dir, "mysql_system_tables.sql")); err == nil {
			bin.share = dir
			return bin, nil
		}
	}
	return bin, &MissingError{Engine: "Slurm's accounting", Need: "no mysql_system_tables.sql of MariaDB's found", Fix: fixTest}
}

func (s *Slurm) accountingDir() string { return filepath.Join(s.dir, "accounting") }

// accountingConfiguration is what slurm.conf says of slurmdbd. The password of
// a client of slurmdbd's is where it finds munge.
func (s *Slurm) accountingConfiguration() string {
	return fmt.Sprintf(`AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=%d
AccountingStoragePass=%s
AccountingStorageTRES=gres/gpu
JobAcctGatherFrequency=task=1
`, s.accounting.port, s.mungeSocket())
}

// startAccounting makes the database and starts both daemons.
func (s *Slurm) startAccounting(ctx context.Context, slurm *syscall.Credential) error {
	bin, err := findAccounting()
	if err != nil {
		return err
	}
	dir := s.accountingDir()
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "mariadb.sock")
	for _, d := range []string{dir, data} {
		if err := errors.Join(os.Mkdir(d, 0o700), os.Chown(d, int(slurm.Uid), int(slurm.Gid))); err != nil {
			return fmt.Errorf("make folder of the accounting database: %w", err)
		}
	}
	common := []string{"--no-defaults", "--datadir=" + data, "--lc-messages-dir=" + bin.share, "--skip-networking", "--innodb-log-file-size=16M"}
	sql := "create database mysql;\nuse mysql;\nset @auth_root_socket='slurm';\n"
	for _, name := range []string{"mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql"} {
		b, err := os.ReadFile(filepath.Join(bin.share, name))
		if err != nil {
			return fmt.Errorf("tables of MariaDB: %w", err)
		}
		sql += string(b)
	}
	err = runTo(ctx, command{name: "mariadbd --bootstrap", path: bin.mariadbd, args: append(common, "--bootstrap"), dir: dir, user: slurm, stdin: strings.NewReader(sql)})
	if err != nil {
		return err
	}
	// Nothing here must survive the machine, so nothing waits for its disk.
	s.accounting.mariadb, err = start(command{
		name: "mariadbd", path: bin.mariadbd, dir: dir, logs: s.dir, user: slurm,
		args: append(common, "--socket="+socket, "--pid-file="+filepath.Join(dir, "mariadb.pid"),
			"--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0", "--innodb-lock-wait-timeout=900"),
	})
	if err != nil {
		return err
	}
	err = s.accounting.mariadb.ready(ctx, func(context.Context) error {
		_, err := os.Stat(socket)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.writeSlurmdbdConf(slurm); err != nil {
		return err
	}
	s.accounting.cmd = command{
		name: "slurmdbd", path: bin.slurmdbd, args: []string{"-D"}, dir: dir, logs: s.dir, user: slurm,
		env: append(s.Env(), "MYSQL_UNIX_PORT="+socket),
	}
	if err := s.StartAccounting(ctx); err != nil {
		return err
	}
	_, err = s.Run(ctx, "", "sacctmgr", "--immediate", "add", "cluster", "enginetest")
	return err
}

func (s *Slurm) writeSlurmdbdConf(slurm *syscall.Credential) error {
	host, err := hostName()
	if err != nil {
		return err
	}
	text := fmt.Sprintf(`AuthType=auth/munge
AuthInfo=socket=%[1]s
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=%[2]s
CommunicationParameters=NoInAddrAny
DbdHost=%[3]s
DbdAddr=127.0.0.1
DbdPort=%[4]d
SlurmUser=slurm
PidFile=%[5]s/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
CommitDelay=0
`, s.mungeSocket(), s.jwtKey(), host, s.accounting.port, s.accountingDir())
	path := filepath.Join(filepath.Dir(s.Conf), "slurmdbd.conf")
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chown(path, int(slurm.Uid), int(slurm.Gid))); err != nil {
		return fmt.Errorf("write the configuration of slurmdbd: %w", err)
	}
	return nil
}

// StartAccounting starts slurmdbd, again after KillAccounting, and waits until
// it answers.
func (s *Slurm) StartAccounting(ctx context.Context) error {
	p, err := start(s.accounting.cmd)
	if err != nil {
		return err
	}
	s.accounting.slurmdbd = p
	return p.ready(ctx, func(ctx context.Context) error {
		_, err := s.Run(ctx, "", "sacctmgr", "--noheader", "show", "cluster")
		return err
	})
}

// KillAccounting ends slurmdbd as a crash would. slurmctld keeps what it has to
// tell until it is back.
func (s *Slurm) KillAccounting() error { return s.accounting.slurmdbd.kill() }

// closeAccounting ends both daemons; nothing in them is needed any more.
func (s *Slurm) closeAccounting() error {
	var errs []error
	for _, p := range []*process{s.accounting.slurmdbd, s.accounting.mariadb} {
		if p != nil {
			errs = append(errs, p.kill())
		}
	}
	return errors.Join(errs...)
}

// hostName is this machine's, as Slurm calls it.
func hostName() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read host name: %w", err)
	}
	host, _, _ = strings.Cut(host, ".")
	return host, nil
}
