"""A library that is loaded before a program's own ones, so that functions of the C library do what a test wants."""

import os
import pathlib
import subprocess


class PreloadedLibrary:
    def __init__(self, folder: pathlib.Path, name: str, source: str):
        self.path = folder / f"{name}.so"
        written = folder / f"{name}.c"
        written.write_text(source)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.path, written, "-ldl"], check=True)

    def prefix(self, **environment: object) -> list[str]:
        """What a program is started with: the library, before any that is preloaded anyway, and what it reads."""
        libraries = ":".join(filter(None, [str(self.path), os.environ.get("LD_PRELOAD", "")]))
        return ["env", f"LD_PRELOAD={libraries}", *(f"{name}={value}" for name, value in environment.items())]

    def assert_loaded(self, pid: int) -> None:
        loaded = pathlib.Path(f"/proc/{pid}/maps").read_text()
        assert self.path.name in loaded, f"process {pid} runs without {self.path}: nothing would be wrong with it"
