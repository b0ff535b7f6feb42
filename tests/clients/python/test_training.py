"""`train` before any worker computes: what it submits, and what it refuses without leaving files behind."""

import os
import pathlib

import pytest
import torch
from planner_double import PlannerDouble, job
from safetensors.torch import load_file, save_file
from torch import nn

import stagewright
from stagewright import errors
from stagewright.jobs import checkpoints_of, job_from_proto
from stagewright.progress import ProgressLine
from stagewright.proto import jobs_pb, workers_pb

X, Y = torch.randn(20, 3), torch.randint(2, (20,))
DATA = {"x": X, "target": Y}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 2), nn.BatchNorm1d(2)

    def forward(self, x):
        return self.norm(self.linear(x))


def worker():
    return jobs_pb.ListWorkersResponse(workers=[workers_pb.Worker(name="w")])


class Scripted(PlannerDouble):
    """Answers a job by what `end` says it ended as, with the weights of `trained` as its checkpoint."""

    def __init__(self, trained=None, end="SUCCEEDED", connected=worker):
        super().__init__(
            ListWorkers=lambda *_: connected(),
            SubmitJob=self.submit,
            WatchJob=self.watch,
            GetJob=lambda *_: jobs_pb.GetJobResponse(job=self.ended()),
            ListJobSteps=lambda *_: jobs_pb.ListJobStepsResponse(steps=[jobs_pb.JobStep(step=1, loss=0.5)], stride=1),
            GetJobTrace=lambda *_: jobs_pb.GetJobTraceResponse(),
        )
        self.trained, self.end, self.spec = trained, end, None

    def submit(self, request, context):
        self.spec = request.spec
        if self.trained is not None:
            save_file(self.trained, os.path.join(self.spec.output_path, "model.safetensors"))
        return jobs_pb.SubmitJobResponse(job=job(state="PENDING"))

    def watch(self, request, context):
        yield jobs_pb.WatchJobResponse(job=job(step=1, version=2))
        yield jobs_pb.WatchJobResponse(job=self.ended())

    def ended(self):
        made = job(state=self.end, step=2, version=3)
        made.message = "" if self.end == "SUCCEEDED" else "worker w: the loss is nan"
        made.checkpoint_path = os.path.join(self.spec.output_path, "model.safetensors")
        made.spec.output_path = self.spec.output_path
        return made


def train(planner, model=None, data=DATA, **changes):
    arguments = dict(loss=nn.CrossEntropyLoss(), mini_batch=4, steps=2, lr=0.1, address=planner.address, progress=False)
    return stagewright.train(model or Model(), data, **(arguments | changes))


def test_weights_and_buffers_come_back_into_the_module(tmp_path):
    model = Model()
    trained = {name: torch.full_like(tensor, 3) for name, tensor in model.state_dict().items()}
    with Scripted(trained) as planner:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        result = train(
            planner, model, optimizer=optimizer, lr=None, directory=tmp_path / "run", evaluation=DATA, seed=7
        )
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, trained[name]), name
    assert result.history.losses == [0.5]
    assert result.checkpoint == tmp_path / "run" / "model.safetensors"
    spec = planner.spec
    assert (spec.display_name, spec.mini_batch, spec.steps, spec.seed) == ("model", 4, 2, 7)
    assert (spec.optimizer.decoupled_weight_decay, spec.optimizer.learning_rate) == (True, 0.01)
    for path in (spec.data_path, spec.evaluation_data_path):
        assert torch.equal(load_file(f"{path}/part-00000.safetensors")["x"], X)
    assert [graph_input.name for graph_input in spec.graph.inputs] == ["x", "target"]
    assert set(load_file(spec.weights_path)) >= {"linear.weight", "norm.running_mean"}


def test_a_loader_brings_its_batch_size(tmp_path):
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=5)
    model = Model()
    with Scripted(model.state_dict()) as planner:
        train(planner, model, loader, mini_batch=None, directory=tmp_path / "run")
    assert planner.spec.mini_batch == 5


def test_runs_have_directories_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = Model()
    with Scripted(model.state_dict()) as planner:
        directories = {train(planner, model).directory for _ in range(2)}
    assert len(directories) == 2
    assert all(directory.parent == pathlib.Path("stagewright-runs") for directory in directories)


