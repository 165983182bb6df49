package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/template"
	"time"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/internal/app"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools/agent"
	"yunhe.dev/yunhe/internal/pools/pods"
)

// shareInto has slices for programs that others start: what these need is put
// into a folder. Those of CUDA have the driver themselves where the slices are to be
// on this machine's node, unless remote says that a worker computes for them. It
// returns when the slices end, or ctx does.
func (c *cli) shareInto(ctx context.Context, s *sliceFlags, spec pool.Spec, remote bool, dir string) error {
	near, how := s.only() && !remote, "--into and without --local only"
	if remote {
		how = "--remote"
	}
	if !near {
		if err := oneCard(how, spec.API, int(s.cards)); err != nil {
			return err
		}
	}
	put, err := c.prepare(dir, near)
	if err != nil {
		return err
	}
	a, err := c.api()
	if err != nil {
		return err
	}
	tasks, err := c.take(ctx, a, s, spec)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		defer t.Client.Close()
	}
	if !near {
		if err := oneCard(how, tasks[0].API, len(tasks)); err != nil { // those of a slice that is held
			return err
		}
	}
	file, err := put(tasks)
	if err != nil {
		return err
	}
	return hold(ctx, tasks, file)
}

// prepare puts the client library into a folder, and removes what there is of
// slices that have ended. What it returns says there where slices are; near says that
// programs of CUDA have the driver themselves.
func (c *cli) prepare(dir string, near bool) (put func([]*agent.Task) (*sliceFile, error), err error) {
	file := filepath.Join(dir, pool.SliceFile)
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fault.Wrap(fault.Invalid, err, "--into %s", dir)
	}
	vendors, err := pool.Library(dir)
	if err != nil {
		return nil, err
	}
	cuda, err := pool.RemoteCUDA(dir)
	if err != nil {
		return nil, err
	}
	loads := filepath.Join(cuda, "libcuda.so.1")
	if near {
		if loads, err = pool.CUDALibrary(dir); err != nil {
			return nil, err
		}
	}
	for _, p := range []string{vendors, filepath.Join(vendors, "yunhe.icd"), cuda, filepath.Join(dir, pool.LoaderFolder)} { // programs may be other users'
		if err := os.Chmod(p, 0o755); err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "--into %s", dir)
		}
	}
	return func(tasks []*agent.Task) (*sliceFile, error) {
		var cards []string
		finds := "OCL_ICD_VENDORS=" + vendors + " (and LD_LIBRARY_PATH=" + filepath.Join(dir, pool.LoaderFolder) + ", if they find no loader of OpenCL)"
		if tasks[0].API == pool.CUDA {
			finds = "LD_PRELOAD=" + loads
			if near {
				if t := far(tasks); t != nil {
					return nil, fault.New(fault.Unavailable, "the node of task %s is reached at %s: programs that have the driver of CUDA themselves come by a Unix socket. Have the node listen at one that this user may open (--listen unix:PATH), or say where its shared one is (--node-socket)", t.ID, t.At)
				}
				inOrder(tasks)
				cards = pool.CUDACards(cudaCards(tasks)...)
			}
		}
		f, err := writeSlices(file, tasks, cards...)
		if err != nil {
			return nil, err
		}
		c.note("yunhe pool: task %s is ready, for programs with %s=%s and %s", tasks[0].ID, pool.FileVariable, file, finds)
		return f, nil
	}, nil
}

// sliceFile is the file by which programs find slices that others start
// (pool.FileVariable). It says where the slices are now, and is gone when one of
// them has ended. nil is none.
type sliceFile struct {
	path string
	more []string // lines beside what says where they are

	mu    sync.Mutex // guards what follows
	tasks []*agent.Task
	at    []string // where each is
	gone  bool
}

// writeSlices writes the file of tasks whose ends nobody waits for yet. It is for all
// who may look into its folder.
func writeSlices(path string, tasks []*agent.Task, more ...string) (*sliceFile, error) {
	f := &sliceFile{path: path, more: more, tasks: tasks}
	for i, t := range tasks {
		f.at = append(f.at, t.At)
		t.Client.Follows = func(at string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.at[i] = at
			if !f.gone {
				_ = f.write() // what was there leads there, too, as long as the node does that it left
			}
		}
	}
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = f.write()
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "%s cannot be written", path)
	}
	return f, nil
}

