"""Weights that jobs name by what is in them: workers fetch what they need of them, from a folder or a bucket."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess

import grpc
import pytest
import torch
from processes import BIN, MODELS, PATIENCE, Processes, wait_for
from s3_server import BUCKET, S3Server
from safetensors.torch import load_file, save_file

import stagewright
from stagewright.proto import jobs_pb

NOTHING = "sha256:" + "0" * 64


class Store:
    """Where artifacts are, and what a program is told of it."""

    def __init__(self, path: pathlib.Path, s3: S3Server | None):
        self.path, self.s3 = path / "store", s3
        self.place = f"s3://{BUCKET}/some/prefix" if s3 else str(self.path)

    def environment(self, who: str = "tester") -> dict[str, str]:
        return {**os.environ, **(self.s3.environment(who) if self.s3 else {})}

    def cli(self, *arguments: object, who: str = "tester") -> subprocess.CompletedProcess:
        command = [BIN / "stagewright", "--artifacts", self.place, "artifacts", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=self.environment(who))

    def put(self, file: pathlib.Path) -> str:
        result = self.cli("put", file)
        assert result.returncode == 0, result.stderr
        assert re.fullmatch(r"sha256:[0-9a-f]{64}\n", result.stdout)
        return result.stdout.strip()

    def objects(self) -> dict[str, bytes]:
        if self.s3:
            return {key.removeprefix("some/prefix/"): value for key, value in self.s3.objects.items()}
        return {str(path.relative_to(self.path)): path.read_bytes() for path in self.path.rglob("*") if path.is_file()}

    def change(self, key: str, change) -> None:
        if self.s3:
            self.s3.objects[f"some/prefix/{key}"] = change(self.s3.objects[f"some/prefix/{key}"])
        else:
            (self.path / key).write_bytes(change((self.path / key).read_bytes()))


    def remove(self, key: str) -> None:
        if self.s3:
            del self.s3.objects[f"some/prefix/{key}"]
        else:
            (self.path / key).unlink()


@pytest.fixture(params=["folder", "s3"])
def store(request, tmp_path):
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(S3Server()) if request.param == "s3" else None
        yield Store(tmp_path, server)


@contextlib.contextmanager
def workers(store: Store, folder: pathlib.Path, count: int = 2):
    """Each with a cache of its own, and the folder of data and outputs as all that they read and write."""
    with Processes() as system:
        for i in range(count):
            if store.s3:
                store.s3.keys[f"w{i}"] = f"secret-of-w{i}"
            flags = ["--data-root", folder, "--output-root", folder, "--artifacts", store.place]
            flags += ["--artifact-cache", cache_of(folder, i)]
            variables = store.s3.environment(f"w{i}") if store.s3 else {}
            prefix = ["env", *(f"{name}={value}" for name, value in variables.items())]
            system.start_worker(f"w{i}", *map(str, flags), prefix=prefix)
        system.await_workers(count)
        yield system


def cache_of(folder: pathlib.Path, worker: int) -> pathlib.Path:
    return folder.parent / f"cache-w{worker}"


@pytest.fixture
def folder(tmp_path):
    """What workers share: data and outputs."""
    path = tmp_path / "shared"
    path.mkdir()
    return path


def copy_model(model: str, folder: pathlib.Path) -> dict:
    """The flags of a job whose data lie in the folder and whose weights do not."""
    shutil.copy(MODELS / f"{model}.data.safetensors", folder / "data.safetensors")
    return {"data": folder / "data.safetensors", "out": folder / "out"}


def losses(system: Processes, job: str) -> list:
    return [(step["step"], step["loss"]) for step in system.json("jobs", "losses", job)["steps"]]


@pytest.mark.parametrize("store, model", [("folder", "frozen_f32"), ("s3", "tied_f32")], indirect=["store"])
def test_a_job_trains_as_it_does_from_a_file(store, folder, model):
    flags = copy_model(model, folder)
    # With a tensor that no stage reads: it is in the model all the same.
    weights = folder.parent / "weights.safetensors"
    save_file({**load_file(MODELS / f"{model}.safetensors"), "left.out": torch.arange(5.0)}, weights)
    with workers(store, folder) as system:
        plan = system.plan_by_hand(model, stages=2)
        flags |= dict(devices=2, plan_file=plan, checkpoint_every=4)
        outside = system.train(model, **flags, weights=weights)
        assert "spec.weights_path: outside of the directories that jobs may" in outside["message"]
        inside = shutil.copy(weights, folder / "weights.safetensors")
        wanted = system.train(model, **flags, weights=inside)
        assert wanted["state"] == "succeeded", wanted["message"]
        trained = (folder / "out" / "model.safetensors").read_bytes()
        os.remove(inside)

        name = store.put(weights)
        found = system.train(model, **flags, weights=name)
        assert found["state"] == "succeeded", found["message"]
        assert losses(system, found["name"]) == losses(system, wanted["name"])
        assert (folder / "out" / "model.safetensors").read_bytes() == trained
        assert system.json("jobs", "describe", found["name"])["spec"]["weights_path"] == name

        # What it has done of its steps need not be done again.
        resume = folder / "out" / "checkpoints" / "step-0000000004"
        resumed = system.train(model, **flags | dict(out=folder / "resumed"), weights=name, resume=resume)
        assert resumed["state"] == "succeeded", resumed["message"]
        assert (folder / "resumed" / "model.safetensors").read_bytes() == trained


def wide_model(folder: pathlib.Path) -> pathlib.Path:
    """Six layers of 4 MiB each; the stem of its files."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(6)))
    x, target = torch.randn(32, 1024), torch.randn(32, 1024)
    stem = folder / "wide"
    stagewright.export(model, (x[:4],), loss=torch.nn.MSELoss(), batch_dim=0, path=stem.with_suffix(".swg"))
    stagewright.save_dataset(folder / "wide.data.safetensors", input=x, target=target)
    return stem


