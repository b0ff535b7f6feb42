"""Every kind of model must come out of capture computing what it computed before."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from faithful import export_and_compare


def classification(make_input, classes):
    def make_batch(samples):
        return make_input(samples), torch.randint(0, classes, (samples,))

    return make_batch


def targets_of(exported):
    return [node.target for node in exported.graph.nodes]


def test_chain(tmp_path):
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    batch = classification(lambda n: {"input": torch.randn(n, 6, dtype=torch.float64)}, 3)
    exported = export_and_compare(model, batch, nn.CrossEntropyLoss(), tmp_path)
    assert targets_of(exported) == [
        "aten.linear.default", "aten.tanh.default", "aten.linear.default", "aten.cross_entropy_loss.default",
    ]  # fmt: skip
    assert [node.module for node in exported.graph.nodes] == ["0", "1", "2", "loss"]
    assert [p.name for p in exported.graph.parameters] == ["0.weight", "0.bias", "2.weight", "2.bias"]


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(4, 5) for _ in range(4))
        self.head = nn.Linear(20, 3)

    def forward(self, x):
        parts = [F.relu(branch(part)) for branch, part in zip(self.branches, x.chunk(4, dim=1))]
        return self.head(torch.cat(parts, dim=1))


def test_branches_use_outputs_of_one_node(tmp_path):
    exported = export_and_compare(
        Branches(), classification(lambda n: {"x": torch.randn(n, 16)}, 3), nn.CrossEntropyLoss(), tmp_path
    )
    chunk = next(i for i, node in enumerate(exported.graph.nodes) if node.target == "aten.chunk.default")
    used = {
        argument.value.output
        for node in exported.graph.nodes
        for argument in node.args
        if argument.HasField("value") and argument.value.node == chunk
    }
    assert used == {0, 1, 2, 3}
    assert len(exported.graph.nodes[chunk].outputs) == 4


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.act(self.first(x))
        z = self.second(y)
        z += y
        return self.head(self.act(z))


def test_in_place_operators_become_pure(tmp_path):
    exported = export_and_compare(
        Residual(), classification(lambda n: {"x": torch.randn(n, 6)}, 2), nn.CrossEntropyLoss(), tmp_path
    )
    assert "aten.relu.default" in targets_of(exported) and "aten.add.Tensor" in targets_of(exported)
    assert not [t for t in targets_of(exported) if t.split(".")[1].endswith("_")]


class WritesThroughViews(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.drop = nn.Linear(6, 6), nn.Linear(6, 2), nn.Dropout(0.3)

    def forward(self, x):
        y = self.drop(self.body(x))
        y[:, 0] += 1.0
        y.view(-1)[:] *= 2.0
        return self.head(y)


def test_writes_through_views_are_functionalised(tmp_path):
    exported = export_and_compare(
        WritesThroughViews(), classification(lambda n: {"x": torch.randn(n, 6)}, 2), nn.CrossEntropyLoss(), tmp_path
    )
    assert "aten.dropout.default" in targets_of(exported)


class TiedLanguageModel(nn.Module):
    """A causal transformer in the style of GPT, its output tied to the embedding."""

    def __init__(self, words=30, width=16, heads=4, length=10):
        super().__init__()
        self.token, self.position = nn.Embedding(words, width), nn.Embedding(length, width)
        self.norm1, self.norm2, self.last = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.token.weight
        self.heads = heads
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, ids):
        b, t = ids.shape
        x = self.drop(self.token(ids) + self.position(torch.arange(t, device=ids.device)))
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, -1)) * self.scale
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return self.head(self.last(x))


def token_loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def token_batch(samples):
    return {"ids": torch.randint(0, 30, (samples, 10))}, torch.randint(0, 30, (samples, 10))


def test_tied_language_model(tmp_path):
    exported = export_and_compare(TiedLanguageModel(), token_batch, token_loss, tmp_path)
    by_name = {p.name: p for p in exported.graph.parameters}
    assert list(by_name["token.weight"].aliases) == ["head.weight"] and "head.weight" not in by_name
    assert by_name["scale"].buffer and not by_name["scale"].trainable
    assert "aten.scaled_dot_product_attention.default" in targets_of(exported)


def test_same_tensor_as_input_and_target(tmp_path):
    """Auto-regressive examples often pass one tensor twice; the two stay separate inputs."""

    def batch(samples):
        ids = torch.randint(0, 30, (samples, 10))
        return {"ids": ids}, ids

    exported = export_and_compare(TiedLanguageModel(), batch, token_loss, tmp_path)
    assert [entry.name for entry in exported.graph.inputs] == ["ids", "target"]


def test_encoder_layer(tmp_path):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            return self.head(self.encoder(x, mask=mask, is_causal=True).mean(dim=1))

    batch = classification(lambda n: {"x": torch.randn(n, 5, 8)}, 3)
    export_and_compare(Encoder(), batch, nn.CrossEntropyLoss(), tmp_path)


class ConvNet(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, stride=2)
        self.norm = norm
        self.act = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.drop = nn.Dropout2d(0.25)
        self.head = nn.Linear(8, 5)

    def forward(self, image):
        x = self.act(self.norm(self.conv1(image)))
        x = self.drop(self.pool(x))
        x = self.act(self.conv2(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def image_batch(samples):
    return {"image": torch.randn(samples, 1, 12, 12)}, torch.randint(0, 5, (samples,))


def test_convolutions_and_feature_dropout(tmp_path):
    exported = export_and_compare(ConvNet(nn.GroupNorm(2, 4)), image_batch, nn.CrossEntropyLoss(), tmp_path)
    assert "aten.feature_dropout.default" in targets_of(exported)
    assert not any(node.batch_dependent for node in exported.graph.nodes)


def test_batch_norm_is_marked_and_warned_about(tmp_path):
    with pytest.warns(UserWarning, match="norm: batch normalisation .* micro-batch"):
        exported = export_and_compare(
            ConvNet(nn.BatchNorm2d(4)), image_batch, nn.CrossEntropyLoss(), tmp_path, batch_sizes=(2, 3, 7)
        )
    assert [n.target for n in exported.graph.nodes if n.batch_dependent] == ["aten.batch_norm.default"]
    names = {p.name for p in exported.graph.parameters}
    assert {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"} <= names


def test_frozen_batch_norm_is_not_batch_dependent(tmp_path):
    model = ConvNet(nn.BatchNorm2d(4))
    model.norm.eval()
    exported = export_and_compare(model, image_batch, nn.CrossEntropyLoss(), tmp_path)
    assert not any(node.batch_dependent for node in exported.graph.nodes)


class FrozenBranch(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen, self.live, self.head = nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(6, 2)
        self.unused = nn.Linear(2, 2)
        self.frozen.requires_grad_(False)

    def forward(self, a, b):
        with torch.no_grad():
            seen = self.live(a) * 0.5
        return self.head(torch.cat([self.frozen(a) + seen, self.live(b)], dim=-1))


def test_frozen_and_unused_parameters_and_no_grad(tmp_path):
    def batch(samples):
        inputs = {"a": torch.randn(samples, 4), "b": torch.randn(samples, 4)}
        return inputs, torch.randn(samples, 2)

    exported = export_and_compare(FrozenBranch(), batch, nn.MSELoss(), tmp_path)
    trainable = {p.name for p in exported.graph.parameters if p.trainable}
    assert trainable == {"live.weight", "live.bias", "head.weight", "head.bias"}
    assert {"frozen.weight", "unused.weight"} <= {p.name for p in exported.graph.parameters}
    assert [entry.name for entry in exported.graph.inputs] == ["a", "b", "target"]


class Constants(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 3)
        self.weights = torch.tensor([1.0, 2.0, 3.0])
        self.register_buffer("offset", torch.ones(3), persistent=False)

    def forward(self, x):
        return self.body(x) * self.weights + self.offset + torch.tensor([0.5]) + torch.zeros(x.shape[0], 3)


def test_constants_and_buffers(tmp_path):
    def batch(samples):
        return {"x": torch.randn(samples, 3)}, torch.randn(samples, 3)

    exported = export_and_compare(Constants(), batch, nn.MSELoss(reduction="sum"), tmp_path)
    buffers = {p.name for p in exported.graph.parameters if p.buffer}
    assert {"weights", "offset"} <= buffers and len(buffers) == 3


def test_batch_folded_into_another_dimension(tmp_path):
    class Folded(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 3)

        def forward(self, x):
            flat = x.reshape(-1, 4)
            return self.body(flat[: flat.shape[0]]).view(x.shape[0], x.shape[1] * 3)

    exported = export_and_compare(
        Folded(), lambda n: ({"x": torch.randn(n, 5, 4)}, torch.randn(n, 15)), nn.MSELoss(), tmp_path
    )
    linear = next(node for node in exported.graph.nodes if node.target == "aten.linear.default")
    assert (linear.outputs[0].shape[0].scale, linear.outputs[0].shape[0].offset) == (5, 0)


def test_batch_in_another_dimension(tmp_path):
    class TimeFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 3)

        def forward(self, x):
            return self.body(x)

    exported = export_and_compare(
        TimeFirst(), lambda n: ({"x": torch.randn(5, n, 4)}, torch.randn(5, n, 3)), nn.MSELoss(), tmp_path, batch_dim=1
    )
    assert [(s.scale, s.offset) for s in exported.graph.inputs[0].meta.shape] == [(0, 5), (1, 0), (0, 4)]


def test_default_dtype_is_made_explicit(tmp_path):
    class Factory(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(3, 3)

        def forward(self, x):
            return self.body(x) + torch.ones(3)

    torch.set_default_dtype(torch.float64)
    try:
        exported_model = Factory()
        batch = lambda n: ({"x": torch.randn(n, 3, dtype=torch.float64)}, torch.randn(n, 3, dtype=torch.float64))
        inputs, target = batch(4)
        import stagewright

        exported = stagewright.export(
            exported_model, inputs, loss=nn.MSELoss(), targets=target, path=tmp_path / "model.swg"
        )
    finally:
        torch.set_default_dtype(torch.float32)
    from faithful import compare
    from graph_interpreter import Interpreter

    samples = 3
    inputs, target = batch(samples)
    loss, _ = Interpreter.load(exported).run({**inputs, "target": target}, samples)
    assert loss.dtype == torch.float64
