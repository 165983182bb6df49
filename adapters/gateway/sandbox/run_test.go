package sandbox_test

import (
	"testing"
)

func TestStart(t *testing.T) {
	s := open(t, config(t))
	res, out := run(t, s, small("hello", "echo hello; exit 3"))
	expect(t, res, "exit", 3)
	if out != "hello\n" {
		t.Errorf("output %q, want %q", out, "hello\n")
	}
}
