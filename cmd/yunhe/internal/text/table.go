package text

import (
	"fmt"
	"io"
	"strings"
)

// Color is how a piece of text stands out on a terminal.
type Color string

// The colors, as the parameters of the terminal's SGR sequence.
const (
	Plain   Color = ""
	Bold    Color = "1"
	Dim     Color = "2"
	Red     Color = "31"
	Green   Color = "32"
	Yellow  Color = "33"
	Blue    Color = "34"
	Magenta Color = "35"
	Cyan    Color = "36"
)

// Paint returns s in the color if on, else s.
func Paint(s string, color Color, on bool) string {
	if !on || color == Plain || s == "" {
		return s
	}
	return "\x1b[" + string(color) + "m" + s + "\x1b[0m"
}

// Cell is a table entry with a color.
type Cell struct {
	Text  string
	Color Color
}

// Table is rows under aligned columns, ready to be written. The zero value
// has no columns; make one with [NewTable].
type Table struct {
	header []string
	right  []bool
	rows   [][]Cell
}

// NewTable returns a table with these columns. A title that begins with ">"
// makes its column right-aligned; the mark is not printed.
func NewTable(columns ...string) *Table {
	t := &Table{}
	for _, c := range columns {
		name, right := strings.CutPrefix(c, ">")
		t.header = append(t.header, name)
		t.right = append(t.right, right)
	}
	return t
}

// Row adds a row: strings, Cells, or anything fmt prints. An empty entry shows
// as "-", a space as nothing. Missing entries count as empty; more entries than
// columns are a bug and panic.
func (t *Table) Row(entries ...any) {
	if len(entries) > len(t.header) {
		panic(fmt.Sprintf("text: row of %d entries in a table of %d columns", len(entries), len(t.header)))
	}
	row := make([]Cell, len(t.header))
	for i, e := range entries {
		switch e := e.(type) {
		case Cell:
			row[i] = Cell{Clean(e.Text), e.Color}
		default:
			row[i] = Cell{Text: Clean(fmt.Sprint(e))}
		}
	}
	for i := range row {
		if row[i].Text == "" {
			row[i].Text = "-"
		}
	}
	t.rows = append(t.rows, row)
}

// Len returns the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// Lines returns the header and the rows as lines without trailing spaces.
func (t *Table) Lines(color bool) []string {
	widths := make([]int, len(t.header))
	for i, h := range t.header {
		widths[i] = Width(h)
		for _, row := range t.rows {
			widths[i] = max(widths[i], Width(row[i].Text))
		}
	}
	head := make([]Cell, len(t.header))
	for i, h := range t.header {
		head[i] = Cell{h, Dim}
	}
	lines := []string{t.line(head, widths, color)}
	for _, row := range t.rows {
		lines = append(lines, t.line(row, widths, color))
	}
	return lines
}

func (t *Table) line(row []Cell, widths []int, color bool) string {
	last := len(row) - 1
	for last > 0 && strings.TrimSpace(row[last].Text) == "" {
		last--
	}
	var b strings.Builder
	for i, cell := range row[:last+1] {
		if i > 0 {
			b.WriteString("  ")
		}
		space := strings.Repeat(" ", widths[i]-Width(cell.Text))
		switch {
		case t.right[i]:
			b.WriteString(space + Paint(cell.Text, cell.Color, color))
		case i == last:
			b.WriteString(Paint(cell.Text, cell.Color, color))
		default:
			b.WriteString(Paint(cell.Text, cell.Color, color) + space)
		}
	}
	return b.String()
}

// Write prints the table.
func (t *Table) Write(w io.Writer, color bool) error {
	_, err := io.WriteString(w, strings.Join(t.Lines(color), "\n")+"\n")
	return err
}

// Fact is one line of a [Facts] list.
type Fact struct {
	Name  string
	Value Cell
}

// Facts is a list of names and values, for showing one thing.
type Facts []Fact

// Add appends a fact unless its value is empty.
func (f *Facts) Add(name, value string) { f.AddColor(name, value, Plain) }

// AddColor is Add with a color.
func (f *Facts) AddColor(name, value string, color Color) {
	if value != "" {
		*f = append(*f, Fact{name, Cell{Clean(value), color}})
	}
}

// Write prints the facts, values aligned.
func (f Facts) Write(w io.Writer, color bool) error {
	widest := 0
	for _, fact := range f {
		widest = max(widest, Width(fact.Name))
	}
	var b strings.Builder
	for _, fact := range f {
		name := fact.Name + strings.Repeat(" ", widest-Width(fact.Name))
		b.WriteString(Paint(name, Dim, color) + "  " + Paint(fact.Value.Text, fact.Value.Color, color) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
