//go:build !linux

package db

import "syscall"

// giveUpUnsent is Linux's here.
func giveUpUnsent(_, _ string, _ syscall.RawConn) error { return nil }
