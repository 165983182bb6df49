package jobs

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/rpc"
)

// Members of a gang ask the platform who else is there, wherever they run: an
// elastic one grows and shrinks while they do. Each finds a link in its
// environment, which shows that and nothing else, and only while the gang is; by
// it a member says at which address the others reach it.

// gangVariable is the link, for commands that have a network.
const gangVariable = "YUNHE_GANG_URL"

// gangWait is how long a member that has seen all there is waits for more.
const gangWait = 25 * time.Second

// gangsKept is how many gangs' members are remembered, as they were when last asked for.
const gangsKept = 256

// SetURL says how runs of jobs reach the API; without it they are not told. It is
// called before the first call.
func (s *Service) SetURL(address string) { s.url = address }

// gang is who is there.
type gang struct {
	JobID   string       `json:"jobId"`
	Version int64        `json:"version"` // grows with every change of the job
	Ended   bool         `json:"-"`
	Tasks   []gangTask   `json:"tasks"`
	Members []gangMember `json:"members"`
}

type gangTask struct {
	Name     string `json:"name"`
	Least    int64  `json:"least"` // replicas that it has at least while it runs
	Replicas int64  `json:"replicas"`
}

// gangMember is a replica with a place.
type gangMember struct {
	Task     int64  `json:"taskIndex"`
	Replica  int64  `json:"replicaIndex"`
	Attempt  int64  `json:"attempt"`
	State    string `json:"state"`
	Leaving  bool   `json:"leaving"` // it is to end, or being taken away
	CenterID string `json:"aiCenterId"`
	Node     string `json:"node"`
	Address  string `json:"address"` // as it said; "": it did not
}

func (s *Service) signGang(job, run string) string {
	m := hmac.New(sha256.New, s.key)
	fmt.Fprintf(m, "gang %s %s", job, run)
	return hex.EncodeToString(m.Sum(nil))
}

// gangLink is where a member of a gang asks.
func (s *Service) gangLink(job, run string) string {
	return s.url + "/v1/gangs/" + job + "?run=" + run + "&signature=" + s.signGang(job, run)
}

// member checks a link and returns whose it is. The signature is the permission.
func (h handler) member(r *http.Request, more ...string) (job, run string, err error) {
	if err := rpc.OnlyParams(r, append(more, "run", "signature")...); err != nil {
		return "", "", err
	}
	q := r.URL.Query()
	job, run = r.PathValue("id"), q.Get("run")
	if !hmac.Equal([]byte(h.s.signGang(job, run)), []byte(q.Get("signature"))) {
		return "", "", fault.New(fault.Denied, "the link is not valid")
	}
	return job, run, nil
}

// gangOf returns who is there of a job, as JSON.
func (s *Service) gangOf(ctx context.Context, job string) (g gang, text []byte, err error) {
	err = s.db.View(ctx, func(tx *db.Tx) error {
		r, err := loadJob(ctx, tx, job)
		if err != nil {
			return err
		}
		if r == nil || !r.spec.Gang {
			return fault.New(fault.NotFound, "there is no gang %s", job)
		}
		s.mu.Lock()
		had, ok := s.gangs[job]
		s.mu.Unlock()
		if ok && had.Version == r.version {
			g = had
			return nil
		}
		as, err := jobAttempts(ctx, tx, job)
		if err != nil {
			return err
		}
		g = membersOf(r, as)
		return nil
	})
	if err != nil {
		return g, nil, err
	}
	s.mu.Lock()
	if len(s.gangs) >= gangsKept {
		clear(s.gangs)
	}
	s.gangs[job] = g
	s.mu.Unlock()
	text, err = json.Marshal(g)
	return g, text, err
}

