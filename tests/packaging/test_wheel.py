"""The wheel as users have it: built, installed in an empty environment, and trained with.

What is installed and run sees nothing of the checkout or of its environment, torch included."""

import os
import pathlib
import re
import resource
import subprocess
import sys
import time
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = ROOT / "clients" / "python"
VERSION = re.search(r'^version = "(.*)"$', (CLIENT / "pyproject.toml").read_text(), re.MULTILINE).group(1)
PROGRAMS = ["stagewright", "stagewright-planner", "stagewright-worker"]
# What every Linux has with its C library and compiler. All else comes with the wheel or with torch.
SYSTEM = re.compile(r"(ld-linux-.*|lib(c|m|dl|pthread|rt|resolv|util|gcc_s|stdc\+\+))\.so\.\d+")
TRAINING_SECONDS = 60


def run(*command, environment=None, cwd=None, timeout=300) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout,
                          env=environment, cwd=cwd)  # fmt: skip


def build_wheel(folder: pathlib.Path, **changes) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, CLIENT]
    return run(*command, environment={**os.environ, **changes}, cwd=folder)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("wheel")
    result = build_wheel(folder)
    assert result.returncode == 0, result.stdout + result.stderr
    (path,) = folder.iterdir()
    return path


class Environment:
    """A new virtual environment with the wheel and what it depends on."""

    def __init__(self, folder: pathlib.Path, wheel: pathlib.Path):
        self.folder = folder
        self.bin = folder / "bin"
        # Of the variables around, only what finds packages and speaks to the system.
        kept = {k: v for k, v in os.environ.items() if k.startswith("PIP_") or k in ("HOME", "LANG", "TMPDIR")}
        self.variables = {**kept, "PATH": "/usr/bin:/bin"}
        assert run(sys.executable, "-m", "venv", folder).returncode == 0
        installed = self.run("pip", "install", "--quiet", "--no-compile", wheel, timeout=600)  # Torch takes long to compile.
        assert installed.returncode == 0, installed.stderr

    def run(self, program: str, *arguments, timeout=300) -> subprocess.CompletedProcess:
        command = (self.bin / program, *arguments)
        return run(*command, environment=self.variables, cwd=self.folder, timeout=timeout)

    @property
    def package(self) -> pathlib.Path:
        (path,) = self.folder.glob("lib/python3*/site-packages/stagewright")
        return path

    def binaries(self) -> list[pathlib.Path]:
        files = [path for part in ("bin", "lib") for path in (self.package / part).rglob("*") if path.is_file()]
        return [path for path in files if path.read_bytes()[:4] == b"\x7fELF"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory, wheel) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment"), wheel)


def test_the_wheel_says_what_it_is(wheel):
    assert re.fullmatch(rf"stagewright-{VERSION}-py3-none-manylinux_2_\d+_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as file:
        (metadata,) = [file.read(name).decode() for name in file.namelist() if name.endswith(".dist-info/METADATA")]
        assert any(name.endswith("/LICENSE") and ".dist-info/" in name for name in file.namelist())
        assert not [name for name in file.namelist() if name.endswith((".pyc", ".cc"))]
        notices = {name.rsplit("/", 1)[1] for name in file.namelist() if "/lib/licenses/" in name}
    assert re.search(r"^Requires-Dist: torch==\d+\.\d+\.\d+$", metadata, re.MULTILINE)
    assert "The Python package" in metadata
    assert {"libgrpc29", "libprotobuf32", "libucx0"} <= notices


def test_programs_without_a_build_are_asked_for(tmp_path):
    result = build_wheel(tmp_path, STAGEWRIGHT_BIN=str(tmp_path / "absent"))
    assert result.returncode != 0
    said = f"{tmp_path}/absent/stagewright not found: run scripts/build.sh release, or name another build's bin folder"
    assert said in result.stdout + result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_start_and_say_their_version(environment, program):
    result = environment.run(program, "--version")
    assert (result.returncode, result.stdout) == (0, f"{program} {VERSION}\n"), result.stderr


def test_programs_load_nothing_from_the_machine_but_the_c_library(environment):
    assert len(environment.binaries()) > 30
    for binary in environment.binaries():
        assert run("patchelf", "--print-rpath", binary).stdout.startswith("$ORIGIN")
        if binary.parent.name == "ucx":
            continue  # InfiniBand's are those of the machine's driver.
        for line in run("ldd", binary).stdout.splitlines():
            name, arrow, path = line.strip().partition(" => ")
            if arrow and not SYSTEM.fullmatch(pathlib.Path(name).name):
                assert path.startswith(str(environment.folder)), f"{binary}: {line}"


def test_the_package_is_the_installed_one(environment):
    result = environment.run("python", "-c", "import stagewright; print(stagewright.__file__, stagewright.__version__)")
    assert result.stdout == f"{environment.package}/__init__.py {VERSION}\n", result.stderr


def test_a_planner_that_needs_torch_finds_it(environment):
    graph = environment.package / "examples" / "graphs" / "case-study.swg"
    flags = ["--cluster", "summit:2", "--mini-batch", 64, "--planner", "drl_pp", "--time-limit", 5]
    result = environment.run("stagewright", "plan", "--local", graph, *flags)
    assert result.returncode == 0, result.stderr
    assert "drl_pp" in result.stdout


def processor_seconds() -> float:
    """Of all programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_up_trains_the_digits(environment):
    command = ["up", "--workers", 4, "--", environment.bin / "python", "-m", "stagewright.examples.digits", "run"]
    start, used = time.monotonic(), processor_seconds()
    result = environment.run("stagewright", *command)
    # Of both clocks the one that shows less: on a busy machine others have the cores in between.
    seconds = min(time.monotonic() - start, processor_seconds() - used)
    assert result.returncode == 0, result.stdout + result.stderr
    accuracy = float(re.search(r"^accuracy (\S+) ", result.stdout, re.MULTILINE).group(1))
    assert accuracy >= 0.96
    assert seconds < TRAINING_SECONDS
    workers = re.search(r"worker\S*/cpu0", result.stdout)
    assert workers, result.stdout
