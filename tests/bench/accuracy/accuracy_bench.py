"""Predicted beside measured step times, as a Markdown table: by the analytic costs, and after `stagewright profile`.

Every model is cut by hand in 1 to 4 stages with equally many nodes, which two workers of one thread take in turns. Each
plan runs as a job before and as one after its model's operators are measured; a job predicts its step time by what is
known then, and its measured time is the median of its steps. The error of a prediction is against the job's own
measurement, so that a change of the machine's speed between the two meets each of them alone.

All of it is done in several rounds, each with a planner and workers that have measured nothing yet: on a virtual machine the
same product may take twice as long a minute later, in a profile as in a job. Of a plan's predictions, and of its
measurements, the median of the rounds counts.

With `--ranking N`, N random plans of each model are run instead, after its operators are measured: are those that are
predicted to be faster the faster ones?
"""

import argparse
import itertools
import json
import pathlib
import random
import signal
import statistics
import sys

import torch
from statistics_of import error, spearman
from torch import nn

ROOT = pathlib.Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "tests" / "bench" / "run")]
import gpt  # noqa: E402
import stagewright  # noqa: E402
from branches import FourBranches  # noqa: E402
from processes import Processes  # noqa: E402

WIDTH = 512


def residual(inputs: int) -> nn.Module:
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.LayerNorm(inputs), nn.Linear(inputs, 2 * inputs), nn.GELU())
            self.outer = nn.Linear(2 * inputs, inputs)

        def forward(self, x):
            return x + self.outer(self.inner(x))

    return Block()


def perceptron() -> nn.Module:
    return nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())))


def convolutions(normalised: bool) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1)]
        layers += [nn.GroupNorm(4, outputs)] if normalised else []
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 16, 10))


def encoder(dropout: float) -> nn.Module:
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=dropout, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Linear(128, 8))


def table(samples: int) -> tuple[nn.Module, dict, nn.Module, torch.Tensor]:
    model = nn.Sequential(nn.Embedding(5000, 64), nn.Flatten(), nn.Linear(64 * 32, 512), nn.ReLU(), nn.Linear(512, 10))
    inputs = {"input": torch.randint(0, 5000, (samples, 32))}
    return model, inputs, nn.CrossEntropyLoss(), torch.randint(0, 10, (samples,))


def sequential(model: nn.Module, *shape: int, classes: int = 0):
    """What makes model, inputs, loss and targets of a chain."""

    def make(samples: int):
        x = torch.randn(samples, *shape)
        if classes:
            return model, {"input": x}, nn.CrossEntropyLoss(), torch.randint(0, classes, (samples,))
        with torch.no_grad():
            return model, {"input": x}, nn.MSELoss(), torch.randn_like(model(x))

    return make


def language_model(samples: int):
    ids, target = gpt.data(samples)
    return gpt.cut(1)[0], {"input": ids}, gpt.TokenLoss(), target


def multi_modal(samples: int):
    model = FourBranches(4, 1, 128, 4, 512)
    names = ("text", "image", "audio", "video")
    return model, {name: torch.randn(samples, 32, 128) for name in names}, nn.MSELoss(), torch.randn(samples, 1)


def recurrent(samples: int):
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(256, 128), nn.Linear(128, 10)

        def forward(self, x):
            state = torch.zeros_like(x[:, 0])
            for t in range(12):
                state = torch.tanh(self.inner(torch.cat([x[:, t], state], 1)))
            return self.outer(state)

    return Cell(), {"x": torch.randn(samples, 12, 128)}, nn.CrossEntropyLoss(), torch.randint(0, 10, (samples,))


# Name -> (what makes it, samples of a step, of a micro-batch).
def models() -> dict:
    torch.manual_seed(0)
    return {
        "perceptron": (sequential(perceptron(), WIDTH), 256, 64),
        "perceptron, small micro-batches": (sequential(perceptron(), WIDTH), 64, 8),
        "residual": (sequential(nn.Sequential(*(residual(256) for _ in range(4))), 256), 256, 32),
        "narrow residual": (sequential(nn.Sequential(*(residual(64) for _ in range(8))), 64), 256, 64),
        "convolutions": (sequential(convolutions(False), 3, 32, 32, classes=10), 64, 16),
        "convolutions, group norm": (sequential(convolutions(True), 3, 32, 32, classes=10), 64, 16),
        "embedding": (table, 256, 64),
        "encoder": (sequential(encoder(0.0), 32, 128), 32, 8),
        "encoder with dropout": (sequential(encoder(0.1), 32, 128), 32, 8),
        "recurrent": (recurrent, 32, 8),
        "four branches": (multi_modal, 32, 8),
        "language model": (language_model, 8, 2),
    }


