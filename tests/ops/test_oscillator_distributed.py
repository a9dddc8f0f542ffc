"""A layer in two processes: DistributedDataParallel's gradients are those of one process on the whole batch."""

import subprocess
import sys

PROGRAM = """
import os, sys, tempfile
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from sostenuto.nn import UnICORNN

def gradients(rank, memory, channels):
    torch.manual_seed(0)
    layer = UnICORNN(channels, 6, num_layers=2, memory=memory, dtype=torch.float64)
    x = torch.randn(50, 4, channels, dtype=torch.float64)
    layer(x)[0].square().mean().backward()
    expected = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    shared = DistributedDataParallel(layer)
    for _ in range(2):
        shared.zero_grad()
        shared(x[:, 2 * rank : 2 * rank + 2])[0].square().mean().backward()
    for parameter, right in zip(layer.parameters(), expected):
        torch.testing.assert_close(parameter.grad, right, rtol=1e-10, atol=1e-14)
        assert right.abs().max() > 0

def both(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    for memory, channels in (("store", 1), ("store", 12), ("recompute", 1)):
        gradients(rank, memory, channels)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(both, (folder,), nprocs=2, start_method="fork")
    print("equal")
"""


def test_two_processes_have_the_gradients_of_one():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "equal"
