package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"yunhe.dev/yunhe/bench/platform"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	"yunhe.dev/yunhe/internal/enginetest"
)

// measured is a platform with a gateway, if one was joined.
type measured struct {
	*platform.Platform
	gateway *enginetest.Program
}

// join starts a gateway with so many CPUs and waits until it is connected.
func (p *measured) join(ctx context.Context, cpus int) error {
	id := fmt.Sprintf("submit-%d", os.Getpid()) // names control groups of this machine
	token, err := p.Adapters.CreateJoinToken(ctx, &adaptersv1.CreateJoinTokenRequest{AiCenterId: id})
	if err != nil {
		return fmt.Errorf("make join token: %w", err)
	}
	file := filepath.Join(p.Dir, "center.yaml")
	center := fmt.Sprintf("id: %s\nname: Center\nregion: here\nperformance: 1000\ncpu: \"%d\"\nmemory: 64Gi\nprices: {small: 100}\n", id, cpus)
	if err := os.WriteFile(file, []byte(center), 0o600); err != nil {
		return fmt.Errorf("describe center: %w", err)
	}
	p.gateway, err = enginetest.StartProgram("gateway", p.Binary, p.Dir, []string{"YUNHE_JOIN_TOKEN=" + token.Token},
		"gateway", "--server", p.URL, "--data", filepath.Join(p.Dir, "gateway"), "--center", file, "--log-level", "warn")
	if err != nil {
		return err
	}
	return platform.Poll(ctx, p.gateway, func(ctx context.Context) (bool, error) {
		res, err := p.Adapters.ListGateways(ctx, &adaptersv1.ListGatewaysRequest{})
		return err == nil && len(res.Gateways) == 1 && res.Gateways[0].Connected, err
	})
}

func (p *measured) close() error {
	var err error
	if p.gateway != nil {
		err = p.gateway.Stop()
	}
	return errors.Join(err, p.Platform.Close())
}
