package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"yunhe.dev/yunhe/cmd/yunhe/internal/sent"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/pool"
	"yunhe.dev/yunhe/internal/pools/agent"
)

// oneCard refuses a program of CUDA several cards where a worker computes for it, as how
// has it.
func oneCard(how, api string, cards int) error {
	if api != pool.CUDA || cards < 2 {
		return nil
	}
	return usagef("a program of CUDA has several cards, here %d, on their node's machine only: with %s a worker computes for it, and it finds one device", cards, how)
}

// cudaEnv is what the program of tasks needs whose devices are those of CUDA; others
// need nothing of it. On the node's machine that is a library before the driver, and
// the devices as the driver's only ones; on others, or if remote says so, the library
// that is the driver, which has one device.
func (c *cli) cudaEnv(tasks []*agent.Task, remote bool) ([]string, error) {
	if tasks[0].API != pool.CUDA {
		return nil, nil
	}
	how := "--remote"
	if !remote && far(tasks) != nil {
		remote, how = true, "a node whose Unix socket the program cannot open"
	}
	if remote {
		if err := oneCard(how, tasks[0].API, len(tasks)); err != nil {
			return nil, err
		}
	}
	folder, err := pool.LibraryFolder(c.env)
	if err != nil {
		return nil, err
	}
	if remote {
		dir, err := pool.RemoteCUDA(folder)
		if err != nil {
			return nil, err
		}
		return pool.RemoteCUDAEnvironment(dir, c.env("LD_LIBRARY_PATH"), c.env("LD_PRELOAD")), nil
	}
	library, err := pool.CUDALibrary(folder)
	if err != nil {
		return nil, err
	}
	return pool.CUDAEnvironment(library, c.env("LD_PRELOAD"), cudaCards(tasks)...), nil
}

// cudaCards are the cards of tasks of CUDA, in their order.
func cudaCards(tasks []*agent.Task) []pool.CUDACard {
	var cards []pool.CUDACard
	for _, t := range tasks {
		cards = append(cards, pool.CUDACard{UUID: t.UUID, Bus: t.Bus})
	}
	return cards
}

// inOrder has tasks of CUDA be as their machine counts the cards: the platform's order means
// nothing.
func inOrder(tasks []*agent.Task) {
	slices.SortStableFunc(tasks, func(a, b *agent.Task) int { return cmp.Compare(a.Bus, b.Bus) })
}

// far is a task whose node is not reached by a Unix socket; nil: there is none.
func far(tasks []*agent.Task) *agent.Task {
	if i := slices.IndexFunc(tasks, func(t *agent.Task) bool { return !strings.HasPrefix(t.At, "unix:") }); i >= 0 {
		return tasks[i]
	}
	return nil
}

// runWithLibrary is runOn with the client library of this program, or those for
// CUDA; see cudaEnv.
func (c *cli) runWithLibrary(ctx context.Context, tasks []*agent.Task, remote bool, args []string) error {
	env, err := c.cudaEnv(tasks, remote)
	if err != nil {
		return err
	}
	folder, err := pool.LibraryFolder(c.env)
	if err != nil {
		return err
	}
	vendors, err := pool.Library(folder)
	if err != nil {
		return err
	}
	if tasks[0].API != pool.CUDA {
		was := c.env("LD_LIBRARY_PATH")
		if path := pool.SearchPath("/", was, filepath.Join(filepath.Dir(vendors), pool.LoaderFolder)); path != was {
			env = append(env, "LD_LIBRARY_PATH="+path)
		}
	}
	return c.runOn(ctx, tasks, finds{vendors: vendors, env: env}, args)
}

// finds is how a program finds the tasks that it runs on.
type finds struct {
	vendors string     // folder by which the loader of OpenCL finds the client library
	env     []string   // what its environment has beside that
	file    *sliceFile // for programs that others start; nil: none
}

