package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// A session is a command that a node starts in a running container. The node
// does not end it when its connection breaks, so what is started is a shell
// that says its process ID in a line of its own, taken out here, and then
// becomes the command: by that ID a second command ends it and its children,
// which are one process group.
const (
	execScript = `echo $$ && exec "$0" "$@"`
	killScript = `kill -TERM -"$0" 2>/dev/null || exit 0
n=0
while [ $n -lt 20 ]; do
  sleep 0.1 || sleep 1
  kill -0 -"$0" 2>/dev/null || exit 0
  n=$((n+1))
done
kill -KILL -"$0" 2>/dev/null
exit 0`

	// killTimeout bounds how long ending a session may take.
	killTimeout = 10 * time.Second
	// idLength is more than any process ID and its end of line has.
	idLength = 16
)

// Exec runs a command beside the one of a running attempt. Errors: NotFound
// for an attempt that is not known; FailedPrecondition for one that does not
// run, or is suspended; InvalidArgument; Unavailable if the cluster or the node
// cannot be reached or does not permit it.
func (d *Driver) Exec(ctx context.Context, stream *connect.BidiStream[adapterv1.ExecRequest, adapterv1.ExecResponse]) error {
	first, err := stream.Receive()
	if err != nil {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("the first message must have start: %w", err))
	}
	start := first.Start
	if start == nil || len(start.Command) == 0 || start.Command[0] == "" {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("start.command must have at least a program, got %q", start.GetCommand()))
	}
	if err := d.wait(ctx, d.known); err != nil {
		return err
	}
	pod, err := d.running(start.AttemptId)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &session{d: d, c: d.connected(), pod: pod, stream: stream, began: make(chan struct{}), sizes: make(chan remotecommand.TerminalSize, 1), gone: ctx.Done()}
	s.stdin, s.input = io.Pipe()
	go s.listen(cancel, first) // ends with the stream, which ends with this call
	code, err := s.run(ctx, start)
	s.closeInput(io.ErrClosedPipe)
	if ctx.Err() != nil { // the caller has gone
		s.kill(context.WithoutCancel(ctx))
		return connect.NewError(connect.CodeCanceled, ctx.Err())
	}
	if err != nil {
		s.kill(context.WithoutCancel(ctx))
		return s.failed(err)
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	return stream.Send(&adapterv1.ExecResponse{Ended: true, ExitCode: int32(code)}) //nolint:gosec // exit codes are small
}

// running returns the pod of a running attempt.
func (d *Driver) running(id string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.attempts[id]
	if a == nil {
		return "", connect.NewError(connect.CodeNotFound, fmt.Errorf("attempt %q is not known at center %s", id, d.center))
	}
	v := a.now()
	st := decide(id, v).status
	switch {
	case a.over || st.Phase == adapterv1.Phase_PHASE_ENDED:
		return "", connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("attempt %s has ended", id))
	case st.Phase == adapterv1.Phase_PHASE_SUSPENDED:
		return "", connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("attempt %s is suspended: resume it first", id))
	case st.Phase != adapterv1.Phase_PHASE_RUNNING || v.pod == nil:
		return "", connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("attempt %s has not started yet", id))
	}
	return v.pod.name, nil
}

// session is one Exec.
type session struct {
	d      *Driver
	c      *clients
	pod    string
	stream *connect.BidiStream[adapterv1.ExecRequest, adapterv1.ExecResponse]
	stdin  *io.PipeReader
	input  *io.PipeWriter
	sizes  chan remotecommand.TerminalSize
	gone   <-chan struct{} // closed when the session ends
	began  chan struct{}   // closed when id is set

	sending sync.Mutex // guards sends

	// Written before began is closed, by the one who reads the output.
	head []byte
	id   int // process ID of the command
}

// listen passes on what the caller sends until that ends; then cancel is
// called, unless the caller has only said that no more follows.
func (s *session) listen(cancel context.CancelFunc, first *adapterv1.ExecRequest) {
	for m := first; ; {
		if m.Size != nil {
			s.resize(m.Size)
		}
		if len(m.Input) > 0 {
			select { // a terminal would echo it into the line with the ID
			case <-s.began:
			case <-s.gone:
				return
			}
			if _, err := s.input.Write(m.Input); err != nil {
				s.stdin.CloseWithError(err) // the command reads no more: what follows is dropped
			}
		}
		if m.InputEnd {
			s.closeInput(nil)
		}
		var err error
		if m, err = s.stream.Receive(); err != nil {
			if errors.Is(err, io.EOF) {
				s.closeInput(nil)
			} else {
				cancel()
			}
			return
		}
	}
}

// closeInput ends the command's input; it never fails.
func (s *session) closeInput(err error) { _ = s.input.CloseWithError(err) }

