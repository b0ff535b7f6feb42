"""Complex numbers inside a model become pairs of real ones, with the same values and gradients."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stagewright
from faithful import export_and_compare
from rotary import Rotary


class Body(nn.Module):
    """`step(self, z)` gives a real tensor of a complex one, [samples, 5, 4]."""

    def __init__(self, step):
        super().__init__()
        self.inner, self.head, self.step = nn.Linear(8, 8), nn.Linear(8, 8), step
        self.weight = nn.Parameter(torch.randn(5, 4, 2))
        self.register_buffer("turns", torch.polar(torch.ones(5, 4), torch.randn(5, 4)), persistent=False)
        self.plain = torch.polar(torch.rand(4) + 0.5, torch.randn(4))  # No buffer.

    def forward(self, x):
        z = torch.view_as_complex(self.inner(x).reshape(*x.shape[:-1], -1, 2))
        y = self.step(self, z)
        return self.head(x).flatten(1).mean(1, keepdim=True) + y.flatten(1).sum(1, keepdim=True)


def batch(samples, dtype=torch.float64):
    return {"x": torch.randn(samples, 5, 8, dtype=dtype)}, torch.randn(samples, 1, dtype=dtype)


def parts(z):
    """A real number per sample in which all entries count, and count differently."""
    weights = torch.linspace(0.5, 1.5, z[0].numel()).reshape(z.shape[1:])
    return (z.real * weights + z.imag * weights.flip(-1)).flatten(1)


def weight(m):
    return torch.view_as_complex(m.weight)


def changed(m, z):
    z = z.clone()
    z[:, 1:3] = z[:, 2:4] * 2
    z[:, 0, 1] *= weight(m)[0, 1]
    return parts(z)


def without_gradients(m, z):
    with torch.no_grad():
        fixed = z * weight(m)
    return parts(z * fixed + fixed)


def low_precision(m, z):
    with torch.autocast("cpu", torch.bfloat16):
        return parts(z @ weight(m).mT).mean(1, True) + torch.fft.fft(z.real).real.flatten(1)


ARITHMETIC = {
    "rotary": lambda m, z: torch.view_as_real(z * m.turns[None]).flatten(2).type_as(m.weight),
    "polar of the graph": lambda m, z: parts(z * torch.polar(torch.ones_like(m.weight[..., 0]), m.weight[..., 1])),
    "polar, broadcast": lambda m, z: parts(torch.polar(z.real.exp(), m.weight[0, :, 0])),
    "complex": lambda m, z: parts(torch.complex(z.imag, z.real.relu()) * m.plain),
    "complex, broadcast": lambda m, z: parts(torch.complex(z.imag, m.weight[:, :1, 0])),
    "products": lambda m, z: parts(z * z * weight(m) * m.weight[..., 0] * 3 * (0.5 - 2j)),
    "real times complex": lambda m, z: parts(m.weight[..., 1] * z + torch.arange(4) * z),
    "sums": lambda m, z: parts(
        z + z.real + 1 - weight(m) - 2j + (3 - z) + torch.rsub(z, 2, alpha=3) + torch.add(z, m.plain, alpha=2)
    ),
    "difference from a real": lambda m, z: parts((m.weight[..., 0] - z) + torch.sub(m.weight[..., 0], z, alpha=3)),
    "conjugates": lambda m, z: parts(z.conj() * weight(m) - z.conj().resolve_conj()) + (z * z.conj()).real.flatten(1),
    "quotients": lambda m, z: parts(z / 2 + z / m.weight[..., 0].exp() + z / (weight(m) + 3j) + z / (1 + 1j)),
    "one over": lambda m, z: parts(1 / (z + 5) + (m.weight[..., 0] / (z + 5j)) + (z + 5j).reciprocal()),
    "size and angle": lambda m, z: z.abs() + z.angle() + z.abs().pow(2).sum(-1, keepdim=True),
    "size of zero": lambda m, z: (z * 0).abs() + (z - z).angle(),
    "exponential": lambda m, z: parts(torch.exp(1j * z.real) * z.exp()),
    "squares": lambda m, z: parts(z**2 + z.square() - -z + z.pow(3)),
    "logarithm and root": lambda m, z: parts((z.abs() + 1 + 0.5j * z.imag).log()),
    "choice": lambda m, z: parts(torch.where(z.real > 0, z, m.plain) + z.masked_fill(z.imag > 0, 0)),
    "in place": changed,
    "types": lambda m, z: parts(z.to(torch.complex128).to(torch.complex64) + z.real.to(torch.complex64)),
    "precise": lambda m, z: parts((z.to(torch.complex128) * m.plain).to(torch.complex64)),
    "unread": lambda m, z: (z.abs() + m.plain.real, z.sinc() * 2, parts(z))[2],
    "region without gradients": without_gradients,
    "autocast": low_precision,
    "no gradient": lambda m, z: parts(z * (z.detach() + 1)),
}

SHAPES = {
    "reshape": lambda m, z: parts(z.reshape(-1, 20).view(-1, 2, 10).flatten(1).unflatten(1, (4, -1))),
    "reshape, transposed": lambda m, z: parts(z.transpose(1, 2).reshape(-1, 20)),
    "transpose": lambda m, z: parts(z.transpose(-1, 1).permute(0, -1, 1).movedim(-1, 1)),
    "swap": lambda m, z: parts(z.mT * weight(m).t()),
    "unsqueeze": lambda m, z: parts(z.unsqueeze(-1).unsqueeze(1).squeeze(-1).squeeze(1)),
    "expand": lambda m, z: parts(z[:, None].expand(-1, 3, -1, -1) * weight(m).expand_as(z)[:, None]),
    "pick": lambda m, z: parts(z[:, 1:4, ::2] * z[:, 2, None, :2] + z[:, :, -1].narrow(1, 0, 3)[..., None]),
    "index": lambda m, z: parts(z[:, torch.tensor([0, 2, 2])] + z.index_select(-2, torch.tensor([1, 0, 3]))),
    "gather": lambda m, z: parts(z.gather(-1, torch.tensor([[0, 1, 1]]).expand(z.shape[0], 5, 3))),
    "join": lambda m, z: parts(torch.cat([z, z * 2], dim=-1)) + parts(torch.stack([z, -z], dim=-1)).mean(1, True),
    "join with real": lambda m, z: parts(torch.cat([z, z.real], dim=1)),
    "parts": lambda m, z: parts(z.split(2, dim=-1)[1] * z.chunk(2, dim=2)[0] + sum(z.unbind(-1))[..., None]),
    "turn": lambda m, z: parts(z.flip(-1) + z.roll(1, -1) + z.roll((1, 2), (1, 2))),
    "repeat": lambda m, z: parts(z.repeat(1, 2, 1)) + parts(z.repeat_interleave(2, dim=-1)),
    "pad": lambda m, z: parts(F.pad(z, (1, 2, 0, 1))),
    "sum": lambda m, z: parts(z.sum(-1)) + parts(z.mean((1, 2), keepdim=True)) + parts(z.cumsum(-2)).sum(1, True),
    "zeros": lambda m, z: parts(torch.zeros_like(z) + z.new_zeros(z.shape[0], 5, 4) + torch.ones_like(z)),
    "fill": lambda m, z: parts(F.pad(z, (0, 1)) + torch.full((5, 5), 2.0 + 1j) + torch.zeros(5, 5, dtype=z.dtype)),
}

PRODUCTS = {
    "matmul": lambda m, z: parts(z @ weight(m).mT),
    "bmm": lambda m, z: parts(torch.bmm(z, z.transpose(1, 2))),
    "einsum": lambda m, z: parts(torch.einsum("bsf,sf->bs", z, weight(m))),
    "einsum of one": lambda m, z: parts(torch.einsum("bsf->bfs", z)),
}


def spectrum(m, z):
    """A layer of a Fourier neural operator: low frequencies are weighted, all others are zero."""
    frequencies = torch.fft.rfft(z.real, dim=1)
    kept = torch.zeros(z.shape[0], 3, 4, dtype=z.dtype)
    kept[:, :2] = torch.einsum("bxi,xio->bxo", frequencies[:, :2], weight(m)[:2, :, None] * weight(m)[1:3, None])
    return torch.fft.irfft(kept, n=z.shape[1], dim=1)


def per_norm(step):
    return lambda m, z: sum(step(m, z, norm) * (place + 1) for place, norm in enumerate((None, "ortho", "forward")))


TRANSFORMS = {
    "mixing": lambda m, z: torch.fft.fftn(z.real, dim=(1, 2)).real,
    "one at a time": lambda m, z: torch.fft.fft(torch.fft.fft(z.real, dim=-1), dim=-2).real,
    "fft": per_norm(lambda m, z, norm: parts(torch.fft.fft(z, norm=norm) + torch.fft.ifft(z, dim=2, norm=norm))),
    "rfft": per_norm(lambda m, z, norm: parts(torch.fft.rfft(z.real, dim=1, norm=norm))),
    "irfft": per_norm(lambda m, z, norm: torch.fft.irfft(z, dim=1, norm=norm)),
    "irfft, odd": per_norm(lambda m, z, norm: torch.fft.irfft(z, n=7, norm=norm)),
    "lengths": lambda m, z: parts(torch.fft.fft(z, n=7) * torch.fft.fft(z, n=3)[..., :1]),
    "two dimensions": per_norm(lambda m, z, norm: parts(torch.fft.fft2(z, norm=norm) + torch.fft.ifft2(z, norm=norm))),
    "real, two": per_norm(lambda m, z, norm: parts(torch.fft.rfft2(z.real, norm=norm))),
    "inverse real, two": per_norm(lambda m, z, norm: torch.fft.irfft2(z, s=(5, 5), norm=norm)),
    "lengths of several": lambda m, z: parts(torch.fft.rfftn(z.real, s=(6, 3))),
    "shifted": lambda m, z: parts(torch.fft.fftshift(torch.fft.fft(z), dim=-1) * torch.fft.ifftshift(z, dim=(1, 2))),
    "operator": spectrum,
}


STEPS = ARITHMETIC | SHAPES | PRODUCTS | TRANSFORMS
TOGETHER = 6


@pytest.mark.parametrize("first", range(0, len(STEPS), TOGETHER))
def test_complex_numbers_are_pairs(first, tmp_path):
    """In double precision, which hides nothing behind rounding; several steps in one model, which saves time."""
    steps = list(STEPS.items())[first : first + TOGETHER]

    def step(m, z):
        results = [part(m, z).flatten(1).sum(1, keepdim=True) for _, part in steps]
        return sum((place + 1) * result for place, result in enumerate(results))

    export_and_compare(Body(step).double(), batch, nn.MSELoss(), tmp_path, batch_sizes=(1, 3))


@pytest.mark.parametrize("name", ["rotary", "products", "quotients", "mixing", "operator", "autocast"])
def test_pairs_in_single_precision(name, tmp_path):
    def make(samples):
        return batch(samples, torch.float32)

    def step(m, z):
        return STEPS[name](m, z * 0.3)

    export_and_compare(Body(step), make, nn.MSELoss(), tmp_path)


def test_a_complex_output_is_no_prediction(tmp_path):
    class Complex(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            y = self.inner(x)
            return {"z": torch.complex(y, y * 2)}

    def loss(output, target):
        return (output["z"].abs() - target).square().mean()

    def make(samples):
        return {"x": torch.randn(samples, 4)}, torch.randn(samples, 4)

    exported = export_and_compare(Complex(), make, loss, tmp_path)
    assert not exported.graph.HasField("prediction")


def test_rotary_positions(tmp_path):
    def make(samples):
        return {"x": torch.randn(samples, 6, 32)}, torch.randint(3, (samples,))

    exported = export_and_compare(Rotary(), make, nn.CrossEntropyLoss(), tmp_path)
    turns = [p for p in exported.graph.parameters if list(p.shape) == [12, 4, 2]]
    assert len(turns) == 1 and turns[0].HasField("data")
    assert math.prod(turns[0].shape) * 4 == len(turns[0].data)


@pytest.mark.parametrize(
    "step, message",
    [
        (lambda m, z: z.real + torch.linalg.eigvals(z @ z.mT).abs().sum(-1)[:, None, None],
         r"linalg_eigvals.*test_complex_numbers.py:\d+.*complex"),
        (lambda m, z: z.real * torch.fft.fft(z, dim=0).real, r"fft_fft.*test_complex_numbers.py:\d+.*batch"),
        (lambda m, z: z.real * torch.fft.rfft(z.real.flatten(), n=5).real[:4], r"fft_rfft.*batch"),
    ],
    ids=["unknown", "over samples", "part of the samples"],
)  # fmt: skip
def test_what_is_not_known_of_complex_numbers_is_refused(step, message, tmp_path):
    with pytest.raises(stagewright.ExportError, match=message):
        stagewright.export(Body(step), torch.randn(4, 5, 8), loss=lambda y: y.mean(), path=tmp_path / "model.swg")
    assert not list(tmp_path.iterdir())


def test_complex_parameters_are_refused(tmp_path):
    class Held(nn.Module):
        def __init__(self, persistent):
            super().__init__()
            self.inner = nn.Linear(4, 4)
            value = torch.randn(4, dtype=torch.cfloat)
            if persistent:
                self.register_buffer("held", value)
            else:
                self.held = nn.Parameter(value)

        def forward(self, x):
            return (self.inner(x) * self.held).abs().mean()

    for persistent, message in ((False, "'held'.*view_as_complex"), (True, "'held'.*persistent=False")):
        with pytest.raises(stagewright.ExportError, match=message):
            stagewright.export(Held(persistent), torch.randn(4, 4), path=tmp_path / "model.swg")


def test_complex_inputs_are_refused(tmp_path):
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, z):
            return self.inner(z.abs()).mean()

    with pytest.raises(stagewright.ExportError, match="input 'z'.*view_as_real"):
        stagewright.export(Reads(), torch.randn(4, 4, dtype=torch.cfloat), path=tmp_path / "model.swg")
