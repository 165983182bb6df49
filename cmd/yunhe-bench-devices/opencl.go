//go:build linux

package main

import (
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"yunhe.dev/yunhe/internal/measurement/report"
)

// The parts of OpenCL 1.2 that are used; names are the standard's.
var (
	clGetPlatformIDs          func(n uint32, ids *uintptr, count *uint32) int32
	clGetDeviceIDs            func(platform uintptr, kind uint64, n uint32, ids *uintptr, count *uint32) int32
	clGetDeviceInfo           func(device uintptr, what uint32, size uintptr, value unsafe.Pointer, got *uintptr) int32
	clCreateContext           func(properties unsafe.Pointer, n uint32, devices *uintptr, notify, data uintptr, err *int32) uintptr
	clReleaseContext          func(context uintptr) int32
	clCreateCommandQueue      func(context, device uintptr, properties uint64, err *int32) uintptr
	clReleaseCommandQueue     func(queue uintptr) int32
	clCreateProgramWithSource func(context uintptr, n uint32, texts **byte, lengths *uintptr, err *int32) uintptr
	clBuildProgram            func(program uintptr, n uint32, devices *uintptr, options *byte, notify, data uintptr) int32
	clCreateKernel            func(program uintptr, name *byte, err *int32) uintptr
	clCreateBuffer            func(context uintptr, flags uint64, size uintptr, host unsafe.Pointer, err *int32) uintptr
	clReleaseMemObject        func(buffer uintptr) int32
	clSetKernelArg            func(kernel uintptr, index uint32, size uintptr, value unsafe.Pointer) int32
	clEnqueueNDRangeKernel    func(queue, kernel uintptr, dimensions uint32, offset, global, local *uintptr, n uint32, waits, event unsafe.Pointer) int32
	clEnqueueReadBuffer       func(queue, buffer uintptr, block uint32, offset, size uintptr, to unsafe.Pointer, n uint32, waits, event unsafe.Pointer) int32
	clFinish                  func(queue uintptr) int32
)

const (
	clDeviceType          = 0x1000
	clComputeUnits        = 0x1002
	clClock               = 0x100C
	clGlobalMemory        = 0x101F
	clMaxAllocation       = 0x1010
	clDeviceName          = 0x102B
	clDoubleConfig        = 0x1032
	clAllDevices          = 0xFFFFFFFF
	clDeviceCPU           = 1 << 1
	clDeviceGPU           = 1 << 2
	maxPlatforms          = 16
	maxCopyBytes    int64 = 256 << 20
)

// source is the programs: 64 chains in each item, as vectors of 16. Each begins
// elsewhere, or a compiler would see that they are the same and do one.
const source = `
#define CHAINS(NAME, T, T16) \
kernel void NAME(global T *out, T m, T s, uint rounds) { \
	T i = (T)(get_global_id(0) & 7); \
	T16 a = (T16)(i) + (T16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); \
	T16 b = a + (T)16, c = a + (T)32, d = a + (T)48; \
	T16 f = (T16)(m), g = (T16)(s); \
	for (uint k = 0; k < rounds; k++) { a = mad(a, f, g); b = mad(b, f, g); c = mad(c, f, g); d = mad(d, f, g); } \
	T16 e = a + b + c + d; \
	out[get_global_id(0)] = e.s0 + e.s1 + e.s2 + e.s3 + e.s4 + e.s5 + e.s6 + e.s7 + e.s8 + e.s9 + e.sa + e.sb + e.sc + e.sd + e.se + e.sf; \
}
CHAINS(fp32, float, float16)
#ifdef DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
CHAINS(fp64, double, double16)
#endif
kernel void move(global const float4 *in, global float4 *out) { out[get_global_id(0)] = in[get_global_id(0)]; }
`

