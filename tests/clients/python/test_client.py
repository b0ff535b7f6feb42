"""Both clients on a real channel: what they send, what they make of answers, errors and broken streams."""

import asyncio
import dataclasses
import datetime
import inspect
import json

import grpc
import plan_examples
import pytest
from google.protobuf import json_format
from planner_double import PlannerDouble, job, refuse

import stagewright
from stagewright import client as clients
from stagewright import errors
from stagewright.plans import plan_from_proto
from stagewright.proto import event_pb, jobs_pb, logs_pb, planner_pb, strategy_pb, workers_pb


class Blocking:
    """AsyncClient with the calls of Client, so that one test runs on both."""

    def __init__(self, address):
        self.loop = asyncio.new_event_loop()

        async def make():
            return stagewright.AsyncClient(address)

        self.client = self.loop.run_until_complete(make())

    def __getattr__(self, name):
        method = getattr(self.client, name)
        if name not in ("watch", "logs"):
            return lambda *args, **kwargs: self.loop.run_until_complete(method(*args, **kwargs))

        async def collect(*args, **kwargs):
            return [item async for item in method(*args, **kwargs)]

        return lambda *args, **kwargs: self.loop.run_until_complete(collect(*args, **kwargs))

    def close(self):
        self.loop.run_until_complete(self.client.close())
        self.loop.close()


@pytest.fixture(params=[stagewright.Client, Blocking])
def connect(request):
    made = []

    def make(address):
        made.append(request.param(address))
        return made[-1]

    yield make
    for client in made:
        client.close()


def graph_file(tmp_path):
    path = tmp_path / "model.swg"
    stagewright.save_graph(plan_examples.graph(), path)
    return path


def test_plan_returns_stages_by_name_and_the_comparison(connect, tmp_path):
    asked = []

    def answer(request, context):
        asked.append((request, context.time_remaining()))
        response = planner_pb.PlanResponse(termination=planner_pb.TERMINATION_OPTIMAL, lower_bound_ns=4_000_000)
        response.best.CopyFrom(plan_examples.proto())
        response.sequential.CopyFrom(plan_examples.proto(timeline=False))
        response.warnings.append("careful")
        return response

    with PlannerDouble(Plan=answer) as planner:
        plan = connect(planner.address).plan(
            graph_file(tmp_path), cluster="cpu:4", mini_batch=16, optimizer="sgd", precision="bf16",
            options=stagewright.PlanOptions(micro_batch=4, stages=2, recompute="never"), timeout=7,
        )  # fmt: skip
    request, remaining = asked[0]
    assert 5 < remaining < 7.5  # Clocks round.
    assert (request.problem.cluster_preset, request.problem.mini_batch) == ("cpu:4", 16)
    assert (request.problem.optimizer, request.timeline) == (planner_pb.OPTIMIZER_SGD, True)
    assert request.problem.precision == planner_pb.PRECISION_BF16
    assert (request.options.micro_batch, request.options.num_stages) == (4, 2)
    assert request.options.recompute == planner_pb.RECOMPUTE_POLICY_NEVER
    assert [stage.successors for stage in plan.stages] == [(1, 4), (3,), (4,), (4,), ()]
    assert plan.stages[2].modules == ("part.2",)
    assert plan.stages[2].devices == ('right/<&">',)
    assert (plan.termination, plan.lower_bound_seconds, plan.warnings) == ("optimal", 0.004, ("careful",))
    assert (plan.step_seconds, plan.peak_memory_bytes) == (0.005, 2 << 20)
    assert plan.sequential.timeline == ()
    assert {span.kind for span in plan.timeline} == {"forward", "send_activation", "backward", "optimizer_step"}
    assert "5 stages, depth 4, 5 ms a step of 16 samples" in repr(plan)
    assert plan._repr_svg_().startswith("<svg")


