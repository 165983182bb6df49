package enginetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// SlurmConfig says what cluster to start. The zero value is two nodes of eight
// CPUs and 32,000 MB without accelerators.
type SlurmConfig struct {
	Nodes       int // how many slurmd; 2 if zero
	CPUs        int // that each node declares, whatever the machine has; 8 if zero
	MemoryMB    int // that each node declares; 32000 if zero
	GPUs        int // that each node declares, of type h20: device files without a device
	Conf        string
	MaxJobCount int  // 0: Slurm's default, 10,000
	Accounting  bool // with slurmdbd, its database, and use of tasks measured every second
	Cgroups     bool // jobs are kept to their memory by control groups, version 1; one such cluster at a time on a machine
}

// Slurm is a running cluster: munged, slurmctld, slurmd for each node and
// slurmrestd. The partitions are "main" (the default) and "high", whose jobs
// preempt those of "main" by requeue.
//
// The daemons that start jobs run in a process namespace of their own, so that
// no job survives Close.
type Slurm struct {
	// Conf is the path of slurm.conf, for SLURM_CONF.
	Conf string
	// Work is a directory that every user may write to, for job output.
	Work string
	// RESTURL is the base of slurmrestd, for example RESTURL +
	// "/slurm/v0.0.38/jobs". It wants a user and a Token.
	RESTURL string
	// RESTSocket is the path of a socket on which slurmrestd answers as well.
	RESTSocket string
	// RESTVersions are those of the interface that StartREST has slurmrestd
	// speak: v0.0.38 alone at first.
	RESTVersions []string

	dir        string
	bin        slurmPrograms
	hold       *os.File // the write end of init's standard input
	init       *process
	controller *process
	rest       *process
	nodes      map[string]*process // slurmd by node
	others     []*process
	accounting accounting
	cgroups    []string // what slurmd makes
}

// cgroupMount is where control groups of version 1 are.
const cgroupMount = "/sys/fs/cgroup"

type slurmPrograms struct{ munged, slurmctld, slurmd, slurmrestd, nsenter, bash, sinfo string }

// slurmREST is the version of the REST interface that Slurm 22.05 and 23.02
// both speak.
const slurmREST = "v0.0.38"