func membersOf(r *record, as []*attempt) gang {
	g := gang{JobID: r.id, Version: r.version, Ended: r.ended > 0, Tasks: []gangTask{}, Members: []gangMember{}}
	for _, t := range r.spec.Tasks {
		x := gangTask{Name: t.Name, Least: int64(t.ReplicaNumber), Replicas: int64(t.ReplicaNumber)}
		if r.spec.Elastic {
			x.Least = int64(least(t))
		}
		g.Tasks = append(g.Tasks, x)
	}
	for _, a := range as {
		if a.ended == 0 || a.state == succeeded {
			g.Members = append(g.Members, gangMember{Task: a.task, Replica: a.replica, Attempt: a.number, State: StateName(a.state), Leaving: a.ended == 0 && (a.stopAsked || a.taken != ""), CenterID: a.center, Node: a.node, Address: a.address})
		}
	}
	return g
}

// members serves gangLink: at once, or with after when there is more than that
// version, and after gangWait at the latest.
func (h handler) members(w http.ResponseWriter, r *http.Request) error {
	job, _, err := h.member(r, "after")
	if err != nil {
		return err
	}
	after, err := seen(r.URL.Query())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(core.WithCaller(r.Context(), core.Caller{AllTenants: true}), gangWait)
	defer cancel()
	sub := h.s.hub.subscribe(job)
	defer sub.close()
	tick := time.NewTicker(5 * time.Second) // an event can be lost
	defer tick.Stop()
	g, text, err := h.s.gangOf(ctx, job)
	for waits := true; err == nil && g.Version <= after && !g.Ended && waits; {
		select {
		case <-ctx.Done():
			waits = false
			continue
		case <-sub.wake:
			sub.take()
		case <-tick.C:
		}
		g, text, err = h.s.gangOf(context.WithoutCancel(ctx), job)
	}
	switch {
	case err != nil:
		return err
	case g.Ended:
		return fault.New(fault.NotFound, "the gang %s has ended", job)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, err = w.Write(append(text, '\n'))
	return err
}

// seen is the version that a member has; none: -1.
func seen(q url.Values) (int64, error) {
	if !q.Has("after") {
		return -1, nil
	}
	n, err := strconv.ParseInt(q.Get("after"), 10, 64)
	if err != nil || n < 0 {
		return 0, fault.New(fault.Invalid, "after must be the version of an answer, got %q", q.Get("after"))
	}
	return n, nil
}

// maxAddress bounds an address, in bytes.
const maxAddress = 256

// reachable takes the address of a member, which is the body of the request: what
// the members make of it is their affair.
func (h handler) reachable(w http.ResponseWriter, r *http.Request) error {
	job, run, err := h.member(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAddress+2))
	if err != nil {
		return fault.New(fault.Invalid, "the address cannot be read: %v", err)
	}
	address := strings.TrimSuffix(string(body), "\n")
	if strange := strings.IndexFunc(address, func(c rune) bool { return c <= ' ' || c > '~' }); address == "" || len(address) > maxAddress || strange >= 0 {
		return fault.New(fault.Invalid, "the address must be 1 to %d printable ASCII characters without spaces, as host:port is, got %q", maxAddress, clip(address))
	}
	if err := h.s.reach(core.WithCaller(r.Context(), core.Caller{AllTenants: true}), job, run, address); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// reach notes the address of a member.
func (s *Service) reach(ctx context.Context, job, run, address string) error {
	return s.db.Tx(ctx, func(tx *db.Tx) error {
		r, err := loadJob(ctx, tx, job)
		if err != nil {
			return err
		}
		as, err := queryAttempts(ctx, tx, `attempt_id = $1 AND job_id = $2`, run, job)
		switch {
		case err != nil:
			return err
		case r == nil || len(as) == 0:
			return fault.New(fault.NotFound, "there is no gang %s", job)
		case as[0].ended > 0:
			return fault.New(fault.Conflict, "the run has ended")
		case as[0].address == address:
			return nil
		}
		if _, err := tx.Exec(ctx, `UPDATE attempts SET address = $2 WHERE attempt_id = $1`, run, address); err != nil {
			return fmt.Errorf("note the address of %s: %w", run, err)
		}
		if err := saveJob(ctx, tx, r); err != nil {
			return err
		}
		return s.changed(ctx, tx, r)
	})
}
