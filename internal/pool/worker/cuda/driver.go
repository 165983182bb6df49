//go:build linux

package cuda

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"

	"yunhe.dev/yunhe/internal/pool/wire"
)

// Errors of CUDA that are told here; names are the driver's.
const (
	success            = 0
	invalidValue       = 1
	outOfMemory        = 2
	invalidDevice      = 101
	invalidContext     = 201
	invalidHandle      = 400
	notReady           = 600
	notSupported       = 801
	captureUnsupported = 900
)

// Attributes of devices, kinds of memory, modes.
const (
	onDevice     = 1 // of locations
	relaxed      = 2 // of capturing
	sleeping     = 1 // of events: who waits for one sleeps, for which each interrupts
	untimed      = 2 // of events: no time is taken
	threshold    = 4 // of a pool: how much it keeps that was freed
	majorVersion = 75
	minorVersion = 76
	legacyStream = 1
	ownStream    = 2 // the thread's
	nameRoom     = 256
	busRoom      = 64
	uuidSize     = 16
)

// driver is libcuda, opened when the process starts.
type driver struct {
	byOp   map[wire.Op]uintptr
	named  map[string]uintptr
	handle uintptr
}

// open looks for the library in a folder first.
func open(folder string) (*driver, error) {
	const name = "libcuda.so.1"
	var h uintptr
	err := errors.New("no folder")
	if folder != "" {
		h, err = purego.Dlopen(filepath.Join(folder, name), purego.RTLD_NOW|purego.RTLD_LOCAL)
	}
	if err != nil {
		if h, err = purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL); err != nil {
			return nil, fmt.Errorf("there is no driver of CUDA (%s): %w", name, err)
		}
	}
	d := &driver{byOp: map[wire.Op]uintptr{}, named: map[string]uintptr{}, handle: h}
	for op, c := range wire.CUDACalls {
		d.byOp[op] = d.find(c.Name)
	}
	for _, n := range []string{
		"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetUuid", "cuDeviceGetName", "cuDeviceGetPCIBusId", "cuDeviceGetLuid", "cuDeviceGetAttribute",
		"cuCtxSetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventSynchronize", "cuStreamIsCapturing", "cuThreadExchangeStreamCaptureMode",
		"cuMemAllocHost_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpy3DAsync_v2", "cuModuleLoadDataEx", "cuModuleLoadData", "cuLibraryLoadData", "cuLaunchKernel", "cuLaunchCooperativeKernel", "cuLaunchKernelEx",
		"cuFuncGetParamInfo", "cuKernelGetParamInfo", "cuFuncGetName", "cuKernelGetName", "cuGraphGetNodes", "cuModuleGetFunctionCount", "cuModuleEnumerateFunctions", "cuLibraryGetKernelCount", "cuLibraryEnumerateKernels",
		"cuMemAllocManaged", "cuMemPrefetchAsync", "cuMemSetAccess", "cuMemPoolSetAccess", "cuLinkCreate_v2", "cuLinkAddData_v2", "cuLinkComplete", "cuLinkDestroy", "cuOccupancyMaxPotentialClusterSize", "cuOccupancyMaxActiveClusters", "cuDevicePrimaryCtxGetState",
	} {
		d.named[n] = d.find(n)
	}
	for _, n := range []string{"cuInit", "cuDeviceGet", "cuDeviceGetUuid", "cuCtxSetCurrent", "cuEventCreate", "cuEventRecord", "cuEventQuery"} {
		if d.named[n] == 0 {
			return nil, fmt.Errorf("%s is not a driver of CUDA: it has no %s", name, n)
		}
	}
	return d, nil
}

func (d *driver) find(name string) uintptr {
	at, err := purego.Dlsym(d.handle, name)
	if err != nil {
		return 0 // the driver is older: the call is not supported
	}
	return at
}

// at calls a function. What arguments point to is the caller's to keep, and not
// on its stack.
func (d *driver) at(f uintptr, args ...uintptr) int32 {
	if f == 0 {
		return notSupported
	}
	r, _, _ := purego.SyscallN(f, args...)
	return int32(r)
}

func (d *driver) call(name string, args ...uintptr) int32 { return d.at(d.named[name], args...) }

// cells is memory for what the driver gives back; it stays where it is.
type cells [64]uint64

func (c *cells) at(i int) uintptr { return uintptr(unsafe.Pointer(&c[i])) }

func addr[T any](b []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// device finds one by its UUID, as the node writes it.
func (d *driver) device(uuid string) (int32, error) {
	if r := d.call("cuInit", 0); r != success {
		return 0, fmt.Errorf("the driver of CUDA does not start: error %d", r)
	}
	c := &cells{}
	defer runtime.KeepAlive(c)
	if r := d.call("cuDeviceGetCount", c.at(0)); r != success {
		return 0, fmt.Errorf("the devices of CUDA are not known: error %d", r)
	}
	for i := range int32(c[0]) {
		id := make([]byte, uuidSize)
		if d.call("cuDeviceGet", c.at(1), uintptr(i)) != success || d.call("cuDeviceGetUuid", addr(id), uintptr(int32(c[1]))) != success {
			continue
		}
		if UUID(id) == uuid {
			return int32(c[1]), nil
		}
	}
	return 0, fmt.Errorf("there is no device %s any more", uuid)
}

// UUID writes 16 bytes as NVIDIA does.
func UUID(id []byte) string {
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
}
