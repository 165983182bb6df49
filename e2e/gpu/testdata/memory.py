# memory.py MIB - PyTorch on a slice of so many MiB: what it sees, that it cannot have
# more, and has again what it has freed.
import sys
import torch

mib = int(sys.argv[1])
MIB = 1 << 20
free, total = torch.cuda.mem_get_info()
props = torch.cuda.get_device_properties(0)
print("devices", torch.cuda.device_count(), "total", total / MIB, "free", free / MIB, "properties", props.total_memory / MIB, props.name, torch.cuda.get_allocator_backend())
assert torch.cuda.device_count() == 1
assert free <= total == mib * MIB
if props.total_memory != total:
    print("NOTE: the device's properties say another size than cudaMemGetInfo")


def take(n):
    return torch.empty(n * MIB, dtype=torch.uint8, device="cuda").fill_(7)


def refused(n):
    try:
        take(n)
    except torch.cuda.OutOfMemoryError:
        return True
    return False


for round in range(3):
    a = take(mib * 6 // 10)
    assert refused(mib * 6 // 10), "more than the slice was given"
    b = take(mib * 2 // 10)
    assert int(a[::MIB].sum()) == 7 * (mib * 6 // 10) and int(b[-1]) == 7
    free, total = torch.cuda.mem_get_info()
    assert free <= total - a.numel() - b.numel(), (free, total)
    print("round", round, "free", free / MIB)
    del a, b
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
assert refused(mib + 1)
pieces = []
while True:
    try:
        pieces.append(take(64))
    except torch.cuda.OutOfMemoryError:
        break
print("pieces of 64 MiB", len(pieces))
# PyTorch has allocated a little by itself, in blocks of 2 or 20 MiB
assert mib - 256 <= 64 * len(pieces) <= mib
print("all right")