def test_a_plan_shows_the_parts_of_operators_that_it_cuts(connect, tmp_path):
    response = planner_pb.PlanResponse(termination=planner_pb.TERMINATION_FEASIBLE)
    response.best.CopyFrom(plan_examples.proto())
    response.best.strategy.splits.add(node="n2", parts=3)
    response.best.strategy.stages[0].nodes.append(5)  # Behind the graph's own: n0 to n4.
    response.best.strategy.stages[3].nodes[:] = [6, 7]
    with PlannerDouble(Plan=lambda *_: response) as planner:
        plan = connect(planner.address).plan(graph_file(tmp_path), cluster="cpu:5", mini_batch=16)
    assert plan.split_operators == {"n2": 3}
    assert [stage.nodes for stage in plan.stages] == [("n0", "part 5"), ("n1",), ("n2",), ("part 6", "part 7"), ("n4",)]
    assert [stage.parts for stage in plan.stages] == [1, 0, 0, 2, 0]
    assert "\n  n2 cut in 3: what that adds to the graph is called part\n" in repr(plan)
    assert "part.0 + 1 part  on left/cpu0" in repr(plan)
    assert "part 6, part 7  on right/cpu1" in repr(plan)
    assert "part.0 + 1 part" in plan._repr_svg_()


def test_parts_go_by_the_names_that_come_with_a_plan(tmp_path):
    response = planner_pb.PlanResponse(termination=planner_pb.TERMINATION_FEASIBLE)
    response.best.CopyFrom(plan_examples.proto())
    response.best.strategy.splits.add(node="n2", parts=2)
    response.best.strategy.stages[0].nodes.append(5)
    graph = plan_examples.graph()
    graph.nodes.add(name="n2.part1of2", module="part.2")
    saved = {"response": json_format.MessageToDict(response), "graph": json_format.MessageToDict(graph)}
    (tmp_path / "saved.json").write_text(json.dumps(saved))
    stage = stagewright.load_plan(tmp_path / "saved.json").stages[0]
    assert (stage.nodes, stage.modules, stage.parts) == (("n0", "n2.part1of2"), ("part.0", "part.2"), 0)


def test_no_plan_is_an_error_with_the_reason(connect, tmp_path):
    answer = planner_pb.PlanResponse(termination=planner_pb.TERMINATION_INFEASIBLE, reason="too large")
    with PlannerDouble(Plan=lambda *_: answer) as planner, pytest.raises(errors.NoPlanError) as error:
        connect(planner.address).plan(graph_file(tmp_path), cluster="cpu:1", mini_batch=16)
    assert str(error.value) == "no plan (infeasible): too large"
    assert error.value.termination == "infeasible"


def test_submit_fills_the_spec_and_repeats_with_one_request_id(connect, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = []

    def answer(request, context):
        asked.append(request)
        if len(asked) == 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "starting")
        return jobs_pb.SubmitJobResponse(job=job(state="PENDING"))

    with PlannerDouble(SubmitJob=answer) as planner:
        made = connect(planner.address).submit(
            graph_file(tmp_path), weights="w.safetensors", data="x=a.npy,target=b.npy", out="out", mini_batch=16,
            steps=3, optimizer="adamw", lr=0.1, clip_norm=1.5, checkpoint_every=2, on_nan="skip", on_loss="wait",
            grow="free",
            shuffle=False, priority=7, preemptible=True, overwrite=True,
            schedule=stagewright.LearningRateSchedule(decay="cosine", warmup_steps=4), precision="bf16",
        )  # fmt: skip
    assert (made.name, made.state, made.ended) == ("jobs/1", "pending", False)
    first, second = asked
    assert first.request_id == second.request_id != ""
    spec = second.spec
    assert spec.graph.name == "two <branches>"
    assert spec.weights_path == str(tmp_path / "w.safetensors")
    assert spec.data_path == f"x={tmp_path / 'a.npy'},target={tmp_path / 'b.npy'}"
    assert spec.output_path == str(tmp_path / "out")
    assert (spec.mini_batch, spec.steps, spec.epochs, spec.no_shuffle) == (16, 3, 0, True)
    assert (spec.optimizer.decoupled_weight_decay, spec.optimizer.max_gradient_norm) == (True, 1.5)
    assert (spec.optimizer.schedule.decay, spec.optimizer.schedule.warmup_steps) == (
        jobs_pb.LEARNING_RATE_DECAY_COSINE,
        4,
    )
    assert (spec.checkpoints.every_steps, spec.on_nan) == (2, jobs_pb.NAN_POLICY_SKIP)
    assert (spec.on_loss, spec.overwrite) == (jobs_pb.LOSS_POLICY_WAIT, True)
    assert spec.grow == jobs_pb.GROWTH_POLICY_FREE
    assert (spec.priority, spec.preemptible) == (7, True)
    assert (spec.precision, spec.step_timeout_ns) == (planner_pb.PRECISION_BF16, 60 * 10**9)
    assert not spec.HasField("strategy")


