"""Plans trained by torch.distributed.pipelining, in two processes and double precision, beside the plain module."""

import copy
import pathlib
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist
from plan_files import by_module, write_plan
from torch import nn

import stagewright
from safetensors.torch import load_file, save_file
from stagewright.frameworks import __main__ as command
from stagewright.frameworks.training import Pipeline
from stagewright.proto import pb

RANKS = pathlib.Path(__file__).with_name("pipelining_ranks.py")
STEPS, LEARNING_RATE = 3, 0.1
SECONDS = 400


class Branches(nn.Module):
    """Two branches and a residual value that goes around the middle stage."""

    def __init__(self):
        super().__init__()
        self.stem, self.left, self.right = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        stem = torch.tanh(self.stem(x))
        left = torch.tanh(self.left(stem))
        return self.head(torch.cat([left, torch.tanh(self.right(stem)), stem], 1))


class Join(nn.Linear):
    def forward(self, *parts):
        return super().forward(torch.cat(parts, 1))


class Towers(nn.Module):
    """Two branches with an input each; the second one reads nothing of the first, which passes through it."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.head = nn.Linear(6, 8), nn.Linear(6, 8), Join(16, 3)

    def forward(self, user, item):
        return self.head(torch.tanh(self.left(user)), torch.tanh(self.right(item)))


class Tied(nn.Module):
    """The embedding is the output projection, too; a mask of integers crosses a border; the first stage is frozen."""

    def __init__(self):
        super().__init__()
        self.frozen, self.embed = nn.Embedding(11, 8), nn.Embedding(11, 8)
        self.middle, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)
        self.out = nn.Linear(8, 11, bias=False)
        self.out.weight = self.embed.weight
        self.frozen.weight.requires_grad_(False)
        self.register_buffer("scale", torch.full((8,), 0.5))

    def forward(self, tokens):
        frozen = self.frozen(tokens)
        real = (tokens > 2).long()
        hidden = torch.tanh(self.middle(self.embed(tokens) + frozen * self.scale))
        hidden = self.norm(hidden) * real.unsqueeze(-1)
        return self.out(hidden).transpose(1, 2)


def real(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def export_case(folder, model, inputs, loss, batches, stages, **plan):
    """Writes the files of a case; returns what the plain module does with its batches."""
    folder.mkdir()
    exported = stagewright.export(model, inputs, loss=loss, path=folder / "model.swg")
    write_case(folder, exported.graph, batches, stages, **plan)
    return plain(model, loss, batches)


def write_case(folder, graph, batches, stages, **plan):
    torch.save(batches, folder / "data.pt")
    write_plan(folder / "plan.json", graph, by_module(graph, *stages), **plan)
    arguments = ["pipelining", folder / "plan.json", folder / "model.swg", "-o", folder / "schedule.csv"]
    assert command.main([str(a) for a in arguments]) == 0


def plain(model, loss, batches):
    """(losses, gradients of the last step, state) of training the module as it is."""
    model = copy.deepcopy(model)
    update = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=LEARNING_RATE)
    losses = []
    for batch in batches:
        update.zero_grad()
        value = loss(model(*[t for name, t in batch.items() if name != "target"]), batch["target"])
        value.backward()
        losses.append(value.item())
        update.step()
    return losses, {name: p.grad for name, p in model.named_parameters()}, model.state_dict()


def branch_batches():
    return [{"x": real(12, 6), "target": torch.randint(3, (12,))} for _ in range(STEPS)]


def tower_batches():
    return [
        {"user": real(12, 6), "item": real(12, 6), "target": torch.randint(3, (12,))} for _ in range(STEPS)
    ]  # fmt: skip


def token_batches():
    return [
        {"tokens": torch.randint(11, (12, 5)), "target": torch.randint(11, (12, 5))} for _ in range(STEPS)
    ]  # fmt: skip


BRANCHES = (["stem"], ["left"], ["right", "head", "loss"])
TIED = (["frozen"], ["embed", "middle"], ["norm", "out", "loss"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(what the plain modules did, what both ranks did), by case."""
    torch.manual_seed(0)
    folder, expected = tmp_path_factory.mktemp("pipelining"), {}
    x, tokens = real(4, 6), torch.randint(11, (4, 5))
    for name, options in {
        "chain": {"devices": [0, 1, 1]},
        "v": {"devices": [0, 1, 0]},
        "halves": {"devices": [0, 1, 0], "split": True},
        "halves_chain": {"devices": [0, 1, 1], "split": True},
    }.items():
        expected[name] = export_case(
            folder / name, Branches().double(), (x,), nn.CrossEntropyLoss(), branch_batches(), BRANCHES,
            mini_batch=12, micro_batch=4, **options,
        )  # fmt: skip
    for name, options in {"towers": {}, "towers_halves": {"split": True}}.items():
        expected[name] = export_case(
            folder / name, Towers().double(), (x, x), nn.CrossEntropyLoss(), tower_batches(),
            (["left"], ["right"], ["head", "loss"]), mini_batch=12, micro_batch=4, devices=[0, 1, 1], **options,
        )  # fmt: skip
    for name, options in {"tied": {}, "tied_halves": {"split": True}, "recomputed": {"recompute": [0, 1, 2]}}.items():
        expected[name] = export_case(
            folder / name, Tied().double(), (tokens,), nn.CrossEntropyLoss(reduction="sum" if options else "mean"),
            token_batches(), TIED, mini_batch=12, micro_batch=3, devices=[0, 0, 1], **options,
        )  # fmt: skip
    (folder / "replicated").mkdir()
    (folder / "replicated" / "replicated").touch()
    model, batches = Branches().double(), branch_batches()
    exported = stagewright.export(model, (x,), loss=nn.MSELoss(), path=folder / "replicated" / "model.swg")
    for batch in batches:
        batch["target"] = real(12, 3)
    write_case(
        folder / "replicated", exported.graph, batches, BRANCHES, mini_batch=12, micro_batch=4,
        devices=[[0, 1], [0, 1], [0, 1]],
        orders=[f"device {d}: F0.0 F1.0 F2.0 B2.0 B1.0 B0.0 F0.1 F0.2 F1.1 F2.1 B2.1 F1.2 F2.2 B2.2 B1.1 B1.2 B0.1 B0.2"
                for d in range(2)],
    )  # fmt: skip
    expected["replicated"] = plain(model, nn.MSELoss(), batches)
    expected["totals"] = totals_case(folder / "totals")
    run_ranks(folder)
    return expected, {name: [torch.load(folder / name / f"rank{r}.pt") for r in range(2)] for name in expected}


