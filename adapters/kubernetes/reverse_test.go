package kubernetes_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"

	"yunhe.dev/yunhe/internal/enginetest"
)

// reverse stands before a real API server and does something of its own: it
// serves what change takes (which then returns true), and changes answers.
func (r *rig) reverse(k *enginetest.Kubernetes, take func(http.ResponseWriter, *http.Request) bool, change func(*http.Response)) {
	r.tb.Helper()
	u, err := url.Parse(k.URL)
	if err != nil {
		r.tb.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(k.CA)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	p := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(u) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ModifyResponse: func(res *http.Response) error {
			if change != nil {
				change(res)
			}
			return nil
		}}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if take == nil || !take(w, req) {
			p.ServeHTTP(w, req)
		}
	}))
	r.tb.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		transport.CloseIdleConnections()
	})
	r.cfg.KubeconfigFile = r.kubeconfig(s.URL, k.Token, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}
