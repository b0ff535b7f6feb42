"""Programs of the last release understand the wire: no message, field, value or call of it is gone or means something else."""

import pathlib
import subprocess
import sys

import tree

CONFIG = pathlib.Path(__file__).parent / "buf.yaml"
RELEASED = "tests/lint/released_wire.binpb.gz"


def check(sources):
  buf = pathlib.Path(sys.executable).parent / "buf"
  if not buf.exists():
    return [f"{buf} not found: run scripts/setup.sh"]
  if not sources.exists(RELEASED):
    return [f"{RELEASED}: missing: scripts/freeze-wire.sh makes it of the last release"]
  result = subprocess.run([str(buf), "breaking", "protos", "--against", RELEASED, "--config", str(CONFIG)],
                          cwd=sources.root, capture_output=True, text=True, check=False)
  if result.returncode == 0:
    return []
  return (result.stdout + result.stderr).strip().splitlines() or [f"buf ended with {result.returncode}"]


if __name__ == "__main__":
  tree.main(check)
