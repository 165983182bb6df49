package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"

	poolv1 "yunhe.dev/yunhe/gen/yunhe/pool/v1"
	"yunhe.dev/yunhe/gen/yunhe/pool/v1/poolv1connect"
)

// joins is a platform that answers as it is told.
type joins struct {
	poolv1connect.PoolServiceClient

	answer func(ctx context.Context) error
	secret string // it was shown last
}

func (j *joins) JoinNode(ctx context.Context, r *poolv1.JoinNodeRequest) (*poolv1.JoinNodeResponse, error) {
	j.secret = r.Secret
	return &poolv1.JoinNodeResponse{}, j.answer(ctx)
}

func says(code connect.Code) func(context.Context) error {
	return func(context.Context) error { return connect.NewError(code, errors.New("so")) }
}

func takes(context.Context) error { return nil }

// TestJoin: whatever becomes of a join, the node is a member of the platform that took
// it last, and one that was taken and not told is taken again.
func TestJoin(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	p := &joins{answer: takes}
	is := func(platform string) *Membership {
		t.Helper()
		m, err := Load(dir)
		if err != nil || m == nil || m.Platform != platform {
			t.Fatalf("the node is a member of %+v, %v, want %s", m, err, platform)
		}
		return m
	}
	join := func(platform string, answer func(context.Context) error) error {
		p.answer = answer
		_, err := Join(t.Context(), dir, platform, "n1", "token", p)
		return err
	}
	if err := join("http://a", says(connect.CodeUnauthenticated)); err == nil {
		t.Error("a refusal is none")
	}
	if m, err := Load(dir); m != nil || err != nil {
		t.Errorf("a node that was refused is a member: %+v, %v", m, err)
	}
	if err := join("http://a", takes); err != nil {
		t.Fatal(err)
	}
	first := is("http://a").Secret
	if p.secret != first {
		t.Error("the platform knows another secret")
	}
	for _, code := range []connect.Code{connect.CodeUnauthenticated, connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeInternal} {
		if err := join("http://b", says(code)); connect.CodeOf(err) != code {
			t.Errorf("refused with %v: %v", code, err)
		}
		if is("http://a").Secret != first {
			t.Errorf("refused with %v: the secret before is gone", code)
		}
	}
	taken := p.secret // the last time the answer was lost, say
	if err := join("http://b", takes); err != nil || is("http://b").Secret != taken || p.secret != taken {
		t.Errorf("repeated: %v, by another secret: %v", err, p.secret != taken)
	}
	if err := join("http://b", says(connect.CodeUnavailable)); err != nil {
		t.Errorf("a member does not start while its platform is away: %v", err)
	}
	if err := join("http://b", says(connect.CodeUnauthenticated)); err == nil {
		t.Error("a member that is refused is not told")
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 || list[0].Name() != file {
		t.Errorf("the folder has %v, %v", list, err)
	}
}

// TestJoinHalfWritten: what a crash leaves of a join does not count.
func TestJoinHalfWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := &joins{answer: takes}
	if _, err := Join(t.Context(), dir, "http://a", "n1", "token", p); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, asked), []byte(`{"platform":"http://b","no`), 0o600); err != nil {
		t.Fatal(err)
	}
	if m, err := Load(dir); err != nil || m.Platform != "http://a" {
		t.Errorf("it is a member of %+v, %v", m, err)
	}
	m, err := Join(t.Context(), dir, "http://b", "n1", "token", p)
	if err != nil || m.Platform != "http://b" || len(m.Secret) != 64 {
		t.Errorf("joined: %+v, %v", m, err)
	}
}

// TestJoinWhereNothingIsWritten: the platform is not asked where its answer cannot be kept.
func TestJoinWhereNothingIsWritten(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &joins{answer: takes}
	if m, err := Join(t.Context(), dir, "http://a", "n1", "token", p); err == nil || !strings.Contains(err.Error(), dir) || p.secret != "" {
		t.Errorf("joined: %+v, %v", m, err)
	}
}

// TestJoinSilent: a platform that takes the question and says nothing is not waited
// for without end.
func TestJoinSilent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := &joins{answer: func(ctx context.Context) error {
			<-ctx.Done()
			return connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
		}}
		if m, err := Join(t.Context(), dir, "http://a", "n1", "token", p); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
			t.Errorf("joined: %+v, %v", m, err)
		}
	})
}
