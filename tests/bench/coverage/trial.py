"""One entry of the zoo, all the way: export, plans, training on workers, comparison with PyTorch."""

import dataclasses
import inspect
import pathlib
import time
import warnings

import reference
import stagewright
import system as command_line
import torch
from compare import compare_losses, compare_states
from reference import STEPS, Trained
from safetensors.torch import load_file
from torch.utils import _pytree as pytree
from zoo import MINI_BATCH, Entry, Task

RIGHT, RIGHTLY_REFUSED, REFUSED = "right", "rightly refused", "refused"
PLAN_FAILS, JOB_FAILS, CHECKPOINT_FAILS, DIFFERS = "plan fails", "job fails", "checkpoint fails", "differs"
BROKEN = "broken entry"
# Of entries that were not tried any further.
EXPORTED = "exported"
# From the best to the worst: an entry is as good as its worst job.
ORDER = [EXPORTED, RIGHT, RIGHTLY_REFUSED, REFUSED, CHECKPOINT_FAILS, PLAN_FAILS, JOB_FAILS, DIFFERS, BROKEN]
# Why a forced plan cannot be: the entry is not judged by it.
IMPOSSIBLE = ("but the graph has only",)


@dataclasses.dataclass
class Result:
    """What became of an entry; written as JSON."""

    name: str
    source: str
    verdict: str = EXPORTED
    reason: str = ""
    export_seconds: float = 0.0
    nodes: int = 0
    # By number of devices: stages, depth, and how much longer the best sequence of stages takes.
    plans: dict = dataclasses.field(default_factory=dict)
    # By name of the plan: number of stages, largest error, and what is wrong.
    jobs: dict = dataclasses.field(default_factory=dict)
    warnings: list = dataclasses.field(default_factory=list)
    largest_error: float = 0.0

    def judge(self, verdict: str, reason: str) -> None:
        if ORDER.index(verdict) > ORDER.index(self.verdict):
            self.verdict, self.reason = verdict, reason


# Jobs by name: devices, and the micro-batch of a forced plan, 0 for the planner's own. Beside them there is UNEVEN.
JOBS = {"own 2": (2, 0), "forced 2": (2, 2), "own 3": (3, 0), "forced 3": (3, 4)}
UNEVEN = "uneven"


@dataclasses.dataclass(frozen=True)
class Options:
    """How much is tried of an entry. Without jobs and plans it is only exported."""

    planned: tuple[int, ...] = (2, 3, 4)
    jobs: tuple[str, ...] = (*JOBS, UNEVEN)
    time_limit: float = 20.0


EXPORT_ONLY = Options(planned=(), jobs=())
QUICK = Options(planned=(2,), jobs=("own 2", "forced 2"))


def attempt(entry: Entry, system: "command_line.System | None", folder: pathlib.Path, options: Options) -> Result:
    """Writes into `folder`; without jobs, no system is needed."""
    result = Result(entry.name, entry.source)
    try:
        expected = reference.train(entry.make())
    except Exception as error:  # The entry itself is at fault.
        result.judge(BROKEN, f"PyTorch alone fails: {_line(error)}")
        return result
    _go_on(entry, system, folder, expected, options, result)
    if result.verdict == RIGHTLY_REFUSED and entry.whole and not result.jobs:
        _with_whole_batch(entry, system, folder, expected, options, result)
    return result


def _go_on(entry, system, folder, expected: Trained, options: Options, result: Result, **export_options) -> None:
    files = _export(entry, folder, result, **export_options)
    if files is None:
        return
    for devices in options.planned:
        _plan(entry, files, devices, options.time_limit, result)
    if options.jobs and result.verdict == EXPORTED:
        result.judge(RIGHT, "")
        _train_all(entry, system, files, expected, options, result)


