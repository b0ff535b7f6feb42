"""The examples run as their readers would run them."""

import pathlib
import runpy
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

import stagewright
from graph_interpreter import Interpreter
from stagewright.proto import pb

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples"
GRAPHS = sorted(path.name for path in (EXAMPLES / "graphs").glob("*.swg"))


def run(*command):
    result = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def run_here(monkeypatch):
    """Runs a script as `run` does, but in this process, which has imported torch already."""

    def run_script(script, *arguments):
        monkeypatch.setattr(sys, "argv", [str(word) for word in (script, *arguments)])
        monkeypatch.syspath_prepend(script.parent)
        runpy.run_path(str(script), run_name="__main__")

    return run_script


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    directory = tmp_path_factory.mktemp("digits")
    run(EXAMPLES / "digits" / "export.py", directory)
    return directory


def test_digits_data(digits):
    train, test = load_file(digits / "train.safetensors"), load_file(digits / "test.safetensors")
    assert train["image"].shape == (1437, 8, 8) and test["image"].shape == (360, 8, 8)
    assert 0 <= train["image"].min() and train["image"].max() <= 1
    assert sorted(torch.unique(train["target"]).tolist()) == list(range(10))
    rows = {tuple(image.flatten().tolist()) for image in train["image"]}
    assert not any(tuple(image.flatten().tolist()) in rows for image in test["image"]), "train and test overlap"


def test_digits_graph_learns_and_its_checkpoint_evaluates(digits, tmp_path):
    """Trains the graph, as exported, with Adam; the plain model then reads what was learnt."""
    graph = stagewright.load_graph(digits / "digits.swg")
    stored = load_file(digits / "digits.safetensors")
    parameters = [stored[p.name].requires_grad_(p.trainable) for p in graph.parameters]
    interpreter, data = Interpreter(graph, parameters), load_file(digits / "train.safetensors")
    update = torch.optim.Adam(parameters, lr=3e-4)
    for _ in range(15):
        for rows in torch.randperm(len(data["target"])).split(64)[:-1]:
            update.zero_grad()
            interpreter.run({name: t[rows] for name, t in data.items()}, 64)[0].backward()
            update.step()
    checkpoint = tmp_path / "checkpoint.safetensors"
    save_file({p.name: t.detach() for p, t in zip(graph.parameters, parameters)}, checkpoint)
    text = run(EXAMPLES / "digits" / "evaluate.py", checkpoint, digits / "test.safetensors")
    assert float(text.split()[1]) >= 0.96, text


def test_a_model_of_ones_own(tmp_path, run_here, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_here(EXAMPLES / "your_own_model" / "export.py")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "train.safetensors", "two-towers.safetensors", "two-towers.swg",
    ]  # fmt: skip


def test_paper_models_are_up_to_date(tmp_path, run_here):
    run_here(EXAMPLES / "models" / "export.py", tmp_path)
    assert GRAPHS == sorted(path.name for path in tmp_path.glob("*.swg"))
    for name in GRAPHS:
        fresh, kept = stagewright.load_graph(tmp_path / name), stagewright.load_graph(EXAMPLES / "graphs" / name)
        assert fresh == kept, f"examples/graphs/{name} is not what examples/models/export.py writes; run it again"
        assert (EXAMPLES / "graphs" / name).stat().st_size < 300_000


# Appendix A.2 and figure 9 of the GraphPipe paper: (weight matrices, operators of attention, branches of the join).
@pytest.mark.parametrize(
    "name, linears, attentions, joined",
    [
        ("mmt", 4 * 8 * 4 + 1, 32, 4),
        ("transformer", 32 * 4 + 1, 32, 0),
        ("dlrm", 7 * 4 + 2, 0, 14),
        ("candle-uno", 7 * 4 + 2, 0, 7),
        ("candle-uno-flexflow", 7 * 4 + 4 + 1, 0, 7),
        ("candle-uno-b16", 16 * 4 + 2, 0, 16),
        ("case-study", 2 * 4 * 4, 8, 2),
    ],
)
def test_paper_models_have_the_papers_shape(name, linears, attentions, joined):
    graph = stagewright.load_graph(EXAMPLES / "graphs" / f"{name}.swg")
    targets = [node.target for node in graph.nodes]
    assert targets.count("aten.linear.default") == linears
    assert targets.count("aten.scaled_dot_product_attention.default") == attentions
    joins = [node for node in graph.nodes if node.target == "aten.cat.default"]
    assert [len(node.args[0].list.items) for node in joins] == ([joined] if joined else [])
    assert graph.loss_reduction == pb.LOSS_REDUCTION_MEAN


def test_other_sizes(tmp_path, run_here):
    run_here(EXAMPLES / "models" / "export.py", tmp_path, "--model", "candle-uno", "--branches", 3)
    run_here(EXAMPLES / "models" / "export.py", tmp_path, "--model", "mmt", "--branches", 2, "--layers", 3)
    assert len(stagewright.load_graph(tmp_path / "candle-uno-b3.swg").inputs) == 4
    graph = stagewright.load_graph(tmp_path / "mmt-b2-l3.swg")
    assert [node.target for node in graph.nodes].count("aten.scaled_dot_product_attention.default") == 6
