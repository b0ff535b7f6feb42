"""The console scripts of a wheel: each becomes the program of its name in stagewright/bin.

A module beside the package, not in it: to import the package is to import torch, which takes seconds.
"""

import importlib.util
import os
import pathlib
import sys

SITE = pathlib.Path(__file__).resolve().parent


def main() -> None:
    name = pathlib.Path(sys.argv[0]).name
    program = SITE / "stagewright" / "bin" / name
    if not program.exists():
        sys.exit(
            f"{name}: this installation of the Python package is without programs: install a wheel, "
            "or build them (scripts/build.sh) and put build/dev/bin first on PATH"
        )
    torch = importlib.util.find_spec("torch")  # Found, not imported.
    if torch is not None and torch.submodule_search_locations:
        folder = pathlib.Path(torch.submodule_search_locations[0])
        if folder.parent.resolve() != SITE:  # Elsewhere than the programs look for it by themselves.
            paths = [str(folder / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
            os.environ["LD_LIBRARY_PATH"] = ":".join(paths)
    os.execv(program, [name, *sys.argv[1:]])
