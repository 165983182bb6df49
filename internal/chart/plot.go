package chart

import (
	"fmt"
	"html"
	"io"
	"math"
	"strconv"
	"strings"
)

// Plot has numbers on both axes.
type Plot struct {
	Title string
	X, Y  string
	Lines []Line
	// FromZero begins the vertical axis at 0; Percent ends it at 100.
	FromZero, Percent bool
	// Log makes the horizontal axis logarithmic; values below its first tick are
	// drawn at its left edge.
	Log bool
	// Unit tells what the horizontal axis counts: seconds are shown as times.
	Seconds bool
}

// Line goes through points, left to right; Steps keeps each value until the
// next.
type Line struct {
	Name   string
	At, Of []float64
	Steps  bool
}

// Write draws it.
func (p *Plot) Write(w io.Writer) error {
	x0, x1, y0, y1 := p.bounds()
	yTicks := ticks(y0, y1)
	y0, y1 = yTicks[0], yTicks[len(yTicks)-1]
	xTicks := ticks(x0, x1)
	if p.Log {
		xTicks = decades(x0, x1, p.Seconds)
		x0, x1 = xTicks[0], xTicks[len(xTicks)-1]
	} else if p.Seconds {
		xTicks = timeTicks(x0, x1)
	}
	x := func(v float64) float64 {
		if p.Log {
			v = math.Max(v, x0)
			return left + float64(width-left-right)*math.Log(v/x0)/math.Log(x1/x0)
		}
		return left + float64(width-left-right)*(v-x0)/(x1-x0)
	}
	y := func(v float64) float64 { return height - bottom - float64(height-top-bottom)*(v-y0)/(y1-y0) }
	d := draw{}
	d.open(p.Title)
	for _, v := range yTicks {
		fmt.Fprintf(&d.b, `<path d="M%d %.1fH%d" stroke="#ddd"/>`+"\n", left, y(v), width-right)
		d.text(left-8, y(v)+4, "end", "", number(v))
	}
	for _, v := range xTicks {
		if v < x0 || v > x1 {
			continue
		}
		fmt.Fprintf(&d.b, `<path d="M%.1f %dv4" stroke="#999"/>`+"\n", x(v), height-bottom)
		label := number(v)
		if p.Seconds {
			label = span(v)
		}
		d.text(x(v), height-bottom+20, "middle", "", label)
	}
	d.axes(p.X, p.Y)
	for k, l := range p.Lines {
		var path strings.Builder
		for i := range l.At {
			px, py := x(l.At[i]), y(l.Of[i])
			switch {
			case i == 0:
				fmt.Fprintf(&path, "M%.1f %.1f", px, py)
			case l.Steps:
				fmt.Fprintf(&path, "H%.1fV%.1f", px, py)
			default:
				fmt.Fprintf(&path, "L%.1f %.1f", px, py)
			}
		}
		color, dash := style(k)
		if path.Len() > 0 {
			fmt.Fprintf(&d.b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.8" stroke-linejoin="round"%s/>`+"\n", path.String(), color, dash)
		}
		at := float64(top + 10 + 20*k)
		fmt.Fprintf(&d.b, `<path d="M%d %.1fh20" stroke="%s" stroke-width="2"%s/>`+"\n", width-right+16, at, color, dash)
		d.text(width-right+42, at+4, "start", "", shorten(l.Name))
	}
	return d.close(w)
}

// Bars compares names by several series, side by side.
type Bars struct {
	Title  string
	Y      string
	Names  []string
	Series []Series
}

// Write draws them.
func (c *Bars) Write(w io.Writer) error {
	most := 0.0
	for _, s := range c.Series {
		for _, v := range s.Values {
			most = math.Max(most, v)
		}
	}
	yTicks := ticks(0, most)
	top1 := yTicks[len(yTicks)-1]
	y := func(v float64) float64 { return height - bottom - float64(height-top-bottom)*v/top1 }
	d := draw{}
	d.open(c.Title)
	for _, v := range yTicks {
		fmt.Fprintf(&d.b, `<path d="M%d %.1fH%d" stroke="#ddd"/>`+"\n", left, y(v), width-right)
		d.text(left-8, y(v)+4, "end", "", number(v))
	}
	group := float64(width-left-right) / math.Max(float64(len(c.Names)), 1)
	bar := group * 0.8 / math.Max(float64(len(c.Series)), 1)
	every := (len(c.Names) + 9) / 10
	for i, name := range c.Names {
		at := left + group*(float64(i)+0.1)
		for k, s := range c.Series {
			if i >= len(s.Values) {
				continue
			}
			color, _ := style(k)
			fmt.Fprintf(&d.b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s</title></rect>`+"\n",
				at+bar*float64(k), y(s.Values[i]), math.Max(bar-1, 0.5), float64(height-bottom)-y(s.Values[i]), color, html.EscapeString(fmt.Sprintf("%s, %s: %s", name, s.Name, number(s.Values[i]))))
		}
		if i%every == 0 {
			d.text(at+group*0.4, height-bottom+20, "middle", ` font-size="11"`, tail(name, 10))
		}
	}
	d.axes("", c.Y)
	for k, s := range c.Series {
		color, _ := style(k)
		at := float64(top + 4 + 20*k)
		fmt.Fprintf(&d.b, `<rect x="%d" y="%.1f" width="14" height="12" fill="%s"/>`+"\n", width-right+16, at, color)
		d.text(width-right+42, at+10, "start", "", shorten(s.Name))
	}
	return d.close(w)
}

// draw is a picture on the way.
type draw struct{ b strings.Builder }

func (d *draw) open(title string) {
	fmt.Fprintf(&d.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13" role="img" aria-label="%s">`+"\n", width, height, html.EscapeString(title))
	fmt.Fprintf(&d.b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	d.text(left, 26, "start", ` font-size="16"`, title)
}

func (d *draw) text(x, y float64, anchor, more, s string) {
	fmt.Fprintf(&d.b, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, more, html.EscapeString(s))
}

func (d *draw) axes(x, y string) {
	d.text(left+float64(width-left-right)/2, height-16, "middle", "", x)
	d.text(18, top+float64(height-top-bottom)/2, "middle", fmt.Sprintf(` transform="rotate(-90 18 %.1f)"`, top+float64(height-top-bottom)/2), y)
}

func (d *draw) close(w io.Writer) error {
	d.b.WriteString("</svg>\n")
	_, err := io.WriteString(w, d.b.String())
	return err
}

// style of the line k: when the colors are used up they come again, dashed.
func style(k int) (color, dash string) {
	if k >= len(colors) {
		dash = ` stroke-dasharray="6 3"`
	}
	return colors[k%len(colors)], dash
}

// shorten fits a name beside a chart.
func shorten(s string) string {
	if r := []rune(s); len(r) > 20 {
		return string(r[:19]) + "…"
	}
	return s
}

// tail fits a name below a bar: its end tells names apart.
func tail(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return "…" + string(r[len(r)-n+1:])
	}
	return s
}

func (p *Plot) bounds() (x0, x1, y0, y1 float64) {
	x0, x1, y0, y1 = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, l := range p.Lines {
		for i := range l.At {
			x0, x1 = math.Min(x0, l.At[i]), math.Max(x1, l.At[i])
			y0, y1 = math.Min(y0, l.Of[i]), math.Max(y1, l.Of[i])
		}
	}
	if math.IsInf(x0, 1) {
		x0, x1, y0, y1 = 0, 1, 0, 1
	}
	if p.FromZero {
		y0 = math.Min(y0, 0)
	}
	if p.Percent {
		y0, y1 = 0, 100
	}
	if x1 <= x0 {
		x1 = x0 + 1
	}
	if y1 <= y0 {
		y1 = y0 + 1
	}
	return
}

// ticks are round numbers from at most lo to at least hi.
func ticks(lo, hi float64) []float64 {
	if !(hi > lo) {
		hi = lo + 1
	}
	step := math.Pow(10, math.Floor(math.Log10((hi-lo)/5)))
	for _, m := range []float64{1, 2, 5, 10} {
		if (hi-lo)/(step*m) <= 6 {
			step *= m
			break
		}
	}
	var out []float64
	for k := math.Floor(lo/step + 1e-9); ; k++ {
		out = append(out, k*step)
		if k*step >= hi-step*1e-9 {
			return out
		}
	}
}

// decades are powers of ten, or of times those that people name.
func decades(lo, hi float64, times bool) []float64 {
	lo = math.Max(lo, 1)
	hi = math.Max(hi, 10*lo)
	named := []float64{1, 10, 60, 600, 3600, 6 * 3600, 86400, 10 * 86400, 100 * 86400, 1000 * 86400, 10_000 * 86400}
	var out []float64
	for k := 0; ; k++ {
		v := math.Pow(10, float64(k))
		if times && k < len(named) {
			v = named[k]
		}
		if v <= lo {
			out = out[:0]
		}
		out = append(out, v)
		if v >= hi*(1-1e-9) {
			return out
		}
	}
}

// timeTicks are round times.
func timeTicks(lo, hi float64) []float64 {
	const minute, hour, day = 60, 3600, 86400
	for _, step := range []float64{1, 2, 5, 10, 30, minute, 2 * minute, 5 * minute, 10 * minute, 30 * minute, hour, 2 * hour, 6 * hour, 12 * hour, day, 2 * day, 5 * day, 10 * day, 30 * day, 100 * day, 365 * day, 1000 * day} {
		if n := (hi - lo) / step; n <= 7 {
			var out []float64
			for k := math.Ceil(lo / step); k*step <= hi; k++ {
				out = append(out, k*step)
			}
			return out
		}
	}
	return ticks(lo, hi)
}

func span(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 86400:
		return number(v/86400) + " d"
	case v >= 3600:
		return number(v/3600) + " h"
	case v >= 60:
		return number(v/60) + " min"
	}
	return number(v) + " s"
}

func number(v float64) string {
	if a := math.Abs(v); a >= 1e6 || a > 0 && a < 1e-3 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64)
}
