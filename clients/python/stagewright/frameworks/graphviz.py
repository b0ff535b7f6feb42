"""The stage graph of a plan for GraphViz: `dot -Tsvg FILE`. Nothing of a plan's stages is left out."""

import json
import pathlib

from .chain import stage_list
from .expression import Expressed, Judge
from .graph_values import bytes_at, values_read


def express(judge: Judge, path: pathlib.Path) -> Expressed:
    """A directed graph with a box per stage, a column of boxes per device, and the bytes of a sample on the edges."""
    plan, graph = judge.plan, judge.graph
    owner = {node: s for s, stage in enumerate(plan.stages) for node in stage.nodes}
    lines = [f"digraph {json.dumps(graph.name)} {{", "  rankdir=LR; node [shape=box, style=rounded];"]
    for number, stage in enumerate(plan.stages):
        modules = list(dict.fromkeys(graph.nodes[node].module for node in stage.nodes if graph.nodes[node].module))
        label = [f"stage {number}", " .. ".join(dict.fromkeys([*modules[:1], *modules[-1:]])), ", ".join(stage.devices)]
        label += [f"micro-batch {stage.micro_batch}" + (", recompute" if stage.recompute else "")]
        label += [f"{stage.seconds_per_sample * 1e6:.3g} us per sample, {stage.memory_bytes / 2**20:.3g} MiB"]
        text = "\\n".join(json.dumps(line)[1:-1] for line in label if line)
        lines.append(f'  s{number} [label="{text}", group={json.dumps(stage.devices[0])}];')
    for source, target in plan.edges:
        read = {value for node in plan.stages[target].nodes for value in values_read(graph.nodes[node])}
        size = sum(bytes_at(graph.nodes[n].outputs[o], 1) for n, o in read if owner.get(n) == source)
        lines.append(f"  s{source} -> s{target} [" + (f'label="{size:,} B"];' if size else "style=dashed];"))
    lines.append("}")
    return Expressed(
        files={"": "\n".join(lines) + "\n"},
        summary=f"{stage_list(list(range(len(plan.stages))))}, {len(plan.edges)} edges",
        notes=(),
        seconds=plan.step_seconds,
    )
