package slurm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// An account of a center is one of slurmdbd's, with an association of the driver's
// user on this cluster. slurmdbd keeps all of it: for whom an account was made is
// in its description. The user has to be an administrator there.

// account is one as slurmdbd has it.
type account struct {
	Name         text          `json:"name"`
	Description  text          `json:"description"`
	Associations []association `json:"associations"`
}

type association struct {
	Account text `json:"account"`
	Cluster text `json:"cluster"`
	User    text `json:"user"`
}

// tenant is for whom this center made the account, "" if it did not.
func (a *account) tenant(center string) string {
	if w := strings.Fields(string(a.Description)); len(w) == 3 && w[0] == "yunhe" && w[1] == center {
		return w[2]
	}
	return ""
}

// has reports whether a user ("": the account itself) is known on a cluster.
func (a *account) has(cluster, user string) bool {
	for _, s := range a.Associations {
		if string(s.Cluster) == cluster && string(s.User) == user {
			return true
		}
	}
	return false
}

// accounts is what is remembered of slurmdbd, for attempts that come in numbers.
type accounts struct {
	mu      sync.Mutex      // guards the fields below
	cluster string          // ours; "": not read yet
	known   map[string]bool // never changed, only replaced
	read    time.Time       // when; zero: it is to be read again
	used    map[string]settled
}

// changed has the accounts read again.
func (k *accounts) changed() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read = time.Time{}
}

// accountsKept is how long it is believed that an account is there.
const accountsKept = 10 * time.Second

// accountName is a name as slurmdbd keeps it.
var accountName = regexp.MustCompile(`^[a-z0-9_][a-z0-9_.-]{0,63}$`)

// nameFor is the account of a tenant that wishes no name.
func nameFor(center, tenant string) string {
	sum := sha256.Sum256([]byte(center + "\x00" + tenant))
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, strings.ToLower(tenant))
	return "yunhe-" + clip(readable, 40) + "-" + hex.EncodeToString(sum[:])[:10]
}

// database is a request to slurmdbd. each is called with the elements of list.
func database[T any](ctx context.Context, c *client, method, path string, body any, list string, each func(*T)) error {
	version, err := c.agree(ctx)
	if err != nil {
		return err
	}
	var b []byte
	if body != nil {
		if b, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode %s: %w", path, err)
		}
	}
	a, err := c.exchange(ctx, method, fmt.Sprintf("/slurmdb/v0.0.%d/%s", version, path), b, func(r io.Reader) (answer, error) {
		raw, err := io.ReadAll(r)
		if err != nil {
			return answer{}, err
		}
		if len(bytes.TrimSpace(raw)) == 0 { // some answers have no body
			return answer{}, nil
		}
		return decode(bytes.NewReader(raw), list, each)
	})
	var no *apiError
	switch {
	case errors.As(err, &no) && no.status == http.StatusNotFound && len(no.problems) == 0:
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%s does not speak of accounts: start it with openapi/dbv0.0.%d beside openapi/v0.0.%d", c.where(), version, version))
	case errors.As(err, &no) && no.number() == 2002: // ESLURM_ACCESS_DENIED
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("slurmdbd refuses to change accounts for user %q: make it an administrator there (sacctmgr modify user %s set adminlevel=Admin)", c.cfg.User, c.cfg.User))
	case errors.As(err, &no) && no.number() == 1900 || errors.Is(err, errUnchanged): // it is so already
		return nil
	case err == nil && list != "" && !a.present:
		return &strangeError{fmt.Sprintf("%s answered GET slurmdb/%s without %q", c.where(), path, list)}
	}
	return err
}

// listAccounts reads all accounts.
func (d *Driver) listAccounts(ctx context.Context) (map[string]*account, error) {
	out := map[string]*account{}
	err := database(ctx, d.api, http.MethodGet, "accounts", nil, "accounts", func(a *account) { out[string(a.Name)] = a })
	return out, err
}

