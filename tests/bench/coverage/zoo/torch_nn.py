"""Modules that PyTorch itself brings."""

import torch
import torch.nn.functional as F
from torch import nn

from .entry import SAMPLES, Task, entry
from .tasks import CLASSES, padded, padding, token_loss, tokens

WIDTH, STEPS = 16, 6


def classes() -> torch.Tensor:
    return torch.randint(CLASSES, (SAMPLES,))


def sequences() -> torch.Tensor:
    return torch.randn(SAMPLES, STEPS, WIDTH)


class Translator(nn.Module):
    """nn.Transformer between two embeddings and a head, with masks for the future and for padding."""

    def __init__(self, batch_first: bool):
        super().__init__()
        self.batch_first = batch_first
        self.embedding = nn.Embedding(64, WIDTH)
        self.places = nn.Parameter(torch.randn(12, WIDTH) * 0.1)
        self.transformer = nn.Transformer(WIDTH, 2, 2, 2, 32, dropout=0.0, batch_first=batch_first)
        self.head = nn.Linear(WIDTH, 64)

    def forward(self, source, target_before):
        x, y = (self.embedding(ids) + self.places for ids in (source, target_before))
        if not self.batch_first:
            x, y = x.transpose(0, 1), y.transpose(0, 1)
        future = nn.Transformer.generate_square_subsequent_mask(y.shape[1 if self.batch_first else 0])
        out = self.head(self.transformer(x, y, tgt_mask=future, tgt_is_causal=True))
        return out if self.batch_first else out.transpose(0, 1)


def _translation(batch_first: bool) -> Task:
    labels = tokens()
    before = torch.cat([torch.ones(SAMPLES, 1, dtype=torch.long), labels[:, :-1]], 1)
    return Task(Translator(batch_first), (tokens(), before), token_loss, padded(labels, padding()))


@entry("nn.Transformer", "torch.nn")
def _transformer() -> Task:
    return _translation(batch_first=True)


@entry("nn.Transformer, sequence first inside", "torch.nn")
def _transformer_sequence_first() -> Task:
    return _translation(batch_first=False)


class Encoder(nn.Module):
    """nn.TransformerEncoder, and a class from the mean over what is no padding."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True)
        self.embedding, self.head = nn.Embedding(64, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids, padding):
        x = self.encoder(self.embedding(ids), src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(-1)
        return self.head((x * kept).sum(1) / kept.sum(1))


@entry("nn.TransformerEncoder, padding mask", "torch.nn")
def _encoder() -> Task:
    return Task(Encoder(), {"ids": tokens(), "padding": padding() == 0}, nn.CrossEntropyLoss(), classes())


@entry("nn.TransformerEncoder, sequence first", "torch.nn")
def _encoder_sequence_first() -> Task:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.TransformerEncoder(layer, 3), nn.Linear(WIDTH, 4))
    x, y = torch.randn(STEPS, SAMPLES, WIDTH), torch.randn(STEPS, SAMPLES, 4)
    return Task(model, x, nn.MSELoss(), y, {"batch_dim": 1})


@entry("nn.TransformerEncoder, dropout 0.1", "torch.nn", random=True)
def _encoder_dropout() -> Task:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(STEPS * WIDTH, CLASSES))
    return Task(model, sequences(), nn.CrossEntropyLoss(), classes())


class Recurrent(nn.Module):
    """A recurrent network over steps, a class from the last of them."""

    def __init__(
        self, kind: type, directions: int = 1, batch_first: bool = True, dropout: float = 0.0, project: int = 0
    ):
        super().__init__()
        more = {"proj_size": project} if project else {}
        self.first = nn.Linear(WIDTH, WIDTH)
        self.layers = kind(WIDTH, 8, 2, batch_first=batch_first, bidirectional=directions == 2, dropout=dropout, **more)
        self.batch_first = batch_first
        self.head = nn.Linear((project or 8) * directions, CLASSES)

    def forward(self, x):
        y = self.layers(torch.relu(self.first(x)))[0]
        return self.head(y[:, -1] if self.batch_first else y[-1])


def _recurrent(*arguments, **more) -> Task:
    return Task(Recurrent(*arguments, **more), sequences(), nn.CrossEntropyLoss(), classes())


@entry("LSTM, bidirectional", "torch.nn")
def _lstm() -> Task:
    return _recurrent(nn.LSTM, 2)


@entry("LSTM with projections", "torch.nn")
def _lstm_projected() -> Task:
    return _recurrent(nn.LSTM, project=4)


@entry("LSTM, dropout between layers", "torch.nn", random=True)
def _lstm_dropout() -> Task:
    return _recurrent(nn.LSTM, dropout=0.2)


@entry("GRU, bidirectional", "torch.nn")
def _gru() -> Task:
    return _recurrent(nn.GRU, 2)


@entry("RNN", "torch.nn")
def _rnn() -> Task:
    return _recurrent(nn.RNN)


@entry("GRU, sequence first", "torch.nn")
def _gru_sequence_first() -> Task:
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.head = nn.GRU(WIDTH, 8, 2), nn.Linear(8, CLASSES)

        def forward(self, x):
            return self.head(self.layers(x)[0])

    x, y = torch.randn(STEPS, SAMPLES, WIDTH), torch.randint(CLASSES, (STEPS, SAMPLES))
    return Task(
        Tagger(), x, lambda out, target: F.cross_entropy(out.flatten(0, 1), target.flatten()), y, {"batch_dim": 1}
    )


@entry("LSTM cell in a loop", "torch.nn")
def _lstm_cell() -> Task:
    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.LSTMCell(WIDTH, 8), nn.Linear(8, CLASSES)

        def forward(self, x):
            h = c = x.new_zeros(x.shape[0], 8)
            for t in range(x.shape[1]):
                h, c = self.cell(x[:, t], (h, c))
            return self.head(h)

    return Task(Cells(), sequences(), nn.CrossEntropyLoss(), classes())


@entry("EmbeddingBag", "torch.nn")
def _embedding_bag() -> Task:
    model = nn.Sequential(
        nn.EmbeddingBag(64, WIDTH, mode="mean"), nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, CLASSES)
    )
    return Task(model, tokens(), nn.CrossEntropyLoss(), classes())


@entry("Convolutions with GroupNorm", "torch.nn")
def _group_norm() -> Task:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.InstanceNorm2d(8, affine=True), nn.PReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, CLASSES),
    )  # fmt: skip
    return Task(model, torch.randn(SAMPLES, 3, 16, 16), nn.CrossEntropyLoss(), classes())


@entry("Bilinear layer and KL divergence", "torch.nn")
def _bilinear() -> Task:
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.join = nn.Linear(8, 6), nn.Linear(10, 4), nn.Bilinear(6, 4, CLASSES)

        def forward(self, a, b):
            return F.log_softmax(self.join(self.a(a).tanh(), self.b(b).tanh()), dim=-1)

    target = torch.rand(SAMPLES, CLASSES).softmax(-1)
    return Task(
        Pair(), (torch.randn(SAMPLES, 8), torch.randn(SAMPLES, 10)), nn.KLDivLoss(reduction="batchmean"), target
    )
