// Package arch tests the rules the whole repository keeps: which package may
// import which, what pure code must not touch, that every package says what it
// is for, that no file grows without end, and that what the conformance table
// claims exists.
package arch_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "yunhe.dev/yunhe"

// ranks: a package imports only packages with a lower number; packages of one
// number do not know each other. Moving one is a design decision: say why in
// the commit that changes this table.
var ranks = map[string]int{
	"internal/fault": 0, // core reports its faults, so it is below core
	"internal/core":  1,

	"internal/filelock": 1, // below the engines, which lock their folders
	"internal/release":  1, // files; the command line and pool nodes are what it says
	"internal/seccomp":  1, // what keeps jobs and workers from the kernel

	"internal/scheduler/place": 2, "internal/scheduler/pack": 2, "internal/scheduler/route": 2, "internal/scheduler/queue": 2, "internal/scheduler/forecast": 2, "internal/metering/rate": 2, "internal/inventory/identifier": 2, "internal/tags/expr": 2, // decisions, pure
	"internal/jobfile":      2, // reads job files for the command line
	"internal/deploy":       2, // plans of the platform as manifests
	"internal/availability": 2, // which submodules share a microservice: pure
	"internal/accelerators": 2, // what models can do: data, and the checks of it

	// What the benchmark prints, what it is worth, and how it works.
	"internal/measurement/report": 1, "internal/measurement/score": 2, "internal/measurement/bench": 3,

	"internal/scheduler/bench": 3, // measures place, pack and queue; reads the clock

	"internal/db": 3, "internal/objects": 3, "internal/samples": 3, // engines, each behind one package
	"internal/seal":       3,
	"internal/sim/train":  4, // plays sim over and over
	"internal/sim/report": 4, // writes what it came to for people
	"internal/chart":      1, // draws
	"internal/sim":        3, // plays place, pack and queue on work of the past; reads what it is given

	"internal/execlink": 3, // what is said over a session, whatever carries it

	"internal/backup": 4, // copies what the engines keep
	"internal/run":    4, "internal/bus": 4, "internal/rpc": 4, "internal/plugin": 4,

	"internal/pool/wire": 3, "internal/pool/tunnel": 3, "internal/pool/cards": 3, "internal/pool/between": 4, // what client library and worker say, and what node and worker say and map
	"internal/pool/worker": 5, "internal/pool/cards/makers": 4, // make the calls of libraries: the worker's program links them, and nothing of the node's
	"internal/pool/worker/cuda": 6, // makes the calls of programs of CUDA, in the same turns
	"internal/pool":             6, // lends this machine's devices

	"internal/planning": 5, // serves availability, and measures it of the platform itself
	"internal/identity": 5, "internal/registry": 5, "internal/monitor": 5,
	"internal/adapters": 6, "internal/inventory": 6, "internal/tags": 6, // they read registry, which does not know them
	"internal/network":   6,                                                 // what the scheduler reads of paths; topology, above, tells it of links
	"internal/standing":  6,                                                 // what scheduler and jobs ask before they rely on a center
	"internal/access":    7,                                                 // judges and records what adapters reach
	"internal/scheduler": 7, "internal/metering": 7, "internal/topology": 7, // it draws what registry, inventory and monitor have
	"internal/volumes":    7, // has centers keep what jobs name; jobs ask it where that is
	"internal/equipment":  7, // what gateways and plug-ins say of the network; reads what network measures
	"internal/jobs":       8,
	"internal/pools/logs": 6,                                                                                       // what the pool did; pools writes it
	"internal/poolops":    9,                                                                                       // looks after what pools lends; alarms asks it
	"internal/notices":    9,                                                                                       // tells people of alarms
	"internal/pools":      8, "internal/pools/agent": 7, "internal/pools/conformance": 7, "internal/pools/pods": 7, // lends what pool nodes have, and meters it · what those say to it · checks an installation from outside · what pods become that use it
	"internal/control":     9, // stops runs, asks the scheduler where; those below ask it through interfaces
	"internal/measurement": 9,
	"internal/budgets":     9,                         // counts what jobs cost, and stops them; the scheduler asks it through its interface
	"internal/routing":     9,                         // counts the replicas of jobs
	"internal/policies":    9,                         // chooses for the scheduler, through its interface; reads what became of jobs
	"internal/simulations": 10,                        // plays what policies choose on what jobs did
	"internal/calendar":    10,                        // makes the allocations of reservations; lower ones ask it through interfaces
	"internal/console":     10, "internal/alarms": 10, // alarms looks at what all others know
	"internal/app": 11,
}