// openCL measures every device of every platform.
func openCL(r *report.Report) error {
	lib := uintptr(0)
	for _, name := range []string{"libOpenCL.so.1", "libOpenCL.so"} {
		if h, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL); err == nil {
			lib = h
			break
		}
	}
	if lib == 0 {
		return failure("there is no OpenCL loader (libOpenCL.so.1): no OpenCL device was looked for")
	}
	for name, f := range map[string]any{
		"clGetPlatformIDs": &clGetPlatformIDs, "clGetDeviceIDs": &clGetDeviceIDs, "clGetDeviceInfo": &clGetDeviceInfo, "clCreateContext": &clCreateContext,
		"clReleaseContext": &clReleaseContext, "clCreateCommandQueue": &clCreateCommandQueue, "clReleaseCommandQueue": &clReleaseCommandQueue,
		"clCreateProgramWithSource": &clCreateProgramWithSource, "clBuildProgram": &clBuildProgram, "clCreateKernel": &clCreateKernel,
		"clCreateBuffer": &clCreateBuffer, "clReleaseMemObject": &clReleaseMemObject, "clSetKernelArg": &clSetKernelArg,
		"clEnqueueNDRangeKernel": &clEnqueueNDRangeKernel, "clEnqueueReadBuffer": &clEnqueueReadBuffer, "clFinish": &clFinish,
	} {
		at, err := purego.Dlsym(lib, name)
		if err != nil {
			return failure("the OpenCL loader has no " + name)
		}
		purego.RegisterFunc(f, at)
	}
	var platforms [maxPlatforms]uintptr
	n := uint32(0)
	if code := clGetPlatformIDs(maxPlatforms, &platforms[0], &n); code != 0 || n == 0 {
		return failure("OpenCL has no platform (" + strconv.Itoa(int(code)) + ")")
	}
	for _, p := range platforms[:min(n, maxPlatforms)] {
		var devices [maxPlatforms]uintptr
		count := uint32(0)
		if clGetDeviceIDs(p, clAllDevices, maxPlatforms, &devices[0], &count) != 0 {
			continue // a platform without devices
		}
		for _, id := range devices[:min(count, maxPlatforms)] {
			oneOpenCL(r, id)
		}
	}
	return nil
}

func clNumber(id uintptr, what uint32) int64 {
	var b [8]byte
	if clGetDeviceInfo(id, what, 8, unsafe.Pointer(&b[0]), nil) != 0 {
		return 0
	}
	return *(*int64)(unsafe.Pointer(&b[0])) // little endian; numbers of 4 bytes leave the rest 0
}

func oneOpenCL(r *report.Report, id uintptr) {
	var name [256]byte
	if clGetDeviceInfo(id, clDeviceName, 255, unsafe.Pointer(&name[0]), nil) != 0 {
		return
	}
	d := device{Device: report.Device{API: "opencl", Class: "other", Units: clNumber(id, clComputeUnits), MHz: clNumber(id, clClock), Name: strings.TrimSpace(text(name[:]))},
		double: clNumber(id, clDoubleConfig) != 0}
	if d.Name == "" {
		d.Name = "unnamed"
	}
	switch kind := clNumber(id, clDeviceType); {
	case kind&clDeviceCPU != 0:
		d.Class, d.items = "cpu", int(max(d.Units, 1))*64
	case kind&clDeviceGPU != 0:
		d.Class, d.items = "gpu", int(max(d.Units, 1))*2048
	default:
		d.items = int(max(d.Units, 1)) * 1024
	}
	w := &clWork{device: id, items: uintptr(d.items)}
	defer w.close()
	if err := w.open(d.double); err != nil {
		r.Devices = append(r.Devices, d.Device)
		r.Notes = append(r.Notes, "opencl device "+strconv.Itoa(len(r.Devices)-1)+": "+err.Error())
		return
	}
	d.rate = w.rate
	if d.bytes = min(maxCopyBytes, clNumber(id, clMaxAllocation)/2, clNumber(id, clGlobalMemory)/8) &^ 0xffff; d.bytes > 0 {
		var err error
		if d.move, err = w.mover(uintptr(d.bytes)); err != nil {
			r.Notes = append(r.Notes, "opencl device "+strconv.Itoa(len(r.Devices))+": memory not measured: "+err.Error())
			d.bytes = 0
		}
	}
	add(r, d)
}

// clWork is a context with what was made in it.
type clWork struct {
	device, context, queue, program uintptr
	kernels                         map[bool]uintptr // by whether it is of FP64
	buffers                         []uintptr
	items                           uintptr
}

