"""Every kind of model must come out of capture computing what it computed before."""

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from safetensors.torch import load_file
from torch import nn

import stagewright
from faithful import export_and_compare
from graph_interpreter import Interpreter
from stagewright.proto import pb


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
        "aten.div.Tensor",
    ]  # fmt: skip
    assert [node.module for node in exported.graph.nodes] == ["0", "1", "2", "loss", "loss"]
    assert [p.name for p in exported.graph.parameters] == ["0.weight", "0.bias", "2.weight", "2.bias"]


class Windowed(nn.Module):
    """Combines masks and integers as Python does, and fills memory that it asks for empty."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        places = torch.arange(6)
        near = (places[:, None] >= places) & (places[:, None] - places < 3) | (places[:, None] == 0) ^ (places == 5)
        order = torch.empty_like(places)
        order[places.flip(0)] = (places << 1 >> 1) & 7
        room = x.new_empty(x.shape)
        room[:] = x
        other = torch.empty(x.shape[0], 6)
        other.copy_(x)
        return self.head((room + other)[:, order] @ near.to(x.dtype))


def test_operators_that_graphs_have_by_other_names(tmp_path):
    export_and_compare(
        Windowed(), classification(lambda n: {"x": torch.randn(n, 6)}, 3), nn.CrossEntropyLoss(), tmp_path
    )


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


def test_batch_norm_is_marked(tmp_path):
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

    model, x, y = TimeFirst(), torch.randn(5, 4, 4), torch.randn(5, 4, 3)
    exported = stagewright.export(model, x, loss=nn.MSELoss(), targets=y, batch_dim=1, path=tmp_path / "model.swg")
    for entry, last in zip(exported.graph.inputs, (4, 3)):
        assert [(s.scale, s.offset) for s in entry.meta.shape] == [(1, 0), (0, 5), (0, last)]
    stagewright.save_dataset(tmp_path / "data.safetensors", batch_dim=1, x=x[:, :3], target=y[:, :3])
    loss, prediction = Interpreter.load(exported).run(load_file(tmp_path / "data.safetensors"), 3)
    torch.testing.assert_close(loss, F.mse_loss(model(x[:, :3]), y[:, :3]))
    torch.testing.assert_close(prediction, model(x[:, :3]).movedim(1, 0))


def test_default_dtype_is_made_explicit(tmp_path):
    class Factory(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(3, 3)

        def forward(self, x):
            return self.body(x) + torch.ones(3)

    def batch(n):
        return {"x": torch.randn(n, 3, dtype=torch.float64)}, torch.randn(n, 3, dtype=torch.float64)

    torch.set_default_dtype(torch.float64)
    try:
        inputs, target = batch(4)
        exported = stagewright.export(Factory(), inputs, loss=nn.MSELoss(), targets=target, path=tmp_path / "model.swg")
    finally:
        torch.set_default_dtype(torch.float32)
    samples = 3
    inputs, target = batch(samples)
    loss, _ = Interpreter.load(exported).run({**inputs, "target": target}, samples)
    assert loss.dtype == torch.float64


class Attention(nn.Module):
    def __init__(self, causal, masked):
        super().__init__()
        self.causal, self.masked = causal, masked
        self.qkv, self.head = nn.Linear(8, 24), nn.Linear(8, 3)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        mask = None
        if self.masked == "bool":
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(1)
        elif self.masked == "float":
            mask = torch.linspace(0, 1, x.shape[1])
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.3, is_causal=self.causal)
        return self.head(y.transpose(1, 2).flatten(2).mean(1))


@pytest.mark.parametrize("causal, masked", [(False, None), (True, None), (False, "bool"), (False, "float")])
def test_dropout_inside_attention_is_written_out(causal, masked, tmp_path):
    batch = classification(lambda n: {"x": torch.randn(n, 5, 8)}, 3)
    exported = export_and_compare(Attention(causal, masked), batch, nn.CrossEntropyLoss(), tmp_path)
    assert "aten.dropout.default" in targets_of(exported)
    assert "aten.scaled_dot_product_attention.default" not in targets_of(exported)


def test_encoder_layer_with_its_default_dropout(tmp_path):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.layer(x).mean(dim=1))

    batch = classification(lambda n: {"x": torch.randn(n, 5, 8)}, 3)
    exported = export_and_compare(Encoder(), batch, nn.CrossEntropyLoss(), tmp_path)
    assert targets_of(exported).count("aten.dropout.default") == 4


def test_recurrent(tmp_path):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.gru = nn.LSTM(4, 6, 2, batch_first=True), nn.GRU(6, 5, batch_first=True)
            self.head = nn.Linear(5, 3)

        def forward(self, x):
            return self.head(self.gru(self.lstm(x)[0])[0][:, -1])

    batch = classification(lambda n: {"x": torch.randn(n, 7, 4)}, 3)
    exported = export_and_compare(Recurrent(), batch, nn.CrossEntropyLoss(), tmp_path)
    lstm = next(node for node in exported.graph.nodes if node.target == "aten.lstm.input")
    assert len(lstm.outputs) == 3


def test_embedding_bag_and_nested_inputs(tmp_path):
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(20, 4, mode="sum") for _ in range(2))
            self.head = nn.Linear(8 + 3, 2)

        def forward(self, dense, sparse, *, scale=1.0):
            parts = [table(ids) for table, ids in zip(self.tables, sparse["ids"])]
            return self.head(torch.cat([dense * scale, *parts], dim=1))

    def ids(n):
        return torch.randint(0, 20, (n, 5))

    model = Sparse()
    example = {"dense": torch.randn(4, 3), "sparse": {"ids": [ids(4), ids(4)]}}
    exported = stagewright.export(model, example, loss=nn.CrossEntropyLoss(), path=tmp_path / "model.swg")
    assert [entry.name for entry in exported.graph.inputs] == ["dense", "sparse.ids.0", "sparse.ids.1", "target"]
    for samples in (1, 3, 8):
        dense, first, second, target = (
            torch.randn(samples, 3),
            ids(samples),
            ids(samples),
            torch.randint(0, 2, (samples,)),
        )
        feeds = {"dense": dense, "sparse.ids.0": first, "sparse.ids.1": second, "target": target}
        loss, _ = Interpreter.load(exported).run(feeds, samples)
        torch.testing.assert_close(loss, F.cross_entropy(model(dense, {"ids": [first, second]}), target))


def test_numbers_take_the_scalar_overload(tmp_path):
    class Arithmetic(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 4)

        def forward(self, x):
            y = 1 - self.body(x) / 2 + 3
            y = 2 / (y**2 + 1) + 2**y
            y[:, 0] = 0.5
            return torch.where(y > 0.4, y, 0.0) / x.shape[0] * x.shape[0]

    def batch(samples):
        return {"x": torch.randn(samples, 4)}, torch.randn(samples, 4)

    exported = export_and_compare(Arithmetic(), batch, nn.MSELoss(), tmp_path)
    for node in exported.graph.nodes:
        namespace, name, overload = node.target.split(".")
        schema = getattr(getattr(torch.ops.aten, name), overload)._schema
        for argument, declared in zip(node.args, schema.arguments):
            if isinstance(declared.type, torch.TensorType):
                assert argument.WhichOneof("kind") in ("value", "parameter", "input"), f"{node.name}: {declared.name}"


def test_activation_checkpointing_is_transparent(tmp_path):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Sequential(nn.Linear(4, 6), nn.Tanh()), nn.Linear(6, 3)

        def forward(self, x):
            return self.head(torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=False))

    batch = classification(lambda n: {"x": torch.randn(n, 4)}, 3)
    export_and_compare(Checkpointed(), batch, nn.CrossEntropyLoss(), tmp_path)


def test_loss_with_parameters_and_dictionary_output(tmp_path):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 3)

        def forward(self, x):
            return {"hidden": x, "logits": self.body(x)}

    class ScaledLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, output, target):
            return F.cross_entropy(output["logits"] * self.scale, target, reduction="sum")

    model, loss = Model(), ScaledLoss()
    exported = stagewright.export(
        model, torch.randn(4, 4), loss=loss, targets=torch.zeros(4, dtype=torch.int64), path=tmp_path / "model.swg"
    )
    assert [p.name for p in exported.graph.parameters] == ["body.weight", "body.bias", "loss.scale"]
    assert exported.graph.loss_reduction == pb.LOSS_REDUCTION_SUM
    x, target = torch.randn(5, 4), torch.randint(0, 3, (5,))
    actual, prediction = Interpreter.load(exported).run({"x": x, "target": target}, 5)
    torch.testing.assert_close(prediction, model(x)["logits"])
    torch.testing.assert_close(actual, loss(model(x), target))


@pytest.mark.parametrize(
    "loss, reduction",
    [
        (nn.MSELoss(), pb.LOSS_REDUCTION_MEAN),
        (nn.MSELoss(reduction="sum"), pb.LOSS_REDUCTION_SUM),
        (nn.L1Loss(), pb.LOSS_REDUCTION_MEAN),
        (nn.BCELoss(), pb.LOSS_REDUCTION_MEAN),
        (nn.BCEWithLogitsLoss(reduction="sum"), pb.LOSS_REDUCTION_SUM),
        (nn.CrossEntropyLoss(label_smoothing=0.1), pb.LOSS_REDUCTION_SUM),
        (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]), reduction="sum"), pb.LOSS_REDUCTION_SUM),
        (nn.NLLLoss(), pb.LOSS_REDUCTION_SUM),
        (nn.KLDivLoss(reduction="batchmean"), pb.LOSS_REDUCTION_MEAN),
        (F.huber_loss, pb.LOSS_REDUCTION_MEAN),
    ],
)
def test_loss_reduction_and_derived_target(loss, reduction, tmp_path):
    model = nn.Sequential(nn.Linear(4, 3), nn.Sigmoid())
    exported = stagewright.export(model, torch.randn(1, 4), loss=loss, path=tmp_path / "model.swg")
    assert exported.graph.loss_reduction == reduction


def test_evaluation_mode_is_exported_as_training_and_restored(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()
    exported = stagewright.export(model, torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "model.swg")
    assert "aten.dropout.default" in targets_of(exported) and not model[1].training


def test_compiled_models_optional_and_unused_inputs(tmp_path):
    class Optional(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.spare = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x, ignored, mask=None, scale=2):
            y = self.body(x) * scale
            return y if mask is None else y * mask

    model = Optional()
    example = {"x": torch.randn(3, 4), "ignored": torch.randn(3, 4), "mask": None, "scale": 3}
    exported = stagewright.export(torch.compile(model), example, loss=nn.MSELoss(), path=tmp_path / "model.swg")
    assert [entry.name for entry in exported.graph.inputs] == ["x", "target"]
    assert [p.name for p in exported.graph.parameters if p.trainable] == ["body.weight", "body.bias"]
    x, target = torch.randn(5, 4), torch.randn(5, 4)
    loss, _ = Interpreter.load(exported).run({"x": x, "target": target}, 5)
    torch.testing.assert_close(loss, F.mse_loss(model.body(x) * 3, target))
