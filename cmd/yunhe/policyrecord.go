package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	policiesv1 "yunhe.dev/yunhe/gen/yunhe/policies/v1"
	"yunhe.dev/yunhe/internal/jobfile"
)

// policyRecordCommands are those about policies as data.
func policyRecordCommands(c *cli) []*cobra.Command {
	return []*cobra.Command{
		policyRecordsCommand(c), policyGetCommand(c), policyWriteCommand(c, true), policyWriteCommand(c, false), policyValidateCommand(c), policyTryCommand(c), policySimulateCommand(c),
		policyIssueCommand(c), policyWithdrawCommand(c), policyRollBackCommand(c), policyDeleteCommand(c), policyVersionsCommand(c), policyDiffCommand(c), policyEventsCommand(c),
		policyCompareCommand(c), policyModuleCommand(c),
	}
}

// readPolicy reads a policy's file.
func (c *cli) readPolicy(path string) (*policiesv1.PolicyDocument, error) {
	d := &policiesv1.PolicyDocument{}
	return d, jobfile.Decode(path, c.in, d)
}

func stateOf(s policiesv1.PolicyState) string { return enumName(s.String(), "POLICY_STATE_") }

func policyRecordsCommand(c *cli) *cobra.Command {
	req := &policiesv1.ListPolicyRecordsRequest{}
	var p paging
	cmd := &cobra.Command{
		Use: "records [TEXT]", Short: "List the policies kept as data, those whose ID, title or description has TEXT",
		Args: takes(0, 1, "a text"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				req.Query = args[0]
			}
			rows, next, err := pages(p, func(size int32, token string) ([]*policiesv1.PolicyRecord, string, error) {
				req.PageSize, req.PageToken = size, token
				page, err := a.policies.ListPolicyRecords(cmd.Context(), req)
				return page.GetRecords(), page.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			c.noteMore(len(rows), next)
			return c.printPolicies(&policiesv1.ListPolicyRecordsResponse{Records: rows, NextPageToken: next})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&req.Issued, "issued", false, "only those in force")
	f.BoolVar(&req.NotIssued, "not-issued", false, "only those not in force")
	pageFlags(cmd, &p, 100)
	return cmd
}

func (c *cli) printPolicies(res *policiesv1.ListPolicyRecordsResponse) error {
	var names []string
	t := text.NewTable("POLICY", ">IN FORCE", ">LATEST", "STATE", ">PRIORITY", "SCOPE", "COMPARED", "TITLE")
	for _, r := range res.GetRecords() {
		names = append(names, r.GetPolicyId())
		v := r.GetVersion()
		issued, scope := "-", scopeText(v.GetDocument().GetScope())
		if r.GetIssuedVersion() > 0 {
			issued, scope = fmt.Sprint(r.GetIssuedVersion()), scopeText(r.GetIssuedScope())
		}
		if !c.wide() {
			scope = text.Cut(scope, 40)
		}
		t.Row(r.GetPolicyId(), issued, r.GetLatestVersion(), stateOf(v.GetState()), v.GetDocument().GetPriority(), scope, orDash(r.GetTestId()), v.GetDocument().GetTitle())
	}
	return c.print(result{msg: res, names: names, print: t.Write})
}

// scopeText says where a policy applies.
func scopeText(s *policiesv1.PolicyScope) string {
	var out []string
	for _, l := range []struct {
		name string
		list []string
	}{{"regions", s.GetRegions()}, {"businesses", s.GetBusinesses()}, {"tenants", s.GetTenants()}, {"centers", s.GetCenters()}, {"users", s.GetUsers()}} {
		if len(l.list) > 0 {
			out = append(out, l.name+"="+strings.Join(l.list, ","))
		}
	}
	if len(s.GetLabels()) > 0 {
		out = append(out, "labels "+pairs(s.GetLabels()))
	}
	if len(out) == 0 {
		return "everywhere"
	}
	return strings.Join(out, " ")
}

func (c *cli) printPolicy(r *policiesv1.PolicyRecord) error {
	return c.print(result{msg: r, names: []string{r.GetPolicyId()}, print: func(w io.Writer, _ bool) error {
		state := "not in force"
		if r.GetIssuedVersion() > 0 {
			state = fmt.Sprintf("version %d in force (%s)", r.GetIssuedVersion(), scopeText(r.GetIssuedScope()))
		}
		_, err := fmt.Fprintf(w, "%s  version %d, %s; %s\n", r.GetPolicyId(), r.GetVersion().GetVersion(), stateOf(r.GetVersion().GetState()), state)
		return err
	}})
}

func policyGetCommand(c *cli) *cobra.Command {
	req := &policiesv1.GetPolicyRecordRequest{}
	cmd := &cobra.Command{
		Use: "get POLICY", Short: "Print a policy's document, ready to be edited",
		Long: "Prints the document of the version in force, or of the latest one, as YAML. -o json prints the whole record.",
		Args: takes(1, 1, "the ID of a policy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			req.PolicyId = args[0]
			r, err := a.policies.GetPolicyRecord(cmd.Context(), req)
			if err != nil {
				return err
			}
			return c.print(result{msg: r, names: []string{r.GetPolicyId()}, print: func(w io.Writer, _ bool) error {
				b, err := documentYAML(r.GetVersion().GetDocument())
				if err != nil {
					return err
				}
				c.note("version %d, %s", r.GetVersion().GetVersion(), stateOf(r.GetVersion().GetState()))
				_, err = w.Write(b)
				return err
			}})
		},
	}
	cmd.Flags().Int64Var(&req.Version, "version", 0, "this version")
	return cmd
}

// documentYAML writes a document as people write it.
func documentYAML(d *policiesv1.PolicyDocument) ([]byte, error) {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(d)
	if err != nil {
		return nil, err
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, err
	}
	return yaml.Marshal(v)
}

func policyWriteCommand(c *cli, create bool) *cobra.Command {
	var note string
	var base int64
	cmd := &cobra.Command{
		Use: "create FILE", Short: "Create a policy of a file; the first version is a draft",
		Long: `Creates a policy of a file in YAML or JSON; "-" is standard input. A document
that cannot work is refused with all that is wrong with it.`,
		Example: `  yunhe policy create gold.yaml --note 'for paying tenants'
  yunhe policy validate gold.yaml`,
		Args: takes(1, 1, "the file of a policy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.readPolicy(args[0])
			if err != nil {
				return err
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			var r *policiesv1.PolicyRecord
			if create {
				r, err = a.policies.CreatePolicy(cmd.Context(), &policiesv1.CreatePolicyRequest{Document: d, Note: note})
			} else {
				r, err = a.policies.UpdatePolicy(cmd.Context(), &policiesv1.UpdatePolicyRequest{Document: d, BaseVersion: base, Note: note})
			}
			if err != nil {
				return err
			}
			return c.printPolicy(r)
		},
	}
	cmd.Flags().StringVar(&note, "note", "", "why")
	if !create {
		cmd.Use, cmd.Short, cmd.Long = "update FILE", "Add a version to a policy; what is in force stays", ""
		cmd.Example = "  yunhe policy get gold > gold.yaml\n  yunhe policy update gold.yaml --base 3"
		cmd.Flags().Int64Var(&base, "base", 0, "the latest version it rests on; refused if there is a later one")
	}
	return cmd
}

func policyValidateCommand(c *cli) *cobra.Command {
	var variables bool
	req := &policiesv1.ValidatePolicyRequest{}
	cmd := &cobra.Command{
		Use: "validate (FILE | --policy POLICY)", Short: "Check a policy and say all that is wrong with it",
		Long: `Checks a file, or a version that is stored; a stored draft without errors becomes
validated. Problems in expressions come with their line and column.`,
		Args: takes(0, 1, "the file of a policy"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if (len(args) == 1) == (req.PolicyId != "") {
				return usagef("want either a file or --policy")
			}
			if len(args) == 1 {
				if req.Document, err = c.readPolicy(args[0]); err != nil {
					return err
				}
			}
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.policies.ValidatePolicy(cmd.Context(), req)
			if err != nil {
				return err
			}
			var names []string
			for _, p := range res.GetProblems() {
				names = append(names, p.GetField())
			}
			err = c.print(result{msg: res, names: names, print: func(w io.Writer, color bool) error { return printProblems(w, color, res, variables) }})
			if err == nil && !res.GetValid() {
				return fmt.Errorf("the policy has errors")
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.PolicyId, "policy", "", "check a stored policy")
	f.Int64Var(&req.Version, "version", 0, "this version of it (default: the latest)")
	f.BoolVar(&variables, "variables", false, "also list what expressions may read")
	return cmd
}

func printProblems(w io.Writer, color bool, res *policiesv1.ValidatePolicyResponse, variables bool) error {
	for _, p := range res.GetProblems() {
		kind, at := text.Paint("error", text.Red, color), ""
		if p.GetWarning() {
			kind = text.Paint("warning", text.Yellow, color)
		}
		if p.GetLine() > 0 {
			at = fmt.Sprintf(" line %d, column %d", p.GetLine(), p.GetColumn())
		}
		if _, err := fmt.Fprintf(w, "%s  %s%s: %s\n", kind, p.GetField(), at, text.Clean(p.GetProblem())); err != nil {
			return err
		}
	}
	if len(res.GetProblems()) == 0 {
		if _, err := fmt.Fprintln(w, "valid"); err != nil {
			return err
		}
	}
	if !variables {
		return nil
	}
	t := text.NewTable("VARIABLE", "TYPE", "OF", "WHAT IT IS")
	for _, v := range res.GetJobVariables() {
		t.Row(v.GetName(), v.GetType(), "jobs and centers", v.GetDoc())
	}
	for _, v := range res.GetCenterVariables()[:len(res.GetCenterVariables())-len(res.GetJobVariables())] {
		t.Row(v.GetName(), v.GetType(), "centers", v.GetDoc())
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.Write(w, color)
}

func policyIssueCommand(c *cli) *cobra.Command {
	req := &policiesv1.IssuePolicyRequest{}
	s := &policiesv1.PolicyScope{}
	cmd := &cobra.Command{
		Use: "issue POLICY", Short: "Put a version in force, at once and everywhere",
		Long: `Puts a version in force, to the scope in its document or to the one given here.
Jobs placed from then on follow it.`,
		Example: `  yunhe policy issue gold --reason 'new prices'
  yunhe policy issue gold --version 3 --tenant physics --region north`,
		Args: takes(1, 1, "the ID of a policy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if req.PolicyId = args[0]; scopeText(s) != "everywhere" {
				req.Scope = s
			}
			return c.changePolicy(func(a *api) (*policiesv1.PolicyRecord, error) { return a.policies.IssuePolicy(cmd.Context(), req) })
		},
	}
	f := cmd.Flags()
	f.Int64Var(&req.Version, "version", 0, "this version (default: the latest)")
	f.StringVar(&req.Reason, "reason", "", "why")
	f.StringSliceVar(&s.Regions, "region", nil, "jobs that may go to these regions only (repeatable)")
	f.StringSliceVar(&s.Businesses, "business", nil, "jobs of these business types, the label business (repeatable)")
	f.StringSliceVar(&s.Tenants, "tenant", nil, "jobs of these tenants (repeatable)")
	f.StringSliceVar(&s.Centers, "center", nil, "jobs that may go to these centers only (repeatable)")
	f.StringSliceVar(&s.Users, "user", nil, "jobs of these users (repeatable)")
	f.StringToStringVar(&s.Labels, "label", nil, "jobs with this label, KEY=VALUE (repeatable)")
	return cmd
}

// changePolicy prints the policy that a change has left.
func (c *cli) changePolicy(change func(a *api) (*policiesv1.PolicyRecord, error)) error {
	a, err := c.api()
	if err != nil {
		return err
	}
	r, err := change(a)
	if err != nil {
		return err
	}
	return c.printPolicy(r)
}

func policyWithdrawCommand(c *cli) *cobra.Command {
	req := &policiesv1.WithdrawPolicyRequest{}
	cmd := &cobra.Command{
		Use: "withdraw POLICY", Short: "Take a policy out of force",
		Args: takes(1, 1, "the ID of a policy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.PolicyId = args[0]
			return c.changePolicy(func(a *api) (*policiesv1.PolicyRecord, error) { return a.policies.WithdrawPolicy(cmd.Context(), req) })
		},
	}
	cmd.Flags().StringVar(&req.Reason, "reason", "", "why")
	return cmd
}

func policyRollBackCommand(c *cli) *cobra.Command {
	req := &policiesv1.RollBackPolicyRequest{}
	cmd := &cobra.Command{
		Use: "rollback POLICY", Short: "Put the version in force again that was before",
		Args: takes(1, 1, "the ID of a policy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.PolicyId = args[0]
			return c.changePolicy(func(a *api) (*policiesv1.PolicyRecord, error) { return a.policies.RollBackPolicy(cmd.Context(), req) })
		},
	}
	f := cmd.Flags()
	f.Int64Var(&req.Version, "version", 0, "this version, which was in force once")
	f.StringVar(&req.Reason, "reason", "", "why")
	return cmd
}

func policyDeleteCommand(c *cli) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "delete POLICY...", Short: "Delete policies that are not in force; their versions stay readable",
		Args: takes(1, -1, "the ID of a policy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			return c.each(args, func(id string) error {
				if _, err := a.policies.DeletePolicy(cmd.Context(), &policiesv1.DeletePolicyRequest{PolicyId: id, Reason: reason}); err != nil {
					return err
				}
				c.note("%s deleted", id)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	return cmd
}

func policyVersionsCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "versions POLICY", Short: "List the versions of a policy, also of one deleted",
		Args: takes(1, 1, "the ID of a policy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			res, err := a.policies.ListPolicyVersions(cmd.Context(), &policiesv1.ListPolicyVersionsRequest{PolicyId: args[0]})
			if err != nil {
				return err
			}
			var names []string
			t := text.NewTable(">VERSION", "STATE", "CREATED", "BY", "CHECKED", "NOTE")
			for _, v := range res.GetVersions() {
				names = append(names, fmt.Sprint(v.GetVersion()))
				checked := "-"
				if v.GetCheckedAt() != nil {
					checked = v.GetValidationMethod() + " " + c.ago(v.GetCheckedAt())
				}
				t.Row(v.GetVersion(), stateOf(v.GetState()), c.ago(v.GetCreatedAt()), v.GetCreatedBy(), checked, orDash(v.GetNote()))
			}
			return c.print(result{msg: res, names: names, print: t.Write})
		},
	}
}

func policyDiffCommand(c *cli) *cobra.Command {
	req := &policiesv1.DiffPolicyVersionsRequest{}
	cmd := &cobra.Command{
		Use: "diff POLICY --from VERSION", Short: "Show what differs between two versions",
		Args: takes(1, 1, "the ID of a policy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.api()
			if err != nil {
				return err
			}
			req.PolicyId = args[0]
			res, err := a.policies.DiffPolicyVersions(cmd.Context(), req)
			if err != nil {
				return err
			}
			var names []string
			t := text.NewTable("FIELD", "BEFORE", "AFTER")
			for _, d := range res.GetDifferences() {
				names = append(names, d.GetPath())
				t.Row(d.GetPath(), orDash(d.GetBefore()), orDash(d.GetAfter()))
			}
			return c.print(result{msg: res, names: names, print: t.Write})
		},
	}
	f := cmd.Flags()
	f.Int64Var(&req.From, "from", 0, "the earlier version")
	f.Int64Var(&req.To, "to", 0, "the later version (default: the latest)")
	_ = cmd.MarkFlagRequired("from") // it was just declared
	return cmd
}

func policyEventsCommand(c *cli) *cobra.Command {
	var p paging
	cmd := &cobra.Command{
		Use: "history [POLICY]", Short: "List what was done with policies, by whom and why",
		Args: takes(0, 1, "the ID of a policy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := strings.Join(args, "")
			a, err := c.api()
			if err != nil {
				return err
			}
			rows, next, err := pages(p, func(size int32, token string) ([]*policiesv1.PolicyEvent, string, error) {
				page, err := a.policies.ListPolicyEvents(cmd.Context(), &policiesv1.ListPolicyEventsRequest{PolicyId: id, PageSize: size, PageToken: token})
				return page.GetEvents(), page.GetNextPageToken(), err
			})
			if err != nil {
				return err
			}
			c.noteMore(len(rows), next)
			res := &policiesv1.ListPolicyEventsResponse{Events: rows, NextPageToken: next}
			var names []string
			t := text.NewTable("WHEN", "POLICY", "DONE", ">VERSION", "BY", "REASON")
			for _, e := range res.GetEvents() {
				names = append(names, e.GetAction())
				t.Row(c.ago(e.GetAt()), e.GetPolicyId(), e.GetAction(), e.GetVersion(), e.GetUserId(), orDash(e.GetReason()))
			}
			return c.print(result{msg: res, names: names, print: t.Write})
		},
	}
	pageFlags(cmd, &p, 100)
	return cmd
}
