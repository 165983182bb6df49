//go:build linux

package makers

import (
	"fmt"

	"golang.org/x/sys/unix"

	"yunhe.dev/yunhe/internal/pool/cards"
)

// rsmi is the management library of ROCm, which Hygon's DTK has for its DCU, too.
// Calls and structures are of rocm_smi.h (github.com/ROCm/rocm_smi_lib).
type rsmi struct {
	library

	init        func(uint64) int32
	count       func(*uint32) int32
	name        func(uint32, *byte, uint64) int32
	vendor      func(uint32, *byte, uint64) int32
	pci         func(uint32, *uint64) int32
	total       func(uint32, int32, *uint64) int32
	used        func(uint32, int32, *uint64) int32
	temperature func(uint32, uint32, int32, *int64) int32
	power       func(uint32, uint32, *uint64) int32
	socket      func(uint32, *uint64, *int32) int32
	energy      func(uint32, *uint64, *float32, *uint64) int32
	busy        func(uint32, *uint32) int32
	ecc         func(uint32, int32, *rsmiErrors) int32
	errorText   func(int32, **byte) int32
}

// rsmiErrors is rsmi_error_count_t.
type rsmiErrors struct {
	_, uncorrected uint64
	_              [2]uint64 // of later releases
}

// Values of rocm_smi.h.
const (
	rsmiVRAM = 0
	rsmiEdge = 0
	rsmiNow  = 0
	rsmiUMC  = 1
)

func (r *rsmi) open() error {
	r.bind(map[string]any{
		"rsmi_init": &r.init, "rsmi_num_monitor_devices": &r.count, "rsmi_dev_name_get": &r.name, "rsmi_dev_vendor_name_get": &r.vendor, "rsmi_dev_pci_id_get": &r.pci,
		"rsmi_dev_memory_total_get": &r.total, "rsmi_dev_memory_usage_get": &r.used, "rsmi_dev_temp_metric_get": &r.temperature, "rsmi_dev_power_ave_get": &r.power, "rsmi_dev_power_get": &r.socket,
		"rsmi_dev_energy_count_get": &r.energy, "rsmi_dev_busy_percent_get": &r.busy, "rsmi_dev_ecc_count_get": &r.ecc, "rsmi_status_string": &r.errorText,
	})
	if r.init == nil || r.count == nil {
		return fmt.Errorf("librocm_smi64.so has not the calls of rocm_smi.h")
	}
	return r.failed("rsmi_init", r.init(0))
}

func (r *rsmi) failed(what string, code int32) error {
	if code == 0 {
		return nil
	}
	var said *byte
	if r.errorText != nil && r.errorText(code, &said) == 0 && said != nil {
		return fmt.Errorf("%s: %s", what, unix.BytePtrToString(said))
	}
	return fmt.Errorf("%s: error %d", what, code)
}

func (r *rsmi) cards() ([]cards.Card, error) {
	var n uint32
	if err := r.failed("rsmi_num_monitor_devices", r.count(&n)); err != nil {
		return nil, err
	}
	out := []cards.Card{}
	for i := range n {
		out = append(out, r.card(i))
	}
	return out, nil
}

func (r *rsmi) card(i uint32) cards.Card {
	c := cards.Card{Driver: "rocm-smi", Index: int(i)}
	name := make([]byte, 256)
	if r.name != nil && r.name(i, &name[0], uint64(len(name))) == 0 {
		c.Model = text(name)
	}
	if r.vendor != nil && r.vendor(i, &name[0], uint64(len(name))) == 0 {
		c.Vendor = text(name)
	}
	var v, w uint64
	if r.pci != nil && r.pci(i, &v) == 0 {
		c.Bus = cards.Bus(v>>32, v>>8&0xff, v>>3&0x1f, v&7)
	}
	if r.total != nil && r.used != nil && r.total(i, rsmiVRAM, &v) == 0 && r.used(i, rsmiVRAM, &w) == 0 {
		c.Memory, c.Used = int64(v), int64(w)
	}
	var t int64
	var kind int32
	var busy uint32
	if r.temperature != nil && r.temperature(i, rsmiEdge, rsmiNow, &t) == 0 {
		c.Temperature = new(t / 1000)
	}
	if r.power != nil && r.power(i, 0, &v) == 0 || r.socket != nil && r.socket(i, &v, &kind) == 0 { // microwatts
		c.Power = new(int64(v / 1000))
	}
	var resolution float32 // microjoules for each of the counter's
	if r.energy != nil && r.energy(i, &v, &resolution, &w) == 0 {
		c.Energy = new(int64(float64(v) * float64(resolution) / 1000))
	}
	if r.busy != nil {
		c.Busy = told(r.busy(i, &busy), &busy, 1)
	}
	var e rsmiErrors
	if r.ecc != nil {
		c.Uncorrected = told(r.ecc(i, rsmiUMC, &e), &e.uncorrected, 1)
	}
	return c
}

func (r *rsmi) limit(int, int64) error { return errNoLimit }
