"""A plan as a chain of stages, which is what pipelines of other frameworks are.

Every stage runs on one rank, stage i sends to stage i + 1 only, and all stages have the same micro-batch and equally
many replicas. `chain_of` keeps a plan that is like that as it is; it changes any other plan until it is, and says what
it changed.
"""

import collections
import dataclasses

from ..errors import FrameworkError
from ..proto import pb
from .graph_values import Value, bytes_at, values_read
from .plan import Plan, Stage, Step


@dataclasses.dataclass(frozen=True)
class ChainStage:
    """`nodes` are the stage's own, in an order in which they can run; `rank` is where it runs.

    `k` and `in_flight` as in a plan by hand (docs/planners/manual.md); 0 samples in flight leave their number open.
    """

    nodes: tuple[int, ...]
    rank: int
    recompute: bool = False
    k: int = 1
    in_flight: int = 0


@dataclasses.dataclass(frozen=True)
class Chain:
    """Stages in the order of the chain. `micro_batch` counts samples over all replicas."""

    stages: tuple[ChainStage, ...]
    # The devices of each rank, one per replica; no device is of two ranks.
    ranks: tuple[tuple[str, ...], ...]
    mini_batch: int
    micro_batch: int
    # What each rank computes in a step; empty where the plan's own order is not kept.
    steps: tuple[tuple[Step, ...], ...] = ()
    # What the plan does and the chain does not, a sentence each.
    notes: tuple[str, ...] = ()

    @property
    def replicas(self) -> int:
        return len(self.ranks[0])

    @property
    def micro_batches(self) -> int:
        return self.mini_batch // self.micro_batch

    @property
    def summary(self) -> str:
        """For people: "4 ranks, 5 stages, 8 micro-batches of 16 samples, 2 replicas"."""
        counts = [(len(self.ranks), "rank"), (len(self.stages), "stage"), (self.micro_batches, "micro-batch")]
        plural = {"rank": "ranks", "stage": "stages", "micro-batch": "micro-batches"}
        text = ", ".join(f"{count} {word if count == 1 else plural[word]}" for count, word in counts)
        return f"{text} of {self.micro_batch} samples" + (f", {self.replicas} replicas" if self.replicas > 1 else "")


def check_executable(graph: "pb.Graph") -> None:
    """Raises FrameworkError for a graph without operators, or one whose nodes cannot run in the order of the file."""
    for index, node in enumerate(graph.nodes):
        if not node.target:
            raise FrameworkError(f"'{graph.name}' is a profile: node '{node.name}' has a cost instead of an operator")
        if any(source >= index for source, _ in values_read(node)):
            raise FrameworkError(f"'{graph.name}': node '{node.name}' reads a node that comes after it")


def chain_of(plan: Plan, graph: "pb.Graph", micro_batch: int | None = None) -> Chain:
    """The chain of a plan's stages, in their order. `micro_batch` replaces those of the plan.

    Raises FrameworkError where no chain of stages does what the plan does.
    """
    check_executable(graph)
    if plan.asynchronous:
        raise FrameworkError(
            "the plan is asynchronous: it never flushes its pipeline and keeps versions of weights; "
            "plan without --asynchronous"
        )
    notes: list[str] = []
    beside = _beside(plan)
    if beside:
        notes.append(f"{beside} beside the stage before in the plan; here every stage waits for the one before")
    common = micro_batch or max(stage.micro_batch for stage in plan.stages)
    sizes = sorted({stage.micro_batch for stage in plan.stages})
    if sizes != [common]:
        notes.append(f"stages have micro-batches of {', '.join(map(str, sizes))}; here all have {common}")
    ranks, rank_of = _aligned_ranks(plan)
    if not ranks:
        counts = sorted({len(stage.devices) for stage in plan.stages})
        notes.append(
            f"stages have {' or '.join(map(str, counts))} replicas that share devices; here each runs on one device"
        )
        ranks, rank_of = _one_device_each(plan)
    elif common % len(ranks[0]) != 0:
        raise FrameworkError(f"micro-batches of {common} samples do not divide among {len(ranks[0])} replicas")
    kept = not notes
    return Chain(
        stages=tuple(
            ChainStage(stage.nodes, rank, stage.recompute, stage.k if kept else 1, stage.in_flight if kept else 0)
            for stage, rank in zip(plan.stages, rank_of, strict=True)
        ),
        ranks=tuple(ranks),
        mini_batch=plan.mini_batch,
        micro_batch=common,
        steps=tuple(plan.steps[rank[0]] for rank in ranks) if kept and plan.steps else (),
        notes=tuple(notes),
    )


