// Package report writes what simulations came to for people: as a page with
// charts that needs nothing from outside.
package report

import (
	"fmt"
	"html"
	"io"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/chart"
	"yunhe.dev/yunhe/internal/sim"
)

// style is all the report needs: it has no outside references.
const style = `body{font:15px/1.5 system-ui,sans-serif;color:#1b1f24;background:#f6f7f9;margin:0}
main{max-width:1120px;margin:0 auto;padding:24px}
h1{font-size:24px;margin:0 0 4px}h2{font-size:18px;margin:32px 0 8px}
p{margin:4px 0;color:#4b5563}
.scroll{overflow-x:auto;background:#fff;border:1px solid #dfe3e8;border-radius:8px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:6px 12px;text-align:right;white-space:nowrap;border-bottom:1px solid #eceff2}
th:first-child,td:first-child{text-align:left}
thead th{background:#f0f2f5}tr:last-child td{border-bottom:0}
.best{font-weight:600;color:#00664b}.best::after{content:" ★"}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(480px,1fr));gap:16px}
.charts figure{margin:0;background:#fff;border:1px solid #dfe3e8;border-radius:8px;padding:8px}
.charts svg{width:100%;height:auto;display:block}
.warn{background:#fff4e5;border:1px solid #f0c48a;border-radius:8px;padding:8px 12px;color:#7a4b00}
@media(max-width:560px){.charts{grid-template-columns:1fr}}`

// HTML writes a comparison as one file.
func HTML(w io.Writer, c *sim.Comparison) error {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	esc := html.EscapeString
	p(`<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><title>Simulation</title><style>%s</style></head><body><main>`, style)
	p(`<h1>Simulation</h1><p>%s</p>`, esc(summary(c.Input)))
	if c.Input.Made != "" {
		p(`<p>The input was made up: %s. Prices, power and speeds in it are assumptions.</p>`, esc(c.Input.Made))
	}
	for _, r := range c.Results {
		if r.Partial {
			p(`<p class="warn">%s was stopped early: its figures are those up to then, and jobs that had not ended count as not done.</p>`, esc(r.Name))
		}
	}
	p(`<h2>Measures</h2><div class="scroll"><table><thead><tr><th scope="col">Measure</th>`)
	for _, r := range c.Results {
		p(`<th scope="col">%s</th>`, esc(r.Name))
	}
	p(`</tr></thead><tbody>`)
	var base *sim.Result
	for _, r := range c.Results {
		if r.Name == c.Baseline {
			base = r
		}
	}
	for _, m := range sim.Measures() {
		row, some := "", false
		for _, r := range c.Results {
			v, ok := m.Of(r)
			if !ok {
				row += "<td>–</td>"
				continue
			}
			some = true
			class, more := "", ""
			if c.IsBest(m, r) {
				class = ` class="best"`
			}
			if base != nil && base != r {
				if was, ok := m.Of(base); ok && was != 0 {
					more = fmt.Sprintf(" (%+.1f %%)", 100*(v-was)/was)
				}
			}
			row += fmt.Sprintf("<td%s>%s</td>", class, esc(Number(m, v)+more))
		}
		if some {
			p(`<tr><td>%s</td>%s</tr>`, esc(Title(m)), row)
		}
	}
	p(`</tbody></table></div>`)
	if len(c.Best) > 0 {
		p(`<p>★ the best of the results%s.</p>`, map[bool]string{true: "; in brackets the change to " + esc(c.Baseline), false: ""}[base != nil])
	}
	p(`<h2>Charts</h2><div class="charts">`)
	for _, x := range charts(c) {
		p(`<figure>`)
		if err := x.Write(&b); err != nil {
			return err
		}
		p(`</figure>`)
	}
	p(`</div>`)
	left(p, c)
	p(`<h2>What the measures mean</h2>
<p>Allocated: how much of the cards was held, mean over the time until everything had come and nothing waited. Fragmented: cards that were free and of no use to work like that
which came (Weng et al., ATC 2023). Waiting: from arrival to the first start. Completion: from arrival to the end. Slowdown: completion over run time, at least 10 s of which count.
Fairness: the index of Jain over the tenants' paces; a pace is run time over time in the system. Cost and energy: of what was held, exact sums of the stated figures.</p>`)
	p(`</main></body></html>`)
	_, err := io.WriteString(w, b.String())
	return err
}

func summary(s sim.Summary) string {
	where := fmt.Sprintf("%d nodes", s.Nodes)
	if s.Centers > 0 {
		where = fmt.Sprintf("%d centers", s.Centers)
	}
	text := fmt.Sprintf("%d jobs of %d tenants on %s with %d cards", s.Jobs, s.Tenants, where, s.Cards)
	if s.Fill > 0 {
		return text + fmt.Sprintf("; drawn at random until they had asked for %g times the cards", s.Fill)
	}
	return text + fmt.Sprintf("; %.0f card hours asked for, arriving within %s", s.CardSum, Length(s.Arriving))
}

