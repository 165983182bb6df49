//go:build linux

package makers

import (
	"fmt"

	"yunhe.dev/yunhe/internal/pool/cards"
)

// cndev is Cambricon's management library. Calls and structures are of version 5
// of cndev.h (github.com/Cambricon/mlu-exporter, pkg/cndev/include/cndev.h). It
// has no counter of energy.
type cndev struct {
	library

	init        func(int32) int32
	count       func(*cndevCount) int32
	handle      func(int32, *int32) int32
	name        func(int32) string
	pci         func(*cndevPCI, int32) int32
	memory      func(*cndevMemory, int32) int32
	temperature func(*cndevWords, int32) int32
	power       func(*cndevWords, int32) int32
	use         func(*cndevWords, int32) int32
	ecc         func(*cndevECC, int32) int32
}

// Structures begin with the version that the caller knows. Later releases have
// more behind: there is room for it.
type (
	// cndevCount is cndevCardInfo_t.
	cndevCount struct {
		version int32
		number  uint32
		_       [120]byte
	}
	// cndevPCI is cndevPCIeInfo_t.
	cndevPCI struct {
		version                       int32
		_, _                          uint32
		_, _                          uint16
		domain, bus, device, function uint32
		_                             [512]byte
	}
	// cndevMemory is cndevMemoryInfo_t; sizes are MB.
	cndevMemory struct {
		version     int32
		total, used int64
		_           [512]byte
	}
	// cndevWords is cndevTemperatureInfo_t, whose first word is of the board;
	// cndevPowerInfo_t, whose first are watts; and cndevUtilizationInfo_t, whose first
	// is the mean of its cores.
	cndevWords struct {
		version int32
		words   [255]int32
	}
	// cndevECC is cndevECCInfo_t.
	cndevECC struct {
		version        int32
		_, _, _, _, _  uint64
		uncorrected, _ uint64
		_              [512]byte
	}
)

const cndevVersion = 5

func (k *cndev) open() error {
	k.bind(map[string]any{
		"cndevInit": &k.init, "cndevGetDeviceCount": &k.count, "cndevGetDeviceHandleByIndex": &k.handle, "cndevGetCardNameStringByDevId": &k.name, "cndevGetPCIeInfo": &k.pci,
		"cndevGetMemoryUsage": &k.memory, "cndevGetTemperatureInfo": &k.temperature, "cndevGetPowerInfo": &k.power, "cndevGetDeviceUtilizationInfo": &k.use, "cndevGetECCInfo": &k.ecc,
	})
	if k.init == nil || k.count == nil {
		return fmt.Errorf("libcndev.so has not the calls of cndev.h")
	}
	if code := k.init(0); code != 0 {
		return fmt.Errorf("cndevInit: error %d", code)
	}
	return nil
}

func (k *cndev) cards() ([]cards.Card, error) {
	n := cndevCount{version: cndevVersion}
	if code := k.count(&n); code != 0 {
		return nil, fmt.Errorf("cndevGetDeviceCount: error %d", code)
	}
	out := []cards.Card{}
	for i := range int32(n.number) {
		d := i // older releases know cards by their index
		if k.handle != nil {
			if code := k.handle(i, &d); code != 0 {
				return nil, fmt.Errorf("cndevGetDeviceHandleByIndex: error %d", code)
			}
		}
		out = append(out, k.card(int(i), d))
	}
	return out, nil
}

func (k *cndev) card(i int, d int32) cards.Card {
	c := cards.Card{Driver: "cndev", Index: i, Vendor: "Cambricon"}
	if k.name != nil {
		c.Model = k.name(d)
	}
	if pci := (cndevPCI{version: cndevVersion}); k.pci != nil && k.pci(&pci, d) == 0 {
		c.Bus = cards.Bus(uint64(pci.domain), uint64(pci.bus), uint64(pci.device), uint64(pci.function))
	}
	if m := (cndevMemory{version: cndevVersion}); k.memory != nil && k.memory(&m, d) == 0 {
		c.Memory, c.Used = m.total<<20, m.used<<20
	}
	for _, x := range []struct {
		call  func(*cndevWords, int32) int32
		to    **int64
		times int64
	}{{k.temperature, &c.Temperature, 1}, {k.power, &c.Power, 1000}, {k.use, &c.Busy, 1}} {
		if x.call != nil {
			w := cndevWords{version: cndevVersion}
			*x.to = told(x.call(&w, d), &w.words[0], x.times)
		}
	}
	if k.ecc != nil {
		e := cndevECC{version: cndevVersion}
		c.Uncorrected = told(k.ecc(&e, d), &e.uncorrected, 1)
	}
	return c
}

func (k *cndev) limit(int, int64) error { return errNoLimit }
