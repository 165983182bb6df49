package kubernetes_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"yunhe.dev/yunhe/adapters/kubernetes"
	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// bytesProxy passes bytes to the API server and can be told to misbehave. It
// sees nothing of what it passes: TLS goes from end to end.
type bytesProxy struct {
	addr string

	mu    sync.Mutex // guards what follows
	wake  *sync.Cond
	mode  string // "", stall, cut, refuse
	conns map[net.Conn]bool
	l     net.Listener
	to    string
	all   sync.WaitGroup
}

func newProxy(tb testing.TB, server string) *bytesProxy {
	tb.Helper()
	u, err := url.Parse(server)
	if err != nil {
		tb.Fatal(err)
	}
	p := &bytesProxy{to: u.Host, conns: map[net.Conn]bool{}, addr: "127.0.0.1:0"}
	p.wake = sync.NewCond(&p.mu)
	p.listen(tb)
	tb.Cleanup(func() {
		p.set(tb, "refuse")
		p.all.Wait()
	})
	return p
}

func (p *bytesProxy) listen(tb testing.TB) {
	tb.Helper()
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		tb.Fatal(err)
	}
	p.l, p.addr = l, l.Addr().String()
	p.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.pass(c) })
		}
	})
}

func (p *bytesProxy) pass(c net.Conn) {
	defer c.Close() // it may be closed already
	s, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer s.Close() // likewise
	p.mu.Lock()
	p.conns[c], p.conns[s] = true, true
	p.mu.Unlock()
	var both sync.WaitGroup
	for _, d := range [][2]net.Conn{{c, s}, {s, c}} {
		both.Go(func() { p.copy(d[0], d[1]) })
	}
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	delete(p.conns, s)
}

func (p *bytesProxy) copy(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		for p.mode == "stall" {
			p.wake.Wait()
		}
		cut := p.mode == "cut"
		p.mu.Unlock()
		if cut { // half an answer, then nothing
			n /= 2
			err = io.ErrUnexpectedEOF
		}
		if _, werr := to.Write(buf[:n]); werr != nil || err != nil {
			_, _ = from.Close(), to.Close()
			return
		}
	}
}

// set makes the proxy misbehave in a way, or not ("").
func (p *bytesProxy) set(tb testing.TB, mode string) {
	tb.Helper()
	p.mu.Lock()
	was := p.mode
	p.mode = mode
	if mode == "refuse" {
		_ = p.l.Close()
		for c := range p.conns {
			_ = c.Close()
		}
	}
	p.wake.Broadcast()
	p.mu.Unlock()
	if was == "refuse" && mode != "refuse" {
		p.listen(tb)
	}
}

// kubeconfig writes a file for server with a token.
func (r *rig) kubeconfig(server, token string, ca []byte) string {
	r.tb.Helper()
	path := filepath.Join(r.tb.TempDir(), "kubeconfig")
	r.writeKubeconfig(path, server, token, ca)
	return path
}

func (r *rig) writeKubeconfig(path, server, token string, ca []byte) {
	r.tb.Helper()
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["c"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	cfg.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	cfg.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	cfg.CurrentContext = "x"
	b, err := clientcmd.Write(*cfg)
	if err != nil {
		r.tb.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		r.tb.Fatal(err)
	}
}

func (w *watched) awaitTrouble(within time.Duration, words ...string) {
	w.tb.Helper()
	begun := time.Now()
	w.await("trouble with "+strings.Join(words, ", "), func(w *watched) bool {
		for _, word := range words {
			if !contains(w.trouble, word) {
				return false
			}
		}
		return true
	})
	if took := time.Since(begun); took > within {
		w.tb.Errorf("trouble with %q was told after %s, want within %s", words, took, within)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tb.Logf("figure: after %s: %s", time.Since(begun).Round(time.Millisecond), w.trouble)
}

// told is how soon trouble has to be told on a machine that does other things.
const told = 4 * time.Second

func TestTrouble(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	p := newProxy(t, k.URL)
	r := newRig(t, k, 1, nil)
	server := "https://" + p.addr
	r.cfg.KubeconfigFile = r.kubeconfig(server, "wrong", k.CA)
	r.start()
	w := r.watch()
	w.awaitTrouble(told, "401", "put a valid one into")
	_, err := r.client.Discover(t.Context(), &adapterv1.DiscoverRequest{})
	wantCode(t, err, connect.CodeUnavailable)
	_, err = r.client.Apply(t.Context(), &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{attempt("a", "", nil)}})
	wantCode(t, err, connect.CodeUnavailable)

	// The operator corrects the file; nothing is started again.
	r.writeKubeconfig(r.cfg.KubeconfigFile, server, k.Token, k.CA)
	w.await("no trouble and a node", func(w *watched) bool { return w.trouble == "" && len(w.nodes) == 1 })
	r.apply(attempt("a", "", nil))
	r.running("a")

	for mode, words := range map[string]string{"stall": "does not answer in time", "cut": "breaks off its answers", "refuse": "refuses connections"} {
		p.set(t, mode)
		w.awaitTrouble(told, words)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := r.client.Apply(ctx, &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{attempt("b-"+mode, "", nil)}})
		wantCode(t, err, connect.CodeUnavailable)
		_, err = r.client.Discover(ctx, &adapterv1.DiscoverRequest{})
		wantCode(t, err, connect.CodeUnavailable)
		cancel()
		// What happens meanwhile is told afterwards.
		name := r.node(r.label+"-"+mode, nil).Name
		p.set(t, "")
		begun := time.Now()
		w.await("recovered", func(w *watched) bool { return w.trouble == "" && w.nodes[name] != nil })
		t.Logf("figure: %s: recovered %s after it ended", mode, time.Since(begun).Round(time.Millisecond))
		r.apply(attempt("b-"+mode, "50ms", nil))
		r.ended("b-" + mode)
	}
	r.running("a")
	if n := len(r.pods("a")); n != 1 {
		t.Errorf("it has %d pods, want 1", n)
	}
	r.remove([]string{"a"}, nil)
	r.ended("a")
}

