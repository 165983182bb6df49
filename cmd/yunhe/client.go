package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"yunhe.dev/yunhe/gen/yunhe/access/v1/accessv1connect"
	"yunhe.dev/yunhe/gen/yunhe/adapters/v1/adaptersv1connect"
	"yunhe.dev/yunhe/gen/yunhe/alarms/v1/alarmsv1connect"
	"yunhe.dev/yunhe/gen/yunhe/availability/v1/availabilityv1connect"
	"yunhe.dev/yunhe/gen/yunhe/budgets/v1/budgetsv1connect"
	"yunhe.dev/yunhe/gen/yunhe/calendar/v1/calendarv1connect"
	"yunhe.dev/yunhe/gen/yunhe/control/v1/controlv1connect"
	"yunhe.dev/yunhe/gen/yunhe/identity/v1/identityv1connect"
	"yunhe.dev/yunhe/gen/yunhe/jobs/v1/jobsv1connect"
	"yunhe.dev/yunhe/gen/yunhe/measurement/v1/measurementv1connect"
	"yunhe.dev/yunhe/gen/yunhe/metering/v1/meteringv1connect"
	"yunhe.dev/yunhe/gen/yunhe/monitor/v1/monitorv1connect"
	"yunhe.dev/yunhe/gen/yunhe/network/v1/networkv1connect"
	"yunhe.dev/yunhe/gen/yunhe/notices/v1/noticesv1connect"
	"yunhe.dev/yunhe/gen/yunhe/policies/v1/policiesv1connect"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
	"yunhe.dev/yunhe/gen/yunhe/registry/v1/registryv1connect"
	"yunhe.dev/yunhe/gen/yunhe/routing/v1/routingv1connect"
	"yunhe.dev/yunhe/gen/yunhe/scheduler/v1/schedulerv1connect"
	"yunhe.dev/yunhe/gen/yunhe/simulations/v1/simulationsv1connect"
	"yunhe.dev/yunhe/gen/yunhe/standing/v1/standingv1connect"
	"yunhe.dev/yunhe/gen/yunhe/tags/v1/tagsv1connect"
	"yunhe.dev/yunhe/gen/yunhe/topology/v1/topologyv1connect"
	"yunhe.dev/yunhe/gen/yunhe/volumes/v1/volumesv1connect"
)

// api is a server as this program calls it.
type api struct {
	target    target
	jobs      jobsv1connect.JobServiceClient
	registry  registryv1connect.RegistryServiceClient
	resources registryv1connect.ResourceServiceClient
	scheduler schedulerv1connect.SchedulerServiceClient
	queues    schedulerv1connect.QueueServiceClient
	calendar  calendarv1connect.CalendarServiceClient
	budgets   budgetsv1connect.BudgetServiceClient
	standing  standingv1connect.StandingServiceClient
	metering  meteringv1connect.MeteringServiceClient
	identity  identityv1connect.IdentityServiceClient
	adapters  adaptersv1connect.AdapterServiceClient
	tags      tagsv1connect.TagServiceClient
	control   controlv1connect.ControlServiceClient
	alarms    alarmsv1connect.AlarmServiceClient
	policies  policiesv1connect.PolicyServiceClient
	routing   routingv1connect.RoutingServiceClient

	simulations simulationsv1connect.SimulationServiceClient
	network     networkv1connect.NetworkServiceClient
	equipment   networkv1connect.EquipmentServiceClient
	topology    topologyv1connect.TopologyServiceClient
	volumes     volumesv1connect.VolumeServiceClient

	measurement measurementv1connect.MeasurementServiceClient
	access      accessv1connect.AccessServiceClient
	monitor     monitorv1connect.MonitorServiceClient
	planning    availabilityv1connect.AvailabilityServiceClient
	pool        poolv1connect.PoolServiceClient
	poolOps     poolv1connect.PoolOperationServiceClient
	notices     noticesv1connect.NoticeServiceClient
}

// callTimeout bounds every call that is not a stream. The longest is a batch
// of 5000 jobs, which a small server stores in a few seconds.
const callTimeout = time.Minute

