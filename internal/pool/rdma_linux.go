package pool

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os/exec"
	"strings"

	"yunhe.dev/yunhe/internal/pool/between"
)

// checkRDMA asks a worker whether programs can come over RDMA to an address: a
// maker's library is none of the node's.
func (n *Node) checkRDMA(address string) error {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return err
	}
	if a.IP == nil {
		a.IP = net.IPv4zero
	}
	ctx, cancel := context.WithTimeout(context.Background(), helloTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.program, "rdma", a.IP.String())
	cmd.Env = append(workerEnv(n.cfg.Dir, nodes), between.RDMAEnv+"="+a.IP.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.New(cmp.Or(strings.TrimPrefix(strings.TrimSpace(string(out)), "error: "), err.Error()))
	}
	return nil
}

// rdmaEnv tells workers where programs may go on over RDMA.
func (n *Node) rdmaEnv() string {
	var hosts []string
	for _, at := range n.rdma {
		host, _, _ := net.SplitHostPort(at) // it is a listener's
		hosts = append(hosts, host)
	}
	return between.RDMAEnv + "=" + strings.Join(hosts, " ")
}
