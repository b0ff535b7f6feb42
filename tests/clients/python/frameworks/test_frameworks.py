"""Plans in the terms of other frameworks, where nothing has to be simulated: files, and what is refused."""

import itertools
import json
import re
import tomllib

import pytest
import torch
from plan_files import by_module, one_f_one_b, orders, write_plan
from torch import nn

import stagewright
from stagewright.frameworks import __main__ as command
from stagewright.frameworks.layers import layer_list, layer_of
from stagewright.frameworks.prediction import PROGRAM_VARIABLE


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Decoder(nn.Module):
    def __init__(self, layers=6):
        super().__init__()
        self.tok_embeddings, self.layers = nn.Embedding(20, 8), nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.output = nn.LayerNorm(8), nn.Linear(8, 20)

    def forward(self, tokens):
        hidden = self.tok_embeddings(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.output(self.norm(hidden)).transpose(1, 2)


STAGES = (
    ["tok_embeddings", "layers.0"],
    ["layers.1", "layers.2"],
    ["layers.3", "layers.4"],
    ["layers.5", "norm", "output", "loss"],
)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    path = tmp_path_factory.mktemp("decoder") / "decoder.swg"
    tokens = torch.randint(20, (4, 5))
    return stagewright.export(Decoder(), (tokens,), loss=nn.CrossEntropyLoss(), path=path)


@pytest.fixture(autouse=True)
def no_program(monkeypatch, tmp_path):
    monkeypatch.delenv(PROGRAM_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def planned(decoder, tmp_path):
    """Writes a plan of the decoder, 1F1B on four devices unless told otherwise."""

    def write(stages=STAGES, **plan):
        nodes = by_module(decoder.graph, *stages)
        options = {"mini_batch": 16, "micro_batch": 2, "orders": one_f_one_b(len(nodes), 8)} | plan
        return write_plan(tmp_path / "plan.json", decoder.graph, nodes, **options)

    return write


def express(framework, plan, exported, out, capsys):
    """(exit code, standard output, standard error)."""
    code = command.main([framework, str(plan), str(exported.path), "-o", str(out)])
    return code, *capsys.readouterr()


def refusal(framework, plan, exported, tmp_path, capsys):
    """The one sentence of a refusal, after which there is no file."""
    code, out, error = express(framework, plan, exported, tmp_path / "refused", capsys)
    assert code == 1 and out == ""
    assert error.startswith("stagewright: ") and error.count("\n") == 1
    assert not list(tmp_path.glob("refused*"))
    return error


def test_megatron_layout(planned, decoder, tmp_path, capsys):
    code, out, _ = express("megatron", planned(), decoder, tmp_path / "arguments", capsys)
    assert code == 0 and "4 ms as planned and 4 ms as written (1.00x)" in out and "not as in the plan" not in out
    words = (tmp_path / "arguments").read_text().split()
    assert dict(zip(words[::2], words[1::2], strict=True)) == {
        "--pipeline-model-parallel-size": "4",
        "--pipeline-model-parallel-layout": "Et|tt|tt|tL",
        "--num-layers": "6",
        "--micro-batch-size": "2",
        "--global-batch-size": "16",
    }


def test_torchtitan_modules_and_order(planned, decoder, tmp_path, capsys):
    assert express("torchtitan", planned(), decoder, tmp_path / "plan.toml", capsys)[0] == 0
    content = tomllib.loads((tmp_path / "plan.toml").read_text())
    assert content["training"] == {"local_batch_size": 16}
    table = content["parallelism"]
    assert table["module_fqns_per_model_part"] == [
        ["tok_embeddings", "layers.0"], ["layers.1", "layers.2"], ["layers.3", "layers.4"],
        ["layers.5", "norm", "output"],
    ]  # fmt: skip
    assert table["pipeline_parallel_degree"] == 4 and table["pipeline_parallel_microbatch_size"] == 2
    rows = open(table["pipeline_parallel_schedule_csv"]).read().splitlines()
    assert rows[3] == ",".join(f"3F{m},3B{m}" for m in range(8))


def test_deepspeed_parts(planned, decoder, tmp_path, capsys):
    assert express("deepspeed", planned(), decoder, tmp_path / "parts.json", capsys)[0] == 0
    content = json.loads((tmp_path / "parts.json").read_text())
    assert content["parts"] == [0, 2, 4, 6, 9] and content["num_stages"] == 4
    assert content["layers"] == ["tok_embeddings", *(f"layers.{i}" for i in range(6)), "norm", "output"]
    assert content["config"] == {
        "train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 8,
    }  # fmt: skip


def test_replicas_divide_a_micro_batch(planned, decoder, tmp_path, capsys):
    plan = planned(devices=[[0, 1], [2, 3], [4, 5], [6, 7]], orders=list(itertools.chain.from_iterable(
        (f"device {2 * s}:{line.partition(':')[2]}", f"device {2 * s + 1}:{line.partition(':')[2]}")
        for s, line in enumerate(one_f_one_b(4, 8))
    )))  # fmt: skip
    assert express("deepspeed", plan, decoder, tmp_path / "parts.json", capsys)[0] == 0
    config = json.loads((tmp_path / "parts.json").read_text())["config"]
    assert config["train_micro_batch_size_per_gpu"] == 1 and config["gradient_accumulation_steps"] == 8


def test_a_layer_that_the_plan_cuts_goes_where_most_of_it_is(planned, decoder, tmp_path, capsys):
    cut = (STAGES[0], [*STAGES[1], "layers.3.up"], ["layers.3.down", "layers.4"], STAGES[3])
    code, out, _ = express("deepspeed", planned(cut), decoder, tmp_path / "parts.json", capsys)
    assert code == 0
    assert "not as in the plan: the plan cuts 'layers.3'; here a layer is whole in one stage" in out
    assert "only the program 'stagewright'" in out
    assert json.loads((tmp_path / "parts.json").read_text())["parts"] == [0, 2, 5, 6, 9]


def test_another_order_than_1f1b_is_told(planned, decoder, tmp_path, capsys):
    gpipe = orders(range(4), 8)
    code, out, _ = express("megatron", planned(orders=gpipe), decoder, tmp_path / "arguments", capsys)
    assert code == 0 and "not as in the plan: the order of passes is 1F1B here" in out
    assert express("torchtitan", planned(orders=gpipe), decoder, tmp_path / "plan.toml", capsys)[0] == 0
    rows = (tmp_path / "plan.csv").read_text().splitlines()
    assert rows[3].split(",")[:8] == [f"3F{m}" for m in range(8)]


def test_an_order_that_blocks_is_refused(planned, decoder, tmp_path, capsys):
    blocked = one_f_one_b(4, 8)[:3] + orders(range(4), 8)[3:]
    assert "ranks wait for each other" in refusal("pipelining", planned(orders=blocked), decoder, tmp_path, capsys)


def test_graphviz(planned, decoder, tmp_path, capsys):
    assert express("graphviz", planned(), decoder, tmp_path / "plan.dot", capsys)[0] == 0
    text = (tmp_path / "plan.dot").read_text()
    edges = re.findall(r"s(\d) -> s(\d) \[label=\"(.*) B\"", text)
    assert edges == [("0", "1", "160"), ("1", "2", "160"), ("2", "3", "160")]
    assert text.count("[label=\"stage") == 4 and "layers.1.up .. layers.2.down" in text


@pytest.mark.parametrize("framework", ["pipelining", "megatron", "torchtitan", "deepspeed"])
def test_what_no_chain_can_do_is_refused(framework, planned, decoder, tmp_path, capsys):
    plan = planned(asynchronous=True)
    assert "never flushes its pipeline" in refusal(framework, plan, decoder, tmp_path, capsys)


def test_a_plan_that_has_to_be_simulated_needs_the_program(planned, decoder, tmp_path, capsys):
    plan = planned(edges=[(0, 2), (1, 2), (2, 3)])
    assert "does not say its cluster" in refusal("pipelining", plan, decoder, tmp_path, capsys)
    code = command.main(["pipelining", str(plan), str(decoder.path), "-o", str(tmp_path / "x"), "--cluster", "cpu:4"])
    assert code == 1 and "no program 'stagewright' on the path" in capsys.readouterr().err


def test_what_is_simulated_is_of_the_plans_precision(planned, decoder, tmp_path, monkeypatch, capsys):
    program = tmp_path / "stagewright"
    program.write_text('#!/bin/sh\necho "$@" >"$0.said"\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv(PROGRAM_VARIABLE, str(program))
    plan = planned(edges=[(0, 2), (1, 2), (2, 3)])
    for precision, content in (("graph", {}), ("bf16", {"precision": "bf16"})):
        plan.write_text(json.dumps(json.loads(plan.read_text()) | content))
        command.main(["pipelining", str(plan), str(decoder.path), "-o", str(tmp_path / "x"), "--cluster", "cpu:4"])
        assert f"--precision {precision} " in (tmp_path / "stagewright.said").read_text()


def test_stages_that_hold_no_layer_or_share_devices_unevenly(planned, decoder, tmp_path, capsys):
    middle = ["layers.1", "layers.2", "layers.3"]
    parts = (["tok_embeddings", "layers.0.up"], ["layers.0.down"], middle, ["layers.4", *STAGES[3]])
    message = refusal("deepspeed", planned(parts), decoder, tmp_path, capsys)
    assert "stage 1 of the plan holds no whole layer" in message
    shared = planned(devices=[0, 1, 2, 0], orders=[
        "device 0: " + " ".join(f"F0.{m}" for m in range(8)) + " " + " ".join(f"F3.{m} B3.{m}" for m in range(8)) + " "
        + " ".join(f"B0.{m}" for m in range(8)),
        *orders(range(4), 8)[1:3],
    ])  # fmt: skip
    assert "4 stages on 3 devices" in refusal("megatron", shared, decoder, tmp_path, capsys)


def test_plan_files_that_are_none(planned, decoder, tmp_path, capsys):
    broken = tmp_path / "broken.json"
    for content, word in [
        ("", "not JSON"),
        ("[]", "holds no plan"),
        ('{"termination": "infeasible", "reason": "too large"}', "holds no plan"),
        ('{"stages": [{}]}', "not a whole plan"),
        ('{"response": {"reason": "too large"}}', "holds no plan: too large"),
    ]:
        broken.write_text(content)
        message = refusal("pipelining", broken, decoder, tmp_path, capsys)
        assert str(broken) in message and word in message
    assert "No such file" in refusal("pipelining", tmp_path / "absent", decoder, tmp_path, capsys)
    other = json.loads(planned().read_text())
    other["stages"][1]["nodes"][0] = "somebody_elses"
    broken.write_text(json.dumps(other))
    assert "is a plan of another graph" in refusal("pipelining", broken, decoder, tmp_path, capsys)


def test_layers_of_modules(decoder):
    assert layer_list(decoder.graph) == "layers"
    for module, layer in {"layers.3.up": "layers.3", "norm": "norm", "": "", "layers": ""}.items():
        assert layer_of(module, "layers") == layer
    for module, layer in {
        "model.layers.3.mlp.up": "model.layers.3", "model.embed_tokens": "model.embed_tokens", "model": "",
    }.items():  # fmt: skip
        assert layer_of(module, "model.layers") == layer
