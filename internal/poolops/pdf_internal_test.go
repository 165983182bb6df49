package poolops

import (
	"bytes"
	"fmt"
	"testing"
)

// A report has as many pages as what is on it needs, whatever its length: none is empty,
// or has the head of a table only.
func TestPDFPages(t *testing.T) {
	t.Parallel()
	for n := range 80 {
		r := &report{Title: "title", Span: "span", Tables: []table{{Title: "table", Head: []string{"head"}}}}
		for i := range n {
			r.Tables[0].Rows = append(r.Tables[0].Rows, []string{fmt.Sprintf("row %d", i)})
		}
		b := r.pdf()
		pages := bytes.Split(b, []byte("stream\n"))
		written := 0
		for i := 1; i < len(pages); i += 2 { // between: endstream
			rows := bytes.Count(pages[i], []byte("(row "))
			if written += rows; rows == 0 && n > 0 {
				t.Errorf("of %d rows, page %d has none: %q", n, (i+1)/2, pages[i])
			}
			if heads := bytes.Count(pages[i], []byte("(head)")); heads != 1 {
				t.Errorf("of %d rows, page %d has %d heads", n, (i+1)/2, heads)
			}
		}
		if written != n || !bytes.Contains(b, fmt.Appendf(nil, "/Count %d ", len(pages)/2)) {
			t.Errorf("of %d rows %d are written, on %d pages: %q", n, written, len(pages)/2, b)
		}
	}
}