// StartSlurm starts a cluster and waits until all its nodes are idle. It needs
// root, because slurmd starts jobs as other users. The caller must Close it.
func StartSlurm(ctx context.Context, cfg SlurmConfig) (*Slurm, error) {
	bin, err := findSlurm()
	if err != nil {
		return nil, err
	}
	for value, standard := range map[*int]int{&cfg.Nodes: 2, &cfg.CPUs: 8, &cfg.MemoryMB: 32000} {
		if *value == 0 {
			*value = standard
		}
	}
	dir, err := newDir("slurm", nil)
	if err != nil {
		return nil, err
	}
	s := &Slurm{dir: dir, bin: bin, Conf: filepath.Join(dir, "slurm.conf"), Work: filepath.Join(dir, "work"), RESTVersions: []string{slurmREST}}
	if err := s.boot(ctx, cfg); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func findSlurm() (slurmPrograms, error) {
	var bin slurmPrograms
	if os.Geteuid() != 0 {
		return bin, &MissingError{Engine: "Slurm", Need: "slurmd must be root to start jobs as other users", Fix: "the test as root"}
	}
	for name, path := range map[string]*string{
		"munged": &bin.munged, "slurmctld": &bin.slurmctld, "slurmd": &bin.slurmd, "slurmrestd": &bin.slurmrestd,
		"nsenter": &bin.nsenter, "bash": &bin.bash, "sinfo": &bin.sinfo,
	} {
		p, ok := find(name)
		if !ok {
			return bin, &MissingError{Engine: "Slurm", Need: "no " + name + " found", Fix: fixTest}
		}
		*path = p
	}
	for _, pattern := range []string{"/usr/lib/*/slurm*/auth_jwt.so", "/usr/lib*/slurm/auth_jwt.so"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 { // the patterns are well formed
			return bin, nil
		}
	}
	return bin, &MissingError{Engine: "Slurm", Need: "no auth_jwt.so plug-in found", Fix: fixTest}
}

// boot writes the cluster's files and starts its daemons in the order they
// need each other.
func (s *Slurm) boot(ctx context.Context, cfg SlurmConfig) error {
	slurm, err := unprivileged("Slurm", "slurm")
	if err != nil {
		return err
	}
	munge, err := unprivileged("Slurm", "munge")
	if err != nil {
		return err
	}
	ports, err := freePorts(2 + cfg.Nodes)
	if err != nil {
		return err
	}
	if cfg.Accounting {
		if s.accounting.port, err = freePort(); err != nil {
			return err
		}
	}
	if err := s.layOut(cfg, ports, slurm, munge); err != nil {
		return err
	}
	// 1. Authentication and accounting.
	if err := s.startMunge(ctx, munge); err != nil {
		return err
	}
	if cfg.Accounting {
		if err := s.startAccounting(ctx, slurm); err != nil {
			return err
		}
	}
	// 2. The process namespace; what is started in it ends with it.
	if err := s.startInit(ctx); err != nil {
		return err
	}
	// 3. The controller and the nodes.
	if err := s.StartController(ctx); err != nil {
		return err
	}
	if err := s.startNodes(ctx, cfg.Nodes); err != nil {
		return err
	}
	// 4. REST.
	s.RESTURL = "http://127.0.0.1:" + strconv.Itoa(ports[1])
	s.RESTSocket = filepath.Join(s.dir, "run", "rest.sock")
	return s.StartREST(ctx)
}

// StartREST starts slurmrestd, again after it was killed, on the same port and
// socket, and waits until it answers.
func (s *Slurm) StartREST(ctx context.Context) error {
	nobody, err := unprivileged("Slurm", "nobody") // slurmrestd refuses to run as root
	if err != nil {
		return err
	}
	if err := os.Remove(s.RESTSocket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the socket of slurmrestd: %w", err)
	}
	var plugins []string
	for _, version := range s.RESTVersions {
		plugins = append(plugins, "openapi/"+version)
		if s.accounting.port != 0 {
			plugins = append(plugins, "openapi/db"+version)
		}
	}
	rest, err := start(command{
		name: "slurmrestd", path: s.bin.slurmrestd, dir: s.Work, logs: s.dir, user: nobody,
		args: []string{"-f", s.Conf, "-a", "rest_auth/jwt", "-s", strings.Join(plugins, ","), strings.TrimPrefix(s.RESTURL, "http://"), "unix:" + s.RESTSocket},
		env:  append(os.Environ(), "SLURM_CONF="+s.Conf, "SLURM_JWT=daemon"),
	})
	if err != nil {
		return err
	}
	s.rest = rest
	return rest.ready(ctx, func(ctx context.Context) error {
		return httpGet(ctx, s.RESTURL+"/slurm/"+s.RESTVersions[0]+"/ping", http.StatusUnauthorized)
	})
}

// KillREST ends slurmrestd as a crash would. Jobs do not notice.
func (s *Slurm) KillREST() error { return s.rest.kill() }

// layOut makes the directories, keys, device files and configuration.
func (s *Slurm) layOut(cfg SlurmConfig, ports []int, slurm, munge *syscall.Credential) error {
	if err := os.Chmod(s.dir, 0o755); err != nil {
		return fmt.Errorf("open the Slurm directory: %w", err)
	}
	for _, d := range []struct {
		name string
		mode os.FileMode
		user *syscall.Credential
	}{
		{"munge", 0o755, munge},
		{"state", 0o700, slurm},
		{"run", 0o777 | os.ModeSticky, slurm}, // slurmrestd's socket is nobody's
		{"spool", 0o755, nil},
		{"dev", 0o755, nil},
		{"work", 0o777 | os.ModeSticky, nil},
	} {
		path := filepath.Join(s.dir, d.name)
		if err := errors.Join(os.Mkdir(path, 0o755), os.Chmod(path, d.mode)); err != nil {
			return fmt.Errorf("make Slurm directory %s: %w", d.name, err)
		}
		if d.user != nil {
			if err := os.Chown(path, int(d.user.Uid), int(d.user.Gid)); err != nil {
				return fmt.Errorf("give Slurm directory %s away: %w", d.name, err)
			}
		}
	}
	for path, user := range map[string]*syscall.Credential{s.mungeKey(): munge, s.jwtKey(): slurm} {
		key := make([]byte, 128)
		_, err := rand.Read(key)
		if err := errors.Join(err, os.WriteFile(path, key, 0o600), os.Chown(path, int(user.Uid), int(user.Gid))); err != nil {
			return fmt.Errorf("make Slurm key: %w", err)
		}
	}
	conf, gres, err := s.configuration(cfg, ports)
	if err != nil {
		return err
	}
	for path, text := range map[string]string{s.Conf: conf, filepath.Join(s.dir, "gres.conf"): gres} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write Slurm configuration: %w", err)
		}
	}
	return nil
}

