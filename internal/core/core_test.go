package core_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

func TestNewID(t *testing.T) {
	t.Parallel()
	const workers, each = 8, 5000
	ids := make([][]string, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range each {
				ids[w] = append(ids[w], core.NewID("job"))
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, list := range ids {
		if !slices.IsSorted(list) {
			t.Error("IDs made one after the other do not sort in that order")
		}
		for _, id := range list {
			if len(id) != 30 || !strings.HasPrefix(id, "job_") || seen[id] {
				t.Fatalf("%q is no new ID of a job", id)
			}
			seen[id] = true
		}
	}
}

// TestNewIDSetBack: IDs go on sorting by creation though the clock is set back.
func TestNewIDSetBack(t *testing.T) {
	t.Parallel()
	last := core.NewID("job")
	synctest.Test(t, func(t *testing.T) { // where it is the year 2000
		for range 1000 {
			id := core.NewID("job")
			if id <= last {
				t.Fatalf("%s was made after %s", id, last)
			}
			last = id
		}
	})
}

func TestCaller(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	if c := core.CallerFrom(ctx); c.Can("x") || c.AllTenants || c.Sees("t") || c.UserID != "" {
		t.Errorf("without a caller: %+v, want one who may nothing", c)
	}
	own := core.Caller{UserID: "u", TenantID: "t", Permissions: map[string]bool{"jobs.read": true}}
	if got := core.CallerFrom(core.WithCaller(ctx, own)); got.UserID != "u" || !got.Can("jobs.read") || got.Can("jobs.write") {
		t.Errorf("got %+v", got)
	}
	all := own
	all.AllTenants = true
	for _, x := range []struct {
		c            core.Caller
		wanted, want string
	}{{own, "", "t"}, {own, "t", "t"}, {own, "other", "t"}, {all, "", ""}, {all, "other", "other"}} {
		if got := x.c.Tenant(x.wanted); got != x.want {
			t.Errorf("AllTenants=%v wants %q and gets %q, want %q", x.c.AllTenants, x.wanted, got, x.want)
		}
	}
	if own.Sees("other") || !own.Sees("t") || !all.Sees("other") {
		t.Error("who sees which tenant is wrong")
	}
}

func TestAudit(t *testing.T) {
	t.Parallel()
	if core.AuditFrom(t.Context()) != nil {
		t.Error("there is an audit record without a call")
	}
	a := &core.Audit{Method: "m"}
	if ctx := core.WithAudit(t.Context(), a); core.AuditFrom(ctx) != a || core.AuditFrom(context.WithoutCancel(ctx)) != a {
		t.Error("the audit record got lost")
	}
}

func TestPageSize(t *testing.T) {
	t.Parallel()
	for wanted, want := range map[int32]int{0: 50, 1: 1, 1000: 1000} {
		if got, err := core.PageSize(wanted, 50); got != want || err != nil {
			t.Errorf("PageSize(%d) = %d, %v, want %d", wanted, got, err, want)
		}
	}
	for _, wanted := range []int32{-1, 1001, math.MaxInt32, math.MinInt32} {
		_, err := core.PageSize(wanted, 50)
		if f := fault.FieldsOf(err); fault.KindOf(err) != fault.Invalid || len(f) != 1 || f[0].Path != "page_size" || !strings.Contains(f[0].Problem, "1000") {
			t.Errorf("PageSize(%d): %v, want page_size refused with its limit", wanted, err)
		}
	}
}

func FuzzPageToken(f *testing.F) {
	f.Add("a", "b", core.PageToken("a", "b"))
	f.Add("", "\x00", "WyJhIl0")
	f.Add("長", `"`, "!")
	f.Fuzz(func(t *testing.T, a, b, token string) {
		key := a + b // what a row's key can be: text without zero bytes
		if utf8.ValidString(a) && utf8.ValidString(b) && !strings.Contains(key, "\x00") && len(key) < 80 {
			if got, err := core.ParsePageToken(core.PageToken(a, b), 2); err != nil || !slices.Equal(got, []string{a, b}) {
				t.Errorf("%q, %q came back as %q, %v", a, b, got, err)
			}
		}
		got, err := core.ParsePageToken(token, 2)
		if err != nil && (fault.KindOf(err) != fault.Invalid || fault.FieldsOf(err)[0].Path != "page_token") {
			t.Errorf("ParsePageToken(%q): %v, want page_token refused", token, err)
		}
		if err == nil && token != "" && len(got) != 2 {
			t.Errorf("ParsePageToken(%q) = %q, want 2 parts", token, got)
		}
	})
}

func TestParsePageToken(t *testing.T) {
	t.Parallel()
	if got, err := core.ParsePageToken("", 2); got != nil || err != nil {
		t.Errorf("the first page: %q, %v", got, err)
	}
	for _, token := range []string{"x", "WzEsMl0", core.PageToken("a"), core.PageToken("a", "b", "c"), strings.Repeat("A", 2000), core.PageToken("a", "b") + "="} {
		if _, err := core.ParsePageToken(token, 2); fault.KindOf(err) != fault.Invalid {
			t.Errorf("ParsePageToken(%.20q): %v, want it refused", token, err)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name  string
		check func(c *core.Check)
		want  string // the problem, "" for none
	}{
		{"fits", func(c *core.Check) { c.Text("f", "長長", true, 2, 7) }, ""},
		{"tabs are control characters", func(c *core.Check) { c.Text("f", "a\tb", false, 0, 0) }, "control"},
		{"delete too", func(c *core.Check) { c.Text("f", "a\x7f", false, 0, 0) }, "control"},
		{"missing", func(c *core.Check) { c.Text("f", "", true, 0, 0) }, "is required"},
		{"blank", func(c *core.Check) { c.Text("f", "  ", true, 0, 0) }, "blank"},
		{"not required", func(c *core.Check) { c.Text("f", "", false, 1, 1) }, ""},
		{"one character too many", func(c *core.Check) { c.Text("f", "長長長", true, 2, 0) }, "at most 2 characters, got 3"},
		{"as many bytes as the limit", func(c *core.Check) { c.Text("f", "長長", true, 2, 6) }, "less than 6 bytes, got 6"},
		{"not UTF-8", func(c *core.Check) { c.Text("f", "\xff", true, 0, 0) }, "UTF-8"},
		{"an ID", func(c *core.Check) { c.ID("f", "a-b_c.D9") }, ""},
		{"the longest ID", func(c *core.Check) { c.ID("f", strings.Repeat("a", 32)) }, ""},
		{"an ID too long", func(c *core.Check) { c.ID("f", strings.Repeat("a", 33)) }, "at most 32 characters, got 33"},
		{"no ID", func(c *core.Check) { c.ID("f", "") }, "is required"},
		{"an ID that goes up", func(c *core.Check) { c.ID("f", "../a") }, `got "../a"`},
		{"an ID of a dot", func(c *core.Check) { c.ID("f", ".") }, "beginning with"},
		{"an ID with a space", func(c *core.Check) { c.ID("f", "a b") }, "letters"},
		{"an ID in another alphabet", func(c *core.Check) { c.ID("f", "長") }, "letters"},
		{"in range", func(c *core.Check) { c.Range("f", 5, 5, 5) }, ""},
		{"below", func(c *core.Check) { c.Range("f", 4, 5, 9) }, "between 5 and 9, got 4"},
		{"above", func(c *core.Check) { c.Range("f", 10, 5, 9) }, "between 5 and 9, got 10"},
	} {
		var c core.Check
		x.check(&c)
		err := c.Err()
		if x.want == "" {
			if err != nil {
				t.Errorf("%s: %v, want none", x.name, err)
			}
			continue
		}
		if f := fault.FieldsOf(err); len(f) != 1 || f[0].Path != "f" || !strings.Contains(f[0].Problem, x.want) {
			t.Errorf("%s: %v, want f: %s", x.name, err, x.want)
		}
	}
	var c core.Check
	for range 100 {
		c.Add("f", "is wrong")
	}
	if n := len(fault.FieldsOf(c.Err())); n != 20 {
		t.Errorf("%d violations are kept, want 20", n)
	}
}

func TestParseQuantity(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name, in string
		want     int64
	}{
		{core.CPU, "1", 1000}, {core.CPU, "500m", 500}, {core.CPU, "0.5", 500}, {core.CPU, "1.25", 1250}, {core.CPU, "2k", 2000000},
		{core.Memory, "2Gi", 2 << 30}, {core.Memory, "1.5Gi", 3 << 29}, {core.Memory, "1G", 1e9}, {core.Memory, "1", 1}, {core.Storage, "1Pi", 1 << 50},
		{"gpu", "8", 8}, {"gpu", "8000m", 8}, {core.Memory, "9007199254740991", 1<<53 - 1},
	} {
		if got, err := core.ParseQuantity(x.name, x.in); got != x.want || err != nil {
			t.Errorf("ParseQuantity(%s, %q) = %d, %v, want %d", x.name, x.in, got, err, x.want)
		}
	}
	for _, x := range [][2]string{
		{core.CPU, ""}, {core.CPU, "0"}, {core.CPU, "-1"}, {core.CPU, "1e3"}, {core.CPU, "0.0001"}, {core.CPU, "1.2.3"}, {core.CPU, "m"}, {core.CPU, "."}, {core.CPU, "1 "}, {core.CPU, "+1"},
		{core.CPU, "1/2"}, {core.CPU, "0x10"}, {core.CPU, "1_000"}, {core.CPU, "NaN"}, {core.CPU, "Inf"}, {"gpu", "0.5"}, {"gpu", "500m"}, {core.Memory, "1.3"}, {core.Memory, "9007199254740992"},
		{core.Memory, "9999999999Pi"}, {core.Memory, strings.Repeat("9", 33)}, {core.Memory, "1ki"}, {core.Memory, "1 Gi"}, {core.Memory, "１"},
	} {
		if got, err := core.ParseQuantity(x[0], x[1]); fault.KindOf(err) != fault.Invalid || got != 0 {
			t.Errorf("ParseQuantity(%s, %q) = %d, %v, want it refused", x[0], x[1], got, err)
		} else if msg, _ := fault.Message(err); !strings.Contains(msg, x[0]) {
			t.Errorf("ParseQuantity(%s, %q): %q does not name the resource", x[0], x[1], msg)
		}
	}
}

func FuzzQuantity(f *testing.F) {
	f.Add("cpu", "1.5", int64(1))
	f.Add("memory", "3Gi", int64(1<<40))
	f.Add("gpu", "9", int64(7))
	f.Fuzz(func(t *testing.T, name, s string, n int64) {
		if got, err := core.ParseQuantity(name, s); err == nil {
			if again, err := core.ParseQuantity(name, core.FormatQuantity(name, got)); err != nil || again != got {
				t.Errorf("%s of %q is %d, written %q, and then %d, %v", name, s, got, core.FormatQuantity(name, got), again, err)
			}
		}
		if n > 0 && n < 1<<53 {
			if got, err := core.ParseQuantity(name, core.FormatQuantity(name, n)); err != nil || got != n {
				t.Errorf("%d of %s is written %q and read %d, %v", n, name, core.FormatQuantity(name, n), got, err)
			}
		}
	})
}

func TestFen(t *testing.T) {
	t.Parallel()
	for f, want := range map[core.Fen]string{0: "0.00", 1: "0.01", 100: "1.00", -5: "-0.05", -12345: "-123.45", math.MaxInt64: "92233720368547758.07", math.MinInt64: "-92233720368547758.08"} {
		if got := f.String(); got != want {
			t.Errorf("Fen(%d) = %q, want %q", int64(f), got, want)
		}
	}
}
