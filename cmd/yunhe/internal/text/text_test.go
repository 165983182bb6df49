package text

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestFen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fen  int64
		want string
	}{
		{0, "¥0.00"}, {1, "¥0.01"}, {99, "¥0.99"}, {100, "¥1.00"}, {123, "¥1.23"}, {-5, "-¥0.05"}, {-123456, "-¥1234.56"},
		{math.MaxInt64, "¥92233720368547758.07"}, {math.MinInt64, "-¥92233720368547758.08"},
	} {
		if got := Fen(c.fen); got != c.want {
			t.Errorf("Fen(%d) = %q, want %q", c.fen, got, c.want)
		}
	}
}

func TestMicros(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		micros int64
		want   string
	}{
		{0, "¥0.00"}, {1, "¥0.000001"}, {10_000, "¥0.01"}, {1_230_000, "¥1.23"}, {1_230_450, "¥1.23045"}, {-1, "-¥0.000001"}, {100_000, "¥0.10"},
		{math.MinInt64, "-¥9223372036854.775808"},
	} {
		if got := Micros(c.micros); got != c.want {
			t.Errorf("Micros(%d) = %q, want %q", c.micros, got, c.want)
		}
	}
}

func TestParseFen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		want int64
	}{
		{"0", 0}, {"1", 100}, {"1.2", 120}, {"1.23", 123}, {"¥0.05", 5}, {" 12 ", 1200}, {"92233720368547758.07", math.MaxInt64},
	} {
		if got, err := ParseFen(c.in); err != nil || got != c.want {
			t.Errorf("ParseFen(%q) = %d, %v, want %d", c.in, got, err, c.want)
		}
	}
	for _, in := range []string{"", "¥", ".5", "1.", "1.234", "-1", "+1", "1,5", "1e2", "0x1", "92233720368547758.08", "1_0"} {
		if got, err := ParseFen(in); err == nil {
			t.Errorf("ParseFen(%q) = %d, want an error", in, got)
		}
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{-time.Second, "0s"}, {0, "0s"}, {1, "<1µs"}, {830 * time.Microsecond, "830µs"}, {2399 * time.Microsecond, "2.3ms"}, {350 * time.Millisecond, "350ms"}, {4299 * time.Millisecond, "4.2s"},
		{10 * time.Second, "10s"}, {185 * time.Second, "3m05s"}, {134 * time.Minute, "2h14m"}, {123 * time.Hour, "5d3h"}, {math.MaxInt64, "106751d23h"},
	} {
		if got := Duration(c.d); got != c.want {
			t.Errorf("Duration(%d) = %q, want %q", c.d, got, c.want)
		}
	}
}

func TestAgo(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		before time.Duration
		want   string
	}{
		{0, "just now"}, {-time.Second, "just now"}, {12 * time.Second, "12s ago"}, {3 * time.Minute, "3m ago"}, {26 * time.Hour, "1d ago"},
		{31 * 24 * time.Hour, "2026-10-21"}, {-5 * time.Minute, "in 5m"}, {-90 * 24 * time.Hour, "2027-02-19"},
	} {
		if got := Ago(now, now.Add(-c.before)); got != c.want {
			t.Errorf("Ago(%s before) = %q, want %q", c.before, got, c.want)
		}
	}
	if got := Ago(now, time.Time{}); got != "-" {
		t.Errorf("Ago(zero time) = %q, want %q", got, "-")
	}
}

func TestBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n    int64
		want string
	}{
		{0, "0 B"}, {1023, "1023 B"}, {1024, "1.0 KiB"}, {1536, "1.5 KiB"}, {1<<20 - 1, "1023.9 KiB"}, {5 << 20, "5.0 MiB"}, {3 << 29, "1.5 GiB"}, {1234 << 20, "1.2 GiB"},
		{math.MaxInt64, "7.9 EiB"}, {-2048, "-2.0 KiB"},
	} {
		if got := Bytes(c.n); got != c.want {
			t.Errorf("Bytes(%d) = %q, want %q", c.n, got, c.want)
		}
	}
}

