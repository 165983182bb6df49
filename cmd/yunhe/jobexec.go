package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/fault"
)

func jobExecCommand(c *cli) *cobra.Command {
	var sel selection
	var input, terminal bool
	cmd := &cobra.Command{
		Use: "exec JOB -- COMMAND [ARG...]", Short: "Run a command beside a running replica",
		Long: `Runs a command in the sandbox of a running replica: with its files, its user, its
limits, its network and its shares of the accelerator pool. What it writes is passed
on, and its exit status is that of this program. The command ends when this program
does, or with the replica.

Without -i the command has no input. With -t it gets a terminal, which follows
the size of yours; what it writes to standard error comes with the rest then.

The job's record keeps nothing of it; the audit log says who ran what.`,
		Example: `  yunhe job exec JOB -- nvidia-smi
  yunhe job exec JOB --task train --replica 3 -it -- sh
  tar c data | yunhe job exec JOB -i -- tar x`,
		Args: takes(2, -1, "the ID of a job, and a command after --"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			job, err := a.jobs.GetJob(cmd.Context(), &jobsv1.GetJobRequest{JobId: args[0]})
			if err != nil {
				return err
			}
			task, err := sel.resolve(job)
			if err != nil {
				return err
			}
			if task < 0 && len(job.GetSpec().GetTasks()) > 1 {
				return usagef("job %s has %d tasks; name one with --task", job.GetJobId(), len(job.GetSpec().GetTasks()))
			}
			s := &execSession{c: c, a: a, job: job.GetJobId(), task: max(task, 0), replica: int32(max(sel.replica, 0)), command: args[1:], input: input, terminal: terminal}
			return s.run(cmd.Context())
		},
	}
	selectionFlags(cmd, &sel)
	cmd.Flags().Lookup("task").Usage = "of this task, by name or by index from 0 (default: the only one)"
	cmd.Flags().Lookup("replica").Usage = "of this replica of the task, by index from 0 (default: 0)"
	cmd.Flags().Lookup("replica").DefValue = "0"
	cmd.Flags().BoolVarP(&input, "stdin", "i", false, "pass on standard input")
	cmd.Flags().BoolVarP(&terminal, "tty", "t", false, "give the command a terminal")
	return cmd
}

// The frames of a session, see the server's GET …/exec.
const (
	execProtocol = "v1.exec.yunhe"

	channelInput  = 0
	channelOutput = 1
	channelErrors = 2
	channelStatus = 3
	channelResize = 4
	channelClose  = 255

	maxExecFrame = 16 << 20
)

type execSession struct {
	c               *cli
	a               *api
	job             string
	task, replica   int32
	command         []string
	input, terminal bool
	conn            *websocket.Conn
}

func (s *execSession) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := s.dial(ctx); err != nil {
		return err
	}
	defer func() { _ = s.conn.CloseNow() }() // after a proper end it is closed
	s.conn.SetReadLimit(maxExecFrame)
	restore, err := s.raw()
	if err != nil {
		return err
	}
	defer restore()
	if s.terminal {
		go s.follow(ctx)
	}
	go s.send(ctx) // ends with the input, or with the program: reading it cannot be broken off
	return s.receive(ctx)
}

// dial starts the command.
func (s *execSession) dial(ctx context.Context) error {
	q := url.Values{"command": s.command}
	if s.terminal {
		q.Set("terminal", "true")
		if columns, rows, ok := s.c.screen(s.c.out); ok {
			q.Set("columns", strconv.Itoa(columns))
			q.Set("rows", strconv.Itoa(rows))
		}
	}
	address := fmt.Sprintf("%s/v1/jobs/%s/tasks/%d/replicas/%d/exec?%s", strings.TrimSuffix(s.a.target.server, "/"), url.PathEscape(s.job), s.task, s.replica, q.Encode())
	header := http.Header{"User-Agent": {"yunhe/" + buildVersion()}}
	if s.a.target.key != "" {
		header.Set("Authorization", "Bearer "+s.a.target.key)
	}
	dctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, res, err := websocket.Dial(dctx, address, &websocket.DialOptions{HTTPHeader: header, Subprotocols: []string{execProtocol}})
	if err != nil {
		return s.refused(res, err)
	}
	s.conn = conn
	return nil
}

// refused is why there is no session, as the server said it.
func (s *execSession) refused(res *http.Response, err error) error {
	if res == nil {
		return fault.Wrap(fault.Unavailable, err, "no session with %s", s.a.target.server)
	}
	var body struct {
		Code, Message string
		Details       []struct{ Field, Problem string }
	}
	b, rerr := io.ReadAll(res.Body)
	if rerr != nil || json.Unmarshal(b, &body) != nil || body.Message == "" {
		return fault.New(fault.Unavailable, "%s answered %s; is it a Yunhe server of this version?", s.a.target.server, res.Status)
	}
	return fault.New(fault.KindNamed(body.Code), "%s", body.Message)
}

// raw gives the keys of our terminal to the command's.
func (s *execSession) raw() (restore func(), err error) {
	f, ok := s.c.in.(*os.File)
	if !s.terminal || !s.input || !ok || !term.IsTerminal(int(f.Fd())) {
		return func() {}, nil
	}
	before, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("use the terminal: %w", err)
	}
	return func() { _ = term.Restore(int(f.Fd()), before) }, nil // the program ends
}

// follow tells the size of our terminal whenever it changes.
func (s *execSession) follow(ctx context.Context) {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	for {
		select {
		case <-ctx.Done():
			return
		case <-resized:
		}
		if columns, rows, ok := s.c.screen(s.c.out); ok {
			if s.write(ctx, channelResize, fmt.Appendf(nil, `{"columns":%d,"rows":%d}`, columns, rows)) != nil {
				return
			}
		}
	}
}

func (s *execSession) write(ctx context.Context, channel byte, b []byte) error {
	return s.conn.Write(ctx, websocket.MessageBinary, append([]byte{channel}, b...))
}

// send passes on our input.
func (s *execSession) send(ctx context.Context) {
	buf := make([]byte, 32<<10)
	for s.input {
		n, err := s.c.in.Read(buf)
		if n > 0 && s.write(ctx, channelInput, buf[:n]) != nil {
			return
		}
		if err != nil {
			break
		}
	}
	if !s.terminal || s.input { // a terminal without input is not at its end
		_ = s.write(ctx, channelClose, nil) // the session may be over
	}
}

// receive passes on what the command writes and returns how it ended.
func (s *execSession) receive(ctx context.Context) error {
	for {
		_, b, err := s.conn.Read(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fault.Wrap(fault.Unavailable, err, "the session with %s broke; the command is ended", s.a.target.server)
		}
		if len(b) == 0 {
			continue
		}
		to := s.c.out
		switch b[0] {
		case channelErrors:
			to = s.c.err
			fallthrough
		case channelOutput:
			if _, err := to.Write(b[1:]); err != nil {
				return err
			}
		case channelStatus:
			_ = s.conn.Close(websocket.StatusNormalClosure, "") // it is over either way
			return howEnded(b[1:])
		}
	}
}

// howEnded is the command's end as this program's.
func howEnded(b []byte) error {
	var st struct {
		ExitCode *int   `json:"exit_code"`
		Error    string `json:"error"`
	}
	switch err := json.NewDecoder(bytes.NewReader(b)).Decode(&st); {
	case err != nil:
		return fmt.Errorf("the server says something odd about how the command ended: %w", err)
	case st.Error != "":
		return errors.New(st.Error)
	case st.ExitCode == nil || *st.ExitCode == 0:
		return nil
	default:
		return exitStatus(*st.ExitCode)
	}
}