def run_ranks(folder):
    """Both processes at once; none outlives the call, and what they print is in the message if one fails."""
    logs = [folder / f"rank{rank}.log" for rank in range(2)]
    processes = []
    try:
        for rank, log in enumerate(logs):
            with log.open("w") as file:
                command_line = [sys.executable, RANKS, folder, str(rank), "2"]
                processes.append(subprocess.Popen(command_line, stdout=file, stderr=subprocess.STDOUT))
        deadline = time.monotonic() + SECONDS
        codes = [process.wait(max(0.0, deadline - time.monotonic())) for process in processes]
    except subprocess.TimeoutExpired:
        codes = ["too slow"]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert codes == [0, 0], "\n".join(log.read_text() for log in logs)


def totals_case(folder):
    """A loss that divides by a sum over the whole mini-batch, and a buffer that training changes."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
            self.register_buffer("steps", torch.zeros(2))

        def forward(self, x):
            return self.second(torch.tanh(self.first(x))) + self.steps.sum()

    def summed(output, target):
        return ((output - target) ** 2).sum()

    model, batches = Counting().double(), [{"x": real(12, 6), "target": real(12, 3).abs()} for _ in range(STEPS)]
    folder.mkdir()
    exported = stagewright.export(model, (real(4, 6),), loss=summed, targets=real(4, 3), path=folder / "model.swg")
    graph = exported.graph
    target = next(i for i, entry in enumerate(graph.inputs) if entry.name == "target")
    steps = next(i for i, p in enumerate(graph.parameters) if p.name == "steps")
    total = graph.totals.nodes.add(name="weight", target="aten.sum.default")
    total.args.add(input=target)
    total.outputs.add(dtype=pb.DTYPE_FLOAT64)
    graph.totals.values.add(node=0)
    divided = graph.nodes.add(name="divided", target="aten.div.Tensor", module="loss")
    divided.args.add().value.CopyFrom(graph.loss)
    divided.args.add(total=0)
    divided.outputs.add(dtype=pb.DTYPE_FLOAT64)
    graph.loss.node = len(graph.nodes) - 1
    grown = graph.nodes.add(name="grown", target="aten.add.Scalar", module="second")
    grown.args.add(parameter=steps)
    grown.args.add().integer.offset = 1
    grown.outputs.add(dtype=pb.DTYPE_FLOAT64).shape.add(offset=2)
    graph.state_updates.add(parameter=steps).value.node = len(graph.nodes) - 1
    stagewright.save_graph(graph, folder / "model.swg")
    write_case(folder, graph, batches, (["first"], ["second", "loss"]), mini_batch=12, micro_batch=4)

    losses, update = [], torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for batch in batches:
        update.zero_grad()
        value = summed(model(batch["x"]), batch["target"]) / batch["target"].sum()
        value.backward()
        losses.append(value.item())
        update.step()
        model.steps += 1
    return losses, {name: p.grad for name, p in model.named_parameters()}, model.state_dict()


CASES = [
    "chain", "v", "halves", "halves_chain", "towers", "towers_halves", "tied", "tied_halves", "recomputed",
    "replicated", "totals",
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_losses_gradients_and_states_are_the_plain_modules(trained, case):
    (losses, gradients, state), ranks = trained[0][case], trained[1][case]
    found = [rank["losses"] for rank in ranks if rank["losses"][0] is not None]
    for mine in found:
        assert mine == pytest.approx(losses, rel=1e-9)
    assert len(found) == (2 if case == "replicated" else 1)
    joined = {name: tensor for rank in ranks for name, tensor in rank["state"].items()}
    assert sorted(joined) == sorted(state)
    for name, tensor in state.items():
        torch.testing.assert_close(joined[name], tensor, rtol=1e-9, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")
    for rank in ranks:
        for name, gradient in rank["gradients"].items():
            if gradients[name] is None:
                assert gradient is None, name
            else:
                torch.testing.assert_close(gradient, gradients[name], rtol=1e-9, atol=1e-12)


def test_tied_parameters_stay_equal_on_all_ranks(trained):
    first, second = (rank["state"] for rank in trained[1]["tied"])
    assert torch.equal(first["embed.weight"], second["out.weight"])


def test_a_rank_reads_only_the_inputs_of_its_stages(trained):
    assert [rank["inputs"] for rank in trained[1]["chain"]] == [["x"], ["target"]]
    assert [rank["inputs"] for rank in trained[1]["totals"]] == [["x"], ["target"]]


@pytest.fixture
def alone(tmp_path):
    """A case of one rank, in a group of this process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    batches = branch_batches()
    expected = export_case(
        tmp_path / "case", Branches().double(), (real(4, 6),), nn.CrossEntropyLoss(), batches, BRANCHES,
        mini_batch=12, micro_batch=4, devices=[0, 0, 0],
    )  # fmt: skip
    yield tmp_path / "case", batches, expected
    dist.destroy_process_group()


