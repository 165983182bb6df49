package kill_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// runKey names one run of one replica.
type runKey struct {
	job                    string
	task, replica, attempt int32
}

func (k runKey) String() string {
	return fmt.Sprintf("%s task %d replica %d attempt %d", k.job, k.task, k.replica, k.attempt)
}

// proofs is a server that runs tell that they run. It lives in the test, which
// nobody kills, so what it counted is what was executed.
type proofs struct {
	command string           // what a run executes to tell, for a shell
	first   func(job string) // called at each proof; set before the first job

	mu    sync.Mutex // guards the fields below
	count map[runKey]int
	at    map[runKey]time.Time     // when it told first
	jobs  map[string]chan struct{} // closed when a run of the job has told
}

func newProofs(t *testing.T) *proofs { return newProofsAt(t, "127.0.0.1") }

// newProofsAt has runs tell at an address of this machine.
func newProofsAt(t *testing.T, address string) *proofs {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("SKIPPED: there is no bash, with which the runs connect to the test")
	}
	ln, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proofs{count: map[runKey]int{}, at: map[runKey]time.Time{}, jobs: map[string]chan struct{}{}}
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	p.command = fmt.Sprintf(`%s -c 'exec 3<>/dev/tcp/%s/%s && echo "$YUNHE_JOB_ID $YUNHE_TASK_INDEX $YUNHE_REPLICA_INDEX $YUNHE_ATTEMPT" >&3 && read -r answer <&3'`, bash, address, port)
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return // closed below
			}
			conns.Go(func() { p.serve(t, conn) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close() // ends the loop above
		conns.Wait()
	})
	return p
}

func (p *proofs) serve(t *testing.T, conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute)) // a TCP connection has deadlines
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return // stopped while it connected: not a proof, and its run says so
	}
	var k runKey
	if _, err := fmt.Sscan(line, &k.job, &k.task, &k.replica, &k.attempt); err != nil {
		t.Errorf("a run says %q, want job, task, replica and attempt", line)
		return
	}
	p.mu.Lock()
	if p.count[k]++; p.count[k] == 1 {
		p.at[k] = time.Now()
	}
	told := p.job(k.job)
	select {
	case <-told:
	default:
		close(told)
	}
	p.mu.Unlock()
	p.first(k.job)
	_, _ = fmt.Fprintln(conn, "ok") // the run may be gone
}

// job returns the channel of a job; p.mu is held.
func (p *proofs) job(id string) chan struct{} {
	c := p.jobs[id]
	if c == nil {
		c = make(chan struct{})
		p.jobs[id] = c
	}
	return c
}

// await waits until a run of the job has told.
func (p *proofs) await(ctx context.Context, job string) error {
	p.mu.Lock()
	told := p.job(job)
	p.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-told:
		return nil
	}
}

// all returns how often each run told.
func (p *proofs) all() map[runKey]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.count)
}

// when returns when a run told first; the zero time: it did not.
func (p *proofs) when(k runKey) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at[k]
}
