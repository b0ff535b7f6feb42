"""What a job or a plan can be told, with the names of the command line's flags, and its form on the wire."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping

from .plans import Plan, by_name, by_number, load_plan, plan_by_hand
from .proto import jobs_pb, planner_pb, strategy_pb


def choice(field: str, value: str, enum: object, prefix: str) -> int:
    """The number of `value` in an enum of the wire."""
    names = [name.removeprefix(prefix).lower() for name in enum.keys() if not name.endswith("UNSPECIFIED")]
    if value not in names:
        raise ValueError(f"{field} is one of {', '.join(names)}, not {value!r}")
    return enum.Value(prefix + value.upper())


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Bounds on the search, as docs/cli.md has them; what is left out is the planner's choice."""

    micro_batch: int = 0
    stages: int = 0
    max_stages: int = 0
    no_replicas: bool = False
    per_stage_micro_batch: bool = False
    max_k: int = 0
    recompute: str | None = None  # "allowed", "never", "always"
    max_loops: int = 0
    no_split_backward: bool = False
    sequential: bool = False
    asynchronous: bool = False
    vertical_sync: bool = False
    seed: int = 0  # Of planners that draw random numbers.
    effort: int = 0  # So many times the search that "auto" does by itself.
    split_operators: str | Mapping[str, int] = "auto"  # "off", or numbers of parts by node.

    def to_proto(self) -> "planner_pb.PlanOptions":
        return planner_pb.PlanOptions(
            micro_batch=self.micro_batch,
            num_stages=self.stages,
            max_stages=self.max_stages,
            forbid_replicas=self.no_replicas,
            per_stage_micro_batch=self.per_stage_micro_batch,
            max_k=self.max_k,
            recompute=(
                choice("recompute", self.recompute, planner_pb.RecomputePolicy, "RECOMPUTE_POLICY_")
                if self.recompute
                else 0
            ),
            max_loops=self.max_loops,
            forbid_split_backward=self.no_split_backward,
            sequential=self.sequential,
            asynchronous=self.asynchronous,
            vertical_sync=self.vertical_sync,
            seed=self.seed,
            effort=self.effort,
            **self._splits(),
        )

    def _splits(self) -> dict:
        if isinstance(self.split_operators, str):
            policy = choice("split_operators", self.split_operators, planner_pb.SplitPolicy, "SPLIT_POLICY_")
            return {"split_policy": policy}
        return {"splits": [strategy_pb.OperatorSplit(node=n, parts=p) for n, p in self.split_operators.items()]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningRateSchedule:
    """How the learning rate changes from step to step (docs/training.md)."""

    decay: str = "constant"  # "linear", "cosine", "step"
    warmup_steps: int = 0
    decay_steps: int = 0
    end_factor: float = 0.0
    every: int = 1
    gamma: float = 0.1

    def to_proto(self) -> "jobs_pb.LearningRateSchedule":
        values = dataclasses.asdict(self)
        values["decay"] = choice("decay", self.decay, jobs_pb.LearningRateDecay, "LEARNING_RATE_DECAY_")
        return jobs_pb.LearningRateSchedule(**values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobSettings:
    """What `Client.submit` and `train` take beside model, data and optimizer."""

    evaluation_data: str | os.PathLike | None = None
    evaluate_every: int = 0
    patience: int = 0
    min_delta: float = 0.0
    checkpoint_every: int = 0
    checkpoint_minutes: float = 0.0
    keep: int = 0
    checkpoint_or_fail: bool = False
    resume: str | os.PathLike | None = None
    overwrite: bool = False  # What another job has left in the output directory.
    max_restarts: int = 0
    on_loss: str = "shrink"  # "wait", "fail"
    grow: str = "back"  # To as many devices as it asked for or had, when some become free; "free": on any; "none".
    priority: int = 0  # Jobs of higher priority get devices first; -1000 to 1000.
    preemptible: bool = False  # It may be stopped at a checkpoint for those, to go on later.
    on_nan: str = "stop"  # "skip", "continue"
    precision: str = "graph"  # "bf16", "fp16"
    seed: int = 0  # Of the order of samples and of dropout.
    shuffle: bool = True
    devices: int = 0  # 0: all that are free.
    planner: str = ""
    plan: Plan | str | os.PathLike | None = None  # Runs this plan instead of searching.
    options: PlanOptions = PlanOptions()
    step_timeout: float = 60.0

    def apply(self, spec: "jobs_pb.JobSpec") -> None:
        spec.evaluation_data_path = absolute_data(self.evaluation_data)
        spec.evaluate_every, spec.patience, spec.min_delta = self.evaluate_every, self.patience, self.min_delta
        if self.checkpoint_every or self.checkpoint_minutes or self.keep or self.checkpoint_or_fail:
            spec.checkpoints.every_steps = self.checkpoint_every
            spec.checkpoints.every_ns = round(self.checkpoint_minutes * 60e9)
            spec.checkpoints.keep = self.keep
            spec.checkpoints.fail_job = self.checkpoint_or_fail
        spec.resume_path = absolute(self.resume)
        spec.overwrite = self.overwrite
        spec.max_restarts = self.max_restarts
        spec.on_loss = choice("on_loss", self.on_loss, jobs_pb.LossPolicy, "LOSS_POLICY_")
        spec.grow = choice("grow", self.grow, jobs_pb.GrowthPolicy, "GROWTH_POLICY_")
        spec.priority, spec.preemptible = self.priority, self.preemptible
        spec.on_nan = choice("on_nan", self.on_nan, jobs_pb.NanPolicy, "NAN_POLICY_")
        spec.precision = choice("precision", self.precision, planner_pb.Precision, "PRECISION_")
        spec.seed, spec.no_shuffle = self.seed, not self.shuffle
        spec.num_devices, spec.planner = self.devices, self.planner
        spec.step_timeout_ns = round(self.step_timeout * 1e9)
        spec.plan_options.CopyFrom(self.options.to_proto())
        if self.plan is not None:
            _apply_plan(self.plan, spec)


def _apply_plan(plan: Plan | str | os.PathLike, spec: "jobs_pb.JobSpec") -> None:
    """What the plan is and what it was found for: which devices these are here is the planner's to say."""
    options = spec.plan_options
    if isinstance(plan, Plan):
        options.found_for.extend(device.name for device in plan.devices)
        if plan.preset:  # Its graph may have operators cut that have no names here.
            strategy, devices = by_number(plan)
            spec.strategy.CopyFrom(strategy)
            # As a planner does that knows `found_for`; the last release's would take all that are free.
            spec.num_devices = spec.num_devices or devices
            return
        options.manual = by_name(plan)
        splits = plan.split_operators
    else:
        text = pathlib.Path(plan).read_text() if pathlib.Path(plan).is_file() else ""
        if text.lstrip().startswith('{"response"'):
            _apply_plan(load_plan(plan), spec)
            return
        options.manual, splits, found_for = plan_by_hand(plan)
        options.found_for.extend(found_for)
    if not options.splits:
        options.splits.extend(strategy_pb.OperatorSplit(node=n, parts=p) for n, p in splits.items())
    spec.planner = spec.planner or "manual"


def absolute(path: str | os.PathLike | None) -> str:
    """Workers may run in other directories, so paths travel absolute."""
    return os.path.abspath(path) if path else ""


def weights_place(weights: str | os.PathLike | None) -> str:
    """An artifact's name as it is, a path absolute."""
    return weights if isinstance(weights, str) and weights.startswith("sha256:") else absolute(weights)


def absolute_data(path: str | os.PathLike | None) -> str:
    """Every place of "input=place,...", or the path itself (docs/training.md says what data paths are)."""
    text = os.fspath(path) if path else ""
    parts = [part.partition("=") for part in text.split(",")]
    if os.path.exists(text) or not all(equals and "/" not in name for name, equals, _ in parts):
        return absolute(text)
    return ",".join(f"{name}={os.path.abspath(place)}" for name, _, place in parts)