func TestWidth(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    string
		want int
	}{
		{"", 0}, {"abc", 3}, {"云和", 4}, {"한국어", 6}, {"ｱ", 1}, {"Ａ", 2}, {"e\u0301", 1}, {"¥1.23", 5}, {"😀", 2}, {"a\u200bb", 2}, {"→…", 2},
	} {
		if got := Width(c.s); got != c.want {
			t.Errorf("Width(%q) = %d, want %d", c.s, got, c.want)
		}
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s     string
		cells int
		want  string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"云和云", 6, "云和云"}, {"云和云", 5, "云和…"}, {"云和云", 4, "云…"}, {"a", 0, ""}, {"ab", 1, "…"}, {"", 0, ""},
	} {
		if got := Cut(c.s, c.cells); got != c.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", c.s, c.cells, got, c.want)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add("云和 compute", 5)
	f.Add("e\u0301e\u0301", 1)
	f.Fuzz(func(t *testing.T, s string, cells int) {
		if got := Cut(s, cells); Width(got) > max(cells, 0) && Width(s) > cells {
			t.Errorf("Cut(%q, %d) = %q, %d cells wide", s, cells, got, Width(got))
		}
	})
}

func TestClean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain": "plain", "two\nlines\tand": "two lines and", "\x1b[31mred": "�[31mred", "a\x00b": "a�b", "\u202egpj": "�gpj", "bad\xff": "bad�",
		"汉字 é": "汉字 é", "\u009bX": "�X",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("\x1b]0;title\x07")
	f.Fuzz(func(t *testing.T, s string) {
		got := Clean(s)
		if !utf8.ValidString(got) || strings.ContainsAny(got, "\x1b\n\r\x00\x07\u009b") {
			t.Errorf("Clean(%q) = %q", s, got)
		}
	})
}

func TestTable(t *testing.T) {
	t.Parallel()
	table := NewTable("NAME", ">COST", "STATE", "NOTE")
	table.Row("北京一号", "¥1.00", Cell{"running", Cyan}, " ")
	table.Row("sh", "¥120.00", Cell{"ok", Green}, "bad\x1b[2J\nname")
	table.Row("x", 7)
	want := strings.Join([]string{
		"NAME         COST  STATE    NOTE",
		"北京一号    ¥1.00  running",
		"sh        ¥120.00  ok       bad�[2J name",
		"x               7  -        -",
		"",
	}, "\n")
	var plain strings.Builder
	if err := table.Write(&plain, false); err != nil {
		t.Fatal(err)
	}
	if plain.String() != want {
		t.Errorf("table:\n%s\nwant:\n%s", plain.String(), want)
	}
	// Colors change nothing but the color.
	colored := strings.Join(table.Lines(true), "\n") + "\n"
	for _, c := range []Color{Dim, Cyan, Green} {
		if !strings.Contains(colored, "\x1b["+string(c)+"m") {
			t.Errorf("color %s is missing in %q", c, colored)
		}
		colored = strings.ReplaceAll(colored, "\x1b["+string(c)+"m", "")
	}
	if colored = strings.ReplaceAll(colored, "\x1b[0m", ""); colored != want {
		t.Errorf("without its colors:\n%q\nwant:\n%q", colored, want)
	}
}

func TestTableRejectsTooManyEntries(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a row with more entries than columns was taken")
		}
	}()
	NewTable("A").Row("a", "b")
}

func TestFacts(t *testing.T) {
	t.Parallel()
	var f Facts
	f.Add("Job", "job_1")
	f.Add("Empty", "")
	f.AddColor("Owner name", "李\n伟", Green)
	var b strings.Builder
	if err := f.Write(&b, false); err != nil {
		t.Fatal(err)
	}
	if want := "Job         job_1\nOwner name  李 伟\n"; b.String() != want {
		t.Errorf("facts:\n%q\nwant:\n%q", b.String(), want)
	}
}
