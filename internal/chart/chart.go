// Package chart draws line charts as SVG, for files that reports link to.
package chart

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
)

// Chart has equally spaced points on the horizontal axis.
type Chart struct {
	Title  string
	X, Y   string   // what the axes show
	Ticks  []string // names of the points
	Series []Series
}

// Series is a line. Points with Hollow set are drawn empty.
type Series struct {
	Name   string
	Values []float64
	Hollow []bool
}

// Colors that are told apart with the common kinds of color blindness
// (Okabe and Ito).
var colors = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

const (
	width, height            = 720, 440
	left, right, top, bottom = 64, 180, 48, 64
)

// Write draws it.
func (c *Chart) Write(w io.Writer) error {
	var b strings.Builder
	lo, hi := c.bounds()
	x := func(i int) float64 {
		return left + float64(width-left-right)*(float64(i)+0.5)/float64(max(len(c.Ticks), 1))
	}
	y := func(v float64) float64 { return height - bottom - float64(height-top-bottom)*(v-lo)/(hi-lo) }
	text := func(x, y float64, anchor, more, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, more, html.EscapeString(s))
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13" role="img" aria-label="%s">`+"\n",
		width, height, html.EscapeString(c.Title))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	text(left, 26, "start", ` font-size="16"`, c.Title)
	for v := lo; v <= hi; v += (hi - lo) / 5 {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/>`+"\n", left, y(v), width-right)
		text(left-8, y(v)+4, "end", "", fmt.Sprintf("%.4g", v))
	}
	const letter = 7 // about so wide
	slot := float64(width-left-right) / float64(max(len(c.Ticks), 1))
	turned := slices.ContainsFunc(c.Ticks, func(tick string) bool { return float64(letter*len(tick)) > slot })
	for i, tick := range c.Ticks {
		if turned {
			text(x(i)+6, height-bottom+14, "end", fmt.Sprintf(` font-size="11" transform="rotate(-35 %.1f %d)"`, x(i)+6, height-bottom+14), tick)
			continue
		}
		text(x(i), height-bottom+20, "middle", "", tick)
	}
	text(left+float64(width-left-right)/2, height-16, "middle", "", c.X)
	text(18, top+float64(height-top-bottom)/2, "middle", fmt.Sprintf(` transform="rotate(-90 18 %.1f)"`, top+float64(height-top-bottom)/2), c.Y)
	for k, s := range c.Series {
		color := colors[k%len(colors)]
		var path []string
		for i, v := range s.Values {
			path = append(path, fmt.Sprintf("%.1f,%.1f", x(i), y(v)))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(path, " "), color)
		for i, v := range s.Values {
			fill := color
			if i < len(s.Hollow) && s.Hollow[i] {
				fill = "#fff"
			}
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s" stroke="%s" stroke-width="2"/>`+"\n", x(i), y(v), fill, color)
		}
		at := float64(top + 10 + 22*k)
		fmt.Fprintf(&b, `<path d="M%d %.1fh20" stroke="%s" stroke-width="2"/>`+"\n", width-right+16, at, color)
		text(width-right+42, at+4, "start", "", s.Name)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// bounds leaves a little room above and below.
func (c *Chart) bounds() (lo, hi float64) {
	var all []float64
	for _, s := range c.Series {
		all = append(all, s.Values...)
	}
	if len(all) == 0 {
		return 0, 1
	}
	lo, hi = slices.Min(all), slices.Max(all)
	room := max((hi-lo)*0.08, 0.5)
	return lo - room, hi + room
}
