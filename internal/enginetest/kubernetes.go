package enginetest

import (
	"context"
	"crypto"
	cryptorand "crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// KubernetesConfig says what control plane to start. The zero value is durable
// and complete.
type KubernetesConfig struct {
	// NotDurable keeps etcd from calling fsync and lets controllers make more
	// requests than usual: for tests, never to measure.
	NotDurable bool
	// NoControllers leaves out the controller manager and the scheduler: only
	// the API, which then stores what it is given and does nothing about it.
	NoControllers bool
}

// Kubernetes is a running control plane: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler. It has no nodes, so pods stay
// pending unless the caller registers nodes and plays their kubelet.
type Kubernetes struct {
	URL        string // of the API server, https
	Token      string // bearer token of a member of system:masters
	CA         []byte // PEM certificate that the API server's verifies against
	Kubeconfig string // path of a kubeconfig with the three above

	dir      string
	store    string // URL of etcd
	alone    bool   // without controllers
	programs map[string]string
	procs    []*process
}

// StartKubernetes starts a control plane and waits until it answers and, if it
// has controllers, until the namespace "default" is ready for pods. The caller
// must Close it.
func StartKubernetes(ctx context.Context, cfg KubernetesConfig) (*Kubernetes, error) {
	k := &Kubernetes{Token: cryptorand.Text(), alone: cfg.NoControllers, programs: make(map[string]string)}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		path, ok := find(name, builtDir())
		if !ok {
			return nil, &MissingError{Engine: "Kubernetes", Need: "no " + name + " found", Fix: fixBench}
		}
		k.programs[name] = path
	}
	ports, err := freePorts(5)
	if err != nil {
		return nil, err
	}
	if k.dir, err = newDir("kubernetes", nil); err != nil {
		return nil, err
	}
	k.URL = "https://127.0.0.1:" + strconv.Itoa(ports[0])
	k.Kubeconfig = filepath.Join(k.dir, "admin.kubeconfig")
	if err := k.boot(ctx, cfg, ports); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// boot starts the parts in the order they need each other. ports are those of
// the API server, etcd's clients, etcd's peers, the controller manager and the
// scheduler.
func (k *Kubernetes) boot(ctx context.Context, cfg KubernetesConfig, ports []int) error {
	store := "http://127.0.0.1:" + strconv.Itoa(ports[1])
	if err := k.startEtcd(ctx, cfg, store, "http://127.0.0.1:"+strconv.Itoa(ports[2])); err != nil {
		return err
	}
	tokens := map[string]string{"manager": cryptorand.Text(), "scheduler": cryptorand.Text()}
	if err := k.startAPI(ctx, store, ports[0], tokens); err != nil {
		return err
	}
	if cfg.NoControllers {
		return nil
	}
	for name, token := range tokens {
		if err := k.writeKubeconfig(k.path(name+".kubeconfig"), token); err != nil {
			return err
		}
	}
	args := []string{"--service-account-private-key-file=" + k.path("sa.key"), "--use-service-account-credentials"}
	if cfg.NotDurable {
		// By default each controller makes 20 requests a second: what one test
		// leaves to be collected would hold up the next for a minute.
		args = append(args, "--kube-api-qps=500", "--kube-api-burst=1000")
	}
	if err := k.startController(ctx, "kube-controller-manager", "manager", ports[3], args...); err != nil {
		return err
	}
	if err := k.startController(ctx, "kube-scheduler", "scheduler", ports[4]); err != nil {
		return err
	}
	// Pods are refused until the controller manager has made this account.
	return k.procs[2].ready(ctx, func(ctx context.Context) error {
		return k.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
	})
}

func (k *Kubernetes) path(name string) string { return filepath.Join(k.dir, name) }

// run starts one program of the control plane.
func (k *Kubernetes) run(name string, args ...string) (*process, error) {
	p, err := start(command{name: name, path: k.programs[name], dir: k.dir, args: args})
	if err == nil {
		k.procs = append(k.procs, p)
	}
	return p, err
}

func (k *Kubernetes) startEtcd(ctx context.Context, cfg KubernetesConfig, clients, peers string) error {
	args := []string{
		"--data-dir=" + k.path("etcd"), "--listen-client-urls=" + clients, "--advertise-client-urls=" + clients,
		"--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers, "--initial-cluster=default=" + peers,
	}
	if cfg.NotDurable {
		args = append(args, "--unsafe-no-fsync")
	}
	etcd, err := k.run("etcd", args...)
	if err != nil {
		return err
	}
	k.store = clients
	return etcd.ready(ctx, func(ctx context.Context) error { return httpGet(ctx, clients+"/health", http.StatusOK) })
}

// KillStore ends etcd as a crash would. The API server keeps running and
// answers errors.
func (k *Kubernetes) KillStore() error { return k.procs[0].kill() }

// StartStore starts etcd again on its data and waits until the API server is
// ready.
func (k *Kubernetes) StartStore(ctx context.Context) error {
	etcd, err := start(k.procs[0].command)
	if err != nil {
		return err
	}
	k.procs[0] = etcd
	if err := etcd.ready(ctx, func(ctx context.Context) error { return httpGet(ctx, k.store+"/health", http.StatusOK) }); err != nil {
		return err
	}
	return k.procs[1].ready(ctx, func(ctx context.Context) error { return k.get(ctx, "/readyz") })
}

func (k *Kubernetes) startAPI(ctx context.Context, store string, port int, tokens map[string]string) error {
	key, err := rsa.GenerateKey(cryptorand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("make the service account key: %w", err)
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	users := fmt.Sprintf("%s,admin,admin,system:masters\n%s,system:kube-controller-manager,manager\n%s,system:kube-scheduler,scheduler\n",
		k.Token, tokens["manager"], tokens["scheduler"])
	for name, content := range map[string][]byte{"sa.key": keyPEM, "tokens.csv": []byte(users)} {
		if err := os.WriteFile(k.path(name), content, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	api, err := k.run("kube-apiserver",
		"--etcd-servers="+store, "--secure-port="+strconv.Itoa(port), "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--cert-dir="+k.path("certs"), "--token-auth-file="+k.path("tokens.csv"), "--authorization-mode=Node,RBAC",
		"--service-account-key-file="+k.path("sa.key"), "--service-account-signing-key-file="+k.path("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/16",
		"--endpoint-reconciler-type=none", "--kubelet-preferred-address-types=InternalIP", "--profiling=false")
	if err != nil {
		return err
	}
	err = api.ready(ctx, func(ctx context.Context) error {
		// Read again at each try: it may have been half written.
		if k.CA, err = os.ReadFile(filepath.Join(k.path("certs"), "apiserver.crt")); err != nil {
			return err
		}
		return k.get(ctx, "/readyz")
	})
	if err != nil {
		return err
	}
	return k.writeKubeconfig(k.Kubeconfig, k.Token)
}

// Expiring makes of a service account's token one that the API server refuses after
// life, as it does any old one. Those it gives out itself last ten minutes at least.
func (k *Kubernetes) Expiring(token string, life time.Duration) (string, error) {
	keyPEM, err := os.ReadFile(k.path("sa.key"))
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return "", errors.New("sa.key is not PEM")
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("sa.key: %w", err)
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", errors.New("the token is not a JWT")
	}
	claims := map[string]any{}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(b, &claims)
	}
	if err != nil {
		return "", fmt.Errorf("claims of the token: %w", err)
	}
	claims["exp"] = time.Now().Add(life - time.Minute).Unix() // a minute late is still good
	if b, err = json.Marshal(claims); err != nil {
		return "", err
	}
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(b)
	sum := sha256.Sum256([]byte(signed))
	sig, err := rsa.SignPKCS1v15(cryptorand.Reader, key, crypto.SHA256, sum[:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(sig), err
}

// startController starts a client of the API server that has a health port.
func (k *Kubernetes) startController(ctx context.Context, program, user string, port int, args ...string) error {
	file := k.path(user + ".kubeconfig")
	p, err := k.run(program, append(args,
		"--kubeconfig="+file, "--authentication-kubeconfig="+file, "--authorization-kubeconfig="+file, "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(port), "--cert-dir="+k.path(user))...)
	if err != nil {
		return err
	}
	// Its certificate is its own; all that is asked is whether it lives.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // loopback health
	defer client.CloseIdleConnections()
	return p.ready(ctx, func(ctx context.Context) error {
		return get(ctx, client, "https://127.0.0.1:"+strconv.Itoa(port)+"/healthz", "", http.StatusOK)
	})
}

func (k *Kubernetes) writeKubeconfig(path, token string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: enginetest, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: user, user: {token: %s}}]
contexts: [{name: enginetest, context: {cluster: enginetest, user: user}}]
current-context: enginetest
`, k.URL, base64.StdEncoding.EncodeToString(k.CA), token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// Client returns an HTTP client that trusts the API server and keeps up to
// conns connections. Requests must carry "Authorization: Bearer " + Token. It
// speaks HTTP/1.1: one request at a time on each connection.
func (k *Kubernetes) Client(conns int) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(k.CA)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, MaxIdleConns: conns, MaxIdleConnsPerHost: conns, MaxConnsPerHost: conns,
	}}
}

// get is a readiness probe on a path of the API server.
func (k *Kubernetes) get(ctx context.Context, path string) error {
	client := k.Client(1)
	defer client.CloseIdleConnections()
	return get(ctx, client, k.URL+path, k.Token, http.StatusOK)
}

// Close stops the control plane and removes its data. Safe to call again.
func (k *Kubernetes) Close() error {
	var err error
	for i := len(k.procs) - 1; i >= 0; i-- {
		err = errors.Join(err, k.procs[i].terminate())
	}
	return errors.Join(err, removeDir(k.dir))
}

// KubernetesCluster starts a control plane for a test, not durable unless the
// caller says so with StartKubernetes. Without the control plane's programs it
// skips aloud even where CI=true: building them takes minutes and is part of
// `scripts/deps.sh bench`, not of what tests need.
func KubernetesCluster(tb testing.TB) *Kubernetes {
	tb.Helper()
	ctx, cancel := testContext(tb)
	defer cancel()
	k, err := StartKubernetes(ctx, KubernetesConfig{NotDurable: true})
	skipMissing(tb, err)
	closeAtEnd(tb, k)
	return k
}

// skipMissing is check for what is no part of what tests need everywhere: a
// part that is missing skips the test, also where CI=true.
func skipMissing(tb testing.TB, err error) {
	tb.Helper()
	var missing *MissingError
	if errors.As(err, &missing) {
		tb.Skipf("SKIPPED: %v", missing)
	}
	check(tb, err)
}
