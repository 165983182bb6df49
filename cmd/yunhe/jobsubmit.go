package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"yunhe.dev/yunhe/cmd/yunhe/internal/text"
	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/jobfile"
)

// submission is the command line of `job submit`.
type submission struct {
	file      string
	follow    bool
	dryRun    bool
	requestID string

	name, image, spec, command  string
	where, allocation           string
	reservation                 string
	replicas                    int32
	env, labels, files, centers []string
	volumes                     []string
	timeout                     time.Duration
	priority                    int32
	network                     bool
	pool                        string
	origin                      string
	needs                       needs
}

const jobSubmitLong = `Submits a job from a file, or a job of one task from flags.

The file is JSON or YAML: the members of the API's JobSpec, in lowerCamel or
snake_case, which include the create-job body of T/AI 123.6. Several documents
or a list are submitted as a batch: all or none. A file of a task may be named
by a path next to the job file ("local") or hold its text ("text"). Names that
are not known are refused.

The server keeps the request ID for 7 days: submitting again with the same ID
answers the first job instead of starting a second one. Without --request-id
one is chosen, so that a lost answer is asked for again safely.

` + inputHelp + "\n\n" + poolHelp

func jobSubmitCommand(c *cli) *cobra.Command {
	var s submission
	cmd := &cobra.Command{
		Use:   "submit (-f FILE | --image IMAGE --spec SPEC [flags] -- COMMAND...)",
		Short: "Submit a job",
		Long:  jobSubmitLong,
		Example: `  yunhe job submit -f job.yaml --follow
  yunhe job submit --image host --spec small --replicas 4 -- python3 train.py --epochs 5
  yunhe job submit --image host --spec small --command 'echo $YUNHE_REPLICA_INDEX'
  yunhe job submit --image host --spec small --input s3://maps/tiles,size=20Gi,at=gz-1 --command ./render
  yunhe job submit --image host --spec small --origin hq --max-latency 20ms --qos-required -- ./serve
  yunhe job submit --image host --spec small --pool compute=37,memory=1234MiB --command clinfo
  yunhe job submit -f job.yaml --dry-run
  generate-jobs | yunhe job submit -f -`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return c.submit(cmd, &s, args) },
	}
	f := cmd.Flags()
	f.StringVarP(&s.file, "file", "f", "", "job file; - reads standard input")
	f.BoolVar(&s.follow, "follow", false, "show progress until the job ends; exit status as of job wait")
	f.BoolVar(&s.dryRun, "dry-run", false, "submit nothing; show where each replica would go and why, or what it would wait for")
	f.StringVar(&s.requestID, "request-id", "", "submit at most once under this name")
	f.StringVar(&s.name, "name", "", "name of the job (default: the command's first word)")
	f.StringVar(&s.image, "image", "", "image of the task")
	f.StringVar(&s.spec, "spec", "", "resource specification of a replica")
	f.StringVar(&s.command, "command", "", "shell command of the task; or the words after --")
	f.Int32Var(&s.replicas, "replicas", 1, "number of replicas")
	f.StringArrayVar(&s.env, "env", nil, "environment variable NAME=VALUE (repeatable)")
	f.StringArrayVar(&s.labels, "label", nil, "label NAME=VALUE of the job, such as project=vision (repeatable)")
	f.StringArrayVar(&s.files, "add-file", nil, "file to put into the working directory, LOCAL[:PATH] (repeatable)")
	f.StringArrayVar(&s.centers, "center", nil, "run at this center only (repeatable)")
	f.StringArrayVar(&s.volumes, "volume", nil, "volume the command finds, VOLUME:PATH[:ro] (repeatable)")
	f.StringVar(&s.where, "where", "", `run only at centers for which this is true, such as 'tags["green"] == "true"'`)
	f.StringVar(&s.allocation, "allocation", "", "run on what this allocation holds")
	f.StringVar(&s.reservation, "reservation", "", "run in this reservation; before it begins, wait")
	f.DurationVar(&s.timeout, "timeout", 0, "end a run after this time, such as 30m")
	f.Int32Var(&s.priority, "priority", 0, "priority, -100 to 100")
	f.BoolVar(&s.network, "network", false, "let the command use the network")
	f.StringVar(&s.pool, "pool", "", "shares of the accelerator pool for each run, such as compute=37,memory=1234MiB; lets the command use the network")
	f.StringVar(&s.origin, "origin", "", "where its users are (see network origin list; default: where you or your tenant are)")
	s.needs.flags(cmd)
	return cmd
}

