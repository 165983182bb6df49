package agent

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"yunhe.dev/yunhe/adapters/gateway/sandbox"
	"yunhe.dev/yunhe/internal/fault"
)

// A device is one accelerator: what an attempt that asks for one is given.
type device struct {
	resource string // what it counts as: gpu, npu
	kind     *kind
	index    int // the driver's number of it
	file     string
}

// kind of accelerator, by its driver.
type kind struct {
	name     string
	resource string
	files    *regexp.Regexp // below /dev; the group is the index
	shared   []string       // below /dev: what every user of such devices needs
	need     string         // below /dev: without it there are no such devices; empty: nothing
	ours     func(card cardFacts) bool
	// Variables with the indices of the machine, and with those the attempt
	// sees: it has the files of its own devices only, and drivers number from 0
	// what they can open.
	host, own []string
}

// cardFacts is what the system tells of a render node.
type cardFacts struct{ vendor, address string }

const (
	vendorNVIDIA = "0x10de"
	vendorAMD    = "0x1002"
)

var nvidia = &kind{name: "nvidia", resource: "gpu", files: regexp.MustCompile(`^nvidia(\d+)$`), shared: []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"},
	host: []string{"NVIDIA_VISIBLE_DEVICES"}, own: []string{"CUDA_VISIBLE_DEVICES"}}

