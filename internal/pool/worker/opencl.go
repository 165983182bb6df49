//go:build linux

package worker

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"

	"yunhe.dev/yunhe/internal/pool/between"
	"yunhe.dev/yunhe/internal/pool/cards"
	"yunhe.dev/yunhe/internal/pool/wire"
)

// Values of OpenCL that are used; names are the standard's.
const (
	clSuccess             = 0
	clAllocationFailure   = -4
	clOutOfResources      = -5
	clOutOfHostMemory     = -6
	clInvalidValue        = -30
	clInvalidDevice       = -33
	clInvalidContext      = -34
	clInvalidQueue        = -36
	clInvalidMem          = -38
	clInvalidSampler      = -41
	clInvalidProgram      = -44
	clInvalidKernel       = -48
	clInvalidArgValue     = -50
	clInvalidEvent        = -58
	clInvalidBufferSize   = -61
	clInvalidOperation    = -59
	clFailedWait          = -14
	clNoArgInfo           = -19
	clNoProfiling         = -7
	clProfilingFirst      = 0x1280
	clDeviceType          = 0x1000
	clDeviceUnits         = 0x1002
	clDeviceMaxAllocation = 0x1010
	clDeviceMemory        = 0x101F
	clDeviceName          = 0x102B
	clDeviceVendor        = 0x102C
	clDriverVersion       = 0x102D
	clDeviceVersion       = 0x102F
	clDeviceExtensions    = 0x1030
	clDevicePlatform      = 0x1031
	clDeviceUnified       = 0x1035
	clDevicePartitions    = 0x1044
	clDeviceSVM           = 0x1053
	clCoarseGrain         = 1 << 0
	clTypeCPU             = 1 << 1
	clDeviceBus           = 0x410F
	clDeviceUUID          = 0x106A
	clDeviceBusNV         = 0x4008
	clDeviceSlotNV        = 0x4009
	clDeviceDomainNV      = 0x400A
	clDeviceTopologyAMD   = 0x4037
	clPlatformName        = 0x0902
	clOutOfOrder          = 1 << 0 // of queues
	clProfiling           = 1 << 1
	clAccess              = 7 << 0 // what kernels may do
	clUseHostPtr          = 1 << 3
	clAllocHostPtr        = 1 << 4
	clCopyHostPtr         = 1 << 5
	clHostAccess          = 7 << 7 // what the host may do, which the client sees to
	clMemSize             = 0x1102
	clMemReferences       = 0x1105
	clEventReferences     = 0x11D2
	clEventStatus         = 0x11D3
	clProgramDevices      = 0x1163
	clProgramSource       = 0x1164
	clProgramBinarySizes  = 0x1165
	clBuildStatus         = 0x1181
	clBinaryType          = 0x1184
	clBuildVariables      = 0x1185
	clExecutable          = 4
	clKernelName          = 0x1190
	clProgramBinaries     = 0x1166
	clBuildOptions        = 0x1182
	clKernelArgs          = 0x1191
	clSVMPointers         = 0x11B6
	clArgAddress          = 0x1196
	clArgType             = 0x1198
	clArgName             = 0x119A
	clAddressGlobal       = 0x119B
	clAddressLocal        = 0x119C
	clAddressConstant     = 0x119D
)

// library is the system's OpenCL, opened when the process starts.
type library struct {
	functions map[string]uintptr
	infos     [len(infos)]uintptr // of these, those of infos
	one       *sync.Mutex         // held by who calls; nil: many may
	forgets   bool                // clFinish, and who blocks, does not wait for what was flushed
	marksAll  bool                // a marker waits for all that its queue was given before, even if it is given a list
}

// serial tells devices whose drivers end the process, or wait for themselves for
// ever, when two threads call them, though OpenCL lets them. PoCL's "basic" before
// 5.0 locks an event twice that waits for one that another thread's command ends.
func serial(d between.Device) bool {
	return d.Vendor == "Oclgrind" || strings.HasPrefix(d.Model, "basic-") && strings.HasPrefix(d.Driver, "Portable Computing Language ")
}

// forgetful begins the names of drivers whose clFinish, and calls that block, wait only for
// what was not flushed before, by another thread either (Mesa 22.3): the worker flushes when
// the program does not.
const forgetful = "rusticl "

// marking begins the names of drivers in whose queues that do not keep order a marker with a
// list waits for all that came before, too (PoCL 3.1; a barrier with one does not).
const marking = "Portable Computing Language "

// finish is clFinish.
func (l *library) finish(queue uintptr) int32 {
	if !l.forgets {
		return l.status("clFinish", queue)
	}
	e := make([]uint64, 1)
	if bad := l.status("clEnqueueMarkerWithWaitList", queue, 0, 0, atWords(e)); bad != clSuccess {
		return bad
	}
	bad := l.status("clWaitForEvents", 1, atWords(e))
	l.call("clReleaseEvent", uintptr(e[0]))
	if bad == clFailedWait { // what has failed has come to its end, too
		bad = clSuccess
	}
	return bad
}

