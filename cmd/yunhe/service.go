package main

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	routingv1 "yunhe.dev/yunhe/gen/yunhe/routing/v1"
)

func serviceCommand(c *cli) *cobra.Command {
	return group("service", groupJobs, "Route users' requests to the centers where replicas run",
		serviceCreateCommand(c), serviceListCommand(c), serviceShowCommand(c), serviceDeleteCommand(c), serviceReportCommand(c), serviceRoutesCommand(c))
}

// serviceFlags are what a service is.
type serviceFlags struct {
	jobs, origins      []string
	endpoints          map[string]string
	rate               float64
	limit              time.Duration
	maxUse, move       int32
	requestID, replace string
}

func serviceCreateCommand(c *cli) *cobra.Command {
	var f serviceFlags
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Route a service deployed as jobs, or change how it is routed",
		Long: `The running replicas of the jobs serve the requests. Origins are the regions its
users are in, with their position if it is known: ID or ID=LONGITUDE,LATITUDE.
Tell what comes from them with "yunhe service report", and read the weights for
your DNS server or gateway with "yunhe service routes".`,
		Example: `  yunhe service create chat --job job_01... --rate 4 --origin north=116.4,39.9 --origin south=113.3,23.1
  yunhe service create chat --job job_01... --rate 4 --origin north --max-latency 40ms --endpoint gz-1=gz1.example.com:443`,
		Args: takes(1, 1, "the name of the service"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s := &routingv1.Service{Name: args[0], JobIds: f.jobs, ReplicaRate: f.rate, MaxLatencyMicroseconds: f.limit.Microseconds(), MaxUsePercent: f.maxUse, MovePercent: f.move, Endpoints: f.endpoints}
			for _, text := range f.origins {
				o, err := parseOrigin(text)
				if err != nil {
					return err
				}
				s.Origins = append(s.Origins, o)
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			if s.ServiceId = f.replace; f.replace != "" {
				s, err = a.routing.UpdateService(cmd.Context(), &routingv1.UpdateServiceRequest{Service: s})
			} else {
				s, err = a.routing.CreateService(cmd.Context(), &routingv1.CreateServiceRequest{RequestId: f.requestID, Service: s})
			}
			if err != nil {
				return err
			}
			return c.printServices(s)
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.jobs, "job", nil, "job whose replicas serve (repeatable)")
	fl.StringArrayVar(&f.origins, "origin", nil, "region of users, ID or ID=LONGITUDE,LATITUDE in degrees (repeatable)")
	fl.Float64Var(&f.rate, "rate", 0, "requests a second that one replica can serve at most")
	fl.DurationVar(&f.limit, "max-latency", 0, "round trip that no user should exceed (0: none)")
	fl.Int32Var(&f.maxUse, "max-use", 0, "per cent of its rate up to which a center is used while others have room (0: 85)")
	fl.Int32Var(&f.move, "move", 0, "per cent of an origin's requests that a change may move (0: 20)")
	fl.StringToStringVar(&f.endpoints, "endpoint", nil, "where a center answers, CENTER=HOST:PORT (repeatable)")
	fl.StringVar(&f.replace, "replace", "", "change this service instead of creating one")
	fl.StringVar(&f.requestID, "request-id", "", "makes the call safe to repeat")
	return cmd
}

// parseOrigin reads ID or ID=LONGITUDE,LATITUDE.
func parseOrigin(s string) (*routingv1.ServiceOrigin, error) {
	id, at, ok := strings.Cut(s, "=")
	o := &routingv1.ServiceOrigin{OriginId: id}
	if !ok {
		return o, nil
	}
	lon, lat, _ := strings.Cut(at, ",")
	x, err1 := strconv.ParseFloat(lon, 64)
	y, err2 := strconv.ParseFloat(lat, 64)
	if err1 != nil || err2 != nil || !(x >= -180 && x <= 180) || !(y >= -90 && y <= 90) {
		return nil, usagef("--origin %s: want ID=LONGITUDE,LATITUDE in degrees, such as north=116.4,39.9", s)
	}
	lonE6, latE6 := int64(x*1e6), int64(y*1e6)
	o.Longitude, o.Latitude = &lonE6, &latE6
	return o, nil
}

func serviceListCommand(c *cli) *cobra.Command {
	var p paging
	cmd := &cobra.Command{
		Use: "list", Short: "List services, newest first", Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			list, next, err := pages(p, func(size int32, token string) ([]*routingv1.Service, string, error) {
				res, err := a.routing.ListServices(cmd.Context(), &routingv1.ListServicesRequest{PageSize: size, PageToken: token})
				return res.GetServices(), res.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			if len(list) == 0 && c.forPeople() {
				c.note("no services; `yunhe service create` makes one")
				return nil
			}
			err = c.printServiceList(list, next)
			c.noteMore(len(list), next)
			return err
		},
	}
	pageFlags(cmd, &p, 100)
	return cmd
}

func serviceShowCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show SERVICE", Short: "Show a service", Args: takes(1, 1, "the ID of a service"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			s, err := a.routing.GetService(cmd.Context(), &routingv1.GetServiceRequest{ServiceId: args[0]})
			if err != nil {
				return err
			}
			return c.printServices(s)
		},
	}
}

