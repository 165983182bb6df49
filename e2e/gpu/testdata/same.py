# same.py - PyTorch computes the same on the device as on the processor: products,
# a network and its gradients, graphs, streams, pinned memory, data that forked
# processes load.
import threading
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
dev = torch.device("cuda")


def step(what):
    torch.cuda.synchronize()
    print(what, flush=True)


def near(a, b, within=1e-3):
    diff = (a.cpu().double() - b.double()).abs().max().item()
    assert diff <= within * max(1.0, b.abs().max().item()), diff


# Whole numbers: the product is exact, whatever the order of sums.
a, b = torch.randint(-8, 8, (1024, 1024)).float(), torch.randint(-8, 8, (1024, 1024)).float()
assert torch.equal((a.to(dev) @ b.to(dev)).cpu(), a @ b)
step("product")

net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3), nn.Flatten(), nn.Linear(8 * 30 * 30, 10))
x = torch.randn(8, 3, 32, 32)
other = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3), nn.Flatten(), nn.Linear(8 * 30 * 30, 10))
other.load_state_dict(net.state_dict())
other.to(dev)
y, z = net(x), other(x.to(dev))
near(z.detach(), y.detach())
y.square().mean().backward()
z.square().mean().backward()
for p, q in zip(net.parameters(), other.parameters()):
    near(q.grad, p.grad, 1e-2)
step("network")

# A graph that is captured while another thread keeps the device busy.
static = torch.randn(256, 256, device=dev)
warm = torch.cuda.Stream()
warm.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(warm):
    for _ in range(3):
        out = (static @ static).relu().sum(0)
torch.cuda.current_stream().wait_stream(warm)
stop = threading.Event()


def busy():
    s = torch.cuda.Stream()
    m = torch.randn(1024, 1024, device=dev)
    with torch.cuda.stream(s):
        while not stop.is_set():
            m = (m @ m).tanh()
            s.synchronize()


graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, capture_error_mode="thread_local"):
    out = (static @ static).relu().sum(0)
worker = threading.Thread(target=busy)
worker.start()
for i in range(20):
    new = torch.randn(256, 256)
    static.copy_(new)
    graph.replay()
    near(out, (new @ new).relu().sum(0))
again = torch.cuda.CUDAGraph()
with torch.cuda.graph(again, capture_error_mode="thread_local"):
    twice = out * 2
again.replay()
near(twice, out.cpu() * 2)
stop.set()
worker.join()
step("graphs")

streams = [torch.cuda.Stream() for _ in range(4)]
parts = [torch.full((1 << 20,), float(i), device=dev) for i in range(4)]
torch.cuda.synchronize()
for _ in range(50):
    for s, p in zip(streams, parts):
        with torch.cuda.stream(s):
            p.add_(1)
torch.cuda.synchronize()
for i, p in enumerate(parts):
    assert torch.all(p == 50 + i)
pinned = torch.empty(64 << 20, dtype=torch.uint8, pin_memory=True).fill_(3)
back = torch.empty(64 << 20, dtype=torch.uint8, pin_memory=True)
there = pinned.to(dev, non_blocking=True)
there.add_(1)
back.copy_(there, non_blocking=True)
torch.cuda.synchronize()
assert torch.all(back == 4)
step("streams and pinned memory")


class Numbers(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, i):
        return torch.full((100,), float(i))


total = 0.0
for batch in DataLoader(Numbers(), batch_size=16, num_workers=4, pin_memory=True):
    total += batch.to(dev, non_blocking=True).sum().item()
assert total == 100 * sum(range(256)), total
step("data that forked processes load")
print("all right")