def test_gradients_add_up_until_they_are_cleared(alone):
    case, batches, (losses, _, _) = alone
    pipeline = Pipeline(case / "schedule.csv", case / "model.swg", weights=case / "model.safetensors")
    assert pipeline.step(batches[0]) == pytest.approx(losses[0], rel=1e-9)
    once = [parameter.grad.clone() for parameter in pipeline.parameters()]
    assert pipeline.step(batches[0]) == pytest.approx(losses[0], rel=1e-9)
    for parameter, gradient in zip(pipeline.parameters(), once, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * gradient)


def test_state_dicts_are_the_models(alone):
    case, batches, (losses, _, _) = alone
    pipeline = Pipeline(case / "schedule.csv", case / "model.swg")
    assert pipeline.step(batches[0]) != pipeline.step(batches[0]), "without weights a loss is not a number"
    model = Branches().double()
    for module in pipeline.modules:
        module.load_state_dict({name: model.state_dict()[name] for name in module.state_dict()})
    model.load_state_dict(pipeline.state_dict())
    plain_loss = nn.functional.cross_entropy(model(batches[0]["x"]), batches[0]["target"]).item()
    assert pipeline.step(batches[0]) == pytest.approx(plain_loss, rel=1e-9)


def test_bad_batches_weights_and_groups_are_named(alone, tmp_path):
    case, batches, _ = alone
    pipeline = Pipeline(case / "schedule.csv", case / "model.swg", weights=case / "model.safetensors")
    with pytest.raises(stagewright.DatasetError, match="the batch has no tensor 'target'; this process reads target, x"):
        pipeline.step({"x": batches[0]["x"]})
    with pytest.raises(stagewright.DatasetError, match=r"'target' is torch.int64 \[8\]; .* torch.int64 \[12\]"):
        pipeline.step({"x": batches[0]["x"][:8], "target": batches[0]["target"][:8]})
    weights = load_file(case / "model.safetensors")
    save_file({name: t for name, t in weights.items() if name != "left.bias"}, tmp_path / "less.safetensors")
    with pytest.raises(stagewright.CheckpointError, match="less.safetensors: no tensor 'left.bias'"):
        pipeline.load_weights(tmp_path / "less.safetensors")
    stages = case / "schedule.stages.json"
    stages.write_text(stages.read_text().replace('"cpu0"', '"cpu0", "cpu1"'))
    with pytest.raises(ValueError, match="data_parallel_group: 1 processes, the plan has 2 replicas"):
        Pipeline(case / "schedule.csv", case / "model.swg")
    stages.write_text(stages.read_text().replace('"linear"', '"elsewhere"'))
    with pytest.raises(stagewright.PlanFileError, match="schedule.stages.json: not the stages of a schedule of 'model'"):
        Pipeline(case / "schedule.csv", case / "model.swg")
