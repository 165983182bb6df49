package app

import (
	"context"
	"crypto/tls"
	"net/http"
	"time"

	"yunhe.dev/yunhe/internal/fault"
)

// Alive asks the process that listens on this machine as cfg says whether it
// lives. It returns fault.Unavailable if that does not answer.
func Alive(ctx context.Context, cfg *Config) error {
	if cfg.Listen.CertFile != "" {
		return alive(ctx, "https://"+cfg.Listen.Address)
	}
	return alive(ctx, "http://"+cfg.Listen.Address)
}

func alive(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/healthz", nil)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "%s cannot be asked", url)
	}
	// It asks this very machine, whatever name is in the certificate.
	res, err := (&http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}).RoundTrip(req)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "%s does not answer", url)
	}
	if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusOK {
		return fault.New(fault.Unavailable, "%s answers %s", url, res.Status)
	}
	return nil
}
