package adapters

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
)

// Account of a center, as the center and the platform see it.
type Account struct {
	Name    string
	Tenants []string // booked on it
	Made    bool     // by SetAccount
	Missing bool     // tenants are booked on it, and the center does not have it
	// What its runs have used, if the center says: see the contract.
	UseKnown                        bool
	CoreSeconds, AccelSeconds, Runs int64
}

const maxAccount = 64

// SetTenants says who knows tenants: f returns fault.NotFound for one there is
// not. It is called before the first call, if at all.
func (s *Service) SetTenants(f func(ctx context.Context, id string) error) { s.tenant = f }

// checkAccount refuses centers and tenants there are not, and centers without accounts.
func (s *Service) checkAccount(ctx context.Context, centerID, tenantID string) error {
	if _, err := s.reg.GetCenter(ctx, centerID); err != nil {
		return err
	}
	if tenantID != "" && s.tenant != nil {
		if err := s.tenant(ctx, tenantID); err != nil {
			return err
		}
	}
	return s.db.View(ctx, func(tx *db.Tx) error {
		offers, err := s.OffersTx(ctx, tx, centerID, adapterv1.Part_PART_ACCOUNT)
		if err == nil && !offers {
			err = fault.New(fault.Unimplemented, "what reaches center %s cannot keep accounts", centerID)
		}
		return err
	})
}

// ListAccounts asks a center for its accounts. It returns fault.Unimplemented
// for one that has none, and fault.Unavailable while it does not answer.
func (s *Service) ListAccounts(ctx context.Context, centerID string) ([]Account, error) {
	var c core.Check
	if c.ID("ai_center_id", centerID); c.Err() != nil {
		return nil, c.Err()
	}
	if err := s.checkAccount(ctx, centerID, ""); err != nil {
		return nil, err
	}
	var res adapterv1.ListAccountsResponse
	if err := s.ask(ctx, centerID, "listaccounts", &adapterv1.ListAccountsRequest{}, &res); err != nil {
		return nil, centerError(err, centerID, "keep accounts")
	}
	all, err := s.readBooked(ctx)
	booked := all[centerID]
	if err != nil {
		return nil, err
	}
	byName := map[string]*Account{}
	for _, a := range res.Accounts {
		name := clip(clean(a.Name), maxAccount)
		k := &Account{Name: name, Made: a.TenantId != ""}
		if u := a.Use; u != nil {
			k.UseKnown, k.CoreSeconds, k.AccelSeconds, k.Runs = true, u.CpuCoreSeconds, u.AcceleratorSeconds, u.Runs
		}
		byName[name] = k
	}
	for tenant, name := range booked {
		if byName[name] == nil {
			byName[name] = &Account{Name: name, Missing: true}
		}
		byName[name].Tenants = append(byName[name].Tenants, tenant)
	}
	out := make([]Account, 0, len(byName))
	for _, k := range byName {
		slices.Sort(k.Tenants)
		out = append(out, *k)
	}
	slices.SortFunc(out, func(a, b Account) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// readBooked returns the accounts on which tenants' runs are booked, by center
// and tenant.
func (s *Service) readBooked(ctx context.Context) (out map[string]map[string]string, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out = map[string]map[string]string{}
		return tx.Query(ctx, `SELECT ai_center_id, tenant_id, name FROM accounts WHERE NOT leaving`, nil, func(row db.Row) error {
			var center, tenant, name string
			err := row.Scan(&center, &tenant, &name)
			if out[center] == nil {
				out[center] = map[string]string{}
			}
			out[center][tenant] = name
			return err
		})
	})
	return out, err
}

// bookedKnown is how long what was read of accounts is used: so long may what
// another process changed go on to be booked as before.
const bookedKnown = 100 * time.Millisecond

// book puts on each attempt the account it is booked on.
func (s *Service) book(ctx context.Context, centerID string, attempts []*adapterv1.Attempt) error {
	booked, err := s.booked.get(ctx, s.db.Now, bookedKnown)
	if err != nil {
		return err
	}
	for _, a := range attempts {
		a.Account = booked[centerID][a.TenantId]
	}
	return nil
}