// api returns a client of the configured server. It makes no call.
func (c *cli) api() (*api, error) {
	t, err := c.target()
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	hc := &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         dialer.DialContext,
			TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2:   true,
			MaxIdleConnsPerHost: 16,
			IdleConnTimeout:     time.Minute,
		},
		// A key never follows a redirect.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	opts := connect.WithInterceptors(&caller{t})
	return &api{
		target:    t,
		jobs:      jobsv1connect.NewJobServiceClient(hc, t.server, opts),
		registry:  registryv1connect.NewRegistryServiceClient(hc, t.server, opts),
		resources: registryv1connect.NewResourceServiceClient(hc, t.server, opts),
		scheduler: schedulerv1connect.NewSchedulerServiceClient(hc, t.server, opts),
		queues:    schedulerv1connect.NewQueueServiceClient(hc, t.server, opts),
		budgets:   budgetsv1connect.NewBudgetServiceClient(hc, t.server, opts),
		calendar:  calendarv1connect.NewCalendarServiceClient(hc, t.server, opts),
		standing:  standingv1connect.NewStandingServiceClient(hc, t.server, opts),
		metering:  meteringv1connect.NewMeteringServiceClient(hc, t.server, opts),
		identity:  identityv1connect.NewIdentityServiceClient(hc, t.server, opts),
		adapters:  adaptersv1connect.NewAdapterServiceClient(hc, t.server, opts),
		tags:      tagsv1connect.NewTagServiceClient(hc, t.server, opts),
		control:   controlv1connect.NewControlServiceClient(hc, t.server, opts),
		alarms:    alarmsv1connect.NewAlarmServiceClient(hc, t.server, opts),
		policies:  policiesv1connect.NewPolicyServiceClient(hc, t.server, opts),
		routing:   routingv1connect.NewRoutingServiceClient(hc, t.server, opts),

		simulations: simulationsv1connect.NewSimulationServiceClient(hc, t.server, opts),
		equipment:   networkv1connect.NewEquipmentServiceClient(hc, t.server, opts),
		network:     networkv1connect.NewNetworkServiceClient(hc, t.server, opts),
		topology:    topologyv1connect.NewTopologyServiceClient(hc, t.server, opts),
		volumes:     volumesv1connect.NewVolumeServiceClient(hc, t.server, opts),

		measurement: measurementv1connect.NewMeasurementServiceClient(hc, t.server, opts),
		access:      accessv1connect.NewAccessServiceClient(hc, t.server, opts),
		monitor:     monitorv1connect.NewMonitorServiceClient(hc, t.server, opts),
		planning:    availabilityv1connect.NewAvailabilityServiceClient(hc, t.server, opts),
		pool:        poolv1connect.NewPoolServiceClient(hc, t.server, opts),
		poolOps:     poolv1connect.NewPoolOperationServiceClient(hc, t.server, opts),
		notices:     noticesv1connect.NewNoticeServiceClient(hc, t.server, opts),
	}, nil
}

// caller adds to every call the key, a deadline if it is not a stream, and to
// its error the server and the method.
type caller struct{ target target }

func (i *caller) header(h http.Header) {
	h.Set("User-Agent", "yunhe/"+buildVersion())
	if i.target.key != "" {
		h.Set("Authorization", "Bearer "+i.target.key)
	}
}

func (i *caller) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		i.header(req.Header())
		res, err := next(ctx, req)
		if err != nil {
			return nil, &callError{i.target, req.Spec().Procedure, err}
		}
		return res, nil
	}
}

func (i *caller) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		i.header(conn.RequestHeader())
		return conn
	}
}

func (i *caller) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// stream reads a server stream to its end, calling fn for each message, and
// gives its error the method's name.
func stream[M any](a *api, method string, s *connect.ServerStreamForClient[M], err error, fn func(*M) error) error {
	if err != nil {
		return a.streamError(method, err)
	}
	defer s.Close()
	for s.Receive() {
		if err := fn(s.Msg()); err != nil {
			return err
		}
	}
	if err := s.Err(); err != nil {
		return a.streamError(method, err)
	}
	return nil
}

func (a *api) streamError(method string, err error) error {
	var call *callError
	if errors.As(err, &call) {
		return err
	}
	return &callError{a.target, method, err}
}