// certificate makes a self-signed certificate that is valid in a time.
func certificate(tb testing.TB, from, to time.Time, names ...string) (tls.Certificate, []byte) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: from, NotAfter: to, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: names}
	if len(names) == 0 {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestTroubleOfTLS(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	now := time.Now()
	good, goodCA := certificate(t, now.Add(-time.Hour), now.Add(time.Hour))
	_, otherCA := certificate(t, now.Add(-time.Hour), now.Add(time.Hour))
	old, oldCA := certificate(t, now.Add(-2*time.Hour), now.Add(-time.Hour))
	named, namedCA := certificate(t, now.Add(-time.Hour), now.Add(time.Hour), "elsewhere.example")
	for name, c := range map[string]struct {
		cert  *tls.Certificate
		ca    []byte
		words string
	}{
		"unknown authority": {&good, otherCA, "is not signed by the authority"},
		"expired":           {&old, oldCA, "renew it, or check the clocks"},
		"another name":      {&named, namedCA, "is for another name"},
		"no TLS":            {nil, goodCA, "does not speak TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			if c.cert != nil {
				l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*c.cert}})
			}
			t.Cleanup(func() { _ = l.Close() })
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						defer conn.Close() // nothing to learn
						b := make([]byte, 1024)
						if _, err := conn.Read(b); err == nil {
							_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
						}
					}()
				}
			}()
			r := newRig(t, k, 0, nil)
			r.cfg.KubeconfigFile = r.kubeconfig("https://"+l.Addr().String(), "x", c.ca)
			r.start()
			r.watch().awaitTrouble(told, c.words)
		})
	}
}

