"""Build steps of the wheel: the generated protobuf code, the programs, and the libraries that they load.

The programs are taken from build/release/bin, or from the folder that STAGEWRIGHT_BIN names. LibTorch is not copied,
nor is what else lies beside torch in site-packages: they load that of the torch wheel which the package depends on. Nor
are the libraries that every Linux has, so the wheel runs where the C library is at least the one of the machine that
built it.
"""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import sysconfig

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = ("stagewright", "stagewright-planner", "stagewright-worker")
# Loaded by programs when they need it, so that no list of theirs has it.
MODULE = "libstagewright_drl_pp.so"
# Those of the C library and of the compiler.
EVERYWHERE = re.compile(r"(linux-vdso|ld-linux-.*|lib(c|m|dl|pthread|rt|resolv|util|gcc_s|stdc\+\+))\.so(\.\d+)?")
# They belong to a machine's InfiniBand driver; UCX does without InfiniBand where they are absent.
OF_DRIVERS = re.compile(r"lib(ibverbs|rdmacm|mlx5|nl-3|nl-route-3)\.so(\.\d+)?")


def run(*command) -> str:
    try:
        return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        sys.exit(f"wheel: {command[0]} not found: run scripts/setup.sh")
    except subprocess.CalledProcessError as error:
        sys.exit(f"wheel: {' '.join(map(str, command))}: {error.stderr.strip()}")


def programs_folder() -> pathlib.Path:
    named = os.environ.get("STAGEWRIGHT_BIN")
    folder = pathlib.Path(named) if named else HERE.parents[1] / "build" / "release" / "bin"
    for path in [*(folder / name for name in PROGRAMS), folder.parent / "lib" / MODULE]:
        if not path.exists():
            sys.exit(f"wheel: {path} not found: run scripts/build.sh release, or name another build's bin folder in "
                     "STAGEWRIGHT_BIN")  # fmt: skip
    return folder


def libraries_of(*files: pathlib.Path) -> dict[str, pathlib.Path]:
    """Name -> path of every library that files load, directly or not, less those that are everywhere."""
    found = {}
    for line in run("ldd", *files).splitlines():
        name, arrow, path = line.strip().partition(" => ")
        if not arrow or EVERYWHERE.fullmatch(pathlib.Path(name).name) or OF_DRIVERS.fullmatch(name):
            continue
        if "not found" in path:
            sys.exit(f"wheel: {name}, which the programs load, is not found on this machine")
        found[name] = pathlib.Path(path.split(" (")[0])
    return found


def check_torch(torch_lib: pathlib.Path, requirements: list[str]) -> None:
    """The programs are linked to the torch that the package asks for."""
    text = (torch_lib.parent / "version.py").read_text()
    linked = re.search(r"__version__ = '([^'+]*)", text).group(1)
    if f"torch=={linked}" not in requirements:
        sys.exit(f"wheel: the programs are linked to torch {linked}, and pyproject.toml asks for another: build again")


def check_version(program: pathlib.Path, version: str) -> None:
    said = run(program, "--version").split()[-1]
    if said != version:
        sys.exit(f"wheel: {program} is of version {said}, the package of {version}: build again")


def copy(source: pathlib.Path, target: pathlib.Path, search_path: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755)
    run("strip", "--strip-unneeded", target)
    run("patchelf", "--set-rpath", search_path, target)


def copy_notice(library: pathlib.Path, folder: pathlib.Path) -> None:
    """The copyright file of the Debian package that a library is from."""
    package = run("dpkg-query", "--search", f"*/{library.resolve().name}").split(":")[0]
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(f"/usr/share/doc/{package}/copyright", folder / package)


def add_programs(package: pathlib.Path, version: str, requirements: list[str]) -> None:
    """Into PACKAGE/bin and PACKAGE/lib; all that they load is looked for relative to where they are."""
    folder, lib = programs_folder(), package / "lib"
    programs, module = [folder / name for name in PROGRAMS], folder.parent / "lib" / MODULE
    for program in programs:
        check_version(program, version)
    libraries = libraries_of(*programs, module)
    torch_lib = libraries["libtorch_cpu.so"].parent
    check_torch(torch_lib, requirements)
    # UCX looks for its own modules in the folder ucx beside its library.
    ucx_modules = list((libraries["libucs.so.0"].parent / "ucx").glob("*.so.0"))
    libraries |= libraries_of(*ucx_modules)

    site = torch_lib.parents[1]
    beside_torch = sorted({path.parent.relative_to(site) for path in libraries.values() if path.is_relative_to(site)})
    there = "".join(f":$ORIGIN/../../{path}" for path in beside_torch)
    for program in programs:
        copy(program, package / "bin" / program.name, f"$ORIGIN/../lib{there}")
    copy(module, lib / MODULE, f"$ORIGIN{there}")
    for path in ucx_modules:
        libraries.pop(path.name, None)  # One needs another.
        copy(path, lib / "ucx" / path.name, "$ORIGIN:$ORIGIN/..")
    for name, path in libraries.items():
        if not path.is_relative_to(site):
            copy(path, lib / name, "$ORIGIN")
            copy_notice(path, lib / "licenses")


class BuildPy(build_py):
    """Without programs for an editable installation: a checkout's are in its build folder."""

    def run(self):
        if (HERE.parents[1] / "protos").exists():
            run(sys.executable, HERE / "generate_protos.py")
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)  # What an earlier build had and this one has not.
        super().run()
        if not self.editable_mode:
            package = pathlib.Path(self.build_lib) / "stagewright"
            add_programs(package, self.distribution.get_version(), self.distribution.install_requires)


class BdistWheel(bdist_wheel):
    """For any Python, and this machine's architecture and C library or a newer one."""

    def finalize_options(self):
        self.distribution.has_ext_modules = lambda: True  # The package goes where those of one platform go.
        super().finalize_options()

    def get_tag(self):
        machine = sysconfig.get_platform().partition("-")[2].replace("-", "_")
        return "py3", "none", f"manylinux_{platform.libc_ver()[1].replace('.', '_')}_{machine}"