func (s *Slurm) mungeSocket() string { return filepath.Join(s.dir, "munge", "munge.sock") }
func (s *Slurm) mungeKey() string    { return filepath.Join(s.dir, "munge", "munge.key") }
func (s *Slurm) jwtKey() string      { return filepath.Join(s.dir, "state", "jwt_hs256.key") }

// configuration returns the text of slurm.conf and gres.conf and makes the
// device files that the latter names. slurmctld takes ports[0], the nodes
// ports[2] and up.
func (s *Slurm) configuration(cfg SlurmConfig, ports []int) (conf, gres string, err error) {
	host, err := hostName()
	if err != nil {
		return "", "", err
	}
	var c, g strings.Builder
	track, task := "proctrack/linuxproc", "task/none"
	if cfg.Cgroups {
		track, task = "proctrack/cgroup", "task/cgroup"
		text := "CgroupPlugin=cgroup/v1\nCgroupMountpoint=" + cgroupMount + "\nConstrainRAMSpace=yes\n"
		if err := os.WriteFile(filepath.Join(s.dir, "cgroup.conf"), []byte(text), 0o644); err != nil {
			return "", "", fmt.Errorf("write Slurm configuration: %w", err)
		}
		for i := range cfg.Nodes {
			for _, controller := range []string{"freezer", "memory"} {
				s.cgroups = append(s.cgroups, filepath.Join(cgroupMount, controller, "slurm_n"+strconv.Itoa(i+1)))
			}
		}
	}
	// NoInAddrAny binds slurmd, NoCtldInAddrAny slurmctld, to the address of
	// the node instead of all of the machine's. config_overrides lets a node
	// declare more than the machine has.
	fmt.Fprintf(&c, `ClusterName=enginetest
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[2]d
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=%[3]s
CredType=cred/munge
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=%[4]s
StateSaveLocation=%[5]s/state
SlurmdSpoolDir=%[5]s/spool/%%n
SlurmctldPidFile=%[5]s/run/slurmctld.pid
SlurmdPidFile=%[5]s/run/slurmd-%%n.pid
ProctrackType=%[6]s
TaskPlugin=%[7]s
JobAcctGatherType=jobacct_gather/linux
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
PriorityType=priority/multifactor
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldTimeout=30
SlurmdTimeout=30
KillWait=5
`, host, ports[0], s.mungeSocket(), s.jwtKey(), s.dir, track, task)
	if cfg.Accounting {
		c.WriteString(s.accountingConfiguration())
	} else {
		c.WriteString("AccountingStorageType=accounting_storage/none\n")
	}
	if cfg.MaxJobCount > 0 {
		fmt.Fprintf(&c, "MaxJobCount=%d\n", cfg.MaxJobCount)
	}
	declared := ""
	if cfg.GPUs > 0 {
		c.WriteString("GresTypes=gpu\n")
		declared = fmt.Sprintf(" Gres=gpu:h20:%d", cfg.GPUs)
	}
	c.WriteString(cfg.Conf)
	for i := range cfg.Nodes {
		node := "n" + strconv.Itoa(i+1)
		fmt.Fprintf(&c, "\nNodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=%d RealMemory=%d%s State=UNKNOWN",
			node, host, ports[2+i], cfg.CPUs, cfg.MemoryMB, declared)
		if cfg.GPUs > 0 {
			files, err := s.deviceFiles(node, cfg.GPUs)
			if err != nil {
				return "", "", err
			}
			fmt.Fprintf(&g, "NodeName=%s Name=gpu Type=h20 File=%s Flags=nvidia_gpu_env\n", node, files)
		}
	}
	fmt.Fprint(&c, "\nPartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1",
		"\nPartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10\n")
	return c.String(), g.String(), nil
}

