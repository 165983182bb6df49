package app_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/enginetest"
	"yunhe.dev/yunhe/internal/fault"
)

// verdicts examines and returns what it found by part.
func verdicts(t *testing.T, cfg *app.Config, thorough bool) map[string]app.Finding {
	t.Helper()
	out := map[string]app.Finding{}
	for _, x := range app.Examine(t.Context(), cfg, thorough, time.Now) {
		if x.Found == "" || (x.Verdict == app.Fine) != (x.Todo == "") {
			t.Errorf("%s is %s: found %q, to do %q", x.Part, x.Verdict, x.Found, x.Todo)
		}
		out[x.Part] = x
	}
	return out
}

// expect compares one finding: how grave, and words in it.
func expect(t *testing.T, what string, got map[string]app.Finding, part string, v app.Verdict, words ...string) {
	t.Helper()
	f, ok := got[part]
	if !ok || f.Verdict != v {
		t.Errorf("%s: %s is %+v, want %s", what, part, f, v)
	}
	for _, w := range words {
		if !strings.Contains(f.Found+" "+f.Todo, w) {
			t.Errorf("%s: %s says %q, %q, want %q in it", what, part, f.Found, f.Todo, w)
		}
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	cfg := app.DefaultConfig()
	cfg.Data, cfg.Listen.Address = filepath.Join(t.TempDir(), "data"), "127.0.0.1:0"
	got := verdicts(t, &cfg, true)
	for _, part := range []string{"data folder", "keys", "database", "bus", "objects", "samples", "address"} {
		expect(t, "before the first start", got, part, app.Fine)
	}
	if _, err := os.Stat(cfg.Data); err == nil {
		t.Error("looking made the data folder")
	}

	a, err := app.New(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	got = verdicts(t, &cfg, true)
	expect(t, "running", got, "data folder", app.Fine, "a platform runs on it")
	expect(t, "running", got, "keys", app.Fine, "4 files")
	expect(t, "running", got, "database", app.Fine, "read whole: right")
	moved := cfg
	moved.Listen.Address = "127.0.0.1:1"
	expect(t, "running elsewhere", verdicts(t, &moved, false), "address", app.Warning, "not at 127.0.0.1:1")
	if err := os.Chmod(cfg.Data, 0o755); err != nil {
		t.Fatal(err)
	}
	expect(t, "running, open to others", verdicts(t, &cfg, false), "data folder", app.Warning, "chmod 700", "a platform runs on it")
	if err := os.Chmod(cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	a.Close()
	expect(t, "ended", verdicts(t, &cfg, false), "data folder", app.Fine, "no platform runs")

	if err := os.Chmod(cfg.Data, 0o755); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(cfg.Data, "bus", "secrets.key")
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(cfg.Data, "yunhe.db")
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(body); i++ {
		body[i] ^= 0x55
	}
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	cfg.Listen.Address = busy.Addr().String()
	got = verdicts(t, &cfg, true)
	expect(t, "spoiled", got, "data folder", app.Warning, "0755", "chmod 700")
	expect(t, "spoiled", got, "keys", app.Warning, key)
	expect(t, "spoiled", got, "database", app.Broken, "yunhe restore")
	expect(t, "spoiled", got, "address", app.Broken, busy.Addr().String())
	cfg.Listen.Address = "0.0.0.0:0"
	expect(t, "to everyone", verdicts(t, &cfg, false), "certificate", app.Warning, "cert_file")
}

func TestDoctorEngines(t *testing.T) {
	t.Parallel()
	keys := t.TempDir()
	trust, err := bus.LoadTrust(keys)
	if err != nil {
		t.Fatal(err)
	}
	cluster := enginetest.NATSCluster(t, 3, func(_ int, o *server.Options) {
		if err := trust.Apply(o); err != nil {
			t.Error(err)
		}
		o.MaxPayload = 8 << 20
	})
	cfg := app.DefaultConfig()
	cfg.Data, cfg.Listen.Address = filepath.Join(t.TempDir(), "data"), "127.0.0.1:0"
	cfg.Database.URL, cfg.Bus.URL, cfg.Bus.Keys = enginetest.Postgres(t), cluster.URL(), keys
	got := verdicts(t, &cfg, false)
	expect(t, "engines run", got, "database", app.Fine, "PostgreSQL")
	expect(t, "engines run", got, "bus", app.Fine, "3 servers")
	cfg.Bus.Replicas = 5
	expect(t, "more replicas than servers", verdicts(t, &cfg, false), "bus", app.Broken, "5")
	cfg.Bus.Replicas, cfg.Bus.Keys = 0, t.TempDir()
	expect(t, "no keys", verdicts(t, &cfg, false), "bus", app.Broken, "nats-config")
	if _, err := bus.LoadTrust(cfg.Bus.Keys); err != nil { // makes keys the cluster does not trust
		t.Fatal(err)
	}
	expect(t, "foreign keys", verdicts(t, &cfg, false), "bus", app.Broken)
	cfg.Bus.URL, cfg.Database.URL = "nats://127.0.0.1:1", "postgres://nobody:hunter2@127.0.0.1:1/none"
	cfg.Objects.URL, cfg.Samples.URL = "s3://bucket?endpoint=http://127.0.0.1:1", "http://127.0.0.1:1"
	cfg.Objects.AccessKey, cfg.Objects.SecretKey = "a", "hunter3"
	got = verdicts(t, &cfg, false)
	for _, part := range []string{"bus", "database", "objects", "samples"} {
		expect(t, "nothing there", got, part, app.Broken)
		if strings.Contains(got[part].Found, "hunter") {
			t.Errorf("%s shows a password: %s", part, got[part].Found)
		}
	}
}

func TestDoctorCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := app.DefaultConfig()
	cfg.Data, cfg.Listen.Address = filepath.Join(dir, "data"), "127.0.0.1:0"
	cfg.Listen.CertFile, cfg.Listen.KeyFile = filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem")
	expect(t, "none", verdicts(t, &cfg, false), "certificate", app.Broken)
	for _, x := range []struct {
		from, to time.Duration
		want     app.Verdict
	}{{-time.Hour, 90 * 24 * time.Hour, app.Fine}, {-time.Hour, 10 * 24 * time.Hour, app.Warning}, {-2 * time.Hour, -time.Hour, app.Broken}, {time.Hour, 90 * 24 * time.Hour, app.Broken}} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "yunhe"}, DNSNames: []string{"yunhe.example.com"}, NotBefore: now.Add(x.from), NotAfter: now.Add(x.to)}
		der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		for path, block := range map[string]*pem.Block{cfg.Listen.CertFile: {Type: "CERTIFICATE", Bytes: der}, cfg.Listen.KeyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
			if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		expect(t, x.to.String(), verdicts(t, &cfg, false), "certificate", x.want, "yunhe.example.com")
	}
}

// Alive is what health checks of containers ask.
func TestAlive(t *testing.T) {
	t.Parallel()
	cfg := app.DefaultConfig()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listen.Address = ln.Addr().String()
	var status atomic.Int32
	status.Store(http.StatusOK)
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(int(status.Load()))
	})}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	if err := app.Alive(t.Context(), &cfg); err != nil {
		t.Error(err)
	}
	status.Store(http.StatusForbidden)
	if err := app.Alive(t.Context(), &cfg); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("one that refuses: %v", err)
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
	if err := app.Alive(t.Context(), &cfg); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("one that is gone: %v", err)
	}
}
