package measurement

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	jobsv1 "yunhe.dev/yunhe/gen/yunhe/jobs/v1"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
)

// built holds the programs where the build made them first (see Makefile).
//
//go:embed all:programs
var built embed.FS

// architectures are those the programs are built for.
var architectures = []string{"amd64", "arm64"}

func programName(s Scope) string {
	if s == Devices {
		return "yunhe-bench-devices"
	}
	return "yunhe-bench"
}

// program returns the packed program of a scope for an architecture. It
// returns Unavailable if this build has none.
func program(s Scope, arch string) ([]byte, error) {
	b, err := built.ReadFile("programs/" + programName(s) + "-" + arch + ".gz")
	if err != nil {
		return nil, fault.New(fault.Unavailable, "this server was built without the benchmark: build it with make")
	}
	return b, nil
}

// Room of a job's working directory: the disk's file is in it, and where it is
// in memory it counts toward the specification's.
const (
	minScratch = 16 << 20
	maxScratch = 512 << 20
	unpacked   = 8 << 20 // room for the program itself
)

// job is what a run submits. It runs at its center only, once; on its node if the
// center lets jobs choose.
func (r *Run) job(program []byte, quantity core.Quantities, chooses bool) *jobsv1.JobSpec {
	scratch := min(max(quantity[core.Memory]/4, minScratch), maxScratch) >> 20 << 20
	name := programName(r.Scope)
	where := &jobsv1.Constraints{Centers: []string{r.CenterID}}
	if chooses {
		where.Node = r.Node
	}
	env := map[string]string{
		"YUNHE_BENCH_CORES":  fmt.Sprint(cores(quantity)),
		"YUNHE_BENCH_MEMORY": fmt.Sprint(max(quantity[core.Memory]-scratch, 1)),
		"YUNHE_BENCH_DISK":   fmt.Sprint(scratch - unpacked),
	}
	command := strings.NewReplacer("PROGRAM", name, "ARCH", r.Architecture).Replace(`case $(uname -m) in x86_64|amd64) have=amd64 ;; aarch64|arm64) have=arm64 ;; *) have=$(uname -m) ;; esac
if [ "$have" != ARCH ]; then echo "this node is $have and the benchmark that came is for ARCH" >&2; exit 3; fi
gzip -dc PROGRAM.gz >PROGRAM && chmod +x PROGRAM || exit 4
exec ./PROGRAM
`)
	priority := int32(0)
	if r.RequestedBy == Scheduled {
		priority = lowest
	}
	return &jobsv1.JobSpec{Name: "measurement", Priority: priority, Desc: "benchmark of " + r.CenterID + ": " + r.Scope.String(), Labels: map[string]string{JobLabel: r.ID}, Tasks: []*jobsv1.Task{{
		Name: r.Scope.String(), Command: command, ImageId: r.ImageID, ResourceSpecId: r.SpecID, ReplicaNumber: 1, Env: env, TimeoutSeconds: maxRun, ExpectedSeconds: 60,
		ScratchMib: scratch >> 20, Files: []*jobsv1.File{{Path: name + ".gz", Content: program}}, Constraints: where,
	}}}
}

// JobLabel of a job names the run it is of.
const JobLabel = "yunhe.measurement"

// cores is how many whole cores a quantity has room for.
func cores(q core.Quantities) int64 { return max(1, q[core.CPU]/1000) }

// isAccelerator tells whether a resource is neither processor, memory nor disk.
func isAccelerator(resource string) bool {
	return !slices.Contains([]string{core.CPU, core.Memory, core.Storage}, resource)
}