def export(directory: pathlib.Path, name: str, make, samples: int) -> pathlib.Path:
    """Graph, weights and data; the stem of their names."""
    stem = directory / name.replace(" ", "-").replace(",", "")
    model, inputs, loss, target = make(samples)
    example = {key: value[:2] for key, value in inputs.items()}
    stagewright.export(model, example, loss=loss, targets=target[:2], batch_dim=0, path=f"{stem}.swg")
    stagewright.save_dataset(f"{stem}.data.safetensors", **inputs, target=target)
    return stem


def nodes_of(system: Processes, stem: pathlib.Path) -> list[str]:
    """In the order of the graph."""
    operators = system.json("graph", "show", f"{stem}.swg")["operators"]
    return [node for operator in operators for node in operator["nodes"]]


def random_plan(system: Processes, stem: pathlib.Path, mini_batch: int, number: int) -> pathlib.Path:
    """Up to four stages, cut anywhere, on any of two devices, in up to 16 micro-batches."""
    draw = random.Random(number)
    nodes = nodes_of(system, stem)
    cuts = [0, *sorted(draw.sample(range(1, len(nodes)), draw.randint(0, 3)))]
    stages = [{"nodes": nodes[a:b], "devices": [draw.randrange(2)]} for a, b in zip(cuts, cuts[1:], strict=False)]
    stages.append({"nodes": ["*"], "devices": [draw.randrange(2)]})
    all_forward = draw.random() < 0.25  # Of one stage alone it may deadlock.
    for stage in stages:
        if draw.random() < 0.25:
            stage["recompute"] = True
        if all_forward:
            stage["in_flight"] = mini_batch
    path = stem.with_suffix(f".random-{number}.json")
    micro_batch = mini_batch // draw.choice([count for count in (1, 2, 4, 8, 16) if mini_batch % count == 0])
    path.write_text(json.dumps({"micro_batch": micro_batch, "stages": stages}))
    return path