// resize keeps the newest size for who reads them.
func (s *session) resize(z *adapterv1.TerminalSize) {
	if z.Columns <= 0 || z.Rows <= 0 || z.Columns > 1<<15 || z.Rows > 1<<15 {
		return
	}
	for size := (remotecommand.TerminalSize{Width: uint16(z.Columns), Height: uint16(z.Rows)}); ; {
		select {
		case s.sizes <- size:
			return
		default:
		}
		select {
		case <-s.sizes:
		default:
		}
	}
}

// Next implements remotecommand.TerminalSizeQueue.
func (s *session) Next() *remotecommand.TerminalSize {
	select {
	case z := <-s.sizes:
		return &z
	case <-s.gone:
		return nil
	}
}

// run runs the command to its end.
func (s *session) run(ctx context.Context, start *adapterv1.ExecStart) (int, error) {
	options := remotecommand.StreamOptions{Stdin: s.stdin, Stdout: execOutput{s, false}, Tty: start.Terminal}
	if start.Terminal {
		options.TerminalSizeQueue = s
		if start.Size != nil {
			s.resize(start.Size)
		}
	} else {
		options.Stderr = execOutput{s, true}
	}
	return s.d.remote(ctx, s.c, s.pod, append([]string{"/bin/sh", "-c", execScript}, start.Command...), options)
}

// execOutput sends one output of a command.
type execOutput struct {
	s     *session
	error bool
}

// Write implements io.Writer.
func (o execOutput) Write(p []byte) (int, error) {
	text := p
	if !o.error {
		text = o.s.unhead(p)
	}
	if len(text) == 0 {
		return len(p), nil
	}
	out := &adapterv1.ExecResponse{Output: text}
	if o.error {
		out = &adapterv1.ExecResponse{ErrorOutput: text}
	}
	o.s.sending.Lock()
	defer o.s.sending.Unlock()
	if err := o.s.stream.Send(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// unhead takes the line with the process ID out of the output.
func (s *session) unhead(p []byte) []byte {
	select {
	case <-s.began:
		return p
	default:
	}
	s.head = append(s.head, p...)
	line, rest, whole := bytes.Cut(s.head, []byte("\n"))
	if !whole && len(s.head) < idLength {
		return nil
	}
	if id, err := strconv.Atoi(strings.TrimSpace(string(line))); whole && err == nil && id > 1 {
		s.id = id
	} else {
		rest = s.head // something else speaks before the command: pass it on
	}
	s.head = nil
	close(s.began)
	return rest
}

// kill ends the command and all its processes.
func (s *session) kill(ctx context.Context) {
	select {
	case <-s.began:
	default:
		return // it was not started
	}
	if s.id == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	if _, err := s.d.remote(ctx, s.c, s.pod, []string{"/bin/sh", "-c", killScript, strconv.Itoa(s.id)}, remotecommand.StreamOptions{Stdout: io.Discard, Stderr: io.Discard}); err != nil {
		s.d.log.Debug("command of a session not ended", "pod", s.pod, "error", err)
	}
}

func (s *session) failed(err error) error {
	if apierrors.IsNotFound(err) {
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("the pod %s is gone", s.pod))
	}
	return s.d.failed(err, s.c)
}

// remote runs a command in a pod's container and returns its exit code: over a
// WebSocket, or SPDY where the API server or what is before it has none.
func (d *Driver) remote(ctx context.Context, c *clients, pod string, command []string, options remotecommand.StreamOptions) (int, error) {
	url := c.logs.CoreV1().RESTClient().Post().Resource("pods").Namespace(d.cfg.Namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdin: options.Stdin != nil, Stdout: options.Stdout != nil,
			Stderr: options.Stderr != nil, TTY: options.Tty}, scheme.ParameterCodec).URL()
	ws, err := remotecommand.NewWebSocketExecutor(c.rest, "GET", url.String())
	if err != nil {
		return 0, fmt.Errorf("exec in pod %s: %w", pod, err)
	}
	spdy, err := remotecommand.NewSPDYExecutor(c.rest, "POST", url)
	if err != nil {
		return 0, fmt.Errorf("exec in pod %s: %w", pod, err)
	}
	either, err := remotecommand.NewFallbackExecutor(ws, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return 0, fmt.Errorf("exec in pod %s: %w", pod, err)
	}
	err = either.StreamWithContext(klog.NewContext(ctx, logr.Discard()), options) // the error says it
	var exit utilexec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitStatus(), nil
	}
	if err != nil {
		return 0, fmt.Errorf("exec in pod %s: %w", pod, typed(err))
	}
	return 0, nil
}

// typed gives back what it was to a refusal that a failed upgrade has made a
// text of.
func typed(err error) error {
	var status apierrors.APIStatus
	text := err.Error()
	at := strings.Index(text, `pods "`)
	if errors.As(err, &status) || at < 0 {
		return err
	}
	reason := metav1.StatusReasonForbidden
	switch {
	case strings.Contains(text, " is forbidden: "):
	case strings.Contains(text, " not found"):
		reason = metav1.StatusReasonNotFound
	default:
		return err
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: reason, Message: text[at:]}}
}