def plan_files(tmp_path):
    """The same two-stage plan in the three forms of files."""
    by_hand = {"micro_batch": 4, "stages": [{"nodes": ["n0"], "devices": [0]}, {"nodes": ["*"], "devices": [1]}]}
    shown = {"termination": "feasible", "model": "m", "kind": "graph", "batch_statistics": "micro", "stages": [
        {"nodes": ["n0"], "devices": ["a"], "micro_batch_size": 4, "k": 1, "memory_bytes": 3}],
        "devices": [{"device": "a", "busy_seconds": 0.1}, {"device": "b", "busy_seconds": 0}]}  # fmt: skip
    response = planner_pb.PlanResponse(best=plan_examples.proto())
    saved = {"response": json_format.MessageToDict(response), "graph": json_format.MessageToDict(plan_examples.graph())}
    for name, document in (("hand", by_hand), ("shown", shown), ("saved", saved)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    return by_hand


def test_plans_and_plan_files_are_run(connect, tmp_path):
    by_hand = plan_files(tmp_path)
    asked = []

    def answer(request, context):
        asked.append(request.spec)
        return jobs_pb.SubmitJobResponse(job=job())

    with PlannerDouble(SubmitJob=answer) as planner:
        client = connect(planner.address)
        for_preset = dataclasses.replace(plan_examples.plan(), preset="cpu:5")
        files = [tmp_path / f"{name}.json" for name in ("saved", "hand", "shown")]
        for plan in (for_preset, plan_examples.plan(), *files):
            client.submit(graph_file(tmp_path), data="d", out="o", mini_batch=16, steps=1, lr=0.1, plan=plan)
    numbered, given, saved, hand, shown = asked
    assert numbered.strategy == plan_examples.proto().strategy
    assert (numbered.num_devices, numbered.planner, numbered.plan_options.manual) == (5, "", "")
    assert list(numbered.plan_options.found_for) == plan_examples.DEVICES
    assert given == saved
    assert list(given.plan_options.found_for) == plan_examples.DEVICES
    assert (given.HasField("strategy"), given.num_devices, given.planner) == (False, 0, "manual")
    named = json.loads(given.plan_options.manual)
    assert [stage["devices"] for stage in named["stages"]] == [[device] for device in plan_examples.DEVICES]
    assert named["stages"][1] == {
        "nodes": ["n1"], "devices": ["left/cpu1"], "micro_batch": 8, "k": 1, "in_flight": 16, "recompute": False,
    }  # fmt: skip
    assert (named["kind"], named["asynchronous"]) == ("graph", False)
    assert (json.loads(hand.plan_options.manual), hand.planner) == (by_hand, "manual")
    assert not hand.plan_options.found_for
    stage = {"nodes": ["n0"], "devices": ["a"], "micro_batch": 4, "k": 1}
    assert json.loads(shown.plan_options.manual) == {"kind": "graph", "batch_statistics": "micro", "stages": [stage]}
    assert list(shown.plan_options.found_for) == ["a", "b"]


def test_a_plan_for_a_preset_needs_no_planner_that_knows_what_it_was_found_for(connect, tmp_path):
    proto = plan_examples.proto()
    for stage, device in zip(proto.strategy.stages, (3, 1, 6, 3, 1), strict=True):
        stage.devices[:] = [device]
    for device in (1, 3, 6):
        proto.strategy.orders.add(device=device)
    asked = []

    def answer(request, context):
        asked.append(request.spec)
        return jobs_pb.SubmitJobResponse(job=job())

    plan = dataclasses.replace(plan_from_proto(proto, plan_examples.graph()), preset="cpu:8")
    with PlannerDouble(SubmitJob=answer) as planner:
        client = connect(planner.address)
        for devices in (0, 6):
            client.submit(
                graph_file(tmp_path), data="d", out="o", mini_batch=16, steps=1, lr=0.1, plan=plan, devices=devices
            )
    # The first three that are free, whoever numbers them; all that are free without a number of devices.
    assert [spec.num_devices for spec in asked] == [3, 6]
    assert [list(stage.devices) for stage in asked[0].strategy.stages] == [[1], [0], [2], [1], [0]]
    assert [order.device for order in asked[0].strategy.orders] == [0, 1, 2]
    assert [list(stage.devices) for stage in plan.proto.strategy.stages] == [[3], [1], [6], [3], [1]]


def test_a_plan_by_name_says_all_that_its_strategy_does(connect, tmp_path):
    proto = plan_examples.proto()
    strategy = proto.strategy
    strategy.batch_statistics, strategy.bucket_bytes = strategy_pb.BATCH_STATISTICS_SYNCHRONISED, 1 << 20
    strategy.optimizer_sharding = strategy_pb.OPTIMIZER_SHARDING_STATES
    strategy.splits.add(node="n2", parts=4)
    order = strategy.orders.add(device=1)
    for number, kind in enumerate(strategy_pb.Pass.values()[1:]):
        order.steps.add(**{"stage": 1, "pass": kind, "micro_batch": number})
    asked = []

    def answer(request, context):
        asked.append(request.spec)
        return jobs_pb.SubmitJobResponse(job=job())

    plan = plan_from_proto(proto, plan_examples.graph())
    with PlannerDouble(SubmitJob=answer) as planner:
        connect(planner.address).submit(
            graph_file(tmp_path), data="d", out="o", mini_batch=16, steps=1, lr=0.1, plan=plan
        )
    named = json.loads(asked[0].plan_options.manual)
    assert (named["batch_statistics"], named["bucket_bytes"]) == ("synchronised", 1 << 20)
    assert named["optimizer_sharding"] == "states"
    assert named["orders"] == ["device left/cpu1: F1.0 R1.1 B1.2 I1.3 W1.4"]
    assert [(split.node, split.parts) for split in asked[0].plan_options.splits] == [("n2", 4)]


def test_saved_plans_are_read(tmp_path):
    plan_files(tmp_path)
    assert stagewright.load_plan(tmp_path / "saved.json").stages == plan_examples.plan().stages
    for name, says in (("hand.json", "not a plan that"), ("none.json", "No such file")):
        with pytest.raises(errors.PlanFileError, match=says):
            stagewright.load_plan(tmp_path / name)


def test_jobs_are_listed_over_all_pages(connect):
    def answer(request, context):
        page = int(request.page_token or 0)
        token = str(page + 1) if page < 2 else ""
        return jobs_pb.ListJobsResponse(jobs=[job(f"jobs/{9 - page}")], next_page_token=token)

    with PlannerDouble(ListJobs=answer) as planner:
        assert [found.name for found in connect(planner.address).jobs()] == ["jobs/9", "jobs/8", "jobs/7"]


def test_a_proxy_of_the_environment_is_not_asked_on_this_machine(connect, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with PlannerDouble(ListJobs=lambda *_: jobs_pb.ListJobsResponse(jobs=[job("jobs/1")])) as planner:
        assert [found.name for found in connect(planner.address).jobs()] == ["jobs/1"]


def test_a_token_that_no_header_takes_is_refused(tmp_path):
    token = tmp_path / "token"
    token.write_bytes(b"token\n")
    assert stagewright.Security(token_file=token).metadata() == (("authorization", "Bearer token"),)
    for wrong in ("t\u00f6ken".encode(), b"to\x01ken", b"\xff"):
        token.write_bytes(wrong)
        with pytest.raises(errors.RefusedError, match="token_file .*token: .*printable ASCII"):
            stagewright.Security(token_file=token).metadata()


def test_some_jobs_are_listed(connect):
    asked = []

    def answer(request, context):
        asked.append(request)
        found = job("jobs/1")
        found.spec.owner, found.spec.tenant = "alice", "vision"
        return jobs_pb.ListJobsResponse(jobs=[found])

    with PlannerDouble(ListJobs=answer) as planner:
        client = connect(planner.address)
        (found,) = client.jobs(states=["running", "failed"], name="net", owner="alice", tenant="vision")
        with pytest.raises(ValueError, match="no state 'ended': expected one of pending, "):
            client.jobs(states=["ended"])
    assert (found.owner, found.tenant) == ("alice", "vision")
    (request,) = asked
    assert list(request.states) == [event_pb.JOB_STATE_RUNNING, event_pb.JOB_STATE_FAILED]
    assert (request.display_name_contains, request.owner, request.tenant) == ("net", "alice", "vision")


def test_workers_and_history_are_values(connect):
    worker = workers_pb.Worker(name="w", version="1", address="host")
    worker.devices.add(name="w/cpu0", kind="cpu", memory_bytes=5, job="jobs/1")
    worker.last_heartbeat_time.FromSeconds(60)
    steps = [jobs_pb.JobStep(step=s, loss=1 / s, learning_rate=0.1, step_ns=10**9, skipped=s == 2) for s in (1, 2, 4)]
    history = jobs_pb.ListJobStepsResponse(steps=steps, stride=2)
    with PlannerDouble(
        ListWorkers=lambda *_: jobs_pb.ListWorkersResponse(workers=[worker]), ListJobSteps=lambda *_: history
    ) as planner:
        client = connect(planner.address)
        (found,) = client.workers()
        assert (found.devices[0].job, found.last_heartbeat.timestamp()) == ("jobs/1", 60)
        found = client.history("jobs/1")
    assert found.losses == [1, 0.5, 0.25]
    assert found[1] == stagewright.Step(2, 0.5, 0.1, 1.0, True)
    assert found.as_dict()["step"] == [1, 2, 4]
    assert (len(found), found.stride, found[1:].losses) == (3, 2, [0.5, 0.25])
    assert repr(found) == "History: steps 1 to 4, every 2nd kept, loss 1 -> 0.25"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.NOT_FOUND, errors.NotFoundError),
        (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidError),
        (grpc.StatusCode.FAILED_PRECONDITION, errors.ServiceError),
    ],
)
def test_errors_have_the_planner_s_own_line(connect, code, error):
    def answer(request, context):
        context.abort(code, "spec.steps must be positive\nmore")

    with PlannerDouble(GetJob=answer) as planner, pytest.raises(error) as raised:
        connect(planner.address).job("jobs/1")
    assert str(raised.value) == "spec.steps must be positive"
    assert raised.value.code == code.name
    assert isinstance(raised.value, stagewright.StagewrightError)


