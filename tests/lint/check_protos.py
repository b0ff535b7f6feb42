"""The wire keeps buf's standard rules, has documented fields, and its files lie where their package says."""

import pathlib
import subprocess
import sys

import tree

CONFIG = pathlib.Path(__file__).parent / "buf.yaml"


def check(sources):
  buf = pathlib.Path(sys.executable).parent / "buf"
  if not buf.exists():
    return [f"{buf} not found: run scripts/setup.sh"]
  if not sources.matching([".proto"], "protos/"):
    return ["protos/ has no .proto file"]
  result = subprocess.run([str(buf), "lint", "protos", "--config", str(CONFIG)], cwd=sources.root,
                          capture_output=True, text=True, check=False)
  if result.returncode == 0:
    return []
  return (result.stdout + result.stderr).strip().splitlines() or [f"buf ended with {result.returncode}"]


if __name__ == "__main__":
  tree.main(check)
