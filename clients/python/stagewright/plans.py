"""Plans as Python values: stages, figures and the simulated timeline."""

import dataclasses
import json
import os
import pathlib

from google.protobuf import json_format

from .errors import NoPlanError, PlanFileError
from .proto import pb, planner_pb, program_pb, strategy_pb


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of the model on its devices. Stages form a DAG: `successors` are indices of stages."""

    index: int
    nodes: tuple[str, ...]  # "part 61" is one that cut operators add to the graph, where it has no name here.
    modules: tuple[str, ...]
    devices: tuple[str, ...]
    successors: tuple[int, ...]
    micro_batch: int
    in_flight: int  # Samples.
    recompute: bool
    seconds_per_sample: float
    memory_bytes: int
    parts: int = 0  # Nodes without a name.

    @property
    def label(self) -> str:
        """The first and the last of its modules, or of its nodes."""
        if not self.modules or not self.parts:
            return span_of(self.modules or self.nodes)
        return f"{span_of(self.modules)} + {self.parts} part{'' if self.parts == 1 else 's'}"


@dataclasses.dataclass(frozen=True)
class Device:
    """What a device does in a step of a plan, as simulated."""

    name: str
    busy_seconds: float
    peak_memory_bytes: int
    memory_budget_bytes: int


@dataclasses.dataclass(frozen=True)
class Span:
    """An action of a device: `kind` is "forward", "backward", "send_activation" and so on; samples [begin, end)."""

    device: str
    kind: str
    stage: int
    begin: int
    end: int
    start_seconds: float
    end_seconds: float


@dataclasses.dataclass(frozen=True)
class OfLength:
    """A step of samples of another shape than the largest."""

    samples: str  # Their shapes: "tokens[12], target[12]".
    step_seconds: float
    samples_per_second: float
    peak_memory_bytes: int


@dataclasses.dataclass(frozen=True, repr=False)
class Plan:
    """A strategy with its simulated figures. In a notebook it shows its stages and its timeline."""

    model: str
    planner: str
    kind: str  # "graph" or "sequential": what the planner looked for.
    stages: tuple[Stage, ...]
    devices: tuple[Device, ...]
    timeline: tuple[Span, ...]  # Of one step; empty where the planner gave none.
    mini_batch: int
    step_seconds: float
    samples_per_second: float
    depth: int
    bubble_ratio: float
    proto: "planner_pb.Plan"
    lengths: tuple[OfLength, ...] = ()  # Samples of other shapes; all figures above are of the largest.
    split_operators: dict[str, int] = dataclasses.field(default_factory=dict)  # In how many parts each is cut.
    preset: str = ""  # The cluster, where it is not that of workers, whose devices a job with this plan would run on.
    # Of an answer to `plan`:
    sequential: "Plan | None" = None
    lower_bound_seconds: float = 0.0
    termination: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def peak_memory_bytes(self) -> int:
        return max((device.peak_memory_bytes for device in self.devices), default=0)

    def __repr__(self) -> str:
        head = (
            f"{self.model}: {len(self.stages)} stage{'' if len(self.stages) == 1 else 's'}, depth {self.depth}, "
            f"{self.step_seconds * 1e3:.4g} ms a step of {self.mini_batch} samples "
            f"({self.samples_per_second:.5g} samples/s), by {self.planner}"
        )
        others = [f"  {of.step_seconds * 1e3:.4g} ms a step of samples {of.samples}" for of in self.lengths]
        cut = ", ".join(f"{node} cut in {parts}" for node, parts in self.split_operators.items())
        if cut and any(stage.parts for stage in self.stages):
            cut += ": what that adds to the graph is called part"
        return "\n".join([head, *others, *([f"  {cut}"] if cut else []), *map(_stage_line, self.stages)])

    def _repr_svg_(self) -> str:
        from .drawing import plan_svg

        return plan_svg(self)


def _stage_line(stage: Stage) -> str:
    target = f" -> {', '.join(map(str, stage.successors))}" if stage.successors else ""
    return f"  [{stage.index}]{target}  {stage.label}  on {', '.join(stage.devices)}"


def span_of(names: tuple[str, ...]) -> str:
    """The first and the last of many names."""
    return ", ".join(names) if len(names) < 3 else f"{names[0]} .. {names[-1]}"


def _of_length(length: "planner_pb.LengthPlan") -> OfLength:
    evaluation = length.evaluation
    peak = max((device.peak_memory_bytes for device in evaluation.devices), default=0)
    return OfLength(length.samples, evaluation.iteration_ns / 1e9, evaluation.samples_per_second, peak)


def plan_from_proto(plan: "planner_pb.Plan", graph: "pb.Graph") -> Plan:
    """`graph` needs the names of its nodes only; those that cut operators add may be missing."""
    strategy, evaluation = plan.strategy, plan.evaluation
    names = {device.device: device.name for device in evaluation.devices}
    return Plan(
        model=graph.name,
        planner=plan.provenance.planner,
        kind="sequential" if strategy.kind == strategy_pb.STRATEGY_KIND_SEQUENTIAL else "graph",
        stages=_stages(plan, graph, names),
        devices=tuple(
            Device(d.name, d.busy_ns / 1e9, d.peak_memory_bytes, d.memory_budget_bytes) for d in evaluation.devices
        ),
        timeline=tuple(_span(event, names) for event in evaluation.timeline),
        mini_batch=strategy.mini_batch,
        lengths=tuple(map(_of_length, plan.lengths)),
        split_operators={split.node: split.parts for split in strategy.splits},
        step_seconds=evaluation.iteration_ns / 1e9,
        samples_per_second=evaluation.samples_per_second,
        depth=evaluation.depth,
        bubble_ratio=evaluation.bubble_ratio,
        proto=plan,
    )


def plan_from_response(response: "planner_pb.PlanResponse", graph: "pb.Graph") -> Plan:
    """Raises NoPlanError where the answer has no plan."""
    termination = planner_pb.Termination.Name(response.termination).removeprefix("TERMINATION_").lower()
    if not response.HasField("best"):
        raise NoPlanError(f"no plan ({termination}): {response.reason}", termination)
    sequential = plan_from_proto(response.sequential, graph) if response.HasField("sequential") else None
    return dataclasses.replace(
        plan_from_proto(response.best, graph),
        sequential=sequential,
        lower_bound_seconds=response.lower_bound_ns / 1e9,
        termination=termination,
        warnings=tuple(response.warnings),
    )


def _stages(plan: "planner_pb.Plan", graph: "pb.Graph", devices: dict[int, str]) -> tuple[Stage, ...]:
    successors: dict[int, list[int]] = {}
    for edge in plan.strategy.edges:
        successors.setdefault(getattr(edge, "from"), []).append(edge.to)
    stages = []
    for index, (stage, report) in enumerate(zip(plan.strategy.stages, plan.evaluation.stages, strict=True)):
        named = [graph.nodes[i] for i in stage.nodes if i < len(graph.nodes)]
        stages.append(
            Stage(
                index=index,
                nodes=tuple(graph.nodes[i].name if i < len(graph.nodes) else f"part {i}" for i in stage.nodes),
                modules=tuple(dict.fromkeys(node.module for node in named if node.module)),
                devices=tuple(devices.get(device, f"device {device}") for device in stage.devices),
                successors=tuple(successors.get(index, ())),
                micro_batch=stage.micro_batch,
                in_flight=report.in_flight,
                recompute=stage.recompute,
                seconds_per_sample=report.seconds_per_sample,
                memory_bytes=report.peak_memory_bytes,
                parts=len(stage.nodes) - len(named),
            )
        )
    return tuple(stages)


def _span(event: "planner_pb.TraceEvent", devices: dict[int, str]) -> Span:
    action = event.action
    return Span(
        device=devices.get(event.device, f"device {event.device}"),
        kind=program_pb.ActionKind.Name(action.kind).removeprefix("ACTION_KIND_").lower(),
        stage=action.stage,
        begin=action.begin,
        end=action.end,
        start_seconds=event.start_ns / 1e9,
        end_seconds=event.end_ns / 1e9,
    )


def load_plan(path: str | os.PathLike) -> Plan:
    """Reads what `stagewright plan --save` wrote."""
    document = _read_json(path)
    if not isinstance(document, dict) or "response" not in document or "graph" not in document:
        raise PlanFileError(f"{path}: not a plan that `stagewright plan --save` wrote")
    try:
        response = json_format.ParseDict(document["response"], planner_pb.PlanResponse())
        graph = json_format.ParseDict(document["graph"], pb.Graph())
        return plan_from_response(response, graph)
    except (json_format.ParseError, ValueError) as error:
        raise PlanFileError(f"{path}: {str(error).splitlines()[0]}") from error


# What `stagewright plan -o json` prints, and what a plan by hand calls it.
_PLAN_FIELDS = (
    "kind", "asynchronous", "vertical_sync", "batch_statistics", "bucket_bytes", "optimizer_sharding", "orders",
)  # fmt: skip
_STAGE_FIELDS = {
    "nodes": "nodes",
    "devices": "devices",
    "micro_batch_size": "micro_batch",
    "k": "k",
    "in_flight": "in_flight",
    "recompute": "recompute",
}


def plan_by_hand(path: str | os.PathLike) -> tuple[str, dict[str, int], list[str]]:
    """The text of a plan by hand (docs/planners/manual.md), from such a file or from what `plan -o json` printed, the
    operators that it cuts in parallel parts, in how many, and the devices that it was found for, if it was found."""
    document = _read_json(path)
    if not isinstance(document, dict) or not isinstance(document.get("stages"), list):
        raise PlanFileError(f"{path}: holds no plan")
    splits = document.pop("split_operators", {})
    if "termination" not in document:
        return json.dumps(document), splits, []
    plan = {field: document[field] for field in _PLAN_FIELDS if field in document}
    plan["stages"] = [
        {name: stage[shown] for shown, name in _STAGE_FIELDS.items() if shown in stage} for stage in document["stages"]
    ]
    devices = [report["device"] for report in document.get("devices", []) if "device" in report]
    return json.dumps(plan), splits, devices


def by_name(plan: Plan) -> str:
    """The text of the plan by hand, on the devices of its names."""
    strategy = plan.proto.strategy
    names = {device.device: device.name for device in plan.proto.evaluation.devices}
    written = {"kind": plan.kind, "asynchronous": strategy.asynchronous, "vertical_sync": strategy.vertical_sync}
    if strategy.batch_statistics:
        statistics = strategy_pb.BatchStatistics.Name(strategy.batch_statistics)
        written["batch_statistics"] = statistics.removeprefix("BATCH_STATISTICS_").lower()
    if strategy.bucket_bytes:
        written["bucket_bytes"] = strategy.bucket_bytes
    if strategy.optimizer_sharding:
        sharding = strategy_pb.OptimizerSharding.Name(strategy.optimizer_sharding)
        written["optimizer_sharding"] = sharding.removeprefix("OPTIMIZER_SHARDING_").lower()
    if strategy.orders:
        written["orders"] = [_order_text(order, names) for order in strategy.orders]
    written["stages"] = [
        {
            "nodes": shown.nodes,
            "devices": shown.devices,
            "micro_batch": stage.micro_batch,
            "k": stage.k,
            "in_flight": stage.in_flight,
            "recompute": stage.recompute,
        }
        for shown, stage in zip(plan.stages, strategy.stages, strict=True)
    ]
    return json.dumps(written)


def by_number(plan: Plan) -> tuple["strategy_pb.Strategy", int]:
    """The strategy on devices 0, 1, ... instead of those that it gives work, in their order, and how many these are."""
    strategy = strategy_pb.Strategy()
    strategy.CopyFrom(plan.proto.strategy)
    at_work = sorted({device for stage in strategy.stages for device in stage.devices})
    numbers = {device: number for number, device in enumerate(at_work)}
    for stage in strategy.stages:
        stage.devices[:] = [numbers[device] for device in stage.devices]
    for order in strategy.orders:
        order.device = numbers.get(order.device, order.device)
    return strategy, len(at_work)


_PASSES = "?FRBIW"  # By number.


def _order_text(order: "strategy_pb.DeviceOrder", names: dict[int, str]) -> str:
    passes = (f"{_PASSES[getattr(step, 'pass')]}{step.stage}.{step.micro_batch}" for step in order.steps)
    return f"device {names.get(order.device, order.device)}: {' '.join(passes)}"


def _read_json(path: str | os.PathLike) -> object:
    try:
        return json.loads(pathlib.Path(path).read_text())
    except OSError as error:
        raise PlanFileError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise PlanFileError(f"{path}: not JSON: {error}") from error
