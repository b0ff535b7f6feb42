"""Options of a job from end to end: optimizers as PyTorch's, plans by hand, losses that are not numbers."""

import json

import pytest
import torch
from processes import MODELS, Processes, wait_for
from safetensors.torch import load_file, save_file
from torch import nn

import stagewright

STEPS, MINI_BATCH, SAMPLES = 12, 16, 96


@pytest.fixture(scope="module")
def system():
    with Processes(workers=3) as running:
        yield running


class Branches(nn.Module):
    """Three branches with a normalisation each, and a head."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Linear(4, 12 + 4 * i), nn.LayerNorm(12 + 4 * i), nn.Tanh(), nn.Linear(12 + 4 * i, 6))
            for i in range(3)
        )
        self.head = nn.Linear(18, 3)

    def forward(self, x):
        return self.head(torch.cat([b(part) for b, part in zip(self.branches, x.chunk(3, dim=1), strict=True)], dim=1))


@pytest.fixture(scope="module")
def branches(system):
    """The model, its data, and the flags of a job on them."""
    torch.manual_seed(3)
    torch.set_num_threads(1)
    model = Branches().double()
    x, target = torch.randn(SAMPLES, 12, dtype=torch.float64), torch.randn(SAMPLES, 3, dtype=torch.float64)
    stem = system.path / "branches"
    stagewright.export(model, {"x": x[:4]}, loss=nn.MSELoss(), targets=target[:4], path=f"{stem}.swg")
    save_file({"x": x, "target": target}, f"{stem}.data.safetensors")
    flags = dict(graph=f"{stem}.swg", weights=f"{stem}.safetensors", data=f"{stem}.data.safetensors", steps=STEPS)
    return model, x, target, flags


def test_adamw_with_groups_schedule_and_clipping_equals_pytorch(system, branches):
    model, x, target, flags = branches
    decayed = [p for name, p in model.named_parameters() if not name.endswith("bias")]
    kept = [p for name, p in model.named_parameters() if name.endswith("bias")]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": kept, "weight_decay": 0.0}], lr=0.01, weight_decay=0.1)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1 / 3, total_iters=2)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS - 3, eta_min=0.001)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, cosine], milestones=[3])
    clipped = 0
    for step in range(STEPS):
        rows = torch.arange(step * MINI_BATCH, (step + 1) * MINI_BATCH) % SAMPLES
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x[rows]), target[rows])
        loss.backward()
        clipped += float(nn.utils.clip_grad_norm_(model.parameters(), 0.5)) > 0.5
        optimizer.step()
        schedule.step()
    assert 0 < clipped  # Or the norm decides nothing.

    for devices, micro_batch in ((3, 4), (2, 8)):
        job = system.train(
            "branches", **flags, devices=devices, stages=devices, micro_batch=micro_batch, optimizer="adamw", lr=0.01,
            weight_decay=0.1, group="*.bias=0", clip_norm=0.5, schedule="cosine", warmup=3, end_factor=0.1,
            out=system.path / f"adamw-{devices}",
        )  # fmt: skip
        assert job["state"] == "succeeded", job["message"]
        assert job["loss"] == pytest.approx(loss.item(), rel=1e-9)
        trained = load_file(job["checkpoint"])
        for name, parameter in model.state_dict().items():
            torch.testing.assert_close(trained[name], parameter, rtol=1e-8, atol=1e-9)


def test_a_plan_by_hand_is_what_runs(system):
    plan = system.path / "plan.json"
    operators = system.json("graph", "show", MODELS / "chain_f64.swg")["operators"]
    names = [node for operator in operators for node in operator["nodes"]]
    cut = len(names) // 2
    stages = [{"nodes": names[:cut], "devices": [1]}, {"nodes": ["*"], "devices": [0]}]
    plan.write_text(json.dumps({"micro_batch": 4, "stages": stages}))
    job = system.train("chain_f64", devices=2, plan_file=plan, out=system.path / "by-hand")
    assert job["state"] == "succeeded", job["message"]
    shown = system.json("plan", "show", job["name"])
    assert [len(stage["nodes"]) for stage in shown["stages"]] == [cut, len(names) - cut]
    missing = system.cli(*system.submit_flags("chain_f64", plan_file=system.path / "no.json"))
    assert missing.returncode == 1
    assert "no.json" in missing.stderr


def test_a_plan_by_hand_waits_for_as_many_devices_as_it_has(system):
    job = system.submit("chain_f64", plan_file=system.plan_by_hand("chain_f64", 4), out=system.path / "waits")
    reason = "waits for 4 devices: 3 are connected and open to jobs"
    wait_for(lambda: reason in system.job(job)["message"], "the job to wait")
    system.start_worker("w3")
    ended = system.await_end(job)
    assert ended["state"] == "succeeded", ended["message"]
    assert len(ended["devices"]) == 4
    assert system.stop(system.workers.pop("w3")) == 0
    system.await_workers(3)


def test_a_plan_that_names_devices_runs_on_those(system):
    plan, path = json.loads(system.plan_by_hand("chain_f64", 2).read_text()), system.path / "named.json"

    def flags(*names):
        for stage, name in zip(plan["stages"], names, strict=True):
            stage["devices"] = [name]
        path.write_text(json.dumps(plan))
        return dict(plan=path, out=system.path / "named")

    job = system.train("chain_f64", **flags("w2/cpu0", "w1/cpu0"))
    assert job["state"] == "succeeded", job["message"]
    assert job["devices"] == ["w1/cpu0", "w2/cpu0"]
    unknown = system.cli(*system.submit_flags("chain_f64", **flags("w2/cpu0", "w9/cpu0")))
    assert unknown.returncode == 1
    assert 'names the device "w9/cpu0", which no connected worker has' in unknown.stderr


def test_a_plan_that_no_devices_could_follow_is_refused_when_it_is_submitted(system):
    plan, path = json.loads(system.plan_by_hand("chain_f64", 2).read_text()), system.path / "forged.json"
    plan["stages"][1]["k"] = 0
    path.write_text(json.dumps(plan))
    before = system.json("jobs")
    for more in [], ["--validate-only"]:
        refused = system.cli(*system.submit_flags("chain_f64", plan=path, out=system.path / "forged"), *more)
        assert refused.returncode == 1
        assert "spec.plan_options.manual: stages[1].k is less than 1" in refused.stderr
    assert system.json("jobs") == before


def test_a_plan_found_for_a_preset_runs_on_the_devices_that_are_there(system):
    saved, printed = system.path / "saved.json", system.path / "printed.json"
    command = ("plan", MODELS / "chain_f64.swg", "--local", "--mini-batch", 8, "--planner", "gpipe", "--micro-batch", 4)
    printed.write_text(json.dumps(system.json(*command, "--cluster", "cpu:2", "--stages", 2, "--save", saved)))
    named = printed.read_text().replace("node0/device0", "w1/cpu0").replace("node1/device0", "w2/cpu0")
    printed.write_text(named)
    for file, devices in ((saved, ["w0/cpu0", "w1/cpu0"]), (printed, ["w1/cpu0", "w2/cpu0"])):
        job = system.train("chain_f64", plan=file, mini_batch=8, out=system.path / "preset", overwrite=True)
        assert job["state"] == "succeeded", job["message"]
        assert job["devices"] == devices
    system.json(*command, "--cluster", "summit:2", "--stages", 4, "--save", saved)
    refused = system.cli(*system.submit_flags("chain_f64", plan=saved, out=system.path / "preset"))
    assert refused.returncode == 1
    missing = ", ".join(f'"node0/device{i}"' for i in range(4))
    why = "3 devices are connected, too few for the plan's 4: start workers, or plan for what is there"
    assert f"spec.plan_options.manual names the devices {missing}, which no connected worker has; {why}" in refused.stderr


@pytest.mark.parametrize("policy", ["stop", "skip", "continue"])
def test_a_loss_that_is_not_a_number(system, branches, policy):
    """The second of three mini-batches has a sample that makes it one."""
    _, x, target, flags = branches
    spoiled = x.clone()
    spoiled[MINI_BATCH + 5, 2] = float("inf")
    data = system.path / f"spoiled-{policy}.safetensors"
    save_file({"x": spoiled, "target": target}, data)
    changes = dict(devices=3, stages=3, micro_batch=4, steps=3, on_nan=policy, out=system.path / f"nan-{policy}")
    job = system.train("branches", **{**flags, **changes, "data": data})
    if policy == "stop":
        assert job["state"] == "failed"
        assert "the loss is nan" in job["message"]
        assert "step 1" in job["message"]
        return
    assert job["state"] == "succeeded", job["message"]
    assert job["skipped_steps"] == (1 if policy == "skip" else 0)
    trained = load_file(job["checkpoint"])
    finite = all(torch.isfinite(tensor).all() for tensor in trained.values())
    assert finite == (policy == "skip")
    if policy == "skip":
        clean = system.path / "clean.safetensors"
        order = [*range(MINI_BATCH), *range(2 * MINI_BATCH, 3 * MINI_BATCH)]
        save_file({"x": x[order], "target": target[order]}, clean)
        changes.update(steps=2, data=clean, out=system.path / "nan-clean")
        expected = load_file(system.train("branches", **{**flags, **changes})["checkpoint"])
        for name, tensor in expected.items():
            torch.testing.assert_close(trained[name], tensor, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_is_autocast(system, precision):
    """Losses as those of torch.autocast and GradScaler, to a few roundings of the smaller type."""
    dtype, epsilon = {"bf16": (torch.bfloat16, 2**-8), "fp16": (torch.float16, 2**-11)}[precision]
    torch.manual_seed(5)
    torch.set_num_threads(1)
    model = Branches()
    x, target = torch.randn(SAMPLES, 12), torch.randn(SAMPLES, 3)
    stem = system.path / f"mixed-{precision}"
    stagewright.export(model, {"x": x[:4]}, loss=nn.MSELoss(), targets=target[:4], path=f"{stem}.swg")
    save_file({"x": x, "target": target}, f"{stem}.data.safetensors")
    flags = dict(graph=f"{stem}.swg", weights=f"{stem}.safetensors", data=f"{stem}.data.safetensors", steps=STEPS)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=precision == "fp16")
    for step in range(STEPS):
        rows = torch.arange(step * MINI_BATCH, (step + 1) * MINI_BATCH) % SAMPLES
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype):
            loss = nn.functional.mse_loss(model(x[rows]), target[rows])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    for devices, micro_batch in ((1, 16), (3, 4)):
        out = system.path / f"mixed-{precision}-{devices}"
        job = system.train(
            "mixed", **flags, devices=devices, stages=devices, micro_batch=micro_batch, precision=precision, out=out
        )
        assert job["state"] == "succeeded", job["message"]
        assert job["loss"] == pytest.approx(loss.item(), rel=1e-5 if devices == 1 else 2 * epsilon)
        assert job["loss_scale"] == (65536 if precision == "fp16" else 0)
        assert job["skipped_steps"] == 0
        trained = load_file(job["checkpoint"])
        for name, parameter in model.state_dict().items():
            assert trained[name].dtype == torch.float32
            torch.testing.assert_close(trained[name], parameter, rtol=4 * epsilon, atol=4 * epsilon)

    refused = system.cli(*system.submit_flags("chain_f64", precision=precision))
    assert refused.returncode != 0
    assert "float32" in refused.stderr