// left lists what was not done.
func left(p func(string, ...any), c *sim.Comparison) {
	for _, r := range c.Results {
		if len(r.NotDone) == 0 && len(r.NeverFits) == 0 {
			continue
		}
		p(`<h2>Not done: %s</h2><p>%d waiting, %d running, %d not arrived, %d that fit nowhere; the first of them:</p><div class="scroll"><table><thead><tr><th scope="col">Job</th><th scope="col">State</th><th scope="col">Why</th></tr></thead><tbody>`,
			html.EscapeString(r.Name), r.Jobs.Waiting, r.Jobs.Running, r.Jobs.Later, r.Jobs.Never)
		for i, x := range append(r.NeverFits[:len(r.NeverFits):len(r.NeverFits)], r.NotDone...) {
			if i == 20 {
				break
			}
			p(`<tr><td>%s</td><td>%s</td><td>%s</td></tr>`, html.EscapeString(x.ID), html.EscapeString(x.State), html.EscapeString(x.Why))
		}
		p(`</tbody></table></div>`)
	}
}

// drawn is what can draw itself.
type drawn interface{ Write(w io.Writer) error }

func charts(c *sim.Comparison) []drawn {
	var out []drawn
	load := &chart.Plot{Title: "Fragmentation by arrived load", X: "cards asked for, % of all", Y: "fragmented, % of all cards", FromZero: true}
	filled := &chart.Plot{Title: "Allocation by arrived load", X: "cards asked for, % of all", Y: "allocated, % of all cards", FromZero: true}
	held := &chart.Plot{Title: "Use over time", X: "time", Y: "allocated, % of all cards", Percent: true, Seconds: true}
	line := &chart.Plot{Title: "Jobs that wait", X: "time", Y: "jobs", FromZero: true, Seconds: true}
	frag := &chart.Plot{Title: "Fragmentation over time", X: "time", Y: "fragmented, % of all cards", FromZero: true, Seconds: true}
	waits := &chart.Plot{Title: "How long jobs wait", X: "waiting time", Y: "% of started jobs that waited less", Percent: true, Seconds: true, Log: true}
	for _, r := range c.Results {
		var at, arrived, share, queue, part, loads, allocated []float64
		for _, s := range r.Series {
			at, share, queue = append(at, s.At), append(share, s.Allocation), append(queue, float64(s.Waiting))
			if s.Fragmentation != nil {
				part = append(part, *s.Fragmentation)
			}
		}
		for _, l := range r.Loads {
			arrived, loads, allocated = append(arrived, l.Arrived), append(loads, l.Fragmentation), append(allocated, l.Allocation)
		}
		if len(arrived) > 0 {
			load.Lines = append(load.Lines, chart.Line{Name: r.Name, At: arrived, Of: loads})
			filled.Lines = append(filled.Lines, chart.Line{Name: r.Name, At: arrived, Of: allocated})
			continue
		}
		held.Lines = append(held.Lines, chart.Line{Name: r.Name, At: at, Of: share, Steps: true})
		line.Lines = append(line.Lines, chart.Line{Name: r.Name, At: at, Of: queue, Steps: true})
		if len(part) > 0 {
			frag.Lines = append(frag.Lines, chart.Line{Name: r.Name, At: at, Of: part, Steps: true})
		}
		var below []float64
		for i := range r.WaitCDF {
			below = append(below, float64(i))
		}
		waits.Lines = append(waits.Lines, chart.Line{Name: r.Name, At: r.WaitCDF, Of: below})
	}
	for _, x := range []*chart.Plot{load, filled, held, line, waits, frag} {
		if len(x.Lines) > 0 {
			out = append(out, x)
		}
	}
	if bars := tenants(c); bars != nil {
		out = append(out, bars)
	}
	return out
}

// tenants compares the paces of tenants.
func tenants(c *sim.Comparison) *chart.Bars {
	const most = 20
	b := &chart.Bars{Title: "Pace of tenants (1: nothing ever waited)", Y: "run time over time in the system"}
	for _, r := range c.Results {
		if len(r.Loads) > 0 || len(r.Fairness.Tenants) < 2 {
			return nil
		}
		s := chart.Series{Name: r.Name}
		for i, t := range r.Fairness.Tenants {
			if i == most {
				b.Title = fmt.Sprintf("Pace of the first %d tenants (1: nothing ever waited)", most)
				break
			}
			if len(b.Series) == 0 {
				b.Names = append(b.Names, t.ID)
			}
			s.Values = append(s.Values, t.Pace)
		}
		b.Series = append(b.Series, s)
	}
	return b
}

// Title is a measure with its unit.
func Title(m sim.Measure) string {
	if m.Unit == "" {
		return m.Title
	}
	return m.Title + ", " + m.Unit
}

// Number writes a value with the digits that matter.
func Number(m sim.Measure, v float64) string {
	switch {
	case m.ID == "jobs.done" || m.ID == "preemptions" || m.ID == "deadlines.missed" || m.ID == "failures.interrupted":
		return strconv.FormatFloat(v, 'f', 0, 64)
	case m.ID == "fairness.jain":
		return strconv.FormatFloat(v, 'f', 4, 64)
	case m.Unit == "s":
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// Length is a time in seconds for people.
func Length(seconds float64) string {
	if seconds >= 2*86400 {
		return fmt.Sprintf("%.1f days", seconds/86400)
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
