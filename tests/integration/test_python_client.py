"""The Python client against a real planner and two workers: one call trains, and every figure agrees with the CLI's."""

import asyncio
import csv
import io
import json
import re
import time

import pytest
import torch
from processes import MODELS, Processes, wait_for
from safetensors.torch import load_file
from torch import nn

import stagewright

torch.manual_seed(0)
X, Y = torch.randn(96, 12), torch.randint(3, (96,))


@pytest.fixture(scope="module")
def system():
    with Processes(workers=2) as running:
        yield running


@pytest.fixture
def client(system):
    with stagewright.Client(system.address) as connected:
        yield connected


class Towers(nn.Module):
    """Two branches, so that the plan may be a graph; batch statistics, so that there are buffers to bring back."""

    def __init__(self):
        super().__init__()
        # A bias before batch normalisation has a gradient of rounding errors only, which Adam makes large.
        self.left = nn.Sequential(nn.Linear(12, 16, bias=False), nn.BatchNorm1d(16), nn.Tanh())
        self.right = nn.Sequential(nn.Linear(12, 16), nn.Tanh())
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(torch.cat([self.left(x), self.right(x)], 1))


def groups(model):
    """Decay on the head's weight only, and another rate for biases."""
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    rest = [p for name, p in model.named_parameters() if not name.endswith("bias")]
    return [{"params": rest}, {"params": biases, "lr": 0.002, "weight_decay": 0.0}]


def two_devices(system):
    """A plan file. One micro-batch and no replicas: batch statistics are those of plain PyTorch."""
    path = system.path / "towers.json"
    stages = [{"nodes": ["module:left"], "devices": [0]}, {"nodes": ["*"], "devices": [1]}]
    path.write_text(json.dumps({"micro_batch": 32, "stages": stages}))
    return path


def train(system, model, **changes):
    arguments = dict(
        loss=nn.CrossEntropyLoss(), mini_batch=32, epochs=2, address=system.address, shuffle=False, progress=False,
        optimizer=torch.optim.AdamW(groups(model), lr=0.01, weight_decay=0.1), plan=two_devices(system),
    )  # fmt: skip
    return stagewright.train(model, {"x": X, "target": Y}, **(arguments | changes))


def plain_pytorch(model, epochs=2):
    optimizer = torch.optim.AdamW(groups(model), lr=0.01, weight_decay=0.1)
    losses = []
    for _ in range(epochs):
        for x, y in zip(X.split(32), Y.split(32), strict=True):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


@pytest.mark.filterwarnings("ignore:.*batch normalisation")
def test_train_is_the_loop_of_plain_pytorch(system, client):
    torch.manual_seed(1)
    model, reference = Towers(), Towers()
    reference.load_state_dict(model.state_dict())
    result = train(system, model, directory=system.path / "plain")
    losses = plain_pytorch(reference)
    assert result.history.losses == pytest.approx(losses, rel=1e-5)
    assert [step.step for step in result.history] == [1, 2, 3, 4, 5, 6]
    assert result.history.as_dict()["learning_rate"] == [0.01] * 6
    assert all(step.seconds > 0 for step in result.history)
    expected = reference.state_dict()
    for name, tensor in model.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
    stored = load_file(result.checkpoint)
    assert all(torch.equal(tensor, stored[name]) for name, tensor in model.state_dict().items())
    assert {device.split("/")[0] for device in result.job.devices} == {"w0", "w1"}
    svg = result.plan._repr_svg_()
    assert all(device in svg for device in result.job.devices)
    assert "forward of stage 1" in svg
    assert [c.final for c in client.checkpoints(result.job.name)] == [True]


@pytest.mark.filterwarnings("ignore:.*batch normalisation")
def test_history_equals_what_the_command_line_prints(system, client):
    schedule = stagewright.LearningRateSchedule(decay="linear", warmup_steps=2)
    result = train(system, Towers(), directory=system.path / "losses", schedule=schedule)
    shown = system.json("jobs", "losses", result.job.name)
    assert shown["stride"] == 1
    for line, step in zip(shown["steps"], result.history, strict=True):
        assert (line["step"], line["skipped"]) == (step.step, step.skipped)
        found = (line["loss"], line["learning_rate"], line["step_seconds"])
        assert found == pytest.approx((step.loss, step.learning_rate, step.seconds), rel=1e-12)
    assert result.history.as_dict()["learning_rate"] == pytest.approx([0.005, 0.01, 0.01, 0.0075, 0.005, 0.0025])
    rows = list(csv.DictReader(io.StringIO(system.cli("jobs", "losses", result.job.name, "-o", "csv").stdout)))
    assert [(int(row["step"]), float(row["loss"])) for row in rows] == [(s.step, s.loss) for s in result.history]
    table = system.cli("jobs", "losses", result.job.name).stdout.splitlines()
    assert re.match(r"step +loss +learning rate +time$", table[0].strip())
    assert len(table) == 7
    assert client.history(result.job.name, after_step=4).losses == result.history.losses[4:]


def long_job(client, system, out, **changes):
    """Runs until it is cancelled."""
    arguments = dict(
        weights=MODELS / "chain_f32.safetensors", data=MODELS / "chain_f32.data.safetensors", mini_batch=16
    )
    arguments |= dict(optimizer="sgd", lr=0.01, steps=10**7, options=stagewright.PlanOptions(stages=2))
    return client.submit(MODELS / "chain_f32.swg", out=system.path / out, **(arguments | changes))