// free packages are not part of the platform's layers: tests, and programs.
func free(pkg string) bool {
	for _, p := range []string{"cmd/", "e2e/", "bench/", "examples/", "tools/", "adapters/"} {
		if strings.HasPrefix(pkg, p) {
			return true
		}
	}
	return forTests(pkg)
}

// forTests reports whether a package exists for tests only.
func forTests(pkg string) bool {
	return strings.HasSuffix(pkg, "test") || strings.HasPrefix(pkg, "e2e/") || pkg == "internal/arch"
}

// pure packages decide and do nothing: same input, same answer.
var pure = []string{"internal/scheduler/place", "internal/scheduler/forecast", "internal/scheduler/route", "internal/scheduler/queue", "internal/metering/rate", "internal/inventory/identifier", "internal/tags/expr", "internal/measurement/report", "internal/measurement/score"}

// contractUsers may import generated code in files other than api.go, each for
// the reason given. The list is reviewed: shorten it, do not grow it.
var contractUsers = map[string]string{
	"internal/measurement":       "submits the benchmark as a job, whose form is the contract's JobSpec",
	"internal/jobs":              "stores a job as the contract's JobSpec, bytes for bytes, so that a field added to the contract is kept without a second type",
	"internal/adapters":          "speaks yunhe.adapter.v1 to gateways over the bus: that contract is its wire format",
	"internal/execlink":          "speaks yunhe.adapter.v1 in the sessions of commands: that contract is its wire format",
	"internal/plugin":            "speaks yunhe.adapter.v1 to driver processes",
	"internal/rpc":               "reads each method's permission option and serves the OpenAPI documents",
	"internal/jobfile":           "its result is the contract's JobSpec, which the command line sends as it is",
	"internal/pools/conformance": "calls the API of an installation as anybody would",
	"internal/pools/agent":       "speaks yunhe.pool.v1 to the platform for pool nodes and their clients",
	"sdk/adapter":                "gives drivers the contract they implement",
}

// file of this repository that is written by hand.
type file struct {
	path string // below the repository's root
	pkg  string // its folder
	test bool
	ast  *ast.File
	text []byte
}

func (f file) imports() []string {
	var out []string
	for _, i := range f.ast.Imports {
		p, _ := strconv.Unquote(i.Path.Value) // it parsed
		out = append(out, p)
	}
	return out
}

// walk visits the repository's files, but for what is hidden or installed, and folders
// that are to be skipped, by their paths in it.
func walk(skip func(rel string) bool, visit func(rel string, read func() ([]byte, error)) error) error {
	root := filepath.Join("..", "..")
	return filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if !e.IsDir() {
			return visit(rel, func() ([]byte, error) { return os.ReadFile(p) })
		}
		if skip(rel) || e.Name() == "node_modules" || strings.HasPrefix(e.Name(), ".") && rel != "." {
			return fs.SkipDir
		}
		return nil
	})
}

var files = sync.OnceValues(func() ([]file, error) {
	var out []file
	set := token.NewFileSet()
	err := walk(func(rel string) bool { return rel == "gen" || path.Base(rel) == "testdata" }, func(rel string, read func() ([]byte, error)) error {
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		text, err := read()
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(set, rel, text, parser.ParseComments)
		out = append(out, file{rel, path.Dir(rel), strings.HasSuffix(rel, "_test.go"), f, text})
		return err
	})
	return out, err
})

func all(t *testing.T) []file {
	t.Helper()
	fs, err := files()
	if err != nil {
		t.Fatal(err)
	}
	if len(fs) < 200 {
		t.Fatalf("found %d files, want the whole repository", len(fs))
	}
	return fs
}

