package main

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"go.yaml.in/yaml/v3"

	"yunhe.dev/yunhe/adapters/gateway/remote"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	"yunhe.dev/yunhe/internal/fault"
)

// tokenTTL is how long a join token made for one machine is good: longer than
// any wait for it.
const tokenTTL = 15 * time.Minute

// joining is one join or leave under way.
type joining struct {
	steps

	o      *joinOptions
	a      *api
	m      *remote.Machine
	in     *remote.Install
	facts  remote.Facts
	unlock func()

	state  remote.State
	was    *joined // how it was joined before, nil if it was not
	now    joined
	prog   program
	report machineReport
	token  string
}

func newJoining(c *cli, o *joinOptions) (*joining, error) {
	a, err := c.api()
	if err != nil {
		return nil, err
	}
	return &joining{steps: steps{c: c}, o: o, a: a, unlock: func() {}}, nil
}

func (j *joining) close() {
	j.unlock()
	if j.m != nil {
		_ = j.m.Close() // what was done is done
	}
}

// join makes the machine a center, or brings it up to date.
func (j *joining) join(ctx context.Context) error {
	for _, s := range []struct {
		name, todo string
		do         func(context.Context) (string, error)
	}{
		{"connect", "", j.connect},
		{"machine", "", j.look},
		{"folder", "log in to the machine and look at " + j.o.ssh.dir, j.open},
		{"platform", "", j.platform},
		{"program", "make room on the machine, or name another folder with --dir", j.copy},
		{"check", "", j.check},
		{"membership", "", j.membership},
		{"description", "make room on the machine", j.configure},
	} {
		if err := j.do(s.name, s.todo, func() (string, error) { return s.do(ctx) }); err != nil {
			return err
		}
	}
	k, restarted, err := j.activate(ctx)
	if err != nil {
		return err
	}
	if err := j.do("tidy", "", func() (string, error) { return j.finish(ctx) }); err != nil {
		return err
	}
	return j.c.printJoined(joinResult{AiCenterID: j.now.Center.ID, Status: centerStatus(k).Text, Target: j.o.target.String(), HostKey: j.m.Fingerprint,
		Program: j.prog.sum, Restarted: restarted, Steps: j.list})
}

func (j *joining) connect(ctx context.Context) (said string, err error) {
	if j.m, err = j.o.ssh.connect(ctx, j.c, j.o.target); err != nil {
		return "", err
	}
	return j.o.target.String() + ", host key " + j.m.Fingerprint, nil
}

// look checks what does not need our program there.
func (j *joining) look(ctx context.Context) (said string, err error) {
	if j.facts, err = j.m.Facts(ctx); err != nil {
		return "", err
	}
	f := j.facts
	switch {
	case f.System != "Linux":
		return "", fault.New(fault.Unavailable, "the machine runs %s; a gateway needs Linux", f.System)
	case !f.Root:
		return "", &hinted{fmt.Errorf("%s is not root there, and sudo says: %s", j.o.target.User, f.SudoNo), "log in as root, or let the user use sudo without a password"}
	case len(f.Missing) > 0:
		return "", &hinted{fmt.Errorf("the machine lacks the programs %s", strings.Join(f.Missing, ", ")), "install coreutils, grep and sed, or BusyBox"}
	}
	if j.in, err = remote.NewInstall(j.m, j.o.ssh.dir, f.Systemd); err != nil {
		return "", usageOf(err)
	}
	said = fmt.Sprintf("%s %s %s", f.System, f.Kernel, f.Machine)
	if f.Sudo {
		said += ", with sudo"
	}
	if !f.Systemd {
		said += ", without systemd"
	}
	return said, nil
}

// open holds the folder and reads what is there.
func (j *joining) open(ctx context.Context) (said string, err error) {
	if j.unlock, err = j.in.Lock(ctx); err != nil {
		j.unlock = func() {}
		return "", err
	}
	if j.state, err = j.in.State(ctx); err != nil {
		return "", err
	}
	b, err := j.in.Read(ctx, j.in.Dir+"/join.yaml")
	if err != nil {
		return "", err
	}
	if b != nil {
		j.was = &joined{}
		if err := yaml.Unmarshal(b, j.was); err != nil {
			return "", fmt.Errorf("%s/join.yaml there cannot be read: %w", j.in.Dir, err)
		}
	}
	switch {
	case j.was == nil:
		return j.in.Dir + ", new", nil
	case j.state.Running:
		return fmt.Sprintf("%s, center %s, running", j.in.Dir, j.was.Center.ID), nil
	default:
		return fmt.Sprintf("%s, center %s, not running", j.in.Dir, j.was.Center.ID), nil
	}
}

