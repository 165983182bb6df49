package poolops

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pools"
	"yunhe.dev/yunhe/internal/pools/logs"
)

// UpgradeState of an upgrade; the numbers are the API's.
type UpgradeState int64

// The states of an upgrade.
const (
	UpgradeRunning     UpgradeState = 1
	UpgradeWaiting     UpgradeState = 2
	UpgradeDone        UpgradeState = 3
	UpgradeFailed      UpgradeState = 4
	UpgradeRollingBack UpgradeState = 5
	UpgradeRolledBack  UpgradeState = 6
	UpgradeStopped     UpgradeState = 7
)

// StepState of a node in an upgrade; the numbers are the API's.
type StepState int64

// The states of a node.
const (
	StepWaiting     StepState = 1
	StepUpgrading   StepState = 2
	StepDone        StepState = 3
	StepFailed      StepState = 4
	StepRollingBack StepState = 5
	StepRolledBack  StepState = 6
)

// Action changes an upgrade; the numbers are the API's.
type Action int64

// The actions.
const (
	Continue Action = 1
	Stop     Action = 2
	RollBack Action = 3
)

// Upgrade has nodes run a program, batch after batch.
type Upgrade struct {
	ID                 string
	Release            Release
	State              UpgradeState
	Batch              int64
	Gray               bool
	Pause, Patience    int64 // seconds
	Keep               bool
	Reason, User       string
	CreatedAt, EndedAt time.Time
	Steps              []*Step

	running bool
}

// Step is a node's, or the platform's.
type Step struct {
	Node             string // "": the platform
	State            StepState
	From             string // SHA-256
	FromVersion      string
	Reason           string
	BeganAt, EndedAt time.Time

	position, attempt int64
}

func (x *Step) name() string { return cmp.Or(x.Node, "the platform") }

// program is what a node runs, and should.
type program struct {
	node, runs string
	begun      int64
	problem    string
	wanted     string
	bytes      int64
	version    string
	attempt    int64
}

const (
	defaultPatience = 300
	maxUpgrades     = 100
	stepEvery       = time.Second
	restEvery       = 5 * time.Second // where nothing is upgraded
)

