"""Peak memory is measured beside the prediction, and running out of it ends one job with the figures."""

import json
import re
import urllib.request

import pytest
import torch
from processes import Processes, wait_for
from torch import nn

import stagewright

WIDTH, SAMPLES, MINI_BATCH = 512, 4096, 2048
MIB = 1 << 20


@pytest.fixture(scope="module")
def system():
    with Processes() as running:
        running.start_worker("w0", "--memory-limit-mib", "24", "--metrics-listen", "127.0.0.1:0")
        running.await_workers(1)
        yield running


@pytest.fixture(scope="module")
def model(system):
    layers = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    path = system.path / "wide.swg"
    inputs = torch.randn(SAMPLES, WIDTH)
    stagewright.export(nn.Sequential(*layers), (inputs[:8],), loss=nn.MSELoss(), batch_dim=0, path=path)
    stagewright.save_dataset(system.path / "wide.data.safetensors", input=inputs, target=torch.randn(SAMPLES, WIDTH))
    return path


def flags(system, model, out, **changes):
    return dict(
        graph=model, weights=model.with_suffix(".safetensors"), data=system.path / "wide.data.safetensors",
        out=system.path / out, mini_batch=MINI_BATCH, steps=6, no_shuffle=None, seed=1, devices=1, **changes,
    )  # fmt: skip


def test_status_shows_what_was_measured_beside_the_prediction(system, model):
    job = system.train("wide", **flags(system, model, "small", micro_batch=64))
    assert job["state"] == "succeeded", job["message"]
    (memory,) = job["memory"]
    assert memory["device"] == "w0/cpu0"
    assert 0.8 < memory["measured_peak_bytes"] / memory["predicted_peak_bytes"] <= 1, memory
    # With plain SGD only parameters stay after a step.
    assert memory["in_use_bytes"] == pytest.approx(model.with_suffix(".safetensors").stat().st_size, rel=0.05)
    assert memory["in_use_bytes"] < memory["measured_peak_bytes"]
    assert memory["allocations"] > 6 * 10
    assert memory["reserved_bytes"] == 0  # Of a heap, which the worker's devices share.
    text = system.cli("watch", job["name"]).stdout
    assert re.search(r"peak memory +\S+ MiB measured, \S+ MiB predicted on w0/cpu0", text), text


def test_running_out_of_memory_tells_the_figures_and_harms_nothing_else(system, model):
    saved = system.train("wide", **flags(system, model, "saved", micro_batch=64, checkpoint_every=4))
    assert saved["state"] == "succeeded", saved["message"]
    pid = system.workers["w0"].pid
    # The same job goes on with micro-batches for which the limit is too small.
    resume = system.path / "saved"
    large = system.train("wide", **flags(system, model, "large", micro_batch=MINI_BATCH, resume=resume))
    assert large["state"] == "failed"
    message = large["message"]
    assert "\n" not in message
    for pattern in (r"\bw0\b", "device cpu0", "step 4", "stage 0", f"limit of {24 * MIB} bytes"):
        assert re.search(pattern, message), message
    figures = re.search(
        r"out of memory: (\d+) bytes asked for, (\d+) bytes in use and at most (\d+) so far; "
        r"the program's predicted peak is (\d+) bytes, the device's budget (\d+) bytes",
        message,
    )
    assert figures, message
    asked, used, most, predicted, budget = map(int, figures.groups())
    assert used <= most <= 24 * MIB < used + asked
    assert 24 * MIB < predicted <= budget
    # The worker lives, and the last good checkpoint is good.
    assert system.workers["w0"].poll() is None and system.workers["w0"].pid == pid
    again = system.train("wide", **flags(system, model, "again", micro_batch=64, resume=resume))
    assert again["state"] == "succeeded", again["message"]
    assert (again["step"], again["loss"]) == (6, pytest.approx(saved["loss"], rel=1e-6))


def test_gauges_show_both_figures_while_a_job_runs(system, model):
    name = system.submit("wide", **flags(system, model, "gauges", micro_batch=64) | {"steps": 1_000_000})
    system.await_step(name, 1)
    address = re.search(r"metrics on (\S+)", system.log("w0"))[1]

    def gauges():
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        pattern = r'stagewright_worker_memory_(peak|measured_peak|in_use)_bytes{device="cpu0"} (\S+)'
        return {kind: float(value) for kind, value in re.findall(pattern, text)}

    figures = gauges()
    assert 0 < figures["in_use"] < figures["measured_peak"] <= figures["peak"], json.dumps(figures)
    assert system.cli("cancel", name).returncode == 0
    wait_for(lambda: not gauges(), "the end of the gauges")
