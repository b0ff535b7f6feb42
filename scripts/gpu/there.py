"""Proves, on a machine with one GPU, what was built and packed elsewhere (prepare.py): see docs/gpu.md.

Each part writes what it found when it ends; the table comes last. Exit status 0 if all that must hold is proved; with --dry,
which uses no GPU, if nothing failed.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import sys
import tarfile
import tempfile
import time

import fallback
from machine import Machine
from parts import PARTS, Part
from report import Result, Verdict, as_json, as_markdown, whole

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLE = "bundle.tar.xz"


def roomy_folder() -> str | None:
    """For files of gigabytes: memory, where there is enough."""
    memory = pathlib.Path("/dev/shm")
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        return None
    room = os.statvfs(memory)
    return str(memory) if room.f_bavail * room.f_frsize > 16e9 else None


def unpack(packed: pathlib.Path, folder: pathlib.Path) -> dict:
    """The manifest of what was packed."""
    bundle = packed / BUNDLE
    if not bundle.exists():
        sys.exit(f"there.py: {bundle} is not there: run scripts/gpu.sh prepare where programs can be built")
    with tarfile.open(bundle) as archive:
        archive.extractall(folder, filter="data")
    return json.loads((folder / "manifest.json").read_text())


def torch_folder() -> pathlib.Path:
    """Of the Python that runs this, without importing it."""
    found = importlib.util.find_spec("torch")
    if found is None or found.submodule_search_locations is None:
        sys.exit(f"there.py: {sys.executable} has no torch")
    return pathlib.Path(found.submodule_search_locations[0])


def write(out: pathlib.Path, manifest: dict, results: list[Result]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "gpu.json").write_text(json.dumps({"packed": manifest, "parts": as_json(results)}, indent=1) + "\n")
    (out / "gpu.md").write_text(as_markdown(results))


def say(words: str) -> None:
    print(f"==> {words}", file=sys.stderr, flush=True)


def prove(machine: Machine, manifest: dict, out: pathlib.Path, deadline: float, only: list[str]) -> list[Result]:
    parts = [part for part in PARTS if not only or part.name in only]
    if not machine.dry and not fallback.programs_start(machine):
        say("the packed programs do not start here")
        parts.insert(0, Part("build", 200, True, lambda machine, seconds: (fallback.build(machine, seconds), {})))
    results = []
    for part in parts:
        say(f"{part.name}: at most {part.seconds:.0f} s")
        results.append(part.run(machine, deadline - time.monotonic()))
        say(f"{part.name}: {results[-1].verdict.value} in {results[-1].seconds:.0f} s")
        write(out, manifest, results)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry", action="store_true", help="without a GPU: small models on the CPU")
    parser.add_argument("--packed", type=pathlib.Path, default=ROOT / ".gpu", help="folder that prepare made")
    parser.add_argument("--out", type=pathlib.Path, default=os.environ.get("OUT"), help="for gpu.json and gpu.md")
    parser.add_argument("--seconds", type=float, default=570, help="for all parts together")
    parser.add_argument("--only", action="append", default=[], choices=[part.name for part in PARTS])
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    out = options.out or ROOT / "build" / "gpu"
    with tempfile.TemporaryDirectory(prefix="stagewright-gpu-", dir=roomy_folder()) as folder:
        work = pathlib.Path(folder)
        bundle = work / "bundle"
        manifest = unpack(options.packed, bundle)
        machine = Machine(ROOT, bundle, work, torch_folder(), options.dry)
        say(f"packed: {manifest['commit']}, torch {manifest['torch']}, NCCL {manifest['nccl']}")
        results = prove(machine, manifest, pathlib.Path(out), deadline, options.only)
    write(pathlib.Path(out), manifest, results)
    print(as_markdown(results))
    open_parts = [result.part for result in results if result.verdict is not Verdict.PROVED]
    if open_parts:
        say(f"not proved: {', '.join(open_parts)}")
    sys.exit(0 if whole(results, options.dry) else 1)


if __name__ == "__main__":
    main()
