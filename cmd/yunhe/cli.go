package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/pool"
)

// cli is one run of the program: where it reads and writes, what it was told
// for all commands, and what tests replace.
type cli struct {
	in       io.Reader
	out, err io.Writer
	env      func(string) string
	now      func() time.Time
	// screen returns the size of the terminal that w writes to; ok is false
	// if w is not a terminal.
	screen func(w io.Writer) (columns, rows int, ok bool)
	// person tells whether somebody is there to answer a question; nil: nobody.
	person func() bool
	retry  backoff

	flags globals
}

// globals are the flags every command has.
type globals struct {
	server, key, context string
	output               string
	noColor              bool
}

// backoff is how streams that broke are tried again.
type backoff struct {
	first, most time.Duration // waits between tries
	limit       time.Duration // without a connection before giving up
}

func newCLI() *cli {
	return &cli{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		env: os.Getenv,
		now: time.Now,
		screen: func(w io.Writer) (int, int, bool) {
			f, ok := w.(*os.File)
			if !ok || !term.IsTerminal(int(f.Fd())) {
				return 0, 0, false
			}
			columns, rows, err := term.GetSize(int(f.Fd()))
			return columns, rows, err == nil && columns > 0 && rows > 0
		},
		person: func() bool { return term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())) },
		retry:  backoff{first: 250 * time.Millisecond, most: 5 * time.Second, limit: 2 * time.Minute},
	}
}

// run executes the command line and returns the exit status.
func (c *cli) run(ctx context.Context, args []string) int {
	cmd := root(c)
	cmd.SetIn(c.in)
	cmd.SetOut(c.out)
	cmd.SetErr(c.err)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err != nil && pool.HandedOver() { // this program does not take the pool node's arguments, or what is in its folder
		err = errors.Join(err, pool.GiveBack(err))
	}
	return c.report(ctx, err)
}

// color tells whether w shows colors: it is a terminal and nobody asked for
// plain text.
func (c *cli) color(w io.Writer) bool {
	if c.flags.noColor || c.env("NO_COLOR") != "" || c.env("TERM") == "dumb" {
		return false
	}
	_, _, ok := c.screen(w)
	return ok
}

func (c *cli) paint(w io.Writer, s string, color text.Color) string {
	return text.Paint(s, color, c.color(w))
}

// group makes a command that only holds others: alone it shows its help, with
// a name it does not know it says so.
func group(use, groupID, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, GroupID: groupID, Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	cmd.AddCommand(subs...)
	return cmd
}
