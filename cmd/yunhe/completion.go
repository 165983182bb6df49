package main

import (
	"github.com/spf13/cobra"
)

func completionCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "completion bash|zsh|fish", GroupID: groupHere, Short: "Print a script that completes commands in your shell",
		Example: `  source <(yunhe completion bash)
  yunhe completion zsh > "${fpath[1]}/_yunhe"
  yunhe completion fish > ~/.config/fish/completions/yunhe.fish`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      takes(1, 1, "the name of a shell: bash, zsh or fish"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(c.out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(c.out)
			case "fish":
				return cmd.Root().GenFishCompletion(c.out, true)
			}
			return usagef("want bash, zsh or fish, got %q", args[0])
		},
	}
}