def test_a_job_that_fails_leaves_the_model_as_it_was(tmp_path):
    model = Model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with Scripted(end="FAILED") as planner, pytest.raises(errors.JobError) as error:
        train(planner, model, directory=tmp_path / "run")
    assert str(error.value) == "jobs/1 failed: worker w: the loss is nan"
    assert error.value.job.state == "failed"
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_interrupting_cancels_the_job(tmp_path, monkeypatch):
    class Interrupted(Scripted):
        def __init__(self):
            super().__init__()
            self.answers["CancelJob"] = lambda *_: jobs_pb.CancelJobResponse(job=job(state="CANCELLED"))

    def interrupt(self, state):
        raise KeyboardInterrupt

    monkeypatch.setattr(ProgressLine, "show", interrupt)
    with Interrupted() as planner, pytest.raises(KeyboardInterrupt):
        train(planner, directory=tmp_path / "run", progress=True)
    assert "CancelJob" in planner.heard


class Unexportable(Model):
    def forward(self, x):
        return self.linear(x) if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"mini_batch": 30}, errors.DatasetError, "the data set has 20 samples, fewer than a mini-batch of 30"),
        (
            {"optimizer": "lion"},
            errors.OptimizerError,
            "there is no optimizer 'lion'; workers have sgd, momentum, adam",
        ),
        ({"optimizer": torch.optim.Adagrad(Model().parameters())}, errors.OptimizerError, "workers have no Adagrad"),
        ({"lr": None}, errors.OptimizerError, "needs lr"),
        ({"epochs": 1}, ValueError, "either steps or epochs"),
        ({"mini_batch": None}, ValueError, "give mini_batch"),
        ({"data": {"z": X, "target": Y}}, errors.DatasetError, "none of z, target is an argument of Model.forward"),
        ({"model": Unexportable()}, errors.ExportError, "depends on the values"),
        ({"precision": "int8"}, ValueError, "precision is one of graph, bf16, fp16, not 'int8'"),
    ],
)
def test_refusals_leave_no_files(changes, error, says, tmp_path):
    with Scripted() as planner, pytest.raises(error, match=says):
        train(planner, directory=tmp_path / "run", **changes)
    assert planner.spec is None
    assert not (tmp_path / "run").exists()


def test_what_was_in_the_directory_stays_when_training_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("")
    with Scripted() as planner, pytest.raises(errors.DatasetError):
        train(planner, directory=tmp_path / "run", mini_batch=30)
    assert (tmp_path / "run" / "mine").exists()


def test_no_planner_and_no_workers(tmp_path):
    with Scripted(connected=jobs_pb.ListWorkersResponse) as planner:
        with pytest.raises(stagewright.StagewrightError, match="no worker is connected .* start stagewright-worker"):
            train(planner, directory=tmp_path / "run")
    with pytest.raises(errors.UnreachableError, match=f"no planner answers at {planner.address}"):
        train(planner, directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_only_whole_checkpoints_are_listed(tmp_path):
    for step, whole in ((2, True), (4, True), (6, False)):
        directory = tmp_path / "checkpoints" / f"step-{step:010}"
        directory.mkdir(parents=True)
        if whole:
            (directory / "manifest.json").write_text("{}")
    made = job(state="SUCCEEDED", step=7)
    made.spec.output_path, made.checkpoint_path = str(tmp_path), str(tmp_path / "model.safetensors")
    assert [(c.step, c.final) for c in checkpoints_of(job_from_proto(made))] == [(2, False), (4, False)]
    (tmp_path / "model.safetensors").write_text("")
    found = checkpoints_of(job_from_proto(made))
    assert [(c.step, c.final) for c in found] == [(2, False), (4, False), (7, True)]
    assert found[0].path == tmp_path / "checkpoints" / "step-0000000002"


class Terminal:
    def __init__(self, tty):
        self.text, self.tty = "", tty

    def isatty(self):
        return self.tty

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def test_progress_is_a_line_rewritten_on_a_terminal_and_a_line_per_state_elsewhere():
    states = [job(state="PENDING"), job(step=1), job(step=5), job(state="SUCCEEDED", step=10)]
    out = {}
    for tty in (True, False):
        out[tty] = Terminal(tty)
        line = ProgressLine(out[tty])
        for state in states:
            line.show(job_from_proto(state))
        line.end()
    assert out[False].text.splitlines() == ["jobs/1 pending", "jobs/1 running", "jobs/1 succeeded"]
    assert "\n" not in out[True].text.rstrip("\n")
    assert "[===============               ] step 5/10  loss 0.5000" in out[True].text