// deviceFiles makes n character devices for a node's GPUs; Slurm accepts no
// other kind of file. It returns them in Slurm's notation.
func (s *Slurm) deviceFiles(node string, n int) (string, error) {
	dir := filepath.Join(s.dir, "dev", node)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("make devices of node %s: %w", node, err)
	}
	const nvidia = 195 // major number; no driver answers it on a machine without GPUs
	for i := range n {
		if err := syscall.Mknod(filepath.Join(dir, "nvidia"+strconv.Itoa(i)), syscall.S_IFCHR|0o666, nvidia<<8|i); err != nil {
			return "", fmt.Errorf("make device %d of node %s: %w", i, node, err)
		}
	}
	return fmt.Sprintf("%s/nvidia[0-%d]", dir, n-1), nil
}

func (s *Slurm) startMunge(ctx context.Context, user *syscall.Credential) error {
	dir := filepath.Join(s.dir, "munge")
	munged, err := start(command{
		name: "munged", path: s.bin.munged, dir: dir, logs: s.dir, user: user,
		args: []string{
			"--foreground", "--force", "--socket=" + s.mungeSocket(), "--key-file=" + s.mungeKey(),
			"--pid-file=" + filepath.Join(dir, "munged.pid"), "--seed-file=" + filepath.Join(dir, "munged.seed"),
		},
	})
	if err != nil {
		return err
	}
	s.others = append(s.others, munged)
	return munged.ready(ctx, func(context.Context) error {
		_, err := os.Stat(s.mungeSocket())
		return err
	})
}

// startInit starts the first process of a new process namespace with its own
// /proc. It waits for nothing but the end of its input; bash, unlike sleep,
// meanwhile collects the children that others leave behind.
func (s *Slurm) startInit(ctx context.Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe to the Slurm namespace: %w", err)
	}
	s.hold = w
	defer r.Close() // the child has its own copy
	flag := filepath.Join(s.dir, "run", "init")
	s.init, err = start(command{
		name: "init", path: s.bin.bash, dir: s.dir, stdin: r, clone: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		args: []string{"-c", `mount --make-rprivate / && mount -t proc proc /proc && : >"$1" && read -r _`, "init", flag},
	})
	if errors.Is(err, syscall.EPERM) {
		return &MissingError{Engine: "Slurm", Need: "a process namespace is not permitted", Fix: "the test with CAP_SYS_ADMIN"}
	}
	if err != nil {
		return err
	}
	return s.init.ready(ctx, func(context.Context) error {
		_, err := os.Stat(flag)
		return err
	})
}

// inside starts a daemon in the cluster's process namespace.
func (s *Slurm) inside(name, path string, args ...string) (*process, error) {
	p, err := start(command{
		name: name, path: s.bin.nsenter, dir: s.dir, env: append(os.Environ(), "SLURM_CONF="+s.Conf),
		args: append([]string{"--target", strconv.Itoa(s.init.cmd.Process.Pid), "--pid", "--mount", "--root", "--wd=" + s.dir, "--", path}, args...),
	})
	return p, err
}

// StartController starts slurmctld, again after it was stopped or killed:
// it recovers the jobs it had saved. StartController waits until slurmctld answers.
func (s *Slurm) StartController(ctx context.Context) error {
	p, err := s.inside("slurmctld", s.bin.slurmctld, "-D", "-i", "-f", s.Conf)
	if err != nil {
		return err
	}
	s.controller = p
	return p.ready(ctx, func(ctx context.Context) error {
		_, err := s.Run(ctx, "", "scontrol", "ping")
		return err
	})
}

// StopController ends slurmctld in order: it saves its state. Jobs keep
// running.
func (s *Slurm) StopController() error {
	pid, err := s.controllerPID()
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop slurmctld: %w", err)
	}
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-s.controller.done:
		return nil
	case <-grace.C:
		return errors.Join(fmt.Errorf("slurmctld did not end within %s of SIGTERM and was killed", stopGrace), s.controller.kill())
	}
}

// KillController ends slurmctld as a crash would. Jobs keep running, but Slurm
// saves its list of jobs at most every few seconds: a job that was accepted
// just before is lost.
func (s *Slurm) KillController() error { return s.controller.kill() }

