package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	"yunhe.dev/yunhe/internal/scheduler/place"
	"yunhe.dev/yunhe/internal/sim"
	"yunhe.dev/yunhe/internal/sim/train"
)

func simTrainCommand(c *cli) *cobra.Command {
	var f simFlags
	var goal, queue, out, name string
	opt := train.Options{}
	cmd := &cobra.Command{
		Use: "train (--nodes FILE --jobs FILE | --generate RECIPE)", Short: "Learn weights of policies for a network of centers",
		Long: `Plays work on a network of centers again and again with weights that are drawn,
and keeps those that serve the goal best: one set for all jobs, and one for each
class of jobs (short or long, one replica or several). What was learned is
chosen only if it is better than every preset on work it did not learn from;
the figures shown last are of other work again. 1 is what the preset balanced
comes to, less is better.

Recorded jobs are cut by arrival: half to learn from, a quarter to choose by, a
quarter to report on. A recipe is made with other seeds for each: three to
learn from, two to choose by, three to report on.

--out writes policy documents that "yunhe policy create" takes: from there on,
what was learned is a policy like any other.`,
		Example: `  yunhe sim train --generate centers=40,jobs=2000,load=0.9 --goal completion=1,cost=1,energy=1
  yunhe sim train --nodes state.json --jobs state.json --goal cost=1 --out learned.yaml`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if opt.Goal, err = parseGoal(goal); err != nil {
				return err
			}
			if opt.Queue, err = sim.ParseQueue(queue); err != nil {
				return err
			}
			in, err := c.trainingInputs(f)
			if err != nil {
				return err
			}
			if c.forPeople() {
				opt.Progress = func(done, all int) { c.note("generation %d of %d", done, all) }
			}
			r, err := train.Run(cmd.Context(), in, opt)
			if err != nil {
				return err
			}
			if out != "" {
				docs, err := learnedDocuments(r, name, goal)
				if err != nil {
					return err
				}
				if err := os.WriteFile(out, docs, 0o644); err != nil {
					return err
				}
			}
			return c.print(result{msg: r, names: []string{r.Chosen}, print: func(w io.Writer, color bool) error {
				t := text.NewTable("POLICY", ">TO CHOOSE BY", ">HELD OUT", "WEIGHTS")
				for _, s := range r.Tried {
					weights := weightsText(s.All)
					if s.Classes != nil {
						weights = "by class, see below"
					}
					t.Row(s.Name, fmt.Sprintf("%.4f", s.Choosing), fmt.Sprintf("%.4f", s.Held), weights)
				}
				if err := t.Write(w, color); err != nil {
					return err
				}
				fmt.Fprintln(w)
				for _, s := range r.Tried {
					for i, x := range s.Classes {
						fmt.Fprintf(w, "%s: %s\n", train.Classes()[i].Title, weightsText(x))
					}
				}
				fmt.Fprintf(w, "\nchosen: %s; on work held out %.2f %% better than the best preset (%d simulations)\n", r.Chosen, r.Gain, r.Runs)
				return nil
			}})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.nodes, "nodes", "", "file with centers")
	fl.StringVar(&f.jobs, "jobs", "", "file with jobs; may be the same")
	fl.StringVar(&f.generate, "generate", "", "make up centers and jobs, such as centers=40,jobs=2000,load=0.9")
	fl.StringVar(&goal, "goal", "completion=1,cost=1,energy=1", "what to make less: completion, cost and energy, weighted")
	fl.StringVar(&queue, "queue", "", "order and settings of the queue, as for sim run")
	fl.IntVar(&opt.Population, "population", 16, "weights drawn in a generation")
	fl.IntVar(&opt.Generations, "generations", 6, "generations for all jobs, and for each class")
	fl.Uint64Var(&opt.Seed, "seed", 1, "of what is drawn")
	fl.StringVar(&out, "out", "", "write policy documents (YAML) to this file")
	fl.StringVar(&name, "name", "learned", "ID the policies begin with")
	return cmd
}

