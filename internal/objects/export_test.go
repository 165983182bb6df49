package objects

import "testing"

// RealS3 lets black-box tests use the server that the others use.
func RealS3(t testing.TB) Config { return realS3(t) }