// platform decides what the center is to be, and whether the platform lets
// the caller do that.
func (j *joining) platform(ctx context.Context) (string, error) {
	base := joined{Platform: j.a.target.server}
	if j.was != nil {
		base = *j.was
	}
	if j.o.platform != "" {
		server, err := cleanServer(j.o.platform)
		if err != nil {
			return "", usagef("--platform: %v", err)
		}
		base.Platform = server
	}
	if j.o.shares != nil {
		base.Shares = j.o.shares
	}
	was := base.Center.ID
	var err error
	if base.Center, err = j.o.describe(base.Center); err != nil {
		return "", err
	}
	if was != "" && was != base.Center.ID {
		return "", &hinted{fmt.Errorf("the machine is center %s, not %s", was, base.Center.ID), fmt.Sprintf("`yunhe center leave %s` first, or name another folder with --dir", j.o.target)}
	}
	j.now = base
	if loopback(base.Platform) && !j.o.target.Local() {
		return "", &hinted{fmt.Errorf("%s is this machine's own address, which %s does not reach", base.Platform, j.o.target.Host), "give the platform's address as that machine reaches it with --platform"}
	}
	me, err := j.a.identity.WhoAmI(ctx, &identityv1.WhoAmIRequest{})
	if err != nil {
		return "", err
	}
	if !slices.Contains(me.GetPermissions(), "adapters.write") {
		return "", fault.New(fault.Denied, "%s may not let gateways join: the permission adapters.write is missing; ask an operator", me.GetUser().GetUserId())
	}
	return base.Platform + ", as " + me.GetUser().GetUserId(), nil
}

func loopback(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// program is what is put on the machine.
type program struct {
	path, sum string
	size      int64
}

// elfArch are the machines ELF names that Go builds for.
var elfArch = map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_RISCV: "riscv64", elf.EM_LOONGARCH: "loong64", elf.EM_PPC64: "ppc64le", elf.EM_S390: "s390x", elf.EM_MIPS: "mips64"}

// openProgram reads a program and what machine it is for.
func openProgram(path string) (p program, arch string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return p, "", fault.Wrap(fault.Invalid, err, "the program %s cannot be read", path)
	}
	defer func() { _ = f.Close() }() // read only
	x, err := elf.NewFile(f)
	if err != nil {
		return p, "", fault.New(fault.Invalid, "%s is not a program for Linux", path)
	}
	h := sha256.New()
	if p.size, err = io.Copy(h, f); err != nil {
		return p, "", fault.Wrap(fault.Invalid, err, "the program %s cannot be read", path)
	}
	p.path, p.sum = path, hex.EncodeToString(h.Sum(nil))
	return p, elfArch[x.Machine], nil
}

func (j *joining) copy(ctx context.Context) (string, error) {
	path, err := j.o.binary, error(nil)
	if path == "" {
		if path, err = os.Executable(); err != nil {
			return "", fmt.Errorf("find this program: %w", err)
		}
	}
	var arch string
	if j.prog, arch, err = openProgram(path); err != nil {
		return "", err
	}
	if arch == "" || arch != j.facts.Arch {
		return "", &hinted{fmt.Errorf("%s is for %s, the machine is %s", path, orUnknown(arch), j.facts.Machine),
			fmt.Sprintf("give a program for it with --binary; CGO_ENABLED=0 GOOS=linux GOARCH=%s go build ./cmd/yunhe makes one", orUnknown(j.facts.Arch))}
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fault.Wrap(fault.Invalid, err, "the program %s cannot be read", path)
	}
	defer func() { _ = f.Close() }() // read only
	began := time.Now()
	copied, err := j.in.Copy(ctx, f, j.prog.size, j.prog.sum)
	switch {
	case err != nil:
		return "", err
	case !copied:
		return "there already, SHA-256 " + j.prog.sum[:12], nil
	}
	return fmt.Sprintf("%s in %s, SHA-256 %s", text.Bytes(j.prog.size), time.Since(began).Round(10*time.Millisecond), j.prog.sum[:12]), nil
}

