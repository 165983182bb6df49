package measure

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// device names the file system dir is on.
func device(dir string) string {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if unix.Stat(dir, &st) != nil || unix.Statfs(dir, &fs) != nil {
		return ""
	}
	return fmt.Sprintf("%d:%d %d %d", unix.Major(st.Dev), unix.Minor(st.Dev), fs.Type, fs.Blocks)
}
