package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
)

func jobExplainCommand(c *cli) *cobra.Command {
	var sel selection
	cmd := &cobra.Command{
		Use: "explain JOB", Short: "Show why each replica is where it is",
		Long: `Shows every decision about the job's replicas: each candidate center with its
score (0 to 100) under each policy, the policies' weights, the weighted final
score and the rank, or the reasons why it was left out. For what still waits:
what it waits for, when it may start, and what a decision would say now. With -o wide also the facts that were scored and
policies of weight 0.

-o json lists for every replica every candidate with each policy's score,
weight and weighted score, the final score, or the filter reasons.`,
		Args: takes(1, 1, "the ID of a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.scheduler.ExplainJob(cmd.Context(), &schedulerv1.ExplainJobRequest{JobId: args[0]})
			if err != nil {
				return err
			}
			if sel.task != "" || sel.replica >= 0 {
				job, err := a.jobs.GetJob(cmd.Context(), &jobsv1.GetJobRequest{JobId: args[0]})
				if err != nil {
					return err
				}
				task, err := sel.resolve(job)
				if err != nil {
					return err
				}
				res.Decisions = slices.DeleteFunc(res.GetDecisions(), func(d *schedulerv1.Decision) bool {
					return !sel.has(task, d.GetTaskIndex(), d.GetReplicaIndex())
				})
			}
			return c.print(result{msg: res, names: chosenCenters(res), print: func(w io.Writer, color bool) error {
				task := func(i int32) string {
					for _, d := range res.GetDecisions() {
						if d.GetTaskIndex() == i {
							return d.GetTaskName()
						}
					}
					return fmt.Sprint(i)
				}
				if err := c.showWaits(w, color, res.GetWaits(), task, c.estimate(res.GetEstimatedStart() != nil, c.stamp(res.GetEstimatedStart()), res.GetEstimateBasis())); err != nil {
					return err
				}
				if f := res.GetRunForecast(); f != nil {
					if _, err := fmt.Fprintln(w, foretold(f)); err != nil {
						return err
					}
				}
				if len(res.GetWaits()) > 0 && len(res.GetDecisions()) > 0 {
					if _, err := fmt.Fprintln(w); err != nil {
						return err
					}
				}
				return c.explainJob(w, color, res)
			}})
		},
	}
	selectionFlags(cmd, &sel)
	return cmd
}

// foretold says how long a run will take.
func foretold(f *schedulerv1.RunForecast) string {
	span := func(s int64) string { return text.Duration(time.Duration(s) * time.Second) }
	if f.GetRuns() == 0 {
		return "runs for " + span(f.GetMedianSeconds()) + ": " + text.Clean(f.GetBasis())
	}
	return "runs for " + span(f.GetMedianSeconds()) + ", nine of ten for no more than " + span(f.GetHighSeconds()) + ": " + text.Clean(f.GetBasis())
}

