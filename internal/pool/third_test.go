//go:build linux

package pool_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pool"
)

// figure is what a program says of how fast it was.
var figure = regexp.MustCompile(`^(?:[0-9.]*[1-9][0-9.]*(?: us)?|inf)$`) // inf: by clpeak, of what takes no microsecond

const starpu = "/usr/lib/x86_64-linux-gnu/starpu/examples/"

// third are programs of others, as Debian has them, that use OpenCL.
var third = []struct {
	name, packages string
	args           []string
	says           string // what of its output is the same in each run, but for figures
}{
	{"clinfo", "clinfo", []string{"clinfo", "--raw"}, `CL_DEVICE_(NAME|VERSION|MAX_COMPUTE_UNITS|MAX_WORK_GROUP_SIZE|OPENCL_C_VERSION) .*`},
	{"clpeak", "clpeak", []string{"clpeak", "--kernel-latency", "--transfer-bandwidth", "--compute-integer", "--compute-intfast"},
		`(?m)^(?:      +[a-z][A-Za-z0-9 ()-]*|    Kernel launch latency) *: *(?P<figure>.*)$|^    [A-Z][^:\n]*\)$|(?i).*(?:error|fail).*`},
	{"PyOpenCL", "python3-pyopencl", []string{"/usr/bin/python3", "testdata/arrays.py"}, `.+`},
	{"PyOpenCL, shared virtual memory", "python3-pyopencl", []string{"/usr/bin/python3", "testdata/svm.py"}, `.+`},
	{"OpenCV", "python3-opencv", []string{"/usr/bin/python3", "testdata/images.py"}, `(?m)^[a-z]+( [0-9a-f]{16})+$`},
	{"OpenCV, networks", "python3-opencv", []string{"/usr/bin/python3", "testdata/network.py"}, `(?m)^(?:residual|darknet) .+$`},
	{"ffmpeg", "ffmpeg", []string{"ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=320x240:duration=1", "-init_hw_device", "opencl=it:0.0", "-filter_hw_device", "it",
		"-vf", "hwupload,boxblur_opencl=5,hwdownload,format=yuv420p", "-f", "md5", "-"}, `.+`},
	{"ffmpeg, filters", "ffmpeg", []string{"ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=320x240:duration=0.4", "-f", "lavfi", "-i", "testsrc=size=100x80:duration=0.4", "-init_hw_device", "opencl=it:0.0", "-filter_hw_device", "it",
		"-filter_complex", "[0:v]format=yuv420p,hwupload,transpose_opencl=clock,unsharp_opencl=lx=5:ly=5:la=1.5,sobel_opencl,dilation_opencl[a];[1:v]format=yuv420p,hwupload,nlmeans_opencl=s=3:p=5:r=7[b];[a][b]overlay_opencl=20:10,hwdownload,format=yuv420p", "-f", "md5", "-"}, `.+`},
	{"silx", "python3-silx python3-pytest", []string{"/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "silx.opencl.test.test_medfilt", "silx.opencl.test.test_addition", "silx.opencl.test.test_array_utils", "silx.opencl.test.test_sparse"},
		`\d+ (?:passed|failed|skipped)|(?i).*error.*`},
	{"UFO", "libufo-bin ufo-filters", []string{"ufo-launch", "-q", "dummy-data", "width=64", "height=64", "number=2", "init=3", "!", "blur", "size=5", "!", "fft", "dimensions=2", "!", "ifft", "dimensions=2", "!", "monitor", "print=64", "!", "null", "download=true"}, `0x[0-9a-f]+`},
	{"GEGL", "gegl", []string{"gegl", "-x", `<gegl><node operation="gegl:bilateral-filter"/><node operation="gegl:edge-laplace"/><node operation="gegl:box-blur"><params><param name="radius">4</param></params></node>
		<node operation="gegl:crop"><params><param name="width">96</param><param name="height">80</param></params></node><node operation="gegl:plasma"><params><param name="width">96</param><param name="height">80</param><param name="seed">7</param></params></node></gegl>`, "-o", "FILE.ppm"}, `file [0-9a-f]{16}`},
	{"StarPU", "starpu-examples", []string{starpu + "block"}, `TEST PASSED|(?i).*(fail|wrong).*`},
	{"StarPU, vectors", "starpu-examples", []string{starpu + "vector_scal"}, `\[(?:BEFORE|AFTER)\].*`},
	{"hcxkeys", "hcxkeys", []string{"wlangenpmkocl", "-e", "net", "-i", "third_test.go", "-A", "FILE.ppm"}, `file [0-9a-f]{16}`}, // any words will do
	{"hashcat", "hashcat", []string{"hashcat", "-m", "0", "-a", "3", "-D", "1", "-d", "1", "--force", "--potfile-disable", "--quiet", "--session", "SESSION", "098f6bcd4621d373cade4e832627b4f6", "?l?l?l?l"}, `[0-9a-f]{32}:.*|.*(?i:error|fail).*`},
	{"hashcat, benchmark", "hashcat", []string{"hashcat", "-b", "-m", "0", "-D", "1", "-d", "1", "--force", "--session", "SESSION", "--machine-readable", "--quiet"}, `(?m)^1:0:\d+:\d+:(?P<figure>.*):\d*[1-9]\d*$|(?i).*(?:error|fail).*`},
	{"Mandelbulber", "mandelbulber2", []string{"mandelbulber2", "--nogui", "--no-cli-color", "--format", "png", "--res", "96x72", "--override", "opencl_enabled=1#opencl_mode=1#opencl_device_type=1", "-o", "FILE.ppm",
		"/usr/share/mandelbulber2/examples/IFS_001.fract"}, `file [0-9a-f]{16}`},
	{"clFFT", "clfft-client", []string{"clFFT-client", "-x", "64", "-y", "64"}, `Internal Client Test \*+PASS\*+|(?i).*(error|fail).*`},
	{"CLBlast", "clblast-tests", []string{"clblast_test_xdot", "-platform", "0", "-device", "0", "-precision", "32"}, `\d+ test\(s\) \w+`},
	{"CLBlast, matrices and vectors", "clblast-tests", []string{"clblast_test_xgemv", "-platform", "0", "-device", "0", "-precision", "32"}, `\d+ test\(s\) \w+`},
	{"CLBlast, sums", "clblast-tests", []string{"clblast_test_xaxpy", "-platform", "0", "-device", "0", "-precision", "32"}, `\d+ test\(s\) \w+`},
	{"CLBlast, matrices", "clblast-tests", []string{"clblast_test_xger", "-platform", "0", "-device", "0", "-precision", "32"}, `\d+ test\(s\) \w+`},
}

// TestThirdParty: programs of others, unmodified, say the same natively and in
// the pool: on this machine, over TCP, with cards of two nodes, while their share
// is resized and while they move between nodes. It takes minutes and needs
// programs that other tests do not: make test-pool.
func TestThirdParty(t *testing.T) {
	if os.Getenv("YUNHE_TEST_POOL") == "" {
		t.Skip("SKIPPED: programs of others are run by make test-pool")
	}
	a, b := start(t, pool.NodeConfig{}), start(t, pool.NodeConfig{})
	spec := pool.Spec{Device: "opencl-0", Compute: 45, Memory: 2 << 30}
	home := t.TempDir()
	for _, x := range third {
		t.Run(x.name, func(t *testing.T) {
			path, err := exec.LookPath(x.args[0])
			if err != nil {
				t.Skipf("SKIPPED: there is no %s (%s)", x.args[0], x.packages)
			}
			run := func(env []string) (says []string, all string) {
				t.Helper()
				args := slices.Clone(x.args[1:])
				if i := slices.Index(args, "SESSION"); i >= 0 { // of hashcat, which has one at a time
					args[i] = filepath.Base(t.TempDir())
				}
				file := filepath.Join(t.TempDir(), "FILE.ppm")
				if i := slices.Index(args, "FILE.ppm"); i >= 0 {
					args[i] = file
				}
				cmd := exec.CommandContext(t.Context(), path, args...)
				cmd.Env = append(append(os.Environ(), "UFO_DEVICE_TYPE=cpu", "GEGL_USE_OPENCL=cpu", // they look for GPUs only
					"QT_QPA_PLATFORM=offscreen",
					"STARPU_OPENCL_ON_CPUS=1", "STARPU_OPENCL_ONLY_ON_CPUS=1", "STARPU_NCPU=0", "STARPU_HOME="+home), env...)
				out, err := cmd.CombinedOutput()
				made, err1 := os.ReadFile(file)
				if err1 != nil {
					made, err1 = os.ReadFile(file + ".png")
				}
				if err1 == nil {
					sum := sha256.Sum256(made)
					out = fmt.Appendf(out, "file %x\n", sum[:8])
				}
				var exit *exec.ExitError
				if err != nil && !errors.As(err, &exit) {
					t.Fatal(err)
				}
				re := regexp.MustCompile(x.says)
				at := 2 * re.SubexpIndex("figure") // negative: it says none
				for _, m := range re.FindAllSubmatchIndex(out, -1) {
					line := string(out[m[0]:m[1]])
					if at >= 0 && m[at] >= 0 {
						if line = string(out[m[0]:m[at]]); !figure.Match(out[m[at]:m[at+1]]) {
							t.Errorf("%q has no figure: %q", line, out[m[at]:m[at+1]])
						}
					}
					says = append(says, line)
				}
				slices.Sort(says)
				if at < 0 { // of figures there are many with one label
					says = slices.Compact(says)
				}
				if len(says) == 0 || err != nil {
					t.Errorf("%v; it says\n%s", err, out)
				}
				return says, string(out)
			}
			want, _ := run(nil)
			t.Logf("natively %s", strings.Join(want, "; "))
			libraries, _ := built() // start saw that it is
			pooled := func(t *testing.T, env []string, cards int) {
				t.Helper()
				each := slices.Repeat(want, cards) // some measure each device
				slices.Sort(each)
				if got, all := run(append(env, "OCL_ICD_VENDORS="+libraries.vendors)); !slices.Equal(got, want) && !slices.Equal(got, each) {
					t.Errorf("it says %q, natively %q; all of it:\n%s", got, want, all)
				}
			}
			for name, at := range map[string][]string{"local": {a.unix}, "over TCP": {a.tcp}, "two nodes": {a.unix, b.tcp}} {
				t.Run(name, func(t *testing.T) {
					pooled(t, shares(t, spec, at...), len(at))
				})
			}
			t.Run("resized", func(t *testing.T) {
				task, token := ask(t, a.tcp, spec)
				client := dial(t, a.unix)
				var m meanwhile
				stop := again(t, func(i int) error {
					k, err := client.Resize(task.ID, 20+int64(i)%3*20, spec.Memory+int64(i)%2*mib)
					if m.seen(k); k.Programs > 0 {
						m.done++
					}
					return err
				})
				pooled(t, pool.Environment(0, pool.OpenCL, a.tcp, task.ID, token), 1)
				stop()
				m.check(t, "resized")
				var k pool.Task
				eventually(t, func() bool { // its time is counted when its worker has ended
					var ok bool
					k, ok = taskOf(t, client, task.ID)
					return ok && k.Programs == 0
				})
				if k.Busy == 0 && x.name != "clinfo" { // frameworks compute on the processor what they cannot elsewhere
					t.Error("it computed nothing on the device")
				}
			})
			t.Run("moved", func(t *testing.T) {
				task, token := ask(t, a.tcp, spec)
				from, to := a.tcp, b.tcp
				clients := map[string]*pool.Client{from: dial(t, from), to: dial(t, to)}
				var m meanwhile
				stop := again(t, func(int) error {
					if k, ok := taskOf(t, clients[from], task.ID); ok {
						m.seen(k)
					}
					k, _, err := clients[from].Migrate(task.ID, to, "")
					switch {
					case err == nil:
						if from, to = to, from; k.Programs > 0 {
							m.done++
						}
					case fault.KindOf(err) == fault.Conflict, strings.HasSuffix(err.Error(), "the program or its worker ended"): // it has what cannot move for now; it is at its end
						err = nil
					}
					return err
				})
				pooled(t, pool.Environment(0, pool.OpenCL, a.tcp, task.ID, token), 1)
				stop()
				m.check(t, "moved")
				if t.Failed() {
					t.Logf("the nodes say\n%s\n%s", a.log, b.log)
				}
				if err := clients[from].Stop(task.ID); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// meanwhile is what was done to a task while a program had it, between the first
// time that it was seen to and the last.
type meanwhile struct {
	done        int
	first, last time.Time
}

func (m *meanwhile) seen(k pool.Task) {
	if k.Programs == 0 {
		return
	}
	if m.last = time.Now(); m.first.IsZero() {
		m.first = m.last
	}
}

// check expects that it was done at least once to a program that was there for more than a second.
func (m *meanwhile) check(t *testing.T, what string) {
	t.Helper()
	there := m.last.Sub(m.first)
	if t.Logf("%s %d times in %s of a program", what, m.done, there.Round(100*time.Millisecond)); there > time.Second && m.done == 0 {
		t.Errorf("it was never %s while it ran", what)
	}
}

func ask(t *testing.T, at string, s pool.Spec) (pool.Task, string) {
	t.Helper()
	task, token, err := dial(t, at).Run(s)
	if err != nil {
		t.Fatal(err)
	}
	return task, token
}

// shares returns the environment of a program with a share at each address.
func shares(t *testing.T, s pool.Spec, at ...string) (env []string) {
	t.Helper()
	for i, x := range at {
		task, token := ask(t, x, s)
		env = append(env, pool.Environment(i, pool.OpenCL, x, task.ID, token)...)
	}
	return env
}

// again does something five times a second until it is stopped, and says how
// often it was done.
func again(t *testing.T, do func(i int) error) (stop func() int) {
	end, times := make(chan struct{}), make(chan int)
	go func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-end:
				times <- i
				return
			case <-tick.C:
				if err := do(i); err != nil {
					t.Errorf("%d: %v", i, err)
				}
			}
		}
	}()
	return func() int { close(end); return <-times }
}
