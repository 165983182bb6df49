package slurm_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/enginetest"
)

// administrator lets the user of the tests change accounts.
func administrator(t *testing.T, s *enginetest.Slurm) {
	t.Helper()
	if _, err := s.Run(t.Context(), "", "sacctmgr", "--immediate", "add", "user", user, "account=root", "adminlevel=Admin"); err != nil {
		t.Fatal(err)
	}
}

func (v *driver) account(tenant, name string) (*adapterv1.Account, error) {
	res, err := v.EnsureAccount(v.Context(), &adapterv1.EnsureAccountRequest{TenantId: tenant, Name: name})
	return res.GetAccount(), err
}

func (v *driver) accounts() map[string]string {
	v.Helper()
	res, err := v.ListAccounts(v.Context(), &adapterv1.ListAccountsRequest{})
	if err != nil {
		v.Fatal(err)
	}
	out := map[string]string{}
	for _, a := range res.Accounts {
		out[a.Name] = a.TenantId
	}
	return out
}

// use is what an account is told to have used.
func (v *driver) use(name string) *adapterv1.AccountUse {
	v.Helper()
	res, err := v.ListAccounts(v.Context(), &adapterv1.ListAccountsRequest{})
	if err != nil {
		v.Fatal(err)
	}
	for _, a := range res.Accounts {
		if a.Name == name {
			return a.Use
		}
	}
	v.Fatalf("no account %s in {%v}", name, res)
	return nil
}

// booked waits until slurmdbd has one job, as wanted: it hears of a job a moment
// after slurmctld.
func booked(t *testing.T, s *enginetest.Slurm, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := s.Run(ctx, "", "sacct", "--noheader", "--parsable2", "--allocations", "--allusers", "--format=Account,JobName%100")
		if err == nil && strings.TrimSpace(out) == want {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("slurmdbd has %q, %v, want %q", out, err, want)
		case <-tick.C:
		}
	}
}

func wantAnswer(t *testing.T, err error, code connect.Code, words ...string) {
	t.Helper()
	if connect.CodeOf(err) != code {
		t.Errorf("got %v, want %v", err, code)
	}
	for _, w := range words {
		if err != nil && !strings.Contains(err.Error(), w) {
			t.Errorf("got %v, want %q in it", err, w)
		}
	}
}