// ourCluster is what slurmdbd calls the cluster.
func (d *Driver) ourCluster(ctx context.Context) (string, error) {
	if d.cfg.Cluster != "" {
		return d.cfg.Cluster, nil
	}
	d.accounts.mu.Lock()
	name := d.accounts.cluster
	d.accounts.mu.Unlock()
	if name != "" {
		return name, nil
	}
	var names []string
	err := database(ctx, d.api, http.MethodGet, "clusters", nil, "clusters", func(c *struct {
		Name text `json:"name"`
	}) {
		names = append(names, string(c.Name))
	})
	if err != nil {
		return "", err
	}
	if len(names) != 1 {
		return "", connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("slurmdbd has the clusters %q: say which one this is with cluster in the center's configuration", names))
	}
	d.accounts.mu.Lock()
	defer d.accounts.mu.Unlock()
	d.accounts.cluster = names[0]
	return names[0], nil
}

// accountFailed is a failure as a caller of the driver reads it.
func (d *Driver) accountFailed(err error) error {
	var c *connect.Error
	if errors.As(err, &c) {
		return err
	}
	return unavailable("%s", d.api.explain(err))
}

// withoutAccounts is the answer of a driver that keeps none.
func (d *Driver) withoutAccounts() error {
	if d.cfg.Accounts {
		return nil
	}
	return connect.NewError(connect.CodeUnimplemented, errors.New("this center keeps no accounts: accounts is not set in its configuration"))
}

// ListAccounts returns all accounts of slurmdbd that this cluster's jobs may be booked
// on by the driver's user, or that it made, and what their jobs used.
func (d *Driver) ListAccounts(ctx context.Context, _ *adapterv1.ListAccountsRequest) (*adapterv1.ListAccountsResponse, error) {
	if err := d.withoutAccounts(); err != nil {
		return nil, err
	}
	cluster, err := d.ourCluster(ctx)
	if err != nil {
		return nil, d.accountFailed(err)
	}
	all, err := d.listAccounts(ctx)
	if err != nil {
		return nil, d.accountFailed(err)
	}
	out := &adapterv1.ListAccountsResponse{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if a := all[name]; a.has(cluster, d.cfg.User) || a.tenant(d.center) != "" {
			out.Accounts = append(out.Accounts, &adapterv1.Account{Name: name, TenantId: a.tenant(d.center)})
		}
	}
	d.tellUse(ctx, cluster, out.Accounts)
	return out, nil
}

// EnsureAccount makes an account and lets the driver's user book on it. An account
// of that name that is there is used as it is. InvalidArgument;
// FailedPrecondition if the user is no administrator in slurmdbd, or slurmrestd
// does not speak of accounts; Unavailable.
func (d *Driver) EnsureAccount(ctx context.Context, r *adapterv1.EnsureAccountRequest) (*adapterv1.EnsureAccountResponse, error) {
	if err := d.withoutAccounts(); err != nil {
		return nil, err
	}
	if !idRule.MatchString(r.TenantId) {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("tenant_id must be letters, digits, _, - and ., got %q", clip(r.TenantId, 60)))
	}
	name := first(r.Name, nameFor(d.center, r.TenantId))
	if !accountName.MatchString(name) {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("name must have 1 to 64 lower-case letters, digits, _, - and ., got %q", clip(name, 100)))
	}
	a, err := d.ensureAccount(ctx, name, r.TenantId)
	if err != nil {
		return nil, d.accountFailed(err)
	}
	d.accounts.changed()
	return &adapterv1.EnsureAccountResponse{Account: &adapterv1.Account{Name: name, TenantId: a.tenant(d.center)}}, nil
}

