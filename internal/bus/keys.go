package bus

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"yunhe.dev/yunhe/internal/fault"
)

// keys are the bus's chain of trust: the operator signs the account, the
// account signs the platform and every agent. All processes of a platform
// share the file; a NATS cluster is configured with operator and account JWT.
type keys struct {
	Operator string `json:"operator_seed"`
	System   string `json:"system_seed"`
	Account  string `json:"account_seed"`
	Platform string `json:"platform_seed"`
}

// loadKeys reads the keys in path, making them first if there are none.
// Processes that start at once with one folder end with the same keys: the
// file appears whole under its name once, and whoever comes second reads it.
func loadKeys(path string) (keys, error) {
	k, err := readKeys(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return k, fmt.Errorf("write bus keys: %w", err)
	}
	if k, err = newKeys(); err != nil {
		return k, fmt.Errorf("make bus keys: %w", err)
	}
	b, err := json.Marshal(k)
	if err != nil {
		return k, fmt.Errorf("write bus keys: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".keys-*") // mode 0600
	if err != nil {
		return k, fmt.Errorf("write bus keys: %w", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Link(f.Name(), path) // unlike a rename, it fails if another was first
	}
	if rerr := os.Remove(f.Name()); err == nil {
		err = rerr
	}
	if errors.Is(err, fs.ErrExist) {
		return readKeys(path)
	}
	if err != nil {
		return k, fmt.Errorf("write bus keys: %w", err)
	}
	return k, nil
}

func readKeys(path string) (keys, error) {
	var k keys
	b, err := os.ReadFile(path)
	if err != nil {
		return k, fmt.Errorf("read bus keys: %w", err)
	}
	if err := json.Unmarshal(b, &k); err != nil {
		return k, fault.Wrap(fault.Invalid, err, "the bus keys in %s cannot be read", path)
	}
	if _, err := k.trust(); err != nil {
		return k, fault.Wrap(fault.Invalid, err, "the bus keys in %s are not complete", path)
	}
	return k, nil
}

func newKeys() (k keys, err error) {
	for _, x := range []struct {
		make func() (nkeys.KeyPair, error)
		to   *string
	}{{nkeys.CreateOperator, &k.Operator}, {nkeys.CreateAccount, &k.System}, {nkeys.CreateAccount, &k.Account}, {nkeys.CreateUser, &k.Platform}} {
		kp, err := x.make()
		if err != nil {
			return k, err
		}
		seed, err := kp.Seed()
		if err != nil {
			return k, err
		}
		*x.to = string(seed)
	}
	return k, nil
}

func pair(seed string) (nkeys.KeyPair, string, error) {
	kp, err := nkeys.FromSeed([]byte(seed))
	if err != nil {
		return nil, "", fmt.Errorf("bus key: %w", err)
	}
	pub, err := kp.PublicKey()
	if err != nil {
		return nil, "", fmt.Errorf("bus key: %w", err)
	}
	return kp, pub, nil
}

// Trust is what a NATS server must be configured with to serve the platform:
// the operator, and both accounts in its resolver (for a cluster: "operator",
// "system_account", and "resolver_preload" of a MEMORY resolver).
type Trust struct {
	OperatorJWT   string
	SystemAccount string            // public key
	Accounts      map[string]string // JWT by public key
}

// Trust returns what an outside NATS cluster must be configured with.
func (b *Bus) Trust() (Trust, error) { return b.keys.trust() }

func (k keys) trust() (Trust, error) {
	opKey, opPub, err := pair(k.Operator)
	if err != nil {
		return Trust{}, err
	}
	_, sysPub, err := pair(k.System)
	if err != nil {
		return Trust{}, err
	}
	_, accPub, err := pair(k.Account)
	if err != nil {
		return Trust{}, err
	}
	t := Trust{SystemAccount: sysPub, Accounts: map[string]string{}}
	oc := jwt.NewOperatorClaims(opPub)
	oc.Name, oc.SystemAccount = "yunhe", sysPub
	if t.OperatorJWT, err = oc.Encode(opKey); err != nil {
		return t, fmt.Errorf("sign operator: %w", err)
	}
	for pub, name := range map[string]string{sysPub: "system", accPub: "yunhe"} {
		ac := jwt.NewAccountClaims(pub)
		if ac.Name = name; pub == accPub {
			ac.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
		}
		if t.Accounts[pub], err = ac.Encode(opKey); err != nil {
			return t, fmt.Errorf("sign account %s: %w", name, err)
		}
	}
	return t, nil
}

// Apply sets a server's options so that it serves the platform.
func (t Trust) Apply(o *server.Options) error {
	op, err := jwt.DecodeOperatorClaims(t.OperatorJWT)
	if err != nil {
		return fmt.Errorf("operator: %w", err)
	}
	mem := &server.MemAccResolver{}
	for pub, acc := range t.Accounts {
		if err := mem.Store(pub, acc); err != nil {
			return fmt.Errorf("account: %w", err)
		}
	}
	o.TrustedOperators, o.AccountResolver, o.SystemAccount = []*jwt.OperatorClaims{op}, mem, t.SystemAccount
	return nil
}

func (k keys) platformJWT() (string, error) {
	accKey, _, err := pair(k.Account)
	if err != nil {
		return "", err
	}
	_, pub, err := pair(k.Platform)
	if err != nil {
		return "", err
	}
	uc := jwt.NewUserClaims(pub)
	uc.Name = "platform"
	return uc.Encode(accKey)
}

func (k keys) platformSign(nonce []byte) ([]byte, error) {
	kp, _, err := pair(k.Platform)
	if err != nil {
		return nil, err
	}
	return kp.Sign(nonce)
}

// AgentName is the name on the bus of agent id with a key: an agent that takes
// over an ID has other subjects than the one before, whose credentials are
// worth nothing then.
func AgentName(id, publicKey string) string {
	return id + "/" + publicKey[min(1, len(publicKey)):min(1+keyPart, len(publicKey))]
}

// keyPart is how much of a public key names an agent: 80 bits.
const keyPart = 16

// AgentJWT signs credentials for an agent's public key: it may ask on
// yunhe.agent.<name>.up.>, answer on yunhe.agent.<name>.down.>, where name is
// its [AgentName], and nothing else.
// It returns fault.Invalid if the key is not a user key.
func (b *Bus) AgentJWT(id, publicKey string) (string, error) {
	name := AgentName(id, publicKey)
	if !nkeys.IsValidPublicUserKey(publicKey) {
		return "", fault.Fields(fault.Field{Path: "public_key", Problem: "must be a NATS user nkey (starts with U)"})
	}
	accKey, _, err := pair(b.keys.Account)
	if err != nil {
		return "", err
	}
	uc := jwt.NewUserClaims(publicKey)
	uc.Name = id
	uc.Permissions.Pub.Allow.Add(AgentUp(name, ">"))
	uc.Permissions.Sub.Allow.Add(AgentDown(name, ">"))
	// Answers to its requests come to an inbox of its own; the platform's
	// requests are answered through the reply permission.
	uc.Permissions.Sub.Allow.Add(AgentInbox(name) + ".>")
	uc.Permissions.Resp = &jwt.ResponsePermission{MaxMsgs: 1, Expires: 0}
	return uc.Encode(accKey)
}

// AgentUp is the subject on which the named agent asks the platform.
func AgentUp(name, what string) string { return "yunhe.agent." + token(name) + ".up." + what }

// AgentDown is the subject on which the named agent answers the platform.
func AgentDown(name, what string) string { return "yunhe.agent." + token(name) + ".down." + what }

// AgentInbox is the prefix of the inbox on which the named agent gets answers.
func AgentInbox(name string) string { return "_INBOX_agent_" + token(name) }

// token writes an ID as one subject token: a dot would begin another. IDs
// never hold a tilde.
func token(id string) string { return strings.ReplaceAll(id, ".", "~") }

// AgentOf returns the agent's name and the request named by an up subject.
func AgentOf(subject string) (name, what string) {
	p := strings.Split(subject, ".")
	if len(p) != 5 {
		return "", ""
	}
	return strings.ReplaceAll(p[2], "~", "."), p[4]
}

// LoadTrust returns what a NATS cluster must be configured with, from the keys
// in dir; they are made if they are not there.
func LoadTrust(dir string) (Trust, error) {
	k, err := loadKeys(filepath.Join(dir, "keys.json"))
	if err != nil {
		return Trust{}, err
	}
	return k.trust()
}
