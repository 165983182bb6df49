//go:build !linux

package runner

import (
	"fmt"
	"os"
)

// Main refuses: isolation needs Linux.
func Main([]string) int {
	fmt.Fprintln(os.Stderr, "runner: jobs are isolated with Linux namespaces; this system has none")
	return 1
}
