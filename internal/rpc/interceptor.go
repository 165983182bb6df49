package rpc

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"yunhe.dev/yunhe/internal/fault"
)

type interceptor struct{ s *Server }

func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		s, method, start := i.s, req.Spec().Procedure, time.Now()
		ctx, done, err := s.admit(ctx, method, s.perms[method], req.Header().Get("Authorization"), req.Peer().Addr)
		var res connect.AnyResponse
		if err == nil {
			err = guard(func() (err error) { res, err = next(ctx, req); return err })
		}
		err = s.finish(ctx, method, start, err)
		done(subject(req.Any()), err)
		return res, toConnect(err)
	}
}

func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		s, method, start := i.s, conn.Spec().Procedure, time.Now()
		ctx, done, err := s.admit(ctx, method, s.perms[method], conn.RequestHeader().Get("Authorization"), conn.Peer().Addr)
		if err == nil {
			err = guard(func() error { return next(ctx, conn) })
		}
		err = s.finish(ctx, method, start, err)
		done("", err)
		return toConnect(err)
	}
}

// guard turns a panic of a handler into an error.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// subject names what a request is about: the value of its first field that
// is an ID, or of the ID inside its first message.
func subject(m any) string {
	msg, ok := m.(proto.Message)
	if !ok {
		return ""
	}
	return idOf(msg.ProtoReflect(), 1)
}

func idOf(m protoreflect.Message, depth int) string {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		name := string(f.Name())
		switch {
		case f.IsList() || f.IsMap():
		case f.Kind() == protoreflect.StringKind && len(name) > 3 && name[len(name)-3:] == "_id" && name != "request_id":
			if v := m.Get(f).String(); v != "" {
				return clip(v, 64)
			}
		case f.Kind() == protoreflect.MessageKind && depth > 0 && m.Has(f):
			if v := idOf(m.Get(f).Message(), depth-1); v != "" {
				return v
			}
		}
	}
	return ""
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

var codes = map[fault.Kind]connect.Code{
	fault.Internal: connect.CodeInternal, fault.Invalid: connect.CodeInvalidArgument, fault.NotFound: connect.CodeNotFound,
	fault.Exists: connect.CodeAlreadyExists, fault.Conflict: connect.CodeAborted, fault.Denied: connect.CodePermissionDenied,
	fault.Unauthenticated: connect.CodeUnauthenticated, fault.Exhausted: connect.CodeResourceExhausted,
	fault.Unavailable: connect.CodeUnavailable, fault.Unimplemented: connect.CodeUnimplemented, fault.Canceled: connect.CodeCanceled,
	fault.TooLarge: connect.CodeResourceExhausted,
}

// toConnect is the only place where fault kinds become RPC codes.
func toConnect(err error) error {
	if err == nil {
		return nil
	}
	// What the RPC library itself refused (malformed body, too large) has a code.
	var ce *connect.Error
	if errors.As(err, &ce) {
		return ce
	}
	out := connect.NewError(codes[fault.KindOf(err)], errors.New(Text(err)))
	if fields := fault.FieldsOf(err); len(fields) > 0 {
		bad := &errdetails.BadRequest{}
		for _, f := range fields {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: f.Path, Description: f.Problem})
		}
		if d, err := connect.NewErrorDetail(bad); err == nil {
			out.AddDetail(d)
		}
	}
	return out
}
