package chart_test

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"

	"yunhe.dev/yunhe/internal/chart"
)

func TestWrite(t *testing.T) {
	c := &chart.Chart{Title: `a <"title"> & more`, X: "x", Y: "y", Ticks: []string{"1", "2"}, Series: []chart.Series{
		{Name: "first", Values: []float64{10, 24}, Hollow: []bool{false, true}}, {Name: "second", Values: []float64{10, 10}},
	}}
	for _, c := range []*chart.Chart{c, {}} {
		var b strings.Builder
		if err := c.Write(&b); err != nil {
			t.Fatal(err)
		}
		dec, circles, hollow := xml.NewDecoder(strings.NewReader(b.String())), 0, 0
		for {
			tok, err := dec.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("not XML: %v\n%s", err, b.String())
			}
			if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "circle" {
				circles++
				for _, a := range e.Attr {
					if a.Name.Local == "fill" && a.Value == "#fff" {
						hollow++
					}
				}
			}
		}
		points, want := 0, 0
		for _, s := range c.Series {
			points += len(s.Values)
			for _, h := range s.Hollow {
				if h {
					want++
				}
			}
		}
		if circles != points || hollow != want {
			t.Errorf("%d circles, %d hollow; want %d and %d", circles, hollow, points, want)
		}
	}
}
