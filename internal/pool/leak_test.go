//go:build linux

package pool_test

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/pool"
)

// held is what this process, which is the node, has: open files, mappings,
// goroutines and children.
func held(t *testing.T) (all [4]int) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range threads {
		children, _ := os.ReadFile("/proc/self/task/" + x.Name() + "/children") // of a thread that has ended, none
		all[3] += len(strings.Fields(string(children)))
	}
	all[0], all[1], all[2] = len(files), bytes.Count(maps, []byte("yunhe-pool")), runtime.NumGoroutine()
	return all
}

// TestStarts: of tasks that were started and ended, however, nothing is left.
// It is not parallel: what others hold would be counted. There are 1,000, or
// YUNHE_TEST_POOL_STARTS.
func TestStarts(t *testing.T) {
	n := start(t, pool.NodeConfig{})
	times := 1000
	if s := os.Getenv("YUNHE_TEST_POOL_STARTS"); s != "" {
		var err error
		if times, err = strconv.Atoi(s); err != nil || times < 1 {
			t.Fatalf("YUNHE_TEST_POOL_STARTS is %q, not a number from 1", s)
		}
	}
	round := func(i int) {
		at := []string{n.unix, n.tcp}[i%2]
		client, err := pool.Dial(t.Context(), at, "a", key)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		task, token, err := client.Run(pool.Spec{Compute: 10, Memory: 5 * mib})
		if err != nil {
			t.Fatalf("start %d: %v", i, err)
		}
		switch i % 200 {
		case 3: // its program ends first
			if got := output(t, program(t, at, task.ID, token, "add")); !strings.HasPrefix(got, "sum ") {
				t.Errorf("start %d: %q", i, got)
			}
		case 38: // the task ends first
			cmd := program(t, at, task.ID, token, "forever")
			begin(t, cmd, "forever")
			client.Close()
			_ = cmd.Wait() // its calls fail
		case 67: // the program is killed
			cmd := program(t, at, task.ID, token, "spin", "60")
			begin(t, cmd, "spinning")
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		case 80:
			if err := client.Stop(task.ID); err == nil { // it holds the task, and asks nothing more
				t.Error("a client with a task stops it")
			}
		}
	}
	settled := func(most [4]int) (now [4]int, ok bool) {
		c := dial(t, n.unix)
		defer c.Close()
		for end := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
			tasks, err := c.Tasks()
			if err != nil {
				t.Fatal(err)
			}
			d, err := c.Devices()
			if err != nil {
				t.Fatal(err)
			}
			now, ok = held(t), len(tasks) == 0 && d[0].Allotted == 0 && d[0].Compute == 0 && d[0].Resident == 0
			for i := range now {
				ok = ok && now[i] <= most[i]
			}
			if ok || time.Now().After(end) {
				return now, ok
			}
		}
	}
	for i := range 100 { // what is made once is there then
		round(i)
	}
	const most = 1 << 30
	before, _ := settled([4]int{most, most, most, 0})
	began := time.Now()
	for i := range times {
		round(i)
	}
	t.Logf("%d starts in %s", times, time.Since(began).Round(time.Second))
	if after, ok := settled(before); !ok {
		t.Errorf("files, mappings, goroutines and children were %v, and are %v after %d starts\n%s", before, after, times, n.log)
	}
}
