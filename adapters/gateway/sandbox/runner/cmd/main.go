// Command runner is the supervisor of one attempt as a program of its own,
// small and quick to start; the gateway carries it embedded.
package main

import (
	"os"

	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
)

func main() { os.Exit(runner.Main(os.Args[1:])) }
