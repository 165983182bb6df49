package core

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"yunhe.dev/yunhe/internal/fault"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// Check gathers the field violations of an input; the zero value is ready.
type Check struct {
	fields []fault.Field
}

// maxViolations is enough to mend a form in one go and keeps answers small.
const maxViolations = 20

// Add records a violation.
func (c *Check) Add(path, format string, args ...any) {
	if len(c.fields) < maxViolations {
		c.fields = append(c.fields, fault.Field{Path: path, Problem: fmt.Sprintf(format, args...)})
	}
}

// Err returns the violations as a fault.Invalid, nil if there are none.
func (c *Check) Err() error { return fault.Fields(c.fields...) }

// Text checks s: valid UTF-8 without control characters, at most maxChars
// characters and fewer than underBytes bytes (0: no such limit).
func (c *Check) Text(path, s string, required bool, maxChars, underBytes int) {
	switch {
	case s == "" && required:
		c.Add(path, "is required")
	case !utf8.ValidString(s):
		c.Add(path, "must be valid UTF-8")
	case maxChars > 0 && utf8.RuneCountInString(s) > maxChars:
		c.Add(path, "must be at most %d characters, got %d", maxChars, utf8.RuneCountInString(s))
	case underBytes > 0 && len(s) >= underBytes:
		c.Add(path, "must be less than %d bytes, got %d", underBytes, len(s))
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		c.Add(path, "must not contain control characters")
	case strings.TrimSpace(s) == "" && required:
		c.Add(path, "must not be blank")
	}
}

// ID checks an identifier chosen by people: 1 to 32 letters, digits, dots,
// hyphens and underscores, beginning with a letter or digit.
func (c *Check) ID(path, s string) {
	switch {
	case s == "":
		c.Add(path, "is required")
	case len(s) > 32:
		c.Add(path, "must be at most 32 characters, got %d", utf8.RuneCountInString(s))
	case !isID(s):
		c.Add(path, "must be letters, digits, dots, hyphens and underscores, beginning with a letter or digit, got %q", s)
	}
}

func isID(s string) bool {
	for i, r := range s {
		alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !alnum && (i == 0 || r != '.' && r != '-' && r != '_') {
			return false
		}
	}
	return s != ""
}

// Range checks lo <= n <= hi.
func (c *Check) Range(path string, n, lo, hi int64) {
	if n < lo || n > hi {
		c.Add(path, "must be between %d and %d, got %d", lo, hi, n)
	}
}