// quickFlags are the flags that make a job without a file.
var quickFlags = append([]string{"name", "image", "spec", "command", "replicas", "env", "label", "add-file", "volume", "center", "where", "allocation", "reservation", "timeout", "priority", "network", "pool", "origin"}, needFlags...)

func (c *cli) submit(cmd *cobra.Command, s *submission, words []string) error {
	jobs, err := c.wanted(cmd, s, words)
	if err != nil {
		return err
	}
	if jobs.Batch && s.follow {
		return usagef("--follow takes a single job, %s holds %s", s.file, text.Count(len(jobs.Specs), "job"))
	}
	if s.dryRun && (jobs.Batch || s.follow) {
		return usagef("--dry-run takes a single job, and no --follow")
	}
	a, err := c.api()
	if err != nil {
		return err
	}
	if s.dryRun {
		return c.planJob(cmd, a, jobs.Specs[0])
	}
	requestID := s.requestID
	if requestID == "" {
		requestID = uuid.NewString()
	}
	if jobs.Batch {
		return c.submitBatch(cmd.Context(), a, requestID, jobs.Specs)
	}
	job, err := submitSafely(cmd.Context(), c, requestID, func(ctx context.Context) (*jobsv1.Job, error) {
		return a.jobs.SubmitJob(ctx, &jobsv1.SubmitJobRequest{RequestId: requestID, Job: jobs.Specs[0]})
	})
	if err != nil {
		return err
	}
	if s.follow {
		if c.forPeople() {
			c.note("%s submitted", job.GetJobId())
		}
		return c.waitFor(cmd.Context(), a, job.GetJobId())
	}
	return c.print(result{msg: job, names: []string{job.GetJobId()}, print: func(w io.Writer, color bool) error {
		_, err := fmt.Fprintf(w, "%s  %s  %s, %s\n", job.GetJobId(), text.Clean(job.GetSpec().GetName()),
			text.Paint(stateName(job.GetState()), stateColor(job.GetState()), color), text.Count(replicasIn(job.GetSpec()), "replica"))
		c.note("follow it with `yunhe job wait %s`, its output with `yunhe job logs -f %[1]s`", job.GetJobId())
		return err
	}})
}

func replicasIn(spec *jobsv1.JobSpec) int {
	n := 0
	for _, t := range spec.GetTasks() {
		n += int(t.GetReplicaNumber())
	}
	return n
}

func (c *cli) submitBatch(ctx context.Context, a *api, requestID string, specs []*jobsv1.JobSpec) error {
	res, err := submitSafely(ctx, c, requestID, func(ctx context.Context) (*jobsv1.SubmitJobsResponse, error) {
		return a.jobs.SubmitJobs(ctx, &jobsv1.SubmitJobsRequest{RequestId: requestID, Jobs: specs})
	})
	if err != nil {
		return err
	}
	return c.print(result{msg: res, names: res.GetJobIds(), print: func(w io.Writer, color bool) error {
		t := text.NewTable("JOB", "NAME", ">REPLICAS")
		for i, id := range res.GetJobIds() {
			if i < len(specs) {
				t.Row(id, specs[i].GetName(), replicasIn(specs[i]))
			}
		}
		return t.Write(w, color)
	}})
}

// submitSafely calls until there is an answer. A lost answer does not tell
// whether the job was stored, but asking again under the same request ID does.
func submitSafely[R any](ctx context.Context, c *cli, requestID string, call func(context.Context) (R, error)) (R, error) {
	try := c.newLink(true).try()
	for first := true; ; first = false {
		res, err := call(ctx)
		if err == nil {
			try.ok()
			return res, nil
		}
		if first && dialFailed(err) {
			return res, err // nothing was sent
		}
		if waitErr := try.again(ctx, err); waitErr != nil {
			if transient(err) {
				err = &hinted{err, fmt.Sprintf("whether it was stored is not known; the same command with --request-id %s is safe", requestID)}
			}
			return res, err
		}
	}
}