def plan(system: Processes, stem: pathlib.Path, stages: int, micro_batch: int) -> pathlib.Path:
    """Stages of equally many nodes in the order of the graph, on the devices in turns."""
    nodes = nodes_of(system, stem)
    cuts = [len(nodes) * i // stages for i in range(stages)]
    parts = [{"nodes": nodes[a:b], "devices": [i % 2]} for i, (a, b) in enumerate(zip(cuts, cuts[1:], strict=False))]
    parts.append({"nodes": ["*"], "devices": [(stages - 1) % 2]})
    path = stem.with_suffix(f".{stages}.json")
    path.write_text(json.dumps({"micro_batch": micro_batch, "stages": parts}))
    return path


def run(system: Processes, stem: pathlib.Path, plan_file: pathlib.Path, mini_batch: int, steps: int) -> dict:
    out = system.path / f"out-{len(list(system.path.glob('out-*')))}"
    arguments = ["submit", f"{stem}.swg", "--weights", f"{stem}.safetensors", "--data", f"{stem}.data.safetensors"]
    arguments += ["--out", out, "--mini-batch", mini_batch, "--steps", steps, "--optimizer", "adam", "--lr", 1e-4]
    arguments += ["--plan-file", plan_file, "--devices", 2, "--no-shuffle", "--watch", "-o", "json"]
    result = system.cli(*arguments, timeout=600)
    job = json.loads(result.stdout) if result.stdout else {}
    if job.get("state") != "succeeded":
        raise SystemExit(f"{stem.name}: the job did not succeed: {job.get('message') or result.stderr}")
    return job


class Model:
    """A model and its plans on a system."""

    def __init__(self, system: Processes, name: str, make, mini_batch: int, micro_batch: int, options):
        self.system, self.mini_batch, self.micro_batch, self.steps = system, mini_batch, micro_batch, options.steps
        self.stem = export(system.path, name, make, mini_batch)
        if options.ranking:
            self.plans = [random_plan(system, self.stem, mini_batch, i) for i in range(options.ranking)]
        else:
            self.plans = [plan(system, self.stem, stages, micro_batch) for stages in range(1, options.stages + 1)]

    def profile(self, samples: int) -> None:
        done = self.system.cli("profile", f"{self.stem}.swg", "--samples", samples, "-o", "json", timeout=600)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        for left in json.loads(done.stdout)["unmeasured"]:
            print(f"{self.stem.name}: {left['node']} was not measured: {left['reason']}", file=sys.stderr)

    def times(self) -> list[tuple[float, float]]:
        """(predicted, measured) by plan."""
        jobs = [run(self.system, self.stem, each, self.mini_batch, self.steps) for each in self.plans]
        return [(job["predicted_step_seconds"], job["median_step_seconds"]) for job in jobs]


def report(name: str, rows: list[tuple]) -> None:
    cells = [" ".join(f"{row[i] * 1e3:.2f}" for row in rows) for i in range(4)]
    by_analytic, by_profile = (max(error(row[i], row[i + 1]) for row in rows) for i in (0, 2))
    order = [spearman([row[i] for row in rows], [row[i + 1] for row in rows]) for i in (0, 2)]
    print(f"| {name} | {cells[0]} | {cells[2]} | {cells[3]} | {by_analytic:.0%} | {by_profile:.0%} | "
          f"{order[0]:.2f}, {order[1]:.2f} |")  # fmt: skip


def summary(rows: list[tuple]) -> None:
    for what, i in (("analytic", 0), ("profiled", 2)):
        errors = [error(row[i], row[i + 1]) for row in rows]
        print(f"{what}: error {statistics.median(errors):.1%} in the median, {max(errors):.1%} at worst, "
              f"of {len(errors)} plans")  # fmt: skip


def medians(rounds: list[list[tuple]]) -> list[tuple]:
    """By plan, each figure's median."""
    return [tuple(map(statistics.median, zip(*of_plan, strict=True))) for of_plan in zip(*rounds, strict=True)]


def ranking(rounds: dict[str, list]) -> None:
    print("Random plans of a model: least and largest step times, in ms, predicted and measured, the rank correlation of "
          "the two and of measurements with those of another round, and the error.\n")  # fmt: skip
    print("| model | plans | predicted | measured | rank correlation | of two rounds | median error | worst |")
    print("|---|---|---|---|---|---|---|---|")
    for name, of_model in rounds.items():
        predicted, measured = zip(*medians(of_model), strict=True)
        of_rounds = [[row[1] for row in a_round] for a_round in of_model]
        alike = [f"{spearman(*two):.3f}" for two in itertools.combinations(of_rounds, 2)]
        errors = [error(*pair) for pair in zip(predicted, measured, strict=True)]
        ranges = [f"{min(times) * 1e3:.2f} to {max(times) * 1e3:.2f}" for times in (predicted, measured)]
        print(f"| {name} | {len(errors)} | {ranges[0]} | {ranges[1]} | {spearman(predicted, measured):.3f} | "
              f"{' '.join(alike)} | {statistics.median(errors):.1%} | {max(errors):.1%} |")  # fmt: skip


def accuracy(rounds: dict[str, list]) -> None:
    print("Step times of plans with 1, 2, ... stages, in ms; errors are the worst of a model's plans; the last column is "
          "the rank correlation over them, analytic and profiled.\n")  # fmt: skip
    print("| model | analytic | profiled | measured | analytic error | profiled error | order |")
    print("|---|---|---|---|---|---|---|")
    rows = {name: medians(of_model) for name, of_model in rounds.items()}
    for name, of_model in rows.items():
        report(name, of_model)
    print()
    summary([row for of_model in rows.values() for row in of_model])
    if all(len(of_model) > 1 for of_model in rows.values()):
        for what, several in (("one stage", False), ("several stages", True)):
            print(f"\n{what}:")
            summary([row for of_model in rows.values() for row in (of_model[1:] if several else of_model[:1])])


def a_round(options) -> dict[str, list[tuple]]:
    """By model and plan: predicted and measured seconds, and both once more after the model was profiled; the last two
    alone where plans are ranked."""
    with Processes(workers=2, measured=True) as system:
        chosen = {name: Model(system, name, *of, options) for name, of in models().items()
                  if not options.only or name in options.only}  # fmt: skip
        # The links were probed while the models were exported, which takes a core.
        system.json("topology", "measure")
        # Models share operators, so that none may be measured before all jobs without measurements have run.
        before = {name: [] if options.ranking else model.times() for name, model in chosen.items()}
        found = {}
        for name, model in chosen.items():
            model.profile(model.mini_batch if options.ranking else model.micro_batch)
            after = model.times()
            found[name] = after if options.ranking else [a + b for a, b in zip(before[name], after, strict=True)]
            print(f"{name}: {[tuple(round(1e3 * each, 2) for each in row) for row in found[name]]}", file=sys.stderr)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stages", type=int, default=4, help="at most, of a plan")
    parser.add_argument("--steps", type=int, default=20, help="of a job")
    parser.add_argument("--rounds", type=int, default=3, help="of which medians are taken")
    parser.add_argument("--only", nargs="*", help="names of models")
    parser.add_argument("--ranking", type=int, default=0, metavar="N", help="random plans of each model")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # What was started is ended on the way out.
    torch.set_num_threads(1)
    rounds: dict[str, list] = {}
    for _ in range(options.rounds):
        for name, of_model in a_round(options).items():
            rounds.setdefault(name, []).append(of_model)
    (ranking if options.ranking else accuracy)(rounds)


if __name__ == "__main__":
    main()
