"""What workers tell of their machines' GPUs, with a library in the place of the driver's."""

import json
import os

import pytest
from processes import Processes


@pytest.fixture(scope="module")
def system():
    with Processes() as running:
        yield running


def start(system, name: str, state: str) -> None:
    """A worker whose driver shows two GPUs that are as `state` says (tests/worker_daemon/device/nvml_double.cc)."""
    libraries = system.path / "driver"
    libraries.mkdir(exist_ok=True)
    library = libraries / "libnvidia-ml.so.1"
    if not library.exists():
        library.symlink_to(os.environ["STAGEWRIGHT_NVML_DOUBLE"])
    system.start_worker(name, prefix=["env", f"LD_LIBRARY_PATH={libraries}", f"NVML_DOUBLE={state}"])
    system.await_workers(len(system.workers))


def findings(system) -> dict:
    shown = json.loads(system.cli("doctor", "-o", "json").stdout)["findings"]
    return {f["what"]: f for f in shown if f["what"].startswith("GPU")}


def test_a_worker_without_a_driver_tells_of_no_gpu(system):
    system.start_worker("plain")
    system.await_workers(1)
    assert "gpu_machine" not in system.json("workers")["workers"][0]
    assert findings(system) == {}


def test_gpus_are_listed_and_looked_at(system):
    start(system, "w0", "good")
    machine = next(w for w in system.json("workers")["workers"] if w["name"] == "w0")["gpu_machine"]
    assert (machine["driver_version"], machine["driver_cuda"]) == ("580.82.07", "13.0")
    assert [(g["name"], g["clock_mhz"], g["slowdowns"], g["no_peer_access"]) for g in machine["gpus"]] == [
        ("Double A", 1900, [], []), ("Double B", 1900, [], [])]  # fmt: skip
    assert {what: f["verdict"] for what, f in findings(system).items()} == {
        "GPU drivers": "good", "GPU peers": "good", "GPU clocks": "good"}  # fmt: skip


@pytest.mark.parametrize(
    "state, what, seen, verdict",
    [("hot", "GPU clocks", "GPU 1 at 600 of 1980 MHz: heat", "warning"),
     ("apart", "GPU peers", "GPU 1 to 0", "warning"),
     ("lost", "GPU drivers", "GPU 1's memory: GPU is lost", "bad")],
)  # fmt: skip
def test_what_is_wrong_is_said_with_what_to_do(state, what, seen, verdict):
    with Processes() as system:
        start(system, "w0", state)
        found = findings(system)
        assert found[what]["verdict"] == verdict
        assert seen in found[what]["seen"]
        assert found[what]["advice"]
        assert {other for other in found if found[other]["verdict"] != "good"} == {what}