func orUnknown(s string) string {
	if s == "" {
		return "an unknown machine"
	}
	return s
}

// check has the program look at the machine from inside.
func (j *joining) check(ctx context.Context) (string, error) {
	out, err := j.in.Call(ctx, j.prog.sum, "gateway", "check", "--server", j.now.Platform, "--data", j.in.Data(), "-o", "json")
	if json.Unmarshal([]byte(out), &j.report) != nil || len(j.report.Checks) == 0 {
		if err == nil {
			err = errors.New("its answer cannot be read")
		}
		return "", &hinted{fmt.Errorf("the program does not work there: %w", err), "is it a program for that machine, of this version?"}
	}
	var found, problems, todo []string
	for _, k := range j.report.Checks {
		if k.OK {
			found = append(found, k.Found)
		} else {
			problems, todo = append(problems, k.Name+": "+k.Problem), append(todo, k.Todo)
		}
	}
	if len(problems) > 0 {
		return "", &hinted{errors.New(strings.Join(problems, "; ")), strings.Join(todo, "; ")}
	}
	return strings.Join(found, "; "), nil
}

// membership makes a join token unless the machine is a member.
func (j *joining) membership(ctx context.Context) (string, error) {
	id := j.now.Center.ID
	if j.report.Joined && j.report.AiCenterID != id {
		return "", &hinted{fmt.Errorf("the machine is the gateway of center %s", j.report.AiCenterID), fmt.Sprintf("`yunhe center leave %s` first, or name another folder with --dir", j.o.target)}
	}
	res, err := j.a.adapters.ListGateways(ctx, &adaptersv1.ListGatewaysRequest{})
	if err != nil {
		return "", err
	}
	for _, g := range res.GetGateways() {
		switch {
		case g.GetAiCenterId() != id:
		case g.GetPublicKey() != j.report.PublicKey:
			return "", &hinted{fmt.Errorf("center %s has a gateway already, on another machine", id), fmt.Sprintf("`yunhe gateway remove %s` if that one is gone, or choose another ID", id)}
		case j.report.Joined:
			return "a member since " + j.c.stamp(g.GetJoinedAt()), nil
		}
	}
	said := "a token for it, good for " + text.Duration(tokenTTL)
	if j.report.Joined { // the platform has removed it: only as a new one is it let in
		if err := j.in.Stop(ctx); err != nil {
			return "", err
		}
		if err := j.in.Forget(ctx); err != nil {
			return "", err
		}
		j.state.Running = false
		said += "; it was removed and joins anew"
	}
	tok, err := j.a.adapters.CreateJoinToken(ctx, &adaptersv1.CreateJoinTokenRequest{AiCenterId: id, TtlSeconds: int64(tokenTTL / time.Second)})
	if err != nil {
		return "", err
	}
	j.token = tok.GetToken()
	return said, nil
}

// configure writes what the gateway starts from.
func (j *joining) configure(ctx context.Context) (string, error) {
	if err := j.write(ctx, j.now); err != nil {
		return "", err
	}
	how := "kept running by " + j.in.Unit()
	if !j.facts.Systemd {
		how = "kept running by keeper.sh; after a boot of the machine start it with another join"
	}
	if j.was != nil && sameJoined(*j.was, j.now) {
		return "as it was; " + how, nil
	}
	return how, nil
}

// finish notes how the machine was joined, now that it is, and removes what
// is not needed any more.
func (j *joining) finish(ctx context.Context) (string, error) {
	b, err := yaml.Marshal(j.now)
	if err != nil {
		return "", fmt.Errorf("describe the join: %w", err)
	}
	if err := j.in.Put(ctx, remote.File{Path: j.in.Dir + "/join.yaml", Mode: 0o600, Data: b}); err != nil {
		return "", err
	}
	return "nothing left over", j.in.Tidy(ctx, j.prog.sum, j.state.Current)
}

