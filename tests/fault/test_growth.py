"""A job that lost a device gets it back when it is free again, and trains on as if nothing had been."""

import re
import signal

import faults
import pytest
import stagewright
import torch
from processes import wait_for

LONG = 1_000_000
WIDTH, SAMPLES = 512, 64


class Wide(torch.nn.Module):
    """Far more compute than there is to send: two devices are faster than one."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            *(torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(4))
        )

    def forward(self, x):
        return self.layers(x)


@pytest.fixture(scope="module")
def system():
    with faults.start(2) as running:
        yield running


@pytest.fixture(scope="module")
def flags(system):
    torch.manual_seed(3)
    model = Wide().double()
    x, target = torch.randn(SAMPLES, WIDTH).double(), torch.randn(SAMPLES, WIDTH).double()
    stem = system.path / "wide"
    stagewright.export(model, {"x": x}, loss=torch.nn.MSELoss(), targets=target, path=f"{stem}.swg")
    stagewright.save_dataset(f"{stem}.data.safetensors", x=x, target=target)
    return dict(
        graph=f"{stem}.swg", weights=f"{stem}.safetensors", data=f"{stem}.data.safetensors", mini_batch=SAMPLES,
        optimizer="adam", lr=0.0001, seed=3, no_shuffle=None,
    )  # fmt: skip


def test_a_job_grows_back_and_its_losses_are_those_of_an_undisturbed_run(system, flags):
    job = system.submit("", **flags, out=system.path / "grown", steps=LONG, devices=2, checkpoint_every=50, max_restarts=3)
    system.await_step(job, 60)
    system.stop(system.workers["w1"], signal.SIGKILL)
    wait_for(lambda: len(system.job(job)["devices"]) == 1 and system.job(job)["state"] == "running", "one device")
    wait_for(lambda: "no other is free" in system.job(job)["growth"], "the job to say why it does not grow")
    faults.replace(system, "w1")
    wait_for(lambda: len(system.job(job)["devices"]) == 2, "two devices", faults.PATIENCE)
    events = system.json("jobs", "events", job)["events"]
    (grown,) = [event["message"] for event in events if event["kind"] == "growth"]
    step = int(re.match(r"has 2 devices instead of 1 after step (\d+): ", grown).group(1))
    system.await_step(job, step + 20)
    now = system.job(job)
    assert (now["restarts"], now["replans"], now["most_devices"], now["growth"]) == (1, 1, 2, "")
    system.cli("cancel", job)

    whole = system.train("", **flags, out=system.path / "undisturbed", steps=step + 20, devices=1)
    assert whole["state"] == "succeeded", whole["message"]
    expected, actual = faults.losses(system, whole["name"]), faults.losses(system, job)
    assert set(expected) <= set(actual) and max(expected) == step + 20
    assert {s: actual[s] for s in expected} == pytest.approx(expected, rel=1e-9)


def test_a_job_that_is_not_to_grow_stays_as_it_is(system, flags):
    job = system.submit(
        "", **flags, out=system.path / "small", steps=LONG, devices=2, max_restarts=3, checkpoint_every=50, grow="none"
    )
    system.await_step(job, 60)
    system.stop(system.workers["w1"], signal.SIGKILL)
    wait_for(lambda: len(system.job(job)["devices"]) == 1 and system.job(job)["state"] == "running", "one device")
    faults.replace(system, "w1")
    before = system.job(job)
    faults.await_progress(system, job, before["step"] + 50)
    assert len(system.job(job)["devices"]) == 1 and system.job(job)["growth"] == ""
    system.cli("cancel", job)