// TestAccounts: accounts are made in a real slurmdbd, and jobs are booked on
// them there.
func TestAccounts(t *testing.T) {
	t.Parallel()
	s := enginetest.SlurmCluster(t, enginetest.SlurmConfig{Nodes: 1, GPUs: 2, Accounting: true, Conf: quick + "AccountingStorageEnforce=associations\n"})
	cfg := config(t, s)
	none := start(t, cfg)
	_, err := none.account("lab", "")
	wantAnswer(t, err, connect.CodeUnimplemented, "accounts")
	none.kill()

	cfg.Accounts = true
	v := start(t, cfg)
	_, err = v.account("lab", "")
	wantAnswer(t, err, connect.CodeFailedPrecondition, user, "adminlevel=Admin")
	administrator(t, s)

	lab, err := v.account("Lab_1", "")
	if err != nil || lab.TenantId != "Lab_1" || !strings.HasPrefix(lab.Name, "yunhe-lab_1-") {
		t.Fatalf("got {%v}, %v", lab, err)
	}
	named, err := v.account("other", "physics")
	if err != nil || named.Name != "physics" || named.TenantId != "other" {
		t.Fatalf("got {%v}, %v", named, err)
	}
	// One that is there is nobody's, and is used as it is.
	for _, args := range [][]string{{"add", "account", "old", "cluster=enginetest"}, {"add", "account", "elsewhere", "cluster=enginetest"}} {
		if _, err := s.Run(t.Context(), "", "sacctmgr", append([]string{"--immediate"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	if old, err := v.account("third", "old"); err != nil || old.Name != "old" || old.TenantId != "" {
		t.Errorf("got {%v}, %v", old, err)
	}
	if got := v.accounts(); len(got) != 4 || got[lab.Name] != "Lab_1" || got["physics"] != "other" || got["old"] != "" || got["root"] != "" {
		t.Errorf("accounts are %v, want those the user may book on", got)
	}
	_, err = v.account("lab", "Upper Case")
	wantAnswer(t, err, connect.CodeInvalidArgument, "name")
	_, err = v.account("", "")
	wantAnswer(t, err, connect.CodeInvalidArgument, "tenant_id")

	on := func(name, command string) *adapterv1.Attempt {
		a := attempt(command)
		a.Account = name
		return a
	}
	runs := on(lab.Name, "sleep 1000")
	runs.Resources["cpu"], runs.Resources["gpu"] = 2000, 1
	v.apply(runs)
	v.running(runs.AttemptId)
	within(t, "a run's use is told while it runs", func() bool { return v.use(lab.Name).GetAcceleratorSeconds() > 0 })
	remove := func(tenant, name string) error {
		_, err := v.RemoveAccount(t.Context(), &adapterv1.RemoveAccountRequest{TenantId: tenant, Name: name})
		return err
	}
	wantAnswer(t, remove("Lab_1", lab.Name), connect.CodeFailedPrecondition, runs.AttemptId)
	v.stop(runs.AttemptId)
	v.ended(runs.AttemptId)
	booked(t, s, lab.Name+"|yunhe:"+runs.AttemptId)
	within(t, "what was used is told as slurmdbd has it", func() bool {
		out, err := s.Run(t.Context(), "", "sacct", "--noheader", "--parsable2", "--allocations", "--allusers", "--starttime=2000-01-01", "--accounts="+lab.Name, "--format=ElapsedRaw,End")
		if err != nil {
			t.Fatal(err)
		}
		var seconds int64
		if _, err := fmt.Sscanf(out, "%d|2", &seconds); err != nil { // it has not heard of the end
			return false
		}
		u := v.use(lab.Name)
		return seconds > 0 && u.GetCpuCoreSeconds() == 2*seconds && u.GetAcceleratorSeconds() == seconds && u.GetRuns() == 1
	})
	if u := v.use("physics"); u == nil || u.Runs != 0 {
		t.Errorf("an account without runs used {%v}", u)
	}
	res, err := v.Apply(t.Context(), &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{on("nobody-has-it", "true"), on("elsewhere", "true")}})
	if err != nil || len(res.Refusals) != 2 || !strings.Contains(res.Refusals[0].Reason, "nobody-has-it") || !strings.Contains(res.Refusals[1].Reason, "elsewhere") {
		t.Errorf("got %v, %v, want both refused", res, err)
	}
	for _, name := range []string{"old", "physics"} {
		if err := remove("Lab_1", name); err != nil {
			t.Errorf("remove what is not the tenant's: %v", err)
		}
	}
	for range 2 {
		if err := remove("Lab_1", lab.Name); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if got := v.accounts(); len(got) != 3 {
		t.Errorf("accounts are %v, want three left", got)
	}
	if res, err = v.Apply(t.Context(), &adapterv1.ApplyRequest{Attempts: []*adapterv1.Attempt{on(lab.Name, "true")}}); err != nil || len(res.Refusals) != 1 {
		t.Errorf("a run on an account that was removed: %v, %v", res, err)
	}

	t.Run("slurmdbd down", func(t *testing.T) {
		if err := s.KillAccounting(); err != nil {
			t.Fatal(err)
		}
		_, err := v.ListAccounts(t.Context(), &adapterv1.ListAccountsRequest{})
		wantAnswer(t, err, connect.CodeUnavailable)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.StartAccounting(ctx); err != nil {
			t.Fatal(err)
		}
		if got := v.accounts(); len(got) != 3 {
			t.Errorf("accounts are %v", got)
		}
	})
	t.Run("slurmrestd without slurmdbd", func(t *testing.T) {
		u, err := url.Parse(s.RESTURL)
		if err != nil {
			t.Fatal(err)
		}
		proxy := httputil.NewSingleHostReverseProxy(u)
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/slurmdb/") { // as slurmrestd answers what it does not know
				http.Error(w, "Unable to find requested URL", http.StatusNotFound)
				return
			}
			proxy.ServeHTTP(w, r)
		}))
		t.Cleanup(front.Close)
		cfg := cfg
		cfg.URL = front.URL
		w := start(t, cfg)
		_, err = w.ListAccounts(t.Context(), &adapterv1.ListAccountsRequest{})
		wantAnswer(t, err, connect.CodeFailedPrecondition, "openapi/dbv0.0.38")
	})
}
