"""Plans for Megatron-Core: arguments of its trainer, `--pipeline-model-parallel-layout` among them.

In the layout E is the embedding, t a transformer layer, L the output and the loss; | begins the next stage, and stage s
runs on pipeline rank s modulo their number.
"""

import pathlib

from ..errors import FrameworkError
from .expression import Expressed, Judge
from .layers import layer_list, layered


def express(judge: Judge, path: pathlib.Path) -> Expressed:
    """A line of arguments."""
    found = layered(judge, virtual=True)
    container = layer_list(judge.graph)
    count, rows, outside = 0, [], []
    for stage, names in enumerate(found.layers):
        row = "E" if stage == 0 else ""
        for name in names:
            if container and name.rpartition(".")[0] == container:
                row, count = row + "t", count + 1
            elif (stage and not count) or (stage < len(found.layers) - 1 and count):
                outside.append(name)
        rows.append(row + ("L" if stage == len(found.layers) - 1 else ""))
    if not count:
        raise FrameworkError("the model has no list of layers, and Megatron-Core's layout is one of a list's layers")
    if outside:
        raise FrameworkError(
            f"'{outside[0]}' is neither before nor after all of '{container}', in the first stage or the last one; "
            "Megatron-Core's layout has an embedding, layers and an output only"
        )
    chain = found.chain
    arguments = {
        "pipeline-model-parallel-size": len(chain.ranks),
        "pipeline-model-parallel-layout": "|".join(rows),
        "num-layers": count,
        "micro-batch-size": chain.micro_batch // chain.replicas,
        "global-batch-size": chain.mini_batch,
    }
    if any(stage.recompute for stage in chain.stages):
        arguments |= {"recompute-granularity": "full", "recompute-method": "uniform", "recompute-num-layers": 1}
    notes = chain.notes
    if len({stage.recompute for stage in chain.stages}) > 1:
        notes += ("some stages run forward passes again in the plan; here all do",)
    return Expressed(
        files={"": " ".join(f"--{name} {value}" for name, value in arguments.items()) + "\n"},
        summary=f"{'|'.join(rows)}, {chain.summary}",
        notes=notes,
        seconds=found.seconds,
    )
