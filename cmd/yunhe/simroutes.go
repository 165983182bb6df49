package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/scheduler/route"
)

func simRoutesCommand(c *cli) *cobra.Command {
	var latencyFile, requestsFile, column, strategies string
	var replicas int
	var seed uint64
	var rate, load float64
	var peaks []string
	t := &route.Traffic{}
	all := make([]string, 0, 4)
	for _, s := range route.Strategies() {
		all = append(all, string(s))
	}
	cmd := &cobra.Command{
		Use: "routes --latency FILE", Short: "How soon users of a service are answered, by how they are routed",
		Long: `Plays a day of a service request by request: every region has users and replicas,
its demand goes up and down with the hour, and each request waits in the queue
of the place it is sent to. Shares are made anew every minute from what was
seen in the minute before.

The latency file is CSV: round trips in milliseconds, a row and a column for
each region. The requests file is CSV too; its column says how much work each
request is, such as tokens generated, and service times are drawn from it;
without it they are exponential.

Strategies: mean-time is Yunhe's; nearest (no user leaves the region), spill (the
nearest until it is full, then the next) and capacity (in proportion to replicas)
are here to be compared with.`,
		Example: `  yunhe sim routes --latency rtt.csv --requests requests.csv --column GeneratedTokens --load 0.7 --swing 0.8`,
		Args:    takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if latencyFile == "" {
				return usagef("--latency is required")
			}
			if replicas < 1 || replicas > 10_000 || !(rate > 0) || !(load > 0) {
				return usagef("--replicas must be 1 to 10000, --rate and --load above 0; got %d, %v and %v", replicas, rate, load)
			}
			regions, err := readTrace(latencyFile, func(r io.Reader) (names []string, err error) {
				names, t.Latency, err = route.ReadLatency(r)
				return names, err
			})
			if err != nil {
				return err
			}
			if requestsFile != "" {
				if t.Work, err = readTrace(requestsFile, func(r io.Reader) ([]float64, error) { return route.ReadWork(r, column) }); err != nil {
					return err
				}
			}
			for i, name := range regions {
				t.Origins = append(t.Origins, route.TrafficOrigin{ID: name, Mean: load * rate * float64(replicas), Peak: 24 * float64(i) / float64(len(regions))})
				t.Places = append(t.Places, route.Place{ID: name, Replicas: replicas, Rate: rate})
			}
			for _, p := range peaks {
				name, hour, _ := strings.Cut(p, "=")
				i, h := slices.Index(regions, name), 0.0
				if h, err = strconv.ParseFloat(hour, 64); err != nil || i < 0 || !(h >= 0 && h < 24) {
					return usagef("--peak %s: want REGION=HOUR with a region of the file and an hour from 0 to 24, UTC", p)
				}
				t.Origins[i].Peak = h
			}
			var out []*route.Outcome
			for _, s := range strings.Split(strategies, ",") {
				x, err := route.Simulate(t, route.Strategy(s), rand.New(rand.NewPCG(seed, 1)))
				if err != nil {
					return err
				}
				out = append(out, x)
			}
			return c.print(result{msg: out, names: strings.Split(strategies, ","), print: func(w io.Writer, color bool) error {
				tab := text.NewTable("STRATEGY", ">MEAN, S", ">P50", ">P95", ">P99", ">WAITED, MEAN", ">LATE, %", ">MOVED, %")
				for _, x := range out {
					tab.Row(string(x.Strategy), fmt.Sprintf("%.3f", x.Mean), fmt.Sprintf("%.3f", x.P50), fmt.Sprintf("%.3f", x.P95), fmt.Sprintf("%.3f", x.P99), fmt.Sprintf("%.3f", x.Waited),
						fmt.Sprintf("%.2f", 100*x.Late), fmt.Sprintf("%.2f", 100*x.Moved))
				}
				return tab.Write(w, color)
			}})
		},
	}
	f := cmd.Flags()
	f.StringVar(&latencyFile, "latency", "", "CSV file with round trips between regions")
	f.StringVar(&requestsFile, "requests", "", "CSV file with recorded requests")
	f.StringVar(&column, "column", "GeneratedTokens", "its column that says how much work a request is")
	f.StringVar(&strategies, "strategy", strings.Join(all, ","), "strategies to compare")
	f.IntVar(&replicas, "replicas", 10, "replicas in each region")
	f.Float64Var(&rate, "rate", 0.2, "requests a second that one replica can serve")
	f.Float64Var(&load, "load", 0.7, "mean demand, as a share of what the replicas can serve")
	f.Float64Var(&t.Swing, "swing", 0.8, "how far demand goes up and down over a day, as a share of its mean")
	f.StringArrayVar(&peaks, "peak", nil, "busiest hour of a region, REGION=HOUR in UTC (default: spread over the day)")
	f.IntVar(&t.Hours, "hours", 24, "how long to play")
	f.Uint64Var(&seed, "seed", 1, "of the dice")
	return cmd
}
