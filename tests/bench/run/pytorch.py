"""PyTorch's own training on this machine: torch.distributed.pipelining over Gloo, and eager training, on a GPU as well.

Every process has one thread. Trains for so many steps, or until it is killed or its parent ends, and writes each step's
seconds and loss as a line of JSON.
"""

import argparse
import itertools
import json
import os
import pathlib
import socket
import time
from collections.abc import Callable

import gpt
import torch
import torch.multiprocessing
from parent import end_with
from torch import distributed
from torch.distributed import pipelining


def train(step: Callable[[], float], out: pathlib.Path | None, steps: int) -> None:
    """Step after step, `steps` of them or, if 0, without end; with `out`, says so there."""
    lines = open(out, "w", buffering=1) if out is not None else None  # noqa: SIM115
    for _ in range(steps) if steps > 0 else itertools.count():
        start = time.perf_counter()
        loss = step()
        seconds = time.perf_counter() - start
        if lines is not None:
            lines.write(json.dumps({"step_seconds": seconds, "loss": loss}) + "\n")


def eager(options: argparse.Namespace) -> None:
    """One device: micro-batches one after the other, gradients added up; the loss comes to the host when the optimizer's
    step has been queued."""
    model, loss_of = gpt.cut(1, options.sizes)[0].to(options.device), gpt.TokenLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=options.fused)
    samples = gpt.data(options.micro_batch * options.micro_batches, options.sizes)
    ids, target = (part.to(options.device) for part in samples)
    bf16 = options.precision == "bf16"

    def step() -> float:
        total = torch.zeros((), device=options.device)
        for x, y in zip(ids.split(options.micro_batch), target.split(options.micro_batch), strict=True):
            with torch.autocast(torch.device(options.device).type, dtype=torch.bfloat16, enabled=bf16):
                loss = loss_of(model(x), y) / options.micro_batches
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        return total.item()

    train(step, options.out, options.steps)


def rank_main(rank: int, port: int, parent: int, options: argparse.Namespace) -> None:
    end_with(parent)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=options.devices)
    loops = 2 if options.schedule == "interleaved" else 1
    modules = gpt.cut(options.devices * loops, options.sizes)
    own = [rank + options.devices * loop for loop in range(loops)]
    stages = [pipelining.PipelineStage(modules[i], i, len(modules), torch.device("cpu")) for i in own]
    parameters = [p for i in own for p in modules[i].parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-4)
    ids, target = gpt.data(options.micro_batch * options.micro_batches, options.sizes)
    kinds = {"1f1b": pipelining.Schedule1F1B, "gpipe": pipelining.ScheduleGPipe}
    if loops == 1:
        schedule = kinds[options.schedule](stages[0], options.micro_batches, loss_fn=gpt.TokenLoss())
    else:
        schedule = pipelining.ScheduleInterleaved1F1B(stages, options.micro_batches, loss_fn=gpt.TokenLoss())
    last = rank == options.devices - 1

    def step() -> float:
        losses: list = []
        schedule.step(*([ids] if rank == 0 else []), **({"target": target, "losses": losses} if last else {}))
        optimizer.step()
        optimizer.zero_grad()
        return sum(float(loss.detach()) for loss in losses) / options.micro_batches if last else 0.0

    train(step, options.out if last else None, options.steps)


def pipelined(options: argparse.Namespace) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    processes = [context.Process(target=rank_main, args=(i, port, os.getpid(), options)) for i in range(options.devices)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode != 0:
            raise SystemExit(f"a rank ended with {process.exitcode}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("schedule", choices=("eager", "gpipe", "1f1b", "interleaved"))
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--parent", type=int, required=True, help="process that this one ends with")
    parser.add_argument("--steps", type=int, default=0, help="to train; 0: until it is killed")
    parser.add_argument("--sizes", type=gpt.sizes_of, default="small", help="of the model (gpt.py)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda; eager only")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="bf16: autocast; eager only")
    parser.add_argument("--fused", action="store_true", help="Adam in one kernel; eager only")
    options = parser.parse_args()
    if options.schedule != "eager" and (options.device != "cpu" or options.precision != "fp32" or options.fused):
        parser.error(f"{options.schedule}: --device, --precision and --fused are for eager")
    end_with(options.parent)
    torch.set_num_threads(1)
    (eager if options.schedule == "eager" else pipelined)(options)


if __name__ == "__main__":
    main()
