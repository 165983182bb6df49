package main

import (
	"fmt"
	"io"
	"strings"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
)

// block is a few lines at the bottom of a terminal that are replaced as things
// change. It never scrolls: it shows at most what fits, and says how much did
// not. On anything but a terminal it is not live and draws nothing.
type block struct {
	c     *cli
	w     io.Writer
	live  bool
	shown int // lines on the screen now
}

func (c *cli) newBlock(w io.Writer) *block {
	_, _, live := c.screen(w)
	return &block{c: c, w: w, live: live && c.env("TERM") != "dumb"}
}

// draw replaces the lines. Colors in them do not count toward the width.
func (b *block) draw(lines []string) error {
	if !b.live {
		return nil
	}
	columns, rows, ok := b.c.screen(b.w)
	if !ok {
		return nil
	}
	if most := max(rows-1, 1); len(lines) > most {
		more := len(lines) - most + 1
		lines = append(lines[:most-1:most-1], fmt.Sprintf("… and %d more", more))
	}
	var out strings.Builder
	b.up(&out)
	for _, line := range lines {
		out.WriteString(cutColored(line, columns) + "\n")
	}
	b.shown = len(lines)
	_, err := io.WriteString(b.w, out.String())
	return err
}

// clear removes the lines, so that something can be printed in their place.
func (b *block) clear() {
	if b.live && b.shown > 0 {
		var out strings.Builder
		b.up(&out)
		io.WriteString(b.w, out.String())
		b.shown = 0
	}
}

// close leaves the last lines on the screen.
func (b *block) close() { b.shown = 0 }

// up moves to the first line shown and clears from there.
func (b *block) up(out *strings.Builder) {
	if b.shown > 0 {
		fmt.Fprintf(out, "\x1b[%dA\r\x1b[J", b.shown)
	}
}

// cutColored shortens a line with color sequences to a number of cells.
func cutColored(line string, cells int) string {
	var out strings.Builder
	used := 0
	for line != "" {
		if strings.HasPrefix(line, "\x1b[") {
			if end := strings.IndexByte(line, 'm'); end > 0 {
				out.WriteString(line[:end+1])
				line = line[end+1:]
				continue
			}
		}
		next := strings.IndexByte(line[1:], '\x1b') + 1
		piece := line
		if next > 0 {
			piece = line[:next]
		}
		line = line[len(piece):]
		if used < cells {
			piece = text.Cut(piece, cells-used)
			used += text.Width(piece)
			out.WriteString(piece)
		}
	}
	return out.String()
}
