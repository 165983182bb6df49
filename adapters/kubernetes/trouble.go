package kubernetes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// howto is where an operator reads what the driver's account may do.
const howto = "docs/howto/kubernetes.md"

// explain says in a sentence what is wrong with the cluster and what to do.
// skew is how far the cluster's clock is ahead of ours.
func explain(err error, server string, skew time.Duration) string {
	clock := ""
	if skew > time.Minute || skew < -time.Minute {
		clock = fmt.Sprintf("; its clock differs from the driver's by %s: set both", skew.Round(time.Second))
	}
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var dns *net.DNSError
	var netErr net.Error
	switch {
	case err == nil:
		return ""
	case apierrors.IsUnauthorized(err):
		return fmt.Sprintf("the API server %s refuses the credentials (401): the token or certificate is wrong or has expired; put a valid one into the center's kubeconfig%s", server, clock)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("the driver's account lacks a permission: %s; grant it as %s says", serverWords(err), howto)
	case errors.As(err, &unknown):
		return fmt.Sprintf("the certificate of the API server %s is not signed by the authority of the kubeconfig: put the cluster's certificate-authority-data into it, or check who answers at that address", server)
	case errors.As(err, &host):
		return fmt.Sprintf("the certificate of the API server %s is for another name (%v): correct server, or set tls-server-name in the kubeconfig", server, host)
	case errors.As(err, &invalid):
		return fmt.Sprintf("the certificate of the API server %s is not valid (%v): renew it, or check the clocks%s", server, invalid, clock)
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fmt.Sprintf("what answers at %s does not speak TLS: correct server in the kubeconfig", server)
	case strings.Contains(err.Error(), "remote error: tls:"):
		return fmt.Sprintf("the API server %s breaks off the TLS handshake (%v): check the client certificate in the kubeconfig", server, err)
	case errors.As(err, &dns):
		return fmt.Sprintf("the name of the API server %s cannot be resolved (%v): correct server in the kubeconfig, or the name service", server, dns)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("the API server %s refuses connections: nothing listens there; start it, or correct server in the kubeconfig", server)
	case strings.Contains(err.Error(), "error from a previous attempt: EOF"):
		return fmt.Sprintf("the API server %s breaks off its answers (EOF): check it and what is between", server)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return fmt.Sprintf("the API server %s does not answer in time: check it and the network between", server)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return fmt.Sprintf("the API server %s breaks off its answers (%v): check it and what is between", server, root(err))
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("the API server %s does not know what it should (404: %s): it is not the address of a Kubernetes API server, or an object is missing", server, serverWords(err))
	case apierrors.IsTooManyRequests(err):
		return fmt.Sprintf("the API server %s has too much to do (429): wait, or raise the share of the driver's flow", server)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code >= 500 {
		return fmt.Sprintf("the API server %s fails (%d: %s): look at its log and at etcd", server, status.Status().Code, serverWords(err))
	}
	return fmt.Sprintf("the API server %s cannot be used: %v", server, root(err))
}

// serverWords is what the API server said, without the client's own words.
func serverWords(err error) string {
	var s apierrors.APIStatus
	if errors.As(err, &s) && s.Status().Message != "" {
		return strings.TrimSpace(s.Status().Message)
	}
	return err.Error()
}

// root is the innermost error, which says most in fewest words.
func root(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// code is the connect code of a request's failure.
func code(err error) connect.Code {
	switch {
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	case apierrors.IsUnauthorized(err):
		return connect.CodeUnavailable // the driver's credentials, not the caller's
	case apierrors.IsForbidden(err) && exceeded(err):
		return connect.CodeResourceExhausted
	default:
		return connect.CodeUnavailable
	}
}

// exceeded reports whether a quota refuses an object.
func exceeded(err error) bool { return strings.Contains(err.Error(), "exceeded quota") }

// final reports whether the cluster has refused an object for what it is, so
// that trying again would not help.
func final(err error) bool {
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) {
		return true
	}
	// A webhook that says no; one that does not answer says 500.
	var s apierrors.APIStatus
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "admission webhook") ||
		errors.As(err, &s) && s.Status().Code >= 400 && s.Status().Code < 500 && strings.Contains(err.Error(), "denied the request") ||
		apierrors.IsForbidden(err) && s != nil && slices.ContainsFunc(causes(s), func(c metav1.StatusCause) bool { return c.Field != "" })
}

func causes(s apierrors.APIStatus) []metav1.StatusCause {
	if d := s.Status().Details; d != nil {
		return d.Causes
	}
	return nil
}

// health collects what is wrong by where it was noticed.
type health struct {
	tell func(trouble string) // called when the sentence changes, under mu

	// mu guards what follows.
	mu    sync.Mutex
	parts map[string]string
	said  string
}

// set says what is wrong at a part; nothing if why is "".
func (h *health) set(part, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if why == "" {
		delete(h.parts, part)
	} else {
		h.parts[part] = why
	}
	h.say()
}

// clear forgets all that was wrong.
func (h *health) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.parts)
	h.say()
}

// say tells the sentence if it is another one; h.mu is held.
func (h *health) say() {
	now := h.parts[partServer]
	if now == "" {
		var all []string
		for _, why := range h.parts {
			if !slices.Contains(all, why) {
				all = append(all, why)
			}
		}
		slices.Sort(all)
		now = strings.Join(all, "; ")
	}
	if now != h.said {
		h.said = now
		h.tell(now)
	}
}

func (h *health) trouble() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.said
}

// partServer is the part whose trouble explains all others.
const partServer = "server"

// partStore is the store behind the server.
const partStore = "store"
