package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"yunhe.dev/yunhe/cmd/yunhe/internal/resourcefile"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
)

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func resourceImportCommand(c *cli) *cobra.Command {
	var format string
	var batch int
	var dryRun, versions bool
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Register resources from a YAML or CSV file, however large",
		Long: `Registers the resources of a file, or brings them up to date: a resource that is
as the file says already is left alone, so running the same file again changes
nothing and goes on where a run was cut short. The order of resources in the
file does not matter.

Resources are written in batches, each whole or not at all. A batch with a
mistake is not written; the others are, and every mistake is shown with its
line. The exit status is 1 if there was any.

` + "`yunhe resource types TYPE`" + ` shows the attributes of a type, indented those of the objects
in a list. A cell of a CSV file has a list or an object as JSON.`,
		Example: `  yunhe resource import network.yaml
  yunhe resource import cards.csv --dry-run
  printf '%s\n' resource_id,type,name,region,attributes.available_resources \
    'n-1,node,Node 1,anhui,"[{""kind"":""cpu"",""scale"":64}]"' | yunhe resource import - --format csv
  yunhe resource export --type compute | yunhe --context other resource import -`,
		Args: takes(1, 1, "a file, or - for standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if batch < 1 || batch > 1000 {
				return usagef("--batch: want 1 to 1000, got %d", batch)
			}
			format, err := fileFormat(format, args[0])
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			i := &importer{c: c, a: a, batch: batch, dryRun: dryRun, versions: versions, started: c.now(), seen: map[string]bool{}, line: c.progressLine()}
			in, err := i.open(args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			file, err := i.reader(cmd.Context(), format, in)
			if err != nil {
				return err
			}
			return i.run(cmd.Context(), file)
		},
	}
	cmd.Flags().StringVar(&format, "format", "", "yaml or csv (default: by the name of the file, else yaml)")
	cmd.Flags().IntVar(&batch, "batch", 500, "resources written at once, at most 1000")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check the file against the server and write nothing")
	cmd.Flags().BoolVar(&versions, "check-versions", false, "refuse resources whose version in the file is not the stored one")
	return cmd
}

// fileFormat is "yaml" or "csv".
func fileFormat(format, path string) (string, error) {
	switch strings.ToLower(format) {
	case "yaml", "csv":
		return strings.ToLower(format), nil
	case "":
		if strings.EqualFold(filepath.Ext(path), ".csv") {
			return "csv", nil
		}
		return "yaml", nil
	}
	return "", usagef("--format: want yaml or csv, got %q", format)
}

// importer is one run of an import.
type importer struct {
	c                *cli
	a                *api
	batch            int
	dryRun, versions bool
	started          time.Time

	size int64        // of the file; 0: not known
	read atomic.Int64 // bytes of it

	created, updated, unchanged, refused, problems int

	held []waiting
	seen map[string]bool // IDs of the file that are right, in a dry run
	line *progressLine
}

// waiting is a resource that needs another one to be registered first.
type waiting struct {
	item  *resourcefile.Item
	needs string
}

// counted counts what is read of a file.
type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (r counted) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.n.Add(int64(n))
	return n, err
}

func (i *importer) open(path string) (io.ReadCloser, error) {
	if path == "-" {
		return counted{io.NopCloser(i.c.in), &i.read}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		i.size = info.Size()
	}
	return counted{f, &i.read}, nil
}

func (i *importer) reader(ctx context.Context, format string, in io.Reader) (resourcefile.Reader, error) {
	if format == "yaml" {
		return resourcefile.NewYAML(in), nil
	}
	kinds, err := i.kinds(ctx)
	if err != nil {
		return nil, err
	}
	return resourcefile.NewCSV(in, kinds)
}

// kinds asks the server what kind of value each attribute has.
func (i *importer) kinds(ctx context.Context) (resourcefile.Kinds, error) {
	types, err := i.a.resources.ListResourceTypes(ctx, &registryv1.ListResourceTypesRequest{})
	if err != nil {
		return nil, err
	}
	all := map[string]attributeSchema{}
	for _, t := range types.GetTypes() {
		if all[t.GetType()], err = attributesOf(t); err != nil {
			return nil, err
		}
	}
	return func(typ, attribute string) string { return all[typ].Properties[attribute].Type }, nil
}

