# rate.py SECONDS [WHAT] - waits for a line, and then computes for so long; prints how
# often it did: products of large matrices ("matmul"), or layers of a transformer,
# whose kernels are many and small ("layers").
import sys
import time
import torch

last, what = float(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "matmul"
torch.manual_seed(0)
with torch.inference_mode():
    if what == "matmul":
        a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

        def once():
            return a @ a
    else:
        layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, device="cuda", dtype=torch.bfloat16).eval()
        x = torch.randn(16, 512, 1024, device="cuda", dtype=torch.bfloat16)

        def once():
            return layer(x)

    for _ in range(20):
        once()
    torch.cuda.synchronize()
    print("ready", flush=True)
    sys.stdin.readline() or sys.exit(1)
    begun, n = time.monotonic(), 0
    while time.monotonic() < begun + last:
        for _ in range(8):
            once()
        torch.cuda.synchronize()
        n += 8
    print(f"did {n} in {time.monotonic() - begun:.3f}", flush=True)