func serviceDeleteCommand(c *cli) *cobra.Command {
	return removal{
		use: "delete SERVICE...", short: "Delete services; their jobs go on",
		long: "Deletes services and what was learned of their traffic. Their jobs go on.",
		one:  "service", some: "services", member: "serviceIds", done: "deleted",
		remove: func(cmd *cobra.Command, a *api, id string) error {
			_, err := a.routing.DeleteService(cmd.Context(), &routingv1.DeleteServiceRequest{ServiceId: id})
			return err
		},
	}.command(c)
}

func (c *cli) printServices(s *routingv1.Service) error {
	if !c.forPeople() {
		return c.print(result{msg: s, names: []string{s.GetServiceId()}})
	}
	return c.printServiceList([]*routingv1.Service{s}, "")
}

func (c *cli) printServiceList(list []*routingv1.Service, next string) error {
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.GetServiceId()
	}
	return c.print(result{msg: &routingv1.ListServicesResponse{Services: list, NextPageToken: next}, names: names, print: func(w io.Writer, color bool) error {
		t := text.NewTable("SERVICE", "NAME", ">JOBS", ">ORIGINS", ">REPLICA RATE", "MAX LATENCY")
		for _, s := range list {
			limit := "-"
			if s.GetMaxLatencyMicroseconds() > 0 {
				limit = millis(s.GetMaxLatencyMicroseconds())
			}
			t.Row(s.GetServiceId(), s.GetName(), len(s.GetJobIds()), len(s.GetOrigins()), fmt.Sprintf("%g/s", s.GetReplicaRate()), limit)
		}
		return t.Write(w, color)
	}})
}

func millis(us int64) string { return strconv.FormatFloat(float64(us)/1000, 'f', -1, 64) + " ms" }

func serviceReportCommand(c *cli) *cobra.Command {
	var traffic, latency []string
	cmd := &cobra.Command{
		Use: "report SERVICE --traffic ORIGIN=RATE...", Short: "Tell what comes from origins, and how long the ways are",
		Long: `Tells the requests per second that come from origins now and, if they were
measured, the round trips from origins to centers. Report every few seconds to
a minute, from where the requests are distributed.`,
		Example: `  yunhe service report svc_01... --traffic north=120 --traffic south=80.5 --latency north/gz-1=38ms`,
		Args:    takes(1, 1, "the ID of a service"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &routingv1.ReportTrafficRequest{ServiceId: args[0]}
			by := map[string]*routingv1.TrafficReport{}
			for _, s := range traffic {
				id, value, _ := strings.Cut(s, "=")
				rate, err := strconv.ParseFloat(value, 64)
				if err != nil {
					return usagef("--traffic %s: want ORIGIN=RATE, such as north=120", s)
				}
				by[id] = &routingv1.TrafficReport{OriginId: id, RequestsPerSecond: rate, LatencyMicroseconds: map[string]int64{}}
				req.Reports = append(req.Reports, by[id])
			}
			for _, s := range latency {
				pair, value, _ := strings.Cut(s, "=")
				id, center, ok := strings.Cut(pair, "/")
				d, err := time.ParseDuration(value)
				if err != nil || !ok || d < 0 {
					return usagef("--latency %s: want ORIGIN/CENTER=TIME, such as north/gz-1=38ms", s)
				}
				if by[id] == nil {
					return usagef("--latency %s: name the traffic of %q too", s, id)
				}
				by[id].LatencyMicroseconds[center] = d.Microseconds()
			}
			if len(req.Reports) == 0 {
				return usagef("--traffic is required")
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			if _, err = a.routing.ReportTraffic(cmd.Context(), req); err != nil {
				return err
			}
			return c.print(result{msg: req, names: []string{args[0]}, print: func(w io.Writer, _ bool) error {
				_, err := fmt.Fprintf(w, "%s  %d origins reported\n", args[0], len(req.Reports))
				return err
			}})
		},
	}
	cmd.Flags().StringArrayVar(&traffic, "traffic", nil, "requests per second from an origin, ORIGIN=RATE (repeatable)")
	cmd.Flags().StringArrayVar(&latency, "latency", nil, "round trip measured, ORIGIN/CENTER=TIME (repeatable)")
	return cmd
}

func serviceRoutesCommand(c *cli) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "routes SERVICE", Short: "The weights by which requests are to be sent to centers",
		Long: `Prints the weights in force. With --format zone as SRV records (RFC 2782), one
name for each origin, for a DNS server that answers by where users ask from; with
--format nginx as upstream blocks. Both need the service's endpoints.`,
		Example: `  yunhe service routes svc_01...
  yunhe service routes svc_01... --format nginx > /etc/nginx/conf.d/chat.conf`,
		Args: takes(1, 1, "the ID of a service"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			r, err := a.routing.GetRoutes(cmd.Context(), &routingv1.GetRoutesRequest{ServiceId: args[0]})
			if err != nil {
				return err
			}
			switch format {
			case "":
				return c.print(result{msg: r, names: []string{args[0]}, print: func(w io.Writer, color bool) error { return writeRoutes(w, color, r) }})
			case "zone", "nginx":
			default:
				return usagef("--format must be zone or nginx, got %q", format)
			}
			s, err := a.routing.GetService(cmd.Context(), &routingv1.GetServiceRequest{ServiceId: args[0]})
			if err != nil {
				return err
			}
			out, err := routesFile(format, s, r)
			if err != nil {
				return err
			}
			_, err = io.WriteString(c.out, out)
			return err
		},
	}
	cmd.Flags().StringVar(&format, "format", "", "zone or nginx instead of a table")
	return cmd
}