def test_nobody_at_the_address(connect):
    with PlannerDouble() as planner:
        address = planner.address
    with pytest.raises(errors.UnreachableError, match=rf"^no planner answers at {address} \(.*\); is it started\?$"):
        connect(address).workers()
    with pytest.raises(errors.UnreachableError):
        list(connect(address).watch("jobs/1"))


def test_a_planner_that_cannot_do_it_now_is_not_taken_for_none(connect):
    said = "jobs are neither taken nor cancelled until the state can be written again"

    def answer(request, context):
        refuse(context, grpc.StatusCode.UNAVAILABLE, said, 5)

    with PlannerDouble(GetJob=answer) as planner, pytest.raises(errors.UnavailableError) as raised:
        connect(planner.address).job("jobs/1")
    assert str(raised.value) == f"{said} (retry in 5 s)"
    assert (raised.value.code, raised.value.retry_after) == ("UNAVAILABLE", 5)
    assert not isinstance(raised.value, errors.UnreachableError)


def test_errors_say_when_a_call_may_succeed(connect):
    def answer(request, context):
        refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "the planning queue is full", 2.5)

    with PlannerDouble(GetJob=answer) as planner, pytest.raises(errors.ServiceError) as raised:
        connect(planner.address).job("jobs/1")
    assert str(raised.value) == "the planning queue is full (retry in 2.5 s)"
    assert (raised.value.code, raised.value.retry_after) == ("RESOURCE_EXHAUSTED", 2.5)