func (d *Driver) ensureAccount(ctx context.Context, name, tenant string) (*account, error) {
	cluster, err := d.ourCluster(ctx)
	if err != nil {
		return nil, err
	}
	all, err := d.listAccounts(ctx)
	if err != nil {
		return nil, err
	}
	a := all[name]
	if a == nil {
		a = &account{Name: text(name), Description: text(fmt.Sprintf("yunhe %s %s", d.center, tenant))}
		made := map[string]any{"accounts": []any{map[string]any{"name": name, "description": a.Description, "organization": "yunhe"}}}
		if err := database[struct{}](ctx, d.api, http.MethodPost, "accounts", made, "", nil); err != nil {
			return nil, err
		}
	}
	// The account on the cluster, before the user in it.
	for _, user := range []string{"", d.cfg.User} {
		if a.has(cluster, user) {
			continue
		}
		one := map[string]any{"account": name, "cluster": cluster, "user": user}
		if user == "" {
			one["parent_account"] = first(d.cfg.Account, "root")
		}
		if err := database[struct{}](ctx, d.api, http.MethodPost, "associations", map[string]any{"associations": []any{one}}, "", nil); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// RemoveAccount deletes an account that this center made for the tenant, and
// leaves others. FailedPrecondition while jobs of it have not ended;
// Unavailable.
func (d *Driver) RemoveAccount(ctx context.Context, r *adapterv1.RemoveAccountRequest) (*adapterv1.RemoveAccountResponse, error) {
	if err := d.withoutAccounts(); err != nil {
		return nil, err
	}
	if err := d.whole(ctx, time.Now()); err != nil {
		return nil, err
	}
	all, err := d.listAccounts(ctx)
	if err != nil {
		return nil, d.accountFailed(err)
	}
	a := all[r.Name]
	if a == nil || r.TenantId == "" || a.tenant(d.center) != r.TenantId {
		return &adapterv1.RemoveAccountResponse{}, nil
	}
	if id := d.bookedOn(r.Name); id != "" {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("account %s has attempt %s, which has not ended", r.Name, id))
	}
	err = database[struct{}](ctx, d.api, http.MethodDelete, "account/"+url.PathEscape(r.Name), nil, "", nil)
	var no *apiError
	if errors.As(err, &no) && no.number() >= 2000 && no.number() < 5000 {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("slurmdbd does not delete account %s: %v", r.Name, no))
	}
	if err != nil {
		return nil, d.accountFailed(err)
	}
	d.accounts.changed()
	return &adapterv1.RemoveAccountResponse{}, nil
}

// bookedOn names an attempt of an account that has not ended, "" if there is
// none.
func (d *Driver) bookedOn(name string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, a := range d.attempts {
		if a.account == name && a.final == nil && (a.submitted != 0 || !a.doubt.IsZero()) && a.forgotten.IsZero() {
			return id
		}
		for _, j := range a.jobs {
			if string(j.Account) == name && j.end() == "" {
				return id
			}
		}
	}
	return ""
}

// mayBook says why an attempt cannot be booked on an account, "" if it can.
// Without that Slurm would book it on another one, or wait.
func (d *Driver) mayBook(ctx context.Context, name string) (refusal string, err error) {
	if name == "" {
		return "", nil
	}
	if !d.cfg.Accounts {
		return fmt.Sprintf("account %q cannot be used: accounts is not set in the center's configuration", clip(name, 64)), nil
	}
	cluster, err := d.ourCluster(ctx)
	if err != nil {
		return "", d.accountFailed(err)
	}
	d.accounts.mu.Lock()
	known, read := d.accounts.known, d.accounts.read
	d.accounts.mu.Unlock()
	if time.Since(read) > accountsKept {
		begun := time.Now()
		all, err := d.listAccounts(ctx)
		if err != nil {
			return "", d.accountFailed(err)
		}
		known = make(map[string]bool, len(all))
		for name, a := range all {
			known[name] = a.has(cluster, d.cfg.User)
		}
		d.accounts.mu.Lock()
		if d.accounts.read.Equal(read) { // nothing was changed meanwhile
			d.accounts.known, d.accounts.read = known, begun
		}
		d.accounts.mu.Unlock()
	}
	if !known[name] {
		return fmt.Sprintf("there is no account %q for user %s", clip(name, 64), d.cfg.User), nil
	}
	return "", nil
}
