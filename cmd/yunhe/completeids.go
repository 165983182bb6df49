package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	adaptersv1 "yunhe.dev/yunhe/gen/yunhe/adapters/v1"
	identityv1 "yunhe.dev/yunhe/gen/yunhe/identity/v1"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	policiesv1 "yunhe.dev/yunhe/gen/yunhe/policies/v1"
	registryv1 "yunhe.dev/yunhe/gen/yunhe/registry/v1"
	schedulerv1 "yunhe.dev/yunhe/gen/yunhe/scheduler/v1"
	volumesv1 "yunhe.dev/yunhe/gen/yunhe/volumes/v1"
)

const (
	// completeWithin is how long a shell waits for identifiers. Somebody has
	// pressed a key and looks at the cursor.
	completeWithin = time.Second
	// completeMost identifiers are offered; more do not help anybody choose.
	completeMost = 200
)

// offer is something to complete to.
type offer struct{ id, about string }

// lister asks the server for identifiers.
type lister func(ctx context.Context, a *api) ([]offer, error)

// completes says what the arguments and flags of a command are completed
// with: args by position, the last for all that follow.
type completes struct {
	args  []lister
	flags map[string]lister
	after string // put behind an argument, such as "="
	once  bool   // only as many arguments as listers
}

// completions are by the path of the command.
var completions = map[string]completes{
	"job show":               {args: []lister{allJobs}, once: true},
	"job logs":               {args: []lister{allJobs}, once: true},
	"job wait":               {args: []lister{openJobs}, once: true},
	"job explain":            {args: []lister{allJobs}, once: true},
	"job top":                {args: []lister{allJobs}, once: true},
	"job cost":               {args: []lister{allJobs}, once: true},
	"job pause":              {args: []lister{openJobs}},
	"job resume":             {args: []lister{pausedJobs}},
	"job exec":               {args: []lister{runningJobs}, once: true},
	"job stop":               {args: []lister{openJobs}},
	"job write-off":          {args: []lister{openJobs}, flags: map[string]lister{"center": centerIDs}},
	"job delete":             {args: []lister{endedJobs}},
	"job list":               {flags: map[string]lister{"center": centerIDs, "state": jobStates, "tenant": tenantIDs, "user": userIDs}},
	"job submit":             {flags: map[string]lister{"center": centerIDs, "image": imageIDs, "spec": specIDs}},
	"usage list":             {flags: map[string]lister{"center": centerIDs, "job": allJobs, "tenant": tenantIDs, "user": userIDs}},
	"usage export":           {flags: map[string]lister{"center": centerIDs, "job": allJobs, "tenant": tenantIDs, "user": userIDs}},
	"volume create":          {flags: map[string]lister{"center": centerIDs}},
	"volume list":            {flags: map[string]lister{"center": centerIDs}},
	"volume show":            {args: []lister{volumeNames}, once: true},
	"volume grow":            {args: []lister{volumeNames}, once: true},
	"volume delete":          {args: []lister{volumeNames}},
	"center account list":    {args: []lister{centerIDs}, once: true},
	"center account set":     {args: []lister{centerIDs, tenantIDs}, once: true},
	"center show":            {args: []lister{centerIDs}, once: true},
	"center drain":           {args: []lister{centerIDs}},
	"center undrain":         {args: []lister{centerIDs}},
	"center delete":          {args: []lister{centerIDs}},
	"center join-token":      {flags: map[string]lister{"center": centerIDs}},
	"gateway remove":         {args: []lister{gatewayIDs}},
	"measurement show":       {args: []lister{centerIDs}, once: true},
	"measurement compare":    {args: []lister{centerIDs}},
	"measurement run":        {args: []lister{centerIDs}, flags: map[string]lister{"spec": specIDs, "image": imageIDs}, once: true},
	"measurement schedule":   {args: []lister{centerIDs}, once: true},
	"measurement nodes":      {args: []lister{centerIDs}, once: true},
	"measurement list":       {flags: map[string]lister{"center": centerIDs}},
	"topology history":       {flags: map[string]lister{"center": centerIDs}},
	"topology diff":          {flags: map[string]lister{"center": centerIDs}},
	"network origin set":     {flags: map[string]lister{"tenant": tenantIDs, "user": userIDs}},
	"network equipment list": {flags: map[string]lister{"center": centerIDs}},
	"network equipment show": {args: []lister{centerIDs}, once: true},
	"topology link set":      {flags: map[string]lister{"tenant": tenantIDs}},
	"spec show":              {args: []lister{specIDs}, once: true},
	"spec delete":            {args: []lister{specIDs}},
	"spec offer":             {args: []lister{specIDs, centerIDs}, once: true},
	"image show":             {args: []lister{imageIDs}, once: true},
	"image delete":           {args: []lister{imageIDs}},
	"image create":           {flags: map[string]lister{"center": centerIDs, "owner": centerIDs, "specs": specIDs}},
	"policy get":             {args: []lister{policyRecordIDs}, once: true},
	"policy issue":           {args: []lister{policyRecordIDs}, flags: map[string]lister{"tenant": tenantIDs, "center": centerIDs}, once: true},
	"policy withdraw":        {args: []lister{policyRecordIDs}, once: true},
	"policy rollback":        {args: []lister{policyRecordIDs}, once: true},
	"policy delete":          {args: []lister{policyRecordIDs}},
	"policy versions":        {args: []lister{policyRecordIDs}, once: true},
	"policy diff":            {args: []lister{policyRecordIDs}, once: true},
	"policy history":         {args: []lister{policyRecordIDs}, once: true},
	"policy ab start":        {args: []lister{policyRecordIDs}, once: true},
	"policy weights set":     {args: []lister{policyIDs}, flags: map[string]lister{"preset": presetNames}, after: "="},
	"user create":            {flags: map[string]lister{"tenant": tenantIDs}},
	"user list":              {flags: map[string]lister{"tenant": tenantIDs}},
	"key create":             {flags: map[string]lister{"user": userIDs}},
	"key list":               {flags: map[string]lister{"user": userIDs}},
	"key revoke":             {args: []lister{keyIDs}},
}

