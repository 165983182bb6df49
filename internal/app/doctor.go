package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"yunhe.dev/yunhe/internal/backup"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/filelock"
	"yunhe.dev/yunhe/internal/objects"
	"yunhe.dev/yunhe/internal/samples"
)

// Verdict says how grave a finding is.
type Verdict string

const (
	Fine    Verdict = "ok"
	Warning Verdict = "warning" // it runs, but not well, or not for long
	Broken  Verdict = "broken"  // it does not run, or will lose something
)

// Finding is what an examination says of one part.
type Finding struct {
	Part    string  `json:"part"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`
	// Todo says what to do about it; empty if it is fine.
	Todo string `json:"todo"`
}

// Limits of what is fine.
const (
	examineTimeout = 10 * time.Second
	leastFree      = 1 << 30 // bytes free on the disk
	leastShare     = 10      // and percent of it
	leastFiles     = 4096    // open files
	oldestPostgres = 140000
	mostSkew       = time.Second // between this machine and the database's
	certEnds       = 30 * 24 * time.Hour
	perProcess     = 16 // connections to PostgreSQL
)

// Examine looks at everything a platform with this configuration needs, and
// changes nothing. The platform may run. thorough reads the whole database.
func Examine(ctx context.Context, cfg *Config, thorough bool, now func() time.Time) []Finding {
	x := &examination{cfg: cfg, now: now, thorough: thorough}
	for _, look := range []func(context.Context){x.folder, x.keys, x.database, x.bus, x.objects, x.samples, x.address, x.certificate, x.clock, x.files} {
		ctx, cancel := context.WithTimeout(ctx, examineTimeout)
		look(ctx)
		cancel()
		if len(x.findings) == 1 && x.findings[0].Verdict == Broken {
			break // without a data folder there is nothing to look at
		}
	}
	return x.findings
}

type examination struct {
	cfg      *Config
	now      func() time.Time
	thorough bool
	running  bool // a platform has the data folder
	findings []Finding
}

func (x *examination) say(part string, v Verdict, todo, format string, args ...any) {
	x.findings = append(x.findings, Finding{Part: part, Verdict: v, Todo: todo, Found: fmt.Sprintf(format, args...)})
}

func (x *examination) fine(part, format string, args ...any) { x.say(part, Fine, "", format, args...) }

// said is the message of an error, for people.
func said(err error) string {
	if m, ok := fault.Message(err); ok {
		if cause := errors.Unwrap(err); cause != nil {
			return m + ": " + cause.Error()
		}
		return m
	}
	return err.Error()
}

func (x *examination) folder(context.Context) {
	const part = "data folder"
	dir := x.cfg.Data
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.fine(part, "%s is not there yet; it is made at the first start", dir)
	case err != nil || !info.IsDir():
		x.say(part, Broken, "name a folder with data", "%s is no folder that can be read", dir)
		return
	case syscall.Access(dir, 7) != nil:
		x.say(part, Broken, "run as its owner", "%s cannot be written by this user", dir)
		return
	default:
		runs := "no platform runs on it"
		lock, err := os.Open(filepath.Join(dir, "instance"))
		if err == nil {
			x.running = errors.Is(filelock.Lock(lock), filelock.ErrHeld)
			_ = filelock.Unlock(lock) // it is not ours if it is held
		}
		if x.running {
			runs = "a platform runs on it"
		}
		if info.Mode().Perm()&0o077 != 0 {
			x.say(part, Warning, "chmod 700 "+dir, "%s is open to others (mode %04o) and has keys; %s", dir, info.Mode().Perm(), runs)
		} else {
			x.fine(part, "%s; %s", dir, runs)
		}
	}
	for errors.Is(err, fs.ErrNotExist) && dir != "/" {
		dir = filepath.Dir(dir)
		_, err = os.Stat(dir)
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		x.say("disk", Broken, "look at the disk", "%s: %v", dir, err)
		return
	}
	free, percent := int64(st.Bavail)*int64(st.Bsize), 100*st.Bavail/max(st.Blocks, 1) //nolint:unconvert // differs by machine
	switch {
	case free < leastFree:
		x.say("disk", Broken, "make room, or move the data folder", "%d MiB free at %s", free>>20, dir)
	case percent < leastShare:
		x.say("disk", Warning, "make room", "%d MiB free at %s, %d %%", free>>20, dir, percent)
	case st.Files > 0 && 100*st.Ffree/st.Files < leastShare:
		x.say("disk", Warning, "remove files, or make a file system with more inodes", "%d %% of the inodes free at %s", 100*st.Ffree/st.Files, dir)
	default:
		x.fine("disk", "%d MiB free at %s, %d %%", free>>20, dir, percent)
	}
}