// write replaces the file. The caller has the lock, or is the only one.
func (f *sliceFile) write() error {
	var text strings.Builder
	lines := f.more
	for i, t := range f.tasks {
		lines = slices.Concat(lines, pool.Environment(i, t.API, f.at[i], t.ID, t.Token))
	}
	for _, line := range lines {
		text.WriteString(line + "\n")
	}
	if err := os.WriteFile(f.path+".new", []byte(text.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(f.path+".new", f.path)
}

// remove has nobody find the slices any more.
func (f *sliceFile) remove() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = true
	_ = os.Remove(f.path) // once
}

// hold has slices until one of them ends, or ctx does; nobody finds them then.
func hold(ctx context.Context, tasks []*agent.Task, file *sliceFile) error {
	defer file.remove()
	ended := make(chan string, len(tasks))
	for _, t := range tasks {
		go func() {
			if why, err := t.Client.Ended(); err == nil && why != "" {
				ended <- "task " + t.ID + ": " + why
			} else if err != nil {
				ended <- "task " + t.ID + ": " + err.Error()
			}
		}()
	}
	select {
	case why := <-ended:
		return fault.New(fault.Unavailable, "%s", why)
	case <-ctx.Done():
		return nil
	}
}

func (c *cli) poolReadyCommand() *cobra.Command {
	var path bool
	cmd := &cobra.Command{
		Use: "ready DIR", Short: "Whether slices are ready in a folder (pool run --into)", Hidden: true,
		Args: takes(1, 1, "a folder"),
		RunE: func(_ *cobra.Command, args []string) error {
			if path {
				_, err := fmt.Fprintln(c.out, pool.SearchPath("/", c.env("LD_LIBRARY_PATH"), filepath.Join(args[0], pool.LoaderFolder)))
				return err
			}
			if _, err := os.Stat(filepath.Join(args[0], pool.SliceFile)); err != nil {
				return fault.New(fault.Unavailable, "%s has no slice yet", args[0])
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&path, "search-path", false, "print the LD_LIBRARY_PATH by which programs find a loader of OpenCL, the folder's if there is no other")
	return cmd
}

type webhookFlags struct {
	listen, cert, key string
	options           pods.Options
}

func (f *webhookFlags) flags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.options.Image, "image", "", "container image of yunhe (make image), for what is put beside containers")
	fl.StringVar(&f.options.Server, "platform-url", "", "address of the platform, as pods reach it")
	fl.StringVar(&f.options.Secret, "secret", "yunhe-pool", "secret of a pod's namespace whose entry key is the API key that slices are asked for with")
	fl.StringVar(&f.options.NodeFolder, "node-folder", "", `shared folder of the pool nodes on the cluster's machines ("shared" in their --data), such as /var/lib/yunhe-pool/shared: pods may have slices on their own machine, and go to machines with the label `+pods.NodeLabel+`=true`)
	fl.StringVar(&f.options.RuntimeClass, "runtime-class", "", "runtime class of pods whose programs have the driver of CUDA themselves, such as nvidia, where they name none")
}

func (f *webhookFlags) check() error {
	switch {
	case f.options.Image == "":
		return usagef("--image is required")
	case !strings.HasPrefix(f.options.Server, "http://") && !strings.HasPrefix(f.options.Server, "https://"):
		return usagef("--platform-url must be the platform's address, such as https://yunhe.example.org, got %q", f.options.Server)
	case f.options.Secret == "":
		return usagef("--secret must not be empty")
	case f.options.NodeFolder != "" && !filepath.IsAbs(f.options.NodeFolder):
		return usagef("--node-folder must be an absolute path of the cluster's machines, got %q", f.options.NodeFolder)
	case f.options.RuntimeClass != "" && f.options.NodeFolder == "":
		return usagef("--runtime-class goes with --node-folder: it is for pods with slices on their own machine")
	}
	return nil
}

func poolWebhookCommand(c *cli) *cobra.Command {
	var f webhookFlags
	cmd := &cobra.Command{
		Use: "webhook", Short: "Have pods of a Kubernetes cluster use the pool",
		Long: `Answers the API server of a cluster, which asks it about pods that ask for shares
among their containers' limits:

  yunhe.dev/pool-compute: 37     # percent of a card's time
  yunhe.dev/pool-memory: 1234    # MiB
  yunhe.dev/pool-cards: 1        # how many cards (default 1)

and, in annotations of the pod, pool.yunhe.dev/group, spec (instead of compute and
memory), api, model, priority, weighted, across-nodes, node, idle and local, as in "yunhe pool
run". Such a container finds the device as the only one of OpenCL, or of CUDA; nothing
else of it changes, and its node needs no accelerator. With pool.yunhe.dev/local: "true"
(and --node-folder) the device is the pod's own machine's, and programs of CUDA have the
driver themselves. Beside it runs a container that has the
slice as long as the pod lives; until the slice has a place, the pod starts nothing.

"yunhe pool webhook manifest" writes what a cluster needs for it.`,
		Example: `  yunhe pool webhook manifest --image registry.example.org/yunhe:1.4.0 --platform-url https://yunhe.example.org | kubectl apply -f -
  kubectl -n team-a create secret generic yunhe-pool --from-file=key`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return c.serveWebhook(cmd.Context(), &f)
		},
	}
	f.flags(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.listen, "listen", ":8443", "address to listen on (HTTPS)")
	fl.StringVar(&f.cert, "cert", "", "file of the certificate (PEM), read anew when it changes")
	fl.StringVar(&f.key, "cert-key", "", "file of its key (PEM)")
	cmd.AddCommand(poolManifestCommand(c))
	return cmd
}

