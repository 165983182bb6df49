package kill_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"yunhe.dev/yunhe/internal/db"
)

// leaseHistory has the database itself write down who takes leases, and who
// writes what only the owners of two of them write: attempts are made by who has
// scheduler.cycle, and events leave the outbox by who has bus.relay. A line is
// written in the transaction it tells of; the database knows when that was
// committed.
var leaseHistory = []string{
	`CREATE TABLE test_lease_history (lease TEXT NOT NULL, who TEXT NOT NULL, takes BOOLEAN NOT NULL, began TIMESTAMPTZ NOT NULL)`,
	`CREATE FUNCTION test_lease_taken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO test_lease_history VALUES (NEW.name, split_part(NEW.owner, '@', 1), TRUE, transaction_timestamp()); RETURN NULL; END $$`,
	`CREATE FUNCTION test_lease_used() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO test_lease_history VALUES (TG_ARGV[0], current_setting('application_name'), FALSE, transaction_timestamp()); RETURN NULL; END $$`,
	`CREATE TRIGGER test_lease_taken AFTER INSERT OR UPDATE ON lease_terms FOR EACH ROW EXECUTE FUNCTION test_lease_taken()`,
	`CREATE TRIGGER test_lease_used AFTER INSERT ON attempts FOR EACH STATEMENT EXECUTE FUNCTION test_lease_used('scheduler.cycle')`,
	`CREATE TRIGGER test_lease_used AFTER DELETE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION test_lease_used('bus.relay')`,
}

func (w *world) openStore(ctx context.Context) (*db.DB, error) {
	return db.Open(ctx, db.Config{URL: w.database, Name: "test"}, slog.New(slog.DiscardHandler))
}

func (w *world) watchLeases(ctx context.Context) error {
	d, err := w.openStore(ctx)
	if err != nil {
		return err
	}
	err = d.Tx(ctx, func(tx *db.Tx) error {
		for _, text := range leaseHistory {
			if _, err := tx.Exec(ctx, text); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
		}
		return nil
	})
	return errors.Join(err, d.Close())
}

// leaseUse is a line of the history.
type leaseUse struct {
	lease, who string
	takes      bool
}

// tenancy is a lease: who writes under it is who took it last. Who had it when
// the history begins is not in it.
var tenancy = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		at := map[string]int{}
		for _, o := range history {
			lease := o.Input.(leaseUse).lease
			i, ok := at[lease]
			if !ok {
				i = len(parts)
				at[lease], parts = i, append(parts, nil)
			}
			parts[i] = append(parts[i], o)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		x := input.(leaseUse)
		return x.takes || state == "" || state == x.who, x.who
	},
}

// visible is how long after a commit has its time others may not see it yet.
const visible = time.Second

// checkLeaseHistory checks that the writes under leases, and their takings, have
// an order in which only owners write and that agrees with time.
func (w *world) checkLeaseHistory(t *testing.T, ctx context.Context) {
	d, err := w.openStore(ctx)
	must(t, err)
	defer func() { must(t, d.Close()) }()
	var ops []porcupine.Operation
	takes, processes := 0, map[string]int{}
	must(t, d.View(ctx, func(tx *db.Tx) error {
		ops, takes = nil, 0
		clear(processes)
		return tx.Query(ctx, `SELECT lease, who, takes, began, pg_xact_commit_timestamp(xmin) FROM test_lease_history`, nil, func(row db.Row) error {
			var x leaseUse
			var began, ended time.Time
			if err := row.Scan(&x.lease, &x.who, &x.takes, &began, &ended); err != nil {
				return err
			}
			ended = ended.Add(visible)
			for _, o := range w.log.outages { // what was committed then may be seen after it
				if began.Before(o.to) && ended.After(o.from) {
					ended = o.to.Add(visible)
				}
			}
			if x.takes {
				takes++
			}
			if _, ok := processes[x.who]; !ok {
				processes[x.who] = len(processes)
			}
			ops = append(ops, porcupine.Operation{ClientId: processes[x.who], Input: x, Call: began.UnixNano(), Return: ended.UnixNano()})
			return nil
		})
	}))
	what := fmt.Sprintf("leases were taken %d times and written under %d times, by %d processes", takes, len(ops)-takes, len(processes))
	switch porcupine.CheckOperationsTimeout(tenancy, ops, 2*time.Minute) {
	case porcupine.Ok:
		t.Logf("%s: linearizable", what)
	case porcupine.Unknown:
		t.Errorf("%s: whether by their owners only was not found out in two minutes", what)
	case porcupine.Illegal:
		t.Errorf("%s, and not by their owners only", what)
	}
	if len(ops) == takes {
		t.Error("nothing was written under a lease: this shows nothing")
	}
}

// TestTenancy: the check finds who writes under a lease that another has taken
// before, and nobody else.
func TestTenancy(t *testing.T) {
	t.Parallel()
	op := func(who string, takes bool, from, to int64) porcupine.Operation {
		return porcupine.Operation{Input: leaseUse{"lease", who, takes}, Call: from, Return: to}
	}
	for name, x := range map[string]struct {
		ops []porcupine.Operation
		ok  bool
	}{
		"owners only":                        {[]porcupine.Operation{op("a", true, 0, 1), op("a", false, 2, 3), op("b", true, 4, 5), op("b", false, 6, 7)}, true},
		"who had it at the beginning":        {[]porcupine.Operation{op("a", false, 0, 1), op("b", true, 2, 3), op("b", false, 4, 5)}, true},
		"a write while another takes it":     {[]porcupine.Operation{op("a", true, 0, 1), op("b", true, 2, 5), op("a", false, 3, 6)}, true},
		"a write after another took it":      {[]porcupine.Operation{op("a", true, 0, 1), op("b", true, 2, 3), op("a", false, 4, 5)}, false},
		"a write of one who never had it":    {[]porcupine.Operation{op("a", true, 0, 1), op("c", false, 2, 3)}, false},
		"two owners in turn without takings": {[]porcupine.Operation{op("a", false, 0, 1), op("b", false, 2, 3)}, false},
	} {
		if got := porcupine.CheckOperations(tenancy, x.ops); got != x.ok {
			t.Errorf("%s: linearizable is %v, want %v", name, got, x.ok)
		}
	}
}