def test_cancel_ends_a_job_that_others_watch(system, client):
    job = long_job(client, system, "cancelled")
    seen = []
    for state in client.watch(job.name):
        seen.append(state)
        if state.step >= 3 and not state.ended:
            client.cancel(job.name)
    assert seen[-1].state == "cancelled"
    steps = [state.step for state in seen if state.state == "running" and state.step > 0]
    assert steps == sorted(steps)
    history = client.history(job.name)
    assert history[0].step == 1
    assert history[-1].step >= 3
    with pytest.raises(stagewright.InvalidError, match="spec.optimizer.learning_rate must be positive"):
        long_job(client, system, "refused", lr=-1.0)


def test_the_asynchronous_client_watches_two_jobs_at_once(system):
    async def run():
        async with stagewright.AsyncClient(system.address) as client:
            workers = await client.workers()
            kinds = [device.kind for worker in workers for device in worker.devices]
            assert len(kinds) == 2 and len(set(kinds)) == 1 and kinds[0]
            names = []
            for index in range(2):
                made = await client.submit(
                    MODELS / "chain_f32.swg", weights=MODELS / "chain_f32.safetensors",
                    data=MODELS / "chain_f32.data.safetensors", out=system.path / f"async-{index}", mini_batch=16,
                    steps=20, optimizer="sgd", lr=0.01, devices=1, request_id=f"async-{index}",
                )  # fmt: skip
                names.append(made.name)

            async def follow(name):
                return [state.state async for state in client.watch(name)]

            states = await asyncio.gather(*map(follow, names))
            jobs = [await client.wait(name) for name in names]
            return states, jobs, [await client.history(name) for name in names], await client.jobs()

    states, jobs, histories, listed = asyncio.run(run())
    assert all(of_one[-1] == "succeeded" for of_one in states)
    assert [job.step for job in jobs] == [20, 20]
    assert [len(history) for history in histories] == [20, 20]
    assert histories[0].losses == pytest.approx(histories[1].losses, rel=1e-6)
    assert {job.name for job in jobs} <= {job.name for job in listed}


def test_a_submission_that_is_repeated_makes_one_job(system, client):
    first = long_job(client, system, "once", request_id="the same")
    second = long_job(client, system, "once", request_id="the same")
    assert first.name == second.name
    assert client.cancel(first.name).state == "cancelled"


def test_a_plan_of_one_job_is_run_by_another(system, client):
    options = stagewright.PlanOptions(stages=2, micro_batch=4)
    first = client.wait(long_job(client, system, "planned", steps=4, options=options).name)
    assert first.succeeded, first.message
    again = client.wait(long_job(client, system, "replanned", steps=4, plan=first.plan, options=options).name)

    def layout(plan):  # The first job measured what its operators take: the same plan is predicted anew.
        return [(stage.nodes, stage.devices, stage.successors, stage.micro_batch, stage.in_flight) for stage in plan.stages]

    assert layout(again.plan) == layout(first.plan)
    assert client.history(again.name).losses == pytest.approx(client.history(first.name).losses, rel=1e-6)


def test_a_plan_for_a_preset_runs_on_the_devices_that_are_there(system, client):
    options = stagewright.PlanOptions(stages=2, no_replicas=True, max_loops=1)
    plan = client.plan(MODELS / "chain_f32.swg", cluster="cpu:2", mini_batch=16, options=options)
    job = client.wait(long_job(client, system, "preset", steps=4, plan=plan).name)
    assert job.succeeded, job.message
    assert job.devices == ("w0/cpu0", "w1/cpu0")
    options = stagewright.PlanOptions(stages=4, no_replicas=True, max_loops=1)
    plan = client.plan(MODELS / "chain_f32.swg", cluster="cpu:4", mini_batch=16, options=options)
    with pytest.raises(stagewright.InvalidError, match="2 devices are connected, too few for the plan's 4: start workers"):
        long_job(client, system, "large", plan=plan)


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_no_step_is_lost_when_the_planner_is_away(how):
    """A job of its own system: far more steps pass than workers keep messages of, while no planner listens."""
    with Processes(workers=2) as system, stagewright.Client(system.address) as client:
        name = long_job(client, system, "away", steps=10**7).name
        system.await_step(name, 20)
        system.stop(system.planner, *([] if how == "stopped" else [9]))
        time.sleep(3)
        system.start_planner()
        wait_for(lambda: client.job(name).state == "running", "the workers to come back")
        before = client.job(name).step
        system.await_step(name, before + 10)
        # What could not be sent in time comes before long.
        wait_for(lambda: not gaps(client.history(name)), "all steps", seen=lambda: gaps(client.history(name))[:5])
        history = client.history(name)
        client.cancel(name)
    assert history.stride == 1 or len(history) > 1000
    assert history[0].step == 1


def gaps(history) -> list[tuple[int, int]]:
    """Between which neighbours steps are missing, but for the last, which is always there."""
    numbers = [step.step for step in history]
    return [(a, b) for a, b in zip(numbers, numbers[1:-1], strict=False) if b - a != history.stride]