@pytest.mark.parametrize("store", ["s3"], indirect=True)  # Which counts what is read; a cache knows no store.
def test_each_worker_fetches_its_stage_only(store, folder, tmp_path):
    stem = wide_model(tmp_path)
    shutil.copy(f"{stem}.data.safetensors", folder / "data.safetensors")
    name = store.put(stem.with_suffix(".safetensors"))
    whole = stem.with_suffix(".safetensors").stat().st_size
    assert sum(map(len, store.objects().values())) < whole + 10_000
    with workers(store, folder, count=3) as system:
        flags = dict(data=folder / "data.safetensors", out=folder / "out", weights=name, devices=3, steps=2,
                     plan_file=system.plan_by_hand(str(stem), stages=3))  # fmt: skip
        job = system.train(str(stem), **flags)
        assert job["state"] == "succeeded", job["message"]
        chunk = 4 << 20
        for worker in range(3):
            # Two layers lie in at most three chunks, and the header in the first.
            kept = sum(path.stat().st_size for path in cache_of(folder, worker).iterdir())
            assert 8 << 20 <= kept <= 4 * chunk, (worker, kept, whole)
            assert kept <= store.s3.read[f"w{worker}"] <= kept + 10_000
        # Nothing is fetched for a second job but what says what there is.
        before = dict(store.s3.read)
        assert system.train(str(stem), **flags)["state"] == "succeeded"
        for who, count in before.items():
            assert store.s3.read[who] < count + 10_000


def test_submit_puts_weights_into_the_store(store, folder):
    flags = copy_model("chain_f32", folder)
    with workers(store, folder) as system:
        command = [BIN / "stagewright", "--planner-address", system.address, "--artifacts", store.place]
        command += map(str, system.submit_flags("chain_f32", **flags, watch=True))
        result = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, timeout=PATIENCE,
                                env=store.environment())  # fmt: skip
        assert result.returncode == 0, result.stderr
        name = store.put(MODELS / "chain_f32.safetensors")
        assert system.json("jobs", "describe", json.loads(result.stdout)["name"])["spec"]["weights_path"] == name
        # What is wrong with an artifact is known before a job is made of it.
        other = store.put(MODELS / "frozen_f32.safetensors")
        command[command.index("--weights") + 1] = other
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=store.environment())
        assert result.returncode == 1
        assert f"{other}: " in result.stderr and result.stderr.count("\n") == 1


