// Package text turns facts into what people read in a terminal: money,
// durations, sizes and aligned tables.
//
// It keeps three things true. Money is computed on integers only, so what is
// printed is what was charged. Columns line up for Chinese, Japanese and
// Korean text, whose characters take two cells. Text that came from elsewhere
// (names, messages) cannot move the cursor or change colors: control
// characters in it are replaced before it is printed.
package text

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Fen formats an amount in fen (0.01 CNY) as yuan: 123 is "¥1.23".
func Fen(fen int64) string {
	sign, n := magnitude(fen)
	return fmt.Sprintf("%s¥%d.%02d", sign, n/100, n%100)
}

// Micros formats an amount in micro-yuan exactly: 1230000 is "¥1.23",
// 1230450 is "¥1.23045".
func Micros(micros int64) string {
	sign, n := magnitude(micros)
	frac := strings.TrimRight(fmt.Sprintf("%06d", n%1_000_000), "0")
	for len(frac) < 2 {
		frac += "0"
	}
	return fmt.Sprintf("%s¥%d.%s", sign, n/1_000_000, frac)
}

// magnitude splits n into its sign and its size; the size of the smallest
// int64 has no int64, hence the unsigned result.
func magnitude(n int64) (sign string, size uint64) {
	if n < 0 {
		return "-", -uint64(n)
	}
	return "", uint64(n)
}

// ParseFen reads an amount in yuan ("1.23", "¥1.2", "0.05") as fen. It refuses
// signs, more than two decimals and amounts beyond int64.
func ParseFen(s string) (int64, error) {
	digits := strings.TrimPrefix(strings.TrimSpace(s), "¥")
	whole, frac, point := strings.Cut(digits, ".")
	if whole == "" || (point && (frac == "" || len(frac) > 2)) {
		return 0, fmt.Errorf("want yuan with at most two decimals, such as 1.20, got %q", s)
	}
	for len(frac) < 2 {
		frac += "0"
	}
	n, err := strconv.ParseUint(whole+frac, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("want yuan with at most two decimals, such as 1.20, got %q", s)
	}
	return int64(n), nil
}

// Duration formats a length of time with the digits that matter: "830µs",
// "2.3ms", "350ms", "4.2s", "3m05s", "2h14m", "5d3h". Negative lengths count as zero: they only
// come from clocks that disagree.
func Duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Microsecond:
		return "<1µs"
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%d.%dms", d/time.Millisecond, d%time.Millisecond/(100*time.Microsecond))
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%d.%ds", d/time.Second, d%time.Second/(100*time.Millisecond))
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
}

// Ago formats when t was, seen from now: "just now", "12s ago", "3h ago",
// "in 5m", and a date when it is more than 30 days away. The zero time is "-".
func Ago(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := now.Sub(t)
	switch {
	case d > 30*24*time.Hour || d < -30*24*time.Hour:
		return t.UTC().Format(time.DateOnly)
	case d < -time.Second:
		return "in " + coarse(-d)
	case d < time.Second:
		return "just now"
	default:
		return coarse(d) + " ago"
	}
}

func coarse(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

// Bytes formats a size in bytes with binary units: "512 B", "1.5 MiB".
func Bytes(n int64) string {
	sign, size := magnitude(n)
	if size < 1024 {
		return fmt.Sprintf("%s%d B", sign, size)
	}
	units := []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	for i, unit := range units {
		shift := 10 * (i + 1)
		if size>>shift < 1024 || i == len(units)-1 {
			tenths := size & (1<<shift - 1) * 10 >> shift
			return fmt.Sprintf("%s%d.%d %s", sign, size>>shift, tenths, unit)
		}
	}
	return ""
}

// Count formats n things: "1 job", "2 jobs".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}
