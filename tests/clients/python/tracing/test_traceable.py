"""What the tracer alone cannot follow is captured as eager mode has it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stagewright

from faithful import export_and_compare
from graph_interpreter import Interpreter
from three_steps import compare


def batch(samples):
    return {"x": torch.randn(samples, 4)}, torch.randn(samples, 4)


class Siamese(nn.Module):
    def __init__(self, halves):
        super().__init__()
        self.tower, self.head, self.halves = nn.Linear(4, 4), nn.Linear(8, 4), halves

    def forward(self, x):
        a, b = self.halves(F.relu(self.tower(torch.cat([x, x.flip(1)]))))
        return self.head(torch.cat([a, b], dim=1))


@pytest.mark.parametrize(
    "halves",
    [
        lambda h: h.chunk(2, 0), lambda h: torch.chunk(h, 2), lambda h: torch.chunk(h, chunks=2, dim=0),
        lambda h: h.split(h.shape[0] // 2), lambda h: torch.split(h, h.shape[0] // 2, dim=0),
        lambda h: h.split(split_size=h.shape[0] // 2),
    ],
)  # fmt: skip
def test_chunks_of_the_batch(halves, tmp_path):
    exported = export_and_compare(Siamese(halves), batch, nn.MSELoss(), tmp_path)
    assert not any(output.mixed for node in exported.graph.nodes for output in node.outputs)


def test_chunks_of_two_inputs_joined(tmp_path):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.tower = nn.Linear(4, 4)

        def forward(self, x, y):
            a, b = self.tower(torch.cat([x, y], 0)).chunk(2, 0)
            return a * b

    def pairs(samples):
        return {"x": torch.randn(samples, 4), "y": torch.randn(samples, 4)}, torch.randn(samples, 4)

    export_and_compare(Pair(), pairs, nn.MSELoss(), tmp_path)


class Sorted(nn.Module):
    def __init__(self, taken):
        super().__init__()
        self.body, self.table, self.taken = nn.Linear(4, 4), nn.Parameter(torch.randn(1, 4)), taken

    def forward(self, x):
        return self.taken(self.body(x), self.table)


@pytest.mark.parametrize(
    "taken",
    [
        lambda h, table: torch.take_along_dim(h, h.argsort(1), 1),
        lambda h, table: h.take_along_dim(h.argsort(-1), dim=-1),
        lambda h, table: h + h.take_along_dim(h.argmax(1, keepdim=True), 1),
        lambda h, table: h * torch.take_along_dim(table, h.argsort(1), dim=1),
        lambda h, table: h.take_along_dim(table.argsort(1), 1),
    ],
)
def test_entries_taken_along_a_dimension(taken, tmp_path):
    exported = export_and_compare(Sorted(taken), batch, nn.MSELoss(), tmp_path)
    assert not any(output.mixed for node in exported.graph.nodes for output in node.outputs)


def similar(z, _):
    scores = (z @ z.T).fill_diagonal_(-1e9)
    return F.cross_entropy(scores, torch.arange(z.shape[0]).roll(1))


@pytest.mark.parametrize(
    "loss",
    [
        similar,
        lambda z, _: torch.cov(z.T).square().sum(),
        lambda z, _: z.T.cov(correction=0).square().sum(),
        lambda z, target: (torch.corrcoef(z.T) * target.T.corrcoef()).sum(),
    ],
)
def test_losses_over_pairs_of_samples(loss, tmp_path):
    export_and_compare(nn.Linear(4, 4), lambda n: ({"input": torch.randn(n, 4)}, torch.randn(n, 4)), loss, tmp_path, (3, 7),
                       whole_batch=True)  # fmt: skip


@pytest.mark.parametrize("loss", [similar, lambda z, _: torch.cov(z.T).square().sum()])
def test_losses_over_pairs_of_samples_are_no_sums_over_samples(loss, tmp_path):
    with pytest.raises(stagewright.ExportError, match="depends on the other samples"):
        stagewright.export(nn.Linear(4, 4), torch.randn(4, 4), loss=loss, targets=torch.randn(4, 4), path=tmp_path / "model.swg")


def test_chunks_of_other_dimensions_stay_chunks(tmp_path):
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 8)

        def forward(self, x):
            a, b = self.body(x).chunk(2, dim=-1)
            return a * b.sigmoid()

    export_and_compare(Gated(), batch, nn.MSELoss(), tmp_path)


def test_an_odd_chunk_of_the_batch_is_refused(tmp_path):
    model = Siamese(lambda h: torch.cat(h.chunk(5, 0)).chunk(2, 0))
    with pytest.raises(stagewright.ExportError, match="fixes or restricts the batch size"):
        stagewright.export(model, torch.randn(6, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")


def test_experts_that_all_see_all_rows(tmp_path):
    """As Llama 4 has them; the sum over the experts compares a size with the smaller of two."""

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.router, self.shared = nn.Linear(4, 3), nn.Linear(4, 4)
            self.up, self.down = nn.Parameter(torch.randn(3, 4, 8)), nn.Parameter(torch.randn(3, 8, 4))

        def forward(self, x):
            rows = x.reshape(-1, 4)
            scores = self.router(rows).sigmoid()
            routed = rows.repeat(3, 1) * scores.transpose(0, 1).reshape(-1, 1)
            routed = torch.bmm(torch.bmm(routed.view(3, -1, 4), self.up), self.down).view(-1, 4)
            out = self.shared(rows)
            out.add_(routed.reshape(3, -1, 4).sum(dim=0))
            return out.view(x.shape)

    def make(samples):
        return {"x": torch.randn(samples, 6, 4)}, torch.randn(samples, 6, 4)

    export_and_compare(Experts(), make, nn.MSELoss(), tmp_path)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("normalise", [nn.utils.spectral_norm, nn.utils.weight_norm])
def test_weights_that_hooks_compute(normalise, tmp_path):
    model = nn.Sequential(normalise(nn.Linear(4, 4)), nn.Tanh())
    weight = model[0].weight
    exported = stagewright.export(model, torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")
    assert model[0].weight is weight
    # A deep copy of the hooks' result is no leaf; the module itself trains on.
    compare_in_place(model, exported)


def compare_in_place(model, exported):
    model.train()
    x, target = torch.randn(5, 4), torch.randn(5, 4)
    from graph_interpreter import Interpreter

    interpreter = Interpreter.load(exported)
    found, _ = interpreter.run({"input": x, "target": target}, 5)
    torch.testing.assert_close(found, F.mse_loss(model(x), target))
    for name, value in interpreter.new_states.items():
        torch.testing.assert_close(value, dict(model.named_buffers())[name])


class Quantised(nn.Module):
    """Leaves a part of the loss behind for the model to add."""

    def __init__(self):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(8, 4))

    def forward(self, x):
        chosen = self.codes[torch.cdist(x, self.codes).argmin(1)]
        self.commitment = F.mse_loss(chosen, x.detach()) + 0.25 * F.mse_loss(x, chosen.detach())
        return x + (chosen - x).detach()


def test_attributes_that_one_module_sets_and_another_reads(tmp_path):
    class Coder(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.quantised, self.head = nn.Linear(4, 4), Quantised(), nn.Linear(4, 4)

        def forward(self, x):
            return self.head(self.quantised(self.body(x))), self.quantised.commitment

    def loss(output, target):
        return F.mse_loss(output[0], target) + output[1]

    export_and_compare(Coder(), batch, loss, tmp_path)


def test_attributes_that_are_read_first_are_state(tmp_path):
    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.last = nn.Linear(4, 4), torch.zeros(4)

        def forward(self, x):
            y = self.body(x) + self.last
            self.last = y.detach().mean(0)
            return y

    with pytest.raises(stagewright.ExportError, match=r"assigns the tensor 'last'.*register_buffer"):
        stagewright.export(Remembers(), torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")


@pytest.mark.parametrize("make", [nn.BatchNorm1d, nn.BatchNorm2d])
def test_cumulative_averages(make, tmp_path):
    flat = make is nn.BatchNorm1d
    shape = (nn.Identity(), nn.Flatten()) if flat else (nn.Unflatten(1, (2, 1, 2)), nn.Flatten())
    model = nn.Sequential(nn.Linear(4, 4), shape[0], make(4 if flat else 2, momentum=None), shape[1])
    exported = stagewright.export(model, torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")
    assert len(exported.graph.state_updates) == 3
    compare(model, exported, name="input")


class InOneType(nn.Module):
    """Makes sure of the type of a layer, as routers of mixtures of experts do."""

    def __init__(self, dtype):
        super().__init__()
        self.layer, self.dtype = nn.Linear(4, 4), dtype

    def forward(self, x):
        self.layer = self.layer.to(self.dtype).to(dtype=self.dtype)
        return self.layer(x)


def test_a_layer_that_has_its_type_may_be_converted_to_it(tmp_path):
    export_and_compare(InOneType(torch.float32), batch, nn.MSELoss(), tmp_path)
    with pytest.raises(stagewright.ExportError):
        stagewright.export(InOneType(torch.float64), torch.randn(2, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")


class Likelihood(nn.Module):
    """Returns the negative log-likelihood of its targets."""

    def __init__(self):
        super().__init__()
        self.mean, self.scale = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, target):
        found = torch.distributions.Normal(self.mean(x), F.softplus(self.scale(x)))
        return {"loss": -found.log_prob(target).mean()}


def test_distributions(tmp_path):
    inputs = {"x": torch.randn(3, 4), "target": torch.randn(3, 4)}
    model = Likelihood()
    checked = torch.distributions.Distribution._validate_args  # PyTorch's compiler may have switched it off before.
    exported = stagewright.export(model, inputs, path=tmp_path / "m.swg")
    found, _ = Interpreter.load(exported).run(inputs, 3)
    torch.testing.assert_close(found, model(**inputs)["loss"])
    assert torch.distributions.Distribution._validate_args is checked


class Squeezing(nn.Module):
    def __init__(self, squeeze):
        super().__init__()
        self.conv, self.table, self.squeeze = nn.Conv1d(3, 4, 3), nn.Embedding(5, 4, sparse=True), squeeze

    def forward(self, x, ids):
        return self.squeeze(self.conv(x).mean(2, keepdim=True).unsqueeze(1)) + self.table(ids)


@pytest.mark.parametrize(
    "squeeze", [torch.squeeze, lambda x: x.squeeze(0).squeeze(-1).squeeze(1), lambda x: x.squeeze((0, 1, 3))]
)
def test_a_batch_of_one_sample_is_not_squeezed_away(squeeze, tmp_path):
    """Micro-batches may have one sample where no mini-batch has."""
    model = Squeezing(squeeze)
    x, ids, target = torch.randn(4, 3, 6), torch.randint(0, 5, (4,)), torch.randn(4, 4)
    exported = stagewright.export(
        model, {"x": x, "ids": ids}, loss=nn.MSELoss(), targets=target, path=tmp_path / "m.swg"
    )
    expected = nn.functional.mse_loss(model(x, ids), target)
    found, _ = Interpreter.load(exported).run_in_parts({"x": x, "ids": ids, "target": target}, [1, 2, 1])
    torch.testing.assert_close(found, expected)
    assert not any(entry.boolean for node in exported.graph.nodes if "embedding" in node.target for entry in node.args)


@pytest.mark.parametrize("table", [nn.Embedding, nn.EmbeddingBag])
def test_gradients_of_tables_are_dense(table, tmp_path):
    """Optimizers of workers, and sums over replicas, take no sparse ones."""
    model = nn.Sequential(table(5, 4, sparse=True), nn.Flatten(), nn.LazyLinear(3))
    model(torch.zeros(1, 6, dtype=torch.int64))
    ids = torch.randint(0, 5, (4, 6))
    exported = stagewright.export(model, ids, loss=nn.CrossEntropyLoss(), path=tmp_path / "m.swg")
    interpreter = Interpreter.load(exported)
    loss, _ = interpreter.run({"input": ids, "target": torch.tensor([0, 1, 2, 0])}, 4)
    gradients = interpreter.gradients(loss)
    assert not any(gradient.is_sparse for gradient in gradients.values())
    expected = F.cross_entropy(model(ids), torch.tensor([0, 1, 2, 0]))
    expected.backward()
    torch.testing.assert_close(gradients["0.weight"], model[0].weight.grad.to_dense())


class Masked(nn.Module):
    """A layer of a Transformer and what it calls its mask, which nobody says is causal."""

    def __init__(self, make, call, mask):
        super().__init__()
        self.layers, self.call = make(), call
        self.register_buffer("mask", mask)

    def forward(self, x):
        return self.call(self.layers, x, self.mask)


def encoder():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), 2)


def decoder():
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0, batch_first=True), 2)


def whole():
    return nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, batch_first=True)


CAUSAL = nn.Transformer.generate_square_subsequent_mask(3)


@pytest.mark.parametrize(
    ("make", "call", "mask"),
    [
        (encoder, lambda layers, x, mask: layers(x, mask=mask), CAUSAL.isinf()),
        (decoder, lambda layers, x, mask: layers(x, x.flip(1), tgt_mask=mask), CAUSAL),
        (whole, lambda layers, x, mask: layers(x, x, src_mask=mask, tgt_mask=CAUSAL.clone()), CAUSAL.isinf().flip(1)),
    ],
    ids=["bool", "causal", "mirrored"],
)
def test_masks_of_transformers(make, call, mask, tmp_path):
    def sequences(samples):
        return {"x": torch.randn(samples, 3, 4)}, torch.randn(samples, 3, 4)

    export_and_compare(Masked(make, call, mask), sequences, nn.MSELoss(), tmp_path)
