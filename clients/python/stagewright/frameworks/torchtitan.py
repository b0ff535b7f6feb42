"""Plans for torchtitan: entries of its configuration, `module_fqns_per_model_part` among them."""

import json
import pathlib

from ..errors import FrameworkError
from .expression import Expressed, Judge
from .layers import layered
from .pipelining import csv_text


def express(judge: Judge, path: pathlib.Path) -> Expressed:
    """The entries as TOML, and the order of passes as CSV beside it."""
    found = layered(judge, virtual=True, any_order=True)
    chain = found.chain
    for name in (name for names in found.layers for name in names):
        parent, _, last = name.rpartition(".")
        if "." in parent or (parent and not last.isdigit()):
            raise FrameworkError(
                f"'{name}' lies deeper than torchtitan looks: it splits children of a model and entries of its lists"
            )
    looped = len(chain.stages) > len(chain.ranks)
    table = {
        "pipeline_parallel_degree": len(chain.ranks),
        "pipeline_parallel_schedule": "Interleaved1F1B" if looped else "1F1B",
        "pipeline_parallel_schedule_csv": str(path.with_suffix(".csv")),
        "pipeline_parallel_microbatch_size": chain.micro_batch // chain.replicas,
        "module_fqns_per_model_part": [list(names) for names in found.layers],
    }
    notes = chain.notes
    if any(stage.recompute for stage in chain.stages):
        notes += ("stages run forward passes again in the plan; here [activation_checkpoint] says which layers do",)
    # The JSON of these values is their TOML, too.
    return Expressed(
        files={
            "": f"[training]\nlocal_batch_size = {chain.mini_batch // chain.replicas}\n\n[parallelism]\n"
            + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()),
            ".csv": csv_text(chain),
        },
        summary=chain.summary,
        notes=notes,
        seconds=found.seconds,
    )
