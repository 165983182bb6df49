package kill_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"yunhe.dev/yunhe/internal/db"
)

// leaseHistory has the database itself write down who takes leases, and who does
// anything under one: each transaction of a loop that one process at a time runs
// reads the lease's term (run.Elector), which is made a call. A line is written in
// the transaction it tells of; the database knows when that was committed.
var leaseHistory = []string{
	`CREATE TABLE test_lease_history (lease TEXT NOT NULL, who TEXT NOT NULL, takes BOOLEAN NOT NULL, began TIMESTAMPTZ NOT NULL)`,
	`CREATE FUNCTION test_lease_taken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO test_lease_history VALUES (NEW.name, split_part(NEW.owner, '@', 1), TRUE, transaction_timestamp()); RETURN NULL; END $$`,
	`CREATE FUNCTION test_lease_used(lease TEXT) RETURNS boolean LANGUAGE plpgsql VOLATILE COST 10000 AS $$ BEGIN
		IF current_setting('transaction_read_only') = 'off' THEN
			INSERT INTO test_lease_history VALUES (lease, current_setting('application_name'), FALSE, transaction_timestamp());
		END IF;
		RETURN TRUE; END $$`,
	`ALTER TABLE lease_terms RENAME TO test_lease_terms`,
	`CREATE TRIGGER test_lease_taken AFTER INSERT OR UPDATE ON test_lease_terms FOR EACH ROW EXECUTE FUNCTION test_lease_taken()`,
	`CREATE VIEW lease_terms AS SELECT name, owner, term FROM test_lease_terms WHERE test_lease_used(name)`,
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

// telling leaves out uses that say nothing beyond the one before them: by the same
// process, with no taking and nothing of another one from the earlier's beginning to
// the end of both. What is linearizable without them is with them, and the other way round.
func telling(ops []porcupine.Operation) (out []porcupine.Operation) {
	use := func(o porcupine.Operation) leaseUse { return o.Input.(leaseUse) }
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int {
		return cmp.Or(cmp.Compare(use(a).lease, use(b).lease), cmp.Compare(a.Call, b.Call))
	})
	other := func(i, j int) bool { return use(ops[i]) != use(ops[j]) }
	for from := 0; from < len(ops); {
		to := from
		for to < len(ops) && use(ops[to]).lease == use(ops[from]).lease {
			to++
		}
		next := make([]int64, to-from) // when the next other one begins
		for i := to - 1; i >= from; i-- {
			if next[i-from] = math.MaxInt64; i+1 < to {
				if next[i-from] = next[i+1-from]; other(i, i+1) {
					next[i-from] = ops[i+1].Call
				}
			}
		}
		ended := map[leaseUse]int64{} // what began so far, at last
		for i := from; i < to; i++ {
			o := ops[i]
			before := int64(math.MinInt64) // end of the others
			for x, at := range ended {
				if x != use(o) {
					before = max(before, at)
				}
			}
			if use(o).takes || i == from || other(i, i-1) || before >= ops[i-1].Call || next[i-from] <= max(o.Return, ops[i-1].Return) {
				out = append(out, o)
			}
			ended[use(o)] = max(ended[use(o)], o.Return)
		}
		from = to
	}
	return out
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
	takes, processes, leases := 0, map[string]int{}, map[string]bool{}
	must(t, d.View(ctx, func(tx *db.Tx) error {
		ops, takes = nil, 0
		clear(processes)
		clear(leases)
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
			if leases[x.lease] = true; x.takes {
				takes++
			}
			if _, ok := processes[x.who]; !ok {
				processes[x.who] = len(processes)
			}
			ops = append(ops, porcupine.Operation{ClientId: processes[x.who], Input: x, Call: began.UnixNano(), Return: ended.UnixNano()})
			return nil
		})
	}))
	what := fmt.Sprintf("%d leases were taken %d times and transactions were under them %d times, by %d processes", len(leases), takes, len(ops)-takes, len(processes))
	switch porcupine.CheckOperationsTimeout(tenancy, telling(ops), 2*time.Minute) {
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
	// What is left out changes nothing.
	random, left, bad := rand.New(rand.NewPCG(1, 1)), 0, 0
	for range 5000 {
		ops := []porcupine.Operation{op("a", true, 0, 1)}
		who := "a"
		for at := int64(1); at < 12; at++ {
			takes := random.IntN(6) == 0
			if takes || random.IntN(8) == 0 {
				who = string(rune('a' + random.IntN(3)))
			}
			from := at*4 + random.Int64N(4)
			ops = append(ops, op(who, takes, from, from+1+random.Int64N(8)))
		}
		want := porcupine.CheckOperations(tenancy, ops)
		few := telling(slices.Clone(ops))
		if left += len(ops) - len(few); !want {
			bad++
		}
		if got := porcupine.CheckOperations(tenancy, few); got != want {
			t.Fatalf("%v is linearizable: %v; without what says nothing, %v: %v", ops, want, few, got)
		}
	}
	if left < 1000 || bad < 1000 || bad > 4000 {
		t.Errorf("%d uses were left out, and %d of 5000 histories were not linearizable: this shows little", left, bad)
	}
}
