package jobfile

import (
	"strings"
	"unicode/utf8"
)

// nearest returns the name that was probably meant by got: the same letters in
// another notation (image_ID), or the one with the fewest typing mistakes, at
// most two and fewer than half its letters. "" if there is none; the first in
// the order of names breaks a tie.
func nearest(got string, names []string) string {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "", ".", "").Replace(s))
	}
	if utf8.RuneCountInString(got) > 64 {
		return ""
	}
	best, limit := "", 3
	for _, name := range names {
		if d := distance(plain(got), plain(name)); d < limit && 2*d < utf8.RuneCountInString(name) {
			best, limit = name, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of
// neighbors that turn a into b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(x)][len(y)]
}
