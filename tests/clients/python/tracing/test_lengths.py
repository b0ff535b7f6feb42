"""Samples of several lengths: one graph for each, the same operators, eager's loss and gradients at every length."""

import copy

import pytest
import torch
from torch import nn
from torch.export import Dim
from safetensors.torch import load_file
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

import plan_examples
import stagewright
from graph_interpreter import Interpreter, parameters_of
from stagewright import DatasetError, ExportError, training
from stagewright.training_data import prepare

WORDS, CLASSES = 20, 5


class Tagger(nn.Module):
    """Positions, attention and a class for every token."""

    def __init__(self, longest=12):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 8)
        self.positions = nn.Parameter(torch.randn(1, longest, 8))
        self.register_buffer("mask", torch.full((longest, longest), float("-inf")).triu(1))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.embed(tokens) + self.positions[:, :length]
        return self.head(self.layer(x, src_mask=self.mask[:length, :length])).transpose(1, 2)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens):
        return self.head(self.lstm(self.embed(tokens))[0]).transpose(1, 2)


class Averaging(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens):
        return self.head(self.embed(tokens).sum(1) / tokens.shape[1] ** 0.5)


def batch_of(length, samples=4, per_token=True):
    shape = (samples, length) if per_token else (samples,)
    return torch.randint(0, WORDS, (samples, length)), torch.randint(0, CLASSES, shape)


def export(model, lengths, tmp_path, per_token=True, **options):
    options.setdefault("dynamic_shapes", {"tokens": {0: Dim("batch"), 1: Dim("time", max=64)}})
    batches = [batch_of(length, per_token=per_token) for length in lengths]
    return stagewright.export(model, batches, loss=nn.CrossEntropyLoss(), path=tmp_path / "model.swg", **options)


def graphs_of(exported):
    graph = stagewright.load_graph(exported.path)
    return {entry.inputs[0].meta.shape[1].offset: entry for entry in [graph, *graph.lengths]}


@pytest.mark.parametrize(("make", "per_token"), [(Tagger, True), (Recurrent, True), (Averaging, False)])
def test_the_graph_of_each_length_has_eagers_loss_and_gradients(make, per_token, tmp_path):
    model = make()
    exported = export(model, [8, 12, 5], tmp_path, per_token)
    graphs = graphs_of(exported)
    assert list(graphs) == [12, 8, 5], "the longest samples first"
    for length, graph in graphs.items():
        tokens, target = batch_of(length, 3, per_token)
        reference = copy.deepcopy(model)
        expected = nn.functional.cross_entropy(reference(tokens), target)
        expected.backward()
        interpreter = Interpreter(graph, parameters_of(graph, load_file(exported.weights_path)))
        loss, _ = interpreter.run({"tokens": tokens, "target": target}, 3)
        torch.testing.assert_close(loss, expected)
        for name, gradient in interpreter.gradients(loss).items():
            torch.testing.assert_close(gradient, dict(reference.named_parameters())[name].grad)


def test_all_graphs_have_the_same_operators(tmp_path):
    first, *others = graphs_of(export(Tagger(), [12, 7], tmp_path)).values()
    assert len(others) == 1
    assert [node.target for node in others[0].nodes] == [node.target for node in first.nodes]
    assert not others[0].lengths


def test_a_loader_yields_the_lengths(tmp_path):
    batches = [batch_of(length, per_token=False) for length in (6, 9, 6, 9, 9)]
    loader = DataLoader(batches, batch_size=None)
    shapes = ({0: Dim.DYNAMIC, 1: Dim.AUTO},)
    exported = stagewright.export(
        Averaging(), loader, loss=nn.CrossEntropyLoss(), dynamic_shapes=shapes, path=tmp_path / "model.swg"
    )
    assert list(graphs_of(exported)) == [9, 6]


def test_without_dynamic_shapes_there_is_one_graph(tmp_path):
    exported = stagewright.export(Tagger(), batch_of(6), loss=nn.CrossEntropyLoss(), path=tmp_path / "model.swg")
    assert list(graphs_of(exported)) == [6]


def test_what_nothing_reads_makes_no_length(tmp_path):
    class Ignoring(Averaging):
        def forward(self, tokens, comment):
            return super().forward(tokens)

    batches = [(batch_of(6)[0], torch.zeros(4, n), torch.zeros(4, dtype=torch.int64)) for n in (3, 5)]
    exported = stagewright.export(
        Ignoring(), batches, loss=nn.CrossEntropyLoss(), dynamic_shapes=Dim.AUTO, path=tmp_path / "model.swg"
    )
    assert not stagewright.load_graph(exported.path).lengths


class Looping(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 8)
        self.cell = nn.GRUCell(8, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens):
        x = self.embed(tokens)
        state = x[:, 0]
        for t in range(tokens.shape[1]):
            state = self.cell(x[:, t], state)  # A turn for every token.
        return self.head(state)


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens):
        x = self.embed(tokens).mean(1)
        if tokens.shape[1] > 6:
            x = torch.relu(x)
        return self.head(x)


