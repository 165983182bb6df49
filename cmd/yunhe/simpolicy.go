package main

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/policies"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/sim"
)

// live names what decided where an input was recorded.
const live = "live"

// simPolicy is a policy of --policy. Runs beside each other have one each.
type simPolicy struct {
	make  func() (sim.Policy, error)
	close func()
}

// simPolicies reads --policy: built-in policies, documents, and what decided
// where the input was recorded, which is what is meant by none.
func (c *cli) simPolicies(ctx context.Context, f simFlags, in *sim.Input) (out []simPolicy, err error) {
	texts := f.policies
	if len(texts) == 0 && in.Recorded != nil {
		texts = []string{live}
	}
	modules, err := readModules(f.modules)
	if err != nil {
		return nil, err
	}
	seen := []string{}
	for _, text := range texts {
		parts := []string{text}
		if !strings.Contains(text, "=") {
			parts = strings.Split(text, ",")
		}
		for _, part := range parts {
			if part = strings.TrimSpace(part); slices.Contains(seen, part) {
				return out, usagef("--policy %q is given twice", part)
			}
			seen = append(seen, part)
			if part != live && !isDocument(part) {
				list, err := sim.ParsePolicies([]string{part}, len(in.Centers) > 0)
				if err != nil {
					return out, err
				}
				out = append(out, simPolicy{func() (sim.Policy, error) { return list[0], nil }, func() {}})
				continue
			}
			if f.fill > 0 {
				return out, usagef("--policy %s does not go with --fill", part)
			}
			if len(in.Centers) == 0 {
				return out, usagef("--policy %s is for centers, and there are nodes", part)
			}
			x, err := c.onBench(ctx, part, in, modules)
			if err != nil {
				return out, err
			}
			out = append(out, x)
		}
	}
	if len(out) == 0 {
		list, err := sim.ParsePolicies(nil, len(in.Centers) > 0)
		if err != nil {
			return nil, err
		}
		out = append(out, simPolicy{func() (sim.Policy, error) { return list[0], nil }, func() {}})
	}
	return out, nil
}

// onBench is a document, beside what was in force where the input was recorded;
// or only that.
func (c *cli) onBench(ctx context.Context, name string, in *sim.Input, modules []policies.ModuleFile) (simPolicy, error) {
	rec, set := in.Recorded, place.Presets()[0]
	if rec == nil && name == live {
		return simPolicy{}, usagef("--policy live goes with what \"yunhe sim record\" wrote")
	}
	if rec == nil {
		rec = &sim.Recording{Start: time.Unix(0, 0).UTC()}
	}
	if in.Recorded != nil {
		var err error
		if set, err = rec.Set(); err != nil {
			return simPolicy{}, err
		}
	}
	var docs []policies.Document
	title := name
	if name != live {
		d, err := c.readPolicy(name)
		if err != nil {
			return simPolicy{}, err
		}
		doc := policies.DocumentIn(d)
		docs, title = append(docs, doc), doc.ID
	}
	var benches []*policies.Bench
	return simPolicy{
		make: func() (sim.Policy, error) {
			b, err := policies.NewBench(ctx, rec.Policies, docs, modules)
			if err != nil {
				return sim.Policy{}, inFile(name, err)
			}
			benches = append(benches, b)
			return b.Policy(ctx, title, set, rec.Start), nil
		},
		close: func() {
			for _, b := range benches {
				b.Close()
			}
		},
	}, nil
}

// readModules reads --module.
func readModules(texts []string) (out []policies.ModuleFile, err error) {
	for _, text := range texts {
		name, path, ok := strings.Cut(text, "=")
		id, version, ok2 := strings.Cut(name, "@")
		n, err := strconv.ParseInt(version, 10, 64)
		if !ok || !ok2 || err != nil || n < 1 {
			return nil, usagef("--module: want ID@VERSION=FILE, got %q", text)
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if info.Size() > maxModule {
			return nil, usagef("--module: want a file of at most %d KiB, got %s", maxModule>>10, path)
		}
		code, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		out = append(out, policies.ModuleFile{ID: id, Version: n, Code: code})
	}
	return out, nil
}
