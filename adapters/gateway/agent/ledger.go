package agent

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// ledger remembers attempts the platform has recorded as ended, and how they
// ended, so that a message about one that is late or repeated does not run it
// again, and a platform that was restored from a backup hears of it again. It is a
// file of "attempt unix-seconds status" lines; what is older than ledgerKeep
// is dropped when the gateway starts.
type ledger struct {
	mu   sync.Mutex // guards the fields below
	f    *os.File
	size int64
	seen map[string]span
}

// span is where in the file the status of an attempt is, in base64.
type span struct {
	offset int64
	length int
}

// ledgerKeep is far longer than any message can wait.
const ledgerKeep = 24 * time.Hour

func openLedger(path string) (*ledger, error) {
	l := &ledger{seen: map[string]span{}}
	var keep strings.Builder
	if f, err := os.Open(path); err == nil {
		sc := bufio.NewScanner(f)
		limit := time.Now().Add(-ledgerKeep).Unix()
		for sc.Scan() {
			// A line cut short by a crash was never acknowledged as written.
			words := append(strings.Fields(sc.Text()), "", "")
			if at, err := strconv.ParseInt(words[1], 10, 64); err == nil && at >= limit {
				l.line(&keep, words[0], at, words[2])
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
	l.size = int64(keep.Len())
	var err error
	if l.f, err = os.OpenFile(path, os.O_APPEND|os.O_RDWR, 0o600); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return l, l.f.Sync()
}

// line adds a line to b, which goes to the end of the file, and notes it.
func (l *ledger) line(b *strings.Builder, id string, at int64, status string) {
	fmt.Fprintf(b, "%s %d ", id, at)
	l.seen[id] = span{l.size + int64(b.Len()), len(status)}
	fmt.Fprintf(b, "%s\n", status)
}

// has reports whether the attempt was recorded.
func (l *ledger) has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.seen[id]
	return ok
}

// status is how a recorded attempt ended, if that is known.
func (l *ledger) status(id string) (*adapterv1.Status, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.seen[id]
	if !ok || at.length == 0 {
		return nil, false
	}
	text := make([]byte, at.length)
	if _, err := l.f.ReadAt(text, at.offset); err != nil {
		return nil, false
	}
	st := &adapterv1.Status{}
	body, err := base64.RawStdEncoding.DecodeString(string(text))
	if err != nil || proto.Unmarshal(body, st) != nil || st.AttemptId != id {
		return nil, false
	}
	return st, true
}

// add remembers attempts durably, without their logs.
func (l *ledger) add(ended []*adapterv1.Status) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	now, fresh := time.Now().Unix(), []string{}
	for _, st := range ended {
		if _, ok := l.seen[st.AttemptId]; ok {
			continue
		}
		bare := proto.CloneOf(st)
		bare.Log, bare.LogInline = nil, false
		body, err := proto.Marshal(bare)
		if err != nil {
			return fmt.Errorf("write the ledger: %w", err)
		}
		l.line(&b, st.AttemptId, now, base64.RawStdEncoding.EncodeToString(body))
		fresh = append(fresh, st.AttemptId)
	}
	_, err := l.f.WriteString(b.String())
	if err == nil {
		err = l.f.Sync()
	}
	if err != nil {
		for _, id := range fresh {
			delete(l.seen, id)
		}
		return errors.Join(fmt.Errorf("write the ledger: %w", err), l.f.Truncate(l.size)) // half a line may be there
	}
	l.size += int64(b.Len())
	return nil
}

func (l *ledger) close() {
	_ = l.f.Close() // every add was synced
}