// A token that expires while all is well is told, and so is that the next one is good.
func TestTroubleOfExpiry(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	r := newRig(t, k, 1, nil)
	good := r.account(nil)
	short, err := k.Expiring(good, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	r.cfg.KubeconfigFile = r.kubeconfig(k.URL, short, k.CA)
	r.start()
	w := r.watch()
	w.await("a node", func(w *watched) bool { return w.trouble == "" && len(w.nodes) == 1 })
	r.apply(attempt("a", "", nil))
	r.running("a")
	w.awaitTrouble(time.Minute, "401", "has expired") // the server remembers for ten seconds that a token was good
	r.writeKubeconfig(r.cfg.KubeconfigFile, k.URL, good, k.CA)
	w.await("no trouble", func(w *watched) bool { return w.trouble == "" })
	r.apply(attempt("b", "50ms", nil))
	r.ended("b")
	if n := len(r.pods("a")); n != 1 {
		t.Errorf("it has %d pods, want 1", n)
	}
	r.running("a")
	r.remove([]string{"a"}, nil)
	r.ended("a")
}

// Clocks that differ are told while all works, and beside a sign-in that they may
// have spoiled.
func TestClocksDiffer(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	r := newRig(t, k, 1, nil)
	var ahead atomic.Int64
	r.reverse(k, nil, func(res *http.Response) {
		if at, err := http.ParseTime(res.Header.Get("Date")); err == nil {
			res.Header.Set("Date", at.Add(time.Duration(ahead.Load())).UTC().Format(http.TimeFormat))
		}
	})
	b, err := os.ReadFile(r.cfg.KubeconfigFile)
	if err != nil {
		t.Fatal(err)
	}
	set := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(r.cfg.KubeconfigFile, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set(bytes.ReplaceAll(b, []byte(k.Token), []byte("wrong")))
	ahead.Store(int64(time.Hour))
	r.start()
	w := r.watch()
	w.awaitTrouble(told, "401", "its clock differs from the driver's by ") // to the second, or one less
	set(b)
	w.await("a notice", func(w *watched) bool {
		return w.trouble == "" && contains(w.inventory.GetNotice(), "ahead of the driver's by 1h0m0s")
	})
	r.apply(attempt("a", "50ms", nil))
	if st := r.ended("a"); st.Reason != "completed" || st.EndedAt < st.StartedAt {
		t.Errorf("status is {%v}", st)
	}
	ahead.Store(0)
	w.await("none", func(w *watched) bool { return w.trouble == "" && w.inventory.GetNotice() == "" })
}

// documented are the objects of the page operators follow.
func documented(tb testing.TB, namespace string) (role rbacv1.Role, all rbacv1.ClusterRole) {
	tb.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "howto", "kubernetes.md"))
	if err != nil {
		tb.Fatal(err)
	}
	_, text, ok := strings.Cut(string(page), "```yaml rbac\n")
	if !ok {
		tb.Fatal("docs/howto/kubernetes.md has no block ```yaml rbac")
	}
	text, _, _ = strings.Cut(text, "```")
	for doc := range strings.SplitSeq(text, "\n---\n") {
		switch {
		case strings.Contains(doc, "kind: Role\n"):
			err = yaml.UnmarshalStrict([]byte(doc), &role)
		case strings.Contains(doc, "kind: ClusterRole\n"):
			err = yaml.UnmarshalStrict([]byte(doc), &all)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	role.Namespace = namespace
	return role, all
}

// account makes a service account with the documented permissions and returns
// its token.
func (r *rig) account(change func(*rbacv1.Role, *rbacv1.ClusterRole)) string {
	r.tb.Helper()
	ctx, ns := r.tb.Context(), r.cfg.Namespace
	fail := func(err error) {
		r.tb.Helper()
		if err != nil {
			r.tb.Fatal(err)
		}
	}
	_, err := r.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
	fail(err)
	_, err = r.admin.CoreV1().ServiceAccounts(ns).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "driver"}}, metav1.CreateOptions{})
	fail(err)
	role, all := documented(r.tb, ns)
	all.Name = ns
	if change != nil {
		change(&role, &all)
	}
	_, err = r.admin.RbacV1().Roles(ns).Create(ctx, &role, metav1.CreateOptions{})
	fail(err)
	_, err = r.admin.RbacV1().ClusterRoles().Create(ctx, &all, metav1.CreateOptions{})
	fail(err)
	who := []rbacv1.Subject{{Kind: "ServiceAccount", Name: "driver", Namespace: ns}}
	_, err = r.admin.RbacV1().RoleBindings(ns).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "driver"}, Subjects: who,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}}, metav1.CreateOptions{})
	fail(err)
	_, err = r.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: ns}, Subjects: who,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: all.Name}}, metav1.CreateOptions{})
	fail(err)
	token, err := r.admin.CoreV1().ServiceAccounts(ns).CreateToken(ctx, "driver", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	fail(err)
	return token.Status.Token
}