func TestImports(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, f := range all(t) {
		for _, imp := range f.imports() {
			in, ours := strings.CutPrefix(imp, module+"/")
			if !ours || f.test {
				continue
			}
			if forTests(in) && !forTests(f.pkg) && !strings.HasPrefix(f.pkg, "bench/") {
				t.Errorf("%s imports %s, which is for tests", f.path, in)
			}
			if strings.HasPrefix(f.pkg, "sdk/") && strings.HasPrefix(in, "internal/") {
				t.Errorf("%s imports %s: what outsiders import must not need our internals", f.path, in)
			}
			if free(f.pkg) {
				continue
			}
			switch {
			case strings.HasPrefix(in, "gen/"):
				if contractUsers[f.pkg] == "" && path.Base(f.path) != "api.go" {
					t.Errorf("%s imports %s: generated code belongs into api.go", f.path, in)
				}
				continue
			case in == "web" && f.pkg == "internal/console", in == "sdk/adapter" && f.pkg == "internal/plugin":
				continue // the built console; the contract's Go side
			case strings.HasPrefix(f.pkg, "sdk/"):
				continue
			}
			from, ok := ranks[f.pkg]
			to, ok2 := ranks[in]
			if seen[f.pkg] = true; !ok || !ok2 {
				t.Errorf("%s imports %s: one of the two has no rank; add it to the table", f.path, in)
			} else if to >= from {
				t.Errorf("%s (rank %d) imports %s (rank %d): only lower ranks may be imported", f.path, from, in, to)
			}
		}
		if !f.test && strings.HasPrefix(f.pkg, "internal/") && !free(f.pkg) {
			seen[f.pkg] = true
		}
	}
	for pkg := range seen {
		if _, ok := ranks[pkg]; !ok {
			t.Errorf("%s has no rank", pkg)
		}
	}
	for pkg := range ranks {
		if !seen[pkg] {
			t.Errorf("the table ranks %s, which does not exist", pkg)
		}
	}
}

func TestPureDecisions(t *testing.T) {
	t.Parallel()
	for _, pkg := range pure {
		n := 0
		for _, f := range all(t) {
			if f.pkg != pkg || f.test {
				continue
			}
			n++
			for _, imp := range f.imports() {
				if first, _, _ := strings.Cut(imp, "/"); first == "os" || first == "net" || first == "syscall" || imp == "database/sql" || imp == "math/rand" || imp == "math/rand/v2" || imp == "io/fs" {
					t.Errorf("%s imports %s", f.path, imp)
				}
			}
			ast.Inspect(f.ast, func(x ast.Node) bool {
				switch x := x.(type) {
				case *ast.GoStmt:
					t.Errorf("%s starts a goroutine", f.path)
				case *ast.SelectorExpr:
					if id, ok := x.X.(*ast.Ident); ok && id.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "Sleep", "Tick", "NewTimer", "NewTicker"}, x.Sel.Name) {
						t.Errorf("%s reads the clock: time.%s", f.path, x.Sel.Name)
					}
				}
				return true
			})
		}
		if n == 0 {
			t.Errorf("%s has no files", pkg)
		}
	}
}

// cloud SDKs and the one package that may link each directly. The Prometheus
// storage library links the AWS and Azure SDKs by itself, for the sign-in of
// its remote write; the reviewed exception is that these come along unused.
var cloud = map[string]string{
	"github.com/minio/": "internal/objects", "github.com/aws/": "", "github.com/Azure/": "", "cloud.google.com/": "", "google.golang.org/api/": "",
	"github.com/gophercloud/": "", "k8s.io/": "", "github.com/NVIDIA/": "", "github.com/aliyun/": "", "github.com/huaweicloud/": "", "github.com/tencentcloud/": "",
}

func TestNoCloudSDK(t *testing.T) {
	t.Parallel()
	used := false
	for _, f := range all(t) {
		for _, imp := range f.imports() {
			for prefix, allowed := range cloud {
				if !strings.HasPrefix(imp, prefix) {
					continue
				}
				if used = used || f.pkg == allowed; f.pkg != allowed && !strings.HasPrefix(f.pkg, "adapters/") && !forTests(f.pkg) {
					t.Errorf("%s imports %s", f.path, imp)
				}
			}
		}
	}
	if !used {
		t.Error("no package uses the S3 client: is the list still right?")
	}
}

