"""Architectures of the kinds people train, each against its graph."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from faithful import export_and_compare


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.token, self.position = nn.Parameter(torch.randn(1, 1, 16)), nn.Parameter(torch.randn(1, 5, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 3)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.encoder(x)[:, 0])


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.middle = nn.Conv2d(1, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, 1, 1)
        self.up, self.out = nn.ConvTranspose2d(4, 4, 2, 2), nn.Conv2d(5, 1, 1)
        self.norm = nn.InstanceNorm2d(4, affine=True)

    def forward(self, x):
        y = F.leaky_relu(self.norm(self.down(x)), 0.1, inplace=True)
        y = F.silu(self.middle(y))
        y = F.interpolate(y, scale_factor=2, mode="bilinear") + self.up(y)
        return self.out(torch.cat([x, y], dim=1))


class Experts(nn.Module):
    """A mixture of experts with top-2 routing."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts, self.head = nn.Linear(8, 4), nn.Parameter(torch.randn(4, 8, 8)), nn.Linear(8, 3)

    def forward(self, x):
        weight, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
        y = torch.einsum("bi,eij->bej", x, self.experts)
        y = y.gather(1, chosen[..., None].expand(-1, -1, 8))
        return self.head((weight[..., None] * y).sum(1))


class ResidualNet(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.stem, self.act, self.head = nn.Conv2d(3, 4, 3, 1, 1), nn.ReLU(inplace=True), nn.Linear(8, 3)
        self.conv1, self.conv2 = nn.Conv2d(4, 8, 3, 2, 1, bias=False), nn.Conv2d(8, 8, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = norm(8), norm(8)
        self.shortcut = nn.Sequential(nn.Conv2d(4, 8, 1, 2, bias=False), norm(8))

    def forward(self, x):
        x = self.act(self.stem(x))
        y = self.norm2(self.conv2(self.act(self.norm1(self.conv1(x)))))
        y += self.shortcut(x)
        return self.head(torch.flatten(F.adaptive_avg_pool2d(self.act(y), (1, 1)), 1))


class RotaryModel(nn.Module):
    """Rotary positions, grouped-query attention, RMSNorm."""

    def __init__(self):
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(13, 16), nn.RMSNorm(16), nn.Linear(16, 13)
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 8), nn.Linear(16, 8)
        self.register_buffer("frequencies", 1 / (100 ** (torch.arange(0, 4, 2) / 4)), persistent=False)

    def turn(self, x, angles):
        turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
        return x * angles.cos() + turned * angles.sin()

    def forward(self, ids):
        b, t = ids.size()
        x = self.norm(self.embedding(ids))
        position = torch.arange(t, device=ids.device).float()
        angles = torch.outer(position, self.frequencies).repeat_interleave(2, -1)
        q, k, v = (layer(x).view(b, t, -1, 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
        q, k = self.turn(q, angles), self.turn(k, angles)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.head(x + y.transpose(1, 2).contiguous().view(b, t, 16))


class Masked(nn.Module):
    """Ragged sequences: masks from lengths, attention with padding, writes to slices."""

    def __init__(self):
        super().__init__()
        self.body, self.attention = nn.Linear(4, 4), nn.MultiheadAttention(4, 2, dropout=0.1)

    def forward(self, x, lengths):
        mask = torch.arange(x.shape[1])[None] < lengths[:, None]
        y = self.body(x).masked_fill(~mask[..., None], 0.0)
        z = y.transpose(0, 1)
        z = self.attention(z, z, z, key_padding_mask=~mask, need_weights=False)[0].transpose(0, 1)
        y = y.clone()
        y[:, 0] = z[:, 0]
        y[..., 1:].mul_(2.0)
        return (y * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


class Parametrized(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.act = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.PReLU()
        self.conv = nn.Conv1d(4, 4, 3, padding="same", groups=2)
        self.scales = nn.ParameterList([nn.Parameter(torch.randn(4)) for _ in range(2)])

    def forward(self, x):
        return self.conv(self.act(self.body(x)).unsqueeze(-1)).squeeze(-1) + self.scales[0] * self.scales[1]


def labelled(classes, **makers):
    def batch(samples):
        return {name: make(samples) for name, make in makers.items()}, torch.randint(0, classes, (samples,))

    return batch


def images(n):
    return torch.randn(n, 3, 8, 8)


CASES = {
    "vision transformer": (VisionTransformer, labelled(3, x=images)),
    "mixture of experts": (Experts, labelled(3, x=lambda n: torch.randn(n, 8))),
    "residual": (lambda: ResidualNet(lambda width: nn.GroupNorm(2, width)), labelled(3, x=images)),
    "masked": (
        Masked,
        labelled(4, x=lambda n: torch.randn(n, 5, 4), lengths=lambda n: torch.randint(1, 6, (n,))),
    ),
    "parametrized": (Parametrized, labelled(4, x=lambda n: torch.randn(n, 4))),
    "bfloat16": (
        lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)).bfloat16(),
        labelled(3, input=lambda n: torch.randn(n, 4).bfloat16()),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_classifier(name, tmp_path):
    make_model, batch = CASES[name]
    export_and_compare(make_model(), batch, nn.CrossEntropyLoss(), tmp_path)


def test_u_net(tmp_path):
    export_and_compare(
        UNet(), lambda n: ({"x": torch.randn(n, 1, 8, 8)}, torch.randn(n, 1, 8, 8)), nn.MSELoss(), tmp_path
    )


def test_rotary_language_model(tmp_path):
    def batch(samples):
        return {"ids": torch.randint(0, 13, (samples, 6))}, torch.randint(0, 13, (samples, 6))

    def loss(output, target):
        return F.cross_entropy(output.view(-1, output.size(-1)), target.view(-1))

    export_and_compare(RotaryModel(), batch, loss, tmp_path)


def test_residual_with_batch_norm(tmp_path):
    exported = export_and_compare(
        ResidualNet(nn.BatchNorm2d), labelled(3, x=images), nn.CrossEntropyLoss(), tmp_path, batch_sizes=(2, 3, 5)
    )
    assert [node.module for node in exported.graph.nodes if node.batch_dependent] == ["norm1", "norm2", "shortcut.1"]
    assert not [n.target for n in exported.graph.nodes if n.target.split(".")[1].endswith("_")]
