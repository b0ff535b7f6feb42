"""`submit --verify`: a plan that does not compute what a single device does is found out before the job starts."""

import json
import os

import pytest
import torch
from processes import BIN, Processes
from safetensors.torch import load_file, save_file
from torch import nn

import stagewright
from stagewright.proto import pb

MINI_BATCH, SAMPLES, TIME = 16, 40, 4
DIFFERS = 6


@pytest.fixture(scope="module")
def system():
    with Processes(workers=3) as running:
        yield running


class TimeFirst(nn.Module):
    """Flattens to rows of [time * samples]."""

    def __init__(self):
        super().__init__()
        self.before, self.after = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = torch.relu(self.before(x)).transpose(0, 1).reshape(-1, 8)
        return self.after(hidden).view(TIME, -1, 3).transpose(0, 1)


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        return self.layers(x)


def exported(system, name, model, x, target, change=lambda graph: None):
    """Flags of a job whose graph `change` has changed."""
    stem = system.path / name
    save_file({"x": x, "target": target}, f"{stem}.data.safetensors")
    stagewright.export(model, {"x": x[:4]}, loss=nn.MSELoss(), targets=target[:4], path=f"{stem}.swg")
    graph = stagewright.load_graph(f"{stem}.swg")
    change(graph)
    stagewright.save_graph(graph, f"{stem}.swg")
    return dict(graph=f"{stem}.swg", weights=f"{stem}.safetensors", data=f"{stem}.data.safetensors")


def time_first(system, name, change=lambda graph: None):
    torch.manual_seed(1)
    x, target = torch.randn(SAMPLES, TIME, 8), torch.randn(SAMPLES, TIME, 3)
    return exported(system, name, TimeFirst(), x, target, change)


def lie_about_rows(graph):
    """Rows that are time-major are said to be sample-major."""
    for node in graph.nodes:
        for meta in node.outputs:
            if meta.shape and meta.shape[0].scale == TIME:
                meta.layout.dim, meta.layout.outer, meta.mixed = 0, 1, False


def plan(system, graph, first, micro_batch=MINI_BATCH, replicas=2):
    """The first `first` nodes on one device, the others on `replicas`."""
    operators = system.json("graph", "show", graph)["operators"]
    names = [node for operator in operators for node in operator["nodes"]]
    stages = [{"nodes": names[:first], "devices": [0]}, {"nodes": ["*"], "devices": list(range(1, 1 + replicas))}]
    path = system.path / f"plan-{first}-{micro_batch}.json"
    path.write_text(json.dumps({"micro_batch": micro_batch, "stages": stages}))
    return path


def cut_behind(system, graph, target, **options):
    """A plan that cuts behind the last node of that operator."""
    operators = system.json("graph", "show", graph)["operators"]
    names = [node for operator in operators for node in operator["nodes"]]
    targets = {node.name: node.target for node in stagewright.load_graph(graph).nodes}
    return plan(system, graph, max(i for i, name in enumerate(names) if targets[name] == target) + 1, **options)


def verified(system, flags, **changes):
    return system.cli(*system.submit_flags("verify", **{**flags, "devices": 3, "steps": 4, **changes}))


def stages_of(system, job):
    """Of its plan, wherever they run, which takes the first devices that are free, and however long by what is known of
    these by then."""
    stages = system.json("plan", "show", job["name"])["stages"]
    for stage in stages:
        stage["devices"] = len(stage["devices"])
        del stage["time_per_sample"]
    return stages


def jobs_of(system, flags):
    """The jobs of this graph, newest first."""
    name = stagewright.load_graph(flags["graph"]).name
    of = [name, f"verify {name}: the plan", f"verify {name}: a single device"]
    return [job for job in system.json("jobs")["jobs"] if job["display_name"] in of]


def the_error(result, code):
    assert result.returncode == code, result.stderr + result.stdout
    message = result.stderr.strip().splitlines()[-1]
    assert message.startswith("stagewright: --verify: ")
    return message


