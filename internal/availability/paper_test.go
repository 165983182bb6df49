package availability_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"yunhe.dev/yunhe/internal/availability"
)

// stirling is equations (8) and (9) of the study.
func stirling(n, k int) int {
	switch {
	case n == 0 && k == 0:
		return 1
	case k == 0 || k > n:
		return 0
	}
	return stirling(n-1, k-1) + k*stirling(n-1, k)
}

func TestPartitions(t *testing.T) {
	for n := 1; n <= 8; n++ {
		count := map[int]int{}
		partitions(n, func(g [][]int) { count[len(g)]++ })
		for k := 1; k <= n; k++ {
			if count[k] != stirling(n, k) {
				t.Errorf("%d things are split into %d groups in %d ways, want %d", n, k, count[k], stirling(n, k))
			}
		}
	}
}

// published is the study's own algorithm, clauses 4.1 and 4.2: budgets of
// extra microservices upward from none, each distributed over the modules in
// all ways, each module split in all ways.
func published(s *availability.System) (microservices int, value float64) {
	best := make([][]float64, len(s.Modules)) // by module and extra microservices
	budget := 0
	for i, m := range s.Modules {
		best[i] = make([]float64, len(m.Submodules))
		budget += len(m.Submodules) - 1
		partitions(len(m.Submodules), func(g [][]int) {
			best[i][len(g)-1] = max(best[i][len(g)-1], up(m, g, m.Instances, 0))
		})
	}
	for extra := range budget + 1 {
		dp := map[int][][]int{0: {nil}} // distributions by what they use
		for i := range s.Modules {
			next := map[int][][]int{}
			for p, ways := range dp {
				for q := 0; q <= min(len(best[i])-1, extra-p); q++ {
					for _, w := range ways {
						next[p+q] = append(next[p+q], append(w[:len(w):len(w)], q))
					}
				}
			}
			dp = next
		}
		value = 0
		for _, w := range dp[extra] {
			a := 1.0
			for i, q := range w {
				a *= best[i][q]
			}
			value = max(value, a)
		}
		if value >= s.Target {
			return len(s.Modules) + extra, value
		}
	}
	return 0, value
}

func TestPublishedAlgorithm(t *testing.T) {
	dice := rand.New(rand.NewPCG(11, 12))
	for i := range 200 {
		s := randomSystem(dice, i%2 == 0)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		s.Target = target(dice, s)
		if i < 5 {
			s = availability.PaperSystem(availability.PaperSubmodules[i], 2, 0.9999)
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
		}
		n, value := published(s)
		plan, err := availability.Make(s, availability.Aware)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Reachable != (n > 0) || n > 0 && plan.Microservices != n || math.Abs(plan.Availability-value) > 1e-12 {
			t.Errorf("%+v: %d, %v (reachable %v); the published algorithm finds %d, %v", s, plan.Microservices, plan.Availability, plan.Reachable, n, value)
		}
	}
}
