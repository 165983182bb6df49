// Package fault classifies errors. A fault has a kind, a message for the user
// and, optionally, a cause for the operator.
//
// Callers branch on [KindOf], never on text. An error that was never
// classified is [Internal]: its text is for the operator's log only, and the
// rpc layer answers with a reference instead. Field violations ([Field]) say
// which input is wrong, so that forms and programs can point at it.
package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind says what went wrong from the caller's point of view.
type Kind uint8

// The kinds. Internal is the zero value: everything unclassified.
const (
	Internal Kind = iota
	Invalid
	NotFound
	Exists
	Conflict
	Denied
	Unauthenticated
	Exhausted
	Unavailable
	Unimplemented
	Canceled
	TooLarge
)

var names = [...]string{"INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "CONFLICT", "PERMISSION_DENIED",
	"UNAUTHENTICATED", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "UNIMPLEMENTED", "CANCELED", "TOO_LARGE"}

// String returns the stable upper-case identifier used on the wire.
func (k Kind) String() string {
	if int(k) < len(names) {
		return names[k]
	}
	return names[Internal]
}

// Field is one wrong input: its path as the caller wrote it ("tasks[1].name")
// and what is wrong with it, naming value and limit.
type Field struct {
	Path    string
	Problem string
}

// KindNamed is the reverse of [Kind.String]; Internal for a name it does not know.
func KindNamed(name string) Kind { return Kind(max(0, slices.Index(names[:], name))) }

// Error is a classified error.
type Error struct {
	Kind    Kind
	Message string // for the user
	Fields  []Field
	cause   error // for the operator
}

// Error returns the message and, for the operator, the cause.
func (e *Error) Error() string {
	if e.cause != nil {
		return e.Message + ": " + e.cause.Error()
	}
	return e.Message
}

// Unwrap returns the cause, nil if there is none.
func (e *Error) Unwrap() error { return e.cause }

// New returns a fault whose message the user reads.
func New(k Kind, format string, args ...any) error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...)}
}

// Wrap returns a fault with a message for the user and err as the operator's
// cause. It returns nil if err is nil.
func Wrap(k Kind, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...), cause: err}
}

// Fields returns an Invalid fault for the given violations, nil if there are
// none. Its message names the first and counts the rest.
func Fields(fields ...Field) error {
	if len(fields) == 0 {
		return nil
	}
	var b strings.Builder
	for i, f := range fields {
		if i == 3 {
			fmt.Fprintf(&b, " (and %d more)", len(fields)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(f.Path + ": " + f.Problem)
	}
	return &Error{Kind: Invalid, Message: b.String(), Fields: fields}
}

// KindOf returns the kind of err: that of the outermost fault in its chain,
// Canceled for a context that ended, Internal otherwise.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	if errors.Is(err, context.Canceled) {
		return Canceled
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return Unavailable
	}
	return Internal
}

// Message returns what the user may read of err; ok is false for an
// unclassified error, which is for the operator only.
func Message(err error) (msg string, ok bool) {
	var e *Error
	if errors.As(err, &e) && e.Kind != Internal {
		return e.Message, true
	}
	return "", false
}

// FieldsOf returns the field violations of err: those of the outermost fault
// in its chain that has some, nil if none has.
func FieldsOf(err error) []Field {
	var e *Error
	for errors.As(err, &e) {
		if len(e.Fields) > 0 {
			return e.Fields
		}
		err = e.cause
	}
	return nil
}