// completeIDs makes shells complete identifiers by asking the server. A server
// that is away, slow or refuses is as one that has nothing: a shell has no
// place for an error.
func (c *cli) completeIDs(root *cobra.Command) {
	for _, path := range sortedPaths(completions) {
		what := completions[path]
		cmd, rest, err := root.Find(strings.Fields(path))
		if err != nil || len(rest) > 0 {
			continue // a test sees to it that there is none
		}
		if what.args == nil {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
			if path == "job submit" { // what follows is a command line
				cmd.ValidArgsFunction = nil
			}
		} else {
			cmd.ValidArgsFunction = c.completeArgs(what)
		}
		for flag, list := range what.flags {
			// It fails for a flag that is not there only; the same test.
			_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
				return c.offers(cmd, list, prefix, "", nil), cobra.ShellCompDirectiveNoFileComp
			})
		}
	}
}

func (c *cli) completeArgs(what completes) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		directive := cobra.ShellCompDirectiveNoFileComp
		if what.after != "" {
			directive |= cobra.ShellCompDirectiveNoSpace
			if strings.Contains(prefix, what.after) {
				return nil, directive
			}
		}
		if what.once && len(args) >= len(what.args) {
			return nil, directive
		}
		list := what.args[min(len(args), len(what.args)-1)]
		return c.offers(cmd, list, prefix, what.after, args), directive
	}
}

// offers lists what begins with prefix and is not given yet.
func (c *cli) offers(cmd *cobra.Command, list lister, prefix, after string, given []string) []string {
	a, err := c.api()
	if err != nil {
		return nil
	}
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background() //nolint:contextcheck // completion is run without one
	}
	ctx, cancel := context.WithTimeout(parent, completeWithin)
	defer cancel()
	all, err := list(ctx, a)
	if err != nil {
		return nil
	}
	var out []string
	for _, o := range all {
		isGiven := slices.ContainsFunc(given, func(g string) bool { return g == o.id || after != "" && strings.HasPrefix(g, o.id+after) })
		if !strings.HasPrefix(o.id, prefix) || isGiven {
			continue
		}
		s := o.id + after
		if about := strings.TrimSpace(strings.ReplaceAll(text.Clean(o.about), "\t", " ")); about != "" {
			s += "\t" + about
		}
		out = append(out, s)
	}
	return out
}