// keys are worth more than the data: without them nothing else can be read.
func (x *examination) keys(context.Context) {
	const part = "keys"
	n := 0
	keys := x.cfg.BackupSource().Keys
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		path := keys[name]
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		n++
		if err != nil {
			x.say(part, Broken, "let this user read it", "%s cannot be read: %v", name, err)
		} else if info.Mode().Perm()&0o077 != 0 {
			x.say(part, Warning, "chmod 600 "+path, "%s is open to others (mode %04o)", path, info.Mode().Perm())
		} else if f, err := os.Open(path); err != nil {
			x.say(part, Broken, "run as its owner", "%s cannot be read by this user", path)
		} else {
			_ = f.Close() // read only
		}
	}
	if len(x.findings) == 0 || x.findings[len(x.findings)-1].Part != part {
		x.fine(part, "%d files, for their owner only", n)
	}
}

func (x *examination) database(ctx context.Context) {
	const part = "database"
	address := x.cfg.BackupSource().Database
	if !backup.IsPostgres(address) {
		x.sqlite(ctx, address)
		return
	}
	p, err := db.Probe(ctx, address)
	switch skew := p.Time.Sub(x.now()); {
	case err != nil:
		x.say(part, Broken, "start PostgreSQL, and see that database.url is right", "%s", said(err))
	case p.Number < oldestPostgres:
		x.say(part, Broken, "use PostgreSQL 14 or newer", "PostgreSQL %s", p.Version)
	case p.ReadOnly:
		x.say(part, Broken, "name the primary in database.url", "PostgreSQL %s is a standby, which cannot be written", p.Version)
	case skew.Abs() > mostSkew:
		x.say(part, Warning, "set both clocks, best with NTP", "the clock of PostgreSQL %s differs from this machine's by %s", p.Version, skew.Round(time.Millisecond))
	case p.MaxConnections-p.Connections < perProcess:
		x.say(part, Warning, "raise max_connections of PostgreSQL", "%d of %d connections are in use; a process takes up to %d", p.Connections, p.MaxConnections, perProcess)
	default:
		x.fine(part, "PostgreSQL %s, %d MiB, %d of %d connections in use", p.Version, p.Bytes>>20, p.Connections, p.MaxConnections)
	}
}

func (x *examination) sqlite(ctx context.Context, path string) {
	const part = "database"
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.fine(part, "SQLite; %s is made at the first start", path)
	case err != nil:
		x.say(part, Broken, "see that the file can be read", "%s: %v", path, err)
	case !x.thorough:
		x.fine(part, "SQLite, %d MiB; not read (--thorough reads it)", info.Size()>>20)
	default:
		if err := db.CheckSQLite(context.WithoutCancel(ctx), path); err != nil { // as long as it takes
			x.say(part, Broken, "restore a backup (yunhe restore)", "%s", said(err))
			return
		}
		x.fine(part, "SQLite, %d MiB, read whole: right", info.Size()>>20)
	}
}

func (x *examination) bus(ctx context.Context) {
	const part = "bus"
	if x.cfg.Bus.URL == "" {
		x.listening(part, x.cfg.Bus.Listen, "set bus.listen to a free address")
		return
	}
	dir := x.cfg.path(x.cfg.Bus.Keys, "bus")
	if _, err := os.Stat(filepath.Join(dir, "keys.json")); errors.Is(err, fs.ErrNotExist) {
		x.say(part, Broken, "run yunhe nats-config --keys "+dir+" and give the cluster what it prints", "there are no keys in %s", dir)
		return
	}
	p, err := bus.Probe(ctx, bus.Config{URL: x.cfg.Bus.URL, Dir: dir})
	switch {
	case err != nil:
		x.say(part, Broken, "start the cluster with what yunhe nats-config prints, and see that bus.url is right", "%s", said(err))
	case x.cfg.Bus.Replicas > p.Servers:
		x.say(part, Broken, "start more servers, or lower bus.replicas", "bus.replicas is %d, the cluster has %d servers", x.cfg.Bus.Replicas, p.Servers)
	default:
		x.fine(part, "NATS %s, %d servers", p.Version, p.Servers)
	}
}

func (x *examination) objects(ctx context.Context) {
	const part = "objects"
	cfg := x.cfg.objects()
	if !strings.Contains(cfg.URL, "://") {
		x.dir(part, cfg.URL)
		return
	}
	store, err := objects.Open(ctx, cfg)
	if err == nil {
		_, err = store.List(ctx, "", "", 1)
	}
	if err != nil {
		x.say(part, Broken, "see that objects.url and its keys are right and the bucket is there", "%s", said(err))
		return
	}
	x.fine(part, "S3 answers")
}