func (j *joining) write(ctx context.Context, k joined) error {
	desc, err := yaml.Marshal(k.Center)
	if err != nil {
		return fmt.Errorf("describe the center: %w", err)
	}
	files := []remote.File{{Path: "center.yaml", Mode: 0o600, Data: desc}}
	if j.token != "" {
		files = append(files, remote.File{Path: "token", Mode: 0o600, Data: []byte(j.token + "\n")})
	}
	args := []string{"--server", k.Platform}
	for _, s := range k.Shares {
		args = append(args, "--share", s)
	}
	return j.in.Configure(ctx, args, files...)
}

// activate starts the gateway, again if it or its description is another now,
// and waits until the platform has it. If that fails, what ran before runs
// again, or nothing.
func (j *joining) activate(ctx context.Context) (k *registryv1.Center, restarted bool, err error) {
	restarted = !j.state.Running || j.state.Current != j.prog.sum || j.token != "" || j.was == nil || !sameJoined(*j.was, j.now)
	var seen time.Time
	if restarted {
		err := j.do("start", "", func() (string, error) {
			if err := j.in.Stop(ctx); err != nil {
				return "", err
			}
			// With it gone, what the platform hears from now on is the new one.
			if k, err := j.a.registry.GetCenter(ctx, &registryv1.GetCenterRequest{AiCenterId: j.now.Center.ID}); err == nil {
				seen = when(k.GetLastSeenAt())
			}
			if err := j.in.Switch(ctx, j.prog.sum); err != nil {
				return "", err
			}
			if err := j.in.Start(ctx); err != nil {
				return "", err
			}
			if j.state.Running {
				return "again, version " + j.report.Version + "; what it runs went on", nil
			}
			return "version " + j.report.Version, nil
		})
		if err != nil {
			j.restore(ctx)
			return nil, false, err
		}
	}
	err = j.do("available", "", func() (string, error) {
		k, err = j.await(ctx, seen)
		if err != nil {
			return "", err
		}
		return centerStatus(k).Text, nil
	})
	if err != nil && restarted {
		j.restore(ctx)
	}
	return k, restarted, err
}

// await waits until the platform has heard of the center after a time.
func (j *joining) await(ctx context.Context, after time.Time) (*registryv1.Center, error) {
	wait, cancel := context.WithTimeout(ctx, j.o.timeout)
	defer cancel()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		k, err := j.a.registry.GetCenter(wait, &registryv1.GetCenterRequest{AiCenterId: j.now.Center.ID})
		switch {
		case err == nil && when(k.GetLastSeenAt()).After(after) && (k.GetDrained() || k.GetStatus() == registryv1.CenterStatus_CENTER_STATUS_AVAILABLE):
			return k, nil
		case err != nil && connect.CodeOf(err) != connect.CodeNotFound && wait.Err() == nil:
			return nil, err
		}
		select {
		case <-tick.C:
		case <-wait.Done():
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			said := j.in.Log(ctx, 3)
			if said == "" {
				said = "nothing"
			}
			return nil, &hinted{fmt.Errorf("the platform has not heard of center %s within %s; the gateway says: %s", j.now.Center.ID, j.o.timeout, strings.Join(strings.Fields(said), " ")),
				"the machine must reach the platform's bus too; see docs/howto/join-a-center.md (bus.advertise)"}
		}
	}
}

// restore undoes a start that led to nothing: what ran before runs again;
// where nothing did, nothing does. Another join may follow in any case.
func (j *joining) restore(ctx context.Context) {
	// Whoever interrupted the join wants this most.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	back := func() error {
		if err := j.in.Stop(ctx); err != nil || !j.state.Running || j.state.Current == "" || j.was == nil {
			return err
		}
		if err := j.write(ctx, *j.was); err != nil {
			return err
		}
		if err := j.in.Switch(ctx, j.state.Current); err != nil {
			return err
		}
		return j.in.Start(ctx)
	}
	switch err := back(); {
	case err != nil:
		j.c.note("what was there before could not be restored (%v); join again", err)
	case j.state.Running && j.was != nil:
		j.c.note("the gateway runs again as before")
	default:
		j.c.note("the gateway is stopped; another join goes on from here")
	}
}
