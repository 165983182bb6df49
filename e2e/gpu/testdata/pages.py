# pages.py MIB SECONDS - PyTorch with so much memory, in tensors of 256 MiB: it says that it
# is ready, waits for a line, and then adds 1 to all of it, over and over, for so long.
import sys
import time
import torch

mib, last = int(sys.argv[1]), float(sys.argv[2])
all = [torch.zeros(64 << 20, dtype=torch.float32, device="cuda") for _ in range(mib // 256)]
torch.cuda.synchronize()
print("has", 256 * len(all), flush=True)
sys.stdin.readline() or sys.exit(1)
begun, n = time.monotonic(), 0
while time.monotonic() < begun + last:
    for t in all:
        t += 1
    torch.cuda.synchronize()
    n += 1
wrong = sum(int(t.min() != n) + int(t.max() != n) for t in all)
print("right" if n and not wrong else f"wrong: {wrong}", n, "rounds", flush=True)
