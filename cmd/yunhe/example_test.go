package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Each line of an example names a command that there is, with flags that it has.
func TestExamples(t *testing.T) {
	t.Parallel()
	checked := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for line := range strings.Lines(strings.ReplaceAll(cmd.Example, "\\\n", " ")) {
			if why := exampleFails(line); why != "" {
				t.Errorf("%s: %s: %s", cmd.CommandPath(), strings.TrimSpace(line), why)
			}
			checked++
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root(newCLI()))
	if checked < 100 {
		t.Errorf("only %d lines of examples were found", checked)
	}
	for line, fails := range map[string]bool{"yunhe pool log --node n1": true, "yunhe pool log --on n1": false, "cat x | yunhe job lst": true, "yunhe pool run -- x --no-flag": false} {
		if why := exampleFails(line); fails != (why != "") {
			t.Errorf("%s: %q", line, why)
		}
	}
}

// exampleFails says why the command line cannot be meant, "" if it can.
func exampleFails(line string) string {
	words := strings.Fields(line)
	at := slices.Index(words, "yunhe")
	if at < 0 {
		return "" // of another program
	}
	words = words[at+1:]
	if end := slices.IndexFunc(words, func(w string) bool { return w == "|" || w == ">" || w == "&&" || w == "#" }); end >= 0 {
		words = words[:end]
	}
	cmd, rest, err := root(newCLI()).Find(words)
	if err != nil {
		return err.Error()
	}
	if cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && !strings.Contains(cmd.Use, " ") {
		return cmd.CommandPath() + " has no command " + rest[0]
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err.Error()
	}
	return ""
}
