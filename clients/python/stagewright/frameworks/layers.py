"""The modules that other frameworks put into stages: whole layers, in the order in which the model runs them."""

import collections
import dataclasses

from ..errors import FrameworkError
from ..proto import pb
from .chain import Chain, ChainStage, check_executable, pass_note
from .expression import Judge, best_chain, fastest
from .graph_values import arguments, bytes_at, values_read

_LOSS = "loss"


@dataclasses.dataclass(frozen=True)
class LayeredChain:
    """A chain whose stages hold whole layers. `layers` are by stage, in the order in which they run."""

    chain: Chain
    layers: tuple[tuple[str, ...], ...]
    # Of a step; None where nothing could simulate it.
    seconds: float | None


def layer_list(graph: "pb.Graph") -> str:
    """The path of the list or sequence with most parameters: "layers" or "model.layers"; empty if there is none."""
    size: dict[str, int] = collections.defaultdict(int)
    for node in graph.nodes:
        path = node.module.split(".")
        place = next((i for i, part in enumerate(path) if part.isdigit()), None)
        if place is not None:
            size[".".join(path[:place])] += _work(graph, node)
    return max(size, key=lambda path: size[path]) if size else ""


def layer_of(module: str, layers: str) -> str:
    """The layer that a module belongs to: an entry of a list, or else a module beside the list; empty above that."""
    path = module.split(".")
    place = next((i for i, part in enumerate(path) if part.isdigit()), None)
    if place is not None:
        return ".".join(path[: place + 1])
    depth = layers.count(".") + 1 if layers else 1
    return ".".join(path[:depth]) if len(path) >= depth and module != layers else ("" if layers else module)


def layered(judge: Judge, *, virtual: bool, any_order: bool = False) -> LayeredChain:
    """The plan as a chain of whole layers, one stage per rank or, if `virtual`, the same number on every rank.

    Layers that the plan cuts go where most of their parameters are. Unless the framework takes `any_order` of passes,
    it is 1F1B. Raises FrameworkError where that leaves no chain.
    """
    check_executable(judge.graph)
    planned, simulated = best_chain(judge)
    chain = _merged(planned)
    names, owner, notes = _stages_of_layers(judge.graph, chain)
    ranks, rank_of, more = _ranks_in_turn(chain, virtual)
    nodes = _nodes_of_layers(judge.graph, owner, names, len(chain.stages))
    by_stage = tuple(tuple(name for name in names if owner[name] == s) for s in range(len(chain.stages)))
    for stage, held in enumerate(by_stage):
        if not held:
            raise FrameworkError(f"stage {stage} of the plan holds no whole layer, only parts; plan fewer stages")
    if [list(stage.nodes) for stage in planned.stages] == nodes and not more and (any_order or _is_1f1b(planned)):
        return LayeredChain(planned, by_stage, simulated.step_seconds if simulated else judge.plan.step_seconds)
    if not any_order and not _is_1f1b(planned):
        more.append("the order of passes is 1F1B here")
    warm = 0 if any_order or len(ranks) < len(nodes) else chain.micro_batch
    changed = dataclasses.replace(
        chain,
        stages=tuple(
            ChainStage(tuple(own), rank, stage.recompute, in_flight=min(warm * (len(nodes) - s), chain.mini_batch))
            for s, (own, rank, stage) in enumerate(zip(nodes, rank_of, chain.stages, strict=True))
        ),
        ranks=tuple(ranks),
        steps=(),
        notes=(*(note for note in chain.notes if note != pass_note(judge.graph, chain)), *notes, *more),
    )
    if not judge.can_simulate and not any_order:
        return LayeredChain(changed, by_stage, None)
    final, simulated = fastest(judge, [changed])
    return LayeredChain(final, by_stage, simulated.step_seconds)


def _merged(chain: Chain) -> Chain:
    """The stages of a single rank as one: there is nothing to alternate with."""
    if len(chain.ranks) > 1 or len(chain.stages) == 1:
        return chain
    nodes = tuple(sorted(node for stage in chain.stages for node in stage.nodes))
    stage = ChainStage(nodes, 0, any(stage.recompute for stage in chain.stages))
    notes = (*chain.notes, "the stages of the device are one")
    return dataclasses.replace(chain, stages=(stage,), steps=(), notes=notes)


def _work(graph: "pb.Graph", node: "pb.Node") -> int:
    """Bytes of the parameters that a node reads; 1 at least."""
    read = {argument.parameter for argument in arguments(node) if argument.HasField("parameter")}
    sizes = [graph.parameters[index] for index in read]
    return 1 + sum(_parameter_bytes(parameter) for parameter in sizes)


def _parameter_bytes(parameter: "pb.Parameter") -> int:
    meta = pb.TensorMeta(dtype=parameter.dtype, shape=[pb.SymInt(offset=size) for size in parameter.shape])
    return bytes_at(meta, 1)