// TestClean: the default logger, sleeps and exits have no place below main.
func TestClean(t *testing.T) {
	t.Parallel()
	for _, f := range all(t) {
		if !strings.HasPrefix(f.pkg, "internal/") || forTests(f.pkg) {
			continue
		}
		ast.Inspect(f.ast, func(x ast.Node) bool {
			s, ok := x.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			id, ok := s.X.(*ast.Ident)
			if !ok || id.Obj != nil {
				return true
			}
			switch call := id.Name + "." + s.Sel.Name; call {
			case "time.Sleep", "os.Exit", "log.Fatal", "log.Fatalf", "slog.Info", "slog.Warn", "slog.Error", "slog.Debug", "slog.Default", "slog.SetDefault":
				if sleep := call == "time.Sleep"; !f.test && sleeps[f.path] == "" || f.test && sleep && !slices.Contains(f.imports(), "testing/synctest") {
					t.Errorf("%s calls %s", f.path, call)
				}
			}
			return true
		})
	}
}

// sleeps are files that may sleep, for the reason given. Tests may in the made
// time of testing/synctest.
var sleeps = map[string]string{
	"internal/filelock/filelock.go": "the kernel has no lock with a deadline, so it asks again",
}

func TestPackageComments(t *testing.T) {
	t.Parallel()
	has := map[string]bool{}
	for _, f := range all(t) {
		if f.test {
			continue
		}
		has[f.pkg] = has[f.pkg] || f.ast.Doc != nil && len(strings.TrimSpace(f.ast.Doc.Text())) > 30
	}
	for _, pkg := range slices.Sorted(maps.Keys(has)) {
		if !has[pkg] {
			t.Errorf("%s has no package comment that says what it keeps true", pkg)
		}
	}
}

// maxLines is where a file stops being one thing.
const maxLines = 900

// longFiles may be longer, for the reason given.
var longFiles = map[string]string{
	"cmd/yunhe/fake_test.go":         "the fake platform answers every method of the contract",
	"internal/jobs/platform_test.go": "plays centers, gateways and the network between them for every test of jobs",
	"shim/test/pool.c":               "is one program, which nodes bring to where nothing else is",
}

func TestFileLength(t *testing.T) {
	t.Parallel()
	long := func(path string, text []byte) {
		if n := bytes.Count(text, []byte("\n")); n > maxLines && longFiles[path] == "" {
			t.Errorf("%s has %d lines, at most %d", path, n, maxLines)
		}
	}
	for _, f := range all(t) {
		long(f.path, f.text)
	}
	inC, err := filepath.Glob("../../shim/*/*.c")
	if err != nil || len(inC) == 0 {
		t.Fatalf("%d files of C: %v", len(inC), err)
	}
	for _, path := range inC {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		long(strings.TrimPrefix(path, "../../"), text)
	}
}

// TestRawRoutes: what is mounted beside the contract is described beside it.
func TestRawRoutes(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../rpc/raw.openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range all(t) {
		if f.test || !strings.HasPrefix(f.pkg, "internal/") || f.pkg == "internal/rpc" || forTests(f.pkg) {
			continue
		}
		ast.Inspect(f.ast, func(x ast.Node) bool {
			c, ok := x.(*ast.CallExpr)
			if !ok || len(c.Args) < 3 {
				return true
			}
			s, ok := c.Fun.(*ast.SelectorExpr)
			if !ok || s.Sel.Name != "Raw" && s.Sel.Name != "RawErrors" {
				return true
			}
			lit, ok := c.Args[0].(*ast.BasicLit)
			if !ok {
				t.Errorf("%s mounts a route whose pattern is not a literal", f.path)
				return true
			}
			pattern, _ := strconv.Unquote(lit.Value) // it parsed
			_, route, _ := strings.Cut(pattern, " ")
			if n++; !strings.Contains(string(doc), strconv.Quote(route)) {
				t.Errorf("%s mounts %s, which raw.openapi.json does not describe", f.path, pattern)
			}
			return true
		})
	}
	if n < 10 {
		t.Errorf("found %d raw routes, want at least 10", n)
	}
}
