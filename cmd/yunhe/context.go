package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
)

func contextCommand(c *cli) *cobra.Command {
	return group("context", groupHere, "Saved servers and keys",
		contextListCommand(c), contextAddCommand(c), contextUseCommand(c), contextDeleteCommand(c))
}

// contextView is a context as printed: without its key.
type contextView struct {
	Name    string `json:"name"`
	Server  string `json:"server"`
	HasKey  bool   `json:"hasKey"`
	Current bool   `json:"current"`
}

func contextListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List saved contexts",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := c.loadConfig()
			if err != nil {
				return err
			}
			views, names := []contextView{}, []string{}
			for _, e := range conf.Contexts {
				views = append(views, contextView{e.Name, e.Server, e.Key != "", e.Name == c.contextName(conf)})
				names = append(names, e.Name)
			}
			return c.print(result{msg: map[string]any{"contexts": views}, names: names, print: func(w io.Writer, color bool) error {
				if len(views) == 0 {
					c.note("no contexts; add one with `yunhe context add NAME --server URL --key KEY`")
					return nil
				}
				t := text.NewTable("", "CONTEXT", "SERVER", "KEY")
				for _, v := range views {
					mark, key := text.Cell{Text: " "}, "no"
					if v.Current {
						mark = text.Cell{Text: "*", Color: text.Green}
					}
					if v.HasKey {
						key = "saved"
					}
					t.Row(mark, v.Name, v.Server, key)
				}
				return t.Write(w, color)
			}})
		},
	}
}

var contextNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func contextAddCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "add NAME --server URL [--key KEY]", Short: "Save or replace a context and use it",
		Long: `Saves a server and a key under a name, replaces what was saved there, and uses
it from now on. The file is readable by you only. --key @FILE reads the key
from a file, which keeps it out of the shell's history.`,
		Example: `  yunhe context add lab --server https://yunhe.example.com --key @lab.key`,
		Args:    takes(1, 1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !contextNames.MatchString(args[0]) {
				return usagef("want a name of at most 64 letters, digits, dots, hyphens and underscores, got %q", args[0])
			}
			if c.flags.server == "" {
				return &usageError{msg: "--server is missing", hint: seeHelp(cmd)}
			}
			entry := contextEntry{Name: args[0]}
			var err error
			if entry.Server, err = cleanServer(c.flags.server); err != nil {
				return usagef("--server: %v", err)
			}
			if entry.Key, err = expandKey(c.flags.key); err != nil {
				return usagef("--key: %v", err)
			}
			conf, err := c.loadConfig()
			if err != nil {
				return err
			}
			if old := conf.find(args[0]); old != nil {
				*old = entry
			} else {
				conf.Contexts = append(conf.Contexts, entry)
			}
			conf.Current = args[0]
			if err := c.saveConfig(conf); err != nil {
				return err
			}
			if t := (target{server: entry.Server}); entry.Key != "" && !t.local() && entry.Server[:5] == "http:" {
				fmt.Fprintf(c.err, "warning: %s is not encrypted; whoever is on the way can read the key\n", entry.Server)
			}
			return c.printContext(entry)
		},
	}
}

func (c *cli) printContext(e contextEntry) error {
	return c.print(result{msg: contextView{e.Name, e.Server, e.Key != "", true}, names: []string{e.Name}, print: func(w io.Writer, _ bool) error {
		_, err := fmt.Fprintf(w, "using %s: %s\n", e.Name, e.Server)
		return err
	}})
}

func contextUseCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Use a saved context from now on",
		Args: takes(1, 1, "the name of a context"),
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := c.loadConfig()
			if err != nil {
				return err
			}
			e := conf.find(args[0])
			if e == nil {
				return c.noContext(args[0])
			}
			conf.Current = e.Name
			if err := c.saveConfig(conf); err != nil {
				return err
			}
			return c.printContext(*e)
		},
	}
}

func (c *cli) noContext(name string) error {
	return &hinted{fmt.Errorf("no context %q in %s", name, c.configPath()), "`yunhe context list` shows the contexts"}
}

func contextDeleteCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Forget a context and its key",
		Args: takes(1, 1, "the name of a context"),
		RunE: func(cmd *cobra.Command, args []string) error {
			conf, err := c.loadConfig()
			if err != nil {
				return err
			}
			if conf.find(args[0]) == nil {
				return c.noContext(args[0])
			}
			conf.Contexts = slices.DeleteFunc(conf.Contexts, func(e contextEntry) bool { return e.Name == args[0] })
			if conf.Current == args[0] {
				conf.Current = ""
				c.note("%s was the current context; `yunhe context use` chooses another", args[0])
			}
			if err := c.saveConfig(conf); err != nil {
				return err
			}
			return c.print(result{msg: map[string]string{"name": args[0]}, names: args, print: func(w io.Writer, _ bool) error {
				_, err := fmt.Fprintf(w, "%s deleted\n", args[0])
				return err
			}})
		},
	}
}
