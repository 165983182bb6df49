package kill_test

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/internal/enginetest"
)

// clockEnv has this program, started again, say what time it is, over and over.
const clockEnv = "YUNHE_TEST_CLOCK"

// TestJumpClock shows that the clock of a process jumps, and back, and that of
// no other does.
func TestJumpClock(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" || os.Geteuid() != 0 {
		t.Skip("SKIPPED: clocks jump on amd64, for root")
	}
	self, err := os.Executable()
	must(t, err)
	p, err := enginetest.StartProgram("clock", self, t.TempDir(), []string{clockEnv + "=1"})
	must(t, err)
	t.Cleanup(func() { must(t, p.Kill()) })
	until := func(what string, ok func(ahead time.Duration) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			lines := strings.Split(p.Tail(), "\n")
			if n, err := strconv.ParseInt(lines[max(0, len(lines)-2)], 10, 64); err == nil && ok(time.Until(time.Unix(n, 0))) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("not in a minute: %s; it says %s", what, lines[len(lines)-1])
			}
		}
	}
	right := func(ahead time.Duration) bool { return ahead.Abs() < 30*time.Minute }
	until("the clock is right", right)
	undo, err := jumpClock(p, time.Hour)
	must(t, err)
	until("the clock is ahead", func(ahead time.Duration) bool { return ahead > 30*time.Minute })
	must(t, undo())
	until("the clock is right again", right)
}

// TestClockSet: a platform on SQLite goes on though the clock of its machine is
// set an hour back, and an hour ahead: jobs run at once, at the right time, and no
// center counts as lost.
func TestClockSet(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("SKIPPED: clocks jump on amd64")
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	c := startCluster(t, ctx, layout{cpus: 1})
	began := time.Now()
	jobs := int64(0)
	work := func(what string) {
		t.Helper()
		jobs++
		j, err := c.jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{Job: &jobsv1.JobSpec{Name: what, Tasks: []*jobsv1.Task{{Name: "t", Command: "true", ImageId: "host", ResourceSpecId: spec, ReplicaNumber: 3, ScratchMib: 8}}}})
		must(t, err)
		must(t, c.await(ctx, jobs))
		j, err = c.jobs.GetJob(ctx, &jobsv1.GetJobRequest{JobId: j.JobId})
		must(t, err)
		if at := j.CreatedAt.AsTime(); j.State != jobsv1.State_STATE_SUCCEEDED || at.Before(began.Add(-time.Minute)) || at.After(began.Add(30*time.Minute)) {
			t.Errorf("with the clock %s the job of %v is %s, created at %v: %s", what, began, j.State, at, j.Message)
		}
		centers, err := c.registry.ListCenters(ctx, &registryv1.ListCentersRequest{})
		must(t, err)
		for _, x := range centers.Centers {
			if x.Status != registryv1.CenterStatus_CENTER_STATUS_AVAILABLE {
				t.Errorf("with the clock %s the center %s is %s", what, x.AiCenterId, x.Status)
			}
		}
	}
	work("right")
	for _, x := range []struct {
		what string
		by   time.Duration
	}{{"back", -time.Hour}, {"ahead", time.Hour}} {
		var undo []func() error
		for _, n := range c.nodes { // the gateways' too
			u, err := jumpClock(n.prog, x.by)
			must(t, err)
			undo = append(undo, u)
		}
		for range 3 {
			work(x.what)
		}
		for _, u := range undo {
			must(t, u())
		}
		work("right-again")
	}
	log, err := os.ReadFile(c.nodes[0].prog.Log())
	must(t, err)
	if n := strings.Count(string(log), "the clock of this machine was set"); n != 2 {
		t.Errorf("the log tells %d times that the clock was set, want twice", n)
	}
	c.stop(t)
}

// jumpClock moves the clock of one process: the function by which programs read
// it without a call of the system, which the kernel puts into each process, is
// replaced in this one by a call that adds to the result. It returns what undoes it.
func jumpClock(p *enginetest.Program, by time.Duration) (undo func() error, err error) {
	if runtime.GOARCH != "amd64" {
		return nil, errors.New("clocks jump on amd64 only")
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", p.PID()), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	at, size, err := clockFunction(p.PID(), mem)
	if err != nil {
		return nil, errors.Join(err, mem.Close())
	}
	code := []byte{
		0xb8, 0xe4, 0, 0, 0, // mov eax, 228: clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi: the clock of the day?
		0x75, 0x0d, // jne to the end
		0x48, 0xb9, 0, 0, 0, 0, 0, 0, 0, 0, // mov rcx, seconds
		0x48, 0x01, 0x0e, // add [rsi], rcx
		0xc3, // ret
	}
	binary.LittleEndian.PutUint64(code[13:], uint64(int64(by/time.Second)))
	if uint64(len(code)) > size {
		return nil, errors.Join(fmt.Errorf("the clock's function has %d bytes, %d are needed", size, len(code)), mem.Close())
	}
	was := make([]byte, len(code))
	if _, err := mem.ReadAt(was, at); err != nil {
		return nil, errors.Join(err, mem.Close())
	}
	write := func(b []byte) error {
		return outside(p, uint64(at), size, func() error {
			_, err := mem.WriteAt(b, at)
			return err
		})
	}
	if err := write(code); err != nil {
		return nil, errors.Join(err, mem.Close())
	}
	return func() error { return errors.Join(write(was), mem.Close()) }, nil
}

// clockFunction finds the function in a process.
func clockFunction(pid int, mem *os.File) (at int64, size uint64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		var from, to int64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			return 0, 0, err
		}
		image := make([]byte, to-from)
		if _, err := mem.ReadAt(image, from); err != nil {
			return 0, 0, err
		}
		f, err := elf.NewFile(bytes.NewReader(image))
		if err != nil {
			return 0, 0, err
		}
		symbols, err := f.DynamicSymbols()
		if err != nil {
			return 0, 0, err
		}
		for _, s := range symbols {
			if s.Name == "__vdso_clock_gettime" {
				return from + int64(s.Value), s.Size, nil
			}
		}
	}
	return 0, 0, errors.New("the process has no function that reads the clock")
}

// outside calls f while the process stands still and none of its threads is in
// the function.
func outside(p *enginetest.Program, at, size uint64, f func() error) error {
	for range 1000 {
		if err := p.Freeze(); err != nil {
			return err
		}
		in, err := within(p.PID(), at, size)
		if err == nil && !in {
			err = f()
		}
		if err = errors.Join(err, p.Thaw()); err != nil || !in {
			return err
		}
		<-time.After(5 * time.Millisecond) // on busy processors a thread may not go on at once
	}
	return errors.New("the process reads its clock all the time")
}

// within reports whether a thread is in the function, or runs.
func within(pid int, at, size uint64) (bool, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil {
		return false, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread has ended
		} else if err != nil {
			return false, err
		}
		words := strings.Fields(string(text))
		if len(words) < 2 {
			return true, nil // it has not stopped yet
		}
		pc, err := strconv.ParseUint(strings.TrimPrefix(words[len(words)-1], "0x"), 16, 64)
		if err != nil || pc >= at && pc < at+size {
			return true, err
		}
	}
	return false, nil
}