def test_calls_have_deadlines(connect):
    def answer(request, context):
        while context.is_active():
            pass

    with PlannerDouble(GetJob=answer) as planner, pytest.raises(errors.DeadlineError):
        connect(planner.address).job("jobs/1", timeout=0.2)


def test_watch_ends_with_the_job_and_goes_on_after_the_planner_was_away(connect, monkeypatch):
    monkeypatch.setattr(clients, "_PAUSE", 0.05)
    after = []

    def answer(request, context):
        after.append(request.after_version)
        if len(after) == 1:
            yield jobs_pb.WatchJobResponse(job=job(step=1, version=3))
            context.abort(grpc.StatusCode.UNAVAILABLE, "the planner is shutting down")
        if len(after) == 2:
            context.abort(grpc.StatusCode.UNAVAILABLE, "still starting")
        yield jobs_pb.WatchJobResponse(job=job(step=2, version=4))
        yield jobs_pb.WatchJobResponse(job=job(state="SUCCEEDED", step=2, version=5))

    with PlannerDouble(WatchJob=answer) as planner:
        seen = list(connect(planner.address).watch("jobs/1"))
    assert [(found.step, found.state) for found in seen] == [(1, "running"), (2, "running"), (2, "succeeded")]
    # gRPC may repeat what was refused before any message; the version is the one seen in any case.
    assert after[0] == 0
    assert set(after[1:]) == {3}


