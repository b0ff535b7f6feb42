"""Plans as `stagewright plan` writes them: the file of --save, and what `-o json` prints."""

import dataclasses
import json
import os
import pathlib
import re

from google.protobuf import json_format

from .._proto import planner_service_pb2, program_pb2, strategy_pb2
from ..errors import PlanFileError
from ..proto import pb

_PASSES = {
    program_pb2.ACTION_KIND_FORWARD: "F",
    program_pb2.ACTION_KIND_BACKWARD: "B",
    program_pb2.ACTION_KIND_BACKWARD_INPUT: "I",
    program_pb2.ACTION_KIND_BACKWARD_WEIGHT: "W",
    program_pb2.ACTION_KIND_RECOMPUTE: "R",
}
_PRECISIONS = {planner_service_pb2.PRECISION_BF16: "bf16", planner_service_pb2.PRECISION_FP16: "fp16"}
_STEP = re.compile(r"([FRBIW])(\d+)\.(\d+)")


@dataclasses.dataclass(frozen=True)
class Step:
    """A pass of a device: F forward, R forward again, B backward, or its halves I (for inputs) and W (for weights)."""

    kind: str
    stage: int
    micro_batch: int


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage. `nodes` are indices in the graph, without the constants that every reader recomputes."""

    nodes: tuple[int, ...]
    devices: tuple[str, ...]
    micro_batch: int
    k: int = 1
    in_flight: int = 0
    recompute: bool = False
    memory_bytes: int = 0
    seconds_per_sample: float = 0.0


@dataclasses.dataclass(frozen=True)
class Plan:
    """A strategy and what the simulator says of it. Stages are in topological order."""

    stages: tuple[Stage, ...]
    edges: tuple[tuple[int, int], ...]
    mini_batch: int
    step_seconds: float
    sequential: bool
    asynchronous: bool
    planner: str
    # What each device computes in a step; empty where the file does not say.
    steps: dict[str, tuple[Step, ...]]
    # The preset or the name of the cluster; empty if unknown.
    cluster: str = ""
    # In which passes compute, as `stagewright plan --precision` names it.
    precision: str = "graph"
    # The step of the best sequential plan that was found beside this one.
    sequential_seconds: float | None = None

    @property
    def devices(self) -> list[str]:
        """Those in use, in the order in which stages name them."""
        return list(dict.fromkeys(device for stage in self.stages for device in stage.devices))


def read_plan(path: str | os.PathLike, graph: "pb.Graph") -> Plan:
    """Reads a plan of `graph`. Raises PlanFileError naming the file and what is wrong with it."""
    try:
        content = json.loads(pathlib.Path(path).read_text())
    except OSError as error:
        raise PlanFileError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise PlanFileError(f"{path}: not JSON: {error}") from error
    try:
        if isinstance(content, dict):
            _refuse_splits(content, path)
        if isinstance(content, dict) and "response" in content:
            names = [node.get("name", "") for node in content.get("graph", {}).get("nodes", [])]
            _check_names(dict(enumerate(names)), graph, path)
            return _from_response(content["response"], path)
        if isinstance(content, dict) and content.get("stages"):
            return _from_shown(content, graph, path)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, json_format.ParseError) as error:
        raise PlanFileError(f"{path}: not a whole plan ({type(error).__name__}: {error})") from error
    raise PlanFileError(f"{path}: holds no plan; `stagewright plan --save FILE` and `-o json` write one")


def _refuse_splits(content: dict, path: str | os.PathLike) -> None:
    """Operators in parallel parts are a rewrite of the graph, which other frameworks do not have."""
    saved = content.get("response", {}).get("best", {}).get("strategy", {}).get("splits")
    if saved or content.get("split_operators"):
        raise PlanFileError(f"{path}: cuts operators in parallel parts; plan with --split-operators off")


def _check_names(names: dict[int, str], graph: "pb.Graph", path: str | os.PathLike) -> None:
    for index, name in names.items():
        if index >= len(graph.nodes) or graph.nodes[index].name != name:
            raise PlanFileError(f"{path}: is a plan of another graph: '{graph.name}' has no node {index} '{name}'")


def _from_response(json_response: dict, path: str | os.PathLike) -> Plan:
    response = planner_service_pb2.PlanResponse()
    json_format.ParseDict(json_response, response, ignore_unknown_fields=True)
    if not response.HasField("best"):
        raise PlanFileError(f"{path}: holds no plan: {response.reason or 'none was found'}")
    plan, strategy = response.best, response.best.strategy
    names = {report.device: report.name for report in plan.evaluation.devices}
    stages = [
        Stage(
            nodes=tuple(stage.nodes),
            devices=tuple(names[device] for device in stage.devices),
            micro_batch=stage.micro_batch,
            k=max(1, stage.k),
            in_flight=stage.in_flight,
            recompute=stage.recompute,
            memory_bytes=report.peak_memory_bytes,
            seconds_per_sample=report.seconds_per_sample,
        )
        for stage, report in zip(strategy.stages, plan.evaluation.stages, strict=True)
    ]
    sequential = response.sequential.evaluation.iteration_ns if response.HasField("sequential") else 0
    return Plan(
        stages=tuple(stages),
        edges=tuple((getattr(edge, "from"), edge.to) for edge in strategy.edges),
        mini_batch=strategy.mini_batch,
        step_seconds=plan.evaluation.iteration_ns / 1e9,
        sequential=strategy.kind == strategy_pb2.STRATEGY_KIND_SEQUENTIAL,
        asynchronous=strategy.asynchronous,
        planner=plan.provenance.planner,
        steps=_program_steps(plan.program, names),
        cluster=plan.provenance.cluster,
        precision=_PRECISIONS.get(plan.provenance.precision, "graph"),
        sequential_seconds=sequential / 1e9 if sequential else None,
    )


def _program_steps(program: "program_pb2.Program", names: dict[int, str]) -> dict[str, tuple[Step, ...]]:
    steps = {}
    for device in program.devices:
        actions = [entry.action for entry in device.body if entry.action.kind in _PASSES]
        steps[names[device.device]] = tuple(
            Step(_PASSES[action.kind], action.stage, action.begin // program.stages[action.stage].micro_batch)
            for action in actions
        )
    return steps


def _from_shown(content: dict, graph: "pb.Graph", path: str | os.PathLike) -> Plan:
    stages, edges = [], []
    for number, shown in enumerate(content["stages"]):
        _check_names(dict(zip(shown["operators"], shown["nodes"], strict=True)), graph, path)
        stages.append(
            Stage(
                nodes=tuple(shown["operators"]),
                devices=tuple(shown["devices"]),
                micro_batch=shown["micro_batch_size"],
                k=max(1, shown.get("k", 1)),
                in_flight=shown.get("in_flight", 0),
                recompute=shown.get("recompute", False),
                memory_bytes=shown.get("memory_bytes", 0),
                seconds_per_sample=shown.get("time_per_sample", 0.0),
            )
        )
        edges += [(number, successor) for successor in shown["successors"]]
    return Plan(
        stages=tuple(stages),
        edges=tuple(edges),
        mini_batch=content["mini_batch_size"],
        step_seconds=content["iteration_seconds"],
        sequential=content["kind"] == "sequential",
        asynchronous=content.get("asynchronous", False),
        planner=content.get("planner", ""),
        steps=_shown_steps(content),
        precision=content.get("precision", "graph"),
    )


def _shown_steps(content: dict) -> dict[str, tuple[Step, ...]]:
    """The orders by the names of their devices. The last release wrote numbers instead."""
    orders = dict(map(_order, content.get("orders", [])))
    in_use = [report["device"] for report in content["devices"]] if orders else []
    if orders.keys() == set(in_use):
        return orders
    # Both are sorted by the number of the device in its cluster.
    return {name: orders[number] for name, number in zip(in_use, sorted(orders, key=int), strict=True)}


def _order(line: str) -> tuple[str, tuple[Step, ...]]:
    """A line of `orders`: "device node0/device0: F0.0 F0.1 B0.0 B0.1"."""
    device, _, passes = line.removeprefix("device ").rpartition(":")
    steps = []
    for text in passes.split():
        match = _STEP.fullmatch(text)
        if match is None:
            raise ValueError(f"orders: '{text}' is no pass")
        steps.append(Step(match[1], int(match[2]), int(match[3])))
    return device, tuple(steps)