// controllerPID is the process that nsenter waits for.
func (s *Slurm) controllerPID() (int, error) {
	wrapper := s.controller.cmd.Process.Pid
	b, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", wrapper))
	if err != nil {
		return 0, fmt.Errorf("find slurmctld: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("find slurmctld: children of %d are %q", wrapper, b)
	}
	return pid, nil
}

// startNodes starts a slurmd for each node and waits until all are idle.
func (s *Slurm) startNodes(ctx context.Context, count int) error {
	s.nodes = make(map[string]*process)
	for i := range count {
		if err := s.startNode("n" + strconv.Itoa(i+1)); err != nil {
			return err
		}
	}
	for i := range count {
		if err := s.nodeIdle(ctx, "n"+strconv.Itoa(i+1)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Slurm) startNode(name string) error {
	p, err := s.inside("slurmd-"+name, s.bin.slurmd, "-D", "-c", "-N", name, "-f", s.Conf)
	if err == nil {
		s.nodes[name] = p
	}
	return err
}

func (s *Slurm) nodeIdle(ctx context.Context, name string) error {
	return s.nodes[name].ready(ctx, func(ctx context.Context) error {
		state, err := s.Run(ctx, "", s.bin.sinfo, "--noheader", "--nodes="+name, "--partition=main", "--format=%T")
		if err == nil && state != "idle\n" {
			err = fmt.Errorf("the node is %q", state)
		}
		return err
	})
}

// KillNode ends the slurmd of a node, for example "n1", as a crash would; its
// jobs go on until Slurm has noticed (SlurmdTimeout, 30 s here).
func (s *Slurm) KillNode(name string) error { return s.nodes[name].kill() }

// StartNode starts it again and waits until the node is idle.
func (s *Slurm) StartNode(ctx context.Context, name string) error {
	if err := s.startNode(name); err != nil {
		return err
	}
	return s.nodeIdle(ctx, name)
}

// Env is this process's environment with SLURM_CONF set, for the commands of
// Slurm.
func (s *Slurm) Env() []string { return append(os.Environ(), "SLURM_CONF="+s.Conf) }

// Run runs a command of Slurm as root in the directory Work and returns its
// standard output. An error ends with its standard error.
func (s *Slurm) Run(ctx context.Context, stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = s.Work, s.Env(), strings.NewReader(stdin)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run %s: %w: %s%s", filepath.Base(name), err, out.String(), strings.TrimSpace(problem.String()))
	}
	return out.String(), nil
}

// Token returns a token for slurmrestd that is valid for lifetime. It goes
// into X-SLURM-USER-TOKEN, and the user, who must exist on this machine, into
// X-SLURM-USER-NAME.
func (s *Slurm) Token(ctx context.Context, user string, lifetime time.Duration) (string, error) {
	out, err := s.Run(ctx, "", "scontrol", "token", "username="+user, fmt.Sprintf("lifespan=%d", int(lifetime.Seconds())))
	if err != nil {
		return "", err
	}
	token, ok := strings.CutPrefix(strings.TrimSpace(out), "SLURM_JWT=")
	if !ok {
		return "", fmt.Errorf("scontrol token printed %q, want SLURM_JWT=TOKEN", out)
	}
	return token, nil
}

// Close stops the cluster with all its jobs and removes its files. Safe to
// call again.
func (s *Slurm) Close() error {
	var err error
	// The namespace ends with its first process, and with it all daemons and
	// jobs inside: their state is thrown away, so nothing is gained by asking.
	if s.init != nil {
		err = s.init.kill()
	}
	if s.hold != nil {
		err = errors.Join(err, s.hold.Close())
		s.hold = nil
	}
	if s.controller != nil {
		<-s.controller.done
	}
	for _, slurmd := range s.nodes {
		<-slurmd.done // it was in the namespace
	}
	if s.rest != nil {
		err = errors.Join(err, s.rest.terminate())
	}
	err = errors.Join(err, s.closeAccounting())
	for i := len(s.others) - 1; i >= 0; i-- {
		err = errors.Join(err, s.others[i].terminate())
	}
	for _, group := range s.cgroups { // slurmd leaves them
		var all []string
		_ = filepath.WalkDir(group, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				all = append(all, path)
			}
			return nil
		})
		for _, path := range slices.Backward(all) { // what is inside first
			err = errors.Join(err, os.Remove(path))
		}
	}
	s.cgroups = nil
	return errors.Join(err, removeDir(s.dir))
}

// SlurmCluster starts a Slurm cluster for a test.
func SlurmCluster(tb testing.TB, cfg SlurmConfig) *Slurm {
	tb.Helper()
	ctx, cancel := testContext(tb)
	defer cancel()
	s, err := StartSlurm(ctx, cfg)
	check(tb, err)
	closeAtEnd(tb, s)
	return s
}
