//go:build linux

package makers

import (
	"fmt"

	"yunhe.dev/yunhe/internal/pool/cards"
)

// dcmi is Huawei's library of Ascend cards. Calls and structures are of
// dcmi_interface_api.h (gitee.com/ascend/mind-cluster and gitcode.com/cann/driver).
// It has no counter of energy.
type dcmi struct {
	library

	init        func() int32
	list        func(*int32, *int32, int32) int32
	chips       func(int32, *int32) int32
	kind        func(int32, int32, *int32) int32
	chip        func(int32, int32, *dcmiChip) int32
	pci         func(int32, int32, *dcmiPCI) int32
	hbm         func(int32, int32, *dcmiHBM) int32
	memory      func(int32, int32, *dcmiMemory) int32
	temperature func(int32, int32, *int32) int32
	power       func(int32, int32, *int32) int32
	use         func(int32, int32, int32, *uint32) int32
	ecc         func(int32, int32, int32, *dcmiECC) int32
}

// dcmiChip is struct dcmi_chip_info.
type dcmiChip struct {
	kind, name, _ [32]byte
	_             uint32
}

// dcmiPCI is struct dcmi_pcie_info_all.
type dcmiPCI struct {
	_, _, _, _          uint32
	domain              int32
	bus, slot, function uint32
	_                   [32]byte
}

// dcmiHBM is struct dcmi_hbm_info; sizes are MB.
type dcmiHBM struct {
	size uint64
	_    uint32
	used uint64
	_    int32
	_    uint32
}

// dcmiMemory is struct dcmi_get_memory_info_stru; sizes are MB.
type dcmiMemory struct {
	size, available uint64
	_               uint32
	_, _, _         uint64
	_               uint32
	_               [60]byte
}

// dcmiECC is struct dcmi_ecc_info.
type dcmiECC struct {
	_              int32
	_, _           uint32
	_, totalDouble uint32
	_, _           uint32
	_              [64]byte // of later releases
}

// Values of dcmi_interface_api.h.
const (
	dcmiNPU    = 0
	dcmiAICore = 2
	dcmiHBMECC = 2
	dcmiCards  = 64
)

func (a *dcmi) open() error {
	a.bind(map[string]any{
		"dcmi_init": &a.init, "dcmi_get_card_list": &a.list, "dcmi_get_device_num_in_card": &a.chips, "dcmi_get_device_type": &a.kind, "dcmi_get_device_chip_info": &a.chip,
		"dcmi_get_device_pcie_info_v2": &a.pci, "dcmi_get_device_hbm_info": &a.hbm, "dcmi_get_device_memory_info_v3": &a.memory, "dcmi_get_device_temperature": &a.temperature,
		"dcmi_get_device_power_info": &a.power, "dcmi_get_device_utilization_rate": &a.use, "dcmi_get_device_ecc_info": &a.ecc,
	})
	if a.init == nil || a.list == nil || a.chips == nil {
		return fmt.Errorf("libdcmi.so has not the calls of dcmi_interface_api.h")
	}
	if code := a.init(); code != 0 {
		return fmt.Errorf("dcmi_init: error %d", code)
	}
	return nil
}

func (a *dcmi) cards() ([]cards.Card, error) {
	var n int32
	ids := make([]int32, dcmiCards)
	if code := a.list(&n, &ids[0], dcmiCards); code != 0 {
		return nil, fmt.Errorf("dcmi_get_card_list: error %d", code)
	}
	out := []cards.Card{}
	for _, card := range ids[:min(max(n, 0), dcmiCards)] {
		var chips int32
		if code := a.chips(card, &chips); code != 0 {
			return nil, fmt.Errorf("dcmi_get_device_num_in_card: error %d", code)
		}
		for chip := range chips {
			var kind int32
			if a.kind != nil && a.kind(card, chip, &kind) == 0 && kind != dcmiNPU {
				continue // the card's own controller
			}
			out = append(out, a.card(len(out), card, chip))
		}
	}
	return out, nil
}

func (a *dcmi) card(i int, card, chip int32) cards.Card {
	c := cards.Card{Driver: "dcmi", Index: i, Vendor: "Huawei"}
	var about dcmiChip
	if a.chip != nil && a.chip(card, chip, &about) == 0 {
		c.Model = text(about.kind[:]) + " " + text(about.name[:])
	}
	var pci dcmiPCI
	if a.pci != nil && a.pci(card, chip, &pci) == 0 {
		c.Bus = cards.Bus(uint64(uint32(pci.domain)), uint64(pci.bus), uint64(pci.slot), uint64(pci.function))
	}
	var hbm dcmiHBM
	var memory dcmiMemory
	switch {
	case a.hbm != nil && a.hbm(card, chip, &hbm) == 0 && hbm.size > 0:
		c.Memory, c.Used = int64(hbm.size)<<20, int64(hbm.used)<<20
	case a.memory != nil && a.memory(card, chip, &memory) == 0:
		c.Memory, c.Used = int64(memory.size)<<20, int64(memory.size-min(memory.available, memory.size))<<20
	}
	var v int32
	var use uint32
	var ecc dcmiECC
	if a.temperature != nil {
		c.Temperature = told(a.temperature(card, chip, &v), &v, 1)
	}
	if a.power != nil { // tenths of watts
		c.Power = told(a.power(card, chip, &v), &v, 100)
	}
	if a.use != nil {
		c.Busy = told(a.use(card, chip, dcmiAICore, &use), &use, 1)
	}
	if a.ecc != nil {
		c.Uncorrected = told(a.ecc(card, chip, dcmiHBMECC, &ecc), &ecc.totalDouble, 1)
	}
	return c
}

func (a *dcmi) limit(int, int64) error { return errNoLimit }
