package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
)

// errNotConfirmed ends a command whose question was not answered with yes.
var errNotConfirmed = errors.New("not confirmed; nothing was changed")

// confirm asks a person to agree. Where nobody can be asked (standard input or
// the place of the question is no terminal) it agrees: a script means what it
// says. Only yes and y agree.
func (c *cli) confirm(question string) error {
	if c.person == nil || !c.person() {
		return nil
	}
	answer, err := c.ask(question + " [y/N] ")
	if err != nil {
		return err
	}
	switch strings.ToLower(answer) {
	case "y", "yes":
		return nil
	}
	return errNotConfirmed
}

// ask prints a question and returns the line of the answer, "" at the end of
// input.
func (c *cli) ask(question string) (string, error) {
	fmt.Fprint(c.err, question)
	line, err := bufio.NewReader(c.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	return strings.TrimSpace(line), nil
}

// yesFlag adds --yes.
func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask on a terminal")
}

// removal is a command that takes things away for good.
type removal struct {
	use, short, long string
	one, some        string // "specification", "specifications"
	member           string // of the answer in JSON, "resourceSpecIds"
	done             string // "deleted"
	remove           func(cmd *cobra.Command, a *api, id string) error
}

// command removes each argument, after one question about all of them.
func (r removal) command(c *cli) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: r.use, Short: r.short, Long: r.long,
		Args: takes(1, -1, "the ID of "+article(r.one)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				what := r.one + " " + text.Clean(args[0])
				if len(args) > 1 {
					what = fmt.Sprintf("%d %s (%s)", len(args), r.some, text.Clean(strings.Join(args, ", ")))
				}
				verb := strings.ToUpper(cmd.Name()[:1]) + cmd.Name()[1:]
				if err := c.confirm(fmt.Sprintf("%s %s?", verb, what)); err != nil {
					return err
				}
			}
			return c.eachDone(args, r.member, r.done, func(a *api, id string) error { return r.remove(cmd, a, id) })
		},
	}
	yesFlag(cmd, &yes)
	return cmd
}

func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}