func parseGoal(s string) (g train.Goal, err error) {
	for item := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		v, err := strconv.ParseFloat(value, 64)
		to := map[string]*float64{"completion": &g.Completion, "cost": &g.Cost, "energy": &g.Energy}[name]
		if to == nil || err != nil || !(v >= 0 && v <= 1e6) {
			return g, usagef("--goal %s: want completion, cost and energy with weights from 0, such as cost=2,energy=1", item)
		}
		*to = v
	}
	return g, nil
}

// trainingInputs reads or makes what is learned from, chosen by and reported on.
func (c *cli) trainingInputs(f simFlags) (train.Inputs, error) {
	if f.generate == "" {
		in, err := c.readSim(f)
		if err != nil {
			return train.Inputs{}, err
		}
		return train.Split(in)
	}
	if f.nodes != "" || f.jobs != "" {
		return train.Inputs{}, usagef("--generate makes what --nodes and --jobs name; give one or the other")
	}
	r, err := sim.ParseRecipe(f.generate)
	if err != nil {
		return train.Inputs{}, err
	}
	if r.Centers == 0 {
		return train.Inputs{}, usagef("--generate must make centers, such as centers=40,jobs=2000; weights are of networks of centers")
	}
	var all []*sim.Input
	for range 8 {
		all = append(all, r.Make())
		r.Seed++
	}
	return train.Inputs{Learn: all[:3], Choose: all[3:5], Report: all[5:]}, nil
}

func weightsText(w map[string]int32) string {
	ids := slices.Sorted(maps.Keys(w))
	slices.SortStableFunc(ids, func(a, b string) int { return int(w[b] - w[a]) })
	for i, id := range ids {
		ids[i] = fmt.Sprintf("%s=%d", id, w[id])
	}
	return strings.Join(ids, " ")
}

// learnedBy names how package train searches.
const learnedBy = "cross-entropy"

// learnedDocument is a policy document, as the API has it.
type learnedDocument struct {
	PolicyID    string         `yaml:"policy_id"`
	Title       string         `yaml:"title"`
	Description string         `yaml:"description"`
	Priority    int            `yaml:"priority"`
	MatchRules  []learnedMatch `yaml:"match_rules,omitempty"`
	Rules       learnedRules   `yaml:"rules"`
	AIAlgorithm string         `yaml:"ai_algorithm,omitempty"`
}
type learnedMatch struct {
	Expression  string `yaml:"expression"`
	Description string `yaml:"description"`
}
type learnedRules struct {
	Weights map[string]int32 `yaml:"weights,omitempty"`
	Preset  string           `yaml:"preset,omitempty"`
}

// learnedDocuments writes the chosen sets as policy documents.
func learnedDocuments(r *train.Report, name, goal string) ([]byte, error) {
	chosen := r.Tried[0]
	about := fmt.Sprintf("Learned in simulation for %s: %.4f of the preset balanced on work held out.", goal, chosen.Held)
	var docs []learnedDocument
	switch {
	case chosen.Classes != nil:
		for i, k := range train.Classes() {
			docs = append(docs, learnedDocument{PolicyID: name + "-" + k.ID, Title: "Learned: " + k.Title, Description: about, Priority: 10,
				MatchRules: []learnedMatch{{k.Match, k.Title}}, Rules: learnedRules{Weights: chosen.Classes[i]}, AIAlgorithm: learnedBy})
		}
	default:
		d := learnedDocument{PolicyID: name, Title: "Learned", Description: about, Rules: learnedRules{Weights: chosen.All}, AIAlgorithm: learnedBy}
		if _, ok := place.Preset(chosen.Name); ok {
			d.Rules, d.AIAlgorithm = learnedRules{Preset: chosen.Name}, ""
		}
		docs = append(docs, d)
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	for _, d := range docs {
		if err := e.Encode(d); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), e.Close()
}