func clFailed(what string, code int32) error {
	return failure(what + " failed with OpenCL error " + strconv.Itoa(int(code)))
}

func (w *clWork) open(double bool) error {
	var code int32
	if w.context = clCreateContext(nil, 1, &w.device, 0, 0, &code); code != 0 {
		return clFailed("making a context", code)
	}
	if w.queue = clCreateCommandQueue(w.context, w.device, 0, &code); code != 0 {
		return clFailed("making a queue", code)
	}
	src, size := []byte(source), uintptr(len(source))
	at := &src[0]
	if w.program = clCreateProgramWithSource(w.context, 1, &at, &size, &code); code != 0 {
		return clFailed("taking the program", code)
	}
	options := []byte("-cl-mad-enable\x00")
	if double {
		options = []byte("-cl-mad-enable -DDOUBLE\x00")
	}
	if code = clBuildProgram(w.program, 1, &w.device, &options[0], 0, 0); code != 0 {
		return clFailed("building the program", code)
	}
	w.kernels = map[bool]uintptr{}
	for wide, name := range map[bool]string{false: "fp32\x00", true: "fp64\x00"} {
		if wide && !double {
			continue
		}
		n := []byte(name)
		if w.kernels[wide] = clCreateKernel(w.program, &n[0], &code); code != 0 {
			return clFailed("making a kernel", code)
		}
	}
	_, err := w.buffer(w.items * 8)
	runtime.KeepAlive(src)
	return err
}

func (w *clWork) buffer(size uintptr) (uintptr, error) {
	var code int32
	b := clCreateBuffer(w.context, 1, size, nil, &code) // read and write
	if code != 0 {
		return 0, clFailed("taking memory", code)
	}
	w.buffers = append(w.buffers, b)
	return b, nil
}

func (w *clWork) run(kernel, items uintptr, args ...[]byte) error {
	for i, a := range args {
		if code := clSetKernelArg(kernel, uint32(i), uintptr(len(a)), unsafe.Pointer(&a[0])); code != 0 {
			return clFailed("giving an argument", code)
		}
	}
	if code := clEnqueueNDRangeKernel(w.queue, kernel, 1, nil, &items, nil, 0, nil, nil); code != 0 {
		return clFailed("starting", code)
	}
	if code := clFinish(w.queue); code != 0 {
		return clFailed("running", code)
	}
	return nil
}

// bytesOf is a value as its bytes.
func bytesOf[T any](v T) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v))...)
}

func (w *clWork) rate(double bool, rounds uint32) (float64, error) {
	out := w.buffers[0]
	m, s, size := bytesOf(float32(factor)), bytesOf(float32(summand)), uintptr(4)
	if double {
		m, s, size = bytesOf(float64(factor)), bytesOf(float64(summand)), 8
	}
	if err := w.run(w.kernels[double], w.items, bytesOf(out), m, s, bytesOf(rounds)); err != nil {
		return 0, err
	}
	var b [8]byte
	if code := clEnqueueReadBuffer(w.queue, out, 1, (w.items-1)*size, size, unsafe.Pointer(&b[0]), 0, nil, nil); code != 0 {
		return 0, clFailed("reading the result", code)
	}
	if double {
		return *(*float64)(unsafe.Pointer(&b[0])), nil
	}
	return float64(*(*float32)(unsafe.Pointer(&b[0]))), nil
}

// mover returns what copies one array of so many bytes to another.
func (w *clWork) mover(size uintptr) (func() error, error) {
	from, err := w.buffer(size)
	if err != nil {
		return nil, err
	}
	to, err := w.buffer(size)
	if err != nil {
		return nil, err
	}
	var code int32
	name := []byte("move\x00")
	kernel := clCreateKernel(w.program, &name[0], &code)
	if code != 0 {
		return nil, clFailed("making a kernel", code)
	}
	return func() error { return w.run(kernel, size/16, bytesOf(from), bytesOf(to)) }, nil
}

// close gives back what lasts; the process ends soon after.
func (w *clWork) close() {
	for _, b := range w.buffers {
		clReleaseMemObject(b)
	}
	if w.queue != 0 {
		clReleaseCommandQueue(w.queue)
	}
	if w.context != 0 {
		clReleaseContext(w.context)
	}
}
