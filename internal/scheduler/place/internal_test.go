package place

import (
	"math"
	"math/big"
	"reflect"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// TestKeyTellsEveryFieldApart changes each field an Ask shows, one at a time,
// and expects another key: a forgotten field would let two different asks
// share scores.
func TestKeyTellsEveryFieldApart(t *testing.T) {
	t.Parallel()
	base := func() (*Task, *Origin) {
		return &Task{Devices: &DeviceRequest{}, Data: []DataNeed{{}}}, &Origin{Position: &Position{}}
	}
	hidden := map[string]bool{"Task.ID": true, "Task.Replicas": true, "Task.Indices": true, "Task.Rules": true}
	k, o := base()
	seen := map[string]string{string(appendKey(nil, k, o)): "the base"}
	try := func(name string, change func(*Task, *Origin)) {
		k, o := base()
		change(k, o)
		key := string(appendKey(nil, k, o))
		if hidden[name] {
			if seen[key] != "the base" {
				t.Errorf("%s changes the key, but an Ask does not show it", name)
			}
			return
		}
		if seen[key] != "" {
			t.Errorf("%s: same key as %s", name, seen[key])
		}
		seen[key] = name
	}
	walk := func(name string, sample any, pick func(*Task, *Origin) reflect.Value) {
		for f := range reflect.TypeOf(sample).NumField() {
			field := reflect.TypeOf(sample).Field(f)
			if field.Type == reflect.TypeOf(QoS{}) || field.Type == reflect.TypeOf([]DataNeed{}) ||
				field.Type == reflect.TypeOf(&DeviceRequest{}) || field.Type == reflect.TypeOf(&Position{}) {
				try(name+field.Name+" without", func(k *Task, o *Origin) {
					if v := pick(k, o).Field(f); field.Type != reflect.TypeOf(QoS{}) {
						v.SetZero()
					} else {
						v.Field(0).Set(reflect.ValueOf(Known(77)))
					}
				})
				continue // its fields are walked below
			}
			try(name+field.Name, func(k *Task, o *Origin) { fill(t, pick(k, o).Field(f)) })
		}
	}
	walk("Task.", Task{}, func(k *Task, _ *Origin) reflect.Value { return reflect.ValueOf(k).Elem() })
	walk("Origin.", Origin{}, func(_ *Task, o *Origin) reflect.Value { return reflect.ValueOf(o).Elem() })
	walk("QoS.", QoS{}, func(k *Task, _ *Origin) reflect.Value { return reflect.ValueOf(&k.QoS).Elem() })
	walk("Devices.", DeviceRequest{}, func(k *Task, _ *Origin) reflect.Value { return reflect.ValueOf(k.Devices).Elem() })
	walk("Data.", DataNeed{}, func(k *Task, _ *Origin) reflect.Value { return reflect.ValueOf(&k.Data[0]).Elem() })
	walk("Position.", Position{}, func(_ *Task, o *Origin) reflect.Value { return reflect.ValueOf(o.Position).Elem() })
}

// fill gives v some value other than zero.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Interface().(type) {
	case string:
		v.SetString("x")
	case int, int64:
		v.SetInt(7)
	case bool:
		v.SetBool(true)
	case Fact:
		v.Set(reflect.ValueOf(Known(0)))
	case []string:
		v.Set(reflect.ValueOf([]string{}))
	case []Rule:
		v.Set(reflect.ValueOf([]Rule{{}}))
	case []int:
		v.Set(reflect.ValueOf([]int{1}))
	case Amounts:
		v.Set(reflect.ValueOf(Amounts{"x": 1}))
	case map[string]string:
		v.Set(reflect.ValueOf(map[string]string{"x": "y"}))
	default:
		t.Fatalf("teach this test about %s", v.Type())
	}
}

// TestNumbersAreExact checks the integer helpers against big numbers.
func TestNumbersAreExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64Min(0).Draw(t, "a"), rapid.Int64Min(0).Draw(t, "b")
		d := rapid.Int64Min(1).Draw(t, "d")
		want := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		want.Quo(want, big.NewInt(d))
		if !want.IsInt64() {
			want.SetInt64(math.MaxInt64)
		}
		if got := mulDiv(a, b, d); got != want.Int64() {
			t.Fatalf("mulDiv(%d, %d, %d) = %d, want %d", a, b, d, got, want)
		}
		sum := new(big.Int).Add(big.NewInt(a), big.NewInt(b))
		if !sum.IsInt64() {
			sum.SetInt64(math.MaxInt64)
		}
		if got := addSat(a, b); got != sum.Int64() {
			t.Fatalf("addSat(%d, %d) = %d, want %d", a, b, got, sum)
		}
		span := rapid.Int64Range(1, 1<<62).Draw(t, "span")
		part := rapid.Int64Range(0, span).Draw(t, "part")
		// floor((200·part + span) / (2·span)) is 100·part/span rounded half away from zero.
		n := new(big.Int).Add(new(big.Int).Mul(big.NewInt(200), big.NewInt(part)), big.NewInt(span))
		n.Quo(n, new(big.Int).Mul(big.NewInt(2), big.NewInt(span)))
		if got := int64(spread(part, span)); got != n.Int64() {
			t.Fatalf("spread(%d, %d) = %d, want %d", part, span, got, n)
		}
	})
}

// TestTablesCanBeDropped plans with room for two score tables at a time, so
// that tables are dropped and made again, and expects the same plan.
func TestTablesCanBeDropped(t *testing.T) {
	t.Parallel()
	s := &Snapshot{}
	for i := range 5 {
		s.Candidates = append(s.Candidates, Candidate{
			ID: strconv.Itoa(i), Status: Available, RunningTasks: int64(i * i % 7), Free: Amounts{"gpu": int64(4 + i)},
		})
	}
	var queue []Work
	for i := range 24 {
		queue = append(queue, Work{ID: strconv.Itoa(100 + i), Tasks: []Task{{ID: "t", Replicas: 1, Request: Amounts{"gpu": int64(1 + i%4)}}}})
	}
	set := Presets()[0]
	want, err := Plan(s, queue, set, Options{NoTables: true})
	if err != nil {
		t.Fatal(err)
	}
	works, err := checked(s, queue, set)
	if err != nil {
		t.Fatal(err)
	}
	p := newPlanner(s, works, &Options{NoTables: true})
	p.maxCells = 2 * len(s.Candidates)
	got, err := p.run(works, set)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("with two tables\n%v\nwant\n%v", got, want)
	}
	if p.cells != 0 || len(p.live) != 0 {
		t.Errorf("%d cells in %d tables are left after the plan", p.cells, len(p.live))
	}
	if len(want.Unplaced) == 0 || len(want.Placements) == 0 {
		t.Errorf("the case is too easy: %d placed, %d left", len(want.Placements), len(want.Unplaced))
	}
}

// However many packages a site has, that many are read back.
func TestWholeKeepsTotals(t *testing.T) {
	t.Parallel()
	totals := []int64{noFact, math.MinInt64 + 1, -1, 0, 1, largeTotal - 1, largeTotal, unknownTotal, statedTotal, math.MaxInt64}
	for _, stated := range []bool{false, true} {
		w := &whole{small: make([]uint32, len(totals))}
		for i, n := range totals {
			w.set(i, n, stated)
		}
		for i, want := range totals {
			if got, s := w.at(int32(i)); got != want || s != stated {
				t.Errorf("%d, stated %v: read as %d, %v", want, stated, got, s)
			}
		}
	}
}
