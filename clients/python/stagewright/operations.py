"""What clients ask of the planner, without saying how calls are made.

An operation is a generator: it yields calls, is sent their responses (or thrown their errors) and returns a value. So
the blocking and the asynchronous client run the same code.
"""

import dataclasses
import os
import uuid
from collections.abc import Generator, Sequence
from typing import Any

from .errors import ServiceError
from .exporting import Exported
from .graph_file import load_graph
from .history import History
from .jobs import Checkpoint, Job, Worker, checkpoints_of, job_from_proto, state_to_proto, worker_from_proto
from .optimizers import named_optimizer
from .plans import Plan, plan_from_response
from .proto import jobs_pb, pb, planner_pb
from .settings import JobSettings, LearningRateSchedule, PlanOptions, absolute, absolute_data, choice, weights_place

Graph = Exported | pb.Graph | str | os.PathLike
_PAGE = 200
_TIMEOUT = 30.0  # Seconds.


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a method of the services."""

    method: str
    request: Any
    timeout: float


def graph_of(graph: Graph) -> "pb.Graph":
    """What `export` returned, the path of a graph file, or a graph."""
    if isinstance(graph, Exported):
        return graph.graph
    return load_graph(graph) if isinstance(graph, (str, os.PathLike)) else graph


def plan(
    graph: Graph,
    *,
    cluster: str,
    mini_batch: int,
    optimizer: str = "adam",
    precision: str = "graph",
    planner: str = "",
    options: PlanOptions | None = None,
    sequential: bool = True,
    timeout: float = 60.0,
) -> Generator[Call, Any, Plan]:
    """Finds a strategy for a graph on a cluster (`"summit:8"`, docs/clusters.md).

    `graph` is what `export` returned, the path of a graph file, or a graph. `sequential` also looks for the best chain
    of stages, for comparison. `precision` is that of the training: "graph", "bf16" or "fp16". `timeout`, in seconds,
    ends the search. Raises NoPlanError where there is no plan.
    """
    if os.path.exists(cluster):
        raise ValueError(
            f"{cluster}: here a cluster is a preset such as 'cpu:4' (docs/clusters.md); `stagewright plan --cluster` "
            "reads cluster files"
        )
    graph = graph_of(graph)
    kinds = {"sgd": planner_pb.OPTIMIZER_SGD, "momentum": planner_pb.OPTIMIZER_SGD_MOMENTUM}
    problem = planner_pb.PlanningProblem(
        graph=graph,
        cluster_preset=cluster,
        mini_batch=mini_batch,
        optimizer=kinds.get(optimizer, planner_pb.OPTIMIZER_ADAM),
        precision=choice("precision", precision, planner_pb.Precision, "PRECISION_"),
    )
    request = planner_pb.PlanRequest(
        problem=problem,
        planner=planner,
        options=(options or PlanOptions()).to_proto(),
        compare_sequential=sequential,
        timeline=True,
    )
    response = yield Call("Plan", request, timeout)
    found = plan_from_response(response, graph)
    in_order = found.sequential and dataclasses.replace(found.sequential, preset=cluster)
    return dataclasses.replace(found, preset=cluster, sequential=in_order)


def submit(
    graph: Graph,
    *,
    data: str | os.PathLike,
    out: str | os.PathLike,
    mini_batch: int,
    weights: str | os.PathLike | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    optimizer: str | jobs_pb.OptimizerConfig = "adam",
    lr: float | None = None,
    schedule: LearningRateSchedule | None = None,
    clip_norm: float = 0.0,
    name: str | None = None,
    request_id: str | None = None,
    timeout: float = _TIMEOUT,
    **settings: Any,
) -> Generator[Call, Any, Job]:
    """Records a job and returns; planning and training follow.

    Paths are as the workers see them; relative ones are resolved here. `weights` may be an artifact, "sha256:...", and
    may be left out where `graph` is what `export` returned. `settings` are the fields of JobSettings: `checkpoint_every=100`, `plan=...`, `seed=1` and so on.
    Submissions with an equal `request_id` make one job; without one, every call makes its own.
    """
    if (steps is None) == (epochs is None):
        raise ValueError("give either steps or epochs")
    if isinstance(optimizer, str):
        optimizer = named_optimizer(optimizer, lr)
    if weights is None and isinstance(graph, Exported):
        weights = graph.weights_path
    proto = graph_of(graph)
    spec = jobs_pb.JobSpec(
        display_name=name or proto.name,
        graph=proto,
        weights_path=weights_place(weights),
        data_path=absolute_data(data),
        output_path=absolute(out),
        optimizer=optimizer,
        mini_batch=mini_batch,
        steps=steps or 0,
        epochs=epochs or 0,
    )
    spec.optimizer.max_gradient_norm = clip_norm
    if schedule is not None:
        spec.optimizer.schedule.CopyFrom(schedule.to_proto())
    JobSettings(**settings).apply(spec)
    request = jobs_pb.SubmitJobRequest(spec=spec, request_id=request_id or uuid.uuid4().hex)
    response = yield Call("SubmitJob", request, timeout)
    return job_from_proto(response.job)


def jobs(
    *, states: Sequence[str] = (), name: str = "", owner: str = "", tenant: str = "", timeout: float = _TIMEOUT
) -> Generator[Call, Any, list[Job]]:
    """All jobs, newest first, without plans; or those only in one of the states, with `name` in their display names, of the
    owner, of the tenant."""
    request = jobs_pb.ListJobsRequest(
        page_size=_PAGE, states=map(state_to_proto, states), display_name_contains=name, owner=owner, tenant=tenant
    )
    found = []
    while True:
        page = yield Call("ListJobs", request, timeout)
        found += map(job_from_proto, page.jobs)
        request.page_token = page.next_page_token
        if not request.page_token:
            return found


def job(name: str, *, timeout: float = _TIMEOUT) -> Generator[Call, Any, Job]:
    """One job, with its plan."""
    response = yield Call("GetJob", jobs_pb.GetJobRequest(name=name), timeout)
    found = response.job
    if found.HasField("plan") and found.metrics.step > 0:
        try:
            trace = yield Call("GetJobTrace", jobs_pb.GetJobTraceRequest(name=name), timeout)
            found.plan.evaluation.timeline.extend(trace.predicted)
        except ServiceError:
            pass  # The plan is shown without a timeline.
    return job_from_proto(found)


def cancel(name: str, *, timeout: float = _TIMEOUT) -> Generator[Call, Any, Job]:
    """Ends a job."""
    request = jobs_pb.CancelJobRequest(name=name, request_id=uuid.uuid4().hex)
    response = yield Call("CancelJob", request, timeout)
    return job_from_proto(response.job)


def workers(*, timeout: float = _TIMEOUT) -> Generator[Call, Any, list[Worker]]:
    """The workers that are connected now."""
    response = yield Call("ListWorkers", jobs_pb.ListWorkersRequest(), timeout)
    return list(map(worker_from_proto, response.workers))


def checkpoints(name: str, *, timeout: float = _TIMEOUT) -> Generator[Call, Any, list[Checkpoint]]:
    """The whole checkpoints in the job's output directory, oldest first, the final one last. The directory must be
    visible here."""
    response = yield Call("GetJob", jobs_pb.GetJobRequest(name=name), timeout)
    return checkpoints_of(job_from_proto(response.job))


def history(name: str, *, after_step: int = 0, timeout: float = _TIMEOUT) -> Generator[Call, Any, History]:
    """Loss, learning rate and time of a job's steps, also while it runs."""
    response = yield Call("ListJobSteps", jobs_pb.ListJobStepsRequest(name=name, after_step=after_step), timeout)
    return History.from_proto(response)
