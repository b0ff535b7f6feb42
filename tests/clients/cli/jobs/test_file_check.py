"""`stagewright submit` says what is wrong with weights and data before anything is submitted."""

import os
import pathlib
import subprocess

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import stagewright

CLI = os.environ["STAGEWRIGHT_CLI"]
NOBODY = "127.0.0.1:1"  # No planner listens there.
VOCABULARY, LENGTH, CLASSES, SAMPLES = 11, 6, 7, 20
UNREACHABLE = 4  # The exit code of a job with nothing wrong.


class Tagger(nn.Module):
    """All tokens but the last are looked up; a class for each, and a weight for the sample."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, 8)
        self.classes = nn.Linear(8, CLASSES)

    def forward(self, tokens, scale):
        return self.classes(self.words(tokens[:, :-1])).transpose(1, 2) * scale[:, :, None]


def arrays():
    torch.manual_seed(0)
    return dict(
        tokens=torch.randint(0, VOCABULARY, (SAMPLES, LENGTH)),
        scale=torch.rand(SAMPLES, 1),
        target=torch.randint(0, CLASSES, (SAMPLES, LENGTH - 1)),
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tagger.swg"
    data = arrays()
    inputs = (data["tokens"][:4], data["scale"][:4])
    stagewright.export(Tagger(), inputs, loss=nn.CrossEntropyLoss(), targets=data["target"][:4], path=path)
    return path


def submit(model, data, *flags, weights=None, steps=5, code=1) -> str:
    """What is printed of a job with this data, which is a path or arrays."""
    if isinstance(data, dict):
        file = model.with_name("data.safetensors")
        save_file({name: tensor.contiguous() for name, tensor in data.items()}, file)
        data = file
    weights = weights or model.with_suffix(".safetensors")
    command = [CLI, "--planner-address", NOBODY, "submit", model, "--weights", weights, "--data", data]
    command += ["--out", model.with_name("out"), "--mini-batch", 4, "--lr", 0.1, "--steps", steps, *flags]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
    assert result.returncode == code, result.stderr
    assert result.stderr.startswith("stagewright: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def spoiled(name, index, value):
    data = arrays()
    data[name][index] = value
    return data


def test_nothing_is_wrong(model):
    submit(model, arrays(), code=UNREACHABLE)
    submit(model, spoiled("tokens", (3, LENGTH - 1), 99), code=UNREACHABLE)  # Nobody looks it up.
    submit(model, spoiled("target", (3, 2), -100), code=UNREACHABLE)  # The loss leaves it out.
    submit(model, spoiled("scale", (3, 0), float("inf")), code=UNREACHABLE)
    submit(model, spoiled("scale", (3, 0), float("nan")), "--on-nan", "skip", code=UNREACHABLE)
    submit(model, model.with_name("elsewhere.safetensors"), code=UNREACHABLE)  # Workers may see it.


@pytest.mark.parametrize(
    ("name", "index", "value", "said"),
    [
        ("tokens", (13, 2), 11, 'sample 13 holds 11 at [2], the table of "words" has rows 0 to 10'),
        ("tokens", (13, 2), -1, 'sample 13 holds -1 at [2], the table of "words" has rows 0 to 10'),
        ("target", (19, 4), 7, "sample 19 holds 7 at [4], the loss "),
        ("target", (19, 4), -1, " has classes 0 to 6 and leaves out -100"),
        ("scale", (6, 0), float("nan"), "sample 6 holds a nan, which would end the job"),
    ],
)
def test_a_bad_value_is_named(model, name, index, value, said):
    message = submit(model, spoiled(name, index, value))
    assert f'data.safetensors: tensor "{name}": sample {index[0]} holds ' in message
    assert said in message


def test_samples_that_no_step_reads_may_be_bad(model):
    bad = spoiled("tokens", (13, 2), 11)
    submit(model, bad, "--no-shuffle", steps=3, code=UNREACHABLE)
    submit(model, bad, "--no-shuffle", steps=4)
    evaluated = model.with_name("evaluated.safetensors")
    save_file(bad, evaluated)
    assert 'evaluated.safetensors: tensor "tokens": sample 13' in submit(model, arrays(), "--eval-data", evaluated)


def test_a_wrong_shard_is_named(model, tmp_path):
    data = spoiled("tokens", (13, 2), 11)
    for i, part in enumerate((slice(0, 12), slice(12, SAMPLES))):
        save_file({name: tensor[part].contiguous() for name, tensor in data.items()}, tmp_path / f"{i}.safetensors")
    assert f'{tmp_path}/1.safetensors: tensor "tokens": sample 1 holds 11' in submit(model, tmp_path)


def test_types_shapes_and_numbers_of_samples(model):
    data = arrays()
    short = submit(model, {**data, "target": data["target"].int()})
    assert f'tensor "target" is int32[{SAMPLES}, 5], the graph wants int64[samples, 5]' in short
    longer = submit(model, {**data, "tokens": torch.zeros(SAMPLES, 12, dtype=torch.int64)})
    assert f'tensor "tokens" is int64[{SAMPLES}, 12], the graph wants int64[samples, 6]' in longer
    assert 'there is no tensor "scale"' in submit(model, {k: v for k, v in data.items() if k != "scale"})
    assert '"scale" has 19 samples' in submit(model, {**data, "scale": data["scale"][1:]})
    few = {name: tensor[:3] for name, tensor in data.items()}
    assert "it has 3 samples, fewer than a mini-batch of 4" in submit(model, few)


@pytest.mark.parametrize(
    ("prefix", "what"), [("module.", "model.module.state_dict()"), ("_orig_mod.", "torch.compile")]
)
def test_weights_of_a_wrapper(model, tmp_path, prefix, what):
    weights = tmp_path / "wrapped.safetensors"
    tensors = load_file(model.with_suffix(".safetensors"))
    save_file({prefix + name: tensor for name, tensor in tensors.items()}, weights)
    message = submit(model, arrays(), weights=weights)
    assert 'wrapped.safetensors: there is no tensor "' in message
    assert what in message


def test_weights_of_another_model(model, tmp_path):
    weights = pathlib.Path(tmp_path / "other.safetensors")
    tensors = load_file(model.with_suffix(".safetensors"))
    save_file({**tensors, "words.weight": torch.zeros(12, 8)}, weights)
    expected = 'tensor "words.weight" is float32[12, 8], the graph says float32[11, 8]'
    assert expected in submit(model, arrays(), weights=weights)
    del tensors["classes.bias"]
    save_file(tensors, weights)
    assert submit(model, arrays(), weights=weights).endswith('there is no tensor "classes.bias"\n')