// runOn runs a program on tasks, each a device of it, and closes their clients. The
// program ends by itself, or by what it is sent (see [cli.await]): until then the
// tasks last. ctx counts until it is started.
func (c *cli) runOn(ctx context.Context, tasks []*agent.Task, by finds, args []string) error {
	var said sync.WaitGroup
	var ended atomic.Bool // what becomes of its tasks then is of no interest
	over := make(chan struct{})
	timeUp := sync.OnceFunc(func() { close(over) })
	for _, task := range tasks {
		said.Go(func() {
			why, err := task.Client.Ended()
			by.file.remove()
			if err != nil || why == "" || ended.Load() {
				return
			}
			c.note("yunhe pool: task %s: %s", task.ID, why)
			if strings.Contains(why, pool.RunTimeout) {
				timeUp()
			}
		})
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.in, c.out, c.err
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); !pool.Leads(name) {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(append(cmd.Env, "OCL_ICD_VENDORS="+by.vendors), by.env...)
	for i, t := range tasks {
		cmd.Env = append(cmd.Env, pool.Environment(i, t.API, t.At, t.ID, t.Token)...)
	}
	err := c.await(ctx, cmd, over)
	end, killed := signalOf(err)
	if killed && end == syscall.SIGKILL { // perhaps by the node, which is about to say why
		told := make(chan struct{})
		go func() { said.Wait(); close(told) }()
		select {
		case <-told:
		case <-time.After(lateReason):
		}
	}
	ended.Store(true)
	for _, t := range tasks {
		t.Client.Close()
	}
	said.Wait()
	var exit *exec.ExitError
	switch {
	case killed:
		if end != syscall.SIGINT && end != syscall.SIGPIPE { // as shells do
			c.note("yunhe pool: %s was ended: %s", args[0], end)
		}
		return exitStatus(exitSignal + int(end))
	case errors.As(err, &exit):
		return exitStatus(exit.ExitCode())
	}
	return err
}

// signalOf is the signal that ended a program.
func signalOf(err error) (s syscall.Signal, ended bool) {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0, false
	}
	status := exit.Sys().(syscall.WaitStatus)
	return status.Signal(), status.Signaled()
}

// passed are the signals that a program hears of which this process is sent: all
// that are caught and mean something to a program.
func passed() []syscall.Signal {
	all := []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT}
	for s := syscall.Signal(35); s <= 64; s++ { // those of real time, but of those that C libraries use
		all = append(all, s)
	}
	return slices.DeleteFunc(all, func(s syscall.Signal) bool { return signal.Ignored(s) }) // as of nohup: so it does, too
}

// await runs a program to its end. What a process sends to this one (kill, a
// supervisor that stops it) goes on to the program; what a terminal sends (Ctrl-C,
// Ctrl-Z, its size) went to both. A program that goes on nevertheless is awaited, and
// one whose time is over is told to end, and killed. If this process is killed, the
// program is sent SIGTERM.
func (c *cli) await(ctx context.Context, cmd *exec.Cmd, over <-chan struct{}) error {
	caught := make(chan os.Signal, 64)
	signals := passed()
	for _, s := range signals {
		signal.Notify(caught, s)
	}
	defer signal.Stop(caught)
	sent.Watch(signals...)
	// Pdeathsig is tied to the thread that starts the program.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := ctx.Err(); err != nil { // the signal came before
		return err
	}
	if err := cmd.Start(); err != nil {
		return c.notStarted(cmd.Args[0], err)
	}
	gone := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case s := <-caught:
				forward(cmd.Process, s.(syscall.Signal))
			case <-gone:
				return
			}
		}
	})
	watch.Go(func() {
		select {
		case <-gone:
			return
		case <-over:
		}
		c.note("yunhe pool: %s is ended", cmd.Args[0])
		_ = cmd.Process.Signal(syscall.SIGTERM) // or it has ended
		select {
		case <-gone:
		case <-time.After(killAfter):
			_ = cmd.Process.Kill() // as above
		}
	})
	err := cmd.Wait()
	close(gone)
	watch.Wait()
	return err
}

// forward has a program hear of a signal, unless it has it already. This process stops
// as it would if it did not catch what stops it.
func forward(program *os.Process, s syscall.Signal) {
	if sent.ByProcess(s) {
		_ = program.Signal(s) // or it has ended
	}
	if s == syscall.SIGTSTP {
		sent.Default(s)
	}
}

// notStarted says why a program was not started, and has the status that shells give.
func (c *cli) notStarted(program string, err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		c.complain("there is no program "+text.Clean(program), nil, "")
		return exitStatus(exitNoProgram)
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) { // they name the program, too
		err = inner
	}
	c.complain(text.Clean(program)+" cannot be started: "+err.Error(), nil, "")
	return exitStatus(exitNotRun)
}

// lateReason is how long after a program was killed its node may say why.
const lateReason = time.Second

// killAfter is how long a program may take to end that was asked to.
const killAfter = 10 * time.Second