def _stages_of_layers(graph: "pb.Graph", chain: Chain) -> tuple[list[str], dict[str, int], list[str]]:
    """(layers in the order in which they run, the stage of each, what of the plan that changes)."""
    container = layer_list(graph)
    stage_of = {node: s for s, stage in enumerate(chain.stages) for node in stage.nodes}
    votes: dict[str, dict[int, int]] = {}
    for index, node in enumerate(graph.nodes):
        name = layer_of(node.module, container)
        if not name or name == _LOSS or index not in stage_of:
            continue
        votes.setdefault(name, collections.defaultdict(int))[stage_of[index]] += _work(graph, node)
    if not votes:
        raise FrameworkError(f"'{graph.name}' has no modules to put into stages")
    owner = {name: max(found, key=lambda s: (found[s], -s)) for name, found in votes.items()}
    cut = [name for name, found in votes.items() if len(found) > 1]
    notes = [f"the plan cuts {_some(cut)}; here a layer is whole in one stage"] if cut else []
    names = list(votes)
    if [owner[name] for name in names] != sorted(owner.values()):
        late, early = next((b, a) for a, b in zip(names, names[1:]) if owner[b] < owner[a])
        raise FrameworkError(
            f"the plan has '{late}' in an earlier stage than '{early}', which the model runs before it; stages here "
            "take layers in the model's order"
        )
    return names, owner, notes


def _nodes_of_layers(graph: "pb.Graph", owner: dict[str, int], names: list[str], stages: int) -> list[list[int]]:
    """Nodes by stage. Those of no layer follow what they read, or go to their first reader."""
    container, last = layer_list(graph), stages - 1
    stage_of: dict[int, int] = {}
    for index, node in enumerate(graph.nodes):
        before = max((stage_of[source] for source, _ in values_read(node) if source in stage_of), default=None)
        name = layer_of(node.module, container)
        if name in owner and name != _LOSS:
            stage_of[index] = owner[name]
            if before is not None and before > owner[name]:
                raise FrameworkError(
                    f"node '{node.name}' of '{name}' reads a result of a later stage: the model runs '{name}' again "
                    "after other layers, and a chain of stages cannot"
                )
        elif name == _LOSS:
            stage_of[index] = last
        elif before is not None:
            stage_of[index] = before
    for index in reversed(range(len(graph.nodes))):
        if index not in stage_of:
            readers = [r for r in range(index + 1, len(graph.nodes)) if index in _sources(graph, r)]
            stage_of[index] = min((stage_of[r] for r in readers), default=0)
    return [[i for i in range(len(graph.nodes)) if stage_of[i] == s] for s in range(stages)]


def _sources(graph: "pb.Graph", node: int) -> set[int]:
    return {source for source, _ in values_read(graph.nodes[node])}


def _ranks_in_turn(chain: Chain, virtual: bool) -> tuple[list[tuple[str, ...]], list[int], list[str]]:
    """Ranks, the rank of each stage (stage s on rank s modulo their number), and what of the plan that changes."""
    ranks, stages = list(chain.ranks), len(chain.stages)
    if not virtual and len(ranks) != stages:
        raise FrameworkError(
            f"the plan has {stages} stages on {len(ranks)} devices, and one stage per device is all there can be; plan "
            "with --max-loops 1"
        )
    if stages % len(ranks) != 0:
        raise FrameworkError(
            f"the plan has {stages} stages on {len(ranks)} devices, and every device must have equally many; plan with "
            "--max-loops 1"
        )
    if stages > len(ranks) and chain.micro_batches % len(ranks) != 0:
        raise FrameworkError(
            f"the plan has several stages on a device and {chain.micro_batches} micro-batches, where interleaved "
            f"schedules take a multiple of {len(ranks)}; plan with another --micro-batch or with --max-loops 1"
        )
    in_turn = [s % len(ranks) for s in range(stages)]
    if [stage.rank for stage in chain.stages] == in_turn:
        return ranks, in_turn, []
    return ranks, in_turn, [f"stages go to devices in turn, stage {len(ranks)} to the first one again"]


def _is_1f1b(chain: Chain) -> bool:
    """Every rank has one stage, with as many micro-batches in flight as there are stages from it on."""
    if len(chain.ranks) != len(chain.stages) or not chain.steps:
        return False
    for stage, steps in enumerate(chain.steps[stage.rank] for stage in chain.stages):
        kinds = "".join(step.kind for step in steps if step.kind != "R")
        warm = min(len(chain.stages) - stage, chain.micro_batches)
        if kinds != "F" * warm + "BF" * (chain.micro_batches - warm) + "B" * warm:
            return False
    return True


def _some(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")
