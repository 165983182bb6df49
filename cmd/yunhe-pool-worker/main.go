//go:build linux

// Command yunhe-pool-worker is the part of a pool node that loads a vendor's
// library: a process for each program that uses a device of the node, and one
// that lists the devices, and one for each maker's library that tells of its
// cards or the driver of CUDA. The node (yunhe pool node) starts it.
//
// It is a program of its own because what a program does to a device, and what a
// vendor's library does in its process, must end with its worker; and because who opens
// libraries is linked with some, and yunhe is not.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/cards/makers"
	"yunhe.dev/yunhe/internal/pool/worker"
	"yunhe.dev/yunhe/internal/pool/worker/cuda"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "error: %s\n", err)
		os.Exit(1)
	}
}

// What a worker is given as open files.
const (
	connFD = 3
	pageFD = 4
	turnFD = 5
	cardFD = 6
)

func run(args []string) error {
	if len(args) == 3 && args[0] == "cards" { // it takes nothing from programs, and asks drivers of the kernel in ways of its own
		return makers.Serve(args[1], args[2], os.Stdin, os.NewFile(connFD, "answers"))
	}
	if len(args) == 2 && args[0] == "cuda" {
		return makers.ServeCUDA(args[1], os.Stdout)
	}
	if err := worker.Confine(len(args) > 0 && args[0] == "serve-cuda"); err != nil {
		return err
	}
	if len(args) == 1 && args[0] == "list" {
		devices, err := worker.Devices()
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(devices)
	}
	if len(args) == 2 && args[0] == "rdma" {
		return worker.CheckRDMA(args[1])
	}
	if len(args) > 0 && args[0] == "relay" {
		return worker.Relay(args[1:])
	}
	if len(args) != 5 || args[0] != "serve" && args[0] != "receive" && args[0] != "serve-cuda" {
		return fmt.Errorf("yunhe pool node starts this program")
	}
	var n [4]int // platform, device (of CUDA its UUID, and the folder of its driver), and the worker's slots in the page of the task and of the device
	for i, a := range args[1:] {
		if args[0] == "serve-cuda" && i < 2 {
			continue
		}
		var err error
		if n[i], err = strconv.Atoi(a); err != nil || n[i] < 0 {
			return fmt.Errorf("%q is not a number", a)
		}
	}
	if max(n[2], n[3]) >= between.Slots {
		return fmt.Errorf("there is no slot %d", max(n[2], n[3]))
	}
	conn, err := worker.Connection(connFD)
	if err != nil {
		return err
	}
	node, err := worker.Connection(turnFD)
	if err != nil {
		return err
	}
	var pages [2][]byte
	for i, fd := range [...]int{pageFD, cardFD} {
		if pages[i], err = unix.Mmap(fd, 0, between.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			return fmt.Errorf("memory: %w", err)
		}
		_ = unix.Close(fd) // it is mapped
	}
	secret, err := between.ReadSecret(node)
	if err != nil {
		return err
	}
	gone := func() { os.Exit(0) }
	turn, memory, card := worker.NewTurn(node, gone), between.NewMemory(pages[0], n[2]), between.NewMemory(pages[1], n[3])
	if args[0] == "serve-cuda" {
		return cuda.Run(conn, secret, args[1], args[2], memory, card, turn, gone)
	}
	return worker.Run(conn, secret, n[0], n[1], memory, card, turn, args[0] == "receive")
}