var kinds = []*kind{
	nvidia,
	{name: "amd", resource: "gpu", files: regexp.MustCompile(`^dri/renderD(\d+)$`), shared: []string{"kfd"}, need: "kfd",
		ours: func(c cardFacts) bool { return c.vendor == vendorAMD || c.vendor == "" }, own: []string{"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}},
	// Others have a render node each. One on the first bus is the processor's
	// own graphics, which nobody would rent.
	{name: "render", resource: "gpu", files: regexp.MustCompile(`^dri/renderD(\d+)$`),
		ours: func(c cardFacts) bool {
			return c.vendor != "" && c.vendor != vendorNVIDIA && c.vendor != vendorAMD && c.address != "" && !strings.HasPrefix(c.address, "0000:00:")
		}},
	{name: "ascend", resource: "npu", files: regexp.MustCompile(`^davinci(\d+)$`), shared: []string{"davinci_manager", "devmm_svm", "hisi_hdc"}, need: "davinci_manager",
		host: []string{"ASCEND_VISIBLE_DEVICES"}, own: []string{"ASCEND_RT_VISIBLE_DEVICES"}},
}

// findDevices lists the accelerators whose files are below root, "/" but in
// tests. They are looked for once, when the gateway starts.
func findDevices(root string) ([]device, error) {
	var names []string
	for _, sub := range []string{"", "dri"} {
		entries, err := os.ReadDir(filepath.Join(root, "dev", sub))
		if err != nil && !os.IsNotExist(err) {
			return nil, fmt.Errorf("look for devices: %w", err)
		}
		for _, e := range entries {
			if e.Type()&fs.ModeCharDevice != 0 {
				names = append(names, filepath.Join(sub, e.Name()))
			}
		}
	}
	var found []device
	for _, k := range kinds {
		if k.need != "" && !slices.Contains(names, k.need) {
			continue
		}
		for _, name := range names {
			m := k.files.FindStringSubmatch(name)
			if m == nil || k.ours != nil && !k.ours(card(root, name)) {
				continue
			}
			index, err := strconv.Atoi(m[1])
			if err != nil {
				continue // not a number any driver gives
			}
			found = append(found, device{resource: k.resource, kind: k, index: index, file: name})
		}
	}
	slices.SortStableFunc(found, func(a, b device) int { // the first kind first
		if a.kind != b.kind {
			return slices.Index(kinds, a.kind) - slices.Index(kinds, b.kind)
		}
		return a.index - b.index
	})
	return found, nil
}

// card reads what the system tells of a render node; what it does not is
// empty.
func card(root, name string) cardFacts {
	dir := filepath.Join(root, "sys/class/drm", filepath.Base(name), "device")
	var c cardFacts
	if b, err := os.ReadFile(filepath.Join(dir, "vendor")); err == nil {
		c.vendor = strings.TrimSpace(string(b))
	}
	if p, err := filepath.EvalSymlinks(dir); err == nil {
		c.address = filepath.Base(p)
	}
	return c
}

// devices says who has which accelerator. Which ones a run has is kept in the
// run's own folder, and found there by the next gateway.
type devices struct {
	root string
	all  []device

	mu      sync.Mutex           // guards what follows
	holder  map[int]string       // attempt by place in all
	lacking map[string]time.Time // since when attempts that are told again want what is in use
}

// waitForDevices is how long accelerators may be in use that an attempt wants,
// as those of a run that has just ended are. After it another center should
// rather take the attempt.
const waitForDevices = 15 * time.Second

func newDevices(root string, none bool) (*devices, error) {
	if root == "" {
		root = "/"
	}
	d := &devices{root: root, holder: map[int]string{}, lacking: map[string]time.Time{}}
	if none {
		return d, nil
	}
	var err error
	d.all, err = findDevices(root)
	return d, err
}

func (d *devices) source(file string) string { return filepath.Join(d.root, "dev", file) }

// count returns how many there are, by resource.
func (d *devices) count() map[string]int64 {
	n := map[string]int64{}
	for _, x := range d.all {
		n[x.resource]++
	}
	return n
}

// accelerated are the resources that are handed out as device files.
var accelerated = []string{"gpu", "npu"}

// take gives the attempt what it asks for, all or nothing. Those of one
// resource are of one kind, because no program uses two drivers at once. An
// Invalid fault says that the machine has not that many, Unavailable that they
// are in use at present, Exhausted that they have been for long.
func (d *devices) take(attempt string, want map[string]int64) ([]device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var places []int
	for _, resource := range accelerated {
		n := want[resource]
		if n <= 0 {
			continue
		}
		got, most := []int(nil), 0
		for _, k := range kinds {
			var free []int
			have := 0
			for i, x := range d.all {
				if x.kind != k || x.resource != resource {
					continue
				}
				have++
				if d.holder[i] == "" {
					free = append(free, i)
				}
			}
			most = max(most, have)
			if got == nil && int64(len(free)) >= n {
				got = free[:n]
			}
		}
		switch {
		case int64(most) < n:
			return nil, fault.New(fault.Invalid, "it asks for %d %s, and this machine has %d of one kind", n, resource, most)
		case got == nil:
			return nil, d.busy(attempt, n, resource)
		}
		places = append(places, got...)
	}
	delete(d.lacking, attempt)
	var out []device
	for _, i := range places {
		d.holder[i] = attempt
		out = append(out, d.all[i])
	}
	return out, nil
}

// busy says that an attempt cannot have what it wants yet. The caller holds the
// lock.
func (d *devices) busy(attempt string, n int64, resource string) error {
	now := time.Now()
	since, told := d.lacking[attempt]
	if !told {
		maps.DeleteFunc(d.lacking, func(_ string, at time.Time) bool { return now.Sub(at) > 10*waitForDevices }) // nobody tells them again
		since, d.lacking[attempt] = now, now
	}
	if waited := now.Sub(since); waited >= waitForDevices {
		delete(d.lacking, attempt)
		return fault.New(fault.Exhausted, "fewer than %d %s of one kind have been free for %s", n, resource, waited.Round(time.Second))
	}
	return fault.New(fault.Unavailable, "fewer than %d %s of one kind are free at present", n, resource)
}

// release takes back what the attempt has.
func (d *devices) release(attempt string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, who := range d.holder {
		if who == attempt {
			delete(d.holder, i)
		}
	}
}

// restore notes what a run that a predecessor started has.
func (d *devices) restore(run *sandbox.Run) {
	if _, over := run.Result(); over {
		return
	}
	has := run.Devices()
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, x := range d.all {
		if slices.Contains(has, d.source(x.file)) {
			d.holder[i] = run.ID()
		}
	}
}

// files puts the files of accelerators into a spec, and those their drivers share.
func (d *devices) files(spec *sandbox.Spec, list []device) {
	add := func(file string) {
		x := sandbox.Device{Path: "/dev/" + file, Source: d.source(file)}
		if !slices.Contains(spec.Devices, x) {
			spec.Devices = append(spec.Devices, x)
		}
	}
	for _, x := range list {
		add(x.file)
		for _, file := range x.kind.shared {
			if st, err := os.Stat(d.source(file)); err == nil && st.Mode()&fs.ModeCharDevice != 0 {
				add(file)
			}
		}
	}
}

// equip puts accelerators into a spec: their files, and the variables programs look at.
func (d *devices) equip(spec *sandbox.Spec, list []device) {
	d.files(spec, list)
	indices := map[*kind][]string{}
	for _, x := range list {
		indices[x.kind] = append(indices[x.kind], strconv.Itoa(x.index))
	}
	for _, k := range kinds {
		if indices[k] == nil {
			continue
		}
		for _, name := range k.host {
			spec.Env[name] = strings.Join(indices[k], ",")
		}
		own := make([]string, len(indices[k]))
		for i := range own {
			own[i] = strconv.Itoa(i)
		}
		for _, name := range k.own {
			spec.Env[name] = strings.Join(own, ",")
		}
	}
}