// run reads ahead of what is written: parsing takes as long as writing.
func (i *importer) run(ctx context.Context, file resourcefile.Reader) error {
	batches := make(chan []*resourcefile.Item, 2)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(batches)
		return i.parse(gctx, file, batches)
	})
	g.Go(func() error {
		for b := range batches {
			if err := i.write(gctx, b); err != nil {
				return err
			}
		}
		return nil
	})
	err := g.Wait()
	if err == nil {
		err = i.retryHeld(ctx)
	}
	i.line.clear()
	if err != nil {
		done := i.created + i.updated + i.unchanged
		if done == 0 || i.dryRun {
			return err
		}
		return &hinted{err, fmt.Sprintf("%d resources are as the file says; run the same command again to go on", done)}
	}
	return i.report()
}

func (i *importer) parse(ctx context.Context, file resourcefile.Reader, to chan<- []*resourcefile.Item) error {
	var batch []*resourcefile.Item
	send := func() error {
		if len(batch) == 0 {
			return nil
		}
		select {
		case to <- batch:
			batch = nil
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		item, err := file.Next()
		if errors.Is(err, io.EOF) {
			return send()
		}
		if err != nil {
			return err
		}
		// What cannot be read is in a batch too: nothing of that is written.
		if batch = append(batch, item); len(batch) == i.batch {
			if err := send(); err != nil {
				return err
			}
		}
	}
}

// write writes a batch. Resources whose parents are missing are kept for
// later; any other mistake keeps the whole batch from being written.
func (i *importer) write(ctx context.Context, batch []*resourcefile.Item) error {
	wrong := 0
	for _, item := range batch {
		for _, p := range item.Problems {
			i.complain("%s", p)
		}
		if len(item.Problems) > 0 {
			wrong++
		}
	}
	res, sent, err := i.apply(ctx, batch, wrong > 0)
	if err != nil {
		return err
	}
	var rest []*resourcefile.Item
	var missing []waiting
	for k, r := range res.GetResults() {
		item := sent[k]
		switch {
		case r.GetParentMissing():
			needs := item.Resource.GetParentId()
			if r.GetViolations()[0].GetField() == "platform_id" {
				needs = item.Resource.GetPlatformId()
			}
			missing = append(missing, waiting{item, needs})
			continue
		case r.GetOutcome() == registryv1.ApplyOutcome_APPLY_OUTCOME_REFUSED:
			wrong++
			for _, v := range r.GetViolations() {
				i.complain("line %d: %s: %s: %s", item.At(v.GetField()), r.GetResourceId(), v.GetField(), v.GetProblem())
			}
		}
		rest = append(rest, item)
	}
	switch {
	case wrong > 0:
		i.refused += len(batch)
		i.say("lines %d to %d: %s not written", batch[0].Line, batch[len(batch)-1].Line, text.Count(len(batch), "resource"))
	case len(missing) > 0:
		if i.held = append(i.held, missing...); len(rest) > 0 {
			return i.write(ctx, rest)
		}
	default:
		i.count(res, sent)
	}
	i.progress()
	return nil
}

func (i *importer) count(res *registryv1.ApplyResourcesResponse, sent []*resourcefile.Item) {
	for k, r := range res.GetResults() {
		if i.dryRun {
			i.seen[sent[k].Resource.GetResourceId()] = true
		}
		switch r.GetOutcome() {
		case registryv1.ApplyOutcome_APPLY_OUTCOME_CREATED:
			i.created++
		case registryv1.ApplyOutcome_APPLY_OUTCOME_UPDATED:
			i.updated++
		case registryv1.ApplyOutcome_APPLY_OUTCOME_UNCHANGED:
			i.unchanged++
		}
	}
}

// applyTries is how often a batch is sent to a server that cannot be reached:
// sending it again is safe.
const applyTries = 5

// apply sends what can be sent of a batch; check writes nothing.
func (i *importer) apply(ctx context.Context, batch []*resourcefile.Item, check bool) (*registryv1.ApplyResourcesResponse, []*resourcefile.Item, error) {
	req := &registryv1.ApplyResourcesRequest{DryRun: i.dryRun || check}
	var sent []*resourcefile.Item
	for _, item := range batch {
		if len(item.Problems) > 0 {
			continue
		}
		if !i.versions {
			item.Resource.Version = 0
		}
		sent = append(sent, item)
		req.Resources = append(req.Resources, item.Resource)
	}
	if len(sent) == 0 {
		return &registryv1.ApplyResourcesResponse{}, nil, nil
	}
	wait := i.c.retry.first
	for try := 1; ; try++ {
		res, err := i.a.resources.ApplyResources(ctx, req)
		if err == nil && len(res.GetResults()) != len(sent) {
			return nil, nil, fmt.Errorf("the server answered %d results for %d resources", len(res.GetResults()), len(sent))
		}
		if err == nil || try == applyTries || connect.CodeOf(err) != connect.CodeUnavailable {
			return res, sent, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(wait):
		}
		wait = min(2*wait, i.c.retry.most)
	}
}

// retryHeld sends what waits for its parents until nothing more is written.
func (i *importer) retryHeld(ctx context.Context) error {
	for len(i.held) > 0 {
		if i.dryRun {
			return i.checkHeld(ctx)
		}
		before := i.held
		i.held = nil
		for b := range slices.Chunk(before, i.batch) {
			if err := i.write(ctx, items(b)); err != nil {
				return err
			}
		}
		if len(i.held) == len(before) {
			return i.giveUp(ctx)
		}
	}
	return nil
}

func items(list []waiting) []*resourcefile.Item {
	out := make([]*resourcefile.Item, len(list))
	for k, w := range list {
		out[k] = w.item
	}
	return out
}

// giveUp says which parents are missing in the end.
func (i *importer) giveUp(ctx context.Context) error {
	for b := range slices.Chunk(i.held, i.batch) {
		res, sent, err := i.apply(ctx, items(b), true)
		if err != nil {
			return err
		}
		for k, r := range res.GetResults() {
			i.refused++
			for _, v := range r.GetViolations() {
				i.complain("line %d: %s: %s: %s", sent[k].At(v.GetField()), r.GetResourceId(), v.GetField(), v.GetProblem())
			}
		}
	}
	i.held = nil
	return nil
}

// checkHeld is for a dry run, which writes no parents: those of the file that
// are right count as there.
func (i *importer) checkHeld(ctx context.Context) error {
	for more := true; more; {
		more = false
		var still []waiting
		for _, w := range i.held {
			if !i.seen[w.needs] {
				still = append(still, w)
				continue
			}
			i.seen[w.item.Resource.GetResourceId()], more = true, true
			i.created++
		}
		i.held = still
	}
	return i.giveUp(ctx)
}

// complain shows a mistake.
func (i *importer) complain(format string, args ...any) {
	i.problems++
	i.say(format, args...)
}

func (i *importer) say(format string, args ...any) {
	i.line.clear()
	fmt.Fprintf(i.c.err, "%s %s\n", i.c.paint(i.c.err, "error:", text.Red), text.Clean(fmt.Sprintf(format, args...)))
}

// progress shows on a terminal how far the import is.
func (i *importer) progress() {
	done := i.created + i.updated + i.unchanged
	line := text.Count(done, "resource")
	if s := i.c.now().Sub(i.started).Seconds(); s > 0 {
		line += fmt.Sprintf(", %.0f per second", float64(done)/s)
	}
	if i.size > 0 {
		line = fmt.Sprintf("%3d%%  %s", min(100*i.read.Load()/i.size, 100), line)
	}
	if i.problems > 0 {
		line += ", " + text.Count(i.problems, "error")
	}
	i.line.show(line)
}

// imported is the answer of an import.
type imported struct {
	Created   int  `json:"created"`
	Updated   int  `json:"updated"`
	Unchanged int  `json:"unchanged"`
	Refused   int  `json:"refused"`
	Errors    int  `json:"errors"`
	DryRun    bool `json:"dryRun"`
}

func (i *importer) report() error {
	sum := imported{i.created, i.updated, i.unchanged, i.refused, i.problems, i.dryRun}
	took := i.c.now().Sub(i.started)
	err := i.c.print(result{msg: sum, print: func(w io.Writer, _ bool) error {
		verb := ""
		if i.dryRun {
			verb = "would be "
		}
		_, err := fmt.Fprintf(w, "%s%d created, %d updated, %d unchanged", verb, sum.Created, sum.Updated, sum.Unchanged)
		if err == nil && sum.Refused > 0 {
			_, err = fmt.Fprintf(w, ", %d not written", sum.Refused)
		}
		if err == nil {
			_, err = fmt.Fprintln(w)
		}
		return err
	}})
	if n := sum.Created + sum.Updated + sum.Unchanged; i.c.forPeople() && n > 0 && took > 0 {
		i.c.note("%s in %s, %.0f per second", text.Count(n, "resource"), text.Duration(took), float64(n)/took.Seconds())
	}
	if err == nil && i.problems > 0 {
		return exitStatus(exitFailed)
	}
	return err
}