func (c *cli) serveWebhook(ctx context.Context, f *webhookFlags) error {
	if _, err := tls.LoadX509KeyPair(f.cert, f.key); err != nil {
		return fault.Wrap(fault.Invalid, err, "--cert %s and --cert-key %s", f.cert, f.key)
	}
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "--listen %s", f.listen)
	}
	log := newLog(app.LogConfig{Level: os.Getenv("YUNHE_LOG_LEVEL")})
	server := &http.Server{
		Handler: pods.Handler(f.options, log), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(f.cert, f.key)
			return &pair, err
		}},
	}
	context.AfterFunc(ctx, func() {
		bye, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer stop()
		_ = server.Shutdown(bye) // what is not answered by then is asked again
	})
	log.Info("webhook listens", "address", l.Addr().String())
	if err := server.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

//go:embed poolwebhook.yaml
var webhookManifest string

func poolManifestCommand(c *cli) *cobra.Command {
	var f webhookFlags
	var namespace string
	var valid time.Duration
	cmd := &cobra.Command{
		Use: "manifest", Short: "Write what a cluster needs for the webhook (Kubernetes 1.30 or later)",
		Long: `Writes a deployment, its service, a certificate that is made for it, and the
registration at the API server, which asks the webhook only about pods that ask for
shares: others start as ever, also while it is away. The webhook itself has no rights
in the cluster. To renew the certificate, apply what this writes again.`,
		Example: `  yunhe pool webhook manifest --image registry.example.org/yunhe:1.4.0 --platform-url https://yunhe.example.org | kubectl apply -f -`,
		Args:    takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if valid < 24*time.Hour {
				return usagef("--valid must be at least 24h, got %s", valid)
			}
			cert, key, err := selfSigned("yunhe-pool-webhook."+namespace+".svc", valid)
			if err != nil {
				return err
			}
			t := template.Must(template.New("").Funcs(template.FuncMap{"base64": base64.StdEncoding.EncodeToString}).Parse(webhookManifest))
			return t.Execute(c.out, map[string]any{"Namespace": namespace, "Cert": cert, "Key": key, "Options": f.options})
		},
	}
	f.flags(cmd)
	cmd.Flags().StringVar(&namespace, "namespace", "yunhe-pool", "namespace of the webhook")
	cmd.Flags().DurationVar(&valid, "valid", 2*365*24*time.Hour, "how long the certificate is valid")
	return cmd
}

// selfSigned makes a certificate for a name, and its key, in PEM.
func selfSigned(name string, valid time.Duration) (cert, key []byte, err error) {
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	number, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	form := &x509.Certificate{
		SerialNumber: number, Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &secret.PublicKey, secret)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), nil
}