def _beside(plan: Plan) -> str:
    """Stages that do not wait for the one before them, as "stages 1, 3 run"; empty if there are none."""
    edges = set(plan.edges)
    beside = [s for s in range(1, len(plan.stages)) if (s - 1, s) not in edges]
    return f"{stage_list(beside)} {'runs' if len(beside) == 1 else 'run'}" if beside else ""


def stage_list(stages: list[int]) -> str:
    """Ascending numbers of stages for people: "stage 4", "stages 1, 3-7"."""
    runs: list[list[int]] = []
    for stage in stages:
        if runs and stage == runs[-1][-1] + 1:
            runs[-1].append(stage)
        else:
            runs.append([stage])
    text = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"stage{'' if len(stages) == 1 else 's'} {text}"


def _aligned_ranks(plan: Plan) -> tuple[list[tuple[str, ...]], list[int]]:
    """Ranks and the rank of each stage, if all have the same number of devices and no two share some only."""
    ranks = list(dict.fromkeys(stage.devices for stage in plan.stages))
    devices = [device for rank in ranks for device in rank]
    if len(set(map(len, ranks))) != 1 or len(set(devices)) != len(devices):
        return [], []
    return ranks, [ranks.index(stage.devices) for stage in plan.stages]


def _one_device_each(plan: Plan) -> tuple[list[tuple[str, ...]], list[int]]:
    """Stages with most work first, each goes to that of its devices which has least to do."""
    load: dict[str, float] = collections.defaultdict(float)
    chosen: dict[int, str] = {}

    def work(stage: Stage) -> float:
        return stage.seconds_per_sample * len(stage.devices)

    for index in sorted(range(len(plan.stages)), key=lambda s: (-work(plan.stages[s]), s)):
        chosen[index] = min(plan.stages[index].devices, key=lambda device: load[device])
        load[chosen[index]] += work(plan.stages[index])
    devices = list(dict.fromkeys(chosen[s] for s in range(len(plan.stages))))
    return [(device,) for device in devices], [devices.index(chosen[s]) for s in range(len(plan.stages))]


def replicated_nodes(graph: "pb.Graph", chain: Chain) -> list[list[int]]:
    """By stage: the nodes of no stage (constants) that it computes for itself, in an order in which they can run."""
    owned = {node for stage in chain.stages for node in stage.nodes}
    result = []
    for stage in chain.stages:
        found: set[int] = set()
        frontier = list(stage.nodes)
        while frontier:
            for source, _ in values_read(graph.nodes[frontier.pop()]):
                if source not in owned and source not in found:
                    found.add(source)
                    frontier.append(source)
        result.append(sorted(found))
    return result


def crossing_values(graph: "pb.Graph", chain: Chain) -> list[list[Value]]:
    """By stage: what it hands to the next one, sorted, values that it only passes on among them.

    The loss, wherever it is computed, reaches the last stage.
    """
    owner = {node: s for s, stage in enumerate(chain.stages) for node in stage.nodes}
    last_reader: dict[Value, int] = {(graph.loss.node, graph.loss.output): len(chain.stages) - 1}
    for s, stage in enumerate(chain.stages):
        for node in stage.nodes:
            for value in values_read(graph.nodes[node]):
                if value[0] in owner:
                    last_reader[value] = max(last_reader.get(value, 0), s)
    return [
        sorted(value for value, last in last_reader.items() if owner[value[0]] <= s < last)
        for s in range(len(chain.stages))
    ]


def passed_on(graph: "pb.Graph", chain: Chain) -> tuple[list[int], int]:
    """(stages that are handed values which they do not read, bytes of those values per micro-batch and direction)."""
    crossing = crossing_values(graph, chain)
    through, total = [], 0
    for s in range(1, len(chain.stages)):
        read = {value for node in chain.stages[s].nodes for value in values_read(graph.nodes[node])}
        unread = [value for value in crossing[s - 1] if value not in read]
        if unread:
            through.append(s)
        total += sum(bytes_at(graph.nodes[node].outputs[output], chain.micro_batch) for node, output in unread)
    return through, total


def pass_note(graph: "pb.Graph", chain: Chain) -> str | None:
    """What passes through stages that do not read it, as a sentence; None if nothing does."""
    through, size = passed_on(graph, chain)
    if not through:
        return None
    return f"{size:,} bytes per micro-batch and direction pass through {stage_list(through)} without being read there"
