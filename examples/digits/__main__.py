"""Captures the digits network, trains it on a planner's workers, and measures the checkpoint in plain PyTorch.

stagewright up --workers 4 -- python examples/digits DIRECTORY
stagewright up --workers 4 -- python -m stagewright.examples.digits DIRECTORY
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys

# As a module of the package, this folder is not where imports are looked for.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from evaluate import count_correct  # noqa: E402
from export import export_digits  # noqa: E402

TRAINING = "--mini-batch 64 --epochs 20 --optimizer adam --lr 0.0003".split()
LEAST_ACCURACY = 0.96


def say(words: str) -> None:
    print(f"==> {words}", file=sys.stderr, flush=True)


def stagewright(*arguments) -> str:
    """What the command prints; ends the program if it fails."""
    result = subprocess.run(["stagewright", *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(result.stdout or result.returncode)
    return result.stdout


def train(directory: pathlib.Path) -> float:
    """The test accuracy that the workers have measured; the checkpoint is directory/model.safetensors."""
    say(f"planning and training: {' '.join(TRAINING)}")
    submitted = stagewright(
        "submit", directory / "digits.swg", "--weights", directory / "digits.safetensors",
        "--data", directory / "train.safetensors", "--eval-data", directory / "test.safetensors",
        "--out", directory, "--overwrite", *TRAINING, "-o", "json",
    )  # fmt: skip
    name = json.loads(submitted)["name"]
    summary = stagewright("watch", name)
    say("the plan")
    print(stagewright("plan", "show", name), flush=True)
    stagewright("trace", name, "--file", directory / "trace.json")
    say("the result")
    print(f"{summary}  trace            {directory / 'trace.json'} (open in https://ui.perfetto.dev)", flush=True)
    jobs = json.loads(stagewright("jobs", "-o", "json"))["jobs"]
    return next(job["accuracy"] for job in jobs if job["name"] == name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=pathlib.Path, nargs="?", default="digits", help="directory (default: digits)")
    options = parser.parse_args()
    if shutil.which("stagewright") is None:
        sys.exit("stagewright is not on PATH: run this as stagewright up --workers 4 -- python ...")

    say("capturing the network with torch.export")
    export_digits(options.output)
    measured = train(options.output)
    say("the checkpoint in plain PyTorch")
    correct, samples = count_correct(options.output / "model.safetensors", options.output / "test.safetensors")
    print(f"accuracy {correct / samples:.4f} ({correct} of {samples})", flush=True)
    if abs(correct / samples - measured) > 1e-4:
        sys.exit(f"the workers measured another accuracy, {measured:.4f}")
    say(f"the same accuracy as Stagewright measured, {measured * 100:.2f} %")
    if measured < LEAST_ACCURACY:
        sys.exit(f"the accuracy is below {LEAST_ACCURACY:.0%}")


if __name__ == "__main__":
    main()
