"""Regions of forward with another gradient mode or another precision."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import stagewright
from faithful import export_and_compare
from graph_interpreter import Interpreter


class Body(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.norm, self.conv, self.step = nn.LayerNorm(6), nn.Conv1d(1, 2, 3, padding=1), step

    def forward(self, x):
        return self.step(self, x)


def batch(samples):
    return {"x": torch.randn(samples, 6)}, torch.randn(samples, 6)


def low():
    return torch.autocast("cpu", dtype=torch.bfloat16)


def linear(m, x):
    with low():
        y = F.relu(m.first(x))
        y = m.second(y)
    return m.third(y.float())


def lists(m, x):
    """Operators of each of autocast's lists, and mixtures of precisions."""
    with low():
        y = m.first(x)
        z = torch.cat([y, x], dim=1).unflatten(1, (2, 6))
        y = m.norm(y) + F.softmax(y, dim=-1) + z.mean(1)
        y = torch.bmm(y[:, :, None], x[:, None, :]).sum(-1) + torch.einsum("bi,bj->bi", y, x)
        y = y + m.conv(y[:, None]).mean(1)
        y = F.pad(y, (2, 0))[:, 2:]
        q = y.view(-1, 1, 2, 3)
        y = y + F.scaled_dot_product_attention(q, q, q).flatten(1)
        y = y * F.mse_loss(y, x, reduction="none") + torch.cumsum(y, dim=1) + F.gelu(y).pow(2)
    return y.float()


def shared_weight(m, x):
    with low():
        return m.first(m.first(m.first(x))).float()


def nested(m, x):
    with low():
        y = m.first(x)
        with torch.autocast("cpu", enabled=False):
            z = m.second(x)
            with low():
                z = z + m.third(z)
        y = m.third(y)
    return y.float() + z


def frozen_within(m, x):
    with low():
        y = m.first(x)
        with torch.no_grad():
            z = m.second(y)
        y = m.third(y * z)
    return y.float()


def within_frozen(m, x):
    with torch.no_grad():
        y = m.first(x)
        with low():
            y = m.second(y)
    return m.third(y.float())


def trained_within_frozen(m, x):
    with torch.no_grad():
        y = m.first(x)
        with torch.enable_grad():
            z = m.second(y)
            w = y.chunk(2, dim=1)[0].mean(1, keepdim=True) * m.third(x)
        y = m.third(z)
    return z + w + y


def decorated(m, x):
    @torch.no_grad()
    def centre(y):
        return y - y.mean(1, keepdim=True)

    return m.second(centre(m.first(x)) + m.third(x))


@pytest.mark.parametrize(
    "step",
    [
        linear, lists, shared_weight, nested, frozen_within, within_frozen, trained_within_frozen, decorated,
        lambda m, x: within_frozen(m, x) + frozen_within(m, x),
    ],
)  # fmt: skip
def test_regions_compute_and_train_as_in_eager_mode(step, tmp_path):
    # Some of these steps take means over the batch.
    exported = export_and_compare(Body(step), batch, nn.MSELoss(), tmp_path, whole_batch=True)
    assert all(node.target.startswith("aten.") for node in exported.graph.nodes)


def test_a_decorated_forward(tmp_path):
    class Decorated(Body):
        @torch.autocast("cpu", dtype=torch.bfloat16)
        def forward(self, x):
            return self.second(F.relu(self.first(x)))

    def loss(output, target):
        return F.mse_loss(output.float(), target)

    exported = export_and_compare(Decorated(None), batch, loss, tmp_path)
    dtypes = {n.name: n.outputs[0].dtype for n in exported.graph.nodes if n.target == "aten.linear.default"}
    assert set(dtypes.values()) == {stagewright.proto.pb.DTYPE_BFLOAT16} and len(dtypes) == 2


def test_autocast_of_another_device_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)

    def step(m, x):
        with torch.autocast("cuda", dtype=torch.float16):
            return m.first(x)

    message = r"test_regions.py:\d+: with torch.autocast.*for 'cuda'.*x.device.type"
    with pytest.raises(stagewright.ExportError, match=message):
        stagewright.export(Body(step), torch.randn(4, 6), loss=nn.MSELoss(), path=tmp_path / "model.swg")


def test_writing_in_place_under_no_grad_to_what_is_trained_is_refused(tmp_path):
    def step(m, x):
        y = m.first(x)
        with torch.no_grad():
            y.mul_(2)
        return m.second(y)

    with pytest.raises(stagewright.ExportError, match=r"'mul_'.*test_regions.py:\d+: y.mul_.*in place under no_grad"):
        stagewright.export(Body(step), torch.randn(4, 6), loss=nn.MSELoss(), path=tmp_path / "model.swg")


def test_programs_keep_their_regions(tmp_path):
    model = Body(within_frozen)
    program = torch.export.export(copy.deepcopy(model), (torch.randn(4, 6),), dynamic_shapes=({0: Dim("samples")},))
    exported = stagewright.export(program, loss=nn.MSELoss(), path=tmp_path / "model.swg")
    x, target = torch.randn(5, 6), torch.randn(5, 6)
    interpreter = Interpreter.load(exported)
    loss, _ = interpreter.run({"x": x, "target": target}, 5)
    torch.testing.assert_close(loss, F.mse_loss(model(x), target))
    assert {n for n, g in interpreter.gradients(loss).items() if g is not None} == {"third.weight", "third.bias"}
