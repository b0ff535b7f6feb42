"""Packs what there.py needs on a machine with a GPU but without gRPC, Abseil and a network: one folder of at most 55 MB.

Programs of preset cuda without symbols, the libraries that they load and such a machine may lack, graphs, an NCCL with
kernels for one chip (thin.py), and what a build from source takes if the programs do not start there (fallback.py).
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

from parts import PROGRAMS, SUITES, nccl_version
from thin import thin_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
LARGEST = 55_000_000
SIZES = ("tiny", "medium")
CHIP = 90  # Hopper.
# What every machine has, newer than or as new as ours: the C library, the compiler's, and what is LibTorch's.
OF_THE_MACHINE = re.compile(
    r"^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s|gomp|cuda|nvidia-ml)\.so.*|lib(torch|c10|cudart|nccl).*)$"
)
# Transports of UCX within a machine; it finds them in a folder beside itself.
UCX_MODULES = ("libuct_cma.so.0",)
DEV_PACKAGES = (
    "libabsl-dev", "libabsl20220623", "libgtest-dev", "libgmock-dev", "nlohmann-json3-dev", "libcli11-dev", "zlib1g-dev",
)  # fmt: skip


def libraries_of(listed: str) -> dict[str, pathlib.Path]:
    """What `ldd` lists and a machine may lack, by name. ValueError names what is not found here."""
    found = {}
    for line in listed.splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        if not arrow or OF_THE_MACHINE.match(name):
            continue
        if rest.startswith("not found"):
            raise ValueError(f"{name} is not found")
        path = pathlib.Path(rest.split(" (")[0])
        if "site-packages" not in path.parts:
            found[name] = path
    return found


def pack_programs(build: pathlib.Path, folder: pathlib.Path) -> None:
    (folder / "bin").mkdir()
    (folder / "lib").mkdir()
    for name in (*PROGRAMS, *SUITES):
        source = build / ("tests" if name in SUITES else "bin") / name
        if not source.exists():
            sys.exit(f"prepare.py: {source} is not built")
        listed = subprocess.run(["ldd", source], capture_output=True, text=True, check=True).stdout
        for library, path in libraries_of(listed).items():
            if not (folder / "lib" / library).exists():
                subprocess.run(["strip", "-o", folder / "lib" / library, path.resolve()], check=True)
        subprocess.run(["strip", "-o", folder / "bin" / name, source], check=True)


def pack_ucx_modules(folder: pathlib.Path) -> None:
    listed = subprocess.run(["dpkg", "-L", "libucx0"], capture_output=True, text=True, check=True).stdout.splitlines()
    (folder / "lib" / "ucx").mkdir()
    for name in UCX_MODULES:
        paths = [path for path in listed if path.endswith(f"/ucx/{name}")]
        if not paths:
            sys.exit(f"prepare.py: libucx0 has no {name}")
        shutil.copy2(pathlib.Path(paths[0]).resolve(), folder / "lib" / "ucx" / name)


def pack_dev_packages(folder: pathlib.Path) -> None:
    """Headers, libraries and CMake files, at their places below dev/. Links to other packages' files would dangle there."""
    listed = subprocess.run(["dpkg", "-L", *DEV_PACKAGES], capture_output=True, text=True, check=True).stdout
    paths = {pathlib.Path(line) for line in listed.splitlines() if line.startswith("/")}
    for path in sorted(paths):
        if path.parts[2:3] not in (("include",), ("lib",), ("share",)) or path.parts[3:4] == ("doc",):
            continue
        if path.is_dir() or (path.is_symlink() and path.parent / path.readlink() not in paths):
            continue
        target = folder / "dev" / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target, follow_symlinks=False)


def pack_nccl(folder: pathlib.Path) -> int:
    """The thin NCCL's version, which it tells when it is loaded."""
    places = sorted((ROOT / ".venv").glob("lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2"))
    if not places:
        sys.exit("prepare.py: .venv has no NCCL: run scripts/setup.sh where the CUDA toolkit is")
    (folder / "nccl").mkdir()
    thin_file(places[0], folder / "nccl" / "libnccl.so.2", CHIP)
    return nccl_version(folder / "nccl" / "libnccl.so.2")


def pack_graphs(folder: pathlib.Path) -> None:
    (folder / "graphs").mkdir()
    script = ROOT / "tests" / "bench" / "run" / "gpt.py"
    python = ROOT / ".venv" / "bin" / "python"
    for sizes in SIZES:
        command = [python, script, folder / "graphs" / sizes, "--sizes", sizes, "--write", "graph"]
        subprocess.run(command, check=True, stderr=subprocess.PIPE)


def manifest(nccl: int) -> dict:
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True).stdout != ""
    code = "import torch; print(torch.__version__)"
    python = ROOT / ".venv-cuda" / "bin" / "python3"
    torch = subprocess.run([python, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True).stdout
    return {"commit": commit + (", changed" if changed else ""), "torch": torch.strip(), "nccl": nccl, "chip": CHIP}


def pack(folder: pathlib.Path, build: pathlib.Path) -> None:
    pack_programs(build, folder)
    pack_ucx_modules(folder)
    pack_dev_packages(folder)
    nccl = pack_nccl(folder)
    pack_graphs(folder)
    (folder / "manifest.json").write_text(json.dumps(manifest(nccl), indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "cuda", help="folder of preset cuda")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / ".gpu")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    bundle = options.out / "bundle.tar.xz"
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        pack(folder, options.build)
        partial = bundle.with_suffix(".part")
        with tarfile.open(partial, "w:xz", preset=6) as archive:
            archive.add(folder, ".")
        os.replace(partial, bundle)
    size = bundle.stat().st_size
    print(f"{bundle}: {size / 1e6:.1f} MB")
    if size > LARGEST:
        sys.exit(f"prepare.py: {bundle} has {size} bytes, more than the {LARGEST} that can travel beside the sources")


if __name__ == "__main__":
    main()
