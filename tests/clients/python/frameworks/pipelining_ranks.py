"""One process of the tests of torch.distributed.pipelining: runs every case of a folder and keeps what it trained.

python pipelining_ranks.py FOLDER RANK WORLD_SIZE

A case is a folder with `schedule.csv`, `schedule.stages.json`, `model.swg`, `model.safetensors` and
the batches, `data.pt`.
"""

import pathlib
import sys

import torch
import torch.distributed as dist

from stagewright.frameworks.training import Pipeline

LEARNING_RATE = 0.1


def run(case: pathlib.Path, rank: int, alone: list, everyone: "dist.ProcessGroup") -> dict:
    replicated = (case / "replicated").exists()
    pipeline = Pipeline(
        case / "schedule.csv",
        case / "model.swg",
        weights=case / "model.safetensors",
        group=alone[rank] if replicated else None,
        data_parallel_group=everyone if replicated else None,
    )
    update = torch.optim.SGD(pipeline.parameters(), lr=LEARNING_RATE)
    losses = []
    for batch in torch.load(case / "data.pt"):
        share = {name: t.chunk(2)[rank] for name, t in batch.items()} if replicated else batch
        update.zero_grad()
        losses.append(pipeline.step(share))
        gradients = {name: p.grad for name, p in pipeline.named_parameters()}
        update.step()
    return {"losses": losses, "gradients": gradients, "state": pipeline.state_dict(), "inputs": pipeline.inputs}


def main() -> None:
    folder, rank, world = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    alone = [dist.new_group([r]) for r in range(world)]
    everyone = dist.new_group(list(range(world)))
    for case in sorted(path.parent for path in folder.glob("*/schedule.csv")):
        torch.save(run(case, rank, alone, everyone), case / f"rank{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
