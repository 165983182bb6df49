package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/execlink"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/rpc"
)

// Limits of a command beside a replica's own.
const (
	maxExecArgs  = 256
	maxExecBytes = 32 << 10
	maxTerminal  = 1 << 14 // columns or rows
)

// Exec starts a command beside that of a running replica, in the same sandbox,
// and writes down who did that. The caller closes what it returns; see
// [adapters.Service.Exec]. fault.Conflict if the replica does not run, or its
// center offers no such thing.
func (s *Service) Exec(ctx context.Context, jobID string, task, replica int64, start *adapterv1.ExecStart) (execlink.Command, error) {
	if err := checkExec(start); err != nil {
		return nil, err
	}
	a, err := s.execTarget(ctx, jobID, task, replica)
	if err != nil {
		return nil, err
	}
	start.AttemptId = a.id
	c, err := s.ad.Exec(ctx, a.center, start)
	if err != nil {
		return nil, err
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		return s.ids.AuditTx(ctx, tx, fmt.Sprintf("%s/%d/%d: %s", jobID, task, replica, commandLine(start.Command)))
	})
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// execTarget returns the attempt beside which a command can be run.
func (s *Service) execTarget(ctx context.Context, jobID string, task, replica int64) (*attempt, error) {
	a, _, err := s.attemptFor(ctx, jobID, task, replica, 0)
	if err != nil {
		return nil, err
	}
	which := fmt.Sprintf("replica %d of task %d of job %s", replica, task, jobID)
	switch {
	case a == nil || a.retry:
		return nil, fault.New(fault.Conflict, "%s waits to be placed; nothing runs of it", which)
	case a.ended > 0:
		return nil, fault.New(fault.Conflict, "%s has ended", which)
	case a.stopAsked:
		return nil, fault.New(fault.Conflict, "%s is ending", which)
	case a.pauseAsked || a.state == paused:
		return nil, fault.New(fault.Conflict, "%s is paused; resume the job first", which)
	case a.state != running:
		return nil, fault.New(fault.Conflict, "%s does not run yet", which)
	}
	err = s.db.View(ctx, func(tx *db.Tx) error {
		lacking, err := s.ad.LackingTx(ctx, tx, adapterv1.Feature_FEATURE_EXEC, []string{a.center})
		if err == nil && len(lacking) > 0 {
			err = fault.New(fault.Conflict, "%s runs at center %s, which does not offer to run commands beside it", which, a.center)
		}
		return err
	})
	return a, err
}

func checkExec(start *adapterv1.ExecStart) error {
	var c core.Check
	size := 0
	for i, arg := range start.Command {
		size += len(arg)
		if strings.ContainsRune(arg, 0) || strings.ToValidUTF8(arg, "") != arg {
			c.Add(fmt.Sprintf("command[%d]", i), "must be valid UTF-8 without zero bytes")
		}
	}
	switch {
	case len(start.Command) == 0 || start.Command[0] == "":
		c.Add("command", "is required")
	case len(start.Command) > maxExecArgs:
		c.Add("command", "must be at most %d arguments, got %d", maxExecArgs, len(start.Command))
	case size > maxExecBytes:
		c.Add("command", "must be at most %d bytes in all, got %d", maxExecBytes, size)
	}
	if t := start.Size; t != nil {
		c.Range("columns", int64(t.Columns), 0, maxTerminal)
		c.Range("rows", int64(t.Rows), 0, maxTerminal)
	}
	return c.Err()
}

// commandLine writes a command for people.
func commandLine(args []string) string {
	out := make([]string, len(args))
	for i, a := range args {
		if out[i] = a; a == "" || strings.ContainsAny(a, " \t\n\"'\\$") {
			out[i] = strconv.Quote(a)
		}
	}
	return strings.Join(out, " ")
}

// The frames of a session over a websocket are binary; their first byte is a
// channel, as in the protocol of Kubernetes that others know.
const (
	execProtocol = "v1.exec.yunhe"

	channelInput  = 0
	channelOutput = 1
	channelErrors = 2
	channelStatus = 3 // JSON: execStatus; the last frame
	channelResize = 4 // JSON: terminalSize
	channelClose  = 255

	// maxFrame that a person may send.
	maxFrame = 1 << 20
	// pingEvery shows whether the other side is there.
	pingEvery = 30 * time.Second
	// readerPatience is how long it may take nothing.
	readerPatience = 2 * time.Minute
)

type execStatus struct {
	ExitCode *int32 `json:"exit_code,omitempty"`
	Error    string `json:"error,omitempty"` // the command's end is not known
}

type terminalSize struct {
	Columns int32 `json:"columns"`
	Rows    int32 `json:"rows"`
}