def failure(system: Processes, code: str, **flags) -> str:
    """The message of a job that fails with this code."""
    job = system.train("chain_f32", **flags)
    assert job["state"] == "failed"
    with stagewright.Client(system.address) as client:
        recorded = client._stubs.GetJob(jobs_pb.GetJobRequest(name=job["name"]), timeout=60).job
    assert recorded.failure_code == grpc.StatusCode[code].value[0], job["message"]
    assert "\n" not in job["message"] and "\x1b" not in job["message"]
    return job["message"]


def test_what_is_wrong_with_an_artifact_ends_the_job(store, folder):
    flags = copy_model("chain_f32", folder)
    name = store.put(MODELS / "chain_f32.safetensors")
    with workers(store, folder) as system:
        flags |= dict(devices=2, plan_file=system.plan_by_hand("chain_f32", stages=2))
        message = failure(system, "NOT_FOUND", **flags, weights=NOTHING)
        assert f"spec.weights_path: {NOTHING}: there is no such artifact in {store.place}" in message
        refused = system.cli(*system.submit_flags("chain_f32", **flags, weights="sha256:../../etc/passwd"))
        assert refused.returncode == 1 and "is no artifact's name" in refused.stderr

        store.change(f"{name[7:]}/chunk-000000", lambda chunk: chunk[:-1] + bytes([chunk[-1] ^ 1]))
        message = failure(system, "DATA_LOSS", **flags, weights=name)
        assert f"spec.weights_path: {name}: chunk 0 of 1 in {store.place}" in message and "damaged" in message
        store.change(f"{name[7:]}/manifest.json", lambda manifest: manifest + b" ")
        message = failure(system, "DATA_LOSS", **flags, weights=name)
        assert f"{name}: its manifest in {store.place}" in message

        system.start_worker("without")
        system.await_workers(3)
        for worker in ("w0", "w1"):
            assert system.cli("workers", "cordon", worker).returncode == 0
        message = failure(system, "FAILED_PRECONDITION", **flags | dict(devices=1, plan_file=None), weights=name)
        assert f"spec.weights_path: {name}: " in message and "--artifacts" in message


def test_a_bucket_that_cannot_be_had_is_told(folder):
    flags = copy_model("chain_f32", folder)
    with S3Server() as server:
        store = Store(folder, server)
        name = store.put(MODELS / "chain_f32.safetensors")
        with workers(store, folder, count=1) as system:
            server.failures = 2  # Not for long: nobody hears of it.
            assert system.train("chain_f32", **flags, weights=name)["state"] == "succeeded"
            server.keys["w0"] = "another"
            message = failure(system, "PERMISSION_DENIED", **flags, weights=name)
            assert "SignatureDoesNotMatch" in message and "AWS_SECRET_ACCESS_KEY" in message
            del server.keys["w0"]
            assert "InvalidAccessKeyId" in failure(system, "PERMISSION_DENIED", **flags, weights=name)
            server.stop()
            message = failure(system, "UNAVAILABLE", **flags, weights=name)
            assert name in message and server.environment()["AWS_ENDPOINT_URL_S3"] in message


def test_a_job_that_waits_for_a_bucket_can_be_cancelled(folder):
    flags = copy_model("chain_f32", folder)
    with S3Server() as server:
        store = Store(folder, server)
        name = store.put(MODELS / "chain_f32.safetensors")
        with workers(store, folder, count=1) as system:
            server.silent_on = "chunk"
            job = system.submit("chain_f32", **flags, weights=name)
            wait_for(lambda: server.waiting > 0, "the worker to ask for a chunk")
            assert system.cli("cancel", job).returncode == 0
            # The worker is free again, and did not have to try three times before.
            inside = shutil.copy(MODELS / "chain_f32.safetensors", folder / "weights.safetensors")
            assert system.train("chain_f32", **flags, weights=inside)["state"] == "succeeded"
            assert server.waiting == 1