// newer are functions of OpenCL 2.0 to 2.2, which the system's may not have.
var newer = []string{"clCreateProgramWithIL", "clCloneKernel", "clSVMAlloc", "clSVMFree", "clSetKernelArgSVMPointer", "clSetKernelExecInfo", "clGetKernelSubGroupInfo", "clSetProgramSpecializationConstant", "clGetDeviceAndHostTimer"}

// names are all functions that are called.
func names() []string {
	all := strings.Fields(`clGetPlatformIDs clGetPlatformInfo clGetDeviceIDs clGetDeviceInfo clCreateSubDevices clReleaseDevice clCreateContext clReleaseContext clCreateCommandQueue clRetainCommandQueue clReleaseCommandQueue
clGetCommandQueueInfo clCreateBuffer clCreateSubBuffer clCreateImage clReleaseMemObject clGetMemObjectInfo clGetImageInfo clGetSupportedImageFormats clCreateSampler
clReleaseSampler clGetSamplerInfo clCreateProgramWithSource clCreateProgramWithBinary clCreateProgramWithBuiltInKernels clReleaseProgram clRetainProgram clRetainMemObject clBuildProgram
clCompileProgram clLinkProgram clGetProgramInfo clGetProgramBuildInfo clCreateKernel clCreateKernelsInProgram clReleaseKernel clSetKernelArg clGetKernelInfo
clGetKernelArgInfo clGetKernelWorkGroupInfo clWaitForEvents clGetEventInfo clCreateUserEvent clReleaseEvent clRetainEvent clGetEventProfilingInfo clFinish
clEnqueueReadBuffer clEnqueueReadBufferRect clEnqueueReadImage clEnqueueWriteBuffer clEnqueueWriteBufferRect clEnqueueWriteImage clRetainContext clGetExtensionFunctionAddressForPlatform`)
	all = append(all, newer...)
	for _, c := range wire.Calls {
		if c.Name != "" {
			all = append(all, c.Name)
		}
	}
	return all
}

func open() (*library, error) {
	h, err := purego.Dlopen("libOpenCL.so.1", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("there is no OpenCL (libOpenCL.so.1): %w", err)
	}
	l := &library{functions: map[string]uintptr{}}
	for _, n := range names() {
		at, err := purego.Dlsym(h, n)
		if err != nil && !slices.Contains(newer, n) {
			return nil, fmt.Errorf("libOpenCL.so.1 has no %s", n)
		}
		l.functions[n] = at
	}
	for i := range infos {
		l.infos[i] = l.functions[infos[i].name]
	}
	return l, nil
}

// call calls a function; 0 if there is none. Memory that arguments point to is the caller's to keep.
func (l *library) call(name string, args ...uintptr) uintptr {
	if at := l.functions[name]; at != 0 {
		return l.callAt(at, args...)
	}
	return 0
}

func (l *library) callAt(at uintptr, args ...uintptr) uintptr {
	if l.one != nil {
		l.one.Lock()
		defer l.one.Unlock()
	}
	r, _, _ := purego.SyscallN(at, args...)
	return r
}

// status calls a function that returns an error code.
func (l *library) status(name string, args ...uintptr) int32 {
	return l.statusAt(l.functions[name], args...)
}

func (l *library) statusAt(at uintptr, args ...uintptr) int32 {
	if at != 0 {
		return int32(l.callAt(at, args...))
	}
	return clInvalidOperation
}

// pins keep what calls are given pointers to: an address in an argument does not
// keep Go's memory, nor hold it where it is. Each is kept until 1,024 more were
// given; a call that may take longer keeps its own (runtime.KeepAlive).
var (
	pins    [1024]atomic.Pointer[byte]
	nextPin atomic.Uint32
)

func pin(p unsafe.Pointer) uintptr {
	pins[nextPin.Add(1)%uint32(len(pins))].Store((*byte)(p))
	return uintptr(p)
}

// atData is for contents of memory, which may be large: it is not kept. The caller
// does, until the call has returned or what it began is done.
func atData(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// A cell is memory for what OpenCL gives back.
func cell() *uint64                { return new(uint64) }
func at(p *uint64) uintptr         { return pin(unsafe.Pointer(p)) }
func atBytes(b []byte) uintptr     { return pin(unsafe.Pointer(unsafe.SliceData(b))) }
func atWords[T any](w []T) uintptr { return pin(unsafe.Pointer(unsafe.SliceData(w))) }
func cString(s string) []byte      { return append([]byte(s), 0) }

// info asks an info function for all of a value; more are arguments between the object and what is asked.
func (l *library) info(name string, args ...uintptr) ([]byte, int32) {
	room := make([]uint64, infoRoom)
	atWords(room) // a stack may move
	return l.infoIn(room, l.functions[name], args...)
}

// infoRoom is how many words info takes for arguments, for a size and for most values.
const infoRoom = 6 + 1 + 16

// infoIn is info, in memory of the caller's where it is enough, which is not on a stack.
func (l *library) infoIn(room []uint64, at uintptr, args ...uintptr) ([]byte, int32) {
	defer runtime.KeepAlive(room)
	all, size, values := unsafe.Slice((*uintptr)(unsafe.Pointer(&room[0])), 6), &room[6], room[7:] // not allocated for the call
	k := copy(all[:3], args)
	ask := func(b []byte) int32 {
		all[k], all[k+1], all[k+2] = uintptr(len(b)), atData(b), uintptr(unsafe.Pointer(size))
		return l.statusAt(at, all[:k+3]...)
	}
	few := unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 8*len(values))
	if ask(few) == clSuccess && *size <= uint64(len(few)) {
		return few[:*size], clSuccess
	}
	if s := ask(nil); s != clSuccess {
		return nil, s
	}
	b := make([]byte, *size)
	if len(b) == 0 {
		return b, clSuccess
	}
	s := ask(b)
	runtime.KeepAlive(b)
	return b, s
}

