# cards.py CARDS - PyTorch on several cards: products on each, copies between them, a
# network that is on all of them, and processes, one for each card, that sum over them.
import os
import sys
import tempfile
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def sums(rank, n, file):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="file://" + file, rank=rank, world_size=n)
    for i in range(20):
        x = torch.full((1000,), float(rank + i), device="cuda")
        dist.all_reduce(x)
        assert torch.all(x == n * i + n * (n - 1) / 2), x[0].item()
    dist.destroy_process_group()


def main():
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    n = torch.cuda.device_count()
    assert n == int(sys.argv[1]), n
    # Whole numbers: the product is exact, whatever the order of sums.
    a, b = torch.randint(-8, 8, (1024, 1024)).float(), torch.randint(-8, 8, (1024, 1024)).float()
    for i in range(n):
        c = a.to(f"cuda:{i}") @ b.to(f"cuda:{i}")
        assert torch.equal(c.cpu(), a @ b), i
        assert torch.equal(c.to(f"cuda:{(i + 1) % n}").cpu(), a @ b), i
        left, total = torch.cuda.mem_get_info(i)
        print(f"card {i}: {torch.cuda.get_device_name(i)}, {left >> 20} of {total >> 20} MiB free", flush=True)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
    x = torch.randn(32, 64)
    y = net(x).detach()
    z = nn.DataParallel(net.to("cuda:0"))(x.to("cuda:0")).detach().cpu()
    assert (y - z).abs().max().item() < 1e-4
    print("network", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(sums, args=(n, os.path.join(folder, "meet")), nprocs=n)
    print("sums", flush=True)
    print("all right", flush=True)


if __name__ == "__main__":
    main()