def test_watch_begins_again_at_a_planner_with_an_older_state(connect, monkeypatch):
    monkeypatch.setattr(clients, "_PAUSE", 0.05)
    after = []

    def answer(request, context):
        after.append(request.after_version)
        if len(after) == 1:
            yield jobs_pb.WatchJobResponse(job=job(step=9, version=8))
            context.abort(grpc.StatusCode.UNAVAILABLE, "the planner is shutting down")
        if request.after_version > 5:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, "jobs/1 is at version 5")
        yield jobs_pb.WatchJobResponse(job=job(state="SUCCEEDED", step=10, version=5))

    with PlannerDouble(WatchJob=answer) as planner:
        seen = list(connect(planner.address).watch("jobs/1"))
    assert [(found.step, found.state) for found in seen] == [(9, "running"), (10, "succeeded")]
    assert after == [0, 8, 0]


def test_watch_does_not_wait_for_ever(connect, monkeypatch):
    monkeypatch.setattr(clients, "_PAUSE", 0.05)
    monkeypatch.setattr(clients, "PATIENCE", 0.3)

    def answer(request, context):
        if request.after_version == 0:
            yield jobs_pb.WatchJobResponse(job=job(version=3))
        refuse(context, grpc.StatusCode.UNAVAILABLE, "the planner is shutting down", 1)

    with PlannerDouble(WatchJob=answer) as planner, pytest.raises(errors.UnavailableError, match="is shutting down"):
        list(connect(planner.address).watch("jobs/1"))
    assert planner.heard.count("WatchJob") > 2


def log_line(position: int, worker: str = "", **fields: str) -> "logs_pb.JobLogLine":
    made = logs_pb.JobLogLine(position=position, time_ns=position * 10**9, message=f"line {position}", worker=worker)
    made.fields.extend(logs_pb.LogField(key=key, value=value) for key, value in fields.items())
    return made