def _with_whole_batch(entry, system, folder, expected: Trained, options: Options, result: Result) -> None:
    """What the refusal of a model whose samples meet leaves open: asked for, the mini-batch stays whole."""
    second = Result(entry.name, entry.source)
    _go_on(entry, system, folder, expected, options, second, whole_batch=True)
    result.nodes, result.plans, result.jobs = second.nodes, second.plans, second.jobs
    result.warnings, result.largest_error = second.warnings, second.largest_error
    if second.verdict in (EXPORTED, RIGHT):
        result.reason += f" With whole_batch=True: {second.verdict}."
    elif second.verdict == RIGHTLY_REFUSED:
        result.reason += f" With whole_batch=True: {second.reason}"
    else:
        result.judge(second.verdict, f"with whole_batch=True: {second.reason}")


def _export(entry: Entry, folder: pathlib.Path, result: Result, **options) -> command_line.Files | None:
    """As a user would: a mini-batch as example, all else as it comes."""
    task = entry.make()
    inputs, targets = (task.part(tree, 0, MINI_BATCH) for tree in (task.inputs, task.targets))
    arguments = {"loss": task.loss, "targets": targets, **task.options, **options, "path": folder / "model.swg"}
    arguments = {name: value for name, value in arguments.items() if value is not None}
    start = time.monotonic()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            exported = stagewright.export(task.model, inputs, **arguments)
    except Exception as error:
        result.export_seconds = time.monotonic() - start
        known = isinstance(error, stagewright.ExportError)
        refused = RIGHTLY_REFUSED if known and entry.refusal else REFUSED
        result.judge(refused, _line(error) if known else f"unexpected {_line(error)}")
        return None
    result.export_seconds = time.monotonic() - start
    result.nodes = len(exported.graph.nodes)
    own = (str(pathlib.Path(stagewright.__file__).parent), str(pathlib.Path(__file__).parent))
    result.warnings = [str(w.message) for w in caught if str(w.filename).startswith(own)]
    data = {name: tensor for name, tensor in _named(task) if name in {i.name for i in exported.graph.inputs}}
    stagewright.save_dataset(folder / "data.safetensors", **data)
    return command_line.Files(exported.path, exported.weights_path, folder / "data.safetensors", folder)


def _named(task: Task) -> list[tuple[str, torch.Tensor]]:
    """The samples as the graph's inputs are named, the batch dimension first."""
    if isinstance(task.inputs, dict):
        arguments = list(task.inputs.items())
    else:
        values = task.inputs if isinstance(task.inputs, (tuple, list)) else (task.inputs,)
        forward = getattr(task.model, "_orig_mod", task.model).forward
        arguments = list(zip(inspect.signature(forward).parameters, values, strict=False))
    named = []
    for name, value in [*arguments, ("target", task.targets)]:
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            if isinstance(leaf, torch.Tensor):
                keys = [str(getattr(key, "key", getattr(key, "idx", key))) for key in path]
                named.append((".".join([name, *keys]), leaf.movedim(task.batch_dim, 0).contiguous()))
    return named


def _plan(entry: Entry, files: command_line.Files, devices: int, time_limit: float, result: Result) -> None:
    answer = command_line.plan(files, devices, time_limit)
    if answer.error:
        refused = RIGHTLY_REFUSED if entry.refusal else PLAN_FAILS
        result.judge(refused, f"plan for {devices} devices: {answer.error}")
        return
    value = answer.value.get("strategy", answer.value)
    sequential = answer.value.get("sequential") or {}
    gain = sequential.get("iteration_seconds", value["iteration_seconds"]) / value["iteration_seconds"]
    result.plans[devices] = {"stages": len(value["stages"]), "depth": value["depth"], "gain": gain}


def _train_all(entry, system, files, expected: Trained, options: Options, result: Result) -> None:
    if entry.random:
        expected = _on_one_device(entry, system, files, expected, result)
        if expected is None:
            return
    for name in options.jobs:
        if name == UNEVEN:
            _train_uneven(entry, system, files, expected, result)
            continue
        devices, micro_batch = JOBS[name]
        forced = dict(stages=devices, micro_batch=MINI_BATCH if entry.whole else micro_batch, no_replicas=True)
        _train(entry, system, files, expected, name, devices, result, **(forced if micro_batch else {}))


