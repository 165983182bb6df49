package rpc

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
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
			err = guard(func() (err error) {
				if err = checkText(req.Any()); err == nil {
					res, err = next(ctx, req)
				}
				return err
			})
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
			err = guard(func() error { return next(ctx, checkedConn{conn}) })
		}
		err = s.finish(ctx, method, start, err)
		done("", err)
		return toConnect(err)
	}
}

// checkedConn checks the requests of a stream.
type checkedConn struct{ connect.StreamingHandlerConn }

func (c checkedConn) Receive(m any) error {
	if err := c.StreamingHandlerConn.Receive(m); err != nil {
		return err
	}
	return checkText(m)
}

// checkText refuses requests with a zero byte in a text: no text needs one,
// and PostgreSQL stores none.
func checkText(m any) error {
	msg, ok := m.(proto.Message)
	if !ok {
		return nil
	}
	if path := zeroByte(msg.ProtoReflect()); path != "" {
		return fault.Fields(fault.Field{Path: path, Problem: "must not contain a zero byte"})
	}
	return nil
}

// zeroByte returns the path of the first text with a zero byte, "" if there
// is none.
func zeroByte(m protoreflect.Message) (path string) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := string(f.Name())
		switch {
		case f.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, x protoreflect.Value) bool {
				if inner, bad := zeroIn(f.MapValue(), x); bad || strings.ContainsRune(k.String(), 0) {
					path = join(name, inner)
				}
				return path == ""
			})
		case f.IsList():
			for i := range v.List().Len() {
				if inner, bad := zeroIn(f, v.List().Get(i)); bad {
					path = join(fmt.Sprintf("%s[%d]", name, i), inner)
					break
				}
			}
		default:
			if inner, bad := zeroIn(f, v); bad {
				path = join(name, inner)
			}
		}
		return path == ""
	})
	return path
}

func zeroIn(f protoreflect.FieldDescriptor, v protoreflect.Value) (inner string, bad bool) {
	switch f.Kind() {
	case protoreflect.StringKind:
		return "", strings.IndexByte(v.String(), 0) >= 0
	case protoreflect.MessageKind:
		inner = zeroByte(v.Message())
	}
	return inner, inner != ""
}

func join(name, inner string) string {
	if inner == "" {
		return name
	}
	return name + "." + inner
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
