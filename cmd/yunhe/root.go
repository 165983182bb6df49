package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
)

// The groups of the manual, in order.
const (
	groupServe   = "serve"
	groupJobs    = "jobs"
	groupNetwork = "network"
	groupAdmin   = "admin"
	groupHere    = "here"
)

var groups = []*cobra.Group{
	{ID: groupServe, Title: "Start the platform"},
	{ID: groupJobs, Title: "Run jobs"},
	{ID: groupNetwork, Title: "See and run the network"},
	{ID: groupAdmin, Title: "People and access"},
	{ID: groupHere, Title: "This program"},
}

const rootLong = `Yunhe joins computing centers into one compute network: it decides where your
work runs, runs it, and shows why, how it goes and what it costs.`

const rootExample = `  yunhe job submit -f job.json --follow        submit a job and watch it to its end
  yunhe job list --state running               what runs now
  yunhe job logs JOB -f                        its output, as it comes
  yunhe job explain JOB                        why it runs where it runs
  yunhe center list                            the centers, how full they are`

const rootNotes = `Which server: --server, else --context, else YUNHE_SERVER, else the current
context (yunhe context use), else http://127.0.0.1:8180. The key comes with
--key, YUNHE_KEY or the context; for a server on this machine without one, the
file admin.key in the data folder is used: $YUNHE_DATA, else ./data.

Output: -o json prints what the API answers, with every member present and
64-bit numbers as text (the JSON of protocol buffers); lists are an object with
one array, such as {"jobs": [...]}. -o yaml is the same in YAML, -o name prints
identifiers only, one per line. Colors appear on terminals, unless --no-color
or NO_COLOR.

Exit status: 0 done, 1 the request failed, 2 the command line is wrong.
"job wait" and "job submit --follow": 0 succeeded, 1 failed, 2 stopped. "pool
run": that of its program, as a shell has it.

Documentation: README.md and docs/ of the source; api/ describes every call.`

// unsorted makes help list commands in the order they are added, which is
// that of their use; the setting is the library's, for the whole process.
var unsorted = sync.OnceFunc(func() { cobra.EnableCommandSorting = false })

// root makes the command tree.
func root(c *cli) *cobra.Command {
	unsorted()
	cmd := &cobra.Command{
		Use:           "yunhe",
		Short:         "One compute network from many computing centers",
		Long:          rootLong,
		Example:       rootExample,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error { return c.checkGlobals() },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	f := cmd.PersistentFlags()
	f.StringVar(&c.flags.server, "server", "", "address of the server, such as https://yunhe.example.com")
	f.StringVar(&c.flags.key, "key", "", "API key, or @FILE to read it from a file")
	f.StringVar(&c.flags.context, "context", "", "saved context to use")
	f.StringVarP(&c.flags.output, "output", "o", "table", "output: "+strings.Join(outputs, ", "))
	f.BoolVar(&c.flags.noColor, "no-color", false, "no colors")
	cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
	cmd.SetHelpCommand(&cobra.Command{Use: "no-help", Hidden: true})
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { help(cmd.OutOrStdout(), cmd, c.color(cmd.OutOrStdout())) })
	cmd.SetUsageFunc(func(cmd *cobra.Command) error { help(cmd.OutOrStderr(), cmd, false); return nil })
	cmd.SetFlagErrorFunc(flagError)
	cmd.AddGroup(groups...)
	cmd.AddCommand(commands(c)...)
	c.completeIDs(cmd)
	return cmd
}

// flagError says what a flag wants in words rather than in the library's.
func flagError(cmd *cobra.Command, err error) error {
	e := &usageError{msg: err.Error(), hint: seeHelp(cmd)}
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) {
		want := map[string]string{
			"int": "a whole number", "int64": "a whole number", "int32": "a whole number of at most 32 bits", "bool": "true or false",
			"duration": "a length of time such as 90s or 2h",
		}[bad.GetFlag().Value.Type()]
		if want != "" {
			e.msg = fmt.Sprintf("--%s: want %s, got %q", bad.GetFlag().Name, want, bad.GetValue())
		}
	}
	return e
}

func (c *cli) checkGlobals() error {
	if !slices.Contains(outputs, c.flags.output) {
		return &usageError{msg: fmt.Sprintf("--output: want one of %s, got %q", strings.Join(outputs, ", "), c.flags.output)}
	}
	return nil
}

func seeHelp(cmd *cobra.Command) string { return fmt.Sprintf("see `%s --help`", cmd.CommandPath()) }

func unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	e := &usageError{msg: fmt.Sprintf("%s has no command %q", cmd.CommandPath(), name), hint: seeHelp(cmd)}
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		e.hint = fmt.Sprintf("did you mean `%s %s`?", cmd.CommandPath(), near[0])
	}
	return e
}

// help prints the manual of a command.
func help(w io.Writer, cmd *cobra.Command, color bool) {
	var b strings.Builder
	title := func(s string) { b.WriteString("\n" + text.Paint(s, text.Bold, color) + "\n") }
	about := cmd.Long
	if about == "" {
		about = cmd.Short + "."
	}
	b.WriteString(about + "\n")
	title("Usage")
	if cmd.HasParent() && cmd.Args != nil { // does something by itself
		fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND\n", cmd.CommandPath())
	}
	if cmd.Example != "" {
		title("Examples")
		b.WriteString(cmd.Example + "\n")
	}
	if len(cmd.Groups()) > 0 {
		for _, g := range cmd.Groups() {
			helpCommands(&b, func() { title(g.Title) }, cmd, g.ID)
		}
		helpCommands(&b, func() { title("More") }, cmd, "")
	} else {
		helpCommands(&b, func() { title("Commands") }, cmd, "")
	}
	if cmd.HasParent() {
		helpFlags(&b, func() { title("Flags") }, cmd.LocalNonPersistentFlags())
		b.WriteString("\nFlags of every command: see `yunhe --help`.\n")
	} else {
		helpFlags(&b, func() { title("Flags of every command") }, cmd.PersistentFlags())
		b.WriteString("\n" + rootNotes + "\n")
	}
	io.WriteString(w, b.String())
}

func helpCommands(b *strings.Builder, title func(), cmd *cobra.Command, groupID string) {
	widest, any := 0, false
	for _, sub := range cmd.Commands() {
		widest = max(widest, len(sub.Name()))
		any = any || (sub.IsAvailableCommand() && sub.GroupID == groupID)
	}
	if !any {
		return
	}
	title()
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.GroupID == groupID {
			fmt.Fprintf(b, "  %-*s  %s\n", widest, sub.Name(), sub.Short)
		}
	}
}

func helpFlags(b *strings.Builder, title func(), flags *pflag.FlagSet) {
	if usage := flags.FlagUsagesWrapped(100); usage != "" {
		title()
		b.WriteString(usage)
	}
}
