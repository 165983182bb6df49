// Command schedule measures how fast Yunhe brings jobs from its queue to the
// centers, durably, with many centers, its state on PostgreSQL and on SQLite.
//
// The platform is a process of its own, and so are the databases. The centers
// are simulated, by one more process: each joins with a token of its own, dials
// the bus with a key of its own, beats every two seconds with figures of its
// use, and answers what it is told to run as a gateway does. It runs nothing:
// it notes when it was told, and reports the run as pending, running and ended
// only if asked to (-run).
//
// What is measured on each database:
//
//   - queue: jobs that wait become due at one moment. From that moment until the
//     last of them was accepted by a center: jobs per second, each decided,
//     committed and dispatched.
//   - steady: jobs arrive at a rate, in small batches from several clients.
//     T is the time from the moment a job was to be sent until its center has
//     it, so that what waits in the clients counts too; it is not less than T
//     of equation 3, which begins with the platform's receiving it.
//
// Beside them: the processor time of platform and database, the platform's
// memory, and a plain loop of SQL that writes and changes as many rows in as
// large transactions on the same server (peer.go), for what the database
// allows on a machine as busy as this one just now.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/bench/platform"
)

// options are the flags.
type options struct {
	databases, parts         []string
	centers, jobs, kinds     int
	rate, batch, clients     int
	steady, run, limit, idle time.Duration
	output                   string
}

// The targets, of PostgreSQL and 1,000 centers.
const (
	rateTarget = 3000 // jobs/s
	p99Target  = 250  // ms
)

func main() {
	if os.Getenv(centersEnv) != "" {
		if err := serveCenters(); err != nil {
			fmt.Fprintln(os.Stderr, "schedule: centers:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "schedule:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o := options{idle: 4 * time.Second}
	flags := flag.NewFlagSet("schedule", flag.ContinueOnError)
	databases := flags.String("databases", "postgres,sqlite", "where the platform keeps its state: postgres, sqlite")
	parts := flags.String("parts", "queue,steady,peer", "what to measure")
	flags.IntVar(&o.centers, "centers", 1000, "simulated centers")
	flags.IntVar(&o.jobs, "jobs", 30000, "jobs that wait in the queue")
	flags.IntVar(&o.kinds, "kinds", 10, "how many different asks there are among the jobs")
	flags.IntVar(&o.rate, "rate", rateTarget, "jobs that arrive per second")
	flags.IntVar(&o.batch, "batch", 30, "jobs that arrive in one request")
	flags.IntVar(&o.clients, "clients", 8, "clients that submit them")
	flags.DurationVar(&o.steady, "steady", 15*time.Second, "how long they arrive")
	flags.DurationVar(&o.run, "run", 0, "how long each job runs; 0: until the measurement is over, and nothing is reported")
	flags.StringVar(&o.output, "o", "table", "table or json")
	flags.DurationVar(&o.limit, "limit", 15*time.Minute, "give up after this long")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.databases, o.parts = strings.Split(*databases, ","), strings.Split(*parts, ",")
	for _, x := range []struct {
		flag       string
		given, all []string
	}{{"-databases", o.databases, []string{"sqlite", "postgres"}}, {"-parts", o.parts, []string{"queue", "steady", "peer"}}, {"-o", []string{o.output}, []string{"table", "json"}}} {
		for _, v := range x.given {
			if !slices.Contains(x.all, v) {
				return fmt.Errorf("%s must be of %s, got %q", x.flag, strings.Join(x.all, ", "), v)
			}
		}
	}
	for name, n := range map[string]int{"-centers": o.centers, "-jobs": o.jobs, "-kinds": o.kinds, "-rate": o.rate, "-batch": o.batch, "-clients": o.clients} {
		if n < 1 {
			return fmt.Errorf("%s must be at least 1, got %d", name, n)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	unix.Sync() // what was written before, such as by a build, is not to be in the way
	var figures []platform.Figure
	var err error
	for _, database := range o.databases {
		fs, merr := measure(ctx, o, database)
		figures = append(figures, fs...)
		if merr != nil {
			err = fmt.Errorf("measure on %s: %w", database, merr)
			break
		}
	}
	return errors.Join(platform.Print(o.output, figures), err)
}
