package pack

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Bound is the least, in per cent of all cards, that is left over when the
// tasks of Fill with the same arguments have arrived, whatever the policy: even
// if it knew all tasks beforehand, chose freely which to drop, split tasks of
// several cards over nodes, and had CPU and memory without end.
//
// A card holds a set of shares that come to at most a whole one. Let any price
// y[s] of at least 0 be set on each share s. What a card holds is worth at most
//
//	π(y) = max Σ (s - y[s]) over the sets of shares that fit on a card,
//
// with its prices taken off, and no more tasks of a share s are placed than the
// A[s] that arrived. So all that is placed comes to at most cards·π(y) + Σ
// A[s]·y[s], for every y. That sum is convex in y; steps down its slope find
// prices that make it small, and whatever prices they end at, it is a bound.
func Bound(nodes []Node, tasks []Task, load float64, seed uint64) (float64, error) {
	counts, cards := map[int]float64{}, 0
	for i := range nodes {
		cards += nodes[i].Cards
	}
	if err := arrive(nodes, tasks, load, seed, func(t *Task) {
		if t.Cards > 0 {
			counts[t.Share] += float64(t.Cards)
		}
	}); err != nil {
		return 0, err
	}
	shares := slices.SortedFunc(maps.Keys(counts), func(a, b int) int { return cmp.Compare(b, a) })
	unit := Whole
	for _, s := range shares {
		unit = divisor(unit, s)
	}
	arrived := make([]float64, len(shares))
	for i, s := range shares {
		arrived[i] = counts[s] / float64(cards)
	}
	placed := most(shares, arrived, unit)
	return 100 * max(0, 1-placed/Whole), nil
}

func divisor(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// most is a bound on what is placed on a card on average, where so many tasks
// of each share arrive for each card.
func most(shares []int, arrived []float64, unit int) float64 {
	const steps = 20_000
	price, slope, held := make([]float64, len(shares)), make([]float64, len(shares)), make([]float64, len(shares))
	worth, took := make([]float64, Whole/unit+1), make([]int, Whole/unit+1)
	best, low := math.Inf(1), make([]float64, len(shares))
	reach := 100.0 // how far below the best the next step aims
	idle := 0
	for range steps {
		// What a card holds at best at these prices.
		for room := range worth {
			worth[room], took[room] = 0, -1
			if room > 0 {
				worth[room] = worth[room-1]
			}
			for i, s := range shares {
				if k := s / unit; k <= room {
					if v := worth[room-k] + float64(s) - price[i]; v > worth[room] {
						worth[room], took[room] = v, i
					}
				}
			}
		}
		clear(held)
		for room := len(worth) - 1; room > 0; {
			if i := took[room]; i >= 0 {
				held[i]++
				room -= shares[i] / unit
			} else {
				room--
			}
		}
		sum, norm := worth[len(worth)-1], 0.0
		for i := range shares {
			sum += arrived[i] * price[i]
			slope[i] = arrived[i] - held[i]
			norm += slope[i] * slope[i]
		}
		if sum < best-1e-9 {
			best, idle = sum, 0
			copy(low, price)
		} else if idle++; idle > 200 {
			reach, idle = reach/2, 0
			copy(price, low)
			continue
		}
		if norm == 0 {
			break
		}
		step := (sum - best + reach) / norm
		for i := range price {
			price[i] = max(0, price[i]-step*slope[i])
		}
	}
	return best
}
