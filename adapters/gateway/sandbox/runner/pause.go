package runner

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// NotePause writes down that the attempt in dir is paused or goes on from now
// on. What is written is not synced: after a power failure nothing runs.
func NotePause(dir string, on bool, now time.Duration) error {
	f, err := os.OpenFile(filepath.Join(dir, PauseFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	word := "go"
	if on {
		word = "pause"
	}
	_, err = fmt.Fprintf(f, "%s %d\n", word, now.Microseconds()) // one write: lines are whole
	return errors.Join(err, f.Close())
}

// ReadPauses returns how long the attempt in dir was paused up to now, and
// whether it is paused. A line that says what was said before, or that cannot
// be read, counts for nothing.
func ReadPauses(dir string, now time.Duration) (total time.Duration, on bool, err error) {
	f, err := os.Open(filepath.Join(dir, PauseFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	var since time.Duration
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		word, text, _ := strings.Cut(lines.Text(), " ")
		var us int64
		if n, _ := fmt.Sscan(text, &us); n != 1 {
			continue
		}
		at := time.Duration(us) * time.Microsecond
		switch {
		case word == "pause" && !on:
			on, since = true, at
		case word == "go" && on:
			on, total = false, total+max(0, at-since)
		}
	}
	if on {
		total += max(0, now-since)
	}
	return total, on, lines.Err()
}