func writeRoutes(w io.Writer, color bool, r *routingv1.Routes) error {
	t := text.NewTable("ORIGIN", ">REQUESTS/S", ">EXPECTED", "CENTER", ">WEIGHT", ">LATENCY", "")
	for _, o := range r.GetOrigins() {
		rate, expected := fmt.Sprintf("%.4g", o.GetDemand()), fmt.Sprintf("%.4g", o.GetExpected())
		if len(o.GetWeights()) == 0 {
			t.Row(o.GetOriginId(), rate, expected, "-", "", "", "no replica runs")
		}
		for i, x := range o.GetWeights() {
			note := "estimated"
			if x.GetMeasured() {
				note = "measured"
			}
			if i == 0 {
				t.Row(o.GetOriginId(), rate, expected, x.GetAiCenterId(), x.GetWeight(), millis(x.GetLatencyMicroseconds()), note)
				continue
			}
			t.Row("", "", "", x.GetAiCenterId(), x.GetWeight(), millis(x.GetLatencyMicroseconds()), note)
		}
	}
	if err := t.Write(w, color); err != nil {
		return err
	}
	t = text.NewTable("CENTER", ">REPLICAS", ">REQUESTS/S", ">CAPACITY/S", ">USE")
	for _, p := range r.GetPlaces() {
		t.Row(p.GetAiCenterId(), p.GetReplicas(), fmt.Sprintf("%.4g", p.GetLoad()), fmt.Sprintf("%.4g", p.GetCapacity()), fmt.Sprintf("%.0f %%", 100*p.GetLoad()/p.GetCapacity()))
	}
	fmt.Fprintln(w)
	if err := t.Write(w, color); err != nil {
		return err
	}
	if r.GetMeanMicroseconds() > 0 {
		fmt.Fprintf(w, "\nexpected time of a request: %s\n", millis(r.GetMeanMicroseconds()/100*100))
	}
	if r.GetOverload() > 0 {
		fmt.Fprintf(w, "%.4g requests/s more than the replicas should serve: add replicas\n", r.GetOverload())
	}
	return nil
}

// routesFile writes weights in the form of other programs.
func routesFile(format string, s *routingv1.Service, r *routingv1.Routes) (string, error) {
	var b strings.Builder
	for _, o := range r.GetOrigins() {
		name := dnsLabel(s.GetName()) + "-" + dnsLabel(o.GetOriginId())
		var lines []string
		for _, w := range o.GetWeights() {
			host, port, err := net.SplitHostPort(s.GetEndpoints()[w.GetAiCenterId()])
			if err != nil {
				return "", fmt.Errorf("service %s has no endpoint for center %s; set it with `yunhe service create %s --replace %s --endpoint %s=HOST:PORT`", s.GetName(), w.GetAiCenterId(), s.GetName(), s.GetServiceId(), w.GetAiCenterId())
			}
			if format == "nginx" {
				lines = append(lines, fmt.Sprintf("    server %s weight=%d;", net.JoinHostPort(host, port), w.GetWeight()))
			} else {
				if net.ParseIP(host) != nil {
					return "", fmt.Errorf("an SRV record names a host, but the endpoint of center %s is %s", w.GetAiCenterId(), host)
				}
				lines = append(lines, fmt.Sprintf("_%s._tcp %d IN SRV 0 %d %s %s.", name, r.GetValidSeconds(), w.GetWeight(), port, strings.TrimSuffix(host, ".")))
			}
		}
		slices.Sort(lines) // generations then differ only where weights do
		if format == "nginx" && len(lines) > 0 {
			lines = append(append([]string{"upstream " + name + " {"}, lines...), "}")
		}
		for _, l := range lines {
			b.WriteString(l + "\n")
		}
	}
	return b.String(), nil
}

// dnsLabel keeps what a label of a name may hold.
func dnsLabel(s string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, s), "-")
}
