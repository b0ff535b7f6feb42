"""Plans of `stagewright plan` in the terms of other frameworks: what is changed is simulated, and torch trains it."""

import contextlib
import io
import json
import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest
from stagewright.frameworks import __main__ as command

CLI = os.environ["STAGEWRIGHT_CLI"]
ROOT = pathlib.Path(__file__).parents[4]
GRAPHS = ROOT / "examples" / "graphs"
FIGURES = re.compile(r"a step takes (\S+) (\S+) as planned and (\S+) (\S+) as written \((\S+)x\)")
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def run(*command, cwd=None):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240, check=False, cwd=cwd)


def succeeds(*command):
    result = run(*command)
    assert result.returncode == 0, result.stderr
    return result.stdout


def plan(graph, cluster, mini_batch, path, *more):
    arguments = ["--cluster", cluster, "--mini-batch", mini_batch, "--save", path, "-o", "json", *more]
    return json.loads(succeeds(CLI, "plan", "--local", graph, *arguments))


def express(framework, path, graph, out, *more):
    """In this process: others would import torch first."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert command.main([str(word) for word in (framework, path, graph, "-o", out, *more)]) == 0
    return said.getvalue()


def figures(text):
    planned, unit, written, other, ratio = FIGURES.search(text).groups()
    return float(planned) * UNITS[unit], float(written) * UNITS[other], float(ratio)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    succeeds(sys.executable, ROOT / "examples" / "digits" / "export.py", folder)
    return folder


def train(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", 2, "--master-addr", "127.0.0.1"]
    return succeeds(
        sys.executable, *launcher, "--master-port", port, ROOT / "examples" / "frameworks" / "train.py", folder
    )


@pytest.mark.parametrize(
    "options",
    [(), ("--sequential", "--no-replicas", "--max-loops", "1", "--no-split-backward")],
    ids=["graph", "sequential"],
)
def test_torch_trains_the_digits_by_a_plan(digits, options):
    """A graph of stages becomes a chain, a sequential plan is kept; the losses are the plain module's in both cases."""
    shown = plan(digits / "digits.swg", "cpu:2", 64, digits / "plan.json", *options)
    text = express("pipelining", digits / "plan.json", digits / "digits.swg", digits / "schedule.csv")
    planned, written, ratio = figures(text)
    assert planned == pytest.approx(shown["iteration_seconds"], rel=1e-3)
    assert written / planned == pytest.approx(ratio, abs=0.01)
    if options:
        assert ratio == 1.0 or "pass through" in text
    else:
        assert shown["depth"] < len(shown["stages"]) and ratio > 1.05 and "here every stage waits" in text
    output = train(digits)
    assert output.count("pipeline ") == 20 and "all losses agree within 1e-05" in output


def test_what_passes_through_stages_costs_time(tmp_path):
    """The same chain of branches, with the bytes that go around stages sent through them, over a slow link."""
    graph = GRAPHS / "candle-uno.swg"
    plan(graph, "summit:2", 64, tmp_path / "plan.json", "--no-replicas")
    text = express("pipelining", tmp_path / "plan.json", graph, tmp_path / "schedule.csv")
    assert int(re.search(r"([\d,]+) bytes per micro-batch and direction pass through", text)[1].replace(",", "")) > 0
    planned, written, _ = figures(text)
    assert written > planned
    assert "finds a plan that is a chain" in text or written < 1.5 * planned
    stages = json.loads((tmp_path / "schedule.stages.json").read_text())
    assert stages["step_seconds"] == pytest.approx(written, rel=1e-3)
    # The stages without what passes through, as a sequential plan by hand that keeps the micro-batch, are faster.
    by_hand = {
        "kind": "sequential",
        "micro_batch": stages["micro_batch"],
        "stages": [{"nodes": s["nodes"], "devices": stages["ranks"][s["rank"]]} for s in stages["stages"]],
    }
    (tmp_path / "hand.json").write_text(json.dumps(by_hand))
    direct = plan(graph, "summit:2", 64, tmp_path / "direct.json", "--plan-file", tmp_path / "hand.json")
    assert direct["iteration_seconds"] < stages["step_seconds"]


def test_a_shown_plan_and_a_saved_one_say_the_same(digits):
    saved, shown = digits / "both.json", digits / "shown.json"
    content = plan(digits / "digits.swg", "cpu:2", 64, saved, "--sequential", "--no-replicas", "--planner", "gpipe")
    shown.write_text(json.dumps(content))
    express("pipelining", saved, digits / "digits.swg", digits / "saved.csv")
    express("pipelining", shown, digits / "digits.swg", digits / "shown.csv", "--cluster", "cpu:2")
    assert (digits / "saved.csv").read_text() == (digits / "shown.csv").read_text()


def test_a_refusal_says_what_a_plan_without_the_cause_costs(tmp_path):
    plan(GRAPHS / "mmt.swg", "summit:2", 128, tmp_path / "plan.json")
    out = tmp_path / "layout"
    arguments = ["megatron", tmp_path / "plan.json", GRAPHS / "mmt.swg", "-o", out]
    result = run(sys.executable, "-m", "stagewright.frameworks", *arguments)
    assert result.returncode == 1 and not out.exists()
    assert result.stderr.count("\n") == 1
    assert re.search(r"`stagewright plan --sequential .*` finds a plan that is a chain and takes \d", result.stderr)
