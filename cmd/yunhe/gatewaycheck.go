package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/bus"
)

const (
	// leastDisk is what a gateway needs for itself, its logs and what jobs
	// write while they run.
	leastDisk = 1 << 30
	// mostSkew is how far the clocks of machine and platform may be apart. Runs
	// are billed by the machine's clock; what keeps time at all is within it.
	mostSkew = 30 * time.Second
	// checkTimeout bounds one look at the platform or one run.
	checkTimeout = 20 * time.Second
)

// machineCheck is something a machine must have to be a center.
type machineCheck struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Found   string `json:"found"`
	Problem string `json:"problem"`
	Todo    string `json:"todo"`
}

// machineReport is what `gateway check` answers. `center join` reads it.
type machineReport struct {
	Version string         `json:"version"`
	Checks  []machineCheck `json:"checks"`
	// Of the gateway whose folder it is; empty if it has not joined.
	AiCenterID string `json:"aiCenterId"`
	PublicKey  string `json:"publicKey"`
	Joined     bool   `json:"joined"`
}

func gatewayCheckCommand(c *cli) *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use: "check", Short: "Check whether this machine can be a center of a platform",
		Long: `Checks whether this machine can be a computing center of the platform: runs a
command isolated, looks at the disk, reaches the platform and compares the
clocks. It changes nothing. The exit status is 1 if something is missing.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := c.target()
			if err != nil {
				return err
			}
			r := machineReport{Version: buildVersion()}
			if err := r.member(data); err != nil {
				return err
			}
			r.Checks = append(r.Checks, checkIsolation(cmd.Context()), checkDisk(data))
			r.Checks = append(r.Checks, checkPlatform(cmd.Context(), t.server, time.Now)...)
			missing := 0
			for _, k := range r.Checks {
				if !k.OK {
					missing++
				}
			}
			err = c.print(result{msg: r, print: func(w io.Writer, color bool) error { return r.print(w, color) }})
			if err == nil && missing > 0 {
				err = exitStatus(exitFailed)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&data, "data", "gateway-data", "folder for the gateway's key and its runs")
	return cmd
}

func (r *machineReport) print(w io.Writer, color bool) error {
	t := text.NewTable("CHECK", "RESULT", "FOUND")
	for _, k := range r.Checks {
		cell, found := text.Cell{Text: "ok", Color: text.Green}, k.Found
		if !k.OK {
			cell, found = text.Cell{Text: "missing", Color: text.Red}, k.Problem+"; "+k.Todo
		}
		t.Row(k.Name, cell, found)
	}
	return t.Write(w, color)
}

// member reads whose folder it is.
func (r *machineReport) member(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "gateway.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the gateway's membership: %w", err)
	}
	var m struct {
		Seed     string `json:"seed"`
		CenterID string `json:"ai_center_id"`
		JWT      string `json:"bus_jwt"`
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return nil // half a membership is none; the gateway says so itself
	}
	r.AiCenterID, r.Joined = m.CenterID, m.JWT != ""
	r.PublicKey, err = bus.PublicKey(m.Seed)
	if err != nil {
		r.PublicKey = ""
	}
	return nil
}

func pass(name, format string, args ...any) machineCheck {
	return machineCheck{Name: name, OK: true, Found: fmt.Sprintf(format, args...)}
}

func lacks(name, todo, format string, args ...any) machineCheck {
	return machineCheck{Name: name, Problem: fmt.Sprintf(format, args...), Todo: todo}
}

// checkIsolation runs a command as jobs are run, in groups and with user IDs
// that no gateway of this machine has.
func checkIsolation(ctx context.Context) machineCheck {
	const name, todo = "isolation", "run as root, outside of containers that forbid it, on a Linux with namespaces and control groups"
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease") // for people only
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "yunhe-check-")
	if err != nil {
		return lacks(name, "make room in "+os.TempDir(), "no folder for a run: %v", err)
	}
	id := fmt.Sprintf("check-%d", os.Getpid())
	defer removeCheck(dir, id)
	sb, err := sandbox.New(sandbox.Config{Dir: filepath.Join(dir, "runs"), GatewayID: id, FirstUID: 400_000, UIDs: 16}, slog.New(slog.DiscardHandler))
	if err != nil {
		return lacks(name, todo, "%v", err)
	}
	defer sb.Close()
	if _, err := sb.Adopt(ctx); err != nil {
		return lacks(name, todo, "%v", err)
	}
	run, err := sb.Start(ctx, sandbox.Spec{ID: "check", Command: "exit 0", CPUMilli: 100, MemoryBytes: 64 << 20, WallTime: checkTimeout})
	if err != nil {
		return lacks(name, todo, "%v", err)
	}
	select {
	case <-run.Done():
	case <-ctx.Done():
		_ = run.Stop() // its wall time ends it too
		return lacks(name, todo, "a command was started and did not end within %s", checkTimeout)
	}
	res, _ := run.Result()
	if res.Reason != runner.Completed {
		return lacks(name, todo, "a command could not be run: %s %s", res.Reason, res.Message)
	}
	if err := sb.Remove("check"); err != nil {
		return lacks(name, todo, "%v", err)
	}
	return pass(name, "Linux %s", strings.TrimSpace(string(kernel)))
}

// removeCheck takes away what a check left, as far as it goes.
func removeCheck(dir, id string) {
	for _, pattern := range []string{"/sys/fs/cgroup/*/yunhe/" + id, "/sys/fs/cgroup/yunhe/" + id} {
		found, _ := filepath.Glob(pattern) // the pattern is valid
		for _, p := range found {
			_ = os.Remove(filepath.Join(p, ".runners"))
			_ = os.Remove(p)
		}
	}
	_ = os.RemoveAll(dir)
}

func checkDisk(dir string) machineCheck {
	const name = "disk"
	dir, err := filepath.Abs(dir)
	if err != nil {
		return lacks(name, "name another folder with --data", "%v", err)
	}
	for { // the folder may have to be made
		var st syscall.Statfs_t
		err := syscall.Statfs(dir, &st)
		switch {
		case errors.Is(err, fs.ErrNotExist) && dir != "/":
			dir = filepath.Dir(dir)
			continue
		case err != nil:
			return lacks(name, "name another folder", "%s: %v", dir, err)
		}
		free := int64(st.Bavail) * int64(st.Bsize) //nolint:unconvert // differs by machine
		if free < leastDisk {
			return lacks(name, "make room there, or name another folder", "%s has %s free, %s are needed", dir, text.Bytes(free), text.Bytes(leastDisk))
		}
		return pass(name, "%s free in %s", text.Bytes(free), dir)
	}
}

// checkPlatform asks the platform to admit a gateway without a token, which
// any platform refuses in its own words, and looks at its clock.
func checkPlatform(ctx context.Context, server string, now func() time.Time) []machineCheck {
	const name, todo = "platform", "let this machine reach that address, or name one it reaches"
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server+"/yunhe.adapters.v1.AdapterService/Join", strings.NewReader("{}"))
	if err != nil {
		return []machineCheck{lacks(name, todo, "%s is no address: %v", server, err)}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Connect-Protocol-Version", "1")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	began := now()
	res, err := client.Do(req)
	if err != nil {
		return []machineCheck{lacks(name, todo, "%s cannot be reached: %v", server, err)}
	}
	took := now().Sub(began)
	defer func() { _ = res.Body.Close() }() // read only
	b, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	var answer struct {
		Code string `json:"code"`
	}
	if json.Unmarshal(b, &answer) != nil || answer.Code != "invalid_argument" && answer.Code != "unauthenticated" {
		return []machineCheck{lacks(name, todo, "what answers at %s is no Yunhe platform (HTTP %d)", server, res.StatusCode)}
	}
	return []machineCheck{pass(name, "%s answers within %s", server, took.Round(time.Millisecond)), checkClock(res.Header.Get("Date"), began.Add(took/2))}
}

// checkClock compares the platform's clock, known to the second, with ours.
func checkClock(date string, ours time.Time) machineCheck {
	const name, todo = "clock", "set the clock of the machine, best with NTP"
	theirs, err := http.ParseTime(date)
	if err != nil {
		return lacks(name, todo, "the platform does not say what time it is")
	}
	skew := ours.Sub(theirs.Add(500 * time.Millisecond))
	if skew.Abs() > mostSkew {
		return lacks(name, todo, "this machine's clock differs from the platform's by %s, %s is the most", skew.Round(time.Second), mostSkew)
	}
	if skew.Abs() < time.Second {
		skew = 0
	}
	return pass(name, "within %s of the platform's", max(time.Second, skew.Abs().Round(time.Second)))
}
