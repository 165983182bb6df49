//go:build linux

package makers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"yunhe.dev/yunhe/internal/pool/cards"
)

// ServeCUDA writes what the driver of CUDA shows, and ends. In folder the library
// is looked for first. Without one there are no devices.
func ServeCUDA(folder string, out io.Writer) error {
	var c cuda
	m, err := load([]string{"libcuda.so.1"}, folder, func(l library) maker { c.library = l; return &c })
	var a cards.CUDAAnswer
	if m != nil && err == nil {
		a.Devices, err = c.devices()
	}
	if err != nil {
		a.Error = err.Error()
	}
	return json.NewEncoder(out).Encode(a)
}

// cuda is the driver's interface, declared anew from its documentation.
type cuda struct {
	library
	init      func(flags uint32) int32
	version   func(v *int32) int32
	count     func(n *int32) int32
	device    func(d *int32, ordinal int32) int32
	name      func(name *byte, n, device int32) int32
	attribute func(v *int32, what, device int32) int32
	memory    func(n *uint64, device int32) int32
	uuid      func(id *[16]byte, device int32) int32
	bus       func(name *byte, n, device int32) int32
}

// Attributes of devices.
const (
	cudaUnits = 16 // multiprocessors
	cudaPages = 89 // managed memory that processor and device use at once, and more of it than the device has
)

func (c *cuda) open() error {
	c.bind(map[string]any{
		"cuInit": &c.init, "cuDriverGetVersion": &c.version, "cuDeviceGetCount": &c.count, "cuDeviceGet": &c.device, "cuDeviceGetName": &c.name,
		"cuDeviceGetAttribute": &c.attribute, "cuDeviceTotalMem_v2": &c.memory, "cuDeviceGetUuid": &c.uuid, "cuDeviceGetPCIBusId": &c.bus,
	})
	if c.init == nil || c.version == nil || c.count == nil || c.device == nil || c.name == nil || c.attribute == nil || c.memory == nil || c.uuid == nil || c.bus == nil {
		return errors.New("libcuda.so.1 is not a driver of CUDA")
	}
	if code := c.init(0); code != 0 && code != noDevice {
		return fmt.Errorf("the driver of CUDA does not start: error %d", code)
	}
	return nil
}

// noDevice says that the driver is there and no card.
const noDevice = 100

func (c *cuda) cards() ([]cards.Card, error) { return nil, nil }

func (c *cuda) limit(int, int64) error { return errNoLimit }

func (c *cuda) devices() ([]cards.CUDA, error) {
	var n, version int32
	if c.count(&n) != 0 || c.version(&version) != 0 {
		return nil, nil
	}
	var out []cards.CUDA
	for i := range n {
		var d, units, pages int32
		var memory uint64
		var id [16]byte
		name, bus := make([]byte, 256), make([]byte, 64)
		if code := c.device(&d, i); code != 0 {
			return nil, fmt.Errorf("device %d: cuDeviceGet failed with error %d", i, code)
		}
		for what, code := range map[string]int32{
			"cuDeviceGetName": c.name(&name[0], int32(len(name)), d), "cuDeviceGetAttribute": c.attribute(&units, cudaUnits, d),
			"cuDeviceTotalMem": c.memory(&memory, d), "cuDeviceGetUuid": c.uuid(&id, d), "cuDeviceGetPCIBusId": c.bus(&bus[0], int32(len(bus)), d),
		} {
			if code != 0 {
				return nil, fmt.Errorf("device %d: %s failed with error %d", i, what, code)
			}
		}
		if c.attribute(&pages, cudaPages, d) != 0 {
			pages = 0 // of an older driver
		}
		out = append(out, cards.CUDA{
			Model: text(name), Driver: fmt.Sprintf("CUDA %d.%d", version/1000, version%1000/10), Bus: strings.ToLower(text(bus)), Units: int64(units), Memory: int64(memory), Pages: pages != 0,
			UUID: fmt.Sprintf("GPU-%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]),
		})
	}
	return out, nil
}
