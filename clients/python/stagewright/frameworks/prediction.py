"""What a chain of stages costs, by the simulator of the planner: `stagewright plan --plan-file`."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

from ..errors import FrameworkError
from ..graph_file import save_graph
from ..proto import pb
from .chain import Chain, crossing_values
from .graph_values import arguments
from .plan import Plan, read_plan

# Names the program where it is not on the path.
PROGRAM_VARIABLE = "STAGEWRIGHT_CLI"
_SECONDS = 300
_SEARCH_SECONDS = 20


def find_program() -> str | None:
    """The command line program, from the environment or the path."""
    return os.environ.get(PROGRAM_VARIABLE) or shutil.which("stagewright")


def simulate(chain: Chain, graph: "pb.Graph", cluster: str, optimizer: str, precision: str) -> Plan:
    """The chain on a cluster, lowered and timed: what each device computes, and how long a step takes.

    Values that stages only pass on are sent from stage to stage, as the other framework sends them.
    Raises FrameworkError with the planner's own word where the chain does not fit, or without the program.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        relayed, by_hand = _written_out(chain, graph)
        save_graph(relayed, folder / "graph.swg")
        (folder / "plan.json").write_text(json.dumps(by_hand))
        try:
            return _plan(
                relayed, folder, cluster, chain.mini_batch, optimizer, precision, "--plan-file", folder / "plan.json"
            )
        except FrameworkError as error:
            raise FrameworkError(f"the stages as a chain cannot run on {cluster}: {error}") from error


def search(
    graph: "pb.Graph", cluster: str, mini_batch: int, optimizer: str, precision: str, options: tuple[str, ...]
) -> Plan:
    """The best plan that is found in a little time under options of `stagewright plan`."""
    with tempfile.TemporaryDirectory() as scratch:
        save_graph(graph, pathlib.Path(scratch, "graph.swg"))
        limit = ("--time-limit", _SEARCH_SECONDS)
        return _plan(graph, pathlib.Path(scratch), cluster, mini_batch, optimizer, precision, *options, *limit)


def _plan(
    graph: "pb.Graph",
    folder: pathlib.Path,
    cluster: str,
    mini_batch: int,
    optimizer: str,
    precision: str,
    *more: object,
) -> Plan:
    """Plans `graph.swg` of a folder. Raises FrameworkError with the planner's own word where there is no plan."""
    program = find_program()
    if program is None:
        raise FrameworkError(
            f"there is no program 'stagewright' on the path (or named by {PROGRAM_VARIABLE}), which simulates plans"
        )
    command = [program, "plan", "--local", folder / "graph.swg", "--cluster", cluster, "--mini-batch", mini_batch]
    command += ["--optimizer", optimizer, "--precision", precision, "--no-sequential"]
    command += ["--save", folder / "answer.json", "-o", "json", *more]
    try:
        run = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FrameworkError(f"{program}: {error}") from error
    if run.returncode != 0:
        raise FrameworkError(_reason(run))
    return read_plan(folder / "answer.json", graph)


def _reason(run: subprocess.CompletedProcess) -> str:
    text = run.stderr.strip().removeprefix("stagewright: ")
    if text:
        return text
    try:
        return json.loads(run.stdout).get("reason") or "no plan"
    except ValueError:
        return f"exit code {run.returncode}"


def _written_out(chain: Chain, graph: "pb.Graph") -> tuple["pb.Graph", dict]:
    """The graph with a node for every value that a stage passes on, and the chain as a plan by hand."""
    relayed = pb.Graph()
    relayed.CopyFrom(graph)
    stage_nodes = [[graph.nodes[node].name for node in stage.nodes] for stage in chain.stages]
    owner = {node: s for s, stage in enumerate(chain.stages) for node in stage.nodes}
    crossing = crossing_values(graph, chain)
    for s in range(1, len(chain.stages) - 1):
        here = set(crossing[s])
        for value in crossing[s - 1]:
            if value in here:
                stage_nodes[s].append(_add_relay(relayed, graph, value, s))
    _read_relays(relayed, graph, owner)
    stages = []
    for stage, names in zip(chain.stages, stage_nodes, strict=True):
        by_hand = {"nodes": names, "devices": list(chain.ranks[stage.rank]), "micro_batch": chain.micro_batch}
        by_hand |= {"k": stage.k, "recompute": stage.recompute}
        by_hand |= {"in_flight": stage.in_flight} if stage.in_flight else {}
        stages.append(by_hand)
    plan = {"kind": "sequential", "stages": stages}
    if chain.steps:
        plan["orders"] = _orders(chain)
    return relayed, plan


def _orders(chain: Chain) -> list[str]:
    lines = []
    for devices, steps in zip(chain.ranks, chain.steps, strict=True):
        passes = " ".join(f"{step.kind}{step.stage}.{step.micro_batch}" for step in steps)
        lines += [f"device {device}: {passes}" for device in devices]
    return lines


def _relay_name(graph: "pb.Graph", value: tuple[int, int], stage: int) -> str:
    return f"{graph.nodes[value[0]].name}.{value[1]} through stage {stage}"


def _add_relay(relayed: "pb.Graph", graph: "pb.Graph", value: tuple[int, int], stage: int) -> str:
    """Appends the node that passes a value on; it reads the one of the stage before, if that passes it on, too."""
    name = _relay_name(graph, value, stage)
    before = next((i for i, n in enumerate(relayed.nodes) if n.name == _relay_name(graph, value, stage - 1)), None)
    source = pb.ValueRef(node=value[0], output=value[1]) if before is None else pb.ValueRef(node=before)
    node = relayed.nodes.add(name=name, target="aten.alias.default")
    node.args.add().value.CopyFrom(source)
    node.outputs.add().CopyFrom(graph.nodes[value[0]].outputs[value[1]])
    return name


def _read_relays(relayed: "pb.Graph", graph: "pb.Graph", owner: dict[int, int]) -> None:
    """Lets every stage read what it is handed from the stage before it."""
    index = {node.name: i for i, node in enumerate(relayed.nodes)}
    for reader, stage in owner.items():
        for argument in arguments(relayed.nodes[reader]):
            if not argument.HasField("value"):
                continue
            relay = index.get(_relay_name(graph, (argument.value.node, argument.value.output), stage - 1))
            if relay is not None:
                argument.value.CopyFrom(pb.ValueRef(node=relay))
