"""What users of PyOpenCL do, with results that are the same on any device."""

import numpy as np
import pyopencl as cl
import pyopencl.array as ca
import pyopencl.clrandom as cr
from pyopencl.algorithm import RadixSort
from pyopencl.elementwise import ElementwiseKernel
from pyopencl.scan import GenericScanKernel

devices = cl.get_platforms()[0].get_devices()
ctx = cl.Context(devices[:1])
q = cl.CommandQueue(ctx, properties=cl.command_queue_properties.PROFILING_ENABLE)

x = ca.arange(q, 100_000, dtype=np.int32)
print("sum", int(ca.sum(x, dtype=np.int64).get()), "max", int(ca.max(x).get()))

scan = GenericScanKernel(
    ctx, np.int32, arguments="__global int *x, __global int *out", input_expr="x[i] % 7",
    scan_expr="a + b", neutral="0", output_statement="out[i] = item;",
)
out = ca.empty_like(x)
scan(x, out)
print("scan", int(out[99_999].get()))

twice = ElementwiseKernel(ctx, "int *z, int *y", "z[i] = 2 * y[i] + 1")
twice(out, x)
print("elementwise", int(out[12_345].get()))

r = cr.PhiloxGenerator(ctx, seed=3).uniform(q, (1000,), np.float32)  # includes header files of PyOpenCL's
print("random", bool(((r.get() >= 0) & (r.get() < 1)).all()))

values = ca.to_device(q, np.random.RandomState(1).randint(0, 1_000_000, 10_000).astype(np.int32))
(ordered,), _ = RadixSort(ctx, "int *ary", key_expr="ary[i]", sort_arg_names=["ary"])(values)
print("sorted", bool((np.diff(ordered.get()) >= 0).all()), int(ordered.get().sum()))

image = cl.image_from_array(ctx, np.arange(64 * 64 * 4, dtype=np.float32).reshape(64, 64, 4), 4)
back = np.empty((64, 64, 4), np.float32)
cl.enqueue_copy(q, back, image, origin=(0, 0), region=(64, 64))
print("image", int(back.astype(np.int64).sum()))

program = cl.Program(ctx, "__kernel void more(__global int *a) { a[get_global_id(0)] += 1; }").build()
event = program.more(q, (1000,), None, x.data)
event.wait()
print("profile", event.profile.end >= event.profile.start, int(x[5].get()))
