package enginetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"yunhe.dev/yunhe/internal/enginetest"
)

func dialNATS(t *testing.T, url string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, append(opts, nats.ReconnectWait(50*time.Millisecond), nats.MaxReconnects(-1))...)
	if err != nil {
		t.Fatalf("connect to %s: %v", url, err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// publish retries until the stream has taken the message once; the message ID
// makes a second try harmless.
func publish(ctx context.Context, js jetstream.JetStream, subject, id string) error {
	for {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := js.Publish(try, subject, []byte(id), jetstream.WithMsgID(id))
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func TestNATSClusterSurvivesLeader(t *testing.T) {
	t.Parallel()
	cluster := enginetest.NATSCluster(t, 3, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	js := dialNATS(t, cluster.URL())
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "EV", Subjects: []string{"ev.>"}, Replicas: 3})
	if err != nil {
		t.Fatalf("create a stream of 3 replicas: %v", err)
	}
	for i := range 50 {
		if err := publish(ctx, js, "ev.x", fmt.Sprint("before", i)); err != nil {
			t.Fatalf("publish %d: %v", i, err)
		}
	}
	leader := cluster.Leader("$G", "EV")
	if leader < 0 {
		t.Fatal("no server leads the stream")
	}
	cluster.Stop(leader)
	for i := range 50 {
		if err := publish(ctx, js, "ev.x", fmt.Sprint("after", i)); err != nil {
			t.Fatalf("publish %d after the leader's loss: %v", i, err)
		}
	}
	if now := cluster.Leader("$G", "EV"); now == leader || now < 0 {
		t.Errorf("leader after the loss = %d, want another one than %d", now, leader)
	}
	info, err := stream.Info(ctx)
	if err != nil || info.State.Msgs != 100 {
		t.Errorf("stream holds %+v, %v, want 100 messages", info, err)
	}
	if err := cluster.Start(ctx, leader); err != nil {
		t.Errorf("start the lost server again: %v", err)
	}
}

func TestNATSOperatorAccounts(t *testing.T) {
	t.Parallel()
	operator, account, system := newKey(t, nkeys.CreateOperator), newKey(t, nkeys.CreateAccount), newKey(t, nkeys.CreateAccount)
	resolver := &server.MemAccResolver{}
	for _, key := range []nkeys.KeyPair{account, system} {
		claims := jwt.NewAccountClaims(publicKey(t, key))
		if key == account {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: -1, MemoryStorage: -1, Streams: -1, Consumer: -1}
		}
		token, err := claims.Encode(operator)
		if err != nil {
			t.Fatal(err)
		}
		if err := resolver.Store(publicKey(t, key), token); err != nil {
			t.Fatal(err)
		}
	}
	cluster := enginetest.NATSCluster(t, 1, func(_ int, o *server.Options) {
		o.TrustedKeys = []string{publicKey(t, operator)}
		o.AccountResolver = resolver
		o.SystemAccount = publicKey(t, system)
	})
	if nc, err := nats.Connect(cluster.URL()); err == nil {
		nc.Close()
		t.Fatal("a client without a user token was let in")
	}
	userKey := newKey(t, nkeys.CreateUser)
	userToken, err := jwt.NewUserClaims(publicKey(t, userKey)).Encode(account)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := userKey.Seed()
	if err != nil {
		t.Fatal(err)
	}
	js := dialNATS(t, cluster.URL(), nats.UserJWTAndSeed(userToken, string(seed)))
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EV", Subjects: []string{"ev"}}); err != nil {
		t.Fatal(err)
	}
	if err := publish(t.Context(), js, "ev", "1"); err != nil {
		t.Fatal(err)
	}
	acc, err := cluster.Server(0).LookupAccount(publicKey(t, account))
	if err != nil {
		t.Fatal(err)
	}
	if usage := acc.JetStreamUsage(); usage.Streams != 1 || usage.Store == 0 {
		t.Errorf("the account holds %d streams of %d bytes, want 1 with a message", usage.Streams, usage.Store)
	}
}

func TestNATSRejectsNoServers(t *testing.T) {
	t.Parallel()
	if _, err := enginetest.StartNATS(t.Context(), enginetest.NATSConfig{}); err == nil {
		t.Error("a cluster of 0 servers started")
	}
}

func newKey(t *testing.T, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	key, err := create()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func publicKey(t *testing.T, key nkeys.KeyPair) string {
	t.Helper()
	pub, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return pub
}
