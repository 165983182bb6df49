//go:build linux && !amd64 && !arm64

package seccomp

// Set does nothing: the filter's numbers are known for amd64 and arm64 only.
func (Rules) Set() error { return nil }