// SetAccount has a tenant's runs at a center booked on an account, which is
// made if there is none of that name; name may be empty. It counts for runs
// sent afterwards.
func (s *Service) SetAccount(ctx context.Context, centerID, tenantID, name string) (Account, error) {
	var c core.Check
	c.ID("ai_center_id", centerID)
	c.ID("tenant_id", tenantID)
	c.Text("name", name, false, maxAccount, 0)
	if err := c.Err(); err != nil {
		return Account{}, err
	}
	if err := s.checkAccount(ctx, centerID, tenantID); err != nil {
		return Account{}, err
	}
	var res adapterv1.EnsureAccountResponse
	if err := s.ask(ctx, centerID, "ensureaccount", &adapterv1.EnsureAccountRequest{TenantId: tenantID, Name: name}, &res); err != nil {
		return Account{}, centerError(err, centerID, "keep accounts")
	}
	got := res.GetAccount().GetName()
	if got == "" || len(got) > maxAccount || got != clean(got) || name != "" && got != name {
		return Account{}, fault.New(fault.Unavailable, "center %s answers with account %.80q", centerID, got)
	}
	old := ""
	err := s.db.Tx(ctx, func(tx *db.Tx) error {
		old = ""
		if _, err := tx.Get(ctx, `SELECT name FROM accounts WHERE ai_center_id = $1 AND tenant_id = $2`, []any{centerID, tenantID}, &old); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO accounts (ai_center_id, tenant_id, name, leaving, changed_at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (ai_center_id, tenant_id) DO UPDATE SET name = $3, leaving = $4, changed_at = $5`, centerID, tenantID, got, false, db.Micros(tx.Now))
		if err != nil {
			return fmt.Errorf("store account of %s at %s: %w", tenantID, centerID, err)
		}
		return nil
	})
	if err != nil {
		return Account{}, err
	}
	s.booked.forget()
	if old != "" && old != got {
		// It stays if runs of it go on; ListAccounts shows it.
		if err := s.dropAccount(ctx, centerID, tenantID, old); err != nil {
			s.log.Info("an account that a tenant has left stays", "ai_center_id", centerID, "tenant_id", tenantID, "account", old, "error", err)
		}
	}
	return Account{Name: got, Tenants: []string{tenantID}, Made: res.Account.TenantId != ""}, nil
}

func (s *Service) dropAccount(ctx context.Context, centerID, tenantID, name string) error {
	err := s.ask(ctx, centerID, "removeaccount", &adapterv1.RemoveAccountRequest{TenantId: tenantID, Name: name}, &adapterv1.RemoveAccountResponse{})
	return centerError(err, centerID, "keep accounts")
}

// RemoveAccount has a tenant's runs at a center booked on its default again,
// and removes the account if SetAccount made it. fault.NotFound if the tenant
// is booked on none there; fault.Conflict while runs of it have not ended.
func (s *Service) RemoveAccount(ctx context.Context, centerID, tenantID string) error {
	var c core.Check
	c.ID("ai_center_id", centerID)
	c.ID("tenant_id", tenantID)
	if err := c.Err(); err != nil {
		return err
	}
	name := ""
	// Nothing new is booked on it while the center is asked. Who dies in between
	// leaves it so, and is asked again.
	mark := func(leaving bool) error {
		defer s.booked.forget()
		return s.db.Tx(ctx, func(tx *db.Tx) error {
			name = ""
			found, err := tx.Get(ctx, `SELECT name FROM accounts WHERE ai_center_id = $1 AND tenant_id = $2`, []any{centerID, tenantID}, &name)
			if err == nil && !found {
				err = fault.New(fault.NotFound, "runs of tenant %q at center %q are booked on no account of their own", tenantID, centerID)
			}
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `UPDATE accounts SET leaving = $3, changed_at = $4 WHERE ai_center_id = $1 AND tenant_id = $2`, centerID, tenantID, leaving, db.Micros(tx.Now))
			return err
		})
	}
	if err := mark(true); err != nil {
		return err
	}
	if err := s.dropAccount(ctx, centerID, tenantID, name); err != nil {
		return cmp.Or(mark(false), err)
	}
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM accounts WHERE ai_center_id = $1 AND tenant_id = $2 AND leaving`, centerID, tenantID)
		return err
	})
}
