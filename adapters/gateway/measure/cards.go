package measure

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	adapterv1 "yunhe.dev/yunhe/gen/yunhe/adapter/v1"
)

// Cards of NVIDIA and Huawei tell their use to their vendor's library only,
// and it to the vendor's program. The programs take up to a second, or hang
// with the driver, so they are asked beside the heartbeats.
var programs = []struct {
	name string
	args []string
	read func(text string) []*adapterv1.AcceleratorUse
}{
	{"nvidia-smi", []string{"--query-gpu=index,utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits"}, readNVIDIA},
	{"npu-smi", []string{"info"}, readAscend},
}

// Where the programs are: what starts a gateway may leave PATH short.
var places = []string{"usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "opt/bin"}

const (
	// askEvery is how often the programs are asked: figures of nodes are stored
	// no more often.
	askEvery = 15 * time.Second
	// askFor is how long a program may take.
	askFor = 10 * time.Second
	// askedFor is how long its answer is true.
	askedFor = 3 * askEvery
)

// asked is what the programs last said.
type asked struct {
	at    time.Time
	cards []*adapterv1.AcceleratorUse
}

// program that was found.
type program struct {
	path string
	args []string
	read func(text string) []*adapterv1.AcceleratorUse
	runs atomic.Bool
}

func (s system) programs() (found []*program) {
	for _, p := range programs {
		for _, dir := range places {
			if path, err := exec.LookPath(filepath.Join(s.root, dir, p.name)); err == nil {
				found = append(found, &program{path: path, args: p.args, read: p.read})
				break
			}
		}
	}
	return found
}

// Watch asks the programs of vendors again and again until ctx ends. Without
// it their cards are absent from what [Meter.Read] returns.
func (m *Meter) Watch(ctx context.Context, failed func(error)) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		if err := m.Ask(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Ask asks the programs of vendors once. Cards of one that fails are absent.
func (m *Meter) Ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	var errs []error
	var cards []*adapterv1.AcceleratorUse
	for _, p := range m.programs {
		text, err := p.ask(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("ask %s for the use of cards: %w", p.path, err))
			continue
		}
		first := int32(0)
		if len(cards) > 0 {
			first = cards[len(cards)-1].Index + 1
		}
		for _, c := range p.read(text) {
			c.Index += first
			cards = append(cards, c)
		}
	}
	m.asked.Store(&asked{time.Now(), cards})
	return errors.Join(errs...)
}

// ask runs the program. One that does not even end when killed, as happens
// when its driver hangs, is left alone and not started again until it has.
func (p *program) ask(ctx context.Context) (string, error) {
	if !p.runs.CompareAndSwap(false, true) {
		return "", errors.New("it has not ended since it was last asked")
	}
	type answer struct {
		text []byte
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		cmd := exec.CommandContext(ctx, p.path, p.args...)
		cmd.Env = append(cmd.Environ(), "LC_ALL=C")
		cmd.WaitDelay = time.Second // for what it started and left
		text, err := cmd.Output()
		p.runs.Store(false)
		done <- answer{text, err}
	}()
	select {
	case a := <-done:
		return string(a.text), a.err
	case <-ctx.Done():
		return "", fmt.Errorf("no answer: %w", ctx.Err())
	}
}

// readNVIDIA reads index, percent busy, and MiB of memory used and in all.
// What a card does not tell, as one cut into instances, is in brackets.
func readNVIDIA(text string) (cards []*adapterv1.AcceleratorUse) {
	for line := range strings.Lines(text) {
		f := strings.Split(line, ",")
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		if len(f) != 4 {
			continue
		}
		if v, ok := numbers(f); ok && v[0] < 1<<16 {
			cards = add(cards, int32(v[0]), v[1], v[2], v[3])
		}
	}
	return cards
}

// ascendChip is the second line of a chip in the table of npu-smi: its number,
// in some releases followed by that of the device; where it is on the bus; and
// percent busy, MiB of memory, and of high-bandwidth memory where it has such.
var ascendChip = regexp.MustCompile(`^\|\s*\d+(?:\s+\d+)?\s*\|\s*[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\s*\|\s*(\S+)\s+(\d+)\s*/\s*(\d+)(?:\s+(\d+)\s*/\s*(\d+))?\s*\|`)

func readAscend(text string) (cards []*adapterv1.AcceleratorUse) {
	index := int32(-1)
	for line := range strings.Lines(text) {
		f := ascendChip.FindStringSubmatch(strings.TrimSpace(line))
		if f == nil {
			continue
		}
		index++
		memory := f[2:4]
		if f[5] != "" && f[5] != "0" {
			memory = f[4:6]
		}
		if v, ok := numbers([]string{f[1], memory[0], memory[1]}); ok {
			cards = add(cards, index, v[0], v[1], v[2])
		}
	}
	return cards
}

// add adds a card, unless what it says cannot be.
func add(cards []*adapterv1.AcceleratorUse, index int32, percent, used, total int64) []*adapterv1.AcceleratorUse {
	if percent > 100 || used > total || total > 1<<40 {
		return cards
	}
	return append(cards, &adapterv1.AcceleratorUse{Index: index, BusyPermille: percent * 10, MemoryBusyBytes: used << 20, MemoryTotalBytes: total << 20})
}