// The documented permissions are enough for everything.
func TestDocumentedPermissions(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	r := newRig(t, k, 1, nil)
	r.cfg.KubeconfigFile = r.kubeconfig(k.URL, r.account(nil), k.CA)
	r.start()
	w := r.watch()
	w.await("a node", func(w *watched) bool { return w.trouble == "" && len(w.nodes) == 1 })
	r.apply(attempt("run", "", nil), attempt("files", "100ms", func(a *adapterv1.Attempt) {
		a.Files = []*adapterv1.File{{Path: "in/x.py", Content: []byte("\x00\xff"), Executable: true}}
	}), attempt("held", "", func(a *adapterv1.Attempt) { a.Resources["gpu"] = 9 }))
	r.running("run")
	r.ended("files")
	maps, err := r.admin.CoreV1().ConfigMaps(r.cfg.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "yunhe.dev/attempt=files"})
	if err != nil || len(maps.Items) != 1 || string(maps.Items[0].BinaryData["f0"]) != "\x00\xff" || len(maps.Items[0].OwnerReferences) != 1 || maps.Items[0].OwnerReferences[0].UID != r.job("files").UID {
		t.Errorf("files are %+v, %v, want one ConfigMap that the Job owns", maps, err)
	}
	r.remove([]string{"run", "held", "never"}, nil)
	for _, id := range []string{"run", "held", "never"} {
		r.ended(id)
	}
	r.remove(nil, []string{"run", "held", "never", "files"})
	until(t, "nothing is left", func() bool {
		jobs, err := r.admin.BatchV1().Jobs(r.cfg.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		maps, err := r.admin.CoreV1().ConfigMaps(r.cfg.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=yunhe"})
		if err != nil {
			t.Fatal(err)
		}
		return len(jobs.Items)+len(maps.Items) == 0
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.troubles) > 0 {
		t.Errorf("with the documented permissions there was trouble: %q", w.troubles)
	}
}

// A permission that is missing is named; once it is granted all is well.
func TestMissingPermission(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	r := newRig(t, k, 1, nil)
	var whole rbacv1.ClusterRole
	token := r.account(func(_ *rbacv1.Role, all *rbacv1.ClusterRole) {
		whole = *all.DeepCopy()
		var rules []rbacv1.PolicyRule
		for _, rule := range all.Rules {
			if rule.Resources[0] != "nodes" {
				rules = append(rules, rule)
			}
		}
		all.Rules = rules
	})
	r.cfg.KubeconfigFile = r.kubeconfig(k.URL, token, k.CA)
	r.start()
	w := r.watch()
	w.awaitTrouble(told, `cannot`, `resource "nodes"`, "docs/howto/kubernetes.md")
	if _, err := r.admin.RbacV1().ClusterRoles().Update(t.Context(), &whole, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("a node", func(w *watched) bool { return w.trouble == "" && len(w.nodes) == 1 })
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, func(c *kubernetes.Config) { c.AnyImage = true })
	big := make([]byte, 600<<10)
	for words, change := range map[string]func(*adapterv1.Attempt){
		`image "other" is neither known here`: func(a *adapterv1.Attempt) { a.ImageId = "other" },
		`image "-x:y/" is not the reference`:  func(a *adapterv1.Attempt) { a.ImageId = "-x:y/" },
		"tpu is not known here":               func(a *adapterv1.Attempt) { a.Resources["tpu"] = 1 },
		"gpu must not be negative":            func(a *adapterv1.Attempt) { a.Resources["gpu"] = -1 },
		"at most 1048576 bytes": func(a *adapterv1.Attempt) {
			a.Files = []*adapterv1.File{{Path: "a", Content: big}, {Path: "b", Content: big}}
		},
		"files[0].path must be a clean": func(a *adapterv1.Attempt) { a.Files = []*adapterv1.File{{Path: "../a"}} },
		"there twice":                   func(a *adapterv1.Attempt) { a.Files = []*adapterv1.File{{Path: "a"}, {Path: "a"}} },
		"env must have names":           func(a *adapterv1.Attempt) { a.Env["a=b"] = "" },
		"timeout_seconds":               func(a *adapterv1.Attempt) { a.TimeoutSeconds = -1 },
	} {
		res := r.apply(attempt("bad", "", change), attempt("good", "", nil))
		if len(res) != 1 || res[0].AttemptId != "bad" || !contains(res[0].Reason, words) {
			t.Errorf("got refusals %v, want one with %q", res, words)
		}
	}
	// A name that somebody else has taken.
	other := r.job("good")
	other.ObjectMeta = metav1.ObjectMeta{Name: other.Name, Namespace: other.Namespace}
	r.remove([]string{"good"}, nil)
	r.ended("good")
	r.remove(nil, []string{"good"})
	other.Spec.Selector, other.Spec.Template.Labels = nil, nil
	until(t, "the name is taken", func() bool {
		_, err := r.admin.BatchV1().Jobs(r.cfg.Namespace).Create(t.Context(), other, metav1.CreateOptions{})
		return err == nil
	})
	if res := r.apply(attempt("good", "", nil)); len(res) != 1 || !contains(res[0].Reason, "somebody else's") {
		t.Errorf("got refusals %v, want one that names the Job", res)
	}
	if res := r.apply(attempt("registry", "", func(a *adapterv1.Attempt) { a.ImageId = "registry.example:5000/team/app:v1" })); len(res) != 0 {
		t.Errorf("an image reference was refused: %v", res)
	}
	for range 3 {
		if res := r.apply(attempt("registry", "", nil)); len(res) != 0 {
			t.Errorf("applied again: %v", fmt.Sprint(res))
		}
	}
}
