//go:build linux

package pool

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"yunhe.dev/yunhe/internal/pool/between"
)

// crowd are workers on a card of 100 bytes, that do as they are told.
type crowd struct {
	card    *card
	holders []*holder
	said    []string
	log     bytes.Buffer
}

// crowdOf has a worker for each number, that holds so much; the first put it there first.
func crowdOf(t *testing.T, held ...uint64) *crowd {
	w := &crowd{}
	c, err := newCard(100, newArbiter(), slog.New(slog.NewTextHandler(&w.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	w.card = c
	for i, n := range held {
		h := &holder{task: fmt.Sprint("t", i)}
		c.add(h)
		c.may(h, func(what byte, d time.Duration) { w.said = append(w.said, fmt.Sprintf("%c%d %d", what, i, d)) }, func() { w.said = append(w.said, fmt.Sprint("kill", i)) })
		if !between.NewMemory(c.mapped, h.slot).Take(n) {
			t.Fatalf("%d bytes do not fit", n)
		}
		c.in(h, 0)
		w.holders = append(w.holders, h)
		time.Sleep(time.Second)
	}
	return w
}

// off is a worker taking its memory off.
func (w *crowd) off(i int) {
	w.card.memory.Reap(w.holders[i].slot)
	w.card.out(w.holders[i])
}

func (w *crowd) heard(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	w.card.mu.Lock() // under which it is said
	defer w.card.mu.Unlock()
	if got := strings.Join(w.said, ", "); got != strings.Join(want, ", ") {
		t.Fatalf("said %q, want %q", got, want)
	}
	w.said = nil
}

func TestCard(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(t *testing.T){
		"room that is there is given at once": func(t *testing.T) {
			w := crowdOf(t, 40, 0)
			w.card.want(w.holders[1], 60)
			w.heard(t, "K1 1")
		},
		"who was first to put it there is asked first, and no more than needed": func(t *testing.T) {
			w := crowdOf(t, 30, 30, 40, 0)
			w.card.want(w.holders[3], 50)
			w.heard(t, "E0 0", "E1 0")
			w.off(1)
			w.heard(t)
			w.off(0)
			w.heard(t, "K3 1")
			if _, swaps := w.card.usage("t0"); swaps != 1 {
				t.Errorf("%d swaps", swaps)
			}
		},
		"requests are granted one after the other": func(t *testing.T) {
			w := crowdOf(t, 90, 0, 0)
			w.card.want(w.holders[1], 50)
			w.card.want(w.holders[2], 50)
			w.heard(t, "E0 0")
			w.off(0)
			w.heard(t, "K1 1", "K2 1")
		},
		"what nobody can give is refused": func(t *testing.T) {
			w := crowdOf(t, 60, 40)
			w.card.want(w.holders[0], 50) // beside its own 60
			w.heard(t, "E1 0")
			w.off(1)
			w.heard(t, "K0 0")
		},
		"who took the room meanwhile is asked, too": func(t *testing.T) {
			w := crowdOf(t, 90, 0, 0)
			w.card.want(w.holders[1], 50)
			w.heard(t, "E0 0")
			between.NewMemory(w.card.mapped, w.holders[2].slot).Take(10)
			w.card.memory.Reap(w.holders[0].slot)
			between.NewMemory(w.card.mapped, w.holders[2].slot).Take(60)
			w.card.out(w.holders[0])
			w.heard(t, "E2 0")
			w.off(2)
			w.heard(t, "K1 1")
		},
		"who does not give is ended": func(t *testing.T) {
			w := crowdOf(t, 90, 0)
			w.card.want(w.holders[1], 50)
			w.heard(t, "E0 0")
			time.Sleep(surrender - time.Second)
			w.heard(t)
			time.Sleep(time.Second)
			w.heard(t, "kill0")
			w.card.gone(w.holders[0], false)
			w.heard(t, "K1 1")
			if !strings.Contains(w.log.String(), "did not give back memory") {
				t.Errorf("the log has %q", w.log.String())
			}
			w.card.gone(w.holders[0], true)
		},
		"who wants and ends is forgotten": func(t *testing.T) {
			w := crowdOf(t, 90, 0, 0)
			w.card.want(w.holders[1], 50)
			w.card.want(w.holders[2], 95)
			w.heard(t, "E0 0")
			w.card.gone(w.holders[1], false)
			w.off(0)
			w.heard(t, "K2 1")
		},
		"beside each other, who put it there keeps it for a while": func(t *testing.T) {
			w := crowdOf(t, 0, 90)
			w.card.turns.concurrent.Store(true)
			w.card.want(w.holders[1], 5)
			w.heard(t, "K1 1")
			time.Sleep(100 * time.Millisecond)
			w.card.in(w.holders[1], time.Hour) // it is not believed more than it had
			w.card.want(w.holders[0], 50)
			w.heard(t)
			time.Sleep(between.SwapTurn*100*time.Millisecond - time.Millisecond)
			w.heard(t)
			time.Sleep(time.Millisecond)
			w.heard(t, "E1 0")
		},
		"who was given room and never says that it has it gives it back": func(t *testing.T) {
			w := crowdOf(t, 0, 0)
			w.card.want(w.holders[0], 90)
			w.heard(t, "K0 1")
			between.NewMemory(w.card.mapped, w.holders[0].slot).Take(90)
			w.card.want(w.holders[1], 50)
			time.Sleep(surrender - time.Second)
			w.heard(t)
			time.Sleep(time.Second)
			w.heard(t, "E0 0")
			w.off(0)
			w.heard(t, "K1 1")
		},
		"who asks all the time is told once": func(t *testing.T) {
			w := crowdOf(t, 90, 0)
			for range 1000 {
				w.card.want(w.holders[1], 50)
			}
			w.heard(t, "E0 0")
			w.off(0)
			w.heard(t, "K1 1")
		},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); synctest.Test(t, do) })
	}
}
