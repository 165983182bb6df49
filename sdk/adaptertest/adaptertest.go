// Package adaptertest is the suite every driver passes before a platform
// relies on it. It knows a driver only through its contract
// (api/yunhe/adapter/v1) and treats it as the platform does: it calls from
// several sides at once, breaks off calls, kills the driver at any moment,
// starts it again and expects that nothing was run twice and nothing was lost.
//
// A driver's author writes one test:
//
//	func TestConformance(t *testing.T) {
//		adaptertest.Run(t, adaptertest.Config{
//			Start:   adaptertest.Program{Command: []string{"./driver"}}.Start,
//			ImageID: "host", SpecID: "small",
//		})
//	}
//
// Every check is a subtest, so one can be run by itself with -run. What a
// backend cannot do is left out by name with a reason ([Config.Skip]), and a
// check that needs a hook which is not set is skipped; both are said aloud. A
// failure says what the contract wants, what came, and what depends on it.
//
// The suite leaves the backend as it found it: what it applied is stopped and
// forgotten at the end of each check.
package adaptertest

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// Config says how the driver is reached and what its backend can do. Only
// Start, ImageID and SpecID are needed; each further field makes more checks
// possible.
type Config struct {
	// Start starts the driver, each time against the same backend. It fails t
	// if it cannot. [Program.Start] is one; so is a function that calls [Serve].
	Start func(t testing.TB) *Instance

	// ImageID and SpecID are of an image and a specification that exist here,
	// Resources what an attempt asks for: little, so that eight fit at once.
	ImageID, SpecID string
	Resources       map[string]int64

	// Commands are what attempts run; by default lines of a POSIX shell.
	Commands Commands

	// Shared is a folder that attempts can write to and this test can read.
	// Attempts then mark there that they ran, which proves that none ran twice
	// even if the log of a first run is lost; without it the log is the proof.
	Shared string
	// Runs counts how often the backend has run an attempt in all: a better
	// proof than the log where commands run for show only.
	Runs func(t testing.TB, attemptID string) int

	// Waiting are resources that are right in themselves but not free for as
	// long as the test lasts, so that an attempt that asks for them waits.
	// Unset: this backend has no queue.
	Waiting map[string]int64

	// Break cuts the driver off from its backend, Repair ends that.
	Break, Repair func(t testing.TB)
	// Delete makes the backend lose a running attempt behind the driver's back.
	Delete func(t testing.TB, attemptID string)
	// Change changes a node or the capacity at the backend and returns how to
	// undo that; Watch must tell both.
	Change func(t testing.TB) (undo func())

	// Skip has the checks, by name ("logs/rotation" or all of "logs"), that
	// this backend cannot pass, and why.
	Skip map[string]string

	// Parallel has the checks that do not touch the backend itself run at the
	// same time, each with an instance of its own: faster, where there is room.
	Parallel bool
	// Patience is how long something the backend does may take, from Apply to
	// a command's end; 30 seconds if 0.
	Patience time.Duration
	// CallTimeout is how long any call may take, also when the backend is
	// cut off; 10 seconds, after which the platform gives up, if 0.
	CallTimeout time.Duration
}

// Commands are what attempts run in this suite.
type Commands struct {
	// Print writes the text, nothing else, and ends with status 0.
	Print func(text string) string
	// Exit ends with a status.
	Exit func(code int) string
	// Wait runs for an hour and ends soon after SIGTERM.
	Wait string
	// NoShell says that commands are not run by a POSIX shell. Checks that
	// need one are skipped.
	NoShell bool
}

// check is one thing a driver must keep.
type check struct {
	name  string
	needs need
	run   func(e *env)
}

// need is what a check needs beyond a driver.
type need int

const (
	needsNothing need = 0
	needsShell   need = 1 << iota
	needsWaiting
	needsBreak
	needsDelete
	needsChange
	needsSuspend // these are claimed by Describe
	needsExec
	needsAccount
	needsStorage
	needsNode
	needsChoice
)

// missing says what c lacks for a check, "" if nothing.
func (c Config) missing(n need) string {
	switch {
	case n&needsShell != 0 && c.Commands.NoShell:
		return "commands are not run by a shell (Commands.NoShell)"
	case n&needsWaiting != 0 && c.Waiting == nil:
		return "Config.Waiting is not set: nothing ever waits at this backend"
	case n&needsBreak != 0 && (c.Break == nil || c.Repair == nil):
		return "Config.Break and Repair are not set"
	case n&needsDelete != 0 && c.Delete == nil:
		return "Config.Delete is not set"
	case n&needsChange != 0 && c.Change == nil:
		return "Config.Change is not set"
	}
	return ""
}

// Names are the names of the checks there are, as used in [Config.Skip].
func Names() []string {
	var out []string
	for _, c := range checks() {
		out = append(out, c.name)
	}
	return out
}

// Run runs every check against the driver, one after the other unless
// [Config.Parallel] is set.
func Run(t *testing.T, c Config) {
	c, err := c.complete()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range checks() {
		t.Run(k.name, func(t *testing.T) {
			if why := c.skipped(k); why != "" {
				t.Skipf("NOT CHECKED: %s", why)
			}
			if c.Parallel && k.needs&(needsBreak|needsDelete|needsChange|needsNode) == 0 {
				t.Parallel()
			}
			runCheck(t, c, k)
		})
	}
}

// complete fills in the defaults.
func (c Config) complete() (Config, error) {
	if c.Start == nil || c.ImageID == "" || c.SpecID == "" {
		return c, fmt.Errorf("adaptertest.Config needs Start, ImageID and SpecID; got image %q, specification %q", c.ImageID, c.SpecID)
	}
	all := Names()
	for _, name := range slices.Sorted(maps.Keys(c.Skip)) {
		if !slices.ContainsFunc(all, func(n string) bool { return covers(name, n) }) {
			return c, fmt.Errorf("adaptertest.Config.Skip names %q, which is no check; there are %q", name, all)
		}
		if c.Skip[name] == "" {
			return c, fmt.Errorf("adaptertest.Config.Skip[%q] gives no reason", name)
		}
	}
	if c.Commands.Print == nil {
		c.Commands.Print = func(text string) string { return "printf '" + octal(text) + "'" }
	}
	if c.Commands.Exit == nil {
		c.Commands.Exit = func(code int) string { return fmt.Sprintf("exit %d", code) }
	}
	if c.Commands.Wait == "" {
		c.Commands.Wait = "exec sleep 3600"
	}
	if c.Patience == 0 {
		c.Patience = 30 * time.Second
	}
	if c.CallTimeout == 0 {
		c.CallTimeout = 10 * time.Second
	}
	return c, nil
}

// covers reports whether a name of Skip means a check.
func covers(skip, name string) bool {
	return skip == name || len(name) > len(skip) && name[:len(skip)] == skip && name[len(skip)] == '/'
}

// skipped says why a check is not run, "" if it is.
func (c Config) skipped(k check) string {
	for name, why := range c.Skip {
		if covers(name, k.name) {
			return why
		}
	}
	return c.missing(k.needs)
}

// octal writes text for printf of a POSIX shell: any byte but zero survives.
func octal(text string) string {
	out := make([]byte, 0, 4*len(text))
	for _, b := range []byte(text) {
		if b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == ' ' || b == '-' || b == '.' {
			out = append(out, b)
			continue
		}
		out = fmt.Appendf(out, `\%03o`, b)
	}
	return string(out)
}
