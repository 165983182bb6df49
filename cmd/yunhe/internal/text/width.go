package text

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// Width returns how many terminal cells s takes: two for wide East Asian
// characters and emoji, none for combining marks, one for everything else.
func Width(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	if r < 0x7f {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}

// Clean makes s safe and fit for one line: line breaks and tabs become spaces,
// other control characters and invalid UTF-8 become "�". What reorders text
// (bidirectional controls) goes too, as it could make one name look like
// another.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t' || r == '\u2028' || r == '\u2029':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
}

// Cut shortens s to at most cells terminal cells; what was cut shows as "…".
// A limit of 0 or less returns "".
func Cut(s string, cells int) string {
	if Width(s) <= cells {
		return s
	}
	if cells <= 0 {
		return ""
	}
	n := 0
	for i, r := range s {
		if n += runeWidth(r); n > cells-1 {
			return s[:i] + "…"
		}
	}
	return s
}
