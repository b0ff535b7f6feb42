"""The files that the lints look at, and how a lint ends."""

import os
import pathlib
import subprocess
import sys

SKIPPED_FOLDERS = {".git", ".venv", "build", "__pycache__", ".cache", "demo-output", "node_modules"}


class Tree:
  """A source tree: the paths in it, relative to its root, and their text."""

  def __init__(self, root):
    self.root = pathlib.Path(root)
    self.paths = sorted(_tracked(self.root) or _walked(self.root))

  def matching(self, suffixes, under=""):
    return [p for p in self.paths if p.endswith(tuple(suffixes)) and p.startswith(under)]

  def text(self, path):
    return (self.root / path).read_text(encoding="utf-8", errors="replace")

  def exists(self, path):
    return (self.root / path).exists()


def _tracked(root):
  """What git tracks, less what is deleted in the working tree; nothing outside a checkout."""
  result = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=False)
  if result.returncode != 0:
    return []
  names = result.stdout.decode().split("\0")
  return [name for name in names if name and (root / name).is_file()]


def _walked(root):
  found = []
  for folder, folders, files in os.walk(root):
    folders[:] = [f for f in folders if f not in SKIPPED_FOLDERS and not f.endswith(".egg-info")]
    found += [str((pathlib.Path(folder) / name).relative_to(root)) for name in files]
  return found


def main(check):
  """Runs `check(tree)` on the tree named on the command line, prints its findings, exits 1 if there are any."""
  tree = Tree(sys.argv[1] if len(sys.argv) > 1 else ".")
  findings = check(tree)
  for finding in findings:
    print(finding)
  print(f"{len(tree.paths)} files in the tree, {len(findings)} findings")
  sys.exit(1 if findings else 0)
