"""Plans for DeepSpeed: the layers of a PipelineModule and its `parts`, the index of each stage's first layer."""

import itertools
import json
import pathlib

from .expression import Expressed, Judge
from .layers import layered


def express(judge: Judge, path: pathlib.Path) -> Expressed:
    """Parts and batch sizes as JSON."""
    found = layered(judge, virtual=False)
    chain = found.chain
    content = {
        "num_stages": len(chain.stages),
        "layers": [name for names in found.layers for name in names],
        "parts": [0, *itertools.accumulate(len(names) for names in found.layers)],
        "config": {
            "train_batch_size": chain.mini_batch,
            "train_micro_batch_size_per_gpu": chain.micro_batch // chain.replicas,
            "gradient_accumulation_steps": chain.micro_batches,
        },
    }
    notes = chain.notes
    if any(stage.recompute for stage in chain.stages):
        notes += ("stages run forward passes again in the plan; here activation_checkpoint_interval says so, for all",)
    return Expressed(
        files={"": json.dumps(content, indent=1) + "\n"}, summary=chain.summary, notes=notes, seconds=found.seconds
    )
