package main

import (
	"fmt"
	"strings"
	"time"
)

// showEvery is how often progress is shown.
const showEvery = 100 * time.Millisecond

// progressLine is one line on a terminal that changes while something goes on.
type progressLine struct {
	c     *cli
	shown time.Time
	width int
}

func (c *cli) progressLine() *progressLine { return &progressLine{c: c} }

// show shows text, unless it was changed a moment ago.
func (l *progressLine) show(line string) {
	columns, _, ok := l.c.screen(l.c.err)
	now := l.c.now()
	if !ok || !l.c.forPeople() || now.Sub(l.shown) < showEvery {
		return
	}
	l.shown = now
	l.width = max(l.width, min(len(line), columns-1))
	fmt.Fprintf(l.c.err, "\r%-*.*s", l.width, l.width, line)
}

func (l *progressLine) clear() {
	if l.width > 0 {
		fmt.Fprintf(l.c.err, "\r%s\r", strings.Repeat(" ", l.width))
		l.width = 0
	}
}
