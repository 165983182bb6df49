//go:build linux

package makers

import (
	"fmt"
	"strings"

	"yunhe.dev/yunhe/internal/pool/cards"
)

// nvml is NVIDIA's management library. Calls and structures are of nvml.h of
// CUDA 12 (github.com/NVIDIA/go-nvml, gen/nvml/nvml.h).
type nvml struct {
	library

	devices []uintptr
	events  uintptr // 0: the library tells no faults
	faults  map[uintptr]int64
	fault   map[uintptr]string

	init        func() int32
	count       func(*uint32) int32
	handle      func(uint32, *uintptr) int32
	name        func(uintptr, *byte, uint32) int32
	pci         func(uintptr, *nvmlPCI) int32
	memory      func(uintptr, *nvmlMemory) int32
	temperature func(uintptr, uint32, *uint32) int32
	power       func(uintptr, *uint32) int32
	energy      func(uintptr, *uint64) int32
	use         func(uintptr, *nvmlUse) int32
	ecc         func(uintptr, uint32, uint32, *uint64) int32
	uuid        func(uintptr, *byte, uint32) int32
	eccMode     func(uintptr, *uint32, *uint32) int32
	migMode     func(uintptr, *uint32, *uint32) int32
	getLimit    func(uintptr, *uint32) int32
	baseLimit   func(uintptr, *uint32) int32
	limits      func(uintptr, *uint32, *uint32) int32
	setLimit    func(uintptr, uint32) int32
	errorText   func(int32) string
	eventSet    func(*uintptr) int32
	register    func(uintptr, uint64, uintptr) int32
	wait        func(uintptr, *nvmlEvent, uint32) int32
}

// nvmlPCI is nvmlPciInfo_t.
type nvmlPCI struct {
	_                         [16]byte
	domain, bus, device, _, _ uint32
	id                        [32]byte
}

// nvmlMemory is nvmlMemory_t.
type nvmlMemory struct{ total, _, used uint64 }

// nvmlUse is nvmlUtilization_t.
type nvmlUse struct{ gpu, _ uint32 }

// nvmlEvent is nvmlEventData_t.
type nvmlEvent struct {
	device     uintptr
	kind, data uint64
	_, _       uint32
}

// Values of nvml.h.
const (
	nvmlTemperatureGPU = 0
	nvmlUncorrected    = 1
	nvmlVolatile       = 0
	nvmlXid            = 8
)

func (n *nvml) open() error {
	n.bind(map[string]any{
		"nvmlInit_v2": &n.init, "nvmlDeviceGetCount_v2": &n.count, "nvmlDeviceGetHandleByIndex_v2": &n.handle, "nvmlDeviceGetName": &n.name, "nvmlDeviceGetPciInfo_v3": &n.pci,
		"nvmlDeviceGetMemoryInfo": &n.memory, "nvmlDeviceGetTemperature": &n.temperature, "nvmlDeviceGetPowerUsage": &n.power, "nvmlDeviceGetTotalEnergyConsumption": &n.energy,
		"nvmlDeviceGetUtilizationRates": &n.use, "nvmlDeviceGetTotalEccErrors": &n.ecc, "nvmlDeviceGetUUID": &n.uuid, "nvmlDeviceGetEccMode": &n.eccMode, "nvmlDeviceGetMigMode": &n.migMode,
		"nvmlDeviceGetPowerManagementLimit":        &n.getLimit,
		"nvmlDeviceGetPowerManagementDefaultLimit": &n.baseLimit, "nvmlDeviceGetPowerManagementLimitConstraints": &n.limits, "nvmlDeviceSetPowerManagementLimit": &n.setLimit,
		"nvmlErrorString": &n.errorText, "nvmlEventSetCreate": &n.eventSet, "nvmlDeviceRegisterEvents": &n.register, "nvmlEventSetWait_v2": &n.wait,
	})
	if n.init == nil || n.count == nil || n.handle == nil {
		return fmt.Errorf("libnvidia-ml.so.1 has not the calls of nvml.h")
	}
	if err := n.failed("nvmlInit_v2", n.init()); err != nil {
		return err
	}
	n.faults, n.fault = map[uintptr]int64{}, map[uintptr]string{}
	if n.eventSet == nil || n.register == nil || n.wait == nil || n.eventSet(&n.events) != 0 {
		n.events = 0
	}
	return nil
}

