package network

import (
	"strings"
	"testing"
	"unicode/utf8"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// An end that is taken is of one of the kinds asked for and names what it is;
// what is refused is told in words that can be shown.
func FuzzEnd(f *testing.F) {
	for _, s := range []string{"", "center:c1", "center:", "region:north", "region:\x00", "origin:a b", "anywhere", "anywhere else", "center:" + strings.Repeat("x", 40), "\xff:\xfe", "user:ann"} {
		f.Add(s)
	}
	kinds := []string{centerPrefix, regionPrefix, originPrefix, Anywhere}
	f.Fuzz(func(t *testing.T, end string) {
		var c core.Check
		checkEnd(&c, "path.to", end, kinds...)
		err := c.Err()
		if err == nil {
			ok := end == Anywhere
			for _, k := range kinds[:3] {
				name, is := strings.CutPrefix(end, k)
				ok = ok || is && name != "" && len(name) <= 4*64 && utf8.ValidString(name)
			}
			if !ok {
				t.Errorf("%q is taken", end)
			}
			return
		}
		for _, x := range fault.FieldsOf(err) {
			if x.Path != "path.to" || !utf8.ValidString(x.Problem) || len(x.Problem) > 1000 {
				t.Errorf("%q is refused by %+v", end, x)
			}
		}
	})
}