@pytest.mark.parametrize(("optimizer", "cut"), [("adam", "aten.relu.default"), ("momentum", "aten.reshape.default")])
def test_a_right_plan_is_verified_and_then_run(system, optimizer, cut):
    flags = time_first(system, f"right-{optimizer}")
    out = system.path / f"out-right-{optimizer}"
    options = dict(optimizer=optimizer, plan_file=cut_behind(system, flags["graph"], cut))
    options.update(watch=True, output="json")
    result = verified(system, flags, **options, out=out, verify=2)
    assert result.returncode == 0, result.stderr
    assert "verified: the first 2 steps of the plan" in result.stderr
    job = json.loads(result.stdout)
    assert job["state"] == "succeeded"
    assert job["step"] == 4
    assert list(out.glob("verify-*")) == []
    of_plan = next(j for j in jobs_of(system, flags) if j["display_name"].endswith(": the plan"))
    assert of_plan["step"] == 2
    assert stages_of(system, job) == stages_of(system, of_plan)

    plain = verified(system, flags, **options, out=system.path / f"out-plain-{optimizer}")
    expected = load_file(json.loads(plain.stdout)["checkpoint"])
    for name, tensor in load_file(job["checkpoint"]).items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-6, atol=1e-7)


def test_rows_that_are_not_where_the_graph_says_are_found(system):
    flags = time_first(system, "lie", lie_about_rows)
    out = system.path / "out-lie"
    plan_file = cut_behind(system, flags["graph"], "aten.reshape.default")
    message = the_error(verified(system, flags, plan_file=plan_file, out=out, verify=2), DIFFERS)
    assert 'step 0: the gradient of "before.weight" differs: at [' in message
    assert "the loss is " in message
    assert sorted(job["state"] for job in jobs_of(system, flags)) == ["failed", "succeeded"]  # And not the real one.
    assert list(out.glob("verify-*")) == []


def test_a_loss_that_is_not_what_the_graph_says_is_found(system):
    def change(graph):
        graph.loss_reduction = pb.LOSS_REDUCTION_SUM  # It is a mean.

    flags = time_first(system, "sum", change)
    plan_file = cut_behind(system, flags["graph"], "aten.relu.default", micro_batch=4, replicas=1)
    message = the_error(verified(system, flags, devices=2, plan_file=plan_file, verify=1), DIFFERS)
    assert 'step 0: the gradient of "before.weight" differs' in message


def test_what_cannot_be_verified_is_said(system):
    flags = time_first(system, "cannot")
    before = len(system.json("jobs")["jobs"])
    message = the_error(verified(system, flags, asynchronous=True, verify=1), 1)
    assert "an asynchronous plan updates with gradients of older weights" in message
    assert len(system.json("jobs")["jobs"]) == before
    torch.manual_seed(2)
    flags = exported(system, "norm", Normalised(), torch.randn(SAMPLES, 8), torch.randn(SAMPLES, 3))
    plan_file = cut_behind(system, flags["graph"], "aten.relu.default", micro_batch=4, replicas=1)
    options = dict(devices=2, plan_file=plan_file, batch_statistics="micro")
    message = the_error(verified(system, flags, **options, verify=1), 1)
    assert "depends on which samples share a pass, and the plan runs 4 of 16 at once there" in message
    usage = verified(system, flags, verify_only=True)
    assert usage.returncode == 2
    assert "--verify" in usage.stderr


def test_python_raises_what_the_command_line_says(system, monkeypatch):
    monkeypatch.setenv("PATH", str(BIN) + os.pathsep + os.environ["PATH"])
    flags = time_first(system, "python")
    options = dict(mini_batch=MINI_BATCH, lr=0.1, devices=3, planner_address=system.address)
    plan_file = cut_behind(system, flags["graph"], "aten.relu.default")
    stagewright.verify(**flags, out=system.path / "out-python", plan_file=plan_file, **options)
    assert len(jobs_of(system, flags)) == 2

    flags = time_first(system, "python-lie", lie_about_rows)
    options["plan_file"] = cut_behind(system, flags["graph"], "aten.reshape.default")
    with pytest.raises(stagewright.VerificationError, match=r'the gradient of "before.weight" differs'):
        stagewright.verify(**flags, out=system.path / "out-python-lie", **options)
    with pytest.raises(stagewright.StagewrightError, match="no.swg"):
        stagewright.verify(**{**flags, "graph": system.path / "no.swg"}, out=system.path / "no", **options)
