"""What users of PyOpenCL do with coarse-grained shared virtual memory."""

import zlib

import numpy as np
import pyopencl as cl
from pyopencl.characterize import has_coarse_grain_buffer_svm

devices = cl.get_platforms()[0].get_devices()
ctx = cl.Context(devices[:1])
q = cl.CommandQueue(ctx)
program = cl.Program(ctx, """
kernel void weigh(global float *a, global const float *by) { a[get_global_id(0)] *= by[get_global_id(0) % 16]; }
""").build()

assert has_coarse_grain_buffer_svm(devices[0])
a, by = (cl.SVM(cl.csvm_empty(ctx, n, np.float32)) for n in (100_000, 16))
with a.map_rw(q) as host:
    host[:] = np.arange(100_000) % 1000
with by.map_rw(q) as host:
    host[:] = np.arange(16)
for _ in range(3):
    program.weigh(q, (100_000,), None, a, by)
with a.map_ro(q) as host:
    print("weighed", f"{zlib.crc32(host.tobytes()):08x}")
back = np.zeros(100_000, np.float32)
cl.enqueue_copy(q, back, a)
print("copied", f"{zlib.crc32(back.tobytes()):08x}")
other = cl.SVM(cl.csvm_empty(ctx, 100_000, np.float32))
cl.enqueue_copy(q, other, a)
cl.enqueue_svm_memfill(q, by, np.float32(2))
program.weigh(q, (50_000,), None, other, by)
with other.map_ro(q) as host:
    print("doubled", float(host[7] / back[7]), float(host[-1] / back[-1]))
q.finish()
