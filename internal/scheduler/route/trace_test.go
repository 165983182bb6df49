package route_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/scheduler/route"
)

func TestReadLatency(t *testing.T) {
	regions, latency, err := route.ReadLatency(strings.NewReader("from,A,B\nB,7.5,\nA,,\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(regions, latency); got != "[A B] [[2000 -1] [7500 2000]]" {
		t.Error(got)
	}
	for text, want := range map[string]string{
		"":                          "cannot be read",
		"from":                      "line 1",
		"from,A,A\n":                `"A"`,
		"from,A,B\nA,1,2\n":         "no row for B",
		"from,A\nB,1\n":             `"B"`,
		"from,A\nA,x\n":             `line 2: A: must be 0 to 1000000 milliseconds, got "x"`,
		"from,A,B\nA,1\nB,1,2\n":    "line 2",
		"from,A,B\nA,-1,1\nB,1,2\n": "line 2",
	} {
		if _, _, err := route.ReadLatency(strings.NewReader(text)); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestReadWork(t *testing.T) {
	got, err := route.ReadWork(strings.NewReader("T,Tokens\na,10\nb,30\n"), "Tokens")
	if err != nil || fmt.Sprint(got) != "[0.5 1.5]" {
		t.Errorf("%v %v", got, err)
	}
	for text, want := range map[string]string{
		"":                 "cannot be read",
		"T\n1\n":           `no column "Tokens", only T`,
		"Tokens\n":         "got none",
		"Tokens\n0\n":      "got none",
		"Tokens\n1\n-1\n":  "line 3",
		"Tokens\nNaN\n":    "line 2",
		"Tokens,A\n1\n2\n": "line 2",
	} {
		if _, err := route.ReadWork(strings.NewReader(text), "Tokens"); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzReadLatency(f *testing.F) {
	f.Add("from,A,B\nB,7.5,\nA,,\n")
	f.Fuzz(func(t *testing.T, text string) {
		regions, latency, err := route.ReadLatency(strings.NewReader(text))
		if err != nil {
			return
		}
		p := &route.Problem{Latency: latency}
		for _, r := range regions {
			p.Origins, p.Places = append(p.Origins, route.Origin{ID: r, Demand: 1}), append(p.Places, route.Place{ID: r, Replicas: 1, Rate: 3})
		}
		if err := p.Check(); err != nil {
			t.Errorf("what was read is refused: %v", err)
		}
	})
}

func FuzzReadWork(f *testing.F) {
	f.Add("T,Tokens\na,10\nb,30\n")
	f.Fuzz(func(t *testing.T, text string) {
		work, err := route.ReadWork(strings.NewReader(text), "Tokens")
		if err != nil {
			return
		}
		sum := 0.0
		for _, w := range work {
			sum += w
		}
		if math.Abs(sum/float64(len(work))-1) > 1e-6 {
			t.Errorf("mean %v of %q", sum/float64(len(work)), text)
		}
	})
}
