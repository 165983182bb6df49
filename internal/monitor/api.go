package monitor

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	monitorv1 "yunhe.dev/yunhe/gen/yunhe/monitor/v1"
	"yunhe.dev/yunhe/gen/yunhe/monitor/v1/monitorv1connect"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/rpc"
)

// Register mounts the API: MonitorService.
func (s *Service) Register(srv *rpc.Server) {
	srv.Service(monitorv1connect.NewMonitorServiceHandler(&api{s}, srv.Options()...))
}

type api struct{ s *Service }

func (a *api) QueryRange(ctx context.Context, req *monitorv1.QueryRangeRequest) (*monitorv1.QueryRangeResponse, error) {
	var c core.Check
	r := Range{Query: req.Query, Start: toTime(&c, "start", req.Start), End: toTime(&c, "end", req.End), StepSeconds: req.StepSeconds}
	if err := c.Err(); err != nil {
		return nil, err
	}
	series, err := a.s.QueryRange(ctx, r)
	if err != nil {
		return nil, err
	}
	res := &monitorv1.QueryRangeResponse{Series: make([]*monitorv1.Series, len(series))}
	for i, x := range series {
		labels := make(map[string]string, len(x.Labels)+1)
		if x.Name != "" {
			labels["__name__"] = x.Name
		}
		for _, l := range x.Labels {
			labels[l.Name] = l.Value
		}
		points := make([]*monitorv1.Point, len(x.Points))
		for j, p := range x.Points {
			points[j] = &monitorv1.Point{At: p.At.UnixMilli(), Value: p.Value}
		}
		res.Series[i] = &monitorv1.Series{Labels: labels, Points: points}
	}
	return res, nil
}

func toTime(c *core.Check, path string, t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	if err := t.CheckValid(); err != nil {
		c.Add(path, "must be a time between the years 1970 and 9999")
		return time.Time{}
	}
	return t.AsTime()
}