// wanted returns the jobs that the command line asks for.
func (c *cli) wanted(cmd *cobra.Command, s *submission, words []string) (*jobfile.Jobs, error) {
	var quick string
	for _, name := range quickFlags {
		if quick == "" && cmd.Flags().Changed(name) {
			quick = "--" + name
		}
	}
	if cmd.ArgsLenAtDash() != 0 && len(words) > 0 {
		e := &usageError{msg: fmt.Sprintf("unexpected %q", words[0]), hint: "put the command after --, or name a job file with -f"}
		return nil, e
	}
	switch {
	case s.file != "" && (quick != "" || len(words) > 0):
		if quick == "" {
			quick = "a command after --"
		}
		return nil, usagef("-f and %s exclude each other: the file says it all", quick)
	case s.file != "":
		return jobfile.Read(s.file, c.in)
	case quick == "" && len(words) == 0:
		return nil, &usageError{msg: "nothing to submit", hint: "name a job file with -f, or see `yunhe job submit --help`"}
	}
	spec, err := s.quick(words)
	if err != nil {
		return nil, err
	}
	return &jobfile.Jobs{Specs: []*jobsv1.JobSpec{spec}}, nil
}

// quick makes a job of one task from flags.
func (s *submission) quick(words []string) (*jobsv1.JobSpec, error) {
	command := s.command
	switch {
	case command != "" && len(words) > 0:
		return nil, usagef("--command and a command after -- exclude each other")
	case command == "" && len(words) == 0:
		return nil, &usageError{msg: "no command given", hint: "use --command 'COMMAND', or put it after --"}
	case command == "":
		command = shellJoin(words)
	}
	if s.image == "" {
		return nil, &usageError{msg: "--image is missing", hint: "`yunhe image list` shows the images"}
	}
	if s.spec == "" {
		return nil, &usageError{msg: "--spec is missing", hint: "`yunhe spec list` shows the specifications"}
	}
	timeout, err := secondsFlag("--timeout", s.timeout)
	if err != nil {
		return nil, err
	}
	name := s.name
	if name == "" {
		name = defaultName(command)
	}
	task := &jobsv1.Task{
		Name: name, Command: command, ImageId: s.image, ResourceSpecId: s.spec, ReplicaNumber: s.replicas,
		TimeoutSeconds: timeout, Network: s.network,
	}
	if task.Env, err = assignments("--env", s.env); err != nil {
		return nil, err
	}
	labels, err := assignments("--label", s.labels)
	if err != nil {
		return nil, err
	}
	for _, f := range s.files {
		file, err := embed(f)
		if err != nil {
			return nil, err
		}
		task.Files = append(task.Files, file)
	}
	for _, v := range s.volumes {
		m, err := mountFlag(v)
		if err != nil {
			return nil, err
		}
		task.Volumes = append(task.Volumes, m)
	}
	if s.pool != "" {
		if task.Pool, err = poolFlag(s.pool); err != nil {
			return nil, err
		}
		task.Network = true
	}
	if len(s.centers) > 0 || s.where != "" {
		task.Constraints = &jobsv1.Constraints{Centers: s.centers, Expression: s.where}
	}
	if err := s.needs.of(task); err != nil {
		return nil, err
	}
	return &jobsv1.JobSpec{Name: name, Tasks: []*jobsv1.Task{task}, Priority: s.priority, AllocationId: s.allocation, ReservationId: s.reservation, OriginId: s.origin, Labels: labels}, nil
}

// assignments reads the values NAME=VALUE of a flag.
func assignments(flag string, list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, e := range list {
		k, v, ok := strings.Cut(e, "=")
		if !ok || k == "" {
			return nil, usagef("%s: want NAME=VALUE, got %q", flag, e)
		}
		out[k] = v
	}
	return out, nil
}

// defaultName is the base name of the command's first word, at most 32
// characters of it.
func defaultName(command string) string {
	fields := strings.Fields(command)
	if len(fields) == 0 {
		return "job"
	}
	name := filepath.Base(fields[0])
	for utf8.RuneCountInString(name) > 32 || len(name) > 63 {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name
}

var shellSafe = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellJoin quotes words so that a shell reads exactly them.
func shellJoin(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = w; !shellSafe.MatchString(w) {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// embed reads LOCAL[:PATH].
func embed(arg string) (*jobsv1.File, error) {
	local, path, named := strings.Cut(arg, ":")
	if !named {
		path = filepath.Base(local)
	}
	info, err := os.Stat(local)
	if err != nil {
		return nil, usagef("--add-file: %v", err)
	}
	if !info.Mode().IsRegular() || info.Size() > jobfile.MaxBytes {
		return nil, usagef("--add-file: want a regular file of at most %d MiB, got %s", jobfile.MaxBytes>>20, local)
	}
	content, err := os.ReadFile(local)
	if err != nil {
		return nil, usagef("--add-file: %v", err)
	}
	return &jobsv1.File{Path: path, Content: content, Executable: info.Mode()&0o111 != 0}, nil
}
