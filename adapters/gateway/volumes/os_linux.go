package volumes

import (
	"io/fs"
	"syscall"
)

// allocated is what a file takes on the disk; one with several names counts as
// often as it is named.
func allocated(st fs.FileInfo) int64 {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return st.Size()
}