// exec is Exec for callers over a websocket. What is wrong before the command
// runs is answered as any other call's errors are.
func (h handler) exec(w http.ResponseWriter, r *http.Request) error {
	if err := rpc.OnlyParams(r, "command", "terminal", "columns", "rows"); err != nil {
		return err
	}
	start, err := execStart(r)
	if err != nil {
		return err
	}
	if err := checkExec(start); err != nil {
		return err
	}
	j, err := h.s.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	task, replica, err := locate(j, r.PathValue("task"), r.PathValue("replica"))
	if err != nil {
		return err
	}
	// A page of a browser is not told why it gets no session, and asks without one.
	if _, err := h.s.execTarget(r.Context(), j.JobId, int64(task), int64(replica)); err != nil {
		return err
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return fault.New(fault.Invalid, "a command is run over a websocket of the protocol %s; use yunhe job exec, or the console", execProtocol)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	c, err := h.s.Exec(ctx, j.JobId, int64(task), int64(replica), start)
	if err != nil {
		return err
	}
	defer c.Close()
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{execProtocol},
		// A page elsewhere has no key to send, and nothing else lets it in.
		InsecureSkipVerify: true,
	})
	if err != nil {
		return nil // it has been answered
	}
	defer func() { _ = conn.CloseNow() }() // after a proper end it is closed
	conn.SetReadLimit(maxFrame)
	go func() {
		defer cancel()
		defer c.Close()
		hear(ctx, conn, c)
	}()
	go func() {
		defer cancel()
		keepAlive(ctx, conn)
	}()
	stop := context.AfterFunc(ctx, c.Close)
	defer stop()
	tell(ctx, conn, c)
	return nil
}

func execStart(r *http.Request) (*adapterv1.ExecStart, error) {
	q := r.URL.Query()
	var c core.Check
	number := func(name string) int32 {
		if q.Get(name) == "" {
			return 0
		}
		n, err := strconv.ParseInt(q.Get(name), 10, 32)
		if err != nil {
			c.Add(name, "must be an integer, got %q", clip(q.Get(name)))
		}
		return int32(n)
	}
	start := &adapterv1.ExecStart{Command: q["command"], Size: &adapterv1.TerminalSize{Columns: number("columns"), Rows: number("rows")}}
	switch t := q.Get("terminal"); t {
	case "", "0", "false":
	case "1", "true":
		start.Terminal = true
	default:
		c.Add("terminal", "must be true or false, got %q", clip(t))
	}
	return start, c.Err()
}

// hear passes on what the person sends until the connection ends.
func hear(ctx context.Context, conn *websocket.Conn, c execlink.Command) {
	for {
		_, b, err := conn.Read(ctx)
		if err != nil {
			return
		}
		if len(b) == 0 {
			continue
		}
		r := &adapterv1.ExecRequest{}
		switch b[0] {
		case channelInput:
			r.Input = b[1:]
		case channelClose:
			r.InputEnd = true
		case channelResize:
			var s terminalSize
			if json.Unmarshal(b[1:], &s) != nil || s.Columns < 1 || s.Columns > maxTerminal || s.Rows < 1 || s.Rows > maxTerminal {
				continue
			}
			r.Size = &adapterv1.TerminalSize{Columns: s.Columns, Rows: s.Rows}
		default:
			continue
		}
		// A command that takes no more input may go on writing; when it has
		// ended, the other direction says so.
		_ = c.Send(r)
	}
}

// tell passes on what the command does until it has ended.
func tell(ctx context.Context, conn *websocket.Conn, c execlink.Command) {
	write := func(channel byte, b []byte) error {
		ctx, cancel := context.WithTimeout(ctx, readerPatience)
		defer cancel()
		return conn.Write(ctx, websocket.MessageBinary, append([]byte{channel}, b...))
	}
	for {
		r, err := c.Receive()
		st := execStatus{}
		switch {
		case errors.Is(err, io.EOF):
			return // closed by this side
		case err != nil:
			st.Error = "the session was lost"
			if msg, ok := fault.Message(err); ok {
				st.Error = msg
			}
		case r.Ended:
			st.ExitCode = &r.ExitCode
		}
		for _, part := range []struct {
			channel byte
			data    []byte
		}{{channelOutput, r.GetOutput()}, {channelErrors, r.GetErrorOutput()}} {
			if len(part.data) > 0 {
				if write(part.channel, part.data) != nil {
					return
				}
			}
		}
		if err == nil && !r.Ended {
			continue
		}
		b, err := json.Marshal(st)
		if err == nil && write(channelStatus, b) == nil {
			_ = conn.Close(websocket.StatusNormalClosure, "") // the caller may be gone
		}
		return
	}
}

// keepAlive returns when the other side is gone.
func keepAlive(ctx context.Context, conn *websocket.Conn) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			pctx, cancel := context.WithTimeout(ctx, readerPatience)
			err := conn.Ping(pctx)
			cancel()
			if err != nil {
				return
			}
		}
	}
}