def _train_uneven(entry, system, files, expected: Trained, result: Result) -> None:
    if entry.whole:
        return
    path = command_line.uneven_plan(system, files)
    if path is None:
        result.jobs[UNEVEN] = {"stages": 0, "error": 0.0, "remark": "n/a: the graph has only one operator"}
    else:
        _train(entry, system, files, expected, UNEVEN, 3, result, plan_file=path)


def _on_one_device(entry, system, files, eager: Trained, result: Result) -> Trained | None:
    """What the job on one device makes, which PyTorch's random numbers cannot tell."""
    job = command_line.train(system, files, 1, stages=1, micro_batch=MINI_BATCH)
    if job.error:
        result.judge(JOB_FAILS if job.planned else PLAN_FAILS, f"one device: {job.error}")
        return None
    states = {0: eager.states[0], STEPS: _loaded(entry, job.checkpoint, "one device", result)}
    if job.on_the_way is not None:
        states[command_line.SAVED_STEP] = _loaded(entry, job.on_the_way, "one device", result)
    return Trained(job.losses, states)


def _train(entry, system, files, expected: Trained, plan: str, devices: int, result: Result, **flags) -> None:
    job = command_line.train(system, files, devices, **flags)
    result.warnings += [text for text in job.warnings if text not in result.warnings]
    if job.error:
        _judge_failed(entry, job, plan, flags, result)
        return
    difference = compare_losses(job.losses, expected.losses)
    checkpoints = {STEPS: job.checkpoint, command_line.SAVED_STEP: job.on_the_way}
    for step, path in checkpoints.items():
        if path is None:
            result.judge(CHECKPOINT_FAILS, f"{plan}: there is no checkpoint of step {step}")
        elif step in expected.states:
            found = _loaded(entry, path, plan, result)
            if found is not None:
                difference.add(compare_states(found, expected.states[step], expected.states[0]))
    remark = "" if difference.largest <= entry.tolerance else str(difference)
    result.jobs[plan] = {"stages": job.stages, "losses": job.losses, "error": difference.largest, "remark": remark}
    result.largest_error = max(result.largest_error, difference.largest)
    if remark:
        result.judge(DIFFERS, f"{plan}, {job.stages} stages: {remark}")


def _judge_failed(entry: Entry, job: command_line.Job, plan: str, flags: dict, result: Result) -> None:
    """A forced plan that cannot be says nothing against the entry; all else does."""
    by_hand = "plan_file" in flags and not job.planned
    if by_hand or (flags and any(text in job.error for text in IMPOSSIBLE)):
        result.jobs[plan] = {"stages": 0, "error": 0.0, "remark": f"n/a: {job.error}"}
        return
    result.jobs[plan] = {"stages": 0, "error": 0.0, "remark": job.error}
    if entry.refusal and not job.planned:
        result.judge(RIGHTLY_REFUSED, f"{plan}: {job.error}")
    else:
        result.judge(JOB_FAILS if job.planned else PLAN_FAILS, f"{plan}: {job.error}")


def _loaded(entry: Entry, path: pathlib.Path, plan: str, result: Result) -> dict | None:
    """The state of a fresh module that has loaded the checkpoint, strictly if that works."""
    model = entry.make().model
    inner = getattr(model, "_orig_mod", model)
    place = "the checkpoint on the way" if path.is_dir() else "the final checkpoint"
    try:
        weights = stagewright.read_checkpoint(path).weights if path.is_dir() else load_file(path)
        inner.load_state_dict(weights, strict=True)
    except (RuntimeError, stagewright.StagewrightError) as error:
        result.judge(CHECKPOINT_FAILS, f"{plan}: {place} does not load: {_line(error)}")
        try:
            stagewright.load_checkpoint(inner, path)
        except stagewright.StagewrightError as second:
            result.judge(CHECKPOINT_FAILS, f"{plan}: {place}: {second}")
            return None
    return reference.state_of(model)


def _line(error: BaseException) -> str:
    kind = "" if isinstance(error, stagewright.StagewrightError) else f"{type(error).__name__}: "
    return (kind + " ".join(str(error).split()))[:600]
