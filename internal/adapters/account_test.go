package adapters_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/app/apptest"
	"yunhe.dev/yunhe/internal/fault"
)

// ledger is the far end of a center with accounts.
type ledger struct {
	mu       sync.Mutex // guards the fields below
	accounts []*adapterv1.Account
	busy     bool // runs of every account go on
	away     bool
}

func (l *ledger) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *ledger) find(name string) int {
	return slices.IndexFunc(l.accounts, func(a *adapterv1.Account) bool { return a.Name == name })
}

func (l *ledger) answer(what string, data []byte) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return nil, fault.New(fault.Unavailable, "the books are closed")
	}
	switch what {
	case "listaccounts":
		return proto.Marshal(&adapterv1.ListAccountsResponse{Accounts: l.accounts})
	case "ensureaccount":
		r := &adapterv1.EnsureAccountRequest{}
		if err := proto.Unmarshal(data, r); err != nil {
			return nil, err
		}
		if r.Name == "" {
			r.Name = "of-" + r.TenantId
		}
		if l.find(r.Name) < 0 {
			l.accounts = append(l.accounts, &adapterv1.Account{Name: r.Name, TenantId: r.TenantId, Use: &adapterv1.AccountUse{CpuCoreSeconds: 7, Runs: 1}})
		}
		return proto.Marshal(&adapterv1.EnsureAccountResponse{Account: l.accounts[l.find(r.Name)]})
	case "removeaccount":
		r := &adapterv1.RemoveAccountRequest{}
		if err := proto.Unmarshal(data, r); err != nil {
			return nil, err
		}
		if i := l.find(r.Name); i >= 0 && l.accounts[i].TenantId == r.TenantId {
			if l.busy {
				return nil, fault.New(fault.Conflict, "runs of account %s have not ended", r.Name)
			}
			l.accounts = slices.Delete(l.accounts, i, i+1)
		}
		return proto.Marshal(&adapterv1.RemoveAccountResponse{})
	}
	return nil, fault.New(fault.Unimplemented, "no %s", what)
}

func wantCode(t testing.TB, what string, err error, want connect.Code, says string) {
	t.Helper()
	if err == nil || connect.CodeOf(err) != want || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want %v and %q", what, err, want, says)
	}
}

// A tenant's runs are booked on its account from when it is set until it is
// removed, and the center's own accounts stay what they are.
func TestAccounts(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, a *apptest.App) {
		ctx := t.Context()
		l := &ledger{accounts: []*adapterv1.Account{{Name: "root"}, {Name: "physics"}}}
		f := a.Join(t, apptest.Center{ID: "c1", Play: apptest.Succeed, Other: l.answer, Parts: []adapterv1.Part{adapterv1.Part_PART_ACCOUNT}})
		a.Join(t, apptest.Center{ID: "plain", Prices: map[string]int64{"small": 9999}})
		ann := a.User(t, "acme", "ann", identityv1.Role_ROLE_USER)
		booked := func() string {
			t.Helper()
			j := apptest.Job("booked", 1)
			j.Tasks[0].Constraints = &jobsv1.Constraints{Centers: []string{"c1"}}
			r := ann.AwaitState(t, ann.Submit(t, j), jobsv1.State_STATE_SUCCEEDED).Replicas[0]
			return f.Last(r.AttemptId).Account
		}
		list := func() (out []string) {
			t.Helper()
			res, err := a.Admin.Adapters.ListAccounts(ctx, &adaptersv1.ListAccountsRequest{AiCenterId: "c1"})
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range res.Accounts {
				s := k.Name + " " + strings.Join(k.TenantIds, ",")
				for name, is := range map[string]bool{" made": k.Made, " missing": k.Missing} {
					if is {
						s += name
					}
				}
				out = append(out, strings.TrimSpace(s))
			}
			return out
		}
		set := func(tenant, name string) (*adaptersv1.Account, error) {
			return a.Admin.Adapters.SetAccount(ctx, &adaptersv1.SetAccountRequest{AiCenterId: "c1", TenantId: tenant, Name: name})
		}
		if got := booked(); got != "" {
			t.Errorf("without an account it is booked on %q", got)
		}
		_, err := set("ghosts", "")
		wantCode(t, "of a tenant there is not", err, connect.CodeNotFound, "no tenant")
		_, err = a.Admin.Adapters.SetAccount(ctx, &adaptersv1.SetAccountRequest{AiCenterId: "plain", TenantId: "acme"})
		wantCode(t, "at a center without accounts", err, connect.CodeUnimplemented, "cannot keep accounts")
		_, err = a.Admin.Adapters.ListAccounts(ctx, &adaptersv1.ListAccountsRequest{AiCenterId: "nowhere"})
		wantCode(t, "of a center there is not", err, connect.CodeNotFound, "nowhere")
		_, err = ann.Adapters.SetAccount(ctx, &adaptersv1.SetAccountRequest{AiCenterId: "c1", TenantId: "acme"})
		wantCode(t, "by a user", err, connect.CodePermissionDenied, "")

		apptest.Until(t, "the center offers accounts", func() bool {
			_, err := a.Admin.Adapters.ListAccounts(ctx, &adaptersv1.ListAccountsRequest{AiCenterId: "c1"})
			return err == nil
		})
		for range 2 {
			if k, err := set("acme", ""); err != nil || k.Name != "of-acme" || !k.Made {
				t.Fatalf("set: %v, %v", k, err)
			}
		}
		if got := booked(); got != "of-acme" {
			t.Errorf("booked on %q, want of-acme", got)
		}
		if got := list(); !slices.Equal(got, []string{"of-acme acme made", "physics", "root"}) {
			t.Errorf("accounts %q", got)
		}
		a.Stop()
		a.Restart()
		ann = apptest.NewClient(a.URL(), ann.Key)
		if got := booked(); got != "of-acme" {
			t.Errorf("after a restart it is booked on %q", got)
		}
		// To one that was there: the one left behind goes, for it was made here.
		if _, err := set("acme", "physics"); err != nil {
			t.Fatal(err)
		}
		if got := list(); !slices.Equal(got, []string{"physics acme", "root"}) {
			t.Errorf("moved, the accounts are %q", got)
		}
		if _, err := set("acme", ""); err != nil {
			t.Fatal(err)
		}
		l.set(func() { l.busy = true })
		remove := func() error {
			_, err := a.Admin.Adapters.RemoveAccount(ctx, &adaptersv1.RemoveAccountRequest{AiCenterId: "c1", TenantId: "acme"})
			return err
		}
		wantCode(t, "removed while runs go on", remove(), connect.CodeAborted, "have not ended")
		if got := booked(); got != "of-acme" {
			t.Errorf("after a removal that failed it is booked on %q", got)
		}
		l.set(func() { l.busy, l.away = false, true })
		wantCode(t, "removed while the center is away", remove(), connect.CodeUnavailable, "")
		l.set(func() { l.away, l.accounts = false, slices.Delete(l.accounts, l.find("of-acme"), l.find("of-acme")+1) })
		if got := list(); !slices.Equal(got, []string{"of-acme acme missing", "physics", "root"}) {
			t.Errorf("lost by the center: %q", got)
		}
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		if got := booked(); got != "" {
			t.Errorf("removed, it is booked on %q", got)
		}
		wantCode(t, "removed again", remove(), connect.CodeNotFound, "no account")
	})
}
