package enginetest

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
)

// FakeNode is the annotation that makes kwok play a node: name and value.
const (
	FakeNodeKey   = "kwok.x-k8s.io/node"
	FakeNodeValue = "fake"
)

const fixEngines = "`make deps-engines`"

//go:embed kwok.yaml
var kwokStages []byte

// StartKwok adds kwok to a control plane: it plays the kubelet of every node
// with the annotation FakeNodeKey, also of thousands. How a pod there goes is
// said by its environment, see kwok.yaml. It ends with the control plane.
func (k *Kubernetes) StartKwok(ctx context.Context) error {
	path, ok := find("kwok", builtDir())
	if !ok {
		return &MissingError{Engine: "kwok", Need: "no kwok found", Fix: fixEngines}
	}
	k.programs["kwok"] = path
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	config := k.path("kwok.yaml")
	if err := os.WriteFile(config, kwokStages, 0o600); err != nil {
		return fmt.Errorf("write stages of kwok: %w", err)
	}
	p, err := k.run("kwok",
		"--kubeconfig="+k.Kubeconfig, "--config="+config, "--manage-all-nodes=false", "--manage-nodes-with-annotation-selector="+FakeNodeKey+"="+FakeNodeValue,
		"--cidr=10.0.0.1/16", "--node-ip=127.0.0.1", "--node-port="+strconv.Itoa(ports[0]), "--server-address=127.0.0.1:"+strconv.Itoa(ports[1]),
		"--tls-cert-file="+filepath.Join(k.path("certs"), "apiserver.crt"), "--tls-private-key-file="+filepath.Join(k.path("certs"), "apiserver.key"),
		"--node-lease-duration-seconds=40")
	if err != nil {
		return err
	}
	return p.ready(ctx, func(ctx context.Context) error {
		return httpGet(ctx, "http://127.0.0.1:"+strconv.Itoa(ports[1])+"/healthz", http.StatusOK)
	})
}