func sortedPaths(m map[string]completes) []string {
	var paths []string
	for p := range m {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	return paths
}

// offersOf turns items into offers.
func offersOf[T any](items []T, err error, of func(T) offer) ([]offer, error) {
	var out []offer
	for _, x := range items {
		out = append(out, of(x))
	}
	return out, err
}

func jobsIn(states ...jobsv1.State) lister {
	return func(ctx context.Context, a *api) ([]offer, error) {
		res, err := a.jobs.ListJobs(ctx, &jobsv1.ListJobsRequest{PageSize: completeMost, States: states})
		return offersOf(res.GetJobs(), err, func(j *jobsv1.Job) offer {
			return offer{j.GetJobId(), j.GetSpec().GetName() + ", " + stateName(j.GetState())}
		})
	}
}

// jobsThat lists the jobs in the states that keep is true for.
func jobsThat(keep func(jobsv1.State) bool) lister {
	return jobsIn(slices.DeleteFunc(states(), func(s jobsv1.State) bool { return !keep(s) })...)
}

var (
	allJobs     = jobsIn()
	pausedJobs  = jobsIn(jobsv1.State_STATE_PAUSED)
	runningJobs = jobsIn(jobsv1.State_STATE_RUNNING)

	openJobs  = jobsThat(func(s jobsv1.State) bool { return !ended(s) })
	endedJobs = jobsThat(ended)
)

func jobStates(context.Context, *api) ([]offer, error) {
	return offersOf(states(), nil, func(s jobsv1.State) offer { return offer{id: stateName(s)} })
}

func centerIDs(ctx context.Context, a *api) ([]offer, error) {
	res, err := a.registry.ListCenters(ctx, &registryv1.ListCentersRequest{PageSize: completeMost})
	return offersOf(res.GetCenters(), err, func(k *registryv1.Center) offer { return offer{k.GetAiCenterId(), k.GetName()} })
}

func specIDs(ctx context.Context, a *api) ([]offer, error) {
	res, err := a.registry.ListSpecs(ctx, &registryv1.ListSpecsRequest{PageSize: completeMost})
	return offersOf(res.GetSpecs(), err, func(s *registryv1.Spec) offer { return offer{s.GetResourceSpecId(), s.GetResourceSpecName()} })
}

func imageIDs(ctx context.Context, a *api) ([]offer, error) {
	res, err := a.registry.ListImages(ctx, &registryv1.ListImagesRequest{PageSize: completeMost})
	return offersOf(res.GetImages(), err, func(m *registryv1.Image) offer { return offer{m.GetImageId(), m.GetName()} })
}

func volumeNames(ctx context.Context, a *api) ([]offer, error) {
	res, err := a.volumes.ListVolumes(ctx, &volumesv1.ListVolumesRequest{PageSize: completeMost})
	return offersOf(res.GetVolumes(), err, func(v *volumesv1.Volume) offer { return offer{v.GetName(), v.GetAiCenterId()} })
}

func gatewayIDs(ctx context.Context, a *api) ([]offer, error) {
	res, err := a.adapters.ListGateways(ctx, &adaptersv1.ListGatewaysRequest{})
	return offersOf(res.GetGateways(), err, func(g *adaptersv1.Gateway) offer { return offer{g.GetAiCenterId(), g.GetVersion()} })
}

func policyRecordIDs(ctx context.Context, a *api) ([]offer, error) {
	res, err := a.policies.ListPolicyRecords(ctx, &policiesv1.ListPolicyRecordsRequest{PageSize: maxPage})
	if err != nil {
		return nil, err
	}
	var out []offer
	for _, r := range res.GetRecords() {
		out = append(out, offer{r.GetPolicyId(), r.GetVersion().GetDocument().GetTitle()})
	}
	return out, nil
}

func policyIDs(ctx context.Context, a *api) ([]offer, error) {
	res, err := a.scheduler.ListPolicies(ctx, &schedulerv1.ListPoliciesRequest{})
	return offersOf(res.GetPolicies(), err, func(p *schedulerv1.Policy) offer { return offer{p.GetPolicyId(), p.GetTitle()} })
}

func presetNames(ctx context.Context, a *api) ([]offer, error) {
	res, err := a.scheduler.ListPolicies(ctx, &schedulerv1.ListPoliciesRequest{})
	return offersOf(res.GetPresets(), err, func(p *schedulerv1.Preset) offer { return offer{p.GetName(), pairs(p.GetWeights())} })
}

func tenantIDs(ctx context.Context, a *api) ([]offer, error) {
	res, err := a.identity.ListTenants(ctx, &identityv1.ListTenantsRequest{PageSize: completeMost})
	return offersOf(res.GetTenants(), err, func(t *identityv1.Tenant) offer { return offer{t.GetTenantId(), t.GetName()} })
}

func userIDs(ctx context.Context, a *api) ([]offer, error) {
	res, err := a.identity.ListUsers(ctx, &identityv1.ListUsersRequest{PageSize: completeMost})
	return offersOf(res.GetUsers(), err, func(u *identityv1.User) offer { return offer{u.GetUserId(), u.GetName()} })
}

func keyIDs(ctx context.Context, a *api) ([]offer, error) {
	res, err := a.identity.ListKeys(ctx, &identityv1.ListKeysRequest{PageSize: completeMost})
	return offersOf(res.GetKeys(), err, func(k *identityv1.Key) offer { return offer{k.GetKeyId(), k.GetUserId() + " " + k.GetNote()} })
}
