//go:build !linux

package measure

func device(string) string { return "" }
