package poolops

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf16"
)

// A4, across, in points.
const (
	pdfWidth, pdfHeight = 842.0, 595.0
	pdfMargin           = 40.0
	pdfSize, pdfLine    = 9.0, 14.0
)

// pdf writes the report as PDF 1.7. Chinese is set in a font that readers have:
// one in the file would be larger than all reports together.
func (r *report) pdf() []byte {
	d := &pdfDoc{}
	d.page()
	d.text(pdfMargin, d.y, 16, r.Title)
	d.y -= pdfLine * 1.5
	d.text(pdfMargin, d.y, pdfSize, r.Span)
	d.y -= pdfLine * 1.5
	for _, t := range r.Tables {
		d.table(t)
	}
	return d.bytes()
}

type pdfDoc struct {
	pages []*bytes.Buffer
	y     float64
}

func (d *pdfDoc) page() {
	d.pages = append(d.pages, &bytes.Buffer{})
	d.y = pdfHeight - pdfMargin
}

// full reports whether the page has no room for a line. A page is begun for what is
// written on it, so that none is empty.
func (d *pdfDoc) full() bool { return d.y < pdfMargin }

func isLatin(s string) bool { return !strings.ContainsFunc(s, func(r rune) bool { return r > 0x7e }) }

// pdfText is about as wide as s is at a size of 1.
func pdfText(s string) (w float64) {
	for _, r := range s {
		if r > 0x7e {
			w++
		} else {
			w += 0.53
		}
	}
	return w
}

func (d *pdfDoc) text(x, y, size float64, s string) {
	p := d.pages[len(d.pages)-1]
	if isLatin(s) {
		escaped := strings.NewReplacer(`\`, `\\`, `(`, `\(`, `)`, `\)`).Replace(s)
		fmt.Fprintf(p, "BT /F1 %.1f Tf %.1f %.1f Td (%s) Tj ET\n", size, x, y, escaped)
		return
	}
	var hex strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&hex, "%04X", u)
	}
	fmt.Fprintf(p, "BT /F2 %.1f Tf %.1f %.1f Td <%s> Tj ET\n", size, x, y, hex.String())
}

func (d *pdfDoc) table(t table) {
	if d.y < pdfMargin+4*pdfLine {
		d.page()
	}
	d.text(pdfMargin, d.y, 12, t.Title)
	d.y -= pdfLine * 1.4
	width := make([]float64, len(t.Head))
	all := 0.0
	for i := range t.Head {
		width[i] = pdfText(t.Head[i])
		for _, row := range t.Rows {
			width[i] = max(width[i], min(pdfText(row[i]), 60))
		}
		width[i] = (width[i] + 1.5) * pdfSize
		all += width[i]
	}
	scale := min(1, (pdfWidth-2*pdfMargin)/max(all, 1))
	line := func(row []string) {
		x := pdfMargin
		for i, cell := range row {
			w := width[i] * scale
			runes := []rune(cell)
			for len(runes) > 0 && pdfText(string(runes))*pdfSize > w-4 {
				runes = runes[:len(runes)-1]
			}
			at := x
			if i > 0 { // numbers, to the right
				at = x + w - 4 - pdfText(string(runes))*pdfSize
			}
			d.text(at, d.y, pdfSize, string(runes))
			x += w
		}
		fmt.Fprintf(d.pages[len(d.pages)-1], "0.8 G %.1f %.1f m %.1f %.1f l S\n", pdfMargin, d.y-3, x, d.y-3)
		d.y -= pdfLine
	}
	line(t.Head)
	for _, row := range t.Rows {
		if d.full() {
			d.page()
			line(t.Head)
		}
		line(row)
	}
	d.y -= pdfLine
}

// bytes writes the objects: catalog, pages, fonts, then each page and its content.
func (d *pdfDoc) bytes() []byte {
	var b bytes.Buffer
	var at []int
	b.WriteString("%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
	object := func(format string, args ...any) {
		at = append(at, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n", len(at))
		fmt.Fprintf(&b, format, args...)
		b.WriteString("\nendobj\n")
	}
	const first = 7 // the first page's number
	var kids strings.Builder
	for i := range d.pages {
		fmt.Fprintf(&kids, "%d 0 R ", first+2*i)
	}
	object("<< /Type /Catalog /Pages 2 0 R >>")
	object("<< /Type /Pages /Kids [%s] /Count %d >>", kids.String(), len(d.pages))
	object("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
	object("<< /Type /Font /Subtype /Type0 /BaseFont /STSong-Light /Encoding /UniGB-UTF16-H /DescendantFonts [5 0 R] >>")
	object("<< /Type /Font /Subtype /CIDFontType0 /BaseFont /STSong-Light /CIDSystemInfo << /Registry (Adobe) /Ordering (GB1) /Supplement 5 >> /DW 1000 /W [1 95 500] /FontDescriptor 6 0 R >>")
	object("<< /Type /FontDescriptor /FontName /STSong-Light /Flags 6 /FontBBox [-25 -254 1000 880] /ItalicAngle 0 /Ascent 880 /Descent -120 /CapHeight 880 /StemV 93 >>")
	for i, p := range d.pages {
		object("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %.0f %.0f] /Resources << /Font << /F1 3 0 R /F2 4 0 R >> >> /Contents %d 0 R >>", pdfWidth, pdfHeight, first+2*i+1)
		object("<< /Length %d >>\nstream\n%s\nendstream", p.Len(), p.String())
	}
	start := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(at)+1)
	for _, n := range at {
		fmt.Fprintf(&b, "%010d 00000 n \n", n)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(at)+1, start)
	return b.Bytes()
}