// chosenCenters returns the centers chosen, each once, sorted.
func chosenCenters(res *schedulerv1.ExplainJobResponse) []string {
	var ids []string
	for _, d := range res.GetDecisions() {
		if d.GetAiCenterId() != "" {
			ids = append(ids, d.GetAiCenterId())
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// shownDecisions is how many tables a person reads; -o wide shows all.
const shownDecisions = 20

func (c *cli) explainJob(w io.Writer, color bool, res *schedulerv1.ExplainJobResponse) error {
	if len(res.GetDecisions()) == 0 {
		c.note("no decision was made about %s", res.GetJobId())
		return nil
	}
	for i, d := range res.GetDecisions() {
		if i == shownDecisions && !c.wide() {
			c.note("and %s more; -o wide shows all, --task and --replica narrow", text.Count(len(res.GetDecisions())-i, "decision"))
			return nil
		}
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := c.explainDecision(w, color, d); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) explainDecision(w io.Writer, color bool, d *schedulerv1.Decision) error {
	title := text.Clean(fmt.Sprintf("%s/%d", d.GetTaskName(), d.GetReplicaIndex()))
	if d.GetAttempt() > 1 {
		title += fmt.Sprintf(" run %d", d.GetAttempt())
	}
	what := text.Paint("waits", text.Yellow, color)
	if d.GetAiCenterId() != "" {
		what = "→ " + text.Paint(text.Clean(chosenTitle(d)), text.Green, color)
	}
	line := text.Paint(title, text.Bold, color) + "  " + what
	if d.GetDecidedAt() != nil {
		line += "  " + text.Paint("decided "+c.ago(d.GetDecidedAt()), text.Dim, color)
	}
	if _, err := fmt.Fprintln(w, line); err != nil {
		return err
	}
	if d.GetSummary() != "" {
		if _, err := fmt.Fprintln(w, text.Clean(d.GetSummary())); err != nil {
			return err
		}
	}
	if len(d.GetCandidates()) == 0 {
		return nil
	}
	t := c.scoreTable(d)
	lines := t.Lines(color)
	if !c.wide() && text.Width(t.Lines(false)[0]) > c.columns(w) {
		lines = c.tallScores(d, c.columns(w)).Lines(color)
		lines = append(lines, c.leftOut(d, color)...)
	}
	if c.wide() {
		lines = append(lines, networkSources(d, color)...)
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// networkSources says where what was known of the network to each candidate was
// from.
func networkSources(d *schedulerv1.Decision, color bool) (lines []string) {
	for _, k := range ranked(d.GetCandidates()) {
		if s := k.GetNetworkSource(); s != "" {
			lines = append(lines, text.Paint("network to "+text.Clean(k.GetAiCenterId()+": "+s), text.Dim, color))
		}
	}
	return lines
}

// columns returns how many cells a line of w has; what is no terminal counts
// as a wide one.
func (c *cli) columns(w io.Writer) int {
	if columns, _, ok := c.screen(w); ok {
		return columns
	}
	return 120
}

func chosenTitle(d *schedulerv1.Decision) string {
	for _, k := range d.GetCandidates() {
		if k.GetAiCenterId() == d.GetAiCenterId() {
			return candidateTitle(k)
		}
	}
	return d.GetAiCenterId()
}

// scoreTable has a row per candidate, best first, and a column per policy.
func (c *cli) scoreTable(d *schedulerv1.Decision) *text.Table {
	policies, weights := c.policiesOf(d)
	columns := []string{">RANK", "", "CENTER"}
	for _, p := range policies {
		columns = append(columns, ">"+fmt.Sprintf("%s ×%s", p, number(weights[p], 3)))
	}
	columns = append(columns, ">FINAL", "LEFT OUT BECAUSE")
	reasons := slices.ContainsFunc(d.GetCandidates(), func(k *schedulerv1.CandidateScore) bool { return len(k.GetFilterReasons()) > 0 })
	if !reasons {
		columns = columns[:len(columns)-1]
	}
	t := text.NewTable(columns...)
	for _, k := range ranked(d.GetCandidates()) {
		rank, mark, final := "-", text.Cell{Text: " "}, text.Cell{Text: "-", Color: text.Dim}
		if k.GetRank() > 0 {
			rank = fmt.Sprint(k.GetRank())
			final = text.Cell{Text: number(k.GetFinalScore(), 2)}
		}
		if k.GetChosen() {
			mark, final.Color = text.Cell{Text: "*", Color: text.Green}, text.Green
		}
		row := []any{rank, mark, candidateTitle(k)}
		for _, p := range policies {
			row = append(row, c.scoreText(k, p))
		}
		row = append(row, final)
		if reasons {
			why := text.Cell{Text: strings.Join(k.GetFilterReasons(), "; "), Color: text.Yellow}
			if why.Text == "" {
				why = text.Cell{Text: " "}
			}
			row = append(row, why)
		}
		t.Row(row...)
	}
	return t
}

// scoreText is the score of a candidate under a policy, with the fact behind
// it if wide.
func (c *cli) scoreText(k *schedulerv1.CandidateScore, policy string) string {
	for _, s := range k.GetScores() {
		if s.GetPolicyId() == policy && c.wide() && s.GetFact() != "" {
			return fmt.Sprintf("%s: %d", s.GetFact(), s.GetScore())
		}
	}
	return scoreOf(k, policy)
}

// tallScores has a row per policy and a column per candidate, best first: for
// many policies. It shows the candidates that fit into columns, at least one.
func (c *cli) tallScores(d *schedulerv1.Decision, columns int) *text.Table {
	policies, weights := c.policiesOf(d)
	var candidates []*schedulerv1.CandidateScore
	for _, k := range ranked(d.GetCandidates()) {
		if k.GetRank() > 0 {
			candidates = append(candidates, k)
		}
	}
	shown := len(candidates)
	for {
		t := tallTable(policies, weights, candidates[:shown])
		if shown <= 1 || text.Width(t.Lines(false)[0]) <= columns {
			if shown < len(candidates) {
				c.note("the best %d of %d candidates; -o wide shows all", shown, len(candidates))
			}
			return t
		}
		shown--
	}
}

func tallTable(policies []string, weights map[string]float64, candidates []*schedulerv1.CandidateScore) *text.Table {
	header := []string{"POLICY", ">WEIGHT"}
	final := []any{text.Cell{Text: "final score", Color: text.Bold}, " "}
	rank := []any{"rank", " "}
	for _, k := range candidates {
		header = append(header, ">"+text.Clean(candidateTitle(k)))
		cell, place := text.Cell{Text: number(k.GetFinalScore(), 2), Color: text.Bold}, text.Cell{Text: fmt.Sprint(k.GetRank())}
		if k.GetChosen() {
			cell.Color, place = text.Green, text.Cell{Text: "* " + place.Text, Color: text.Green}
		}
		final, rank = append(final, cell), append(rank, place)
	}
	t := text.NewTable(header...)
	for _, p := range policies {
		row := []any{p, number(weights[p], 3)}
		for _, k := range candidates {
			row = append(row, scoreOf(k, p))
		}
		t.Row(row...)
	}
	t.Row(final...)
	t.Row(rank...)
	return t
}

// leftOut lists the candidates that were left out, and why.
func (c *cli) leftOut(d *schedulerv1.Decision, color bool) []string {
	t := text.NewTable("LEFT OUT", "BECAUSE")
	for _, k := range ranked(d.GetCandidates()) {
		if k.GetRank() == 0 {
			t.Row(candidateTitle(k), text.Cell{Text: strings.Join(k.GetFilterReasons(), "; "), Color: text.Yellow})
		}
	}
	if t.Len() == 0 {
		return nil
	}
	return t.Lines(color)
}

func scoreOf(k *schedulerv1.CandidateScore, policy string) string {
	for _, s := range k.GetScores() {
		if s.GetPolicyId() == policy {
			return fmt.Sprint(s.GetScore())
		}
	}
	return "-"
}

func candidateTitle(k *schedulerv1.CandidateScore) string {
	if name := k.GetCenterName(); name != "" && name != k.GetAiCenterId() {
		return fmt.Sprintf("%s (%s)", name, k.GetAiCenterId())
	}
	return k.GetAiCenterId()
}

// policiesOf returns the policies of a decision, in the order of the API, with
// their weights; those of weight 0, which decide nothing, if wide.
func (c *cli) policiesOf(d *schedulerv1.Decision) (ids []string, weights map[string]float64) {
	weights = map[string]float64{}
	for _, k := range d.GetCandidates() {
		for _, s := range k.GetScores() {
			if _, ok := weights[s.GetPolicyId()]; !ok && (s.GetWeight() != 0 || c.wide()) {
				ids = append(ids, s.GetPolicyId())
			}
			weights[s.GetPolicyId()] = s.GetWeight()
		}
	}
	return ids, weights
}

// ranked returns the candidates by rank, those left out last, by ID.
func ranked(candidates []*schedulerv1.CandidateScore) []*schedulerv1.CandidateScore {
	sorted := slices.Clone(candidates)
	slices.SortStableFunc(sorted, func(a, b *schedulerv1.CandidateScore) int {
		switch {
		case a.GetRank() == b.GetRank():
			return strings.Compare(a.GetAiCenterId(), b.GetAiCenterId())
		case a.GetRank() == 0:
			return 1
		case b.GetRank() == 0:
			return -1
		}
		return int(a.GetRank() - b.GetRank())
	})
	return sorted
}

// number formats a score or weight with at most this many decimals.
func number(x float64, decimals int) string {
	s := strconv.FormatFloat(x, 'f', decimals, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}
