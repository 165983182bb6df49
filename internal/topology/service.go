package topology

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"yunhe.dev/yunhe/internal/bus"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/db"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/inventory"
	"yunhe.dev/yunhe/internal/monitor"
	"yunhe.dev/yunhe/internal/registry"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Config says how much history is kept.
type Config struct {
	// History is how long what ended is kept, at least an hour; 0 means 90
	// days.
	History time.Duration
}

// DefaultConfig keeps 90 days.
func DefaultConfig() Config { return Config{History: 90 * 24 * time.Hour} }

// Service keeps the topology. It is safe for concurrent use. Who calls is read
// from the context ([core.CallerFrom]).
type Service struct {
	cfg     Config
	db      *db.DB
	bus     *bus.Bus
	reg     *registry.Service
	inv     *inventory.Service
	samples monitor.Store
	log     *slog.Logger

	watch    watch  // what the watch has seen; only it uses it
	maxEdits int    // one transaction of the watch writes
	onEdit   func() // tests break off here

	loading  chan struct{} // held while the image is brought up to date
	fetching chan struct{} // held while values are read that somebody waits for
	stale    chan struct{} // values are old and wanted

	mu sync.Mutex // guards the fields below

	now        *image
	graphs     map[string]*graph // of the image, by tenant; "*": all
	pictures   []*picture        // the last ones made
	old        []oldImage        // the last ones read
	live       map[string]*livePart
	past       []*reading
	complained time.Time
}

// New brings the tables up to date and returns the service, ready for calls.
// The loops are Run and Follow.
func New(ctx context.Context, cfg Config, d *db.DB, b *bus.Bus, reg *registry.Service, inv *inventory.Service, store monitor.Store, log *slog.Logger) (*Service, error) {
	if err := d.Migrate(ctx, "topology", migrations); err != nil {
		return nil, err
	}
	cfg.History = cmp.Or(cfg.History, DefaultConfig().History)
	return &Service{cfg: cfg, db: d, bus: b, reg: reg, inv: inv, samples: store, log: log.With("component", "topology"), now: &image{items: map[string]*Item{}},
		maxEdits: maxEdits, graphs: map[string]*graph{}, live: map[string]*livePart{}, loading: make(chan struct{}, 1), fetching: make(chan struct{}, 1),
		stale: make(chan struct{}, 1)}, nil
}

// oldImage is what was valid at a revision that is not the last.
type oldImage struct {
	seq    int64
	image  *image
	graphs map[string]*graph
}

const (
	maxOld      = 4
	maxPictures = 8
)

// graphAt returns what the caller may see, at a time or, if that is zero, now.
func (s *Service) graphAt(ctx context.Context, when time.Time) (*graph, error) {
	w := viewerOf(ctx)
	if when.IsZero() {
		if err := s.refresh(ctx); err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return cachedGraph(s.now, s.graphs, w), nil
	}
	h, err := s.moment(ctx, when)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	for i := range s.old {
		if o := &s.old[i]; o.seq == h.seq {
			defer s.mu.Unlock()
			return cachedGraph(o.image, o.graphs, w), nil
		}
	}
	s.mu.Unlock()
	// What was valid then and still is, is in the image; what has ended since,
	// also after the image was refreshed, is read.
	if err := s.refresh(ctx); err != nil {
		return nil, err
	}
	m := &image{head: h, items: map[string]*Item{}}
	s.mu.Lock()
	for _, it := range s.now.items {
		if it.seq <= h.seq {
			m.put(it)
		}
	}
	s.mu.Unlock()
	err = s.db.View(ctx, func(tx *db.Tx) error {
		rows, err := readEnded(ctx, tx, h.seq)
		for _, v := range rows {
			m.put(&v.Item)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.old = append(s.old, oldImage{h.seq, m, map[string]*graph{}}); len(s.old) > maxOld {
		s.old = slices.Delete(s.old, 0, 1)
	}
	return cachedGraph(m, s.old[len(s.old)-1].graphs, w), nil
}

// maxViewers bounds the graphs of one image.
const maxViewers = 64

func cachedGraph(m *image, graphs map[string]*graph, w viewer) *graph {
	key := w.tenant
	if w.all || !m.tenants {
		key, w = "*", viewer{all: true}
	}
	g := graphs[key]
	if g == nil {
		if len(graphs) >= maxViewers {
			clear(graphs)
		}
		g = newGraph(m, w)
		graphs[key] = g
	}
	return g
}

// moment is the revision of a past time; fault.Invalid for a time that history
// does not reach, or that is yet to come.
func (s *Service) moment(ctx context.Context, when time.Time) (h head, err error) {
	var first head
	err = s.db.View(ctx, func(tx *db.Tx) error {
		if first, err = firstRevision(ctx, tx); err != nil {
			return err
		}
		h, err = revisionAt(ctx, tx, db.Micros(when))
		return err
	})
	switch {
	case err != nil:
		return head{}, err
	case when.After(s.db.Now()) && db.Micros(when) > h.at:
		return head{}, fault.Fields(fault.Field{Path: "at", Problem: fmt.Sprintf("must not be in the future: it is %s", s.db.Now().Format(time.RFC3339))})
	case first.seq == 0:
		return head{}, fault.Fields(fault.Field{Path: "at", Problem: "is before history: nothing is recorded yet"})
	case h.seq == 0:
		return head{}, fault.Fields(fault.Field{Path: "at", Problem: "must not be before history begins at " + db.Time(first.at).Format(time.RFC3339Nano)})
	}
	return h, nil
}

// pictureAt returns what the caller may see, judged by what was measured.
func (s *Service) pictureAt(ctx context.Context, when time.Time) (*picture, error) {
	g, err := s.graphAt(ctx, when)
	if err != nil {
		return nil, err
	}
	readings, err := s.limiting(ctx, when)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	for _, p := range s.pictures {
		if p.graph == g && slices.EqualFunc(p.from, readings, func(a, b *reading) bool { return a == b }) {
			s.mu.Unlock()
			return p, nil
		}
	}
	s.mu.Unlock()
	var layers []*layer
	for _, r := range readings {
		layers = append(layers, g.lay(r))
	}
	p := newPicture(g, layers)
	p.from = readings
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pictures = append(s.pictures, p); len(s.pictures) > maxPictures {
		s.pictures = slices.Delete(s.pictures, 0, 1)
	}
	return p, nil
}

// change makes edits of what decide finds and records them, together with what
// else decide writes. decide is given what is valid of the items it names, and
// may run more than once.
func (s *Service) change(ctx context.Context, decide func(tx *db.Tx) ([]edit, error)) error {
	for range 10 {
		err := s.db.Tx(ctx, func(tx *db.Tx) error {
			edits, err := decide(tx)
			if err != nil || len(edits) == 0 {
				return err
			}
			h, err := lastRevision(ctx, tx)
			if err != nil {
				return err
			}
			return record(ctx, tx, h, edits)
		})
		if !errors.Is(err, errStale) {
			return err
		}
	}
	return fault.New(fault.Conflict, "the topology changes too fast; please try again")
}

// everything is a context of the platform's own, which sees all tenants.
func everything(ctx context.Context) context.Context {
	return core.WithCaller(ctx, core.Caller{AllTenants: true})
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