func (x *examination) samples(ctx context.Context) {
	const part = "samples"
	cfg := x.cfg.samples()
	if !strings.Contains(cfg.URL, "://") {
		x.dir(part, cfg.URL)
		return
	}
	store, err := samples.Open(cfg, slog.New(slog.DiscardHandler), x.now)
	if err == nil {
		_, err = store.Query(ctx, "vector(1)", x.now())
		err = errors.Join(err, store.Close())
	}
	if err != nil {
		x.say(part, Broken, "see that samples.url is right and the store runs", "%s", said(err))
		return
	}
	x.fine(part, "the metrics store answers")
}

// dir says of a folder whether it can be written.
func (x *examination) dir(part, dir string) {
	switch err := syscall.Access(dir, 7); {
	case errors.Is(err, fs.ErrNotExist):
		x.fine(part, "%s is made at the first start", dir)
	case err != nil:
		x.say(part, Broken, "run as its owner", "%s cannot be written by this user", dir)
	default:
		x.fine(part, "folder %s", dir)
	}
}

func (x *examination) address(ctx context.Context) {
	const part = "address"
	x.listening(part, x.cfg.Listen.Address, "end what uses it, or set listen.address")
	if !x.running {
		return
	}
	scheme := "http"
	if x.cfg.Listen.CertFile != "" {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+x.cfg.Listen.Address+"/readyz", nil)
	if err != nil {
		return // the port is chosen at the start
	}
	// Who answers on this machine is asked for its health, not trusted with anything.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	res, err := client.Do(req)
	switch {
	case err != nil && !strings.HasSuffix(x.cfg.Listen.Address, ":0"):
		x.say("platform", Warning, "see its log; it may be starting, or listen elsewhere", "it runs but does not answer: %v", err)
	case err == nil:
		said, _ := io.ReadAll(io.LimitReader(res.Body, 1<<16)) // what is missing is not said
		_ = res.Body.Close()                                   // it was read
		if res.StatusCode == http.StatusOK {
			x.fine("platform", "ready")
			_, troubles, _ := strings.Cut(string(said), "\n")
			for line := range strings.Lines(troubles) {
				x.say("platform", Warning, "see its log; if it stays so on other processes too, it is what it says", "%s", strings.TrimSpace(line))
			}
		} else {
			x.say("platform", Warning, "see its log, and the engines above", "it answers, but is not ready (HTTP %d)", res.StatusCode)
		}
	}
}

// listening says whether an address is free for the platform, which has it if
// it runs.
func (x *examination) listening(part, address, todo string) {
	l, err := net.Listen("tcp", address)
	if err == nil {
		_ = l.Close() // it was only a question
	}
	_, port, _ := net.SplitHostPort(address) // checked
	switch {
	case port == "0":
		x.fine(part, "a free port of %s is chosen at the start", address)
	case x.running == (err != nil):
		x.fine(part, "%s", address)
	case x.running:
		x.say(part, Warning, "restart the platform with this configuration", "a platform runs, but not at %s", address)
	default:
		x.say(part, Broken, todo, "%v", err)
	}
}

func (x *examination) certificate(context.Context) {
	const part = "certificate"
	l := x.cfg.Listen
	if l.CertFile == "" {
		if host, _, _ := net.SplitHostPort(l.Address); host != "localhost" && !net.ParseIP(host).IsLoopback() {
			x.say(part, Warning, "set listen.cert_file and listen.key_file, or put a proxy with TLS in front", "none: what is sent to %s can be read on the way", l.Address)
		}
		return
	}
	pair, err := tls.LoadX509KeyPair(l.CertFile, l.KeyFile)
	if err != nil {
		x.say(part, Broken, "name a certificate and its key", "%v", err)
		return
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		x.say(part, Broken, "name another certificate", "%s: %v", l.CertFile, err)
		return
	}
	now, names := x.now(), strings.Join(cert.DNSNames, ", ")
	switch left := cert.NotAfter.Sub(now); {
	case left <= 0:
		x.say(part, Broken, "renew it", "%s ended on %s", names, cert.NotAfter.Format(time.DateOnly))
	case now.Before(cert.NotBefore):
		x.say(part, Broken, "look at the clock, or wait", "%s holds from %s", names, cert.NotBefore.Format(time.DateOnly))
	case left < certEnds:
		x.say(part, Warning, "renew it", "%s ends in %d days", names, int(left.Hours()/24))
	default:
		x.fine(part, "%s, until %s", names, cert.NotAfter.Format(time.DateOnly))
	}
}

func (x *examination) files(context.Context) {
	const part = "open files"
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		x.say(part, Warning, "look at the limits of this user", "%v", err)
	} else if r.Max < leastFiles {
		x.say(part, Warning, fmt.Sprintf("raise it to %d or more (ulimit -n, LimitNOFILE)", leastFiles), "at most %d", r.Max)
	} else {
		x.fine(part, "at most %d", r.Max)
	}
}
