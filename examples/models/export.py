"""Captures the networks of the GraphPipe paper without weights.

python examples/models/export.py examples/graphs
python examples/models/export.py OUT --model mmt --branches 2 --layers 16     (writes mmt-b2-l16.swg)
python examples/models/export.py OUT --model candle-uno --branches 16         (writes candle-uno-b16.swg)
"""

import argparse
import pathlib

import stagewright
import torch
from torch import nn

from recommender import WIDTH, CandleUno, Dlrm
from transformer import HIDDEN, SEQUENCE, CaseStudy, MultiModalTransformer, SequentialTransformer

# Lookups per sample and table.
HOT = 4
SAMPLES = 2


def sequences(count: int) -> tuple:
    return tuple(torch.empty(SAMPLES, SEQUENCE, HIDDEN, device="meta") for _ in range(count))


def rows(count: int) -> tuple:
    return tuple(torch.empty(SAMPLES, WIDTH, device="meta") for _ in range(count))


def mmt(branches: int = 4, layers: int = 8) -> tuple:
    return MultiModalTransformer(branches, layers), sequences(branches), nn.MSELoss()


def dlrm(branches: int = 7, layers: int = 4) -> tuple:
    ids = [torch.empty(SAMPLES, HOT, dtype=torch.int64, device="meta") for _ in range(branches)]
    return Dlrm(branches, branches, layers), (list(rows(branches)), ids), nn.BCEWithLogitsLoss()


def candle_uno(branches: int = 7, layers: int = 4) -> tuple:
    return CandleUno(branches, layers), rows(branches), nn.MSELoss()


def candle_uno_flexflow(branches: int = 7, layers: int = 4) -> tuple:
    return CandleUno(branches, layers, top=WIDTH, top_layers=4), rows(branches), nn.MSELoss()


def transformer(layers: int = 32) -> tuple:
    return SequentialTransformer(layers), sequences(1), nn.MSELoss()


def case_study(layers: int = 4) -> tuple:
    return CaseStudy(2, layers), sequences(2), nn.MSELoss()


MODELS = {
    "mmt": mmt,
    "dlrm": dlrm,
    "candle-uno": candle_uno,
    "candle-uno-flexflow": candle_uno_flexflow,
    "transformer": transformer,
    "case-study": case_study,
}
# Figure 7 of the paper: CANDLE-Uno by branches.
OTHER_SIZES = [("candle-uno", {"branches": branches}) for branches in (2, 4, 8, 16)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=pathlib.Path, help="directory for the .swg files")
    parser.add_argument("--model", choices=MODELS, help="only this one")
    parser.add_argument("--branches", type=int, help="with --model: other than the paper's number of branches")
    parser.add_argument("--layers", type=int, help="with --model: other than the paper's number of layers per branch")
    options = parser.parse_args()
    sizes = {key: value for key in ("branches", "layers") if (value := getattr(options, key)) is not None}
    if sizes and options.model is None:
        parser.error("--branches and --layers need --model")
    if "branches" in sizes and options.model in ("transformer", "case-study"):
        parser.error(f"--branches does not apply to {options.model}")

    options.output.mkdir(parents=True, exist_ok=True)
    for name, sizes in [(options.model, sizes)] if options.model else [(name, {}) for name in MODELS] + OTHER_SIZES:
        with torch.device("meta"):
            model, example, loss = MODELS[name](**sizes)
        stem = "-".join([name, *(f"{key[0]}{value}" for key, value in sizes.items())])
        exported = stagewright.export(model, example, loss=loss, weights=False, path=options.output / f"{stem}.swg")
        parameters = sum(p.numel() for p in model.parameters())
        print(
            f"{exported.path}: {len(exported.graph.nodes)} operators, {parameters / 1e6:.0f} M parameters, "
            f"{exported.path.stat().st_size / 1024:.0f} KiB"
        )


if __name__ == "__main__":
    main()