def test_lines_of_a_log_are_chosen_as_on_the_command_line(connect):
    lines = [log_line(1), log_line(2, "w0", step="7"), log_line(3, "w1"), log_line(4, "w0")]
    lines[1].level = logs_pb.LOG_LEVEL_WARNING
    log = logs_pb.ListJobLogsResponse(lines=lines, state=event_pb.JOB_STATE_RUNNING)
    with PlannerDouble(ListJobLogs=lambda *_: log) as planner:
        client = connect(planner.address)

        def messages(**chosen):
            return [line.message for line in client.logs("jobs/1", **chosen)]

        at = datetime.datetime.fromtimestamp(2, datetime.timezone.utc)
        assert messages() == ["line 1", "line 2", "line 3", "line 4"]
        assert messages(worker="w0") == ["line 2", "line 4"]
        assert messages(since=at) == ["line 2", "line 3", "line 4"]
        assert messages(since=datetime.timedelta(hours=1)) == []
        assert messages(tail=1) == ["line 4"]
        assert messages(tail=0) == []
        (line, *_) = client.logs("jobs/1", worker="w0")
        assert (line.level, line.fields, line.time) == ("warning", {"step": "7"}, at)
        assert str(line) == "1970-01-01T00:00:02.000+00:00 warning line 2 worker=w0 step=7"
        with pytest.raises(ValueError, match="tail: -1"):
            messages(tail=-1)


def test_a_log_is_followed_over_a_planner_that_goes_away_until_the_job_has_ended(connect, monkeypatch):
    monkeypatch.setattr(clients, "ASK_EVERY", 0.0)
    running, ended = event_pb.JOB_STATE_RUNNING, event_pb.JOB_STATE_SUCCEEDED
    script = [
        dict(lines=[log_line(1), log_line(2)], state=running),
        grpc.StatusCode.CANCELLED,
        dict(lines=[log_line(3)], state=ended),
        dict(lines=[log_line(4)], state=ended, dropped=5),
    ]
    after = []

    def answer(request, context):
        after.append(request.after_position)
        step = script[len(after) - 1]
        if isinstance(step, grpc.StatusCode):
            context.abort(step, "gone")
        return logs_pb.ListJobLogsResponse(**step)

    with PlannerDouble(ListJobLogs=answer) as planner, pytest.warns(UserWarning, match="jobs/1: 5 lines"):
        found = list(connect(planner.address).logs("jobs/1", tail=1, follow=True))
    assert [line.message for line in found] == ["line 2", "line 3", "line 4"]
    assert after == [0, 2, 2, 3]


def test_a_log_that_there_is_not_is_an_error(connect):
    def answer(request, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "there is no jobs/9")

    with PlannerDouble(ListJobLogs=answer) as planner, pytest.raises(errors.NotFoundError, match="no jobs/9"):
        list(connect(planner.address).logs("jobs/9", follow=True))


def test_both_clients_have_the_same_calls_and_their_parameters_are_shown():
    for name in ("plan", "submit", "jobs", "job", "cancel", "workers", "checkpoints", "history"):
        blocking, awaiting = getattr(stagewright.Client, name), getattr(stagewright.AsyncClient, name)
        assert inspect.signature(blocking) == inspect.signature(awaiting)
        assert blocking.__doc__
        assert blocking.__doc__ == awaiting.__doc__
        assert inspect.iscoroutinefunction(awaiting)
    parameters = list(inspect.signature(stagewright.Client("127.0.0.1:1").plan).parameters)
    assert parameters[:3] == ["graph", "cluster", "mini_batch"]


def test_the_address_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("STAGEWRIGHT_PLANNER", raising=False)
    assert stagewright.Client().address == "127.0.0.1:7070"
    monkeypatch.setenv("STAGEWRIGHT_PLANNER", "127.0.0.1:1")
    assert stagewright.Client().address == "127.0.0.1:1"
    assert stagewright.Client("localhost:2").address == "localhost:2"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"steps": None}, "either steps or epochs"),
        ({"epochs": 1}, "either steps or epochs"),
        ({"on_nan": "ignore"}, "on_nan is one of stop, skip, continue, not 'ignore'"),
        ({"checkpoint_evry": 3}, "checkpoint_evry"),
        ({"graph": "none.swg"}, "none.swg: No such file"),
        ({"plan": "none.json"}, "none.json: No such file"),
    ],
)
def test_wrong_arguments_are_told_before_any_call(connect, tmp_path, changes, says):
    arguments = dict(graph=graph_file(tmp_path), data="d", out="o", mini_batch=4, steps=1, lr=0.1) | changes
    with PlannerDouble() as planner:
        with pytest.raises((ValueError, TypeError, stagewright.StagewrightError), match=says):
            connect(planner.address).submit(**arguments)
        assert planner.heard == []
