"""A plan in another framework's terms: the files, what they leave out, and what a step then takes."""

import dataclasses
import math

from ..errors import FrameworkError
from ..proto import pb
from .chain import Chain, chain_of, pass_note
from .plan import Plan
from .prediction import find_program, search, simulate

# Under which plans are chains of one stage per device.
CHAIN_OPTIONS = ("--sequential", "--no-replicas", "--max-loops", "1", "--no-split-backward")


@dataclasses.dataclass(frozen=True)
class Expressed:
    """`files` are contents by suffix; the empty suffix is the file that was asked for."""

    files: dict[str, str]
    summary: str
    # What is not as in the plan, a sentence each.
    notes: tuple[str, ...]
    # Of a step as the other framework runs it; None where nothing could simulate it.
    seconds: float | None
    # Options of `stagewright plan` under which plans need no change.
    searched: tuple[str, ...] = CHAIN_OPTIONS


@dataclasses.dataclass(frozen=True)
class Judge:
    """A plan with what it takes to simulate others beside it."""

    plan: Plan
    graph: "pb.Graph"
    cluster: str
    optimizer: str = "sgd"

    @property
    def can_simulate(self) -> bool:
        return bool(self.cluster) and find_program() is not None

    def simulate(self, chain: Chain) -> Plan:
        """The chain, lowered and timed. Raises FrameworkError if that is not possible."""
        if not self.cluster:
            raise FrameworkError("the plan does not say its cluster, on which to simulate it; name it with --cluster")
        return simulate(chain, self.graph, self.cluster, self.optimizer, self.plan.precision)

    def searched_seconds(self, options: tuple[str, ...]) -> float | None:
        """A step of the best plan that is found under options of `stagewright plan`; None if there is none."""
        if not self.can_simulate:
            return None
        try:
            plan = search(
                self.graph, self.cluster, self.plan.mini_batch, self.optimizer, self.plan.precision, options
            )
        except FrameworkError:
            return None
        return plan.step_seconds


def best_chain(judge: Judge) -> tuple[Chain, Plan | None]:
    """The plan's stages as a chain with the order of every rank, and its simulation unless it is the plan itself.

    A plan that is a chain keeps its order and its micro-batch. Any other takes the micro-batch with the shortest step.
    """
    plan, graph = judge.plan, judge.graph
    chain = chain_of(plan, graph)
    passes = pass_note(graph, chain)
    if chain.steps and not passes:
        return chain, None
    if chain.steps and not judge.can_simulate:
        return dataclasses.replace(chain, notes=(passes,)), None
    sizes = [chain.micro_batch] if not chain.notes else _micro_batches(plan)
    return fastest(judge, [chain_of(plan, graph, size) for size in sizes if size % chain.replicas == 0])


def fastest(judge: Judge, candidates: list[Chain]) -> tuple[Chain, Plan]:
    """The candidate with the shortest step, with its order, and its simulation. Raises what refused the first if none
    runs."""
    tried: list[tuple[Chain, Plan]] = []
    refused: list[FrameworkError] = []
    for candidate in candidates:
        try:
            tried.append((candidate, judge.simulate(candidate)))
        except FrameworkError as error:
            refused.append(error)
    if not tried:
        raise refused[0]
    chain, simulated = min(tried, key=lambda entry: entry[1].step_seconds)
    steps = tuple(simulated.steps[rank[0]] for rank in chain.ranks)
    passes = pass_note(judge.graph, chain)
    notes = chain.notes + ((passes,) if passes else ())
    return dataclasses.replace(chain, steps=steps, notes=notes), simulated


def _micro_batches(plan: Plan) -> list[int]:
    """The plan's own sizes first, then those that halve the mini-batch again and again."""
    sizes = sorted({stage.micro_batch for stage in plan.stages}, reverse=True)
    half = plan.mini_batch
    while half % 2 == 0 and plan.mini_batch // half < 64:
        half //= 2
        sizes.append(half)
    return list(dict.fromkeys(sizes))


def report(expressed: Expressed, judge: Judge, target: str) -> str:
    """What was written, what is not as in the plan and what that costs, for people."""
    lines = [f"{target}: {expressed.summary}"]
    lines += [f"  not as in the plan: {note}" for note in expressed.notes]
    planned = judge.plan.step_seconds
    if expressed.seconds is None:
        lines.append(
            f"  a step takes {_time(planned)} as planned; what it takes as written, only the program 'stagewright' on "
            "the path can simulate, on the plan's cluster (--cluster)"
        )
        return "\n".join(lines)
    lines.append(
        f"  a step takes {_time(planned)} as planned and {_time(expressed.seconds)} as written "
        f"({expressed.seconds / planned:.2f}x), both simulated"
    )
    if expressed.notes and chain_of(judge.plan, judge.graph).notes:
        lines += [f"  {text}" for text in advice(judge, expressed.searched, expressed.seconds)]
    return "\n".join(lines)


def advice(judge: Judge, options: tuple[str, ...] = CHAIN_OPTIONS, seconds: float = math.inf) -> list[str]:
    """Which plans need less change, and what the best of them costs; nothing if none takes less than `seconds`."""
    found = judge.searched_seconds(options)
    if found is None or found >= seconds:
        return []
    return [f"`stagewright plan {' '.join(options)}` finds a plan that is a chain and takes {_time(found)}"]


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-6:.4g} us"