func (l *library) text(name string, args ...uintptr) string {
	b, _ := l.info(name, args...)
	return strings.TrimRight(string(b), "\x00")
}

func (l *library) number(name string, args ...uintptr) uint64 {
	b, _ := l.info(name, args...)
	var n uint64
	for i, x := range b[:min(len(b), 8)] {
		n |= uint64(x) << (8 * i)
	}
	return n
}

var deviceTypes = map[uint64]string{2: "cpu", 4: "gpu", 8: "accelerator"}

type handle struct {
	between.Device

	platform, device uintptr
}

// devices lists those that OpenCL shows, but for those of a pool: a node does
// not lend what is lent to it.
func (l *library) devices() []handle {
	ids, n := make([]uintptr, 16), cell()
	if l.status("clGetPlatformIDs", uintptr(len(ids)), atWords(ids), at(n)) != clSuccess {
		return nil
	}
	var out []handle
	for p, platform := range ids[:min(int(uint32(*n)), len(ids))] {
		name := l.text("clGetPlatformInfo", platform, clPlatformName)
		if strings.HasPrefix(name, "Yunhe") {
			continue
		}
		found, n := make([]uintptr, 64), cell()
		if l.status("clGetDeviceIDs", platform, 0xFFFFFFFF, uintptr(len(found)), atWords(found), at(n)) != clSuccess {
			continue
		}
		for i, d := range found[:min(int(uint32(*n)), len(found))] {
			text := func(what uintptr) string { return l.text("clGetDeviceInfo", d, what) }
			kind := deviceTypes[l.number("clGetDeviceInfo", d, clDeviceType)&14]
			if kind == "" {
				kind = "other"
			}
			out = append(out, handle{between.Device{
				Platform: p, Index: i, Model: strings.TrimSpace(text(clDeviceName)), Vendor: text(clDeviceVendor), Driver: name + " " + text(clDriverVersion), Version: text(clDeviceVersion),
				Type: kind, Units: int64(l.number("clGetDeviceInfo", d, clDeviceUnits)), Memory: int64(l.number("clGetDeviceInfo", d, clDeviceMemory)), Bus: l.bus(d), UUID: l.uuid(d),
			}, platform, d})
		}
	}
	return out
}

// bus asks where a device is: by the extension of the standard, and by those of
// makers that are older (cl_ext.h: cl_khr_pci_bus_info,
// cl_nv_device_attribute_query and cl_amd_device_topology).
func (l *library) bus(d uintptr) string {
	word := func(b []byte, i int) uint64 { return uint64(binary.NativeEndian.Uint32(b[4*i:])) }
	if b, s := l.info("clGetDeviceInfo", d, clDeviceBus); s == clSuccess && len(b) == 16 {
		return cards.Bus(word(b, 0), word(b, 1), word(b, 2), word(b, 3))
	}
	bus, s := l.info("clGetDeviceInfo", d, clDeviceBusNV)
	if slot, s2 := l.info("clGetDeviceInfo", d, clDeviceSlotNV); s == clSuccess && s2 == clSuccess && len(bus) == 4 && len(slot) == 4 {
		return cards.Bus(l.number("clGetDeviceInfo", d, clDeviceDomainNV), word(bus, 0), word(slot, 0)>>3, word(slot, 0)&7)
	}
	const pcie = 1
	if b, s := l.info("clGetDeviceInfo", d, clDeviceTopologyAMD); s == clSuccess && len(b) == 24 && word(b, 0) == pcie {
		return cards.Bus(0, uint64(b[21]), uint64(b[22]), uint64(b[23]))
	}
	return ""
}

// uuid asks which device of all there are it is (cl_khr_device_uuid).
func (l *library) uuid(d uintptr) string {
	b, s := l.info("clGetDeviceInfo", d, clDeviceUUID)
	if s != clSuccess || len(b) != 16 || [16]byte(b) == [16]byte{} {
		return ""
	}
	return hex.EncodeToString(b)
}

// Devices lists the devices of this machine.
func Devices() ([]between.Device, error) {
	l, err := open()
	if err != nil {
		return nil, err
	}
	out := []between.Device{}
	for _, h := range l.devices() {
		out = append(out, h.Device)
	}
	return out, nil
}
