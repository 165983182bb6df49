//go:build linux

package main

import (
	"strconv"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"yunhe.dev/yunhe/internal/measurement/report"
)

// The parts of the CUDA driver interface that are used; names are the vendor's.
var (
	cuInit                   func(flags uint32) int32
	cuDeviceGetCount         func(n *int32) int32
	cuDeviceGet              func(device *int32, ordinal int32) int32
	cuDeviceGetName          func(name *byte, size, device int32) int32
	cuDeviceGetAttribute     func(value *int32, what, device int32) int32
	cuDevicePrimaryCtxRetain func(context *uintptr, device int32) int32
	cuDevicePrimaryCtxReset  func(device int32) int32
	cuCtxSetCurrent          func(context uintptr) int32
	cuCtxSynchronize         func() int32
	cuModuleLoadData         func(module *uintptr, image *byte) int32
	cuModuleGetFunction      func(function *uintptr, module uintptr, name *byte) int32
	cuMemAlloc               func(at *uint64, size uintptr) int32
	cuMemcpyDtoH             func(to unsafe.Pointer, from uint64, size uintptr) int32
	cuMemcpyDtoD             func(to, from uint64, size uintptr) int32
	cuLaunchKernel           func(function uintptr, gx, gy, gz, bx, by, bz, shared uint32, stream uintptr, params, extra unsafe.Pointer) int32
)

const (
	cuClock  = 13 // kHz
	cuUnits  = 16
	cuBlock  = 256
	cuBlocks = 8 // for each unit
)

// cuda measures every device of the CUDA driver.
func cuda(r *report.Report) error {
	lib, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return failure("there is no CUDA driver (libcuda.so.1): no CUDA device was looked for")
	}
	for name, f := range map[string]any{
		"cuInit": &cuInit, "cuDeviceGetCount": &cuDeviceGetCount, "cuDeviceGet": &cuDeviceGet, "cuDeviceGetName": &cuDeviceGetName,
		"cuDeviceGetAttribute": &cuDeviceGetAttribute, "cuDevicePrimaryCtxRetain": &cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxReset_v2": &cuDevicePrimaryCtxReset,
		"cuCtxSetCurrent": &cuCtxSetCurrent, "cuCtxSynchronize": &cuCtxSynchronize, "cuModuleLoadData": &cuModuleLoadData, "cuModuleGetFunction": &cuModuleGetFunction,
		"cuMemAlloc_v2": &cuMemAlloc, "cuMemcpyDtoH_v2": &cuMemcpyDtoH, "cuMemcpyDtoD_v2": &cuMemcpyDtoD, "cuLaunchKernel": &cuLaunchKernel,
	} {
		at, err := purego.Dlsym(lib, name)
		if err != nil {
			return failure("the CUDA driver has no " + name)
		}
		purego.RegisterFunc(f, at)
	}
	n := int32(0)
	if code := cuInit(0); code != 0 {
		return failure("the CUDA driver does not start: error " + strconv.Itoa(int(code)))
	}
	if code := cuDeviceGetCount(&n); code != 0 || n == 0 {
		return failure("the CUDA driver shows no device (" + strconv.Itoa(int(code)) + ")")
	}
	for i := range n {
		if err := oneCUDA(r, i); err != nil {
			r.Notes = append(r.Notes, "cuda device "+strconv.Itoa(int(i))+": "+err.Error())
		}
	}
	return nil
}

func cuFailed(what string, code int32) error {
	return failure(what + " failed with CUDA error " + strconv.Itoa(int(code)))
}

func oneCUDA(r *report.Report, ordinal int32) error {
	var id int32
	if code := cuDeviceGet(&id, ordinal); code != 0 {
		return cuFailed("opening", code)
	}
	var name [256]byte
	var clock, units int32
	if code := cuDeviceGetName(&name[0], 255, id); code != 0 {
		return cuFailed("asking its name", code)
	}
	for what, to := range map[int32]*int32{cuClock: &clock, cuUnits: &units} {
		if code := cuDeviceGetAttribute(to, what, id); code != 0 {
			return cuFailed("asking an attribute", code)
		}
	}
	var context uintptr
	if code := cuDevicePrimaryCtxRetain(&context, id); code != 0 {
		return cuFailed("making a context", code)
	}
	defer cuDevicePrimaryCtxReset(id)
	if code := cuCtxSetCurrent(context); code != 0 {
		return cuFailed("using the context", code)
	}
	w := &cuWork{blocks: uint32(max(units, 1)) * cuBlocks, functions: map[bool]uintptr{}}
	if err := w.open(); err != nil {
		return err
	}
	add(r, device{Device: report.Device{API: "cuda", Class: "gpu", Units: int64(units), MHz: int64(clock) / 1000, Name: text(name[:])}, items: int(w.blocks) * cuBlock, double: true,
		bytes: int64(w.copied), rate: w.rate, move: w.move})
	return nil
}

type cuWork struct {
	blocks        uint32
	functions     map[bool]uintptr // by whether it is of FP64
	out, from, to uint64
	copied        uintptr
}