@pytest.mark.parametrize(("make", "line"), [(Looping, "self.cell(x[:, t], state)"), (Branching, "x = torch.relu(x)")])
def test_a_model_whose_structure_differs_is_refused_with_its_line(make, line, tmp_path):
    with pytest.raises(ExportError) as error:
        export(make(), [5, 8], tmp_path, per_token=False)
    text = str(error.value)
    assert "another graph for samples of tokens[5], target[] than of tokens[8], target[]" in text
    assert line in text and "test_lengths.py" in text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({"tokens": {0: Dim("batch")}}, "dimension 1 of 'tokens' has sizes 5 and 8, but dynamic_shapes does not let it"),
        ({"words": {1: Dim("time")}}, "dynamic_shapes names 'words', which is no argument of forward"),
        ({"tokens": {1: Dim("time", max=6)}}, "dimension 1 of 'tokens' is 8, outside the range of"),
        ({"tokens": {1: Dim.STATIC}}, "does not let it change"),
        ((None, None), "forward has tokens"),
    ],
)
def test_lengths_that_dynamic_shapes_does_not_allow_are_refused(shapes, says, tmp_path):
    with pytest.raises(ExportError) as error:
        export(Averaging(), [5, 8], tmp_path, per_token=False, dynamic_shapes=shapes)
    assert says in str(error.value)


def test_sizes_that_dynamic_shapes_ties_are_equal(tmp_path):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, CLASSES)

        def forward(self, a, b):
            return self.head(a.mean(1) + b.mean(1))

    time = Dim("time")
    batches = [(torch.randn(4, n, 4), torch.randn(4, m, 4), torch.randint(0, CLASSES, (4,))) for n, m in [(3, 6), (5, 9)]]
    for shapes, says in (
        ({"a": {1: time}, "b": {1: time}}, "dimension 1 of 'b' is 6, but time is 3 elsewhere"),
        ({"a": {1: time}, "b": {1: 2 * time}}, "dimension 1 of 'b' is 9, not 2*time with time = 5"),
    ):
        with pytest.raises(ExportError) as error:
            stagewright.export(
                Two(), batches, loss=nn.CrossEntropyLoss(), dynamic_shapes=shapes, path=tmp_path / "two.swg"
            )
        assert says in str(error.value)


def test_too_many_lengths_are_refused_before_any_is_captured(tmp_path):
    with pytest.raises(ExportError) as error:
        export(Tagger(200), range(2, 70), tmp_path)
    assert "samples of 68 different shapes" in str(error.value)


def data_of(sizes):
    """As many samples of each length."""
    return ConcatDataset([TensorDataset(*batch_of(length, count)) for length, count in sizes])


def files_of(data):
    parts = [load_file(file) for file in sorted(training.pathlib.Path(data.path).glob("*.safetensors"))]
    return [tuple(part["tokens"].shape) for part in parts], parts


def test_a_data_set_of_several_lengths_is_a_file_or_more_of_each(tmp_path):
    sizes = [(5, 6), (8, 4), (5, 2)]
    data = prepare(data_of(sizes), Tagger(), tmp_path / "data")
    assert files_of(data)[0] == [(8, 5), (4, 8)]
    assert [(length.shapes, length.samples) for length in data.lengths] == [
        ("tokens[5], target[5]", 8),
        ("tokens[8], target[8]", 4),
    ]
    again = prepare(data.path, Tagger(), tmp_path / "unused")
    assert [(length.shapes.split(", target")[0], length.samples) for length in again.lengths] == [
        ("target[5], tokens[5]", 8),
        ("target[8], tokens[8]", 4),
    ]


def test_without_shuffling_the_samples_keep_their_order(tmp_path):
    whole = data_of([(5, 6), (8, 4), (5, 2)])
    for name, form in (("samples", whole), ("batches", DataLoader([whole[i] for i in range(12)], batch_size=1))):
        data = prepare(form, Tagger(), tmp_path / name, keep_order=True)
        shapes, parts = files_of(data)
        assert shapes == [(6, 5), (4, 8), (2, 5)]
        stored = [tokens for part in parts for tokens in part["tokens"]]
        assert all(torch.equal(tokens, whole[i][0]) for i, tokens in enumerate(stored))


def test_train_captures_every_length_of_its_data(tmp_path):
    data = training._data(data_of([(5, 6), (8, 4)]), Tagger(), tmp_path / "data", 4, keep_order=False)
    path = tmp_path / "export" / "model.swg"
    exported = training._export(Tagger(), data, nn.CrossEntropyLoss(), path, Dim.AUTO)
    assert list(graphs_of(exported)) == [8, 5]
    with pytest.raises(ExportError, match="dynamic_shapes does not let it change"):
        training._export(Tagger(), data, nn.CrossEntropyLoss(), path, {"tokens": None})


def test_a_length_with_too_few_samples_is_named(tmp_path):
    with pytest.raises(DatasetError) as error:
        training._data(data_of([(5, 6), (8, 3)]), Tagger(), tmp_path / "data", 4, keep_order=False)
    assert str(error.value) == "the data set has 3 samples of tokens[8], target[8], fewer than a mini-batch of 4"


def test_a_plan_has_the_figures_of_every_length():
    proto = plan_examples.proto()
    length = proto.lengths.add(samples="tokens[5]")
    length.evaluation.iteration_ns = 2_000_000
    length.evaluation.samples_per_second = 8000
    length.evaluation.devices.add(peak_memory_bytes=1 << 20)
    plan = plan_examples.plan_from_proto(proto, plan_examples.graph())
    assert [(of.samples, of.step_seconds, of.peak_memory_bytes) for of in plan.lengths] == [("tokens[5]", 0.002, 1 << 20)]
    assert "2 ms a step of samples tokens[5]" in repr(plan)
