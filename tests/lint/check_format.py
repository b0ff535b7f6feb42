"""Every C++ file is as clang-format leaves it."""

import concurrent.futures
import os
import subprocess

import tree

BATCH = 20


def misformatted(root, paths):
  result = subprocess.run(["clang-format", "--dry-run", "--Werror", "--ferror-limit=1", *paths], cwd=root,
                          capture_output=True, text=True, check=False)
  if result.returncode == 0:
    return []
  places = [line.split(": error:")[0] for line in result.stderr.splitlines() if ": error:" in line]
  if not places:
    return [f"clang-format failed: {result.stderr.strip()}"]
  return [f"{place}: not as clang-format leaves it (clang-format -i mends it)" for place in places]


def check(sources):
  paths = sources.matching([".h", ".cc", ".cu"])
  batches = [paths[i:i + BATCH] for i in range(0, len(paths), BATCH)]
  with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    results = pool.map(lambda batch: misformatted(sources.root, batch), batches)
  return [finding for findings in results for finding in findings]


if __name__ == "__main__":
  tree.main(check)
