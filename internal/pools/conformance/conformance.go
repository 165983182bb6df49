// Package conformance checks an accelerator pool against the 27 tests of clause
// 12, through its API and with real programs, and says which level of table A.1
// it has.
//
// What it keeps true: a test passes only if each of its expected results was
// seen; what cannot be tried is not provided, and never passed. What a check made
// or changed is put back, also when it fails.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"yunhe.dev/yunhe/gen/yunhe/alarms/v1/alarmsv1connect"
	"yunhe.dev/yunhe/gen/yunhe/notices/v1/noticesv1connect"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
)

// Bench is what the checks are made with.
type Bench struct {
	API       poolv1connect.PoolServiceClient // of an administrator
	Operation poolv1connect.PoolOperationServiceClient
	Alarms    alarmsv1connect.AlarmServiceClient
	Notices   noticesv1connect.NoticeServiceClient
	// Yunhe is the yunhe of the administrator, or with key of who has it, on a
	// machine of clients, with more of an environment.
	Yunhe func(ctx context.Context, key string, env []string, args ...string) *exec.Cmd
	// Program is the program of OpenCL that runs on slices.
	Program string
	// Release is another build of yunhe, which nodes and platform are upgraded to;
	// "": none.
	Release string
	// Tenant is the organization of Clients, the keys of two of its users; nil: none.
	Tenant  string
	Clients []Client
	// AddNode starts a node that joins the pool; nil, or Absent: none can be started
	// here.
	AddNode func(ctx context.Context) (Node, error)
	// Look has a person's view of the pool shown, and reports whether it says all
	// of want; nil: the API is asked only.
	Look func(ctx context.Context, tab string, want ...string) error
	// Press does what a person does: presses a button of the row of a key, and
	// chooses in what opens then, if choose is not "". nil: the API is called.
	Press func(ctx context.Context, tab, key, button, choose string) error
}

// Client is a user of the tenant.
type Client struct{ User, Key string }

// Node is a pool node that a check has started.
type Node struct {
	ID string
	// Card puts a card into the node, or takes it out; nil: that cannot be done.
	Card func(in bool) error
	Stop func()
}

// Result is what a test came to.
type Result string

// The results.
const (
	Passed      Result = "passed"
	Failed      Result = "failed"
	NotProvided Result = "not provided"
)

// Verdict is what a test came to, and why.
type Verdict struct {
	ID      string  `json:"id"`
	Title   string  `json:"title"`
	Passed  bool    `json:"passed"`
	Result  Result  `json:"result"`
	Reason  string  `json:"reason,omitempty"`
	Seconds float64 `json:"seconds"`
}

// Report is what all tests came to.
type Report struct {
	Level int       `json:"level"` // of table A.1; 0: none
	Tests []Verdict `json:"tests"`
}

// Test is one of clause 12.
type Test struct {
	ID, Title string
	Level     int // the lowest that needs it (table A.1)
	check     func(ctx context.Context, b *bench) error
}

// absent is the error of what is not provided.
type absent struct{ why string }

func (a absent) Error() string { return a.why }

// Absent is the error of what cannot be tried, such as a node that cannot be added.
func Absent(why string) error { return absent{why} }

// Tests are those of clause 12, with their levels.
var Tests = []Test{
	{"12.1", "Fixed resource configuration", 1, fixed},
	{"12.2", "Dynamic resource request", 2, dynamic},
	{"12.3", "Remote call", 3, remote},
	{"12.4", "Cross-node multi-card aggregation", 3, aggregation},
	{"12.5", "Resource overcommit", 2, overcommit},
	{"12.6", "Resource quota", 2, quota},
	{"12.7", "Named card model", 1, model},
	{"12.8", "Named node", 1, node},
	{"12.9", "Task affinity", 4, affinity},
	{"12.10", "Task queue", 4, queue},
	{"12.11", "Automatic release on idle timeout", 3, idleTimeout},
	{"12.12", "Automatic release on run timeout", 3, runTimeout},
	{"12.13", "Logical resource group", 4, logicalGroup},
	{"12.14", "Custom resource specification", 4, specification},
	{"12.15", "Dual pool", 4, dualPool},
	{"12.16", "Device management", 1, devices},
	{"12.17", "Node management", 1, nodeManagement},
	{"12.18", "Log collection", 1, collected},
	{"12.19", "Monitoring and alarms", 1, alarmed},
	{"12.20", "Component management", 4, components},
	{"12.21", "Statistics and reports", 1, reported},
	{"12.22", "Gray upgrade", 4, gray},
	{"12.23", "Task hot migration", 4, migration},
	{"12.24", "Memory fault-domain isolation", 1, isolation},
	{"12.25", "Dynamic scale-out and scale-in", 4, scale},
	{"12.26", "Heterogeneous compute", 5, heterogeneous},
	{"12.27", "Scheduling policies", 3, policies},
}

// Has reports whether there is such a test.
func Has(id string) bool {
	return slices.ContainsFunc(Tests, func(t Test) bool { return t.ID == id })
}

// Run makes the checks of these tests, all if none are named, and says of each
// what it came to as soon as that is known. Checks change devices and policies
// of the pool while they run.
func Run(ctx context.Context, with Bench, ids []string, say func(Verdict)) Report {
	var r Report
	for _, t := range Tests {
		if len(ids) > 0 && !slices.Contains(ids, t.ID) {
			continue
		}
		v := one(ctx, with, t)
		if ctx.Err() != nil { // it says nothing of the pool
			break
		}
		say(v)
		r.Tests = append(r.Tests, v)
	}
	r.Level = Level(r.Tests)
	return r
}

const checkTime = 5 * time.Minute

func one(ctx context.Context, with Bench, t Test) Verdict {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	b := &bench{Bench: with, name: "conformance"}
	err := b.begin(ctx)
	if err == nil {
		err = t.check(ctx, b)
	}
	if back := b.putBack(context.WithoutCancel(ctx)); err == nil && back != nil {
		err = fmt.Errorf("what the check changed was not put back: %w", back)
	}
	v := Verdict{ID: t.ID, Title: t.Title, Result: Passed, Passed: err == nil, Seconds: float64(time.Since(began).Milliseconds()) / 1000}
	if err != nil {
		v.Result, v.Reason = Failed, err.Error()
		if a := (absent{}); errors.As(err, &a) {
			v.Result = NotProvided
		}
	}
	return v
}

// Level is the highest of table A.1 whose tests have all passed.
func Level(got []Verdict) int {
	for n := 1; n <= 5; n++ {
		for _, t := range Tests {
			if t.Level <= n && !slices.ContainsFunc(got, func(v Verdict) bool { return v.ID == t.ID && v.Passed }) {
				return n - 1
			}
		}
	}
	return 5
}