def test_the_command_line_puts_gets_checks_and_removes(store, tmp_path):
    file, got = tmp_path / "file", tmp_path / "got"
    file.write_bytes(os.urandom(5 << 20))  # Two chunks.
    name = store.put(file)
    assert store.put(file) == name
    assert sorted(key.split("/")[1] for key in store.objects()) == ["chunk-000000", "chunk-000001", "manifest.json"]
    assert store.cli("get", name, got).returncode == 0
    assert got.read_bytes() == file.read_bytes()
    assert store.cli("check", name).stdout == "whole: 5 MiB in 2 chunks\n"
    store.change(f"{name[7:]}/chunk-000001", lambda chunk: bytes([chunk[0] ^ 1]) + chunk[1:])
    for command in (["check", name], ["get", name, tmp_path / "damaged"]):
        result = store.cli(*command)
        assert result.returncode == 1
        assert f"{name}: chunk 1 of 2 in {store.place}" in result.stderr
    assert not list(tmp_path.glob("damaged*"))
    store.change(f"{name[7:]}/manifest.json", lambda manifest: manifest[1:])
    assert store.cli("rm", name).returncode == 0
    assert store.put(file) == name
    assert store.cli("check", name).returncode == 0
    assert store.cli("rm", name).returncode == 0
    assert store.objects() == {}
    result = store.cli("get", name, got)
    assert result.returncode == 1 and "there is no such artifact" in result.stderr
    result = store.cli("check", "sha256:1")
    assert result.returncode == 1 and "no artifact's name" in result.stderr


def test_the_command_line_lists_what_is_whole(store, tmp_path):
    (tmp_path / "store").mkdir()
    assert json.loads(store.cli("list", "-o", "json").stdout) == {"artifacts": []}
    sizes = {}
    for i in range(5):
        (tmp_path / "file").write_bytes(bytes([i]) * (1000 + i))
        sizes[store.put(tmp_path / "file")] = 1000 + i
    if store.s3:
        store.s3.page = 2  # So that it has to be asked for several.
        store.s3.objects["some/other/prefix"] = store.s3.objects["some/prefix/a & b <c>/x"] = b"of somebody else"
    else:
        (store.path / "a & b <c>").mkdir()
        (store.path / "file").write_text("of somebody else")
    result = store.cli("list", "-o", "json")
    assert result.returncode == 0, result.stderr
    assert {item["name"]: item["size_bytes"] for item in json.loads(result.stdout)["artifacts"]} == sizes
    if store.s3:
        assert store.s3.lists == 1 + 3
    first, second, *whole = sorted(sizes)
    store.remove(f"{first[7:]}/manifest.json")  # As long as it is being put.
    store.change(f"{second[7:]}/manifest.json", lambda manifest: manifest + b" ")
    _, *lines = store.cli("list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [second, *whole]
    assert [line.split(maxsplit=1)[1] for line in lines] == ["damaged", *(f"{sizes[name]} B" for name in whole)]


def test_a_store_that_cannot_be_listed_is_told(tmp_path):
    missing = Store(tmp_path, None).cli("list")
    assert missing.returncode == 4 and str(tmp_path / "store") in missing.stderr
    with S3Server() as server:
        store = Store(tmp_path, server)
        server.failures = 2
        assert store.cli("list").returncode == 0
        denied = store.cli("list", who="stranger")
        assert denied.returncode == 1 and "InvalidAccessKeyId" in denied.stderr and denied.stderr.count("\n") == 1


def test_credentials_that_do_not_last_travel_with_the_request(tmp_path):
    with S3Server(token="a/token+of=today") as server:
        store = Store(tmp_path, server)
        (tmp_path / "file").write_text("x")
        name = store.put(tmp_path / "file")
        assert store.cli("check", name).returncode == 0
        server.token = "another"
        variables = {**store.environment(), "AWS_SESSION_TOKEN": "a/token+of=today"}
        command = [BIN / "stagewright", "--artifacts", store.place, "artifacts", "check", name]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=variables)
        assert result.returncode == 1 and "InvalidToken" in result.stderr


def test_other_buckets_and_missing_variables_are_named(tmp_path):
    with S3Server() as server:
        (tmp_path / "file").write_text("x")
        command = [BIN / "stagewright", "artifacts", "put", tmp_path / "file"]
        for place, variables, wanted in (
            ("s3://other", server.environment(), "there is no such bucket"),
            ("s3://models", {"AWS_ACCESS_KEY_ID": "x"}, "AWS_SECRET_ACCESS_KEY is not set"),
            ("http://host/models", {}, "kept in a folder or in s3://"),
            ("", {}, "STAGEWRIGHT_ARTIFACTS"),
        ):
            environment = {**os.environ, "STAGEWRIGHT_ARTIFACTS": place, **variables}
            result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
            assert result.returncode == 1 and wanted in result.stderr, result.stderr
            assert result.stderr.count("\n") == 1
