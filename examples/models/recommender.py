"""DLRM and CANDLE-Uno as the GraphPipe paper configures them (appendix A.2)."""

import torch
from torch import nn

WIDTH = 4096


def tower(inputs: int, width: int, layers: int) -> nn.Sequential:
    """Feed-forward layers of `width`, each with a ReLU."""
    modules: list[nn.Module] = []
    for layer in range(layers):
        modules += [nn.Linear(inputs if layer == 0 else width, width), nn.ReLU()]
    return nn.Sequential(*modules)


class Dlrm(nn.Module):
    """Dense features through feed-forward branches, sparse ones through embeddings; a concatenation and a top MLP.

    forward takes a list of [samples, width] floats and a list of [samples, hot] table indices; it returns the logit
    [samples, 1] of a click.
    """

    def __init__(
        self, dense_branches: int = 7, sparse_branches: int = 7, layers: int = 4, width: int = WIDTH,
        rows: int = 1_000_000, embedding: int = 64, top: int = 256,
    ):  # fmt: skip
        super().__init__()
        self.dense = nn.ModuleList(tower(width, width, layers) for _ in range(dense_branches))
        self.tables = nn.ModuleList(nn.Embedding(rows, embedding) for _ in range(sparse_branches))
        joined = dense_branches * width + sparse_branches * embedding
        self.top = nn.Sequential(nn.Linear(joined, top), nn.ReLU(), nn.Linear(top, 1))

    def forward(self, dense: list[torch.Tensor], sparse: list[torch.Tensor]) -> torch.Tensor:
        features = [branch(x) for branch, x in zip(self.dense, dense, strict=True)]
        features += [table(ids).sum(dim=1) for table, ids in zip(self.tables, sparse, strict=True)]
        return self.top(torch.cat(features, dim=1))


class CandleUno(nn.Module):
    """Feature towers, a concatenation and a top MLP: the response of a tumour to drugs, [samples, 1].

    The paper gives the towers only. By default the top is one layer of 256; `top_layers=4, top=4096` is that of
    FlexFlow's example, on which the paper measured.
    """

    def __init__(self, branches: int = 7, layers: int = 4, width: int = WIDTH, top: int = 256, top_layers: int = 1):
        super().__init__()
        self.towers = nn.ModuleList(tower(width, width, layers) for _ in range(branches))
        self.top = nn.Sequential(*tower(branches * width, top, top_layers), nn.Linear(top, 1))

    def forward(self, *features: torch.Tensor) -> torch.Tensor:
        encoded = [branch(x) for branch, x in zip(self.towers, features, strict=True)]
        return self.top(torch.cat(encoded, dim=1))