func readPrograms(ctx context.Context, tx *db.Tx) (map[string]*program, error) {
	out := map[string]*program{}
	err := tx.Query(ctx, `SELECT node_id, program, begun, problem, wanted, bytes, version, attempt FROM pool_programs`, nil, func(row db.Row) error {
		p := &program{}
		if err := row.Scan(&p.node, &p.runs, &p.begun, &p.problem, &p.wanted, &p.bytes, &p.version, &p.attempt); err != nil {
			return err
		}
		out[p.node] = p
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the programs of pool nodes: %w", err)
	}
	return out, nil
}

func putProgram(ctx context.Context, tx *db.Tx, p *program) error {
	_, err := tx.Exec(ctx, `INSERT INTO pool_programs (node_id, program, begun, problem, wanted, bytes, version, attempt) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (node_id) DO UPDATE SET program = $2, begun = $3, problem = $4, wanted = $5, bytes = $6, version = $7, attempt = $8`, p.node, p.runs, p.begun, p.problem, p.wanted, p.bytes, p.version, p.attempt)
	if err != nil {
		return fmt.Errorf("store the program of pool node %s: %w", p.node, err)
	}
	return nil
}

const upgradeColumns = `upgrade_id, sha256, version, bytes, running, state, batch, gray, pause_s, patience_s, keep, reason, user_id, created_at, ended_at`

func readUpgrades(ctx context.Context, tx *db.Tx, where string, args ...any) (out []*Upgrade, err error) {
	err = tx.Query(ctx, `SELECT `+upgradeColumns+` FROM pool_upgrades `+where, args, func(row db.Row) error {
		x := &Upgrade{}
		var created, ended int64
		if err := row.Scan(&x.ID, &x.Release.Sum, &x.Release.Version, &x.Release.Bytes, &x.running, &x.State, &x.Batch, &x.Gray, &x.Pause, &x.Patience, &x.Keep, &x.Reason, &x.User, &created, &ended); err != nil {
			return err
		}
		x.CreatedAt, x.EndedAt = db.Time(created), db.Time(ended)
		out = append(out, x)
		return nil
	})
	for _, x := range out {
		if err != nil {
			break
		}
		err = tx.Query(ctx, `SELECT position, node_id, state, from_sha256, from_version, attempt, reason, began_at, ended_at FROM pool_upgrade_nodes WHERE upgrade_id = $1 ORDER BY position`, []any{x.ID}, func(row db.Row) error {
			n := &Step{}
			var began, ended int64
			if err := row.Scan(&n.position, &n.Node, &n.State, &n.From, &n.FromVersion, &n.attempt, &n.Reason, &began, &ended); err != nil {
				return err
			}
			n.BeganAt, n.EndedAt = db.Time(began), db.Time(ended)
			x.Steps = append(x.Steps, n)
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read upgrades: %w", err)
	}
	return out, nil
}

func putUpgrade(ctx context.Context, tx *db.Tx, x *Upgrade) error {
	_, err := tx.Exec(ctx, `INSERT INTO pool_upgrades (`+upgradeColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
		ON CONFLICT (upgrade_id) DO UPDATE SET running = $5, state = $6, gray = $8, reason = $12, ended_at = $15`,
		x.ID, x.Release.Sum, x.Release.Version, x.Release.Bytes, x.running, int64(x.State), x.Batch, x.Gray, x.Pause, x.Patience, x.Keep, x.Reason, x.User, db.Micros(x.CreatedAt), db.Micros(x.EndedAt))
	for _, n := range x.Steps {
		if err != nil {
			break
		}
		_, err = tx.Exec(ctx, `INSERT INTO pool_upgrade_nodes (upgrade_id, position, node_id, state, from_sha256, from_version, attempt, reason, began_at, ended_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
			ON CONFLICT (upgrade_id, position) DO UPDATE SET state = $4, from_sha256 = $5, from_version = $6, attempt = $7, reason = $8, began_at = $9, ended_at = $10`,
			x.ID, n.position, n.Node, int64(n.State), n.From, n.FromVersion, n.attempt, n.Reason, db.Micros(n.BeganAt), db.Micros(n.EndedAt))
	}
	if err != nil {
		return fmt.Errorf("store upgrade %s: %w", x.ID, err)
	}
	return nil
}

// runningTx is the upgrade that is not over; nil: there is none.
func runningTx(ctx context.Context, tx *db.Tx) (*Upgrade, error) {
	list, err := readUpgrades(ctx, tx, `WHERE running`)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// Upgrades lists them, newest first.
func (s *Service) Upgrades(ctx context.Context) (out []*Upgrade, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		out, err = readUpgrades(ctx, tx, fmt.Sprintf(`ORDER BY upgrade_id DESC LIMIT %d`, maxUpgrades))
		return err
	})
	return out, err
}

// StartUpgrade begins one; platform says whether the platform is among them.
func (s *Service) StartUpgrade(ctx context.Context, x Upgrade, nodes []string, platform bool) (*Upgrade, error) {
	var c core.Check
	checkSum(&c, "sha256", x.Release.Sum)
	c.Range("node_ids", int64(len(nodes)), 0, maxNodes)
	for i, id := range nodes[:min(len(nodes), maxNodes)] {
		if c.ID(fmt.Sprintf("node_ids[%d]", i), id); slices.Contains(nodes[:i], id) {
			c.Add(fmt.Sprintf("node_ids[%d]", i), "is given twice: %q", id)
		}
	}
	if len(nodes) == 0 && !platform {
		c.Add("node_ids", "is empty, and the platform is not to be upgraded: nothing is")
	}
	c.Range("batch", x.Batch, 0, maxNodes)
	c.Range("pause_seconds", x.Pause, 0, 86400)
	if x.Patience != 0 {
		c.Range("patience_seconds", x.Patience, 10, 86400)
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	if platform && s.self == nil {
		return nil, fault.Fields(fault.Field{Path: "platform", Problem: "runs as several processes, or not from a program that it can replace: upgrade it as it was installed"})
	}
	x.Patience = cmp.Or(x.Patience, defaultPatience)
	r, err := s.release(ctx, x.Release.Sum)
	if err != nil {
		return nil, err
	}
	x.Release = *r
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		x.ID, x.State, x.running, x.CreatedAt, x.User, x.Steps = core.NewID("upg"), UpgradeRunning, true, tx.Now, core.CallerFrom(ctx).UserID, nil
		other, err := runningTx(ctx, tx)
		if err != nil {
			return err
		}
		if other != nil {
			return other.busy()
		}
		there, err := s.pools.NodesTx(ctx, tx)
		if err != nil {
			return err
		}
		programs, err := readPrograms(ctx, tx)
		if err != nil {
			return err
		}
		for i, id := range nodes {
			k := slices.IndexFunc(there, func(n *pools.Node) bool { return n.ID == id })
			if k < 0 {
				return fault.New(fault.NotFound, "there is no pool node %q; see yunhe pool node list", id)
			}
			p := programs[id]
			if p == nil || p.runs == "" {
				return fault.New(fault.Invalid, "node_ids[%d]: pool node %s has not said which program it runs: it is of a version that cannot be upgraded from here", i, id)
			}
			x.Steps = append(x.Steps, &Step{Node: id, State: StepWaiting, From: p.runs, FromVersion: there[k].Version, position: int64(i)})
		}
		if platform {
			x.Steps = append(x.Steps, &Step{State: StepWaiting, From: s.self.Sum(), FromVersion: s.version, position: int64(len(nodes))})
		}
		if x.Batch == 0 {
			x.Batch = int64(len(x.Steps))
		}
		if err := putUpgrade(ctx, tx, &x); err != nil {
			return err
		}
		if err := s.say(ctx, tx, &x, logs.Info, "upgrade started"); err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, x.ID)
	})
	s.stir()
	return &x, err
}

// busy is why nothing else is upgraded.
func (x *Upgrade) busy() error {
	return fault.New(fault.Conflict, "upgrade %s is not over: it is %s", x.ID, x.State)
}

func (s *Service) say(ctx context.Context, tx *db.Tx, x *Upgrade, level logs.Level, message string) error {
	details := fmt.Sprintf("upgrade_id=%s version=%s sha256=%.12s", x.ID, x.Release.Version, x.Release.Sum)
	if x.Reason != "" {
		details += fmt.Sprintf(" reason=%q", x.Reason)
	}
	return s.logs.AddTx(ctx, tx, logs.Entry{Level: level, Message: message, User: x.User, Details: details})
}

// ChangeUpgrade has an upgrade go on, stop, or go back.
func (s *Service) ChangeUpgrade(ctx context.Context, id string, do Action) (x *Upgrade, err error) {
	var c core.Check
	c.Text("upgrade_id", id, true, 64, 0)
	c.Range("action", int64(do), int64(Continue), int64(RollBack))
	if err := c.Err(); err != nil {
		return nil, err
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		list, err := readUpgrades(ctx, tx, `WHERE upgrade_id = $1`, id)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return fault.New(fault.NotFound, "there is no upgrade %q; see yunhe pool upgrade list", id)
		}
		x = list[0]
		running, err := runningTx(ctx, tx)
		if err != nil {
			return err
		}
		switch {
		case do == Continue && x.State == UpgradeWaiting:
			x.State, x.Gray = UpgradeRunning, false
		case do == Stop && (x.State == UpgradeRunning || x.State == UpgradeWaiting):
			x.State, x.Reason = UpgradeStopped, "it was stopped"
			x.running = slices.ContainsFunc(x.Steps, func(n *Step) bool { return n.State == StepUpgrading })
			if !x.running {
				x.EndedAt = tx.Now
			}
		case do == RollBack && x.State != UpgradeRollingBack && x.State != UpgradeRolledBack:
			if running != nil && running.ID != x.ID {
				return running.busy()
			}
			if err := s.rollBackTx(ctx, tx, x, "it was rolled back"); err != nil {
				return err
			}
		default:
			return fault.New(fault.Conflict, "upgrade %s is %s: that cannot be done with it", x.ID, x.State)
		}
		if err := putUpgrade(ctx, tx, x); err != nil {
			return err
		}
		return s.ids.AuditTx(ctx, tx, x.ID)
	})
	s.stir()
	return x, err
}

// String is for people.
func (u UpgradeState) String() string {
	return [...]string{"", "running", "waiting to go on", "done", "failed", "going back", "rolled back", "stopped"}[max(0, min(int(u), 7))]
}

// wantTx has a node run a program from now on; bytes 0: it has it.
func (s *Service) wantTx(ctx context.Context, tx *db.Tx, n *Step, sum, version string, bytes int64) error {
	n.BeganAt, n.Reason, n.EndedAt = tx.Now, "", time.Time{}
	if n.Node == "" {
		return nil // its loop sees it
	}
	all, err := readPrograms(ctx, tx)
	if err != nil {
		return err
	}
	p := all[n.Node]
	if p == nil {
		p = &program{node: n.Node}
	}
	p.wanted, p.version, p.bytes, p.attempt = sum, version, bytes, max(p.attempt, p.begun)+1
	n.attempt = p.attempt
	if err := putProgram(ctx, tx, p); err != nil {
		return err
	}
	return emit(ctx, tx, []string{n.Node})
}

// rollBackTx has all that were upgraded, or may be, run what they ran before.
func (s *Service) rollBackTx(ctx context.Context, tx *db.Tx, x *Upgrade, why string) error {
	x.State, x.running, x.Reason, x.EndedAt = UpgradeRollingBack, true, why, time.Time{}
	for _, n := range x.Steps {
		if n.State != StepUpgrading && n.State != StepDone && n.State != StepFailed {
			continue
		}
		was := n.Reason
		if err := s.wantTx(ctx, tx, n, n.From, n.FromVersion, 0); err != nil {
			return err
		}
		n.State, n.Reason = StepRollingBack, was
	}
	return s.say(ctx, tx, x, logs.Warn, "upgrade goes back")
}

// StepUpgrade does what is due of the upgrade that is not over, and reports
// whether there is one.
func (s *Service) StepUpgrade(ctx context.Context) (running bool, err error) {
	var become *Step
	var to string
	err = s.db.View(ctx, func(tx *db.Tx) error { // mostly there is none
		x, err := runningTx(ctx, tx)
		running = x != nil
		return err
	})
	if err != nil || !running {
		return false, err
	}
	err = s.db.Tx(ctx, func(tx *db.Tx) error {
		become = nil
		x, err := runningTx(ctx, tx)
		if err != nil || x == nil {
			return err
		}
		programs, err := readPrograms(ctx, tx)
		if err != nil {
			return err
		}
		if err := s.stepTx(ctx, tx, x, programs); err != nil {
			return err
		}
		for _, n := range x.Steps {
			if n.Node == "" && n.State == StepUpgrading {
				become, to = n, x.Release.Sum
			} else if n.Node == "" && n.State == StepRollingBack {
				become, to = n, n.From
			}
		}
		return putUpgrade(ctx, tx, x)
	})
	if err != nil || become == nil || s.self == nil || s.self.Sum() == to || s.leaving {
		return true, err
	}
	if err := s.become(ctx, to); err != nil {
		s.problem, s.problemAt = err.Error(), s.db.Now()
		return true, nil
	}
	s.leaving = true
	return true, nil
}

// become has this process be another program.
func (s *Service) become(ctx context.Context, sum string) error {
	programs := s.self.Folder()
	if !programs.Has(sum) {
		f, err := s.blobs.Read(ctx, releaseKey(sum), 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := programs.Add(sum, f); err != nil {
			return err
		}
	}
	probe, cancel := context.WithTimeout(ctx, probes)
	defer cancel()
	if out, err := exec.CommandContext(probe, programs.Path(sum), "version").CombinedOutput(); err != nil {
		return fault.Wrap(fault.Invalid, err, "the program does not run here: %s", start(string(out)))
	}
	if err := programs.Upgrade(s.self.Sum(), sum, 0); err != nil {
		return err
	}
	s.log.Info("platform becomes another program", "sha256", sum)
	s.self.Become(programs.Path(sum))
	return nil
}

const probes = 30 * time.Second

// outcome is what came of a step: whether the program runs that should, or why not.
func (s *Service) outcome(n *Step, want string, patience int64, programs map[string]*program, now time.Time) (done bool, failed string) {
	runs, problem := "", ""
	if n.Node == "" {
		if s.self != nil {
			if runs = s.self.Sum(); !n.BeganAt.After(s.problemAt) {
				problem = s.problem
			}
		}
	} else if p := programs[n.Node]; p != nil {
		if runs = p.runs; p.begun == n.attempt {
			problem = p.problem
		}
	}
	switch {
	case runs == want:
		return true, ""
	case problem != "":
		return false, problem
	case now.Sub(n.BeganAt) > time.Duration(patience)*time.Second:
		return false, fmt.Sprintf("it did not run the program within %d s", patience)
	}
	return false, ""
}

func (s *Service) stepTx(ctx context.Context, tx *db.Tx, x *Upgrade, programs map[string]*program) error {
	under, failed, last := 0, "", time.Time{}
	for _, n := range x.Steps {
		want, good := x.Release.Sum, StepDone
		if n.State == StepRollingBack {
			want, good = n.From, StepRolledBack
		} else if n.State != StepUpgrading {
			if n.EndedAt.After(last) {
				last = n.EndedAt
			}
			continue
		}
		done, why := s.outcome(n, want, x.Patience, programs, tx.Now)
		switch {
		case done:
			n.State, n.EndedAt, last = good, tx.Now, tx.Now
			message := map[StepState]string{StepDone: "node upgraded", StepRolledBack: "node runs again what it ran before"}[good]
			if err := s.logs.AddTx(ctx, tx, logs.Entry{Level: logs.Info, Message: message, Node: n.Node, Details: fmt.Sprintf("upgrade_id=%s sha256=%.12s", x.ID, want)}); err != nil {
				return err
			}
		case why != "":
			n.State, n.EndedAt, n.Reason, failed = StepFailed, tx.Now, why, n.name()+": "+why
			if x.Keep || x.State == UpgradeStopped { // else all go back; one that is only late would become it yet
				back := *n
				if err := s.wantTx(ctx, tx, &back, n.From, n.FromVersion, 0); err != nil {
					return err
				}
			}
			if err := s.logs.AddTx(ctx, tx, logs.Entry{Level: logs.Error, Message: "node not upgraded", Node: n.Node, Details: fmt.Sprintf("upgrade_id=%s sha256=%.12s reason=%q", x.ID, want, why)}); err != nil {
				return err
			}
		default:
			under++
		}
	}
	end := func(state UpgradeState, level logs.Level, message string) error {
		x.State, x.running, x.EndedAt = state, false, tx.Now
		return s.say(ctx, tx, x, level, message)
	}
	switch {
	case x.State == UpgradeRollingBack && under == 0:
		if slices.ContainsFunc(x.Steps, func(n *Step) bool { return n.State == StepFailed }) {
			return end(UpgradeFailed, logs.Error, "upgrade did not go back everywhere")
		}
		return end(UpgradeRolledBack, logs.Info, "upgrade was rolled back")
	case x.State == UpgradeRollingBack:
		return nil
	case failed != "" && !x.Keep && x.State != UpgradeStopped:
		return s.rollBackTx(ctx, tx, x, failed)
	case failed != "":
		x.Reason = failed
	}
	if under > 0 {
		return nil
	}
	if x.State == UpgradeStopped {
		return end(UpgradeStopped, logs.Warn, "upgrade was stopped")
	}
	if x.Reason != "" {
		return end(UpgradeFailed, logs.Error, "upgrade failed")
	}
	var next []*Step
	begun := false
	for _, n := range x.Steps {
		if n.State == StepWaiting {
			next = append(next, n)
		} else {
			begun = true
		}
	}
	switch {
	case len(next) == 0:
		return end(UpgradeDone, logs.Info, "upgrade is done")
	case begun && x.Gray:
		x.State = UpgradeWaiting
		return nil
	case begun && tx.Now.Sub(last) < time.Duration(x.Pause)*time.Second:
		return nil
	}
	for _, n := range next[:min(int(x.Batch), len(next))] {
		n.State = StepUpgrading
		if err := s.wantTx(ctx, tx, n, x.Release.Sum, x.Release.Version, x.Release.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// stir has the loop look at once.
func (s *Service) stir() {
	select {
	case s.stirred <- struct{}{}:
	default:
	}
}

// RunUpgrades takes upgrades on, until ctx ends. One process at a time runs it.
func (s *Service) RunUpgrades(ctx context.Context) error {
	if s.self != nil {
		if err := s.self.Folder().Proved(); err != nil {
			s.log.Warn("not noted that this program runs well", "error", err)
		}
	}
	for {
		core.Round(ctx, restEvery)
		running, err := s.StepUpgrade(ctx)
		if err != nil && ctx.Err() == nil {
			core.RoundFailed(ctx, err)
			s.log.Warn("upgrade not taken on, will try again", "error", err)
		}
		every := restEvery
		if running {
			every = stepEvery
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.stirred:
		case <-time.After(every):
		}
	}
}
