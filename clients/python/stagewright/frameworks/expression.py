"""A plan in another framework's terms: the file, what it leaves out, and what a step then takes."""

import dataclasses

from ..errors import FrameworkError
from ..proto import pb
from .chain import Chain, chain_of, pass_note
from .plan import Plan
from .prediction import find_program, simulate


@dataclasses.dataclass(frozen=True)
class Expressed:
    """`files` are contents by suffix; the empty suffix is the file that was asked for."""

    files: dict[str, str]
    summary: str
    notes: tuple[str, ...]
    plan_seconds: float
    # Of a step as the other framework runs it; None where nothing could simulate it.
    seconds: float | None


@dataclasses.dataclass(frozen=True)
class Judge:
    """Simulates chains on the cluster of a plan."""

    plan: Plan
    graph: "pb.Graph"
    cluster: str
    optimizer: str = "sgd"

    @property
    def can(self) -> bool:
        return bool(self.cluster) and find_program() is not None

    def simulate(self, chain: Chain) -> Plan:
        if not self.cluster:
            raise FrameworkError("the plan does not say its cluster, on which to simulate it; name it with --cluster")
        return simulate(chain, self.graph, self.cluster, self.plan.device_numbers, self.optimizer)


def best_chain(judge: Judge) -> tuple[Chain, Plan | None]:
    """The plan's stages as a chain with the order of every rank, and its simulation unless it is the plan itself.

    Of several micro-batches the plan has, the one with the shortest step.
    """
    plan, graph = judge.plan, judge.graph
    chain = chain_of(plan, graph)
    passes = pass_note(graph, chain)
    if chain.steps and not passes:
        return chain, None
    if chain.steps and not judge.can:
        return dataclasses.replace(chain, notes=(passes,)), None
    sizes = sorted({stage.micro_batch for stage in plan.stages}, reverse=True)
    tried: list[tuple[Chain, Plan]] = []
    refused: list[FrameworkError] = []
    for size in sizes:
        candidate = chain_of(plan, graph, size)
        try:
            tried.append((candidate, judge.simulate(candidate)))
        except FrameworkError as error:
            refused.append(error)
    if not tried:
        raise refused[0]
    chain, judged = min(tried, key=lambda entry: entry[1].step_seconds)
    steps = tuple(judged.steps[rank[0]] for rank in chain.ranks)
    notes = chain.notes + ((passes,) if passes else ())
    return dataclasses.replace(chain, steps=steps, notes=notes), judged


def report(expressed: Expressed, target: str) -> str:
    """What was written, what it leaves out and what that costs, for people."""
    lines = [f"{target}: {expressed.summary}"]
    lines += [f"  not as in the plan: {note}" for note in expressed.notes]
    if expressed.seconds is None:
        lines.append(
            f"  a step takes {expressed.plan_seconds * 1e3:.3g} ms as planned; as written it was not simulated, which "
            "needs the program 'stagewright' and --cluster"
        )
    else:
        ratio = expressed.seconds / expressed.plan_seconds
        lines.append(
            f"  a step takes {expressed.plan_seconds * 1e3:.3g} ms as planned and {expressed.seconds * 1e3:.3g} ms as "
            f"written ({ratio:.2f}x), both simulated"
        )
    return "\n".join(lines)
