"""Generates stagewright/_proto from protos/stagewright/v1 with protoc. Does nothing when it is up to date."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PROTO_ROOT = HERE.parents[1] / "protos"
OUTPUT = HERE / "stagewright" / "_proto"


def is_current(sources: list[pathlib.Path]) -> bool:
    """True if every source has a generated module that is newer than it and than this script."""
    for source in sources:
        generated = OUTPUT / f"{source.stem}_pb2.py"
        if not generated.exists():
            return False
        newest = max(source.stat().st_mtime, pathlib.Path(__file__).stat().st_mtime)
        if generated.stat().st_mtime < newest:
            return False
    return (OUTPUT / "__init__.py").exists()


def generate(sources: list[pathlib.Path]) -> None:
    protoc = shutil.which("protoc")
    if protoc is None:
        sys.exit("generate_protos.py: protoc not found; install protobuf-compiler (3.21)")
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(
            [protoc, f"--proto_path={PROTO_ROOT}", f"--python_out={scratch}", *map(str, sources)],
            check=True,
        )
        OUTPUT.mkdir(exist_ok=True)
        (OUTPUT / "__init__.py").write_text("")
        for generated in sorted(pathlib.Path(scratch, "stagewright", "v1").glob("*_pb2.py")):
            # protoc imports siblings by their proto path, which is another package than ours.
            text = re.sub(
                r"^from stagewright\.v1 import", "from stagewright._proto import", generated.read_text(), flags=re.M
            )
            (OUTPUT / generated.name).write_text(text)


def main() -> None:
    sources = sorted((PROTO_ROOT / "stagewright" / "v1").glob("*.proto"))
    if not sources:
        sys.exit(f"generate_protos.py: no .proto files below {PROTO_ROOT}")
    if is_current(sources):
        return
    generate(sources)
    print(f"generated {len(sources)} modules in {OUTPUT}")


if __name__ == "__main__":
    main()
