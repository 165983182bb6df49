package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"
)

// ledger remembers attempts the platform has recorded as ended, so that a
// message about one that is late or repeated does not run it again. It is a
// file of "attempt unix-seconds" lines; what is older than ledgerKeep is
// dropped when the gateway starts.
type ledger struct {
	mu   sync.Mutex // guards the fields below
	f    *os.File
	seen map[string]bool
}

// ledgerKeep is far longer than any message can wait.
const ledgerKeep = 24 * time.Hour

func openLedger(path string) (*ledger, error) {
	l := &ledger{seen: map[string]bool{}}
	var keep strings.Builder
	if f, err := os.Open(path); err == nil {
		sc := bufio.NewScanner(f)
		limit := time.Now().Add(-ledgerKeep).Unix()
		for sc.Scan() {
			var id string
			var at int64
			// A line cut short by a crash was never acknowledged as written.
			if n, _ := fmt.Sscan(sc.Text(), &id, &at); n == 2 && at >= limit {
				l.seen[id] = true
				fmt.Fprintf(&keep, "%s %d\n", id, at)
			}
		}
		if err := errors.Join(sc.Err(), f.Close()); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if err := os.WriteFile(path+".new", []byte(keep.String()), 0o600); err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	var err error
	if l.f, err = os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return l, l.f.Sync()
}

// has reports whether the attempt was recorded.
func (l *ledger) has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[id]
}

// add remembers attempts durably.
func (l *ledger) add(ids []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	now := time.Now().Unix()
	for _, id := range ids {
		fmt.Fprintf(&b, "%s %d\n", id, now)
	}
	if _, err := l.f.WriteString(b.String()); err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	if err := l.f.Sync(); err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	for _, id := range ids {
		l.seen[id] = true
	}
	return nil
}

func (l *ledger) close() {
	_ = l.f.Close() // every add was synced
}
