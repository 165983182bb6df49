// Program sh stands for a shell in images that tests make where no static
// busybox is at hand. It knows what the tests' commands use and no more:
// words, variables, ";" and the programs below.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 3 || os.Args[1] != "-c" {
		fmt.Fprintln(os.Stderr, "usage: sh -c TEXT")
		os.Exit(2)
	}
	code := 0
	for text := range strings.SplitSeq(os.Args[2], ";") {
		words := strings.Fields(os.Expand(text, os.Getenv))
		if len(words) == 0 {
			continue
		}
		code = 0
		if err := run(words[0], words[1:]); err != nil {
			fmt.Fprintln(os.Stderr, words[0]+":", err)
			code = 1
		}
	}
	os.Exit(code)
}

func run(name string, args []string) error {
	switch name {
	case "echo":
		fmt.Println(strings.Join(args, " "))
	case "pwd":
		dir, err := os.Getwd()
		fmt.Println(dir)
		return err
	case "id":
		fmt.Println(os.Getuid())
	case "cat":
		for _, f := range args {
			b, err := os.ReadFile(f)
			os.Stdout.Write(b)
			if err != nil {
				return err
			}
		}
	case "ls":
		for _, d := range args {
			entries, err := os.ReadDir(d)
			for _, e := range entries {
				fmt.Println(e.Name())
			}
			if err != nil {
				return err
			}
		}
	case "touch":
		for _, f := range args {
			if err := os.WriteFile(f, nil, 0o644); err != nil {
				return err
			}
		}
	case "sleep":
		time.Sleep(time.Hour)
	default:
		return fmt.Errorf("not known")
	}
	return nil
}
