"""Plans for torch.distributed.pipelining: a schedule as CSV, and stage modules that run under it.

`express` writes what `_PipelineScheduleRuntime` loads, a row of compute actions per rank, and beside it, as JSON, the
nodes of every stage. `Pipeline` trains with the two files.
"""

import collections
import json
import os
import pathlib

from ..errors import FrameworkError, PlanFileError
from ..proto import pb
from .chain import Chain, ChainStage
from .expression import Expressed, Judge, best_chain
from .plan import Step

# Of the file with the stages, in place of the schedule's `.csv`.
STAGES_SUFFIX = ".stages.json"


def express(judge: Judge, path: pathlib.Path) -> Expressed:
    """The CSV schedule, and the stages beside it."""
    chain, judged = best_chain(judge)
    simulated = judged.step_seconds if judged else None if chain.notes else judge.plan.step_seconds
    stages = _stages_json(chain, judge.graph, judge.plan.step_seconds, simulated)
    return Expressed(
        files={
            "": csv_text(chain),
            STAGES_SUFFIX: json.dumps(stages, indent=1) + "\n",
        },
        summary=chain.summary,
        notes=chain.notes,
        searched=("--sequential", "--no-replicas"),
        seconds=simulated,
    )


def csv_text(chain: Chain) -> str:
    """What `_PipelineScheduleRuntime._load_csv` reads: compute actions, a row per rank."""
    return "".join(",".join(row) + "\n" for row in schedule_rows(chain))


def schedule_rows(chain: Chain) -> list[list[str]]:
    """Compute actions per rank, as "2F0": stage, pass, micro-batch.

    Repeated forward passes are left out, stage modules do them. Stages above which nothing trains have no backward pass
    in a plan, but every stage has one here; it costs nothing and runs as soon as it can.
    """
    queues = [collections.deque(step for step in steps if step.kind != "R") for steps in chain.steps]
    last, done = len(chain.stages) - 1, set()
    planned = {(step.stage, step.micro_batch) for steps in chain.steps for step in steps if step.kind in "BI"}
    idle: list[list[Step]] = [[] for _ in chain.ranks]
    for number, stage in enumerate(chain.stages):
        missing = [m for m in range(chain.micro_batches) if (number, m) not in planned]
        idle[stage.rank] += [Step("B", number, m) for m in missing]

    def ready(step: Step) -> bool:
        stage, batch = step.stage, step.micro_batch
        if step.kind == "F":
            return stage == 0 or ("F", stage - 1, batch) in done
        if step.kind == "W":
            return ("I", stage, batch) in done
        return ("F", stage, batch) in done and (stage == last or ("I", stage + 1, batch) in done)

    rows: list[list[str]] = [[] for _ in chain.ranks]
    while any(queues) or any(idle):
        before = len(done)
        for rank, queue in enumerate(queues):
            step = next((step for step in idle[rank] if ready(step)), None)
            if step is not None:
                idle[rank].remove(step)
            elif queue and ready(queue[0]):
                step = queue.popleft()
            else:
                continue
            # Both a whole backward pass and its first half give the gradients that the stage before waits for.
            done.add(("I" if step.kind == "B" else step.kind, step.stage, step.micro_batch))
            rows[rank].append(f"{step.stage}{step.kind}{step.micro_batch}")
        if len(done) == before:
            raise FrameworkError("the plan's order of passes cannot run as a chain: ranks wait for each other")
    final = [step for step in chain.steps[chain.stages[last].rank] if (step.kind, step.stage) == ("F", last)]
    if final != sorted(final, key=lambda step: step.micro_batch):
        raise FrameworkError(
            "the plan's last stage takes micro-batches out of order, and torch.distributed.pipelining tells losses "
            "apart by their order; plan with --max-loops 1"
        )
    return rows


def _stages_json(chain: Chain, graph: "pb.Graph", plan_seconds: float, seconds: float | None) -> dict:
    return {
        "graph": graph.name,
        "mini_batch": chain.mini_batch,
        "micro_batch": chain.micro_batch,
        "ranks": [list(rank) for rank in chain.ranks],
        "stages": [
            {
                "rank": stage.rank,
                "recompute": stage.recompute,
                "nodes": [graph.nodes[node].name for node in stage.nodes],
            }
            for stage in chain.stages
        ],
        "not_as_in_the_plan": list(chain.notes),
        "plan_step_seconds": plan_seconds,
        "step_seconds": seconds,
    }


def read_stages(path: str | os.PathLike, graph: "pb.Graph") -> Chain:
    """The chain that `express` wrote. Raises PlanFileError naming the file and what is wrong with it."""
    try:
        content = json.loads(pathlib.Path(path).read_text())
    except OSError as error:
        raise PlanFileError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise PlanFileError(f"{path}: not JSON: {error}") from error
    index = {node.name: number for number, node in enumerate(graph.nodes)}
    try:
        return Chain(
            stages=tuple(
                ChainStage(tuple(index[name] for name in stage["nodes"]), stage["rank"], stage["recompute"])
                for stage in content["stages"]
            ),
            ranks=tuple(tuple(rank) for rank in content["ranks"]),
            mini_batch=content["mini_batch"],
            micro_batch=content["micro_batch"],
        )
    except (KeyError, TypeError) as error:
        raise PlanFileError(f"{path}: not the stages of a schedule of '{graph.name}' ({error} is missing)") from error
