//go:build !linux

package main

import "os"

func main() {
	_, _ = os.Stderr.WriteString("error: pool nodes run on Linux only\n") // nowhere else to tell
	os.Exit(1)
}
