//go:build !linux

package volumes

import "io/fs"

// allocated is what a file takes on the disk.
func allocated(st fs.FileInfo) int64 { return st.Size() }
