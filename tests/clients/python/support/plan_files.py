"""Plans as `stagewright plan -o json` prints them, written by hand for graphs of tests."""

import json

from stagewright.frameworks.graph_values import values_read


def by_module(graph, *stages):
    """Nodes of each stage by the modules it names. A node of no named module goes where its latest source is, one
    without sources to its first reader."""
    owner = {}
    for number, modules in enumerate(stages):
        for i, node in enumerate(graph.nodes):
            if any(node.module == m or node.module.startswith(m + ".") for m in modules):
                owner[i] = number
    rest = [i for i in range(len(graph.nodes)) if i not in owner]
    for i in rest:
        owner[i] = max((owner[source] for source, _ in values_read(graph.nodes[i])), default=-1)
    for i in reversed(rest):
        if owner[i] < 0:
            readers = [r for r, node in enumerate(graph.nodes) if i in {source for source, _ in values_read(node)}]
            owner[i] = min(owner[r] for r in readers)
    return [[i for i in range(len(graph.nodes)) if owner[i] == number] for number in range(len(stages))]


def one_f_one_b(stages, micro_batches):
    """1F1B of stages on a device each."""
    lines = []
    for s in range(stages):
        warm = min(stages - s, micro_batches)
        passes = [f"F{s}.{m}" for m in range(warm)]
        for m in range(micro_batches):
            passes.append(f"B{s}.{m}")
            passes += [f"F{s}.{m + warm}"] if m + warm < micro_batches else []
        lines.append(f"device {s}: {' '.join(passes)}")
    return lines


def orders(stage_devices, micro_batches, *, split=False):
    """GPipe: all forwards, then all backwards; with `split`, halves of backward passes with the weights last."""
    lines = []
    for device in sorted(set(stage_devices)):
        mine = [s for s, d in enumerate(stage_devices) if d == device]
        passes = [f"F{s}.{m}" for s in mine for m in range(micro_batches)]
        for s in reversed(mine):
            passes += [f"{'I' if split else 'B'}{s}.{m}" for m in range(micro_batches)]
        if split:
            passes += [f"W{s}.{m}" for s in mine for m in range(micro_batches)]
        lines.append(f"device {device}: {' '.join(passes)}")
    return lines


def write_plan(
    path, graph, stages, *, mini_batch, micro_batch, edges=None, devices=None, split=False, recompute=(), **changes
):
    """A plan of `graph` whose stages are lists of nodes, stage s on device s unless `devices` says otherwise."""
    devices = devices or list(range(len(stages)))
    edges = edges if edges is not None else [(s, s + 1) for s in range(len(stages) - 1)]
    named = [d if isinstance(d, list) else [d] for d in devices]
    in_use = sorted({d for each in named for d in each})
    plan = {
        "termination": "feasible",
        "kind": "graph",
        "iteration_seconds": 0.004,
        "mini_batch_size": mini_batch,
        "asynchronous": False,
        "planner": "manual",
        "stages": [
            {
                "operators": sorted(nodes),
                "nodes": [graph.nodes[n].name for n in sorted(nodes)],
                "devices": [f"cpu{d}" for d in each],
                "successors": [b for a, b in edges if a == s],
                "micro_batch_size": micro_batch,
                "recompute": s in recompute,
                "time_per_sample": 1e-5,
            }
            for s, (nodes, each) in enumerate(zip(stages, named, strict=True))
        ],
        "devices": [{"device": f"cpu{d}"} for d in in_use],
    }
    if all(len(each) == 1 for each in named):
        lines = orders([each[0] for each in named], mini_batch // micro_batch, split=split)
        plan["orders"] = [line.replace("device ", "device cpu") for line in lines]
    plan |= changes
    path.write_text(json.dumps(plan))
    return path
