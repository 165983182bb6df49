package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/remotecommand"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// Suspending a Job of Kubernetes ends its pod: the command would begin anew.
// So a suspended attempt keeps its pod, and all processes of it stand still by
// SIGSTOP, which none can catch: the pod shares one process namespace, and a
// shell in it reaches all by one call. What is asked stands at the Job before
// it is done, what was done after it; both signals may come twice.
const (
	freezeScript = `kill -STOP -1 2>/dev/null
n=0
while [ $n -lt 20 ]; do
  left=
  for d in /proc/[0-9]*; do
    p=${d#/proc/}
    if [ "$p" = 1 ] || [ "$p" = $$ ] || ! kill -0 "$p" 2>/dev/null; then continue; fi
    s=
    while read -r k v rest; do
      if [ "$k" = State: ]; then s=$v; break; fi
    done 2>/dev/null <"$d/status"
    case $s in
      '' | T | t | Z | X | x) ;;
      *) left=$p; kill -STOP "$p" 2>/dev/null ;;
    esac
  done
  if [ -z "$left" ]; then exit 0; fi
  n=$((n+1))
  sleep 0.1 || sleep 1
done
echo "process $left does not stop" >&2
exit 3`
	thawScript = `kill -CONT -1 2>/dev/null
exit 0`

	// freezePatience is how long a call in a pod to suspend or resume may take.
	freezePatience = 30 * time.Second
)

// stood is how long an attempt has stood still.
type stood struct {
	Since int64 `json:"since,omitempty"` // it does since then; 0: it runs. Microseconds since 1970 by the cluster's clock
	Total int64 `json:"total,omitempty"` // microseconds before that
}

// until says how long it has stood still in all.
func (s stood) until(now time.Time) time.Duration {
	total := time.Duration(s.Total) * time.Microsecond
	if s.Since > 0 {
		total += max(now.Sub(time.UnixMicro(s.Since)), 0)
	}
	return total
}

// Suspend notes which attempts are to stand still or go on; the rest follows
// from that. An attempt that has not started yet stands still as soon as it
// has.
func (d *Driver) Suspend(ctx context.Context, r *adapterv1.SuspendRequest) (*adapterv1.SuspendResponse, error) {
	c := d.connected()
	if err := d.wait(ctx, d.known); err != nil {
		return nil, err
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(int(d.cfg.ConcurrentRequests))
	for _, id := range r.Suspend {
		group.Go(func() error { return d.askSuspend(gctx, c, id, "true") })
	}
	for _, id := range r.Resume {
		group.Go(func() error { return d.askSuspend(gctx, c, id, nil) })
	}
	if err := group.Wait(); err != nil {
		return nil, d.failed(err, c)
	}
	return &adapterv1.SuspendResponse{}, nil
}

func (d *Driver) askSuspend(ctx context.Context, c *clients, id string, asked any) error {
	d.mu.Lock()
	a := d.attempts[id]
	settled := a != nil && (a.over || a.job == nil || a.job.ended != nil)
	d.mu.Unlock()
	if settled || !attemptID.MatchString(id) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := d.patch(ctx, c, objectName(d.center, id), map[string]any{noteSuspend: asked}, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// settle makes an attempt stand still or go on, and notes that at its Job.
func (d *Driver) settle(ctx context.Context, c *clients, id string, v view, still bool) error {
	script, now := thawScript, c.now()
	stands := v.job.stood
	if still {
		script, stands.Since = freezeScript, now.UnixMicro()
	} else {
		stands = stood{Total: stands.until(now).Microseconds()}
	}
	ctx, cancel := context.WithTimeout(ctx, freezePatience)
	defer cancel()
	var said bytes.Buffer
	code, err := d.remote(ctx, c, v.pod.name, []string{"/bin/sh", "-c", script}, remotecommand.StreamOptions{Stdout: io.Discard, Stderr: &said})
	if err == nil && code != 0 {
		err = fmt.Errorf("its shell says %d: %.200s", code, strings.TrimSpace(said.String()))
	}
	if err != nil {
		d.resist(id, explainExec(err, c, still))
		return err
	}
	d.resist(id, "")
	b, err := json.Marshal(stands)
	if err != nil {
		return fmt.Errorf("state of %s: %w", id, err)
	}
	ctx, cancel = context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return d.patch(ctx, c, v.job.name, map[string]any{noteStood: string(b)}, nil)
}

func explainExec(err error, c *clients, still bool) string {
	what := "resumed"
	if still {
		what = "suspended"
	}
	why := err.Error()
	if apierrors.IsForbidden(err) {
		why = explain(err, c.server, 0)
	}
	return "it is to be " + what + " and cannot be yet: " + why
}

// resist tells why an attempt is not as asked; "": it is.
func (d *Driver) resist(id, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.attempts[id]
	if a == nil || a.view.resists == why {
		return
	}
	a.view.resists = why
	if v := decide(id, a.now()); v.status.Phase != adapterv1.Phase_PHASE_ENDED && !v.check {
		d.tell(a, v.status) // without look, which would try again at once
	}
}

// left is how long a running attempt may go on. Times of a cluster have whole
// seconds, and the command's own timer comes first.
func left(v view, now time.Time) time.Duration {
	const slack = 3 * time.Second
	limit := time.Duration(v.job.timeout)*time.Second + slack
	return limit - (now.Sub(v.pod.started) - v.job.stood.until(now))
}
