"""The engine's test models: micro-batches run from the files alone give PyTorch's parameters after five steps."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

import stagewright
from graph_interpreter import Interpreter, parameters_of
from stagewright.proto import pb

SCRIPT = pathlib.Path(__file__).parents[2] / "data" / "export_models.py"
CASES = ["chain", "two_branches", "four_branches", "skip", "tied", "shared", "conv", "transformer", "buffers", "frozen"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Those that the engine's own tests read, where CTest has exported them."""
    if exported := os.environ.get("STAGEWRIGHT_TEST_MODELS"):
        return pathlib.Path(exported)
    directory = tmp_path_factory.mktemp("models")
    subprocess.run([sys.executable, SCRIPT, directory], check=True, timeout=120)
    return directory


def train(stem, micro_batch, optimizer, scale_fault=1.0):
    """(parameters by name, losses) of five steps in micro-batches, gradients weighted as the engine must."""
    graph = stagewright.load_graph(f"{stem}.swg")
    stored = load_file(f"{stem}.safetensors")
    data = load_file(f"{stem}.data.safetensors")
    interpreter = Interpreter(graph, parameters_of(graph, stored))
    parameters = interpreter.parameters
    trainable = [tensor for tensor in parameters if tensor.requires_grad]
    update = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    update = update(trainable, lr={"sgd": 0.1, "adam": 1e-3}[optimizer])
    losses = []
    for step in range(5):
        update.zero_grad()
        total = 0.0
        batch = {name: tensor[step * 16 : (step + 1) * 16] for name, tensor in data.items()}
        totals = interpreter.totals(batch, 16)
        for start in range(step * 16, (step + 1) * 16, micro_batch):
            end = min(start + micro_batch, (step + 1) * 16)
            mean = graph.loss_reduction == pb.LOSS_REDUCTION_MEAN
            weight = (end - start) / 16 if mean else 1.0
            loss, _ = interpreter.run({name: t[start:end] for name, t in data.items()}, end - start, totals)
            (loss * weight * scale_fault).backward()
            total += loss.item() * weight
        update.step()
        losses.append(total)
    return {p.name: t.detach() for p, t in zip(graph.parameters, parameters) if not p.HasField("data")}, losses


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("case", CASES)
def test_reference(case, optimizer, models):
    for micro_batch in (1, 5, 16):
        stem = models / f"{case}_f64"
        found, losses = train(stem, micro_batch, optimizer)
        expected = load_file(f"{stem}.reference.{optimizer}.safetensors")
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-9)
        summary = json.loads(pathlib.Path(f"{stem}.reference.{optimizer}.json").read_text())
        assert losses == pytest.approx(summary["losses"], abs=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_reference_in_single_precision(case, models):
    for optimizer in ("sgd", "adam"):
        stem = models / f"{case}_f32"
        found, _ = train(stem, 4, optimizer)
        for name, tensor in load_file(f"{stem}.reference.{optimizer}.safetensors").items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6)


def test_a_wrong_loss_scale_is_noticed(models):
    found, _ = train(models / "chain_f64", 4, "sgd", scale_fault=1.001)
    expected = load_file(models / "chain_f64.reference.sgd.safetensors")
    assert max((found[name] - tensor).abs().max().item() for name, tensor in expected.items()) > 1e-6


def test_initial_weights_are_not_the_reference(models):
    """Training moves every trainable parameter, so that the comparison means something."""
    for case in CASES:
        graph = stagewright.load_graph(models / f"{case}_f64.swg")
        before, after = load_file(models / f"{case}_f64.safetensors"), load_file(
            models / f"{case}_f64.reference.sgd.safetensors"
        )
        for parameter in graph.parameters:
            if parameter.HasField("data"):
                continue
            moved = (before[parameter.name] - after[parameter.name]).abs().max().item()
            assert (moved > 1e-6) == parameter.trainable, f"{case}: {parameter.name} moved by {moved}"


def test_dropout_model_has_keyed_dropout_only(models):
    graph = stagewright.load_graph(models / "dropout_f32.swg")
    assert sum(node.target == "aten.dropout.default" for node in graph.nodes) == 3
    assert not list(models.glob("dropout_*.reference.*"))
