package tags_test

import (
	"fmt"
	"path/filepath"
	"testing"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
	"yunhe.dev/yunhe/internal/tags"
)

// big is a network of 10 centers with 1,000 nodes each and the default library.
func big(b *testing.B) *world {
	w := newWorld(b, filepath.Join(b.TempDir(), "yunhe.db"))
	must(b, w.Defaults(b.Context()))
	for i := range 10 {
		nodes := make([]*adapterv1.Node, 1000)
		for n := range nodes {
			nodes[n] = machine(fmt.Sprintf("node-%04d", n))
		}
		w.join(b, fmt.Sprintf("c%d", i), "north", nodes...)
	}
	return w
}

// BenchmarkEvaluate looks at 10 rules over 10,000 nodes: "first" sets 40,000
// tags, "again" changes nothing.
func BenchmarkEvaluate(b *testing.B) {
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			w := big(b)
			b.StartTimer()
			if n := w.evaluate(b); n < 40_000 {
				b.Fatalf("%d values", n)
			}
		}
	})
	b.Run("again", func(b *testing.B) {
		w := big(b)
		w.evaluate(b)
		for b.Loop() {
			if n := w.evaluate(b); n != 0 {
				b.Fatalf("%d values", n)
			}
		}
	})
}

// BenchmarkApply sets a tag on 10,000 nodes in one batch.
func BenchmarkApply(b *testing.B) {
	w := big(b)
	ctx := operator(b.Context())
	i := 0
	for b.Loop() {
		i++
		res, err := w.Apply(ctx, tags.Batch{Selector: tags.Selector{Kinds: []tags.Kind{tags.Node}, Expression: `"H800" in models`}, Changes: parse(fmt.Sprintf("purpose=p%d", i))})
		if err != nil || res.Changed != 10_000 {
			b.Fatalf("%+v, %v", res.Changed, err)
		}
	}
}