func (n *nvml) failed(what string, code int32) error {
	switch {
	case code == 0:
		return nil
	case n.errorText != nil:
		return fmt.Errorf("%s: %s", what, n.errorText(code))
	}
	return fmt.Errorf("%s: error %d", what, code)
}

func (n *nvml) cards() ([]cards.Card, error) {
	var count uint32
	if err := n.failed("nvmlDeviceGetCount_v2", n.count(&count)); err != nil {
		return nil, err
	}
	out := []cards.Card{}
	n.heard()
	for i := range count {
		var d uintptr
		if err := n.failed("nvmlDeviceGetHandleByIndex_v2", n.handle(i, &d)); err != nil {
			return nil, err
		}
		if int(i) >= len(n.devices) {
			if n.devices = append(n.devices, d); n.events != 0 {
				_ = n.register(d, nvmlXid, n.events) // a card that tells no faults has none
			}
		}
		out = append(out, n.card(int(i), d))
	}
	return out, nil
}

// heard takes the faults that were told since it was last asked.
func (n *nvml) heard() {
	var e nvmlEvent
	for n.events != 0 && n.wait(n.events, &e, 0) == 0 {
		if e.kind == nvmlXid {
			n.faults[e.device]++
			n.fault[e.device] = fmt.Sprintf("Xid %d", e.data)
		}
	}
}

func (n *nvml) card(i int, d uintptr) cards.Card {
	c := cards.Card{Driver: "nvml", Index: i, Vendor: "NVIDIA", Faults: n.faults[d], Fault: n.fault[d]}
	name := make([]byte, 96)
	if n.name != nil && n.name(d, &name[0], uint32(len(name))) == 0 {
		c.Model = text(name)
	}
	var pci nvmlPCI
	if n.pci != nil && n.pci(d, &pci) == 0 {
		c.Bus = cards.Bus(uint64(pci.domain), uint64(pci.bus), uint64(pci.device), 0)
		if id := strings.ToLower(text(pci.id[:])); strings.LastIndexByte(id, '.') == len(id)-2 {
			c.Bus = c.Bus[:len(c.Bus)-1] + id[len(id)-1:]
		}
	}
	var m nvmlMemory
	if n.memory != nil && n.memory(d, &m) == 0 {
		c.Memory, c.Used = int64(m.total), int64(m.used)
	}
	var v, w uint32
	var e uint64
	var use nvmlUse
	if n.temperature != nil {
		c.Temperature = told(n.temperature(d, nvmlTemperatureGPU, &v), &v, 1)
	}
	if n.power != nil {
		c.Power = told(n.power(d, &v), &v, 1)
	}
	if n.energy != nil {
		c.Energy = told(n.energy(d, &e), &e, 1)
	}
	if n.use != nil {
		c.Busy = told(n.use(d, &use), &use.gpu, 1)
	}
	if n.ecc != nil {
		c.Uncorrected = told(n.ecc(d, nvmlUncorrected, nvmlVolatile, &e), &e, 1)
	}
	id := make([]byte, 96)
	if n.uuid != nil && n.uuid(d, &id[0], uint32(len(id))) == 0 {
		c.UUID = text(id)
	}
	if n.eccMode != nil && n.eccMode(d, &v, &w) == 0 {
		c.ECC = new(v != 0)
	}
	if n.migMode != nil && n.migMode(d, &v, &w) == 0 {
		c.MIG = new(v != 0)
	}
	if n.getLimit != nil {
		c.Limit = told(n.getLimit(d, &v), &v, 1)
	}
	if n.baseLimit != nil {
		c.BaseLimit = told(n.baseLimit(d, &v), &v, 1)
	}
	if n.limits != nil && n.limits(d, &v, &w) == 0 {
		c.LeastLimit, c.MostLimit = new(int64(v)), new(int64(w))
	}
	return c
}

func (n *nvml) limit(i int, milliwatts int64) error {
	if n.setLimit == nil || i < 0 || i >= len(n.devices) {
		return errNoLimit
	}
	return n.failed("nvmlDeviceSetPowerManagementLimit", n.setLimit(n.devices[i], uint32(milliwatts)))
}
