package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/pools/logs"
)

const (
	spoolFile = "logs.jsonl"
	// mostSpooled entries wait for the platform; then the oldest are dropped, and
	// the log says how many.
	mostSpooled = 5000
	// mostInMinute entries are taken in a minute, so that a node that logs without
	// end costs the platform no more; what is dropped is counted, too.
	mostInMinute = 1000
	// mostSent entries go at once.
	mostSent = 200
)

// entry of the node's log.
type entry struct {
	Sequence int64      `json:"sequence"`
	At       time.Time  `json:"at"`
	Level    slog.Level `json:"level"`
	Message  string     `json:"message"`
	Device   string     `json:"device,omitempty"`
	Slice    string     `json:"slice,omitempty"`
	Details  string     `json:"details,omitempty"`
}

// Spool keeps what a node logs until its platform has it: in memory and in a
// file of the node's folder, so that it outlives the node. It is safe for
// concurrent use.
//
// A file that cannot be written costs what a restart would lose, and no more.
type Spool struct {
	level slog.LevelVar
	path  string
	now   func() time.Time
	added chan struct{} // has a value when there is something to send

	mu      sync.Mutex // guards what follows
	file    *os.File   // nil: it cannot be written
	entries []entry
	last    int64 // sequence
	dropped int
	minute  time.Time // when the one that is counted began
	taken   int       // in it
}

// OpenSpool opens the spool in a folder.
func OpenSpool(dir string) (*Spool, error) {
	s := &Spool{path: filepath.Join(dir, spoolFile), now: time.Now, added: make(chan struct{}, 1)}
	b, unread := os.ReadFile(s.path)
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		var e entry
		if json.Unmarshal(lines.Bytes(), &e) == nil { // the last may be half written
			s.entries, s.last = append(s.entries, e), max(s.last, e.Sequence)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep what the pool node logs: %w", err)
	}
	s.rewrite()
	if unread != nil && !errors.Is(unread, fs.ErrNotExist) {
		s.add(entry{At: s.now().UTC(), Level: slog.LevelWarn, Message: "what the pool node logged before is not known", Details: unread.Error()})
	}
	if len(s.entries) > 0 {
		s.wake()
	}
	return s, nil
}

// Close closes the file; what is in it is sent by who opens it next.
func (s *Spool) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		_ = s.file.Close() // each entry is written by itself
		s.file = nil
	}
}

func (s *Spool) wake() {
	select {
	case s.added <- struct{}{}:
	default:
	}
}

// rewrite makes the file have what waits. The caller has the lock, or is alone.
func (s *Spool) rewrite() {
	if s.file != nil {
		_ = s.file.Close() // what it has is written anew
	}
	var b []byte
	for _, e := range s.entries {
		b = append(b, jsonLine(e)...)
	}
	s.file = nil
	if err := os.WriteFile(s.path+".new", b, 0o600); err != nil || os.Rename(s.path+".new", s.path) != nil {
		return
	}
	if f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_APPEND, 0o600); err == nil {
		s.file = f
	}
}

func jsonLine(e entry) []byte {
	b, _ := json.Marshal(e) // texts and numbers do
	return append(b, '\n')
}

func (s *Spool) add(e entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if now.Sub(s.minute) >= time.Minute || now.Before(s.minute) {
		s.minute, s.taken = now, 0
	}
	if s.taken++; s.taken > mostInMinute {
		s.dropped++
		return
	}
	e.Sequence = max(s.last+1, now.UnixMicro()) // grows over restarts, too
	s.last = e.Sequence
	s.entries = append(s.entries, e)
	if len(s.entries) > mostSpooled {
		n := mostSpooled / 10
		s.entries = slices.Delete(s.entries, 0, n)
		s.dropped += n
		s.rewrite()
	} else if s.file != nil {
		_, _ = s.file.Write(jsonLine(e)) // see Spool
	}
	s.wake()
}

// next returns what is to be sent, oldest first.
func (s *Spool) next() []entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.entries[:min(len(s.entries), mostSent)])
	if s.dropped > 0 && len(out) > 0 {
		out[0].Details = strings.TrimSpace(fmt.Sprintf("%s dropped_before=%d", out[0].Details, s.dropped))
	}
	return out
}

// sent forgets what the platform has, up to a sequence.
func (s *Spool) sent(upTo int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries, s.dropped = slices.DeleteFunc(s.entries, func(e entry) bool { return e.Sequence <= upTo }), 0
	s.rewrite()
	if len(s.entries) > 0 {
		s.wake()
	}
}

// Handler returns what logs to the spool, and to next what that takes.
func (s *Spool) Handler(next slog.Handler) slog.Handler { return &handler{spool: s, next: next} }

type handler struct {
	spool *Spool
	next  slog.Handler
	attrs []slog.Attr
}

func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.spool.level.Level() }

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	e := entry{At: r.Time.UTC(), Level: r.Level, Message: r.Message}
	var details []string
	put := func(a slog.Attr) bool {
		v := a.Value.Resolve().String()
		switch {
		case a.Key == "component" || v == "" || v == "<nil>":
		case a.Key == "device" || a.Key == "device_id":
			e.Device = v
		case a.Key == "slice_id":
			e.Slice = v
		default:
			if strings.ContainsAny(v, " \"\n") {
				v = strconv.Quote(v)
			}
			details = append(details, a.Key+"="+v)
		}
		return true
	}
	for _, a := range h.attrs {
		put(a)
	}
	r.Attrs(put)
	e.Details = strings.Join(details, " ")
	e.Message, e.Details = first(e.Message, logs.MostMessage), first(e.Details, logs.MostDetails) // no more is sent
	h.spool.add(e)
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.spool, h.next.WithAttrs(attrs), append(slices.Clone(h.attrs), attrs...)}
}

// WithGroup is not used by nodes: groups are of who reads the next log.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.spool, h.next.WithGroup(name), h.attrs}
}
