package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	policiesv1 "yunhe.dev/yunhe/gen/yunhe/policies/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	"yunhe.dev/yunhe/internal/jobfile"
)

// subject reads the file of a command about a file or a stored policy.
func (c *cli) subject(args []string, policy string) (*policiesv1.PolicyDocument, error) {
	if (len(args) == 1) == (policy != "") {
		return nil, usagef("want either a file or --policy")
	}
	if len(args) == 0 {
		return nil, nil
	}
	return c.readPolicy(args[0])
}

func policyTryCommand(c *cli) *cobra.Command {
	req := &policiesv1.TryPolicyRequest{}
	var job string
	cmd := &cobra.Command{
		Use: "try (FILE | --policy POLICY) --job (FILE | JOB)", Short: "Show what a policy would decide about a job now, beside what decides now",
		Long:    "Shows what would be decided about a job if the policy were issued, with the score table, and what the policies in force decide. Nothing is placed.",
		Example: "  yunhe policy try gold.yaml --job train.yaml\n  yunhe policy try --policy gold --version 4 --job job_01J9Z3Y5D8T0M4B6K7N2Q1R0SX",
		Args:    takes(0, 1, "the file of a policy"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if req.Document, err = c.subject(args, req.PolicyId); err != nil {
				return err
			}
			if _, err := os.Stat(job); err != nil && strings.HasPrefix(job, "job_") {
				req.JobId = job
			} else {
				jobs, err := jobfile.Read(job, c.in)
				if err != nil {
					return err
				}
				if len(jobs.Specs) != 1 {
					return usagef("--job: want a file of one job, it has %d", len(jobs.Specs))
				}
				req.Job = jobs.Specs[0]
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.policies.TryPolicy(cmd.Context(), req)
			if err != nil {
				return err
			}
			names := chosenCenters(&schedulerv1.ExplainJobResponse{Decisions: res.GetWithPolicy()})
			return c.print(result{msg: res, names: names, print: func(w io.Writer, color bool) error { return c.showTrial(w, color, res) }})
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.PolicyId, "policy", "", "try a stored policy")
	f.Int64Var(&req.Version, "version", 0, "this version of it (default: the latest)")
	f.StringVar(&job, "job", "", "the file of a job, or the ID of one")
	_ = cmd.MarkFlagRequired("job") // it was just declared
	return cmd
}

func (c *cli) showTrial(w io.Writer, color bool, res *policiesv1.TryPolicyResponse) error {
	if !res.GetMatches() {
		if _, err := fmt.Fprintf(w, "The policy does not match: %s.\n\n", text.Clean(res.GetReason())); err != nil {
			return err
		}
	}
	for i, d := range res.GetWithPolicy() {
		for _, x := range []struct {
			what string
			d    *schedulerv1.Decision
		}{{"With the policy", d}, {"Now", res.GetPresent()[i]}} {
			if _, err := fmt.Fprintf(w, "%s, by %s:\n", text.Paint(x.what, text.Bold, color), text.Clean(x.d.GetPolicy())); err != nil {
				return err
			}
			if err := c.explainDecision(w, color, x.d); err != nil {
				return err
			}
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
	}
	return nil
}

func policySimulateCommand(c *cli) *cobra.Command {
	req := &policiesv1.SimulatePolicyRequest{}
	cmd := &cobra.Command{
		Use: "simulate (FILE | --policy POLICY)", Short: "Play the latest jobs with a policy and without",
		Long: `Plays the latest jobs on the centers as they are, in the times they came and for
as long as they ran, with the code that schedules: by the policies in force, and as
if the policy were issued. It says what would start elsewhere, and what that does to
cost, energy and waiting. yunhe simulation compares more, in more detail.`,
		Args: takes(0, 1, "the file of a policy"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if req.Document, err = c.subject(args, req.PolicyId); err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.policies.SimulatePolicy(cmd.Context(), req)
			if err != nil {
				return err
			}
			return c.print(result{msg: res, print: func(w io.Writer, color bool) error { return showSimulation(w, color, res) }})
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.PolicyId, "policy", "", "simulate a stored policy")
	f.Int64Var(&req.Version, "version", 0, "this version of it (default: the latest)")
	f.Int32Var(&req.Jobs, "jobs", 0, "this many of the latest jobs (default 200)")
	return cmd
}

func showSimulation(w io.Writer, color bool, res *policiesv1.SimulatePolicyResponse) error {
	var f text.Facts
	f.Add("Jobs", fmt.Sprintf("%d, of which the policy matches %d", res.GetJobs(), res.GetMatched()))
	f.Add("Pieces", fmt.Sprintf("%d that start together: %d elsewhere, %d find a place only with it, %d find none with it", res.GetTasks(), res.GetMoved(), res.GetGained(), res.GetLost()))
	a, b := res.GetPresent(), res.GetWithPolicy()
	f.Add("Cost", text.Fen(a.GetPriceFen())+" now, "+text.Fen(b.GetPriceFen())+" with it")
	f.Add("Energy", fmt.Sprintf("%s kJ now, %s kJ with it, of %s", number(float64(a.GetEnergyJoules())/1000, 1), number(float64(b.GetEnergyJoules())/1000, 1), text.Count(int(a.GetEnergyTasks()), "piece")))
	f.Add("Waiting", fmt.Sprintf("%s s on average now, %s s with it; %s s and %s s at the 95th percentile", number(a.GetWaitingMeanSeconds(), 1), number(b.GetWaitingMeanSeconds(), 1),
		number(a.GetWaitingP95Seconds(), 1), number(b.GetWaitingP95Seconds(), 1)))
	if a.GetNotStarted()+b.GetNotStarted() > 0 {
		f.Add("Not started", fmt.Sprintf("%d now, %d with it", a.GetNotStarted(), b.GetNotStarted()))
	}
	if err := f.Write(w, color); err != nil {
		return err
	}
	all := maps.Clone(res.GetPresentCenters())
	if all == nil {
		all = map[string]int32{}
	}
	maps.Copy(all, res.GetPolicyCenters())
	t := text.NewTable("CENTER", ">NOW", ">WITH THE POLICY")
	for _, id := range slices.Sorted(maps.Keys(all)) {
		t.Row(id, res.GetPresentCenters()[id], res.GetPolicyCenters()[id])
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := t.Write(w, color); err != nil || len(res.GetMoves()) == 0 {
		return err
	}
	t = text.NewTable("JOB", "NOW AT", "THEN AT", ">WAITS NOW, s", ">THEN, s")
	for _, m := range res.GetMoves() {
		t.Row(m.GetJobId(), orDash(m.GetFrom()), orDash(m.GetTo()), number(m.GetWaitingSecondsNow(), 1), number(m.GetWaitingSecondsThen(), 1))
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.Write(w, color)
}

func policyCompareCommand(c *cli) *cobra.Command {
	return group("ab", "", "Compare versions of a policy on real jobs", policyCompareStartCommand(c), policyCompareStatusCommand(c), policyCompareListCommand(c), policyCompareEndCommand(c))
}

func policyCompareStartCommand(c *cli) *cobra.Command {
	req := &policiesv1.StartPolicyTestRequest{}
	var arms []string
	cmd := &cobra.Command{
		Use: "start POLICY --arm VERSION:PERCENT...", Short: "Share the jobs of a policy out among versions",
		Long: `Shares the jobs that a policy in force matches out among versions of it, by a hash
of their IDs. The arms are called a, b, c in the order given, or NAME=VERSION:PERCENT.`,
		Example: "  yunhe policy ab start gold --arm 3:50 --arm 4:50",
		Args:    takes(1, 1, "the ID of a policy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.PolicyId = args[0]
			for _, text := range arms {
				name, rest, named := strings.Cut(text, "=")
				if !named {
					name, rest = "", text
				}
				version, percent, _ := strings.Cut(rest, ":")
				v, err := strconv.ParseInt(version, 10, 64)
				n, err2 := strconv.ParseInt(strings.TrimSuffix(percent, "%"), 10, 32)
				if err != nil || err2 != nil {
					return usagef("--arm: want VERSION:PERCENT or NAME=VERSION:PERCENT, got %q", text)
				}
				req.Arms = append(req.Arms, &policiesv1.PolicyArm{Name: name, Version: v, Percent: int32(n)})
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			t, err := a.policies.StartPolicyTest(cmd.Context(), req)
			if err != nil {
				return err
			}
			return c.printPolicyTest(t)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&arms, "arm", nil, "a version and its share of the jobs in percent (repeatable)")
	f.StringVar(&req.Reason, "reason", "", "why")
	return cmd
}

func policyCompareStatusCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "status TEST", Short: "Show how the versions do",
		Args: takes(1, 1, "the ID of a comparison"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			t, err := a.policies.GetPolicyTest(cmd.Context(), &policiesv1.GetPolicyTestRequest{TestId: args[0]})
			if err != nil {
				return err
			}
			return c.printPolicyTest(t)
		},
	}
}

func policyCompareListCommand(c *cli) *cobra.Command {
	req := &policiesv1.ListPolicyTestsRequest{}
	cmd := &cobra.Command{
		Use: "list", Short: "List the comparisons",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.policies.ListPolicyTests(cmd.Context(), req)
			if err != nil {
				return err
			}
			var names []string
			t := text.NewTable("TEST", "POLICY", "STATE", "ARMS", "STARTED", "WINNER")
			for _, x := range res.GetTests() {
				names = append(names, x.GetTestId())
				var arms []string
				for _, a := range x.GetArms() {
					arms = append(arms, fmt.Sprintf("%s=%d:%d%%", a.GetName(), a.GetVersion(), a.GetPercent()))
				}
				t.Row(x.GetTestId(), x.GetPolicyId(), testState(x), strings.Join(arms, " "), c.ago(x.GetStartedAt()), orDash(x.GetWinner()))
			}
			return c.print(result{msg: res, names: names, print: t.Write})
		},
	}
	cmd.Flags().StringVar(&req.PolicyId, "policy", "", "only those of this policy")
	return cmd
}

func testState(t *policiesv1.PolicyTest) string {
	if t.GetRunning() {
		return "running"
	}
	return "ended"
}

func policyCompareEndCommand(c *cli) *cobra.Command {
	req := &policiesv1.EndPolicyTestRequest{}
	cmd := &cobra.Command{
		Use: "end TEST", Short: "End a comparison, and issue the winner",
		Example: "  yunhe policy ab end ptest_01J9Z3Y5D8T0M4B6K7N2Q1R0SX --winner b",
		Args:    takes(1, 1, "the ID of a comparison"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			req.TestId = args[0]
			t, err := a.policies.EndPolicyTest(cmd.Context(), req)
			if err != nil {
				return err
			}
			return c.printPolicyTest(t)
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Winner, "winner", "", "issue the version of this arm (default: what was in force stays)")
	f.StringVar(&req.Reason, "reason", "", "why")
	return cmd
}

func (c *cli) printPolicyTest(t *policiesv1.PolicyTest) error {
	return c.print(result{msg: t, names: []string{t.GetTestId()}, print: func(w io.Writer, color bool) error {
		if _, err := fmt.Fprintf(w, "%s  policy %s, %s\n", t.GetTestId(), t.GetPolicyId(), joinNonEmpty(", winner ", testState(t), t.GetWinner())); err != nil {
			return err
		}
		mean := func(m *policiesv1.PolicyMean, decimals int) string {
			if m.GetJobs() == 0 {
				return "-"
			}
			return number(m.GetMean(), decimals) + " ± " + number(m.GetStandardError(), decimals)
		}
		table := text.NewTable("ARM", ">VERSION", ">SHARE", ">JOBS", ">ENDED", ">FAILED", ">WAITING s", ">RUNNING s", ">COST fen", ">ENERGY J")
		for _, a := range t.GetArms() {
			r := a.GetResult()
			if r == nil {
				r = &policiesv1.PolicyArmResult{}
			}
			table.Row(a.GetName(), a.GetVersion(), fmt.Sprintf("%d%%", a.GetPercent()), r.GetJobs(), r.GetEnded(), r.GetFailed(), mean(r.GetWaitingSeconds(), 3), mean(r.GetDurationSeconds(), 3),
				mean(r.GetCostFen(), 4), mean(r.GetEnergyJoules(), 1))
		}
		if err := table.Write(w, color); err != nil || len(t.GetComparisons()) == 0 {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		table = text.NewTable("ARM", "FIGURE", ">DIFFERENCE", "95 % INTERVAL", "WHAT IT MEANS")
		for _, x := range t.GetComparisons() {
			difference, interval := "-", "-"
			if x.GetLow() != 0 || x.GetHigh() != 0 || x.GetDifference() != 0 || x.GetClear() {
				difference, interval = number(x.GetDifference(), 4), number(x.GetLow(), 4)+" to "+number(x.GetHigh(), 4)
			}
			table.Row(x.GetArm(), x.GetFigure(), difference, interval, x.GetNote())
		}
		return table.Write(w, color)
	}})
}

func policyModuleCommand(c *cli) *cobra.Command {
	return group("module", "", "WebAssembly modules that filter or score centers", policyModuleUploadCommand(c), policyModuleListCommand(c), policyModuleRestoreCommand(c), policyModuleDeleteCommand(c))
}

// maxModule is what the server takes.
const maxModule = 256 << 10

func policyModuleUploadCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "upload MODULE FILE", Short: "Add a version of a module",
		Example: "  yunhe policy module upload headroom headroom.wasm",
		Args:    takes(2, 2, "the ID of a module and a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			info, err := os.Stat(args[1])
			if err != nil {
				return usagef("cannot read %s: %v", args[1], err)
			}
			if !info.Mode().IsRegular() || info.Size() > maxModule {
				return usagef("want a file of at most %d KiB, got %s", maxModule>>10, args[1])
			}
			code, err := os.ReadFile(args[1])
			if err != nil {
				return usagef("cannot read %s: %v", args[1], err)
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			m, err := a.policies.UploadPolicyModule(cmd.Context(), &policiesv1.UploadPolicyModuleRequest{ModuleId: args[0], Code: code})
			if err != nil {
				return err
			}
			return c.printModules(m, m)
		},
	}
}

func (c *cli) printModules(msg any, list ...*policiesv1.PolicyModule) error {
	var names []string
	t := text.NewTable("MODULE", ">VERSION", "FILTERS", "SCORES", ">BYTES", "STATE", "CREATED", "LAST FAULT")
	for _, m := range list {
		names = append(names, m.GetModuleId())
		state, fault := "ready", "-"
		if m.GetIsolated() {
			state = "isolated"
		}
		if m.GetFault() != "" {
			fault = m.GetFault() + " (" + c.ago(m.GetFaultAt()) + ")"
		}
		t.Row(m.GetModuleId(), m.GetVersion(), yesNo(m.GetFilters()), yesNo(m.GetScores()), m.GetSizeBytes(), state, c.ago(m.GetCreatedAt()), fault)
	}
	return c.print(result{msg: msg, names: names, print: t.Write})
}

func policyModuleListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the modules with their faults",
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.policies.ListPolicyModules(cmd.Context(), &policiesv1.ListPolicyModulesRequest{})
			if err != nil {
				return err
			}
			return c.printModules(res, res.GetModules()...)
		},
	}
}

func policyModuleRestoreCommand(c *cli) *cobra.Command {
	var version int64
	cmd := &cobra.Command{
		Use: "restore MODULE --version VERSION", Short: "Let a module run again that was isolated",
		Args: takes(1, 1, "the ID of a module"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			m, err := a.policies.RestorePolicyModule(cmd.Context(), &policiesv1.RestorePolicyModuleRequest{ModuleId: args[0], Version: version})
			if err != nil {
				return err
			}
			return c.printModules(m, m)
		},
	}
	cmd.Flags().Int64Var(&version, "version", 0, "this version")
	_ = cmd.MarkFlagRequired("version") // it was just declared
	return cmd
}

func policyModuleDeleteCommand(c *cli) *cobra.Command {
	var version int64
	cmd := &cobra.Command{
		Use: "delete MODULE --version VERSION", Short: "Delete a version that no policy in force uses",
		Args: takes(1, 1, "the ID of a module"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if _, err := a.policies.DeletePolicyModule(cmd.Context(), &policiesv1.DeletePolicyModuleRequest{ModuleId: args[0], Version: version}); err != nil {
				return err
			}
			c.note("version %d of %s deleted", version, args[0])
			return nil
		},
	}
	cmd.Flags().Int64Var(&version, "version", 0, "this version")
	_ = cmd.MarkFlagRequired("version") // it was just declared
	return cmd
}