func (w *cuWork) open() error {
	var module uintptr
	image := []byte(ptx() + "\x00")
	if code := cuModuleLoadData(&module, &image[0]); code != 0 {
		return cuFailed("taking the program", code)
	}
	for double, name := range map[bool]string{false: "fp32\x00", true: "fp64\x00"} {
		n, f := []byte(name), uintptr(0)
		if code := cuModuleGetFunction(&f, module, &n[0]); code != 0 {
			return cuFailed("finding a kernel", code)
		}
		w.functions[double] = f
	}
	if code := cuMemAlloc(&w.out, uintptr(w.blocks)*cuBlock*8); code != 0 {
		return cuFailed("taking memory", code)
	}
	if cuMemAlloc(&w.from, uintptr(maxCopyBytes)) == 0 && cuMemAlloc(&w.to, uintptr(maxCopyBytes)) == 0 {
		w.copied = uintptr(maxCopyBytes)
	}
	return nil
}

func (w *cuWork) rate(double bool, rounds uint32) (float64, error) {
	m, s, size := unsafe.Pointer(new(float32(factor))), unsafe.Pointer(new(float32(summand))), uint64(4)
	if double {
		m, s, size = unsafe.Pointer(new(float64(factor))), unsafe.Pointer(new(float64(summand))), 8
	}
	params := [4]unsafe.Pointer{unsafe.Pointer(&w.out), m, s, unsafe.Pointer(&rounds)}
	if code := cuLaunchKernel(w.functions[double], w.blocks, 1, 1, cuBlock, 1, 1, 0, 0, unsafe.Pointer(&params[0]), nil); code != 0 {
		return 0, cuFailed("starting", code)
	}
	if code := cuCtxSynchronize(); code != 0 {
		return 0, cuFailed("running", code)
	}
	var b [8]byte
	if code := cuMemcpyDtoH(unsafe.Pointer(&b[0]), w.out+(uint64(w.blocks)*cuBlock-1)*size, uintptr(size)); code != 0 {
		return 0, cuFailed("reading the result", code)
	}
	if double {
		return *(*float64)(unsafe.Pointer(&b[0])), nil
	}
	return float64(*(*float32)(unsafe.Pointer(&b[0]))), nil
}

func (w *cuWork) move() error {
	if code := cuMemcpyDtoD(w.to, w.from, w.copied); code != 0 {
		return cuFailed("copying", code)
	}
	if code := cuCtxSynchronize(); code != 0 {
		return cuFailed("copying", code)
	}
	return nil
}

// ptx is the programs in the driver's assembly, which it translates for the
// device: 64 chains in each thread, as for OpenCL.
func ptx() string {
	var b strings.Builder
	b.WriteString(".version 6.0\n.target sm_50\n.address_size 64\n")
	for _, k := range []struct{ name, kind, shift string }{{"fp32", "f32", "2"}, {"fp64", "f64", "3"}} {
		line := func(parts ...string) {
			b.WriteString("\t" + strings.ReplaceAll(strings.Join(parts, ""), "KIND", k.kind) + ";\n")
		}
		b.WriteString(".visible .entry " + k.name + "(.param .u64 out, .param ." + k.kind + " m, .param ." + k.kind + " s, .param .u32 rounds)\n{\n")
		line(".reg .pred %p<2>")
		line(".reg .u32 %r<8>")
		line(".reg .u64 %d<4>")
		line(".reg .KIND %x<", strconv.Itoa(chains), ">")
		line(".reg .KIND %m, %s")
		line("ld.param.u64 %d1, [out]")
		line("cvta.to.global.u64 %d1, %d1")
		line("ld.param.KIND %m, [m]")
		line("ld.param.KIND %s, [s]")
		line("ld.param.u32 %r1, [rounds]")
		line("mov.u32 %r2, %ctaid.x")
		line("mov.u32 %r3, %ntid.x")
		line("mov.u32 %r4, %tid.x")
		line("mad.lo.u32 %r5, %r2, %r3, %r4")
		line("and.b32 %r6, %r5, 7")
		for i := range chains { // each from elsewhere, or they would be one
			line("add.u32 %r7, %r6, ", strconv.Itoa(i))
			line("cvt.rn.KIND.u32 %x", strconv.Itoa(i), ", %r7")
		}
		b.WriteString("again:\n")
		for i := range chains {
			x := "%x" + strconv.Itoa(i)
			line("fma.rn.KIND ", x, ", ", x, ", %m, %s")
		}
		line("sub.u32 %r1, %r1, 1")
		line("setp.ne.u32 %p1, %r1, 0")
		b.WriteString("\t@%p1 bra again;\n")
		for i := 1; i < chains; i++ {
			add := "add.KIND"
			if k.kind == "f32" {
				add = "add.rn.KIND"
			}
			line(add, " %x0, %x0, %x", strconv.Itoa(i))
		}
		line("mul.wide.u32 %d2, %r5, ", map[string]string{"2": "4", "3": "8"}[k.shift])
		line("add.u64 %d3, %d1, %d2")
		line("st.global.KIND [%d3], %x0")
		line("ret")
		b.WriteString("}\n")
	}
	return b.String()
}
